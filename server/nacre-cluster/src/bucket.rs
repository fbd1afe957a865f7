//! One bucket as the cluster knows it.

use crate::{Manifest, Refusal};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Where a bucket keeps its documents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum BucketKind {
    /// In memory and on disk.
    #[default]
    Persistent,
    /// In memory only: empty after a restart.
    Ephemeral,
}

/// What an operator chooses for a bucket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BucketSettings {
    /// Where documents are kept; fixed at creation.
    pub kind: BucketKind,
    /// Memory for the bucket on each node, in MiB, at least 100.
    pub ram_quota_mb: u64,
    /// Copies of each vBucket beside the active one, 0..=3.
    pub replicas: u8,
    /// Whether the bucket may be emptied by a flush.
    pub flush_enabled: bool,
    /// Seconds after which documents expire at the latest; 0 for never.
    pub max_ttl: u32,
    /// vBuckets, 1..=1024; fixed at creation.
    pub vbucket_count: u16,
}

impl Default for BucketSettings {
    fn default() -> BucketSettings {
        BucketSettings {
            kind: BucketKind::Persistent,
            ram_quota_mb: 256,
            replicas: 0,
            flush_enabled: false,
            max_ttl: 0,
            vbucket_count: 1024,
        }
    }
}

impl BucketSettings {
    pub(crate) fn check(&self) -> Result<(), Refusal> {
        let invalid = |field: &'static str, reason: &str| {
            Err(Refusal::Invalid { field, reason: reason.to_owned() })
        };
        if self.ram_quota_mb < 100 {
            return invalid("ramQuota", "RAM quota cannot be less than 100 MiB");
        }
        if self.replicas > 3 {
            return invalid("replicaNumber", "Replica number must be between 0 and 3");
        }
        if !(1..=1024).contains(&self.vbucket_count) {
            return invalid("numVBuckets", "Number of vBuckets must be between 1 and 1024");
        }
        Ok(())
    }
}

/// A bucket: its settings, its scopes and collections, its design documents.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bucket {
    /// Name, unique in the cluster.
    pub name: String,
    /// 32 hexadecimal digits, never used for another bucket.
    pub uuid: String,
    /// What the operator chose.
    pub settings: BucketSettings,
    /// Scopes and collections.
    pub manifest: Manifest,
    /// Design documents by name (`dev_` prefix included), each a JSON text.
    pub design_documents: BTreeMap<String, String>,
    /// How often the bucket was flushed: its documents live under this generation.
    pub flushes: u64,
}

impl Bucket {
    pub(crate) fn check_name(name: &str) -> Result<(), Refusal> {
        let reason = if name.is_empty() {
            "Bucket name needs to be specified"
        } else if name.len() > 100 {
            "Bucket name cannot exceed 100 characters"
        } else if !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.%-".contains(&byte))
        {
            "Bucket name can only contain characters in range A-Z, a-z, 0-9 as well as underscore, period, dash & percent. Consult the documentation."
        } else if name.starts_with('.') {
            "Bucket name cannot start with dot."
        } else {
            return Ok(());
        };
        Err(Refusal::Invalid { field: "name", reason: reason.to_owned() })
    }
}
