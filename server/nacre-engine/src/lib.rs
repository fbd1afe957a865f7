//! Machine code of components: those that come with the binary, and a cache of code compiled on this machine.
//!
//! ```text
//! shipped("views") ─► component ─┐
//! package of a user ─► component ┴► Engine::load ─► <cache>/<digest>-<host>.aot, compiled once ─► Plugin
//! ```
//!
//! The node and the tools for plugin authors share this crate, and nothing else of the server. *Invariant:* an artefact
//! is loaded only if a host with the same fingerprint wrote it and it is undamaged; otherwise the component is compiled
//! again.
#![expect(
    clippy::disallowed_methods,
    reason = "the engine keeps a cache of files and counts deadlines by the clock"
)]

mod sandbox_memory;

use nacre_sandbox::{Error, Host, Plugin, digest};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

/// The components that come with the binary; empty if it was built without them.
const VIEWS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/views.wasm"));
const JS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/js.wasm"));
const EVENTING: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/eventing.wasm"));
const INDEX: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/index.wasm"));
const QUERY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/query.wasm"));
const EVALUATOR: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/evaluator.wasm"));
const SEARCH: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/search.wasm"));
const TYPESCRIPT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/typescript.wasm"));

/// Names of the components that come with the binary.
pub const SHIPPED: [&str; 8] =
    ["views", "js", "eventing", "index", "query", "evaluator", "search", "typescript"];
/// Interval at which the plugin host checks deadlines.
const TICK: Duration = Duration::from_millis(1);

/// Returns the component `name` that comes with the binary, one of [`SHIPPED`].
///
/// # Errors
/// A sentence for the user of the binary, if it was built without the component or there is no component with this
/// name.
pub fn shipped(name: &str) -> Result<&'static [u8], String> {
    let component = match name {
        "views" => VIEWS,
        "js" => JS,
        "eventing" => EVENTING,
        "index" => INDEX,
        "query" => QUERY,
        "evaluator" => EVALUATOR,
        "search" => SEARCH,
        "typescript" => TYPESCRIPT,
        _ => return Err(format!("no plugin {name} comes with this binary")),
    };
    if component.is_empty() {
        return Err(
            "this binary was built without plugins: run `cargo xtask plugins` and build again"
                .into(),
        );
    }
    Ok(component)
}

/// Callbacks into the process that an engine runs in. The default does nothing.
pub struct Hooks {
    /// Called first on the thread that counts deadlines. Without this thread no plugin call is ever interrupted.
    pub deadlines_started: Box<dyn Fn() + Send + Sync>,
    /// Called on the calling thread before a plugin call waits or computes for long.
    pub before_blocking: fn(),
}

impl Default for Hooks {
    fn default() -> Hooks {
        Hooks { deadlines_started: Box::new(|| {}), before_blocking: || {} }
    }
}

/// A plugin host that starts on first use, and its cache.
pub struct Engine {
    cache_dir: PathBuf,
    /// Consumed by the start of the host.
    hooks: Mutex<Option<Hooks>>,
    host: OnceLock<Result<Host, String>>,
}

impl Engine {
    /// Creates an engine that caches compiled code in `cache_dir`.
    pub fn new(cache_dir: PathBuf) -> Engine {
        Engine::with_hooks(cache_dir, Hooks::default())
    }

    /// Creates an engine with callbacks into the process.
    pub fn with_hooks(cache_dir: PathBuf, hooks: Hooks) -> Engine {
        Engine { cache_dir, hooks: Mutex::new(Some(hooks)), host: OnceLock::new() }
    }

    /// Returns the host. Starts it on first use.
    ///
    /// # Errors
    /// The reason why the host cannot run on this machine.
    pub fn host(&self) -> Result<&Host, String> {
        let hooks =
            || self.hooks.lock().ok().and_then(|mut hooks| hooks.take()).unwrap_or_default();
        self.host.get_or_init(|| start(hooks())).as_ref().map_err(Clone::clone)
    }

    /// Loads a component. Compiles it if the cache has no artefact for it.
    ///
    /// # Errors
    /// A sentence about the component.
    pub fn load_component(&self, name: &str, component: &[u8]) -> Result<Plugin, String> {
        self.load(name, &digest(component), component)
    }

    /// Like [`Engine::load_component`], for a component whose [`digest`] is known.
    ///
    /// # Errors
    /// A sentence about the component.
    pub fn load(&self, name: &str, digest: &str, component: &[u8]) -> Result<Plugin, String> {
        let host = self.host()?;
        let path = self.cache_dir.join(format!("{digest}-{}.aot", host.fingerprint()));
        if let Ok(artefact) = std::fs::read(&path) {
            // SAFETY: this host's own compiler made the artefact in an earlier process, and the artefact is in a
            // directory that belongs to the server. The host detects later damage.
            let loaded = unsafe { host.load(name, &artefact) };
            if !matches!(loaded, Err(Error::Artefact(_))) {
                return loaded.map_err(|error| error.to_string());
            }
        }
        let begun = Instant::now();
        let artefact = host.compile(component).map_err(|error| error.to_string())?;
        tracing::info!("compiled the plugin {name} in {} ms", begun.elapsed().as_millis());
        // SAFETY: this host's own compiler has just made the artefact.
        let plugin = unsafe { host.load(name, &artefact) }.map_err(|error| error.to_string())?;
        if let Err(error) = store(&path, &artefact) {
            tracing::warn!("the compiled plugin {name} cannot be kept for the next start: {error}");
        }
        Ok(plugin)
    }
}

fn start(hooks: Hooks) -> Result<Host, String> {
    let Hooks { deadlines_started, before_blocking } = hooks;
    let begun = Instant::now();
    let now_ns = move || begun.elapsed().as_nanos() as u64;
    let host = Host::new(now_ns, std::thread::sleep, before_blocking)
        .map_err(|error| error.to_string())?;
    sandbox_memory::use_huge_pages();
    let ticking = host.clone();
    let work = move || {
        deadlines_started();
        tick(&ticking);
    };
    std::thread::Builder::new().name("deadlines".into()).spawn(work).map_err(|error| {
        format!("plugins cannot run without a thread for their deadlines: {error}")
    })?;
    Ok(host)
}

fn tick(host: &Host) {
    loop {
        std::thread::sleep(TICK);
        if !host.tick() {
            host.await_call();
        }
    }
}

fn store(path: &Path, artefact: &[u8]) -> std::io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder)?;
    // The file gets its final name once it is complete, so that a crash leaves no partial artefact.
    let partial = path.with_extension(format!("{}.partial", std::process::id()));
    std::fs::write(&partial, artefact)?;
    std::fs::rename(&partial, path)
}
