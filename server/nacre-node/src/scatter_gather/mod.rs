//! What is spread over the nodes, put together: each node answers for the vBuckets that it serves.
//!
//! ```text
//! Node::gather ─► who serves what ─┬─► Node::reply, on this node
//!                                  └─► Platform::ask ─► Node::answer ─► Node::reply, on another one
//! ```
//!
//! An answer is about exactly the vBuckets that were asked about. A node that does not serve all of them, or did not while
//! it answered, says so ([`Answer::Elsewhere`]), and they are asked for again where they are served now: each vBucket counts
//! once, also while it moves.

mod documents;
mod question;
mod reply;
mod unbuilt;
mod usage;

pub(crate) use documents::ClusterDocuments;
pub(crate) use nacre_types::Vbids;
pub(crate) use question::{
    Answer, CollectionCall, IndexPart, Place, Question, RequestPart, ScanPart, StateName,
};
pub(crate) use reply::failed;
pub use usage::Usage;

use crate::block;
use crate::node::Node;
use crate::platform::{PeerError, ReplyCallback};
use crossbeam_channel::{Receiver, bounded};
use nacre_bucket::before_blocking;
use nacre_cluster::Membership;
use nacre_types::{NodeId, Vbid};
use question::Asked;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// How soon is asked again what could not be answered, unless the cluster changes before.
const PAUSE: Duration = Duration::from_millis(10);
/// How long members have to say what they know already.
const MEMBERS_PATIENCE: Duration = Duration::from_secs(1);
/// How long a node that cannot be reached is asked again before that is an error: another one may take its place meanwhile.
pub(crate) const UNREACHED_PATIENCE: Duration = Duration::from_secs(10);

/// Which node serves which vBuckets of a bucket.
pub(crate) struct Owners {
    /// The revision of the agreed state that says so.
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

    /// The vBucket of a key.
    pub fn vbid_of(&self, key: &[u8]) -> Vbid {
        Vbid::of(key, self.by_vbid.len() as u16)
    }

    /// Who serves a vBucket, if somebody does.
    pub fn of(&self, vbid: Vbid) -> Option<NodeId> {
        self.by_vbid.get(vbid.index()).copied().flatten()
    }

    /// Who serves any.
    pub fn nodes(&self) -> Vec<NodeId> {
        self.by_node.iter().map(|(node, _)| *node).collect()
    }

    /// All vBuckets.
    pub fn all(&self) -> Vbids {
        Vbids::first(self.by_vbid.len() as u16)
    }

    /// The node that serves all of them, if one does.
    pub fn only(&self) -> Option<NodeId> {
        match &self.by_node[..] {
            [(node, vbids)] if *vbids == self.all() => Some(*node),
            _ => None,
        }
    }

    /// Some vBuckets, by who serves them; those that nobody serves are left out.
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

/// One question about a set of vBuckets, asked at each node that serves some of them.
pub(crate) struct ScatterRequest<'a> {
    /// vBuckets to ask about.
    pub vbids: Vbids,
    /// What is asked about those of them that one node serves.
    pub question: Box<dyn Fn(&Vbids) -> Question + 'a>,
}

/// The reply of one node about the vBuckets that it serves.
pub(crate) struct ShardReply {
    /// Which of the [`ScatterRequest`]s it is about.
    pub want: usize,
    /// The vBuckets.
    pub vbids: Vbids,
    /// What it said; never [`Answer::Elsewhere`] nor [`Answer::NotYet`].
    pub answer: Answer,
}

/// Where the answer to a question that was sent arrives.
pub(crate) type Answered = Receiver<Result<Vec<u8>, PeerError>>;

/// A question on its way.
enum Pending {
    Here(Box<Question>),
    There(Answered),
}

impl Node {
    /// Who serves what of a bucket; `None` when there is no such bucket.
    pub(crate) fn owners(&self, bucket: &str) -> Option<Arc<Owners>> {
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

    /// The vBuckets of documents of a bucket; `None` when there is no such bucket.
    pub fn vbids_of<'k>(
        &self,
        bucket: &str,
        keys: impl IntoIterator<Item = &'k [u8]>,
    ) -> Option<Vbids> {
        let owners = self.owners(bucket)?;
        Some(keys.into_iter().map(|key| owners.vbid_of(key)).collect())
    }

