//! Applies Raft's entries to the node.
//!
//! The node stores its state with each entry, so a snapshot only serves to shorten the log and to bring nodes up to
//! date that lag far behind. It is kept in memory, and taken again after a start.

use super::disk_space::DiskSpaceWait;
use super::types::{Decided, Entry, Place, Position, StorageError, Types};
use crossbeam_channel::Sender;
use nacre_cluster::{Cluster, Refusal};
use nacre_node::{Error, Node};
use openraft::storage::RaftStateMachine;
use openraft::{
    EntryPayload, LogId, OptionalSend, RaftSnapshotBuilder, Snapshot, SnapshotMeta, StorageIOError,
    StoredMembership,
};
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::io::Cursor;
use std::sync::Arc;

/// The outcome of a proposal: the resulting state, or the error.
pub type Outcome = Result<Arc<Cluster>, Error>;

/// Proposers on this node that wait for an outcome, by ticket.
#[derive(Clone, Default)]
pub struct Waiting(Arc<Mutex<BTreeMap<u64, Sender<Outcome>>>>);

impl Waiting {
    /// Registers `sender` for the outcome of the proposal with this ticket.
    pub fn insert(&self, ticket: u64, sender: Sender<Outcome>) {
        self.0.lock().insert(ticket, sender);
    }

    /// Stops waiting for a ticket.
    pub fn forget(&self, ticket: u64) {
        self.0.lock().remove(&ticket);
    }

    /// Reports an outcome to all waiting proposers.
    pub fn report_to_all(&self, outcome: impl Fn() -> Outcome) {
        for sender in std::mem::take(&mut *self.0.lock()).into_values() {
            let _ = sender.try_send(outcome());
        }
    }

    /// Reports an outcome. Only the first report of a ticket counts.
    pub fn report(&self, ticket: u64, outcome: Outcome) {
        if let Some(sender) = self.0.lock().remove(&ticket) {
            // Fails if the proposer has given up.
            let _ = sender.try_send(outcome);
        }
    }
}

/// The last snapshot: its metadata and its bytes.
type Taken = (SnapshotMeta<u64, Place>, Vec<u8>);

/// The state of a node as Raft's state machine.
pub struct Machine {
    node: Arc<Node>,
    waiting: Waiting,
    disk_space: Arc<DiskSpaceWait>,
    position: Position,
    snapshot: Arc<Mutex<Option<Taken>>>,
}

impl Machine {
    /// Creates the machine at the stored position of `node`. Writes wait for `disk_space`.
    ///
    /// # Errors
    /// Fails when the stored position cannot be read.
    pub fn open(
        node: &Arc<Node>,
        waiting: Waiting,
        disk_space: Arc<DiskSpaceWait>,
    ) -> Result<Machine, String> {
        let position = match node.position().map_err(|error| error.to_string())? {
            Some(stored) => serde_json::from_slice(&stored)
                .map_err(|error| format!("the position of the stored state is damaged: {error}"))?,
            None => Position::default(),
        };
        Ok(Machine {
            node: Arc::clone(node),
            waiting,
            disk_space,
            position,
            snapshot: Arc::default(),
        })
    }

    /// Applies an entry on a thread that may block, because buckets are opened.
    async fn apply_one(&mut self, entry: Entry) -> Result<Decided, StorageError> {
        let log_id = entry.log_id;
        self.position.log_id = Some(log_id);
        let ticketed = match entry.payload {
            EntryPayload::Normal(ticketed) => {
                self.position.take(ticketed.ticket).then_some(ticketed)
            }
            EntryPayload::Membership(membership) => {
                self.position.membership = StoredMembership::new(Some(log_id), membership);
                None
            }
            EntryPayload::Blank => None,
        };
        let (node, position) = (Arc::clone(&self.node), self.position.to_bytes());
        let (waiting, disk_space) = (self.waiting.clone(), Arc::clone(&self.disk_space));
        let broken = move |error: &dyn std::fmt::Display| {
            let error = std::io::Error::other(error.to_string());
            StorageError::from(StorageIOError::apply(log_id, &error))
        };
        let apply = move || {
            let Some(ticketed) = &ticketed else {
                return node.skip_to(&position).map(|()| Decided::default());
            };
            let outcome = match ticketed.term {
                Some(term) if term != log_id.leader_id.term => {
                    node.skip_to(&position).and(Err(Error::Refused(Refusal::LedByAnother)))
                }
                _ => node.apply(&ticketed.proposal, Some(&position)),
            };
            let decided = match &outcome {
                Ok(_) => Decided::default(),
                Err(error) if error.is_refusal() => Decided { refused: Some(error.to_string()) },
                // The entry is decided and stored; only its effect on this node has failed.
                Err(Error::Effect(error)) => {
                    tracing::error!("a change did not take effect on this node: {error}");
                    Decided::default()
                }
                Err(_) => return outcome.map(|_| Decided::default()),
            };
            waiting.report(ticketed.ticket, outcome);
            Ok(decided)
        };
        let applied = tokio::task::spawn_blocking(move || disk_space.wait(apply));
        applied.await.map_err(|error| broken(&error))?.map_err(|error| broken(&error))
    }
}

impl RaftStateMachine<Types> for Machine {
    type SnapshotBuilder = Builder;

