//! The world outside the sandbox as a test has set it up; one per thread.

use super::paths;
use crate::{DocumentError, Header, Timer, blob, http, kv, query};
use std::cell::RefCell;
use std::collections::BTreeMap;

type Answering = Box<dyn FnMut(&http::Request) -> Result<http::Response, http::Error>>;

type Querying = Box<dyn FnMut(&query::Statement) -> Result<Vec<String>, query::Failure>>;

type QueryingAt =
    Box<dyn FnMut(query::Service, &query::Statement) -> Result<Vec<String>, query::Failure>>;

/// Everything that the functions of the SDK access.
#[derive(Default)]
pub(crate) struct Outside {
    /// Documents by keyspace and key.
    pub documents: BTreeMap<(String, Vec<u8>), kv::Document>,
    /// Extended attributes, a JSON object each. Attributes that survive a deletion remain.
    pub xattrs: BTreeMap<(String, Vec<u8>), serde_json::Map<String, serde_json::Value>>,
    /// The CAS of each tombstone.
    pub tombstones: BTreeMap<(String, Vec<u8>), u64>,
    pub last_cas: u64,
    /// The error with which all document calls are refused.
    pub refusing: Option<kv::Error>,
    pub timers: BTreeMap<String, Timer>,
    /// The vBucket of timers that are set now.
    pub timers_vb: Option<u16>,
    /// The current item.
    pub turn: Option<u32>,
    /// Events that the service has reported as failed.
    pub failures: Vec<DocumentError>,
    /// The milliseconds that the item has taken, and the increase with each question.
    pub passed_ms: u32,
    pub ask_ms: u32,
    pub log: Vec<String>,
    pub metrics: BTreeMap<String, f64>,
    /// Blobs: content, and whether they are sealed.
    pub blobs: BTreeMap<String, (Vec<u8>, bool)>,
    pub answering: Option<Answering>,
    pub querying: Option<Querying>,
    /// The handler of queries to other services.
    pub querying_at: Option<QueryingAt>,
    /// The rows of queries that have not ended, by query handle.
    pub queries: BTreeMap<u32, std::collections::VecDeque<String>>,
}

thread_local! {
    static OUTSIDE: RefCell<Outside> = RefCell::default();
}

pub(crate) fn with<T>(call: impl FnOnce(&mut Outside) -> T) -> T {
    OUTSIDE.with_borrow_mut(call)
}

const OWN_KEYSPACE: &str = "_default._default";

pub(super) fn place(keyspace: &str, key: &[u8]) -> (String, Vec<u8>) {
    let keyspace = if keyspace.is_empty() { OWN_KEYSPACE } else { keyspace };
    (keyspace.to_owned(), key.to_vec())
}

pub(crate) fn get(keyspace: &str, key: &[u8]) -> Result<kv::Document, kv::Error> {
    with(|outside| match &outside.refusing {
        Some(error) => Err(error.clone()),
        None => outside.documents.get(&place(keyspace, key)).cloned().ok_or(kv::Error::NotFound),
    })
}

pub(crate) fn get_many(keyspace: &str, keys: &[Vec<u8>]) -> Vec<Result<kv::Document, kv::Error>> {
    keys.iter().map(|key| get(keyspace, key)).collect()
}

pub(super) fn store(keyspace: &str, key: &[u8], content: &kv::Content) -> u64 {
    let kv::Content { body, flags, expiry } = content.clone();
    with(|outside| {
        outside.last_cas += 1;
        let cas = outside.last_cas;
        let is_json = serde_json::from_slice::<serde::de::IgnoredAny>(&body).is_ok();
        let document = kv::Document { body, cas, flags, expiry, is_json };
        outside.tombstones.remove(&place(keyspace, key));
        outside.documents.insert(place(keyspace, key), document);
        cas
    })
}

pub(crate) fn insert(keyspace: &str, key: &[u8], content: &kv::Content) -> Result<u64, kv::Error> {
    match get(keyspace, key) {
        Ok(_) => Err(kv::Error::Exists),
        Err(kv::Error::NotFound) => Ok(store(keyspace, key, content)),
        Err(refused) => Err(refused),
    }
}

pub(crate) fn upsert(keyspace: &str, key: &[u8], content: &kv::Content) -> Result<u64, kv::Error> {
    match get(keyspace, key) {
        Ok(_) | Err(kv::Error::NotFound) => Ok(store(keyspace, key, content)),
        Err(refused) => Err(refused),
    }
}

