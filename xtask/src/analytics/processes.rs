//! Several processes of analytics that share the documents of a node: one, two and four of them, and one that is killed while it
//! answers.

use super::{AGAIN_WITHIN, BUCKET, PORT_BASE};
use nacre_conformance::http;
use nacre_conformance::kv::KvClient;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use xtask_setup::node::{self, Node, PASSWORD, USER};

/// Documents, and the groups that they are in.
const DOCUMENTS: u64 = 20_000;
const GROUPS: u64 = 5;
const STATEMENT: &str =
    "SELECT d.g, COUNT(*) AS n, SUM(d.n) AS s FROM shared d GROUP BY d.g ORDER BY d.g";
/// The port of the first process.
const PORT: u16 = PORT_BASE + 60;
/// Pause between two questions to a process that is not ready.
const PAUSE: Duration = Duration::from_millis(50);

/// A process, which ends and loses its files when this value is dropped.
struct Process {
    child: Child,
    port: u16,
    folder: PathBuf,
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Runs a query with one, two and four processes, and prints their work. Then kills one in the middle of a query.
///
/// # Errors
/// Reports a wrong answer, or a share of the work that is too large.
pub fn run(program: &Path, profile: &str) -> Result<(), String> {
    let binary = node::build(profile)?;
    let node = Node::start(&binary, Some(PORT_BASE), &[BUCKET], &[])?;
    write(&node).map_err(|error| format!("cannot write documents: {error}"))?;
    for count in [1, 2, 4] {
        let mut processes = start(program, &node, count)?;
        define(&processes)?;
        let answer = ask(PORT, STATEMENT)?;
        check(&answer)?;
        println!("{count} processes:");
        let work = show(&answer, count)?;
        let fair = DOCUMENTS / u64::from(count);
        // Keys are spread by their hash.
        if work.iter().any(|documents| *documents > fair + fair / 5) {
            return Err(format!("{count} processes read {work:?} of {DOCUMENTS} documents"));
        }
        if count > 1 {
            kill(&mut processes)?;
        }
    }
    node.stop()
}

fn write(node: &Node) -> std::io::Result<()> {
    let address = format!("127.0.0.1:{}", node.kv_port());
    let mut client = KvClient::connect(&address, USER, PASSWORD, BUCKET)?;
    for number in 0..DOCUMENTS {
        let json = json!({"n": number, "g": number % GROUPS, "text": "x".repeat(50)});
        client.set(format!("shared-{number}").as_bytes(), json.to_string().as_bytes())?;
    }
    Ok(())
}

fn start(program: &Path, node: &Node, count: u16) -> Result<Vec<Process>, String> {
    let addresses: Vec<String> =
        (0..count).map(|own| format!("127.0.0.1:{}", PORT + own)).collect();
    let mut processes = Vec::new();
    for (own, address) in (0..count).zip(&addresses) {
        let folder =
            std::env::temp_dir().join(format!("nacre-analytics-{}-{own}", std::process::id()));
        let mut command = Command::new(program);
        command
            .args(["--listen", address, "--process", &own.to_string()])
            .args(["--processes", &addresses.join(",")])
            .args(["--rest", &format!("http://127.0.0.1:{}", node.mgmt_port())])
            .args(["--keys", &format!("127.0.0.1:{}", node.kv_port())])
            .args(["--user", USER])
            .arg("--data")
            .arg(&folder)
            .env("NACRE_PASSWORD", PASSWORD)
            .env("NACRE_LOG", "error")
            .stdout(Stdio::null());
        let child = command.spawn();
        let child = child.map_err(|error| format!("{}: {error}", program.display()))?;
        processes.push(Process { child, port: PORT + own, folder });
    }
    Ok(processes)
}

/// Waits until all processes answer, and defines the collection.
fn define(processes: &[Process]) -> Result<(), String> {
    let began = Instant::now();
    for process in processes {
        while let Err(reason) = ask(process.port, "SELECT 1") {
            if began.elapsed() > AGAIN_WITHIN {
                return Err(reason);
            }
            std::thread::sleep(PAUSE);
        }
    }
    ask(PORT, &format!("CREATE ANALYTICS COLLECTION shared ON `{BUCKET}`")).map(drop)
}

/// Runs a statement that must succeed, with all writes before it.
fn ask(port: u16, statement: &str) -> Result<Value, String> {
    let body = json!({"statement": statement, "scan_consistency": "request_plus"}).to_string();
    let address = format!("127.0.0.1:{port}");
    let (path, kind) = ("/analytics/service", "application/json");
    let answer =
        http::request(&address, "POST", path, Some((USER, PASSWORD)), kind, body.as_bytes())
            .map_err(|error| format!("{address}{path}: {error}"))?;
    let json = answer.json().map_err(|error| format!("{statement}: {error}"))?;
    match json["status"] == "success" {
        true => Ok(json),
        false => Err(format!("{statement}: {json}")),
    }
}

/// Compares the groups with those of the documents.
fn check(answer: &Value) -> Result<(), String> {
    let group = |g: u64| {
        let numbers = (0..DOCUMENTS).filter(|number| number % GROUPS == g);
        json!({"g": g, "n": DOCUMENTS / GROUPS, "s": numbers.sum::<u64>()})
    };
    let expected: Vec<Value> = (0..GROUPS).map(group).collect();
    match answer["results"] == json!(expected) {
        true => Ok(()),
        false => Err(format!("{answer} instead of {}", json!(expected))),
    }
}

/// Prints the work of each process, and returns the documents that each has read.
fn show(answer: &Value, count: u16) -> Result<Vec<u64>, String> {
    let metrics = &answer["metrics"];
    if count == 1 {
        println!("  {} documents", metrics["processedObjects"]);
        return Ok(vec![metrics["processedObjects"].as_u64().unwrap_or(u64::MAX)]);
    }
    let work = metrics["processes"].as_array().ok_or_else(|| format!("no work in {metrics}"))?;
    let line = |one: &Value| {
        println!(
            "  process {}, part {}: {} documents, {} bytes, {} rows, asked {} time(s)",
            one["process"],
            one["part"],
            one["documents"],
            one["bytes"],
            one["rows"],
            one["attempts"]
        );
        one["documents"].as_u64().unwrap_or(u64::MAX)
    };
    Ok(work.iter().map(line).collect())
}

/// Kills the second process while a query waits for its answer: the following one must answer for it.
fn kill(processes: &mut [Process]) -> Result<(), String> {
    let [_, killed, ..] = processes else { return Err("there is one process".to_owned()) };
    let id = i32::try_from(killed.child.id()).map_err(|error| error.to_string())?;
    // The process is stopped, so that it certainly has the request and not answered when it is killed.
    // SAFETY: kill takes only numbers; the process is a child that was not waited for.
    unsafe { libc::kill(id, libc::SIGSTOP) };
    let answer = std::thread::scope(|threads| {
        let asking = threads.spawn(|| ask(PORT, STATEMENT));
        let waited = wait_until_asked();
        let ended = killed.child.kill().and_then(|()| killed.child.wait());
        let answer = asking.join().unwrap_or_else(|_| Err("a thread has panicked".to_owned()));
        waited?;
        ended.map_err(|error| format!("the process cannot be killed: {error}"))?;
        answer
    })?;
    check(&answer)?;
    println!("one killed in the middle:");
    show(&answer, u16::MAX)?;
    let work = answer["metrics"]["processes"].as_array().into_iter().flatten();
    match work.filter(|one| one["attempts"] == 2).count() {
        1 => Ok(()),
        _ => Err(format!("no process was asked again: {answer}")),
    }
}

/// Waits until the first process runs a request.
fn wait_until_asked() -> Result<(), String> {
    let (address, path) = (format!("127.0.0.1:{PORT}"), "/analytics/admin/active_requests");
    let began = Instant::now();
    loop {
        let answer = http::request(&address, "GET", path, Some((USER, PASSWORD)), "", b"")
            .map_err(|error| format!("{address}{path}: {error}"))?;
        let running = answer.json().map_err(|error| error.to_string())?;
        if running.as_array().is_some_and(|running| !running.is_empty()) {
            return Ok(());
        }
        if began.elapsed() > AGAIN_WITHIN {
            return Err("the query does not run".to_owned());
        }
        std::thread::sleep(PAUSE);
    }
}
