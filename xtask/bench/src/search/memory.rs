//! `cargo xtask bench search-memory`: many documents in one index, with 256 MiB for plugins.

use super::{Corpus, Server, folder_bytes, table, wait_for};
use crate::load::{BUCKET, create_bucket};
use crate::{Limit, PORT_BASE};
use nacre_conformance::kv::{KvClient, Request};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use serde_json::json;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use xtask_setup::node::{self, Node, PASSWORD, USER};

const SIZE: Limit = Limit { what: "index, against the text of its documents", unit: "x", max: 0.6 };
const MEMORY: Limit = Limit { what: "memory of the plugins of the node", unit: " MiB", max: 256.0 };

/// The memory of the node: an eighth is for the process and 1,536 MiB for the bucket; plugins get half of the rest, 256 MiB.
const NODE: [&str; 2] = ["env", "NACRE_MEMORY=2341MiB"];
const QUOTA_MB: u32 = 1536;
/// Bytes of a document's text.
const TEXT_BYTES: usize = 1000;
/// Number of consecutive words taken from a document of the corpus.
const RUN: usize = 8;
/// Requests sent before their replies are read.
const PIPELINE: usize = 64;
/// Time limit of the index per document.
const PATIENCE: Duration = Duration::from_millis(20);
const INDEX: &str = "large";

/// Indexes the given number of documents of 1 KB.
///
/// # Errors
/// Reports what is missing, or which limit was exceeded.
pub fn run(documents: u64, binary: Option<&Path>) -> Result<(), String> {
    let binary = crate::binary(binary, "release")?;
    let corpus = Corpus::load()?;
    let node = Node::start(&binary, Some(PORT_BASE), &[], &NODE)?;
    create_bucket(&node, "couchbase", QUOTA_MB)?;
    let text_bytes = write(&node, &corpus, documents)?;
    let server = Server {
        address: format!("127.0.0.1:{}", node.mgmt_port() + 3),
        path: format!("/api/index/{INDEX}/query"),
        login: Some((USER, PASSWORD)),
        id: node.id(),
    };
    let text = json!({"fields": [{"type": "text", "index": true}]});
    let number = json!({"fields": [{"type": "number", "index": true}]});
    let mapping = json!({"default_mapping": {"dynamic": false, "properties": {
        "title": text, "body": text, "number": number,
    }}});
    let body = json!({
        "type": "fulltext-index", "sourceType": "couchbase", "sourceName": BUCKET,
        "params": {"mapping": mapping},
    });
    let (before, begun) = (server.cpu()?, Instant::now());
    let (is_over, most) = (AtomicBool::new(false), AtomicU64::new(0));
    let indexed = std::thread::scope(|scope| {
        let watch = scope.spawn(|| -> Result<(), String> {
            while !is_over.load(Ordering::Relaxed) {
                most.fetch_max(plugin_memory(&node)?, Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(500));
            }
            Ok(())
        });
        let indexed = server
            .request("PUT", &format!("/api/index/{INDEX}"), body.to_string().as_bytes())
            .and_then(|_| {
                let patience = PATIENCE * u32::try_from(documents).unwrap_or(u32::MAX);
                let path = format!("/api/index/{INDEX}/count");
                wait_for(&server, &path, patience, &|answer| answer["count"] == documents)
            })
            .and_then(|()| server.cpu_when_quiet());
        let queried = indexed.and_then(|cpu| ask(&server, &corpus).map(|p50| (cpu, p50)));
        is_over.store(true, Ordering::Relaxed);
        let watched = watch.join().unwrap_or_else(|_| Err("the watcher panicked".into()));
        watched.and(queried)
    });
    let (cpu, p50) = indexed?;
    let wall = begun.elapsed().as_secs_f64();
    let cpu = (cpu - before).as_secs_f64();
    let index_bytes = folder_bytes(&node.data_dir().join("states"))?;
    let memory = most.load(Ordering::Relaxed);
    let resident = node::memory_bytes(node.id())?;
    let mut table = table(&["", "found"]);
    for (what, found) in [
        ("documents", documents.to_string()),
        ("their text, MB", format!("{:.1}", text_bytes as f64 / 1e6)),
        ("index, MB", format!("{:.1}", index_bytes as f64 / 1e6)),
        ("indexing, CPU s", format!("{cpu:.1}")),
        ("indexing and queries, wall s", format!("{wall:.1}")),
        ("memory of plugins at most, MiB", format!("{:.1}", memory as f64 / f64::from(1 << 20))),
        (
            "memory of the node at the end, MiB",
            format!("{:.1}", resident as f64 / f64::from(1 << 20)),
        ),
        ("query for a word, p50 us", format!("{p50:.0}")),
    ] {
        table.add_row([what.to_owned(), found]);
    }
    println!("{table}");
    node.stop()?;
    let size = SIZE.check(index_bytes as f64 / text_bytes as f64);
    size.and(MEMORY.check(memory as f64 / f64::from(1 << 20)))
}

