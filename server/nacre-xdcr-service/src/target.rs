//! The target as described by its management service: cluster and bucket UUIDs, nodes, vBucket map, collections.

use crate::inbox::{Event, Inbox};
use crate::link::Access;
use crate::record::{Reference, Security};
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use nacre_client::{ClusterMap, Rest, RestError};
use nacre_types::{Cas, CollectionId};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Interval of regular looks at the target.
const LOOK_INTERVAL: Duration = Duration::from_secs(5);
/// Interval of looks after a failed one.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// Minimum time between two looks.
const PAUSE: Duration = Duration::from_millis(100);
/// Maximum number of target nodes kept.
const NODES_MAX: usize = 100;
/// Maximum number of collections read.
const COLLECTIONS_MAX: usize = 10_000;
/// Reason of a refused login by a client certificate.
const NO_USER: &str = "the client certificate names no user of the other cluster";
/// Maximum number of vBuckets of a bucket.
const VBUCKETS_MAX: usize = 1024;

/// Why a target cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unusable {
    /// No node answers correctly; this may be temporary.
    #[error("{0}")]
    Unreachable(String),
    /// The credentials are wrong, or the user lacks a privilege.
    #[error("{0}")]
    Unauthorized(String),
    /// The bucket does not exist.
    #[error("bucket '{0}' does not exist")]
    NoBucket(String),
}

/// Another cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RemoteCluster {
    /// UUID: 32 hexadecimal digits.
    pub uuid: String,
    /// URLs of the management services of its nodes.
    pub nodes: Vec<String>,
}

/// A bucket of another cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// The cluster.
    pub cluster: RemoteCluster,
    /// UUID of the bucket.
    pub uuid: String,
    /// Conflict resolution: `seqno`, `lww` or `custom`.
    pub resolution: String,
    /// The CAS from which the bucket keeps version histories (`enableCrossClusterVersioning`), if it does.
    pub histories_since: Option<Cas>,
    /// The node of each vBucket.
    pub map: ClusterMap,
    /// Collection IDs by scope and collection name.
    pub collections: BTreeMap<(String, String), CollectionId>,
}

/// A client of the management service of another cluster.
pub(crate) struct Management {
    rest: Rest,
    reference: Reference,
    nodes: Vec<String>,
}

impl Management {
    /// Creates a client that asks the node that the reference names, and `nodes`.
    ///
    /// # Errors
    /// A sentence about the error in a certificate or the key.
    pub fn new(reference: &Reference, nodes: &[String]) -> Result<Management, String> {
        let first = reference.url();
        let others = nodes.iter().filter(|node| **node != first).take(NODES_MAX).cloned();
        let hosts: Vec<String> = std::iter::once(first.clone()).chain(others).collect();
        let trust = reference.trust()?;
        let rest = match reference.identity().map_err(|error| error.to_string())? {
            Some(identity) => Rest::with_identity(&hosts, &identity, &trust),
            None => Rest::new(&hosts, &reference.username, &reference.password, &trust),
        };
        Ok(Management { rest, reference: reference.clone(), nodes: hosts })
    }

    /// Reads a JSON resource of the management service.
    ///
    /// # Errors
    /// [`Unusable`]; [`Unusable::NoBucket`] for a path that does not exist.
    pub fn get(&self, path: &str) -> Result<Value, Unusable> {
        let reply = self
            .rest
            .call("GET", path, b"")
            .map_err(|error: RestError| Unusable::Unreachable(error.to_string()))?;
        match reply.status {
            200 => serde_json::from_str(&reply.text)
                .map_err(|_| Unusable::Unreachable(format!("the answer of {path} is not JSON"))),
            401 if self.reference.has_client_certificate() => {
                Err(Unusable::Unauthorized(NO_USER.to_owned()))
            }
            401 => Err(Unusable::Unauthorized("user or password are wrong".to_owned())),
            403 if self.reference.has_client_certificate() => {
                let reason = format!("the user of the client certificate may not read {path}");
                Err(Unusable::Unauthorized(reason))
            }
            403 => {
                let user = &self.reference.username;
                Err(Unusable::Unauthorized(format!("the user {user} may not read {path}")))
            }
            404 => Err(Unusable::NoBucket(path.to_owned())),
            status => Err(Unusable::Unreachable(format!("{path} is answered with {status}"))),
        }
    }

