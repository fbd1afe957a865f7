//! The versions that were read and are not done, and the phase of each.

use crate::Arriving;
use crate::message::{Over, VersionId, Wanted};
use nacre_types::{Cas, Document, Vbid};
use std::collections::{BTreeMap, BTreeSet};

/// The phase of a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Waits for its turn.
    Queued,
    /// Waits for this part of the target's version.
    LookingUp(Wanted),
    /// The conflict to be logged.
    Logging,
    /// The resolver of the source.
    Resolving,
    /// The decision to be written at the source.
    Merging,
    /// The target's answer.
    Writing,
    /// Time to pass.
    Waiting,
}

impl Phase {
    /// Returns true if the target has to answer.
    pub fn is_on_its_way(self) -> bool {
        matches!(self, Phase::LookingUp(_) | Phase::Writing)
    }
}

/// The next step of a version when its turn comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Task {
    /// Decides about it.
    Decide,
    /// Asks the target for its version.
    LookUp(Wanted),
    /// Writes it.
    Write(Over),
}

/// A version that is not done.
#[derive(Debug)]
pub(super) struct Item {
    /// Names the version on its way to this collection.
    pub id: VersionId,
    /// The version.
    pub document: Document,
    /// The key with the target's collection.
    pub key: Vec<u8>,
    /// The target's vBucket.
    pub vbid: Vbid,
    /// True if it goes without the attribute of a transaction.
    pub without_transaction: bool,
    /// The next step.
    pub task: Task,
    /// Number of the last request to the target.
    pub request: u64,
    /// The target's version, when it is in conflict.
    pub rival: Option<Arriving>,
    /// The CAS of the version of the target with which the conflict is logged.
    pub logged_with: Option<Cas>,
    /// The CAS of the version of the target that stays if it is still there: the target has judged, or has another version.
    pub refused_over: Option<Cas>,
    /// The CAS of a version of the target that the metadata do not tell apart from this one.
    pub tied_with: Option<Cas>,
    /// Number of failures.
    pub attempts: u32,
    /// Number of versions that were done at the first failure.
    pub done_before: u64,
    /// True if it was put aside.
    pub is_stuck: bool,
    phase: Phase,
    /// End of the phase; `None` if it has no limit.
    timer_ns: Option<u64>,
    /// Bytes that it takes of the window.
    charged: usize,
}

impl Item {
    /// The copy of `document` with this number, on its way to `key` in `vbid` of the target.
    pub fn new(copy: u16, document: Document, key: Vec<u8>, vbid: Vbid) -> Item {
        Item {
            id: VersionId { seqno: document.meta.seqno, copy },
            document,
            key,
            vbid,
            without_transaction: false,
            task: Task::Decide,
            request: 0,
            rival: None,
            logged_with: None,
            refused_over: None,
            tied_with: None,
            attempts: 0,
            done_before: 0,
            is_stuck: false,
            phase: Phase::Queued,
            timer_ns: None,
            charged: 0,
        }
    }

    pub fn phase(&self) -> Phase {
        self.phase
    }
}

/// The outstanding versions, in the order of history.
#[derive(Debug, Default)]
pub(super) struct Outstanding {
    items: BTreeMap<VersionId, Item>,
    queue: BTreeSet<VersionId>,
    timers: BTreeSet<(u64, VersionId)>,
    /// The newest one of each key of the target.
    newest: BTreeMap<Vec<u8>, VersionId>,
    stuck: usize,
    /// Bytes of versions that are neither on their way nor put aside.
    held_bytes: usize,
}

impl Outstanding {
    /// The first that is not done.
    pub fn first(&self) -> Option<VersionId> {
        self.items.first_key_value().map(|(id, _)| *id)
    }

    /// Returns the number of versions.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Returns the number of versions that were put aside.
    pub fn stuck(&self) -> usize {
        self.stuck
    }

    /// Returns the bytes of waiting versions in memory.
    pub fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    pub fn get(&self, id: VersionId) -> Option<&Item> {
        self.items.get(&id)
    }

    pub fn get_mut(&mut self, id: VersionId) -> Option<&mut Item> {
        self.items.get_mut(&id)
    }

    pub fn iter(&self) -> impl Iterator<Item = (VersionId, &Item)> {
        self.items.iter().map(|(id, item)| (*id, item))
    }

    /// The newest version of a key of the target that is not done.
    pub fn newest_of(&self, key: &[u8]) -> Option<VersionId> {
        self.newest.get(key).copied()
    }

    /// Adds a version. Returns the older one of the same key, if that has not been sent and so need not be.
    pub fn add(&mut self, item: Item) -> Option<Item> {
        let id = item.id;
        let older = self.newest.insert(item.key.clone(), id);
        self.held_bytes += item.document.memory_bytes();
        self.items.insert(id, item);
        self.queue.insert(id);
        let older = older.filter(|older| {
            let phase = self.items.get(older).map(Item::phase);
            matches!(phase, Some(Phase::Queued | Phase::Waiting))
        })?;
        self.remove(older).map(|(item, _)| item)
    }

