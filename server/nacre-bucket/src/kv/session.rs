//! The state of one connection, and the steps that handle a frame.

use super::env::KvEnv;
use super::lookahead::{self, Lookahead};
use super::memory::Memory;
use super::rights::{self, Need};
use super::scan::{self, Scanned};
use super::{admin, dcp, document, slow, snappy};
use crate::conflict::Decided;
use crate::operations::OperationCounts;
use crate::range_scan::ScanOwner;
use crate::{Bucket, LoginOutcome, Ticket, Waiter};
use nacre_auth::sasl;
use nacre_auth::{INTERNAL, Keyspace, Login, Privilege, User, Users};
use nacre_protocol::{
    Feature, Features, Frame, Glance, Magic, MapPush, Opcode, Reply, Request, Status, Units,
    announced_body_bytes, decode, parse,
};
use nacre_types::{CollectionId, DATATYPE_JSON, DATATYPE_SNAPPY, Document, Now};
use nacre_vbucket::{self as vbucket, Token};
use std::net::IpAddr;
use std::sync::Arc;

/// The action that the connection must take next.
#[derive(Debug)]
pub enum Next {
    /// Read more input.
    More,
    /// Send the answers before the rest of the input is handled, because they are large.
    Flush,
    /// Send the answers and close: the peer has quit, or its bytes are malformed. The reason is for the log.
    Close(Option<String>),
    /// The rest of the input must wait for parked requests: call [`Session::resume`] once [`Session::is_ready`].
    Wait,
}

/// The largest body of a frame before login, in bytes: unauthenticated peers may hold little memory.
const LOGIN_BODY_BYTES_MAX: usize = 16 << 10;

/// Failed logins after which a connection is closed. A few are tolerated: users mistype, and clients try several
/// mechanisms.
const LOGIN_FAILURES_MAX: u32 = 5;

/// Bytes of answers that are sent before more requests are handled. Otherwise, a burst of small requests for large
/// documents could fill the memory.
const ANSWER_BYTES_MAX: usize = 1 << 20;
/// Shorter bodies are copied into the answer.
const ZERO_COPY_BYTES_MIN: usize = 32 << 10;
/// Maximum number and bytes of a connection's parked requests.
const PARKED_MAX: usize = 1024;
const PARKED_BYTES_MAX: usize = 16 << 20;
/// Interval after which a client that keeps sending requests to the wrong node receives the same map again, in
/// nanoseconds.
const MAP_GIVEN_AGAIN_NS: u64 = 1_000_000_000;
/// Number of times a client receives a map before the node assumes that the client will not adopt it.
const MAP_GIVEN_MAX: u32 = 2;

/// The map in the answer to a misrouted request.
struct MapGiven {
    version: (i64, i64),
    /// In monotonic nanoseconds.
    at_ns: u64,
    times: u32,
}

/// A request that is answered later.
struct Parked {
    frame: Box<[u8]>,
    received: Now,
    until: Until,
}

/// The condition that a parked request waits for.
pub(super) enum Until {
    /// The store has persisted a seqno.
    Persisted(Arc<Ticket<bool>>),
    /// The document is in memory. The request is then carried out again.
    Fetched(Arc<Ticket<bool>>),
    /// The hand-over of the vBucket has ended. The request is then carried out, or refused by the node that lost the
    /// vBucket.
    HandedOver(Arc<Ticket<bool>>),
    /// A worker has read a part of a range scan.
    Scanned(Arc<Ticket<Scanned>>),
    /// A resolver has decided about a version from another cluster. The request is then carried out again.
    Decided(Arc<Ticket<Decided>>),
    /// A login has an outcome: its password was hashed, or the delay of a failure has passed.
    LoggedIn(Arc<Ticket<LoginOutcome>>),
    /// A durable write has ended. Holds its reply and the units used.
    Durable(Arc<Ticket<Option<Token>>>, vbucket::Reply, Units),
}

impl Until {
    /// Returns true if the request has been carried out in part and can no longer be refused.
    fn is_begun(&self) -> bool {
        matches!(self, Until::Durable(..) | Until::Persisted(_) | Until::Scanned(_))
    }

    fn is_over(&self) -> bool {
        match self {
            Until::Persisted(ticket) | Until::Fetched(ticket) | Until::HandedOver(ticket) => {
                ticket.outcome().is_some()
            }
            Until::Scanned(ticket) => ticket.outcome().is_some(),
            Until::Decided(ticket) => ticket.outcome().is_some(),
            Until::LoggedIn(ticket) => ticket.outcome().is_some(),
            Until::Durable(ticket, ..) => ticket.outcome().is_some(),
        }
    }
}