    /// Reads the UUID and the nodes of the cluster.
    ///
    /// # Errors
    /// [`Unusable`].
    pub fn cluster(&self) -> Result<RemoteCluster, Unusable> {
        let pools = self.get("/pools")?;
        let uuid = pools["uuid"].as_str().filter(|uuid| is_uuid(uuid)).ok_or_else(|| {
            // A node answers this path without a login, too, but does not name its cluster then.
            match self.reference.has_client_certificate() {
                true => Unusable::Unauthorized(NO_USER.to_owned()),
                false => Unusable::Unreachable(
                    "the node belongs to no cluster yet, or is not a database".to_owned(),
                ),
            }
        })?;
        let services = self.get("/pools/default/nodeServices")?;
        let port = if self.reference.security == Security::None { "mgmt" } else { "mgmtSSL" };
        let url = self.reference.url();
        let (scheme, authority) = url.split_once("://").unwrap_or(("http", &url));
        let host = authority.rsplit_once(':').map_or(authority, |(host, _)| host);
        let nodes = services["nodesExt"].as_array().into_iter().flatten();
        let node = |node: &Value| {
            let external = self.reference.external.then(|| &node["alternateAddresses"]["external"]);
            let named = external.filter(|named| named.is_object());
            let host = named
                .map_or(&node["hostname"], |named| &named["hostname"])
                .as_str()
                .unwrap_or(host);
            let ports = named.map(|named| &named["ports"]).filter(|ports| ports.is_object());
            let port = ports.unwrap_or(&node["services"])[port].as_u64()?;
            let host = if host.contains(':') && !host.starts_with('[') {
                format!("[{host}]")
            } else {
                host.to_owned()
            };
            Some(format!("{scheme}://{host}:{port}"))
        };
        let nodes: Vec<String> = nodes.filter_map(node).take(NODES_MAX).collect();
        let nodes = if nodes.is_empty() { self.nodes.clone() } else { nodes };
        Ok(RemoteCluster { uuid: uuid.to_owned(), nodes })
    }

    /// Reads the description of a bucket.
    ///
    /// # Errors
    /// [`Unusable`].
    pub fn bucket(&self, name: &str) -> Result<Target, Unusable> {
        let cluster = self.cluster()?;
        let path = format!("/pools/default/buckets/{}", crate::form::segment(name));
        let missing = |unusable| match unusable {
            Unusable::NoBucket(_) => Unusable::NoBucket(name.to_owned()),
            other => other,
        };
        let described = self.get(&path).map_err(missing)?;
        let scopes = self.get(&format!("{path}/scopes")).map_err(missing)?;
        let uuid = described["uuid"]
            .as_str()
            .filter(|uuid| is_uuid(uuid))
            .ok_or_else(|| Unusable::Unreachable(format!("the bucket {name} has no UUID")))?;
        let url = self.reference.url();
        let reached = url.split_once("://").map_or(&url[..], |(_, authority)| authority);
        let is_encrypted = self.reference.security == Security::Full;
        let text = described.to_string();
        let map = match self.reference.external {
            true => ClusterMap::read_alternate(text.as_bytes(), reached, is_encrypted),
            false => ClusterMap::read(text.as_bytes(), reached, is_encrypted),
        };
        let map = map.map_err(|error| Unusable::Unreachable(error.to_string()))?;
        if !(1..=VBUCKETS_MAX).contains(&map.active().len()) {
            return Err(Unusable::Unreachable(format!("the bucket {name} has no vBuckets yet")));
        }
        Ok(Target {
            cluster,
            uuid: uuid.to_owned(),
            resolution: described["conflictResolutionType"].as_str().unwrap_or("seqno").to_owned(),
            histories_since: histories_since(&described),
            map,
            collections: collections(&scopes),
        })
    }
}

/// Returns the smallest CAS from which any vBucket keeps histories, if the bucket keeps them.
fn histories_since(bucket: &Value) -> Option<Cas> {
    if bucket["enableCrossClusterVersioning"] != true {
        return None;
    }
    let of_each = bucket["vbucketsMaxCas"].as_array().into_iter().flatten();
    let least = of_each.filter_map(|cas| cas.as_str()?.parse::<u64>().ok()).min();
    Some(Cas(least.unwrap_or(0)))
}

