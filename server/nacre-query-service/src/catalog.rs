//! Catalogs as rows for queries: `system:buckets`, `system:scopes`, `system:keyspaces`, `system:indexes`.

use super::administer::of_sequences;
use super::refresh::tasks;
use super::requester::Requester;
use super::session::place;
use super::settings::QuerySettings;
use super::unbuilt::unbuilt;
use crate::NodeQueries;
use nacre_auth::{Keyspace, Privilege, Role};
use nacre_cluster::{Bucket, Index, Member, Partitioning};
use nacre_node::Node;
use nacre_plugins_service::NodePlugins;
use nacre_sandbox::DatabaseKeyspace;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;

type Rows = Vec<(String, String)>;

/// Returns the rows of a catalog: IDs and JSON objects.
pub(super) fn rows_of(requester: &Requester, name: &str) -> Option<Rows> {
    match name {
        "datastores" => Some(rows([("nacre".into(), json!({"id": "nacre", "url": "local"}))])),
        "namespaces" => {
            let row = json!({"id": "default", "name": "default", "datastore_id": "nacre"});
            Some(rows([("default".into(), row)]))
        }
        "buckets" => Some(of_buckets(requester, |bucket| vec![of_bucket(bucket)])),
        "scopes" | "all_scopes" => {
            Some(of_buckets(requester, |bucket| of_scopes(requester, bucket)))
        }
        "keyspaces" | "all_keyspaces" => {
            Some(of_buckets(requester, |bucket| of_keyspaces(requester, bucket)))
        }
        "indexes" | "all_indexes" => {
            let unbuilt = unbuilt(&requester.node);
            Some(of_buckets(requester, |bucket| of_indexes(requester, bucket, &unbuilt)))
        }
        "transactions" => Some(of_transactions(requester)),
        "sequences" | "all_sequences" => Some(of_sequences(requester)),
        "user_info" => Some(of_users(requester, false)),
        "my_user_info" => Some(of_users(requester, true)),
        "group_info" => Some(of_groups(requester)),
        "applicable_roles" => Some(of_roles(requester)),
        "bucket_info" => Some(of_buckets(requester, |bucket| vec![info_of_bucket(bucket)])),
        "vitals" => Some(of_vitals(requester)),
        "tasks_cache" => Some(rows(tasks(requester))),
        "aus" => Some(rows([of_automatic_statistics(requester)])),
        // The query component answers for the history of requests.
        "completed_requests_history" => Some(Vec::new()),
        "#node" => Some(of_this_node(requester)),
        "nodes" => Some(rows(requester.node.cluster().nodes.values().map(of_node))),
        _ => None,
    }
}

/// Catches up with the decisions of other nodes, for catalogs that show them: clients create an index on one node
/// and look for it on another.
pub(super) fn catch_up_for(node: &Node, name: &str) {
    let own = ["datastores", "namespaces", "dual", "transactions"];
    if !own.contains(&name) {
        node.catch_up();
    }
}

/// Returns the transactions of this node. Users see those of others only if they may manage requests.
fn of_transactions(requester: &Requester) -> Rows {
    let user = (!requester.manages_requests()).then_some(requester.user.as_str());
    let node = requester.node.endpoints().management();
    rows(requester.node.queries().transactions.rows(user, &node, requester.node.now()))
}

/// Returns users with their roles: the request's user, or all for users who may administer them.
fn of_users(requester: &Requester, own: bool) -> Rows {
    let users = requester.node.users();
    let may_all = requester.may_in(Privilege::AdministerUsers, Keyspace::default());
    let seen = users.iter().filter(|user| match own {
        true => user.name == requester.user,
        false => may_all,
    });
    rows(seen.map(|user| {
        let roles: Vec<Value> =
            user.all_roles().map(|(role, group)| of_role(role, group)).collect();
        let row = json!({
            "id": user.name,
            "domain": "local",
            "name": user.display_name,
            "roles": roles,
            "groups": user.groups,
            "external_groups": [],
        });
        (format!("local:{}", user.name), row)
    }))
}

fn of_groups(requester: &Requester) -> Rows {
    if !requester.may_in(Privilege::AdministerUsers, Keyspace::default()) {
        return Vec::new();
    }
    let users = requester.node.users();
    rows(users.groups().map(|group| {
        let roles: Vec<Value> = group.roles.iter().map(|role| of_role(role, None)).collect();
        let row = json!({"id": group.name, "description": group.description, "roles": roles});
        (group.name.clone(), row)
    }))
}

