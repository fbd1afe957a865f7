//! Changes of a bucket's design documents or indexes.

use crate::{Cluster, Index, Refusal};
use serde::{Deserialize, Serialize};

/// A change of a bucket's design document or index.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum IndexChange {
    /// Creates or changes a design document.
    PutDesignDocument {
        /// Bucket.
        bucket: String,
        /// The name.
        name: String,
        /// JSON text.
        document: String,
    },
    /// Drops a design document.
    DropDesignDocument {
        /// Bucket.
        bucket: String,
        /// The name.
        name: String,
    },
    /// Creates an index.
    CreateIndex {
        /// Bucket.
        bucket: String,
        /// The index.
        index: Index,
    },
    /// Drops an index.
    DropIndex {
        /// Bucket.
        bucket: String,
        /// Scope.
        scope: String,
        /// Collection.
        collection: String,
        /// The name.
        name: String,
    },
    /// Builds indexes whose build was deferred.
    BuildIndexes {
        /// Bucket.
        bucket: String,
        /// Scope.
        scope: String,
        /// Collection.
        collection: String,
        /// Names of the indexes.
        names: Vec<String>,
    },
    /// Changes the number of copies of an index's partitions.
    SetIndexReplicas {
        /// Bucket.
        bucket: String,
        /// Scope.
        scope: String,
        /// Collection.
        collection: String,
        /// The name.
        name: String,
        /// Number of copies in addition to the first.
        replicas: u8,
    },
}

impl IndexChange {
    pub(crate) fn apply(&self, cluster: &mut Cluster) -> Result<(), Refusal> {
        match self {
            IndexChange::PutDesignDocument { bucket, name, document } => {
                cluster.bucket_mut(bucket)?.design_documents.insert(name.clone(), document.clone());
            }
            IndexChange::DropDesignDocument { bucket, name } => {
                let removed = cluster.bucket_mut(bucket)?.design_documents.remove(name);
                removed.ok_or_else(|| Refusal::DesignDocumentNotFound { name: name.clone() })?;
            }
            IndexChange::CreateIndex { bucket, index } => {
                cluster.bucket_mut(bucket)?.create_index(index)?
            }
            IndexChange::DropIndex { bucket, scope, collection, name } => {
                cluster.bucket_mut(bucket)?.drop_index(scope, collection, name)?
            }
            IndexChange::BuildIndexes { bucket, scope, collection, names } => {
                cluster.bucket_mut(bucket)?.build_indexes(scope, collection, names)?
            }
            IndexChange::SetIndexReplicas { bucket, scope, collection, name, replicas } => cluster
                .bucket_mut(bucket)?
                .set_index_replicas(scope, collection, name, *replicas)?,
        }
        Ok(())
    }
}
