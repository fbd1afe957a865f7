//! The suites that ship in the Go SDK and in its core.

use super::limit;
use super::report::{Outcome, Reasons, Report, Test, explain};
use super::{BUCKET, Prepared, STATED_VERSION, copy_package, folder};
use crate::command::{output, run};
use crate::node::{Node, PASSWORD, USER};
use crate::tools;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Of a whole suite.
const LIMIT: Duration = Duration::from_secs(900);

/// A Go module whose tests are one suite.
pub(super) struct Module {
    /// The folder is named after it.
    name: &'static str,
    path: &'static str,
    version: &'static str,
    title: &'static str,
    command: &'static str,
    /// The test that runs all others.
    suite: &'static str,
    arguments: fn() -> Vec<String>,
    /// Of a bucket that the suite gets instead of the usual one, if it takes something for granted of it.
    settings: &'static [(&'static str, &'static str)],
    /// Lines by which a suite leaves out tests whatever the server can do, and the files they stand in: our copy is compiled
    /// without them.
    taken_out: &'static [(&'static str, &'static str)],
    /// What a test says when it leaves out a feature, up to the feature's name.
    skips: &'static str,
    feature_reasons: Reasons,
    reasons: Reasons,
}

/// The core of the Go SDK.
pub(super) const CORE: Module = Module {
    name: "gocbcore",
    path: "github.com/couchbase/gocbcore/v10",
    version: "v10.8.1",
    title: "Go core, standard suite",
    command: "cargo xtask conformance --only gocbcore",
    suite: "TestStandardSuite",
    arguments: core_arguments,
    settings: &[],
    // `TestChangeStreamsAgent`: a bucket must keep history for it, which this one does.
    taken_out: &[("testdcpsuite_test.go", "suite.T().Skip(\"Skipping test by default\")")],
    skips: "disabled feature code: ",
    feature_reasons: CORE_FEATURE_REASONS,
    reasons: CORE_REASONS,
};

/// The core of the Go SDK as a consumer of DCP.
pub(super) const DCP: Module = Module {
    title: "Go core, DCP suite",
    command: "cargo xtask conformance --only gocbcore-dcp",
    suite: "TestDCPSuite",
    arguments: dcp_arguments,
    // It counts on a mutation being the newest version of its document for some seconds after its expiry has passed.
    settings: &[
        ("ramQuotaMB", "256"),
        ("expiryPagerSleepTime", "600"),
        ("storageBackend", "magma"),
        ("historyRetentionSeconds", "3600"),
    ],
    feature_reasons: &[],
    reasons: &[],
    ..CORE
};

/// The Go SDK.
pub(super) const SDK: Module = Module {
    name: "gocb",
    path: "github.com/couchbase/gocb/v2",
    version: "v2.11.1",
    title: "Go SDK, integration tests",
    command: "cargo xtask conformance --only gocb",
    suite: "TestIntegration",
    arguments: sdk_arguments,
    settings: &[],
    taken_out: &[],
    skips: "because feature ",
    feature_reasons: SDK_FEATURE_REASONS,
    reasons: SDK_REASONS,
};

/// Features of the SDK's suite that the node has.
const PRESENT: [&str; 56] = [
    "keyvalue",
    "keyvaluebulk",
    "keyvalueprojections",
    "adjoin",
    "expandmacros",
    "getmeta",
    "getexpiryusinglookupin",
    "hlc",
    "notlocked",
    "unlockmissingdocfail",
    "subdoc",
    "xattrs",
    "durability",
    "preserveexpiry",
    "rangescan",
    "collections",
    "collectionsmgr",
    "collectionsmgrmaxcollections",
    "collectionmaxexpirynoexpiry",
    "collectionupdatemaxexpiry",
    "bucketmgr",
    "bucketmgrdura",
    "flushbucket",
    "storagebackend",
    "historyretention",
    "customconflictresolution",
    "usermanager",
    "usergroup",
    "usermanagerchangepassword",
    "transactions",
    "transactionsremovelocation",
    "transactionscustommetadata",
    "transactionsbinaryxattr",
    "ping",
    "nodesmetadata",
    "clusterlabels",
    "waituntilready",
    "view",
    "query",
    "clusterQuery",
    "collectionsquery",
    "enhancedpreparedstatements",
    "queryimprovederrors",
    "queryindex",
    "mb57673",
    "viewinsertupsertbug",
    "eventingmanagement",
    "scopeeventingmanagement",
    "eventingmanagementmb52649",
    "eventingmanagementmb52572",
    "eventingmanagementmb68025",
    "eventingmanagementmb67773",
    "eventingmanagementcollectionnotfoundatdeploy",
    "waituntilreadycluster",
    "waituntilreadyfastfail",
    "waituntilreadyauthfail",
];

