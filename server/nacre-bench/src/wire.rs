//! A connection of the load: writes requests and reads answers without blocking, in the protocol of memcached or Redis.
//!
//! Both directions can have megabytes in transit at once, so neither a write nor a read may wait for the other. The socket does
//! not block, and bytes that it does not accept are buffered here.

use clap::ValueEnum;
use nacre_client::Request;
use nacre_protocol::{Opcode, Status, decode};
use nacre_types::Vbid;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsRawFd, RawFd};

/// Minimum free space for a read, in bytes.
const READ_BYTES: usize = 64 << 10;
/// Size of a key in bytes.
const KEY_BYTES: usize = 16;

/// The protocol of a server.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// The binary protocol of memcached, which nacre and Couchbase speak too
    Memcached,
    /// RESP
    Redis,
}

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The request was executed.
    Done,
    /// The key does not exist.
    Missing,
    /// The server is busy; the request can be repeated.
    Busy,
    /// The server refuses the request, with its message or a status.
    Refused(String),
}

/// A non-blocking connection.
pub struct Connection {
    stream: TcpStream,
    protocol: Protocol,
    collections: bool,
    /// The framing extra for durability; empty for none.
    framing: Vec<u8>,
    vbucket_count: u16,
    output: Vec<u8>,
    written: usize,
    input: Vec<u8>,
    /// The range of `input` that was received but not parsed yet.
    unread: std::ops::Range<usize>,
}

/// Returns the key of rank `rank`.
fn key(rank: u32) -> [u8; KEY_BYTES] {
    let mut key = *b"key_000000000000";
    let mut rest = rank;
    for digit in key.iter_mut().rev() {
        if rest == 0 {
            break;
        }
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    key
}

impl Connection {
    /// Takes over a connection after its login. With `collections`, keys are prefixed with the ID of the default collection;
    /// `level` is the durability of writes, 0 for none.
    ///
    /// # Errors
    /// Fails if the socket cannot be made non-blocking.
    pub fn new(
        connection: nacre_client::Connection,
        protocol: Protocol,
        collections: bool,
        level: u8,
    ) -> Result<Connection, String> {
        let vbucket_count = connection.map().vbucket_count();
        let stream = connection.into_socket()?;
        stream.set_nonblocking(true).map_err(|error| error.to_string())?;
        // Framing extra 1 (durability), with a length of one byte.
        let framing = if level == 0 { Vec::new() } else { vec![0x11, level] };
        let (output, input) = (Vec::new(), vec![0; 4 * READ_BYTES]);
        let (written, unread) = (0, 0..0);
        Ok(Connection {
            stream,
            protocol,
            collections,
            framing,
            vbucket_count,
            output,
            written,
            input,
            unread,
        })
    }

    /// Returns the socket, for polling.
    pub fn fd(&self) -> RawFd {
        self.stream.as_raw_fd()
    }

    /// Returns true if the socket has not accepted everything yet.
    pub fn is_writing(&self) -> bool {
        self.written < self.output.len()
    }

    /// Adds a request to those that the next [`Connection::flush`] sends: a write of `value`, or a read.
    pub fn send(&mut self, rank: u32, value: Option<&[u8]>) {
        let name = key(rank);
        match self.protocol {
            Protocol::Memcached => {
                let mut key = [0; KEY_BYTES + 1];
                key[1..].copy_from_slice(&name);
                let (opcode, extras, framing) = match value {
                    Some(_) => (Opcode::Set, &[0; 8][..], &self.framing[..]),
                    None => (Opcode::Get, &[][..], &[][..]),
                };
                let request = Request {
                    opcode: opcode as u8,
                    vbid: Vbid::of(&name, self.vbucket_count),
                    framing,
                    extras,
                    key: &key[usize::from(!self.collections)..],
                    value: value.unwrap_or_default(),
                    ..Request::default()
                };
                request.encode(&mut self.output);
            }
            Protocol::Redis => {
                let head: &[u8] = match value {
                    Some(_) => b"*3\r\n$3\r\nSET\r\n$16\r\n",
                    None => b"*2\r\n$3\r\nGET\r\n$16\r\n",
                };
                self.output.extend_from_slice(head);
                self.output.extend_from_slice(&name);
                self.output.extend_from_slice(b"\r\n");
                if let Some(value) = value {
                    write!(self.output, "${}\r\n", value.len()).expect("memory takes every write");
                    self.output.extend_from_slice(value);
                    self.output.extend_from_slice(b"\r\n");
                }
            }
        }
    }

    /// Sends as much as the socket accepts.
    ///
    /// # Errors
    /// Fails if the connection breaks.
    pub fn flush(&mut self) -> Result<(), String> {
        while self.is_writing() {
            match self.stream.write(&self.output[self.written..]) {
                Ok(count) => self.written += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(format!("the connection broke: {error}")),
            }
        }
        self.output.clear();
        self.written = 0;
        Ok(())
    }

    /// Reads the available bytes.
    ///
    /// # Errors
    /// Fails if the connection breaks.
    pub fn fill(&mut self) -> Result<(), String> {
        if self.unread.is_empty() {
            self.unread = 0..0;
        } else if self.input.len() - self.unread.end < READ_BYTES {
            self.input.copy_within(self.unread.clone(), 0);
            self.unread = 0..self.unread.len();
        }
        // Grows with the bytes received, never with an announced size.
        if self.input.len() - self.unread.end < READ_BYTES {
            self.input.resize(self.input.len() * 2, 0);
        }
        match self.stream.read(&mut self.input[self.unread.end..]) {
            Ok(0) => Err("the server closed the connection".into()),
            Ok(count) => {
                self.unread.end += count;
                Ok(())
            }
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) =>
            {
                Ok(())
            }
            Err(error) => Err(format!("the connection broke: {error}")),
        }
    }

    /// Returns the next answer if it is complete.
    ///
    /// # Errors
    /// Fails if the received bytes are not a valid answer.
    pub fn answer(&mut self) -> Result<Option<Answer>, String> {
        let input = &self.input[self.unread.clone()];
        let answer = match self.protocol {
            Protocol::Memcached => memcached(input),
            Protocol::Redis => redis(input),
        }?;
        Ok(answer.map(|(answer, length)| {
            self.unread.start += length;
            answer
        }))
    }
}

