//! The operations of the official Java SDK in `conformance/sdk/java/operations`.

use super::limit;
use super::report::Report;
use super::{BUCKET, Prepared, SIZES, folder, python, write};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;
use xtask_setup::command::{run, workspace};
use xtask_setup::node::{Node, PASSWORD, USER};
use xtask_setup::tools;

/// Version 3.12.2 lacks a required library.
const VERSION: &str = "3.12.1";
const LIMIT: Duration = Duration::from_secs(900);

/// The compiled program with its libraries, and the kind of its connections.
pub(super) struct Operations {
    class_path: String,
    encrypted: bool,
}

/// Installs the SDK and compiles the program, which connects with TLS if `encrypted`.
pub(super) fn prepare(encrypted: bool) -> Result<Operations, String> {
    let name = format!("java-client-{VERSION}");
    let archives = tools::java(&name, &[&format!("com.couchbase.client:java-client:{VERSION}")])?;
    let classes = folder()?.join("java-operations");
    let class_path = format!("{}:{}/*", classes.display(), archives.display());
    let mut compile = Command::new("javac");
    compile.args(["-nowarn", "-cp", &class_path, "-d"]).arg(&classes);
    compile.args(sources()?);
    run(&mut compile, "compile the operations (a Java development kit is needed)")?;
    Ok(Operations { class_path, encrypted })
}

fn sources() -> Result<Vec<PathBuf>, String> {
    let folder = workspace().join("conformance/sdk/java/operations");
    let failed = |error: std::io::Error| format!("cannot read {}: {error}", folder.display());
    let entries = std::fs::read_dir(&folder).map_err(failed)?;
    entries.map(|entry| Ok(entry.map_err(failed)?.path())).collect()
}

impl Prepared for Operations {
    fn nodes(&self) -> &'static [usize] {
        if self.encrypted { &[1] } else { &SIZES }
    }

    fn run(&self, node: &Node, nodes: usize) -> Result<Report, String> {
        let mut command = Command::new("java");
        command.args(["-cp", &self.class_path, "Operations"]);
        if self.encrypted {
            let certificate = folder()?.join("java-ca.pem");
            let answer = node.rest("GET", "/pools/default/certificate", &[])?;
            write(&certificate, &answer.text())?;
            command.args(["couchbases://127.0.0.1", USER, PASSWORD, BUCKET]).arg(certificate);
        } else {
            command.args(["couchbase://127.0.0.1", USER, PASSWORD, BUCKET, "-"]);
        }
        let (end, output) = limit::run(&mut command, LIMIT, &folder()?.join("java.log"))?;
        let (title, suite) = match self.encrypted {
            true => ("Java SDK over TLS, operations", "java-tls"),
            false => ("Java SDK, operations", "java"),
        };
        Ok(Report {
            title: title.into(),
            version: format!("java-client {VERSION}"),
            command: format!("cargo xtask conformance --only {suite}"),
            nodes,
            remarks: Vec::new(),
            is_ours: true,
            tests: python::tests(&end, &output),
        })
    }
}
