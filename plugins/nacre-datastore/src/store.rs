//! The interface of stores to queries: documents by ID, index ranges, mutations and the schema.
//!
//! Calls are few and process batches, because each may leave the sandbox.

use nacre_sql::ast::{Path, Statement};
use nacre_sql::{Content, Error, HeldBodies, Json, Meta, Name, Result, Value};
use std::fmt;
use std::sync::Arc;

/// The namespace of all collections.
const NAMESPACE: &str = "default";

/// A collection.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "named as they are everywhere")]
pub struct Keyspace {
    pub namespace: Name,
    pub bucket: Name,
    pub scope: Name,
    pub collection: Name,
}

impl Keyspace {
    /// Returns the keyspace that `path` names. If the query context names a scope, a single name is a collection of that scope. If
    /// it names only a bucket, two names are a scope and a collection of that bucket.
    ///
    /// # Errors
    /// Code 12003 if the path has a wrong number of parts, 12001 for an unknown namespace, 11003 for a catalog, which is not a
    /// collection.
    pub fn of(path: &Path, context: Option<&Path>) -> Result<Keyspace> {
        if path.is_system() {
            return Err(Error::new(11003, format!("System datastore: {path} cannot be changed")));
        }
        if let Some(namespace) = &path.namespace
            && !namespace.eq_ignore_ascii_case(NAMESPACE)
        {
            let message = format!("Namespace not found in CB datastore: {namespace}");
            return Err(Error::new(12001, message));
        }
        let keyspace = |bucket: &Name, scope: &Name, collection: &Name| Keyspace {
            namespace: NAMESPACE.into(),
            bucket: bucket.clone(),
            scope: scope.clone(),
            collection: collection.clone(),
        };
        let default: Name = "_default".into();
        match (&path.parts[..], context.map(|context| &context.parts[..])) {
            ([collection], Some([bucket, scope])) if path.namespace.is_none() => {
                Ok(keyspace(bucket, scope, collection))
            }
            ([scope, collection], Some([bucket])) if path.namespace.is_none() => {
                Ok(keyspace(bucket, scope, collection))
            }
            ([bucket], _) => Ok(keyspace(bucket, &default, &default)),
            ([bucket, scope, collection], _) => Ok(keyspace(bucket, scope, collection)),
            _ => Err(Error::new(12003, format!("Keyspace not found in CB datastore: {path}"))),
        }
    }
}

impl fmt::Display for Keyspace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}.{}.{}", self.namespace, self.bucket, self.scope, self.collection)
    }
}

/// The path of a function.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FunctionPath {
    /// The bucket and scope; `None` for a global function.
    pub scope: Option<(Name, Name)>,
    /// The name.
    pub name: Name,
}

impl fmt::Display for FunctionPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.scope {
            Some((bucket, scope)) => write!(f, "default:{bucket}.{scope}.{}", self.name),
            None => write!(f, "default:{}", self.name),
        }
    }
}

/// The user code that a function runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Script {
    /// JavaScript with a function of the same name.
    Code(Name),
    /// A function of a plugin.
    Deployed {
        /// The deployment of the plugin.
        deployment: Name,
        /// The name of the function in it.
        function: Name,
    },
    /// A function of a JavaScript library.
    Library {
        /// The path of the library.
        library: FunctionPath,
        /// The name of the function in the library.
        function: Name,
    },
}

/// A document as it is stored.
#[derive(Clone, Debug, Default)]
#[expect(missing_docs, reason = "as in `nacre_sql::Meta`")]
pub struct Document {
    pub id: Name,
    pub body: Vec<u8>,
    pub cas: u64,
    pub expiration: u32,
    pub flags: u32,
    pub json: bool,
}

/// A document that was read, or that is passed on unread.
pub struct Found {
    /// The metadata.
    pub meta: Arc<Meta>,
    /// The content.
    pub content: Content,
}

