//! The versions that were read and are not done, and the phase of each.

use crate::Arriving;
use crate::message::{Over, Wanted};
use nacre_types::{Document, Seqno, Vbid};
use std::collections::{BTreeMap, BTreeSet};

/// The phase of a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Waits for its turn.
    Queued,
    /// Waits for the target's version.
    LookingUp,
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
    fn is_on_its_way(self) -> bool {
        matches!(self, Phase::LookingUp | Phase::Writing)
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
    /// The target's version, when it is in conflict.
    pub rival: Option<Arriving>,
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
    pub fn new(document: Document, key: Vec<u8>, vbid: Vbid, without_transaction: bool) -> Item {
        Item {
            document,
            key,
            vbid,
            without_transaction,
            task: Task::Decide,
            rival: None,
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

/// The outstanding versions, by seqno.
#[derive(Debug, Default)]
pub(super) struct Outstanding {
    items: BTreeMap<Seqno, Item>,
    queue: BTreeSet<Seqno>,
    timers: BTreeSet<(u64, Seqno)>,
    newest: BTreeMap<Vec<u8>, Seqno>,
    stuck: usize,
    /// Bytes of versions that are neither on their way nor put aside.
    held_bytes: usize,
}

impl Outstanding {
    /// The first that is not done.
    pub fn first(&self) -> Option<Seqno> {
        self.items.first_key_value().map(|(seqno, _)| *seqno)
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

    pub fn get(&self, seqno: Seqno) -> Option<&Item> {
        self.items.get(&seqno)
    }

    pub fn get_mut(&mut self, seqno: Seqno) -> Option<&mut Item> {
        self.items.get_mut(&seqno)
    }

    pub fn iter(&self) -> impl Iterator<Item = (Seqno, &Item)> {
        self.items.iter().map(|(seqno, item)| (*seqno, item))
    }

    /// The newest version of a key that is not done.
    pub fn newest_of(&self, key: &[u8]) -> Option<Seqno> {
        self.newest.get(key).copied()
    }

    /// Adds a version. Returns the older one of the same key, if that has not been sent and so need not be.
    pub fn add(&mut self, item: Item) -> Option<Item> {
        let seqno = item.document.meta.seqno;
        let older = self.newest.insert(item.document.key().to_vec(), seqno);
        self.held_bytes += item.document.memory_bytes();
        self.items.insert(seqno, item);
        self.queue.insert(seqno);
        let older = older.filter(|older| {
            let phase = self.items.get(older).map(Item::phase);
            matches!(phase, Some(Phase::Queued | Phase::Waiting))
        })?;
        self.remove(older).map(|(item, _)| item)
    }

    /// Sets the phase of a version, until `timer_ns` if that is given. Returns the bytes of the window that become
    /// free.
    pub fn set_phase(&mut self, seqno: Seqno, phase: Phase, timer_ns: Option<u64>) -> usize {
        let Some(item) = self.items.get_mut(&seqno) else { return 0 };
        let bytes = item.document.memory_bytes();
        let was_held = !item.phase.is_on_its_way() && !item.is_stuck;
        let is_held = !phase.is_on_its_way() && !item.is_stuck;
        self.held_bytes += if is_held { bytes } else { 0 };
        self.held_bytes = self.held_bytes.saturating_sub(if was_held { bytes } else { 0 });
        if let Some(timer) = item.timer_ns {
            self.timers.remove(&(timer, seqno));
        }
        item.timer_ns = timer_ns;
        self.timers.extend(timer_ns.map(|timer| (timer, seqno)));
        item.phase = phase;
        match phase {
            Phase::Queued => self.queue.insert(seqno),
            _ => self.queue.remove(&seqno),
        };
        std::mem::take(&mut item.charged)
    }

    /// Notes that a version takes so much of the window.
    pub fn charge(&mut self, seqno: Seqno, bytes: usize) {
        if let Some(item) = self.items.get_mut(&seqno) {
            item.charged += bytes;
        }
    }

    /// Puts a version aside, which is about to wait. Returns whether it was not before.
    pub fn put_aside(&mut self, seqno: Seqno) -> bool {
        let Some(item) = self.items.get_mut(&seqno) else { return false };
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
    pub fn remove(&mut self, seqno: Seqno) -> Option<(Item, usize)> {
        let charged = self.set_phase(seqno, Phase::Queued, None);
        self.queue.remove(&seqno);
        let item = self.items.remove(&seqno)?;
        self.stuck -= usize::from(item.is_stuck);
        if !item.is_stuck {
            self.held_bytes = self.held_bytes.saturating_sub(item.document.memory_bytes());
        }
        if self.newest_of(item.document.key()) == Some(seqno) {
            self.newest.remove(item.document.key());
        }
        Some((item, charged))
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        *self = Outstanding::default();
    }

    /// The first whose turn it is.
    pub fn next(&self) -> Option<Seqno> {
        self.queue.first().copied()
    }

    /// The next whose time is up.
    pub fn due(&self, now_ns: u64) -> Option<Seqno> {
        self.timers.first().filter(|(timer, _)| *timer <= now_ns).map(|(_, seqno)| *seqno)
    }

    /// When the time of the next is up.
    pub fn next_timer_ns(&self) -> Option<u64> {
        self.timers.first().map(|(timer, _)| *timer)
    }

    /// Returns the versions that the target has to answer.
    pub fn on_their_way(&self) -> Vec<Seqno> {
        let of_target = self.items.iter().filter(|(_, item)| item.phase.is_on_its_way());
        of_target.map(|(seqno, _)| *seqno).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_types::Meta;

    fn item(key: &[u8], seqno: u64) -> Item {
        let meta = Meta { seqno: Seqno(seqno), ..Meta::default() };
        Item::new(Document::new(meta, key, b"v"), key.to_vec(), Vbid(0), false)
    }

    #[test]
    fn a_newer_version_takes_the_place_of_one_that_was_not_sent() {
        let mut outstanding = Outstanding::default();
        assert!(outstanding.add(item(b"\0a", 1)).is_none());
        let bytes = outstanding.held_bytes();
        let older = outstanding.add(item(b"\0a", 2)).unwrap();
        assert_eq!(older.document.meta.seqno, Seqno(1));
        assert_eq!((outstanding.first(), outstanding.held_bytes()), (Some(Seqno(2)), bytes));
        outstanding.set_phase(Seqno(2), Phase::Writing, Some(9));
        assert_eq!(outstanding.held_bytes(), 0);
        assert!(outstanding.add(item(b"\0a", 3)).is_none(), "that one is on its way");
        assert_eq!((outstanding.len(), outstanding.next()), (2, Some(Seqno(3))));
        assert_eq!((outstanding.due(8), outstanding.due(9)), (None, Some(Seqno(2))));
        assert!(outstanding.remove(Seqno(2)).is_some());
        assert_eq!(outstanding.newest_of(b"\0a"), Some(Seqno(3)));
        assert_eq!(outstanding.next_timer_ns(), None);
    }

    #[test]
    fn what_is_put_aside_holds_nothing_up() {
        let mut outstanding = Outstanding::default();
        outstanding.add(item(b"\0a", 1));
        outstanding.set_phase(Seqno(1), Phase::Writing, None);
        assert!(outstanding.put_aside(Seqno(1)) && !outstanding.put_aside(Seqno(1)));
        outstanding.set_phase(Seqno(1), Phase::Waiting, Some(5));
        assert_eq!((outstanding.held_bytes(), outstanding.stuck()), (0, 1));
        outstanding.remove(Seqno(1));
        assert_eq!((outstanding.held_bytes(), outstanding.stuck(), outstanding.len()), (0, 0, 0));
    }
}
