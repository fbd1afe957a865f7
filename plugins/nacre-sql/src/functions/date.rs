//! Functions of dates, as milliseconds since 1970 and as text.

use super::date_format::{self, DAY_MS, DEFAULT, Date, Shape, YEARS, days_from_civil};
use super::{Function, open, strict, too_large};
use crate::env::Context;
use crate::{Result, Value};
use jiff::Timestamp;
use jiff::tz::TimeZoneDatabase;

/// Maximum number of dates in a range.
const RANGE_MAX: usize = 1 << 20;

pub(super) const FUNCTIONS: &[Function] = &[
    open("CLOCK_MILLIS", 0, 0, |_, context| Ok(Value::Int(context.host.now_ms()))),
    open("CLOCK_STR", 0, 1, |args, context| Ok(shown(context.host.now_ms(), args.first()))),
    open("CLOCK_LOCAL", 0, 1, |args, context| Ok(shown(context.host.now_ms(), args.first()))),
    open("CLOCK_UTC", 0, 1, |args, context| Ok(shown(context.host.now_ms(), args.first()))),
    open("CLOCK_TZ", 1, 2, |args, context| {
        Ok(in_zone(context.host.now_ms(), &args[0], args.get(1)))
    }),
    open("NOW_MILLIS", 0, 0, |_, context| Ok(Value::Int(context.statement_ms))),
    open("NOW_STR", 0, 1, |args, context| Ok(shown(context.statement_ms, args.first()))),
    open("NOW_LOCAL", 0, 1, |args, context| Ok(shown(context.statement_ms, args.first()))),
    open("NOW_UTC", 0, 1, |args, context| Ok(shown(context.statement_ms, args.first()))),
    open("NOW_TZ", 1, 2, |args, context| Ok(in_zone(context.statement_ms, &args[0], args.get(1)))),
    strict("MILLIS", 1, 1, str_to_millis),
    strict("STR_TO_MILLIS", 1, 2, str_to_millis),
    strict("MILLIS_TO_STR", 1, 2, millis_to_str),
    strict("MILLIS_TO_LOCAL", 1, 2, millis_to_str),
    strict("MILLIS_TO_UTC", 1, 2, millis_to_str),
    strict("MILLIS_TO_TZ", 2, 3, millis_to_tz),
    strict("MILLIS_TO_ZONE_NAME", 2, 3, millis_to_tz),
    strict("STR_TO_UTC", 1, 2, |args, _| {
        Ok(of_text(&args[0], |date, shape| date_format::write(&Date::utc(date.ms), shape).into()))
    }),
    strict("STR_TO_TZ", 2, 3, str_to_tz),
    strict("STR_TO_ZONE_NAME", 2, 3, str_to_tz),
    strict("DATE_FORMAT_STR", 2, 3, |args, _| {
        let (Some(text), Some(last)) = (args[0].as_str(), args[args.len() - 1].as_str()) else {
            return Ok(Value::Null);
        };
        // With three arguments, the second is the format of the first.
        let date = match args.len() {
            2 => date_format::parse(text).map(|(date, _)| date),
            _ => args[1].as_str().and_then(|format| date_format::parse_in(text, format)),
        };
        Ok(date.map_or(Value::Null, |date| date_format::format(&date, last).into()))
    }),
    strict("DATE_ADD_MILLIS", 3, 3, |args, _| {
        let added = of_millis(&args[0]).zip(args[1].as_i64()).zip(args[2].as_str());
        let added = added.and_then(|((date, count), part)| add(&date, count, part));
        Ok(added.map_or(Value::Null, |date| Value::Int(date.ms)))
    }),
    strict("DATE_ADD_STR", 3, 3, |args, _| {
        Ok(match (args[1].as_i64(), args[2].as_str()) {
            (Some(count), Some(part)) => of_text(&args[0], |date, shape| {
                add(date, count, part)
                    .map_or(Value::Null, |date| date_format::write(&date, shape).into())
            }),
            _ => Value::Null,
        })
    }),
    strict("DATE_DIFF_MILLIS", 3, 3, |args, _| {
        Ok(difference(of_millis(&args[0]), of_millis(&args[1]), &args[2]))
    }),
    strict("DATE_DIFF_STR", 3, 3, |args, _| {
        Ok(difference(text_date(&args[0]), text_date(&args[1]), &args[2]))
    }),
    strict("DATE_DIFF_ABS_MILLIS", 3, 3, |args, _| {
        Ok(magnitude(difference(of_millis(&args[0]), of_millis(&args[1]), &args[2])))
    }),
    strict("DATE_DIFF_ABS_STR", 3, 3, |args, _| {
        Ok(magnitude(difference(text_date(&args[0]), text_date(&args[1]), &args[2])))
    }),
    strict("DATE_PART_MILLIS", 2, 3, |args, _| {
        let mut date = of_millis(&args[0]);
        if let (Some(date), Some(zone)) = (&mut date, args.get(2)) {
            match zone.as_str().and_then(|zone| offset_at(zone, date.ms)) {
                Some(offset) => date.offset_minutes = offset,
                None => return Ok(Value::Null),
            }
        }
        Ok(part_of(date, &args[1]))
    }),
    strict("DATE_PART_STR", 2, 2, |args, _| Ok(part_of(text_date(&args[0]), &args[1]))),
    strict("DATE_RANGE_MILLIS", 3, 4, |args, _| {
        range(args, of_millis(&args[0]), of_millis(&args[1]), &|date| Value::Int(date.ms))
    }),
    strict("DATE_RANGE_STR", 3, 4, |args, _| {
        let shape =
            args[0].as_str().and_then(date_format::parse).map_or(DEFAULT, |(_, shape)| shape);
        range(args, text_date(&args[0]), text_date(&args[1]), &|date| {
            date_format::write(date, &shape).into()
        })
    }),
    strict("DATE_TRUNC_MILLIS", 2, 2, |args, _| {
        let cut = of_millis(&args[0]).zip(args[1].as_str());
        let cut = cut.and_then(|(date, part)| truncate(&date, part));
        Ok(cut.map_or(Value::Null, |date| Value::Int(date.ms)))
    }),
    strict("DATE_TRUNC_STR", 2, 2, |args, _| {
        Ok(match args[1].as_str() {
            Some(part) => of_text(&args[0], |date, shape| {
                truncate(date, part)
                    .map_or(Value::Null, |date| date_format::write(&date, shape).into())
            }),
            None => Value::Null,
        })
    }),
    strict("WEEKDAY_MILLIS", 1, 2, |args, _| {
        let ms = args[0].as_i64().unwrap_or(0);
        let offset =
            args.get(1).map_or(Some(0), |zone| zone.as_str().and_then(|zone| offset_at(zone, ms)));
        Ok(weekday(
            of_millis(&args[0])
                .zip(offset)
                .map(|(date, offset_minutes)| Date { offset_minutes, ..date }),
        ))
    }),
    strict("WEEKDAY_STR", 1, 1, |args, _| Ok(weekday(text_date(&args[0])))),
    strict("DURATION_TO_STR", 1, 2, |args, _| {
        Ok(args[0].as_i64().map_or(Value::Null, |ns| duration_text(ns).into()))
    }),
    strict("STR_TO_DURATION", 1, 1, |args, _| {
        Ok(args[0].as_str().and_then(parse_duration).map_or(Value::Null, Value::Int))
    }),
];

