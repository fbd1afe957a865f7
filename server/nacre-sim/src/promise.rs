//! Acknowledged durable writes, and the copies that must have them.

use crate::Cluster;
use crate::cluster::index;
use crate::workload::BUCKET;
use crate::world::Names;
use nacre_bucket::Bucket;
use nacre_cluster::{Chain, Cluster as Agreed};
use nacre_types::{Cas, VbState, Vbid};
use nacre_vbucket::Vbucket;
use parking_lot::MutexGuard;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Levels at which the active copy, or a majority of copies, must have persisted a write. Source: Couchbase's protocol.
const PERSIST_TO_ACTIVE: u8 = 2;
const PERSIST_TO_MAJORITY: u8 = 3;

/// Identity of a node's copy: the number of the process, and the generation of the copy.
type Life = (u32, Option<u32>);

/// A requested durable write, and the state of the cluster at that time.
pub struct Promise {
    /// The key's number and names.
    key: u16,
    names: Names,
    /// The durability level.
    level: u8,
    vbid: Vbid,
    /// True if keys may be on disk only.
    evicts_keys: bool,
    /// Identity of each node's copy.
    lives: Vec<Life>,
    /// Number of copies that the vBucket should have.
    copies: usize,
    /// The nodes of the copies, see [`places`].
    places: Vec<usize>,
    /// The term of the copy that received the request.
    term: u64,
}

impl Promise {
    /// Records a request to the node `of`.
    pub fn new(key: u16, level: u8, evicts_keys: bool, of: usize, cluster: &Cluster) -> Promise {
        let vbid = Vbid(crate::workload::vbid(key));
        let agreed = cluster.agreed();
        let copies = chain(vbid, agreed.as_deref()).map_or(0, |chain| chain.copies.len());
        let places = places(vbid, of, cluster);
        let buckets = buckets(cluster);
        let now = Holders::new(vbid, &buckets, cluster);
        let lives = (0..cluster.len()).map(|node| now.life(node)).collect();
        let term = now.of(of).map_or(0, Vbucket::term);
        let names = Names::new(&format!("k{key}"));
        Promise { key, names, level, vbid, evicts_keys, lives, copies, places, term }
    }

    /// Returns the violated guarantee, if any: a majority of copies has the version acknowledged by the node `by`, persisted as
    /// its level requires. Nodes that have ended since, and dropped copies, count as having it.
    pub fn broken_when_acknowledged(
        &self,
        cas: Cas,
        by: usize,
        cluster: &Cluster,
    ) -> Option<String> {
        let now = places(self.vbid, by, cluster);
        let places = in_order(self.places.iter().chain(&now).copied());
        let buckets = buckets(cluster);
        let holders = Holders::new(self.vbid, &buckets, cluster);
        let has = |node: usize| holders.have(self, node, cas) || holders.are_without(self, node);
        let has_stored =
            |node: usize| holders.have_stored(self, node, cas) || holders.are_without(self, node);
        let most = self.copies / 2;
        let count = places.iter().filter(|node| has(**node)).count();
        let stored = || places.iter().filter(|node| has_stored(**node)).count();
        let is_stored = match self.level {
            PERSIST_TO_ACTIVE => has_stored(by),
            PERSIST_TO_MAJORITY => stored() > most,
            _ => true,
        };
        (count <= most || !is_stored).then(|| {
            format!(
                "k{} of {} was acknowledged by {by} at level {} with {count} of {:?}, now {now:?}, and stored by {}",
                self.key,
                self.vbid,
                self.level,
                self.places,
                stored(),
            )
        })
    }
}

/// An acknowledged durable write.
struct AcknowledgedWrite {
    promise: Promise,
    cas: Cas,
    is_deletion: bool,
    /// The last term to which it may belong.
    term_max: u64,
}

/// The last acknowledged durable write of each key at each level.
#[derive(Default)]
pub struct Promises(BTreeMap<(u16, u8), AcknowledgedWrite>);

impl Promises {
    /// Records a write that the node `by` has acknowledged.
    pub fn keep(
        &mut self,
        promise: Promise,
        cas: Cas,
        is_deletion: bool,
        by: usize,
        cluster: &Cluster,
    ) {
        // The term is unknown if the process has ended since.
        if promise.lives[by] != Holders::new(promise.vbid, &buckets(cluster), cluster).life(by) {
            return;
        }
        let maps = cluster.nodes().map(|(_, node)| node.cluster());
        let term_of = |agreed: Arc<Agreed>| chain(promise.vbid, Some(&agreed)).map(|it| it.term);
        let term_max = maps.filter_map(term_of).max().unwrap_or(0);
        let key = (promise.key, promise.level);
        if self.0.get(&key).is_none_or(|known| known.cas < cas) {
            self.0.insert(key, AcknowledgedWrite { promise, cas, is_deletion, term_max });
        }
    }

    /// Returns a violated guarantee of a vBucket, if any. Each copy of the term must have all writes of earlier terms, and a
    /// majority of copies, or all existing ones, must have the writes of the term. So a potential loss is detected without a
    /// further failure.
    pub fn broken(&self, vbid: Vbid, is_ephemeral: bool, cluster: &Cluster) -> Option<String> {
        // A killed node may have been the only one with the newest decisions, and may have acted on them, for example by
        // dropping its copy.
        let newest = cluster.newest()?;
        let chain = chain(vbid, Some(&newest))?;
        let buckets = buckets(cluster);
        let holders = Holders::new(vbid, &buckets, cluster);
        let kept = self.0.values().filter(|kept| kept.promise.vbid == vbid);
        // Copies without a store purge tombstones after a while.
        let mut kept = kept.filter(|kept| !(is_ephemeral && kept.is_deletion));
        kept.find_map(|kept| kept.broken(chain, &holders))
    }
}

