//! Accounts for every write of a client.
//!
//! Every version in every cluster has a lineage: the writes that it accounts for, because it contains them, was written
//! over them, or was decided against them. Decisions that a cluster makes by histories must agree with that: a version
//! may replace another one without a question only if it accounts for the whole lineage of the other.

use nacre_types::{Cas, Seqno, Vbid};
use std::collections::{BTreeMap, BTreeSet};

/// Writes by number.
pub type Lineage = BTreeSet<u32>;

/// An acknowledged write.
#[derive(Clone, Debug)]
pub struct Write {
    /// The cluster.
    pub cluster: usize,
    /// The vBucket of the cluster.
    pub vbid: Vbid,
    /// The key.
    pub key: Vec<u8>,
    /// The seqno.
    pub seqno: Seqno,
    /// Its CAS.
    pub cas: Cas,
    /// Its revision.
    pub rev: u64,
    /// True if its cluster has lost it since, because it was not durable.
    pub is_lost: bool,
}

/// A version that a cluster has stored, identified by the cluster's own version in it.
#[derive(Clone, Debug)]
struct Stored {
    cluster: usize,
    vbid: Vbid,
    key: Vec<u8>,
    seqno: Seqno,
    /// The newest version of the cluster itself that went into it.
    own: Cas,
}

/// A version that a cluster has lost.
#[derive(Clone, Copy, Debug)]
struct Lost {
    own: Cas,
    /// Number of the first write after the loss.
    before: u32,
}

/// All writes, and the lineages of all versions.
#[derive(Debug, Default)]
pub struct Ledger {
    writes: Vec<Write>,
    lineages: BTreeMap<(usize, Vec<u8>, Cas), Lineage>,
    /// Writes that may be missing: those of a deletion that yielded to a concurrent deletion, and those in the lost end of a
    /// history.
    settled: BTreeMap<Vec<u8>, Lineage>,
    /// Lineages of keys of which a cluster has no version left.
    forgotten: BTreeMap<(usize, Vec<u8>), Lineage>,
    /// Every version in the histories of the clusters, including superseded ones. Each may have reached another cluster,
    /// which still has it after its own cluster has lost it.
    stored: Vec<Stored>,
    /// Lost versions by cluster and key.
    lost: BTreeMap<(usize, Vec<u8>), Vec<Lost>>,
}

impl Ledger {
    /// Returns the number of the next write.
    pub fn next(&self) -> u32 {
        self.writes.len() as u32
    }

    /// Adds a write.
    pub fn add(&mut self, write: Write) {
        self.writes.push(write);
    }

    /// Iterates over all writes with their numbers.
    pub fn writes(&self) -> impl Iterator<Item = (u32, &Write)> {
        (0..).zip(&self.writes)
    }

    /// Records that a cluster has stored a version, which includes `own` as the newest version of the cluster itself.
    pub fn store(&mut self, cluster: usize, vbid: Vbid, key: &[u8], seqno: Seqno, own: Cas) {
        self.stored.push(Stored { cluster, vbid, key: key.to_vec(), seqno, own });
    }

    /// Records that a cluster has lost the history of a vBucket after `left`.
    pub fn lose(&mut self, cluster: usize, vbid: Vbid, left: Seqno) {
        let of_it = |write: &&mut Write| write.cluster == cluster && write.vbid == vbid;
        for write in self.writes.iter_mut().filter(of_it) {
            write.is_lost |= write.seqno > left;
        }
        let before = self.next();
        let is_lost = |it: &mut Stored| it.cluster == cluster && it.vbid == vbid && it.seqno > left;
        for Stored { key, own, .. } in self.stored.extract_if(.., is_lost) {
            self.lost.entry((cluster, key)).or_default().push(Lost { own, before });
        }
    }

    /// Returns the lineage of the version with this CAS; without a CAS, that of the purged versions.
    pub fn of(&self, cluster: usize, key: &[u8], cas: Option<Cas>) -> Lineage {
        let known = match cas {
            Some(cas) => self.lineages.get(&(cluster, key.to_vec(), cas)),
            None => self.forgotten.get(&(cluster, key.to_vec())),
        };
        known.cloned().unwrap_or_default()
    }

