//! A change of packages of plugins, or of their deployments.

use crate::{Cluster, Deployment, Package, Refusal, Since, Source};
use serde::{Deserialize, Serialize};

/// A change of packages of plugins, or of their deployments.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PluginChange {
    /// A new version of a package of a plugin.
    PutPackage {
        /// The name.
        name: String,
        /// The version.
        version: String,
        /// The package.
        package: Package,
    },
    /// The end of a version of a package.
    DropPackage {
        /// The name.
        name: String,
        /// The version.
        version: String,
    },
    /// A new deployment, or another version, configuration or grants for one.
    Deploy {
        /// The name.
        name: String,
        /// The deployment.
        deployment: Deployment,
    },
    /// A deployment stops taking documents, or goes on.
    PauseDeployment {
        /// The name.
        name: String,
        /// True if it stops.
        paused: bool,
    },
    /// A deployment acts with the rights of another user from now on.
    SetDeploymentOwner {
        /// The name.
        name: String,
        /// The user.
        owner: String,
    },
    /// A deployment begins again with a new state.
    ReplayDeployment {
        /// The name.
        name: String,
        /// Where it begins, if that changes: since when, and after which token of changes.
        #[serde(default)]
        begin: Option<(Since, Option<String>)>,
    },
    /// The end of a deployment and its state.
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
