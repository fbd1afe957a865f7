//! The segments of one stored state: their list, flushes and merges.
//!
//! Rows of the space name the valid segments. A flush or a merge therefore takes effect in one batch, together with the
//! progress that it reflects: a new file is written and synced before a row names it. A file that is no longer named is
//! removed once that change is synced and no reader uses the file.

use crate::KeySpace;
use crate::blobs::{BlobFiles, BlobInfo, BlobRecord};
use crate::segments::{
    BlockCache, Damage, Merge, Merged, Record, Segment, SegmentWriter, Segments,
};
use nacre_store::{SpaceFiles, Write};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Kind of a segment's row, followed by the number of its file (u64). The value has the age (u64), the size of the file
/// (u64) and the checksum of its footer (u32).
pub const SEGMENT: u8 = b'g';
/// Kind of a blob's row, followed by the blob's name. The value has the number of its file (u64), its length (u64), and
/// whether it is sealed (u8).
pub const BLOB: u8 = b'b';
/// The row with the next file number (u64). A number is never reused while a reader may have its file open.
pub const NEXT: u8 = b'm';
/// With more segments than this, the writer helps with the merge in progress.
const SEGMENTS_MAX: usize = 24;

/// Options of a segmented state.
#[derive(Clone)]
pub struct Segmenting {
    /// The node's cache.
    pub cache: BlockCache,
    /// Size of the entries in memory at which they are flushed to a segment, in bytes.
    pub flush_bytes: usize,
    /// Runs merges on a thread that commits do not wait for.
    pub aside: Arc<dyn Fn(MergeJob) + Send + Sync>,
}

impl Segmenting {
    /// Returns options for reading a state once.
    pub(crate) fn without_cache() -> Segmenting {
        Segmenting::new(BlockCache::new(1 << 20))
    }

    /// Returns options with a cache, flushes at 8 MiB, and synchronous merges.
    pub fn new(cache: BlockCache) -> Segmenting {
        let aside = |job: MergeJob| while !job.step() {};
        Segmenting { cache, flush_bytes: 8 << 20, aside: Arc::new(aside) }
    }
}

enum Work {
    UnderWay(Box<Merge>),
    Done(Result<Merged, String>),
    /// The merge is no longer needed.
    Over,
}

/// A merge to run on another thread. Clones are handles of the same merge.
#[derive(Clone)]
pub struct MergeJob(Arc<Mutex<Work>>);

impl MergeJob {
    /// Writes about one mebibyte. Returns true when the merge is complete.
    pub fn step(&self) -> bool {
        let mut work = self.0.lock();
        let Work::UnderWay(merge) = &mut *work else { return true };
        match merge.step() {
            Ok(None) => return false,
            Ok(Some(merged)) => *work = Work::Done(Ok(merged)),
            Err(reason) => *work = Work::Done(Err(reason)),
        }
        true
    }

    fn take(&self) -> Option<Result<Merged, String>> {
        let mut work = self.0.lock();
        match std::mem::replace(&mut *work, Work::Over) {
            Work::Done(done) => Some(done),
            other => {
                *work = other;
                None
            }
        }
    }

    /// Cancels the merge: it writes nothing afterwards.
    fn cancel(&self) {
        if let Work::UnderWay(mut merge) = std::mem::replace(&mut *self.0.lock(), Work::Over) {
            merge.abandon();
        }
    }
}

/// The segments of a stored state.
pub struct Segmented {
    files: SpaceFiles,
    with: Segmenting,
    segments: Arc<Segments>,
    next_number: Arc<AtomicU64>,
    next_age: u64,
    merge: Option<MergeJob>,
}

/// A change of the list of segments, ready to be committed.
pub struct Rebase {
    /// The rows of the change.
    pub rows: Vec<Write>,
    /// True if all entries in memory are flushed.
    pub flushed: bool,
    segments: Segments,
}

