//! Date formats as lists of parts: names (`DD-MON-YYYY`), percent letters (`%Y/%m/%d`), and layouts that show the time
//! 15:04:05 of January 2, 2006.

use super::date_format::{DAY_MS, Date, WEEKDAYS, days_from_civil, days_in_month, weekday};

/// A part of a date.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Part {
    Year,
    YearOfCentury,
    Month,
    Day,
    Hour,
    HourOfTwelve,
    Minute,
    Second,
    Millisecond,
    /// With its point, without trailing zeros.
    Fraction,
    HalfOfDay,
    DayOfYear,
    Quarter,
    Epoch,
    MonthName(Case),
    MonthShort(Case),
    DayName(Case),
    DayShort(Case),
    /// The flags: with a colon; with `Z` for UTC.
    Zone(bool, bool),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Case {
    Title,
    Upper,
}

enum Piece {
    Text(char),
    /// A part; the flag pads numbers with zeros.
    Part(Part, bool),
}

type Table = &'static [(&'static str, Part, bool)];

/// Names in an order in which longer names precede their prefixes.
const NAMES: Table = &[
    ("YYYY", Part::Year, true),
    ("YY", Part::YearOfCentury, true),
    ("HH24", Part::Hour, true),
    ("HH12", Part::HourOfTwelve, true),
    ("HH", Part::HourOfTwelve, true),
    ("hh", Part::Hour, true),
    ("MI", Part::Minute, true),
    ("mm", Part::Minute, true),
    ("MONTH", Part::MonthName(Case::Upper), true),
    ("Month", Part::MonthName(Case::Title), true),
    ("MON", Part::MonthShort(Case::Upper), true),
    ("Mon", Part::MonthShort(Case::Title), true),
    ("MM", Part::Month, true),
    ("DAY", Part::DayName(Case::Upper), true),
    ("Day", Part::DayName(Case::Title), true),
    ("DY", Part::DayShort(Case::Upper), true),
    ("Dy", Part::DayShort(Case::Title), true),
    ("DD", Part::Day, true),
    ("SS", Part::Second, true),
    ("sss", Part::Millisecond, true),
    ("ss", Part::Second, true),
    ("s", Part::Millisecond, true),
    ("TZD", Part::Zone(true, true), true),
    ("AM", Part::HalfOfDay, true),
    ("PM", Part::HalfOfDay, true),
    ("pp", Part::HalfOfDay, true),
];

const LAYOUT: Table = &[
    ("2006", Part::Year, true),
    ("January", Part::MonthName(Case::Title), true),
    ("Jan", Part::MonthShort(Case::Title), true),
    ("Monday", Part::DayName(Case::Title), true),
    ("Mon", Part::DayShort(Case::Title), true),
    ("Z07:00", Part::Zone(true, true), true),
    ("Z0700", Part::Zone(false, true), true),
    ("-07:00", Part::Zone(true, false), true),
    ("-0700", Part::Zone(false, false), true),
    (".000", Part::Millisecond, true),
    (".999", Part::Fraction, true),
    ("15", Part::Hour, true),
    ("01", Part::Month, true),
    ("02", Part::Day, true),
    ("03", Part::HourOfTwelve, true),
    ("04", Part::Minute, true),
    ("05", Part::Second, true),
    ("06", Part::YearOfCentury, true),
    ("PM", Part::HalfOfDay, true),
    ("1", Part::Month, false),
    ("2", Part::Day, false),
    ("3", Part::HourOfTwelve, false),
    ("4", Part::Minute, false),
    ("5", Part::Second, false),
];

const PERCENT: Table = &[
    ("Y", Part::Year, true),
    ("y", Part::YearOfCentury, true),
    ("m", Part::Month, true),
    ("d", Part::Day, true),
    ("e", Part::Day, false),
    ("H", Part::Hour, true),
    ("I", Part::HourOfTwelve, true),
    ("M", Part::Minute, true),
    ("S", Part::Second, true),
    ("N", Part::Millisecond, true),
    ("p", Part::HalfOfDay, true),
    ("q", Part::Quarter, true),
    ("j", Part::DayOfYear, true),
    ("s", Part::Epoch, true),
    ("b", Part::MonthShort(Case::Title), true),
    ("h", Part::MonthShort(Case::Title), true),
    ("B", Part::MonthName(Case::Title), true),
    ("a", Part::DayShort(Case::Title), true),
    ("A", Part::DayName(Case::Title), true),
    ("z", Part::Zone(false, false), true),
    ("Z", Part::Zone(true, true), true),
];

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// A parsed format.
pub(super) struct Format(Vec<Piece>);

