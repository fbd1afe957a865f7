//! Changes from other nodes: the requests in flight, and the answers that have not been read yet.
//!
//! A vBucket belongs to one request or one answer at a time, so that no change is returned twice. An answer may arrive
//! after one of its vBuckets was reassigned to another node: that part of the answer is ignored.

use super::Cursor;
use super::part::{ChangesBatch, ChangesPart, ChangesReply, PeerChange, Position};
use nacre_bucket::Waiter;
use nacre_dcp::ResumePoint;
use nacre_node::scatter_gather::{NoReply, Vbids, read_reply};
use nacre_node::{PeerError, ReplyCallback};
use nacre_types::{NodeId, VbUuid, Vbid};
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Maximum number of requests in flight to a node: one that waits for new changes, and one about vBuckets that were
/// assigned to the node since.
const ASKED_MAX: usize = 2;

/// Requests to other nodes, and their answers.
#[derive(Default)]
pub(super) struct PeerReads {
    asked: Vec<Asked>,
    batches: VecDeque<PeerBatch>,
    inbox: Arc<Inbox>,
    serial: u64,
}

/// Answers as they arrived, with the serial numbers of their requests.
type Inbox = Mutex<Vec<(u64, Result<Vec<u8>, PeerError>)>>;

/// A node's reply to a request for changes, or the reason why there is none.
type PeerReply = Result<Result<ChangesReply, NoReply>, String>;

/// A request in flight.
struct Asked {
    serial: u64,
    node: NodeId,
    /// The vBuckets of the request that were not reassigned to another node since.
    vbids: Vbids,
    /// True if the request does not wait for changes, because another one does.
    is_extra: bool,
}

/// An answer of a node.
struct PeerBatch {
    vbids: Vbids,
    is_extra: bool,
    batch: ChangesBatch,
    branches: BTreeMap<Vbid, VbUuid>,
}

/// The next part of an answer.
pub(super) enum PeerEvent {
    /// A change, and the consumer's position after it.
    Change(PeerChange, ResumePoint),
    /// The end of an answer.
    End(Ended),
}

/// The part of an answer after its changes.
pub(super) struct Ended {
    /// The vBuckets of the request, except those that another node serves.
    pub vbids: Vbids,
    /// vBuckets that the node does not serve.
    pub not_owned: Vbids,
    /// New positions of the consumer, in the vBuckets in which they have changed.
    pub cursors: Vec<(Vbid, Cursor)>,
    /// vBuckets whose history differs from the consumer's, with the reason.
    pub gone: Vec<(Vbid, String)>,
    /// True if the answer contains all present changes.
    pub is_all: bool,
    /// True if there will be no more changes.
    pub is_over: bool,
    /// True if the next request must wait for a while.
    pub rests: bool,
}

impl PeerReads {
    /// Returns true if no request is in flight and no answer is left.
    pub fn is_idle(&self) -> bool {
        self.asked.is_empty() && self.batches.is_empty()
    }

    /// Returns whether a node can be asked now, and whether the request may wait for new changes.
    pub fn may_ask(&self, node: NodeId) -> (bool, bool) {
        let asked = self.asked.iter().filter(|asked| asked.node == node).count();
        (asked < ASKED_MAX, asked == 0)
    }

    /// Registers a request about vBuckets. Returns the callback that stores the answer and wakes `waiter`.
    pub fn expect(
        &mut self,
        node: NodeId,
        vbids: Vbids,
        waiter: &Arc<dyn Waiter>,
    ) -> ReplyCallback {
        self.serial += 1;
        let serial = self.serial;
        let is_extra = !self.may_ask(node).1;
        self.asked.push(Asked { serial, node, vbids, is_extra });
        let (inbox, waiter) = (Arc::clone(&self.inbox), Arc::clone(waiter));
        Box::new(move |answer| {
            inbox.lock().push((serial, answer));
            waiter.wake();
        })
    }

    /// Removes vBuckets from requests to nodes that are no longer the right ones. Returns the vBuckets.
    pub fn take_back(&mut self, is_wrong: impl Fn(Vbid, NodeId) -> bool) -> Vbids {
        let mut taken = Vbids::default();
        for asked in &mut self.asked {
            let wrong: Vbids =
                asked.vbids.iter().filter(|vbid| is_wrong(*vbid, asked.node)).collect();
            asked.vbids.remove_all(&wrong);
            taken.add_all(&wrong);
        }
        self.asked.retain(|asked| !asked.vbids.is_empty());
        taken
    }

    /// Processes the answers that have arrived. Returns the failed ones, with the vBuckets of their requests.
    pub fn take_replies(&mut self) -> Vec<(Vbids, PeerReply)> {
        let mut others = Vec::new();
        if self.asked.is_empty() {
            return others;
        }
        for (serial, answer) in std::mem::take(&mut *self.inbox.lock()) {
            let mut found = self.asked.extract_if(.., |asked| asked.serial == serial);
            let Some(Asked { vbids, is_extra, .. }) = found.next() else { continue };
            match read_reply::<ChangesPart>(answer).map_err(|why| why.to_string()) {
                Ok(Ok(ChangesReply::Batch(batch))) => {
                    let branch =
                        |position: &Position| (position.vbid, position.cursor().point.vb_uuid);
                    let branches = batch.after.iter().map(branch).collect();
                    self.batches.push_back(PeerBatch { vbids, is_extra, batch, branches });
                }
                other => others.push((vbids, other)),
            }
        }
        others
    }

