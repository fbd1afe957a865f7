//! The binary `nacre`: the command line, and the process as a whole.
//!
//! `main` reads the command line and hands over to [`nacre_server`] for a node, and to [`nacre_cli`] and its like for every other
//! command.
#![expect(
    clippy::disallowed_methods,
    reason = "the binary reads files of the person who starts it and of the system"
)]

mod allocator;
mod configuration;
mod credentials;
mod files;
mod huge_pages;
mod log;
mod panic_hook;
mod priority;
mod process;
mod reset_password;

use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use nacre_backup_tools::{backup, export, import};
use nacre_bench as bench;
use nacre_cli::{
    Failure, account, cluster, context, document, function, index, keyspace, mcp, ping, sample,
    sdk, sh, token, xdcr,
};
use nacre_plugin_tools as plugin;
use nacre_server::{Dev, Serve};
use process::{NodeProcess, stop_signals};
use std::process::ExitCode;

/// A memory-first document database whose services are sandboxed plugins.
#[derive(Parser)]
#[command(name = "nacre", version, max_term_width = 100, after_help = AFTER_HELP)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
    /// File with the password, in place of --password, which others on the machine may see; - asks for it
    #[arg(long, env = "NACRE_PASSWORD_FILE", global = true, value_name = "FILE")]
    password_file: Option<std::path::PathBuf>,
}

#[derive(Subcommand)]
enum Command {
    /// Run a node
    Serve(Box<ServeCommand>),
    /// Run a node for development: creates a user, a bucket and a data folder, and prints how to
    /// connect
    Dev(Dev),
    /// Interactive SQL++ shell
    Sh(sh::Shell),
    /// Read and write documents by their keys
    Doc(document::Options),
    /// Load documents from a file
    Import(import::Import),
    /// Export documents from a running cluster to a file
    Export(export::Export),
    /// Load sample documents
    Sample(sample::Options),
    /// Create, list and delete buckets
    Bucket(keyspace::Buckets),
    /// Create, list and delete scopes
    Scope(keyspace::Scopes),
    /// Create, list and delete collections
    Collection(keyspace::Collections),
    /// Create, list and delete users
    User(account::Options),
    /// Create, list and revoke tokens of the HTTP API
    Token(token::Options),
    /// Create, list and delete indexes
    Index(index::Options),
    /// Define, start and stop functions that react to changes
    Function(function::Options),
    /// Back up a running cluster; inspect, merge and remove backups
    Backup(backup::Options),
    /// Restore a backup into a cluster
    Restore(backup::Restore),
    /// Replicate buckets to other clusters, and compare them
    Xdcr(xdcr::Options),
    /// Build, deploy and watch plugins
    Plugin(plugin::Options),
    /// Generate types of documents for programs
    Sdk(sdk::Options),
    /// Serve the database to AI agents by the Model Context Protocol, on standard input and output
    Mcp(mcp::Options),
    /// Create and manage a cluster
    Cluster(cluster::Options),
    /// Check which services of a node answer
    Ping(ping::Options),
    /// Save nodes and logins under names
    Context(context::Options),
    /// Reset an administrator's password, on the machine of a stopped node
    ResetPassword(reset_password::Options),
    /// Measure a server with a load like an application's
    Bench(bench::Bench),
    /// Check a node without a login, as supervisors do
    Health(ping::Health),
    /// Print completions for a shell
    Completions {
        /// Shell
        shell: clap_complete::Shell,
    },
    /// Write the manual pages of all commands into a folder
    Man {
        /// Folder
        folder: std::path::PathBuf,
    },
}

/// Options of `nacre serve`, and of the file that has them.
#[derive(Args)]
struct ServeCommand {
    #[command(flatten)]
    serve: Serve,
    /// File with options, in TOML: a key is the name of a flag, as data-dir = "/var/lib/nacre".
    /// Flags and environment variables override it
    #[arg(long, env = "NACRE_CONFIG", value_name = "FILE")]
    config: Option<std::path::PathBuf>,
    /// Print the effective options in the form of such a file, with their sources, without starting
    /// a node
    #[arg(long)]
    print_config: bool,
}

/// Exit statuses and examples, below the help of `nacre`.
const AFTER_HELP: &str = "Exit status: 0 done, 1 failed, 2 wrong command line, 3 no node answers, 4 login or right refused.

Examples:
  nacre dev --sample travel                     a node to try things on, with data
  nacre sh -e 'SELECT 6 * 7'                     a query
  nacre doc set ann '{\"age\": 7}'              a document
  nacre ping -c https://db1:18091 -u ann        another node";

/// Makes a command end in silence when the reader of its output has gone, as before `| head`.
///
/// Not for a node, which must outlive the reader of its log. Sockets are not concerned: the standard library sends
/// without the signal.
fn end_with_the_reader() {
    // SAFETY: no other thread runs yet, and the default action of a signal has no code of ours.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
}

/// The command `serve`, with its options.
fn serve_command() -> clap::Command {
    let command = Arguments::command();
    command.find_subcommand("serve").expect("there is such a command").clone()
}

