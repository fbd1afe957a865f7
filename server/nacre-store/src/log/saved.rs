//! The file `locations`: the table of locations as of some batch, so that an open only reads the values that came
//! later. Numbers are big-endian.
//!
//! ```text
//! header     "nacreloc" | format u32 | salt u64 | next segment u32 | tail segment u32 | tail offset u32
//!            | tail batch u64 | segments u32 | vbuckets u32 | crc u32
//! segments   (number u32, kind u8, bytes u64)* | crc u32
//! vbucket    vb u16 | record bytes u16 | versions u32 | batch u64 | crc u32
//!            | record | (seqno u64, segment u32, offset u32, bytes u32, hash u32)* | crc u32
//! ```
//!
//! In an encrypted store a section follows the segments: `nonce 12 | tag 16 | crc u32`. It authenticates what is before it, and
//! shows whether the key is the right one. Record and versions of a vBucket are then encrypted, with a tag of 16 bytes.
//!
//! The highest bit of a version's length is set if the version is history.
//!
//! Replay begins with the batch after `tail batch`, at `tail offset` of `tail segment` (0: with the first batch of the
//! store). Commits continue while the table is saved, so each vBucket names the batch that it reflects.

use super::batch::{decode_saved_record, encode_saved_record};
use super::locations::{Location, Slot, Version, Versions};
use super::segment::{ENCRYPTED_FORMAT, Fault, Kind, PLAIN_FORMAT, format_of};
use crate::codec::{u16_at, u32_at, u64_at};
use crate::disk::{DiskFile, read_exact};
use crate::key::MasterKey;
use crate::seal::{FileCipher, NONCE_BYTES, Nonces, TAG_BYTES};
use nacre_types::{Seqno, VbRecord, Vbid};
use std::io;

/// The name of the file.
pub(super) const NAME: &str = "locations";
/// The temporary name of the file until it is complete.
pub(super) const UNFINISHED: &str = "locations.unfinished";

const MAGIC: &[u8; 8] = b"nacreloc";
const HEADER_BYTES: usize = 52;
const SEGMENT_BYTES: usize = 13;
const VBUCKET_HEADER_BYTES: usize = 20;
const VERSION_BYTES: usize = 24;
/// Bytes read and written at a time.
const CHUNK_BYTES: usize = 1 << 20;

/// The head of the file, before the vBuckets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub salt: u64,
    /// The minimum number of the next segment.
    pub next_segment: u32,
    /// Start of the replay: segment and offset; segment 0 means before the first segment.
    pub tail: (u32, u32),
    /// The last batch before the start of the replay.
    pub batch: u64,
    /// The segments that versions may refer to, with their lengths.
    pub segments: Vec<(u32, Kind, u64)>,
}

/// The encryption of one file.
pub(super) struct Lock {
    cipher: FileCipher,
    nonces: Nonces,
}

impl Lock {
    /// Returns the lock of a new file; `None` without a key.
    ///
    /// # Errors
    /// Fails when the operating system gives no random bytes.
    pub fn new(master: Option<&MasterKey>, salt: u64) -> io::Result<Option<Lock>> {
        let Some(master) = master else { return Ok(None) };
        Ok(Some(Lock { cipher: cipher_of(master, salt), nonces: Nonces::random()? }))
    }

    /// Returns the nonce of the section of a vBucket; the section of the lock has the first one.
    fn nonce_of(&self, vbid: Vbid) -> [u8; NONCE_BYTES] {
        self.nonces.at(u32::from(vbid.0) + 1)
    }
}

fn cipher_of(master: &MasterKey, salt: u64) -> FileCipher {
    master.derive("locations", &[salt])
}

/// Writes the file sequentially.
pub(super) struct Writer<'a> {
    file: &'a dyn DiskFile,
    lock: Option<Lock>,
    buffer: Vec<u8>,
    written: u64,
}

