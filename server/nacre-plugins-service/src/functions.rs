//! Runs functions: turns the agreed state of a function into a deployment of the component that runs it.

use super::following::OTHERS_PATIENCE_NS;
use super::kind::{Functions, WorkloadKind};
use super::rights::{self, Need};
use super::shipped::{EVENTING, QUERY, TYPESCRIPT};
use super::spec::{Spec, numbers};
use super::{Deployment, Progress, Runtime};
use crate::NodePlugins;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use nacre_auth::Privilege;
use nacre_bucket::{Next, Signal, Task};
use nacre_cluster::{
    Bucket, Change, Function, FunctionChange, FunctionDefinition, FunctionId, FunctionKeyspace,
    FunctionState, Language, Program, Source, UrlAuth, UrlBinding,
};
use nacre_node::Node;
use nacre_node::Platform;
use nacre_sandbox::{
    Error, Grants, KeyspaceGrant, Limits, Partition, Report, Setup, Status, TypeScript, validate,
};
use nacre_state::Timer;
use nacre_types::NodeId;
use serde_json::{Value, json};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// The timer that makes the component call `OnDeploy`, once per deployment and resumption.
const LAUNCH: &str = ":launch";

/// Payload of that timer on a node other than the one that calls `OnDeploy`.
const SKIPPED: &[u8] = b"skipped";

/// Time after its deadline at which a handler is stopped by stopping the whole engine, for code that the engine cannot
/// interrupt.
const GRACE: Duration = Duration::from_secs(1);

/// Maximum timeout of a handler, in seconds. While a handler runs, the function does nothing else, and a node that
/// pauses it or takes over a vBucket waits for it.
pub const TIMEOUT_S_MAX: u32 = 60;

// After this wait, the next node of a vBucket calls handlers for the same documents, so the handlers here must have
// ended by then.
const _: () =
    assert!(TIMEOUT_S_MAX as u64 * 1_000_000_000 + (GRACE.as_nanos() as u64) < OTHERS_PATIENCE_NS);

/// Returns the timeout of a handler. The limit also applies to definitions that are older than the limit.
fn timeout(definition: &FunctionDefinition) -> Duration {
    Duration::from_secs(definition.timeout_s.min(TIMEOUT_S_MAX).into())
}

/// Returns the timeout of `OnDeploy`: the setting `on_deploy_timeout`, but at most the timeout of handlers.
fn launch_timeout(definition: &FunctionDefinition) -> Duration {
    let settings: Value = serde_json::from_str(&definition.settings).unwrap_or_default();
    let own = settings["on_deploy_timeout"].as_u64().map(Duration::from_secs);
    own.unwrap_or(Duration::MAX).min(timeout(definition))
}

/// Returns true if aliases throw for missing documents, as in versions of Couchbase before 6.5. The setting
/// `language_compatibility` names the version.
fn missing_throws(definition: &FunctionDefinition) -> bool {
    let settings: Value = serde_json::from_str(&definition.settings).unwrap_or_default();
    let version = settings["language_compatibility"].as_str().unwrap_or_default();
    let parts: Option<Vec<u32>> = version.split('.').map(|part| part.parse().ok()).collect();
    parts.is_some_and(|parts| parts[..] < [6, 5][..])
}

/// Returns true if this node is the one that calls `OnDeploy`.
pub(super) fn leads(bucket: &Bucket, me: NodeId) -> bool {
    bucket.chains.first().is_some_and(|chain| chain.active() == Some(me))
}

/// Returns the name of the deployment of function `id`. No bucket can have such a name, so it differs from the names of
/// design documents.
pub fn deployment_name(id: &FunctionId) -> String {
    format!("eventing:{id}")
}

/// The status of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FunctionStatus {
    /// Does not run.
    Undeployed,
    /// Is about to run.
    Deploying,
    /// Runs.
    Deployed,
    /// Is ending.
    Undeploying,
    /// Is stopping for a pause.
    Pausing,
    /// Is paused.
    Paused,
}

/// Returns the status of function `id` on this node, with the deployment that runs it, if any.
pub fn status(
    node: &Node,
    id: &FunctionId,
    function: &Function,
) -> (FunctionStatus, Option<Arc<Deployment>>) {
    let deployment = node.plugins().deployment(&deployment_name(id));
    let progress = deployment.as_ref().map(|deployment| deployment.progress());
    let status = match (function.state, progress) {
        (FunctionState::Undeployed, None) => FunctionStatus::Undeployed,
        (FunctionState::Undeployed, Some(_)) => FunctionStatus::Undeploying,
        (FunctionState::Paused, Some(Progress::Running)) => FunctionStatus::Pausing,
        (FunctionState::Paused, _) => FunctionStatus::Paused,
        (FunctionState::Deployed, Some(Progress::Running)) => FunctionStatus::Deployed,
        (FunctionState::Deployed, Some(Progress::Paused | Progress::Damaged(_))) => {
            FunctionStatus::Paused
        }
        (FunctionState::Deployed, _) => FunctionStatus::Deploying,
    };
    (status, deployment)
}

