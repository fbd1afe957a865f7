//! Durable writes of a bucket: the level that each needs, and the steps from prepare to completion.

use crate::{Bucket, Ticket, Waiter};
use nacre_types::{Now, Vbid};
use nacre_vbucket::{Command, Cost, Level, Refusal, Reply, Token};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The reply to a durable write, the ticket for its completion if it was prepared, whether history grew, and the cost.
pub(crate) type Prepared = (Result<Reply, Refusal>, Option<Arc<Ticket<Option<Token>>>>, bool, Cost);

/// The reason why a write cannot reach its durability level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unattainable {
    /// The level requires a disk, and the bucket is in memory only.
    NeedsStore,
    /// Too few nodes hold a copy.
    TooFewCopies,
}

/// Returns the durability level of a write to `vbid`: the requested level, but at least the bucket's minimum. `None`
/// for a write that is complete as soon as it is in memory.
///
/// # Errors
/// Fails when the bucket cannot provide the level.
pub fn level_for(
    bucket: &Bucket,
    asked: Option<Level>,
    vbid: Vbid,
) -> Result<Option<Level>, Unattainable> {
    let minimum = match bucket.durability_min_level.load(Ordering::Relaxed) {
        0 => None,
        1 => Some(Level::Majority),
        2 => Some(Level::MajorityAndPersistToActive),
        _ => Some(Level::PersistToMajority),
    };
    let Some(level) = asked.max(minimum) else { return Ok(None) };
    if bucket.store.is_none() && level > Level::Majority {
        return Err(Unattainable::NeedsStore);
    }
    let Some(vbucket) = bucket.vbucket(vbid) else { return Ok(Some(level)) };
    if !vbucket.can_be_durable() {
        return Err(Unattainable::TooFewCopies);
    }
    // With a single copy the majority is this copy, and the write is already in its memory.
    let is_plain = level == Level::Majority && vbucket.is_its_own_majority();
    Ok(Some(level).filter(|_| !is_plain))
}

/// Carries out `command` as a durable write. The reply is that of the prepare; it becomes valid once the ticket holds
/// the token of the commit.
pub fn prepare(
    bucket: &Bucket,
    vbid: Vbid,
    key: &[u8],
    command: &Command<'_>,
    (level, deadline_ns): (Level, u64),
    now: Now,
    waiter: &Arc<dyn Waiter>,
) -> Option<Prepared> {
    let prepared = bucket.change(vbid, |vbucket| {
        if bucket.lacks_lease(vbucket, now) {
            return (Err(Refusal::NoLease), None, false, Cost::default());
        }
        let (reply, seqno) = vbucket.prepare(key, command, level, deadline_ns, now);
        // Entered under the vBucket's lock, so that the write cannot complete first.
        let ticket = match (&reply, seqno) {
            (Ok(_), Some(seqno)) => {
                let (ticket, first) = bucket.waits.durable(vbid, seqno, waiter);
                if first {
                    // The keeper checks deadlines only while there are any.
                    bucket.keeper.wake();
                }
                Some(ticket)
            }
            _ => None,
        };
        (reply, ticket, seqno.is_some(), vbucket.cost())
    })?;
    if prepared.2 {
        bucket.mark_dirty(vbid);
    }
    Some(prepared)
}

/// Commits the durable writes that enough copies hold, and aborts those whose deadline has passed.
pub(crate) fn complete_all(bucket: &Bucket, now: Now) {
    for vbid in (0..bucket.vbucket_count()).map(Vbid) {
        bucket.complete(vbid, |vbucket| vbucket.complete(now));
    }
    bucket.wake_listeners();
}
