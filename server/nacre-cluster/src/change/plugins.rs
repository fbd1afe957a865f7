//! Changes of plugin packages or of their deployments.

use crate::{Cluster, Deployment, Package, Refusal, Since, Source};
use serde::{Deserialize, Serialize};

/// A change of a plugin package or of a deployment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PluginChange {
    /// Adds a version of a plugin package.
    PutPackage {
        /// The name.
        name: String,
        /// The version.
        version: String,
        /// The package.
        package: Package,
    },
    /// Removes a version of a package.
    DropPackage {
        /// The name.
        name: String,
        /// The version.
        version: String,
    },
    /// Creates a deployment, or changes its version, configuration or grants.
    Deploy {
        /// The name.
        name: String,
        /// The deployment.
        deployment: Deployment,
    },
    /// Pauses or resumes a deployment.
    PauseDeployment {
        /// The name.
        name: String,
        /// True to pause.
        paused: bool,
    },
    /// Sets the user whose privileges a deployment has.
    SetDeploymentOwner {
        /// The name.
        name: String,
        /// The user.
        owner: String,
    },
    /// Restarts a deployment with an empty state.
    ReplayDeployment {
        /// The name.
        name: String,
        /// The new start, if it changes: since when, and after which token of changes.
        #[serde(default)]
        begin: Option<(Since, Option<String>)>,
    },
    /// Removes a deployment and its state.
    Undeploy {
        /// The name.
        name: String,
    },
}

impl PluginChange {
    pub(crate) fn apply(&self, cluster: &mut Cluster) -> Result<(), Refusal> {
        match self {
            PluginChange::PutPackage { name, version, package } => {
                cluster.plugins.put_package(name, version, package)?
            }
            PluginChange::DropPackage { name, version } => {
                cluster.plugins.drop_package(name, version)?
            }
            PluginChange::Deploy { name, deployment } => deploy(cluster, name, deployment)?,
            PluginChange::PauseDeployment { name, paused } => {
                cluster.plugins.set_paused(name, *paused)?
            }
            PluginChange::SetDeploymentOwner { name, owner } => {
                cluster.plugins.set_owner(name, owner)?
            }
            PluginChange::ReplayDeployment { name, begin } => {
                cluster.plugins.replay(name, begin.as_ref())?;
            }
            PluginChange::Undeploy { name } => cluster.plugins.undeploy(name)?,
        }
        Ok(())
    }
}

fn deploy(cluster: &mut Cluster, name: &str, deployment: &Deployment) -> Result<(), Refusal> {
    if let Some(Source { bucket, scope, collection }) = &deployment.source {
        cluster.bucket(bucket)?.manifest.collections(scope.as_deref(), collection.as_deref())?;
    }
    cluster.plugins.deploy(name, deployment)
}
