//! The distribution of a key's values: counted in a sample of documents and kept as a histogram.

use crate::Sarg;
use nacre_sql::ast::Expr;
use nacre_sql::{Value, like_prefix};
use std::collections::BTreeMap;

/// Default number of bins of a histogram; the option `resolution` of UPDATE STATISTICS overrides it. Source: Couchbase has a
/// resolution of 1 %.
const BINS: usize = 100;
const BINS_MAX: usize = 1000;
/// Longer bounds of bins are not kept, because a long text would otherwise be repeated in many bins.
const BOUND_BYTES_MAX: usize = 1024;

/// Shares for unknown values. Source: System R.
const SHARE_OF_A_RANGE: f64 = 1.0 / 3.0;
const SHARE_OF_TWO_BOUNDS: f64 = 0.1;
const SHARE_OF_A_PATTERN: f64 = 0.1;
/// Assumed length of an unknown list.
const LIST_LENGTH: f64 = 10.0;

/// Counts values.
#[derive(Default)]
pub struct Tally {
    missing: u64,
    null: u64,
    values: BTreeMap<Value, u64>,
}

impl Tally {
    /// Adds a value. Returns true if it is new and therefore needs memory.
    pub fn add(&mut self, value: Value) -> bool {
        match value {
            Value::Missing => self.missing += 1,
            Value::Null => self.null += 1,
            value => {
                let count = self.values.entry(value).or_default();
                *count += 1;
                return *count == 1;
            }
        }
        false
    }

    /// Returns the counts for display: `distinct`, `max`, `min`, `missing`, `null`, `values`.
    pub fn summary(&self) -> Value {
        // The limit for bounds of bins applies here too.
        let end = |value: Option<&Value>| {
            value.filter(|value| value.size_bytes() <= BOUND_BYTES_MAX).cloned().unwrap_or_default()
        };
        Value::object([
            ("distinct", Value::Int(self.values.len() as i64)),
            ("max", end(self.values.keys().next_back())),
            ("min", end(self.values.keys().next())),
            ("missing", Value::Int(self.missing as i64)),
            ("null", Value::Int(self.null as i64)),
            ("values", Value::Int(self.values.values().sum::<u64>() as i64)),
        ])
    }

    /// Returns the histogram of the values in a sample of `documents`, in the form that [`Distribution::from_value`] reads.
    ///
    /// `resolution` is the share of the values in a bin, in percent; 1 by default. A value that is more frequent has a bin to
    /// itself.
    pub fn histogram(&self, documents: u64, resolution: Option<f64>) -> Value {
        let wanted = resolution
            .filter(|percent| *percent > 0.0)
            .map_or(BINS, |percent| ((100.0 / percent).ceil() as usize).clamp(1, BINS_MAX));
        let values: u64 = self.values.values().sum();
        let depth = values.div_ceil(wanted as u64).max(1);
        let mut bins: Vec<Value> = Vec::new();
        let mut open: Option<(&Value, &Value, u64, u64)> = None;
        let close = |bin: Option<(&Value, &Value, u64, u64)>, bins: &mut Vec<Value>| {
            let Some((low, high, count, distinct)) = bin else { return };
            if low.size_bytes() + high.size_bytes() > BOUND_BYTES_MAX {
                return;
            }
            let numbers = [count, distinct].map(|number| Value::Int(number as i64));
            let [count, distinct] = numbers;
            bins.push(vec![low.clone(), high.clone(), count, distinct].into());
        };
        for (value, count) in &self.values {
            if *count >= depth {
                close(open.take(), &mut bins);
                close(Some((value, value, *count, 1)), &mut bins);
                continue;
            }
            let (low, sum, distinct) = match open {
                Some((low, _, sum, distinct)) => (low, sum + count, distinct + 1),
                None => (value, *count, 1),
            };
            open = Some((low, value, sum, distinct));
            if sum >= depth {
                close(open.take(), &mut bins);
            }
        }
        close(open, &mut bins);
        let once = self.values.values().filter(|count| **count == 1).count();
        Value::object([
            ("bins", bins.into()),
            ("distinct", Value::Int(self.values.len() as i64)),
            ("missing", Value::Int(self.missing as i64)),
            ("null", Value::Int(self.null as i64)),
            ("once", Value::Int(once as i64)),
            ("sampled", Value::Int(documents as i64)),
            ("values", Value::Int(values as i64)),
        ])
    }
}

