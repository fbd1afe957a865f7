//! Merges: their contents, the objects that they leave unchanged, and a process that ends at each
//! operation of the store.

use crate::source::{Answer, Message, SeededRandom, Vbucket, with_record};
use crate::unreliable::UnreliableStore;
use nacre_backup::{
    BackupId, BucketSource, Digest, Error, MergeRange, Reader, Repository, Store, Task,
    TaskOptions, merge, verify,
};
use std::collections::BTreeMap;
use std::sync::Arc;

const VBUCKETS: u16 = 2;

/// The digest of the documents of each vBucket.
type Digests = Vec<BTreeMap<u32, Digest>>;

/// A repository, and the source of its backups.
struct World {
    store: Arc<UnreliableStore>,
    chance: SeededRandom,
    vbuckets: Vec<Vbucket>,
    now_ms: u64,
}

impl World {
    fn new(seed: u64) -> World {
        let store = Arc::new(UnreliableStore::new(seed));
        Repository::create(&*store, BackupId::new(1, 1, None), None).unwrap();
        let mut chance = SeededRandom(seed);
        let vbuckets = (0..VBUCKETS).map(|_| Vbucket::new(&mut chance)).collect();
        World { store, chance, vbuckets, now_ms: 5 }
    }

    fn repository(&self) -> Repository {
        Repository::open(Arc::clone(&self.store) as Arc<dyn Store>, None).unwrap()
    }

    fn options(&mut self) -> TaskOptions {
        self.now_ms += 1;
        TaskOptions { now_ms: self.now_ms, random: [self.now_ms as u8; 16], is_full: false }
    }

    /// Backs up the source after `changes` changes of each vBucket.
    fn take(&mut self, changes: u64) -> BackupId {
        let (repository, options) = (self.repository(), self.options());
        let source = BucketSource { name: "b".into(), uuid: "u".into(), vbuckets: VBUCKETS };
        let task = Task::begin(&repository, &[source], options).unwrap();
        let mut worker = task.worker();
        for vbid in 0..VBUCKETS {
            let vbucket = &mut self.vbuckets[usize::from(vbid)];
            (0..changes).for_each(|_| vbucket.change(&mut self.chance));
            let mut take = worker.begin(0, vbid, vbucket.high());
            loop {
                match vbucket.ask(take.request()) {
                    Answer::Rollback(seqno) => take.rolled_back(seqno).unwrap(),
                    Answer::Accepted(log) => break take.accepted(&log).unwrap(),
                }
            }
            let mut position = take.request().start;
            while !take.is_complete() {
                for message in vbucket.snapshot(position, &mut self.chance) {
                    match message {
                        Message::Snapshot(end) => take.snapshot(end, false).unwrap(),
                        Message::Advanced(seqno) => {
                            take.advanced(seqno).unwrap();
                            position = seqno;
                        }
                        Message::Record { seqno, key, value } => {
                            with_record(seqno, key, value, |record| {
                                take.record(record, &mut worker).unwrap();
                            });
                            position = seqno;
                        }
                    }
                }
            }
            worker.finish(0, take).unwrap();
        }
        worker.flush().unwrap();
        task.complete(self.now_ms, "test", BTreeMap::new(), BTreeMap::new()).unwrap().id
    }

    fn merge(&mut self, last: BackupId, first: Option<BackupId>) -> Result<BackupId, Error> {
        let (repository, options) = (self.repository(), self.options());
        let range = MergeRange { last, first };
        merge(&repository, range, options, "test").map(|manifest| manifest.id)
    }

    /// Returns the digests of a backup.
    fn digests(&self, id: BackupId) -> Digests {
        let repository = self.repository();
        assert_eq!(verify(&repository, id, true).unwrap().findings, [], "{id}");
        let reader = Reader::new(&repository, id, "b").unwrap();
        (0..VBUCKETS).map(|vbid| reader.digest(vbid).unwrap()).collect()
    }
}

#[test]
fn a_merge_has_the_data_of_the_newest_backup_and_needs_no_other() {
    let mut world = World::new(7);
    let ids = [world.take(20), world.take(9), world.take(0), world.take(9)];
    let before: Vec<Digests> = ids.iter().map(|id| world.digests(*id)).collect();
    let merged = world.merge(ids[3], None).unwrap();
    assert_eq!(world.digests(merged), before[3]);
    for (id, before) in ids.iter().zip(&before) {
        assert_eq!(world.digests(*id), *before, "{id} is read as before");
    }
    let repository = world.repository();
    let read = repository.manifest(merged).unwrap();
    assert_eq!((&read.0.merged[..], read.0.buckets[0].parent.as_ref()), (&ids[..], None));
    let last = repository.manifest(ids[3]).unwrap();
    assert_eq!(read.0.time_ms, last.0.time_ms, "the moment that it shows");
    let records = |id: &BackupId| {
        let read = repository.manifest(*id).unwrap();
        read.0.buckets[0].parts.iter().map(|part| part.sets + part.deletions).sum::<u64>()
    };
    assert!(records(&merged) < ids.iter().map(records).sum(), "replaced versions are left out");
    for part in &read.0.buckets[0].parts {
        let oldest = repository.manifest(ids[0]).unwrap().0.buckets[0].part(part.vbid).unwrap().to;
        assert_eq!(part.full_to(), oldest, "tombstones of increments are told apart");
    }
    for id in ids.iter().rev() {
        repository.remove(*id).unwrap();
    }
    assert_eq!(world.digests(merged), before[3]);
    let next = world.take(5);
    let repository = world.repository();
    let read = repository.manifest(next).unwrap();
    assert_eq!(read.0.buckets[0].parent.as_ref().map(|parent| parent.id), Some(merged));
    assert!(read.0.buckets[0].parts.iter().all(|part| part.base == Some(merged)));
    world.digests(next);
}

