//! A DCP consumer: streams of vBuckets over one connection.

use super::frame::{HEADER_BYTES, Incoming, Reply, Request, invalid};
use super::{KvClient, expect_success};
use std::collections::VecDeque;
use std::io;

/// Makes the other side a producer: a flag of [`Consumer::open`].
pub const PRODUCER: u32 = 0x01;

/// The range of a stream.
#[derive(Clone, Copy, Debug)]
pub struct Range {
    /// The last seqno that the consumer has.
    pub start: u64,
    /// The last seqno that the consumer wants.
    pub end: u64,
    /// The branch of history of `start`; 0 for none.
    pub vb_uuid: u64,
    /// First and last seqno of the snapshot that contains `start`.
    pub snapshot: (u64, u64),
}

impl Range {
    /// From the first mutation, without an end.
    pub const ALL: Range = Range { start: 0, end: u64::MAX, vb_uuid: 0, snapshot: (0, 0) };
}

/// An event of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A snapshot begins: its first and last seqno.
    Snapshot(u64, u64),
    /// A document was written.
    Mutation {
        /// The seqno in the history.
        seqno: u64,
        /// The key, with its collection prefix.
        key: Vec<u8>,
        /// The value.
        value: Vec<u8>,
    },
    /// A document was deleted or has expired.
    Deletion {
        /// The seqno in the history.
        seqno: u64,
        /// The key, with its collection prefix.
        key: Vec<u8>,
    },
    /// History advanced to here with changes that are not sent.
    Advanced(u64),
    /// A scope or a collection has changed.
    System {
        /// The seqno in the history.
        seqno: u64,
    },
    /// The stream has ended; the number is the reason.
    End(u32),
    /// The server checks whether the consumer is alive.
    Noop,
}

/// A connection on which the other side sends history.
pub struct Consumer {
    client: KvClient,
    /// Events that came while a reply was awaited, with their vBuckets and lengths in bytes.
    waiting: VecDeque<(u16, Event, usize)>,
}

impl Consumer {
    /// Turns a connection into a consumer.
    ///
    /// # Errors
    /// A refusal, and errors of the socket.
    pub fn open(client: KvClient, name: &str, flags: u32) -> io::Result<Consumer> {
        let mut consumer = Consumer { client, waiting: VecDeque::new() };
        let extras = [[0; 4], flags.to_be_bytes()].concat();
        let key = name.as_bytes().to_vec();
        let reply = consumer.call(&Request { opcode: 0x50, key, extras, ..Request::default() })?;
        expect_success(&reply, "DCP_OPEN")?;
        Ok(consumer)
    }

    /// Changes a setting of the connection.
    ///
    /// # Errors
    /// Errors of the socket.
    pub fn control(&mut self, key: &str, value: &str) -> io::Result<Reply> {
        let (key, value) = (key.as_bytes().to_vec(), value.as_bytes().to_vec());
        self.call(&Request { opcode: 0x5e, key, value, ..Request::default() })
    }

    /// Requests a stream. `filter` is JSON, or empty.
    ///
    /// # Errors
    /// Errors of the socket.
    pub fn stream(&mut self, vbid: u16, range: Range, filter: &str) -> io::Result<Reply> {
        let mut extras = vec![0; 8];
        let Range { start, end, vb_uuid, snapshot } = range;
        for number in [start, end, vb_uuid, snapshot.0, snapshot.1] {
            extras.extend(number.to_be_bytes());
        }
        let value = filter.as_bytes().to_vec();
        self.call(&Request { opcode: 0x53, vbid, extras, value, ..Request::default() })
    }

    /// Returns the next event, its vBucket, and its length in bytes.
    ///
    /// # Errors
    /// Errors of the socket, and an unexpected reply.
    pub fn next_event(&mut self) -> io::Result<(u16, Event, usize)> {
        if let Some(event) = self.waiting.pop_front() {
            return Ok(event);
        }
        loop {
            match self.client.receive_any()? {
                Incoming::Message(vbid, message) => return event(vbid, &message),
                Incoming::Push => {}
                Incoming::Reply(_) => return Err(invalid("a reply to nothing")),
            }
        }
    }

    /// Acknowledges `bytes` received bytes.
    ///
    /// # Errors
    /// Errors of the socket.
    pub fn acknowledge(&mut self, bytes: usize) -> io::Result<()> {
        let extras = (bytes as u32).to_be_bytes().to_vec();
        self.client.send(&Request { opcode: 0x5d, extras, ..Request::default() }).map(drop)
    }

    fn call(&mut self, request: &Request) -> io::Result<Reply> {
        let opaque = self.client.send(request)?;
        loop {
            match self.client.receive_any()? {
                Incoming::Reply(reply) if reply.opaque == opaque => return Ok(reply),
                Incoming::Reply(_) => return Err(invalid("reply to another request")),
                Incoming::Message(vbid, message) => self.waiting.push_back(event(vbid, &message)?),
                Incoming::Push => {}
            }
        }
    }
}

fn event(vbid: u16, message: &Reply) -> io::Result<(u16, Event, usize)> {
    let Reply { framing, extras, key, value, .. } = message;
    let bytes = HEADER_BYTES + framing.len() + extras.len() + key.len() + value.len();
    let number = |range: std::ops::Range<usize>| {
        let bytes = extras.get(range).ok_or_else(|| invalid("extras too short"))?;
        Ok::<u64, io::Error>(bytes.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
    };
    let event = match message.opcode {
        0x55 => Event::End(number(0..4)? as u32),
        0x56 => Event::Snapshot(number(0..8)?, number(8..16)?),
        0x57 => Event::Mutation { seqno: number(0..8)?, key: key.clone(), value: value.clone() },
        0x58 | 0x59 => Event::Deletion { seqno: number(0..8)?, key: key.clone() },
        0x5c => Event::Noop,
        0x5f => Event::System { seqno: number(0..8)? },
        0x64 => Event::Advanced(number(0..8)?),
        _ => return Err(invalid("unknown message of a stream")),
    };
    Ok((vbid, event, bytes))
}