/// Returns the roles of users, one row each: those of the request's user, or of all for users who may administer
/// them.
fn of_roles(requester: &Requester) -> Rows {
    let users = requester.node.users();
    let may_all = requester.may_in(Privilege::AdministerUsers, Keyspace::default());
    let seen = users.iter().filter(|user| may_all || user.name == requester.user);
    rows(seen.flat_map(|user| {
        let row = |(role, _): (&Role, _)| {
            let mut row = of_role(role, None);
            row["grantee"] = user.name.as_str().into();
            (format!("{}:{role}", user.name), row)
        };
        user.all_roles().map(row).collect::<Vec<_>>()
    }))
}

fn of_vitals(requester: &Requester) -> Rows {
    if !requester.may_in(Privilege::ReadStats, Keyspace::default()) {
        return Vec::new();
    }
    let vitals = requester.node.queries().vitals();
    let name = requester.node.endpoints().management();
    let mean = vitals.elapsed_ns().checked_div(vitals.ended()).unwrap_or(0);
    let row = json!({
        "node": name,
        "version": env!("CARGO_PKG_VERSION"),
        "request.completed.count": vitals.ended(),
        "request.active.count": vitals.begun().saturating_sub(vitals.ended()),
        "request_time.mean": format!("{:?}", Duration::from_nanos(mean)),
    });
    rows([(name, row)])
}

/// Returns the settings of automatic statistics, with Couchbase's names.
fn of_automatic_statistics(requester: &Requester) -> (String, Value) {
    let settings = QuerySettings::of(&requester.node.cluster());
    let row = json!({
        "enable": settings.refreshes_statistics,
        "all_buckets": true,
        "change_percentage": settings.refresh_percent,
    });
    ("aus".into(), row)
}

fn of_this_node(requester: &Requester) -> Rows {
    let name = requester.node.endpoints().management();
    let row = json!({"name": name, "uuid": requester.node.id().to_string()});
    rows([(name, row)])
}

fn of_buckets(requester: &Requester, of: impl Fn(&Bucket) -> Vec<(String, Value)>) -> Rows {
    let cluster = requester.node.cluster();
    let visible = cluster.buckets.values().filter(|bucket| sees(requester, bucket, None));
    rows(visible.flat_map(of))
}

/// Returns true if the user has a role in a bucket or scope, and so may see that it exists.
fn sees(requester: &Requester, bucket: &Bucket, scope: Option<&str>) -> bool {
    let place = Keyspace { bucket: Some(&bucket.name), scope, collection: None };
    requester.node.users().get(&requester.user).is_some_and(|user| user.may_see(place))
}

fn of_scopes(requester: &Requester, bucket: &Bucket) -> Vec<(String, Value)> {
    let row = |scope: &nacre_cluster::Scope| {
        let path = format!("default:{}.{}", bucket.name, scope.name);
        let row = json!({
            "datastore_id": "nacre",
            "namespace": "default",
            "namespace_id": "default",
            "bucket": bucket.name,
            "name": scope.name,
            "path": path,
        });
        (path, row)
    };
    let scopes = bucket.manifest.scopes.iter();
    scopes.filter(|scope| sees(requester, bucket, Some(&scope.name))).map(row).collect()
}

fn of_keyspaces(requester: &Requester, bucket: &Bucket) -> Vec<(String, Value)> {
    let mut found = Vec::new();
    for scope in &bucket.manifest.scopes {
        for collection in &scope.collections {
            let keyspace = DatabaseKeyspace {
                bucket: bucket.name.clone(),
                scope: scope.name.clone(),
                collection: collection.name.clone(),
            };
            if !requester.may_query(place(&keyspace)) && !requester.manages_requests() {
                continue;
            }
            let path = format!("default:{}.{}.{}", bucket.name, scope.name, collection.name);
            let mut row = json!({
                "datastore_id": "nacre",
                "namespace": "default",
                "namespace_id": "default",
                "bucket": bucket.name,
                "scope": scope.name,
                "id": collection.name,
                "name": collection.name,
                "path": path,
            });
            // A bucket without a path means its default collection, for compatibility with statements that
            // predate collections.
            if (scope.name.as_str(), collection.name.as_str()) == ("_default", "_default") {
                row = json!({
                    "datastore_id": "nacre",
                    "namespace": "default",
                    "namespace_id": "default",
                    "id": bucket.name,
                    "name": bucket.name,
                    "path": format!("default:{}", bucket.name),
                });
            }
            found.push((path, row));
        }
    }
    found
}

