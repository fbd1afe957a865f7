//! The suites in the Go SDK and in its core.

use super::limit;
use super::report::{Outcome, Reasons, Report, Test, explain, means};
use super::{BUCKET, Prepared, SIZES, STATED_VERSION, copy_package, folder};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use xtask_setup::command::{output, run};
use xtask_setup::node::{Node, PASSWORD, USER};
use xtask_setup::tools;

/// Time limit of a whole suite, which takes several minutes on an otherwise idle machine.
const LIMIT: Duration = Duration::from_secs(2700);
/// The connection string of the node on the default ports.
const CONNECTION: &str = "couchbase://127.0.0.1";
/// Ports of the node for tests that need a server on other ports.
const PORT_BASE: u16 = 19_400;
/// How often a test that lost a race is repeated.
const RACES_MAX: usize = 8;

/// A Go module whose tests are one suite.
pub(super) struct Module {
    /// The name, also of the folder.
    name: &'static str,
    path: &'static str,
    version: &'static str,
    title: &'static str,
    command: &'static str,
    /// The test that runs all others.
    suite: &'static str,
    nodes: &'static [usize],
    /// Returns the arguments for a connection string.
    arguments: fn(&str) -> Vec<String>,
    /// Settings of a bucket that replaces the usual one, if the suite relies on them.
    settings: &'static [(&'static str, &'static str)],
    /// Lines by which a suite always skips tests, whatever the server supports, and their files: our copy is compiled
    /// without them.
    taken_out: &'static [(&'static str, &'static str)],
    /// The message of a test that skips a feature, up to the feature's name.
    skips: &'static str,
    feature_reasons: Reasons,
    reasons: Reasons,
    /// Tests that the suite skips in a normal run. They run separately.
    apart: &'static [SeparateTests],
    /// Tests that fail if the machine does something else at the wrong moment, and their assumptions.
    races: Reasons,
}

/// Tests that need another environment than the others.
struct SeparateTests {
    /// The names, as [`means`] takes them.
    names: &'static str,
    /// True if they need a server on other ports.
    on_other_ports: bool,
    /// Arguments in addition to those of all tests.
    arguments: &'static [&'static str],
    /// The remark on the page.
    remark: &'static str,
}

/// The core of the Go SDK.
pub(super) const CORE: Module = Module {
    name: "gocbcore",
    path: "github.com/couchbase/gocbcore/v10",
    version: "v10.8.1",
    title: "Go core, standard suite",
    command: "cargo xtask conformance --only gocbcore",
    suite: "TestStandardSuite",
    nodes: &SIZES,
    arguments: core_arguments,
    settings: &[],
    // `TestChangeStreamsAgent` needs a bucket that keeps history, which this one does.
    taken_out: &[("testdcpsuite_test.go", "suite.T().Skip(\"Skipping test by default\")")],
    skips: "disabled feature code: ",
    feature_reasons: CORE_FEATURE_REASONS,
    reasons: CORE_REASONS,
    apart: &[
        SeparateTests {
            names: "TestConnectHTTPOnlyNonDefaultPort*",
            on_other_ports: true,
            arguments: &[],
            remark: "on a single node on other ports, as they are only for a server on such",
        },
        SeparateTests {
            names: "TestResourceUnits",
            on_other_ports: false,
            arguments: &[CORE_FEATURES_WITH_UNITS],
            remark: "with units switched on, which the suite does only for Couchbase's serverless preview",
        },
    ],
    races: &[
        ("TestZombieLoggerComponentCancelledOps", LATE_ANSWERS),
        ("TestTelemetryOrphanedResponses", LATE_ANSWERS),
        ("TestStatsTimeout", EARLY_ANSWERS),
    ],
};

const LATE_ANSWERS: &str =
    "gives up durable writes as they are sent, and fails if one was answered before";
const EARLY_ANSWERS: &str = "gives up a question in the nanosecond in which it is sent, and fails if it was answered before";

/// The core of the Go SDK as a DCP consumer.
pub(super) const DCP: Module = Module {
    title: "Go core, DCP suite",
    command: "cargo xtask conformance --only gocbcore-dcp",
    suite: "TestDCPSuite",
    nodes: &[1],
    arguments: dcp_arguments,
    // The suite assumes that a mutation stays the newest version of its document for some seconds after its expiry.
    settings: &[
        ("ramQuotaMB", "256"),
        ("expiryPagerSleepTime", "600"),
        ("storageBackend", "magma"),
        ("historyRetentionSeconds", "3600"),
    ],
    feature_reasons: &[],
    reasons: &[],
    apart: &[],
    races: &[],
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
    nodes: &SIZES,
    arguments: sdk_arguments,
    settings: &[],
    taken_out: &[],
    skips: "because feature ",
    feature_reasons: SDK_FEATURE_REASONS,
    reasons: SDK_REASONS,
    apart: &[],
    races: &[(
        "TestBasicCrudContext",
        "gives up a request as it is sent, and fails if it was answered before",
    )],
};

