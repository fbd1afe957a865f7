//! `cargo xtask chaos`: real nodes under faults, with the official Go SDK as their client.
//!
//! Each round has new documents, SDK clients that read and write them, and one fault. Then the cluster is repaired as an
//! operator would, and the clients' observations are checked: no acknowledged durable write is lost, and each document
//! behaved like a single register. Only the gap may vary: the time in which a document could not be read or written.

mod fault;
mod load;

use clap::Args;
use comfy_table::{CellAlignment, Table, presets};
use fault::{Fault, FaultKind, schedule};
use load::{Gap, Load, Sums};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;
use xtask_setup::cluster::{BUCKET, Cluster};
use xtask_setup::node;

/// Documents of a round for each durability level.
const DOCUMENTS: usize = 8;
/// The names of the levels in the load.
const LEVELS: [&str; 4] = ["majority", "persistActive", "persistMajority", "none"];

/// Options of `cargo xtask chaos`.
#[derive(Args, Clone, Debug)]
pub struct Chaos {
    /// Nodes of the cluster
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(3..=5))]
    pub nodes: u8,
    /// Seed of the order of the faults and of the operations
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Number of killed processes
    #[arg(long, default_value_t = 3)]
    pub kills: usize,
    /// Number of paused processes
    #[arg(long, default_value_t = 0)]
    pub pauses: usize,
    /// Number of network partitions of one node, in one direction or both
    #[arg(long, default_value_t = 0)]
    pub partitions: usize,
    /// Number of nodes that leave in a rebalance and rejoin
    #[arg(long, default_value_t = 0)]
    pub rebalances: usize,
    /// Number of full disks
    #[arg(long, default_value_t = 0)]
    pub full_disks: usize,
    /// Seconds without a response after which a node is failed over
    #[arg(long, default_value_t = 1)]
    pub failover: u64,
    /// Build profile of the server
    #[arg(long, default_value = "release")]
    pub profile: String,
    /// A server to run instead of the one of this workspace
    #[arg(long, value_name = "PATH")]
    pub node: Option<PathBuf>,
    /// Folder for the history and for pages that show its errors
    #[arg(long, value_name = "FOLDER")]
    pub keep: Option<PathBuf>,
}

/// Runs a cluster under the faults, and prints the results.
///
/// # Errors
/// Fails when an acknowledged write was lost, a read was wrong, or the cluster did not become complete again.
pub fn run(options: &Chaos) -> Result<(), String> {
    let binary = match &options.node {
        Some(path) => path.clone(),
        None => node::build(&options.profile)?,
    };
    let begun = Instant::now();
    let folder = options.keep.clone().unwrap_or_else(|| std::env::temp_dir().join("nacre-chaos"));
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let small_disks = options.full_disks > 0;
    let mut cluster = Cluster::start(&binary, options.nodes.into(), options.failover, small_disks)?;
    let mut load = Load::start(&folder, &cluster.connection(), BUCKET, options.seed)?;
    for (round, fault) in schedule(options).iter().enumerate() {
        let played = play(&mut cluster, &mut load, round, fault);
        played.map_err(|error| format!("round {round}, {fault}: {error}"))?;
    }
    let sums = load.end()?;
    cluster.stop()?;
    println!("\n{}", table(sums.gaps.as_deref().unwrap_or_default()));
    println!(
        "{} operations in {:.0} s; {} with unknown outcome; {} writes \
         without durability lost",
        sums.operations,
        begun.elapsed().as_secs_f64(),
        sums.unknown,
        sums.lost
    );
    for (error, count) in &sums.errors {
        println!("{count:>8} {error}");
    }
    judge(&sums, &folder)
}

/// Runs one fault under load, and the time after it.
fn play(cluster: &mut Cluster, load: &mut Load, round: usize, fault: &Fault) -> Result<(), String> {
    let keys = LEVELS.iter().flat_map(|level| {
        (0..DOCUMENTS).map(move |document| format!("{level}-{round}-{document}"))
    });
    let keys: Vec<String> = keys.collect();
    load.round(&keys)?;
    let active = cluster.active(&keys)?;
    let leader = cluster.leader()?;
    let victim = fault.victim(leader, &active, cluster.nodes.len());
    let concerned = keys.iter().zip(&active).filter(|(_, node)| **node == victim);
    let concerned: Vec<&str> = concerned.map(|(key, _)| key.as_str()).collect();
    let all = fault.what == FaultKind::Rebalance;
    load.fault(&fault.kind(victim == leader), if all { &[] } else { &concerned })?;
    fault.inject(cluster, victim)?;
    let begun = Instant::now();
    cluster.make_whole(fault.what == FaultKind::FullDisk)?;
    let whole_s = begun.elapsed().as_secs_f64();
    let sums = load.rest()?;
    let gaps = sums.gaps.unwrap_or_default();
    let gap = gaps.iter().map(|gap| {
        let Gap { reads, writes, other_reads, other_writes, .. } = gap;
        format!("{reads:.0}/{writes:.0} (others {other_reads:.0}/{other_writes:.0})")
    });
    println!(
        "{round:>4}: {fault}: node {} of {} documents, gap {} ms, whole {whole_s:.1} s later, \
         {} operations, errors {:?}{}",
        victim + 1,
        concerned.len(),
        gap.collect::<String>(),
        sums.operations,
        sums.errors,
        sums.violations.map(|keys| format!(", VIOLATED: {keys:?}")).unwrap_or_default(),
    );
    Ok(())
}

/// Returns a table of the gaps by kind of fault.
fn table(gaps: &[Gap]) -> Table {
    let mut by_kind: BTreeMap<&str, Vec<&Gap>> = BTreeMap::new();
    for gap in gaps {
        by_kind.entry(&gap.fault).or_default().push(gap);
    }
    let mut table = Table::new();
    table.load_preset(presets::UTF8_HORIZONTAL_ONLY);
    table.set_header(["fault", "times", "gap of", "min ms", "median", "p99", "max"]);
    for (kind, gaps) in by_kind {
        let of = |value: fn(&Gap) -> f64| gaps.iter().map(|gap| value(gap)).collect::<Vec<f64>>();
        for (name, mut values) in [
            ("reads", of(|gap| gap.reads)),
            ("durable writes", of(|gap| gap.writes)),
            ("other reads", of(|gap| gap.other_reads)),
            ("other durable writes", of(|gap| gap.other_writes)),
        ] {
            values.sort_by(f64::total_cmp);
            let at = |share: f64| {
                let place = (values.len() as f64 * share).ceil() as usize;
                format!("{:.0}", values[place.clamp(1, values.len()) - 1])
            };
            let times = gaps.len().to_string();
            table.add_row([kind, &times, name, &at(0.0), &at(0.5), &at(0.99), &at(1.0)]);
        }
    }
    for column in [1, 3, 4, 5, 6] {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

/// Checks all properties.
fn judge(sums: &Sums, folder: &Path) -> Result<(), String> {
    if let Some(keys) = &sums.violations {
        return Err(format!("documents were no registers: {keys:?}; see {}", folder.display()));
    }
    let unexpected = sums.errors.keys().find(|error| error.starts_with("unexpected"));
    unexpected.map_or(Ok(()), |error| Err(format!("the SDK returned an unexpected error: {error}")))
}
