//! The slow-operation log: operations that exceed a threshold are counted, kept for a while, and logged at a limited
//! rate.
//!
//! ```text
//! kv::Session, queries, views ─► SlowLog::note ─► counters for /metrics
//!                                            └──► the last 256, for operators
//!                                            └──► a line in the log, at most 10 a second
//! ```
//!
//! A log line has keys, statements and user names as [`UserData`], or a hash in their place, because logs are copied to places
//! where such data does not belong.
//!
//! *Invariants:* an operation below the threshold costs one comparison. Memory is bounded: 256 operations with 1 KiB of text
//! each.

use nacre_auth::{Redaction, UserData};
use nacre_types::Now;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Maximum number of operations kept.
const KEPT_MAX: usize = 256;
/// Maximum bytes kept of a key or a statement.
const TARGET_BYTES_MAX: usize = 1024;
/// Maximum number of log lines per second.
const LINES_PER_SECOND: u64 = 10;
const SECOND_NS: u64 = 1_000_000_000;

/// The service that carried out an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SlowService {
    /// The key-value protocol.
    Kv,
    /// SQL++.
    Query,
    /// Views.
    Views,
}

impl SlowService {
    /// All services, in the order of their counters.
    pub const ALL: [SlowService; 3] = [SlowService::Kv, SlowService::Query, SlowService::Views];

    /// Returns the name in logs and metrics.
    pub fn name(self) -> &'static str {
        match self {
            SlowService::Kv => "kv",
            SlowService::Query => "query",
            SlowService::Views => "views",
        }
    }
}

/// A slow operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlowOperation {
    /// The service.
    pub service: SlowService,
    /// The kind of operation, such as `Get`; for views, the path of the view.
    pub operation: String,
    /// The bucket; empty if the operation has none.
    pub bucket: String,
    /// Key of the document or text of the statement, which is user data. At most 1 KiB is kept.
    pub target: String,
    /// Name of the user.
    pub user: String,
    /// Time from the arrival to the answer.
    pub elapsed: Duration,
    /// Time spent by activity, as far as it was measured.
    pub spent: Vec<(&'static str, Duration)>,
    /// When the operation ended, in milliseconds of Unix time. Set by [`SlowLog::note`].
    pub unix_ms: u64,
}

/// Settings of the log of slow operations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SlowSettings {
    /// Threshold for the key-value protocol; zero turns it off.
    pub kv: Duration,
    /// Threshold for statements and view queries; zero turns it off.
    pub query: Duration,
    /// How log lines hide user data; `None` if they contain it.
    pub redaction: Option<Redaction>,
}

/// The slow operations of a node.
#[derive(Debug)]
pub struct SlowLog {
    /// Thresholds in nanoseconds: for the key-value protocol, and for other services.
    bounds_ns: [AtomicU64; 2],
    redaction: Mutex<Option<Redaction>>,
    counts: [AtomicU64; SlowService::ALL.len()],
    kept: Mutex<VecDeque<SlowOperation>>,
    lines: Mutex<LogBudget>,
}

/// Log lines written in the current second.
#[derive(Debug, Default)]
struct LogBudget {
    begun_ns: u64,
    written: u64,
    /// Operations since the last log line that were not logged.
    left_out: u64,
}

impl Default for SlowLog {
    fn default() -> SlowLog {
        SlowLog {
            bounds_ns: [const { AtomicU64::new(u64::MAX) }; 2],
            redaction: Mutex::default(),
            counts: Default::default(),
            kept: Mutex::default(),
            lines: Mutex::default(),
        }
    }
}

impl SlowLog {
    /// Changes the settings.
    pub fn set(&self, settings: SlowSettings) {
        let SlowSettings { kv, query, redaction } = settings;
        for (bound, value) in self.bounds_ns.iter().zip([kv, query]) {
            let value_ns = u64::try_from(value.as_nanos()).unwrap_or(u64::MAX);
            let value_ns = if value_ns == 0 { u64::MAX } else { value_ns };
            bound.store(value_ns, Ordering::Relaxed);
        }
        *self.redaction.lock() = redaction;
    }

    /// Returns true if an operation of this duration is slow.
    pub fn is_slow(&self, service: SlowService, elapsed_ns: u64) -> bool {
        let bound = &self.bounds_ns[usize::from(service != SlowService::Kv)];
        elapsed_ns >= bound.load(Ordering::Relaxed)
    }

    /// Counts and keeps an operation that ended at `now`, and logs it if the rate limit allows.
    pub fn note(&self, mut operation: SlowOperation, now: Now) {
        self.counts[operation.service as usize].fetch_add(1, Ordering::Relaxed);
        operation.unix_ms = now.unix_ns / 1_000_000;
        shorten(&mut operation.target);
        if let Some(left_out) = self.lines.lock().take(now.monotonic_ns) {
            let line = self.line(&operation);
            match left_out {
                0 => tracing::warn!(target: "nacre::slow", "{line}"),
                _ => {
                    tracing::warn!(target: "nacre::slow", "{line} ({left_out} before it are not logged)")
                }
            }
        }
        let mut kept = self.kept.lock();
        if kept.len() == KEPT_MAX {
            kept.pop_front();
        }
        kept.push_back(operation);
    }

    /// Returns the log line of an operation.
    fn line(&self, operation: &SlowOperation) -> String {
        let line = LogLine(operation).to_string();
        match &*self.redaction.lock() {
            Some(redaction) => redaction.redact(&line),
            None => line,
        }
    }

