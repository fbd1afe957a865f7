//! Where a partition lives durably; implemented by the embedder.

use crate::{Home, KeySpace, Standing, Timer};
use nacre_types::Vbid;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Everything that was committed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Loaded {
    /// The ordered key space; in any order.
    pub entries: Vec<(Vec<u8>, Vec<u8>)>,
    /// Timers by whose they are and name; in any order.
    pub timers: Vec<(Home, String, Timer)>,
    /// Where the feed stands in each vBucket.
    pub progress: Vec<(Vbid, Standing)>,
}

/// What one commit changes.
#[derive(Clone, Default)]
pub struct Changes {
    /// The entries as it leaves them.
    pub state: KeySpace,
    /// The keys of those that it wrote or removed, as keys without values.
    pub touched: KeySpace,
    /// The new timer of each name, or none where it was removed or has fired; with whose it is.
    pub timers: Vec<((Home, String), Option<Timer>)>,
    /// Where the feed stands in the vBuckets named; the others have not moved.
    pub progress: Vec<(Vbid, Standing)>,
}

/// The durable side of a partition: an ordered key space with timers, and the progress it reflects.
///
/// One partition owns one storage. Errors are texts, as the partition can do nothing but stop and show them.
pub trait StateStorage: Send {
    /// All that was committed.
    ///
    /// # Errors
    /// What failed, for the operator; so for all methods.
    fn load(&mut self) -> Result<Loaded, String>;

    /// Applies `changes`, all or nothing. Commits may be kept back, as long as what is there after a crash is the outcome
    /// of all of them up to one.
    fn commit(&mut self, changes: &Changes) -> Result<(), String>;

    /// Keeps nothing back any longer.
    fn settle(&mut self) -> Result<(), String> {
        Ok(())
    }

    /// As [`StateStorage::settle`], and waits until all of it survives a power cut.
    fn sync(&mut self) -> Result<(), String> {
        self.settle()
    }

    /// Removes everything.
    fn clear(&mut self) -> Result<(), String>;

    /// The partition has stopped for `reason`, as its state has grown beyond a limit of `limit_bytes`: it is to stay stopped when it
    /// is opened again, until there is more room. A state that can be made again may be removed.
    fn stop(&mut self, reason: &str, limit_bytes: usize) -> Result<(), String> {
        let _ = (reason, limit_bytes);
        Ok(())
    }
}

#[derive(Default)]
struct Content {
    entries: KeySpace,
    timers: BTreeMap<(Home, String), Timer>,
    progress: BTreeMap<Vbid, Standing>,
}

/// A storage in memory, for tests and for state that may be rebuilt. Clones share their content.
#[derive(Clone, Default)]
pub struct MemoryStorage {
    content: Arc<Mutex<Content>>,
}

impl StateStorage for MemoryStorage {
    fn load(&mut self) -> Result<Loaded, String> {
        let content = self.content.lock();
        let timers = content.timers.iter();
        Ok(Loaded {
            entries: content.entries.iter().map(|(k, v)| (k.to_vec(), v.to_vec())).collect(),
            timers: timers
                .map(|((home, name), timer)| (*home, name.clone(), timer.clone()))
                .collect(),
            progress: content.progress.iter().map(|(vbid, standing)| (*vbid, *standing)).collect(),
        })
    }

    fn commit(&mut self, changes: &Changes) -> Result<(), String> {
        let mut content = self.content.lock();
        content.entries = changes.state.clone();
        for (key, timer) in &changes.timers {
            match timer {
                Some(timer) => content.timers.insert(key.clone(), timer.clone()),
                None => content.timers.remove(key),
            };
        }
        content.progress.extend(changes.progress.iter().copied());
        Ok(())
    }

    fn clear(&mut self) -> Result<(), String> {
        *self.content.lock() = Content::default();
        Ok(())
    }
}
