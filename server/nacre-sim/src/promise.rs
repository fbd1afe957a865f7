//! What was acknowledged as durable, and which copies must have it.

use crate::Cluster;
use crate::cluster::index;
use crate::workload::BUCKET;
use nacre_cluster::{Chain, Cluster as Agreed};
use nacre_node::Bucket;
use nacre_types::{Cas, CollectionId, DocKey, NodeId, VbState, Vbid};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Levels at which the active copy, or most copies, must have stored a write. Source: Couchbase's protocol.
const PERSIST_TO_ACTIVE: u8 = 2;
const PERSIST_TO_MAJORITY: u8 = 3;

/// What of a node keeps what it has acknowledged: its process, and the copy that it has, counted.
type Life = (u32, Option<u32>);

/// A durable write that is asked for, and how things were then.
pub struct Promise {
    /// The key's number.
    key: u16,
    /// The durability level.
    level: u8,
    vbid: Vbid,
    /// Whether keys may be on disk only.
    evicts_keys: bool,
    /// Of each node.
    lives: Vec<Life>,
    /// How many copies the vBucket is to have.
    copies: usize,
    /// Where they were, see [`places`].
    places: Vec<usize>,
    /// The term of the copy that was asked.
    term: u64,
}

impl Promise {
    /// What is asked of the node `of` now.
    pub fn new(key: u16, level: u8, evicts_keys: bool, of: usize, cluster: &Cluster) -> Promise {
        let vbid = Vbid(crate::workload::vbid(key));
        let lives = lives(vbid, cluster);
        let copies = chain(vbid, cluster.agreed().as_deref()).map_or(0, |chain| chain.copies.len());
        let places = places(vbid, of, cluster);
        let bucket = bucket(of, cluster);
        let term = bucket.and_then(|bucket| Some(bucket.vbucket(vbid)?.term())).unwrap_or(0);
        Promise { key, level, vbid, evicts_keys, lives, copies, places, term }
    }

    fn name(&self) -> DocKey {
        DocKey::new(CollectionId::DEFAULT, format!("k{}", self.key).as_bytes())
    }

    /// Whether what a node had then is lost with its process, or with the copy.
    fn is_gone(&self, node: usize, cluster: &Cluster) -> bool {
        let life = (cluster.life(node), generation(self.vbid, node, cluster));
        let is_dead = |bucket: &Bucket| {
            bucket.vbucket(self.vbid).is_none_or(|copy| copy.state() == VbState::Dead)
        };
        life != self.lives[node] || bucket(node, cluster).is_none_or(|bucket| is_dead(&bucket))
    }

    /// Whether a node has a version of the key, committed or prepared.
    fn is_at(&self, node: usize, cas: Cas, cluster: &Cluster) -> bool {
        let key = self.name();
        let is_in = |bucket: &Bucket| {
            bucket.vbucket(self.vbid).is_some_and(|copy| {
                let prepared = copy.prepared_documents().filter(|it| it.name() == key.prefixed());
                let mut versions = copy.find(key.prefixed()).into_iter().chain(prepared);
                versions.any(|version| version.meta.cas >= cas)
            })
        };
        bucket(node, cluster).is_some_and(|bucket| is_in(&bucket))
            || self.evicts_keys && self.is_stored_at(node, cas, cluster)
    }

    fn is_stored_at(&self, node: usize, cas: Cas, cluster: &Cluster) -> bool {
        cluster.disk(node).has(self.vbid, &self.name(), cas)
    }

    /// Sees to it that most copies have a version that was acknowledged by the node `by`, and that it is stored where its level
    /// says. Of nodes that have ended meanwhile, and of copies that were dropped, it is believed.
    ///
    /// # Panics
    /// When it is not so.
    pub fn look_when_acknowledged(&self, cas: Cas, by: usize, cluster: &Cluster) {
        let now = places(self.vbid, by, cluster);
        let places = in_order(self.places.iter().chain(&now).copied());
        let has = |node: usize| self.is_at(node, cas, cluster) || self.is_gone(node, cluster);
        let has_stored =
            |node: usize| self.is_stored_at(node, cas, cluster) || self.is_gone(node, cluster);
        let most = self.copies / 2;
        let count = places.iter().filter(|node| has(**node)).count();
        let stored = || places.iter().filter(|node| has_stored(**node)).count();
        let is_stored = match self.level {
            PERSIST_TO_ACTIVE => has_stored(by),
            PERSIST_TO_MAJORITY => stored() > most,
            _ => true,
        };
        assert!(
            count > most && is_stored,
            "k{} of {} was acknowledged by {by} at level {} with {count} of {:?}, now {now:?}, and stored by {}",
            self.key,
            self.vbid,
            self.level,
            self.places,
            stored(),
        );
    }
}

/// A durable write that was acknowledged.
struct Kept {
    promise: Promise,
    cas: Cas,
    is_deletion: bool,
    /// The last term in which that may have been.
    term_max: u64,
}

/// The last durable writes that were acknowledged: of each key, at each level.
#[derive(Default)]
pub struct Promises(BTreeMap<(u16, u8), Kept>);