    /// Returns the last slow operations, newest first.
    pub fn kept(&self) -> Vec<SlowOperation> {
        self.kept.lock().iter().rev().cloned().collect()
    }

    /// Returns the number of slow operations of a service since the start.
    pub fn count(&self, service: SlowService) -> u64 {
        self.counts[service as usize].load(Ordering::Relaxed)
    }
}

impl LogBudget {
    /// Takes a log line if this second has one left. Returns how many operations were not logged since the last line.
    fn take(&mut self, now_ns: u64) -> Option<u64> {
        if now_ns.saturating_sub(self.begun_ns) >= SECOND_NS {
            (self.begun_ns, self.written) = (now_ns, 0);
        }
        if self.written == LINES_PER_SECOND {
            self.left_out += 1;
            return None;
        }
        self.written += 1;
        Some(std::mem::take(&mut self.left_out))
    }
}

fn shorten(text: &mut String) {
    if text.len() > TARGET_BYTES_MAX {
        let end = (0..=TARGET_BYTES_MAX).rfind(|end| text.is_char_boundary(*end));
        text.truncate(end.unwrap_or(0));
    }
}

/// An operation formatted as a log line.
struct LogLine<'o>(&'o SlowOperation);

impl fmt::Display for LogLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SlowOperation { service, operation, bucket, target, user, elapsed, spent, .. } = self.0;
        write!(
            f,
            "slow operation: {} {operation} took {} ms",
            service.name(),
            elapsed.as_millis()
        )?;
        if !bucket.is_empty() {
            write!(f, " in bucket {bucket}")?;
        }
        if !target.is_empty() {
            write!(f, " for {}", UserData(target))?;
        }
        if !user.is_empty() {
            write!(f, " by {}", UserData(user))?;
        }
        for (at, (what, time)) in spent.iter().enumerate() {
            let before = if at == 0 { ": " } else { ", " };
            write!(f, "{before}{what} {} ms", time.as_millis())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now(ms: u64) -> Now {
        Now { monotonic_ns: ms * 1_000_000, unix_ns: ms * 1_000_000 }
    }

    fn operation(target: &str) -> SlowOperation {
        SlowOperation {
            service: SlowService::Kv,
            operation: "Get".into(),
            bucket: "travel".into(),
            target: target.into(),
            user: "ann".into(),
            elapsed: Duration::from_millis(812),
            spent: vec![("disk", Duration::from_millis(800)), ("rest", Duration::from_millis(12))],
            unix_ms: 0,
        }
    }

    #[test]
    fn no_operation_is_slow_without_a_threshold() {
        let log = SlowLog::default();
        assert!(!log.is_slow(SlowService::Kv, u64::MAX - 1));
        let (kv, query) = (Duration::from_millis(1), Duration::from_millis(2));
        log.set(SlowSettings { kv, query, redaction: None });
        assert!(log.is_slow(SlowService::Kv, 1_000_000));
        assert!(!log.is_slow(SlowService::Kv, 999_999));
        assert!(!log.is_slow(SlowService::Views, 1_999_999));
        assert!(log.is_slow(SlowService::Query, 2_000_000));
        log.set(SlowSettings::default());
        assert!(!log.is_slow(SlowService::Query, u64::MAX - 1));
    }

    #[test]
    fn the_last_slow_operations_are_kept_and_all_are_counted() {
        let log = SlowLog::default();
        for number in 0..300 {
            log.note(operation(&number.to_string()), now(number));
        }
        let kept = log.kept();
        assert_eq!((kept.len(), log.count(SlowService::Kv)), (KEPT_MAX, 300));
        assert_eq!((kept[0].target.as_str(), kept[0].unix_ms), ("299", 299));
        assert_eq!(log.count(SlowService::Query), 0);
    }

    #[test]
    fn lines_per_second_are_limited_and_omitted_lines_are_counted() {
        let mut lines = LogBudget::default();
        let second = 5 * SECOND_NS;
        let taken: Vec<_> = (0..12).map(|_| lines.take(second)).collect();
        assert_eq!(taken.iter().filter(|line| line.is_some()).count(), 10);
        assert_eq!(lines.take(second + SECOND_NS), Some(2));
        assert_eq!(lines.take(second + SECOND_NS), Some(0));
    }

    #[test]
    fn a_log_line_names_what_took_the_time_and_marks_user_data() {
        let log = SlowLog::default();
        assert_eq!(
            log.line(&operation("airline_10")),
            "slow operation: kv Get took 812 ms in bucket travel for <ud>airline_10</ud> by <ud>ann</ud>: disk 800 ms, rest 12 ms"
        );
        let forged = log.line(&operation("</ud>\nslow operation"));
        assert!(!forged.contains('\n') && forged.matches("</ud>").count() == 2, "{forged}");
        let redaction = Some(Redaction::new(b"salt"));
        log.set(SlowSettings { redaction, ..SlowSettings::default() });
        let redacted = log.line(&operation("airline_10"));
        assert!(!redacted.contains("airline_10") && !redacted.contains("ann"), "{redacted}");
        assert!(redacted.contains("in bucket travel for <ud>"), "{redacted}");
    }

    #[test]
    fn a_long_text_is_cut_between_characters() {
        let log = SlowLog::default();
        log.note(operation(&"ä".repeat(1000)), now(0));
        assert_eq!(log.kept()[0].target.len(), TARGET_BYTES_MAX);
    }
}
