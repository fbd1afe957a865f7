//! DCP: the options of a client for a stream of changes, and the messages of the stream.
//!
//! A message is a request of the server with the opaque of the stream; the client does not answer it. With a stream ID,
//! the frame is flexible. This is a mutation of `a` in the default collection, with seqno 3 and revision 1, in vBucket
//! 5 on a stream with opaque 7:
//!
//! ```
//! use nacre_protocol::dcp::{Message, Payload, mutation_extras};
//! let extras = mutation_extras(3, 1, 0x0200_0000, 0);
//! let payload = Payload { opcode: Payload::MUTATION, extras: &extras, key: b"\0a", value: b"{}", ..Payload::default() };
//! let mut out = Vec::new();
//! Message { vbid: 5, opaque: 7, stream_id: None, payload }.encode(&mut out);
//! assert_eq!(out[..12], [0x80, 0x57, 0, 2, 31, 0, 0, 5, 0, 0, 0, 35]);
//! assert_eq!(out[24..40], [0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 1]);
//! ```

use crate::{HEADER_BYTES, Magic};

/// Maximum length of a connection's name, in bytes.
pub const NAME_BYTES_MAX: usize = 200;

/// Options of a connection: flags of [`crate::Request::DcpOpen`].
pub mod open_flag {
    /// The server sends, and the client receives.
    pub const PRODUCER: u32 = 0x01;
    /// Messages contain extended attributes.
    pub const INCLUDE_XATTRS: u32 = 0x04;
    /// Messages contain no values.
    pub const NO_VALUE: u32 = 0x08;
    /// Deletions contain their time.
    pub const INCLUDE_DELETE_TIMES: u32 = 0x20;
    /// Messages contain no values, but the values' datatypes.
    pub const NO_VALUE_WITH_DATATYPE: u32 = 0x40;
    /// Deletions contain user attributes too.
    pub const INCLUDE_DELETED_USER_XATTRS: u32 = 0x100;
    /// The backfill of a stream that starts at 0 omits deletions.
    pub const SKIP_DELETES_IN_BACKFILL: u32 = 0x200;
}

/// Options of a stream: flags of [`crate::Request::DcpStreamRequest`].
pub mod stream_flag {
    /// The stream ends with the current content of the store.
    pub const DISK_ONLY: u32 = 0x02;
    /// The stream ends with the current high seqno.
    pub const TO_LATEST: u32 = 0x04;
    /// The stream requires an active vBucket.
    pub const ACTIVE_ONLY: u32 = 0x10;
    /// The server refuses an unknown branch of the history even for a stream from the beginning.
    pub const STRICT_VB_UUID: u32 = 0x20;
    /// The stream starts with the next mutation.
    pub const FROM_LATEST: u32 = 0x40;
    /// The client accepts that it has missed purged tombstones.
    pub const IGNORE_PURGED: u32 = 0x80;
}

/// The reason why a stream has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum StreamEnd {
    /// The server has sent everything that the client asked for.
    Complete = 0,
    /// The client has closed the stream.
    Closed = 1,
    /// This node no longer serves the vBucket.
    StateChanged = 2,
    /// The backfill has failed.
    BackfillFailed = 5,
    /// The scope, or every collection, in the filter was dropped.
    FilterEmpty = 7,
    /// The user has lost the privilege to read the stream.
    LostPrivileges = 8,
}

/// The type of a snapshot: its source and content.
pub mod snapshot_type {
    /// The snapshot comes from memory.
    pub const MEMORY: u32 = 0x01;
    /// The snapshot comes from disk.
    pub const DISK: u32 = 0x02;
    /// The snapshot contains every version in collections that keep history.
    pub const HISTORY: u32 = 0x10;
    /// The snapshot may contain several versions of a key.
    pub const MAY_DUPLICATE_KEYS: u32 = 0x20;
}

/// Codes of system events.
pub mod event_code {
    /// A collection was created.
    pub const CREATE_COLLECTION: u32 = 0;
    /// A collection was dropped.
    pub const DROP_COLLECTION: u32 = 1;
    /// A scope was created.
    pub const CREATE_SCOPE: u32 = 3;
    /// A scope was dropped.
    pub const DROP_SCOPE: u32 = 4;
}