/// Creates the program from the code by removing the types from TypeScript. Takes seconds the first time.
///
/// # Errors
/// The error in the code, for its author, with line and column.
pub fn prepare(node: &Node, definition: &mut FunctionDefinition) -> Result<(), String> {
    definition.program = None;
    let is_typescript = |name: &str| name.ends_with(".ts");
    let main_is = definition.language == Language::TypeScript;
    if !main_is && !definition.modules.keys().any(|name| is_typescript(name)) {
        return Ok(());
    }
    let typescript = TypeScript::open(node.plugins().components.load_shipped(node, &TYPESCRIPT)?)?;
    let code = match main_is {
        true => typescript.strip(&definition.code)?,
        false => definition.code.clone(),
    };
    let module = |(name, text): (&String, &String)| {
        let text = match is_typescript(name) {
            true => typescript.strip(text).map_err(|reason| format!("{name}: {reason}"))?,
            false => text.clone(),
        };
        Ok((name.clone(), text))
    };
    let modules = definition.modules.iter().map(module).collect::<Result<_, String>>()?;
    definition.program = Some(Program { code, modules });
    Ok(())
}

/// Code with queries contains at least one of these words: names of calls, and first words of embedded statements.
const QUERY_WORDS: [&str; 17] = [
    "ALTER",
    "BUILD",
    "CREATE",
    "DELETE",
    "DROP",
    "EXECUTE",
    "EXPLAIN",
    "INFER",
    "INSERT",
    "MERGE",
    "N1QL",
    "N1qlQuery",
    "PREPARE",
    "SELECT",
    "UPDATE",
    "UPSERT",
    "WITH",
];

/// Returns true if the code of a function may send queries. A false positive only loads the query service in vain.
pub(super) fn queries(definition: &FunctionDefinition) -> bool {
    let FunctionDefinition { code, modules, headers, footers, .. } = definition;
    let mut texts = modules.values().chain([code]).chain(headers).chain(footers);
    texts.any(|text| asks_queries(text))
}

fn asks_queries(code: &str) -> bool {
    let mut words = code.split(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '$');
    words.any(|word| QUERY_WORDS.iter().any(|known| word.eq_ignore_ascii_case(known)))
}

/// Checks that a definition can run: compiles its code. Takes seconds the first time.
///
/// # Errors
/// The error in the code, for its author.
pub fn check(node: &Node, id: &FunctionId, definition: &FunctionDefinition) -> Result<(), String> {
    let Runtime { plugin, .. } = node.plugins().components.get_or_load(node, &EVENTING)?;
    if queries(definition)
        && let Err(reason) = node.plugins().components.load_shipped(node, &QUERY)
    {
        // The function still runs; its queries report the error.
        tracing::warn!("function {id}: the query service cannot run: {reason}");
    }
    let config = config(id, "check", definition, json!({}), json!({}));
    let budgets = node.memory().budgets().clone();
    let setup = Setup { runs_script: true, budgets, ..Setup::new(&id.name, config) };
    validate(&plugin, setup).map_err(|error| match error {
        Error::Config { message, .. } => message,
        other => other.to_string(),
    })
}

/// Returns the rights that the owner of a function needs.
pub fn needs(definition: &FunctionDefinition) -> Vec<Need> {
    rights::needs(&source(definition), &grants(definition))
}

/// Returns why a function is held, if its owner lacks a right.
pub fn held(node: &Node, definition: &FunctionDefinition) -> Option<String> {
    let bypass = Some(Privilege::AdministerEventing);
    rights::hold(&node.users(), &definition.owner, &needs(definition), bypass)
}

/// Returns the documents that a function listens to.
fn source(definition: &FunctionDefinition) -> Source {
    Source {
        bucket: definition.source.bucket.clone(),
        scope: definition.source.scope().map(str::to_owned),
        collection: definition.source.collection().map(str::to_owned),
    }
}

