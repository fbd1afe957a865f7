//! Durable writes of a bucket: the level that each needs, and from its prepare to its completion.

use crate::{Bucket, Ticket, Waiter};
use nacre_types::{Now, Vbid};
use nacre_vbucket::{Command, Completion, Cost, Level, Refusal, Reply, Token, Vbucket};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The reply to a durable write, the ticket for its completion if it was prepared, whether history grew, and what it took.
pub(crate) type Prepared = (Result<Reply, Refusal>, Option<Arc<Ticket<Option<Token>>>>, bool, Cost);

/// Why a write cannot have the durability it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unattainable {
    /// The level waits for a disk, and the bucket lives in memory.
    NeedsStore,
    /// Not enough nodes hold a copy.
    TooFewCopies,
}

impl Bucket {
    /// The level that a durable write to `vbid` needs: what it asks for, but not less than the bucket's minimum. `None` for a write
    /// that counts as soon as it is in memory.
    ///
    /// # Errors
    /// Why the level cannot be had.
    pub fn durability(
        &self,
        asked: Option<Level>,
        vbid: Vbid,
    ) -> Result<Option<Level>, Unattainable> {
        let minimum = match self.durability_min_level.load(Ordering::Relaxed) {
            0 => None,
            1 => Some(Level::Majority),
            2 => Some(Level::MajorityAndPersistToActive),
            _ => Some(Level::PersistToMajority),
        };
        let Some(level) = asked.max(minimum) else { return Ok(None) };
        if self.store.is_none() && level > Level::Majority {
            return Err(Unattainable::NeedsStore);
        }
        let Some(vbucket) = self.vbucket(vbid) else { return Ok(Some(level)) };
        if !vbucket.can_be_durable() {
            return Err(Unattainable::TooFewCopies);
        }
        // Where one copy is the majority, what is in memory here is in memory on the majority.
        let is_plain = level == Level::Majority && vbucket.is_its_own_majority();
        Ok(Some(level).filter(|_| !is_plain))
    }

    /// Carries out `command` as a durable write. The reply is that of the prepare; it counts once the ticket says where
    /// the write was committed.
    pub fn prepare(
        &self,
        vbid: Vbid,
        key: &[u8],
        command: &Command<'_>,
        (level, deadline_ns): (Level, u64),
        now: Now,
        waiter: &Arc<dyn Waiter>,
    ) -> Option<Prepared> {
        let prepared = self.change(vbid, |vbucket| {
            if self.lacks_lease(vbucket, now) {
                return (Err(Refusal::NoLease), None, false, Cost::default());
            }
            let (reply, seqno) = vbucket.prepare(key, command, level, deadline_ns, now);
            // Entered under the lock: nobody can complete it before.
            let ticket = match (&reply, seqno) {
                (Ok(_), Some(seqno)) => {
                    let (ticket, first) = self.waits.durable(vbid, seqno, waiter);
                    if first {
                        // From now on there are deadlines to look at.
                        self.keeper.wake();
                    }
                    Some(ticket)
                }
                _ => None,
            };
            (reply, ticket, seqno.is_some(), vbucket.cost())
        })?;
        if prepared.2 {
            self.note(vbid);
        }
        Some(prepared)
    }

    /// Commits the durable writes that have come far enough, and gives up those whose time is over.
    pub(crate) fn complete_durable_writes(&self, now: Now) {
        for vbid in (0..self.vbucket_count()).map(Vbid) {
            self.complete(vbid, |vbucket| vbucket.complete(now));
        }
        self.wake_readers();
    }

    /// Changes a vBucket by `work`, and settles the tickets of the durable writes that have ended with it.
    pub fn complete(&self, vbid: Vbid, work: impl FnOnce(&mut Vbucket) -> Vec<Completion>) {
        let completions = self.change(vbid, work).unwrap_or_default();
        if !completions.is_empty() {
            self.note(vbid);
            self.waits.complete(vbid, &completions);
        }
    }
}
