//! `cargo xtask bench kills` and `once`: the server's own crash tests, for longer.

use super::PORT_BASE;
use crate::command::{cargo, run as run_command, workspace};
use crate::{node, plugins};

/// A test that takes a number of cycles from its environment.
pub struct Endurance {
    tests: &'static str,
    variable: &'static str,
    purpose: &'static str,
}

/// What was acknowledged as durable is there after a kill, and history never goes back.
pub const KILLS: Endurance =
    Endurance { tests: "crash::", variable: "NACRE_KILL_CYCLES", purpose: "survive the kills" };

/// A plugin takes every document once, whatever disturbs it.
pub const ONCE: Endurance = Endurance {
    tests: "exactly_once::",
    variable: "NACRE_ONCE_CYCLES",
    purpose: "take every document once",
};

impl Endurance {
    /// Runs the test with so many cycles.
    ///
    /// # Errors
    /// When it fails.
    pub fn run(&self, cycles: u64) -> Result<(), String> {
        plugins::build()?;
        let mut tests = cargo();
        tests
            .current_dir(workspace())
            .args(["test", "--quiet", "-p", "nacre-server", "--test", "it", self.tests])
            .args(["--", "--nocapture"])
            .env("NACRE_PLUGIN_CACHE", node::aot_dir()?)
            .env("NACRE_TEST_PORT_BASE", PORT_BASE.to_string())
            .env(self.variable, cycles.to_string());
        run_command(&mut tests, self.purpose)
    }
}
