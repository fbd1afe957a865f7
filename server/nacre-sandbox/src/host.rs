//! The engine, and plugins compiled in it.

use crate::abi::nacre::plugin as abi;
use crate::abi::{Indices, World};
use crate::artefact;
use crate::bulk;
use crate::call::CallView;
use crate::capability::Capability;
use crate::clock::Clock;
use crate::context::{Context, Role};
use crate::instance::{Data, Instance};
use crate::{Error, Setup, size};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use wasmtime::component::{Component, HasSelf, InstancePre, Linker};
use wasmtime::{Config, Engine, InstanceAllocationStrategy, PoolingAllocationConfig};

/// Native stack for Wasm. It is large, so that user code that recurses in an interpreter reaches the interpreter's own
/// limit, which is an error that code can catch, and not a trap.
pub(crate) const WASM_STACK_BYTES: usize = 4 << 20;

/// An interface that every component may import, because it has types but no functions.
const TYPES: &str = "nacre:plugin/types@0.1.0";
/// The interface that services may import without a grant.
const TURN: &str = "nacre:plugin/turn@0.1.0";

/// Numbers of instances that can live at once. Each takes 4 GiB of address space (not of memory), which saves a check
/// for every memory access of a guest; smaller numbers are tried if address space is limited.
const INSTANCE_COUNTS: [u32; 3] = [512, 64, 8];

/// The WebAssembly engine of a process. Clones share it.
#[derive(Clone)]
pub struct Host {
    engine: Engine,
    clock: Arc<Clock>,
}

impl Host {
    /// Starts the engine. `monotonic_ns` is a clock in nanoseconds that measures calls for [`crate::Usage`] and for
    /// pauses. After each failed call, the writer's thread pauses with `pause`, such as [`std::thread::sleep`]: nine
    /// times as long as the call took, but between 10 ms and a quarter of a second, so that a deployment that always
    /// fails leaves the machine to others. A long call calls `on_long_call` on its thread every two milliseconds, because
    /// other work may wait for the thread.
    ///
    /// # Errors
    /// [`Error::Engine`] when the process has too little address space.
    pub fn new(
        monotonic_ns: impl Fn() -> u64 + Send + Sync + 'static,
        pause: impl Fn(Duration) + Send + Sync + 'static,
        on_long_call: impl Fn() + Send + Sync + 'static,
    ) -> Result<Host, Error> {
        let mut last = None;
        for instance_count in INSTANCE_COUNTS {
            match Engine::new(&config(instance_count)) {
                Ok(engine) => {
                    let clock = Arc::new(Clock::new(monotonic_ns, pause, on_long_call));
                    return Ok(Host { engine, clock });
                }
                Err(error) => last = Some(Error::Engine(format!("{error:#}"))),
            }
        }
        Err(last.expect("there is at least one size to try"))
    }

    /// Advances the deadline clock by the milliseconds that have passed. Must be called about every millisecond, from
    /// any thread. After a longer gap only two milliseconds count, because during the gap other threads had the
    /// processors, and calls could not run either.
    ///
    /// Returns true if ticking must continue. If false, no plugin has been called for a tenth of a second, and the
    /// ticking thread may wait in [`Host::await_call`].
    pub fn tick(&self) -> bool {
        for _ in 0..self.clock.tick() {
            self.engine.increment_epoch();
        }
        !self.clock.is_idle()
    }

    /// Blocks the ticking thread until a plugin is called.
    pub fn await_call(&self) {
        self.clock.await_call();
    }

    /// Returns the name of this engine. An artefact loads only in an engine with the same name as the one that compiled
    /// it.
    pub fn fingerprint(&self) -> String {
        let mut hasher = DefaultHasher::new();
        self.engine.precompile_compatibility_hash().hash(&mut hasher);
        bulk::REVISION.hash(&mut hasher);
        format!("{}-{:016x}", env!("CARGO_PKG_VERSION"), hasher.finish())
    }

    /// Compiles a component to an artefact for [`Host::load`]. Takes seconds of CPU time, and cannot be interrupted: a
    /// component that would take minutes is refused in advance.
    ///
    /// # Errors
    /// [`Error::Component`] when the bytes are not a component, [`Error::Size`] when it is too large.
    pub fn compile(&self, component: &[u8]) -> Result<Vec<u8>, Error> {
        size::check_bytes(component)?;
        check_kind(component)?;
        size::check(component)?;
        let shortened = bulk::shorten(component);
        let code = self
            .engine
            .precompile_component(shortened.as_deref().unwrap_or(component))
            .map_err(|error| Error::Component(format!("{error:#}")))?;
        Ok(artefact::seal(component, &code))
    }

