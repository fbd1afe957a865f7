//! Statistics of keyspaces as part of the agreed state: every node plans with the same statistics, and they survive a restart.
//!
//! The statistics of a keyspace are a record of the agreed state, which is removed with its scope. The version of the record
//! begins with the ID of the collection, so that a new collection with the same name has no statistics. Queries read them as
//! notes:
//!
//! ```text
//! statistics/shop/_default/orders          the result of UPDATE STATISTICS
//! statistics/shop/_default/orders/stamp    the version, which changes with them
//! ```
//!
//! Each node keeps the whole agreed state in memory and stores it with each change, so the size of statistics is limited.
//!
//! The member `refresh` of a record has what a [refresh](super::refresh) needs. The instance puts the keys and the options of the
//! statement there, and this module the user and the [changes] so far:
//!
//! ```text
//! "refresh": {"keys": {"status": "status"}, "with": {"sample_size": 500}, "user": "ann", "changes": 81234}
//! ```

use super::committed::Committed;
use super::failure::{failure, no_bucket};
use super::footprint::Footprint;
use super::requester::Requester;
use super::row::QUERY;
use super::session::path;
use super::settings::QuerySettings;
use nacre_auth::Privilege;
use nacre_cluster::{Change, Cluster, Expected, RecordChange, Refusal, ServiceRecord};
use nacre_node::{Error, Node};
use nacre_sandbox::{DatabaseKeyspace, Failure};
use serde_json::Value;
use std::sync::Arc;

/// First word of the keys of statistics and of the names of their records.
pub(super) const STATISTICS: &str = "statistics/";
/// Last word of the key of a version.
const STAMP: &str = "stamp";

/// Maximum size of the statistics of one keyspace, and of all keyspaces, in bytes.
const BYTES_MAX: usize = 256 << 10;
const ALL_BYTES_MAX: usize = 8 << 20;

/// Code of refused statistics. Source: Couchbase's list of error codes.
const REFUSED: u32 = 5360;

/// The key of a note about statistics.
struct Key {
    keyspace: DatabaseKeyspace,
    is_stamp: bool,
}

impl Key {
    fn read(key: &str) -> Option<Key> {
        let mut parts = key.strip_prefix(STATISTICS)?.split('/');
        let mut next = || parts.next().map(str::to_owned);
        let keyspace = DatabaseKeyspace { bucket: next()?, scope: next()?, collection: next()? };
        match (parts.next(), parts.next()) {
            (None, _) => Some(Key { keyspace, is_stamp: false }),
            (Some(STAMP), None) => Some(Key { keyspace, is_stamp: true }),
            _ => None,
        }
    }
}

fn name_of(keyspace: &DatabaseKeyspace) -> String {
    let DatabaseKeyspace { bucket, scope, collection } = keyspace;
    // Names of keyspaces contain no slash.
    format!("{STATISTICS}{bucket}/{scope}/{collection}")
}

/// Returns the prefix of the versions of all records about the keyspace's present collection.
fn version_prefix(cluster: &Cluster, keyspace: &DatabaseKeyspace) -> Option<String> {
    let manifest = &cluster.bucket(&keyspace.bucket).ok()?.manifest;
    Some(format!("{:x}-", manifest.resolve(&path(keyspace)).ok()?.0))
}

/// Returns the record about the keyspace's present collection.
pub(super) fn record<'a>(
    cluster: &'a Cluster,
    keyspace: &DatabaseKeyspace,
) -> Option<&'a ServiceRecord> {
    let record = cluster.service_records.get(QUERY.id, &name_of(keyspace))?;
    record.version.starts_with(&version_prefix(cluster, keyspace)?).then_some(record)
}

/// Returns the keyspace of a note about statistics; `None` for other notes.
pub(super) fn keyspace_of(key: &str) -> Option<DatabaseKeyspace> {
    Key::read(key).map(|key| key.keyspace)
}

/// Returns a note about statistics without a check of rights.
pub(super) fn recall(node: &Node, key: &str) -> Option<Vec<u8>> {
    let Key { keyspace, is_stamp } = Key::read(key)?;
    let cluster = node.cluster();
    let record = record(&cluster, &keyspace)?;
    // Without a stamp, the planner uses no statistics, and drops plans that it has made with them.
    if is_stamp && !QuerySettings::of(&cluster).uses_costs {
        return None;
    }
    let text = if is_stamp { &record.version } else { &record.body };
    Some(text.clone().into_bytes())
}

/// Returns the keys of notes about statistics that begin with `prefix`, without those of versions, for the keyspaces that the
/// user may query.
pub(super) fn keys(requester: &Requester, prefix: &str) -> Vec<String> {
    requester.node.catch_up();
    let keyspaces = described(&requester.node.cluster()).into_iter();
    let seen = keyspaces.filter(|keyspace| requester.may(Privilege::Query, keyspace));
    seen.map(|keyspace| name_of(&keyspace)).filter(|name| name.starts_with(prefix)).collect()
}

