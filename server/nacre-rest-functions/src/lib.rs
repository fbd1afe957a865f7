//! Functions that react to changes of documents, on a port of their own. Paths, bodies and names of errors are those of
//! Couchbase's Eventing.
//!
//! ```text
//! GET, POST         /api/v1/functions
//! GET, POST, DELETE /api/v1/functions/{name}
//! POST              /api/v1/functions/{name}/deploy|undeploy|pause|resume
//! POST              /api/v1/functions/{name}/resume?from=now|everything      replaces a damaged state with a new one
//! GET, POST         /api/v1/functions/{name}/settings|config|appcode
//! POST              /api/v1/functions/{name}/dryrun|replay
//! GET               /api/v1/status[/{name}], /api/v1/stats, /api/v1/list/functions, /api/v1/export
//! POST              /api/v1/import
//! GET, POST         /api/v1/config
//! GET               /getAppLog, /getExecutionStats, /getFailureStats, /getLatencyStats, /resetStatsCounters   ?name=
//! GET               /getInsight, /getAnnotations, /getUserInfo, /_prometheusMetrics
//! GET, POST         /startDebugger, /stopDebugger, /getDebuggerUrl   ?name=      refused: there is no debugger
//! ```
//!
//! `?bucket=&scope=` names the scope of a function.

mod error;
mod form;
mod inspection;
mod neighbours;
mod query_writes;
mod stats;
mod trial;

use error::Kind;
use form::Written;
use hyper::StatusCode;
use nacre_auth::{Keyspace, Privilege};
use nacre_cluster::{
    Change, Cluster, Function, FunctionChange, FunctionDefinition, FunctionId, FunctionState, Since,
};
use nacre_http::body::{Reply, blocking, not_found, ok, reply};
use nacre_http::{Access, Table};
use nacre_plugins_service::{NodePlugins, Progress, functions, rights};
use nacre_rest::Call;
use nacre_rest::routes::{self, Handler, READ, Route, any, delete, get, post, ready};
use nacre_sandbox::Status;
use serde_json::{Value, json};
use std::sync::Arc;

/// Default size of a log in an answer, in bytes.
const LOG_BYTES: usize = 40 << 10;

const FUNCTIONS: &str = "/api/v1/functions";
const FUNCTION: &str = "/api/v1/functions/{name}";
const SETTINGS: &str = "/api/v1/functions/{name}/settings";
const CONFIG: &str = "/api/v1/functions/{name}/config";
const CODE: &str = "/api/v1/functions/{name}/appcode";
const ADMINISTER: Access = Access::Cluster(Privilege::AdministerEventing);

/// Returns the routes for functions.
pub fn table() -> Table<Handler> {
    Table::new([ROUTES, inspection::ROUTES, neighbours::ROUTES])
}

