//! Requests on one document: translates a request into a vBucket command, and its reply into the answer.

use super::durability::{self, Durability};
use super::rights::{self, Need};
use super::session::{Answer, Outcome, Selected, Session, Until, is_quiet};
use super::snappy;
use super::status;
use crate::conflict::{Arrived, Decided, Decision};
use crate::durability::prepare;
use crate::{Bucket, Waiter};
use nacre_auth::Privilege;
use nacre_protocol::{
    Feature, Features, Frame, Opcode, Reply, Request, Status, SubdocSpec, Units, version_option,
};
use nacre_types::{
    Cas, CollectionId, DATATYPE_JSON, DATATYPE_SNAPPY, DATATYPE_XATTR, Document, Kind, Meta, Now,
    Seqno, Vbid, leb128_decode,
};
use nacre_value::json;
use nacre_value::multi::{Flags, LookupOperation, LookupSpec, MutationOperation, MutationSpec};
use nacre_value::subdoc::{Lookup, Mutation};
use nacre_value::xattr::{self, Xattrs};
use nacre_vbucket::{
    self as vbucket, Command, Condition, Cost, Extend, Refusal, Resolution, Rule, Token, Vbucket,
};
use std::cell::Cell;
use std::sync::Arc;

/// Bytes per read unit. Source: the serverless service of Couchbase, as for the write unit.
const READ_UNIT_BYTES: usize = 4 << 10;
/// Status and length that precede each result of a lookup.
const RESULT_HEAD_BYTES: usize = 6;
/// Bytes per write unit.
const WRITE_UNIT_BYTES: usize = 1 << 10;

/// Document flags of sub-document requests.
mod doc_flag {
    pub const UPSERT: u8 = 0x01;
    pub const ADD: u8 = 0x02;
    pub const ACCESS_DELETED: u8 = 0x04;
    pub const CREATE_AS_DELETED: u8 = 0x08;
    pub const REVIVE: u8 = 0x10;
    pub const REPLICA_READ: u8 = 0x20;
    pub const OF_MUTATIONS: u8 = UPSERT | ADD | ACCESS_DELETED | CREATE_AS_DELETED | REVIVE;
}

/// Path flags of sub-document operations.
mod path_flag {
    pub const CREATE_PATH: u8 = 0x01;
    pub const XATTR: u8 = 0x04;
    pub const EXPAND_MACROS: u8 = 0x10;
    pub const BINARY: u8 = 0x20;
    pub const KNOWN: u8 = CREATE_PATH | XATTR | EXPAND_MACROS | BINARY;
}

/// A request on a document, with the context that it needs.
pub(super) struct Call<'a> {
    bucket: &'a Bucket,
    frame: &'a Frame<'a>,
    request: &'a Request<'a>,
    features: Features,
    vbid: Vbid,
    /// The maximum TTL of the collection, as in [`nacre_cluster::Collection::max_ttl`].
    max_ttl: i32,
    /// The key, including the collection prefix.
    key: &'a [u8],
    preserve_expiry: bool,
    durability: Option<Durability>,
    /// True if the client requests durability, even where one copy in memory suffices.
    asks_durable: bool,
    /// True if the user may see the names of system attributes that the request asks for.
    sees_system: bool,
    /// The reply to a durable write that has completed and only has to be answered.
    settled: Cell<Option<vbucket::Reply>>,
    /// The resolver's decision about the version in the request.
    decided: Cell<Option<Decided>>,
    waiter: &'a Arc<dyn Waiter>,
    wrote: Cell<bool>,
}

/// The reason why a command has no reply.
enum Stop {
    Status(Status),
    Refused(Refusal),
    Park(Until),
}

impl From<Stop> for Outcome {
    fn from(stop: Stop) -> Outcome {
        match stop {
            Stop::Status(status) => Outcome::Status(status),
            Stop::Refused(refusal) => Outcome::Status(status::of_refusal(&refusal)),
            Stop::Park(until) => Outcome::Park(until),
        }
    }
}

/// The reason why a call is refused before it is tried.
pub(super) enum Refused {
    Status(Status),
    /// The collection is unknown. Clients compare the manifest's UID with their own.
    UnknownCollection {
        manifest_uid: u64,
    },
}

