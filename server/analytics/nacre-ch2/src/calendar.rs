//! Days and seconds as text. Source: H. Hinnant, days from civil.

/// Seconds per day.
pub const DAY: i64 = 86_400;

/// Returns the seconds from 1970 to the beginning of a day.
pub fn seconds(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year - era * 400;
    let of_year = (153 * (if month > 2 { month - 3 } else { month + 9 }) + 2) / 5 + day - 1;
    let days = era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468;
    days * DAY
}

/// Formats `YYYY-MM-DD HH:MM:SS`.
pub fn text(seconds: i64) -> String {
    let days = seconds.div_euclid(DAY) + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days - era * 146_097;
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year + era * 400 + i64::from(month <= 2);
    let time = seconds.rem_euclid(DAY);
    format!(
        "{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02}",
        time / 3600,
        time / 60 % 60,
        time % 60
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_match_the_calendar() {
        assert_eq!(text(seconds(2016, 2, 29) + 3661), "2016-02-29 01:01:01");
        assert_eq!(text(seconds(2014, 1, 1)), "2014-01-01 00:00:00");
        assert_eq!(text(seconds(2020, 12, 31) + DAY), "2021-01-01 00:00:00");
        assert_eq!(seconds(1970, 1, 1), 0);
    }
}
