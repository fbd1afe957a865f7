//! What must be known about JSON text before the engine sees it.

/// How deep arrays and objects nest in `json`: 0 for a scalar.
///
/// The parser of the engine recurses, and its native stack in the sandbox ends before its own check does.
/// Works on any bytes; what is not JSON is found by the parser.
pub fn depth(json: &[u8]) -> usize {
    let (mut depth, mut deepest, mut at) = (0usize, 0, 0);
    while let Some(byte) = json.get(at) {
        at += 1;
        match byte {
            b'[' | b'{' => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            b'"' => at = string_end(json, at),
            _ => {}
        }
    }
    deepest
}

/// Where the string ends whose text begins at `at`: behind the quotation mark.
fn string_end(json: &[u8], mut at: usize) -> usize {
    loop {
        at += quote_or_escape(json.get(at..).unwrap_or_default());
        match json.get(at) {
            Some(b'"') => return at + 1,
            // Whatever it escapes.
            Some(_) => at += 2,
            None => return json.len(),
        }
    }
}

/// How many bytes come before the first quotation mark or backslash; eight at a time, as documents are mostly text.
fn quote_or_escape(text: &[u8]) -> usize {
    const ONES: u64 = u64::from_ne_bytes([1; 8]);
    const HIGH: u64 = u64::from_ne_bytes([0x80; 8]);
    let (words, rest) = text.as_chunks::<8>();
    for (index, word) in words.iter().enumerate() {
        let word = u64::from_le_bytes(*word);
        // The lowest high bit that is set is that of the first byte that is zero.
        let zero = |word: u64| word.wrapping_sub(ONES) & !word & HIGH;
        let found = zero(word ^ (ONES * u64::from(b'"'))) | zero(word ^ (ONES * u64::from(b'\\')));
        if found != 0 {
            return index * 8 + (found.trailing_zeros() / 8) as usize;
        }
    }
    let ends = |byte: &u8| matches!(byte, b'"' | b'\\');
    words.len() * 8 + rest.iter().position(ends).unwrap_or(rest.len())
}

/// Appends `text` as a JSON string.
pub fn quote(text: &str, out: &mut String) {
    out.push('"');
    // Most text is said as it is.
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

    #[test]
    fn brackets_in_strings_do_not_nest() {
        assert_eq!(depth(br#"{"a":[1,{"b":"]}[{\"["}],"c":[]}"#), 3);
        assert_eq!(depth(b"17"), 0);
        assert_eq!(depth("[".repeat(100_000).as_bytes()), 100_000);
    }

    proptest! {
        #[test]
        fn strings_are_skipped_as_they_are_byte_by_byte(json in "[\\[\\]{}\"\\\\a-c\u{80}-\u{fff}]{0,60}") {
            let (mut levels, mut deepest, mut in_string, mut is_escaped) = (0usize, 0, false, false);
            for byte in json.bytes() {
                match byte {
                    _ if is_escaped => is_escaped = false,
                    b'\\' if in_string => is_escaped = true,
                    b'"' => in_string = !in_string,
                    b'[' | b'{' if !in_string => {
                        levels += 1;
                        deepest = deepest.max(levels);
                    }
                    b']' | b'}' if !in_string => levels = levels.saturating_sub(1),
                    _ => {}
                }
            }
            prop_assert_eq!(depth(json.as_bytes()), deepest);
        }
    }

    #[test]
    fn quoted_text_reads_back() {
        let mut out = String::new();
        quote("a\"\\\n\u{1}é", &mut out);
        assert_eq!(out, "\"a\\\"\\\\\\n\\u0001é\"");
    }
}
