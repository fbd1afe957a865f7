//! The database as one request sees it: with the rights of its user, and of each index one moment.

use super::block;
use super::consistency::Wanted;
use crate::bucket::Bucket;
use crate::error::Error;
use crate::node::Node;
use crate::plugins::{BucketDocuments, Deployment};
use nacre_auth::{Keyspace, Privilege};
use nacre_cluster::{Change, FunctionId, Index, Refusal};
use nacre_plugin_host::{
    Action, Consistency, Content, Database, DatabaseIndex, DatabaseKeyspace, Definition, Documents,
    Failure, FunctionPath, IndexPage, IndexScan, IndexSnapshot, Indexed, KvError, Mutation,
    NewIndex, Row, RowRefusal, Span, StoreMode,
};
use nacre_types::{Cas, CollectionId, Vbid};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Bytes of documents that one call gives, give or take one.
const PAGE_BYTES: usize = 4 << 20;
/// Documents that a scan reads before it looks how large they are together.
const FETCHED_AT_ONCE: usize = 64;
/// Entries that one call gives.
const ENTRIES_MAX: usize = 4096;

/// Codes of the query service. Source: Couchbase's list of error codes.
mod code {
    pub const TIMEOUT: u32 = 1080;
    pub const INDEX_EXISTS: u32 = 4300;
    pub const INTERNAL: u32 = 5000;
    pub const FUNCTION_NOT_FOUND: u32 = 10101;
    pub const FUNCTION_EXISTS: u32 = 10102;
    pub const KEYSPACE_NOT_FOUND: u32 = 12003;
    pub const INDEX_FAILURE: u32 = 12015;
    pub const INDEX_NOT_FOUND: u32 = 12016;
    pub const DML: u32 = 12009;
    pub const BUCKET_NOT_FOUND: u32 = 12020;
    pub const SCOPE: u32 = 12021;
    pub const COLLECTION_EXISTS: u32 = 12027;
    pub const SCOPE_EXISTS: u32 = 12028;
    pub const FORBIDDEN: u32 = 13014;
}

fn failure(code: u32, message: impl Into<String>) -> Failure {
    Failure { code, message: message.into(), retry: false }
}

fn retry(code: u32, message: impl Into<String>) -> Failure {
    Failure { code, message: message.into(), retry: true }
}

pub struct Session {
    pub(super) node: Arc<Node>,
    user: String,
    /// Indexes that were read, as they were then.
    snapshots: Mutex<HashMap<String, IndexSnapshot>>,
    /// Ids of the vBucket that a scan has come to, so that it need not be listed for every page.
    listed: Mutex<Option<Listed>>,
    /// Set when nobody waits for the answer any more.
    gone: Arc<AtomicBool>,
    /// Keys of notes that go with the request.
    noted: Mutex<Vec<String>>,
}

struct Listed {
    collection: (DatabaseKeyspace, Vbid),
    ids: Arc<Vec<String>>,
}

impl Session {
    pub fn new(node: &Arc<Node>, user: &str, gone: Arc<AtomicBool>) -> Session {
        Session {
            node: Arc::clone(node),
            user: user.to_owned(),
            snapshots: Mutex::default(),
            listed: Mutex::default(),
            gone,
            noted: Mutex::default(),
        }
    }

    /// What the instance has told of the request, while it has not ended.
    pub fn told(&self) -> Option<serde_json::Value> {
        let noted = self.noted.lock();
        let note = self.node.queries().notes.get(noted.first()?)?;
        serde_json::from_slice(&note).ok()
    }

    /// Whether the user may do that in a keyspace.
    pub(super) fn may(&self, privilege: Privilege, keyspace: &DatabaseKeyspace) -> bool {
        let keyspace = Keyspace {
            bucket: Some(&keyspace.bucket),
            scope: Some(&keyspace.scope),
            collection: Some(&keyspace.collection),
        };
        self.may_in(privilege, keyspace)
    }

    fn may_in(&self, privilege: Privilege, keyspace: Keyspace<'_>) -> bool {
        self.node.users().get(&self.user).is_some_and(|user| user.may(privilege, keyspace))
    }