const MISSING: u16 = Status::KeyNotFound as u16;
const BUSY: [u16; 4] = [
    Status::TemporaryFailure as u16,
    Status::Busy as u16,
    Status::NoMemory as u16,
    Status::SyncWriteInProgress as u16,
];

fn memcached(input: &[u8]) -> Result<Option<(Answer, usize)>, String> {
    let frame = decode(input)
        .map_err(|error| format!("the server's answer is not a frame of the protocol: {error}"))?;
    Ok(frame.map(|(frame, length)| {
        let answer = match frame.vbid {
            0 => Answer::Done,
            MISSING => Answer::Missing,
            status if BUSY.contains(&status) => Answer::Busy,
            status => {
                let known = Status::TABLE.iter().find(|(known, ..)| *known as u16 == status);
                Answer::Refused(match known {
                    Some((_, name, text, _)) => format!("{name} ({text})"),
                    None => format!("status 0x{status:02x}"),
                })
            }
        };
        (answer, length)
    }))
}

fn redis(input: &[u8]) -> Result<Option<(Answer, usize)>, String> {
    let Some(end) = input.windows(2).position(|pair| pair == b"\r\n") else { return Ok(None) };
    let (line, length) = (&input[..end], end + 2);
    let text = || String::from_utf8_lossy(&line[1..]).into_owned();
    match line.first() {
        Some(b'+') => Ok(Some((Answer::Done, length))),
        Some(b'-') if line.starts_with(b"-OOM") || line.starts_with(b"-LOADING") => {
            Ok(Some((Answer::Busy, length)))
        }
        Some(b'-') => Ok(Some((Answer::Refused(text()), length))),
        Some(b'$') if &line[1..] == b"-1" => Ok(Some((Answer::Missing, length))),
        Some(b'$') => {
            let bytes: u32 = text().parse().map_err(|_| format!("no length: {:?}", text()))?;
            let whole = length + bytes as usize + 2;
            Ok((input.len() >= whole).then_some((Answer::Done, whole)))
        }
        _ => Err("the server's answer is none of RESP".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_ranks_in_twelve_digits() {
        assert_eq!(&key(0), b"key_000000000000");
        assert_eq!(&key(4_294_967_295), b"key_004294967295");
    }

    #[test]
    fn an_answer_of_redis_is_complete_with_its_last_byte() {
        let cases: [(&[u8], Answer); 5] = [
            (b"+OK\r\n", Answer::Done),
            (b"$3\r\nabc\r\n", Answer::Done),
            (b"$-1\r\n", Answer::Missing),
            (b"-OOM command not allowed\r\n", Answer::Busy),
            (b"-ERR what\r\n", Answer::Refused("ERR what".into())),
        ];
        for (bytes, expected) in cases {
            for end in 0..bytes.len() {
                assert_eq!(redis(&bytes[..end]), Ok(None), "{end} bytes of {bytes:?}");
            }
            assert_eq!(redis(bytes), Ok(Some((expected, bytes.len()))));
        }
        assert!(redis(b"$x\r\n").is_err() && redis(b"?\r\n").is_err());
    }

    #[test]
    fn temporary_failures_are_told_from_refusals() {
        let frame = |status: u16| {
            let mut bytes = [0; 24];
            bytes[0] = 0x81;
            bytes[6..8].copy_from_slice(&status.to_be_bytes());
            memcached(&bytes).unwrap().unwrap().0
        };
        assert_eq!(frame(0x00), Answer::Done);
        assert_eq!(frame(0x01), Answer::Missing);
        assert_eq!(frame(0x86), Answer::Busy);
        assert_eq!(frame(0xa2), Answer::Busy);
        assert!(matches!(frame(0x03), Answer::Refused(text) if text.starts_with("E2BIG")));
    }
}