/// The required privilege depends on the scope of a function, which the query string or the body names.
const ROUTES: &[Route] = &[
    get(FUNCTIONS, Access::Handler, |call| ready(functions(&call))),
    post(FUNCTIONS, Access::Handler, |call| Box::pin(import(call))),
    get("/api/v1/export", Access::Handler, |call| ready(functions(&call))),
    post("/api/v1/import", Access::Handler, |call| Box::pin(import(call))),
    get(FUNCTION, Access::Handler, |call| ready(show(&call))),
    post(FUNCTION, Access::Handler, |call| Box::pin(replace(call))),
    routes::put(FUNCTION, Access::Handler, |call| Box::pin(replace(call))),
    delete(FUNCTION, Access::Handler, |call| Box::pin(remove(call))),
    post("/api/v1/functions/{name}/deploy", Access::Handler, |call| {
        Box::pin(go_to(call, FunctionState::Deployed))
    }),
    post("/api/v1/functions/{name}/pause", Access::Handler, |call| {
        Box::pin(go_to(call, FunctionState::Paused))
    }),
    post("/api/v1/functions/{name}/undeploy", Access::Handler, |call| {
        Box::pin(go_to(call, FunctionState::Undeployed))
    }),
    post("/api/v1/functions/{name}/resume", Access::Handler, |call| Box::pin(resume(call))),
    post("/api/v1/functions/{name}/dryrun", Access::Handler, |call| {
        Box::pin(async move { trial::dry_run(&call, &managed(&call)?).await })
    }),
    post("/api/v1/functions/{name}/replay", Access::Handler, |call| {
        Box::pin(async move { trial::replay(&call, &managed(&call)?).await })
    }),
    get(SETTINGS, Access::Handler, |call| Box::pin(part_of(call, "settings"))),
    post(SETTINGS, Access::Handler, |call| Box::pin(part_of(call, "settings"))),
    routes::put(SETTINGS, Access::Handler, |call| Box::pin(part_of(call, "settings"))),
    get(CONFIG, Access::Handler, |call| Box::pin(part_of(call, "config"))),
    post(CONFIG, Access::Handler, |call| Box::pin(part_of(call, "config"))),
    routes::put(CONFIG, Access::Handler, |call| Box::pin(part_of(call, "config"))),
    get(CODE, Access::Handler, |call| Box::pin(part_of(call, "appcode"))),
    post(CODE, Access::Handler, |call| Box::pin(part_of(call, "appcode"))),
    routes::put(CODE, Access::Handler, |call| Box::pin(part_of(call, "appcode"))),
    any("/api/v1/functions/{name}/{rest...}", Access::Handler, |call| {
        ready(managed(&call).and_then(|_| Err(not_found())))
    }),
    get("/api/v1/status", Access::Handler, |call| ready(statuses(&call))),
    get("/api/v1/status/{name}", Access::Handler, |call| ready(status(&call))),
    get("/api/v1/stats", Access::Handler, |call| ready(statistics(&call))),
    get("/api/v1/list/functions", Access::Handler, |call| ready(list(&call))),
    get("/api/v1/config", READ, |call| ready(config(&call))),
    post("/api/v1/config", ADMINISTER, |call| Box::pin(set_config(call))),
    get("/getAppLog", Access::Handler, |call| ready(log(&call))),
    get("/getExecutionStats", Access::Handler, |call| ready(counts(&call, stats::execution))),
    get("/getFailureStats", Access::Handler, |call| ready(counts(&call, stats::failures))),
    get("/getLatencyStats", Access::Handler, |call| ready(counts(&call, stats::latencies))),
    get("/resetStatsCounters", Access::Handler, |call| Box::pin(reset(call))),
    post("/resetStatsCounters", Access::Handler, |call| Box::pin(reset(call))),
];

/// Returns the function that the path names, if the user may manage it.
fn managed(call: &Call) -> Result<FunctionId, Reply> {
    let id = call.function_id(call.segment("name"));
    call.must_manage(&id)?;
    Ok(id)
}

fn show(call: &Call) -> Result<Reply, Reply> {
    let (id, cluster) = (managed(call)?, call.node.cluster());
    Ok(ok(&form::describe(&id, find(&cluster, &id)?)))
}

async fn replace(call: Call) -> Result<Reply, Reply> {
    let id = managed(&call)?;
    let mut all = form::read(&call.body)?;
    match (all.pop(), all.is_empty()) {
        (Some(written), true) => Ok(ok(&put(&call, written, Some(&id)).await?)),
        _ => Err(Kind::Unmarshal.reply("the body is one function")),
    }
}

async fn remove(call: Call) -> Result<Reply, Reply> {
    let id = managed(&call)?;
    call.change_function(Change::Functions(FunctionChange::DropFunction { id: id.to_string() }))
        .await?;
    Ok(ok(&done(&format!("Function: {} deleted", call.segment("name")))))
}

async fn go_to(call: Call, state: FunctionState) -> Result<Reply, Reply> {
    let id = managed(&call)?;
    become_state(&call, &id, state, false).await
}

async fn resume(call: Call) -> Result<Reply, Reply> {
    let id = managed(&call)?;
    match call.parameter("from") {
        Some(from) => restart(&call, &id, &from).await,
        None => become_state(&call, &id, FunctionState::Deployed, true).await,
    }
}

