//! `database`: the reads, changes and definitions of queries, through an object that the embedder provides for each
//! request.

use crate::abi::nacre::plugin::database as abi;
use crate::capability::{Body, Capability};
use crate::instance::{Data, Refused};
use nacre_state::Span;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;
use wasmtime::Result;

/// Maximum number of documents that one call reads or changes.
const DOCUMENTS_MAX: usize = 1024;

/// Maximum time that one call may wait, regardless of the request's time limit.
const CALL_TIME_MAX: Duration = Duration::from_secs(75);

/// The failure of a call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error("{message} ({code})")]
pub struct Failure {
    /// The code that clients of the query service receive.
    pub code: u32,
    /// The reason, for the user.
    pub message: String,
    /// True if the same request may succeed later.
    pub retry: bool,
}

/// A collection.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct DatabaseKeyspace {
    /// The bucket.
    pub bucket: String,
    /// The scope.
    pub scope: String,
    /// The collection name.
    pub collection: String,
}

/// An index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DatabaseIndex {
    /// Identifies the index in calls.
    pub id: String,
    /// The statement that created it.
    pub definition: String,
    /// True if it covers all documents.
    pub online: bool,
}

/// A document.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// The key.
    pub id: String,
    /// The body.
    pub body: Body,
    /// The version.
    pub cas: u64,
    /// Format of the body, set by clients.
    pub flags: u32,
    /// Seconds since the Unix epoch; 0 for never.
    pub expiry: u32,
    /// True if the body is JSON.
    pub is_json: bool,
}

/// Consistency of an index.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Consistency {
    /// `scan_consistency`; empty for `not_bounded`.
    pub level: String,
    /// `scan_vectors` as JSON; empty if there are none.
    pub vectors: String,
}

/// The part of an index to read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IndexScan {
    /// The index.
    pub index: String,
    /// The partitions to read; empty for all.
    pub partitions: Vec<u16>,
    /// The key ranges, disjoint and in order.
    pub spans: Vec<Span>,
    /// True to read from the end.
    pub reverse: bool,
    /// The position to continue from.
    pub cursor: Option<Vec<u8>>,
    /// Maximum number of entries.
    pub limit: usize,
    /// Consistency.
    pub consistency: Consistency,
}

/// A page of index entries: keys and IDs of documents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IndexPage {
    /// The entries, in order.
    pub entries: Vec<(Vec<u8>, String)>,
    /// The position to continue from, if there are more entries.
    pub cursor: Option<Vec<u8>>,
}

/// Documents with their keys in one string, because allocating a string per key would take as long as finding its
/// document.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rows {
    ids: String,
    /// The rows without their keys, each with the length of its key in bytes.
    rows: Vec<(u32, Row)>,
}

impl Rows {
    /// Creates an empty list with room for this many rows.
    pub fn with_capacity(count: usize) -> Rows {
        Rows { ids: String::new(), rows: Vec::with_capacity(count) }
    }

    /// Adds a document; the key in `row` is ignored.
    pub fn add(&mut self, id: &str, row: Row) {
        self.ids.push_str(id);
        self.rows.push((id.len() as u32, row));
    }

    /// Returns the number of rows.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Returns true if there are no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}

impl Extend<Row> for Rows {
    fn extend<T: IntoIterator<Item = Row>>(&mut self, rows: T) {
        for mut row in rows {
            let id = std::mem::take(&mut row.id);
            self.add(&id, row);
        }
    }
}

impl FromIterator<Row> for Rows {
    fn from_iter<T: IntoIterator<Item = Row>>(rows: T) -> Rows {
        let mut all = Rows::default();
        all.extend(rows);
        all
    }
}

/// The documents of index entries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IndexedRows {
    /// The documents of the entries that were read. Deleted ones are omitted.
    pub rows: Rows,
    /// The key of the last entry that was read.
    pub last: Option<Vec<u8>>,
    /// True if no entries follow.
    pub is_whole: bool,
}

