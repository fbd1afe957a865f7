//! The requests of the tools to a node.

use super::answer::Answer;
use super::tools::Arguments;
use crate::failure::Failure;
use crate::keyspace::escaped;
use crate::statement::quoted;
use crate::target::Server;
use nacre_client::RestReply;
use serde_json::{Value, json};

/// Documents of a sample, by default and at most.
const SAMPLE_DEFAULT: u64 = 5;
const SAMPLE_MAX: u64 = 20;
/// Time limit of a statement.
const STATEMENT_TIMEOUT: &str = "30s";

/// Selects indexes with the names of their collections in a uniform form.
const INDEXES: &str = "SELECT i.name, IFMISSING(i.bucket_id, i.keyspace_id) AS `bucket`, \
IFMISSING(i.scope_id, \"_default\") AS `scope`, \
CASE WHEN i.bucket_id IS MISSING THEN \"_default\" ELSE i.keyspace_id END AS `collection`, \
i.index_key AS `keys`, i.`condition`, i.is_primary, i.`using`, i.state FROM system:indexes AS i ORDER BY `bucket`, i.name";

fn text<'a>(arguments: &'a Arguments, name: &str) -> Option<&'a str> {
    arguments.get(name).and_then(Value::as_str)
}

/// Returns the names of the bucket, the scope and the collection.
fn place(arguments: &Arguments) -> [&str; 3] {
    let name = |parameter| text(arguments, parameter).unwrap_or("_default");
    [text(arguments, "bucket").unwrap_or_default(), name("scope"), name("collection")]
}

/// Returns the path of the documents of a collection.
fn documents(arguments: &Arguments) -> String {
    let [bucket, scope, collection] = place(arguments).map(escaped);
    format!("/api/v1/buckets/{bucket}/scopes/{scope}/collections/{collection}/documents")
}

fn document(arguments: &Arguments) -> String {
    let id = escaped(text(arguments, "id").unwrap_or_default());
    format!("{}/{id}", documents(arguments))
}

