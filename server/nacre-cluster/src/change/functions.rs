//! Changes of eventing functions.

use crate::{
    Cluster, FunctionDefinition, FunctionId, FunctionKeyspace, FunctionState, Refusal, Since,
};
use serde::{Deserialize, Serialize};

/// A change of an eventing function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FunctionChange {
    /// Creates or changes a function.
    PutFunction {
        /// The [`FunctionId`] as text.
        id: String,
        /// UUID of a new function: 32 hexadecimal digits.
        uuid: String,
        /// Number of a new function.
        number: u32,
        /// The definition.
        definition: Box<FunctionDefinition>,
    },
    /// Removes a function.
    DropFunction {
        /// The [`FunctionId`] as text.
        id: String,
    },
    /// Restarts a deployed or paused function with an empty state.
    RestartFunction {
        /// The [`FunctionId`] as text.
        id: String,
        /// Where the function starts to read.
        since: Since,
    },
    /// Sets the user whose privileges a function has.
    SetFunctionOwner {
        /// The [`FunctionId`] as text.
        id: String,
        /// The user.
        owner: String,
    },
    /// Deploys, pauses, resumes or undeploys a function.
    SetFunctionState {
        /// The [`FunctionId`] as text.
        id: String,
        /// New state.
        state: FunctionState,
        /// The time in milliseconds since the Unix epoch.
        unix_ms: u64,
    },
    /// Allows or forbids that functions trigger each other in a cycle.
    AllowFunctionRecursion {
        /// True if cycles are allowed.
        allowed: bool,
    },
}

impl FunctionChange {
    pub(crate) fn apply(&self, cluster: &mut Cluster) -> Result<(), Refusal> {
        match self {
            // Checked again at deployment, because keyspaces may be dropped in between.
            FunctionChange::PutFunction { id, uuid, number, definition } => {
                if let Some((bucket, scope)) = &FunctionId::of_key(id).scope {
                    cluster.bucket(bucket)?.manifest.collections(Some(scope), None)?;
                }
                check_keyspaces(cluster, definition)?;
                cluster.functions.put(&FunctionId::of_key(id), uuid, *number, definition)?;
            }
            FunctionChange::DropFunction { id } => {
                cluster.functions.drop_function(&FunctionId::of_key(id))?;
            }
            FunctionChange::RestartFunction { id, since } => {
                let id = FunctionId::of_key(id);
                check_keyspaces(cluster, &cluster.functions.get(&id)?.definition)?;
                cluster.functions.restart(&id, *since)?;
            }
            FunctionChange::SetFunctionOwner { id, owner } => {
                cluster.functions.set_owner(&FunctionId::of_key(id), owner)?;
            }
            FunctionChange::SetFunctionState { id, state, unix_ms } => {
                let id = FunctionId::of_key(id);
                if *state == FunctionState::Deployed {
                    check_keyspaces(cluster, &cluster.functions.get(&id)?.definition)?;
                    if !cluster.function_recursion {
                        cluster.functions.check_recursion(&id)?;
                    }
                }
                cluster.functions.set_state(&id, *state, *unix_ms)?;
            }
            FunctionChange::AllowFunctionRecursion { allowed } => {
                cluster.function_recursion = *allowed
            }
        }
        Ok(())
    }
}

/// Checks that all keyspaces of a function exist.
fn check_keyspaces(cluster: &Cluster, definition: &FunctionDefinition) -> Result<(), Refusal> {
    let bound = definition.buckets.iter().map(|binding| &binding.keyspace);
    for keyspace in [&definition.source, &definition.metadata].into_iter().chain(bound) {
        let FunctionKeyspace { bucket, .. } = keyspace;
        cluster.bucket(bucket)?.manifest.collections(keyspace.scope(), keyspace.collection())?;
    }
    Ok(())
}
