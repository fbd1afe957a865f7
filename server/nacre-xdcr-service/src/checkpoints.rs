//! Stored checkpoint records of vBuckets. The other nodes keep copies because they may take a vBucket over.
//!
//! A record names the histories that it belongs to, so an outdated record or one of another node is harmless: it only causes
//! repetitions. The other facts that a record depends on, filter and mapping of collections, are stored with it.

use nacre_store::{Error, Space};
use nacre_types::Vbid;
use nacre_xdcr::Records;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The longest row accepted from another node, in bytes.
const ROW_BYTES_MAX: usize = 1 << 20;

/// The conditions under which the records of a pipeline are valid.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Terms {
    /// The replication: its UID and its restream counter.
    pub replication: String,
    /// The target collection of each source collection.
    pub collections: BTreeMap<u32, u32>,
}

impl Terms {
    /// Returns true if everything that `later` wants was sent under these terms.
    fn cover(&self, later: &Terms) -> bool {
        let is_there = |(from, to): (&u32, &u32)| self.collections.get(from) == Some(to);
        self.replication == later.replication && later.collections.iter().all(is_there)
    }
}

/// A row: the records of one vBucket, with their terms.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Row {
    terms: Terms,
    records: String,
}

/// Rows by key, as nodes exchange them. A row without a value is removed.
pub(crate) type Rows = Vec<(String, Option<String>)>;

/// The checkpoints of all replications on this node.
pub(crate) struct Checkpoints {
    space: Arc<dyn Space>,
    rows: Mutex<BTreeMap<String, String>>,
    /// Keys of rows that changed on this node and were not yet sent to other nodes.
    news: Mutex<BTreeSet<String>>,
}

fn key_of(replication: &str, vbid: Vbid) -> String {
    format!("{replication}#{:04}", vbid.0)
}

