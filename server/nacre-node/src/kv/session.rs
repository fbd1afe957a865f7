//! The state of one connection, and the way of a frame through it.

use super::rights::{self, Need};
use super::{admin, document};
use crate::bucket::Bucket;
use crate::node::Node;
use nacre_auth::sasl;
use nacre_auth::{Keyspace, Privilege};
use nacre_protocol::{
    Feature, Features, Frame, Magic, Opcode, Reply, Request, Status, decode, parse,
};
use nacre_types::{CollectionId, DATATYPE_JSON, Now, Seqno, Vbid};
use std::sync::Arc;

/// What the connection should do after the input that was handled.
#[derive(Debug)]
pub enum Next {
    /// Read more.
    More,
    /// Send what there is before the rest of the input is handled: the answers have grown large.
    Flush,
    /// Send what there is and close: the peer said goodbye, or its bytes cannot be followed. The reason is for the log.
    Close(Option<String>),
    /// Wait, then call [`Session::resume`]; later requests stay in the input until then.
    Wait(Wait),
}

/// A request that is answered once the store holds a seqno.
pub struct Wait {
    /// The bucket.
    pub bucket: Arc<Bucket>,
    /// The vBucket.
    pub vbid: Vbid,
    /// What must be persisted.
    pub seqno: Seqno,
    opcode: Opcode,
    opaque: u32,
}

impl std::fmt::Debug for Wait {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Wait({} until {})", self.vbid, self.seqno)
    }
}

/// Bytes of answers after which they are sent before more requests are handled, so that a burst of small requests for
/// large documents cannot fill the memory.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// The bucket of a connection, and what its user may do everywhere in it.
pub(super) struct Selected {
    pub bucket: Arc<Bucket>,
    reads: bool,
    writes: bool,
    /// Which state of the users these rights come from.
    users_version: u64,
}

/// Who is at the other end, as far as the connection tells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Peer {
    /// Whether nobody between can read what is sent, so that a password may be sent as it is.
    pub confidential: bool,
    /// The user whom the client's certificate names.
    pub user: Option<String>,
}

/// One connection of the key-value protocol.
pub struct Session {
    pub(super) node: Arc<Node>,
    /// See [`Peer::confidential`].
    pub(super) confidential: bool,
    pub(super) features: Features,
    pub(super) login: Option<sasl::Session>,
    pub(super) user: Option<String>,
    /// At which state of the users it was last seen that the user is known; 0 for never.
    users_version: u64,
    pub(super) selected: Option<Selected>,
    /// Something was written since the readers of history were last woken.
    wrote: bool,
    /// The key of the request at hand, with its collection prefix; kept to be used again.
    key: Vec<u8>,
}

/// What became of a frame.
pub(super) enum Outcome {
    /// Answered, or needs no answer.
    Answered,
    /// Answered with a bare status.
    Status(Status),
    /// The connection ends.
    Close,
    /// Answered later.
    Wait { vbid: Vbid, seqno: Seqno },
}

/// The answer under construction: where it goes and what it must echo.
pub(super) struct Answer<'a> {
    pub out: &'a mut Vec<u8>,
    pub opcode: u8,
    pub opaque: u32,
    /// Microseconds since the request arrived, for clients that trace.
    pub duration: Option<u64>,
}

impl Answer<'_> {
    /// Sends `reply` with the echoed fields filled in.
    pub fn send(&mut self, reply: Reply<'_>) {
        let Answer { opcode, opaque, duration, .. } = *self;
        Reply { opcode, opaque, duration, ..reply }.encode(self.out);
    }

    /// Sends a status and a value.
    pub fn value(&mut self, datatype: u8, value: &[u8]) {
        self.send(Reply { datatype, value, ..Reply::default() });
    }
}

impl Session {
    /// A connection that has not logged in, unless the peer's certificate names a user.
    pub fn new(node: Arc<Node>, peer: Peer) -> Session {
        let user = peer.user.filter(|name| node.users().get(name).is_some());
        Session {
            node,
            confidential: peer.confidential,
            features: Features::default(),
            login: None,
            user,
            users_version: 0,
            selected: None,
            wrote: false,
            key: Vec::new(),
        }
    }

