//! Conditions that must hold once the clusters are at rest.

use super::ledger::Lineage;
use super::simulation::{Simulation, Summary};
use super::target::shown;
use nacre_types::{CollectionId, DocKey, Document, Meta, Seqno, Vbid};
use nacre_value::xattr::Xattrs;
use nacre_vbucket::Resolution;
use nacre_xdcr::{History, Policy, attribute, known_here};

/// Maximum number of merges after the last write, per document and pair of clusters.
const MADE_MAX: u64 = 2;

/// The parts of a document that must be equal in all clusters.
#[derive(Debug, PartialEq, Eq)]
struct Content {
    meta: Meta,
    body: Vec<u8>,
    attributes: Vec<(String, Vec<u8>)>,
    history: Option<History>,
}

fn content(world: &Simulation, cluster: usize, document: &Document) -> Content {
    let attributes = Xattrs::parse(document.xattrs()).expect("attributes are well-formed");
    let others = attributes.iter().filter(|(name, _)| *name != attribute::HISTORY);
    Content {
        // A version has another seqno in each history, and the attribute of its own cluster's version is computed when it leaves.
        meta: Meta { seqno: Seqno::ZERO, datatype: 0, ..document.meta },
        body: document.body().to_vec(),
        attributes: others.map(|(name, value)| (name.to_owned(), value.to_vec())).collect(),
        // Without a resolver no cluster reads histories: clusters that made the same version at the same time, for example
        // by an expiry, keep their own histories.
        history: known_here(document, &world.plan.clusters[cluster].site)
            .history
            .filter(|_| matches!(world.plan.policy, Policy::Resolver(_))),
    }
}

fn find<'a>(world: &'a Simulation, cluster: usize, key: &[u8]) -> Option<&'a Document> {
    let vbid = Vbid::of(&key[1..], world.plan.clusters[cluster].vbuckets);
    world.clusters[cluster].vbuckets[vbid.index()].active.find(key)
}

/// Checks that every pair of clusters has the same documents, and that every lost acknowledged write is accounted for.
pub(super) fn converged(world: &Simulation) {
    for name in &world.plan.keys {
        let key = DocKey::new(CollectionId::DEFAULT, name.as_bytes());
        let key = key.prefixed();
        if world.plan.is_refused(key) {
            continue;
        }
        for cluster in 1..world.clusters.len() {
            let pair = (find(world, 0, key), find(world, cluster, key));
            assert!(
                is_same(world, key, pair, cluster),
                "{name} differs: {:#?} in cluster 0, {:#?} in cluster {cluster}; noticed {:?}",
                pair.0.map(|it| content(world, 0, it)),
                pair.1.map(|it| content(world, cluster, it)),
                world.noticed
            );
        }
        nothing_lost(world, key);
    }
}

fn is_same(
    world: &Simulation,
    key: &[u8],
    pair: (Option<&Document>, Option<&Document>),
    cluster: usize,
) -> bool {
    let is_excused = || {
        let is_of = |(cluster, vbid): &(usize, Vbid)| {
            Vbid::of(&key[1..], world.plan.clusters[*cluster].vbuckets) == *vbid
        };
        world.plan.mix.purges > 0 && world.noticed.iter().any(is_of)
    };
    match pair {
        (None, None) => true,
        // One side may have purged the tombstone.
        (Some(one), None) | (None, Some(one)) => {
            (!one.is_alive() && (world.plan.mix.purges > 0)) || is_excused()
        }
        (Some(left), Some(right)) => {
            content(world, 0, left) == content(world, cluster, right)
                || (!left.is_alive() && !right.is_alive() && world.plan.mix.purges > 0)
                || is_excused()
        }
    }
}

fn nothing_lost(world: &Simulation, key: &[u8]) {
    let Some(last) = find(world, 0, key).filter(|_| world.plan.mix.purges == 0) else {
        let kept = world.ledger.writes().find(|(_, it)| it.key == key && !it.is_lost);
        assert!(
            world.plan.mix.purges > 0 || kept.is_none(),
            "{} is nowhere, and was written: {kept:?}",
            shown(key)
        );
        return;
    };
    let of_key = world.ledger.writes().filter(|(_, it)| it.key == key && !it.is_lost);
    let lineage: Lineage = world.ledger.of(0, key, Some(last.meta.cas));
    for (number, write) in of_key {
        let rank = |rule: Resolution, cas, rev| match rule {
            Resolution::LastWriteWins => (cas, rev),
            Resolution::Seqno => (rev, cas),
        };
        let is_kept = match world.plan.policy {
            Policy::Resolver(_) => {
                world.ledger.missed(key, &Lineage::from([number]), &lineage).is_empty()
            }
            Policy::Rule(rule) => {
                rank(rule, last.meta.cas.0, last.meta.rev) >= rank(rule, write.cas.0, write.rev)
            }
        };
        assert!(is_kept, "write {number} is lost: {write:?}, {last:?} has {lineage:?}");
    }
}

/// Checks that replication terminates: after the last write, each version that is not everywhere crosses each link at most
/// once, and replication makes few new versions.
///
/// A merge is a version, and two clusters that replicate to each other may each merge the same conflict at the same time.
/// These merges are equal, so the lesser one ends where it meets the other. No cluster can know that the other is about to
/// merge, so this cannot be avoided; and with n clusters in a mesh, up to n - 1 merges of each meet before one of them
/// contains all. Hence the bound on versions is per pair of clusters, not per cluster.
pub(super) fn bounded(world: &Simulation) {
    let links = world.links.len() as u64;
    let (keys, clusters) = (world.plan.keys.len() as u64, world.clusters.len() as u64);
    let Summary { messages_at_end: sent, pending_at_end: pending, made_at_end: made, .. } =
        world.summary;
    assert!(
        made <= MADE_MAX * keys * clusters * (clusters - 1) + pending,
        "{made} versions were made after the last write, of {keys} documents in {clusters} clusters"
    );
    let spread = world.spread.len() as u64;
    assert!(
        sent <= pending + (keys + spread) * links,
        "{sent} messages after the last write, for {pending} and {spread} versions over {links} links"
    );
}
