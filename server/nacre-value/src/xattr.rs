//! Extended attributes: named JSON values that a document has in addition to its body.
//!
//! A stored value with the XATTR datatype starts with a section that contains them (integers are big-endian):
//!
//! ```text
//! u32 length of what follows
//!     u32 length of the pair   key  00   value (JSON)  00
//!     u32 length of the pair   …
//! body of the document
//! ```
//!
//! `{"a":1}` as the attribute `x` is `00 00 00 0e  00 00 00 0a  78 00  7b 22 61 22 3a 31 7d 00`. Without attributes
//! there is no section, and the datatype lacks the XATTR bit.
//!
//! Names that start with an underscore are *system* attributes: they survive the deletion of the document.

use crate::Error;
use std::borrow::Cow;

/// Maximum length of an attribute name in bytes.
pub const KEY_BYTES_MAX: usize = 15;

/// The attributes of one document, in the order in which they were added.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Xattrs<'a> {
    pairs: Vec<(Cow<'a, str>, Cow<'a, [u8]>)>,
}

impl<'a> Xattrs<'a> {
    /// Parses a section, including its length; empty input has no attributes.
    ///
    /// # Errors
    /// [`Error::XattrInvalid`] if lengths are inconsistent, a terminator is missing, or a name is not allowed.
    pub fn parse(section: &'a [u8]) -> Result<Xattrs<'a>, Error> {
        if section.is_empty() {
            return Ok(Xattrs::default());
        }
        let (mut rest, behind) = prefixed(section).ok_or(Error::XattrInvalid)?;
        if !behind.is_empty() {
            return Err(Error::XattrInvalid);
        }
        let mut pairs = Vec::new();
        while !rest.is_empty() {
            let pair;
            (pair, rest) = prefixed(rest).ok_or(Error::XattrInvalid)?;
            let (key, value) = split_pair(pair).ok_or(Error::XattrInvalid)?;
            if !is_key(key) {
                return Err(Error::XattrInvalid);
            }
            pairs.push((Cow::Borrowed(key), Cow::Borrowed(value)));
        }
        Ok(Xattrs { pairs })
    }

    /// Returns the JSON text of the attribute `key`.
    pub fn get(&self, key: &str) -> Option<&[u8]> {
        self.pairs.iter().find(|pair| pair.0 == key).map(|pair| pair.1.as_ref())
    }

    /// Sets the attribute `key` to the JSON text `value`.
    ///
    /// # Errors
    /// [`Error::XattrInvalid`] if the name is not allowed.
    pub fn set(&mut self, key: &str, value: &[u8]) -> Result<(), Error> {
        if !is_key(key) {
            return Err(Error::XattrInvalid);
        }
        let value = Cow::Owned(value.to_vec());
        match self.pairs.iter_mut().find(|pair| pair.0 == key) {
            Some(pair) => pair.1 = value,
            None => self.pairs.push((Cow::Owned(key.to_owned()), value)),
        }
        Ok(())
    }

    /// Removes the attribute `key`. Returns true if it existed.
    pub fn remove(&mut self, key: &str) -> bool {
        let before = self.pairs.len();
        self.pairs.retain(|pair| pair.0 != key);
        self.pairs.len() < before
    }

    /// Drops the attributes that a deletion drops: all except the system attributes.
    pub fn retain_system(&mut self) {
        self.pairs.retain(|pair| is_system(&pair.0));
    }

    /// Iterates over names and their JSON texts.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.pairs.iter().map(|(key, value)| (key.as_ref(), value.as_ref()))
    }

    /// Returns true if there are no attributes.
    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    /// Returns the names as a JSON array, the value of the virtual attribute `$XTOC`. System names are included only
    /// `with_system`.
    pub fn names_json(&self, with_system: bool) -> Vec<u8> {
        let names = self.iter().map(|(key, _)| key).filter(|key| with_system || !is_system(key));
        // A name contains no character that JSON would escape, see [`is_key`].
        let quoted: Vec<String> = names.map(|key| format!("\"{key}\"")).collect();
        format!("[{}]", quoted.join(",")).into_bytes()
    }

    /// Encodes the section for storage; empty if there are no attributes.
    pub fn encode(&self) -> Vec<u8> {
        if self.pairs.is_empty() {
            return Vec::new();
        }
        let mut section = vec![0; LENGTH_BYTES];
        for (key, value) in self.iter() {
            section.extend_from_slice(&length_prefix(key.len() + value.len() + 2));
            section.extend_from_slice(key.as_bytes());
            section.push(0);
            section.extend_from_slice(value);
            section.push(0);
        }
        let length = length_prefix(section.len() - LENGTH_BYTES);
        section[..LENGTH_BYTES].copy_from_slice(&length);
        section
    }
}