/// The parts of a message that depend on its type.
#[derive(Clone, Copy, Debug, Default)]
pub struct Payload<'a> {
    /// One of the constants below.
    pub opcode: u8,
    /// CAS of the document.
    pub cas: u64,
    /// Datatype bits of the value.
    pub datatype: u8,
    /// Extras.
    pub extras: &'a [u8],
    /// Key, with the collection prefix if the connection has negotiated collections.
    pub key: &'a [u8],
    /// Value.
    pub value: &'a [u8],
}

impl Payload<'_> {
    /// The stream has ended.
    pub const STREAM_END: u8 = 0x55;
    /// A snapshot begins.
    pub const SNAPSHOT_MARKER: u8 = 0x56;
    /// A document was written.
    pub const MUTATION: u8 = 0x57;
    /// A document was deleted.
    pub const DELETION: u8 = 0x58;
    /// A document has expired.
    pub const EXPIRATION: u8 = 0x59;
    /// The client must answer.
    pub const NOOP: u8 = 0x5c;
    /// A durable write was prepared. Sent to replicas only.
    pub const PREPARE: u8 = 0x60;
    /// A durable write was aborted. Sent to replicas only.
    pub const ABORT: u8 = 0x63;
    /// A scope or a collection has changed.
    pub const SYSTEM_EVENT: u8 = 0x5f;
    /// The seqno has advanced past versions that the client does not see.
    pub const SEQNO_ADVANCED: u8 = 0x64;
}

/// One message of a stream.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    /// The vBucket.
    pub vbid: u16,
    /// The opaque of the stream request.
    pub opaque: u32,
    /// The stream ID, if the client uses stream IDs.
    pub stream_id: Option<u16>,
    /// The payload.
    pub payload: Payload<'a>,
}

impl Message<'_> {
    /// Appends the frame to `out`. Returns its length in bytes.
    pub fn encode(&self, out: &mut Vec<u8>) -> usize {
        let Message { vbid, opaque, stream_id, payload } = *self;
        let Payload { opcode, cas, datatype, extras, key, value } = payload;
        let framing: &[u8] = match stream_id.map(u16::to_be_bytes) {
            Some([high, low]) => &[0x22, high, low],
            None => &[],
        };
        let body = framing.len() + extras.len() + key.len() + value.len();
        out.reserve(HEADER_BYTES + body);
        if framing.is_empty() {
            out.extend([Magic::Request as u8, opcode]);
            out.extend((key.len() as u16).to_be_bytes());
        } else {
            debug_assert!(key.len() <= usize::from(u8::MAX));
            out.extend([Magic::FlexRequest as u8, opcode, framing.len() as u8, key.len() as u8]);
        }
        out.extend([extras.len() as u8, datatype]);
        out.extend(vbid.to_be_bytes());
        out.extend((body as u32).to_be_bytes());
        out.extend(opaque.to_be_bytes());
        out.extend(cas.to_be_bytes());
        for part in [framing, extras, key, value] {
            out.extend_from_slice(part);
        }
        HEADER_BYTES + body
    }
}

fn joined<const N: usize>(parts: &[&[u8]]) -> [u8; N] {
    let mut out = [0; N];
    let mut rest = &mut out[..];
    for part in parts {
        let (head, tail) = rest.split_at_mut(part.len());
        head.copy_from_slice(part);
        rest = tail;
    }
    out
}

/// Returns the extras of a version 1 snapshot marker: first and last seqno, and the type.
pub fn snapshot_extras(start: u64, end: u64, kind: u32) -> [u8; 20] {
    joined(&[&start.to_be_bytes(), &end.to_be_bytes(), &kind.to_be_bytes()])
}

/// Extras of a version 2.0 snapshot marker. Its fields are in the [value](snapshot_value_2_0).
pub const SNAPSHOT_2_0: [u8; 1] = [0];
/// Extras of a version 2.2 snapshot marker. Its fields are in the [value](snapshot_value_2_2).
pub const SNAPSHOT_2_2: [u8; 1] = [2];

