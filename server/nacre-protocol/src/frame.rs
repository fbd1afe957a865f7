//! A frame: its header and its parts, borrowed from the input.

use crate::{FrameInfo, FramingError, Opcode};
use std::fmt;

/// Size of a header, in bytes.
pub const HEADER_BYTES: usize = 24;

/// Maximum body size that a peer may announce, in bytes. The server closes a connection that announces more.
///
/// This leaves room for the largest document (20 MiB), its key, and attributes. Source: Couchbase servers close a
/// connection at about 30 MB.
pub const BODY_BYTES_MAX: usize = 30 * 1024 * 1024;

/// Type of a frame, which determines the layout of its lengths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Magic {
    /// A client's request.
    Request = 0x80,
    /// A response to a client's request.
    Response = 0x81,
    /// A client's request with framing extras.
    FlexRequest = 0x08,
    /// A response with framing extras.
    FlexResponse = 0x18,
    /// A request from the server.
    ServerRequest = 0x82,
    /// A client's response to a request from the server.
    ServerResponse = 0x83,
}

impl Magic {
    fn from_byte(byte: u8) -> Option<Magic> {
        Some(match byte {
            0x80 => Magic::Request,
            0x81 => Magic::Response,
            0x08 => Magic::FlexRequest,
            0x18 => Magic::FlexResponse,
            0x82 => Magic::ServerRequest,
            0x83 => Magic::ServerResponse,
            _ => return None,
        })
    }

    /// Returns the lengths of the framing extras and of the key that a header announces, in bytes.
    fn lengths(self, header: &[u8]) -> (usize, usize) {
        match self {
            Magic::FlexRequest | Magic::FlexResponse => {
                (usize::from(header[2]), usize::from(header[3]))
            }
            _ => (0, usize::from(u16_at(header, 2))),
        }
    }
}

/// The reason why bytes are not a frame. The connection must be closed, because the next frame cannot be found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameError {
    /// The first byte is not a known magic.
    UnknownMagic(u8),
    /// The announced body size exceeds [`BODY_BYTES_MAX`].
    TooLarge(usize),
    /// The parts are longer than the body: size of the parts, size of the body.
    PartsExceedBody(usize, usize),
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FrameError::UnknownMagic(byte) => write!(f, "no frame starts with 0x{byte:02x}"),
            FrameError::TooLarge(bytes) => {
                write!(f, "a body of {bytes} bytes is over the limit of {BODY_BYTES_MAX}")
            }
            FrameError::PartsExceedBody(parts, body) => {
                write!(f, "extras and key of {parts} bytes do not fit a body of {body}")
            }
        }
    }
}

impl std::error::Error for FrameError {}

/// A frame whose parts borrow from the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// The magic: request or response, classic or flexible.
    pub magic: Magic,
    /// The opcode byte; see [`Frame::opcode`].
    pub opcode_byte: u8,
    /// Datatype bits of the value.
    pub datatype: u8,
    /// vBucket of a request, status of a response.
    pub vbid: u16,
    /// Chosen by the sender of a request, and repeated in the response.
    pub opaque: u32,
    /// CAS of the request or response.
    pub cas: u64,
    /// Framing extras, undecoded.
    pub framing: &'a [u8],
    /// Extras.
    pub extras: &'a [u8],
    /// Key, with the collection prefix if the connection has negotiated collections.
    pub key: &'a [u8],
    /// Value.
    pub value: &'a [u8],
}

impl<'a> Frame<'a> {
    /// Returns the opcode, or `None` if the server does not support it.
    pub fn opcode(&self) -> Option<Opcode> {
        Opcode::from_byte(self.opcode_byte)
    }

    /// Decodes the framing extras.
    ///
    /// # Errors
    /// [`FramingError`] if the extras are malformed or of an unknown kind.
    pub fn frame_infos(&self) -> Result<FrameInfo<'a>, FramingError> {
        FrameInfo::decode(self.framing)
    }
}

