//! A common start of clients that do not communicate.
//!
//! Clients on several machines that are started within the same minute begin at the same time: `waitingTime=N` begins N minutes
//! after the minute of the start, whose seconds are ignored. With 10, both 10:35:15 and 10:35:47 begin at 10:45:00, whatever the
//! time zones are. The clocks must agree. Source: C. H. Costa, "Scalability Patterns for Distributed NoSQL Databases", 4.1.

use super::properties::Properties;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The last part of the wait, which is a busy wait because systems wake up late.
const BUSY: Duration = Duration::from_millis(2);

/// The time at which a run begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// As soon as the clients are connected.
    Now,
    /// At this time, which may have passed if clients take too long to connect.
    At(SystemTime),
}

impl Start {
    /// Reads `waitingTime`, in minutes, or `startAt`, in milliseconds since the Unix epoch.
    ///
    /// # Errors
    /// An invalid value, or both properties are given.
    pub fn of(properties: &Properties, now: SystemTime) -> Result<Start, String> {
        match (properties.text("waitingTime"), properties.text("startAt")) {
            (None, None) => Ok(Start::Now),
            (Some(_), None) => Ok(Start::At(minutes_after(now, properties.get("waitingTime", 0)?))),
            (None, Some(_)) => {
                let since = Duration::from_millis(properties.get("startAt", 0)?);
                let time = UNIX_EPOCH.checked_add(since);
                time.map(Start::At).ok_or_else(|| "startAt is too far away".to_owned())
            }
            (Some(_), Some(_)) => Err("waitingTime and startAt exclude each other".to_owned()),
        }
    }

    /// Waits until the time, unless it has passed.
    pub fn wait(self) {
        let Start::At(time) = self else { return };
        while let Ok(left) = time.duration_since(SystemTime::now()) {
            match left > BUSY {
                true => std::thread::sleep(left - BUSY),
                false => std::hint::spin_loop(),
            }
        }
    }
}

/// Returns the time `minutes` after the start of the minute of `now`.
fn minutes_after(now: SystemTime, minutes: u32) -> SystemTime {
    let seconds = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    UNIX_EPOCH + Duration::from_secs((seconds / 60 + u64::from(minutes)) * 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(given: &[&str], now: SystemTime) -> Result<Start, String> {
        let given: Vec<String> = given.iter().map(|one| (*one).to_owned()).collect();
        Start::of(&Properties::read(&[] as &[&std::path::Path], &given)?, now)
    }

    /// Returns a time on the first day of the epoch.
    fn at(hour: u64, minute: u64, second: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_millis(((hour * 60 + minute) * 60 + second) * 1000 + 789)
    }

    #[test]
    fn clients_of_one_minute_begin_at_one_minute() {
        let begins = Start::At(at(10, 45, 0) - Duration::from_millis(789));
        for second in [0, 15, 47, 59] {
            assert_eq!(start(&["waitingTime=10"], at(10, 35, second)), Ok(begins));
        }
        assert_ne!(start(&["waitingTime=10"], at(10, 36, 0)), Ok(begins));
        // A whole number of hours later, as in another time zone.
        let elsewhere = Start::At(at(16, 45, 0) - Duration::from_millis(789));
        assert_eq!(start(&["waitingTime=10"], at(16, 35, 47)), Ok(elsewhere));
    }

    #[test]
    fn a_missing_or_past_start_time_causes_no_wait() {
        assert_eq!(start(&[], at(1, 2, 3)), Ok(Start::Now));
        let over = start(&["startAt=1000"], at(1, 2, 3)).unwrap();
        assert_eq!(over, Start::At(UNIX_EPOCH + Duration::from_secs(1)));
        over.wait();
        assert!(start(&["startAt=1000", "waitingTime=1"], at(1, 2, 3)).is_err());
        assert!(start(&["waitingTime=-1"], at(1, 2, 3)).is_err());
    }
}