impl Segmented {
    /// Opens the segments that rows name, and removes unnamed files.
    ///
    /// # Errors
    /// The first damaged segment.
    pub fn open(
        files: SpaceFiles,
        records: Vec<Record>,
        blobs: &[BlobRecord],
        next: u64,
        with: &Segmenting,
    ) -> Result<Segmented, Damage> {
        let unreadable =
            |error: std::io::Error| Damage { file: files.path(0), reason: error.to_string() };
        let there = files.numbers().map_err(unreadable)?;
        let next_number = there.iter().map(|number| number + 1).chain([next]).max().unwrap_or(0);
        let next_age = records.iter().map(|record| record.age + 1).max().unwrap_or(0);
        let segments = Segments::open(&files, records, &with.cache)?;
        for number in there {
            let is_segment = segments.records().any(|record| record.number == number);
            if !is_segment && !blobs.iter().any(|blob| blob.number == number) {
                files.remove(number).map_err(unreadable)?;
            }
        }
        let (segments, next_number) = (Arc::new(segments), Arc::new(next_number.into()));
        Ok(Segmented { files, with: with.clone(), segments, next_number, next_age, merge: None })
    }

    /// Creates an empty list that replaces one with a lost segment. The other files are removed when the state is
    /// cleared.
    pub fn lost(files: SpaceFiles, with: &Segmenting) -> Segmented {
        let next_number =
            files.numbers().unwrap_or_default().into_iter().max().map_or(0, |max| max + 1);
        let (segments, next_number) = (Arc::default(), Arc::new(next_number.into()));
        Segmented { files, with: with.clone(), segments, next_number, next_age: 0, merge: None }
    }

    /// Returns the committed segments.
    pub fn segments(&self) -> &Arc<Segments> {
        &self.segments
    }

