//! Validated JSON: its parts, and how the engine would write them.

use super::eval::Value;
use super::is_placed;
use nacre_value::json::string_end;
use std::fmt::Write;

/// Returns the value of a JSON text, or `None` for a text with an unpaired surrogate.
pub fn value(json: &str) -> Option<Value<'_>> {
    Some(match json.as_bytes() {
        [b'"', text @ .., b'"'] if !text.contains(&b'\\') => {
            Value::Text(json[1..json.len() - 1].into())
        }
        [b'"', ..] => Value::Text(serde_json::from_str::<String>(json).ok()?.into()),
        [b'[', ..] => Value::Array(json),
        [b'{', ..] => Value::Object(json),
        b"null" => Value::Null,
        b"true" => Value::Bool(true),
        b"false" => Value::Bool(false),
        _ => Value::Number(json.parse().ok()?),
    })
}

/// Returns the items of an array.
pub fn items(array: &str) -> impl Iterator<Item = &str> {
    // Each item ends before a comma, or before the closing bracket, at the nesting level of the array.
    let (mut rest, mut is_over) = (&array[1..], false);
    std::iter::from_fn(move || {
        if is_over {
            return None;
        }
        let (mut depth, mut end) = (0, 0);
        let bytes = rest.as_bytes();
        loop {
            match bytes.get(end)? {
                b'"' => end = string_end(bytes, end)?,
                b'[' | b'{' => (depth, end) = (depth + 1, end + 1),
                b']' if depth == 0 => {
                    is_over = true;
                    break;
                }
                b']' | b'}' => (depth, end) = (depth - 1, end + 1),
                b',' if depth == 0 => break,
                _ => end += 1,
            }
        }
        let item = rest[..end].trim_ascii();
        rest = &rest[end + 1..];
        // Only an empty array has nothing before its closing bracket.
        (!item.is_empty()).then_some(item)
    })
}

/// Appends a number as the engine writes it in JSON. Returns `None` for a number with an exponent.
pub fn write_number(number: f64, out: &mut String) -> Option<()> {
    const WHOLE_MAX: f64 = 9_007_199_254_740_992.0;
    if !number.is_finite() {
        out.push_str("null");
    } else if number.abs() < WHOLE_MAX && number.trunc() == number {
        // This is also correct for negative zero.
        write!(out, "{}", number as i64).ok()?;
    } else if (1e-6..1e21).contains(&number.abs()) {
        write!(out, "{number}").ok()?;
    } else {
        return None;
    }
    Some(())
}

/// Appends an array or object as the engine writes it: without spaces, and with reformatted numbers. Returns `None` if the
/// engine would reorder the members, or if the text contains escapes.
pub fn write_json(json: &str, out: &mut String) -> Option<()> {
    let bytes = json.as_bytes();
    // The open containers; for objects, with the names of their members.
    let mut open: Vec<Option<Vec<&str>>> = Vec::new();
    let (mut at, mut is_name) = (0, false);
    while let Some(&byte) = bytes.get(at) {
        let start = at;
        at += 1;
        match byte {
            b' ' | b'\n' | b'\r' | b'\t' => continue,
            b'"' => {
                at = string_end(bytes, start)?;
                let text = &json[start + 1..at - 1];
                if text.contains('\\') {
                    return None;
                }
                if is_name {
                    let names = open.last_mut()?.as_mut()?;
                    if !is_placed(text, names) {
                        return None;
                    }
                    names.push(text);
                    is_name = false;
                }
            }
            b'{' | b'[' => {
                is_name = byte == b'{';
                open.push(is_name.then(Vec::new));
            }
            b'}' | b']' => {
                open.pop();
                is_name = false;
            }
            b',' => is_name = open.last()?.is_some(),
            b'-' | b'0'..=b'9' => {
                let is_part =
                    |byte: &u8| !matches!(byte, b',' | b']' | b'}' | b' ' | b'\n' | b'\r' | b'\t');
                at += bytes[at..].iter().take_while(|byte| is_part(byte)).count();
                write_number(json[start..at].parse().ok()?, out)?;
                continue;
            }
            _ => {}
        }
        out.push_str(&json[start..at]);
    }
    Some(())
}
