//! Every operation of the official Python SDK, in `conformance/sdk/python`.

use super::limit::{self, End};
use super::report::{Outcome, Report, Test};
use super::{BUCKET, Prepared, SIZES, folder, write};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;
use xtask_setup::command::workspace;
use xtask_setup::node::{Node, PASSWORD, USER};
use xtask_setup::tools;

const VERSION: &str = "4.6.3";
const LIMIT: Duration = Duration::from_secs(900);

/// The interpreter of an environment with the SDK, and the kind of its connections.
pub(super) struct Operations {
    python: PathBuf,
    encrypted: bool,
}

/// Installs the SDK, which connects with TLS if `encrypted`.
pub(super) fn prepare(encrypted: bool) -> Result<Operations, String> {
    let package = format!("couchbase=={VERSION}");
    let python = tools::python(&format!("python-sdk-{VERSION}"), &[&package])?;
    Ok(Operations { python, encrypted })
}

impl Prepared for Operations {
    fn nodes(&self) -> &'static [usize] {
        if self.encrypted { &[1] } else { &SIZES }
    }

    fn run(&self, node: &Node, nodes: usize) -> Result<Report, String> {
        let mut command = Command::new(&self.python);
        command
            .arg(workspace().join("conformance/sdk/python/operations.py"))
            .args(["--table", "--user", USER, "--password", PASSWORD, "--bucket", BUCKET])
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("PYTHONUNBUFFERED", "1");
        if self.encrypted {
            let certificate = folder()?.join("python-ca.pem");
            let answer = node.rest("GET", "/pools/default/certificate", &[])?;
            write(&certificate, &answer.text())?;
            command.args(["--connection-string", "couchbases://127.0.0.1", "--certificate"]);
            command.arg(certificate);
        }
        let (end, output) = limit::run(&mut command, LIMIT, &folder()?.join("python.log"))?;
        let tests = tests(&end, &output);
        Ok(Report {
            title: match self.encrypted {
                true => "Python SDK over TLS, every operation".into(),
                false => "Python SDK, every operation".into(),
            },
            version: format!("couchbase {VERSION}"),
            command: match self.encrypted {
                true => "cargo xtask conformance --only python-tls".into(),
                false => "cargo xtask conformance --only python".into(),
            },
            nodes,
            remarks: Vec::new(),
            is_ours: true,
            tests,
        })
    }
}

/// Returns the tests of a program that prints a line for each and their number at the end.
pub(super) fn tests(end: &End, output: &str) -> Vec<Test> {
    let mut tests = parse(output);
    if !output.lines().any(|line| line.ends_with(" failed")) {
        let what = match end {
            End::Killed => "did not end within its time",
            End::Exited { .. } => output.lines().last().unwrap_or("ended without a word"),
        };
        tests.push(Test { name: "the run".into(), outcome: Outcome::Failed(what.into()) });
    }
    tests
}

/// Parses lines `ok   name` and `FAIL name: message`.
fn parse(output: &str) -> Vec<Test> {
    let test = |line: &str| {
        let (word, rest) = line.split_once(' ')?;
        let (name, outcome) = match word {
            "ok" => (rest.trim(), Outcome::Passed),
            "FAIL" => {
                let (name, said) = rest.split_once(": ")?;
                (name, Outcome::Failed(said.to_owned()))
            }
            _ => return None,
        };
        Some(Test { name: name.to_owned(), outcome })
    };
    output.lines().filter_map(test).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_of_the_script_become_tests() {
        let tests = parse("ok   a/b\nFAIL a/c: line 3 (x): E y: z\n1 passed, 1 failed\n");
        assert_eq!(tests[0], Test { name: "a/b".into(), outcome: Outcome::Passed });
        let said = "line 3 (x): E y: z".to_owned();
        assert_eq!(tests[1], Test { name: "a/c".into(), outcome: Outcome::Failed(said) });
        assert_eq!(tests.len(), 2);
    }
}
