//! The conflict log: a record and both bodies of each conflict, as documents of a collection of this cluster.
//!
//! ```text
//! pipeline ─► Driver ─► Logger, 4 threads ─► the node that serves the key ─► the collection
//!    ▲                    │
//!    └────────────────────┘ logged or failed: the version is sent
//! ```
//!
//! | document | body |
//! | --- | --- |
//! | `crd_…` | the record: both versions with their metadata and histories, and the names of the other two |
//! | `src_…` | the body of this cluster's version; missing if that is a deletion |
//! | `tgt_…` | the body of the other cluster's version; missing if that is a deletion |
//!
//! Each document has the attribute `_xdcr_conflict`, by which filters exclude it from every replication. Names and fields are
//! those of Couchbase 8.0.
//!
//! A conflict is logged before it is resolved. So it is logged at least once, even if a process is killed in between. A log that
//! cannot be written delays no version for long; the failure is counted and shown with the errors of the replication. After
//! [`FAILURES_MAX`] consecutive failures the log pauses for [`REST_NS`] and is then tried again.

use crate::inbox::{Event, Inbox};
use crate::message::{XdcrMessage, XdcrReply};
use crate::settings::Chosen;
use crossbeam_channel::{Receiver, Sender, unbounded};
use nacre_node::Node;
use nacre_types::{DATATYPE_JSON, DATATYPE_XATTR, Kind, Vbid};
use nacre_value::json::is_json;
use nacre_value::xattr::Xattrs;
use nacre_xdcr::{Arriving, Conflict, Input};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Attribute of every document of a log. Source: Couchbase.
const MARK: &str = "_xdcr_conflict";
/// Attributes of a version that are copied into its record. Source: Couchbase.
const SHOWN: [&str; 3] = ["_vv", "_sync", "_mou"];
/// Maximum bytes of queued conflicts per replication on a node. Two buckets with the same keys produce a conflict for each key at
/// once.
const WAITING_BYTES_MAX: usize = 64 << 20;
/// Approximate bytes of a queued conflict besides both values.
const ENTRY_BYTES: usize = 1 << 10;
/// Writing threads per replication on a node. With several, a slow node delays only part of the others.
const WORKERS: usize = 4;
/// Timeout of writing a document. Source: Couchbase, `cLogSetTimeoutMs`.
const PATIENCE: Duration = Duration::from_secs(5);
/// Consecutive failures after which the log pauses.
const FAILURES_MAX: u32 = 10;
/// Length of the pause: 10 s.
const REST_NS: u64 = 10_000_000_000;
/// Maximum number of rules of one log.
const RULES_MAX: usize = 2000;

/// A collection that receives conflict records.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    /// A bucket of this cluster.
    pub bucket: String,
    /// Scope and collection.
    pub path: (String, String),
}

impl Place {
    /// Returns the collection as `scope.collection`.
    pub fn collection(&self) -> String {
        format!("{}.{}", self.path.0, self.path.1)
    }

    fn read(given: &Map<String, Value>) -> Result<Place, String> {
        let text = |name: &str| match given.get(name) {
            Some(Value::String(text)) if !text.is_empty() => Ok(text.as_str()),
            _ => Err(format!("{name} is missing")),
        };
        let (bucket, collection) = (text("bucket")?, text("collection")?);
        let path = collection
            .split_once('.')
            .filter(|(scope, name)| !scope.is_empty() && !name.is_empty() && !name.contains('.'));
        let (scope, name) =
            path.ok_or_else(|| format!("{collection:?} is not of the form scope.collection"))?;
        if scope == "_system" {
            return Err("the scope _system cannot have a log".to_owned());
        }
        let path = (scope.to_owned(), name.to_owned());
        Ok(Place { bucket: bucket.to_owned(), path })
    }
}

/// Selects the conflicts to log, and their collections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LogRules {
    default: Place,
    /// By scope, or by scope and collection; `None` for collections without a log.
    rules: BTreeMap<String, Option<Place>>,
}

