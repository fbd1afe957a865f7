//! `nacre plugin`: from a new project to a deployment and back.
#![expect(
    clippy::disallowed_methods,
    reason = "tools of the command line read files, clocks and sockets"
)]

mod bench;
mod dev;
mod go;
mod inspect;
mod new;
mod overview;
mod project;
mod remote;
mod test;

use clap::{Args, Subcommand};
use nacre_engine::{self as engine, Engine};
use std::path::PathBuf;

/// Options of `nacre plugin`.
#[derive(Args, Clone, Debug)]
pub struct Options {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand, Clone, Debug)]
enum Action {
    /// Create a project
    New(new::New),
    /// Build the package of a project
    Build(project::Build),
    /// Run the test scripts of a project in the plugin host of a node
    Test(test::Test),
    /// Test and deploy a project at each change of its files, and show the plugin's log
    Dev(dev::Dev),
    /// Measure how much time and memory a plugin needs for documents
    Bench(bench::Bench),
    /// Show the manifest of a package and the rights that it requests
    Inspect(inspect::Inspect),
    /// Upload a package and deploy it, or upgrade its deployment
    Deploy(remote::Deploy),
    /// Show the deployments, including views and indexes
    List(remote::List),
    /// Show which packages the cluster has, or remove one
    Packages(remote::Packages),
    /// Show the activity of deployments, views and indexes each second; q quits
    Top(remote::All),
    /// Show the log of a deployment and the documents that failed
    Logs(remote::Logs),
    /// Save a call that failed, so that `test --replay` can repeat it
    Capsule(remote::OneCapsule),
    /// Show where the calls of a deployment spend their time, one line for each stack, as input for
    /// flame graphs
    Profile(remote::Profile),
    /// Pause a deployment: it processes no documents, but still answers requests
    Pause(remote::Named),
    /// Resume a paused deployment
    Resume(remote::Named),
    /// Rebuild the state from its first position or another one, next to the current state
    Replay(remote::Replay),
    /// Remove a deployment and its state
    Undeploy(remote::Named),
    /// Compile the shipped plugins for this machine, for nodes that use this cache
    Compile {
        /// Folder for compiled plugins, the same as for `nacre serve`
        #[arg(long, env = "NACRE_PLUGIN_CACHE")]
        plugin_cache: PathBuf,
    },
}

/// Runs `nacre plugin`.
///
/// # Errors
/// A sentence for the person who ran it.
pub fn run(options: &Options) -> Result<(), String> {
    match &options.action {
        Action::New(options) => new::new(options),
        Action::Build(options) => {
            let built = project::build(options)?;
            println!("{}", built.display());
            Ok(())
        }
        Action::Test(options) => test::test(options),
        Action::Dev(options) => dev::dev(options),
        Action::Bench(options) => bench::bench(options),
        Action::Inspect(options) => inspect::inspect(options),
        Action::Deploy(options) => remote::deploy(options),
        Action::List(options) => overview::list(options),
        Action::Packages(options) => remote::packages(options),
        Action::Top(options) => overview::top(options),
        Action::Logs(options) => remote::logs(options),
        Action::Capsule(options) => remote::capsule(options),
        Action::Profile(options) => remote::profile(options),
        Action::Pause(options) => remote::command(options, "pause"),
        Action::Resume(options) => remote::command(options, "resume"),
        Action::Replay(options) => remote::replay(options),
        Action::Undeploy(options) => remote::undeploy(options),
        Action::Compile { plugin_cache } => compile(plugin_cache),
    }
}

fn compile(plugin_cache: &std::path::Path) -> Result<(), String> {
    let engine = Engine::new(plugin_cache.to_owned());
    for name in engine::SHIPPED {
        let component = engine::shipped(name)?;
        engine.load(name, &nacre_sandbox::digest(component), component)?;
    }
    println!("compiled into {}", plugin_cache.display());
    Ok(())
}
