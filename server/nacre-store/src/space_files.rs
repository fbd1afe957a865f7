//! Files of a space, for content that is too large for rows.
//!
//! The rows of a space name its valid files. A file that no row names is left over from a crash; the owner removes it
//! when the space is opened.

use crate::disk::{self, Disk, DiskFile};
use std::io;
use std::sync::Arc;

/// Suffix of the files' names.
pub(crate) const ENDING: &str = ".part";

/// The files of one space, by number. Clones are equivalent.
#[derive(Clone)]
pub struct SpaceFiles {
    disk: Arc<dyn Disk>,
    /// Prefix of the names of this space's files. No other space has it.
    prefix: String,
}

impl SpaceFiles {
    /// Returns the files on `disk` whose names begin with `prefix` and a dot.
    pub fn new(disk: Arc<dyn Disk>, prefix: String) -> SpaceFiles {
        SpaceFiles { disk, prefix }
    }

    fn name(&self, number: u64) -> String {
        format!("{}.{number}{ENDING}", self.prefix)
    }

    /// Returns the path of a file, for messages.
    pub fn path(&self, number: u64) -> String {
        self.disk.path().join(self.name(number)).display().to_string()
    }

    /// Creates an empty file; an existing file with that number is emptied.
    ///
    /// # Errors
    /// Fails when the disk refuses.
    pub fn create(&self, number: u64) -> io::Result<Arc<dyn DiskFile>> {
        self.disk.create(&self.name(number), 0)
    }

    /// Opens a file.
    ///
    /// # Errors
    /// Fails when the file does not exist, or the disk refuses.
    pub fn open(&self, number: u64) -> io::Result<Arc<dyn DiskFile>> {
        self.disk.open(&self.name(number))
    }

    /// Removes a file.
    ///
    /// # Errors
    /// Fails when the disk refuses.
    pub fn remove(&self, number: u64) -> io::Result<()> {
        self.disk.remove(&self.name(number))
    }

    /// Waits until the names of created files survive a power cut.
    ///
    /// # Errors
    /// Fails when the disk refuses.
    pub fn sync_names(&self) -> io::Result<()> {
        self.disk.sync_names()
    }

    /// Returns the numbers of all files.
    ///
    /// # Errors
    /// Fails when the disk refuses.
    pub fn numbers(&self) -> io::Result<Vec<u64>> {
        let number = |name: &String| {
            let (prefix, number) = split(name)?;
            (prefix == self.prefix).then_some(number)
        };
        Ok(self.disk.names()?.iter().filter_map(number).collect())
    }

    /// Fills `buffer` from a file.
    ///
    /// # Errors
    /// `UnexpectedEof` when the file is too short, or the error of the disk.
    pub fn read(file: &dyn DiskFile, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        disk::read_exact(file, buffer, offset)
    }
}

/// Parses the name of such a file into space and number.
pub(crate) fn split(name: &str) -> Option<(&str, u64)> {
    let (prefix, number) = name.strip_suffix(ENDING)?.rsplit_once('.')?;
    Some((prefix, number.parse().ok()?))
}
