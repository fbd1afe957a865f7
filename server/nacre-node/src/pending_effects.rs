//! Effects of decisions that this node could not carry out, for instance because its disk was full. They are retried
//! until they succeed.
//!
//! A comparison with the agreed state finds them: a bucket that does not serve is opened, and a store without a bucket
//! is removed.

use crate::Error;
use crate::agreement::write;
use crate::effects::{open_bucket, remove_store};
use crate::node::{Node, row};
use nacre_bucket::{Next, Signal, Task, Waiter};
use nacre_cluster::Bucket;
use nacre_store::Write;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Pause before the next try.
const PAUSE: Duration = Duration::from_secs(2);

/// Returns the row that records the store of a bucket.
pub(crate) fn created_row(config: &Bucket) -> Vec<u8> {
    let identity = format!("{}-{}", config.uuid, config.flushes);
    [row::CREATED, identity.as_bytes()].concat()
}

/// Returns the write that records a store, with the data that is needed to find the store once the bucket is dropped.
pub(crate) fn made(config: &Bucket) -> Write {
    let (indexes, design_documents) = (Vec::new(), BTreeMap::new());
    let bare = Bucket { chains: Vec::new(), indexes, design_documents, ..config.clone() };
    write(&created_row(config), &bare)
}

/// Records the first failure of several steps that are all carried out.
pub(crate) fn keep_first_error(outcome: &mut Result<(), Error>, done: Result<(), Error>) {
    if outcome.is_ok() {
        *outcome = done;
    }
}

/// Schedules a retry. The caller holds the lock on changes.
pub(crate) fn schedule_retry(node: &Arc<Node>) {
    if !node.has_pending_effects.swap(true, Ordering::AcqRel) {
        let signal = Arc::new(Signal::default());
        // The signal is woken when the node stops.
        node.watch_map(&(Arc::clone(&signal) as Arc<dyn Waiter>));
        let last_error = String::new();
        let task = PendingEffectsTask { node: Arc::downgrade(node), signal, due: 0, last_error };
        node.platform.spawn(Box::new(task));
    }
}

/// Carries out the effects that are still missing.
fn retry_effects(node: &Arc<Node>) -> Result<(), Error> {
    let _changing = node.changing.lock();
    let outcome = apply_pending_effects(node, &node.settings.load()?.into_iter().collect());
    if outcome.is_ok() {
        node.has_pending_effects.store(false, Ordering::Release);
    }
    outcome
}

/// Carries out missing effects, given the rows that the node has stored. The caller holds the lock on changes.
pub(crate) fn apply_pending_effects(
    node: &Arc<Node>,
    rows: &BTreeMap<Vec<u8>, Vec<u8>>,
) -> Result<(), Error> {
    let cluster = node.cluster();
    let mut outcome = Ok(());
    for (row, stored) in rows.iter().filter(|(row, _)| row.starts_with(row::CREATED)) {
        let is_agreed = cluster.buckets.values().any(|bucket| created_row(bucket) == *row);
        // Rows of earlier versions do not name their store.
        if let (false, Ok(config)) = (is_agreed, serde_json::from_slice(stored)) {
            keep_first_error(&mut outcome, remove_store(node, &config));
        }
    }
    for config in cluster.buckets.values() {
        if node.bucket(&config.name).is_none() && !node.damaged.contains(config) {
            let is_made = rows.contains_key(&created_row(config));
            // Other nodes may have replaced its copies by now: it serves only once it is asked to again.
            keep_first_error(&mut outcome, open_bucket(node, config, is_made, false));
        }
    }
    node.follow();
    outcome
}

/// The task that retries missing effects.
struct PendingEffectsTask {
    node: Weak<Node>,
    signal: Arc<Signal>,
    /// Time of the next try, in monotonic nanoseconds; 0 before the first failure.
    due: u64,
    /// The last error, so that it is logged once.
    last_error: String,
}

impl Task for PendingEffectsTask {
    fn name(&self) -> &'static str {
        "pending-effects"
    }

    fn is_background(&self) -> bool {
        false
    }

    fn is_vital(&self) -> bool {
        false
    }

    fn step(&mut self) -> Next {
        let Some(node) = self.node.upgrade() else { return Next::Done };
        if node.is_stopping() {
            return Next::Done;
        }
        let now = node.now().monotonic_ns;
        if now >= self.due {
            self.due = now + PAUSE.as_nanos() as u64;
            match retry_effects(&node) {
                Ok(()) => {
                    tracing::info!("all pending changes are applied on this node");
                    return Next::Done;
                }
                Err(error) => {
                    let reason = error.to_string();
                    if self.last_error != reason {
                        tracing::warn!("cannot apply an agreed change, retrying: {reason}");
                        self.last_error = reason;
                    }
                }
            }
        }
        Next::After(Duration::from_nanos(self.due.saturating_sub(now)))
    }

    fn signal(&self) -> &Signal {
        &self.signal
    }
}