fn u16_at(bytes: &[u8], offset: usize) -> u16 {
    u16::from_be_bytes([bytes[offset], bytes[offset + 1]])
}

fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    u32::from_be_bytes([bytes[offset], bytes[offset + 1], bytes[offset + 2], bytes[offset + 3]])
}

/// The first fields of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Glance<'a> {
    /// The opcode byte.
    pub opcode_byte: u8,
    /// vBucket of a request.
    pub vbid: u16,
    /// Key, with the collection prefix if the connection has negotiated collections.
    pub key: &'a [u8],
    /// Size of the whole frame, in bytes.
    pub length: usize,
}

/// Reads the first fields of the frame at the start of `input`, of which only header and key need to be present.
/// Returns `None` if these are incomplete, or not those of a frame. Does not validate the frame: [`decode`] does.
pub fn glance(input: &[u8]) -> Option<Glance<'_>> {
    let header = input.get(..HEADER_BYTES)?;
    let (framing_bytes, key_bytes) = Magic::from_byte(header[0])?.lengths(header);
    let key_start = HEADER_BYTES + framing_bytes + usize::from(header[4]);
    let key = input.get(key_start..key_start + key_bytes)?;
    let length = HEADER_BYTES + u32_at(header, 8) as usize;
    Some(Glance { opcode_byte: header[1], vbid: u16_at(header, 6), key, length })
}

/// Returns the body size that the frame at the start of `input` announces, in bytes, or `None` if the header is
/// incomplete. The size may be larger than allowed.
pub fn announced_body_bytes(input: &[u8]) -> Option<usize> {
    (input.len() >= HEADER_BYTES).then(|| u32_at(input, 8) as usize)
}

/// Returns the number of missing bytes of the frame at the start of `input`; 0 if the frame is complete or its header
/// is incomplete.
pub fn missing_bytes(input: &[u8]) -> usize {
    announced_body_bytes(input).map_or(0, |body| (HEADER_BYTES + body).saturating_sub(input.len()))
}

