//! `cargo xtask bench patterns`: the performance claims of the dissertation about scalability patterns, as lower bounds of
//! ratios.
//!
//! ```text
//! Cluster of 4, then of 8 nodes ◄── nacre bench patterns ──► Run by workload and clients ──► floors B01 to B11
//! two clusters, one behind a link of 70 ms ◄──┘
//! ```
//!
//! The ratios are of runs in the same minute on the same machine. Each closed loop is checked as well (B11): each active client
//! has one transaction in flight. Source: C. H. Costa, "Scalability Patterns for Distributed NoSQL Databases", chapter 4.

use super::load::{BUCKET, Row, figure, median, rows};
use super::{Goal, Limit, PORT_BASE};
use clap::ValueEnum;
use nacre_conformance::slow_link::SlowLink;
use std::path::{Path, PathBuf};
use std::time::Duration;
use xtask_setup::node::{Node, PASSWORD, USER};

/// Number of ports of a node.
const PORTS: u16 = 20;
const QUOTA_MB: &str = "300";
/// One-way delay between the clusters: half of the round trip to the other continent in the dissertation.
const ONE_WAY: Duration = Duration::from_millis(70);
/// Clients of the largest comment runs.
const MANY: usize = 100;

/// How a node is built.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// As for users
    Release,
    /// As for tests: ratios are those of a slow node
    Dev,
}

impl Profile {
    /// Returns its name for Cargo.
    pub fn name(self) -> &'static str {
        match self {
            Profile::Release => "release",
            Profile::Dev => "dev",
        }
    }
}

/// The amount of work to measure.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// True for the sizes of the dissertation.
    pub is_long: bool,
    /// Numbers of nodes for the first and the second measurements.
    pub nodes: [usize; 2],
    /// The build profile of the node.
    pub profile: &'static str,
}

impl Effort {
    fn of<T>(self, short: T, long: T) -> T {
        if self.is_long { long } else { short }
    }
}

/// One run of a workload.
#[derive(Clone, Debug)]
struct Run {
    threads: usize,
    throughput: f64,
    latency_us: f64,
    in_flight: f64,
}

/// A cluster, and the runs against it.
struct Cluster {
    binary: PathBuf,
    nodes: Vec<Node>,
    first_port: u16,
    /// Deviation of the worst closed loop from its number of clients.
    worst_loop: f64,
}

impl Cluster {
    fn start(binary: &Path, first_port: u16, count: usize) -> Result<Cluster, String> {
        let mut cluster =
            Cluster { binary: binary.to_owned(), nodes: Vec::new(), first_port, worst_loop: 0.0 };
        cluster.grow(count)?;
        let form = [
            ("name", BUCKET),
            ("ramQuotaMB", QUOTA_MB),
            ("replicaNumber", "0"),
            ("numVBuckets", "128"),
            ("flushEnabled", "1"),
        ];
        let made = cluster.nodes[0].rest("POST", "/pools/default/buckets", &form)?;
        match made.status {
            202 => Ok(cluster),
            _ => Err(format!("cannot create the bucket: {}", made.text())),
        }
    }

    /// Adds nodes until there are `count`, and rebalances.
    fn grow(&mut self, count: usize) -> Result<(), String> {
        while self.nodes.len() < count {
            let port = self.first_port + self.nodes.len() as u16 * PORTS;
            let node = Node::start(&self.binary, Some(port), &[], &[])?;
            if let Some(first) = self.nodes.first() {
                first.cluster(&self.binary, &["add", &node.address()])?;
            }
            self.nodes.push(node);
        }
        self.nodes[0].cluster(&self.binary, &["rebalance"])
    }

    /// Measures a workload with each number of clients; returns the runs in order.
    fn measure(
        &mut self,
        workload: &str,
        threads: &[usize],
        options: &[&str],
    ) -> Result<Vec<Run>, String> {
        let server = format!("http://{}", self.nodes[0].address());
        let clients: Vec<String> = threads.iter().map(usize::to_string).collect();
        let clients = clients.join(",");
        let common = [workload, "-c", &server, "-u", USER, "-p", PASSWORD, "--bucket", BUCKET];
        let options: Vec<String> = common
            .iter()
            .chain(&["--threads", &clients])
            .chain(options)
            .map(|option| (*option).to_owned())
            .collect();
        let found = rows(&self.binary, &[], "patterns", &options)?;
        let found: Vec<Run> = found
            .iter()
            .filter(|row| row.get("workload").is_some_and(|name| name == workload))
            .map(run_of)
            .collect::<Result<_, String>>()?;
        for run in &found {
            println!(
                "  {workload:<26}{:>5} clients{:>12.1}/s{:>12.3} ms",
                run.threads,
                run.throughput,
                run.latency_us / 1000.0
            );
            let deviation = (run.in_flight / run.threads as f64 - 1.0).abs();
            self.worst_loop = self.worst_loop.max(deviation);
        }
        Ok(found)
    }
}

