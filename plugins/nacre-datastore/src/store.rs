//! What queries need of a store: documents by id, ranges of indexes, changes, and what there is.
//!
//! Calls are few and batch oriented, since each may leave the sandbox.

use nacre_sql::ast::{Path, Statement};
use nacre_sql::{Content, Error, Json, Library, Meta, Name, Result, Value};
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
    /// The keyspace that `path` names, within a query context if it is a lone name.
    ///
    /// # Errors
    /// Code 12003 when the path has a length that no keyspace has, 12001 for an unknown namespace, 11003 for a catalog, as it is
    /// no collection.
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

/// Where a function belongs, and its name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FunctionPath {
    /// Its bucket and scope; none of a global one.
    pub scope: Option<(Name, Name)>,
    /// Its name.
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

/// The code of a user that a function runs.
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
    /// A function of a library in JavaScript.
    Library {
        /// Where the library belongs, and its name.
        library: FunctionPath,
        /// The name of the function in it.
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

/// A document that was read, or need not be read to be passed on.
pub struct Found {
    /// What is known beside it.
    pub meta: Arc<Meta>,
    /// It.
    pub content: Content,
}

impl Document {
    /// What a query sees of the document in a keyspace.
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

/// What stands for a body that is no JSON.
pub fn binary(bytes: usize) -> Content {
    Value::from(format!("<binary ({bytes} b)>")).into()
}

/// Documents that lie elsewhere one behind the other, all of them objects of JSON, of which an answer passes on each as it is.
#[derive(Clone)]
pub struct Together {
    /// The number of the first.
    pub first: u64,
    /// How many they are.
    pub count: usize,
    /// Their bytes.
    pub bytes: usize,
    /// Where they are.
    pub library: Arc<dyn Library>,
}

impl Together {
    /// As many of them as `bytes` have room for, but one at least, and the others. As only the sum of their bytes is known, each is
    /// taken to have as many.
    pub fn split(self, bytes: usize) -> (Together, Option<Together>) {
        let each = self.bytes.checked_div(self.count).unwrap_or(0).max(1);
        let count = (bytes / each).max(1);
        if count >= self.count {
            return (self, None);
        }
        let begin = Together { count, bytes: each * count, ..self.clone() };
        let rest = Together {
            first: self.first + count as u64,
            count: self.count - count,
            bytes: self.bytes.saturating_sub(begin.bytes),
            library: self.library,
        };
        (begin, Some(rest))
    }

    /// Their texts.
    pub fn texts(&self) -> impl Iterator<Item = String> {
        (self.first..).take(self.count).map(|number| self.library.read(number))
    }
}

/// Documents as an index has them in order.
pub enum Documents<T = Found> {
    /// One by one.
    Each(Vec<T>),
    /// Of which only so much is known.
    Together(Together),
}

impl<T> Documents<T> {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        matches!(self, Documents::Each(each) if each.is_empty())
    }

    /// The same documents, each as something else.
    pub fn map<U>(self, of: impl FnMut(T) -> U) -> Documents<U> {
        match self {
            Documents::Each(each) => Documents::Each(each.into_iter().map(of).collect()),
            Documents::Together(together) => Documents::Together(together),
        }
    }
}

/// Documents of entries of an index, whose bodies may lie elsewhere.
pub struct Indexed {
    /// Those of the entries that were looked at; what is gone is left out.
    pub documents: Documents,
    /// The last of these entries.
    pub last: Option<Vec<u8>>,
    /// Whether there are no entries behind it.
    pub is_whole: bool,
}

/// An index of a keyspace.
#[derive(Clone, Debug)]
pub struct Index {
    /// Names it in calls.
    pub id: u64,
    /// The CREATE INDEX statement that made it.
    pub definition: String,
    /// Whether it has all documents.
    pub online: bool,
}

/// A range of entries: from `low`, up to and without `high`, both as [`nacre_sql::key`] encodes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the docstring of the type says it")]
pub struct Span {
    pub low: Vec<u8>,
    pub high: Vec<u8>,
}

/// How fresh what is read must be; the store keeps this promise.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Consistency {
    /// `not_bounded`, `at_plus`, `request_plus` or `statement_plus`; empty is the first.
    pub level: String,
    /// `scan_vector` or `scan_vectors` as they were sent.
    pub vectors: Value,
}

