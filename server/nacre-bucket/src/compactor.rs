//! The compactor of a bucket: frees the space of superseded versions in the store.

use crate::bucket::Bucket;
use crate::{Next, Signal, Task};
use nacre_store::Store;
use std::sync::Arc;
use std::time::Duration;

/// Interval at which the compactor checks the store.
const INTERVAL: Duration = Duration::from_secs(5);
/// Default share of dead bytes above which a part of the store is rewritten, in percent.
pub const FRAGMENTATION_PERCENT: u8 = 40;

pub(crate) struct Compactor {
    bucket: Arc<Bucket>,
    store: Arc<dyn Store>,
    signal: Signal,
}

impl Compactor {
    pub fn new(bucket: Arc<Bucket>, store: Arc<dyn Store>) -> Compactor {
        let signal = bucket.compactor.clone();
        Compactor { bucket, store, signal }
    }
}

impl Task for Compactor {
    fn name(&self) -> &'static str {
        "compactor"
    }

    fn is_background(&self) -> bool {
        false
    }

    fn step(&mut self) -> Next {
        if self.bucket.is_closed() {
            return Next::Done;
        }
        let asked = self.bucket.compaction_asked();
        let percent = self.bucket.fragmentation_percent().unwrap_or(FRAGMENTATION_PERCENT);
        match self.store.compact(if asked { 1 } else { percent }) {
            Ok(0) => {
                self.bucket.end_compaction();
                Next::After(INTERVAL)
            }
            Ok(_) => Next::Again,
            Err(error) => {
                tracing::warn!("bucket {}: cannot compact: {error}", self.bucket.name);
                self.bucket.end_compaction();
                Next::After(INTERVAL)
            }
        }
    }

    fn signal(&self) -> &Signal {
        &self.signal
    }
}
