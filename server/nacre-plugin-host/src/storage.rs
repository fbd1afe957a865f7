//! Where a partition lives durably; implemented by the embedder.

use nacre_dcp::ResumePoint;
use nacre_types::Vbid;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Everything that was committed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Loaded {
    /// The ordered key space; in any order.
    pub entries: Vec<(Vec<u8>, Vec<u8>)>,
    /// Where the feed stands in each vBucket.
    pub progress: Vec<(Vbid, ResumePoint)>,
}

/// The durable side of a partition: an ordered key space and the progress it reflects.
///
/// One partition owns one storage. Errors are texts, as the partition can do nothing but stop and show them.
pub trait StateStorage: Send {
    /// All that was committed.
    ///
    /// # Errors
    /// What failed, for the operator; so for all methods.
    fn load(&mut self) -> Result<Loaded, String>;

    /// Applies `writes` (none removes the key) and `progress` (of the vBuckets named), all or nothing.
    fn commit(
        &mut self,
        writes: &[(Vec<u8>, Option<Vec<u8>>)],
        progress: &[(Vbid, ResumePoint)],
    ) -> Result<(), String>;

    /// Removes everything.
    fn clear(&mut self) -> Result<(), String>;
}

#[derive(Debug, Default)]
struct Content {
    entries: BTreeMap<Vec<u8>, Vec<u8>>,
    progress: BTreeMap<Vbid, ResumePoint>,
}

/// A storage in memory, for tests and for state that may be rebuilt. Clones share their content.
#[derive(Clone, Debug, Default)]
pub struct MemoryStorage {
    content: Arc<Mutex<Content>>,
}

impl StateStorage for MemoryStorage {
    fn load(&mut self) -> Result<Loaded, String> {
        let content = self.content.lock();
        Ok(Loaded {
            entries: content.entries.iter().map(|(k, v)| (k.clone(), v.clone())).collect(),
            progress: content.progress.iter().map(|(vbid, point)| (*vbid, *point)).collect(),
        })
    }

    fn commit(
        &mut self,
        writes: &[(Vec<u8>, Option<Vec<u8>>)],
        progress: &[(Vbid, ResumePoint)],
    ) -> Result<(), String> {
        let mut content = self.content.lock();
        for (key, value) in writes {
            match value {
                Some(value) => content.entries.insert(key.clone(), value.clone()),
                None => content.entries.remove(key),
            };
        }
        content.progress.extend(progress.iter().copied());
        Ok(())
    }

    fn clear(&mut self) -> Result<(), String> {
        *self.content.lock() = Content::default();
        Ok(())
    }
}
