//! Commits of an encrypted store: the documents of a commit are chunks, so that each can be read and moved alone.
//!
//! ```text
//! commit     chunk of (commit header | record | erased seqnos u64*) | chunk of a document*
//! ```
//!
//! The first chunk is bound to the number of its batch. The chunk of a document has the same form in a batch and in a copy; both
//! are bound to their segment and offset. The checksum of a batch covers the chunks: a torn batch is found without the key.

use super::batch::{
    BatchHeader, COMMIT_HEADER_BYTES, DOCUMENT_HEADER_BYTES, RECORD_ROW, Replayed, Rest, key_hash,
};
use super::locations::{Location, Old, Version};
use crate::codec::{decode_record, u16_at, u32_at, u64_at};
use crate::seal::{CHUNK_FRONT_BYTES, FileCipher, Nonces, chunk_bytes};
use nacre_types::{Seqno, Vbid};

/// Encrypts the content of one write to a segment.
pub(super) struct Sealer<'a> {
    pub cipher: &'a FileCipher,
    pub nonces: Nonces,
    /// Offset in the segment of the first byte of the buffer.
    pub offset: u32,
    /// Number of the batch; 0 for copies.
    pub batch: u64,
}

impl Sealer<'_> {
    /// Appends a chunk of what `encode` appends.
    pub fn add(&self, bytes: &mut Vec<u8>, number: u64, encode: impl FnOnce(&mut Vec<u8>)) {
        let start = bytes.len();
        bytes.extend([0; CHUNK_FRONT_BYTES]);
        encode(bytes);
        let offset = self.offset + start as u32;
        self.cipher.seal_chunk(bytes, start, self.nonces, offset, number);
    }
}

/// Decodes the next commit of a body, which begins at `offset` of its segment.
pub(super) fn decode_commit(
    header: &BatchHeader,
    rest: &mut Rest<'_>,
    offset: u32,
    salt: u64,
    cipher: &FileCipher,
) -> Option<Replayed> {
    let mut buffer = Vec::new();
    let (at, chunk) = take_chunk(rest, &mut buffer)?;
    let front = cipher.open_chunk(chunk, offset + at as u32, header.number)?;
    let mut front = Rest { body: front, at: 0 };
    let head = front.take(COMMIT_HEADER_BYTES)?;
    let record = front.take(usize::from(u16_at(head, 2)?))?;
    let mut replayed = Replayed {
        vbid: Vbid(u16_at(head, 0)?),
        record: decode_record(RECORD_ROW, record)?,
        versions: Vec::new(),
        erased: Vec::new(),
    };
    let documents = u32_at(head, 20)?;
    for _ in 0..u32_at(head, 24)? {
        replayed.erased.push(Old::decode(u64_at(front.take(8)?, 0)?));
    }
    if front.at != front.body.len() {
        return None;
    }
    let mut buffer = Vec::new();
    for _ in 0..documents {
        let (at, chunk) = take_chunk(rest, &mut buffer)?;
        let (offset, bytes) = (offset + at as u32, chunk.len() as u32);
        let location = Location { segment: header.segment, offset, bytes };
        let document = cipher.open_chunk(chunk, offset, 0)?;
        let key_end = DOCUMENT_HEADER_BYTES + usize::from(u16_at(document, 10)?);
        let key = document.get(DOCUMENT_HEADER_BYTES..key_end)?;
        let seqno = Seqno(u64_at(document, 20)?);
        let version = Version { seqno, location, hash: key_hash(salt, key) };
        replayed.versions.push((version, Old::decode(u64_at(document, 12)?)));
    }
    Some(replayed)
}

/// Copies the next chunk to `buffer`. Returns its position in the body, and the copy.
fn take_chunk<'b>(rest: &mut Rest<'_>, buffer: &'b mut Vec<u8>) -> Option<(usize, &'b mut [u8])> {
    let at = rest.at;
    let length = chunk_bytes(rest.body.get(at..)?)?;
    let chunk = rest.take(length)?;
    buffer.clear();
    buffer.extend_from_slice(chunk);
    Some((at, buffer.as_mut_slice()))
}

#[cfg(test)]
mod tests {
    use super::super::batch::{Staged, decode_body, decode_document};
    use super::*;
    use crate::key::KEY_BYTES;
    use nacre_types::{Cas, Document, FailoverLog, Meta, VbRecord, VbState, VbUuid};

    const SALT: u64 = 77;
    const OFFSET: u32 = 100;
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

    fn body(cipher: &FileCipher) -> Vec<u8> {
        let meta = Meta { seqno: Seqno(9), ..Meta::default() };
        let document = Document::new(meta, b"\0key", b"value");
        let documents = vec![(&document, key_hash(SALT, b"\0key"), REPLACED)];
        let staged = Staged::new(Vbid(3), record(), documents, vec![ERASED]);
        let nonces = Nonces::random().unwrap();
        let sealer = Sealer { cipher, nonces, offset: OFFSET, batch: 6 };
        let mut body = Vec::new();
        staged.encode(&mut body, Some(&sealer));
        assert_eq!(body.len(), staged.bytes(true));
        body
    }

    /// Returns the header of a body, with the checksum that the body has now.
    fn header(number: u64, body: &[u8]) -> BatchHeader {
        let (body_bytes, body_crc) = (body.len() as u32, crc32fast::hash(body));
        BatchHeader { number, segment: 2, commits: 1, body_bytes, body_crc }
    }

    fn decode(number: u64, body: &[u8], offset: u32, cipher: &FileCipher) -> Option<Vec<Replayed>> {
        decode_body(&header(number, body), body, offset, SALT, Some(cipher))
    }

    #[test]
    fn a_sealed_commit_reads_back_as_written() {
        let cipher = FileCipher::new(&[1; KEY_BYTES]);
        let body = body(&cipher);
        let commits = decode(6, &body, OFFSET, &cipher).unwrap();
        let [Replayed { vbid: Vbid(3), record: found, versions, erased }] = &commits[..] else {
            panic!("{commits:?}")
        };
        assert_eq!((found, &erased[..]), (&record(), &[ERASED][..]));
        let [(version, REPLACED)] = versions[..] else { panic!("{versions:?}") };
        assert_eq!((version.seqno, version.hash), (Seqno(9), key_hash(SALT, b"\0key")));
        let Location { segment: 2, offset, bytes } = version.location else {
            panic!("{version:?}")
        };
        let mut stored = body[(offset - OFFSET) as usize..][..bytes as usize].to_vec();
        let plain = cipher.open_chunk(&mut stored, offset, 0).unwrap();
        let document = decode_document(plain, Vbid(3), Seqno(9)).unwrap();
        assert_eq!((document.key(), document.value()), (&b"\0key"[..], &b"value"[..]));
    }

    #[test]
    fn a_change_is_detected_even_if_the_checksum_was_changed_with_it() {
        let cipher = FileCipher::new(&[1; KEY_BYTES]);
        let body = body(&cipher);
        for bit in 0..body.len() * 8 {
            let mut changed = body.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(6, &changed, OFFSET, &cipher).is_none(), "bit {bit}");
        }
        for bytes in 0..body.len() {
            assert!(decode(6, &body[..bytes], OFFSET, &cipher).is_none(), "{bytes} bytes");
        }
        assert!(decode(7, &body, OFFSET, &cipher).is_none(), "another batch");
        assert!(decode(6, &body, OFFSET + 1, &cipher).is_none(), "another place");
        let other = FileCipher::new(&[2; KEY_BYTES]);
        assert!(decode(6, &body, OFFSET, &other).is_none(), "another segment");
    }
}
