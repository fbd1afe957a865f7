//! Queries of functions that other services answer: analytics statements and searches.
//!
//! ```text
//! function ─► request as a client of that service would send it ─► its route, on this node or on one that has the service ─► rows
//! ```
//!
//! The service sees the function's owner as the user of the request, and so applies that user's rights. Statements and searches
//! are read-only. An answer is read as a whole.

use super::eventing_queries;
use super::failure::{code, failure, retry};
use super::message::{QueryMessage, QueryReply};
use nacre_auth::Keyspace;
use nacre_cluster::Membership;
use nacre_node::Node;
use nacre_node::service::{Access, HttpReply, HttpRequest, Route, ServiceSpec};
use nacre_sandbox::{Failure, Query, QueryRows, QueryService};
use nacre_types::NodeId;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::time::Duration;

/// Maximum size of an answer in bytes.
const ANSWER_BYTES_MAX: usize = 8 << 20;
/// Temporary statuses: too many requests, service unavailable, timeout.
const TEMPORARY: [u16; 3] = [429, 503, 504];

/// A request to another kind of service.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RemoteRequest {
    /// ID of the port of the service.
    port: String,
    /// Path of the route, with placeholders in braces.
    path: String,
    /// The values of the placeholders.
    parameters: Vec<String>,
    /// The body, as JSON.
    #[serde(with = "serde_bytes")]
    body: Vec<u8>,
    /// The user whose rights apply.
    user: String,
}

/// Starts a query of a function that `user` has defined.
pub(super) fn begin(
    node: &Arc<Node>,
    user: &str,
    query: &Query,
    left: Duration,
) -> Result<Box<dyn QueryRows>, Failure> {
    let (port, path, parameters, body) = match query.service {
        QueryService::Query => return Err(failure(code::INTERNAL, "This is a query of SQL++")),
        QueryService::Analytics => {
            ("analytics", "/analytics/service", Vec::new(), statement(query, left)?)
        }
        QueryService::Search => {
            ("search", "/api/index/{index}/query", vec![query.text.clone()], search(query, left)?)
        }
    };
    let request = RemoteRequest {
        port: port.to_owned(),
        path: path.to_owned(),
        parameters,
        body: body.to_string().into_bytes(),
        user: user.to_owned(),
    };
    let (status, text) = request.send(node, left)?;
    let rows = match query.service {
        QueryService::Search => hits(status, &text)?,
        _ => results(status, &text)?,
    };
    Ok(Box::new(CompleteRows(rows)))
}

/// The rows of a complete answer.
struct CompleteRows(Vec<String>);

impl QueryRows for CompleteRows {
    fn next(&mut self) -> Result<Vec<String>, Failure> {
        Ok(std::mem::take(&mut self.0))
    }
}

impl RemoteRequest {
    /// Sends the request to this node, or to a node that has the service.
    fn send(&self, node: &Arc<Node>, left: Duration) -> Result<(u16, String), Failure> {
        let (spec, route) = self.route(node)?;
        match self.node_with(node, spec)? {
            None => self.answer_by(node, &route),
            Some(other) => {
                let reply = node.ask(other, &QueryMessage::Remote(self.clone()), left).wait();
                match reply {
                    Ok(Ok(QueryReply::Remote(answer))) => answer,
                    Ok(Ok(_) | Err(_)) => {
                        Err(retry(code::INTERNAL, "Another node sent an unexpected reply"))
                    }
                    Err(error) => Err(retry(code::INTERNAL, error.to_string())),
                }
            }
        }
    }

    /// Answers a request of a function on another node.
    pub(super) fn answer(&self, node: &Arc<Node>) -> Result<(u16, String), Failure> {
        let (_, route) = self.route(node)?;
        self.answer_by(node, &route)
    }

    /// Returns the service of the port, and its route.
    fn route(&self, node: &Node) -> Result<(&'static ServiceSpec, Route), Failure> {
        let all = node
            .services()
            .iter()
            .flat_map(|service| service.routes().iter().map(|route| (service.spec(), *route)));
        let is_asked = |route: &Route| {
            route.port == self.port && route.path == self.path && route.method == "POST"
        };
        let found = { all }.find(|(_, route)| is_asked(route));
        found.ok_or_else(|| failure(code::INTERNAL, format!("There is no service {}", self.port)))
    }

