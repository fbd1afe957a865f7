//! The stored form of a transaction: its entry in a record document, and the staged change at each of its documents. The
//! forms are those of the SDKs, so SDKs can finish transactions of this node, and this node those of SDKs.
//!
//! ```text
//! _txn:atr-9-#0   {"attempts": {"<attempt>": {"st": "PENDING", "tid": "<transaction>", "tst": "<CAS>", "exp": 14998, "d": "m",
//!                               "ins": […], "rep": […], "rem": […]}}}                         an attribute, under a body of one zero byte
//! a document      {"txn": {"id": {…}, "atr": {…}, "op": {"type": "replace", "stgd": <the new body>}, "restore": {…}}}
//! ```
//!
//! Source: the transactions of Couchbase's SDKs, protocol 2.

use super::changes::{JSON_FLAGS, Kind, Place};
use super::step::{BodyFormat, Durability, Edit, Part, Presence};
use nacre_sandbox::DatabaseKeyspace;
use nacre_types::Vbid;
use serde_json::{Value, json};
use std::sync::LazyLock;
use std::time::Duration;

/// Prefix of the keys of documents that belong to transactions. Queries do not see them.
pub const KEY_PREFIX: &str = "_txn:";
/// The attribute of a document with a staged change.
pub const STAGED: &str = "txn";
/// The attempt that has staged the change.
pub const STAGED_ATTEMPT: &str = "txn.id.atmpt";
/// The staged operation.
pub const STAGED_TYPE: &str = "txn.op.type";
/// The new body.
pub const STAGED_BODY: &str = "txn.op.stgd";
/// The staged body of a document that is not JSON.
pub const STAGED_BINARY: &str = "txn.op.bin";
/// The flags of the new body.
pub const STAGED_FLAGS: &str = "txn.aux.uf";
/// The attribute of a record.
pub const ATTEMPTS: &str = "attempts";

/// Maximum number of record documents in a collection. The SDKs know their keys.
pub const RECORD_COUNT: u16 = 1024;
/// Maximum length of a transaction ID from a client.
const ID_LENGTH_MAX: usize = 64;

/// The states of an entry.
pub mod state {
    pub const PENDING: &str = "PENDING";
    pub const COMMITTED: &str = "COMMITTED";
    pub const ABORTED: &str = "ABORTED";
    pub const COMPLETED: &str = "COMPLETED";
    pub const ROLLED_BACK: &str = "ROLLED_BACK";
}

/// Returns the key of a record. Its suffix is the first hexadecimal number that puts the key into the vBucket with the
/// record's number, of 1024 vBuckets. The SDKs have the same keys as a table.
fn record_key(number: u16) -> String {
    (0u32..)
        .map(|end| format!("_txn:atr-{number}-#{end:x}"))
        .find(|key| Vbid::of(key.as_bytes(), RECORD_COUNT) == Vbid(number))
        .expect("numbers do not end")
}

/// The keys of all records of a collection.
pub static RECORD_KEYS: LazyLock<Vec<String>> =
    LazyLock::new(|| (0..RECORD_COUNT).map(record_key).collect());

/// Returns true if `key` is the key of a record.
pub fn is_record_key(key: &str) -> bool {
    let number = key.strip_prefix("_txn:atr-").and_then(|rest| rest.split_once('-'));
    let number = number.and_then(|(number, _)| number.parse::<u16>().ok());
    number.is_some_and(|number| RECORD_KEYS.get(usize::from(number)).is_some_and(|own| own == key))
}

/// Returns the place of the record of a transaction whose first document is `first`: in `records` if given, or in the
/// default collection of the document's bucket.
pub fn record_of(first: &Place, records: Option<&DatabaseKeyspace>) -> Place {
    let default = || DatabaseKeyspace {
        bucket: first.keyspace.bucket.clone(),
        scope: "_default".into(),
        collection: "_default".into(),
    };
    let number = Vbid::of(first.id.as_bytes(), RECORD_COUNT).0;
    Place {
        keyspace: records.cloned().unwrap_or_else(default),
        id: RECORD_KEYS[usize::from(number)].clone(),
    }
}

/// Returns true if an ID can be part of a path.
pub fn is_id(id: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    !id.is_empty() && id.len() <= ID_LENGTH_MAX && id.bytes().all(is_plain)
}

