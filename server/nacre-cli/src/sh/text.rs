//! JSON texts for people, without parsing values: members keep their order and numbers their digits.

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// The members of an object, in order.
pub struct Members(pub Vec<(String, Box<RawValue>)>);

impl Members {
    /// Returns the members of an object; `None` if the row is not an object.
    pub fn of(row: &RawValue) -> Option<Members> {
        serde_json::from_str(row.get()).ok()
    }
}

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Members, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Members;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Reader)
    }
}

/// Returns a value without blanks between its tokens.
pub fn compact(value: &RawValue) -> String {
    laid_out(value.get(), None)
}

/// Returns a value with a line for each member and element, indented by two blanks per level below `depth`.
pub fn indented(value: &RawValue, depth: usize) -> String {
    laid_out(value.get(), Some(depth))
}

/// Reformats valid JSON; strings are copied unchanged.
fn laid_out(json: &str, depth: Option<usize>) -> String {
    let mut out = String::with_capacity(json.len());
    let mut level = depth.unwrap_or(0);
    let line = |out: &mut String, level: usize| {
        if depth.is_some() {
            out.push('\n');
            out.extend(std::iter::repeat_n("  ", level));
        }
    };
    let mut rest = json;
    while let Some(first) = rest.chars().next() {
        let length = if first == '"' { string_bytes(rest) } else { first.len_utf8() };
        let (token, tail) = rest.split_at(length);
        rest = tail;
        match first {
            '{' | '[' => {
                out.push(first);
                let inner = rest.trim_ascii_start();
                if inner.starts_with(['}', ']']) {
                    out.push_str(&inner[..1]);
                    rest = &inner[1..];
                } else {
                    level += 1;
                    line(&mut out, level);
                }
            }
            '}' | ']' => {
                level = level.saturating_sub(1);
                line(&mut out, level);
                out.push(first);
            }
            ',' => {
                out.push(',');
                line(&mut out, level);
            }
            ':' => out.push_str(if depth.is_some() { ": " } else { ":" }),
            _ if first.is_ascii_whitespace() => {}
            _ => out.push_str(token),
        }
    }
    out
}

/// Returns the length of the string at the beginning of `json`, including its quotes.
fn string_bytes(json: &str) -> usize {
    let mut escaped = false;
    let end = json.bytes().skip(1).position(|byte| {
        let is_end = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        is_end
    });
    end.map_or(json.len(), |end| end + 2)
}

/// Returns a value for a cell: strings without quotes, everything else as compact JSON.
pub fn cell(value: &RawValue) -> String {
    match serde_json::from_str::<String>(value.get()) {
        Ok(text) => printable(&text),
        Err(_) => printable(&compact(value)),
    }
}

/// Returns text with its control characters escaped: documents must not control the terminal.
pub fn printable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter.is_control() {
            true => out.extend(letter.escape_default()),
            false => out.push(letter),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(json: &str) -> Box<RawValue> {
        RawValue::from_string(json.to_owned()).unwrap()
    }

    #[test]
    fn order_digits_and_strings_are_preserved() {
        let row =
            raw(r#"{ "z": 1.50, "a": [ 12345678901234567890123, {}, [ ] ], "s\"[,": "a , b\\" }"#);
        assert_eq!(
            compact(&row),
            r#"{"z":1.50,"a":[12345678901234567890123,{},[]],"s\"[,":"a , b\\"}"#
        );
        insta::assert_snapshot!(indented(&row, 0), @r#"
        {
          "z": 1.50,
          "a": [
            12345678901234567890123,
            {},
            []
          ],
          "s\"[,": "a , b\\"
        }
        "#);
        let names: Vec<String> =
            Members::of(&row).unwrap().0.into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["z", "a", "s\"[,"]);
    }

    #[test]
    fn documents_cannot_steer_a_terminal() {
        assert_eq!(cell(&raw(r#""a\u001b[2J\n""#)), r"a\u{1b}[2J\n");
    }
}