/// Returns true if the text can be the UUID of a cluster or bucket.
fn is_uuid(text: &str) -> bool {
    (16..=64).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn collections(scopes: &Value) -> BTreeMap<(String, String), CollectionId> {
    let of = |scope: &Value| -> Vec<((String, String), CollectionId)> {
        let name = scope["name"].as_str().unwrap_or_default().to_owned();
        let collections = scope["collections"].as_array().into_iter().flatten();
        let named = collections.filter_map(|collection| {
            let id = u32::from_str_radix(collection["uid"].as_str()?, 16).ok()?;
            let collection = collection["name"].as_str()?.to_owned();
            Some(((name.clone(), collection), CollectionId(id)))
        });
        named.collect()
    };
    let scopes = scopes["scopes"].as_array().into_iter().flatten();
    scopes.flat_map(of).take(COLLECTIONS_MAX).collect()
}

/// Returns the access to the key-value service of the cluster of `reference`, for a bucket with this UUID.
///
/// # Errors
/// A sentence about the error in a certificate or the key.
pub(crate) fn access(reference: &Reference, bucket: &str, uuid: &str) -> Result<Access, String> {
    let identity = reference.identity().map_err(|error| error.to_string())?;
    let tls = match (reference.security, &identity) {
        (Security::Full, Some(identity)) => Some(reference.trust()?.client_config_as(identity)?),
        (Security::Full, None) => Some(reference.trust()?.client_config()?),
        (Security::None | Security::Half, _) => None,
    };
    let (user, password) = (reference.username.clone(), reference.password.clone());
    let (bucket, bucket_uuid) = (bucket.to_owned(), uuid.to_owned());
    let by_certificate = identity.is_some();
    Ok(Access { user, password, by_certificate, bucket, bucket_uuid, tls })
}

/// A thread that looks at the target regularly and at the driver's request.
pub(crate) struct Scout {
    wake: Sender<()>,
}

impl Scout {
    /// Starts the thread, which ends when the scout is dropped.
    pub fn start(reference: Reference, bucket: String, inbox: Arc<Inbox>) -> Scout {
        let (wake, woken) = bounded(1);
        let look = move || look(&reference, &bucket, &inbox, &woken);
        let spawned = std::thread::Builder::new().name("xdcr-scout".into()).spawn(look);
        if let Err(error) = spawned {
            tracing::error!("replication: no thread to look at the target: {error}");
        }
        Scout { wake }
    }

    /// Requests a look at the target soon.
    pub fn check_soon(&self) {
        // A full channel means that the thread is already awake.
        let _ = self.wake.try_send(());
    }
}

fn look(reference: &Reference, bucket: &str, inbox: &Inbox, woken: &Receiver<()>) {
    let mut nodes = Vec::new();
    loop {
        let management = Management::new(reference, &nodes).map_err(Unusable::Unreachable);
        let seen = management.and_then(|management| management.bucket(bucket));
        let pause = match seen {
            Ok(target) => {
                nodes.clone_from(&target.cluster.nodes);
                inbox.push([Event::Target(Box::new(target))]);
                LOOK_INTERVAL
            }
            Err(unusable) => {
                inbox.push([Event::NoTarget(unusable)]);
                RETRY_INTERVAL
            }
        };
        if woken.recv_timeout(pause) == Err(RecvTimeoutError::Disconnected) {
            return;
        }
        // Several requests may arrive together; the first has woken the thread.
        std::thread::park_timeout(PAUSE);
        if woken.try_recv() == Err(crossbeam_channel::TryRecvError::Disconnected) {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn collections_are_known_by_their_names() {
        let scopes = json!({"scopes": [
            {"name": "_default", "collections": [{"name": "_default", "uid": "0"}]},
            {"name": "s", "collections": [{"name": "c", "uid": "1f"}, {"name": "bad", "uid": "x"}, 5]},
            7,
        ]});
        let known = collections(&scopes);
        assert_eq!(known.len(), 2);
        assert_eq!(known[&("s".to_owned(), "c".to_owned())], CollectionId(0x1f));
    }

    #[test]
    fn a_malformed_uuid_is_refused() {
        assert!(is_uuid(&"a1".repeat(16)));
        for text in ["", "short", &"g".repeat(32), &"a".repeat(100)] {
            assert!(!is_uuid(text), "{text}");
        }
    }
}
