//! The format of rows: unchanged, indented, or sorted by name.

use nacre_sql::{Name, Value, sorted, write_string};

/// Indentation of each level.
const INDENT: &str = "    ";

/// The format of rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Style {
    /// True to indent rows over several lines.
    pub pretty: bool,
    /// True to sort the fields of rows by name.
    pub sorted: bool,
}

impl Style {
    /// Returns true if rows are written unchanged.
    pub fn is_plain(self) -> bool {
        self == Style::default()
    }

    /// Appends a row as JSON.
    pub(crate) fn write(self, row: &Value, out: &mut String) {
        let in_order = match row {
            Value::Object(fields) if self.sorted => {
                let fields = sorted(fields).into_iter();
                Some(Value::object(fields.map(|(name, value)| (Name::clone(name), value.clone()))))
            }
            _ => None,
        };
        let row = in_order.as_ref().unwrap_or(row);
        match self.pretty {
            true => {
                out.push_str(INDENT);
                write_pretty(row, 1, out);
            }
            false => row.write_json(out),
        }
    }
}

/// Appends a value; all lines except the first are indented to `level`.
fn write_pretty(value: &Value, level: usize, out: &mut String) {
    match value {
        Value::Array(elements) if !elements.is_empty() => {
            let write = |element: &Value, out: &mut String| write_pretty(element, level + 1, out);
            write_all('[', elements.iter(), ']', level, out, write);
        }
        Value::Object(fields) if !fields.is_empty() => {
            write_all('{', fields.iter(), '}', level, out, |(name, value), out| {
                write_string(name, out);
                out.push_str(": ");
                write_pretty(value, level + 1, out);
            });
        }
        other => other.write_json(out),
    }
}

fn write_all<T>(
    begin: char,
    all: impl Iterator<Item = T>,
    end: char,
    level: usize,
    out: &mut String,
    write: impl Fn(T, &mut String),
) {
    out.push(begin);
    for (at, one) in all.enumerate() {
        out.push_str(if at > 0 { ",\n" } else { "\n" });
        out.push_str(&INDENT.repeat(level + 1));
        write(one, out);
    }
    out.push('\n');
    out.push_str(&INDENT.repeat(level));
    out.push(end);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(style: Style, json: &str) -> String {
        let mut out = String::new();
        style.write(&Value::parse(json.as_bytes()).unwrap(), &mut out);
        out
    }

    #[test]
    fn a_pretty_row_has_a_line_for_each_member() {
        let style = Style { pretty: true, sorted: false };
        let expected = "    {\n        \"b\": [\n            1,\n            {}\n        ],\n        \"a\": \"x\"\n    }";
        assert_eq!(written(style, r#"{"b":[1,{}],"a":"x"}"#), expected);
        assert_eq!(written(style, "7"), "    7");
        assert_eq!(written(style, "[]"), "    []");
    }

    #[test]
    fn only_selected_fields_are_sorted() {
        let style = Style { pretty: false, sorted: true };
        assert_eq!(written(style, r#"{"b":{"d":1,"c":2},"a":3}"#), r#"{"a":3,"b":{"d":1,"c":2}}"#);
        assert_eq!(written(style, r#"["b","a"]"#), r#"["b","a"]"#);
    }
}
