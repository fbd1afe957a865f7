//! Where the files of an index are: blobs that are written once, from front to back, and then read at any place.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex};

/// A store of blobs. A blob is created, appended to and sealed; only then it is read, and never changed again.
///
/// Names are those of files of the index: letters, digits, points and underscores. The store does not interpret them.
pub trait Blobs: fmt::Debug + Send + Sync + 'static {
    /// Begins a blob, which takes the place of one of that name that is not sealed.
    ///
    /// # Errors
    /// A sealed blob of that name is there, or the store fails.
    fn create(&self, name: &str) -> io::Result<()>;

    /// Appends to a blob that is not sealed.
    ///
    /// # Errors
    /// There is no such blob, or the store fails.
    fn append(&self, name: &str, bytes: &[u8]) -> io::Result<()>;

    /// Ends a blob. From now on it can be read.
    ///
    /// # Errors
    /// There is no such blob, or the store fails.
    fn seal(&self, name: &str) -> io::Result<()>;

    /// The length of a sealed blob in bytes, or `None` when there is none.
    ///
    /// # Errors
    /// The store fails.
    fn len(&self, name: &str) -> io::Result<Option<u64>>;

    /// Bytes of a sealed blob.
    ///
    /// # Errors
    /// There is no such blob, the range is beyond its end, or the store fails.
    fn read_range(&self, name: &str, range: Range<u64>) -> io::Result<Vec<u8>>;

    /// Deletes a blob, sealed or not; it is no error when there is none.
    ///
    /// # Errors
    /// The store fails.
    fn delete(&self, name: &str) -> io::Result<()>;

    /// The names of all sealed blobs.
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

    /// The bytes of all sealed blobs.
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