/// Returns the linear memory of the instances of all deployments.
fn plugin_memory(node: &Node) -> Result<u64, String> {
    let answer = node.rest("GET", "/metrics", &[])?.text();
    let of_plugins = answer.lines().filter(|line| line.starts_with("nacre_plugin_memory"));
    let values = of_plugins.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
    Ok(values.sum::<f64>() as u64)
}

/// Writes documents made of words of the corpus; returns the bytes of their texts.
fn write(node: &Node, corpus: &Corpus, documents: u64) -> Result<u64, String> {
    let words: Vec<&str> =
        corpus.bodies().iter().flat_map(|body| body.split_whitespace()).collect();
    let starts: Vec<usize> = (0..words.len() - RUN).collect();
    let mut random = StdRng::seed_from_u64(7);
    let failed = |error: std::io::Error| error.to_string();
    let address = ("127.0.0.1", node.kv_port());
    let mut client = KvClient::connect(address, USER, PASSWORD, BUCKET).map_err(failed)?;
    let collection = client.collection_id("_default._default").map_err(failed)?;
    let mut text_bytes = 0;
    let mut text = |bytes: usize| {
        let mut text = String::with_capacity(bytes + 100);
        while text.len() < bytes {
            let start = *starts.choose(&mut random).expect("the corpus has words");
            let run = random.random_range(1..=RUN);
            text.push_str(&words[start..start + run].join(" "));
            text.push(' ');
        }
        text_bytes += text.len() as u64;
        text
    };
    let mut numbers = 0..documents;
    loop {
        let write = |number: u64| {
            let (title, body) = (text(40), text(TEXT_BYTES - 40));
            let value = json!({"title": title, "body": body, "number": number}).to_string();
            let key = format!("document{number}");
            let vbid = client.vbid(key.as_bytes());
            let key = client.wire_key(collection, key.as_bytes());
            let value = value.into_bytes();
            Request { opcode: 1, vbid, key, extras: vec![0; 8], value, ..Request::default() }
        };
        let requests: Vec<Request> = numbers.by_ref().take(PIPELINE).map(write).collect();
        if requests.is_empty() {
            return Ok(text_bytes);
        }
        super::send(&mut client, &requests)?;
    }
}

/// Searches for words; returns the median microseconds of a query.
fn ask(server: &Server, corpus: &Corpus) -> Result<f64, String> {
    let mut connection = server.connect()?;
    let mut random = StdRng::seed_from_u64(8);
    let bodies = corpus.bodies();
    let mut latencies = Vec::new();
    for _ in 0..100 {
        let body = bodies.choose(&mut random).expect("the corpus has documents");
        let word = body.split_whitespace().max_by_key(|word| word.len()).unwrap_or_default();
        let request = json!({"query": {"match": word, "field": "body"}}).to_string();
        let sent = Instant::now();
        connection.ask(request.as_bytes())?;
        latencies.push(sent.elapsed().as_secs_f64() * 1e6);
    }
    Ok(crate::load::median(latencies))
}
