//! What was acknowledged as durable, and which copies must have it.

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

/// Levels at which the active copy, or most copies, must have stored a write. Source: Couchbase's protocol.
const PERSIST_TO_ACTIVE: u8 = 2;
const PERSIST_TO_MAJORITY: u8 = 3;

/// What of a node keeps what it has acknowledged: its process, and the copy that it has, counted.
type Life = (u32, Option<u32>);

/// A durable write that is asked for, and how things were then.
pub struct Promise {
    /// The key's number, and its names.
    key: u16,
    names: Names,
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

    /// What is not so of this: most copies have a version that was acknowledged by the node `by`, and it is stored where its level
    /// says. Of nodes that have ended meanwhile, and of copies that were dropped, it is believed.
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
        if promise.lives[by] != Holders::new(promise.vbid, &buckets(cluster), cluster).life(by) {
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
        // A node that was killed may have been the only one to know, and acted on that: its copy was to be dropped, perhaps.
        let newest = cluster.newest()?;
        let chain = chain(vbid, Some(&newest))?;
        let buckets = buckets(cluster);
        let holders = Holders::new(vbid, &buckets, cluster);
        let kept = self.0.values().filter(|kept| kept.promise.vbid == vbid);
        // Copies without a store forget deletions after a while.
        let mut kept = kept.filter(|kept| !(is_ephemeral && kept.is_deletion));
        kept.find_map(|kept| kept.broken(chain, &holders))
    }
}

impl Kept {
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
        let Kept { promise: Promise { key, vbid, level, term, .. }, term_max, .. } = self;
        Some(format!(
            "k{key} of {vbid}, level {level}, acknowledged in terms {term} to {term_max}: {what}"
        ))
    }

    /// A copy that counts as one of the term, and has not all of the terms before; stored, where it did not begin the term itself.
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

    /// Whether a copy has what was acknowledged in the term that it is.
    fn is_kept_by(&self, node: usize, holders: &Holders) -> bool {
        let Kept { promise, cas, .. } = self;
        match promise.level {
            PERSIST_TO_MAJORITY => {
                let (_, generation) = holders.life(node);
                let began_anew = generation.is_some() && generation != promise.lives[node].1;
                began_anew || holders.have_stored(promise, node, *cas)
            }
            _ => holders.have(promise, node, *cas) || holders.are_without(promise, node),
        }
    }
}

/// What each node has of a vBucket now.
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

    /// Whether what a node had when something was asked for is lost with its process, or with the copy.
    fn are_without(&self, promise: &Promise, node: usize) -> bool {
        self.life(node) != promise.lives[node]
            || self.of(node).is_none_or(|copy| copy.state() == VbState::Dead)
    }

    /// Whether a node has a version of the key, committed or prepared.
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

/// That of each node that is up.
fn buckets(cluster: &Cluster) -> Vec<Option<Arc<Bucket>>> {
    (0..cluster.len()).map(|node| cluster.node(node)?.bucket(BUCKET)).collect()
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
    in_order(nodes.flatten().copied().map(index))
}

/// Each node once.
fn in_order(nodes: impl Iterator<Item = usize>) -> Vec<usize> {
    let mut nodes: Vec<usize> = nodes.collect();
    nodes.sort_unstable();
    nodes.dedup();
    nodes
}
