//! Identifiers and counters. Each has its own type, so that they cannot be confused.

use crate::leb128_decode;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The number of a vBucket within its bucket, 0..=1023.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Vbid(pub u16);

impl Vbid {
    /// Returns the vBucket, out of `count`, of a key. `name` is the key without its collection prefix.
    ///
    /// `count` is 1..=1024. Source: the hash that all smart clients use, `(crc32(key) >> 16) & 0x7fff mod count`.
    pub fn of(name: &[u8], count: u16) -> Vbid {
        let hash = (crc32fast::hash(name) >> 16) & 0x7fff;
        Vbid((hash % u32::from(count)) as u16)
    }

    /// Returns the index of this vBucket in a table of all vBuckets.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

impl fmt::Display for Vbid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "vb:{}", self.0)
    }
}

/// A node of the cluster, numbered from 1 in the order of joining. No number is used twice.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct NodeId(pub u64);

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {}", self.0)
    }
}

/// The position of a mutation in its vBucket's history: 1, 2, 3, …; 0 means before the first mutation.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Seqno(pub u64);

impl Seqno {
    /// The position before the first mutation.
    pub const ZERO: Seqno = Seqno(0);

    /// Returns the next seqno.
    #[must_use]
    pub fn next(self) -> Seqno {
        Seqno(self.0 + 1)
    }
}

impl fmt::Display for Seqno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The version of a document that clients see and compare: a hybrid logical clock.
///
/// The upper 48 bits are wall-clock nanoseconds with the low 16 bits cleared; the lower 16 bits are a counter. 0 means
/// "any version" in a request, and is never the CAS of a document.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Cas(pub u64);

impl Cas {
    /// "Any version" in a request.
    pub const ANY: Cas = Cas(0);

    /// CAS that readers see for a locked document, so that they cannot learn the real one.
    pub const LOCKED: Cas = Cas(u64::MAX);

    /// Returns the CAS after `self` at wall-clock time `unix_ns`: strictly greater, and close to the clock.
    #[must_use]
    pub fn tick(self, unix_ns: u64) -> Cas {
        let wall = unix_ns & !0xffff;
        if wall > self.0 { Cas(wall) } else { Cas(self.0 + 1) }
    }

    /// Returns the wall-clock part, in nanoseconds since the Unix epoch.
    pub fn unix_ns(self) -> u64 {
        self.0 & !0xffff
    }
}

/// The identity of one branch of a vBucket's history; random, never 0.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct VbUuid(pub u64);

impl VbUuid {
    /// Creates a UUID from the upper 48 of 64 random bits, because JavaScript clients read it as a number. The lowest
    /// bit is always 1.
    pub fn of_random(bits: u64) -> VbUuid {
        VbUuid(bits >> 16 | 1)
    }
}

/// The number of a collection: 0 is `_default`, 1..=7 are reserved, user collections start at 8. Written in
/// hexadecimal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CollectionId(pub u32);

impl CollectionId {
    /// `_default._default`, the collection of keys without a collection.
    pub const DEFAULT: CollectionId = CollectionId(0);

    /// Collection of scope and collection events in history. It never contains a client's key.
    pub const SYSTEM: CollectionId = CollectionId(1);

    /// Collection of durable writes that are not committed yet. Each has the document's own key (with its collection
    /// prefix) as its name, so that it can be stored next to the committed version.
    pub const PREPARED: CollectionId = CollectionId(2);

    /// Returns the collection of a prefixed key.
    pub fn of_key(key: &[u8]) -> CollectionId {
        CollectionId(leb128_decode(key).map_or(0, |(id, _)| id))
    }

    /// Returns true if the collection contains documents of clients.
    pub fn holds_documents(self) -> bool {
        self == CollectionId::DEFAULT || self.0 >= 8
    }
}

/// The number of a scope: 0 is `_default`, user scopes start at 8. Written in hexadecimal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ScopeId(pub u32);

/// The error for text that is not a hexadecimal identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParseHexError;

impl fmt::Display for ParseHexError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("expected a hexadecimal number such as \"a\" or \"1f\"")
    }
}

impl std::error::Error for ParseHexError {}

macro_rules! hex_id {
    ($type:ident) => {
        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:x}", self.0)
            }
        }

        impl std::str::FromStr for $type {
            type Err = ParseHexError;

            fn from_str(text: &str) -> Result<$type, ParseHexError> {
                u32::from_str_radix(text.trim_start_matches("0x"), 16)
                    .map($type)
                    .map_err(|_| ParseHexError)
            }
        }
    };
}

hex_id!(CollectionId);
hex_id!(ScopeId);

#[cfg(test)]
mod tests {
    use super::*;

    /// Values observed between an official client and a server with 1024 vBuckets.
    #[test]
    fn keys_hash_to_the_vbuckets_that_smart_clients_expect() {
        for (key, vbid) in
            [("k1", 526), ("k2", 775), ("g1", 699), ("raw", 691), ("kd", 271), ("cnt", 454)]
        {
            assert_eq!(Vbid::of(key.as_bytes(), 1024), Vbid(vbid), "{key}");
        }
    }

    #[test]
    fn cas_grows_when_the_clock_stops_or_steps_back() {
        let first = Cas::ANY.tick(5 << 16);
        let second = first.tick(5 << 16);
        let third = second.tick(1 << 16);
        assert_eq!(first, Cas(5 << 16));
        assert!(first < second && second < third);
        assert_eq!(third.tick(9 << 16), Cas(9 << 16));
    }
}