impl Checkpoints {
    /// Loads the stored records.
    ///
    /// # Errors
    /// The error of the disk.
    pub fn open(space: Arc<dyn Space>) -> Result<Checkpoints, Error> {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).ok();
        let rows = space.load()?.into_iter();
        let rows = rows.filter_map(|(key, value)| Some((text(key)?, text(value)?))).collect();
        Ok(Checkpoints { space, rows: Mutex::new(rows), news: Mutex::default() })
    }

    /// Returns the records of a vBucket that are valid under `terms`.
    pub fn records(&self, replication: &str, vbid: Vbid, terms: &Terms) -> Records {
        let row = self.rows.lock().get(&key_of(replication, vbid)).cloned();
        let row = row.and_then(|row| serde_json::from_str::<Row>(&row).ok());
        let row = row.filter(|row| row.terms.cover(terms));
        row.and_then(|row| Records::decode(row.records.as_bytes()).ok()).unwrap_or_default()
    }

    /// Stores the records of a vBucket. They survive a crash of the process at once, and a power loss soon after.
    ///
    /// # Errors
    /// The error of the disk; then either the old or the new records are stored.
    pub fn save(
        &self,
        replication: &str,
        vbid: Vbid,
        terms: &Terms,
        records: &Records,
    ) -> Result<(), Error> {
        let records = String::from_utf8(records.encode()).unwrap_or_default();
        let row = Row { terms: terms.clone(), records };
        let row = serde_json::to_string(&row).expect("a row is plain data");
        let key = key_of(replication, vbid);
        self.space.apply(&[(key.clone().into_bytes(), Some(row.clone().into_bytes()))], false)?;
        self.rows.lock().insert(key.clone(), row);
        self.news.lock().insert(key);
        Ok(())
    }

    /// Removes the records of replications for which `is_known` returns false.
    ///
    /// # Errors
    /// The error of the disk.
    pub fn forget_others(&self, is_known: impl Fn(&str) -> bool) -> Result<(), Error> {
        let mut rows = self.rows.lock();
        let replication = |key: &str| key.rsplit_once('#').map_or(key, |(id, _)| id).to_owned();
        let gone: Vec<String> =
            rows.keys().filter(|key| !is_known(&replication(key))).cloned().collect();
        if gone.is_empty() {
            return Ok(());
        }
        let writes: Vec<_> = gone.iter().map(|key| (key.clone().into_bytes(), None)).collect();
        self.space.apply(&writes, false)?;
        gone.iter().for_each(|key| drop(rows.remove(key)));
        Ok(())
    }

    /// Takes the rows that the other nodes do not have yet.
    pub fn take_news(&self) -> Rows {
        let news = std::mem::take(&mut *self.news.lock());
        let rows = self.rows.lock();
        news.into_iter().map(|key| (key.clone(), rows.get(&key).cloned())).collect()
    }

    /// Stores rows received from another node.
    ///
    /// # Errors
    /// The error of the disk.
    pub fn receive(&self, rows: Rows) -> Result<(), Error> {
        let is_row = |(key, value): &(String, Option<String>)| {
            key.len() <= 1024 && value.as_ref().is_none_or(|value| value.len() <= ROW_BYTES_MAX)
        };
        let rows: Rows = rows.into_iter().filter(is_row).collect();
        let bytes = |(key, value): &(String, Option<String>)| {
            (key.clone().into_bytes(), value.clone().map(String::into_bytes))
        };
        self.space.apply(&rows.iter().map(bytes).collect::<Vec<_>>(), false)?;
        let mut known = self.rows.lock();
        for (key, value) in rows {
            match value {
                Some(value) => drop(known.insert(key, value)),
                None => drop(known.remove(&key)),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_store::{MemorySpaces, Spaces};

    const RECORDS: &str =
        r#"[{"vbuuid":7,"seqno":20,"snapshot":[15,30],"targets":[[3,9,200]],"made":1800000000}]"#;

    fn terms(collections: &[(u32, u32)]) -> Terms {
        Terms { replication: "r".to_owned(), collections: collections.iter().copied().collect() }
    }

    #[test]
    fn records_hold_for_what_was_sent_under_them() {
        let space = MemorySpaces::default().open("x").unwrap();
        let checkpoints = Checkpoints::open(Arc::clone(&space)).unwrap();
        let records = Records::decode(RECORDS.as_bytes()).unwrap();
        checkpoints.save("u/a/b", Vbid(3), &terms(&[(0, 0), (8, 9)]), &records).unwrap();
        let reopened = Checkpoints::open(space).unwrap();
        let found = |terms: &Terms| reopened.records("u/a/b", Vbid(3), terms) == records;
        assert!(found(&terms(&[(0, 0), (8, 9)])) && found(&terms(&[(0, 0)])));
        assert!(!found(&terms(&[(0, 0), (8, 10)])) && !found(&terms(&[(9, 9)])));
        let again = Terms { replication: "r2".to_owned(), ..terms(&[(0, 0)]) };
        assert!(!found(&again));
        assert_eq!(reopened.records("u/a/b", Vbid(4), &terms(&[])), Records::default());
    }

    #[test]
    fn other_nodes_receive_new_records_once() {
        let spaces = MemorySpaces::default();
        let checkpoints = |name: &str| Checkpoints::open(spaces.open(name).unwrap()).unwrap();
        let (one, other) = (checkpoints("one"), checkpoints("other"));
        let records = Records::decode(RECORDS.as_bytes()).unwrap();
        one.save("u/a/b", Vbid(3), &terms(&[]), &records).unwrap();
        let news = one.take_news();
        assert_eq!((news.len(), one.take_news().len()), (1, 0));
        other.receive(news).unwrap();
        assert_eq!(other.records("u/a/b", Vbid(3), &terms(&[])), records);
        other.forget_others(|id| id == "u/a/b").unwrap();
        assert_eq!(other.records("u/a/b", Vbid(3), &terms(&[])), records);
        other.forget_others(|_| false).unwrap();
        assert_eq!(other.records("u/a/b", Vbid(3), &terms(&[])), Records::default());
    }
}
