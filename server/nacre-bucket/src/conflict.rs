//! Conflict resolution by a plugin, when a version from another cluster meets a local one.
//!
//! ```text
//! request ─► no local version? ─ yes ─► stored
//!              │ no                         ┌────────────── the local version has changed ─────────────┐
//!              └─► parked ─► Worker: reads the version, asks the resolver ─► request: still that version? ─ yes ─► stored
//! ```
//!
//! No lock is held while the plugin runs, and no connection's thread waits for it. A decision is valid only for the
//! local version that the resolver saw; if that has changed since, the resolver is asked again.

use crate::bucket::Bucket;
use crate::worker::{Jobs, WORKERS, Worker};
use crate::{BucketEnv, Ticket, Waiter};
use nacre_types::{
    Cas, DATATYPE_JSON, DATATYPE_XATTR, Document, Kind, Meta, Now, Seqno, Vbid, leb128_decode,
};
use nacre_value::{json, xattr};
use nacre_vbucket::{Command, ConflictContext, Refusal, Reply, Seen, Verdict, Version};
use nacre_xdcr::{
    Arriving, Malformed, Outcome, Policy, Site, add_histories, first_loss, is_common_ancestor,
    receive, settle,
};
use parking_lot::{Mutex, RwLock};
use std::sync::Arc;

/// Maximum number of questions to a resolver about one request, in case the document changes each time.
const ATTEMPTS_MAX: u32 = 8;
/// Maximum number of requests of a bucket that wait for its resolver.
const WAITING_MAX: usize = 1024;
/// Maximum number of times that a document is read back which is evicted again at once.
const FETCHES_MAX: u32 = 16;
/// Maximum number of kept versions among which the common ancestor of two versions is sought.
const ANCESTORS_MAX: u32 = 64;
/// The largest value, in bytes. Source: Couchbase.
const VALUE_BYTES_MAX: usize = 20 << 20;

/// Decides between two versions of a document.
pub trait Resolve: Send + Sync {
    /// Decides which of two versions of the document at `key` is kept, given the other facts in `context`. May run as long as a
    /// plugin may.
    ///
    /// # Errors
    /// Fails when the resolver gives no decision. The implementation records the reason.
    fn resolve(
        &self,
        key: &[u8],
        local: &Version,
        remote: &Version,
        context: &ConflictContext,
    ) -> Result<Verdict, Undecided>;

    /// Records why a decision cannot be carried out.
    fn record_failure(&self, key: &[u8], reason: &str);
}

/// The resolver has not decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Undecided;

/// The resolver of a bucket, and the work that waits for it.
#[derive(Default)]
pub struct Conflicts {
    resolver: RwLock<Option<Arc<dyn Resolve>>>,
    pub(crate) jobs: Jobs,
    /// True once the workers run; the first resolver starts them.
    has_workers: Mutex<bool>,
}

/// A version from another cluster.
pub(crate) struct Arrived {
    /// Its metadata; the seqno is ignored.
    pub meta: Meta,
    /// The extended attributes, if the datatype says so, and the body.
    pub value: Box<[u8]>,
}

/// The decision about a version from another cluster.
#[derive(Clone, Debug)]
pub(crate) enum Decision {
    /// The local version stays.
    Keep,
    /// The version is stored as it is.
    Take,
    /// The merged version is stored, with a CAS above the one in the metadata.
    Merge(Meta, Box<[u8]>),
    /// This version is stored, under exactly its CAS.
    Store(Meta, Box<[u8]>),
    /// The attributes or the history of the version cannot be parsed.
    Malformed,
    /// The resolver gave no decision; the sender may try again.
    None,
}

/// A decision and the local version that it compared.
#[derive(Clone, Debug)]
pub(crate) struct Decided {
    /// The decision about the arriving version.
    pub decision: Decision,
    /// The local version that was compared; `None` when there was none.
    pub seen: Option<Seen>,
    attempt: u32,
}

impl Conflicts {
    /// Sets the resolver; with `None`, the bucket's own rule decides.
    pub fn set_resolver(
        bucket: &Arc<Bucket>,
        env: &dyn BucketEnv,
        resolver: Option<Arc<dyn Resolve>>,
    ) {
        let conflicts = &bucket.conflicts;
        let mut has_workers = conflicts.has_workers.lock();
        if resolver.is_some() && !*has_workers {
            for number in 0..WORKERS {
                env.spawn(Box::new(Worker::of_conflicts(Arc::clone(bucket), number)));
            }
            *has_workers = true;
        }
        *conflicts.resolver.write() = resolver;
    }

    /// Returns true if a resolver decides.
    pub(crate) fn has_resolver(&self) -> bool {
        self.resolver.read().is_some()
    }

