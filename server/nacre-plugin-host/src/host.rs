//! The engine, and plugins compiled and linked in it.

use crate::abi::{Service, ServicePre};
use crate::instance::{Data, Instance};
use crate::space::View;
use crate::{Error, Limits};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use wasmtime::component::{Component, HasSelf, Linker};
use wasmtime::{Config, Engine, InstanceAllocationStrategy, PoolingAllocationConfig};

/// Native stack for Wasm. Generous, so that user code recursing in an interpreter meets the interpreter's own
/// limit, an error that code can catch, and not a trap.
pub(crate) const WASM_STACK_BYTES: usize = 4 << 20;

/// What a component may import: the interfaces granted to the world `service`, and the types they share.
const GRANTED: [&str; 3] =
    ["nacre:plugin/types@0.1.0", "nacre:plugin/state@0.1.0", "nacre:plugin/log@0.1.0"];

/// How many instances live at once. Each takes 4 GiB of address space (not of memory), which spares every
/// memory access of a guest a check; where address space is rationed, fewer must do.
const INSTANCE_COUNTS: [u32; 3] = [512, 64, 8];

/// The WebAssembly engine of a process. Clones share it.
#[derive(Clone)]
pub struct Host {
    engine: Engine,
    linker: Arc<Linker<Data>>,
}

impl Host {
    /// Starts the engine.
    ///
    /// # Errors
    /// [`Error::Engine`] when the process has too little address space.
    pub fn new() -> Result<Host, Error> {
        let failed = |error: wasmtime::Error| Error::Engine(format!("{error:#}"));
        let mut last = None;
        for instance_count in INSTANCE_COUNTS {
            match Engine::new(&config(instance_count)) {
                Ok(engine) => {
                    let mut linker = Linker::new(&engine);
                    Service::add_to_linker::<_, HasSelf<_>>(&mut linker, |data| data)
                        .map_err(failed)?;
                    return Ok(Host { engine, linker: Arc::new(linker) });
                }
                Err(error) => last = Some(failed(error)),
            }
        }
        Err(last.expect("there is at least one size to try"))
    }

    /// Advances the clock of deadlines; to be called every millisecond, from any thread.
    pub fn tick(&self) {
        self.engine.increment_epoch();
    }

    /// Names this engine: artefacts compiled under one name load under the same name only.
    pub fn fingerprint(&self) -> String {
        let mut hasher = DefaultHasher::new();
        self.engine.precompile_compatibility_hash().hash(&mut hasher);
        format!("{}-{:016x}", env!("CARGO_PKG_VERSION"), hasher.finish())
    }

    /// Compiles a component to an artefact for [`Host::load`]. Takes seconds of CPU time.
    ///
    /// # Errors
    /// [`Error::Component`] when the bytes are no component.
    pub fn compile(&self, component: &[u8]) -> Result<Vec<u8>, Error> {
        self.engine
            .precompile_component(component)
            .map_err(|error| Error::Component(format!("{error:#}")))
    }

    /// Loads an artefact of [`Host::compile`] as the plugin `name`, and links what it is granted.
    ///
    /// # Safety
    /// The bytes are run as machine code: they must come from [`Host::compile`] and from nowhere else.
    ///
    /// # Errors
    /// [`Error::Artefact`] when another version made it, [`Error::Import`] when it wants more than is granted,
    /// [`Error::Component`] when it does not export the world `service`.
    pub unsafe fn load(&self, name: &str, artefact: &[u8]) -> Result<Plugin, Error> {
        // SAFETY: the caller vouches for the origin of the bytes.
        let component = unsafe { Component::deserialize(&self.engine, artefact) }
            .map_err(|error| Error::Artefact(format!("{error:#}")))?;
        for (import, _) in component.component_type().imports(&self.engine) {
            if !GRANTED.contains(&import) {
                return Err(Error::Import { plugin: name.into(), import: import.into() });
            }
        }
        let not_a_service = |error: wasmtime::Error| Error::Component(format!("{error:#}"));
        let pre = self.linker.instantiate_pre(&component).map_err(not_a_service)?;
        let pre = ServicePre::new(pre).map_err(not_a_service)?;
        Ok(Plugin { name: name.into(), engine: self.engine.clone(), pre })
    }
}

/// A plugin, compiled and linked. Clones share it.
#[derive(Clone)]
pub struct Plugin {
    name: Arc<str>,
    pub(crate) engine: Engine,
    pub(crate) pre: ServicePre<Data>,
}

impl Plugin {
    /// The name given at load.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What the plugin says it is: a JSON object with at least `name`, `version` and `limits`.
    ///
    /// # Errors
    /// As for any call: the plugin may trap or take too long.
    pub fn describe(&self, limits: Limits) -> Result<String, Error> {
        let mut instance = Instance::start(self, &self.name, limits)?;
        instance.call(View::default(), |service, store| {
            service.nacre_plugin_lifecycle().call_describe(store).map(Ok)
        })
    }
}

/// Checks whether `plugin` would accept `config`, without a partition.
///
/// # Errors
/// [`Error::Config`] with what the plugin says about it; other errors as for any call.
pub fn validate(plugin: &Plugin, config: &str, limits: Limits) -> Result<(), Error> {
    Instance::configured(plugin, &plugin.name, config, limits).map(drop)
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
