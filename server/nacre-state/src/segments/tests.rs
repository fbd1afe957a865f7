//! Segmented state against a map, through flushes, merges, restarts, power cuts and damage. Blocks are small here, so that
//! segments have several levels.

use super::*;
use crate::{
    Changes, KeySpace, MergeJob, Segmenting, SpaceStorage, Standing, State, StateStorage, View,
    Vouching,
};
use nacre_dcp::ResumePoint;
use nacre_store::{Disk, LogSpaces, Loss, MemorySpaces, OnDamage, SimDisk, Spaces};
use nacre_types::{Seqno, Vbid};
use parking_lot::Mutex;
use std::collections::BTreeMap;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// The same numbers for the same seed.
struct Chance(u64);

impl Chance {
    fn below(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % sides
    }

    /// Few keys, so that they meet.
    fn key(&mut self) -> Vec<u8> {
        let bytes = [1, 3, 9, 40][self.below(4) as usize];
        let number = self.below(60);
        [&[b'a' + (number % 7) as u8][..], &vec![b'k'; bytes], &number.to_be_bytes()].concat()
    }

    fn value(&mut self) -> Vec<u8> {
        let bytes = [0, 2, 30, 300, 3000][self.below(5) as usize];
        vec![self.below(256) as u8; bytes]
    }

    fn bound(&mut self) -> Bound<Vec<u8>> {
        match self.below(5) {
            0 => Bound::Unbounded,
            1 | 2 => Bound::Included(self.key()),
            _ => Bound::Excluded(self.key()),
        }
    }
}

/// A partition without a plugin: a state, and what it is stored with.
struct Writer {
    storage: SpaceStorage,
    space: KeySpace,
    count: u64,
}

const VBID: Vbid = Vbid(7);

impl Writer {
    fn open(spaces: &dyn Spaces, keeps_back: bool, with: Option<&Segmenting>) -> Writer {
        let vouching = Vouching::open(spaces).unwrap();
        let mut storage =
            SpaceStorage::open(spaces, &vouching, "state", keeps_back, 1 << 20, with).unwrap();
        assert_eq!(storage.damage(), None);
        let loaded = storage.load().unwrap();
        let space = loaded.space().unwrap();
        let progress = loaded.progress.iter().find(|(vbid, _)| *vbid == VBID);
        let count = progress.map_or(0, |(_, standing)| standing.point.seqno.0);
        Writer { storage, space, count }
    }

    /// Makes some changes to the state and the model, and commits them with the number of the commit as progress.
    fn commit(&mut self, model: &mut Model, chance: &mut Chance) -> Result<(), String> {
        let state = State { space: self.space.clone(), ..State::default() };
        let mut view = View::writing(state, usize::MAX);
        for _ in 0..=chance.below(12) {
            let key = chance.key();
            if chance.below(3) == 0 {
                view.delete(&key).unwrap();
                model.remove(&key);
            } else {
                let value = chance.value();
                view.put(&key, &value).unwrap();
                model.insert(key, value);
            }
        }
        self.count += 1;
        let point = ResumePoint { seqno: Seqno(self.count), ..ResumePoint::default() };
        let changes = Changes {
            state: view.state.space.clone(),
            touched: view.writes.unwrap().touched,
            timers: Vec::new(),
            progress: vec![(VBID, Standing { point, ..Standing::default() })],
        };
        self.storage.commit(&changes)?;
        self.space = view.state.space;
        if let Some(space) = self.storage.rebase(&self.space)? {
            self.space = space;
        }
        Ok(())
    }
}

fn all(space: &KeySpace) -> Model {
    let rows = space.scan((Bound::Unbounded, Bound::Unbounded), false).unwrap();
    rows.map(|row| row.unwrap()).map(|row| (row.key().to_vec(), row.value().to_vec())).collect()
}

/// Reads of all kinds are those of the model.
fn check(space: &KeySpace, model: &Model, chance: &mut Chance) {
    for _ in 0..4 {
        let key = chance.key();
        let found = space.get(&key).unwrap().map(|found| found.bytes().to_vec());
        assert_eq!(found.as_ref(), model.get(&key));
    }
    let (start, end) = (chance.bound(), chance.bound());
    let key = |bound: &Bound<Vec<u8>>| match bound {
        Bound::Included(key) | Bound::Excluded(key) => Some(key.clone()),
        Bound::Unbounded => None,
    };
    let is_excluded = |bound: &Bound<Vec<u8>>| matches!(bound, Bound::Excluded(_));
    let is_empty = match (key(&start), key(&end)) {
        (Some(start_key), Some(end_key)) => {
            start_key > end_key
                || start_key == end_key && (is_excluded(&start) || is_excluded(&end))
        }
        _ => false,
    };
    let mut expected: Vec<_> = match is_empty {
        true => Vec::new(),
        false => model.range((start.clone(), end.clone())).collect(),
    };
    let range = (start.as_ref().map(|key| &key[..]), end.as_ref().map(|key| &key[..]));
    for reverse in [false, true] {
        let rows: Vec<_> = space.scan(range, reverse).unwrap().map(|row| row.unwrap()).collect();
        let found: Vec<_> = rows.iter().map(|row| (row.key(), row.value())).collect();
        if reverse {
            expected.reverse();
        }
        let expected = expected.iter().map(|(key, value)| (&key[..], &value[..]));
        assert_eq!(found, expected.collect::<Vec<_>>(), "{range:?} {reverse}");
    }
}

