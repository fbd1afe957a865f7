//! Selectors of `_find` and of the filter `_selector`, in the language Mango.

use crate::http::Problem;
use nacre_plugin::collate;
use serde_json::Value;
use std::cmp::Ordering;

/// Maximum depth of a selector.
const DEPTH_MAX: usize = 64;

/// A selector.
#[derive(Clone, Debug, PartialEq)]
pub struct Selector(Condition);

#[derive(Clone, Debug, PartialEq)]
enum Condition {
    All(Vec<Condition>),
    Any(Vec<Condition>),
    None(Vec<Condition>),
    Not(Box<Condition>),
    /// The condition on the value at a path, which may be missing.
    At(Vec<String>, Box<Condition>),
    Compare(Comparison, Value),
    Exists(bool),
    Type(String),
    In(Vec<Value>, bool),
    Size(u64),
    Mod(i64, i64),
    BeginsWith(String),
    Contains(Vec<Value>),
    Element(Box<Condition>),
    EachElement(Box<Condition>),
    Key(Box<Condition>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    Eq,
    Ne,
    Gt,
    Gte,
    Lt,
    Lte,
}

impl Selector {
    /// Parses a selector.
    ///
    /// # Errors
    /// 400 for an unknown operator, or an argument that does not fit it.
    pub fn read(json: &Value) -> Result<Selector, Problem> {
        if !json.is_object() {
            return Err(invalid("the selector is not an object"));
        }
        condition(json, 0).map(Selector)
    }

    /// Returns true if a document matches.
    pub fn matches(&self, document: &Value) -> bool {
        self.0.matches(Some(document))
    }
}

fn invalid(reason: &str) -> Problem {
    Problem::new(400, "invalid_selector_json", reason)
}

/// Parses the path of a field: `a.b`, where `\.` is a dot in a name.
pub fn path(field: &str) -> Vec<String> {
    let mut path = vec![String::new()];
    let mut letters = field.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' if letters.peek() == Some(&'.') => {
                letters.next();
                path.last_mut().expect("a path has a part").push('.');
            }
            '.' => path.push(String::new()),
            letter => path.last_mut().expect("a path has a part").push(letter),
        }
    }
    path
}

/// Returns the value at a path.
pub fn at<'a>(document: &'a Value, path: &[String]) -> Option<&'a Value> {
    path.iter().try_fold(document, |value, name| match value {
        Value::Object(members) => members.get(name),
        Value::Array(elements) => elements.get(name.parse::<usize>().ok()?),
        _ => None,
    })
}

/// Compares values in the order of views.
pub fn compare(one: &Value, other: &Value) -> Ordering {
    let key = |value: &Value| {
        let mut key = Vec::new();
        // A value is always valid JSON.
        drop(collate::encode(&value.to_string(), &mut key));
        key
    };
    key(one).cmp(&key(other))
}

fn condition(json: &Value, depth: usize) -> Result<Condition, Problem> {
    if depth > DEPTH_MAX {
        return Err(invalid("the selector is nested too deeply"));
    }
    let Value::Object(members) = json else {
        return Ok(Condition::Compare(Comparison::Eq, json.clone()));
    };
    let conditions = members.iter().map(|(name, argument)| {
        if name.starts_with('$') {
            return operator(name, argument, depth + 1);
        }
        let inner = condition(argument, depth + 1)?;
        Ok(Condition::At(path(name), Box::new(inner)))
    });
    let mut conditions: Vec<Condition> = conditions.collect::<Result<_, _>>()?;
    match conditions.len() {
        1 => Ok(conditions.remove(0)),
        _ => Ok(Condition::All(conditions)),
    }
}

fn operator(name: &str, argument: &Value, depth: usize) -> Result<Condition, Problem> {
    let bad = || invalid(&format!("Bad argument for operator {name}: {argument}"));
    let list = || argument.as_array().ok_or_else(bad);
    let each = || -> Result<Vec<Condition>, Problem> {
        list()?.iter().map(|inner| condition(inner, depth)).collect()
    };
    let compare = |comparison| Ok(Condition::Compare(comparison, argument.clone()));
    match name {
        "$and" => each().map(Condition::All),
        "$or" => each().map(Condition::Any),
        "$nor" => each().map(Condition::None),
        "$not" => Ok(Condition::Not(Box::new(condition(argument, depth)?))),
        "$eq" => compare(Comparison::Eq),
        "$ne" => compare(Comparison::Ne),
        "$gt" => compare(Comparison::Gt),
        "$gte" => compare(Comparison::Gte),
        "$lt" => compare(Comparison::Lt),
        "$lte" => compare(Comparison::Lte),
        "$exists" => argument.as_bool().map(Condition::Exists).ok_or_else(bad),
        "$type" => {
            let kinds = ["null", "boolean", "number", "string", "array", "object"];
            let kind = argument.as_str().filter(|kind| kinds.contains(kind));
            kind.map(|kind| Condition::Type(kind.to_owned())).ok_or_else(bad)
        }
        "$in" => Ok(Condition::In(list()?.clone(), true)),
        "$nin" => Ok(Condition::In(list()?.clone(), false)),
        "$size" => argument.as_u64().map(Condition::Size).ok_or_else(bad),
        "$mod" => match &list()?[..] {
            [divisor, remainder] => {
                let divisor = divisor.as_i64().filter(|divisor| *divisor != 0).ok_or_else(bad)?;
                Ok(Condition::Mod(divisor, remainder.as_i64().ok_or_else(bad)?))
            }
            _ => Err(bad()),
        },
        "$beginsWith" => {
            argument.as_str().map(|text| Condition::BeginsWith(text.to_owned())).ok_or_else(bad)
        }
        "$all" => Ok(Condition::Contains(list()?.clone())),
        "$elemMatch" => Ok(Condition::Element(Box::new(condition(argument, depth)?))),
        "$allMatch" => Ok(Condition::EachElement(Box::new(condition(argument, depth)?))),
        "$keyMapMatch" => Ok(Condition::Key(Box::new(condition(argument, depth)?))),
        _ => Err(Problem::new(400, "invalid_operator", &format!("Invalid operator: {name}"))),
    }
}

