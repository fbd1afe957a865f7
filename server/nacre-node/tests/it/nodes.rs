//! Several nodes in one thread: each has a world of its own. The test passes the agreed state to all of them, and moves
//! bytes between them by hand.

use crate::world::{Connection, World, nobody, other_node};
use nacre_auth::{Role, User};
use nacre_bucket::kv::Session;
use nacre_cluster::orchestrator::Leadership;
use nacre_cluster::{
    BucketChange, BucketSettings, Chain, Change, Cluster, Member, Membership, NodeChange, Refusal,
    Secret, ServiceName,
};
use nacre_node::agreement::{Agreement, Proposal};
use nacre_node::{Error, Link, Node};
use nacre_types::NodeId;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// The decisions of the nodes, in order, and the leader.
#[derive(Default)]
struct TestCluster {
    log: Mutex<Vec<Proposal>>,
    leader: Mutex<Option<usize>>,
    elections: AtomicU64,
}

impl TestCluster {
    /// Applies missing decisions to a node. Returns the outcome of the last one.
    fn catch_up(&self, node: &Arc<Node>) -> Result<Arc<Cluster>, Error> {
        let log = self.log.lock().unwrap().clone();
        let position = node.position()?.map(|bytes| u64::from_be_bytes(bytes.try_into().unwrap()));
        let mut outcome = Ok(node.cluster());
        let applied = position.unwrap_or(0);
        for (index, proposal) in (applied + 1..).zip(&log[applied as usize..]) {
            let position = index.to_be_bytes();
            outcome = node.apply(proposal, Some(&position));
            if outcome.is_err() {
                node.skip_to(&position)?;
            }
        }
        outcome
    }
}

/// One node's part in the council.
struct TestAgreement {
    cluster_log: Arc<TestCluster>,
    index: usize,
}

impl Agreement for TestAgreement {
    fn propose(
        &self,
        node: &Arc<Node>,
        proposal: &Proposal,
        term: Option<u64>,
    ) -> Result<Arc<Cluster>, Error> {
        if term.is_some_and(|term| term != self.cluster_log.elections.load(Ordering::Relaxed)) {
            return Err(Error::Refused(Refusal::LedByAnother));
        }
        // No other proposal may come between this proposal and its outcome.
        self.cluster_log.catch_up(node).ok();
        self.cluster_log.log.lock().unwrap().push(proposal.clone());
        self.cluster_log.catch_up(node)
    }

    fn leadership(&self, now_ns: u64) -> Option<Leadership> {
        let term = self.cluster_log.elections.load(Ordering::Relaxed);
        let leads = *self.cluster_log.leader.lock().unwrap() == Some(self.index);
        leads.then_some(Leadership { term, confirmed_ns: now_ns })
    }
}

/// A connection from one node to another.
struct Wire {
    from: usize,
    to: usize,
    link: Box<dyn Link>,
    session: Session,
    /// Bytes that the session has not consumed, and bytes that the link has not consumed.
    towards: Vec<u8>,
    back: Vec<u8>,
}

pub struct Nodes {
    pub worlds: Vec<Arc<World>>,
    /// `None` while a node is down.
    pub nodes: Vec<Option<Arc<Node>>>,
    wires: Vec<Wire>,
    /// The links that wait for their peer to restart.
    waiting: Vec<(usize, usize, Box<dyn Link>)>,
    /// Pairs of nodes between which nothing arrives.
    pub cut: Vec<(usize, usize)>,
    /// Nodes that receive no messages and no decisions.
    pub isolated: BTreeSet<usize>,
    /// Nodes that learn no decisions.
    pub unaware: BTreeSet<usize>,
    cluster_log: Arc<TestCluster>,
    orchestrated: bool,
}

/// Length of a time slice, in milliseconds.
const SLICE_MS: u64 = 50;

impl Nodes {
    /// Creates `count` nodes with the bucket `b`, which has four vBuckets and `replicas` replicas.
    pub fn new(count: usize, replicas: u8) -> Nodes {
        Nodes::with(count, BucketSettings { replicas, ..BucketSettings::default() })
    }

