//! Retries of a plugin that asks to be called again; the reason is logged if this continues.

use nacre_sandbox::Error;
use std::time::Duration;

/// How long a plugin may ask for retries before that is logged, and the pause between log lines.
const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_secs(600);

/// The period in which a feed has received only requests for retries. Times are monotonic nanoseconds.
#[derive(Default)]
pub(super) struct Retrying {
    since_ns: Option<u64>,
    log_at_ns: u64,
}

impl Retrying {
    /// Ends the period after a successful call.
    pub fn end(&mut self) {
        self.since_ns = None;
    }

    /// Records a request for a retry. Returns a log line if one is due.
    pub fn again(&mut self, error: &Error, now_ns: u64) -> Option<String> {
        // A busy node is not an error of the plugin.
        let Error::Retry { deployment, message } = error else { return None };
        let since_ns = *self.since_ns.get_or_insert_with(|| {
            self.log_at_ns = now_ns.saturating_add(PATIENCE.as_nanos() as u64);
            now_ns
        });
        if now_ns < self.log_at_ns {
            return None;
        }
        self.log_at_ns = now_ns.saturating_add(PAUSE.as_nanos() as u64);
        let waits = Duration::from_nanos(now_ns - since_ns).as_secs();
        Some(format!("{deployment} has requested retries for {waits} s: {message}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeated_reason_is_logged_at_intervals() {
        let mut retrying = Retrying::default();
        let error = Error::Retry { deployment: "d".into(), message: "no room".into() };
        let second = 1_000_000_000;
        let logged: Vec<u64> =
            (0..1300).filter(|at| retrying.again(&error, at * second).is_some()).collect();
        assert_eq!(logged, [10, 610, 1210]);
        retrying.end();
        assert_eq!(retrying.again(&error, 1300 * second), None, "it begins again");
        let line = retrying.again(&error, 1310 * second);
        assert_eq!(line.as_deref(), Some("d has requested retries for 10 s: no room"));
        let busy = Error::Busy { deployment: "d".into(), message: "later".into() };
        assert_eq!(retrying.again(&busy, 9999 * second), None);
    }
}
