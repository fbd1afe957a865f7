//! `cargo xtask bench warmup`: stops and starts a full node.

use super::load::{self, BUCKET};
use super::{Limit, PORT_BASE};
use nacre_conformance::kv::KvClient;
use std::time::{Duration, Instant};
use xtask_setup::node::{self, Node, PASSWORD, USER};

const QUOTA_MB: u32 = 2048;
const LAST_DOCUMENT: Limit = Limit { what: "last document readable after", unit: " s", max: 10.0 };
const MEMORY: Limit =
    Limit { what: "memory of the bucket", unit: " MB", max: QUOTA_MB as f64 * 1.048_576 };
const PATIENCE: Duration = Duration::from_secs(300);

/// Loads `documents` of 1 KB, stops and starts the node, and reads a document of every vBucket.
///
/// # Errors
/// Fails when documents are missing, or a limit is passed.
pub fn run(documents: u32) -> Result<(), String> {
    let binary = node::build("release")?;
    let mut node = Node::start(&binary, Some(PORT_BASE), &[], &[])?;
    load::create_bucket(&node, "couchbase", QUOTA_MB)?;
    let keys = documents.to_string();
    let fill = ["--keys", &keys, "--value-bytes", "1024", "--seconds", "0"];
    let filled = load::measure(&binary, &[], &load::target(&node), &fill)?;
    println!("{documents} documents of 1 KB, written at {:.0}/s", filled.ops);
    let begun = Instant::now();
    node.halt()?;
    println!("stopped, all on disk: {:.2} s", begun.elapsed().as_secs_f64());

    let begun = Instant::now();
    node.respawn()?;
    node.wait_for_key_value(begun)?;
    println!("first answer after: {:.2} s", begun.elapsed().as_secs_f64());
    let mut client = retry_until_ready(begun, "the bucket", || {
        let address = format!("127.0.0.1:{}", node.kv_port());
        KvClient::connect(address, USER, PASSWORD, BUCKET).ok()
    })?;
    let mut seen = vec![false; usize::from(client.vbucket_count())];
    for rank in 0..documents {
        let key = format!("key_{rank:012}");
        let vbucket = &mut seen[usize::from(client.vbid(key.as_bytes()))];
        if std::mem::replace(vbucket, true) {
            continue;
        }
        retry_until_ready(begun, &key, || {
            client.get(key.as_bytes()).ok().filter(|reply| reply.is_success())
        })?;
        if rank == 0 {
            println!("first document readable after: {:.2} s", begun.elapsed().as_secs_f64());
        }
    }
    let last = LAST_DOCUMENT.check(begun.elapsed().as_secs_f64());
    let answer = node.rest("GET", &format!("/pools/default/buckets/{BUCKET}"), &[])?;
    let stats = answer.json().map_err(|error| error.to_string())?["basicStats"].clone();
    let found = stats["itemCount"].as_u64().unwrap_or(0);
    if found != u64::from(documents) {
        return Err(format!("{found} of {documents} documents are there"));
    }
    println!("memory of the process: {:.0} MB", node::memory_bytes(node.id())? as f64 / 1e6);
    let memory = MEMORY.check(stats["memUsed"].as_f64().unwrap_or(f64::INFINITY) / 1e6);
    node.stop()?;
    last.and(memory)
}

fn retry_until_ready<T>(
    begun: Instant,
    what: &str,
    mut ask: impl FnMut() -> Option<T>,
) -> Result<T, String> {
    loop {
        if let Some(answer) = ask() {
            return Ok(answer);
        }
        if begun.elapsed() > PATIENCE {
            return Err(format!("{what} is not there after {} s", PATIENCE.as_secs()));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}
