//! A simulated disk in memory that tracks what was synced, so that a power cut can be tested at any point.
//!
//! Every operation is recorded. [`SimDisk::cut`], or [`SimDisk::replay`] for an earlier point, returns the disk as it
//! would be after a power cut at that point: everything synced survives, and [`Loss`] decides about the rest.
//!
//! The rules are those of POSIX, strictly interpreted:
//! - bytes written since the last sync of a file survive or are lost by the sector ([`SECTOR_BYTES`]), in any
//!   combination;
//! - the length of a file is content, too: without a sync it may be lost;
//! - creations, renames and removals survive or are lost in any combination, except changes of the same name, until
//!   [`sync_names`](Disk::sync_names);
//! - after a failed sync, written bytes stay readable, but no later sync makes them durable.

use crate::disk::{Disk, DiskFile};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// A disk writes this many bytes completely or not at all.
pub const SECTOR_BYTES: usize = 512;

/// The unsynced data that a power cut loses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// All unsynced data is lost.
    Everything,
    /// No data is lost.
    Nothing,
    /// Each sector and each change of a name is lost at random, with this seed.
    Some(u64),
    /// The last write is cut off after some sectors; all earlier data survives.
    Torn(u64),
}

/// An operation on the disk.
#[derive(Clone, Debug)]
pub enum Operation {
    /// A file of zeros was created.
    Create {
        /// The name of the file.
        name: String,
        /// The number of the file, from 0.
        file: usize,
        /// The length of the file.
        bytes: u64,
    },
    /// Bytes were written.
    Write {
        /// The file.
        file: usize,
        /// The offset in the file.
        offset: u64,
        /// The bytes.
        bytes: Arc<[u8]>,
    },
    /// A file was synced.
    Sync {
        /// The file.
        file: usize,
    },
    /// A sync failed.
    FailedSync {
        /// The file.
        file: usize,
    },
    /// A file was renamed.
    Rename {
        /// The name before.
        from: String,
        /// The name after.
        to: String,
    },
    /// A name was removed.
    Remove {
        /// The name.
        name: String,
    },
    /// The names were synced.
    SyncNames,
}

/// An error to inject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// The disk is full: a file cannot be created, or a write is cut off half way.
    Full,
    /// The process lacks descriptors or memory: a file cannot be created, or a write is cut off half way.
    Exhausted,
    /// The sync of a file fails.
    Sync,
}

#[derive(Clone, Default)]
struct Content {
    /// The content that programs see.
    visible: Vec<u8>,
    /// The content at the last sync.
    synced: Vec<u8>,
    /// Writes since the last sync: offset and bytes.
    pending: Vec<(u64, Arc<[u8]>)>,
}

#[derive(Clone, Default)]
struct State {
    files: Vec<Content>,
    names: BTreeMap<String, usize>,
    synced_names: BTreeMap<String, usize>,
    /// Unsynced changes of names: each name and its current file.
    pending_names: Vec<Vec<(String, Option<usize>)>>,
    operations: Vec<Operation>,
    recording: bool,
    /// The disk before the first operation.
    base: Option<Arc<State>>,
    /// Number of writes, creations and syncs so far, and the failure to inject.
    chances: u64,
    trouble: Option<(u64, Trouble)>,
    /// Maximum bytes returned by a read.
    read_bytes_max: usize,
}

impl State {
    fn apply(&mut self, operation: Operation) {
        match &operation {
            Operation::Create { name, file, bytes } => {
                let content = Content { visible: vec![0; *bytes as usize], ..Content::default() };
                debug_assert_eq!(*file, self.files.len());
                self.files.push(content);
                self.rename(vec![(name.clone(), Some(*file))]);
            }
            Operation::Write { file, offset, bytes } => {
                let content = &mut self.files[*file];
                put(&mut content.visible, *offset, bytes);
                content.pending.push((*offset, Arc::clone(bytes)));
            }
            Operation::Sync { file } => {
                let content = &mut self.files[*file];
                content.synced.resize(content.visible.len(), 0);
                for (offset, bytes) in std::mem::take(&mut content.pending) {
                    put(&mut content.synced, offset, &bytes);
                }
            }
            Operation::FailedSync { file } => self.files[*file].pending.clear(),
            Operation::Rename { from, to } => {
                let file = self.names.get(from).copied();
                self.rename(vec![(from.clone(), None), (to.clone(), file)]);
            }
            Operation::Remove { name } => self.rename(vec![(name.clone(), None)]),
            Operation::SyncNames => {
                self.pending_names.clear();
                self.synced_names.clone_from(&self.names);
            }
        }
        if self.recording {
            self.operations.push(operation);
        }
    }