/// Returns the deployment of a function.
pub(super) fn spec(id: &FunctionId, function: &Function, bucket: &Bucket) -> Spec {
    let definition = &function.definition;
    let source = source(definition);
    let found = numbers(&bucket.manifest, &source);
    let numbers = found.clone().unwrap_or_else(|_| "none".into());
    let Function { uuid, deployments, launches, delay_ms, .. } = function;
    let reason = if *launches == 1 || *delay_ms == 0 { "deploy" } else { "resume" };
    let launch = json!({"number": launches, "reason": reason, "delay_ms": delay_ms});
    let space =
        format!("functions/{id}/{uuid}-{deployments}/{}-{}/{numbers}", bucket.uuid, bucket.flushes);
    let found = found.map(|_| source.clone());
    Spec {
        since: definition.since,
        config: config(id, uuid, definition, collections(bucket, &source), launch),
        limits: Limits {
            deadline: timeout(definition),
            grace: GRACE,
            // A function continues, however many documents its handlers fail on.
            errors_max: u32::MAX,
            ..Limits::default()
        },
        grants: grants(definition),
        owner: definition.owner.clone(),
        paused: function.state == FunctionState::Paused,
        old: definition.old_documents,
        ..Spec::new(&Functions, deployment_name(id), EVENTING, found, space)
    }
}

/// Returns the names of the collections of a source, by ID.
fn collections(bucket: &Bucket, source: &Source) -> Value {
    let scopes = bucket.manifest.scopes.iter();
    let scopes =
        scopes.filter(|scope| source.scope.as_ref().is_none_or(|wanted| *wanted == scope.name));
    let named = scopes.flat_map(|scope| {
        let collections = scope.collections.iter().filter(|collection| {
            source.collection.as_ref().is_none_or(|wanted| *wanted == collection.name)
        });
        collections.map(|collection| {
            let name = format!("{}.{}", scope.name, collection.name);
            (collection.id.to_string(), Value::from(name))
        })
    });
    Value::Object(named.collect())
}

/// Returns the configuration of the component.
fn config(
    id: &FunctionId,
    uuid: &str,
    definition: &FunctionDefinition,
    collections: Value,
    launch: Value,
) -> String {
    let FunctionKeyspace { bucket, scope, collection } = &definition.source;
    let buckets = definition.buckets.iter().map(|binding| {
        let keyspace = &binding.keyspace;
        let other = (keyspace.bucket != *bucket).then_some(&keyspace.bucket);
        json!({
            "alias": binding.alias,
            "bucket": other,
            "scope": keyspace.scope,
            "collection": keyspace.collection,
            "writes": binding.writes,
        })
    });
    let urls = definition.urls.iter().map(|binding| {
        json!({
            "alias": binding.alias,
            "url": binding.url,
            "authorization": authorization(&binding.auth),
            "digest": login(&binding.auth),
            "cookies": binding.allow_cookies,
        })
    });
    let constants = definition
        .constants
        .iter()
        .map(|binding| json!({"alias": binding.alias, "literal": binding.literal}));
    let (code, modules) = match &definition.program {
        Some(program) => (&program.code, &program.modules),
        None => (&definition.code, &definition.modules),
    };
    let mut config = json!({
        "name": id.name,
        "id": uuid,
        "source": code,
        "modules": modules,
        "headers": definition.headers,
        "footers": definition.footers,
        "filter": definition.filter,
        "keyspace": {"bucket": bucket, "scope": scope, "collection": collection},
        "collections": collections,
        "buckets": buckets.collect::<Vec<_>>(),
        "urls": urls.collect::<Vec<_>>(),
        "constants": constants.collect::<Vec<_>>(),
        "timer_context_bytes": definition.timer_context_bytes,
        "timeout_ms": timeout(definition).as_millis() as u64,
        "launch_timeout_ms": launch_timeout(definition).as_millis() as u64,
        "query_consistency": if definition.fresh_queries { "request" } else { "none" },
    });
    if missing_throws(definition) {
        config["missing_throws"] = true.into();
    }
    if launch.get("number").is_some() {
        config["launch"] = launch;
    }
    config.to_string()
}

/// Returns the `Authorization` header of a function's requests; empty if there is none.
fn authorization(auth: &UrlAuth) -> String {
    match auth {
        UrlAuth::Basic { user, password } => {
            format!("Basic {}", BASE64_STANDARD.encode(format!("{user}:{password}")))
        }
        UrlAuth::Bearer { key } => format!("Bearer {key}"),
        UrlAuth::None | UrlAuth::Digest { .. } => String::new(),
    }
}

/// Returns the credentials for digest authentication.
fn login(auth: &UrlAuth) -> Value {
    match auth {
        UrlAuth::Digest { user, password } => json!({"user": user, "password": password}),
        UrlAuth::None | UrlAuth::Basic { .. } | UrlAuth::Bearer { .. } => Value::Null,
    }
}

