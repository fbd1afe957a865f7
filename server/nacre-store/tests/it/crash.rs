//! Simulates a power failure at every moment of a mixed workload, with several outcomes for unsynced writes. The store must
//! always open again, with a prefix of each vBucket's commits that includes all acknowledged ones.
//!
//! This tests the log store, with and without encryption, on a simulated disk. sled writes its files itself, so for sled the
//! test loses, keeps or tears the changes of a commit in its files.
//!
//! A few thousand failure points run with every test run. `NACRE_CRASH_SEEDS` is the number of workloads; `cargo xtask
//! bench crashes` tests more than 100,000 points and prints the counts.

use crate::model::{Chance, Model, read};
use nacre_store::{
    Error, LogOptions, LogStore, Loss, MasterKey, SimDisk, SledStore, Store, Trouble,
};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

const STEPS: u64 = 90;

/// Number of workloads: one by default.
fn seeds() -> std::ops::Range<u64> {
    let asked = std::env::var("NACRE_CRASH_SEEDS").ok();
    0..asked.map_or(1, |asked| asked.parse().expect("NACRE_CRASH_SEEDS is a number"))
}

/// A workload on a store with or without encryption.
#[derive(Clone, Copy, Debug)]
struct Case {
    seed: u64,
    is_encrypted: bool,
}

fn cases() -> impl Iterator<Item = Case> {
    seeds().flat_map(|seed| [false, true].map(|is_encrypted| Case { seed, is_encrypted }))
}

fn options(seed: u64) -> LogOptions {
    LogOptions { segment_bytes: [32, 64, 128][seed as usize % 3] << 10, seed }
}

fn master() -> MasterKey {
    static MASTER: OnceLock<MasterKey> = OnceLock::new();
    MASTER.get_or_init(|| MasterKey::random().unwrap()).clone()
}

fn open(disk: &Arc<SimDisk>, create: bool, case: Case) -> Result<LogStore, Error> {
    let master = case.is_encrypted.then(master);
    LogStore::open_on_with_key(Arc::clone(disk) as Arc<_>, create, options(case.seed), master)
}

/// A disk after commits, compaction and restarts, and the writes to it. `created` is the time at which the store was
/// created.
struct Run {
    disk: Arc<SimDisk>,
    model: Model,
    created: usize,
}

fn run(case: Case, steps: u64) -> Run {
    let disk = SimDisk::new();
    let mut model = Model::new();
    let mut chance = Chance(case.seed);
    let mut store = open(&disk, true, case).unwrap();
    let created = disk.operation_count();
    for _ in 0..steps {
        match chance.below(12) {
            0..9 => {
                let mut commits = model.commits(&mut chance);
                model.begin(&mut commits, disk.operation_count());
                store.commit(&commits).unwrap();
                model.acknowledge(disk.operation_count());
            }
            9 | 10 => {
                store.compact([0, 10, 30, 50][chance.below(4) as usize]).unwrap();
            }
            _ => {
                drop(store);
                store = open(&disk, false, case).unwrap();
                model.judge(&read(&store).unwrap(), disk.operation_count()).unwrap();
            }
        }
        model.check_keys(&store);
    }
    drop(store);
    Run { disk, model, created }
}

/// Outcomes of a power failure.
pub fn losses(number: u64) -> [Loss; 6] {
    let (one, other) = (number, !number);
    [
        Loss::Everything,
        Loss::Nothing,
        Loss::Some(one),
        Loss::Some(other),
        Loss::Torn(one),
        Loss::Torn(other),
    ]
}

#[test]
fn acknowledged_commits_survive_a_power_failure_and_the_store_opens() {
    let (mut points, mut again) = (0, 0);
    for case in cases() {
        let seed = case.seed;
        let Run { disk, model, created } = run(case, STEPS);
        let mut replay = disk.replay();
        for now in 1..=disk.operation_count() {
            assert!(replay.step());
            let number = seed << 32 | now as u64;
            for loss in losses(number) {
                points += 1;
                let place = || format!("{case:?}, after operation {now}, {loss:?}");
                let found = replay.cut(loss);
                let store = open(&found, now < created, case)
                    .unwrap_or_else(|error| panic!("{}: {error}", place()));
                let states = read(&store).unwrap_or_else(|error| panic!("{}: {error}", place()));
                model.judge(&states, now).unwrap_or_else(|what| panic!("{}: {what}", place()));
                if points % 16 == 0 {
                    again += fail_again(&found, store, Case { seed: number, ..case }, &place());
                }
            }
        }
    }
    println!(
        "{points} power cuts of a running log store, {again} while it recovered: 0 lost, 0 refused"
    );
}

