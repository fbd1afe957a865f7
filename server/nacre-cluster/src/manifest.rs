//! Scopes and collections of a bucket.

use crate::Refusal;
use nacre_types::{CollectionId, ScopeId};
use serde::{Deserialize, Serialize};

/// The first ID of user-created scopes and collections; lower ones are reserved.
const ID_MIN: u32 = 8;
/// The longest name of a scope or collection, in bytes.
const NAME_BYTES_MAX: usize = 251;

/// The scopes and collections of a bucket at one time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// UID; increases with every change.
    pub uid: u64,
    /// In order of creation; `_default` first.
    pub scopes: Vec<Scope>,
    next_scope: u32,
    next_collection: u32,
}

/// A scope.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scope {
    /// Name, unique in the bucket.
    pub name: String,
    /// ID, in hexadecimal on the wire.
    pub id: u32,
    /// In order of creation.
    pub collections: Vec<Collection>,
}

/// A collection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Collection {
    /// Name, unique in the scope.
    pub name: String,
    /// ID, part of each key.
    pub id: u32,
    /// Maximum TTL of documents in seconds; 0 inherits the bucket's, -1 is never.
    pub max_ttl: i32,
    /// True if superseded versions of its documents are kept, provided that the bucket keeps history.
    #[serde(default)]
    pub history: bool,
}

impl Default for Manifest {
    fn default() -> Manifest {
        let collection = Collection { name: "_default".into(), id: 0, max_ttl: 0, history: false };
        let scope = Scope { name: "_default".into(), id: 0, collections: vec![collection] };
        Manifest { uid: 0, scopes: vec![scope], next_scope: ID_MIN, next_collection: ID_MIN }
    }
}

impl Manifest {
    /// Creates the manifest of a new bucket; `history` is the setting of its default collection.
    pub(crate) fn new(history: bool) -> Manifest {
        let mut manifest = Manifest::default();
        manifest.scopes[0].collections[0].history = history;
        manifest
    }

    /// Returns the manifest reduced to the scopes and collections that `sees` accepts. For a collection, `sees`
    /// receives its scope and its name.
    #[must_use]
    pub fn visible(&self, sees: impl Fn(&str, Option<&str>) -> bool) -> Manifest {
        let mut visible = self.clone();
        visible.scopes.retain_mut(|scope| {
            let name = &scope.name;
            scope.collections.retain(|collection| sees(name, Some(&collection.name)));
            sees(name, None)
        });
        visible
    }

    /// Returns the scope `name`.
    pub fn scope(&self, name: &str) -> Option<&Scope> {
        self.scopes.iter().find(|scope| scope.name == name)
    }

    /// Returns true if the collection existed and was dropped. An unknown future collection is not lost: documents may
    /// arrive before the manifest with their collection.
    pub fn has_lost(&self, collection: CollectionId) -> bool {
        let was_there = collection.0 < ID_MIN || collection.0 < self.next_collection;
        was_there && self.collection_by_id(collection).is_none()
    }

    /// Returns the collection `name` in `scope`.
    pub fn collection(&self, scope: &str, name: &str) -> Option<&Collection> {
        self.scope(scope)?.collections.iter().find(|collection| collection.name == name)
    }

    /// Returns the collection with this ID.
    pub fn collection_by_id(&self, id: CollectionId) -> Option<&Collection> {
        self.scopes
            .iter()
            .flat_map(|scope| &scope.collections)
            .find(|collection| collection.id == id.0)
    }

