//! What a partition tells about itself.

use nacre_types::{Seqno, Vbid};
use std::collections::VecDeque;

/// A document that user code could not process. It is left out of the state; the feed went on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DocumentError {
    /// The vBucket of the document.
    pub vbid: Vbid,
    /// Its seqno.
    pub seqno: Seqno,
    /// Its key, without collection.
    pub key: Vec<u8>,
    /// What the plugin said.
    pub message: String,
}

/// A document that killed the instance it was given to, and was skipped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetter {
    /// The vBucket of the document.
    pub vbid: Vbid,
    /// Its seqno.
    pub seqno: Seqno,
    /// Its key, without collection.
    pub key: Vec<u8>,
    /// How the instance ended.
    pub reason: String,
}

/// A line that a plugin wrote to its log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine {
    /// `debug`, `info`, `warn` or `error`.
    pub level: &'static str,
    /// The text.
    pub message: String,
}

/// What became of one batch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Documents taken, those with errors included.
    pub documents: u64,
    /// Documents that could not be processed.
    pub errors: Vec<DocumentError>,
    /// Documents that were parked.
    pub dead_letters: Vec<DeadLetter>,
}

/// Counters and recent events of a partition since it was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Documents taken.
    pub documents: u64,
    /// Documents that could not be processed.
    pub errors: u64,
    /// The last of them.
    pub last_errors: VecDeque<DocumentError>,
    /// Documents that were parked.
    pub dead_letter_count: u64,
    /// The last of them.
    pub dead_letters: VecDeque<DeadLetter>,
    /// Instances of the writer that were lost.
    pub traps: u64,
    /// Calls of the writer.
    pub calls: u64,
    /// Keys and values of the state, in bytes.
    pub state_bytes: usize,
    /// The last lines of the plugin's log.
    pub log: VecDeque<LogLine>,
    /// Why the partition was stopped, if it was.
    pub stopped: Option<String>,
}

/// How many recent events of each kind are kept.
const KEPT: usize = 32;

impl Status {
    pub(crate) fn add(&mut self, report: &Report) {
        self.documents += report.documents;
        self.errors += report.errors.len() as u64;
        self.dead_letter_count += report.dead_letters.len() as u64;
        keep(&mut self.last_errors, report.errors.iter().cloned());
        keep(&mut self.dead_letters, report.dead_letters.iter().cloned());
    }
}

fn keep<T>(kept: &mut VecDeque<T>, new: impl IntoIterator<Item = T>) {
    kept.extend(new);
    let surplus = kept.len().saturating_sub(KEPT);
    kept.drain(..surplus);
}
