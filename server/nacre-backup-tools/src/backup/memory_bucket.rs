//! A bucket in memory for trial restores. It accepts the requests of a restore, and checks them as the bucket of a node does.
//!
//! It has no thread, store or socket: every request is answered before the call returns.

use super::writer::Write;
use nacre_auth::{Role, SALT_BYTES, User, Users};
use nacre_backup::{BucketPart, Record, RecordKind};
use nacre_bucket::kv::{KvEnv, Next, Peer, Session};
use nacre_bucket::{Bucket, BucketEnv, Home, Logins, Task, Waiter, Watchers};
use nacre_budget::Budgets;
use nacre_client::{BASIC_FEATURES, Request, describe_status};
use nacre_cluster::{
    BucketKind, BucketSettings, Chain, Collection, EvictionPolicy, Manifest, Scope,
};
use nacre_protocol::{Feature, Opcode, Status, decode};
use nacre_types::{CollectionId, DocKey, NodeId, Now, Vbid};
use parking_lot::{RwLock, RwLockReadGuard};
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

/// Quota of the bucket in MiB, enough for one batch of documents with its history.
const QUOTA_MIB: u64 = 1024;
/// The node that has all vBuckets, and its user.
const NODE: NodeId = NodeId(1);
const USER: &str = "restore";

/// A bucket in memory.
pub(super) struct MemoryBucket {
    bucket: Arc<Bucket>,
    session: Session,
    now: Now,
}

impl MemoryBucket {
    /// Creates an empty bucket with the vBuckets and collections of a bucket in a backup. Its clock always shows `unix_ms`.
    ///
    /// # Errors
    /// A sentence if it cannot be used.
    pub fn new(part: &BucketPart, unix_ms: u64) -> Result<MemoryBucket, String> {
        let now = Now { unix_ns: unix_ms.saturating_mul(1_000_000), monotonic_ns: 1 };
        let env = Arc::new(Env::new(now));
        let bucket_env = Arc::clone(&env) as Arc<dyn BucketEnv>;
        let bucket = Bucket::open(&config(part), &bucket_env, None, true, Home::alone(NODE))
            .map_err(|error| error.to_string())?;
        let _ = env.bucket.set(Arc::clone(&bucket));
        let peer = Peer { confidential: true, user: Some(USER.to_owned()), ..Peer::default() };
        let session = Session::new(env, peer, Arc::new(Silent));
        let mut opened = MemoryBucket { bucket, session, now };
        let features = [BASIC_FEATURES, &[Feature::Xattr, Feature::Json]].concat();
        let features: Vec<u8> =
            features.iter().flat_map(|feature| (*feature as u16).to_be_bytes()).collect();
        let (hello, select) = (Opcode::Hello as u8, Opcode::SelectBucket as u8);
        let hello =
            Request { opcode: hello, key: b"nacre", value: &features, ..Request::default() };
        let select = Request { opcode: select, key: part.name.as_bytes(), ..Request::default() };
        for request in [hello, select] {
            let status = opened.ask(request)?;
            if status != Status::Success as u16 {
                return Err(format!("a bucket in memory answers with status {status:#x}"));
            }
        }
        Ok(opened)
    }

    /// Writes a document, as a restore into an empty bucket does.
    ///
    /// # Errors
    /// The reason why the bucket refuses the document.
    pub fn write(&mut self, write: &Write) -> Result<(), String> {
        match self.ask(write.request())? {
            status if status == Status::Success as u16 => Ok(()),
            status => Err(describe_status(Opcode::SetWithMeta, status)),
        }
    }

    /// Returns the [fingerprint](Record::fingerprint) of a document in the bucket.
    pub fn fingerprint(&self, collection: u32, name: &[u8]) -> Option<u64> {
        let vbid = Vbid::of(name, self.bucket.vbucket_count());
        let vbucket = self.bucket.vbucket(vbid)?;
        let key = DocKey::new(CollectionId(collection), name);
        let document = vbucket.find(key.prefixed()).filter(|document| document.is_alive())?;
        let record = Record {
            kind: RecordKind::Set,
            seqno: document.meta.seqno.0,
            cas: document.meta.cas.0,
            rev: document.meta.rev,
            flags: document.meta.flags,
            expiry: document.meta.expiry,
            datatype: document.meta.datatype,
            collection,
            key: name,
            value: document.value(),
        };
        Some(record.fingerprint())
    }

