//! Checks of JSON text before the engine parses it.

use nacre_value::json::string_end;

/// Returns the nesting depth of arrays and objects in `json`: 0 for a scalar.
///
/// The limit is needed because the engine's parser recurses, and its native stack in the sandbox
/// overflows before its own check. Accepts any bytes: text after an invalid string is ignored, because
/// the parser stops there too.
pub fn depth(json: &[u8]) -> usize {
    let (mut depth, mut deepest, mut at) = (0usize, 0, 0);
    while let Some(byte) = json.get(at) {
        match byte {
            b'[' | b'{' => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        at = match byte {
            b'"' => string_end(json, at).unwrap_or(json.len()),
            _ => at + 1,
        };
    }
    deepest
}

/// Appends `text` as a JSON string.
pub fn quote(text: &str, out: &mut String) {
    out.push('"');
    // Most text needs no escapes.
    if text.bytes().all(|byte| byte >= b' ' && byte != b'"' && byte != b'\\') {
        out.push_str(text);
        out.push('"');
        return;
    }
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c < ' ' => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::Value;

    #[test]
    fn brackets_in_strings_do_not_nest() {
        assert_eq!(depth(br#"{"a":[1,{"b":"]}[{\"["}],"c":[]}"#), 3);
        assert_eq!(depth(b"17"), 0);
        assert_eq!(depth("[".repeat(100_000).as_bytes()), 100_000);
    }

    fn any_value() -> impl Strategy<Value = Value> {
        let text = "[\\[\\]{}\"\\\\a-c\u{1}\u{80}-\u{fff}]{0,60}";
        let leaf = prop_oneof![any::<i32>().prop_map(Value::from), text.prop_map(Value::from)];
        leaf.prop_recursive(6, 40, 4, move |inner| {
            let members = prop::collection::btree_map(text, inner.clone(), 0..4);
            prop_oneof![
                prop::collection::vec(inner, 0..4).prop_map(Value::from),
                members.prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    /// A direct implementation of the rule.
    fn depth_of(value: &Value) -> usize {
        let below = |deepest: Option<usize>| deepest.unwrap_or_default() + 1;
        match value {
            Value::Array(items) => below(items.iter().map(depth_of).max()),
            Value::Object(members) => below(members.values().map(depth_of).max()),
            _ => 0,
        }
    }

    proptest! {
        #[test]
        fn values_nest_as_deep_as_their_text_says(value in any_value()) {
            prop_assert_eq!(depth(value.to_string().as_bytes()), depth_of(&value));
        }

        #[test]
        fn nesting_after_an_invalid_string_is_not_counted(text in "[a-c\u{80}-\u{fff}]{0,40}") {
            let json = format!("[\"{text}\n\",[[]]]");
            prop_assert_eq!(depth(json.as_bytes()), 1);
        }
    }

    #[test]
    fn quoted_text_reads_back() {
        let mut out = String::new();
        quote("a\"\\\n\u{1}é", &mut out);
        assert_eq!(out, "\"a\\\"\\\\\\n\\u0001é\"");
    }
}