    /// Like [`Nodes::new`], with other settings of the bucket.
    pub fn with(count: usize, settings: BucketSettings) -> Nodes {
        let worlds: Vec<Arc<World>> = (0..count).map(|index| World::at(index as u16)).collect();
        let mut cluster = Cluster::new("c".repeat(32));
        cluster.secret = Secret::new([7; 32]);
        for (index, world) in worlds.iter().enumerate() {
            let member = Member {
                uuid: format!("{index:032}"),
                endpoints: world.endpoints(),
                group: "g".into(),
                services: ServiceName::FIRST.into(),
                membership: Membership::Active,
                alternate: None,
            };
            let id = NodeId(index as u64 + 1);
            cluster.apply(&Change::Nodes(NodeChange::PutNode { id, member })).unwrap();
        }
        for (index, world) in worlds.iter().enumerate() {
            let identity = serde_json::json!({"id": index + 1, "uuid": format!("{index:032}")});
            let identity = serde_json::to_vec(&identity).unwrap();
            let cluster = serde_json::to_vec(&cluster).unwrap();
            let rows =
                [(b"identity".to_vec(), Some(identity)), (b"cluster".to_vec(), Some(cluster))];
            world.settings().apply(&rows, true).unwrap();
        }
        let mut nodes = Nodes {
            nodes: worlds.iter().map(|_| None).collect(),
            worlds,
            wires: Vec::new(),
            waiting: Vec::new(),
            cut: Vec::new(),
            isolated: BTreeSet::new(),
            unaware: BTreeSet::new(),
            cluster_log: Arc::default(),
            orchestrated: false,
        };
        *nodes.cluster_log.leader.lock().unwrap() = Some(0);
        (0..count).for_each(|index| nodes.start(index));
        let node = nodes.nodes[0].as_ref().unwrap();
        let admin = User::new("admin", "password", vec![Role::admin()], node.new_salt());
        node.put_user(admin).unwrap();
        let settings = BucketSettings { vbucket_count: 4, flush_enabled: true, ..settings };
        nodes.change(&Change::Buckets(BucketChange::CreateBucket {
            name: "b".into(),
            uuid: "b".repeat(32),
            settings,
        }));
        nodes.run();
        nodes
    }

    /// Starts a node with its stored state.
    pub fn start(&mut self, index: usize) {
        let node = self.worlds[index].bare_node();
        let cluster_log = Arc::clone(&self.cluster_log);
        node.agree_by(Arc::new(TestAgreement { cluster_log, index }));
        self.cluster_log.catch_up(&node).unwrap();
        match self.orchestrated {
            true => node.orchestrate(),
            false => node.follow_without_fence(),
        }
        self.nodes[index] = Some(node);
    }

    /// Kills the process of a node.
    pub fn kill(&mut self, index: usize) {
        self.worlds[index].crash();
        // Its tasks no longer run; this only prevents the remains of the node from connecting again.
        self.nodes[index].iter().for_each(|node| node.stop());
        self.worlds[index].links.lock().unwrap().clear();
        self.worlds[index].sent.lock().unwrap().clear();
        let mut leader = self.cluster_log.leader.lock().unwrap();
        if *leader == Some(index) {
            *leader = None;
        }
        drop(leader);
        self.nodes[index] = None;
        self.waiting.retain(|(from, ..)| *from != index);
        for mut wire in self.wires.extract_if(.., |wire| wire.from == index || wire.to == index) {
            if wire.to == index {
                wire.link.lost();
                self.waiting.push((wire.from, index, wire.link));
            }
        }
    }

    /// Decides on a change. All running nodes learn of it.
    pub fn change(&self, change: &Change) {
        self.nodes.iter().flatten().next().unwrap().change(change).unwrap();
        self.nodes.iter().flatten().for_each(|node| drop(self.cluster_log.catch_up(node)));
    }

    /// Lets the nodes orchestrate their copies from now on.
    pub fn orchestrate(&mut self) {
        self.orchestrated = true;
        self.nodes.iter().flatten().for_each(|node| node.orchestrate());
    }

    /// Makes another node the leader, or none.
    pub fn elect(&self, index: impl Into<Option<usize>>) {
        self.cluster_log.elections.fetch_add(1, Ordering::Relaxed);
        *self.cluster_log.leader.lock().unwrap() = index.into();
    }

    /// Lets time pass while the nodes run.
    pub fn pass(&mut self, milliseconds: u64) {
        for _ in 0..milliseconds.div_ceil(SLICE_MS) {
            self.worlds.iter().for_each(|world| world.pass(SLICE_MS));
            self.run();
        }
    }