fn run_of(row: &Row) -> Result<Run, String> {
    if row.get("transaction").is_some_and(|name| name.ends_with("-FAILED")) {
        return Err(format!("transactions have failed: {row:?}"));
    }
    Ok(Run {
        threads: figure(row, "threads")? as usize,
        throughput: figure(row, "ops_per_s")?,
        latency_us: figure(row, "avg_us")?,
        in_flight: figure(row, "in_flight")?,
    })
}

/// Returns the median ratio of the throughputs of two workloads with the same number of clients.
fn throughput_ratio(one: &[Run], other: &[Run]) -> f64 {
    median(one.iter().zip(other).map(|(one, other)| one.throughput / other.throughput).collect())
}

fn latency_ratio(one: &[Run], other: &[Run]) -> f64 {
    median(one.iter().zip(other).map(|(one, other)| one.latency_us / other.latency_us).collect())
}

fn best(runs: &[Run]) -> f64 {
    runs.iter().map(|run| run.throughput).fold(0.0, f64::max)
}

/// Prints each floor with the measured ratio, and stores the first missed one.
#[derive(Default)]
struct Floors(Option<String>);

impl Floors {
    fn keep(&mut self, outcome: Result<(), String>) {
        if let Err(reason) = outcome {
            self.0.get_or_insert(reason);
        }
    }

    fn at_least(&mut self, what: &'static str, min: f64, found: f64) {
        self.keep(Goal { what, unit: "x", min }.check(found));
    }

    fn at_most(&mut self, what: &'static str, max: f64, found: f64) {
        self.keep(Limit { what, unit: "x", max }.check(found));
    }
}

/// Measures all patterns.
///
/// # Errors
/// Reports a missing tool, a refusal of a node, or the first missed floor.
pub fn run(effort: Effort, named: Option<&Path>) -> Result<(), String> {
    let binary = super::binary(named, effort.profile)?;
    let [few, many] = effort.nodes;
    println!(
        "nodes {few} and {many}, replicas 0, durability none, scan consistency not_bounded, {} sizes, {} processors, profile {}",
        effort.of("short", "the dissertation's"),
        std::thread::available_parallelism().map_or(1, usize::from),
        effort.profile
    );
    let mut floors = Floors::default();
    keys(&binary, effort, &mut floors)?;
    let mut cluster = Cluster::start(&binary, PORT_BASE, few)?;
    comments(&mut cluster, effort, &mut floors)?;
    feeds(&mut cluster, effort, &mut floors)?;
    lookups(&mut cluster, effort, &mut floors)?;
    floors.keep(
        Limit {
            what: "B11: worst deviation of a closed loop from its clients",
            unit: "",
            max: 0.1,
        }
        .check(cluster.worst_loop),
    );
    floors.0.map_or(Ok(()), Err)
}