    /// The time to hand to [`Session::receive`].
    pub fn now(&self) -> Now {
        self.node.now()
    }

    /// Handles the whole frames at the start of `input`, appending answers to `out`.
    ///
    /// Gives the bytes that were consumed and what to do next. `now` is when the input arrived.
    pub fn receive(&mut self, input: &[u8], out: &mut Vec<u8>, now: Now) -> (usize, Next) {
        let mut consumed = 0;
        let next = loop {
            match decode(&input[consumed..]) {
                Ok(None) => break Next::More,
                Err(error) => break Next::Close(Some(error.to_string())),
                Ok(Some((frame, length))) => {
                    consumed += length;
                    match self.handle(&frame, out, now) {
                        Next::More if out.len() > ANSWER_BYTES_MAX => break Next::Flush,
                        Next::More => {}
                        other => break other,
                    }
                }
            }
        };
        self.wake_readers();
        (consumed, next)
    }

    /// Wakes the readers of history if something was written. Called before the bucket of the connection may change.
    fn wake_readers(&mut self) {
        if std::mem::take(&mut self.wrote)
            && let Some(selected) = &self.selected
        {
            selected.bucket.wake_readers();
        }
    }

    /// Answers the request that waited; `reached` is false when the bucket ended before.
    pub fn resume(&mut self, wait: &Wait, reached: bool, out: &mut Vec<u8>) {
        let status = if reached { Status::Success } else { Status::TemporaryFailure };
        Reply { opcode: wait.opcode as u8, opaque: wait.opaque, status, ..Reply::default() }
            .encode(out);
    }

    fn handle(&mut self, frame: &Frame<'_>, out: &mut Vec<u8>, now: Now) -> Next {
        match frame.magic {
            Magic::Request | Magic::FlexRequest => {}
            // A client's answer to something the server pushed: nobody waits for it.
            Magic::ServerResponse => return Next::More,
            other => return Next::Close(Some(format!("a client does not send {other:?} frames"))),
        }
        let duration = self
            .features
            .has(Feature::Tracing)
            .then(|| self.node.now().monotonic_ns.saturating_sub(now.monotonic_ns) / 1000);
        let mut answer = Answer { out, opcode: frame.opcode_byte, opaque: frame.opaque, duration };
        let outcome = match self.admit(frame) {
            Ok(request) => self.dispatch(frame, &request, &mut answer, now),
            Err(status) => Outcome::Status(status),
        };
        match outcome {
            Outcome::Answered => Next::More,
            Outcome::Status(Status::NotMyVbucket) => {
                let map = admin::map(self).unwrap_or_default();
                let (status, datatype) = (Status::NotMyVbucket, DATATYPE_JSON);
                answer.send(Reply { status, datatype, value: map.as_bytes(), ..Reply::default() });
                Next::More
            }
            Outcome::Status(status) => {
                if !is_silent(frame, status) {
                    answer.send(Reply { status, ..Reply::default() });
                }
                Next::More
            }
            Outcome::Close => {
                if !is_quiet(frame) {
                    answer.send(Reply::default());
                }
                Next::Close(None)
            }
            Outcome::Wait { vbid, seqno } => match (&self.selected, frame.opcode()) {
                (Some(selected), Some(opcode)) => {
                    let bucket = Arc::clone(&selected.bucket);
                    Next::Wait(Wait { bucket, vbid, seqno, opcode, opaque: frame.opaque })
                }
                _ => Next::More,
            },
        }
    }

