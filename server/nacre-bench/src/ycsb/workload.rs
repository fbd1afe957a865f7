//! Workloads of YCSB: draw the next operation and its record.
//!
//! The key of record `n` is `user` and a hash of `n` in 20 digits, so that records written one after another are not
//! adjacent. The same hash spreads popular records over all records, except in workload D, where the newest records are
//! the most popular.
//!
//! Source: B. Cooper et al., "Benchmarking Cloud Serving Systems with YCSB", 2010.

use super::store::Step;
use crate::hash::hash;
use clap::ValueEnum;
use rand::Rng;
use rand::rngs::StdRng;
use rand_distr::{Distribution, Zipf};
use std::collections::BTreeSet;
use std::sync::Mutex;

/// Number of fields of a record, named `field0` and so on.
pub const FIELDS: usize = 10;
/// Size of a field in bytes.
pub const FIELD_BYTES: usize = 100;
/// Maximum number of records in a scan; all numbers are equally likely.
const SCAN_RECORDS_MAX: usize = 100;
/// Skew of the zipfian distribution of records.
const ZIPF: f64 = 0.99;
/// Number of positions in random text from which fields are cut.
const TEXT_STARTS: usize = 1 << 16;

/// A workload of YCSB.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// Half reads, half updates
    A,
    /// 95 % reads, 5 % updates
    B,
    /// Reads only
    C,
    /// 95 % reads of what is new, 5 % inserts
    D,
    /// 95 % scans of up to 100 records, 5 % inserts
    E,
    /// Half reads, half reads with an update of what was read
    F,
}

/// An operation on one record, or on a range of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    /// Reads all fields.
    Read,
    /// Writes one field.
    Update,
    /// Writes a new record.
    Insert,
    /// Reads records in key order.
    Scan,
    /// Reads all fields, then writes one.
    ReadModifyWrite,
}

/// Distribution of records.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Popularity {
    /// A few records get most requests, and lie anywhere
    Zipfian,
    /// The newest records get most requests
    Latest,
    /// All records alike
    Uniform,
}

impl Workload {
    /// Returns its letter.
    pub fn name(self) -> &'static str {
        ["a", "b", "c", "d", "e", "f"][self as usize]
    }

    /// Returns the default distribution of its records.
    pub fn popularity(self) -> Popularity {
        if self == Workload::D { Popularity::Latest } else { Popularity::Zipfian }
    }

    /// Returns the main operation, the other operation, and the percentage of the other one.
    fn mix(self) -> (Operation, Operation, u32) {
        match self {
            Workload::A => (Operation::Read, Operation::Update, 50),
            Workload::B => (Operation::Read, Operation::Update, 5),
            Workload::C => (Operation::Read, Operation::Read, 0),
            Workload::D => (Operation::Read, Operation::Insert, 5),
            Workload::E => (Operation::Scan, Operation::Insert, 5),
            Workload::F => (Operation::Read, Operation::ReadModifyWrite, 50),
        }
    }
}

impl Operation {
    /// Returns its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Operation::Read => "read",
            Operation::Update => "update",
            Operation::Insert => "insert",
            Operation::Scan => "scan",
            Operation::ReadModifyWrite => "rmw",
        }
    }
}

/// The existing records, while clients insert more concurrently.
pub struct Records {
    loaded: u64,
    /// Makes keys of inserted records differ between runs.
    salt: u64,
    grown: Mutex<Grown>,
}

struct Grown {
    /// The number of the next insert.
    next: u64,
    /// All records below this number exist.
    known: u64,
    /// Existing records at or above `known`.
    apart: BTreeSet<u64>,
}

impl Records {
    /// Creates the state with `loaded` records; `salt` changes the keys of inserted records.
    pub fn new(loaded: u64, salt: u64) -> Records {
        let grown = Grown { next: loaded, known: loaded, apart: BTreeSet::new() };
        Records { loaded, salt, grown: Mutex::new(grown) }
    }

