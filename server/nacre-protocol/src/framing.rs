//! Framing extras: small tagged fields in front of a request's extras.

use std::fmt;

/// The framing extras of a request that the server supports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameInfo<'a> {
    /// The request must not be reordered.
    pub barrier: bool,
    /// Durability level (1..=3) and, if the client has set one, the timeout in milliseconds.
    pub durability: Option<(u8, Option<u16>)>,
    /// DCP stream ID.
    pub stream_id: Option<u16>,
    /// The user on whose behalf the request is made.
    pub impersonate: Option<&'a [u8]>,
    /// The write keeps the document's expiry.
    pub preserve_expiry: bool,
}

/// The reason why framing extras cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FramingError {
    /// The extras end within a field, or a field has the wrong length.
    Malformed,
    /// The extras contain a field of an unknown kind.
    Unknown(u16),
}

impl fmt::Display for FramingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FramingError::Malformed => f.write_str("malformed framing extras"),
            FramingError::Unknown(id) => write!(f, "unknown framing extra {id}"),
        }
    }
}

/// Removes the next field from `bytes`: 4 bits of ID, 4 bits of length. In both, 15 means "15 plus the next byte".
fn next_field(bytes: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let (&first, mut rest) = bytes.split_first()?;
    let mut widen = |nibble: u8| -> Option<u16> {
        if nibble < 15 {
            return Some(u16::from(nibble));
        }
        let (&more, after) = rest.split_first()?;
        rest = after;
        Some(15 + u16::from(more))
    };
    let id = widen(first >> 4)?;
    let length = usize::from(widen(first & 0x0f)?);
    (rest.len() >= length).then(|| (id, &rest[..length], &rest[length..]))
}

impl<'a> FrameInfo<'a> {
    /// Decodes all fields of `bytes`.
    ///
    /// # Errors
    /// [`FramingError`] for the first field that is malformed or unknown.
    pub fn decode(mut bytes: &'a [u8]) -> Result<FrameInfo<'a>, FramingError> {
        let mut infos = FrameInfo::default();
        while !bytes.is_empty() {
            let (id, data, rest) = next_field(bytes).ok_or(FramingError::Malformed)?;
            match (id, data) {
                (0, []) => infos.barrier = true,
                (1, [level]) => infos.durability = Some((*level, None)),
                (1, [level, high, low]) => {
                    infos.durability = Some((*level, Some(u16::from_be_bytes([*high, *low]))));
                }
                (2, [high, low]) => infos.stream_id = Some(u16::from_be_bytes([*high, *low])),
                (4, user) => infos.impersonate = Some(user),
                (5, []) => infos.preserve_expiry = true,
                (0..=2 | 5, _) => return Err(FramingError::Malformed),
                (other, _) => return Err(FramingError::Unknown(other)),
            }
            bytes = rest;
        }
        Ok(infos)
    }
}
