//! Requests to the hub, and its messages.

use crate::Point;
use crate::push::Over;
use nacre_protocol::dcp::{Payload, open_flag};
use nacre_protocol::{Feature, Frame, HEADER_BYTES, Magic, Opcode, version_option};
use nacre_types::{Cas, DATATYPE_JSON, DATATYPE_XATTR, Kind, Meta, Seqno, leb128_encode};
use nacre_xdcr::Arriving;

/// Maximum unacknowledged bytes of streams.
pub(crate) const WINDOW_BYTES: u32 = 4 << 20;
/// Seconds of silence after which the hub sends a noop to the device.
const NOOP_INTERVAL_S: u32 = 30;
/// Features that the device requests.
const FEATURES: [Feature; 6] = [
    Feature::MutationSeqno,
    Feature::SelectBucket,
    Feature::Xerror,
    Feature::Collections,
    Feature::Xattr,
    Feature::Json,
];

/// Fields of a request; omitted ones are empty.
#[derive(Clone, Copy, Default)]
pub(crate) struct Request<'a> {
    pub opcode: Option<Opcode>,
    pub vbid: u16,
    pub opaque: u32,
    pub cas: u64,
    pub datatype: u8,
    pub extras: &'a [u8],
    pub key: &'a [u8],
    pub value: &'a [u8],
}

impl Request<'_> {
    pub fn encode(&self, out: &mut Vec<u8>) {
        self.encode_as(Magic::Request, out);
    }

    fn encode_as(&self, magic: Magic, out: &mut Vec<u8>) {
        let Request { opcode, vbid, opaque, cas, datatype, extras, key, value } = *self;
        let body = extras.len() + key.len() + value.len();
        out.reserve(HEADER_BYTES + body);
        out.extend([magic as u8, opcode.map_or(0, |opcode| opcode as u8)]);
        out.extend((key.len() as u16).to_be_bytes());
        out.extend([extras.len() as u8, datatype]);
        out.extend(vbid.to_be_bytes());
        out.extend((body as u32).to_be_bytes());
        out.extend(opaque.to_be_bytes());
        out.extend(cas.to_be_bytes());
        for part in [extras, key, value] {
            out.extend_from_slice(part);
        }
    }
}

/// Encodes the requests that begin a session, with opaques from `first`. The last two request the manifest and the seqnos.
pub(crate) fn handshake(bucket: &str, device: &str, first: u32, out: &mut Vec<u8>) {
    let features: Vec<u8> =
        FEATURES.iter().flat_map(|feature| (*feature as u16).to_be_bytes()).collect();
    let flags = open_flag::PRODUCER
        | open_flag::INCLUDE_XATTRS
        | open_flag::INCLUDE_DELETED_USER_XATTRS
        | open_flag::INCLUDE_DELETE_TIMES;
    let open = [[0; 4], flags.to_be_bytes()].concat();
    let mut opaque = first;
    let mut send = |opcode, extras: &[u8], key: &[u8], value: &[u8]| {
        let opcode = Some(opcode);
        Request { opcode, opaque, extras, key, value, ..Request::default() }.encode(out);
        opaque += 1;
    };
    send(Opcode::Hello, &[], b"nacre-sync", &features);
    send(Opcode::SelectBucket, &[], bucket.as_bytes(), &[]);
    send(Opcode::DcpOpen, &open, device.as_bytes(), &[]);
    for (name, value) in [
        ("connection_buffer_size", WINDOW_BYTES.to_string()),
        ("enable_noop", "true".into()),
        ("set_noop_interval", NOOP_INTERVAL_S.to_string()),
        ("enable_expiry_opcode", "true".into()),
        ("send_stream_end_on_client_close_stream", "true".into()),
    ] {
        send(Opcode::DcpControl, &[], name.as_bytes(), value.as_bytes());
    }
    send(Opcode::GetCollectionsManifest, &[], &[], &[]);
    send(Opcode::GetAllVbSeqnos, &1u32.to_be_bytes(), &[], &[]);
}

