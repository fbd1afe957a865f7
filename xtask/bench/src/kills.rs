//! `cargo xtask bench kills`, `once`, `feeds`, `timers`, `search-kills`, `replication-kills`, `backup-kills` and
//! `backup-moments`: longer runs of the server's crash tests.

use super::PORT_BASE;
use std::path::Path;
use xtask_setup::command::{cargo, run as run_command, workspace};
use xtask_setup::{node, plugins};

/// A test that reads numbers from its environment.
pub struct Endurance {
    tests: &'static str,
    variable: &'static str,
    purpose: &'static str,
}

/// Writes acknowledged as durable exist after a kill, and history never goes back.
pub const KILLS: Endurance =
    Endurance { tests: "crash::", variable: "NACRE_KILL_CYCLES", purpose: "survive the kills" };

/// A plugin processes every document once, despite all disturbances.
pub const ONCE: Endurance = Endurance {
    tests: "exactly_once::",
    variable: "NACRE_ONCE_CYCLES",
    purpose: "take every document once",
};

/// Every feed has every row, although the node is killed while a function fills them.
pub const FEEDS: Endurance = Endurance {
    tests: "eventing::every_feed",
    variable: "NACRE_FEED_USERS",
    purpose: "fill every feed",
};

/// Timers that are due while the node is killed fire once each.
pub const TIMERS: Endurance = Endurance {
    tests: "eventing::timers",
    variable: "NACRE_TIMERS",
    purpose: "fire every timer once",
};

/// A search index has every document once, although its node is killed while it indexes and merges.
pub const SEARCH: Endurance = Endurance {
    tests: "search::a_node_that_was_killed",
    variable: "NACRE_SEARCH_KILLS",
    purpose: "find every document once",
};

/// Two clusters that write, are killed and are cut off from each other have the same documents in the end.
pub const REPLICATION: Endurance = Endurance {
    tests: "xdcr_distance::",
    variable: "NACRE_REPLICATION_KILLS",
    purpose: "reach the same state in both clusters",
};

/// Backups of three nodes that are killed, replaced and rebalanced meanwhile equal the bucket, also in another cluster.
pub const BACKUPS: Endurance = Endurance {
    tests: "backup_cluster::case_02_03",
    variable: "NACRE_BACKUP_KILLS",
    purpose: "restore the previous file",
};

/// A bucket can be restored to any moment for which versions were kept.
pub const MOMENTS: Endurance = Endurance {
    tests: "backup::a_bucket_is_restored_to_any_time",
    variable: "NACRE_BACKUP_MOMENTS",
    purpose: "go back to every moment",
};

impl Endurance {
    /// Runs the test with `count` cycles, users or timers.
    ///
    /// # Errors
    /// Fails when it fails.
    pub fn run(&self, count: u64) -> Result<(), String> {
        self.run_with(count, &[])
    }

    /// Runs the test with another program than the node of this workspace, if one is named.
    ///
    /// # Errors
    /// Fails when the program does not exist or the test fails.
    pub fn run_on(&self, node: Option<&Path>, count: u64) -> Result<(), String> {
        // The tests run in another folder.
        let node = node.map(Path::canonicalize).transpose();
        let node = node.map_err(|error| format!("the node: {error}"))?;
        let node = node.iter().map(|path| ("NACRE_TEST_NODE", path.display().to_string()));
        self.run_with(count, &node.collect::<Vec<_>>())
    }

    /// Runs the test with additional environment variables.
    ///
    /// # Errors
    /// Fails when it fails.
    pub fn run_with(&self, count: u64, more: &[(&str, String)]) -> Result<(), String> {
        plugins::build()?;
        let mut tests = cargo();
        tests
            .current_dir(workspace())
            .args(["test", "--quiet", "-p", "nacre-server", "--test", "it", self.tests])
            .args(["--", "--nocapture"])
            .env("NACRE_PLUGIN_CACHE", node::aot_dir()?)
            .env("NACRE_TEST_PORT_BASE", PORT_BASE.to_string())
            .env(self.variable, count.to_string())
            .envs(more.iter().map(|(name, value)| (name, value)));
        run_command(&mut tests, self.purpose)
    }
}
