//! Functions of a text that queries call for every row, computed without the evaluator.
//!
//! A text that such a function does not cover is left to the evaluator, so that results never differ.

use super::evaluate::Argument;
use nacre_sql::ast::Expr;
use nacre_sql::{Name, Value};

/// A function of one text; its other arguments are constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Native {
    /// `STRING_TO_CODEPOINT(text)[0]`.
    FirstCodePoint,
    /// SUBSTR: the first byte, counted from 0, and the number of bytes.
    Part(usize, usize),
    /// `DATE_PART_STR(text, "year")`.
    Year,
}

/// A result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Computed<'a> {
    /// An integer.
    Int(i64),
    /// A part of the text.
    Text(&'a str),
    /// NULL or MISSING.
    Unknown,
}

impl Native {
    /// Returns the function that an expression calls with its only argument; `None` for other expressions.
    pub fn of(expr: &Expr, arguments: &[(Name, Argument)]) -> Option<Native> {
        let [(name, Argument::Typed { .. })] = arguments else { return None };
        let is_argument = |expr: &Expr| matches!(expr, Expr::Ident(known) if known == name);
        match expr {
            Expr::Element(of, index) => match (&**of, &**index) {
                (Expr::UserCall(path, arguments), Expr::Literal(Value::Int(0))) => {
                    let is_known = path.join(".").eq_ignore_ascii_case("string_to_codepoint");
                    let is_plain = matches!(&arguments[..], [argument] if is_argument(argument));
                    (is_known && is_plain).then_some(Native::FirstCodePoint)
                }
                _ => None,
            },
            Expr::Call(function, arguments) => match (function.name, &arguments[..]) {
                ("DATE_PART_STR", [text, Expr::Literal(Value::String(part))]) => {
                    (is_argument(text) && **part == *"year").then_some(Native::Year)
                }
                (
                    name @ ("SUBSTR" | "SUBSTR0" | "SUBSTR1"),
                    [text, Expr::Literal(Value::Int(from)), Expr::Literal(Value::Int(count))],
                ) if is_argument(text) => {
                    let first = i64::from(name == "SUBSTR1" && *from > 0);
                    let from = usize::try_from(from - first).ok()?;
                    Some(Native::Part(from, usize::try_from(*count).ok()?))
                }
                _ => None,
            },
            _ => None,
        }
    }

    /// Computes the result for a text; `None` if the evaluator must do it.
    pub fn compute(self, text: &str) -> Option<Computed<'_>> {
        match self {
            Native::FirstCodePoint => Some(match text.chars().next() {
                Some(letter) => Computed::Int(i64::from(u32::from(letter))),
                None => Computed::Unknown,
            }),
            Native::Part(from, _) if from >= text.len().max(1) => Some(Computed::Unknown),
            Native::Part(from, count) => {
                let to = from.saturating_add(count).min(text.len());
                // A part of a letter is no text.
                text.get(from..to).map(Computed::Text)
            }
            Native::Year => year(text.as_bytes()).map(Computed::Int),
        }
    }
}

/// Returns the year of `YYYY-MM-DD` or `YYYY-MM-DD HH:MM:SS`; `None` for other forms, and for days that not every month has.
fn year(text: &[u8]) -> Option<i64> {
    let number = |from: usize, to: usize| {
        text[from..to].iter().try_fold(0_i64, |number, byte| {
            byte.is_ascii_digit().then(|| number * 10 + i64::from(byte - b'0'))
        })
    };
    let is_time = |text: &[u8]| text[10] == b' ' && text[13] == b':' && text[16] == b':';
    match text.len() {
        10 => {}
        19 if is_time(text) => {
            let is_valid = number(11, 13)? < 24 && number(14, 16)? < 60 && number(17, 19)? < 60;
            is_valid.then_some(())?;
        }
        _ => return None,
    }
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let is_common = (1..=12).contains(&month) && (1..=28).contains(&day) && year >= 1000;
    (text[4] == b'-' && text[7] == b'-' && is_common).then_some(year)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_sql::{Caches, Context, Env, NoHost, eval, functions};
    use std::collections::BTreeMap;

    const TEXTS: [&str; 22] = [
        "",
        "a",
        "ab",
        "abcdef",
        "é",
        "aé",
        "éa",
        "😀x",
        "2016-02-28",
        "2016-02-29",
        "2016-12-31 23:59:59",
        "2016-12-28 23:59:59",
        "2016-12-28 24:00:00",
        "2016-12-28 23:60:00",
        "2016-12-28T23:59:59",
        "2016-12-28 23:59:59.5",
        "2016-13-01",
        "2016-00-01",
        "2016-01-00",
        "0016-01-01",
        "20160-1-01",
        "2016-1a-01",
    ];

    fn call(function: &str, arguments: &[Value]) -> Expr {
        let text = Expr::Ident("#0".into());
        let others = arguments.iter().map(|value| Expr::Literal(value.clone()));
        let function = functions::find(function).expect("it is a function of the language");
        Expr::Call(function, std::iter::once(text).chain(others).collect())
    }

    /// Compares with the evaluator, for texts of all forms.
    #[test]
    fn results_are_those_of_the_evaluator() {
        let arguments = [(Name::from("#0"), Argument::Typed { is_missing: false })];
        let (named, caches) = (BTreeMap::new(), Caches::default());
        let context = Context {
            host: &NoHost,
            positional: &[],
            named: &named,
            statement_ms: 0,
            caches: &caches,
        };
        let mut exprs = vec![call("DATE_PART_STR", &["year".into()])];
        for name in ["SUBSTR", "SUBSTR0", "SUBSTR1"] {
            for from in 0..4 {
                let parts = (0..4).map(|count| call(name, &[Value::Int(from), Value::Int(count)]));
                exprs.extend(parts);
            }
        }
        let mut computed = 0;
        for expr in &exprs {
            let native = Native::of(expr, &arguments).expect("it is computed natively");
            for text in TEXTS {
                let env = Env::new().with(&arguments[0].0, Value::string(text));
                let expected = eval(expr, &env, &context).unwrap();
                let same = match native.compute(text) {
                    Some(Computed::Int(number)) => expected.as_i64() == Some(number),
                    Some(Computed::Text(part)) => expected.as_str() == Some(part),
                    Some(Computed::Unknown) => !expected.is_known(),
                    None => continue,
                };
                assert!(same, "{expr} of {text:?} is {expected:?}");
                computed += 1;
            }
        }
        assert!(computed > 500, "{computed}");
        assert_eq!(Native::Year.compute("2016-12-28 23:59:59"), Some(Computed::Int(2016)));
        assert_eq!(Native::Year.compute("2016-02-29"), None);
    }

    #[test]
    fn the_first_code_point_is_that_of_the_first_letter() {
        let points = ["a", "é", "😀x", ""].map(|text| Native::FirstCodePoint.compute(text));
        let expected = [Computed::Int(97), Computed::Int(233), Computed::Int(128_512)];
        assert_eq!(points[..3], expected.map(Some));
        assert_eq!(points[3], Some(Computed::Unknown));
    }
}
