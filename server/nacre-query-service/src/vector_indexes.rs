//! Vector indexes of SQL++, which another service of the node holds. That service checks the rights of the user.

use super::failure::{code, failure};
use super::requester::Requester;
use nacre_node::service::QueryQuestion;
use nacre_sandbox::{DatabaseKeyspace, Failure};
use serde_json::{Value, json};
use std::time::Duration;

/// Creates or drops an index. The answer is an empty object if no service holds vector indexes.
pub(super) fn change(
    requester: &Requester,
    keyspace: &DatabaseKeyspace,
    change: &Value,
    left: Duration,
) -> Result<Value, Failure> {
    ask(requester, keyspace, &change.to_string(), left)
}

/// Returns the rows of `system:indexes` that the user may see.
pub(super) fn list(requester: &Requester, left: Duration) -> Result<Value, Failure> {
    ask(requester, &DatabaseKeyspace::default(), r#"{"do":"list_vectors"}"#, left)
}

fn ask(
    requester: &Requester,
    keyspace: &DatabaseKeyspace,
    request: &str,
    left: Duration,
) -> Result<Value, Failure> {
    let question = QueryQuestion { user: &requester.user, keyspace, request, left };
    let mut services = requester.node.services().iter();
    let answer = services.find_map(|service| service.answer_query(&requester.node, &question));
    let Some(answer) = answer else { return Ok(json!({})) };
    serde_json::from_str(&answer?).map_err(|error| failure(code::INTERNAL, error.to_string()))
}