/// The power fails again, while the store recovers from the first failure and accepts its next commit.
fn fail_again(disk: &Arc<SimDisk>, store: LogStore, case: Case, place: &str) -> usize {
    let seed = case.seed;
    let mut model = Model::of(&store);
    let mut commits = model.commits(&mut Chance(seed));
    model.begin(&mut commits, disk.operation_count());
    store.commit(&commits).unwrap();
    model.acknowledge(disk.operation_count());
    drop(store);
    let mut points = 0;
    let mut replay = disk.replay();
    for now in 1..=disk.operation_count() {
        assert!(replay.step());
        for loss in [Loss::Everything, Loss::Some(seed), Loss::Torn(seed)] {
            points += 1;
            let place = || format!("{place}; and again after operation {now}, {loss:?}");
            let store = open(&replay.cut(loss), false, case)
                .or_else(|_| open(&replay.cut(loss), true, case))
                .unwrap_or_else(|error| panic!("{}: {error}", place()));
            let states = read(&store).unwrap_or_else(|error| panic!("{}: {error}", place()));
            model.judge(&states, now).unwrap_or_else(|what| panic!("{}: {what}", place()));
        }
    }
    points
}

/// Compaction and the writing of the table run on another thread, during commits.
#[test]
fn acknowledged_commits_survive_a_power_failure_during_compaction() {
    let mut points = 0;
    for case in cases() {
        let seed = case.seed;
        let disk = SimDisk::new();
        let store = Arc::new(open(&disk, true, case).unwrap());
        let created = disk.operation_count();
        let done = Arc::new(AtomicBool::new(false));
        let compactor = {
            let (store, done) = (Arc::clone(&store), Arc::clone(&done));
            std::thread::spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    store.compact(10).unwrap();
                    std::thread::yield_now();
                }
            })
        };
        let (mut model, mut chance) = (Model::new(), Chance(seed));
        for _ in 0..STEPS {
            let mut commits = model.commits(&mut chance);
            model.begin(&mut commits, disk.operation_count());
            store.commit(&commits).unwrap();
            model.acknowledge(disk.operation_count());
            model.check_keys(&*store);
        }
        done.store(true, Ordering::Relaxed);
        compactor.join().unwrap();
        let mut replay = disk.replay();
        for now in 1..=disk.operation_count() {
            assert!(replay.step());
            // The number of operations is random here.
            if now % (1 + disk.operation_count() / 2000) != 0 {
                continue;
            }
            for loss in [Loss::Everything, Loss::Some(now as u64), Loss::Torn(now as u64)] {
                points += 1;
                let place = || format!("{case:?}, after operation {now}, {loss:?}");
                let store = open(&replay.cut(loss), now < created, case)
                    .unwrap_or_else(|error| panic!("{}: {error}", place()));
                let states = read(&store).unwrap_or_else(|error| panic!("{}: {error}", place()));
                model.judge(&states, now).unwrap_or_else(|what| panic!("{}: {what}", place()));
            }
        }
    }
    println!("{points} power cuts beside a compacting thread: 0 lost, 0 refused");
}

/// A directory as it is on disk: the contents of files by their paths.
type Files = BTreeMap<PathBuf, Vec<u8>>;

fn files(root: &Path, folder: &Path, found: &mut Files) {
    for entry in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.is_dir() {
            files(root, &entry, found);
        } else {
            let name = entry.strip_prefix(root).unwrap().to_owned();
            found.insert(name, std::fs::read(&entry).unwrap());
        }
    }
}

/// Returns the files after a power failure during a commit: each sector is either old or new.
fn torn(before: &Files, after: &Files, chance: &mut Chance) -> Files {
    let mut found = Files::new();
    for (name, new) in after {
        let mut left = before.get(name).cloned().unwrap_or_default();
        if name.ends_with("acknowledged") {
            // Written after everything else was synced.
            found.insert(name.clone(), left);
            continue;
        }
        // Allocated and unwritten bytes are zeros.
        left.resize(new.len().max(left.len()), 0);
        for (old, new) in left.chunks_mut(512).zip(new.chunks(512)) {
            if chance.below(2) == 0 {
                old[..new.len()].copy_from_slice(new);
            }
        }
        if left.iter().any(|byte| *byte != 0) || before.contains_key(name) {
            found.insert(name.clone(), left);
        }
    }
    found
}

