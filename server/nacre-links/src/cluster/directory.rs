//! The nodes of the cluster and their addresses.
//!
//! The agreed state contains the nodes once a change is decided. Raft needs them earlier: a node that has just received
//! an older state learns of its new leader only from the log. So the voters in the log include their addresses.

use super::types::{Place, Raft};
use crate::tls::NodeKey;
use nacre_cluster::{Cluster, Fingerprint};
use nacre_node::Node;
use nacre_types::NodeId;
use parking_lot::{Mutex, RwLock};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The nodes according to the agreed state and to Raft's log.
pub struct Directory {
    node: Arc<Node>,
    key: Arc<NodeKey>,
    /// `None` while the node changes from one cluster to another.
    raft: RwLock<Option<Raft>>,
    /// Addresses that connecting nodes have reported. A node that has moved cannot announce its address through the
    /// agreement before the others reach it.
    reported: Mutex<BTreeMap<NodeId, String>>,
    /// The nodes when this one joined. The first state that it receives may be old and lack even the leader that sends
    /// the rest.
    met: Mutex<BTreeMap<NodeId, Place>>,
}

impl Directory {
    /// Creates the directory of `node`, identified by `key`; Raft is added later.
    pub fn new(node: &Arc<Node>, key: Arc<NodeKey>) -> Arc<Directory> {
        Arc::new(Directory {
            node: Arc::clone(node),
            key,
            raft: RwLock::default(),
            reported: Mutex::default(),
            met: Mutex::default(),
        })
    }

    /// Returns this node.
    pub fn node(&self) -> &Arc<Node> {
        &self.node
    }

    /// Returns the key that this node shows to others.
    pub fn key(&self) -> &NodeKey {
        &self.key
    }

    /// Returns the running Raft, if any.
    pub fn raft(&self) -> Option<Raft> {
        self.raft.read().clone()
    }

    /// Replaces the running Raft. Returns the previous one.
    pub fn replace(&self, raft: Option<Raft>) -> Option<Raft> {
        self.reported.lock().clear();
        std::mem::replace(&mut *self.raft.write(), raft)
    }

    /// Records the nodes of the cluster that this node joins.
    pub fn set_members(&self, cluster: &Cluster) {
        let places = cluster.nodes.iter().map(|(id, member)| (*id, Place::of(member)));
        *self.met.lock() = places.collect();
    }

    /// Records the address that a node reports.
    pub fn set_address(&self, id: NodeId, address: &str) {
        self.reported.lock().insert(id, address.to_owned());
    }

    /// Returns true if another node of the cluster has the key with this fingerprint.
    pub fn knows(&self, key: &Fingerprint) -> bool {
        let met: Vec<NodeId> = self.met.lock().keys().copied().collect();
        let others = self.others().into_iter().chain(met);
        let mut others = others.filter(|id| *id != self.node.id());
        others.any(|id| self.known(id).is_some_and(|place| place.fingerprint == Some(*key)))
    }

    /// Returns the address and key of a node; `None` if it is not in the cluster.
    pub fn place(&self, id: NodeId) -> Option<Place> {
        let place = self.known(id)?;
        let reported = self.reported.lock().get(&id).cloned();
        Some(Place { address: reported.unwrap_or(place.address), ..place })
    }

    fn known(&self, id: NodeId) -> Option<Place> {
        let cluster = self.node.cluster();
        if !cluster.nodes.contains_key(&self.node.id())
            && let Some(place) = self.met.lock().get(&id)
        {
            return Some(place.clone());
        }
        match cluster.nodes.get(&id) {
            Some(member) => Some(Place::of(member)),
            None => {
                let metrics = self.raft.read().as_ref()?.metrics();
                let membership = Arc::clone(&metrics.borrow().membership_config);
                membership.membership().get_node(&id.0).cloned()
            }
        }
    }

    /// Returns all nodes except this one.
    pub fn others(&self) -> BTreeSet<NodeId> {
        let mut known: BTreeSet<NodeId> = self.node.cluster().nodes.keys().copied().collect();
        if let Some(raft) = &*self.raft.read() {
            let metrics = raft.metrics();
            let membership = Arc::clone(&metrics.borrow().membership_config);
            known.extend(membership.membership().nodes().map(|(id, _)| NodeId(*id)));
        }
        known.remove(&self.node.id());
        known
    }
}
