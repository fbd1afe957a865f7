//! Two clusters of two nodes, far from each other: everything between them arrives later, connections are cut, and nodes of both sides are
//! killed while both sides write. In the end both clusters have the same documents.

use crate::cluster::Node;
use crate::copies::{is_rebalancing, rebalance};
use crate::process::{PASSWORD, USER, from_env};
use crate::xdcr::{CREATE, REFERENCES, make_bucket, printed, replication, task};
use nacre_client::{Bucket, Durability, Key, Login, StoreOptions};
use nacre_conformance::slow_link::SlowLink;
use std::time::{Duration, Instant};

const BUCKET: &str = "b";
/// How long something is on its way from one cluster to the other. Source: the dissertation about scalability patterns.
const DELAY: Duration = Duration::from_millis(70);
/// How long the clusters are cut off from each other each time.
const CUT: Duration = Duration::from_millis(500);
/// Documents that a side writes in a round by itself, and documents that both sides write.
const OWN: usize = 40;
const SHARED: usize = 20;

/// The links to each node of both clusters: to its management, and to its keys.
pub type Links = [[[SlowLink; 2]; 2]; 2];

/// Opens links to the cluster management and the keys of a node, and makes them its alternate addresses.
fn links_to(node: &Node) -> [SlowLink; 2] {
    let targets = [node.address(), node.server().kv_address()];
    let links = targets.map(|target| SlowLink::open(target, DELAY).unwrap());
    let [mgmt, kv] = links.each_ref().map(|link| link.address().port());
    let form = format!("hostname=127.0.0.1&mgmt={mgmt}&kv={kv}");
    node.succeed("PUT", "/node/controller/setupAlternateAddresses/external", &form);
    links
}

/// Starts two clusters of two nodes that replicate the bucket `b` to each other over slow links.
pub fn far_apart() -> ([[Node; 2]; 2], Links) {
    let clusters = [(); 2].map(|()| [Node::start(), Node::start()]);
    for (nodes, vbuckets) in clusters.iter().zip([64, 128]) {
        assert_eq!(nodes[0].add(&nodes[1]).0, 200);
        make_bucket(&nodes[0], BUCKET, &format!("numVBuckets={vbuckets}&replicaNumber=0"));
        rebalance(nodes, &[]);
        nodes[0].wait_until("the rebalance", |node| !is_rebalancing(node));
    }
    let links = clusters.each_ref().map(|nodes| nodes.each_ref().map(links_to));
    for (here, there) in [(0, 1), (1, 0)] {
        let hostname = links[there][0][0].address();
        let login = format!("username={USER}&password={PASSWORD}");
        let form = format!("name=other&hostname={hostname}&{login}&network_type=external");
        clusters[here][0].succeed("POST", REFERENCES, &form);
        clusters[here][0].succeed("POST", CREATE, &replication(BUCKET, "other", BUCKET));
    }
    (clusters, links)
}

/// Cuts or restores all links.
pub fn set_cut(links: &Links, is_cut: bool) {
    links.iter().flatten().flatten().for_each(|link| link.set_cut(is_cut));
}

/// The clients of one side. `seeds` are the addresses of its nodes for keys.
struct Writer {
    side: &'static str,
    seeds: Vec<String>,
}

impl Writer {
    fn connect(&self) -> Option<Bucket> {
        let login = Login { user: USER.into(), password: PASSWORD.into(), bucket: BUCKET.into() };
        let mut client = Bucket::connect(&self.seeds, None, login).ok()?;
        client.set_patience(Duration::from_secs(60));
        Some(client)
    }

    /// Writes documents of its own durably, and documents that both sides write. Repeats a write until it is acknowledged.
    fn write(&self, round: u64) {
        let own = (0..OWN).map(|number| (format!("{}-{round}-{number}", self.side), true));
        let shared = (0..SHARED).map(|number| (format!("both-{number}"), false));
        let (begun, mut client) = (Instant::now(), None);
        for (key, is_own) in own.chain(shared) {
            let body = format!(r#"{{"side":"{}","round":{round}}}"#, self.side);
            let durability = is_own.then_some(Durability::PersistMajority);
            let options = StoreOptions { durability, ..StoreOptions::default() };
            while !client.as_mut().is_some_and(|client: &mut Bucket| {
                client.set(Key::of_default(key.as_bytes()), body.as_bytes(), options).is_ok()
            }) {
                assert!(begun.elapsed() < Duration::from_secs(90), "{key} cannot be written");
                std::thread::sleep(Duration::from_millis(20));
                client = self.connect();
            }
        }
    }
}

#[test]
fn two_distant_clusters_converge_despite_kills_and_lost_connections() {
    let kills = from_env("NACRE_REPLICATION_KILLS", 4);
    let cuts = from_env("NACRE_REPLICATION_CUTS", 1).min(kills);
    let (mut clusters, links) = far_apart();
    let writers = [0, 1].map(|side| Writer {
        side: ["here", "there"][side],
        seeds: clusters[side].iter().map(|node| node.server().kv_address()).collect(),
    });
    for round in 0..kills {
        std::thread::scope(|scope| {
            for writer in &writers {
                scope.spawn(move || writer.write(round));
            }
            let node = &mut clusters[(round % 2) as usize][(round / 2 % 2) as usize];
            node.kill();
            node.restart();
            // As often as there are cuts, and not at the same nodes each time.
            if (round + 1) * cuts / kills > round * cuts / kills {
                set_cut(&links, true);
                std::thread::sleep(CUT);
                set_cut(&links, false);
            }
        });
    }
    for nodes in &clusters {
        nodes[0].wait_until("nothing to be left", |node| {
            let task = task(node);
            task["status"] == "running" && task["changesLeft"] == 0
        });
    }
    let documents = 2 * OWN as u64 * kills + SHARED as u64;
    let equal = printed(&clusters[0][0], &["diff", BUCKET]);
    assert_eq!(equal, format!("{documents} documents and deletions are equal\n"));
}
