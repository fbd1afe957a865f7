//! `cargo xtask bench views`: the documents per second that a node indexes, compared with a server that users of
//! CouchDB views would run; the time of queries on small and large views; and the cost of the sandbox.

use super::load::{BUCKET, create_bucket, median};
use super::{Goal, Limit, PORT_BASE};
use nacre_conformance::http;
use nacre_conformance::kv::KvClient;
use serde_json::{Value, json};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use xtask_setup::node::{self, Node, PASSWORD, USER};
use xtask_setup::tools;

const AGAINST_PEER: Goal =
    Goal { what: "documents indexed, against the peer", unit: "x", min: 220.0 };
const REDUCE: Limit = Limit { what: "reduce over everything, p50", unit: " ms", max: 1.0 };
const RANGE: Limit = Limit { what: "50 rows, p50", unit: " ms", max: 2.0 };
const GROWTH: Limit = Limit { what: "reduce of all rows, against 1,000 rows", unit: "x", max: 3.0 };

const QUOTA_MB: u32 = 4096;
/// Number of documents with about 1,000 rows.
const SMALL: u32 = 333;
const QUERIES: usize = 200;
/// Number of alternating measurements of both sides; the median of the ratios is used.
const ROUNDS: usize = 3;
/// Number of runs of the node per round; the median is used.
const RUNS: usize = 5;
/// Time limit for the other server to start, and to index.
const PATIENCE: Duration = Duration::from_secs(300);
/// The other server's package and version.
const PEER: (&str, &str) = ("pouchdb-server", "4.2.0");

/// Returns two views that together emit three rows per document.
fn design() -> Value {
    json!({"views": {
        "by_name": {"map": "function (doc, meta) { emit(doc.name, null); }", "reduce": "_count"},
        "by_place": {
            "map": "function (doc, meta) { emit([doc.country, doc.city], doc.price); emit([doc.country], doc.price); }",
            "reduce": "_stats",
        },
    }})
}

/// Returns a document of about 0.9 KB.
fn document(number: u32) -> Value {
    let spread = number.wrapping_mul(2_654_435_761);
    json!({
        "type": "hotel",
        "number": number,
        "name": format!("hotel {:08x}", spread),
        "country": format!("country {}", spread % 20),
        "city": format!("city {}", spread % 200),
        "price": spread % 500,
        "ratings": (0..8).map(|step| spread >> step & 7).collect::<Vec<_>>(),
        "description": "a quiet house beside the old harbour, ".repeat(18),
    })
}

/// Measures a node with `documents`, and with the number of the other server, `peer_documents`.
///
/// # Errors
/// Reports what is missing, or which goal was missed.
pub fn run(documents: u32, peer_documents: u32) -> Result<(), String> {
    let binary = node::build("release")?;
    println!("documents of 0.9 KB, two views, three rows of each document");
    let small = views_of(&binary, SMALL)?;
    let large = views_of(&binary, documents)?;
    println!("{documents} documents: {:.0} indexed a second", large.indexed);
    let (name, version) = PEER;
    let round = |_| {
        // A run takes a tenth of a second, so that other processes can disturb it.
        let runs = (0..RUNS).map(|_| Ok(views_of(&binary, peer_documents)?.indexed));
        let indexed = median(runs.collect::<Result<Vec<_>, String>>()?);
        let peer = peer(peer_documents)?;
        println!(
            "{peer_documents} documents: {indexed:.0} indexed a second; {name} {version}: {peer:.0}"
        );
        Ok(indexed / peer)
    };
    let ratios = (0..ROUNDS).map(round).collect::<Result<Vec<_>, String>>()?;
    let outcomes = [
        AGAINST_PEER.check(median(ratios)),
        REDUCE.check(large.reduce_ms),
        RANGE.check(large.range_ms),
        GROWTH.check(large.reduce_ms / small.reduce_ms),
    ];
    outcomes.into_iter().collect()
}

struct Figures {
    /// Documents per second, from the design document to up-to-date rows of both views.
    indexed: f64,
    reduce_ms: f64,
    range_ms: f64,
}