/// Returns the value of a version 2.0 snapshot marker: the fields of version 1, the highest seqno that clients may see,
/// and the high completed seqno, which is 0 for clients without prepares.
pub fn snapshot_value_2_0(start: u64, end: u64, kind: u32, visible: u64) -> [u8; 36] {
    joined(&[&snapshot_extras(start, end, kind), &visible.to_be_bytes()])
}

/// Returns the value of a version 2.2 snapshot marker: that of version 2.0, the purge seqno, and the high prepared
/// seqno, which is 0 for clients without prepares.
pub fn snapshot_value_2_2(start: u64, end: u64, kind: u32, visible: u64, purged: u64) -> [u8; 52] {
    joined(&[&snapshot_value_2_0(start, end, kind, visible), &purged.to_be_bytes()])
}

/// Returns the extras of a mutation. The lock time is always 0, and there is no extended metadata.
pub fn mutation_extras(seqno: u64, rev: u64, flags: u32, expiry: u32) -> [u8; 31] {
    let (seqno, rev) = (seqno.to_be_bytes(), rev.to_be_bytes());
    joined(&[&seqno, &rev, &flags.to_be_bytes(), &expiry.to_be_bytes()])
}

/// Returns the extras of a version 1 deletion.
pub fn deletion_extras(seqno: u64, rev: u64) -> [u8; 18] {
    joined(&[&seqno.to_be_bytes(), &rev.to_be_bytes()])
}

/// Returns the extras of a version 2 deletion, with its time as a Unix time in seconds.
pub fn timed_deletion_extras(seqno: u64, rev: u64, deleted: u32) -> [u8; 21] {
    joined(&[&seqno.to_be_bytes(), &rev.to_be_bytes(), &deleted.to_be_bytes()])
}

/// Returns the extras of an expiration, with the time at which the server noticed it, as a Unix time in seconds.
pub fn expiration_extras(seqno: u64, rev: u64, deleted: u32) -> [u8; 20] {
    joined(&[&seqno.to_be_bytes(), &rev.to_be_bytes(), &deleted.to_be_bytes()])
}

/// Returns the extras of a system event; `version` is the version of its value.
pub fn event_extras(seqno: u64, code: u32, version: u8) -> [u8; 13] {
    joined(&[&seqno.to_be_bytes(), &code.to_be_bytes(), &[version]])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode;

    #[test]
    fn a_message_with_a_stream_id_is_a_flexible_frame() {
        let extras = snapshot_extras(1, 9, snapshot_type::DISK);
        let payload =
            Payload { opcode: Payload::SNAPSHOT_MARKER, extras: &extras, ..Payload::default() };
        let mut out = Vec::new();
        let message = Message { vbid: 3, opaque: 8, stream_id: Some(0x0102), payload };
        assert_eq!(message.encode(&mut out), out.len());
        let (frame, length) = decode(&out).unwrap().unwrap();
        assert_eq!((frame.magic, length), (Magic::FlexRequest, out.len()));
        assert_eq!(frame.frame_infos().unwrap().stream_id, Some(0x0102));
        assert_eq!((frame.vbid, frame.opaque, frame.extras), (3, 8, &extras[..]));
    }

    #[test]
    fn fields_are_at_the_offsets_that_clients_expect() {
        let marker = snapshot_value_2_2(1, 9, snapshot_type::DISK, 8, 5);
        assert_eq!(marker[..20], snapshot_extras(1, 9, snapshot_type::DISK));
        assert_eq!(marker[20..36], [0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(marker[36..], [0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(snapshot_value_2_0(1, 9, snapshot_type::DISK, 8), marker[..36]);
        assert_eq!(deletion_extras(1, 2)[15], 2);
        assert_eq!(timed_deletion_extras(1, 2, 7)[16..], [0, 0, 0, 7, 0]);
        assert_eq!(expiration_extras(1, 2, 7)[16..], [0, 0, 0, 7]);
        assert_eq!(event_extras(1, event_code::DROP_SCOPE, 1)[8..], [0, 0, 0, 4, 1]);
        assert_eq!(mutation_extras(1, 2, 3, 4)[16..24], [0, 0, 0, 3, 0, 0, 0, 4]);
    }
}