    /// Returns the key of record `number`.
    pub fn key(&self, number: u64) -> String {
        let salt = if number < self.loaded { 0 } else { self.salt };
        format!("user{:020}", hash(number ^ salt))
    }

    fn grown(&self) -> std::sync::MutexGuard<'_, Grown> {
        self.grown.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn known(&self) -> u64 {
        self.grown().known
    }

    /// Returns the number of a new record.
    fn begin_insert(&self) -> u64 {
        let mut grown = self.grown();
        grown.next += 1;
        grown.next - 1
    }

    /// Reports that an operation is complete, so that a record that it inserted exists.
    pub fn done(&self, task: &Task<'_>) {
        if let Some((number, _)) = task.inserted {
            self.inserted(number);
        }
    }

    fn inserted(&self, number: u64) {
        let mut guard = self.grown();
        let grown = &mut *guard;
        grown.apart.insert(number);
        while grown.apart.remove(&grown.known) {
            grown.known += 1;
        }
    }
}

/// An operation and its parameters.
pub struct Task<'a> {
    /// The operation.
    pub operation: Operation,
    /// The key of the record, or of the first one.
    pub key: String,
    /// The number of records in a scan.
    pub scanned: usize,
    field: usize,
    value: &'a str,
    /// The number and the text of an inserted record.
    inserted: Option<(u64, String)>,
}

impl Task<'_> {
    /// Returns the step after `taken` steps, if there is one; a scan has none.
    pub fn step(&self, taken: usize) -> Option<Step<'_>> {
        let update = Step::Update(self.field, self.value);
        match (self.operation, taken) {
            (Operation::Read | Operation::ReadModifyWrite, 0) => Some(Step::Read),
            (Operation::Update, 0) | (Operation::ReadModifyWrite, 1) => Some(update),
            (Operation::Insert, 0) => {
                self.inserted.as_ref().map(|(_, record)| Step::Insert(record))
            }
            _ => None,
        }
    }
}

/// Draws operations and records.
pub struct Source<'a> {
    records: &'a Records,
    text: &'a [u8],
    zipf: Zipf<f64>,
    popularity: Popularity,
    random: StdRng,
}

/// Returns the random letters from which [`Source`] cuts fields.
pub fn text(random: &mut StdRng) -> Vec<u8> {
    (0..TEXT_STARTS + FIELD_BYTES).map(|_| random.random_range(b'a'..=b'z')).collect()
}

