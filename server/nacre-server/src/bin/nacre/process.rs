//! The process of the binary: all of it is the node's.

use crate::{files, huge_pages, log, panic_hook, priority};
use nacre_server::{Priority, Process};
use std::io;
use tokio::signal::unix::{SignalKind, signal};

/// The process of `nacre serve` and `nacre dev`.
pub struct NodeProcess;

impl Process for NodeProcess {
    fn prepare(&self) -> u64 {
        huge_pages::keep_off();
        panic_hook::install();
        files::create_for_owner_alone();
        files::raise_limit()
    }

    fn prioritize(&self, priority: Priority) {
        priority::apply(priority);
    }
}

impl NodeProcess {
    /// Begins the process of a node, whose log has hashes in place of user data if it `redacts_log`. Must be called before the node
    /// runs.
    pub fn begin(redacts_log: bool) -> &'static NodeProcess {
        log::to_stderr(redacts_log);
        &NodeProcess
    }
}

/// Catches SIGINT and SIGTERM from now on. The future is ready when one of them has come.
///
/// # Errors
/// Fails when the system does not let the process catch them.
pub fn stop_signals() -> io::Result<impl Future<Output = ()>> {
    tokio::spawn(huge_pages::allow_when_large());
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}
