//! Endpoints about the state of indexes and of the service.

use crate::access::{self, Named};
use crate::definition::{self, Definition};
use crate::error::ok;
use crate::manage::REPLICAS_MAX;
use crate::message::extent;
use crate::query::documents;
use crate::{Outcome, Search};
use nacre_node::Node;
use nacre_node::service::{HttpReply, HttpRequest};
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// `GET /api/ping`: returns an empty body.
pub(crate) fn ping(_: &Arc<Node>, _: &HttpRequest, _: &Named) -> Outcome {
    Ok(HttpReply { status: 200, content_type: "application/json", body: Vec::new() })
}

/// `GET /api/conciseOptions`: returns limits that clients may ask for.
pub(crate) fn options(_: &Arc<Node>, _: &HttpRequest, _: &Named) -> Outcome {
    Ok(ok(json!({
        "maxReplicasAllowed": REPLICAS_MAX.to_string(),
        "bucketTypesAllowed": "membase:ephemeral",
        "collectionsSupport": true,
        "scopedIndexesSupport": true,
        "bleveMaxResultWindow": "10000",
        "bleveMaxClauseCount": "1024",
        "bleveMaxTerms": "1024",
    })))
}

/// `GET …/status`: returns `Ready` once the index on every node contains all documents that existed.
pub(crate) fn status(node: &Arc<Node>, request: &HttpRequest, named: &Named) -> Outcome {
    let definition = access::readable(node, request, named)?;
    let targets = access::targets(&node.cluster(), &definition)?;
    let is_ready = targets
        .iter()
        .all(|target| extent(node, &definition::deployment(&target.name)).incomplete == 0);
    Ok(ok(json!({"indexStatus": if is_ready { "Ready" } else { "InProgress" }})))
}

/// `GET /api/nsstats`: returns the counters of all indexes that the user may read, and of the service on this node.
pub(crate) fn all(node: &Arc<Node>, request: &HttpRequest, _: &Named) -> Outcome {
    let search = Search::of(node);
    let [queries, failures, nanoseconds] = [&search.queries, &search.failures, &search.nanoseconds]
        .map(|counter| counter.load(Ordering::Relaxed));
    let mut members = Map::new();
    members.insert("total_queries".into(), queries.into());
    members.insert("total_queries_error".into(), failures.into());
    let average_ms = nanoseconds as f64 / 1e6 / queries.max(1) as f64;
    members.insert("avg_queries_latency".into(), average_ms.into());
    let cluster = node.cluster();
    for (_, definition) in definition::all(&cluster) {
        if !definition.is_alias() && access::may_read(node, request, &definition) {
            add(node, request, &definition, &mut members);
        }
    }
    Ok(json_of(&Value::Object(members)))
}

/// `GET /api/nsstats/index/{index}`.
pub(crate) fn of_index(node: &Arc<Node>, request: &HttpRequest, named: &Named) -> Outcome {
    let definition = access::readable(node, request, named)?;
    let mut members = Map::new();
    for target in access::targets(&node.cluster(), &definition)? {
        add(node, request, &target, &mut members);
    }
    Ok(json_of(&Value::Object(members)))
}

/// `GET /api/stats/index/{index}/progress`.
pub(crate) fn progress(node: &Arc<Node>, request: &HttpRequest, named: &Named) -> Outcome {
    let definition = access::readable(node, request, named)?;
    let reached = extent(node, &definition::deployment(&definition.name));
    Ok(ok(json!({
        "doc_count": documents(node, request, &definition)?,
        "tot_seq_received": reached.taken,
        "num_mutations_to_index": reached.pending,
        "ingest_status": if reached.pending == 0 { "ready" } else { "indexing" },
    })))
}

/// Adds the counters of an index under `bucket:index:name`.
fn add(
    node: &Arc<Node>,
    request: &HttpRequest,
    definition: &Definition,
    members: &mut Map<String, Value>,
) {
    let reached = extent(node, &definition::deployment(&definition.name));
    let mut put = |name: &str, value: Value| {
        members.insert(format!("{}:{}:{name}", definition.bucket(), definition.name), value);
    };
    // Other counters are available even if the index cannot answer queries at the moment.
    put("doc_count", documents(node, request, definition).unwrap_or_default().into());
    put("num_mutations_to_index", reached.pending.into());
    put("num_bytes_used_disk", reached.bytes.into());
    put("num_pindexes_actual", 1.into());
    put("num_pindexes_target", 1.into());
}

fn json_of(value: &Value) -> HttpReply {
    let body = value.to_string().into_bytes();
    HttpReply { status: 200, content_type: "application/json", body }
}