    fn require(&self, privilege: Privilege, keyspace: &DatabaseKeyspace) -> Result<(), Failure> {
        if self.may(privilege, keyspace) {
            return Ok(());
        }
        let DatabaseKeyspace { bucket, scope, collection } = keyspace;
        let message = format!(
            "User does not have credentials to run this statement on {bucket}.{scope}.{collection} ({privilege:?})"
        );
        Err(failure(code::FORBIDDEN, message))
    }

    fn require_function(&self, privilege: Privilege, path: &FunctionPath) -> Result<(), Failure> {
        let scope = path.scope.as_ref();
        let keyspace = Keyspace {
            bucket: scope.map(|(bucket, _)| bucket.as_str()),
            scope: scope.map(|(_, scope)| scope.as_str()),
            collection: None,
        };
        if self.may_in(privilege, keyspace) {
            return Ok(());
        }
        let message = format!(
            "User does not have credentials to use function {} ({privilege:?})",
            function_id(path)
        );
        Err(failure(code::FORBIDDEN, message))
    }

    fn bucket(&self, keyspace: &DatabaseKeyspace) -> Result<Arc<Bucket>, Failure> {
        self.node.bucket(&keyspace.bucket).ok_or_else(|| no_bucket(keyspace))
    }

    /// A bucket and one of its collections, in which the user may do that.
    fn collection(
        &self,
        privilege: Privilege,
        keyspace: &DatabaseKeyspace,
    ) -> Result<(Arc<Bucket>, CollectionId), Failure> {
        self.require(privilege, keyspace)?;
        self.resolve(keyspace)
    }

    fn resolve(&self, keyspace: &DatabaseKeyspace) -> Result<(Arc<Bucket>, CollectionId), Failure> {
        let bucket = self.bucket(keyspace)?;
        let whole = self.node.check_serves_all(&keyspace.bucket);
        whole.map_err(|reason| failure(code::INTERNAL, reason))?;
        let resolved = bucket.manifest().resolve(&path(keyspace));
        let id = resolved.map_err(|refusal| not_found(keyspace, &refusal.to_string()))?;
        Ok((bucket, id))
    }

    fn documents(&self, bucket: &Arc<Bucket>) -> BucketDocuments {
        BucketDocuments::new(&self.node, bucket)
    }

    /// An index and what keeps it, found by its uuid.
    fn index(&self, uuid: &str) -> Result<(DatabaseKeyspace, Arc<Deployment>), Failure> {
        let cluster = self.node.cluster();
        let found = cluster.buckets.values().find_map(|bucket| {
            let index = bucket.indexes.iter().find(|index| index.uuid == uuid)?;
            let keyspace = DatabaseKeyspace {
                bucket: bucket.name.clone(),
                scope: index.scope.clone(),
                collection: index.collection.clone(),
            };
            Some((keyspace, self.node.plugins().index(&bucket.name, index)))
        });
        if let Some((keyspace, _)) = &found {
            let whole = self.node.check_serves_all(&keyspace.bucket);
            whole.map_err(|reason| failure(code::INTERNAL, reason))?;
        }
        match found {
            Some((keyspace, Some(deployment))) => Ok((keyspace, deployment)),
            Some((_, None)) => Err(retry(code::INDEX_FAILURE, "the index is not ready yet")),
            None => Err(failure(code::INDEX_NOT_FOUND, format!("GSI index {uuid} not found."))),
        }
    }

    /// An index as of one moment, which is as late as the request wants it.
    fn snapshot(&self, scan: &IndexScan, left: Duration) -> Result<IndexSnapshot, Failure> {
        if let Some(known) = self.snapshots.lock().get(&scan.index) {
            return Ok(known.clone());
        }
        let (keyspace, deployment) = self.index(&scan.index)?;
        self.require(Privilege::Query, &keyspace)?;
        let platform = &*self.node.platform;
        let caught_up = match Wanted::read(&scan.consistency, &keyspace.bucket)? {
            Wanted::Anything => Some(Ok(())),
            Wanted::Everything => block::on(platform, deployment.catch_up(), left),
            Wanted::Vector(vector) => block::on(platform, deployment.reach(&vector), left),
        };
        caught_up
            .ok_or_else(|| {
                retry(code::TIMEOUT, "The index did not catch up before the request timed out")
            })?
            .map_err(|reason| failure(code::INDEX_FAILURE, reason))?;
        let snapshot =
            deployment.snapshot().map_err(|reason| failure(code::INDEX_FAILURE, reason))?;
        self.snapshots.lock().insert(scan.index.clone(), snapshot.clone());
        Ok(snapshot)
    }

