//! A consumer of history: streams of vBuckets over one connection to one node.
//!
//! ```text
//! open(name) ─► control(noop, window) ─► stream(vbid, range) ─► Accepted(failover log) ─► next(): snapshot, mutation, …, end
//!                                                           └► Rollback(seqno): drop what is above it, and ask again
//! ```
//!
//! The consumer answers the heartbeats of the server and acknowledges processed bytes, so that at most one window of
//! messages is in flight. *Invariant:* an event counts as processed when the caller asks for the next one.

use crate::frame::{Fields, Request, Response};
use crate::{Connection, Error};
use nacre_protocol::dcp::{Payload, open_flag, snapshot_type};
use nacre_protocol::{Frame, HEADER_BYTES, Magic, Opcode, Status};
use nacre_types::Vbid;
use std::collections::VecDeque;

/// Default for the number of bytes in flight.
const WINDOW_BYTES: u32 = 10 << 20;
/// Interval of the server's heartbeats in seconds.
const NOOP_INTERVAL_S: u32 = 120;
/// Maximum number of decoded entries of a failover log. Source: the server keeps fewer.
const FAILOVER_ENTRIES_MAX: usize = 1024;

/// Range of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamRange {
    /// Last seqno that the consumer has.
    pub start: u64,
    /// Last requested seqno; `u64::MAX` for an endless stream.
    pub end: u64,
    /// UUID of the branch of history that `start` belongs to; 0 for a consumer without history.
    pub vb_uuid: u64,
    /// First and last seqno of the snapshot that contains `start`.
    pub snapshot: (u64, u64),
}

impl StreamRange {
    /// All of history, without an end.
    pub const ALL: StreamRange =
        StreamRange { start: 0, end: u64::MAX, vb_uuid: 0, snapshot: (0, 0) };
}

/// A branch of history: its UUID, and the seqno at which it began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailoverEntry {
    /// UUID of the vBucket.
    pub vb_uuid: u64,
    /// Seqno at which the branch began.
    pub seqno: u64,
}

/// Reply to a stream request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamReply {
    /// The stream is open. The failover log has the newest branch first.
    Accepted(Vec<FailoverEntry>),
    /// The consumer must drop its history above this seqno, and ask again.
    Rollback(u64),
}

/// Event of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// vBucket.
    pub vbid: Vbid,
    /// Opaque of the stream request.
    pub opaque: u32,
    /// Kind of the event, with its data.
    pub kind: EventKind,
}

/// Kind of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// A snapshot begins. The consumer is consistent at its end.
    Snapshot {
        /// First seqno.
        start: u64,
        /// Last seqno.
        end: u64,
        /// True if it contains every version, in collections that keep history.
        is_history: bool,
    },
    /// A document was written.
    Mutation {
        /// Seqno.
        seqno: u64,
        /// Number of changes.
        rev: u64,
        /// CAS.
        cas: u64,
        /// Flags of the application.
        flags: u32,
        /// Unix second at which it expires, 0 for never.
        expiry: u32,
        /// Datatype bits of the value.
        datatype: u8,
        /// Key with its collection prefix.
        key: Vec<u8>,
        /// Value.
        value: Vec<u8>,
    },
    /// A document was deleted or has expired.
    Deletion {
        /// Seqno.
        seqno: u64,
        /// Number of changes.
        rev: u64,
        /// CAS.
        cas: u64,
        /// True if it has expired.
        is_expiration: bool,
        /// Key with its collection prefix.
        key: Vec<u8>,
        /// Extended attributes, if there are any.
        value: Vec<u8>,
    },
    /// A scope or a collection was created or dropped.
    System {
        /// Seqno.
        seqno: u64,
        /// Code of the event, see [`nacre_protocol::dcp::event_code`].
        code: u32,
        /// Name.
        key: Vec<u8>,
        /// IDs of manifest, scope and collection, encoded.
        value: Vec<u8>,
    },
    /// The seqno has advanced to this one, past versions that the stream does not show.
    Advanced(u64),
    /// The stream has ended; for the reason codes see [`nacre_protocol::dcp::StreamEnd`].
    End(u32),
}

/// A connection on which a node sends history.
pub struct DcpConsumer {
    connection: Connection,
    /// Opaque of the last request.
    opaque: u32,
    /// Events that arrived while a reply was awaited, with their sizes in bytes.
    waiting: VecDeque<(Event, u32)>,
    window_bytes: u32,
    /// Processed bytes that are not acknowledged yet.
    taken_bytes: u32,
    /// Size in bytes of the event that the caller is processing. It counts as processed with the next call.
    held_bytes: u32,
}

