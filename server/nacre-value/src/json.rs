//! Validation of JSON without recursion and without building a tree.
//!
//! Each write is validated, so the scan is a plain loop: containers are bits on a fixed stack, and strings are skipped
//! 32 bytes at a time and then eight at a time. The accepted grammar is that of RFC 8259 in UTF-8, with any value at
//! the root and at most [`DEPTH_MAX`] nested containers. Duplicate names and lone surrogate escapes are deliberately
//! not detected.

use std::ops::Range;

/// The maximum nesting of arrays and objects in a document that counts as JSON.
///
/// Deeper text is stored as bytes without the JSON datatype. The limit is far above that of sub-document operations
/// ([`crate::path::DEPTH_MAX`]), and small enough that every later parser with a recursion limit in the thousands can
/// parse accepted text.
pub const DEPTH_MAX: usize = 1024;

/// Returns true if `bytes` are one JSON value, optionally surrounded by white space.
pub fn is_json(bytes: &[u8]) -> bool {
    shape::<false>(bytes).is_some()
}

/// Result of a validation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Number of values at the root; 1 unless a list was allowed.
    pub(crate) value_count: usize,
    /// Number of containers around the innermost value: 0 for a bare string, 2 for `[{"a":1}]`.
    pub(crate) depth: usize,
}

/// Validates one value, or with `LIST` one or more values separated by commas (`1,"two",[3]`).
pub(crate) fn shape<const LIST: bool>(bytes: &[u8]) -> Option<Shape> {
    // Text that is not JSON usually fails early.
    let shape = scan::<LIST>(bytes, |_, _| {})?;
    // One pass over the whole text is faster than checking each string, because most text is ASCII.
    simdutf8::basic::from_utf8(bytes).ok().map(|_| shape)
}

/// Validates `text` as one JSON value. If it is an object, calls `tell` for each member with the range of the name
/// between its quotation marks and the range of the value. Escapes in names are not decoded.
///
/// Returns the number of containers around the innermost value, at most [`DEPTH_MAX`]; `None` if the text is not JSON.
/// In that case some members may already have been reported.
pub fn members(text: &str, tell: impl FnMut(Range<usize>, Range<usize>)) -> Option<usize> {
    scan::<false>(text.as_bytes(), tell).map(|shape| shape.depth)
}

/// Validates text except for its UTF-8 encoding, and reports the members of an object at the root.
fn scan<const LIST: bool>(
    bytes: &[u8],
    mut tell: impl FnMut(Range<usize>, Range<usize>),
) -> Option<Shape> {
    let mut nesting = Nesting::default();
    let mut value_count = 1;
    let mut at = space_end(bytes, 0);
    // The name of the latest member of the root, and the position where its value begins.
    let (mut name, mut value_start) = (0..0, 0);
    loop {
        // A value begins here.
        let opened = match *bytes.get(at)? {
            open @ (b'{' | b'[') => {
                let object = open == b'{';
                nesting.push(object)?;
                at = space_end(bytes, at + 1);
                if *bytes.get(at)? == (if object { b'}' } else { b']' }) {
                    at += 1;
                    nesting.pop();
                    false
                } else {
                    if object {
                        let named = name_end(bytes, at)?;
                        at = named.1;
                        if nesting.depth == 1 {
                            (name, value_start) = named;
                        }
                    }
                    true
                }
            }
            b'"' => {
                at = string_end(bytes, at)?;
                false
            }
            _ => {
                at = scalar_end(bytes, at)?;
                false
            }
        };
        if opened {
            continue;
        }
        // A value has ended: close containers, then continue after a comma.
        loop {
            let value_end = at;
            at = space_end(bytes, at);
            let Some(object) = nesting.top() else {
                if at == bytes.len() {
                    return Some(Shape { value_count, depth: nesting.depth_max });
                }
                if !LIST || bytes[at] != b',' {
                    return None;
                }
                value_count += 1;
                at = space_end(bytes, at + 1);
                break;
            };
            if nesting.depth == 1 && object {
                tell(name.clone(), value_start..value_end);
            }
            match *bytes.get(at)? {
                b',' => {
                    at = space_end(bytes, at + 1);
                    if object {
                        let named = name_end(bytes, at)?;
                        at = named.1;
                        if nesting.depth == 1 {
                            (name, value_start) = named;
                        }
                    }
                    break;
                }
                b'}' if object => nesting.pop(),
                b']' if !object => nesting.pop(),
                _ => return None,
            }
            at += 1;
        }
    }
}