    /// Returns a node that has the service; `None` for this node.
    fn node_with(&self, node: &Node, spec: &ServiceSpec) -> Result<Option<NodeId>, Failure> {
        let (true, Some(name)) = (spec.on_request, spec.name) else { return Ok(None) };
        let cluster = node.cluster();
        let with = cluster.nodes.iter().filter(|(_, member)| {
            member.membership == Membership::Active && member.services.contains(&name)
        });
        let with: Vec<NodeId> = with.map(|(id, _)| *id).collect();
        match with.first() {
            _ if with.contains(&node.id()) => Ok(None),
            Some(first) => Ok(Some(*first)),
            None => Err(failure(code::INTERNAL, format!("No node has the service {}", self.port))),
        }
    }

    fn answer_by(&self, node: &Arc<Node>, route: &Route) -> Result<(u16, String), Failure> {
        let login = node.users().login_again(&self.user);
        if login.is_none() {
            return Err(failure(code::FORBIDDEN, format!("There is no user {}", self.user)));
        }
        let request = HttpRequest {
            parameters: self.parameters.clone(),
            headers: vec![("content-type".into(), "application/json".into())],
            body: self.body.clone(),
            user: self.user.clone(),
            login,
            ..HttpRequest::default()
        };
        if let Access::Cluster(privilege) = route.access
            && !request.may(node, privilege, Keyspace::default())
        {
            return Err(failure(code::FORBIDDEN, format!("{} may not do this", self.user)));
        }
        let HttpReply { status, body, .. } = (route.handler)(node, &request);
        if body.len() > ANSWER_BYTES_MAX {
            let message = format!("An answer to a function has {ANSWER_BYTES_MAX} bytes at most");
            return Err(failure(code::INTERNAL, message));
        }
        let text = String::from_utf8(body);
        text.map(|text| (status, text)).map_err(|_| {
            failure(
                code::INTERNAL,
                format!("The response of the service {} is not text", self.port),
            )
        })
    }
}

/// Returns the body of an analytics request.
fn statement(query: &Query, left: Duration) -> Result<Value, Failure> {
    let mut body = eventing_queries::statement(query, left)?;
    // A handler may be called again for the same change.
    body.insert("readonly".into(), true.into());
    Ok(body.into())
}

/// Returns the body of a search request. The search must fail rather than omit nodes.
fn search(query: &Query, left: Duration) -> Result<Value, Failure> {
    let Ok(Value::Object(mut body)) = serde_json::from_str(&query.parameters) else {
        return Err(failure(code::INTERNAL, "A search is an object"));
    };
    let mut control = match body.remove("ctl") {
        Some(Value::Object(control)) => control,
        None => Map::new(),
        Some(_) => return Err(failure(400, "The member ctl of a search is an object")),
    };
    let left_ms = u64::try_from(left.as_millis()).unwrap_or(u64::MAX).max(1);
    let wanted_ms = control.get("timeout").and_then(Value::as_u64).filter(|ms| *ms > 0);
    let timeout_ms = wanted_ms.map_or(left_ms, |wanted_ms| wanted_ms.min(left_ms));
    control.insert("timeout".into(), timeout_ms.into());
    let consistency = control.entry("consistency").or_insert_with(|| json!({}));
    if let Value::Object(consistency) = consistency {
        consistency.entry("results").or_insert_with(|| "complete".into());
        if query.is_fresh {
            consistency.entry("level").or_insert_with(|| "scan_plus".into());
        }
    }
    body.insert("ctl".into(), control.into());
    Ok(body.into())
}

/// Returns the rows of an analytics answer.
fn results(status: u16, text: &str) -> Result<Vec<String>, Failure> {
    #[derive(Deserialize)]
    struct AnalyticsAnswer<'a> {
        #[serde(borrow, default)]
        results: Vec<&'a RawValue>,
        #[serde(default)]
        errors: Vec<Value>,
    }
    let Ok(answer) = serde_json::from_str::<AnalyticsAnswer>(text) else {
        return Err(unreadable(status, "analytics"));
    };
    match answer.errors.first() {
        None if status >= 400 => Err(unreadable(status, "analytics")),
        None => Ok(answer.results.into_iter().map(|row| row.get().to_owned()).collect()),
        Some(error) => Err(Failure {
            code: number(&error["code"]).unwrap_or(code::INTERNAL),
            message: error["msg"].as_str().unwrap_or_default().to_owned(),
            retry: error["retriable"] == true,
        }),
    }
}

