//! `cargo xtask bench vectors`: 52,000 vectors of real texts in nacre, behind HTTP, and in faiss, hnswlib and usearch, in a
//! process: the recall of each, with and without filters, and its cost.
//!
//! The texts are passages of the corpus of `bench search`; the vectors come from the model in the Python package `wordllama`.

use super::load::{BUCKET, create_bucket, median};
use super::search::{Connection, Corpus, PATIENCE, Server, send, table, wait_for};
use super::{Goal, ON_FIRST, PORT_BASE};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use nacre_conformance::kv::{KvClient, Request};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;
use std::time::Instant;
use xtask_setup::command::{output, run as run_command, workspace, wrapped};
use xtask_setup::node::{Node, PASSWORD, USER};
use xtask_setup::tools;

const RECALL: Goal = Goal { what: "recall@10 at the default", unit: "", min: 0.98 };
const FILTERED: Goal =
    Goal { what: "recall@10 with the filter that loses most", unit: "", min: 0.95 };

const PACKAGES: [&str; 4] =
    ["wordllama==0.4.0.post1", "faiss-cpu==1.15.1", "hnswlib==0.8.0", "usearch==2.26.6"];
const DIMS: usize = 256;
const NEAREST: usize = 10;
const QUOTA_MB: u32 = 1024;
const INDEX: &str = "vectors";
/// Requests sent before their replies are read.
const PIPELINE: usize = 64;
/// Vectors of 1,000 that match a filter; 1,000 means a search without a filter.
const FILTERS: [u32; 5] = [1000, 500, 100, 10, 1];

/// Measures a node and the libraries. Sends nacre's queries `rounds` times.
///
/// # Errors
/// Reports what is missing, or which goal was missed.
pub fn run(rounds: usize, binary: Option<&Path>) -> Result<(), String> {
    let binary = super::binary(binary, "release")?;
    let python = tools::python("vectors-1", &PACKAGES)?;
    let script = workspace().join("conformance/search/vectors.py");
    let folder = tools::dir()?.join("vectors-1").join("wordllama-256");
    tools::once(&folder, || {
        let mut make = Command::new(&python);
        make.arg(&script).arg("make").arg(&Corpus::load()?.path).arg(&folder);
        run_command(&mut make, "make vectors of texts")
    })?;
    let data = Data::read(&folder)?;
    println!(
        "{} vectors of {DIMS} numbers, {} queries for the nearest {NEAREST} by cosine; a processor for each server",
        data.vectors.len(),
        data.queries.len()
    );
    let mut table = table(&[
        "engine",
        "build, CPU s",
        "share that matches",
        "recall@10",
        "CPU us",
        "p50 us",
        "queries/s",
    ]);
    let mut rows = nacre(&binary, &data, rounds)?;
    let recalls: Vec<f64> = rows.iter().map(|row| row.recall).collect();
    let mut peers = wrapped(&python, &ON_FIRST);
    peers.arg(&script).arg("peers").arg(&folder);
    for line in output(&mut peers, "measure the libraries")?.lines() {
        rows.extend(Row::of_library(line)?);
    }
    for row in rows {
        table.add_row(row.cells());
    }
    println!("{table}");
    let worst = recalls[1..].iter().copied().fold(1.0, f64::min);
    RECALL.check(recalls[0]).and(FILTERED.check(worst))
}

/// The measurements of an engine with one filter.
struct Row {
    engine: String,
    /// Seconds of processor time.
    build: f64,
    /// Number of matching vectors of 1,000.
    kept: u32,
    recall: f64,
    /// Microseconds of processor time per query.
    cpu: f64,
    /// Median microseconds, if queries go over HTTP.
    p50: Option<f64>,
    /// Queries per second of one client.
    rate: f64,
}

impl Row {
    fn of_library(line: &str) -> Result<Vec<Row>, String> {
        let figures: Value =
            serde_json::from_str(line).map_err(|error| format!("{line}: {error}"))?;
        let number = |value: &Value| value.as_f64().unwrap_or(f64::NAN);
        let rows = FILTERS.into_iter().filter_map(|kept| {
            let found = figures.get(kept.to_string())?;
            let cpu = number(&found["cpu_us"]);
            Some(Row {
                engine: figures["name"].as_str().unwrap_or_default().to_owned(),
                build: number(&figures["build_cpu_s"]),
                kept,
                recall: number(&found["recall"]),
                cpu,
                p50: None,
                rate: 1e6 / cpu,
            })
        });
        Ok(rows.collect())
    }

    fn cells(&self) -> [String; 7] {
        [
            self.engine.clone(),
            format!("{:.1}", self.build),
            format!("{} %", f64::from(self.kept) / 10.0),
            format!("{:.3}", self.recall),
            format!("{:.0}", self.cpu),
            self.p50.map_or("-".into(), |p50| format!("{p50:.0}")),
            format!("{:.0}", self.rate),
        ]
    }
}

/// The vectors, and the exact nearest neighbours.
struct Data {
    vectors: Vec<Vec<u8>>,
    queries: Vec<Vec<f32>>,
    /// The numbers of the nearest vectors of each query, by filter.
    exact: BTreeMap<String, Vec<BTreeSet<u64>>>,
}