    /// Queues the resolver's decision about a version of the document at `key`. `before` is the previous decision about
    /// the same request.
    ///
    /// Returns `None` when the resolver must not be asked: it was asked too often, too many requests are waiting, or
    /// the bucket has ended.
    pub(crate) fn decide_later(
        &self,
        vbid: Vbid,
        key: &[u8],
        arrived: Arrived,
        before: Option<&Decided>,
        now: Now,
        waiter: &Arc<dyn Waiter>,
    ) -> Option<Arc<Ticket<Decided>>> {
        let attempt = before.map_or(1, |before| before.attempt + 1);
        if attempt > ATTEMPTS_MAX || self.jobs.waiting() >= WAITING_MAX {
            return None;
        }
        let key = Box::<[u8]>::from(key);
        self.jobs.push(waiter, move |bucket| {
            let (seen, decision) = bucket.conflicts.decide(bucket, vbid, &key, &arrived, now);
            Decided { decision, seen, attempt }
        })
    }

    fn decide(
        &self,
        bucket: &Bucket,
        vbid: Vbid,
        key: &[u8],
        arrived: &Arrived,
        now: Now,
    ) -> (Option<Seen>, Decision) {
        let local = match version_of(bucket, vbid, key, now) {
            Ok(Some(local)) => local,
            Ok(None) => return (None, Decision::Take),
            Err(()) => return (None, Decision::None),
        };
        let seen = Some(Seen::from(&local.meta));
        // The bucket's rule decides if there is no resolver (after an undeployment), and between equal bodies. Without
        // the second case, two clusters would merge each other's merges for ever.
        let by_rule = match bucket.resolution().takes(&arrived.meta, &local.meta) {
            true => Decision::Take,
            false => Decision::Keep,
        };
        let resolver = self.resolver.read().clone();
        let name = leb128_decode(key).map_or(key, |(_, rest)| rest);
        if let (Some(resolver), Some(site)) = (&resolver, bucket.site()) {
            let by_history = ByHistory { site: &site, resolver: &**resolver, vbid, key, name };
            return (seen, by_history.decide(bucket, &local, arrived, now));
        }
        let Some(resolver) = resolver.filter(|_| !is_same(&local, arrived)) else {
            return (seen, by_rule);
        };
        let versions = [shown(&local.meta, local.body()), shown(&arrived.meta, arrived.body())];
        let context = context_of(bucket, key);
        let decision = match resolver.resolve(name, &versions[0], &versions[1], &context) {
            Ok(Verdict::KeepLocal) => Decision::Keep,
            Ok(Verdict::KeepRemote) => Decision::Take,
            Ok(Verdict::Merged(body)) => {
                merged(&local, arrived, matches!(by_rule, Decision::Take), &body).unwrap_or_else(
                    |reason| {
                        resolver.record_failure(name, reason);
                        Decision::None
                    },
                )
            }
            Err(Undecided) => Decision::None,
        };
        (seen, decision)
    }
}

/// Decides in a bucket that keeps version histories. A version that contains the local one is taken without asking, and every
/// answer of the resolver is recorded as a merge (decision 0057).
struct ByHistory<'a> {
    site: &'a Site,
    resolver: &'a dyn Resolve,
    vbid: Vbid,
    /// Key of the document, with the collection prefix.
    key: &'a [u8],
    /// Name of the document, without the collection prefix.
    name: &'a [u8],
}

impl ByHistory<'_> {
    fn decide(&self, bucket: &Bucket, local: &Document, arrived: &Arrived, now: Now) -> Decision {
        let incoming = Arriving { meta: arrived.meta, value: arrived.value.to_vec() };
        let next_cas = self.next_cas(bucket, local, &incoming, now);
        let policy = Policy::Resolver(bucket.resolution());
        let lost =
            bucket.vbucket(self.vbid).map_or(Seqno::ZERO, |it| first_loss(it.failover_log()));
        match receive(Some(local), &incoming, self.site, policy, next_cas, lost) {
            Ok(Outcome::Keep) => Decision::Keep,
            Ok(Outcome::Store(version)) => Decision::Store(version.meta, version.value.into()),
            Ok(Outcome::Ask) => self.ask(bucket, local, &incoming, next_cas),
            Err(Malformed) => Decision::Malformed,
        }
    }

    /// Returns the CAS of a local write that is greater than the CAS of both versions.
    fn next_cas(&self, bucket: &Bucket, local: &Document, incoming: &Arriving, now: Now) -> Cas {
        let versions = local.meta.cas.max(incoming.meta.cas);
        let vbucket = bucket.vbucket(self.vbid);
        vbucket
            .map_or_else(|| versions.tick(now.unix_ns), |vbucket| vbucket.cas_above(versions, now))
    }

    fn ask(
        &self,
        bucket: &Bucket,
        local: &Document,
        incoming: &Arriving,
        next_cas: Cas,
    ) -> Decision {
        let versions = [Arriving::of(local).shown(), incoming.shown()];
        let mut context = context_of(bucket, self.key);
        if add_histories(&mut context, local, incoming, self.site).is_err() {
            return Decision::Malformed;
        }
        context.base = self.common_ancestor(bucket, local, incoming);
        let verdict = self.resolver.resolve(self.name, &versions[0], &versions[1], &context);
        let Ok(verdict) = verdict else { return Decision::None };
        match settle(local, incoming, &verdict, self.site, next_cas) {
            Ok(merge) if merge.value.len() <= VALUE_BYTES_MAX => {
                Decision::Store(merge.meta, merge.value.into())
            }
            Ok(_) => {
                self.resolver
                    .record_failure(self.name, "what it merged is larger than a document may be");
                Decision::None
            }
            Err(Malformed) => Decision::Malformed,
        }
    }

    /// Returns the newest version that went into both, if the bucket still keeps it.
    fn common_ancestor(
        &self,
        bucket: &Bucket,
        local: &Document,
        incoming: &Arriving,
    ) -> Option<Version> {
        let mut seqno = local.meta.seqno;
        for _ in 0..ANCESTORS_MAX {
            // Without a kept version the resolver decides by the two versions alone, as in a bucket that keeps no earlier ones.
            let kept = bucket.previous(self.vbid, seqno).ok().flatten()?;
            if is_common_ancestor(&kept, local, incoming, self.site) {
                return Some(Arriving::of(&kept).shown());
            }
            seqno = kept.meta.seqno;
        }
        None
    }
}

