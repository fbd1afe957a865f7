//! The plugins that come with the binary: compiled once for this machine, then loaded from the cache.

use clap::{Args, Subcommand};
use nacre_node::Node;
use nacre_plugin_host::{Error, Host, Plugin};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The views component, empty when the binary was built without it.
const VIEWS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/views.wasm"));

/// How often deadlines are checked; the plugin host counts them in these.
const TICK: Duration = Duration::from_millis(1);

/// Options of `nacre plugin`.
#[derive(Args, Clone, Debug)]
pub struct Options {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand, Clone, Debug)]
enum Action {
    /// Compile the shipped plugins for this machine, so that nodes with this cache need not
    Compile {
        /// The folder that `nacre serve` is given by the same name
        #[arg(long, env = "NACRE_PLUGIN_CACHE")]
        plugin_cache: PathBuf,
    },
}

/// Runs `nacre plugin`.
///
/// # Errors
/// A sentence for the person who ran it.
pub fn run(options: &Options) -> Result<(), String> {
    let Action::Compile { plugin_cache } = &options.action;
    if VIEWS.is_empty() {
        return Err(
            "this binary was built without plugins: run `cargo xtask plugins` and build again"
                .into(),
        );
    }
    load(plugin_cache)
        .map(|_| println!("compiled into {}", plugin_cache.display()))
        .map_err(|error| error.to_string())
}

/// Loads the shipped plugins beside the node, which serves keys meanwhile.
pub fn start(node: &Arc<Node>, cache_dir: PathBuf) {
    let node = Arc::clone(node);
    let started = std::thread::Builder::new().name("plugins".into()).spawn(move || {
        if VIEWS.is_empty() {
            tracing::warn!("this binary was built without plugins, there will be no views: run `cargo xtask plugins` and build again");
            return;
        }
        match load(&cache_dir) {
            Ok((host, views)) => {
                let host = Arc::new(host);
                let ticking = Arc::clone(&host);
                let ticker = std::thread::Builder::new().name("deadlines".into()).spawn(move || tick(&ticking));
                if let Err(error) = ticker {
                    tracing::error!("plugins cannot run without a thread for their deadlines: {error}");
                    return;
                }
                if let Err(reason) = node.views().install(&node, views) {
                    tracing::error!("the views plugin cannot run: {reason}");
                }
            }
            Err(error) => tracing::error!("the views plugin cannot run: {error}"),
        }
    });
    if let Err(error) = started {
        tracing::error!("plugins cannot be loaded: {error}");
    }
}

fn tick(host: &Host) {
    loop {
        std::thread::sleep(TICK);
        host.tick();
    }
}

fn load(cache_dir: &Path) -> Result<(Host, Plugin), Error> {
    let begun = Instant::now();
    let host = Host::new(move || begun.elapsed().as_nanos() as u64)?;
    let name = format!("views-{:08x}-{}.aot", crc32fast::hash(VIEWS), host.fingerprint());
    let path = cache_dir.join(name);
    // SAFETY: the artefact was made by this host's own compiler in an earlier process, and lies in a directory that belongs
    // to the server; the host finds out when it was damaged since.
    let cached = std::fs::read(&path).ok().map(|artefact| unsafe { host.load("views", &artefact) });
    if let Some(Ok(plugin)) = cached {
        return Ok((host, plugin));
    }
    let begun = Instant::now();
    let artefact = host.compile(VIEWS)?;
    tracing::info!("compiled the views plugin in {} ms", begun.elapsed().as_millis());
    // SAFETY: the artefact was made by this host's own compiler just now.
    let plugin = unsafe { host.load("views", &artefact) }?;
    if let Err(error) = store(&path, &artefact) {
        tracing::warn!("the compiled views plugin cannot be kept for the next start: {error}");
    }
    Ok((host, plugin))
}

fn store(path: &Path, artefact: &[u8]) -> std::io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder)?;
    // Written beside and renamed, so that a crash leaves no half of it.
    let partial = path.with_extension(format!("{}.partial", std::process::id()));
    std::fs::write(&partial, artefact)?;
    std::fs::rename(&partial, path)
}
