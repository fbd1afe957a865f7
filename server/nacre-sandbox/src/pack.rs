//! Packs a batch into one buffer for the sandbox.
//!
//! A header of 32 bytes (`NEB1`, count, now, arena offset, total), 64 bytes per event, then keys and values, then the
//! requested and known previous versions with 48 bytes and a value each. The guest SDK documents the layout byte for
//! byte; the worked example in `plugins/wit/event-buffer.example` is a test on both sides.

use nacre_dcp::Previous;
use nacre_types::{Document, Kind, Now, Vbid};

const HEADER_BYTES: usize = 32;
const EVENT_BYTES: usize = 64;
const PREVIOUS_BYTES: usize = 48;

/// Maximum size of a buffer: offsets have 32 bits, and the sandbox has no more memory.
const BUFFER_BYTES_MAX: usize = u32::MAX as usize;

/// Returns the size of `document` in a buffer, in bytes.
pub fn event_bytes(document: &Document) -> usize {
    EVENT_BYTES + document.name().len() + document.value().len()
}

/// Returns the size of `document` as a previous version, in bytes.
pub fn previous_bytes(document: &Document) -> usize {
    PREVIOUS_BYTES + document.value().len()
}

/// Returns the buffer of `documents`, each with its previous version if `previous` contains one. The result must fit 4
/// GiB.
pub fn pack(documents: &[(Vbid, Document)], previous: &Previous, now: Now) -> Vec<u8> {
    let before = |vbid: Vbid, document: &Document| previous.get(&(vbid, document.meta.seqno));
    let arena_start = HEADER_BYTES + documents.len() * EVENT_BYTES;
    let events_end = HEADER_BYTES + documents.iter().map(|(_, d)| event_bytes(d)).sum::<usize>();
    let found = || documents.iter().filter_map(|(vbid, document)| before(*vbid, document));
    let total = events_end + found().map(previous_bytes).sum::<usize>();
    assert!(total <= BUFFER_BYTES_MAX, "a call is bounded far below 4 GiB");
    let mut buffer = Vec::with_capacity(total);
    buffer.extend_from_slice(b"NEB1");
    buffer.extend_from_slice(&(documents.len() as u32).to_le_bytes());
    buffer.extend_from_slice(&(now.unix_ns / 1000).to_le_bytes());
    buffer.extend_from_slice(&(arena_start as u32).to_le_bytes());
    buffer.extend_from_slice(&(total as u32).to_le_bytes());
    buffer.extend_from_slice(&[0; 8]);
    let (mut at, mut previous_at) = (0u32, (events_end - arena_start) as u32);
    for (vbid, document) in documents {
        let version = before(*vbid, document);
        at = pack_event(*vbid, document, at, version.map_or(0, |_| previous_at), &mut buffer);
        previous_at += version.map_or(0, |version| previous_bytes(version) as u32);
    }
    for (_, document) in documents {
        buffer.extend_from_slice(document.name());
        buffer.extend_from_slice(document.value());
    }
    for version in found() {
        pack_previous(version, &mut buffer);
    }
    debug_assert_eq!(buffer.len(), total);
    buffer
}

/// Appends a previous version.
fn pack_previous(document: &Document, buffer: &mut Vec<u8>) {
    let meta = &document.meta;
    for word in [meta.seqno.0, meta.cas.0, meta.rev] {
        buffer.extend_from_slice(&word.to_le_bytes());
    }
    let (xattr_bytes, value_bytes) = (document.split().0.len(), document.value().len());
    for word in [meta.flags, meta.expiry, value_bytes as u32, xattr_bytes as u32] {
        buffer.extend_from_slice(&word.to_le_bytes());
    }
    buffer.extend_from_slice(&[number_of(meta.kind), meta.datatype]);
    buffer.extend_from_slice(&[0; 6]);
    buffer.extend_from_slice(document.value());
}

