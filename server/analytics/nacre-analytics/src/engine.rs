//! Runs statements: definitions change the catalog and the followers, queries read snapshots.

use crate::answer::{Answer, Piece};
use crate::catalog::{self, Catalog, Collection, Index, Scope};
use crate::error::{self, Error, Result};
use crate::fleet::Fleet;
use crate::follower::{Follower, LinkState, Quota, lock};
use crate::names::Resolver;
use crate::node::{Caller, LOGGED_IN, Node};
use crate::plan;
use crate::processes::{Adopted, Asked};
use crate::request::Request;
use crate::rows::{self, Patience, Snapshots};
use crate::statement::{DEFAULT_SCOPE, Qualified, Statement, parse_all};
use nacre_query::Settings;
use nacre_sql::ast::{Select, Statement as Sql};
use nacre_sql::{Condition, parse_analytics};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::mpsc::Sender;

/// Maximum number of concurrent requests; more are refused.
const RUNNING_MAX: usize = 64;
/// Maximum number of ended requests that are remembered.
const COMPLETED_MAX: usize = 1000;
/// The link of the cluster itself.
const LOCAL: &str = "Local";

/// Name of a collection: scope and name.
pub(crate) type CollectionName = (String, String);

/// The service.
pub struct Engine {
    /// The node that it belongs to.
    pub node: Arc<Node>,
    folder: PathBuf,
    /// The processes that share the documents.
    pub(crate) fleet: Fleet,
    pub(crate) catalog: Mutex<Catalog>,
    pub(crate) followers: Mutex<BTreeMap<CollectionName, Arc<Follower>>>,
    /// The parts of other processes that this one follows for them.
    pub(crate) adopted: Mutex<BTreeMap<(CollectionName, u16), Adopted>>,
    pub(crate) quota: Arc<Quota>,
    pub(crate) planner: plan::Planner,
    running: Mutex<BTreeMap<u64, Running>>,
    completed: Mutex<Vec<Running>>,
    next_job: AtomicU64,
    /// Requests since the start: all, failed, and answered from rows.
    pub counters: Counters,
}

/// Counts since the start.
#[derive(Debug, Default)]
pub struct Counters {
    /// Requests.
    pub requests: AtomicU64,
    /// Requests that failed.
    pub failures: AtomicU64,
    /// Queries that the evaluator answered document by document.
    pub by_rows: AtomicU64,
}

/// A running or ended request.
#[derive(Clone, Debug)]
pub struct Running {
    /// The job number.
    pub job: u64,
    /// The client's name for it.
    pub client_context_id: Option<String>,
    /// The statements.
    pub statement: String,
    /// The user.
    pub user: String,
    /// Unix time of the start in milliseconds.
    pub began_ms: u128,
    /// The time of the start.
    pub began: Instant,
    /// The duration, if it has ended.
    pub took: Option<Duration>,
    is_cancelled: Arc<AtomicBool>,
}

impl Engine {
    /// Reads the definitions and starts to follow their collections. `folder` contains the catalog, `quota_bytes` is the memory
    /// for documents and queries together, `fleet` are the processes that share the documents.
    ///
    /// # Errors
    /// A message if the catalog cannot be read.
    pub fn open(
        node: Node,
        folder: PathBuf,
        quota_bytes: usize,
        fleet: Fleet,
    ) -> std::result::Result<Engine, String> {
        let catalog = Catalog::read(&folder)?;
        // Documents need about as much memory as their columns; the rest is for queries.
        let quota = Arc::new(Quota::new(quota_bytes / 4));
        let planner =
            plan::Planner::new(quota_bytes / 2, &folder).map_err(|error| error.to_string())?;
        let engine = Engine {
            node: Arc::new(node),
            folder,
            fleet,
            catalog: Mutex::new(catalog),
            followers: Mutex::default(),
            adopted: Mutex::default(),
            quota,
            planner,
            running: Mutex::default(),
            completed: Mutex::default(),
            next_job: AtomicU64::new(1),
            counters: Counters::default(),
        };
        engine.reconcile(&lock(&engine.catalog));
        Ok(engine)
    }

