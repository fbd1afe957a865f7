//! A document, or the tombstone it left, with its metadata.

use crate::{Cas, CollectionId, Seqno, leb128_decode};
use std::fmt;

/// Datatype bit: the body is JSON (decided by the server when it stored the document).
pub const DATATYPE_JSON: u8 = 0x01;
/// Datatype bit: the value is compressed with snappy.
pub const DATATYPE_SNAPPY: u8 = 0x02;
/// Datatype bit: the value starts with a section of extended attributes.
pub const DATATYPE_XATTR: u8 = 0x04;

/// Whether a document is alive, and if not, how it ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The document exists.
    #[default]
    Alive,
    /// A client deleted it.
    Deleted,
    /// Its expiry passed.
    Expired,
}

/// What the database knows about a document beside its value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Meta {
    /// Position in the history of the vBucket.
    pub seqno: Seqno,
    /// Version for compare-and-swap.
    pub cas: Cas,
    /// How often the key was changed, deletions included; starts at 1.
    pub rev: u64,
    /// Opaque to the server; clients note the format of the body here.
    pub flags: u32,
    /// Unix second at which the document expires, 0 for never. For a tombstone: the second of its deletion.
    pub expiry: u32,
    /// A combination of the `DATATYPE_*` bits.
    pub datatype: u8,
    /// Alive, deleted or expired.
    pub kind: Kind,
}

/// One version of a document: metadata, key and value. Immutable; shared by hash table, checkpoint and streams.
///
/// Key and value lie in one buffer, so that a write costs one allocation beside the shared header.
#[derive(Clone, PartialEq, Eq)]
pub struct Document {
    /// The metadata of this version.
    pub meta: Meta,
    key_bytes: u16,
    buffer: Box<[u8]>,
}

impl Document {
    /// A version of the document at `key` (collection prefix first, at most 65,535 bytes).
    pub fn new(meta: Meta, key: &[u8], value: &[u8]) -> Document {
        debug_assert!(leb128_decode(key).is_some());
        let key_bytes = u16::try_from(key.len()).expect("keys are checked against their limit");
        let mut buffer = Vec::with_capacity(key.len() + value.len());
        buffer.extend_from_slice(key);
        buffer.extend_from_slice(value);
        Document { meta, key_bytes, buffer: buffer.into_boxed_slice() }
    }

    /// The key, collection prefix first.
    pub fn key(&self) -> &[u8] {
        &self.buffer[..usize::from(self.key_bytes)]
    }

    /// The key as the application knows it.
    pub fn name(&self) -> &[u8] {
        leb128_decode(self.key()).map_or(&[], |(_, name)| name)
    }

    /// The collection of the key.
    pub fn collection(&self) -> CollectionId {
        CollectionId(leb128_decode(self.key()).map_or(0, |(id, _)| id))
    }

    /// The stored value: extended attributes first when the datatype says so, then the body.
    pub fn value(&self) -> &[u8] {
        &self.buffer[usize::from(self.key_bytes)..]
    }

    /// The extended-attribute section (its length word included; empty when there is none) and the body.
    pub fn split(&self) -> (&[u8], &[u8]) {
        let value = self.value();
        if self.meta.datatype & DATATYPE_XATTR == 0 || value.len() < 4 {
            return (&[], value);
        }
        let section = u32::from_be_bytes([value[0], value[1], value[2], value[3]]) as usize;
        value.split_at((section + 4).min(value.len()))
    }

    /// The body: the value without extended attributes.
    pub fn body(&self) -> &[u8] {
        self.split().1
    }

    /// Whether this version is a document and not a tombstone.
    pub fn is_alive(&self) -> bool {
        self.meta.kind == Kind::Alive
    }

    /// Whether the document's expiry lies at or before `unix_s`.
    pub fn is_expired(&self, unix_s: u32) -> bool {
        self.is_alive() && self.meta.expiry != 0 && self.meta.expiry <= unix_s
    }

    /// Bytes this version occupies in memory, its header included.
    pub fn memory_bytes(&self) -> usize {
        self.buffer.len() + size_of::<Document>() + 2 * size_of::<usize>()
    }
}

impl fmt::Debug for Document {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Document")
            .field("collection", &self.collection())
            .field("name", &String::from_utf8_lossy(self.name()))
            .field("meta", &self.meta)
            .field("value_bytes", &self.value().len())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_splits_into_attributes_and_body() {
        let section = [0, 0, 0, 2, b'x', b'y'];
        let value = [&section[..], b"{}"].concat();
        let meta = Meta { datatype: DATATYPE_XATTR | DATATYPE_JSON, ..Meta::default() };
        let document = Document::new(meta, b"\0k", &value);
        assert_eq!(document.split(), (&section[..], &b"{}"[..]));
        assert_eq!(document.name(), b"k");
        let plain = Document::new(Meta::default(), b"\0k", b"text");
        assert_eq!(plain.split(), (&b""[..], &b"text"[..]));
    }
}
