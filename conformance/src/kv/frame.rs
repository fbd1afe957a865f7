//! Frames of the memcached binary protocol from the client's side.
//!
//! ```text
//! 0 magic   1 opcode   2-3 key length   4 extras length   5 datatype   6-7 vBucket / status
//! 8-11 body length   12-15 opaque   16-23 CAS   then: framing extras, extras, key, value
//! ```
//!
//! With framing extras, byte 2 is their length and byte 3 the key's; the magic distinguishes the forms. All numbers
//! are big-endian.

use std::io;

/// Bytes of a header.
pub const HEADER_BYTES: usize = 24;

/// Maximum size of a body from a server (a frame is at most 30 MB).
pub const BODY_BYTES_MAX: usize = 32 * 1024 * 1024;

const REQUEST: u8 = 0x80;
const REQUEST_FLEXIBLE: u8 = 0x08;
const REPLY: u8 = 0x81;
const REPLY_FLEXIBLE: u8 = 0x18;

/// A request; omitted fields are empty or zero.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// The opcode.
    pub opcode: u8,
    /// The vBucket of the key.
    pub vbid: u16,
    /// The key, with its collection prefix if collections were negotiated.
    pub key: Vec<u8>,
    /// Extras.
    pub extras: Vec<u8>,
    /// The value.
    pub value: Vec<u8>,
    /// The CAS to check; 0 for none.
    pub cas: u64,
    /// Datatype bits.
    pub datatype: u8,
    /// Encoded framing extras, at most 255 bytes. If there are any, the flexible magic is used.
    pub framing: Vec<u8>,
}

impl Request {
    /// Encodes the frame.
    pub fn encode(&self, opaque: u32) -> Vec<u8> {
        let body = self.framing.len() + self.extras.len() + self.key.len() + self.value.len();
        let mut out = Vec::with_capacity(HEADER_BYTES + body);
        if self.framing.is_empty() {
            out.extend_from_slice(&[REQUEST, self.opcode]);
            out.extend_from_slice(&(self.key.len() as u16).to_be_bytes());
        } else {
            let lengths = [self.framing.len() as u8, self.key.len() as u8];
            out.extend_from_slice(&[REQUEST_FLEXIBLE, self.opcode]);
            out.extend_from_slice(&lengths);
        }
        out.extend_from_slice(&[self.extras.len() as u8, self.datatype]);
        out.extend_from_slice(&self.vbid.to_be_bytes());
        out.extend_from_slice(&(body as u32).to_be_bytes());
        out.extend_from_slice(&opaque.to_be_bytes());
        out.extend_from_slice(&self.cas.to_be_bytes());
        for part in [&self.framing, &self.extras, &self.key, &self.value] {
            out.extend_from_slice(part);
        }
        out
    }
}

/// A server's reply.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reply {
    /// The opcode of the request.
    pub opcode: u8,
    /// The status, see [`crate::names::STATUSES`].
    pub status: u16,
    /// The opaque of the request.
    pub opaque: u32,
    /// The document's CAS.
    pub cas: u64,
    /// Datatype bits of the value.
    pub datatype: u8,
    /// Framing extras, encoded.
    pub framing: Vec<u8>,
    /// Extras.
    pub extras: Vec<u8>,
    /// The key.
    pub key: Vec<u8>,
    /// The value.
    pub value: Vec<u8>,
}

impl Reply {
    /// Returns true if the status is SUCCESS.
    pub fn is_success(&self) -> bool {
        self.status == 0
    }

    /// Returns the value as text, for messages.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.value).into_owned()
    }
}

/// A frame from a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Incoming {
    /// An answer.
    Reply(Reply),
    /// A request from the server, such as a new cluster map.
    Push,
    /// A message of a DCP stream, with its vBucket. It has no status.
    Message(u16, Reply),
}

/// Returns the number of bytes after this header.
///
/// # Errors
/// [`io::ErrorKind::InvalidData`] when the length exceeds [`BODY_BYTES_MAX`].
pub fn body_bytes(header: &[u8; HEADER_BYTES]) -> io::Result<usize> {
    let length = be_u32(&header[8..12]) as usize;
    if length > BODY_BYTES_MAX { Err(invalid("frame too long")) } else { Ok(length) }
}