    /// The ids of a vBucket in order.
    fn ids(
        &self,
        keyspace: &DatabaseKeyspace,
        bucket: &Bucket,
        collection: CollectionId,
        vbid: Vbid,
    ) -> Result<Arc<Vec<String>>, Failure> {
        let mut listed = self.listed.lock();
        if let Some(listed) = &*listed
            && listed.collection.1 == vbid
            && listed.collection.0 == *keyspace
        {
            return Ok(Arc::clone(&listed.ids));
        }
        let documents = bucket
            .documents_of(vbid, collection, self.node.now())
            .map_err(|refused| failure(code::INTERNAL, format!("{refused:?}")))?;
        let id = |name: &[u8]| String::from_utf8(name.to_vec()).ok();
        let ids: Vec<_> = documents.iter().filter_map(|document| id(document.name())).collect();
        let ids = Arc::new(ids);
        let collection = (keyspace.clone(), vbid);
        *listed = Some(Listed { collection, ids: Arc::clone(&ids) });
        Ok(ids)
    }

    fn change(&self, change: &Change) -> Result<(), Failure> {
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
        };
        let bucket = new.keyspace.bucket.clone();
        self.change(&Change::CreateIndex { bucket: bucket.clone(), index: index.clone() })?;
        if index.built
            && let Some(deployment) = self.node.plugins().index(&bucket, &index)
        {
            // As with Couchbase, the statement ends when the index is built, or its time is over.
            let built = block::on(&*self.node.platform, deployment.catch_up(), BUILD_PATIENCE);
            if let Some(Err(reason)) = built {
                return Err(failure(code::INDEX_FAILURE, reason));
            }
        }
        Ok(())
    }
}

/// How long CREATE INDEX waits for the index to be built. It goes on afterwards.
const BUILD_PATIENCE: Duration = Duration::from_secs(60);

fn no_bucket(keyspace: &DatabaseKeyspace) -> Failure {
    not_found(keyspace, &format!("No bucket named {}", keyspace.bucket))
}

fn not_found(keyspace: &DatabaseKeyspace, cause: &str) -> Failure {
    let DatabaseKeyspace { bucket, scope, collection } = keyspace;
    let path = match (scope.as_str(), collection.as_str()) {
        ("_default", "_default") => format!("default:{bucket}"),
        _ => format!("default:{bucket}.{scope}.{collection}"),
    };
    failure(
        code::KEYSPACE_NOT_FOUND,
        format!("Keyspace not found in CB datastore: {path} - cause: {cause}"),
    )
}

fn refused(refusal: &Refusal) -> Failure {
    let code = match refusal {
        Refusal::IndexExists { .. } => code::INDEX_EXISTS,
        Refusal::IndexNotFound { .. } => code::INDEX_NOT_FOUND,
        Refusal::QueryFunctionExists { .. } => code::FUNCTION_EXISTS,
        Refusal::QueryFunctionNotFound { .. } => code::FUNCTION_NOT_FOUND,
        Refusal::BucketNotFound { .. } => code::BUCKET_NOT_FOUND,
        Refusal::ScopeNotFound { .. } => code::SCOPE,
        Refusal::ScopeExists { .. } => code::SCOPE_EXISTS,
        Refusal::CollectionNotFound { .. } => code::KEYSPACE_NOT_FOUND,
        Refusal::CollectionExists { .. } => code::COLLECTION_EXISTS,
        _ => code::INTERNAL,
    };
    failure(code, refusal.to_string())
}

fn function_id(path: &FunctionPath) -> FunctionId {
    FunctionId { scope: path.scope.clone(), name: path.name.clone() }
}

fn path(keyspace: &DatabaseKeyspace) -> String {
    format!("{}.{}", keyspace.scope, keyspace.collection)
}