#[test]
fn increments_are_merged_into_one_with_the_same_parent() {
    let mut world = World::new(8);
    let ids = [world.take(20), world.take(9), world.take(9)];
    let before = world.digests(ids[2]);
    let merged = world.merge(ids[2], Some(ids[1])).unwrap();
    assert_eq!(world.digests(merged), before);
    let repository = world.repository();
    let read = repository.manifest(merged).unwrap();
    assert_eq!(read.0.merged, ids[1..]);
    assert!(read.0.buckets[0].parts.iter().all(|part| part.base == Some(ids[0])));
    assert!(repository.remove(ids[0]).is_err(), "the merge continues it");
    repository.remove(ids[2]).unwrap();
    repository.remove(ids[1]).unwrap();
    assert_eq!(world.digests(merged), before);
}

#[test]
fn a_merge_omits_changes_that_a_failover_discarded() {
    for seed in 0..40 {
        let mut world = World::new(seed);
        let first = world.take(12);
        world.take(6);
        for vbid in 0..usize::from(VBUCKETS) {
            world.vbuckets[vbid].fail_over(&mut world.chance);
        }
        world.take(3);
        let last = world.take(2);
        let before = world.digests(last);
        for first in [None, Some(first), world.repository().backups().unwrap().get(1).copied()] {
            let merged = world.merge(last, first).unwrap();
            assert_eq!(world.digests(merged), before, "seed {seed} from {first:?}");
            world.repository().remove(merged).unwrap();
        }
    }
}

#[test]
fn an_interrupted_merge_changes_no_backup() {
    let mut outcomes = [0; 2];
    for seed in 0..4 {
        let mut world = World::new(seed);
        let ids = [world.take(15), world.take(6), world.take(6)];
        let before: Vec<Digests> = ids.iter().map(|id| world.digests(*id)).collect();
        for step in 1.. {
            world.store.begin(Some(step), 0, false);
            let outcome = (|| {
                let store = Arc::clone(&world.store) as Arc<dyn Store>;
                let repository = Repository::open(store, None)?;
                let options = TaskOptions { now_ms: 100, random: [step as u8; 16], is_full: false };
                let range = MergeRange { last: ids[2], first: None };
                merge(&repository, range, options, "test")
            })();
            let has_crashed = world.store.is_dead();
            world.store.begin(None, 0, false);
            for (id, before) in ids.iter().zip(&before) {
                assert_eq!(world.digests(*id), *before, "seed {seed}, step {step}: {id}");
            }
            let repository = world.repository();
            let others: Vec<BackupId> =
                repository.backups().unwrap().into_iter().filter(|id| !ids.contains(id)).collect();
            for id in &others {
                // The manifest may be partly written: it is then refused with a named error.
                match repository.manifest(*id) {
                    Ok(_) => assert_eq!(world.digests(*id), before[2]),
                    Err(error) => assert!(error.is_damage(), "{error}"),
                }
            }
            outcomes[usize::from(outcome.is_ok())] += 1;
            if outcome.is_ok() && !has_crashed {
                assert_eq!(world.digests(others[0]), before[2]);
                assert_eq!(repository.unfinished().unwrap(), []);
                break;
            }
            let unfinished = repository.unfinished().unwrap();
            if let Some(id) = unfinished.first() {
                let source =
                    BucketSource { name: "b".into(), uuid: "u".into(), vbuckets: VBUCKETS };
                let options = TaskOptions { now_ms: 100, random: [9; 16], is_full: false };
                assert!(Task::resume(&repository, *id, &[source], options).is_err());
                let refused = world.merge(ids[2], None).unwrap_err().to_string();
                assert!(refused.contains("complete or remove it first"), "{refused}");
            }
            unfinished.iter().chain(&others).for_each(|id| repository.remove(*id).unwrap());
        }
    }
    assert!(outcomes[0] > 40 && outcomes[1] >= 4, "{outcomes:?}");
}

#[test]
fn backups_that_cannot_be_merged_are_refused() {
    let mut world = World::new(9);
    let first = world.take(9);
    let refused = |outcome: Result<BackupId, Error>| outcome.unwrap_err().to_string();
    assert!(refused(world.merge(first, None)).contains("nothing to merge"));
    let second = world.take(9);
    assert!(refused(world.merge(first, None)).contains("nothing to merge"));
    assert!(refused(world.merge(second, Some(second))).contains("nothing to merge"));
    let third = world.take(9);
    let said = refused(world.merge(second, None));
    assert!(said.contains(&format!("the backup {third} of b is newer")), "{said}");
    let other = BackupId::new(3, 3, None);
    let said = refused(world.merge(third, Some(other)));
    assert!(said.contains(&format!("does not continue {other}")), "{said}");
    let object = format!("backups/{second}/data/0.nbk");
    world.store.objects.tamper(&object, None);
    let before = world.repository().backups().unwrap();
    assert!(world.merge(third, None).unwrap_err().is_damage());
    assert_eq!(world.repository().backups().unwrap(), before);
    assert_eq!(world.repository().unfinished().unwrap(), [], "nothing of it is left");
}
