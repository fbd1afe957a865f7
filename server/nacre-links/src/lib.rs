//! A node's links to the real world, except its REST interface.
//!
//! [`platform::SystemPlatform`] is the platform of a node: system clocks, a data directory, a thread per task. [`cluster`] forms
//! a cluster of several nodes, [`tls`] encrypts connections and authenticates their peers, [`kv`] serves the key-value protocol,
//! and [`strangers`] limits unauthenticated connections. Process-wide properties are requested from a [`process::Process`].
//!
//! *Invariants:* this crate knows no service; the caller that opens a node chooses its services. It installs no panic hook,
//! signal handler, allocator or logger.
#![expect(
    clippy::disallowed_methods,
    reason = "this crate is the node's real world: clock, chance, files, sockets"
)]

pub mod audit;
mod capsules;
pub mod cluster;
pub mod data_dir;
mod http_out;
pub mod kv;
pub mod log_collection;
pub mod platform;
pub mod process;
pub mod records;
mod sealed;
pub mod tls;
pub mod vital;

pub use nacre_http::strangers;

/// Pause of a listener after a failed accept.
pub const ACCEPT_PAUSE: std::time::Duration = std::time::Duration::from_millis(50);
/// Stack size of threads that call plugins, in bytes. 5 MiB are for the plugins, see `RED_ZONE_BYTES` of nacre-sandbox. With
/// less, each call would map and unmap a separate stack, which stalls all threads of the process.
pub const STACK_BYTES: usize = 8 << 20;
