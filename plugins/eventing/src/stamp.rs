//! The timestamp at the start of a line of the log.

/// Formats microseconds since the Unix epoch as `2026-01-01T00:00:00.000Z`.
pub fn stamp(now_us: u64) -> String {
    let (days, second) = (now_us / 86_400_000_000, now_us / 1_000_000 % 86_400);
    let (year, month, day) = civil(days as i64);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    let millisecond = now_us / 1000 % 1000;
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millisecond:03}Z")
}

/// Returns year, month and day of a number of days since the Unix epoch.
///
/// Source: Howard Hinnant, chrono-compatible low-level date algorithms, `civil_from_days`.
fn civil(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_match_the_calendar() {
        assert_eq!(stamp(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(stamp(1_700_000_000_123_456), "2023-11-14T22:13:20.123Z");
        assert_eq!(stamp(1_709_164_800_000_000), "2024-02-29T00:00:00.000Z");
    }
}