pub(crate) fn replace(
    keyspace: &str,
    key: &[u8],
    content: &kv::Content,
    cas: Option<u64>,
) -> Result<u64, kv::Error> {
    match get(keyspace, key)? {
        found if cas.is_some_and(|cas| cas != found.cas) => Err(kv::Error::CasMismatch),
        _ => Ok(store(keyspace, key, content)),
    }
}

pub(crate) fn remove(keyspace: &str, key: &[u8], cas: Option<u64>) -> Result<u64, kv::Error> {
    let found = get(keyspace, key)?;
    if cas.is_some_and(|cas| cas != found.cas) {
        return Err(kv::Error::CasMismatch);
    }
    with(|outside| {
        outside.documents.remove(&place(keyspace, key));
        outside.last_cas += 1;
        outside.tombstones.insert(place(keyspace, key), outside.last_cas);
        Ok(outside.last_cas)
    })
}

pub(crate) fn counter(
    keyspace: &str,
    key: &[u8],
    delta: i64,
    initial: Option<u64>,
    expiry: u32,
) -> Result<kv::Counted, kv::Error> {
    let (value, flags, expiry) = match (get(keyspace, key), initial) {
        (Ok(found), _) => {
            let value = std::str::from_utf8(&found.body).ok().and_then(|text| text.parse().ok());
            let value: u64 =
                value.ok_or_else(|| kv::Error::Invalid("it is not a counter".into()))?;
            (value.saturating_add_signed(delta), found.flags, found.expiry)
        }
        (Err(kv::Error::NotFound), Some(initial)) => (initial, 0, expiry),
        (Err(error), _) => return Err(error),
    };
    let content = kv::Content { body: value.to_string().into_bytes(), flags, expiry };
    Ok(kv::Counted { value, cas: store(keyspace, key, &content) })
}

pub(crate) fn touch(keyspace: &str, key: &[u8], expiry: u32) -> Result<u64, kv::Error> {
    let kv::Document { body, flags, .. } = get(keyspace, key)?;
    Ok(store(keyspace, key, &kv::Content { body, flags, expiry }))
}

pub(crate) fn lookup_in(
    keyspace: &str,
    key: &[u8],
    specs: &[kv::LookupSpec],
) -> Result<kv::Looked, kv::Error> {
    let found = get(keyspace, key)?;
    let at = place(keyspace, key);
    let xattrs = with(|outside| outside.xattrs.get(&at).cloned()).unwrap_or_default();
    let results = specs.iter().map(|spec| paths::look(spec, &found.body, &xattrs)).collect();
    Ok(kv::Looked { cas: found.cas, results })
}

pub(crate) fn mutate_in(
    keyspace: &str,
    key: &[u8],
    specs: &[kv::MutateSpec],
    options: kv::MutateOptions,
) -> Result<kv::Mutated, kv::Error> {
    let kv::MutateOptions { mode, expiry, flags } = options;
    let found = match (get(keyspace, key), mode) {
        (Ok(_), kv::Mode::Insert) => return Err(kv::Error::Exists),
        (Err(kv::Error::NotFound), kv::Mode::Insert | kv::Mode::Upsert) => {
            kv::Document { body: b"{}".to_vec(), ..kv::Document::default() }
        }
        (found, _) => found?,
    };
    if matches!(mode, kv::Mode::Replace(Some(cas)) if cas != found.cas) {
        return Err(kv::Error::CasMismatch);
    }
    let at = place(keyspace, key);
    let (mut xattrs, cas) = with(|outside| {
        (outside.xattrs.get(&at).cloned().unwrap_or_default(), outside.last_cas + 1)
    });
    let (body, results) = paths::change(specs, found.body, &mut xattrs, cas)?;
    with(|outside| outside.xattrs.insert(at, xattrs));
    let cas = match body {
        None => remove(keyspace, key, None)?,
        Some(body) => {
            let (flags, expiry) = (flags.unwrap_or(found.flags), expiry.unwrap_or(found.expiry));
            store(keyspace, key, &kv::Content { body, flags, expiry })
        }
    };
    Ok(kv::Mutated { cas, results })
}