/// A frame of the server.
enum Incoming {
    Answer(u32, Response),
    Event(Event, u32),
    Noop(u32),
    /// A push of the cluster map, or a request of a later protocol version.
    Other,
}

impl DcpConsumer {
    /// Turns a connection with a selected bucket into a consumer. `name` is unique in the cluster and has at most
    /// [`nacre_protocol::dcp::NAME_BYTES_MAX`] bytes; `flags` are those of [`open_flag`], without the direction.
    ///
    /// # Errors
    /// A refusal, and the errors of the connection.
    pub fn open(connection: Connection, name: &str, flags: u32) -> Result<DcpConsumer, Error> {
        DcpConsumer::with_window(connection, name, flags, WINDOW_BYTES)
    }

    /// Opens a consumer with at most `window_bytes` of messages in flight.
    ///
    /// # Errors
    /// The errors of [`DcpConsumer::open`].
    pub fn with_window(
        connection: Connection,
        name: &str,
        flags: u32,
        window_bytes: u32,
    ) -> Result<DcpConsumer, Error> {
        let mut consumer = DcpConsumer {
            connection,
            opaque: 0,
            waiting: VecDeque::new(),
            window_bytes,
            taken_bytes: 0,
            held_bytes: 0,
        };
        let extras = [[0; 4], (flags | open_flag::PRODUCER).to_be_bytes()].concat();
        let request = Request { key: name.as_bytes(), extras: &extras, ..Request::default() };
        consumer.expect(Opcode::DcpOpen, request, "open a stream of history")?;
        consumer.control("connection_buffer_size", &window_bytes.to_string())?;
        consumer.control("enable_noop", "true")?;
        consumer.control("set_noop_interval", &NOOP_INTERVAL_S.to_string())?;
        Ok(consumer)
    }

    /// Changes a setting of the connection.
    ///
    /// # Errors
    /// A refusal, and the errors of the connection.
    pub fn control(&mut self, name: &str, value: &str) -> Result<(), Error> {
        let (key, value) = (name.as_bytes(), value.as_bytes());
        let request = Request { key, value, ..Request::default() };
        self.expect(Opcode::DcpControl, request, &format!("set {name}")).map(drop)
    }

    /// Requests the stream of a vBucket. `filter` is JSON that names collections, or empty for the whole bucket;
    /// `flags` are those of [`nacre_protocol::dcp::stream_flag`].
    ///
    /// # Errors
    /// A refusal, and the errors of the connection. A rollback is not an error.
    pub fn stream(
        &mut self,
        vbid: Vbid,
        range: StreamRange,
        flags: u32,
        filter: &str,
    ) -> Result<StreamReply, Error> {
        let StreamRange { start, end, vb_uuid, snapshot } = range;
        let mut extras = [flags.to_be_bytes(), [0; 4]].concat();
        for number in [start, end, vb_uuid, snapshot.0, snapshot.1] {
            extras.extend(number.to_be_bytes());
        }
        let value = filter.as_bytes();
        let request = Request { vbid, extras: &extras, value, ..Request::default() };
        let response = self.call(Opcode::DcpStreamRequest, request)?;
        let mut fields = Fields(&response.value);
        match response.status {
            status if status == Status::Success as u16 => read_failover_log(&response.value),
            status if status == Status::Rollback as u16 => {
                let seqno = fields.u64().ok_or_else(malformed)?;
                Ok(StreamReply::Rollback(seqno))
            }
            status => {
                let purpose = format!("stream the vBucket {vbid}");
                Err(Error::Refused { purpose, opcode: Opcode::DcpStreamRequest, status })
            }
        }
    }

    /// Closes the stream of a vBucket. It still ends with [`EventKind::End`].
    ///
    /// # Errors
    /// A refusal, and the errors of the connection.
    pub fn close(&mut self, vbid: Vbid) -> Result<(), Error> {
        let purpose = format!("close the stream of the vBucket {vbid}");
        let request = Request { vbid, ..Request::default() };
        self.expect(Opcode::DcpCloseStream, request, &purpose).map(drop)
    }

    /// Waits for the next event and returns it. The previous one counts as processed.
    ///
    /// # Errors
    /// The errors of the connection.
    pub fn next_event(&mut self) -> Result<Event, Error> {
        self.take_in()?;
        loop {
            if let Some((event, bytes)) = self.waiting.pop_front() {
                self.held_bytes = bytes;
                return Ok(event);
            }
            match self.receive()? {
                Incoming::Event(event, bytes) => self.waiting.push_back((event, bytes)),
                Incoming::Noop(opaque) => self.answer_noop(opaque)?,
                Incoming::Other => {}
                Incoming::Answer(..) => return Err(malformed()),
            }
        }
    }

