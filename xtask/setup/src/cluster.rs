//! A cluster, and the actions of its operator.

use crate::command::{output, run};
use crate::network::{HOSTS, Network};
use crate::node::{self, Node, PASSWORD, USER};
use nacre_conformance::{http, kv};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// The bucket under load.
pub const BUCKET: &str = "default";
/// Copies of each vBucket, if there are enough nodes.
const COPIES: usize = 3;
/// Time limit for the cluster to become healthy.
const PATIENCE: Duration = Duration::from_secs(240);
/// Interval of checks.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// The management port of a node with its own address.
const MGMT: &str = "8091";
/// Number of consecutive successful checks: a node that was silent for a while may still be failed over.
const LOOKS: usize = 10;
/// Time limit for an answer of a node.
const ANSWER_PATIENCE: Duration = Duration::from_secs(3);
/// The size of a disk that can be filled.
const DISK: &str = "size=400m";

/// A cluster in its own network.
pub struct Cluster {
    /// The nodes, by number.
    pub nodes: Vec<Node>,
    /// The network between them.
    pub network: Network,
    binary: PathBuf,
    disks: Vec<PathBuf>,
}

impl Cluster {
    /// Starts `count` nodes and creates a bucket with two replicas, or as many as possible.
    ///
    /// # Errors
    /// Reports the errors of the system or of a node.
    pub fn start(
        binary: &Path,
        count: usize,
        failover_s: u64,
        small_disks: bool,
    ) -> Result<Cluster, String> {
        let network = Network::start(count)?;
        let mut cluster =
            Cluster { nodes: Vec::new(), network, binary: binary.into(), disks: Vec::new() };
        for (number, host) in HOSTS.iter().enumerate().take(count) {
            if small_disks {
                cluster.mount(node::data_dir(host, None))?;
            }
            let wrapper = cluster.network.wrapper(number);
            cluster.nodes.push(Node::spawn_at(binary, host, None, &[], &wrapper)?);
        }
        cluster.nodes.iter_mut().try_for_each(Node::wait_until_ready)?;
        for number in 1..count {
            cluster.add(0, number)?;
        }
        let settings = format!("enabled=true&timeout={failover_s}&maxCount=100");
        cluster.post(0, "/settings/autoFailover", &settings)?;
        let replicas = count.min(COPIES) - 1;
        let bucket = format!("name={BUCKET}&ramQuotaMB=256&replicaNumber={replicas}");
        cluster.post(0, "/pools/default/buckets", &bucket)?;
        cluster.make_whole(false)?;
        Ok(cluster)
    }

    fn mount(&mut self, folder: PathBuf) -> Result<(), String> {
        std::fs::create_dir_all(&folder)
            .map_err(|error| format!("{}: {error}", folder.display()))?;
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", DISK, "none"]).arg(&folder);
        run(&mut mount, "mount a small disk")?;
        self.disks.push(folder);
        Ok(())
    }

    /// Returns the connection string for clients. By default the SDK does not contact a node for 5 s after a refused
    /// connection, even if the node is back after a moment: that would be measured instead of the node.
    pub fn connection(&self) -> String {
        format!("{}?server_wait_backoff=250", self.seeds())
    }

    /// Returns all nodes as a connection string.
    pub fn seeds(&self) -> String {
        format!("couchbase://{}", HOSTS[..self.nodes.len()].join(","))
    }

    fn ask(&self, node: usize, method: &str, path: &str, form: &str) -> Result<Value, String> {
        let address = format!("{}:{MGMT}", HOSTS[node]);
        let login = Some((USER, PASSWORD));
        let kind = "application/x-www-form-urlencoded";
        let body = form.as_bytes();
        let answer =
            http::request_within(ANSWER_PATIENCE, &address, method, path, login, kind, body);
        let answer = answer.map_err(|error| format!("{method} {address}{path}: {error}"))?;
        match answer.status {
            200..300 => Ok(answer.json().unwrap_or_default()),
            _ => Err(format!("{method} {address}{path}: {}", answer.text())),
        }
    }

    fn post(&self, node: usize, path: &str, form: &str) -> Result<(), String> {
        self.ask(node, "POST", path, form).map(drop)
    }

