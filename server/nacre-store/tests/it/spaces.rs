//! Spaces as logs: after any crash or damaged bit, the rows are those after some batch.

use crate::crash::losses;
use crate::model::Chance;
use nacre_store::{
    Disk, Error, LogSpaces, Loss, OnDamage, SimDisk, Space, SpaceFiles, Spaces, Trouble, Write,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The limit is small, so that files are rewritten now and then.
const SLACK_BYTES: u64 = 4 << 10;
const NAME: &str = "plugins/a space of its own";

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

/// Opens the space, unless it is damaged.
fn try_open(
    disk: &Arc<SimDisk>,
    on_damage: OnDamage,
) -> Result<(LogSpaces, Arc<dyn Space>), Error> {
    let spaces = LogSpaces::open_on(Arc::clone(disk) as Arc<_>, on_damage, SLACK_BYTES)?;
    let space = spaces.open(NAME)?;
    Ok((spaces, space))
}

/// Opens the space, which crashes never damage.
fn open(disk: &Arc<SimDisk>) -> (LogSpaces, Arc<dyn Space>) {
    try_open(disk, OnDamage::Refuse).unwrap()
}

/// Opens the space, or what is left of it.
fn open_damaged(disk: &Arc<SimDisk>) -> (LogSpaces, Arc<dyn Space>) {
    try_open(disk, OnDamage::Forget).unwrap()
}

fn rows(space: &dyn Space) -> Rows {
    space.load().unwrap().into_iter().collect()
}

fn writes(chance: &mut Chance) -> Vec<Write> {
    let count = 1 + chance.below(6);
    let mut write = |_| {
        let key = format!("key {}", chance.below(40)).into_bytes();
        let value = vec![chance.below(256) as u8; [0, 3, 30, 700][chance.below(4) as usize]];
        (key, (chance.below(4) > 0).then_some(value))
    };
    (0..count).map(&mut write).collect()
}

fn change(rows: &mut Rows, writes: &[Write]) {
    for (key, value) in writes {
        match value {
            Some(value) => rows.insert(key.clone(), value.clone()),
            None => rows.remove(key),
        };
    }
}

/// The writes to a space, and its rows before the first step and after each step.
struct Run {
    disk: Arc<SimDisk>,
    /// The rows after each step, and the number of disk operations at its end.
    versions: Vec<(Rows, usize)>,
    /// Whether each step must be durable once it has ended.
    durable: Vec<bool>,
}

fn run(seed: u64, steps: usize, on_damage: OnDamage) -> Run {
    let (disk, mut chance) = (SimDisk::new(), Chance(seed));
    let open = |disk: &Arc<SimDisk>| try_open(disk, on_damage).unwrap();
    let (mut spaces, mut space) = open(&disk);
    let mut run = Run { disk, versions: vec![(Rows::new(), 0)], durable: vec![false] };
    for _ in 0..steps {
        let mut now = run.versions.last().unwrap().0.clone();
        let mut durable = chance.below(4) == 0;
        match chance.below(40) {
            0 => {
                space.clear().unwrap();
                (now, durable) = (Rows::new(), true);
            }
            1 | 2 => {
                drop((space, spaces));
                (spaces, space) = open(&run.disk);
                assert_eq!(rows(&*space), now);
                durable = false;
            }
            _ => {
                let writes = writes(&mut chance);
                space.apply(&writes, durable).unwrap();
                change(&mut now, &writes);
            }
        }
        run.versions.push((now, run.disk.operation_count()));
        run.durable.push(durable);
    }
    assert_eq!(spaces.names().unwrap(), [NAME]);
    run
}

impl Run {
    /// Checks that the rows are those after some step, which includes all durable steps of the first `operations`.
    fn judge(&self, found: &Rows, operations: usize, what: &str) {
        let ended = |step: usize| self.versions[step].1 <= operations;
        let steps = 0..self.versions.len();
        let at_least = steps.clone().rev().find(|step| self.durable[*step] && ended(*step));
        // The step in progress.
        let at_most = steps.clone().find(|step| !ended(*step)).unwrap_or(steps.end - 1);
        let fits = self.versions[at_least.unwrap_or(0)..=at_most].iter();
        let fits = fits.map(|(rows, _)| rows).any(|rows| rows == found);
        let rows = found.len();
        assert!(fits, "{what}: {rows} rows are none of the steps {at_least:?} to {at_most}");
    }
}

#[test]
fn a_power_failure_leaves_the_rows_after_some_batch() {
    for (seed, on_damage) in [(0, OnDamage::Refuse), (1, OnDamage::Forget), (2, OnDamage::Refuse)] {
        let run = run(seed, 150, on_damage);
        let mut replay = run.disk.replay();
        for now in 1..=run.disk.operation_count() {
            assert!(replay.step());
            let number = seed << 32 | now as u64;
            for loss in losses(number) {
                let (spaces, space) = try_open(&replay.cut(loss), on_damage).unwrap();
                let found = rows(&*space);
                run.judge(&found, now, &format!("seed {seed}, operation {now}, {loss:?}"));
                // The next process continues.
                let writes = writes(&mut Chance(number));
                space.apply(&writes, true).unwrap();
                drop((spaces, space));
            }
        }
    }
}

#[test]
fn writes_after_a_crash_are_not_mixed_with_earlier_ones() {
    let run = run(7, 60, OnDamage::Refuse);
    let mut replay = run.disk.replay();
    for now in 1..=run.disk.operation_count() {
        assert!(replay.step());
        let disk = replay.cut(Loss::Some(now as u64));
        let (spaces, space) = open(&disk);
        let (mut expected, mut chance) = (rows(&*space), Chance(now as u64));
        for _ in 0..3 {
            let writes = writes(&mut chance);
            space.apply(&writes, false).unwrap();
            change(&mut expected, &writes);
        }
        drop((spaces, space));
        assert_eq!(rows(&*open(&disk).1), expected, "operation {now}");
    }
}

#[test]
fn a_damaged_bit_ends_the_rows_there() {
    let run = run(11, 30, OnDamage::Refuse);
    let all = run.disk.operation_count();
    for (name, bytes) in run.disk.files() {
        for bit in (0..bytes * 8).step_by(7) {
            let disk = run.disk.copy();
            disk.flip(&name, bit);
            let (_spaces, space) = open_damaged(&disk);
            let found = rows(&*space);
            let fits = run.versions.iter().any(|(rows, _)| *rows == found);
            assert!(fits, "bit {bit} of {name}, after {all} operations");
            assert_ne!(
                found,
                run.versions.last().unwrap().0,
                "bit {bit} of {name} was not noticed"
            );
        }
    }
}

#[test]
fn damage_of_synced_data_is_reported() {
    let disk = SimDisk::new();
    let (spaces, space) = open(&disk);
    let (mut now, mut chance) = (Rows::new(), Chance(5));
    // The last batch is not synced: its damaged bits may be those of a crash.
    let mut before = Rows::new();
    for step in 0..60 {
        before = now.clone();
        let writes = writes(&mut chance);
        space.apply(&writes, step < 59).unwrap();
        change(&mut now, &writes);
    }
    drop((spaces, space));
    let mut refused = 0;
    for (name, bytes) in disk.files() {
        for bit in (0..bytes * 8).step_by(5) {
            let disk = disk.copy();
            disk.flip(&name, bit);
            match try_open(&disk, OnDamage::Refuse) {
                Ok((_spaces, space)) => {
                    // The file may have been rewritten with the last rows: then its last batch has no rows.
                    let found = rows(&*space);
                    assert!([&before, &now].contains(&&found), "bit {bit} of {name}");
                }
                Err(Error::Damaged { what, .. }) => {
                    assert!(what.contains("does not read back"), "{what}");
                    refused += 1;
                }
                Err(other) => panic!("bit {bit} of {name}: {other}"),
            }
        }
    }
    assert!(refused > 1000, "{refused}");
}

#[test]
fn the_last_batch_is_reported_like_earlier_ones_once_synced() {
    let disk = SimDisk::new();
    let (spaces, space) = open(&disk);
    let (mut now, mut chance) = (Rows::new(), Chance(6));
    for _ in 0..8 {
        let writes = writes(&mut chance);
        space.apply(&writes, true).unwrap();
        change(&mut now, &writes);
    }
    drop((spaces, space));
    let [(name, bytes)] = &disk.files()[..] else { panic!("{:?}", disk.files()) };
    let mark_at = (bytes - 24) * 8;
    for bit in 0..bytes * 8 {
        let disk = disk.copy();
        disk.flip(name, bit);
        match try_open(&disk, OnDamage::Refuse) {
            Ok((_spaces, space)) => {
                assert!(bit >= mark_at, "bit {bit} of {bytes} bytes was not noticed");
                assert_eq!(rows(&*space), now, "bit {bit}");
            }
            Err(error) => assert!(bit < mark_at, "bit {bit} of {bytes} bytes: {error}"),
        }
    }
}

#[test]
fn rows_read_at_open_are_durable_even_if_an_earlier_sync_failed() {
    let disk = SimDisk::new();
    let (spaces, space) = open(&disk);
    let row = |key: &[u8]| vec![(key.to_vec(), Some(b"1".to_vec()))];
    space.apply(&row(b"a"), true).unwrap();
    space.apply(&row(b"b"), false).unwrap();
    disk.trouble(0, Trouble::Sync);
    space.apply(&row(b"c"), true).unwrap_err();
    drop((spaces, space));
    // The next process reads the operating system's cache.
    let disk = disk.copy();
    let (_spaces, space) = open(&disk);
    let found = rows(&*space);
    assert_eq!(found.keys().collect::<Vec<_>>(), [b"a", b"b", b"c"]);
    assert_eq!(rows(&*open(&disk.cut(Loss::Everything)).1), found);
    space.apply(&row(b"d"), true).unwrap();
    assert_eq!(rows(&*open(&disk.cut(Loss::Everything)).1).len(), 4);
}

#[test]
fn damage_while_a_space_is_open_is_reported_and_not_extended() {
    let disk = SimDisk::new();
    let (spaces, space) = open(&disk);
    let (mut now, mut chance) = (Rows::new(), Chance(3));
    let mut versions = vec![now.clone()];
    for step in 0..300 {
        if step == 20 {
            let (name, bytes) = disk.files().remove(0);
            disk.flip(&name, bytes * 4);
            let error = space.load().unwrap_err().to_string();
            assert!(error.contains("does not read back"), "{error}");
        }
        let writes = writes(&mut chance);
        space.apply(&writes, false).unwrap();
        change(&mut now, &writes);
        versions.push(now.clone());
    }
    drop((spaces, space));
    let found = rows(&*open_damaged(&disk).1);
    assert!(versions[..20].contains(&found), "{} rows", found.len());
}

#[test]
fn nothing_is_durable_after_a_sync_that_failed() {
    let disk = SimDisk::new();
    let (spaces, space) = open(&disk);
    let write = |key: &[u8]| space.apply(&[(key.to_vec(), Some(b"1".to_vec()))], true);
    write(b"a").unwrap();
    disk.trouble(0, Trouble::Sync);
    write(b"b").unwrap_err();
    let error = write(b"c").unwrap_err().to_string();
    assert!(error.contains("could not be synced"), "{error}");
    let lost = disk.cut(Loss::Everything);
    assert_eq!(rows(&*open(&lost).1).into_keys().collect::<Vec<_>>(), [b"a"]);
    // A rewritten file is synced again.
    space.clear().unwrap();
    write(b"d").unwrap();
    drop(spaces);
    assert_eq!(rows(&*open(&disk.cut(Loss::Everything)).1).into_keys().collect::<Vec<_>>(), [b"d"]);
}

#[test]
fn a_file_is_no_longer_than_twice_its_rows() {
    let disk = SimDisk::new();
    let (_spaces, space) = open(&disk);
    for number in 0..2000_u32 {
        let value = vec![number as u8; 100];
        space.apply(&[(vec![number as u8 % 10], Some(value))], false).unwrap();
        let [(_, bytes)] = &disk.files()[..] else { panic!("{:?}", disk.files()) };
        assert!(*bytes < 2 * 1500 + SLACK_BYTES as usize, "{bytes} bytes for 10 rows");
    }
    assert_eq!(rows(&*space).len(), 10);
    assert_eq!(space.get(&[3]).unwrap().unwrap().len(), 100);
}

#[test]
fn a_file_is_no_longer_than_twice_its_rows_although_it_is_opened_again_and_again() {
    let disk = SimDisk::new();
    let mut longest = 0;
    for life in 0..200_u32 {
        let (_spaces, space) = open(&disk);
        for number in 0..10_u32 {
            let value = vec![(life + number) as u8; 100];
            space.apply(&[(vec![number as u8], Some(value))], true).unwrap();
        }
        assert_eq!(rows(&*space).len(), 10);
        let [(_, bytes)] = &disk.files()[..] else { panic!("{:?}", disk.files()) };
        longest = longest.max(*bytes);
    }
    assert!(longest < 2 * 1500 + SLACK_BYTES as usize, "{longest} bytes for 10 rows");
}

#[test]
fn a_full_disk_loses_nothing_that_was_there() {
    for (chance, trouble) in
        (0..400).flat_map(|chance| [(chance, Trouble::Full), (chance, Trouble::Exhausted)])
    {
        let disk = SimDisk::new();
        let (spaces, space) = open(&disk);
        let (mut numbers, mut expected) = (Chance(chance), Rows::new());
        disk.trouble(chance, trouble);
        for _ in 0..100 {
            let writes = writes(&mut numbers);
            if space.apply(&writes, false).is_ok() {
                change(&mut expected, &writes);
            }
        }
        assert_eq!(rows(&*space), expected, "{chance}");
        drop((spaces, space));
        assert_eq!(rows(&*open(&disk).1), expected, "{chance}, opened again");
    }
}

#[test]
fn spaces_are_found_by_name_and_removed_for_good() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("plugins");
    let names = ["plugins/b", "a", &"long ".repeat(400)];
    {
        let spaces = LogSpaces::open(&path, OnDamage::Refuse).unwrap();
        for name in names {
            let space = spaces.open(name).unwrap();
            space.apply(&[(name.as_bytes().to_vec(), Some(b"1".to_vec()))], true).unwrap();
            assert!(Arc::ptr_eq(&space, &spaces.open(name).unwrap()));
        }
        assert!(LogSpaces::open(&path, OnDamage::Refuse).is_err(), "it is in use");
        let removed = spaces.open("a").unwrap();
        spaces.remove("a").unwrap();
        removed.apply(&[(b"late".to_vec(), Some(b"1".to_vec()))], true).unwrap();
        removed.clear().unwrap();
        assert_eq!(spaces.open("a").unwrap().load().unwrap(), []);
        spaces.remove("a").unwrap();
        spaces.remove("a").unwrap();
    }
    std::fs::write(path.join("12.space.new"), b"half").unwrap();
    let spaces = LogSpaces::open(&path, OnDamage::Refuse).unwrap();
    let mut expected = vec![names[0].to_owned(), names[2].to_owned()];
    expected.sort();
    assert_eq!(spaces.names().unwrap(), expected);
    assert_eq!(spaces.open(names[2]).unwrap().load().unwrap().len(), 1);
    assert_eq!(std::fs::read_dir(&path).unwrap().count(), 3, "two spaces and the lock");
}

