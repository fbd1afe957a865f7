//! Loads the components that deployments need, on a separate thread because compiling one takes seconds.

use super::Runtime;
use super::reconcile::remove_known_leftovers;
use super::spec::Code;
use crate::NodePlugins;
use nacre_bucket::{Next, Signal, Task};
use nacre_node::Node;
use std::sync::{Arc, Weak};

pub(crate) struct Loader {
    node: Weak<Node>,
    signal: Signal,
    /// Version of the users as of the last check of the owners' rights.
    users_version: u64,
    /// True once the states of removed deployments have been removed.
    has_cleaned: bool,
}

impl Loader {
    pub fn new(node: &Arc<Node>) -> Loader {
        let signal = node.plugins().components.signal().clone();
        let users_version = node.users_version();
        Loader { node: Arc::downgrade(node), signal, users_version, has_cleaned: false }
    }

    /// Returns true if users have changed, so that deployments may have to be held or released. A change of users does not
    /// wait for that, because a running handler would delay it.
    fn has_other_users(&mut self, node: &Node) -> bool {
        let version = node.users_version();
        version != std::mem::replace(&mut self.users_version, version)
    }
}

impl Task for Loader {
    fn name(&self) -> &'static str {
        "plugins"
    }

    fn is_background(&self) -> bool {
        true
    }

    fn is_vital(&self) -> bool {
        false
    }

    fn step(&mut self) -> Next {
        let Some(node) = self.node.upgrade() else { return Next::Done };
        if node.plugins().is_stopped() {
            return Next::Done;
        }
        // Must happen before any deployment starts, so that no new state is mistaken for a leftover.
        if !std::mem::replace(&mut self.has_cleaned, true) {
            remove_known_leftovers(&node);
        }
        if self.has_other_users(&node) {
            node.plugins().redeploy_all(&node);
            return Next::Again;
        }
        let Some(code) = node.plugins().next_to_load(&node) else { return Next::Wait };
        let loaded = load(&node, &code);
        if let Err(reason) = &loaded {
            tracing::error!("the plugin {code} cannot run: {reason}");
        }
        node.plugins().install(&node, code, loaded);
        Next::Again
    }

    fn signal(&self) -> &Signal {
        &self.signal
    }
}

pub(super) fn load(node: &Node, code: &Code) -> Result<Runtime, String> {
    match code {
        Code::Shipped(name) => {
            let component = node.platform.shipped_plugin(name)?;
            let key = nacre_sandbox::digest(component);
            Runtime::new(node.platform.load_plugin(name, &key, component)?)
        }
        Code::Uploaded(digest) => {
            let package = super::packages::read(node, digest)?;
            let plugin = super::packages::load(node, &package)?;
            Ok(Runtime { plugin, state_version: package.manifest.state_version.clone() })
        }
    }
}
