//! Identifiers of backups.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;
use ulid::Ulid;

/// The ID of a backup or a repository: a ULID, whose text sorts by the time of creation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BackupId(Ulid);

impl BackupId {
    /// Creates an ID from the time, in Unix milliseconds, and random bits. It is greater than `after`, even if the clock was set
    /// back meanwhile.
    pub fn new(now_ms: u64, random: u128, after: Option<BackupId>) -> BackupId {
        let id = Ulid::from_parts(now_ms, random);
        match after {
            Some(BackupId(after)) if after >= id => {
                let next = u128::from_be_bytes(after.to_bytes()).saturating_add(1);
                BackupId(Ulid::from_bytes(next.to_be_bytes()))
            }
            _ => BackupId(id),
        }
    }

    /// Returns the time of creation, in Unix milliseconds.
    pub fn timestamp_ms(self) -> u64 {
        self.0.timestamp_ms()
    }
}

impl fmt::Display for BackupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for BackupId {
    type Err = String;

    fn from_str(text: &str) -> Result<BackupId, String> {
        let id =
            Ulid::from_string(text).map_err(|_| format!("{text:?} is not the id of a backup"))?;
        // Each ID has one spelling, because it is part of object names.
        match id.to_string() == text {
            true => Ok(BackupId(id)),
            false => Err(format!("{text:?} is not the id of a backup")),
        }
    }
}

impl Serialize for BackupId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for BackupId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<BackupId, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case_22_an_id_is_greater_than_the_one_before_though_the_clock_was_set_back() {
        let first = BackupId::new(5_000, u128::MAX, None);
        let second = BackupId::new(1_000, 7, Some(first));
        assert!(second > first && second.to_string() > first.to_string());
        assert_eq!(second.to_string().parse(), Ok(second));
        for text in [
            "",
            "..",
            "01ARZ3NDEKTSV4RRFFQ69G5FA",
            "01arz3ndektsv4rrffq69g5fav",
            "8ZZZZZZZZZZZZZZZZZZZZZZZZZ",
        ] {
            assert!(text.parse::<BackupId>().is_err(), "{text}");
        }
    }
}