impl Condition {
    fn matches(&self, value: Option<&Value>) -> bool {
        match (self, value) {
            (Condition::All(all), value) => all.iter().all(|one| one.matches(value)),
            (Condition::Any(any), value) => any.iter().any(|one| one.matches(value)),
            (Condition::None(none), value) => !none.iter().any(|one| one.matches(value)),
            (Condition::Not(inner), value) => !inner.matches(value),
            (Condition::At(path, inner), value) => {
                inner.matches(value.and_then(|value| at(value, path)))
            }
            (Condition::Exists(wanted), value) => value.is_some() == *wanted,
            (_, None) => false,
            (Condition::Compare(comparison, with), Some(value)) => {
                let order = compare(value, with);
                match comparison {
                    Comparison::Eq => order == Ordering::Equal,
                    Comparison::Ne => order != Ordering::Equal,
                    Comparison::Gt => order == Ordering::Greater,
                    Comparison::Gte => order != Ordering::Less,
                    Comparison::Lt => order == Ordering::Less,
                    Comparison::Lte => order != Ordering::Greater,
                }
            }
            (Condition::Type(kind), Some(value)) => {
                let is = match value {
                    Value::Null => "null",
                    Value::Bool(_) => "boolean",
                    Value::Number(_) => "number",
                    Value::String(_) => "string",
                    Value::Array(_) => "array",
                    Value::Object(_) => "object",
                };
                is == kind
            }
            (Condition::In(list, wanted), Some(value)) => {
                let is_equal =
                    |value: &Value| list.iter().any(|one| compare(one, value) == Ordering::Equal);
                let is_in = match value {
                    Value::Array(elements) => is_equal(value) || elements.iter().any(is_equal),
                    value => is_equal(value),
                };
                is_in == *wanted
            }
            (Condition::Size(size), Some(value)) => {
                value.as_array().is_some_and(|elements| elements.len() as u64 == *size)
            }
            (Condition::Mod(divisor, remainder), Some(value)) => {
                value.as_i64().is_some_and(|number| number.wrapping_rem(*divisor) == *remainder)
            }
            (Condition::BeginsWith(prefix), Some(value)) => {
                value.as_str().is_some_and(|text| text.starts_with(prefix))
            }
            (Condition::Contains(wanted), Some(value)) => {
                value.as_array().is_some_and(|elements| {
                    wanted.iter().all(|one| {
                        elements.iter().any(|element| compare(element, one) == Ordering::Equal)
                    })
                })
            }
            (Condition::Element(inner), Some(value)) => value
                .as_array()
                .is_some_and(|elements| elements.iter().any(|one| inner.matches(Some(one)))),
            (Condition::EachElement(inner), Some(value)) => {
                value.as_array().is_some_and(|elements| {
                    !elements.is_empty() && elements.iter().all(|one| inner.matches(Some(one)))
                })
            }
            (Condition::Key(inner), Some(value)) => value.as_object().is_some_and(|members| {
                members.keys().any(|name| inner.matches(Some(&Value::String(name.clone()))))
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn which_documents_selectors_want() {
        let document = json!({"n": 7, "s": "pearl", "a": [1, 2, {"b": 3}], "o": {"x.y": null}});
        for (selector, is_wanted) in [
            (json!({}), true),
            (json!({"n": 7}), true),
            (json!({"n": 7.0, "s": "pearl"}), true),
            (json!({"n": {"$gt": 6, "$lte": 7}}), true),
            (json!({"n": {"$ne": 7}}), false),
            (json!({"missing": {"$ne": 7}}), false),
            (json!({"missing": {"$exists": false}}), true),
            (json!({"missing": {"$not": {"$eq": 1}}}), true),
            (json!({"$or": [{"n": 1}, {"s": {"$beginsWith": "pe"}}]}), true),
            (json!({"$nor": [{"n": 1}, {"s": "pearl"}]}), false),
            (json!({"a": {"$all": [2, 1]}}), true),
            (json!({"a": {"$size": 3}}), true),
            (json!({"a": {"$in": [2, 9]}}), true),
            (json!({"a": {"$elemMatch": {"b": 3}}}), true),
            (json!({"a": {"$allMatch": {"$type": "number"}}}), false),
            (json!({"a.2.b": 3}), true),
            (json!({"o.x\\.y": null}), true),
            (json!({"o": {"$keyMapMatch": {"$eq": "x.y"}}}), true),
            (json!({"n": {"$mod": [5, 2]}}), true),
            (json!({"n": {"$in": [1, 2]}}), false),
            (json!({"n": {"$nin": [1, 2]}}), true),
            (json!({"s": {"$gt": 99}}), true),
        ] {
            let read = Selector::read(&selector).unwrap();
            assert_eq!(read.matches(&document), is_wanted, "{selector}");
        }
    }

    #[test]
    fn wrong_selectors_are_refused() {
        for selector in [
            json!([]),
            json!({"a": {"$unknown": 1}}),
            json!({"$or": 1}),
            json!({"a": {"$mod": [0, 1]}}),
            json!({"a": {"$type": "date"}}),
            json!({"a": {"$regex": "x"}}),
        ] {
            assert!(Selector::read(&selector).is_err(), "{selector}");
        }
        let deep = (0..100).fold(json!(1), |inner, _| json!({"$not": inner}));
        assert!(Selector::read(&deep).is_err());
    }
}
