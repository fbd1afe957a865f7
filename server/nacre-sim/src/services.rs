//! The services of simulated nodes.

use nacre_changes_service::ChangesService;
use nacre_node::scatter_gather::NodeService;
use nacre_node::service::Service;
use nacre_plugins_service::{DeployedService, Plugins};
use nacre_query_service::Queries;
use std::sync::Arc;

/// Returns the services of each node.
pub fn services() -> Vec<Arc<dyn Service>> {
    vec![
        Arc::new(NodeService),
        Arc::new(DeployedService::views()),
        Arc::<Queries>::default(),
        Arc::new(DeployedService::eventing()),
        Arc::new(DeployedService::index()),
        Arc::<ChangesService>::default(),
        Arc::<Plugins>::default(),
    ]
}