/// The analytics tests of the Go SDK.
pub(super) const ANALYTICS: Module = Module {
    title: "Go SDK, tests of analytics",
    command: "cargo xtask analytics --only go",
    nodes: &[1],
    arguments: analytics_arguments,
    races: &[],
    ..SDK
};

/// Additional features of the SDK's suite on a node with analytics.
const WITH_ANALYTICS: [&str; 5] =
    ["analytics", "analyticsindex", "analyticspending", "collectionsanalytics", "pinganalytics"];

/// Features of the SDK's suite that the node has.
const PRESENT: [&str; 66] = [
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
    "replicas",
    "subdocreplicas",
    "zoneawarereplicareads",
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
    "transactionsquery",
    "transactionssinglequeryexists",
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
    "search",
    "searchindex",
    "searchanalyze",
    "scopesearch",
    "scopesearchindex",
    "vectorsearch",
    "mb57673",
    "viewinsertupsertbug",
    "eventingmanagement",
    "scopeeventingmanagement",
    "eventingmanagementmb52649",
    "eventingmanagementmb52572",
    "eventingmanagementmb68025",
    "eventingmanagementmb67773",
    "waituntilreadycluster",
    "waituntilreadyfastfail",
    "waituntilreadyauthfail",
];

const SDK_FEATURE_REASONS: Reasons = &[
    ("analytics", "no analytics service"),
    ("analyticsindex", "no analytics service"),
    ("analyticsindexlinks", "no analytics service"),
    ("analyticsindexscopeslinks", "no analytics service"),
    ("analyticspending", "no analytics service"),
    ("collectionsanalytics", "no analytics service"),
    ("pinganalytics", "no analytics service"),
    ("memcachedbucket", "no memcached buckets: Couchbase 8 has none either"),
    ("ratelimits", "only Couchbase's serverless preview limits rates"),
    ("transactionsbulk", "the suite leaves it out by itself"),
    ("scopesearch", "only for a server without the feature"),
    ("vectorsearch", "only for a server without the feature"),
];

const WANTS_REPLICA: &str = "wants a copy of the document on a second node";

const SDK_REASONS: Reasons = &[
    (
        "TestBucketWaitUntilReadyFastFailConnStr",
        "needs a network on which an address does not answer",
    ),
    (
        "TestClusterWaitUntilReadyFastFailConnStr",
        "needs a network on which an address does not answer",
    ),
    ("TestInsertReplicateToGetAnyReplica", WANTS_REPLICA),
    ("TestUpsertReplicateToLookupInAnyReplica", WANTS_REPLICA),
];

fn sdk_arguments(connection: &str) -> Vec<String> {
    arguments_with(connection, &PRESENT)
}

fn analytics_arguments(connection: &str) -> Vec<String> {
    let mut arguments = arguments_with(connection, &[&PRESENT[..], &WITH_ANALYTICS].concat());
    arguments
        .extend(["-testify.m", "Analytics|Ping|Diagnostics|WaitUntilReady"].map(str::to_owned));
    arguments
}

fn arguments_with(connection: &str, features: &[&str]) -> Vec<String> {
    let features: Vec<String> = features.iter().map(|feature| format!("+{feature}")).collect();
    [
        &["-server", connection, "-user", USER, "-pass", PASSWORD][..],
        &["-bucket", BUCKET, "-version", STATED_VERSION, "-disable-logger"],
        &["-features", &format!("-*,{}", features.join(","))],
    ]
    .concat()
    .into_iter()
    .map(str::to_owned)
    .collect()
}

fn dcp_arguments(connection: &str) -> Vec<String> {
    [
        &["-test-suite", "2", "-connstr", connection, "-user", USER][..],
        &["-pass", PASSWORD, "-bucket", BUCKET, "-cluster-version", STATED_VERSION],
        &["-disable-logger"],
    ]
    .concat()
    .into_iter()
    .map(str::to_owned)
    .collect()
}

fn core_arguments(connection: &str) -> Vec<String> {
    [
        &["-test-suite", "1", "-connstr", connection, "-user", USER][..],
        &["-pass", PASSWORD, "-bucket", BUCKET, "-cluster-version", STATED_VERSION],
        &[CORE_FEATURES],
    ]
    .concat()
    .into_iter()
    .map(str::to_owned)
    .collect()
}

