//! The environment of the bucket and of its sessions: one process, one user, and one node that never leaves.

use crate::Clock;
use crate::folder::{BUCKET, NODE};
use crate::runner::Runner;
use nacre_auth::{Role, SALT_BYTES, User, Users};
use nacre_bucket::kv::KvEnv;
use nacre_bucket::{Bucket, BucketEnv, Logins, Task, Waiter, Watchers};
use nacre_budget::Budgets;
use nacre_cluster::{Collection, Manifest};
use nacre_types::Now;
use parking_lot::{RwLock, RwLockReadGuard};
use serde_json::{Value, json};
use std::sync::{Arc, OnceLock};

/// The user of every session.
pub(crate) const USER: &str = "embedded";
/// The port in maps. Nobody listens on it: clients of a session accept any address as the address of the session.
const KV_PORT: u16 = 11210;
const MANAGEMENT_PORT: u16 = 8091;

/// The bucket's capabilities, by the names that clients look for.
const CAPABILITIES: [&str; 16] = [
    "collections",
    "durableWrite",
    "cccp",
    "cbhello",
    "nodesExt",
    "touch",
    "xattr",
    "preserveExpiry",
    "rangeScan",
    "tombstonedUserXAttrs",
    "subdoc.AccessDeleted",
    "subdoc.BinaryXattr",
    "subdoc.DocumentMacroSupport",
    "subdoc.ReplicaRead",
    "subdoc.ReviveDocument",
    "subdoc.ReplaceBodyWithXattr",
];

pub(crate) struct Host {
    clock: Arc<dyn Clock>,
    runner: Arc<Runner>,
    bucket: OnceLock<Arc<Bucket>>,
    /// Created with the first session, because a user costs a password hash of several milliseconds.
    users: OnceLock<RwLock<Users>>,
    logins: Arc<Logins>,
    budgets: Budgets,
    map_watchers: Watchers,
}

impl Host {
    pub fn new(clock: Arc<dyn Clock>, runner: Arc<Runner>) -> Arc<Host> {
        Arc::new(Host {
            clock,
            runner,
            bucket: OnceLock::new(),
            users: OnceLock::new(),
            logins: Arc::default(),
            budgets: Budgets::default(),
            map_watchers: Watchers::default(),
        })
    }

    pub fn serve(&self, bucket: Arc<Bucket>) {
        let _ = self.bucket.set(bucket);
    }

    fn users(&self) -> &RwLock<Users> {
        self.users.get_or_init(|| {
            let mut secret = [0; 32];
            let mut salt = [0; SALT_BYTES];
            for chunk in secret.chunks_mut(8).chain(salt.chunks_mut(8)) {
                chunk.copy_from_slice(&BucketEnv::random(self).to_be_bytes()[..chunk.len()]);
            }
            let mut users = Users::new(secret);
            // Nobody knows the password: the session is the only way in.
            let password = format!("{:016x}{:016x}", self.random(), self.random());
            users.put(User::new(USER, &password, vec![Role::admin()], salt));
            RwLock::new(users)
        })
    }

    fn map_of_cluster(&self) -> Value {
        // No other service: clients that wait for all services would wait for a missing one.
        let services = json!({"kv": KV_PORT});
        json!({
            "rev": self.map_rev(),
            "revEpoch": 1,
            "nodesExt": [{"services": services, "thisNode": true, "hostname": "embedded"}],
            "clusterCapabilitiesVer": [1, 0],
            "clusterCapabilities": {},
            "prod": "server",
            "prodName": "nacre",
        })
    }

    fn map_of(&self, bucket: &Bucket) -> Value {
        let mut map = self.map_of_cluster();
        let kv = format!("embedded:{KV_PORT}");
        let count = usize::from(bucket.vbucket_count());
        map["name"] = json!(bucket.name);
        map["uuid"] = json!(bucket.uuid);
        map["nodeLocator"] = json!("vbucket");
        map["bucketType"] = json!(if bucket.is_persistent() { "membase" } else { "ephemeral" });
        map["numVBuckets"] = json!(count);
        map["bucketCapabilitiesVer"] = json!("");
        map["bucketCapabilities"] = json!(CAPABILITIES);
        map["collectionsManifestUid"] = json!(format!("{:x}", bucket.manifest().uid));
        map["vBucketServerMap"] = json!({
            "hashAlgorithm": "CRC",
            "numReplicas": 0,
            "serverList": [kv],
            "vBucketMap": vec![[0]; count],
        });
        let hostname = format!("embedded:{MANAGEMENT_PORT}");
        map["nodes"] = json!([{"hostname": hostname, "ports": {"direct": KV_PORT}}]);
        map
    }
}

impl BucketEnv for Host {
    fn now(&self) -> Now {
        self.clock.now()
    }

    fn random(&self) -> u64 {
        self.clock.random()
    }

    fn spawn(&self, task: Box<dyn Task>) {
        self.runner.add(task);
    }
}

impl KvEnv for Host {
    fn uuid(&self) -> String {
        format!("{:032x}", NODE.0)
    }

    fn bucket(&self, name: &str) -> Option<Arc<Bucket>> {
        self.bucket.get().filter(|_| name == BUCKET).cloned()
    }

    fn is_bucket_damaged(&self, _: &str) -> bool {
        false
    }

    fn users(&self) -> RwLockReadGuard<'_, Users> {
        Host::users(self).read()
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
        (1, self.map_rev())
    }

    fn map_rev(&self) -> i64 {
        1
    }

    fn is_cut_off(&self) -> bool {
        false
    }

    fn map(&self, bucket: Option<&str>) -> Option<Arc<str>> {
        let map = match bucket {
            None => self.map_of_cluster(),
            Some(name) => {
                let bucket: Arc<Bucket> = KvEnv::bucket(self, name)?;
                self.map_of(&bucket)
            }
        };
        Some(map.to_string().into())
    }

    fn not_my_vbucket_map(&self, bucket: Option<&str>) -> Option<Arc<str>> {
        self.map(bucket)
    }

    fn watch_map(&self, watcher: &Arc<dyn Waiter>) {
        self.map_watchers.add(watcher);
    }

    fn renew_map(&self, _: i64) {}

    fn manifest(&self, bucket: &str, visible: &dyn Fn(&Manifest) -> Manifest) -> Option<String> {
        let manifest = visible(&KvEnv::bucket(self, bucket)?.manifest());
        Some(manifest_json(&manifest).to_string())
    }
}

/// Returns scopes and collections in the form of the key-value protocol; IDs are hexadecimal text.
pub(crate) fn manifest_json(manifest: &Manifest) -> Value {
    let collection = |collection: &Collection| {
        let mut shown = json!({"name": collection.name, "uid": format!("{:x}", collection.id)});
        if collection.max_ttl != 0 {
            shown["maxTTL"] = json!(collection.max_ttl.max(0));
        }
        shown
    };
    let scopes = manifest.scopes.iter().map(|scope| {
        let collections: Vec<Value> = scope.collections.iter().map(collection).collect();
        json!({"name": scope.name, "uid": format!("{:x}", scope.id), "collections": collections})
    });
    json!({"uid": format!("{:x}", manifest.uid), "scopes": scopes.collect::<Vec<_>>()})
}
