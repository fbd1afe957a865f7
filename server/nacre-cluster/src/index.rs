//! Indexes of collections in the agreed state.

use crate::{Bucket, Refusal};
use serde::{Deserialize, Serialize};

/// The longest name of an index, in bytes. Source: Couchbase.
const NAME_BYTES_MAX: usize = 512;
/// Maximum number of indexes of a bucket. Source: Couchbase's limit of 10,000 per cluster; here each node feeds every
/// index.
const INDEXES_MAX: usize = 1000;

/// An index.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Index {
    /// UUID: 32 hexadecimal digits, never reused for another index.
    pub uuid: String,
    /// The scope of the collection.
    pub scope: String,
    /// The collection.
    pub collection: String,
    /// The name, unique in its collection.
    pub name: String,
    /// The statement that created the index, which configures its access method.
    pub definition: String,
    /// Key expressions; empty for a primary index.
    pub keys: Vec<String>,
    /// Condition that selects documents; `None` for all documents.
    pub condition: Option<String>,
    /// True if the index is built; false while its build is deferred.
    pub built: bool,
    /// Partitioning of the entries; `None` if they are stored with their documents.
    #[serde(default)]
    pub partitioning: Option<Partitioning>,
}

/// Partitioning of an index's entries over nodes, independent of their documents.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Partitioning {
    /// Expressions that determine the partition.
    pub by: Vec<String>,
    /// Number of partitions, at least one.
    pub count: u16,
    /// Additional copies of each partition, as far as there are nodes.
    pub replicas: u8,
}

impl Bucket {
    /// Returns the index with this name.
    ///
    /// # Errors
    /// [`Refusal::IndexNotFound`].
    pub fn index(&self, scope: &str, collection: &str, name: &str) -> Result<&Index, Refusal> {
        let ours = |index: &&Index| {
            (&*index.scope, &*index.collection, &*index.name) == (scope, collection, name)
        };
        self.indexes
            .iter()
            .find(ours)
            .ok_or_else(|| Refusal::IndexNotFound { name: name.to_owned() })
    }

