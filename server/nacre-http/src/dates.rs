//! Formats times.

/// Formats a Unix time in seconds, with milliseconds, as ISO 8601. The calculation lets years begin in March, so that a leap day is
/// the last day of its year.
pub fn date(unix: i64, millis: u32) -> String {
    let (days, seconds) = (unix.div_euclid(86_400), unix.rem_euclid(86_400));
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_match_the_calendar() {
        for (unix, millis, expected) in [
            (0, 0, "1970-01-01T00:00:00.000Z"),
            (951_782_399, 7, "2000-02-28T23:59:59.007Z"),
            (951_868_800, 0, "2000-03-01T00:00:00.000Z"),
            (1_709_210_096, 999, "2024-02-29T12:34:56.999Z"),
            (4_102_444_800, 0, "2100-01-01T00:00:00.000Z"),
        ] {
            assert_eq!(date(unix, millis), expected);
        }
    }
}
