//! Character sets of logs: those that every Java implementation has.

/// A character set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Charset {
    /// ASCII, with seven bits.
    Ascii,
    /// ISO 8859-1, one byte per character.
    Latin1,
    /// UTF-8.
    Utf8,
    /// UTF-16, in the byte order of the mark at its start; big-endian without a mark.
    Utf16,
    /// UTF-16, big-endian.
    Utf16Be,
    /// UTF-16, little-endian.
    Utf16Le,
}

impl Charset {
    /// Returns the character set with a name, ignoring case.
    ///
    /// # Errors
    /// A message that lists the names.
    pub fn of(name: &str) -> Result<Charset, String> {
        match name.to_ascii_lowercase().as_str() {
            "us-ascii" => Ok(Charset::Ascii),
            "iso-8859-1" => Ok(Charset::Latin1),
            "utf-8" => Ok(Charset::Utf8),
            "utf-16" => Ok(Charset::Utf16),
            "utf-16be" => Ok(Charset::Utf16Be),
            "utf-16le" => Ok(Charset::Utf16Le),
            _ => Err(format!(
                "{name:?} is not a supported character set: use utf-8, us-ascii, iso-8859-1, utf-16, utf-16be or utf-16le"
            )),
        }
    }

    /// Decodes bytes.
    ///
    /// # Errors
    /// The position of the first invalid byte.
    pub fn decode(self, bytes: &[u8]) -> Result<String, String> {
        let pairs = |of: fn([u8; 2]) -> u16, bytes: &[u8]| {
            let (pairs, rest) = bytes.as_chunks::<2>();
            let units = pairs.iter().map(|pair| of(*pair));
            let text: Result<String, _> = char::decode_utf16(units).collect();
            match (text, rest) {
                (Ok(text), []) => Ok(text),
                _ => Err("this is not UTF-16: name another --charset".to_owned()),
            }
        };
        match self {
            Charset::Ascii => match bytes.iter().position(|byte| !byte.is_ascii()) {
                None => Ok(bytes.iter().copied().map(char::from).collect()),
                Some(at) => Err(format!("the byte at {at} is not ASCII: name another --charset")),
            },
            Charset::Latin1 => Ok(bytes.iter().copied().map(char::from).collect()),
            Charset::Utf8 => str::from_utf8(bytes).map(str::to_owned).map_err(|error| {
                let at = error.valid_up_to();
                format!("the byte at {at} is not UTF-8: name another --charset")
            }),
            Charset::Utf16 => match bytes {
                [0xff, 0xfe, rest @ ..] => pairs(u16::from_le_bytes, rest),
                [0xfe, 0xff, rest @ ..] => pairs(u16::from_be_bytes, rest),
                bytes => pairs(u16::from_be_bytes, bytes),
            },
            Charset::Utf16Be => pairs(u16::from_be_bytes, bytes),
            Charset::Utf16Le => pairs(u16::from_le_bytes, bytes),
        }
    }

    /// Encodes text.
    ///
    /// # Errors
    /// A character that is not in the set.
    pub fn encode(self, text: &str) -> Result<Vec<u8>, String> {
        let last = match self {
            Charset::Ascii => Some('\u{7f}'),
            Charset::Latin1 => Some('\u{ff}'),
            _ => None,
        };
        if let Some(last) = last {
            let byte = |one: char| match one <= last {
                true => Ok(one as u8),
                false => Err(format!("the character set does not have {one:?}")),
            };
            return text.chars().map(byte).collect();
        }
        let units = text.encode_utf16();
        Ok(match self {
            Charset::Utf16 => {
                [0xfe, 0xff].into_iter().chain(units.flat_map(u16::to_be_bytes)).collect()
            }
            Charset::Utf16Be => units.flat_map(u16::to_be_bytes).collect(),
            Charset::Utf16Le => units.flat_map(u16::to_le_bytes).collect(),
            _ => text.as_bytes().to_vec(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encoding_and_decoding_are_inverse() {
        for name in ["US-ASCII", "iso-8859-1", "UTF-8", "UTF-16", "utf-16be", "UTF-16LE"] {
            let charset = Charset::of(name).unwrap();
            let text = if charset == Charset::Ascii { "a;1,5" } else { "é;1,5" };
            assert_eq!(charset.decode(&charset.encode(text).unwrap()).unwrap(), text, "{name}");
        }
        assert_eq!(Charset::Utf16.decode(&[0xff, 0xfe, b'a', 0]).unwrap(), "a");
        assert!(Charset::of("ebcdic").is_err());
    }

    #[test]
    fn characters_missing_in_a_character_set_are_named() {
        let refused = |charset: Charset, bytes: &[u8]| charset.decode(bytes).unwrap_err();
        assert!(refused(Charset::Ascii, b"ab\xe9").starts_with("the byte at 2 "));
        assert!(refused(Charset::Utf8, b"a\xe9b").starts_with("the byte at 1 "));
        assert!(refused(Charset::Utf16, b"abc").starts_with("this is not UTF-16"));
        assert!(refused(Charset::Utf16Be, &[0xd8, 0]).starts_with("this is not UTF-16"));
        assert!(Charset::Ascii.encode("é").is_err() && Charset::Latin1.encode("€").is_err());
    }
}
