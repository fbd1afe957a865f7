//! The node that this process belongs to: its key-value ports, and the rights of its users.

use crate::error::{Error, Result};
use crate::follower::features;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use nacre_client::{Connection, Rest, TrustedRoots};
use std::collections::BTreeMap;

/// The sender of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Caller {
    /// A user with an `Authorization` header, which the node must check.
    Stranger(Option<String>),
    /// An authenticated user: the node forwards the request with the user's rights.
    Known {
        /// The name.
        user: String,
        /// Buckets whose analytics the user may define; `*` for all.
        manage: Vec<String>,
        /// Keyspaces that the user may read: `bucket`, `bucket:scope` or `bucket:scope:collection`; `*` for all.
        select: Vec<String>,
    },
}

impl Caller {
    /// Parses the header with the rights, which is percent-encoded JSON.
    pub fn known(user: &str, rights: &str) -> Option<Caller> {
        let rights = percent_encoding::percent_decode_str(rights).decode_utf8().ok()?;
        let rights: BTreeMap<String, Vec<String>> = serde_json::from_str(&rights).ok()?;
        let of = |name: &str| rights.get(name).cloned().unwrap_or_default();
        let user = percent_encoding::percent_decode_str(user).decode_utf8().ok()?.into_owned();
        Some(Caller::Known { user, manage: of("manage"), select: of("select") })
    }

    /// Returns the user name in the request; empty without one.
    pub fn user(&self) -> String {
        match self {
            Caller::Stranger(authorization) => {
                credentials(authorization.as_deref()).map(|(user, _)| user).unwrap_or_default()
            }
            Caller::Known { user, .. } => user.clone(),
        }
    }
}

/// Returns true if the rights of a known user include a permission.
fn includes(manage: &[String], select: &[String], permission: &str) -> bool {
    let in_brackets = |kind: &str| {
        let rest = permission.strip_prefix("cluster.")?.strip_prefix(kind)?.strip_prefix('[')?;
        rest.rsplit_once(']')
    };
    let has = |granted: &[String], name: &str| granted.iter().any(|one| one == "*" || one == name);
    if permission == LOGGED_IN {
        return true;
    }
    if let Some((bucket, ".analytics!manage")) = in_brackets("bucket") {
        return has(manage, bucket);
    }
    if let Some((path, ".analytics!select")) = in_brackets("collection") {
        // A bucket, a scope and the collection: longer names begin with the shorter ones.
        let ends = path.match_indices(':').map(|(at, _)| at).chain([path.len()]);
        return ends.into_iter().any(|end| has(select, &path[..end]));
    }
    has(manage, "*")
}

/// The permission of every authenticated user.
pub const LOGGED_IN: &str = "cluster.pools!read";

/// The address and login of a node.
#[derive(Clone, Debug)]
pub struct Node {
    /// URL of its REST port, such as `http://127.0.0.1:8091`.
    pub rest: String,
    /// Addresses of key-value ports, `host:port`.
    pub keys: Vec<String>,
    /// The user of the DCP streams.
    pub user: String,
    /// The password.
    pub password: String,
}

