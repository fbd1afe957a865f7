//! The database as one request sees it: with the rights of its user, and of each index one moment.

use super::catalog::state_of;
use super::enlisted::{Joined, counted};
use super::failure::{code, failure, no_bucket, refused, retry, unresolved};
use super::gathered::{Gathered, Source};
use super::message::{CollectionCall, Place, QueryMessage, QueryReply};
use super::of_function::Guard;
use super::scripts::Scripts;
use super::transaction::{Durability, Staged};
use crate::NodeQueries;
use nacre_auth::{Keyspace, Login, Privilege};
use nacre_cluster::{BucketChange, Change, Index, IndexChange, Partitioning};
use nacre_node::Error;
use nacre_node::Node;
use nacre_node::scatter_gather::{Owners, ScatterRequest, Vbids};
use nacre_node::service::QueryQuestion;
use nacre_plugins_service::NodePlugins;
use nacre_sandbox::{
    Action, Consistency, Database, DatabaseIndex, DatabaseKeyspace, DatabaseRights, Definition,
    Failure, FunctionPath, IndexPage, IndexScan, IndexedRows, Mutation, NewIndex, NewPartitioning,
    Row, RowRefusal, TransactionStep,
};
use nacre_state::Span;
use nacre_types::NodeId;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Scans that a request goes on with later.
const SCANS_MAX: usize = 64;

/// Returns true once the client has left. Called about a hundred times a second.
pub type Gone = Arc<dyn Fn() -> bool + Send + Sync>;

/// The privileges on documents that SQL++ knows, in the order of [`DatabaseRights`].
const QUERY: [Privilege; 4] =
    [Privilege::Query, Privilege::QueryInsert, Privilege::QueryUpdate, Privilege::QueryDelete];

/// Returns a `Gone` that reads `mark`.
pub(super) fn gone_by(mark: &Arc<AtomicBool>) -> Gone {
    let mark = Arc::clone(mark);
    Arc::new(move || mark.load(Ordering::Relaxed))
}

/// What a request asks of all its reads and writes outside of a transaction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    /// Longest time that an index may take to reach what a read wants of it; `None` if it may take as long as the request.
    pub scan_wait: Option<Duration>,
    /// Durability of writes.
    pub durability: Durability,
}

impl Default for Terms {
    fn default() -> Terms {
        Terms { scan_wait: None, durability: Durability::None }
    }
}

/// A request's view of the database. Dropping it ends the request.
pub struct Session {
    pub(super) node: Arc<Node>,
    pub(super) user: String,
    /// The login of the user when the request began, for changes of users.
    pub(super) login: Option<Login>,
    /// Number under which the request asks other nodes.
    pub(super) asker: u64,
    /// The buckets of which nodes may keep something until the request ends.
    pub(super) asked: Mutex<BTreeSet<String>>,
    /// The nodes that were asked for partitions of indexes: the same of them.
    holders: Mutex<BTreeSet<NodeId>>,
    /// Scans that have come some way, with where they go on.
    scans: Mutex<Vec<(IndexScan, Gathered)>>,
    /// Reports whether the client has left.
    gone: Gone,
    /// The same for the request whose function makes this one.
    outer_gone: Option<Gone>,
    /// Nesting of JavaScript function calls.
    pub(super) depth: u32,
    /// When the request came, in monotonic nanoseconds.
    pub(super) begun_ns: u64,
    /// When its first rows were there; 0 before.
    pub(super) answered_ns: AtomicU64,
    /// JSON that the instance recorded when the request began.
    pub(super) description: Mutex<Option<Vec<u8>>>,
    /// Keys of notes that go with the request.
    pub(super) noted: Mutex<Vec<String>>,
    /// Collections in which the request may change documents, and so may find them without the privilege to read.
    targets: Mutex<BTreeSet<DatabaseKeyspace>>,
    /// What the request asks of its reads and writes.
    pub(super) terms: Mutex<Terms>,
    /// The transaction that the request belongs to.
    pub(super) transaction: Mutex<Option<Joined>>,
    /// Restrictions, for a query of a function.
    guard: Option<Arc<Guard>>,
    /// Functions in JavaScript that were called.
    pub(super) scripts: Mutex<Scripts>,
}