fn dml(error: &KvError) -> Failure {
    match error {
        KvError::Temporary(_) | KvError::Locked => retry(code::DML, error.to_string()),
        _ => failure(code::DML, error.to_string()),
    }
}

impl Database for Session {
    fn check(&self, keyspace: &DatabaseKeyspace) -> Result<(), Failure> {
        self.resolve(keyspace).map(drop)
    }

    fn version(&self) -> u64 {
        let cluster = self.node.cluster();
        let mut hasher = DefaultHasher::new();
        cluster.rev.hash(&mut hasher);
        for bucket in cluster.buckets.values() {
            for index in &bucket.indexes {
                (&index.uuid, self.state_of(&bucket.name, index)).hash(&mut hasher);
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
            online: self.state_of(&bucket.name, index) == "online",
        };
        Ok(bucket.indexes_of(&keyspace.scope, &keyspace.collection).map(index).collect())
    }

    fn fetch(
        &self,
        keyspace: &DatabaseKeyspace,
        ids: &[String],
        left: Duration,
    ) -> Result<Vec<Option<Row>>, Failure> {
        let (bucket, collection) = self.collection(Privilege::Query, keyspace)?;
        let (documents, path) = (self.documents(&bucket), path(keyspace));
        let now = self.node.now();
        let get = |id: &[u8]| match documents.resident(collection, id, now) {
            Some(found) => Ok(found),
            None => documents.get(&path, id, left),
        };
        let row = |id: &String| match get(id.as_bytes()) {
            Ok(found) => Ok(Some(Row {
                id: id.clone(),
                body: found.body,
                cas: found.cas.0,
                flags: found.flags,
                expiry: found.expiry,
                is_json: found.is_json,
            })),
            Err(KvError::NotFound | KvError::Invalid(_) | KvError::TooLarge) => Ok(None),
            Err(error) => Err(dml(&error)),
        };
        ids.iter().map(row).collect()
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
        let (bucket, collection) = self.collection(Privilege::Query, keyspace)?;
        let first = after.map_or(0, |id| Vbid::of(id.as_bytes(), bucket.vbucket_count()).0);
        let mut rows = Vec::new();
        for vbid in (first..bucket.vbucket_count()).map(Vbid) {
            let ids = self.ids(keyspace, &bucket, collection, vbid)?;
            let from = match after {
                Some(after) if vbid.0 == first => ids.partition_point(|id| id.as_str() <= after),
                _ => 0,
            };
            for ids in ids[from..].chunks(FETCHED_AT_ONCE) {
                let ids = &ids[..ids.len().min(limit - rows.len())];
                match bodies {
                    // What is gone meanwhile is left out.
                    true => rows.extend(self.fetch(keyspace, ids, left)?.into_iter().flatten()),
                    false => {
                        rows.extend(ids.iter().map(|id| Row { id: id.clone(), ..Row::default() }))
                    }
                }
                let bytes: usize = rows.iter().map(|row| row.body.len()).sum();
                if rows.len() >= limit || bytes >= PAGE_BYTES {
                    return Ok(rows);
                }
            }
        }
        Ok(rows)
    }

    fn scan_index(&self, scan: &IndexScan, left: Duration) -> Result<IndexPage, Failure> {
        let snapshot = self.snapshot(scan, left)?;
        let limit = scan.limit.min(ENTRIES_MAX);
        let mut page = IndexPage::default();
        let mut last = None;
        let (begin, resume) = match &scan.cursor {
            Some(cursor) => position(cursor, scan.spans.len())?,
            None => (0, None),
        };
        for (number, span) in scan.spans.iter().enumerate().skip(begin) {
            let span = match (&resume, number == begin) {
                (Some(at), true) => at.rest_of(span, scan.reverse),
                _ => span.clone(),
            };
            for found in snapshot.scan(&span, scan.reverse) {
                if let (Some(at), true) = (&resume, number == begin)
                    && at.is_given(&found, scan.reverse)
                {
                    continue;
                }
                if page.entries.len() >= limit {
                    page.cursor =
                        last.zip(page.entries.last()).map(|(place, entry)| cursor(place, entry));
                    return Ok(page);
                }
                let Indexed { key, id, number: of_document, .. } = found;
                let Ok(id) = String::from_utf8(id) else { continue };
                page.entries.push((key, id));
                last = Some((number, of_document));
            }
        }
        Ok(page)
    }

    fn count(&self, keyspace: &DatabaseKeyspace) -> Result<u64, Failure> {
        let (bucket, collection) = self.collection(Privilege::Query, keyspace)?;
        Ok(bucket.counts_of(collection).documents)
    }

    fn mutate(
        &self,
        keyspace: &DatabaseKeyspace,
        mutations: Vec<Mutation>,
        left: Duration,
    ) -> Result<Vec<Result<u64, RowRefusal>>, Failure> {
        let (bucket, _) = self.collection(Privilege::QueryWrite, keyspace)?;
        let (documents, path) = (self.documents(&bucket), path(keyspace));
        let one = |mutation: Mutation| {
            let id = mutation.id.as_bytes();
            let cas = Some(Cas(mutation.cas)).filter(|_| mutation.cas != 0);
            let mode = match mutation.action {
                Action::Remove => return documents.remove(&path, id, cas, left),
                Action::Insert => StoreMode::Insert,
                Action::Upsert => StoreMode::Upsert,
                Action::Replace => StoreMode::Replace(cas),
            };
            let expiry = match mutation.expiry {
                Some(expiry) => expiry,
                None => documents.get(&path, id, left).map_or(0, |found| found.expiry),
            };
            let content = Content { body: mutation.body, flags: JSON_FLAGS, expiry };
            documents.store(&path, id, content, mode, left)
        };
        let outcome = |mutation| match one(mutation) {
            Ok(cas) => Ok(cas.0),
            Err(KvError::Exists) => Err(RowRefusal::Exists),
            Err(KvError::NotFound) => Err(RowRefusal::NotFound),
            Err(KvError::CasMismatch) => Err(RowRefusal::CasMismatch),
            Err(error) => Err(RowRefusal::Other(dml(&error))),
        };
        Ok(mutations.into_iter().map(outcome).collect())
    }

    fn define(&self, definition: &Definition) -> Result<(), Failure> {
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
                self.change(&Change::DropIndex { bucket, scope, collection, name: name.clone() })
            }
            Definition::BuildIndexes(keyspace, names) => {
                self.require(Privilege::AdministerIndexes, keyspace)?;
                let DatabaseKeyspace { bucket, scope, collection } = keyspace.clone();
                let names = names.clone();
                self.change(&Change::BuildIndexes { bucket, scope, collection, names })
            }
            Definition::CreateScope(bucket, scope) => {
                self.require(Privilege::AdministerCollections, &whole(bucket, scope))?;
                let (bucket, scope) = (bucket.clone(), scope.clone());
                self.change(&Change::CreateScope { bucket, scope })
            }
            Definition::DropScope(bucket, scope) => {
                self.require(Privilege::AdministerCollections, &whole(bucket, scope))?;
                let (bucket, scope) = (bucket.clone(), scope.clone());
                self.change(&Change::DropScope { bucket, scope })
            }
            Definition::CreateCollection(keyspace, max_ttl) => {
                self.require(Privilege::AdministerCollections, keyspace)?;
                let DatabaseKeyspace { bucket, scope, collection } = keyspace.clone();
                self.change(&Change::CreateCollection {
                    bucket,
                    scope,
                    collection,
                    max_ttl: *max_ttl,
                    history: None,
                })
            }
            Definition::CreateFunction(path, text, replace) => {
                self.require_function(Privilege::ManageQueryFunctions, path)?;
                let (id, text) = (function_id(path), text.clone());
                self.change(&Change::PutQueryFunction { id, text, replace: *replace })
            }
            Definition::DropFunction(path) => {
                self.require_function(Privilege::ManageQueryFunctions, path)?;
                self.change(&Change::DropQueryFunction { id: function_id(path) })
            }
            Definition::DropCollection(keyspace) => {
                self.require(Privilege::AdministerCollections, keyspace)?;
                let DatabaseKeyspace { bucket, scope, collection } = keyspace.clone();
                self.change(&Change::DropCollection { bucket, scope, collection })
            }
        }
    }

    fn function(&self, path: &FunctionPath) -> Result<Option<String>, Failure> {
        self.require_function(Privilege::ExecuteQueryFunctions, path)?;
        Ok(self.node.cluster().query_functions.get(&function_id(path)).map(str::to_owned))
    }

    fn functions(&self) -> Result<Vec<(FunctionPath, String)>, Failure> {
        let cluster = self.node.cluster();
        let all = cluster.query_functions.iter().map(|(FunctionId { scope, name }, text)| {
            (FunctionPath { scope, name }, text.to_owned())
        });
        let visible = |(path, _): &(FunctionPath, String)| {
            self.require_function(Privilege::ExecuteQueryFunctions, path).is_ok()
        };
        Ok(all.filter(visible).collect())
    }

    fn catalog(&self, name: &str) -> Result<Option<Vec<(String, String)>>, Failure> {
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
        self.gone.load(Ordering::Relaxed)
    }

    fn recall(&self, key: &str) -> Option<Vec<u8>> {
        self.node.queries().notes.get(key)
    }

    fn note(&self, key: &str, value: Option<Vec<u8>>) {
        if key.starts_with(OF_REQUEST) && value.is_some() {
            self.noted.lock().push(key.to_owned());
        }
        self.node.queries().notes.set(key, value);
    }

    fn notes(&self, prefix: &str) -> Result<Vec<String>, Failure> {
        // They tell what others do, wherever they do it.
        if !self.may_in(Privilege::Query, Keyspace::default()) {
            let message = "User does not have credentials to see the requests of others (Query)";
            return Err(failure(code::FORBIDDEN, message));
        }
        Ok(self.node.queries().notes.keys(prefix))
    }
}

