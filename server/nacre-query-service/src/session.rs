//! The database as one request sees it: with the rights of its user, and with one snapshot of each index.

use super::administer::administer;
use super::catalog::{catch_up_for, rows_of, state_of};
use super::committed::Committed;
use super::eventing_queries::Guard;
use super::failure::{code, failure, no_bucket, unresolved};
use super::footprint::Footprint;
use super::functions::{
    call_script, create_function, drop_function, find_function, visible_functions,
};
use super::index_merge::{IndexMerge, Source};
use super::message::Place;
use super::noting::{self, RequestNotes};
use super::requester::{QUERY, Requester};
use super::scripts::Scripts;
use super::slow::RequestTimes;
use super::transaction::{Durability, Staged};
use super::txn_session::{JoinedTransaction, counted};
use nacre_auth::{Keyspace, Privilege};
use nacre_cluster::{BucketChange, Change, Index, IndexChange, Partitioning};
use nacre_node::Node;
use nacre_node::scatter_gather::Owners;
use nacre_node::service::QueryQuestion;
use nacre_plugins_service::NodePlugins;
use nacre_sandbox::{
    Action, Consistency, Database, DatabaseIndex, DatabaseKeyspace, DatabaseRights, Definition,
    Failure, FunctionPath, IndexPage, IndexScan, IndexedRows, Mutation, NewIndex, NewPartitioning,
    Row, RowRefusal, TransactionStep,
};
use nacre_state::Span;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Maximum number of scans that a request can continue.
const SCANS_MAX: usize = 64;

/// Returns true once the client has disconnected. Called about a hundred times a second.
pub type DisconnectCheck = Arc<dyn Fn() -> bool + Send + Sync>;

/// Returns a `DisconnectCheck` that reads `mark`.
pub(super) fn gone_by(mark: &Arc<AtomicBool>) -> DisconnectCheck {
    let mark = Arc::clone(mark);
    Arc::new(move || mark.load(Ordering::Relaxed))
}

/// The terms of all reads and writes of a request outside of a transaction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    /// Maximum time that an index may take to reach the consistency of a read; `None` for the time limit of the request.
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
    pub(super) requester: Requester,
    pub(super) footprint: Footprint,
    /// Scans in progress, with their positions.
    scans: Mutex<Vec<(IndexScan, IndexMerge)>>,
    /// Reports whether the client has disconnected.
    gone: DisconnectCheck,
    /// The same for the request whose function sends this one.
    outer_gone: Option<DisconnectCheck>,
    /// Nesting of JavaScript function calls.
    pub(super) depth: u32,
    pub(super) times: RequestTimes,
    notes: RequestNotes,
    /// Collections in which the request may change documents, and so may find them without the privilege to read.
    targets: Mutex<BTreeSet<DatabaseKeyspace>>,
    /// The terms of the request's reads and writes.
    pub(super) terms: Mutex<Terms>,
    /// The transaction that the request belongs to.
    pub(super) transaction: Mutex<Option<JoinedTransaction>>,
    /// Restrictions, for a query of a function.
    guard: Option<Arc<Guard>>,
    /// JavaScript functions that were called.
    pub(super) scripts: Mutex<Scripts>,
}

impl Session {
    /// Creates a session for a request of `user`, whose rights are looked up for each check.
    pub fn new(node: &Arc<Node>, user: &str, gone: DisconnectCheck) -> Session {
        Session::of(Requester::new(node, user), gone)
    }