/// Decodes the frame at the start of `input`. Returns the frame and its size in bytes.
///
/// Returns `Ok(None)` if the input ends within the frame: read more and call again.
///
/// # Errors
/// [`FrameError`] if the bytes cannot be a frame.
pub fn decode(input: &[u8]) -> Result<Option<(Frame<'_>, usize)>, FrameError> {
    let Some(&first) = input.first() else { return Ok(None) };
    let magic = Magic::from_byte(first).ok_or(FrameError::UnknownMagic(first))?;
    if input.len() < HEADER_BYTES {
        return Ok(None);
    }
    let (framing_bytes, key_bytes) = magic.lengths(input);
    let extras_bytes = usize::from(input[4]);
    let body_bytes = u32_at(input, 8) as usize;
    if body_bytes > BODY_BYTES_MAX {
        return Err(FrameError::TooLarge(body_bytes));
    }
    let value_start = framing_bytes + extras_bytes + key_bytes;
    if value_start > body_bytes {
        return Err(FrameError::PartsExceedBody(value_start, body_bytes));
    }
    let length = HEADER_BYTES + body_bytes;
    if input.len() < length {
        return Ok(None);
    }
    let (framing, rest) = input[HEADER_BYTES..length].split_at(framing_bytes);
    let (extras, rest) = rest.split_at(extras_bytes);
    let (key, value) = rest.split_at(key_bytes);
    let frame = Frame {
        magic,
        opcode_byte: input[1],
        datatype: input[5],
        vbid: u16_at(input, 6),
        opaque: u32_at(input, 12),
        cas: u64::from(u32_at(input, 16)) << 32 | u64::from(u32_at(input, 20)),
        framing,
        extras,
        key,
        value,
    };
    Ok(Some((frame, length)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Reply;
    use crate::Status;
    use proptest::prelude::*;

    #[test]
    fn a_fragmented_frame_is_returned_only_when_complete() {
        let mut bytes = vec![0x80, 0x00, 0, 3, 0, 0, 0, 9, 0, 0, 0, 3, 1, 2, 3, 4];
        bytes.extend([0; 8]);
        bytes.extend(b"\0k1");
        for length in 0..bytes.len() {
            assert_eq!(decode(&bytes[..length]), Ok(None), "{length} bytes");
            let missing = if length < HEADER_BYTES { 0 } else { bytes.len() - length };
            assert_eq!(missing_bytes(&bytes[..length]), missing, "{length} bytes");
        }
        let (frame, length) = decode(&bytes).unwrap().unwrap();
        assert_eq!((frame.key, frame.opaque, length), (&b"\0k1"[..], 0x0102_0304, bytes.len()));
        assert_eq!(missing_bytes(&[&bytes[..], b"more"].concat()), 0);
    }

    #[test]
    fn invalid_frames_are_refused_with_a_reason() {
        let mut bytes = [0u8; 24];
        bytes[0] = 0x47;
        assert_eq!(decode(&bytes), Err(FrameError::UnknownMagic(0x47)));
        bytes[0] = 0x80;
        bytes[3] = 9;
        bytes[11] = 4;
        assert_eq!(decode(&bytes), Err(FrameError::PartsExceedBody(9, 4)));
        bytes[8] = 0x7f;
        assert_eq!(decode(&bytes), Err(FrameError::TooLarge(0x7f00_0004)));
    }

    #[test]
    fn durability_and_preserve_expiry_are_read_from_framing_extras() {
        let mut bytes = vec![0x08, 0x01, 5, 3, 8, 0, 0, 1, 0, 0, 0, 16, 0, 0, 0, 1];
        bytes.extend([0; 8]);
        bytes.extend([0x13, 0x01, 0x23, 0x28, 0x50]);
        bytes.extend([0; 8]);
        bytes.extend(b"\0k1");
        let (frame, _) = decode(&bytes).unwrap().unwrap();
        let infos = frame.frame_infos().unwrap();
        assert_eq!((infos.durability, infos.preserve_expiry), (Some((1, Some(9000))), true));
    }

    proptest! {
        #[test]
        fn decoding_any_bytes_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let seen = crate::glance(&bytes);
            if let Ok(Some((frame, length))) = decode(&bytes) {
                let (opcode_byte, vbid, key) = (frame.opcode_byte, frame.vbid, frame.key);
                prop_assert_eq!(seen, Some(Glance { opcode_byte, vbid, key, length }));
                let _ = frame.frame_infos();
                let _ = crate::parse(&frame, true);
            }
        }

        #[test]
        fn any_known_opcode_with_any_body_never_panics(
            opcode in any::<u8>(), extras in 0..40u8, key in 0..40u16, body in proptest::collection::vec(any::<u8>(), 80)
        ) {
            let mut bytes = vec![0x80, opcode];
            bytes.extend(key.to_be_bytes());
            bytes.extend([extras, 0, 0, 0, 0, 0, 0, 80]);
            bytes.extend([0; 12]);
            bytes.extend(body);
            let (frame, _) = decode(&bytes).unwrap().unwrap();
            let _ = crate::parse(&frame, true);
            let _ = crate::parse(&frame, false);
        }

        #[test]
        fn an_encoded_reply_decodes_to_itself(
            extras in proptest::collection::vec(any::<u8>(), 0..20),
            key in proptest::collection::vec(any::<u8>(), 0..200),
            value in proptest::collection::vec(any::<u8>(), 0..200),
            traced in any::<bool>(),
        ) {
            let mut out = Vec::new();
            Reply { opcode: 5, opaque: 77, cas: 9, status: Status::NotMyVbucket, datatype: 1,
                extras: &extras, key: &key, value: &value, duration: traced.then_some(300), units: Default::default() }.encode(&mut out);
            let (frame, length) = decode(&out).unwrap().unwrap();
            prop_assert_eq!(length, out.len());
            prop_assert_eq!((frame.extras, frame.key, frame.value), (&extras[..], &key[..], &value[..]));
            prop_assert_eq!((frame.vbid, frame.cas, frame.opaque), (7, 9, 77));
        }
    }
}