fn of_millis(value: &Value) -> Option<Date> {
    let ms = value.as_f64()?;
    let bound = (*YEARS.end() * 366 * DAY_MS) as f64;
    (ms.abs() < bound).then_some(Date::utc(ms.floor() as i64))
}

fn text_date(value: &Value) -> Option<Date> {
    value.as_str().and_then(date_format::parse).map(|(date, _)| date)
}

fn of_text(value: &Value, compute: impl Fn(&Date, &Shape) -> Value) -> Value {
    let parsed = value.as_str().and_then(date_format::parse);
    parsed.map_or(Value::Null, |(date, shape)| compute(&date, &shape))
}

fn shown_date(date: &Date, format: Option<&Value>) -> Value {
    match format {
        None => date_format::write(date, &DEFAULT).into(),
        Some(Value::Missing) => Value::Missing,
        Some(format) => {
            format.as_str().map_or(Value::Null, |format| date_format::format(date, format).into())
        }
    }
}

fn shown(ms: i64, format: Option<&Value>) -> Value {
    shown_date(&Date::utc(ms), format)
}

/// Returns the offset in minutes east of Greenwich at a time: of `UTC`, `Z`, an offset, or a name such as
/// `Asia/Kolkata`.
fn offset_at(zone: &str, ms: i64) -> Option<i64> {
    if matches!(zone, "UTC" | "Z" | "GMT" | "") {
        return Some(0);
    }
    let example = format!("2000-01-01T00:00:00{zone}");
    if let Some((date, _)) = date_format::parse(&example) {
        return Some(date.offset_minutes);
    }
    let named = TimeZoneDatabase::bundled().get(zone).ok()?;
    // The time zone database ignores the case of names; the language does not.
    let zone = Some(named).filter(|named| named.iana_name() == Some(zone))?;
    let moment = Timestamp::from_millisecond(ms).ok()?;
    Some(i64::from(zone.to_offset(moment).seconds()) / 60)
}

