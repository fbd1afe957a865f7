//! Encodes requests to the target in the binary protocol, and decodes its responses for the pipeline.
//!
//! | purpose | requests |
//! | --- | --- |
//! | write a version | SET_WITH_META, ADD_WITH_META or DEL_WITH_META with flags, expiry, revision, CAS, and options if needed |
//! | read metadata | GET_META with the datatype |
//! | read metadata and history | GET_META, and a lookup of `_vv` and `_mou` that also reads tombstones |
//! | read a whole version | GET_META, the same lookup, and GET |
//! | read a checksum | a lookup of `$document.value_crc32c` that also reads tombstones |
//! | read a vBucket's history | the statistics `vbucket-details` and `failovers` of the vBucket |

use nacre_bucket::kv::plain;
use nacre_client::Request;
use nacre_protocol::{Frame, Opcode, Status, version_option};
use nacre_types::{
    Cas, DATATYPE_XATTR, FailoverLog, Kind, Meta, Seqno, VALUE_BYTES_MAX, VbUuid, Vbid,
};
use nacre_value::xattr::Xattrs;
use nacre_xdcr::attribute::{HISTORY, METADATA_ONLY_UPDATE};
use nacre_xdcr::{Answer, Arriving, Found, Lookup, Operation, Over, TargetState};
use std::collections::BTreeMap;

/// Datatype of compressed values.
const SNAPPY: u8 = 0x02;
/// Extras byte of GET_META that requests the datatype.
const WITH_DATATYPE: u8 = 0x02;
/// Path flag of a lookup: the path is an attribute.
const OF_XATTR: u8 = 0x04;
/// Document flag of a lookup: also read tombstones.
const ACCESS_DELETED: u8 = 0x04;
/// Path of the checksum of a body.
const CHECKSUM: &str = "$document.value_crc32c";
/// Shorter values are sent uncompressed.
const COMPRESSED_BYTES_MIN: usize = 64;
/// Statuses of a lookup with results: all paths or some paths succeeded, for documents and for tombstones.
const WITH_RESULTS: [u16; 4] = [0x00, 0xcc, 0xcd, 0xd3];
/// Maximum number of branches of a failover log: more than any server keeps.
const BRANCHES_MAX: usize = 1000;

