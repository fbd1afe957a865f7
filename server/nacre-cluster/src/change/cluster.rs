//! Changes of the cluster as a whole: its names and settings.

use crate::cluster_settings::change_settings;
use crate::{Cluster, OUTGOING_MAX, OutgoingRule, Refusal, SettingsChange};
use serde::{Deserialize, Serialize};

/// The longest cluster name in bytes; it is part of every cluster map.
const NAME_BYTES_MAX: usize = 256;

/// A change of the cluster's names or settings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ClusterChange {
    /// Renames the cluster.
    NameCluster {
        /// The name.
        name: String,
    },
    /// Records the name of the user who administers the cluster from its creation.
    NameAdministrator {
        /// The name.
        name: String,
    },
    /// Changes a section of the [settings](Cluster::settings).
    ChangeSettings {
        /// The section and its value.
        change: Box<SettingsChange>,
    },
    /// Replaces the list of addresses that functions and plugins may reach over HTTP.
    SetOutgoingHttp {
        /// The whole list.
        allowed: Vec<OutgoingRule>,
    },
}

impl ClusterChange {
    pub(crate) fn apply(&self, cluster: &mut Cluster) -> Result<(), Refusal> {
        match self {
            ClusterChange::NameCluster { name } => rename(cluster, name)?,
            ClusterChange::NameAdministrator { name } => cluster.administrator.clone_from(name),
            ClusterChange::ChangeSettings { change } => change_settings(cluster, change)?,
            ClusterChange::SetOutgoingHttp { allowed } => {
                if allowed.len() > OUTGOING_MAX {
                    let reason = format!("The list has at most {OUTGOING_MAX} entries");
                    return Err(Refusal::Invalid { field: "allow", reason });
                }
                cluster.outgoing_http.clone_from(allowed);
            }
        }
        Ok(())
    }
}

fn rename(cluster: &mut Cluster, name: &str) -> Result<(), Refusal> {
    if name.len() > NAME_BYTES_MAX {
        let reason = format!("The name cannot exceed {NAME_BYTES_MAX} bytes");
        return Err(Refusal::Invalid { field: "clusterName", reason });
    }
    cluster.name = name.to_owned();
    Ok(())
}