    /// Resolves a path `scope.collection` to the ID of the collection; an empty part means `_default`.
    ///
    /// # Errors
    /// [`Refusal::ScopeNotFound`], [`Refusal::CollectionNotFound`], or [`Refusal::Invalid`] for another form.
    pub fn resolve(&self, path: &str) -> Result<CollectionId, Refusal> {
        let (scope, collection) = path.split_once('.').ok_or_else(|| invalid_name(path))?;
        let or_default =
            |name: &str| if name.is_empty() { "_default".to_owned() } else { name.to_owned() };
        let (scope, collection) = (or_default(scope), or_default(collection));
        if collection.contains('.') {
            return Err(invalid_name(path));
        }
        let found =
            self.scope(&scope).ok_or_else(|| Refusal::ScopeNotFound { scope: scope.clone() })?;
        found
            .collections
            .iter()
            .find(|known| known.name == collection)
            .map(|known| CollectionId(known.id))
            .ok_or(Refusal::CollectionNotFound { scope, collection })
    }

    /// Returns the ID of the named collection, or of all collections of the named scope, or of all collections.
    ///
    /// # Errors
    /// [`Refusal::ScopeNotFound`], [`Refusal::CollectionNotFound`], or [`Refusal::Invalid`] for a collection without a
    /// scope.
    pub fn collections(
        &self,
        scope: Option<&str>,
        collection: Option<&str>,
    ) -> Result<Vec<CollectionId>, Refusal> {
        let all = |scope: &Scope| -> Vec<CollectionId> {
            scope.collections.iter().map(|collection| CollectionId(collection.id)).collect()
        };
        match (scope, collection) {
            (Some(scope), Some(name)) => {
                let path = format!("{scope}.{name}");
                Ok(vec![self.resolve(&path)?])
            }
            (Some(name), None) => {
                let found = self.scope(name);
                found.map(all).ok_or_else(|| Refusal::ScopeNotFound { scope: name.to_owned() })
            }
            (None, None) => Ok(self.scopes.iter().flat_map(all).collect()),
            (None, Some(_)) => Err(Refusal::Invalid {
                field: "collection",
                reason: "a collection is named with its scope".into(),
            }),
        }
    }

    /// Resolves a path (a scope, optionally followed by a dot and a collection) to the ID of the scope.
    ///
    /// # Errors
    /// [`Refusal::ScopeNotFound`].
    pub fn resolve_scope(&self, path: &str) -> Result<ScopeId, Refusal> {
        let name = path.split('.').next().filter(|name| !name.is_empty()).unwrap_or("_default");
        let scope =
            self.scope(name).ok_or_else(|| Refusal::ScopeNotFound { scope: name.to_owned() })?;
        Ok(ScopeId(scope.id))
    }

    pub(crate) fn create_scope(&mut self, name: &str) -> Result<(), Refusal> {
        check_name(name)?;
        if self.scope(name).is_some() {
            return Err(Refusal::ScopeExists { scope: name.to_owned() });
        }
        self.scopes.push(Scope {
            name: name.to_owned(),
            id: self.next_scope,
            collections: Vec::new(),
        });
        self.next_scope += 1;
        self.uid += 1;
        Ok(())
    }

    /// Drops a scope. Returns the IDs of its collections.
    pub(crate) fn drop_scope(&mut self, name: &str) -> Result<Vec<CollectionId>, Refusal> {
        let index = self.scopes.iter().position(|scope| scope.name == name);
        let index = index.ok_or_else(|| Refusal::ScopeNotFound { scope: name.to_owned() })?;
        if self.scopes[index].id == 0 {
            return Err(Refusal::Invalid {
                field: "_",
                reason: "Deleting _default scope is not allowed".into(),
            });
        }
        let scope = self.scopes.remove(index);
        self.uid += 1;
        Ok(scope.collections.iter().map(|collection| CollectionId(collection.id)).collect())
    }

    pub(crate) fn create_collection(
        &mut self,
        scope: &str,
        name: &str,
        max_ttl: i32,
        history: bool,
    ) -> Result<(), Refusal> {
        check_name(name)?;
        let id = self.next_collection;
        let found = self.scope_mut(scope)?;
        if found.collections.iter().any(|collection| collection.name == name) {
            return Err(Refusal::CollectionExists {
                scope: scope.to_owned(),
                collection: name.to_owned(),
            });
        }
        found.collections.push(Collection { name: name.to_owned(), id, max_ttl, history });
        self.next_collection += 1;
        self.uid += 1;
        Ok(())
    }

