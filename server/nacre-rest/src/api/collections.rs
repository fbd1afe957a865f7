//! Buckets, scopes and collections by their names.

use super::super::Call;
use super::super::body::{Reply, ok};
use nacre_auth::{Keyspace, User};
use nacre_cluster::Manifest;
use serde_json::{Value, json};

/// `GET /api/v1/buckets`: all buckets, scopes and collections that the user may see.
pub(super) fn list(call: &Call) -> Reply {
    let cluster = call.node.cluster();
    let users = call.node.users();
    let user = call.holder(&users);
    let buckets = cluster.buckets.iter().filter_map(|(name, bucket)| {
        let place = Keyspace { bucket: Some(name), ..Keyspace::default() };
        let user = user.filter(|user| user.may_see(place))?;
        Some(json!({"name": name, "scopes": scopes(user, place, &bucket.manifest)}))
    });
    ok(&json!({"buckets": buckets.collect::<Vec<_>>()}))
}

fn scopes(user: &User, place: Keyspace<'_>, manifest: &Manifest) -> Vec<Value> {
    let scopes = manifest.scopes.iter().filter_map(|scope| {
        let place = Keyspace { scope: Some(&scope.name), ..place };
        let names = scope.collections.iter().map(|collection| collection.name.as_str());
        let sees = |name: &&str| user.may_see(Keyspace { collection: Some(name), ..place });
        let names: Vec<&str> = names.filter(sees).collect();
        user.may_see(place).then(|| json!({"name": scope.name, "collections": names}))
    });
    scopes.collect()
}
