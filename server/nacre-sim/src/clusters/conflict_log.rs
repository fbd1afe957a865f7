//! The conflict log, and the conditions on it.
//!
//! A pipeline that logs conflicts has each true conflict logged before the source's version is sent, and the target decides only
//! about the version that was logged. So the side that decides finds the pair in the log, with the right bodies.

use super::target::shown;
use nacre_types::{Cas, Document};
use nacre_xdcr::Conflict;
use std::collections::{BTreeMap, BTreeSet};

/// The source and the target of a replication.
type Way = (usize, usize);

/// The logged conflicts, and the bodies of all versions.
#[derive(Debug, Default)]
pub(super) struct ConflictLog {
    /// The bodies that a cluster has stored under a CAS. There may be several, because two clusters can assign the same
    /// CAS.
    bodies: BTreeMap<(usize, Vec<u8>, Cas), BTreeSet<Vec<u8>>>,
    logged: BTreeSet<(Way, Vec<u8>, Cas, Cas)>,
}

impl ConflictLog {
    /// Records a document that a cluster has stored.
    pub fn note_stored(&mut self, cluster: usize, document: &Document) {
        let place = (cluster, document.key().to_vec(), document.meta.cas);
        self.bodies.entry(place).or_default().insert(document.body().to_vec());
    }

    /// Adds a record of the log.
    ///
    /// # Panics
    /// Panics if the cluster has never stored one of its bodies.
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

    /// Returns true if a cluster has stored several bodies under a CAS.
    pub fn is_ambiguous(&self, cluster: usize, key: &[u8], cas: Cas) -> bool {
        let bodies = self.bodies.get(&(cluster, key.to_vec(), cas));
        bodies.is_some_and(|bodies| bodies.len() > 1)
    }

    /// Returns true if a pipeline in this direction has logged the conflict between these versions of source and
    /// target.
    pub fn has(&self, way: Way, key: &[u8], source: Cas, target: Cas) -> bool {
        self.logged.contains(&(way, key.to_vec(), source, target))
    }
}
