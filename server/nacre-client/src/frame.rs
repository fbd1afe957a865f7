//! Frames as a client sends and receives them.

use crate::Error;
use nacre_protocol::{Frame, HEADER_BYTES, Status};
use nacre_types::Vbid;

/// Parts of a request; omitted parts are empty.
#[derive(Clone, Copy, Debug, Default)]
pub struct Request<'a> {
    /// Opcode, see [`nacre_protocol::Opcode`].
    pub opcode: u8,
    /// vBucket.
    pub vbid: Vbid,
    /// Number that the reply repeats.
    pub opaque: u32,
    /// Precondition: the CAS that the document must have; 0 for any.
    pub cas: u64,
    /// Datatype bits of the value.
    pub datatype: u8,
    /// Framing extras, encoded. If there are any, the frame is flexible, and the key has at most 255 bytes.
    pub framing: &'a [u8],
    /// Extras.
    pub extras: &'a [u8],
    /// Key.
    pub key: &'a [u8],
    /// Value.
    pub value: &'a [u8],
}

impl Request<'_> {
    /// Appends the bytes of the frame to `output`.
    ///
    /// Framing extras and extras have at most 255 bytes, and a key at most the maximum of its length field. Longer
    /// parts result in a frame that the server refuses; [`Request::check`] detects this.
    pub fn encode(&self, output: &mut Vec<u8>) {
        let Request { opcode, vbid, opaque, cas, datatype, framing, extras, key, value } = *self;
        let body = framing.len() + extras.len() + key.len() + value.len();
        output.reserve(HEADER_BYTES + body);
        if framing.is_empty() {
            output.extend([0x80, opcode]);
            output.extend((key.len() as u16).to_be_bytes());
        } else {
            output.extend([0x08, opcode, framing.len() as u8, key.len() as u8]);
        }
        output.extend([extras.len() as u8, datatype]);
        output.extend(vbid.0.to_be_bytes());
        output.extend((body as u32).to_be_bytes());
        output.extend(opaque.to_be_bytes());
        output.extend(cas.to_be_bytes());
        for part in [framing, extras, key, value] {
            output.extend_from_slice(part);
        }
    }

    /// Checks that the parts fit into the fields of a frame.
    ///
    /// # Errors
    /// [`Error::Invalid`] with the part that is too long.
    pub fn check(&self) -> Result<(), Error> {
        let key_max = if self.framing.is_empty() { u16::MAX.into() } else { u8::MAX.into() };
        let parts = [
            ("framing extras", self.framing.len(), u8::MAX.into()),
            ("extras", self.extras.len(), u8::MAX.into()),
            ("key", self.key.len(), key_max),
            ("value", self.value.len(), nacre_protocol::BODY_BYTES_MAX),
        ];
        match parts.into_iter().find(|(_, bytes, most)| bytes > most) {
            None => Ok(()),
            Some((part, bytes, most)) => {
                Err(Error::Invalid(format!("a {part} of {bytes} bytes: it can have {most}")))
            }
        }
    }
}

/// Reply to a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Response {
    /// Status code, see [`Status`].
    pub status: u16,
    /// CAS of the document.
    pub cas: u64,
    /// Datatype bits of the value.
    pub datatype: u8,
    /// Extras.
    pub extras: Vec<u8>,
    /// Key.
    pub key: Vec<u8>,
    /// Value.
    pub value: Vec<u8>,
}

impl Response {
    pub(crate) fn of(frame: &Frame<'_>) -> Response {
        Response {
            // A response has its status in the field of a request's vBucket.
            status: frame.vbid,
            cas: frame.cas,
            datatype: frame.datatype,
            extras: frame.extras.to_vec(),
            key: frame.key.to_vec(),
            value: frame.value.to_vec(),
        }
    }

    /// Returns true if the request succeeded.
    pub fn is_success(&self) -> bool {
        self.status == Status::Success as u16
    }
}

/// Reads big-endian fields in order. Each read returns `None` if bytes are missing.
pub(crate) struct Fields<'a>(pub &'a [u8]);

impl<'a> Fields<'a> {
    pub fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(head)
    }

    pub fn u16(&mut self) -> Option<u16> {
        self.take(2)?.try_into().ok().map(u16::from_be_bytes)
    }

    pub fn u32(&mut self) -> Option<u32> {
        self.take(4)?.try_into().ok().map(u32::from_be_bytes)
    }

    pub fn u64(&mut self) -> Option<u64> {
        self.take(8)?.try_into().ok().map(u64::from_be_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_the_frame_that_a_server_decodes() {
        let request = Request {
            opcode: 0x01,
            vbid: Vbid(5),
            opaque: 7,
            cas: 9,
            datatype: 1,
            framing: &[0x11, 1],
            extras: &[0; 8],
            key: b"\0a",
            value: b"{}",
        };
        let mut bytes = Vec::new();
        request.encode(&mut bytes);
        let (frame, length) = nacre_protocol::decode(&bytes).unwrap().unwrap();
        assert_eq!(length, bytes.len());
        assert_eq!((frame.vbid, frame.opaque, frame.cas, frame.datatype), (5, 7, 9, 1));
        assert_eq!((frame.framing, frame.extras), (request.framing, request.extras));
        assert_eq!((frame.key, frame.value), (request.key, request.value));
    }

    #[test]
    fn a_part_that_does_not_fit_a_frame_is_named() {
        let key = vec![b'a'; 256];
        assert!(Request { key: &key, ..Request::default() }.check().is_ok());
        let refused = Request { key: &key, framing: &[0x11, 1], ..Request::default() }.check();
        assert_eq!(refused.unwrap_err().to_string(), "a key of 256 bytes: it can have 255");
    }
}
