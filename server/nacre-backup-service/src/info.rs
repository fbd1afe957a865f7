//! Contents of a repository: backups, versions of a document, tasks that have run.

use crate::command::Command;
use crate::record::{Repository, Run, State};
use crate::reply::{Failure, body, ok, parameter};
use crate::{Backup, Outcome, endpoint, repository};
use jiff::Timestamp;
use nacre_node::Node;
use nacre_node::service::HttpRequest;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Longest key in bytes. Source: the key-value protocol.
const KEY_BYTES_MAX: usize = 250;

/// Describes the backups of a repository, oldest first, as `nacre backup show --all` has them.
///
/// # Errors
/// A sentence.
pub(crate) fn backups(node: &Arc<Node>, repository: &Repository) -> Result<Vec<Value>, String> {
    let command = Command::new(["backup", "show", "--all", "--output=json", "--"])
        .with(repository.place())
        .in_store(&endpoint::variables(node, &repository.cloud)?);
    let output = Backup::of(node).runner.run(&command)?;
    serde_json::from_str(&output).map_err(|error| format!("the command has answered: {error}"))
}

/// `GET …/{state}/{id}/info`.
pub(crate) fn info(node: &Arc<Node>, request: &HttpRequest, state: State) -> Outcome {
    let (repository, _) = repository::find(node, request, state)?;
    // A repository that has no backup yet does not exist yet.
    let is_new = state == State::Active && repository.history.is_empty();
    let backups = match backups(node, &repository) {
        Ok(backups) => backups,
        Err(_) if is_new => Vec::new(),
        Err(reason) => {
            return Err(Failure::new(500, "could not get repository info").because(reason));
        }
    };
    let size: u64 = backups.iter().filter_map(|backup| backup["bytes"].as_u64()).sum();
    let shown: Vec<Value> = backups.iter().map(describe).collect();
    Ok(ok(&json!({
        "name": repository.repo,
        "size": size,
        "count": shown.len(),
        "backups": shown,
    })))
}

/// A backup as clients see it. Source: Couchbase's backup service.
fn describe(backup: &Value) -> Value {
    let kind = if backup["kind"] == "full" { "FULL" } else { "INCR" };
    let buckets: Vec<Value> =
        backup["buckets"].as_array().into_iter().flatten().map(of_bucket).collect();
    let mut shown = json!({
        "date": backup["id"],
        "type": kind,
        "size": backup["bytes"],
        "complete": backup["state"] == "complete",
        "buckets": buckets,
    });
    if let Some(merged) = backup["merged"].as_array().filter(|merged| !merged.is_empty()) {
        shown["type"] = format!("MERGE - {kind}").into();
        shown["source"] = "Merge".into();
        shown["range"] = merged.clone().into();
    }
    shown
}

fn of_bucket(bucket: &Value) -> Value {
    let count = |name: &str| bucket[name].as_u64().unwrap_or(0);
    let mut shown = json!({
        "name": bucket["name"],
        "uuid": bucket["uuid"],
        "items": count("documents") + count("deletions"),
        "mutations": count("documents"),
        "tombstones": count("deletions"),
        "collections": bucket["collections"],
    });
    if let Some(counts) = bucket["counts"].as_array() {
        shown["scopes"] = of_scopes(counts);
    }
    shown
}

/// The changes of a scope.
#[derive(Default)]
struct ScopeChanges {
    name: Value,
    mutations: u64,
    tombstones: u64,
    /// The collections, by their IDs in hexadecimal.
    collections: Map<String, Value>,
}

