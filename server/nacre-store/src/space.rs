//! Small ordered key spaces: a node's settings, the state of its plugins.

use crate::Error;
use crate::sled_store::{
    BLOB_BYTES_MIN, Database, from_sled, open_database, sync_directory, sync_file,
};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Rows of a space, as read: key and value.
pub type Rows = Vec<(Vec<u8>, Vec<u8>)>;

/// A row of a space, as written: key and value, or `None` to remove it.
pub type Write = (Vec<u8>, Option<Vec<u8>>);

/// One ordered key space.
pub trait Space: Send + Sync {
    /// All rows, ascending by key.
    ///
    /// # Errors
    /// When a row cannot be read.
    fn load(&self) -> Result<Rows, Error>;

    /// The row `key`, if there is one.
    ///
    /// # Errors
    /// When it cannot be read.
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error>;

    /// Writes (`Some`) and removes (`None`) rows, all or none.
    ///
    /// `durable` waits until they survive a power cut; otherwise they survive the process, in order.
    ///
    /// # Errors
    /// When the disk refuses; nothing may be assumed about these rows then.
    fn apply(&self, writes: &[Write], durable: bool) -> Result<(), Error>;

    /// Removes all rows.
    ///
    /// # Errors
    /// When the disk refuses.
    fn clear(&self) -> Result<(), Error>;
}

/// Opens and removes spaces by name.
pub trait Spaces: Send + Sync {
    /// The space `name`, created when it does not exist.
    ///
    /// # Errors
    /// When it cannot be opened.
    fn open(&self, name: &str) -> Result<Arc<dyn Space>, Error>;

    /// The names of all spaces.
    ///
    /// # Errors
    /// When they cannot be read.
    fn names(&self) -> Result<Vec<String>, Error>;

    /// Removes the space `name` with its rows. Nobody may use it any more.
    ///
    /// # Errors
    /// When the disk refuses.
    fn remove(&self, name: &str) -> Result<(), Error>;
}

/// Spaces in one sled database, a tree each.
pub struct SledSpaces {
    path: PathBuf,
    database: Arc<Database>,
}

impl SledSpaces {
    /// Opens the database in `path`, created when it does not exist.
    ///
    /// # Errors
    /// Whatever is wrong with the directory, by name.
    pub fn open(path: &Path, cache_bytes: u64) -> Result<SledSpaces, Error> {
        std::fs::create_dir_all(path).map_err(Error::io(format!("create {}", path.display())))?;
        Ok(SledSpaces {
            path: path.to_owned(),
            database: Arc::new(open_database(path, cache_bytes)?),
        })
    }
}

struct SledSpace {
    path: PathBuf,
    database: Arc<Database>,
    tree: sled::Tree,
}

fn failed(path: &Path, what: &str) -> impl FnOnce(sled::Error) -> Error {
    move |error| from_sled(path, what, error)
}

impl Spaces for SledSpaces {
    fn open(&self, name: &str) -> Result<Arc<dyn Space>, Error> {
        let tree = self.database.open_tree(name).map_err(failed(&self.path, "open a space of"))?;
        Ok(Arc::new(SledSpace {
            path: self.path.clone(),
            database: Arc::clone(&self.database),
            tree,
        }))
    }

    fn names(&self) -> Result<Vec<String>, Error> {
        Ok(self
            .database
            .tree_names()
            .iter()
            .map(|name| String::from_utf8_lossy(name).into_owned())
            .collect())
    }

    fn remove(&self, name: &str) -> Result<(), Error> {
        self.database.drop_tree(name).map(|_| ()).map_err(failed(&self.path, "remove a space of"))
    }
}

impl Space for SledSpace {
    fn load(&self) -> Result<Rows, Error> {
        self.tree
            .iter()
            .map(|row| {
                row.map(|(key, value)| (key.to_vec(), value.to_vec()))
                    .map_err(failed(&self.path, "read"))
            })
            .collect()
    }

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        let value = self.tree.get(key).map_err(failed(&self.path, "read"))?;
        Ok(value.map(|value| value.to_vec()))
    }

    fn apply(&self, writes: &[Write], durable: bool) -> Result<(), Error> {
        let mut batch = sled::Batch::default();
        for (key, value) in writes {
            match value {
                Some(value) => batch.insert(&key[..], &value[..]),
                None => batch.remove(&key[..]),
            }
        }
        self.tree.apply_batch(batch).map_err(failed(&self.path, "write"))?;
        self.database.flush().map_err(failed(&self.path, "flush"))?;
        if !durable {
            return Ok(());
        }
        sync_file(&self.path.join("db"))?;
        let large = |(_, value): &(_, Option<Vec<u8>>)| {
            value.as_ref().is_some_and(|value| value.len() >= BLOB_BYTES_MIN)
        };
        if writes.iter().any(large) { sync_directory(&self.path.join("blobs")) } else { Ok(()) }
    }

    fn clear(&self) -> Result<(), Error> {
        self.tree.clear().map_err(failed(&self.path, "clear"))
    }
}

/// Spaces in memory: for tests and simulation.
#[derive(Default)]
pub struct MemorySpaces(Mutex<BTreeMap<String, Arc<MemorySpace>>>);

#[derive(Default)]
struct MemorySpace(Mutex<BTreeMap<Vec<u8>, Vec<u8>>>);

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
        Ok(self.0.lock().iter().map(|(key, value)| (key.clone(), value.clone())).collect())
    }

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        Ok(self.0.lock().get(key).cloned())
    }

    fn apply(&self, writes: &[Write], _durable: bool) -> Result<(), Error> {
        let mut rows = self.0.lock();
        for (key, value) in writes {
            match value {
                Some(value) => rows.insert(key.clone(), value.clone()),
                None => rows.remove(key),
            };
        }
        Ok(())
    }

    fn clear(&self) -> Result<(), Error> {
        self.0.lock().clear();
        Ok(())
    }
}
