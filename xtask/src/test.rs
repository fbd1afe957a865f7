//! `cargo xtask test`: everything that must hold, on a machine with nothing but the language tools.

use crate::command::{cargo, run as run_command};
use crate::demo::{self, Demo};
use crate::node::{self, Node, PASSWORD, USER};
use crate::{plugins, tools};
use clap::Args;

/// Options of `cargo xtask test`.
#[derive(Args, Debug)]
pub struct Test {
    /// Only the tests in Rust
    #[arg(long)]
    rust_only: bool,
}

/// Ports of the nodes that the steps start: far from the defaults and from each other.
const DEMO_PORT_BASE: u16 = 19_100;
const CASES_PORT_BASE: u16 = 19_200;

/// Runs all tests.
///
/// # Errors
/// The first step that failed.
pub fn run(options: &Test) -> Result<(), String> {
    step("format", || {
        run_command(
            cargo().args(["fmt", "--all", "--check"]),
            "find everything formatted: run `cargo fmt`",
        )
    })?;
    step("plugins", || plugins::build().map(|_| ()))?;
    step("lints", || {
        let mut clippy = cargo();
        clippy.args(["clippy", "--quiet", "--workspace", "--all-targets", "--", "-D", "warnings"]);
        run_command(&mut clippy, "pass the lints")
    })?;
    step("rust", || {
        let mut tests = cargo();
        tests
            .args(["test", "--workspace"])
            .env("INSTA_UPDATE", "no")
            .env("NACRE_PLUGIN_CACHE", tools::dir()?.join("aot"));
        run_command(&mut tests, "pass the tests in Rust")
    })?;
    if options.rust_only {
        return Ok(());
    }
    step("demo", || demo::run(&Demo { once: true, port_base: Some(DEMO_PORT_BASE) }))?;
    let binary = node::build("dev")?;
    step("conformance cases", || {
        let node = Node::start(&binary, Some(CASES_PORT_BASE), &["default"], &[])?;
        node.put_design(
            "default",
            "warm_up",
            r#"{"views": {"all": {"map": "function (doc) {}"}}}"#,
        )?;
        let mut cases = cargo();
        cases.args(["run", "--quiet", "-p", "nacre-conformance", "--", "--host", "127.0.0.1"]);
        cases.args([
            "--kv-port",
            &node.kv_port().to_string(),
            "--mgmt-port",
            &node.mgmt_port().to_string(),
        ]);
        cases.args([
            "--views-port",
            &node.views_port().to_string(),
            "--user",
            USER,
            "--password",
            PASSWORD,
        ]);
        cases.args(["--bucket", "default"]);
        run_command(&mut cases, "pass the conformance cases")?;
        node.stop()
    })?;
    println!("\nall steps passed");
    Ok(())
}

fn step(name: &str, work: impl FnOnce() -> Result<(), String>) -> Result<(), String> {
    let begun = std::time::Instant::now();
    println!("== {name}");
    work().map_err(|reason| format!("{name}: {reason}"))?;
    println!("== {name}: {:.0} s", begun.elapsed().as_secs_f64());
    Ok(())
}