/// The rights that a statement needs on the documents of a keyspace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DatabaseRights {
    /// True if it reads documents, other than to find those it changes.
    pub select: bool,
    /// True if it inserts documents.
    pub insert: bool,
    /// True if it updates documents.
    pub update: bool,
    /// True if it deletes documents.
    pub delete: bool,
}

/// An action on a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Action {
    /// Inserts a document that must not exist.
    Insert,
    /// Stores a document whether or not it exists.
    Upsert,
    /// Replaces a document that must exist.
    Replace,
    /// Removes a document that must exist.
    Remove,
}

/// A change of a document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mutation {
    /// The action.
    pub action: Action,
    /// The ID of the document.
    pub id: String,
    /// The new body.
    #[serde(with = "serde_bytes")]
    pub body: Vec<u8>,
    /// The CAS that the document must have, for [`Action::Replace`] and [`Action::Remove`]; 0 for any.
    pub cas: u64,
    /// Expiry as sent by clients; `None` keeps the document's expiry.
    pub expiry: Option<u32>,
}

/// The reason why a document was not changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RowRefusal {
    /// The document already exists.
    Exists,
    /// The document does not exist.
    NotFound,
    /// The document has another version.
    CasMismatch,
    /// Any other failure.
    Other(Failure),
}

/// An index to create.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewIndex {
    /// The collection.
    pub keyspace: DatabaseKeyspace,
    /// The name.
    pub name: String,
    /// The statement that creates it.
    pub definition: String,
    /// The key expressions as text; empty for a primary index.
    pub keys: Vec<String>,
    /// Condition that selects documents, as text.
    pub condition: Option<String>,
    /// True to build the index later.
    pub deferred: bool,
    /// Distribution of its entries; `None` if they are stored with their documents.
    pub partitioning: Option<NewPartitioning>,
}

/// Distribution of an index's entries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewPartitioning {
    /// The partition key expressions as text.
    pub by: Vec<String>,
    /// Number of partitions.
    pub count: u16,
    /// Number of copies of each partition in addition to the first.
    pub replicas: u8,
}

/// A change of definitions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Definition {
    /// Creates an index.
    CreateIndex(NewIndex),
    /// Drops an index.
    DropIndex(DatabaseKeyspace, String),
    /// Builds indexes.
    BuildIndexes(DatabaseKeyspace, Vec<String>),
    /// Sets the number of additional copies of an index's partitions.
    SetIndexReplicas(DatabaseKeyspace, String, u8),
    /// Creates a scope: bucket, name.
    CreateScope(String, String),
    /// Drops a scope.
    DropScope(String, String),
    /// Creates a collection, with the maximum time to live of its documents in seconds.
    CreateCollection(DatabaseKeyspace, i32),
    /// Drops a collection.
    DropCollection(DatabaseKeyspace),
    /// Creates a function.
    CreateFunction(NewFunction),
    /// Drops a function.
    DropFunction(FunctionPath),
}

/// Options of a new transaction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TransactionSettings {
    /// Time limit; `None` for the default.
    pub timeout: Option<Duration>,
    /// Durability of its writes, as named by clients; empty for the default.
    pub durability: String,
    /// The collection that keeps its record, as a path; empty for the default collection of the first document's bucket.
    pub records: String,
    /// `txdata`: the SDK's description of the transaction; empty if it begins here.
    pub staged: String,
}

/// A step of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TransactionStep {
    /// Begins a transaction; returns its ID.
    Begin(TransactionSettings),
    /// Makes the request part of a transaction, with the number of the statement if there is one.
    Join(String, Option<u64>),
    /// Ends the request's part in the transaction. True to keep the request's changes.
    Leave(bool),
    /// Sets a savepoint.
    Savepoint(String),
    /// Undoes the changes since a savepoint.
    RollbackTo(String),
    /// Commits all changes atomically.
    Commit,
    /// Discards all changes.
    Rollback,
}

