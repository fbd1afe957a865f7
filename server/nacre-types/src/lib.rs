//! Shared vocabulary: identifiers, seqnos, CAS, documents and their metadata.
//!
//! All arrows of the crate graph end at this crate. It contains values and the rules that belong to a value
//! alone (the vBucket that a key hashes to, the layout of a CAS, the time at which a document expires). It
//! contains no state machine, no wire format and no I/O.

mod document;
mod history;
mod id;
mod key;
mod name;
mod time;
mod vbids;

pub use document::{
    DATATYPE_JSON, DATATYPE_LEVEL_SHIFT, DATATYPE_SNAPPY, DATATYPE_XATTR, Document, Kind, Meta,
};
pub use history::{FailoverLog, VbRecord, VbState};
pub use id::{Cas, CollectionId, NodeId, ParseHexError, ScopeId, Seqno, VbUuid, Vbid};
pub use key::{DocKey, KEY_BYTES_MAX, leb128_decode, leb128_encode, name_bytes_max, write_key};
pub use name::{PLUGIN_NAME_BYTES_MAX, check_plain_name};
pub use time::{Expiry, Now};
pub use vbids::Vbids;

/// The largest document body a client may store, in bytes (20 MiB).
pub const VALUE_BYTES_MAX: usize = 20 * 1024 * 1024;

/// The largest extended-attribute section of a document, in bytes (1 MiB, inside the value limit).
pub const XATTR_BYTES_MAX: usize = 1024 * 1024;

const _: () = assert!(XATTR_BYTES_MAX < VALUE_BYTES_MAX);
