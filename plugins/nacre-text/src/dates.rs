//! Dates: nanoseconds since 1970 in UTC, and the layouts in which they are written.

use crate::{Error, Result};

const NANOS: i64 = 1_000_000_000;
/// Nanoseconds in a day.
pub const DAY: i64 = 86_400 * NANOS;
const MONTHS: [&str; 12] = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
];
const DAYS: [&str; 7] =
    ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"];

/// A parser of dates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DateParser {
    /// Uses the first layout that matches; each is a list of elements.
    Layouts(Vec<Vec<Element>>),
    /// A number of units since 1970; the value is the number of units in a second.
    Unix(i64),
}

/// An element of a layout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Element {
    /// Literal text.
    Text(String),
    /// Four digits.
    Year,
    /// Two digits; 69 to 99 mean 1969 to 1999.
    ShortYear,
    /// A month: as digits (at least this many), or as a name (full, or its first three letters).
    Month(usize),
    /// The full name of a month.
    MonthName,
    /// The first three letters of the name of a month.
    MonthShort,
    /// A day of the month: at least this many digits; spaces may precede it.
    Day(usize),
    /// The full name of a day.
    DayName,
    /// The first three letters of the name of a day.
    DayShort,
    /// An hour from 0 to 23.
    Hour,
    /// An hour from 1 to 12: at least this many digits.
    Hour12(usize),
    /// A minute: at least this many digits.
    Minute(usize),
    /// A second: at least this many digits.
    Second(usize),
    /// A point or a comma and digits; true if it is optional.
    Fraction(bool),
    /// `AM` or `PM`, in either case.
    Half,
    /// A time zone.
    Zone {
        /// True if `Z` is allowed for UTC.
        z: bool,
        /// True if a colon separates hours and minutes.
        colon: bool,
        /// True if minutes follow.
        minutes: bool,
    },
    /// Letters such as `UTC` or `CET`, interpreted as UTC.
    ZoneName,
}

impl DateParser {
    /// Returns the parser `dateTimeOptional`.
    #[must_use]
    pub fn optional() -> DateParser {
        let layouts = [
            "2006-01-02T15:04:05Z07:00",
            "2006-01-02T15:04:05",
            "2006-01-02 15:04:05",
            "2006-01-02 15:04:05 -0700",
            "2006-01-02",
        ];
        DateParser::Layouts(layouts.iter().map(|layout| go(layout)).collect())
    }

    /// Returns the nanoseconds since 1970 of a date; `None` if the text is not a date.
    #[must_use]
    pub fn parse(&self, text: &str) -> Option<i64> {
        match self {
            DateParser::Layouts(layouts) => {
                // Most texts are not dates, and fail at the first element of each layout.
                layouts.iter().find_map(|layout| parse(layout, text))
            }
            DateParser::Unix(per_second) => {
                text.parse::<i64>().ok()?.checked_mul(NANOS / per_second)
            }
        }
    }
}

/// Returns the nanoseconds since 1970 of a date in RFC 3339; `None` if the text is not such a date.
#[must_use]
pub fn parse_rfc3339(text: &str) -> Option<i64> {
    parse(&go("2006-01-02T15:04:05Z07:00"), text)
}

/// Formats a date in RFC 3339, in UTC, with as many fractional digits as needed.
#[must_use]
pub fn format_rfc3339(nanos: i64) -> String {
    let (seconds, nanos) = (nanos.div_euclid(NANOS), nanos.rem_euclid(NANOS));
    let (days, second) = (seconds.div_euclid(86400), seconds.rem_euclid(86400));
    let (year, month, day) = civil(days);
    let mut text = format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}",
        second / 3600,
        second / 60 % 60,
        second % 60
    );
    if nanos != 0 {
        text.push_str(format!(".{nanos:09}").trim_end_matches('0'));
    }
    text.push('Z');
    text
}