    /// Returns true if this process has all documents.
    pub fn is_alone(&self) -> bool {
        self.fleet.is_alone()
    }

    /// Starts and stops followers according to the catalog.
    fn reconcile(&self, catalog: &Catalog) {
        let mut followers = lock(&self.followers);
        followers.retain(|(scope, name), follower| {
            let defined = catalog.scopes.get(scope).and_then(|scope| scope.collections.get(name));
            let is_kept = defined.is_some_and(|defined| defined.keyspace() == follower.keyspace);
            if !is_kept {
                follower.close();
            }
            is_kept
        });
        for (scope, name, collection) in catalog.collections() {
            let is_disconnected = catalog.scopes[scope].is_disconnected;
            let key = (scope.clone(), name.clone());
            match followers.get(&key) {
                None if is_disconnected => {}
                None => {
                    let (node, quota) = (Arc::clone(&self.node), Arc::clone(&self.quota));
                    let condition = collection.condition.clone();
                    let part = self.fleet.own_part();
                    followers.insert(
                        key,
                        Follower::start(collection.keyspace(), part, condition, node, quota),
                    );
                }
                Some(follower) => match (is_disconnected, follower.state() == LinkState::Stopped) {
                    (true, false) => follower.disconnect(),
                    (false, true) => follower.connect(),
                    _ => {}
                },
            }
        }
    }

    /// Answers a request. Blocks; sends the answer to `pieces`.
    pub fn answer(&self, request: Result<Request>, caller: &Caller, pieces: Sender<Piece>) {
        self.counters.requests.fetch_add(1, Ordering::Relaxed);
        let request_id = uuid_text();
        let context_id =
            request.as_ref().ok().and_then(|request| request.client_context_id.clone());
        let client = pieces.clone();
        let mut answer = Answer::new(pieces, &request_id, context_id.as_deref());
        let outcome = request.and_then(|request| {
            let running = self.begin(&request, caller)?;
            let patience = Patience {
                deadline: Instant::now() + request.timeout,
                is_cancelled: Arc::clone(&running.is_cancelled),
                client: Some(client),
            };
            let outcome = self.carry_out(&request, caller, &patience, &mut answer);
            self.finish(&running);
            outcome
        });
        if let Err(error) = &outcome {
            self.counters.failures.fetch_add(1, Ordering::Relaxed);
            tracing::debug!(%error, "a request has failed");
        }
        answer.end(outcome);
    }

    fn begin(&self, request: &Request, caller: &Caller) -> Result<Running> {
        let mut all = lock(&self.running);
        if all.len() >= RUNNING_MAX {
            let message =
                format!("Job requirement exceeds the queue, which is full with {RUNNING_MAX} jobs");
            return Err(Error::new(23007, message));
        }
        let job = self.next_job.fetch_add(1, Ordering::Relaxed);
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let running = Running {
            job,
            client_context_id: request.client_context_id.clone(),
            statement: request.statement.clone(),
            user: caller.user(),
            began_ms: since.as_millis(),
            began: Instant::now(),
            took: None,
            is_cancelled: Arc::default(),
        };
        all.insert(job, running.clone());
        Ok(running)
    }

    fn finish(&self, running: &Running) {
        lock(&self.running).remove(&running.job);
        let mut completed = lock(&self.completed);
        if completed.len() >= COMPLETED_MAX {
            completed.remove(0);
        }
        completed.push(Running { took: Some(running.began.elapsed()), ..running.clone() });
    }

    /// Returns the running or the ended requests.
    pub fn requests(&self, are_running: bool) -> Vec<Running> {
        match are_running {
            true => lock(&self.running).values().cloned().collect(),
            false => lock(&self.completed).clone(),
        }
    }

    /// Cancels the requests with the given client context ID. Returns false if there are none.
    pub fn cancel(&self, client_context_id: &str) -> bool {
        let all = lock(&self.running);
        let named =
            |running: &&Running| running.client_context_id.as_deref() == Some(client_context_id);
        let found: Vec<_> = all.values().filter(named).collect();
        found.iter().for_each(|running| running.is_cancelled.store(true, Ordering::Relaxed));
        !found.is_empty()
    }