impl Format {
    /// Parses a format; `None` if it names no part of a date.
    pub fn read(format: &str) -> Option<Format> {
        if format.contains('%') {
            let expanded = format
                .replace("%F", "%Y-%m-%d")
                .replace("%D", "%Y-%m-%d")
                .replace("%T", "%H:%M:%S");
            return Some(Format(percent(&expanded)));
        }
        let layout = ["2006", "15:04", "3:04", "Jan"].iter().any(|mark| format.contains(mark));
        let format = pieces(format, if layout { LAYOUT } else { NAMES });
        format.iter().any(|piece| matches!(piece, Piece::Part(..))).then_some(Format(format))
    }

    /// Formats a date.
    pub fn write(&self, date: &Date) -> String {
        let pieces = self.0.iter().map(|piece| match piece {
            Piece::Text(c) => c.to_string(),
            Piece::Part(part, padded) => text_of(*part, *padded, date),
        });
        pieces.collect()
    }

    /// Parses a date.
    pub fn parse(&self, text: &str) -> Option<Date> {
        let mut fields = Fields { year: 1970, month: 1, day: 1, ..Fields::default() };
        let mut rest = text;
        for piece in &self.0 {
            rest = match piece {
                Piece::Text(c) => rest.strip_prefix(*c)?,
                Piece::Part(part, _) => fields.take(*part, rest)?,
            };
        }
        if rest.is_empty() { fields.date() } else { None }
    }
}

fn percent(format: &str) -> Vec<Piece> {
    let mut out = Vec::new();
    let mut chars = format.chars();
    while let Some(c) = chars.next() {
        let letter = if c == '%' { chars.next() } else { None };
        let part = letter.and_then(|letter| {
            PERCENT
                .iter()
                .find(|(name, ..)| name.starts_with(letter))
                .map(|(_, part, padded)| (*part, *padded))
        });
        out.push(match (part, letter) {
            (Some((part, padded)), _) => Piece::Part(part, padded),
            (None, letter) => Piece::Text(letter.unwrap_or(c)),
        });
    }
    out
}

fn pieces(format: &str, table: Table) -> Vec<Piece> {
    let mut out = Vec::new();
    let mut rest = format;
    while let Some(c) = rest.chars().next() {
        let found = table.iter().find(|(name, ..)| rest.starts_with(name));
        match found {
            Some((name, part, padded)) => {
                out.push(Piece::Part(*part, *padded));
                rest = &rest[name.len()..];
            }
            None => {
                out.push(Piece::Text(c));
                rest = &rest[c.len_utf8()..];
            }
        }
    }
    out
}

fn cased(name: &str, case: Case) -> String {
    if case == Case::Upper { name.to_uppercase() } else { name.to_owned() }
}

fn text_of(part: Part, padded: bool, date: &Date) -> String {
    let (year, month, day) = date.civil();
    let ms = date.day_ms();
    let hour = ms / 3_600_000;
    let number = |number: i64, width: usize| {
        if padded { format!("{number:0width$}") } else { number.to_string() }
    };
    match part {
        Part::Year => number(year, 4),
        Part::YearOfCentury => number(year.rem_euclid(100), 2),
        Part::Month => number(month, 2),
        Part::Day => number(day, 2),
        Part::Hour => number(hour, 2),
        Part::HourOfTwelve => number((hour + 11) % 12 + 1, 2),
        Part::Minute => number(ms / 60_000 % 60, 2),
        Part::Second => number(ms / 1000 % 60, 2),
        Part::Millisecond => number(ms % 1000, 3),
        Part::Fraction if ms % 1000 == 0 => String::new(),
        Part::Fraction => format!(".{:03}", ms % 1000).trim_end_matches('0').to_owned(),
        Part::HalfOfDay => if hour < 12 { "AM" } else { "PM" }.to_owned(),
        Part::DayOfYear => number(super::date::day_of_year(date), 3),
        Part::Quarter => ((month + 2) / 3).to_string(),
        Part::Epoch => date.ms.div_euclid(1000).to_string(),
        Part::MonthName(case) => cased(MONTHS[(month - 1) as usize], case),
        Part::MonthShort(case) => cased(&MONTHS[(month - 1) as usize][..3], case),
        Part::DayName(case) => cased(WEEKDAYS[weekday(date)], case),
        Part::DayShort(case) => cased(&WEEKDAYS[weekday(date)][..3], case),
        Part::Zone(_, true) if date.offset_minutes == 0 => "Z".to_owned(),
        Part::Zone(colon, _) => {
            let sign = if date.offset_minutes < 0 { '-' } else { '+' };
            let minutes = date.offset_minutes.abs();
            format!("{sign}{:02}{}{:02}", minutes / 60, if colon { ":" } else { "" }, minutes % 60)
        }
    }
}

