//! The documents of a database as queries see them.

use crate::folder::BUCKET;
use crate::{Collection, Db, Error, Found, Lookup, Range, Scan, Write};
use nacre_query::{
    Action, Consistency, Datastore, Document, FunctionPath, Index, IndexRange, Keyspace, Mutation,
    Notes, Refusal, Script,
};
use nacre_sql::ast::{Path, Statement};
use nacre_sql::{Error as SqlError, Name, Result, Value};
use nacre_types::Cas;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::Bound;

/// The flags of JSON documents. Source: the common flags of SDKs.
const JSON_FLAGS: u32 = 0x0200_0000;

/// A scan that the next page may continue.
struct Cursor {
    keyspace: Keyspace,
    /// The last ID that was returned.
    last: Name,
    rest: Scan,
}

/// The store of one query.
pub(super) struct Store<'a> {
    db: &'a Db,
    /// The last scan. Another scan in between only costs time: the collection is then listed again.
    cursor: RefCell<Option<Cursor>>,
    notes: RefCell<BTreeMap<String, String>>,
    mutation_count: Cell<u64>,
    /// The first error of the database, which the caller gets in place of its text.
    failure: RefCell<Option<Error>>,
}

impl<'a> Store<'a> {
    pub fn new(db: &'a Db) -> Store<'a> {
        let (cursor, notes, mutation_count, failure) = Default::default();
        Store { db, cursor, notes, mutation_count, failure }
    }

    /// Returns the first error of the database, if there was one.
    pub fn failure(&self) -> Option<Error> {
        self.failure.take()
    }

    pub fn mutation_count(&self) -> u64 {
        self.mutation_count.get()
    }

    fn failed(&self, error: Error) -> SqlError {
        let text = error.to_string();
        let mut failure = self.failure.borrow_mut();
        if failure.is_none() {
            *failure = Some(error);
        }
        SqlError::execution(text)
    }

    fn collection(&self, keyspace: &Keyspace) -> Result<Collection> {
        let Keyspace { bucket, scope, collection, .. } = keyspace;
        let missing = |what: &str| format!("{what} not found in CB datastore: {keyspace}");
        if **bucket != *BUCKET {
            return Err(SqlError::new(12003, missing("Keyspace")));
        }
        if !self.db.scopes().iter().any(|name| **name == **scope) {
            return Err(SqlError::new(12021, missing("Scope")));
        }
        let found = self.db.find_collection(&format!("{scope}.{collection}"));
        let found = found.map_err(|error| self.failed(error))?;
        found.ok_or_else(|| SqlError::new(12003, missing("Keyspace")))
    }

    fn mutate_one(
        &self,
        docs: &Collection,
        mutation: &Mutation,
    ) -> std::result::Result<u64, Refusal> {
        let Mutation { action, id, body, expiration } = mutation;
        let write = match expiration {
            Some(expiration) => Write::new().expiry(*expiration),
            None => Write::new().keep_expiry(),
        };
        let write = write.flags(JSON_FLAGS);
        let id = id.as_bytes();
        let stored = match action {
            Action::Insert => docs.insert(id, body, write),
            Action::Upsert => docs.upsert(id, body, write),
            Action::Replace(cas) => docs.replace(id, body, write.cas(Cas(*cas))),
            Action::Remove(0) => docs.remove(id, write),
            Action::Remove(cas) => docs.remove(id, write.cas(Cas(*cas))),
        };
        match stored {
            Ok(stored) => {
                self.mutation_count.set(self.mutation_count.get() + 1);
                Ok(stored.cas.0)
            }
            Err(Error::DocumentExists) => Err(Refusal::Exists),
            Err(Error::DocumentNotFound) => Err(Refusal::NotFound),
            Err(Error::CasMismatch) => Err(Refusal::CasMismatch),
            Err(error) if error.is_of_database() => Err(Refusal::Other(self.failed(error))),
            Err(error) => Err(Refusal::Other(SqlError::execution(error.to_string()))),
        }
    }

    fn create_collection(
        &self,
        keyspace: &Keyspace,
        if_not_exists: bool,
        with: &Value,
    ) -> Result<()> {
        let mut max_ttl_s = 0;
        for (name, value) in with.as_object().into_iter().flatten() {
            let seconds = value.as_i64().and_then(|seconds| u32::try_from(seconds).ok());
            max_ttl_s = match (&**name, seconds) {
                ("maxTTL", Some(seconds)) => seconds,
                _ => return Err(unsupported(&format!("the option {name} with that value"))),
            };
        }
        let Keyspace { scope, collection, .. } = keyspace;
        match self.db.create_collection(scope, collection, max_ttl_s) {
            Err(Error::KeyspaceExists(_)) if if_not_exists => Ok(()),
            Err(Error::KeyspaceExists(_)) => {
                Err(SqlError::new(12027, format!("Collection {keyspace} already exists.")))
            }
            Err(Error::ScopeNotFound(_)) => Err(no_scope(scope)),
            other => other.map_err(|error| self.failed(error)),
        }
    }
}

fn no_scope(scope: &str) -> SqlError {
    SqlError::new(12021, format!("Scope not found in CB datastore: {scope}"))
}

fn unsupported(what: &str) -> SqlError {
    SqlError::new(1001, format!("{what} is not supported by a database in the process"))
}

/// Returns the scope that a path names.
fn scope_of(path: &Path, context: Option<&Path>) -> Result<Name> {
    match (&path.parts[..], context.map(|context| &context.parts[..])) {
        ([bucket, scope], _) if **bucket == *BUCKET => Ok(scope.clone()),
        ([scope], Some([bucket, ..])) if **bucket == *BUCKET => Ok(scope.clone()),
        _ => Err(SqlError::new(12021, format!("Scope not found in CB datastore: {path}"))),
    }
}

/// Returns a document as queries see it.
fn document(id: Name, found: &Found) -> Document {
    Document {
        id,
        body: found.body().to_vec(),
        cas: found.cas().0,
        expiration: found.expiry(),
        flags: found.flags(),
        json: found.is_json(),
    }
}

impl Datastore for Store<'_> {
    fn check(&self, keyspace: &Keyspace) -> Result<()> {
        self.collection(keyspace).map(drop)
    }