    async fn applied_state(
        &mut self,
    ) -> Result<(Option<LogId<u64>>, StoredMembership<u64, Place>), StorageError> {
        Ok((self.position.log_id, self.position.membership.clone()))
    }

    async fn apply<I>(&mut self, entries: I) -> Result<Vec<Decided>, StorageError>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let mut decided = Vec::new();
        for entry in entries {
            decided.push(self.apply_one(entry).await?);
        }
        Ok(decided)
    }

    async fn get_snapshot_builder(&mut self) -> Builder {
        let node = Arc::clone(&self.node);
        // Taken here, where nothing is applied concurrently.
        let agreed = tokio::task::spawn_blocking(move || node.agreed()).await;
        Builder {
            position: self.position.clone(),
            bytes: agreed.map(|agreed| pack(&self.position, &agreed)).unwrap_or_default(),
            snapshot: Arc::clone(&self.snapshot),
        }
    }

    async fn begin_receiving_snapshot(&mut self) -> Result<Box<Cursor<Vec<u8>>>, StorageError> {
        Ok(Box::default())
    }

    async fn install_snapshot(
        &mut self,
        meta: &SnapshotMeta<u64, Place>,
        snapshot: Box<Cursor<Vec<u8>>>,
    ) -> Result<(), StorageError> {
        let broken = |error: &dyn std::fmt::Display| {
            let error = std::io::Error::other(error.to_string());
            StorageError::from(StorageIOError::write_snapshot(Some(meta.signature()), &error))
        };
        let membership = meta.last_membership.clone();
        let bytes = snapshot.into_inner();
        let Some((recent, _)) = unpack(&bytes) else {
            return Err(broken(&"the snapshot is damaged"));
        };
        let position = Position { log_id: meta.last_log_id, membership, recent };
        let (node, disk_space, stored) =
            (Arc::clone(&self.node), Arc::clone(&self.disk_space), position.to_bytes());
        let installed = tokio::task::spawn_blocking(move || {
            let agreed = unpack(&bytes).map(|(_, agreed)| agreed).unwrap_or_default();
            match disk_space.wait(|| node.install(agreed, &stored)) {
                Err(Error::Effect(error)) => {
                    tracing::error!("changes did not take effect on this node: {error}");
                }
                other => other?,
            }
            Ok::<_, Error>(bytes)
        });
        let bytes =
            installed.await.map_err(|error| broken(&error))?.map_err(|error| broken(&error))?;
        self.position = position;
        *self.snapshot.lock() = Some((meta.clone(), bytes));
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<Snapshot<Types>>, StorageError> {
        let taken = self.snapshot.lock().clone();
        Ok(taken.map(|(meta, bytes)| Snapshot { meta, snapshot: Box::new(Cursor::new(bytes)) }))
    }
}

/// Encodes a snapshot: the length of the tickets, the tickets as JSON, and the agreed state.
fn pack(position: &Position, agreed: &[u8]) -> Vec<u8> {
    let recent = serde_json::to_vec(&position.recent).expect("tickets are numbers");
    [&(recent.len() as u32).to_be_bytes(), &recent[..], agreed].concat()
}

/// Decodes a snapshot of [`pack`]; `None` if it is malformed.
fn unpack(snapshot: &[u8]) -> Option<(VecDeque<u64>, &[u8])> {
    let (length, rest) = snapshot.split_first_chunk()?;
    let (recent, agreed) = rest.split_at_checked(u32::from_be_bytes(*length) as usize)?;
    Some((serde_json::from_slice(recent).ok()?, agreed))
}

/// The state at one position, for a snapshot.
pub struct Builder {
    position: Position,
    bytes: Vec<u8>,
    snapshot: Arc<Mutex<Option<Taken>>>,
}

impl RaftSnapshotBuilder<Types> for Builder {
    async fn build_snapshot(&mut self) -> Result<Snapshot<Types>, StorageError> {
        let Position { log_id, membership, .. } = self.position.clone();
        if self.bytes.is_empty() {
            let error = std::io::Error::other("the state could not be read");
            return Err(StorageIOError::read_state_machine(&error).into());
        }
        let id =
            log_id.map_or_else(|| "0".to_owned(), |id| format!("{}-{}", id.leader_id, id.index));
        let meta =
            SnapshotMeta { last_log_id: log_id, last_membership: membership, snapshot_id: id };
        let bytes = self.bytes.clone();
        *self.snapshot.lock() = Some((meta.clone(), bytes.clone()));
        Ok(Snapshot { meta, snapshot: Box::new(Cursor::new(bytes)) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_reads_back_as_written_and_other_bytes_are_refused() {
        let mut position = Position::default();
        assert!(position.take(7) && position.take(8) && !position.take(7));
        let snapshot = pack(&position, b"agreed");
        assert_eq!(unpack(&snapshot), Some((VecDeque::from([7, 8]), &b"agreed"[..])));
        assert_eq!(unpack(&snapshot[..5]), None);
        assert_eq!(unpack(b"abc"), None);
        (0..1000).for_each(|ticket| assert_eq!(position.take(ticket), ![7, 8].contains(&ticket)));
        assert!(position.take(0), "those of long ago are forgotten");
    }
}