/// Returns the keyspaces that have statistics.
pub(super) fn described(cluster: &Cluster) -> Vec<DatabaseKeyspace> {
    let names = cluster.service_records.of(QUERY.id).map(|(name, _)| name);
    let keyspaces = names.filter_map(keyspace_of);
    keyspaces.filter(|keyspace| record(cluster, keyspace).is_some()).collect()
}

/// Returns a number that grows by at least one with each change of the keyspace's documents: the sum of its last seqnos over all
/// vBuckets. Changes in other collections of the bucket count as well if they precede one in this keyspace.
pub(super) fn changes(node: &Arc<Node>, keyspace: &DatabaseKeyspace) -> Result<u64, Failure> {
    let owners = node.owners(&keyspace.bucket).ok_or_else(|| no_bucket(keyspace))?;
    let footprint = Footprint::new(node.random());
    Committed { node, footprint: &footprint }.changes(&owners, keyspace)
}

/// Replaces the statistics of a keyspace, or removes them if `row` is `None`. A refresh replaces only those that it began with.
pub(super) fn put(
    requester: &Requester,
    keyspace: &DatabaseKeyspace,
    row: Option<Value>,
) -> Result<(), Failure> {
    requester.require(Privilege::Query, keyspace)?;
    let name = name_of(keyspace);
    let service = QUERY.id.to_owned();
    let Some(mut row) = row else {
        let expected = Expected::Anything;
        let change = Change::Records(RecordChange::DropServiceRecord { service, name, expected });
        return match requester.node.change(&change) {
            Ok(_) | Err(Error::Refused(Refusal::RecordNotFound { .. })) => Ok(()),
            Err(_) => requester.change(&change),
        };
    };
    let cluster = requester.node.cluster();
    let missing = || failure(REFUSED, format!("There is no keyspace {}", path(keyspace)));
    let prefix = version_prefix(&cluster, keyspace).ok_or_else(missing)?;
    if let Some(refresh) = row.get_mut("refresh").and_then(Value::as_object_mut)
        && !refresh.contains_key("user")
    {
        refresh.insert("user".into(), requester.user.as_str().into());
        refresh.insert("changes".into(), changes(&requester.node, keyspace)?.into());
    }
    let body = row.to_string();
    check_size(&cluster, &name, &body)?;
    let record = ServiceRecord {
        version: format!("{prefix}{:016x}", requester.node.random()),
        bucket: Some(keyspace.bucket.clone()),
        scope: Some(keyspace.scope.clone()),
        body,
    };
    requester.change(&Change::Records(RecordChange::PutServiceRecord {
        service,
        name,
        record: Box::new(record),
        expected: match &requester.replaced_statistics {
            Some(version) => Expected::Version(version.clone()),
            None => Expected::Anything,
        },
    }))
}

fn check_size(cluster: &Cluster, name: &str, body: &str) -> Result<(), Failure> {
    let others = cluster.service_records.of(QUERY.id).filter(|(known, _)| *known != name);
    let all = others.map(|(_, record)| record.body.len()).sum::<usize>() + body.len();
    let message = match () {
        () if body.len() > BYTES_MAX => format!(
            "The statistics have {} bytes, and at most {BYTES_MAX} are kept of a keyspace: describe fewer keys, or give a larger \
             resolution",
            body.len()
        ),
        () if all > ALL_BYTES_MAX => format!(
            "The statistics of all keyspaces have {ALL_BYTES_MAX} bytes at most: remove some by UPDATE STATISTICS … DELETE ALL"
        ),
        () => return Ok(()),
    };
    Err(failure(REFUSED, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_name_a_keyspace_and_its_version() {
        let read = |key: &str| {
            Key::read(key).map(|Key { keyspace, is_stamp }| (name_of(&keyspace), is_stamp))
        };
        let name = || "statistics/b/s/c".to_owned();
        assert_eq!(read("statistics/b/s/c"), Some((name(), false)));
        assert_eq!(read("statistics/b/s/c/stamp"), Some((name(), true)));
        for key in ["statistics/b/s", "statistics/b/s/c/other", "statistics/b/s/c/stamp/x", "other"]
        {
            assert_eq!(read(key), None, "{key}");
        }
    }

    #[test]
    fn memory_of_statistics_is_bounded() {
        let mut cluster = Cluster::new("u".into());
        assert!(check_size(&cluster, "a", &"x".repeat(BYTES_MAX)).is_ok());
        let refused = check_size(&cluster, "a", &"x".repeat(BYTES_MAX + 1)).unwrap_err();
        assert_eq!(refused.code, REFUSED);
        for n in 0..ALL_BYTES_MAX / BYTES_MAX {
            let record = ServiceRecord {
                version: "1".into(),
                bucket: None,
                scope: None,
                body: "x".repeat(BYTES_MAX),
            };
            let change = Change::Records(RecordChange::PutServiceRecord {
                service: QUERY.id.into(),
                name: format!("n{n}"),
                record: Box::new(record),
                expected: Expected::Anything,
            });
            cluster.apply(&change).unwrap();
        }
        assert_eq!(check_size(&cluster, "a", "x").unwrap_err().code, REFUSED);
        assert!(check_size(&cluster, "n0", "x").is_ok(), "what is replaced makes room");
    }
}
