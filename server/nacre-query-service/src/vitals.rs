//! Counts of requests, since the node started.

use nacre_node::Node;
use nacre_node::service::{Metric, MetricKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of `/admin/vitals` and `/admin/stats`.
#[derive(Debug, Default)]
pub struct Vitals {
    begun: AtomicU64,
    ended: AtomicU64,
    /// Ended by a limit of the sandbox.
    failed: AtomicU64,
    elapsed_ns: AtomicU64,
    index_touches: AtomicU64,
    document_touches: AtomicU64,
}

impl Vitals {
    /// Counts questions about entries of indexes.
    pub(super) fn add_index_touches(&self, count: usize) {
        self.index_touches.fetch_add(count as u64, Ordering::Relaxed);
    }

    /// Counts questions about documents.
    pub(super) fn add_document_touches(&self, count: usize) {
        self.document_touches.fetch_add(count as u64, Ordering::Relaxed);
    }

    /// Returns what the counters mean to an operator.
    pub(super) fn metrics(&self) -> Vec<Metric> {
        let metric = |name, help, counter: &AtomicU64| {
            let value = counter.load(Ordering::Relaxed);
            Metric { name, help, kind: MetricKind::Counter, value }
        };
        vec![
            metric(
                "query_index_touches",
                "Questions of queries about entries of indexes, each to one node, also to this one",
                &self.index_touches,
            ),
            metric(
                "query_document_touches",
                "Questions of queries about documents, each to one node, also to this one",
                &self.document_touches,
            ),
        ]
    }

    /// Requests that have been begun.
    pub fn begun(&self) -> u64 {
        self.begun.load(Ordering::Relaxed)
    }

    /// Requests that have ended.
    pub fn ended(&self) -> u64 {
        self.ended.load(Ordering::Relaxed)
    }

    /// Requests that a limit of the sandbox has ended.
    pub fn failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }

    /// Nanoseconds that the requests which have ended took in all.
    pub fn elapsed_ns(&self) -> u64 {
        self.elapsed_ns.load(Ordering::Relaxed)
    }
}

/// A request while it is counted as running.
pub struct Counted {
    node: Arc<Node>,
    vitals: Arc<Vitals>,
    begun_ns: u64,
}

impl Counted {
    pub fn new(node: &Arc<Node>, vitals: &Arc<Vitals>) -> Counted {
        vitals.begun.fetch_add(1, Ordering::Relaxed);
        let begun_ns = node.now().monotonic_ns;
        Counted { node: Arc::clone(node), vitals: Arc::clone(vitals), begun_ns }
    }

    pub fn fail(&self) {
        self.vitals.failed.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let elapsed_ns = self.node.now().monotonic_ns.saturating_sub(self.begun_ns);
        self.vitals.elapsed_ns.fetch_add(elapsed_ns, Ordering::Relaxed);
        self.vitals.ended.fetch_add(1, Ordering::Relaxed);
    }
}
