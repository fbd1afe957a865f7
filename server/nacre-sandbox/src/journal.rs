//! The questions of a call to the host, so that the call can be repeated elsewhere.
//!
//! Of the state only the questions are noted: their answers are still in the snapshot that the call began with, which
//! costs nothing to keep. Answers from outside (`kv`, `http-out`) cannot be asked for again, and are kept.

use crate::capsule::Answer;
use nacre_state::{SCAN_BYTES_MAX, State, Value};
use std::collections::HashSet;
use std::ops::Bound;
use std::sync::Arc;

/// Bytes of questions and answers that are kept. Beyond them the call cannot be made again.
const BYTES_MAX: usize = 4 << 20;

/// Notes of one call.
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
    /// About how many bytes it takes.
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
    /// Begins with the state of a call.
    pub fn begin(&mut self, before: &State) {
        *self = Journal { before: before.clone(), ..Journal::default() };
    }

    /// Marks a question that is not noted: the call cannot be repeated.
    pub fn cut(&mut self) {
        self.is_cut = true;
    }

    pub fn get(&mut self, key: Vec<u8>) {
        self.read(Read::Get(key));
    }

    /// Notes the range that was looked at: up to the last entry that was given, or to its end when there were no more.
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
            // With half of the room left at least, an endless loop does not look for repeated reads all the time.
            self.is_cut = self.bytes + bytes > BYTES_MAX / 2;
        }
        self.bytes += bytes;
        !self.is_cut
    }

    /// Leaves one of equal reads: a plugin that loops asks for the same entries again and again.
    fn forget_repeated_reads(&mut self) {
        let different: HashSet<Read> = self.reads.drain(..).collect();
        self.reads.extend(different);
        self.bytes = self.reads.iter().map(Read::bytes).sum::<usize>()
            + self.answers.iter().map(Answer::bytes).sum::<usize>();
    }

    /// Returns true if something was not noted.
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// The answers that came from outside, in order.
    pub fn answers(&self) -> &[Answer] {
        &self.answers
    }

    /// Returns the entries and timers from before the call that it could see; `None` if they cannot be read any more.
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

    /// More reads than fit.
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
