//! Scatter-gather over the nodes: each node answers for the vBuckets that it serves.
//!
//! ```text
//! Node::gather ─► owners of vBuckets ─┬─► PeerMessage::answer, on this node
//!                                     └─► Platform::ask ─► Node::answer ─► Service::answer ─► PeerMessage::answer, on another one
//! ```
//!
//! A reply covers exactly the vBuckets of the message. A node that does not serve all of them, or stopped serving them
//! while it answered, refuses ([`NoReply::NotOwner`]), and their present nodes are asked. Each vBucket therefore
//! counts once, even while it moves.

mod message;
mod node_message;
mod usage;

pub use message::{NoReply, PeerFailure, PeerMessage, PendingReply, read_reply};
pub use nacre_types::Vbids;
pub use node_message::NodeService;
pub(crate) use node_message::{NodeMessage, NodeReply};
pub use usage::Usage;

use crate::block;
use crate::node::Node;
use crate::platform::{PeerError, ReplyCallback};
use crossbeam_channel::bounded;
use message::{Header, question, reply};
use nacre_cluster::Membership;
use nacre_types::{NodeId, Vbid};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Pause before vBuckets without a reply are asked about again, unless the cluster changes earlier.
const PAUSE: Duration = Duration::from_millis(10);
/// Time limit for answers that members give from memory.
const MEMBERS_PATIENCE: Duration = Duration::from_secs(1);
/// Time for which an unreachable node is retried before this is an error: another node may take its place meanwhile.
pub const UNREACHED_PATIENCE: Duration = Duration::from_secs(10);

/// The node that serves each vBucket of a bucket.
pub struct Owners {
    /// The revision of the agreed state that the assignment comes from.
    rev: u64,
    by_vbid: Vec<Option<NodeId>>,
    by_node: Vec<(NodeId, Vbids)>,
}

impl Owners {
    fn new(rev: u64, bucket: &nacre_cluster::Bucket) -> Owners {
        let by_vbid: Vec<_> = bucket.chains.iter().map(|chain| chain.active()).collect();
        let mut by_node: BTreeMap<NodeId, Vbids> = BTreeMap::new();
        for (vbid, owner) in (0..).map(Vbid).zip(&by_vbid) {
            if let Some(owner) = owner {
                by_node.entry(*owner).or_default().insert(vbid);
            }
        }
        Owners { rev, by_vbid, by_node: by_node.into_iter().collect() }
    }

    /// Returns the vBucket of a key.
    pub fn vbid_of(&self, key: &[u8]) -> Vbid {
        Vbid::of(key, self.by_vbid.len() as u16)
    }

    /// Returns the node that serves a vBucket, if there is one.
    pub fn of(&self, vbid: Vbid) -> Option<NodeId> {
        self.by_vbid.get(vbid.index()).copied().flatten()
    }

    /// Returns all nodes that serve a vBucket.
    pub fn nodes(&self) -> Vec<NodeId> {
        self.by_node.iter().map(|(node, _)| *node).collect()
    }

    /// Returns all vBuckets.
    pub fn all(&self) -> Vbids {
        Vbids::first(self.by_vbid.len() as u16)
    }

    /// Returns the node that serves all vBuckets, if one does.
    pub fn only(&self) -> Option<NodeId> {
        match &self.by_node[..] {
            [(node, vbids)] if *vbids == self.all() => Some(*node),
            _ => None,
        }
    }

    /// Splits vBuckets by the nodes that serve them; omits vBuckets without a node.
    pub fn split(&self, vbids: &Vbids) -> Vec<(NodeId, Vbids)> {
        if *vbids == self.all() {
            return self.by_node.clone();
        }
        let mut parts: BTreeMap<NodeId, Vbids> = BTreeMap::new();
        for vbid in vbids.iter() {
            if let Some(owner) = self.of(vbid) {
                parts.entry(owner).or_default().insert(vbid);
            }
        }
        parts.into_iter().collect()
    }
}

