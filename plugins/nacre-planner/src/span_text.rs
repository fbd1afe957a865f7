//! The ranges of an index scan as EXPLAIN shows them: spans with `low`, `high` and `inclusion` for each part of the key.
//!
//! ```text
//! a IN [1, 2] AND b > 3     [{"exact": true, "range": [{"high": "1", "inclusion": 3, "index_key": "`a`", "low": "1"},
//!                                                      {"inclusion": 0, "index_key": "`b`", "low": "3"}]},
//!                            {"exact": true, "range": [… "2" …]}]
//! ```

use crate::plan::{IndexScan, Sarg};
use nacre_cost::renamed;
use nacre_sql::ast::Expr;
use nacre_sql::index::SELF;
use nacre_sql::{Value, each_child, like_prefix};

/// Spans that are shown one by one; where there are more, each part has one range of all.
const SPANS_MAX: usize = 64;

/// A bound, and whether it belongs to the range.
type End = Option<(String, bool)>;

/// A range of the values of a part.
#[derive(Clone, Default)]
struct Range {
    low: End,
    high: End,
}

/// The spans of a scan; none for one of the whole index.
pub(crate) fn spans(scan: &IndexScan) -> Value {
    let parts: Vec<(String, Vec<Range>, bool)> = scan
        .parts
        .iter()
        .zip(&scan.definition.keys)
        .map(|(sargs, key)| {
            let (ranges, exact) = ranges_of(sargs, true);
            (key_text(&key.expr), ranges, exact)
        })
        .collect();
    if parts.is_empty() {
        return Value::array(Vec::new());
    }
    let count = parts.iter().try_fold(1_usize, |count, (_, ranges, _)| {
        count.checked_mul(ranges.len()).filter(|count| *count <= SPANS_MAX)
    });
    if count.is_none() {
        let range = |(sargs, key): (&Vec<Sarg>, &nacre_sql::ast::IndexKey)| {
            let (ranges, _) = ranges_of(sargs, false);
            ranges[0].value(&key_text(&key.expr))
        };
        let range: Vec<Value> = scan.parts.iter().zip(&scan.definition.keys).map(range).collect();
        return vec![Value::object([("range", Value::array(range))])].into();
    }
    let exact = parts.iter().all(|(.., exact)| *exact);
    let mut spans: Vec<Vec<Value>> = vec![Vec::new()];
    for (key, ranges, _) in &parts {
        let with = |span: &Vec<Value>| {
            let span = span.clone();
            ranges.iter().map(move |range| {
                let part = range.value(key);
                [&span[..], std::slice::from_ref(&part)].concat()
            })
        };
        spans = spans.iter().flat_map(with).collect();
    }
    let exact = if exact { true.into() } else { Value::Missing };
    let span = |range: Vec<Value>| {
        Value::object([("exact", exact.clone()), ("range", Value::array(range))])
    };
    spans.into_iter().map(span).collect::<Vec<_>>().into()
}

/// The text of a part of an index, in which fields of the document have no name before them.
pub(crate) fn key_text(expr: &Expr) -> String {
    let mut expr = expr.clone();
    unqualify(&mut expr);
    renamed(&expr, SELF, &"self".into()).to_string()
}

fn unqualify(expr: &mut Expr) {
    if let Expr::Field(of, name, _) = expr
        && matches!(&**of, Expr::Ident(alias) if **alias == *SELF)
    {
        *expr = Expr::Ident(name.clone());
        return;
    }
    let done = each_child(expr, &mut |child| {
        unqualify(child);
        Ok(())
    });
    debug_assert!(done.is_ok(), "this refuses nothing");
}

/// The ranges in which all of the conditions hold, and whether they hold for all that is in there. Values of a list have a range
/// each if they are to be taken `apart`.
fn ranges_of(sargs: &[Sarg], apart: bool) -> (Vec<Range>, bool) {
    let (mut lows, mut highs, mut exact) = (Vec::new(), Vec::new(), true);
    let mut listed: Option<Vec<String>> = None;
    for sarg in sargs {
        match sarg {
            Sarg::In(list) => match elements(list).filter(|_| apart && listed.is_none()) {
                Some(values) => listed = Some(values),
                None => {
                    exact = false;
                    lows.push((format!("array_min({list})"), true));
                    highs.push((format!("array_max({list})"), true));
                }
            },
            Sarg::Like(pattern, escape) => {
                exact &= like(pattern, escape.as_ref(), &mut lows, &mut highs);
            }
            sarg => {
                let (low, high) = ends(sarg);
                lows.extend(low);
                highs.extend(high);
            }
        }
    }
    let range = |value: Option<&String>| {
        let own = |all: &[(String, bool)]| {
            all.iter().cloned().chain(value.map(|value| (value.clone(), true))).collect::<Vec<_>>()
        };
        let mut low = narrowest(own(&lows), "greatest");
        let high = narrowest(own(&highs), "least");
        // What is compared is neither MISSING nor NULL.
        if low.is_none() && high.as_ref().is_some_and(|(text, _)| text != "null") {
            low = Some(("null".into(), false));
        }
        Range { low, high }
    };
    match &listed {
        Some(values) if !values.is_empty() => {
            (values.iter().map(|value| range(Some(value))).collect(), exact)
        }
        Some(_) => (vec![range(Some(&"null".to_owned()))], false),
        None => (vec![range(None)], exact),
    }
}

