//! `cargo xtask bench kv`: throughput and tail latency compared with other servers, and the memory per
//! document.

use super::load::{self, Figures, median};
use super::peers::{Peer, Process};
use super::{NODE, ON_FIRST, ON_SECOND, PORT_BASE};
use std::path::Path;
use xtask_setup::node::{self, Node};

/// The duration of the measurement of a cell.
#[derive(Clone, Copy)]
pub struct Effort {
    /// Rounds; the median of the ratios of paired runs is shown.
    pub rounds: usize,
    /// Seconds of each run.
    pub seconds: f64,
}

/// One row: connections, depth, bytes of a value, keys, share of reads in percent.
type Cell = (u32, u32, u32, u32, u32);

/// Connections and depths for 1 KB values, with half reads and then only reads.
const SHAPES: [(u32, u32); 4] = [(16, 64), (16, 16), (16, 1), (1, 1)];
/// Value sizes with connections and depth: the bytes in flight stay below the usual buffers of sockets
/// and servers.
const SIZES: [Cell; 4] = [
    (16, 16, 100, 100_000, 50),
    (16, 16, 1 << 10, 100_000, 50),
    (16, 4, 100 << 10, 2_000, 50),
    (4, 1, 10 << 20, 20, 50),
];
/// Number of documents to measure the memory per document.
const DOCUMENTS: u32 = 1_000_000;
const DOCUMENT_BYTES: u32 = 100;

/// Measures nacre and the peers in turn, and prints a table for each peer.
///
/// # Errors
/// Reports what is missing on nacre's side, or what a server refused.
pub fn run(peer: Peer, effort: Effort) -> Result<(), String> {
    let binary = node::build("release")?;
    let peers = peer.start_all();
    let node = start(&binary)?;
    let by_share = [50, 100].into_iter().flat_map(|reads| {
        SHAPES.map(|(connections, depth)| (connections, depth, 1 << 10, 100_000, reads))
    });
    let cells: Vec<Cell> = by_share.chain(SIZES).collect();
    let mut servers = vec![load::target(&node)];
    servers.extend(peers.iter().map(|peer| peer.target.clone()));
    println!(
        "Server on one processor, client on the other; zipfian keys; median of {} rounds, servers in turn.",
        effort.rounds
    );
    for peer in &peers {
        println!("ratio {}: nacre / {}", peer.name, peer.title);
    }
    header(&peers);
    for cell in cells {
        row(&peers, cell, &measure(&binary, &servers, cell, effort)?);
    }
    drop(peers);
    node.stop()?;
    memory(&binary)
}

fn start(binary: &Path) -> Result<Node, String> {
    let wrapper: Vec<&str> = NODE.iter().chain(&ON_FIRST).copied().collect();
    let node = Node::start(binary, Some(PORT_BASE), &[], &wrapper)?;
    load::create_bucket(&node, "ephemeral", 4096)?;
    Ok(node)
}

/// Measures a run of each server per round.
fn measure(
    binary: &Path,
    servers: &[Vec<String>],
    cell: Cell,
    effort: Effort,
) -> Result<Vec<Vec<Figures>>, String> {
    let (connections, depth, value_bytes, keys, reads) = cell;
    let number = |value: u32| value.to_string();
    let (connections, depth) = (number(connections), number(depth));
    let (value_bytes, keys, reads) = (number(value_bytes), number(keys), number(reads));
    let seconds = effort.seconds.to_string();
    let common = ["--connections", &connections, "--depth", &depth, "--value-bytes", &value_bytes];
    let rest = ["--keys", &keys, "--read-percent", &reads, "--seconds", &seconds, "--no-load"];
    let options: Vec<&str> = common.into_iter().chain(rest).collect();
    for server in servers {
        let fill = ["--value-bytes", &value_bytes, "--keys", &keys, "--seconds", "0"];
        load::measure(binary, &ON_SECOND, server, &fill)?;
    }
    let round = || {
        let runs = servers.iter().map(|server| load::measure(binary, &ON_SECOND, server, &options));
        runs.collect::<Result<Vec<_>, _>>()
    };
    (0..effort.rounds).map(|_| round()).collect()
}

fn header(peers: &[Process]) {
    let mut line =
        format!("{:>8}{:>9}{:>7}{:>12}{:>12}", "conns", "bytes", "reads", "nacre op/s", "p99 us");
    for peer in peers {
        let name = peer.name;
        line +=
            &format!("{:>16}{:>10}{:>8}{:>8}", format!("{name} op/s"), "p99 us", "ratio", "p99");
    }
    println!("{line}");
}

fn row(peers: &[Process], cell: Cell, rounds: &[Vec<Figures>]) {
    let (connections, depth, value_bytes, _, reads) = cell;
    let of = |figure: &dyn Fn(&[Figures]) -> f64| {
        median(rounds.iter().map(|round| figure(round)).collect())
    };
    let mut line = format!(
        "{:>8}{value_bytes:>9}{:>7}{:>12.0}{:>12.0}",
        format!("{connections}x{depth}"),
        format!("{reads} %"),
        of(&|round| round[0].ops),
        of(&|round| round[0].p99)
    );
    for at in 1..=peers.len() {
        line += &format!(
            "{:>16.0}{:>10.0}{:>8.2}{:>8.2}",
            of(&|round| round[at].ops),
            of(&|round| round[at].p99),
            of(&|round| round[0].ops / round[at].ops),
            of(&|round| round[0].p99 / round[at].p99)
        );
    }
    println!("{line}");
}

/// Measures the memory of a document in addition to its value, on servers that have just started.
fn memory(binary: &Path) -> Result<(), String> {
    let cost = |id: u32, target: &[String]| -> Result<f64, String> {
        let (bytes, keys) = (DOCUMENT_BYTES.to_string(), DOCUMENTS.to_string());
        let before = node::memory_bytes(id)?;
        let fill = ["--value-bytes", &bytes, "--keys", &keys, "--seconds", "0"];
        load::measure(binary, &[], target, &fill)?;
        let grown = node::memory_bytes(id)?.saturating_sub(before);
        Ok(grown as f64 / f64::from(DOCUMENTS) - f64::from(DOCUMENT_BYTES))
    };
    println!(
        "memory beyond the value, {DOCUMENTS} documents of {DOCUMENT_BYTES} B with keys of 16 B:"
    );
    let node = start(binary)?;
    println!("  nacre (ephemeral bucket) {:.0} B", cost(node.id(), &load::target(&node))?);
    node.stop()?;
    match Peer::Memcached.start() {
        Ok(peer) => println!("  memcached {:.0} B", cost(peer.id(), &peer.target)?),
        Err(reason) => println!("  left out: {reason}"),
    }
    Ok(())
}