fn in_zone(ms: i64, zone: &Value, format: Option<&Value>) -> Value {
    match zone.as_str().and_then(|zone| offset_at(zone, ms)) {
        Some(offset_minutes) => shown_date(&Date { ms, offset_minutes }, format),
        None if zone.is_missing() => Value::Missing,
        None => Value::Null,
    }
}

fn str_to_millis(args: &[Value], _: &Context<'_>) -> Result<Value> {
    let date = match (args[0].as_str(), args.get(1)) {
        (_, None) => text_date(&args[0]),
        (Some(text), Some(Value::String(format))) => date_format::parse_in(text, format),
        _ => None,
    };
    Ok(date.map_or(Value::Null, |date| Value::Int(date.ms)))
}

fn millis_to_str(args: &[Value], _: &Context<'_>) -> Result<Value> {
    Ok(of_millis(&args[0]).map_or(Value::Null, |date| shown_date(&date, args.get(1))))
}

fn millis_to_tz(args: &[Value], _: &Context<'_>) -> Result<Value> {
    Ok(of_millis(&args[0]).map_or(Value::Null, |date| in_zone(date.ms, &args[1], args.get(2))))
}

fn str_to_tz(args: &[Value], _: &Context<'_>) -> Result<Value> {
    let Some(zone) = args[1].as_str() else { return Ok(Value::Null) };
    Ok(of_text(&args[0], |date, shape| match offset_at(zone, date.ms) {
        Some(offset_minutes) => {
            date_format::write(&Date { ms: date.ms, offset_minutes }, shape).into()
        }
        None => Value::Null,
    }))
}

/// Returns the milliseconds of a part with a fixed length.
fn fixed_ms(part: &str) -> Option<i64> {
    Some(match part {
        "week" => 7 * DAY_MS,
        "day" => DAY_MS,
        "hour" => 3_600_000,
        "minute" => 60_000,
        "second" => 1000,
        "millisecond" => 1,
        _ => return None,
    })
}

/// Returns the number of months of a part that consists of months.
fn months(part: &str) -> Option<i64> {
    Some(match part {
        "millennium" => 12_000,
        "century" => 1200,
        "decade" => 120,
        "year" => 12,
        "quarter" => 3,
        "month" => 1,
        _ => return None,
    })
}

