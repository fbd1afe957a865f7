//! The interface that a bucket requires of its embedder.

use crate::Task;
use nacre_types::Now;

/// The environment of a bucket: clocks, random numbers and threads. The embedder provides it; a test or a simulator steps the
/// tasks by hand.
pub trait BucketEnv: Send + Sync {
    /// Returns the wall clock and the monotonic clock.
    fn now(&self) -> Now;

    /// Returns an unpredictable number.
    fn random(&self) -> u64;

    /// Runs `task` until it is done, concurrently with other tasks.
    fn spawn(&self, task: Box<dyn Task>);
}