impl Session {
    /// For a request of `user`, whose rights are looked up each time.
    pub fn new(node: &Arc<Node>, user: &str, gone: Gone) -> Session {
        Session {
            node: Arc::clone(node),
            user: user.to_owned(),
            login: node.users().login_again(user),
            asker: node.random(),
            asked: Mutex::default(),
            holders: Mutex::default(),
            scans: Mutex::default(),
            gone,
            outer_gone: None,
            begun_ns: node.now().monotonic_ns,
            answered_ns: AtomicU64::new(0),
            description: Mutex::default(),
            depth: 0,
            noted: Mutex::default(),
            targets: Mutex::default(),
            terms: Mutex::default(),
            transaction: Mutex::default(),
            guard: None,
            scripts: Mutex::default(),
        }
    }

    /// Adds the restrictions of a query of a function.
    pub(super) fn guarded(mut self, guard: Arc<Guard>) -> Session {
        self.guard = Some(guard);
        self
    }

    /// Returns a constructor of sessions for the queries of functions that this request calls.
    pub(super) fn below(&self) -> impl Fn(Gone) -> Session + use<> {
        let (node, user, guard) = (Arc::clone(&self.node), self.user.clone(), self.guard.clone());
        let (outer, depth) = (Arc::clone(&self.gone), self.depth + 1);
        let login = self.login.clone();
        move |gone| {
            let mut session = Session::new(&node, &user, gone);
            session.outer_gone = Some(Arc::clone(&outer));
            session.guard = guard.clone();
            session.login = login.clone();
            session.depth = depth;
            session
        }
    }

    /// Returns the instance's notes of the request, while it has not ended.
    pub fn told(&self) -> Option<serde_json::Value> {
        let noted = self.noted.lock();
        let note = self.node.queries().notes.get(noted.first()?)?;
        serde_json::from_slice(&note.value).ok()
    }

    /// Returns true if the user may do that in a keyspace.
    pub(super) fn may(&self, privilege: Privilege, keyspace: &DatabaseKeyspace) -> bool {
        self.may_in(privilege, place(keyspace))
    }

    pub(super) fn may_in(&self, privilege: Privilege, keyspace: Keyspace<'_>) -> bool {
        self.node.users().get(&self.user).is_some_and(|user| user.may(privilege, keyspace))
    }

    pub(super) fn require(
        &self,
        privilege: Privilege,
        keyspace: &DatabaseKeyspace,
    ) -> Result<(), Failure> {
        if self.may(privilege, keyspace) {
            return Ok(());
        }
        let DatabaseKeyspace { bucket, scope, collection } = keyspace;
        let path = format!("{bucket}.{scope}.{collection}");
        let of_query = match privilege {
            Privilege::Query => Some(("SELECT", "query_select")),
            Privilege::QueryInsert => Some(("INSERT", "query_insert")),
            Privilege::QueryUpdate => Some(("UPDATE", "query_update")),
            Privilege::QueryDelete => Some(("DELETE", "query_delete")),
            _ => None,
        };
        let message = match of_query {
            // Source: Couchbase.
            Some((verb, role)) => format!(
                "User does not have credentials to run {verb} queries on {path}. Add role {role} on {path} to allow the statement to run."
            ),
            None => format!(
                "User does not have credentials to run this statement on {path} ({privilege:?})"
            ),
        };
        Err(failure(code::FORBIDDEN, message))
    }

    /// Checks that the user may carry out `action` on documents of a collection.
    pub(super) fn require_changing(
        &self,
        action: Action,
        keyspace: &DatabaseKeyspace,
    ) -> Result<(), Failure> {
        let privileges: &[Privilege] = match action {
            Action::Insert => &[Privilege::QueryInsert],
            Action::Upsert => &[Privilege::QueryInsert, Privilege::QueryUpdate],
            Action::Replace => &[Privilege::QueryUpdate],
            Action::Remove => &[Privilege::QueryDelete],
        };
        privileges.iter().try_for_each(|privilege| self.require(*privilege, keyspace))
    }

    /// Checks that documents of a collection may be read: by the user, or to find what the request changes.
    pub(super) fn require_reading(&self, keyspace: &DatabaseKeyspace) -> Result<(), Failure> {
        match self.targets.lock().contains(keyspace) {
            true => Ok(()),
            false => self.require(Privilege::Query, keyspace),
        }
    }

    /// Returns true if the user may do something with the documents of a keyspace by SQL++.
    pub(super) fn may_query(&self, keyspace: Keyspace<'_>) -> bool {
        QUERY.iter().any(|privilege| self.may_in(*privilege, keyspace))
    }