    /// Sends a request; returns the status of the answer.
    fn ask(&mut self, request: Request<'_>) -> Result<u16, String> {
        let (mut input, mut output) = (Vec::new(), Vec::new());
        request.encode(&mut input);
        let (taken, next) = self.session.receive(&input, &mut output, self.now);
        if let Next::Close(reason) = next {
            return Err(reason.unwrap_or_else(|| "a bucket in memory has given up".to_owned()));
        }
        match decode(&output) {
            Ok(Some((answer, _))) if taken == input.len() => Ok(answer.vbid),
            _ => Err("a bucket in memory does not answer".to_owned()),
        }
    }
}

/// The configuration of a bucket in memory.
fn config(part: &BucketPart) -> nacre_cluster::Bucket {
    let settings = BucketSettings {
        kind: BucketKind::Ephemeral,
        eviction_policy: EvictionPolicy::None,
        ram_quota_mb: QUOTA_MIB,
        vbucket_count: part.vbuckets,
        ..BucketSettings::default()
    };
    let mut manifest = Manifest::default();
    manifest.uid = 1;
    for collection in &part.collections {
        let own = Collection {
            name: collection.name.clone(),
            id: collection.id,
            max_ttl: 0,
            history: false,
        };
        if manifest.collection_by_id(CollectionId(own.id)).is_some() {
            continue;
        }
        let number = u32::try_from(manifest.scopes.len()).unwrap_or(u32::MAX);
        match manifest.scopes.iter_mut().find(|scope| scope.name == collection.scope) {
            Some(scope) => scope.collections.push(own),
            // The numbers of scopes are not in a backup, and nothing depends on them.
            None => manifest.scopes.push(Scope {
                name: collection.scope.clone(),
                id: number.saturating_add(8),
                collections: vec![own],
            }),
        }
    }
    nacre_cluster::Bucket {
        name: part.name.clone(),
        uuid: part.uuid.clone(),
        settings,
        manifest,
        design_documents: BTreeMap::new(),
        indexes: Vec::new(),
        flushes: 0,
        chains: vec![Chain::new(vec![Some(NODE)]); usize::from(part.vbuckets)],
    }
}

/// A waiter that is never woken: all responses come at once.
struct Silent;

impl Waiter for Silent {
    fn wake(&self) {}
}

/// The environment of the bucket and its session.
struct Env {
    now: Now,
    bucket: OnceLock<Arc<Bucket>>,
    users: RwLock<Users>,
    logins: Logins,
    budgets: Budgets,
    map_watchers: Watchers,
}

impl Env {
    fn new(now: Now) -> Env {
        let mut users = Users::new(rand::random());
        let salt: [u8; SALT_BYTES] = std::array::from_fn(|_| rand::random());
        // The session is logged in from the start, so the random password is never used.
        let password = format!("{:032x}", rand::random::<u128>());
        users.put(User::new(USER, &password, vec![Role::admin()], salt));
        Env {
            now,
            bucket: OnceLock::new(),
            users: RwLock::new(users),
            logins: Logins::default(),
            budgets: Budgets::default(),
            map_watchers: Watchers::default(),
        }
    }
}

impl BucketEnv for Env {
    fn now(&self) -> Now {
        self.now
    }

    fn random(&self) -> u64 {
        rand::random()
    }

    /// Drops tasks: they write to disk, expire documents and evict, which a trial restore must not do.
    fn spawn(&self, _: Box<dyn Task>) {}
}

impl KvEnv for Env {
    fn uuid(&self) -> String {
        format!("{:032x}", NODE.0)
    }

    fn bucket(&self, name: &str) -> Option<Arc<Bucket>> {
        self.bucket.get().filter(|bucket| bucket.name == name).cloned()
    }

    fn is_bucket_damaged(&self, _: &str) -> bool {
        false
    }

    fn users(&self) -> RwLockReadGuard<'_, Users> {
        self.users.read()
    }

    fn users_version(&self) -> u64 {
        1
    }

    fn logins(&self) -> &Logins {
        &self.logins
    }

    fn log_refused_login(&self) {}

    fn budgets(&self) -> &Budgets {
        &self.budgets
    }

    fn map_version(&self) -> (i64, i64) {
        (1, 1)
    }

    fn map_rev(&self) -> i64 {
        1
    }

    fn is_cut_off(&self) -> bool {
        false
    }

    fn map(&self, _: Option<&str>) -> Option<Arc<str>> {
        None
    }

    fn not_my_vbucket_map(&self, _: Option<&str>) -> Option<Arc<str>> {
        None
    }

    fn watch_map(&self, watcher: &Arc<dyn Waiter>) {
        self.map_watchers.add(watcher);
    }

    fn renew_map(&self, _: i64) {}

    fn manifest(&self, _: &str, _: &dyn Fn(&Manifest) -> Manifest) -> Option<String> {
        None
    }
}
