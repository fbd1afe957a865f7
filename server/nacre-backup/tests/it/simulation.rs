//! Backups of a changing source into a store that fails: each complete backup must have the state of the source.
//!
//! `NACRE_BACKUP_SEEDS` sets the number of seeds.

use crate::source::{Answer, Message, SeededRandom, State, Vbucket, apply, with_record};
use crate::unreliable::UnreliableStore;
use nacre_backup::{
    BackupId, BucketSource, Error, KeySlot, MergeRange, Reader, Repository, SHARE_NUMBERS, Store,
    Task, TaskOptions, VbucketTake, Worker, merge, verify,
};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const SEEDS: u64 = 300;
const VBUCKETS: u16 = 3;
const STEPS: u64 = 60;
const BUCKET: &str = "travel";
const PASSPHRASE: &str = "open sesame";

struct Simulation {
    seed: u64,
    chance: SeededRandom,
    store: Arc<UnreliableStore>,
    vbuckets: Vec<Vbucket>,
    passphrase: Option<&'static str>,
    /// The state of each vBucket when it was taken: last seqno and state. A vBucket with a failed attempt may have been taken
    /// twice.
    taken: BTreeMap<(BackupId, u16), Vec<(u64, State)>>,
    /// Backups that were reported as complete.
    acknowledged: BTreeSet<BackupId>,
    /// For each merge, the backup of the source that it comes from. That backup may have been removed meanwhile.
    origins: RefCell<BTreeMap<BackupId, BackupId>>,
    merges: u64,
    /// Processes that took some of the vBuckets of another process's backup.
    shares: u64,
    now_ms: u64,
}

impl Simulation {
    fn new(seed: u64) -> Simulation {
        let mut chance = SeededRandom(seed);
        let store = Arc::new(UnreliableStore::new(seed));
        let passphrase = chance.one_in(4).then_some(PASSPHRASE);
        let slot = passphrase.map(|passphrase| KeySlot::new(passphrase, 1, [seed as u8; 48]).0);
        Repository::create(&*store, BackupId::new(1, 1, None), slot).unwrap();
        let vbuckets = (0..VBUCKETS).map(|_| Vbucket::new(&mut chance)).collect();
        let (taken, acknowledged) = (BTreeMap::new(), BTreeSet::new());
        let (origins, merges, shares, now_ms) = (RefCell::default(), 0, 0, 1_000);
        Simulation {
            seed,
            chance,
            store,
            vbuckets,
            passphrase,
            taken,
            acknowledged,
            origins,
            merges,
            shares,
            now_ms,
        }
    }

    fn repository(&self) -> Result<Repository, Error> {
        Repository::open(Arc::clone(&self.store) as Arc<dyn Store>, self.passphrase)
    }

    fn run(&mut self) {
        for _ in 0..STEPS {
            let at = self.chance.below(VBUCKETS.into()) as usize;
            match self.chance.below(11) {
                0..5 => {
                    for _ in 0..self.chance.below(5) {
                        self.vbuckets[at].change(&mut self.chance);
                    }
                }
                5 => self.vbuckets[at].fail_over(&mut self.chance),
                6 => self.vbuckets[at].purge(&mut self.chance),
                7..9 => self.attempt(),
                9 => self.attempt_merge(),
                _ => self.remove_one(),
            }
        }
        self.store.begin(None, 0, false);
        self.check();
        self.damage();
    }

    /// Runs a process that takes a backup, and may end at any operation of the store.
    fn attempt(&mut self) {
        let crash_at = self.chance.one_in(2).then(|| 1 + self.chance.below(40));
        let failures = if self.chance.one_in(3) { 8 } else { 0 };
        self.store.begin(crash_at, failures, self.chance.one_in(3));
        // The clock sometimes goes back.
        self.now_ms =
            (self.now_ms + self.chance.below(1000)).saturating_sub(self.chance.below(300));
        let outcome = self.take();
        match outcome {
            Ok(()) | Err(Error::Store(_) | Error::Invalid(_) | Error::Damaged { .. }) => {}
            Err(error) => panic!("seed {}: {error:?}", self.seed),
        }
        self.store.begin(None, 0, false);
    }

