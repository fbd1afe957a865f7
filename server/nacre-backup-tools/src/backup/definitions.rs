//! Definitions: settings of buckets, collections, indexes, design documents, functions, deployments and replications, as the cluster
//! describes them.

use super::kinds::{Kind, Kinds};
use super::{counted, plugins, replications};
use nacre_backup::{BucketPart, Collection};
use nacre_cli::{Failure, Server};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
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
/// Settings that cannot be changed.
const FIXED_SETTINGS: [&str; 3] = ["bucketType", "storageBackend", "conflictResolutionType"];
/// Path of the backup of users.
const USERS: &str = "/settings/rbac/backup";
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
    let indexes =
        server.searches().and_then(|base| server.call_at(&base, "GET", "/api/index", b""));
    add("search_indexes", indexes.map(|answer| answer["indexDefs"]["indexDefs"].clone()));
    add("remote_clusters", server.call("GET", replications::LINKS, b""));
    add("replications", server.call("GET", replications::REPLICATIONS, b""));
    definitions
}

/// Reads users and groups, with the keys of their passwords.
///
/// # Errors
/// A sentence, for one who does not administer all users.
pub(super) fn users(server: &Server) -> Result<Value, String> {
    let users = server.call("GET", USERS, b"");
    users.map_err(|reason| format!("users cannot be backed up: {reason}"))
}

/// Creates users and groups; replaces those that are there if `overwrite` is set. Returns a sentence about them.
///
/// # Errors
/// A sentence if the backup has none, or the cluster refuses them. Nothing is changed then.
pub(super) fn restore_users(
    server: &Server,
    definitions: &Definitions,
    overwrite: bool,
) -> Result<String, String> {
    let users = definitions.get("users");
    let users = users.ok_or("the backup has no users: take it with --with-users")?;
    let form = format!("canOverwrite={overwrite}&backup={}", encoded(&users.to_string()));
    let answer = server
        .call("PUT", USERS, form.as_bytes())
        .map_err(|reason| format!("users cannot be restored: {reason}"))?;
    let count =
        |name: &str, noun: &str| counted(answer["stats"][name].as_u64().unwrap_or_default(), noun);
    let both = |end: &str| {
        let (users, groups) = (format!("users{end}"), format!("groups{end}"));
        format!("{} and {}", count(&users, "user"), count(&groups, "group"))
    };
    Ok(format!(
        "created {}, replaced {}, left {} as they are",
        both("Created"),
        both("Overwritten"),
        both("Skipped")
    ))
}

/// Creates what is missing: packages and deployments of plugins, functions, search indexes and replications. Deployments and replications
/// are paused, functions not deployed. Returns what was created, and what could not be.
pub(super) fn create_of_cluster(
    server: &Server,
    definitions: &Definitions,
    kinds: Kinds<'_>,
) -> (u64, Vec<String>) {
    let (mut created, mut failed) = (0, Vec::new());
    if kinds.has(Kind::Plugins) {
        plugins::create(server, definitions, &mut created, &mut failed);
    }
    let wanted = |kind, name: &str| definitions.get(name).filter(|_| kinds.has(kind));
    let functions = wanted(Kind::Functions, "functions").and_then(Value::as_array);
    let indexes = wanted(Kind::Search, "search_indexes").and_then(Value::as_object);
    if functions.is_some_and(|all| !all.is_empty()) {
        create_functions(server, functions.into_iter().flatten(), &mut created, &mut failed);
    }
    if indexes.is_some_and(|all| !all.is_empty()) {
        create_search_indexes(server, indexes.into_iter().flatten(), &mut created, &mut failed);
    }
    if kinds.has(Kind::Replications) {
        replications::create(server, definitions, &mut created, &mut failed);
    }
    (created, failed)
}