/// Returns the path of an attempt's entry.
pub fn entry_path(attempt: &str) -> String {
    format!("{ATTEMPTS}.{attempt}")
}

fn json_of(value: &Value) -> Vec<u8> {
    value.to_string().into_bytes()
}

/// The identifiers of a transaction in its writes.
pub struct Names<'a> {
    /// The ID of the transaction.
    pub transaction: &'a str,
    /// The ID of the attempt; a transaction of statements has one attempt.
    pub attempt: &'a str,
    /// Place of its record.
    pub record: &'a Place,
}

impl Names<'_> {
    fn path(&self, field: &str) -> String {
        format!("{ATTEMPTS}.{}.{field}", self.attempt)
    }

    fn set(&self, field: &str, value: &Value) -> Part {
        Part::Set(self.path(field), json_of(value))
    }

    /// Returns the edit that creates the entry, before the first document is staged.
    pub fn pending(&self, left: Duration, durability: Durability) -> Edit {
        let add = |field: &str, value: Value| Part::Add(self.path(field), json_of(&value));
        let left_ms = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
        let parts = vec![
            Part::SetComputed(self.path("tst"), macros::CAS.into()),
            add("tid", self.transaction.into()),
            add("st", state::PENDING.into()),
            add("exp", left_ms.into()),
            add("d", durability.short_name().into()),
            Part::Body(vec![0]),
        ];
        Edit { presence: Presence::Any, parts, ..Edit::default() }
    }

    /// Returns the edit that commits the transaction. It fails if the entry no longer exists, or was committed before.
    pub fn committed(&self, documents: &[(Kind, &Place)]) -> Edit {
        let mut parts = vec![
            Part::Add(self.path("p"), b"0".to_vec()),
            self.set("st", &state::COMMITTED.into()),
            Part::SetComputed(self.path("tsc"), macros::CAS.into()),
        ];
        parts.extend(self.lists(documents));
        Edit { parts, ..Edit::default() }
    }

    /// Returns the edit that aborts the transaction.
    pub fn aborted(&self, documents: &[(Kind, &Place)]) -> Edit {
        let mut parts = vec![
            self.set("st", &state::ABORTED.into()),
            Part::SetComputed(self.path("tsrs"), macros::CAS.into()),
        ];
        parts.extend(self.lists(documents));
        Edit { parts, ..Edit::default() }
    }

    fn lists(&self, documents: &[(Kind, &Place)]) -> [Part; 3] {
        let kinds = [(Kind::Insert, "ins"), (Kind::Replace, "rep"), (Kind::Remove, "rem")];
        kinds.map(|(kind, field)| {
            let those = documents.iter().filter(|(of, _)| *of == kind);
            let places: Vec<Value> = those.map(|(_, place)| place_json(place)).collect();
            self.set(field, &places.into())
        })
    }

    /// Returns the edit that removes the entry when nothing is left to do.
    pub fn forgotten(&self) -> Edit {
        Edit { parts: vec![Part::Remove(entry_path(self.attempt))], ..Edit::default() }
    }

    /// Returns the edit that removes the entry of a transaction that may be about to commit: only one of the two edits
    /// succeeds.
    pub fn given_up(&self) -> Edit {
        let parts =
            vec![Part::Add(self.path("p"), b"0".to_vec()), Part::Remove(entry_path(self.attempt))];
        Edit { parts, ..Edit::default() }
    }

    /// Returns the edit that stages a change of a document with CAS `cas`. For an insertion, 0 means that the document
    /// does not exist; another CAS is that of a tombstone with a staged change.
    pub fn staged(&self, kind: Kind, body: &[u8], operation: &str, cas: u64) -> Edit {
        let body = (kind != Kind::Remove).then_some(body);
        let attribute = self.attribute(kind, body, operation);
        let computed = |path: &str, value: &str| Part::SetComputed(path.into(), value.into());
        let mut parts = vec![match (kind, cas) {
            (Kind::Insert, 0) => Part::Add(STAGED.into(), attribute),
            _ => Part::SetWhole(STAGED.into(), attribute),
        }];
        parts.push(computed("txn.op.crc32", macros::BODY_CRC32C));
        if kind != Kind::Insert {
            parts.push(computed("txn.restore.CAS", macros::DOCUMENT_CAS));
            parts.push(computed("txn.restore.exptime", macros::DOCUMENT_EXPIRY));
            parts.push(computed("txn.restore.revid", macros::DOCUMENT_REVISION));
        }
        let inserts = kind == Kind::Insert;
        let presence = if inserts && cas == 0 { Presence::Absent } else { Presence::Present };
        Edit { presence, cas, sees_tombstones: true, hides: inserts, parts, ..Edit::default() }
    }

    /// Returns the attribute of a staged change. The body is JSON and is inserted without parsing.
    fn attribute(&self, kind: Kind, body: Option<&[u8]>, operation: &str) -> Vec<u8> {
        let ids = json!({"txn": self.transaction, "atmpt": self.attempt, "op": operation});
        let DatabaseKeyspace { bucket, scope, collection } = &self.record.keyspace;
        let record = json!({"id": self.record.id, "bkt": bucket, "scp": scope, "coll": collection});
        let head = format!("{{\"id\":{ids},\"atr\":{record},\"op\":{{\"type\":\"{}\"", name(kind));
        let mut out = head.into_bytes();
        if let Some(body) = body {
            out.extend_from_slice(b",\"stgd\":");
            out.extend_from_slice(body);
        }
        // The document's current metadata goes into the last part.
        let restore = if kind == Kind::Insert { "" } else { ",\"restore\":{}" };
        out.extend_from_slice(format!("}},\"aux\":{{\"uf\":{JSON_FLAGS}}}{restore}}}").as_bytes());
        out
    }
}

