//! The catalog: scopes, collections with their indexes, and synonyms, in one file that is replaced as a whole.

use crate::error::{Error, Result};
use crate::follower::Keyspace;
use crate::statement::{DEFAULT_SCOPE, Qualified};
use nacre_sql::Value;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

/// The version of the file.
const VERSION: u32 = 1;

/// An analytics collection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Collection {
    /// The bucket, scope and collection that it follows.
    pub source: [String; 3],
    /// The condition on documents, in its original text.
    pub condition: Option<String>,
    /// Indexes by name.
    pub indexes: BTreeMap<String, Index>,
}

impl Collection {
    /// Returns the collection that it follows.
    pub fn keyspace(&self) -> Keyspace {
        let [bucket, scope, collection] = self.source.clone();
        Keyspace { bucket, scope, collection }
    }
}

/// An index. It exists for clients that create and list it; reads use the columns.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Index {
    /// The paths with their types.
    pub fields: Vec<(Vec<String>, String)>,
    /// True for an index of the elements of an array.
    pub is_array: bool,
}

/// An analytics scope.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scope {
    /// Collections by name.
    pub collections: BTreeMap<String, Collection>,
    /// Scope and name by synonym.
    pub synonyms: BTreeMap<String, (String, String)>,
    /// True if the link `Local` was disconnected.
    pub is_disconnected: bool,
}

/// All definitions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Catalog {
    version: u32,
    /// Scopes by name.
    pub scopes: BTreeMap<String, Scope>,
}

impl Default for Catalog {
    fn default() -> Catalog {
        let scopes = BTreeMap::from([(DEFAULT_SCOPE.to_owned(), Scope::default())]);
        Catalog { version: VERSION, scopes }
    }
}

impl Catalog {
    /// Reads the catalog of a folder; returns an empty one if there is no file.
    ///
    /// # Errors
    /// A message if the file cannot be read, or has another version.
    pub fn read(folder: &Path) -> std::result::Result<Catalog, String> {
        let path = file(folder);
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(Catalog::default());
            }
            Err(error) => return Err(format!("{}: {error}", path.display())),
        };
        let catalog: Catalog = serde_json::from_slice(&bytes)
            .map_err(|error| format!("{}: {error}", path.display()))?;
        match catalog.version {
            VERSION => Ok(catalog),
            other => Err(format!("{}: version {other} is of another release", path.display())),
        }
    }

    /// Writes the catalog into a folder: the new file is on disk before it replaces the old one.
    ///
    /// # Errors
    /// Code 25000 with the error of the disk.
    pub fn write(&self, folder: &Path) -> Result<()> {
        let write = || -> std::io::Result<()> {
            fs::create_dir_all(folder)?;
            let new = file(folder).with_extension("new");
            let mut output = File::create(&new)?;
            output.write_all(&serde_json::to_vec(self)?)?;
            output.sync_all()?;
            fs::rename(&new, file(folder))?;
            File::open(folder)?.sync_all()
        };
        write().map_err(|error| Error::internal(format!("the catalog cannot be written: {error}")))
    }

    /// Returns the scope with this name.
    ///
    /// # Errors
    /// Code 24034 if there is none.
    pub fn scope(&self, name: &str) -> Result<&Scope> {
        self.scopes.get(name).ok_or_else(|| no_scope(name))
    }

    /// Returns the scope with this name, for changes.
    ///
    /// # Errors
    /// Code 24034 if there is none.
    pub fn scope_mut(&mut self, name: &str) -> Result<&mut Scope> {
        self.scopes.get_mut(name).ok_or_else(|| no_scope(name))
    }

    /// Returns scope and name of the collection that a name refers to, directly or by a synonym.
    pub fn resolve(&self, scope: &str, name: &str) -> Option<(String, String)> {
        let found = self.scopes.get(scope)?;
        if found.collections.contains_key(name) {
            return Some((scope.to_owned(), name.to_owned()));
        }
        let (scope, name) = found.synonyms.get(name)?;
        let target = self.scopes.get(scope)?;
        target.collections.contains_key(name).then(|| (scope.clone(), name.clone()))
    }

    /// Returns the collection that a definition names.
    ///
    /// # Errors
    /// Codes 24034 and 24025 for a missing scope or collection.
    pub fn collection_mut(&mut self, scope: &str, name: &Qualified) -> Result<&mut Collection> {
        let scope = name.scope.clone().unwrap_or_else(|| scope.to_owned());
        let found = self.scope_mut(&scope)?;
        found.collections.get_mut(&name.name).ok_or_else(|| no_collection(&scope, &name.name))
    }

    /// Returns the rows of a collection of the scope `Metadata`; `None` if there is no such collection.
    pub fn metadata(&self, name: &str) -> Option<Vec<Value>> {
        let rows: Vec<Vec<(&str, Value)>> = match name {
            "Dataverse" => {
                self.scopes.keys().map(|scope| vec![("DataverseName", text(scope))]).collect()
            }
            "Dataset" => self.collections().map(dataset_row).collect(),
            "Index" => self.collections().flat_map(index_rows).collect(),
            "Synonym" => self.synonym_rows(),
            "Link" => self.scopes.keys().map(|scope| link_row(scope)).collect(),
            "Function" => Vec::new(),
            _ => return None,
        };
        Some(rows.into_iter().map(Value::object).collect())
    }

    /// Returns all collections with scope and name.
    pub fn collections(&self) -> impl Iterator<Item = (&String, &String, &Collection)> {
        self.scopes.iter().flat_map(|(scope, content)| {
            content.collections.iter().map(move |(name, collection)| (scope, name, collection))
        })
    }

    fn synonym_rows(&self) -> Vec<Vec<(&'static str, Value)>> {
        let all = self.scopes.iter().flat_map(|(scope, content)| {
            content.synonyms.iter().map(move |(name, target)| (scope, name, target))
        });
        all.map(|(scope, name, (target_scope, target))| {
            vec![
                ("DataverseName", text(scope)),
                ("SynonymName", text(name)),
                ("ObjectDataverseName", text(target_scope)),
                ("ObjectName", text(target)),
            ]
        })
        .collect()
    }
}

