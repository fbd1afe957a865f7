//! The nacre binary: sockets, threads, clock, configuration, REST.
//!
//! `main` reads the command line and hands over to a module per subcommand; [`serve`] is the server.
#![expect(
    clippy::disallowed_methods,
    reason = "this crate is the node's real world: clock, chance, files, sockets"
)]

mod bench;
mod capsules;
mod client;
mod cluster;
mod cluster_command;
mod engine;
mod http_out;
mod huge_pages;
mod import;
mod kv;
mod platform;
mod plugin;
mod rest;
mod serve;
mod sh;
mod tls;
mod unreachable;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

// Values of about 1 KB fall outside what glibc serves quickly; measured, this is worth 15-25 % on writes.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// How long a listener waits after it could not accept a connection.
const ACCEPT_PAUSE: std::time::Duration = std::time::Duration::from_millis(50);

/// A memory-first document database whose services are sandboxed plugins.
#[derive(Parser)]
#[command(name = "nacre", version, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run a node.
    Serve(serve::Serve),
    /// Run a node for development: a user, a bucket and a data folder of its own, and print how to reach them.
    Dev(serve::Dev),
    /// Load documents from a file.
    Import(import::Import),
    /// Ask a node in SQL++.
    Sh(sh::Shell),
    /// Make nodes one cluster, and look at them.
    Cluster(cluster_command::Options),
    /// Work on plugins.
    Plugin(plugin::Options),
    /// Measure a server with a load like an application's.
    Bench(bench::Bench),
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().command {
        Command::Serve(options) => serve::serve(&options),
        Command::Dev(options) => serve::dev(&options),
        Command::Import(options) => import::import(&options),
        Command::Sh(options) => sh::sh(&options),
        Command::Cluster(options) => cluster_command::run(&options),
        Command::Plugin(options) => plugin::run(&options),
        Command::Bench(options) => bench::bench(&options),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("nacre: {reason}");
            ExitCode::FAILURE
        }
    }
}
