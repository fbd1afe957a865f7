//! Compares segmented state with a map, through flushes, merges, restarts, power cuts and damage. Blocks are small in
//! tests, so that segments have several levels.

use super::*;
use crate::{
    BlobError, BlobInfo, Blobs, Changes, KeySpace, MergeJob, Refused, Segmenting, SpaceStorage,
    State, StateStorage, SyncCounts, VbucketProgress, View,
};
use nacre_dcp::ResumePoint;
use nacre_store::{Disk, LogSpaces, Loss, MemorySpaces, OnDamage, SimDisk, Spaces};
use nacre_types::{Seqno, Vbid};
use parking_lot::Mutex;
use std::collections::BTreeMap;

type Entries = BTreeMap<Vec<u8>, Vec<u8>>;

/// The expected content of a state.
#[derive(Clone, Debug, Default, PartialEq)]
struct Model {
    entries: Entries,
    /// Content, and whether the blob is sealed.
    blobs: BTreeMap<String, (Vec<u8>, bool)>,
}

/// A deterministic random generator.
struct SeededRandom(u64);

impl SeededRandom {
    fn below(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % sides
    }

    /// Returns one of few keys, so that operations collide.
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

/// A partition without a plugin: a state and its storage.
struct Writer {
    storage: SpaceStorage,
    space: KeySpace,
    blobs: Blobs,
    count: u64,
    has_blobs: bool,
}

const VBID: Vbid = Vbid(7);

impl Writer {
    fn open(spaces: &dyn Spaces, defers_commits: bool, with: Option<&Segmenting>) -> Writer {
        let sync_counts = SyncCounts::open(spaces).unwrap();
        let mut storage =
            SpaceStorage::open(spaces, &sync_counts, "state", defers_commits, 1 << 20, with)
                .unwrap();
        assert_eq!(storage.damage(), None);
        let loaded = storage.load().unwrap();
        let (space, blobs) = (loaded.space().unwrap(), loaded.blobs.clone());
        let progress = loaded.progress.iter().find(|(vbid, _)| *vbid == VBID);
        let count = progress.map_or(0, |(_, standing)| standing.point.seqno.0);
        Writer { storage, space, blobs, count, has_blobs: with.is_some() }
    }

