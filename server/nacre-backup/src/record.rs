//! A version of a document in a backup.

use serde::{Deserialize, Serialize};

/// The kind of a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RecordKind {
    /// The document was written.
    Set,
    /// The document was deleted.
    Deletion,
    /// The document expired.
    Expiration,
}

/// A version of a document with its metadata.
///
/// Encoded with postcard: the kind as one byte, numbers as varints, key and value with a length prefix, in the order of the
/// fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record<'a> {
    /// The kind.
    pub kind: RecordKind,
    /// The seqno in the vBucket.
    pub seqno: u64,
    /// The CAS.
    pub cas: u64,
    /// The number of changes.
    pub rev: u64,
    /// The application's flags.
    pub flags: u32,
    /// The Unix second at which the document expires, 0 for never; 0 for deletions.
    pub expiry: u32,
    /// The datatype bits of the value.
    pub datatype: u8,
    /// The collection ID.
    pub collection: u32,
    /// The document's name, without its collection prefix.
    #[serde(borrow, with = "serde_bytes")]
    pub key: &'a [u8],
    /// The value, with the extended attributes if the datatype says so.
    #[serde(borrow, with = "serde_bytes")]
    pub value: &'a [u8],
}

impl<'a> Record<'a> {
    /// Appends the encoded record.
    pub(crate) fn encode(&self, output: &mut Vec<u8>) {
        let written = postcard::to_extend(self, std::mem::take(output));
        *output = written.expect("a record of numbers and bytes is always encoded");
    }

    /// Decodes a record from the start of `bytes`; returns it and the rest.
    pub(crate) fn decode(bytes: &'a [u8]) -> Option<(Record<'a>, &'a [u8])> {
        postcard::take_from_bytes(bytes).ok()
    }

    /// Returns true for a document, false for a tombstone.
    pub fn is_document(&self) -> bool {
        self.kind == RecordKind::Set
    }

    /// Returns a 128-bit hash of key and collection. It is collision-resistant.
    pub fn key_hash(&self) -> u128 {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.collection.to_le_bytes()).update(self.key);
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
        u128::from_le_bytes(bytes)
    }

    /// Returns a hash of the record, without its seqno and collection ID, which differ in another bucket.
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