pub(crate) fn lookup_in_any(
    keyspace: &str,
    key: &[u8],
    specs: &[kv::LookupSpec],
) -> Result<kv::LookedAny, kv::Error> {
    let tombstone = with(|outside| outside.tombstones.get(&place(keyspace, key)).copied());
    let (Some(cas), Err(kv::Error::NotFound)) = (tombstone, get(keyspace, key)) else {
        let kv::Looked { cas, results } = lookup_in(keyspace, key, specs)?;
        return Ok(kv::LookedAny { cas, deleted: false, results });
    };
    let xattrs = with(|outside| outside.xattrs.get(&place(keyspace, key)).cloned());
    let xattrs = xattrs.unwrap_or_default();
    let look = |spec: &kv::LookupSpec| match spec.xattr {
        true => paths::look(spec, b"", &xattrs),
        false => Err("path not found".into()),
    };
    Ok(kv::LookedAny { cas, deleted: true, results: specs.iter().map(look).collect() })
}

pub(crate) fn mutate_in_any(
    keyspace: &str,
    key: &[u8],
    specs: &[kv::MutateSpec],
    options: kv::MutateOptions,
    tombstone: kv::TombstoneUse,
) -> Result<kv::Mutated, kv::Error> {
    let at = place(keyspace, key);
    let is_alive = match get(keyspace, key) {
        Ok(_) => true,
        Err(kv::Error::NotFound) => false,
        Err(refused) => return Err(refused),
    };
    let left = with(|outside| outside.tombstones.get(&at).copied());
    let is_revived = match (tombstone, left, options.mode) {
        (kv::TombstoneUse::Revive, ..) if is_alive => return Err(kv::Error::Exists),
        _ if is_alive => return mutate_in(keyspace, key, specs, options),
        (_, Some(_), kv::Mode::Insert) => return Err(kv::Error::Exists),
        (_, Some(cas), kv::Mode::Replace(Some(wanted))) if cas != wanted => {
            return Err(kv::Error::CasMismatch);
        }
        (_, None, kv::Mode::Replace(_)) => return Err(kv::Error::NotFound),
        (kv::TombstoneUse::Create, None, _) => false,
        (_, None, _) => return mutate_in(keyspace, key, specs, options),
        (use_of, Some(_), _) => use_of == kv::TombstoneUse::Revive,
    };
    let (mut xattrs, cas) = with(|outside| {
        (outside.xattrs.get(&at).cloned().unwrap_or_default(), outside.last_cas + 1)
    });
    let (body, results) = paths::change(specs, b"{}".to_vec(), &mut xattrs, cas)?;
    with(|outside| outside.xattrs.insert(at.clone(), xattrs));
    if is_revived {
        let (flags, expiry) = (options.flags.unwrap_or(0), options.expiry.unwrap_or(0));
        let body = body.unwrap_or_default();
        store(keyspace, key, &kv::Content { body, flags, expiry });
    } else {
        with(|outside| {
            outside.last_cas = cas;
            outside.tombstones.insert(at, cas);
        });
    }
    Ok(kv::Mutated { cas, results })
}

pub(crate) fn begin_turn(index: u32) {
    with(|outside| {
        assert!(outside.turn < Some(index), "an item began out of order");
        (outside.turn, outside.passed_ms) = (Some(index), 0);
    });
}

pub(crate) fn turn_failed(index: u32, message: &str) {
    let message = message.to_owned();
    with(|outside| outside.failures.push(DocumentError { index, message }));
}

pub(crate) fn passed_ms() -> u32 {
    with(|outside| {
        outside.passed_ms += outside.ask_ms;
        outside.passed_ms
    })
}

pub(crate) fn timers_belong(vb: Option<u16>) {
    with(|outside| outside.timers_vb = vb);
}

pub(crate) fn set_timer(name: &str, due_us: u64, payload: &[u8]) {
    let (name, payload) = (name.to_owned(), payload.to_vec());
    with(|outside| {
        let vb = outside.timers_vb;
        outside.timers.insert(name.clone(), Timer { vb, name, due_us, payload });
    });
}

pub(crate) fn is_timer_set(name: &str) -> bool {
    with(|outside| outside.timers.contains_key(name))
}

pub(crate) fn cancel_timer(name: &str) -> bool {
    with(|outside| outside.timers.remove(name)).is_some()
}

pub(crate) fn send(request: http::Request) -> Result<http::Response, http::Error> {
    let answering = with(|outside| outside.answering.take());
    let Some(mut answering) = answering else {
        return Err(http::Error::Denied("there is no network here".into()));
    };
    let answer = answering(&request);
    with(|outside| outside.answering = Some(answering));
    let lower = |(name, value): Header| (name.to_ascii_lowercase(), value);
    answer.map(|response| http::Response {
        headers: response.headers.into_iter().map(lower).collect(),
        ..response
    })
}

