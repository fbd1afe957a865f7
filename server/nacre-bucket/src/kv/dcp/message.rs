//! Encodes stream messages: selects the parts of a document to send, and their form.

use super::settings::{MarkerVersion, Settings};
use crate::kv::snappy;
use nacre_dcp::{Address, End, Message, Origin, SystemEvent};
use nacre_protocol::dcp::{
    self, Payload, SNAPSHOT_2_0, SNAPSHOT_2_2, StreamEnd, deletion_extras, event_code,
    event_extras, expiration_extras, mutation_extras, open_flag, snapshot_extras, snapshot_type,
    snapshot_value_2_0, snapshot_value_2_2, timed_deletion_extras,
};
use nacre_protocol::{Feature, replication};
use nacre_types::{DATATYPE_JSON, DATATYPE_SNAPPY, DATATYPE_XATTR, Document, Kind};
use nacre_value::xattr::Xattrs;
use std::borrow::Cow;

/// Appends a message to `out` and returns its length in bytes. With `compresses`, values are compressed for clients
/// that support it.
pub(super) fn encode(
    address: Address,
    message: &Message,
    settings: &Settings,
    compresses: bool,
    out: &mut Vec<u8>,
) -> usize {
    if let (Message::Document(document), true) = (message, settings.replicates) {
        return replication::encode_version(address.vbid.0, address.opaque, document, out);
    }
    let mut send = |payload: Payload<'_>| {
        let Address { vbid, stream_id, opaque } = address;
        dcp::Message { vbid: vbid.0, opaque, stream_id, payload }.encode(out)
    };
    match message {
        Message::Snapshot { start, end, origin, is_history, purged } => {
            let kind = kind_of_snapshot(*origin, *is_history);
            encode_marker(settings.marker, (start.0, end.0), kind, purged.0, send)
        }
        Message::Advanced(seqno) => {
            let extras = &seqno.0.to_be_bytes();
            send(Payload { opcode: Payload::SEQNO_ADVANCED, extras, ..Payload::default() })
        }
        Message::End(end) => {
            let extras = &(reason(*end) as u32).to_be_bytes();
            send(Payload { opcode: Payload::STREAM_END, extras, ..Payload::default() })
        }
        Message::Document(document) => match SystemEvent::read(document) {
            Some(event) => encode_event(document.meta.seqno.0, &event, send),
            None => encode_document(document, settings, compresses, send),
        },
    }
}

fn kind_of_snapshot(origin: Origin, is_history: bool) -> u32 {
    let kind = match origin {
        Origin::Memory => snapshot_type::MEMORY,
        Origin::Disk => snapshot_type::DISK,
    };
    let history = snapshot_type::HISTORY | snapshot_type::MAY_DUPLICATE_KEYS;
    kind | if is_history { history } else { 0 }
}

