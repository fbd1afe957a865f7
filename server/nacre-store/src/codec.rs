//! Stored forms of documents and vBucket records; big-endian, each with a checksum.
//!
//! ```text
//! document   crc u32 | seqno u64 | cas u64 | rev u64 | flags u32 | expiry u32 | datatype u8 | kind u8 | value
//! record     crc u32 | state u8 | high seqno u64 | purge seqno u64 | completed seqno u64 | prepared seqno u64
//!                    | max CAS u64 | documents u64 | entries u8 | (uuid u64, seqno u64)*
//!                    | term u64 | snapshot start u64 | snapshot end u64 | history start u64?
//! ```
//!
//! The checksum is CRC-32 over the row's key and everything after the checksum, so that a misplaced row is detected
//! like a damaged one.

use nacre_types::{Cas, Document, FailoverLog, Kind, Meta, Seqno, VbRecord, VbState, VbUuid};

/// Size of a document's metadata in bytes.
pub(crate) const META_BYTES: usize = 34;

fn checksum(row: &[u8], body: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(row);
    hasher.update(body);
    hasher.finalize()
}

fn sealed(row: &[u8], mut bytes: Vec<u8>) -> Vec<u8> {
    let crc = checksum(row, &bytes[4..]);
    bytes[..4].copy_from_slice(&crc.to_be_bytes());
    bytes
}

/// Returns the body if the checksum is intact.
fn opened<'a>(row: &[u8], bytes: &'a [u8]) -> Option<&'a [u8]> {
    let (crc, body) = bytes.split_first_chunk::<4>()?;
    (u32::from_be_bytes(*crc) == checksum(row, body)).then_some(body)
}

pub(crate) fn u16_at(bytes: &[u8], offset: usize) -> Option<u16> {
    Some(u16::from_be_bytes(bytes.get(offset..offset + 2)?.try_into().ok()?))
}

pub(crate) fn u64_at(bytes: &[u8], offset: usize) -> Option<u64> {
    Some(u64::from_be_bytes(bytes.get(offset..offset + 8)?.try_into().ok()?))
}

pub(crate) fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(offset..offset + 4)?.try_into().ok()?))
}

/// Appends metadata, which takes [`META_BYTES`].
pub(crate) fn encode_meta(bytes: &mut Vec<u8>, meta: &Meta) {
    let Meta { seqno, cas, rev, flags, expiry, datatype, kind } = *meta;
    bytes.extend(seqno.0.to_be_bytes());
    bytes.extend(cas.0.to_be_bytes());
    bytes.extend(rev.to_be_bytes());
    bytes.extend(flags.to_be_bytes());
    bytes.extend(expiry.to_be_bytes());
    bytes.extend([datatype, kind as u8]);
}

/// Decodes the metadata at the start of `bytes`.
pub(crate) fn decode_meta(bytes: &[u8]) -> Option<Meta> {
    Some(Meta {
        seqno: Seqno(u64_at(bytes, 0)?),
        cas: Cas(u64_at(bytes, 8)?),
        rev: u64_at(bytes, 16)?,
        flags: u32_at(bytes, 24)?,
        expiry: u32_at(bytes, 28)?,
        datatype: *bytes.get(32)?,
        kind: match bytes.get(33)? {
            0 => Kind::Alive,
            1 => Kind::Deleted,
            2 => Kind::Expired,
            3 => Kind::Aborted,
            _ => return None,
        },
    })
}

pub(crate) fn encode_document(row: &[u8], document: &Document) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(4 + META_BYTES + document.value().len());
    bytes.extend([0; 4]);
    encode_meta(&mut bytes, &document.meta);
    bytes.extend_from_slice(document.value());
    sealed(row, bytes)
}

/// Returns the seqno of a stored document without checking the rest.
pub(crate) fn seqno_of(bytes: &[u8]) -> Option<Seqno> {
    u64_at(bytes, 4).map(Seqno)
}

pub(crate) fn decode_document(row: &[u8], key: &[u8], bytes: &[u8]) -> Option<Document> {
    let body = opened(row, bytes)?;
    Some(Document::new(decode_meta(body)?, key, body.get(META_BYTES..)?))
}

