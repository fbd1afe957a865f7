//! Follows the active vBuckets of another node that this node should have copies of.
//!
//! A [`Follower`] is the client's end of a DCP connection to one node for one bucket. It compares the agreed state with
//! its streams, requests missing ones, and closes those that are no longer wanted, so a missed change of the agreed
//! state does no harm. Versions go into the vBuckets of this node, and acknowledgements go back.
//!
//! ```text
//!   peer's kv::dcp ──► markers, versions ──► Follower ──► Bucket::receive ──► Vbucket, Flusher
//!         ▲                                     │                                  │ stored
//!         └──────── SEQNO_ACKNOWLEDGED ◄────────┴──────────────────────────────────┘
//! ```
//!
//! A snapshot from memory is small, and is applied as a whole. A snapshot from disk is applied in pieces; until its end
//! the copy counts as inconsistent. When the peer demands a rollback, the copy starts empty, because the versions
//! before the rolled back ones were not kept.

use crate::node::Node;
use crate::platform::Link;
use nacre_auth::{ScramClient, ScramProof};
use nacre_bucket::kv::read_begun;
use nacre_bucket::{Bucket, DirtyVbuckets, ReceiveError, Waiter};
use nacre_protocol::dcp::{Message, Payload, open_flag};
use nacre_protocol::replication::{self, ReplicaMessage};
use nacre_protocol::{Feature, Frame, Magic, Opcode, Status, decode};
use nacre_types::{Document, NodeId, Now, Seqno, VbState, VbUuid, Vbid};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Bytes that the peer may send before they are acknowledged.
const WINDOW_BYTES: u32 = 16 << 20;
/// Consumed bytes after which the peer is informed.
const WINDOW_NEWS_BYTES: u32 = WINDOW_BYTES / 4;
/// Versions of a snapshot from disk that are applied at a time.
const PIECE_DOCUMENTS: usize = 256;
/// Interval after which a refused stream is requested again: the peer may not have learned yet that it is the active
/// node.
const RETRY_INTERVAL: Duration = Duration::from_millis(50);
/// Opcode, extras, key and value of a request.
type Greeting<'a> = (Opcode, &'a [u8], &'a [u8], &'a [u8]);

/// The stage of a connection.
enum Stage {
    /// There is no connection.
    Disconnected,
    /// Waiting for the peer's challenge.
    Introduced(ScramClient),
    /// Waiting for the peer's proof that it has the secret too.
    Proved(ScramProof),
    /// This many requests must be granted before streams are requested.
    Opening(usize),
    /// Streams are open or requested.
    Open,
}

/// One followed vBucket.
struct Incoming {
    /// The term in which the peer is the active node.
    term: u64,
    /// Opaque of the stream's messages.
    opaque: u32,
    /// Generation of the copy when the stream was requested: a copy that started again meanwhile lacks the earlier
    /// versions. `None` before the request.
    generation: Option<u32>,
    /// True while versions arrive.
    is_open: bool,
    /// Seqno range of the current snapshot. It may be large if it comes from disk.
    snapshot: (Seqno, Seqno),
    from_disk: bool,
    pending: Vec<Document>,
    acknowledged: Seqno,
}

/// A client of one peer for one bucket, see the [module](self).
pub(crate) struct Follower {
    node: Arc<Node>,
    bucket: Arc<Bucket>,
    peer: NodeId,
    /// The vBuckets that have newly stored versions; set once the link is attached.
    dirty: Option<Arc<DirtyVbuckets>>,
    streams: BTreeMap<Vbid, Incoming>,
    /// Streams to request, each with the earliest monotonic time.
    to_ask: BTreeMap<Vbid, u64>,
    opaque: u32,
    stage: Stage,
    /// The revisions of the agreed state and of the fences at the last comparison of streams.
    compared: Option<(i64, u64)>,
    /// Consumed bytes that the peer was not informed of.
    taken: u32,
}