fn text(text: &str) -> Value {
    Value::string(text)
}

type Row = Vec<(&'static str, Value)>;

fn dataset_row((scope, name, collection): (&String, &String, &Collection)) -> Row {
    let [bucket, source_scope, source] = &collection.source;
    vec![
        ("DataverseName", text(scope)),
        ("DatasetName", text(name)),
        ("LinkName", text("Local")),
        ("BucketName", text(bucket)),
        ("ScopeName", text(source_scope)),
        ("CollectionName", text(source)),
        ("DatasetType", text("INTERNAL")),
    ]
}

fn index_rows((scope, name, collection): (&String, &String, &Collection)) -> Vec<Row> {
    let row = |index: &str, is_primary: bool, structure: &str, keys: Value, kinds: Value| {
        vec![
            ("DataverseName", text(scope)),
            ("DatasetName", text(name)),
            ("IndexName", text(index)),
            ("IndexStructure", text(structure)),
            ("IsPrimary", Value::Bool(is_primary)),
            ("SearchKey", keys),
            ("SearchKeyType", kinds),
        ]
    };
    let primary = row(name, true, "BTREE", Value::array(Vec::new()), Value::array(Vec::new()));
    let others = collection.indexes.iter().map(|(index, definition)| {
        let path = |path: &Vec<String>| Value::array(path.iter().map(|name| text(name)).collect());
        let keys = definition.fields.iter().map(|(names, _)| path(names)).collect();
        let kinds = definition.fields.iter().map(|(_, kind)| text(kind)).collect();
        let structure = if definition.is_array { "ARRAY" } else { "BTREE" };
        row(index, false, structure, Value::array(keys), Value::array(kinds))
    });
    std::iter::once(primary).chain(others).collect()
}

fn link_row(scope: &str) -> Row {
    vec![("DataverseName", text(scope)), ("Name", text("Local")), ("IsActive", Value::Bool(true))]
}

fn file(folder: &Path) -> PathBuf {
    folder.join("catalog.json")
}

/// Returns the error for a missing scope.
pub fn no_scope(name: &str) -> Error {
    Error::new(24034, format!("Cannot find analytics scope with name {name}"))
}

/// Returns the error for a missing collection in a definition.
pub fn no_collection(scope: &str, name: &str) -> Error {
    Error::new(
        24025,
        format!("Cannot find analytics collection with name {name} in analytics scope {scope}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn defined() -> Catalog {
        let mut catalog = Catalog::default();
        let fields = vec![(vec!["f".to_owned()], "string".to_owned())];
        let indexes = BTreeMap::from([("i".to_owned(), Index { fields, is_array: false })]);
        let source = ["b", "_default", "_default"].map(String::from);
        let collection = Collection { source, condition: None, indexes };
        let scope = catalog.scope_mut(DEFAULT_SCOPE).unwrap();
        scope.collections.insert("ds".into(), collection);
        scope.synonyms.insert("s".into(), (DEFAULT_SCOPE.into(), "ds".into()));
        catalog
    }

    #[test]
    fn definitions_survive_a_restart() {
        let folder =
            std::env::temp_dir().join(format!("nacre-analytics-{:x}", rand::random::<u64>()));
        assert_eq!(Catalog::read(&folder).unwrap(), Catalog::default());
        defined().write(&folder).unwrap();
        assert_eq!(Catalog::read(&folder).unwrap(), defined());
        fs::write(file(&folder), b"{\"version\":9,\"scopes\":{}}").unwrap();
        assert!(Catalog::read(&folder).unwrap_err().contains("version 9"));
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn metadata_has_the_fields_that_sdks_need() {
        let catalog = defined();
        let json = |name: &str| Value::array(catalog.metadata(name).unwrap()).to_json();
        for field in ["DatasetName", "DataverseName", "LinkName", "BucketName", "DatasetType"] {
            assert!(json("Dataset").contains(&format!("\"{field}\":")), "{field}");
        }
        assert_eq!(catalog.metadata("Index").unwrap().len(), 2);
        assert!(json("Index").contains("\"IndexName\":\"i\""));
        assert_eq!(catalog.metadata("Nothing"), None);
        assert_eq!(catalog.resolve(DEFAULT_SCOPE, "s"), Some((DEFAULT_SCOPE.into(), "ds".into())));
    }
}