/// Merges that wait until somebody runs them.
#[derive(Clone, Default)]
struct Aside(Arc<Mutex<Vec<MergeJob>>>);

impl Aside {
    fn step(&self) {
        self.0.lock().retain(|job| !job.step());
    }
}

fn segmenting(flush_bytes: usize) -> (Segmenting, Aside) {
    let aside = Aside::default();
    let jobs = aside.clone();
    let mut with = Segmenting::new(BlockCache::new(64 << 10));
    with.flush_bytes = flush_bytes;
    with.aside = Arc::new(move |job| jobs.0.lock().push(job));
    (with, aside)
}

#[test]
fn a_segmented_space_is_what_a_map_is_through_flushes_merges_and_restarts() {
    for seed in 0..12 {
        let mut chance = Chance(seed);
        let spaces = MemorySpaces::default();
        let (with, aside) = segmenting(600 << (seed % 4));
        let mut model = Model::new();
        let mut writer = Writer::open(&spaces, seed % 2 == 0, Some(&with));
        let mut snapshots: Vec<(KeySpace, Model)> = Vec::new();
        let mut segments_max = 0;
        for _ in 0..400 {
            writer.commit(&mut model, &mut chance).unwrap();
            check(&writer.space, &model, &mut chance);
            segments_max = segments_max.max(writer.space.segments().unwrap().len());
            match chance.below(12) {
                0..5 => aside.step(),
                5 => snapshots.push((writer.space.clone(), model.clone())),
                6 if !snapshots.is_empty() => {
                    let (space, model) = snapshots.swap_remove(0);
                    assert_eq!(all(&space), model, "a snapshot sees nothing that came later");
                }
                7 => {
                    writer.storage.settle().unwrap();
                    let count = writer.count;
                    drop(writer);
                    writer = Writer::open(&spaces, seed % 2 == 0, Some(&with));
                    assert_eq!((writer.count, all(&writer.space)), (count, model.clone()));
                }
                _ => {}
            }
        }
        for (space, model) in snapshots {
            assert_eq!(all(&space), model);
        }
        assert!((3..20).contains(&segments_max), "{segments_max} segments");
        // Nothing is left of what is not named.
        writer.storage.settle().unwrap();
        let named = writer.space.segments().unwrap().len();
        drop(writer);
        let writer = Writer::open(&spaces, false, Some(&with));
        let files = spaces.open("state").unwrap().files().unwrap();
        assert_eq!(files.numbers().unwrap().len(), named);
        // It can be had in memory again, and on disk once more.
        drop(writer);
        let writer = Writer::open(&spaces, false, None);
        assert!(writer.space.is_resident() && all(&writer.space) == model);
        assert_eq!(files.numbers().unwrap(), Vec::<u64>::new());
        drop(writer);
        let mut writer = Writer::open(&spaces, false, Some(&with));
        writer.commit(&mut model, &mut chance).unwrap();
        assert!(all(&writer.space) == model && !writer.space.segments().unwrap().is_empty());
    }
}

fn log_spaces(disk: &Arc<SimDisk>) -> LogSpaces {
    LogSpaces::open_on(Arc::clone(disk) as Arc<dyn Disk>, OnDamage::Forget, 4 << 10).unwrap()
}

/// At whatever moment the power fails, and whatever it takes: the entries are those of the progress that is found with them, and
/// nothing that was synced is gone.
#[test]
fn after_a_power_cut_entries_and_progress_are_of_one_commit() {
    let mut seen = 0;
    for (seed, keeps_back) in [(1, false), (2, true), (3, true)] {
        let disk = SimDisk::new();
        let mut chance = Chance(seed);
        let (with, aside) = segmenting(900);
        let mut model = Model::new();
        let mut past = vec![model.clone()];
        // How many operations there were when a commit was sure.
        let mut sure = vec![(disk.operation_count(), 0)];
        {
            let spaces = log_spaces(&disk);
            let mut writer = Writer::open(&spaces, keeps_back, Some(&with));
            for _ in 0..40 {
                writer.commit(&mut model, &mut chance).unwrap();
                past.push(model.clone());
                match chance.below(4) {
                    0 => {
                        writer.storage.sync().unwrap();
                        sure.push((disk.operation_count(), writer.count));
                    }
                    1 => aside.step(),
                    _ => {}
                }
            }
        }
        let mut replay = disk.replay();
        let mut operation = 0;
        while replay.step() {
            operation += 1;
            if operation % 3 != 0 {
                continue;
            }
            let losses =
                [Loss::Everything, Loss::Nothing, Loss::Some(operation), Loss::Torn(operation)];
            for loss in losses {
                let spaces = log_spaces(&replay.cut(loss));
                let (with, _aside) = segmenting(900);
                let mut writer = Writer::open(&spaces, keeps_back, Some(&with));
                let at_least = sure.iter().rfind(|(at, _)| *at as u64 <= operation);
                assert!(writer.count >= at_least.map_or(0, |(_, count)| *count), "{loss:?}");
                assert_eq!(all(&writer.space), past[writer.count as usize], "{operation} {loss:?}");
                seen += usize::from(writer.space.segments().unwrap().len() > 1);
                // It goes on from there.
                let mut model = past[writer.count as usize].clone();
                writer.commit(&mut model, &mut chance).unwrap();
                assert_eq!(all(&writer.space), model);
            }
        }
    }
    assert!(seen > 100, "only {seen} cuts met segments");
}

