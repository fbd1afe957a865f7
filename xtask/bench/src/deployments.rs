//! `cargo xtask bench deployments`: the cost of idle deployments, and the remains of ended ones.

use super::{Limit, PORT_BASE};
use std::path::Path;
use std::process::{Command, Stdio};
use xtask_setup::command::run as run_command;
use xtask_setup::node::{self, Node};

const EACH: Limit = Limit { what: "memory of an idle deployment", unit: " MB", max: 5.0 };
const LEFT: Limit = Limit { what: "memory left behind", unit: " MB", max: 10.0 };
const BUCKET: &str = "default";
/// Cycles before memory is first measured: by then, everything that is kept for reuse exists.
const CYCLES_FIRST: usize = 50;

/// Creates deployments all at once, then one after another.
///
/// # Errors
/// Fails when a limit is passed, or a deployment fails.
pub fn run(deployments: usize, cycles: usize) -> Result<(), String> {
    let binary = node::build("release")?;
    let folder = std::env::temp_dir().join(format!("nacre-deployments-{}", std::process::id()));
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut begin = Command::new(&binary);
    begin.current_dir(&folder).args(["plugin", "new", "counts"]).stdout(Stdio::null());
    run_command(&mut begin, "begin a project")?;
    let node = Node::start(&binary, Some(PORT_BASE), &[BUCKET], &[])?;
    let deployer = Deployer { binary: &binary, node: &node, project: &folder.join("counts") };

    // The first one pays for the engine and shared code.
    deployer.deploy("first")?;
    let before = node::memory_bytes(node.id())?;
    for index in 0..deployments {
        deployer.deploy(&format!("idle-{index}"))?;
    }
    let after = node::memory_bytes(node.id())?;
    let each = after.saturating_sub(before) as f64 / deployments as f64 / 1e6;
    for index in 0..deployments {
        deployer.undeploy(&format!("idle-{index}"))?;
    }

    let mut settled = 0;
    for cycle in 0..cycles + CYCLES_FIRST {
        if cycle == CYCLES_FIRST {
            settled = node::memory_bytes(node.id())?;
        }
        deployer.deploy("passing")?;
        deployer.undeploy("passing")?;
    }
    let left = node::memory_bytes(node.id())?.saturating_sub(settled) as f64 / 1e6;
    node.stop()?;
    let _ = std::fs::remove_dir_all(&folder);
    println!(
        "{deployments} deployments of a plugin in JavaScript, then {cycles} one after another"
    );
    EACH.check(each).and(LEFT.check(left))
}

struct Deployer<'a> {
    binary: &'a Path,
    node: &'a Node,
    project: &'a Path,
}

impl Deployer<'_> {
    fn deploy(&self, name: &str) -> Result<(), String> {
        let project = self.project.display().to_string();
        self.node.plugin(self.binary, &["deploy", &project, "--bucket", BUCKET, "--name", name])
    }

    fn undeploy(&self, name: &str) -> Result<(), String> {
        self.node.plugin(self.binary, &["undeploy", name])
    }
}
