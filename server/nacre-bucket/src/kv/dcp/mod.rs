//! DCP: a connection that streams history to a remote consumer.
//!
//! DCP_OPEN gives a session a [`Dcp`]. [`Dcp::pump`] appends its messages to the session's answers. The connection
//! calls it after each event: a write to the bucket, a finished scan, an acknowledgement of the consumer.
//! [`nacre_dcp::Producer`] chooses the next message.
//!
//! The connection's thread reads memory, one portion per lock. The bucket's workers read the store, at most
//! [`nacre_dcp::SCANS_MAX`] portions at a time. Back-pressure: streams pause while the consumer's window is full or
//! [`SENT_AT_ONCE`] bytes wait for the socket.
//!
//! A consumer of low priority, such as a backup, costs other connections less: background workers carry out its scans,
//! and the thread, which other connections share, encodes and sends fewer bytes in a turn.

mod begun;
mod filter;
mod message;
mod settings;

pub use begun::read_begun;

use super::session::{Answer, Next, Outcome, Session};
use crate::{Bucket, ChangeConsumer, DcpConnection};
use begun::append_under_way;
use filter::Filter;
use nacre_auth::{Keyspace, Privilege};
use nacre_dcp::{Address, End, Interest, Resume, ResumePoint, STREAMS_MAX, Wanted, Window, resume};
use nacre_protocol::dcp::{self, NAME_BYTES_MAX, Payload, open_flag, stream_flag};
use nacre_protocol::{Feature, Frame, Reply, Request, Status};
use nacre_types::{CollectionId, FailoverLog, NodeId, Now, Seqno, VbUuid, Vbid};
use nacre_vbucket::Vbucket;
use settings::{Effect, Settings};
use std::sync::Arc;

/// The DCP_CONTROL key by which another node requests a stream for its copy.
const REPLICATION: &[u8] = b"enable_sync_writes";

/// Maximum bytes that wait for the socket; streams pause above it.
const SENT_AT_ONCE: usize = 256 << 10;
/// The same for consumers of low priority. Requests that arrive meanwhile wait for one turn of each such consumer.
const SENT_AT_ONCE_LOW: usize = 64 << 10;

/// The DCP state of a session.
pub(super) struct Dcp {
    consumer: ChangeConsumer,
    connection: Arc<DcpConnection>,
    settings: Settings,
    window: Window,
    /// The node of the copy that the client replicates to, if the client is a node.
    copy_on: Option<NodeId>,
    /// The version of the users for which the streams' rights were last checked.
    users_version: u64,
}

impl Dcp {
    /// Returns true if [`Dcp::pump`] has work. The waiter is woken when that may change.
    pub fn is_ready(&self) -> bool {
        self.connection.reset_wake();
        self.consumer.bucket.is_closed()
            || self.connection.needs_ping()
            || self.connection.must_release_scans()
            || self.consumer.has_scanned()
            || self.window.has_room() && self.consumer.is_ready()
    }

    /// Returns the reason why the connection must end at once, if it must.
    pub fn cut(&self) -> Option<&'static str> {
        self.connection.end_reason()
    }

    /// Records that the consumer has sent something.
    pub fn record_received(&self, now: Now) {
        self.connection.heartbeat(|heartbeat| heartbeat.record_received(now.monotonic_ns));
    }

    /// Records that the consumer has answered a NOOP.
    pub fn answered(&self, now: Now) {
        self.connection.heartbeat(|heartbeat| heartbeat.answered(now.monotonic_ns));
    }

    /// Appends messages as far as the window and the socket allow.
    fn pump(&mut self, out: &mut Vec<u8>, now: Now) -> Next {
        let before = out.len();
        if self.consumer.bucket.is_closed() {
            let ChangeConsumer { producer, bucket, .. } = &mut self.consumer;
            producer.end_where(&**bucket, |_, _| Some(End::VbucketGone));
            while let Some((address, message)) = self.consumer.next_message() {
                message::encode(address, &message, &self.settings, false, out);
            }
            return Next::Close(Some("the bucket of a DCP connection has ended".into()));
        }
        if self.connection.take_ping() {
            let payload = Payload { opcode: Payload::NOOP, ..Payload::default() };
            dcp::Message { vbid: 0, opaque: 0, stream_id: None, payload }.encode(out);
        }
        self.consumer.refresh();
        if self.connection.take_release() {
            self.consumer.producer.close_idle_scans();
        }
        let compresses = self.consumer.bucket.compresses();
        let at_once = if self.settings.has_low_priority { SENT_AT_ONCE_LOW } else { SENT_AT_ONCE };
        while out.len() < at_once && self.window.has_room() {
            let Some((address, message)) = self.consumer.next_message() else { break };
            let bytes = message::encode(address, &message, &self.settings, compresses, out);
            self.window.sent(bytes);
        }
        // Read ahead of the socket, but not for a consumer whose window is full.
        if self.window.has_room() {
            self.consumer.begin_scans();
        }
        self.connection.set_holds_scans(self.consumer.producer.holds_scans());
        if out.len() > before {
            self.connection.heartbeat(|heartbeat| heartbeat.sent(now.monotonic_ns));
        }
        Next::More
    }
}

