//! Types of Raft.

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
    /// `host:port` of its management with TLS.
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
    /// Fails if the cluster does not know it: no peer may be taken for that node.
    pub fn known_key(&self) -> Result<Fingerprint, String> {
        self.fingerprint
            .ok_or_else(|| format!("the cluster does not know the key of {}", self.uuid))
    }
}

/// A proposal, with a number by which the node that proposed it finds it again.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Ticketed {
    /// A random number of the proposer.
    pub ticket: u64,
    /// The proposal.
    pub proposal: Proposal,
    /// The term in which it is decided, or not at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub term: Option<u64>,
}

/// The result of a log entry: the reason if it was refused. The same on each node.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Decided {
    /// For people.
    pub refused: Option<String>,
}

/// Number of tickets that are remembered: more than arrive while a proposer repeats its proposal.
const RECENT_MAX: usize = 256;

/// The position of a state, stored with it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    /// The last entry that was applied.
    pub log_id: Option<LogId<u64>>,
    /// The last voters and learners among the entries that were applied.
    pub membership: StoredMembership<u64, Place>,
    /// Tickets of the last entries: a proposal that is repeated for lack of an answer counts once.
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

    /// Returns the stored form.
    pub fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a position is plain data with text keys")
    }
}
