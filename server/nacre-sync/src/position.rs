//! Positions in the hub's histories, and their stored form.

use nacre_types::Cas;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// vBuckets per row. A change of one vBucket rewrites the row.
const GROUP: usize = 64;
/// The row that names the bucket.
const HUB: &str = "hub";
/// The row with the position in the device's own history.
const PUSH: &str = "push";
/// The row with the bounds of the CAS values given to versions.
const ISSUED: &str = "issued";

/// A position in the history of a vBucket of the hub.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Point {
    /// The branch of history; 0 for none.
    pub vb_uuid: u64,
    /// The last seqno that the device has.
    pub seqno: u64,
    /// The snapshot that contains it.
    pub snapshot: (u64, u64),
}

/// Upper bounds of the CAS values of this device's versions in histories. A bound is stored before a version gets a CAS above it,
/// so that a process never uses a CAS below those of the previous process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Issued {
    /// No sent version of the application has a greater CAS.
    pub writes: Cas,
    /// No decision has a greater CAS.
    pub decisions: Cas,
}

#[derive(Serialize, Deserialize)]
struct Hub {
    bucket: String,
    vbuckets: u16,
    collections: BTreeMap<String, u32>,
}

/// The state of an engine, as rows that a device stores.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Saved {
    /// The UUID of the hub's bucket; empty before the first session.
    pub bucket: String,
    /// The collections of the positions, with their IDs at the hub.
    pub collections: BTreeMap<String, u32>,
    /// The positions by vBucket.
    pub points: Vec<Point>,
    /// The position in the device's own history: [`Replica::position`](crate::Replica::position).
    pub push: Option<String>,
    /// Bounds of the CAS values used so far.
    pub issued: Issued,
}

impl Saved {
    /// Reads rows. An unreadable row counts as missing: sync then starts from the beginning, which costs time and loses nothing.
    pub fn read(rows: &[(String, String)]) -> Saved {
        let row = |name: &str| rows.iter().find(|(known, _)| known == name).map(|(_, text)| text);
        let issued = row(ISSUED).and_then(|text| serde_json::from_str(text).ok());
        let [writes, decisions]: [u64; 2] = issued.unwrap_or_default();
        let issued = Issued { writes: Cas(writes), decisions: Cas(decisions) };
        let hub: Option<Hub> = row(HUB).and_then(|text| serde_json::from_str(text).ok());
        let Some(hub) = hub.filter(|hub| (1..=1024).contains(&hub.vbuckets)) else {
            return Saved { issued, ..Saved::default() };
        };
        let mut points = vec![Point::default(); usize::from(hub.vbuckets)];
        for (group, points) in points.chunks_mut(GROUP).enumerate() {
            let text = row(&pull(group)).map(String::as_str).unwrap_or_default();
            let read: Vec<[u64; 4]> = serde_json::from_str(text).unwrap_or_default();
            for (point, [vb_uuid, seqno, start, end]) in points.iter_mut().zip(read) {
                if start <= seqno && seqno <= end {
                    *point = Point { vb_uuid, seqno, snapshot: (start, end) };
                }
            }
        }
        let push = row(PUSH).cloned();
        Saved { bucket: hub.bucket, collections: hub.collections, points, push, issued }
    }

    /// Returns the rows that differ from those of `before`.
    pub fn rows_after(&self, before: &Saved) -> Vec<(String, String)> {
        let mut rows = Vec::new();
        if self.bucket != before.bucket
            || self.collections != before.collections
            || self.points.len() != before.points.len()
        {
            let (bucket, collections) = (self.bucket.clone(), self.collections.clone());
            let hub = Hub { bucket, vbuckets: self.points.len() as u16, collections };
            rows.push((HUB.to_owned(), text(&hub)));
        }
        let old: Vec<&[Point]> = before.points.chunks(GROUP).collect();
        for (group, points) in self.points.chunks(GROUP).enumerate() {
            if old.get(group) != Some(&points) {
                let numbers = points
                    .iter()
                    .map(|point| [point.vb_uuid, point.seqno, point.snapshot.0, point.snapshot.1]);
                rows.push((pull(group), text(&numbers.collect::<Vec<_>>())));
            }
        }
        if self.push != before.push {
            rows.extend(self.push.clone().map(|push| (PUSH.to_owned(), push)));
        }
        if self.issued != before.issued {
            let Issued { writes, decisions } = self.issued;
            rows.push((ISSUED.to_owned(), text(&[writes.0, decisions.0])));
        }
        rows
    }
}

fn pull(group: usize) -> String {
    format!("pull-{group}")
}

fn text(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("texts and numbers can be written")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_read_back_as_written() {
        let point = |n: u64| Point { vb_uuid: u64::MAX - n, seqno: n, snapshot: (0, 2 * n) };
        let mut saved = Saved {
            bucket: "b".into(),
            collections: BTreeMap::from([("s.c".into(), 8)]),
            points: (0..100).map(point).collect(),
            push: Some("token".into()),
            issued: Issued { writes: Cas(u64::MAX - 1), decisions: Cas(7) },
        };
        let rows = saved.rows_after(&Saved::default());
        assert_eq!(rows.len(), 5, "{rows:?}");
        assert_eq!(Saved::read(&rows), saved);
        let before = saved.clone();
        assert_eq!(saved.rows_after(&before), []);
        saved.points[70].seqno += 1;
        assert_eq!(saved.rows_after(&before).len(), 1);
    }

    #[test]
    fn rows_that_are_damaged_count_as_missing() {
        let row = |name: &str, text: &str| (name.to_owned(), text.to_owned());
        assert_eq!(Saved::read(&[row(HUB, "{}"), row(ISSUED, "[1]")]), Saved::default());
        let issued = Issued { writes: Cas(5), decisions: Cas(6) };
        let saved = Saved { issued, ..Saved::default() };
        assert_eq!(Saved::read(&[row(ISSUED, "[5,6]")]), saved, "nothing else was stored yet");
        assert_eq!(
            Saved::read(&[row(HUB, r#"{"bucket":"b","vbuckets":5000,"collections":{}}"#)]),
            Saved::default()
        );
        let hub = row(HUB, r#"{"bucket":"b","vbuckets":2,"collections":{}}"#);
        for text in ["", "[]", "[[1,2,3]]", "[[7,5,6,9]]", "{"] {
            let saved = Saved::read(&[hub.clone(), row("pull-0", text)]);
            assert_eq!(saved.points, [Point::default(); 2], "{text}");
        }
    }
}
