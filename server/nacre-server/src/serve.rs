//! `nacre serve` and `nacre dev`: from the command line to a running node, and back to a clean stop.

use crate::platform::SystemPlatform;
use crate::rest::{self, Service};
use crate::{kv, plugins};
use clap::Args;
use nacre_auth::{Role, User};
use nacre_cluster::{BucketSettings, Change};
use nacre_node::Node;
use nacre_node::cluster_map::Endpoints;
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::Arc;

/// Ports that Couchbase's clients try first, relative to the lowest of them.
const PORT_BASE: u16 = 8091;
/// The key-value port, when the others have their defaults.
const KV_PORT: u16 = 11210;
/// The key-value port relative to `--port-base`.
const KV_PORT_OFFSET: u16 = 10;

/// Options of `nacre serve`.
#[derive(Args, Clone, Debug)]
pub struct Serve {
    /// Where documents, settings and plugin state are kept
    #[arg(long, env = "NACRE_DATA_DIR", default_value = "nacre-data")]
    data_dir: PathBuf,
    /// Address to listen on
    #[arg(long, env = "NACRE_HOST", default_value = "127.0.0.1")]
    host: String,
    /// Move all ports: management N, views N+1, key-value N+10 (defaults: 8091, 8092, 11210)
    #[arg(long, env = "NACRE_PORT_BASE", value_name = "N")]
    port_base: Option<u16>,
    /// Name of the administrator, created on first start
    #[arg(long, env = "NACRE_USER", default_value = "Administrator")]
    user: String,
    /// Password of the administrator; generated and shown once when there is no user yet
    #[arg(long, env = "NACRE_PASSWORD", hide_env_values = true)]
    password: Option<String>,
    /// Buckets to create when they do not exist, separated by commas
    #[arg(long, env = "NACRE_BUCKETS", value_delimiter = ',')]
    buckets: Vec<String>,
    /// Memory for each bucket that is created here, in MiB
    #[arg(long, env = "NACRE_BUCKET_RAM_MB", default_value_t = 256)]
    bucket_ram_mb: u64,
    /// Threads that serve keys (default: one a processor)
    #[arg(long, env = "NACRE_KV_THREADS")]
    kv_threads: Option<usize>,
    /// Where compiled plugins are kept (default: in the data directory)
    #[arg(long, env = "NACRE_PLUGIN_CACHE")]
    plugin_cache: Option<PathBuf>,
}

/// Options of `nacre dev`.
#[derive(Args, Clone, Debug)]
pub struct Dev {
    /// Move all ports, as for `serve`
    #[arg(long, env = "NACRE_PORT_BASE", value_name = "N")]
    port_base: Option<u16>,
    /// Where data is kept; a folder that is removed at the end when not given
    #[arg(long)]
    data_dir: Option<PathBuf>,
}

struct Listeners {
    endpoints: Endpoints,
    mgmt: TcpListener,
    views: TcpListener,
    kv: TcpListener,
}

impl Serve {
    fn listen(&self) -> Result<Listeners, String> {
        let base = self.port_base.unwrap_or(PORT_BASE);
        let port = |offset: u16| {
            base.checked_add(offset).ok_or("--port-base is too high, its ports end at 65535")
        };
        let kv = if self.port_base.is_some() { port(KV_PORT_OFFSET)? } else { KV_PORT };
        let endpoints = Endpoints { host: None, mgmt: base, views: port(1)?, kv };
        let bind = |port: u16, what: &str| {
            TcpListener::bind((self.host.as_str(), port)).map_err(|error| {
                let hint = match error.kind() {
                    std::io::ErrorKind::AddrInUse => {
                        ": stop what uses it, or move all ports with --port-base"
                    }
                    _ => "",
                };
                format!("cannot listen on {}:{port} for {what}: {error}{hint}", self.host)
            })
        };
        Ok(Listeners {
            mgmt: bind(endpoints.mgmt, "management")?,
            views: bind(endpoints.views, "views")?,
            kv: bind(endpoints.kv, "keys")?,
            endpoints,
        })
    }
}

fn log_to_stderr() {
    let filter =
        tracing_subscriber::EnvFilter::try_from_env("NACRE_LOG").unwrap_or_else(|_| "info".into());
    // The log is for people: no module names, and colours only on a terminal.
    let terminal = std::io::IsTerminal::is_terminal(&std::io::stderr());
    let log =
        tracing_subscriber::fmt().with_env_filter(filter).with_target(false).with_ansi(terminal);
    // A second call in one process keeps the first log.
    let _ = log.with_writer(std::io::stderr).try_init();
}

/// Runs a node until SIGINT or SIGTERM.
///
/// # Errors
/// A sentence for the person who started it.
pub fn serve(options: &Serve) -> Result<(), String> {
    log_to_stderr();
    run(options, |_| {})
}