pub(crate) fn begin_query(statement: &query::Statement) -> Result<u32, query::Failure> {
    let Some(mut querying) = with(|outside| outside.querying.take()) else {
        let message = "there are no queries here".into();
        return Err(query::Failure { code: 5000, message, retry: false });
    };
    let rows = querying(statement);
    with(|outside| outside.querying = Some(querying));
    opened(rows?)
}

pub(crate) fn begin_query_at(
    service: query::Service,
    statement: &query::Statement,
) -> Result<u32, query::Failure> {
    let Some(mut querying) = with(|outside| outside.querying_at.take()) else {
        let message = "there is no such service here".into();
        return Err(query::Failure { code: 5000, message, retry: false });
    };
    let rows = querying(service, statement);
    with(|outside| outside.querying_at = Some(querying));
    opened(rows?)
}

/// Opens a query with these rows. Returns its handle.
fn opened(rows: Vec<String>) -> Result<u32, query::Failure> {
    with(|outside| {
        let number = outside.queries.last_key_value().map_or(1, |(number, _)| number + 1);
        outside.queries.insert(number, rows.into());
        Ok(number)
    })
}

/// Returns one row at a time, so that tests see the requests for the next rows.
pub(crate) fn next_rows(query: u32) -> Result<Vec<String>, query::Failure> {
    let row = with(|outside| outside.queries.get_mut(&query)?.pop_front());
    if row.is_none() {
        close_query(query);
    }
    Ok(row.into_iter().collect())
}

pub(crate) fn close_query(query: u32) {
    with(|outside| outside.queries.remove(&query));
}

pub(crate) fn add_metric(name: &str, delta: f64) {
    with(|outside| *outside.metrics.entry(name.to_owned()).or_default() += delta);
}

pub(crate) fn set_metric(name: &str, value: f64) {
    with(|outside| outside.metrics.insert(name.to_owned(), value));
}

pub(crate) fn create_blob(name: &str) {
    assert!((1..=256).contains(&name.len()), "the name of a blob must have 1 to 256 bytes");
    with(|outside| outside.blobs.insert(name.to_owned(), (Vec::new(), false)));
}

/// Changes a blob that is not sealed; for other blobs it panics, where the host ends the call.
fn growing_blob<T>(name: &str, change: impl FnOnce(&mut (Vec<u8>, bool)) -> T) -> T {
    with(|outside| {
        let blob = outside.blobs.get_mut(name);
        let blob = blob.unwrap_or_else(|| panic!("there is no blob {name:?}"));
        assert!(!blob.1, "the blob {name:?} is sealed");
        change(blob)
    })
}

pub(crate) fn append_blob(name: &str, bytes: &[u8]) {
    growing_blob(name, |(content, _)| content.extend_from_slice(bytes));
}

pub(crate) fn seal_blob(name: &str) {
    growing_blob(name, |(_, sealed)| *sealed = true);
}

pub(crate) fn delete_blob(name: &str) -> bool {
    with(|outside| outside.blobs.remove(name).is_some())
}

fn blob_info((name, (content, sealed)): (&String, &(Vec<u8>, bool))) -> blob::Info {
    blob::Info { name: name.clone(), length: content.len() as u64, sealed: *sealed }
}

pub(crate) fn stat_blob(name: &str) -> Option<blob::Info> {
    with(|outside| outside.blobs.get_key_value(name).map(blob_info))
}

pub(crate) fn read_blob(name: &str, offset: u64, length: u32) -> Option<Vec<u8>> {
    with(|outside| {
        let (content, _) = outside.blobs.get(name)?;
        let start = content.len().min(offset as usize);
        let end = content.len().min(start + (length as usize).min(4 << 20));
        Some(content[start..end].to_vec())
    })
}

pub(crate) fn list_blobs(prefix: &str, after: &str, limit: u32) -> Vec<blob::Info> {
    with(|outside| {
        let of_prefix = outside.blobs.iter().filter(|(name, _)| name.starts_with(prefix));
        let rest = of_prefix.filter(|(name, _)| name.as_str() > after);
        rest.take(limit.min(1000) as usize).map(blob_info).collect()
    })
}