impl Follower {
    pub fn new(node: Arc<Node>, bucket: Arc<Bucket>, peer: NodeId) -> Follower {
        Follower {
            node,
            bucket,
            peer,
            dirty: None,
            streams: BTreeMap::new(),
            to_ask: BTreeMap::new(),
            opaque: 0,
            stage: Stage::Disconnected,
            compared: None,
            taken: 0,
        }
    }

    /// Returns the revisions of the agreed state and of the fences, which determine the vBuckets to follow.
    fn known(&self) -> (i64, u64) {
        (self.node.map_rev(), self.node.fences.load(Ordering::Acquire))
    }

    /// Returns the vBuckets to follow, each with its term.
    fn wanted(&self) -> BTreeMap<Vbid, u64> {
        let (cluster, me) = (self.node.cluster(), self.node.id());
        if self.node.fenced.read().excludes(self.peer, &cluster) {
            return BTreeMap::new();
        }
        let bucket = cluster.buckets.get(&self.bucket.name);
        let bucket = bucket.filter(|bucket| bucket.uuid == self.bucket.uuid);
        let chains = bucket.into_iter().flat_map(|bucket| (0..).map(Vbid).zip(&bucket.chains));
        chains
            .filter(|(_, chain)| chain.active() == Some(self.peer) && chain.is_followed_by(me))
            .map(|(vbid, chain)| (vbid, chain.term))
            .collect()
    }

    /// Sends the first request of the login.
    fn greet(&mut self, out: &mut Vec<u8>) {
        let features: Vec<u8> = [Feature::Collections, Feature::Xattr, Feature::Json]
            .into_iter()
            .flat_map(|feature| (feature as u16).to_be_bytes())
            .collect();
        let nonce = [self.node.random(), self.node.random()].map(u64::to_be_bytes);
        let cluster = self.node.cluster();
        let client =
            ScramClient::new(nacre_auth::INTERNAL, cluster.secret.reveal(), nonce.as_flattened());
        let mechanism = ScramClient::MECHANISM.as_bytes();
        request(Opcode::Hello, Vbid(0), 0, b"", b"nacre", &features, out);
        request(Opcode::SaslAuth, Vbid(0), 0, b"", mechanism, &client.first(), out);
        self.stage = Stage::Introduced(client);
    }

    /// Opens the DCP connection.
    fn open(&mut self, out: &mut Vec<u8>) {
        let me = self.node.id().0;
        let name = format!("replication:{me}:{}:{}", self.peer.0, self.bucket.name);
        let flags = open_flag::PRODUCER | open_flag::INCLUDE_XATTRS;
        let open = [[0; 4], flags.to_be_bytes()].concat();
        let (control, number, window) =
            (Opcode::DcpControl, me.to_string(), WINDOW_BYTES.to_string());
        let greetings: [Greeting<'_>; 6] = [
            (Opcode::SelectBucket, b"", self.bucket.name.as_bytes(), b""),
            (Opcode::DcpOpen, &open, name.as_bytes(), b""),
            (control, b"", b"enable_sync_writes", number.as_bytes()),
            (control, b"", b"connection_buffer_size", window.as_bytes()),
            (control, b"", b"enable_noop", b"true"),
            (control, b"", b"set_noop_interval", b"1"),
        ];
        for (opcode, extras, key, value) in greetings {
            request(opcode, Vbid(0), 0, extras, key, value, out);
        }
        self.stage = Stage::Opening(greetings.len());
    }

    /// Handles a reply during the login and the opening of the connection.
    fn greeted(&mut self, frame: &Frame<'_>, out: &mut Vec<u8>) -> Result<(), String> {
        let granted = frame.vbid == Status::Success as u16;
        match std::mem::replace(&mut self.stage, Stage::Disconnected) {
            Stage::Introduced(client) if frame.opcode() == Some(Opcode::Hello) && granted => {
                self.stage = Stage::Introduced(client);
            }
            Stage::Introduced(client) if frame.vbid == Status::AuthContinue as u16 => {
                let proof = client.prove(frame.value).ok_or("the peer's challenge is malformed")?;
                let (step, mechanism) = (Opcode::SaslStep, ScramClient::MECHANISM.as_bytes());
                request(step, Vbid(0), 0, b"", mechanism, &proof.message, out);
                self.stage = Stage::Proved(proof);
            }
            Stage::Proved(proof) if granted && frame.value == proof.signature => self.open(out),
            Stage::Proved(_) if granted => return Err("the peer does not know the secret".into()),
            Stage::Opening(1) if granted => self.stage = Stage::Open,
            Stage::Opening(left) if granted => self.stage = Stage::Opening(left - 1),
            _ => return Err(refused(frame)),
        }
        Ok(())
    }

