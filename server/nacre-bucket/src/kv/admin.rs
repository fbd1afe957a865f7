//! Requests about the connection, the bucket or the node: features, login, cluster maps, manifests, statistics.

use super::dcp;
use super::document::send_document;
use super::error_map::error_map;
use super::scan;
use super::session::{Answer, Outcome, Session, Until};
use super::stats;
use crate::{LoginCallback, LoginOutcome, Ticket};
use nacre_auth::sasl::{self, Mechanism};
use nacre_auth::{INTERNAL, Keyspace, Login, Privilege};
use nacre_cluster::{Manifest, Refusal};
use nacre_protocol::{Feature, Features, Frame, Reply, Request, Status};
use nacre_types::{CollectionId, DATATYPE_JSON, Now, Seqno, VbState, VbUuid, Vbid, leb128_decode};
use std::sync::Arc;

/// Features that HELLO grants. A feature belongs here only once it is implemented.
const GRANTED: [Feature; 27] = [
    Feature::MutationSeqno,
    Feature::Xattr,
    Feature::Xerror,
    Feature::SelectBucket,
    Feature::Snappy,
    Feature::Json,
    Feature::Duplex,
    Feature::ClustermapPush,
    Feature::UnorderedExecution,
    Feature::Tracing,
    Feature::AltRequest,
    Feature::SyncReplication,
    Feature::Collections,
    Feature::PreserveExpiry,
    Feature::VirtualXattrs,
    Feature::CreateAsDeleted,
    Feature::DocumentMacros,
    Feature::ReplaceBodyWithXattr,
    Feature::Units,
    Feature::SubdocReplicaRead,
    Feature::ConfigWithKnownVersion,
    Feature::DedupeNotMyVbucket,
    Feature::ClustermapPushBrief,
    Feature::SubdocSeveralXattrs,
    Feature::SubdocBinaryXattr,
    Feature::RangeScanXattrs,
    Feature::DcpSkipDeletes,
];

/// The bucket name that deselects the bucket of a connection.
const NO_BUCKET: &[u8] = b"@no bucket@";

pub(super) fn run(
    session: &mut Session,
    frame: &Frame<'_>,
    request: &Request<'_>,
    answer: &mut Answer<'_>,
    now: Now,
) -> Outcome {
    let outcome = match *request {
        // Open streams belong to their user and bucket, so neither may change.
        Request::SaslAuth { .. } | Request::SelectBucket { .. } if session.dcp.is_some() => {
            Err(Status::NotSupported)
        }
        Request::DcpOpen { .. }
        | Request::DcpAddStream
        | Request::DcpCloseStream
        | Request::DcpStreamRequest { .. }
        | Request::DcpBufferAck { .. }
        | Request::DcpSeqnoAcknowledged { .. }
        | Request::DcpControl { .. } => dcp::run(session, frame, request, answer, now),
        Request::Hello { features } => hello(session, features, answer),
        Request::SaslListMechs => {
            answer.value(0, Mechanism::list(session.confidential).as_bytes());
            Ok(Outcome::Answered)
        }
        Request::SaslAuth { mechanism, message } => auth(session, mechanism, message, answer, now),
        Request::SaslStep { message } => match session.exchange.take() {
            Some(exchange) => {
                let name = exchange.name().to_owned();
                proceed(session, &name, exchange.step(message), answer, now)
            }
            None => Err(Status::AuthError),
        },
        Request::SelectBucket { name } => select(session, name),
        Request::GetErrorMap { version } => {
            answer.value(DATATYPE_JSON, error_map(version).to_string().as_bytes());
            Ok(Outcome::Answered)
        }
        Request::GetClusterConfig { known } => cluster_config(session, known, answer),
        Request::GetCollectionsManifest => manifest(session, answer),
        Request::GetCollectionId { path } => {
            send_id(session, path, |manifest, path| manifest.resolve(path).map(|id| id.0), answer)
        }
        Request::GetScopeId { path } => send_id(
            session,
            path,
            |manifest, path| manifest.resolve_scope(path).map(|id| id.0),
            answer,
        ),
        Request::ObserveSeqno { vb_uuid } => observe_seqno(session, frame, VbUuid(vb_uuid), answer),
        Request::Observe { list } => observe(session, list, answer),
        Request::SeqnoPersistence { seqno } => seqno_persistence(session, frame, Seqno(seqno)),
        Request::GetAllVbSeqnos { state, collection } => {
            all_seqnos(session, state, collection.map(CollectionId), answer)
        }
        Request::GetFailoverLog => failover_log(session, frame, answer),
        Request::GetRandomKey { collection } => random_key(session, collection, answer),
        Request::GetKeys { count, from } => keys(session, frame, count, from, answer),
        Request::RangeScanCreate { options } => scan::create(session, frame, options),
        Request::RangeScanContinue { uuid, items, milliseconds, bytes } => {
            scan::read_on(session, uuid, items, milliseconds, bytes)
        }
        Request::RangeScanCancel { uuid } => scan::cancel(session, uuid),
        Request::Stat { group } => stats::answer(session, group, answer),
        Request::Noop => Ok(Outcome::Status(Status::Success)),
        Request::Version => {
            answer.value(0, env!("CARGO_PKG_VERSION").as_bytes());
            Ok(Outcome::Answered)
        }
        Request::Quit => Ok(Outcome::Close),
        _ => Err(Status::Internal),
    };
    outcome.unwrap_or_else(Outcome::Status)
}

