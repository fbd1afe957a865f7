//! Which superseded versions a vBucket has its store keep: those of some collections, from a seqno on.
//!
//! Memory keeps every version anyway, for as long as it keeps that part of history. Only the copy that makes history keeps
//! it: one that follows is not sent every version, so that its history begins when it becomes the active copy.

use crate::vbucket::Vbucket;
use nacre_types::{CollectionId, Seqno, VbState};
use std::sync::Arc;

/// Which versions the store keeps.
#[derive(Clone, Debug, Default)]
pub(crate) struct Retention {
    /// True once the bucket has set what it wants; until then, stored versions stay.
    is_told: bool,
    /// Collections that the bucket wants kept.
    wanted: Option<Arc<[CollectionId]>>,
    /// Collections that are kept, ascending; empty if there is no start.
    collections: Arc<[CollectionId]>,
    start: Option<Seqno>,
}

impl Retention {
    /// Creates the retention that a vBucket's record describes, before the bucket has set its collections.
    pub fn starting_at(start: Option<Seqno>) -> Retention {
        Retention { start, ..Retention::default() }
    }

    /// Returns the retention for a history that starts again: the wanted collections stay.
    pub fn begun_anew(&self) -> Retention {
        Retention { start: None, collections: Arc::default(), ..self.clone() }
    }
}

impl Vbucket {
    /// Keeps the versions of these collections (ascending), from the present start of history, or from now on. `None`
    /// drops all kept history. Returns true if the start of history moves, and must be stored.
    pub fn keep_history(&mut self, collections: Option<Arc<[CollectionId]>>) -> bool {
        self.retention.is_told = true;
        self.retention.wanted = collections;
        self.settle_history()
    }

    /// Moves the start of history to `start`, if history is kept and starts before it. Returns true if that must be
    /// stored.
    pub fn forget_history(&mut self, start: Seqno) -> bool {
        let end = self.high_seqno().next();
        let later = self.retention.start.map(|known| start.min(end).max(known));
        self.set_history_start(later)
    }

    /// Adapts the kept history to the wanted collections and to the role of this copy.
    pub(crate) fn settle_history(&mut self) -> bool {
        let next = self.high_seqno().next();
        let Retention { is_told, wanted, start, .. } = &self.retention;
        let start = match (wanted, self.state) {
            (_, VbState::Replica | VbState::Dead) => None,
            (None, _) => start.filter(|_| !is_told),
            (Some(_), VbState::Active) => Some(start.unwrap_or(next)),
            (Some(_), VbState::Pending) => *start,
        };
        let kept = wanted.clone().filter(|_| start.is_some());
        self.retention.collections = kept.unwrap_or_default();
        self.set_history_start(start)
    }

    fn set_history_start(&mut self, start: Option<Seqno>) -> bool {
        let is_changed = self.retention.start != start;
        self.record_changed |= is_changed;
        self.retention.start = start;
        is_changed
    }

    /// From which seqno on superseded versions are kept; `None` when none are.
    pub fn history_start(&self) -> Option<Seqno> {
        self.retention.start
    }

    /// The collections that keep history, ascending.
    pub fn history_collections(&self) -> &Arc<[CollectionId]> {
        &self.retention.collections
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
    fn stored_history_stays_until_it_is_said_what_is_wanted() {
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
