//! `_TIMESERIES(document, options)`: returns the points of a time series that a document packs into an array.
//!
//! ```text
//! regular    {"ts_start": 1000, "ts_end": 1020, "ts_interval": 10, "ts_data": [5, [6, 7]]}
//!            [{"_t": 1000, "_v0": 5}, {"_t": 1010, "_v0": 6, "_v1": 7}]
//! irregular  {"ts_start": 1000, "ts_end": 1020, "ts_data": [[1000, 5], [1003, 6, 7]]}
//! ```
//!
//! Options: `ts_data`, `ts_interval`, `ts_start` and `ts_end` are paths in the document; `ts_ranges` selects times, and
//! `ts_project` selects values.

use super::object::at_path;
use super::{Function, open};
use crate::{Error, Result, Value};

pub(super) const FUNCTIONS: &[Function] = &[open("_TIMESERIES", 1, 2, |args, _| points(args))];

/// The selected times, both ends included; `None` for all.
struct Ranges(Option<Vec<(i64, i64)>>);

impl Ranges {
    fn of(value: &Value) -> Ranges {
        let range = |pair: &[Value]| match pair {
            [start, end, ..] => Some((start.as_i64()?, end.as_i64()?)).filter(|(a, b)| a <= b),
            _ => None,
        };
        match value {
            Value::Missing => Ranges(None),
            Value::Array(pair) if pair.first().is_some_and(|first| first.as_f64().is_some()) => {
                Ranges(Some(range(pair).into_iter().collect()))
            }
            Value::Array(all) => {
                let pairs = all.iter().map_while(Value::as_array);
                Ranges(Some(pairs.filter_map(range).collect()))
            }
            _ => Ranges(Some(Vec::new())),
        }
    }

    fn hold(&self, time: i64) -> bool {
        let among = |ranges: &Vec<(i64, i64)>| {
            ranges.iter().any(|(start, end)| (*start..=*end).contains(&time))
        };
        self.0.as_ref().is_none_or(among)
    }

    /// Returns true if any time from `start` to `end` is selected.
    fn meet(&self, start: i64, end: i64) -> bool {
        let among =
            |ranges: &Vec<(i64, i64)>| ranges.iter().any(|(from, to)| *from <= end && start <= *to);
        start <= end && self.0.as_ref().is_none_or(among)
    }
}

/// Returns a point: its time, and the selected values.
fn point(time: i64, values: &[Value], wanted: &Value) -> Value {
    let is_wanted = |at: usize| match wanted {
        Value::Missing => true,
        Value::Array(places) => places.iter().any(|place| place.as_i64() == Some(at as i64)),
        place => place.as_i64() == Some(at as i64),
    };
    let values = values.iter().enumerate().filter(|(at, _)| is_wanted(*at));
    let values = values.map(|(at, value)| (format!("_v{at}"), value.clone()));
    Value::object(std::iter::once(("_t".to_owned(), Value::Int(time))).chain(values))
}

fn points(args: &[Value]) -> Result<Value> {
    let options = args.get(1).cloned().unwrap_or_default();
    if args.len() > 1 && options.as_object().is_none() {
        return Err(Error::execution("the second argument of _TIMESERIES is an object"));
    }
    if args[0].is_missing() {
        return Ok(Value::Missing);
    }
    let member = |name: &str| -> Result<Value> {
        match options.field(name) {
            Value::Missing => Ok(at_path(&args[0], name)),
            Value::String(path) if !path.is_empty() => Ok(at_path(&args[0], &path)),
            _ => Err(Error::execution(format!("{name} of _TIMESERIES is a path"))),
        }
    };
    let (data, interval) = (member("ts_data")?, member("ts_interval")?);
    let (start, end) = (member("ts_start")?.as_i64(), member("ts_end")?.as_i64());
    let interval = match interval {
        Value::Missing => Some(0),
        other => other.as_i64().filter(|interval| *interval >= 0),
    };
    let (Some(data), Some(start), Some(end), Some(interval)) =
        (data.as_array(), start, end, interval)
    else {
        return Ok(Value::Null);
    };
    let ranges = Ranges::of(&options.field("ts_ranges"));
    if !ranges.meet(start, end) {
        return Ok(Value::array(Vec::new()));
    }
    let wanted = options.field("ts_project");
    let of = |(at, value): (usize, &Value)| {
        let (time, values) = match interval {
            0 => {
                let (time, values) = value.as_array()?.split_first()?;
                (time.as_i64()?, values)
            }
            _ => {
                let passed = interval.checked_mul(at as i64)?;
                let values = value.as_array().unwrap_or(std::slice::from_ref(value));
                (start.checked_add(passed)?, values)
            }
        };
        ranges.hold(time).then(|| point(time, values, &wanted))
    };
    Ok(Value::array(data.iter().enumerate().filter_map(of).collect()))
}
