//! The durable storage of a plugin's partition, in a space of the node.
//!
//! Rows: `s` and the plugin's key hold the state. `t` and a name hold a timer (due time, u64, and payload); `v`, a vBucket number
//! (u16) and a name hold a timer of that vBucket. `p` and a vBucket number hold the position of the feed (UUID, seqno, start and
//! end of its snapshot, each u64) and, if it is reported to other nodes, its moment (term, time and count, each u64). `x` holds
//! the reason why a partition stopped because its state exceeded a limit. Numbers are big-endian.
//!
//! Commits without outside effects may be deferred for a while: after a crash, the history is folded again from a consistent
//! state and progress. Rows that are rewritten in the meantime, as pages of trees often are, are then written only once.
//!
//! In a segmented state ([`Segmenting`]), the `s` rows are the entries since the last flush. `d` and a key marks a key removed
//! since, `g` and a number names a segment, `b` and a name a blob, and `m` holds the next file number.
//!
//! Row `n` counts the syncs of the rows. [`SyncCounts`] also stores that number, in the node's settings. A space with a lower
//! number, or a missing space, has lost rows ([`SpaceStorage::damage`]).

use crate::blobs::{BlobRecord, Blobs};
use crate::segmented::{self, BLOB, NEXT, SEGMENT, Segmented, Segmenting};
use crate::segments::Record;
use crate::{Changes, Home, KeySpace, Loaded, ProgressStamp, StateStorage, Timer, VbucketProgress};
use nacre_dcp::ResumePoint;
use nacre_store::{Error, Space, Spaces, Write};
use nacre_types::{Seqno, VbUuid, Vbid};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

const STATE: u8 = b's';
const REMOVED: u8 = b'd';
const TIMER: u8 = b't';
const VBUCKET_TIMER: u8 = b'v';
const PROGRESS: u8 = b'p';
const SYNCS: u8 = b'n';
const STOPPED: u8 = b'x';

/// Maximum bytes of rows of deferred commits.
pub const DEFERRED_BYTES_MAX: usize = 64 << 20;

/// The sync count of each deployment's space.
#[derive(Clone)]
pub struct SyncCounts(Arc<dyn Space>);

impl SyncCounts {
    /// Opens the space of the counts.
    ///
    /// # Errors
    /// Fails when it cannot be opened.
    pub fn open(spaces: &dyn Spaces) -> Result<SyncCounts, Error> {
        spaces.open("states").map(SyncCounts)
    }

    fn syncs(&self, name: &str) -> Result<u64, Error> {
        let found = self.0.get(name.as_bytes())?;
        Ok(found.and_then(|value| Some(u64::from_be_bytes(value.try_into().ok()?))).unwrap_or(0))
    }

    fn set(&self, name: &str, syncs: u64) -> Result<(), Error> {
        let value = syncs.to_be_bytes().to_vec();
        self.0.apply(&[(name.as_bytes().to_vec(), Some(value))], true)
    }

    /// Forgets the count of a space, before the space is cleared or removed.
    ///
    /// # Errors
    /// Fails when the disk refuses.
    pub fn forget(&self, name: &str) -> Result<(), Error> {
        match self.syncs(name)? {
            0 => Ok(()),
            _ => self.0.apply(&[(name.as_bytes().to_vec(), None)], true),
        }
    }
}

/// The rows of one partition in its own space.
pub struct SpaceStorage {
    space: Arc<dyn Space>,
    name: String,
    sync_counts: SyncCounts,
    /// Number of syncs of the rows.
    syncs: u64,
    /// True if rows were written since the last sync.
    is_unsynced: bool,
    /// The contents at the open, until they are loaded.
    loaded: Option<Loaded>,
    /// The loss found at the open.
    damage: Option<String>,
    /// True if commits may be deferred.
    defers_commits: bool,
    deferred: DeferredCommits,
    deferred_bytes_max: usize,
    segmented: Option<Stored>,
    /// Number of the deployer's orders to continue.
    tries: u64,
}

/// The stop of a partition whose state exceeded a limit.
#[derive(Serialize, Deserialize)]
struct Stopped {
    reason: String,
    /// The node's memory for plugin states at that time, in bytes.
    limit_bytes: usize,
    tries: u64,
}

