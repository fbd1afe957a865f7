//! `cargo xtask conformance`: third-party test suites and our own cases, against nodes on the default ports.
//!
//! The suites are part of the SDKs' packages. They are installed into the folder for tools and run there; none of
//! their files are copied into the repository. Their results, including failures, are written into [`PAGE`].

mod client;
mod cluster;
mod go;
pub(crate) mod java;
mod limit;
mod ours;
mod page;
mod python;
mod report;
mod rust;

use clap::{Args, ValueEnum};
use cluster::Cluster;
use report::Report;
use std::path::{Path, PathBuf};
use xtask_setup::command::workspace;
use xtask_setup::node::{self, Node};
use xtask_setup::tools;

/// The page with the results, relative to the workspace.
const PAGE: &str = "docs/reference/compatibility.md";
/// The bucket that the suites use.
const BUCKET: &str = "default";
/// Sizes of the clusters that suites run against.
const SIZES: [usize; 2] = [1, 3];
/// The version that the node reports. Suites conclude from it what to expect.
const STATED_VERSION: &str = "7.6.4";

/// Options of `cargo xtask conformance`.
#[derive(Args, Debug)]
pub struct Conformance {
    /// Run only this suite, and print its result instead of writing the page
    #[arg(long)]
    only: Option<Suite>,
    /// Run suites only on so many nodes, 1 or 3, and print their results
    #[arg(long, value_name = "COUNT")]
    nodes: Option<usize>,
    /// Write the page even if some results are from earlier runs
    #[arg(long)]
    write: bool,
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
    /// The operations of the Java SDK
    Java,
    /// The same over TLS
    JavaTls,
    /// Every operation of the Python SDK
    Python,
    /// The same over TLS
    PythonTls,
    /// The cases of this project
    Ours,
}

/// A suite that is installed and compiled.
trait Prepared {
    /// Returns the sizes of the clusters that it runs against, one after the other.
    fn nodes(&self) -> &'static [usize] {
        &[1]
    }

    /// Runs all its tests against a cluster of `nodes` nodes, the first of which is `node`.
    fn run(&self, node: &Node, nodes: usize) -> Result<Report, String>;
}

/// Runs the suites and writes their results.
///
/// # Errors
/// Fails when a suite cannot run, or a test of ours fails. Failures of third-party tests are results.
pub fn run(options: &Conformance) -> Result<(), String> {
    let wanted = |suite: &Suite| options.only.is_none_or(|only| only == *suite);
    let binary = match &options.node {
        Some(path) => path.clone(),
        None => node::build("dev")?,
    };
    // Everything is installed and compiled before a node is started, so that it does not disturb the timing of tests.
    let mut suites: Vec<(Suite, Box<dyn Prepared>)> = Vec::new();
    for suite in Suite::value_variants().iter().filter(|suite| wanted(suite)) {
        suites.push((*suite, prepare(*suite, &binary)?));
    }
    let mut reports = Vec::new();
    for (name, suite) in &suites {
        let sizes = suite.nodes().iter().filter(|size| options.nodes.is_none_or(|n| n == **size));
        for size in sizes {
            // Each suite gets separate nodes, so that documents of one do not appear in the counts of another.
            let cluster = Cluster::start(&binary, *size)?;
            let node = cluster.first();
            // Suites refuse metrics of a cluster without a name.
            node.rest("POST", "/pools/default", &[("clusterName", "nacre")])?;
            let report = suite.run(node, *size)?;
            cluster.stop()?;
            println!("{}", report.summary());
            keep(*name, *size, &report)?;
            reports.push(report);
        }
    }
    if options.write {
        reports = kept()?;
    }
    let text = page::render(&reports);
    if options.write || (options.only.is_none() && options.nodes.is_none()) {
        page::write(&workspace().join(PAGE), &text)?;
        println!("written into {PAGE}");
    } else {
        println!("\n{text}");
    }
    match reports.iter().find(|report| report.is_ours && report.failed() > 0) {
        Some(report) => Err(format!("{}: {} failed", report.title, report.failed())),
        None => Ok(()),
    }
}

