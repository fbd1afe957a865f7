//! `cargo xtask bench query`: latencies of prepared statements, the changes per second that three indexes process, and
//! the latency of reading one's own writes meanwhile.

use super::documents::Documents;
use super::load::{self, BUCKET, create_bucket};
use super::{Goal, Limit, PORT_BASE};
use nacre_conformance::http;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use xtask_setup::node::{self, Node, PASSWORD, USER};

const POINT: Limit =
    Limit { what: "covered query for one entry, one client, p50", unit: " us", max: 200.0 };
const KEPT_UP: Goal =
    Goal { what: "changes that three indexes take in a second", unit: "/s", min: 100_000.0 };

const QUOTA_MB: u32 = 4096;
const WRITERS: u64 = 2;
/// The time over which documents are collected before they are written together.
const BURST: Duration = Duration::from_millis(5);
/// Time limit for indexes to catch up.
const PATIENCE: Duration = Duration::from_secs(300);

const INDEXES: [&str; 3] = [
    "CREATE INDEX by_serial ON bench(serial)",
    "CREATE INDEX by_name ON bench(name)",
    "CREATE INDEX by_kind ON bench(kind, serial DESC)",
];
/// A statement for each index.
const PROBES: [&str; 3] = ["serial = 0", "name = ''", "kind = 'k0' AND serial = 0"];

const POINT_QUERY: &str = "SELECT serial FROM bench WHERE serial = $1";
/// The queries, with their names.
const QUERIES: [(&str, &str); 3] = [
    ("SELECT * FROM bench WHERE serial = $1", "one entry and its document"),
    ("SELECT serial FROM bench WHERE serial >= $1 ORDER BY serial LIMIT 50", "50 entries, covered"),
    (
        "SELECT * FROM bench WHERE serial >= $1 ORDER BY serial LIMIT 50",
        "50 entries and their documents",
    ),
];

/// The largest part of a document.
const TEXT: &str = "a quiet house beside the old harbour, a quiet house beside the old harbour, a quiet house \
                    beside the old harbour, a quiet house beside the old harbour, a quiet house beside the old harbour, \
                    a quiet house beside the old harbour, ";

/// Returns a document of about 300 B.
fn document(number: u64) -> Vec<u8> {
    let spread = number.wrapping_mul(2_654_435_761) % (1 << 32);
    let kind = spread % 1000;
    format!(
        r#"{{"serial": {number}, "name": "name {spread:08x}", "kind": "k{kind}", "text": "{TEXT}"}}"#
    )
    .into_bytes()
}

/// Measures with the given number of documents, each latency for the given seconds.
///
/// # Errors
/// Reports what is missing, or which goal was missed.
pub fn run(documents: u64, seconds: f64) -> Result<(), String> {
    let binary = node::build("release")?;
    let node = Node::start(&binary, Some(PORT_BASE), &[], &[])?;
    create_bucket(&node, "couchbase", QUOTA_MB)?;
    for index in INDEXES {
        ask(&node, &json!({ "statement": index }))?;
    }
    let rate = fill(&node, documents)?;
    let numbers = documents.to_string();
    let quiet = |statement| latency(&binary, &node, statement, "not_bounded", &numbers, seconds);
    println!("{documents} documents of 300 B, three indexes, one client, p50 and p99 in us:");
    let [point, _] = quiet(POINT_QUERY)?;
    for (statement, what) in QUERIES {
        let [p50, p99] = quiet(statement)?;
        println!("  {what}: {p50:.0}, {p99:.0}");
    }
    under_load(&binary, &node, documents, rate / 2.0, seconds)?;
    node.stop()?;
    POINT.check(point).and(KEPT_UP.check(rate))
}

