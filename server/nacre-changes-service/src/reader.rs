//! The history of one collection in the vBuckets that this node serves, for as long as it serves them.
//!
//! A read counts only if the vBucket was served here, on the same branch of its history, before and after it: so no
//! change is given that another node has overruled, and none twice.

use super::{Gone, Stand, resolve};
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
    /// The reader has dropped these vBuckets: they are served elsewhere, or on another branch.
    Lost(Vbids),
    /// There is nothing now; the waiter is woken when that may change.
    Nothing,
    /// There will not be more.
    Over,
    /// The reader cannot go on, for this reason.
    Broken(&'static str),
}

/// A reader of vBuckets that this node serves.
pub(crate) struct Reader {
    node: Arc<Node>,
    consumer: ChangeConsumer,
    collection: CollectionId,
    /// The branches that are read.
    branches: BTreeMap<Vbid, VbUuid>,
    /// After how many [arrangements](Bucket::arrangements) all of them were served.
    arrangements: u64,
    /// A message that waits until lost vBuckets were reported.
    held: Option<(Vbid, Message)>,
    broken: Option<&'static str>,
}

impl Reader {
    /// Reads nothing yet. `waiter` is woken when there may be more.
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

    /// Begins to read a vBucket. Returns false if it is not served here now. `stand` is moved to the current branch,
    /// and ends no later than the present history if it has an end.
    ///
    /// # Errors
    /// [`Gone`] when the vBucket has another history than `stand`.
    pub fn open(&mut self, vbid: Vbid, stand: &mut Stand) -> Result<bool, Gone> {
        if !self.consumer.bucket.has_lease(self.node.now()) {
            return Ok(false);
        }
        self.consumer.watch(vbid);
        let ChangeConsumer { bucket, producer, .. } = &mut self.consumer;
        let Some(mut vbucket) = bucket.active(vbid) else { return Ok(false) };
        stand.resume(vbid, &vbucket)?;
        let wanted = Wanted {
            interest: Interest::Collections(BTreeSet::from([self.collection])),
            end: stand.end,
            advances: true,
            skips_deletes: false,
            history: false,
        };
        let address = Address { vbid, stream_id: None, opaque: 0 };
        producer.open(&mut vbucket, address, stand.point, wanted);
        self.branches.insert(vbid, stand.point.vb_uuid);
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
            // The read was made before this check: it counts if nothing has changed by now.
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

    /// Stops to read vBuckets that are not served here any more.
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
                // A node that serves the vBucket again begins a new branch.
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

    /// Returns true if nothing is on its way from the store: after [`Read::Nothing`] everything was given.
    pub fn is_caught_up(&self) -> bool {
        !self.consumer.producer.holds_scans()
    }
}

impl Stand {
    /// Moves a position to the current branch of a vBucket; if it has an end, no further than the present history.
    ///
    /// # Errors
    /// [`Gone`] when the vBucket has another history.
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
                    "deletions after it were forgotten, or its history is unknown ({vbid})"
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
