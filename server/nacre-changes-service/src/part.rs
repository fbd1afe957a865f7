//! Messages between nodes about the changes of a collection: the start of a consumer, and the changes after its
//! positions. Each answer covers the vBuckets that the node serves while it answers. The node keeps no state between
//! requests.

use super::reader::{Read, Reader};
use super::{Cursor, Gone, Since, Until};
use nacre_bucket::{Bucket, Signal};
use nacre_dcp::ResumePoint;
use nacre_node::Node;
use nacre_node::scatter_gather::{NoReply, PeerMessage, Vbids};
use nacre_node::service::{Service, ServiceSpec};
use nacre_types::{
    Cas, CollectionId, DATATYPE_XATTR, DocKey, Document, Kind, Meta, Seqno, VbUuid, Vbid,
};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// The service's row in the service table.
static CHANGES: ServiceSpec = ServiceSpec::internal("changes");

/// Size of an answer: bytes of IDs and bodies, give or take one change, and the number of changes read for it. An
/// answer is larger than a piece for a client, because each answer opens new streams.
const ANSWER_BYTES: usize = 1 << 20;
const ANSWER_CHANGES: usize = 4096;
/// Maximum number of parked requests of other nodes that wait for changes. Each occupies a thread.
const WAITING_MAX: usize = 128;

/// A request about the changes of a collection.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ChangesPart {
    /// The name and the UUID of the bucket.
    pub bucket: (String, String),
    /// The collection.
    pub collection: u32,
    /// The request.
    pub call: ChangesCall,
}

/// A request about changes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum ChangesCall {
    /// Asks for the positions at which a new consumer starts.
    Begin {
        /// The vBuckets.
        vbids: Vbids,
        /// The start.
        from: From,
        /// True if the consumer stops after the changes that exist now.
        ends: bool,
    },
    /// Asks for the next changes.
    Read {
        /// The consumer's positions, in the order in which it wants to read the vBuckets.
        after: Vec<Position>,
        /// Restricts the changes to these documents.
        ids: Option<BTreeSet<Vec<u8>>>,
        /// True if the answer includes the bodies.
        bodies: bool,
        /// Maximum number of changes.
        limit: u64,
        /// Longest wait in milliseconds if there is no change.
        wait_ms: u64,
    },
}

/// The start of a consumer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum From {
    /// The start of the history.
    Beginning,
    /// After the changes that exist now.
    Now,
    /// These positions, and the start of the history in other vBuckets.
    Points(Vec<Position>),
}

/// A [`Cursor`] in a vBucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    /// The vBucket.
    pub vbid: Vbid,
    vb_uuid: u64,
    seqno: Seqno,
    snapshot: (Seqno, Seqno),
    end: Seqno,
}

impl Position {
    pub(super) fn new(vbid: Vbid, cursor: &Cursor) -> Position {
        let ResumePoint { vb_uuid, seqno, snapshot_start, snapshot_end } = cursor.point;
        let snapshot = (snapshot_start, snapshot_end);
        Position { vbid, vb_uuid: vb_uuid.0, seqno, snapshot, end: cursor.end }
    }

    pub(super) fn cursor(&self) -> Cursor {
        let point = ResumePoint {
            vb_uuid: VbUuid(self.vb_uuid),
            seqno: self.seqno,
            snapshot_start: self.snapshot.0,
            snapshot_end: self.snapshot.1,
        };
        Cursor { point, end: self.end }
    }
}

/// The next changes.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ChangesBatch {
    /// The changes, those of a vBucket in order.
    pub changes: VecDeque<PeerChange>,
    /// The consumer's positions after these changes, in the vBuckets in which they have changed.
    pub after: Vec<Position>,
    /// vBuckets that this node does not serve, or no longer: their changes may be incomplete.
    pub not_owned: Vbids,
    /// vBuckets whose history differs from the consumer's, with the reason. The answer contains no changes of them.
    pub gone: Vec<(Vbid, String)>,
    /// True if the answer contains all present changes of the other vBuckets.
    pub is_all: bool,
    /// True if the other vBuckets will have no more changes for this consumer.
    pub is_over: bool,
    /// True if the answer did not wait for changes because too many requests are parked.
    pub is_crowded: bool,
}

