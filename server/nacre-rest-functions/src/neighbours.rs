//! Requests of older Couchbase tools about functions: lists by state, and single numbers. All require the privilege to
//! manage the named functions.

use super::error;
use super::{FunctionAccess, asked, managed, stats};
use nacre_http::Access;
use nacre_http::body::{Reply, ok};
use nacre_plugins_service::Deployment;
use nacre_plugins_service::NodePlugins;
use nacre_plugins_service::functions::{self, FunctionStatus};
use nacre_rest::Call;
use nacre_rest::routes::{Route, get, post, ready};
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// `/get…Apps` answer an object with a member for each function. The other paths concern the function that `?name=`
/// names.
pub(crate) const ROUTES: &[Route] = &[
    get("/getDeployedApps", Access::Handler, |call| {
        ready(Ok(apps(&call, |status| status == FunctionStatus::Deployed)))
    }),
    get("/getLocallyDeployedApps", Access::Handler, |call| {
        ready(Ok(apps(&call, |status| status == FunctionStatus::Deployed)))
    }),
    get("/getRunningApps", Access::Handler, |call| {
        let runs = |status| matches!(status, FunctionStatus::Deployed | FunctionStatus::Pausing);
        ready(Ok(apps(&call, runs)))
    }),
    get("/getBootstrappingApps", Access::Handler, |call| {
        ready(Ok(apps(&call, |status| status == FunctionStatus::Deploying)))
    }),
    get("/getPausingApps", Access::Handler, |call| {
        ready(Ok(apps(&call, |status| status == FunctionStatus::Pausing)))
    }),
    get("/getBootstrapStatus", Access::Handler, |call| {
        let all = all(&call);
        let is_any = all.values().any(|status| *status == FunctionStatus::Deploying);
        ready(Ok(ok(&json!(is_any))))
    }),
    get("/getDcpEventsRemaining", Access::Handler, |call| {
        ready(of_one(&call, |deployment| json!(deployment.lag())))
    }),
    get("/getEventProcessingStats", Access::Handler, |call| {
        ready(of_one(&call, |deployment| stats::events(&deployment.status())))
    }),
    get("/getWorkerCount", Access::Handler, |call| {
        // A function has one worker per node, whatever its settings say.
        ready(of_one(&call, |_| json!(1)))
    }),
    get("/getErrorCodes", Access::Login, |_| ready(Ok(ok(&error::all())))),
    post("/api/v1/functions/{name}/retry", Access::Handler, |call| ready(retry(&call))),
    get("/api/v1/backup", Access::Handler, |call| ready(super::functions(&call))),
    post("/api/v1/backup", Access::Handler, |call| Box::pin(super::import(call))),
];

/// Returns the state of each function that the user may see, by name.
fn all(call: &Call) -> std::collections::BTreeMap<String, FunctionStatus> {
    let cluster = call.node.cluster();
    let functions = call.visible(&cluster).into_iter();
    let status = |(id, function): (nacre_cluster::FunctionId, &nacre_cluster::Function)| {
        (id.to_string(), functions::status(&call.node, &id, function).0)
    };
    functions.map(status).collect()
}

/// Lists the functions whose state matches `wanted`. Couchbase's values are times of deployment, which nacre does not
/// store.
fn apps(call: &Call, wanted: fn(FunctionStatus) -> bool) -> Reply {
    let named = all(call).into_iter().filter(|(_, status)| wanted(*status));
    let apps: Map<String, Value> = named.map(|(name, _)| (name, json!(""))).collect();
    ok(&Value::Object(apps))
}

fn deployment(call: &Call) -> Result<Arc<Deployment>, Reply> {
    let id = asked(call)?;
    let deployment = call.node.plugins().deployment(&functions::deployment_name(&id));
    deployment.ok_or_else(|| error::Kind::NotDeployed.reply("the function is not deployed"))
}

fn of_one(call: &Call, describe: fn(&Deployment) -> Value) -> Result<Reply, Reply> {
    Ok(ok(&describe(&*deployment(call)?)))
}

/// Couchbase waits between attempts to start a deployment. nacre keeps trying until the function is undeployed.
fn retry(call: &Call) -> Result<Reply, Reply> {
    let id = managed(call)?;
    super::find(&call.node.cluster(), &id)?;
    let deployment = call.node.plugins().deployment(&functions::deployment_name(&id));
    deployment.ok_or_else(|| error::Kind::NotDeployed.reply("the function is not deployed"))?;
    Ok(ok(&super::done("a deployment is tried until it succeeds")))
}
