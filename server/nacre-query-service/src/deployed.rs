//! Functions of plugins: finds their deployments and calls them.

use super::failure::{code, failure};
use nacre_cluster::World;
use nacre_node::Node;
use nacre_plugins_service::{NodePlugins, Pure, PureCaller};
use nacre_sandbox::{Failure, Queries};
use serde_json::value::RawValue;
use std::sync::Arc;
use std::time::Duration;

fn failed(message: impl Into<String>) -> Failure {
    failure(code::FUNCTION_EXECUTION, message)
}

/// Returns the deployment of functions with that name.
pub(super) fn find(node: &Node, name: &str) -> Result<Arc<Pure>, Failure> {
    let cluster = node.cluster();
    match cluster.plugins.deployments.get(name).map(|deployment| deployment.world) {
        None => Err(failed(format!("there is no deployment {name}"))),
        Some(World::Functions) => node.plugins().pure().get(name).ok_or_else(|| {
            let reason = node.plugins().unloadable(node, name);
            failed(reason.unwrap_or_else(|| format!("{name} is not ready yet: try again")))
        }),
        Some(world) => {
            let message =
                format!("the deployment {name} is of the world `{world}`: it has no functions");
            Err(failed(message))
        }
    }
}

/// Calls `function`. Arguments and answer are as described for `call-function` in `plugins/wit`; a missing argument becomes
/// null.
pub(super) fn call(
    caller: &mut PureCaller,
    function: &str,
    arguments: &str,
    queries: Arc<dyn Queries>,
    left: Duration,
) -> Result<String, Failure> {
    let arguments: Vec<Vec<&RawValue>> = serde_json::from_str(arguments)
        .map_err(|error| failure(code::INTERNAL, format!("the arguments: {error}")))?;
    let texts: Vec<&str> =
        arguments.iter().map(|one| one.first().map_or("null", |json| json.get())).collect();
    let arguments = format!("[{}]", texts.join(","));
    let result = caller.call(function, &arguments, queries, left).map_err(failed)?;
    match serde_json::from_str::<&RawValue>(&result) {
        Ok(value) => Ok(format!("{{\"value\":{value}}}")),
        Err(error) => Err(failed(format!("its result is not JSON: {error}"))),
    }
}
