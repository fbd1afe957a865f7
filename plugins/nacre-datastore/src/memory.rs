//! An in-memory datastore with real indexes, for tests and for programs with documents but no node.

use crate::options;
use crate::sequences::MemorySequences;
use crate::store::{
    Action, Consistency, Datastore, Document, Documents, FunctionPath, Index, IndexRange, Indexed,
    Keyspace, Mutation, Notes, Refusal, Rights, Script,
};
use nacre_sql::ast::{CreateIndex, Path, Statement};
use nacre_sql::index::Definition;
use nacre_sql::{Error, Meta, Name, Result, Value};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

#[derive(Default)]
struct Collection {
    documents: BTreeMap<Name, Document>,
    indexes: Vec<MemoryIndex>,
}

struct MemoryIndex {
    id: u64,
    text: String,
    definition: Definition,
    online: bool,
    /// The partition expressions, as text.
    partition: Option<String>,
    /// The entries, each with its partition.
    entries: BTreeMap<Vec<u8>, Option<u16>>,
}

/// Runs JavaScript functions.
pub trait Evaluator {
    /// Calls a function, as in [`Datastore::call`].
    ///
    /// # Errors
    /// Code 10109 if the function cannot be run.
    fn call(&self, path: &FunctionPath, script: &Script, arguments: &str) -> Result<String>;
}

/// Decides what the user may do.
pub trait Authorizer {
    /// Checks rights, as in [`Datastore::authorize`].
    ///
    /// # Errors
    /// Code 13014 if the user lacks the rights.
    fn authorize(&self, keyspace: &Keyspace, rights: Rights) -> Result<()>;
}

/// Answers search requests.
pub trait Searcher {
    /// Answers a request, as in [`Datastore::search`].
    ///
    /// # Errors
    /// Code 5010 if the query is refused.
    fn search(&self, keyspace: &Keyspace, request: &Value) -> Result<Value>;
}

/// Documents and indexes in memory. Scopes and collections exist from their creation to their removal.
#[derive(Default)]
pub struct MemoryDatastore {
    collections: RefCell<BTreeMap<Keyspace, Collection>>,
    scopes: RefCell<BTreeSet<(Name, Name)>>,
    last_cas: Cell<u64>,
    last_index: Cell<u64>,
    version: Cell<u64>,
    functions: RefCell<BTreeMap<FunctionPath, (String, Option<Script>)>>,
    evaluator: RefCell<Option<Box<dyn Evaluator>>>,
    searcher: RefCell<Option<Box<dyn Searcher>>>,
    authorizer: RefCell<Option<Box<dyn Authorizer>>>,
    notes: RefCell<BTreeMap<String, String>>,
    sequences: MemorySequences,
}

fn next(counter: &Cell<u64>) -> u64 {
    counter.set(counter.get() + 1);
    counter.get()
}

fn missing(keyspace: &Keyspace) -> Error {
    Error::new(12003, format!("Keyspace not found in CB datastore: {keyspace}"))
}

impl MemoryDatastore {
    /// Creates an empty store.
    pub fn new() -> MemoryDatastore {
        MemoryDatastore::default()
    }

    /// Sets the evaluator of JavaScript functions; without one, calls fail.
    pub fn set_evaluator(&self, evaluator: impl Evaluator + 'static) {
        *self.evaluator.borrow_mut() = Some(Box::new(evaluator));
    }

    /// Sets the searcher; without one, searches are refused.
    pub fn set_searcher(&self, searcher: impl Searcher + 'static) {
        *self.searcher.borrow_mut() = Some(Box::new(searcher));
    }

    /// Sets the authorizer, which only [`Datastore::authorize`] asks; without one, everything is allowed.
    pub fn set_authorizer(&self, authorizer: impl Authorizer + 'static) {
        *self.authorizer.borrow_mut() = Some(Box::new(authorizer));
    }

    /// Creates a collection, its scope and its bucket, unless they exist.
    pub fn add_collection(&self, keyspace: &Keyspace) {
        self.scopes.borrow_mut().insert((keyspace.bucket.clone(), keyspace.scope.clone()));
        self.collections.borrow_mut().entry(keyspace.clone()).or_default();
        next(&self.version);
    }

