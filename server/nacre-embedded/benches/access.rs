//! A benchmark of an embedded database: reads and writes by key, durable writes, and the time to open a folder.
//!
//! Arguments: a folder and seconds of each measurement. `cargo xtask bench embedded` runs it next to other engines. Prints a line
//! of JSON with the members that the scripts for the other languages have.
#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock and the directory")]

use nacre::{Db, Options, Sync, Write};
use serde_json::{Value, json};
use std::fs::{self, File};
use std::hint::black_box;
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

const KEY_COUNT: u64 = 10_000;
/// Operations between two reads of the clock.
const PORTION: u64 = 256;

fn main() {
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
    let folder = arguments.next().expect("the first argument is a folder");
    let folder = Path::new(&folder);
    let seconds = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(1.0);
    let time = Duration::from_secs_f64(seconds);
    let empty = {
        let before = resident_bytes();
        let db = Db::open(":memory:").expect("a database in memory opens");
        let bytes = resident_bytes().saturating_sub(before);
        db.close().expect("it closes");
        bytes
    };

    let path = folder.join("db");
    let db = Db::open(&path).expect("the folder opens");
    let documents = db.default_collection();
    let keys: Vec<String> = (0..KEY_COUNT).map(|number| format!("bench-{number}")).collect();
    let body = body();
    for key in &keys {
        documents.upsert(key, &body, Write::new()).expect("a document is stored");
    }
    let key = |number: u64| &keys[usize::try_from(number % KEY_COUNT).expect("a small number")];
    let get = measure(time, PORTION, |number| {
        let found = documents.get(key(number)).expect("the database answers");
        black_box(found.expect("the document is there").body().len());
    });
    let parse = measure(time, PORTION, |number| {
        let found = documents.get(key(number)).expect("the database answers");
        let found = found.expect("the document is there");
        black_box(serde_json::from_slice::<Value>(found.body()).expect("the body is JSON"));
    });
    let put = measure(time, PORTION, |number| {
        documents.upsert(key(number), &body, Write::new()).expect("a document is stored");
    });
    let durable = measure(time, 1, |number| {
        let write = Write::new().sync(Sync::Always);
        documents.upsert(key(number), &body, write).expect("a document is on disk");
    });
    db.close().expect("the database closes");
    drop((documents, db));

    let begun = Instant::now();
    let db = Db::open_with(&path, Options { create: false, ..Options::default() });
    let open = begun.elapsed();
    db.expect("the folder opens again").close().expect("it closes");

    let figures = json!({
        "getUs": micros(get),
        "getParsedUs": micros(parse),
        "putUs": micros(put),
        "durableUs": micros(durable),
        "syncUs": micros(sync_alone(folder, time, body.len())),
        "openMs": open.as_secs_f64() * 1e3,
        "emptyMb": empty as f64 / 1e6,
    });
    println!("{figures}");
}

/// Returns a document of about 200 bytes, the same as in the scripts for other languages.
fn body() -> Vec<u8> {
    let document = json!({
        "name": "Ada Lovelace",
        "tags": ["a", "b", "c"],
        "address": { "city": "London", "zip": "12345" },
        "text": "x".repeat(100),
    });
    document.to_string().into_bytes()
}

/// Returns the mean time of an operation.
fn measure(time: Duration, portion: u64, mut operation: impl FnMut(u64)) -> Duration {
    let begun = Instant::now();
    let mut count = 0;
    while begun.elapsed() < time {
        for number in count..count + portion {
            operation(number);
        }
        count += portion;
    }
    begun.elapsed() / u32::try_from(count).unwrap_or(u32::MAX)
}

/// Returns the mean time of an append of `bytes` bytes and its sync alone, without a database.
fn sync_alone(folder: &Path, time: Duration, bytes: usize) -> Duration {
    let path = folder.join("sync");
    let mut file = File::create(&path).expect("a file is made");
    let block = vec![7; bytes];
    let mean = measure(time, 1, |_| {
        file.write_all(&block).expect("the file takes bytes");
        file.sync_data().expect("the file is synced");
    });
    fs::remove_file(&path).expect("the file is removed");
    mean
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// Returns the resident memory of this process.
fn resident_bytes() -> u64 {
    let text = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = text.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok());
    pages.unwrap_or(0) * 4096
}
