//! The datastore provided by the host of the sandbox.

use crate::admin;
use crate::response::{Passed, Piece};
use nacre_datastore::options;
use nacre_datastore::{
    Action, Consistency, Datastore, Document, DocumentRange, Documents, Found, FunctionPath, Index,
    IndexRange, Indexed, Keyspace, Mutation, Notes, Platform, Refusal, Rights, Script, Staged,
    TransactionStep, binary,
};
use nacre_plugin::bindings::world::nacre::plugin::database as abi;
use nacre_sql::ast::{CreateIndex, Expr, Path, Statement};
use nacre_sql::index::{Definition, Partitioning};
use nacre_sql::{Content, Error, HeldBodies, HeldBody, Json, Meta, Name, Result, Value};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Maximum number of documents in one call of the host.
const DOCUMENTS_MAX: usize = 1024;
/// Time that a request has after its timeout to report the timeout itself. A request in a long step cannot, and is ended by
/// the host.
const GRACE_MS: u64 = 250;

/// Access of a request to the host.
pub struct Host {
    /// The end of the request's time; `None` for no limit.
    ends_us: Option<u64>,
    timeout_ms: u64,
    indexes: IndexNames,
    bodies: Arc<HostBodies>,
}

/// Bodies of documents that the host holds.
#[derive(Default)]
struct HostBodies {
    /// Documents that are no longer needed but not released yet.
    unneeded: Mutex<Vec<u64>>,
}

/// Number of unneeded documents that are released at a time.
const UNNEEDED_MAX: usize = 256;

impl HostBodies {
    fn unneeded(&self) -> MutexGuard<'_, Vec<u64>> {
        self.unneeded.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HeldBodies for HostBodies {
    fn read(&self, number: u64) -> String {
        String::from_utf8(abi::read_held(number)).unwrap_or_default()
    }

    fn release(&self, number: u64) {
        self.unneeded().push(number);
    }
}

/// The host's names of indexes by their numbers in plans. Both plans and this map outlive requests.
pub type IndexNames = Rc<RefCell<BTreeMap<u64, String>>>;

impl Host {
    /// Creates the host of a request that ends after `timeout_ms`, or after the time in the service's settings if that is
    /// shorter.
    pub fn new(timeout_ms: Option<u64>, indexes: &IndexNames) -> Host {
        let set = abi::recall(admin::TIMEOUT).and_then(|text| String::from_utf8(text).ok());
        let set = set.and_then(|text| text.parse().ok());
        let limits = [timeout_ms, set].into_iter().flatten();
        let timeout_ms = limits.filter(|limit: &u64| *limit > 0).min();
        if let Some(timeout_ms) = timeout_ms {
            abi::limit_time(timeout_ms.saturating_add(GRACE_MS));
        }
        let ends = |ms: u64| abi::clock_us().saturating_add(ms.saturating_mul(1000));
        Host {
            ends_us: timeout_ms.map(ends),
            timeout_ms: timeout_ms.unwrap_or_default(),
            indexes: Rc::clone(indexes),
            bodies: Arc::default(),
        }
    }

    /// Passes the documents of a piece of the response to the host. Returns the text around them.
    pub fn pass_on(&self, Piece { text, passed, .. }: Piece) -> String {
        let mut places = Vec::new();
        let pass_on = |places: &mut Vec<_>| {
            if !places.is_empty() {
                abi::pass_on(places);
                places.clear();
            }
        };
        for (at, passed) in &passed {
            let at = u32::try_from(*at).unwrap_or(u32::MAX);
            match passed {
                Passed::Document(json) => {
                    places.extend(json.as_held().map(|held| (at, held.number)));
                }
                Passed::Range(DocumentRange { first, count, .. }, between) => {
                    pass_on(&mut places);
                    abi::pass_all(at, *first, *count as u32, between);
                }
            }
        }
        pass_on(&mut places);
        text
    }

