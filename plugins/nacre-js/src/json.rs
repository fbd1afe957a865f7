//! What must be known about JSON text before the engine sees it.

/// How deep arrays and objects nest in `json`: 0 for a scalar.
///
/// The parser of the engine recurses, and its native stack in the sandbox ends before its own check does.
/// Works on any bytes; what is not JSON is found by the parser.
pub fn depth(json: &[u8]) -> usize {
    let (mut depth, mut deepest) = (0usize, 0);
    let mut bytes = json.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'[' | b'{' => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            b'"' => {
                while let Some(byte) = bytes.next() {
                    match byte {
                        b'\\' => {
                            bytes.next();
                        }
                        b'"' => break,
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    deepest
}

/// Appends `text` as a JSON string.
pub fn quote(text: &str, out: &mut String) {
    out.push('"');
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

    #[test]
    fn brackets_in_strings_do_not_nest() {
        assert_eq!(depth(br#"{"a":[1,{"b":"]}[{\"["}],"c":[]}"#), 3);
        assert_eq!(depth(b"17"), 0);
        assert_eq!(depth("[".repeat(100_000).as_bytes()), 100_000);
    }

    #[test]
    fn quoted_text_reads_back() {
        let mut out = String::new();
        quote("a\"\\\n\u{1}é", &mut out);
        assert_eq!(out, "\"a\\\"\\\\\\n\\u0001é\"");
    }
}
