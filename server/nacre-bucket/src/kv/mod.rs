//! The key-value protocol of one connection without its socket: bytes in, bytes out.

mod admin;
mod dcp;
mod document;
mod durability;
mod env;
mod error_map;
mod lookahead;
mod memory;
mod rights;
mod scan;
mod session;
mod slow;
mod snappy;
mod stats;
mod status;

pub use dcp::read_begun;
pub use env::KvEnv;
pub use memory::FREE_BYTES;
pub use session::{Next, Peer, Session, ZeroCopyBody};
pub use snappy::plain;
