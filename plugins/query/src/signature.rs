//! The signature of a query: the types of the fields of its rows, as far as the text determines
//! them.

use nacre_sql::Value;
use nacre_sql::ast::{Binary, Body, Chain, Collect, Expr, Projection, Select, Term, Unary};

/// The type of a value that is not known in advance.
const ANYTHING: &str = "json";

/// Returns the types of the fields of a row, or of the row itself.
pub(crate) fn of_select(select: &Select) -> Value {
    let Body::Block(block) = &select.body else { return ANYTHING.into() };
    let terms = match &block.projection {
        Projection::Raw(expr, _) => return kind(expr).into(),
        Projection::Terms(terms, _) => terms,
    };
    let fields = terms.iter().zip(block.projection.names());
    Value::object(fields.map(|(term, name)| match (term, name) {
        (Term::Expr(expr, _), Some(name)) => (name, Value::from(kind(expr))),
        _ => ("*".into(), "*".into()),
    }))
}

/// Returns the type of an expression, if it is not NULL or MISSING.
fn kind(expr: &Expr) -> &'static str {
    match expr {
        Expr::Literal(value) => match value {
            Value::Missing => "missing",
            Value::Null => "null",
            Value::Bool(_) => "boolean",
            Value::Int(_) | Value::Float(_) => "number",
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        },
        Expr::Unary(Unary::Negate, _) => "number",
        Expr::Unary(..) | Expr::Like(..) | Expr::Between(..) | Expr::Quantified(_) => "boolean",
        Expr::Binary(operator, ..) => match operator {
            Binary::Add | Binary::Subtract | Binary::Multiply | Binary::Divide | Binary::Modulo => {
                "number"
            }
            Binary::Equal
            | Binary::NotEqual
            | Binary::Less
            | Binary::LessOrEqual
            | Binary::Greater
            | Binary::GreaterOrEqual
            | Binary::DistinctFrom
            | Binary::In
            | Binary::Within => "boolean",
        },
        Expr::Chain(Chain::And | Chain::Or, _) => "boolean",
        Expr::Chain(Chain::Concat, _) => "string",
        Expr::Array(_) | Expr::Slice(..) => "array",
        Expr::Object(_) => "object",
        Expr::Comprehension(made) => match made.collect {
            Collect::Array | Collect::DistinctArray => "array",
            Collect::Object(_) => "object",
            Collect::First => ANYTHING,
        },
        Expr::Bound(bound) => kind(&bound.of),
        Expr::Aggregate(aggregate) if aggregate.name.as_ref() == "count" => "number",
        _ => ANYTHING,
    }
}