/// The files of a space live as long as the space. Files of removed spaces are deleted, and other files stay.
#[test]
fn files_of_a_space_live_as_long_as_the_space() {
    let disk = SimDisk::new();
    let (spaces, space) = open(&disk);
    let other = spaces.open("another").unwrap();
    for (space, numbers) in [(&space, [1, 7]), (&other, [1, 2])] {
        let files = space.files().unwrap();
        for number in numbers {
            files.create(number).unwrap().write_at(b"content", 0).unwrap();
        }
        let mut found = files.numbers().unwrap();
        found.sort_unstable();
        assert_eq!(found, numbers);
    }
    spaces.remove(NAME).unwrap();
    let left: Vec<_> = disk.files().into_iter().map(|(name, _)| name).collect();
    assert_eq!(left, ["1.1.part", "1.2.part", "1.space"]);
    let files = other.files().unwrap();
    let mut content = [0; 7];
    SpaceFiles::read(&*files.open(2).unwrap(), &mut content, 0).unwrap();
    assert_eq!(&content, b"content");
    files.remove(1).unwrap();
    // A process has ended between the removal of a space and that of its files.
    disk.remove("1.space").unwrap();
    drop((spaces, space, other));
    let (_spaces, _space) = open(&disk);
    let left: Vec<_> = disk.files().into_iter().map(|(name, _)| name).collect();
    assert!(!left.iter().any(|name| name.ends_with(".part")), "{left:?}");
}
