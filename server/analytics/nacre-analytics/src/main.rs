//! The program `nacre-analytics`: the analytics service of a node, in a separate process.

use clap::Parser;
use nacre_analytics::engine::Engine;
use nacre_analytics::fleet::Fleet;
use nacre_analytics::node::Node;
use nacre_analytics::server;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use tokio::net::TcpListener;
use tracing_subscriber::EnvFilter;

/// Answers analytical queries over the documents of a node, from columns of its own.
#[derive(Parser)]
#[command(name = "nacre-analytics", version, max_term_width = 100)]
struct Arguments {
    /// Address to listen at
    #[arg(long, default_value = "127.0.0.1:8095")]
    listen: SocketAddr,
    /// REST port of the node, which knows its users and what they may do
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8091")]
    rest: String,
    /// Key-value ports of nodes
    #[arg(
        long,
        value_name = "HOST:PORT",
        value_delimiter = ',',
        default_value = "127.0.0.1:11210"
    )]
    keys: Vec<String>,
    /// User of the streams of history
    #[arg(long, env = "NACRE_USER", default_value = "Administrator")]
    user: String,
    /// Password of that user
    #[arg(long, env = "NACRE_PASSWORD", hide_env_values = true, default_value = "")]
    password: String,
    /// Folder of the catalog and of what does not fit into memory
    #[arg(long, value_name = "FOLDER", default_value = "analytics")]
    data: PathBuf,
    /// Memory for documents and queries, in mebibytes
    #[arg(long, value_name = "MIB", default_value_t = 1024)]
    memory: usize,
    /// Addresses of the processes that share the documents, in the same order for all of them
    #[arg(long, value_name = "HOST:PORT", value_delimiter = ',', requires = "process")]
    processes: Vec<String>,
    /// Position of this process in the list, from 0
    #[arg(long, value_name = "N", requires = "processes")]
    process: Option<usize>,
    /// Serve the node that has started this process: tell it the port, and end when the standard input ends
    #[arg(long)]
    attached: bool,
    /// Secret of the node that passes requests on; without one, users log in here
    #[arg(long, env = "NACRE_ANALYTICS_TOKEN", hide_env_values = true)]
    token: Option<String>,
}

fn main() -> ExitCode {
    let filter = EnvFilter::try_from_env("NACRE_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    match run(Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("{reason}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: Arguments) -> Result<(), String> {
    let Arguments { listen, rest, keys, user, password, data, memory, attached, token, .. } =
        arguments;
    let fleet = match arguments.process {
        Some(own) => Fleet::new(arguments.processes, own)?,
        None => Fleet::default(),
    };
    if !fleet.is_alone() && password.is_empty() {
        return Err("processes that share documents need a password".to_owned());
    }
    let node = Node { rest, keys, user, password };
    let engine = Engine::open(node, data, memory.saturating_mul(1 << 20), fleet)?;
    let engine = Arc::new(engine);
    if attached {
        // If memory runs out, the system should end this process first. If it refuses the setting, nothing
        // changes.
        let _ = std::fs::write("/proc/self/oom_score_adj", "500");
        std::thread::spawn(|| {
            let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
            std::process::exit(0);
        });
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .map_err(|error| error.to_string())?;
    runtime.block_on(async {
        let cannot = |error: std::io::Error| format!("cannot listen at {listen}: {error}");
        let listener = TcpListener::bind(listen).await.map_err(cannot)?;
        let address = listener.local_addr().map_err(cannot)?;
        tracing::info!(%address, "analytics is ready");
        if attached {
            println!("{}", address.port());
        }
        server::serve(listener, Arc::clone(&engine), token).await.map_err(cannot)
    })
}
