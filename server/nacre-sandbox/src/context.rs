//! A plugin with its setup: creates instances and collects their results.

use crate::abi::World;
use crate::capability::{LogLine, MetricChanges};
use crate::capsule::{Call, Capsule};
use crate::instance::{Data, Instance};
use crate::journal::Journal;
use crate::profile::Profiler;
use crate::status::keep;
use crate::usage::Usage;
use crate::{Error, Plugin, Setup};
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use wasmtime::component::InstancePre;

/// Maximum number of log lines that are kept per deployment.
pub const LOG_LINES_MAX: usize = 1000;
/// Maximum number of capsules that are kept per deployment.
const CAPSULES_MAX: usize = 4;

/// The role of an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Writer,
    Reader,
}

/// State shared by all instances of a deployment.
pub struct Context {
    pub plugin: Plugin,
    pub setup: Setup,
    pub pre: InstancePre<Data>,
    /// Linear memory of all live instances.
    pub memory: Arc<AtomicUsize>,
    usage: [Mutex<Usage>; 2],
    log: Mutex<VecDeque<LogLine>>,
    metrics: Mutex<BTreeMap<String, f64>>,
    capsules: Mutex<VecDeque<Capsule>>,
    pub profiler: Profiler,
}

impl Context {
    /// Links `plugin`, which must have the world `world`, with the grants of `setup`.
    pub fn new(plugin: Plugin, setup: Setup, world: World) -> Result<Arc<Context>, Error> {
        if plugin.world() != world {
            return Err(Error::World { plugin: plugin.name().into(), is: plugin.world(), world });
        }
        let pre = plugin.link(&setup)?;
        Ok(Arc::new(Context {
            plugin,
            setup,
            pre,
            memory: Arc::default(),
            usage: Default::default(),
            log: Mutex::default(),
            metrics: Mutex::default(),
            capsules: Mutex::default(),
            profiler: Profiler::default(),
        }))
    }

    /// Creates an instance that is ready for calls.
    pub fn instance(self: &Arc<Context>, role: Role) -> Result<Instance, Error> {
        Instance::configured(self, role)
    }

    pub fn memory_bytes(&self) -> usize {
        self.memory.load(Ordering::Relaxed)
    }

    pub fn usage(&self, role: Role) -> Usage {
        *self.usage[role as usize].lock()
    }

    pub fn count(&self, role: Role, elapsed_ns: u64, host_calls: &[u64], failed: bool) {
        self.usage[role as usize].lock().add(elapsed_ns, host_calls, failed);
    }

    pub fn add_log(&self, lines: Vec<LogLine>) {
        if lines.is_empty() {
            return;
        }
        keep(&mut self.log.lock(), lines, LOG_LINES_MAX);
    }

    pub fn log(&self) -> VecDeque<LogLine> {
        self.log.lock().clone()
    }

    pub fn change_metrics(&self, changes: MetricChanges) {
        if !changes.is_empty() {
            changes.apply(&mut self.metrics.lock());
        }
    }

    pub fn metrics(&self) -> BTreeMap<String, f64> {
        self.metrics.lock().clone()
    }

    /// Keeps a capsule of `call`, if the call itself caused its `error`.
    pub fn keep(&self, call: Call, journal: &Journal, error: &Error) {
        let Some(capsule) = Capsule::of(self, call, journal, error) else { return };
        let mut capsules = self.capsules.lock();
        if capsules.len() == CAPSULES_MAX {
            capsules.pop_front();
        }
        capsules.push_back(capsule);
    }

    pub fn take_capsules(&self) -> Vec<Capsule> {
        std::mem::take(&mut *self.capsules.lock()).into()
    }
}