    /// Changes the state and the model, and commits with the number of the commit as progress.
    fn commit(&mut self, model: &mut Model, chance: &mut SeededRandom) -> Result<(), String> {
        let (space, blobs) = (self.space.clone(), self.blobs.clone());
        let mut view = View::writing(State { space, blobs, ..State::default() }, usize::MAX);
        for _ in 0..=chance.below(12) {
            let key = chance.key();
            if chance.below(3) == 0 {
                view.delete(&key).unwrap();
                model.entries.remove(&key);
            } else {
                let value = chance.value();
                view.put(&key, &value).unwrap();
                model.entries.insert(key, value);
            }
        }
        if self.has_blobs {
            // A failed call writes to the same files, invisibly for readers.
            let mut failed = view.state.blobs.clone();
            for _ in 0..chance.below(4) {
                let _ = failed.append(&format!("blob {}", chance.below(5)), b"of no consequence");
                let _ = failed.seal(&format!("blob {}", chance.below(5)));
            }
            for _ in 0..chance.below(4) {
                change_blob(&mut view, model, chance);
            }
        }
        self.count += 1;
        let point = ResumePoint { seqno: Seqno(self.count), ..ResumePoint::default() };
        let writes = view.writes.take().unwrap();
        let changes = Changes {
            state: view.state.space.clone(),
            blobs: writes.blobs.then(|| view.state.blobs.clone()),
            touched: writes.touched,
            timers: Vec::new(),
            progress: vec![(VBID, VbucketProgress { point, ..VbucketProgress::default() })],
        };
        self.storage.commit(&changes)?;
        (self.space, self.blobs) = (view.state.space, view.state.blobs);
        if let Some(space) = self.storage.rebase(&self.space)? {
            self.space = space;
        }
        Ok(())
    }
}

/// Creates, extends, seals or removes one of few blobs.
fn change_blob(view: &mut View, model: &mut Model, chance: &mut SeededRandom) {
    let name = format!("blob {}", chance.below(5));
    let known = model.blobs.get_mut(&name);
    match (chance.below(6), known) {
        (0, _) => {
            view.change_blobs(|blobs| blobs.create(&name)).unwrap();
            model.blobs.insert(name, (Vec::new(), false));
        }
        (1, _) => {
            let was_there = view.change_blobs(|blobs| Ok(blobs.delete(&name))).unwrap();
            assert_eq!(was_there, model.blobs.remove(&name).is_some());
        }
        (_, None) => {
            let refused = view.change_blobs(|blobs| blobs.append(&name, b"x"));
            assert_eq!(refused, Err(Refused::Blob(BlobError::Missing(name))));
        }
        (_, Some((_, true))) => {
            let refused = view.change_blobs(|blobs| blobs.append(&name, b"x"));
            assert_eq!(refused, Err(Refused::Blob(BlobError::Sealed(name))));
        }
        (2, Some((_, sealed))) => {
            view.change_blobs(|blobs| blobs.seal(&name)).unwrap();
            *sealed = true;
        }
        (_, Some((content, _))) => {
            let bytes = vec![chance.below(256) as u8; chance.below(9000) as usize];
            view.change_blobs(|blobs| blobs.append(&name, &bytes)).unwrap();
            content.extend(bytes);
        }
    }
}

/// Returns all blobs, each read in pieces.
fn all_blobs(blobs: &Blobs) -> BTreeMap<String, (Vec<u8>, bool)> {
    let read = |info: BlobInfo| {
        let pieces = (0..=info.length).step_by(5000);
        let content = pieces.flat_map(|at| blobs.read(&info.name, at, 5000).unwrap()).collect();
        (info.name, (content, info.is_sealed))
    };
    blobs.list("", "", 100).into_iter().map(read).collect()
}

fn all(space: &KeySpace) -> Entries {
    let rows = space.scan((Bound::Unbounded, Bound::Unbounded), false).unwrap();
    rows.map(|row| row.unwrap()).map(|row| (row.key().to_vec(), row.value().to_vec())).collect()
}

/// Checks that reads of all kinds match the model.
fn check(space: &KeySpace, model: &Model, chance: &mut SeededRandom) {
    for _ in 0..4 {
        let key = chance.key();
        let found = space.get(&key).unwrap().map(|found| found.bytes().to_vec());
        assert_eq!(found.as_ref(), model.entries.get(&key));
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
        false => model.entries.range((start.clone(), end.clone())).collect(),
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

/// Removes all blobs in one commit.
fn remove_blobs(writer: &mut Writer, model: &mut Model) {
    for name in std::mem::take(&mut model.blobs).into_keys() {
        assert!(writer.blobs.delete(&name));
    }
    let (state, blobs) = (writer.space.clone(), Some(writer.blobs.clone()));
    writer.storage.commit(&Changes { state, blobs, ..Changes::default() }).unwrap();
}

/// Merges that run only when the test steps them.
#[derive(Clone, Default)]
struct DeferredMerges(Arc<Mutex<Vec<MergeJob>>>);

impl DeferredMerges {
    fn step(&self) {
        self.0.lock().retain(|job| !job.step());
    }
}

fn segmenting(flush_bytes: usize) -> (Segmenting, DeferredMerges) {
    let aside = DeferredMerges::default();
    let jobs = aside.clone();
    let mut with = Segmenting::new(BlockCache::new(64 << 10));
    with.flush_bytes = flush_bytes;
    with.aside = Arc::new(move |job| jobs.0.lock().push(job));
    (with, aside)
}

#[test]
fn a_segmented_space_equals_a_map_through_flushes_merges_and_restarts() {
    for seed in 0..12 {
        let mut chance = SeededRandom(seed);
        let spaces = MemorySpaces::default();
        let (with, aside) = segmenting(600 << (seed % 4));
        let mut model = Model::default();
        let mut writer = Writer::open(&spaces, seed % 2 == 0, Some(&with));
        let mut snapshots: Vec<(KeySpace, Blobs, Model)> = Vec::new();
        let mut segments_max = 0;
        for _ in 0..400 {
            writer.commit(&mut model, &mut chance).unwrap();
            check(&writer.space, &model, &mut chance);
            segments_max = segments_max.max(writer.space.segments().unwrap().len());
            match chance.below(12) {
                0..5 => aside.step(),
                5 => snapshots.push((writer.space.clone(), writer.blobs.clone(), model.clone())),
                6 if !snapshots.is_empty() => {
                    let (space, blobs, model) = snapshots.swap_remove(0);
                    let later = "a snapshot sees nothing that came later";
                    assert_eq!(all(&space), model.entries, "{later}");
                    assert_eq!(all_blobs(&blobs), model.blobs, "{later}");
                }
                7 => {
                    writer.storage.settle().unwrap();
                    let count = writer.count;
                    drop(writer);
                    writer = Writer::open(&spaces, seed % 2 == 0, Some(&with));
                    assert_eq!((writer.count, all(&writer.space)), (count, model.entries.clone()));
                    assert_eq!(all_blobs(&writer.blobs), model.blobs);
                }
                _ => {}
            }
        }
        for (space, blobs, model) in snapshots {
            assert_eq!((all(&space), all_blobs(&blobs)), (model.entries, model.blobs));
        }
        assert!((3..20).contains(&segments_max), "{segments_max} segments");
        // No unnamed file remains.
        writer.storage.settle().unwrap();
        let named = writer.space.segments().unwrap().len() + writer.blobs.len();
        drop(writer);
        let mut writer = Writer::open(&spaces, false, Some(&with));
        let files = spaces.open("state").unwrap().files().unwrap();
        assert_eq!(files.numbers().unwrap().len(), named);
        writer.has_blobs = false;
        remove_blobs(&mut writer, &mut model);
        // The state can become resident again, and then segmented once more.
        drop(writer);
        let writer = Writer::open(&spaces, false, None);
        assert!(writer.space.is_resident() && all(&writer.space) == model.entries);
        assert_eq!(files.numbers().unwrap(), Vec::<u64>::new());
        drop(writer);
        let mut writer = Writer::open(&spaces, false, Some(&with));
        writer.commit(&mut model, &mut chance).unwrap();
        assert_eq!(all(&writer.space), model.entries);
        assert!(!writer.space.segments().unwrap().is_empty());
    }
}

fn log_spaces(disk: &Arc<SimDisk>) -> LogSpaces {
    LogSpaces::open_on(Arc::clone(disk) as Arc<dyn Disk>, OnDamage::Forget, 4 << 10).unwrap()
}

/// For power cuts at every point with every kind of loss: the entries match the progress found with them, and no synced
/// commit is lost.
#[test]
fn after_a_power_cut_entries_and_progress_are_of_one_commit() {
    let mut seen = 0;
    for (seed, defers_commits) in [(1, false), (2, true), (3, true)] {
        let disk = SimDisk::new();
        let mut chance = SeededRandom(seed);
        let (with, aside) = segmenting(900);
        let mut model = Model::default();
        let mut past = vec![model.clone()];
        // The operation counts at which commits were synced.
        let mut sure = vec![(disk.operation_count(), 0)];
        {
            let spaces = log_spaces(&disk);
            let mut writer = Writer::open(&spaces, defers_commits, Some(&with));
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
                let mut writer = Writer::open(&spaces, defers_commits, Some(&with));
                let at_least = sure.iter().rfind(|(at, _)| *at as u64 <= operation);
                assert!(writer.count >= at_least.map_or(0, |(_, count)| *count), "{loss:?}");
                let expected = &past[writer.count as usize];
                assert_eq!(all(&writer.space), expected.entries, "{operation} {loss:?}");
                assert_eq!(all_blobs(&writer.blobs), expected.blobs, "{operation} {loss:?}");
                seen += usize::from(writer.space.segments().unwrap().len() > 1);
                // The state continues to work from there.
                let mut model = past[writer.count as usize].clone();
                writer.commit(&mut model, &mut chance).unwrap();
                assert_eq!(
                    (all(&writer.space), all_blobs(&writer.blobs)),
                    (model.entries, model.blobs)
                );
            }
        }
    }
    assert!(seen > 100, "only {seen} cuts met segments");
}

/// A flipped bit, a truncated file or a missing file: the error names the file, and no partial content is read.
#[test]
fn damage_is_reported_and_never_mistaken_for_the_end() {
    let disk = SimDisk::new();
    let (with, _aside) = segmenting(2000);
    let mut chance = SeededRandom(5);
    let mut model = Model::default();
    {
        let spaces = log_spaces(&disk);
        let mut writer = Writer::open(&spaces, false, Some(&with));
        writer.has_blobs = false;
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
            let sync_counts = SyncCounts::open(&spaces).unwrap();
            SpaceStorage::open(&spaces, &sync_counts, "state", false, 1 << 20, Some(&with)).unwrap()
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
                (None, Entries::new())
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
                        rows.collect::<Result<Entries, String>>()
                    })
                }
            };
            match found {
                // Only bits of the magic number, which has no effect, may change undetected.
                Ok(found) => assert!(found == model.entries && bit < 16 * 8, "bit {bit} of {name}"),
                Err(damage) => assert!(damage.contains(name.as_str()), "{damage}"),
            }
        }
    }
}

