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
    /// Load real data into a node, index it with JavaScript views, and show the answers
    Demo(demo::Demo),
    /// Run all tests
    Test(test::Test),
    /// Build the plugins
    Plugins(plugins::Options),
    /// Make what people install: archive, package, image, checksums, bill of materials; and try each
    Dist(packaging::Dist),
    /// Check alert rules and dashboard with Prometheus
    Monitor(monitor::Monitor),
    /// Measure, as ratios to a peer in the same run
    Bench(xtask_bench::Bench),
    /// Put a simulated cluster through faults
    Sim(sim::Sim),
    /// Put real nodes through faults, with an official SDK as their client
    Chaos(chaos::Chaos),
    /// Attack nodes as hostile strangers, users, browsers and neighbours would
    Attack(attack::Attack),
    /// Build the web console and test it in a browser
    Console(console::Console),
    /// Build and test analytics, with an official SDK as its client
    Analytics(analytics::Analytics),
    /// Make the documentation a site with search, and follow its links
    Docs(docs::Docs),
    /// Look for bytes over which decoders fall
    Fuzz(fuzz::Fuzz),
    /// Compare the SDKs with the official ones: what they have, and what programs see
    Sdk(sdk::Sdk),
    /// Run the SDKs' own test suites against a node and write down the results
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