/// Encodes a snapshot marker. Prepares are invisible to clients, so all of a snapshot counts as visible.
fn encode_marker(
    version: MarkerVersion,
    (start, end): (u64, u64),
    kind: u32,
    purged: u64,
    send: impl FnOnce(Payload<'_>) -> usize,
) -> usize {
    let marker = Payload { opcode: Payload::SNAPSHOT_MARKER, ..Payload::default() };
    match version {
        MarkerVersion::V1 => send(Payload { extras: &snapshot_extras(start, end, kind), ..marker }),
        MarkerVersion::V2_0 => {
            let value = &snapshot_value_2_0(start, end, kind, end);
            send(Payload { extras: &SNAPSHOT_2_0, value, ..marker })
        }
        MarkerVersion::V2_2 => {
            let value = &snapshot_value_2_2(start, end, kind, end, purged);
            send(Payload { extras: &SNAPSHOT_2_2, value, ..marker })
        }
    }
}

fn reason(end: End) -> StreamEnd {
    match end {
        End::Complete => StreamEnd::Complete,
        End::Closed => StreamEnd::Closed,
        End::VbucketGone => StreamEnd::StateChanged,
        End::BackfillFailed => StreamEnd::BackfillFailed,
        End::NothingOfInterest => StreamEnd::FilterEmpty,
        End::Forbidden => StreamEnd::LostPrivileges,
    }
}

/// Encodes an event. A changed collection is sent as a created one, so that a client that missed the creation learns of
/// the collection.
fn encode_event(seqno: u64, event: &SystemEvent, send: impl FnOnce(Payload<'_>) -> usize) -> usize {
    let mut value = event.manifest_uid.to_be_bytes().to_vec();
    value.extend(event.scope.0.to_be_bytes());
    let mut version = 0;
    let code = match (event.collection, event.ended) {
        (Some((id, max_ttl)), ended) => {
            value.extend(id.0.to_be_bytes());
            if !ended && max_ttl != 0 {
                // A maximum TTL of -1 means "never", which is 0 here. A collection without its own limit omits the
                // field.
                version = 1;
                value.extend((max_ttl.max(0) as u32).to_be_bytes());
            }
            if ended { event_code::DROP_COLLECTION } else { event_code::CREATE_COLLECTION }
        }
        (None, true) => event_code::DROP_SCOPE,
        (None, false) => event_code::CREATE_SCOPE,
    };
    let key = if event.ended { "" } else { &event.name };
    send(Payload {
        opcode: Payload::SYSTEM_EVENT,
        extras: &event_extras(seqno, code, version),
        key: key.as_bytes(),
        value: &value,
        ..Payload::default()
    })
}

fn encode_document(
    document: &Document,
    settings: &Settings,
    compresses: bool,
    send: impl FnOnce(Payload<'_>) -> usize,
) -> usize {
    let meta = document.meta;
    let (value, mut datatype) = value_of(document, settings);
    if !settings.speaks(Feature::Json) {
        datatype &= !DATATYPE_JSON;
    }
    let compresses = settings.forces_compression || compresses;
    let deflated = (settings.speaks(Feature::Snappy) && compresses && !value.is_empty())
        .then(|| snappy::deflate(&value))
        .flatten();
    let value = match &deflated {
        Some(deflated) => {
            datatype |= DATATYPE_SNAPPY;
            &deflated[..]
        }
        None => &value[..],
    };
    let collections = settings.speaks(Feature::Collections);
    let key = if collections { document.key() } else { document.name() };
    let payload = Payload { cas: meta.cas.0, datatype, key, value, ..Payload::default() };
    let (seqno, rev) = (meta.seqno.0, meta.rev);
    let timed = settings.has(open_flag::INCLUDE_DELETE_TIMES) || settings.expirations;
    match meta.kind {
        Kind::Alive => {
            let extras = &mutation_extras(seqno, rev, meta.flags, meta.expiry);
            send(Payload { opcode: Payload::MUTATION, extras, ..payload })
        }
        Kind::Expired if settings.expirations => {
            let extras = &expiration_extras(seqno, rev, meta.expiry);
            send(Payload { opcode: Payload::EXPIRATION, extras, ..payload })
        }
        Kind::Deleted | Kind::Expired | Kind::Aborted if timed => {
            let extras = &timed_deletion_extras(seqno, rev, meta.expiry);
            send(Payload { opcode: Payload::DELETION, extras, ..payload })
        }
        Kind::Deleted | Kind::Expired | Kind::Aborted => {
            let extras = &deletion_extras(seqno, rev);
            send(Payload { opcode: Payload::DELETION, extras, ..payload })
        }
    }
}

/// Returns the part of the value that the client requests, and its datatype.
fn value_of<'a>(document: &'a Document, settings: &Settings) -> (Cow<'a, [u8]>, u8) {
    let stored = document.meta.datatype;
    let (section, body) = document.split();
    let body: &[u8] = if settings.has(open_flag::NO_VALUE)
        || settings.has(open_flag::NO_VALUE_WITH_DATATYPE)
        || !document.is_alive()
    {
        b""
    } else {
        body
    };
    let section = match settings.has(open_flag::INCLUDE_XATTRS) {
        false => Cow::Borrowed(&b""[..]),
        true if document.is_alive() || settings.has(open_flag::INCLUDE_DELETED_USER_XATTRS) => {
            Cow::Borrowed(section)
        }
        true => Cow::Owned(system_attributes(section)),
    };
    if settings.has(open_flag::NO_VALUE_WITH_DATATYPE) {
        return (section, stored);
    }
    let json = if body.is_empty() { 0 } else { stored & DATATYPE_JSON };
    let attributes = if section.is_empty() { 0 } else { DATATYPE_XATTR };
    let value = match (&section[..], body) {
        (b"", body) => Cow::Borrowed(body),
        (_, b"") => section,
        _ => Cow::Borrowed(document.value()),
    };
    (value, json | attributes)
}

fn system_attributes(section: &[u8]) -> Vec<u8> {
    let Ok(mut attributes) = Xattrs::parse(section) else { return Vec::new() };
    attributes.retain_system();
    attributes.encode()
}
