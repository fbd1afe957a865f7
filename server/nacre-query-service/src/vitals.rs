//! Counts of requests since the node started.

use nacre_node::Node;
use nacre_node::service::{Metric, MetricKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of `/admin/vitals` and `/admin/stats`.
#[derive(Debug, Default)]
pub struct Vitals {
    begun: AtomicU64,
    ended: AtomicU64,
    /// Requests that a limit of the sandbox has ended.
    failed: AtomicU64,
    elapsed_ns: AtomicU64,
    index_touches: AtomicU64,
    document_touches: AtomicU64,
}

impl Vitals {
    /// Counts requests for index entries.
    pub(super) fn add_index_touches(&self, count: usize) {
        self.index_touches.fetch_add(count as u64, Ordering::Relaxed);
    }

    /// Counts requests for documents.
    pub(super) fn add_document_touches(&self, count: usize) {
        self.document_touches.fetch_add(count as u64, Ordering::Relaxed);
    }

    /// Returns the counters as metrics.
    pub(super) fn metrics(&self) -> Vec<Metric> {
        let metric = |name, help, counter: &AtomicU64| {
            let value = counter.load(Ordering::Relaxed);
            Metric { name, help, kind: MetricKind::Counter, value }
        };
        // Couchbase's names, for its dashboards. There, counters have no `_total`.
        let couchbase = |name, help, value| Metric { name, help, kind: MetricKind::Gauge, value };
        let (begun, ended) = (self.begun(), self.ended());
        let active = begun.saturating_sub(ended);
        vec![
            couchbase("n1ql_requests", "Requests that have ended since the start", ended),
            couchbase("n1ql_active_requests", "Requests that are being executed", active),
            couchbase("n1ql_request_time", "Nanoseconds that requests took", self.elapsed_ns()),
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

    /// Returns the number of requests that have begun.
    pub fn begun(&self) -> u64 {
        self.begun.load(Ordering::Relaxed)
    }

    /// Returns the number of requests that have ended.
    pub fn ended(&self) -> u64 {
        self.ended.load(Ordering::Relaxed)
    }

    /// Returns the number of requests that a limit of the sandbox has ended.
    pub fn failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }

    /// Returns the total time of ended requests, in nanoseconds.
    pub fn elapsed_ns(&self) -> u64 {
        self.elapsed_ns.load(Ordering::Relaxed)
    }
}

/// A request that is counted as running.
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
