//! Replication between the copies of a vBucket: DCP that omits nothing.
//!
//! The active copy sends a version as a mutation, deletion or expiration with its attributes and flags. It sends
//! collection events in the same way, under their keys in the history. It sends a durable write as a prepare; its
//! commit is the mutation or deletion in the history.
//!
//! ```text
//! PREPARE   seqno u64 | revision u64 | flags u32 | expiry u32 | 0 u32 | 0 u8 | deleted u8 | level u8
//! ABORT     0 u64 (instead of the prepare's seqno: the key identifies it) | seqno u64
//! ```

use crate::dcp::{
    Message, Payload, expiration_extras, mutation_extras, snapshot_type, timed_deletion_extras,
};
use crate::{Frame, Magic};
use nacre_types::{
    Cas, CollectionId, DATATYPE_LEVEL_SHIFT, DocKey, Document, KEY_BYTES_MAX, Kind, Meta, Seqno,
    leb128_decode,
};

/// A message from an active copy to a replica, within a stream.
#[derive(Clone, Debug, PartialEq)]
pub enum ReplicaMessage {
    /// The next versions belong to this snapshot.
    Snapshot {
        /// The first seqno, or an earlier one.
        start: Seqno,
        /// The replica is consistent once it has reached this seqno.
        end: Seqno,
        /// True if the snapshot comes from disk. It may then be large.
        from_disk: bool,
    },
    /// The next version.
    Version(Document),
    /// The seqno has advanced to this one.
    Advanced(Seqno),
    /// The stream has ended.
    Ended,
    /// Keep-alive; the replica responds.
    Noop,
}

/// Appends the message that contains `document`. Returns the length of the message in bytes.
pub fn encode_version(vbid: u16, opaque: u32, document: &Document, out: &mut Vec<u8>) -> usize {
    let meta = document.meta;
    let (seqno, rev) = (meta.seqno.0, meta.rev);
    let payload = Payload {
        cas: meta.cas.0,
        datatype: meta.datatype,
        key: document.key(),
        value: document.value(),
        ..Payload::default()
    };
    let mut send = |payload| Message { vbid, opaque, stream_id: None, payload }.encode(out);
    if document.collection() == CollectionId::PREPARED {
        let payload = Payload { key: document.name(), ..payload };
        if meta.kind == Kind::Aborted {
            let extras = &[[0; 8], seqno.to_be_bytes()].concat();
            return send(Payload { opcode: Payload::ABORT, datatype: 0, extras, ..payload });
        }
        let mut extras = mutation_extras(seqno, rev, meta.flags, meta.expiry);
        extras[29] = u8::from(meta.kind != Kind::Alive);
        extras[30] = meta.datatype >> DATATYPE_LEVEL_SHIFT;
        let datatype = meta.datatype & ((1 << DATATYPE_LEVEL_SHIFT) - 1);
        return send(Payload { opcode: Payload::PREPARE, extras: &extras, datatype, ..payload });
    }
    match meta.kind {
        Kind::Alive => {
            let extras = &mutation_extras(seqno, rev, meta.flags, meta.expiry);
            send(Payload { opcode: Payload::MUTATION, extras, ..payload })
        }
        Kind::Expired => {
            let extras = &expiration_extras(seqno, rev, meta.expiry);
            send(Payload { opcode: Payload::EXPIRATION, extras, ..payload })
        }
        Kind::Deleted | Kind::Aborted => {
            let extras = &timed_deletion_extras(seqno, rev, meta.expiry);
            send(Payload { opcode: Payload::DELETION, extras, ..payload })
        }
    }
}

