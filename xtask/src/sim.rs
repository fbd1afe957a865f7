//! `cargo xtask sim`: a cluster in one thread, under faults that a seed decides.

use crate::command::{cargo, run as run_command, workspace};
use clap::Args;
use std::time::Instant;

/// Options of `cargo xtask sim`.
#[derive(Args)]
pub struct Sim {
    /// How many seeds to go through, from 0 on
    #[arg(long, default_value_t = 300, conflicts_with = "seed")]
    seeds: u64,
    /// One seed alone
    #[arg(long)]
    seed: Option<u64>,
}

/// Goes through the seeds.
///
/// # Errors
/// The first seed at which something was lost, with what happened before.
pub fn run(options: &Sim) -> Result<(), String> {
    let mut tests = cargo();
    tests
        .current_dir(workspace())
        .args(["test", "--quiet", "--release", "-p", "nacre-node", "--test", "it"])
        .args(["--", "--nocapture", "simulation::"]);
    match options.seed {
        Some(seed) => tests.env("NACRE_SIM_SEED", seed.to_string()),
        None => tests.env("NACRE_SIM_SEEDS", options.seeds.to_string()),
    };
    let begun = Instant::now();
    run_command(&mut tests, "go through all seeds")?;
    println!("{:.0} s, building included", begun.elapsed().as_secs_f64());
    Ok(())
}
