//! A state that exceeds its memory limit, on the disk of this machine.

use nacre_state::{
    BlockCache, Changes, KeySpace, MergeJob, Segmenting, SpaceStorage, State, StateStorage,
    SyncCounts, View,
};
use nacre_store::{LogSpaces, OnDamage};
use std::ops::Bound;
use std::sync::{Arc, mpsc};

const CACHE_BYTES: usize = 16 << 20;
const FLUSH_BYTES: usize = 8 << 20;
const VALUE_BYTES: usize = 400;
/// Number of rows in a commit, which is the batch size of a lagging feed.
const COMMIT_ROWS: u64 = 8192;

/// Size of the rows in MiB. With 1024, the effect of the memory limits shows.
fn state_mb() -> u64 {
    let mb = std::env::var("NACRE_STATE_MB").ok().and_then(|mb| mb.parse().ok());
    mb.unwrap_or(96)
}

/// Returns keys in random order, so that every commit touches the whole key range.
fn key(number: u64) -> [u8; 16] {
    let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    let mut key = *b"row/............";
    key[4..12].copy_from_slice(&mixed.to_be_bytes());
    key
}

fn value(number: u64) -> Vec<u8> {
    let mut value = vec![number as u8; VALUE_BYTES];
    value[..8].copy_from_slice(&number.to_be_bytes());
    value
}

fn open(spaces: &LogSpaces, with: &Segmenting) -> (SpaceStorage, KeySpace) {
    let sync_counts = SyncCounts::open(spaces).unwrap();
    let mut storage =
        SpaceStorage::open(spaces, &sync_counts, "rows", true, 64 << 20, Some(with)).unwrap();
    assert_eq!(storage.damage(), None);
    let space = storage.load().unwrap().space().unwrap();
    (storage, space)
}

#[test]
fn rows_beyond_memory_are_written_and_read_within_the_cache() {
    let folder = tempfile::tempdir().unwrap();
    let spaces = LogSpaces::open(folder.path(), OnDamage::Forget).unwrap();
    // Merges run on a separate thread, as in a node.
    let (jobs, merges) = mpsc::channel::<MergeJob>();
    let merging = std::thread::spawn(move || {
        for job in merges {
            while !job.step() {}
        }
    });
    let cache = BlockCache::new(CACHE_BYTES);
    let mut with = Segmenting::new(cache.clone());
    with.flush_bytes = FLUSH_BYTES;
    with.aside = Arc::new(move |job| jobs.send(job).unwrap());

    let rows = state_mb() * (1 << 20) / (VALUE_BYTES as u64 + 16);
    let (mut storage, mut space) = open(&spaces, &with);
    let mut memory_max = 0;
    for first in (0..rows).step_by(COMMIT_ROWS as usize) {
        let mut view = View::writing(State { space, ..State::default() }, usize::MAX);
        for number in first..rows.min(first + COMMIT_ROWS) {
            view.put(&key(number), &value(number)).unwrap();
        }
        let touched = view.writes.take().unwrap().touched;
        let changes = Changes { state: view.state.space.clone(), touched, ..Changes::default() };
        storage.commit(&changes).unwrap();
        space = view.state.space;
        memory_max = memory_max.max(space.memory_bytes());
        space = storage.rebase(&space).unwrap().unwrap_or(space);
    }
    storage.settle().unwrap();
    let bytes = space.bytes() as u64;
    assert!(bytes >= rows * (VALUE_BYTES as u64 + 16), "{bytes} bytes of rows");
    assert!(memory_max < 2 * FLUSH_BYTES + (1 << 20), "{memory_max} bytes in memory");
    drop((storage, space));

    let (storage, space) = open(&spaces, &with);
    assert!(space.memory_bytes() < FLUSH_BYTES + (1 << 20), "{}", space.memory_bytes());
    for number in (0..rows).step_by(9973) {
        assert_eq!(space.get(&key(number)).unwrap().unwrap().bytes(), value(number));
        assert!(space.get(&key(number + rows)).unwrap().is_none());
    }
    let all = space.scan((Bound::Unbounded, Bound::Unbounded), false).unwrap();
    let mut count = 0;
    let mut last = Vec::new();
    for row in all {
        let row = row.unwrap();
        assert!(row.key() > &last[..], "in order");
        last = row.key().to_vec();
        let number = u64::from_be_bytes(row.value()[..8].try_into().unwrap());
        assert_eq!((row.key(), row.value()), (&key(number)[..], &value(number)[..]));
        count += 1;
    }
    assert_eq!(count, rows);
    assert!(cache.bytes() <= CACHE_BYTES, "{} bytes in the cache", cache.bytes());
    drop((storage, space, with));
    merging.join().unwrap();
}