    fn carry_out(
        &self,
        request: &Request,
        caller: &Caller,
        patience: &Patience,
        answer: &mut Answer,
    ) -> Result<()> {
        // A stranger learns nothing, not even whether a statement has an error.
        self.node.permissions(caller, &[LOGGED_IN.to_owned()])?;
        let statements = parse_all(&request.statement)?;
        let mut scope = request.scope.clone();
        let (last, before) = statements.split_last().expect("there is a statement");
        for statement in before {
            match statement {
                Statement::Query(_) => {
                    return Err(Error::new(
                        21003,
                        "Only the last statement of a request can be a query.",
                    ));
                }
                Statement::Use(name) => scope.clone_from(name),
                other => self.define(other, &scope, request, caller)?,
            }
        }
        match last {
            Statement::Query(text) => self.query(text, &scope, request, caller, patience, answer),
            other => {
                self.define(other, &scope, request, caller)?;
                answer.run();
                Ok(())
            }
        }
    }

    fn query(
        &self,
        text: &str,
        scope: &str,
        request: &Request,
        caller: &Caller,
        patience: &Patience,
        answer: &mut Answer,
    ) -> Result<()> {
        let (is_explained, mut select) = match parse_analytics(text)? {
            Sql::Select(select) => (false, select),
            Sql::Explain(inner) => match *inner {
                Sql::Select(select) => (true, select),
                _ => return Err(Error::new(24001, "Only queries can be explained.")),
            },
            _ => return Err(Error::new(24001, "This statement is not supported by analytics.")),
        };
        let catalog = lock(&self.catalog).clone();
        let mut resolver = Resolver::new(&catalog, scope, text);
        resolver.select(&mut select)?;
        let used = std::mem::take(&mut resolver.used);
        self.require_reads(&catalog, &used, caller)?;
        let settings = Settings {
            positional: request.positional.clone(),
            named: request.named.clone(),
            ..self.settings()
        };
        let asked = Asked { text, catalog: &catalog, request, settings, patience };
        if !self.fleet.is_alone() && !used.is_empty() {
            return self.query_processes(&asked, select, &used, is_explained, answer);
        }
        let snapshots = self.snapshots(&used, request, patience)?;
        answer.processed = snapshots.values().map(|snapshot| snapshot.row_count() as u64).sum();
        if is_explained {
            let planned = self.planner.plan(&select, &snapshots, &asked.settings);
            answer.run();
            return answer.row(&plan::explain(&planned));
        }
        self.query_snapshots(&asked, select, &snapshots, answer)
    }

    /// Returns the settings of queries, without parameters.
    pub(crate) fn settings(&self) -> Settings {
        Settings {
            readonly: true,
            memory_quota: self.planner.memory_bytes(),
            ..Settings::default()
        }
    }

    /// Runs a query over snapshots.
    pub(crate) fn query_snapshots(
        &self,
        asked: &Asked<'_>,
        select: Box<Select>,
        snapshots: &Snapshots,
        answer: &mut Answer,
    ) -> Result<()> {
        let Asked { text, settings, patience, .. } = asked;
        let planned = self.planner.plan(&select, snapshots, settings)?;
        answer.run();
        if let plan::Outcome::Columns(query) = planned {
            match self.planner.run(query, patience, &mut |row| answer.row(&row)) {
                // After an error of the engine, the slower way still answers.
                Err(error) if error.code == error::INTERNAL && answer.row_count() == 0 => {
                    tracing::warn!(%error, statement = text, "a plan over columns has failed");
                }
                outcome => return outcome,
            }
        }
        self.counters.by_rows.fetch_add(1, Ordering::Relaxed);
        let settings = settings.clone();
        rows::run(*select, settings, snapshots, patience, &mut |row| answer.row(&row))
    }

