//! Conditions that select documents of a backup: SQL++ over one document, as in a query.

use nacre_backup::{BucketPart, Record};
use nacre_sql::{Condition, Meta, Name};
use nacre_types::{DATATYPE_JSON, DATATYPE_XATTR};
use std::collections::BTreeMap;

/// Value of documents that are not JSON, for conditions: all fields are MISSING.
const NO_FIELDS: &[u8] = b"{}";

/// A condition on the documents of a bucket.
pub(super) struct Filter {
    condition: Condition,
    /// Names of collections by their IDs, in the form of ``META().`keyspace` ``.
    keyspaces: BTreeMap<u32, Name>,
}

impl Filter {
    /// Reads a condition.
    ///
    /// # Errors
    /// The first mistake in the text, with its position.
    pub fn read(text: &str, part: &BucketPart) -> Result<Filter, String> {
        let condition = condition(text)?;
        let keyspace = |collection: &nacre_backup::Collection| {
            let (bucket, scope, name) = (&part.name, &collection.scope, &collection.name);
            (collection.id, format!("default:{bucket}.{scope}.{name}").into())
        };
        Ok(Filter { condition, keyspaces: part.collections.iter().map(keyspace).collect() })
    }

    /// Returns true if the condition holds for a document. For a tombstone it holds only if it uses nothing but `META()`: the fields of the
    /// deleted document are unknown.
    ///
    /// # Errors
    /// A sentence if it cannot be evaluated.
    pub fn holds(&self, record: &Record<'_>) -> Result<bool, String> {
        if !record.is_document() && !self.condition.needs_no_document() {
            return Ok(false);
        }
        let is_json = record.datatype & DATATYPE_JSON != 0;
        let body = body_of(record).filter(|_| is_json).unwrap_or(NO_FIELDS);
        let name = String::from_utf8_lossy(record.key);
        let meta = Meta {
            id: (&*name).into(),
            keyspace: self.keyspaces.get(&record.collection).cloned().unwrap_or_default(),
            cas: record.cas,
            expiration: record.expiry,
            flags: record.flags,
            json: is_json,
            ..Meta::default()
        };
        self.condition.holds(body, meta).map_err(|error| {
            format!("the filter cannot be evaluated for {name:?}: {}", error.message)
        })
    }
}

/// Checks a condition, for the command line.
pub(super) fn checked(text: &str) -> Result<String, String> {
    condition(text).map(|_| text.to_owned())
}

fn condition(text: &str) -> Result<Condition, String> {
    Condition::parse(text).map_err(|error| error.message)
}

/// Returns the value of a record without extended attributes; `None` if these are malformed.
pub(super) fn body_of<'a>(record: &Record<'a>) -> Option<&'a [u8]> {
    if record.datatype & DATATYPE_XATTR == 0 {
        return Some(record.value);
    }
    let length = u32::from_be_bytes(*record.value.first_chunk()?);
    record.value.get(usize::try_from(length).ok()?.checked_add(size_of::<u32>())?..)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_backup::{Collection, RecordKind};

    fn record<'a>(kind: RecordKind, datatype: u8, value: &'a [u8]) -> Record<'a> {
        Record {
            kind,
            seqno: 1,
            cas: 7,
            rev: 1,
            flags: 0,
            expiry: 0,
            datatype,
            collection: 8,
            key: b"order::7",
            value,
        }
    }

    fn holds(text: &str, record: &Record<'_>) -> Result<bool, String> {
        let collection = Collection {
            id: 8,
            scope: "s".into(),
            scope_id: None,
            name: "c".into(),
            max_ttl: 0,
            keeps_versions: false,
        };
        let part = BucketPart {
            name: "b".into(),
            uuid: "u".into(),
            vbuckets: 1,
            parent: None,
            collections: vec![collection],
            parts: Vec::new(),
            definitions: BTreeMap::new(),
        };
        Filter::read(text, &part)?.holds(record)
    }

    #[test]
    fn a_condition_selects_documents_by_fields_and_metadata() {
        let value = b"\0\0\0\x0c\0\0\0\x08_a\0true\0{\"type\":\"order\",\"total\":120}";
        let order = record(RecordKind::Set, DATATYPE_JSON | DATATYPE_XATTR, value);
        for text in [
            "type = 'order' AND total > 100",
            "META().id LIKE 'order::%'",
            "META().`keyspace` = 'default:b.s.c' AND META().cas = 7",
            "REGEXP_CONTAINS(META().id, '^order') AND gone IS MISSING",
        ] {
            assert_eq!(holds(text, &order), Ok(true), "{text}");
            assert_eq!(holds(&format!("NOT ({text})"), &order), Ok(false), "{text}");
        }
    }

    #[test]
    fn documents_that_are_not_json_have_no_fields() {
        let binary = record(RecordKind::Set, 0, b"{\"a\":1}");
        assert_eq!(holds("a = 1", &binary), Ok(false));
        assert_eq!(holds("a IS MISSING AND META().id = 'order::7'", &binary), Ok(true));
        let malformed = record(RecordKind::Set, DATATYPE_JSON | DATATYPE_XATTR, b"\xff");
        assert_eq!(holds("a IS MISSING", &malformed), Ok(true));
    }

    #[test]
    fn a_tombstone_is_selected_by_its_key_only() {
        let tombstone = record(RecordKind::Deletion, 0, b"");
        assert_eq!(holds("META().id = 'order::7'", &tombstone), Ok(true));
        assert_eq!(holds("META().id = 'other'", &tombstone), Ok(false));
        assert_eq!(holds("a IS MISSING", &tombstone), Ok(false), "the document had other fields");
    }

    #[test]
    fn conditions_that_cannot_be_evaluated_are_refused_with_a_reason() {
        for text in ["", "type =", "(SELECT 1) = 1", "a = $1"] {
            assert!(checked(text).is_err(), "{text}");
        }
        let deep = format!("{}1{}", "[".repeat(10_000), "]".repeat(10_000));
        let value = format!("{{\"a\":{deep}}}");
        let record = record(RecordKind::Set, DATATYPE_JSON, value.as_bytes());
        let refused = holds("a[0] = 1", &record).unwrap_err();
        assert!(refused.contains("\"order::7\""), "{refused}");
    }
}