/// Encodes the write of a version. `compresses` is true if the target accepts compressed values.
pub(crate) fn write(operation: &Operation, compresses: bool, mut send: impl FnMut(Request<'_>)) {
    let Meta { flags, expiry, rev, cas, datatype, kind, .. } = operation.version.meta;
    let (over_cas, skips) = match operation.over {
        Over::Anything => (0, 0),
        Over::Nothing => (0, version_option::SKIP_CONFLICT_RESOLUTION),
        Over::Version(cas) => (cas.0, version_option::SKIP_CONFLICT_RESOLUTION),
        Over::Judged(cas) => (cas.0, 0),
    };
    let options = skips
        | if operation.by_time { version_option::FORCE_ACCEPT } else { 0 }
        | if kind == Kind::Expired { version_option::IS_EXPIRATION } else { 0 };
    let mut extras = [flags.to_be_bytes(), expiry.to_be_bytes()].concat();
    extras.extend([rev.to_be_bytes(), cas.0.to_be_bytes()].concat());
    if options != 0 {
        extras.extend(options.to_be_bytes());
    }
    let opcode = match (kind, operation.over) {
        (Kind::Deleted | Kind::Expired, _) => Opcode::DeleteWithMeta,
        (Kind::Alive, Over::Nothing) => Opcode::AddWithMeta,
        // Aborted prepares never get here: filters drop them.
        (Kind::Alive | Kind::Aborted, _) => Opcode::SetWithMeta,
    };
    let value = &operation.version.value;
    let compressed = (compresses && operation.compresses).then(|| compress(value)).flatten();
    // The target determines whether a value is JSON.
    let datatype = datatype & DATATYPE_XATTR | if compressed.is_some() { SNAPPY } else { 0 };
    send(Request {
        opcode: opcode as u8,
        vbid: operation.vbid,
        cas: over_cas,
        datatype,
        extras: &extras,
        key: &operation.key,
        value: compressed.as_deref().unwrap_or(value),
        ..Request::default()
    });
}

fn compress(value: &[u8]) -> Option<Vec<u8>> {
    if value.len() < COMPRESSED_BYTES_MIN {
        return None;
    }
    let compressed = snap::raw::Encoder::new().compress_vec(value).ok()?;
    (compressed.len() < value.len()).then_some(compressed)
}

/// Decodes the answer to a write; `is_conditional` if the write required a certain version at the target.
pub(crate) fn written(frame: &Frame<'_>, is_conditional: bool) -> Answer {
    let is = |status: Status| frame.vbid == status as u16;
    if is(Status::Success) {
        Answer::Stored
    } else if is(Status::KeyExists) || is(Status::KeyNotFound) {
        if is_conditional { Answer::Changed } else { Answer::Kept }
    } else {
        failure(frame.vbid)
    }
}

/// Returns the answer for a status that does not depend on the version.
fn failure(status: u16) -> Answer {
    const BUSY: [Status; 7] = [
        Status::Locked,
        Status::TemporaryFailure,
        Status::NoMemory,
        Status::Busy,
        Status::SyncWriteInProgress,
        Status::SyncWriteReCommitInProgress,
        Status::AccessDenied,
    ];
    if status == Status::NotMyVbucket as u16 {
        Answer::NotMyVbucket
    } else if status == Status::UnknownCollection as u16 {
        Answer::NoCollection
    } else if BUSY.iter().any(|busy| *busy as u16 == status) {
        Answer::Busy
    } else {
        Answer::Refused(nacre_client::describe_status(Opcode::SetWithMeta, status))
    }
}

/// Encodes a request for the metadata of a key.
pub(crate) fn look_up_meta(lookup: &Lookup, mut send: impl FnMut(Request<'_>)) {
    send(Request {
        opcode: Opcode::GetMeta as u8,
        vbid: lookup.vbid,
        extras: &[WITH_DATATYPE],
        key: &lookup.key,
        ..Request::default()
    });
}

/// Encodes a request for the history of a key.
pub(crate) fn look_up_history(lookup: &Lookup, send: impl FnMut(Request<'_>)) {
    look_up_paths(lookup, &[HISTORY, METADATA_ONLY_UPDATE], send);
}

/// Encodes a request for the body at a key.
pub(crate) fn look_up_body(lookup: &Lookup, mut send: impl FnMut(Request<'_>)) {
    send(Request {
        opcode: Opcode::Get as u8,
        vbid: lookup.vbid,
        key: &lookup.key,
        ..Request::default()
    });
}

/// Encodes a request for the checksum of the body at a key.
pub(crate) fn look_up_checksum(lookup: &Lookup, send: impl FnMut(Request<'_>)) {
    look_up_paths(lookup, &[CHECKSUM], send);
}

fn look_up_paths(lookup: &Lookup, names: &[&str], mut send: impl FnMut(Request<'_>)) {
    let mut paths = Vec::new();
    for path in names {
        paths.extend([Opcode::SubdocGet as u8, OF_XATTR]);
        paths.extend((path.len() as u16).to_be_bytes());
        paths.extend(path.as_bytes());
    }
    send(Request {
        opcode: Opcode::SubdocMultiLookup as u8,
        vbid: lookup.vbid,
        extras: &[ACCESS_DELETED],
        key: &lookup.key,
        value: &paths,
        ..Request::default()
    });
}

/// Decodes metadata.
pub(crate) fn meta(frame: &Frame<'_>) -> Found {
    if frame.vbid == Status::KeyNotFound as u16 {
        return Found::Nothing;
    }
    if frame.vbid != Status::Success as u16 {
        return Found::Failed(failure(frame.vbid));
    }
    let number = |range: std::ops::Range<usize>| -> Option<u64> {
        let bytes = frame.extras.get(range)?;
        Some(bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    };
    let read = || {
        let kind = if number(0..4)? & 1 == 0 { Kind::Alive } else { Kind::Deleted };
        let (flags, expiry) = (number(4..8)? as u32, number(8..12)? as u32);
        let datatype = frame.extras.get(20).copied().unwrap_or(0);
        let (rev, cas) = (number(12..20)?, Cas(frame.cas));
        Some(Meta { seqno: Seqno::ZERO, cas, rev, flags, expiry, datatype, kind })
    };
    match read() {
        Some(meta) => Found::Version(Arriving { meta, value: Vec::new() }),
        None => Found::Failed(Answer::Refused("the target's metadata are malformed".to_owned())),
    }
}

/// Adds the history from a lookup to the metadata of the same version.
pub(crate) fn with_history(found: Found, frame: &Frame<'_>) -> Found {
    let Found::Version(mut version) = found else { return found };
    if !WITH_RESULTS.contains(&frame.vbid) {
        return Found::Failed(match failure(frame.vbid) {
            // The version has been removed since.
            Answer::Refused(_) if frame.vbid == Status::KeyNotFound as u16 => Answer::Busy,
            answer => answer,
        });
    }
    if frame.cas != version.meta.cas.0 {
        // The target's version has changed since.
        return Found::Failed(Answer::Busy);
    }
    let mut attributes = Xattrs::default();
    let mut rest = frame.value;
    for path in [HISTORY, METADATA_ONLY_UPDATE] {
        let Some((head, tail)) = rest.split_at_checked(6) else { break };
        let status = u16::from_be_bytes([head[0], head[1]]);
        let length = u32::from_be_bytes([head[2], head[3], head[4], head[5]]) as usize;
        let Some((value, tail)) = tail.split_at_checked(length) else { break };
        if status == Status::Success as u16 && attributes.set(path, value).is_err() {
            let reason = "the target's attributes are malformed".to_owned();
            return Found::Failed(Answer::Refused(reason));
        }
        rest = tail;
    }
    version.value = attributes.encode();
    if version.value.is_empty() {
        // The other attributes were not requested.
        version.meta.datatype &= !DATATYPE_XATTR;
    } else {
        version.meta.datatype |= DATATYPE_XATTR;
    }
    Found::Version(version)
}

/// Adds the body from a GET to the metadata and history of the same version.
pub(crate) fn with_body(found: Found, frame: &Frame<'_>) -> Found {
    let Found::Version(mut version) = found else { return found };
    let is_missing = frame.vbid == Status::KeyNotFound as u16;
    if version.meta.kind != Kind::Alive && is_missing {
        return Found::Version(version);
    }
    if frame.vbid != Status::Success as u16 {
        return Found::Failed(if is_missing { Answer::Busy } else { failure(frame.vbid) });
    }
    if frame.cas != version.meta.cas.0 || version.meta.kind != Kind::Alive {
        // The target's version has changed since, or the document is locked.
        return Found::Failed(Answer::Busy);
    }
    let Ok(body) = plain(frame.value, frame.datatype & SNAPPY != 0) else {
        let reason = "the target's value is malformed".to_owned();
        return Found::Failed(Answer::Refused(reason));
    };
    version.value.extend_from_slice(&body);
    Found::Version(version)
}

/// Decodes a checksum. A target without the checksum keeps its own version, as it would without the question.
pub(crate) fn checksum(frame: &Frame<'_>) -> Found {
    if frame.vbid == Status::KeyNotFound as u16 {
        return Found::Nothing;
    }
    if !WITH_RESULTS.contains(&frame.vbid) {
        return Found::Failed(failure(frame.vbid));
    }
    let read = || {
        let (head, text) = frame.value.split_at_checked(6)?;
        let is_there = head[..2] == (Status::Success as u16).to_be_bytes();
        let text = str::from_utf8(text).ok().filter(|_| is_there)?;
        let digits = text.trim_matches('"').strip_prefix("0x")?;
        u32::from_str_radix(digits, 16).ok()
    };
    let found = |checksum| Found::Checksum(Cas(frame.cas), checksum);
    read().map_or(Found::Failed(Answer::Kept), found)
}

/// Names of the statistics that [`State`] reads.
pub(crate) const STATISTICS: [&str; 2] = ["vbucket-details", "failovers"];

/// Collects the state of a target's vBucket from its statistics.
#[derive(Debug, Default)]
pub(crate) struct State {
    is_active: bool,
    high_seqno: Option<Seqno>,
    branch: Option<VbUuid>,
    branches: BTreeMap<usize, (Option<VbUuid>, Option<Seqno>)>,
}

impl State {
    /// Adds one statistic of `vbid`.
    pub fn take(&mut self, vbid: Vbid, name: &[u8], value: &[u8]) {
        let (Ok(name), Ok(value)) = (str::from_utf8(name), str::from_utf8(value)) else { return };
        let Some(name) = name.strip_prefix(&format!("vb_{}", vbid.0)) else { return };
        let number = || value.parse::<u64>().ok();
        match name.strip_prefix(':') {
            None if name.is_empty() => self.is_active = value == "active",
            Some("high_seqno") => self.high_seqno = number().map(Seqno),
            Some("uuid") => self.branch = number().map(VbUuid),
            Some(entry) => {
                let Some((index, field)) = entry.split_once(':') else { return };
                let Some(index) = index.parse().ok().filter(|index| *index < BRANCHES_MAX) else {
                    return;
                };
                let known = self.branches.entry(index).or_default();
                match field {
                    "id" => known.0 = number().map(VbUuid),
                    "seq" => known.1 = number().map(Seqno),
                    _ => {}
                }
            }
            None => {}
        }
    }

    /// Returns the state of an active vBucket, if it is complete and both statistics are of the same branch.
    pub fn finish(self) -> Option<TargetState> {
        let entries: Option<Vec<(VbUuid, Seqno)>> =
            self.branches.into_values().map(|(uuid, seqno)| uuid.zip(seqno)).collect();
        let mut entries = entries?;
        entries.truncate(FailoverLog::ENTRIES_MAX);
        let log = FailoverLog::from_entries(entries)?;
        let is_whole = self.is_active && Some(log.current()) == self.branch;
        self.high_seqno.filter(|_| is_whole).map(|high_seqno| TargetState { log, high_seqno })
    }
}

/// Returns the maximum number of bytes of a version on the wire.
pub(crate) fn bytes_of(operation: &Operation) -> usize {
    // Header and extras.
    64 + operation.key.len() + operation.version.value.len()
}

const _: () = assert!(VALUE_BYTES_MAX < nacre_protocol::BODY_BYTES_MAX);

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_protocol::{Magic, decode};

    fn frame<'a>(status: Status, cas: u64, extras: &'a [u8], value: &'a [u8]) -> Frame<'a> {
        Frame {
            magic: Magic::Response,
            opcode_byte: 0,
            datatype: 0,
            vbid: status as u16,
            opaque: 0,
            cas,
            framing: &[],
            extras,
            key: &[],
            value,
        }
    }

    fn operation(kind: Kind, over: Over) -> Operation {
        let meta = Meta { cas: Cas(7), rev: 2, kind, datatype: 1, ..Meta::default() };
        let value = if kind == Kind::Alive { vec![b'x'; 200] } else { Vec::new() };
        Operation {
            id: Seqno(1).into(),
            number: 1,
            vbid: Vbid(3),
            key: b"\0k".to_vec(),
            version: Arriving { meta, value },
            over,
            by_time: false,
            compresses: true,
        }
    }

    fn sent(operation: &Operation, compresses: bool) -> Vec<u8> {
        let mut out = Vec::new();
        write(operation, compresses, |request| request.encode(&mut out));
        out
    }

    #[test]
    fn a_version_is_sent_with_its_metadata() {
        let bytes = sent(&operation(Kind::Alive, Over::Anything), true);
        let (frame, _) = decode(&bytes).unwrap().unwrap();
        assert_eq!((frame.opcode(), frame.vbid), (Some(Opcode::SetWithMeta), 3));
        assert_eq!((frame.extras.len(), frame.datatype), (24, SNAPPY), "no options, no JSON bit");
        assert_eq!(snap::raw::Decoder::new().decompress_vec(frame.value).unwrap().len(), 200);
        let bytes = sent(&operation(Kind::Alive, Over::Anything), false);
        assert_eq!(decode(&bytes).unwrap().unwrap().0.value.len(), 200);
        let bytes = sent(&operation(Kind::Expired, Over::Version(Cas(9))), true);
        let (frame, _) = decode(&bytes).unwrap().unwrap();
        assert_eq!((frame.opcode(), frame.cas), (Some(Opcode::DeleteWithMeta), 9));
        assert_eq!(frame.extras[24..], [0, 0, 0, 0x18]);
        let bytes = sent(&operation(Kind::Alive, Over::Nothing), true);
        assert_eq!(decode(&bytes).unwrap().unwrap().0.opcode(), Some(Opcode::AddWithMeta));
    }

    #[test]
    fn each_status_has_its_meaning() {
        let answer = |status| written(&frame(status, 0, &[], &[]), false);
        assert_eq!(answer(Status::Success), Answer::Stored);
        assert_eq!(answer(Status::KeyExists), Answer::Kept);
        assert_eq!(written(&frame(Status::KeyExists, 0, &[], &[]), true), Answer::Changed);
        assert_eq!(answer(Status::NotMyVbucket), Answer::NotMyVbucket);
        assert_eq!(answer(Status::UnknownCollection), Answer::NoCollection);
        assert_eq!(answer(Status::TemporaryFailure), Answer::Busy);
        assert_eq!(answer(Status::AccessDenied), Answer::Busy);
        // A durable write of the document is in progress.
        assert_eq!(answer(Status::SyncWriteInProgress), Answer::Busy);
        assert_eq!(answer(Status::NoMemory), Answer::Busy);
        for status in [Status::TooBig, Status::CasInvalid, Status::XattrInvalid] {
            assert!(matches!(answer(status), Answer::Refused(_)), "{status:?}");
        }
    }

    #[test]
    fn a_body_belongs_to_the_version_that_was_seen() {
        let found = |kind: Kind| {
            let meta = Meta { cas: Cas(5), kind, ..Meta::default() };
            Found::Version(Arriving { meta, value: b"_vv".to_vec() })
        };
        let value = |found: Found| match found {
            Found::Version(version) => Ok(version.value),
            other => Err(other),
        };
        let get = |kind: Kind, status: Status, cas: u64, body: &[u8]| {
            value(with_body(found(kind), &frame(status, cas, &[], body)))
        };
        assert_eq!(get(Kind::Alive, Status::Success, 5, b"body"), Ok(b"_vvbody".to_vec()));
        assert_eq!(get(Kind::Deleted, Status::KeyNotFound, 0, b""), Ok(b"_vv".to_vec()));
        for (kind, status, cas) in [
            (Kind::Alive, Status::Success, 6),
            (Kind::Alive, Status::Success, u64::MAX),
            (Kind::Alive, Status::KeyNotFound, 0),
            (Kind::Deleted, Status::Success, 5),
        ] {
            let busy = Err(Found::Failed(Answer::Busy));
            assert_eq!(get(kind, status, cas, b"body"), busy, "{kind:?} {status:?} {cas}");
        }
        // The peer claims compression, or a length above the limit of documents.
        let mut lie = frame(Status::Success, 5, &[], &[0xff, 0xff, 0xff, 0xff, 0x0f, 0]);
        lie.datatype = SNAPPY;
        assert!(matches!(with_body(found(Kind::Alive), &lie), Found::Failed(Answer::Refused(_))));
    }

    #[test]
    fn truncated_metadata_are_refused() {
        let mut extras = vec![0, 0, 0, 1, 0, 0, 0, 5, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0, 7, 4];
        let Found::Version(found) = meta(&frame(Status::Success, 9, &extras, &[])) else {
            panic!()
        };
        assert_eq!((found.meta.kind, found.meta.rev, found.meta.cas), (Kind::Deleted, 7, Cas(9)));
        extras.truncate(12);
        let short = meta(&frame(Status::Success, 9, &extras, &[]));
        assert!(matches!(short, Found::Failed(Answer::Refused(_))));
        assert_eq!(meta(&frame(Status::KeyNotFound, 0, &[], &[])), Found::Nothing);
    }

    #[test]
    fn a_history_belongs_to_the_version_that_was_seen() {
        let version = || {
            let meta = Meta { cas: Cas(9), datatype: 4, ..Meta::default() };
            Found::Version(Arriving { meta, value: Vec::new() })
        };
        let none = [0u8, 0xc0, 0, 0, 0, 0, 0, 0xc0, 0, 0, 0, 0];
        let failure = Status::MultiPathFailure;
        let Found::Version(found) = with_history(version(), &frame(failure, 9, &[], &none)) else {
            panic!()
        };
        assert_eq!((found.meta.datatype, found.value.len()), (0, 0));
        let later = with_history(version(), &frame(failure, 10, &[], &none));
        assert_eq!(later, Found::Failed(Answer::Busy));
        let cut =
            with_history(version(), &frame(Status::Success, 9, &[], &[0, 0, 255, 255, 255, 255]));
        assert!(matches!(cut, Found::Version(_)), "a length that is only claimed is not believed");
    }

    #[test]
    fn a_checksum_is_that_of_one_version() {
        let text = br#""0x0000ffee""#;
        let value = [&[0, 0, 0, 0, 0, text.len() as u8][..], text].concat();
        let read = checksum(&frame(Status::Success, 9, &[], &value));
        assert_eq!(read, Found::Checksum(Cas(9), 0xffee));
        assert_eq!(checksum(&frame(Status::KeyNotFound, 0, &[], &[])), Found::Nothing);
        let none = [0, 0xc0, 0, 0, 0, 0];
        for (status, value) in [
            (Status::MultiPathFailure, &none[..]),
            (Status::Success, &none[..3]),
            (Status::Success, b"\0\0\0\0\0\x02xx"),
        ] {
            let read = checksum(&frame(status, 9, &[], value));
            assert_eq!(read, Found::Failed(Answer::Kept));
        }
        let busy = checksum(&frame(Status::TemporaryFailure, 0, &[], &[]));
        assert_eq!(busy, Found::Failed(Answer::Busy));
    }

    #[test]
    fn a_state_is_one_of_an_active_vbucket_on_one_branch() {
        let state = |stats: &[(&str, &str)]| {
            let mut state = State::default();
            stats.iter().for_each(|(k, v)| state.take(Vbid(5), k.as_bytes(), v.as_bytes()));
            state.finish()
        };
        let stats = [
            ("vb_5", "active"),
            ("vb_5:uuid", "7"),
            ("vb_5:high_seqno", "40"),
            ("vb_5:0:id", "7"),
            ("vb_5:0:seq", "30"),
            ("vb_5:1:id", "6"),
            ("vb_5:1:seq", "0"),
            ("vb_55:high_seqno", "1"),
            ("vb_5:99999999999:id", "1"),
        ];
        let read = state(&stats).unwrap();
        assert_eq!((read.log.entries().len(), read.high_seqno), (2, Seqno(40)));
        for (index, value) in [(0, "replica"), (1, "8"), (2, "x"), (4, "x")] {
            let mut other = stats;
            other[index].1 = value;
            assert_eq!(state(&other), None, "{:?}", other[index]);
        }
    }
}
