//! Values and expressions of SQL++ as its documentation defines them, implemented independently of the crates under
//! test.

use rand::Rng;
use rand::rngs::StdRng;
use std::cmp::Ordering;
use std::collections::BTreeMap;

/// A value. The derived order is the collation: variants are in ascending order.
#[derive(Clone, Debug)]
pub enum Value {
    Missing,
    Null,
    Bool(bool),
    Number(f64),
    Text(String),
    Array(Vec<Value>),
    Object(BTreeMap<String, Value>),
}

use Value::{Array, Bool, Missing, Null, Number, Object, Text};

impl Value {
    fn rank(&self) -> u8 {
        match self {
            Missing => 0,
            Null => 1,
            Bool(_) => 2,
            Number(_) => 3,
            Text(_) => 4,
            Array(_) => 5,
            Object(_) => 6,
        }
    }

    pub fn is_known(&self) -> bool {
        !matches!(self, Missing | Null)
    }

    pub fn is_true(&self) -> bool {
        matches!(self, Bool(true))
    }

    /// Reads the result of a query.
    pub fn from_json(json: &serde_json::Value) -> Value {
        match json {
            serde_json::Value::Null => Null,
            serde_json::Value::Bool(value) => Bool(*value),
            serde_json::Value::Number(number) => Number(number.as_f64().unwrap()),
            serde_json::Value::String(text) => Text(text.clone()),
            serde_json::Value::Array(elements) => {
                Array(elements.iter().map(Value::from_json).collect())
            }
            serde_json::Value::Object(fields) => {
                let fields = fields.iter();
                Object(
                    fields.map(|(name, value)| (name.clone(), Value::from_json(value))).collect(),
                )
            }
        }
    }

    /// Writes the value as a literal; MISSING within an array is null.
    pub fn text(&self) -> String {
        match self {
            Missing => "MISSING".into(),
            Null => "null".into(),
            Bool(value) => value.to_string(),
            Number(number) => number.to_string(),
            Text(text) => format!("{text:?}"),
            Array(elements) => {
                format!("[{}]", elements.iter().map(Value::text).collect::<Vec<_>>().join(","))
            }
            Object(fields) => {
                let fields = fields.iter().filter(|(_, value)| !matches!(value, Missing));
                let fields: Vec<_> =
                    fields.map(|(name, value)| format!("{name:?}:{}", value.text())).collect();
                format!("{{{}}}", fields.join(","))
            }
        }
    }
}

