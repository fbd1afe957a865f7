//! Compares two buckets key by key, using streams of their history up to now.
//!
//! The comparison covers existence, body and attributes, CAS, revision, flags and expiry of documents. Deletions count: a missing
//! deletion would let an old version return. Scopes and collections are matched by name.

use crate::reach::Cluster;
use crate::target::Server;
use nacre_client::{Connection, DcpConsumer, EventKind, Request, StreamRange, StreamReply};
use nacre_protocol::dcp::open_flag;
use nacre_protocol::{Opcode, Status};
use nacre_types::{Vbid, leb128_decode};
use nacre_value::xattr::{self, Xattrs};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;
use std::hash::{DefaultHasher, Hasher};

/// Maximum number of open streams.
const STREAMS_MAX: usize = 64;
/// The datatype bits that are compared: JSON and attributes.
const DATATYPES: u8 = 0x05;
/// The datatype bit of values with attributes.
const XATTR: u8 = 0x04;
/// Attributes that replication writes: histories of versions.
const OF_REPLICATION: [&str; 2] = ["_vv", "_mou"];
/// The state of a vBucket in a request: active.
const ACTIVE: u32 = 1;
/// The system scope, which is not replicated.
const SYSTEM: &str = "_system.";

/// The compared properties of a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Digest {
    is_deleted: bool,
    cas: u64,
    rev: u64,
    flags: u32,
    expiry: u32,
    datatype: u8,
    value: u64,
}

/// The difference between two versions of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Difference {
    /// The document is only in the second bucket.
    MissingHere,
    /// The document is only in the first bucket.
    MissingThere,
    /// These parts differ.
    Parts(Vec<&'static str>),
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Difference::MissingHere => f.write_str("only at the target"),
            Difference::MissingThere => f.write_str("only at the source"),
            Difference::Parts(parts) => write!(f, "different: {}", parts.join(", ")),
        }
    }
}

/// The documents and deletions of a bucket, by collection and key.
#[derive(Debug, Default)]
pub(super) struct Side(BTreeMap<String, Digest>);

impl Side {
    /// Reads a bucket.
    ///
    /// # Errors
    /// A message: the node that cannot be reached, or the refused request.
    pub fn read(server: &Server, bucket: &str) -> Result<Side, String> {
        let address = server.address()?;
        let about = |reason: String| format!("{bucket} at {address}: {reason}");
        let scopes = server.call("GET", &format!("/pools/default/buckets/{bucket}/scopes"), b"");
        let names = names_of(&scopes.map_err(|failure| about(failure.into()))?);
        let cluster = Cluster::open(server).map_err(about)?;
        let about = |error: nacre_client::Error| about(error.to_string());
        let mut side = Side::default();
        for connection in cluster.connect_all(bucket).map_err(about)? {
            side.read_node(connection, &names).map_err(about)?;
        }
        Ok(side)
    }

    fn read_node(
        &mut self,
        mut connection: Connection,
        names: &BTreeMap<u32, String>,
    ) -> Result<(), nacre_client::Error> {
        let seqnos = high_seqnos(&mut connection)?;
        let name = format!("xdcr-diff-{:x}", rand::random::<u64>());
        let mut consumer = DcpConsumer::open(connection, &name, open_flag::INCLUDE_XATTRS)?;
        for batch in seqnos.chunks(STREAMS_MAX) {
            let mut open = 0;
            for (vbid, end) in batch {
                let range = StreamRange { end: *end, ..StreamRange::ALL };
                if let StreamReply::Accepted(_) = consumer.stream(*vbid, range, 0, "")? {
                    open += 1;
                }
            }
            while open > 0 {
                match consumer.next_event()?.kind {
                    EventKind::End(_) => open -= 1,
                    event => self.take(event, names),
                }
            }
        }
        Ok(())
    }

    fn take(&mut self, event: EventKind, names: &BTreeMap<u32, String>) {
        let (key, digest) = match event {
            EventKind::Mutation { rev, cas, flags, expiry, datatype, key, value, .. } => {
                let (datatype, value) = normal(datatype & DATATYPES, &value);
                (key, Digest { is_deleted: false, cas, rev, flags, expiry, datatype, value })
            }
            // The time of a deletion, and whether it was an expiration, are local to each cluster.
            EventKind::Deletion { rev, cas, key, value, .. } => {
                let datatype = if value.is_empty() { 0 } else { XATTR };
                let (datatype, value) = normal(datatype, &value);
                (key, Digest { is_deleted: true, cas, rev, flags: 0, expiry: 0, datatype, value })
            }
            _ => return,
        };
        let Some((collection, name)) = leb128_decode(&key) else { return };
        let Some(collection) = names.get(&collection) else { return };
        if collection.starts_with(SYSTEM) {
            return;
        }
        self.0.insert(format!("{collection} {}", String::from_utf8_lossy(name)), digest);
    }

