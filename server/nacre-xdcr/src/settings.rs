//! Settings of a replication, for its pipelines.

use crate::{Condition, Filter, Policy, Site};
use nacre_types::{CollectionId, Document, Vbid};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The side that judges between versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judge {
    /// The target, on each write. The source compares versions only to avoid sending those that would be refused.
    Target,
    /// The source: it looks up the target's version, decides, and writes under the condition that the target still has
    /// exactly that version. For targets without resolvers.
    Source,
}

/// Handling of versions that originate at the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Echo {
    /// Ask the target whether it still has them, because it may have lost them. This costs a few bytes each.
    LookUp,
    /// Do not send them, as in Couchbase. A version that the target lost in a failover does not come back.
    Skip,
}

/// Mapping of the source's collections to those of the target.
#[derive(Clone, Debug, Default)]
pub enum Mapping {
    /// To the collection with the same ID.
    #[default]
    Same,
    /// To named collections; others are not replicated.
    Named(BTreeMap<CollectionId, CollectionId>),
    /// From the default collection to each collection whose condition holds; the target collections are distinct, and
    /// other collections are not replicated. A missing condition always holds.
    Migration(Vec<(Option<Arc<dyn Condition>>, CollectionId)>),
}

impl Mapping {
    /// Returns the target collections of a version; none when it is not replicated. Deletions go to every collection
    /// that may have received the document.
    ///
    /// # Errors
    /// The reason why a condition cannot be evaluated.
    pub fn of(&self, document: &Document) -> Result<Vec<CollectionId>, String> {
        let collection = document.collection();
        match self {
            Mapping::Same => Ok(vec![collection]),
            Mapping::Named(named) => Ok(named.get(&collection).copied().into_iter().collect()),
            Mapping::Migration(_) if collection != CollectionId::DEFAULT => Ok(Vec::new()),
            Mapping::Migration(rules) => {
                let mut targets = Vec::new();
                for (condition, target) in rules {
                    let goes = match condition {
                        Some(condition) if document.is_alive() => condition.holds(document)?,
                        _ => true,
                    };
                    targets.extend(goes.then_some(*target));
                }
                Ok(targets)
            }
        }
    }
}

/// Settings of a pipeline. Times are in nanoseconds.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The source's bucket, with the CAS from which this vBucket keeps histories.
    pub source: Site,
    /// The target's bucket, with the CAS from which its vBucket keeps histories.
    pub target: Site,
    /// The vBucket of the source.
    pub vbid: Vbid,
    /// Number of vBuckets of the source's bucket.
    pub source_vbuckets: u16,
    /// Number of vBuckets of the target's bucket.
    pub target_vbuckets: u16,
    /// The conflict resolution policy.
    pub policy: Policy,
    /// The side that judges.
    pub judge: Judge,
    /// True if histories are sent.
    pub keeps_histories: bool,
    /// Handling of versions that originate at the target.
    pub echo: Echo,
    /// True if conflicts are logged. Every version is then looked up before it is sent, which costs a round trip. Both sides must
    /// keep histories, because only histories show conflicts.
    pub logs_conflicts: bool,
    /// True if only versions written at the source are sent, not those that it received from other clusters (`forwardLocalOnly`).
    /// Both sides must keep histories, because only histories name the cluster of a version.
    pub sends_own_only: bool,
    /// The documents to send.
    pub filter: Filter,
    /// Mapping of collections to those of the target.
    pub mapping: Mapping,
    /// Documents smaller than this are sent without looking up metadata first (`optimisticReplicationThreshold`).
    pub optimistic_bytes: usize,
    /// True if values may be compressed, provided that the target supports it (`compressionType`).
    pub compresses: bool,
    /// Maximum number of documents in one effect (`workerBatchSize`).
    pub batch_count: usize,
    /// Size of documents in one effect, in bytes, with which no other document is added (`docBatchSizeKb`).
    pub batch_bytes: usize,
    /// The least and the greatest window, in bytes.
    pub window_bytes: (usize, usize),
    /// Interval of checkpoint records (`checkpointInterval`).
    pub checkpoint_ns: u64,
    /// Timeout of the first answer; it doubles each time, up to 300 s.
    pub timeout_ns: u64,
    /// Number of failures of one version before it is put aside.
    pub attempts_max: u32,
    /// Back-off between attempts of a version that was put aside.
    pub rest_ns: u64,
    /// Seed for the jitter that spreads the attempts of many pipelines over time.
    pub seed: u64,
}