impl Drop for Dcp {
    fn drop(&mut self) {
        self.consumer.bucket.dcp_connections.close(&self.connection);
    }
}

/// Appends the messages of a session's streams, if it has streams.
pub(super) fn pump(session: &mut Session, out: &mut Vec<u8>, now: Now) -> Next {
    let Some(mut dcp) = session.dcp.take() else { return Next::More };
    let users_version = session.env.users_version();
    if dcp.users_version != users_version {
        dcp.users_version = users_version;
        let ChangeConsumer { producer, bucket, .. } = &mut dcp.consumer;
        producer.end_where(&**bucket, |_, wanted| {
            (!may_stream(session, bucket, &wanted.interest)).then_some(End::Forbidden)
        });
    }
    let next = dcp.pump(out, now);
    if matches!(next, Next::More) {
        session.dcp = Some(dcp);
    }
    next
}

/// Carries out a request that only DCP connections accept.
pub(super) fn run(
    session: &mut Session,
    frame: &Frame<'_>,
    request: &Request<'_>,
    answer: &mut Answer<'_>,
    now: Now,
) -> Result<Outcome, Status> {
    if let Request::DcpOpen { name, flags } = *request {
        return open(session, name, flags, now);
    }
    let mut dcp = session.dcp.take().ok_or(Status::InvalidArguments)?;
    let outcome = match *request {
        Request::DcpControl { key: REPLICATION, value } => replicate(session, &mut dcp, value),
        Request::DcpControl { key, value } => control(session, &mut dcp, key, value),
        Request::DcpSeqnoAcknowledged { seqno } => acknowledge(&dcp, frame, Seqno(seqno), now),
        Request::DcpBufferAck { bytes } => match dcp.window.acknowledge(u64::from(bytes)) {
            true => Ok(Outcome::Answered),
            false => Err(Status::InvalidArguments),
        },
        Request::DcpStreamRequest { .. } => begin(session, &mut dcp, frame, request, answer),
        Request::DcpCloseStream => close(&mut dcp, frame),
        // Producers do not request streams.
        _ => Err(Status::NotSupported),
    };
    session.dcp = Some(dcp);
    outcome
}

fn open(session: &mut Session, name: &[u8], flags: u32, now: Now) -> Result<Outcome, Status> {
    if session.dcp.is_some() || name.is_empty() || name.len() > NAME_BYTES_MAX {
        return Err(Status::InvalidArguments);
    }
    let settings = Settings::new(flags, session.features)?;
    let bucket = Arc::clone(&session.bucket()?.bucket);
    let user = session.user_name();
    let connection = bucket.dcp_connections.open(user, name, &session.waiter, now);
    session.dcp = Some(Box::new(Dcp {
        consumer: ChangeConsumer::new(bucket, Arc::clone(&connection) as _),
        connection,
        settings,
        window: Window::default(),
        copy_on: None,
        users_version: session.env.users_version(),
    }));
    Ok(Outcome::Status(Status::Success))
}

/// Replicates to the copy on the node whose number is `value`.
fn replicate(session: &Session, dcp: &mut Dcp, value: &[u8]) -> Result<Outcome, Status> {
    if !session.is_internal() {
        return Err(Status::AccessDenied);
    }
    let number = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
    dcp.copy_on = Some(NodeId(number.ok_or(Status::InvalidArguments)?));
    dcp.settings.replicates = true;
    Ok(Outcome::Status(Status::Success))
}

