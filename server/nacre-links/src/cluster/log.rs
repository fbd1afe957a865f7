//! Raft's log and vote, in a space of the node: acknowledged entries are synced.
//!
//! ```text
//! row          value
//! vote         the last vote, JSON
//! purged       the ID of the last entry that a snapshot has made obsolete and that was removed, JSON
//! log/<index>  an entry, JSON; the index as 8 bytes, big-endian
//! ```
//!
//! The log is short, because snapshots are frequent, so all of it is also in memory.

use super::disk_space::DiskSpaceWait;
use super::types::{Entry, StorageError, Types};
use nacre_store::{Space, Write};
use openraft::storage::{LogFlushed, RaftLogStorage};
use openraft::{LogId, LogState, OptionalSend, RaftLogReader, StorageIOError, Vote};
use parking_lot::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::ops::RangeBounds;
use std::sync::Arc;

const VOTE: &[u8] = b"vote";
const PURGED: &[u8] = b"purged";
const ENTRY: &[u8] = b"log/";

/// The log of a node. Clones share the log.
#[derive(Clone)]
pub struct Log {
    space: Arc<dyn Space>,
    disk_space: Arc<DiskSpaceWait>,
    held: Arc<Mutex<Held>>,
}

#[derive(Default)]
struct Held {
    entries: BTreeMap<u64, Entry>,
    vote: Option<Vote<u64>>,
    purged: Option<LogId<u64>>,
}

impl Log {
    /// Reads the stored log. Later writes wait for `disk_space`.
    ///
    /// # Errors
    /// The error of the disk, or the damaged row.
    pub fn open(space: Arc<dyn Space>, disk_space: Arc<DiskSpaceWait>) -> Result<Log, String> {
        let mut held = Held::default();
        for (key, value) in space.load().map_err(|error| error.to_string())? {
            match key.strip_prefix(ENTRY) {
                _ if key == VOTE => held.vote = Some(read("vote", &value)?),
                _ if key == PURGED => held.purged = Some(read("purged", &value)?),
                Some(_) => {
                    let entry: Entry = read("log", &value)?;
                    held.entries.insert(entry.log_id.index, entry);
                }
                None => {}
            }
        }
        Ok(Log { space, disk_space, held: Arc::new(Mutex::new(held)) })
    }

    /// Stores a vote before a Raft runs that could.
    ///
    /// # Errors
    /// The error of the disk.
    pub fn begin(&self, vote: Vote<u64>) -> Result<(), nacre_store::Error> {
        self.space.apply(&[(VOTE.to_vec(), Some(json(&vote)))], true)?;
        self.held.lock().vote = Some(vote);
        Ok(())
    }

    /// Stores rows on another thread than the one that sends heartbeats.
    async fn store(&self, writes: Vec<Write>) -> Result<(), std::io::Error> {
        let (space, disk_space) = (Arc::clone(&self.space), Arc::clone(&self.disk_space));
        let store = move || disk_space.wait(|| Ok(space.apply(&writes, true)?));
        let stored = tokio::task::spawn_blocking(store).await;
        stored.map_err(std::io::Error::other)?.map_err(std::io::Error::other)
    }

    /// Removes the entries of `range` from memory. Returns the rows to remove.
    fn remove(&self, range: impl RangeBounds<u64>) -> Vec<Write> {
        let mut held = self.held.lock();
        let indexes: Vec<u64> = held.entries.range(range).map(|(index, _)| *index).collect();
        indexes
            .into_iter()
            .map(|index| {
                held.entries.remove(&index);
                (key(index), None)
            })
            .collect()
    }
}

fn read<T: DeserializeOwned>(row: &str, value: &[u8]) -> Result<T, String> {
    serde_json::from_slice(value).map_err(|error| {
        format!("the log of the agreement is damaged: {row} cannot be read: {error}")
    })
}

fn json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("it is plain data with text keys")
}

fn key(index: u64) -> Vec<u8> {
    [ENTRY, &index.to_be_bytes()].concat()
}

impl RaftLogReader<Types> for Log {
    async fn try_get_log_entries<R: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: R,
    ) -> Result<Vec<Entry>, StorageError> {
        Ok(self.held.lock().entries.range(range).map(|(_, entry)| entry.clone()).collect())
    }
}

impl RaftLogStorage<Types> for Log {
    type LogReader = Log;

    async fn get_log_state(&mut self) -> Result<LogState<Types>, StorageError> {
        let held = self.held.lock();
        let last_log_id = held.entries.values().next_back().map(|entry| entry.log_id);
        Ok(LogState { last_purged_log_id: held.purged, last_log_id: last_log_id.or(held.purged) })
    }

    async fn get_log_reader(&mut self) -> Log {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote<u64>) -> Result<(), StorageError> {
        let write = (VOTE.to_vec(), Some(json(vote)));
        self.store(vec![write]).await.map_err(|error| StorageIOError::write_vote(&error))?;
        self.held.lock().vote = Some(*vote);
        Ok(())
    }

    async fn read_vote(&mut self) -> Result<Option<Vote<u64>>, StorageError> {
        Ok(self.held.lock().vote)
    }

    async fn append<I>(
        &mut self,
        entries: I,
        flushed: LogFlushed<Types>,
    ) -> Result<(), StorageError>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let writes = {
            let mut held = self.held.lock();
            let row = |entry: Entry| {
                let write = (key(entry.log_id.index), Some(json(&entry)));
                held.entries.insert(entry.log_id.index, entry);
                write
            };
            entries.into_iter().map(row).collect()
        };
        flushed.log_io_completed(self.store(writes).await);
        Ok(())
    }

    async fn truncate(&mut self, from: LogId<u64>) -> Result<(), StorageError> {
        let writes = self.remove(from.index..);
        self.store(writes).await.map_err(|error| StorageIOError::write_logs(&error).into())
    }

    async fn purge(&mut self, upto: LogId<u64>) -> Result<(), StorageError> {
        let mut writes = self.remove(..=upto.index);
        writes.push((PURGED.to_vec(), Some(json(&upto))));
        self.held.lock().purged = Some(upto);
        self.store(writes).await.map_err(|error| StorageIOError::write_logs(&error).into())
    }
}