/// Path of a function of the query language.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FunctionPath {
    /// The bucket and scope; `None` for a global function.
    pub scope: Option<(String, String)>,
    /// The name.
    pub name: String,
}

/// The user code that a function runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Script {
    /// JavaScript that contains a function of the same name.
    Code(String),
    /// A function of a JavaScript library: the library's path, and the name of the function in it.
    Library(FunctionPath, String),
    /// A function of a plugin: the deployment, and the name of the function in it.
    Deployed(String, String),
}

/// A function to create.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewFunction {
    /// The path.
    pub path: FunctionPath,
    /// The statement that creates it.
    pub text: String,
    /// The script, for a function that runs user code.
    pub script: Option<Script>,
    /// True to replace an existing function.
    pub replace: bool,
}

type Outcome<T> = std::result::Result<T, Failure>;

/// The database with the rights of one user, for one request; implemented by the embedder.
///
/// A call may wait, but no longer than `left`.
pub trait Database: Send + Sync {
    /// Checks that a keyspace exists, and that the user may see it.
    ///
    /// # Errors
    /// [`Failure`], as for all methods.
    fn check(&self, keyspace: &DatabaseKeyspace) -> Outcome<()>;

    /// Returns a number that changes whenever keyspaces, indexes or the state of an index change.
    fn version(&self) -> u64;

    /// Returns the indexes of a keyspace.
    fn indexes(&self, keyspace: &DatabaseKeyspace) -> Outcome<Vec<DatabaseIndex>>;

    /// Returns documents by ID, in the order of the IDs.
    fn fetch(
        &self,
        keyspace: &DatabaseKeyspace,
        ids: &[String],
        left: Duration,
    ) -> Outcome<Vec<Option<Row>>>;

    /// Returns the extended attributes with these names, one JSON object per document; also for deleted documents.
    fn attributes(
        &self,
        _keyspace: &DatabaseKeyspace,
        ids: &[String],
        _names: &[String],
        _left: Duration,
    ) -> Outcome<Vec<Option<String>>> {
        Ok(vec![None; ids.len()])
    }

    /// Carries out a statement about users, groups, roles, buckets, collections or sequences, or a CURL call; both
    /// request and reply are JSON.
    fn administer(&self, _request: &str, _left: Duration) -> Outcome<String> {
        let message = "this statement is not supported".to_owned();
        Err(Failure { code: 1001, message, retry: false })
    }

    /// Sends a request about the documents of a keyspace to the search service; both request and reply are JSON.
    fn search(
        &self,
        _keyspace: &DatabaseKeyspace,
        _request: &str,
        _left: Duration,
    ) -> Outcome<String> {
        let message = "SEARCH is not possible here".to_owned();
        Err(Failure { code: 5010, message, retry: false })
    }

    /// Returns documents after a given one, in a stable order.
    fn scan(
        &self,
        keyspace: &DatabaseKeyspace,
        after: Option<&str>,
        bodies: bool,
        limit: usize,
        consistency: &Consistency,
        left: Duration,
    ) -> Outcome<Vec<Row>>;

    /// Returns entries of an index. All reads of one request see the same point in time.
    fn scan_index(&self, scan: &IndexScan, left: Duration) -> Outcome<IndexPage>;

    /// Returns the documents of the next index entries, at most the requested number, and fewer if the documents are
    /// large.
    fn scan_documents(&self, scan: &IndexScan, left: Duration) -> Outcome<IndexedRows>;

    /// Returns the number of documents.
    fn count(&self, keyspace: &DatabaseKeyspace) -> Outcome<u64>;

    /// Checks that the user has all these rights on a keyspace. After a successful check of a change, documents of the
    /// keyspace may be read.
    fn authorize(&self, keyspace: &DatabaseKeyspace, rights: DatabaseRights) -> Outcome<()>;

