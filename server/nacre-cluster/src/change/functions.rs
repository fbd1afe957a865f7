//! A change of functions that react to changes of documents.

use crate::{
    Cluster, FunctionDefinition, FunctionId, FunctionKeyspace, FunctionState, Refusal, Since,
};
use serde::{Deserialize, Serialize};

/// A change of functions that react to changes of documents.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FunctionChange {
    /// A new or changed function.
    PutFunction {
        /// The name, as text.
        id: String,
        /// 32 hexadecimal digits, for one that is new.
        uuid: String,
        /// A number, for one that is new.
        number: u32,
        /// The definition.
        definition: Box<FunctionDefinition>,
    },
    /// The end of a function.
    DropFunction {
        /// The name, as text.
        id: String,
    },
    /// A function that is deployed or paused begins again with a new state.
    RestartFunction {
        /// The name, as text.
        id: String,
        /// Where it begins to read.
        since: Since,
    },
    /// A function acts with the rights of another user from now on.
    SetFunctionOwner {
        /// The name, as text.
        id: String,
        /// The user.
        owner: String,
    },
    /// A function is deployed, paused, resumed or undeployed.
    SetFunctionState {
        /// The name, as text.
        id: String,
        /// New state.
        state: FunctionState,
        /// When, in milliseconds since the Unix epoch.
        unix_ms: u64,
    },
    /// True if functions may wake each other in a circle.
    AllowFunctionRecursion {
        /// True if they may.
        allowed: bool,
    },
}

impl FunctionChange {
    pub(crate) fn apply(&self, cluster: &mut Cluster) -> Result<(), Refusal> {
        match self {
            // Checked again when it is deployed, as keyspaces may be dropped meanwhile.
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

/// Checks that everything that a function names is there.
fn check_keyspaces(cluster: &Cluster, definition: &FunctionDefinition) -> Result<(), Refusal> {
    let bound = definition.buckets.iter().map(|binding| &binding.keyspace);
    for keyspace in [&definition.source, &definition.metadata].into_iter().chain(bound) {
        let FunctionKeyspace { bucket, .. } = keyspace;
        cluster.bucket(bucket)?.manifest.collections(keyspace.scope(), keyspace.collection())?;
    }
    Ok(())
}
