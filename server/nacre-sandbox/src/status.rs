//! The status of a partition.

use crate::{LOG_LINES_MAX, LogLine, Usage};
use nacre_types::{Seqno, Vbid};
use std::collections::{BTreeMap, VecDeque};

/// A document that user code could not process. It is omitted from the state, and the feed
/// continued.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DocumentError {
    /// The vBucket of the document.
    pub vbid: Vbid,
    /// The seqno.
    pub seqno: Seqno,
    /// The key without its collection.
    pub key: Vec<u8>,
    /// Message of the plugin.
    pub message: String,
}

/// A document that killed its instance and was skipped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetter {
    /// The vBucket of the document.
    pub vbid: Vbid,
    /// The seqno.
    pub seqno: Seqno,
    /// The key without its collection.
    pub key: Vec<u8>,
    /// The reason for the end of the instance.
    pub reason: String,
}

/// A timer that killed its instance and was removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadTimer {
    /// The name.
    pub name: String,
    /// Time at which it was due, in microseconds since the Unix epoch.
    pub due_us: u64,
    /// The reason for the end of the instance.
    pub reason: String,
}

/// The result of one batch of documents or of timers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Number of processed documents, including those with errors.
    pub documents: u64,
    /// Documents that could not be processed.
    pub errors: Vec<DocumentError>,
    /// Documents that were parked.
    pub dead_letters: Vec<DeadLetter>,
    /// Number of fired timers.
    pub timers: u64,
    /// Timers that were removed because they killed the plugin.
    pub dead_timers: Vec<DeadTimer>,
}

/// Counters and recent events of a partition since it was opened.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Status {
    /// Number of processed documents.
    pub documents: u64,
    /// Number of documents that could not be processed.
    pub errors: u64,
    /// The most recent of them.
    pub last_errors: VecDeque<DocumentError>,
    /// Number of parked documents.
    pub dead_letter_count: u64,
    /// The most recent of them.
    pub dead_letters: VecDeque<DeadLetter>,
    /// Number of fired timers.
    pub timers: u64,
    /// Number of timers that were removed because they killed the plugin.
    pub dead_timer_count: u64,
    /// The most recent of them.
    pub dead_timers: VecDeque<DeadTimer>,
    /// Calls that fold documents and timers into the state.
    pub writer: Usage,
    /// Calls that answer requests, and scans of an index.
    pub readers: Usage,
    /// Linear memory of all live instances, in bytes.
    pub memory_bytes: usize,
    /// Metrics that the plugin reports, by name.
    pub metrics: BTreeMap<String, f64>,
    /// Size of the state's keys, values and timers, in bytes.
    pub state_bytes: usize,
    /// Time at which the next timer is due, in microseconds since the Unix epoch.
    pub next_timer_us: Option<u64>,
    /// The last lines of the plugin's log.
    pub log: VecDeque<LogLine>,
    /// The reason why the partition is stopped, if it is.
    pub stopped: Option<String>,
}

/// Maximum number of recent events of each kind.
const KEPT: usize = 32;

impl Status {
    pub(crate) fn add(&mut self, report: &Report) {
        self.documents += report.documents;
        self.errors += report.errors.len() as u64;
        self.dead_letter_count += report.dead_letters.len() as u64;
        keep(&mut self.last_errors, report.errors.iter().cloned(), KEPT);
        keep(&mut self.dead_letters, report.dead_letters.iter().cloned(), KEPT);
        self.timers += report.timers;
        self.dead_timer_count += report.dead_timers.len() as u64;
        keep(&mut self.dead_timers, report.dead_timers.iter().cloned(), KEPT);
    }

    /// Combines the status of two partitions of one deployment.
    #[must_use]
    pub fn and(mut self, other: Status) -> Status {
        self.documents += other.documents;
        self.errors += other.errors;
        keep(&mut self.last_errors, other.last_errors, KEPT);
        self.dead_letter_count += other.dead_letter_count;
        keep(&mut self.dead_letters, other.dead_letters, KEPT);
        self.timers += other.timers;
        self.dead_timer_count += other.dead_timer_count;
        keep(&mut self.dead_timers, other.dead_timers, KEPT);
        self.writer.join(&other.writer);
        self.readers.join(&other.readers);
        self.memory_bytes += other.memory_bytes;
        for (name, value) in other.metrics {
            *self.metrics.entry(name).or_default() += value;
        }
        self.state_bytes += other.state_bytes;
        self.next_timer_us = [self.next_timer_us, other.next_timer_us].into_iter().flatten().min();
        keep(&mut self.log, other.log, LOG_LINES_MAX);
        self.stopped = self.stopped.or(other.stopped);
        self
    }
}

/// Appends to recent events, and drops all but the last `count_max`.
pub(crate) fn keep<T>(kept: &mut VecDeque<T>, new: impl IntoIterator<Item = T>, count_max: usize) {
    kept.extend(new);
    let surplus = kept.len().saturating_sub(count_max);
    kept.drain(..surplus);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_of_lanes_are_reported_as_one() {
        let error = |seqno| DocumentError {
            vbid: Vbid(0),
            seqno: Seqno(seqno),
            key: b"k".to_vec(),
            message: "no".into(),
        };
        let lane = |count: u64| {
            let mut lane = Status::default();
            let errors = (0..count).map(error).collect();
            lane.add(&Report { documents: 10 * count, errors, ..Report::default() });
            lane.writer.add(500 * count, &[], false);
            lane.metrics.insert("rows".into(), count as f64);
            lane.next_timer_us = (count > 20).then_some(count);
            lane
        };
        let both = lane(20).and(lane(30));
        assert_eq!((both.documents, both.errors, both.last_errors.len()), (500, 50, KEPT));
        assert_eq!(both.last_errors.back(), Some(&error(29)));
        assert_eq!((both.writer.calls, both.writer.elapsed_ns), (2, 25_000));
        assert_eq!(both.writer.latency.counts.iter().sum::<u64>(), 2);
        assert_eq!((both.metrics["rows"], both.next_timer_us), (50.0, Some(30)));
        let stopped = Status { stopped: Some("why".into()), ..Status::default() };
        assert_eq!(lane(1).and(stopped).stopped.as_deref(), Some("why"));
    }
}