impl Document {
    /// Returns the document as queries of `keyspace` see it.
    pub fn found(self, keyspace: &Name) -> Found {
        let Document { id, body, cas, expiration, flags, json } = self;
        let content = match json {
            true => String::from_utf8(body)
                .map_or(Value::Null.into(), |text| Content::Json(Arc::new(Json::new(text)))),
            false => binary(body.len()),
        };
        let keyspace = keyspace.clone();
        let meta = Meta { id, keyspace, cas, expiration, flags, json, ..Meta::default() };
        Found { meta: Arc::new(meta), content }
    }
}

/// Returns the replacement for a body that is not JSON.
pub fn binary(bytes: usize) -> Content {
    Value::from(format!("<binary ({bytes} b)>")).into()
}

/// Documents with consecutive numbers whose bodies are held outside of the query engine, all of them JSON objects. A response
/// passes each on unchanged.
#[derive(Clone)]
pub struct DocumentRange {
    /// The number of the first document.
    pub first: u64,
    /// The number of documents.
    pub count: usize,
    /// The total size of their bodies in bytes.
    pub bytes: usize,
    /// Where the bodies are held.
    pub source: Arc<dyn HeldBodies>,
}

impl DocumentRange {
    /// Splits off as many documents as fit into `bytes`, at least one, and returns them and the rest. Each document is assumed to
    /// have the average size, because only the sum is known.
    pub fn split(self, bytes: usize) -> (DocumentRange, Option<DocumentRange>) {
        let each = self.bytes.checked_div(self.count).unwrap_or(0).max(1);
        let count = (bytes / each).max(1);
        if count >= self.count {
            return (self, None);
        }
        let begin = DocumentRange { count, bytes: each * count, ..self.clone() };
        let rest = DocumentRange {
            first: self.first + count as u64,
            count: self.count - count,
            bytes: self.bytes.saturating_sub(begin.bytes),
            source: self.source,
        };
        (begin, Some(rest))
    }

    /// Returns the bodies.
    pub fn texts(&self) -> impl Iterator<Item = String> {
        (self.first..).take(self.count).map(|number| self.source.read(number))
    }
}

/// Documents in index order.
pub enum Documents<T = Found> {
    /// Documents with individual metadata.
    Each(Vec<T>),
    /// Documents of which only number and size are known.
    Range(DocumentRange),
}

impl<T> Documents<T> {
    /// Returns true if there are no documents.
    pub fn is_empty(&self) -> bool {
        matches!(self, Documents::Each(each) if each.is_empty())
    }

    /// Converts each document by `of`.
    pub fn map<U>(self, of: impl FnMut(T) -> U) -> Documents<U> {
        match self {
            Documents::Each(each) => Documents::Each(each.into_iter().map(of).collect()),
            Documents::Range(range) => Documents::Range(range),
        }
    }
}

/// The documents of index entries; their bodies may be held outside of the query engine.
pub struct Indexed {
    /// The documents of the entries that were read. Documents that no longer exist are omitted.
    pub documents: Documents,
    /// The key of the last of these entries.
    pub last: Option<Vec<u8>>,
    /// True if no entries follow.
    pub is_whole: bool,
}

/// An index of a keyspace.
#[derive(Clone, Debug)]
pub struct Index {
    /// The identifier in calls.
    pub id: u64,
    /// The CREATE INDEX statement that created it.
    pub definition: String,
    /// True if the index covers all documents.
    pub online: bool,
}

/// A range of entries `low <= key < high`, both in the encoding of [`nacre_sql::key`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the docstring of the type says it")]
pub struct Span {
    pub low: Vec<u8>,
    pub high: Vec<u8>,
}

/// The consistency that a read requires; the store ensures it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Consistency {
    /// `not_bounded`, `at_plus`, `request_plus` or `statement_plus`; empty means `not_bounded`.
    pub level: String,
    /// `scan_vector` or `scan_vectors` as the client sent them.
    pub vectors: Value,
}

/// The part of an index to read.
#[derive(Clone, Debug)]
pub struct IndexRange<'a> {
    /// The index.
    pub index: u64,
    /// The partitions to read; empty for all.
    pub partitions: &'a [u16],
    /// The ranges to read, disjoint and in order.
    pub spans: &'a [Span],
    /// True to read in descending order.
    pub reverse: bool,
    /// The key after which to continue.
    pub after: Option<&'a [u8]>,
    /// The maximum number of entries.
    pub limit: usize,
}