/// One message about a set of vBuckets, sent to each node that serves some of them.
pub struct ScatterRequest<'a, M> {
    /// vBuckets to ask about.
    pub vbids: Vbids,
    /// Builds the message for the vBuckets that one node serves.
    pub message: Box<dyn Fn(&Vbids) -> M + 'a>,
}

/// The reply of one node about the vBuckets that it serves.
pub struct ShardReply<R> {
    /// Index of the [`ScatterRequest`] that it answers.
    pub request: usize,
    /// vBuckets that the reply covers.
    pub vbids: Vbids,
    /// The reply, or the failure of the service.
    pub reply: Result<R, PeerFailure>,
}

/// The replies that arrived, and the vBuckets without one.
pub struct PartialReplies<R> {
    /// The replies.
    pub shards: Vec<ShardReply<R>>,
    /// The vBuckets without a reply, for each [`ScatterRequest`].
    pub missing: Vec<Vbids>,
    /// The reason why some are missing, for people.
    pub reason: String,
}

/// A message that this node answers, or a pending reply of another node.
enum Pending<M> {
    Here(Box<M>),
    There(PendingReply<M>),
}

impl Node {
    /// Returns the owners of a bucket's vBuckets; `None` if there is no such bucket.
    pub fn owners(&self, bucket: &str) -> Option<Arc<Owners>> {
        let cluster = self.cluster();
        if let Some(owners) = self.owners.read().get(bucket)
            && owners.rev == cluster.rev
        {
            return Some(Arc::clone(owners));
        }
        let owners = Arc::new(Owners::new(cluster.rev, cluster.buckets.get(bucket)?));
        let mut known = self.owners.write();
        known.retain(|name, _| cluster.buckets.contains_key(name));
        known.insert(bucket.to_owned(), Arc::clone(&owners));
        Some(owners)
    }

