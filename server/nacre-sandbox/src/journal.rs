//! Records the reads of a call, so that the call can be repeated elsewhere.
//!
//! For the state only the requests are recorded: the results are still in the snapshot that the call began with, which
//! costs nothing to keep. Replies from outside (`kv`, `http-out`) cannot be requested again, and are stored.

use crate::capsule::Answer;
use nacre_state::{SCAN_BYTES_MAX, State, Value};
use std::collections::HashSet;
use std::ops::Bound;
use std::sync::Arc;

/// Maximum size of recorded requests and replies in bytes. Beyond it the call cannot be repeated.
const BYTES_MAX: usize = 4 << 20;

/// The record of one call.
#[derive(Default)]
pub struct Journal {
    before: State,
    reads: Vec<Read>,
    answers: Vec<Answer>,
    bytes: usize,
    is_cut: bool,
}

#[derive(PartialEq, Eq, Hash)]
enum Read {
    Get(Vec<u8>),
    Range(Bound<Vec<u8>>, Bound<Vec<u8>>),
    Timer(String),
}

impl Read {
    /// Returns the approximate size in bytes.
    fn bytes(&self) -> usize {
        let key = |bound: &Bound<Vec<u8>>| match bound {
            Bound::Included(key) | Bound::Excluded(key) => key.len(),
            Bound::Unbounded => 0,
        };
        size_of::<Read>()
            + match self {
                Read::Get(key) => key.len(),
                Read::Range(start, end) => key(start) + key(end),
                Read::Timer(name) => name.len(),
            }
    }
}

impl Journal {
    /// Starts the record with the initial state of a call.
    pub fn begin(&mut self, before: &State) {
        *self = Journal { before: before.clone(), ..Journal::default() };
    }

    /// Marks that something is not recorded: the call cannot be repeated.
    pub fn cut(&mut self) {
        self.is_cut = true;
    }

    pub fn get(&mut self, key: Vec<u8>) {
        self.read(Read::Get(key));
    }

    /// Records the range that was read: up to the last returned entry, or to its end if there were no more entries.
    pub fn scan(
        &mut self,
        start: Vec<u8>,
        end: Vec<u8>,
        limit: u32,
        reverse: bool,
        given: &[(Vec<u8>, Vec<u8>)],
    ) {
        let bytes: usize = given.iter().map(|(key, value)| key.len() + value.len()).sum();
        let has_more = given.len() >= limit as usize || bytes >= SCAN_BYTES_MAX;
        let last = given.last().filter(|_| has_more).map(|(key, _)| Bound::Included(key.clone()));
        let start = Bound::Included(start);
        let end = if end.is_empty() { Bound::Unbounded } else { Bound::Excluded(end) };
        self.read(match reverse {
            false => Read::Range(start, last.unwrap_or(end)),
            true => Read::Range(last.unwrap_or(start), end),
        });
    }

    pub fn timer(&mut self, name: &str) {
        self.read(Read::Timer(name.to_owned()));
    }

    pub fn answer(&mut self, answer: Answer) {
        if self.fits(answer.bytes()) {
            self.answers.push(answer);
        }
    }

    fn read(&mut self, read: Read) {
        if self.fits(read.bytes()) {
            self.reads.push(read);
        }
    }

    fn fits(&mut self, bytes: usize) -> bool {
        if self.bytes + bytes > BYTES_MAX && !self.is_cut {
            self.forget_repeated_reads();
            // Half of the room must be left, so that an endless loop does not search for repeated reads all the time.
            self.is_cut = self.bytes + bytes > BYTES_MAX / 2;
        }
        self.bytes += bytes;
        !self.is_cut
    }

    /// Removes duplicate reads, because a plugin in a loop reads the same entries repeatedly.
    fn forget_repeated_reads(&mut self) {
        let different: HashSet<Read> = self.reads.drain(..).collect();
        self.reads.extend(different);
        self.bytes = self.reads.iter().map(Read::bytes).sum::<usize>()
            + self.answers.iter().map(Answer::bytes).sum::<usize>();
    }

    /// Returns true if something was not recorded.
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Returns the replies from outside, in order.
    pub fn answers(&self) -> &[Answer] {
        &self.answers
    }

    /// Returns the entries and timers from before the call that it could see; `None` if they can no longer be read.
    pub fn seen(&self) -> Option<State> {
        let mut seen = State::default();
        for read in &self.reads {
            let (start, end) = match read {
                Read::Get(key) => (Bound::Included(&key[..]), Bound::Included(&key[..])),
                Read::Range(start, end) => (bound(start), bound(end)),
                Read::Timer(name) => {
                    let (timers, name) = (&self.before.timers, Arc::<str>::from(name.as_str()));
                    let home = timers.homes(&name).first().copied();
                    if let Some(timer) = home.and_then(|home| timers.get(home, &name)) {
                        seen.timers.set(None, name, timer.clone().into());
                    }
                    continue;
                }
            };
            for row in self.before.space.scan((start, end), false).ok()? {
                let row = row.ok()?;
                seen.space.put(row.key(), Value::Here(row.value()));
            }
        }
        Some(seen)
    }
}

fn bound(bound: &Bound<Vec<u8>>) -> Bound<&[u8]> {
    match bound {
        Bound::Included(key) => Bound::Included(key),
        Bound::Excluded(key) => Bound::Excluded(key),
        Bound::Unbounded => Bound::Unbounded,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// More reads than the journal has room for.
    const READS: u32 = 400_000;

    #[test]
    fn a_call_that_reads_the_same_in_a_loop_can_be_repeated() {
        let mut before = State::default();
        before.space.put(b"x", Value::Here(b"1"));
        let mut journal = Journal::default();
        journal.begin(&before);
        for _ in 0..READS {
            journal.get(b"x".to_vec());
            journal.scan(b"x".to_vec(), Vec::new(), 10, false, &[]);
        }
        assert!(!journal.is_cut());
        assert_eq!(
            journal
                .seen()
                .unwrap()
                .space
                .scan((Bound::Unbounded, Bound::Unbounded), false)
                .unwrap()
                .count(),
            1
        );
    }

    #[test]
    fn a_call_that_reads_too_much_cannot() {
        let mut journal = Journal::default();
        for key in 0..READS {
            journal.get(key.to_be_bytes().to_vec());
        }
        assert!(journal.is_cut());
    }
}
