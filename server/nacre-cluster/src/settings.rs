//! Settings of a bucket, and the constraints between them.

use crate::cluster_settings::{PURGE_AGE_EPHEMERAL_S_MIN, PURGE_AGE_S_MIN};
use crate::{Compaction, Refusal};
use serde::{Deserialize, Serialize};

/// Minimum quota of a bucket on each node, in MiB.
const RAM_QUOTA_MB_MIN: u64 = 100;
/// Maximum quota, 16 TiB: far above real machines, so that sums of bytes do not overflow.
const RAM_QUOTA_MB_MAX: u64 = 16 << 20;
/// Message for a quota that exceeds the memory.
pub const RAM_QUOTA_TOO_LARGE: &str =
    "RAM quota specified is too large to be provisioned into this cluster.";
/// Minimum size limit of history, in bytes.
const HISTORY_BYTES_MIN: u64 = 2 << 30;
/// Default interval of searches for expired documents, in seconds. The search is cheap.
const EXPIRY_PAGER_S_DEFAULT: u32 = 2;
/// The highest [`BucketSettings::rank`].
const RANK_MAX: u16 = 1000;

/// Storage type of a bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum BucketKind {
    /// In memory and on disk.
    #[default]
    Persistent,
    /// In memory only: empty after a restart.
    Ephemeral,
}

/// What is evicted from memory when the quota is exceeded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum EvictionPolicy {
    /// Values, which can be read back from disk. Persistent buckets only.
    #[default]
    ValueOnly,
    /// Values, keys and metadata. Persistent buckets only.
    Full,
    /// Nothing is evicted; writes are refused. Ephemeral buckets only.
    None,
    /// Whole documents are deleted, least recently used first. Ephemeral buckets only.
    NotRecentlyUsed,
}

impl EvictionPolicy {
    /// Returns the default policy of a new bucket.
    pub fn default_of(kind: BucketKind, backend: StorageBackend) -> EvictionPolicy {
        match (kind, backend) {
            (BucketKind::Ephemeral, _) => EvictionPolicy::None,
            (BucketKind::Persistent, StorageBackend::Magma) => EvictionPolicy::Full,
            (BucketKind::Persistent, _) => EvictionPolicy::ValueOnly,
        }
    }

    fn suits(self, kind: BucketKind) -> bool {
        let persistent = matches!(self, EvictionPolicy::ValueOnly | EvictionPolicy::Full);
        persistent == (kind == BucketKind::Persistent)
    }
}

/// Handling of compressed values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum CompressionMode {
    /// Values are decompressed on arrival and sent uncompressed.
    Off,
    /// Values are decompressed on arrival and sent uncompressed, as with `Off`.
    #[default]
    Passive,
    /// Values are decompressed on arrival, and compressed for clients that support it.
    Active,
}

/// Rule that chooses between two versions of a document from two clusters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ConflictResolution {
    /// The version with more changes wins.
    #[default]
    Seqno,
    /// The version with the later change wins.
    LastWriteWins,
    /// The operator's conflict resolver decides.
    Custom,
}

/// The requested storage engine; fixed at creation. Couchbase's names are stored and returned, and select nacre's log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum StorageBackend {
    /// Couchbase's B-trees.
    #[default]
    Couchstore,
    /// Couchbase's log-structured trees.
    Magma,
    /// The library sled.
    Sled,
}

/// Retention of superseded versions of documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryRetention {
    /// True if new collections keep history by default.
    pub collection_default: bool,
    /// Maximum bytes of history on each node; 0 for no limit.
    pub bytes: u64,
    /// Maximum age of history in seconds; 0 for no limit.
    pub seconds: u64,
}

impl Default for HistoryRetention {
    fn default() -> HistoryRetention {
        HistoryRetention { collection_default: true, bytes: 0, seconds: 0 }
    }
}

