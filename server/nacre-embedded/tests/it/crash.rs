//! Power cuts at every moment, over both stores, the log with and without encryption, and at each durability setting: every
//! durable write must exist, and the content of each vBucket must be a prefix of its history.
//!
//! | setting | durable writes |
//! | --- | --- |
//! | `Always` | each write that has returned |
//! | `After(10 ms)` | each write that returned at least 10 ms ago, once the database was polled |
//! | `Never` | each write before the last flush |
//!
//! The tests cut the log on a simulated disk at each of its operations, with several outcomes for unsynced bytes; they cut sled
//! in files, where the changes of a sync are lost, kept or torn. `NACRE_POWER_CUTS` sets the total number of cuts; without it the
//! tests make a few. Run all with `cargo xtask sim --power-cuts 50000`.

use crate::{Chance, Hand, by_hand, open};
use nacre::{Clock, Collection, Db, Options, Range, StoreKind, Sync, Write};
use nacre_store::{LogOptions, LogStore, Loss, MasterKey, SimDisk};
use nacre_types::Vbid;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The delay of the setting `After`.
const DELAY: Duration = Duration::from_millis(10);
const SETTINGS: [(&str, Sync); 3] =
    [("always", Sync::Always), ("after 10 ms", Sync::After(DELAY)), ("never", Sync::Never)];
/// Rounds of a workload.
const ROUNDS: usize = 60;
/// Cuts over the log for each cut over sled, which copies files.
const LOG_CUTS_FOR_SLED: usize = 4;
const VBUCKETS: u16 = 4;
const KEYS: u64 = 12;

/// Returns the number of cuts over the log, and over sled, at each setting.
fn wanted() -> (usize, usize) {
    let Ok(asked) = std::env::var("NACRE_POWER_CUTS") else { return (500, 48) };
    let asked: usize = asked.parse().expect("NACRE_POWER_CUTS is a number");
    let of_sled = asked.div_ceil(SETTINGS.len() * (LOG_CUTS_FOR_SLED + 1));
    (of_sled * LOG_CUTS_FOR_SLED, of_sled)
}

type Contents = BTreeMap<String, Vec<u8>>;

/// Every state of each vBucket, and the times at which states were durable.
struct Model {
    states: Vec<Vec<Contents>>,
    /// The number of disk operations at which the states were durable.
    durable: Vec<(usize, Vec<usize>)>,
}

impl Model {
    fn new() -> Model {
        let states = vec![vec![Contents::new()]; usize::from(VBUCKETS)];
        Model { states, durable: vec![(0, vec![0; usize::from(VBUCKETS)])] }
    }

    /// Makes a random write, in the database and in the model.
    fn step(&mut self, docs: &Collection, chance: &mut Chance) {
        let key = format!("k{}", chance.below(KEYS));
        let vbid = Vbid::of(key.as_bytes(), VBUCKETS).index();
        let mut next = self.states[vbid].last().unwrap().clone();
        if chance.below(4) == 0 && next.remove(&key).is_some() {
            docs.remove(&key, Write::new()).unwrap();
        } else {
            let value = vec![b'a' + chance.below(26) as u8; chance.below(900) as usize];
            docs.upsert(&key, &value, Write::new()).unwrap();
            next.insert(key, value);
        }
        self.states[vbid].push(next);
    }

    fn latest(&self) -> Vec<usize> {
        self.states.iter().map(|states| states.len() - 1).collect()
    }

    /// Records that these states are durable.
    fn synced(&mut self, operations: usize, states: Vec<usize>) {
        self.durable.push((operations, states));
    }

    /// Compares the documents with those that had to exist after the given number of operations.
    fn judge(&self, docs: &Collection, operations: usize) -> Result<(), String> {
        let mut found = vec![Contents::new(); usize::from(VBUCKETS)];
        for document in docs.scan(Range::all()).map_err(|error| error.to_string())? {
            let document = document.map_err(|error| error.to_string())?;
            let key = String::from_utf8(document.key().to_vec()).unwrap();
            let vbid = Vbid::of(document.key(), VBUCKETS).index();
            found[vbid].insert(key, document.body().to_vec());
        }
        let (_, least) = self.durable.iter().rfind(|(at, _)| *at <= operations).unwrap();
        for (vbid, (found, states)) in found.iter().zip(&self.states).enumerate() {
            if !states[least[vbid]..].contains(found) {
                return Err(format!("vBucket {vbid} has {found:?}, which is none of its states"));
            }
        }
        Ok(())
    }
}