/// The functions that the user of a request may see and change.
trait FunctionAccess {
    /// Returns the ID of the function with that name, in the scope that the query string names.
    fn function_id(&self, name: &str) -> FunctionId;

    /// Returns true if the user has the privilege in the keyspace.
    fn may(&self, privilege: Privilege, keyspace: Keyspace<'_>) -> bool;

    /// Returns true if the user may see and change functions in the scope of `id`.
    fn may_manage(&self, id: &FunctionId) -> bool;

    /// Refuses users who may not see and change functions in the scope of `id`.
    fn must_manage(&self, id: &FunctionId) -> Result<(), Reply>;

    /// Refuses users who may not themselves do everything that the function's bindings allow. Administrators of all
    /// functions may do everything.
    fn must_reach(&self, definition: &FunctionDefinition) -> Result<(), Reply>;

    /// Returns the functions that the user may see.
    fn visible<'c>(&self, cluster: &'c Cluster) -> Vec<(FunctionId, &'c Function)>;

    /// Changes the agreed state. Returns the state after the change.
    async fn change_function(&self, change: Change) -> Result<Arc<Cluster>, Reply>;
}

impl FunctionAccess for Call {
    fn function_id(&self, name: &str) -> FunctionId {
        let named = |parameter: &str| self.parameter(parameter).unwrap_or_default();
        let scope = form::Scope { bucket: named("bucket"), scope: named("scope") };
        FunctionId { scope: scope.named(), name: name.to_owned() }
    }

    fn may(&self, privilege: Privilege, keyspace: Keyspace<'_>) -> bool {
        self.holder(&self.node.users()).is_some_and(|user| user.may(privilege, keyspace))
    }

    fn may_manage(&self, id: &FunctionId) -> bool {
        let (bucket, scope) =
            id.scope.as_ref().map(|(bucket, scope)| (&bucket[..], &scope[..])).unzip();
        self.may(Privilege::ManageFunctions, Keyspace { bucket, scope, collection: None })
    }

    fn must_manage(&self, id: &FunctionId) -> Result<(), Reply> {
        // A slash separates the names of bucket and scope.
        if id.name.contains('/') {
            return Err(Kind::InvalidConfig.reply("the name of a function has no slash"));
        }
        match self.may_manage(id) {
            true => Ok(()),
            false => Err(Kind::Forbidden.reply("the user may not manage functions of this scope")),
        }
    }

    fn must_reach(&self, definition: &FunctionDefinition) -> Result<(), Reply> {
        if self.may(Privilege::AdministerEventing, Keyspace::default()) {
            return Ok(());
        }
        let needs = functions::needs(definition);
        let users = self.node.users();
        let Some(user) = users.get(&self.user) else {
            return Err(Kind::Forbidden.reply("the user is gone"));
        };
        rights::lacking(user, &needs).map_or(Ok(()), |need| {
            let role = need.role();
            Err(Kind::Forbidden.reply(&format!(
                "the user lacks the role {role}: the function would use these documents"
            )))
        })
    }

    fn visible<'c>(&self, cluster: &'c Cluster) -> Vec<(FunctionId, &'c Function)> {
        cluster.functions.iter().filter(|(id, _)| self.may_manage(id)).collect()
    }

    async fn change_function(&self, change: Change) -> Result<Arc<Cluster>, Reply> {
        let node = Arc::clone(&self.node);
        let changed = blocking("the change", move || node.change(&change)).await?;
        changed.map_err(|error| error::failed(&error))
    }
}

fn functions(call: &Call) -> Result<Reply, Reply> {
    let cluster = call.node.cluster();
    let all = call.visible(&cluster);
    Ok(ok(&all.iter().map(|(id, function)| form::describe(id, function)).collect()))
}

async fn import(call: Call) -> Result<Reply, Reply> {
    let mut stored = Vec::new();
    for written in form::read(&call.body)? {
        stored.push(put(&call, written, None).await?);
    }
    Ok(ok(&Value::Array(stored)))
}

