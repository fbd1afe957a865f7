//! When the tasks of a plan run. Times of day are those of UTC.

use serde::{Deserialize, Serialize};

const MINUTE_MS: u64 = 60_000;
const HOUR_MS: u64 = 60 * MINUTE_MS;
const DAY_MS: u64 = 24 * HOUR_MS;
/// Day of the week of 1970-01-01, counted from Sunday.
const FIRST_WEEKDAY: u64 = 4;
/// Highest frequency. Source: Couchbase's backup service.
const FREQUENCY_MAX: u64 = 200;

/// Unit of a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub(crate) enum Period {
    Minutes,
    Hours,
    Days,
    Weeks,
    Sunday,
    Monday,
    Tuesday,
    Wednesday,
    Thursday,
    Friday,
    Saturday,
}

/// When a task runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Schedule {
    /// Kept as it is given: the task has its type.
    #[serde(default)]
    job_type: String,
    /// So many periods lie between two runs; of a day of the week, each so many of them counts.
    frequency: u64,
    period: Period,
    /// `HH:MM`; for days, weeks and days of the week.
    #[serde(default)]
    time: String,
    /// True if the first run is at once.
    #[serde(default)]
    start_now: bool,
}

impl Schedule {
    /// Checks what a request says.
    ///
    /// # Errors
    /// A sentence.
    pub fn check(&self) -> Result<(), String> {
        if !matches!(&*self.job_type, "" | "BACKUP" | "MERGE") {
            return Err("job_type is BACKUP or MERGE".to_owned());
        }
        if !(1..=FREQUENCY_MAX).contains(&self.frequency) {
            return Err(format!("frequency is a number from 1 to {FREQUENCY_MAX}"));
        }
        match self.of_day_ms() {
            Some(_) => Ok(()),
            None => Err(format!("time is HH:MM, not {:?}", self.time)),
        }
    }

    /// The time of day in milliseconds; midnight if there is none.
    fn of_day_ms(&self) -> Option<u64> {
        if self.time.is_empty() {
            return Some(0);
        }
        let (hours, minutes) = self.time.split_once(':')?;
        let number = |text: &str, limit: u64| {
            let is_plain = text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
            text.parse().ok().filter(|number: &u64| is_plain && *number < limit)
        };
        Some(number(hours, 24)? * HOUR_MS + number(minutes, 60)? * MINUTE_MS)
    }

    /// Returns when the task runs for the first time, in Unix milliseconds.
    pub fn first_ms(&self, now_ms: u64) -> u64 {
        if self.start_now { now_ms } else { self.next_ms(now_ms) }
    }

    /// Returns when the task runs after a time, in Unix milliseconds.
    pub fn next_ms(&self, after_ms: u64) -> u64 {
        let frequency = self.frequency.clamp(1, FREQUENCY_MAX);
        let of_day = self.of_day_ms().unwrap_or(0);
        let today = after_ms / DAY_MS;
        // The first day whose time is yet to come.
        let day = today + u64::from(today * DAY_MS + of_day <= after_ms);
        let at = |day: u64| day * DAY_MS + of_day;
        let weekday = |wanted: u64| {
            let ahead = (7 + wanted - (day + FIRST_WEEKDAY) % 7) % 7;
            at(day + ahead + 7 * (frequency - 1))
        };
        match self.period {
            Period::Minutes => after_ms + frequency * MINUTE_MS,
            Period::Hours => after_ms + frequency * HOUR_MS,
            Period::Days => at(day + frequency - 1),
            Period::Weeks => at(day + 7 * frequency - 1),
            Period::Sunday => weekday(0),
            Period::Monday => weekday(1),
            Period::Tuesday => weekday(2),
            Period::Wednesday => weekday(3),
            Period::Thursday => weekday(4),
            Period::Friday => weekday(5),
            Period::Saturday => weekday(6),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::Timestamp;

    fn schedule(frequency: u64, period: &str, time: &str) -> Schedule {
        let text = format!(r#"{{"frequency":{frequency},"period":"{period}","time":"{time}"}}"#);
        serde_json::from_str(&text).unwrap()
    }

    /// The run after a time, both as text.
    fn next(frequency: u64, period: &str, time: &str, after: &str) -> String {
        let after: Timestamp = after.parse().unwrap();
        let after = u64::try_from(after.as_millisecond()).unwrap();
        crate::record::time(schedule(frequency, period, time).next_ms(after))
    }

    #[test]
    fn the_next_run_is_the_one_that_the_schedule_names() {
        // 2026-11-29 is a Sunday.
        let now = "2026-11-29T21:30:00Z";
        for (frequency, period, time, expected) in [
            (5, "MINUTES", "", "2026-11-29T21:35:00Z"),
            (2, "HOURS", "00:00", "2026-11-29T23:30:00Z"),
            (1, "DAYS", "22:00", "2026-11-29T22:00:00Z"),
            (1, "DAYS", "21:00", "2026-11-30T21:00:00Z"),
            (3, "DAYS", "21:00", "2026-12-02T21:00:00Z"),
            (1, "WEEKS", "21:30", "2026-12-06T21:30:00Z"),
            (1, "SUNDAY", "22:00", "2026-11-29T22:00:00Z"),
            (1, "SUNDAY", "21:30", "2026-12-06T21:30:00Z"),
            (2, "SUNDAY", "21:30", "2026-12-13T21:30:00Z"),
            (1, "MONDAY", "00:00", "2026-11-30T00:00:00Z"),
            (1, "SATURDAY", "", "2026-12-05T00:00:00Z"),
        ] {
            assert_eq!(next(frequency, period, time, now), expected, "{frequency} {period} {time}");
        }
    }

    #[test]
    fn a_schedule_that_names_no_time_is_refused() {
        assert_eq!(schedule(1, "DAYS", "23:59").check(), Ok(()));
        for wrong in ["24:00", "7:00", "07:60", "0700", "-1:00", "+1:00", "aa:bb"] {
            assert!(schedule(1, "DAYS", wrong).check().is_err(), "{wrong}");
        }
        assert!(schedule(0, "DAYS", "").check().is_err());
        assert!(schedule(201, "DAYS", "").check().is_err());
        assert!(serde_json::from_str::<Schedule>(r#"{"frequency":1,"period":"YEARS"}"#).is_err());
    }

    #[test]
    fn the_first_run_can_be_immediate() {
        let text = r#"{"frequency":1,"period":"DAYS","time":"22:00","start_now":true}"#;
        let schedule: Schedule = serde_json::from_str(text).unwrap();
        assert_eq!(schedule.first_ms(12_345), 12_345);
    }
}