    /// Returns snapshots of collections, as fresh as the request requires.
    fn snapshots(
        &self,
        used: &BTreeSet<CollectionName>,
        request: &Request,
        patience: &Patience,
    ) -> Result<Snapshots> {
        let mut snapshots = Snapshots::new();
        for name in used {
            let follower = lock(&self.followers).get(name).cloned();
            let Some(follower) = follower else {
                snapshots.insert(name.clone(), Default::default());
                continue;
            };
            if request.is_consistent {
                self.wait(&follower, request, patience)?;
            }
            snapshots.insert(name.clone(), follower.shadow().snapshot());
        }
        Ok(snapshots)
    }

    fn wait(&self, follower: &Follower, request: &Request, patience: &Patience) -> Result<()> {
        let limit = request.scan_wait.map(|wait| Instant::now() + wait);
        let deadline = limit.map_or(patience.deadline, |limit| limit.min(patience.deadline));
        match follower.catch_up(deadline) {
            Ok(true) => Ok(()),
            Ok(false) => Err(Error::timeout()),
            Err(reason) => Err(Error::new(
                22001,
                format!(
                    "Connect link failed {{\"Default.Local.{}\": \"{reason}\"}}",
                    follower.keyspace.bucket
                ),
            )),
        }
    }

    /// Refuses a user without the right to read one of these collections.
    fn require_reads(
        &self,
        catalog: &Catalog,
        used: &BTreeSet<CollectionName>,
        caller: &Caller,
    ) -> Result<()> {
        let permission = |(scope, name): &CollectionName| {
            let [bucket, scope, collection] = &catalog.scopes[scope].collections[name].source;
            format!("cluster.collection[{bucket}:{scope}:{collection}].analytics!select")
        };
        let wanted: Vec<String> = used.iter().map(permission).collect();
        self.require(&wanted, caller)
    }

    /// Refuses a user without one of these permissions.
    ///
    /// # Errors
    /// Codes 20000 and 20001.
    pub fn require(&self, wanted: &[String], caller: &Caller) -> Result<()> {
        let asked = if wanted.is_empty() { &[LOGGED_IN.to_owned()][..] } else { wanted };
        let granted = self.node.permissions(caller, asked)?;
        match wanted.iter().find(|permission| granted.get(*permission) != Some(&true)) {
            Some(lacking) => Err(Error::forbidden(lacking)),
            None => Ok(()),
        }
    }

    fn define(
        &self,
        statement: &Statement,
        scope: &str,
        request: &Request,
        caller: &Caller,
    ) -> Result<()> {
        if !statement.is_definition() {
            return Ok(());
        }
        if request.is_readonly {
            return Err(Error::new(
                24122,
                "The request is read-only and cannot accept this statement.",
            ));
        }
        let mut catalog = lock(&self.catalog);
        let permission = manage_permission(statement, scope, &catalog);
        self.require(&[permission], caller)?;
        let mut changed = catalog.clone();
        self.apply(&mut changed, statement, scope)?;
        if changed != *catalog {
            self.announce(&changed)?;
            self.replace(&mut catalog, changed)?;
        }
        Ok(())
    }

    /// Replaces the catalog.
    fn replace(&self, catalog: &mut Catalog, changed: Catalog) -> Result<()> {
        changed.write(&self.folder)?;
        self.reconcile(&changed);
        *catalog = changed;
        Ok(())
    }

    /// Replaces the catalog by that of another process.
    ///
    /// # Errors
    /// Code 25000 with the error of the disk.
    pub(crate) fn accept(&self, changed: Catalog) -> Result<()> {
        self.replace(&mut lock(&self.catalog), changed)
    }

