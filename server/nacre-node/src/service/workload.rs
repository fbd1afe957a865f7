//! Deployments that a service wants, as data: the service of deployments runs them.

use nacre_cluster::Source;
use nacre_state::StateForm;

/// A deployment that a service wants of a bucket, of a component that comes with the binary.
///
/// Its state is made again from history when anything changes that it depends on: `identity`, `config`, the numbers of its collections,
/// `state_version`. The state before answers until the new one has caught up.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// Name of the deployment: unique among all of the node, so it has a space, which names of others do not have.
    pub name: String,
    /// Name of the component.
    pub component: &'static str,
    /// Version of the format of its state, as the component describes it.
    pub state_version: &'static str,
    /// The form of its state.
    pub form: StateForm,
    /// Distinguishes the workload from an earlier one of the same name: letters, digits and hyphens.
    pub identity: String,
    /// Documents that it reads.
    pub source: Source,
    /// Configuration of the component.
    pub config: String,
    /// True if it takes no documents for now.
    pub paused: bool,
}