    /// Checks that a collection is there, as far as this node knows.
    fn resolve(&self, keyspace: &DatabaseKeyspace) -> Result<(), Failure> {
        let cluster = self.node.cluster();
        let bucket = cluster.bucket(&keyspace.bucket).map_err(|_| no_bucket(keyspace))?;
        let resolved = bucket.manifest.resolve(&path(keyspace));
        resolved.map(drop).map_err(|refusal| unresolved(keyspace, &refusal))
    }

    /// Returns the owners of a keyspace's vBuckets, if the user has the privilege.
    pub(super) fn owners(
        &self,
        privilege: Privilege,
        keyspace: &DatabaseKeyspace,
    ) -> Result<Arc<Owners>, Failure> {
        self.require(privilege, keyspace)?;
        self.all_owners(keyspace)
    }

    /// Returns the owners of a keyspace's vBuckets, if the request may read its documents.
    fn owners_to_read(&self, keyspace: &DatabaseKeyspace) -> Result<Arc<Owners>, Failure> {
        self.require_reading(keyspace)?;
        self.all_owners(keyspace)
    }

    fn all_owners(&self, keyspace: &DatabaseKeyspace) -> Result<Arc<Owners>, Failure> {
        self.resolve(keyspace)?;
        self.node.owners(&keyspace.bucket).ok_or_else(|| no_bucket(keyspace))
    }

    /// Asks about a collection, each vBucket where it is served.
    pub(super) fn ask(
        &self,
        keyspace: &DatabaseKeyspace,
        vbids: Vbids,
        call: &dyn Fn(&Vbids) -> CollectionCall,
        left: Duration,
    ) -> Result<Vec<(Vbids, QueryReply)>, Failure> {
        let question = |vbids: &Vbids| QueryMessage::Collection {
            bucket: keyspace.bucket.clone(),
            path: path(keyspace),
            call: call(vbids),
        };
        let want = ScatterRequest { vbids, message: Box::new(question) };
        let gathered = self.node.gather(&keyspace.bucket, &[want], left);
        let gathered = gathered.map_err(|reason| retry(code::INTERNAL, reason))?;
        self.node.queries().vitals().add_document_touches(gathered.len());
        let answers = gathered.into_iter().map(|gathered| match gathered.reply {
            Err(failure) => Err(failure.into()),
            Ok(reply) => Ok((gathered.vbids, reply)),
        });
        answers.collect()
    }

    /// An index and its collection.
    pub(super) fn find_index(&self, index: &str) -> Result<(DatabaseKeyspace, Index), Failure> {
        let cluster = self.node.cluster();
        let found = cluster.buckets.values().find_map(|bucket| {
            let index = bucket.indexes.iter().find(|known| known.uuid == index)?;
            let keyspace = DatabaseKeyspace {
                bucket: bucket.name.clone(),
                scope: index.scope.clone(),
                collection: index.collection.clone(),
            };
            Some((keyspace, index.clone()))
        });
        let missing = || failure(code::INDEX_NOT_FOUND, format!("GSI index {index} not found."));
        found.ok_or_else(missing)
    }

    /// Begins a scan of an index from behind `after`.
    pub(super) fn begin_scan(
        &self,
        keyspace: &DatabaseKeyspace,
        index: &Index,
        partitions: &[u16],
        after: Option<Place>,
    ) -> Result<Gathered, Failure> {
        let owners = self.node.owners(&keyspace.bucket).ok_or_else(|| no_bucket(keyspace))?;
        let Some(partitioning) = &index.partitioning else {
            self.asked.lock().insert(keyspace.bucket.clone());
            return Ok(Gathered::new(owners.all(), after));
        };
        let all = || (0..partitioning.count).collect();
        let is_there = |partition: &&u16| **partition < partitioning.count;
        let wanted: Vec<u16> = match partitions {
            [] => all(),
            some => some.iter().filter(is_there).copied().collect(),
        };
        Ok(Gathered::partitions(&wanted, &owners.all(), after.as_ref()))
    }

    /// Returns the source of scans of a bucket's indexes, which wait as long as the request permits.
    pub(super) fn source<'a>(&'a self, bucket: &'a str, left: Duration) -> Source<'a> {
        let left = self.terms.lock().scan_wait.map_or(left, |wait| wait.min(left));
        Source { node: &self.node, bucket, asker: self.asker, left, holders: &self.holders }
    }

