//! All scopes and collections of a bucket at once: the manifest is set, and its change is awaited. Paths, members and
//! texts are Couchbase's.

use super::Call;
use super::body::{Reply, blocking, invalid, not_found, ok, reply};
use super::nodes::Form;
use super::refusal::refused;
use super::routes::{Route, post, put};
use hyper::StatusCode;
use nacre_auth::Privilege;
use nacre_cluster::{BucketChange, Change, Cluster, Manifest, Membership};
use nacre_http::Access;
use nacre_node::Error;
use nacre_types::NodeId;
use serde::Deserialize;
use serde_json::json;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

const ADMINISTER: Access = Access::Bucket(Privilege::AdministerCollections);

pub(super) const ROUTES: &[Route] = &[
    put("/pools/default/buckets/{bucket}/scopes", ADMINISTER, |call| Box::pin(set(call))),
    post("/pools/default/buckets/{bucket}/scopes/@ensureManifest/{uid}", ADMINISTER, |call| {
        Box::pin(ensure(call))
    }),
];

/// The scope of Couchbase's own collections. Clients send it back as they have read it, and it is left as it is.
const SYSTEM: &str = "_system";
/// Default and longest time in milliseconds to wait for a manifest. Source: Couchbase.
const PATIENCE_MS: u64 = 30_000;
const PATIENCE_MS_MAX: u64 = 300_000;

/// The body of a request that sets the manifest.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ManifestForm {
    scopes: Vec<ScopeForm>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ScopeForm {
    name: String,
    #[serde(default)]
    collections: Vec<CollectionForm>,
}

/// A collection. An omitted setting of an existing collection stays as it is.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CollectionForm {
    name: String,
    #[serde(rename = "maxTTL")]
    max_ttl: Option<i32>,
    history: Option<bool>,
}

/// Sets all scopes and collections: creates those that are missing, and drops those that the body does not name.
///
/// The changes are agreed one after the other. All of them are tried on a copy of the state first, so that a request
/// that is refused changes nothing unless somebody else changes the bucket at the same time.
async fn set(call: Call) -> Result<Reply, Reply> {
    let bucket = call.segment("bucket").to_owned();
    let wanted = read(&call.body)?;
    let node = Arc::clone(&call.node);
    // The UID may come from another node.
    blocking("the newest state", move || node.catch_up()).await?;
    let cluster = call.node.cluster();
    let known = &cluster.bucket(&bucket).map_err(|_| not_found())?.manifest;
    if let Some(uid) = call.parameter("validOnUid") {
        let uid = parse_uid(&uid).ok_or_else(|| invalid("_", "Invalid validOnUid"))?;
        if uid != known.uid {
            return Err(invalid("_", "validOnUid doesn't match the current manifest Uid"));
        }
    }
    let changes = changes(&bucket, known, &wanted);
    let mut trial = Cluster::clone(&cluster);
    for change in &changes {
        trial.apply(change).map_err(|refusal| refused(&Error::Refused(refusal)))?;
    }
    for change in changes {
        call.change(change).await?;
    }
    let cluster = call.node.cluster();
    let uid = cluster.bucket(&bucket).map_or(0, |bucket| bucket.manifest.uid);
    Ok(ok(&json!({"uid": format!("{uid:x}")})))
}

fn parse_uid(text: &str) -> Option<u64> {
    u64::from_str_radix(text, 16).ok()
}

fn read(body: &[u8]) -> Result<Vec<ScopeForm>, Reply> {
    let body: serde_json::Value =
        serde_json::from_slice(body).map_err(|_| invalid("_", "Unexpected Json"))?;
    let form: ManifestForm =
        serde_json::from_value(body).map_err(|error| invalid("scopes", error.to_string()))?;
    let mut scopes = BTreeSet::new();
    for scope in &form.scopes {
        let mut collections = BTreeSet::new();
        let is_new = scopes.insert(scope.name.as_str());
        if !is_new || !scope.collections.iter().all(|one| collections.insert(one.name.as_str())) {
            return Err(invalid("scopes", "Contains duplicate name"));
        }
        if scope.collections.iter().any(|one| one.max_ttl.is_some_and(|seconds| seconds < -1)) {
            let reason = "maxTTL: The value must be in range from -1 to 2147483647";
            return Err(invalid("scopes", reason));
        }
    }
    Ok(form.scopes)
}

