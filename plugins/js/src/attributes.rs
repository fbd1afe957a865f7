//! Extended attributes as JSON.

use nacre_js::quote;

/// Returns the attributes of a section as the members of a JSON object; `None` if it is empty or invalid.
///
/// A section is a length, and pairs with a length each: `name 00 value 00`.
pub fn members(section: &[u8]) -> Option<String> {
    let (mut rest, _) = prefixed(section)?;
    let mut members = String::new();
    while !rest.is_empty() {
        let pair;
        (pair, rest) = prefixed(rest)?;
        let mut parts = pair.strip_suffix(&[0])?.splitn(2, |byte| *byte == 0);
        let name = std::str::from_utf8(parts.next()?).ok()?;
        let value = std::str::from_utf8(parts.next()?).ok()?;
        if !members.is_empty() {
            members.push(',');
        }
        quote(name, &mut members);
        members.push(':');
        members.push_str(value);
    }
    (!members.is_empty()).then_some(members)
}

/// Splits off the bytes that a length prefix covers.
fn prefixed(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    rest.split_at_checked(usize::try_from(u32::from_be_bytes(*length)).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_becomes_members() {
        let section = b"\0\0\0\x13\0\0\0\x05_s\x001\0\0\0\0\x06t\x00[2]\0";
        assert_eq!(members(section).unwrap(), r#""_s":1,"t":[2]"#);
        assert_eq!(members(b""), None);
        for end in 0..section.len() {
            assert_eq!(members(&section[..end]), None, "{end} bytes");
        }
    }
}