    /// Converts the host's description of held documents.
    fn holding(&self, of: &Keyspace, holding: abi::Holding) -> Documents {
        let abi::Holding { first, count, bytes, documents, ids } = holding;
        let source: Arc<dyn HeldBodies> = self.bodies.clone();
        if documents.is_empty() && count > 0 {
            let (count, bytes) = (count as usize, bytes as usize);
            return Documents::Range(DocumentRange { first, count, bytes, source });
        }
        let keyspace: Name = of.to_string().into();
        let mut ids = ids.as_str();
        let found = |(number, document): (u64, abi::HeldDocument)| {
            let bytes = document.body_bytes as usize;
            let source = Arc::clone(&source);
            let body = HeldBody { number, bytes, is_object: document.is_object, source };
            let json = document.datatype & nacre_plugin::DATATYPE_JSON != 0;
            let content =
                if json { Content::Json(Arc::new(Json::held(body))) } else { binary(bytes) };
            let (id, rest) = ids.split_at_checked(document.id_bytes as usize).unwrap_or((ids, ""));
            ids = rest;
            let meta = Meta {
                id: id.into(),
                keyspace: keyspace.clone(),
                cas: document.cas,
                expiration: document.expiry,
                flags: document.flags,
                json,
                ..Meta::default()
            };
            Found { meta: Arc::new(meta), content }
        };
        Documents::Each((first..).zip(documents).map(found).collect())
    }

    /// Releases unneeded documents if there are many.
    fn release_unneeded(&self) {
        let mut unneeded = self.bodies.unneeded();
        if unneeded.len() >= UNNEEDED_MAX {
            abi::let_go(&unneeded);
            unneeded.clear();
        }
    }

    fn create_index(&self, create: &CreateIndex, keyspace: abi::Keyspace) -> Result<()> {
        let partitioning = Definition::new(create.clone())?.partitioning;
        let name = create.name.clone().unwrap_or_else(|| "#primary".into());
        let new = abi::NewIndex {
            keyspace,
            name: name.to_string(),
            definition: create.to_string(),
            keys: create.keys.iter().map(ToString::to_string).collect(),
            condition: create.condition.as_ref().map(ToString::to_string),
            deferred: create.with.field("defer_build").truth(),
            partitioning: partitioning.map(|Partitioning { count, replicas, .. }| {
                let by = create.partition.iter().map(ToString::to_string).collect();
                abi::Partitioning { by, count, replicas }
            }),
        };
        unless(create.if_not_exists, &[4300], abi::define(&abi::Definition::CreateIndex(new)))
    }
}

fn error(failure: abi::Failure) -> Error {
    let abi::Failure { code, message, retry } = failure;
    Error { retry, ..Error::new(code, message) }
}

/// Ignores failures with some codes if the statement allows it.
fn unless(
    forgiven: bool,
    codes: &[u32],
    done: std::result::Result<(), abi::Failure>,
) -> Result<()> {
    match done {
        Err(failure) if forgiven && codes.contains(&failure.code) => Ok(()),
        done => done.map_err(error),
    }
}

fn keyspace(of: &Keyspace) -> abi::Keyspace {
    abi::Keyspace {
        bucket: of.bucket.to_string(),
        scope: of.scope.to_string(),
        collection: of.collection.to_string(),
    }
}

fn consistency(wanted: &Consistency) -> abi::Consistency {
    let vectors = match &wanted.vectors {
        Value::Missing => String::new(),
        vectors => vectors.to_string(),
    };
    abi::Consistency { level: wanted.level.clone(), vectors }
}

fn document(found: abi::Document) -> Document {
    Document {
        id: found.id.into(),
        body: found.body,
        cas: found.cas,
        expiration: found.expiry,
        flags: found.flags,
        json: found.datatype & nacre_plugin::DATATYPE_JSON != 0,
    }
}

/// Returns the remaining spans of a range.
fn spans(range: &IndexRange<'_>) -> Vec<abi::Span> {
    let spans = range.spans.iter().filter_map(|span| {
        let mut span = abi::Span { low: span.low.clone(), high: span.high.clone() };
        match range.after {
            // No entry is a prefix of another, so the next possible key is this one with a zero byte appended.
            Some(after) if !range.reverse => {
                span.low = span.low.max([after, &[0]].concat());
            }
            Some(after) if span.high.is_empty() || span.high.as_slice() > after => {
                span.high = after.to_vec();
            }
            _ => {}
        }
        (span.high.is_empty() || span.low < span.high).then_some(span)
    });
    let mut spans: Vec<_> = spans.collect();
    if range.reverse {
        spans.reverse();
    }
    spans
}

/// Returns bucket and scope of the path of a scope.
fn scope_of(path: &Path, context: Option<&Path>) -> Result<(String, String)> {
    match (&path.parts[..], context.map(|context| &context.parts[..])) {
        ([bucket, scope], _) => Ok((bucket.to_string(), scope.to_string())),
        ([scope], Some([bucket, ..])) => Ok((bucket.to_string(), scope.to_string())),
        _ => Err(Error::new(12021, format!("Scope not found in CB datastore: {path}"))),
    }
}

impl Datastore for Host {
    fn check(&self, of: &Keyspace) -> Result<()> {
        abi::check(&keyspace(of)).map_err(error)
    }