    /// Changes documents independently of each other.
    fn mutate(
        &self,
        keyspace: &DatabaseKeyspace,
        mutations: Vec<Mutation>,
        left: Duration,
    ) -> Outcome<Vec<std::result::Result<u64, RowRefusal>>>;

    /// Carries out a step of a transaction.
    fn transact(&self, step: TransactionStep, left: Duration) -> Outcome<String>;

    /// Returns the documents of a keyspace that the request's transaction has changed, by their IDs; `None` for removed
    /// ones.
    fn staged(&self, keyspace: &DatabaseKeyspace) -> Outcome<Vec<(String, Option<Row>)>>;

    /// Changes a definition.
    fn define(&self, definition: &Definition) -> Outcome<()>;

    /// Returns the statement that created a function.
    fn function(&self, path: &FunctionPath) -> Outcome<Option<String>>;

    /// Calls a function that runs user code; `plugins/wit` defines the format of arguments and result.
    fn call_function(
        &self,
        path: &FunctionPath,
        arguments: &str,
        may_change: bool,
        left: Duration,
    ) -> Outcome<String>;

    /// Returns all functions that the user may see, each with its statement.
    fn functions(&self) -> Outcome<Vec<(FunctionPath, String)>>;

    /// Returns the rows of a catalog: IDs and JSON objects; `None` if there is no such catalog.
    fn catalog(&self, name: &str) -> Outcome<Option<Vec<(String, String)>>>;

    /// Returns the time in microseconds since the Unix epoch.
    fn clock_us(&self) -> u64;

    /// Returns 64 random bits.
    fn chance(&self) -> u64;

    /// Returns the request's user.
    fn user(&self) -> String;

    /// Returns true if the client has disconnected. Called while the instance runs.
    fn is_over(&self) -> bool {
        false
    }

    /// Returns a note, which instances share.
    fn recall(&self, key: &str) -> Option<Vec<u8>>;

    /// Sets or removes a note. A note below `request/` is removed when the request ends.
    fn note(&self, key: &str, value: Option<Vec<u8>>);

    /// Returns the keys of notes that begin with `prefix`: those of the user, or all for users who manage requests.
    fn notes(&self, prefix: &str) -> Outcome<Vec<String>>;
}

impl From<Failure> for abi::Failure {
    fn from(Failure { code, message, retry }: Failure) -> abi::Failure {
        abi::Failure { code, message, retry }
    }
}

impl From<abi::Keyspace> for DatabaseKeyspace {
    fn from(abi::Keyspace { bucket, scope, collection }: abi::Keyspace) -> DatabaseKeyspace {
        DatabaseKeyspace { bucket, scope, collection }
    }
}

impl From<abi::Rights> for DatabaseRights {
    fn from(abi::Rights { select, insert, update, delete }: abi::Rights) -> DatabaseRights {
        DatabaseRights { select, insert, update, delete }
    }
}

impl From<abi::FunctionPath> for FunctionPath {
    fn from(abi::FunctionPath { scope, name }: abi::FunctionPath) -> FunctionPath {
        FunctionPath { scope, name }
    }
}

impl From<FunctionPath> for abi::FunctionPath {
    fn from(FunctionPath { scope, name }: FunctionPath) -> abi::FunctionPath {
        abi::FunctionPath { scope, name }
    }
}

impl From<abi::NewFunction> for NewFunction {
    fn from(new: abi::NewFunction) -> NewFunction {
        let abi::NewFunction { path, text, script, replace } = new;
        let script = script.map(|script| match script {
            abi::Script::Code(code) => Script::Code(code),
            abi::Script::Library((library, function)) => Script::Library(library.into(), function),
            abi::Script::Deployed((deployment, function)) => Script::Deployed(deployment, function),
        });
        NewFunction { path: path.into(), text, script, replace }
    }
}

