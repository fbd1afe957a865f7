//! Service records: data of services in the agreed state. The state machine knows only their names and keyspaces, not their
//! meaning.

use crate::Refusal;
use crate::change::DroppedPath;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// The longest name of a record, in bytes.
const NAME_BYTES_MAX: usize = 512;
/// Maximum size of a record's body: each node keeps all records in memory.
const BODY_BYTES_MAX: usize = 1 << 20;
/// Maximum number of records per service.
const RECORDS_MAX: usize = 1000;

/// A record of a service, such as the definition of a search index. `Debug` omits the body, which may contain passwords.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceRecord {
    /// Version; the service chooses a new one for each change.
    pub version: String,
    /// The bucket that the record belongs to; dropping the bucket removes the record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bucket: Option<String>,
    /// The scope that the record belongs to; dropping the scope removes the record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// The content.
    pub body: String,
}

impl fmt::Debug for ServiceRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ServiceRecord { version, bucket, scope, body } = self;
        let (bucket, scope) = (bucket.as_deref().unwrap_or("-"), scope.as_deref().unwrap_or("-"));
        write!(f, "ServiceRecord({version} of {bucket}.{scope}, {} bytes)", body.len())
    }
}

/// The precondition for writing or removing a record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Expected {
    /// The record must not exist.
    Nothing,
    /// The record may exist or not.
    Anything,
    /// The record must have this version.
    Version(String),
}

/// The records of all services.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ServiceRecords(BTreeMap<String, BTreeMap<String, ServiceRecord>>);

impl ServiceRecords {
    /// Iterates over the records of a service, by name.
    pub fn of(&self, service: &str) -> impl Iterator<Item = (&str, &ServiceRecord)> {
        let records = self.0.get(service).into_iter().flatten();
        records.map(|(name, record)| (name.as_str(), record))
    }

    /// Returns a record of a service.
    pub fn get(&self, service: &str, name: &str) -> Option<&ServiceRecord> {
        self.0.get(service)?.get(name)
    }

    pub(crate) fn put(
        &mut self,
        service: &str,
        name: &str,
        record: &ServiceRecord,
        expected: &Expected,
    ) -> Result<(), Refusal> {
        self.check(service, name, expected)?;
        let too_long = |field, what, max| {
            Err(Refusal::Invalid { field, reason: format!("{what} of at most {max} bytes") })
        };
        if name.len() > NAME_BYTES_MAX {
            return too_long("name", "A record has a name", NAME_BYTES_MAX);
        }
        if record.body.len() > BODY_BYTES_MAX {
            return too_long("body", "A record has a body", BODY_BYTES_MAX);
        }
        let records = self.0.entry(service.to_owned()).or_default();
        if records.len() >= RECORDS_MAX && !records.contains_key(name) {
            let reason = format!("There are at most {RECORDS_MAX} records of a service");
            return Err(Refusal::Invalid { field: "name", reason });
        }
        records.insert(name.to_owned(), record.clone());
        Ok(())
    }

    pub(crate) fn remove(
        &mut self,
        service: &str,
        name: &str,
        expected: &Expected,
    ) -> Result<(), Refusal> {
        self.check(service, name, expected)?;
        let records = self.0.get_mut(service);
        let removed = records.and_then(|records| records.remove(name));
        removed.map(drop).ok_or_else(|| Refusal::RecordNotFound { name: name.to_owned() })
    }

    fn check(&self, service: &str, name: &str, expected: &Expected) -> Result<(), Refusal> {
        let name = || name.to_owned();
        match (expected, self.get(service, &name())) {
            (Expected::Nothing, Some(_)) => Err(Refusal::RecordExists { name: name() }),
            (Expected::Version(_), None) => Err(Refusal::RecordNotFound { name: name() }),
            (Expected::Version(wanted), Some(known)) if *wanted != known.version => {
                Err(Refusal::RecordChanged { name: name(), version: known.version.clone() })
            }
            _ => Ok(()),
        }
    }

    /// Removes the records of a dropped bucket or scope.
    pub(crate) fn forget(&mut self, dropped: &DroppedPath<'_>) {
        let is_gone = |record: &ServiceRecord| {
            let bucket = record.bucket.as_deref();
            bucket.is_some_and(|bucket| dropped.contains_scope(bucket, record.scope.as_deref()))
        };
        self.0.values_mut().for_each(|records| records.retain(|_, record| !is_gone(record)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(version: &str, scope: Option<&str>) -> ServiceRecord {
        let scope = scope.map(str::to_owned);
        let (version, bucket) = (version.to_owned(), Some("b".to_owned()));
        ServiceRecord { version, bucket, scope, body: "{}".into() }
    }

    #[test]
    fn a_record_changes_only_in_its_expected_version() {
        let mut records = ServiceRecords::default();
        let expect = |version: &str| Expected::Version(version.into());
        let missing = records.put("s", "a", &record("1", None), &expect("1")).unwrap_err();
        assert_eq!(missing, Refusal::RecordNotFound { name: "a".into() });
        records.put("s", "a", &record("1", None), &Expected::Nothing).unwrap();
        let exists = records.put("s", "a", &record("2", None), &Expected::Nothing).unwrap_err();
        assert_eq!(exists, Refusal::RecordExists { name: "a".into() });
        records.put("s", "a", &record("2", None), &expect("1")).unwrap();
        let changed = records.remove("s", "a", &expect("1")).unwrap_err();
        assert_eq!(changed, Refusal::RecordChanged { name: "a".into(), version: "2".into() });
        assert_eq!(records.get("other", "a"), None);
        records.put("s", "a", &record("3", None), &Expected::Anything).unwrap();
        records.remove("s", "a", &expect("3")).unwrap();
        let missing = records.remove("s", "a", &Expected::Anything).unwrap_err();
        assert_eq!(missing, Refusal::RecordNotFound { name: "a".into() });
    }

    #[test]
    fn the_body_of_a_record_is_not_shown() {
        let record = ServiceRecord { body: "sesame".into(), ..record("1", None) };
        assert_eq!(format!("{record:?}"), "ServiceRecord(1 of b.-, 6 bytes)");
    }

    #[test]
    fn records_go_with_their_bucket_and_scope() {
        let mut records = ServiceRecords::default();
        for (name, scope) in [("whole", None), ("one", Some("one")), ("two", Some("two"))] {
            records.put("s", name, &record("1", scope), &Expected::Nothing).unwrap();
        }
        let names = |records: &ServiceRecords| -> Vec<String> {
            records.of("s").map(|(name, _)| name.to_owned()).collect()
        };
        records.forget(&DroppedPath { bucket: "b", scope: Some("one"), collection: None });
        records.forget(&DroppedPath { bucket: "c", scope: None, collection: None });
        assert_eq!(names(&records), ["two", "whole"]);
        records.forget(&DroppedPath { bucket: "b", scope: None, collection: None });
        assert!(names(&records).is_empty());
    }

    #[test]
    fn names_bodies_and_their_number_are_bounded() {
        let mut records = ServiceRecords::default();
        let mut put = |name: &str, body: &str| {
            let record = ServiceRecord { body: body.into(), ..record("1", None) };
            records.put("s", name, &record, &Expected::Anything)
        };
        assert!(put(&"n".repeat(NAME_BYTES_MAX + 1), "").is_err());
        assert!(put("n", &"b".repeat(BODY_BYTES_MAX + 1)).is_err());
        for number in 0..RECORDS_MAX {
            put(&number.to_string(), "").unwrap();
        }
        assert!(put("one too many", "").is_err());
        put("7", "changed").unwrap();
    }
}