    fn version(&self) -> u64 {
        abi::version()
    }

    fn indexes(&self, of: &Keyspace) -> Result<Vec<Index>> {
        let found = abi::indexes(&keyspace(of)).map_err(error)?;
        let index = |found: abi::Index| {
            // Half of a UUID is unique enough, and plans need a number.
            let digits: String = found.id.chars().take(16).collect();
            let id = u64::from_str_radix(&digits, 16).unwrap_or_default();
            self.indexes.borrow_mut().insert(id, found.id);
            Index { id, definition: found.definition, online: found.online }
        };
        Ok(found.into_iter().map(index).collect())
    }

    fn fetch(&self, of: &Keyspace, ids: &[Name]) -> Result<Vec<Option<Document>>> {
        let mut documents = Vec::with_capacity(ids.len());
        for ids in ids.chunks(DOCUMENTS_MAX) {
            let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
            let found = abi::fetch(&keyspace(of), &ids).map_err(error)?;
            documents.extend(found.into_iter().map(|found| found.map(document)));
        }
        Ok(documents)
    }

    fn scan(
        &self,
        of: &Keyspace,
        after: Option<&str>,
        bodies: bool,
        limit: usize,
        wanted: &Consistency,
    ) -> Result<Vec<Document>> {
        let limit = limit.min(DOCUMENTS_MAX) as u32;
        let found = abi::scan(&keyspace(of), after, bodies, limit, &consistency(wanted));
        Ok(found.map_err(error)?.into_iter().map(document).collect())
    }

    fn scan_index(
        &self,
        _: &Keyspace,
        range: &IndexRange<'_>,
        wanted: &Consistency,
    ) -> Result<Vec<Vec<u8>>> {
        let id = self.indexes.borrow().get(&range.index).cloned().unwrap_or_default();
        let (spans, limit) = (spans(range), u32::try_from(range.limit).unwrap_or(u32::MAX));
        let (partitions, wanted) = (range.partitions, consistency(wanted));
        let page = abi::scan_index(&id, partitions, &spans, range.reverse, None, limit, &wanted);
        Ok(page.map_err(error)?.entries.into_iter().map(|entry| entry.key).collect())
    }

    fn scan_documents(
        &self,
        of: &Keyspace,
        range: &IndexRange<'_>,
        wanted: &Consistency,
        alone: bool,
    ) -> Result<Option<Indexed>> {
        self.release_unneeded();
        let id = self.indexes.borrow().get(&range.index).cloned().unwrap_or_default();
        let (spans, limit) = (spans(range), range.limit.min(DOCUMENTS_MAX) as u32);
        let (partitions, wanted) = (range.partitions, consistency(wanted));
        let found =
            abi::scan_documents(&id, partitions, &spans, range.reverse, limit, &wanted, alone);
        let abi::Indexed { documents, last, is_whole } = found.map_err(error)?;
        Ok(Some(Indexed { documents: self.holding(of, documents), last, is_whole }))
    }

    fn hold(&self, of: &Keyspace, ids: &[Name], alone: bool) -> Result<Option<Documents>> {
        self.release_unneeded();
        let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
        let held = abi::hold(&keyspace(of), &ids, alone).map_err(error)?;
        Ok(Some(self.holding(of, held)))
    }

    fn count(&self, of: &Keyspace, wanted: &Consistency) -> Result<u64> {
        abi::count(&keyspace(of), &consistency(wanted)).map_err(error)
    }

    fn authorize(&self, of: &Keyspace, rights: Rights) -> Result<()> {
        let Rights { select, insert, update, delete } = rights;
        let rights = abi::Rights { select, insert, update, delete };
        abi::authorize(&keyspace(of), rights).map_err(error)
    }

