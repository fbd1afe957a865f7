//! Converts the conditions of an index scan into ranges of entries.

use nacre_datastore::Span;
use nacre_planner::{IndexScan, Sarg};
use nacre_sql::ast::Expr;
use nacre_sql::{Context, Env, Result, Value, eval, key, like_prefix};

/// Number of ranges above which the next key part does not refine them.
const PREFIXES_MAX: usize = 4096;

/// Returns the ranges for the values of the variables in `env`, disjoint and in order.
pub(crate) fn spans(scan: &IndexScan, env: &Env, context: &Context<'_>) -> Result<Vec<Span>> {
    let mut prefixes: Vec<Vec<u8>> = vec![Vec::new()];
    // Without conditions, the whole index is read.
    let mut spans = vec![everything()];
    for (at, (sargs, key)) in scan.parts.iter().zip(&scan.definition.keys).enumerate() {
        let mut ranges = vec![everything()];
        for sarg in sargs {
            ranges = intersect(&ranges, &ranges_of(sarg, env, context)?);
        }
        if key.descending {
            ranges = ranges.iter().rev().map(turned).collect();
        }
        let last = at + 1 == scan.parts.len();
        let exact = ranges.iter().all(is_exact);
        spans = joined(&prefixes, &ranges);
        if last || !exact || spans.len() > PREFIXES_MAX {
            break;
        }
        prefixes = spans.iter().map(|span| span.low.clone()).collect();
    }
    Ok(spans)
}

/// Returns the partitions that may have the entries, as far as equality conditions determine them;
/// empty if any partition may.
pub(crate) fn partitions(scan: &IndexScan, env: &Env, context: &Context<'_>) -> Result<Vec<u16>> {
    let (Some(spread), Some(partitioning)) = (&scan.spread, &scan.definition.partitioning) else {
        return Ok(Vec::new());
    };
    let mut tuples: Vec<Vec<Value>> = vec![Vec::new()];
    for sarg in spread {
        let values = match sarg {
            Sarg::Equal(value) => vec![eval(value, env, context)?],
            Sarg::In(values) => match eval(values, env, context)? {
                Value::Array(values) => values.to_vec(),
                _ => Vec::new(),
            },
            _ => return Ok(Vec::new()),
        };
        if values.len().saturating_mul(tuples.len()) > PREFIXES_MAX {
            return Ok(Vec::new());
        }
        let with = |tuple: &Vec<Value>| {
            let tuple = tuple.clone();
            values.iter().map(move |value| [&tuple[..], std::slice::from_ref(value)].concat())
        };
        tuples = tuples.iter().flat_map(with).collect();
    }
    let mut partitions: Vec<u16> = tuples.iter().map(|values| partitioning.of(values)).collect();
    partitions.sort_unstable();
    partitions.dedup();
    // A list of all partitions is the same as no restriction.
    if partitions.len() == usize::from(partitioning.count) {
        partitions.clear();
    }
    Ok(partitions)
}

fn everything() -> Span {
    Span { low: Vec::new(), high: vec![key::AFTER] }
}

fn after(bytes: &[u8]) -> Vec<u8> {
    let mut after = bytes.to_vec();
    after.push(key::AFTER);
    after
}

/// Returns true if the range has exactly one value.
fn is_exact(range: &Span) -> bool {
    range.high.strip_suffix(&[key::AFTER]) == Some(&range.low) && !range.low.is_empty()
}

fn joined(prefixes: &[Vec<u8>], ranges: &[Span]) -> Vec<Span> {
    let join = |prefix: &Vec<u8>, range: &Span| Span {
        low: [prefix.as_slice(), &range.low].concat(),
        high: [prefix.as_slice(), &range.high].concat(),
    };
    prefixes.iter().flat_map(|prefix| ranges.iter().map(move |range| join(prefix, range))).collect()
}