/// The bucket of a connection, and the rights of its user on the whole bucket.
pub(super) struct Selected {
    pub bucket: Arc<Bucket>,
    reads: bool,
    writes: bool,
    /// The version of the users from which the rights were computed.
    users_version: u64,
}

/// The peer of a connection, as described by the transport.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Peer {
    /// True if the transport is confidential, so that a plain password may be sent.
    pub confidential: bool,
    /// The user named by the client's certificate.
    pub user: Option<String>,
    /// True if the peer has proved to be a node of the cluster. Only nodes can log in as [`nacre_auth::INTERNAL`].
    pub is_node: bool,
    /// The address of the peer, if it has one.
    pub address: Option<IpAddr>,
}

/// One connection of the key-value protocol.
pub struct Session {
    pub(super) env: Arc<dyn KvEnv>,
    /// The UUID of the node when the connection was opened. It changes when the node joins or leaves a cluster.
    home: String,
    /// See [`Peer::confidential`].
    pub(super) confidential: bool,
    /// See [`Peer::is_node`].
    pub(super) is_node: bool,
    /// See [`Peer::address`].
    pub(super) address: Option<IpAddr>,
    pub(super) features: Features,
    /// A login in progress that waits for the client's proof.
    pub(super) exchange: Option<sasl::Session>,
    /// The login, if there is one.
    pub(super) user: Option<Login>,
    /// Failed logins since the last successful one.
    pub(super) login_failures: u32,
    /// The version of the users for which the login was last found valid; 0 initially.
    pub(super) users_version: u64,
    pub(super) selected: Option<Selected>,
    /// The name of the selected bucket, which may be temporarily missing.
    chosen: Option<Box<str>>,
    /// True if a mutation was made since the consumers of history were last woken.
    wrote: bool,
    /// Operations counted since they were last added to the bucket's counters.
    counted: OperationCounts,
    parked: Vec<Parked>,
    /// The number of answered requests.
    answered: usize,
    /// The streams of a DCP connection.
    pub(super) dcp: Option<Box<dcp::Dcp>>,
    /// The version of the last pushed cluster map, if the client requested pushes.
    map_sent: Option<(i64, i64)>,
    /// The map in the last answer to a misrouted request.
    map_given: Option<MapGiven>,
    /// The decision about the current request.
    decided: Option<Decided>,
    /// Woken when the wait of a parked request has ended.
    pub(super) waiter: Arc<dyn Waiter>,
    /// The key of the current request with its collection prefix. The allocation is reused.
    key: Vec<u8>,
    /// See [`Session::enable_zero_copy`].
    uses_zero_copy: bool,
    zero_copy_bodies: Vec<ZeroCopyBody>,
    pub(super) memory: Memory,
    /// The range scans that the connection has begun.
    pub(super) scans: Option<ScanOwner>,
}

/// The outcome of a frame.
pub(super) enum Outcome {
    /// Answered, or needs no answer.
    Answered,
    /// To be answered with a status only.
    Status(Status),
    /// The connection ends.
    Close,
    /// To be answered later.
    Park(Until),
}

/// A long body that is sent directly from the document's memory.
#[derive(Clone, Debug)]
pub struct ZeroCopyBody {
    /// The offset of the body in the bytes of the answers.
    pub at: usize,
    /// The document, which is immutable.
    pub document: Document,
}

/// The answer under construction: its destination, and the fields to echo.
pub(super) struct Answer<'a> {
    pub out: &'a mut Vec<u8>,
    /// The document whose body follows the bytes in `out`.
    pub zero_copy_body: Option<Document>,
    /// True if the caller supports zero-copy bodies.
    may_be_zero_copy: bool,
    /// True if no memory is left for long answers.
    pub(super) is_exhausted: bool,
    pub opcode: u8,
    pub opaque: u32,
    /// Microseconds since the request arrived, if the client requested tracing.
    pub duration: Option<u64>,
    /// Units used by the request, if the client requested them.
    pub units: Units,
}

