//! `cargo xtask bench eviction`: more documents than fit into memory.

use super::load::{self, BUCKET};
use super::{Limit, PORT_BASE};
use nacre_conformance::kv::{KvClient, Request};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use xtask_setup::node::{self, Node, PASSWORD, USER};

const QUOTA_MB: u32 = 100;
/// The ratio of the documents' size to the quota.
const TIMES: u32 = 4;
const VALUE_BYTES: u32 = 1024;
const MEMORY: Limit =
    Limit { what: "memory of the bucket, at most", unit: " MiB", max: QUOTA_MB as f64 };
const SAMPLE_EVERY: Duration = Duration::from_millis(20);

const STAT: u8 = 0x10;

/// Loads the documents, and reads them with zipfian and uniform distribution while it monitors
/// memory.
///
/// # Errors
/// Fails when a request fails other than temporarily, or memory exceeds the quota.
pub fn run(seconds: f64) -> Result<(), String> {
    let binary = node::build("release")?;
    let node = Node::start(&binary, Some(PORT_BASE), &[], &[])?;
    load::create_bucket(&node, "couchbase", QUOTA_MB)?;
    let keys = (QUOTA_MB * TIMES * (1 << 20) / VALUE_BYTES).to_string();
    let (bytes, seconds) = (VALUE_BYTES.to_string(), seconds.to_string());
    let target = load::target(&node);
    let watched = Watch::default();
    let outcome = std::thread::scope(|scope| {
        let watch = scope.spawn(|| watched.run(&node));
        let work = || {
            let common = ["--keys", &keys, "--value-bytes", &bytes];
            let fill: Vec<&str> = common.into_iter().chain(["--seconds", "0"]).collect();
            let filled = load::measure(&binary, &[], &target, &fill)?;
            println!(
                "{keys} documents of {bytes} B in {QUOTA_MB} MiB, written at {:.0}/s; {} sent again",
                filled.ops, filled.retries
            );
            for (popularity, reads) in [("zipfian", "100"), ("uniform", "100"), ("uniform", "90")] {
                let run = ["--popularity", popularity, "--read-percent", reads, "--no-load"];
                let more = ["--depth", "1", "--seconds", &seconds];
                let options: Vec<&str> = common.into_iter().chain(run).chain(more).collect();
                let found = load::measure(&binary, &[], &target, &options)?;
                println!(
                    "  {popularity}, {reads} % reads: {:.0}/s, p50 {:.0} us, p99 {:.0} us; {} sent again",
                    found.ops, found.p50, found.p99, found.retries
                );
            }
            Ok::<(), String>(())
        };
        let worked = work();
        watched.over.store(true, Ordering::Relaxed);
        let seen = watch.join().unwrap_or_else(|_| Err("the watch panicked".into()));
        worked.and(seen)
    })?;
    node.stop()?;
    println!(
        "memory of the process, at most: {:.0} MB; {} samples",
        outcome.process_bytes as f64 / 1e6,
        outcome.samples
    );
    MEMORY.check(outcome.bucket_bytes as f64 / f64::from(1 << 20))
}

/// Monitors memory until it is stopped.
#[derive(Default)]
struct Watch {
    over: AtomicBool,
}

#[derive(Default)]
struct Peaks {
    bucket_bytes: u64,
    process_bytes: u64,
    samples: u64,
}

impl Watch {
    fn run(&self, node: &Node) -> Result<Peaks, String> {
        let failed = |error: std::io::Error| format!("statistics: {error}");
        let address = format!("127.0.0.1:{}", node.kv_port());
        let mut client = KvClient::connect(address, USER, PASSWORD, BUCKET).map_err(failed)?;
        let mut peaks = Peaks::default();
        while !self.over.load(Ordering::Relaxed) {
            let used = memory_used(&mut client).map_err(failed)?;
            peaks.bucket_bytes = peaks.bucket_bytes.max(used);
            peaks.process_bytes = peaks.process_bytes.max(node::memory_bytes(node.id())?);
            peaks.samples += 1;
            std::thread::sleep(SAMPLE_EVERY);
        }
        Ok(peaks)
    }
}

/// Returns the statistic `mem_used`, in bytes.
fn memory_used(client: &mut KvClient) -> std::io::Result<u64> {
    client.send(&Request { opcode: STAT, ..Request::default() })?;
    let mut used = None;
    loop {
        let reply = client.receive()?;
        if !reply.is_success() || reply.key.is_empty() {
            return used.ok_or_else(|| std::io::Error::other("there is no mem_used"));
        }
        if reply.key == b"mem_used" {
            used = reply.text().parse().ok();
        }
    }
}
