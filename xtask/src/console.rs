//! `cargo xtask console`: builds the web console and tests it in a browser.

use clap::Args;
use std::path::{Path, PathBuf};
use std::process::Command;
use xtask_setup::command::{run as run_command, workspace};
use xtask_setup::node::{self, Node};

/// Options of `cargo xtask console`.
#[derive(Args, Debug)]
pub struct Console {
    /// Only build it
    #[arg(long)]
    build: bool,
    /// Renew the screenshots of the manual
    #[arg(long)]
    shots: bool,
    /// Build profile of the server
    #[arg(long, default_value = "release")]
    profile: String,
}

/// Ports of the nodes of the tests, the first of which has no administrator yet: far from the defaults and from those of other
/// chores.
const PORT_BASES: [u16; 3] = [19_700, 19_740, 19_780];

/// Builds the console and a node with it, and tests both in a browser.
///
/// # Errors
/// Reports what is missing, does not build, or fails.
pub fn run(options: &Console) -> Result<(), String> {
    build()?;
    if options.build {
        return Ok(());
    }
    unit()?;
    browser(None, options.shots)?;
    let binary = node::build(&options.profile)?;
    browser(Some(&binary), options.shots)
}

fn folder() -> PathBuf {
    workspace().join("console")
}

fn npm(arguments: &[&str]) -> Command {
    let mut npm = Command::new("npm");
    npm.args(arguments).current_dir(folder());
    npm
}

/// Installs the packages of `console/package-lock.json`, checks the sources and builds them into `console/dist`.
fn build() -> Result<(), String> {
    let locked = std::fs::read(folder().join("package-lock.json")).unwrap_or_default();
    let marker = folder().join("node_modules/.installed");
    if std::fs::read(&marker).unwrap_or_default() != locked {
        // Not `ci`: Vite names an optional package for another system that is in no registry, and newer versions of npm refuse a
        // lock file without it. `install` also uses the locked versions, and writes nothing.
        run_command(
            &mut npm(&[
                "install",
                "--no-save",
                "--silent",
                "--no-audit",
                "--no-fund",
                "--ignore-scripts",
            ]),
            "install the packages of the console (this needs npm of Node 20 or later and a package registry)",
        )?;
        std::fs::write(&marker, locked)
            .map_err(|error| format!("cannot write {}: {error}", marker.display()))?;
    }
    run_command(&mut npm(&["run", "--silent", "check"]), "find the console's sources right")?;
    run_command(&mut npm(&["run", "--silent", "build"]), "build the console")
}

fn unit() -> Result<(), String> {
    run_command(&mut npm(&["run", "--silent", "unit"]), "pass the console's tests")
}

/// Tests the built console in Chromium, with a simulated node or with `binary`.
fn browser(binary: Option<&Path>, shots: bool) -> Result<(), String> {
    let mut tests = Command::new("node");
    tests.current_dir(folder()).args(["--test", "--test-reporter=spec"]);
    let Some(binary) = binary else {
        return run_command(tests.arg("tests/states.test.mjs"), HOLDS);
    };
    let [first, others @ ..] = PORT_BASES;
    let node = Node::start_unclaimed(binary, first)?;
    let others = others.map(|base| Node::start(binary, Some(base), &[], &[]));
    let others = others.into_iter().collect::<Result<Vec<_>, _>>()?;
    let addresses: Vec<String> = others.iter().map(Node::address).collect();
    tests.arg("tests/real.test.mjs");
    tests.env("NACRE_URL", format!("http://{}", node.address()));
    tests.env("NACRE_OTHERS", addresses.join(","));
    tests.env("NACRE_PID", node.id().to_string());
    tests.env("NACRE_BINARY", binary);
    if shots {
        tests.env("NACRE_SHOTS", "1");
    }
    run_command(&mut tests, HOLDS)
}

const HOLDS: &str = "hold in a browser (Chromium is needed: `apt-get install chromium`, or name it in NACRE_CHROMIUM)";