mod macros {
    pub const CAS: &str = "\"${Mutation.CAS}\"";
    pub const BODY_CRC32C: &str = "\"${Mutation.value_crc32c}\"";
    pub const DOCUMENT_CAS: &str = "\"${$document.CAS}\"";
    pub const DOCUMENT_EXPIRY: &str = "\"${$document.exptime}\"";
    pub const DOCUMENT_REVISION: &str = "\"${$document.revid}\"";
}

/// Returns the edit that turns the staged change into the document. Removals are not edits.
pub fn unstaged(kind: Kind, cas: u64, format: BodyFormat, flags: u32, expiry: Option<u32>) -> Edit {
    let path = match format {
        BodyFormat::Json => STAGED_BODY,
        BodyFormat::Binary => STAGED_BINARY,
    };
    let inserts = kind == Kind::Insert;
    Edit {
        cas,
        sees_tombstones: inserts,
        revives: inserts,
        flags: Some(flags),
        expiry,
        parts: vec![Part::BodyFrom(path.into(), format), Part::Remove(STAGED.into())],
        ..Edit::default()
    }
}

/// Returns the edit that removes a staged change and leaves the document unchanged.
pub fn restored(cas: u64) -> Edit {
    let parts = vec![Part::Remove(STAGED.into())];
    Edit { cas, sees_tombstones: true, parts, ..Edit::default() }
}

/// Returns the name of a staged operation. [`Kind::Nothing`] is never staged.
fn name(kind: Kind) -> &'static str {
    match kind {
        Kind::Insert => "insert",
        Kind::Remove => "remove",
        Kind::Replace | Kind::Nothing => "replace",
    }
}

/// Returns the kind with that name.
pub fn kind_of(name: &str) -> Option<Kind> {
    [Kind::Insert, Kind::Replace, Kind::Remove].into_iter().find(|kind| self::name(*kind) == name)
}

fn place_json(place: &Place) -> Value {
    let DatabaseKeyspace { bucket, scope, collection } = &place.keyspace;
    json!({"bkt": bucket, "scp": scope, "col": collection, "id": place.id})
}

/// The parts of a record's entry that are needed to finish it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The state as stored.
    pub state: String,
    /// The time of its start by the clock of the record's node, in nanoseconds since 1970.
    pub begun_ns: u64,
    /// Its timeout in nanoseconds.
    pub lasts_ns: u64,
    /// The durability of its writes.
    pub durability: Durability,
    /// The transaction.
    pub transaction: String,
    /// The documents with staged changes.
    pub documents: Vec<(Kind, Place)>,
    /// True if a newer version of the protocol has written it.
    pub is_of_newer: bool,
}

