//! `cargo xtask analytics`: builds the process of analytics, tests it, and puts it behind a node with an official SDK as its client.
//!
//! Its workspace is one of its own, so that nothing else compiles its engine.

use crate::command::{cargo, output, run, workspace};
use crate::node::{self, Node, PASSWORD, USER};
use crate::tools;
use clap::Args;
use std::path::PathBuf;
use std::process::Command;

/// Bucket of the SDK's run.
const BUCKET: &str = "shells";
/// Services of the node.
const SERVICES: &str = "kv,n1ql,index,cbas";
const SDK: &str = "couchbase==4.6.3";
const DUCKDB: &str = "duckdb==2.0.1";
/// First of the ports of the node.
const PORT_BASE: u16 = 9700;

/// Options of `cargo xtask analytics`.
#[derive(Args, Clone, Debug)]
pub struct Analytics {
    /// Build the program and say where it is
    #[arg(long)]
    build: bool,
    /// Compare the answers to the queries of CH2 with those of DuckDB
    #[arg(long)]
    ch2: bool,
    /// How all of it is built
    #[arg(long, default_value = "dev")]
    profile: String,
}

/// Runs the chore.
///
/// # Errors
/// The first step that fails, in one line.
pub fn run_chore(options: &Analytics) -> Result<(), String> {
    let program = build(&options.profile)?;
    if options.build {
        println!("{}", program.display());
        return Ok(());
    }
    if options.ch2 {
        return compare(&options.profile);
    }
    run(of_analytics("test").args(["--profile", &options.profile]), "test analytics")?;
    with_sdk(&options.profile, &program)
}

/// A command of cargo in the workspace of analytics.
fn of_analytics(command: &str) -> Command {
    let mut cargo = cargo();
    cargo.arg(command).arg("--manifest-path").arg(workspace().join("server/analytics/Cargo.toml"));
    // The variables that unify features apply to the node's workspace, not to this one.
    cargo.env_remove("CARGO_RESOLVER_FEATURE_UNIFICATION");
    cargo.env_remove("CARGO_UNSTABLE_FEATURE_UNIFICATION");
    cargo
}

fn build(profile: &str) -> Result<PathBuf, String> {
    run(of_analytics("build").args(["--profile", profile, "--bins"]), "build analytics")?;
    let metadata = output(
        of_analytics("metadata").args(["--no-deps", "--format-version", "1"]),
        "ask cargo where it builds analytics",
    )?;
    let metadata: serde_json::Value = serde_json::from_str(&metadata)
        .map_err(|error| format!("cannot read cargo metadata: {error}"))?;
    let target = metadata["target_directory"].as_str().ok_or("cargo names no target directory")?;
    let folder = if profile == "dev" { "debug" } else { profile };
    Ok(PathBuf::from(target).join(folder).join("nacre-analytics"))
}

/// Starts a node with analytics and plays the SDK's cases.
fn with_sdk(profile: &str, program: &std::path::Path) -> Result<(), String> {
    let python = tools::python("python-analytics", &[SDK])?;
    let binary = node::build(profile)?;
    // The node looks for the program there, as it may be built elsewhere.
    let named = format!("NACRE_ANALYTICS={}", program.display());
    let node = Node::start(&binary, Some(PORT_BASE), &[BUCKET], &["env", &named])?;
    let answer = node.rest("POST", "/node/controller/setupServices", &[("services", SERVICES)])?;
    if answer.status != 200 {
        return Err(format!("cannot give the node its services: {}", answer.text()));
    }
    let mut sdk = Command::new(python);
    sdk.arg(workspace().join("conformance/sdk/python/analytics.py"))
        .args(["--connection", &format!("couchbase://127.0.0.1:{}", node.kv_port())])
        .args(["--user", USER, "--password", PASSWORD, "--bucket", BUCKET])
        .env("PYTHONDONTWRITEBYTECODE", "1");
    run(&mut sdk, "play the cases of the Python SDK")
}

/// Runs CH2 over one warehouse and compares the answers with those of DuckDB.
fn compare(profile: &str) -> Result<(), String> {
    let python = tools::python("python-duckdb", &[DUCKDB])?;
    let folder = std::env::temp_dir().join(format!("nacre-ch2-{}", std::process::id()));
    let example = ["--profile", profile, "-p", "nacre-analytics", "--example", "ch2", "--"];
    let ran = run(of_analytics("run").args(example).arg(&folder), "run the queries of CH2")
        .and_then(|()| {
            let script = workspace().join("server/analytics/nacre-ch2/compare.py");
            run(
                Command::new(python).arg(script).arg(&folder),
                "compare the answers with those of DuckDB",
            )
        });
    let _ = std::fs::remove_dir_all(&folder);
    ran
}
