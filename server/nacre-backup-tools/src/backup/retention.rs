//! Rules that say which backups stay: by their number, by periods of time, and by their age.
//!
//! ```text
//! --keep-daily 3     Mon 08:00   Mon 20:00   Tue 08:00   Wed 08:00   Thu 08:00   Thu 20:00
//!                                              kept        kept                    kept        the newest of each of the last 3 days
//! --keep-within 1d                                                   kept        kept        up to a day before the newest
//! ```
//!
//! The rules are those of restic: a period without a backup does not count, and as long as a rule keeps fewer backups than it may, it also
//! keeps the oldest backup. Ages are measured from the newest backup and not from now, so that a timer that has stopped
//! removes nothing. *Invariant:* a rule that keeps anything keeps the newest backup.

use clap::Args;
use jiff::tz::TimeZone;
use jiff::{Span, Timestamp};
use nacre_backup::BackupId;
use std::collections::BTreeMap;

const HOUR_S: i64 = 60 * 60;
const DAY_S: i64 = 24 * HOUR_S;
/// Days from the first Monday before 1970 to 1970, which began on a Thursday: weeks begin on Mondays.
const MONDAY_DAYS: i64 = 3;

/// Options that say which backups stay. They add up.
#[derive(Args, Clone, Debug, Default)]
pub(super) struct Retention {
    /// Keep the newest N backups of each bucket
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    keep_last: u32,
    /// Keep the newest backup of each of the last N hours with a backup
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    keep_hourly: u32,
    /// Keep the newest backup of each of the last N days with a backup, in UTC
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    keep_daily: u32,
    /// Keep the newest backup of each of the last N weeks with a backup; weeks begin on Monday
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    keep_weekly: u32,
    /// Keep the newest backup of each of the last N months with a backup
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    keep_monthly: u32,
    /// Keep the newest backup of each of the last N years with a backup
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    keep_yearly: u32,
    /// Keep backups that began at most DURATION before the newest one, such as 36h, 30d or 1y6mo (units: h, d, w, mo, y)
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    keep_within: Option<Span>,
}

/// A rule that keeps one backup of each period.
struct Rule {
    name: &'static str,
    /// Number of remaining periods.
    left: u32,
    /// Number of the period that a backup is in, by its time and by its place in the list.
    period: fn(Timestamp, usize) -> i64,
    /// Period of the last backup that was kept.
    last: Option<i64>,
}

impl Rule {
    /// Decides about a backup; backups come newest first.
    fn keeps(&mut self, began: Timestamp, place: usize, is_oldest: bool) -> bool {
        if self.left == 0 {
            return false;
        }
        let period = (self.period)(began, place);
        if self.last == Some(period) && !is_oldest {
            return false;
        }
        self.last = Some(period);
        self.left -= 1;
        true
    }
}

fn hours(began: Timestamp, _: usize) -> i64 {
    began.as_second().div_euclid(HOUR_S)
}

fn days(began: Timestamp, _: usize) -> i64 {
    began.as_second().div_euclid(DAY_S)
}

fn weeks(began: Timestamp, place: usize) -> i64 {
    (days(began, place) + MONDAY_DAYS).div_euclid(7)
}

fn months(began: Timestamp, place: usize) -> i64 {
    12 * years(began, place) + i64::from(began.to_zoned(TimeZone::UTC).month())
}

fn years(began: Timestamp, _: usize) -> i64 {
    began.to_zoned(TimeZone::UTC).year().into()
}

impl Retention {
    /// Returns true if no rule keeps anything.
    pub fn is_empty(&self) -> bool {
        self.keep_within.is_none() && self.rules().iter().all(|rule| rule.left == 0)
    }

    fn rules(&self) -> [Rule; 6] {
        let rule = |name, left, period| Rule { name, left, period, last: None };
        [
            rule("last", self.keep_last, |_, place| i64::try_from(place).unwrap_or(i64::MAX)),
            rule("hourly", self.keep_hourly, hours),
            rule("daily", self.keep_daily, days),
            rule("weekly", self.keep_weekly, weeks),
            rule("monthly", self.keep_monthly, months),
            rule("yearly", self.keep_yearly, years),
        ]
    }

    /// Returns the backups of a bucket that stay, with the names of the rules that keep them. `backups` are all of that bucket with the
    /// times at which they began, newest first.
    pub fn kept(&self, backups: &[(BackupId, Timestamp)]) -> BTreeMap<BackupId, Vec<&'static str>> {
        let mut kept: BTreeMap<BackupId, Vec<&'static str>> = BTreeMap::new();
        let mut rules = self.rules();
        let since = backups.first().zip(self.keep_within).map(|((_, newest), span)| {
            // A duration beyond the range of times keeps everything.
            let since = newest.to_zoned(TimeZone::UTC).checked_sub(span);
            since.map_or(Timestamp::MIN, |since| since.timestamp())
        });
        for (place, (id, began)) in backups.iter().enumerate() {
            let is_oldest = place + 1 == backups.len();
            let names = rules
                .iter_mut()
                .filter_map(|rule| rule.keeps(*began, place, is_oldest).then_some(rule.name));
            let within = since.filter(|since| began >= since).map(|_| "within");
            let names: Vec<&str> = names.chain(within).collect();
            if !names.is_empty() {
                kept.insert(*id, names);
            }
        }
        kept
    }
}

