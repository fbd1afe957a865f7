//! Resolution of versions from another cluster by a test double of a plugin, which may act on the bucket while it is asked.

use crate::versions::{ADD, DELETE, SET, version};
use crate::world::{Answer, Connection, Node, World, request};
use nacre_bucket::Bucket;
use nacre_bucket::conflict::{Conflicts, Resolve, Undecided};
use nacre_cluster::{BucketSettings, EvictionPolicy, HistoryRetention, StorageBackend};

use nacre_types::{Cas, CollectionId, DocKey, Vbid};
use nacre_vbucket::{Command, Condition, ConflictContext, Verdict, Version};
use nacre_xdcr::{History, SourceId, attribute};
use parking_lot::Mutex;
use std::sync::Arc;

const EXISTS: u16 = 0x02;
const TEMPORARY_FAILURE: u16 = 0x86;
/// A CAS of a time before the test's clock.
const CAS: u64 = 1_600_000_000_000_000_000;
const SKIP: u32 = 0x08;

const SET_QUIETLY: u8 = 0xa3;

type Answering = Box<dyn FnMut(&Version, &Version) -> Result<Verdict, Undecided> + Send>;

struct Double {
    answering: Mutex<Answering>,
    /// The pairs of bodies passed to the resolver.
    asked: Mutex<Vec<[String; 2]>>,
    contexts: Mutex<Vec<ConflictContext>>,
    reproached: Mutex<Vec<String>>,
}

impl Resolve for Double {
    fn resolve(
        &self,
        key: &[u8],
        local: &Version,
        remote: &Version,
        context: &ConflictContext,
    ) -> Result<Verdict, Undecided> {
        assert_eq!(key, b"k");
        self.contexts.lock().push(context.clone());
        let text = |version: &Version| String::from_utf8(version.body.clone()).unwrap();
        self.asked.lock().push([text(local), text(remote)]);
        (self.answering.lock())(local, remote)
    }

    fn record_failure(&self, _: &[u8], reason: &str) {
        self.reproached.lock().push(reason.to_owned());
    }
}

/// A node whose bucket has a resolver.
struct Stage {
    world: Arc<World>,
    bucket: Arc<Bucket>,
    double: Arc<Double>,
    connection: Connection,
    node: Arc<Node>,
}

impl Stage {
    fn new(
        answering: impl FnMut(&Version, &Version) -> Result<Verdict, Undecided> + Send + 'static,
    ) -> Stage {
        Stage::with(BucketSettings::default(), answering)
    }

    fn with(
        settings: BucketSettings,
        answering: impl FnMut(&Version, &Version) -> Result<Verdict, Undecided> + Send + 'static,
    ) -> Stage {
        let world = World::new();
        let node = world.node_with(settings);
        let bucket = node.bucket("b").unwrap();
        let double = Arc::new(Double {
            answering: Mutex::new(Box::new(answering)),
            asked: Mutex::default(),
            contexts: Mutex::default(),
            reproached: Mutex::default(),
        });
        Conflicts::set_resolver(&bucket, &*world, Some(Arc::clone(&double) as _));
        let connection = Connection::open(&node);
        Stage { world, bucket, double, connection, node }
    }

    /// Returns all answers to a request.
    fn all(&mut self, bytes: &[u8]) -> Vec<Answer> {
        let (mut answers, ..) = self.connection.give(bytes);
        // The maximum number of questions to a resolver, and one more round.
        for _ in 0..10 {
            self.world.run_tasks();
            answers.extend(self.connection.resume());
        }
        answers
    }

    fn ask(&mut self, bytes: &[u8]) -> Answer {
        self.all(bytes).pop().expect("a loud request has an answer")
    }

    /// Sends a version: its value, revision and CAS.
    fn set(&mut self, value: &str, rev: u64, cas: u64) -> u16 {
        self.ask(&version(SET, value.as_bytes(), rev, cas, 0)).status
    }

    fn asked(&self) -> usize {
        self.double.asked.lock().len()
    }

