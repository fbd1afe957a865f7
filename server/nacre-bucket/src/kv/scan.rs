//! Range scans on the wire: JSON options in, packed keys or documents out.

use super::session::{Answer, Outcome, Session, Until};
use crate::range_scan::{Page, ScanError, ScanId, ScanOptions, ScanOwner};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use nacre_auth::Privilege;
use nacre_protocol::{Frame, Reply, Status};
use nacre_types::{
    CollectionId, DATATYPE_XATTR, DocKey, Document, Seqno, VbUuid, Vbid, leb128_encode,
};
use serde_json::Value;
use std::ops::Bound;
use std::sync::Arc;

/// Target size of one answer to a continue request, which may get several. The last document may exceed it.
const ANSWER_BYTES: usize = 256 << 10;
/// Bytes read per request without a limit, so that the worker is soon free for others.
const READ_BYTES: usize = 4 << 20;

/// The outcome of a scan request.
#[derive(Debug)]
pub(super) enum Scanned {
    Created(ScanId),
    Page(Vec<Vec<u8>>, PageKind),
    Refused(Status),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct PageKind {
    key_only: bool,
    complete: bool,
}

/// Queues the creation of a scan.
pub(super) fn create(
    session: &mut Session,
    frame: &Frame<'_>,
    options: &[u8],
) -> Result<Outcome, Status> {
    let bucket = Arc::clone(&session.bucket()?.bucket);
    let options = parse(options).ok_or(Status::InvalidArguments)?;
    if bucket.manifest().collection_by_id(options.collection).is_none() {
        return Err(Status::UnknownCollection);
    }
    let selected = session.selected.as_ref().ok_or(Status::NoBucket)?;
    if !session.may(selected, options.collection, &[Privilege::ReadData]) {
        return Err(Status::AccessDenied);
    }
    let mut id = [0; 16];
    id[..8].copy_from_slice(&session.env.random().to_be_bytes());
    id[8..].copy_from_slice(&session.env.random().to_be_bytes());
    let user = session.user_name();
    if session.scans.as_ref().is_none_or(|scans| scans.user() != user) {
        session.scans = Some(ScanOwner::new(user));
    }
    let scans = session.scans.as_mut().ok_or(Status::Internal)?;
    let mark = scans.mark(&bucket);
    let (vbid, now) = (Vbid(frame.vbid), session.env.now());
    let ticket = bucket.jobs.push(&session.waiter, move |bucket| {
        match bucket.scans.begin(bucket, id, vbid, &options, &mark, now) {
            Ok(()) => Scanned::Created(id),
            Err(refused) => Scanned::Refused(status_of(&refused)),
        }
    });
    Ok(Outcome::Park(Until::Scanned(ticket.ok_or(Status::TemporaryFailure)?)))
}

/// Queues reading the next documents of a scan. A limit of 0 means no limit.
pub(super) fn read_on(
    session: &mut Session,
    id: ScanId,
    items: u32,
    milliseconds: u32,
    bytes: u32,
) -> Result<Outcome, Status> {
    let bucket = Arc::clone(&session.bucket()?.bucket);
    let env = Arc::clone(&session.env);
    let limit = |limit: u32, none: usize| if limit == 0 { none } else { limit as usize };
    let (items, bytes) = (limit(items, usize::MAX), limit(bytes, READ_BYTES).min(READ_BYTES));
    let ticket = bucket.jobs.push(&session.waiter, move |bucket| {
        let begun = env.now().monotonic_ns;
        let has_time = || {
            let taken = env.now().monotonic_ns.saturating_sub(begun);
            milliseconds == 0 || taken < u64::from(milliseconds) * 1_000_000
        };
        match bucket.scans.read_on(bucket, id, items, bytes, &has_time) {
            Ok(page) => {
                let kind = PageKind { key_only: page.key_only, complete: page.complete };
                Scanned::Page(pack(&page), kind)
            }
            Err(refused) => Scanned::Refused(status_of(&refused)),
        }
    });
    Ok(Outcome::Park(Until::Scanned(ticket.ok_or(Status::TemporaryFailure)?)))
}

/// Cancels a scan.
pub(super) fn cancel(session: &mut Session, id: ScanId) -> Result<Outcome, Status> {
    let found = session.bucket()?.bucket.scans.cancel(id);
    if found { Ok(Outcome::Status(Status::Success)) } else { Err(Status::KeyNotFound) }
}

/// Answers with the documents read.
pub(super) fn answer(scanned: &Scanned, answer: &mut Answer<'_>) -> Outcome {
    match scanned {
        Scanned::Refused(status) => return Outcome::Status(*status),
        Scanned::Created(id) => answer.value(0, id),
        Scanned::Page(parts, kind) => {
            let extras = u32::from(!kind.key_only).to_be_bytes();
            let last = parts.len() - 1;
            for (index, part) in parts.iter().enumerate() {
                let status = match (index == last, kind.complete) {
                    (false, _) => Status::Success,
                    (true, false) => Status::RangeScanMore,
                    (true, true) => Status::RangeScanComplete,
                };
                answer.send(Reply { status, extras: &extras, value: part, ..Reply::default() });
            }
        }
    }
    Outcome::Answered
}

fn status_of(refused: &ScanError) -> Status {
    match refused {
        ScanError::NotFound => Status::KeyNotFound,
        ScanError::OtherHistory => Status::VbUuidNotEqual,
        ScanError::Behind => Status::TemporaryFailure,
        ScanError::Busy => Status::Busy,
        ScanError::Cancelled => Status::RangeScanCancelled,
        ScanError::NoVbucket => Status::NotMyVbucket,
        ScanError::Store(error) => {
            tracing::error!("cannot scan: {error}");
            Status::TemporaryFailure
        }
    }
}

/// Packs the documents of a page into at least one piece.
fn pack(page: &Page) -> Vec<Vec<u8>> {
    let mut parts = vec![Vec::new()];
    for document in &page.documents {
        if parts.last().is_some_and(|part| part.len() >= ANSWER_BYTES) {
            parts.push(Vec::new());
        }
        if let Some(part) = parts.last_mut() {
            pack_document(document, page, part);
        }
    }
    parts
}

/// Packs a key as length and bytes. A document adds its metadata before and its value after the key.
fn pack_document(document: &Document, page: &Page, out: &mut Vec<u8>) {
    let sized = |bytes: &[u8], out: &mut Vec<u8>| {
        leb128_encode(bytes.len() as u32, out);
        out.extend_from_slice(bytes);
    };
    if page.key_only {
        return sized(document.name(), out);
    }
    let meta = document.meta;
    let (value, datatype) = if page.with_xattrs {
        (document.value(), meta.datatype)
    } else {
        (document.body(), meta.datatype & !DATATYPE_XATTR)
    };
    out.extend(meta.flags.to_be_bytes());
    out.extend(meta.expiry.to_be_bytes());
    out.extend(meta.seqno.0.to_be_bytes());
    out.extend(meta.cas.0.to_be_bytes());
    out.push(datatype);
    sized(document.name(), out);
    sized(value, out);
}

fn parse(options: &[u8]) -> Option<ScanOptions> {
    let options: Value = serde_json::from_slice(options).ok()?;
    let collection = match options.get("collection") {
        None => CollectionId::DEFAULT,
        Some(hex) => hex.as_str()?.parse().ok()?,
    };
    if !collection.holds_documents() {
        return None;
    }
    let flag = |name: &str| options.get(name).is_some_and(|value| value == &Value::Bool(true));
    let (range, sample) = match (options.get("range"), options.get("sampling")) {
        (Some(range), None) => {
            let start = bound(range, "start", "excl_start", collection)?;
            let end = bound(range, "end", "excl_end", collection)?;
            ((start, end), None)
        }
        (None, Some(sampling)) => {
            let samples = usize::try_from(sampling.get("samples")?.as_u64()?).ok()?;
            let seed = sampling.get("seed").map_or(Some(0), Value::as_u64)?;
            ((Bound::Unbounded, Bound::Unbounded), Some((seed, samples)))
        }
        _ => return None,
    };
    let at_least = match options.get("snapshot_requirements") {
        None => None,
        Some(snapshot) => {
            let vb_uuid = snapshot.get("vb_uuid")?.as_str()?.parse().ok()?;
            Some((VbUuid(vb_uuid), Seqno(snapshot.get("seqno")?.as_u64()?)))
        }
    };
    Some(ScanOptions {
        collection,
        range,
        sample,
        key_only: flag("key_only"),
        with_xattrs: flag("include_xattrs"),
        at_least,
    })
}

/// Parses one end of a range: a base64 key, inclusive or exclusive.
fn bound(
    range: &Value,
    included: &str,
    excluded: &str,
    collection: CollectionId,
) -> Option<Bound<Vec<u8>>> {
    let key = |text: &Value| {
        let name = BASE64_STANDARD.decode(text.as_str()?).ok()?;
        Some(DocKey::new(collection, &name).prefixed().to_vec())
    };
    match (range.get(included), range.get(excluded)) {
        (Some(text), None) => Some(Bound::Included(key(text)?)),
        (None, Some(text)) => Some(Bound::Excluded(key(text)?)),
        _ => None,
    }
}