    /// Acknowledges processed bytes once they are half of the window, because the server stops when the window is full.
    fn take_in(&mut self) -> Result<(), Error> {
        self.taken_bytes = self.taken_bytes.saturating_add(std::mem::take(&mut self.held_bytes));
        if self.taken_bytes < self.window_bytes / 2 || self.taken_bytes == 0 {
            return Ok(());
        }
        let extras = std::mem::take(&mut self.taken_bytes).to_be_bytes();
        let opcode = Opcode::DcpBufferAck as u8;
        self.connection.send(Request { opcode, extras: &extras, ..Request::default() });
        self.connection.flush()
    }

    fn answer_noop(&mut self, opaque: u32) -> Result<(), Error> {
        self.connection.send_success(Opcode::DcpNoop, opaque);
        self.connection.flush()
    }

    fn expect(
        &mut self,
        opcode: Opcode,
        request: Request<'_>,
        purpose: &str,
    ) -> Result<Response, Error> {
        let response = self.call(opcode, request)?;
        match response.is_success() {
            true => Ok(response),
            false => {
                let (purpose, status) = (purpose.to_owned(), response.status);
                Err(Error::Refused { purpose, opcode, status })
            }
        }
    }

    fn call(&mut self, opcode: Opcode, request: Request<'_>) -> Result<Response, Error> {
        self.opaque = self.opaque.wrapping_add(1);
        let (opcode, wanted) = (opcode as u8, self.opaque);
        self.connection.send(Request { opcode, opaque: wanted, ..request });
        self.connection.flush()?;
        loop {
            match self.receive()? {
                Incoming::Answer(opaque, response) if opaque == wanted => return Ok(response),
                // The server replies to an acknowledgement only to refuse it.
                Incoming::Answer(..) => return Err(malformed()),
                Incoming::Event(event, bytes) => self.waiting.push_back((event, bytes)),
                Incoming::Noop(opaque) => self.answer_noop(opaque)?,
                Incoming::Other => {}
            }
        }
    }

    fn receive(&mut self) -> Result<Incoming, Error> {
        self.connection.receive(read_incoming)?.ok_or_else(malformed)
    }
}

fn malformed() -> Error {
    Error::Malformed("the server has sent a message that does not belong to a stream".to_owned())
}

fn read_failover_log(value: &[u8]) -> Result<StreamReply, Error> {
    let (entries, rest) = value.as_chunks::<16>();
    if !rest.is_empty() || entries.len() > FAILOVER_ENTRIES_MAX {
        return Err(malformed());
    }
    let entry = |entry: &[u8; 16]| {
        let mut fields = Fields(entry);
        Some(FailoverEntry { vb_uuid: fields.u64()?, seqno: fields.u64()? })
    };
    Ok(StreamReply::Accepted(entries.iter().filter_map(entry).collect()))
}

/// Decodes a frame; `None` if it is too short for its opcode.
fn read_incoming(frame: &Frame<'_>) -> Option<Incoming> {
    match frame.magic {
        Magic::Response | Magic::FlexResponse => {
            return Some(Incoming::Answer(frame.opaque, Response::of(frame)));
        }
        Magic::Request | Magic::FlexRequest => {}
        _ => return Some(Incoming::Other),
    }
    if frame.opcode_byte == Payload::NOOP {
        return Some(Incoming::Noop(frame.opaque));
    }
    let Some(kind) = read_kind(frame)? else { return Some(Incoming::Other) };
    let parts = [frame.framing, frame.extras, frame.key, frame.value];
    let bytes = HEADER_BYTES + parts.iter().map(|part| part.len()).sum::<usize>();
    let event = Event { vbid: Vbid(frame.vbid), opaque: frame.opaque, kind };
    Some(Incoming::Event(event, u32::try_from(bytes).ok()?))
}