/// Returns the reply to a successful change.
fn done(status: &str) -> Value {
    json!({"code": 0, "info": {"status": status, "warnings": []}})
}

fn find<'c>(cluster: &'c Cluster, id: &FunctionId) -> Result<&'c Function, Reply> {
    cluster.functions.get(id).map_err(|refusal| error::refused(&refusal))
}

/// Defines a function, and deploys it if its settings ask for that.
async fn put(call: &Call, written: Written, named: Option<&FunctionId>) -> Result<Value, Reply> {
    let scope = written.function_scope.clone().and_then(|scope| scope.named());
    let mut id = FunctionId { scope, name: written.appname.clone() };
    if let Some(named) = named {
        if named.name != id.name {
            return Err(Kind::NameMismatch.reply("the name in the path is not that in the body"));
        }
        // The scope in the query string takes precedence. Without one, the body names the scope.
        id.scope = named.scope.clone().or(id.scope);
    }
    call.must_manage(&id)?;
    let wanted = form::wanted_state(&written.settings)?;
    let cluster = call.node.cluster();
    let known = cluster.functions.get(&id).ok().map(|known| &known.definition);
    let definition = form::definition(written, known)?;
    store(call, &id, definition).await?;
    // A function that was paused in another cluster has no state to resume in this cluster, so it stays undeployed.
    if wanted == Some(FunctionState::Deployed) {
        become_state(call, &id, FunctionState::Deployed, false).await?;
    }
    Ok(done(&format!("Stored function: {}", id.name)))
}

/// Checks a definition and stores it.
async fn store(
    call: &Call,
    id: &FunctionId,
    mut definition: FunctionDefinition,
) -> Result<(), Reply> {
    call.must_reach(&definition)?;
    definition.owner.clone_from(&call.user);
    definition.query_writes = query_writes::of(id, &definition);
    let put = |definition| {
        Change::Functions(FunctionChange::PutFunction {
            id: id.to_string(),
            uuid: call.node.new_uuid(),
            number: call.node.random() as u32 >> 1,
            definition: Box::new(definition),
        })
    };
    // The validity of the definition is checked before the node tries to run it.
    let change = put(definition.clone());
    (*call.node.cluster()).clone().apply(&change).map_err(|refusal| error::refused(&refusal))?;
    let (node, checked) = (Arc::clone(&call.node), id.clone());
    let definition = blocking("the check", move || {
        functions::prepare(&node, &mut definition)?;
        functions::check(&node, &checked, &definition).map(|()| definition)
    });
    let definition = definition.await?.map_err(|reason| Kind::Compilation.reply(&reason))?;
    call.change_function(put(definition)).await.map(drop)
}

async fn set_state(call: &Call, id: &FunctionId, state: FunctionState) -> Result<(), Reply> {
    let unix_ms = call.node.now().unix_ns / 1_000_000;
    let change =
        Change::Functions(FunctionChange::SetFunctionState { id: id.to_string(), state, unix_ms });
    call.change_function(change).await.map(drop)
}

/// Restarts a function with a damaged state: it gets a new state, and processes changes from now on or all documents
/// again.
async fn restart(call: &Call, id: &FunctionId, from: &str) -> Result<Reply, Reply> {
    let since = match from {
        "now" => Since::Now,
        "everything" => Since::Everything,
        _ => return Err(Kind::InvalidConfig.reply("from is now or everything")),
    };
    call.must_reach(&find(&call.node.cluster(), id)?.definition)?;
    call.change_function(Change::Functions(FunctionChange::RestartFunction {
        id: id.to_string(),
        since,
    }))
    .await?;
    Ok(ok(&done(&format!("Function: {} is resumed from {from}", id.name))))
}

