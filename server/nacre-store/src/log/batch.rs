//! The contents of segments: batches of commits, and the documents in them. Numbers are big-endian.
//!
//! ```text
//! batch      magic u32 | crc u32 | number u64 | segment u32 | commits u32 | body bytes u32 | body crc u32 | body
//! commit     vb u16 | record bytes u16 | first seqno u64 | last seqno u64 | documents u32 | erased u32
//!            | record | documents | erased seqnos u64*
//! document   crc u32 | value bytes u32 | vb u16 | key bytes u16 | replaced seqno u64 | metadata | key | value
//! ```
//!
//! In an encrypted store each document is a chunk (see `seal`), and so is the rest of each commit, before its documents.
//!
//! The highest bit of a replaced or erased seqno is set if that version is kept as history.
//!
//! A batch's own checksum starts with the store's salt, so that no stored value can imitate a batch. A document's
//! checksum covers everything after it, because documents are read individually and may be moved. A document names the
//! seqno of the version that it replaced (0 for none), so that replay does not need to read other documents.

use super::locations::{Location, Old, Version};
use super::sealed::{Sealer, decode_commit};
use crate::codec::{
    META_BYTES, decode_meta, decode_record, encode_meta, encode_record, u16_at, u32_at, u64_at,
};
use crate::seal::{CHUNK_BYTES, FileCipher};
use nacre_types::{Document, Seqno, VbRecord, Vbid};
use siphasher::sip::SipHasher13;
use std::hash::Hasher;

pub(super) const BATCH_HEADER_BYTES: usize = 32;
pub(super) const COMMIT_HEADER_BYTES: usize = 28;
pub(super) const DOCUMENT_HEADER_BYTES: usize = 20 + META_BYTES;
const BATCH_MAGIC: [u8; 4] = *b"nbat";
/// The row of a record for its checksum. The enclosing commit names the vBucket.
pub(super) const RECORD_ROW: &[u8] = b"record";

/// Returns the hash of a key for the table of locations. The hash is stored, so the function must never change.
pub(super) fn key_hash(salt: u64, key: &[u8]) -> u32 {
    let mut hasher = SipHasher13::new_with_keys(salt, 0);
    hasher.write(key);
    hasher.finish() as u32
}

/// Returns the size of a stored document in bytes.
pub(super) fn document_bytes(document: &Document) -> usize {
    DOCUMENT_HEADER_BYTES + document.key().len() + document.value().len()
}

/// Appends a document.
pub(super) fn encode_document(bytes: &mut Vec<u8>, vbid: Vbid, document: &Document, replaced: Old) {
    let start = bytes.len();
    bytes.extend([0; 4]);
    bytes.extend((document.value().len() as u32).to_be_bytes());
    bytes.extend(vbid.0.to_be_bytes());
    bytes.extend((document.key().len() as u16).to_be_bytes());
    bytes.extend(replaced.encode());
    encode_meta(bytes, &document.meta);
    bytes.extend_from_slice(document.key());
    bytes.extend_from_slice(document.value());
    let crc = crc32fast::hash(&bytes[start + 4..]);
    bytes[start..start + 4].copy_from_slice(&crc.to_be_bytes());
}

/// Decodes the document in `bytes`, if it is this version of this vBucket.
pub(super) fn decode_document(bytes: &[u8], vbid: Vbid, seqno: Seqno) -> Option<Document> {
    let (crc, body) = bytes.split_first_chunk::<4>()?;
    if u32::from_be_bytes(*crc) != crc32fast::hash(body) || u16_at(bytes, 8)? != vbid.0 {
        return None;
    }
    let meta = decode_meta(&bytes[20..])?;
    let value = DOCUMENT_HEADER_BYTES + usize::from(u16_at(bytes, 10)?);
    let whole = value + u32_at(bytes, 4)? as usize;
    (meta.seqno == seqno && whole == bytes.len())
        .then(|| Document::new(meta, &bytes[DOCUMENT_HEADER_BYTES..value], &bytes[value..]))
}

/// Number of bytes of a document that [`replaced_by`] needs.
pub(super) const FRONT_BYTES: usize = DOCUMENT_HEADER_BYTES;

/// Returns the version that a document replaced, if the front of the document names this version. Checks no checksum.
pub(super) fn replaced_by(front: &[u8], vbid: Vbid, seqno: Seqno) -> Option<Seqno> {
    let is_it = u16_at(front, 8) == Some(vbid.0) && u64_at(front, 20) == Some(seqno.0);
    is_it.then(|| u64_at(front, 12).map(|number| Old::decode(number).seqno))?
}