impl<'a> Writer<'a> {
    /// Writes `head`, to be followed by `vbuckets` vBuckets; encrypted if there is a lock.
    ///
    /// # Errors
    /// Fails when the disk refuses.
    pub fn begin(
        file: &'a dyn DiskFile,
        head: &Head,
        vbuckets: u32,
        lock: Option<Lock>,
    ) -> io::Result<Writer<'a>> {
        let format = if lock.is_some() { ENCRYPTED_FORMAT } else { PLAIN_FORMAT };
        let mut writer = Writer { file, lock, buffer: Vec::new(), written: 0 };
        let bytes = &mut writer.buffer;
        bytes.extend(MAGIC);
        bytes.extend(format.to_be_bytes());
        bytes.extend(head.salt.to_be_bytes());
        bytes.extend(head.next_segment.to_be_bytes());
        bytes.extend(head.tail.0.to_be_bytes());
        bytes.extend(head.tail.1.to_be_bytes());
        bytes.extend(head.batch.to_be_bytes());
        bytes.extend((head.segments.len() as u32).to_be_bytes());
        bytes.extend(vbuckets.to_be_bytes());
        seal(bytes, 0);
        let start = bytes.len();
        for (number, kind, length) in &head.segments {
            bytes.extend(number.to_be_bytes());
            bytes.push((*kind == Kind::Copy) as u8);
            bytes.extend(length.to_be_bytes());
        }
        seal(bytes, start);
        if let Some(Lock { cipher, nonces }) = &writer.lock {
            let (nonce, start) = (nonces.at(0), bytes.len());
            let tag = cipher.seal(nonce, bytes, &mut []);
            bytes.extend(nonce);
            bytes.extend(tag);
            seal(bytes, start);
        }
        writer.flush(false)?;
        Ok(writer)
    }

    /// Adds a vBucket as of `batch`. Only buffers it, because the caller holds a lock.
    pub fn push(&mut self, vbid: Vbid, record: &VbRecord, versions: &Versions, batch: u64) {
        let bytes = &mut self.buffer;
        let record = encode_saved_record(record);
        let count = versions.count() + versions.history().versions as usize;
        bytes.reserve(VBUCKET_HEADER_BYTES + 64 + VERSION_BYTES * count);
        let start = bytes.len();
        bytes.extend(vbid.0.to_be_bytes());
        bytes.extend((record.len() as u16).to_be_bytes());
        bytes.extend((count as u32).to_be_bytes());
        bytes.extend(batch.to_be_bytes());
        let head = bytes[start..].to_vec();
        seal(bytes, start);
        let start = bytes.len();
        bytes.extend(record);
        for Slot(Version { seqno, location, hash }) in versions.slots() {
            bytes.extend(seqno.0.to_be_bytes());
            bytes.extend(location.segment.to_be_bytes());
            bytes.extend(location.offset.to_be_bytes());
            bytes.extend(location.bytes.to_be_bytes());
            bytes.extend(hash.to_be_bytes());
        }
        if let Some(lock) = &self.lock {
            let tag = lock.cipher.seal(lock.nonce_of(vbid), &head, &mut bytes[start..]);
            bytes.extend(tag);
        }
        seal(bytes, start);
    }

    /// Writes the buffered bytes; with `only_if_enough`, only once there are enough of them.
    ///
    /// # Errors
    /// Fails when the disk refuses.
    pub fn flush(&mut self, only_if_enough: bool) -> io::Result<()> {
        if !only_if_enough || self.buffer.len() >= CHUNK_BYTES {
            self.file.write_at(&self.buffer, self.written)?;
            self.written += self.buffer.len() as u64;
            self.buffer.clear();
        }
        Ok(())
    }

    /// Writes the remaining bytes and syncs. Returns the length of the file.
    ///
    /// # Errors
    /// Fails when the disk refuses.
    pub fn finish(mut self) -> io::Result<u64> {
        self.flush(false)?;
        self.file.sync()?;
        Ok(self.written)
    }
}

fn seal(bytes: &mut Vec<u8>, start: usize) {
    let crc = crc32fast::hash(&bytes[start..]);
    bytes.extend(crc.to_be_bytes());
}

fn opened(bytes: &[u8]) -> Option<&[u8]> {
    let (body, crc) = bytes.split_last_chunk::<4>()?;
    (u32::from_be_bytes(*crc) == crc32fast::hash(body)).then_some(body)
}

/// A vBucket of the saved table.
pub(super) struct SavedVbucket {
    pub vbid: Vbid,
    pub record: VbRecord,
    /// The last batch reflected.
    pub batch: u64,
    rows: Vec<u8>,
}

impl SavedVbucket {
    /// Iterates over the versions, ascending by seqno if the file is intact.
    pub fn versions(&self) -> impl Iterator<Item = Slot> {
        self.rows.chunks_exact(VERSION_BYTES).filter_map(|row| {
            let location = Location {
                segment: u32_at(row, 8)?,
                offset: u32_at(row, 12)?,
                bytes: u32_at(row, 16)?,
            };
            let (seqno, hash) = (Seqno(u64_at(row, 0)?), u32_at(row, 20)?);
            Some(Slot(Version { seqno, location, hash }))
        })
    }
}

/// Reads the file sequentially.
pub(super) struct Reader<'a> {
    file: &'a dyn DiskFile,
    lock: Option<Lock>,
    position: u64,
    end: u64,
    vbuckets_left: u32,
}

const DAMAGED: Fault = Fault::Damaged("does not match its checksum");