async fn become_state(
    call: &Call,
    id: &FunctionId,
    state: FunctionState,
    resumes: bool,
) -> Result<Reply, Reply> {
    let cluster = call.node.cluster();
    let function = find(&cluster, id)?;
    match (function.state, state) {
        // An undeployed function can be neither paused nor resumed. Clients distinguish the two errors.
        (FunctionState::Undeployed, FunctionState::Paused) => {
            return Err(Kind::NotBootstrapped.reply("the function is not deployed"));
        }
        (FunctionState::Undeployed, FunctionState::Deployed) if resumes => {
            return Err(Kind::NotDeployed.reply("the function is not deployed"));
        }
        _ => {}
    }
    if state == FunctionState::Deployed {
        call.must_reach(&function.definition)?;
        let deployment = call.node.plugins().deployment(&functions::deployment_name(id));
        if function.state != FunctionState::Undeployed
            && let Some(Progress::Damaged(reason)) = deployment.map(|known| known.progress())
        {
            return Err(Kind::Paused.reply(&reason));
        }
    }
    let is_held = state == FunctionState::Deployed
        && functions::held(&call.node, &function.definition).is_some();
    if is_held {
        // The owner has lost a privilege. The user who resumes the function has the privileges, and becomes its owner.
        let owner = call.user.clone();
        call.change_function(Change::Functions(FunctionChange::SetFunctionOwner {
            id: id.to_string(),
            owner,
        }))
        .await?;
    }
    if !is_held || function.state != state {
        set_state(call, id, state).await?;
    }
    let what = match state {
        FunctionState::Deployed if resumes => "resumed",
        FunctionState::Deployed => "deployed",
        FunctionState::Paused => "paused",
        FunctionState::Undeployed => "undeployed",
    };
    Ok(ok(&done(&format!("Function: {} is {what}", id.name))))
}

/// Reads or changes the settings, the configuration or the code of a function.
async fn part_of(call: Call, part: &str) -> Result<Reply, Reply> {
    let (id, call) = (&managed(&call)?, &call);
    let cluster = call.node.cluster();
    let function = find(&cluster, id)?;
    let wrong = |error: serde_json::Error| Kind::Unmarshal.reply(&format!("the body: {error}"));
    let mut definition = function.definition.clone();
    match (call.method.as_str(), part) {
        ("GET", "settings") => return Ok(ok(&form::describe_settings(function))),
        ("GET", "config") => return Ok(ok(&form::describe_config(&definition))),
        ("GET", "appcode") => {
            return Ok(reply(StatusCode::OK, "application/javascript", definition.code));
        }
        ("POST" | "PUT", "settings") => {
            let settings = serde_json::from_slice(&call.body).map_err(wrong)?;
            let wanted = form::wanted_state(&settings)?;
            form::apply_settings(&mut definition, settings)?;
            if definition != function.definition {
                store(call, id, definition).await?;
            }
            if let Some(state) = wanted.filter(|state| *state != function.state) {
                return become_state(call, id, state, false).await;
            }
        }
        ("POST" | "PUT", "config") => {
            let config: form::Config = serde_json::from_slice(&call.body).map_err(wrong)?;
            config.apply(&mut definition)?;
            store(call, id, definition).await?;
        }
        ("POST" | "PUT", "appcode") => {
            definition.code = String::from_utf8(call.body.clone())
                .map_err(|_| Kind::Unmarshal.reply("the code is not UTF-8"))?;
            store(call, id, definition).await?;
        }
        _ => return Err(not_found()),
    }
    Ok(ok(&done(&format!("Function: {} changed", id.name))))
}

fn statuses(call: &Call) -> Result<Reply, Reply> {
    let cluster = call.node.cluster();
    let apps = call.visible(&cluster);
    let apps = apps.iter().map(|(id, function)| stats::status(&call.node, id, function));
    Ok(ok(&json!({"apps": apps.collect::<Vec<_>>(), "num_eventing_nodes": 1})))
}

fn status(call: &Call) -> Result<Reply, Reply> {
    let id = managed(call)?;
    let cluster = call.node.cluster();
    let app = stats::status(&call.node, &id, find(&cluster, &id)?);
    Ok(ok(&json!({"app": app, "num_eventing_nodes": 1})))
}

