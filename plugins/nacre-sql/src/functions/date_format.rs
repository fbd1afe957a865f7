//! Parses and formats dates.
//!
//! A format is one of three things: an example date (`1111-11-11T11:11:11Z`), of which only the shape matters, not the
//! digits; names of parts (`YYYY-MM-DD hh:mm:ss`); or percent letters (`%Y-%m-%d`). Zones are offsets or `Z`, without
//! names; text without a zone is UTC.

use super::date_parts::Format;

/// A point in time, and the zone in which it is shown.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Date {
    /// Milliseconds since 1970.
    pub ms: i64,
    /// Minutes east of Greenwich.
    pub offset_minutes: i64,
}

/// The parts that a date has in its text.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Shape {
    date: bool,
    separator: char,
    time: bool,
    seconds: bool,
    fraction: bool,
    zone: bool,
}

/// The default format; it shows the fraction only if it is not zero.
pub(super) const DEFAULT: Shape =
    Shape { date: true, separator: 'T', time: true, seconds: true, fraction: true, zone: true };

pub(super) const DAY_MS: i64 = 86_400_000;

/// Valid years; the limit prevents overflows.
pub(super) const YEARS: std::ops::RangeInclusive<i64> = -9999..=9999;

/// Returns the days from 1970 to a date of the Gregorian calendar (Howard Hinnant, `chrono`-compatible low-level date
/// algorithms).
pub(super) fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

/// Returns year, month and day for a number of days since 1970.
pub(super) fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day = days.rem_euclid(146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year + era * 400 + i64::from(month <= 2), month, day)
}

pub(super) fn days_in_month(year: i64, month: i64) -> i64 {
    let (next_year, next) = if month == 12 { (year + 1, 1) } else { (year, month + 1) };
    days_from_civil(next_year, next, 1) - days_from_civil(year, month, 1)
}

impl Date {
    pub(super) fn utc(ms: i64) -> Date {
        Date { ms, offset_minutes: 0 }
    }

    /// Returns the milliseconds since 1970 on a clock of the date's zone.
    pub(super) fn local_ms(&self) -> i64 {
        self.ms + self.offset_minutes * 60_000
    }

    pub(super) fn from_local(local_ms: i64, offset_minutes: i64) -> Date {
        Date { ms: local_ms - offset_minutes * 60_000, offset_minutes }
    }

    pub(super) fn civil(&self) -> (i64, i64, i64) {
        civil_from_days(self.local_ms().div_euclid(DAY_MS))
    }

    /// Returns the milliseconds since midnight.
    pub(super) fn day_ms(&self) -> i64 {
        self.local_ms().rem_euclid(DAY_MS)
    }
}

struct Cursor<'a>(&'a str);

impl Cursor<'_> {
    fn digits(&mut self, least: usize, most: usize) -> Option<i64> {
        let count = self.0.bytes().take(most).take_while(u8::is_ascii_digit).count();
        if count < least {
            return None;
        }
        let (digits, rest) = self.0.split_at(count);
        self.0 = rest;
        digits.parse().ok()
    }

    fn symbol(&mut self, symbol: char) -> Option<()> {
        self.0 = self.0.strip_prefix(symbol)?;
        Some(())
    }
}

/// Parses a date in any known shape.
pub(super) fn parse(text: &str) -> Option<(Date, Shape)> {
    let (date, shape) = parse_with(text, false)?;
    Some((date, shape))
}

/// Parses a date. With `example`, parts may be out of range, as in `1111-11-11T11:11:11Z` or `9999-99-99`.
fn parse_with(text: &str, example: bool) -> Option<(Date, Shape)> {
    let mut at = Cursor(text);
    let mut shape = Shape { separator: 'T', ..DEFAULT };
    shape.date = text.as_bytes().get(4) == Some(&b'-');
    let (mut year, mut month, mut day) = (1970, 1, 1);
    if shape.date {
        year = at.digits(4, 4)?;
        at.symbol('-')?;
        month = at.digits(1, 2)?;
        at.symbol('-')?;
        day = at.digits(1, 2)?;
        if !example
            && (!(1..=12).contains(&month) || !(1..=days_in_month(year, month)).contains(&day))
        {
            return None;
        }
    }
    shape.time = !at.0.is_empty();
    if shape.time && shape.date {
        shape.separator = at.0.chars().next().filter(|c| matches!(c, 'T' | ' '))?;
        at.symbol(shape.separator)?;
    }
    let (ms, offset_minutes) = parse_time(&mut at, &mut shape, example)?;
    if !at.0.is_empty() {
        return None;
    }
    let days = if example { 0 } else { days_from_civil(year, month, day) };
    Some((Date::from_local(days * DAY_MS + ms, offset_minutes), shape))
}