    /// Returns the indexes of a collection.
    pub fn indexes_of<'a>(
        &'a self,
        scope: &'a str,
        collection: &'a str,
    ) -> impl Iterator<Item = &'a Index> {
        let ours = move |index: &&Index| index.scope == scope && index.collection == collection;
        self.indexes.iter().filter(ours)
    }

    pub(crate) fn create_index(&mut self, index: &Index) -> Result<(), Refusal> {
        self.manifest.resolve(&format!("{}.{}", index.scope, index.collection))?;
        if self.index(&index.scope, &index.collection, &index.name).is_ok() {
            return Err(Refusal::IndexExists { name: index.name.clone() });
        }
        let invalid = |reason: String| Err(Refusal::Invalid { field: "name", reason });
        if index.name.is_empty() || index.name.len() > NAME_BYTES_MAX {
            return invalid(format!("The name of an index has 1 to {NAME_BYTES_MAX} bytes"));
        }
        if self.indexes.len() >= INDEXES_MAX {
            return invalid(format!("A bucket has {INDEXES_MAX} indexes at most"));
        }
        self.indexes.push(index.clone());
        Ok(())
    }

    pub(crate) fn drop_index(
        &mut self,
        scope: &str,
        collection: &str,
        name: &str,
    ) -> Result<(), Refusal> {
        let uuid = self.index(scope, collection, name)?.uuid.clone();
        self.indexes.retain(|index| index.uuid != uuid);
        Ok(())
    }

    pub(crate) fn build_indexes(
        &mut self,
        scope: &str,
        collection: &str,
        names: &[String],
    ) -> Result<(), Refusal> {
        for name in names {
            self.index(scope, collection, name)?;
        }
        let ours = |index: &&mut Index| {
            index.scope == scope && index.collection == collection && names.contains(&index.name)
        };
        self.indexes.iter_mut().filter(ours).for_each(|index| index.built = true);
        Ok(())
    }

    pub(crate) fn set_index_replicas(
        &mut self,
        scope: &str,
        collection: &str,
        name: &str,
        replicas: u8,
    ) -> Result<(), Refusal> {
        let uuid = self.index(scope, collection, name)?.uuid.clone();
        let found = self.indexes.iter_mut().find(|index| index.uuid == uuid);
        let partitioning = found.and_then(|index| index.partitioning.as_mut());
        let partitioning = partitioning.ok_or_else(|| Refusal::Invalid {
            field: "num_replica",
            reason: format!(
                "The entries of index {name} are with their documents, and have as many copies as these"
            ),
        })?;
        partitioning.replicas = replicas;
        Ok(())
    }

    /// Removes the indexes of dropped collections.
    pub(crate) fn forget_indexes(&mut self) {
        let manifest = &self.manifest;
        let is_there =
            |index: &Index| manifest.resolve(&format!("{}.{}", index.scope, index.collection));
        self.indexes.retain(|index| is_there(index).is_ok());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BucketChange, BucketSettings, Change, Cluster, IndexChange};

    #[test]
    fn indexes_are_created_once_built_later_and_dropped_with_their_collection() {
        let mut cluster = Cluster::new("c".into());
        let settings = BucketSettings::default();
        let (name, uuid) = ("a".to_owned(), "u".to_owned());
        cluster
            .apply(&Change::Buckets(BucketChange::CreateBucket { name, uuid, settings }))
            .unwrap();
        let index = |name: &str, scope: &str| Index {
            uuid: format!("{scope}/{name}"),
            scope: scope.into(),
            collection: "_default".into(),
            name: name.into(),
            definition: String::new(),
            keys: vec!["a".into()],
            condition: None,
            built: false,
            partitioning: None,
        };
        let create = |name: &str| {
            Change::Indexes(IndexChange::CreateIndex {
                bucket: "a".into(),
                index: index(name, "_default"),
            })
        };
        cluster.apply(&create("i")).unwrap();
        cluster.apply(&create("j")).unwrap();
        let again = cluster.apply(&create("i")).unwrap_err();
        assert_eq!(again.to_string(), "The index i already exists.");
        let elsewhere = Change::Indexes(IndexChange::CreateIndex {
            bucket: "a".into(),
            index: index("i", "nowhere"),
        });
        assert!(matches!(cluster.apply(&elsewhere), Err(Refusal::ScopeNotFound { .. })));
        let (bucket, scope, collection) =
            (|| "a".to_owned(), || "_default".to_owned(), || "_default".to_owned());
        let build = |names: &[&str]| {
            Change::Indexes(IndexChange::BuildIndexes {
                bucket: bucket(),
                scope: scope(),
                collection: collection(),
                names: names.iter().map(|name| (*name).to_owned()).collect(),
            })
        };
        assert!(cluster.apply(&build(&["i", "z"])).is_err());
        let built = |cluster: &Cluster| {
            cluster.buckets["a"].indexes.iter().filter(|index| index.built).count()
        };
        assert_eq!(built(&cluster), 0, "all of them or none");
        cluster.apply(&build(&["i", "j"])).unwrap();
        assert_eq!(built(&cluster), 2);
        let mut spread = index("s", "_default");
        spread.partitioning = Some(Partitioning { by: vec!["a".into()], count: 8, replicas: 0 });
        cluster
            .apply(&Change::Indexes(IndexChange::CreateIndex { bucket: "a".into(), index: spread }))
            .unwrap();
        let copies = |name: &str| {
            Change::Indexes(IndexChange::SetIndexReplicas {
                bucket: bucket(),
                scope: scope(),
                collection: collection(),
                name: name.into(),
                replicas: 1,
            })
        };
        cluster.apply(&copies("s")).unwrap();
        let spread = cluster.buckets["a"].index("_default", "_default", "s").unwrap();
        assert_eq!(spread.partitioning.as_ref().map(|spread| spread.replicas), Some(1));
        assert!(matches!(cluster.apply(&copies("z")), Err(Refusal::IndexNotFound { .. })));
        let refused = cluster.apply(&copies("i")).unwrap_err();
        assert!(matches!(refused, Refusal::Invalid { field: "num_replica", .. }), "{refused}");
        let drop = Change::Indexes(IndexChange::DropIndex {
            bucket: bucket(),
            scope: scope(),
            collection: collection(),
            name: "i".into(),
        });
        cluster.apply(&drop).unwrap();
        assert!(cluster.apply(&drop).is_err());
        let end = Change::Buckets(BucketChange::DropCollection {
            bucket: bucket(),
            scope: scope(),
            collection: collection(),
        });
        cluster.apply(&end).unwrap();
        assert!(cluster.buckets["a"].indexes.is_empty());
    }
}
