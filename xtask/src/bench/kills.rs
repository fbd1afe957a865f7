//! `cargo xtask bench kills`: the server's own crash test, for longer.

use super::PORT_BASE;
use crate::command::{cargo, run as run_command, workspace};
use crate::{node, plugins};

/// Kills a node `cycles` times.
///
/// # Errors
/// When something was lost that had been acknowledged as durable, or history went back.
pub fn run(cycles: u64) -> Result<(), String> {
    plugins::build()?;
    let mut tests = cargo();
    tests
        .current_dir(workspace())
        .args(["test", "--quiet", "-p", "nacre-server", "--test", "it", "crash::"])
        .args(["--", "--nocapture"])
        .env("NACRE_PLUGIN_CACHE", node::aot_dir()?)
        .env("NACRE_TEST_PORT_BASE", PORT_BASE.to_string())
        .env("NACRE_KILL_CYCLES", cycles.to_string());
    run_command(&mut tests, &format!("survive {cycles} kills"))
}
