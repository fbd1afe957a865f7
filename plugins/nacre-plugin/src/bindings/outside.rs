//! The host's functions outside the sandbox.

use super::world::nacre::plugin::{
    blob as host_blob, http_out, kv as host_kv, metrics, query as host_query, timer, turn,
};
use super::world::{header, headers};
use crate::{blob, http, kv, query};

pub fn get(keyspace: &str, key: &[u8]) -> Result<kv::Document, kv::Error> {
    host_kv::get(keyspace, key).map(Into::into).map_err(Into::into)
}

pub fn get_many(keyspace: &str, keys: &[Vec<u8>]) -> Vec<Result<kv::Document, kv::Error>> {
    let documents = host_kv::get_many(keyspace, keys).into_iter();
    documents.map(|document| document.map(Into::into).map_err(Into::into)).collect()
}

pub fn insert(keyspace: &str, key: &[u8], content: &kv::Content) -> Result<u64, kv::Error> {
    host_kv::insert(keyspace, key, &content.into()).map_err(Into::into)
}

pub fn upsert(keyspace: &str, key: &[u8], content: &kv::Content) -> Result<u64, kv::Error> {
    host_kv::upsert(keyspace, key, &content.into()).map_err(Into::into)
}

pub fn replace(
    keyspace: &str,
    key: &[u8],
    content: &kv::Content,
    cas: Option<u64>,
) -> Result<u64, kv::Error> {
    host_kv::replace(keyspace, key, &content.into(), cas).map_err(Into::into)
}

pub fn remove(keyspace: &str, key: &[u8], cas: Option<u64>) -> Result<u64, kv::Error> {
    host_kv::remove(keyspace, key, cas).map_err(Into::into)
}

pub fn counter(
    keyspace: &str,
    key: &[u8],
    delta: i64,
    initial: Option<u64>,
    expiry: u32,
) -> Result<kv::Counted, kv::Error> {
    let counted = host_kv::counter(keyspace, key, delta, initial, expiry);
    counted.map(Into::into).map_err(Into::into)
}

pub fn touch(keyspace: &str, key: &[u8], expiry: u32) -> Result<u64, kv::Error> {
    host_kv::touch(keyspace, key, expiry).map_err(Into::into)
}

pub fn lookup_in(
    keyspace: &str,
    key: &[u8],
    specs: &[kv::LookupSpec],
) -> Result<kv::Looked, kv::Error> {
    let specs: Vec<_> = specs.iter().map(lookup_spec).collect();
    let looked = host_kv::lookup_in(keyspace, key, &specs)?;
    Ok(kv::Looked { cas: looked.cas, results: looked.results })
}

pub fn mutate_in(
    keyspace: &str,
    key: &[u8],
    specs: &[kv::MutateSpec],
    options: kv::MutateOptions,
) -> Result<kv::Mutated, kv::Error> {
    let specs: Vec<_> = specs.iter().map(mutate_spec).collect();
    let mutated = host_kv::mutate_in(keyspace, key, &specs, mutate_options(options))?;
    Ok(kv::Mutated { cas: mutated.cas, results: mutated.results })
}

pub fn lookup_in_any(
    keyspace: &str,
    key: &[u8],
    specs: &[kv::LookupSpec],
) -> Result<kv::LookedAny, kv::Error> {
    let specs: Vec<_> = specs.iter().map(lookup_spec).collect();
    let host_kv::LookedAny { cas, deleted, results } =
        host_kv::lookup_in_any(keyspace, key, &specs)?;
    Ok(kv::LookedAny { cas, deleted, results })
}