/// Encodes a request for the seqnos of the vBuckets that the node serves.
pub(crate) fn seqnos(opaque: u32, out: &mut Vec<u8>) {
    let extras = 1u32.to_be_bytes();
    let opcode = Some(Opcode::GetAllVbSeqnos);
    Request { opcode, opaque, extras: &extras, ..Request::default() }.encode(out);
}

/// Decodes the answer to [`seqnos`].
pub(crate) fn read_seqnos(value: &[u8]) -> Option<Vec<(u16, u64)>> {
    let (entries, rest) = value.as_chunks::<10>();
    let entry = |[v0, v1, seqno @ ..]: &[u8; 10]| {
        (u16::from_be_bytes([*v0, *v1]), u64::from_be_bytes(*seqno))
    };
    rest.is_empty().then(|| entries.iter().map(entry).collect())
}

/// Encodes a request for the stream of a vBucket with these collections.
pub(crate) fn stream(
    vbid: u16,
    point: &Point,
    collections: &[u32],
    opaque: u32,
    out: &mut Vec<u8>,
) {
    let mut extras = vec![0; 8];
    let Point { vb_uuid, seqno, snapshot } = *point;
    for number in [seqno, u64::MAX, vb_uuid, snapshot.0, snapshot.1] {
        extras.extend(number.to_be_bytes());
    }
    let ids: Vec<String> = collections.iter().map(|id| format!("\"{id:x}\"")).collect();
    let filter = format!("{{\"collections\":[{}]}}", ids.join(","));
    let opcode = Some(Opcode::DcpStreamRequest);
    let (extras, value) = (&extras[..], filter.as_bytes());
    Request { opcode, vbid, opaque, extras, value, ..Request::default() }.encode(out);
}

/// Encodes a request to end a stream.
pub(crate) fn close(vbid: u16, opaque: u32, out: &mut Vec<u8>) {
    let opcode = Some(Opcode::DcpCloseStream);
    Request { opcode, vbid, opaque, ..Request::default() }.encode(out);
}

/// Encodes an acknowledgement of `bytes` bytes of streams.
pub(crate) fn acknowledge(bytes: u32, out: &mut Vec<u8>) {
    let extras = bytes.to_be_bytes();
    let opcode = Some(Opcode::DcpBufferAck);
    Request { opcode, extras: &extras, ..Request::default() }.encode(out);
}

/// Encodes the answer to a noop.
pub(crate) fn noop(opaque: u32, out: &mut Vec<u8>) {
    Request { opcode: Some(Opcode::DcpNoop), opaque, ..Request::default() }
        .encode_as(Magic::Response, out);
}

/// Returns a key with its collection ID as a prefix.
pub(crate) fn prefixed(collection: u32, name: &[u8]) -> Vec<u8> {
    let mut key = Vec::with_capacity(5 + name.len());
    leb128_encode(collection, &mut key);
    key.extend_from_slice(name);
    key
}

/// Encodes a write of a version over the hub's known version.
pub(crate) fn write(
    vbid: u16,
    key: &[u8],
    version: &Arriving,
    over: Over,
    by_time: bool,
    opaque: u32,
    out: &mut Vec<u8>,
) {
    let Meta { flags, expiry, rev, cas, datatype, kind, .. } = version.meta;
    let options = version_option::SKIP_CONFLICT_RESOLUTION
        | if by_time { version_option::FORCE_ACCEPT } else { 0 }
        | if kind == Kind::Expired { version_option::IS_EXPIRATION } else { 0 };
    let mut extras = [flags.to_be_bytes(), expiry.to_be_bytes()].concat();
    extras.extend([rev.to_be_bytes(), cas.0.to_be_bytes()].concat());
    extras.extend(options.to_be_bytes());
    let opcode = Some(match (kind, over) {
        (Kind::Alive | Kind::Aborted, Over::Nothing) => Opcode::AddWithMeta,
        (Kind::Alive | Kind::Aborted, Over::Version(_) | Over::Remembered(_)) => {
            Opcode::SetWithMeta
        }
        (Kind::Deleted | Kind::Expired, _) => Opcode::DeleteWithMeta,
    });
    // The hub determines whether a value is JSON.
    let datatype = datatype & DATATYPE_XATTR;
    let (extras, value) = (&extras[..], &version.value[..]);
    Request { opcode, vbid, opaque, cas: over.cas(), datatype, extras, key, value }.encode(out);
}

