//! Raft's type parameters.

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
/// The metrics of a node's Raft.
pub type Metrics = openraft::RaftMetrics<u64, Place>;
/// Errors of a store.
pub type StorageError = openraft::StorageError<u64>;

/// Address and identity of a node. A log from before nodes had keys has no fingerprint.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// See [`Member::uuid`].
    pub uuid: String,
    /// `host:port` of its TLS management port.
    #[serde(default)]
    pub address: String,
    /// Fingerprint of its key.
    #[serde(default)]
    pub fingerprint: Option<Fingerprint>,
}

impl Place {
    /// Returns the place of a member.
    pub fn of(member: &Member) -> Place {
        Place {
            uuid: member.uuid.clone(),
            address: member.endpoints.internal().unwrap_or_default(),
            fingerprint: member.endpoints.fingerprint,
        }
    }

    /// Returns the fingerprint of its key.
    ///
    /// # Errors
    /// Fails if the cluster does not know the key: no peer may be accepted as that node.
    pub fn known_key(&self) -> Result<Fingerprint, String> {
        self.fingerprint
            .ok_or_else(|| format!("the cluster does not know the key of {}", self.uuid))
    }
}

/// A proposal with a number that identifies it to its proposer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Ticketed {
    /// A random number chosen by the proposer.
    pub ticket: u64,
    /// The proposal.
    pub proposal: Proposal,
    /// The only term in which it may be decided; `None` for any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub term: Option<u64>,
}

/// The result of a log entry: the reason if the proposal was refused. It is the same on each node.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Decided {
    /// The reason, as a sentence.
    pub refused: Option<String>,
}

/// Number of tickets kept: more than arrive while a proposer retries.
const RECENT_MAX: usize = 256;

/// The position of a state, which is stored with it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    /// The last applied entry.
    pub log_id: Option<LogId<u64>>,
    /// The last voters and learners among the applied entries.
    pub membership: StoredMembership<u64, Place>,
    /// Tickets of the last entries, so that a proposal retried for lack of an answer counts once.
    pub recent: VecDeque<u64>,
}

impl Position {
    /// Records a ticket. Returns true if it is new.
    pub fn take(&mut self, ticket: u64) -> bool {
        let is_new = !self.recent.contains(&ticket);
        if is_new {
            self.recent.push_back(ticket);
            let excess = self.recent.len().saturating_sub(RECENT_MAX);
            self.recent.drain(..excess);
        }
        is_new
    }

    /// Returns the stored form.
    pub fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a position is plain data with text keys")
    }
}