/// The frequencies of the values of a key.
#[derive(Clone, Debug, PartialEq)]
pub struct Distribution {
    /// Documents in the sample; at least 1.
    sampled: f64,
    /// Documents of the sample that lack the key.
    missing: f64,
    /// Documents of the sample in which the key is NULL.
    null: f64,
    /// Values in the sample; for an array, possibly more than documents.
    values: f64,
    /// Estimated number of distinct values in all documents.
    distinct: f64,
    bins: Vec<Bin>,
}

/// Values from `low` to `high`.
#[derive(Clone, Debug, PartialEq)]
struct Bin {
    low: Value,
    high: Value,
    count: f64,
    distinct: f64,
}

impl Bin {
    fn from_value(value: &Value) -> Option<Bin> {
        let [low, high, count, distinct] = value.as_array()? else { return None };
        let (count, distinct) = (count.as_f64()?, distinct.as_f64()?);
        let is_sound = count >= 1.0 && distinct >= 1.0 && low <= high;
        is_sound.then(|| Bin { low: low.clone(), high: high.clone(), count, distinct })
    }

    /// Returns the number of values of the bin below `bound`, or up to it if `inclusive`.
    fn below(&self, bound: &Value, inclusive: bool) -> f64 {
        if *bound > self.high || inclusive && *bound == self.high {
            return self.count;
        }
        if *bound < self.low {
            return 0.0;
        }
        let one = self.count / self.distinct;
        if self.low == self.high {
            // The only value equals the bound, which is not part of the range.
            return 0.0;
        }
        let part = match (self.low.as_f64(), self.high.as_f64(), bound.as_f64()) {
            (Some(low), Some(high), Some(bound)) => (bound - low) / (high - low),
            _ => 0.5,
        };
        // The lowest value of the bin exists, so it counts if the bound is above it.
        let least = if *bound > self.low || inclusive { one } else { 0.0 };
        (part * self.count).clamp(least, self.count - if inclusive { 0.0 } else { one })
    }
}

impl Distribution {
    /// Reads the result of [`Tally::histogram`]; `documents` is the number of documents of the keyspace. Returns `None` if it is
    /// damaged.
    pub fn from_value(value: &Value, documents: f64) -> Option<Distribution> {
        let number = |name: &str| {
            value.field(name).as_f64().filter(|number| number.is_finite() && *number >= 0.0)
        };
        let sampled = number("sampled")?.max(1.0);
        let (values, seen, once) = (number("values")?, number("distinct")?, number("once")?);
        let bins: Option<Vec<Bin>> =
            value.field("bins").as_array()?.iter().map(Bin::from_value).collect();
        // The Duj1 estimator of Haas and Stokes: the values seen once indicate how many values were not seen.
        let unseen = (1.0 - (sampled / documents.max(sampled))) * once / values.max(1.0);
        let distinct = (seen / (1.0 - unseen).max(f64::MIN_POSITIVE)).min(documents.max(seen));
        let distinct = distinct.max(1.0);
        let (missing, null) = (number("missing")?, number("null")?);
        Some(Distribution { sampled, missing, null, values, distinct, bins: bins? })
    }

    /// Returns the estimated number of distinct values; at least 1.
    pub fn distinct(&self) -> f64 {
        self.distinct
    }

    /// Returns the share of documents that have the key with a value or NULL.
    pub fn present(&self) -> f64 {
        (self.values + self.null) / self.sampled
    }