    /// Returns the vBuckets of documents of a bucket; `None` if there is no such bucket.
    pub fn vbids_of<'k>(
        &self,
        bucket: &str,
        keys: impl IntoIterator<Item = &'k [u8]>,
    ) -> Option<Vbids> {
        let owners = self.owners(bucket)?;
        Some(keys.into_iter().map(|key| owners.vbid_of(key)).collect())
    }

    /// Asks about vBuckets of a bucket, each at the node that serves it. Returns either all replies or none. Blocks: do
    /// not call it on a thread that others wait for.
    ///
    /// # Errors
    /// The reason why replies are missing, for people.
    pub fn gather<M: PeerMessage>(
        self: &Arc<Node>,
        bucket: &str,
        requests: &[ScatterRequest<'_, M>],
        left: Duration,
    ) -> Result<Vec<ShardReply<M::Reply>>, String> {
        let PartialReplies { shards, missing, reason } =
            self.gather_partial(bucket, requests, left)?;
        if missing.iter().all(Vbids::is_empty) { Ok(shards) } else { Err(reason) }
    }

    /// Like [`Node::gather`], but returns the replies that arrived in time if others are missing.
    ///
    /// # Errors
    /// Fails when there is no such bucket, or when the reply to a write was lost, so that the write may have been made.
    pub fn gather_partial<M: PeerMessage>(
        self: &Arc<Node>,
        bucket: &str,
        requests: &[ScatterRequest<'_, M>],
        left: Duration,
    ) -> Result<PartialReplies<M::Reply>, String> {
        let begun_ns = self.now().monotonic_ns;
        let mut missing: Vec<Vbids> =
            requests.iter().map(|request| request.vbids.clone()).collect();
        let mut shards = Vec::new();
        let mut unreached_ns = None;
        loop {
            let passed = Duration::from_nanos(self.now().monotonic_ns.saturating_sub(begun_ns));
            let left = left.saturating_sub(passed);
            let changed = self.map_changed.notified();
            let owners =
                self.owners(bucket).ok_or_else(|| format!("there is no bucket {bucket}"))?;
            let mut pending = Vec::new();
            for (number, request) in requests.iter().enumerate() {
                for (node, vbids) in owners.split(&missing[number]) {
                    let message = (request.message)(&vbids);
                    let writes = message.writes();
                    let asked = if node == self.id() {
                        Pending::Here(Box::new(message))
                    } else {
                        Pending::There(self.ask(node, &message, left))
                    };
                    pending.push((number, vbids, writes, asked));
                }
            }
            let is_orphan = |vbid| owners.of(vbid).is_none();
            let mut is_unreached = missing.iter().any(|vbids| vbids.iter().any(is_orphan));
            let mut reason = "some vBuckets are served by no node".to_owned();
            // Remote replies are read last, so that other nodes work while this node does its part.
            pending.sort_by_key(|(.., asked)| matches!(asked, Pending::There(_)));
            for (request, vbids, writes, asked) in pending {
                let reply = match self.finish(asked, left) {
                    Ok(Err(NoReply::NotOwner)) => {
                        "some vBuckets are being moved".clone_into(&mut reason);
                        continue;
                    }
                    Ok(Err(NoReply::NotYet(why))) => {
                        reason = why;
                        continue;
                    }
                    // It is unknown whether the write was made: only the caller can decide to repeat it.
                    Err(PeerError::Lost(why)) if writes => return Err(why),
                    Err(why) => {
                        is_unreached = true;
                        reason = why.to_string();
                        continue;
                    }
                    Ok(Err(NoReply::Failed(failure))) => Err(failure),
                    Ok(Ok(reply)) => Ok(reply),
                };
                let vbids = match &reply {
                    Ok(reply) => M::covered(reply, vbids),
                    Err(_) => vbids,
                };
                missing[request].remove_all(&vbids);
                shards.push(ShardReply { request, vbids, reply });
            }
            if missing.iter().all(Vbids::is_empty) {
                return Ok(PartialReplies { shards, missing, reason });
            }
            let now_ns = self.now().monotonic_ns;
            unreached_ns = is_unreached.then(|| unreached_ns.unwrap_or(now_ns));
            let unreached_ns = unreached_ns.map_or(0, |since_ns| now_ns.saturating_sub(since_ns));
            let is_patient = Duration::from_nanos(unreached_ns) < UNREACHED_PATIENCE;
            if left.is_zero() || !is_patient || self.is_stopping() {
                return Ok(PartialReplies { shards, missing, reason });
            }
            block::on(&*self.platform, changed, PAUSE.min(left));
        }
    }

    /// Returns the reply about one vBucket from the node that serves it.
    ///
    /// # Errors
    /// The errors of [`Node::gather`].
    pub fn ask_about<M: PeerMessage + Clone>(
        self: &Arc<Node>,
        bucket: &str,
        vbid: Vbid,
        message: &M,
        left: Duration,
    ) -> Result<Result<M::Reply, PeerFailure>, String> {
        let vbids = [vbid].into_iter().collect();
        let request = ScatterRequest { vbids, message: Box::new(|_| message.clone()) };
        let mut gathered = self.gather(bucket, &[request], left)?;
        gathered.pop().map(|shard| shard.reply).ok_or_else(|| "there is no answer".into())
    }

    fn finish<M: PeerMessage>(
        self: &Arc<Node>,
        asked: Pending<M>,
        left: Duration,
    ) -> Result<Result<M::Reply, NoReply>, PeerError> {
        match asked {
            Pending::Here(message) => Ok(message.answer(self, left)),
            Pending::There(reply) => reply.wait(),
        }
    }

    /// Returns all other nodes of the cluster.
    pub fn others(&self) -> Vec<NodeId> {
        let me = self.id();
        self.cluster().nodes.keys().copied().filter(|other| *other != me).collect()
    }

    /// Asks the other member nodes, except failed-over ones, about something that they can answer from memory, and
    /// returns the replies. Omits nodes that do not answer. Blocks for about a second at most.
    pub fn ask_members<M: PeerMessage>(&self, message: &M) -> impl Iterator<Item = M::Reply> {
        let cluster = self.cluster();
        let is_asked = |id: &NodeId| {
            cluster.nodes.get(id).is_some_and(|node| node.membership != Membership::FailedOver)
        };
        let others = self.others().into_iter().filter(is_asked);
        let asked: Vec<_> = others.map(|id| self.ask(id, message, MEMBERS_PATIENCE)).collect();
        asked.into_iter().filter_map(|reply| reply.wait().ok()?.ok())
    }

    /// Returns the nodes among `asked` that do not confirm within `left` that they have applied every change of the
    /// agreed state that this node has applied. Blocks.
    pub fn behind(&self, asked: &[NodeId], left: Duration) -> Vec<NodeId> {
        // A node answers a message only after it has applied the revision of the sender.
        let message = NodeMessage::Settled;
        let replies: Vec<_> = asked.iter().map(|id| (*id, self.ask(*id, &message, left))).collect();
        let mut behind = Vec::new();
        for (id, reply) in replies {
            if !matches!(reply.wait(), Ok(Ok(_))) {
                behind.push(id);
            }
        }
        behind
    }

    /// Sends a message to another node.
    pub fn ask<M: PeerMessage>(&self, to: NodeId, message: &M, left: Duration) -> PendingReply<M> {
        let (sender, receiver) = bounded(1);
        // Sending fails when the receiver was dropped.
        self.ask_with_callback(
            to,
            message,
            left,
            Box::new(move |answer| drop(sender.send(answer))),
        );
        PendingReply::new(receiver)
    }

    /// Sends a message to another node. `callback` receives the reply, as with [`Platform::ask`](crate::Platform::ask),
    /// and decodes it with [`read_reply`].
    pub fn ask_with_callback<M: PeerMessage>(
        &self,
        to: NodeId,
        message: &M,
        left: Duration,
        callback: ReplyCallback,
    ) {
        let bytes = question(self.cluster().rev, left, message);
        self.platform.ask(to, bytes, left, callback);
    }

    /// Answers a question of another node. Blocks for at most the time that the question allows.
    pub fn answer(self: &Arc<Node>, question: &[u8]) -> Vec<u8> {
        let refused = match postcard::take_from_bytes::<Header<'_>>(question) {
            Ok((Header { rev, left_ms, service }, message)) => {
                let left = Duration::from_millis(left_ms);
                match self.services().iter().find(|known| known.spec().id == service) {
                    None => NoReply::internal(format!("there is no service {service}")),
                    Some(_) if !self.wait_for_rev(rev, left) => NoReply::NotYet(
                        "a node has not applied the newest changes of the cluster yet".into(),
                    ),
                    Some(service) => return service.answer(self, message, left),
                }
            }
            Err(error) => NoReply::internal(format!("cannot decode a message: {error}")),
        };
        refused.to_bytes()
    }

    /// Decodes a message of type `M` from another node, counts it, and answers it. For
    /// [`Service::answer`](crate::service::Service::answer).
    pub fn answer_message<M: PeerMessage>(
        self: &Arc<Node>,
        message: &[u8],
        left: Duration,
    ) -> Vec<u8> {
        let outcome = match postcard::from_bytes::<M>(message) {
            Ok(message) => {
                *self.answered.lock().entry(message.subject()).or_default() += 1;
                message.answer(self, left)
            }
            Err(error) => Err(NoReply::internal(format!("cannot decode a message: {error}"))),
        };
        reply(&outcome)
    }

    /// Returns the number of questions that other nodes have asked since the start, by subject.
    pub fn questions(&self) -> BTreeMap<&'static str, u64> {
        self.answered.lock().clone()
    }

    /// Waits until this node has applied a revision of the agreed state. Returns false after the time limit.
    fn wait_for_rev(&self, rev: u64, left: Duration) -> bool {
        let reached = async {
            loop {
                let changed = self.map_changed.notified();
                let mut changed = std::pin::pin!(changed);
                changed.as_mut().enable();
                if self.cluster().rev >= rev {
                    return;
                }
                changed.await;
            }
        };
        self.cluster().rev >= rev || block::on(&*self.platform, reached, left).is_some()
    }
}