/// Returns the hits of a search answer. The code of a failure is its HTTP status.
fn hits(status: u16, text: &str) -> Result<Vec<String>, Failure> {
    #[derive(Deserialize)]
    struct SearchAnswer<'a> {
        #[serde(borrow, default)]
        hits: Option<Vec<&'a RawValue>>,
        error: Option<Value>,
    }
    let Ok(answer) = serde_json::from_str::<SearchAnswer>(text) else {
        return Err(unreadable(status, "search"));
    };
    match answer.error {
        Some(error) => Err(Failure {
            code: status.into(),
            message: error.as_str().map_or_else(|| error.to_string(), str::to_owned),
            retry: TEMPORARY.contains(&status),
        }),
        None if status >= 400 => Err(unreadable(status, "search")),
        None => {
            let hits = answer.hits.unwrap_or_default();
            Ok(hits.into_iter().map(|hit| hit.get().to_owned()).collect())
        }
    }
}

fn unreadable(status: u16, service: &str) -> Failure {
    let message = format!("The service {service} answers with status {status}");
    Failure { code: code::INTERNAL, message, retry: TEMPORARY.contains(&status) }
}

fn number(value: &Value) -> Option<u32> {
    value.as_u64().and_then(|number| u32::try_from(number).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEFT: Duration = Duration::from_secs(2);

    fn query(text: &str, parameters: &str, is_fresh: bool) -> Query {
        Query { text: text.into(), parameters: parameters.into(), is_fresh, ..Query::default() }
    }

    #[test]
    fn a_statement_has_its_parameters_and_the_time_of_the_function() {
        assert_eq!(
            statement(&query("SELECT $n", r#"{"n": 1}"#, true), LEFT),
            Ok(json!({"statement": "SELECT $n", "$n": 1, "scan_consistency": "request_plus",
                "timeout": "2000ms", "readonly": true}))
        );
        assert_eq!(
            statement(&query("SELECT ?", "[1]", false), LEFT),
            Ok(json!({"statement": "SELECT ?", "args": [1], "scan_consistency": "not_bounded",
                "timeout": "2000ms", "readonly": true}))
        );
        assert!(statement(&query("SELECT 1", "1", false), LEFT).is_err());
    }

    #[test]
    fn a_search_ends_with_the_function_and_lacks_no_node() {
        let body = |parameters, is_fresh| search(&query("i", parameters, is_fresh), LEFT).unwrap();
        assert_eq!(
            body(r#"{"size": 1}"#, false),
            json!({"size": 1, "ctl": {"timeout": 2000, "consistency": {"results": "complete"}}})
        );
        assert_eq!(
            body(r#"{"ctl": {"timeout": 50}}"#, true)["ctl"],
            json!({"timeout": 50, "consistency": {"results": "complete", "level": "scan_plus"}})
        );
        let given = r#"{"ctl": {"timeout": 9000, "consistency": {"level": "not_bounded"}}}"#;
        assert_eq!(
            body(given, true)["ctl"],
            json!({"timeout": 2000, "consistency": {"results": "complete", "level": "not_bounded"}})
        );
        for wrong in ["", "[]", r#"{"ctl": 1}"#] {
            assert!(search(&query("i", wrong, false), LEFT).is_err(), "{wrong}");
        }
    }

    #[test]
    fn rows_and_failures_are_those_of_the_service() {
        let rows = |texts: &[&str]| Ok(texts.iter().map(|text| (*text).to_owned()).collect());
        assert_eq!(results(200, r#"{"results": [1, {"a":2}]}"#), rows(&["1", r#"{"a":2}"#]));
        let failed =
            r#"{"results": [1], "errors": [{"code": 24045, "msg": "no", "retriable": true}]}"#;
        let failure = Failure { code: 24045, message: "no".into(), retry: true };
        assert_eq!(results(400, failed), Err(failure));
        assert_eq!(results(503, "").unwrap_err().code, code::INTERNAL);
        assert!(results(503, "{}").unwrap_err().retry);

        assert_eq!(hits(200, r#"{"hits": [{"id":"a"}]}"#), rows(&[r#"{"id":"a"}"#]));
        assert_eq!(hits(200, r#"{"hits": null}"#), rows(&[]));
        let failure = Failure { code: 400, message: "index not found".into(), retry: false };
        assert_eq!(hits(400, r#"{"status": "fail", "error": "index not found"}"#), Err(failure));
        assert!(hits(504, r#"{"error": "late"}"#).unwrap_err().retry);
        assert!(hits(500, "{}").is_err());
    }
}
