//! Spaces: small ordered key-value stores for a node's settings and the state of its plugins.

use crate::{Error, SimDisk, SpaceFiles};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Rows of a space, as read: key and value.
pub type Rows = Vec<(Vec<u8>, Vec<u8>)>;

/// A row of a space, as written: key and value, or `None` to remove it.
pub type Write = (Vec<u8>, Option<Vec<u8>>);

/// An ordered key-value store.
pub trait Space: Send + Sync {
    /// Returns all rows, ascending by key.
    ///
    /// # Errors
    /// Fails when a row cannot be read.
    fn load(&self) -> Result<Rows, Error>;

    /// Returns the value of `key`, if there is one.
    ///
    /// # Errors
    /// Fails when the row cannot be read.
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error>;

    /// Writes (`Some`) and removes (`None`) rows atomically.
    ///
    /// With `durable`, waits until the rows survive a power cut. Otherwise they survive the process, in order.
    ///
    /// # Errors
    /// [`Error::Full`] or [`Error::Exhausted`] with nothing written: the call may be repeated. After any other error of
    /// the disk, the state of these rows is unknown.
    fn apply(&self, writes: &[Write], durable: bool) -> Result<(), Error>;

    /// Removes all rows.
    ///
    /// # Errors
    /// Fails when the disk refuses.
    fn clear(&self) -> Result<(), Error>;

    /// Rewrites the rows, so that no replaced or removed value remains in a file.
    ///
    /// # Errors
    /// Fails when the disk refuses; the rows are unchanged in that case.
    fn rewrite(&self) -> Result<(), Error> {
        Ok(())
    }

    /// Returns the path of the file with the rows, for messages; empty if there is none.
    fn file(&self) -> String {
        String::new()
    }

    /// Returns the files of the space; `None` if it does not support files.
    fn files(&self) -> Option<SpaceFiles> {
        None
    }

    /// Returns the loss of rows that the open has tolerated, if any. Clearing the space resets it.
    fn damage(&self) -> Option<String> {
        None
    }
}

/// Opens and removes spaces by name.
pub trait Spaces: Send + Sync {
    /// Opens the space `name`; creates it if it does not exist.
    ///
    /// # Errors
    /// Fails when it cannot be opened.
    fn open(&self, name: &str) -> Result<Arc<dyn Space>, Error>;

    /// Returns the names of all spaces.
    ///
    /// # Errors
    /// Fails when they cannot be read.
    fn names(&self) -> Result<Vec<String>, Error>;

    /// Removes the space `name` with its rows. It must not be in use.
    ///
    /// # Errors
    /// Fails when the disk refuses.
    fn remove(&self, name: &str) -> Result<(), Error>;
}

/// Spaces in memory: for tests and simulation.
#[derive(Default)]
pub struct MemorySpaces(Mutex<BTreeMap<String, Arc<MemorySpace>>>);

struct MemorySpace {
    rows: Mutex<BTreeMap<Vec<u8>, Vec<u8>>>,
    files: SpaceFiles,
}

impl Default for MemorySpace {
    fn default() -> MemorySpace {
        let files = SpaceFiles::new(SimDisk::unrecorded(), String::new());
        MemorySpace { rows: Mutex::default(), files }
    }
}

impl Spaces for MemorySpaces {
    fn open(&self, name: &str) -> Result<Arc<dyn Space>, Error> {
        Ok(Arc::clone(self.0.lock().entry(name.to_owned()).or_default()) as Arc<dyn Space>)
    }

    fn names(&self) -> Result<Vec<String>, Error> {
        Ok(self.0.lock().keys().cloned().collect())
    }

    fn remove(&self, name: &str) -> Result<(), Error> {
        self.0.lock().remove(name);
        Ok(())
    }
}

impl Space for MemorySpace {
    fn load(&self) -> Result<Rows, Error> {
        Ok(self.rows.lock().iter().map(|(key, value)| (key.clone(), value.clone())).collect())
    }

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        Ok(self.rows.lock().get(key).cloned())
    }

    fn apply(&self, writes: &[Write], _durable: bool) -> Result<(), Error> {
        let mut rows = self.rows.lock();
        for (key, value) in writes {
            match value {
                Some(value) => rows.insert(key.clone(), value.clone()),
                None => rows.remove(key),
            };
        }
        Ok(())
    }

    fn clear(&self) -> Result<(), Error> {
        self.rows.lock().clear();
        Ok(())
    }

    fn files(&self) -> Option<SpaceFiles> {
        Some(self.files.clone())
    }
}