    /// Loads an artefact of [`Host::compile`] as the plugin `name`.
    ///
    /// # Safety
    /// The bytes are run as machine code: they must come from [`Host::compile`] and from no other source. (Later damage
    /// is detected.)
    ///
    /// # Errors
    /// [`Error::Artefact`] when another version made it or it is damaged, [`Error::Import`] when it imports interfaces
    /// that its world does not have, [`Error::Component`] when it exports no world.
    pub unsafe fn load(&self, name: &str, artefact: &[u8]) -> Result<Plugin, Error> {
        let (content_hash, code) = artefact::open(artefact)?;
        // SAFETY: the caller guarantees the origin of the bytes.
        let component = unsafe { Component::deserialize(&self.engine, code) }
            .map_err(|error| Error::Artefact(format!("{error:#}")))?;
        let ty = component.component_type();
        let exports: Vec<String> =
            ty.exports(&self.engine).map(|(export, _)| export.to_owned()).collect();
        let takes_turns = ty.imports(&self.engine).any(|(import, _)| import == TURN);
        let imports =
            ty.imports(&self.engine).filter(|(import, _)| ![TYPES, TURN].contains(import));
        let imports = imports
            .map(|(import, _)| {
                let known = |capability: &Capability| capability.interface() == import;
                Capability::ALL
                    .into_iter()
                    .find(known)
                    .ok_or_else(|| Error::Import { plugin: name.into(), import: import.into() })
            })
            .collect::<Result<Vec<Capability>, Error>>()?;
        let world = World::of(&exports)?;
        if let Some(foreign) = imports.iter().find(|import| !world.has(**import)) {
            return Err(Error::Import { plugin: name.into(), import: foreign.interface() });
        }
        if takes_turns && world != World::Service {
            return Err(Error::Import { plugin: name.into(), import: TURN.into() });
        }
        let fits_not = |error: wasmtime::Error| Error::Component(format!("{error:#}"));
        let pre = link(&self.engine, &component, &imports).map_err(fits_not)?;
        let indices = Indices::new(world, &exports, &pre).map_err(fits_not)?;
        Ok(Plugin {
            name: name.into(),
            content_hash: content_hash.into(),
            version: Arc::default(),
            engine: self.engine.clone(),
            clock: Arc::clone(&self.clock),
            component,
            world,
            imports: imports.into(),
            exports: exports.into(),
            indices,
        })
    }
}

fn link(
    engine: &Engine,
    component: &Component,
    capabilities: &[Capability],
) -> wasmtime::Result<InstancePre<Data>> {
    let mut linker = Linker::new(engine);
    abi::types::add_to_linker::<Data, HasSelf<Data>>(&mut linker, |data| data)?;
    abi::turn::add_to_linker::<Data, HasSelf<Data>>(&mut linker, |data| data)?;
    for capability in capabilities {
        capability.link(&mut linker)?;
    }
    linker.instantiate_pre(component)
}

/// A compiled plugin. Clones share it.
#[derive(Clone)]
pub struct Plugin {
    name: Arc<str>,
    content_hash: Arc<str>,
    version: Arc<OnceLock<String>>,
    pub(crate) engine: Engine,
    pub(crate) clock: Arc<Clock>,
    component: Component,
    world: World,
    imports: Arc<[Capability]>,
    exports: Arc<[String]>,
    pub(crate) indices: Indices,
}

impl Plugin {
    /// Returns the name given at load.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the SHA-256 of the component in hexadecimal.
    pub fn content_hash(&self) -> &str {
        &self.content_hash
    }

    /// Returns the world of the plugin.
    pub fn world(&self) -> World {
        self.world
    }

    /// Returns the capabilities that the plugin imports, which must be granted. Unused capabilities of its world are
    /// not included.
    pub fn imports(&self) -> &[Capability] {
        &self.imports
    }

    /// Returns the interfaces that the plugin exports, as named in `plugins/wit`.
    pub fn exports(&self) -> &[String] {
        &self.exports
    }