    fn mutate(
        &self,
        of: &Keyspace,
        mutations: &[Mutation],
    ) -> Result<Vec<std::result::Result<u64, Refusal>>> {
        let mut outcomes = Vec::with_capacity(mutations.len());
        for mutations in mutations.chunks(DOCUMENTS_MAX) {
            let mutation = |mutation: &Mutation| {
                let (action, cas) = match mutation.action {
                    Action::Insert => (abi::Action::Insert, 0),
                    Action::Upsert => (abi::Action::Upsert, 0),
                    Action::Replace(cas) => (abi::Action::Replace, cas),
                    Action::Remove(cas) => (abi::Action::Remove, cas),
                };
                abi::Mutation {
                    action,
                    id: mutation.id.to_string(),
                    body: mutation.body.clone(),
                    cas,
                    expiry: mutation.expiration,
                }
            };
            let mutations: Vec<_> = mutations.iter().map(mutation).collect();
            let done = abi::mutate(&keyspace(of), &mutations).map_err(error)?;
            let refusal = |refusal| match refusal {
                abi::Refusal::Exists => Refusal::Exists,
                abi::Refusal::NotFound => Refusal::NotFound,
                abi::Refusal::CasMismatch => Refusal::CasMismatch,
                abi::Refusal::Other(failure) => Refusal::Other(error(failure)),
            };
            outcomes.extend(done.into_iter().map(|done| done.map_err(refusal)));
        }
        Ok(outcomes)
    }

    fn attributes(
        &self,
        of: &Keyspace,
        ids: &[Name],
        names: &[Name],
    ) -> Result<Vec<Option<Value>>> {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let mut all = Vec::with_capacity(ids.len());
        for ids in ids.chunks(DOCUMENTS_MAX) {
            let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
            let found = abi::attributes(&keyspace(of), &ids, &names).map_err(error)?;
            let value = |text: String| Value::parse(text.as_bytes()).unwrap_or_default();
            all.extend(found.into_iter().map(|text| text.map(value)));
        }
        Ok(all)
    }

    fn administer(&self, request: &Value) -> Result<Value> {
        let answer = abi::administer(&request.to_json()).map_err(error)?;
        Value::parse(answer.as_bytes()).map_err(|message| Error::new(5000, message))
    }

    fn search(&self, of: &Keyspace, request: &Value) -> Result<Value> {
        let answer = abi::search(&keyspace(of), &request.to_json()).map_err(error)?;
        Value::parse(answer.as_bytes()).map_err(|message| Error::new(5000, message))
    }

    fn transact(&self, step: &TransactionStep) -> Result<String> {
        use abi::TransactionStep as Abi;
        let step = match step.clone() {
            TransactionStep::Begin(settings) => Abi::Begin(abi::TransactionSettings {
                timeout_ms: settings.timeout_ms,
                durability: settings.durability,
                records: settings.records,
                staged: settings.staged,
            }),
            TransactionStep::Join(id, number) => Abi::Join((id, number)),
            TransactionStep::Leave(keep) => Abi::Leave(keep),
            TransactionStep::Savepoint(name) => Abi::Savepoint(name.to_string()),
            TransactionStep::RollbackTo(name) => Abi::RollbackTo(name.to_string()),
            TransactionStep::Commit => Abi::Commit,
            TransactionStep::Rollback => Abi::Rollback,
        };
        abi::transact(&step).map_err(error)
    }

    fn staged(&self, of: &Keyspace) -> Result<Vec<Staged>> {
        let found = abi::staged(&keyspace(of)).map_err(error)?.into_iter();
        Ok(found.map(|staged| (staged.id.into(), staged.document.map(document))).collect())
    }

    fn define(&self, statement: &Statement, context: Option<&Path>) -> Result<()> {
        let of = |path: &Path| Keyspace::of(path, context).map(|of| keyspace(&of));
        let define = |definition: abi::Definition| abi::define(&definition);
        match statement {
            Statement::CreateIndex(create) => self.create_index(create, of(&create.keyspace)?),
            Statement::DropIndex { name, keyspace, if_exists, .. } => {
                let drop = abi::Definition::DropIndex((of(keyspace)?, name.to_string()));
                unless(*if_exists, &[12016], define(drop))
            }
            Statement::BuildIndex { keyspace, names } => {
                let name = |name: &Expr| match name {
                    Expr::Literal(name) => name.as_str().map(str::to_owned),
                    _ => None,
                };
                let names = names.iter().map(name).collect::<Option<Vec<_>>>();
                let names = names.ok_or_else(|| Error::new(5000, "BUILD INDEX needs names"))?;
                unless(false, &[], define(abi::Definition::BuildIndexes((of(keyspace)?, names))))
            }
            Statement::AlterIndex { name, keyspace, with } => {
                let replicas = options::altered_replicas(with)?;
                let altered = (of(keyspace)?, name.to_string(), replicas);
                unless(false, &[], define(abi::Definition::SetIndexReplicas(altered)))
            }
            Statement::CreateScope { path, if_not_exists } => {
                let scope = scope_of(path, context)?;
                let codes = [12025, 12028];
                unless(*if_not_exists, &codes, define(abi::Definition::CreateScope(scope)))
            }
            Statement::DropScope { path, if_exists } => {
                let scope = scope_of(path, context)?;
                unless(*if_exists, &[12021], define(abi::Definition::DropScope(scope)))
            }
            Statement::CreateCollection { path, if_not_exists, with } => {
                let max_ttl = with.field("maxTTL").as_i64().unwrap_or_default();
                let max_ttl = i32::try_from(max_ttl)
                    .map_err(|_| Error::new(5000, format!("maxTTL cannot be {max_ttl}")))?;
                let create = abi::Definition::CreateCollection((of(path)?, max_ttl));
                unless(*if_not_exists, &[12027], define(create))
            }
            Statement::DropCollection { path, if_exists } => {
                let drop = abi::Definition::DropCollection(of(path)?);
                unless(*if_exists, &[12003], define(drop))
            }
            _ => Err(Error::new(1001, "this statement is not supported")),
        }
    }