/// Returns the days from 1970 to a date of the Gregorian calendar (Hinnant, "chrono-compatible low-level date
/// algorithms").
pub fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year - era * 400;
    let of_year = (153 * (month + if month > 2 { -3 } else { 9 }) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// Returns year, month and day of the Gregorian calendar for a number of days since 1970.
pub fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days - era * 146_097;
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

/// Parses a layout in Go's notation, with the date 2006-01-02 15:04:05 -0700 as an example.
#[must_use]
pub fn go(layout: &str) -> Vec<Element> {
    const TABLE: [(&str, Element); 34] = [
        ("January", Element::MonthName),
        ("Jan", Element::MonthShort),
        ("Monday", Element::DayName),
        ("Mon", Element::DayShort),
        ("MST", Element::ZoneName),
        ("2006", Element::Year),
        ("01", Element::Month(2)),
        ("02", Element::Day(2)),
        ("_2", Element::Day(1)),
        ("03", Element::Hour12(2)),
        ("04", Element::Minute(2)),
        ("05", Element::Second(2)),
        ("06", Element::ShortYear),
        ("15", Element::Hour),
        ("PM", Element::Half),
        ("pm", Element::Half),
        ("Z07:00", Element::Zone { z: true, colon: true, minutes: true }),
        ("Z0700", Element::Zone { z: true, colon: false, minutes: true }),
        ("Z07", Element::Zone { z: true, colon: false, minutes: false }),
        ("-07:00", Element::Zone { z: false, colon: true, minutes: true }),
        ("-0700", Element::Zone { z: false, colon: false, minutes: true }),
        ("-07", Element::Zone { z: false, colon: false, minutes: false }),
        (".000000000", Element::Fraction(false)),
        (".000000", Element::Fraction(false)),
        (".000", Element::Fraction(false)),
        (".999999999", Element::Fraction(true)),
        (".999999", Element::Fraction(true)),
        (".999", Element::Fraction(true)),
        (",999", Element::Fraction(true)),
        ("1", Element::Month(1)),
        ("2", Element::Day(1)),
        ("3", Element::Hour12(1)),
        ("4", Element::Minute(1)),
        ("5", Element::Second(1)),
    ];
    let mut elements = Vec::new();
    let mut rest = layout;
    'next: while let Some(first) = rest.chars().next() {
        for (name, element) in &TABLE {
            if let Some(after) = rest.strip_prefix(name) {
                elements.push(element.clone());
                rest = after;
                continue 'next;
            }
        }
        push_text(&mut elements, first);
        rest = &rest[first.len_utf8()..];
    }
    elements
}

/// Parses a layout with percent signs, as for `strftime`.
///
/// # Errors
/// Fails for an unknown letter.
pub fn percent(layout: &str) -> Result<Vec<Element>> {
    let mut elements = Vec::new();
    let mut characters = layout.chars();
    while let Some(character) = characters.next() {
        if character != '%' {
            push_text(&mut elements, character);
            continue;
        }
        let element = match characters.next() {
            Some('Y') => Element::Year,
            Some('y') => Element::ShortYear,
            Some('m') => Element::Month(2),
            Some('B') => Element::MonthName,
            Some('b') => Element::MonthShort,
            Some('d') => Element::Day(2),
            Some('A') => Element::DayName,
            Some('a') => Element::DayShort,
            Some('H') => Element::Hour,
            Some('I' | 'l') => Element::Hour12(1),
            Some('M') => Element::Minute(2),
            Some('S') => Element::Second(2),
            Some('N') => Element::Fraction(false),
            Some('p' | 'P') => Element::Half,
            Some('z') => {
                let colon = characters.as_str().starts_with(':');
                if colon {
                    characters.nth(1);
                }
                Element::Zone { z: true, colon, minutes: true }
            }
            Some('Z') => Element::ZoneName,
            Some('%') => Element::Text("%".into()),
            other => {
                let other = other.map(String::from).unwrap_or_default();
                return Err(Error::new(format!(
                    "invalid format string, unknown format specifier: {other}"
                )));
            }
        };
        elements.push(element);
    }
    Ok(elements)
}

