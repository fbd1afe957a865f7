//! Feeds every target with its corpus, and with mutations of it that a seed decides.
//!
//! `NACRE_SQL_CASES` says how many queries are made of chance alone; 3,000 when it is not set.
#![expect(clippy::disallowed_methods, reason = "the corpus is in files")]

use nacre_fuzz::{TARGETS, plans};
use std::path::Path;

/// A short sequence of numbers that a seed decides. Source: Marsaglia, "Xorshift RNGs" (2003).
struct SeededNumbers(u64);

impl SeededNumbers {
    fn next(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % below.max(1) as u64) as usize
    }
}

/// Changes a few bytes, as damage or malice would: another bit, a byte at its limits, parts lost, moved or repeated.
fn mutate(bytes: &mut Vec<u8>, chance: &mut SeededNumbers) {
    for _ in 0..=chance.next(4) {
        let at = chance.next(bytes.len());
        let end = (at + chance.next(16)).min(bytes.len());
        match chance.next(6) {
            0 if !bytes.is_empty() => bytes[at] ^= 1 << chance.next(8),
            1 if !bytes.is_empty() => bytes[at] = [0x00, 0xff, 0x7f, 0x80][chance.next(4)],
            2 => bytes.truncate(at),
            3 => drop(bytes.drain(at..end)),
            4 => {
                let copy = bytes[at..end].to_vec();
                let to = chance.next(bytes.len() + 1);
                bytes.splice(to..to, copy);
            }
            _ => bytes.insert(at, b"\"{}[],:.\\0-9eE~="[chance.next(16)]),
        }
    }
}

#[test]
fn no_target_panics_on_its_corpus_or_similar_inputs() {
    for (name, target, mutations) in TARGETS {
        let folder = Path::new("corpus").join(name);
        let mut files: Vec<_> =
            std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        assert!(!files.is_empty(), "{name} has no corpus");
        for (index, file) in files.iter().enumerate() {
            let original = std::fs::read(file).unwrap();
            target(&original);
            for seed in 1..=mutations {
                let mut chance = SeededNumbers(seed << 8 | index as u64);
                let mut bytes = original.clone();
                mutate(&mut bytes, &mut chance);
                let bytes_again = bytes.clone();
                if std::panic::catch_unwind(|| target(&bytes)).is_err() {
                    panic!("{name}, {}, seed {seed}: {bytes_again:?}", file.display());
                }
            }
        }
    }
}

#[test]
fn plans_give_the_rows_of_nested_loops() {
    /// More than a query, its documents and its indexes take.
    const DECISIONS: usize = 512;
    let cases: u64 = std::env::var("NACRE_SQL_CASES").map_or(3000, |count| count.parse().unwrap());
    for seed in 1..=cases {
        let mut chance = SeededNumbers(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let bytes: Vec<u8> = (0..DECISIONS).map(|_| chance.next(256) as u8).collect();
        if std::panic::catch_unwind(|| plans(&bytes)).is_err() {
            panic!("seed {seed}");
        }
    }
}