fn hello(session: &mut Session, asked: &[u8], answer: &mut Answer<'_>) -> Result<Outcome, Status> {
    let agreed = Features::negotiate(asked, Features::of(&GRANTED));
    session.features = Features::of(&agreed);
    session.watch_map();
    let value: Vec<u8> =
        agreed.iter().flat_map(|feature| (*feature as u16).to_be_bytes()).collect();
    answer.value(0, &value);
    Ok(Outcome::Answered)
}

fn auth(
    session: &mut Session,
    mechanism: &[u8],
    message: &[u8],
    answer: &mut Answer<'_>,
    now: Now,
) -> Result<Outcome, Status> {
    session.exchange = None;
    session.user = None;
    session.leave_bucket();
    let mechanism = Mechanism::parse(mechanism).ok_or(Status::AuthError)?;
    if mechanism == Mechanism::Plain && !session.confidential {
        return Err(Status::AuthError);
    }
    let nonce: Vec<u8> = (0..3).flat_map(|_| session.env.random().to_be_bytes()).collect();
    let step = sasl::Session::start(mechanism, message, &session.env.users(), &nonce);
    proceed(session, "", step, answer, now)
}

/// Continues a login: answers it, or parks the request until a password is hashed or the delay of a failure has passed.
/// `name` is for the log only.
fn proceed(
    session: &mut Session,
    name: &str,
    step: sasl::Step,
    answer: &mut Answer<'_>,
    now: Now,
) -> Result<Outcome, Status> {
    match step {
        sasl::Step::Continue { reply, session: exchange } => {
            session.exchange = Some(exchange);
            let status = Status::AuthContinue;
            answer.send(Reply { status, value: &reply, ..Reply::default() });
            Ok(Outcome::Answered)
        }
        sasl::Step::Done { login, reply } => log_in(session, login, &reply, answer),
        sasl::Step::Hash(check) => Ok(until_logged_in(session, answer, |session, callback| {
            session.env.logins().check(session.address, check, callback);
        })),
        sasl::Step::Failed => Ok(until_logged_in(session, answer, |session, callback| {
            session.env.logins().fail(session.address, name, now.monotonic_ns, callback);
        })),
    }
}

/// Answers a login if `begin` calls its callback at once; otherwise parks it.
fn until_logged_in(
    session: &mut Session,
    answer: &mut Answer<'_>,
    begin: impl FnOnce(&Session, LoginCallback),
) -> Outcome {
    let ticket = Ticket::new(&session.waiter);
    let done = Arc::clone(&ticket);
    begin(session, Box::new(move |outcome| done.settle(outcome)));
    match ticket.outcome() {
        Some(outcome) => logged_in(session, outcome.clone(), answer),
        None => Outcome::Park(Until::LoggedIn(ticket)),
    }
}

