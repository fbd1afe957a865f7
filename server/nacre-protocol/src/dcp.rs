//! DCP: a client's options for a stream of history, and the messages of the stream.
//!
//! A message is a request of the server under the opaque of the stream, without an answer. With a stream id the frame
//! is a flexible one. A mutation of `a` in the default collection, seqno 3, revision 1, in vBucket 5 on a stream with
//! opaque 7:
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

/// The longest name of a connection, in bytes.
pub const NAME_BYTES_MAX: usize = 200;

/// A client's options for a connection: flags of [`crate::Request::DcpOpen`].
pub mod open_flag {
    /// The server sends, the client receives.
    pub const PRODUCER: u32 = 0x01;
    /// Values with their extended attributes.
    pub const INCLUDE_XATTRS: u32 = 0x04;
    /// No values.
    pub const NO_VALUE: u32 = 0x08;
    /// Deletions say when they happened.
    pub const INCLUDE_DELETE_TIMES: u32 = 0x20;
    /// No values, but their datatypes.
    pub const NO_VALUE_WITH_DATATYPE: u32 = 0x40;
    /// Deletions with the attributes of users as well.
    pub const INCLUDE_DELETED_USER_XATTRS: u32 = 0x100;
    /// No deletions while a stream that began at 0 reads the old part of history.
    pub const SKIP_DELETES_IN_BACKFILL: u32 = 0x200;
}

/// A client's options for a stream: flags of [`crate::Request::DcpStreamRequest`].
pub mod stream_flag {
    /// End with the present content of the store.
    pub const DISK_ONLY: u32 = 0x02;
    /// End with the present history.
    pub const TO_LATEST: u32 = 0x04;
    /// Only while the vBucket is active.
    pub const ACTIVE_ONLY: u32 = 0x10;
    /// Refuse an unknown branch of history even from the beginning.
    pub const STRICT_VB_UUID: u32 = 0x20;
    /// Begin with the next mutation.
    pub const FROM_LATEST: u32 = 0x40;
    /// The client does not mind having missed old deletions.
    pub const IGNORE_PURGED: u32 = 0x80;
}

/// Why a stream has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum StreamEnd {
    /// All that was asked for was sent.
    Complete = 0,
    /// The client closed it.
    Closed = 1,
    /// The vBucket is no longer served here.
    StateChanged = 2,
    /// The old part of history cannot be read.
    BackfillFailed = 5,
    /// The scope or all collections that were asked for are gone.
    FilterEmpty = 7,
    /// The user may no longer read it.
    LostPrivileges = 8,
}

/// Source and content of a snapshot: its type on the wire.
pub mod snapshot_type {
    /// From memory.
    pub const MEMORY: u32 = 0x01;
    /// From disk.
    pub const DISK: u32 = 0x02;
    /// With every version, of collections that keep history.
    pub const HISTORY: u32 = 0x10;
    /// A key may be in it more than once.
    pub const MAY_DUPLICATE_KEYS: u32 = 0x20;
}

/// Codes of system events.
pub mod event_code {
    /// A collection was made.
    pub const CREATE_COLLECTION: u32 = 0;
    /// A collection is gone.
    pub const DROP_COLLECTION: u32 = 1;
    /// A scope was made.
    pub const CREATE_SCOPE: u32 = 3;
    /// A scope is gone.
    pub const DROP_SCOPE: u32 = 4;
}

/// The parts of a message that depend on its kind.
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
    /// Key, with the collection prefix where collections were negotiated.
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
    /// A document's expiry has passed.
    pub const EXPIRATION: u8 = 0x59;
    /// The client must answer.
    pub const NOOP: u8 = 0x5c;
    /// A durable write was prepared. Sent to copies only.
    pub const PREPARE: u8 = 0x60;
    /// A durable write was aborted. Sent to copies only.
    pub const ABORT: u8 = 0x63;
    /// Something happened to a scope or a collection.
    pub const SYSTEM_EVENT: u8 = 0x5f;
    /// History went on with versions that the client does not see.
    pub const SEQNO_ADVANCED: u8 = 0x64;
}

/// One message of a stream.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    /// The vBucket.
    pub vbid: u16,
    /// The opaque of the request that began the stream.
    pub opaque: u32,
    /// The id of the stream, where the client gives ids.
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

/// Extras of a snapshot marker of the first version: first and last seqno, and the type.
pub fn snapshot_extras(start: u64, end: u64, kind: u32) -> [u8; 20] {
    joined(&[&start.to_be_bytes(), &end.to_be_bytes(), &kind.to_be_bytes()])
}

/// Extras of a snapshot marker of version 2.0, whose fields are a [value](snapshot_value_2_0).
pub const SNAPSHOT_2_0: [u8; 1] = [0];
/// Extras of a snapshot marker of version 2.2, whose fields are a [value](snapshot_value_2_2).
pub const SNAPSHOT_2_2: [u8; 1] = [2];

/// Value of a snapshot marker of version 2.0: the fields of the first version, then the last seqno that clients may
/// see, and that of the last durable write that was completed, which is 0 for clients that get no prepares.
pub fn snapshot_value_2_0(start: u64, end: u64, kind: u32, visible: u64) -> [u8; 36] {
    joined(&[&snapshot_extras(start, end, kind), &visible.to_be_bytes()])
}

/// Value of a snapshot marker of version 2.2: that of version 2.0, then the purge seqno, and that of the last durable
/// write that was prepared, which is 0 for clients that get none.
pub fn snapshot_value_2_2(start: u64, end: u64, kind: u32, visible: u64, purged: u64) -> [u8; 52] {
    joined(&[&snapshot_value_2_0(start, end, kind, visible), &purged.to_be_bytes()])
}

/// Extras of a mutation. Locks do not travel, and there is no extended metadata.
pub fn mutation_extras(seqno: u64, rev: u64, flags: u32, expiry: u32) -> [u8; 31] {
    let (seqno, rev) = (seqno.to_be_bytes(), rev.to_be_bytes());
    joined(&[&seqno, &rev, &flags.to_be_bytes(), &expiry.to_be_bytes()])
}

/// Extras of a deletion of the first version.
pub fn deletion_extras(seqno: u64, rev: u64) -> [u8; 18] {
    joined(&[&seqno.to_be_bytes(), &rev.to_be_bytes()])
}

/// Extras of a deletion of the second version, with the Unix second at which it happened.
pub fn timed_deletion_extras(seqno: u64, rev: u64, deleted: u32) -> [u8; 21] {
    joined(&[&seqno.to_be_bytes(), &rev.to_be_bytes(), &deleted.to_be_bytes()])
}

/// Extras of an expiration, with the Unix second at which it was noticed.
pub fn expiration_extras(seqno: u64, rev: u64, deleted: u32) -> [u8; 20] {
    joined(&[&seqno.to_be_bytes(), &rev.to_be_bytes(), &deleted.to_be_bytes()])
}

/// Extras of a system event; `version` is that of its value.
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
    fn fields_lie_where_clients_look_for_them() {
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