    /// Waits until an index has all that its collection has, on all nodes.
    fn build(&self, keyspace: &DatabaseKeyspace, index: &Index) -> Result<(), Failure> {
        let everything = Consistency { level: "request_plus".into(), vectors: String::new() };
        let nothing = Span { start: vec![0], end: vec![0] };
        let (limit, spans) = (1, vec![nothing]);
        let scan = IndexScan {
            index: index.uuid.clone(),
            spans,
            limit,
            consistency: everything,
            ..IndexScan::default()
        };
        let mut gathered = self.begin_scan(keyspace, index, &[], None)?;
        match gathered.page(&self.source(&keyspace.bucket, BUILD_PATIENCE), index, &scan) {
            Err(failure) if !failure.retry && failure.code != code::TIMEOUT => Err(failure),
            // The build continues after the statement has ended.
            _ => Ok(()),
        }
    }

    pub(super) fn change(&self, change: &Change) -> Result<(), Failure> {
        self.node.change(change).map(drop).map_err(|error| match error {
            Error::Refused(refusal) => refused(&refusal),
            other => failure(code::INTERNAL, other.to_string()),
        })
    }

    fn create_index(&self, new: &NewIndex) -> Result<(), Failure> {
        self.require(Privilege::AdministerIndexes, &new.keyspace)?;
        self.node
            .plugins()
            .validate_index(&self.node, &new.definition)
            .map_err(|reason| failure(code::INTERNAL, reason))?;
        let index = Index {
            uuid: self.node.new_uuid(),
            scope: new.keyspace.scope.clone(),
            collection: new.keyspace.collection.clone(),
            name: new.name.clone(),
            definition: new.definition.clone(),
            keys: new.keys.clone(),
            condition: new.condition.clone(),
            built: !new.deferred,
            partitioning: new.partitioning.clone().map(
                |NewPartitioning { by, count, replicas }| Partitioning { by, count, replicas },
            ),
        };
        let bucket = new.keyspace.bucket.clone();
        self.change(&Change::Indexes(IndexChange::CreateIndex { bucket, index: index.clone() }))?;
        match index.built {
            // As with Couchbase, the statement ends when the index is built, or its time is over.
            true => self.build(&new.keyspace, &index),
            false => Ok(()),
        }
    }
}

/// How long another node may take to learn that a request has ended.
const FORGET_PATIENCE: Duration = Duration::from_secs(5);

/// Bytes of documents that one call gives, give or take one.
pub(super) const PAGE_BYTES: usize = 4 << 20;

/// How long CREATE INDEX waits for the index. The build continues afterwards.
const BUILD_PATIENCE: Duration = Duration::from_secs(60);

/// Returns a collection as roles name it.
pub(super) fn place(keyspace: &DatabaseKeyspace) -> Keyspace<'_> {
    Keyspace {
        bucket: Some(&keyspace.bucket),
        scope: Some(&keyspace.scope),
        collection: Some(&keyspace.collection),
    }
}

pub(super) fn path(keyspace: &DatabaseKeyspace) -> String {
    format!("{}.{}", keyspace.scope, keyspace.collection)
}

impl Database for Session {
    fn check(&self, keyspace: &DatabaseKeyspace) -> Result<(), Failure> {
        self.resolve(keyspace)
    }

    fn version(&self) -> u64 {
        let cluster = self.node.cluster();
        let mut hasher = DefaultHasher::new();
        cluster.rev.hash(&mut hasher);
        for bucket in cluster.buckets.values() {
            for index in &bucket.indexes {
                (&index.uuid, state_of(&self.node, &bucket.name, index)).hash(&mut hasher);
            }
        }
        hasher.finish()
    }

    fn indexes(&self, keyspace: &DatabaseKeyspace) -> Result<Vec<DatabaseIndex>, Failure> {
        let cluster = self.node.cluster();
        let bucket = cluster.bucket(&keyspace.bucket).map_err(|_| no_bucket(keyspace))?;
        let index = |index: &Index| DatabaseIndex {
            id: index.uuid.clone(),
            definition: index.definition.clone(),
            online: state_of(&self.node, &bucket.name, index) == "online",
        };
        Ok(bucket.indexes_of(&keyspace.scope, &keyspace.collection).map(index).collect())
    }