/// A change in a message to another node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerChange {
    /// The vBucket.
    pub vbid: Vbid,
    /// Position in the history, and its snapshot.
    seqno: Seqno,
    snapshot: (Seqno, Seqno),
    cas: Cas,
    rev: u64,
    flags: u32,
    expiry: u32,
    datatype: u8,
    is_alive: bool,
    #[serde(with = "serde_bytes")]
    name: Vec<u8>,
    /// Empty if the request does not include bodies.
    #[serde(with = "serde_bytes")]
    body: Vec<u8>,
}

impl PeerChange {
    pub(super) fn new(
        vbid: Vbid,
        point: &ResumePoint,
        document: &Document,
        has_body: bool,
    ) -> PeerChange {
        let meta = &document.meta;
        let is_alive = document.is_alive();
        PeerChange {
            vbid,
            seqno: meta.seqno,
            snapshot: (point.snapshot_start, point.snapshot_end),
            cas: meta.cas,
            rev: meta.rev,
            flags: meta.flags,
            expiry: meta.expiry,
            datatype: meta.datatype & !DATATYPE_XATTR,
            is_alive,
            name: document.name().to_vec(),
            body: if is_alive && has_body { document.body().to_vec() } else { Vec::new() },
        }
    }

    /// Returns the consumer's position after the change, on the branch `vb_uuid`.
    pub(super) fn point(&self, vb_uuid: VbUuid) -> ResumePoint {
        let (snapshot_start, snapshot_end) = self.snapshot;
        ResumePoint { vb_uuid, seqno: self.seqno, snapshot_start, snapshot_end }
    }

    /// Returns the document, with the parts that the message contains.
    pub(super) fn document(&self, collection: CollectionId) -> Document {
        let meta = Meta {
            seqno: self.seqno,
            cas: self.cas,
            rev: self.rev,
            flags: self.flags,
            expiry: self.expiry,
            datatype: self.datatype,
            kind: if self.is_alive { Kind::Alive } else { Kind::Deleted },
        };
        Document::new(meta, DocKey::new(collection, &self.name).prefixed(), &self.body)
    }
}

/// Bounds the number of peer requests parked while they wait for changes.
#[derive(Debug, Default)]
struct WaiterLimit(AtomicUsize);

struct Permit<'a>(&'a WaiterLimit);

impl WaiterLimit {
    /// Returns a permit to wait, or `None` when [`WAITING_MAX`] requests wait already.
    fn enter(&self) -> Option<Permit<'_>> {
        let permit = Permit(self);
        (self.0.fetch_add(1, Ordering::AcqRel) < WAITING_MAX).then_some(permit)
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Answers the requests of other nodes about changes.
#[derive(Debug, Default)]
pub struct ChangesService {
    waiter_limit: WaiterLimit,
}

impl Service for ChangesService {
    fn spec(&self) -> &'static ServiceSpec {
        &CHANGES
    }

    fn answer(&self, node: &Arc<Node>, message: &[u8], left: Duration) -> Vec<u8> {
        node.answer_message::<ChangesPart>(message, left)
    }
}

/// A reply about the changes of a collection.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum ChangesReply {
    /// Reply to [`ChangesCall::Begin`]: the positions at which the consumer starts, in the vBuckets that this node
    /// serves.
    Begun(Vec<Position>),
    /// Reply to [`ChangesCall::Read`].
    Batch(ChangesBatch),
    /// Reply to either: the reason why the consumer must restart.
    Gone(String),
}

impl PeerMessage for ChangesPart {
    type Reply = ChangesReply;

    const SERVICE: &'static str = CHANGES.id;

    fn subject(&self) -> &'static str {
        "changes"
    }

    fn covered(reply: &ChangesReply, asked: Vbids) -> Vbids {
        match reply {
            ChangesReply::Begun(begun) => begun.iter().map(|position| position.vbid).collect(),
            ChangesReply::Batch(_) | ChangesReply::Gone(_) => asked,
        }
    }

    fn answer(self, node: &Arc<Node>, left: Duration) -> Result<ChangesReply, NoReply> {
        let (name, uuid) = &self.bucket;
        let bucket = node.bucket(name).filter(|bucket| bucket.uuid == *uuid);
        let bucket = bucket.ok_or(NoReply::NotOwner)?;
        let collection = CollectionId(self.collection);
        match self.call {
            ChangesCall::Begin { vbids, from, ends } => {
                match begin(node, &bucket, &vbids, &from, ends) {
                    Ok(begun) if begun.is_empty() => Err(NoReply::NotOwner),
                    Ok(begun) => Ok(ChangesReply::Begun(begun)),
                    Err(Gone(why)) => Ok(ChangesReply::Gone(why)),
                }
            }
            ChangesCall::Read { after, ids, bodies, limit, wait_ms } => {
                let signal = Signal::default();
                let reader = Reader::new(node, &bucket, collection, Arc::new(signal.clone()));
                let reading = Reading {
                    node,
                    bucket: &bucket,
                    reader,
                    signal,
                    ids,
                    bodies,
                    limit: usize::try_from(limit).unwrap_or(usize::MAX).max(1),
                    cursors: BTreeMap::new(),
                    batch: ChangesBatch::default(),
                };
                reading.answer(&after, Duration::from_millis(wait_ms), left)
            }
        }
    }
}