    fn version(&self) -> u64 {
        self.db.inner().bucket.manifest().uid
    }

    fn indexes(&self, keyspace: &Keyspace) -> Result<Vec<Index>> {
        self.collection(keyspace).map(|_| Vec::new())
    }

    fn fetch(&self, keyspace: &Keyspace, ids: &[Name]) -> Result<Vec<Option<Document>>> {
        let docs = self.collection(keyspace)?;
        let fetched = ids.iter().map(|id| match docs.get(id.as_bytes()) {
            Ok(found) => Ok(found.map(|found| document(id.clone(), &found))),
            // No document has an ID of that length.
            Err(Error::InvalidArgument(_)) => Ok(None),
            Err(error) => Err(self.failed(error)),
        });
        fetched.collect()
    }

    fn scan(
        &self,
        keyspace: &Keyspace,
        after: Option<&str>,
        bodies: bool,
        limit: usize,
        _: &Consistency,
    ) -> Result<Vec<Document>> {
        let known = self.cursor.take();
        let known =
            known.filter(|known| known.keyspace == *keyspace && after == Some(&*known.last));
        let mut rest = match known {
            Some(known) => known.rest,
            None => {
                let start = after.map_or(Bound::Unbounded, |id| Bound::Excluded(id.as_bytes()));
                let scan = self.collection(keyspace)?.scan(Range::between(start, Bound::Unbounded));
                scan.map_err(|error| self.failed(error))?
            }
        };
        let mut documents = Vec::new();
        while documents.len() < limit
            && let Some(found) = rest.next()
        {
            let found = found.map_err(|error| self.failed(error))?;
            // An ID of a query is text.
            let Ok(id) = std::str::from_utf8(found.key()) else { continue };
            let document = document(id.into(), &found);
            let body = if bodies { document.body } else { Vec::new() };
            documents.push(Document { body, ..document });
        }
        if let Some(last) = documents.last() {
            let (keyspace, last) = (keyspace.clone(), last.id.clone());
            *self.cursor.borrow_mut() = Some(Cursor { keyspace, last, rest });
        }
        Ok(documents)
    }

    fn scan_index(
        &self,
        _: &Keyspace,
        _: &IndexRange<'_>,
        _: &Consistency,
    ) -> Result<Vec<Vec<u8>>> {
        Err(SqlError::new(12016, "there are no indexes"))
    }