/// A part of an index to read.
#[derive(Clone, Debug)]
pub struct IndexRange<'a> {
    /// The index.
    pub index: u64,
    /// In which partitions they are; in any when none is named.
    pub partitions: &'a [u16],
    /// Which entries: ranges that are disjoint and in order.
    pub spans: &'a [Span],
    /// From the end.
    pub reverse: bool,
    /// The entry after which to go on.
    pub after: Option<&'a [u8]>,
    /// How many entries are wanted at most.
    pub limit: usize,
}

/// What is done to a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// It must not be there.
    Insert,
    /// Whatever is there.
    Upsert,
    /// It must be there, with this version.
    Replace(u64),
    /// It must be there, with this version unless it is 0.
    Remove(u64),
}

/// The rights of a statement to the documents of a keyspace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rights {
    /// It reads them for more than to find what it changes.
    pub select: bool,
    /// It makes new ones.
    pub insert: bool,
    /// It changes them.
    pub update: bool,
    /// It removes them.
    pub delete: bool,
}

impl Rights {
    /// Only reading.
    pub const SELECT: Rights = Rights { select: true, ..Rights::NONE };
    /// Only making.
    pub const INSERT: Rights = Rights { insert: true, ..Rights::NONE };
    /// Only changing.
    pub const UPDATE: Rights = Rights { update: true, ..Rights::NONE };
    /// Only removing.
    pub const DELETE: Rights = Rights { delete: true, ..Rights::NONE };

    const NONE: Rights = Rights { select: false, insert: false, update: false, delete: false };

    /// Both together.
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

/// A change of a document.
#[derive(Clone, Debug)]
pub struct Mutation {
    /// What is done.
    pub action: Action,
    /// To which document.
    pub id: Name,
    /// The new body.
    pub body: Vec<u8>,
    /// Seconds, as clients send them; `None` keeps what the document has.
    pub expiration: Option<u32>,
}

/// Why a document was not changed.
#[derive(Clone, Debug, PartialEq)]
pub enum Refusal {
    /// A document of this id is there.
    Exists,
    /// There is none.
    NotFound,
    /// It was changed in between.
    CasMismatch,
    /// Something else.
    Other(Error),
}

/// How a transaction is begun; what is empty is as usual.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TransactionSettings {
    /// Milliseconds after which it is over.
    pub timeout_ms: Option<u64>,
    /// How durable its writes are.
    pub durability: String,
    /// The collection that keeps its record.
    pub records: String,
    /// `txdata`: what an SDK has done of it so far.
    pub staged: String,
}

/// A step of a transaction.
#[derive(Clone, Debug, PartialEq)]
pub enum TransactionStep {
    /// A new one; answers with its id.
    Begin(TransactionSettings),
    /// The request belongs to the one of that id from now on. With the number of its statement, if it has one.
    Join(String, Option<u64>),
    /// The request belongs to it no longer; what it has changed stays when that is wanted.
    Leave(bool),
    /// A place to go back to.
    Savepoint(Name),
    /// Undoes what was changed since then.
    RollbackTo(Name),
    /// Makes all changes at once.
    Commit,
    /// Drops all changes.
    Rollback,
}

/// A document as a transaction has it; none that it has removed.
pub type Staged = (Name, Option<Document>);

/// Documents, indexes and what there is.
pub trait Datastore {
    /// Checks that the keyspace is there.
    ///
    /// # Errors
    /// Code 12003 if it is not.
    fn check(&self, keyspace: &Keyspace) -> Result<()>;

    /// A number that is another one as soon as there are other keyspaces or indexes, or an index is in another state.
    fn version(&self) -> u64;