    /// Stores the statistics of a keyspace with a new stamp, or removes them.
    fn put_statistics(&self, request: &Value) {
        let part = |name: &str| request.field(name).as_str().unwrap_or_default().to_owned();
        let key = format!("statistics/{}/{}/{}", part("bucket"), part("scope"), part("collection"));
        let row = request.field("row");
        let stamp = next(&self.version).to_string();
        let is_there = !row.is_missing();
        self.note(&format!("{key}/stamp"), is_there.then_some(stamp.as_str()));
        self.note(&key, is_there.then(|| row.to_json()).as_deref());
    }

    fn with<T>(
        &self,
        keyspace: &Keyspace,
        run: impl FnOnce(&mut Collection) -> Result<T>,
    ) -> Result<T> {
        if !self.collections.borrow().contains_key(keyspace) {
            return Err(self.missing(keyspace));
        }
        run(self.collections.borrow_mut().get_mut(keyspace).ok_or_else(|| missing(keyspace))?)
    }

    /// Returns the error for a missing keyspace, which names the missing part: scope or collection.
    fn missing(&self, keyspace: &Keyspace) -> Error {
        let Keyspace { bucket, scope, .. } = keyspace;
        let has_bucket = self.collections.borrow().keys().any(|known| known.bucket == *bucket);
        let has_scope = &**scope == "_default"
            || self.scopes.borrow().contains(&(bucket.clone(), scope.clone()))
            || self
                .collections
                .borrow()
                .keys()
                .any(|of| of.bucket == *bucket && of.scope == *scope);
        if !has_bucket || has_scope {
            return missing(keyspace);
        }
        let message = format!("Scope not found in CB datastore: default:{bucket}.{scope}");
        Error::new(12021, message)
    }

    fn create_index(&self, create: &CreateIndex, context: Option<&Path>) -> Result<()> {
        let keyspace = Keyspace::of(&create.keyspace, context)?;
        let definition = Definition::new(create.clone())?;
        let id = next(&self.last_index);
        self.with(&keyspace, |collection| {
            if collection.indexes.iter().any(|index| index.definition.name == definition.name) {
                if create.if_not_exists {
                    return Ok(());
                }
                return Err(Error::new(
                    4300,
                    format!("The index {} already exists.", definition.name),
                ));
            }
            let online = !create.with.field("defer_build").truth();
            let text = create.to_string();
            let by: Vec<String> = create.partition.iter().map(ToString::to_string).collect();
            let partition = (!by.is_empty()).then(|| format!("HASH({})", by.join(", ")));
            let entries = BTreeMap::new();
            let mut index = MemoryIndex { id, text, definition, online, partition, entries };
            for document in collection.documents.values() {
                index.entries.extend(self::entries(&index.definition, document)?);
            }
            collection.indexes.push(index);
            Ok(())
        })
    }

    fn drop_index(&self, name: &str, keyspace: &Keyspace, if_exists: bool) -> Result<()> {
        self.with(keyspace, |collection| {
            let before = collection.indexes.len();
            collection.indexes.retain(|index| *index.definition.name != *name);
            if collection.indexes.len() == before && !if_exists {
                return Err(no_index(name));
            }
            Ok(())
        })
    }

    fn create_collection(
        &self,
        path: &Path,
        context: Option<&Path>,
        if_not_exists: bool,
    ) -> Result<()> {
        let keyspace = Keyspace::of(path, context)?;
        if !self.scopes.borrow().contains(&(keyspace.bucket.clone(), keyspace.scope.clone())) {
            return Err(Error::new(
                12021,
                format!("Scope not found in CB datastore: {}", keyspace.scope),
            ));
        }
        if self.collections.borrow().contains_key(&keyspace) && !if_not_exists {
            return Err(Error::new(12027, format!("Collection {keyspace} already exists.")));
        }
        self.add_collection(&keyspace);
        Ok(())
    }