/// Makes random writes, and records which must be durable.
struct Workload {
    model: Model,
    chance: Chance,
    clock: Arc<Hand>,
    sync: Sync,
    /// Times of writes, in nanoseconds, and the states after them.
    written: Vec<(u64, Vec<usize>)>,
}

impl Workload {
    fn new(seed: u64, sync: Sync) -> Workload {
        let (model, clock) = (Model::new(), Arc::new(Hand::default()));
        Workload { model, chance: Chance(seed), clock, sync, written: Vec::new() }
    }

    fn options(&self) -> Options {
        let clock: Arc<dyn Clock> = Arc::clone(&self.clock) as _;
        Options { vbuckets: VBUCKETS, sync: self.sync, quota_mib: 4, clock, ..by_hand() }
    }

    /// Records that all writes are durable.
    fn all_synced(&mut self, operations: usize) {
        self.written.clear();
        self.model.synced(operations, self.model.latest());
    }

    /// Polls the database, and records the writes that are old enough to be durable.
    fn poll(&mut self, db: &Db, operations: impl Fn() -> usize) {
        db.poll().unwrap();
        let Some(due) = self.clock.ns().checked_sub(DELAY.as_nanos() as u64) else { return };
        if let Some((_, states)) = self.written.iter().rfind(|(at, _)| *at <= due) {
            self.model.synced(operations(), states.clone());
        }
    }

    /// Makes `writes` writes. `operations` returns the number of disk operations.
    fn round(&mut self, db: &Db, writes: u64, operations: impl Fn() -> usize) {
        for _ in 0..writes {
            self.model.step(&db.default_collection(), &mut self.chance);
            match self.sync {
                Sync::Always => self.all_synced(operations()),
                Sync::After(_) => {
                    // Polled at once, so that the database sees the write at its time.
                    self.poll(db, &operations);
                    self.written.push((self.clock.ns(), self.model.latest()));
                    self.clock.pass(Duration::from_micros(self.chance.below(8_000)));
                    self.poll(db, &operations);
                }
                Sync::Never => {}
            }
        }
        if self.sync == Sync::Never {
            db.flush().unwrap();
            self.all_synced(operations());
        }
    }
}

/// Makes up to `wanted` cuts over the log with one seed; returns the number.
fn cut_log(seed: u64, sync: Sync, is_encrypted: bool, wanted: usize) -> usize {
    let master = is_encrypted.then(|| MasterKey::random().unwrap());
    let layout = LogOptions { segment_bytes: Options::SEGMENT_BYTES_MIN, seed };
    let disk = SimDisk::new();
    let mut work = Workload::new(seed, sync);
    let options = work.options();
    let open_on = |disk: &Arc<SimDisk>, create, clean| {
        let (disk, master) = (Arc::clone(disk), master.clone());
        let store = LogStore::open_on_with_key(disk as Arc<_>, create, layout, master);
        Db::open_over(Arc::new(store.unwrap()), clean, options.clone()).unwrap()
    };
    let mut db = open_on(&disk, true, true);
    db.flush().unwrap();
    let created = disk.operation_count();
    for _ in 0..ROUNDS {
        let writes = 1 + work.chance.below(5);
        work.round(&db, writes, || disk.operation_count());
        match work.chance.below(10) {
            0 => db.compact().unwrap(),
            1 => {
                drop(db);
                db = open_on(&disk, false, true);
            }
            _ => continue,
        }
        work.all_synced(disk.operation_count());
    }
    drop(db);
    let count = disk.operation_count();
    // A short run picks moments from the whole workload, and at least its end.
    let stride = (count * OUTCOMES / wanted.max(1)).clamp(1, count);
    let (mut replay, mut points) = (disk.replay(), 0);
    for now in 1..=count {
        assert!(replay.step());
        if now % stride != 0 {
            continue;
        }
        let number = seed << 32 | now as u64;
        let losses: [Loss; OUTCOMES] = [
            Loss::Everything,
            Loss::Nothing,
            Loss::Some(number),
            Loss::Some(!number),
            Loss::Torn(number),
            Loss::Torn(!number),
        ];
        for loss in losses {
            points += 1;
            let db = open_on(&replay.cut(loss), now < created, false);
            let judged = work.model.judge(&db.default_collection(), now);
            judged.unwrap_or_else(|what| {
                panic!("{sync:?}, seed {seed}, operation {now}, {loss:?}: {what}")
            });
            // The database accepts writes again.
            let write = Write::new().sync(Sync::Always);
            db.default_collection().upsert("after", b"1", write).unwrap();
        }
    }
    points
}