impl From<abi::Consistency> for Consistency {
    fn from(abi::Consistency { level, vectors }: abi::Consistency) -> Consistency {
        Consistency { level, vectors }
    }
}

impl From<Row> for abi::Document {
    fn from(row: Row) -> abi::Document {
        let Row { id, body, cas, flags, expiry, is_json } = row;
        abi::Document { id, body: body.into_vec(), cas, flags, expiry, datatype: u8::from(is_json) }
    }
}

impl From<abi::Mutation> for Mutation {
    fn from(mutation: abi::Mutation) -> Mutation {
        let abi::Mutation { action, id, body, cas, expiry } = mutation;
        let action = match action {
            abi::Action::Insert => Action::Insert,
            abi::Action::Upsert => Action::Upsert,
            abi::Action::Replace => Action::Replace,
            abi::Action::Remove => Action::Remove,
        };
        Mutation { action, id, body, cas, expiry }
    }
}

impl From<RowRefusal> for abi::Refusal {
    fn from(refusal: RowRefusal) -> abi::Refusal {
        match refusal {
            RowRefusal::Exists => abi::Refusal::Exists,
            RowRefusal::NotFound => abi::Refusal::NotFound,
            RowRefusal::CasMismatch => abi::Refusal::CasMismatch,
            RowRefusal::Other(failure) => abi::Refusal::Other(failure.into()),
        }
    }
}

impl From<abi::TransactionStep> for TransactionStep {
    fn from(step: abi::TransactionStep) -> TransactionStep {
        use abi::TransactionStep as Abi;
        match step {
            Abi::Begin(settings) => {
                let abi::TransactionSettings { timeout_ms, durability, records, staged } = settings;
                let timeout = timeout_ms.map(Duration::from_millis);
                TransactionStep::Begin(TransactionSettings { timeout, durability, records, staged })
            }
            Abi::Join((id, number)) => TransactionStep::Join(id, number),
            Abi::Leave(keep) => TransactionStep::Leave(keep),
            Abi::Savepoint(name) => TransactionStep::Savepoint(name),
            Abi::RollbackTo(name) => TransactionStep::RollbackTo(name),
            Abi::Commit => TransactionStep::Commit,
            Abi::Rollback => TransactionStep::Rollback,
        }
    }
}

impl From<abi::Partitioning> for NewPartitioning {
    fn from(abi::Partitioning { by, count, replicas }: abi::Partitioning) -> NewPartitioning {
        NewPartitioning { by, count, replicas }
    }
}

impl From<abi::Definition> for Definition {
    fn from(definition: abi::Definition) -> Definition {
        use abi::Definition as Abi;
        match definition {
            Abi::CreateIndex(index) => Definition::CreateIndex(NewIndex {
                keyspace: index.keyspace.into(),
                name: index.name,
                definition: index.definition,
                keys: index.keys,
                condition: index.condition,
                deferred: index.deferred,
                partitioning: index.partitioning.map(Into::into),
            }),
            Abi::DropIndex((keyspace, name)) => Definition::DropIndex(keyspace.into(), name),
            Abi::BuildIndexes((keyspace, names)) => {
                Definition::BuildIndexes(keyspace.into(), names)
            }
            Abi::SetIndexReplicas((keyspace, name, replicas)) => {
                Definition::SetIndexReplicas(keyspace.into(), name, replicas)
            }
            Abi::CreateScope((bucket, scope)) => Definition::CreateScope(bucket, scope),
            Abi::DropScope((bucket, scope)) => Definition::DropScope(bucket, scope),
            Abi::CreateCollection((keyspace, max_ttl)) => {
                Definition::CreateCollection(keyspace.into(), max_ttl)
            }
            Abi::DropCollection(keyspace) => Definition::DropCollection(keyspace.into()),
            Abi::CreateFunction(new) => Definition::CreateFunction(new.into()),
            Abi::DropFunction(path) => Definition::DropFunction(path.into()),
        }
    }
}