    fn apply(&self, catalog: &mut Catalog, statement: &Statement, scope: &str) -> Result<()> {
        let scope_of = |name: &Qualified| name.scope.clone().unwrap_or_else(|| scope.to_owned());
        match statement {
            Statement::CreateScope { name, if_not_exists } => {
                match catalog.scopes.contains_key(name) {
                    true if *if_not_exists => Ok(()),
                    true => Err(Error::new(
                        24039,
                        format!("An analytics scope with this name {name} already exists."),
                    )),
                    false => {
                        catalog.scopes.insert(name.clone(), Scope::default());
                        Ok(())
                    }
                }
            }
            Statement::DropScope { name, if_exists } => match catalog.scopes.contains_key(name) {
                true if name == DEFAULT_SCOPE => {
                    Err(Error::new(24001, "Cannot drop the analytics scope Default."))
                }
                true => {
                    catalog.scopes.remove(name);
                    Ok(())
                }
                false if *if_exists => Ok(()),
                false => Err(catalog::no_scope(name)),
            },
            Statement::CreateCollection { name, source, link, condition, if_not_exists } => {
                if link.as_deref().is_some_and(|link| link != LOCAL) {
                    let link = link.as_deref().unwrap_or_default();
                    return Err(Error::new(24006, format!("Link {scope}.{link} does not exist")));
                }
                let source = self.source(source)?;
                let name =
                    name.clone().unwrap_or(Qualified { scope: None, name: source[0].clone() });
                if let Some(condition) = condition {
                    Condition::parse(condition)?;
                }
                let scope = scope_of(&name);
                let collection =
                    Collection { source, condition: condition.clone(), indexes: BTreeMap::new() };
                add_collection(catalog, &scope, &name.name, collection, *if_not_exists)
            }
            Statement::DropCollection { name, if_exists } => {
                let scope = scope_of(name);
                let removed = match catalog.scope_mut(&scope) {
                    Ok(found) => found.collections.remove(&name.name),
                    Err(_) if *if_exists => return Ok(()),
                    Err(error) => return Err(error),
                };
                match removed {
                    None if !if_exists => Err(catalog::no_collection(&scope, &name.name)),
                    _ => Ok(()),
                }
            }
            Statement::Enable { source, enable } => self.enable(catalog, source, *enable),
            Statement::CreateSynonym { name, target, if_not_exists } => {
                let (own, target_scope) = (scope_of(name), scope_of(target));
                let found = catalog.scope_mut(&own)?;
                if found.synonyms.contains_key(&name.name)
                    || found.collections.contains_key(&name.name)
                {
                    return match if_not_exists {
                        true => Ok(()),
                        false => Err(Error::new(
                            24040,
                            format!("A synonym with name {name} already exists"),
                        )),
                    };
                }
                found.synonyms.insert(name.name.clone(), (target_scope, target.name.clone()));
                Ok(())
            }
            Statement::DropSynonym { name, if_exists } => {
                let scope = scope_of(name);
                match catalog.scope_mut(&scope)?.synonyms.remove(&name.name) {
                    None if !if_exists => Err(catalog::no_collection(&scope, &name.name)),
                    _ => Ok(()),
                }
            }
            Statement::CreateIndex { name, collection, fields, is_array, if_not_exists } => {
                let found = catalog.collection_mut(scope, collection)?;
                if found.indexes.contains_key(name) {
                    return match if_not_exists {
                        true => Ok(()),
                        false => Err(Error::new(
                            24048,
                            format!("An index with this name {name} already exists."),
                        )),
                    };
                }
                let fields = fields.iter().map(|field| (field.path.clone(), field.kind.clone()));
                let index = Index { fields: fields.collect(), is_array: *is_array };
                found.indexes.insert(name.clone(), index);
                Ok(())
            }
            Statement::DropIndex { collection, name, if_exists } => {
                match catalog.collection_mut(scope, collection)?.indexes.remove(name) {
                    None if !if_exists => {
                        Err(Error::new(24047, format!("Cannot find index with name {name}")))
                    }
                    _ => Ok(()),
                }
            }
            Statement::Link { links, connect } => {
                for link in links {
                    let scope = scope_of(link);
                    let found = catalog.scope_mut(&scope)?;
                    if link.name != LOCAL {
                        return Err(Error::new(
                            24006,
                            format!("Link {scope}.{} does not exist", link.name),
                        ));
                    }
                    found.is_disconnected = !connect;
                }
                Ok(())
            }
            Statement::Query(_) | Statement::Use(_) | Statement::Set { .. } => Ok(()),
        }
    }