    /// Adds another node through node `by`.
    ///
    /// # Errors
    /// Reports a refusal.
    pub fn add(&self, by: usize, node: usize) -> Result<(), String> {
        self.nodes[by].cluster(&self.binary, &["add", &format!("{}:{MGMT}", HOSTS[node])])
    }

    /// Moves all vBuckets of a node to the others, and removes the node.
    ///
    /// # Errors
    /// Reports a refusal.
    pub fn remove(&self, by: usize, node: usize) -> Result<(), String> {
        self.nodes[by].cluster(
            &self.binary,
            &["rebalance", "--remove", &format!("{}:{MGMT}", HOSTS[node])],
        )?;
        self.until("the node to leave the cluster", || {
            let alone = self.ask(node, "GET", "/pools/default", "")?;
            Ok(alone["nodes"].as_array().is_some_and(|nodes| nodes.len() == 1))
        })
    }

    /// Fails over a node that is gone.
    ///
    /// # Errors
    /// Reports a refusal.
    pub fn fail_over(&self, by: usize, node: usize) -> Result<(), String> {
        self.nodes[by].cluster(&self.binary, &["failover", &format!("{}:{MGMT}", HOSTS[node])])
    }

    /// Waits until a condition is true. An error of the condition counts as false.
    fn until(
        &self,
        what: &str,
        mut holds: impl FnMut() -> Result<bool, String>,
    ) -> Result<(), String> {
        let begun = Instant::now();
        loop {
            match holds() {
                Ok(true) => return Ok(()),
                last if begun.elapsed() > PATIENCE => {
                    return Err(format!("still waiting for {what}: {last:?}"));
                }
                _ => std::thread::sleep(LOOK_INTERVAL),
            }
        }
    }

    /// Returns the elected leader, which decides about failovers.
    ///
    /// # Errors
    /// Fails when there is no leader for too long.
    pub fn leader(&self) -> Result<usize, String> {
        let mut leader = 0;
        self.until("a leader", || {
            let info = self.ask(0, "GET", "/pools/default/terseClusterInfo", "")?;
            let name = info["orchestrator"].as_str().unwrap_or_default();
            let found = HOSTS.iter().position(|host| name.contains(&format!("@{host}:")));
            leader = found.unwrap_or_default();
            Ok(found.is_some())
        })?;
        Ok(leader)
    }

    /// Returns the copies of each vBucket as node numbers, the active one first; `None` for a missing copy.
    fn copies(&self, at: usize) -> Result<Vec<Vec<Option<usize>>>, String> {
        let map = self.ask(at, "GET", &format!("/pools/default/b/{BUCKET}"), "")?;
        let map = &map["vBucketServerMap"];
        let hosts: Vec<Option<usize>> = map["serverList"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|server| {
                // A single node uses the address of the request as its own.
                match server.as_str()?.split(':').next()? {
                    "$HOST" => Some(at),
                    name => HOSTS.iter().position(|host| *host == name),
                }
            })
            .collect();
        let of_chain = |chain: &Value| {
            let places = chain.as_array().into_iter().flatten();
            let node = |place: &Value| *hosts.get(usize::try_from(place.as_i64()?).ok()?)?;
            places.map(node).collect()
        };
        Ok(map["vBucketMap"].as_array().into_iter().flatten().map(of_chain).collect())
    }

    /// Returns the active node of each document.
    ///
    /// # Errors
    /// Fails when there is no map.
    pub fn active(&self, keys: &[String]) -> Result<Vec<usize>, String> {
        let copies = self.copies(0)?;
        let active = |key: &String| {
            let vbid = usize::from(kv::vbid(key.as_bytes(), copies.len() as u16));
            copies[vbid].first().copied().flatten().ok_or(format!("no node serves {key}"))
        };
        keys.iter().map(active).collect()
    }