impl LogRules {
    /// Reads the setting `conflictLogging`; `None` if nothing is logged.
    ///
    /// # Errors
    /// A sentence about the invalid part of the setting.
    pub fn read(chosen: &Chosen) -> Result<Option<LogRules>, String> {
        let given = chosen.object("conflictLogging");
        if given.is_empty() {
            return Ok(None);
        }
        const FIELDS: [&str; 4] = ["bucket", "collection", "loggingRules", "disabled"];
        if let Some(unknown) = given.keys().find(|name| !FIELDS.contains(&name.as_str())) {
            return Err(format!("{unknown:?} is not one of its fields"));
        }
        let default = Place::read(&given)?;
        let rules = match given.get("loggingRules") {
            None | Some(Value::Null) => Map::new(),
            Some(Value::Object(rules)) if rules.len() <= RULES_MAX => rules.clone(),
            Some(Value::Object(_)) => return Err(format!("it has more than {RULES_MAX} rules")),
            Some(_) => return Err("loggingRules must be an object".to_owned()),
        };
        let rule = |(name, rule): (String, Value)| {
            let parts: Vec<&str> = name.split('.').collect();
            if parts.len() > 2 || parts.iter().any(|part| part.is_empty()) {
                return Err(format!("{name:?} is neither a scope nor a scope.collection"));
            }
            let place = match rule {
                Value::Null => None,
                Value::Object(fields) if fields.is_empty() => Some(default.clone()),
                Value::Object(fields) => Some(Place::read(&fields)?),
                _ => return Err(format!("the rule of {name:?} must be null or an object")),
            };
            Ok((name, place))
        };
        let rules = rules.into_iter().map(rule).collect::<Result<_, String>>()?;
        match given.get("disabled") {
            None | Some(Value::Bool(false)) => Ok(Some(LogRules { default, rules })),
            Some(Value::Bool(true)) => Ok(None),
            Some(_) => Err("disabled must be true or false".to_owned()),
        }
    }

    /// Returns the collection that receives the conflicts of a collection of the source.
    pub fn place_of(&self, scope: &str, collection: &str) -> Option<&Place> {
        let exact = self.rules.get(&format!("{scope}.{collection}"));
        match exact.or_else(|| self.rules.get(scope)) {
            Some(rule) => rule.as_ref(),
            None => Some(&self.default),
        }
    }

    /// Returns every collection that may receive records.
    pub fn places(&self) -> impl Iterator<Item = &Place> {
        std::iter::once(&self.default).chain(self.rules.values().flatten())
    }
}

/// One side of a conflict, for its record.
#[derive(Clone, Debug)]
pub(crate) struct Party {
    /// UUID of the bucket.
    pub bucket: String,
    /// UUID of the cluster.
    pub cluster: String,
    /// Scope and collection.
    pub path: (String, String),
    /// vBucket of the document.
    pub vbid: Vbid,
}

/// A conflict to be logged.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// ID of the replication.
    pub replication: String,
    /// UUID of this node.
    pub node: String,
    /// Key of the document, without collection.
    pub name: Vec<u8>,
    /// This cluster, and the other one.
    pub parties: (Party, Party),
    /// Both versions.
    pub conflict: Box<Conflict>,
}

/// A document of a log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LogDocument {
    /// Bucket.
    pub bucket: String,
    /// Scope and collection.
    pub collection: String,
    /// Key.
    pub key: String,
    /// Bits of the value.
    pub datatype: u8,
    /// Attributes and body.
    pub value: Vec<u8>,
}

impl Entry {
    fn bytes(&self) -> usize {
        self.conflict.source.value.len() + self.conflict.target.value.len() + ENTRY_BYTES
    }