/// Decodes the event in a message; `Some(None)` for messages that do not belong to a stream.
fn read_kind(frame: &Frame<'_>) -> Option<Option<EventKind>> {
    let mut extras = Fields(frame.extras);
    let (key, value) = (frame.key.to_vec(), frame.value.to_vec());
    let (cas, datatype) = (frame.cas, frame.datatype);
    Some(Some(match frame.opcode_byte {
        Payload::STREAM_END => EventKind::End(extras.u32()?),
        Payload::SNAPSHOT_MARKER => {
            // Versions 2.0 and 2.2 start with the same fields, but in the value.
            let mut fields = if frame.extras.len() < 16 { Fields(frame.value) } else { extras };
            let (start, end, kind) = (fields.u64()?, fields.u64()?, fields.u32()?);
            EventKind::Snapshot { start, end, is_history: kind & snapshot_type::HISTORY != 0 }
        }
        Payload::MUTATION => EventKind::Mutation {
            seqno: extras.u64()?,
            rev: extras.u64()?,
            cas,
            flags: extras.u32()?,
            expiry: extras.u32()?,
            datatype,
            key,
            value,
        },
        Payload::DELETION | Payload::EXPIRATION => EventKind::Deletion {
            seqno: extras.u64()?,
            rev: extras.u64()?,
            cas,
            is_expiration: frame.opcode_byte == Payload::EXPIRATION,
            key,
            value,
        },
        Payload::SYSTEM_EVENT => {
            EventKind::System { seqno: extras.u64()?, code: extras.u32()?, key, value }
        }
        Payload::SEQNO_ADVANCED => EventKind::Advanced(extras.u64()?),
        _ => return Some(None),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_protocol::dcp::{
        Message, SNAPSHOT_2_0, expiration_extras, mutation_extras, snapshot_extras,
        snapshot_value_2_0,
    };
    use nacre_protocol::decode;
    use proptest::prelude::*;

    /// Returns the event that a consumer decodes from a message.
    fn read(payload: Payload<'_>) -> Option<EventKind> {
        let mut bytes = Vec::new();
        Message { vbid: 5, opaque: 7, stream_id: None, payload }.encode(&mut bytes);
        let (frame, length) = decode(&bytes).unwrap().unwrap();
        let Incoming::Event(event, taken) = read_incoming(&frame)? else { return None };
        assert_eq!((event.vbid, event.opaque, taken as usize), (Vbid(5), 7, length));
        Some(event.kind)
    }

    #[test]
    fn messages_of_the_server_are_events() {
        let mutation = Payload {
            opcode: Payload::MUTATION,
            cas: 9,
            datatype: 1,
            extras: &mutation_extras(3, 2, 4, 5),
            key: b"\0a",
            value: b"{}",
        };
        let expected = EventKind::Mutation {
            seqno: 3,
            rev: 2,
            cas: 9,
            flags: 4,
            expiry: 5,
            datatype: 1,
            key: b"\0a".to_vec(),
            value: b"{}".to_vec(),
        };
        assert_eq!(read(mutation), Some(expected));
        let extras = &expiration_extras(3, 2, 1);
        let expiration = Payload { opcode: Payload::EXPIRATION, extras, ..Payload::default() };
        assert!(matches!(read(expiration), Some(EventKind::Deletion { is_expiration: true, .. })));
    }

    #[test]
    fn snapshot_markers_of_every_version_have_the_same_range() {
        let (old, new) = (snapshot_extras(1, 9, 0x02), snapshot_value_2_0(1, 9, 0x12, 9));
        let opcode = Payload::SNAPSHOT_MARKER;
        let expected = |is_history| Some(EventKind::Snapshot { start: 1, end: 9, is_history });
        assert_eq!(read(Payload { opcode, extras: &old, ..Payload::default() }), expected(false));
        let extras = &SNAPSHOT_2_0;
        let read = read(Payload { opcode, extras, value: &new, ..Payload::default() });
        assert_eq!(read, expected(true));
    }

    #[test]
    fn a_failover_log_has_whole_entries() {
        let log = [[0, 0, 0, 0, 0, 0, 0, 7].as_slice(), &[0, 0, 0, 0, 0, 0, 0, 3]].concat();
        let entry = FailoverEntry { vb_uuid: 7, seqno: 3 };
        assert_eq!(read_failover_log(&log).unwrap(), StreamReply::Accepted(vec![entry]));
        assert!(read_failover_log(&log[1..]).is_err());
        assert!(read_failover_log(&[0; 16 * (FAILOVER_ENTRIES_MAX + 1)]).is_err());
    }

    proptest! {
        #[test]
        fn arbitrary_messages_never_panic(
            opcode in 0x50_u8..0x70,
            extras in prop::collection::vec(any::<u8>(), 0..40),
            value in prop::collection::vec(any::<u8>(), 0..40),
        ) {
            let mut bytes = Vec::new();
            let payload = Payload { opcode, extras: &extras, value: &value, ..Payload::default() };
            Message { vbid: 0, opaque: 0, stream_id: Some(1), payload }.encode(&mut bytes);
            let (frame, _) = decode(&bytes).unwrap().unwrap();
            let _ = read_incoming(&frame);
        }
    }
}