/// The on-disk part of a segmented state.
struct Stored {
    segmented: Segmented,
    /// The keys of the entries that are rows, with the kind of each row.
    logged: BTreeMap<Vec<u8>, u8>,
    /// The blobs named by rows.
    blobs: Blobs,
}

impl Stored {
    /// Returns the rows for a key whose new value is `value`.
    fn rows(&mut self, key: &[u8], value: Option<Vec<u8>>) -> impl Iterator<Item = Write> + use<> {
        let (kind, value) = match value {
            Some(value) => (STATE, value),
            None => (REMOVED, Vec::new()),
        };
        let before = self.logged.insert(key.to_vec(), kind).filter(|before| *before != kind);
        let gone = before.map(|before| ([&[before], key].concat(), None));
        gone.into_iter().chain([([&[kind], key].concat(), Some(value))])
    }

    /// Returns the removals of rows once all entries in memory are flushed to a segment.
    fn flushed(&mut self) -> impl Iterator<Item = Write> {
        let logged = std::mem::take(&mut self.logged);
        logged.into_iter().map(|(key, kind)| ([&[kind], &key[..]].concat(), None))
    }
}

/// Commits not yet written to the space: the touched keys and their newest values.
#[derive(Default)]
struct DeferredCommits {
    state: KeySpace,
    touched: KeySpace,
    timers: BTreeMap<(Home, String), Option<Timer>>,
    progress: BTreeMap<Vbid, VbucketProgress>,
    /// The blobs, if they have changed.
    blobs: Option<Blobs>,
    /// Approximate size of the rows.
    bytes: usize,
}

impl DeferredCommits {
    fn take(&mut self, changes: &Changes) {
        for key in changes.touched.keys() {
            if self.touched.add(key) {
                let value = changes.state.get_in_memory(key);
                self.bytes += key.len() + value.map_or(0, |value| value.bytes().len());
            }
        }
        self.state = changes.state.clone();
        for (key, timer) in &changes.timers {
            self.bytes += key.1.len() + timer.as_ref().map_or(0, |timer| timer.payload.len());
            self.timers.insert(key.clone(), timer.clone());
        }
        self.progress.extend(changes.progress.iter().copied());
        if changes.blobs.is_some() {
            self.blobs.clone_from(&changes.blobs);
        }
    }

    fn rows(&self, stored: Option<&mut Stored>) -> Vec<Write> {
        let entry = |key| (key, self.state.get_in_memory(key).map(|value| value.bytes().to_vec()));
        let state = self.touched.keys().map(entry);
        let mut rows: Vec<Write> = match stored {
            None => state.map(|(key, value)| ([&[STATE], key].concat(), value)).collect(),
            Some(stored) => state.flat_map(|(key, value)| stored.rows(key, value)).collect(),
        };
        rows.extend(self.rows_beside());
        rows
    }

    /// Returns the rows of timers and progress.
    fn rows_beside(&self) -> impl Iterator<Item = Write> {
        let timers = self.timers.iter().map(|((home, name), timer)| {
            let value = timer
                .as_ref()
                .map(|timer| [&timer.due_us.to_be_bytes()[..], &timer.payload].concat());
            let key = match home {
                Some(Vbid(vbid)) => {
                    [&[VBUCKET_TIMER], &vbid.to_be_bytes()[..], name.as_bytes()].concat()
                }
                None => [&[TIMER], name.as_bytes()].concat(),
            };
            (key, value)
        });
        let progress = self.progress.iter().map(|(vbid, VbucketProgress { moment, point })| {
            let ResumePoint { vb_uuid, seqno, snapshot_start, snapshot_end } = *point;
            let mut numbers = vec![vb_uuid.0, seqno.0, snapshot_start.0, snapshot_end.0];
            if *moment != ProgressStamp::default() {
                numbers.extend([moment.term, moment.begun, moment.count]);
            }
            let value: Vec<u8> = numbers.iter().flat_map(|number| number.to_be_bytes()).collect();
            ([&[PROGRESS], &vbid.0.to_be_bytes()[..]].concat(), Some(value))
        });
        timers.chain(progress)
    }
}

