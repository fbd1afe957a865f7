//! Measures the cost of the sandbox: the same two views over the same documents, as plain Rust and in Wasm, in
//! one run.
//!
//! `cargo bench -p nacre-sandbox --bench views`, after `cargo xtask plugins`. Rounds alternate, so that a noisy
//! machine affects both; the best round of each counts. Read the ratio, not the numbers.
#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

mod stage;

use nacre_dcp::Batch;
use nacre_plugin::{Event, EventKind, Events, MemoryState, Service, pack};
use nacre_sandbox::{Partition, Plugin, Setup};
use nacre_state::MemoryStorage;
use nacre_types::{Now, Vbid};
use nacre_views::Views;
use std::time::{Duration, Instant};

const DOCUMENT_COUNT: usize = 20_000;
const BATCH_COUNT: usize = 1024;
const ROUNDS: usize = 5;
const VBUCKETS: u16 = 64;

const CONFIG: &str = r#"{"name": "bench", "views": {
    "by_name": {"map": "function (doc, meta) { if (doc.type === 'hotel') emit(doc.name, null) }"},
    "by_city": {
        "map": "function (doc, meta) { if (doc.address) emit([doc.address.country, doc.address.city], doc.price) }",
        "reduce": "_stats"
    }
}}"#;

struct Seed(u64);

impl Seed {
    fn next(&mut self, below: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }

    fn text(&mut self, words: usize) -> String {
        const WORDS: [&str; 8] =
            ["harbour", "old", "garden", "quiet", "station", "grand", "river", "little"];
        let word = |_| WORDS[self.next(8) as usize];
        (0..words).map(word).collect::<Vec<_>>().join(" ")
    }
}

/// Returns hotels of about 0.9 KB, as in the travel sample.
fn documents() -> Vec<(String, String)> {
    let mut seed = Seed(7);
    let mut document = |number: usize| {
        let body = serde_json::json!({
            "id": number,
            "type": "hotel",
            "name": format!("{} {}", seed.text(2), seed.next(100_000)),
            "address": {
                "street": seed.text(3),
                "city": format!("city{}", seed.next(200)),
                "country": format!("country{}", seed.next(20)),
                "geo": {"lat": seed.next(180_000) as f64 / 1000.0, "lon": seed.next(360_000) as f64 / 1000.0},
            },
            "price": seed.next(500),
            "email": format!("desk{}@example.com", seed.next(10_000)),
            "free_breakfast": seed.next(2) == 0,
            "vacancy": seed.next(2) == 0,
            "ratings": (0..8).map(|_| seed.next(6)).collect::<Vec<_>>(),
            "tags": (0..6).map(|_| seed.text(1)).collect::<Vec<_>>(),
            "description": seed.text(85),
        });
        (format!("hotel_{number}"), body.to_string())
    };
    (0..DOCUMENT_COUNT).map(&mut document).collect()
}

fn native(documents: &[(String, String)]) -> Duration {
    let mut views = Views::init(CONFIG).expect("the design document is good");
    let mut state = MemoryState::default();
    let start = Instant::now();
    for chunk in documents.chunks(BATCH_COUNT) {
        let events: Vec<_> = chunk
            .iter()
            .map(|(key, body)| Event {
                index: 0,
                vb: Vbid::of(key.as_bytes(), VBUCKETS).0,
                seqno: 1,
                cas: 1 << 16,
                rev: 1,
                flags: 0,
                expiry: 0,
                collection: 8,
                kind: EventKind::Upsert,
                datatype: 1,
                key: key.as_bytes(),
                xattrs: b"",
                body: body.as_bytes(),
                previous: None,
            })
            .collect();
        let buffer = pack(&events, 0);
        let events = Events::decode(&buffer).expect("it was just packed");
        let errors = views.on_batch(&events, &mut state).expect("the views work");
        assert!(errors.is_empty());
    }
    start.elapsed()
}

fn sandboxed(plugin: &Plugin, batches: &[Batch]) -> Duration {
    let storage = Box::new(MemoryStorage::default());
    let mut partition = Partition::open(plugin.clone(), Setup::new("bench", CONFIG), storage)
        .expect("the design document is good");
    let start = Instant::now();
    for batch in batches {
        let report = partition.on_batch(batch, Now::default()).expect("the views work");
        assert!(report.errors.is_empty() && report.dead_letters.is_empty());
    }
    start.elapsed()
}

fn batches(documents: &[(String, String)]) -> Vec<Batch> {
    let document = |(key, body): &(String, String)| {
        (Vbid::of(key.as_bytes(), VBUCKETS), stage::document(key, body))
    };
    let batch = |chunk: &[(String, String)]| stage::batch(chunk.iter().map(document));
    documents.chunks(BATCH_COUNT).map(batch).collect()
}

fn main() {
    let host = stage::host();
    let component = stage::component("views");
    let start = Instant::now();
    let artefact = host.compile(&component).expect("the component compiles");
    println!("compile: {:?}, {} KB of machine code", start.elapsed(), artefact.len() / 1024);
    // SAFETY: this host has just compiled the bytes.
    let plugin = unsafe { host.load("views", &artefact) }.expect("the component loads");

    let documents = documents();
    let bytes: usize = documents.iter().map(|(_, body)| body.len()).sum();
    println!(
        "{DOCUMENT_COUNT} documents of {} bytes, two views, batches of {BATCH_COUNT}",
        bytes / DOCUMENT_COUNT
    );
    let batches = batches(&documents);
    let mut best = [Duration::MAX; 2];
    for round in 1..=ROUNDS {
        let times = [native(&documents), sandboxed(&plugin, &batches)];
        println!("round {round}: native {:?}, sandboxed {:?}", times[0], times[1]);
        best = [best[0].min(times[0]), best[1].min(times[1])];
    }
    let rate = |time: Duration| DOCUMENT_COUNT as f64 / time.as_secs_f64();
    println!("native:    {:>8.0} documents/s", rate(best[0]));
    println!("sandboxed: {:>8.0} documents/s", rate(best[1]));
    println!("ratio:     {:.2}", best[1].as_secs_f64() / best[0].as_secs_f64());
}