#[test]
fn a_sled_store_that_loses_sectors_of_a_commit_opens_with_all_that_was_acknowledged() {
    let (mut points, mut refused) = (0, 0);
    for seed in seeds() {
        let directory = tempfile::tempdir().unwrap();
        let store = SledStore::open(directory.path(), true, 1 << 20).unwrap();
        let (mut model, mut chance) = (Model::without_history(), Chance(seed));
        let now_on_disk = || {
            let mut found = Files::new();
            files(directory.path(), directory.path(), &mut found);
            found
        };
        let mut before = now_on_disk();
        for now in 1..=25 {
            let mut commits = model.commits(&mut chance);
            model.begin(&mut commits, now);
            store.commit(&commits).unwrap();
            let after = now_on_disk();
            let mut outcomes = vec![before, after.clone()];
            outcomes.push(torn(&outcomes[0], &after, &mut chance));
            outcomes.push(torn(&outcomes[0], &after, &mut chance));
            for outcome in outcomes {
                points += 1;
                let copy = tempfile::tempdir().unwrap();
                for (name, bytes) in outcome {
                    let path = copy.path().join(name);
                    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                    std::fs::write(path, bytes).unwrap();
                }
                let opened = SledStore::open(copy.path(), false, 1 << 20);
                match opened.and_then(|store| read(&store)) {
                    Ok(states) => model.judge(&states, now).unwrap(),
                    Err(error) => {
                        assert_named(&error, "sled");
                        refused += 1;
                    }
                }
            }
            model.acknowledge(now);
            before = after;
        }
    }
    println!("{points} power cuts of a sled store: 0 lost, {refused} refused by name");
    assert_eq!(refused, 0);
}

#[test]
fn every_flipped_bit_is_detected_or_harmless() {
    let (mut flips, mut noticed) = (0, 0);
    for case in cases() {
        let seed = case.seed;
        let Run { disk, .. } = run(case, STEPS);
        let expected = read(&open(&disk.copy(), false, case).unwrap()).unwrap();
        let mut chance = Chance(seed);
        for (name, bytes) in disk.files() {
            for _ in 0..bytes / 48 {
                let bit = chance.below(bytes as u64 * 8) as usize;
                flips += 1;
                let damaged = disk.copy();
                damaged.flip(&name, bit);
                let place = format!("{case:?}, bit {bit} of {name}");
                match open(&damaged, false, case).and_then(|store| read(&store)) {
                    Ok(states) => assert_eq!(states, expected, "{place}"),
                    Err(error) => {
                        assert_named(&error, &place);
                        noticed += 1;
                    }
                }
            }
        }
    }
    println!("{flips} flipped bits: {noticed} noticed, the rest lay where nothing is stored");
    assert!(noticed * 20 > flips, "{noticed} of {flips}");
}

/// Like the test above, but the process was killed: there is a log to replay, and the note is in the operating system's
/// cache.
#[test]
fn every_flipped_bit_in_a_replayed_log_is_detected_or_harmless() {
    let mut noticed = 0;
    for case in cases() {
        let seed = case.seed;
        let disk = SimDisk::new();
        let store = open(&disk, true, case).unwrap();
        let (mut model, mut chance) = (Model::new(), Chance(seed));
        for _ in 0..6 {
            let mut commits = model.commits(&mut chance);
            model.begin(&mut commits, 0);
            store.commit(&commits).unwrap();
        }
        let killed = disk.copy();
        let expected = read(&store).unwrap();
        for (name, bytes) in killed.files() {
            for bit in (0..bytes * 8).step_by(13) {
                let damaged = killed.copy();
                damaged.flip(&name, bit);
                let place = format!("{case:?}, bit {bit} of {name}");
                match open(&damaged, false, case).and_then(|store| read(&store)) {
                    Ok(states) => assert_eq!(states, expected, "{place}"),
                    Err(error) => {
                        assert_named(&error, &place);
                        noticed += 1;
                    }
                }
            }
        }
    }
    println!("{noticed} flipped bits noticed while a log was replayed");
    assert!(noticed > 100);
}

#[test]
fn every_truncated_or_missing_file_is_detected_or_harmless() {
    for case in cases() {
        let seed = case.seed;
        let Run { disk, .. } = run(case, STEPS);
        let expected = read(&open(&disk.copy(), false, case).unwrap()).unwrap();
        let mut chance = Chance(seed);
        for (name, bytes) in disk.files() {
            for cut in 0..20 {
                let damaged = disk.copy();
                match cut {
                    0 => nacre_store::Disk::remove(&*damaged, &name).unwrap(),
                    _ => damaged.truncate(&name, chance.below(bytes as u64) as usize),
                }
                let place = format!("{case:?}, cut {cut} of {name}");
                match open(&damaged, false, case).and_then(|store| read(&store)) {
                    Ok(states) => assert_eq!(states, expected, "{place}"),
                    Err(error) => assert_named(&error, &place),
                }
            }
        }
    }
}