impl SpaceStorage {
    /// Opens the rows of the space `name`. With `defers_commits`, commits are written once they have `deferred_bytes_max`
    /// bytes together, or at [`StateStorage::settle`].
    ///
    /// The state becomes segmented if `segmenting` is given, and resident otherwise, whatever its previous form.
    ///
    /// # Errors
    /// Fails when the rows cannot be read.
    pub fn open(
        states: &dyn Spaces,
        sync_counts: &SyncCounts,
        name: &str,
        defers_commits: bool,
        deferred_bytes_max: usize,
        segmenting: Option<&Segmenting>,
    ) -> Result<SpaceStorage, String> {
        let text = |error: Error| error.to_string();
        let vouched = sync_counts.syncs(name).map_err(text)?;
        let space = states.open(name).map_err(text)?;
        let Read { mut loaded, syncs, records, blobs, next } = read(&*space)?;
        let mut damage = match space.damage() {
            None if syncs < vouched => Some("a part that was stored is missing".into()),
            damage => damage,
        };
        let was_segmented = next.is_some() || !records.is_empty();
        let mut segmented = None;
        if segmenting.is_some() || was_segmented {
            let files =
                space.files().ok_or("the storage of the state does not support segments")?;
            let with = segmenting.cloned().unwrap_or_else(Segmenting::without_cache);
            let next = next.unwrap_or_default();
            let opened = Segmented::open(files.clone(), records, &blobs, next, &with);
            let opened = opened.and_then(|opened| {
                loaded.blobs = Blobs::open(opened.blob_files(), blobs)?;
                Ok(opened)
            });
            match opened {
                Ok(opened) => segmented = Some(opened),
                Err(lost) => {
                    // The remaining entries are useless, and their progress would be wrong.
                    loaded = Loaded::default();
                    damage.get_or_insert(lost.to_string());
                    let nothing = Segmented::lost(files, &with);
                    loaded.blobs = Blobs::new(nothing.blob_files());
                    segmented = Some(nothing);
                }
            }
        }
        let mut stored = None;
        if let Some(segmented) = segmented {
            let kind = |kind| move |key: &Vec<u8>| (key.clone(), kind);
            let logged = loaded.entries.iter().map(|(key, _)| key).map(kind(STATE));
            let logged = logged.chain(loaded.removed.iter().map(kind(REMOVED))).collect();
            loaded.base = Some(Arc::clone(segmented.segments()));
            let blobs = loaded.blobs.clone();
            stored = Some(Stored { segmented, logged, blobs });
        }
        let mut storage = SpaceStorage {
            space,
            name: name.to_owned(),
            sync_counts: sync_counts.clone(),
            syncs,
            is_unsynced: false,
            loaded: Some(loaded),
            damage,
            defers_commits,
            deferred: DeferredCommits::default(),
            deferred_bytes_max,
            segmented: stored,
            tries: 0,
        };
        if segmenting.is_none() && storage.segmented.is_some() {
            storage.make_resident()?;
        }
        Ok(storage)
    }

    /// Converts all entries of a segmented state into rows.
    fn make_resident(&mut self) -> Result<(), String> {
        let Some(mut stored) = self.segmented.take_if(|stored| stored.blobs.is_empty()) else {
            // Blobs need files, so the state stays segmented.
            return Ok(());
        };
        let mut loaded = self.loaded.take().unwrap_or_default();
        let space = loaded.space()?;
        let all = (Bound::Unbounded, Bound::Unbounded);
        let mut entries = Vec::new();
        for row in space.scan(all, false).map_err(|damage| damage.to_string())? {
            let row = row.map_err(|damage| damage.to_string())?;
            entries.push((row.key().to_vec(), row.value().to_vec()));
        }
        let segments = Arc::clone(stored.segmented.segments());
        let mut rows: Vec<Write> = stored.flushed().collect();
        rows.extend(segments.records().map(|record| (segmented::row(record).0, None)));
        rows.push((vec![NEXT], None));
        rows.extend(
            entries.iter().map(|(key, value)| ([&[STATE], &key[..]].concat(), Some(value.clone()))),
        );
        self.apply(rows, true)?;
        stored.segmented.clear();
        (loaded.entries, loaded.removed, loaded.base) = (entries, Vec::new(), None);
        loaded.blobs = Blobs::default();
        self.loaded = Some(loaded);
        Ok(())
    }