/// Returns the positions at which a consumer starts, in those vBuckets that this node serves.
fn begin(
    node: &Node,
    bucket: &Bucket,
    vbids: &Vbids,
    from: &From,
    ends: bool,
) -> Result<Vec<Position>, Gone> {
    let known: BTreeMap<Vbid, Cursor> = match from {
        From::Points(points) => points.iter().map(|point| (point.vbid, point.cursor())).collect(),
        From::Beginning | From::Now => BTreeMap::new(),
    };
    let mut begun = Vec::new();
    for vbid in vbids.iter() {
        let Some(vbucket) = bucket.active(vbid) else { continue };
        let high = vbucket.high_seqno();
        let at = |seqno| ResumePoint {
            vb_uuid: vbucket.failover_log().current(),
            seqno,
            snapshot_start: seqno,
            snapshot_end: seqno,
        };
        let point = match from {
            From::Now => at(high),
            _ => known.get(&vbid).map_or(at(Seqno::ZERO), |cursor| cursor.point),
        };
        let mut cursor = Cursor { point, end: if ends { high } else { Seqno(u64::MAX) } };
        cursor.resume(vbid, &vbucket)?;
        begun.push(Position::new(vbid, &cursor));
    }
    // A node without a lease may have been failed over without knowing it.
    if !bucket.has_lease(node.now()) {
        begun.clear();
    }
    Ok(begun)
}

/// An answer in progress.
struct Reading<'a> {
    node: &'a Arc<Node>,
    bucket: &'a Arc<Bucket>,
    reader: Reader,
    signal: Signal,
    ids: Option<BTreeSet<Vec<u8>>>,
    bodies: bool,
    limit: usize,
    cursors: BTreeMap<Vbid, Cursor>,
    batch: ChangesBatch,
}

impl Reading<'_> {
    fn answer(
        mut self,
        after: &[Position],
        wait: Duration,
        left: Duration,
    ) -> Result<ChangesReply, NoReply> {
        for position in after {
            let mut cursor = position.cursor();
            match self.reader.open(position.vbid, &mut cursor) {
                Ok(true) => drop(self.cursors.insert(position.vbid, cursor)),
                Ok(false) => self.batch.not_owned.insert(position.vbid),
                Err(Gone(why)) => self.batch.gone.push((position.vbid, why)),
            }
        }
        // The consumer learns of a lost history immediately.
        if self.cursors.is_empty() || !self.batch.gone.is_empty() {
            return match self.batch.gone.is_empty() {
                true => Err(NoReply::NotOwner),
                false => Ok(ChangesReply::Batch(self.batch)),
            };
        }
        if let Err(why) = self.read(wait.min(left), left) {
            match self.bucket.is_closed() {
                // Each node decides for itself whether the bucket still exists.
                true => return Err(NoReply::NotOwner),
                false if self.batch.changes.is_empty() => return Err(NoReply::internal(why)),
                // The next request reports the failure.
                false => {}
            }
        }
        let moved = after.iter().filter_map(|before| {
            let now = Position::new(before.vbid, self.cursors.get(&before.vbid)?);
            (now != *before).then_some(now)
        });
        self.batch.after = moved.collect();
        Ok(ChangesReply::Batch(self.batch))
    }

    /// Reads until the answer is full or no change is available. If there is no change at all, waits for one.
    fn read(&mut self, wait: Duration, left: Duration) -> Result<(), &'static str> {
        let begun_ns = self.node.now().monotonic_ns;
        let passed =
            |node: &Node| Duration::from_nanos(node.now().monotonic_ns.saturating_sub(begun_ns));
        let node = self.node;
        let mut permit = None;
        let (mut bytes, mut looked) = (0, 0);
        while bytes < ANSWER_BYTES
            && looked < ANSWER_CHANGES
            && self.batch.changes.len() < self.limit
        {
            match self.reader.next() {
                Read::Message(vbid, message) => {
                    let Some(cursor) = self.cursors.get_mut(&vbid) else { continue };
                    let Some(document) = cursor.take(message) else { continue };
                    looked += 1;
                    if self.ids.as_ref().is_some_and(|ids| !ids.contains(document.name())) {
                        continue;
                    }
                    let change = PeerChange::new(vbid, &cursor.point, &document, self.bodies);
                    bytes += size_of::<PeerChange>() + change.name.len() + change.body.len();
                    self.batch.changes.push_back(change);
                }
                // The consumer asks another node about these vBuckets immediately.
                Read::Lost(vbids) => {
                    vbids.iter().for_each(|vbid| self.batch.not_owned.insert(vbid));
                    return Ok(());
                }
                Read::Over => {
                    (self.batch.is_all, self.batch.is_over) = (true, true);
                    return Ok(());
                }
                Read::Broken(why) => return Err(why),
                Read::Nothing => {
                    let is_all = self.reader.is_caught_up();
                    let left = if is_all { wait } else { left }.saturating_sub(passed(node));
                    self.batch.is_all = is_all;
                    let has_not_owned = !self.batch.not_owned.is_empty();
                    if left.is_zero() || is_all && (has_not_owned || !self.batch.changes.is_empty())
                    {
                        return Ok(());
                    }
                    if is_all && permit.is_none() {
                        let service = node.service::<ChangesService>();
                        permit = service.and_then(|service| service.waiter_limit.enter());
                        if permit.is_none() {
                            self.batch.is_crowded = true;
                            return Ok(());
                        }
                    }
                    self.signal.wait_at_most(left);
                }
            }
        }
        self.batch.is_all = false;
        Ok(())
    }
}