/// Result of a call: the inner error is the failure of the operation, the outer one ends the guest's call.
type Answer<T> = Result<std::result::Result<T, abi::Failure>>;

impl Data {
    /// Returns the database of the current request, and the time limit of the call.
    fn database(&mut self) -> Result<(Arc<dyn Database>, Duration)> {
        self.count(Capability::Database)?;
        let database = self.view.database.clone();
        // The answer cannot be reproduced in a replay.
        self.journal.cut();
        let database = database.ok_or(Refused::Denied(Capability::Database));
        Ok((database.map_err(wasmtime::Error::new)?, self.time_left()?.min(CALL_TIME_MAX)))
    }
}

impl Data {
    /// Holds the bodies of documents for the guest. Returns the other parts to the guest, unless it wants only the
    /// bodies and all are objects.
    fn hold_rows(&mut self, Rows { ids, rows }: Rows, alone: bool) -> Result<abi::Holding> {
        let is_object = |row: &Row| row.is_json && row.body.first() == Some(&b'{');
        let (count, mut bytes, mut bodies_suffice) = (rows.len() as u32, 0, alone);
        for (_, row) in &rows {
            bytes += row.body.len() as u64;
            bodies_suffice &= is_object(row);
        }
        let described = |(id_bytes, row): &(u32, Row)| abi::HeldDocument {
            id_bytes: *id_bytes,
            body_bytes: row.body.len() as u32,
            is_object: row.body.first() == Some(&b'{'),
            datatype: u8::from(row.is_json),
            flags: row.flags,
            expiry: row.expiry,
            cas: row.cas,
        };
        let (documents, ids) = match bodies_suffice {
            true => (Vec::new(), String::new()),
            false => (rows.iter().map(described).collect(), ids),
        };
        let first = self.held.add(rows.into_iter().map(|(_, row)| row.body));
        self.charge_held()?;
        Ok(abi::Holding { first, count, bytes, documents, ids })
    }
}

fn bounded(count: usize) -> Result<()> {
    if count > DOCUMENTS_MAX { Err(wasmtime::Error::new(Refused::Keys)) } else { Ok(()) }
}

fn spans_of(spans: Vec<abi::Span>) -> Vec<Span> {
    spans.into_iter().map(|abi::Span { low, high }| Span { start: low, end: high }).collect()
}

fn answer<T, A: From<T>>(outcome: Outcome<T>) -> Answer<A> {
    Ok(outcome.map(A::from).map_err(Into::into))
}

impl abi::Host for Data {
    fn check(&mut self, keyspace: abi::Keyspace) -> Answer<()> {
        let (database, _) = self.database()?;
        answer(database.check(&keyspace.into()))
    }

    fn version(&mut self) -> Result<u64> {
        Ok(self.database()?.0.version())
    }

    fn indexes(&mut self, keyspace: abi::Keyspace) -> Answer<Vec<abi::Index>> {
        let (database, _) = self.database()?;
        let index =
            |DatabaseIndex { id, definition, online }| abi::Index { id, definition, online };
        answer(
            database
                .indexes(&keyspace.into())
                .map(|found| found.into_iter().map(index).collect::<Vec<_>>()),
        )
    }

    fn fetch(
        &mut self,
        keyspace: abi::Keyspace,
        ids: Vec<String>,
    ) -> Answer<Vec<Option<abi::Document>>> {
        bounded(ids.len())?;
        let (database, left) = self.database()?;
        let found = database.fetch(&keyspace.into(), &ids, left);
        answer(
            found.map(|rows| rows.into_iter().map(|row| row.map(Into::into)).collect::<Vec<_>>()),
        )
    }

    fn attributes(
        &mut self,
        keyspace: abi::Keyspace,
        ids: Vec<String>,
        names: Vec<String>,
    ) -> Answer<Vec<Option<String>>> {
        bounded(ids.len())?;
        let (database, left) = self.database()?;
        answer(database.attributes(&keyspace.into(), &ids, &names, left))
    }

