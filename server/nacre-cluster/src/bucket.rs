//! One bucket as the cluster knows it.

use crate::{BucketSettings, Chain, Index, Manifest, Refusal};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

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
    /// Indexes of its collections, in the order they were made.
    #[serde(default)]
    pub indexes: Vec<Index>,
    /// How often the bucket was flushed: its documents live under this generation.
    pub flushes: u64,
    /// Where the copies of its vBuckets are, by number of the vBucket; empty until there is a node to hold them.
    #[serde(default)]
    pub chains: Vec<Chain>,
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