impl<'a> Reader<'a> {
    /// Opens the file and reads its head.
    ///
    /// # Errors
    /// The damage found in the file, or the reason why the key does not fit.
    pub fn open(
        file: &'a dyn DiskFile,
        master: Option<&MasterKey>,
    ) -> Result<(Head, Reader<'a>), Fault> {
        let end = file.bytes()?;
        let mut reader = Reader { file, lock: None, position: 0, end, vbuckets_left: 0 };
        let header = reader.take(HEADER_BYTES)?;
        if &header[..8] == MAGIC && u32_at(&header, 8) != Some(format_of(master)) {
            return Err(match u32_at(&header, 8).unwrap_or(0) {
                ENCRYPTED_FORMAT => Fault::Encrypted,
                PLAIN_FORMAT => Fault::NotEncrypted,
                format => Fault::Format(format),
            });
        }
        let whole_header = header.clone();
        let header = opened(&header).filter(|header| &header[..8] == MAGIC).ok_or(DAMAGED)?;
        let number = |offset| u32_at(header, offset).unwrap_or(0);
        let count = number(40) as usize;
        let segments = reader.take(count * SEGMENT_BYTES + 4)?;
        let before = [&whole_header[..], &segments[..]].concat();
        let segments = opened(&segments).ok_or(DAMAGED)?;
        let segment = |row: &[u8]| {
            let kind = if row[4] == 1 { Kind::Copy } else { Kind::Log };
            Some((u32_at(row, 0)?, kind, u64_at(row, 5)?))
        };
        let head = Head {
            salt: u64_at(header, 12).unwrap_or(0),
            next_segment: number(20),
            tail: (number(24), number(28)),
            batch: u64_at(header, 32).unwrap_or(0),
            segments: segments.chunks_exact(SEGMENT_BYTES).filter_map(segment).collect(),
        };
        reader.vbuckets_left = number(44);
        if let Some(master) = master {
            reader.lock = Some(reader.unlock(master, head.salt, &before)?);
        }
        Ok((head, reader))
    }

    /// Reads the section that shows whether the key is the right one. `before` is what precedes it.
    fn unlock(&mut self, master: &MasterKey, salt: u64, before: &[u8]) -> Result<Lock, Fault> {
        let section = self.take(NONCE_BYTES + TAG_BYTES + 4)?;
        let section = opened(&section).ok_or(DAMAGED)?;
        let (nonce, tag) = section.split_first_chunk::<NONCE_BYTES>().ok_or(DAMAGED)?;
        let cipher = cipher_of(master, salt);
        cipher.open(*nonce, before, &mut tag.to_vec()).ok_or(Fault::WrongKey)?;
        Ok(Lock { cipher, nonces: Nonces::of(*nonce) })
    }

    /// Returns the next vBucket; `None` after the last.
    ///
    /// # Errors
    /// The damage found in the file.
    pub fn next(&mut self) -> Result<Option<SavedVbucket>, Fault> {
        if self.vbuckets_left == 0 {
            return match self.position == self.end {
                true => Ok(None),
                false => Err(Fault::Damaged("is longer than it should be")),
            };
        }
        self.vbuckets_left -= 1;
        let header = self.take(VBUCKET_HEADER_BYTES)?;
        let header = opened(&header).ok_or(DAMAGED)?;
        let record_bytes = usize::from(u16_at(header, 2).unwrap_or(0));
        let version_bytes = u32_at(header, 4).unwrap_or(0) as usize * VERSION_BYTES;
        let tag_bytes = if self.lock.is_some() { TAG_BYTES } else { 0 };
        let mut rows = self.take(record_bytes + version_bytes + tag_bytes + 4)?;
        opened(&rows).ok_or(DAMAGED)?;
        rows.truncate(record_bytes + version_bytes + tag_bytes);
        let vbid = Vbid(u16_at(header, 0).unwrap_or(0));
        if let Some(lock) = &self.lock {
            lock.cipher.open(lock.nonce_of(vbid), header, &mut rows).ok_or(DAMAGED)?;
        }
        rows.truncate(record_bytes + version_bytes);
        let record = decode_saved_record(&rows[..record_bytes]).ok_or(DAMAGED)?;
        rows.drain(..record_bytes);
        Ok(Some(SavedVbucket { vbid, record, batch: u64_at(header, 8).unwrap_or(0), rows }))
    }

    fn take(&mut self, bytes: usize) -> Result<Vec<u8>, Fault> {
        if bytes as u64 > self.end - self.position {
            return Err(Fault::Damaged("is cut"));
        }
        let mut taken = vec![0; bytes];
        read_exact(self.file, &mut taken, self.position)?;
        self.position += bytes as u64;
        Ok(taken)
    }
}
