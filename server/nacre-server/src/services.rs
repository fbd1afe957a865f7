//! The registry: every service of this server, one row each.
//!
//! A service is a crate of its own that implements [`Service`]; its row here is all that the server knows of it.

use crate::process_usage;
use nacre_analytics_service::Analytics;
use nacre_backup_service::Backup;
use nacre_changes_service::ChangesService;
use nacre_console::Console;
use nacre_node::scatter_gather::NodeService;
use nacre_node::service::{Service, ServiceTable};
use nacre_plugins_service::{DeployedService, Plugins};
use nacre_query_service::Queries;
use nacre_xdcr_service::Xdcr;
use std::sync::{Arc, LazyLock};

/// Returns the services of a node.
pub fn all() -> Vec<Arc<dyn Service>> {
    vec![
        Arc::new(NodeService),
        Arc::new(DeployedService::views()),
        Arc::<Queries>::default(),
        Arc::new(DeployedService::eventing()),
        Arc::new(DeployedService::index()),
        Arc::<ChangesService>::default(),
        Arc::<Plugins>::default(),
        Arc::new(Console::new(process_usage::read)),
        Arc::<nacre_search_service::Search>::default(),
        Arc::<Xdcr>::default(),
        Arc::<Analytics>::default(),
        Arc::<Backup>::default(),
    ]
}

/// Returns the same as data.
pub fn table() -> &'static ServiceTable {
    static TABLE: LazyLock<ServiceTable> = LazyLock::new(|| ServiceTable::of(&all()));
    &TABLE
}
