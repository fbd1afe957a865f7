//! The memcached binary protocol: encoding and decoding of frames, opcodes, statuses.
//!
//! A frame is a 24-byte header and a body of four parts. All numbers are big-endian:
//!
//! ```text
//! offset  0      1       2..4        4              5         6..8             8..12        12..16  16..24
//!         magic  opcode  key length  extras length  datatype  vBucket/status   body length  opaque  CAS
//! body    framing extras | extras | key | value
//! ```
//!
//! With the *flexible* magics (0x08, 0x18), byte 2 is the length of the framing extras, and byte 3 is the length of the
//! key. This is a `GET` of the key `a` in the default collection, in vBucket 5 and with opaque 7:
//!
//! ```
//! use nacre_protocol::{Frame, Opcode, decode};
//! let bytes = [0x80, 0x00, 0, 2, 0, 0, 0, 5, 0, 0, 0, 2, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0x00, b'a'];
//! let (frame, length) = decode(&bytes).unwrap().unwrap();
//! assert_eq!((frame.opcode(), frame.vbid, frame.opaque, frame.key), (Some(Opcode::Get), 5, 7, &b"\0a"[..]));
//! assert_eq!(length, bytes.len());
//! ```
//!
//! Invariants: decoding never panics; [`decode`] never allocates and returns only complete frames; every length is
//! checked against [`BODY_BYTES_MAX`] before use. The crate does not interpret the *meaning* of a command.

pub mod dcp;
mod feature;
mod frame;
mod framing;
mod opcode;
pub mod replication;
mod reply;
mod request;
mod status;

pub use feature::{Feature, Features};
pub use frame::{
    BODY_BYTES_MAX, Frame, FrameError, Glance, HEADER_BYTES, Magic, announced_body_bytes, decode,
    glance, missing_bytes,
};
pub use framing::{FrameInfo, FramingError};
pub use opcode::Opcode;
pub use reply::{MapPush, Reply, Units, server_duration};
pub use request::{Request, SubdocSpec, parse, version_option};
pub use status::Status;
