//! The note: how many commits were synced. A store whose end is lost has fewer, and is refused.
//!
//! ```text
//! note       number u64 | crc u32
//! ```
//!
//! It is written after each sync, and not synced itself: it may lag, and then claims less than is there.

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

/// `None` when the checksum is wrong.
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
    /// Opens the note in `directory`, and creates it if need be.
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

    /// The number that was noted last; 0 if none was.
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

    /// Notes that so many commits were synced.
    ///
    /// # Errors
    /// Fails when the disk refuses.
    pub fn write(&self, number: u64) -> Result<(), Error> {
        self.file.write_all_at(&encode(number), 0).map_err(Error::io("note the commit"))
    }
}
