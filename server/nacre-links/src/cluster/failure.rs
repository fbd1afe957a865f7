//! Ends the process of a node whose Raft has failed. Otherwise the node would continue to serve with a map whose changes it does
//! not receive.
//!
//! Raft stops permanently when its store fails, other than for lack of [space](super::disk_space), or when it panics. After a restart
//! the node agrees with the others again, or reports why it cannot.

use super::disk_space::DiskSpaceWait;
use super::types::Metrics;
use openraft::error::Fatal;
use std::sync::Arc;
use tokio::sync::watch::Receiver;

/// Aborts the process (SIGABRT) once its Raft has failed.
pub async fn stop_node_on_failure(metrics: Receiver<Metrics>, disk_space: Arc<DiskSpaceWait>) {
    if let Some(error) = failure(metrics, &disk_space).await {
        tracing::error!(
            "stopping the node, it can no longer agree with others: {error}; stored data is available after a restart"
        );
        std::process::abort();
    }
}

/// Waits for the failure of a Raft and returns it; returns `None` for a Raft that was stopped.
async fn failure(mut metrics: Receiver<Metrics>, disk_space: &DiskSpaceWait) -> Option<Fatal<u64>> {
    let is_over = |metrics: &Metrics| metrics.running_state.is_err();
    let state = metrics.wait_for(is_over).await.ok()?.running_state.clone();
    // Stopping Raft also ends the wait for space, which then fails.
    state.err().filter(|error| *error != Fatal::Stopped && !disk_space.is_over())
}

#[cfg(test)]
mod tests {
    use super::*;
    use openraft::StorageIOError;
    use std::io;
    use tokio::runtime;
    use tokio::sync::watch;

    #[test]
    fn a_raft_that_panics_or_cannot_store_has_failed_and_one_that_stops_has_not() {
        let failure_of = |ends_with: Option<Fatal<u64>>, gives_up: bool| {
            let (says, metrics) = watch::channel(Metrics::new_initial(1));
            let disk_space = DiskSpaceWait::default();
            if gives_up {
                disk_space.give_up();
            }
            says.send_modify(|metrics| metrics.current_term = 2);
            if let Some(error) = ends_with {
                says.send_modify(|metrics| metrics.running_state = Err(error));
            }
            drop(says);
            let runtime = runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(failure(metrics, &disk_space))
        };
        assert_eq!(failure_of(None, false), None);
        assert_eq!(failure_of(Some(Fatal::Stopped), false), None);
        assert_eq!(failure_of(Some(Fatal::Panicked), false), Some(Fatal::Panicked));
        assert_eq!(failure_of(Some(Fatal::Panicked), true), None);
        let broken = StorageIOError::write_logs(&io::Error::other("broken"));
        let broken = Fatal::StorageError(broken.into());
        assert_eq!(failure_of(Some(broken.clone()), false), Some(broken));
    }
}
