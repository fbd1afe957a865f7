//! Evaluation of an expression for a document.

use fancy_regex::Regex;
use jiff::{Timestamp, civil, tz::TimeZone};
use nacre_sql::ast::Expr;
use nacre_sql::functions::{Function, number};
use nacre_sql::{Caches, Context, Env, Name, NoHost, Value, eval};
use nacre_types::Document;
use nacre_value::xattr::Xattrs;
use std::cmp::Ordering;
use std::collections::BTreeMap;

/// A condition.
#[derive(Debug)]
pub(super) enum Test {
    Constant(bool),
    Any(Vec<Test>),
    All(Vec<Test>),
    Not(Box<Test>),
    Compare(Operand, Relation, Operand),
    Matches(Operand, Box<Regex>),
    /// The value exists, even if it is null.
    Exists(Operand),
    IsNull(Operand),
}

/// Operator of a comparison.
#[derive(Clone, Copy, Debug)]
pub(super) enum Relation {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// An operand of a comparison.
#[derive(Debug)]
pub(super) enum Operand {
    Constant(Value),
    Path(Root, Vec<Step>),
    /// Operators of equal precedence, from left to right.
    Arithmetic(Box<Operand>, Vec<(Operator, Operand)>),
    Call(&'static Function, Vec<Operand>),
    Date(Box<Operand>),
}

/// The start of a path.
#[derive(Debug)]
pub(super) enum Root {
    Body,
    Key,
    Attribute(String),
}

/// A step of a path.
#[derive(Debug)]
pub(super) enum Step {
    Field(Name),
    Element(i64),
}

/// An operator of arithmetic.
#[derive(Clone, Copy, Debug)]
pub(super) enum Operator {
    Add,
    Subtract,
    Multiply,
    Divide,
    Modulo,
}

/// The parts of a document that were read.
pub(super) struct Subject<'a> {
    body: Value,
    key: &'a str,
    attributes: Xattrs<'a>,
}

impl<'a> Subject<'a> {
    /// Reads a document; its body only if `needs_body`. Returns `None` when the root of the body is not an object.
    ///
    /// # Errors
    /// The reason why the document cannot be read.
    pub fn of(document: &'a Document, needs_body: bool) -> Result<Option<Subject<'a>>, String> {
        let body = if needs_body { Value::parse(document.body())? } else { Value::Missing };
        if needs_body && body.as_object().is_none() {
            return Ok(None);
        }
        let key = std::str::from_utf8(document.name()).map_err(|error| error.to_string())?;
        let attributes = Xattrs::parse(document.xattrs());
        let attributes = attributes.map_err(|_| "its attributes are malformed".to_owned())?;
        Ok(Some(Subject { body, key, attributes }))
    }
}

impl Test {
    /// Returns true if the condition is fulfilled.
    ///
    /// # Errors
    /// A regular expression takes too many steps, or an attribute is not JSON.
    pub fn holds(&self, subject: &Subject<'_>) -> Result<bool, String> {
        Ok(match self {
            Test::Constant(holds) => *holds,
            Test::Any(tests) => {
                for test in tests {
                    if test.holds(subject)? {
                        return Ok(true);
                    }
                }
                false
            }
            Test::All(tests) => {
                for test in tests {
                    if !test.holds(subject)? {
                        return Ok(false);
                    }
                }
                true
            }
            Test::Not(test) => !test.holds(subject)?,
            Test::Compare(left, relation, right) => compare(left, *relation, right, subject)?,
            Test::Matches(of, regex) => match of.value(subject)?.as_str() {
                Some(text) => regex.is_match(text).map_err(|error| error.to_string())?,
                None => false,
            },
            Test::Exists(of) => !of.value(subject)?.is_missing(),
            Test::IsNull(of) => matches!(of.value(subject)?, Value::Null),
        })
    }
}

impl Operand {
    /// Returns the value: missing where a path leads nowhere or an operation is undefined, such as a text plus 1.
    fn value(&self, subject: &Subject<'_>) -> Result<Value, String> {
        Ok(match self {
            Operand::Constant(value) => value.clone(),
            Operand::Path(root, steps) => {
                let root = match root {
                    Root::Body => subject.body.clone(),
                    Root::Key => Value::string(subject.key),
                    Root::Attribute(name) => match subject.attributes.get(name) {
                        Some(json) => Value::parse(json)?,
                        None => Value::Missing,
                    },
                };
                steps.iter().fold(root, |value, step| match step {
                    Step::Field(name) => value.field(name),
                    Step::Element(index) => value.element(*index),
                })
            }
            Operand::Arithmetic(first, rest) => {
                let mut value = first.value(subject)?;
                for (operator, operand) in rest {
                    value = compute(*operator, &value, &operand.value(subject)?);
                }
                value
            }
            Operand::Call(function, arguments) => {
                let literal = |argument: &Operand| argument.value(subject).map(Expr::Literal);
                let arguments = arguments.iter().map(literal).collect::<Result<_, _>>()?;
                call(function, arguments)?
            }
            Operand::Date(of) => match of.value(subject)?.as_str().and_then(instant) {
                Some(instant) => Value::Int(instant.as_microsecond()),
                None => Value::Missing,
            },
        })
    }

