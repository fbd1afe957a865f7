//! A dropped keyspace, for every part of the agreed state.

use crate::{Cluster, FunctionId};

/// A dropped keyspace: a bucket, a scope, or a collection.
#[derive(Clone, Copy)]
pub(crate) struct DroppedKeyspace<'a> {
    pub bucket: &'a str,
    /// `None` if the whole bucket was dropped.
    pub scope: Option<&'a str>,
    /// `None` if the whole scope was dropped.
    pub collection: Option<&'a str>,
}

impl DroppedKeyspace<'_> {
    /// Removes everything that belongs to the keyspace from the agreed state.
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

    /// Returns true if the keyspace is a whole bucket or scope, and contains `scope` of `bucket`.
    pub(crate) fn contains_scope(&self, bucket: &str, scope: Option<&str>) -> bool {
        self.collection.is_none()
            && self.bucket == bucket
            && (self.scope.is_none() || self.scope == scope)
    }

    /// Returns true if `key` is that of a function, library or sequence in a scope of the keyspace.
    pub(crate) fn contains_key(&self, key: &str) -> bool {
        FunctionId::of_key(key)
            .scope
            .is_some_and(|(bucket, scope)| self.contains_scope(&bucket, Some(&scope)))
    }
}
