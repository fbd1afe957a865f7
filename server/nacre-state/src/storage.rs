//! The durable storage of a partition; implemented by the embedder.

use crate::blobs::Blobs;
use crate::segments::Segments;
use crate::{Home, KeySpace, Standing, Timer, Value};
use nacre_types::Vbid;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Everything that was committed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Loaded {
    /// The ordered key space; in any order.
    pub entries: Vec<(Vec<u8>, Vec<u8>)>,
    /// The keys that were removed since the last flush of a segmented state.
    pub removed: Vec<Vec<u8>>,
    /// The part of a segmented state on disk, beneath these entries.
    pub base: Option<Arc<Segments>>,
    /// The blobs, and the place for more.
    pub blobs: Blobs,
    /// Timers by whose they are and name; in any order.
    pub timers: Vec<(Home, String, Timer)>,
    /// Position of the feed in each vBucket.
    pub progress: Vec<(Vbid, Standing)>,
}

impl Loaded {
    /// Returns the committed key space.
    ///
    /// # Errors
    /// Fails when a key is not one that a plugin can have written.
    pub fn space(&self) -> Result<KeySpace, String> {
        let entries = self.entries.iter().map(|(key, value)| (&key[..], &value[..]));
        let Some(base) = &self.base else { return KeySpace::load(entries) };
        let mut space = KeySpace::over(Arc::clone(base));
        // Their keys are checked here, too.
        for (key, value) in KeySpace::load(entries)?.iter() {
            space.put(key, Value::Here(value));
        }
        for key in &self.removed {
            space.delete(key);
        }
        Ok(space)
    }
}

/// The changes of one commit.
#[derive(Clone, Default)]
pub struct Changes {
    /// The entries as it leaves them.
    pub state: KeySpace,
    /// The blobs, if any was made, has grown, was sealed or removed.
    pub blobs: Option<Blobs>,
    /// The keys of those that it wrote or removed, as keys without values.
    pub touched: KeySpace,
    /// The new timer of each name, or none where it was removed or has fired; with whose it is.
    pub timers: Vec<((Home, String), Option<Timer>)>,
    /// Positions of the feed in vBuckets that have moved.
    pub progress: Vec<(Vbid, Standing)>,
}

/// The durable side of a partition: an ordered key space with timers, and the progress it reflects.
///
/// One partition owns one storage. Errors are texts, as the partition can do nothing but stop and show them.
pub trait StateStorage: Send {
    /// Returns the committed state.
    ///
    /// # Errors
    /// The failure, for the operator; so for all methods.
    fn load(&mut self) -> Result<Loaded, String>;

    /// Applies `changes`, all or nothing. Commits may be kept back, as long as a crash leaves a prefix of all commits.
    fn commit(&mut self, changes: &Changes) -> Result<(), String>;

    /// Called after a commit. Returns `state` in another form if it should be kept in one from now on: a segmented
    /// storage moves entries from memory into a segment, or takes over the result of a merge. Entries and progress are
    /// the same.
    ///
    /// # Errors
    /// Fails when the disk refuses; the partition stops then.
    fn rebase(&mut self, state: &KeySpace) -> Result<Option<KeySpace>, String> {
        let _ = state;
        Ok(None)
    }

    /// Keeps nothing back any longer.
    fn settle(&mut self) -> Result<(), String> {
        Ok(())
    }

    /// As [`StateStorage::settle`], and waits until everything survives a power cut.
    fn sync(&mut self) -> Result<(), String> {
        self.settle()
    }

    /// Removes everything.
    fn clear(&mut self) -> Result<(), String>;

    /// Records that the partition has stopped for `reason`, because its state has grown beyond a limit of
    /// `limit_bytes`. It stays stopped when it is opened again, until there is more room. A state that can be rebuilt
    /// may be removed.
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
            removed: Vec::new(),
            base: None,
            blobs: Blobs::default(),
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
