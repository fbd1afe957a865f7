//! `cargo xtask bench eventing`: changes per second of a function that writes a document for each, and its lag at half
//! that load; and functions that ignore nineteen of twenty documents, in their code and by a filter.

use super::PORT_BASE;
use super::documents::Documents;
use serde_json::json;
use std::time::{Duration, Instant};
use xtask_setup::node::{self, Node};

const BUCKET: &str = "default";
const CODE: &str = "function OnUpdate(doc, meta) { copies[meta.id] = {n: doc.n, seen: true}; }";
const IGNORES: &str = "function OnUpdate(doc, meta) { if (doc.n % 20 === 0) copies[meta.id] = {n: doc.n, seen: true}; }";
const FILTER: &str = "n % 20 = 0";
/// The time over which documents are collected before they are written together.
const BURST: Duration = Duration::from_millis(5);
/// The pause before another check for a copy.
const LOOK: Duration = Duration::from_micros(500);
/// Time limit for any step.
const PATIENCE: Duration = Duration::from_secs(120);

/// Measures a node built with `profile`: first with the given number of documents, then for the given seconds.
///
/// # Errors
/// Fails when the node or the function fails.
pub fn run(documents: u64, seconds: f64, profile: &str) -> Result<(), String> {
    let binary = node::build(profile)?;
    let node = Node::start(&binary, Some(PORT_BASE), &[BUCKET], &[])?;
    for collection in ["meta", "copies"] {
        let path = format!("/pools/default/buckets/{BUCKET}/scopes/_default/collections");
        node.rest("POST", &path, &[("name", collection)])?;
    }
    let mut source = Documents::open(&node, BUCKET, "_default", document)?;
    source.write(0..documents)?;
    for (what, code, filter) in [("ignores 95 %", IGNORES, ""), ("with a filter", CODE, FILTER)] {
        let rate = rate(&node, documents, code, filter)?;
        println!("events a second, {what}: {rate:.0}");
        command(&node, "undeploy")?;
        wait_until(|| Ok(backlog(&node)?.is_none()))?;
    }
    let rate = rate(&node, documents, CODE, "")?;
    println!("events a second, deployment included: {rate:.0}");

    let mut lags = lags(&node, rate / 2.0, seconds)?;
    lags.sort_unstable();
    let at = |share: f64| lags[((lags.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e3;
    println!(
        "lag at {:.0} a second: half within {:.1} ms, 99 % within {:.1} ms, all within {:.1} ms",
        rate / 2.0,
        at(0.5),
        at(0.99),
        at(1.0)
    );
    node.stop()
}

fn document(number: u64) -> Vec<u8> {
    json!({"n": number, "text": "x".repeat(200)}).to_string().into_bytes()
}

/// Returns the documents per second that a new function processes.
fn rate(node: &Node, documents: u64, code: &str, filter: &str) -> Result<f64, String> {
    define(node, code, filter)?;
    let begun = Instant::now();
    command(node, "deploy")?;
    wait_until(|| Ok(backlog(node)? == Some(0)))?;
    Ok(documents as f64 / begun.elapsed().as_secs_f64())
}

fn define(node: &Node, code: &str, filter: &str) -> Result<(), String> {
    let definition = json!({
        "appname": "copy", "appcode": code, "settings": {"filter": filter},
        "depcfg": {
            "source_bucket": BUCKET, "metadata_bucket": BUCKET, "metadata_collection": "meta",
            "buckets": [{"alias": "copies", "bucket_name": BUCKET, "collection_name": "copies", "access": "rw"}],
        },
    });
    let answer = node.eventing("POST", "/api/v1/functions/copy", &definition.to_string())?;
    match answer.status {
        200 => Ok(()),
        _ => Err(answer.text()),
    }
}

fn command(node: &Node, command: &str) -> Result<(), String> {
    let answer = node.eventing("POST", &format!("/api/v1/functions/copy/{command}"), "")?;
    if answer.status == 200 { Ok(()) } else { Err(answer.text()) }
}

/// Returns the function's backlog; `None` while it is being deployed.
fn backlog(node: &Node) -> Result<Option<u64>, String> {
    let stats = node.eventing("GET", "/api/v1/stats", "")?;
    let stats = stats.json().map_err(|error| error.to_string())?;
    Ok(stats[0]["events_remaining"]["dcp_backlog"].as_u64())
}

fn wait_until(mut is_so: impl FnMut() -> Result<bool, String>) -> Result<(), String> {
    let begun = Instant::now();
    while !is_so()? {
        if begun.elapsed() > PATIENCE {
            return Err("it took too long".into());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// Returns the times until copies of documents exist that are written at `rate`.
fn lags(node: &Node, rate: f64, seconds: f64) -> Result<Vec<Duration>, String> {
    let open = |name| Documents::open(node, BUCKET, name, document);
    let (mut source, mut copies) = (open("_default")?, open("copies")?);
    let (sender, written) = std::sync::mpsc::channel::<(u64, Instant)>();
    let watcher = std::thread::spawn(move || {
        let mut lags = Vec::new();
        for (number, since) in written {
            while !copies.holds(number)? {
                if since.elapsed() > PATIENCE {
                    return Err("a copy is missing".to_owned());
                }
                std::thread::sleep(LOOK);
            }
            lags.push(since.elapsed());
        }
        Ok(lags)
    });
    let first = 1 << 40;
    let begun = Instant::now();
    let mut written = 0;
    while begun.elapsed().as_secs_f64() < seconds {
        std::thread::sleep(BURST);
        let since = Instant::now();
        let due = (begun.elapsed().as_secs_f64() * rate) as u64;
        source.write(first + written..first + due)?;
        // Of documents written together, the last one arrives last.
        if due > written && sender.send((first + due - 1, since)).is_err() {
            break;
        }
        written = due;
    }
    drop(sender);
    watcher.join().map_err(|_| "the watcher has panicked".to_owned())?
}
