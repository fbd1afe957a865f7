//! The rows of a bucket in an ordered key-value engine. The first byte is the kind of row.
//!
//! ```text
//! 00 "format"           → 2
//! 00 "commits"          → number of the last commit, u64
//! 01 vb:u16 key         → the newest version of the key
//! 02 vb:u16 seqno:u64   → key: the history in order
//! 03 vb:u16             → the vBucket's record
//! ```

use nacre_types::Vbid;

/// Version of the layout above and of the rows' contents.
pub(crate) const FORMAT: u32 = 2;

pub(crate) const META: u8 = 0;
pub(crate) const BY_KEY: u8 = 1;
pub(crate) const BY_SEQNO: u8 = 2;
pub(crate) const RECORD: u8 = 3;

pub(crate) fn row(kind: u8, vbid: Vbid, rest: &[u8]) -> Vec<u8> {
    let [high, low] = vbid.0.to_be_bytes();
    [&[kind, high, low], rest].concat()
}

pub(crate) fn meta_row(name: &str) -> Vec<u8> {
    [&[META], name.as_bytes()].concat()
}

/// Returns the vBucket of a row.
pub(crate) fn vbid_of(row: &[u8]) -> Option<Vbid> {
    Some(Vbid(u16::from_be_bytes(row.get(1..3)?.try_into().ok()?)))
}

/// Formats a key for messages.
pub(crate) fn shown(key: &[u8]) -> String {
    format!("{:?}", String::from_utf8_lossy(key.get(1..).unwrap_or(key)))
}
