//! Heartbeats of a connection: silence alone does not show whether the consumer is alive.

/// Silence after which a consumer counts as dead, in nanoseconds: six minutes, or twice the interval that the consumer
/// chose if that is longer.
const SILENCE_NS_MAX: u64 = 360 * 1_000_000_000;

/// The next step of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beat {
    /// Do nothing.
    Rest,
    /// Send a NOOP, which the consumer must answer.
    Ask,
    /// Close the connection: the consumer does not answer.
    GiveUp,
}

/// Tracks when a connection last received from its consumer and last sent to it. Times are monotonic nanoseconds.
///
/// Invariant: at most one NOOP is unanswered.
#[derive(Clone, Copy, Debug)]
pub struct Heartbeat {
    /// The silence in either direction after which a NOOP is sent; `None` for never.
    interval_ns: Option<u64>,
    received: u64,
    sent: u64,
    asked: bool,
}

impl Heartbeat {
    /// Creates the heartbeat of a connection that was opened at `now`, without NOOPs.
    pub fn new(now: u64) -> Heartbeat {
        Heartbeat { interval_ns: None, received: now, sent: now, asked: false }
    }

    /// Sets the silence after which a NOOP is sent.
    pub fn set_interval(&mut self, interval_ns: Option<u64>) {
        self.interval_ns = interval_ns;
    }

    /// Records that the consumer has sent something.
    pub fn record_received(&mut self, now: u64) {
        self.received = now;
    }

    /// Records that the consumer has answered a NOOP.
    pub fn answered(&mut self, now: u64) {
        self.received = now;
        self.asked = false;
    }

    /// Records that something was sent to the consumer.
    pub fn sent(&mut self, now: u64) {
        self.sent = now;
    }

    /// Returns how long nothing was sent to the consumer, in nanoseconds.
    pub fn quiet_ns(&self, now: u64) -> u64 {
        now.saturating_sub(self.sent)
    }

    /// Returns the next step at `now`. After [`Beat::Ask`] the NOOP counts as sent.
    pub fn tick(&mut self, now: u64) -> Beat {
        let Some(interval) = self.interval_ns else { return Beat::Rest };
        if now.saturating_sub(self.received) > SILENCE_NS_MAX.max(2 * interval) {
            return Beat::GiveUp;
        }
        if self.asked || now.saturating_sub(self.received.min(self.sent)) < interval {
            return Beat::Rest;
        }
        self.asked = true;
        Beat::Ask
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn a_silent_consumer_is_probed_once_and_then_disconnected() {
        let mut heartbeat = Heartbeat::new(0);
        assert_eq!(heartbeat.tick(u64::MAX), Beat::Rest, "it has not agreed to be asked");
        heartbeat.set_interval(Some(60 * SECOND));
        assert_eq!(heartbeat.tick(59 * SECOND), Beat::Rest);
        assert_eq!(heartbeat.tick(60 * SECOND), Beat::Ask);
        assert_eq!(heartbeat.tick(121 * SECOND), Beat::Rest, "one question is enough");
        assert_eq!(heartbeat.tick(360 * SECOND), Beat::Rest);
        assert_eq!(heartbeat.tick(361 * SECOND), Beat::GiveUp);
    }

    #[test]
    fn a_consumer_that_answers_is_probed_again() {
        let mut heartbeat = Heartbeat::new(0);
        heartbeat.set_interval(Some(60 * SECOND));
        for minute in 1..20 {
            let now = minute * 60 * SECOND;
            assert_eq!(heartbeat.tick(now), Beat::Ask);
            heartbeat.sent(now);
            heartbeat.answered(now);
        }
    }

    #[test]
    fn a_one_sided_connection_is_checked_by_heartbeats_too() {
        let mut heartbeat = Heartbeat::new(0);
        heartbeat.set_interval(Some(10 * SECOND));
        heartbeat.sent(9 * SECOND);
        assert_eq!(heartbeat.tick(10 * SECOND), Beat::Ask, "nothing was heard");
        heartbeat.answered(20 * SECOND);
        assert_eq!(heartbeat.tick(20 * SECOND), Beat::Ask, "nothing was sent");
    }

    #[test]
    fn a_long_interval_makes_patience_longer() {
        let mut heartbeat = Heartbeat::new(0);
        heartbeat.set_interval(Some(300 * SECOND));
        assert_eq!(heartbeat.tick(599 * SECOND), Beat::Ask);
        assert_eq!(heartbeat.tick(600 * SECOND), Beat::Rest);
        assert_eq!(heartbeat.tick(601 * SECOND), Beat::GiveUp);
    }
}