    fn body(&mut self) -> String {
        String::from_utf8(self.connection.get("k").value).unwrap()
    }

    /// Returns revision and CAS, also of a tombstone.
    fn meta(&mut self) -> (u64, u64) {
        let meta = self.connection.ask(&request(0xa0, &[2], b"k", b""));
        (u64::from_be_bytes(meta.extras[12..20].try_into().unwrap()), meta.cas)
    }
}

/// Writes the document as a client would, while the resolver is being asked.
fn write(bucket: &Bucket, node: &Node, body: &str) {
    let key = DocKey::new(CollectionId::DEFAULT, b"k");
    let command = Command::Store {
        condition: Condition::Always,
        cas: Cas::ANY,
        flags: 0,
        expiry: 0,
        keep_expiry: false,
        body: body.as_bytes(),
    };
    let (reply, ..) = bucket.apply(Vbid(0), key.prefixed(), &command, node.now()).unwrap();
    reply.unwrap();
}

#[test]
fn a_version_without_conflict_is_stored_and_the_resolver_is_not_called() {
    let mut stage = Stage::new(|_, _| Ok(Verdict::KeepLocal));
    assert_eq!(stage.set("there", 5, CAS), 0);
    assert_eq!((stage.body().as_str(), stage.meta()), ("there", (5, CAS)));
    assert_eq!(stage.asked(), 0);
}

#[test]
fn the_resolver_decides_and_not_the_rule_of_the_bucket() {
    let mut stage = Stage::new(|local, remote| {
        Ok(match &remote.body[..] {
            b"keep" => Verdict::KeepLocal,
            b"take" => Verdict::KeepRemote,
            _ => Verdict::Merged([&local.body[..], b"+", &remote.body].concat()),
        })
    });
    stage.set("here", 5, CAS);
    assert_eq!(stage.set("keep", 9, CAS + (9 << 16)), EXISTS, "though it is newer");
    assert_eq!(stage.body(), "here");
    assert_eq!(stage.set("take", 1, CAS + (1 << 16)), 0, "though it is older");
    assert_eq!((stage.body().as_str(), stage.meta()), ("take", (1, CAS + (1 << 16))));
    let remote_cas = CAS + (1 << 40);
    assert_eq!(stage.set("both", 7, remote_cas), 0);
    let (rev, cas) = stage.meta();
    assert_eq!(stage.body(), "take+both");
    assert!(rev == 8 && cas > remote_cas, "revision {rev} and CAS {cas} are above both");
    assert_eq!(stage.asked(), 3);
    // The clock of the other cluster is ahead of this one.
    let ahead = stage.world_now_ns() + 60_000_000_000;
    assert_eq!(stage.set("ahead", 1, ahead), 0);
    assert!(stage.meta().1 > ahead && stage.meta().0 == 9);
}

impl Stage {
    fn world_now_ns(&self) -> u64 {
        self.node.now().unix_ns
    }
}

/// Both clusters receive the two versions in different orders and must keep the same one.
#[test]
fn a_merge_has_the_attributes_and_flags_that_the_bucket_s_rule_would_keep() {
    const ATTRIBUTES: &[u8] = b"\0\0\0\x09\0\0\0\x05_a\x001\0";
    let with_attributes = |body: &str, rev: u64| {
        let mut bytes = version(SET, &[ATTRIBUTES, body.as_bytes()].concat(), rev, CAS + rev, 0);
        bytes[5] = 0x04;
        bytes
    };
    let mut without = version(SET, b"plain", 2, CAS + 2, 0);
    // Flags 8.
    without[24 + 3] = 8;
    for (rev, attributes, flags) in [(1, &b""[..], 8), (3, ATTRIBUTES, 7)] {
        for attributes_first in [true, false] {
            let mut stage = Stage::new(|_, _| Ok(Verdict::Merged(b"merged".to_vec())));
            let mut requests = [with_attributes("other", rev), without.clone()];
            if !attributes_first {
                requests.reverse();
            }
            for request in &requests {
                assert_eq!(stage.ask(request).status, 0);
            }
            assert_eq!(stage.body(), "merged");
            let key = DocKey::new(CollectionId::DEFAULT, b"k");
            let vbucket = stage.bucket.vbucket(Vbid(0)).unwrap();
            let kept = vbucket.find(key.prefixed()).unwrap();
            assert_eq!((kept.xattrs(), kept.meta.flags), (attributes, flags), "{rev}");
            assert_eq!(kept.meta.rev, rev.max(2) + 1);
        }
    }
}

