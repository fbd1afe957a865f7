//! `cargo xtask bench rebalance`: the latency of requests while nodes leave and rejoin.
//!
//! ```text
//! Cluster (as in `chaos`) ◄── conformance/evaluation: requests at a steady rate, regardless of pending ones
//!    ▲                                  │ phases: still, moving, moving, … ─► PhaseLatencies
//! a node leaves in a rebalance, and rejoins
//! ```

use super::Limit;
use super::application::Program;
use comfy_table::{CellAlignment, Table, presets};
use serde::Deserialize;
use std::path::Path;
use std::time::Duration;
use xtask_setup::cluster::Cluster;
use xtask_setup::node;

/// Number of nodes.
const NODES: usize = 3;
/// The duration of the measurement without a rebalance.
const STILL: Duration = Duration::from_secs(5);
/// Long enough that no node is failed over meanwhile.
const FAILOVER_S: u64 = 30;
const LIMIT: Limit =
    Limit { what: "longest wait for a document in a rebalance, p99", unit: " ms", max: 50.0 };

/// Latencies of the requests of one phase, in milliseconds from the scheduled start of each.
#[derive(Deserialize)]
struct PhaseLatencies {
    operations: u64,
    failed: u64,
    p50: f64,
    p99: f64,
    /// The longest latency of each document.
    longest: Vec<f64>,
}

/// Lets nodes leave and rejoin, `rounds` times each, while `rate` requests start per second.
///
/// # Errors
/// Fails when a request fails, requests wait for too long, or a node misbehaves.
pub fn run(rounds: usize, rate: u32, node: Option<&Path>) -> Result<(), String> {
    let binary = node.map_or_else(|| node::build("release"), |path| Ok(path.into()))?;
    let program = Program::build()?;
    let mut cluster = Cluster::start(&binary, NODES, FAILOVER_S, false)?;
    let mut application = program.start(&cluster, &["-rate", &rate.to_string(), "waits"])?;
    application.wait_until_begun()?;
    std::thread::sleep(STILL);
    for round in 0..rounds * NODES {
        application.next_phase()?;
        let (node, by) = (round % NODES, (round + 1) % NODES);
        cluster.remove(by, node)?;
        cluster.add(by, node)?;
        cluster.make_whole(false)?;
    }
    let waits: Vec<PhaseLatencies> = application.answer()?;
    cluster.stop()?;
    println!("{}", table(&waits));
    let moving = waits.iter().skip(1);
    let failed: u64 = moving.clone().map(|waits| waits.failed).sum();
    if failed > 0 {
        return Err(format!("{failed} requests failed"));
    }
    let [_, p99, _] = shares(moving.flat_map(|waits| waits.longest.clone()).collect());
    LIMIT.check(p99)
}

/// Returns the median, the 99th percentile and the maximum.
fn shares(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    let at = |share: f64| values.get((values.len() as f64 * share) as usize).copied();
    [at(0.5), at(0.99), values.last().copied()].map(Option::unwrap_or_default)
}

fn table(phases: &[PhaseLatencies]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::UTF8_HORIZONTAL_ONLY);
    let longest = ["longest for a document, p50", "p99", "most"];
    table.set_header(["phase", "requests", "failed", "p50, ms", "p99"].iter().chain(&longest));
    for (place, waits) in phases.iter().enumerate() {
        let name = if place == 0 { "still".into() } else { format!("rebalance {place}") };
        let counts = [waits.operations, waits.failed].map(|count| count.to_string());
        let times = [waits.p50, waits.p99].into_iter().chain(shares(waits.longest.clone()));
        let times = times.map(|ms| format!("{ms:.1}"));
        table.add_row([name].into_iter().chain(counts).chain(times));
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}