    /// Sets the phase of a version, until `timer_ns` if that is given. Returns the bytes of the window that become
    /// free.
    pub fn set_phase(&mut self, id: VersionId, phase: Phase, timer_ns: Option<u64>) -> usize {
        let Some(item) = self.items.get_mut(&id) else { return 0 };
        let bytes = item.document.memory_bytes();
        let was_held = !item.phase.is_on_its_way() && !item.is_stuck;
        let is_held = !phase.is_on_its_way() && !item.is_stuck;
        self.held_bytes += if is_held { bytes } else { 0 };
        self.held_bytes = self.held_bytes.saturating_sub(if was_held { bytes } else { 0 });
        if let Some(timer) = item.timer_ns {
            self.timers.remove(&(timer, id));
        }
        item.timer_ns = timer_ns;
        self.timers.extend(timer_ns.map(|timer| (timer, id)));
        item.phase = phase;
        match phase {
            Phase::Queued => self.queue.insert(id),
            _ => self.queue.remove(&id),
        };
        std::mem::take(&mut item.charged)
    }

    /// Notes that a version takes so much of the window.
    pub fn charge(&mut self, id: VersionId, bytes: usize) {
        if let Some(item) = self.items.get_mut(&id) {
            item.charged += bytes;
        }
    }

    /// Puts a version aside, which is about to wait. Returns whether it was not before.
    pub fn put_aside(&mut self, id: VersionId) -> bool {
        let Some(item) = self.items.get_mut(&id) else { return false };
        if item.is_stuck {
            return false;
        }
        if !item.phase.is_on_its_way() {
            self.held_bytes = self.held_bytes.saturating_sub(item.document.memory_bytes());
        }
        item.is_stuck = true;
        self.stuck += 1;
        true
    }

    /// Takes a version out. Returns how many bytes of the window it no longer takes, too.
    pub fn remove(&mut self, id: VersionId) -> Option<(Item, usize)> {
        let charged = self.set_phase(id, Phase::Queued, None);
        self.queue.remove(&id);
        let item = self.items.remove(&id)?;
        self.stuck -= usize::from(item.is_stuck);
        if !item.is_stuck {
            self.held_bytes = self.held_bytes.saturating_sub(item.document.memory_bytes());
        }
        if self.newest_of(&item.key) == Some(id) {
            self.newest.remove(&item.key);
        }
        Some((item, charged))
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        *self = Outstanding::default();
    }

    /// The first whose turn it is.
    pub fn next(&self) -> Option<VersionId> {
        self.queue.first().copied()
    }

    /// The next whose time is up.
    pub fn due(&self, now_ns: u64) -> Option<VersionId> {
        self.timers.first().filter(|(timer, _)| *timer <= now_ns).map(|(_, id)| *id)
    }

    /// When the time of the next is up.
    pub fn next_timer_ns(&self) -> Option<u64> {
        self.timers.first().map(|(timer, _)| *timer)
    }

    /// Returns the versions that the target has to answer.
    pub fn on_their_way(&self) -> Vec<VersionId> {
        let of_target = self.items.iter().filter(|(_, item)| item.phase.is_on_its_way());
        of_target.map(|(id, _)| *id).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_types::{Meta, Seqno};

    fn id(seqno: u64) -> VersionId {
        Seqno(seqno).into()
    }

    fn item(key: &[u8], seqno: u64) -> Item {
        let meta = Meta { seqno: Seqno(seqno), ..Meta::default() };
        Item::new(0, Document::new(meta, key, b"v"), key.to_vec(), Vbid(0))
    }

    #[test]
    fn a_newer_version_takes_the_place_of_one_that_was_not_sent() {
        let mut outstanding = Outstanding::default();
        assert!(outstanding.add(item(b"\0a", 1)).is_none());
        let bytes = outstanding.held_bytes();
        let older = outstanding.add(item(b"\0a", 2)).unwrap();
        assert_eq!(older.id, id(1));
        assert_eq!((outstanding.first(), outstanding.held_bytes()), (Some(id(2)), bytes));
        outstanding.set_phase(id(2), Phase::Writing, Some(9));
        assert_eq!(outstanding.held_bytes(), 0);
        assert!(outstanding.add(item(b"\0a", 3)).is_none(), "that one is on its way");
        assert_eq!((outstanding.len(), outstanding.next()), (2, Some(id(3))));
        assert_eq!((outstanding.due(8), outstanding.due(9)), (None, Some(id(2))));
        assert!(outstanding.remove(id(2)).is_some());
        assert_eq!(outstanding.newest_of(b"\0a"), Some(id(3)));
        assert_eq!(outstanding.next_timer_ns(), None);
    }

    #[test]
    fn what_is_put_aside_holds_nothing_up() {
        let mut outstanding = Outstanding::default();
        outstanding.add(item(b"\0a", 1));
        outstanding.set_phase(id(1), Phase::Writing, None);
        assert!(outstanding.put_aside(id(1)) && !outstanding.put_aside(id(1)));
        outstanding.set_phase(id(1), Phase::Waiting, Some(5));
        assert_eq!((outstanding.held_bytes(), outstanding.stuck()), (0, 1));
        outstanding.remove(id(1));
        assert_eq!((outstanding.held_bytes(), outstanding.stuck(), outstanding.len()), (0, 0, 0));
    }
}