fn add(date: &Date, count: i64, part: &str) -> Option<Date> {
    let part = part.to_ascii_lowercase();
    let local = match (fixed_ms(&part), months(&part)) {
        (Some(length), _) => date.local_ms().checked_add(count.checked_mul(length)?)?,
        (None, Some(length)) => {
            let (year, month, day) = date.civil();
            let month = (year * 12 + month - 1).checked_add(count.checked_mul(length)?)?;
            let year = month.div_euclid(12);
            if !YEARS.contains(&year) {
                return None;
            }
            // The 31st of a shorter month becomes a day of the next month.
            let days = days_from_civil(year, month.rem_euclid(12) + 1, 1) + day - 1;
            days * DAY_MS + date.day_ms()
        }
        _ => return None,
    };
    let moved = Date::from_local(local, date.offset_minutes);
    (local.abs() < *YEARS.end() * 366 * DAY_MS).then_some(moved)
}

/// Returns the number of boundaries of a part between two dates; for weeks, the number of whole weeks.
fn difference(a: Option<Date>, b: Option<Date>, part: &Value) -> Value {
    let (Some(a), Some(b), Some(part)) = (a, b, part.as_str()) else { return Value::Null };
    let part = part.to_ascii_lowercase();
    let (a, b) = (Date::utc(a.local_ms()), Date::utc(b.local_ms()));
    Value::Int(match part.as_str() {
        "week" => (a.ms.div_euclid(DAY_MS) - b.ms.div_euclid(DAY_MS)) / 7,
        _ => match (fixed_ms(&part), months(&part)) {
            (Some(length), _) => a.ms.div_euclid(length) - b.ms.div_euclid(length),
            (None, Some(length)) => {
                let month = |date: &Date| date.civil().0 * 12 + date.civil().1 - 1;
                month(&a).div_euclid(length) - month(&b).div_euclid(length)
            }
            _ => return Value::Null,
        },
    })
}

fn magnitude(value: Value) -> Value {
    value.as_i64().map_or(Value::Null, |number| Value::Int(number.abs()))
}

fn truncate(date: &Date, part: &str) -> Option<Date> {
    let part = part.to_ascii_lowercase();
    let local = date.local_ms();
    let cut = match (fixed_ms(&part), months(&part)) {
        // Weeks begin on Sunday.
        _ if part == "week" => {
            (local.div_euclid(DAY_MS) - date_format::weekday(date) as i64) * DAY_MS
        }
        (Some(length), _) => local.div_euclid(length) * length,
        (None, Some(length)) => {
            let (year, month, _) = date.civil();
            let month = (year * 12 + month - 1).div_euclid(length) * length;
            days_from_civil(month.div_euclid(12), month.rem_euclid(12) + 1, 1) * DAY_MS
        }
        _ => return None,
    };
    Some(Date::from_local(cut, date.offset_minutes))
}

/// Returns the day of the year, from 1.
pub(super) fn day_of_year(date: &Date) -> i64 {
    date.local_ms().div_euclid(DAY_MS) - days_from_civil(date.civil().0, 1, 1) + 1
}

/// Returns year and week according to ISO 8601: week 1 has the first Thursday.
fn iso_week(date: &Date) -> (i64, i64) {
    let day = date.local_ms().div_euclid(DAY_MS);
    let thursday = day - (date_format::weekday(date) as i64 + 6) % 7 + 3;
    let year = date_format::civil_from_days(thursday).0;
    (year, (thursday - days_from_civil(year, 1, 1)) / 7 + 1)
}