/// B01: numbers of a near or distant counter, and UUIDs.
fn keys(binary: &Path, effort: Effort, floors: &mut Floors) -> Result<(), String> {
    println!("keys: two clusters of one node, 70 ms each way to the second one");
    let mut here = Cluster::start(binary, PORT_BASE, 1)?;
    let there = Cluster::start(binary, PORT_BASE + PORTS, 1)?;
    let link = SlowLink::open(format!("127.0.0.1:{}", there.nodes[0].kv_port()), ONE_WAY)
        .map_err(|error| format!("cannot listen: {error}"))?;
    let nodes =
        [here.nodes[0].address(), there.nodes[0].address()].map(|node| format!("http://{node}"));
    let properties = [
        "clusters=here,there".to_owned(),
        format!("nodes.here={}", nodes[0]),
        format!("nodes.there={}", nodes[1]),
        format!("keys.there={}", link.address()),
    ];
    let measure = |here: &mut Cluster, workload: &str, count: u64, remote: bool| {
        let count = format!("operationcount={count}");
        let remote = format!("incrementingKey.remoteCounter={remote}");
        let given = properties.iter().map(String::as_str).chain([count.as_str(), &remote]);
        let options: Vec<&str> = given.flat_map(|one| ["--property", one]).collect();
        here.measure(workload, &[8], &options)
    };
    // The source has 10,000, which are done before all clients are active.
    let count = 60_000;
    let uuid = measure(&mut here, "uuid-key", count, false)?;
    let near = measure(&mut here, "incrementing-key", count, false)?;
    // Users of the previous run have the first numbers.
    here.nodes[0].rest(
        "POST",
        &format!("/pools/default/buckets/{BUCKET}/controller/doFlush"),
        &[],
    )?;
    let far = measure(&mut here, "incrementing-key", effort.of(200, 10_000), true)?;
    println!("B01: a number from far away takes {:.1} ms", far[0].latency_us / 1000.0);
    floors.at_least(
        "B01: latency of a number from far away, against a UUID",
        10.0,
        latency_ratio(&far, &uuid),
    );
    floors.at_least(
        "B01: throughput of UUIDs, against numbers near by",
        1.15,
        throughput_ratio(&uuid, &near),
    );
    floors.at_least(
        "B01: throughput of UUIDs, against numbers from far away",
        8.0,
        throughput_ratio(&uuid, &far),
    );
    Ok(())
}

/// B05 to B08: comments in a list, or under numbered keys.
fn comments(cluster: &mut Cluster, effort: Effort, floors: &mut Floors) -> Result<(), String> {
    println!("comments: one post, emptied before each run");
    // As many comments as in the source. A list becomes slower as it grows, keys do not. So keys are measured for longer, so that
    // the start and end of a run, where some clients wait for others, are a small part of it.
    let emptied = |count| ["--property", count, "--property", "flushBucket=true"];
    let threads = effort.of(&[10, MANY][..], &[10, 20, 30, 40, 50, 60, 70, 80, 90, MANY][..]);
    let keys =
        cluster.measure("enumerable-keys-post", threads, &emptied("operationcount=50000"))?;
    let list = cluster.measure("lba-post", threads, &emptied("operationcount=3000"))?;
    let push = cluster.measure("lba-push", threads, &emptied("operationcount=3000"))?;
    let last = |runs: &[Run]| vec![runs[runs.len() - 1].clone()];
    let [keys, list, push] = [keys, list, push].map(|runs| last(&runs));
    floors.at_least(
        "B05: throughput of keys, against a list",
        20.0,
        throughput_ratio(&keys, &list),
    );
    floors.at_least("B05: latency of a list, against keys", 20.0, latency_ratio(&list, &keys));
    println!("B06: throughput of keys, against pushes: {:.2}x", throughput_ratio(&keys, &push));
    floors.at_most("B06: latency of pushes, against keys", 5.0, latency_ratio(&push, &keys));

    println!("comments: one client, not emptied");
    let rounds = ["--property", "operationcount=1000", "--rounds", "10"];
    let keys = cluster.measure("enumerable-keys-post", &[1], &rounds)?;
    let list = cluster.measure("lba-post", &[1], &rounds)?;
    floors.at_least(
        "B07: the last thousand under keys, against the first",
        0.9,
        keys[9].throughput / keys[0].throughput,
    );
    floors.at_least(
        "B07: keys against a list, from 7,000 on",
        15.0,
        throughput_ratio(&keys[7..], &list[7..]),
    );

    println!("comments: pages of 10,000");
    let size =
        ["enumerableKeys.pagination.commentCount=10000", "lba.pagination.commentCount=10000"];
    let measure = |cluster: &mut Cluster, workload: &str, count: u64| {
        let count = format!("operationcount={count}");
        let options: Vec<&str> =
            size.into_iter().chain([count.as_str()]).flat_map(|one| ["--property", one]).collect();
        cluster.measure(workload, &[MANY], &options)
    };
    let keys = measure(cluster, "enumerable-keys-paginate", 30_000)?;
    let list = measure(cluster, "lba-paginate", effort.of(1000, 3000))?;
    let slice = measure(cluster, "lba-slice", effort.of(1000, 3000))?;
    floors.at_least(
        "B08: latency of a page of a list, against keys",
        8.0,
        latency_ratio(&list, &keys),
    );
    println!("B08: latency of paths of a list, against keys: {:.2}x", latency_ratio(&slice, &keys));
    Ok(())
}

