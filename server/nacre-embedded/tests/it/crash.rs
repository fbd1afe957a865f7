//! The power fails at every moment, at the settings of the edge, over both stores: what was durable is there, and of each vBucket a prefix
//! of its history.
//!
//! Over the log on a simulated disk with several outcomes for what was not synced; over sled in files, of which what a sync changed is lost,
//! kept or torn. `NACRE_CRASH_SEEDS` says how many workloads to go through; one when not set.

use crate::{Chance, by_hand, open};
use nacre::{Collection, Db, Options, Range, StoreKind, Sync, Write};
use nacre_store::{LogOptions, LogStore, Loss, SimDisk};
use nacre_types::Vbid;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const VBUCKETS: u16 = 4;
const KEYS: u64 = 12;

fn seeds() -> std::ops::Range<u64> {
    let asked = std::env::var("NACRE_CRASH_SEEDS").ok();
    0..asked.map_or(1, |asked| asked.parse().expect("NACRE_CRASH_SEEDS is a number"))
}

type Contents = BTreeMap<String, Vec<u8>>;

/// Every state that each vBucket went through, and which of them were durable when.
struct Model {
    states: Vec<Vec<Contents>>,
    /// The number of operations of the disk at which these states were durable.
    durable: Vec<(usize, Vec<usize>)>,
}

impl Model {
    fn new() -> Model {
        let states = vec![vec![Contents::new()]; usize::from(VBUCKETS)];
        Model { states, durable: vec![(0, vec![0; usize::from(VBUCKETS)])] }
    }

    /// Writes something by chance, in the database and here.
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

    fn synced(&mut self, operations: usize) {
        let latest = self.states.iter().map(|states| states.len() - 1).collect();
        self.durable.push((operations, latest));
    }

    /// Compares what is there with what had to be there after so many operations.
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

fn edge(seed: u64) -> (LogOptions, Options) {
    let layout = LogOptions { segment_bytes: Options::SEGMENT_BYTES_MIN, seed };
    (layout, Options { vbuckets: VBUCKETS, sync: Sync::Never, quota_mib: 4, ..by_hand() })
}

#[test]
fn whenever_the_power_fails_what_was_durable_is_there() {
    let mut points = 0;
    for seed in seeds() {
        let (layout, options) = edge(seed);
        let disk = SimDisk::new();
        let (mut model, mut chance) = (Model::new(), Chance(seed));
        let open_on = |disk: &Arc<SimDisk>, create, clean| {
            let store = LogStore::open_on(Arc::clone(disk) as Arc<_>, create, layout);
            Db::open_over(Arc::new(store.unwrap()), clean, options.clone()).unwrap()
        };
        let mut db = open_on(&disk, true, true);
        db.flush().unwrap();
        let created = disk.operation_count();
        for _ in 0..60 {
            let docs = db.default_collection();
            for _ in 0..=chance.below(4) {
                model.step(&docs, &mut chance);
            }
            match chance.below(10) {
                0 => db.compact().unwrap(),
                1 => {
                    drop(docs);
                    drop(db);
                    db = open_on(&disk, false, true);
                }
                _ => db.flush().unwrap(),
            }
            model.synced(disk.operation_count());
        }
        drop(db);
        let mut replay = disk.replay();
        for now in 1..=disk.operation_count() {
            assert!(replay.step());
            let number = seed << 32 | now as u64;
            for loss in [
                Loss::Everything,
                Loss::Nothing,
                Loss::Some(number),
                Loss::Some(!number),
                Loss::Torn(number),
                Loss::Torn(!number),
            ] {
                points += 1;
                let db = open_on(&replay.cut(loss), now < created, false);
                let judged = model.judge(&db.default_collection(), now);
                judged.unwrap_or_else(|what| {
                    panic!("seed {seed}, operation {now}, {loss:?}: {what}")
                });
                // It takes writes again.
                db.default_collection()
                    .upsert("after", b"1", Write::new().sync(Sync::Always))
                    .unwrap();
            }
        }
    }
    println!("{points} power cuts of an embedded database on the log: 0 lost, 0 refused");
    assert!(points > 1000);
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

/// Files of which the power failed in the middle of a sync: each sector is as it was before or after.
fn torn(before: &Files, after: &Files, chance: &mut Chance) -> Files {
    let mut found = before.clone();
    for (name, new) in after {
        // It is written when all else is synced.
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

#[test]
fn over_sled_what_was_durable_is_there_though_a_sync_was_torn() {
    let mut points = 0;
    for seed in seeds() {
        let (_, options) = edge(seed);
        let options = Options { store: StoreKind::Sled, ..options };
        let folder = tempfile::tempdir().unwrap();
        let now_on_disk = || {
            let mut found = Files::new();
            read(folder.path(), folder.path(), &mut found);
            found
        };
        let db = open(folder.path(), &options);
        db.flush().unwrap();
        let (mut model, mut chance) = (Model::new(), Chance(seed));
        let mut before = now_on_disk();
        for now in 1..=12 {
            for _ in 0..=chance.below(3) {
                model.step(&db.default_collection(), &mut chance);
            }
            db.flush().unwrap();
            let after = now_on_disk();
            let outcomes = [
                before.clone(),
                after.clone(),
                torn(&before, &after, &mut chance),
                torn(&before, &after, &mut chance),
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
                let judged = model.judge(&db.default_collection(), now - 1);
                judged.unwrap_or_else(|what| {
                    panic!("seed {seed}, sync {now}, outcome {number}: {what}")
                });
            }
            model.synced(now);
            before = after;
        }
    }
    println!("{points} power cuts of an embedded database on sled: 0 lost, 0 refused");
}