fn number_of(kind: Kind) -> u8 {
    match kind {
        Kind::Alive => 1,
        Kind::Deleted => 2,
        Kind::Expired => 3,
        // Never occurs in a collection that a plugin reads.
        Kind::Aborted => 4,
    }
}

/// Appends one event whose key starts at `at` of the arena, with the offset of its previous version, or 0. Returns the
/// position of the next key.
fn pack_event(
    vbid: Vbid,
    document: &Document,
    at: u32,
    previous_at: u32,
    buffer: &mut Vec<u8>,
) -> u32 {
    let meta = &document.meta;
    let key_bytes = document.name().len() as u32;
    let value_bytes = document.value().len() as u32;
    for word in [meta.seqno.0, meta.cas.0, meta.rev] {
        buffer.extend_from_slice(&word.to_le_bytes());
    }
    let xattr_bytes = document.split().0.len() as u32;
    let collection = document.collection().0;
    for word in [meta.flags, meta.expiry, collection, at, at + key_bytes, value_bytes, xattr_bytes]
    {
        buffer.extend_from_slice(&word.to_le_bytes());
    }
    buffer.extend_from_slice(&vbid.0.to_le_bytes());
    buffer.extend_from_slice(&(key_bytes as u16).to_le_bytes());
    buffer.extend_from_slice(&[number_of(meta.kind), meta.datatype]);
    buffer.extend_from_slice(&previous_at.to_le_bytes());
    buffer.extend_from_slice(&[0; 2]);
    at + key_bytes + value_bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_types::{Cas, Meta, Seqno};

    fn bytes_of(example: &str) -> Vec<u8> {
        let lines = example.lines().filter(|line| !line.starts_with('#'));
        lines
            .flat_map(|line| line[5..46.min(line.len())].split_whitespace())
            .map(|byte| u8::from_str_radix(byte, 16).unwrap())
            .collect()
    }

    #[test]
    fn the_worked_example_with_a_previous_version_is_packed_as_documented() {
        let meta = |seqno, kind, datatype| Meta {
            seqno: Seqno(seqno),
            cas: Cas(seqno << 16),
            rev: seqno,
            kind,
            datatype,
            ..Meta::default()
        };
        let version = |meta, value: &[u8]| Document::new(meta, b"\x08k1", value);
        let documents = [
            (Vbid(526), version(meta(1, Kind::Alive, 1), b"{}")),
            (Vbid(526), version(meta(2, Kind::Deleted, 0), b"")),
        ];
        let previous = Previous::from([((Vbid(526), Seqno(2)), documents[0].1.clone())]);
        let now = Now { unix_ns: 1_700_000_000_000_000_000, monotonic_ns: 0 };
        let expected = include_str!("../../../plugins/wit/event-buffer-previous.example");
        assert_eq!(pack(&documents, &previous, now), bytes_of(expected));
    }

    #[test]
    fn the_worked_example_is_packed_as_documented() {
        let expected = bytes_of(include_str!("../../../plugins/wit/event-buffer.example"));
        let upsert = Meta {
            seqno: Seqno(7),
            cas: Cas(65_536),
            rev: 3,
            flags: 0x0200_0006,
            expiry: 0,
            datatype: 5,
            kind: Kind::Alive,
        };
        let delete = Meta {
            seqno: Seqno(8),
            cas: Cas(131_072),
            rev: 4,
            flags: 0,
            expiry: 1_700_000_016,
            datatype: 0,
            kind: Kind::Deleted,
        };
        let documents = [
            (Vbid(526), Document::new(upsert, b"\x08k1", b"\0\0\0\x02xy{\"a\":1}")),
            (Vbid(775), Document::new(delete, b"\x08k2", b"")),
        ];
        let now = Now { unix_ns: 1_700_000_000_000_000_000, monotonic_ns: 0 };
        assert_eq!(pack(&documents, &Previous::new(), now), expected);
    }
}