    fn is_constant(&self) -> bool {
        match self {
            Operand::Constant(_) => true,
            Operand::Path(..) => false,
            Operand::Arithmetic(first, rest) => {
                first.is_constant() && rest.iter().all(|(_, operand)| operand.is_constant())
            }
            Operand::Call(_, arguments) => arguments.iter().all(Operand::is_constant),
            Operand::Date(of) => of.is_constant(),
        }
    }
}

fn call(function: &'static Function, arguments: Vec<Expr>) -> Result<Value, String> {
    let (named, caches) = (BTreeMap::new(), Caches::default());
    let context =
        Context { host: &NoHost, positional: &[], named: &named, statement_ms: 0, caches: &caches };
    let value = eval(&Expr::Call(function, arguments), &Env::new(), &context);
    let value = value.map_err(|error| error.message)?;
    Ok(if matches!(value, Value::Null) { Value::Missing } else { value })
}

fn compute(operator: Operator, left: &Value, right: &Value) -> Value {
    let value = match operator {
        Operator::Add => number::add(left, right),
        Operator::Subtract => number::subtract(left, right),
        Operator::Multiply => number::multiply(left, right),
        Operator::Divide => match (left, right) {
            (Value::Int(left), Value::Int(right)) => {
                left.checked_div(*right).map_or(Value::Missing, Value::Int)
            }
            _ => number::divide(left, right),
        },
        Operator::Modulo => match (left, right) {
            (Value::Int(left), Value::Int(right)) => {
                left.checked_rem(*right).map_or(Value::Missing, Value::Int)
            }
            _ => number::modulo(left, right),
        },
    };
    if matches!(value, Value::Null) { Value::Missing } else { value }
}

fn compare(
    left: &Operand,
    relation: Relation,
    right: &Operand,
    subject: &Subject<'_>,
) -> Result<bool, String> {
    let (mut values, constants) =
        ((left.value(subject)?, right.value(subject)?), (left.is_constant(), right.is_constant()));
    if values.0.is_missing() || values.1.is_missing() {
        return Ok(false);
    }
    match constants {
        (false, true) => values.0 = forced(values.0, &values.1),
        (true, false) => values.1 = forced(values.1, &values.0),
        _ => {}
    }
    let order = order(&values.0, &values.1);
    Ok(match relation {
        Relation::Equal => order.is_eq(),
        Relation::NotEqual => order.is_ne(),
        Relation::Less => order.is_lt(),
        Relation::LessOrEqual => order.is_le(),
        Relation::Greater => order.is_gt(),
        Relation::GreaterOrEqual => order.is_ge(),
    })
}

/// Converts a value to the type of the constant that it is compared with, if an equivalent exists.
fn forced(value: Value, constant: &Value) -> Value {
    let other = match (&value, constant) {
        (Value::String(text), Value::Int(_) | Value::Float(_)) => number_of(text.trim()),
        (Value::Bool(holds), Value::Int(_) | Value::Float(_)) => Some(Value::Int((*holds).into())),
        (Value::Int(_) | Value::Float(_) | Value::Bool(_), Value::String(_)) => {
            let mut text = String::new();
            value.write_json(&mut text);
            Some(Value::string(text))
        }
        (Value::String(text), Value::Bool(_)) => match &**text {
            "true" => Some(Value::Bool(true)),
            "false" => Some(Value::Bool(false)),
            _ => None,
        },
        (Value::Int(_) | Value::Float(_), Value::Bool(_)) => Some(Value::Bool(value.truth())),
        _ => None,
    };
    other.unwrap_or(value)
}

fn number_of(text: &str) -> Option<Value> {
    let whole = text.parse().ok().map(Value::Int);
    whole.or_else(|| text.parse().ok().filter(|number: &f64| number.is_finite()).map(Value::Float))
}

/// Orders two values: by type, then by value; arrays by length first.
fn order(left: &Value, right: &Value) -> Ordering {
    match (left.as_array(), right.as_array()) {
        (Some(left), Some(right)) => left.len().cmp(&right.len()).then_with(|| {
            let orders = left.iter().zip(right).map(|(left, right)| order(left, right));
            orders.fold(Ordering::Equal, Ordering::then)
        }),
        _ => left.collate(right),
    }
}

/// Parses a point in time: RFC 3339, or a date alone, which means midnight UTC.
pub(super) fn instant(text: &str) -> Option<Timestamp> {
    if let Ok(moment) = text.parse::<Timestamp>() {
        return Some(moment);
    }
    let date: civil::DateTime = text.parse().ok()?;
    date.to_zoned(TimeZone::UTC).ok().map(|zoned| zoned.timestamp())
}
