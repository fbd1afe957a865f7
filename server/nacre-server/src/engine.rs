//! Plugins as machine code: compiled once for this machine, then loaded from the cache.

use crate::huge_pages;
use crate::priority::be_first_of_background;
use crate::vital::depend_on_this_thread;
use nacre_plugin_host::{Error, Host, Plugin};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// The components that come with the binary; empty when it was built without them.
const VIEWS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/views.wasm"));
const JS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/js.wasm"));
const EVENTING: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/eventing.wasm"));
const INDEX: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/index.wasm"));
const QUERY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/query.wasm"));
const EVALUATOR: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/evaluator.wasm"));
const TYPESCRIPT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/typescript.wasm"));

/// Their names.
pub const SHIPPED: [&str; 7] =
    ["views", "js", "eventing", "index", "query", "evaluator", "typescript"];
/// How often the plugin host looks at the clock of deadlines.
const TICK: Duration = Duration::from_millis(1);

/// The component that comes with the binary under that name.
///
/// # Errors
/// When the binary was built without it.
pub fn shipped(name: &str) -> Result<&'static [u8], String> {
    let component = match name {
        "views" => VIEWS,
        "js" => JS,
        "eventing" => EVENTING,
        "index" => INDEX,
        "query" => QUERY,
        "evaluator" => EVALUATOR,
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

/// The engine of this process, started when it is first needed, and its cache.
pub struct Engine {
    cache_dir: PathBuf,
    host: OnceLock<Result<Host, String>>,
}

impl Engine {
    /// An engine that keeps what it compiles in `cache_dir`.
    pub fn new(cache_dir: PathBuf) -> Engine {
        Engine { cache_dir, host: OnceLock::new() }
    }

    /// The host, with somebody who counts its deadlines.
    ///
    /// # Errors
    /// Why it cannot run here.
    pub fn host(&self) -> Result<&Host, String> {
        self.host.get_or_init(start).as_ref().map_err(Clone::clone)
    }

    /// Loads a component that `digest` identifies.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn load(&self, name: &str, digest: &str, component: &[u8]) -> Result<Plugin, String> {
        let host = self.host()?;
        let path = self.cache_dir.join(format!("{digest}-{}.aot", host.fingerprint()));
        if let Ok(artefact) = std::fs::read(&path) {
            // SAFETY: the artefact was made by this host's own compiler in an earlier process, and lies in a directory
            // that belongs to the server; the host finds out when it was damaged since.
            let loaded = unsafe { host.load(name, &artefact) };
            if !matches!(loaded, Err(Error::Artefact(_))) {
                return loaded.map_err(|error| error.to_string());
            }
        }
        let begun = Instant::now();
        let artefact = host.compile(component).map_err(|error| error.to_string())?;
        tracing::info!("compiled the plugin {name} in {} ms", begun.elapsed().as_millis());
        // SAFETY: the artefact was made by this host's own compiler just now.
        let plugin = unsafe { host.load(name, &artefact) }.map_err(|error| error.to_string())?;
        if let Err(error) = store(&path, &artefact) {
            tracing::warn!("the compiled plugin {name} cannot be kept for the next start: {error}");
        }
        Ok(plugin)
    }
}

fn start() -> Result<Host, String> {
    let begun = Instant::now();
    let now_ns = move || begun.elapsed().as_nanos() as u64;
    let host = Host::new(now_ns, std::thread::sleep, nacre_bucket::about_to_hold_up)
        .map_err(|error| error.to_string())?;
    huge_pages::take_for_sandboxes();
    let ticking = host.clone();
    std::thread::Builder::new().name("deadlines".into()).spawn(move || tick(&ticking)).map_err(
        |error| format!("plugins cannot run without a thread for their deadlines: {error}"),
    )?;
    Ok(host)
}

fn tick(host: &Host) {
    depend_on_this_thread();
    // Where others have the processors, it counts less: calls do not have that time either.
    be_first_of_background();
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
    // Written beside and renamed, so that a crash leaves no half of it.
    let partial = path.with_extension(format!("{}.partial", std::process::id()));
    std::fs::write(&partial, artefact)?;
    std::fs::rename(&partial, path)
}