#[test]
fn reads_stay_within_the_cache_limit() {
    let spaces = MemorySpaces::default();
    let (mut with, aside) = segmenting(64 << 10);
    with.cache = BlockCache::new(64 << 10);
    let mut writer = Writer::open(&spaces, true, Some(&with));
    let mut model = Entries::new();
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

/// As for segments: the error names the blob that is missing, truncated or changed.
#[test]
fn damage_of_a_blob_is_named() {
    let disk = SimDisk::new();
    let (with, _aside) = segmenting(1 << 20);
    let content: Vec<u8> = (0..40_000_u32).map(|number| number as u8).collect();
    let open = |disk: &Arc<SimDisk>| {
        let spaces = log_spaces(disk);
        let sync_counts = SyncCounts::open(&spaces).unwrap();
        SpaceStorage::open(&spaces, &sync_counts, "state", false, 1 << 20, Some(&with)).unwrap()
    };
    {
        let mut storage = open(&disk);
        let mut blobs = storage.load().unwrap().blobs;
        blobs.create("postings").unwrap();
        blobs.append("postings", &content).unwrap();
        blobs.seal("postings").unwrap();
        storage.commit(&Changes { blobs: Some(blobs), ..Changes::default() }).unwrap();
    }
    let (name, bytes) = disk.files().into_iter().find(|(name, _)| name.ends_with(".part")).unwrap();
    let read = |disk: &Arc<SimDisk>| {
        let mut storage = open(disk);
        if let Some(damage) = storage.damage() {
            return Err(damage);
        }
        let blobs = storage.load().unwrap().blobs;
        let pieces = (0..40_000).step_by(7000).map(|at| blobs.read("postings", at, 7000));
        let pieces = pieces.collect::<Result<Vec<_>, _>>().map_err(|error| error.to_string())?;
        Ok(pieces.concat())
    };
    assert_eq!(read(&disk).unwrap(), content);
    let missing = disk.copy();
    missing.remove(&name).unwrap();
    let short = disk.copy();
    short.truncate(&name, bytes - 1);
    let flipped = (0..bytes * 8).step_by(1777).map(|bit| {
        let flipped = disk.copy();
        flipped.flip(&name, bit);
        flipped
    });
    for damaged in [missing, short].into_iter().chain(flipped) {
        let damage = read(&damaged).unwrap_err();
        assert!(damage.contains(&name), "{damage}");
    }
}
