//! `/pools/default/stats/range`: measurements of the nodes over a period, in the form in which Couchbase shows those of
//! its Prometheus. The nodes keep them for a week.
//!
//! ```text
//! GET  /pools/default/stats/range/kv_curr_items/sum?bucket=travel&start=-300&step=60
//! POST /pools/default/stats/range      [{"metric": [{"label": "name", "value": "kv_curr_items"}], "applyFunctions": ["sum"]}]
//! ```

use super::Call;
use super::body::{Reply, invalid, json_reply, not_found, ok};
use super::routes::{Route, get, post};
use hyper::StatusCode;
use nacre_auth::Privilege;
use nacre_console::range::{self, Mistake, Question, Sight};
use nacre_http::Access;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A user sees the metrics of buckets whose statistics the user may read, and those of nodes with that right on the
/// cluster.
pub(super) const ROUTES: &[Route] = &[
    get("/pools/default/stats/range/{metric}/{functions...}", Access::Handler, |call| {
        Box::pin(of_one(call))
    }),
    post("/pools/default/stats/range", Access::Handler, |call| Box::pin(of_many(call))),
];

/// Maximum number of questions in a request. Source: Couchbase's number of parallel queries.
const QUESTIONS_MAX: usize = 128;

/// Returns the metrics that the user of a request may see.
///
/// # Errors
/// The reply to a user who may see none.
fn sight(call: &Call) -> Result<Sight, Reply> {
    let of_nodes = call.require(Privilege::ReadStats, None);
    let may = |name: &&String| call.require(Privilege::ReadStats, Some(name.as_str())).is_ok();
    let buckets: BTreeSet<String> =
        call.node.cluster().buckets.keys().filter(may).cloned().collect();
    match of_nodes {
        Err(refused) if buckets.is_empty() => Err(refused),
        of_nodes => Ok(Sight { nodes: of_nodes.is_ok(), buckets }),
    }
}

async fn of_one(call: Call) -> Result<Reply, Reply> {
    let sight = sight(&call)?;
    if !range::are_functions(&call.rest) {
        return Err(not_found());
    }
    let now_s = u64::from(call.node.now().unix_s());
    let fields = super::body::form(call.query.as_bytes());
    let question = Question::of_path(call.segment("metric"), &call.rest, fields, now_s);
    let question = question.map_err(|Mistake { field, reason }| invalid(&field, reason))?;
    let mut answers = answers(&call, sight, vec![question]).await?;
    Ok(ok(&answers.remove(0)))
}

async fn of_many(call: Call) -> Result<Reply, Reply> {
    let sight = sight(&call)?;
    let refused = |errors: Value| json_reply(StatusCode::BAD_REQUEST, &json!({"errors": errors}));
    let body: Value =
        serde_json::from_slice(&call.body).map_err(|_| refused(json!([{"_": "Invalid Json"}])))?;
    let Value::Array(all) = body else {
        return Err(refused(json!([{"_": "A Json array must be specified."}])));
    };
    if all.len() > QUESTIONS_MAX {
        let reason = format!("The array has at most {QUESTIONS_MAX} elements");
        return Err(refused(json!([{"_": reason}])));
    }
    let now_s = u64::from(call.node.now().unix_s());
    let mut questions = Vec::new();
    let mut errors = Vec::new();
    for one in all {
        match Question::of_json(one, now_s) {
            Ok(question) => {
                questions.push(question);
                errors.push(json!({}));
            }
            Err(Mistake { field, reason }) => errors.push(json!({field: reason})),
        }
    }
    if questions.len() < errors.len() {
        return Err(refused(Value::Array(errors)));
    }
    Ok(ok(&Value::Array(answers(&call, sight, questions).await?)))
}

/// Answers questions, in their order.
async fn answers(call: &Call, sight: Sight, asked: Vec<Question>) -> Result<Vec<Value>, Reply> {
    let mut names = Vec::new();
    for question in &asked {
        names.push(names_of(call, question)?);
    }
    let node = Arc::clone(&call.node);
    let work = move || range::answers(&node, &sight, &asked, &names);
    let answers = call.desk().work("the history of measurements", work).await?;
    answers.map_err(|Mistake { field, reason }| invalid(&field, reason))
}

/// Returns the management addresses of the nodes in question, with their names for the client.
fn names_of(call: &Call, question: &Question) -> Result<Vec<(String, String)>, Reply> {
    let cluster = call.node.cluster();
    let mut all: BTreeMap<String, String> = BTreeMap::new();
    let own = call.node.endpoints();
    all.insert(own.management(), call.authority(&own, own.plain.mgmt()));
    for member in cluster.nodes.values() {
        let endpoints = &member.endpoints;
        let name = call.authority(endpoints, endpoints.plain.mgmt());
        all.insert(endpoints.management(), name);
    }
    let Some(wanted) = question.nodes() else { return Ok(all.into_iter().collect()) };
    let is_unknown = |wanted: &&String| !all.values().any(|name| name == *wanted);
    let unknown: Vec<&str> = wanted.iter().filter(is_unknown).map(String::as_str).collect();
    if !unknown.is_empty() {
        return Err(invalid("nodes", format!("Unknown hostnames: {}", unknown.join(", "))));
    }
    Ok(all.into_iter().filter(|(_, name)| wanted.contains(name)).collect())
}
