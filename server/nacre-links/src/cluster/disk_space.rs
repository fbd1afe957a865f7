//! Lets decisions wait for disk space while the disk is full.
//!
//! Raft stops permanently when its store fails, until the process restarts. A full disk is a temporary failure that
//! writes nothing: proposers receive an error, the other nodes continue, and this node rejoins them once there is
//! space.

use super::machine::Waiting;
use nacre_node::Error;
use nacre_store::Error as StoreError;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Pause before a retry.
const PAUSE: Duration = Duration::from_millis(200);

/// Message about a full disk.
const NO_SPACE: &str = "the disk of this node has no space left: free some";

/// Message about changes while a write waits for space.
const NO_ROOM: &str =
    "this node cannot write to its disk for the time being: it has no space or no descriptors left";

/// The wait of a Raft for disk space.
#[derive(Default)]
pub struct DiskSpaceWait {
    waiting: Waiting,
    /// True if the last write was refused for lack of space or descriptors.
    is_full: AtomicBool,
    is_over: AtomicBool,
}

impl DiskSpaceWait {
    /// Creates the wait of a Raft whose proposers are in `waiting`.
    pub fn new(waiting: Waiting) -> DiskSpaceWait {
        DiskSpaceWait { waiting, ..DiskSpaceWait::default() }
    }

    /// Checks that proposals are allowed.
    ///
    /// # Errors
    /// [`Error::Unavailable`] while a write waits for space.
    pub fn check(&self) -> Result<(), Error> {
        match self.is_full.load(Ordering::Relaxed) {
            true => Err(Error::Unavailable(format!("{NO_ROOM}; nothing was changed"))),
            false => Ok(()),
        }
    }

    /// Ends the wait even without space.
    pub fn give_up(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    /// Returns true after [`DiskSpaceWait::give_up`].
    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// Repeats `write` while the disk is full, and reports that to the proposers. Blocks.
    ///
    /// # Errors
    /// The error of the last attempt.
    pub fn wait<T>(&self, mut write: impl FnMut() -> Result<T, Error>) -> Result<T, Error> {
        loop {
            let outcome = write();
            let is_full = matches!(&outcome, Err(Error::Store(error)) if error.is_temporary());
            let was_full = self.is_full.swap(is_full, Ordering::Relaxed);
            if is_full && !was_full {
                let reason = match &outcome {
                    Err(Error::Store(error @ StoreError::Exhausted { .. })) => error.to_string(),
                    _ => NO_SPACE.to_owned(),
                };
                tracing::error!("{reason}: agreed changes wait on this node until then");
                let reason = format!("{reason}; the change may still be made");
                self.waiting.report_to_all(|| Err(Error::Unavailable(reason.clone())));
            }
            if !is_full || self.is_over() {
                return outcome;
            }
            std::thread::sleep(PAUSE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crossbeam_channel::bounded;

    #[test]
    fn writes_without_space_are_retried_and_other_failures_are_not() {
        let (waiting, (told, hears)) = (Waiting::default(), bounded(1));
        waiting.insert(1, told);
        let disk_space = DiskSpaceWait::new(waiting);
        let mut left = 3;
        let outcome = disk_space.wait(|| {
            assert_eq!(disk_space.check().is_err(), left < 3);
            left -= 1;
            if left > 0 { Err(StoreError::Full.into()) } else { Ok(left) }
        });
        assert!(matches!(outcome, Ok(0)) && disk_space.check().is_ok());
        let told = hears.try_recv().unwrap().unwrap_err().to_string();
        assert!(told.contains("no space left"), "{told}");
        let mut tries = 0;
        let mut damaged = || {
            tries += 1;
            Err::<(), _>(StoreError::Damaged { path: "a".into(), what: "b".into() }.into())
        };
        assert!(disk_space.wait(&mut damaged).is_err() && tries == 1);
    }

    #[test]
    fn a_stopping_node_does_not_wait_for_space() {
        let disk_space = DiskSpaceWait::default();
        disk_space.give_up();
        assert!(disk_space.wait(|| Err::<(), _>(StoreError::Full.into())).is_err());
    }
}