    fn rename(&mut self, change: Vec<(String, Option<usize>)>) {
        set_names(&mut self.names, &change);
        self.pending_names.push(change);
    }

    /// Counts an opportunity for a failure, and returns the failure that occurs.
    fn meets(&mut self, kinds: &[Trouble]) -> Option<Trouble> {
        self.chances += 1;
        self.trouble
            .take_if(|(at, trouble)| *at <= self.chances && kinds.contains(trouble))
            .map(|(_, trouble)| trouble)
    }

    /// Returns the disk after a power cut now.
    fn cut(&self, loss: Loss) -> State {
        let mut chance = Chance(match loss {
            Loss::Some(seed) | Loss::Torn(seed) => seed,
            Loss::Everything | Loss::Nothing => 0,
        });
        let mut names = self.synced_names.clone();
        let mut lost: Vec<&str> = Vec::new();
        for change in &self.pending_names {
            let kept = match loss {
                Loss::Everything => false,
                Loss::Nothing | Loss::Torn(_) => true,
                Loss::Some(_) => chance.below(2) == 0,
            };
            if kept && !change.iter().any(|(name, _)| lost.contains(&name.as_str())) {
                set_names(&mut names, change);
            } else {
                lost.extend(change.iter().map(|(name, _)| name.as_str()));
            }
        }
        let mut found = State::default();
        for (name, file) in names {
            let content = self.files[file].cut(loss, &mut chance);
            found.names.insert(name, found.files.len());
            found.files.push(content);
        }
        found.synced_names.clone_from(&found.names);
        found
    }
}

fn set_names(names: &mut BTreeMap<String, usize>, change: &[(String, Option<usize>)]) {
    for (name, file) in change {
        match file {
            Some(file) => names.insert(name.clone(), *file),
            None => names.remove(name),
        };
    }
}

fn put(content: &mut Vec<u8>, offset: u64, bytes: &[u8]) {
    let end = offset as usize + bytes.len();
    if content.len() < end {
        content.resize(end, 0);
    }
    content[offset as usize..end].copy_from_slice(bytes);
}

impl Content {
    fn cut(&self, loss: Loss, chance: &mut Chance) -> Content {
        let mut content = self.synced.clone();
        let grown = content.len() < self.visible.len();
        let keeps_length = match loss {
            Loss::Everything => false,
            Loss::Nothing | Loss::Torn(_) => true,
            Loss::Some(_) => chance.below(2) == 0,
        };
        if grown && keeps_length {
            content.resize(self.visible.len(), 0);
        }
        let count = self.pending.len();
        for (index, (offset, bytes)) in self.pending.iter().enumerate() {
            let mut start = 0;
            let torn_at = chance.below(bytes.len() as u64 / SECTOR_BYTES as u64 + 1);
            let mut sector = 0;
            while start < bytes.len() {
                let position = *offset as usize + start;
                let end = bytes.len().min(start + SECTOR_BYTES - position % SECTOR_BYTES);
                let kept = match loss {
                    Loss::Everything => false,
                    Loss::Nothing => true,
                    Loss::Some(_) => chance.below(2) == 0,
                    Loss::Torn(_) => index + 1 < count || sector < torn_at,
                };
                // A sector after the end of the file is lost with the length.
                if kept && (keeps_length || position + (end - start) <= content.len()) {
                    put(&mut content, position as u64, &bytes[start..end]);
                }
                start = end;
                sector += 1;
            }
        }
        Content { visible: content.clone(), synced: content, pending: Vec::new() }
    }
}

/// A small random generator: the same seed produces the same cuts.
struct Chance(u64);

impl Chance {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % limit
    }
}

/// A simulated disk. Clones of the handle share the disk.
pub struct SimDisk(Arc<Mutex<State>>);

impl SimDisk {
    /// Creates an empty disk that records its operations.
    pub fn new() -> Arc<SimDisk> {
        SimDisk::starting_at(State::default())
    }

    /// Creates an empty disk without records: power cuts are possible only at the current point.
    pub fn unrecorded() -> Arc<SimDisk> {
        let state = State { read_bytes_max: usize::MAX, ..State::default() };
        Arc::new(SimDisk(Arc::new(Mutex::new(state))))
    }

