//! Encoding of clients' requests, and decoding of the answers.

use nacre_protocol::{HEADER_BYTES, Magic, Opcode, decode};

/// The opaque of requests that set a connection up.
pub const GREETING: u32 = u32::MAX;

/// A request of the binary protocol.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    /// The opcode.
    pub opcode: Opcode,
    /// The vBucket of the key.
    pub vbid: u16,
    /// Echoed in the answer.
    pub opaque: u32,
    /// The CAS that must match, or 0 for any.
    pub cas: u64,
    /// The durability level, or 0 for none.
    pub level: u8,
    /// See the protocol.
    pub extras: &'a [u8],
    /// See the protocol.
    pub key: &'a [u8],
    /// See the protocol.
    pub value: &'a [u8],
}

/// Timeout of a durable write at the server, in milliseconds.
pub const DURABILITY_TIMEOUT_MS: u16 = 5000;

impl<'a> Request<'a> {
    /// Creates a request with only a key, for vBucket 0.
    pub fn new(opcode: Opcode, key: &'a [u8]) -> Request<'a> {
        let (extras, value) = (&b""[..], &b""[..]);
        Request { opcode, vbid: 0, opaque: GREETING, cas: 0, level: 0, extras, key, value }
    }

    /// Encodes the request.
    pub fn encode(&self) -> Vec<u8> {
        let Request { opcode, vbid, opaque, cas, level, extras, key, value } = *self;
        let opcode = opcode as u8;
        let timeout = DURABILITY_TIMEOUT_MS.to_be_bytes();
        let framing = [0x13, level, timeout[0], timeout[1]];
        let framing = if level == 0 { &[][..] } else { &framing[..] };
        let body = framing.len() + extras.len() + key.len() + value.len();
        let key_length = (key.len() as u16).to_be_bytes();
        let mut bytes = Vec::with_capacity(HEADER_BYTES + body);
        bytes.extend(match framing {
            [] => [0x80, opcode, key_length[0], key_length[1]],
            _ => [0x08, opcode, framing.len() as u8, key.len() as u8],
        });
        bytes.extend([extras.len() as u8, 0]);
        bytes.extend(vbid.to_be_bytes());
        bytes.extend((body as u32).to_be_bytes());
        bytes.extend(opaque.to_be_bytes());
        bytes.extend(cas.to_be_bytes());
        [framing, extras, key, value].into_iter().for_each(|part| bytes.extend(part));
        bytes
    }
}

/// Returns the requests that select a bucket on a new connection.
pub fn greet(bucket: &str) -> Vec<u8> {
    let hello = Request::new(Opcode::Hello, b"sim");
    let select = Request::new(Opcode::SelectBucket, bucket.as_bytes());
    [hello.encode(), select.encode()].concat()
}

/// The parts of a frame that the simulation uses.
#[derive(Clone, Debug)]
pub struct ResponseFrame<'a> {
    /// True for an answer; false for a message initiated by the server.
    pub is_answer: bool,
    /// The opcode.
    pub opcode: u8,
    /// The status of an answer, or the vBucket of a message.
    pub status: u16,
    /// The opaque of the request.
    pub opaque: u32,
    /// The CAS.
    pub cas: u64,
    /// See the protocol.
    pub extras: &'a [u8],
    /// See the protocol.
    pub key: &'a [u8],
    /// See the protocol.
    pub value: &'a [u8],
}

/// Removes the frame at the start of `bytes`, if it is complete.
///
/// # Panics
/// Panics if the bytes are not a frame: a node never sends that.
pub fn next<'a>(bytes: &mut &'a [u8]) -> Option<ResponseFrame<'a>> {
    let (frame, length) = decode(bytes).expect("nodes send what can be read")?;
    *bytes = &bytes[length..];
    Some(ResponseFrame {
        is_answer: matches!(frame.magic, Magic::Response | Magic::FlexResponse),
        opcode: frame.opcode_byte,
        status: frame.vbid,
        opaque: frame.opaque,
        cas: frame.cas,
        extras: frame.extras,
        key: frame.key,
        value: frame.value,
    })
}