    fn change_scope(
        &self,
        path: &Path,
        context: Option<&Path>,
        create: bool,
        lenient: bool,
    ) -> Result<()> {
        let (bucket, scope) = match (&path.parts[..], context.map(|context| &context.parts[..])) {
            ([bucket, scope], _) => (bucket.clone(), scope.clone()),
            ([scope], Some([bucket, ..])) => (bucket.clone(), scope.clone()),
            _ => return Err(Error::new(12021, format!("Scope not found in CB datastore: {path}"))),
        };
        let named = (bucket.clone(), scope.clone());
        let there = self.scopes.borrow().contains(&named);
        match (create, there) {
            (true, true) if !lenient => {
                Err(Error::new(12025, format!("Scope {scope} already exists.")))
            }
            (false, false) if !lenient => {
                Err(Error::new(12021, format!("Scope not found in CB datastore: {scope}")))
            }
            (true, _) => {
                self.scopes.borrow_mut().insert(named);
                Ok(())
            }
            (false, _) => {
                self.scopes.borrow_mut().remove(&named);
                self.collections.borrow_mut().retain(|k, _| k.bucket != bucket || k.scope != scope);
                Ok(())
            }
        }
    }
}

fn no_index(name: &str) -> Error {
    Error::new(12016, format!("GSI index {name} not found."))
}

/// Returns the index entries of a document, each with its partition.
fn entries(
    definition: &Definition,
    document: &Document,
) -> Result<impl Iterator<Item = (Vec<u8>, Option<u16>)> + use<>> {
    let value = Value::parse(&document.body).unwrap_or(Value::Null);
    let meta = Arc::new(meta(document));
    let partition = definition.partition(&value, &meta)?;
    Ok(definition.entries(&value, &meta)?.into_iter().map(move |entry| (entry, partition)))
}

fn meta(document: &Document) -> Meta {
    Meta {
        id: document.id.clone(),
        cas: document.cas,
        expiration: document.expiration,
        flags: document.flags,
        json: document.json,
        ..Meta::default()
    }
}

impl Collection {
    fn index_mut(&mut self, name: &str) -> Result<&mut MemoryIndex> {
        let mut indexes = self.indexes.iter_mut();
        indexes.find(|index| *index.definition.name == *name).ok_or_else(|| no_index(name))
    }

    fn write(&mut self, document: Document) -> Result<()> {
        self.remove(&document.id.clone())?;
        for index in &mut self.indexes {
            index.entries.extend(entries(&index.definition, &document)?);
        }
        self.documents.insert(document.id.clone(), document);
        Ok(())
    }

    fn remove(&mut self, id: &Name) -> Result<()> {
        if let Some(old) = self.documents.remove(id) {
            for index in &mut self.indexes {
                for (entry, _) in entries(&index.definition, &old)? {
                    index.entries.remove(&entry);
                }
            }
        }
        Ok(())
    }

    fn mutate(
        &mut self,
        mutation: &Mutation,
        cas: u64,
    ) -> Result<std::result::Result<u64, Refusal>> {
        let old = self.documents.get(&mutation.id);
        match (&mutation.action, old) {
            (Action::Insert, Some(_)) => return Ok(Err(Refusal::Exists)),
            (Action::Replace(_) | Action::Remove(_), None) => return Ok(Err(Refusal::NotFound)),
            (Action::Replace(version), Some(old)) if old.cas != *version => {
                return Ok(Err(Refusal::CasMismatch));
            }
            (Action::Remove(version), Some(old)) if *version != 0 && old.cas != *version => {
                return Ok(Err(Refusal::CasMismatch));
            }
            _ => {}
        }
        if let Action::Remove(_) = mutation.action {
            self.remove(&mutation.id)?;
            return Ok(Ok(cas));
        }
        let expiration = mutation.expiration.or(old.map(|old| old.expiration)).unwrap_or(0);
        let document = Document {
            id: mutation.id.clone(),
            body: mutation.body.clone(),
            cas,
            expiration,
            flags: 0x0200_0000,
            json: true,
        };
        self.write(document)?;
        Ok(Ok(cas))
    }
}

impl Datastore for MemoryDatastore {
    fn check(&self, keyspace: &Keyspace) -> Result<()> {
        self.with(keyspace, |_| Ok(()))
    }

    fn version(&self) -> u64 {
        self.version.get()
    }

    fn indexes(&self, keyspace: &Keyspace) -> Result<Vec<Index>> {
        self.with(keyspace, |collection| {
            let indexes = collection.indexes.iter();
            Ok(indexes
                .map(|index| Index {
                    id: index.id,
                    definition: index.text.clone(),
                    online: index.online,
                })
                .collect())
        })
    }

    fn fetch(&self, keyspace: &Keyspace, ids: &[Name]) -> Result<Vec<Option<Document>>> {
        self.with(keyspace, |collection| {
            Ok(ids.iter().map(|id| collection.documents.get(id).cloned()).collect())
        })
    }