/// A bit that has turned, a file that is too short or not there at all: it is said which one it is, and nothing less is read.
#[test]
fn damage_is_named_and_is_never_an_end() {
    let disk = SimDisk::new();
    let (with, _aside) = segmenting(2000);
    let mut chance = Chance(5);
    let mut model = Model::new();
    {
        let spaces = log_spaces(&disk);
        let mut writer = Writer::open(&spaces, false, Some(&with));
        while writer.space.segments().unwrap().len() < 3 {
            writer.commit(&mut model, &mut chance).unwrap();
        }
        writer.storage.sync().unwrap();
    }
    let segments: Vec<_> =
        disk.files().into_iter().filter(|(name, _)| name.ends_with(".part")).collect();
    assert_eq!(segments.len(), 3);
    let (with, _aside) = segmenting(1 << 20);
    for (name, bytes) in &segments {
        let open = |disk: &Arc<SimDisk>| {
            let spaces = log_spaces(disk);
            let vouching = Vouching::open(&spaces).unwrap();
            SpaceStorage::open(&spaces, &vouching, "state", false, 1 << 20, Some(&with)).unwrap()
        };
        let missing = disk.copy();
        missing.remove(name).unwrap();
        let short = disk.copy();
        short.truncate(name, bytes - 1);
        for damaged in [missing, short] {
            let mut storage = open(&damaged);
            let damage = storage.damage().expect("a part is not there");
            assert!(damage.contains(name.as_str()), "{damage}");
            storage.clear().unwrap();
            assert_eq!(
                (storage.damage(), all(&storage.load().unwrap().space().unwrap())),
                (None, Model::new())
            );
            drop(storage);
            assert_eq!(open(&damaged).damage(), None);
        }
        for bit in (0..bytes * 8).step_by(101) {
            let damaged = disk.copy();
            damaged.flip(name, bit);
            let mut storage = open(&damaged);
            let found = match storage.damage() {
                Some(damage) => Err(damage),
                None => {
                    let space = storage.load().unwrap().space().unwrap();
                    let everything = (Bound::Unbounded, Bound::Unbounded);
                    let rows = space.scan(everything, bit % 2 == 0);
                    rows.map_err(|damage| damage.to_string()).and_then(|rows| {
                        let rows = rows.map(|row| {
                            row.map(|row| (row.key().to_vec(), row.value().to_vec()))
                                .map_err(|damage| damage.to_string())
                        });
                        rows.collect::<Result<Model, String>>()
                    })
                }
            };
            match found {
                // The magic says what the file is to people.
                Ok(found) => assert!(found == model && bit < 16 * 8, "bit {bit} of {name}"),
                Err(damage) => assert!(damage.contains(name.as_str()), "{damage}"),
            }
        }
    }
}

#[test]
fn what_is_read_stays_within_the_cache() {
    let spaces = MemorySpaces::default();
    let (mut with, aside) = segmenting(64 << 10);
    with.cache = BlockCache::new(64 << 10);
    let mut writer = Writer::open(&spaces, true, Some(&with));
    let mut model = Model::new();
    for number in 0..6000_u32 {
        let state = State { space: writer.space.clone(), ..State::default() };
        let mut view = View::writing(state, usize::MAX);
        let (key, value) = (number.wrapping_mul(2654435761).to_be_bytes(), vec![1; 200]);
        view.put(&key, &value).unwrap();
        model.insert(key.to_vec(), value);
        let touched = view.writes.unwrap().touched;
        let changes = Changes { state: view.state.space.clone(), touched, ..Changes::default() };
        writer.storage.commit(&changes).unwrap();
        writer.space = view.state.space;
        writer.space = writer.storage.rebase(&writer.space).unwrap().unwrap_or(writer.space);
        aside.step();
        assert!(writer.space.memory_bytes() < 80 << 10);
    }
    assert!(writer.space.bytes() > 1 << 20);
    for _ in 0..2 {
        assert_eq!(all(&writer.space), model);
        assert!(with.cache.bytes() <= with.cache.bytes_max());
    }
    let (key, _) = model.iter().next().unwrap();
    writer.space.get(key).unwrap().unwrap();
    let (reads, hits) = with.cache.counts();
    writer.space.get(key).unwrap().unwrap();
    let (reads_then, hits_then) = with.cache.counts();
    assert_eq!(reads_then - reads, hits_then - hits, "what was just read is there");
}