/// Reads the file of `nacre serve --config`. Returns the variables that it has set.
fn read_configuration(arguments: &[std::ffi::OsString]) -> Result<Vec<String>, String> {
    if arguments.get(1).is_none_or(|command| command != "serve") {
        return Ok(Vec::new());
    }
    match credentials::value_of(arguments, "--config", "NACRE_CONFIG") {
        Some(path) => configuration::read(&serve_command(), path.as_ref()),
        None => Ok(Vec::new()),
    }
}

/// Runs a command about backups, with the priority that it should have.
fn back_up(options: &backup::Options) -> Result<(), String> {
    if options.has_low_priority() {
        priority::give_way();
    }
    backup::run(options)
}

/// Prints why the command line is wrong, or the help that it asks for. Names the file if the wrong value is in it.
fn refuse(error: &clap::Error, config: Option<&std::ffi::OsStr>, from_file: &[String]) -> ExitCode {
    // Nobody reads it any more if this fails.
    let _ = error.print();
    let path = config.map(std::path::Path::new);
    let place =
        path.and_then(|path| configuration::place_of(&serve_command(), error, path, from_file));
    if let Some(place) = place {
        eprintln!("nacre: {place}");
    }
    u8::try_from(error.exit_code()).unwrap_or(2).into()
}

/// Returns true if the log of `nacre dev` contains no user data, by the variable of `nacre serve`.
fn dev_redacts_log() -> bool {
    // The start of the node reports a variable that is wrong.
    Serve::from_arguments([]).is_ok_and(|serve| serve.redacts_log())
}

fn main() -> ExitCode {
    let arguments: Vec<std::ffi::OsString> = std::env::args_os().collect();
    credentials::hide();
    if let Err(reason) = credentials::read_file(&arguments) {
        eprintln!("nacre: {reason}");
        return ExitCode::FAILURE;
    }
    let from_file = match read_configuration(&arguments) {
        Ok(from_file) => from_file,
        Err(reason) => {
            eprintln!("nacre: {reason}");
            return ExitCode::FAILURE;
        }
    };
    let config = credentials::value_of(&arguments, "--config", "NACRE_CONFIG");
    let matches = match Arguments::command().try_get_matches_from(arguments) {
        Ok(matches) => matches,
        Err(error) => return refuse(&error, config.as_deref(), &from_file),
    };
    let command = match Arguments::from_arg_matches(&matches) {
        Ok(arguments) => arguments.command,
        Err(error) => error.exit(),
    };
    if !matches!(command, Command::Serve(_) | Command::Dev(_)) {
        end_with_the_reader();
    }
    let outcome = match command {
        Command::Serve(options) if options.print_config => {
            let of_serve = matches.subcommand_matches("serve").expect("the command is serve");
            print!("{}", configuration::describe(&serve_command(), of_serve, &from_file));
            Ok(())
        }
        Command::Serve(options) => {
            let process = NodeProcess::begin(options.serve.redacts_log());
            nacre_server::serve(&options.serve, process, stop_signals).map_err(Failure::from)
        }
        Command::Dev(options) => {
            nacre_server::dev(&options, NodeProcess::begin(dev_redacts_log()), stop_signals)
                .map_err(Failure::from)
        }
        Command::Backup(options) => back_up(&options).map_err(Failure::from),
        Command::Restore(options) => backup::restore(&options).map_err(Failure::from),
        Command::Export(options) => export::export(&options).map_err(Failure::from),
        Command::Sh(options) => sh::sh(&options),
        Command::Doc(options) => document::run(&options),
        Command::Import(options) => import::import(&options),
        Command::Sample(options) => sample::run(&options),
        Command::Bucket(options) => keyspace::run_buckets(&options),
        Command::Scope(options) => keyspace::run_scopes(&options),
        Command::Collection(options) => keyspace::run_collections(&options),
        Command::User(options) => account::run(&options),
        Command::Token(options) => token::run(&options),
        Command::Mcp(options) => mcp::run(&options),
        Command::Index(options) => index::run(&options),
        Command::Sdk(options) => sdk::run(&options),
        Command::Function(options) => function::run(&options),
        Command::Ping(options) => ping::run(&options),
        Command::Context(options) => context::run(&options),
        Command::Cluster(options) => cluster::run(&options),
        Command::Xdcr(options) => xdcr::run(&options).map_err(Failure::from),
        Command::ResetPassword(options) => reset_password::run(&options).map_err(Failure::from),
        Command::Plugin(options) => plugin::run(&options).map_err(Failure::from),
        Command::Bench(options) => bench::bench(&options).map_err(Failure::from),
        Command::Health(options) => ping::health(&options),
        Command::Completions { shell } => {
            clap_complete::generate(
                shell,
                &mut Arguments::command(),
                "nacre",
                &mut std::io::stdout(),
            );
            Ok(())
        }
        Command::Man { folder } => std::fs::create_dir_all(&folder)
            .and_then(|()| clap_mangen::generate_to(Arguments::command(), &folder))
            .map_err(|error| format!("{}: {error}", folder.display()).into()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("nacre: {failure}");
            failure.exit_status().into()
        }
    }
}