pub fn mutate_in_any(
    keyspace: &str,
    key: &[u8],
    specs: &[kv::MutateSpec],
    options: kv::MutateOptions,
    tombstone: kv::TombstoneUse,
) -> Result<kv::Mutated, kv::Error> {
    let specs: Vec<_> = specs.iter().map(mutate_spec).collect();
    let tombstone = match tombstone {
        kv::TombstoneUse::Keep => host_kv::TombstoneUse::Keep,
        kv::TombstoneUse::Create => host_kv::TombstoneUse::Create,
        kv::TombstoneUse::Revive => host_kv::TombstoneUse::Revive,
    };
    let options = mutate_options(options);
    let mutated = host_kv::mutate_in_any(keyspace, key, &specs, options, tombstone)?;
    Ok(kv::Mutated { cas: mutated.cas, results: mutated.results })
}

fn mutate_options(options: kv::MutateOptions) -> host_kv::MutateOptions {
    let kv::MutateOptions { mode, expiry, flags } = options;
    let (mode, cas) = match mode {
        kv::Mode::Insert => (host_kv::StoreMode::Insert, None),
        kv::Mode::Upsert => (host_kv::StoreMode::Upsert, None),
        kv::Mode::Replace(cas) => (host_kv::StoreMode::Replace, cas),
    };
    host_kv::MutateOptions { mode, cas, expiry, flags }
}

fn lookup_spec(spec: &kv::LookupSpec) -> host_kv::LookupSpec {
    let operation = match spec.operation {
        kv::LookupOperation::Get => host_kv::LookupOperation::Get,
        kv::LookupOperation::Exists => host_kv::LookupOperation::Exists,
        kv::LookupOperation::Count => host_kv::LookupOperation::Count,
        kv::LookupOperation::Document => host_kv::LookupOperation::Document,
    };
    host_kv::LookupSpec { operation, path: spec.path.clone(), xattr: spec.xattr }
}

fn mutate_spec(spec: &kv::MutateSpec) -> host_kv::MutateSpec {
    use host_kv::MutateOperation as Host;
    use kv::MutateOperation as Own;
    let operation = match spec.operation {
        Own::Insert => Host::Insert,
        Own::Upsert => Host::Upsert,
        Own::Replace => Host::Replace,
        Own::Remove => Host::Remove,
        Own::ArrayAppend => Host::ArrayAppend,
        Own::ArrayPrepend => Host::ArrayPrepend,
        Own::ArrayInsert => Host::ArrayInsert,
        Own::ArrayAddUnique => Host::ArrayAddUnique,
        Own::Counter => Host::Counter,
        Own::SetDocument => Host::SetDocument,
        Own::RemoveDocument => Host::RemoveDocument,
    };
    let kv::MutateSpec { path, value, xattr, create_path, expand_macros, .. } = spec.clone();
    host_kv::MutateSpec { operation, path, value, xattr, create_path, expand_macros }
}

pub fn begin_turn(index: u32) {
    turn::begin(index);
}

pub fn turn_failed(index: u32, message: &str) {
    turn::failed(index, message);
}

pub fn passed_ms() -> u32 {
    turn::passed_ms()
}

pub fn timers_belong(vb: Option<u16>) {
    timer::belong(vb);
}

pub fn set_timer(name: &str, due_us: u64, payload: &[u8]) {
    timer::set(name, due_us, payload);
}

pub fn is_timer_set(name: &str) -> bool {
    timer::is_set(name)
}

pub fn cancel_timer(name: &str) -> bool {
    timer::cancel(name)
}

pub fn send(request: http::Request) -> Result<http::Response, http::Error> {
    http_out::send(&request.into()).map(Into::into).map_err(Into::into)
}

pub fn begin_query(statement: &query::Statement) -> Result<u32, query::Failure> {
    let query::Statement { text, parameters, is_fresh } = statement.clone();
    host_query::begin(&host_query::Statement { text, parameters, is_fresh }).map_err(Into::into)
}

pub fn begin_query_at(
    service: query::Service,
    statement: &query::Statement,
) -> Result<u32, query::Failure> {
    let service = match service {
        query::Service::Analytics => host_query::Service::Analytics,
        query::Service::Search => host_query::Service::Search,
    };
    let query::Statement { text, parameters, is_fresh } = statement.clone();
    let statement = host_query::Statement { text, parameters, is_fresh };
    host_query::begin_at(service, &statement).map_err(Into::into)
}

