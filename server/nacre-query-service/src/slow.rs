//! Slow statements, for the log of slow operations.

use super::requester::Requester;
use nacre_bucket::{SlowOperation, SlowService};
use nacre_node::Node;
use serde_json::Value;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Times of a request, in monotonic nanoseconds.
pub(super) struct RequestTimes {
    /// The time of arrival.
    begun_ns: u64,
    /// The time when the first rows were available; 0 before that.
    answered_ns: AtomicU64,
}

impl RequestTimes {
    /// Creates the times of a request that arrives now.
    pub fn begin(node: &Node) -> RequestTimes {
        RequestTimes { begun_ns: node.now().monotonic_ns, answered_ns: AtomicU64::new(0) }
    }

    /// Records that the first rows of the answer are available.
    pub fn mark_answered(&self, node: &Node) {
        self.answered_ns.store(node.now().monotonic_ns, Ordering::Relaxed);
    }

    /// Logs a request at its end if it was slow. `description` is JSON that the instance recorded when the request
    /// began.
    pub fn note_slow(&self, requester: &Requester, description: &[u8]) {
        let now = requester.node.now();
        let elapsed_ns = now.monotonic_ns.saturating_sub(self.begun_ns);
        let log = requester.node.slow_log();
        if !log.is_slow(SlowService::Query, elapsed_ns) {
            return;
        }
        let described: Value = serde_json::from_slice(description).unwrap_or_default();
        let text = |member: &str| described[member].as_str().unwrap_or_default().to_owned();
        let statement = match text("statement") {
            statement if statement.is_empty() => text("preparedName"),
            statement => statement,
        };
        let answered_ns = self.answered_ns.load(Ordering::Relaxed);
        let operation = SlowOperation {
            service: SlowService::Query,
            operation: format!("statement {}", text("requestId")),
            bucket: String::new(),
            target: statement,
            user: requester.user.clone(),
            elapsed: Duration::from_nanos(elapsed_ns),
            spent: spent(self.begun_ns, answered_ns, now.monotonic_ns),
            unix_ms: 0,
        };
        log.note(operation, now);
    }
}

/// Splits the time of a request at its first rows; a request that ended before has only one part.
fn spent(begun_ns: u64, answered_ns: u64, ended_ns: u64) -> Vec<(&'static str, Duration)> {
    let between = |from: u64, to: u64| Duration::from_nanos(to.saturating_sub(from));
    match answered_ns {
        0 => vec![("until it failed", between(begun_ns, ended_ns))],
        answered_ns => vec![
            ("until the first rows", between(begun_ns, answered_ns)),
            ("until the client had all", between(answered_ns, ended_ns)),
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_is_split_at_the_first_rows() {
        let ms = |ns: u64| Duration::from_nanos(ns);
        assert_eq!(spent(10, 0, 15), [("until it failed", ms(5))]);
        let parts = [("until the first rows", ms(2)), ("until the client had all", ms(3))];
        assert_eq!(spent(10, 12, 15), parts);
    }
}