#[test]
fn a_document_that_changes_meanwhile_is_shown_again_and_nothing_is_lost() {
    let mut stage = Stage::new(|_, _| Err(Undecided));
    stage.set("one", 1, CAS);
    let (bucket, node) = (Arc::clone(&stage.bucket), Arc::clone(&stage.node));
    let mut changes = vec!["three", "two"];
    *stage.double.answering.lock() = Box::new(move |local, remote| {
        if let Some(body) = changes.pop() {
            write(&bucket, &node, body);
        }
        Ok(Verdict::Merged([&local.body[..], b"+", &remote.body].concat()))
    });
    assert_eq!(stage.set("remote", 1, CAS + (1 << 16)), 0);
    let shown: Vec<String> =
        stage.double.asked.lock().iter().map(|[local, _]| local.clone()).collect();
    assert_eq!(shown, ["one", "two", "three"]);
    assert_eq!(stage.body(), "three+remote");
}

#[test]
fn a_document_that_always_changes_ends_in_a_temporary_failure() {
    let mut stage = Stage::new(|_, _| Err(Undecided));
    stage.set("0", 1, CAS);
    let (bucket, node) = (Arc::clone(&stage.bucket), Arc::clone(&stage.node));
    let mut changes = 0;
    *stage.double.answering.lock() = Box::new(move |_, _| {
        changes += 1;
        write(&bucket, &node, &changes.to_string());
        Ok(Verdict::KeepRemote)
    });
    assert_eq!(stage.set("remote", 1, CAS + (1 << 16)), TEMPORARY_FAILURE);
    assert_eq!((stage.asked(), stage.body().as_str()), (8, "8"));
}

#[test]
fn no_decision_is_a_temporary_failure_of_one_write() {
    let mut decides = false;
    let mut stage = Stage::new(move |_, _| {
        decides = !decides;
        if decides { Err(Undecided) } else { Ok(Verdict::KeepRemote) }
    });
    stage.set("here", 1, CAS);
    assert_eq!(stage.set("remote", 2, CAS + (1 << 16)), TEMPORARY_FAILURE);
    assert_eq!((stage.body().as_str(), stage.meta()), ("here", (1, CAS)));
    assert_eq!(stage.set("remote", 2, CAS + (1 << 16)), 0);
    assert_eq!(stage.body(), "remote");
}

#[test]
fn a_write_that_cannot_be_stored_fails_temporarily_and_is_reported() {
    let mut stage = Stage::new(|_, remote| {
        let bytes = if remote.body == b"large" { (20 << 20) + 1 } else { 2 };
        Ok(Verdict::Merged(vec![b'1'; bytes]))
    });
    stage.set("here", 1, CAS);
    assert_eq!(stage.set("large", 2, CAS + (1 << 16)), TEMPORARY_FAILURE);
    assert_eq!(stage.ask(&version(DELETE, b"", 3, CAS + (2 << 16), SKIP)).status, 0);
    let expired = version(DELETE, b"", 4, CAS + (3 << 16), 0);
    // Two tombstones have equal bodies, so the resolver is not asked.
    assert_eq!(stage.ask(&expired).status, 0);
    let reproached = stage.double.reproached.lock().clone();
    assert_eq!(reproached, ["what it merged is larger than a document may be"]);
    assert_eq!(stage.asked(), 1);
}