fn assert_named(error: &Error, place: &str) {
    let named =
        matches!(error, Error::Damaged { .. } | Error::Format { .. } | Error::Inconsistent { .. });
    assert!(named, "{place}: {error}");
}

/// If the disk is full, nothing has changed, and the same commits succeed once there is space.
#[test]
fn a_full_disk_changes_nothing_and_the_same_commits_succeed_later() {
    changes_nothing(Trouble::Full);
}

/// The same for a lack of file descriptors for a new segment.
#[test]
fn a_shortage_of_descriptors_changes_nothing_and_the_same_commits_succeed_later() {
    changes_nothing(Trouble::Exhausted);
}

fn changes_nothing(trouble: Trouble) {
    let mut refused = 0;
    for case in cases() {
        let seed = case.seed;
        for chance_of_trouble in 0..150 {
            let disk = SimDisk::new();
            let store = open(&disk, true, case).unwrap();
            let (mut model, mut chance) = (Model::new(), Chance(seed));
            disk.trouble(chance_of_trouble, trouble);
            for step in 0..40 {
                if step % 5 == 4 {
                    if let Err(error) = store.compact(10) {
                        assert!(error.is_temporary(), "{error}");
                        refused += 1;
                    }
                    continue;
                }
                let before = read(&store).unwrap();
                let mut commits = model.commits(&mut chance);
                model.begin(&mut commits, disk.operation_count());
                match store.commit(&commits) {
                    Ok(()) => {}
                    Err(error) => {
                        assert!(error.is_temporary(), "{error}");
                        assert_eq!(read(&store).unwrap(), before);
                        let found = open(&disk.cut(Loss::Nothing), false, case).unwrap();
                        assert_eq!(read(&found).unwrap(), before, "nothing of it was written");
                        store.commit(&commits).unwrap();
                        refused += 1;
                    }
                }
                model.acknowledge(disk.operation_count());
            }
            let found = disk.cut(Loss::Everything);
            let store = open(&found, false, case).unwrap();
            model.judge(&read(&store).unwrap(), disk.operation_count()).unwrap();
        }
    }
    println!("{refused} refusals for want of space");
    assert!(refused > 20);
}

/// After a failed sync, the store accepts no commit. Another process reads the operating system's cache and continues;
/// a later power failure loses nothing.
#[test]
fn a_failed_sync_stops_the_store_until_it_is_opened_again() {
    let mut stopped = 0;
    for case in cases() {
        let seed = case.seed;
        for chance_of_trouble in 0..100 {
            let disk = SimDisk::new();
            let mut store = open(&disk, true, case).unwrap();
            let (mut model, mut chance) = (Model::new(), Chance(seed));
            disk.trouble(chance_of_trouble, Trouble::Sync);
            for step in 0..30 {
                if step % 5 == 4 {
                    let _ = store.compact(10);
                    continue;
                }
                let mut commits = model.commits(&mut chance);
                model.begin(&mut commits, disk.operation_count());
                if store.commit(&commits).is_err() {
                    let refused = store.commit(&commits).unwrap_err();
                    assert!(refused.to_string().contains("an earlier write failed"), "{refused}");
                    read(&store).expect("reads go on");
                    drop(store);
                    store = open(&disk, false, case).unwrap();
                    model.judge(&read(&store).unwrap(), disk.operation_count()).unwrap();
                    model = Model::of(&store);
                    stopped += 1;
                }
                model.acknowledge(disk.operation_count());
            }
            let found = disk.cut(Loss::Everything);
            let store = open(&found, false, case).unwrap();
            model.judge(&read(&store).unwrap(), disk.operation_count()).unwrap();
        }
    }
    println!("{stopped} syncs failed");
    assert!(stopped > 20);
}

#[test]
fn short_reads_are_continued() {
    for is_encrypted in [false, true] {
        let case = Case { seed: 5, is_encrypted };
        let Run { disk, model, .. } = run(case, 40);
        disk.read_at_most(7);
        let store = open(&disk, false, case).unwrap();
        model.judge(&read(&store).unwrap(), disk.operation_count()).unwrap();
        model.check_keys(&store);
    }
}