/// The open containers as bits (1 = object), outermost first.
struct Nesting {
    words: [u64; DEPTH_MAX / 64],
    depth: usize,
    depth_max: usize,
}

impl Default for Nesting {
    fn default() -> Nesting {
        Nesting { words: [0; DEPTH_MAX / 64], depth: 0, depth_max: 0 }
    }
}

impl Nesting {
    fn push(&mut self, object: bool) -> Option<()> {
        let word = self.words.get_mut(self.depth / 64)?;
        let bit = 1 << (self.depth % 64);
        *word = if object { *word | bit } else { *word & !bit };
        self.depth += 1;
        self.depth_max = self.depth_max.max(self.depth);
        Some(())
    }

    fn pop(&mut self) {
        self.depth -= 1;
    }

    fn top(&self) -> Option<bool> {
        let top = self.depth.checked_sub(1)?;
        Some(self.words[top / 64] >> (top % 64) & 1 == 1)
    }
}

/// Returns the first position from `at` on that is not white space; it may be the end.
#[inline]
pub(crate) fn space_end(bytes: &[u8], mut at: usize) -> usize {
    while let Some(b' ' | b'\n' | b'\t' | b'\r') = bytes.get(at) {
        at += 1;
    }
    at
}

/// Skips `"name" :` and the following white space. Returns the range of the name between its quotation marks, and the
/// end.
fn name_end(bytes: &[u8], at: usize) -> Option<(Range<usize>, usize)> {
    if *bytes.get(at)? != b'"' {
        return None;
    }
    let end = string_end(bytes, at)?;
    let colon = space_end(bytes, end);
    (*bytes.get(colon)? == b':').then(|| (at + 1..end - 1, space_end(bytes, colon + 1)))
}

/// Returns the position after the string whose opening quotation mark is at `at`; `None` if the string does not end or
/// is not JSON.
#[inline]
pub fn string_end(bytes: &[u8], at: usize) -> Option<usize> {
    let mut at = at + 1;
    loop {
        at += plain_blocks(bytes.get(at..)?);
        while let Some(chunk) = bytes.get(at..).and_then(|rest| rest.first_chunk::<8>()) {
            let special = special_bytes(u64::from_le_bytes(*chunk));
            if special != 0 {
                at += special.trailing_zeros() as usize / 8;
                break;
            }
            at += 8;
        }
        match *bytes.get(at)? {
            b'"' => return Some(at + 1),
            b'\\' => at = escape_end(bytes, at)?,
            0..0x20 => return None,
            _ => at += 1,
        }
    }
}

/// Number of bytes that are examined at once: the size of two 128-bit registers.
const BLOCK_BYTES: usize = 32;

/// Returns the length in bytes of the leading blocks of `text` without special characters.
#[inline]
fn plain_blocks(text: &[u8]) -> usize {
    let (blocks, _) = text.as_chunks::<BLOCK_BYTES>();
    let is_special = |block: &[u8; BLOCK_BYTES]| {
        let (words, _) = block.as_chunks();
        words.iter().fold(0, |all, word| all | special_bytes(u64::from_le_bytes(*word))) != 0
    };
    BLOCK_BYTES * blocks.iter().position(is_special).unwrap_or(blocks.len())
}

/// Marks the first byte of `word` that is a quotation mark, a backslash or a control character, by its top bit.
///
/// Marks above the first one may be false, because the subtractions borrow; only the lowest is used. Source: "Bit
/// Twiddling Hacks" (S. E. Anderson), zero bytes and bytes below n in a word.
fn special_bytes(word: u64) -> u64 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let quotes = word ^ (ONES * b'"' as u64);
    let backslashes = word ^ (ONES * b'\\' as u64);
    let zero = |x: u64| x.wrapping_sub(ONES) & !x;
    let control = word.wrapping_sub(ONES * 0x20) & !word;
    (zero(quotes) | zero(backslashes) | control) & (ONES * 0x80)
}

fn escape_end(bytes: &[u8], at: usize) -> Option<usize> {
    match *bytes.get(at + 1)? {
        b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => Some(at + 2),
        b'u' => {
            let digits = bytes.get(at + 2..at + 6)?;
            digits.iter().all(u8::is_ascii_hexdigit).then_some(at + 6)
        }
        _ => None,
    }
}

/// Returns the position after the number or literal at `at`.
fn scalar_end(bytes: &[u8], at: usize) -> Option<usize> {
    let rest = bytes.get(at..)?;
    match *rest.first()? {
        b't' => rest.starts_with(b"true").then_some(at + 4),
        b'f' => rest.starts_with(b"false").then_some(at + 5),
        b'n' => rest.starts_with(b"null").then_some(at + 4),
        _ => number_end(bytes, at),
    }
}

