//! The registry: every service of this server, one row each.
//!
//! A service is a crate of its own that implements [`Service`]; its row here is all that the server knows of it.

use crate::process_usage;
use nacre_analytics_service::Analytics;
use nacre_backup_service::Backup;
use nacre_console::Console;
use nacre_node::service::{self, Service, ServiceTable};
use nacre_xdcr_service::Xdcr;
use std::sync::{Arc, LazyLock};

/// Returns the services of a node.
pub fn all() -> Vec<Arc<dyn Service>> {
    let mut services = service::shipped();
    services.push(Arc::new(Console::new(process_usage::read)));
    services.push(Arc::<nacre_search_service::Search>::default());
    services.push(Arc::<Xdcr>::default());
    services.push(Arc::<Analytics>::default());
    services.push(Arc::<Backup>::default());
    services
}

/// Returns the same as data.
pub fn table() -> &'static ServiceTable {
    static TABLE: LazyLock<ServiceTable> = LazyLock::new(|| ServiceTable::of(&all()));
    &TABLE
}