/// Returns the grants of a function: exactly its bindings.
fn grants(definition: &FunctionDefinition) -> Grants {
    let own = &definition.source.bucket;
    let grant = |binding: &nacre_cluster::BucketBinding| {
        let FunctionKeyspace { bucket, scope, collection } = &binding.keyspace;
        let path = format!("{scope}.{collection}");
        let keyspace = if bucket == own { path } else { format!("{bucket}.{path}") };
        KeyspaceGrant { keyspace, write: binding.writes }
    };
    Grants {
        kv: definition.buckets.iter().map(grant).collect(),
        http_out: definition.urls.iter().filter_map(host).collect(),
        query: true,
        ..Grants::own()
    }
}

/// Returns host and port of a URL, as in grants.
fn host(binding: &UrlBinding) -> Option<String> {
    let (_, rest) = binding.url.split_once("://")?;
    let host = rest.split(['/', '?', '#']).next()?;
    (!host.is_empty() && !host.contains('@')).then(|| host.to_ascii_lowercase())
}

/// Makes the component call `OnDeploy` before anything else.
pub(super) fn launch(partition: &mut Partition, leads: bool) -> Result<(), Error> {
    let payload = if leads { Vec::new() } else { SKIPPED.to_vec() };
    partition.set_timer(LAUNCH, Timer { due_us: 0, payload })
}

/// Returns true if `OnDeploy` has thrown or timed out.
pub(super) fn launch_failed(spec: &Spec, status: &Status, report: &Report) -> bool {
    if spec.kind.name() != Functions.name() {
        return false;
    }
    let failures = status.metrics.get("on_deploy_failure").copied().unwrap_or_default();
    failures > 0.0 || report.dead_timers.iter().any(|dead| dead.name == LAUNCH)
}

/// Undeploys a function whose `OnDeploy` has failed.
pub(super) fn undeploy(platform: &dyn Platform, deployment: &Deployment) {
    let Some(node) = deployment.node.upgrade() else { return };
    let cluster = node.cluster();
    let mut all = cluster.functions.iter();
    let Some((id, function)) = all.find(|(id, _)| deployment_name(id) == deployment.name) else {
        return;
    };
    tracing::warn!("function {id} is undeployed: its OnDeploy has failed");
    let (launches, node) = (function.launches, Weak::clone(&deployment.node));
    platform.spawn(Box::new(Undeploying { node, id, launches, signal: Signal::default() }));
}

/// Undeploys a function on a separate thread: the change waits for other nodes and stops the feed that requested it.
struct Undeploying {
    node: Weak<Node>,
    id: FunctionId,
    /// The number of the failed launch.
    launches: u64,
    signal: Signal,
}

/// Pause before a failed change is retried.
const UNDEPLOY_PAUSE: Duration = Duration::from_secs(1);

impl Task for Undeploying {
    fn name(&self) -> &'static str {
        "undeploy"
    }

    fn is_background(&self) -> bool {
        false
    }

    fn is_vital(&self) -> bool {
        false
    }

    fn step(&mut self) -> Next {
        let Some(node) = self.node.upgrade() else { return Next::Done };
        let cluster = node.cluster();
        let is_same = cluster.functions.get(&self.id).is_ok_and(|function| {
            function.launches == self.launches && function.state != FunctionState::Undeployed
        });
        if !is_same {
            return Next::Done;
        }
        let (id, state) = (self.id.to_string(), FunctionState::Undeployed);
        let unix_ms = node.now().unix_ns / 1_000_000;
        match node.change(&Change::Functions(FunctionChange::SetFunctionState {
            id,
            state,
            unix_ms,
        })) {
            Ok(_) => Next::Done,
            Err(_) => Next::After(UNDEPLOY_PAUSE),
        }
    }

    fn signal(&self) -> &Signal {
        &self.signal
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_with_statements_asks_queries() {
        for code in [
            "for (const row of SELECT name FROM hotels WHERE city = $city;) log(row);",
            "var rows = select 1;",
            "if (doc.n)\n  DELETE FROM hotels USE KEYS $key;",
            "upsert into hotels values (\"a\", 1);",
            "const rows = N1QL(text, {});",
            "new N1qlQuery(text).execQuery();",
        ] {
            assert!(asks_queries(code), "{code}");
        }
        for code in
            ["function OnUpdate(doc, meta) { dst[meta.id] = doc; }", "selected = doc.inserts;"]
        {
            assert!(!asks_queries(code), "{code}");
        }
    }
}
