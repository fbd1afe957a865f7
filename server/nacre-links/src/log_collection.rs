//! Log collections for support, started by `/controller/startLogsCollection`.
//!
//! A collection is a file in the folder `logs` of the data directory. It has the node's `/diag` text, event log and
//! audit log, but no documents, passwords or keys.

use parking_lot::Mutex;
use std::fs;
use std::path::{Path, PathBuf};

/// Number of collections kept; older ones are removed.
const FILES_MAX: usize = 10;

/// Progress of a collection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The collection is being written.
    Running,
    /// The collection is complete, at this path.
    Done(PathBuf),
    /// The collection could not be written.
    Failed(String),
    /// An operator has cancelled the collection.
    Cancelled,
}

/// A collection with its start time and progress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collection {
    /// Start time as text.
    pub timestamp: String,
    /// The name of the node, as in lists of nodes.
    pub node: String,
    /// The progress.
    pub progress: Progress,
}

/// The collections of a node, at most one of which is running.
pub struct LogCollections {
    folder: PathBuf,
    last: Mutex<Option<Collection>>,
}

impl LogCollections {
    /// Creates the collections of `folder`, which is created with the first one.
    pub fn new(folder: PathBuf) -> LogCollections {
        LogCollections { folder, last: Mutex::new(None) }
    }

    /// Returns the last collection.
    pub fn last(&self) -> Option<Collection> {
        self.last.lock().clone()
    }

    /// Starts a collection. Returns false if another one is running.
    pub fn begin(&self, timestamp: &str, node: &str) -> bool {
        let mut last = self.last.lock();
        if last.as_ref().is_some_and(|last| last.progress == Progress::Running) {
            return false;
        }
        let (timestamp, node) = (timestamp.to_owned(), node.to_owned());
        *last = Some(Collection { timestamp, node, progress: Progress::Running });
        true
    }

    /// Writes the running collection, unless it was cancelled meanwhile.
    pub fn finish(&self, text: &str) {
        let Some(begun) = self.last().filter(|last| last.progress == Progress::Running) else {
            return;
        };
        let name = format!("collection-{}.txt", begun.timestamp.replace([':', '.'], "-"));
        let path = self.folder.join(name);
        let written = fs::create_dir_all(&self.folder)
            .and_then(|()| fs::write(&path, text))
            .map_err(|error| format!("{}: {error}", path.display()));
        self.set_progress(match written {
            Ok(()) => Progress::Done(path),
            Err(reason) => Progress::Failed(reason),
        });
        remove_oldest(&self.folder);
    }

    /// Cancels the running collection. Returns false if there is none.
    pub fn cancel(&self) -> bool {
        self.set_progress(Progress::Cancelled)
    }

    fn set_progress(&self, progress: Progress) -> bool {
        let mut last = self.last.lock();
        match last.as_mut().filter(|last| last.progress == Progress::Running) {
            Some(last) => {
                last.progress = progress;
                true
            }
            None => false,
        }
    }
}

/// Removes all but the newest files. Ignores files that cannot be removed.
fn remove_oldest(folder: &Path) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    // The names begin with the time.
    files.sort();
    let count = files.len().saturating_sub(FILES_MAX);
    files.iter().take(count).for_each(|path| drop(fs::remove_file(path)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_collection_is_written_at_a_time_and_the_newest_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let collections = LogCollections::new(folder.path().join("logs"));
        assert!(!collections.cancel());
        for number in 0..FILES_MAX + 2 {
            assert!(collections.begin(&format!("2026-01-01T00:00:{number:02}.000Z"), "n"));
            assert!(!collections.begin("later", "n"), "one at a time");
            collections.finish("text");
        }
        let Some(Collection { progress: Progress::Done(path), .. }) = collections.last() else {
            panic!("{:?}", collections.last());
        };
        assert_eq!(fs::read_to_string(path).unwrap(), "text");
        assert_eq!(fs::read_dir(folder.path().join("logs")).unwrap().count(), FILES_MAX);
        assert!(collections.begin("z", "n") && collections.cancel());
        collections.finish("text");
        assert_eq!(collections.last().unwrap().progress, Progress::Cancelled);
    }
}
