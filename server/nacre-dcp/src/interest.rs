//! The part of a vBucket's history that a consumer requests.

use crate::SystemEvent;
use nacre_types::{CollectionId, Document, ScopeId};
use std::collections::BTreeSet;

/// The documents and events that a consumer receives. Only other copies receive prepares, because prepared writes are
/// not yet committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Interest {
    /// The complete history, for another copy of the vBucket.
    History,
    /// All collections and all events.
    Everything,
    /// The default collection without events, for consumers without collection support.
    DefaultCollection,
    /// The collections of a scope, with the events of the scope and of these collections.
    Scope(ScopeId, BTreeSet<CollectionId>),
    /// Some collections and their events.
    Collections(BTreeSet<CollectionId>),
    /// Nothing: the scope or the collections were dropped.
    Nothing,
}

impl Interest {
    /// Returns true if the consumer may receive versions of this collection. [`CollectionId::SYSTEM`] stands for
    /// events.
    pub fn concerns(&self, collection: CollectionId) -> bool {
        match self {
            Interest::History | Interest::Everything => true,
            Interest::DefaultCollection => collection == CollectionId::DEFAULT,
            Interest::Scope(_, wanted) | Interest::Collections(wanted) => {
                collection == CollectionId::SYSTEM || wanted.contains(&collection)
            }
            Interest::Nothing => false,
        }
    }

    /// Returns true if the consumer receives this version. Versions must be passed in history order, because events
    /// change the interest.
    pub fn admits(&mut self, document: &Document) -> bool {
        match document.collection() {
            _ if *self == Interest::History => true,
            CollectionId::PREPARED => false,
            CollectionId::SYSTEM => {
                SystemEvent::read(document).is_some_and(|event| self.admits_event(&event))
            }
            collection => self.concerns(collection),
        }
    }

    fn admits_event(&mut self, event: &SystemEvent) -> bool {
        match (&mut *self, event.collection) {
            (Interest::History | Interest::Everything, _) => true,
            (Interest::Scope(scope, wanted), collection) => {
                let concerned = *scope == event.scope;
                match collection {
                    _ if !concerned => {}
                    Some((id, _)) if event.ended => drop(wanted.remove(&id)),
                    Some((id, _)) => drop(wanted.insert(id)),
                    None if event.ended => *self = Interest::Nothing,
                    None => {}
                }
                concerned
            }
            (Interest::Collections(wanted), Some((id, _))) => {
                let concerned = wanted.contains(&id);
                if concerned && event.ended {
                    wanted.remove(&id);
                    if wanted.is_empty() {
                        *self = Interest::Nothing;
                    }
                }
                concerned
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_types::{DocKey, Kind, Meta};

    fn document(collection: u32) -> Document {
        Document::new(Meta::default(), DocKey::new(CollectionId(collection), b"k").prefixed(), b"")
    }

    fn event(scope: u32, collection: Option<u32>, ended: bool) -> Document {
        let event = SystemEvent {
            manifest_uid: 1,
            scope: ScopeId(scope),
            collection: collection.map(|id| (CollectionId(id), 0)),
            name: "n".into(),
            ended,
        };
        let kind = if ended { Kind::Deleted } else { Kind::Alive };
        let key = DocKey::new(CollectionId::SYSTEM, &event.key());
        Document::new(Meta { kind, ..Meta::default() }, key.prefixed(), &event.value())
    }

    #[test]
    fn a_consumer_that_knows_no_collections_sees_the_default_one() {
        let mut interest = Interest::DefaultCollection;
        assert!(interest.admits(&document(0)));
        assert!(!interest.admits(&document(8)));
        assert!(!interest.admits(&event(8, None, false)));
    }

    #[test]
    fn prepared_writes_are_not_streamed_to_clients() {
        assert!(!Interest::Everything.admits(&document(CollectionId::PREPARED.0)));
    }

    #[test]
    fn interest_in_a_scope_follows_its_collections() {
        let mut interest = Interest::Scope(ScopeId(8), BTreeSet::from([CollectionId(9)]));
        assert!(interest.admits(&document(9)));
        assert!(!interest.admits(&event(7, Some(10), false)), "of another scope");
        assert!(!interest.admits(&document(10)));
        assert!(interest.admits(&event(8, Some(10), false)));
        assert!(interest.admits(&document(10)));
        assert!(interest.admits(&event(8, Some(9), true)));
        assert!(!interest.admits(&document(9)));
        assert!(interest.admits(&event(8, None, true)));
        assert_eq!(interest, Interest::Nothing);
        assert!(!interest.admits(&document(10)));
    }

    #[test]
    fn interest_in_collections_ends_with_the_last_of_them() {
        let wanted = [CollectionId(8), CollectionId(9)];
        let mut interest = Interest::Collections(BTreeSet::from(wanted));
        assert!(!interest.admits(&event(8, None, false)), "of a scope");
        assert!(interest.admits(&event(8, Some(8), true)));
        assert!(interest.admits(&document(9)));
        assert!(interest.admits(&event(8, Some(9), true)));
        assert_eq!(interest, Interest::Nothing);
    }
}
