//! The size of an index, compared with the size of its text.
//!
//! `NACRE_DOCUMENTS=100000 cargo test -p nacre-search --test it size -- --nocapture` shows the sizes by kind of file.

use crate::world::{World, vbucket};
use nacre_search::{Blobs, Change, Definition, Index, MemoryBlobs, Place};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Number of words in the documents' language.
const WORDS: usize = 30_000;
/// Size of a document's text in bytes.
const TEXT_BYTES: usize = 1_000;

/// Returns words of one to four syllables; the frequent ones are short.
fn words(random: &mut StdRng) -> Vec<String> {
    const STARTS: [&str; 12] = ["b", "c", "d", "f", "l", "m", "n", "p", "r", "s", "t", "st"];
    const ENDS: [&str; 10] = ["a", "e", "i", "o", "an", "er", "in", "ol", "ust", "ea"];
    let mut word = |number: usize| -> String {
        let syllables = 1 + number.max(1).ilog10() as usize;
        let mut syllable = || {
            let (start, end) = (random.random_range(0..12), random.random_range(0..10));
            format!("{}{}", STARTS[start], ENDS[end])
        };
        (0..syllables).map(|_| syllable()).collect()
    };
    (0..WORDS).map(&mut word).collect()
}

/// Returns a text in which the frequency of the word with rank n is about 1/n of that of the first.
fn text(random: &mut StdRng, words: &[String], bytes: usize) -> String {
    let mut text = String::with_capacity(bytes + 16);
    while text.len() < bytes {
        let rank = (WORDS as f64).powf(random.random::<f64>()) as usize;
        text.push_str(&words[rank.min(WORDS) - 1]);
        text.push(' ');
    }
    text
}

/// Returns the size of the text of `count` documents, and of the index files by kind.
fn sizes(params: &Value, count: usize) -> (usize, BTreeMap<String, u64>) {
    let mut random = StdRng::seed_from_u64(7);
    let words = words(&mut random);
    let mut world = World::new(params).unwrap();
    let mut text_bytes = 0;
    let mut batch = Vec::new();
    for number in 0..count {
        let (title, body) =
            (text(&mut random, &words, 40), text(&mut random, &words, TEXT_BYTES - 40));
        text_bytes += title.len() + body.len();
        let year = 1900 + number % 120;
        batch.push((
            format!("document_{number}"),
            json!({"title": title, "body": body, "year": year}).to_string(),
        ));
        if batch.len() == 500 || number + 1 == count {
            let documents = batch.iter().map(|(id, body)| (&**id, body.as_bytes()));
            world.add(documents, 500);
            batch.clear();
            while world.index.merge(50_000).unwrap() {}
            let commit = world.index.commit("").unwrap();
            world.index.collect_garbage(&commit).unwrap();
        }
    }
    let mut files: BTreeMap<String, u64> = BTreeMap::new();
    for name in world.blobs.list().unwrap() {
        let kind = name.rsplit('.').next().unwrap_or_default().to_owned();
        *files.entry(kind).or_default() += world.blobs.len(&name).unwrap().unwrap();
    }
    (text_bytes, files)
}

fn documents() -> usize {
    std::env::var("NACRE_DOCUMENTS").map_or(3_000, |text| text.parse().unwrap())
}

/// Returns the size of an index in percent of its text.
fn share(params: &Value) -> u64 {
    let (text, files) = sizes(params, documents());
    let all: u64 = files.values().sum();
    println!("{params}: {:.2} of the text", all as f64 / text as f64);
    for (kind, bytes) in &files {
        println!("  {kind:6} {:.3}", *bytes as f64 / text as f64);
    }
    all * 100 / text as u64
}

#[test]
fn an_index_is_not_much_larger_than_its_text() {
    for (params, most) in [
        (json!(null), 180),
        (json!({"mapping": {"store_dynamic": false}}), 180),
        (json!({"mapping": {"docvalues_dynamic": false}}), 180),
        (
            json!({"mapping": {"default_mapping": {"dynamic": false, "properties": {
                "body": {"fields": [{"type": "text", "index": true}]},
                "title": {"fields": [{"type": "text", "index": true}]},
            }}}}),
            // Hits show nothing of the documents, so the index does not store them.
            80,
        ),
    ] {
        let found = share(&params);
        assert!(found <= most, "{params}: {found} %");
    }
}

/// Blobs in memory that count the written bytes.
#[derive(Debug, Default)]
struct Counted {
    blobs: MemoryBlobs,
    written: AtomicU64,
}

impl Blobs for Counted {
    fn create(&self, name: &str) -> io::Result<()> {
        self.blobs.create(name)
    }

    fn append(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.written.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        self.blobs.append(name, bytes)
    }

    fn seal(&self, name: &str) -> io::Result<()> {
        self.blobs.seal(name)
    }

    fn len(&self, name: &str) -> io::Result<Option<u64>> {
        self.blobs.len(name)
    }

    fn read_range(&self, name: &str, range: Range<u64>) -> io::Result<Vec<u8>> {
        self.blobs.read_range(name, range)
    }

    fn delete(&self, name: &str) -> io::Result<()> {
        self.blobs.delete(name)
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.blobs.list()
    }
}

#[test]
fn small_batches_do_not_write_a_document_again_and_again() {
    // Batches are small on a busy machine, which suffers most if a merge rewrites everything every few batches.
    let mut random = StdRng::seed_from_u64(9);
    let words = words(&mut random);
    let counted = Arc::new(Counted::default());
    let definition = Arc::new(Definition::parse(&Value::Null).unwrap());
    let mut index = Index::create(definition, counted.clone(), 1).unwrap();
    for batch in 0..150 {
        let documents: Vec<(String, String)> = (0..20)
            .map(|number| {
                let body = json!({"text": text(&mut random, &words, 300)}).to_string();
                (format!("d{batch}-{number}"), body)
            })
            .collect();
        let changes: Vec<Change<'_>> = documents
            .iter()
            .map(|(id, body)| {
                let body = Some(body.as_bytes());
                Change { vb: vbucket(id), id, body, place: Place::default() }
            })
            .collect();
        index.apply(&changes).unwrap();
        index.merge(50_000).unwrap();
        let commit = index.commit("").unwrap();
        index.collect_garbage(&commit).unwrap();
    }
    let (written, kept) = (counted.written.load(Ordering::Relaxed), counted.blobs.size());
    let times = written as f64 / kept as f64;
    let segments = index.segments().count();
    println!("{times:.1} times the index was written, {segments} segments are left");
    assert_eq!(index.count(), 3000);
    assert!(times < 6.0 && segments < 30, "{times:.1} times, {segments} segments");
}