/// Records that the copy on the client's node has the history up to `seqno`.
fn acknowledge(dcp: &Dcp, frame: &Frame<'_>, seqno: Seqno, now: Now) -> Result<Outcome, Status> {
    let node = dcp.copy_on.ok_or(Status::InvalidArguments)?;
    let vbid = Vbid(frame.vbid);
    // An acknowledgement for a stream that has ended may refer to another history.
    if dcp.consumer.producer.has(vbid, None) {
        dcp.consumer.bucket.acknowledge(vbid, node, seqno, now);
    }
    Ok(Outcome::Answered)
}

fn control(session: &Session, dcp: &mut Dcp, key: &[u8], value: &[u8]) -> Result<Outcome, Status> {
    match dcp.settings.control(key, value, dcp.consumer.bucket.can_keep_history())? {
        Effect::None => {}
        Effect::Window(bytes) => dcp.window.resize(bytes),
        Effect::Heartbeat(interval) => {
            dcp.connection.heartbeat(|heartbeat| heartbeat.set_interval(interval));
        }
        Effect::LowPriority(is_low) => dcp.consumer.set_low_priority(is_low, &*session.env),
    }
    Ok(Outcome::Status(Status::Success))
}

fn close(dcp: &mut Dcp, frame: &Frame<'_>) -> Result<Outcome, Status> {
    let stream_id = frame.frame_infos().map_err(|_| Status::InvalidArguments)?.stream_id;
    if stream_id.is_some() != dcp.settings.stream_ids {
        return Err(Status::DcpStreamIdInvalid);
    }
    let Dcp { consumer: ChangeConsumer { producer, bucket, .. }, settings, .. } = dcp;
    match producer.close(Vbid(frame.vbid), stream_id, settings.says_closed, &**bucket) {
        true => Ok(Outcome::Status(Status::Success)),
        false => Err(Status::KeyNotFound),
    }
}

/// Begins a stream, or answers why the consumer cannot resume from its position.
fn begin(
    session: &Session,
    dcp: &mut Dcp,
    frame: &Frame<'_>,
    request: &Request<'_>,
    answer: &mut Answer<'_>,
) -> Result<Outcome, Status> {
    let Request::DcpStreamRequest { filter, .. } = *request else { return Err(Status::Internal) };
    let vbid = Vbid(frame.vbid);
    dcp.consumer.watch(vbid);
    let Dcp { consumer: ChangeConsumer { producer, bucket, .. }, settings, .. } = dcp;
    let collections = settings.speaks(Feature::Collections);
    let mut vbucket = bucket.vbucket(vbid).ok_or(Status::NotMyVbucket)?;
    if !vbucket.makes_history() {
        return Err(Status::NotMyVbucket);
    }
    let Filter { interest, stream_id, purge_seqno } = if settings.replicates {
        let term = filter.try_into().map(u64::from_be_bytes);
        // The follower would otherwise assume a term that has not begun here yet.
        if vbucket.term() < term.map_err(|_| Status::InvalidArguments)? {
            return Err(Status::NotMyVbucket);
        }
        Filter { interest: Interest::History, stream_id: None, purge_seqno: None }
    } else {
        filter::read(filter, collections, &bucket.manifest())?
    };
    if stream_id.is_some() != settings.stream_ids {
        return Err(Status::DcpStreamIdInvalid);
    }
    if !may_stream(session, bucket, &interest) {
        return Err(Status::AccessDenied);
    }
    if producer.has(vbid, stream_id) {
        return Err(Status::KeyExists);
    }
    if producer.len() >= STREAMS_MAX {
        return Err(Status::NoMemory);
    }
    let (from, end) = match place(&vbucket, request, purge_seqno)? {
        Place::At(from, end) => (from, end),
        Place::Rollback(to) => {
            let value = &to.0.to_be_bytes();
            answer.send(Reply { status: Status::Rollback, value, ..Reply::default() });
            return Ok(Outcome::Answered);
        }
    };
    if let Some(node) = dcp.copy_on {
        // Earlier acknowledgements of this copy were for another stream, and possibly for another history.
        vbucket.forget_acknowledged(node);
    }
    let address = Address { vbid, stream_id, opaque: frame.opaque };
    let skips_deletes =
        settings.has(open_flag::SKIP_DELETES_IN_BACKFILL) && from.seqno == Seqno::ZERO;
    let history = settings.history;
    let wanted = Wanted { interest, end, advances: collections, skips_deletes, history };
    producer.open(&mut vbucket, address, from, wanted);
    let mut value = branches(vbucket.failover_log());
    if settings.replicates {
        append_under_way(&vbucket.under_way(from.seqno), &mut value);
    }
    drop(vbucket);
    answer.value(0, &value);
    Ok(Outcome::Answered)
}