/// Returns the number of bytes of a document that [`has_key`] needs.
pub(super) fn key_end(key: &[u8]) -> usize {
    DOCUMENT_HEADER_BYTES + key.len()
}

/// Returns true if the front of a document names this version of this key. Checks no checksum.
pub(super) fn has_key(front: &[u8], vbid: Vbid, seqno: Seqno, key: &[u8]) -> bool {
    u16_at(front, 8) == Some(vbid.0)
        && u64_at(front, 20) == Some(seqno.0)
        && u16_at(front, 10) == Some(key.len() as u16)
        && front.get(DOCUMENT_HEADER_BYTES..) == Some(key)
}

/// A commit ready to be written.
pub(super) struct Staged<'a> {
    pub vbid: Vbid,
    pub record: VbRecord,
    /// Each document with the hash of its key, and the version that it replaces.
    pub documents: Vec<(&'a Document, u32, Old)>,
    pub erased: Vec<Old>,
    encoded_record: Vec<u8>,
}

impl<'a> Staged<'a> {
    pub fn new(
        vbid: Vbid,
        record: VbRecord,
        documents: Vec<(&'a Document, u32, Old)>,
        erased: Vec<Old>,
    ) -> Staged<'a> {
        let encoded_record = encode_record(RECORD_ROW, &record);
        Staged { vbid, record, documents, erased, encoded_record }
    }

    /// Returns the size of the commit in a batch, in bytes.
    pub fn bytes(&self, is_encrypted: bool) -> usize {
        let documents: usize =
            self.documents.iter().map(|(document, ..)| document_bytes(document)).sum();
        let chunks = if is_encrypted { 1 + self.documents.len() } else { 0 };
        COMMIT_HEADER_BYTES
            + self.encoded_record.len()
            + documents
            + 8 * self.erased.len()
            + CHUNK_BYTES * chunks
    }

    /// Appends the commit, encrypted if there is a sealer. Returns the positions of its documents relative to the start of `bytes`.
    pub fn encode(&self, bytes: &mut Vec<u8>, sealer: Option<&Sealer>) -> Vec<(usize, usize)> {
        match sealer {
            None => self.encode_front(bytes),
            Some(sealer) => sealer.add(bytes, sealer.batch, |bytes| {
                self.encode_front(bytes);
                self.encode_erased(bytes);
            }),
        }
        let mut places = Vec::with_capacity(self.documents.len());
        for (document, _, replaced) in &self.documents {
            let start = bytes.len();
            let encode = |bytes: &mut Vec<u8>| {
                encode_document(bytes, self.vbid, document, *replaced);
            };
            match sealer {
                None => encode(bytes),
                Some(sealer) => sealer.add(bytes, 0, encode),
            }
            places.push((start, bytes.len() - start));
        }
        if sealer.is_none() {
            self.encode_erased(bytes);
        }
        places
    }

    fn encode_front(&self, bytes: &mut Vec<u8>) {
        let first = self.documents.first().map_or(Seqno::ZERO, |(first, ..)| first.meta.seqno);
        bytes.extend(self.vbid.0.to_be_bytes());
        bytes.extend((self.encoded_record.len() as u16).to_be_bytes());
        bytes.extend(first.0.to_be_bytes());
        bytes.extend(self.record.high_seqno.0.to_be_bytes());
        bytes.extend((self.documents.len() as u32).to_be_bytes());
        bytes.extend((self.erased.len() as u32).to_be_bytes());
        bytes.extend_from_slice(&self.encoded_record);
    }

    fn encode_erased(&self, bytes: &mut Vec<u8>) {
        for old in &self.erased {
            bytes.extend(old.encode());
        }
    }
}

/// The header of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BatchHeader {
    pub number: u64,
    pub segment: u32,
    pub commits: u32,
    pub body_bytes: u32,
    pub body_crc: u32,
}

impl BatchHeader {
    pub fn encode(&self, salt: u64) -> [u8; BATCH_HEADER_BYTES] {
        let mut bytes = [0; BATCH_HEADER_BYTES];
        bytes[..4].copy_from_slice(&BATCH_MAGIC);
        bytes[8..16].copy_from_slice(&self.number.to_be_bytes());
        bytes[16..20].copy_from_slice(&self.segment.to_be_bytes());
        bytes[20..24].copy_from_slice(&self.commits.to_be_bytes());
        bytes[24..28].copy_from_slice(&self.body_bytes.to_be_bytes());
        bytes[28..].copy_from_slice(&self.body_crc.to_be_bytes());
        let crc = header_crc(salt, &bytes);
        bytes[4..8].copy_from_slice(&crc.to_be_bytes());
        bytes
    }