/// A message of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// The hub asks whether the device is still connected.
    Noop,
    /// A snapshot begins.
    Snapshot(u64, u64),
    /// A version; the seqno is the hub's.
    Version { key: Vec<u8>, version: Arriving },
    /// History advanced without versions for the device.
    Advanced(u64),
    /// The stream has ended, for this reason.
    End(u32),
    /// A message that does not concern the device.
    Other,
}

/// Big-endian fields in order.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn u32(&mut self) -> Option<u32> {
        let (head, rest) = self.0.split_first_chunk::<4>()?;
        self.0 = rest;
        Some(u32::from_be_bytes(*head))
    }

    fn u64(&mut self) -> Option<u64> {
        let (head, rest) = self.0.split_first_chunk::<8>()?;
        self.0 = rest;
        Some(u64::from_be_bytes(*head))
    }
}

/// Decodes a request of the hub; `None` if it is too short for its opcode.
pub(crate) fn read(frame: &Frame<'_>) -> Option<Event> {
    let mut extras = Fields(frame.extras);
    let version = |meta: Meta| Event::Version {
        key: frame.key.to_vec(),
        version: Arriving { meta, value: frame.value.to_vec() },
    };
    let (cas, datatype) = (Cas(frame.cas), frame.datatype & (DATATYPE_XATTR | DATATYPE_JSON));
    Some(match frame.opcode_byte {
        Payload::NOOP => Event::Noop,
        Payload::SNAPSHOT_MARKER => Event::Snapshot(extras.u64()?, extras.u64()?),
        Payload::MUTATION => {
            let (seqno, rev) = (Seqno(extras.u64()?), extras.u64()?);
            let (flags, expiry) = (extras.u32()?, extras.u32()?);
            version(Meta { seqno, cas, rev, flags, expiry, datatype, kind: Kind::Alive })
        }
        opcode @ (Payload::DELETION | Payload::EXPIRATION) => {
            let is_expiration = opcode == Payload::EXPIRATION;
            let kind = if is_expiration { Kind::Expired } else { Kind::Deleted };
            let (seqno, rev) = (Seqno(extras.u64()?), extras.u64()?);
            version(Meta { seqno, cas, rev, flags: 0, expiry: extras.u32()?, datatype, kind })
        }
        // A collection was created or dropped: the stream ends if this concerns the device.
        Payload::SEQNO_ADVANCED | Payload::SYSTEM_EVENT => Event::Advanced(extras.u64()?),
        Payload::STREAM_END => Event::End(extras.u32()?),
        _ => Event::Other,
    })
}

/// Returns the seqno of a version, from the answer to its write.
pub(crate) fn read_written(frame: &Frame<'_>) -> Option<u64> {
    let mut extras = Fields(frame.extras);
    let _vb_uuid = extras.u64()?;
    extras.u64()
}

/// Decodes the branches of a vBucket's history, newest first: UUID and first seqno.
pub(crate) fn read_branches(value: &[u8]) -> Option<Vec<(u64, u64)>> {
    let (entries, rest) = value.as_chunks::<16>();
    let entry = |entry: &[u8; 16]| {
        let mut fields = Fields(entry);
        Some((fields.u64()?, fields.u64()?))
    };
    if rest.is_empty() && !entries.is_empty() { entries.iter().map(entry).collect() } else { None }
}
