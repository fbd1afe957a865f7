//! Views on a segmented state: replies do not depend on the form of the state.

use crate::fixture::{NOW, Stream, design, open, point, query};
use nacre_dcp::Batch;
use nacre_sandbox::{Limits, Partition};
use nacre_state::{BlockCache, MemoryStorage, Segmenting, SpaceStorage, SyncCounts};
use nacre_store::{MemorySpaces, Spaces};
use nacre_types::{Seqno, Vbid};

/// Flushes after every batch or two, with a cache of a few blocks.
fn segmenting() -> Segmenting {
    Segmenting { flush_bytes: 4 << 10, ..Segmenting::new(BlockCache::new(32 << 10)) }
}

fn storage(spaces: &dyn Spaces) -> SpaceStorage {
    let sync_counts = SyncCounts::open(spaces).unwrap();
    SpaceStorage::open(spaces, &sync_counts, "views", true, 64 << 20, Some(&segmenting())).unwrap()
}

/// Feeds the same batch of random changes to both partitions.
fn feed(partitions: [&mut Partition; 2], stream: &mut Stream, roll: &mut impl FnMut(u64) -> u64) {
    let changes: Vec<(String, Option<String>)> = (0..200)
        .map(|_| {
            let key = format!("document {}", roll(1500));
            let city = ["Berlin", "Lyon", "Porto", "Oslo"][roll(4) as usize];
            let body = format!(r#"{{"city":"{city}","rank":{},"filler":"{city:>60}"}}"#, roll(100));
            (key, (roll(5) > 0).then_some(body))
        })
        .collect();
    let batch: Batch = stream.batch(changes.iter().map(|(key, body)| (&key[..], body.as_deref())));
    for partition in partitions {
        partition.on_batch(&batch, NOW).unwrap();
    }
}

#[test]
fn views_answer_the_same_from_segments_as_from_memory() {
    let map = "function (doc) { emit([doc.city, doc.rank], doc.rank); }";
    let spaces = MemorySpaces::default();
    let config = design(map, Some("_stats"));
    let mut resident = open(&config, Limits::default(), MemoryStorage::default());
    let mut segmented = open(&config, Limits::default(), storage(&spaces));
    let mut stream = Stream::default();
    let mut random = 7_u64;
    let mut roll = |sides: u64| {
        random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (random >> 33) % sides
    };
    let queries = [
        "reduce=false",
        "reduce=false&descending=true&limit=50",
        "reduce=false&startkey=[\"Lyon\",20]&endkey=[\"Lyon\",60]",
        "reduce=false&startkey=[\"Porto\",80]&endkey=[\"Lyon\",60]&descending=true&skip=3",
        "reduce=false&key=[\"Oslo\",7]",
        "",
        "group_level=1",
        "group=true&startkey=[\"Oslo\"]&limit=9",
    ];
    for round in 0..30 {
        feed([&mut resident, &mut segmented], &mut stream, &mut roll);
        match round % 10 {
            4 => {
                // A vBucket is rolled back to before its first change.
                for partition in [&mut resident, &mut segmented] {
                    assert_eq!(partition.rollback(Vbid(1), point(0)).unwrap().seqno, Seqno::ZERO);
                }
            }
            8 => {
                segmented.settle().unwrap();
                drop(segmented);
                segmented = open(&config, Limits::default(), storage(&spaces));
            }
            _ => {}
        }
        for text in queries {
            let [expected, found] = [&resident, &segmented].map(|one| query(&one.reader(), text));
            assert_eq!(found, expected, "round {round}, {text}");
        }
    }
    let files = spaces.open("views").unwrap().files().unwrap();
    assert!(files.numbers().unwrap().len() > 1, "there are segments");
}

/// A lost segment stops the view with the segment's name, and no row is omitted silently.
#[test]
fn a_lost_segment_ends_a_query_with_its_name() {
    let map = "function (doc) { emit(doc.city, null); }";
    let spaces = MemorySpaces::default();
    let mut segmented = open(&design(map, None), Limits::default(), storage(&spaces));
    let mut resident = open(&design(map, None), Limits::default(), MemoryStorage::default());
    let mut stream = Stream::default();
    let mut number = 0;
    let mut roll = |sides: u64| {
        number += 7;
        number % sides
    };
    for _ in 0..6 {
        feed([&mut resident, &mut segmented], &mut stream, &mut roll);
    }
    let files = spaces.open("views").unwrap().files().unwrap();
    for file in files.numbers().unwrap() {
        let file = files.open(file).unwrap();
        // Overwrites neither the magic nor the root, which is in memory.
        let zeros = vec![0; (file.bytes().unwrap() as usize / 2).min(64 << 10)];
        file.write_at(&zeros, 16).unwrap();
    }
    let request = nacre_sandbox::Request {
        method: "GET".into(),
        path: "/v".into(),
        ..nacre_sandbox::Request::default()
    };
    let answered = segmented.reader().handle(&request, NOW).and_then(|answer| answer.collect());
    let error = answered.unwrap_err().to_string();
    assert!(error.contains(".part") && error.contains("checksum"), "{error}");
}
