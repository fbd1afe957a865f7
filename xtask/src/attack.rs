//! `cargo xtask attack`: attacks nodes like hostile strangers, users, browsers and neighbours, and checks that they
//! withstand.

use clap::Args;
use std::path::Path;
use std::process::Command;
use xtask_setup::command::{run as run_command, workspace};
use xtask_setup::node;

/// Options of `cargo xtask attack`.
#[derive(Args)]
pub struct Attack {
    /// Run only the cases whose group or name contains this
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Skip the cases that need much time or memory
    #[arg(long)]
    short: bool,
    /// Build profile of the server
    #[arg(long, default_value = "release")]
    profile: String,
}

/// Builds a node and runs the cases in `conformance/attacks` against it.
///
/// # Errors
/// Reports what does not compile, or that a case failed.
pub fn run(options: &Attack) -> Result<(), String> {
    let binary = node::build(&options.profile)?;
    attack(&binary, options.short, options.only.as_deref())
}

/// Runs the cases against `binary`: all of them, or without the slow ones.
///
/// # Errors
/// Fails when a case fails.
pub fn attack(binary: &Path, short: bool, only: Option<&str>) -> Result<(), String> {
    let mut attacks = Command::new("python3");
    attacks
        .args(["-m", "attacks", "--binary"])
        .arg(binary)
        .arg("--plugin-cache")
        .arg(node::aot_dir()?)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .current_dir(workspace().join("conformance"));
    if short {
        attacks.arg("--short");
    }
    if let Some(only) = only {
        attacks.args(["--only", only]);
    }
    run_command(&mut attacks, "hold against each attack (Python 3.11 is needed)")
}
