//! The binary `nacre`: the command line, and the process as a whole.
//!
//! `main` reads the command line and hands over to [`nacre_server`] for a node and to [`nacre_cli`] for every other command.
#![expect(
    clippy::disallowed_methods,
    reason = "the binary reads files of the person who starts it and of the system"
)]

mod allocator;
mod credentials;
mod files;
mod huge_pages;
mod log;
mod panic_hook;
mod priority;
mod process;
mod reset_password;

use clap::{Parser, Subcommand};
use nacre_cli::{backup, bench, cluster, export, import, plugin, sh, xdcr};
use nacre_server::{Dev, Serve};
use process::{NodeProcess, stop_signals};
use std::process::ExitCode;

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
    Serve(Serve),
    /// Run a node for development: a user, a bucket and a data folder of its own, and print how to reach them.
    Dev(Dev),
    /// Load documents from a file.
    Import(import::Import),
    /// Back up a running cluster, and look at backups.
    Backup(backup::Options),
    /// Write documents of a running cluster into a file.
    Export(export::Export),
    /// Bring a backup back into a cluster.
    Restore(backup::Restore),
    /// Ask a node in SQL++.
    Sh(sh::Shell),
    /// Make nodes one cluster, and look at them.
    Cluster(cluster::Options),
    /// Replicate buckets to other clusters, and compare them.
    Xdcr(xdcr::Options),
    /// Give an administrator another password, on the machine of a node that is stopped.
    ResetPassword(reset_password::Options),
    /// Work on plugins.
    Plugin(plugin::Options),
    /// Measure a server with a load like an application's.
    Bench(bench::Bench),
}

/// Makes a command end in silence when the reader of its output has gone, as before `| head`.
///
/// Not for a node, which must outlive the reader of its log. Sockets are not concerned: the standard library sends
/// without the signal.
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
        Command::Serve(options) => {
            nacre_server::serve(&options, NodeProcess::begin(), stop_signals)
        }
        Command::Dev(options) => nacre_server::dev(&options, NodeProcess::begin(), stop_signals),
        Command::Import(options) => import::import(&options),
        Command::Backup(options) => backup::run(&options),
        Command::Export(options) => export::export(&options),
        Command::Restore(options) => backup::restore(&options),
        Command::Sh(options) => sh::sh(&options),
        Command::Cluster(options) => cluster::run(&options),
        Command::Xdcr(options) => xdcr::run(&options),
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
