//! The standard suite of gocbcore, the core of the Go SDK.

use super::limit;
use super::report::{Outcome, Reasons, Report, Test, explain};
use super::{BUCKET, Prepared, STATED_VERSION, copy_package, folder};
use crate::command::{output, run};
use crate::node::{Node, PASSWORD, USER};
use crate::tools;
use std::collections::HashMap;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

const MODULE: &str = "github.com/couchbase/gocbcore/v10";
const VERSION: &str = "v10.8.1";
const LIMIT: Duration = Duration::from_secs(600);
const SUITE: &str = "TestStandardSuite";

/// Features that the suite is told not to test, by its own flags.
const ABSENT: [&str; 9] = [
    "n1ql",
    "cbas",
    "fts",
    "memd",
    "ssl",
    "replicas",
    "subdocreplicas",
    "computeunits",
    "nodeuuid",
];

/// What the suite says when it leaves out a feature, and why the feature is absent.
const FEATURE_REASONS: Reasons = &[
    ("n1ql", "no query service yet"),
    ("cbas", "no analytics service"),
    ("fts", "no search service yet"),
    ("memd", "no memcached buckets: Couchbase 8 has none either"),
    ("ssl", "no TLS yet"),
    ("replicas", "one node has no replicas"),
    ("subdocreplicas", "one node has no replicas"),
    ("computeunits", "only Couchbase's serverless preview counts units"),
];

const REASONS: Reasons = &[
    ("TestGetHttpEps", "wants a query service in the cluster map"),
    ("TestLostCleanupProcessRollback", "needs a second node"),
    ("TestObserveSeqNo", "asks a replica, and one node has none"),
    ("TestObserve", "the suite cannot test this on a server with collections"),
    ("TestKvErrorMap", "needs the vendor's mock server"),
    ("TestEnhancedErrorOp", "needs the vendor's mock server"),
    ("TestConnectHTTPOnlyNonDefaultPort", "only for a server on other ports"),
];

/// The compiled suite, and the folder it runs in.
pub(super) struct GoSuite {
    binary: PathBuf,
    folder: PathBuf,
}

/// Installs and compiles the suite.
pub(super) fn prepare() -> Result<GoSuite, String> {
    let folder = folder()?.join(format!("gocbcore-{VERSION}"));
    let binary = folder.join("suite.test");
    tools::once(&folder, || {
        eprintln!("Installing and compiling the tests of {MODULE} {VERSION}");
        let module = format!("{MODULE}@{VERSION}");
        let mut download = Command::new("go");
        download.args(["mod", "download", "-json", &module]);
        let found =
            output(&mut download, "fetch a Go module (go is needed, and a module proxy in reach)")?;
        let found: serde_json::Value = serde_json::from_str(&found)
            .map_err(|error| format!("cannot read what go says about {module}: {error}"))?;
        let source = found["Dir"].as_str().ok_or(format!("go does not say where {module} is"))?;
        copy_package(source.as_ref(), &folder)?;
        let mut compile = Command::new("go");
        compile.args(["test", "-c", "-o"]).arg(&binary).arg(".").current_dir(&folder);
        run(&mut compile, "compile the Go suite")
    })?;
    Ok(GoSuite { binary, folder })
}

impl Prepared for GoSuite {
    fn run(&self, _: &Node) -> Result<Report, String> {
        let features: Vec<String> = ABSENT.iter().map(|feature| format!("-{feature}")).collect();
        let mut command = Command::new(&self.binary);
        command
            .args(["-test.v", "-test.run", &format!("^{SUITE}$"), "-test-suite", "1"])
            .args(["-connstr", "couchbase://127.0.0.1", "-user", USER, "-pass", PASSWORD])
            .args(["-bucket", BUCKET, "-cluster-version", STATED_VERSION])
            .arg(format!("-features={}", features.join(",")))
            .current_dir(&self.folder);
        let (_, output) = limit::run(&mut command, LIMIT, &self.folder.join("suite.log"))?;
        let mut tests = parse(&output);
        explain(&mut tests, REASONS);
        if tests.is_empty() {
            return Err(format!("the Go suite did not run: see {}", self.folder.display()));
        }
        Ok(Report {
            title: "Go core, standard suite",
            version: format!("gocbcore {VERSION}"),
            command: "cargo xtask conformance --only gocbcore",
            is_ours: false,
            tests,
        })
    }
}

