//! Aggregates: accumulate values and return results.

use nacre_sql::ast::Aggregate;
use nacre_sql::functions::number;
use nacre_sql::{Context, Env, Result, Value, eval, key};
use std::collections::BTreeSet;

/// The state of an aggregate.
pub(crate) struct Accumulator {
    seen: Option<BTreeSet<Vec<u8>>>,
    count: i64,
    sum: Value,
    /// Welford's running mean and sum of squared differences (1962).
    mean: f64,
    squares: f64,
    extreme: Value,
    all: Vec<Value>,
}

impl Accumulator {
    pub fn new(aggregate: &Aggregate) -> Accumulator {
        Accumulator {
            seen: aggregate.distinct.then(BTreeSet::new),
            count: 0,
            sum: Value::Int(0),
            mean: 0.0,
            squares: 0.0,
            extreme: Value::Null,
            all: Vec::new(),
        }
    }

    /// Adds a row. Returns by how many bytes the state has grown.
    pub fn add(
        &mut self,
        aggregate: &Aggregate,
        row: &Env,
        context: &Context<'_>,
    ) -> Result<usize> {
        if let Some(filter) = &aggregate.filter
            && !eval(filter, row, context)?.truth()
        {
            return Ok(0);
        }
        let Some(arg) = aggregate.args.first() else {
            self.count_row();
            return Ok(0);
        };
        Ok(self.take(&aggregate.name, eval(arg, row, context)?))
    }

    /// Adds a row without evaluating anything.
    pub fn count_row(&mut self) {
        self.count += 1;
    }

    /// Returns true if there was a value that counts.
    pub fn has_seen(&self) -> bool {
        self.count > 0
    }

    /// Adds a value. Returns by how many bytes the state has grown.
    pub fn take(&mut self, name: &str, value: Value) -> usize {
        let wanted = match name {
            "array_agg" => !value.is_missing(),
            "count" | "max" | "min" => value.is_known(),
            _ => value.as_f64().is_some(),
        };
        if !wanted {
            return 0;
        }
        let mut grown = 0;
        if let Some(seen) = &mut self.seen {
            let bytes = key::encoded(&value);
            grown += bytes.len() + 48;
            if !seen.insert(bytes) {
                return 0;
            }
        }
        self.count += 1;
        match name {
            "array_agg" | "median" => {
                grown += value.size_bytes();
                self.all.push(value);
            }
            "max" if self.count == 1 || value > self.extreme => self.extreme = value,
            "min" if self.count == 1 || value < self.extreme => self.extreme = value,
            "sum" | "avg" | "mean" => self.sum = number::add(&self.sum, &value),
            "count" | "countn" | "max" | "min" => {}
            _ => {
                let number = value.as_f64().unwrap_or_default();
                let before = number - self.mean;
                self.mean += before / self.count as f64;
                self.squares += before * (number - self.mean);
            }
        }
        grown
    }

    /// Returns the result for the rows so far.
    pub fn value(&self, name: &str) -> Value {
        let variance = |less: i64| match self.count - less {
            left if left > 0 => Some(self.squares / left as f64),
            _ => None,
        };
        // The variance of a single value is 0, except for the functions of a sample.
        let lenient = if self.count == 1 { Some(0.0) } else { variance(1) };
        let number = |value: Option<f64>| value.map_or(Value::Null, Value::number);
        match name {
            "count" | "countn" => Value::Int(self.count),
            _ if self.count == 0 => Value::Null,
            "sum" => self.sum.clone(),
            "avg" | "mean" => number::divide(&self.sum, &Value::Int(self.count)),
            "max" | "min" => self.extreme.clone(),
            "array_agg" => {
                let mut all = self.all.clone();
                all.sort();
                all.into()
            }
            "median" => median(&self.all),
            "stddev" => number(lenient.map(f64::sqrt)),
            "variance" => number(lenient),
            "stddev_samp" => number(variance(1).map(f64::sqrt)),
            "var_samp" | "variance_samp" => number(variance(1)),
            "stddev_pop" => number(variance(0).map(f64::sqrt)),
            _ => number(variance(0)),
        }
    }
}

fn median(values: &[Value]) -> Value {
    let mut sorted = values.to_vec();
    sorted.sort();
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 {
        return sorted[middle].clone();
    }
    number::divide(&number::add(&sorted[middle - 1], &sorted[middle]), &Value::Int(2))
}
