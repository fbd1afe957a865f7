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
    /// Begin a project
    New(new::New),
    /// Make a package of a project
    Build(project::Build),
    /// Play the scripts of a project in the host that a node runs
    Test(test::Test),
    /// Test and deploy a project at each change of its files, and show what the plugin says
    Dev(dev::Dev),
    /// Measure what documents cost a plugin
    Bench(bench::Bench),
    /// Show what a package is and wants
    Inspect(inspect::Inspect),
    /// Upload a package and deploy it, or upgrade what is deployed
    Deploy(remote::Deploy),
    /// Show what is deployed, views and indexes included
    List(remote::All),
    /// Show which packages the cluster has, or remove one
    Packages(remote::Packages),
    /// Show each second what deployments, views and indexes do; q ends it
    Top(remote::All),
    /// Show what a deployment has logged, and which documents failed
    Logs(remote::Named),
    /// Save a call that failed, so that `test --replay` makes it again
    Capsule(remote::OneCapsule),
    /// Show where the calls of a deployment spend their time, a line for each stack: flame graphs are drawn of such
    Profile(remote::Profile),
    /// Take no more documents; requests are still answered
    Pause(remote::Named),
    /// Go on after a pause
    Resume(remote::Named),
    /// Build the state again, from where it has begun or from elsewhere, next to the present one
    Replay(remote::Replay),
    /// End a deployment and remove its state
    Undeploy(remote::Named),
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