    /// Returns the documents, bodies first, so that no record names a missing body.
    fn documents(&self, place: &Place, unix_ns: u64) -> Vec<LogDocument> {
        let Conflict { source, target, .. } = &*self.conflict;
        let (here, there) = &self.parties;
        let mut hash = Sha256::new();
        for (party, version) in [(here, source), (there, target)] {
            hash.update(&party.bucket);
            hash.update(party.vbid.0.to_be_bytes());
            hash.update(version.meta.cas.0.to_be_bytes());
            hash.update(version.meta.rev.to_be_bytes());
        }
        hash.update(&self.name);
        let digits: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        let name = |prefix: &str| format!("{prefix}_{unix_ns}_{digits}");
        let document = |key: String, body: &[u8]| {
            let mut attributes = Xattrs::default();
            attributes.set(MARK, b"true").expect("the name is one of an attribute");
            LogDocument {
                bucket: place.bucket.clone(),
                collection: place.collection(),
                key,
                // The datatype claimed by the other cluster is not trusted.
                datatype: DATATYPE_XATTR | if is_json(body) { DATATYPE_JSON } else { 0 },
                value: [&attributes.encode()[..], body].concat(),
            }
        };
        let mut documents = Vec::new();
        let mut side = |prefix: &str, party: &Party, version: &Arriving| {
            let is_deleted = version.meta.kind != Kind::Alive;
            let body = version.split().map_or(&version.value[..], |(_, body)| body);
            let key = (!is_deleted).then(|| name(prefix));
            documents.extend(key.clone().map(|key| document(key, body)));
            self.side(key, party, version)
        };
        let (source, target) = (side("src", here, source), side("tgt", there, target));
        let record = json!({
            "timestamp": timestamp(unix_ns),
            "id": name("crd"),
            "docId": String::from_utf8_lossy(&self.name),
            "replId": self.replication,
            "srcDoc": source,
            "tgtDoc": target,
        });
        documents.push(document(name("crd"), record.to_string().as_bytes()));
        documents
    }

    fn side(&self, key: Option<String>, party: &Party, version: &Arriving) -> Value {
        let meta = &version.meta;
        let attributes = version.split().ok().and_then(|(section, _)| Xattrs::parse(section).ok());
        let attributes = attributes.unwrap_or_default();
        let shown = |name: &&str| {
            let value = serde_json::from_slice::<Value>(attributes.get(name)?).ok()?;
            Some(((*name).to_owned(), value))
        };
        let attributes: Map<String, Value> = SHOWN.iter().filter_map(shown).collect();
        let is_here = party.cluster == self.parties.0.cluster;
        json!({
            "id": key,
            "nodeId": if is_here { &self.node[..] } else { "" },
            "bucketUUID": party.bucket,
            "clusterUUID": party.cluster,
            "isDeleted": meta.kind != Kind::Alive,
            "collection": party.path.1,
            "scope": party.path.0,
            "expiry": meta.expiry,
            "flags": meta.flags,
            "cas": meta.cas.0,
            "revSeqno": meta.rev,
            "xattrs": attributes,
        })
    }
}

fn timestamp(unix_ns: u64) -> String {
    let second = i64::try_from(unix_ns / 1_000_000_000).unwrap_or(i64::MAX);
    let nanosecond = (unix_ns % 1_000_000_000) as i32;
    jiff::Timestamp::new(second, nanosecond).map_or_else(|_| String::new(), |at| at.to_string())
}

/// Circuit breaker: pauses a log that fails, so that conflicts do not wait for each timeout.
#[derive(Debug, Default)]
struct Breaker {
    /// Failures since the last success.
    failures: u32,
    /// Monotonic time until which the log pauses.
    rests_until_ns: u64,
    reason: String,
}

impl Breaker {
    /// Returns the reason for the pause if the log pauses.
    fn rests(&self, now_ns: u64) -> Option<String> {
        (now_ns < self.rests_until_ns).then(|| self.reason.clone())
    }

    fn note(&mut self, outcome: &Result<(), String>, now_ns: u64) {
        let Err(reason) = outcome else {
            self.failures = 0;
            return;
        };
        self.failures = self.failures.saturating_add(1);
        if self.failures >= FAILURES_MAX {
            self.rests_until_ns = now_ns.saturating_add(REST_NS);
            self.reason.clone_from(reason);
        }
    }
}

