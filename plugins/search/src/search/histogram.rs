//! Histograms with buckets of equal width, and statistics, of the numbers and dates in hits.

use super::facet::number;
use crate::error::{Error, Result};
use nacre_text::{Unit, format_rfc3339};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Maximum number of buckets in a histogram.
const BUCKETS_MAX: usize = 10_000;
/// Largest bucket number that is still exact.
const NUMBER_MAX: f64 = 9e15;

/// A requested histogram.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Histogram {
    /// Numbers: the width of a bucket, and the start of one bucket.
    Numbers { interval: f64, offset: f64 },
    /// Dates.
    Dates(Unit),
}

/// Counts by bucket. The key is the number of intervals from the offset, or the start of the bucket in nanoseconds.
pub type Buckets = BTreeMap<i64, u64>;

impl Histogram {
    /// Parses the histogram of a facet, if it has one.
    ///
    /// # Errors
    /// The interval is neither a positive number nor a unit of time.
    pub fn parse(facet: &Value) -> Result<Option<Histogram>> {
        let (numbers, dates) = (&facet["histogram"], &facet["date_histogram"]);
        match (numbers.is_null(), dates.is_null()) {
            (true, true) => Ok(None),
            (false, false) => {
                Err(Error::request("facet can only contain histogram or date_histogram, not both"))
            }
            (false, true) => {
                let interval = numbers["interval"].as_f64().unwrap_or(0.0);
                let offset = numbers["offset"].as_f64().unwrap_or(0.0);
                if !(interval > 0.0 && interval.is_finite() && offset.is_finite()) {
                    return Err(Error::request("histogram interval must be a positive number"));
                }
                Ok(Some(Histogram::Numbers { interval, offset }))
            }
            (true, false) => {
                let name = dates["interval"].as_str().unwrap_or_default();
                let unit = Unit::parse(name).ok_or_else(|| {
                    Error::request(format!("date_histogram interval is unknown: '{name}'"))
                })?;
                Ok(Some(Histogram::Dates(unit)))
            }
        }
    }

    /// Returns the bucket of a number, or `None` if the histogram does not count numbers or the bucket is out of range.
    pub fn of_number(self, value: f64) -> Option<i64> {
        let Histogram::Numbers { interval, offset } = self else { return None };
        let at = ((value - offset) / interval).floor();
        (at.abs() <= NUMBER_MAX).then_some(at as i64)
    }

    /// Returns the bucket of a date.
    pub fn of_date(self, nanos: i64) -> Option<i64> {
        let Histogram::Dates(unit) = self else { return None };
        unit.start(nanos)
    }

    /// Returns the name of the rows in the result.
    pub fn key(self) -> &'static str {
        match self {
            Histogram::Numbers { .. } => "histogram",
            Histogram::Dates(_) => "date_histogram",
        }
    }

    /// Returns the non-empty buckets in ascending order.
    pub fn rows(self, buckets: &Buckets) -> Vec<Value> {
        let row = |(at, count): (&i64, &u64)| match self {
            Histogram::Numbers { interval, offset } => {
                let bound = |at: i64| number(offset + at as f64 * interval);
                json!({"min": bound(*at), "max": bound(at + 1), "count": count})
            }
            Histogram::Dates(unit) => {
                let mut row = json!({"start": format_rfc3339(*at), "count": count});
                if let Some(end) = unit.end(*at) {
                    row["end"] = format_rfc3339(end).into();
                }
                row
            }
        };
        buckets.iter().map(row).collect()
    }
}

/// Refuses a histogram with too many buckets.
///
/// # Errors
/// There are too many buckets.
pub fn check_buckets(field: &str, buckets: &Buckets) -> Result<()> {
    if buckets.len() <= BUCKETS_MAX {
        return Ok(());
    }
    Err(Error::request(format!(
        "TooManyBuckets over field: `{field}` [more than {BUCKETS_MAX}]: choose a larger interval"
    )))
}

/// Statistics of numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Stats {
    count: u64,
    sum: f64,
    squares: f64,
    min: f64,
    max: f64,
}

impl Stats {
    /// Adds a number.
    pub fn add(&mut self, number: f64) {
        let one =
            Stats { count: 1, sum: number, squares: number * number, min: number, max: number };
        self.merge(&one);
    }

    /// Adds the statistics of other numbers.
    pub fn merge(&mut self, other: &Stats) {
        if self.count == 0 {
            *self = *other;
        } else if other.count > 0 {
            self.count += other.count;
            self.sum += other.sum;
            self.squares += other.squares;
            self.min = self.min.min(other.min);
            self.max = self.max.max(other.max);
        }
    }

    /// Returns the statistics as JSON. Without numbers, these consist of the count only.
    pub fn answer(&self) -> Value {
        if self.count == 0 {
            return json!({"count": 0});
        }
        let count = self.count as f64;
        let avg = self.sum / count;
        // A rounding error may make the result negative.
        let variance = (self.squares / count - avg * avg).max(0.0);
        json!({
            "count": self.count, "min": number(self.min), "max": number(self.max),
            "sum": number(self.sum), "avg": number(avg), "std_deviation": number(variance.sqrt()),
        })
    }
}