    /// Returns the next part of the answers.
    pub fn next(&mut self) -> Option<PeerEvent> {
        let PeerBatch { vbids, batch, branches, .. } = self.batches.front_mut()?;
        while let Some(change) = batch.changes.pop_front() {
            let branch = branches.get(&change.vbid).filter(|_| vbids.contains(change.vbid));
            if let Some(branch) = branch {
                let point = change.point(*branch);
                return Some(PeerEvent::Change(change, point));
            }
        }
        let PeerBatch { mut vbids, is_extra, batch, .. } = self.batches.pop_front()?;
        let cursors = batch.after.iter().map(|position| (position.vbid, position.cursor()));
        let cursors: Vec<_> = cursors.filter(|(vbid, _)| vbids.contains(*vbid)).collect();
        let gone = batch.gone.into_iter().filter(|(vbid, _)| vbids.contains(*vbid)).collect();
        let not_owned = batch.not_owned.iter().filter(|vbid| vbids.contains(*vbid)).collect();
        vbids.remove_all(&not_owned);
        let rests = batch.is_crowded || is_extra && batch.is_all;
        let (is_all, is_over) = (batch.is_all, batch.is_over);
        Some(PeerEvent::End(Ended { vbids, not_owned, cursors, gone, is_all, is_over, rests }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_bucket::Signal;
    use nacre_types::{CollectionId, Document, Meta, Seqno};

    const NODE: NodeId = NodeId(2);

    fn vbids(numbers: &[u16]) -> Vbids {
        numbers.iter().copied().map(Vbid).collect()
    }

    fn expect(others: &mut PeerReads, numbers: &[u16]) -> ReplyCallback {
        let waiter: Arc<dyn Waiter> = Arc::new(Signal::default());
        others.expect(NODE, vbids(numbers), &waiter)
    }

    fn cursor(seqno: u64) -> Cursor {
        let at = Seqno(seqno);
        let point =
            ResumePoint { vb_uuid: VbUuid(7), seqno: at, snapshot_start: at, snapshot_end: at };
        Cursor { point, end: Seqno(u64::MAX) }
    }

    /// Creates an answer with a change in each of these vBuckets.
    fn batch(numbers: &[u16], is_all: bool) -> Result<Vec<u8>, PeerError> {
        let change = |vbid: &u16| {
            let document = Document::new(Meta { seqno: Seqno(5), ..Meta::default() }, b"\0k", b"1");
            PeerChange::new(Vbid(*vbid), &cursor(5).point, &document, true)
        };
        let after = numbers.iter().map(|vbid| Position::new(Vbid(*vbid), &cursor(6))).collect();
        let changes = numbers.iter().map(change).collect();
        let batch = ChangesBatch { changes, after, is_all, ..ChangesBatch::default() };
        Ok(postcard::to_stdvec(&Ok::<_, NoReply>(ChangesReply::Batch(batch))).unwrap())
    }

    fn shown(others: &mut PeerReads) -> Vec<String> {
        assert!(others.take_replies().is_empty());
        let list = |vbids: &Vbids| vbids.iter().map(|vbid| vbid.0).collect::<Vec<_>>();
        let show = |heard| match heard {
            PeerEvent::Change(change, point) => {
                let document = change.document(CollectionId::DEFAULT);
                assert_eq!((document.name(), document.body()), (&b"k"[..], &b"1"[..]));
                format!("{}@{}", change.vbid.0, point.seqno)
            }
            PeerEvent::End(Ended { vbids, cursors, rests, .. }) => {
                let cursors = cursors.iter().map(|(vbid, _)| *vbid).collect();
                format!(
                    "{:?} at {:?}{}",
                    list(&vbids),
                    list(&cursors),
                    if rests { ", rests" } else { "" }
                )
            }
        };
        std::iter::from_fn(|| others.next()).map(show).collect()
    }

    #[test]
    fn reassigned_vbuckets_are_ignored_in_late_answers() {
        let mut others = PeerReads::default();
        let answer = expect(&mut others, &[1, 2, 3]);
        let taken = others.take_back(|vbid, node| node == NODE && vbid == Vbid(2));
        assert_eq!(taken, vbids(&[2]));
        answer(batch(&[1, 2, 3], true));
        assert_eq!(shown(&mut others), ["1@5", "3@5", "[1, 3] at [1, 3]"]);
        let answer = expect(&mut others, &[1, 2]);
        others.take_back(|_, _| true);
        assert!(others.is_idle() && others.may_ask(NODE).1);
        expect(&mut others, &[1])(batch(&[1], true));
        answer(batch(&[1, 2], true));
        assert_eq!(shown(&mut others), ["1@5", "[1] at [1]"], "the late one tells nothing");
    }

    #[test]
    fn a_node_with_a_waiting_request_is_not_asked_again_at_once() {
        let mut others = PeerReads::default();
        let waits = expect(&mut others, &[1]);
        assert_eq!(others.may_ask(NODE), (true, false));
        let extra = expect(&mut others, &[2]);
        assert_eq!(others.may_ask(NODE), (false, false));
        assert_eq!(others.may_ask(NodeId(3)), (true, true));
        extra(batch(&[], true));
        assert_eq!(shown(&mut others), ["[2] at [], rests"]);
        expect(&mut others, &[2])(batch(&[2], false));
        assert_eq!(shown(&mut others), ["2@5", "[2] at [2]"], "there is more");
        waits(Err(PeerError::Lost("gone".into())));
        let lost = others.take_replies();
        assert!(matches!(&lost[..], [(of, Err(why))] if *of == vbids(&[1]) && why == "gone"));
        assert!(others.is_idle());
    }
}
