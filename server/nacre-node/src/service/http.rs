//! HTTP routes of services, as data. The server owns the sockets, the logins and the limits.

use crate::node::Node;
use nacre_auth::{Keyspace, Login, Privilege};
use nacre_budget::{Permit, Purpose};
use std::sync::Arc;

/// A path at a port of a service, and its handler.
#[derive(Clone, Copy, Debug)]
pub struct Route {
    /// ID of the port.
    pub port: &'static str,
    /// Method, in capitals.
    pub method: &'static str,
    /// Path. A segment in braces matches any: `/items/{id}`.
    pub path: &'static str,
    /// Right that the request needs.
    pub access: Access,
    /// Answers a request. May block, because it has a thread of its own.
    pub handler: fn(&Arc<Node>, &HttpRequest) -> HttpReply,
}

impl Route {
    /// Returns the path segments that match those in braces; `None` if the path does not match the route.
    pub fn matches(&self, path: &[String]) -> Option<Vec<String>> {
        let segments: Vec<&str> = self.path.split('/').filter(|part| !part.is_empty()).collect();
        if segments.len() != path.len() {
            return None;
        }
        let mut parameters = Vec::new();
        for (segment, given) in segments.into_iter().zip(path) {
            match segment.starts_with('{') {
                true => parameters.push(given.clone()),
                false if segment == given => {}
                false => return None,
            }
        }
        Some(parameters)
    }
}

/// Right that a route requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// A privilege on the cluster.
    Cluster(Privilege),
    /// Any logged-in user. The handler decides if the right depends on the content of the request.
    Handler,
}

/// A request of a user who has the required right.
#[derive(Clone, Debug, Default)]
pub struct HttpRequest {
    /// Segments of the path that the route left open, percent-decoded.
    pub parameters: Vec<String>,
    /// Query string as received, without `?`.
    pub query: String,
    /// Headers without credentials; names are in lower case.
    pub headers: Vec<(String, String)>,
    /// Body.
    pub body: Vec<u8>,
    /// Name of the user.
    pub user: String,
    /// The login of the user; `None` on a node without an administrator.
    pub login: Option<Login>,
}

impl HttpRequest {
    /// Returns names and percent-decoded values of the query, in order. A missing value is empty.
    pub fn query_pairs(&self) -> impl Iterator<Item = (&str, String)> {
        self.query.split('&').map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value = value.replace('+', " ");
            (name, percent_encoding::percent_decode_str(&value).decode_utf8_lossy().into_owned())
        })
    }

    /// Returns true if the user has a privilege on a part of the data.
    pub fn may(&self, node: &Node, privilege: Privilege, keyspace: Keyspace<'_>) -> bool {
        let users = node.users();
        let holder = self.login.as_ref().and_then(|login| users.holder(login));
        holder.is_some_and(|user| user.may(privilege, keyspace))
    }

    /// Returns a permit for the user's answer memory, still empty. A handler whose answer may be large reserves memory
    /// while the answer grows; the server accounts for the complete answer.
    pub fn answer_memory(&self, node: &Node) -> Permit {
        let account = node.memory().budgets().of_user(nacre_auth::person(&self.user));
        account.permit(Purpose::Answer)
    }
}

/// An HTTP reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpReply {
    /// Status.
    pub status: u16,
    /// Media type of the body.
    pub content_type: &'static str,
    /// Body.
    pub body: Vec<u8>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_matches_segment_by_segment() {
        let route = Route {
            port: "a",
            method: "GET",
            path: "/items/{id}/parts/{part}",
            access: Access::Handler,
            handler: |_, _| unreachable!("nobody asks"),
        };
        let of = |path: &[&str]| {
            route.matches(&path.iter().map(|part| (*part).to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(of(&["items", "1", "parts", "x"]), Some(vec!["1".into(), "x".into()]));
        for path in [&["items", "1", "parts"][..], &["items", "1", "other", "x"], &[]] {
            assert_eq!(of(path), None, "{path:?}");
        }
    }
}