    /// Opens and closes streams according to the agreed state.
    fn compare(&mut self, out: &mut Vec<u8>, now: Now) {
        let wanted = self.wanted();
        let bucket = &self.bucket;
        let unwanted = |vbid: &Vbid, known: &mut Incoming| {
            wanted.get(vbid) != Some(&known.term) || !is_of(bucket, *vbid, known)
        };
        for (vbid, incoming) in self.streams.extract_if(.., unwanted) {
            if self.to_ask.remove(&vbid).is_none() {
                request(Opcode::DcpCloseStream, vbid, incoming.opaque, b"", b"", b"", out);
            }
        }
        for (vbid, term) in wanted {
            let to_ask = &mut self.to_ask;
            self.streams.entry(vbid).or_insert_with(|| {
                to_ask.insert(vbid, now.monotonic_ns);
                Incoming {
                    term,
                    opaque: 0,
                    generation: None,
                    is_open: false,
                    snapshot: Default::default(),
                    from_disk: false,
                    pending: Vec::new(),
                    acknowledged: Seqno::ZERO,
                }
            });
        }
        // The new seqnos may allow acknowledgements.
        let followed: Vec<Vbid> = self.streams.keys().copied().collect();
        followed.into_iter().for_each(|vbid| self.acknowledge(vbid, out));
    }

    /// Requests a stream from the position of the copy. A copy that can no longer be stored is not followed.
    fn ask(&mut self, vbid: Vbid, out: &mut Vec<u8>) {
        self.to_ask.remove(&vbid);
        let Some(incoming) = self.streams.get_mut(&vbid) else { return };
        let vbucket = self.bucket.vbucket(vbid).filter(|vbucket| !vbucket.is_read_only());
        let Some(vbucket) = vbucket else { return };
        let start = vbucket.high_seqno();
        let (snapshot_start, snapshot_end) = vbucket.snapshot_at(start);
        let vb_uuid = match start {
            Seqno::ZERO => VbUuid(0),
            _ => vbucket.failover_log().current(),
        };
        incoming.generation = Some(vbucket.generation());
        drop(vbucket);
        self.opaque = self.opaque % (u32::MAX - 1) + 1;
        incoming.opaque = self.opaque;
        incoming.pending.clear();
        // A copy at the end of a snapshot is within none; the snapshot of a request must begin at or before its start.
        let snapshot_start = snapshot_start.min(start);
        let numbers =
            [start.0, u64::MAX, vb_uuid.0, snapshot_start.0, snapshot_end.0].map(u64::to_be_bytes);
        let extras = [&[0; 8], numbers.as_flattened()].concat();
        let term = incoming.term.to_be_bytes();
        request(Opcode::DcpStreamRequest, vbid, incoming.opaque, &extras, b"", &term, out);
    }