impl Entry {
    /// Reads an entry; `None` if the value is not one.
    pub fn read(value: &Value) -> Option<Entry> {
        let text = |field: &str| value.get(field).and_then(Value::as_str);
        let list = |kind: Kind, field: &str| -> Option<Vec<(Kind, Place)>> {
            let Some(all) = value.get(field).filter(|all| !all.is_null()) else {
                return Some(Vec::new());
            };
            all.as_array()?.iter().map(|value| Some((kind, place_of(value)?))).collect()
        };
        let mut documents = list(Kind::Insert, "ins")?;
        documents.extend(list(Kind::Replace, "rep")?);
        documents.extend(list(Kind::Remove, "rem")?);
        Some(Entry {
            state: text("st")?.to_owned(),
            begun_ns: cas_of_macro(text("tst")?)?,
            lasts_ns: value.get("exp")?.as_u64()?.saturating_mul(1_000_000),
            durability: Durability::of_short_name(text("d").unwrap_or_default()),
            transaction: text("tid").unwrap_or_default().to_owned(),
            documents,
            is_of_newer: value.get("fc").is_some_and(|needs| !needs.is_null()),
        })
    }

    /// Returns true if the transaction expired at least `since` ago.
    pub fn is_over(&self, now_ns: u64, since: Duration) -> bool {
        let since_ns = u64::try_from(since.as_nanos()).unwrap_or(u64::MAX);
        let ends_ns = self.begun_ns.saturating_add(self.lasts_ns);
        ends_ns.saturating_add(since_ns) < now_ns
    }
}

fn place_of(value: &Value) -> Option<Place> {
    let text = |field: &str| value.get(field).and_then(Value::as_str).map(str::to_owned);
    let or_default = |field: &str| text(field).unwrap_or_else(|| "_default".into());
    let keyspace = DatabaseKeyspace {
        bucket: text("bkt")?,
        scope: or_default("scp"),
        collection: or_default("col"),
    };
    Some(Place { keyspace, id: text("id")? })
}

/// Parses a CAS as written by macros: hexadecimal, least significant byte first. A CAS is also a time.
fn cas_of_macro(text: &str) -> Option<u64> {
    let number = u64::from_str_radix(text.strip_prefix("0x")?, 16).ok()?;
    (text.len() == 18).then(|| number.swap_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keys from the tables of SDKs, and the rule for all of them.
    #[test]
    fn records_have_the_names_that_sdks_know() {
        let known = [(0, "_txn:atr-0-#14"), (9, "_txn:atr-9-#0"), (22, "_txn:atr-22-#59e8")];
        for (number, key) in known {
            assert_eq!(record_key(number), key);
        }
    }

    #[test]
    fn an_entry_is_read_as_sdks_write_it() {
        let value = json!({
            "st": "COMMITTED", "tid": "t", "tst": "0x0000d8f9b6e3a917", "exp": 15000, "d": "pm",
            "ins": [{"bkt": "b", "scp": "s", "col": "c", "id": "k"}],
            "rem": [{"bkt": "b", "id": "old"}], "p": 0,
        });
        let entry = Entry::read(&value).unwrap();
        assert_eq!(entry.begun_ns, 0x17a9_e3b6_f9d8_0000);
        assert_eq!(
            (entry.state.as_str(), entry.durability),
            ("COMMITTED", Durability::PersistToMajority)
        );
        let ids: Vec<_> = entry.documents.iter().map(|(kind, place)| (*kind, &*place.id)).collect();
        assert_eq!(ids, [(Kind::Insert, "k"), (Kind::Remove, "old")]);
        assert!(!entry.is_over(entry.begun_ns + entry.lasts_ns, Duration::ZERO));
        assert!(entry.is_over(entry.begun_ns + entry.lasts_ns + 1, Duration::ZERO));
        for (field, value) in [("st", json!(1)), ("tst", json!("0x1")), ("ins", json!([{}]))] {
            let mut broken = json!({"st": "PENDING", "tst": "0x0000d8f9b6e3a917", "exp": 1});
            assert!(Entry::read(&broken).is_some());
            broken[field] = value;
            assert_eq!(Entry::read(&broken), None, "{field}");
        }
    }

    #[test]
    fn an_id_is_not_a_path() {
        for (id, is) in
            [("4f6a-1", true), ("", false), ("a.b", false), ("a[0]", false), ("a`b", false)]
        {
            assert_eq!(is_id(id), is, "{id}");
        }
        assert!(!is_id(&"a".repeat(65)));
    }
}
