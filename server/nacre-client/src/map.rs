//! The cluster map of a bucket: the node that serves each vBucket.

use crate::Error;
use nacre_types::Vbid;
use serde_json::Value;

/// Maximum number of vBuckets of a bucket. Source: the hash of a key is taken modulo at most this number.
const VBUCKETS_MAX: usize = 1024;

/// Cluster map of a bucket, reduced to the parts that a client needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterMap {
    /// Addresses of the key-value service, `host:port`.
    servers: Vec<String>,
    /// Index into `servers` by vBucket.
    active: Vec<Option<usize>>,
    /// Epoch and revision.
    version: (u64, u64),
}

impl ClusterMap {
    /// Parses a map in the format of GET_CLUSTER_CONFIG.
    ///
    /// `reached` is the address by which the node was reached, because a node without a name leaves the host to
    /// clients. With `is_encrypted` the addresses are those of the TLS ports.
    ///
    /// # Errors
    /// [`Error::Malformed`] if `bytes` is not JSON.
    pub fn read(bytes: &[u8], reached: &str, is_encrypted: bool) -> Result<ClusterMap, Error> {
        ClusterMap::parse(bytes, reached, is_encrypted, false)
    }

    /// Parses a map as [`ClusterMap::read`] does, for a client in another network: with the alternate addresses of nodes that have
    /// them.
    ///
    /// # Errors
    /// [`Error::Malformed`] if `bytes` is not JSON.
    pub fn read_alternate(
        bytes: &[u8],
        reached: &str,
        is_encrypted: bool,
    ) -> Result<ClusterMap, Error> {
        ClusterMap::parse(bytes, reached, is_encrypted, true)
    }

    fn parse(
        bytes: &[u8],
        reached: &str,
        is_encrypted: bool,
        is_outside: bool,
    ) -> Result<ClusterMap, Error> {
        let map: Value = serde_json::from_slice(bytes)
            .map_err(|error| Error::Malformed(format!("the cluster map: {error}")))?;
        let number = |name: &str| map[name].as_u64().unwrap_or(0);
        let version = (number("revEpoch"), number("rev"));
        let vbuckets = &map["vBucketServerMap"];
        let host = reached.rsplit_once(':').map_or(reached, |(host, _)| host);
        let servers = match is_encrypted || is_outside {
            true => servers_of(&map, if is_encrypted { "kvSSL" } else { "kv" }, is_outside),
            false => {
                let servers = vbuckets["serverList"].as_array().into_iter().flatten();
                servers.filter_map(Value::as_str).map(str::to_owned).collect()
            }
        };
        let servers: Vec<String> =
            servers.iter().map(|server| server.replace("$HOST", host)).collect();
        let rows = vbuckets["vBucketMap"].as_array().into_iter().flatten().take(VBUCKETS_MAX);
        let place = |row: &Value| {
            let place = row[0].as_u64().and_then(|place| usize::try_from(place).ok());
            place.filter(|place| *place < servers.len())
        };
        let active = rows.map(place).collect();
        Ok(ClusterMap { servers, active, version })
    }

    /// Returns the addresses of the nodes of the bucket.
    pub fn servers(&self) -> &[String] {
        &self.servers
    }

    /// Returns, for each vBucket, the index into [`ClusterMap::servers`] of the node that serves it, if there is one.
    pub fn active(&self) -> &[Option<usize>] {
        &self.active
    }

    /// Returns the address of the node that serves a vBucket.
    pub fn server_of(&self, vbid: Vbid) -> Option<&str> {
        let place = (*self.active.get(vbid.index())?)?;
        self.servers.get(place).map(String::as_str)
    }

    /// Returns the number of vBuckets of the bucket; 1 if the map has none.
    pub fn vbucket_count(&self) -> u16 {
        u16::try_from(self.active.len()).unwrap_or(0).max(1)
    }

    /// Returns the vBucket of a key, given without its collection prefix.
    pub fn vbucket_of(&self, name: &[u8]) -> Vbid {
        Vbid::of(name, self.vbucket_count())
    }

    /// Returns true if this map is newer than `other`.
    pub fn is_newer_than(&self, other: &ClusterMap) -> bool {
        self.version > other.version
    }
}