fn create_functions<'d>(
    server: &Server,
    functions: impl Iterator<Item = &'d Value>,
    created: &mut u64,
    failed: &mut Vec<String>,
) {
    let base = match server.functions() {
        Ok(base) => base,
        Err(reason) => return failed.push(format!("functions: {reason}")),
    };
    let present = match server.call_at(&base, "GET", "/api/v1/export", b"") {
        Ok(present) => present,
        Err(reason) => return failed.push(format!("functions: {reason}")),
    };
    let is_there = |function: &Value| {
        present.as_array().into_iter().flatten().any(|known| {
            known["appname"] == function["appname"]
                && known["function_scope"] == function["function_scope"]
        })
    };
    for function in functions {
        if is_there(function) {
            continue;
        }
        let mut function = function.clone();
        for setting in ["deployment_status", "processing_status"] {
            function["settings"][setting] = Value::Bool(false);
        }
        let body = Value::Array(vec![function.clone()]).to_string();
        match server.call_at(&base, "POST", "/api/v1/import", body.as_bytes()) {
            Ok(_) => *created += 1,
            Err(reason) => {
                let name = function["appname"].as_str().unwrap_or_default();
                failed.push(format!("function {name}: {reason}"));
            }
        }
    }
}

fn create_search_indexes<'d>(
    server: &Server,
    indexes: impl Iterator<Item = (&'d String, &'d Value)>,
    created: &mut u64,
    failed: &mut Vec<String>,
) {
    let found = server
        .searches()
        .and_then(|base| Ok((server.call_at(&base, "GET", "/api/index", b"")?, base)));
    let (present, base) = match found {
        Ok(found) => found,
        Err(reason) => return failed.push(format!("search indexes: {reason}")),
    };
    let missing = indexes.filter(|(name, _)| present["indexDefs"]["indexDefs"][*name].is_null());
    let mut missing: Vec<(&String, &Value)> = missing.collect();
    // An alias is created after its targets.
    missing.sort_by_key(|(_, definition)| definition["type"] == "fulltext-alias");
    for (name, definition) in missing {
        let mut definition = definition.clone();
        if let Some(members) = definition.as_object_mut() {
            members.retain(|member, _| !["uuid", "sourceUUID"].contains(&member.as_str()));
        }
        let body = definition.to_string();
        match server.call_at(&base, "PUT", &search_path(name), body.as_bytes()) {
            Ok(_) => *created += 1,
            Err(reason) => failed.push(format!("search index {name}: {reason}")),
        }
    }
}

/// Path of a search index by its full name: `bucket.scope.index`, or `index` for one of no scope.
fn search_path(name: &str) -> String {
    let parts: Vec<&str> = name.rsplitn(3, '.').collect();
    match parts[..] {
        [index, scope, bucket] => format!(
            "/api/bucket/{}/scope/{}/index/{}",
            encoded(bucket),
            encoded(scope),
            encoded(index)
        ),
        _ => format!("/api/index/{}", encoded(name)),
    }
}