impl Answer<'_> {
    /// Sends `reply` with the echoed fields filled in.
    pub fn send(&mut self, reply: Reply<'_>) {
        let Answer { opcode, opaque, duration, units, .. } = *self;
        let reply = match self.is_refused(reply.value.len()) {
            true => Reply { status: Status::TemporaryFailure, ..Reply::default() },
            false => reply,
        };
        Reply { opcode, opaque, duration, units, ..reply }.encode(self.out);
    }

    /// Sends a document whose body is `reply`'s value.
    pub fn document(&mut self, reply: Reply<'_>, document: &Document) {
        let bytes = document.body().len();
        if !self.may_be_zero_copy || bytes < ZERO_COPY_BYTES_MIN || self.is_refused(bytes) {
            return self.send(reply);
        }
        let Answer { opcode, opaque, duration, units, .. } = *self;
        let reply = Reply { opcode, opaque, duration, units, ..reply };
        reply.encode_before(document.body().len(), self.out);
        self.zero_copy_body = Some(document.clone());
    }

    /// Sends a status and a value.
    pub fn value(&mut self, datatype: u8, value: &[u8]) {
        self.send(Reply { datatype, value, ..Reply::default() });
    }
}

impl Session {
    /// Creates a session without a login, unless the peer's certificate names a user.
    pub fn new(env: Arc<dyn KvEnv>, peer: Peer, waiter: Arc<dyn Waiter>) -> Session {
        let user = peer.user.and_then(|name| env.users().login_without_password(&name));
        Session {
            home: env.uuid(),
            env,
            confidential: peer.confidential,
            is_node: peer.is_node,
            address: peer.address,
            features: Features::default(),
            exchange: None,
            user,
            login_failures: 0,
            users_version: 0,
            selected: None,
            chosen: None,
            wrote: false,
            counted: OperationCounts::default(),
            parked: Vec::new(),
            answered: 0,
            dcp: None,
            map_sent: None,
            map_given: None,
            decided: None,
            waiter,
            key: Vec::new(),
            uses_zero_copy: false,
            zero_copy_bodies: Vec::new(),
            memory: Memory::default(),
            scans: None,
        }
    }

    /// Omits long bodies from the answers from now on. The caller takes them by [`Session::take_zero_copy_bodies`] and
    /// sends them itself.
    pub fn enable_zero_copy(&mut self) {
        self.uses_zero_copy = true;
    }

    /// Takes the bodies omitted from the answers since the last call.
    pub fn take_zero_copy_bodies(&mut self) -> Vec<ZeroCopyBody> {
        std::mem::take(&mut self.zero_copy_bodies)
    }

    /// Returns true if a user has logged in.
    pub fn is_logged_in(&self) -> bool {
        self.user.is_some()
    }

    /// Returns the current time, for [`Session::receive`].
    pub fn now(&self) -> Now {
        self.env.now()
    }

