//! A gateway at the edge: a database in a folder ([`nacre`]), which programs reach over HTTP, in one small binary without a cluster.
//!
//! ```text
//! programs ─► HTTP: door ─► endpoints, documents ─► Db (folder) ◄─ sync ─► a bucket of a cluster   with an upstream
//! devices  ─► /_sync/default: devices ───────────────┘                                            without one
//! programs ─► /default/_design/…: views ◄─ changes ──┘
//! ```
//!
//! Paths, statuses and errors are those of a node (`/api/v1`, `/health`, `/_sync/default`), so that a program written for one works with the
//! other; the checks are the same code (nacre-http).
//!
//! Invariants:
//! - without a login the gateway listens on addresses of this machine only ([`Options::check`]);
//! - a handler runs only after its right was checked, and requests of pages of other sites reach none;
//! - a gateway that is in step with a cluster is no hub of devices, because what it takes from them would not be sent on;
//! - memory of requests, the number of connections and the time of each body have limits.
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

/// How long requests that are under way may go on once the gateway stops.
const GRACE: Duration = Duration::from_secs(5);
/// Threads that serve connections.
const THREADS: usize = 2;
/// Threads that read and write documents, at most. They end when they are idle.
const WORKERS_MAX: usize = 16;

/// Runs a gateway until the future that `stop` makes is ready. `ready` is called with the address once it takes connections.
///
/// # Errors
/// Why it could not start, or could not store everything at the end.
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
        // Nothing is sent: it ends with the last connection.
        let _ = tokio::time::timeout(GRACE, open.recv()).await;
        Ok(())
    });
    gateway.stop();
    runtime.shutdown_timeout(GRACE);
    served.and(gateway.close())
}
