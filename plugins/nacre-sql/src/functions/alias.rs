//! Aliases of functions, and operators in function notation. Source: Couchbase's registry.

use crate::ast::{Binary, Chain, Expr, Unary};

/// Aliases, each with the name in the tables. A call is printed with the latter, so that indexes match both.
pub(super) const ALIASES: &[(&str, &str)] = &[
    ("ANN_DISTANCE", "APPROX_VECTOR_DISTANCE"),
    ("ARRAY_ADD", "ARRAY_PUT"),
    ("ARRAY_POS", "ARRAY_POSITION"),
    ("ARRAY_UPSERT", "ARRAY_PUT"),
    ("DECODE_BASE64", "BASE64_DECODE"),
    ("DEG", "DEGREES"),
    ("ENCODE_BASE64", "BASE64_ENCODE"),
    ("FORMALISE", "FORMALIZE"),
    ("IF_INF", "IFINF"),
    ("IF_MISSING", "IFMISSING"),
    ("IF_MISSING_OR_NULL", "IFMISSINGORNULL"),
    ("IF_NAN", "IFNAN"),
    ("IF_NAN_OR_INF", "IFNANORINF"),
    ("IF_NEGINF", "IFNEGINF"),
    ("IF_NULL", "IFNULL"),
    ("IF_POSINF", "IFPOSINF"),
    ("ISBIN", "IS_BINARY"),
    ("ISNAN", "IS_NAN"),
    ("IS_BIN", "IS_BINARY"),
    ("IS_VECTOR", "ISVECTOR"),
    ("KNN_DISTANCE", "VECTOR_DISTANCE"),
    ("MB_POS0", "MB_POS"),
    ("MB_POSITION0", "MB_POSITION"),
    ("MB_SUBSTR0", "MB_SUBSTR"),
    ("MISSING_IF", "MISSINGIF"),
    ("NAN_IF", "NANIF"),
    ("NEGINF_IF", "NEGINFIF"),
    ("NEG_INF", "NEGINF"),
    ("NULL_IF", "NULLIF"),
    ("OBJECT_INNERPAIRS", "OBJECT_INNER_PAIRS"),
    ("OBJECT_INNERVALUES", "OBJECT_INNER_VALUES"),
    ("OBJECT_OUTERPAIRS", "OBJECT_OUTER_PAIRS"),
    ("OBJECT_OUTERVALUES", "OBJECT_OUTER_VALUES"),
    ("POS0", "POS"),
    ("POSINF_IF", "POSINFIF"),
    ("POS_INF", "POSINF"),
    ("RAD", "RADIANS"),
    ("REGEXP_POS", "REGEXP_POSITION"),
    ("REGEXP_POS0", "REGEXP_POSITION0"),
    ("REGEXP_POS1", "REGEXP_POSITION1"),
    ("REGEX_POS", "REGEXP_POSITION"),
    ("REGEX_POS0", "REGEXP_POSITION0"),
    ("REGEX_POS1", "REGEXP_POSITION1"),
    ("REGEX_POSITION0", "REGEXP_POSITION0"),
    ("REGEX_POSITION1", "REGEXP_POSITION1"),
    ("TYPE_NAME", "TYPE"),
];

/// Operators as functions, with the minimum and maximum number of arguments. Reserved names need back quotes.
pub const OPERATORS: &[(&str, usize, usize)] = &[
    ("and", 2, usize::MAX),
    ("array", 0, usize::MAX),
    ("between", 3, 3),
    ("element", 2, 2),
    ("eq", 2, 2),
    ("exists", 1, 1),
    ("field", 2, 2),
    ("in", 2, 2),
    ("is_known", 1, 1),
    ("is_missing", 1, 1),
    ("is_not_known", 1, 1),
    ("is_not_missing", 1, 1),
    ("is_not_null", 1, 1),
    ("is_not_unknown", 1, 1),
    ("is_not_valued", 1, 1),
    ("is_null", 1, 1),
    ("is_unknown", 1, 1),
    ("is_valued", 1, 1),
    ("isknown", 1, 1),
    ("ismissing", 1, 1),
    ("isnotknown", 1, 1),
    ("isnotmissing", 1, 1),
    ("isnotnull", 1, 1),
    ("isnotunknown", 1, 1),
    ("isnotvalued", 1, 1),
    ("isnull", 1, 1),
    ("isunknown", 1, 1),
    ("isvalued", 1, 1),
    ("le", 2, 2),
    ("like", 2, 3),
    ("lt", 2, 2),
    ("not", 1, 1),
    ("or", 2, usize::MAX),
    ("self", 0, 0),
    ("slice", 2, 3),
    ("within", 2, 2),
];

/// Returns the minimum and maximum number of arguments of an operator in function notation; `None` for other
/// names.
pub(crate) fn operator_takes(name: &str) -> Option<(usize, usize)> {
    let found = OPERATORS.iter().find(|(operator, ..)| operator.eq_ignore_ascii_case(name));
    found.map(|(_, least, most)| (*least, *most))
}

/// Returns the operator expression for a function call. The number of arguments must be as in [`operator_takes`].
pub(crate) fn operator(name: &str, mut args: Vec<Expr>) -> Option<Expr> {
    let name = name.to_ascii_lowercase();
    match name.as_str() {
        "and" => return Some(Expr::Chain(Chain::And, args)),
        "or" => return Some(Expr::Chain(Chain::Or, args)),
        "array" => return Some(Expr::Array(args)),
        "self" => return Some(Expr::Itself),
        _ => {}
    }
    let third = (args.len() == 3).then(|| args.pop()).flatten().map(Box::new);
    let second = (args.len() == 2).then(|| args.pop()).flatten().map(Box::new);
    let first = Box::new(args.pop()?);
    let not = |expr: Expr| Expr::Unary(Unary::Not, Box::new(expr));
    let Some(second) = second else {
        let test = match name.trim_start_matches("is").trim_start_matches('_') {
            "not" => return Some(Expr::Unary(Unary::Not, first)),
            "exists" => return Some(Expr::Unary(Unary::Exists, first)),
            test => test,
        };
        let (is_negated, test) = match test.strip_prefix("not_").or(test.strip_prefix("not")) {
            Some(test) => (true, test),
            None => (false, test),
        };
        let expr = match test {
            "null" => Expr::Unary(Unary::IsNull, first),
            "missing" => Expr::Unary(Unary::IsMissing, first),
            "known" | "valued" => Expr::Unary(Unary::IsKnown, first),
            "unknown" if is_negated => return Some(Expr::Unary(Unary::IsKnown, first)),
            "unknown" => return Some(not(Expr::Unary(Unary::IsKnown, first))),
            _ => return None,
        };
        return Some(if is_negated { not(expr) } else { expr });
    };
    let binary = |operator, a, b| Some(Expr::Binary(operator, a, b));
    match name.as_str() {
        "between" => Some(Expr::Between(first, second, third?)),
        "like" => Some(Expr::Like(first, second, third)),
        "slice" => Some(Expr::Slice(first, Some(second), third)),
        "eq" => binary(Binary::Equal, first, second),
        "le" => binary(Binary::LessOrEqual, first, second),
        "lt" => binary(Binary::Less, first, second),
        "in" => binary(Binary::In, first, second),
        "within" => binary(Binary::Within, first, second),
        "element" | "field" => Some(Expr::Element(first, second)),
        _ => None,
    }
}