impl Node {
    /// Connects to a bucket at any node.
    ///
    /// # Errors
    /// The errors of the last node that was tried.
    pub fn connect(&self, bucket: &str) -> std::result::Result<Connection, nacre_client::Error> {
        let mut last = nacre_client::Error::Invalid("no key-value port is known".to_owned());
        for address in &self.keys {
            match self.connect_to(address, bucket) {
                Ok(connection) => return Ok(connection),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Connects to a bucket at one node.
    ///
    /// # Errors
    /// The errors of the connection.
    pub fn connect_to(
        &self,
        address: &str,
        bucket: &str,
    ) -> std::result::Result<Connection, nacre_client::Error> {
        let login = [self.user.as_str(), &self.password, bucket];
        Connection::connect(address, None, login, &features())
    }

    /// Returns the header with the login of the streams.
    pub fn authorization(&self) -> String {
        format!("Basic {}", STANDARD.encode(format!("{}:{}", self.user, self.password)))
    }

    /// Returns the addresses at which nodes can be reached: a single node is reached at its configured address, not at the
    /// address that it reports.
    pub fn reachable(&self, connection: &Connection, servers: &[String]) -> Vec<String> {
        match servers {
            [_] => vec![connection.address().to_owned()],
            _ => servers.to_vec(),
        }
    }

    /// Asks the node which of these permissions the user of a request has, in the node's form.
    ///
    /// # Errors
    /// Code 20000 for a user unknown to the node, 23000 if the node does not answer.
    pub fn permissions(
        &self,
        caller: &Caller,
        permissions: &[String],
    ) -> Result<BTreeMap<String, bool>> {
        let authorization = match caller {
            Caller::Stranger(authorization) => authorization.as_deref(),
            Caller::Known { manage, select, .. } => {
                let judged = permissions
                    .iter()
                    .map(|permission| (permission.clone(), includes(manage, select, permission)));
                return Ok(judged.collect());
            }
        };
        let (user, password) = credentials(authorization).ok_or_else(Error::unauthorized)?;
        let hosts = std::slice::from_ref(&self.rest);
        let rest = Rest::new(hosts, &user, &password, &TrustedRoots::default());
        let reply = rest
            .call("POST", "/pools/default/checkPermissions", permissions.join(",").as_bytes())
            .map_err(|error| {
                Error::new(23000, format!("Analytics Service is temporarily unavailable: {error}"))
            })?;
        match reply.status {
            200 => serde_json::from_str(&reply.text).map_err(Error::internal),
            401 => Err(Error::unauthorized()),
            status => Err(Error::new(
                23000,
                format!("Analytics Service is temporarily unavailable: the node answers {status}"),
            )),
        }
    }
}

/// Returns user and password of an `Authorization: Basic` header.
fn credentials(authorization: Option<&str>) -> Option<(String, String)> {
    let (scheme, encoded) = authorization?.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let decoded = String::from_utf8(STANDARD.decode(encoded.trim()).ok()?).ok()?;
    let (user, password) = decoded.split_once(':')?;
    Some((user.to_owned(), password.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_come_from_basic_authentication() {
        let header = format!("Basic {}", STANDARD.encode("ann:se:cret"));
        assert_eq!(credentials(Some(&header)), Some(("ann".into(), "se:cret".into())));
        for header in
            [None, Some("Basic"), Some("Bearer YTpi"), Some("Basic ???"), Some("Basic YQ==")]
        {
            assert_eq!(credentials(header), None, "{header:?}");
        }
    }

    #[test]
    fn rights_are_those_granted_by_the_node() {
        let caller =
            Caller::known("ann", "%7B%22manage%22:[%22b%22],%22select%22:[%22b:s%22,%22c%22]}");
        let Some(Caller::Known { manage, select, .. }) = caller else {
            panic!("it cannot be read")
        };
        for (permission, expected) in [
            (LOGGED_IN, true),
            ("cluster.analytics!manage", false),
            ("cluster.bucket[b].analytics!manage", true),
            ("cluster.bucket[c].analytics!manage", false),
            ("cluster.collection[b:s:x].analytics!select", true),
            ("cluster.collection[b:t:x].analytics!select", false),
            ("cluster.collection[b:st:x].analytics!select", false),
            ("cluster.collection[c:t:x].analytics!select", true),
            ("cluster.stats!read", false),
        ] {
            assert_eq!(includes(&manage, &select, permission), expected, "{permission}");
        }
        let all = ["*".to_owned()];
        assert!(includes(&all, &[], "cluster.analytics!manage"));
        assert!(includes(&[], &all, "cluster.collection[b:s:c].analytics!select"));
        assert_eq!(Caller::known("ann", "nothing"), None);
    }
}