/// Answers a login with its outcome.
pub(super) fn logged_in(
    session: &mut Session,
    outcome: LoginOutcome,
    answer: &mut Answer<'_>,
) -> Outcome {
    match outcome {
        LoginOutcome::Granted(login) => {
            log_in(session, login, b"", answer).unwrap_or_else(Outcome::Status)
        }
        LoginOutcome::Denied => {
            session.login_failures += 1;
            session.env.log_refused_login();
            Outcome::Status(Status::AuthError)
        }
        LoginOutcome::Busy => Outcome::Status(Status::TemporaryFailure),
    }
}

fn log_in(
    session: &mut Session,
    login: Login,
    reply: &[u8],
    answer: &mut Answer<'_>,
) -> Result<Outcome, Status> {
    // Knowing the secret does not make a peer a node.
    if login.user == INTERNAL && !session.is_node {
        session.login_failures += 1;
        return Err(Status::AuthError);
    }
    session.login_failures = 0;
    session.user = Some(login);
    // Users may have changed since the login began.
    session.users_version = 0;
    answer.value(0, reply);
    Ok(Outcome::Answered)
}

fn select(session: &mut Session, name: &[u8]) -> Result<Outcome, Status> {
    session.leave_bucket();
    if name != NO_BUCKET {
        let name = std::str::from_utf8(name).map_err(|_| Status::KeyNotFound)?;
        session.select(name)?;
    }
    Ok(Outcome::Status(Status::Success))
}

fn cluster_config(
    session: &mut Session,
    known: Option<(i64, i64)>,
    answer: &mut Answer<'_>,
) -> Result<Outcome, Status> {
    let env = &session.env;
    if let Some(known) = known {
        // An SDK that learns of a new map asks node after node until one has a newer map than its own, and then stops.
        // A cut-off node must not hide the newer decisions of the others.
        if env.is_cut_off() || known >= env.map_version() {
            return Ok(Outcome::Status(Status::Success));
        }
    }
    let map = map(session).ok_or(Status::KeyNotFound)?;
    answer.value(DATATYPE_JSON, map.as_bytes());
    Ok(Outcome::Answered)
}

/// Returns the cluster map for the connection: the map of its bucket, or the global one if no bucket is selected.
pub(super) fn map(session: &Session) -> Option<Arc<str>> {
    session.env.map(bucket_name(session))
}

/// Returns the map for a client that sent a request to the wrong node.
pub(super) fn not_my_vbucket_map(session: &Session) -> Option<Arc<str>> {
    session.env.not_my_vbucket_map(bucket_name(session))
}

fn bucket_name(session: &Session) -> Option<&str> {
    session.selected.as_ref().map(|selected| &selected.bucket.name[..])
}

fn manifest(session: &mut Session, answer: &mut Answer<'_>) -> Result<Outcome, Status> {
    let name = session.bucket()?.bucket.name.clone();
    let visible = |manifest: &Manifest| visible(session, &name, manifest);
    let json = session.env.manifest(&name, &visible).ok_or(Status::NoBucket)?;
    answer.value(DATATYPE_JSON, json.as_bytes());
    Ok(Outcome::Answered)
}

/// Returns the part of a manifest that the user has rights on. Names of other collections would reveal what their
/// owners do.
fn visible(session: &Session, bucket: &str, manifest: &Manifest) -> Manifest {
    let users = session.env.users();
    let user = session.holder(&users);
    manifest.visible(|scope, collection| {
        let place = Keyspace { bucket: Some(bucket), scope: Some(scope), collection };
        user.is_some_and(|user| user.may_see(place))
    })
}

/// Answers with the manifest's UID and the ID that `resolve` finds for a path, or with the UID and the error.
fn send_id(
    session: &mut Session,
    path: &[u8],
    resolve: impl Fn(&Manifest, &str) -> Result<u32, Refusal>,
    answer: &mut Answer<'_>,
) -> Result<Outcome, Status> {
    let bucket = Arc::clone(&session.bucket()?.bucket);
    let manifest = visible(session, &bucket.name, &bucket.manifest());
    let path = std::str::from_utf8(path).map_err(|_| Status::InvalidArguments)?;
    let uid = manifest.uid;
    let status = match resolve(&manifest, path) {
        Ok(id) => {
            let extras = [&uid.to_be_bytes()[..], &id.to_be_bytes()].concat();
            answer.send(Reply { extras: &extras, ..Reply::default() });
            return Ok(Outcome::Answered);
        }
        Err(Refusal::ScopeNotFound { .. }) => Status::UnknownScope,
        Err(Refusal::CollectionNotFound { .. }) => Status::UnknownCollection,
        Err(_) => return Err(Status::InvalidArguments),
    };
    let value = format!("{{\"manifest_uid\":\"{uid:x}\"}}");
    answer.send(Reply {
        status,
        datatype: DATATYPE_JSON,
        value: value.as_bytes(),
        ..Reply::default()
    });
    Ok(Outcome::Answered)
}