    /// Decodes the header at the start of `bytes`, if there is one.
    pub fn decode(bytes: &[u8], salt: u64) -> Option<BatchHeader> {
        let bytes = bytes.get(..BATCH_HEADER_BYTES)?;
        if bytes[..4] != BATCH_MAGIC || u32_at(bytes, 4)? != header_crc(salt, bytes) {
            return None;
        }
        Some(BatchHeader {
            number: u64_at(bytes, 8)?,
            segment: u32_at(bytes, 16)?,
            commits: u32_at(bytes, 20)?,
            body_bytes: u32_at(bytes, 24)?,
            body_crc: u32_at(bytes, 28)?,
        })
    }
}

fn header_crc(salt: u64, header: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&salt.to_be_bytes());
    hasher.update(&header[8..BATCH_HEADER_BYTES]);
    hasher.finalize()
}

/// A commit that was read back.
#[derive(Debug)]
pub(super) struct Replayed {
    pub vbid: Vbid,
    pub record: VbRecord,
    pub versions: Vec<(Version, Old)>,
    pub erased: Vec<Old>,
}

/// Decodes the commits in a batch's body, which begins at `offset` of its segment; `None` if the body is malformed.
pub(super) fn decode_body(
    header: &BatchHeader,
    body: &[u8],
    offset: u32,
    salt: u64,
    cipher: Option<&FileCipher>,
) -> Option<Vec<Replayed>> {
    if body.len() != header.body_bytes as usize || crc32fast::hash(body) != header.body_crc {
        return None;
    }
    let mut rest = Rest { body, at: 0 };
    let mut commits = Vec::new();
    for _ in 0..header.commits {
        if let Some(cipher) = cipher {
            commits.push(decode_commit(header, &mut rest, offset, salt, cipher)?);
            continue;
        }
        let front = rest.take(COMMIT_HEADER_BYTES)?;
        let record = rest.take(usize::from(u16_at(front, 2)?))?;
        let mut replayed = Replayed {
            vbid: Vbid(u16_at(front, 0)?),
            record: decode_record(RECORD_ROW, record)?,
            versions: Vec::new(),
            erased: Vec::new(),
        };
        for _ in 0..u32_at(front, 20)? {
            let start = rest.at;
            let front = rest.take(DOCUMENT_HEADER_BYTES)?;
            let key = rest.take(usize::from(u16_at(front, 10)?))?;
            rest.take(u32_at(front, 4)? as usize)?;
            let location = Location {
                segment: header.segment,
                offset: offset + start as u32,
                bytes: (rest.at - start) as u32,
            };
            let seqno = Seqno(u64_at(front, 20)?);
            let version = Version { seqno, location, hash: key_hash(salt, key) };
            replayed.versions.push((version, Old::decode(u64_at(front, 12)?)));
        }
        for _ in 0..u32_at(front, 24)? {
            replayed.erased.push(Old::decode(u64_at(rest.take(8)?, 0)?));
        }
        commits.push(replayed);
    }
    (rest.at == body.len()).then_some(commits)
}

/// The part of a body that is not decoded yet.
pub(super) struct Rest<'a> {
    pub body: &'a [u8],
    pub at: usize,
}

impl<'a> Rest<'a> {
    pub fn take(&mut self, bytes: usize) -> Option<&'a [u8]> {
        let taken = self.body.get(self.at..self.at.checked_add(bytes)?)?;
        self.at += bytes;
        Some(taken)
    }
}

/// Returns the position in `bytes` of the first batch with a number above `number`. Such a batch proves that its
/// predecessor was acknowledged, because each batch is synced before the next is written.
pub(super) fn later_batch(bytes: &[u8], salt: u64, number: u64) -> Option<u64> {
    bytes
        .windows(BATCH_HEADER_BYTES)
        .filter(|window| window[0] == BATCH_MAGIC[0])
        .filter_map(|window| BatchHeader::decode(window, salt))
        .map(|header| header.number)
        .find(|found| *found > number)
}

/// Encodes a record for the saved table of locations.
pub(super) fn encode_saved_record(record: &VbRecord) -> Vec<u8> {
    encode_record(RECORD_ROW, record)
}

