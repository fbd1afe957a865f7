//! The nacre binary: sockets, threads, clock, configuration, REST.
//!
//! `main` reads the command line and hands over to a module per subcommand; [`serve`] is the server.
#![expect(
    clippy::disallowed_methods,
    reason = "this crate is the node's real world: clock, chance, files, sockets"
)]

mod allocator;
mod audit;
mod bench;
mod capsules;
mod client;
mod cluster;
mod cluster_command;
mod credentials;
mod data_dir;
mod descriptors;
mod engine;
mod http_out;
mod huge_pages;
mod import;
mod kv;
mod loader;
mod log;
mod log_collection;
mod memory;
mod platform;
mod plugin;
mod priority;
mod records;
mod reset_password;
mod rest;
mod sealed;
mod serve;
mod server;
mod sh;
mod strangers;
mod tls;
mod trust;
mod unreachable;
mod vital;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// How long a listener waits after it could not accept a connection.
const ACCEPT_PAUSE: std::time::Duration = std::time::Duration::from_millis(50);

/// A memory-first document database whose services are sandboxed plugins.
#[derive(Parser)]
#[command(name = "nacre", version, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
    /// File with the password, in place of --password, which others on the machine may see; - asks for it
    #[arg(long, env = "NACRE_PASSWORD_FILE", global = true, value_name = "FILE")]
    password_file: Option<std::path::PathBuf>,
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
    /// Give an administrator another password, on the machine of a node that is stopped.
    ResetPassword(reset_password::Options),
    /// Work on plugins.
    Plugin(plugin::Options),
    /// Measure a server with a load like an application's.
    Bench(bench::Bench),
}

/// Has a command end in silence when nobody reads on what it prints, as behind `| head`.
///
/// A node does not: it shall outlive whoever reads its log. Sockets are not concerned, the standard library sends without
/// the signal.
fn end_with_the_reader() {
    // SAFETY: no other thread runs yet, and the default action of a signal has no code of ours.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
}

fn main() -> ExitCode {
    let arguments: Vec<std::ffi::OsString> = std::env::args_os().collect();
    credentials::hide();
    if let Err(reason) = credentials::read_file(&arguments) {
        eprintln!("nacre: {reason}");
        return ExitCode::FAILURE;
    }
    let command = Arguments::parse_from(arguments).command;
    if !matches!(command, Command::Serve(_) | Command::Dev(_)) {
        end_with_the_reader();
    }
    let outcome = match command {
        Command::Serve(options) => serve::serve(&options),
        Command::Dev(options) => serve::dev(&options),
        Command::Import(options) => import::import(&options),
        Command::Sh(options) => sh::sh(&options),
        Command::Cluster(options) => cluster_command::run(&options),
        Command::ResetPassword(options) => reset_password::run(&options),
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
