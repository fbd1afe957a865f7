//! An edge gateway: a database in a folder ([`nacre`]) that programs access over HTTP, in one small binary without a cluster.
//!
//! ```text
//! programs ─► HTTP: door ─► endpoints, documents ─► Db (folder) ◄─ sync ─► a bucket of a cluster   with an upstream
//! devices  ─► /_sync/default: devices ───────────────┘                                            without one
//! programs ─► /default/_design/…: views ─────────────┘
//! ```
//!
//! Paths, statuses and errors are those of a node (`/api/v1`, `/health`, `/_sync/default`), so that a program for one works with
//! the other. Both use the same code for the checks (nacre-http).
//!
//! Invariants:
//! - without a login the gateway listens only on addresses of this machine ([`Options::check`]);
//! - a handler runs only after its right was checked, and requests from pages of other sites reach no handler;
//! - a gateway that syncs with a cluster is not a hub of devices, because it would not send their versions on;
//! - memory of requests, the number of connections and the time for each body are limited.
#![expect(
    clippy::disallowed_methods,
    reason = "the gateway is its own environment: it listens, reads certificates and reads the clock"
)]

mod access;
mod devices;
mod documents;
mod door;
mod endpoints;
mod gateway;
mod options;
mod tokens;
#[cfg(feature = "views")]
mod views;

pub use options::Options;

use gateway::Gateway;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

/// Time limit for running requests after the gateway stops.
const GRACE: Duration = Duration::from_secs(5);
/// Threads that serve connections.
const THREADS: usize = 2;
/// Maximum number of threads that read and write documents. Idle threads end.
const WORKERS_MAX: usize = 16;

/// Runs a gateway until the future returned by `stop` is ready. Calls `ready` with the address once it accepts connections.
///
/// # Errors
/// The reason why it could not start, or could not store everything at the end.
pub fn run<F: Future<Output = ()>>(
    options: &Options,
    stop: impl FnOnce() -> io::Result<F>,
    ready: impl FnOnce(SocketAddr),
) -> Result<(), String> {
    options.check()?;
    let gateway = Gateway::open(options)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(THREADS)
        .max_blocking_threads(WORKERS_MAX)
        .thread_name("edge")
        .enable_all()
        .build()
        .map_err(|error| format!("start threads: {error}"))?;
    let served = runtime.block_on(async {
        let stop = stop().map_err(|error| format!("wait for signals: {error}"))?;
        let (address, mut open) = door::open(&gateway, options).await?;
        ready(address);
        stop.await;
        gateway.stop();
        // No value is sent: the channel closes with the last connection.
        let _ = tokio::time::timeout(GRACE, open.recv()).await;
        Ok(())
    });
    gateway.stop();
    runtime.shutdown_timeout(GRACE);
    served.and(gateway.close())
}