    pub(crate) fn drop_collection(
        &mut self,
        scope: &str,
        name: &str,
    ) -> Result<CollectionId, Refusal> {
        let found = self.scope_mut(scope)?;
        let index = found.collections.iter().position(|collection| collection.name == name);
        let missing =
            || Refusal::CollectionNotFound { scope: scope.to_owned(), collection: name.to_owned() };
        let collection = found.collections.remove(index.ok_or_else(missing)?);
        self.uid += 1;
        Ok(CollectionId(collection.id))
    }

    /// Changes settings of a collection; `None` leaves a setting unchanged.
    pub(crate) fn update_collection(
        &mut self,
        scope: &str,
        name: &str,
        max_ttl: Option<i32>,
        history: Option<bool>,
    ) -> Result<(), Refusal> {
        let found = self.scope_mut(scope)?;
        let collection = found.collections.iter_mut().find(|collection| collection.name == name);
        let missing =
            || Refusal::CollectionNotFound { scope: scope.to_owned(), collection: name.to_owned() };
        let collection = collection.ok_or_else(missing)?;
        collection.max_ttl = max_ttl.unwrap_or(collection.max_ttl);
        collection.history = history.unwrap_or(collection.history);
        self.uid += 1;
        Ok(())
    }

    fn scope_mut(&mut self, name: &str) -> Result<&mut Scope, Refusal> {
        let scope = self.scopes.iter_mut().find(|scope| scope.name == name);
        scope.ok_or_else(|| Refusal::ScopeNotFound { scope: name.to_owned() })
    }
}

fn invalid_name(name: &str) -> Refusal {
    Refusal::Invalid {
        field: "name",
        reason: format!("{name:?} is not of the form scope.collection"),
    }
}

fn check_name(name: &str) -> Result<(), Refusal> {
    let reason = if name.is_empty() {
        "The value must be supplied"
    } else if name.len() > NAME_BYTES_MAX {
        "Length must be in range from 1 to 251"
    } else if name.starts_with(['_', '%']) {
        "First character must not be _ or %"
    } else if !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_%-".contains(&byte)) {
        "Can only contain characters A-Z, a-z, 0-9 and the following symbols _ - %"
    } else {
        return Ok(());
    };
    Err(Refusal::Invalid { field: "name", reason: reason.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_never_used_twice() {
        let mut manifest = Manifest::default();
        manifest.create_scope("travel").unwrap();
        manifest.create_collection("travel", "airports", 0, false).unwrap();
        let first = manifest.resolve("travel.airports").unwrap();
        assert_eq!(manifest.drop_collection("travel", "airports"), Ok(first));
        manifest.create_collection("travel", "airports", 0, false).unwrap();
        assert_ne!(manifest.resolve("travel.airports").unwrap(), first);
        assert_eq!(manifest.uid, 4);
    }

    #[test]
    fn paths_name_collections() {
        let manifest = Manifest::default();
        assert_eq!(manifest.resolve("_default._default"), Ok(CollectionId(0)));
        assert_eq!(manifest.resolve("."), Ok(CollectionId(0)));
        assert_eq!(
            manifest.resolve("x._default"),
            Err(Refusal::ScopeNotFound { scope: "x".into() })
        );
        assert!(matches!(manifest.resolve("._y"), Err(Refusal::CollectionNotFound { .. })));
        assert!(matches!(manifest.resolve("plain"), Err(Refusal::Invalid { .. })));
    }

    #[test]
    fn ambiguous_names_are_refused() {
        let mut manifest = Manifest::default();
        for name in ["", "_system", "%a", "a b", "a.b", &"x".repeat(252)] {
            assert!(matches!(manifest.create_scope(name), Err(Refusal::Invalid { .. })), "{name}");
        }
        assert_eq!(manifest, Manifest::default());
    }
}