/// Returns the changes of scopes and their collections, by their IDs in hexadecimal. Source: Couchbase's backup service.
fn of_scopes(counts: &[Value]) -> Value {
    let mut scopes: BTreeMap<u64, ScopeChanges> = BTreeMap::new();
    for collection in counts {
        // Older releases did not record the IDs of scopes.
        let ids = (collection["scopeId"].as_u64(), collection["id"].as_u64());
        let (Some(scope_id), Some(id)) = ids else { continue };
        let [mutations, tombstones] =
            ["documents", "deletions"].map(|name| collection[name].as_u64().unwrap_or(0));
        let scope = scopes.entry(scope_id).or_default();
        scope.name = collection["scope"].clone();
        scope.mutations = scope.mutations.saturating_add(mutations);
        scope.tombstones = scope.tombstones.saturating_add(tombstones);
        let name = &collection["collection"];
        let shown =
            json!({"id": id, "name": name, "mutations": mutations, "tombstones": tombstones});
        scope.collections.insert(format!("{id:x}"), shown);
    }
    let shown = scopes.into_iter().map(|(id, scope)| {
        let ScopeChanges { name, mutations, tombstones, collections } = scope;
        let scope = json!({
            "uid": id,
            "name": name,
            "mutations": mutations,
            "tombstones": tombstones,
            "collections": collections,
        });
        (format!("{id:x}"), scope)
    });
    Value::Object(shown.collect())
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Examine {
    key: String,
    data_path: String,
}

/// `POST …/{state}/{id}/examine`.
pub(crate) fn examine(node: &Arc<Node>, request: &HttpRequest, state: State) -> Outcome {
    let Examine { key, data_path } = body(request)?;
    if key.is_empty() || key.len() > KEY_BYTES_MAX || key.contains('\0') {
        return Err(Failure::bad_request("a key has 1 to 250 bytes"));
    }
    if data_path.is_empty() || data_path.contains('\0') {
        return Err(Failure::bad_request("data_path is bucket or bucket.scope.collection"));
    }
    let (repository, _) = repository::find(node, request, state)?;
    let could_not = |reason| Failure::new(500, "could not examine repository").because(reason);
    let store = endpoint::variables(node, &repository.cloud).map_err(could_not)?;
    let command = Command::new(["backup", "examine"])
        .with(format!("--in={data_path}"))
        .with("--")
        .with(repository.place())
        .with(key.clone())
        .in_store(&store);
    let output = Backup::of(node).runner.run(&command).map_err(could_not)?;
    let versions: Result<Vec<Value>, String> = output
        .lines()
        .map(|line| serde_json::from_str(line).map_err(|error| error.to_string()))
        .collect();
    let shown: Vec<Value> =
        versions.map_err(could_not)?.iter().map(|version| of_version(version, &key)).collect();
    Ok(ok(&json!(shown)))
}

/// A version of a document as clients see it. Source: Couchbase's backup service.
fn of_version(version: &Value, key: &str) -> Value {
    let cas = version["cas"].as_str().and_then(|cas| cas.parse::<u64>().ok());
    json!({
        "backup": version["backup"],
        "key": key,
        "sequence_number": version["seqno"],
        "value": version["value"],
        "deleted": version["deleted"],
        "metadata": {
            "cas": cas,
            "revseqno": version["rev"],
            "flags": version["flags"],
            "expiry": version["expiry"],
            "locktime": 0,
            "datatype": u64::from(!version["value"].is_null()),
        },
    })
}

/// `GET …/{state}/{id}/taskHistory`, newest first.
pub(crate) fn history(node: &Arc<Node>, request: &HttpRequest, state: State) -> Outcome {
    let first = match parameter(request, "first") {
        None => 0,
        Some(text) => {
            let time: Result<Timestamp, _> = text.parse();
            let time = time.map_err(|_| Failure::bad_request("first is a time as in RFC 3339"))?;
            u64::try_from(time.as_millisecond()).unwrap_or(0)
        }
    };
    let limit = match parameter(request, "limit") {
        None => usize::MAX,
        Some(text) => match text.parse() {
            Ok(0) | Err(_) => return Err(Failure::bad_request("limit is a positive number")),
            Ok(limit) => limit,
        },
    };
    let name = parameter(request, "task_name");
    let (repository, _) = repository::find(node, request, state)?;
    let is_wanted =
        |run: &&Run| run.start_ms >= first && name.as_ref().is_none_or(|name| run.name == *name);
    let runs = repository.running.iter().chain(&repository.history).filter(is_wanted);
    let shown: Vec<Value> = runs.take(limit).map(Run::to_json).collect();
    Ok(ok(&json!(shown)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_merge_lists_its_sources() {
        let backup = json!({
            "id": "01J", "kind": "increment", "state": "complete", "bytes": 7, "merged": ["01G", "01H"],
            "buckets": [{"name": "b", "uuid": "u", "documents": 3, "deletions": 1, "collections": []}],
        });
        let shown = describe(&backup);
        assert_eq!(shown["type"], "MERGE - INCR");
        assert_eq!(shown["range"], json!(["01G", "01H"]));
        assert_eq!((&shown["buckets"][0]["items"], &shown["complete"]), (&json!(4), &json!(true)));
        let full = json!({"id": "01J", "kind": "full", "state": "complete", "merged": []});
        assert_eq!(
            (&describe(&full)["type"], describe(&full).get("range")),
            (&json!("FULL"), None)
        );
    }

    #[test]
    fn counts_are_shown_by_scope_and_collection() {
        let count = |scope: &str, scope_id: Value, name: &str, id: u32, counts: [u64; 2]| {
            json!({
                "scope": scope, "scopeId": scope_id, "collection": name, "id": id,
                "documents": counts[0], "deletions": counts[1],
            })
        };
        let counts = [
            count("_default", json!(0), "_default", 0, [3, 1]),
            count("s", json!(8), "c", 8, [1, 0]),
            count("s", json!(8), "d", 26, [2, 4]),
            count("old", Value::Null, "e", 9, [7, 7]),
        ];
        let bucket = of_bucket(&json!({"name": "b", "documents": 13, "counts": counts}));
        let collection = |id: u32, name: &str, mutations: u64, tombstones: u64| json!({"id": id, "name": name, "mutations": mutations, "tombstones": tombstones});
        let expected = json!({
            "0": {
                "uid": 0, "name": "_default", "mutations": 3, "tombstones": 1,
                "collections": {"0": collection(0, "_default", 3, 1)},
            },
            "8": {
                "uid": 8, "name": "s", "mutations": 3, "tombstones": 4,
                "collections": {"8": collection(8, "c", 1, 0), "1a": collection(26, "d", 2, 4)},
            },
        });
        assert_eq!(bucket["scopes"], expected);
        let unknown = of_bucket(&json!({"name": "b", "counts": null}));
        assert_eq!(unknown.get("scopes"), None);
    }
}