    /// Returns true if the cluster of a write had previously lost a version of its own with a greater CAS, because its clock was
    /// behind. All other clusters consider the lost version later; the cluster itself decides when it meets it.
    pub fn is_outdated(&self, number: u32) -> bool {
        let write = &self.writes[number as usize];
        let lost = self.lost.get(&(write.cluster, write.key.clone()));
        lost.is_some_and(|all| all.iter().any(|it| it.before <= number && it.own >= write.cas))
    }

    /// Returns true if a write was lost where it was made.
    pub fn is_lost(&self, number: u32) -> bool {
        self.writes[number as usize].is_lost
    }

    /// Records that a deletion with this lineage yielded to another one.
    pub fn settle(&mut self, key: &[u8], lineage: Lineage) {
        self.settled.entry(key.to_vec()).or_default().extend(lineage);
    }

    /// Returns the writes of `lineage` that are neither in `known` nor settled.
    pub fn missed(&self, key: &[u8], lineage: &Lineage, known: &Lineage) -> Vec<u32> {
        let settled = self.settled.get(key);
        let is_settled = |write: &u32| settled.is_some_and(|writes| writes.contains(write));
        lineage.difference(known).copied().filter(|write| !is_settled(write)).collect()
    }

    /// Returns true if a cluster has had a version with this CAS.
    pub fn knows(&self, cluster: usize, key: &[u8], cas: Cas) -> bool {
        self.lineages.contains_key(&(cluster, key.to_vec(), cas))
    }

    /// Records the lineage of a version.
    pub fn note(&mut self, cluster: usize, key: &[u8], cas: Cas, lineage: Lineage) {
        let known = self.lineages.entry((cluster, key.to_vec(), cas)).or_default();
        known.extend(lineage);
    }

    /// Records that a cluster has purged a version.
    pub fn forget(&mut self, cluster: usize, key: &[u8], cas: Cas) {
        let lineage = self.of(cluster, key, Some(cas));
        self.forgotten.entry((cluster, key.to_vec())).or_default().extend(lineage);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &[u8] = b"\0key";

    fn write(ledger: &mut Ledger, seqno: u64, cas: u64) -> u32 {
        let (seqno, cas) = (Seqno(seqno), Cas(cas));
        let key = KEY.to_vec();
        let number = ledger.next();
        ledger.add(Write { cluster: 2, vbid: Vbid(0), key, seqno, cas, rev: 1, is_lost: false });
        ledger.store(2, Vbid(0), KEY, seqno, cas);
        number
    }

    /// A cluster merges, and then adopts a merge of another cluster that does not list the first one (the version number of a
    /// merge need not be listed). It loses both, and then writes with a clock that is behind the first merge, which a third
    /// cluster still has.
    #[test]
    fn a_version_that_another_one_has_replaced_is_lost_with_it() {
        let mut ledger = Ledger::default();
        let first = write(&mut ledger, 4, 83);
        ledger.store(2, Vbid(0), KEY, Seqno(10), Cas(405));
        ledger.store(2, Vbid(0), KEY, Seqno(12), Cas(83));
        ledger.lose(2, Vbid(0), Seqno(8));
        let second = write(&mut ledger, 9, 377);
        assert!(!ledger.is_lost(first) && !ledger.is_lost(second));
        assert!(ledger.is_outdated(second), "405 counts as later elsewhere");
        let third = write(&mut ledger, 10, 406);
        assert!(!ledger.is_outdated(third));
    }

    #[test]
    fn versions_from_before_a_loss_are_not_outdated_by_it() {
        let mut ledger = Ledger::default();
        let before = write(&mut ledger, 4, 83);
        ledger.store(2, Vbid(0), KEY, Seqno(10), Cas(405));
        ledger.lose(2, Vbid(1), Seqno(8));
        ledger.lose(0, Vbid(0), Seqno(8));
        let between = write(&mut ledger, 11, 90);
        assert!(!ledger.is_outdated(between), "nothing of that vBucket was lost");
        ledger.lose(2, Vbid(0), Seqno(8));
        assert!(ledger.is_lost(between) && !ledger.is_outdated(before));
    }
}
