//! What an engine is told, and what it tells.

use crate::Fault;
use nacre_types::Cas;
use nacre_xdcr::SourceId;
use serde::{Deserialize, Serialize};

/// What becomes of the loser when the device and the hub have changed the same document.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ConflictMode {
    /// The rule of the bucket decides, and the loser is parked on the device.
    #[default]
    Log,
    /// The rule of the bucket decides, and the loser is dropped; a notice tells of it.
    Server,
    /// The application decides: [`Replica::resolve`](crate::Replica::resolve).
    Client,
}

impl ConflictMode {
    /// Returns the mode of that name: `log`, `server` or `client`.
    pub fn parse(name: &str) -> Option<ConflictMode> {
        match name {
            "log" => Some(ConflictMode::Log),
            "server" => Some(ConflictMode::Server),
            "client" => Some(ConflictMode::Client),
            _ => None,
        }
    }
}

/// Which way documents go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direction {
    /// Both ways.
    #[default]
    Both,
    /// From the hub only; what the application writes stays unsent.
    Pull,
}

/// What is to be kept in step, and how.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// The collections, as `scope.collection`; of the same name on both sides.
    pub collections: Vec<String>,
    /// The handling of conflicts.
    pub conflicts: ConflictMode,
    /// Which way documents go.
    pub direction: Direction,
}

/// The first message of the hub: what a device needs to know before the first frame.
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
    /// True if the bucket compares times (`lww`), and not counts of changes (`seqno`).
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
    /// Returns the name of the bucket in histories.
    pub fn source(&self) -> SourceId {
        SourceId::of(&self.bucket_uuid, &self.cluster_uuid)
    }
}

/// How far an engine is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// There is no session.
    #[default]
    Offline,
    /// There is a session, and older changes are on their way.
    CatchingUp,
    /// Changes go over as they happen.
    Live,
}

/// The version that was kept in a conflict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// That of the hub.
    Hub,
    /// That of the device.
    Device,
    /// A version made of both.
    Merged,
}

/// Something that the application may want to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// The state is another one.
    State(State),
    /// Both sides had changed a document, and it was decided.
    Conflict {
        /// The collection.
        collection: String,
        /// The key.
        name: Vec<u8>,
        /// Which version was kept.
        kept: Kept,
        /// The CAS of the device's version.
        device: Cas,
        /// The CAS of the hub's version.
        hub: Cas,
    },
    /// A version was put aside on the device.
    Parked {
        /// The collection.
        collection: String,
        /// The key.
        name: Vec<u8>,
        /// Why.
        reason: String,
    },
    /// The hub shows no such collection: it was dropped, or the user may not see it. What is on the device stays.
    NoCollection(String),
    /// vBuckets of the hub have lost a part of their history, or forgotten deletions: their documents are compared again. Told once in a
    /// session.
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
    /// Versions that were taken from the hub.
    pub pulled: u64,
    /// Versions that the hub has taken.
    pub pushed: u64,
    /// Conflicts that were decided.
    pub conflicts: u64,
    /// Versions that were put aside.
    pub parked: u64,
    /// Changes of the hub that are still to come, at most, as far as known.
    pub remaining: u64,
    /// Versions on their way to the hub.
    pub on_the_way: u64,
}

/// Why a session must end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The hub sent something that is no part of the protocol, or refused a step that it should not. Try again later.
    #[error("{0}")]
    Protocol(String),
    /// The user lacks a right: only a person can help.
    #[error("access denied: {0}")]
    Denied(String),
    /// Rights or vBuckets have changed: begin another session.
    #[error("{0}")]
    Renew(String),
    /// This database is in step with another bucket: documents are never sent silently to a stranger.
    #[error("this database belongs to the bucket {known}, and the hub has {found}")]
    Stranger {
        /// The UUID of the bucket that the database knows.
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