    fn enable(&self, catalog: &mut Catalog, source: &[String], enable: bool) -> Result<()> {
        let source = self.source_of(source)?;
        let [bucket, source_scope, name] = source.clone();
        let scope = format!("{bucket}/{source_scope}");
        let is_default = source_scope == "_default" && name == "_default";
        if !enable {
            let removed = catalog.scope_mut(&scope)?.collections.remove(&name);
            if is_default && let Ok(default) = catalog.scope_mut(DEFAULT_SCOPE) {
                default.synonyms.remove(&bucket);
            }
            return removed.map(drop).ok_or_else(|| catalog::no_collection(&scope, &name));
        }
        let source = self.source(&source)?;
        catalog.scopes.entry(scope.clone()).or_default();
        let collection = Collection { source, condition: None, indexes: BTreeMap::new() };
        add_collection(catalog, &scope, &name, collection, false)?;
        if is_default {
            let default = catalog.scope_mut(DEFAULT_SCOPE)?;
            default.synonyms.entry(bucket).or_insert((scope, name));
        }
        Ok(())
    }

    /// Returns the bucket, scope and collection that a definition names.
    fn source_of(&self, path: &[String]) -> Result<[String; 3]> {
        match path {
            [bucket] => Ok([bucket.clone(), "_default".into(), "_default".into()]),
            [bucket, scope, collection] => Ok([bucket.clone(), scope.clone(), collection.clone()]),
            _ => Err(Error::syntax(format!(
                "Syntax error: {} is neither a bucket nor a collection",
                path.join(".")
            ))),
        }
    }

    /// Like `source_of`, for a collection that must exist.
    fn source(&self, path: &[String]) -> Result<[String; 3]> {
        let source = self.source_of(path)?;
        let [bucket, scope, collection] = &source;
        let no_bucket = |error: nacre_client::Error| match &error {
            nacre_client::Error::Refused { .. } => {
                Error::new(24003, format!("Bucket ({bucket}) does not exist"))
            }
            _ => {
                Error::new(23000, format!("Analytics Service is temporarily unavailable: {error}"))
            }
        };
        let mut connection = self.node.connect(bucket).map_err(no_bucket)?;
        connection.collection_id(&format!("{scope}.{collection}")).map_err(|_| {
            Error::new(24025, format!("Collection {bucket}.{scope}.{collection} does not exist"))
        })?;
        Ok(source)
    }

    /// Returns scopes and names of all collections, with their followers.
    pub fn followers(&self) -> Vec<(CollectionName, Arc<Follower>)> {
        lock(&self.followers)
            .iter()
            .map(|(name, follower)| (name.clone(), Arc::clone(follower)))
            .collect()
    }
}

fn add_collection(
    catalog: &mut Catalog,
    scope: &str,
    name: &str,
    collection: Collection,
    if_not_exists: bool,
) -> Result<()> {
    let found = catalog.scope_mut(scope)?;
    if found.collections.contains_key(name) || found.synonyms.contains_key(name) {
        return match if_not_exists {
            true => Ok(()),
            false => Err(Error::new(
                24040,
                format!(
                    "An analytics collection with this name {name} already exists in analytics scope {scope}"
                ),
            )),
        };
    }
    found.collections.insert(name.to_owned(), collection);
    Ok(())
}

/// Returns the permission that a definition needs: on its bucket, or on all of analytics.
fn manage_permission(statement: &Statement, scope: &str, catalog: &Catalog) -> String {
    let of = |bucket: &str| format!("cluster.bucket[{bucket}].analytics!manage");
    let of_collection = |name: &Qualified| {
        let scope = name.scope.as_deref().unwrap_or(scope);
        let found = catalog.scopes.get(scope).and_then(|scope| scope.collections.get(&name.name));
        found.map(|collection| of(&collection.source[0]))
    };
    let bucket = match statement {
        Statement::CreateCollection { source, .. } | Statement::Enable { source, .. } => {
            source.first().map(|bucket| of(bucket))
        }
        Statement::DropCollection { name, .. } => of_collection(name),
        Statement::CreateIndex { collection, .. } | Statement::DropIndex { collection, .. } => {
            of_collection(collection)
        }
        _ => None,
    };
    bucket.unwrap_or_else(|| "cluster.analytics!manage".to_owned())
}

/// Returns a random ID in the form that clients expect.
fn uuid_text() -> String {
    let hex = format!("{:032x}", rand::random::<u128>());
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}
