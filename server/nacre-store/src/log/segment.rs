//! Segments: preallocated files of fixed size that hold batches or copies of documents.
//!
//! ```text
//! segment    "nacreseg" | format u32 | segment u32 | salt u64 | crc u32 | …
//! ```
//!
//! Format 1 is plain, format 2 encrypted: each segment of an encrypted store has its own key.
//!
//! A `.log` segment continues with batches in number order, a `.copy` segment with the documents that compaction has
//! moved. Segment numbers are never reused in the life of a store.

use crate::codec::{u32_at, u64_at};
use crate::disk::{Disk, DiskFile, read_exact};
use crate::key::MasterKey;
use crate::seal::FileCipher;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Format version of all files of a log store that is not encrypted.
pub(super) const PLAIN_FORMAT: u32 = 1;
/// Format version of all files of an encrypted log store; the highest version that this code reads.
pub(super) const ENCRYPTED_FORMAT: u32 = 2;
/// Size of the header before the first batch or copy.
pub(super) const HEADER_BYTES: usize = 28;
const MAGIC: &[u8; 8] = b"nacreseg";

/// The content of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Batches as they were committed.
    Log,
    /// Documents moved by compaction.
    Copy,
}

/// An open segment.
pub(super) struct Segment {
    pub number: u32,
    pub kind: Kind,
    /// Size of the file.
    pub bytes: u64,
    /// End of the used part. The unused bytes after it do not count as dead.
    pub end: AtomicU64,
    /// Bytes of the current versions in it.
    pub live_bytes: AtomicU64,
    pub file: Arc<dyn DiskFile>,
    /// The cipher of the segment, if the store is encrypted.
    pub cipher: Option<FileCipher>,
}

/// Returns the format of a store with or without a key.
pub(super) fn format_of(master: Option<&MasterKey>) -> u32 {
    if master.is_some() { ENCRYPTED_FORMAT } else { PLAIN_FORMAT }
}

/// The name of a segment's file.
pub(super) fn name(number: u32, kind: Kind) -> String {
    let suffix = match kind {
        Kind::Log => "log",
        Kind::Copy => "copy",
    };
    format!("{number:08}.{suffix}")
}

/// Parses the file name of a segment.
pub(super) fn parse_name(found: &str) -> Option<(u32, Kind)> {
    let (number, suffix) = found.split_once('.')?;
    let kind = match suffix {
        "log" => Kind::Log,
        "copy" => Kind::Copy,
        _ => return None,
    };
    let number = number.parse().ok()?;
    (name(number, kind) == found).then_some((number, kind))
}

fn header(format: u32, number: u32, salt: u64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER_BYTES);
    bytes.extend(MAGIC);
    bytes.extend(format.to_be_bytes());
    bytes.extend(number.to_be_bytes());
    bytes.extend(salt.to_be_bytes());
    bytes.extend(crc32fast::hash(&bytes).to_be_bytes());
    bytes
}

/// The reason why a segment cannot be opened.
pub(super) enum Fault {
    Io(io::Error),
    /// The file has another format.
    Format(u32),
    /// The file is damaged.
    Damaged(&'static str),
    /// The file is encrypted with another key.
    WrongKey,
    /// The file is encrypted, and there is no key.
    Encrypted,
    /// The file is not encrypted, and there is a key.
    NotEncrypted,
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Fault {
        match error.kind() {
            io::ErrorKind::NotFound => Fault::Damaged("is missing"),
            io::ErrorKind::UnexpectedEof => Fault::Damaged("is cut"),
            _ => Fault::Io(error),
        }
    }
}

impl Segment {
    fn new(
        number: u32,
        kind: Kind,
        bytes: u64,
        file: Arc<dyn DiskFile>,
        cipher: Option<FileCipher>,
    ) -> Segment {
        let (end, live_bytes) = (AtomicU64::new(bytes), AtomicU64::new(0));
        Segment { number, kind, bytes, end, live_bytes, file, cipher }
    }

    /// Returns the document in `stored`, which was read at `offset`, and decrypts it in place if the segment is encrypted; `None`
    /// if it does not open.
    pub fn plain<'a>(&self, offset: u32, stored: &'a mut [u8]) -> Option<&'a [u8]> {
        match &self.cipher {
            None => Some(&*stored),
            Some(cipher) => cipher.open_chunk(stored, offset, 0).map(|content| &*content),
        }
    }

    /// Returns the bytes that compaction would reclaim.
    pub fn dead_bytes(&self) -> u64 {
        let live = self.live_bytes.load(Ordering::Relaxed) + HEADER_BYTES as u64;
        self.end.load(Ordering::Relaxed).saturating_sub(live)
    }

    /// Creates an empty segment that survives a power cut.
    ///
    /// # Errors
    /// Fails when the disk refuses; the file is then removed if possible.
    pub fn create(
        disk: &dyn Disk,
        number: u32,
        kind: Kind,
        bytes: u64,
        salt: u64,
        master: Option<&MasterKey>,
    ) -> io::Result<Segment> {
        let name = name(number, kind);
        let create = || {
            let file = disk.create(&name, bytes)?;
            file.write_at(&header(format_of(master), number, salt), 0)?;
            file.sync()?;
            disk.sync_names()?;
            Ok(Segment::new(number, kind, bytes, file, cipher_of(master, number, kind, salt)))
        };
        create().inspect_err(|_| {
            let _ = disk.remove(&name);
        })
    }

    /// Opens an existing segment.
    ///
    /// # Errors
    /// The damage found in the segment.
    pub fn open(
        disk: &dyn Disk,
        number: u32,
        kind: Kind,
        salt: u64,
        master: Option<&MasterKey>,
    ) -> Result<Segment, Fault> {
        let file = disk.open(&name(number, kind))?;
        let mut found = [0; HEADER_BYTES];
        read_exact(&*file, &mut found, 0)?;
        if found != header(format_of(master), number, salt)[..] {
            let format = u32_at(&found, 8).unwrap_or(0);
            let intact = u32_at(&found, 24) == Some(crc32fast::hash(&found[..24]));
            return Err(match (intact, format == format_of(master)) {
                (true, false) if [PLAIN_FORMAT, ENCRYPTED_FORMAT].contains(&format) => {
                    Fault::Damaged("is encrypted and the table is not, or the reverse")
                }
                (true, false) => Fault::Format(format),
                (true, true) if u64_at(&found, 16) != Some(salt) => {
                    Fault::Damaged("belongs to another store")
                }
                (true, true) => Fault::Damaged("has another's name"),
                (false, _) => Fault::Damaged("has a damaged header"),
            });
        }
        let bytes = file.bytes()?;
        Ok(Segment::new(number, kind, bytes, file, cipher_of(master, number, kind, salt)))
    }
}

/// Returns the cipher of a segment. A number may be used again after a power cut that has lost the name of the file; the nonces
/// are random and differ all the same.
fn cipher_of(master: Option<&MasterKey>, number: u32, kind: Kind, salt: u64) -> Option<FileCipher> {
    let purpose = match kind {
        Kind::Log => "log",
        Kind::Copy => "copy",
    };
    master.map(|master| master.derive(purpose, &[salt, number.into()]))
}
