//! A document or its tombstone, with its metadata.

use crate::{Cas, CollectionId, Seqno, leb128_decode};
use std::fmt;
use std::mem::MaybeUninit;
use std::ops::Deref;
use std::sync::atomic::{AtomicU8, Ordering};
use triomphe::{Arc, HeaderSlice, HeaderWithLength, ThinArc, UniqueArc};

/// Datatype bit: the body is JSON. The server decides this when it stores the document.
pub const DATATYPE_JSON: u8 = 0x01;
/// Datatype bit: the value is compressed with Snappy.
pub const DATATYPE_SNAPPY: u8 = 0x02;
/// Datatype bit: the value starts with a section of extended attributes.
pub const DATATYPE_XATTR: u8 = 0x04;

/// Position of the durability level in the datatype of a prepare: above the bits that clients use. Clients never see a
/// prepare's datatype.
pub const DATATYPE_LEVEL_SHIFT: u8 = 4;

/// State of a version: alive, or the way in which the document ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The document exists.
    #[default]
    Alive,
    /// A client deleted it.
    Deleted,
    /// The document expired.
    Expired,
    /// An aborted durable write, in place of its prepare; never in the hash table.
    Aborted,
}

/// Metadata of a document.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Meta {
    /// Position in the history of the vBucket.
    pub seqno: Seqno,
    /// Version for compare-and-swap.
    pub cas: Cas,
    /// Number of changes of the key, deletions included; starts at 1.
    pub rev: u64,
    /// Format of the body, set by clients; opaque to the server.
    pub flags: u32,
    /// Unix second at which the document expires, 0 for never. In a tombstone: the second of the deletion.
    pub expiry: u32,
    /// A combination of the `DATATYPE_*` bits.
    pub datatype: u8,
    /// State of the version.
    pub kind: Kind,
}

/// One version of a document: metadata, key and value. Immutable, and shared by hash table, checkpoint and streams. A
/// handle takes one word; a clone is another handle.
///
/// Everything is in one block of memory, so a write costs one allocation, and a read finds the key directly after the
/// metadata.
///
/// A version whose value was evicted is a [stub](Document::stub): metadata and key only.
#[derive(Clone)]
pub struct Document(ThinArc<Head, u8>);

/// The part of a [`Document`] before the key and the value.
pub struct Head {
    /// The metadata of this version.
    pub meta: Meta,
    key_bytes: u16,
    resident: bool,
    /// Recent reads, on the scale of the item pager; not part of the version.
    hits: AtomicU8,
}

impl Deref for Document {
    type Target = Head;

    fn deref(&self) -> &Head {
        &self.0.header.header
    }
}

impl Document {
    /// Creates a version of the document at `key` (collection prefix first, at most 65,535 bytes).
    pub fn new(meta: Meta, key: &[u8], value: &[u8]) -> Document {
        debug_assert!(leb128_decode(key).is_some());
        Document::build(meta, true, key, value)
    }

    fn build(meta: Meta, resident: bool, key: &[u8], value: &[u8]) -> Document {
        let key_bytes = u16::try_from(key.len()).expect("keys are checked against their limit");
        let head = Head { meta, key_bytes, resident, hits: AtomicU8::new(Document::HITS_NEW) };
        let length = key.len() + value.len();
        let head = HeaderWithLength::new(head, length);
        let mut block =
            UniqueArc::<HeaderSlice<_, [MaybeUninit<u8>]>>::from_header_and_uninit_slice(
                head, length,
            );
        let (key_place, value_place) = block.slice.split_at_mut(key.len());
        key_place.write_copy_of_slice(key);
        value_place.write_copy_of_slice(value);
        // SAFETY: key and value fill the slice, whose length is the sum of theirs.
        let block = unsafe { block.assume_init_slice_with_header() };
        Document(Arc::into_thin(block.shareable()))
    }

    /// The hits that a new version starts with, so that it is not the first to be evicted.
    pub const HITS_NEW: u8 = 4;

    /// Returns this version without its value, which must be read from the store on demand.
    #[must_use]
    pub fn stub(&self) -> Document {
        Document::build(self.meta, false, self.key(), b"")
    }

    /// Changes the metadata of this version: in place if this is the only handle, otherwise in a copy.
    #[must_use]
    pub fn with_meta(mut self, change: impl FnOnce(&mut Meta)) -> Document {
        let mut meta = self.meta;
        change(&mut meta);
        let alone = self
            .0
            .with_arc_mut(|block| Arc::get_mut(block).map(|block| block.header_mut().meta = meta));
        match alone {
            Some(()) => self,
            None => {
                Document::build(meta, self.resident, self.key(), &self.bytes()[self.key().len()..])
            }
        }
    }