/// Returns the facts about a conflict that follow from the key: the scope and the collection.
fn context_of(bucket: &Bucket, key: &[u8]) -> ConflictContext {
    let manifest = bucket.manifest();
    let id = leb128_decode(key).map(|(id, _)| id);
    let mut all = manifest.scopes.iter().flat_map(|scope| {
        scope.collections.iter().map(move |collection| (&scope.name, collection))
    });
    let found = all.find(|(_, collection)| Some(collection.id) == id);
    let named = found.map(|(scope, collection)| ConflictContext {
        scope: scope.clone(),
        collection: collection.name.clone(),
        ..ConflictContext::default()
    });
    named.unwrap_or_default()
}

/// Returns the newest version of a document with its value; tombstones count.
fn version_of(bucket: &Bucket, vbid: Vbid, key: &[u8], now: Now) -> Result<Option<Document>, ()> {
    for _ in 0..FETCHES_MAX {
        match bucket.apply(vbid, key, &Command::GetMeta, now).ok_or(())?.0 {
            Ok(Reply::Meta(document)) if document.is_resident() => return Ok(Some(document)),
            Ok(Reply::Meta(_)) | Err(Refusal::NotResident) => {
                bucket.fetch(vbid, key).map_err(drop)?;
            }
            Err(Refusal::NotFound) => return Ok(None),
            _ => return Err(()),
        }
    }
    Err(())
}

impl Arrived {
    fn split(&self) -> (&[u8], &[u8]) {
        match self.meta.datatype & DATATYPE_XATTR {
            0 => (&[], &self.value),
            _ => xattr::split(&self.value).unwrap_or((&[], &self.value)),
        }
    }

    fn body(&self) -> &[u8] {
        self.split().1
    }
}

fn is_same(local: &Document, arrived: &Arrived) -> bool {
    let is_alive = |meta: &Meta| meta.kind == Kind::Alive;
    is_alive(&local.meta) == is_alive(&arrived.meta) && local.body() == arrived.body()
}

/// Returns a version in the form that resolvers receive.
fn shown(meta: &Meta, body: &[u8]) -> Version {
    Version {
        body: body.to_vec(),
        is_deleted: meta.kind != Kind::Alive,
        cas: meta.cas,
        rev: meta.rev,
        flags: meta.flags,
        expiry: meta.expiry,
        is_json: meta.datatype & DATATYPE_JSON != 0,
    }
}

/// Returns `body` as the successor of both versions. Extended attributes, flags and expiry come from the version that
/// the bucket's rule prefers, which is the same in both clusters, unless that version is a deletion.
fn merged(
    local: &Document,
    arrived: &Arrived,
    arrived_is_greater: bool,
    body: &[u8],
) -> Result<Decision, &'static str> {
    let is_alive = |meta: &Meta| meta.kind == Kind::Alive;
    let of_arrived = match (is_alive(&local.meta), is_alive(&arrived.meta)) {
        (true, true) => arrived_is_greater,
        (false, false) => return Err("it merged two versions that were deleted"),
        (_, arrived) => arrived,
    };
    let (xattrs, meta) = match of_arrived {
        true => (arrived.split().0, &arrived.meta),
        false => (local.xattrs(), &local.meta),
    };
    if xattrs.len() + body.len() > VALUE_BYTES_MAX {
        return Err("what it merged is larger than a document may be");
    }
    let json = if json::is_json(body) { DATATYPE_JSON } else { 0 };
    let meta = Meta {
        // The vBucket assigns a greater CAS in any case.
        cas: arrived.meta.cas,
        rev: local.meta.rev.max(arrived.meta.rev) + 1,
        datatype: json | if xattrs.is_empty() { 0 } else { DATATYPE_XATTR },
        kind: Kind::Alive,
        ..*meta
    };
    Ok(Decision::Merge(meta, [xattrs, body].concat().into()))
}