    /// Acts like an operator until each node is back and each vBucket has all its copies. With `may_end`, restarts processes
    /// that have ended by themselves.
    ///
    /// # Errors
    /// Fails when that takes too long, or a process has ended unexpectedly.
    pub fn make_whole(&mut self, may_end: bool) -> Result<(), String> {
        let begun = Instant::now();
        let mut well = 0;
        loop {
            for (node, host) in self.nodes.iter_mut().zip(HOSTS) {
                if let Some(status) = node.has_ended() {
                    if !may_end {
                        return Err(format!("the node at {host} has ended: {status}"));
                    }
                    node.respawn()?;
                }
            }
            let state = self.mend();
            well = if state == Ok(true) { well + 1 } else { 0 };
            if well == LOOKS {
                return Ok(());
            }
            if begun.elapsed() > PATIENCE {
                return Err(format!("the cluster does not become whole: {state:?}"));
            }
            std::thread::sleep(LOOK_INTERVAL);
        }
    }

    /// Takes the next step towards a complete cluster; returns true if it is complete.
    fn mend(&self) -> Result<bool, String> {
        let count = self.nodes.len();
        let mut pools = Vec::new();
        for node in 0..count {
            pools.push(self.ask(node, "GET", "/pools/default", "")?);
        }
        let nodes = |pool: &Value| pool["nodes"].as_array().cloned().unwrap_or_default();
        // A node that was failed over after the last check, before a rebalance that started then, has left.
        let has_left = |node: &usize| nodes(&pools[*node]).len() == 1;
        let stays = (0..count).find(|node| !has_left(node));
        if let (Some(by), Some(node)) = (stays, (0..count).find(has_left)) {
            self.add(by, node)?;
            return Ok(false);
        }
        let are_well = |pool: &Value| {
            let nodes = nodes(pool);
            nodes.len() == count && nodes.iter().all(|node| node["status"] == "healthy")
        };
        // A node that was just started may not know yet that it was failed over: a rebalance would remove it.
        let parts = |pool: &Value| -> Vec<Value> {
            nodes(pool).iter().map(|node| node["clusterMembership"].clone()).collect()
        };
        let pool = &pools[0];
        if !pools.iter().all(|other| are_well(other) && parts(other) == parts(pool)) {
            return Ok(false);
        }
        let otp = |node: &Value| node["otpNode"].as_str().unwrap_or_default().to_owned();
        for node in nodes(pool).iter().filter(|node| node["clusterMembership"] == "inactiveFailed")
        {
            let form = format!("otpNode={}&recoveryType=delta", http::escape(&otp(node)));
            self.post(0, "/controller/setRecoveryType", &form)?;
        }
        if pool["rebalanceStatus"] == "running" {
            return Ok(false);
        }
        let copies = self.copies(0)?;
        let is_active = |node: &Value| node["clusterMembership"] == "active";
        let has_all = |chain: &Vec<Option<usize>>| {
            let there: BTreeSet<usize> = chain.iter().flatten().copied().collect();
            there.len() == count.min(COPIES)
        };
        let is_spread = pool["balanced"] == true
            && nodes(pool).iter().all(is_active)
            && copies.iter().all(has_all);
        if !is_spread {
            let known: Vec<String> = nodes(pool).iter().map(otp).collect();
            let form = format!("knownNodes={}", http::escape(&known.join(",")));
            self.post(0, "/controller/rebalance", &form)?;
            return Ok(false);
        }
        // Every node has learned of it.
        for node in 1..count {
            if self.copies(node)? != copies {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Fills a node's disk; returns the file that does.
    ///
    /// # Errors
    /// Fails when the file cannot be created.
    pub fn fill_disk(&self, node: usize) -> Result<PathBuf, String> {
        let folder = self.nodes[node].data_dir();
        let free = output(
            Command::new("df").args(["--output=avail", "--block-size=1"]).arg(folder),
            "ask how full the disk is",
        )?;
        let free = free.lines().last().unwrap_or_default().trim().to_owned();
        let file = folder.join("filler");
        let mut fill = Command::new("fallocate");
        run(fill.args(["--length", &free]).arg(&file), "fill the disk")?;
        Ok(file)
    }

    /// Stops all nodes.
    ///
    /// # Errors
    /// Fails when one does not end cleanly.
    pub fn stop(mut self) -> Result<(), String> {
        std::mem::take(&mut self.nodes).into_iter().try_for_each(Node::stop)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.nodes.clear();
        for disk in &self.disks {
            let _ = Command::new("umount").arg(disk).status();
            let _ = std::fs::remove_dir(disk);
        }
    }
}