impl AcknowledgedWrite {
    fn broken(&self, chain: &Chain, holders: &Holders) -> Option<String> {
        let what = match self.term_max < chain.term {
            true => {
                let liar = self.liar(chain, holders)?;
                format!("node {liar} counts as one of term {} without it", chain.term)
            }
            false if self.promise.term == chain.term => {
                let nodes = || chain.copies.iter().flatten().copied().map(index);
                let count = nodes().filter(|node| self.is_kept_by(*node, holders)).count();
                if count > chain.copies.len() / 2 || count == nodes().count() {
                    return None;
                }
                format!("it is kept by {count} of {}", nodes().count())
            }
            false => return None,
        };
        let AcknowledgedWrite { promise: Promise { key, vbid, level, term, .. }, term_max, .. } =
            self;
        Some(format!(
            "k{key} of {vbid}, level {level}, acknowledged in terms {term} to {term_max}: {what}"
        ))
    }

    /// Returns a copy of the term that lacks writes of earlier terms. They must be persisted unless the copy began the term
    /// itself.
    fn liar(&self, chain: &Chain, holders: &Holders) -> Option<usize> {
        let mut involved = chain.copies.iter().chain(&chain.next).flatten().copied().map(index);
        let counts = |node: usize| holders.of(node).is_some_and(|copy| copy.term() >= chain.term);
        let began = chain.active().map(index);
        let has = |node: usize| match self.promise.level {
            PERSIST_TO_MAJORITY if began != Some(node) => {
                holders.have_stored(&self.promise, node, self.cas)
            }
            _ => holders.have(&self.promise, node, self.cas),
        };
        involved.find(|node| counts(*node) && !has(*node))
    }

    /// Returns true if a copy has the writes acknowledged in its term.
    fn is_kept_by(&self, node: usize, holders: &Holders) -> bool {
        let AcknowledgedWrite { promise, cas, .. } = self;
        match promise.level {
            PERSIST_TO_MAJORITY => {
                let (_, generation) = holders.life(node);
                let has_restarted = generation.is_some() && generation != promise.lives[node].1;
                has_restarted || holders.have_stored(promise, node, *cas)
            }
            _ => holders.have(promise, node, *cas) || holders.are_without(promise, node),
        }
    }
}

/// The current copies of a vBucket on each node.
struct Holders<'a> {
    vbid: Vbid,
    cluster: &'a Cluster,
    nodes: Vec<Option<MutexGuard<'a, Vbucket>>>,
}

impl<'a> Holders<'a> {
    fn new(vbid: Vbid, buckets: &'a [Option<Arc<Bucket>>], cluster: &'a Cluster) -> Holders<'a> {
        let nodes = buckets.iter().map(|bucket| bucket.as_ref()?.vbucket(vbid)).collect();
        Holders { vbid, cluster, nodes }
    }

    fn of(&self, node: usize) -> Option<&Vbucket> {
        self.nodes[node].as_deref()
    }

    fn life(&self, node: usize) -> Life {
        (self.cluster.life(node), self.of(node).map(Vbucket::generation))
    }

    /// Returns true if the copy that a node had at the request is lost with its process, or was dropped.
    fn are_without(&self, promise: &Promise, node: usize) -> bool {
        self.life(node) != promise.lives[node]
            || self.of(node).is_none_or(|copy| copy.state() == VbState::Dead)
    }

    /// Returns true if a node has a version of the key, committed or prepared.
    fn have(&self, promise: &Promise, node: usize, cas: Cas) -> bool {
        let key = promise.names.committed.prefixed();
        let has = |copy: &Vbucket| {
            copy.find(key).is_some_and(|version| version.meta.cas >= cas)
                || copy.prepared_documents().any(|it| it.name() == key && it.meta.cas >= cas)
        };
        self.of(node).is_some_and(has)
            || promise.evicts_keys && self.have_stored(promise, node, cas)
    }

    fn have_stored(&self, promise: &Promise, node: usize, cas: Cas) -> bool {
        self.cluster.disk(node).has(self.vbid, &promise.names, cas)
    }
}

/// Returns the bucket on each running node.
fn buckets(cluster: &Cluster) -> Vec<Option<Arc<Bucket>>> {
    (0..cluster.len()).map(|node| cluster.node(node)?.bucket(BUCKET)).collect()
}

/// Returns the chain of a vBucket in an agreed state.
fn chain(vbid: Vbid, agreed: Option<&Agreed>) -> Option<&Chain> {
    agreed?.buckets.get(BUCKET)?.chains.get(usize::from(vbid.0))
}

/// Returns the nodes of a vBucket's copies, by the newest agreed state and by the one that node `by` knows, by which it
/// serves.
fn places(vbid: Vbid, by: usize, cluster: &Cluster) -> Vec<usize> {
    let (agreed, known) = (cluster.agreed(), cluster.node(by).map(|node| node.cluster()));
    let chains = [agreed.as_deref(), known.as_deref()].map(|map| chain(vbid, map));
    let nodes = chains.into_iter().flatten().flat_map(|chain| &chain.copies);
    in_order(nodes.flatten().copied().map(index))
}

/// Sorts nodes and removes duplicates.
fn in_order(nodes: impl Iterator<Item = usize>) -> Vec<usize> {
    let mut nodes: Vec<usize> = nodes.collect();
    nodes.sort_unstable();
    nodes.dedup();
    nodes
}
