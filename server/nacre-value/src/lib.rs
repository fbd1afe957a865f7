//! JSON documents: validation, sub-document paths and operations, extended attributes.
//!
//! Everything here is a function from bytes to bytes. A document remains the text that its client wrote: an
//! operation finds its position by scanning and edits only that position, so `{"a" : 1.0}` with `b` added is `{"a" :
//! 1.0,"b":2}`.
//!
//! - [`json`] decides whether bytes are JSON (each write asks).
//! - [`path`] parses sub-document paths: `orders[-1].total`.
//! - [`subdoc`] applies one operation to one text.
//! - [`xattr`] handles the section of extended attributes that a stored value may start with.
//! - [`multi`] applies a request of up to sixteen operations to a document with its attributes, all or nothing.
//!
//! The crate has no vBuckets, CAS checks or wire statuses: callers map [`Error`] with one `match`.

mod crc32c;
mod error;
pub mod json;
pub mod multi;
pub mod path;
pub mod subdoc;
pub mod xattr;

pub use crc32c::crc32c;
pub use error::Error;