fn views_of(binary: &Path, documents: u32) -> Result<Figures, String> {
    let node = Node::start(binary, Some(PORT_BASE), &["warm"], &[])?;
    // The plugin is loaded once it has answered.
    node.put_design("warm", "warm", &design().to_string())?;
    create_bucket(&node, "couchbase", QUOTA_MB)?;
    let failed = |error: std::io::Error| format!("the node: {error}");
    let address = format!("127.0.0.1:{}", node.kv_port());
    let mut client = KvClient::connect(address, USER, PASSWORD, BUCKET).map_err(failed)?;
    for number in 0..documents {
        let (key, body) = (format!("hotel{number}"), document(number).to_string());
        client.set(key.as_bytes(), body.as_bytes()).map_err(failed)?;
    }
    let begun = Instant::now();
    node.put_design(BUCKET, "hotels", &design().to_string())?;
    for (view, rows) in [("by_name", documents), ("by_place", 2 * documents)] {
        let path =
            format!("/{BUCKET}/_design/hotels/_view/{view}?stale=false&connection_timeout=600000");
        let address = format!("127.0.0.1:{}", node.views_port());
        let (user, json) = (Some((USER, PASSWORD)), "application/json");
        let answer = http::request_within(PATIENCE, &address, "GET", &path, user, json, b"");
        let found = answer.and_then(|answer| answer.json()).map_err(failed)?;
        let found = &found["rows"];
        let value = &found[0]["value"];
        let count = value.as_u64().or_else(|| value["count"].as_u64());
        if count != Some(rows.into()) {
            return Err(format!("{view} has {value} of {rows} rows"));
        }
    }
    let indexed = f64::from(documents) / begun.elapsed().as_secs_f64();
    let timed = |query: &dyn Fn(usize) -> String| {
        let one = |number| {
            let path = format!("/{BUCKET}/_design/hotels/_view/{}", query(number));
            let begun = Instant::now();
            let answer = node.views("GET", &path, "")?;
            let elapsed = begun.elapsed().as_secs_f64() * 1e3;
            if answer.status == 200 { Ok(elapsed) } else { Err(answer.text()) }
        };
        (0..QUERIES).map(one).collect::<Result<Vec<_>, String>>().map(median)
    };
    let figures = Figures {
        indexed,
        reduce_ms: timed(&|_| "by_place?stale=ok".into())?,
        range_ms: timed(&|number| {
            let start = (number as u32).wrapping_mul(20_000_003);
            format!("by_name?stale=ok&reduce=false&limit=50&startkey=%22hotel%20{start:08x}%22")
        })?,
    };
    node.stop()?;
    Ok(figures)
}

/// Returns the documents per second that the other server indexes.
fn peer(documents: u32) -> Result<f64, String> {
    let (package, version) = PEER;
    let program = tools::npm(package, version)?.join("bin").join(package);
    let folder = std::env::temp_dir().join(format!("nacre-peer-{}", std::process::id()));
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let port = PORT_BASE + 52;
    let mut command = Command::new("node");
    command.arg(program).args(["--port", &port.to_string(), "--level", "error", "--dir"]);
    command.arg(&folder).current_dir(&folder).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().map_err(|error| format!("node, to run {package}: {error}"))?;
    let outcome = index_on_peer(&mut child, &format!("127.0.0.1:{port}"), documents);
    let _ = child.kill();
    let _ = child.wait();
    let _ = std::fs::remove_dir_all(&folder);
    outcome
}

fn index_on_peer(child: &mut Child, address: &str, documents: u32) -> Result<f64, String> {
    let ask = |method: &str, path: &str, body: &Value| {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        http::request(address, method, path, None, "application/json", body.as_bytes())
    };
    let begun = Instant::now();
    while !ask("PUT", "/bench", &Value::Null).is_ok_and(|answer| answer.status < 300) {
        if child.try_wait().is_ok_and(|status| status.is_some()) || begun.elapsed() > PATIENCE {
            return Err(format!("{} does not start", PEER.0));
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    let failed = |error: std::io::Error| format!("{}: {error}", PEER.0);
    for first in (0..documents).step_by(500) {
        let docs: Vec<_> = (first..documents.min(first + 500)).map(document).collect();
        let answer = ask("POST", "/bench/_bulk_docs", &json!({ "docs": docs })).map_err(failed)?;
        if answer.status >= 300 {
            return Err(format!("{}: {}", PEER.0, answer.text()));
        }
    }
    ask("PUT", "/bench/_design/hotels", &design()).map_err(failed)?;
    let begun = Instant::now();
    for view in ["by_name", "by_place"] {
        let path = format!("/bench/_design/hotels/_view/{view}?reduce=false&limit=1");
        let answer = ask("GET", &path, &Value::Null).map_err(failed)?;
        if answer.status != 200 {
            return Err(format!("{}: {}", PEER.0, answer.text()));
        }
    }
    Ok(f64::from(documents) / begun.elapsed().as_secs_f64())
}