    fn starting_at(state: State) -> Arc<SimDisk> {
        let base = Some(Arc::new(state.clone()));
        let state = State { recording: true, read_bytes_max: usize::MAX, base, ..state };
        Arc::new(SimDisk(Arc::new(Mutex::new(state))))
    }

    /// Returns the number of operations.
    pub fn operation_count(&self) -> usize {
        self.0.lock().operations.len()
    }

    /// Injects `trouble`: counting writes, creations and syncs from now on, the first one at or after number `chance`
    /// that can fail in this way does.
    pub fn trouble(&self, chance: u64, trouble: Trouble) {
        let mut state = self.0.lock();
        state.trouble = Some((state.chances + chance, trouble));
    }

    /// Returns true if the injected failure has occurred.
    pub fn had_trouble(&self) -> bool {
        self.0.lock().trouble.is_none()
    }

    /// Limits the bytes returned by a read.
    pub fn read_at_most(&self, bytes: usize) {
        self.0.lock().read_bytes_max = bytes;
    }

    /// Returns the files with their lengths, by name.
    pub fn files(&self) -> Vec<(String, usize)> {
        let state = self.0.lock();
        let file =
            |(name, file): (&String, &usize)| (name.clone(), state.files[*file].visible.len());
        state.names.iter().map(file).collect()
    }

    /// Returns a copy of the disk as programs see it now: the state after a crash of the process.
    pub fn copy(&self) -> Arc<SimDisk> {
        SimDisk::starting_at(self.0.lock().cut_by_nothing())
    }

    /// Returns the disk after a power cut now. The new disk records its operations.
    pub fn cut(&self, loss: Loss) -> Arc<SimDisk> {
        SimDisk::starting_at(self.0.lock().cut(loss))
    }

    /// Flips one bit of a file.
    pub fn flip(&self, name: &str, bit: usize) {
        let mut state = self.0.lock();
        let file = state.names[name];
        state.files[file].visible[bit / 8] ^= 1 << (bit % 8);
    }

    /// Truncates a file.
    pub fn truncate(&self, name: &str, bytes: usize) {
        let mut state = self.0.lock();
        let file = state.names[name];
        state.files[file].visible.truncate(bytes);
    }

    /// Starts a replay of the operations, one at a time.
    pub fn replay(&self) -> Replay {
        let state = self.0.lock();
        let base = state.base.as_ref().map_or_else(State::default, |base| State::clone(base));
        Replay { operations: state.operations.clone().into_iter(), state: base }
    }
}

impl State {
    fn cut_by_nothing(&self) -> State {
        // Programs see what a lossless power cut leaves, except after failed syncs.
        let mut found = self.cut(Loss::Nothing);
        for (name, file) in &self.names {
            let copy = found.names[name];
            found.files[copy].visible.clone_from(&self.files[*file].visible);
        }
        found
    }
}

/// A replay of a disk's operations.
pub struct Replay {
    operations: std::vec::IntoIter<Operation>,
    state: State,
}

impl Replay {
    /// Repeats the next operation. Returns false at the end.
    pub fn step(&mut self) -> bool {
        let Some(operation) = self.operations.next() else { return false };
        self.state.apply(operation);
        true
    }

    /// Returns the disk after a power cut at this point.
    pub fn cut(&self, loss: Loss) -> Arc<SimDisk> {
        SimDisk::starting_at(self.state.cut(loss))
    }
}

/// Returns the error that the operating system would report.
fn error_of(trouble: Trouble) -> io::Error {
    match trouble {
        Trouble::Full => io::ErrorKind::StorageFull.into(),
        Trouble::Exhausted => io::Error::from_raw_os_error(rustix::io::Errno::MFILE.raw_os_error()),
        Trouble::Sync => io::Error::other("the disk failed"),
    }
}

struct SimFile {
    disk: Arc<Mutex<State>>,
    file: usize,
}

impl Disk for SimDisk {
    fn path(&self) -> &Path {
        Path::new("simulated")
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let file = *self.0.lock().names.get(name).ok_or(io::ErrorKind::NotFound)?;
        Ok(Arc::new(SimFile { disk: Arc::clone(&self.0), file }))
    }

