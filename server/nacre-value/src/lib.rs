//! JSON documents: validation, sub-document paths and operations, extended attributes.
//!
//! Everything here is a function from bytes to bytes. A document stays the text its client wrote: an operation finds
//! its place by scanning and edits that place alone, so `{"a" : 1.0}` with `b` added is `{"a" : 1.0,"b":2}`.
//!
//! - [`json`] decides whether bytes are JSON (each write asks).
//! - [`path`] reads sub-document paths: `orders[-1].total`.
//! - [`subdoc`] is one operation on one text.
//! - [`xattr`] is the section of extended attributes that a stored value may start with.
//! - [`multi`] is a request of up to sixteen operations on a document with its attributes, all or nothing.
//!
//! The crate knows no vBucket, CAS check or wire status: callers map [`Error`] with one `match`.

mod crc32c;
mod error;
pub mod json;
pub mod multi;
pub mod path;
pub mod subdoc;
pub mod xattr;

pub use crc32c::crc32c;
pub use error::Error;
