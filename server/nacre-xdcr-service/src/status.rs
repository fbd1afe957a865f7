//! What a node knows about a replication, and the sum over all nodes.

use nacre_xdcr::Counts;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// Errors that are remembered, at most. Source: Couchbase.
const ERRORS_MAX: usize = 10;

/// What a replication does on a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Activity {
    /// It rests, as it was asked to.
    Paused,
    /// It runs, or has nothing to do on this node.
    Running,
    /// It should run and cannot, or something of it still runs that should rest.
    #[default]
    NotRunning,
}

/// Sums of [`Counts`] over pipelines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Sums {
    /// Versions read from history.
    pub received: u64,
    /// Of them, those that do not go.
    pub filtered: u64,
    /// Versions that were looked up at the target first.
    pub looked_up: u64,
    /// Versions that were not sent, as the target has them or one that stays.
    pub kept_at_source: u64,
    /// Versions that were sent, each time.
    pub sent: u64,
    /// Versions that the target has taken.
    pub stored: u64,
    /// Versions that the target did not take.
    pub kept_at_target: u64,
    /// Versions that are done, in whatever way.
    pub done: u64,
    /// Times that a version had to be sent or looked up again.
    pub retried: u64,
    /// Checkpoints.
    pub checkpoints: u64,
    /// Copies of versions that go to several collections, without the first one each.
    #[serde(default)]
    pub cloned: u64,
    /// Conflicts that were found on the way to a log.
    pub conflicts: u64,
    /// Of these, conflicts whose version went on before the log had answered.
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

/// Documents that are listed, at most.
pub(crate) const LISTED_MAX: usize = 100;

/// A document that was put aside.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StuckDocument {
    /// Scope and collection at the source.
    pub collection: String,
    /// Key.
    pub key: String,
    /// Why.
    pub reason: String,
}

/// What a node, or all of them, know about a replication.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Status {
    /// What it does.
    pub activity: Activity,
    /// Counters since the start of the node.
    pub sums: Sums,
    /// Versions in the source's history that are not done.
    pub changes_left: u64,
    /// Versions that were put aside.
    pub stuck: u64,
    /// The first [`LISTED_MAX`] documents of these.
    pub stuck_documents: Vec<StuckDocument>,
    /// Times that a vBucket of the target was looked for elsewhere.
    pub reroutes: u64,
    /// Conflicts that are in a log.
    pub logged: u64,
    /// Conflicts that a log could not take.
    pub not_logged: u64,
    /// Bytes on their way to the target.
    pub window_bytes: u64,
    /// Second and text of the last errors, newest first.
    pub errors: VecDeque<(u32, String)>,
}

impl Status {
    /// Notes an error. One that is the same as the last one takes its place.
    pub fn note(&mut self, unix_s: u32, text: String) {
        if self.errors.front().is_some_and(|(_, last)| *last == text) {
            self.errors.pop_front();
        }
        self.errors.push_front((unix_s, text));
        self.errors.truncate(ERRORS_MAX);
    }

    /// Adds what another node knows.
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
    fn a_replication_runs_where_it_runs_on_all_nodes() {
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