    /// Checks whether the partition has stopped because its state exceeded a limit. It continues if the node has more
    /// memory for states now (`limit_bytes`), or if the deployer has ordered that since (`tries`).
    ///
    /// # Errors
    /// The reason why the partition stays stopped, or the error of the disk.
    pub fn begin(&mut self, limit_bytes: usize, tries: u64) -> Result<(), String> {
        self.tries = tries;
        let row = self.space.get(&[STOPPED]).map_err(|error| error.to_string())?;
        let Some(row) = row else { return Ok(()) };
        let stopped: Stopped =
            serde_json::from_slice(&row).map_err(|_| "the row of a stop is damaged")?;
        if limit_bytes <= stopped.limit_bytes && tries == stopped.tries {
            return Err(stopped.reason);
        }
        self.space.apply(&[(vec![STOPPED], None)], true).map_err(|error| error.to_string())
    }

    /// Returns the file and its loss, if there is one. The loaded rows are then older ones; [`StateStorage::clear`]
    /// resets the space.
    pub fn damage(&self) -> Option<String> {
        let damage = self.damage.as_ref()?;
        Some(format!("{}: {damage}", self.space.file()))
    }

    fn write(&mut self, durable: bool) -> Result<(), String> {
        let mut deferred = std::mem::take(&mut self.deferred);
        let blobs = deferred.blobs.take();
        let mut rows = deferred.rows(self.segmented.as_mut());
        rows.extend(self.rows_of(blobs.as_ref())?);
        if rows.is_empty() && !(durable && self.is_unsynced) {
            return Ok(());
        }
        // A file that is no longer named is removed at once, so the change must be durable first.
        self.apply(rows, durable || blobs.is_some())?;
        self.take_blobs(blobs);
        Ok(())
    }

    /// Returns the rows of changed blobs, after syncing their contents.
    fn rows_of(&self, blobs: Option<&Blobs>) -> Result<Vec<Write>, String> {
        let (Some(blobs), Some(stored)) = (blobs, &self.segmented) else { return Ok(Vec::new()) };
        blobs.sync().map_err(|error| error.to_string())?;
        let changes = blobs.changes(&stored.blobs).into_iter();
        let mut rows: Vec<Write> =
            changes.map(|(name, record)| segmented::blob_row(&name, record.as_ref())).collect();
        rows.push(stored.segmented.next_row());
        Ok(rows)
    }

    /// Marks the blobs as named by rows.
    fn take_blobs(&mut self, blobs: Option<Blobs>) {
        if let (Some(blobs), Some(stored)) = (blobs, &mut self.segmented) {
            blobs.committed(&stored.blobs);
            stored.blobs = blobs;
        }
    }

    /// Writes rows atomically.
    fn apply(&mut self, mut rows: Vec<Write>, durable: bool) -> Result<(), String> {
        if durable {
            rows.push((vec![SYNCS], Some((self.syncs + 1).to_be_bytes().to_vec())));
        }
        self.loaded = None;
        self.space.apply(&rows, durable).map_err(|error| error.to_string())?;
        self.is_unsynced = !durable;
        if durable {
            self.syncs += 1;
            self.sync_counts.set(&self.name, self.syncs).map_err(|error| error.to_string())?;
        }
        Ok(())
    }
}

/// The rows read from a space.
#[derive(Default)]
struct Read {
    loaded: Loaded,
    /// Number of syncs.
    syncs: u64,
    /// The segments named by rows.
    records: Vec<Record>,
    /// The blobs named by rows.
    blobs: Vec<BlobRecord>,
    /// The next file number, if the state is segmented.
    next: Option<u64>,
}