/// The kind of a mutation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// The document must not exist.
    Insert,
    /// The document may exist.
    Upsert,
    /// The document must exist with this CAS.
    Replace(u64),
    /// The document must exist, with this CAS unless it is 0.
    Remove(u64),
}

/// The rights that a statement needs for the documents of a keyspace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rights {
    /// It reads documents for more than finding those that it changes.
    pub select: bool,
    /// It inserts documents.
    pub insert: bool,
    /// It changes documents.
    pub update: bool,
    /// It deletes documents.
    pub delete: bool,
}

impl Rights {
    /// Only to read.
    pub const SELECT: Rights = Rights { select: true, ..Rights::NONE };
    /// Only to insert.
    pub const INSERT: Rights = Rights { insert: true, ..Rights::NONE };
    /// Only to change.
    pub const UPDATE: Rights = Rights { update: true, ..Rights::NONE };
    /// Only to delete.
    pub const DELETE: Rights = Rights { delete: true, ..Rights::NONE };

    const NONE: Rights = Rights { select: false, insert: false, update: false, delete: false };

    /// Returns the union of both.
    #[must_use]
    pub fn and(self, other: Rights) -> Rights {
        Rights {
            select: self.select || other.select,
            insert: self.insert || other.insert,
            update: self.update || other.update,
            delete: self.delete || other.delete,
        }
    }
}

/// A mutation of a document.
#[derive(Clone, Debug)]
pub struct Mutation {
    /// The kind.
    pub action: Action,
    /// The ID of the document.
    pub id: Name,
    /// The new body.
    pub body: Vec<u8>,
    /// The expiry in seconds, as clients send it; `None` keeps the current one.
    pub expiration: Option<u32>,
}

/// Why a document was not changed.
#[derive(Clone, Debug, PartialEq)]
pub enum Refusal {
    /// A document with this ID exists.
    Exists,
    /// The document does not exist.
    NotFound,
    /// The document has another CAS.
    CasMismatch,
    /// Another reason.
    Other(Error),
}

/// The settings of a new transaction; empty members have defaults.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TransactionSettings {
    /// The timeout in milliseconds.
    pub timeout_ms: Option<u64>,
    /// The durability of its writes.
    pub durability: String,
    /// The collection that stores its record.
    pub records: String,
    /// The progress that an SDK has made so far, as sent in `txdata`.
    pub staged: String,
}

/// A step of a transaction.
#[derive(Clone, Debug, PartialEq)]
pub enum TransactionStep {
    /// Begins a transaction. Returns its ID.
    Begin(TransactionSettings),
    /// Joins the request to the transaction with that ID. The number is that of the statement, if it has one.
    Join(String, Option<u64>),
    /// Leaves the transaction. True keeps the changes made in it.
    Leave(bool),
    /// Sets a savepoint.
    Savepoint(Name),
    /// Undoes the changes since the savepoint.
    RollbackTo(Name),
    /// Commits all changes atomically.
    Commit,
    /// Discards all changes.
    Rollback,
}

/// A document as a transaction sees it; `None` if the transaction removed it.
pub type Staged = (Name, Option<Document>);

/// Access to documents, indexes and the schema.
pub trait Datastore {
    /// Checks that the keyspace exists.
    ///
    /// # Errors
    /// Code 12003 if it does not exist.
    fn check(&self, keyspace: &Keyspace) -> Result<()>;

    /// Returns a number that changes whenever keyspaces or indexes are added or dropped, or an index changes its state.
    fn version(&self) -> u64;

    /// Returns the indexes of a keyspace.
    ///
    /// # Errors
    /// Fails if the keyspace does not exist or the store fails.
    fn indexes(&self, keyspace: &Keyspace) -> Result<Vec<Index>>;

