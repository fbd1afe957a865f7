//! Packing a batch into one buffer for the sandbox.
//!
//! Header of 32 bytes (`NEB1`, count, now, arena offset, total), 64 bytes an event, then keys and values. The
//! layout is documented with the guest SDK, byte for byte; the worked example in
//! `plugins/wit/event-buffer.example` is a test on both sides.

use nacre_types::{Document, Kind, Now, Vbid};
use std::sync::Arc;

const HEADER_BYTES: usize = 32;
const EVENT_BYTES: usize = 64;

/// The most that a buffer may hold: offsets are 32 bits, and the sandbox has no more memory.
const BUFFER_BYTES_MAX: usize = u32::MAX as usize;

/// Bytes that `document` takes in a buffer.
pub fn event_bytes(document: &Document) -> usize {
    EVENT_BYTES + document.name().len() + document.value().len()
}

/// The buffer of `documents`, which must fit 4 GiB.
pub fn pack(documents: &[(Vbid, Arc<Document>)], now: Now) -> Vec<u8> {
    let arena_start = HEADER_BYTES + documents.len() * EVENT_BYTES;
    let total = HEADER_BYTES + documents.iter().map(|(_, d)| event_bytes(d)).sum::<usize>();
    assert!(total <= BUFFER_BYTES_MAX, "a call is bounded far below 4 GiB");
    let mut buffer = Vec::with_capacity(total);
    buffer.extend_from_slice(b"NEB1");
    buffer.extend_from_slice(&(documents.len() as u32).to_le_bytes());
    buffer.extend_from_slice(&(now.unix_ns / 1000).to_le_bytes());
    buffer.extend_from_slice(&(arena_start as u32).to_le_bytes());
    buffer.extend_from_slice(&(total as u32).to_le_bytes());
    buffer.extend_from_slice(&[0; 8]);
    let mut at = 0u32;
    for (vbid, document) in documents {
        at = pack_event(*vbid, document, at, &mut buffer);
    }
    for (_, document) in documents {
        buffer.extend_from_slice(document.name());
        buffer.extend_from_slice(document.value());
    }
    debug_assert_eq!(buffer.len(), total);
    buffer
}

/// Appends one event whose key starts at `at` of the arena; gives where the next one starts.
fn pack_event(vbid: Vbid, document: &Document, at: u32, buffer: &mut Vec<u8>) -> u32 {
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
    buffer.push(match meta.kind {
        Kind::Alive => 1,
        Kind::Deleted => 2,
        Kind::Expired => 3,
        // Never in a collection that a plugin reads.
        Kind::Aborted => 4,
    });
    buffer.push(meta.datatype);
    buffer.extend_from_slice(&[0; 6]);
    at + key_bytes + value_bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_types::{Cas, Meta, Seqno};

    #[test]
    fn the_worked_example_is_packed_as_it_says() {
        let expected: Vec<u8> = include_str!("../../../plugins/wit/event-buffer.example")
            .lines()
            .filter(|line| !line.starts_with('#'))
            .flat_map(|line| line[5..46.min(line.len())].split_whitespace())
            .map(|byte| u8::from_str_radix(byte, 16).unwrap())
            .collect();
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
            (Vbid(526), Arc::new(Document::new(upsert, b"\x08k1", b"\0\0\0\x02xy{\"a\":1}"))),
            (Vbid(775), Arc::new(Document::new(delete, b"\x08k2", b""))),
        ];
        let now = Now { unix_ns: 1_700_000_000_000_000_000, monotonic_ns: 0 };
        assert_eq!(pack(&documents, now), expected);
    }
}