/// The texts of a list that is written out.
fn elements(list: &Expr) -> Option<Vec<String>> {
    let mut texts: Vec<String> = match list {
        Expr::Array(elements) => elements.iter().map(ToString::to_string).collect(),
        Expr::Literal(Value::Array(elements)) => {
            elements.iter().map(|value| Expr::Literal(value.clone()).to_string()).collect()
        }
        _ => return None,
    };
    texts.sort();
    texts.dedup();
    Some(texts)
}

fn ends(sarg: &Sarg) -> (End, End) {
    let null = |inclusive: bool| Some(("null".to_owned(), inclusive));
    match sarg {
        Sarg::Equal(value) => {
            let end = Some((value.to_string(), true));
            (end.clone(), end)
        }
        Sarg::Above(low, inclusive) => (Some((low.to_string(), *inclusive)), None),
        Sarg::Below(high, inclusive) => (None, Some((high.to_string(), *inclusive))),
        Sarg::IsNull => (null(true), null(true)),
        Sarg::IsMissing => (None, null(false)),
        Sarg::IsKnown => (null(false), None),
        Sarg::NotMissing => (null(true), None),
        Sarg::In(_) | Sarg::Like(..) => (None, None),
    }
}

/// Adds the bounds of LIKE; returns whether they say all of it.
fn like(
    pattern: &Expr,
    escape: Option<&Expr>,
    lows: &mut Vec<(String, bool)>,
    highs: &mut Vec<(String, bool)>,
) -> bool {
    let literal = |expr: &Expr| match expr {
        Expr::Literal(Value::String(text)) => Some(text.clone()),
        _ => None,
    };
    let escape_char = match escape {
        None => Some('\\'),
        Some(escape) => literal(escape).and_then(|text| text.chars().next()),
    };
    let Some((text, escape_char)) = literal(pattern).zip(escape_char) else {
        let args = escape.map_or(pattern.to_string(), |escape| format!("{pattern}, {escape}"));
        lows.push((format!("like_prefix({args})"), true));
        highs.push((format!("like_stop({args})"), false));
        return false;
    };
    let (prefix, is_all) = like_prefix(&text, escape_char);
    let quoted = |text: &str| Expr::Literal(text.into()).to_string();
    lows.push((quoted(&prefix), true));
    // Behind all texts with the prefix is that with the next character; behind all texts, the first array.
    let mut chars: Vec<char> = prefix.chars().collect();
    let next = chars.pop().and_then(|last| char::from_u32(u32::from(last) + 1));
    let high = match next {
        Some(next) => {
            chars.push(next);
            quoted(&chars.iter().collect::<String>())
        }
        None => "[]".to_owned(),
    };
    highs.push((high, false));
    is_all && text.ends_with('%')
}

/// The one bound that counts; `null` is never narrower than another one.
fn narrowest(mut all: Vec<(String, bool)>, function: &str) -> End {
    all.dedup();
    if all.len() > 1 {
        all.retain(|(text, _)| text != "null");
    }
    match all.len() {
        0 => None,
        1 => all.pop(),
        _ => {
            let inclusive = all.iter().all(|(_, inclusive)| *inclusive);
            let texts: Vec<String> = all.into_iter().map(|(text, _)| text).collect();
            Some((format!("{function}({})", texts.join(", ")), inclusive))
        }
    }
}

impl Range {
    fn value(&self, key: &str) -> Value {
        let included = |end: &End| end.as_ref().is_some_and(|(_, inclusive)| *inclusive);
        let inclusion = i64::from(included(&self.low)) + 2 * i64::from(included(&self.high));
        let text =
            |end: &End| end.as_ref().map_or(Value::Missing, |(text, _)| text.as_str().into());
        Value::object([
            ("high", text(&self.high)),
            ("inclusion", Value::Int(inclusion)),
            ("index_key", key.into()),
            ("low", text(&self.low)),
        ])
    }
}
