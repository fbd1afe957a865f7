//! The versions read but not done, and the phase of each.

use crate::Arriving;
use crate::message::{Over, VersionId, Wanted};
use nacre_types::{Cas, Document, Vbid};
use std::collections::{BTreeMap, BTreeSet};

/// The phase of a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Queued for its next task.
    Queued,
    /// Waits for this part of the target's version.
    LookingUp(Wanted),
    /// Waits until the conflict is logged.
    Logging,
    /// Waits for the source's resolver.
    Resolving,
    /// Waits until the source has written the decision.
    Merging,
    /// Waits for the target's answer to a write.
    Writing,
    /// Backs off after trouble.
    Waiting,
}

impl Phase {
    /// Returns true if the version waits for an answer of the target.
    pub fn is_on_its_way(self) -> bool {
        matches!(self, Phase::LookingUp(_) | Phase::Writing)
    }
}

/// The next step of a version in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Task {
    /// Decide about the version.
    Decide,
    /// Look up the target's version.
    LookUp(Wanted),
    /// Write the version.
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
    /// True if the version is sent without the transaction attribute.
    pub without_transaction: bool,
    /// The next step.
    pub task: Task,
    /// Number of the last request to the target.
    pub request: u64,
    /// The target's version if the two are in conflict.
    pub rival: Option<Arriving>,
    /// CAS of the target's version in the last conflict logged.
    pub logged_with: Option<Cas>,
    /// CAS of the target's version that wins if it is still there, because the target refused a write over it.
    pub refused_over: Option<Cas>,
    /// CAS of a target's version whose metadata tie with this version.
    pub tied_with: Option<Cas>,
    /// Number of failures.
    pub attempts: u32,
    /// Number of versions done at the first failure.
    pub done_before: u64,
    /// True if the version was put aside.
    pub is_stuck: bool,
    phase: Phase,
    /// End of the phase in monotonic nanoseconds; `None` if it has no limit.
    timer_ns: Option<u64>,
    /// Bytes charged to the window.
    charged: usize,
}

impl Item {
    /// Creates copy number `copy` of `document`, to be sent to `key` in the target's `vbid`.
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

/// The outstanding versions, in history order.
#[derive(Debug, Default)]
pub(super) struct Outstanding {
    items: BTreeMap<VersionId, Item>,
    queue: BTreeSet<VersionId>,
    timers: BTreeSet<(u64, VersionId)>,
    /// The newest version of each key of the target.
    newest: BTreeMap<Vec<u8>, VersionId>,
    stuck: usize,
    /// Bytes of versions that are neither in flight nor put aside.
    held_bytes: usize,
}

impl Outstanding {
    /// Returns the first version that is not done.
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

    /// Returns the bytes of versions that are neither in flight nor put aside.
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

    /// Returns the newest outstanding version of a key of the target.
    pub fn newest_of(&self, key: &[u8]) -> Option<VersionId> {
        self.newest.get(key).copied()
    }

    /// Adds a version. Returns the older version of the same key if it was not sent: it is superseded.
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

    /// Sets the phase of a version, which ends at `timer_ns` if given. Returns the bytes freed in the window.
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

    /// Charges bytes of the window to a version.
    pub fn charge(&mut self, id: VersionId, bytes: usize) {
        if let Some(item) = self.items.get_mut(&id) {
            item.charged += bytes;
        }
    }

    /// Puts a version aside that is about to wait. Returns false if it was already put aside.
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

    /// Removes a version. Returns the version and the bytes freed in the window.
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

    /// Removes all versions.
    pub fn clear(&mut self) {
        *self = Outstanding::default();
    }

    /// Returns the first queued version.
    pub fn next(&self) -> Option<VersionId> {
        self.queue.first().copied()
    }

    /// Returns the first version whose timer has expired.
    pub fn due(&self, now_ns: u64) -> Option<VersionId> {
        self.timers.first().filter(|(timer, _)| *timer <= now_ns).map(|(_, id)| *id)
    }

    /// Returns the time of the first timer.
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
    fn versions_put_aside_delay_no_others() {
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