    fn count(&self, keyspace: &Keyspace, _: &Consistency) -> Result<u64> {
        let keys = self.collection(keyspace)?.scan(Range::all());
        let keys = keys.map_err(|error| self.failed(error))?.into_keys();
        Ok(keys.filter(|key| std::str::from_utf8(key).is_ok()).count() as u64)
    }

    fn mutate(
        &self,
        keyspace: &Keyspace,
        mutations: &[Mutation],
    ) -> Result<Vec<std::result::Result<u64, Refusal>>> {
        let docs = self.collection(keyspace)?;
        Ok(mutations.iter().map(|mutation| self.mutate_one(&docs, mutation)).collect())
    }

    fn attributes(
        &self,
        keyspace: &Keyspace,
        ids: &[Name],
        names: &[Name],
    ) -> Result<Vec<Option<Value>>> {
        let docs = self.collection(keyspace)?;
        let of_document = |id: &Name| {
            let mut found = Vec::new();
            for name in names {
                let looked = match docs.lookup_in(id.as_bytes(), &[Lookup::get(name).xattr()]) {
                    Ok(looked) => looked,
                    Err(Error::DocumentNotFound | Error::InvalidArgument(_)) => return Ok(None),
                    Err(error) => return Err(self.failed(error)),
                };
                if let Some(Ok(json)) = looked.parts.first()
                    && let Ok(value) = Value::parse(json)
                {
                    found.push((name.clone(), value));
                }
            }
            Ok(Some(Value::object(found)))
        };
        ids.iter().map(of_document).collect()
    }

    fn define(&self, statement: &Statement, context: Option<&Path>) -> Result<()> {
        match statement {
            Statement::CreateScope { path, if_not_exists } => {
                let scope = scope_of(path, context)?;
                match self.db.create_scope(&scope) {
                    Err(Error::KeyspaceExists(_)) if *if_not_exists => Ok(()),
                    Err(Error::KeyspaceExists(_)) => {
                        Err(SqlError::new(12025, format!("Scope {scope} already exists.")))
                    }
                    other => other.map_err(|error| self.failed(error)),
                }
            }
            Statement::DropScope { path, if_exists } => {
                let scope = scope_of(path, context)?;
                match self.db.drop_scope(&scope) {
                    Err(Error::ScopeNotFound(_)) if *if_exists => Ok(()),
                    Err(Error::ScopeNotFound(_)) => Err(no_scope(&scope)),
                    other => other.map_err(|error| self.failed(error)),
                }
            }
            Statement::CreateCollection { path, if_not_exists, with } => {
                self.create_collection(&Keyspace::of(path, context)?, *if_not_exists, with)
            }
            Statement::DropCollection { path, if_exists } => {
                let keyspace = Keyspace::of(path, context)?;
                match self.collection(&keyspace) {
                    Err(error) if matches!(error.code, 12003 | 12021) && *if_exists => {
                        return Ok(());
                    }
                    other => other?,
                };
                let dropped = self.db.drop_collection(&keyspace.scope, &keyspace.collection);
                dropped.map_err(|error| self.failed(error))
            }
            _ => Err(unsupported("an index")),
        }
    }

    fn catalog(&self, _: &str) -> Result<Option<Vec<(Name, Value)>>> {
        Ok(None)
    }

    fn function(&self, _: &FunctionPath) -> Result<Option<String>> {
        Ok(None)
    }

    fn functions(&self) -> Result<Vec<(FunctionPath, String)>> {
        Ok(Vec::new())
    }

    fn create_function(
        &self,
        _: &FunctionPath,
        _: &str,
        _: Option<&Script>,
        _: bool,
    ) -> Result<()> {
        Err(unsupported("a function"))
    }

    fn call(&self, _: &FunctionPath, _: &str, _: bool) -> Result<String> {
        Err(unsupported("a function"))
    }

    fn drop_function(&self, path: &FunctionPath) -> Result<()> {
        Err(SqlError::new(10101, format!("Function not found: {path}")))
    }

    fn notes(&self) -> &dyn Notes {
        self
    }
}

/// Notes live as long as their query.
impl Notes for Store<'_> {
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