    /// Handles the complete frames at the start of `input` and appends answers to `out`. `now` is the arrival time of
    /// the input.
    ///
    /// Returns the number of consumed bytes, and the next action.
    pub fn receive(&mut self, input: &[u8], out: &mut Vec<u8>, now: Now) -> (usize, Next) {
        let mut consumed = 0;
        self.check_memory();
        if let Some(dcp) = &self.dcp {
            dcp.record_received(now);
        }
        let mut lookahead = Lookahead::new(input);
        let mut count = 0;
        let next = loop {
            let announced = announced_body_bytes(&input[consumed..]);
            if self.user.is_none() && announced > Some(LOGIN_BODY_BYTES_MAX) {
                let reason = format!("a body of over {LOGIN_BODY_BYTES_MAX} bytes before a login");
                break Next::Close(Some(reason));
            }
            match decode(&input[consumed..]) {
                Ok(None) => break Next::More,
                Err(error) => break Next::Close(Some(error.to_string())),
                Ok(Some((frame, _))) if self.must_wait(&frame) => break Next::Wait,
                Ok(Some((frame, length))) => {
                    let bytes = &input[consumed..consumed + length];
                    consumed += length;
                    count += 1;
                    if let Some(selected) = self.selected.as_ref().filter(|_| self.dcp.is_none()) {
                        let prefixed = self.features.has(Feature::Collections);
                        let take = |step, seen: &Glance<'_>| {
                            lookahead::take(step, &selected.bucket, seen, prefixed);
                        };
                        lookahead.advance(take);
                    }
                    match self.handle(&frame, bytes, out, now, now) {
                        Next::More if out.len() + self.zero_copy_bytes() > ANSWER_BYTES_MAX => {
                            break Next::Flush;
                        }
                        Next::More => {}
                        other => break other,
                    }
                }
            }
        };
        self.wake_listeners();
        if count > 0 && self.dcp.is_none() {
            slow::note_read(self, count, [now, self.env.now()]);
        }
        (consumed, next)
    }

    fn zero_copy_bytes(&self) -> usize {
        self.zero_copy_bodies.iter().map(|body| body.document.body().len()).sum()
    }

    /// Wakes the consumers of history if a mutation was made, and adds to the bucket's counters. Must be called before the
    /// connection's bucket may change.
    fn wake_listeners(&mut self) {
        let (wrote, counted) = (std::mem::take(&mut self.wrote), std::mem::take(&mut self.counted));
        let Some(selected) = &self.selected else { return };
        selected.bucket.operations.add(counted);
        if wrote {
            selected.bucket.wake_listeners();
        }
    }

    /// Returns true if the session may send without input from the client: requests are parked, maps are pushed, or the
    /// client consumes history.
    pub fn may_speak_first(&self) -> bool {
        !self.parked.is_empty() || self.map_sent.is_some() || self.dcp.is_some()
    }

    /// Returns true if requests are parked. [`Session::resume`] answers them when their waits have ended.
    pub fn has_parked(&self) -> bool {
        !self.parked.is_empty()
    }

    /// Returns the reason why the connection must end at once, even with unsent answers. The session's waiter is woken
    /// when that changes.
    pub fn cut(&self) -> Option<&'static str> {
        self.dcp.as_ref().and_then(|dcp| dcp.cut())
    }

    /// Returns true if [`Session::resume`] has something to send. The session's waiter is woken when that may change.
    pub fn is_ready(&self) -> bool {
        self.parked.iter().any(|parked| parked.until.is_over())
            || self.is_map_new()
            || self.dcp.as_ref().is_some_and(|dcp| dcp.is_ready())
    }

    fn is_map_new(&self) -> bool {
        self.user.is_some() && self.map_sent.is_some_and(|sent| sent.1 < self.env.map_rev())
    }

    /// Starts pushing new cluster maps to the client, if HELLO has negotiated that.
    pub(super) fn watch_map(&mut self) {
        let pushes = [Feature::ClustermapPush, Feature::ClustermapPushBrief];
        let wanted = self.features.has(Feature::Duplex)
            && pushes.iter().any(|feature| self.features.has(*feature));
        if wanted && self.map_sent.is_none() {
            self.env.watch_map(&self.waiter);
        }
        self.map_sent = wanted.then(|| self.env.map_version());
    }

    fn push_map(&mut self, out: &mut Vec<u8>) {
        if !self.is_map_new() {
            return;
        }
        let version = self.env.map_version();
        self.map_sent = Some(version);
        let brief = self.features.has(Feature::ClustermapPushBrief);
        let map = if brief { None } else { admin::map(self) };
        let bucket = self.selected.as_ref().map_or(&b""[..], |s| s.bucket.name.as_bytes());
        MapPush { bucket, version, map: map.as_deref().unwrap_or_default().as_bytes() }.encode(out);
    }

    /// Returns the map for the answer to a misrouted request.
    ///
    /// A client that received the map a moment ago gets none: it would only parse another copy while the answers behind
    /// this one wait. Maps that were requested or pushed do not count, because the client may not have processed them
    /// before it reads the next answer. A client that still sends to the wrong node later never processed the map: SDKs
    /// drop late answers.
    ///
    /// A client that received a map twice will not adopt it. SDKs keep the older of two maps that arrive together, and
    /// ignore a second map of the same revision. So the map is renewed under another revision.
    fn not_my_vbucket_map(&mut self) -> Option<Arc<str>> {
        let version = self.env.map_version();
        let now_ns = self.env.now().monotonic_ns;
        let given = self.map_given.as_ref().filter(|given| given.version >= version);
        let mut times = given.map_or(0, |given| given.times);
        if self.features.has(Feature::DedupeNotMyVbucket) {
            if given.is_some_and(|given| now_ns < given.at_ns + MAP_GIVEN_AGAIN_NS) {
                return None;
            }
            if times >= MAP_GIVEN_MAX {
                self.env.renew_map(version.1);
            }
            times += 1;
        }
        let map = admin::not_my_vbucket_map(self)?;
        self.map_given = Some(MapGiven { version, at_ns: now_ns, times });
        Some(map)
    }

    /// Sends pending output: answers to requests whose waits have ended, a new cluster map, history. Returns
    /// [`Next::More`] or [`Next::Close`].
    pub fn resume(&mut self, out: &mut Vec<u8>, now: Now) -> Next {
        let is_over = |parked: &mut Parked| parked.until.is_over();
        let over: Vec<Parked> = self.parked.extract_if(.., is_over).collect();
        if !over.is_empty() {
            self.check_memory();
            self.release_parked();
        }
        for Parked { frame: bytes, received, until } in over {
            let Ok(Some((frame, _))) = decode(&bytes) else { continue };
            let waited = slow::wait(&until);
            let parked_before = self.parked.len();
            let outcome = match until {
                Until::Persisted(ticket) => Outcome::Status(match ticket.outcome() {
                    Some(true) => Status::Success,
                    _ => Status::TemporaryFailure,
                }),
                Until::Fetched(ticket) if ticket.outcome() == Some(&false) => {
                    Outcome::Status(Status::TemporaryFailure)
                }
                Until::HandedOver(ticket) if ticket.outcome() == Some(&false) => {
                    Outcome::Status(Status::NotMyVbucket)
                }
                Until::Fetched(_) | Until::HandedOver(_) | Until::Decided(_) => {
                    if let Until::Decided(ticket) = until {
                        self.decided = ticket.outcome().cloned();
                    }
                    let next = self.handle(&frame, &bytes, out, received, now);
                    self.decided = None;
                    if let Next::Close(why) = next {
                        return Next::Close(why);
                    }
                    if let Some(waited) = waited.filter(|_| self.parked.len() == parked_before) {
                        slow::note_one(self, &frame, waited, [received, now]);
                    }
                    continue;
                }
                Until::Scanned(ticket) => match ticket.outcome() {
                    Some(scanned) => scan::answer(scanned, &mut self.answer(&frame, out, received)),
                    None => Outcome::Status(Status::Internal),
                },
                Until::LoggedIn(ticket) => {
                    let mut answer = self.answer(&frame, out, received);
                    let outcome = ticket.outcome().cloned().unwrap_or(LoginOutcome::Busy);
                    admin::logged_in(self, outcome, &mut answer)
                }
                Until::Durable(ticket, reply, units) => match ticket.outcome() {
                    Some(Some(token)) => {
                        let mut answer = self.answer(&frame, out, received);
                        answer.units = units;
                        self.settle(&frame, reply.committed(*token), &mut answer, now)
                    }
                    _ => Outcome::Status(Status::SyncWriteAmbiguous),
                },
            };
            if let Some(waited) = waited {
                slow::note_one(self, &frame, waited, [received, now]);
            }
            if let Next::Close(why) = self.conclude(&frame, &bytes, outcome, out, received) {
                return Next::Close(why);
            }
        }
        self.wake_listeners();
        self.push_map(out);
        dcp::pump(self, out, now)
    }

    /// Returns the bytes of the parked requests.
    pub(super) fn parked_bytes(&self) -> usize {
        self.parked.iter().map(|parked| parked.frame.len()).sum()
    }

    /// Returns true if `frame` must wait for the parked requests.
    ///
    /// Requests on documents, and requests that need no state of the connection, can overtake others if the client has
    /// negotiated that. All others change or show the state of the connection.
    fn must_wait(&self, frame: &Frame<'_>) -> bool {
        if self.parked.is_empty() {
            return false;
        }
        let logs_in = |parked: &Parked| matches!(parked.until, Until::LoggedIn(_));
        let overtakes = !self.parked.iter().any(logs_in)
            && self.features.has(Feature::UnorderedExecution)
            && self.parked.len() < PARKED_MAX
            && self.parked_bytes() < PARKED_BYTES_MAX
            && frame.opcode().is_some_and(Opcode::may_be_reordered)
            && frame.frame_infos().is_ok_and(|infos| !infos.barrier);
        !overtakes
    }

    fn answer<'a>(&self, frame: &Frame<'_>, out: &'a mut Vec<u8>, received: Now) -> Answer<'a> {
        let duration = self
            .features
            .has(Feature::Tracing)
            .then(|| self.env.now().monotonic_ns.saturating_sub(received.monotonic_ns) / 1000);
        Answer {
            out,
            zero_copy_body: None,
            may_be_zero_copy: self.uses_zero_copy,
            is_exhausted: self.is_exhausted(),
            opcode: frame.opcode_byte,
            opaque: frame.opaque,
            duration,
            units: Units::default(),
        }
    }

    /// Carries out a request for the first time, or retries it.
    fn handle(
        &mut self,
        frame: &Frame<'_>,
        bytes: &[u8],
        out: &mut Vec<u8>,
        received: Now,
        now: Now,
    ) -> Next {
        match frame.magic {
            Magic::Request | Magic::FlexRequest => {}
            // The client's response to a push; nothing waits for it.
            Magic::ServerResponse => return Next::More,
            Magic::Response | Magic::FlexResponse
                if self.dcp.is_some() && frame.opcode() == Some(Opcode::DcpNoop) =>
            {
                self.dcp.iter().for_each(|dcp| dcp.answered(now));
                return Next::More;
            }
            other => return Next::Close(Some(format!("a client does not send {other:?} frames"))),
        }
        let compressed = frame.datatype & DATATYPE_SNAPPY != 0;
        let outcome = match snappy::plain(frame.value, compressed) {
            _ if compressed && !self.features.has(Feature::Snappy) => {
                Outcome::Status(Status::InvalidArguments)
            }
            Ok(value) => {
                let datatype = frame.datatype & !DATATYPE_SNAPPY;
                let frame = Frame { value: &value, datatype, ..*frame };
                let mut answer = self.answer(&frame, out, received);
                let outcome = match self.admit(&frame) {
                    Ok(request) => self.dispatch(&frame, &request, &mut answer, now),
                    Err(status) => Outcome::Status(status),
                };
                if let Some(document) = answer.zero_copy_body {
                    self.zero_copy_bodies.push(ZeroCopyBody { at: out.len(), document });
                }
                outcome
            }
            Err(status) => Outcome::Status(status),
        };
        // A node that has joined another cluster has lost the users and buckets of the previous one. The clients must
        // find the nodes that are still in that cluster.
        if let Outcome::Status(Status::AuthStale | Status::NoBucket) = outcome
            && self.env.uuid() != self.home
        {
            return Next::Close(None);
        }
        self.conclude(frame, bytes, outcome, out, received)
    }

    /// Sends the part of an outcome that was not sent yet.
    fn conclude(
        &mut self,
        frame: &Frame<'_>,
        bytes: &[u8],
        outcome: Outcome,
        out: &mut Vec<u8>,
        received: Now,
    ) -> Next {
        match outcome {
            Outcome::Answered => {}
            Outcome::Status(Status::NotMyVbucket) => {
                let map = self.not_my_vbucket_map();
                let status = Status::NotMyVbucket;
                let value = map.as_deref().unwrap_or_default().as_bytes();
                let datatype = if value.is_empty() { 0 } else { DATATYPE_JSON };
                let reply = Reply { status, datatype, value, ..Reply::default() };
                self.answer(frame, out, received).send(reply);
            }
            Outcome::Status(status) => {
                if !is_silent(frame, status) {
                    self.answer(frame, out, received).send(Reply { status, ..Reply::default() });
                }
            }
            Outcome::Close => {
                if !is_quiet(frame) {
                    self.answer(frame, out, received).send(Reply::default());
                }
                return Next::Close(None);
            }
            Outcome::Park(Until::HandedOver(_)) if self.parked.len() >= self.answered / 2 => {
                // Clients abandon a connection for seconds when half of their requests time out, which can happen if
                // they have waited for this node before. Refuse early instead: they retry, and more can be answered by
                // then.
                let stray = Outcome::Status(Status::NotMyVbucket);
                return self.conclude(frame, bytes, stray, out, received);
            }
            Outcome::Park(until) if !self.hold_parked(bytes.len(), until.is_begun()) => {
                let outcome = Outcome::Status(Status::TemporaryFailure);
                return self.conclude(frame, bytes, outcome, out, received);
            }
            Outcome::Park(until) => {
                self.parked.push(Parked { frame: bytes.into(), received, until });
                return Next::More;
            }
        }
        self.answered = self.answered.saturating_add(1);
        match self.login_failures >= LOGIN_FAILURES_MAX {
            true => Next::Close(None),
            false => Next::More,
        }
    }

    /// Parses the request, and checks the login and the privileges that its opcode requires.
    fn admit<'a>(&mut self, frame: &Frame<'a>) -> Result<Request<'a>, Status> {
        let request = parse(frame, self.features.has(Feature::Collections))?;
        match frame.opcode().map_or(Need::Login, rights::need) {
            Need::Nothing => {}
            Need::Login => self.check_user()?,
            Need::Bucket | Need::OnCollection(_) => {
                self.check_user()?;
                self.bucket()?;
            }
            Need::WithinBucket(privilege) => {
                self.check_user()?;
                let bucket = Arc::clone(&self.bucket()?.bucket);
                let users = self.env.users();
                if !self.holder(&users).is_some_and(|user| user.may_within(privilege, &bucket.name))
                {
                    return Err(Status::AccessDenied);
                }
            }
            Need::OnBucket(privilege) => {
                self.check_user()?;
                self.bucket()?;
                if !self.may_in_bucket(privilege) {
                    return Err(Status::AccessDenied);
                }
            }
        }
        Ok(request)
    }

    /// Returns the name of the logged-in user, or an empty string.
    pub(super) fn user_name(&self) -> &str {
        self.user.as_ref().map_or("", |login| &login.user)
    }

    /// Returns the logged-in user while the login is valid.
    pub(super) fn holder<'u>(&self, users: &'u Users) -> Option<&'u User> {
        users.holder(self.user.as_ref()?)
    }

    /// Returns true if the peer has logged in as a node of the cluster.
    pub(super) fn is_internal(&self) -> bool {
        self.user.as_ref().is_some_and(|login| login.user == INTERNAL)
    }

    /// Refuses requests without a login or with an invalidated login: the user was removed (even if another of the same
    /// name was created since), or has changed the password.
    fn check_user(&mut self) -> Result<(), Status> {
        let login = self.user.as_ref().ok_or(Status::AccessDenied)?;
        // Read the version first, so that the next request notices a change in between.
        let users_version = self.env.users_version();
        if self.users_version == users_version {
            return Ok(());
        }
        if self.env.users().holder(login).is_none() {
            self.wake_listeners();
            self.user = None;
            self.selected = None;
            return Err(Status::AuthStale);
        }
        self.users_version = users_version;
        Ok(())
    }

    fn dispatch(
        &mut self,
        frame: &Frame<'_>,
        request: &Request<'_>,
        answer: &mut Answer<'_>,
        now: Now,
    ) -> Outcome {
        if !frame.opcode().is_some_and(Opcode::addresses_document) {
            self.wake_listeners();
            return admin::run(self, frame, request, answer, now);
        }
        self.call(frame, request, None, answer, now)
    }

    /// Answers a durable write that has ended. From here on the write must not be answered as if it had not been
    /// carried out.
    fn settle(
        &mut self,
        frame: &Frame<'_>,
        reply: vbucket::Reply,
        answer: &mut Answer<'_>,
        now: Now,
    ) -> Outcome {
        match self.admit(frame) {
            Ok(request) => self.call(frame, &request, Some(reply), answer, now),
            Err(_) => Outcome::Status(Status::SyncWriteAmbiguous),
        }
    }

    /// Carries out a request on a document, or answers it with the reply that is already available.
    fn call(
        &mut self,
        frame: &Frame<'_>,
        request: &Request<'_>,
        settled: Option<vbucket::Reply>,
        answer: &mut Answer<'_>,
        now: Now,
    ) -> Outcome {
        let mut key = std::mem::take(&mut self.key);
        key.clear();
        if !self.features.has(Feature::Collections) {
            key.push(0);
        }
        key.extend_from_slice(frame.key);
        let is_settled = settled.is_some();
        let decided = self.decided.take();
        let new = document::Call::new(self, frame, request, &key, settled, decided);
        let (outcome, wrote) = match new {
            Ok(call) => (call.run(answer, now), call.wrote()),
            Err(_) if is_settled => (Outcome::Status(Status::SyncWriteAmbiguous), false),
            Err(refused) => (refused.answer(answer), false),
        };
        self.wrote |= wrote;
        if !matches!(outcome, Outcome::Park(_)) {
            self.counted.add(frame.opcode(), wrote);
        }
        self.key = key;
        outcome
    }

    /// Returns the bucket of the connection. The bucket is looked up again by name after a flush or drop, and after a
    /// change of users, so that a revoked privilege ends with the next request. A bucket that reappears, for example on
    /// a node that rejoins, continues to work.
    pub(super) fn bucket(&mut self) -> Result<&Selected, Status> {
        let version = self.env.users_version();
        let is_current =
            |found: &Selected| found.users_version == version && !found.bucket.is_closed();
        if !self.selected.as_ref().is_some_and(is_current) {
            let name = self.chosen.clone().ok_or(Status::NoBucket)?;
            self.wake_listeners();
            self.selected = None;
            self.select(&name).map_err(|_| Status::NoBucket)?;
        }
        self.selected.as_ref().ok_or(Status::NoBucket)
    }

    /// Deselects the bucket of the connection, if it has one.
    pub(super) fn leave_bucket(&mut self) {
        (self.selected, self.chosen) = (None, None);
        self.memory.forget_account();
        // The recorded map belongs to the bucket.
        self.map_given = None;
    }

    /// Selects the bucket `name`.
    pub(super) fn select(&mut self, name: &str) -> Result<(), Status> {
        // Clients interpret "not found" as a bucket that is about to appear, and retry until their timeout.
        let bucket = self.env.bucket(name);
        // Read the version first, so that the next request notices a change in between.
        let users_version = self.env.users_version();
        let users = self.env.users();
        let user = self.holder(&users).ok_or(Status::AccessDenied)?;
        let keyspace = Keyspace { bucket: Some(name), ..Keyspace::default() };
        let may = |privilege| user.may(privilege, keyspace);
        let (reads, writes) = (may(Privilege::ReadData), may(Privilege::WriteData));
        if !user.may_open(name) {
            return Err(Status::AccessDenied);
        }
        drop(users);
        let Some(bucket) = bucket else {
            return Err(if self.env.is_bucket_damaged(name) {
                Status::TemporaryFailure
            } else {
                Status::AccessDenied
            });
        };
        self.selected = Some(Selected { bucket, reads, writes, users_version });
        self.chosen = Some(name.into());
        self.map_given = None;
        Ok(())
    }

    /// Returns true if the user has all `privileges` on a collection of the selected bucket.
    pub(super) fn may(
        &self,
        selected: &Selected,
        collection: CollectionId,
        privileges: &[Privilege],
    ) -> bool {
        let everywhere = |privilege: &Privilege| match privilege {
            Privilege::ReadData => selected.reads,
            Privilege::InsertData | Privilege::UpsertData | Privilege::DeleteData => {
                selected.writes
            }
            _ => false,
        };
        privileges.iter().all(everywhere) || self.may_here(selected, collection, privileges)
    }

    fn may_here(
        &self,
        selected: &Selected,
        collection: CollectionId,
        privileges: &[Privilege],
    ) -> bool {
        let manifest = selected.bucket.manifest();
        let holds =
            |scope: &&nacre_cluster::Scope| scope.collections.iter().any(|c| c.id == collection.0);
        let Some(scope) = manifest.scopes.iter().find(holds) else { return false };
        let Some(found) = scope.collections.iter().find(|c| c.id == collection.0) else {
            return false;
        };
        let keyspace = Keyspace {
            bucket: Some(&selected.bucket.name),
            scope: Some(&scope.name),
            collection: Some(&found.name),
        };
        self.has(privileges, keyspace)
    }

    /// Returns true if the user has `privilege` on the whole selected bucket.
    fn may_in_bucket(&self, privilege: Privilege) -> bool {
        let Some(selected) = &self.selected else { return false };
        let keyspace = Keyspace { bucket: Some(&selected.bucket.name), ..Keyspace::default() };
        self.has(&[privilege], keyspace)
    }

    /// Returns true if the user has all `privileges` on a keyspace.
    pub(super) fn has(&self, privileges: &[Privilege], keyspace: Keyspace<'_>) -> bool {
        let users = self.env.users();
        self.holder(&users)
            .is_some_and(|user| privileges.iter().all(|privilege| user.may(*privilege, keyspace)))
    }
}

/// Returns true if the answer is omitted: quiet reads do not answer misses, and quiet writes do not answer success.
fn is_silent(frame: &Frame<'_>, status: Status) -> bool {
    let Some((opcode, true)) = frame.opcode().map(Opcode::loud) else { return false };
    let reads = matches!(opcode, Opcode::Get | Opcode::GetK | Opcode::GetAndTouch);
    if reads { status == Status::KeyNotFound } else { status == Status::Success }
}

/// Returns true if a successful answer to `frame` is omitted.
pub(super) fn is_quiet(frame: &Frame<'_>) -> bool {
    is_silent(frame, Status::Success)
}
