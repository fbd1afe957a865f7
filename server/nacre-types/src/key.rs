//! Document keys with their collection.
//!
//! A key is stored in the form of a connection that negotiated collections: the collection ID as unsigned LEB128,
//! then the name. `08 61` is the key `a` of collection 8; `00 61` is `a` in the default collection. The same buffer
//! therefore serves the hash table, the store and the wire, and comparing two buffers compares both parts.

use crate::CollectionId;
use std::fmt;

/// The maximum length of a name in the default collection, in bytes. In other collections the prefix counts too.
pub const KEY_BYTES_MAX: usize = 250;

/// Returns the maximum length of a name in the default collection, or in another one, whose prefix counts as four
/// bytes.
pub const fn name_bytes_max(in_default: bool) -> usize {
    if in_default { KEY_BYTES_MAX } else { KEY_BYTES_MAX - 4 }
}

/// Appends `value` as unsigned LEB128.
pub fn leb128_encode(mut value: u32, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Decodes an unsigned LEB128 number of at most 32 bits. Returns the number and the remaining bytes.
///
/// Returns `None` if the bytes end within the number, or if the number is too large.
pub fn leb128_decode(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let mut value = 0u64;
    for (index, byte) in bytes.iter().take(5).enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            return Some((u32::try_from(value).ok()?, &bytes[index + 1..]));
        }
    }
    None
}

/// Replaces the contents of the reusable buffer `bytes` by the key `name` in `collection`, prefix first.
pub fn write_key(collection: CollectionId, name: &[u8], bytes: &mut Vec<u8>) {
    bytes.clear();
    leb128_encode(collection.0, bytes);
    bytes.extend_from_slice(name);
}

/// A key with its collection, prefix first. Construction guarantees a well-formed prefix.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DocKey(Box<[u8]>);

impl DocKey {
    /// Creates the key `name` in `collection`.
    pub fn new(collection: CollectionId, name: &[u8]) -> DocKey {
        let mut bytes = Vec::with_capacity(name.len() + 2);
        write_key(collection, name, &mut bytes);
        DocKey(bytes.into())
    }

    /// Creates a key from its prefixed bytes; `None` if the prefix is malformed.
    pub fn from_prefixed(bytes: &[u8]) -> Option<DocKey> {
        leb128_decode(bytes)?;
        Some(DocKey(bytes.into()))
    }

    /// Returns prefix and name.
    pub fn prefixed(&self) -> &[u8] {
        &self.0
    }

    /// Returns the collection of the key.
    pub fn collection(&self) -> CollectionId {
        CollectionId(leb128_decode(&self.0).expect("checked when the key was made").0)
    }

    /// Returns the key without its prefix: the application's key, which determines the vBucket.
    pub fn name(&self) -> &[u8] {
        leb128_decode(&self.0).expect("checked when the key was made").1
    }
}

impl fmt::Debug for DocKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.collection(), String::from_utf8_lossy(self.name()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_keep_collection_and_name() {
        for id in [0, 8, 127, 128, 300, u32::MAX] {
            let key = DocKey::new(CollectionId(id), b"airport_1");
            assert_eq!((key.collection().0, key.name()), (id, &b"airport_1"[..]));
            assert_eq!(DocKey::from_prefixed(key.prefixed()), Some(key));
        }
    }

    #[test]
    fn malformed_prefixes_are_refused() {
        assert_eq!(leb128_decode(&[]), None);
        assert_eq!(leb128_decode(&[0x80, 0x80]), None);
        assert_eq!(leb128_decode(&[0xff, 0xff, 0xff, 0xff, 0x7f]), None, "more than 32 bits");
        assert_eq!(DocKey::from_prefixed(&[0x80]), None);
    }
}
