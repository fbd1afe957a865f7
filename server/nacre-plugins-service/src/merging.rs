//! Merges segments of a state outside of its feed.

use nacre_bucket::{Next, Signal, Task};
use nacre_node::Platform;
use nacre_state::{BlockCache, MergeJob, Segmenting};
use std::sync::Arc;

/// Merges several segments into one.
struct MergeTask {
    job: MergeJob,
    signal: Signal,
}

impl Task for MergeTask {
    fn name(&self) -> &'static str {
        "merge"
    }

    fn is_background(&self) -> bool {
        true
    }

    fn is_vital(&self) -> bool {
        false
    }

    fn step(&mut self) -> Next {
        if self.job.step() { Next::Done } else { Next::Again }
    }

    fn signal(&self) -> &Signal {
        &self.signal
    }
}

/// Returns the options of segmented states.
pub(super) fn segmenting(
    platform: &Arc<dyn Platform>,
    cache: &BlockCache,
    flush_bytes: usize,
) -> Segmenting {
    let platform = Arc::downgrade(platform);
    let aside = move |job| {
        // A node that stops needs no merge; the merge starts again after the next flush.
        if let Some(platform) = platform.upgrade() {
            platform.spawn(Box::new(MergeTask { job, signal: Signal::default() }));
        }
    };
    Segmenting { cache: cache.clone(), flush_bytes, aside: Arc::new(aside) }
}