impl Data {
    fn read(folder: &Path) -> Result<Data, String> {
        let read = |name: &str| {
            let path = folder.join(name);
            std::fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))
        };
        let rows = |bytes: Vec<u8>| -> Vec<Vec<u8>> {
            bytes.chunks_exact(4 * DIMS).map(<[u8]>::to_vec).collect()
        };
        let numbers = |row: &Vec<u8>| -> Vec<f32> {
            row.chunks_exact(4)
                .map(|bytes| f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
                .collect()
        };
        Ok(Data {
            vectors: rows(read("vectors.f32")?),
            queries: rows(read("queries.f32")?).iter().map(numbers).collect(),
            exact: serde_json::from_slice(&read("exact.json")?)
                .map_err(|error| format!("exact.json: {error}"))?,
        })
    }
}

fn nacre(binary: &Path, data: &Data, rounds: usize) -> Result<Vec<Row>, String> {
    let node = Node::start(binary, Some(PORT_BASE), &[], &ON_FIRST)?;
    create_bucket(&node, "couchbase", QUOTA_MB)?;
    write(&node, data)?;
    let server = Server {
        address: format!("127.0.0.1:{}", node.mgmt_port() + 3),
        path: format!("/api/index/{INDEX}/query"),
        login: Some((USER, PASSWORD)),
        id: node.id(),
    };
    let before = server.cpu_when_quiet()?;
    let field =
        json!({"type": "vector_base64", "dims": DIMS, "similarity": "cosine", "index": true});
    let number = json!({"type": "number", "index": true});
    let mapping = json!({"default_mapping": {"dynamic": false, "properties": {
        "v": {"fields": [field]}, "n": {"fields": [number]},
    }}});
    let body = json!({
        "type": "fulltext-index", "sourceType": "couchbase", "sourceName": BUCKET,
        "params": {"mapping": mapping},
    });
    server.request("PUT", &format!("/api/index/{INDEX}"), body.to_string().as_bytes())?;
    let count = data.vectors.len() as u64;
    wait_for(&server, &format!("/api/index/{INDEX}/count"), PATIENCE, &|answer| {
        answer["count"].as_u64() == Some(count)
    })?;
    let build = (server.cpu_when_quiet()? - before).as_secs_f64();
    let mut connection = server.connect()?;
    let rows = FILTERS.into_iter().map(|kept| {
        let (recall, asked) = ask(&server, &mut connection, data, kept, rounds)?;
        let engine = "nacre, over HTTP".to_owned();
        let [cpu, p50, rate] = asked;
        Ok(Row { engine, build, kept, recall, cpu, p50: Some(p50), rate })
    });
    let rows = rows.collect();
    node.stop()?;
    rows
}

fn write(node: &Node, data: &Data) -> Result<(), String> {
    let failed = |error: std::io::Error| error.to_string();
    let address = ("127.0.0.1", node.kv_port());
    let mut client = KvClient::connect(address, USER, PASSWORD, BUCKET).map_err(failed)?;
    let collection = client.collection_id("_default._default").map_err(failed)?;
    for (part, vectors) in data.vectors.chunks(PIPELINE).enumerate() {
        let write = |(at, vector): (usize, &Vec<u8>)| {
            let number = part * PIPELINE + at;
            let key = number.to_string();
            let vbid = client.vbid(key.as_bytes());
            let key = client.wire_key(collection, key.as_bytes());
            let value = json!({"v": STANDARD.encode(vector), "n": number % 1000});
            let value = value.to_string().into_bytes();
            Request { opcode: 1, vbid, key, extras: vec![0; 8], value, ..Request::default() }
        };
        let requests: Vec<Request> = vectors.iter().enumerate().map(write).collect();
        send(&mut client, &requests)?;
    }
    Ok(())
}

/// Returns the recall and, per query, the microseconds of processor time, the median latency, and the queries per second.
fn ask(
    server: &Server,
    connection: &mut Connection,
    data: &Data,
    kept: u32,
    rounds: usize,
) -> Result<(f64, [f64; 3]), String> {
    let exact = data.exact.get(&kept.to_string()).ok_or("exact.json lacks a filter")?;
    let request = |query: &Vec<f32>| {
        let mut knn = json!({"field": "v", "vector": query, "k": NEAREST});
        if kept < 1000 {
            knn["filter"] = json!({"field": "n", "min": 0, "max": kept});
        }
        json!({"query": {"match_none": {}}, "knn": [knn], "size": NEAREST}).to_string()
    };
    let bodies: Vec<String> = data.queries.iter().map(request).collect();
    let (mut hits, mut wanted_count) = (0, 0);
    for (body, wanted) in bodies.iter().zip(exact) {
        let answer = connection.ask(body.as_bytes())?;
        let answer: Value = serde_json::from_slice(answer).map_err(|error| error.to_string())?;
        let found = answer["hits"].as_array().into_iter().flatten();
        let found = found.filter_map(|hit| hit["id"].as_str()?.parse().ok());
        hits += found.filter(|id: &u64| wanted.contains(id)).count();
        wanted_count += wanted.len();
    }
    let (before, begun) = (server.cpu()?, Instant::now());
    let mut latencies = Vec::new();
    for _ in 0..rounds {
        for body in &bodies {
            let sent = Instant::now();
            connection.ask(body.as_bytes())?;
            latencies.push(sent.elapsed().as_secs_f64() * 1e6);
        }
    }
    let count = latencies.len() as f64;
    let rate = count / begun.elapsed().as_secs_f64();
    let cpu = (server.cpu()? - before).as_secs_f64() * 1e6 / count;
    Ok((hits as f64 / wanted_count as f64, [cpu, median(latencies), rate]))
}