impl Refused {
    pub fn answer(self, answer: &mut Answer<'_>) -> Outcome {
        match self {
            Refused::Status(status) => Outcome::Status(status),
            Refused::UnknownCollection { manifest_uid } => {
                let value = format!("{{\"manifest_uid\":\"{manifest_uid:x}\"}}");
                let (status, datatype) = (Status::UnknownCollection, DATATYPE_JSON);
                answer.send(Reply {
                    status,
                    datatype,
                    value: value.as_bytes(),
                    ..Reply::default()
                });
                Outcome::Answered
            }
        }
    }
}

impl<'a> Call<'a> {
    /// Checks framing, collection and privileges. Unless the call is `settled`, also checks memory and the number of
    /// copies. `key` includes the collection prefix.
    pub fn new(
        session: &'a Session,
        frame: &'a Frame<'a>,
        request: &'a Request<'a>,
        key: &'a [u8],
        settled: Option<vbucket::Reply>,
        decided: Option<Decided>,
    ) -> Result<Call<'a>, Refused> {
        let infos = frame.frame_infos().map_err(|error| {
            Refused::Status(match error {
                nacre_protocol::FramingError::Unknown(_) => Status::UnknownFrameInfo,
                nacre_protocol::FramingError::Malformed => Status::InvalidArguments,
            })
        })?;
        if infos.impersonate.is_some() {
            return Err(Refused::Status(Status::NotSupported));
        }
        let takes_xattrs = matches!(request, Request::StoreVersion { .. });
        if frame.datatype & DATATYPE_XATTR != 0 && !takes_xattrs {
            return Err(Refused::Status(Status::InvalidArguments));
        }
        let selected = session.selected.as_ref().ok_or(Refused::Status(Status::NoBucket))?;
        let bucket = &*selected.bucket;
        let durability =
            match durability::of_request(infos.durability, request, bucket, Vbid(frame.vbid)) {
                Err(status) if settled.is_none() => return Err(Refused::Status(status)),
                durability => durability.ok().flatten(),
            };
        let collection = CollectionId(leb128_decode(key).map_or(0, |(id, _)| id));
        let max_ttl = bucket
            .max_ttl(collection)
            .ok_or_else(|| Refused::UnknownCollection { manifest_uid: bucket.manifest().uid })?;
        check_rights(session, selected, frame, request, collection).map_err(Refused::Status)?;
        if grows(request) && settled.is_none() {
            if bucket.refuses_growth() {
                bucket.log_full();
                return Err(Refused::Status(Status::TemporaryFailure));
            }
            bucket.log_room();
        }
        Ok(Call {
            bucket,
            frame,
            request,
            features: session.features,
            vbid: Vbid(frame.vbid),
            max_ttl,
            key,
            preserve_expiry: infos.preserve_expiry,
            durability,
            asks_durable: infos.durability.is_some() || durability.is_some(),
            sees_system: matches!(request, Request::Lookup { specs, .. }
                    if rights::asks_for_names(specs, path_flag::XATTR))
                && session.may(selected, collection, &[Privilege::SystemAttributes]),
            settled: Cell::new(settled),
            decided: Cell::new(decided),
            waiter: &session.waiter,
            wrote: Cell::new(false),
        })
    }

    /// Returns true if the call made a mutation.
    pub fn wrote(&self) -> bool {
        self.wrote.get()
    }

    /// Carries out the request and answers it.
    pub fn run(&self, answer: &mut Answer<'_>, now: Now) -> Outcome {
        let cas = Cas(self.frame.cas);
        match *self.request {
            Request::Get => self.get(answer, now),
            Request::GetReplica => self.get(answer, now),
            Request::GetMeta { version } => self.get_meta(version, answer, now),
            Request::Store { opcode, flags, expiry, value } => {
                let condition = match opcode {
                    Opcode::Add => Condition::Absent,
                    Opcode::Replace => Condition::Present,
                    _ => Condition::Always,
                };
                let expiry = self.bucket.expiry(self.max_ttl, expiry, now);
                let keep_expiry = self.preserve_expiry;
                self.write(
                    &Command::Store { condition, cas, flags, expiry, keep_expiry, body: value },
                    answer,
                    now,
                )
            }
            Request::StoreVersion { .. } => self.store_version(answer, now),
            Request::Extend { opcode, value } => {
                let end = if opcode == Opcode::Append { Extend::Append } else { Extend::Prepend };
                self.write(&Command::Extend { end, cas, bytes: value }, answer, now)
            }
            Request::Delete => self.write(&Command::Delete { cas }, answer, now),
            Request::Counter { opcode, delta, initial, expiry } => {
                let expiry =
                    (expiry != u32::MAX).then(|| self.bucket.expiry(self.max_ttl, expiry, now));
                let initial = expiry.map(|expiry| (initial, expiry));
                let decrement = opcode == Opcode::Decrement;
                self.write(&Command::Counter { decrement, delta, initial, cas }, answer, now)
            }
            Request::Touch { expiry, fetch } => {
                let expiry = self.bucket.expiry(self.max_ttl, expiry, now);
                self.fetch(&Command::Touch { expiry }, fetch, answer, now)
            }
            Request::GetLocked { seconds } => {
                self.fetch(&Command::Lock { seconds }, true, answer, now)
            }
            Request::Unlock if cas == Cas::ANY => Outcome::Status(Status::InvalidArguments),
            Request::Unlock => match self.apply(&Command::Unlock { cas }, answer, now) {
                Ok(_) => Outcome::Status(Status::Success),
                Err(stop) => stop.into(),
            },
            Request::Lookup { ref specs, doc_flags, single } => {
                self.lookup(specs, doc_flags, single, answer, now)
            }
            Request::Mutate { ref specs, expiry, flags, doc_flags, single } => {
                self.mutate(specs, (expiry, flags), doc_flags, single, answer, now)
            }
            _ => Outcome::Status(Status::Internal),
        }
    }

    /// Returns the units that a command has used, if the client requested them.
    fn units(&self, cost: Cost) -> Units {
        if !self.features.has(Feature::Units) {
            return Units::default();
        }
        let units =
            |bytes: usize, size: usize| bytes.div_ceil(size).min(usize::from(u16::MAX)) as u16;
        let times = if self.asks_durable { 2 } else { 1 };
        Units {
            read: units(cost.read_bytes, READ_UNIT_BYTES),
            write: units(cost.written_bytes, WRITE_UNIT_BYTES) * times,
        }
    }

    /// Returns true if the client requests a replica's copy.
    fn reads_replica(&self) -> bool {
        match self.request {
            Request::GetReplica => true,
            Request::Lookup { doc_flags, .. } => doc_flags & doc_flag::REPLICA_READ != 0,
            _ => false,
        }
    }

    /// Carries out `command` in the vBucket, unless an earlier attempt has done so.
    fn apply(
        &self,
        command: &Command<'_>,
        answer: &mut Answer<'_>,
        now: Now,
    ) -> Result<vbucket::Reply, Stop> {
        if let Some(reply) = self.settled.take() {
            return Ok(reply);
        }
        let (reply, ticket, wrote, cost) = match self.durability {
            None if self.reads_replica() => {
                let read = |vbucket: &mut Vbucket| {
                    (vbucket.read_replica(self.key, command, now), vbucket.cost())
                };
                let read = self.bucket.change(self.vbid, read);
                let (reply, cost) = read.ok_or(Stop::Status(Status::NotMyVbucket))?;
                (reply, None, false, cost)
            }
            None => {
                let applied = self.bucket.apply(self.vbid, self.key, command, now);
                let (reply, wrote, cost) = applied.ok_or(Stop::Status(Status::NotMyVbucket))?;
                (reply, None, wrote, cost)
            }
            Some(Durability { level, timeout_ns }) => {
                let terms = (level, now.monotonic_ns.saturating_add(timeout_ns));
                prepare(self.bucket, self.vbid, self.key, command, terms, now, self.waiter)
                    .ok_or(Stop::Status(Status::NotMyVbucket))?
            }
        };
        self.wrote.set(self.wrote.get() | wrote);
        match (reply, ticket) {
            (Ok(reply), Some(ticket)) => {
                Err(Stop::Park(Until::Durable(ticket, reply, self.units(cost))))
            }
            (Ok(reply), None) => {
                answer.units = self.units(cost);
                Ok(reply)
            }
            (Err(Refusal::NotResident), _) => {
                let ticket = self.bucket.fetch_later(self.vbid, self.key, self.waiter);
                let ticket = ticket.ok_or(Stop::Status(Status::TemporaryFailure))?;
                Err(Stop::Park(Until::Fetched(ticket)))
            }
            // During a hand-over, another node would refuse the request as well: wait for the end.
            (Err(Refusal::NotActive), _) => {
                let ticket = self.bucket.when_handed_over(self.vbid, now, self.waiter);
                Err(match ticket {
                    Some(ticket) => Stop::Park(Until::HandedOver(ticket)),
                    None => Stop::Refused(Refusal::NotActive),
                })
            }
            // Clients without extended errors receive the nearest older status.
            (Err(Refusal::NotLocked), _) if !self.features.has(Feature::Xerror) => {
                Err(Stop::Status(Status::TemporaryFailure))
            }
            (Err(refusal), _) => Err(Stop::Refused(refusal)),
        }
    }

    fn store_version(&self, answer: &mut Answer<'_>, now: Now) -> Outcome {
        let Request::StoreVersion { opcode, flags, expiry, rev, cas, options, value } =
            *self.request
        else {
            return Outcome::Status(Status::Internal);
        };
        let has = |option: u32| options & option != 0;
        let skips = has(version_option::SKIP_CONFLICT_RESOLUTION);
        let by_time = self.bucket.resolution() == Resolution::LastWriteWins;
        let deletes = opcode == Opcode::DeleteWithMeta;
        // A sender that does not match the bucket's conflict resolution expects another bucket.
        let forces = has(version_option::FORCE_ACCEPT);
        if (by_time && !forces && !has(version_option::REGENERATE_CAS))
            || (!by_time && forces)
            || (has(version_option::REGENERATE_CAS) && !skips)
            || (has(version_option::IS_EXPIRATION) && !deletes)
        {
            return Outcome::Status(Status::InvalidArguments);
        }
        let xattr = self.frame.datatype & DATATYPE_XATTR;
        let Some((attributes, body)) =
            (if xattr == 0 { Some((&[][..], value)) } else { xattr::split(value) })
        else {
            return Outcome::Status(Status::XattrInvalid);
        };
        if Xattrs::parse(attributes).is_err() {
            return Outcome::Status(Status::XattrInvalid);
        }
        if deletes && !body.is_empty() {
            return Outcome::Status(Status::InvalidArguments);
        }
        let json = if json::is_json(body) { DATATYPE_JSON } else { 0 };
        let kind = match (deletes, has(version_option::IS_EXPIRATION)) {
            (false, _) => Kind::Alive,
            (true, false) => Kind::Deleted,
            (true, true) => Kind::Expired,
        };
        let version = Meta {
            seqno: Seqno::ZERO,
            cas: Cas(cas),
            rev,
            flags,
            expiry,
            datatype: xattr | if deletes { 0 } else { json },
            kind,
        };
        let decided = self.decided.take();
        let rule = match &decided {
            _ if skips => Rule::Always,
            None if !self.bucket.conflicts.has_resolver() => {
                Rule::Greater(self.bucket.resolution())
            }
            // Without a local version there is no conflict.
            None => Rule::Over(None),
            Some(decided) => Rule::Over(decided.seen),
        };
        let regenerate_cas = has(version_option::REGENERATE_CAS);
        let (stored, stored_value, regenerate_cas) =
            match decided.as_ref().map(|decided| &decided.decision) {
                Some(Decision::Keep) => return Outcome::Status(Status::KeyExists),
                Some(Decision::None) => return Outcome::Status(Status::TemporaryFailure),
                Some(Decision::Malformed) => return Outcome::Status(Status::XattrInvalid),
                Some(Decision::Store(stored, value)) => (*stored, &value[..], false),
                Some(Decision::Merge(merged, value)) => (*merged, &value[..], true),
                Some(Decision::Take) | None => (version, value, regenerate_cas),
            };
        let command = Command::StoreVersion {
            version: stored,
            value: stored_value,
            add: opcode == Opcode::AddWithMeta,
            cas: Cas(self.frame.cas),
            rule,
            regenerate_cas,
        };
        match self.apply(&command, answer, now) {
            Err(Stop::Refused(Refusal::Conflict)) => {
                self.ask_resolver(version, value, decided.as_ref(), now)
            }
            applied => self.answer_written(applied, answer),
        }
    }

    /// Parks the request until a resolver has decided about the version in it.
    fn ask_resolver(
        &self,
        meta: Meta,
        value: &[u8],
        before: Option<&Decided>,
        now: Now,
    ) -> Outcome {
        let arrived = Arrived { meta, value: value.into() };
        let bucket = self.bucket;
        match bucket.conflicts.decide_later(self.vbid, self.key, arrived, before, now, self.waiter)
        {
            Some(ticket) => Outcome::Park(Until::Decided(ticket)),
            None => Outcome::Status(Status::TemporaryFailure),
        }
    }

    fn get(&self, answer: &mut Answer<'_>, now: Now) -> Outcome {
        match self.apply(&Command::Get, answer, now) {
            Ok(vbucket::Reply::Found(document, cas)) => self.send_document(&document, cas, answer),
            Ok(_) => Outcome::Status(Status::Internal),
            Err(stop) => stop.into(),
        }
    }

    fn send_document(&self, document: &Document, cas: Cas, answer: &mut Answer<'_>) -> Outcome {
        let echoes = matches!(self.frame.opcode(), Some(Opcode::GetK | Opcode::GetKQ));
        let key = if echoes { self.frame.key } else { &[] };
        send_document(self.bucket, self.features, document, cas, key, answer);
        Outcome::Answered
    }

    fn get_meta(&self, version: u8, answer: &mut Answer<'_>, now: Now) -> Outcome {
        let document = match self.apply(&Command::GetMeta, answer, now) {
            Ok(vbucket::Reply::Meta(document)) => document,
            Ok(_) => return Outcome::Status(Status::Internal),
            Err(stop) => return stop.into(),
        };
        let deleted = !document.is_alive() || document.is_expired(now.unix_s());
        let mut extras = Vec::with_capacity(21);
        extras.extend(u32::from(deleted).to_be_bytes());
        extras.extend(document.meta.flags.to_be_bytes());
        extras.extend(document.meta.expiry.to_be_bytes());
        extras.extend(document.meta.rev.to_be_bytes());
        if version >= 2 {
            extras.push(document.meta.datatype);
        }
        answer.send(Reply { cas: document.meta.cas.0, extras: &extras, ..Reply::default() });
        Outcome::Answered
    }

    /// Carries out a command that answers with the document, or only with its CAS if `fetch` is false.
    fn fetch(
        &self,
        command: &Command<'_>,
        fetch: bool,
        answer: &mut Answer<'_>,
        now: Now,
    ) -> Outcome {
        match self.apply(command, answer, now) {
            Ok(vbucket::Reply::Found(document, cas)) if fetch => {
                self.send_document(&document, cas, answer)
            }
            Ok(vbucket::Reply::Found(_, cas)) => {
                answer.send(Reply { cas: cas.0, ..Reply::default() });
                Outcome::Answered
            }
            Ok(_) => Outcome::Status(Status::Internal),
            Err(stop) => stop.into(),
        }
    }

    fn write(&self, command: &Command<'_>, answer: &mut Answer<'_>, now: Now) -> Outcome {
        let applied = self.apply(command, answer, now);
        self.answer_written(applied, answer)
    }

    fn answer_written(
        &self,
        applied: Result<vbucket::Reply, Stop>,
        answer: &mut Answer<'_>,
    ) -> Outcome {
        let (cas, token, value) = match applied {
            Ok(vbucket::Reply::Stored { cas, token }) => (cas, token, None),
            Ok(vbucket::Reply::Counted { value, cas, token }) => {
                (cas, token, Some(value.to_be_bytes()))
            }
            Ok(_) => return Outcome::Status(Status::Internal),
            Err(stop) => return stop.into(),
        };
        if !is_quiet(self.frame) {
            let value = value.as_ref().map_or(&[][..], |value| &value[..]);
            self.send_written(Status::Success, cas, token, value, answer);
        }
        Outcome::Answered
    }

    fn send_written(
        &self,
        status: Status,
        cas: Cas,
        token: Token,
        value: &[u8],
        answer: &mut Answer<'_>,
    ) {
        let mut extras = [0; 16];
        extras[..8].copy_from_slice(&token.vb_uuid.0.to_be_bytes());
        extras[8..].copy_from_slice(&token.seqno.0.to_be_bytes());
        let extras = if self.features.has(Feature::MutationSeqno) { &extras[..] } else { &[] };
        answer.send(Reply { status, cas: cas.0, extras, value, ..Reply::default() });
    }

    fn lookup(
        &self,
        specs: &[SubdocSpec<'_>],
        doc_flags: u8,
        single: bool,
        answer: &mut Answer<'_>,
        now: Now,
    ) -> Outcome {
        if doc_flags & !(doc_flag::ACCESS_DELETED | doc_flag::REPLICA_READ) != 0 {
            return Outcome::Status(Status::InvalidArguments);
        }
        let specs: Result<Vec<LookupSpec<'_>>, Status> = specs.iter().map(lookup_spec).collect();
        let specs = match specs {
            Ok(specs) => specs,
            Err(status) => return Outcome::Status(status),
        };
        let access_deleted = doc_flags & doc_flag::ACCESS_DELETED != 0;
        let command =
            Command::Lookup { specs: &specs, access_deleted, sees_system: self.sees_system };
        let (results, cas, deleted) = match self.apply(&command, answer, now) {
            Ok(vbucket::Reply::Looked { results, cas, deleted }) => (results, cas, deleted),
            Ok(_) => return Outcome::Status(Status::Internal),
            Err(stop) => return stop.into(),
        };
        if single && let [result] = &results[..] {
            let (status, value) = match result {
                Ok(value) if deleted => (Status::SuccessDeleted, &value[..]),
                Ok(value) => (Status::Success, &value[..]),
                Err(error) => (status::of_value_error(*error), &[][..]),
            };
            answer.send(Reply { status, cas: cas.0, value, ..Reply::default() });
            return Outcome::Answered;
        }
        let is_whole = results.iter().all(Result::is_ok);
        let bytes_of = |result: &Result<Vec<u8>, _>| result.as_ref().map_or(0, Vec::len);
        let value_bytes = results.iter().map(|result| RESULT_HEAD_BYTES + bytes_of(result)).sum();
        if answer.is_refused(value_bytes) {
            return Outcome::Status(Status::TemporaryFailure);
        }
        let mut value = Vec::with_capacity(value_bytes);
        for result in results {
            let (status, bytes) = match result {
                Ok(bytes) => (Status::Success, bytes),
                Err(error) => (status::of_value_error(error), Vec::new()),
            };
            value.extend((status as u16).to_be_bytes());
            value.extend((bytes.len() as u32).to_be_bytes());
            value.extend_from_slice(&bytes);
        }
        let status = match (is_whole, deleted) {
            (true, false) => Status::Success,
            (true, true) => Status::SuccessDeleted,
            (false, false) => Status::MultiPathFailure,
            (false, true) => Status::MultiPathFailureDeleted,
        };
        answer.send(Reply { status, cas: cas.0, value: &value, ..Reply::default() });
        Outcome::Answered
    }

    fn mutate(
        &self,
        specs: &[SubdocSpec<'_>],
        (expiry, flags): (Option<u32>, Option<u32>),
        doc_flags: u8,
        single: bool,
        answer: &mut Answer<'_>,
        now: Now,
    ) -> Outcome {
        let has = |flag: u8| doc_flags & flag != 0;
        let condition = match (has(doc_flag::UPSERT), has(doc_flag::ADD)) {
            _ if doc_flags & !doc_flag::OF_MUTATIONS != 0 => {
                return Outcome::Status(Status::InvalidArguments);
            }
            (true, true) => return Outcome::Status(Status::InvalidArguments),
            (true, false) => Condition::Always,
            (false, true) => Condition::Absent,
            (false, false) => Condition::Present,
        };
        let create_as_deleted = has(doc_flag::CREATE_AS_DELETED);
        let specs: Result<Vec<MutationSpec<'_>>, Status> =
            specs.iter().map(mutation_spec).collect();
        let specs = match specs {
            Ok(specs) => specs,
            Err(status) => return Outcome::Status(status),
        };
        let command = Command::Mutate {
            specs: &specs,
            condition,
            access_deleted: has(doc_flag::ACCESS_DELETED),
            create_as_deleted,
            revive: has(doc_flag::REVIVE),
            cas: Cas(self.frame.cas),
            // On the wire, 0 means no expiry: unless the request preserves the old expiry, such a write removes the
            // document's TTL.
            expiry: Some(self.bucket.expiry(self.max_ttl, expiry.unwrap_or(0), now)),
            expiry_when_new: self.bucket.expiry(self.max_ttl, 0, now),
            flags,
            keep_expiry: self.preserve_expiry,
        };
        match self.apply(&command, answer, now) {
            Ok(vbucket::Reply::Mutated { results, cas, token, deleted }) => {
                let status = if deleted { Status::SuccessDeleted } else { Status::Success };
                let value = mutation_results(&results, single);
                self.send_written(status, cas, token, &value, answer);
                Outcome::Answered
            }
            Ok(_) => Outcome::Status(Status::Internal),
            Err(Stop::Refused(refusal)) => send_mutation_refusal(&refusal, single, answer),
            Err(stop) => stop.into(),
        }
    }
}

/// Answers with a document, compressed if the bucket and the client support it.
pub(super) fn send_document(
    bucket: &Bucket,
    features: Features,
    document: &Document,
    cas: Cas,
    key: &[u8],
    answer: &mut Answer<'_>,
) {
    let json = if features.has(Feature::Json) { DATATYPE_JSON } else { 0 };
    let mut reply = Reply {
        cas: cas.0,
        datatype: document.meta.datatype & json,
        extras: &document.meta.flags.to_be_bytes(),
        key,
        value: document.body(),
        ..Reply::default()
    };
    if features.has(Feature::Snappy)
        && bucket.compresses()
        && let Some(smaller) = snappy::deflate(document.body())
    {
        reply.datatype |= DATATYPE_SNAPPY;
        return answer.send(Reply { value: &smaller, ..reply });
    }
    answer.document(reply, document);
}

/// Checks that the user may send this request for a document of `collection`.
fn check_rights(
    session: &Session,
    selected: &Selected,
    frame: &Frame<'_>,
    request: &Request<'_>,
    collection: CollectionId,
) -> Result<(), Status> {
    let Some(Need::OnCollection(privileges)) = frame.opcode().map(rights::need) else {
        return Err(Status::AccessDenied);
    };
    if !session.may(selected, collection, privileges) {
        return Err(Status::AccessDenied);
    }
    let (Request::Lookup { specs, .. } | Request::Mutate { specs, .. }) = request else {
        return Ok(());
    };
    if rights::removes_document(specs)
        && !session.may(selected, collection, &[Privilege::DeleteData])
    {
        return Err(Status::AccessDenied);
    }
    let system = rights::touches_system_attribute(specs, path_flag::XATTR);
    if system && !session.may(selected, collection, &[Privilege::SystemAttributes]) {
        return Err(Status::AccessDenied);
    }
    Ok(())
}

/// Returns true if the request may need more memory. Requests that free memory are never refused for lack of it.
fn grows(request: &Request<'_>) -> bool {
    matches!(
        request,
        Request::Store { .. }
            | Request::StoreVersion { .. }
            | Request::Extend { .. }
            | Request::Counter { .. }
            | Request::Mutate { .. }
    )
}

/// Encodes the results of mutations. The short form is the bare value; the long form has index, status and value of
/// each result.
fn mutation_results(results: &[(u8, Vec<u8>)], single: bool) -> Vec<u8> {
    if single {
        return results.first().map(|(_, value)| value.clone()).unwrap_or_default();
    }
    let mut value = Vec::new();
    for (index, result) in results {
        value.push(*index);
        value.extend((Status::Success as u16).to_be_bytes());
        value.extend((result.len() as u32).to_be_bytes());
        value.extend_from_slice(result);
    }
    value
}

/// Answers a refused mutation. The long form names the first operation that failed; an error of the whole request is a
/// bare status.
fn send_mutation_refusal(refusal: &Refusal, single: bool, answer: &mut Answer<'_>) -> Outcome {
    let Some((Some(index), error)) = refusal.subdoc_error().filter(|_| !single) else {
        return Outcome::Status(status::of_refusal(refusal));
    };
    let [high, low] = (status::of_value_error(error) as u16).to_be_bytes();
    let deleted = matches!(refusal, Refusal::Subdoc { deleted: true, .. });
    let status = if deleted { Status::MultiPathFailureDeleted } else { Status::MultiPathFailure };
    answer.send(Reply { status, value: &[index, high, low], ..Reply::default() });
    Outcome::Answered
}

/// Returns the path flags that an operation accepts. Operations on whole documents have no path flags, but clients send
/// them with arbitrary ones. Source: the sub-document commands of Couchbase Server 7.6.
fn path_flags_of(opcode: Option<Opcode>) -> u8 {
    const XATTR: u8 = path_flag::XATTR;
    const VALUE: u8 = XATTR | path_flag::EXPAND_MACROS | path_flag::BINARY;
    match opcode {
        Some(Opcode::SubdocExists | Opcode::SubdocGetCount | Opcode::SubdocDelete) => XATTR,
        Some(Opcode::SubdocGet) => XATTR | path_flag::BINARY,
        Some(Opcode::SubdocReplace | Opcode::SubdocArrayInsert) => VALUE,
        Some(Opcode::SubdocArrayAddUnique | Opcode::SubdocCounter) => {
            XATTR | path_flag::CREATE_PATH
        }
        _ => path_flag::KNOWN,
    }
}

fn flags(spec: &SubdocSpec<'_>) -> Result<Flags, Status> {
    let has = |flag: u8| spec.flags & flag != 0;
    if spec.flags & !path_flags_of(Opcode::from_byte(spec.opcode)) != 0 {
        return Err(Status::InvalidArguments);
    }
    if has(path_flag::EXPAND_MACROS) && !has(path_flag::XATTR) {
        return Err(Status::XattrFlagCombo);
    }
    Ok(Flags {
        create_path: has(path_flag::CREATE_PATH),
        xattr: has(path_flag::XATTR),
        expand_macros: has(path_flag::EXPAND_MACROS),
        binary: has(path_flag::BINARY),
    })
}

fn lookup_spec<'a>(spec: &SubdocSpec<'a>) -> Result<LookupSpec<'a>, Status> {
    let operation = match Opcode::from_byte(spec.opcode) {
        Some(Opcode::SubdocGet) => LookupOperation::Path(Lookup::Get),
        Some(Opcode::SubdocExists) => LookupOperation::Path(Lookup::Exists),
        Some(Opcode::SubdocGetCount) => LookupOperation::Path(Lookup::GetCount),
        Some(Opcode::Get) => LookupOperation::Document,
        _ => return Err(Status::InvalidCombo),
    };
    Ok(LookupSpec { operation, flags: flags(spec)?, path: spec.path, value: b"" })
}

