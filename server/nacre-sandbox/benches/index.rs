//! Measures indexes without a node: documents per second that the real component indexes, and scans of 50 entries out
//! of a million compared with a raw skip list that contains the same entries.
//!
//! `cargo bench -p nacre-sandbox --bench index`, after `cargo xtask plugins`. Rounds alternate; the best of each
//! counts.
#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

mod stage;

use crossbeam_skiplist::SkipSet;
use nacre_dcp::Batch;
use nacre_sandbox::{Partition, Plugin, Setup};
use nacre_state::{IndexSnapshot, MemoryStorage, Span};
use nacre_types::{Now, Vbid};
use std::time::Instant;

const ENTRY_COUNT: u32 = 1_000_000;
const BATCH_COUNT: u32 = 4096;
const SCAN_ENTRIES: usize = 50;
const SCANS: u32 = 20_000;
const ROUNDS: usize = 7;
const VBUCKETS: u16 = 1024;

fn batch(numbers: std::ops::Range<u32>) -> Batch {
    let document = |number: u32| {
        let name = format!("document-{number}");
        let spread = number.wrapping_mul(2_654_435_761);
        let body =
            format!("{{\"serial\":{spread},\"text\":\"a quiet house beside the old harbour\"}}");
        (Vbid::of(name.as_bytes(), VBUCKETS), stage::document(&name, &body))
    };
    stage::batch(numbers.map(document))
}

/// Returns a partition with all documents, and the number of documents that it indexed per second.
fn fill(plugin: &Plugin) -> (Partition, f64) {
    let setup = Setup::new("bench", r#"{"definition": "CREATE INDEX i ON b(serial)"}"#);
    let storage = Box::new(MemoryStorage::default());
    let mut partition = Partition::open(plugin.clone(), setup, storage).expect("an index");
    let mut taken = 0.0;
    for first in (0..ENTRY_COUNT).step_by(BATCH_COUNT as usize) {
        let batch = batch(first..ENTRY_COUNT.min(first + BATCH_COUNT));
        let begun = Instant::now();
        let report = partition.on_batch(&batch, Now::default()).expect("it takes them");
        taken += begun.elapsed().as_secs_f64();
        assert!(report.errors.is_empty() && report.dead_letters.is_empty());
    }
    (partition, f64::from(ENTRY_COUNT) / taken)
}

/// Returns the duration of a scan in microseconds. `scan` reads from a key on, and returns the number of bytes that it
/// saw.
fn timed(keys: &[Vec<u8>], scan: impl Fn(&[u8]) -> usize) -> f64 {
    let (begun, mut bytes) = (Instant::now(), 0);
    for number in 0..SCANS {
        let at = number.wrapping_mul(2_654_435_761) as usize % (keys.len() - SCAN_ENTRIES);
        bytes += scan(&keys[at]);
    }
    assert!(bytes > 0);
    begun.elapsed().as_secs_f64() * 1e6 / f64::from(SCANS)
}

fn scan_index(snapshot: &IndexSnapshot, from: &[u8]) -> usize {
    let span = Span { start: from.to_vec(), end: Vec::new() };
    let found = snapshot.scan(None, &span, false).take(SCAN_ENTRIES);
    found.map(|entry| entry.key().len() + entry.id().len()).sum()
}

/// Also copies key and ID, because results must outlive the search.
fn scan_list(list: &SkipSet<(Vec<u8>, Vec<u8>)>, from: &[u8]) -> usize {
    let found = list.range((from.to_vec(), Vec::new())..).take(SCAN_ENTRIES);
    found.map(|entry| entry.value().clone()).map(|(key, id)| key.len() + id.len()).sum()
}

fn main() {
    let host = stage::host();
    let artefact = host.compile(&stage::component("index")).expect("the component compiles");
    // SAFETY: this host has just compiled the bytes.
    let plugin = unsafe { host.load("index", &artefact) }.expect("the component loads");
    let (partition, rate) = fill(&plugin);
    println!("one index, documents of 70 B, in batches of {BATCH_COUNT}: {rate:.0} documents/s");
    let snapshot = partition.reader().index().expect("it is not stopped");
    let entries = || snapshot.scan(None, &Span::default(), false);
    let list: SkipSet<_> = entries().map(|entry| (entry.key(), entry.id().to_vec())).collect();
    let keys: Vec<Vec<u8>> = entries().map(|entry| entry.key()).collect();
    assert_eq!((keys.len(), list.len()), (ENTRY_COUNT as usize, ENTRY_COUNT as usize));
    let mut best = [f64::MAX; 2];
    for _ in 0..ROUNDS {
        let times = [
            timed(&keys, |from| scan_list(&list, from)),
            timed(&keys, |from| scan_index(&snapshot, from)),
        ];
        best = [best[0].min(times[0]), best[1].min(times[1])];
    }
    println!(
        "{SCAN_ENTRIES} entries of {ENTRY_COUNT}: skip list {:.2} us, index {:.2} us",
        best[0], best[1]
    );
    println!("ratio: {:.2}", best[1] / best[0]);
}