/// Returns the changes that turn the manifest of a bucket into the wanted one.
fn changes(bucket: &str, known: &Manifest, wanted: &[ScopeForm]) -> Vec<Change> {
    let mut changes = Vec::new();
    for scope in known.scopes.iter().filter(|scope| scope.name != SYSTEM) {
        if !wanted.iter().any(|kept| kept.name == scope.name) {
            let (bucket, scope) = (bucket.to_owned(), scope.name.clone());
            changes.push(BucketChange::DropScope { bucket, scope });
        }
    }
    for scope in wanted.iter().filter(|scope| scope.name != SYSTEM) {
        let there = known.scope(&scope.name);
        if there.is_none() {
            let (bucket, scope) = (bucket.to_owned(), scope.name.clone());
            changes.push(BucketChange::CreateScope { bucket, scope });
        }
        for collection in there.iter().flat_map(|there| &there.collections) {
            if !scope.collections.iter().any(|kept| kept.name == collection.name) {
                changes.push(BucketChange::DropCollection {
                    bucket: bucket.to_owned(),
                    scope: scope.name.clone(),
                    collection: collection.name.clone(),
                });
            }
        }
        let wanted = scope.collections.iter();
        changes.extend(wanted.filter_map(|wanted| change_of(bucket, known, &scope.name, wanted)));
    }
    changes.into_iter().map(Change::Buckets).collect()
}

/// Returns the change that creates or updates a collection; `None` if it is as wanted.
fn change_of(
    bucket: &str,
    known: &Manifest,
    scope: &str,
    wanted: &CollectionForm,
) -> Option<BucketChange> {
    let (bucket, collection) = (bucket.to_owned(), wanted.name.clone());
    let CollectionForm { max_ttl, history, .. } = *wanted;
    let Some(there) = known.collection(scope, &wanted.name) else {
        let (scope, max_ttl) = (scope.to_owned(), max_ttl.unwrap_or(0));
        return Some(BucketChange::CreateCollection {
            bucket,
            scope,
            collection,
            max_ttl,
            history,
        });
    };
    let differs = max_ttl.is_some_and(|seconds| seconds != there.max_ttl)
        || history.is_some_and(|kept| kept != there.history);
    let scope = scope.to_owned();
    differs.then_some(BucketChange::UpdateCollection {
        bucket,
        scope,
        collection,
        max_ttl,
        history,
    })
}

/// Waits until the nodes know the manifest with a UID, or a newer one.
async fn ensure(call: Call) -> Result<Reply, Reply> {
    let text = |status, text: &'static str| reply(status, "text/plain; charset=utf-8", text);
    let form = Form(call.form());
    form.only(&["nodes", "timeout"])?;
    let uid = parse_uid(call.segment("uid"));
    let uid = uid.ok_or_else(|| text(StatusCode::BAD_REQUEST, "Invalid UID"))?;
    let patience_ms = form.optional("timeout").map_or(Some(PATIENCE_MS), |ms| ms.parse().ok());
    let patience_ms = patience_ms.filter(|ms| *ms <= PATIENCE_MS_MAX).ok_or_else(|| {
        invalid("timeout", format!("The value must be in range from 0 to {PATIENCE_MS_MAX}"))
    })?;
    let (patience, begun_ns) = (Duration::from_millis(patience_ms), call.node.now().monotonic_ns);
    let asked = asked(&call, form.optional("nodes"))?;
    match tokio::time::timeout(patience, knows(&call, uid)).await {
        Err(_) => return Err(text(StatusCode::GATEWAY_TIMEOUT, "timeout")),
        Ok(false) => return Err(text(StatusCode::NOT_FOUND, "bucket no longer exists")),
        Ok(true) => {}
    }
    let node = Arc::clone(&call.node);
    let passed = Duration::from_nanos(node.now().monotonic_ns.saturating_sub(begun_ns));
    let left = patience.saturating_sub(passed);
    let behind = blocking("the wait", move || node.behind(&asked, left)).await?;
    match behind.is_empty() {
        true => Ok(text(StatusCode::OK, "")),
        false => Err(text(StatusCode::GATEWAY_TIMEOUT, "timeout")),
    }
}

/// Waits until this node knows the manifest. Returns false if the bucket does not exist.
async fn knows(call: &Call, uid: u64) -> bool {
    loop {
        let changed = call.node.map_changed();
        let mut changed = std::pin::pin!(changed);
        changed.as_mut().enable();
        match call.node.cluster().bucket(call.segment("bucket")) {
            Err(_) => return false,
            Ok(bucket) if bucket.manifest.uid >= uid => return true,
            Ok(_) => {}
        }
        changed.await;
    }
}

