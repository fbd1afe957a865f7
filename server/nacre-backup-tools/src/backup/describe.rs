//! `nacre backup describe`: the times to which each bucket can be restored.

use super::Place;
use clap::Args;
use jiff::Timestamp;
use nacre_backup::Reader;
use nacre_cli::{Format, Listing};
use serde_json::Value;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// Nanoseconds of a millisecond.
const NANOS_PER_MS: u128 = 1_000_000;

/// Options of `nacre backup describe`.
#[derive(Args, Clone, Debug)]
pub(super) struct Describe {
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    format: Format,
}

/// The backups of a bucket that can be restored.
#[derive(Default)]
struct Restorable {
    /// The times at which they began, in Unix milliseconds.
    began_ms: Vec<u64>,
    /// The first and the last CAS of the moments to which each can go back.
    moments: Vec<(u64, u64)>,
}

/// Shows for each bucket how many backups there are, and the times to which they can go back.
///
/// # Errors
/// A sentence.
pub(super) fn describe(options: &Describe) -> Result<(), String> {
    let repository = options.place.open()?;
    let mut buckets: BTreeMap<(String, String), Restorable> = BTreeMap::new();
    for id in repository.backups()? {
        let read = match repository.manifest(id) {
            Ok(read) => read,
            Err(error) if error.is_damage() => {
                eprintln!("the backup {id} cannot be restored: {error}");
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        for part in &read.0.buckets {
            let reader = Reader::new(&repository, id, &part.name);
            match reader.and_then(|reader| reader.moments()) {
                Ok(moments) => {
                    let bucket = (part.name.clone(), part.uuid.clone());
                    let restorable = buckets.entry(bucket).or_default();
                    restorable.began_ms.push(read.0.time_ms.0);
                    restorable.moments.extend(moments.map(RangeInclusive::into_inner));
                }
                Err(error) if error.is_damage() => {
                    eprintln!("{} cannot be restored from the backup {id}: {error}", part.name);
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
    let mut listing = Listing::new(&["bucket", "uuid", "backups", "oldest", "newest", "moments"]);
    for ((name, uuid), Restorable { began_ms, moments }) in buckets {
        let time = |ms: Option<&u64>| -> Value {
            ms.map(|ms| time(u128::from(*ms) * NANOS_PER_MS)).into()
        };
        let moments: Vec<Value> =
            merged(moments).into_iter().map(|moments| interval(moments).into()).collect();
        listing.add([
            name.into(),
            uuid.into(),
            began_ms.len().into(),
            time(began_ms.iter().min()),
            time(began_ms.iter().max()),
            moments.into(),
        ]);
    }
    options.format.show(&listing);
    Ok(())
}

/// Formats nanoseconds since 1970.
fn time(ns: u128) -> String {
    let time = i128::try_from(ns).ok().and_then(|ns| Timestamp::from_nanosecond(ns).ok());
    time.map_or_else(|| ns.to_string(), |time| time.to_string())
}

/// `2026-11-27T12:00:00Z..2026-11-28T12:00:00Z`; the beginning is missing if the backups have every version.
fn interval((first, last): (u64, u64)) -> String {
    let begin = if first == 0 { String::new() } else { time(first.into()) };
    format!("{begin}..{}", time(last.into()))
}

/// Joins intervals that overlap; returns them in order.
fn merged(mut intervals: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    intervals.sort_unstable();
    let mut joined: Vec<(u64, u64)> = Vec::new();
    for (first, last) in intervals {
        match joined.last_mut() {
            Some(before) if first <= before.1 => before.1 = before.1.max(last),
            _ => joined.push((first, last)),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_that_overlap_are_one() {
        let intervals = vec![(50, 60), (0, 10), (10, 30), (5, 20), (31, 40), (52, 55)];
        assert_eq!(merged(intervals), [(0, 30), (31, 40), (50, 60)]);
        assert!(merged(Vec::new()).is_empty());
    }

    #[test]
    fn an_interval_is_shown_as_times() {
        let second = 1_000_000_000;
        assert_eq!(interval((0, second)), "..1970-01-01T00:00:01Z");
        let expected = "1970-01-01T00:00:01Z..1970-01-01T00:01:00Z";
        assert_eq!(interval((second, 60 * second)), expected);
    }
}