fn collections(scopes: &Value) -> Vec<Collection> {
    let each = |list: &Value| list.as_array().cloned().unwrap_or_default();
    let mut found = Vec::new();
    let number = |uid: &Value| uid.as_str().and_then(|uid| u32::from_str_radix(uid, 16).ok());
    for scope in each(&scopes["scopes"]) {
        let scope_id = number(&scope["uid"]);
        for collection in each(&scope["collections"]) {
            let (Some(id), Some(scope), Some(name)) =
                (number(&collection["uid"]), scope["name"].as_str(), collection["name"].as_str())
            else {
                continue;
            };
            let max_ttl = collection["maxTTL"].as_i64().unwrap_or(0);
            let keeps_versions = collection["history"] == true;
            let (scope, name) = (scope.to_owned(), name.to_owned());
            found.push(Collection { id, scope, scope_id, name, max_ttl, keeps_versions });
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
    let fields = [vec![("name", name.to_owned())], settings_of(part)].concat();
    server.call("POST", "/pools/default/buckets", form(&fields).as_bytes())?;
    Ok(())
}

/// Gives a bucket the settings that it had, except those that cannot be changed.
pub(super) fn change_bucket(server: &Server, name: &str, part: &BucketPart) -> Result<(), String> {
    let mut fields = settings_of(part);
    fields.retain(|(field, _)| !FIXED_SETTINGS.contains(field));
    server.call("POST", &bucket_path(name), form(&fields).as_bytes())?;
    Ok(())
}

/// The fields of the form with the settings of a bucket.
fn settings_of(part: &BucketPart) -> Vec<(&'static str, String)> {
    let settings = part.definitions.get("settings").cloned().unwrap_or(Value::Null);
    let quota = settings.pointer("/quota/rawRAM").and_then(Value::as_u64).unwrap_or(256 << 20);
    let mut fields = vec![("ramQuotaMB", (quota >> 20).to_string())];
    for (field, place) in SETTINGS {
        match settings.pointer(place) {
            // The description says `membase` where the form says `couchbase`.
            Some(Value::String(text)) if text == "membase" => {
                fields.push((field, "couchbase".into()));
            }
            Some(Value::String(text)) => fields.push((field, text.clone())),
            Some(Value::Bool(value)) => fields.push((field, value.to_string())),
            Some(value @ Value::Number(_)) => fields.push((field, value.to_string())),
            _ => {}
        }
    }
    if settings.pointer("/bucketType").is_some_and(|kind| kind == "ephemeral") {
        fields.retain(|(field, _)| !["storageBackend", "historyRetentionSeconds"].contains(field));
    }
    fields
}

/// Encodes the fields of a form.
fn form(fields: &[(&str, String)]) -> String {
    let fields = fields.iter().map(|(field, value)| format!("{field}={}", encoded(value)));
    fields.collect::<Vec<_>>().join("&")
}

/// Creates the scopes and collections that are missing; returns all collections of the bucket.
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
    // In a bucket without versions, no collection has the setting.
    let some_keep = wanted.iter().any(|collection| collection.keeps_versions);
    for Collection { scope, name, max_ttl, keeps_versions, .. } in wanted {
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
        if some_keep && !keeps_versions {
            form.push_str("&history=false");
        }
        server.call("POST", &format!("{path}/{}/collections", encoded(scope)), form.as_bytes())?;
    }
    self::present(server, bucket)
}

/// Drops a collection, by the names of bucket, scope and collection. Returns false if it does not exist, or is in the system scope.
pub(super) fn drop_collection(
    server: &Server,
    [bucket, scope, name]: &[String; 3],
) -> Result<bool, String> {
    let path = bucket_path(bucket);
    if scope == SYSTEM_SCOPE || !server.knows(&path)? {
        return Ok(false);
    }
    let present = present(server, bucket)?;
    if !present.iter().any(|found| found.scope == *scope && found.name == *name) {
        return Ok(false);
    }
    let path = format!("{path}/scopes/{}/collections/{}", encoded(scope), encoded(name));
    server.call("DELETE", &path, b"")?;
    Ok(true)
}

/// Creates design documents and indexes that are missing. Indexes are not built. Returns what was created, and what could not be.
pub(super) fn create_others(
    server: &Server,
    bucket: &str,
    part: &BucketPart,
    kinds: Kinds<'_>,
) -> (u64, Vec<String>) {
    let (mut created, mut failed) = (0, Vec::new());
    let mut note = |name: String, done: Result<Value, Failure>| match done {
        Ok(_) => created += 1,
        Err(reason) => failed.push(format!("{name}: {reason}")),
    };
    let wanted = |kind, name: &str| part.definitions.get(name).filter(|_| kinds.has(kind));
    let rows = wanted(Kind::Views, "design_documents").map_or(&Value::Null, |all| &all["rows"]);
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
    let indexes = wanted(Kind::Indexes, "indexes").and_then(Value::as_array).into_iter().flatten();
    for index in indexes {
        let (Some(name), Some(statement)) = (index["name"].as_str(), index["definition"].as_str())
        else {
            continue;
        };
        if part.name != bucket {
            note(format!("index {name}"), Err("its definition names another bucket".into()));
            continue;
        }
        let created = nacre_cli::query(server, &deferred(statement), &[]);
        note(format!("index {name}"), created.map(Value::from));
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

pub(super) fn encoded(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

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
    fn a_search_index_is_found_by_its_full_name() {
        assert_eq!(search_path("i"), "/api/index/i");
        assert_eq!(search_path("a.b.s.i"), "/api/bucket/a%2Eb/scope/s/index/i");
    }

    #[test]
    fn an_index_is_not_built_with_its_definition() {
        let plain = deferred("CREATE INDEX i ON b(a)");
        assert_eq!(plain, "CREATE INDEX i ON b(a) WITH {\"defer_build\":true}");
        let with = "CREATE INDEX i ON b(a) WITH {\"num_replica\":1}";
        assert_eq!(deferred(with), with);
    }
}