/// Returns the other nodes to wait for: those that the request names, or all members.
fn asked(call: &Call, named: Option<&str>) -> Result<Vec<NodeId>, Reply> {
    let (cluster, own) = (call.node.cluster(), call.node.id());
    let members: Vec<(NodeId, String)> = cluster
        .nodes
        .iter()
        .filter(|(_, node)| node.membership != Membership::FailedOver)
        .map(|(id, node)| (*id, call.authority(&node.endpoints, node.endpoints.plain.mgmt())))
        .collect();
    let names: Option<Vec<&str>> = named.map(|names| names.split(',').map(str::trim).collect());
    if let Some(names) = &names {
        let is_known = |name: &&str| members.iter().any(|(_, known)| known == name);
        let unknown: Vec<&str> = names.iter().copied().filter(|name| !is_known(name)).collect();
        if !unknown.is_empty() {
            return Err(invalid("nodes", format!("Invalid nodes : {}", unknown.join(","))));
        }
    }
    let is_named = |name: &str| names.as_ref().is_none_or(|names| names.contains(&name));
    let asked = members.iter().filter(|(id, name)| *id != own && is_named(name));
    Ok(asked.map(|(id, _)| *id).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn known() -> Manifest {
        let collection = |name: &str, id: u32, max_ttl: i32| json!({"name": name, "id": id, "max_ttl": max_ttl, "history": false});
        let manifest = json!({
            "uid": 5,
            "scopes": [
                {"name": "_default", "id": 0, "collections": [collection("_default", 0, 0)]},
                {"name": "shop", "id": 8, "collections": [collection("orders", 8, 60), collection("old", 9, 0)]},
                {"name": "closed", "id": 9, "collections": []},
            ],
            "next_scope": 10,
            "next_collection": 10,
        });
        serde_json::from_value(manifest).unwrap()
    }

    fn names(body: &Value) -> Vec<String> {
        let wanted = read(body.to_string().as_bytes()).unwrap();
        let changes = changes("b", &known(), &wanted);
        let name = |change: &Change| {
            let stored = serde_json::to_value(change).unwrap();
            let (kind, fields) = stored.as_object().unwrap().iter().next().unwrap();
            let field = |name: &str| fields[name].as_str().unwrap_or_default().to_owned();
            format!("{kind} {} {}", field("scope"), field("collection")).trim_end().to_owned()
        };
        changes.iter().map(name).collect()
    }

    #[test]
    fn only_what_differs_is_changed() {
        let default = json!({"name": "_default", "collections": [{"name": "_default"}]});
        let shop = |collections: Value| json!({"name": "shop", "collections": collections});
        let same =
            shop(json!([{"name": "orders", "maxTTL": 60}, {"name": "old", "history": false}]));
        let closed = json!({"name": "closed"});
        let system = json!({"name": "_system", "collections": [{"name": "_query"}]});
        assert_eq!(names(&json!({"scopes": [default, same, closed, system]})), [""; 0]);
        let other = shop(json!([{"name": "orders", "maxTTL": 90}, {"name": "new", "maxTTL": 1}]));
        let added = json!({"name": "added", "collections": [{"name": "c"}]});
        assert_eq!(
            names(&json!({"scopes": [default, other, added]})),
            [
                "DropScope closed",
                "DropCollection shop old",
                "UpdateCollection shop orders",
                "CreateCollection shop new",
                "CreateScope added",
                "CreateCollection added c",
            ]
        );
    }

    #[test]
    fn malformed_forms_are_refused() {
        for body in [
            json!([]),
            json!({}),
            json!({"scopes": {}}),
            json!({"scopes": [{"collections": []}]}),
            json!({"scopes": [{"name": "s", "uid": "8"}]}),
            json!({"scopes": [{"name": "s"}, {"name": "s"}]}),
            json!({"scopes": [{"name": "s", "collections": [{"name": "c"}, {"name": "c"}]}]}),
            json!({"scopes": [{"name": "s", "collections": [{"name": "c", "maxTTL": -2}]}]}),
        ] {
            assert!(read(body.to_string().as_bytes()).is_err(), "{body}");
        }
        assert!(read(b"{").is_err());
    }
}