    /// The indexes of a keyspace.
    ///
    /// # Errors
    /// The keyspace is not there; the store fails.
    fn indexes(&self, keyspace: &Keyspace) -> Result<Vec<Index>>;

    /// The documents of these ids, in their order; none where there is none.
    ///
    /// # Errors
    /// As [`Datastore::indexes`].
    fn fetch(&self, keyspace: &Keyspace, ids: &[Name]) -> Result<Vec<Option<Document>>>;

    /// Documents by the order of their ids, after one of them; without bodies unless they are wanted.
    ///
    /// # Errors
    /// As [`Datastore::indexes`].
    fn scan(
        &self,
        keyspace: &Keyspace,
        after: Option<&str>,
        bodies: bool,
        limit: usize,
        consistency: &Consistency,
    ) -> Result<Vec<Document>>;

    /// Entries of an index.
    ///
    /// # Errors
    /// As [`Datastore::indexes`]; code 12016 when there is no such index.
    fn scan_index(
        &self,
        keyspace: &Keyspace,
        range: &IndexRange<'_>,
        consistency: &Consistency,
    ) -> Result<Vec<Vec<u8>>>;

    /// The documents that the next entries of an index come from, of a store that tells them at once. It may keep their bodies
    /// until somebody reads them, and tell nothing of them where they are wanted `alone`, as all of them are passed on. There are
    /// fewer entries than are wanted when the documents are large.
    ///
    /// # Errors
    /// As [`Datastore::scan_index`].
    fn scan_documents(
        &self,
        _: &Keyspace,
        _: &IndexRange<'_>,
        _: &Consistency,
        _alone: bool,
    ) -> Result<Option<Indexed>> {
        Ok(None)
    }

    /// As [`Datastore::fetch`], of a store that keeps bodies until somebody reads them; what is not there is left out. Of documents
    /// that are wanted `alone`, nothing has to be told.
    ///
    /// # Errors
    /// As [`Datastore::indexes`].
    fn hold(&self, _: &Keyspace, _: &[Name], _alone: bool) -> Result<Option<Documents>> {
        Ok(None)
    }

    /// How many documents a keyspace has.
    ///
    /// # Errors
    /// As [`Datastore::indexes`].
    fn count(&self, keyspace: &Keyspace, consistency: &Consistency) -> Result<u64>;

    /// Checks that the user may do all of that in a keyspace. A store may let documents be found there for writing from then on,
    /// though the user may not select them.
    ///
    /// # Errors
    /// Code 13014 when the user may not; a store without users refuses nothing.
    fn authorize(&self, _: &Keyspace, _: Rights) -> Result<()> {
        Ok(())
    }

    /// Changes documents, each for itself; gives the new versions.
    ///
    /// # Errors
    /// As [`Datastore::indexes`]; what concerns one document is its [`Refusal`].
    fn mutate(
        &self,
        keyspace: &Keyspace,
        mutations: &[Mutation],
    ) -> Result<Vec<std::result::Result<u64, Refusal>>>;

    /// Asks the search service about the documents of a keyspace, as JSON: what nacre-query says of searches.
    ///
    /// # Errors
    /// Code 5000 of a store without such a service, and others of these.
    fn search(&self, _: &Keyspace, _: &Value) -> Result<Value> {
        Err(Error::execution("SEARCH is not possible on this store"))
    }

    /// Does a step of a transaction. From [`TransactionStep::Join`] on, all that is read and changed is as the transaction has it,
    /// but for indexes.
    ///
    /// # Errors
    /// Code 17001 of a store that has none, and others of these.
    fn transact(&self, _: &TransactionStep) -> Result<String> {
        Err(Error::new(17001, "Transactions are not supported on this store"))
    }

    /// The documents of a keyspace that the request's transaction has changed, in the order of their ids.
    ///
    /// # Errors
    /// As [`Datastore::indexes`].
    fn staged(&self, _: &Keyspace) -> Result<Vec<Staged>> {
        Ok(Vec::new())
    }

