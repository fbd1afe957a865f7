//! Project chores: `cargo xtask demo | test | plugins | dist | monitor | bench | sim | chaos | attack | console | analytics | docs | sdk |
//! conformance`.
//!
//! Each chore installs or builds what it needs into folders of the project, or reports in one line what is missing.
#![expect(
    clippy::disallowed_methods,
    reason = "a chore reads and writes files, starts programs and reads the clock"
)]

mod analytics;
mod attack;
mod chaos;
mod console;
mod demo;
mod docs;
mod examples;
mod fuzz;
mod monitor;
mod mutants;
mod packaging;
mod readme;
mod sdk;
mod sim;
mod suites;
mod test;

use clap::{Parser, Subcommand};
use std::process::ExitCode;
use xtask_setup::{command, plugins};

/// Project chores.
#[derive(Parser)]
#[command(name = "cargo xtask", max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// Load real data into a node, index it with JavaScript views, and show results
    Demo(demo::Demo),
    /// Run all tests
    Test(test::Test),
    /// Build the plugins
    Plugins(plugins::Options),
    /// Build and test the release artefacts: archive, package, image, checksums, bill of materials
    Dist(packaging::Dist),
    /// Check alert rules and dashboard with Prometheus
    Monitor(monitor::Monitor),
    /// Run benchmarks, as ratios to another server in the same run
    Bench(xtask_bench::Bench),
    /// Run a simulated cluster with injected faults
    Sim(sim::Sim),
    /// Run real nodes with injected faults and an official SDK as client
    Chaos(chaos::Chaos),
    /// Run the attack cases: hostile strangers, users, browsers and neighbours
    Attack(attack::Attack),
    /// Build the web console and test it in a browser
    Console(console::Console),
    /// Build and test analytics with an official SDK as client
    Analytics(analytics::Analytics),
    /// Build the documentation site with search, and check its links
    Docs(docs::Docs),
    /// Fuzz the decoders
    Fuzz(fuzz::Fuzz),
    /// Compare the SDKs with the official ones: features and behaviour of programs
    Sdk(sdk::Sdk),
    /// Run the official SDKs' test suites against a node and write the results
    Conformance(suites::Conformance),
}

fn main() -> ExitCode {
    if let Some(path) = command::path_with_go() {
        return command::again(&path);
    }
    let outcome = match Arguments::parse().chore {
        Chore::Demo(options) => demo::run(&options),
        Chore::Test(options) => test::run(&options),
        Chore::Plugins(options) => plugins::run_chore(&options),
        Chore::Dist(options) => packaging::run_chore(&options),
        Chore::Monitor(options) => monitor::run_chore(&options),
        Chore::Bench(options) => xtask_bench::run(&options),
        Chore::Sim(options) => sim::run(&options),
        Chore::Chaos(options) => chaos::run(&options),
        Chore::Attack(options) => attack::run(&options),
        Chore::Sdk(options) => sdk::run(&options),
        Chore::Console(options) => console::run(&options),
        Chore::Analytics(options) => analytics::run_chore(&options),
        Chore::Docs(options) => docs::run_chore(&options),
        Chore::Fuzz(options) => fuzz::run(&options),
        Chore::Conformance(options) => suites::run(&options),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("{reason}");
            ExitCode::FAILURE
        }
    }
}