    fn take(&mut self) -> Result<(), Error> {
        let repository = self.repository()?;
        let source = BucketSource { name: BUCKET.into(), uuid: "u".into(), vbuckets: VBUCKETS };
        let mut random = [0; 16];
        random[..8].copy_from_slice(&self.chance.next().to_le_bytes());
        random[8..].copy_from_slice(&self.chance.next().to_le_bytes());
        let options = TaskOptions { now_ms: self.now_ms, random, is_full: self.chance.one_in(12) };
        let unfinished = repository.unfinished()?.last().copied();
        let task = match unfinished {
            Some(id) if !self.chance.one_in(4) => {
                match Task::resume(&repository, id, std::slice::from_ref(&source), options) {
                    // Nothing of the backup can be continued.
                    Err(error) if !self.store.is_dead() && is_hopeless(&error) => {
                        return repository.remove(id);
                    }
                    task => task?,
                }
            }
            _ => Task::begin(&repository, &[source], options)?,
        };
        self.origins.borrow_mut().remove(&task.id());
        for _ in 0..8 {
            let remaining = task.remaining(0);
            if remaining.is_empty() {
                break;
            }
            if self.chance.one_in(4) {
                let taken = self.take_on_other_node(task.id(), &remaining);
                match taken.and_then(|()| task.refresh()) {
                    Err(error) if self.store.is_dead() => return Err(error),
                    Err(Error::Store(_)) | Ok(()) => continue,
                    Err(error) => return Err(error),
                }
            }
            let mut worker = task.worker();
            let taken = remaining
                .into_iter()
                .try_for_each(|vbid| self.take_vbucket(&task, &mut worker, vbid));
            match taken.and_then(|()| worker.flush()) {
                Err(error) if self.store.is_dead() => return Err(error),
                Err(Error::Store(_)) | Ok(()) => {}
                Err(error) => return Err(error),
            }
        }
        for _ in 0..4 {
            match task.complete(self.now_ms, "test", BTreeMap::new(), BTreeMap::new()) {
                Ok(manifest) => {
                    self.acknowledged.insert(manifest.id);
                    return Ok(());
                }
                Err(Error::Store(_)) if !self.store.is_dead() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Runs another process that takes some of the vBuckets of the same backup.
    fn take_on_other_node(&mut self, id: BackupId, remaining: &[u16]) -> Result<(), Error> {
        let repository = self.repository()?;
        let mut random = [2; 16];
        random[..8].copy_from_slice(&self.chance.next().to_le_bytes());
        let range = 1 + self.chance.below(4000) as u32;
        let task = Task::join(&repository, id, range * SHARE_NUMBERS, random)?;
        let mut worker = task.worker();
        for vbid in remaining {
            if self.chance.one_in(2) {
                self.take_vbucket(&task, &mut worker, *vbid)?;
            }
        }
        worker.flush()?;
        self.shares += 1;
        Ok(())
    }

    /// Takes a vBucket. A stream that ends early leaves it for the next round.
    fn take_vbucket(
        &mut self,
        task: &Task<'_>,
        worker: &mut Worker<'_>,
        vbid: u16,
    ) -> Result<(), Error> {
        let at = usize::from(vbid);
        let mut take = worker.begin(0, vbid, self.vbuckets[at].high());
        for _ in 0..self.chance.below(3) {
            self.vbuckets[at].change(&mut self.chance);
        }
        if self.chance.one_in(8) {
            // A failover between the request for the high seqno and the stream.
            self.vbuckets[at].fail_over(&mut self.chance);
        }
        loop {
            match self.vbuckets[at].ask(take.request()) {
                Answer::Rollback(seqno) => take.rolled_back(seqno)?,
                Answer::Accepted(log) => break take.accepted(&log)?,
            }
        }
        let mut position = take.request().start;
        while !take.is_complete() {
            if self.vbuckets[at].high() <= position {
                // The rest is lost: the stream would wait for a long time.
                return Ok(());
            }
            let messages = self.vbuckets[at].snapshot(position, &mut self.chance);
            for message in messages {
                position = feed(&mut take, worker, message)?.unwrap_or(position);
                if take.is_complete() {
                    break;
                }
            }
            match self.chance.below(8) {
                0 => {
                    // The node and its stream are gone.
                    self.vbuckets[at].fail_over(&mut self.chance);
                    return Ok(());
                }
                1 => self.vbuckets[at].change(&mut self.chance),
                _ => {}
            }
        }
        let state = self.vbuckets[at].state(position);
        self.taken.entry((task.id(), vbid)).or_default().push((position, state));
        worker.finish(0, take)
    }

    /// Runs a process that merges the newest backup with those that it continues, and may end at any operation of the store.
    fn attempt_merge(&mut self) {
        let repository = self.repository().unwrap();
        // An interrupted backup would prevent the merge.
        for id in repository.unfinished().unwrap() {
            let _ = repository.remove(id);
        }
        let backups = repository.backups().unwrap();
        let Some(last) = backups.last().copied() else { return };
        let first = self.chance.one_in(3).then(|| {
            let at = self.chance.below(backups.len() as u64) as usize;
            backups[at]
        });
        let crash_at = self.chance.one_in(2).then(|| 1 + self.chance.below(60));
        let failures = if self.chance.one_in(4) { 20 } else { 0 };
        self.store.begin(crash_at, failures, self.chance.one_in(3));
        let outcome = self.merge(MergeRange { last, first });
        match outcome {
            Ok(id) => {
                self.acknowledged.insert(id);
                self.merges += 1;
            }
            Err(Error::Store(_) | Error::Invalid(_) | Error::Damaged { .. }) => {}
            Err(error) => panic!("seed {}: {error:?}", self.seed),
        }
        self.store.begin(None, 0, false);
        let repository = self.repository().unwrap();
        for id in repository.backups().unwrap() {
            if !backups.contains(&id) {
                // The ID of a removed backup may be used again.
                self.origins.borrow_mut().remove(&id);
            }
            self.origin(&repository, id);
        }
    }

    fn merge(&mut self, range: MergeRange) -> Result<BackupId, Error> {
        let repository = self.repository()?;
        let mut random = [1; 16];
        random[..8].copy_from_slice(&self.chance.next().to_le_bytes());
        let options = TaskOptions { now_ms: self.now_ms, random, is_full: false };
        merge(&repository, range, options, "test").map(|manifest| manifest.id)
    }

    /// Returns the backup that was taken from the source and that `id` may be a merge of.
    fn origin(&self, repository: &Repository, id: BackupId) -> BackupId {
        let merged = self.origins.borrow().get(&id).copied();
        let found = merged.or_else(|| {
            let read = repository.manifest(id).ok()?;
            Some(read.0.merged.last().map_or(id, |last| self.origin(repository, *last)))
        });
        let origin = found.unwrap_or(id);
        self.origins.borrow_mut().insert(id, origin);
        origin
    }

    fn remove_one(&mut self) {
        let repository = self.repository().unwrap();
        let backups = repository.backups().unwrap();
        if backups.is_empty() {
            return;
        }
        let id = backups[self.chance.below(backups.len() as u64) as usize];
        self.store.begin(self.chance.one_in(4).then(|| 1 + self.chance.below(30)), 0, false);
        if repository.remove(id).is_ok() || repository.manifest(id).is_err() {
            self.acknowledged.remove(&id);
        }
        self.store.begin(None, 0, false);
        if self.repository().unwrap().manifest(id).is_err() {
            self.acknowledged.remove(&id);
        }
    }

    /// Checks that every complete backup has a state of the source, and that backups reported as complete can be read.
    fn check(&self) {
        let (seed, repository) = (self.seed, self.repository().unwrap());
        for id in &self.acknowledged {
            assert!(repository.manifest(*id).is_ok(), "seed {seed}: the backup {id} is gone");
        }
        for id in repository.backups().unwrap() {
            if !self.acknowledged.contains(&id) && repository.manifest(id).is_err() {
                // The process ended while it wrote the manifest.
                continue;
            }
            let verified = verify(&repository, id, true).unwrap();
            assert_eq!(verified.findings, [], "seed {seed}: {id}");
            for vbid in 0..VBUCKETS {
                let restored = restore(&repository, id, vbid).unwrap();
                self.compare(id, vbid, &restored);
            }
        }
    }

    fn compare(&self, id: BackupId, vbid: u16, restored: &(u64, State)) {
        let origin = self.origin(&self.repository().unwrap(), id);
        let taken = &self.taken[&(origin, vbid)];
        assert!(
            taken.contains(restored),
            "seed {}: vBucket {vbid} of {id} is {restored:?}, and was one of {taken:?}",
            self.seed
        );
    }

    /// Flips a bit, and checks that readers notice it or that it changes nothing in a restore.
    fn damage(&mut self) {
        let names = self.store.objects.list("backups/").unwrap();
        for _ in 0..8 {
            if names.is_empty() {
                return;
            }
            let name = &names[self.chance.below(names.len() as u64) as usize];
            let bytes = self.store.objects.read(name, 0..u64::MAX).unwrap();
            let mut changed = bytes.clone();
            let at = self.chance.below(bytes.len() as u64) as usize;
            let Some(byte) = changed.get_mut(at) else { continue };
            *byte ^= 1 << self.chance.below(8);
            self.store.objects.tamper(name, Some(changed));
            let repository = self.repository().unwrap();
            for id in self.acknowledged.clone() {
                for vbid in 0..VBUCKETS {
                    match restore(&repository, id, vbid) {
                        Ok(restored) => self.compare(id, vbid, &restored),
                        // Another format is one bit away.
                        Err(Error::Newer { .. }) => {}
                        Err(error) => assert!(error.is_damage(), "seed {}: {error:?}", self.seed),
                    }
                }
            }
            self.store.objects.tamper(name, Some(bytes));
        }
    }
}

/// Returns true if an interrupted backup cannot be continued, because it has no progress or is a merge.
fn is_hopeless(error: &Error) -> bool {
    error.is_damage() || error.to_string().contains("is a merge")
}

/// Passes a message to a vBucket that is being taken; returns the seqno that it has reached.
fn feed(
    take: &mut VbucketTake,
    worker: &mut Worker<'_>,
    message: Message,
) -> Result<Option<u64>, Error> {
    match message {
        Message::Snapshot(end) => take.snapshot(end, false).map(|()| None),
        Message::Advanced(seqno) => take.advanced(seqno).map(|()| Some(seqno)),
        Message::Record { seqno, key, value } => {
            with_record(seqno, key, value, |record| take.record(record, worker))?;
            Ok(Some(seqno))
        }
    }
}

/// Returns the last seqno and the state of a vBucket of a backup.
fn restore(repository: &Repository, id: BackupId, vbid: u16) -> Result<(u64, State), Error> {
    let reader = Reader::new(repository, id, BUCKET)?;
    let to = reader.lineage(vbid)?.first().map_or(0, |(_, part)| part.to);
    let mut state = State::new();
    reader.for_each(vbid, |_, record| {
        apply(&mut state, record);
        Ok::<(), Error>(())
    })?;
    Ok((to, state))
}

#[test]
fn case_02_04_05_a_complete_backup_equals_its_source_despite_faults() {
    let asked = std::env::var("NACRE_BACKUP_SEEDS").ok();
    let seeds = asked.map_or(SEEDS, |asked| asked.parse().expect("NACRE_BACKUP_SEEDS is a number"));
    let (mut complete, mut parts, mut dropped, mut merges, mut shares) = (0, 0, 0, 0, 0);
    for seed in 0..seeds {
        let mut simulation = Simulation::new(seed);
        simulation.run();
        merges += simulation.merges;
        shares += simulation.shares;
        let repository = simulation.repository().unwrap();
        for id in &simulation.acknowledged {
            let manifest = repository.manifest(*id).unwrap();
            complete += 1;
            parts += manifest.0.buckets[0].parts.iter().filter(|part| part.base.is_some()).count();
            dropped +=
                manifest.0.buckets[0].parts.iter().filter(|part| part.dropped.is_some()).count();
        }
    }
    // A simulation without events would show nothing.
    assert!(complete as u64 > seeds, "{complete} backups");
    assert!(merges > seeds / 4, "{merges} merges");
    assert!(shares > seeds / 2, "{shares} shares");
    assert!(
        parts as u64 > seeds && dropped as u64 > seeds / 4,
        "{parts} increments, {dropped} rolled back"
    );
}