    /// Returns the share of documents that satisfy all of `sargs`; for an array index, the number of matching entries per
    /// document.
    pub fn share(&self, sargs: &[Sarg]) -> f64 {
        let (mut low, mut high) = (None, None);
        let mut least = f64::INFINITY;
        for sarg in sargs {
            let share = match sarg {
                Sarg::Equal(value) => self.equal(known(value).as_ref()),
                Sarg::In(list) => self.listed(list),
                Sarg::Above(bound, inclusive) => {
                    low = Some((known(bound), *inclusive));
                    continue;
                }
                Sarg::Below(bound, inclusive) => {
                    high = Some((known(bound), *inclusive));
                    continue;
                }
                Sarg::Like(pattern, escape) => self.like(pattern, escape.as_ref()),
                Sarg::IsNull => self.null / self.sampled,
                Sarg::IsMissing => self.missing / self.sampled,
                Sarg::IsKnown => self.values / self.sampled,
                Sarg::NotMissing => self.present(),
            };
            least = least.min(share);
        }
        if low.is_some() || high.is_some() {
            least = least.min(self.range(low, high));
        }
        if least.is_finite() { least.max(self.floor()) } else { self.present() }
    }

    /// Returns the lowest share: a value that the sample lacks may still occur in the keyspace.
    fn floor(&self) -> f64 {
        0.5 / self.sampled
    }

    fn equal(&self, value: Option<&Value>) -> f64 {
        let Some(value) = value else { return self.values / self.distinct / self.sampled };
        if !value.is_known() {
            // Nothing is equal to NULL or MISSING.
            return 0.0;
        }
        let bin = self.bins.iter().find(|bin| bin.low <= *value && *value <= bin.high);
        bin.map_or(0.0, |bin| bin.count / bin.distinct / self.sampled)
    }

    fn listed(&self, list: &Expr) -> f64 {
        let all = self.values / self.sampled;
        let values = match list {
            Expr::Literal(Value::Array(values)) => {
                values.iter().map(|value| self.equal(Some(value))).sum()
            }
            Expr::Array(elements) => {
                elements.iter().map(|element| self.equal(known(element).as_ref())).sum()
            }
            _ => LIST_LENGTH * self.equal(None),
        };
        f64::min(values, all)
    }

    fn like(&self, pattern: &Expr, escape: Option<&Expr>) -> f64 {
        let all = self.values / self.sampled;
        let (Expr::Literal(Value::String(pattern)), None) = (pattern, escape) else {
            return SHARE_OF_A_PATTERN * all;
        };
        let (prefix, _) = like_prefix(pattern, '\\');
        if prefix.is_empty() {
            return SHARE_OF_A_PATTERN * all;
        }
        let after = format!("{prefix}{}", char::MAX);
        let bounds = [prefix, after].map(|text| (Some(Value::from(text)), true));
        let [low, high] = bounds;
        self.range(Some(low), Some(high))
    }

    fn range(
        &self,
        low: Option<(Option<Value>, bool)>,
        high: Option<(Option<Value>, bool)>,
    ) -> f64 {
        let all = self.values / self.sampled;
        match (low, high) {
            (Some((None, _)), Some(_)) | (Some(_), Some((None, _))) => SHARE_OF_TWO_BOUNDS * all,
            (Some((None, _)), None) | (None, Some((None, _))) => SHARE_OF_A_RANGE * all,
            (low, high) => {
                let below = |bound: Option<(Option<Value>, bool)>, all: f64| match bound {
                    Some((Some(bound), inclusive)) => {
                        self.bins.iter().map(|bin| bin.below(&bound, inclusive)).sum()
                    }
                    _ => all,
                };
                let counted = self.bins.iter().map(|bin| bin.count).sum();
                // The values below the lower bound, plus the bound itself if it is not part of the range.
                let under = below(low.map(|(bound, inclusive)| (bound, !inclusive)), 0.0);
                let up_to: f64 = below(high, counted);
                f64::max(up_to - under, 0.0) / self.sampled
            }
        }
    }
}

/// Returns the value of an expression if it is known while the query is planned. Values of parameters do not count, because a
/// plan that depends on them could not be kept.
fn known(expr: &Expr) -> Option<Value> {
    match expr {
        Expr::Literal(value) => Some(value.clone()),
        _ => None,
    }
}