    /// Moves the copies of all vBuckets to `copies`, which are node numbers from 1; 0 means no copy.
    pub fn place(&self, copies: &[u64]) {
        let copies: Vec<_> =
            copies.iter().map(|node| (*node > 0).then_some(NodeId(*node))).collect();
        let node = self.nodes.iter().flatten().next().unwrap();
        let known = node.cluster().buckets["b"].chains.clone();
        let moved = (0..).zip(&known).map(|(vbid, before)| {
            let term = before.term + u64::from(before.active() != copies[0]);
            (vbid, Chain { term, ..Chain::new(copies.clone()) })
        });
        let chains = BTreeMap::from([("b".to_owned(), moved.collect())]);
        self.change(&Change::Nodes(NodeChange::MoveCopies {
            memberships: BTreeMap::new(),
            chains,
        }));
    }

    /// Opens a connection to one node.
    pub fn connect(&self, index: usize) -> Connection {
        Connection::open(self.nodes[index].as_ref().unwrap())
    }

    /// Runs all nodes until nothing is left to do.
    pub fn run(&mut self) {
        loop {
            self.connect_links();
            for index in 0..self.nodes.len() {
                if self.nodes[index].is_some() {
                    self.worlds[index].run_tasks();
                }
            }
            let mut moved = self.deliver();
            let mut wires = std::mem::take(&mut self.wires);
            wires.retain(|wire| !wire.link.is_over());
            for wire in &mut wires {
                if !self.is_cut(wire.from, wire.to) {
                    let from = self.nodes[wire.from].as_ref().unwrap();
                    moved |= wire.pump(from);
                }
            }
            self.wires = wires;
            if !moved {
                return;
            }
        }
    }

    fn is_cut(&self, one: usize, other: usize) -> bool {
        let isolated = one != other && [one, other].iter().any(|node| self.isolated.contains(node));
        isolated || self.cut.contains(&(one, other)) || self.cut.contains(&(other, one))
    }

    /// Delivers messages to nodes that are running and reachable. Returns true if there were any.
    fn deliver(&self) -> bool {
        let mut delivered = false;
        for (from, world) in self.worlds.iter().enumerate() {
            let sent = std::mem::take(&mut *world.sent.lock().unwrap());
            for (to, message) in sent {
                let to = to.0 as usize - 1;
                if let (Some(node), false) = (&self.nodes[to], self.is_cut(from, to)) {
                    delivered = true;
                    node.receive(NodeId(from as u64 + 1), &message);
                }
            }
        }
        // Every node learns every decision eventually.
        let learns =
            |index: &usize| !self.isolated.contains(index) && !self.unaware.contains(index);
        self.nodes
            .iter()
            .enumerate()
            .filter(|(index, _)| learns(index))
            .filter_map(|(_, node)| node.as_ref())
            .for_each(|node| drop(self.cluster_log.catch_up(node)));
        delivered
    }

    fn connect_links(&mut self) {
        for (from, world) in self.worlds.iter().enumerate() {
            for (port, mut link) in world.links.lock().unwrap().drain(..) {
                link.attach(nobody());
                self.waiting.push((from, usize::from(port), link));
            }
        }
        for (from, to, mut link) in std::mem::take(&mut self.waiting) {
            if link.is_over() {
                continue;
            }
            let Some(peer) = &self.nodes[to] else {
                self.waiting.push((from, to, link));
                continue;
            };
            let session = Session::new(Arc::clone(peer) as _, other_node(), nobody());
            let mut towards = Vec::new();
            link.connected(&mut towards);
            self.wires.push(Wire { from, to, link, session, towards, back: Vec::new() });
        }
    }
}

impl Wire {
    /// Moves bytes in both directions. Returns true if there were any.
    fn pump(&mut self, from: &Arc<Node>) -> bool {
        let now = from.now();
        self.link.poll(&mut self.towards, now);
        let before = (self.towards.len(), self.back.len());
        let (consumed, _) = self.session.receive(&self.towards, &mut self.back, now);
        self.towards.drain(..consumed);
        if self.session.is_ready() {
            self.session.resume(&mut self.back, now);
        }
        let moved = consumed > 0 || self.back.len() > before.1;
        let taken = self.link.receive(&self.back, &mut self.towards, now).unwrap();
        self.back.drain(..taken);
        moved || taken > 0
    }
}