const SDK_FEATURE_REASONS: Reasons = &[
    ("transactionsquery", "no transactions in queries yet"),
    ("transactionssinglequeryexists", "no transactions in queries yet"),
    ("search", "no search service yet"),
    ("searchindex", "no search service yet"),
    ("searchanalyze", "no search service yet"),
    ("scopesearch", "no search service yet"),
    ("scopesearchindex", "no search service yet"),
    ("vectorsearch", "no search service yet"),
    ("analytics", "no analytics service"),
    ("analyticsindex", "no analytics service"),
    ("analyticsindexlinks", "no analytics service"),
    ("analyticsindexscopeslinks", "no analytics service"),
    ("analyticspending", "no analytics service"),
    ("collectionsanalytics", "no analytics service"),
    ("pinganalytics", "no analytics service"),
    ("replicas", "one node has no replicas"),
    ("subdocreplicas", "one node has no replicas"),
    ("zoneawarereplicareads", "one node has no replicas"),
    ("memcachedbucket", "no memcached buckets: Couchbase 8 has none either"),
    ("ratelimits", "only Couchbase's serverless preview limits rates"),
    ("transactionsbulk", "the suite leaves it out by itself"),
];

const SDK_REASONS: Reasons = &[
    (
        "TestBucketWaitUntilReadyFastFailConnStr",
        "needs a network on which an address does not answer",
    ),
    (
        "TestClusterWaitUntilReadyFastFailConnStr",
        "needs a network on which an address does not answer",
    ),
    ("TestClusterPingAll", "wants a search service to answer"),
    ("TestClusterQueryTransaction", "SQL++ has no transactions"),
    ("TestScopeQueryTransaction", "SQL++ has no transactions"),
    (
        "TestBasicCrudContext",
        "expects that a cancelled request is still under way when the SDK looks",
    ),
];

fn sdk_arguments() -> Vec<String> {
    let features: Vec<String> = PRESENT.iter().map(|feature| format!("+{feature}")).collect();
    [
        &["-server", "couchbase://127.0.0.1", "-user", USER, "-pass", PASSWORD][..],
        &["-bucket", BUCKET, "-version", STATED_VERSION, "-disable-logger"],
        &["-features", &format!("-*,{}", features.join(","))],
    ]
    .concat()
    .into_iter()
    .map(str::to_owned)
    .collect()
}

fn dcp_arguments() -> Vec<String> {
    [
        &["-test-suite", "2", "-connstr", "couchbase://127.0.0.1", "-user", USER][..],
        &["-pass", PASSWORD, "-bucket", BUCKET, "-cluster-version", STATED_VERSION],
        &["-disable-logger"],
    ]
    .concat()
    .into_iter()
    .map(str::to_owned)
    .collect()
}

fn core_arguments() -> Vec<String> {
    let features: Vec<String> = ABSENT.iter().map(|feature| format!("-{feature}")).collect();
    [
        &["-test-suite", "1", "-connstr", "couchbase://127.0.0.1", "-user", USER][..],
        &["-pass", PASSWORD, "-bucket", BUCKET, "-cluster-version", STATED_VERSION],
        &[&format!("-features={}", features.join(","))],
    ]
    .concat()
    .into_iter()
    .map(str::to_owned)
    .collect()
}

/// Features that the core's suite is told not to test, by its own flags.
const ABSENT: [&str; 8] =
    ["cbas", "fts", "memd", "ssl", "replicas", "subdocreplicas", "computeunits", "nodeuuid"];

const CORE_FEATURE_REASONS: Reasons = &[
    ("cbas", "no analytics service"),
    ("fts", "no search service yet"),
    ("memd", "no memcached buckets: Couchbase 8 has none either"),
    ("ssl", "the suite is not given a certificate"),
    ("replicas", "one node has no replicas"),
    ("subdocreplicas", "one node has no replicas"),
    ("computeunits", "only Couchbase's serverless preview counts units"),
];

const CORE_REASONS: Reasons = &[
    ("TestLostCleanupProcessRollback", "needs a second node"),
    ("TestObserveSeqNo", "asks a replica, and one node has none"),
    ("TestObserve", "the suite cannot test this on a server with collections"),
    ("TestKvErrorMap", "needs the vendor's mock server"),
    ("TestEnhancedErrorOp", "needs the vendor's mock server"),
    ("TestConnectHTTPOnlyNonDefaultPort", "only for a server on other ports"),
];

/// The compiled suite, and the folder it runs in.
pub(super) struct GoSuite {
    module: &'static Module,
    binary: PathBuf,
    folder: PathBuf,
}

/// Installs and compiles the suite.
pub(super) fn prepare(module: &'static Module) -> Result<GoSuite, String> {
    let Module { name, path, version, taken_out, .. } = module;
    // With its lines taken out, it is another than that of a runner that took out none.
    let suffix = if taken_out.is_empty() { "" } else { "-whole" };
    let folder = folder()?.join(format!("{name}-{version}{suffix}"));
    let binary = folder.join("suite.test");
    tools::once(&folder, || {
        eprintln!("Installing and compiling the tests of {path} {version}");
        let module = format!("{path}@{version}");
        let mut download = Command::new("go");
        download.args(["mod", "download", "-json", &module]);
        let found =
            output(&mut download, "fetch a Go module (go is needed, and a module proxy in reach)")?;
        let found: serde_json::Value = serde_json::from_str(&found)
            .map_err(|error| format!("cannot read what go says about {module}: {error}"))?;
        let source = found["Dir"].as_str().ok_or(format!("go does not say where {module} is"))?;
        copy_package(source.as_ref(), &folder)?;
        taken_out.iter().try_for_each(|(file, line)| take_out(&folder.join(file), line))?;
        let mut compile = Command::new("go");
        compile.args(["test", "-c", "-o"]).arg(&binary).arg(".").current_dir(&folder);
        run(&mut compile, "compile the Go suite")
    })?;
    Ok(GoSuite { module, binary, folder })
}

