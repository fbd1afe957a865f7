//! The log of conflicts, and what it must have.
//!
//! A pipeline that logs has each true conflict logged before the version of its source is sent, and the target decides about no other
//! version than the one that was logged. So whoever decides finds the pair in the log, with the right bodies.

use super::target::shown;
use nacre_types::{Cas, Document};
use nacre_xdcr::Conflict;
use std::collections::{BTreeMap, BTreeSet};

/// A direction between two clusters.
type Way = (usize, usize);

/// What pipelines have logged, and what documents were like.
#[derive(Debug, Default)]
pub(super) struct ConflictLog {
    /// The bodies that a cluster has had under a CAS. There may be several, as two clusters can give the same CAS.
    bodies: BTreeMap<(usize, Vec<u8>, Cas), BTreeSet<Vec<u8>>>,
    logged: BTreeSet<(Way, Vec<u8>, Cas, Cas)>,
}

impl ConflictLog {
    /// Notes what a cluster has stored.
    pub fn note_stored(&mut self, cluster: usize, document: &Document) {
        let place = (cluster, document.key().to_vec(), document.meta.cas);
        self.bodies.entry(place).or_default().insert(document.body().to_vec());
    }

    /// Takes a record.
    ///
    /// # Panics
    /// If a body is not the one that its cluster has had.
    pub fn add(&mut self, (from, to): Way, conflict: &Conflict) {
        let Conflict { key, target_key, source, target } = conflict;
        for (cluster, key, version) in [(from, key, source), (to, target_key, target)] {
            let body = version.split().expect("the version is well-formed").1;
            let known = self.bodies.get(&(cluster, key.clone(), version.meta.cas));
            assert!(
                known.is_some_and(|bodies| bodies.contains(body)),
                "{} of cluster {cluster} is logged as {:?}, and was {known:?}",
                shown(key),
                String::from_utf8_lossy(body)
            );
        }
        self.logged.insert(((from, to), target_key.clone(), source.meta.cas, target.meta.cas));
    }

    /// Returns true if a cluster has had several bodies under a CAS.
    pub fn is_ambiguous(&self, cluster: usize, key: &[u8], cas: Cas) -> bool {
        let bodies = self.bodies.get(&(cluster, key.to_vec(), cas));
        bodies.is_some_and(|bodies| bodies.len() > 1)
    }

    /// Returns true if a pipeline on this way has logged the conflict of a version with that of its target.
    pub fn has(&self, way: Way, key: &[u8], source: Cas, target: Cas) -> bool {
        self.logged.contains(&(way, key.to_vec(), source, target))
    }
}