/// Runs a node for development until SIGINT or SIGTERM.
///
/// # Errors
/// A sentence for the person who started it.
pub fn dev(options: &Dev) -> Result<(), String> {
    log_to_stderr();
    let temporary = std::env::temp_dir().join(format!("nacre-dev-{}", std::process::id()));
    let data_dir = options.data_dir.clone().unwrap_or_else(|| temporary.clone());
    let serve = Serve {
        data_dir,
        host: "127.0.0.1".into(),
        port_base: options.port_base,
        user: "dev".into(),
        password: Some("develop".into()),
        buckets: vec!["dev".into()],
        bucket_ram_mb: 256,
        kv_threads: None,
        plugin_cache: None,
    };
    let outcome = run(&serve, |endpoints| {
        println!("nacre is ready");
        println!("  management  http://127.0.0.1:{}", endpoints.mgmt);
        println!("  views       http://127.0.0.1:{}/dev/_design/…", endpoints.views);
        println!("  SDKs        couchbase://127.0.0.1:{}", endpoints.kv);
        println!("  bucket      dev      user  dev      password  develop");
        println!(
            "Ctrl-C stops it{}.",
            if options.data_dir.is_none() { " and removes its data" } else { "" }
        );
    });
    if options.data_dir.is_none() {
        let _ = std::fs::remove_dir_all(&temporary);
    }
    outcome
}

fn run(options: &Serve, ready: impl FnOnce(&Endpoints)) -> Result<(), String> {
    let listeners = options.listen()?;
    let platform =
        Arc::new(SystemPlatform::open(&options.data_dir).map_err(|error| error.to_string())?);
    let node = Node::open(Arc::clone(&platform) as Arc<_>, listeners.endpoints.clone())
        .map_err(|error| error.to_string())?;
    initialise(&node, options)?;
    let cache_dir =
        options.plugin_cache.clone().unwrap_or_else(|| options.data_dir.join("plugins"));
    plugins::start(&node, cache_dir);

    let threads = options
        .kv_threads
        .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    kv::serve(&node, listeners.kv, threads.max(1))
        .map_err(|error| format!("cannot serve keys: {error}"))?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name("rest")
        .enable_all()
        .build();
    let runtime = runtime.map_err(|error| format!("cannot start the threads for HTTP: {error}"))?;
    runtime.block_on(async {
        let failed = |error: std::io::Error| format!("cannot serve HTTP: {error}");
        rest::serve(&node, listeners.mgmt, Service::Management).map_err(failed)?;
        rest::serve(&node, listeners.views, Service::Views).map_err(failed)?;
        tracing::info!(
            "nacre {} serves on {}: management {}, views {}, keys {}",
            env!("CARGO_PKG_VERSION"),
            options.host,
            listeners.endpoints.mgmt,
            listeners.endpoints.views,
            listeners.endpoints.kv
        );
        ready(&listeners.endpoints);
        stop_signal().await.map_err(|error| format!("cannot wait for signals: {error}"))
    })?;

    tracing::info!("stopping: writing what is in memory");
    node.stop();
    platform.join();
    match node.mark_clean() {
        Ok(()) => tracing::info!("stopped"),
        Err(error) => tracing::warn!("{error}; the next start recovers what was written"),
    }
    // Connections may still hold the node; the process ends with them.
    runtime.shutdown_background();
    Ok(())
}

/// Creates the administrator and the buckets that were asked for, where they do not exist yet.
fn initialise(node: &Arc<Node>, options: &Serve) -> Result<(), String> {
    let known = node.users().get(&options.user).is_some();
    let nobody = node.users().iter().next().is_none();
    if !known && (nobody || options.password.is_some()) {
        let password = options.password.clone().unwrap_or_else(|| {
            let generated = node.new_uuid()[..12].to_owned();
            println!("created the user {} with the password {generated}", options.user);
            generated
        });
        let user = User::new(&options.user, &password, vec![Role::admin()], node.new_salt());
        node.put_user(user).map_err(|error| error.to_string())?;
    }
    for name in options.buckets.iter().filter(|name| !name.is_empty()) {
        if node.bucket(name).is_none() {
            let settings =
                BucketSettings { ram_quota_mb: options.bucket_ram_mb, ..BucketSettings::default() };
            let change =
                Change::CreateBucket { name: name.clone(), uuid: node.new_uuid(), settings };
            node.change(&change)
                .map_err(|error| format!("cannot create the bucket {name}: {error}"))?;
        }
    }
    Ok(())
}

async fn stop_signal() -> std::io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let (mut interrupt, mut terminate) =
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    Ok(())
}