/// Takes the one line out of a file.
fn take_out(file: &Path, line: &str) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("cannot edit {}: {error}", file.display());
    let text = std::fs::read_to_string(file).map_err(failed)?;
    let kept: Vec<&str> = text.lines().filter(|found| found.trim() != line).collect();
    if kept.len() + 1 != text.lines().count() {
        return Err(format!("{} should have one line {line:?}", file.display()));
    }
    std::fs::write(file, kept.join("\n")).map_err(failed)
}

impl Prepared for GoSuite {
    fn run(&self, node: &Node) -> Result<Report, String> {
        let module = self.module;
        if !module.settings.is_empty() {
            node.rest("DELETE", &format!("/pools/default/buckets/{BUCKET}"), &[])?;
            let settings = [&[("name", BUCKET)], module.settings].concat();
            let answer = node.rest("POST", "/pools/default/buckets", &settings)?;
            if answer.status != 202 {
                return Err(format!("the bucket of {}: {}", module.title, answer.text()));
            }
        }
        let mut command = Command::new(&self.binary);
        command
            .args(["-test.v", "-test.run", &format!("^{}$", module.suite)])
            .args((module.arguments)())
            .current_dir(&self.folder);
        let (_, output) = limit::run(&mut command, LIMIT, &self.folder.join("suite.log"))?;
        let mut tests = parse(module, &output);
        explain(&mut tests, module.reasons);
        if tests.is_empty() {
            return Err(format!("the Go suite did not run: see {}", self.folder.display()));
        }
        Ok(Report {
            title: module.title,
            version: format!("{} {}", module.name, module.version),
            command: module.command,
            is_ours: false,
            tests,
        })
    }
}

/// Reads `=== RUN` and `--- PASS` lines of the tests of the suite. A test that began and has no result was running when
/// the suite broke or its time was over.
fn parse(module: &Module, output: &str) -> Vec<Test> {
    let mut order: Vec<String> = Vec::new();
    let mut said: HashMap<String, Vec<&str>> = HashMap::new();
    let mut results: HashMap<String, &str> = HashMap::new();
    let mut current = String::new();
    for line in output.lines() {
        let trimmed = line.trim_start();
        if let Some(name) = trimmed.strip_prefix("=== RUN").map(str::trim) {
            current = test_name(module, name).unwrap_or_default();
            if !current.is_empty() && !said.contains_key(&current) {
                order.push(current.clone());
                said.insert(current.clone(), Vec::new());
            }
        } else if let Some(result) = trimmed.strip_prefix("--- ") {
            let mut words = result.split_whitespace();
            let (verdict, name) = (words.next(), words.next());
            if let (Some(verdict), Some((suite, name))) =
                (verdict, name.and_then(|name| name.split_once('/')))
            {
                // A part of a test is no test of its own.
                if suite == module.suite && !name.contains('/') {
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
            Some(&"SKIP") => Outcome::Skipped(why_skipped(module, lines)),
            Some(_) => Outcome::Failed(why_failed(lines)),
            None => Outcome::Failed("did not end".into()),
        };
        Test { name, outcome }
    };
    order.into_iter().map(test).collect()
}

/// The test that a `=== RUN` line belongs to.
fn test_name(module: &Module, name: &str) -> Option<String> {
    let (suite, name) = name.split_once('/')?;
    (suite == module.suite).then(|| name.split('/').next().unwrap_or(name).to_owned())
}

fn why_skipped(module: &Module, lines: &[&str]) -> String {
    let line = lines.iter().rev().find(|line| line.contains("_test.go:")).unwrap_or(&"");
    let said = line.split_once(": ").map_or(*line, |(_, said)| said);
    let feature = said.split_once(module.skips).and_then(|(_, rest)| rest.split(' ').next());
    let known = module.feature_reasons.iter().find(|(known, _)| Some(*known) == feature);
    known.map_or(said, |(_, reason)| reason).to_owned()
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
            parse(&CORE, OUTPUT).into_iter().map(|test| (test.name, test.outcome)).collect();
        assert_eq!(
            outcomes,
            [
                ("TestA".into(), Outcome::Passed),
                ("TestB".into(), Outcome::Skipped("the suite is not given a certificate".into())),
                ("TestC".into(), Outcome::Failed("Not equal: expected: 1".into())),
                ("TestD".into(), Outcome::Failed("did not end".into())),
            ]
        );
    }
}