/// The parts of a date that have been parsed.
#[derive(Default)]
struct Fields {
    year: i64,
    month: i64,
    day: i64,
    hour: i64,
    minute: i64,
    second: i64,
    ms: i64,
    afternoon: Option<bool>,
    offset_minutes: i64,
}

/// Parses up to `most` digits. Also returns the rest.
fn digits(text: &str, most: usize) -> Option<(i64, &str)> {
    let count = text.bytes().take(most).take_while(u8::is_ascii_digit).count();
    Some((text[..count].parse().ok()?, &text[count..]))
}

/// Returns which of `names` the text starts with, ignoring case and comparing at most `length` letters. Also returns
/// the rest.
fn named<'a>(text: &'a str, names: &[&str], length: usize) -> Option<(i64, &'a str)> {
    names.iter().zip(0..).find_map(|(name, at)| {
        let name = &name[..length.min(name.len())];
        let start = text.get(..name.len())?;
        start.eq_ignore_ascii_case(name).then(|| (at, &text[name.len()..]))
    })
}

impl Fields {
    /// Parses a part at the start of the text. Returns the rest.
    fn take<'a>(&mut self, part: Part, text: &'a str) -> Option<&'a str> {
        let most = match part {
            Part::Year => 4,
            Part::Millisecond | Part::DayOfYear => 3,
            _ => 2,
        };
        let (field, value, rest) = match part {
            Part::MonthName(_) | Part::MonthShort(_) => {
                let length = if matches!(part, Part::MonthName(_)) { usize::MAX } else { 3 };
                let (at, rest) = named(text, &MONTHS, length)?;
                (&mut self.month, at + 1, rest)
            }
            // The day of the week follows from the other parts.
            Part::DayName(_) => return Some(named(text, &WEEKDAYS, usize::MAX)?.1),
            Part::DayShort(_) => return Some(named(text, &WEEKDAYS, 3)?.1),
            Part::HalfOfDay => {
                let (half, rest) = named(text, &["AM", "PM"], 2)?;
                self.afternoon = Some(half == 1);
                return Some(rest);
            }
            Part::Zone(..) => return self.take_zone(text),
            Part::Fraction => return self.take_fraction(text),
            Part::Quarter | Part::Epoch | Part::DayOfYear => return None,
            Part::YearOfCentury => {
                let (year, rest) = digits(text, most)?;
                (&mut self.year, if year < 69 { 2000 + year } else { 1900 + year }, rest)
            }
            _ => {
                let field = match part {
                    Part::Year => &mut self.year,
                    Part::Month => &mut self.month,
                    Part::Day => &mut self.day,
                    Part::Minute => &mut self.minute,
                    Part::Second => &mut self.second,
                    Part::Millisecond => &mut self.ms,
                    _ => &mut self.hour,
                };
                let (value, rest) = digits(text, most)?;
                (field, value, rest)
            }
        };
        *field = value;
        Some(rest)
    }

    fn take_zone<'a>(&mut self, text: &'a str) -> Option<&'a str> {
        if let Some(rest) = text.strip_prefix('Z') {
            return Some(rest);
        }
        let sign = if text.starts_with('-') { -1 } else { 1 };
        let (hours, rest) = digits(text.strip_prefix(['+', '-'])?, 2)?;
        let (minutes, rest) = digits(rest.strip_prefix(':').unwrap_or(rest), 2)?;
        self.offset_minutes = sign * (hours * 60 + minutes);
        Some(rest)
    }

    fn take_fraction<'a>(&mut self, text: &'a str) -> Option<&'a str> {
        let Some(fraction) = text.strip_prefix('.') else { return Some(text) };
        let (_, rest) = digits(fraction, 9)?;
        let padded = format!("{:0<3}", &fraction[..fraction.len() - rest.len()]);
        self.ms = padded[..3].parse().ok()?;
        Some(rest)
    }

    fn date(&self) -> Option<Date> {
        let hour = match self.afternoon {
            Some(afternoon) => self.hour % 12 + if afternoon { 12 } else { 0 },
            None => self.hour,
        };
        let fits = (1..=12).contains(&self.month)
            && (1..=days_in_month(self.year, self.month)).contains(&self.day)
            && hour < 24
            && self.minute < 60
            && self.second < 60;
        let ms = ((hour * 60 + self.minute) * 60 + self.second) * 1000 + self.ms;
        let days = days_from_civil(self.year, self.month, self.day);
        fits.then(|| Date::from_local(days * DAY_MS + ms, self.offset_minutes))
    }
}