/// Parses a time. Returns the milliseconds since midnight, and the zone.
fn parse_time(at: &mut Cursor<'_>, shape: &mut Shape, example: bool) -> Option<(i64, i64)> {
    (shape.seconds, shape.fraction, shape.zone) = (false, false, false);
    if !shape.time {
        return Some((0, 0));
    }
    let hour = at.digits(1, 2)?;
    at.symbol(':')?;
    let minute = at.digits(2, 2)?;
    let mut ms = (hour * 60 + minute) * 60_000;
    if at.symbol(':').is_some() {
        shape.seconds = true;
        let second = at.digits(2, 2)?;
        if !example && second > 59 {
            return None;
        }
        ms += second * 1000;
        if at.symbol('.').is_some() {
            shape.fraction = true;
            let before = at.0.len();
            let fraction = at.digits(1, 9)?;
            ms +=
                (fraction as f64 / 10f64.powi((before - at.0.len()) as i32) * 1000.0 + 1e-6) as i64;
        }
    }
    if !example && (hour > 23 || minute > 59) {
        return None;
    }
    let mut offset = 0;
    if at.symbol('Z').is_some() {
        shape.zone = true;
        // The layout `Z07:00` requests a zone.
        if example {
            at.0 = at.0.trim_start_matches(|c: char| c.is_ascii_digit() || c == ':');
        }
    } else if let Some(sign) = at.0.chars().next().filter(|c| matches!(c, '+' | '-')) {
        shape.zone = true;
        at.symbol(sign)?;
        let hours = at.digits(2, 2)?;
        let _ = at.symbol(':');
        let minutes = at.digits(0, 2).unwrap_or(0);
        if !example && (hours > 18 || minutes > 59) {
            return None;
        }
        offset = (hours * 60 + minutes) * if sign == '-' { -1 } else { 1 };
    }
    Some((ms, offset))
}

fn pad(number: i64, width: usize) -> String {
    format!("{}{:0width$}", if number < 0 { "-" } else { "" }, number.abs())
}

fn zone(date: &Date, zulu: bool) -> String {
    if zulu && date.offset_minutes == 0 {
        return "Z".to_owned();
    }
    let sign = if date.offset_minutes < 0 { '-' } else { '+' };
    let minutes = date.offset_minutes.abs();
    format!("{sign}{:02}:{:02}", minutes / 60, minutes % 60)
}

/// Formats a date in a shape.
pub(super) fn write(date: &Date, shape: &Shape) -> String {
    let (year, month, day) = date.civil();
    let ms = date.day_ms();
    let mut out = String::new();
    if shape.date {
        out += &format!("{}-{month:02}-{day:02}", pad(year, 4));
    }
    if shape.time && shape.date {
        out.push(shape.separator);
    }
    if shape.time {
        out += &format!("{:02}:{:02}", ms / 3_600_000, ms / 60_000 % 60);
    }
    if shape.seconds && shape.time {
        out += &format!(":{:02}", ms / 1000 % 60);
        if shape.fraction && ms % 1000 != 0 {
            out += format!(".{:03}", ms % 1000).trim_end_matches('0');
        }
    }
    if shape.zone && shape.time {
        out += &zone(date, true);
    }
    out
}

/// Formats a date; an unknown format means the default shape.
pub(super) fn format(date: &Date, format: &str) -> String {
    match (format.contains('%'), parse_with(format, true)) {
        (false, Some((_, shape))) => write(date, &shape),
        _ => match Format::read(format) {
            Some(format) => format.write(date),
            None => write(date, &DEFAULT),
        },
    }
}

/// Parses a date in a format. If the format is an example, any known shape is accepted.
pub(super) fn parse_in(text: &str, format: &str) -> Option<Date> {
    match (format.contains('%'), parse_with(format, true)) {
        (false, Some(_)) => parse(text).map(|(date, _)| date),
        _ => Format::read(format)?.parse(text),
    }
}

pub(super) const WEEKDAYS: [&str; 7] =
    ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

/// Returns the day of the week; 0 is Sunday.
pub(super) fn weekday(date: &Date) -> usize {
    (date.local_ms().div_euclid(DAY_MS) + 4).rem_euclid(7) as usize
}
