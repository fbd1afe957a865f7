//! A node's links to the real world, without its REST interface.
//!
//! [`platform::SystemPlatform`] is the platform of a node: clocks of the machine, a data directory, a thread for each task. [`cluster`] makes
//! several nodes one, [`tls`] encrypts connections and recognises their ends, [`kv`] serves the key-value protocol, and
//! [`strangers`] bounds the connections of those who have not logged in. Properties of the process as a whole are requested
//! from a [`process::Process`].
//!
//! *Invariants:* this crate knows no service: whoever opens a node says with which ones. It installs no panic hook, signal handler,
//! allocator or log.
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

/// Pause of a listener after it could not accept a connection.
pub const ACCEPT_PAUSE: std::time::Duration = std::time::Duration::from_millis(50);
/// Stack of threads that call plugins, in bytes: 5 MiB are for these, see `RED_ZONE_BYTES` of nacre-sandbox. With less, each call
/// maps a stack of its own and gives it back, which all threads of the process have to wait for.
pub const STACK_BYTES: usize = 8 << 20;