/// Returns what the resolver of a bucket with these settings learns, when the other cluster has changed the first of two
/// versions: the facts, the bucket's name in histories, and the CAS of the first version and of the other cluster's.
fn facts(settings: BucketSettings) -> (ConflictContext, String, u64, u64) {
    const CLUSTER: &str = "c";
    let mut stage = Stage::with(settings, |_, _| Ok(Verdict::Merged(b"both".to_vec())));
    stage.bucket.set_histories(CLUSTER, Some(0));
    let here = SourceId::of(&stage.bucket.uuid, CLUSTER);
    assert_eq!(stage.connection.set("k", "first").status, 0);
    let first = stage.meta().1;
    assert_eq!(stage.connection.set("k", "second").status, 0);
    // The store keeps the first version when it has both.
    stage.world.run_tasks();
    let remote_cas = stage.meta().1 + (1 << 16);
    let there = SourceId::parse("there").unwrap();
    let history = History::of_write(here.clone(), Cas(first)).written_over(there, Cas(remote_cas));
    let attributes = attribute::stamp(&[], &history, Cas(remote_cas)).unwrap();
    let mut bytes = version(SET, &[&attributes[..], b"remote"].concat(), 9, remote_cas, 0);
    bytes[5] = 0x04;
    assert_eq!(stage.ask(&bytes).status, 0);
    assert_eq!(*stage.double.asked.lock(), [["second".to_owned(), "remote".to_owned()]]);
    let context = stage.double.contexts.lock().pop().unwrap();
    (context, here.to_string(), first, remote_cas)
}

#[test]
fn a_resolver_learns_where_versions_come_from_and_the_kept_common_ancestor() {
    let settings = BucketSettings {
        storage_backend: StorageBackend::Magma,
        eviction_policy: EvictionPolicy::Full,
        history: HistoryRetention { seconds: 3600, ..HistoryRetention::default() },
        ..BucketSettings::default()
    };
    let (context, here, first, remote_cas) = facts(settings);
    assert_eq!((&context.scope[..], &context.collection[..]), ("_default", "_default"));
    assert_eq!(context.here, here);
    let local = context.local.unwrap();
    assert_eq!((&local.source, local.previous.len()), (&here, 0));
    let remote = context.remote.unwrap();
    assert_eq!((&remote.source[..], remote.cas), ("there", Cas(remote_cas)));
    assert_eq!(remote.previous, [(here, Cas(first))]);
    let base = context.base.unwrap();
    assert_eq!((&base.body[..], base.cas), (&b"first"[..], Cas(first)));
}

#[test]
fn without_kept_versions_a_resolver_learns_no_common_ancestor() {
    let (context, here, ..) = facts(BucketSettings::default());
    assert_eq!((context.here, context.base), (here, None));
}

#[test]
fn tombstones_are_versions_too() {
    let mut stage = Stage::new(|local, remote| {
        Ok(match (local.is_deleted, remote.is_deleted) {
            (false, true) => Verdict::KeepLocal,
            (true, false) => Verdict::Merged(b"{\"revived\":true}".to_vec()),
            _ => panic!("{local:?} {remote:?}"),
        })
    });
    stage.set("here", 1, CAS);
    assert_eq!(stage.ask(&version(DELETE, b"", 9, CAS + (1 << 16), 0)).status, EXISTS);
    assert_eq!(stage.body(), "here");
    assert_eq!(stage.ask(&version(DELETE, b"", 9, CAS + (2 << 16), SKIP)).status, 0);
    assert_eq!(stage.ask(&version(ADD, b"again", 2, CAS + (3 << 16), 0)).status, 0);
    assert_eq!((stage.body().as_str(), stage.meta().0), ("{\"revived\":true}", 10));
    let found = stage.connection.get("k");
    assert_eq!(found.extras, [0, 0, 0, 7], "flags are those of the version that was alive");
    assert_eq!(stage.ask(&version(ADD, b"more", 99, CAS, 0)).status, EXISTS, "it is there");
    assert_eq!(stage.asked(), 2);
}