fn number_end(bytes: &[u8], mut at: usize) -> Option<usize> {
    if *bytes.get(at)? == b'-' {
        at += 1;
    }
    at = match *bytes.get(at)? {
        b'0' => at + 1,
        _ => digits_end(bytes, at)?,
    };
    if bytes.get(at) == Some(&b'.') {
        at = digits_end(bytes, at + 1)?;
    }
    if let Some(b'e' | b'E') = bytes.get(at) {
        at += 1;
        if let Some(b'+' | b'-') = bytes.get(at) {
            at += 1;
        }
        at = digits_end(bytes, at)?;
    }
    Some(at)
}

/// Returns the position after one or more digits.
fn digits_end(bytes: &[u8], start: usize) -> Option<usize> {
    let mut at = start;
    while let Some(b'0'..=b'9') = bytes.get(at) {
        at += 1;
    }
    (at > start).then_some(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_of_any_kind_may_be_the_root() {
        for text in
            ["{}", "[]", " 1 ", "-0.5e+3", "true", "false", "null", r#""a\u00e9\n""#, "[[],{}]"]
        {
            assert!(is_json(text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn nearly_valid_json_is_refused() {
        let texts = [
            "",
            " ",
            "{",
            "}",
            "[1,]",
            "[1 2]",
            "{,}",
            r#"{"a"}"#,
            r#"{"a":}"#,
            r#"{"a":1,}"#,
            "{a:1}",
            "01",
            "+1",
            "1.",
            ".5",
            "1e",
            "-",
            "tru",
            "nulll",
            r#"""#,
            r#""\x""#,
            r#""\u12g4""#,
            "\"\n\"",
            "1,2",
            "[}",
            "{]",
            "{}{}",
            "[1]]",
            "NaN",
            "'a'",
        ];
        for text in texts {
            assert!(!is_json(text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn bytes_that_are_not_utf8_are_refused() {
        assert!(!is_json(b"\"\xff\""));
        assert!(!is_json(b"\"\xed\xa0\x80\""));
    }

    #[test]
    fn control_characters_are_found_at_every_offset_of_a_string() {
        for offset in 0..80 {
            let mut text = vec![b'x'; 80];
            text[offset] = 0x1f;
            let text = [b"\"", text.as_slice(), b"\""].concat();
            assert!(!is_json(&text), "offset {offset}");
        }
    }

    #[test]
    fn text_outside_ascii_passes_at_every_offset_of_a_string() {
        for offset in 0..80 {
            let text =
                format!("\"{}é\u{10ffff} \u{7f}{}\"", "x".repeat(offset), "y".repeat(80 - offset));
            assert!(is_json(text.as_bytes()), "offset {offset}");
        }
    }

    #[test]
    fn nesting_is_limited() {
        let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        assert!(is_json(nested(DEPTH_MAX).as_bytes()));
        assert!(!is_json(nested(DEPTH_MAX + 1).as_bytes()));
        assert!(!is_json(&vec![b'['; 1_000_000]));
    }

    #[test]
    fn members_of_the_root_are_listed() {
        let told = |text: &str| {
            let mut told = String::new();
            let depth =
                members(text, |name, value| told += &format!("{}={};", &text[name], &text[value]));
            (told, depth)
        };
        let text = r#" { "a" : {"x":[1,{"y":2}],"z":0} , "b\"c":"}" ,"":[] , "a": -1.5e3 } "#;
        let expected = r#"a={"x":[1,{"y":2}],"z":0};b\"c="}";=[];a=-1.5e3;"#;
        assert_eq!(told(text), (expected.into(), Some(4)));
        assert_eq!(told("{}"), (String::new(), Some(1)));
        assert_eq!(told(r#"[{"a":1}]"#), (String::new(), Some(2)));
        assert_eq!(told("17"), (String::new(), Some(0)));
        for text in [r#"{"a":1"#, r#"{"a":1}}"#, r#"{"a":01}"#, r#"{"a":1,}"#] {
            assert_eq!(told(text).1, None, "{text}");
        }
    }

    #[test]
    fn lists_are_counted_and_measured() {
        let list = shape::<true>;
        assert_eq!(list(b"1, [[]] ,{}"), Some(Shape { value_count: 3, depth: 2 }));
        assert_eq!(list(b"1"), Some(Shape { value_count: 1, depth: 0 }));
        assert_eq!(list(b"1,"), None);
        assert_eq!(list(b","), None);
    }
}