/// Parses a layout of letters (`yyyy-MM-dd'T'HH:mm:ss`).
///
/// # Errors
/// Fails for an unknown letter, or a quote without an end.
pub fn iso(layout: &str) -> Result<Vec<Element>> {
    let mut elements = Vec::new();
    let characters: Vec<char> = layout.chars().collect();
    let mut at = 0;
    while at < characters.len() {
        let character = characters[at];
        if character == '\'' {
            let end = characters[at + 1..].iter().position(|c| *c == '\'');
            let Some(end) = end else {
                return Err(Error::new(
                    "invalid format string, expected text literal delimiter: '",
                ));
            };
            for literal in &characters[at + 1..at + 1 + end] {
                push_text(&mut elements, *literal);
            }
            at += end + 2;
            continue;
        }
        if !character.is_ascii_alphabetic() {
            push_text(&mut elements, character);
            at += 1;
            continue;
        }
        let count = characters[at..].iter().take_while(|c| **c == character).count();
        let element = match (character, count) {
            ('y', 4) | ('u', 4) => Element::Year,
            ('y', 2) | ('u', 2) => Element::ShortYear,
            ('M', 1 | 2) => Element::Month(count),
            ('M', 3) => Element::MonthShort,
            ('M', 4) => Element::MonthName,
            ('d', 1 | 2) => Element::Day(count),
            ('E', 1..=3) => Element::DayShort,
            ('E', 4) => Element::DayName,
            ('H', 1 | 2) => Element::Hour,
            ('h', 1 | 2) => Element::Hour12(count),
            ('m', 1 | 2) => Element::Minute(count),
            ('s', 1 | 2) => Element::Second(count),
            ('S', _) => {
                // The point belongs to the fraction.
                if let Some(Element::Text(text)) = elements.last_mut()
                    && text.ends_with(['.', ','])
                {
                    text.pop();
                }
                Element::Fraction(false)
            }
            ('a', 1) => Element::Half,
            ('V' | 'z', _) => Element::ZoneName,
            ('Z', 1..=3) | ('x', 2) => Element::Zone { z: false, colon: false, minutes: true },
            ('Z', 5) | ('X', 3) => Element::Zone { z: true, colon: true, minutes: true },
            ('x', 3) => Element::Zone { z: false, colon: true, minutes: true },
            ('X', 2) => Element::Zone { z: true, colon: false, minutes: true },
            ('x', 1) => Element::Zone { z: false, colon: false, minutes: false },
            ('X', 1) => Element::Zone { z: true, colon: false, minutes: false },
            _ => {
                return Err(Error::new(format!(
                    "invalid format string, unknown format specifier: {character}"
                )));
            }
        };
        elements.push(element);
        at += count;
    }
    Ok(elements)
}

fn push_text(elements: &mut Vec<Element>, character: char) {
    match elements.last_mut() {
        Some(Element::Text(text)) => text.push(character),
        _ => elements.push(Element::Text(character.into())),
    }
}

#[derive(Default)]
struct Parts {
    year: i64,
    month: i64,
    day: i64,
    hour: i64,
    minute: i64,
    second: i64,
    nanos: i64,
    offset: i64,
    afternoon: Option<bool>,
}