/// Reads `=== RUN` and `--- PASS` lines of the tests of the suite. A test that began and has no result was running when
/// the suite broke or its time was over.
fn parse(output: &str) -> Vec<Test> {
    let mut order: Vec<String> = Vec::new();
    let mut said: HashMap<String, Vec<&str>> = HashMap::new();
    let mut results: HashMap<String, &str> = HashMap::new();
    let mut current = String::new();
    for line in output.lines() {
        let trimmed = line.trim_start();
        if let Some(name) = trimmed.strip_prefix("=== RUN").map(str::trim) {
            current = test_name(name).unwrap_or_default();
            if !current.is_empty() && !said.contains_key(&current) {
                order.push(current.clone());
                said.insert(current.clone(), Vec::new());
            }
        } else if let Some(result) = trimmed.strip_prefix("--- ") {
            let mut words = result.split_whitespace();
            let (verdict, name) = (words.next(), words.next());
            if let (Some(verdict), Some((SUITE, name))) =
                (verdict, name.and_then(|name| name.split_once('/')))
            {
                // A part of a test is no test of its own.
                if !name.contains('/') {
                    results.insert(name.to_owned(), verdict.trim_end_matches(':'));
                }
            }
        } else if let Some(lines) = said.get_mut(&current) {
            lines.push(trimmed);
        }
    }
    let test = |name: String| {
        let lines = said.get(&name).map(Vec::as_slice).unwrap_or_default();
        let outcome = match results.get(&name) {
            Some(&"PASS") => Outcome::Passed,
            Some(&"SKIP") => Outcome::Skipped(why_skipped(lines)),
            Some(_) => Outcome::Failed(why_failed(lines)),
            None => Outcome::Failed("did not end".into()),
        };
        Test { name, outcome }
    };
    order.into_iter().map(test).collect()
}

/// The test that a `=== RUN` line belongs to.
fn test_name(name: &str) -> Option<String> {
    let (suite, name) = name.split_once('/')?;
    (suite == SUITE).then(|| name.split('/').next().unwrap_or(name).to_owned())
}

fn why_skipped(lines: &[&str]) -> String {
    let line = lines.iter().rev().find(|line| line.contains("_test.go:")).unwrap_or(&"");
    let said = line.split_once(": ").map_or(*line, |(_, said)| said);
    match said.split_once("disabled feature code: ") {
        None => said.to_owned(),
        Some((_, feature)) => FEATURE_REASONS
            .iter()
            .find(|(known, _)| *known == feature)
            .map_or(said.to_owned(), |(_, reason)| (*reason).to_owned()),
    }
}

/// The first line that a test logged, or the first assertion that failed.
fn why_failed(lines: &[&str]) -> String {
    let assertion = lines.iter().position(|line| line.starts_with("Error:"));
    if let Some(index) = assertion {
        let said = lines[index].trim_start_matches("Error:").trim();
        let details = lines[index + 1..].iter().take_while(|line| !line.starts_with("Test:"));
        let details: Vec<&str> = details.copied().collect();
        return format!("{said} {}", details.join(" "));
    }
    let logged = lines.iter().find(|line| line.contains("_test.go:"));
    logged.and_then(|line| line.split_once(": ")).map_or("failed", |(_, said)| said).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "=== RUN   TestStandardSuite
=== RUN   TestStandardSuite/TestA
GOCB 12:00 noise
=== RUN   TestStandardSuite/TestB
    suite_test.go:203: Skipping test due to disabled feature code: ssl
=== RUN   TestStandardSuite/TestC
=== RUN   TestStandardSuite/TestC/part
    a_test.go:7: 
        \tError:      \tNot equal:
        \t            \texpected: 1
        \tTest:       \tTestStandardSuite/TestC
=== RUN   TestStandardSuite/TestD
--- FAIL: TestStandardSuite (1.00s)
    --- PASS: TestStandardSuite/TestA (0.00s)
    --- SKIP: TestStandardSuite/TestB (0.00s)
    --- FAIL: TestStandardSuite/TestC (0.00s)
        --- FAIL: TestStandardSuite/TestC/part (0.00s)
";

    #[test]
    fn the_output_of_go_becomes_one_result_a_test() {
        let outcomes: Vec<(String, Outcome)> =
            parse(OUTPUT).into_iter().map(|test| (test.name, test.outcome)).collect();
        assert_eq!(
            outcomes,
            [
                ("TestA".into(), Outcome::Passed),
                ("TestB".into(), Outcome::Skipped("no TLS yet".into())),
                ("TestC".into(), Outcome::Failed("Not equal: expected: 1".into())),
                ("TestD".into(), Outcome::Failed("did not end".into())),
            ]
        );
    }
}
