//! Definitions: settings of buckets, collections, indexes, design documents, functions and deployments, as the cluster describes them.

use crate::Failure;
use crate::target::Server;
use nacre_backup::{BucketPart, Collection};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Definitions by their kind.
pub(super) type Definitions = BTreeMap<String, Value>;

/// Settings with which a bucket is created again: name of the form's field, and where the description has it.
const SETTINGS: [(&str, &str); 12] = [
    ("bucketType", "/bucketType"),
    ("replicaNumber", "/replicaNumber"),
    ("evictionPolicy", "/evictionPolicy"),
    ("storageBackend", "/storageBackend"),
    ("compressionMode", "/compressionMode"),
    ("conflictResolutionType", "/conflictResolutionType"),
    ("durabilityMinLevel", "/durabilityMinLevel"),
    ("maxTTL", "/maxTTL"),
    ("historyRetentionSeconds", "/historyRetentionSeconds"),
    ("historyRetentionBytes", "/historyRetentionBytes"),
    ("historyRetentionCollectionDefault", "/historyRetentionCollectionDefault"),
    ("rank", "/rank"),
];
/// Scope of the system's own collections, which every bucket has.
const SYSTEM_SCOPE: &str = "_system";

/// Reads what a cluster has for a bucket. What it does not offer, as the user may not see it, is named in `missing`.
///
/// # Errors
/// A sentence if the collections cannot be read: without them no record can be placed.
pub(super) fn of_bucket(
    server: &Server,
    bucket: &str,
    missing: &mut Vec<String>,
) -> Result<(Vec<Collection>, Definitions), String> {
    let path = bucket_path(bucket);
    let scopes = server.call("GET", &format!("{path}/scopes"), b"")?;
    let mut definitions = Definitions::new();
    let mut add = |kind: &str, asked: Result<Value, Failure>| match asked {
        Ok(value) => drop(definitions.insert(kind.to_owned(), value)),
        Err(reason) => missing.push(format!("{kind} of {bucket}: {reason}")),
    };
    add("settings", server.call("GET", &path, b""));
    add("design_documents", server.call("GET", &format!("{path}/ddocs"), b""));
    let indexes = server.call("GET", &format!("/getIndexStatus?bucket={}", encoded(bucket)), b"");
    add("indexes", indexes.map(|answer| answer["status"].clone()));
    Ok((collections(&scopes), definitions))
}

/// Reads what belongs to no bucket.
pub(super) fn of_cluster(server: &Server, missing: &mut Vec<String>) -> Definitions {
    let mut definitions = Definitions::new();
    let mut add = |kind: &str, asked: Result<Value, Failure>| match asked {
        Ok(value) => drop(definitions.insert(kind.to_owned(), value)),
        Err(reason) => missing.push(format!("{kind}: {reason}")),
    };
    add("cluster", server.call("GET", "/pools/default", b""));
    add("deployments", server.call("GET", "/deployments", b""));
    let functions =
        server.functions().and_then(|base| server.call_at(&base, "GET", "/api/v1/export", b""));
    add("functions", functions);
    definitions
}

fn collections(scopes: &Value) -> Vec<Collection> {
    let each = |list: &Value| list.as_array().cloned().unwrap_or_default();
    let mut found = Vec::new();
    for scope in each(&scopes["scopes"]) {
        for collection in each(&scope["collections"]) {
            let id = collection["uid"].as_str().and_then(|uid| u32::from_str_radix(uid, 16).ok());
            let (Some(id), Some(scope), Some(name)) =
                (id, scope["name"].as_str(), collection["name"].as_str())
            else {
                continue;
            };
            let max_ttl = collection["maxTTL"].as_i64().unwrap_or(0);
            let keeps_versions = collection["history"] == true;
            let (scope, name) = (scope.to_owned(), name.to_owned());
            found.push(Collection { id, scope, name, max_ttl, keeps_versions });
        }
    }
    found
}

/// Reads the collections that a bucket has now.
pub(crate) fn present(server: &Server, bucket: &str) -> Result<Vec<Collection>, String> {
    let scopes = server.call("GET", &format!("{}/scopes", bucket_path(bucket)), b"")?;
    Ok(collections(&scopes))
}

/// Creates a bucket with the settings that it had, on as many nodes as there are.
pub(super) fn create_bucket(server: &Server, name: &str, part: &BucketPart) -> Result<(), String> {
    let settings = part.definitions.get("settings").cloned().unwrap_or(Value::Null);
    let quota = settings.pointer("/quota/rawRAM").and_then(Value::as_u64).unwrap_or(256 << 20);
    let mut form = vec![("name", name.to_owned()), ("ramQuotaMB", (quota >> 20).to_string())];
    for (field, place) in SETTINGS {
        match settings.pointer(place) {
            // The description says `membase` where the form says `couchbase`.
            Some(Value::String(text)) if text == "membase" => {
                form.push((field, "couchbase".into()))
            }
            Some(Value::String(text)) => form.push((field, text.clone())),
            Some(Value::Bool(value)) => form.push((field, value.to_string())),
            Some(value @ Value::Number(_)) => form.push((field, value.to_string())),
            _ => {}
        }
    }
    if settings.pointer("/bucketType").is_some_and(|kind| kind == "ephemeral") {
        form.retain(|(field, _)| !["storageBackend", "historyRetentionSeconds"].contains(field));
    }
    let form: Vec<String> =
        form.iter().map(|(field, value)| format!("{field}={}", encoded(value))).collect();
    server.call("POST", "/pools/default/buckets", form.join("&").as_bytes())?;
    Ok(())
}