/// An operator's settings for a bucket.
///
/// Nodes store the serialised form; a field that an older node did not store has its default.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct BucketSettings {
    /// Storage type; fixed at creation.
    pub kind: BucketKind,
    /// Memory for the bucket on each node, in MiB, at least 100.
    pub ram_quota_mb: u64,
    /// Number of replicas of each vBucket, 0..=3.
    pub replicas: u8,
    /// True if the rows of views are replicated.
    pub replica_index: bool,
    /// True if the bucket may be flushed.
    pub flush_enabled: bool,
    /// Maximum TTL of documents in seconds, 0..=2_147_483_647; 0 for no limit.
    pub max_ttl: u32,
    /// Seconds between searches for expired documents that no client has requested since their expiry; 0 for no
    /// searches.
    pub expiry_pager_s: u32,
    /// Number of vBuckets, 1..=1024; fixed at creation.
    pub vbucket_count: u16,
    /// What is evicted when the quota is exceeded; fixed at creation for an ephemeral bucket.
    pub eviction_policy: EvictionPolicy,
    /// Handling of compressed values.
    pub compression_mode: CompressionMode,
    /// Conflict resolution; fixed at creation.
    pub conflict_resolution: ConflictResolution,
    /// Minimum durability of writes: 0 none, 1 majority, 2 majority and persisted on the active node, 3 persisted on a
    /// majority. An ephemeral bucket has 0 or 1.
    pub durability_min_level: u8,
    /// The requested storage engine; meaningless for an ephemeral bucket.
    pub storage_backend: StorageBackend,
    /// Retention of superseded versions, if the bucket [supports](BucketSettings::can_keep_history) that.
    pub history: HistoryRetention,
    /// Rank, 0..=1000. A rebalance moves buckets of a higher rank first, and those of the same rank in the order of their names.
    pub rank: u16,
    /// The CAS from which versions have a history for replication between clusters; `None` while the bucket keeps no histories.
    /// It cannot be reset to `None`.
    pub histories_since: Option<u64>,
    /// Compaction of this bucket, if it differs from [that of the cluster](crate::ClusterSettings::compaction).
    pub compaction: Option<Compaction>,
}

impl Default for BucketSettings {
    fn default() -> BucketSettings {
        BucketSettings {
            kind: BucketKind::default(),
            ram_quota_mb: 256,
            replicas: 0,
            replica_index: false,
            flush_enabled: false,
            max_ttl: 0,
            expiry_pager_s: EXPIRY_PAGER_S_DEFAULT,
            vbucket_count: 1024,
            eviction_policy: EvictionPolicy::default(),
            compression_mode: CompressionMode::default(),
            conflict_resolution: ConflictResolution::default(),
            durability_min_level: 0,
            storage_backend: StorageBackend::default(),
            history: HistoryRetention::default(),
            rank: 0,
            histories_since: None,
            compaction: None,
        }
    }
}

impl BucketSettings {
    /// Returns true if the bucket supports superseded versions.
    pub fn can_keep_history(&self) -> bool {
        self.kind == BucketKind::Persistent && self.storage_backend == StorageBackend::Magma
    }

    /// Returns true if the bucket keeps superseded versions of collections with history.
    pub fn keeps_history(&self) -> bool {
        self.can_keep_history() && (self.history.bytes > 0 || self.history.seconds > 0)
    }

    /// Returns true if new collections keep history by default.
    pub(crate) fn history_default(&self) -> bool {
        self.can_keep_history() && self.history.collection_default
    }