fn statistics(call: &Call) -> Result<Reply, Reply> {
    let cluster = call.node.cluster();
    let deployed = call.visible(&cluster).into_iter().filter_map(|(id, _)| {
        let deployment = call.node.plugins().deployment(&functions::deployment_name(&id))?;
        Some(stats::all(&id, Some(&deployment)))
    });
    Ok(ok(&deployed.collect()))
}

fn list(call: &Call) -> Result<Reply, Reply> {
    let cluster = call.node.cluster();
    let deployed = call.parameter("deployed");
    let source = call.parameter("source_bucket");
    let names = call.visible(&cluster).into_iter().filter(|(_, function)| {
        let is_deployed = function.state != FunctionState::Undeployed;
        deployed.as_ref().is_none_or(|wanted| (wanted == "true") == is_deployed)
            && source.as_ref().is_none_or(|bucket| *bucket == function.definition.source.bucket)
    });
    Ok(ok(&json!({"functions": names.map(|(id, _)| id.name).collect::<Vec<_>>()})))
}

fn config(call: &Call) -> Result<Reply, Reply> {
    let allowed = call.node.cluster().function_recursion;
    Ok(ok(&json!({"enable_debugger": false, "allow_interbucket_recursion": allowed})))
}

/// Settings that apply to all functions. Omitted members keep their values.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct SettingsChange {
    /// Must be false: nacre has no debugger.
    #[serde(default)]
    enable_debugger: bool,
    allow_interbucket_recursion: Option<bool>,
}

async fn set_config(call: Call) -> Result<Reply, Reply> {
    let wrong = |error: serde_json::Error| Kind::SaveConfig.reply(&format!("the body: {error}"));
    let body: Value = serde_json::from_slice(&call.body)
        .map_err(|error| Kind::Unmarshal.reply(&format!("the body: {error}")))?;
    let wanted: SettingsChange = serde_json::from_value(body).map_err(wrong)?;
    if wanted.enable_debugger {
        return Err(Kind::SaveConfig.reply("enable_debugger is false: there is no debugger"));
    }
    let before = call.node.cluster().function_recursion;
    match wanted.allow_interbucket_recursion.filter(|allowed| *allowed != before) {
        Some(allowed) => {
            call.change_function(Change::Functions(FunctionChange::AllowFunctionRecursion {
                allowed,
            }))
            .await?;
            Ok(ok(&done("changed")))
        }
        None => Ok(ok(&done("unchanged"))),
    }
}

/// Returns the function that the query string names.
fn asked(call: &Call) -> Result<FunctionId, Reply> {
    let name = call.parameter("name").unwrap_or_default();
    let id = call.function_id(&name);
    call.must_manage(&id)?;
    find(&call.node.cluster(), &id)?;
    Ok(id)
}

fn log(call: &Call) -> Result<Reply, Reply> {
    let id = asked(call)?;
    let deployment = call.node.plugins().deployment(&functions::deployment_name(&id));
    let size = call.parameter("size").and_then(|size| size.parse().ok());
    let log = stats::log(deployment.as_deref(), size.unwrap_or(LOG_BYTES));
    Ok(reply(StatusCode::OK, "text/plain; charset=utf-8", log))
}

/// Returns the counters of the function that the query string names, as `describe` formats them.
fn counts(call: &Call, describe: fn(&Status) -> Value) -> Result<Reply, Reply> {
    let id = asked(call)?;
    let deployment = call.node.plugins().deployment(&functions::deployment_name(&id));
    let deployment =
        deployment.ok_or_else(|| Kind::NotDeployed.reply("the function is not deployed"))?;
    Ok(ok(&describe(&deployment.status())))
}

async fn reset(call: Call) -> Result<Reply, Reply> {
    let name = functions::deployment_name(&asked(&call)?);
    let node = Arc::clone(&call.node);
    let reopened = blocking("the reset", move || node.plugins().reopen(&node, &name)).await?;
    match reopened {
        true => Ok(ok(&done("statistics were reset"))),
        false => Err(Kind::NotDeployed.reply("the function is not deployed")),
    }
}