#[test]
fn a_write_that_skips_conflict_resolution_does_not_call_the_resolver() {
    let mut stage = Stage::new(|_, _| Ok(Verdict::KeepLocal));
    stage.set("here", 5, CAS);
    assert_eq!(stage.ask(&version(SET, b"forced", 1, CAS, SKIP)).status, 0);
    assert_eq!((stage.body().as_str(), stage.asked()), ("forced", 0));
}

/// Two clusters that merge exchange their merges; this ends because equal bodies are no conflict.
#[test]
fn of_equal_bodies_the_rule_of_the_bucket_keeps_one() {
    let mut stage = Stage::new(|_, _| Ok(Verdict::Merged(b"again".to_vec())));
    stage.set("same", 5, CAS);
    assert_eq!(stage.set("same", 5, CAS), EXISTS);
    assert_eq!(stage.set("same", 4, CAS + (1 << 16)), EXISTS);
    assert_eq!(stage.set("same", 6, CAS), 0);
    assert_eq!((stage.meta(), stage.asked()), ((6, CAS), 0));
}

#[test]
fn quiet_writes_are_decided_about_in_order() {
    let mut stage = Stage::new(|_, remote| {
        Ok(if remote.body == b"loser" { Verdict::KeepLocal } else { Verdict::KeepRemote })
    });
    stage.set("here", 1, CAS);
    let requests = [
        version(SET_QUIETLY, b"first", 2, CAS + (1 << 16), 0),
        version(SET_QUIETLY, b"loser", 3, CAS + (2 << 16), 0),
        version(SET_QUIETLY, b"second", 4, CAS + (3 << 16), 0),
        request(0x0a, b"", b"", b""),
    ];
    // Later requests wait for parked ones, so send each after the previous answer.
    let mut statuses = Vec::new();
    for request in &requests {
        statuses.extend(stage.all(request).iter().map(|answer| answer.status));
    }
    assert_eq!(statuses, [EXISTS, 0], "success is not answered, but for the no-op");
    assert_eq!(stage.body(), "second");
    let shown: Vec<String> =
        stage.double.asked.lock().iter().map(|[local, _]| local.clone()).collect();
    assert_eq!(shown, ["here", "first", "first"]);
}

#[test]
fn the_resolver_receives_a_document_on_disk_in_full() {
    for eviction_policy in [EvictionPolicy::ValueOnly, EvictionPolicy::Full] {
        let settings =
            BucketSettings { ram_quota_mb: 100, eviction_policy, ..BucketSettings::default() };
        let mut stage = Stage::with(settings, |_, _| Ok(Verdict::KeepRemote));
        let body = "x".repeat(1 << 20);
        assert_eq!(stage.set(&body, 1, CAS), 0);
        let key = DocKey::new(CollectionId::DEFAULT, b"k");
        let bucket = Arc::clone(&stage.bucket);
        let is_resident = || {
            let vbucket = bucket.vbucket(Vbid(0)).unwrap();
            vbucket.find(key.prefixed()).is_some_and(|known| known.is_resident())
        };
        // A pass evicts only about the requested share, so one pass may miss the document.
        let mut passes = 0;
        while is_resident() {
            bucket.make_room(Vbid(0), 100, stage.node.now());
            passes += 1;
            assert!(passes < 20, "{eviction_policy:?}");
        }
        assert_eq!(stage.set("remote", 2, CAS + (1 << 16)), 0, "{eviction_policy:?}");
        assert_eq!(*stage.double.asked.lock(), [[body, "remote".to_owned()]]);
        assert_eq!(stage.body(), "remote");
    }
}

#[test]
fn without_its_resolver_a_bucket_decides_by_its_rule_again() {
    let mut stage = Stage::new(|_, _| Ok(Verdict::KeepLocal));
    stage.set("here", 5, CAS);
    assert_eq!(stage.set("newer", 6, CAS), EXISTS);
    Conflicts::set_resolver(&stage.bucket, &*stage.world, None);
    assert_eq!(stage.set("newer", 6, CAS), 0);
    assert_eq!(stage.set("older", 5, CAS), EXISTS);
    assert_eq!(stage.asked(), 1);
}