    fn scan(
        &self,
        keyspace: &Keyspace,
        after: Option<&str>,
        bodies: bool,
        limit: usize,
        _: &Consistency,
    ) -> Result<Vec<Document>> {
        let from = after.map_or(Bound::Unbounded, |after| Bound::Excluded(Name::from(after)));
        self.with(keyspace, |collection| {
            let documents = collection.documents.range((from, Bound::Unbounded)).take(limit);
            Ok(documents
                .map(|(_, document)| match bodies {
                    true => document.clone(),
                    false => Document { body: Vec::new(), ..document.clone() },
                })
                .collect())
        })
    }

    fn scan_index(
        &self,
        keyspace: &Keyspace,
        range: &IndexRange<'_>,
        _: &Consistency,
    ) -> Result<Vec<Vec<u8>>> {
        self.with(keyspace, |collection| {
            let index = collection.indexes.iter().find(|index| index.id == range.index);
            let entries = &index.ok_or_else(|| no_index("of the plan"))?.entries;
            let is_wanted = |partition: &Option<u16>| {
                range.partitions.is_empty()
                    || partition.is_some_and(|partition| range.partitions.contains(&partition))
            };
            let in_spans = |span: &crate::store::Span| {
                let bounds = (Bound::Included(&span.low), Bound::Excluded(&span.high));
                let found = entries.range::<Vec<u8>, _>(bounds);
                found.filter(|(_, partition)| is_wanted(partition)).map(|(entry, _)| entry)
            };
            let after = |entry: &&Vec<u8>| match range.after {
                None => true,
                Some(after) if range.reverse => entry.as_slice() < after,
                Some(after) => entry.as_slice() > after,
            };
            Ok(if range.reverse {
                let found = range.spans.iter().rev().flat_map(|span| in_spans(span).rev());
                found.filter(after).take(range.limit).cloned().collect()
            } else {
                let found = range.spans.iter().flat_map(in_spans);
                found.filter(after).take(range.limit).cloned().collect()
            })
        })
    }

    fn scan_documents(
        &self,
        keyspace: &Keyspace,
        range: &IndexRange<'_>,
        consistency: &Consistency,
        _: bool,
    ) -> Result<Option<Indexed>> {
        let entries = self.scan_index(keyspace, range, consistency)?;
        let name: Name = keyspace.to_string().into();
        self.with(keyspace, |collection| {
            let index = collection.indexes.iter().find(|index| index.id == range.index);
            let definition = &index.ok_or_else(|| no_index("of the plan"))?.definition;
            let ids = entries.iter().filter_map(|entry| Some(definition.decode(entry)?.1));
            let documents = ids.filter_map(|id| collection.documents.get(&id).cloned());
            let documents = documents.map(|document| document.found(&name)).collect();
            let is_whole = entries.len() < range.limit;
            let documents = Documents::Each(documents);
            Ok(Some(Indexed { documents, last: entries.last().cloned(), is_whole }))
        })
    }

    fn count(&self, keyspace: &Keyspace, _: &Consistency) -> Result<u64> {
        self.with(keyspace, |collection| Ok(collection.documents.len() as u64))
    }

    fn authorize(&self, keyspace: &Keyspace, rights: Rights) -> Result<()> {
        match &*self.authorizer.borrow() {
            Some(authorizer) => authorizer.authorize(keyspace, rights),
            None => Ok(()),
        }
    }

    fn mutate(
        &self,
        keyspace: &Keyspace,
        mutations: &[Mutation],
    ) -> Result<Vec<std::result::Result<u64, Refusal>>> {
        self.with(keyspace, |collection| {
            mutations
                .iter()
                .map(|mutation| collection.mutate(mutation, next(&self.last_cas)))
                .collect()
        })
    }

    fn attributes(
        &self,
        keyspace: &Keyspace,
        ids: &[Name],
        names: &[Name],
    ) -> Result<Vec<Option<Value>>> {
        // Documents in memory have only the attribute that all documents have.
        self.with(keyspace, |collection| {
            let of = |id: &Name| {
                let document = collection.documents.get(id)?;
                let expiration = i64::from(document.expiration);
                let virtual_one = Value::object([
                    ("deleted", Value::Bool(false)),
                    ("exptime", Value::Int(expiration)),
                    ("value_bytes", Value::Int(document.body.len() as i64)),
                ]);
                let is_requested = names.iter().any(|name| &**name == "$document");
                Some(Value::object(is_requested.then_some(("$document", virtual_one))))
            };
            Ok(ids.iter().map(of).collect())
        })
    }