fn parse(layout: &[Element], text: &str) -> Option<i64> {
    let mut parts = Parts { year: 1970, month: 1, day: 1, ..Parts::default() };
    let mut rest = text;
    for (at, element) in layout.iter().enumerate() {
        rest = take(element, rest, &mut parts)?;
        // A fraction of the second is accepted even if the layout does not have it.
        let second = matches!(element, Element::Second(_));
        if second && !matches!(layout.get(at + 1), Some(Element::Fraction(_))) {
            rest = fraction(rest, &mut parts).unwrap_or(rest);
        }
    }
    if !rest.is_empty() {
        return None;
    }
    if let Some(afternoon) = parts.afternoon {
        parts.hour = parts.hour % 12 + if afternoon { 12 } else { 0 };
    }
    let leap = parts.year % 4 == 0 && (parts.year % 100 != 0 || parts.year % 400 == 0);
    let length = match parts.month {
        2 => 28 + i64::from(leap),
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    let valid = (1..=length).contains(&parts.day)
        && parts.hour < 24
        && parts.minute < 60
        && parts.second < 60;
    if !valid {
        return None;
    }
    let seconds = days(parts.year, parts.month, parts.day) * 86400
        + parts.hour * 3600
        + parts.minute * 60
        + parts.second
        - parts.offset;
    seconds.checked_mul(NANOS)?.checked_add(parts.nanos)
}

fn take<'a>(element: &Element, text: &'a str, parts: &mut Parts) -> Option<&'a str> {
    let number = |least: usize, most: usize| digits(text, least, most);
    match element {
        Element::Text(expected) => text.strip_prefix(&**expected),
        Element::Year => set(&mut parts.year, number(4, 4)?),
        Element::ShortYear => {
            let (year, rest) = number(2, 2)?;
            parts.year = if year >= 69 { 1900 + year } else { 2000 + year };
            Some(rest)
        }
        Element::Month(least) => set(&mut parts.month, number(*least, 2)?),
        Element::MonthName => set(&mut parts.month, name(text, &MONTHS, false)?),
        Element::MonthShort => set(&mut parts.month, name(text, &MONTHS, true)?),
        Element::Day(least) => {
            let text = if *least == 1 { text.trim_start_matches(' ') } else { text };
            set(&mut parts.day, digits(text, *least, 2)?)
        }
        Element::DayName => name(text, &DAYS, false).map(|(_, rest)| rest),
        Element::DayShort => name(text, &DAYS, true).map(|(_, rest)| rest),
        Element::Hour => set(&mut parts.hour, number(1, 2)?),
        Element::Hour12(least) => {
            let (hour, rest) = number(*least, 2)?;
            parts.hour = hour;
            (1..=12).contains(&hour).then_some(rest)
        }
        Element::Minute(least) => set(&mut parts.minute, number(*least, 2)?),
        Element::Second(least) => set(&mut parts.second, number(*least, 2)?),
        Element::Fraction(optional) => fraction(text, parts).or_else(|| optional.then_some(text)),
        Element::Half => {
            let half = text.get(..2)?;
            parts.afternoon = Some(match half {
                "AM" | "am" => false,
                "PM" | "pm" => true,
                _ => return None,
            });
            Some(&text[2..])
        }
        Element::Zone { z, colon, minutes } => {
            if *z && let Some(rest) = text.strip_prefix('Z') {
                return Some(rest);
            }
            let sign = match text.as_bytes().first()? {
                b'+' => 1,
                b'-' => -1,
                _ => return None,
            };
            let (hours, mut rest) = digits(&text[1..], 2, 2)?;
            let mut of_hour = 0;
            if *minutes {
                if *colon {
                    rest = rest.strip_prefix(':')?;
                }
                (of_hour, rest) = digits(rest, 2, 2)?;
            }
            parts.offset = sign * (hours * 3600 + of_hour * 60);
            (hours <= 24 && of_hour < 60).then_some(rest)
        }
        Element::ZoneName => {
            let length = text.bytes().take_while(u8::is_ascii_uppercase).count();
            (length >= 3).then(|| &text[length..])
        }
    }
}

fn set<'a>(part: &mut i64, (value, rest): (i64, &'a str)) -> Option<&'a str> {
    *part = value;
    Some(rest)
}

fn digits(text: &str, least: usize, most: usize) -> Option<(i64, &str)> {
    let count = text.bytes().take(most).take_while(u8::is_ascii_digit).count();
    if count < least {
        return None;
    }
    Some((text[..count].parse().ok()?, &text[count..]))
}

fn name<'a>(text: &'a str, names: &[&str], short: bool) -> Option<(i64, &'a str)> {
    for (at, name) in names.iter().enumerate() {
        let length = if short { 3 } else { name.len() };
        if text.get(..length).is_some_and(|head| head.eq_ignore_ascii_case(&name[..length])) {
            return Some((i64::try_from(at).ok()? + 1, &text[length..]));
        }
    }
    None
}

fn fraction<'a>(text: &'a str, parts: &mut Parts) -> Option<&'a str> {
    let rest = text.strip_prefix(['.', ','])?;
    let count = rest.bytes().take_while(u8::is_ascii_digit).count();
    if count == 0 {
        return None;
    }
    let kept = format!("{:0<9}", &rest[..count.min(9)]);
    parts.nanos = kept.parse().ok()?;
    Some(&rest[count..])
}