/// Creates the scopes and collections that are missing; returns those that there are then.
pub(super) fn create_collections(
    server: &Server,
    bucket: &str,
    wanted: &[Collection],
) -> Result<Vec<Collection>, String> {
    let (present, path) = (present(server, bucket)?, format!("{}/scopes", bucket_path(bucket)));
    let mut scopes: Vec<String> = present.iter().map(|found| found.scope.clone()).collect();
    let answer = server.call("GET", &path, b"")?;
    let empty = answer["scopes"].as_array().into_iter().flatten();
    scopes.extend(empty.filter_map(|scope| scope["name"].as_str().map(str::to_owned)));
    for Collection { scope, name, max_ttl, .. } in wanted {
        let is_there = present.iter().any(|found| found.scope == *scope && found.name == *name);
        if is_there || scope == SYSTEM_SCOPE {
            continue;
        }
        if !scopes.contains(scope) {
            server.call("POST", &path, format!("name={}", encoded(scope)).as_bytes())?;
            scopes.push(scope.clone());
        }
        let mut form = format!("name={}", encoded(name));
        if *max_ttl != 0 {
            form.push_str(&format!("&maxTTL={max_ttl}"));
        }
        server.call("POST", &format!("{path}/{}/collections", encoded(scope)), form.as_bytes())?;
    }
    self::present(server, bucket)
}

/// Creates design documents and indexes that are missing. Indexes are not built. Returns what was created, and what could not be.
pub(super) fn create_others(
    server: &Server,
    bucket: &str,
    part: &BucketPart,
) -> (u64, Vec<String>) {
    let (mut created, mut failed) = (0, Vec::new());
    let mut note = |name: String, done: Result<Value, Failure>| match done {
        Ok(_) => created += 1,
        Err(reason) => failed.push(format!("{name}: {reason}")),
    };
    let rows = part.definitions.get("design_documents").map_or(&Value::Null, |all| &all["rows"]);
    for row in rows.as_array().into_iter().flatten() {
        let (document, body) = (&row["doc"], &row["doc"]["json"]);
        let Some(id) = document["meta"]["id"].as_str() else { continue };
        let put = server.views().and_then(|base| {
            server.call_at(
                &base,
                "PUT",
                &format!("/{}/{id}", encoded(bucket)),
                body.to_string().as_bytes(),
            )
        });
        note(id.to_owned(), put);
    }
    let indexes = part.definitions.get("indexes").and_then(Value::as_array).into_iter().flatten();
    for index in indexes {
        let (Some(name), Some(statement)) = (index["name"].as_str(), index["definition"].as_str())
        else {
            continue;
        };
        if part.name != bucket {
            note(format!("index {name}"), Err("its definition names another bucket".into()));
            continue;
        }
        let statement = deferred(statement);
        let request = json!({"statement": statement}).to_string();
        let created = server
            .queries()
            .and_then(|base| server.call_at(&base, "POST", "/query/service", request.as_bytes()));
        note(format!("index {name}"), created);
    }
    (created, failed)
}

/// Adds to the definition of an index that it is not to be built yet, where it has no options.
fn deferred(statement: &str) -> String {
    match statement.to_uppercase().contains(" WITH ") {
        true => statement.to_owned(),
        false => format!("{statement} WITH {{\"defer_build\":true}}"),
    }
}

pub(super) fn bucket_path(bucket: &str) -> String {
    format!("/pools/default/buckets/{}", encoded(bucket))
}

fn encoded(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn collections_are_read_from_the_manifest_of_the_bucket() {
        let scopes = json!({"scopes": [
            {"name": "_default", "collections": [{"name": "_default", "uid": "0"}]},
            {"name": "inventory", "collections": [{"name": "airline", "uid": "1a", "maxTTL": 60}, {"name": "odd"}]},
            {"name": "empty"},
        ]});
        let found: Vec<String> = collections(&scopes)
            .iter()
            .map(|found| format!("{} {}.{} {}", found.id, found.scope, found.name, found.max_ttl))
            .collect();
        assert_eq!(found, ["0 _default._default 0", "26 inventory.airline 60"]);
    }

    #[test]
    fn an_index_is_not_built_with_its_definition() {
        let plain = deferred("CREATE INDEX i ON b(a)");
        assert_eq!(plain, "CREATE INDEX i ON b(a) WITH {\"defer_build\":true}");
        let with = "CREATE INDEX i ON b(a) WITH {\"num_replica\":1}";
        assert_eq!(deferred(with), with);
    }
}