/// Returns true if `key` names a system attribute, which a tombstone keeps.
pub fn is_system(key: &str) -> bool {
    key.starts_with('_')
}

/// Returns true if `key` is a valid attribute name: 1 to [`KEY_BYTES_MAX`] bytes without control characters and without
/// characters that are special in paths and JSON.
pub fn is_key(key: &str) -> bool {
    let forbidden = |byte: u8| byte < 0x20 || b"\"\\`.[]".contains(&byte);
    (1..=KEY_BYTES_MAX).contains(&key.len()) && !key.bytes().any(forbidden)
}

/// Splits a value with the XATTR datatype into its section and its body.
///
/// Returns `None` if the length of the section exceeds the value.
pub fn split(value: &[u8]) -> Option<(&[u8], &[u8])> {
    let (section, _) = prefixed(value)?;
    value.split_at_checked(LENGTH_BYTES + section.len())
}

const LENGTH_BYTES: usize = 4;

fn length_prefix(length: usize) -> [u8; LENGTH_BYTES] {
    u32::try_from(length)
        .expect("attributes are far below 4 GiB: a frame has 30 MB at most")
        .to_be_bytes()
}

/// Splits bytes into the part that the length prefix covers, and the rest.
fn prefixed(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<LENGTH_BYTES>()?;
    rest.split_at_checked(usize::try_from(u32::from_be_bytes(*length)).ok()?)
}

/// Splits `key 00 value 00`.
fn split_pair(pair: &[u8]) -> Option<(&str, &[u8])> {
    let end = pair.iter().position(|byte| *byte == 0)?;
    let value = pair.get(end + 1..)?.strip_suffix(&[0])?;
    Some((std::str::from_utf8(&pair[..end]).ok()?, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXAMPLE: &[u8] = b"\0\0\0\x0e\0\0\0\x0ax\0{\"a\":1}\0";

    #[test]
    fn the_example_of_the_module_reads_and_writes() {
        let mut xattrs = Xattrs::default();
        xattrs.set("x", br#"{"a":1}"#).unwrap();
        assert_eq!(xattrs.encode(), EXAMPLE);
        assert_eq!(Xattrs::parse(EXAMPLE), Ok(xattrs));
    }

    #[test]
    fn no_attributes_are_no_bytes() {
        let mut xattrs = Xattrs::parse(EXAMPLE).unwrap();
        assert!(xattrs.remove("x"));
        assert!(!xattrs.remove("x"));
        assert_eq!(xattrs.encode(), b"");
        assert!(Xattrs::parse(b"").unwrap().is_empty());
    }

    #[test]
    fn a_deletion_keeps_system_attributes_only() {
        let mut xattrs = Xattrs::default();
        for key in ["a", "_sync", "b"] {
            xattrs.set(key, b"1").unwrap();
        }
        assert_eq!(xattrs.names_json(true), br#"["a","_sync","b"]"#);
        assert_eq!(xattrs.names_json(false), br#"["a","b"]"#);
        xattrs.retain_system();
        assert_eq!(xattrs.names_json(true), br#"["_sync"]"#);
    }

    #[test]
    fn names_are_limited() {
        let mut xattrs = Xattrs::default();
        for key in ["", "sixteen_bytes_xx", "a\0b", "a.b", "a[0]", "a\"b"] {
            assert_eq!(xattrs.set(key, b"1"), Err(Error::XattrInvalid), "{key:?}");
        }
        assert_eq!(xattrs.set("fifteen_bytes_x", b"1"), Ok(()));
    }

    #[test]
    fn every_truncation_is_refused() {
        for end in 1..EXAMPLE.len() {
            assert_eq!(Xattrs::parse(&EXAMPLE[..end]), Err(Error::XattrInvalid), "{end} bytes");
        }
        assert_eq!(Xattrs::parse(b"\xff\xff\xff\xff"), Err(Error::XattrInvalid));
    }

    #[test]
    fn a_value_is_divided_behind_its_section() {
        let value = [EXAMPLE, b"body"].concat();
        assert_eq!(split(&value), Some((EXAMPLE, b"body".as_slice())));
        assert_eq!(split(&value[..10]), None);
    }
}
