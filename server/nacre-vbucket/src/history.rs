//! Retention of superseded versions: the versions that a vBucket has its store keep, those of some collections from a
//! seqno on.
//!
//! Memory contains every version anyway for as long as it contains that part of history. Only the copy that makes
//! history keeps superseded versions: a replica does not receive every version, so its kept history starts when it
//! becomes the active copy.

use nacre_types::{CollectionId, Seqno, VbState};
use std::sync::Arc;

/// The rule for the versions that the store keeps.
#[derive(Clone, Debug, Default)]
pub(crate) struct Retention {
    /// True once the bucket has set its collections; until then, stored versions are kept.
    is_set: bool,
    /// Collections whose history the bucket wants to keep.
    wanted: Option<Arc<[CollectionId]>>,
    /// Collections whose history is kept, ascending; empty if there is no start.
    collections: Arc<[CollectionId]>,
    start: Option<Seqno>,
}

impl Retention {
    /// Creates the retention that a vBucket's record describes, before the bucket has set its collections.
    pub fn starting_at(start: Option<Seqno>) -> Retention {
        Retention { start, ..Retention::default() }
    }

    /// Returns the retention for a history that starts again, with the same wanted collections.
    pub fn restarted(&self) -> Retention {
        Retention { start: None, collections: Arc::default(), ..self.clone() }
    }

    /// Sets the collections whose history the bucket wants to keep; `None` for none. [`Retention::settle`] applies
    /// this.
    pub fn want(&mut self, collections: Option<Arc<[CollectionId]>>) {
        self.is_set = true;
        self.wanted = collections;
    }

    /// Moves the start of the kept history forward to `start`, but not beyond `end`. Returns true if it moves.
    pub fn forget(&mut self, start: Seqno, end: Seqno) -> bool {
        let later = self.start.map(|known| start.min(end).max(known));
        self.set_start(later)
    }

    /// Adapts the kept history to the wanted collections and to the role of the copy, whose next seqno is `next`.
    /// Returns true if the start of the kept history moves.
    pub fn settle(&mut self, state: VbState, next: Seqno) -> bool {
        let Retention { is_set, wanted, start, .. } = &*self;
        let start = match (wanted, state) {
            (_, VbState::Replica | VbState::Dead) => None,
            (None, _) => start.filter(|_| !is_set),
            (Some(_), VbState::Active) => Some(start.unwrap_or(next)),
            (Some(_), VbState::Pending) => *start,
        };
        let kept = wanted.clone().filter(|_| start.is_some());
        self.collections = kept.unwrap_or_default();
        self.set_start(start)
    }

    fn set_start(&mut self, start: Option<Seqno>) -> bool {
        let is_moved = self.start != start;
        self.start = start;
        is_moved
    }

    /// Returns the seqno from which superseded versions are kept; `None` if none are kept.
    pub fn start(&self) -> Option<Seqno> {
        self.start
    }

    /// Returns the collections whose history is kept, ascending.
    pub fn collections(&self) -> &Arc<[CollectionId]> {
        &self.collections
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vbucket::Vbucket;
    use nacre_types::{Now, VbUuid, Vbid};

    fn grow(vbucket: &mut Vbucket, count: u64) {
        (0..count).for_each(|_| vbucket.record_event(b"e", false, b"{}", Now::default()));
    }

    #[test]
    fn history_begins_where_a_copy_becomes_the_active_one() {
        let mut vbucket = Vbucket::create(Vbid(0), VbUuid(1), 0);
        grow(&mut vbucket, 3);
        assert!(vbucket.keep_history(Some([CollectionId(8)].into())));
        assert_eq!(vbucket.history_start(), Some(Seqno(4)));
        assert!(!vbucket.keep_history(Some([CollectionId(9)].into())), "it began before");
        vbucket.hold(0);
        assert_eq!(vbucket.history_start(), Some(Seqno(4)), "it may go on");
        vbucket.deactivate(VbState::Replica);
        assert_eq!(vbucket.history_start(), None);
        assert!(vbucket.history_collections().is_empty() && vbucket.take_record_changed());
        vbucket.activate(2, VbUuid(2));
        assert_eq!(vbucket.history_start(), Some(Seqno(4)));
        assert_eq!(vbucket.history_collections()[..], [CollectionId(9)]);
        vbucket.clear(VbState::Active, VbUuid(3));
        assert_eq!(vbucket.history_start(), Some(Seqno(1)), "another history");
    }

    #[test]
    fn stored_history_stays_until_the_wanted_collections_are_known() {
        let mut vbucket = Vbucket::create(Vbid(0), VbUuid(1), 0);
        grow(&mut vbucket, 5);
        vbucket.retention = Retention::starting_at(Some(Seqno(2)));
        vbucket.mark_in_doubt(1);
        vbucket.activate(1, VbUuid(2));
        assert_eq!(vbucket.history_start(), Some(Seqno(2)));
        assert!(vbucket.forget_history(Seqno(99)), "but no further than to its end");
        assert_eq!(vbucket.history_start(), Some(Seqno(6)));
        assert!(vbucket.keep_history(None));
        assert_eq!(vbucket.history_start(), None);
        assert!(!vbucket.forget_history(Seqno(99)));
    }
}