pub fn next_rows(query: u32) -> Result<Vec<String>, query::Failure> {
    host_query::next(query).map_err(Into::into)
}

pub fn close_query(query: u32) {
    host_query::close(query);
}

pub fn add_metric(name: &str, delta: f64) {
    metrics::add(name, delta);
}

pub fn set_metric(name: &str, value: f64) {
    metrics::set(name, value);
}

impl From<host_kv::Document> for kv::Document {
    fn from(document: host_kv::Document) -> kv::Document {
        let host_kv::Document { body, cas, flags, expiry, datatype } = document;
        kv::Document { body, cas, flags, expiry, is_json: datatype & 1 != 0 }
    }
}

impl From<&kv::Content> for host_kv::Content {
    fn from(content: &kv::Content) -> host_kv::Content {
        let kv::Content { body, flags, expiry } = content.clone();
        host_kv::Content { body, flags, expiry }
    }
}

impl From<host_kv::Counted> for kv::Counted {
    fn from(counted: host_kv::Counted) -> kv::Counted {
        kv::Counted { value: counted.value, cas: counted.cas }
    }
}

impl From<host_kv::Error> for kv::Error {
    fn from(error: host_kv::Error) -> kv::Error {
        match error {
            host_kv::Error::NotFound => kv::Error::NotFound,
            host_kv::Error::Exists => kv::Error::Exists,
            host_kv::Error::CasMismatch => kv::Error::CasMismatch,
            host_kv::Error::TooLarge => kv::Error::TooLarge,
            host_kv::Error::Locked => kv::Error::Locked,
            host_kv::Error::Temporary(why) => kv::Error::Temporary(why),
            host_kv::Error::Denied(why) => kv::Error::Denied(why),
            host_kv::Error::Invalid(why) => kv::Error::Invalid(why),
            host_kv::Error::Path(why) => kv::Error::Path(why),
        }
    }
}

impl From<http::Request> for http_out::Request {
    fn from(request: http::Request) -> http_out::Request {
        let http::Request { method, url, headers, body } = request;
        let headers = headers.into_iter().map(header).collect();
        http_out::Request { method, url, headers, body }
    }
}

impl From<http_out::Response> for http::Response {
    fn from(response: http_out::Response) -> http::Response {
        let http_out::Response { status, headers: pairs, body } = response;
        http::Response { status, headers: headers(pairs), body }
    }
}

impl From<http_out::Error> for http::Error {
    fn from(error: http_out::Error) -> http::Error {
        match error {
            http_out::Error::Denied(why) => http::Error::Denied(why),
            http_out::Error::Timeout => http::Error::Timeout,
            http_out::Error::TooLarge => http::Error::TooLarge,
            http_out::Error::Failed(why) => http::Error::Failed(why),
        }
    }
}

impl From<host_query::Failure> for query::Failure {
    fn from(failure: host_query::Failure) -> query::Failure {
        let host_query::Failure { code, message, retry } = failure;
        query::Failure { code, message, retry }
    }
}

pub fn create_blob(name: &str) {
    host_blob::create(name);
}

pub fn append_blob(name: &str, bytes: &[u8]) {
    host_blob::append(name, bytes);
}

pub fn seal_blob(name: &str) {
    host_blob::seal(name);
}

pub fn delete_blob(name: &str) -> bool {
    host_blob::delete(name)
}

pub fn stat_blob(name: &str) -> Option<blob::Info> {
    host_blob::stat(name).map(blob_info)
}

pub fn read_blob(name: &str, offset: u64, length: u32) -> Option<Vec<u8>> {
    host_blob::read(name, offset, length)
}

pub fn list_blobs(prefix: &str, after: &str, limit: u32) -> Vec<blob::Info> {
    host_blob::list(prefix, after, limit).into_iter().map(blob_info).collect()
}

fn blob_info(info: host_blob::Info) -> blob::Info {
    blob::Info { name: info.name, length: info.length, sealed: info.sealed }
}