    fn fetch(
        &self,
        keyspace: &DatabaseKeyspace,
        ids: &[String],
        left: Duration,
    ) -> Result<Vec<Option<Row>>, Failure> {
        let owners = self.owners_to_read(keyspace)?;
        self.with_changes(|changes| match changes {
            Some(changes) => self.read_changed(changes, &owners, keyspace, ids, left),
            None => self.read_committed(&owners, keyspace, ids, left),
        })
    }

    fn attributes(
        &self,
        keyspace: &DatabaseKeyspace,
        ids: &[String],
        names: &[String],
        left: Duration,
    ) -> Result<Vec<Option<String>>, Failure> {
        let owners = self.owners_to_read(keyspace)?;
        // Attributes whose names begin so belong to the system.
        if names.iter().any(|name| name.starts_with('_')) {
            self.require(Privilege::SystemAttributes, keyspace)?;
        }
        self.read_attributes(&owners, keyspace, ids, names, left)
    }

    fn administer(&self, request: &str, left: Duration) -> Result<String, Failure> {
        self.guard.as_ref().map_or(Ok(()), |guard| guard.check_definition())?;
        self.do_administer(request, left)
    }

    fn search(
        &self,
        keyspace: &DatabaseKeyspace,
        request: &str,
        left: Duration,
    ) -> Result<String, Failure> {
        self.require_reading(keyspace)?;
        self.resolve(keyspace)?;
        let question = QueryQuestion { user: &self.user, keyspace, request, left };
        let mut services = self.node.services().iter();
        services.find_map(|service| service.answer_query(&self.node, &question)).unwrap_or_else(
            || Err(failure(code::EXECUTION, "SEARCH needs the search service, which is not here")),
        )
    }

    fn scan(
        &self,
        keyspace: &DatabaseKeyspace,
        after: Option<&str>,
        bodies: bool,
        limit: usize,
        _: &Consistency,
        left: Duration,
    ) -> Result<Vec<Row>, Failure> {
        let owners = self.owners_to_read(keyspace)?;
        self.with_changes(|changes| match changes {
            Some(changes) => {
                self.scan_changed(changes, &owners, keyspace, after, bodies, limit, left)
            }
            None => {
                let found = self.scan_committed(&owners, keyspace, after, bodies, limit, left);
                found.map(|(rows, _)| rows)
            }
        })
    }

    fn scan_index(&self, scan: &IndexScan, left: Duration) -> Result<IndexPage, Failure> {
        let (keyspace, index) = self.find_index(&scan.index)?;
        self.require_reading(&keyspace)?;
        let known = {
            let mut scans = self.scans.lock();
            let at = scans.iter().position(|(known, _)| goes_on(known, scan));
            at.map(|at| scans.swap_remove(at).1)
        };
        let mut gathered = match known {
            Some(gathered) => gathered,
            None => {
                let after = scan.cursor.as_deref().map(|cursor| position(cursor, scan.spans.len()));
                self.begin_scan(&keyspace, &index, &scan.partitions, after.transpose()?)?
            }
        };
        let source = self.source(&keyspace.bucket, left);
        let (mut page, last) = gathered.page(&source, &index, scan)?;
        if let Some(last) = last {
            let cursor = cursor(&last);
            page.cursor = Some(cursor.clone());
            let mut scans = self.scans.lock();
            if scans.len() >= SCANS_MAX {
                // The scan begins again at its position.
                scans.remove(0);
            }
            scans.push((IndexScan { cursor: Some(cursor), ..scan.clone() }, gathered));
        }
        Ok(page)
    }

    fn scan_documents(&self, scan: &IndexScan, left: Duration) -> Result<IndexedRows, Failure> {
        self.read_indexed(scan, left)
    }

    fn count(&self, keyspace: &DatabaseKeyspace) -> Result<u64, Failure> {
        let owners = self.owners_to_read(keyspace)?;
        let count = self.count_committed(&owners, keyspace)?;
        Ok(self.with_changes(|changes| changes.map_or(count, |all| counted(count, all, keyspace))))
    }

    fn authorize(
        &self,
        keyspace: &DatabaseKeyspace,
        rights: DatabaseRights,
    ) -> Result<(), Failure> {
        let DatabaseRights { select, insert, update, delete } = rights;
        for (_, privilege) in
            [select, insert, update, delete].into_iter().zip(QUERY).filter(|(wanted, _)| *wanted)
        {
            self.require(privilege, keyspace)?;
        }
        if insert || update || delete {
            self.targets.lock().insert(keyspace.clone());
        }
        Ok(())
    }