/// Writes all documents as fast as the node accepts them; returns the documents per second until all indexes have them.
fn fill(node: &Node, documents: u64) -> Result<f64, String> {
    let begun = Instant::now();
    let bound = |writer: u64| documents * writer / WRITERS;
    std::thread::scope(|scope| {
        let write = |writer: u64| {
            let numbers = bound(writer)..bound(writer + 1);
            Documents::open(node, BUCKET, "_default", document)?.write(numbers)
        };
        let writers: Vec<_> =
            (0..WRITERS).map(|writer| scope.spawn(move || write(writer))).collect();
        let join = |writer: std::thread::ScopedJoinHandle<'_, Result<(), String>>| {
            writer.join().unwrap_or_else(|_| Err("a writer panicked".into()))
        };
        // All have ended before the first failure is reported, because the scope waits for them.
        writers.into_iter().try_for_each(join)
    })?;
    let written = begun.elapsed().as_secs_f64();
    for probe in PROBES {
        let statement = format!("SELECT RAW COUNT(*) FROM bench WHERE {probe}");
        ask(
            node,
            &json!({"statement": statement, "scan_consistency": "request_plus", "timeout": "70s"}),
        )?;
    }
    let indexed = begun.elapsed().as_secs_f64();
    println!(
        "{documents} documents: written in {written:.2} s, in three indexes after {indexed:.2} s"
    );
    Ok(documents as f64 / indexed)
}

/// Returns the latencies of a query while documents are changed at `rate`.
fn under_load(
    binary: &Path,
    node: &Node,
    documents: u64,
    rate: f64,
    seconds: f64,
) -> Result<(), String> {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| change(node, documents, rate, &is_over));
        let numbers = documents.to_string();
        let measured = ["not_bounded", "request_plus"].map(|consistency| {
            latency(binary, node, POINT_QUERY, consistency, &numbers, seconds)
                .map(|latency| (consistency, latency))
        });
        is_over.store(true, Ordering::Relaxed);
        let changed = writer.join().unwrap_or_else(|_| Err("the writer panicked".into()))?;
        println!("while {changed:.0} documents a second change, one entry, p50 and p99 in us:");
        for measured in measured {
            let (consistency, [p50, p99]) = measured?;
            println!("  {consistency}: {p50:.0}, {p99:.0}");
        }
        Ok(())
    })
}

/// Rewrites documents at `rate` per second; returns the achieved rate.
fn change(node: &Node, documents: u64, rate: f64, is_over: &AtomicBool) -> Result<f64, String> {
    let mut client = Documents::open(node, BUCKET, "_default", document)?;
    let (begun, mut written) = (Instant::now(), 0);
    while !is_over.load(Ordering::Relaxed) {
        std::thread::sleep(BURST);
        let due = (begun.elapsed().as_secs_f64() * rate) as u64;
        let from = written % documents;
        let until = (from + due - written).min(documents);
        client.write(from..until)?;
        written += until - from;
    }
    Ok(written as f64 / begun.elapsed().as_secs_f64())
}

/// Returns p50 and p99 of a statement whose argument is a number, in microseconds.
fn latency(
    binary: &Path,
    node: &Node,
    statement: &str,
    consistency: &str,
    numbers: &str,
    seconds: f64,
) -> Result<[f64; 2], String> {
    let (server, seconds) = (format!("127.0.0.1:{}", node.query_port()), seconds.to_string());
    let options = [
        statement,
        "--query",
        &server,
        "--user",
        USER,
        "--password",
        PASSWORD,
        "--argument",
        "{}",
        "--numbers",
        numbers,
        "--scan-consistency",
        consistency,
        "--seconds",
        &seconds,
    ];
    let options: Vec<String> = options.iter().map(|option| (*option).to_owned()).collect();
    let rows = load::rows(binary, &[], "query", &options)?;
    let row = rows.first().ok_or("the measurement printed nothing")?;
    Ok([load::figure(row, "p50_us")?, load::figure(row, "p99_us")?])
}

/// Runs a statement on the node.
fn ask(node: &Node, request: &Value) -> Result<(), String> {
    let address = format!("127.0.0.1:{}", node.query_port());
    let (user, body) = (Some((USER, PASSWORD)), request.to_string());
    let path = "/query/service";
    let begun = Instant::now();
    loop {
        let json = "application/json";
        let answer =
            http::request_within(PATIENCE, &address, "POST", path, user, json, body.as_bytes());
        let answer = answer.map_err(|error| format!("the node: {error}"))?;
        let told = answer.json().map_err(|error| format!("the node: {error}"))?;
        // The query service of a node that has just started may not be ready yet.
        let later = told["errors"][0]["retry"] == true || told["errors"].is_null();
        match told["status"].as_str() {
            Some("success") => return Ok(()),
            _ if later && begun.elapsed() < PATIENCE => std::thread::sleep(BURST),
            _ => return Err(format!("{request}: {}", answer.text())),
        }
    }
}
