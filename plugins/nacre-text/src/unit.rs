//! Units of time: computes where they begin and end.

use crate::dates::{DAY, civil, days};

const SECOND: i64 = 1_000_000_000;

/// A unit of time, in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A number of nanoseconds, counted from a Monday.
    Fixed(i64),
    /// A number of months, counted from January.
    Months(i64),
}

impl Unit {
    /// Returns the unit with that name: `second`, `minute`, `hour`, `day`, `week`, `month`, `quarter` or `year`.
    #[must_use]
    pub fn parse(name: &str) -> Option<Unit> {
        Some(match name {
            "second" => Unit::Fixed(SECOND),
            "minute" => Unit::Fixed(60 * SECOND),
            "hour" => Unit::Fixed(3600 * SECOND),
            "day" => Unit::Fixed(DAY),
            "week" => Unit::Fixed(7 * DAY),
            "month" => Unit::Months(1),
            "quarter" => Unit::Months(3),
            "year" => Unit::Months(12),
            _ => return None,
        })
    }

    /// Returns the beginning of the unit that contains a point in time, in nanoseconds since 1970; `None` if it is out
    /// of range.
    #[must_use]
    pub fn start(self, nanos: i64) -> Option<i64> {
        match self {
            Unit::Fixed(length) => {
                // 29 December 1969, three days before 1970, was a Monday.
                let monday = if length == 7 * DAY { -3 * DAY } else { 0 };
                nanos.checked_sub(nanos.checked_sub(monday)?.rem_euclid(length))
            }
            Unit::Months(count) => {
                let (year, month, _) = civil(nanos.div_euclid(DAY));
                days(year, (month - 1) / count * count + 1, 1).checked_mul(DAY)
            }
        }
    }

    /// Returns the end of the unit that begins at `start`.
    #[must_use]
    pub fn end(self, start: i64) -> Option<i64> {
        match self {
            Unit::Fixed(length) => start.checked_add(length),
            Unit::Months(count) => {
                let (year, month, _) = civil(start.div_euclid(DAY));
                let month = month - 1 + count;
                days(year + month / 12, month % 12 + 1, 1).checked_mul(DAY)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{format_rfc3339, parse_rfc3339};

    fn of(unit: &str, moment: &str) -> String {
        let unit = Unit::parse(unit).unwrap();
        let start = unit.start(parse_rfc3339(moment).unwrap()).unwrap();
        format!("{} {}", format_rfc3339(start), format_rfc3339(unit.end(start).unwrap()))
    }

    #[test]
    fn units_begin_and_end_by_the_calendar() {
        for (unit, moment, wanted) in [
            ("second", "2024-02-29T23:59:59.5Z", "2024-02-29T23:59:59Z 2024-03-01T00:00:00Z"),
            ("hour", "2024-02-29T23:59:59Z", "2024-02-29T23:00:00Z 2024-03-01T00:00:00Z"),
            ("day", "1969-12-31T01:00:00Z", "1969-12-31T00:00:00Z 1970-01-01T00:00:00Z"),
            // A Thursday, and the Monday before it.
            ("week", "1970-01-01T00:00:00Z", "1969-12-29T00:00:00Z 1970-01-05T00:00:00Z"),
            ("month", "2024-02-29T12:00:00Z", "2024-02-01T00:00:00Z 2024-03-01T00:00:00Z"),
            ("quarter", "2023-12-31T23:59:59Z", "2023-10-01T00:00:00Z 2024-01-01T00:00:00Z"),
            ("year", "1900-03-01T00:00:00Z", "1900-01-01T00:00:00Z 1901-01-01T00:00:00Z"),
        ] {
            assert_eq!(of(unit, moment), wanted, "{unit} of {moment}");
        }
        assert_eq!(Unit::parse("fortnight"), None);
    }

    #[test]
    fn times_at_the_ends_of_the_range_never_panic() {
        for unit in ["second", "week", "month", "year"].map(|name| Unit::parse(name).unwrap()) {
            for moment in [i64::MIN, i64::MIN + 1, 0, i64::MAX] {
                let start = unit.start(moment);
                assert!(start.is_none_or(|start| start <= moment));
                start.and_then(|start| unit.end(start));
            }
        }
    }
}