/// Encodes a failover log for an answer: UUID and first seqno of each branch, newest first.
pub(super) fn branches(log: &FailoverLog) -> Vec<u8> {
    let numbers = log.entries().iter().flat_map(|(vb_uuid, seqno)| [vb_uuid.0, seqno.0]);
    numbers.flat_map(u64::to_be_bytes).collect()
}

/// The start and end of a stream.
enum Place {
    At(ResumePoint, Seqno),
    Rollback(Seqno),
}

fn place(
    vbucket: &Vbucket,
    request: &Request<'_>,
    purge_seqno: Option<u64>,
) -> Result<Place, Status> {
    let Request::DcpStreamRequest { flags, start, end, vb_uuid, snapshot, .. } = *request else {
        return Err(Status::Internal);
    };
    let known = stream_flag::DISK_ONLY
        | stream_flag::TO_LATEST
        | stream_flag::ACTIVE_ONLY
        | stream_flag::STRICT_VB_UUID
        | stream_flag::FROM_LATEST
        | stream_flag::IGNORE_PURGED;
    if flags & !known != 0 {
        return Err(Status::NotSupported);
    }
    let has = |flag: u32| flags & flag != 0;
    let (log, high) = (vbucket.failover_log(), vbucket.high_seqno());
    let mut end = Seqno(end);
    if has(stream_flag::TO_LATEST) {
        end = high;
    }
    if has(stream_flag::DISK_ONLY) {
        end = end.min(vbucket.persisted());
    }
    let from = if has(stream_flag::FROM_LATEST) {
        ResumePoint {
            vb_uuid: log.current(),
            seqno: high,
            snapshot_start: high,
            snapshot_end: high,
        }
    } else {
        let (snapshot_start, snapshot_end) = (Seqno(snapshot.0), Seqno(snapshot.1));
        ResumePoint { vb_uuid: VbUuid(vb_uuid), seqno: Seqno(start), snapshot_start, snapshot_end }
    };
    if from.seqno > end {
        return Err(Status::Range);
    }
    let stranger = vb_uuid != 0 && log.branch_end(VbUuid(vb_uuid), high).is_none();
    if has(stream_flag::STRICT_VB_UUID) && stranger {
        return Ok(Place::Rollback(Seqno::ZERO));
    }
    let purged = vbucket.purge_seqno();
    let forgiven = has(stream_flag::IGNORE_PURGED) || purge_seqno == Some(purged.0);
    match resume(&from, log, high, if forgiven { Seqno::ZERO } else { purged }) {
        Resume::Continue => Ok(Place::At(from, end)),
        Resume::Rollback(to) => Ok(Place::Rollback(to)),
        Resume::Invalid => Err(Status::Range),
    }
}

/// Returns true if the user of the session may stream everything in `interest`.
fn may_stream(session: &Session, bucket: &Bucket, interest: &Interest) -> bool {
    let manifest = bucket.manifest();
    let may = |scope: Option<&str>, collection: Option<&str>| {
        session.has(
            &[Privilege::StreamData],
            Keyspace { bucket: Some(&bucket.name), scope, collection },
        )
    };
    let in_collection = |id: &CollectionId| {
        manifest.scopes.iter().any(|scope| {
            let found = scope.collections.iter().find(|collection| collection.id == id.0);
            found.is_some_and(|found| may(Some(&scope.name), Some(&found.name)))
        })
    };
    match interest {
        Interest::History | Interest::Everything => may(None, None),
        Interest::DefaultCollection => in_collection(&CollectionId::DEFAULT),
        Interest::Scope(id, _) => {
            let scope = manifest.scopes.iter().find(|scope| scope.id == id.0);
            scope.is_some_and(|scope| may(Some(&scope.name), None))
        }
        Interest::Collections(ids) => ids.iter().all(in_collection),
        Interest::Nothing => true,
    }
}
