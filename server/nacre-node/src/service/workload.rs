//! Deployments that a service wants, as data. The plugins service runs them.

use nacre_cluster::Source;
use nacre_state::StateForm;

/// A deployment that a service wants for a bucket, of a component that comes with the binary.
///
/// Its state is rebuilt from history when anything changes that it depends on: `identity`, `config`, the IDs of its
/// collections, `state_version`. The old state answers until the new one has caught up.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// Name of the deployment, unique on the node. It contains a space, which names of users' deployments cannot
    /// contain.
    pub name: String,
    /// Name of the component.
    pub component: &'static str,
    /// Version of the format of its state, as declared by the component.
    pub state_version: &'static str,
    /// The form of its state.
    pub form: StateForm,
    /// Distinguishes the workload from an earlier one of the same name: letters, digits and hyphens.
    pub identity: String,
    /// Documents that the deployment reads.
    pub source: Source,
    /// Configuration of the component.
    pub config: String,
    /// True if the deployment is paused and takes no documents.
    pub paused: bool,
}