    /// Returns the documents with these IDs, in the same order; `None` for a document that does not exist.
    ///
    /// # Errors
    /// As for [`Datastore::indexes`].
    fn fetch(&self, keyspace: &Keyspace, ids: &[Name]) -> Result<Vec<Option<Document>>>;

    /// Returns documents in ID order after `after`; with bodies only if they are requested.
    ///
    /// # Errors
    /// As for [`Datastore::indexes`].
    fn scan(
        &self,
        keyspace: &Keyspace,
        after: Option<&str>,
        bodies: bool,
        limit: usize,
        consistency: &Consistency,
    ) -> Result<Vec<Document>>;

    /// Returns entries of an index.
    ///
    /// # Errors
    /// As for [`Datastore::indexes`]; code 12016 if the index does not exist.
    fn scan_index(
        &self,
        keyspace: &Keyspace,
        range: &IndexRange<'_>,
        consistency: &Consistency,
    ) -> Result<Vec<Vec<u8>>>;

    /// Returns the documents of the next index entries; `None` if the store cannot return them directly. The store may keep the
    /// bodies until they are read. With `alone` it may also omit the details, because all documents are passed on. Fewer entries
    /// than requested are read if the documents are large.
    ///
    /// # Errors
    /// As for [`Datastore::scan_index`].
    fn scan_documents(
        &self,
        _: &Keyspace,
        _: &IndexRange<'_>,
        _: &Consistency,
        _alone: bool,
    ) -> Result<Option<Indexed>> {
        Ok(None)
    }

    /// As [`Datastore::fetch`] for a store that keeps bodies until they are read. Documents that do not exist are omitted. With
    /// `alone`, the store may omit the details of documents.
    ///
    /// # Errors
    /// As for [`Datastore::indexes`].
    fn hold(&self, _: &Keyspace, _: &[Name], _alone: bool) -> Result<Option<Documents>> {
        Ok(None)
    }

    /// Returns the number of documents of a keyspace.
    ///
    /// # Errors
    /// As for [`Datastore::indexes`].
    fn count(&self, keyspace: &Keyspace, consistency: &Consistency) -> Result<u64>;

    /// Checks that the user has these rights in a keyspace. A store may then allow the request to find documents for writing
    /// there, even if the user may not select them.
    ///
    /// # Errors
    /// Code 13014 if the user lacks a right; a store without users refuses nothing.
    fn authorize(&self, _: &Keyspace, _: Rights) -> Result<()> {
        Ok(())
    }

    /// Applies mutations independently of each other. Returns the new CAS of each document.
    ///
    /// # Errors
    /// As for [`Datastore::indexes`]; an error of a single document is its [`Refusal`].
    fn mutate(
        &self,
        keyspace: &Keyspace,
        mutations: &[Mutation],
    ) -> Result<Vec<std::result::Result<u64, Refusal>>>;

    /// Asks the search service about the documents of a keyspace. Request and answer are JSON, as nacre-query documents them for
    /// searches.
    ///
    /// # Errors
    /// Code 5000 if the store has no search service, and the errors of that service.
    fn search(&self, _: &Keyspace, _: &Value) -> Result<Value> {
        Err(Error::execution("SEARCH is not possible on this store"))
    }

    /// Executes a step of a transaction. After [`TransactionStep::Join`], all reads and writes see the transaction's documents,
    /// except reads of indexes.
    ///
    /// # Errors
    /// Code 17001 if the store has no transactions, and other errors of transactions.
    fn transact(&self, _: &TransactionStep) -> Result<String> {
        Err(Error::new(17001, "Transactions are not supported on this store"))
    }

    /// Returns the documents of a keyspace that the request's transaction has changed, ordered by ID.
    ///
    /// # Errors
    /// As for [`Datastore::indexes`].
    fn staged(&self, _: &Keyspace) -> Result<Vec<Staged>> {
        Ok(Vec::new())
    }

