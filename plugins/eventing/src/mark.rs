//! The mark on what a function writes to its own source, so that it does not wake it again.
//!
//! It is the extended attribute `_eventing`, `{"fiid": "<the function>", "cas": "0x…"}`, with the version that the write
//! made, which only the server can fill in. A version of the document that is another carries a mark that is not its own:
//! somebody else has written since. As the mark is part of the document, a crash does not part the two.

use serde::Deserialize;

/// The name of the attribute.
const ATTRIBUTE: &[u8] = b"_eventing";

#[derive(Deserialize)]
struct Mark<'a> {
    fiid: &'a str,
    cas: &'a str,
}

/// Whether the version `cas` of a document with this section of extended attributes was written by the function `id`.
pub fn is_own(section: &[u8], cas: u64, id: &str) -> bool {
    let Some(text) = attribute(section, ATTRIBUTE) else { return false };
    let Ok(mark) = serde_json::from_slice::<Mark<'_>>(text) else { return false };
    // Macros show a version in the order of its bytes.
    mark.fiid == id && mark.cas == format!("0x{:016x}", cas.swap_bytes())
}

/// Returns the attribute `name` of a section.
fn attribute<'a>(section: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    pairs(section).find(|(found, _)| *found == name).map(|(_, value)| value)
}

/// Iterates over names and values of a section: a length, and pairs with a length each, `name 00 value 00`. Ends where it is cut short.
pub fn pairs(section: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let mut rest = prefixed(section).map_or(&[][..], |(pairs, _)| pairs);
    std::iter::from_fn(move || {
        let pair;
        (pair, rest) = prefixed(rest)?;
        let end = pair.iter().position(|byte| *byte == 0)?;
        Some((&pair[..end], pair[end + 1..].strip_suffix(&[0])?))
    })
}

/// What a length covers, and what stands behind.
fn prefixed(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    rest.split_at_checked(usize::try_from(u32::from_be_bytes(*length)).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section(pairs: &[(&str, &str)]) -> Vec<u8> {
        let mut body = Vec::new();
        for (name, value) in pairs {
            let pair = [name.as_bytes(), b"\0", value.as_bytes(), b"\0"].concat();
            body.extend((pair.len() as u32).to_be_bytes());
            body.extend(pair);
        }
        [&(body.len() as u32).to_be_bytes()[..], &body].concat()
    }

    #[test]
    fn a_write_is_its_own_as_long_as_nobody_else_has_written() {
        let mark = r#"{"fiid":"f","cas":"0x0000010000000000"}"#;
        let section = section(&[("a", "1"), ("_eventing", mark)]);
        let cas = 0x0000_0100_0000_0000_u64.swap_bytes();
        assert!(is_own(&section, cas, "f"));
        assert!(!is_own(&section, cas + 1, "f"), "written since");
        assert!(!is_own(&section, cas, "g"), "another function");
        assert!(!is_own(b"", cas, "f"));
        for end in 1..section.len() {
            assert!(!is_own(&section[..end], cas, "f"), "{end} bytes");
        }
    }
}
