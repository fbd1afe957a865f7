//! Loaded components. The [`Loader`](super::loader::Loader) loads missing ones.

use super::loader;
use super::spec::Code;
use nacre_bucket::Signal;
use nacre_node::Node;
use nacre_sandbox::{Limits, Plugin, Reader, Setup};
use parking_lot::RwLock;
use std::collections::BTreeMap;

/// A component that is ready to run.
#[derive(Clone)]
pub(crate) struct Runtime {
    pub plugin: Plugin,
    /// The version of its state format: a state of another version is rebuilt.
    pub state_version: String,
}

impl Runtime {
    /// Creates the runtime of a component that describes its state format.
    pub fn new(plugin: Plugin) -> Result<Runtime, String> {
        let description = plugin.describe(Limits::default()).map_err(|error| error.to_string())?;
        let description: serde_json::Value = serde_json::from_str(&description).unwrap_or_default();
        let state_version = description["state_version"]
            .as_str()
            .ok_or("the manifest has no state_version")?
            .to_owned();
        Ok(Runtime { plugin, state_version })
    }
}

/// Loaded components, or the reason why one could not be loaded.
#[derive(Default)]
pub struct Components {
    loaded: RwLock<BTreeMap<Code, Result<Runtime, String>>>,
    /// Wakes the loader.
    wanted: Signal,
}

impl Components {
    /// Returns the outcome of loading a component; `None` before that.
    pub(crate) fn outcome(&self, code: &Code) -> Option<Result<Runtime, String>> {
        self.loaded.read().get(code).cloned()
    }

    /// Returns a component if it is loaded; otherwise its loading begins.
    pub(crate) fn get(&self, code: &Code) -> Result<Runtime, String> {
        self.outcome(code)
            .unwrap_or_else(|| Err(format!("the plugin {code} is not ready yet: try again")))
    }

    /// Returns a component and loads it now if necessary, which takes seconds.
    pub(crate) fn get_or_load(&self, node: &Node, code: &Code) -> Result<Runtime, String> {
        self.get(code).or_else(|_| loader::load(node, code))
    }

    /// Stores the outcome of loading a component.
    pub(crate) fn put(&self, code: Code, outcome: Result<Runtime, String>) {
        self.loaded.write().insert(code, outcome);
    }

    /// Drops the compiled component of a deleted package.
    pub(crate) fn forget(&self, digest: &str) {
        self.loaded.write().remove(&Code::Uploaded(digest.to_owned()));
    }

    /// Returns the first component that has not been loaded yet.
    pub(crate) fn first_missing(&self, mut wanted: impl Iterator<Item = Code>) -> Option<Code> {
        let loaded = self.loaded.read();
        wanted.find(|code| !loaded.contains_key(code))
    }

    /// Returns the signal that wakes the loader.
    pub(crate) fn signal(&self) -> &Signal {
        &self.wanted
    }

    /// Returns a component that comes with the binary. Takes seconds if it is not loaded.
    ///
    /// # Errors
    /// The reason why the component cannot run.
    pub fn load_shipped(&self, node: &Node, code: &Code) -> Result<Plugin, String> {
        let runtime = self.get_or_load(node, code)?;
        let plugin = runtime.plugin.clone();
        self.put(code.clone(), Ok(runtime));
        Ok(plugin)
    }

    /// Checks a configuration of a component that comes with the binary. Takes seconds if the component is not loaded.
    ///
    /// # Errors
    /// The error in the configuration, for its author.
    pub fn validate_shipped(
        &self,
        node: &Node,
        component: &'static str,
        config: String,
    ) -> Result<(), String> {
        let plugin = self.load_shipped(node, &Code::Shipped(component))?;
        validate(node, &plugin, component, config)
    }

    /// Returns a stateless reader of a component that comes with the binary; each request carries its data. Takes seconds
    /// if the component is not loaded.
    ///
    /// # Errors
    /// The reason why the component cannot run.
    pub fn shipped_reader(
        &self,
        node: &Node,
        component: &'static str,
        config: String,
    ) -> Result<Reader, String> {
        let plugin = self.load_shipped(node, &Code::Shipped(component))?;
        let budgets = node.memory().budgets().clone();
        let setup = Setup { budgets, ..Setup::new(component, config) };
        Reader::stateless(plugin, setup).map_err(|error| error.to_string())
    }
}

/// Checks a configuration of a component.
///
/// # Errors
/// The error in the configuration, for its author.
pub(crate) fn validate(
    node: &Node,
    plugin: &Plugin,
    name: &str,
    config: String,
) -> Result<(), String> {
    let budgets = node.memory().budgets().clone();
    let setup = Setup { budgets, ..Setup::new(name, config) };
    nacre_sandbox::validate(plugin, setup).map_err(|error| match error {
        nacre_sandbox::Error::Config { message, .. } => message,
        other => other.to_string(),
    })
}