fn of_indexes(
    requester: &Requester,
    bucket: &Bucket,
    unbuilt: &BTreeSet<String>,
) -> Vec<(String, Value)> {
    let visible = bucket.indexes.iter().filter(|index| {
        let keyspace = DatabaseKeyspace {
            bucket: bucket.name.clone(),
            scope: index.scope.clone(),
            collection: index.collection.clone(),
        };
        requester.may_query(place(&keyspace))
            || requester.may(Privilege::AdministerIndexes, &keyspace)
            || requester.manages_requests()
    });
    visible
        .map(|index| {
            let state = match (index.built, unbuilt.contains(&index.uuid)) {
                (false, _) => "deferred",
                (true, true) => "building",
                (true, false) => "online",
            };
            let mut row = json!({
                "id": index.uuid,
                "name": index.name,
                "datastore_id": "nacre",
                "namespace_id": "default",
                "index_key": index.keys,
                "using": "gsi",
                "state": state,
                "metadata": {"num_replica": 0},
            });
            if let Some(Partitioning { by, count, replicas }) = &index.partitioning {
                row["partition"] = format!("HASH({})", by.join(", ")).into();
                row["metadata"] = json!({"num_replica": replicas, "num_partition": count});
            }
            let is_default = index.scope == "_default" && index.collection == "_default";
            if is_default {
                row["keyspace_id"] = bucket.name.as_str().into();
            } else {
                row["bucket_id"] = bucket.name.as_str().into();
                row["scope_id"] = index.scope.as_str().into();
                row["keyspace_id"] = index.collection.as_str().into();
            }
            if let Some(condition) = &index.condition {
                row["condition"] = condition.as_str().into();
            }
            if index.keys.is_empty() {
                row["is_primary"] = true.into();
            }
            (index.uuid.clone(), row)
        })
        .collect()
}

/// Returns true if the node must still build its part of an index. Other nodes may answer for it meanwhile.
pub(crate) fn has_to_build(node: &Node, bucket: &str, index: &Index) -> bool {
    let held = node.cluster().held_by(node.id(), index);
    let lacks_some = || {
        let deployment = node.plugins().index(bucket, index);
        deployment.is_some_and(|deployment| !deployment.has(&held))
    };
    state_of(node, bucket, index) == "building" || index.built && !held.is_empty() && lacks_some()
}

/// Returns the state of a bucket's index as known to this node: `deferred`, `building` or `online`.
pub fn state_of(node: &Node, bucket: &str, index: &Index) -> &'static str {
    let is_complete = || {
        let deployment = node.plugins().index(bucket, index);
        deployment.is_some_and(|deployment| deployment.is_complete())
    };
    let is_only_on_other_nodes = || match index.partitioning {
        Some(_) => node.cluster().held_by(node.id(), index).is_empty(),
        None => !node.cluster().buckets.get(bucket).is_some_and(|bucket| {
            bucket.chains.iter().any(|chain| chain.active() == Some(node.id()))
        }),
    };
    match index.built {
        false => "deferred",
        // A query asks the nodes that have the index.
        true if is_only_on_other_nodes() => "online",
        true if is_complete() => "online",
        true => "building",
    }
}

fn rows(found: impl IntoIterator<Item = (String, Value)>) -> Rows {
    found.into_iter().map(|(id, row)| (id, row.to_string())).collect()
}

fn of_node(node: &Member) -> (String, Value) {
    let (name, ports) = (node.endpoints.management(), &node.endpoints.plain);
    let ports = json!({"mgmt": ports.mgmt(), "kv": ports.kv(), "n1ql": ports.get("query")});
    (name.clone(), json!({"name": name, "ports": ports, "services": node.service_names()}))
}

fn of_bucket(bucket: &Bucket) -> (String, Value) {
    let row = json!({
        "datastore_id": "nacre",
        "namespace": "default",
        "namespace_id": "default",
        "name": bucket.name,
        "path": format!("default:{}", bucket.name),
    });
    (bucket.name.clone(), row)
}

fn of_role(role: &Role, group: Option<&str>) -> Value {
    let keyspace = role.keyspace();
    let mut row = json!({"role": role.kind.name()});
    for (name, value) in [
        ("bucket_name", keyspace.bucket),
        ("scope_name", keyspace.scope),
        ("collection_name", keyspace.collection),
    ] {
        if role.kind.is_parameterised() {
            row[name] = value.unwrap_or("*").into();
        }
    }
    if let Some(group) = group {
        row["origins"] = json!([{"type": "group", "name": group}]);
    }
    row
}

fn info_of_bucket(bucket: &Bucket) -> (String, Value) {
    let (name, mut row) = of_bucket(bucket);
    row["uuid"] = bucket.uuid.as_str().into();
    row["collections"] =
        bucket.manifest.scopes.iter().map(|scope| scope.collections.len()).sum::<usize>().into();
    row["indexes"] = bucket.indexes.len().into();
    (name, row)
}