    /// Checks that the settings are valid and consistent.
    pub(crate) fn check(&self) -> Result<(), Refusal> {
        let ephemeral = self.kind == BucketKind::Ephemeral;
        if self.ram_quota_mb < RAM_QUOTA_MB_MIN {
            return invalid("ramQuota", "RAM quota cannot be less than 100 MiB");
        }
        if self.ram_quota_mb > RAM_QUOTA_MB_MAX {
            return invalid("ramQuota", RAM_QUOTA_TOO_LARGE);
        }
        if self.replicas > 3 {
            return invalid("replicaNumber", "Replica number larger than 3 is not supported.");
        }
        if ephemeral && self.replica_index {
            return invalid("replicaIndex", "replicaIndex not supported for ephemeral buckets");
        }
        if self.max_ttl > i32::MAX as u32 {
            return invalid("maxTTL", "The value must be in range from 0 to 2147483647");
        }
        if !(1..=1024).contains(&self.vbucket_count) {
            return invalid("numVBuckets", "Number of vBuckets must be between 1 and 1024");
        }
        if !self.eviction_policy.suits(self.kind) {
            let reason = if ephemeral {
                "Eviction policy must be either 'noEviction' or 'nruEviction' for ephemeral buckets"
            } else {
                "Eviction policy must be either 'valueOnly' or 'fullEviction' for couchbase buckets"
            };
            return invalid("evictionPolicy", reason);
        }
        match self.durability_min_level {
            0 => {}
            2.. if ephemeral => {
                let reason = "Durability minimum level must be either 'none' or 'majority' for ephemeral buckets";
                return invalid("durability_min_level", reason);
            }
            1..=3 if self.replicas == 3 => {
                let reason = "Durability minimum level must be 'none' with 3 replicas";
                return invalid("durability_min_level", reason);
            }
            1..=3 => {}
            4.. => return invalid("durability_min_level", "Unknown durability minimum level"),
        }
        if self.history != HistoryRetention::default() && !self.can_keep_history() {
            return invalid("historyRetention", "History Retention can only used with Magma");
        }
        if !matches!(self.history.bytes, 0 | HISTORY_BYTES_MIN..) {
            let reason = "The value must be in range from 2147483648 to 18446744073709551615";
            return invalid("historyRetentionBytes", reason);
        }
        let purge_age_s_min = if ephemeral { PURGE_AGE_EPHEMERAL_S_MIN } else { PURGE_AGE_S_MIN };
        self.compaction.as_ref().map_or(Ok(()), |own| own.check(purge_age_s_min))?;
        if self.rank > RANK_MAX {
            return invalid("rank", "The value must be in range from 0 to 1000");
        }
        Ok(())
    }

    /// Checks that the settings may change to `next`: some are fixed at creation.
    pub(crate) fn check_change(&self, next: &BucketSettings) -> Result<(), Refusal> {
        if self.kind != next.kind {
            return invalid("bucketType", "Cannot change bucket type.");
        }
        if self.vbucket_count != next.vbucket_count {
            return invalid("numVBuckets", "Number of vbuckets cannot be modified");
        }
        if self.conflict_resolution != next.conflict_resolution {
            let reason = "Conflict resolution type not allowed in update bucket";
            return invalid("conflictResolutionType", reason);
        }
        if self.histories_since.is_some() && self.histories_since != next.histories_since {
            let reason = "Cross Cluster Versioning cannot be disabled once it has been enabled";
            return invalid("enableCrossClusterVersioning", reason);
        }
        if self.kind == BucketKind::Ephemeral && self.eviction_policy != next.eviction_policy {
            let reason = "Eviction policy cannot be updated for ephemeral buckets";
            return invalid("evictionPolicy", reason);
        }
        Ok(())
    }
}