impl Promises {
    /// Such a write was acknowledged by the node `by`.
    pub fn keep(
        &mut self,
        promise: Promise,
        cas: Cas,
        is_deletion: bool,
        by: usize,
        cluster: &Cluster,
    ) {
        // Nothing is known of the term of one that has ended since.
        if promise.lives[by] != (cluster.life(by), generation(promise.vbid, by, cluster)) {
            return;
        }
        let maps = cluster.nodes().map(|(_, node)| node.cluster());
        let term_of = |agreed: Arc<Agreed>| chain(promise.vbid, Some(&agreed)).map(|it| it.term);
        let term_max = maps.filter_map(term_of).max().unwrap_or(0);
        let key = (promise.key, promise.level);
        if self.0.get(&key).is_none_or(|known| known.cas < cas) {
            self.0.insert(key, Kept { promise, cas, is_deletion, term_max });
        }
    }

    /// What of a vBucket is not where it must be. Whoever counts as a copy of the term has all of the terms before; of this term
    /// most copies have what is acknowledged, or all that are there. So it does not take the next failure to see that something
    /// would be lost with it.
    pub fn broken(&self, vbid: Vbid, is_ephemeral: bool, cluster: &Cluster) -> Option<String> {
        let newest = cluster.nodes().map(|(_, node)| node.cluster()).max_by_key(|map| map.rev)?;
        let chain = chain(vbid, Some(&newest))?;
        let kept = self.0.values().filter(|kept| kept.promise.vbid == vbid);
        // Copies without a store forget deletions after a while.
        let mut kept = kept.filter(|kept| !(is_ephemeral && kept.is_deletion));
        kept.find_map(|kept| kept.broken(chain, cluster))
    }
}

impl Kept {
    fn broken(&self, chain: &Chain, cluster: &Cluster) -> Option<String> {
        let what = match self.term_max < chain.term {
            true => {
                let liar = self.liar(chain, cluster)?;
                format!("node {liar} counts as one of term {} without it", chain.term)
            }
            false if self.promise.term == chain.term => {
                let (count, copies) = self.count(chain, cluster);
                if count > chain.copies.len() / 2 || count == copies {
                    return None;
                }
                format!("it is kept by {count} of {copies}")
            }
            false => return None,
        };
        let Kept { promise: Promise { key, vbid, level, term, .. }, term_max, .. } = self;
        Some(format!(
            "k{key} of {vbid}, level {level}, acknowledged in terms {term} to {term_max}: {what}"
        ))
    }

    /// A copy that counts as one of the term, and has not all of the terms before.
    fn liar(&self, chain: &Chain, cluster: &Cluster) -> Option<usize> {
        let involved = chain.copies.iter().chain(&chain.next).flatten().copied().map(index);
        let counts = |node: usize| {
            let bucket = bucket(node, cluster)?;
            Some(bucket.vbucket(self.promise.vbid)?.term() >= chain.term)
        };
        let lies = |node: &usize| {
            counts(*node) == Some(true) && !self.promise.is_at(*node, self.cas, cluster)
        };
        in_order(involved).into_iter().find(lies)
    }

    /// How many copies have what was acknowledged in the term that it is, and of how many.
    fn count(&self, chain: &Chain, cluster: &Cluster) -> (usize, usize) {
        let Kept { promise, cas, .. } = self;
        let keeps = |node: usize| match promise.level {
            PERSIST_TO_MAJORITY => {
                let began_anew = generation(promise.vbid, node, cluster)
                    .is_some_and(|generation| Some(generation) != promise.lives[node].1);
                began_anew || promise.is_stored_at(node, *cas, cluster)
            }
            _ => promise.is_at(node, *cas, cluster) || promise.is_gone(node, cluster),
        };
        let copies = || chain.copies.iter().flatten().copied().map(index);
        (copies().filter(|node| keeps(*node)).count(), copies().count())
    }
}

fn bucket(node: usize, cluster: &Cluster) -> Option<Arc<Bucket>> {
    cluster.node(node)?.bucket(BUCKET)
}

fn generation(vbid: Vbid, node: usize, cluster: &Cluster) -> Option<u32> {
    Some(bucket(node, cluster)?.vbucket(vbid)?.generation())
}

/// That of each node, for a vBucket.
fn lives(vbid: Vbid, cluster: &Cluster) -> Vec<Life> {
    let life = |node: usize| (cluster.life(node), generation(vbid, node, cluster));
    (0..cluster.len()).map(life).collect()
}

/// The copies of a vBucket, as `agreed`.
fn chain(vbid: Vbid, agreed: Option<&Agreed>) -> Option<&Chain> {
    agreed?.buckets.get(BUCKET)?.chains.get(usize::from(vbid.0))
}

/// The nodes of a vBucket's copies by what was agreed last, and by what node `by` knows of that: it serves by it.
fn places(vbid: Vbid, by: usize, cluster: &Cluster) -> Vec<usize> {
    let (agreed, known) = (cluster.agreed(), cluster.node(by).map(|node| node.cluster()));
    let chains = [agreed.as_deref(), known.as_deref()].map(|map| chain(vbid, map));
    let nodes = chains.into_iter().flatten().flat_map(|chain| &chain.copies);
    in_order(nodes.flatten().copied().map(|node: NodeId| index(node)))
}

/// Each node once.
fn in_order(nodes: impl Iterator<Item = usize>) -> Vec<usize> {
    let mut nodes: Vec<usize> = nodes.collect();
    nodes.sort_unstable();
    nodes.dedup();
    nodes
}