/// Decodes a record of the saved table of locations.
pub(super) fn decode_saved_record(bytes: &[u8]) -> Option<VbRecord> {
    decode_record(RECORD_ROW, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_types::{Cas, FailoverLog, Meta, VbState, VbUuid};

    const SALT: u64 = 77;
    const REPLACED: Old = Old { seqno: Seqno(4), kept: true };
    const ERASED: Old = Old { seqno: Seqno(5), kept: false };

    fn record() -> VbRecord {
        VbRecord {
            state: VbState::Active,
            failover_log: FailoverLog::new(VbUuid(1)),
            high_seqno: Seqno(9),
            term: 3,
            snapshot: (Seqno(9), Seqno(9)),
            purge_seqno: Seqno::ZERO,
            purged_rev: 0,
            max_cas: Cas(10),
            document_count: 1,
            history_start: None,
        }
    }

    fn body() -> (BatchHeader, Vec<u8>) {
        let meta = Meta { seqno: Seqno(9), ..Meta::default() };
        let document = Document::new(meta, b"\0key", b"value");
        let documents = vec![(&document, key_hash(SALT, b"\0key"), REPLACED)];
        let staged = Staged::new(Vbid(3), record(), documents, vec![ERASED]);
        let mut body = Vec::new();
        staged.encode(&mut body, None);
        assert_eq!(body.len(), staged.bytes(false));
        let header = BatchHeader {
            number: 6,
            segment: 2,
            commits: 1,
            body_bytes: body.len() as u32,
            body_crc: crc32fast::hash(&body),
        };
        (header, body)
    }

    #[test]
    fn a_batch_reads_back_as_written() {
        let (header, body) = body();
        assert_eq!(BatchHeader::decode(&header.encode(SALT), SALT), Some(header));
        assert_eq!(BatchHeader::decode(&header.encode(SALT), SALT + 1), None, "another store's");
        let commits = decode_body(&header, &body, 100, SALT, None).unwrap();
        let [Replayed { vbid: Vbid(3), record: found, versions, erased }] = &commits[..] else {
            panic!("{commits:?}")
        };
        assert_eq!((found, &erased[..]), (&record(), &[ERASED][..]));
        let [(version, REPLACED)] = versions[..] else { panic!("{versions:?}") };
        assert_eq!((version.seqno, version.hash), (Seqno(9), key_hash(SALT, b"\0key")));
        let start = version.location.offset as usize - 100;
        let stored = &body[start..start + version.location.bytes as usize];
        let document = decode_document(stored, Vbid(3), Seqno(9)).unwrap();
        assert_eq!((document.key(), document.value()), (&b"\0key"[..], &b"value"[..]));
        assert!(has_key(&stored[..key_end(b"\0key")], Vbid(3), Seqno(9), b"\0key"));
        assert!(!has_key(&stored[..key_end(b"\0kez")], Vbid(3), Seqno(9), b"\0kez"));
    }

    #[test]
    fn every_flipped_bit_and_every_truncation_is_detected() {
        let (header, body) = body();
        let front = header.encode(SALT);
        for bit in 0..front.len() * 8 {
            let mut damaged = front;
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(BatchHeader::decode(&damaged, SALT), None, "bit {bit} of the header");
        }
        for bit in 0..body.len() * 8 {
            let mut damaged = body.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(
                decode_body(&header, &damaged, 0, SALT, None).is_none(),
                "bit {bit} of the body"
            );
        }
        for bytes in 0..body.len() {
            let cut = BatchHeader {
                body_bytes: bytes as u32,
                body_crc: crc32fast::hash(&body[..bytes]),
                ..header
            };
            assert!(decode_body(&cut, &body[..bytes], 0, SALT, None).is_none(), "{bytes} bytes");
        }
        let meta = Meta { seqno: Seqno(9), ..Meta::default() };
        let mut stored = Vec::new();
        encode_document(&mut stored, Vbid(1), &Document::new(meta, b"\0k", b"v"), Old::NONE);
        assert!(decode_document(&stored, Vbid(2), Seqno(9)).is_none(), "another vBucket's");
        assert!(decode_document(&stored, Vbid(1), Seqno(8)).is_none(), "another version");
        for bit in 0..stored.len() * 8 {
            let mut damaged = stored.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(decode_document(&damaged, Vbid(1), Seqno(9)).is_none(), "bit {bit}");
        }
    }

    /// The hash is stored, so it must not change.
    #[test]
    fn the_hash_of_a_key_never_changes() {
        assert_eq!(key_hash(1, b"\0key"), 470_790_694);
    }
}