    fn administer(&self, request: &Value) -> Result<Value> {
        match request.field("do").as_str() {
            // Changes in memory take effect immediately and are as durable as this store can be.
            Some("set_terms") => Ok(Value::Null),
            Some("put_statistics") => {
                self.put_statistics(request);
                Ok(Value::Null)
            }
            _ => self.sequences.administer(request),
        }
    }

    fn search(&self, keyspace: &Keyspace, request: &Value) -> Result<Value> {
        match &*self.searcher.borrow() {
            Some(searcher) => searcher.search(keyspace, request),
            None => Err(Error::execution("SEARCH is not possible on this store")),
        }
    }

    fn define(&self, statement: &Statement, context: Option<&Path>) -> Result<()> {
        next(&self.version);
        match statement {
            Statement::CreateIndex(create) => self.create_index(create, context),
            Statement::DropIndex { name, keyspace, if_exists, .. } => {
                self.drop_index(name, &Keyspace::of(keyspace, context)?, *if_exists)
            }
            Statement::BuildIndex { keyspace, names } => {
                let names: Vec<&Value> = names
                    .iter()
                    .filter_map(|name| match name {
                        nacre_sql::ast::Expr::Literal(name) => Some(name),
                        _ => None,
                    })
                    .collect();
                self.with(&Keyspace::of(keyspace, context)?, |collection| {
                    for name in names {
                        collection.index_mut(name.as_str().unwrap_or_default())?.online = true;
                    }
                    Ok(())
                })
            }
            Statement::AlterIndex { name, keyspace, with } => {
                let replicas = options::altered_replicas(with)?;
                self.with(&Keyspace::of(keyspace, context)?, |collection| {
                    let partitioning = &mut collection.index_mut(name)?.definition.partitioning;
                    let none = || Error::new(5000, "it has no partitions");
                    partitioning.as_mut().ok_or_else(none)?.replicas = replicas;
                    Ok(())
                })
            }
            Statement::CreateScope { path, if_not_exists } => {
                self.change_scope(path, context, true, *if_not_exists)
            }
            Statement::DropScope { path, if_exists } => {
                self.change_scope(path, context, false, *if_exists)
            }
            Statement::CreateCollection { path, if_not_exists, .. } => {
                self.create_collection(path, context, *if_not_exists)
            }
            Statement::DropCollection { path, if_exists } => {
                let keyspace = Keyspace::of(path, context)?;
                match self.collections.borrow_mut().remove(&keyspace) {
                    None if !if_exists => Err(missing(&keyspace)),
                    _ => Ok(()),
                }
            }
            _ => Err(Error::new(5000, "this statement is not a definition")),
        }
    }

    fn catalog(&self, name: &str) -> Result<Option<Vec<(Name, Value)>>> {
        let collections = self.collections.borrow();
        Ok(Some(match name {
            "sequences" => self.sequences.rows(),
            "tasks_cache" | "completed_requests_history" => Vec::new(),
            "namespaces" => vec![(
                "default".into(),
                Value::object([("id", "default".into()), ("name", "default".into())]),
            )],
            "buckets" => {
                let buckets: BTreeSet<&Name> =
                    collections.keys().map(|keyspace| &keyspace.bucket).collect();
                let row = |bucket: &Name| {
                    Value::object([
                        ("name", bucket.clone().into()),
                        ("namespace", "default".into()),
                        ("path", format!("default:{bucket}").into()),
                    ])
                };
                buckets.into_iter().map(|bucket| (bucket.clone(), row(bucket))).collect()
            }
            "scopes" => {
                let row = |(bucket, scope): &(Name, Name)| {
                    let path: Name = format!("default:{bucket}.{scope}").into();
                    (
                        path.clone(),
                        Value::object([
                            ("name", scope.clone().into()),
                            ("bucket", bucket.clone().into()),
                            ("namespace", "default".into()),
                            ("path", path.into()),
                        ]),
                    )
                };
                self.scopes.borrow().iter().map(row).collect()
            }
            "keyspaces" | "all_keyspaces" => collections
                .keys()
                .map(|keyspace| (keyspace.to_string().into(), keyspace_row(keyspace)))
                .collect(),
            "indexes" | "all_indexes" => collections
                .iter()
                .flat_map(|(keyspace, collection)| {
                    collection
                        .indexes
                        .iter()
                        .map(|index| (index.id.to_string().into(), index_row(keyspace, index)))
                })
                .collect(),
            _ => return Ok(None),
        }))
    }