/// B09 and B10: feeds that are built on read, or when activities are saved.
fn feeds(cluster: &mut Cluster, effort: Effort, floors: &mut Floors) -> Result<(), String> {
    let (users, activities) = (effort.of(200, 1000), effort.of(40, 80));
    println!("feeds: {users} users, 100 followed by each, {activities} activities of each");
    let sizes = |prefix: &str| {
        [("usersCount", users), ("friendsPerUser", 100), ("activitiesPerUser", activities)]
            .map(|(name, value)| format!("{prefix}.{name}={value}"))
    };
    let operations = |count: u64| format!("operationcount={count}");
    let measure = |cluster: &mut Cluster, workload: &str, threads: &[usize], count: u64| {
        let properties: Vec<String> =
            sizes("for").into_iter().chain(sizes("fow")).chain([operations(count)]).collect();
        let options: Vec<&str> =
            properties.iter().flat_map(|one| ["--property", one.as_str()]).collect();
        cluster.measure(workload, threads, &options)
    };
    let threads = effort.of(&[10, 30][..], &[10, 50, 100, 200, 300][..]);
    let read = measure(cluster, "for-save", threads, users * activities)?;
    let write = measure(cluster, "fow-save", threads, effort.of(600, users * activities))?;
    let ratio = throughput_ratio(&read, &write);
    floors.at_least(
        "B09: throughput of activities that are saved once, against copied ones",
        20.0,
        ratio,
    );
    floors.at_most("B09: the same", 150.0, ratio);
    let pages = effort.of(5000, 80_000);
    let read = measure(cluster, "for-paginate", threads, pages)?;
    let write = measure(cluster, "fow-paginate", threads, pages)?;
    floors.at_least(
        "B10: throughput of pages of feeds, against those that are made then",
        3.0,
        throughput_ratio(&write, &read),
    );
    floors.at_least(
        "B10: latency of the latter, against the former",
        3.0,
        latency_ratio(&read, &write),
    );
    let keys = measure(cluster, "fow-keys-paginate", threads, pages)?;
    println!(
        "B10: throughput of pages under keys, against those that are made then: {:.2}x",
        throughput_ratio(&keys, &read)
    );
    Ok(())
}

/// B02 to B04: users by address, in a growing cluster.
fn lookups(cluster: &mut Cluster, effort: Effort, floors: &mut Floors) -> Result<(), String> {
    let [few, many] = effort.nodes;
    let count = effort.of(12_000, 100_000);
    let count = [format!("operationcount={count}"), format!("recordcount={count}")];
    let options: Vec<&str> = count.iter().flat_map(|one| ["--property", one.as_str()]).collect();
    let threads = effort.of(&[10, 50][..], &[10, 20, 30, 40, 50, 60, 70, 80, 90, 100][..]);
    println!("lookups: {few} nodes");
    let table = cluster.measure("index-table-insert", threads, &options)?;
    let local = cluster.measure("secondary-index-insert", threads, &options)?;
    floors.at_least(
        "B02: throughput of users with lookups, against users with an index",
        0.4,
        throughput_ratio(&table, &local),
    );
    let mut found = Vec::new();
    for nodes in [few, many] {
        println!("lookups: {nodes} nodes");
        cluster.grow(nodes)?;
        let mut measure = |workload: &str| cluster.measure(workload, threads, &options);
        let table = measure("index-table-query")?;
        let local = measure("secondary-index-query")?;
        let hash = measure("hash-index-query")?;
        found.push((table, local, hash));
    }
    let [(table_few, local_few, hash_few), (table_many, local_many, hash_many)] = &found[..] else {
        return Err("two sizes are measured".to_owned());
    };
    let (ratio_few, ratio_many) =
        (throughput_ratio(table_few, local_few), throughput_ratio(table_many, local_many));
    floors.at_least("B03: lookups against a local index, few nodes", 1.7, ratio_few);
    floors.at_least("B03: lookups against a local index, many nodes", 2.2, ratio_many);
    floors.at_least("B03: growth of that ratio", 1.0, ratio_many / ratio_few);
    floors.at_least(
        "B03: lookups with many nodes, against few",
        0.6,
        best(table_many) / best(table_few),
    );
    floors.at_most(
        "B04: lookups against an index spread by hash",
        2.0,
        throughput_ratio(table_many, hash_many),
    );
    floors.at_least(
        "B04: that index with many nodes, against few",
        0.6,
        best(hash_many) / best(hash_few),
    );
    Ok(())
}
