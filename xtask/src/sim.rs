//! `cargo xtask sim`: a cluster, or several clusters that replicate to each other, in one thread, under faults determined by a
//! seed.

use crate::mutants;
use clap::Args;
use std::process::Command;
use xtask_setup::command::{cargo, run as run_command, target_dir, workspace};

/// Maximum number of devices of a seed.
const DEVICES_MAX: u64 = 20;

/// Options of `cargo xtask sim`.
#[derive(Args)]
pub struct Sim {
    /// Number of seeds to run
    #[arg(long, default_value_t = 300)]
    pub seeds: u64,
    /// First seed
    #[arg(long, default_value_t = 0)]
    pub from: u64,
    /// Run only this seed
    #[arg(long, conflicts_with_all = ["seeds", "from"])]
    pub seed: Option<u64>,
    /// Number of clusters that replicate to each other, as `3` or `2..4`
    #[arg(long)]
    pub clusters: Option<String>,
    /// Cut the power of embedded databases so many times in all, over both stores and each
    /// durability setting
    #[arg(long, value_name = "CUTS", conflicts_with_all = ["clusters", "seed", "seeds", "from", "mutants"])]
    pub power_cuts: Option<u64>,
    /// Run this number of seeds of up to 20 devices in step with a hub, instead of a cluster
    #[arg(long, value_name = "SEEDS", conflicts_with_all = ["clusters", "seed", "seeds", "mutants", "power_cuts"])]
    pub devices: Option<u64>,
    /// Print the hash of each seed's events
    #[arg(long)]
    pub hashes: bool,
    /// Insert faults into the sources, one at a time, and check that the seeds find them
    #[arg(long)]
    pub mutants: bool,
    /// Insert only faults whose names contain this
    #[arg(long, requires = "mutants")]
    pub only: Vec<String>,
    /// Build with the test profile, instead of with full optimisation
    #[arg(long)]
    pub dev: bool,
}

/// Runs the seeds.
///
/// # Errors
/// Reports the first seed with a violated condition, with the events before it.
pub fn run(options: &Sim) -> Result<(), String> {
    if options.mutants {
        return mutants::run(options.seeds, options.clusters.as_deref(), &options.only);
    }
    if let Some(cuts) = options.power_cuts {
        return cut_power(cuts, options.dev);
    }
    if let Some(seeds) = options.devices {
        return run_devices(options.from, seeds, options.dev);
    }
    let mut simulation = build(options.dev)?;
    match options.seed {
        Some(seed) => simulation.args(["--seed", &seed.to_string()]),
        None => {
            simulation.args(["--seeds", &options.seeds.to_string()]);
            simulation.args(["--from", &options.from.to_string()])
        }
    };
    if let Some(clusters) = &options.clusters {
        simulation.args(["--clusters", clusters]);
    }
    if options.hashes {
        simulation.arg("--hashes");
    }
    run_command(&mut simulation, "go through all seeds")
}

/// Runs the tests that cut the power of embedded databases; they print the number of cuts.
fn cut_power(cuts: u64, dev: bool) -> Result<(), String> {
    let mut tests = embedded_tests("it", dev);
    tests.args(["--", "crash::", "--nocapture"]);
    tests.env("NACRE_POWER_CUTS", cuts.to_string());
    run_command(&mut tests, "open databases after all power cuts")
}

/// Runs the simulation of devices, which prints the figures of all seeds.
fn run_devices(from: u64, seeds: u64, dev: bool) -> Result<(), String> {
    let mut tests = embedded_tests("devices", dev);
    tests.args(["--", "devices_converge", "--nocapture"]);
    tests.env("NACRE_DEVICE_FROM", from.to_string());
    tests.env("NACRE_DEVICE_SEEDS", seeds.to_string());
    tests.env("NACRE_DEVICE_MOST", DEVICES_MAX.to_string());
    run_command(&mut tests, "go through all seeds of devices")
}

/// Returns the command of the embedded database's tests in the file `name`.
fn embedded_tests(name: &str, dev: bool) -> Command {
    let mut tests = cargo();
    tests.current_dir(workspace()).args(["test", "--quiet", "-p", "nacre-embedded"]);
    if !dev {
        tests.arg("--release");
    }
    tests.args(["--test", name]);
    tests
}

/// Builds the simulation, optimized as one unit, which takes too long for the product's own profile.
fn build(dev: bool) -> Result<Command, String> {
    let mut build = cargo();
    build.current_dir(workspace()).args([
        "rustc",
        "--quiet",
        "-p",
        "nacre-sim",
        "--bin",
        "nacre-sim",
    ]);
    if !dev {
        build.args(["--release", "--", "-C", "lto=fat", "-C", "codegen-units=1"]);
    }
    run_command(&mut build, "build the simulation")?;
    let folder = target_dir()?.join(if dev { "debug" } else { "release" });
    let mut simulation = Command::new(folder.join("nacre-sim"));
    simulation.current_dir(workspace());
    Ok(simulation)
}