pub(crate) fn encode_record(row: &[u8], record: &VbRecord) -> Vec<u8> {
    let entries = record.failover_log.entries();
    let mut bytes = vec![0; 4];
    bytes.push(match record.state {
        VbState::Active => 1,
        VbState::Replica => 2,
        VbState::Pending => 3,
        VbState::Dead => 4,
    });
    bytes.extend(record.high_seqno.0.to_be_bytes());
    bytes.extend(record.purge_seqno.0.to_be_bytes());
    bytes.extend(record.purged_rev.to_be_bytes());
    bytes.extend(record.max_cas.0.to_be_bytes());
    bytes.extend(record.document_count.to_be_bytes());
    bytes.push(entries.len() as u8);
    for (vb_uuid, seqno) in entries {
        bytes.extend(vb_uuid.0.to_be_bytes());
        bytes.extend(seqno.0.to_be_bytes());
    }
    bytes.extend(record.term.to_be_bytes());
    bytes.extend(record.snapshot.0.0.to_be_bytes());
    bytes.extend(record.snapshot.1.0.to_be_bytes());
    // Omitted if there is no history, so that other records keep their format.
    if let Some(start) = record.history_start {
        bytes.extend(start.0.to_be_bytes());
    }
    sealed(row, bytes)
}

pub(crate) fn decode_record(row: &[u8], bytes: &[u8]) -> Option<VbRecord> {
    let body = opened(row, bytes)?;
    let state = match body.first()? {
        1 => VbState::Active,
        2 => VbState::Replica,
        3 => VbState::Pending,
        4 => VbState::Dead,
        _ => return None,
    };
    let entries = (0..usize::from(*body.get(41)?))
        .map(|index| {
            Some((VbUuid(u64_at(body, 42 + 16 * index)?), Seqno(u64_at(body, 50 + 16 * index)?)))
        })
        .collect::<Option<Vec<_>>>()?;
    let high_seqno = Seqno(u64_at(body, 1)?);
    // Records from before terms existed end here.
    let rest = body.get(42 + 16 * entries.len()..)?;
    let (term, snapshot) = match rest {
        [] => (0, (high_seqno, high_seqno)),
        rest => (u64_at(rest, 0)?, (Seqno(u64_at(rest, 8)?), Seqno(u64_at(rest, 16)?))),
    };
    Some(VbRecord {
        state,
        term,
        high_seqno,
        snapshot,
        purge_seqno: Seqno(u64_at(body, 9)?),
        purged_rev: u64_at(body, 17)?,
        max_cas: Cas(u64_at(body, 25)?),
        document_count: u64_at(body, 33)?,
        failover_log: FailoverLog::from_entries(entries)?,
        history_start: match rest.len() {
            0 | 24 => None,
            _ => Some(Seqno(u64_at(rest, 24)?)),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document() -> Document {
        let meta = Meta {
            seqno: Seqno(7),
            cas: Cas(99),
            rev: 3,
            flags: 5,
            expiry: 6,
            datatype: 1,
            kind: Kind::Expired,
        };
        Document::new(meta, b"\0key", b"{\"a\":1}")
    }

    #[test]
    fn documents_and_records_read_back_as_written() {
        let bytes = encode_document(b"row", &document());
        assert_eq!(decode_document(b"row", b"\0key", &bytes), Some(document()));
        assert_eq!(seqno_of(&bytes), Some(Seqno(7)));
        let mut failover_log = FailoverLog::new(VbUuid(1));
        failover_log.begin(VbUuid(2), Seqno(4));
        let record = VbRecord {
            state: VbState::Active,
            failover_log,
            high_seqno: Seqno(9),
            term: 3,
            snapshot: (Seqno(9), Seqno(9)),
            purge_seqno: Seqno(3),
            purged_rev: 5,
            max_cas: Cas(10),
            document_count: 8,
            history_start: None,
        };
        for history_start in [None, Some(Seqno(0)), Some(Seqno(7))] {
            let record = VbRecord { history_start, ..record.clone() };
            let bytes = encode_record(b"row", &record);
            assert_eq!(decode_record(b"row", &bytes), Some(record));
        }
    }

    #[test]
    fn every_flipped_bit_and_every_truncation_is_detected() {
        let bytes = encode_document(b"row", &document());
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode_document(b"row", b"\0key", &damaged), None, "bit {bit}");
        }
        for length in 0..bytes.len() {
            assert_eq!(decode_document(b"row", b"\0key", &bytes[..length]), None, "{length} bytes");
        }
        assert_eq!(decode_document(b"other", b"\0key", &bytes), None, "a row in the wrong place");
    }
}