/// Returns the addresses of a service, in the order of the map's servers: alternate ones if the client is outside of the network. A
/// service without an alternate port has its own one.
fn servers_of(map: &Value, service: &str, is_outside: bool) -> Vec<String> {
    let nodes = map["nodesExt"].as_array().into_iter().flatten();
    let address = |node: &Value| {
        let alternate = &node["alternateAddresses"]["external"];
        let has_alternate = is_outside && alternate.is_object();
        let named = if has_alternate { &alternate["hostname"] } else { &node["hostname"] };
        let host = named.as_str().unwrap_or("$HOST");
        let ports = if has_alternate { &alternate["ports"] } else { &node["services"] };
        let port = ports[service].as_u64().or_else(|| node["services"][service].as_u64())?;
        Some(match host.contains(':') {
            true => format!("[{host}]:{port}"),
            false => format!("{host}:{port}"),
        })
    };
    let count = map["vBucketServerMap"]["serverList"].as_array().map_or(0, Vec::len);
    nodes.filter_map(address).take(count).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAP: &str = r#"{"rev": 7, "revEpoch": 1,
        "nodesExt": [{"services": {"kvSSL": 11207}}, {"hostname": "::2", "services": {"kvSSL": 11207}}],
        "vBucketServerMap": {"serverList": ["$HOST:11210", "b:11210"], "vBucketMap": [[0, 1], [1, 0], [-1], [2]]}}"#;

    #[test]
    fn each_vbucket_is_at_the_address_by_which_the_client_reaches_it() {
        let map = ClusterMap::read(MAP.as_bytes(), "10.0.0.1:11210", false).unwrap();
        let servers: Vec<Option<&str>> = (0..5).map(|vbid| map.server_of(Vbid(vbid))).collect();
        // The third vBucket has no active copy, and the fourth is on a node that is not listed.
        assert_eq!(servers, [Some("10.0.0.1:11210"), Some("b:11210"), None, None, None]);
        assert_eq!(map.vbucket_count(), 4);
        let encrypted = ClusterMap::read(MAP.as_bytes(), "10.0.0.1:11207", true).unwrap();
        assert_eq!(encrypted.servers(), ["10.0.0.1:11207", "[::2]:11207"]);
        assert!(!map.is_newer_than(&encrypted) && map.is_newer_than(&ClusterMap::default()));
    }

    #[test]
    fn a_client_of_another_network_reaches_nodes_at_their_alternate_addresses() {
        let map = r#"{"nodesExt": [
                {"services": {"kv": 11210, "kvSSL": 11207},
                 "alternateAddresses": {"external": {"hostname": "outside", "ports": {"mgmt": 32000, "kv": 32010}}}},
                {"hostname": "::2", "services": {"kv": 11210, "kvSSL": 11207}}],
            "vBucketServerMap": {"serverList": ["$HOST:11210", "[::2]:11210"], "vBucketMap": [[0], [1]]}}"#;
        let reached = "10.0.0.1:32000";
        let servers = |is_encrypted| {
            let map = ClusterMap::read_alternate(map.as_bytes(), reached, is_encrypted).unwrap();
            map.servers().to_vec()
        };
        assert_eq!(servers(false), ["outside:32010", "[::2]:11210"]);
        assert_eq!(servers(true), ["outside:11207", "[::2]:11207"]);
        let inside = ClusterMap::read(map.as_bytes(), reached, false).unwrap();
        assert_eq!(inside.servers(), ["10.0.0.1:11210", "[::2]:11210"]);
    }

    #[test]
    fn a_malformed_map_has_no_nodes_or_is_refused() {
        assert!(ClusterMap::read(b"{", "a:1", false).is_err());
        for text in
            ["{}", "[]", "null", r#"{"vBucketServerMap": {"vBucketMap": [1, [], [[]], [1e300]]}}"#]
        {
            let map = ClusterMap::read(text.as_bytes(), "a:1", false).unwrap();
            assert!(map.active().iter().all(Option::is_none) && map.servers().is_empty(), "{text}");
        }
    }
}