/// Reads all rows.
fn read(space: &dyn Space) -> Result<Read, String> {
    let mut read = Read::default();
    let Read { loaded, syncs, records, blobs, next } = &mut read;
    for (key, value) in space.load().map_err(|error| error.to_string())? {
        match key.split_first() {
            Some((&REMOVED, rest)) => loaded.removed.push(rest.to_vec()),
            Some((&SEGMENT, rest)) => {
                let record = segmented::record(rest, &value);
                records.push(record.ok_or("a row of a segment is damaged")?);
            }
            Some((&BLOB, name)) => {
                let record = segmented::blob_record(name, &value);
                blobs.push(record.ok_or("a row of a blob is damaged")?);
            }
            Some((&NEXT, [])) => {
                let number = value.try_into().map_err(|_| "a row of a number is damaged")?;
                *next = Some(u64::from_be_bytes(number));
            }
            Some((&STATE, rest)) => loaded.entries.push((rest.to_vec(), value)),
            Some((&TIMER, rest)) => {
                let row = timer(None, rest, &value).ok_or(DAMAGED_TIMER)?;
                loaded.timers.push(row);
            }
            Some((&VBUCKET_TIMER, rest)) => {
                let (vbid, name) = rest.split_first_chunk().ok_or(DAMAGED_TIMER)?;
                let home = Some(Vbid(u16::from_be_bytes(*vbid)));
                loaded.timers.push(timer(home, name, &value).ok_or(DAMAGED_TIMER)?);
            }
            Some((&PROGRESS, rest)) => {
                let row = decode(rest, &value).ok_or("a row of progress is damaged")?;
                loaded.progress.push(row);
            }
            // Handled by `begin`.
            Some((&STOPPED, _)) => {}
            Some((&SYNCS, [])) => {
                let number = value.try_into().map_err(|_| "a row of a number is damaged")?;
                *syncs = u64::from_be_bytes(number);
            }
            _ => return Err("a row of an unknown kind".into()),
        }
    }
    Ok(read)
}

impl StateStorage for SpaceStorage {
    fn load(&mut self) -> Result<Loaded, String> {
        match self.loaded.take() {
            Some(loaded) => Ok(loaded),
            None => {
                let mut loaded = read(&*self.space)?.loaded;
                let segmented = self.segmented.as_ref().map(|stored| &stored.segmented);
                loaded.base = segmented.map(|segmented| Arc::clone(segmented.segments()));
                let blobs = self.segmented.as_ref().map(|stored| stored.blobs.clone());
                loaded.blobs = blobs.unwrap_or_default();
                Ok(loaded)
            }
        }
    }

    fn commit(&mut self, changes: &Changes) -> Result<(), String> {
        self.deferred.take(changes);
        // A segmented state writes these rows with its next segment.
        let has_room = self.segmented.is_some() || self.deferred.bytes < self.deferred_bytes_max;
        if self.defers_commits && has_room {
            return Ok(());
        }
        self.settle()
    }

    fn rebase(&mut self, state: &KeySpace) -> Result<Option<KeySpace>, String> {
        let Some(stored) = &mut self.segmented else { return Ok(None) };
        let Some(mut rebase) = stored.segmented.prepare(state)? else { return Ok(None) };
        let mut rows = std::mem::take(&mut rebase.rows);
        let blobs = if rebase.flushed { self.deferred.blobs.take() } else { None };
        if rebase.flushed {
            // The segment contains the entries of deferred commits; write only the other rows here.
            rows.extend(stored.flushed());
            rows.extend(std::mem::take(&mut self.deferred).rows_beside());
        }
        rows.extend(self.rows_of(blobs.as_ref())?);
        // Files that are no longer named are removed only once the change is durable.
        self.apply(rows, true)?;
        self.take_blobs(blobs);
        let stored = self.segmented.as_mut().expect("it was there");
        Ok(Some(stored.segmented.committed(rebase, state)))
    }

    fn settle(&mut self) -> Result<(), String> {
        // The state can be rebuilt from history, so it need not survive a power cut; but it must not tear.
        self.write(false)
    }

    fn sync(&mut self) -> Result<(), String> {
        self.write(true)
    }

    fn clear(&mut self) -> Result<(), String> {
        self.deferred = DeferredCommits::default();
        self.loaded = None;
        // First, because missing rows would otherwise count as a loss.
        self.sync_counts.forget(&self.name).map_err(|error| error.to_string())?;
        self.space.clear().map_err(|error| error.to_string())?;
        if let Some(stored) = &mut self.segmented {
            stored.logged.clear();
            let none = stored.blobs.none();
            none.committed(&std::mem::replace(&mut stored.blobs, none.clone()));
            stored.segmented.clear();
            let next = stored.segmented.next_row();
            self.space.apply(&[next], false).map_err(|error| error.to_string())?;
        }
        (self.syncs, self.is_unsynced, self.damage) = (0, false, None);
        Ok(())
    }

