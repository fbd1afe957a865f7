//! What became of each write of a client.
//!
//! Every version in every cluster has a lineage: the writes that it has taken account of, because it contains them, was
//! written over them, or was decided against them. Whatever a cluster decides because of a history must agree with that:
//! a version may replace another one without a question only if it has taken account of all that the other one has.

use nacre_types::{Cas, Seqno, Vbid};
use std::collections::{BTreeMap, BTreeSet};

/// Writes, by number.
pub type Lineage = BTreeSet<u32>;

/// An acknowledged write.
#[derive(Clone, Debug)]
pub struct Write {
    /// Where.
    pub cluster: usize,
    /// In which vBucket of the cluster.
    pub vbid: Vbid,
    /// What.
    pub key: Vec<u8>,
    /// Its place in history.
    pub seqno: Seqno,
    /// Its CAS.
    pub cas: Cas,
    /// Its revision.
    pub rev: u64,
    /// Its cluster has lost it since: it was not durable.
    pub is_lost: bool,
}

/// All writes, and the lineage of all versions.
#[derive(Debug, Default)]
pub struct Ledger {
    writes: Vec<Write>,
    lineages: BTreeMap<(usize, Vec<u8>, Cas), Lineage>,
    /// Writes that may be gone: those that ended with one of two deletions that did not know of each other, as the other one
    /// stayed; and those that went with the lost end of a history.
    settled: BTreeMap<Vec<u8>, Lineage>,
    /// Of keys of which a cluster has no version left.
    forgotten: BTreeMap<(usize, Vec<u8>), Lineage>,
    /// The greatest CAS of its own versions that a cluster has lost, by key.
    lost: BTreeMap<(usize, Vec<u8>), Cas>,
}

impl Ledger {
    /// The number of the next write.
    pub fn next(&self) -> u32 {
        self.writes.len() as u32
    }

    /// Notes a write.
    pub fn add(&mut self, write: Write) {
        self.writes.push(write);
    }

    /// All writes, each with its number.
    pub fn writes(&self) -> impl Iterator<Item = (u32, &Write)> {
        (0..).zip(&self.writes)
    }

    /// Notes that a cluster lost what it had of a vBucket after `left`.
    pub fn lose(&mut self, cluster: usize, vbid: Vbid, left: Seqno) {
        let of_it = |write: &&mut Write| write.cluster == cluster && write.vbid == vbid;
        for write in self.writes.iter_mut().filter(of_it) {
            write.is_lost |= write.seqno > left;
        }
    }

    /// What the version with this CAS has taken account of; without a version, what the forgotten ones had.
    pub fn of(&self, cluster: usize, key: &[u8], cas: Option<Cas>) -> Lineage {
        let known = match cas {
            Some(cas) => self.lineages.get(&(cluster, key.to_vec(), cas)),
            None => self.forgotten.get(&(cluster, key.to_vec())),
        };
        known.cloned().unwrap_or_default()
    }

    /// Notes that a cluster lost a version that has taken account of its own one with this CAS.
    pub fn lose_version(&mut self, cluster: usize, key: &[u8], own: Cas) {
        let known = self.lost.entry((cluster, key.to_vec())).or_default();
        *known = (*known).max(own);
    }

    /// Returns true if the cluster of a write lost a version of its own with a greater CAS: its clock was behind the versions
    /// that it lost. By its numbers the lost one is later, for all clusters but that one, which decides when it meets it.
    pub fn is_outdated(&self, number: u32) -> bool {
        let write = &self.writes[number as usize];
        let lost = self.lost.get(&(write.cluster, write.key.clone()));
        lost.is_some_and(|lost| *lost >= write.cas)
    }

    /// Returns true if a write is lost where it was made.
    pub fn is_lost(&self, number: u32) -> bool {
        self.writes[number as usize].is_lost
    }

    /// Notes that a deletion gave way to another one, with all that it had taken account of.
    pub fn settle(&mut self, key: &[u8], lineage: Lineage) {
        self.settled.entry(key.to_vec()).or_default().extend(lineage);
    }

    /// Writes of `lineage` that are not in `known`, and were not settled.
    pub fn missed(&self, key: &[u8], lineage: &Lineage, known: &Lineage) -> Vec<u32> {
        let settled = self.settled.get(key);
        let is_settled = |write: &u32| settled.is_some_and(|writes| writes.contains(write));
        lineage.difference(known).copied().filter(|write| !is_settled(write)).collect()
    }

    /// Returns true if a cluster has had a version with this CAS.
    pub fn knows(&self, cluster: usize, key: &[u8], cas: Cas) -> bool {
        self.lineages.contains_key(&(cluster, key.to_vec(), cas))
    }

    /// Notes the lineage of a version.
    pub fn note(&mut self, cluster: usize, key: &[u8], cas: Cas, lineage: Lineage) {
        let known = self.lineages.entry((cluster, key.to_vec(), cas)).or_default();
        known.extend(lineage);
    }

    /// Notes that a cluster has forgotten a version.
    pub fn forget(&mut self, cluster: usize, key: &[u8], cas: Cas) {
        let lineage = self.of(cluster, key, Some(cas));
        self.forgotten.entry((cluster, key.to_vec())).or_default().extend(lineage);
    }
}