/// Features that the core's suite must not test, although the version would have them.
const CORE_FEATURES: &str = "-features=-cbas,-memd";
/// With units, two transaction tests compare numbers of different types, and fail.
const CORE_FEATURES_WITH_UNITS: &str = "-features=-cbas,-memd,+computeunits";

const CORE_FEATURE_REASONS: Reasons = &[
    ("cbas", "no analytics service"),
    ("memd", "no memcached buckets: Couchbase 8 has none either"),
];

const COUNTED_TWICE: &str = "the SDK counts the units of writes to its own records twice";

const CORE_REASONS: Reasons = &[
    ("TestObserve", "the suite cannot test this on a server with collections"),
    ("TestObserveSeqNo", WANTS_REPLICA),
    ("TestGetReplica", WANTS_REPLICA),
    ("TestDurableWriteGetReplica", WANTS_REPLICA),
    ("TestAddDurableWriteGetReplica", WANTS_REPLICA),
    ("TestReplaceDurableWriteGetReplica", WANTS_REPLICA),
    ("TestDeleteDurableWriteGetReplica", WANTS_REPLICA),
    ("TestKvErrorMap*", "needs the vendor's mock server"),
    ("TestEnhancedErrorOp", "needs the vendor's mock server"),
    ("TestTransactionsInsertGetReplaceRemoveCommitUnits", COUNTED_TWICE),
    ("TestTransactionsInsertRollbacktUnits", COUNTED_TWICE),
];

/// The compiled suite, its working folder, and the binary for an additional server.
pub(super) struct GoSuite {
    module: &'static Module,
    binary: PathBuf,
    folder: PathBuf,
    server: PathBuf,
}

/// Installs and compiles the suite.
pub(super) fn prepare(module: &'static Module, server: &Path) -> Result<GoSuite, String> {
    let Module { name, path, version, taken_out, .. } = module;
    // Without some lines, the copy differs from one of a runner that removed none.
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
            .map_err(|error| format!("cannot read go's output about {module}: {error}"))?;
        let source =
            found["Dir"].as_str().ok_or(format!("go does not report the folder of {module}"))?;
        copy_package(source.as_ref(), &folder)?;
        taken_out.iter().try_for_each(|(file, line)| remove_line(&folder.join(file), line))?;
        let mut compile = Command::new("go");
        compile.args(["test", "-c", "-o"]).arg(&binary).arg(".").current_dir(&folder);
        run(&mut compile, "compile the Go suite")
    })?;
    Ok(GoSuite { module, binary, folder, server: server.into() })
}

/// Removes the given line from a file.
fn remove_line(file: &Path, line: &str) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("cannot edit {}: {error}", file.display());
    let text = std::fs::read_to_string(file).map_err(failed)?;
    let kept: Vec<&str> = text.lines().filter(|found| found.trim() != line).collect();
    if kept.len() + 1 != text.lines().count() {
        return Err(format!("{} should have one line {line:?}", file.display()));
    }
    std::fs::write(file, kept.join("\n")).map_err(failed)
}

impl Prepared for GoSuite {
    fn nodes(&self) -> &'static [usize] {
        self.module.nodes
    }

    fn run(&self, node: &Node, nodes: usize) -> Result<Report, String> {
        let module = self.module;
        if !module.settings.is_empty() {
            node.rest("DELETE", &format!("/pools/default/buckets/{BUCKET}"), &[])?;
            let settings = [&[("name", BUCKET)], module.settings].concat();
            let answer = node.rest("POST", "/pools/default/buckets", &settings)?;
            if answer.status != 202 {
                return Err(format!("the bucket of {}: {}", module.title, answer.text()));
            }
        }
        let mut tests = self.play(CONNECTION, &[], &[])?;
        if tests.is_empty() {
            return Err(format!("the Go suite did not run: see {}", self.folder.display()));
        }
        let remarks = [self.play_apart(&mut tests)?, self.play_again(&mut tests)?].concat();
        explain(&mut tests, module.reasons);
        Ok(Report {
            title: module.title.into(),
            version: format!("{} {}", module.name, module.version),
            command: module.command.into(),
            nodes,
            remarks,
            is_ours: false,
            tests,
        })
    }
}

impl GoSuite {
    /// Runs the given tests, or all.
    fn play(
        &self,
        connection: &str,
        only: &[String],
        arguments: &[&str],
    ) -> Result<Vec<Test>, String> {
        let mut command = Command::new(&self.binary);
        command.args(["-test.v", "-test.run", &format!("^{}$", self.module.suite)]);
        let log = match only {
            [] => "suite.log",
            names => {
                command.args(["-testify.m", &format!("^({})$", names.join("|"))]);
                "suite-again.log"
            }
        };
        // Of two flags with the same name, the last one applies.
        command.args((self.module.arguments)(connection)).args(arguments);
        command.current_dir(&self.folder);
        let (_, output) = limit::run(&mut command, LIMIT, &self.folder.join(log))?;
        Ok(parse(self.module, &output))
    }