    /// Returns the number of documents and deletions.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns true if there is a document or a deletion at `path`.
    pub fn has(&self, path: &str) -> bool {
        self.0.contains_key(path)
    }
}

/// Returns the high seqno of each vBucket that is active on a node.
fn high_seqnos(connection: &mut Connection) -> Result<Vec<(Vbid, u64)>, nacre_client::Error> {
    let opcode = Opcode::GetAllVbSeqnos;
    let extras = ACTIVE.to_be_bytes();
    let answer =
        connection.call(Request { opcode: opcode as u8, extras: &extras, ..Request::default() })?;
    if answer.status != Status::Success as u16 {
        let purpose = "read how far vBuckets are".to_owned();
        return Err(nacre_client::Error::Refused { purpose, opcode, status: answer.status });
    }
    let entry = |entry: &[u8; 10]| {
        let number = |bytes: &[u8]| bytes.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
        (Vbid(number(&entry[..2]) as u16), number(&entry[2..]))
    };
    let all = answer.value.as_chunks::<10>().0.iter().map(entry);
    Ok(all.filter(|(_, seqno)| *seqno > 0).collect())
}

/// Returns datatype and hash of a value, without the attributes that replication writes.
fn normal(datatype: u8, value: &[u8]) -> (u8, u64) {
    let split = (datatype & XATTR != 0).then(|| xattr::split(value)).flatten();
    let Some((section, body)) = split else { return (datatype, hash_of(value)) };
    let Ok(mut attributes) = Xattrs::parse(section) else { return (datatype, hash_of(value)) };
    for name in OF_REPLICATION {
        attributes.remove(name);
    }
    let datatype = if attributes.is_empty() { datatype & !XATTR } else { datatype };
    let section = if attributes.is_empty() { Vec::new() } else { attributes.encode() };
    (datatype, hash_of(&[&section[..], body].concat()))
}

fn hash_of(value: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(value);
    hasher.finish()
}

/// Returns the names of collections, with their scopes, by ID.
fn names_of(scopes: &Value) -> BTreeMap<u32, String> {
    let mut names = BTreeMap::new();
    for scope in scopes["scopes"].as_array().into_iter().flatten() {
        for collection in scope["collections"].as_array().into_iter().flatten() {
            let id = collection["uid"].as_str().and_then(|uid| u32::from_str_radix(uid, 16).ok());
            let (Some(id), Some(scope), Some(collection)) =
                (id, scope["name"].as_str(), collection["name"].as_str())
            else {
                continue;
            };
            names.insert(id, format!("{scope}.{collection}"));
        }
    }
    names
}

/// Returns the differences between two buckets, by collection and key.
pub(super) fn compare(source: &Side, target: &Side) -> BTreeMap<String, Difference> {
    let mut found = BTreeMap::new();
    for (path, here) in &source.0 {
        match target.0.get(path) {
            None => drop(found.insert(path.clone(), Difference::MissingThere)),
            Some(there) if here != there => {
                drop(found.insert(path.clone(), Difference::Parts(parts(here, there))));
            }
            Some(_) => {}
        }
    }
    let missing = target.0.keys().filter(|path| !source.has(path));
    found.extend(missing.map(|path| (path.clone(), Difference::MissingHere)));
    found
}

fn parts(here: &Digest, there: &Digest) -> Vec<&'static str> {
    let all = [
        (here.is_deleted != there.is_deleted, "one is deleted"),
        (here.value != there.value, "value"),
        (here.cas != there.cas, "CAS"),
        (here.rev != there.rev, "revision"),
        (here.flags != there.flags, "flags"),
        (here.expiry != there.expiry, "expiry"),
        (here.datatype != there.datatype, "datatype"),
    ];
    all.into_iter().filter(|(differs, _)| *differs).map(|(_, name)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(cas: u64, value: &[u8]) -> Digest {
        let value = hash_of(value);
        Digest { is_deleted: false, cas, rev: 1, flags: 0, expiry: 0, datatype: 1, value }
    }

    #[test]
    fn missing_and_different_documents_are_found() {
        let side = |entries: &[(&str, Digest)]| {
            Side(entries.iter().map(|(path, digest)| ((*path).to_owned(), *digest)).collect())
        };
        let source =
            side(&[("a", digest(1, b"1")), ("b", digest(2, b"1")), ("c", digest(3, b"1"))]);
        let target =
            side(&[("a", digest(1, b"1")), ("b", digest(2, b"2")), ("d", digest(3, b"1"))]);
        let found = compare(&source, &target);
        let shown: Vec<String> = found.iter().map(|(path, it)| format!("{path} {it}")).collect();
        assert_eq!(shown, ["b different: value", "c only at the source", "d only at the target"]);
        let deleted = Digest { is_deleted: true, ..digest(9, b"1") };
        assert_eq!(parts(&digest(1, b"1"), &deleted), ["one is deleted", "CAS"]);
    }
}
