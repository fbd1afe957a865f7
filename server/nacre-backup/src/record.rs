//! A version of a document as a backup keeps it.

use serde::{Deserialize, Serialize};

/// Kind of a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RecordKind {
    /// The document was written.
    Set,
    /// The document was deleted.
    Deletion,
    /// The document has expired.
    Expiration,
}

/// A version of a document with its metadata.
///
/// Encoded as postcard has it: the kind as one byte, numbers as varints, key and value with their lengths before them, in the order of the
/// fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record<'a> {
    /// Kind.
    pub kind: RecordKind,
    /// Seqno in the vBucket.
    pub seqno: u64,
    /// CAS.
    pub cas: u64,
    /// Number of changes.
    pub rev: u64,
    /// Flags of the application.
    pub flags: u32,
    /// Unix second at which the document expires, 0 for never; of a deletion 0.
    pub expiry: u32,
    /// Datatype bits of the value.
    pub datatype: u8,
    /// Number of the collection.
    pub collection: u32,
    /// Name of the document, without the prefix of its collection.
    #[serde(borrow, with = "serde_bytes")]
    pub key: &'a [u8],
    /// Value, with the extended attributes if the datatype says so.
    #[serde(borrow, with = "serde_bytes")]
    pub value: &'a [u8],
}

impl<'a> Record<'a> {
    /// Appends the encoded record.
    pub(crate) fn encode(&self, output: &mut Vec<u8>) {
        let written = postcard::to_extend(self, std::mem::take(output));
        *output = written.expect("a record of numbers and bytes is always encoded");
    }

    /// Reads a record from the front of `bytes`; returns it with the rest.
    pub(crate) fn decode(bytes: &'a [u8]) -> Option<(Record<'a>, &'a [u8])> {
        postcard::take_from_bytes(bytes).ok()
    }

    /// Returns true for a document, false for a tombstone.
    pub fn is_document(&self) -> bool {
        self.kind == RecordKind::Set
    }

    /// Returns a hash of key and collection, of 128 bits: nobody finds two keys that have the same.
    pub fn key_hash(&self) -> u128 {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.collection.to_le_bytes()).update(self.key);
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
        u128::from_le_bytes(bytes)
    }

    /// Returns a number that depends on all of the record but its seqno and its collection's number, which another bucket does not keep.
    pub fn fingerprint(&self) -> u64 {
        let mut hasher = blake3::Hasher::new();
        let Record { kind, cas, rev, flags, expiry, datatype, key, value, .. } = self;
        hasher.update(&[*kind as u8, *datatype]);
        hasher.update(&cas.to_le_bytes()).update(&rev.to_le_bytes());
        hasher.update(&flags.to_le_bytes()).update(&expiry.to_le_bytes());
        hasher.update(&(key.len() as u64).to_le_bytes()).update(key).update(value);
        let [a, b, c, d, e, f, g, h, ..] = *hasher.finalize().as_bytes();
        u64::from_le_bytes([a, b, c, d, e, f, g, h])
    }
}
