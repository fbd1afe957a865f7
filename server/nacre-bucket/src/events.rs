//! Scope and collection changes in the form that each vBucket's history stores.

use crate::bucket::KeyspaceEvent;
use nacre_cluster::{Collection, Manifest, Scope};
use nacre_dcp::SystemEvent;
use nacre_types::{CollectionId, Document, ScopeId};

/// Returns the events that turn one manifest into a later one: drops first, then creations and changes.
pub fn between(before: &Manifest, after: &Manifest) -> Vec<KeyspaceEvent> {
    let mut events = Vec::new();
    for (scope, collection) in collections(before) {
        if after.collection_by_id(CollectionId(collection.id)).is_none() {
            let dropped = Some(CollectionId(collection.id));
            events.push(KeyspaceEvent {
                dropped,
                ended: true,
                ..of_collection(after, scope, collection)
            });
        }
    }
    for scope in &before.scopes {
        if !after.scopes.iter().any(|known| known.id == scope.id) {
            events.push(KeyspaceEvent { ended: true, ..of_scope(after, scope) });
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

/// Returns the collection that `document` drops, if `document` is such an event.
pub(crate) fn dropped_by(document: &Document) -> Option<CollectionId> {
    let event = SystemEvent::read(document).filter(|event| event.ended)?;
    event.collection.map(|(id, _)| id)
}

fn collections(manifest: &Manifest) -> impl Iterator<Item = (&Scope, &Collection)> {
    manifest.scopes.iter().flat_map(|scope| scope.collections.iter().map(move |c| (scope, c)))
}

fn of_scope(manifest: &Manifest, scope: &Scope) -> KeyspaceEvent {
    event(&SystemEvent {
        manifest_uid: manifest.uid,
        scope: ScopeId(scope.id),
        collection: None,
        name: scope.name.clone(),
        ended: false,
    })
}

fn of_collection(manifest: &Manifest, scope: &Scope, collection: &Collection) -> KeyspaceEvent {
    event(&SystemEvent {
        manifest_uid: manifest.uid,
        scope: ScopeId(scope.id),
        collection: Some((CollectionId(collection.id), collection.max_ttl)),
        name: collection.name.clone(),
        ended: false,
    })
}

fn event(event: &SystemEvent) -> KeyspaceEvent {
    KeyspaceEvent { name: event.key(), value: event.value(), ended: event.ended, dropped: None }
}
