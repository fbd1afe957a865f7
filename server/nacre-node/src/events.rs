//! What happened to scopes and collections, as it is written into the history of each vBucket.

use crate::bucket::Event;
use nacre_cluster::{Collection, Manifest, Scope};
use nacre_types::CollectionId;
use serde_json::json;

/// The events that lead from one manifest to a later one: what ended first, then what began or changed.
pub(crate) fn between(before: &Manifest, after: &Manifest) -> Vec<Event> {
    let mut events = Vec::new();
    for (scope, collection) in collections(before) {
        if after.collection_by_id(CollectionId(collection.id)).is_none() {
            let dropped = Some(CollectionId(collection.id));
            events.push(Event { dropped, ended: true, ..of_collection(after, scope, collection) });
        }
    }
    for scope in &before.scopes {
        if !after.scopes.iter().any(|known| known.id == scope.id) {
            events.push(Event { ended: true, ..of_scope(after, scope) });
        }
    }
    for scope in &after.scopes {
        if !before.scopes.iter().any(|known| known.id == scope.id) {
            events.push(of_scope(after, scope));
        }
    }
    for (scope, collection) in collections(after) {
        if before.collection_by_id(CollectionId(collection.id)) != Some(collection) {
            events.push(of_collection(after, scope, collection));
        }
    }
    events
}

fn collections(manifest: &Manifest) -> impl Iterator<Item = (&Scope, &Collection)> {
    manifest.scopes.iter().flat_map(|scope| scope.collections.iter().map(move |c| (scope, c)))
}

fn of_scope(manifest: &Manifest, scope: &Scope) -> Event {
    let value = json!({
        "uid": format!("{:x}", manifest.uid),
        "scope": format!("{:x}", scope.id),
        "name": scope.name,
    });
    event(format!("scope:{:x}", scope.id), &value)
}

fn of_collection(manifest: &Manifest, scope: &Scope, collection: &Collection) -> Event {
    let value = json!({
        "uid": format!("{:x}", manifest.uid),
        "scope": format!("{:x}", scope.id),
        "collection": format!("{:x}", collection.id),
        "name": collection.name,
        "maxTTL": collection.max_ttl,
    });
    event(format!("collection:{:x}", collection.id), &value)
}

fn event(name: String, value: &serde_json::Value) -> Event {
    let (name, value) = (name.into_bytes(), value.to_string().into_bytes());
    Event { name, value, ended: false, dropped: None }
}