    fn catalog(&self, name: &str) -> Result<Option<Vec<(Name, Value)>>> {
        let rows = abi::catalog(name).map_err(error)?;
        let unreadable = |_| Error::new(5000, format!("a row of system:{name} is not JSON"));
        let row = |(id, row): (String, String)| {
            Ok((id.into(), Value::parse(row.as_bytes()).map_err(unreadable)?))
        };
        rows.map(|rows| rows.into_iter().map(row).collect()).transpose()
    }

    fn function(&self, path: &FunctionPath) -> Result<Option<String>> {
        abi::function(&function_path(path)).map_err(error)
    }

    fn functions(&self) -> Result<Vec<(FunctionPath, String)>> {
        let found = abi::functions().map_err(error)?;
        let path = |path: abi::FunctionPath| FunctionPath {
            scope: path.scope.map(|(bucket, scope)| (bucket.into(), scope.into())),
            name: path.name.into(),
        };
        Ok(found.into_iter().map(|(found, text)| (path(found), text)).collect())
    }

    fn create_function(
        &self,
        path: &FunctionPath,
        text: &str,
        script: Option<&Script>,
        replace: bool,
    ) -> Result<()> {
        let script = script.map(|script| match script {
            Script::Code(code) => abi::Script::Code(code.to_string()),
            Script::Library { library, function } => {
                abi::Script::Library((function_path(library), function.to_string()))
            }
            Script::Deployed { deployment, function } => {
                abi::Script::Deployed((deployment.to_string(), function.to_string()))
            }
        });
        let (path, text) = (function_path(path), text.to_owned());
        let new = abi::NewFunction { path, text, script, replace };
        abi::define(&abi::Definition::CreateFunction(new)).map_err(error)
    }

    fn call(&self, path: &FunctionPath, arguments: &str, may_change: bool) -> Result<String> {
        abi::call_function(&function_path(path), arguments, may_change).map_err(error)
    }

    fn drop_function(&self, path: &FunctionPath) -> Result<()> {
        abi::define(&abi::Definition::DropFunction(function_path(path))).map_err(error)
    }

    fn notes(&self) -> &dyn Notes {
        self
    }

    fn user(&self) -> String {
        abi::user()
    }
}

impl Notes for Host {
    fn recall(&self, key: &str) -> Option<String> {
        abi::recall(key).and_then(|text| String::from_utf8(text).ok())
    }

    fn note(&self, key: &str, text: Option<&str>) {
        abi::note(key, text.map(str::as_bytes));
    }

    fn keys(&self, prefix: &str) -> Result<Vec<String>> {
        abi::notes(prefix).map_err(error)
    }
}

fn function_path(path: &FunctionPath) -> abi::FunctionPath {
    let scope = path.scope.as_ref();
    abi::FunctionPath {
        scope: scope.map(|(bucket, scope)| (bucket.to_string(), scope.to_string())),
        name: path.name.to_string(),
    }
}

impl Platform for Host {
    fn now_us(&self) -> i64 {
        abi::clock_us() as i64
    }

    fn random(&self) -> u64 {
        abi::chance()
    }

    fn check(&self) -> Result<()> {
        if self.ends_us.is_none_or(|ends| abi::clock_us() < ends) {
            return Ok(());
        }
        Err(Error::new(1080, format!("Timeout {}ms exceeded", self.timeout_ms)))
    }
}