/// Returns the request of a consumer that starts.
pub(super) fn begin_call(vbids: Vbids, since: &Since, until: Until) -> ChangesCall {
    let from = match since {
        Since::Beginning => From::Beginning,
        Since::Now => From::Now,
        Since::Token(token) => {
            let points = token.points.iter().filter(|(vbid, _)| vbids.contains(**vbid));
            let position = |(vbid, point): (&Vbid, &ResumePoint)| {
                Position::new(*vbid, &Cursor { point: *point, end: Seqno(u64::MAX) })
            };
            From::Points(points.map(position).collect())
        }
    };
    ChangesCall::Begin { vbids, from, ends: until == Until::Now }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_travel_between_nodes_as_consumers_receive_them() {
        let meta = Meta {
            seqno: Seqno(9),
            cas: Cas(8),
            rev: 3,
            flags: 7,
            expiry: 1_900_000_000,
            datatype: 0x01 | DATATYPE_XATTR,
            ..Meta::default()
        };
        let document = Document::new(meta, b"\x08id", b"\0\0\0\x03xyz{}");
        let cursor = Cursor {
            point: ResumePoint {
                vb_uuid: VbUuid(1 << 60),
                seqno: Seqno(9),
                snapshot_start: Seqno(4),
                snapshot_end: Seqno(12),
            },
            end: Seqno(u64::MAX),
        };
        let change = |has_body| {
            let change = PeerChange::new(Vbid(3), &cursor.point, &document, has_body);
            postcard::from_bytes::<PeerChange>(&postcard::to_stdvec(&change).unwrap()).unwrap()
        };
        let (with, without) = (change(true), change(false));
        assert_eq!(with.point(VbUuid(1 << 60)), cursor.point);
        let document = with.document(CollectionId(8));
        assert_eq!((document.name(), document.value()), (&b"id"[..], &b"{}"[..]));
        assert_eq!(document.meta, Meta { datatype: 0x01, ..meta });
        assert_eq!(without.document(CollectionId(8)).value(), b"");
        assert_eq!(Position::new(Vbid(3), &cursor).cursor(), cursor);
    }

    #[test]
    fn the_number_of_waiting_requests_is_limited() {
        let waiter_limit = WaiterLimit::default();
        let permits: Vec<_> = (0..WAITING_MAX).map(|_| waiter_limit.enter().unwrap()).collect();
        assert!(waiter_limit.enter().is_none() && waiter_limit.enter().is_none());
        drop(permits);
        assert!(waiter_limit.enter().is_some());
    }
}