    fn function(&self, path: &FunctionPath) -> Result<Option<String>> {
        Ok(self.functions.borrow().get(path).map(|(text, _)| text.clone()))
    }

    fn functions(&self) -> Result<Vec<(FunctionPath, String)>> {
        let functions = self.functions.borrow();
        Ok(functions.iter().map(|(path, (text, _))| (path.clone(), text.clone())).collect())
    }

    fn create_function(
        &self,
        path: &FunctionPath,
        text: &str,
        script: Option<&Script>,
        replace: bool,
    ) -> Result<()> {
        let mut functions = self.functions.borrow_mut();
        if functions.contains_key(path) && !replace {
            return Err(Error::new(10102, format!("Function already exists: {path}")));
        }
        functions.insert(path.clone(), (text.to_owned(), script.cloned()));
        Ok(())
    }

    fn call(&self, path: &FunctionPath, arguments: &str, _: bool) -> Result<String> {
        let functions = self.functions.borrow();
        let script = functions.get(path).and_then(|(_, script)| script.as_ref());
        match (script, &*self.evaluator.borrow()) {
            (Some(script), Some(evaluator)) => evaluator.call(path, script, arguments),
            _ => Err(Error::new(10108, "javascript functions are disabled")),
        }
    }

    fn drop_function(&self, path: &FunctionPath) -> Result<()> {
        let dropped = self.functions.borrow_mut().remove(path);
        dropped.map(drop).ok_or_else(|| Error::new(10101, format!("Function not found: {path}")))
    }

    fn notes(&self) -> &dyn Notes {
        self
    }
}

impl Notes for MemoryDatastore {
    fn recall(&self, key: &str) -> Option<String> {
        self.notes.borrow().get(key).cloned()
    }

    fn note(&self, key: &str, text: Option<&str>) {
        let mut notes = self.notes.borrow_mut();
        match text {
            Some(text) => notes.insert(key.to_owned(), text.to_owned()),
            None => notes.remove(key),
        };
    }

    fn keys(&self, prefix: &str) -> Result<Vec<String>> {
        let notes = self.notes.borrow();
        let from = notes.range(prefix.to_owned()..).map(|(key, _)| key);
        Ok(from.take_while(|key| key.starts_with(prefix)).cloned().collect())
    }
}

fn keyspace_row(keyspace: &Keyspace) -> Value {
    Value::object([
        ("id", keyspace.collection.clone().into()),
        ("name", keyspace.collection.clone().into()),
        ("namespace", keyspace.namespace.clone().into()),
        ("bucket", keyspace.bucket.clone().into()),
        ("scope", keyspace.scope.clone().into()),
        ("path", keyspace.to_string().into()),
    ])
}

fn index_row(keyspace: &Keyspace, index: &MemoryIndex) -> Value {
    let primary = index.definition.is_primary();
    let replicas = index.definition.partitioning.as_ref().map_or(0, |spread| spread.replicas);
    let keys = index.definition.keys.iter().filter(|_| !primary);
    let keys: Vec<Value> = keys.map(|key| key.to_string().into()).collect();
    Value::object([
        ("id", index.id.to_string().into()),
        ("name", index.definition.name.clone().into()),
        ("keyspace_id", keyspace.collection.clone().into()),
        ("scope_id", keyspace.scope.clone().into()),
        ("bucket_id", keyspace.bucket.clone().into()),
        ("namespace_id", keyspace.namespace.clone().into()),
        ("index_key", Value::array(keys)),
        (
            "condition",
            index.definition.condition.as_ref().map_or(Value::Missing, |c| c.to_string().into()),
        ),
        ("is_primary", if primary { true.into() } else { Value::Missing }),
        ("partition", index.partition.clone().map_or(Value::Missing, Into::into)),
        ("metadata", Value::object([("num_replica", Value::Int(replicas.into()))])),
        ("state", if index.online { "online" } else { "deferred" }.into()),
        ("using", "gsi".into()),
    ])
}
