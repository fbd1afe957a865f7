//! `cargo xtask bench eventing`: changes that a function takes in a second, each with a document that it writes, and how
//! far behind it is at half that load; and with functions that ignore nineteen documents of twenty, by themselves and by a
//! filter.

use super::PORT_BASE;
use super::documents::Documents;
use serde_json::json;
use std::time::{Duration, Instant};
use xtask_setup::node::{self, Node};

const BUCKET: &str = "default";
const CODE: &str = "function OnUpdate(doc, meta) { copies[meta.id] = {n: doc.n, seen: true}; }";
const IGNORES: &str = "function OnUpdate(doc, meta) { if (doc.n % 20 === 0) copies[meta.id] = {n: doc.n, seen: true}; }";
const FILTER: &str = "n % 20 = 0";
/// How long documents are gathered that are written at once.
const BURST: Duration = Duration::from_millis(5);
/// How long to wait before looking for a copy again.
const LOOK: Duration = Duration::from_micros(500);
/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// Measures with so many documents, then for so many seconds, a node that is built with `profile`.
///
/// # Errors
/// When the node or the function fails.
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

/// How many of so many documents a new function takes in a second.
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

/// What the function has yet to take; none while it is being deployed.
fn backlog(node: &Node) -> Result<Option<u64>, String> {
    let stats = node.eventing("GET", "/api/v1/stats", "")?;
    let stats = stats.json().map_err(|error| error.to_string())?;
    Ok(stats[0]["events_remaining"]["dcp_backlog"].as_u64())
}

fn wait_until(mut is_so: impl FnMut() -> Result<bool, String>) -> Result<(), String> {
    let begun = Instant::now();
    while !is_so()? {
        if begun.elapsed() > PATIENCE {
            return Err("it takes too long".into());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// How long copies of documents that are written at `rate` take to be there.
fn lags(node: &Node, rate: f64, seconds: f64) -> Result<Vec<Duration>, String> {
    let open = |name| Documents::open(node, BUCKET, name, document);
    let (mut source, mut copies) = (open("_default")?, open("copies")?);
    let (sender, written) = std::sync::mpsc::channel::<(u64, Instant)>();
    let watcher = std::thread::spawn(move || {
        let mut lags = Vec::new();
        for (number, since) in written {
            while !copies.holds(number)? {
                if since.elapsed() > PATIENCE {
                    return Err("a copy does not come".to_owned());
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
        // Of what is written at once the last one comes last.
        if due > written && sender.send((first + due - 1, since)).is_err() {
            break;
        }
        written = due;
    }
    drop(sender);
    watcher.join().map_err(|_| "the watcher has panicked".to_owned())?
}