    fn create(&self, name: &str, bytes: u64) -> io::Result<Arc<dyn DiskFile>> {
        let mut state = self.0.lock();
        let trouble = state.meets(&[Trouble::Full, Trouble::Exhausted]);
        if trouble == Some(Trouble::Exhausted) {
            return Err(error_of(Trouble::Exhausted));
        }
        let file = state.files.len();
        let bytes = if trouble.is_some() { 0 } else { bytes };
        state.apply(Operation::Create { name: name.to_owned(), file, bytes });
        match trouble {
            Some(trouble) => Err(error_of(trouble)),
            None => Ok(Arc::new(SimFile { disk: Arc::clone(&self.0), file })),
        }
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.0.lock();
        if !state.names.contains_key(from) {
            return Err(io::ErrorKind::NotFound.into());
        }
        state.apply(Operation::Rename { from: from.to_owned(), to: to.to_owned() });
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut state = self.0.lock();
        if !state.names.contains_key(name) {
            return Err(io::ErrorKind::NotFound.into());
        }
        state.apply(Operation::Remove { name: name.to_owned() });
        Ok(())
    }

    fn names(&self) -> io::Result<Vec<String>> {
        Ok(self.0.lock().names.keys().cloned().collect())
    }

    fn sync_names(&self) -> io::Result<()> {
        self.0.lock().apply(Operation::SyncNames);
        Ok(())
    }
}

impl DiskFile for SimFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let state = self.disk.lock();
        let visible = &state.files[self.file].visible;
        let from = visible.get(offset as usize..).unwrap_or_default();
        let bytes = buffer.len().min(from.len()).min(state.read_bytes_max);
        buffer[..bytes].copy_from_slice(&from[..bytes]);
        Ok(bytes)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut state = self.disk.lock();
        let trouble = state.meets(&[Trouble::Full, Trouble::Exhausted]);
        let written = if trouble.is_some() { &bytes[..bytes.len() / 2] } else { bytes };
        state.apply(Operation::Write { file: self.file, offset, bytes: written.into() });
        trouble.map_or(Ok(()), |trouble| Err(error_of(trouble)))
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.disk.lock();
        if state.meets(&[Trouble::Sync]).is_some() {
            state.apply(Operation::FailedSync { file: self.file });
            return Err(error_of(Trouble::Sync));
        }
        state.apply(Operation::Sync { file: self.file });
        Ok(())
    }

    fn bytes(&self) -> io::Result<u64> {
        Ok(self.disk.lock().files[self.file].visible.len() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(disk: &SimDisk, name: &str) -> Option<String> {
        let file = disk.open(name).ok()?;
        let mut bytes = vec![0; file.bytes().unwrap() as usize];
        crate::disk::read_exact(&*file, &mut bytes, 0).unwrap();
        Some(String::from_utf8(bytes).unwrap())
    }

    #[test]
    fn a_power_cut_loses_what_was_not_synced_and_nothing_else() {
        let disk = SimDisk::new();
        let file = disk.create("a", 0).unwrap();
        file.write_at(b"synced", 0).unwrap();
        file.sync().unwrap();
        disk.sync_names().unwrap();
        file.write_at(b"SY", 0).unwrap();
        disk.rename("a", "b").unwrap();
        assert_eq!(text(&disk, "b").unwrap(), "SYnced");
        let cut = disk.cut(Loss::Everything);
        assert_eq!((text(&cut, "a"), text(&cut, "b")), (Some("synced".into()), None));
        let cut = disk.cut(Loss::Nothing);
        assert_eq!((text(&cut, "a"), text(&cut, "b")), (None, Some("SYnced".into())));
        let mut replay = disk.replay();
        (0..3).for_each(|_| assert!(replay.step()));
        assert_eq!(replay.cut(Loss::Everything).files(), [], "the name was not synced yet");
    }

    #[test]
    fn a_write_is_torn_between_sectors() {
        let disk = SimDisk::new();
        let file = disk.create("a", 2000).unwrap();
        file.sync().unwrap();
        disk.sync_names().unwrap();
        file.write_at(&[b'x'; 1800], 100).unwrap();
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..100 {
            let found = text(&disk.cut(Loss::Torn(seed)), "a").unwrap();
            seen.insert(found.bytes().filter(|byte| *byte == b'x').count());
        }
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), [0, 412, 924, 1436]);
    }

    #[test]
    fn rows_of_a_failed_sync_are_visible_but_not_durable() {
        let disk = SimDisk::new();
        let file = disk.create("a", 0).unwrap();
        disk.sync_names().unwrap();
        disk.trouble(0, Trouble::Sync);
        file.write_at(b"x", 0).unwrap();
        assert!(file.sync().is_err());
        file.sync().unwrap();
        assert_eq!(text(&disk, "a").unwrap(), "x");
        assert_eq!(text(&disk.cut(Loss::Nothing), "a").unwrap(), "\0");
    }
}