/// What the keys of notes begin with that go with their request.
const OF_REQUEST: &str = "request/";

impl Drop for Session {
    fn drop(&mut self) {
        for key in std::mem::take(self.noted.get_mut()) {
            self.node.queries().notes.set(&key, None);
        }
    }
}

/// What SDKs take for JSON. Source: Couchbase's common flags.
const JSON_FLAGS: u32 = 0x0200_0000;

/// The last entry that was given.
struct Given {
    key: Vec<u8>,
    id: Vec<u8>,
    /// Of the entries that the document has with this key.
    number: u32,
}

impl Given {
    /// The part of a span that was not given whole.
    fn rest_of(&self, span: &Span, reverse: bool) -> Span {
        match reverse {
            false => Span { start: self.key.clone(), end: span.end.clone() },
            true => Span { start: span.start.clone(), end: [&self.key[..], &[0]].concat() },
        }
    }

    fn is_given(&self, found: &Indexed, reverse: bool) -> bool {
        let found = (&found.key[..], &found.id[..], found.number);
        let last = (&self.key[..], &self.id[..], self.number);
        if reverse { found >= last } else { found <= last }
    }
}

/// Says which span a page ended in, and with which entry, of those that its document has with its key.
fn cursor((span, number): (usize, u32), (key, id): &(Vec<u8>, String)) -> Vec<u8> {
    let mut out = [(span as u32).to_be_bytes(), number.to_be_bytes()].concat();
    out.extend_from_slice(&(key.len() as u32).to_be_bytes());
    out.extend_from_slice(key);
    out.extend_from_slice(id.as_bytes());
    out
}

fn position(cursor: &[u8], spans: usize) -> Result<(usize, Option<Given>), Failure> {
    let read = || {
        let (span, rest) = cursor.split_first_chunk::<4>()?;
        let (number, rest) = rest.split_first_chunk::<4>()?;
        let (length, rest) = rest.split_first_chunk::<4>()?;
        let (key, id) = rest.split_at_checked(u32::from_be_bytes(*length) as usize)?;
        let span = u32::from_be_bytes(*span) as usize;
        (span < spans).then(|| {
            (
                span,
                Some(Given {
                    key: key.to_vec(),
                    id: id.to_vec(),
                    number: u32::from_be_bytes(*number),
                }),
            )
        })
    };
    read().ok_or_else(|| failure(code::INTERNAL, "a scan goes on where it never was"))
}