fn part_of(date: Option<Date>, part: &Value) -> Value {
    let (Some(date), Some(part)) = (date, part.as_str()) else { return Value::Null };
    let (year, month, day) = date.civil();
    let ms = date.day_ms();
    Value::Int(match part.to_ascii_lowercase().as_str() {
        "millennium" => year / 1000 + 1,
        "century" => year / 100 + 1,
        "decade" => year / 10,
        "year" => year,
        "quarter" => (month + 2) / 3,
        "month" => month,
        "week" => (day_of_year(&date) + 6) / 7,
        "day" => day,
        "hour" => ms / 3_600_000,
        "minute" => ms / 60_000 % 60,
        "second" => ms / 1000 % 60,
        "millisecond" => ms % 1000,
        "day_of_year" | "doy" => day_of_year(&date),
        "day_of_week" | "dow" => date_format::weekday(&date) as i64,
        "iso_week" => iso_week(&date).1,
        "iso_year" => iso_week(&date).0,
        "iso_dow" => match date_format::weekday(&date) {
            0 => 7,
            day => day as i64,
        },
        "timezone" => date.offset_minutes * 60,
        "timezone_hour" => date.offset_minutes / 60,
        "timezone_minute" => date.offset_minutes % 60,
        _ => return Value::Null,
    })
}

/// Returns the dates from `start`, inclusive, to `end`, exclusive.
fn range(
    args: &[Value],
    start: Option<Date>,
    end: Option<Date>,
    show: &dyn Fn(&Date) -> Value,
) -> Result<Value> {
    let step = args.get(3).map_or(Some(1), Value::as_i64);
    let (Some(start), Some(end), Some(part), Some(step)) = (start, end, args[2].as_str(), step)
    else {
        return Ok(Value::Null);
    };
    let mut dates = Vec::new();
    if fixed_ms(&part.to_ascii_lowercase()).or(months(&part.to_ascii_lowercase())).is_none() {
        return Ok(Value::Null);
    }
    if step == 0 {
        return Ok(dates.into());
    }
    // Each date is one step after the previous one, so a day that a month lacks shifts all following dates.
    let mut next = Some(start);
    while let Some(date) = next {
        if if step > 0 { date.ms >= end.ms } else { date.ms <= end.ms } {
            break;
        }
        if dates.len() >= RANGE_MAX {
            return Err(too_large());
        }
        dates.push(show(&date));
        next = add(&date, step, part);
    }
    Ok(dates.into())
}

fn weekday(date: Option<Date>) -> Value {
    date.map_or(Value::Null, |date| date_format::WEEKDAYS[date_format::weekday(&date)].into())
}

/// Units of durations in nanoseconds, largest first.
const UNITS: [(&str, i64); 6] = [
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("µs", 1000),
    ("ns", 1),
];

fn duration_text(ns: i64) -> String {
    let sign = if ns < 0 { "-" } else { "" };
    let magnitude = ns.unsigned_abs();
    if magnitude < 1_000_000_000 {
        let small = UNITS[3..].iter().find(|(_, length)| magnitude >= *length as u64);
        return small.map_or("0s".to_owned(), |(unit, length)| {
            format!("{sign}{}{unit}", magnitude as f64 / *length as f64)
        });
    }
    let seconds = (magnitude % 60_000_000_000) as f64 / 1e9;
    let (hours, minutes) = (magnitude / 3_600_000_000_000, magnitude / 60_000_000_000 % 60);
    match (hours, minutes) {
        (0, 0) => format!("{sign}{seconds}s"),
        (0, _) => format!("{sign}{minutes}m{seconds}s"),
        _ => format!("{sign}{hours}h{minutes}m{seconds}s"),
    }
}

fn parse_duration(text: &str) -> Option<i64> {
    let (negative, mut rest) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
    if rest.is_empty() {
        return None;
    }
    let mut total = 0.0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number: f64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let end = rest.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(rest.len());
        let unit = rest[..end].replace("us", "µs");
        let (_, length) = UNITS.iter().find(|(name, _)| *name == unit)?;
        total += number * *length as f64;
        rest = &rest[end..];
    }
    let total = if negative { -total } else { total };
    (total.abs() < 9.2e18).then_some(total as i64)
}