    fn mutate(
        &self,
        keyspace: &DatabaseKeyspace,
        mutations: Vec<Mutation>,
        left: Duration,
    ) -> Result<Vec<Result<u64, RowRefusal>>, Failure> {
        // Most calls have many mutations of one kind.
        let actions = [Action::Insert, Action::Upsert, Action::Replace, Action::Remove];
        let is_asked = |action: &Action| mutations.iter().any(|one| one.action == *action);
        actions
            .into_iter()
            .filter(is_asked)
            .try_for_each(|action| self.require_changing(action, keyspace))?;
        let owners = self.all_owners(keyspace)?;
        if let Some(guard) = &self.guard {
            guard.check(keyspace)?;
            if let Some(told) = guard.rehearse(keyspace, &mutations) {
                return Ok(told);
            }
            // Noted in any case: a write without an answer may have been made.
            let vbids = mutations.iter().map(|mutation| owners.vbid_of(mutation.id.as_bytes()));
            vbids.for_each(|vbid| guard.note(&keyspace.bucket, vbid));
        }
        match self.is_in_transaction() {
            true => self.change_in_transaction(&owners, keyspace, mutations, left),
            false => self.write_committed(&owners, keyspace, &mutations, left),
        }
    }

    fn transact(&self, step: TransactionStep, left: Duration) -> Result<String, Failure> {
        if self.guard.is_some() {
            return Err(failure(code::BEGIN, "A function's statements are in no transaction"));
        }
        self.do_step(step, left)
    }

    fn staged(&self, keyspace: &DatabaseKeyspace) -> Result<Vec<(String, Option<Row>)>, Failure> {
        self.require_reading(keyspace)?;
        let row = |(id, staged): (&str, &Staged)| (id.to_owned(), staged.row(id));
        Ok(self.with_changes(|changes| {
            changes.map_or_else(Vec::new, |changes| changes.of(keyspace).map(row).collect())
        }))
    }

    fn define(&self, definition: &Definition) -> Result<(), Failure> {
        self.guard.as_ref().map_or(Ok(()), |guard| guard.check_definition())?;
        let whole = |bucket: &String, scope: &String| DatabaseKeyspace {
            bucket: bucket.clone(),
            scope: scope.clone(),
            collection: String::new(),
        };
        match definition {
            Definition::CreateIndex(new) => self.create_index(new),
            Definition::DropIndex(keyspace, name) => {
                self.require(Privilege::AdministerIndexes, keyspace)?;
                let DatabaseKeyspace { bucket, scope, collection } = keyspace.clone();
                self.change(&Change::Indexes(IndexChange::DropIndex {
                    bucket,
                    scope,
                    collection,
                    name: name.clone(),
                }))
            }
            Definition::BuildIndexes(keyspace, names) => {
                self.require(Privilege::AdministerIndexes, keyspace)?;
                let DatabaseKeyspace { bucket, scope, collection } = keyspace.clone();
                let names = names.clone();
                self.change(&Change::Indexes(IndexChange::BuildIndexes {
                    bucket,
                    scope,
                    collection,
                    names,
                }))
            }
            Definition::SetIndexReplicas(keyspace, name, replicas) => {
                self.require(Privilege::AdministerIndexes, keyspace)?;
                let DatabaseKeyspace { bucket, scope, collection } = keyspace.clone();
                let (name, replicas) = (name.clone(), *replicas);
                self.change(&Change::Indexes(IndexChange::SetIndexReplicas {
                    bucket,
                    scope,
                    collection,
                    name,
                    replicas,
                }))
            }
            Definition::CreateScope(bucket, scope) => {
                self.require(Privilege::AdministerCollections, &whole(bucket, scope))?;
                let (bucket, scope) = (bucket.clone(), scope.clone());
                self.change(&Change::Buckets(BucketChange::CreateScope { bucket, scope }))
            }
            Definition::DropScope(bucket, scope) => {
                self.require(Privilege::AdministerCollections, &whole(bucket, scope))?;
                let (bucket, scope) = (bucket.clone(), scope.clone());
                self.change(&Change::Buckets(BucketChange::DropScope { bucket, scope }))
            }
            Definition::CreateCollection(keyspace, max_ttl) => {
                self.require(Privilege::AdministerCollections, keyspace)?;
                let DatabaseKeyspace { bucket, scope, collection } = keyspace.clone();
                self.change(&Change::Buckets(BucketChange::CreateCollection {
                    bucket,
                    scope,
                    collection,
                    max_ttl: *max_ttl,
                    history: None,
                }))
            }
            Definition::CreateFunction(new) => self.create_function(new),
            Definition::DropFunction(path) => self.drop_function(path),
            Definition::DropCollection(keyspace) => {
                self.require(Privilege::AdministerCollections, keyspace)?;
                let DatabaseKeyspace { bucket, scope, collection } = keyspace.clone();
                self.change(&Change::Buckets(BucketChange::DropCollection {
                    bucket,
                    scope,
                    collection,
                }))
            }
        }
    }

