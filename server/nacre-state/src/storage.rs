//! The durable storage of a partition, implemented by the embedder.

use crate::blobs::Blobs;
use crate::segments::Segments;
use crate::{Home, KeySpace, Timer, Value, VbucketProgress};
use nacre_types::Vbid;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The committed contents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Loaded {
    /// The entries of the key space, in any order.
    pub entries: Vec<(Vec<u8>, Vec<u8>)>,
    /// The keys removed since the last flush of a segmented state.
    pub removed: Vec<Vec<u8>>,
    /// The on-disk part of a segmented state, below these entries.
    pub base: Option<Arc<Segments>>,
    /// The blobs, and the place for their files.
    pub blobs: Blobs,
    /// Timers with their owner and name, in any order.
    pub timers: Vec<(Home, String, Timer)>,
    /// Position of the feed in each vBucket.
    pub progress: Vec<(Vbid, VbucketProgress)>,
}

impl Loaded {
    /// Returns the committed key space.
    ///
    /// # Errors
    /// Fails when a key is empty or too long.
    pub fn space(&self) -> Result<KeySpace, String> {
        let entries = self.entries.iter().map(|(key, value)| (&key[..], &value[..]));
        let Some(base) = &self.base else { return KeySpace::load(entries) };
        let mut space = KeySpace::over(Arc::clone(base));
        // `load` also checks the keys.
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
    /// The state after the commit.
    pub state: KeySpace,
    /// The blobs, if any was created, extended, sealed or removed.
    pub blobs: Option<Blobs>,
    /// The keys written or removed by the commit; the values are empty.
    pub touched: KeySpace,
    /// The new timer of each owner and name; `None` where it was removed or has fired.
    pub timers: Vec<((Home, String), Option<Timer>)>,
    /// Positions of the feed in the vBuckets that have advanced.
    pub progress: Vec<(Vbid, VbucketProgress)>,
}

/// The durable storage of a partition: an ordered key space with timers, and the progress that it reflects.
///
/// Each partition owns its storage. Errors are texts, because the partition can only stop and show them.
pub trait StateStorage: Send {
    /// Returns the committed state.
    ///
    /// # Errors
    /// The failure, for the operator; the same holds for all methods.
    fn load(&mut self) -> Result<Loaded, String>;

    /// Applies `changes` atomically. Commits may be deferred if a crash leaves a prefix of all commits.
    fn commit(&mut self, changes: &Changes) -> Result<(), String>;

    /// Called after a commit. Returns `state` in another form if the partition should continue with that: a segmented
    /// storage moves entries from memory into a segment, or applies the result of a merge. Entries and progress are
    /// unchanged.
    ///
    /// # Errors
    /// Fails when the disk refuses; the partition then stops.
    fn rebase(&mut self, state: &KeySpace) -> Result<Option<KeySpace>, String> {
        let _ = state;
        Ok(None)
    }

    /// Writes all deferred commits.
    fn settle(&mut self) -> Result<(), String> {
        Ok(())
    }

    /// Like [`StateStorage::settle`], and waits until everything survives a power cut.
    fn sync(&mut self) -> Result<(), String> {
        self.settle()
    }

    /// Removes all data.
    fn clear(&mut self) -> Result<(), String>;

    /// Records that the partition has stopped for `reason`, because its state exceeded the limit of `limit_bytes`.
    /// After a reopen it stays stopped until the limit is higher. A state that can be rebuilt may be removed.
    fn stop(&mut self, reason: &str, limit_bytes: usize) -> Result<(), String> {
        let _ = (reason, limit_bytes);
        Ok(())
    }
}

#[derive(Default)]
struct Content {
    entries: KeySpace,
    timers: BTreeMap<(Home, String), Timer>,
    progress: BTreeMap<Vbid, VbucketProgress>,
}

/// A storage in memory, for tests and rebuildable state. Clones share their contents.
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