/// Sends a request to the management port.
fn send(
    server: &Server,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Result<RestReply, Failure> {
    let base = server.address()?.to_string();
    let reply = server.rest(&base)?.call_with(method, path, headers, body)?;
    match reply.is_success() {
        true => Ok(reply),
        false => {
            let body = serde_json::from_str(&reply.text).unwrap_or(Value::String(reply.text));
            Err(server.failure(reply.status, &body)?)
        }
    }
}

pub(super) fn cluster_status(server: &Server, _: &Arguments) -> Result<Answer, Failure> {
    let pool = server.call("GET", "/pools/default", b"")?;
    let nodes = pool["nodes"].as_array().into_iter().flatten().map(|node| {
        json!({
            "hostname": node["hostname"],
            "status": node["status"],
            "membership": node["clusterMembership"],
            "services": node["services"],
            "version": node["version"],
        })
    });
    Ok(Answer::about(json!({
        "cluster": pool["clusterName"],
        "nodes": nodes.collect::<Vec<_>>(),
        "balanced": pool["balanced"],
        "rebalance": pool["rebalanceStatus"],
        "storage": pool["storageTotals"],
        "alerts": pool["alerts"],
    })))
}

pub(super) fn list_keyspaces(server: &Server, _: &Arguments) -> Result<Answer, Failure> {
    Ok(Answer::about(server.call("GET", "/api/v1/buckets", b"")?))
}

pub(super) fn infer_schema(server: &Server, arguments: &Arguments) -> Result<Answer, Failure> {
    let keyspace = place(arguments).map(quoted).join(".");
    let statement = format!("INFER {keyspace} WITH {{\"sample_size\": 500}}");
    rows(server, &json!({"statement": statement}))
}

pub(super) fn sample_documents(server: &Server, arguments: &Arguments) -> Result<Answer, Failure> {
    let limit = arguments.get("limit").and_then(Value::as_u64).unwrap_or(SAMPLE_DEFAULT);
    let prefix = escaped(text(arguments, "prefix").unwrap_or_default());
    let path = documents(arguments);
    let page = format!("{path}?limit={}&prefix={prefix}", limit.min(SAMPLE_MAX));
    let listed = server.call("GET", &page, b"")?;
    let mut sample = Vec::new();
    for known in listed["documents"].as_array().into_iter().flatten() {
        let id = known["id"].as_str().unwrap_or_default();
        let reply = send(server, "GET", &format!("{path}/{}", escaped(id)), &[], b"")?;
        sample.push(json!({"id": id, "etag": reply.etag, "document": json_or_text(reply.text)}));
    }
    let mut answer = json!({"documents_in_collection": listed["count"], "sample": sample});
    if sample_is_empty(&answer) {
        answer["hint"] = "the collection has no documents, or none with this prefix".into();
    }
    Ok(Answer::data(answer))
}

fn sample_is_empty(answer: &Value) -> bool {
    answer["sample"].as_array().is_some_and(Vec::is_empty)
}

fn json_or_text(text: String) -> Value {
    serde_json::from_str(&text).unwrap_or(Value::String(text))
}

pub(super) fn get_document(server: &Server, arguments: &Arguments) -> Result<Answer, Failure> {
    let reply = send(server, "GET", &document(arguments), &[], b"")?;
    let document = json_or_text(reply.text);
    Ok(Answer::data(json!({"id": arguments["id"], "etag": reply.etag, "document": document})))
}

pub(super) fn put_document(server: &Server, arguments: &Arguments) -> Result<Answer, Failure> {
    let body = arguments.get("document").unwrap_or(&Value::Null).to_string();
    let condition = text(arguments, "etag").map(|etag| ("if-match", etag));
    let headers: Vec<(&str, &str)> =
        condition.into_iter().chain([("content-type", "application/json")]).collect();
    let reply = send(server, "PUT", &document(arguments), &headers, body.as_bytes())?;
    Ok(Answer::about(json_or_text(reply.text)))
}

pub(super) fn delete_document(server: &Server, arguments: &Arguments) -> Result<Answer, Failure> {
    let headers = [("if-match", text(arguments, "etag").unwrap_or_default())];
    send(server, "DELETE", &document(arguments), &headers, b"")?;
    Ok(Answer::about(json!({"removed": arguments["id"]})))
}

pub(super) fn query(server: &Server, arguments: &Arguments) -> Result<Answer, Failure> {
    let mut request = json!({"statement": arguments["statement"]});
    if let Some(values @ Value::Array(_)) = arguments.get("arguments") {
        request["args"] = values.clone();
    }
    add_context(&mut request, arguments)?;
    rows(server, &request)
}

pub(super) fn explain(server: &Server, arguments: &Arguments) -> Result<Answer, Failure> {
    let statement = text(arguments, "statement").unwrap_or_default();
    let mut request = json!({"statement": format!("EXPLAIN {statement}")});
    add_context(&mut request, arguments)?;
    rows(server, &request)
}

pub(super) fn list_indexes(server: &Server, _: &Arguments) -> Result<Answer, Failure> {
    rows(server, &json!({"statement": INDEXES}))
}

pub(super) fn list_deployments(server: &Server, _: &Arguments) -> Result<Answer, Failure> {
    Ok(Answer::about(server.call("GET", "/deployments", b"")?))
}

pub(super) fn slow_operations(server: &Server, _: &Arguments) -> Result<Answer, Failure> {
    Ok(Answer::data(server.call("GET", "/api/v1/slow-operations", b"")?))
}

fn add_context(request: &mut Value, arguments: &Arguments) -> Result<(), Failure> {
    let Some(context) = text(arguments, "context") else { return Ok(()) };
    let (bucket, scope) = context
        .split_once('.')
        .filter(|(_, scope)| !scope.contains('.'))
        .ok_or_else(|| format!("the argument context must be bucket.scope, not {context:?}"))?;
    request["query_context"] = format!("default:{}.{}", quoted(bucket), quoted(scope)).into();
    Ok(())
}

/// Runs a statement that the node allows only to read.
fn rows(server: &Server, request: &Value) -> Result<Answer, Failure> {
    let mut request = request.clone();
    request["readonly"] = true.into();
    request["timeout"] = STATEMENT_TIMEOUT.into();
    request["pretty"] = false.into();
    let base = server.queries()?;
    let headers = [("content-type", "application/json")];
    let body = request.to_string();
    let reply =
        server.rest(&base)?.call_with("POST", "/query/service", &headers, body.as_bytes())?;
    let answer: Value = serde_json::from_str(&reply.text)
        .map_err(|_| format!("{base} answers {} and no JSON", reply.status))?;
    if let Some(error) = answer["errors"].as_array().and_then(|errors| errors.first()) {
        let (text, code) = (error["msg"].as_str().unwrap_or_default(), &error["code"]);
        return Err(format!("{text} (error {code})").into());
    }
    let Value::Array(rows) = answer["results"].clone() else {
        return Err(server.failure(reply.status, &answer)?);
    };
    Ok(Answer::rows(rows))
}
