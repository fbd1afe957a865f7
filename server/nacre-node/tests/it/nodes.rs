//! Several nodes in one thread: each in a world of its own, the agreed state handed to all of them by the test, and the
//! connections between them moved by hand.

use crate::world::{Connection, World, local, nobody};
use nacre_auth::{INTERNAL, Role, User};
use nacre_cluster::{BucketSettings, Chain, Change, Cluster, Member, Membership};
use nacre_node::kv::Session;
use nacre_node::{Link, Node};
use nacre_types::NodeId;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A connection from one node to another.
struct Wire {
    from: usize,
    to: usize,
    link: Box<dyn Link>,
    session: Session,
    /// What the session has not consumed, and what the link has not.
    towards: Vec<u8>,
    back: Vec<u8>,
}

pub struct Nodes {
    pub worlds: Vec<Arc<World>>,
    /// None while a node is down.
    pub nodes: Vec<Option<Arc<Node>>>,
    wires: Vec<Wire>,
    /// The links that wait for their peer to come back.
    waiting: Vec<(usize, usize, Box<dyn Link>)>,
    /// Pairs between which nothing arrives.
    pub cut: Vec<(usize, usize)>,
}

impl Nodes {
    /// `count` nodes with the bucket `b` of four vBuckets and `replicas`, all with their part of it.
    pub fn new(count: usize, replicas: u8) -> Nodes {
        let worlds: Vec<Arc<World>> = (0..count).map(|index| World::at(index as u16)).collect();
        let mut cluster = Cluster::new("c".repeat(32));
        cluster.secret = "s".repeat(64);
        for (index, world) in worlds.iter().enumerate() {
            let member = Member {
                uuid: format!("{index:032}"),
                endpoints: world.endpoints(),
                group: "g".into(),
                membership: Membership::Active,
            };
            let id = NodeId(index as u64 + 1);
            cluster.apply(&Change::PutNode { id, member }).unwrap();
        }
        for (index, world) in worlds.iter().enumerate() {
            let id = serde_json::to_vec(&(index + 1)).unwrap();
            let cluster = serde_json::to_vec(&cluster).unwrap();
            let rows = [(b"node-id".to_vec(), Some(id)), (b"cluster".to_vec(), Some(cluster))];
            world.settings().apply(&rows, true).unwrap();
        }
        let mut nodes = Nodes {
            nodes: worlds.iter().map(|_| None).collect(),
            worlds,
            wires: Vec::new(),
            waiting: Vec::new(),
            cut: Vec::new(),
        };
        (0..count).for_each(|index| nodes.start(index));
        let settings = BucketSettings { vbucket_count: 4, replicas, ..BucketSettings::default() };
        nodes.change(&Change::CreateBucket { name: "b".into(), uuid: "b".repeat(32), settings });
        nodes.run();
        nodes
    }

    /// Starts a node with what it has stored.
    pub fn start(&mut self, index: usize) {
        let node = self.worlds[index].bare_node();
        for (name, password) in [("admin", "password"), (INTERNAL, &*"s".repeat(64))] {
            let user = User::new(name, password, vec![Role::admin()], node.new_salt());
            node.put_user(user).unwrap();
        }
        self.nodes[index] = Some(node);
    }

    /// The process of a node is gone.
    pub fn kill(&mut self, index: usize) {
        self.worlds[index].crash();
        self.worlds[index].links.lock().unwrap().clear();
        self.nodes[index] = None;
        self.waiting.retain(|(from, ..)| *from != index);
        for mut wire in self.wires.extract_if(.., |wire| wire.from == index || wire.to == index) {
            if wire.to == index {
                wire.link.lost();
                self.waiting.push((wire.from, index, wire.link));
            }
        }
    }

    /// All nodes that are up agree on a change.
    pub fn change(&self, change: &Change) {
        for node in self.nodes.iter().flatten() {
            node.change(change).unwrap();
        }
    }

    /// Has the copies of all vBuckets where `copies` says, numbers of nodes from 1.
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
        self.change(&Change::MoveCopies { memberships: BTreeMap::new(), chains });
    }

    /// A client of one node.
    pub fn connect(&self, index: usize) -> Connection {
        Connection::open(self.nodes[index].as_ref().unwrap())
    }

    /// Lets all nodes work until nothing is left to do.
    pub fn run(&mut self) {
        loop {
            self.connect_links();
            for (world, node) in self.worlds.iter().zip(&self.nodes) {
                if node.is_some() {
                    world.run_tasks();
                }
            }
            let cut = &self.cut;
            let mut moved = false;
            for wire in &mut self.wires {
                if !cut.contains(&(wire.from, wire.to)) && !cut.contains(&(wire.to, wire.from)) {
                    let from = self.nodes[wire.from].as_ref().unwrap();
                    moved |= wire.pump(from);
                }
            }
            if !moved {
                return;
            }
        }
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
            let session = Session::new(Arc::clone(peer), local(), nobody());
            let mut towards = Vec::new();
            link.connected(&mut towards);
            self.wires.push(Wire { from, to, link, session, towards, back: Vec::new() });
        }
    }
}

impl Wire {
    /// Moves bytes in both directions; says whether there were any.
    fn pump(&mut self, from: &Arc<Node>) -> bool {
        let now = from.now();
        self.link.look(&mut self.towards, now);
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
