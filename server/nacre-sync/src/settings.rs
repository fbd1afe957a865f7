//! Inputs and outputs of an engine: settings, the hub's hello, notices, figures and failures.

use crate::Fault;
use nacre_types::Cas;
use nacre_xdcr::SourceId;
use serde::{Deserialize, Serialize};

/// The handling of the losing version of a conflict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ConflictMode {
    /// The bucket's rule decides, and the loser is parked on the device.
    #[default]
    Log,
    /// The bucket's rule decides, and the loser is dropped; a notice reports the conflict.
    Server,
    /// The application decides: [`Replica::resolve`](crate::Replica::resolve).
    Client,
}

impl ConflictMode {
    /// Returns the mode with the given name: `log`, `server` or `client`.
    pub fn parse(name: &str) -> Option<ConflictMode> {
        match name {
            "log" => Some(ConflictMode::Log),
            "server" => Some(ConflictMode::Server),
            "client" => Some(ConflictMode::Client),
            _ => None,
        }
    }
}

/// The direction in which documents are transferred.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direction {
    /// Both ways.
    #[default]
    Both,
    /// From the hub only; the application's writes stay unsent.
    Pull,
}

/// The settings of an engine: what to keep in step, and how.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// The collections, as `scope.collection`. They have the same names on both sides.
    pub collections: Vec<String>,
    /// The handling of conflicts.
    pub conflicts: ConflictMode,
    /// The direction in which documents are transferred.
    pub direction: Direction,
}

/// The hub's first message, which a device needs before the first frame.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Hello {
    /// The UUID of the cluster.
    pub cluster_uuid: String,
    /// The name of the bucket.
    pub bucket: String,
    /// The UUID of the bucket.
    pub bucket_uuid: String,
    /// The number of vBuckets of the bucket.
    pub vbuckets: u16,
    /// True if the bucket compares times (`lww`) instead of revision counts (`seqno`).
    pub by_time: bool,
    /// The clock of the hub, in nanoseconds since the Unix epoch.
    pub unix_ns: u64,
    /// The other nodes that have the bucket.
    #[serde(default)]
    pub nodes: Vec<NodeAddress>,
}

/// The management ports of a node, as `host:port`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeAddress {
    /// Without encryption.
    pub plain: String,
    /// With TLS, if there is such a port.
    #[serde(default)]
    pub encrypted: Option<String>,
}

impl Hello {
    /// Returns the source name of the bucket in histories.
    pub fn source(&self) -> SourceId {
        SourceId::of(&self.bucket_uuid, &self.cluster_uuid)
    }
}

/// The state of an engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// There is no session.
    #[default]
    Offline,
    /// There is a session, and older changes are being transferred.
    CatchingUp,
    /// Changes are transferred as they happen.
    Live,
}

/// The version that was kept in a conflict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// The hub's version.
    Hub,
    /// The device's version.
    Device,
    /// A version made of both.
    Merged,
}

/// An event for the application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// The state has changed.
    State(State),
    /// Both sides had changed a document, and the conflict was resolved.
    Conflict {
        /// The collection.
        collection: String,
        /// The key.
        name: Vec<u8>,
        /// The version that was kept.
        kept: Kept,
        /// The CAS of the device's version.
        device: Cas,
        /// The CAS of the hub's version.
        hub: Cas,
    },
    /// A version was parked on the device.
    Parked {
        /// The collection.
        collection: String,
        /// The key.
        name: Vec<u8>,
        /// The reason.
        reason: String,
    },
    /// The hub does not show the collection: it was dropped, or the user may not see it. The documents on the device stay.
    NoCollection(String),
    /// vBuckets of the hub have lost a part of their history or purged deletions: their documents are compared again. Reported
    /// once per kind and session.
    Again {
        /// True if the hub has lost versions; they are sent again.
        lost: bool,
    },
}

/// Figures of an engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// The state.
    pub state: State,
    /// Versions received from the hub and stored.
    pub pulled: u64,
    /// Versions that the hub has accepted.
    pub pushed: u64,
    /// Resolved conflicts.
    pub conflicts: u64,
    /// Parked versions.
    pub parked: u64,
    /// The maximum number of changes that the hub still has to send, as far as known.
    pub remaining: u64,
    /// Versions sent to the hub and not yet answered.
    pub on_the_way: u64,
}

/// The reason why a session must end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The hub violated the protocol or refused a step unexpectedly. Try again later.
    #[error("{0}")]
    Protocol(String),
    /// The user lacks a right, which only a person can fix.
    #[error("access denied: {0}")]
    Denied(String),
    /// Rights or vBuckets have changed: start another session.
    #[error("{0}")]
    Renew(String),
    /// The database syncs with another bucket: documents are never sent silently to the wrong one.
    #[error("this database belongs to the bucket {known}, and the hub has {found}")]
    Stranger {
        /// The UUID of the bucket that the database syncs with.
        known: String,
        /// The UUID of the bucket at the hub.
        found: String,
    },
    /// The device cannot store. Try again later.
    #[error("the device: {0}")]
    Local(#[from] Fault),
}

impl Failure {
    /// Returns true if another session may succeed without a person's help.
    pub fn is_temporary(&self) -> bool {
        !matches!(self, Failure::Denied(_) | Failure::Stranger { .. })
    }
}