/// Decodes a frame from its header and body.
///
/// # Errors
/// [`io::ErrorKind::InvalidData`] for an unknown magic or lengths that exceed the body.
pub fn decode(header: &[u8; HEADER_BYTES], body: &[u8]) -> io::Result<Incoming> {
    let (framing_length, key_length) = match header[0] {
        REPLY | REQUEST => (0, usize::from(u16::from_be_bytes([header[2], header[3]]))),
        REPLY_FLEXIBLE | REQUEST_FLEXIBLE => (usize::from(header[2]), usize::from(header[3])),
        0x82 => return Ok(Incoming::Push),
        _ => return Err(invalid("unknown magic of a frame")),
    };
    let mut rest = body;
    let mut part = |length: usize| {
        let (part, behind) =
            rest.split_at_checked(length).ok_or_else(|| invalid("body too short"))?;
        rest = behind;
        Ok::<_, io::Error>(part.to_vec())
    };
    let framing = part(framing_length)?;
    let extras = part(usize::from(header[4]))?;
    let key = part(key_length)?;
    let number = u16::from_be_bytes([header[6], header[7]]);
    let is_message = matches!(header[0], REQUEST | REQUEST_FLEXIBLE);
    let frame = Reply {
        opcode: header[1],
        status: if is_message { 0 } else { number },
        opaque: be_u32(&header[12..16]),
        cas: u64::from(be_u32(&header[16..20])) << 32 | u64::from(be_u32(&header[20..24])),
        datatype: header[5],
        framing,
        extras,
        key,
        value: rest.to_vec(),
    };
    Ok(if is_message { Incoming::Message(number, frame) } else { Incoming::Reply(frame) })
}

fn be_u32(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0, |sum, byte| sum << 8 | u32::from(*byte))
}

pub(crate) fn invalid(message: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_set_is_written_as_the_protocol_says() {
        let request = Request {
            opcode: 0x01,
            vbid: 0x020e,
            key: b"\0k1".to_vec(),
            extras: vec![2, 0, 0, 0, 0, 0, 0, 0],
            value: b"{}".to_vec(),
            cas: 0x0102_0304_0506_0708,
            ..Request::default()
        };
        let expected =
            b"\x80\x01\0\x03\x08\0\x02\x0e\0\0\0\x0d\0\0\0\x09\x01\x02\x03\x04\x05\x06\x07\x08\
            \x02\0\0\0\0\0\0\0\0k1{}";
        assert_eq!(request.encode(9), expected);
    }

    #[test]
    fn framing_extras_make_the_frame_flexible() {
        let request =
            Request { opcode: 1, framing: vec![0x50], key: b"k".to_vec(), ..Request::default() };
        let bytes = request.encode(0);
        assert_eq!(bytes[..5], [0x08, 1, 1, 1, 0]);
        assert_eq!(bytes[HEADER_BYTES..], [0x50, b'k']);
    }

    #[test]
    fn replies_of_both_magics_are_read() {
        let mut header = [0; HEADER_BYTES];
        (header[0], header[1], header[3], header[4], header[5]) = (0x81, 0x0c, 1, 4, 1);
        (header[7], header[11], header[15], header[23]) = (2, 7, 5, 6);
        let Incoming::Reply(reply) = decode(&header, b"flagkvv").unwrap() else {
            panic!("a reply")
        };
        assert_eq!((reply.status, reply.opaque, reply.cas, reply.datatype), (2, 5, 6, 1));
        assert_eq!(
            (reply.extras, reply.key, reply.value),
            (b"flag".to_vec(), b"k".to_vec(), b"vv".to_vec())
        );
        header[0] = 0x80;
        let Incoming::Message(vbid, message) = decode(&header, b"flagkvv").unwrap() else {
            panic!("a message")
        };
        assert_eq!((vbid, message.status, message.key), (2, 0, b"k".to_vec()));
        (header[0], header[2]) = (0x18, 3);
        header[11] = 10;
        let Incoming::Reply(reply) = decode(&header, b"\x02\0\x01flagkvv").unwrap() else {
            panic!("a reply")
        };
        assert_eq!((reply.framing, reply.key), (vec![2, 0, 1], b"k".to_vec()));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn arbitrary_frames_never_panic(header: [u8; HEADER_BYTES], magic in 0..6usize, body in proptest::collection::vec(any::<u8>(), 0..64)) {
            let mut header = header;
            header[0] = [0x81, 0x18, 0x82, 0x80, 0x08, 0][magic];
            let _ = body_bytes(&header);
            let _ = decode(&header, &body);
        }
    }
}
