//! Numbers and lengths in messages between nodes: unsigned LEB128, and length-prefixed bytes.

/// Appends a number.
pub fn put_number(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends bytes with their length as a prefix.
pub fn put_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    put_number(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

/// The remaining input. Every method returns `None` if the bytes do not have the expected format.
#[derive(Clone, Copy)]
pub struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    /// Reads one byte.
    pub fn byte(&mut self) -> Option<u8> {
        let (&byte, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(byte)
    }

    /// Reads a number.
    pub fn number(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    /// Reads a number that fits into `usize`.
    pub fn index(&mut self) -> Option<usize> {
        usize::try_from(self.number()?).ok()
    }

    /// Reads length-prefixed bytes.
    pub fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = self.index()?;
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes)
    }

    /// Reads a length-prefixed text.
    pub fn text(&mut self) -> Option<&'a str> {
        str::from_utf8(self.bytes()?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_bytes_read_back() {
        let mut out = Vec::new();
        let numbers = [0, 127, 128, 300, u64::MAX];
        numbers.iter().for_each(|number| put_number(*number, &mut out));
        put_bytes(b"xyz", &mut out);
        let mut reader = Reader(&out);
        assert_eq!(numbers.map(|_| reader.number().unwrap()), numbers);
        assert_eq!((reader.bytes(), reader.0), (Some(&b"xyz"[..]), &b""[..]));
    }

    #[test]
    fn invalid_lengths_are_refused() {
        for bytes in [&b""[..], b"\x80", b"\x02a", &[0xff; 10], b"\xff\xff\xff\xff\x0f."] {
            assert_eq!(Reader(bytes).bytes(), None, "{bytes:?}");
        }
    }
}