    /// Validates the request and checks that the connection has come far enough for it.
    fn admit<'a>(&mut self, frame: &Frame<'a>) -> Result<Request<'a>, Status> {
        let request = parse(frame, self.features.has(Feature::Collections))?;
        match frame.opcode().map_or(Need::Login, rights::need) {
            Need::Nothing => {}
            Need::Login => self.check_user()?,
            Need::Bucket | Need::OnCollection(_) => {
                self.check_user()?;
                self.bucket()?;
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

    /// Whether somebody has logged in who is still known.
    fn check_user(&mut self) -> Result<(), Status> {
        let user = self.user.as_deref().ok_or(Status::AccessDenied)?;
        // Read first: a change in between is noticed by the next request.
        let users_version = self.node.users_version();
        if self.users_version == users_version {
            return Ok(());
        }
        if self.node.users().get(user).is_none() {
            self.wake_readers();
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
            self.wake_readers();
            return admin::run(self, frame, request, answer);
        }
        let mut key = std::mem::take(&mut self.key);
        key.clear();
        if !self.features.has(Feature::Collections) {
            key.push(0);
        }
        key.extend_from_slice(frame.key);
        let (outcome, wrote) = match document::Call::new(self, frame, request, &key) {
            Ok(call) => (call.run(answer, now), call.wrote()),
            Err(refused) => (refused.answer(answer), false),
        };
        self.wrote |= wrote;
        self.key = key;
        outcome
    }

    /// The bucket of the connection. It is looked up again by its name when it was flushed or dropped meanwhile, and
    /// when users changed, so that a right that was taken away is gone with the next request.
    pub(super) fn bucket(&mut self) -> Result<&Selected, Status> {
        let selected = self.selected.as_ref().ok_or(Status::NoBucket)?;
        let users_changed = selected.users_version != self.node.users_version();
        if users_changed || selected.bucket.is_closed() {
            let name = selected.bucket.name.clone();
            self.wake_readers();
            self.selected = None;
            self.select(&name).map_err(|_| Status::NoBucket)?;
        }
        self.selected.as_ref().ok_or(Status::NoBucket)
    }

    /// Makes `name` the bucket of the connection.
    pub(super) fn select(&mut self, name: &str) -> Result<(), Status> {
        // Clients take "not found" for a bucket that is about to appear, and try again until their time is over.
        let bucket = self.node.bucket(name).ok_or(Status::AccessDenied)?;
        // Read first: a change in between is noticed by the next request.
        let users_version = self.node.users_version();
        let users = self.node.users();
        let user =
            self.user.as_deref().and_then(|user| users.get(user)).ok_or(Status::AccessDenied)?;
        let keyspace = Keyspace { bucket: Some(name), ..Keyspace::default() };
        let may = |privilege| user.may(privilege, keyspace);
        let (reads, writes) = (may(Privilege::ReadData), may(Privilege::WriteData));
        if !user.may_open(name) {
            return Err(Status::AccessDenied);
        }
        drop(users);
        self.selected = Some(Selected { bucket, reads, writes, users_version });
        Ok(())
    }

    /// Whether the user has all of `privileges` on a collection of the selected bucket.
    pub(super) fn may(
        &self,
        selected: &Selected,
        collection: CollectionId,
        privileges: &[Privilege],
    ) -> bool {
        let everywhere = |privilege: &Privilege| match privilege {
            Privilege::ReadData => selected.reads,
            Privilege::WriteData => selected.writes,
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

    /// Whether the user has `privilege` on all of the selected bucket.
    fn may_in_bucket(&self, privilege: Privilege) -> bool {
        let Some(selected) = &self.selected else { return false };
        let keyspace = Keyspace { bucket: Some(&selected.bucket.name), ..Keyspace::default() };
        self.has(&[privilege], keyspace)
    }

    fn has(&self, privileges: &[Privilege], keyspace: Keyspace<'_>) -> bool {
        let users = self.node.users();
        let user = self.user.as_deref().and_then(|user| users.get(user));
        user.is_some_and(|user| privileges.iter().all(|privilege| user.may(*privilege, keyspace)))
    }
}

/// Quiet reads do not answer a miss, quiet writes do not answer success.
fn is_silent(frame: &Frame<'_>, status: Status) -> bool {
    let Some((opcode, true)) = frame.opcode().map(Opcode::loud) else { return false };
    let reads = matches!(opcode, Opcode::Get | Opcode::GetK | Opcode::GetAndTouch);
    if reads { status == Status::KeyNotFound } else { status == Status::Success }
}

/// Whether a successful answer to `frame` is left out.
pub(super) fn is_quiet(frame: &Frame<'_>) -> bool {
    is_silent(frame, Status::Success)
}