/// A conflict to log, and the input for the pipeline afterwards.
struct Job {
    vbid: Vbid,
    input: Input,
    place: Place,
    entry: Entry,
}

/// Writes conflicts for one replication.
pub(crate) struct Logger {
    jobs: Sender<Job>,
    /// Bytes queued.
    waiting: Arc<AtomicUsize>,
}

impl Logger {
    /// Starts the threads, which end when the logger is dropped.
    pub fn start(node: &Arc<Node>, inbox: &Arc<Inbox>) -> Logger {
        // `waiting` bounds the queue by its bytes.
        let (sender, jobs) = unbounded();
        let worker = Worker {
            node: Arc::clone(node),
            inbox: Arc::clone(inbox),
            waiting: Arc::default(),
            breaker: Arc::default(),
            jobs,
        };
        let waiting = Arc::clone(&worker.waiting);
        for worker in std::iter::repeat_n(worker, WORKERS) {
            let spawned =
                std::thread::Builder::new().name("xdcr-log".into()).spawn(|| worker.run());
            if let Err(error) = spawned {
                tracing::error!("replication: no thread for the log of conflicts: {error}");
            }
        }
        Logger { jobs: sender, waiting }
    }

    /// Logs a conflict, then passes `input` to the pipeline of `vbid`.
    ///
    /// # Errors
    /// Returns the input if the queue is full.
    pub fn log(&self, vbid: Vbid, input: Input, place: Place, entry: Entry) -> Result<(), Input> {
        let bytes = entry.bytes();
        if self.waiting.fetch_add(bytes, Ordering::AcqRel) > WAITING_BYTES_MAX {
            self.waiting.fetch_sub(bytes, Ordering::AcqRel);
            return Err(input);
        }
        // Fails if no thread is left.
        self.jobs.send(Job { vbid, input, place, entry }).map_err(|refused| {
            self.waiting.fetch_sub(bytes, Ordering::AcqRel);
            refused.into_inner().input
        })
    }
}

#[derive(Clone)]
struct Worker {
    node: Arc<Node>,
    inbox: Arc<Inbox>,
    waiting: Arc<AtomicUsize>,
    breaker: Arc<Mutex<Breaker>>,
    jobs: Receiver<Job>,
}

impl Worker {
    fn run(self) {
        while let Ok(Job { vbid, input, place, entry }) = self.jobs.recv() {
            let rests = self.breaker.lock().rests(self.node.now().monotonic_ns);
            let outcome = match rests {
                Some(reason) => Err(reason),
                None => {
                    let written = self.write(&place, &entry).map_err(|reason| {
                        format!("{}.{}: {reason}", place.bucket, place.collection())
                    });
                    self.breaker.lock().note(&written, self.node.now().monotonic_ns);
                    written
                }
            };
            self.waiting.fetch_sub(entry.bytes(), Ordering::AcqRel);
            self.inbox.push([Event::Logged(vbid, Box::new(input), outcome)]);
        }
    }

