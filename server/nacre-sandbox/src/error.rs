//! Errors of plugins, grouped by who must act.

use crate::{Exceeded, World};
use std::time::Duration;

/// The reason why an operation with a plugin failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The engine could not start; the operator must give the process more address space.
    #[error("the WebAssembly engine could not start: {0}")]
    Engine(String),
    /// The bytes are not a component with a supported world. The author of the plugin must act.
    #[error("not a plugin: {0}")]
    Component(String),
    /// The component is too large for the compiler. The author of the plugin must act.
    #[error("{what} {found}, more than {limit}")]
    Size {
        /// The measured quantity.
        what: &'static str,
        /// Its value.
        found: u64,
        /// The limit.
        limit: u64,
    },
    /// The plugin has a different world than needed. The deployer must act.
    #[error("plugin {plugin:?} is of the world {is}, not {world}")]
    World {
        /// The name given at load.
        plugin: String,
        /// World of the plugin.
        is: World,
        /// Required world.
        world: World,
    },
    /// A capsule cannot be replayed, or not with this plugin.
    #[error("cannot be replayed: {0}")]
    Capsule(String),
    /// The component imports a capability that is not granted. The author or the deployer must act.
    #[error("plugin {plugin:?} imports {import:?}, which is not granted")]
    Import {
        /// The name given at load.
        plugin: String,
        /// The name of the import in the component.
        import: String,
    },
    /// The artefact was made by another version of the host, or is damaged: compile the component again.
    #[error("the compiled plugin does not fit this host: {0}")]
    Artefact(String),
    /// The plugin refused its configuration. The author of the configuration must act.
    #[error("{deployment}: {message}")]
    Config {
        /// The deployment.
        deployment: String,
        /// Message of the plugin.
        message: String,
    },
    /// A call took longer than the deadline. The author of the plugin or its user code must act.
    #[error("{deployment}: took longer than {} ms", .after.as_millis())]
    Deadline {
        /// The deployment.
        deployment: String,
        /// The deadline.
        after: Duration,
    },
    /// A call needed more memory than its limit.
    #[error("{deployment}: needs more than {limit_bytes} bytes of memory")]
    Memory {
        /// The deployment.
        deployment: String,
        /// The limit.
        limit_bytes: usize,
    },
    /// The node has no memory for the call, or the user has reached the user's share of it. Try again when other calls
    /// have ended.
    #[error("{deployment}: {exceeded}")]
    NodeMemory {
        /// The deployment.
        deployment: String,
        /// The exceeded limit.
        exceeded: Exceeded,
    },
    /// The state would exceed the node's memory for states. The operator must give the node more memory, or remove
    /// states.
    #[error(
        "{deployment}: the state needs more than the {limit_bytes} bytes that this node has for it: start the node with more --memory, or remove what takes it"
    )]
    NodeState {
        /// The deployment.
        deployment: String,
        /// The maximum size that it could have.
        limit_bytes: usize,
    },
    /// The state would exceed its limit. The operator must raise the limit.
    #[error("{deployment}: the state needs more than {limit_bytes} bytes")]
    State {
        /// The deployment.
        deployment: String,
        /// The limit.
        limit_bytes: usize,
    },
    /// The result exceeded its limit. The user must request less.
    #[error("{deployment}: a result of {bytes} bytes, more than {limit_bytes}")]
    Result {
        /// The deployment.
        deployment: String,
        /// Size of the result.
        bytes: usize,
        /// The limit.
        limit_bytes: usize,
    },
    /// The instance crashed. The author of the plugin must act.
    #[error("{deployment}: {reason}")]
    Trap {
        /// The deployment.
        deployment: String,
        /// Message of the engine, and the last error line of the plugin.
        reason: String,
    },
    /// The plugin asked for a later repetition of the call.
    #[error("{deployment}: {message}")]
    Retry {
        /// The deployment.
        deployment: String,
        /// Message of the plugin.
        message: String,
    },
    /// The plugin refused a request. The user must act.
    #[error("{deployment}: {message}")]
    Reject {
        /// The deployment.
        deployment: String,
        /// Message of the plugin.
        message: String,
    },
    /// The plugin cannot continue with its state: the state must be rebuilt.
    #[error("{deployment}: {message}")]
    Fatal {
        /// The deployment.
        deployment: String,
        /// Message of the plugin.
        message: String,
    },
    /// The storage failed. The operator must act; after a failed commit the partition is stopped.
    #[error("{deployment}: storage: {message}")]
    Storage {
        /// The deployment.
        deployment: String,
        /// Message of the storage.
        message: String,
    },
    /// The partition is stopped, now or by an earlier call. The reason states who must act. Opening the partition again
    /// restarts it.
    #[error("{deployment} is stopped: {reason}")]
    Stopped {
        /// The deployment.
        deployment: String,
        /// The reason.
        reason: String,
    },
    /// Temporary: all instances of the process are in use, or the partition was interrupted
    /// ([`crate::Partition::interrupt_when`]). Try again, or assign fewer deployments to this node.
    #[error("{deployment}: {message}")]
    Busy {
        /// The deployment.
        deployment: String,
        /// Message of the engine.
        message: String,
    },
}

impl Error {
    /// Returns true if the same call may succeed later without intervention.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Error::Retry { .. } | Error::Busy { .. } | Error::NodeMemory { .. })
    }

    /// Returns true if the state has exceeded a limit.
    pub fn is_state_full(&self) -> bool {
        matches!(self, Error::State { .. } | Error::NodeState { .. })
    }

    /// Returns true if the call killed its instance, so its input may be the cause.
    pub(crate) fn is_poison(&self) -> bool {
        matches!(
            self,
            Error::Deadline { .. }
                | Error::Memory { .. }
                | Error::NodeMemory { .. }
                | Error::Trap { .. }
                | Error::Reject { .. }
        )
    }

    /// Returns the error that stops a partition after `count` consecutive documents or timers have killed their
    /// instances; `self` is the error of the last one.
    pub(crate) fn in_a_row(self, count: u32, items: &str) -> Error {
        Error::Stopped {
            deployment: self.deployment().unwrap_or_default().to_owned(),
            reason: format!("{count} {items} in a row killed it, the last with: {}", self.reason()),
        }
    }

    /// Returns the message without the name of the deployment, for contexts that already show it.
    pub(crate) fn reason(&self) -> String {
        if let Error::Stopped { reason, .. } = self {
            return reason.clone();
        }
        let text = self.to_string();
        match self.deployment() {
            Some(name) => text.strip_prefix(&format!("{name}: ")).unwrap_or(&text).to_owned(),
            None => text,
        }
    }

    fn deployment(&self) -> Option<&str> {
        match self {
            Error::Config { deployment, .. }
            | Error::Deadline { deployment, .. }
            | Error::Memory { deployment, .. }
            | Error::NodeMemory { deployment, .. }
            | Error::NodeState { deployment, .. }
            | Error::State { deployment, .. }
            | Error::Result { deployment, .. }
            | Error::Trap { deployment, .. }
            | Error::Retry { deployment, .. }
            | Error::Reject { deployment, .. }
            | Error::Fatal { deployment, .. }
            | Error::Storage { deployment, .. }
            | Error::Stopped { deployment, .. }
            | Error::Busy { deployment, .. } => Some(deployment),
            Error::Engine(_)
            | Error::Component(_)
            | Error::Size { .. }
            | Error::World { .. }
            | Error::Capsule(_)
            | Error::Import { .. }
            | Error::Artefact(_) => None,
        }
    }
}