/// Returns the range in a descending part, whose bits are inverted, so that the order is reversed.
fn turned(range: &Span) -> Span {
    let turn = |bound: &[u8]| match bound.strip_suffix(&[key::AFTER]) {
        Some(bytes) => bytes.iter().map(|byte| !byte).collect(),
        None => after(&bound.iter().map(|byte| !byte).collect::<Vec<u8>>()),
    };
    Span { low: turn(&range.high), high: turn(&range.low) }
}

/// Returns the intersection of two lists of disjoint ranges in order.
fn intersect(a: &[Span], b: &[Span]) -> Vec<Span> {
    let (mut at_a, mut at_b) = (0, 0);
    let mut common = Vec::new();
    while let (Some(left), Some(right)) = (a.get(at_a), b.get(at_b)) {
        let low = left.low.clone().max(right.low.clone());
        let high = left.high.clone().min(right.high.clone());
        if low < high {
            common.push(Span { low, high });
        }
        if left.high <= right.high {
            at_a += 1;
        } else {
            at_b += 1;
        }
    }
    common
}

fn exactly(value: &Value) -> Span {
    let low = key::encoded(value);
    Span { high: after(&low), low }
}

/// Returns the ranges of one condition, in an ascending part.
fn ranges_of(sarg: &Sarg, env: &Env, context: &Context<'_>) -> Result<Vec<Span>> {
    let value_of = |expr: &Expr| -> Result<Value> { eval(expr, env, context) };
    // Above NULL, because comparisons with NULL and MISSING are never true.
    let above_null = || after(&key::encoded(&Value::Null));
    let known = |value: Value| Some(value).filter(Value::is_known);
    // A value that contains NULL equals nothing.
    let equal = |value: &Value| value.equals(value).truth();
    Ok(match sarg {
        Sarg::Equal(expr) => Some(value_of(expr)?).filter(equal).iter().map(exactly).collect(),
        Sarg::In(expr) => {
            let values = value_of(expr)?;
            let wanted = values.as_array().unwrap_or_default().iter().filter(|value| equal(value));
            let mut ranges: Vec<Span> = wanted.map(exactly).collect();
            ranges.sort();
            ranges.dedup();
            ranges
        }
        Sarg::Above(expr, inclusive) => {
            let low = known(value_of(expr)?).map(|value| exactly(&value));
            let low = low.map(|exact| if *inclusive { exact.low } else { exact.high });
            low.map(|low| Span { low, ..everything() }).into_iter().collect()
        }
        Sarg::Below(expr, inclusive) => {
            let high = known(value_of(expr)?).map(|value| exactly(&value));
            let high = high.map(|exact| if *inclusive { exact.high } else { exact.low });
            high.map(|high| Span { low: above_null(), high }).into_iter().collect()
        }
        Sarg::Like(pattern, escape) => {
            like_range(&value_of(pattern)?, escape.as_ref(), env, context)?
        }
        Sarg::IsNull => vec![exactly(&Value::Null)],
        Sarg::IsMissing => vec![exactly(&Value::Missing)],
        Sarg::IsKnown => vec![Span { low: above_null(), ..everything() }],
        Sarg::NotMissing => vec![Span { low: key::encoded(&Value::Null), ..everything() }],
    })
}

/// Returns the range of strings with the pattern's prefix.
fn like_range(
    pattern: &Value,
    escape: Option<&Expr>,
    env: &Env,
    context: &Context<'_>,
) -> Result<Vec<Span>> {
    let escape = escape.map_or(Ok("\\".into()), |escape| eval(escape, env, context))?;
    let (Some(pattern), Some(escape)) =
        (pattern.as_str(), escape.as_str().and_then(|e| e.chars().next()))
    else {
        return Ok(Vec::new());
    };
    let (prefix, _) = like_prefix(pattern, escape);
    let low = key::encoded(&prefix.into());
    // Without the terminator, the prefix can be followed by any byte of text; no such byte is as
    // great as the appended one.
    let high = after(&low[..low.len() - 2]);
    Ok(vec![Span { low, high }])
}