/// Decodes the message in a frame. Returns `None` for any other frame, and for a malformed message.
pub fn read(frame: &Frame<'_>) -> Option<ReplicaMessage> {
    if frame.magic != Magic::Request {
        return None;
    }
    let extras = frame.extras;
    let number = |at: usize| Some(u64::from_be_bytes(extras.get(at..at + 8)?.try_into().ok()?));
    let small = |at: usize| Some(u32::from_be_bytes(extras.get(at..at + 4)?.try_into().ok()?));
    // Accepts only the document's own key. A prepare or an abort is stored under another key.
    let is_key =
        |key: &[u8]| leb128_decode(key).is_some_and(|(_, name)| name.len() <= KEY_BYTES_MAX);
    let key = Some(frame.key).filter(|key| is_key(key));
    let prepared = || Some(DocKey::new(CollectionId::PREPARED, key?));
    let version = |kind: Kind, flags: u32, expiry: u32, key: &[u8], datatype: u8| {
        let meta = Meta {
            seqno: Seqno(number(0)?),
            cas: Cas(frame.cas),
            rev: number(8)?,
            flags,
            expiry,
            datatype,
            kind,
        };
        Some(ReplicaMessage::Version(Document::new(meta, key, frame.value)))
    };
    match frame.opcode_byte {
        Payload::SNAPSHOT_MARKER => Some(ReplicaMessage::Snapshot {
            start: Seqno(number(0)?),
            end: Seqno(number(8)?),
            from_disk: small(16)? & snapshot_type::DISK != 0,
        }),
        Payload::MUTATION => version(Kind::Alive, small(16)?, small(20)?, key?, frame.datatype),
        Payload::DELETION => version(Kind::Deleted, 0, small(16)?, key?, frame.datatype),
        Payload::EXPIRATION => version(Kind::Expired, 0, small(16)?, key?, frame.datatype),
        Payload::PREPARE => {
            let kind = if *extras.get(29)? == 0 { Kind::Alive } else { Kind::Deleted };
            let level = extras.get(30).filter(|level| (1..=3).contains(*level))?;
            let datatype = frame.datatype | level << DATATYPE_LEVEL_SHIFT;
            version(kind, small(16)?, small(20)?, prepared()?.prefixed(), datatype)
        }
        Payload::ABORT => {
            let meta = Meta {
                seqno: Seqno(number(8)?),
                cas: Cas(frame.cas),
                kind: Kind::Aborted,
                ..Meta::default()
            };
            Some(ReplicaMessage::Version(Document::new(meta, prepared()?.prefixed(), b"")))
        }
        Payload::SEQNO_ADVANCED => Some(ReplicaMessage::Advanced(Seqno(number(0)?))),
        Payload::STREAM_END => Some(ReplicaMessage::Ended),
        Payload::NOOP => Some(ReplicaMessage::Noop),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode;

    fn there_and_back(document: &Document) -> Document {
        let mut out = Vec::new();
        encode_version(5, 7, document, &mut out);
        let (frame, length) = decode(&out).unwrap().unwrap();
        assert_eq!((frame.vbid, frame.opaque, length), (5, 7, out.len()));
        match read(&frame) {
            Some(ReplicaMessage::Version(document)) => document,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn every_kind_of_version_reads_back_as_sent() {
        let meta = Meta {
            seqno: Seqno(9),
            cas: Cas(77),
            rev: 3,
            flags: 0x0200_0000,
            expiry: 5,
            datatype: 1,
            kind: Kind::Alive,
        };
        let alive = Document::new(meta, b"\x08key", b"{}");
        assert_eq!(there_and_back(&alive), alive);
        let event = Document::new(meta, DocKey::new(CollectionId::SYSTEM, b"s").prefixed(), b"{}");
        assert_eq!(there_and_back(&event), event);
        for kind in [Kind::Deleted, Kind::Expired] {
            let meta = Meta { kind, flags: 0, ..meta };
            let gone = Document::new(meta, b"\0key", b"");
            assert_eq!(there_and_back(&gone), gone);
        }
        let prepared = DocKey::new(CollectionId::PREPARED, b"\x08key");
        for (level, kind) in [(1, Kind::Alive), (2, Kind::Deleted), (3, Kind::Alive)] {
            let meta = Meta { datatype: 1 | level << DATATYPE_LEVEL_SHIFT, kind, ..meta };
            let prepare = Document::new(meta, prepared.prefixed(), b"{}");
            assert_eq!(there_and_back(&prepare), prepare);
        }
        let aborted =
            Meta { seqno: Seqno(9), cas: Cas(77), kind: Kind::Aborted, ..Meta::default() };
        let aborted = Document::new(aborted, prepared.prefixed(), b"");
        assert_eq!(there_and_back(&aborted), aborted);
    }

    #[test]
    fn a_truncated_message_is_refused() {
        let cut = |opcode: u8, extras: &[u8]| {
            let payload = Payload { opcode, extras, ..Payload::default() };
            let mut out = Vec::new();
            Message { vbid: 0, opaque: 0, stream_id: None, payload }.encode(&mut out);
            read(&decode(&out).unwrap().unwrap().0)
        };
        for opcode in [0x56, 0x57, 0x58, 0x59, 0x60, 0x63, 0x64] {
            for length in [0, 3, 7] {
                assert_eq!(cut(opcode, &vec![0; length]), None, "{opcode:x} {length}");
            }
        }
        assert_eq!(cut(0x60, &[0; 31]), None, "a prepare has a level");
        assert_eq!(cut(0x01, &[0; 8]), None);
    }

    #[test]
    fn a_version_has_a_key_with_a_collection() {
        let told = |opcode: u8, key: &[u8]| {
            let extras = [&[0; 30][..], &[1]].concat();
            let payload = Payload { opcode, key, extras: &extras, ..Payload::default() };
            let mut out = Vec::new();
            Message { vbid: 0, opaque: 0, stream_id: None, payload }.encode(&mut out);
            read(&decode(&out).unwrap().unwrap().0)
        };
        let versions = [
            Payload::MUTATION,
            Payload::DELETION,
            Payload::EXPIRATION,
            Payload::PREPARE,
            Payload::ABORT,
        ];
        for opcode in versions {
            assert!(told(opcode, b"\x08key").is_some(), "{opcode:x}");
            for key in [&b""[..], b"\x80", b"\xff\xff\xff\xff\xffkey", &[0; 300], &[0; 65_535]] {
                assert_eq!(told(opcode, key), None, "{opcode:x} {}", key.len());
            }
        }
    }
}
