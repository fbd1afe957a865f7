//! The mark on a function's writes to its own source, which keeps them from triggering the function again.
//!
//! The mark is the extended attribute `_eventing`, `{"fiid": "<the function>", "cas": "0x…"}`. Its CAS is that of the
//! write, which only the server can fill in. If the document's CAS differs, somebody else has written the document since.
//! The mark is part of the document, so that a crash cannot separate the two.

use serde::Deserialize;

/// Name of the attribute.
const ATTRIBUTE: &[u8] = b"_eventing";

#[derive(Deserialize)]
struct Mark<'a> {
    fiid: &'a str,
    cas: &'a str,
}

/// Returns true if the function `id` wrote the version `cas` of a document with this section of extended attributes.
pub fn is_own(section: &[u8], cas: u64, id: &str) -> bool {
    let Some(text) = attribute(section, ATTRIBUTE) else { return false };
    let Ok(mark) = serde_json::from_slice::<Mark<'_>>(text) else { return false };
    // Macros write a CAS in its byte order.
    mark.fiid == id && mark.cas == format!("0x{:016x}", cas.swap_bytes())
}

/// Returns the attribute `name` in a section.
fn attribute<'a>(section: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    pairs(section).find(|(found, _)| *found == name).map(|(_, value)| value)
}

/// Iterates over the names and values in a section: a length, and pairs with a length each, `name 00 value 00`. Stops where the section
/// is truncated.
pub fn pairs(section: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let mut rest = prefixed(section).map_or(&[][..], |(pairs, _)| pairs);
    std::iter::from_fn(move || {
        let pair;
        (pair, rest) = prefixed(rest)?;
        let end = pair.iter().position(|byte| *byte == 0)?;
        Some((&pair[..end], pair[end + 1..].strip_suffix(&[0])?))
    })
}

/// Returns the bytes that a length covers, and the bytes after them.
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
    fn a_write_is_recognised_until_another_client_writes() {
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