    fn of(requester: Requester, gone: DisconnectCheck) -> Session {
        let node = &requester.node;
        Session {
            footprint: Footprint::new(node.random()),
            times: RequestTimes::begin(node),
            requester,
            scans: Mutex::default(),
            gone,
            outer_gone: None,
            depth: 0,
            notes: RequestNotes::default(),
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

    /// Lets the request replace statistics only if they have this version.
    pub(super) fn replacing_statistics(mut self, version: &str) -> Session {
        self.requester.replaced_statistics = Some(version.to_owned());
        self
    }

    /// Returns a constructor of sessions for the queries of functions that this request calls.
    pub(super) fn below(&self) -> impl Fn(DisconnectCheck) -> Session + use<> {
        let (requester, guard) = (self.requester.clone(), self.guard.clone());
        let (outer, depth) = (Arc::clone(&self.gone), self.depth + 1);
        move |gone| {
            let mut session = Session::of(requester.clone(), gone);
            session.outer_gone = Some(Arc::clone(&outer));
            session.guard = guard.clone();
            session.depth = depth;
            session
        }
    }

    /// Returns the description that the instance has noted of the request, until the request ends.
    pub fn description(&self) -> Option<serde_json::Value> {
        self.notes.described(&self.requester.node)
    }

    /// Returns access to the documents without the changes of a transaction.
    pub(super) fn committed(&self) -> Committed<'_> {
        Committed { node: &self.requester.node, footprint: &self.footprint }
    }

    /// Checks that documents of a collection may be read: by the user, or to find documents that the request changes.
    pub(super) fn require_reading(&self, keyspace: &DatabaseKeyspace) -> Result<(), Failure> {
        match self.targets.lock().contains(keyspace) {
            true => Ok(()),
            false => self.requester.require(Privilege::Query, keyspace),
        }
    }

    /// Checks that a collection exists, as far as this node knows.
    fn resolve(&self, keyspace: &DatabaseKeyspace) -> Result<(), Failure> {
        let cluster = self.requester.node.cluster();
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
        self.requester.require(privilege, keyspace)?;
        self.all_owners(keyspace)
    }

    /// Returns the owners of a keyspace's vBuckets, if the request may read its documents.
    fn owners_to_read(&self, keyspace: &DatabaseKeyspace) -> Result<Arc<Owners>, Failure> {
        self.require_reading(keyspace)?;
        self.all_owners(keyspace)
    }

    fn all_owners(&self, keyspace: &DatabaseKeyspace) -> Result<Arc<Owners>, Failure> {
        self.resolve(keyspace)?;
        self.requester.node.owners(&keyspace.bucket).ok_or_else(|| no_bucket(keyspace))
    }

    /// Returns an index by its UUID, and its collection.
    pub(super) fn find_index(&self, index: &str) -> Result<(DatabaseKeyspace, Index), Failure> {
        let cluster = self.requester.node.cluster();
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

    /// Begins a scan of an index after `after`.
    pub(super) fn begin_scan(
        &self,
        keyspace: &DatabaseKeyspace,
        index: &Index,
        partitions: &[u16],
        after: Option<Place>,
    ) -> Result<IndexMerge, Failure> {
        let owners =
            self.requester.node.owners(&keyspace.bucket).ok_or_else(|| no_bucket(keyspace))?;
        let Some(partitioning) = &index.partitioning else {
            self.footprint.note(&keyspace.bucket);
            return Ok(IndexMerge::new(owners.all(), after));
        };
        let all = || (0..partitioning.count).collect();
        let is_there = |partition: &&u16| **partition < partitioning.count;
        let wanted: Vec<u16> = match partitions {
            [] => all(),
            some => some.iter().filter(is_there).copied().collect(),
        };
        Ok(IndexMerge::partitions(&wanted, &owners.all(), after.as_ref()))
    }

    /// Returns the source of scans of a bucket's indexes, with the time that the request permits.
    pub(super) fn source<'a>(&'a self, bucket: &'a str, left: Duration) -> Source<'a> {
        let left = self.terms.lock().scan_wait.map_or(left, |wait| wait.min(left));
        let Footprint { asker, holders, .. } = &self.footprint;
        Source { node: &self.requester.node, bucket, asker: *asker, left, holders }
    }

    /// Waits until an index covers its collection on all nodes.
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

    fn create_index(&self, new: &NewIndex) -> Result<(), Failure> {
        self.requester.require(Privilege::AdministerIndexes, &new.keyspace)?;
        self.requester
            .node
            .plugins()
            .validate_index(&self.requester.node, &new.definition)
            .map_err(|reason| failure(code::INTERNAL, reason))?;
        let index = Index {
            uuid: self.requester.node.new_uuid(),
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
        self.requester
            .change(&Change::Indexes(IndexChange::CreateIndex { bucket, index: index.clone() }))?;
        match index.built {
            // As in Couchbase, the statement ends when the index is built or its time is over.
            true => self.build(&new.keyspace, &index),
            false => Ok(()),
        }
    }
}

/// Maximum size of documents that one call returns, in bytes; the last document may exceed it.
pub(super) const PAGE_BYTES: usize = 4 << 20;

/// Maximum time that CREATE INDEX waits for the index. The build continues afterwards.
const BUILD_PATIENCE: Duration = Duration::from_secs(60);

/// Returns a collection in the form used by roles.
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
        let cluster = self.requester.node.cluster();
        let mut hasher = DefaultHasher::new();
        cluster.rev.hash(&mut hasher);
        for bucket in cluster.buckets.values() {
            for index in &bucket.indexes {
                (&index.uuid, state_of(&self.requester.node, &bucket.name, index))
                    .hash(&mut hasher);
            }
        }
        hasher.finish()
    }

    fn indexes(&self, keyspace: &DatabaseKeyspace) -> Result<Vec<DatabaseIndex>, Failure> {
        let cluster = self.requester.node.cluster();
        let bucket = cluster.bucket(&keyspace.bucket).map_err(|_| no_bucket(keyspace))?;
        let index = |index: &Index| DatabaseIndex {
            id: index.uuid.clone(),
            definition: index.definition.clone(),
            online: state_of(&self.requester.node, &bucket.name, index) == "online",
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
            None => self.committed().read(&owners, keyspace, ids, left),
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
        // Attributes whose names begin with `_` belong to the system.
        if names.iter().any(|name| name.starts_with('_')) {
            self.requester.require(Privilege::SystemAttributes, keyspace)?;
        }
        self.committed().attributes(&owners, keyspace, ids, names, left)
    }

    fn administer(&self, request: &str, left: Duration) -> Result<String, Failure> {
        self.guard.as_ref().map_or(Ok(()), |guard| guard.check_definition())?;
        administer(&self.requester, &self.terms, request, left)
    }

    fn search(
        &self,
        keyspace: &DatabaseKeyspace,
        request: &str,
        left: Duration,
    ) -> Result<String, Failure> {
        self.require_reading(keyspace)?;
        self.resolve(keyspace)?;
        let question = QueryQuestion { user: &self.requester.user, keyspace, request, left };
        let mut services = self.requester.node.services().iter();
        services
            .find_map(|service| service.answer_query(&self.requester.node, &question))
            .unwrap_or_else(|| {
                Err(failure(code::EXECUTION, "SEARCH needs the search service, which is not here"))
            })
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
                let found = self.committed().scan(&owners, keyspace, after, bodies, limit, left);
                found.map(|(rows, _)| rows)
            }
        })
    }

    fn scan_index(&self, scan: &IndexScan, left: Duration) -> Result<IndexPage, Failure> {
        let (keyspace, index) = self.find_index(&scan.index)?;
        self.require_reading(&keyspace)?;
        let known = {
            let mut scans = self.scans.lock();
            let at = scans.iter().position(|(known, _)| continues(known, scan));
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
                // The scan restarts at its position.
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
        let count = self.committed().count(&owners, keyspace)?;
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
            self.requester.require(privilege, keyspace)?;
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
            .try_for_each(|action| self.requester.require_changing(action, keyspace))?;
        let owners = self.all_owners(keyspace)?;
        if let Some(guard) = &self.guard {
            guard.check(keyspace)?;
            if let Some(outcomes) = guard.rehearse(keyspace, &mutations) {
                return Ok(outcomes);
            }
            // Recorded in any case, because a write without an answer may have been applied.
            let vbids = mutations.iter().map(|mutation| owners.vbid_of(mutation.id.as_bytes()));
            vbids.for_each(|vbid| guard.note(&keyspace.bucket, vbid));
        }
        match self.is_in_transaction() {
            true => self.change_in_transaction(&owners, keyspace, mutations, left),
            false => {
                let durability = self.terms.lock().durability;
                self.committed().write(&owners, keyspace, &mutations, durability, left)
            }
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
                self.requester.require(Privilege::AdministerIndexes, keyspace)?;
                let DatabaseKeyspace { bucket, scope, collection } = keyspace.clone();
                self.requester.change(&Change::Indexes(IndexChange::DropIndex {
                    bucket,
                    scope,
                    collection,
                    name: name.clone(),
                }))
            }
            Definition::BuildIndexes(keyspace, names) => {
                self.requester.require(Privilege::AdministerIndexes, keyspace)?;
                let DatabaseKeyspace { bucket, scope, collection } = keyspace.clone();
                let names = names.clone();
                self.requester.change(&Change::Indexes(IndexChange::BuildIndexes {
                    bucket,
                    scope,
                    collection,
                    names,
                }))
            }
            Definition::SetIndexReplicas(keyspace, name, replicas) => {
                self.requester.require(Privilege::AdministerIndexes, keyspace)?;
                let DatabaseKeyspace { bucket, scope, collection } = keyspace.clone();
                let (name, replicas) = (name.clone(), *replicas);
                self.requester.change(&Change::Indexes(IndexChange::SetIndexReplicas {
                    bucket,
                    scope,
                    collection,
                    name,
                    replicas,
                }))
            }
            Definition::CreateScope(bucket, scope) => {
                self.requester.require(Privilege::AdministerCollections, &whole(bucket, scope))?;
                let (bucket, scope) = (bucket.clone(), scope.clone());
                self.requester.change(&Change::Buckets(BucketChange::CreateScope { bucket, scope }))
            }
            Definition::DropScope(bucket, scope) => {
                self.requester.require(Privilege::AdministerCollections, &whole(bucket, scope))?;
                let (bucket, scope) = (bucket.clone(), scope.clone());
                self.requester.change(&Change::Buckets(BucketChange::DropScope { bucket, scope }))
            }
            Definition::CreateCollection(keyspace, max_ttl) => {
                self.requester.require(Privilege::AdministerCollections, keyspace)?;
                let DatabaseKeyspace { bucket, scope, collection } = keyspace.clone();
                self.requester.change(&Change::Buckets(BucketChange::CreateCollection {
                    bucket,
                    scope,
                    collection,
                    max_ttl: *max_ttl,
                    history: None,
                }))
            }
            Definition::CreateFunction(new) => create_function(&self.requester, new),
            Definition::DropFunction(path) => drop_function(&self.requester, path),
            Definition::DropCollection(keyspace) => {
                self.requester.require(Privilege::AdministerCollections, keyspace)?;
                let DatabaseKeyspace { bucket, scope, collection } = keyspace.clone();
                self.requester.change(&Change::Buckets(BucketChange::DropCollection {
                    bucket,
                    scope,
                    collection,
                }))
            }
        }
    }

    fn function(&self, path: &FunctionPath) -> Result<Option<String>, Failure> {
        find_function(&self.requester, path)
    }

    fn call_function(
        &self,
        path: &FunctionPath,
        arguments: &str,
        may_change: bool,
        left: Duration,
    ) -> Result<String, Failure> {
        call_script(self, path, arguments, may_change, left)
    }

    fn functions(&self) -> Result<Vec<(FunctionPath, String)>, Failure> {
        Ok(visible_functions(&self.requester))
    }

    fn catalog(&self, name: &str) -> Result<Option<Vec<(String, String)>>, Failure> {
        catch_up_for(&self.requester.node, name);
        Ok(rows_of(&self.requester, name))
    }

    fn clock_us(&self) -> u64 {
        self.requester.node.now().unix_ns / 1000
    }

    fn chance(&self) -> u64 {
        self.requester.node.random()
    }

    fn user(&self) -> String {
        self.requester.user.clone()
    }

    fn is_over(&self) -> bool {
        let outer = self.outer_gone.iter();
        outer.chain([&self.gone]).any(|gone| gone())
    }

    fn recall(&self, key: &str) -> Option<Vec<u8>> {
        noting::recall(&self.requester, key)
    }

    fn note(&self, key: &str, value: Option<Vec<u8>>) {
        self.notes.make(&self.requester, key, value);
    }

    fn notes(&self, prefix: &str) -> Result<Vec<String>, Failure> {
        Ok(noting::keys(&self.requester, prefix))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.leave(false);
        let node = &self.requester.node;
        self.footprint.clear(node);
        // Statements of functions are part of the statement that calls them.
        if let Some(description) = self.notes.take_description().filter(|_| self.depth == 0) {
            self.times.note_slow(&self.requester, &description);
        }
        self.notes.end(node);
    }
}

/// Returns true if `scan` continues `known`.
fn continues(known: &IndexScan, scan: &IndexScan) -> bool {
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
    read().ok_or_else(|| failure(code::INTERNAL, "a scan continues at an unknown position"))
}
