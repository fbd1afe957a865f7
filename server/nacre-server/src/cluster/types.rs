//! What Raft is about here.

use nacre_cluster::{Fingerprint, Member};
use nacre_node::agreement::Proposal;
use openraft::{LogId, StoredMembership};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::io::Cursor;

openraft::declare_raft_types!(
    /// Types of the log, the state machine and the nodes.
    pub Types:
        D = Ticketed,
        R = Decided,
        NodeId = u64,
        Node = Place,
        Entry = openraft::Entry<Types>,
        SnapshotData = Cursor<Vec<u8>>,
        AsyncRuntime = openraft::TokioRuntime,
);

/// The Raft of a node.
pub type Raft = openraft::Raft<Types>;
/// A log entry.
pub type Entry = openraft::Entry<Types>;
/// How the Raft of a node is.
pub type Metrics = openraft::RaftMetrics<u64, Place>;
/// What goes wrong in a store.
pub type StorageError = openraft::StorageError<u64>;

/// Where a node is, and which it is. A log of before nodes had keys says less.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// See [`Member::uuid`].
    pub uuid: String,
    /// `host:port` of its management with TLS.
    #[serde(default)]
    pub address: String,
    /// Of its key.
    #[serde(default)]
    pub fingerprint: Option<Fingerprint>,
}

impl Place {
    /// Of a node that all know.
    pub fn of(member: &Member) -> Place {
        Place {
            uuid: member.uuid.clone(),
            address: member.endpoints.internal().unwrap_or_default(),
            fingerprint: member.endpoints.fingerprint,
        }
    }

    /// Of its key.
    ///
    /// # Errors
    /// That the cluster does not know it: nobody may be taken for that node.
    pub fn known_key(&self) -> Result<Fingerprint, String> {
        self.fingerprint
            .ok_or_else(|| format!("the cluster does not know the key of {}", self.uuid))
    }
}

/// A proposal, with a number by which the node that proposed it finds it again.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Ticketed {
    /// Chosen at random by who proposes.
    pub ticket: u64,
    /// What is proposed.
    pub proposal: Proposal,
    /// The term in which it is decided, or not at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub term: Option<u64>,
}

/// What became of a log entry: why it was refused, if it was. The same on each node.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Decided {
    /// For people.
    pub refused: Option<String>,
}

/// How many tickets are remembered: more than come while somebody proposes again.
const RECENT_MAX: usize = 256;

/// How far a state has come: stored with it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    /// The last entry that was applied.
    pub log_id: Option<LogId<u64>>,
    /// The last voters and learners among the entries that were applied.
    pub membership: StoredMembership<u64, Place>,
    /// Tickets of the last entries: a proposal that is sent again, since nobody answered, counts once.
    pub recent: VecDeque<u64>,
}

impl Position {
    /// Notes a ticket; says whether it is new.
    pub fn take(&mut self, ticket: u64) -> bool {
        let is_new = !self.recent.contains(&ticket);
        if is_new {
            self.recent.push_back(ticket);
            let excess = self.recent.len().saturating_sub(RECENT_MAX);
            self.recent.drain(..excess);
        }
        is_new
    }

    /// As it is stored.
    pub fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a position is plain data with text keys")
    }
}
