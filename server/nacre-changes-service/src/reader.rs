//! The history of one collection in the vBuckets that this node serves, as long as it serves them.
//!
//! A read is valid only if this node served the vBucket, on the same branch of its history, both before and after the
//! read. The reader therefore returns no change that another node has discarded, and none twice.

use super::{Cursor, Gone, resolve};
use nacre_bucket::{Bucket, ChangeConsumer, Waiter};
use nacre_dcp::{Address, End, Interest, Message, Wanted};
use nacre_node::Node;
use nacre_types::{CollectionId, Seqno, VbUuid, Vbid, Vbids};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The result of a read.
pub(crate) enum Read {
    /// The next message of a vBucket.
    Message(Vbid, Message),
    /// The reader has dropped these vBuckets, because another node or another branch serves them.
    Lost(Vbids),
    /// No change is available now. The waiter is woken when that may change.
    Nothing,
    /// There will be no more changes.
    Over,
    /// The reader has failed, for this reason.
    Broken(&'static str),
}

/// A reader of vBuckets that this node serves.
pub(crate) struct Reader {
    node: Arc<Node>,
    consumer: ChangeConsumer,
    collection: CollectionId,
    /// The branch that is being read in each vBucket.
    branches: BTreeMap<Vbid, VbUuid>,
    /// The number of [arrangements](Bucket::arrangements) at the last check that this node serves all vBuckets.
    arrangements: u64,
    /// A message that waits until lost vBuckets are reported.
    held: Option<(Vbid, Message)>,
    broken: Option<&'static str>,
}

impl Reader {
    /// Creates a reader without vBuckets. `waiter` is woken when more changes may be available.
    pub fn new(
        node: &Arc<Node>,
        bucket: &Arc<Bucket>,
        collection: CollectionId,
        waiter: Arc<dyn Waiter>,
    ) -> Reader {
        Reader {
            node: Arc::clone(node),
            arrangements: bucket.arrangements.load(Ordering::Acquire),
            consumer: ChangeConsumer::new(Arc::clone(bucket), waiter),
            collection,
            branches: BTreeMap::new(),
            held: None,
            broken: None,
        }
    }

    /// Starts to read a vBucket. Returns false if this node does not serve it now. The call moves `cursor` to the
    /// current branch. If `cursor` has an end, the call limits the end to the present history.
    ///
    /// # Errors
    /// [`Gone`] if the history of the vBucket does not contain `cursor`.
    pub fn open(&mut self, vbid: Vbid, cursor: &mut Cursor) -> Result<bool, Gone> {
        if !self.consumer.bucket.has_lease(self.node.now()) {
            return Ok(false);
        }
        self.consumer.watch(vbid);
        let ChangeConsumer { bucket, producer, .. } = &mut self.consumer;
        let Some(mut vbucket) = bucket.active(vbid) else { return Ok(false) };
        cursor.resume(vbid, &vbucket)?;
        let wanted = Wanted {
            interest: Interest::Collections(BTreeSet::from([self.collection])),
            end: cursor.end,
            advances: true,
            skips_deletes: false,
            history: false,
        };
        let address = Address { vbid, stream_id: None, opaque: 0 };
        producer.open(&mut vbucket, address, cursor.point, wanted);
        self.branches.insert(vbid, cursor.point.vb_uuid);
        Ok(true)
    }

    /// Returns the next message. Never waits.
    pub fn next(&mut self) -> Read {
        loop {
            if self.consumer.bucket.is_closed() {
                return Read::Broken("the bucket has ended");
            }
            if let Some(why) = self.broken {
                return Read::Broken(why);
            }
            let next = self.held.take();
            let next = next.or_else(|| {
                self.consumer.next_message().map(|(address, message)| (address.vbid, message))
            });
            // The read happened before this check, so it is valid if nothing has changed by now.
            let lost = self.lose(next.is_some());
            if !lost.is_empty() {
                self.held = next.filter(|(vbid, _)| !lost.contains(*vbid));
                return Read::Lost(lost);
            }
            match next {
                Some((vbid, Message::End(end))) => {
                    self.branches.remove(&vbid);
                    self.broken = match end {
                        End::Complete => None,
                        End::NothingOfInterest => Some("the collection was dropped"),
                        _ => Some("its history cannot be read"),
                    };
                }
                Some((vbid, message)) => return Read::Message(vbid, message),
                None if self.consumer.has_scanned() || self.consumer.is_ready() => {
                    self.consumer.refresh();
                    self.consumer.begin_scans();
                }
                None if self.consumer.producer.is_empty() => return Read::Over,
                None => return Read::Nothing,
            }
        }
    }

    /// Stops reading vBuckets that this node no longer serves.
    fn lose(&mut self, has_read: bool) -> Vbids {
        let ChangeConsumer { bucket, producer, .. } = &mut self.consumer;
        let arrangements = bucket.arrangements.load(Ordering::Acquire);
        let has_lease = !has_read || bucket.has_lease(self.node.now());
        if has_lease && arrangements == self.arrangements {
            return Vbids::default();
        }
        self.arrangements = arrangements;
        let is_lost = |vbid: &Vbid, branch: &mut VbUuid| {
            let is_same = |vbucket: &nacre_vbucket::Vbucket| {
                // A node that serves the vBucket again starts a new branch.
                vbucket.failover_log().current() == *branch
            };
            !has_lease || !bucket.active(*vbid).is_some_and(|vbucket| is_same(&vbucket))
        };
        let lost: Vbids = self.branches.extract_if(.., is_lost).map(|(vbid, _)| vbid).collect();
        for vbid in lost.iter() {
            producer.close(vbid, None, false, &**bucket);
        }
        lost
    }

    /// Returns true if no change is still on its way from the store. After [`Read::Nothing`], all of them have then
    /// been returned.
    pub fn is_caught_up(&self) -> bool {
        !self.consumer.producer.holds_scans()
    }
}

impl Cursor {
    /// Moves a position to the current branch of a vBucket. If the position has an end, limits it to the present
    /// history.
    ///
    /// # Errors
    /// [`Gone`] if the vBucket has another history.
    pub(super) fn resume(
        &mut self,
        vbid: Vbid,
        vbucket: &nacre_vbucket::Vbucket,
    ) -> Result<(), Gone> {
        use nacre_dcp::Resume;
        let (log, high) = (vbucket.failover_log(), vbucket.high_seqno());
        self.point.vb_uuid = resolve(self.point.vb_uuid, log);
        match nacre_dcp::resume(&self.point, log, high, vbucket.purge_seqno()) {
            Resume::Continue => {}
            Resume::Rollback(Seqno::ZERO) => {
                return Err(Gone(format!(
                    "deletions after it were purged, or its history is unknown ({vbid})"
                )));
            }
            Resume::Rollback(to) => {
                return Err(Gone(format!(
                    "the end of its history was lost: only seqno {to} of {vbid} is left of {}",
                    self.point.seqno
                )));
            }
            Resume::Invalid => return Err(Gone("it contradicts itself".into())),
        }
        self.point.vb_uuid = log.current();
        if self.end != Seqno(u64::MAX) {
            self.end = self.end.min(high).max(self.point.seqno);
        }
        Ok(())
    }
}