/// Runs the analytics tests of the Go SDK, against a node with that service.
///
/// # Errors
/// Fails when the suite cannot run, or a test fails.
pub(crate) fn analytics(binary: &std::path::Path, wrapper: &[String]) -> Result<(), String> {
    let suite = go::prepare(&go::ANALYTICS, binary)?;
    let wrapper: Vec<&str> = wrapper.iter().map(String::as_str).collect();
    let node = Node::start(binary, None, &[], &wrapper)?;
    node.rest("POST", "/pools/default", &[("clusterName", "nacre")])?;
    crate::analytics::give_services(&node, BUCKET, crate::analytics::BUCKET_MB)?;
    let report = suite.run(&node, 1)?;
    node.stop()?;
    println!("{}", report.summary());
    println!("{}", page::render(std::slice::from_ref(&report)));
    match report.failed() {
        0 => Ok(()),
        failed => Err(format!("{}: {failed} failed", report.title)),
    }
}

fn prepare(suite: Suite, binary: &Path) -> Result<Box<dyn Prepared>, String> {
    Ok(match suite {
        Suite::Rust => Box::new(rust::prepare()?),
        Suite::Gocbcore => Box::new(go::prepare(&go::CORE, binary)?),
        Suite::GocbcoreDcp => Box::new(go::prepare(&go::DCP, binary)?),
        Suite::Gocb => Box::new(go::prepare(&go::SDK, binary)?),
        Suite::JavaDcp => Box::new(java::prepare(binary)?),
        Suite::Java => Box::new(client::prepare(false)?),
        Suite::JavaTls => Box::new(client::prepare(true)?),
        Suite::Python => Box::new(python::prepare(false)?),
        Suite::PythonTls => Box::new(python::prepare(true)?),
        Suite::Ours => Box::new(ours::Cases),
    })
}

/// Returns the file with the last results of a suite.
fn results(suite: Suite, nodes: usize) -> Result<PathBuf, String> {
    Ok(folder()?.join(format!("results-{suite:?}-{nodes}.json")))
}

fn keep(suite: Suite, nodes: usize, report: &Report) -> Result<(), String> {
    let text = serde_json::to_string(report).map_err(|error| error.to_string())?;
    write(&results(suite, nodes)?, &text)
}

/// Returns the last results of all suites.
///
/// # Errors
/// Fails when a suite has no results.
fn kept() -> Result<Vec<Report>, String> {
    let mut reports = Vec::new();
    for suite in Suite::value_variants() {
        for nodes in SIZES {
            let path = results(*suite, nodes)?;
            match std::fs::read(&path) {
                Ok(bytes) => reports.push(
                    serde_json::from_slice(&bytes)
                        .map_err(|error| format!("{}: {error}", path.display()))?,
                ),
                Err(_) if nodes > 1 => {}
                Err(error) => return Err(format!("{}: {error}: run the suite", path.display())),
            }
        }
    }
    Ok(reports)
}

/// Returns the folder where the suites are unpacked and compiled.
fn folder() -> Result<PathBuf, String> {
    let folder = tools::dir()?.join("suites");
    std::fs::create_dir_all(&folder)
        .map_err(|error| format!("cannot make {}: {error}", folder.display()))?;
    Ok(folder)
}

/// Writes a file into a suite's folder.
fn write(path: &Path, text: &str) -> Result<(), String> {
    std::fs::write(path, text).map_err(|error| format!("cannot write {}: {error}", path.display()))
}

/// Copies the folder of an installed package to a folder where it may be changed and compiled.
fn copy_package(from: &Path, to: &Path) -> Result<(), String> {
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
            // Package caches are read-only: copying permissions would make the copy read-only, too.
            let bytes = std::fs::read(entry.path()).map_err(failed)?;
            std::fs::write(&target, bytes).map_err(failed)?;
        }
    }
    Ok(())
}