fn observe_seqno(
    session: &mut Session,
    frame: &Frame<'_>,
    vb_uuid: VbUuid,
    answer: &mut Answer<'_>,
) -> Result<Outcome, Status> {
    let bucket = Arc::clone(&session.bucket()?.bucket);
    let vbid = Vbid(frame.vbid);
    let vbucket = bucket.copy(vbid).ok_or(Status::NotMyVbucket)?;
    let (log, high) = (vbucket.failover_log(), vbucket.high_seqno());
    let end = log.branch_end(vb_uuid, high).ok_or(Status::KeyNotFound)?;
    let changed = log.current() != vb_uuid;
    let mut value = vec![u8::from(changed)];
    value.extend(vbid.0.to_be_bytes());
    value.extend(log.current().0.to_be_bytes());
    value.extend(vbucket.persisted().0.to_be_bytes());
    value.extend(high.0.to_be_bytes());
    if changed {
        value.extend(vb_uuid.0.to_be_bytes());
        value.extend(end.0.to_be_bytes());
    }
    drop(vbucket);
    answer.value(0, &value);
    Ok(Outcome::Answered)
}

/// Answers with the state of each listed key: 0 in memory, 1 persisted, 0x80 unknown, 0x81 deleted but not yet
/// persisted.
fn observe(
    session: &mut Session,
    mut list: &[u8],
    answer: &mut Answer<'_>,
) -> Result<Outcome, Status> {
    let collections = session.features.has(Feature::Collections);
    let bucket = Arc::clone(&session.bucket()?.bucket);
    let mut value = Vec::new();
    while let Some((head, rest)) = list.split_first_chunk::<4>() {
        let vbid = Vbid(u16::from_be_bytes([head[0], head[1]]));
        let (key, rest) = rest.split_at(usize::from(u16::from_be_bytes([head[2], head[3]])));
        list = rest;
        let prefixed = if collections { key.to_vec() } else { [&[0], key].concat() };
        let collection = leb128_decode(&prefixed).ok_or(Status::InvalidArguments)?.0;
        let selected = session.selected.as_ref().ok_or(Status::NoBucket)?;
        if !session.may(selected, CollectionId(collection), &[Privilege::ReadData]) {
            return Err(Status::AccessDenied);
        }
        let vbucket = bucket.served(vbid).ok_or(Status::NotMyVbucket)?;
        let (state, cas) = match vbucket.find(&prefixed) {
            None => (0x80, 0),
            Some(document) => {
                let persisted = document.meta.seqno <= vbucket.persisted();
                let state = match (document.is_alive(), persisted) {
                    (true, true) => 0x01,
                    (true, false) => 0x00,
                    (false, true) => 0x80,
                    (false, false) => 0x81,
                };
                (state, document.meta.cas.0)
            }
        };
        value.extend_from_slice(head);
        value.extend_from_slice(key);
        value.push(state);
        value.extend(cas.to_be_bytes());
    }
    answer.value(0, &value);
    Ok(Outcome::Answered)
}

fn seqno_persistence(
    session: &mut Session,
    frame: &Frame<'_>,
    seqno: Seqno,
) -> Result<Outcome, Status> {
    let bucket = Arc::clone(&session.bucket()?.bucket);
    let vbid = Vbid(frame.vbid);
    let high = bucket.copy(vbid).ok_or(Status::NotMyVbucket)?.high_seqno();
    if seqno > high {
        return Err(Status::Range);
    }
    if bucket.persisted.get(vbid) >= seqno {
        return Ok(Outcome::Status(Status::Success));
    }
    Ok(Outcome::Park(Until::Persisted(bucket.when_persisted(vbid, seqno, &session.waiter))))
}