    /// Returns the plugin's description of itself: a JSON object with at least `name`, `version` and `limits`.
    ///
    /// # Errors
    /// The errors of any call: the plugin may trap or exceed its deadline.
    pub fn describe(&self, limits: crate::Limits) -> Result<String, Error> {
        // All imports are linked, but none may be used before `init`.
        let setup = Setup { limits, runs_script: true, ..Setup::new(self.name(), "") };
        let context = Context::new(self.clone(), setup, self.world)?;
        let mut instance = Instance::start(&context, Role::Reader)?;
        instance.call(CallView::default(), |exports, store| {
            exports.lifecycle.call_describe(store).map(Ok)
        })
    }

    /// Returns the version that the plugin reports; empty if it reports none.
    pub(crate) fn version(&self) -> &str {
        self.version.get_or_init(|| {
            let described = self.describe(crate::Limits::pure()).unwrap_or_default();
            let described: serde_json::Value = serde_json::from_str(&described).unwrap_or_default();
            described["version"].as_str().unwrap_or_default().to_owned()
        })
    }

    /// Returns the component linked with its granted imports only.
    pub(crate) fn link(&self, setup: &Setup) -> Result<InstancePre<Data>, Error> {
        let denied = self.imports.iter().find(|import| !setup.grants.allows(**import));
        if let Some(denied) = denied.filter(|_| !setup.runs_script) {
            return Err(Error::Import {
                plugin: self.name.to_string(),
                import: denied.interface(),
            });
        }
        link(&self.engine, &self.component, &self.imports)
            .map_err(|error| Error::Component(format!("{error:#}")))
    }
}

/// Checks whether `plugin` would run with `setup`, without a partition.
///
/// # Errors
/// [`Error::Import`] when it imports more than is granted, [`Error::Config`] with the plugin's message about its
/// configuration; other errors as for any call.
pub fn validate(plugin: &Plugin, setup: Setup) -> Result<(), Error> {
    let context = Context::new(plugin.clone(), setup, plugin.world())?;
    Instance::configured(&context, Role::Reader).map(drop)
}

/// Recognizes other file types by their first bytes, and names them for the author.
///
/// The first bytes of a component are the magic, a version, and the layer: 0 for a core module, 1 for a component.
/// Source: the binary format of the component model.
fn check_kind(bytes: &[u8]) -> Result<(), Error> {
    let problem = match bytes {
        [0, b'a', b's', b'm', _, _, 0, 0, ..] => {
            "it is a core module; `nacre plugin build` makes a component of one"
        }
        [0, b'a', b's', b'm', ..] => return Ok(()),
        _ => "it is not WebAssembly",
    };
    Err(Error::Component(problem.into()))
}

fn config(instance_count: u32) -> Config {
    let mut pool = PoolingAllocationConfig::new();
    // A component in Python has 38 core instances; one in Rust has three.
    pool.total_component_instances(instance_count)
        .max_core_instances_per_component(64)
        .total_core_instances(instance_count * 8)
        .total_memories(instance_count)
        .total_tables(instance_count * 4)
        .max_memories_per_component(1)
        .max_tables_per_component(64)
        .table_elements(100_000);
    let mut config = Config::new();
    config
        .wasm_component_model(true)
        .epoch_interruption(true)
        .max_wasm_stack(WASM_STACK_BYTES)
        .async_stack_size(WASM_STACK_BYTES + (1 << 20))
        .concurrency_support(false)
        .parallel_compilation(true)
        .allocation_strategy(InstanceAllocationStrategy::Pooling(pool));
    config
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Loads machine code of a component without a world.
    fn load(host: &Host, component: &[u8], code: &[u8]) -> Result<(), Error> {
        // SAFETY: wasmtime has made the code, and checks for which engine before it runs.
        unsafe { host.load("foreign", &artefact::seal(component, code)) }.map(drop)
    }

    /// Code for another version, another processor and other settings is recognised by the same check.
    #[test]
    fn machine_code_of_another_engine_is_not_run() {
        let component = wat::parse_str("(component)").unwrap();
        let host = Host::new(|| 0, |_| {}, || {}).unwrap();
        let foreign = Engine::default().precompile_component(&component).unwrap();
        assert!(matches!(load(&host, &component, &foreign), Err(Error::Artefact(_))));
        // Code of this engine gets further, up to the missing world.
        let own = host.engine.precompile_component(&component).unwrap();
        assert!(matches!(load(&host, &component, &own), Err(Error::Component(_))));
    }
}
