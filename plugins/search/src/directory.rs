//! A tantivy directory on top of a store of blobs.

use crate::blobs::Blobs;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use tantivy::directory::error::{DeleteError, LockError, OpenReadError, OpenWriteError};
use tantivy::directory::{
    AntiCallToken, DirectoryLock, FileHandle, Lock, OwnedBytes, TerminatingWrite, WatchCallback,
    WatchHandle, WritePtr,
};
use tantivy::index::SegmentId;
use tantivy::{Directory, HasLen};

/// Size of the write buffer, in bytes.
const BUFFER: usize = 64 << 10;
/// Files up to this size in bytes are read completely.
const WHOLE: u64 = 64 << 10;
/// Length of a segment ID in characters. The names of a segment's files begin with it.
const ID_LENGTH: usize = 32;

/// A directory whose files are blobs. Files that tantivy replaces atomically (`meta.json`, `.managed.json`) are kept in memory only:
/// the commits of an index contain its metadata.
#[derive(Clone, Debug)]
pub struct BlobDirectory {
    blobs: Arc<dyn Blobs>,
    replaced: Arc<Mutex<BTreeMap<String, Vec<u8>>>>,
    /// If set, all files of any segment get the ID of this segment.
    segment: Option<SegmentId>,
}

impl BlobDirectory {
    /// Creates a directory on a store.
    #[must_use]
    pub fn new(blobs: Arc<dyn Blobs>) -> BlobDirectory {
        BlobDirectory { blobs, replaced: Arc::default(), segment: None }
    }

    /// Creates a directory on the same store for the files of one new segment, with separate metadata. The files get the ID of
    /// `segment`, whatever ID tantivy has chosen: tantivy names merged segments randomly, and the random numbers of each instance
    /// begin with the same number.
    #[must_use]
    pub fn for_segment(&self, segment: SegmentId) -> BlobDirectory {
        BlobDirectory { segment: Some(segment), ..BlobDirectory::new(self.blobs.clone()) }
    }

    /// Returns the name of the blob that contains a file.
    fn name(&self, path: &Path) -> String {
        let name = path.to_string_lossy();
        let of_segment = name.split_at_checked(ID_LENGTH).filter(|(id, rest)| {
            id.bytes().all(|byte| byte.is_ascii_hexdigit()) && rest.starts_with('.')
        });
        match (self.segment, of_segment) {
            (Some(segment), Some((_, rest))) => segment.uuid_string() + rest,
            _ => name.into_owned(),
        }
    }

    fn replaced(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Vec<u8>>> {
        self.replaced.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn read_error(error: io::Error, path: &Path) -> OpenReadError {
    OpenReadError::IoError { io_error: Arc::new(error), filepath: path.to_owned() }
}

impl Directory for BlobDirectory {
    fn get_file_handle(&self, path: &Path) -> Result<Arc<dyn FileHandle>, OpenReadError> {
        let name = self.name(path);
        let length = self.blobs.len(&name).map_err(|error| read_error(error, path))?;
        let Some(length) = length else {
            return Err(OpenReadError::FileDoesNotExist(path.to_owned()));
        };
        if length <= WHOLE {
            let bytes =
                self.blobs.read_range(&name, 0..length).map_err(|error| read_error(error, path))?;
            return Ok(Arc::new(OwnedBytes::new(bytes)));
        }
        let length =
            usize::try_from(length).map_err(|error| read_error(io::Error::other(error), path))?;
        Ok(Arc::new(Reader { blobs: self.blobs.clone(), name, length }))
    }

    fn delete(&self, path: &Path) -> Result<(), DeleteError> {
        self.blobs.delete(&self.name(path)).map_err(|error| DeleteError::IoError {
            io_error: Arc::new(error),
            filepath: path.to_owned(),
        })
    }

    fn exists(&self, path: &Path) -> Result<bool, OpenReadError> {
        let name = self.name(path);
        if self.replaced().contains_key(&name) {
            return Ok(true);
        }
        let length = self.blobs.len(&name).map_err(|error| read_error(error, path))?;
        Ok(length.is_some())
    }

    fn open_write(&self, path: &Path) -> Result<WritePtr, OpenWriteError> {
        let name = self.name(path);
        match self.blobs.create(&name) {
            Ok(()) => {
                let writer = Writer { blobs: self.blobs.clone(), name };
                Ok(io::BufWriter::with_capacity(BUFFER, Box::new(writer)))
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                Err(OpenWriteError::FileAlreadyExists(path.to_owned()))
            }
            Err(error) => Err(OpenWriteError::IoError {
                io_error: Arc::new(error),
                filepath: path.to_owned(),
            }),
        }
    }

    fn atomic_read(&self, path: &Path) -> Result<Vec<u8>, OpenReadError> {
        let bytes = self.replaced().get(&self.name(path)).cloned();
        bytes.ok_or_else(|| OpenReadError::FileDoesNotExist(path.to_owned()))
    }

    fn atomic_write(&self, path: &Path, data: &[u8]) -> io::Result<()> {
        self.replaced().insert(self.name(path), data.to_vec());
        Ok(())
    }

    fn sync_directory(&self) -> io::Result<()> {
        Ok(())
    }

    // There is only one writer, because the component has only one instance.
    fn acquire_lock(&self, _lock: &Lock) -> Result<DirectoryLock, LockError> {
        Ok(DirectoryLock::from(Box::new(())))
    }

    fn watch(&self, _callback: WatchCallback) -> tantivy::Result<WatchHandle> {
        Ok(WatchHandle::empty())
    }
}

#[derive(Debug)]
struct Reader {
    blobs: Arc<dyn Blobs>,
    name: String,
    length: usize,
}

impl HasLen for Reader {
    fn len(&self) -> usize {
        self.length
    }
}

impl FileHandle for Reader {
    fn read_bytes(&self, range: Range<usize>) -> io::Result<OwnedBytes> {
        if range.is_empty() {
            return Ok(OwnedBytes::empty());
        }
        let range = range.start as u64..range.end as u64;
        self.blobs.read_range(&self.name, range).map(OwnedBytes::new)
    }
}

struct Writer {
    blobs: Arc<dyn Blobs>,
    name: String,
}

impl Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.blobs.append(&self.name, bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl TerminatingWrite for Writer {
    fn terminate_ref(&mut self, _: AntiCallToken) -> io::Result<()> {
        self.blobs.seal(&self.name)
    }
}