    fn next_number(&self) -> u64 {
        self.next_number.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns the files of blobs.
    pub fn blob_files(&self) -> BlobFiles {
        let next_number = Arc::clone(&self.next_number);
        BlobFiles::new(self.files.clone(), self.with.cache.clone(), next_number)
    }

    /// Prepares a flush of the entries in the memory of `state`, once there are enough, and applies the result of a
    /// merge.
    ///
    /// # Errors
    /// The error of the disk.
    pub fn prepare(&mut self, state: &KeySpace) -> Result<Option<Rebase>, String> {
        if let Some(merge) = &self.merge
            && self.segments.len() >= SEGMENTS_MAX
        {
            merge.step();
        }
        let merged = self.merge.as_ref().and_then(MergeJob::take);
        let flushed = state.delta_bytes() >= self.with.flush_bytes;
        if merged.is_none() && !flushed {
            return Ok(None);
        }
        let mut rebase =
            Rebase { rows: Vec::new(), flushed, segments: Segments::clone(&self.segments) };
        if let Some(merged) = merged {
            self.merge = None;
            self.take(merged?, &mut rebase)?;
        }
        if flushed {
            self.flush(state, &mut rebase)?;
        }
        rebase.rows.push(self.next_row());
        Ok(Some(rebase))
    }

    fn take(&self, merged: Merged, rebase: &mut Rebase) -> Result<(), String> {
        let output = merged.output.map(|record| self.opened(record)).transpose()?;
        let replaced = rebase.segments.replaced(&merged.inputs, output);
        rebase.segments = replaced.ok_or("a merge is of segments that are not there")?;
        rebase.rows.extend(merged.inputs.iter().map(|input| (key(input.number), None)));
        rebase.rows.extend(merged.output.map(row));
        Ok(())
    }

    fn flush(&mut self, state: &KeySpace, rebase: &mut Rebase) -> Result<(), String> {
        let number = self.next_number();
        let age = self.next_age;
        let write = || {
            let mut writer = SegmentWriter::create(&self.files, number)?;
            for (key, value) in state.delta() {
                writer.add(key, value)?;
            }
            let record = writer.finish(age)?;
            self.files.sync_names()?;
            Ok(record)
        };
        let record = write().map_err(|error: std::io::Error| {
            let _ = self.files.remove(number);
            format!("{}: {error}", self.files.path(number))
        })?;
        self.next_age += 1;
        rebase.segments = rebase.segments.with(self.opened(record)?);
        rebase.rows.push(row(record));
        Ok(())
    }

    fn opened(&self, record: Record) -> Result<Segment, String> {
        Segment::open(&self.files, record, &self.with.cache).map_err(|damage| damage.to_string())
    }

    /// Applies a committed flush or merge. Returns the key space `state` on top of the new segments, and begins the
    /// next merge if one is due.
    pub fn committed(&mut self, rebase: Rebase, state: &KeySpace) -> KeySpace {
        let segments = Arc::new(rebase.segments);
        segments.missing_of(&self.segments).retire();
        self.segments = Arc::clone(&segments);
        if self.merge.is_none() {
            let number = self.next_number();
            if let Some(merge) = segments.merge(&self.files, number) {
                let job = MergeJob(Arc::new(Mutex::new(Work::UnderWay(Box::new(merge)))));
                self.merge = Some(job.clone());
                (self.with.aside)(job);
            }
        }
        if rebase.flushed { KeySpace::over(segments) } else { state.rebased(segments) }
    }

    /// Removes all files once no reader uses them. No row names them any more.
    pub fn clear(&mut self) {
        if let Some(merge) = self.merge.take() {
            merge.cancel();
        }
        self.segments.retire();
        self.segments = Arc::new(Segments::default());
    }

    /// Returns the row that prevents file numbers from being reused.
    pub fn next_row(&self) -> Write {
        (vec![NEXT], Some(self.next_number.load(Ordering::Relaxed).to_be_bytes().to_vec()))
    }
}

impl Drop for Segmented {
    fn drop(&mut self) {
        if let Some(merge) = self.merge.take() {
            merge.cancel();
        }
    }
}

fn key(number: u64) -> Vec<u8> {
    [&[SEGMENT], &number.to_be_bytes()[..]].concat()
}

/// Encodes the row of a segment.
pub fn row(record: Record) -> Write {
    let Record { number, age, file_bytes, crc } = record;
    let value = [&age.to_be_bytes()[..], &file_bytes.to_be_bytes(), &crc.to_be_bytes()].concat();
    (key(number), Some(value))
}

/// Encodes the row of a blob, or its removal.
pub fn blob_row(name: &str, record: Option<&BlobRecord>) -> Write {
    let value = |BlobRecord { info, number }: &BlobRecord| {
        let is_sealed = [u8::from(info.is_sealed)];
        [&number.to_be_bytes()[..], &info.length.to_be_bytes(), &is_sealed].concat()
    };
    ([&[BLOB], name.as_bytes()].concat(), record.map(value))
}

/// Decodes the row of a blob.
pub fn blob_record(key: &[u8], value: &[u8]) -> Option<BlobRecord> {
    let name = str::from_utf8(key).ok()?.to_owned();
    let (number, rest) = value.split_first_chunk()?;
    let (length, rest) = rest.split_first_chunk()?;
    let &[is_sealed @ 0..=1] = rest else { return None };
    let length = u64::from_be_bytes(*length);
    let info = BlobInfo { name, length, is_sealed: is_sealed == 1 };
    Some(BlobRecord { info, number: u64::from_be_bytes(*number) })
}

/// Decodes the row of a segment.
pub fn record(key: &[u8], value: &[u8]) -> Option<Record> {
    let number = u64::from_be_bytes(key.try_into().ok()?);
    let (age, rest) = value.split_first_chunk()?;
    let (file_bytes, crc) = rest.split_first_chunk()?;
    Some(Record {
        number,
        age: u64::from_be_bytes(*age),
        file_bytes: u64::from_be_bytes(*file_bytes),
        crc: u32::from_be_bytes(crc.try_into().ok()?),
    })
}