impl<'a> Source<'a> {
    /// Creates a source of operations on `records`, with fields cut from `text`.
    ///
    /// # Errors
    /// Fails if there are no records.
    pub fn new(
        records: &'a Records,
        text: &'a [u8],
        popularity: Popularity,
        random: StdRng,
    ) -> Result<Source<'a>, String> {
        let zipf = Zipf::new(records.loaded as f64, ZIPF).map_err(|error| error.to_string())?;
        Ok(Source { records, text, zipf, popularity, random })
    }

    /// Returns the next operation of a workload, on an existing or a new record.
    pub fn task(&mut self, workload: Workload) -> Task<'a> {
        let operation = self.operation(workload);
        let is_insert = operation == Operation::Insert;
        let inserted = is_insert.then(|| (self.records.begin_insert(), self.record()));
        let key = match inserted {
            Some((number, _)) => self.records.key(number),
            None => self.key(),
        };
        let (field, value) = (self.random.random_range(0..FIELDS), self.value());
        let scanned = self.random.random_range(1..=SCAN_RECORDS_MAX);
        Task { operation, key, scanned, field, value, inserted }
    }

    fn operation(&mut self, workload: Workload) -> Operation {
        let (usual, other, percent) = workload.mix();
        if self.random.random_range(0..100) < percent { other } else { usual }
    }

    /// Returns the key of an existing record.
    fn key(&mut self) -> String {
        // Ranks of the distribution begin at 1.
        let rank = self.zipf.sample(&mut self.random) as u64 - 1;
        let number = match self.popularity {
            Popularity::Zipfian => hash(rank) % self.records.loaded,
            Popularity::Latest => self.records.known().saturating_sub(1 + rank),
            Popularity::Uniform => self.random.random_range(0..self.records.known()),
        };
        self.records.key(number)
    }

    /// Returns the value of a field.
    fn value(&mut self) -> &'a str {
        let start = self.random.random_range(0..TEXT_STARTS);
        let value = &self.text[start..start + FIELD_BYTES];
        str::from_utf8(value).expect("letters are text")
    }

    /// Returns a whole record as JSON.
    pub fn record(&mut self) -> String {
        let mut record = String::with_capacity(FIELDS * (FIELD_BYTES + 12) + 2);
        for field in 0..FIELDS {
            let before = if field == 0 { '{' } else { ',' };
            record.push_str(&format!("{before}\"field{field}\":\"{}\"", self.value()));
        }
        record.push('}');
        record
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use std::collections::HashMap;

    #[test]
    fn the_newest_records_are_those_that_were_acknowledged() {
        let records = Records::new(10, 1 << 40);
        let (first, second) = (records.begin_insert(), records.begin_insert());
        records.inserted(second);
        assert_eq!((first, second, records.known()), (10, 11, 10), "the first may not be there");
        records.inserted(first);
        assert_eq!(records.known(), 12);
        assert_ne!(records.key(10), Records::new(10, 1 << 41).key(10));
        assert_eq!(records.key(9), Records::new(10, 1 << 41).key(9));
    }

    #[test]
    fn popularity_follows_the_workload() {
        let (records, mut random) = (Records::new(1000, 0), StdRng::seed_from_u64(1));
        let text = text(&mut random);
        let share_of = |popularity| {
            let mut source =
                Source::new(&records, &text, popularity, StdRng::seed_from_u64(2)).unwrap();
            let mut counts: HashMap<String, u32> = HashMap::new();
            (0..20_000).for_each(|_| *counts.entry(source.key()).or_default() += 1);
            let (key, count) = counts.into_iter().max_by_key(|(_, count)| *count).unwrap();
            (key, f64::from(count) / 20_000.0)
        };
        // 1 / (1 + 1/2^0.99 + … + 1/1000^0.99) is 0.130.
        let (popular, share) = share_of(Popularity::Zipfian);
        assert!((0.11..0.15).contains(&share) && popular == records.key(hash(0) % 1000), "{share}");
        let (newest, share) = share_of(Popularity::Latest);
        assert!((0.11..0.15).contains(&share) && newest == records.key(999), "{share}");
        assert!(share_of(Popularity::Uniform).1 < 0.005);
    }

    #[test]
    fn operations_follow_the_mix_of_the_workload_and_records_have_ten_fields() {
        let (records, mut random) = (Records::new(10, 0), StdRng::seed_from_u64(1));
        let text = text(&mut random);
        let mut source = Source::new(&records, &text, Popularity::Uniform, random).unwrap();
        for (workload, other, percent) in [
            (Workload::A, Operation::Update, 50),
            (Workload::B, Operation::Update, 5),
            (Workload::D, Operation::Insert, 5),
            (Workload::E, Operation::Insert, 5),
            (Workload::F, Operation::ReadModifyWrite, 50),
        ] {
            let drawn = (0..10_000).filter(|_| source.operation(workload) == other).count();
            assert!(drawn.abs_diff(percent * 100) < 200, "{}: {drawn}", workload.name());
        }
        let record: serde_json::Value = serde_json::from_str(&source.record()).unwrap();
        let lengths =
            record.as_object().unwrap().values().map(|value| value.as_str().unwrap().len());
        assert_eq!(lengths.collect::<Vec<_>>(), [FIELD_BYTES; FIELDS]);
    }
}
