//! Status of a replication on one node, and the sum over all nodes.

use nacre_xdcr::Counts;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// Maximum number of errors kept. Source: Couchbase.
const ERRORS_MAX: usize = 10;

/// Activity of a replication on a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Activity {
    /// The replication is paused by request.
    Paused,
    /// The replication runs, or has no work on this node.
    Running,
    /// The replication should run and cannot, or is still pausing.
    #[default]
    NotRunning,
}

/// Sums of [`Counts`] over pipelines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Sums {
    /// Versions read from history.
    pub received: u64,
    /// Versions received that the filter does not let through.
    pub filtered: u64,
    /// Versions looked up at the target before they were sent.
    pub looked_up: u64,
    /// Versions not sent because the target has the same or a winning version.
    pub kept_at_source: u64,
    /// Versions sent, including repetitions.
    pub sent: u64,
    /// Versions that the target stored.
    pub stored: u64,
    /// Versions that the target refused because its own version wins.
    pub kept_at_target: u64,
    /// Versions completed, with any outcome.
    pub done: u64,
    /// Retries of sending or looking up a version.
    pub retried: u64,
    /// Checkpoint records made.
    pub checkpoints: u64,
    /// Extra copies of versions that go to several collections; the first copy does not count.
    #[serde(default)]
    pub cloned: u64,
    /// Conflicts passed to the log.
    pub conflicts: u64,
    /// Logged conflicts whose version continued before the log answered.
    pub log_timeouts: u64,
}

impl Sums {
    /// Adds the counters of a pipeline.
    pub fn add(&mut self, counts: &Counts) {
        self.add_all(&Sums {
            received: counts.received,
            filtered: counts.filtered,
            looked_up: counts.looked_up,
            kept_at_source: counts.kept_at_source,
            sent: counts.sent,
            stored: counts.stored,
            kept_at_target: counts.kept_at_target,
            done: counts.done,
            retried: counts.retried,
            checkpoints: counts.checkpoints,
            cloned: counts.cloned,
            conflicts: counts.logged,
            log_timeouts: counts.log_timeouts,
        });
    }

    /// Adds other sums.
    pub fn add_all(&mut self, other: &Sums) {
        self.received += other.received;
        self.filtered += other.filtered;
        self.looked_up += other.looked_up;
        self.kept_at_source += other.kept_at_source;
        self.sent += other.sent;
        self.stored += other.stored;
        self.kept_at_target += other.kept_at_target;
        self.done += other.done;
        self.retried += other.retried;
        self.checkpoints += other.checkpoints;
        self.cloned += other.cloned;
        self.conflicts += other.conflicts;
        self.log_timeouts += other.log_timeouts;
    }
}

/// Maximum number of documents listed.
pub(crate) const LISTED_MAX: usize = 100;

/// A document that was put aside.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StuckDocument {
    /// Scope and collection at the source.
    pub collection: String,
    /// Key.
    pub key: String,
    /// The reason why it was put aside.
    pub reason: String,
}

/// Status of a replication on one node or on all nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Status {
    /// Activity.
    pub activity: Activity,
    /// Counters since the start of the node.
    pub sums: Sums,
    /// Versions in the source's history that are not done.
    pub changes_left: u64,
    /// Versions that were put aside.
    pub stuck: u64,
    /// The first [`LISTED_MAX`] of these documents.
    pub stuck_documents: Vec<StuckDocument>,
    /// Number of times that the current owner of a target vBucket had to be found.
    pub reroutes: u64,
    /// Conflicts that were logged.
    pub logged: u64,
    /// Conflicts that could not be logged.
    pub not_logged: u64,
    /// Bytes in flight to the target.
    pub window_bytes: u64,
    /// Unix second and text of the last errors, newest first.
    pub errors: VecDeque<(u32, String)>,
}

impl Status {
    /// Adds an error. An error equal to the newest one replaces it.
    pub fn note(&mut self, unix_s: u32, text: String) {
        if self.errors.front().is_some_and(|(_, last)| *last == text) {
            self.errors.pop_front();
        }
        self.errors.push_front((unix_s, text));
        self.errors.truncate(ERRORS_MAX);
    }

    /// Adds the status of another node.
    pub fn add(&mut self, other: &Status) {
        self.activity = self.activity.max(other.activity);
        self.sums.add_all(&other.sums);
        self.changes_left += other.changes_left;
        self.stuck += other.stuck;
        self.stuck_documents.extend_from_slice(&other.stuck_documents);
        self.stuck_documents.truncate(LISTED_MAX);
        self.reroutes += other.reroutes;
        self.logged += other.logged;
        self.not_logged += other.not_logged;
        self.window_bytes += other.window_bytes;
        let mut errors: Vec<_> = self.errors.iter().chain(&other.errors).cloned().collect();
        errors.sort_by(|left, right| right.cmp(left));
        errors.dedup_by(|left, right| left.1 == right.1);
        errors.truncate(ERRORS_MAX);
        self.errors = errors.into();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replication_runs_if_it_runs_on_all_nodes() {
        let status = |activity| Status { activity, ..Status::default() };
        let sum = |one, other| {
            let mut sum = status(one);
            sum.add(&status(other));
            sum.activity
        };
        use Activity::{NotRunning, Paused, Running};
        assert_eq!(sum(Running, NotRunning), NotRunning);
        assert_eq!(sum(Paused, Paused), Paused);
        assert_eq!(sum(Paused, Running), Running);
    }

    #[test]
    fn the_last_errors_are_remembered_without_repetitions() {
        let mut status = Status::default();
        (0..30).for_each(|second| status.note(second, format!("error {}", second / 2)));
        assert_eq!(status.errors.len(), ERRORS_MAX);
        assert_eq!(status.errors[0], (29, "error 14".to_owned()));
    }
}
