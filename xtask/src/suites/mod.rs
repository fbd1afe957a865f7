//! `cargo xtask conformance`: other people's test suites, and our own cases, against nodes on the default ports.
//!
//! The suites ship in the packages of the SDKs. They are installed into the folder for tools and run from there; none
//! of their files comes into the repository. What they find is written into [`PAGE`], the failures included.

mod cluster;
mod go;
pub(crate) mod java;
mod limit;
mod ours;
mod page;
mod python;
mod report;
mod rust;

use crate::command::workspace;
use crate::node::{self, Node};
use crate::tools;
use clap::{Args, ValueEnum};
use cluster::Cluster;
use report::Report;
use std::path::PathBuf;

/// The page that the table is written into, from the workspace.
const PAGE: &str = "docs/reference/compatibility.md";
/// The bucket that the suites use.
const BUCKET: &str = "default";
/// The version that the node states. Suites conclude from it what to expect.
const STATED_VERSION: &str = "7.6.4";

/// Options of `cargo xtask conformance`.
#[derive(Args, Debug)]
pub struct Conformance {
    /// Run only this suite, and print its result instead of writing the page
    #[arg(long)]
    only: Option<Suite>,
    /// A server to run instead of the one of this workspace
    #[arg(long, value_name = "PATH")]
    node: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Suite {
    /// The tests of the Rust SDK
    Rust,
    /// The tests of the core of the Go SDK
    Gocbcore,
    /// Its tests of DCP
    GocbcoreDcp,
    /// The tests of the Go SDK
    Gocb,
    /// The DCP client for Java
    JavaDcp,
    /// Every operation of the Python SDK
    Python,
    /// The same over TLS
    PythonTls,
    /// The cases of this project
    Ours,
}

/// A suite that is installed and compiled.
trait Prepared {
    /// How many nodes it runs against.
    fn nodes(&self) -> usize {
        1
    }

    /// Runs all its tests against the node, and those in its cluster.
    fn run(&self, node: &Node) -> Result<Report, String>;
}

/// Runs the suites and writes what came of them.
///
/// # Errors
/// When a suite cannot run, or a test of ours fails. Failures of third-party tests are results.
pub fn run(options: &Conformance) -> Result<(), String> {
    let wanted = |suite: &Suite| options.only.is_none_or(|only| only == *suite);
    let binary = match &options.node {
        Some(path) => path.clone(),
        None => node::build("dev")?,
    };
    // All is installed and compiled before there is a node, so that none of it disturbs a test's timing.
    let mut suites: Vec<Box<dyn Prepared>> = Vec::new();
    for suite in Suite::value_variants().iter().filter(|suite| wanted(suite)) {
        suites.push(match suite {
            Suite::Rust => Box::new(rust::prepare()?),
            Suite::Gocbcore => Box::new(go::prepare(&go::CORE, &binary)?),
            Suite::GocbcoreDcp => Box::new(go::prepare(&go::DCP, &binary)?),
            Suite::Gocb => Box::new(go::prepare(&go::SDK, &binary)?),
            Suite::JavaDcp => Box::new(java::prepare(&binary)?),
            Suite::Python => Box::new(python::prepare(false)?),
            Suite::PythonTls => Box::new(python::prepare(true)?),
            Suite::Ours => Box::new(ours::Cases),
        });
    }
    let mut reports = Vec::new();
    for suite in &suites {
        // Each suite gets nodes of its own: one's documents must not turn up in another's counts.
        let cluster = Cluster::start(&binary, suite.nodes())?;
        let node = cluster.first();
        // Suites find fault with metrics of a cluster without a name.
        node.rest("POST", "/pools/default", &[("clusterName", "nacre")])?;
        let report = suite.run(node)?;
        cluster.stop()?;
        println!("{}", report.summary());
        reports.push(report);
    }
    let text = page::render(&reports);
    if options.only.is_some() {
        println!("\n{text}");
    } else {
        page::write(&workspace().join(PAGE), &text)?;
        println!("written into {PAGE}");
    }
    match reports.iter().find(|report| report.is_ours && report.failed() > 0) {
        Some(report) => Err(format!("{}: {} failed", report.title, report.failed())),
        None => Ok(()),
    }
}

/// Runs the tests of analytics that ship in the Go SDK, against a node with these services.
///
/// # Errors
/// When the suite cannot run, or a test fails.
pub(crate) fn analytics(
    binary: &std::path::Path,
    wrapper: &[String],
    services: &str,
) -> Result<(), String> {
    let suite = go::prepare(&go::ANALYTICS, binary)?;
    let wrapper: Vec<&str> = wrapper.iter().map(String::as_str).collect();
    let node = Node::start(binary, None, &[BUCKET], &wrapper)?;
    node.rest("POST", "/pools/default", &[("clusterName", "nacre")])?;
    let answer = node.rest("POST", "/node/controller/setupServices", &[("services", services)])?;
    if answer.status != 200 {
        return Err(format!("cannot give the node its services: {}", answer.text()));
    }
    let report = suite.run(&node)?;
    node.stop()?;
    println!("{}", report.summary());
    println!("{}", page::render(std::slice::from_ref(&report)));
    match report.failed() {
        0 => Ok(()),
        failed => Err(format!("{}: {failed} failed", report.title)),
    }
}

/// Where the suites are unpacked and compiled.
fn folder() -> Result<PathBuf, String> {
    let folder = tools::dir()?.join("suites");
    std::fs::create_dir_all(&folder)
        .map_err(|error| format!("cannot make {}: {error}", folder.display()))?;
    Ok(folder)
}

/// Writes a file of a suite's folder.
fn write(path: &std::path::Path, text: &str) -> Result<(), String> {
    std::fs::write(path, text).map_err(|error| format!("cannot write {}: {error}", path.display()))
}

/// Copies the folder of an installed package to where it may be changed and compiled.
fn copy_package(from: &std::path::Path, to: &std::path::Path) -> Result<(), String> {
    let failed = |error: std::io::Error| {
        format!("cannot copy {} to {}: {error}", from.display(), to.display())
    };
    std::fs::create_dir_all(to).map_err(failed)?;
    for entry in std::fs::read_dir(from).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let target = to.join(entry.file_name());
        if entry.file_type().map_err(failed)?.is_dir() {
            copy_package(&entry.path(), &target)?;
        } else {
            // Package caches are read-only, and a copy of the permissions would be, too: copy only what is inside.
            let bytes = std::fs::read(entry.path()).map_err(failed)?;
            std::fs::write(&target, bytes).map_err(failed)?;
        }
    }
    Ok(())
}
