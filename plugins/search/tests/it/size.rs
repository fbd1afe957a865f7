//! How large an index is, beside the text that it is of.
//!
//! `NACRE_DOCUMENTS=100000 cargo test -p nacre-search --test it size -- --nocapture` shows what takes the space.

use crate::world::World;
use nacre_search::Blobs;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Words of the language of the documents.
const WORDS: usize = 30_000;
/// Bytes of the text of a document.
const TEXT_BYTES: usize = 1_000;

/// Words of one to four syllables; the frequent ones are short.
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

/// A text in which the word of rank n is about 1/n as frequent as the first.
fn text(random: &mut StdRng, words: &[String], bytes: usize) -> String {
    let mut text = String::with_capacity(bytes + 16);
    while text.len() < bytes {
        let rank = (WORDS as f64).powf(random.random::<f64>()) as usize;
        text.push_str(&words[rank.min(WORDS) - 1]);
        text.push(' ');
    }
    text
}

/// Bytes of the text of an index of so many documents, and of its files by kind.
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

/// Hundredths of the text that an index takes.
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
            // Nothing of the documents is shown, so that they are not kept.
            80,
        ),
    ] {
        let found = share(&params);
        assert!(found <= most, "{params}: {found} %");
    }
}