    /// Returns true if the value is in memory. A stub has only valid metadata and a key.
    pub fn is_resident(&self) -> bool {
        self.resident
    }

    /// Returns the number of recent reads, on the scale of the item pager.
    pub fn hits(&self) -> u8 {
        self.hits.load(Ordering::Relaxed)
    }

    /// Sets [`Document::hits`].
    pub fn set_hits(&self, hits: u8) {
        self.hits.store(hits, Ordering::Relaxed);
    }

    /// Returns the key, collection prefix first.
    pub fn key(&self) -> &[u8] {
        &self.bytes()[..usize::from(self.key_bytes)]
    }

    /// Returns key and value as stored in memory; for a stub, only the key.
    pub fn bytes(&self) -> &[u8] {
        &self.0.slice
    }

    /// Returns the key without its collection prefix, as applications use it.
    pub fn name(&self) -> &[u8] {
        leb128_decode(self.key()).map_or(&[], |(_, name)| name)
    }

    /// Returns the collection of the key.
    pub fn collection(&self) -> CollectionId {
        CollectionId::of_key(self.key())
    }

    /// Returns the stored value: extended attributes first if the datatype says so, then the body.
    pub fn value(&self) -> &[u8] {
        debug_assert!(self.resident, "the value of {self:?} was evicted");
        &self.bytes()[usize::from(self.key_bytes)..]
    }

    /// Returns the extended-attribute section (with its length word; empty if there is none) and the body.
    pub fn split(&self) -> (&[u8], &[u8]) {
        let value = self.value();
        if !self.has_xattrs() || value.len() < 4 {
            return (&[], value);
        }
        let section = u32::from_be_bytes([value[0], value[1], value[2], value[3]]) as usize;
        value.split_at((section + 4).min(value.len()))
    }

    /// Returns true if there is an extended-attribute section.
    pub fn has_xattrs(&self) -> bool {
        self.meta.datatype & DATATYPE_XATTR != 0
    }

    /// Returns the extended-attribute section, including its length word. If the datatype says that there is none, the
    /// value need not be resident.
    pub fn xattrs(&self) -> &[u8] {
        if self.has_xattrs() { self.split().0 } else { &[] }
    }

    /// Returns the body: the value without extended attributes.
    pub fn body(&self) -> &[u8] {
        self.split().1
    }

    /// Returns true if this version is a document and not a tombstone.
    pub fn is_alive(&self) -> bool {
        self.meta.kind == Kind::Alive
    }

    /// Returns true if the document expires at or before `unix_s`.
    pub fn is_expired(&self, unix_s: u32) -> bool {
        self.is_alive() && self.meta.expiry != 0 && self.meta.expiry <= unix_s
    }

    /// Returns the size of this version in memory, in bytes, including reference counter and length.
    pub fn memory_bytes(&self) -> usize {
        self.bytes().len() + size_of::<Head>() + 2 * size_of::<usize>()
    }
}

impl PartialEq for Document {
    fn eq(&self, other: &Document) -> bool {
        let parts = |document: &Document| (document.meta, document.key_bytes, document.resident);
        parts(self) == parts(other) && self.bytes() == other.bytes()
    }
}

impl Eq for Document {}

impl fmt::Debug for Document {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Document")
            .field("collection", &self.collection())
            .field("name", &String::from_utf8_lossy(self.name()))
            .field("meta", &self.meta)
            .field("value_bytes", &(self.bytes().len() - usize::from(self.key_bytes)))
            .field("resident", &self.resident)
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

    #[test]
    fn other_metadata_change_no_handle_but_the_one_that_asks() {
        let new = Meta { rev: 7, ..Meta::default() };
        let change = |meta: &mut Meta| meta.rev = 7;
        let document = Document::new(Meta::default(), b"\0k", b"text");
        let place = document.bytes().as_ptr();
        let other = document.clone();
        let changed = document.with_meta(change);
        assert_eq!(
            (other.meta, changed.meta, changed.bytes()),
            (Meta::default(), new, other.bytes())
        );
        drop(changed);
        let alone = other.with_meta(change);
        assert_eq!((alone.meta, alone.bytes().as_ptr()), (new, place), "there is nobody to notice");
        let stub = alone.stub();
        let _shared = stub.clone();
        assert!(!stub.with_meta(change).is_resident());
    }

    #[test]
    fn a_document_is_one_block_with_its_key_on_the_second_line() {
        let document = Document::new(Meta::default(), b"\0key", b"value");
        assert_eq!(document.memory_bytes(), 64 + document.bytes().len());
        assert_eq!(size_of::<Document>(), size_of::<usize>());
    }
}