impl Ord for Value {
    fn cmp(&self, other: &Value) -> Ordering {
        match (self, other) {
            (Bool(a), Bool(b)) => a.cmp(b),
            (Number(a), Number(b)) => a.total_cmp(b),
            (Text(a), Text(b)) => a.cmp(b),
            (Array(a), Array(b)) => a.cmp(b),
            (Object(a), Object(b)) => a.len().cmp(&b.len()).then_with(|| a.cmp(b)),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

impl PartialOrd for Value {
    fn partial_cmp(&self, other: &Value) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Value {
    fn eq(&self, other: &Value) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Value {}

/// The variables of a row: documents, elements of arrays, and groups.
pub type Row = BTreeMap<&'static str, Value>;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Comparison {
    const ALL: [Comparison; 6] = [
        Comparison::Equal,
        Comparison::NotEqual,
        Comparison::Less,
        Comparison::LessOrEqual,
        Comparison::Greater,
        Comparison::GreaterOrEqual,
    ];

    pub fn any(chance: &mut StdRng) -> Comparison {
        // Equality is what indexes and joins use most.
        if chance.random_bool(0.3) {
            Comparison::Equal
        } else {
            Comparison::ALL[chance.random_range(0..6)]
        }
    }

    fn text(self) -> &'static str {
        match self {
            Comparison::Equal => "=",
            Comparison::NotEqual => "!=",
            Comparison::Less => "<",
            Comparison::LessOrEqual => "<=",
            Comparison::Greater => ">",
            Comparison::GreaterOrEqual => ">=",
        }
    }

    fn apply(self, a: &Value, b: &Value) -> Value {
        if matches!(a, Missing) || matches!(b, Missing) {
            return Missing;
        }
        if matches!(a, Null) || matches!(b, Null) {
            return Null;
        }
        let order = a.cmp(b);
        Bool(match self {
            Comparison::Equal => order.is_eq(),
            Comparison::NotEqual => order.is_ne(),
            Comparison::Less => order.is_lt(),
            Comparison::LessOrEqual => order.is_le(),
            Comparison::Greater => order.is_gt(),
            Comparison::GreaterOrEqual => order.is_ge(),
        })
    }
}

/// An expression of a generated query.
#[derive(Clone, Debug)]
pub enum Expr {
    /// A field of a variable.
    Field(&'static str, &'static str),
    /// A variable.
    Variable(&'static str),
    /// The ID of the document of a variable.
    Id(&'static str),
    Literal(Value),
    Compare(Comparison, Box<Expr>, Box<Expr>),
    Between(Box<Expr>, Value, Value),
    In(Box<Expr>, Vec<Value>),
    And(Vec<Expr>),
    Or(Vec<Expr>),
    Not(Box<Expr>),
    /// `IS NULL` and similar tests.
    Is(Box<Expr>, Kind, bool),
    Add(Box<Expr>, Box<Expr>),
    Subtract(Box<Expr>, Box<Expr>),
    /// `CASE WHEN … THEN … ELSE … END`.
    Case(Box<Expr>, Box<Expr>, Box<Expr>),
    /// `ANY v IN field SATISFIES v comparison literal END`.
    Any(Box<Expr>, Comparison, Value),
}

#[derive(Clone, Copy, Debug)]
pub enum Kind {
    Null,
    Missing,
    Valued,
}

impl Expr {
    pub fn text(&self) -> String {
        let list = |parts: &[Expr], word: &str| {
            let parts: Vec<String> = parts.iter().map(Expr::text).collect();
            format!("({})", parts.join(word))
        };
        match self {
            Expr::Field(of, name) => format!("{of}.{name}"),
            Expr::Variable(name) => (*name).to_owned(),
            Expr::Id(of) => format!("META({of}).id"),
            Expr::Literal(value) => value.text(),
            Expr::Compare(comparison, a, b) => {
                format!("({} {} {})", a.text(), comparison.text(), b.text())
            }
            Expr::Between(of, low, high) => {
                format!("({} BETWEEN {} AND {})", of.text(), low.text(), high.text())
            }
            Expr::In(of, values) => format!("({} IN {})", of.text(), Array(values.clone()).text()),
            Expr::And(parts) => list(parts, " AND "),
            Expr::Or(parts) => list(parts, " OR "),
            Expr::Not(of) => format!("(NOT {})", of.text()),
            Expr::Is(of, kind, negated) => {
                let word = match kind {
                    Kind::Null => "NULL",
                    Kind::Missing => "MISSING",
                    Kind::Valued => "VALUED",
                };
                format!("({} IS {}{word})", of.text(), if *negated { "NOT " } else { "" })
            }
            Expr::Add(a, b) => format!("({} + {})", a.text(), b.text()),
            Expr::Subtract(a, b) => format!("({} - {})", a.text(), b.text()),
            Expr::Case(condition, a, b) => {
                format!("CASE WHEN {} THEN {} ELSE {} END", condition.text(), a.text(), b.text())
            }
            Expr::Any(of, comparison, value) => {
                let (of, comparison, value) = (of.text(), comparison.text(), value.text());
                format!("ANY v IN {of} SATISFIES v {comparison} {value} END")
            }
        }
    }

    pub fn value(&self, row: &Row) -> Value {
        match self {
            Expr::Variable(name) => row.get(name).cloned().unwrap_or(Missing),
            Expr::Field(of, name) => field(row.get(of).unwrap_or(&Missing), name),
            Expr::Id(of) => field(row.get(of).unwrap_or(&Missing), super::ID),
            Expr::Literal(value) => value.clone(),
            Expr::Compare(comparison, a, b) => comparison.apply(&a.value(row), &b.value(row)),
            Expr::Between(of, low, high) => {
                let of = of.value(row);
                let above = Comparison::GreaterOrEqual.apply(&of, low);
                all([above, Comparison::LessOrEqual.apply(&of, high)])
            }
            Expr::In(of, values) => is_in(&of.value(row), values),
            Expr::And(parts) => all(parts.iter().map(|part| part.value(row))),
            Expr::Or(parts) => some(parts.iter().map(|part| part.value(row))),
            Expr::Not(of) => match of.value(row) {
                Bool(value) => Bool(!value),
                unknown => unknown,
            },
            Expr::Is(of, kind, negated) => is(&of.value(row), *kind, *negated),
            Expr::Add(a, b) => arithmetic(&a.value(row), &b.value(row), |a, b| a + b),
            Expr::Subtract(a, b) => arithmetic(&a.value(row), &b.value(row), |a, b| a - b),
            Expr::Case(condition, a, b) => {
                if condition.value(row).is_true() {
                    a.value(row)
                } else {
                    b.value(row)
                }
            }
            Expr::Any(of, comparison, value) => match of.value(row) {
                Missing => Missing,
                Array(elements) => {
                    Bool(elements.iter().any(|element| comparison.apply(element, value).is_true()))
                }
                _ => Null,
            },
        }
    }
}

fn field(of: &Value, name: &str) -> Value {
    match of {
        Object(fields) => fields.get(name).cloned().unwrap_or(Missing),
        Null => Null,
        _ => Missing,
    }
}

/// FALSE decides, then MISSING, then NULL.
fn all(values: impl IntoIterator<Item = Value>) -> Value {
    let values: Vec<Value> = values.into_iter().collect();
    [Bool(false), Missing, Null]
        .into_iter()
        .find(|value| values.contains(value))
        .unwrap_or(Bool(true))
}

/// TRUE decides, then NULL, then MISSING.
fn some(values: impl IntoIterator<Item = Value>) -> Value {
    let values: Vec<Value> = values.into_iter().collect();
    [Bool(true), Null, Missing]
        .into_iter()
        .find(|value| values.contains(value))
        .unwrap_or(Bool(false))
}

fn is_in(of: &Value, values: &[Value]) -> Value {
    match of {
        Missing => Missing,
        Null => Null,
        _ if values.contains(of) => Bool(true),
        _ if values.contains(&Null) => Null,
        _ => Bool(false),
    }
}

fn is(of: &Value, kind: Kind, negated: bool) -> Value {
    let holds = match kind {
        Kind::Missing => matches!(of, Missing),
        Kind::Valued => of.is_known(),
        // Whether MISSING is null is unknown.
        Kind::Null if matches!(of, Missing) => return Missing,
        Kind::Null => matches!(of, Null),
    };
    Bool(holds != negated)
}

fn arithmetic(a: &Value, b: &Value, operation: fn(f64, f64) -> f64) -> Value {
    match (a, b) {
        (Missing, _) | (_, Missing) => Missing,
        (Number(a), Number(b)) => Number(operation(*a, *b)),
        _ => Null,
    }
}