    fn answered(&mut self, frame: &Frame<'_>, out: &mut Vec<u8>, now: Now) -> Result<(), String> {
        if !matches!(self.stage, Stage::Open) {
            return self.greeted(frame, out);
        }
        match frame.opcode() {
            Some(Opcode::DcpStreamRequest) => {}
            // The stream may have ended before it was closed.
            Some(Opcode::DcpCloseStream) => return Ok(()),
            // A peer that refused the acknowledgement of bytes would wait for it forever.
            _ if frame.vbid != Status::Success as u16 => return Err(refused(frame)),
            _ => return Ok(()),
        }
        let asked = self.streams.iter_mut().find(|(_, known)| known.opaque == frame.opaque);
        let Some((&vbid, incoming)) = asked else { return Ok(()) };
        let mut ask_again_at = Some(now.monotonic_ns + RETRY_INTERVAL.as_nanos() as u64);
        if frame.vbid == Status::Success as u16 {
            let (log, under_way) =
                read_begun(frame.value).ok_or("the peer's failover log is malformed")?;
            if !is_of(&self.bucket, vbid, incoming) {
                return Err(format!("the copy of {vbid} was restarted meanwhile"));
            }
            if self.bucket.change(vbid, |vbucket| vbucket.adopt(log, &under_way)).is_some() {
                self.bucket.mark_dirty(vbid);
                ask_again_at = None;
                incoming.is_open = true;
                incoming.acknowledged = Seqno::ZERO;
                // The copy may be complete already.
                self.acknowledge(vbid, out);
            }
        } else if frame.vbid == Status::Rollback as u16 {
            tracing::info!(
                "bucket {}: restarting the copy of {vbid}, its history differs from that of {}",
                self.bucket.name,
                self.peer
            );
            let vb_uuid = VbUuid::of_random(self.node.random());
            self.bucket.discard_history(vbid, vb_uuid);
            ask_again_at = Some(now.monotonic_ns);
        }
        self.to_ask.extend(ask_again_at.map(|at| (vbid, at)));
        Ok(())
    }

    /// Handles a message of the peer. All bytes count towards the agreed window, except those of heartbeats.
    fn receive_message(
        &mut self,
        frame: &Frame<'_>,
        bytes: usize,
        out: &mut Vec<u8>,
        now: Now,
    ) -> Result<(), String> {
        let message = replication::read(frame).ok_or("a message of the peer is malformed")?;
        if message == ReplicaMessage::Noop {
            let mut answer = [0; nacre_protocol::HEADER_BYTES];
            answer[0] = Magic::Response as u8;
            answer[1] = frame.opcode_byte;
            answer[12..16].copy_from_slice(&frame.opaque.to_be_bytes());
            out.extend(answer);
            return Ok(());
        }
        self.taken += bytes as u32;
        let vbid = Vbid(frame.vbid);
        let incoming = self.streams.get_mut(&vbid).filter(|known| known.opaque == frame.opaque);
        // The message was in flight when the stream was closed.
        let Some(incoming) = incoming else { return Ok(()) };
        let reached = match message {
            ReplicaMessage::Snapshot { start, end, from_disk } => {
                incoming.snapshot = (start, end);
                incoming.from_disk = from_disk;
                return Ok(());
            }
            ReplicaMessage::Version(document) => {
                let seqno = document.meta.seqno;
                incoming.pending.push(document);
                let is_piece = incoming.from_disk && incoming.pending.len() >= PIECE_DOCUMENTS;
                (is_piece || seqno == incoming.snapshot.1).then_some(seqno)
            }
            ReplicaMessage::Advanced(seqno) => Some(seqno),
            ReplicaMessage::Ended | ReplicaMessage::Noop => {
                incoming.is_open = false;
                self.to_ask.insert(vbid, now.monotonic_ns);
                None
            }
        };
        let Some(seqno) = reached else { return Ok(()) };
        let documents = std::mem::take(&mut incoming.pending);
        let (start, end) = incoming.snapshot;
        let generation = incoming.generation;
        match self.bucket.receive(vbid, generation, documents, seqno, (start, end.max(seqno))) {
            Ok(()) => {
                self.acknowledge(vbid, out);
                Ok(())
            }
            Err(ReceiveError::OutOfOrder) => {
                Err(format!("{vbid} does not continue at seqno {seqno}"))
            }
            Err(ReceiveError::Store(error)) => Err(error.to_string()),
        }
    }

