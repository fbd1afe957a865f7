//! A bucket in the agreed state.

use crate::{BucketSettings, Chain, Index, Manifest, Refusal};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A bucket: its settings, its scopes and collections, its design documents.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bucket {
    /// Name, unique in the cluster.
    pub name: String,
    /// UUID: 32 hexadecimal digits, never reused for another bucket.
    pub uuid: String,
    /// Settings chosen by the operator.
    pub settings: BucketSettings,
    /// Scopes and collections.
    pub manifest: Manifest,
    /// Design documents by name (including the `dev_` prefix), each a JSON text.
    pub design_documents: BTreeMap<String, String>,
    /// Indexes of its collections, in order of creation.
    #[serde(default)]
    pub indexes: Vec<Index>,
    /// Number of flushes of the bucket. Its documents belong to this generation.
    pub flushes: u64,
    /// Chains of its vBuckets, by vBucket; empty until a node exists to hold them.
    #[serde(default)]
    pub chains: Vec<Chain>,
}

impl Bucket {
    pub(crate) fn create_collection(
        &mut self,
        scope: &str,
        name: &str,
        max_ttl: i32,
        history: Option<bool>,
    ) -> Result<(), Refusal> {
        self.check_history(history)?;
        let history = history.unwrap_or(self.settings.history_default());
        self.manifest.create_collection(scope, name, max_ttl, history)
    }

    pub(crate) fn update_collection(
        &mut self,
        scope: &str,
        name: &str,
        max_ttl: Option<i32>,
        history: Option<bool>,
    ) -> Result<(), Refusal> {
        self.check_history(history)?;
        self.manifest.update_collection(scope, name, max_ttl, history)
    }

    fn check_history(&self, asked: Option<bool>) -> Result<(), Refusal> {
        if asked == Some(true) && !self.settings.can_keep_history() {
            let reason = "History can only be used with Magma".to_owned();
            return Err(Refusal::Invalid { field: "history", reason });
        }
        Ok(())
    }

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