    fn stop(&mut self, reason: &str, limit_bytes: usize) -> Result<(), String> {
        self.deferred = DeferredCommits::default();
        if self.defers_commits {
            // The state will be rebuilt from history; its disk space is free until then.
            self.clear()?;
        }
        let stopped = Stopped { reason: reason.to_owned(), limit_bytes, tries: self.tries };
        let row = serde_json::to_vec(&stopped).map_err(|error| error.to_string())?;
        self.space.apply(&[(vec![STOPPED], Some(row))], true).map_err(|error| error.to_string())
    }
}

const DAMAGED_TIMER: &str = "a row of a timer is damaged";

fn timer(home: Home, name: &[u8], value: &[u8]) -> Option<(Home, String, Timer)> {
    let (due_us, payload) = value.split_first_chunk()?;
    let timer = Timer { due_us: u64::from_be_bytes(*due_us), payload: payload.to_vec() };
    Some((home, str::from_utf8(name).ok()?.to_owned(), timer))
}

fn decode(key: &[u8], value: &[u8]) -> Option<(Vbid, VbucketProgress)> {
    let vbid = Vbid(u16::from_be_bytes(key.try_into().ok()?));
    let number = |index: usize| {
        Some(u64::from_be_bytes(value.get(8 * index..8 * index + 8)?.try_into().ok()?))
    };
    let point = ResumePoint {
        vb_uuid: VbUuid(number(0)?),
        seqno: Seqno(number(1)?),
        snapshot_start: Seqno(number(2)?),
        snapshot_end: Seqno(number(3)?),
    };
    let moment = match value.len() {
        32 => ProgressStamp::default(),
        56 => ProgressStamp { term: number(4)?, begun: number(5)?, count: number(6)? },
        _ => return None,
    };
    Some((vbid, VbucketProgress { moment, point }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_store::MemorySpaces;

    fn open(spaces: &MemorySpaces, defers_commits: bool) -> SpaceStorage {
        let sync_counts = SyncCounts::open(spaces).unwrap();
        SpaceStorage::open(
            spaces,
            &sync_counts,
            "partition",
            defers_commits,
            DEFERRED_BYTES_MAX,
            None,
        )
        .unwrap()
    }

    /// Lost synced rows are detected, whatever has happened to the file.
    #[test]
    fn missing_synced_rows_are_damage() {
        let spaces = MemorySpaces::default();
        let change = |value: &[u8]| Changes {
            state: KeySpace::load([(&b"k"[..], value)].into_iter()).unwrap(),
            touched: KeySpace::load([(&b"k"[..], &b""[..])].into_iter()).unwrap(),
            ..Changes::default()
        };
        let mut storage = open(&spaces, false);
        storage.commit(&change(b"a")).unwrap();
        assert_eq!(open(&spaces, false).damage(), None, "nothing was synced yet");
        storage.sync().unwrap();
        storage.sync().unwrap();
        assert_eq!((storage.syncs, open(&spaces, false).damage()), (1, None));
        storage.commit(&change(b"b")).unwrap();
        storage.sync().unwrap();
        assert_eq!(open(&spaces, false).load().unwrap().entries[0].1, b"b");
        // An older copy of the file has a lower count.
        let older = [(vec![SYNCS], Some(1u64.to_be_bytes().to_vec()))];
        spaces.open("partition").unwrap().apply(&older, false).unwrap();
        assert!(open(&spaces, false).damage().unwrap().contains("missing"));
        spaces.remove("partition").unwrap();
        let mut storage = open(&spaces, false);
        assert!(storage.damage().is_some(), "the file was removed");
        storage.clear().unwrap();
        assert_eq!(storage.damage(), None);
        assert_eq!(open(&spaces, false).damage(), None, "it was decided to go on without");
    }

    #[test]
    fn state_timers_and_progress_read_back_as_committed() {
        let spaces = MemorySpaces::default();
        let mut storage = open(&spaces, false);
        let point = ResumePoint {
            vb_uuid: VbUuid(1),
            seqno: Seqno(2),
            snapshot_start: Seqno(1),
            snapshot_end: Seqno(3),
        };
        let timer = |due_us| Some(Timer { due_us, payload: b"p".to_vec() });
        let plain = VbucketProgress { point, ..VbucketProgress::default() };
        let standing =
            VbucketProgress { moment: ProgressStamp { term: 4, begun: 5, count: 6 }, point };
        let changes = Changes {
            state: KeySpace::load([(&b"k"[..], &b"v"[..])].into_iter()).unwrap(),
            touched: KeySpace::load([(&b"k"[..], &b""[..])].into_iter()).unwrap(),
            timers: vec![((None, "a".into()), timer(7)), ((Some(Vbid(3)), "a".into()), timer(8))],
            progress: vec![(Vbid(700), standing), (Vbid(701), plain)],
            blobs: None,
        };
        storage.commit(&changes).unwrap();
        let loaded = storage.load().unwrap();
        assert_eq!(loaded.entries, [(b"k".to_vec(), b"v".to_vec())]);
        let of_vbucket = (Some(Vbid(3)), "a".into(), timer(8).unwrap());
        assert_eq!(loaded.timers, [(None, "a".into(), timer(7).unwrap()), of_vbucket.clone()]);
        assert_eq!(loaded.progress, [(Vbid(700), standing), (Vbid(701), plain)]);
        storage
            .commit(&Changes { timers: vec![((None, "a".into()), None)], ..Changes::default() })
            .unwrap();
        assert_eq!(storage.load().unwrap().timers, [of_vbucket]);
    }

    #[test]
    fn deferred_commits_become_visible_at_once() {
        let spaces = MemorySpaces::default();
        let mut storage = open(&spaces, true);
        let change = |value: Option<&[u8]>, seqno| Changes {
            state: KeySpace::load(value.map(|value| (&b"k"[..], value)).into_iter()).unwrap(),
            touched: KeySpace::load([(&b"k"[..], &b""[..])].into_iter()).unwrap(),
            timers: Vec::new(),
            blobs: None,
            progress: vec![(
                Vbid(1),
                VbucketProgress {
                    point: ResumePoint { seqno: Seqno(seqno), ..Default::default() },
                    ..Default::default()
                },
            )],
        };
        storage.commit(&change(Some(b"v"), 1)).unwrap();
        storage.commit(&change(Some(b"w"), 2)).unwrap();
        let loaded = || open(&spaces, true).load().unwrap();
        assert_eq!(loaded(), Loaded::default(), "it would be folded again after a crash");
        storage.settle().unwrap();
        assert_eq!(loaded().entries, [(b"k".to_vec(), b"w".to_vec())]);
        assert_eq!(loaded().progress[0].1.point.seqno, Seqno(2));
        storage.commit(&change(Some(&vec![0; DEFERRED_BYTES_MAX]), 3)).unwrap();
        assert_eq!(loaded().progress[0].1.point.seqno, Seqno(3), "too much to be deferred");
        storage.commit(&change(None, 4)).unwrap();
        storage.clear().unwrap();
        storage.settle().unwrap();
        assert_eq!(loaded(), Loaded::default());
    }

    #[test]
    fn a_partition_that_has_outgrown_its_limit_stays_stopped_until_there_is_more() {
        let spaces = MemorySpaces::default();
        let storage = |defers_commits| open(&spaces, defers_commits);
        let changes = Changes {
            state: KeySpace::load([(&b"k"[..], &b"v"[..])].into_iter()).unwrap(),
            touched: KeySpace::load([(&b"k"[..], &b""[..])].into_iter()).unwrap(),
            ..Changes::default()
        };
        for (defers_commits, left) in [(false, 1), (true, 0)] {
            let mut first = storage(defers_commits);
            first.begin(100, 7).unwrap();
            first.commit(&changes).unwrap();
            first.settle().unwrap();
            first.stop("too large", 100).unwrap();
            assert_eq!(storage(defers_commits).begin(100, 7), Err("too large".into()));
            assert_eq!(storage(defers_commits).begin(90, 7), Err("too large".into()));
            storage(defers_commits).begin(if defers_commits { 101 } else { 100 }, 8).unwrap();
            let mut again = storage(defers_commits);
            again.begin(100, 7).unwrap();
            assert_eq!(again.load().unwrap().entries.len(), left, "a fold is made again");
        }
    }
}