    /// Acknowledges the seqno of a copy if it has changed.
    fn acknowledge(&mut self, vbid: Vbid, out: &mut Vec<u8>) {
        let Some(incoming) = self.streams.get_mut(&vbid) else { return };
        if !incoming.is_open {
            return;
        }
        let Some(mut vbucket) = self.bucket.vbucket(vbid) else { return };
        if vbucket.state() != VbState::Replica || incoming.generation != Some(vbucket.generation())
        {
            return;
        }
        vbucket.reach_term(incoming.term);
        let prepared = vbucket.prepared();
        // Checked last: a fence on this peer guarantees that every acknowledgement was sent before the fence.
        let is_fenced = || self.node.fenced.read().excludes(self.peer, &self.node.cluster());
        if vbucket.term() == incoming.term && prepared > incoming.acknowledged && !is_fenced() {
            incoming.acknowledged = prepared;
            let extras = prepared.0.to_be_bytes();
            let opcode = Opcode::DcpSeqnoAcknowledged;
            request(opcode, vbid, incoming.opaque, &extras, b"", b"", out);
        }
    }
}

impl Link for Follower {
    fn attach(&mut self, waiter: Arc<dyn Waiter>) {
        self.node.watch_map(&waiter);
        self.dirty = Some(self.bucket.progress_listeners.listen_to_all(waiter));
    }

    fn connected(&mut self, out: &mut Vec<u8>) {
        self.streams.clear();
        self.to_ask.clear();
        self.compared = None;
        self.taken = 0;
        self.greet(out);
    }

    fn lost(&mut self) {
        self.stage = Stage::Disconnected;
    }

    fn receive(&mut self, input: &[u8], out: &mut Vec<u8>, now: Now) -> Result<usize, String> {
        let mut consumed = 0;
        while let Some((frame, length)) =
            decode(&input[consumed..]).map_err(|error| error.to_string())?
        {
            consumed += length;
            match frame.magic {
                Magic::Response | Magic::FlexResponse => self.answered(&frame, out, now)?,
                _ => {
                    self.receive_message(&frame, length, out, now)?;
                }
            }
        }
        if self.taken >= WINDOW_NEWS_BYTES {
            let extras = std::mem::take(&mut self.taken).to_be_bytes();
            request(Opcode::DcpBufferAck, Vbid(0), 0, &extras, b"", b"", out);
        }
        self.bucket.wake_listeners();
        Ok(consumed)
    }

    fn poll(&mut self, out: &mut Vec<u8>, now: Now) -> Option<Duration> {
        if !matches!(self.stage, Stage::Open) {
            return None;
        }
        let known = self.known();
        if self.compared != Some(known) {
            self.compared = Some(known);
            self.compare(out, now);
        }
        while let Some(vbid) = self.dirty.as_ref().and_then(|dirty| dirty.take(0)) {
            self.acknowledge(vbid, out);
        }
        let due = self.to_ask.iter().filter(|(_, at)| **at <= now.monotonic_ns);
        let due: Vec<Vbid> = due.map(|(vbid, _)| *vbid).collect();
        due.into_iter().for_each(|vbid| self.ask(vbid, out));
        (!self.to_ask.is_empty()).then_some(RETRY_INTERVAL)
    }

    fn is_over(&self) -> bool {
        if self.bucket.is_closed() || self.node.is_stopping() {
            return true;
        }
        // Called after each piece that arrives, so the streams are compared only after a change.
        match self.compared == Some(self.known()) {
            true => self.streams.is_empty(),
            false => self.wanted().is_empty(),
        }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.dirty.iter().for_each(|dirty| self.bucket.progress_listeners.remove(dirty));
        self.node.follower_ended(&self.bucket, self.peer);
    }
}

/// Returns true if the copy is still the one that the stream was requested for, or if no stream was requested.
fn is_of(bucket: &Bucket, vbid: Vbid, incoming: &Incoming) -> bool {
    let is_same =
        |generation| bucket.vbucket(vbid).is_some_and(|vbucket| vbucket.generation() == generation);
    incoming.generation.is_none_or(is_same)
}

fn request(
    opcode: Opcode,
    vbid: Vbid,
    opaque: u32,
    extras: &[u8],
    key: &[u8],
    value: &[u8],
    out: &mut Vec<u8>,
) {
    let payload = Payload { opcode: opcode as u8, extras, key, value, ..Payload::default() };
    Message { vbid: vbid.0, opaque, stream_id: None, payload }.encode(out);
}

fn refused(frame: &Frame<'_>) -> String {
    format!("request {:#x} was refused with {:#x}", frame.opcode_byte, frame.vbid)
}
