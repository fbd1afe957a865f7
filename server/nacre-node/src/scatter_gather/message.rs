//! Messages between the nodes of a cluster: each belongs to one service, and the transport handles only its
//! bytes.
//!
//! ```text
//! question = header { revision, milliseconds left, service ID }, then the message of that service
//! reply    = Result<reply of that service, NoReply>
//! ```
//!
//! Both use the postcard format, because all nodes of a cluster have the same version.

use super::Vbids;
use crate::node::Node;
use crate::platform::PeerError;
use crossbeam_channel::{Receiver, TryRecvError};
use nacre_bucket::before_blocking;
use nacre_sandbox::Failure;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

/// Code of failures that no user can fix. Source: Couchbase's query service.
const INTERNAL: u32 = 5000;

/// A message from a service to the same service on another node, with the type of its reply.
///
/// A message may cover vBuckets of several nodes; each node then answers for those that it serves.
pub trait PeerMessage: Serialize + DeserializeOwned {
    /// Type of a successful reply.
    type Reply: Serialize + DeserializeOwned;

    /// ID of the service that answers the message.
    const SERVICE: &'static str;

    /// Returns the subject under which the node counts the message.
    fn subject(&self) -> &'static str;

    /// Returns true if the message changes documents. Such a message is not sent again when its reply is lost.
    fn writes(&self) -> bool {
        false
    }

    /// Answers the message on `node`. Blocks, for `left` at most.
    ///
    /// # Errors
    /// [`NoReply`].
    fn answer(self, node: &Arc<Node>, left: Duration) -> Result<Self::Reply, NoReply>;

    /// Returns the vBuckets that `reply` covers, among those in `asked`.
    fn covered(_reply: &Self::Reply, asked: Vbids) -> Vbids {
        asked
    }
}

/// The reason why a node that received a message gives no reply.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NoReply {
    /// The node does not serve all of the vBuckets, or stopped serving them while it answered.
    NotOwner,
    /// The same message may succeed later. The text is the reason, for people.
    NotYet(String),
    /// The message cannot be answered.
    Failed(PeerFailure),
}

/// A failure of a service on another node, in the form that its clients receive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerFailure {
    /// Code of the service that failed.
    pub code: u32,
    /// Text for the client.
    pub message: String,
    /// True if the client may try again.
    pub retry: bool,
}

impl NoReply {
    /// Returns a failure that no user can fix.
    pub fn internal(message: impl Into<String>) -> NoReply {
        NoReply::Failed(PeerFailure { code: INTERNAL, message: message.into(), retry: false })
    }

    /// Encodes the refusal. Every message type can decode it as its reply.
    pub fn to_bytes(&self) -> Vec<u8> {
        reply(&Err::<(), _>(self))
    }
}

/// The pending reply of a peer to a message of type `M`. The caller can wait for it or poll it.
pub struct PendingReply<M> {
    receiver: Receiver<Result<Vec<u8>, PeerError>>,
    message: PhantomData<fn() -> M>,
}

impl<M: PeerMessage> PendingReply<M> {
    /// Creates a pending reply that arrives at `receiver`.
    pub fn new(receiver: Receiver<Result<Vec<u8>, PeerError>>) -> PendingReply<M> {
        PendingReply { receiver, message: PhantomData }
    }

    /// Blocks until the reply arrives, or the reason why there is none.
    ///
    /// # Errors
    /// [`PeerError`] when no readable reply has arrived.
    pub fn wait(&self) -> Result<Result<M::Reply, NoReply>, PeerError> {
        before_blocking();
        read_reply::<M>(self.receiver.recv().map_err(|_| ended())?)
    }

    /// Returns the reply if it has arrived, or the reason why there will be none; `None` while neither has.
    pub fn poll(&self) -> Option<Result<Result<M::Reply, NoReply>, PeerError>> {
        match self.receiver.try_recv() {
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(Err(ended())),
            Ok(answer) => Some(read_reply::<M>(answer)),
        }
    }
}

fn ended() -> PeerError {
    PeerError::Lost("the node is stopping".into())
}

/// Reads the reply to a message of type `M`.
///
/// # Errors
/// [`PeerError`] when there is no readable reply.
pub fn read_reply<M: PeerMessage>(
    answer: Result<Vec<u8>, PeerError>,
) -> Result<Result<M::Reply, NoReply>, PeerError> {
    postcard::from_bytes(&answer?)
        .map_err(|error| PeerError::Lost(format!("cannot decode an answer: {error}")))
}

/// The part of a question that the transport reads.
#[derive(Serialize, Deserialize)]
pub(super) struct Header<'a> {
    /// The answering node must have applied the agreed state at least up to this revision.
    pub rev: u64,
    /// Time limit for the answer, in milliseconds.
    pub left_ms: u64,
    /// ID of the receiving service.
    pub service: &'a str,
}

/// Writes a question.
pub(super) fn question<M: PeerMessage>(rev: u64, left: Duration, message: &M) -> Vec<u8> {
    let left_ms = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
    let header = Header { rev, left_ms, service: M::SERVICE };
    let bytes = postcard::to_stdvec(&header).expect("a header is plain data");
    postcard::to_extend(message, bytes).expect("messages are plain data")
}

/// Writes a reply.
pub(super) fn reply<R: Serialize, N: Serialize>(outcome: &Result<R, N>) -> Vec<u8> {
    postcard::to_stdvec(outcome).expect("replies are plain data")
}

impl From<Failure> for NoReply {
    fn from(Failure { code, message, retry }: Failure) -> NoReply {
        NoReply::Failed(PeerFailure { code, message, retry })
    }
}

impl From<PeerFailure> for Failure {
    fn from(PeerFailure { code, message, retry }: PeerFailure) -> Failure {
        Failure { code, message, retry }
    }
}