fn all_seqnos(
    session: &mut Session,
    state: Option<u32>,
    collection: Option<CollectionId>,
    answer: &mut Answer<'_>,
) -> Result<Outcome, Status> {
    let bucket = Arc::clone(&session.bucket()?.bucket);
    if collection.is_some_and(|id| bucket.manifest().collection_by_id(id).is_none()) {
        return Err(Status::UnknownCollection);
    }
    let wanted = match state {
        None | Some(0) => None,
        Some(1) => Some(VbState::Active),
        Some(2) => Some(VbState::Replica),
        Some(3) => Some(VbState::Pending),
        Some(4) => Some(VbState::Dead),
        Some(_) => return Err(Status::InvalidArguments),
    };
    let mut value = Vec::new();
    for index in 0..bucket.vbucket_count() {
        let Some(vbucket) = bucket.copy(Vbid(index)) else { continue };
        if wanted.is_none_or(|wanted| wanted == vbucket.state()) {
            let seqno = match collection {
                Some(collection) => vbucket.counts_of(collection).high_seqno,
                None => vbucket.high_seqno(),
            };
            value.extend(index.to_be_bytes());
            value.extend(seqno.0.to_be_bytes());
        }
    }
    answer.value(0, &value);
    Ok(Outcome::Answered)
}

/// Answers with a random document of the collection.
fn random_key(
    session: &mut Session,
    collection: u32,
    answer: &mut Answer<'_>,
) -> Result<Outcome, Status> {
    let collection = CollectionId(collection);
    let bucket = Arc::clone(&session.bucket()?.bucket);
    let selected = session.selected.as_ref().ok_or(Status::NoBucket)?;
    if bucket.manifest().collection_by_id(collection).is_none() {
        return Err(Status::UnknownCollection);
    }
    if !session.may(selected, collection, &[Privilege::ReadData]) {
        return Err(Status::AccessDenied);
    }
    let (now_s, chance) = (session.env.now().unix_s(), session.env.random());
    let document = bucket.random_document(collection, now_s, chance).ok_or(Status::KeyNotFound)?;
    let features = session.features;
    let prefixed = features.has(Feature::Collections);
    let key = if prefixed { document.key() } else { document.name() };
    send_document(&bucket, features, &document, document.meta.cas, key, answer);
    Ok(Outcome::Answered)
}

/// Answers with keys of a vBucket in order, starting at a given key; each key follows its length.
fn keys(
    session: &mut Session,
    frame: &Frame<'_>,
    count: u32,
    from: &[u8],
    answer: &mut Answer<'_>,
) -> Result<Outcome, Status> {
    let collections = session.features.has(Feature::Collections);
    let bucket = Arc::clone(&session.bucket()?.bucket);
    let from = if collections { from.to_vec() } else { [&[0], from].concat() };
    let collection = CollectionId(leb128_decode(&from).ok_or(Status::InvalidArguments)?.0);
    let selected = session.selected.as_ref().ok_or(Status::NoBucket)?;
    if !session.may(selected, collection, &[Privilege::ReadData]) {
        return Err(Status::AccessDenied);
    }
    let now = session.env.now().unix_s();
    let vbucket = bucket.served(Vbid(frame.vbid)).ok_or(Status::NotMyVbucket)?;
    let mut found: Vec<_> = vbucket
        .living(collection)
        .filter(|document| document.key() >= &from[..] && !document.is_expired(now))
        .cloned()
        .collect();
    drop(vbucket);
    if found.is_empty() {
        return Err(Status::KeyNotFound);
    }
    found.sort_unstable_by(|one, other| one.key().cmp(other.key()));
    let mut value = Vec::new();
    for document in found.iter().take(count as usize) {
        let key = if collections { document.key() } else { document.name() };
        value.extend((key.len() as u16).to_be_bytes());
        value.extend_from_slice(key);
    }
    answer.value(0, &value);
    Ok(Outcome::Answered)
}

fn failover_log(
    session: &mut Session,
    frame: &Frame<'_>,
    answer: &mut Answer<'_>,
) -> Result<Outcome, Status> {
    let bucket = Arc::clone(&session.bucket()?.bucket);
    let vbucket = bucket.copy(Vbid(frame.vbid)).ok_or(Status::NotMyVbucket)?;
    let value = dcp::branches(vbucket.failover_log());
    drop(vbucket);
    answer.value(0, &value);
    Ok(Outcome::Answered)
}