/// Outcomes of a cut over the log.
const OUTCOMES: usize = 6;

#[test]
fn durable_writes_survive_a_power_failure_at_any_time() {
    let (wanted, _) = wanted();
    for (name, sync) in SETTINGS {
        let (mut points, mut seed) = (0, 0);
        // Half of the cuts over plain files, the other half over encrypted ones.
        for (is_encrypted, wanted) in [(false, wanted / 2), (true, wanted)] {
            while points < wanted {
                points += cut_log(seed, sync, is_encrypted, wanted - points);
                seed += 1;
            }
        }
        println!("power cuts over the log, {name}: {points}, {seed} workloads: 0 lost, 0 refused");
        assert!(points >= wanted);
    }
}

type Files = BTreeMap<PathBuf, Vec<u8>>;

fn read(root: &Path, folder: &Path, found: &mut Files) {
    for entry in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.is_dir() {
            read(root, &entry, found);
        } else {
            found.insert(
                entry.strip_prefix(root).unwrap().to_owned(),
                std::fs::read(&entry).unwrap(),
            );
        }
    }
}

/// Returns the files after a power cut in the middle of a sync: each sector is old or new.
fn torn(before: &Files, after: &Files, chance: &mut Chance) -> Files {
    let mut found = before.clone();
    for (name, new) in after {
        // The file is written after everything else is synced.
        if name.ends_with("acknowledged") {
            continue;
        }
        let old = found.entry(name.clone()).or_default();
        old.resize(new.len().max(old.len()), 0);
        for (old, new) in old.chunks_mut(512).zip(new.chunks(512)) {
            if chance.below(2) == 0 {
                old[..new.len()].copy_from_slice(new);
            }
        }
    }
    found
}

/// Makes cuts over sled with one seed; returns the number.
fn cut_sled(seed: u64, sync: Sync) -> usize {
    let mut work = Workload::new(seed, sync);
    let options = Options { store: StoreKind::Sled, ..work.options() };
    let folder = tempfile::tempdir().unwrap();
    let now_on_disk = || {
        let mut found = Files::new();
        read(folder.path(), folder.path(), &mut found);
        found
    };
    let db = open(folder.path(), &options);
    db.flush().unwrap();
    let (mut points, mut before) = (0, now_on_disk());
    for now in 1..=16 {
        // One sync per round: of two, the first would be complete when the second is torn.
        let writes = if sync == Sync::Never { 1 + work.chance.below(4) } else { 1 };
        work.round(&db, writes, || now);
        let after = now_on_disk();
        let outcomes = [
            before.clone(),
            after.clone(),
            torn(&before, &after, &mut work.chance),
            torn(&before, &after, &mut work.chance),
        ];
        for (number, outcome) in outcomes.into_iter().enumerate() {
            points += 1;
            let copy = tempfile::tempdir().unwrap();
            for (name, bytes) in outcome {
                let path = copy.path().join(name);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(path, bytes).unwrap();
            }
            let db = open(copy.path(), &options);
            // The round's own durable writes must exist only if none of its changes were lost.
            let operations = if number == 1 { now } else { now - 1 };
            let judged = work.model.judge(&db.default_collection(), operations);
            judged.unwrap_or_else(|what| {
                panic!("{sync:?}, seed {seed}, round {now}, outcome {number}: {what}")
            });
        }
        before = after;
    }
    points
}

#[test]
fn durable_writes_survive_a_torn_sync_over_sled() {
    let (_, wanted) = wanted();
    for (name, sync) in SETTINGS {
        let (mut points, mut seed) = (0, 0);
        while points < wanted {
            points += cut_sled(seed, sync);
            seed += 1;
        }
        println!("power cuts over sled, {name}: {points}, {seed} workloads: 0 lost, 0 refused");
        assert!(points >= wanted);
    }
}
