//! The note: the number of synced commits. A store that has lost its end has fewer, and is refused.
//!
//! ```text
//! note       number u64 | crc u32
//! ```
//!
//! The note is written after each sync but not synced itself, so it may lag behind the store.

use crate::Error;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// The name of the file.
pub(crate) const NAME: &str = "acknowledged";

pub(crate) fn encode(number: u64) -> [u8; 12] {
    let number = number.to_be_bytes();
    let mut bytes = [0; 12];
    bytes[..8].copy_from_slice(&number);
    bytes[8..].copy_from_slice(&crc32fast::hash(&number).to_be_bytes());
    bytes
}

/// Returns `None` when the checksum is wrong.
pub(crate) fn decode(bytes: [u8; 12]) -> Option<u64> {
    let number = u64::from_be_bytes(*bytes.first_chunk()?);
    (encode(number) == bytes).then_some(number)
}

/// A note in a separate file next to a database.
pub(crate) struct Note {
    path: PathBuf,
    file: File,
}

impl Note {
    /// Opens the note in `directory`, and creates it if it does not exist.
    ///
    /// # Errors
    /// Fails when the disk refuses.
    pub fn open(directory: &Path) -> Result<Note, Error> {
        let path = directory.join(NAME);
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(Error::io(format!("open {}", path.display())))?;
        Ok(Note { path, file })
    }

    /// Returns the last number written; 0 if there is none.
    ///
    /// # Errors
    /// Fails when the note is damaged.
    pub fn read(&self) -> Result<u64, Error> {
        let mut bytes = [0; 12];
        let length = self
            .file
            .read_at(&mut bytes, 0)
            .map_err(Error::io(format!("read {}", self.path.display())))?;
        let number = if length == 0 { Some(0) } else { decode(bytes) };
        let damaged =
            || Error::Damaged { path: self.path.clone(), what: "its checksum is wrong".into() };
        number.ok_or_else(damaged)
    }

    /// Writes the number of synced commits.
    ///
    /// # Errors
    /// Fails when the disk refuses.
    pub fn write(&self, number: u64) -> Result<(), Error> {
        self.file.write_all_at(&encode(number), 0).map_err(Error::io("note the commit"))
    }
}
