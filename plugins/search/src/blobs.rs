//! The storage of an index's files: blobs that are written sequentially and then read at any offset.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex};

/// A store of blobs. A caller creates a blob, appends to it and seals it; only then can the blob be read, and it never
/// changes again.
///
/// Names are those of files of the index: letters, digits, dots and underscores. The store does not interpret them.
pub trait Blobs: fmt::Debug + Send + Sync + 'static {
    /// Creates a blob, and replaces an unsealed blob with that name.
    ///
    /// # Errors
    /// A sealed blob with that name exists, or the store fails.
    fn create(&self, name: &str) -> io::Result<()>;

    /// Appends to an unsealed blob.
    ///
    /// # Errors
    /// The blob does not exist, or the store fails.
    fn append(&self, name: &str, bytes: &[u8]) -> io::Result<()>;

    /// Seals a blob, so that it can be read.
    ///
    /// # Errors
    /// The blob does not exist, or the store fails.
    fn seal(&self, name: &str) -> io::Result<()>;

    /// Returns the length of a sealed blob in bytes, or `None` if it does not exist.
    ///
    /// # Errors
    /// The store fails.
    fn len(&self, name: &str) -> io::Result<Option<u64>>;

    /// Returns a range of bytes of a sealed blob.
    ///
    /// # Errors
    /// The blob does not exist, the range exceeds its length, or the store fails.
    fn read_range(&self, name: &str, range: Range<u64>) -> io::Result<Vec<u8>>;

    /// Deletes a blob, sealed or not. Succeeds if it does not exist.
    ///
    /// # Errors
    /// The store fails.
    fn delete(&self, name: &str) -> io::Result<()>;

    /// Returns the names of all sealed blobs.
    ///
    /// # Errors
    /// The store fails.
    fn list(&self) -> io::Result<Vec<String>>;
}

#[derive(Debug, Default)]
struct Contents {
    open: BTreeMap<String, Vec<u8>>,
    sealed: BTreeMap<String, Arc<Vec<u8>>>,
}

/// Blobs in memory.
#[derive(Clone, Debug, Default)]
pub struct MemoryBlobs(Arc<Mutex<Contents>>);

fn absent(name: &str) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, format!("there is no blob {name}"))
}

impl MemoryBlobs {
    fn contents(&self) -> std::sync::MutexGuard<'_, Contents> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Returns the total size of all sealed blobs in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.contents().sealed.values().map(|blob| blob.len() as u64).sum()
    }
}

impl Blobs for MemoryBlobs {
    fn create(&self, name: &str) -> io::Result<()> {
        let mut contents = self.contents();
        if contents.sealed.contains_key(name) {
            let text = format!("the blob {name} is sealed");
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, text));
        }
        contents.open.insert(name.to_owned(), Vec::new());
        Ok(())
    }

    fn append(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.contents().open.get_mut(name).ok_or_else(|| absent(name))?.extend_from_slice(bytes);
        Ok(())
    }

    fn seal(&self, name: &str) -> io::Result<()> {
        let mut contents = self.contents();
        let blob = contents.open.remove(name).ok_or_else(|| absent(name))?;
        contents.sealed.insert(name.to_owned(), Arc::new(blob));
        Ok(())
    }

    fn len(&self, name: &str) -> io::Result<Option<u64>> {
        Ok(self.contents().sealed.get(name).map(|blob| blob.len() as u64))
    }

    fn read_range(&self, name: &str, range: Range<u64>) -> io::Result<Vec<u8>> {
        let blob = self.contents().sealed.get(name).cloned().ok_or_else(|| absent(name))?;
        let bounds = usize::try_from(range.start).ok().zip(usize::try_from(range.end).ok());
        let bytes = bounds.and_then(|(start, end)| blob.get(start..end));
        bytes.map(<[u8]>::to_vec).ok_or_else(|| {
            io::Error::new(io::ErrorKind::UnexpectedEof, format!("{name} ends before {range:?}"))
        })
    }

    fn delete(&self, name: &str) -> io::Result<()> {
        let mut contents = self.contents();
        contents.open.remove(name);
        contents.sealed.remove(name);
        Ok(())
    }

    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.contents().sealed.keys().cloned().collect())
    }
}