impl Settings {
    /// Creates settings with Couchbase's defaults, for a pipeline between two buckets with `vbuckets` vBuckets each.
    pub fn new(source: Site, target: Site, vbid: Vbid, vbuckets: u16, policy: Policy) -> Settings {
        Settings {
            source,
            target,
            vbid,
            source_vbuckets: vbuckets,
            target_vbuckets: vbuckets,
            policy,
            judge: Judge::Target,
            keeps_histories: matches!(policy, Policy::Resolver(_)),
            echo: Echo::LookUp,
            logs_conflicts: false,
            sends_own_only: false,
            filter: Filter::default(),
            mapping: Mapping::default(),
            optimistic_bytes: 256,
            compresses: true,
            batch_count: 500,
            batch_bytes: 2 << 20,
            window_bytes: (1 << 20, 64 << 20),
            checkpoint_ns: 60 * 1_000_000_000,
            timeout_ns: 1_000_000_000,
            attempts_max: 20,
            rest_ns: 60 * 1_000_000_000,
            seed: 0,
        }
    }

    /// Takes over from `later` the settings that can change while a pipeline runs: filter, sizes and intervals. The earlier
    /// filter still applies to versions already read. Settings that decide which version wins, or where versions go, need
    /// another pipeline.
    pub fn adjust(&mut self, later: Settings) {
        let Settings { filter, optimistic_bytes, compresses, batch_count, .. } = later;
        self.filter = filter;
        self.logs_conflicts = later.logs_conflicts;
        self.sends_own_only = later.sends_own_only;
        self.optimistic_bytes = optimistic_bytes;
        self.compresses = compresses;
        self.batch_count = batch_count;
        self.batch_bytes = later.batch_bytes;
        self.checkpoint_ns = later.checkpoint_ns;
    }

    /// Returns the vBuckets of the target that keys of this vBucket may belong to: those with the same remainder modulo
    /// the greatest common divisor of the two vBucket counts.
    pub fn targets(&self) -> impl Iterator<Item = Vbid> + use<> {
        let common = greatest_common_divisor(self.source_vbuckets, self.target_vbuckets).max(1);
        let own = self.vbid.0 % common;
        (0..self.target_vbuckets).filter(move |vbid| vbid % common == own).map(Vbid)
    }
}

fn greatest_common_divisor(left: u16, right: u16) -> u16 {
    if right == 0 { left } else { greatest_common_divisor(right, left % right) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SourceId;
    use nacre_types::Cas;
    use nacre_vbucket::Resolution;

    #[test]
    fn keys_go_to_vbuckets_with_the_same_remainder() {
        let site = Site { id: SourceId::parse("s").unwrap(), since: Cas::ANY };
        let policy = Policy::Rule(Resolution::Seqno);
        let mut settings = Settings::new(site.clone(), site, Vbid(5), 4, policy);
        for (source, target) in [(4, 8), (8, 4), (6, 4), (3, 5), (7, 7), (1, 3)] {
            (settings.source_vbuckets, settings.target_vbuckets) = (source, target);
            for number in 0..200u32 {
                let key = number.to_string();
                settings.vbid = Vbid::of(key.as_bytes(), source);
                let place = Vbid::of(key.as_bytes(), target);
                assert!(settings.targets().any(|vbid| vbid == place), "{source} to {target}");
            }
        }
        (settings.vbid, settings.source_vbuckets, settings.target_vbuckets) = (Vbid(5), 128, 1024);
        assert_eq!(settings.targets().count(), 8);
        (settings.vbid, settings.source_vbuckets, settings.target_vbuckets) = (Vbid(5), 1024, 128);
        assert_eq!(settings.targets().collect::<Vec<_>>(), [Vbid(5)]);
    }
}