    fn function(&self, path: &FunctionPath) -> Result<Option<String>, Failure> {
        self.find_function(path)
    }

    fn call_function(
        &self,
        path: &FunctionPath,
        arguments: &str,
        may_change: bool,
        left: Duration,
    ) -> Result<String, Failure> {
        self.call_script(path, arguments, may_change, left)
    }

    fn functions(&self) -> Result<Vec<(FunctionPath, String)>, Failure> {
        Ok(self.visible_functions())
    }

    fn catalog(&self, name: &str) -> Result<Option<Vec<(String, String)>>, Failure> {
        self.catch_up_for(name);
        Ok(self.rows_of(name))
    }

    fn clock_us(&self) -> u64 {
        self.node.now().unix_ns / 1000
    }

    fn chance(&self) -> u64 {
        self.node.random()
    }

    fn user(&self) -> String {
        self.user.clone()
    }

    fn is_over(&self) -> bool {
        let outer = self.outer_gone.iter();
        outer.chain([&self.gone]).any(|gone| gone())
    }

    fn recall(&self, key: &str) -> Option<Vec<u8>> {
        self.recall_note(key)
    }

    fn note(&self, key: &str, value: Option<Vec<u8>>) {
        self.make_note(key, value);
    }

    fn notes(&self, prefix: &str) -> Result<Vec<String>, Failure> {
        Ok(self.note_keys(prefix))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.leave(false);
        self.node.queries().forget(self.asker);
        let asked = std::mem::take(self.asked.get_mut());
        let owners = asked.iter().filter_map(|bucket| self.node.owners(bucket));
        let mut nodes: BTreeSet<NodeId> = owners.flat_map(|owners| owners.nodes()).collect();
        nodes.append(self.holders.get_mut());
        for node in nodes.into_iter().filter(|node| *node != self.node.id()) {
            // The answer is not needed.
            drop(self.node.ask(node, &QueryMessage::Forget(self.asker), FORGET_PATIENCE));
        }
        self.note_slow();
        for key in std::mem::take(self.noted.get_mut()) {
            self.node.queries().notes.remove(&key);
        }
    }
}

/// Returns true if `scan` is where `known` goes on.
fn goes_on(known: &IndexScan, scan: &IndexScan) -> bool {
    let of = |scan: &IndexScan| IndexScan { limit: 0, ..scan.clone() };
    of(known) == of(scan)
}

/// Returns the cursor of the last entry of a page.
fn cursor(Place { span, key, id, number }: &Place) -> Vec<u8> {
    let mut out = [(*span as u32).to_be_bytes(), number.to_be_bytes()].concat();
    out.extend_from_slice(&(key.len() as u32).to_be_bytes());
    out.extend_from_slice(key);
    out.extend_from_slice(id);
    out
}

fn position(cursor: &[u8], spans: usize) -> Result<Place, Failure> {
    let read = || {
        let (span, rest) = cursor.split_first_chunk::<4>()?;
        let (number, rest) = rest.split_first_chunk::<4>()?;
        let (length, rest) = rest.split_first_chunk::<4>()?;
        let (key, id) = rest.split_at_checked(u32::from_be_bytes(*length) as usize)?;
        let span = u32::from_be_bytes(*span) as usize;
        let number = u32::from_be_bytes(*number);
        (span < spans).then(|| Place { span, key: key.to_vec(), id: id.to_vec(), number })
    };
    read().ok_or_else(|| failure(code::INTERNAL, "a scan goes on where it never was"))
}
