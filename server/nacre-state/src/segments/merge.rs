//! Merges of several segments into one, concurrently with writes and reads.

use super::Entries;
use super::segment::{Cursor, Damage, Record, Segment, SegmentWriter};
use nacre_store::SpaceFiles;
use std::io;
use std::ops::Bound;
use std::sync::Arc;

/// Approximate bytes that a step of a merge writes.
const STEP_BYTES: u64 = 1 << 20;

/// A merge in progress.
pub struct Merge {
    inputs: Vec<Arc<Segment>>,
    /// True if no older segment remains, so that removed keys need no entry.
    is_oldest: bool,
    files: SpaceFiles,
    number: u64,
    work: Option<(Entries, SegmentWriter)>,
}

/// The result of a merge.
pub struct Merged {
    /// The merged segments, newest first.
    pub inputs: Vec<Record>,
    /// The merged segment; `None` if it would be empty.
    pub output: Option<Record>,
}

impl Merge {
    pub(super) fn new(
        inputs: Vec<Arc<Segment>>,
        is_oldest: bool,
        files: SpaceFiles,
        number: u64,
    ) -> Merge {
        Merge { inputs, is_oldest, files, number, work: None }
    }

    /// Merges a part. Returns the result once the merge is complete.
    ///
    /// # Errors
    /// The error of the disk. The merge is then abandoned, and the segments are unchanged.
    pub fn step(&mut self) -> Result<Option<Merged>, String> {
        let done = self.try_step();
        if done.is_err() {
            self.abandon();
        }
        done
    }

    /// Abandons the merge and removes its output.
    pub fn abandon(&mut self) {
        if let Some((_, writer)) = self.work.take() {
            writer.abandon();
        }
    }

    fn try_step(&mut self) -> Result<Option<Merged>, String> {
        let refused = |error: io::Error| format!("{}: {error}", self.files.path(self.number));
        if self.work.is_none() {
            let writer = SegmentWriter::create(&self.files, self.number).map_err(refused)?;
            let cursor = |segment| Cursor::at_or_after(segment, None, false);
            let cursors = self.inputs.iter().map(cursor).collect::<Result<_, Damage>>();
            let cursors = cursors.map_err(|damage| damage.to_string())?;
            let entries = Entries { cursors, reverse: false, last: Bound::Unbounded };
            self.work = Some((entries, writer));
        }
        let (entries, writer) = self.work.as_mut().expect("it was just begun");
        let until = writer.bytes() + STEP_BYTES;
        while writer.bytes() < until {
            let Some(slot) = entries.next_slot().map_err(|damage| damage.to_string())? else {
                return self.finish().map(Some);
            };
            if slot.value().is_some() || !self.is_oldest {
                writer.add(slot.key(), slot.value()).map_err(refused)?;
            }
        }
        Ok(None)
    }

    fn finish(&mut self) -> Result<Merged, String> {
        let (_, writer) = self.work.take().expect("it is under way");
        let inputs: Vec<Record> = self.inputs.iter().map(|segment| segment.record()).collect();
        if writer.is_empty() {
            writer.abandon();
            return Ok(Merged { inputs, output: None });
        }
        let finish = || {
            let record = writer.finish(inputs[0].age)?;
            self.files.sync_names()?;
            Ok(record)
        };
        match finish() {
            Ok(record) => Ok(Merged { inputs, output: Some(record) }),
            Err(error) => {
                let error: io::Error = error;
                let _ = self.files.remove(self.number);
                Err(format!("{}: {error}", self.files.path(self.number)))
            }
        }
    }
}