    fn administer(&mut self, request: String) -> Answer<String> {
        let (database, left) = self.database()?;
        answer(database.administer(&request, left))
    }

    fn search(&mut self, keyspace: abi::Keyspace, request: String) -> Answer<String> {
        let (database, left) = self.database()?;
        answer(database.search(&keyspace.into(), &request, left))
    }

    fn scan(
        &mut self,
        keyspace: abi::Keyspace,
        after: Option<String>,
        bodies: bool,
        limit: u32,
        consistency: abi::Consistency,
    ) -> Answer<Vec<abi::Document>> {
        let (database, left) = self.database()?;
        let (keyspace, consistency) = (keyspace.into(), consistency.into());
        let limit = limit as usize;
        let rows = database.scan(&keyspace, after.as_deref(), bodies, limit, &consistency, left);
        answer(rows.map(|rows| rows.into_iter().map(Into::into).collect::<Vec<_>>()))
    }

    fn scan_index(
        &mut self,
        index: String,
        partitions: Vec<u16>,
        spans: Vec<abi::Span>,
        reverse: bool,
        cursor: Option<Vec<u8>>,
        limit: u32,
        consistency: abi::Consistency,
    ) -> Answer<abi::Page> {
        let (database, left) = self.database()?;
        let spans = spans_of(spans);
        let (limit, consistency) = (limit as usize, consistency.into());
        let scan = IndexScan { index, partitions, spans, reverse, cursor, limit, consistency };
        let page = database.scan_index(&scan, left).map(|IndexPage { entries, cursor }| {
            let entry = |(key, id)| abi::Entry { key, id };
            abi::Page { entries: entries.into_iter().map(entry).collect(), cursor }
        });
        answer(page)
    }

    fn scan_documents(
        &mut self,
        index: String,
        partitions: Vec<u16>,
        spans: Vec<abi::Span>,
        reverse: bool,
        limit: u32,
        consistency: abi::Consistency,
        alone: bool,
    ) -> Answer<abi::Indexed> {
        bounded(limit as usize)?;
        let (database, left) = self.database()?;
        let spans = spans_of(spans);
        let (cursor, limit, consistency) = (None, limit as usize, consistency.into());
        let scan = IndexScan { index, partitions, spans, reverse, cursor, limit, consistency };
        match database.scan_documents(&scan, left) {
            Ok(IndexedRows { rows, last, is_whole }) => {
                Ok(Ok(abi::Indexed { documents: self.hold_rows(rows, alone)?, last, is_whole }))
            }
            Err(failure) => Ok(Err(failure.into())),
        }
    }

    fn hold(
        &mut self,
        keyspace: abi::Keyspace,
        ids: Vec<String>,
        alone: bool,
    ) -> Answer<abi::Holding> {
        bounded(ids.len())?;
        let (database, left) = self.database()?;
        match database.fetch(&keyspace.into(), &ids, left) {
            Ok(rows) => Ok(Ok(self.hold_rows(rows.into_iter().flatten().collect(), alone)?)),
            Err(failure) => Ok(Err(failure.into())),
        }
    }

    fn read_held(&mut self, number: u64) -> Result<Vec<u8>> {
        self.database()?;
        self.held.body(number).map(|body| body.to_vec()).map_err(wasmtime::Error::new)
    }

    fn pass_on(&mut self, places: Vec<(u32, u64)>) -> Result<()> {
        self.database()?;
        self.held.place_all(places).map_err(wasmtime::Error::new)?;
        self.charge_held()
    }

    fn pass_all(&mut self, at: u32, first: u64, count: u32, between: String) -> Result<()> {
        self.database()?;
        self.held.pass_all(at, first, count, between).map_err(wasmtime::Error::new)?;
        self.charge_held()
    }

