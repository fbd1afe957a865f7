//! Conflicts that a plugin resolves: a version from elsewhere meets one that is here.
//!
//! ```text
//! request ─► nothing here? ─ yes ─► stored
//!              │ no                          ┌───────────── it is another one by now ────────────┐
//!              └─► parked ─► Worker: reads the version, asks the resolver ─► request: still that one? ─ yes ─► stored
//! ```
//!
//! No lock is held while the plugin runs, and no thread of a connection waits for it. What it says is about the version that it was
//! shown: if that has changed, it is asked again.

use crate::bucket::Bucket;
use crate::worker::{Jobs, WORKERS, Worker};
use crate::{BucketEnv, Ticket, Waiter};
use nacre_types::{DATATYPE_JSON, DATATYPE_XATTR, Document, Kind, Meta, Now, Vbid, leb128_decode};
use nacre_value::{json, xattr};
use nacre_vbucket::{Command, Refusal, Reply, Seen, Verdict, Version};
use parking_lot::{Mutex, RwLock};
use std::sync::Arc;

/// How often a resolver is asked about one request, as the document changes each time.
const ATTEMPTS_MAX: u32 = 8;
/// Requests of a bucket that wait for its resolver.
const WAITING_MAX: usize = 1024;
/// How often a document is read back that leaves memory again at once.
const FETCHES_MAX: u32 = 16;
/// The longest value. Source: Couchbase.
const VALUE_BYTES_MAX: usize = 20 << 20;

/// Decides between versions of the documents of a bucket.
pub trait Resolve: Send + Sync {
    /// What is kept of two versions of the document at `key`. It may take as long as a plugin may.
    ///
    /// # Errors
    /// When there is no decision; whoever knows why has noted it.
    fn resolve(&self, key: &[u8], local: &Version, remote: &Version) -> Result<Verdict, Undecided>;

    /// What it decided cannot be: `reason` says why.
    fn reproach(&self, key: &[u8], reason: &str);
}

/// A resolver has not decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Undecided;

/// What a bucket needs to have conflicts resolved.
#[derive(Default)]
pub struct Conflicts {
    resolver: RwLock<Option<Arc<dyn Resolve>>>,
    pub(crate) jobs: Jobs,
    /// Whether there are workers: they come with the first resolver.
    has_workers: Mutex<bool>,
}

/// A version from elsewhere.
pub(crate) struct Arrived {
    /// Its metadata; the seqno means nothing.
    pub meta: Meta,
    /// Attributes, if the datatype says so, and body.
    pub value: Box<[u8]>,
}

/// What is to become of a version from elsewhere.
#[derive(Clone, Debug)]
pub(crate) enum Decision {
    /// The version here stays.
    Keep,
    /// It is stored as it came.
    Take,
    /// This is stored, with a CAS above that in the metadata.
    Merge(Meta, Box<[u8]>),
    /// Nobody knows: it may be sent again.
    None,
}

/// A decision, and the version here that it is about.
#[derive(Clone, Debug)]
pub(crate) struct Decided {
    /// What becomes of the version that arrived.
    pub decision: Decision,
    /// The local version that was compared; `None` when there was none.
    pub seen: Option<Seen>,
    attempt: u32,
}

impl Conflicts {
    /// Has `resolver` decide from now on, or the bucket's own rule.
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

    /// Whether a plugin decides.
    pub(crate) fn has_resolver(&self) -> bool {
        self.resolver.read().is_some()
    }

    /// Has the resolver decide about a version of the document at `key`. `before` is what it said when it was asked last.
    ///
    /// `None` when it must not be asked now: too often already, too many wait, or the bucket has ended.
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
        // Without a resolver, as when it was undeployed just now, and between equal bodies the bucket's rule decides: who merges
        // would else merge what was merged for ever.
        let by_rule = match bucket.resolution().takes(&arrived.meta, &local.meta) {
            true => Decision::Take,
            false => Decision::Keep,
        };
        let resolver = self.resolver.read().clone();
        let Some(resolver) = resolver.filter(|_| !is_same(&local, arrived)) else {
            return (seen, by_rule);
        };
        let name = leb128_decode(key).map_or(key, |(_, rest)| rest);
        let versions = [shown(&local.meta, local.body()), shown(&arrived.meta, arrived.body())];
        let decision = match resolver.resolve(name, &versions[0], &versions[1]) {
            Ok(Verdict::KeepLocal) => Decision::Keep,
            Ok(Verdict::KeepRemote) => Decision::Take,
            Ok(Verdict::Merged(body)) => {
                merged(&local, arrived, matches!(by_rule, Decision::Take), &body).unwrap_or_else(
                    |reason| {
                        resolver.reproach(name, reason);
                        Decision::None
                    },
                )
            }
            Err(Undecided) => Decision::None,
        };
        (seen, decision)
    }
}

/// The newest version of a document, tombstones included, with its value.
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

/// A version as resolvers see it.
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

/// `body` in the place of both versions. Attributes, flags and expiry are those of the version that the bucket's rule would keep,
/// which is the same on both sides, unless that was deleted.
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
        // The vBucket is past that of its own.
        cas: arrived.meta.cas,
        rev: local.meta.rev.max(arrived.meta.rev) + 1,
        datatype: json | if xattrs.is_empty() { 0 } else { DATATYPE_XATTR },
        kind: Kind::Alive,
        ..*meta
    };
    Ok(Decision::Merge(meta, [xattrs, body].concat().into()))
}