    /// Runs the tests that the suite skips and that need another environment; returns the remarks about them.
    fn play_apart(&self, tests: &mut [Test]) -> Result<Vec<String>, String> {
        let mut remarks = Vec::new();
        for apart in self.module.apart {
            let left_out = |test: &&Test| {
                means(apart.names, &test.name) && matches!(test.outcome, Outcome::Skipped(_))
            };
            let names: Vec<String> =
                tests.iter().filter(left_out).map(|test| test.name.clone()).collect();
            if names.is_empty() {
                continue;
            }
            let played = if apart.on_other_ports {
                let node = Node::start(&self.server, Some(PORT_BASE), &[BUCKET], &[])?;
                let played =
                    self.play(&format!("http://{}", node.address()), &names, apart.arguments)?;
                node.stop()?;
                played
            } else {
                self.play(CONNECTION, &names, apart.arguments)?
            };
            replace(tests, played);
            remarks.push(format!("{}: {}", apart.remark, quoted(&names)));
        }
        Ok(remarks)
    }

    /// Repeats the tests that have lost a race, each by itself, until they pass or have lost too often; returns those that
    /// passed only then.
    fn play_again(&self, tests: &mut [Test]) -> Result<Vec<String>, String> {
        let mut remarks = Vec::new();
        for (name, counts_on) in self.module.races {
            let lost = |tests: &[Test]| {
                let lost =
                    |test: &Test| test.name == *name && matches!(test.outcome, Outcome::Failed(_));
                tests.iter().any(lost)
            };
            let names = [(*name).to_owned()];
            let mut rounds = 0;
            while lost(tests) && rounds < RACES_MAX {
                rounds += 1;
                replace(tests, self.play(CONNECTION, &names, &[])?);
            }
            if rounds > 0 && !lost(tests) {
                let times =
                    if rounds == 1 { "once more".into() } else { format!("{rounds} times more") };
                remarks.push(format!(
                    "passed when run {times}, as it {counts_on}: {}",
                    quoted(&names)
                ));
            }
        }
        Ok(remarks)
    }
}

/// Replaces the outcomes of tests.
fn replace(tests: &mut [Test], others: Vec<Test>) {
    for other in others {
        if let Some(test) = tests.iter_mut().find(|test| test.name == other.name) {
            *test = other;
        }
    }
}

fn quoted(names: &[String]) -> String {
    let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    names.join(", ")
}

/// Parses `=== RUN` and `--- PASS` lines of the suite's tests. A test that began and has no result was running when the
/// suite crashed or its time was over.
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
                // A subtest is not counted as a test.
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
            Some(&"SKIP") => Outcome::Skipped(skip_reason(module, lines)),
            Some(_) => Outcome::Failed(failure_reason(lines)),
            None => Outcome::Failed("did not end".into()),
        };
        Test { name, outcome }
    };
    order.into_iter().map(test).collect()
}

/// Returns the test of a `=== RUN` line.
fn test_name(module: &Module, name: &str) -> Option<String> {
    let (suite, name) = name.split_once('/')?;
    (suite == module.suite).then(|| name.split('/').next().unwrap_or(name).to_owned())
}

fn skip_reason(module: &Module, lines: &[&str]) -> String {
    let line = lines.iter().rev().find(|line| line.contains("_test.go:")).unwrap_or(&"");
    let said = line.split_once(": ").map_or(*line, |(_, said)| said);
    let feature = said.split_once(module.skips).and_then(|(_, rest)| rest.split(' ').next());
    let known = module.feature_reasons.iter().find(|(known, _)| Some(*known) == feature);
    known.map_or(said, |(_, reason)| reason).to_owned()
}

/// Returns the first line that a test logged, or its first failed assertion.
fn failure_reason(lines: &[&str]) -> String {
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
    suite_test.go:203: Skipping test due to disabled feature code: cbas
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
                ("TestB".into(), Outcome::Skipped("no analytics service".into())),
                ("TestC".into(), Outcome::Failed("Not equal: expected: 1".into())),
                ("TestD".into(), Outcome::Failed("did not end".into())),
            ]
        );
    }
    #[test]
    fn the_result_of_a_repeated_test_counts() {
        let mut tests = parse(&CORE, OUTPUT);
        let again =
            OUTPUT.replace("FAIL: TestStandardSuite/TestC (", "PASS: TestStandardSuite/TestC (");
        replace(&mut tests, parse(&CORE, &again));
        assert_eq!((tests.len(), &tests[2].outcome), (4, &Outcome::Passed));
    }
}