    fn let_go(&mut self, numbers: Vec<u64>) -> Result<()> {
        self.database()?;
        self.held.release(&numbers);
        self.charge_held()
    }

    fn count(&mut self, keyspace: abi::Keyspace, _: abi::Consistency) -> Answer<u64> {
        let (database, _) = self.database()?;
        answer(database.count(&keyspace.into()))
    }

    fn authorize(&mut self, keyspace: abi::Keyspace, rights: abi::Rights) -> Answer<()> {
        let (database, _) = self.database()?;
        answer(database.authorize(&keyspace.into(), rights.into()))
    }

    fn mutate(
        &mut self,
        keyspace: abi::Keyspace,
        mutations: Vec<abi::Mutation>,
    ) -> Answer<Vec<std::result::Result<u64, abi::Refusal>>> {
        bounded(mutations.len())?;
        let (database, left) = self.database()?;
        let mutations = mutations.into_iter().map(Into::into).collect();
        let made = database.mutate(&keyspace.into(), mutations, left);
        answer(
            made.map(|made| {
                made.into_iter().map(|one| one.map_err(Into::into)).collect::<Vec<_>>()
            }),
        )
    }

    fn transact(&mut self, step: abi::TransactionStep) -> Answer<String> {
        let (database, left) = self.database()?;
        answer(database.transact(step.into(), left))
    }

    fn staged(&mut self, keyspace: abi::Keyspace) -> Answer<Vec<abi::StagedDocument>> {
        let (database, _) = self.database()?;
        let staged = |(id, row): (String, Option<Row>)| abi::StagedDocument {
            id,
            document: row.map(Into::into),
        };
        let found = database.staged(&keyspace.into());
        answer(found.map(|found| found.into_iter().map(staged).collect::<Vec<_>>()))
    }

    fn define(&mut self, definition: abi::Definition) -> Answer<()> {
        let (database, _) = self.database()?;
        answer(database.define(&definition.into()))
    }

    fn function(&mut self, path: abi::FunctionPath) -> Answer<Option<String>> {
        let (database, _) = self.database()?;
        answer(database.function(&path.into()))
    }

    fn call_function(
        &mut self,
        path: abi::FunctionPath,
        arguments: String,
        may_change: bool,
    ) -> Answer<String> {
        let (database, left) = self.database()?;
        answer(database.call_function(&path.into(), &arguments, may_change, left))
    }

    fn functions(&mut self) -> Answer<Vec<(abi::FunctionPath, String)>> {
        let (database, _) = self.database()?;
        let found = database.functions();
        answer(found.map(|found| {
            found.into_iter().map(|(path, text)| (path.into(), text)).collect::<Vec<_>>()
        }))
    }

    fn catalog(&mut self, name: String) -> Answer<Option<Vec<(String, String)>>> {
        let (database, _) = self.database()?;
        answer(database.catalog(&name))
    }

    fn clock_us(&mut self) -> Result<u64> {
        Ok(self.database()?.0.clock_us())
    }

    fn chance(&mut self) -> Result<u64> {
        Ok(self.database()?.0.chance())
    }

    fn user(&mut self) -> Result<String> {
        Ok(self.database()?.0.user())
    }

    fn limit_time(&mut self, ms: u64) -> Result<()> {
        self.database()?;
        let ends = self.context.plugin.clock.ticks().saturating_add(ms);
        self.view.ends_tick = Some(self.view.ends_tick.map_or(ends, |earlier| earlier.min(ends)));
        Ok(())
    }

    fn recall(&mut self, key: String) -> Result<Option<Vec<u8>>> {
        Ok(self.database()?.0.recall(&key))
    }

    fn note(&mut self, key: String, value: Option<Vec<u8>>) -> Result<()> {
        self.database()?.0.note(&key, value);
        Ok(())
    }

    fn notes(&mut self, prefix: String) -> Answer<Vec<String>> {
        let (database, _) = self.database()?;
        answer(database.notes(&prefix))
    }
}