    /// The extended attributes of these names of documents, in the order of the ids; also those of documents that are deleted. None
    /// where there is no document.
    ///
    /// # Errors
    /// As [`Datastore::indexes`]; code 13014 when the user may not see one of them.
    fn attributes(
        &self,
        _: &Keyspace,
        ids: &[Name],
        _names: &[Name],
    ) -> Result<Vec<Option<Value>>> {
        Ok(vec![None; ids.len()])
    }

    /// Does what a statement about users, groups, roles, collections or sequences says: an object whose member `do` names it.
    ///
    /// # Errors
    /// Code 1001 of a store that has none of these, and others of these.
    fn administer(&self, _: &Value) -> Result<Value> {
        Err(Error::new(1001, "this statement is not supported"))
    }

    /// Runs a statement that makes, changes or removes an index, scope or collection.
    ///
    /// # Errors
    /// Codes 4300 and 12016 for indexes, 12003 for keyspaces, 12021 for scopes.
    fn define(&self, statement: &Statement, context: Option<&Path>) -> Result<()>;

    /// The rows of a catalog, such as `keyspaces`; `None` when the store has none of this name.
    ///
    /// # Errors
    /// The store fails.
    fn catalog(&self, name: &str) -> Result<Option<Vec<(Name, Value)>>>;

    /// The statement that made a function; none when there is no such function.
    ///
    /// # Errors
    /// The user may not call it.
    fn function(&self, path: &FunctionPath) -> Result<Option<String>>;

    /// All functions that the user may know of, each with its statement.
    ///
    /// # Errors
    /// The store fails.
    fn functions(&self) -> Result<Vec<(FunctionPath, String)>>;

    /// Makes a function, of code if it has a `script`; `replace` allows that there is one.
    ///
    /// # Errors
    /// Code 10102 when there is one, 10114 when its code is none, 12021 when there is no such scope.
    fn create_function(
        &self,
        path: &FunctionPath,
        text: &str,
        script: Option<&Script>,
        replace: bool,
    ) -> Result<()>;

    /// Calls a function of code, which is the same for the whole request. Arguments are a JSON array that has `[v]` for each,
    /// or `[]` for MISSING; the answer is `{"value": v}`, `{}` for undefined, or `{"exception": {…}}` with what was `thrown`, and
    /// `line`, `column` and `text` of the place when they are known. What the code queries may change something if it `may_change`.
    ///
    /// # Errors
    /// The user may not call it; code 10109 when it cannot be run.
    fn call(&self, path: &FunctionPath, arguments: &str, may_change: bool) -> Result<String>;

    /// Removes a function.
    ///
    /// # Errors
    /// Code 10101 when there is none.
    fn drop_function(&self, path: &FunctionPath) -> Result<()>;

    /// What instances of the service share beside documents.
    fn notes(&self) -> &dyn Notes;

    /// Who asks; empty where there are no users.
    fn user(&self) -> String {
        String::new()
    }
}

/// Texts by key that all instances of the service see.
pub trait Notes {
    /// What was noted under `key`.
    fn recall(&self, key: &str) -> Option<String>;

    /// Notes something, or forgets it when there is nothing to note.
    fn note(&self, key: &str, text: Option<&str>);

    /// All keys that begin with `prefix`.
    ///
    /// # Errors
    /// Code 13014 when the user may not see what others do.
    fn keys(&self, prefix: &str) -> Result<Vec<String>>;
}

/// What comes from the world: time, chance, and the end of patience.
pub trait Platform {
    /// Microseconds since 1970.
    fn now_us(&self) -> i64;

    /// Milliseconds since 1970.
    fn now_ms(&self) -> i64 {
        self.now_us() / 1000
    }

    /// 64 bits of chance.
    fn random(&self) -> u64;

    /// Asked regularly.
    ///
    /// # Errors
    /// Code 1080 when the time of the request is over, and others when it is to end.
    fn check(&self) -> Result<()>;
}