    fn write(&self, place: &Place, entry: &Entry) -> Result<(), String> {
        for document in entry.documents(place, self.node.now().unix_ns) {
            let key = document.key.clone();
            let vbids = self.node.vbids_of(&place.bucket, [key.as_bytes()]);
            let vbid = vbids.and_then(|vbids| vbids.iter().next());
            let vbid = vbid.ok_or_else(|| format!("there is no bucket {}", place.bucket))?;
            let message = XdcrMessage::Log(vbid, document);
            match self.node.ask_about(&place.bucket, vbid, &message, PATIENCE)? {
                Ok(XdcrReply::Noted) => {}
                Ok(_) => return Err("an unexpected answer".to_owned()),
                Err(failure) => return Err(failure.message),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_types::{Cas, Meta};

    fn chosen(text: &str) -> Chosen {
        let value: Value = serde_json::from_str(text).unwrap();
        Chosen([("conflictLogging".to_owned(), value)].into())
    }

    #[test]
    fn the_rule_of_a_collection_goes_before_that_of_its_scope() {
        let rules = chosen(
            r#"{"bucket":"b","collection":"logs.all","loggingRules":{
                "shop":null,"shop.orders":{},"shop.bills":{"bucket":"c","collection":"logs.bills"}}}"#,
        );
        let rules = LogRules::read(&rules).unwrap().unwrap();
        let place = |scope: &str, collection: &str| {
            let place = rules.place_of(scope, collection)?;
            Some(format!("{}.{}", place.bucket, place.collection()))
        };
        assert_eq!(place("_default", "_default").as_deref(), Some("b.logs.all"));
        assert_eq!(place("shop", "carts"), None);
        assert_eq!(place("shop", "orders").as_deref(), Some("b.logs.all"));
        assert_eq!(place("shop", "bills").as_deref(), Some("c.logs.bills"));
        assert_eq!(rules.places().count(), 3);
    }

    #[test]
    fn invalid_settings_are_named() {
        for (text, reason) in [
            (r#"{"bucket":"b"}"#, "collection is missing"),
            (r#"{"bucket":"b","collection":"x"}"#, r#""x" is not of the form scope.collection"#),
            (r#"{"bucket":"b","collection":"_system.x"}"#, "the scope _system cannot have a log"),
            (r#"{"bucket":"b","collection":"s.c","x":1}"#, r#""x" is not one of its fields"#),
            (
                r#"{"bucket":"b","collection":"s.c","loggingRules":{"a.b.c":null}}"#,
                r#""a.b.c" is neither a scope nor a scope.collection"#,
            ),
            (
                r#"{"bucket":"b","collection":"s.c","loggingRules":{"a":1}}"#,
                r#"the rule of "a" must be null or an object"#,
            ),
            (
                r#"{"bucket":"b","collection":"s.c","loggingRules":[]}"#,
                "loggingRules must be an object",
            ),
            (r#"{"bucket":"b","collection":"s.c","disabled":1}"#, "disabled must be true or false"),
        ] {
            assert_eq!(LogRules::read(&chosen(text)), Err(reason.to_owned()), "{text}");
        }
        for text in ["{}", r#"{"bucket":"b","collection":"s.c","disabled":true}"#] {
            assert_eq!(LogRules::read(&chosen(text)), Ok(None), "{text}");
        }
    }

    fn entry(deleted: bool) -> Entry {
        let party = |of: &str| Party {
            bucket: format!("bucket-{of}"),
            cluster: format!("cluster-{of}"),
            path: ("shop".to_owned(), "orders".to_owned()),
            vbid: Vbid(7),
        };
        let version = |cas: u64, body: &[u8], kind: Kind| {
            let mut attributes = Xattrs::default();
            attributes.set("_vv", br#"{"ver":"0x1"}"#).unwrap();
            attributes.set("secret", b"1").unwrap();
            let datatype = DATATYPE_XATTR | DATATYPE_JSON;
            let meta = Meta { cas: Cas(cas), rev: 3, flags: 9, datatype, kind, ..Meta::default() };
            Arriving { meta, value: [&attributes.encode()[..], body].concat() }
        };
        let kind = if deleted { Kind::Deleted } else { Kind::Alive };
        let conflict = Conflict {
            key: b"\x08k".to_vec(),
            target_key: b"\x09k".to_vec(),
            source: version(11, br#"{"a":1}"#, Kind::Alive),
            target: version(12, if deleted { b"" } else { br#"{"a":2}"# }, kind),
        };
        Entry {
            replication: "c/a/b".to_owned(),
            node: "n".to_owned(),
            name: b"k".to_vec(),
            parties: (party("here"), party("there")),
            conflict: Box::new(conflict),
        }
    }

    fn shown(document: &LogDocument) -> (String, String, Value) {
        let (section, body) = nacre_value::xattr::split(&document.value).unwrap();
        let mark = Xattrs::parse(section).unwrap().get(MARK).map(<[u8]>::to_vec);
        assert_eq!(mark.as_deref(), Some(&b"true"[..]), "{}", document.key);
        let (prefix, rest) = document.key.split_at(4);
        (prefix.to_owned(), rest.to_owned(), serde_json::from_slice(body).unwrap())
    }

    #[test]
    fn a_record_names_both_bodies() {
        let path = ("logs".to_owned(), "all".to_owned());
        let place = Place { bucket: "b".to_owned(), path };
        let documents = entry(false).documents(&place, 1_800_000_000_000_000_005);
        let [source, target, record] = &documents[..] else { panic!("{documents:?}") };
        let (source, target, record) = (shown(source), shown(target), shown(record));
        assert_eq!([&source.0[..], &target.0, &record.0], ["src_", "tgt_", "crd_"]);
        assert!(source.1 == record.1 && target.1 == record.1, "one number names all three");
        assert_eq!(record.1.len(), "1800000000000000005_".len() + 64);
        assert_eq!((source.2, target.2), (json!({"a": 1}), json!({"a": 2})));
        let record = record.2;
        assert_eq!(record["timestamp"], "2027-01-15T08:00:00.000000005Z");
        assert_eq!((&record["docId"], &record["replId"]), (&json!("k"), &json!("c/a/b")));
        let there = &record["tgtDoc"];
        assert_eq!(there["id"], documents[1].key);
        assert_eq!(there["bucketUUID"], "bucket-there");
        assert_eq!(there["xattrs"], json!({"_vv": {"ver": "0x1"}}), "others are not shown");
        assert_eq!((&there["cas"], &there["isDeleted"]), (&json!(12), &json!(false)));
        assert_eq!((&record["srcDoc"]["nodeId"], &there["nodeId"]), (&json!("n"), &json!("")));
    }

    #[test]
    fn a_body_is_checked_for_json_despite_the_datatype_of_the_other_cluster() {
        let path = ("logs".to_owned(), "all".to_owned());
        let mut entry = entry(false);
        let (attributes, _) = entry.conflict.target.split().unwrap();
        entry.conflict.target.value = [attributes, b"{lie"].concat();
        let documents = entry.documents(&Place { bucket: "b".to_owned(), path }, 5);
        let datatypes: Vec<u8> = documents.iter().map(|document| document.datatype).collect();
        let json = DATATYPE_XATTR | DATATYPE_JSON;
        assert_eq!(datatypes, [json, DATATYPE_XATTR, json]);
    }

    #[test]
    fn a_log_rests_after_failures_in_a_row() {
        let mut breaker = Breaker::default();
        let failure = Err("it is full".to_owned());
        for round in 0..2 {
            (1..FAILURES_MAX).for_each(|_| breaker.note(&failure, 5));
            assert_eq!(breaker.rests(5), None, "{round}");
            breaker.note(&Ok(()), 5);
        }
        (0..FAILURES_MAX).for_each(|_| breaker.note(&failure, 5));
        assert_eq!(breaker.rests(4 + REST_NS).as_deref(), Some("it is full"));
        assert_eq!(breaker.rests(5 + REST_NS), None, "it is tried again");
        breaker.note(&failure, 5 + REST_NS);
        assert!(breaker.rests(6 + REST_NS).is_some(), "one more failure will do");
        breaker.note(&Ok(()), 5 + 2 * REST_NS);
        breaker.note(&failure, 5 + 2 * REST_NS);
        assert_eq!(breaker.rests(6 + 2 * REST_NS), None, "it works again");
    }

    #[test]
    fn a_deletion_has_no_body() {
        let path = ("logs".to_owned(), "all".to_owned());
        let documents = entry(true).documents(&Place { bucket: "b".to_owned(), path }, 5);
        let [_, record] = &documents[..] else { panic!("{documents:?}") };
        let record = shown(record).2;
        assert_eq!(
            (&record["tgtDoc"]["id"], &record["tgtDoc"]["isDeleted"]),
            (&Value::Null, &json!(true))
        );
    }
}