/// Reads a duration: numbers with units, as `1y6mo`.
fn duration(text: &str) -> Result<Span, String> {
    let malformed =
        || format!("{text:?} is not a duration: write 36h, 30d, 8w, 6mo, 1y, or several as 1y6mo");
    let mut span = Span::new();
    let mut rest = text;
    while !rest.is_empty() {
        let at = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(malformed)?;
        let number: i64 = rest[..at].parse().map_err(|_| malformed())?;
        rest = &rest[at..];
        let end = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let unit = &rest[..end];
        rest = &rest[end..];
        let longer = match unit {
            "h" => span.try_hours(number),
            "d" => span.try_days(number),
            "w" => span.try_weeks(number),
            "mo" => span.try_months(number),
            "y" => span.try_years(number),
            // restic means months by m, others minutes; a mistake would remove backups.
            "m" => return Err(format!("{text:?}: write mo for months, or h for hours")),
            _ => return Err(malformed()),
        };
        span = longer.map_err(|_| format!("{text:?} is too long"))?;
    }
    if span.is_zero() { Err(malformed()) } else { Ok(span) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        retention: Retention,
    }

    fn retention(options: &str) -> Retention {
        let words = std::iter::once("prune").chain(options.split_whitespace());
        Line::try_parse_from(words).unwrap_or_else(|error| panic!("{error}")).retention
    }

    /// Returns the kept backups among those that began at these times, oldest first.
    fn kept(options: &str, times: &[&str]) -> Vec<String> {
        let mut backups: Vec<(BackupId, Timestamp)> = times
            .iter()
            .zip(1..)
            .map(|(time, number)| (BackupId::new(number, 0, None), time.parse().unwrap()))
            .collect();
        backups.reverse();
        let kept = retention(options).kept(&backups);
        let shown = |(id, began): &(BackupId, Timestamp)| {
            Some(format!("{began} {}", kept.get(id)?.join(" ")))
        };
        backups.iter().rev().filter_map(shown).collect()
    }

    const TIMES: [&str; 7] = [
        "2026-01-01T08:00:00Z",
        "2026-11-02T08:00:00Z",
        "2026-11-02T20:00:00Z",
        "2026-11-03T08:00:00Z",
        "2026-11-08T23:59:59Z",
        "2026-11-09T00:00:00Z",
        "2026-11-09T00:30:00Z",
    ];

    #[test]
    fn the_newest_of_each_period_stays() {
        assert_eq!(
            kept("--keep-last 2", &TIMES),
            ["2026-11-09T00:00:00Z last", "2026-11-09T00:30:00Z last"]
        );
        assert_eq!(
            kept("--keep-daily 3", &TIMES),
            [
                "2026-11-03T08:00:00Z daily",
                "2026-11-08T23:59:59Z daily",
                "2026-11-09T00:30:00Z daily"
            ]
        );
        // The 9th is a Monday, the 8th the Sunday before it.
        assert_eq!(
            kept("--keep-weekly 2", &TIMES),
            ["2026-11-08T23:59:59Z weekly", "2026-11-09T00:30:00Z weekly"]
        );
        assert_eq!(
            kept("--keep-hourly 2", &TIMES),
            ["2026-11-08T23:59:59Z hourly", "2026-11-09T00:30:00Z hourly"]
        );
        assert_eq!(
            kept("--keep-monthly 1 --keep-yearly 1", &TIMES),
            ["2026-11-09T00:30:00Z monthly yearly"]
        );
    }

    #[test]
    fn a_rule_with_room_also_keeps_the_oldest_backup() {
        // Otherwise it would be removed before the second year has a backup, and the rule would never keep two.
        assert_eq!(
            kept("--keep-yearly 2", &TIMES),
            ["2026-01-01T08:00:00Z yearly", "2026-11-09T00:30:00Z yearly"]
        );
        assert_eq!(kept("--keep-last 9", &TIMES).len(), TIMES.len());
        assert_eq!(kept("--keep-daily 4", &TIMES).len(), 4);
    }

    #[test]
    fn ages_are_measured_from_the_newest_backup() {
        assert_eq!(
            kept("--keep-within 1h", &TIMES[..6]),
            ["2026-11-08T23:59:59Z within", "2026-11-09T00:00:00Z within"]
        );
        assert_eq!(kept("--keep-within 7d", &TIMES).len(), 6);
        assert_eq!(kept("--keep-within 1w", &TIMES).len(), 6);
        assert_eq!(kept("--keep-within 10mo1w2d", &TIMES).len(), 7);
        assert_eq!(kept("--keep-within 9000y", &TIMES).len(), 7);
        assert_eq!(
            kept("--keep-within 1h --keep-last 1", &TIMES[..6]),
            ["2026-11-08T23:59:59Z within", "2026-11-09T00:00:00Z last within"]
        );
    }

    #[test]
    fn the_newest_stays_by_every_rule_that_keeps_anything() {
        for rule in ["last", "hourly", "daily", "weekly", "monthly", "yearly"] {
            let options = format!("--keep-{rule} 1");
            assert_eq!(kept(&options, &TIMES), [format!("{} {rule}", TIMES[6])]);
            assert!(!retention(&options).is_empty());
            assert!(kept(&options, &[]).is_empty());
        }
        assert!(retention("").is_empty() && retention("--keep-last 0").is_empty());
        assert!(kept("", &TIMES).is_empty());
    }

    #[test]
    fn invalid_durations_are_refused() {
        for text in ["", "0d", "30", "d", "3x", "-3d", "3 d", "99999999999999999999d", "3d4"] {
            assert!(duration(text).is_err(), "{text}");
        }
        assert!(duration("6m").unwrap_err().contains("mo for months"));
        assert!(duration("99999999999h").unwrap_err().contains("too long"));
    }
}
