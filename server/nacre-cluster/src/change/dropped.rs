//! The event of a dropped key space, for every domain of the agreed state.

use crate::{Cluster, FunctionId};

/// A key space that is gone: a bucket, one of its scopes, or a collection of a scope.
#[derive(Clone, Copy)]
pub(crate) struct DroppedKeyspace<'a> {
    pub bucket: &'a str,
    /// `None` when the whole bucket is gone.
    pub scope: Option<&'a str>,
    /// `None` when the whole scope is gone.
    pub collection: Option<&'a str>,
}

impl DroppedKeyspace<'_> {
    /// Lets every domain drop what belongs to the key space.
    pub(crate) fn forget(&self, cluster: &mut Cluster) {
        if let Some(bucket) = cluster.buckets.get_mut(self.bucket) {
            bucket.forget_indexes();
        }
        cluster.plugins.forget(self);
        cluster.functions.forget(self);
        cluster.query_functions.forget(self);
        cluster.query_libraries.forget(self);
        cluster.sequences.forget(self);
        cluster.service_records.forget(self);
    }

    /// Returns true if the key space is a whole bucket, or a whole scope, that contains `scope` of `bucket`.
    pub(crate) fn contains_scope(&self, bucket: &str, scope: Option<&str>) -> bool {
        self.collection.is_none()
            && self.bucket == bucket
            && (self.scope.is_none() || self.scope == scope)
    }

    /// Returns true if `key` is that of a function, library or sequence in a scope of the key space.
    pub(crate) fn contains_key(&self, key: &str) -> bool {
        FunctionId::of_key(key)
            .scope
            .is_some_and(|(bucket, scope)| self.contains_scope(&bucket, Some(&scope)))
    }
}