    /// Asks about vBuckets of a bucket, each where it is served; of all of them, or of none. Blocks: not for a thread that
    /// others wait for.
    ///
    /// # Errors
    /// Why there is no answer about some of them, for people.
    pub(crate) fn gather(
        self: &Arc<Node>,
        bucket: &str,
        wants: &[ScatterRequest<'_>],
        left: Duration,
    ) -> Result<Vec<ShardReply>, String> {
        let begun_ns = self.now().monotonic_ns;
        let mut missing: Vec<Vbids> = wants.iter().map(|want| want.vbids.clone()).collect();
        let mut gathered = Vec::new();
        let mut unreached_ns = None;
        loop {
            let passed = Duration::from_nanos(self.now().monotonic_ns.saturating_sub(begun_ns));
            let left = left.saturating_sub(passed);
            let changed = self.map_changed.notified();
            let owners =
                self.owners(bucket).ok_or_else(|| format!("there is no bucket {bucket}"))?;
            let mut pending = Vec::new();
            for (number, want) in wants.iter().enumerate() {
                for (node, vbids) in owners.split(&missing[number]) {
                    let question = (want.question)(&vbids);
                    let writes = question.writes();
                    let asked = match node == self.id() {
                        true => Pending::Here(Box::new(question)),
                        false => Pending::There(self.ask(node, question, left)),
                    };
                    pending.push((number, vbids, writes, asked));
                }
            }
            let is_orphan = |vbid| owners.of(vbid).is_none();
            let mut is_unreached = missing.iter().any(|vbids| vbids.iter().any(is_orphan));
            let mut reason = "some vBuckets are served by no node".to_owned();
            // Others work while this node does its part.
            pending.sort_by_key(|(.., asked)| matches!(asked, Pending::There(_)));
            for (want, vbids, writes, asked) in pending {
                match self.hear_answer(asked, left) {
                    Ok(Answer::Elsewhere) => {
                        "some vBuckets are on the move".clone_into(&mut reason)
                    }
                    Ok(Answer::NotYet(why)) => reason = why,
                    Ok(answer) => {
                        let vbids = answer.is_about(vbids);
                        missing[want].remove_all(&vbids);
                        gathered.push(ShardReply { want, vbids, answer });
                    }
                    // Nobody knows whether it was done: to do it again is for who asks.
                    Err(PeerError::Lost(why)) if writes => return Err(why),
                    Err(why) => {
                        is_unreached = true;
                        reason = why.to_string();
                    }
                }
            }
            if missing.iter().all(Vbids::is_empty) {
                return Ok(gathered);
            }
            let now_ns = self.now().monotonic_ns;
            unreached_ns = is_unreached.then(|| unreached_ns.unwrap_or(now_ns));
            let unreached_ns = unreached_ns.map_or(0, |since_ns| now_ns.saturating_sub(since_ns));
            let is_patient = Duration::from_nanos(unreached_ns) < UNREACHED_PATIENCE;
            if left.is_zero() || !is_patient || self.is_stopping() {
                return Err(reason);
            }
            block::on(&*self.platform, changed, PAUSE.min(left));
        }
    }

    /// The answer about one vBucket, from where it is served.
    ///
    /// # Errors
    /// As for [`Node::gather`].
    pub(crate) fn ask_about(
        self: &Arc<Node>,
        bucket: &str,
        vbid: Vbid,
        question: &Question,
        left: Duration,
    ) -> Result<Answer, String> {
        let vbids = [vbid].into_iter().collect();
        let want = ScatterRequest { vbids, question: Box::new(|_| question.clone()) };
        let mut gathered = self.gather(bucket, &[want], left)?;
        gathered.pop().map(|gathered| gathered.answer).ok_or_else(|| "there is no answer".into())
    }

    fn hear_answer(self: &Arc<Node>, asked: Pending, left: Duration) -> Result<Answer, PeerError> {
        match asked {
            Pending::Here(question) => Ok(self.reply(*question, left)),
            Pending::There(answer) => self.answered(&answer),
        }
    }

    /// Waits for the answer to a question that was sent.
    pub(crate) fn answered(&self, answer: &Answered) -> Result<Answer, PeerError> {
        let lost = |why: String| PeerError::Lost(why);
        before_blocking();
        let bytes = answer.recv().map_err(|_| lost("the node ends".into()))??;
        postcard::from_bytes(&bytes)
            .map_err(|error| lost(format!("an answer cannot be read: {error}")))
    }

    /// All other nodes of the cluster.
    pub(crate) fn others(&self) -> Vec<NodeId> {
        let me = self.id();
        self.cluster().nodes.keys().copied().filter(|other| *other != me).collect()
    }

    /// What the other nodes say that have a part in the cluster, about what they know already. One that does not answer is left
    /// out. Blocks, for about a second at most.
    fn ask_members(&self, question: &Question) -> impl Iterator<Item = Answer> {
        let cluster = self.cluster();
        let is_asked = |id: &NodeId| {
            cluster.nodes.get(id).is_some_and(|node| node.membership != Membership::FailedOver)
        };
        let others = self.others().into_iter().filter(is_asked);
        let asked: Vec<_> =
            others.map(|id| self.ask(id, question.clone(), MEMBERS_PATIENCE)).collect();
        asked.into_iter().filter_map(|answer| self.answered(&answer).ok())
    }

    /// Sends a question to another node.
    pub(crate) fn ask(&self, to: NodeId, question: Question, left: Duration) -> Answered {
        let (tell, told) = bounded(1);
        // Fails when nobody wants to know any more.
        self.ask_then(to, question, left, Box::new(move |answer| drop(tell.send(answer))));
        told
    }

    /// Sends a question to another node; `told` gets the answer, as with [`Platform::ask`](crate::Platform::ask).
    pub(crate) fn ask_then(
        &self,
        to: NodeId,
        question: Question,
        left: Duration,
        told: ReplyCallback,
    ) {
        let left_ms = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
        let asked = Asked { rev: self.cluster().rev, left_ms, question };
        let bytes = postcard::to_stdvec(&asked).expect("questions are plain data");
        self.platform.ask(to, bytes, left, told);
    }

    /// Answers a question of another node. Blocks as long as the question allows.
    pub fn answer(self: &Arc<Node>, asked: &[u8]) -> Vec<u8> {
        let answer = match postcard::from_bytes::<Asked>(asked) {
            Ok(Asked { rev, left_ms, question }) => {
                *self.answered.lock().entry(question.subject()).or_default() += 1;
                let left = Duration::from_millis(left_ms);
                match self.knows(rev, left) {
                    true => self.reply(question, left),
                    false => Answer::NotYet("a node does not know the newest decisions".into()),
                }
            }
            Err(error) => failed(format!("a question cannot be read: {error}")),
        };
        postcard::to_stdvec(&answer).expect("answers are plain data")
    }

    /// How many questions of other nodes this one was asked since it started, by what they are about.
    pub fn questions(&self) -> BTreeMap<&'static str, u64> {
        self.answered.lock().clone()
    }

    /// Waits until this node knows what was agreed up to a revision.
    fn knows(&self, rev: u64, left: Duration) -> bool {
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