fn mutation_spec<'a>(spec: &SubdocSpec<'a>) -> Result<MutationSpec<'a>, Status> {
    let operation = match Opcode::from_byte(spec.opcode) {
        Some(Opcode::SubdocDictAdd) => MutationOperation::Path(Mutation::DictAdd),
        Some(Opcode::SubdocDictUpsert) => MutationOperation::Path(Mutation::DictUpsert),
        Some(Opcode::SubdocDelete) => MutationOperation::Path(Mutation::Delete),
        Some(Opcode::SubdocReplace) => MutationOperation::Path(Mutation::Replace),
        Some(Opcode::SubdocArrayPushLast) => MutationOperation::Path(Mutation::ArrayPushLast),
        Some(Opcode::SubdocArrayPushFirst) => MutationOperation::Path(Mutation::ArrayPushFirst),
        Some(Opcode::SubdocArrayInsert) => MutationOperation::Path(Mutation::ArrayInsert),
        Some(Opcode::SubdocArrayAddUnique) => MutationOperation::Path(Mutation::ArrayAddUnique),
        Some(Opcode::SubdocCounter) => MutationOperation::Path(Mutation::Counter),
        Some(Opcode::Set) => MutationOperation::SetDocument,
        Some(Opcode::Delete) => MutationOperation::RemoveDocument,
        Some(Opcode::SubdocReplaceBodyWithXattr) => MutationOperation::ReplaceBodyWithXattr,
        _ => return Err(Status::InvalidCombo),
    };
    Ok(MutationSpec { operation, flags: flags(spec)?, path: spec.path, value: spec.value })
}