    /// Returns the extended attributes with these names of documents, including deleted ones, in the order of the IDs; `None` for
    /// a document that does not exist.
    ///
    /// # Errors
    /// As for [`Datastore::indexes`]; code 13014 if the user may not read one of the attributes.
    fn attributes(
        &self,
        _: &Keyspace,
        ids: &[Name],
        _names: &[Name],
    ) -> Result<Vec<Option<Value>>> {
        Ok(vec![None; ids.len()])
    }

    /// Executes a statement about users, groups, roles, collections, sequences or vector indexes. The request is an object whose
    /// member `do` names the operation.
    ///
    /// # Errors
    /// Code 1001 if the store does not support the statement, and the errors of the statement.
    fn administer(&self, _: &Value) -> Result<Value> {
        Err(Error::new(1001, "this statement is not supported"))
    }

    /// Executes a statement that creates, changes or drops an index, scope or collection.
    ///
    /// # Errors
    /// Codes 4300 and 12016 for indexes, 12003 for keyspaces, 12021 for scopes.
    fn define(&self, statement: &Statement, context: Option<&Path>) -> Result<()>;

    /// Returns the rows of a catalog such as `keyspaces`; `None` if the store does not have it.
    ///
    /// # Errors
    /// Fails if the store fails.
    fn catalog(&self, name: &str) -> Result<Option<Vec<(Name, Value)>>>;

    /// Returns the statement that created a function; `None` if the function does not exist.
    ///
    /// # Errors
    /// Fails if the user may not call the function.
    fn function(&self, path: &FunctionPath) -> Result<Option<String>>;

    /// Returns all functions that the user may see, each with its statement.
    ///
    /// # Errors
    /// Fails if the store fails.
    fn functions(&self) -> Result<Vec<(FunctionPath, String)>>;

    /// Creates a function, with user code if it has a `script`; `replace` allows an existing function to be replaced.
    ///
    /// # Errors
    /// Code 10102 if the function exists, 10114 if its code is invalid, 12021 if the scope does not exist.
    fn create_function(
        &self,
        path: &FunctionPath,
        text: &str,
        script: Option<&Script>,
        replace: bool,
    ) -> Result<()>;

    /// Calls a function with user code, which stays the same for the whole request. Arguments are a JSON array that has `[v]` for
    /// each argument and `[]` for MISSING. The answer is `{"value": v}`, `{}` for undefined, or `{"exception": {…}}` with the
    /// `thrown` value, and with the `line`, `column` and `text` of the place if they are known. Queries of the code may change
    /// data only if `may_change` is true.
    ///
    /// # Errors
    /// Fails if the user may not call the function; code 10109 if it cannot be run.
    fn call(&self, path: &FunctionPath, arguments: &str, may_change: bool) -> Result<String>;

    /// Drops a function.
    ///
    /// # Errors
    /// Code 10101 if the function does not exist.
    fn drop_function(&self, path: &FunctionPath) -> Result<()>;

    /// Returns the notes that instances of the service share in addition to documents.
    fn notes(&self) -> &dyn Notes;

    /// Returns the user who sent the request; empty if there are no users.
    fn user(&self) -> String {
        String::new()
    }
}

/// Notes by key, which all instances of the service see.
pub trait Notes {
    /// Returns the note under `key`.
    fn recall(&self, key: &str) -> Option<String>;

    /// Stores a note; `None` removes it.
    fn note(&self, key: &str, text: Option<&str>);

    /// Returns all keys that begin with `prefix`.
    ///
    /// # Errors
    /// Code 13014 if the user may not see the requests of others.
    fn keys(&self, prefix: &str) -> Result<Vec<String>>;
}

/// The environment of a query: time, randomness and the request's deadline.
pub trait Platform {
    /// Returns the time in microseconds since 1970.
    fn now_us(&self) -> i64;

    /// Returns the time in milliseconds since 1970.
    fn now_ms(&self) -> i64 {
        self.now_us() / 1000
    }

    /// Returns 64 random bits.
    fn random(&self) -> u64;

    /// Checks whether the request may continue. Called regularly.
    ///
    /// # Errors
    /// Code 1080 if the request has timed out, and others if the request must end.
    fn check(&self) -> Result<()>;
}