fn invalid(field: &'static str, reason: &str) -> Result<(), Refusal> {
    Err(Refusal::Invalid { field, reason: reason.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(settings: BucketSettings) -> String {
        match settings.check() {
            Ok(()) => "accepted".into(),
            Err(Refusal::Invalid { field, reason }) => format!("{field}: {reason}"),
            Err(other) => other.to_string(),
        }
    }

    #[test]
    fn incompatible_settings_are_refused_by_the_name_of_the_field() {
        let persistent = BucketSettings::default;
        let ephemeral = || BucketSettings {
            kind: BucketKind::Ephemeral,
            eviction_policy: EvictionPolicy::None,
            ..BucketSettings::default()
        };
        let magma = || BucketSettings {
            storage_backend: StorageBackend::Magma,
            ..BucketSettings::default()
        };
        let bytes = |bytes| HistoryRetention { bytes, ..HistoryRetention::default() };
        insta::assert_snapshot!(
            [
                persistent(),
                ephemeral(),
                BucketSettings { ram_quota_mb: 99, ..persistent() },
                BucketSettings { ram_quota_mb: RAM_QUOTA_MB_MAX, ..persistent() },
                BucketSettings { ram_quota_mb: RAM_QUOTA_MB_MAX + 1, ..persistent() },
                BucketSettings { replicas: 4, ..persistent() },
                BucketSettings { replica_index: true, ..ephemeral() },
                BucketSettings { max_ttl: 1 << 31, ..persistent() },
                BucketSettings { vbucket_count: 0, ..persistent() },
                BucketSettings { eviction_policy: EvictionPolicy::NotRecentlyUsed, ..persistent() },
                BucketSettings { eviction_policy: EvictionPolicy::Full, ..ephemeral() },
                BucketSettings { durability_min_level: 1, ..ephemeral() },
                BucketSettings { durability_min_level: 2, ..ephemeral() },
                BucketSettings { durability_min_level: 3, replicas: 3, ..persistent() },
                BucketSettings { durability_min_level: 4, ..persistent() },
                BucketSettings { history: bytes(HISTORY_BYTES_MIN), ..persistent() },
                BucketSettings { history: bytes(HISTORY_BYTES_MIN), ..magma() },
                BucketSettings { history: bytes(HISTORY_BYTES_MIN - 1), ..magma() },
                BucketSettings { rank: 1001, ..persistent() },
            ]
            .map(refused)
            .join("\n"),
            @r#"
            accepted
            accepted
            ramQuota: RAM quota cannot be less than 100 MiB
            accepted
            ramQuota: RAM quota specified is too large to be provisioned into this cluster.
            replicaNumber: Replica number larger than 3 is not supported.
            replicaIndex: replicaIndex not supported for ephemeral buckets
            maxTTL: The value must be in range from 0 to 2147483647
            numVBuckets: Number of vBuckets must be between 1 and 1024
            evictionPolicy: Eviction policy must be either 'valueOnly' or 'fullEviction' for couchbase buckets
            evictionPolicy: Eviction policy must be either 'noEviction' or 'nruEviction' for ephemeral buckets
            accepted
            durability_min_level: Durability minimum level must be either 'none' or 'majority' for ephemeral buckets
            durability_min_level: Durability minimum level must be 'none' with 3 replicas
            durability_min_level: Unknown durability minimum level
            historyRetention: History Retention can only used with Magma
            accepted
            historyRetentionBytes: The value must be in range from 2147483648 to 18446744073709551615
            rank: The value must be in range from 0 to 1000
            "#
        );
    }

    #[test]
    fn settings_fixed_at_creation_cannot_be_changed() {
        let before = BucketSettings {
            kind: BucketKind::Ephemeral,
            eviction_policy: EvictionPolicy::None,
            ..BucketSettings::default()
        };
        let fields = [
            BucketSettings { kind: BucketKind::Persistent, ..before.clone() },
            BucketSettings { vbucket_count: 64, ..before.clone() },
            BucketSettings {
                conflict_resolution: ConflictResolution::LastWriteWins,
                ..before.clone()
            },
            BucketSettings { eviction_policy: EvictionPolicy::NotRecentlyUsed, ..before.clone() },
        ];
        for after in fields {
            assert!(before.check_change(&after).is_err(), "{after:?}");
        }
        let free = BucketSettings { ram_quota_mb: 512, replicas: 1, rank: 7, ..before.clone() };
        assert_eq!(before.check_change(&free), Ok(()));
    }

    #[test]
    fn settings_stored_by_an_older_node_have_defaults_for_what_it_did_not_know() {
        let stored = r#"{"kind":"Persistent","ram_quota_mb":100,"replicas":1,"flush_enabled":true,"max_ttl":7,"vbucket_count":64}"#;
        let settings: BucketSettings = serde_json::from_str(stored).unwrap();
        let expected = BucketSettings {
            ram_quota_mb: 100,
            replicas: 1,
            flush_enabled: true,
            max_ttl: 7,
            vbucket_count: 64,
            ..BucketSettings::default()
        };
        assert_eq!(settings, expected);
    }
}
