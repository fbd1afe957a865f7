//! `cargo xtask analytics`: builds the analytics process and tests it: alone, behind a node with official SDKs as its clients,
//! and against another engine.
//!
//! It has a separate workspace, so that nothing else compiles its engine.

mod processes;

use crate::suites;
use clap::{Args, ValueEnum};
use nacre_conformance::http;
use nacre_conformance::run::{Target, run_analytics, table};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use xtask_bench::ON_FIRST;
use xtask_bench::postgres::{self, Postgres};
use xtask_setup::command::{cargo, output, run, workspace, wrapped};
use xtask_setup::node::{self, Node, PASSWORD, USER};
use xtask_setup::sdks::NODE_VERSION;
use xtask_setup::tools;

/// The bucket for the clients' runs.
const BUCKET: &str = "shells";
/// The services of the node.
const SERVICES: &str = "kv,n1ql,index,cbas";
const PYTHON_SDK: &str = "couchbase==4.6.3";
const DUCKDB: &str = "duckdb==2.0.1";
const PYSPARK: &str = "pyspark==4.3.0";
const PSYCOPG: &str = "psycopg[binary]==3.3.3";
/// The first port of the node, and the offset of the analytics port from it.
const PORT_BASE: u16 = 9700;
const PORT_OFFSET: u16 = 4;
const PORT_POSTGRES: u16 = PORT_BASE + 53;
/// Time limit for a killed process to answer again, with all documents.
const AGAIN_WITHIN: Duration = Duration::from_secs(60);
/// Memory of the bucket in MB: for tests, and for the documents of a warehouse.
pub(crate) const BUCKET_MB: &str = "256";
const BUCKET_MB_OF_BENCH: &str = "1024";
/// Pairs of runs, seconds of a run, and writes per second of the step `isolation`.
const ISOLATION: [&str; 3] = ["9", "20", "20000"];
/// The same in the short form.
const ISOLATION_SHORT: [&str; 3] = ["1", "5", "2000"];
/// The divisor of a warehouse's documents in the short form.
const DIVISOR_SHORT: &str = "50";

/// Options of `cargo xtask analytics`.
#[derive(Args, Clone, Debug)]
pub struct Analytics {
    /// Build the program and print its path
    #[arg(long)]
    build: bool,
    /// Leave out the Go SDK, and compare the answers over a fiftieth of a warehouse
    #[arg(long)]
    short: bool,
    /// Run only these steps
    #[arg(long, value_delimiter = ',')]
    only: Vec<Step>,
    /// Warehouses of the steps `ch2`, `speed` and `isolation`
    #[arg(long, default_value_t = 1)]
    warehouses: u32,
    /// Measure Spark in the step `speed`, too; Java 17 is needed
    #[arg(long)]
    spark: bool,
    /// Build profile
    #[arg(long, default_value = "dev")]
    profile: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Step {
    /// The tests of the workspace
    Tests,
    /// The queries of CH2, with the answers of DuckDB over the same documents
    Ch2,
    /// The conformance cases
    Cases,
    /// The official Python SDK
    Python,
    /// The official Node SDK
    Node,
    /// A process that is killed
    Kill,
    /// One, two and four processes that share the documents, one of which is killed
    Processes,
    /// The tests of the Go SDK
    Go,
    /// The time of the queries of CH2, next to DuckDB, PostgreSQL and Spark; runs only if you name it, with `--profile release`
    Speed,
    /// Users beside an analyst, and the freshness of analytics; runs only if you name it, with `--profile release`
    Isolation,
}

/// Steps that measure.
const MEASURED: [Step; 2] = [Step::Speed, Step::Isolation];
/// Steps that need a separate node.
const BEHIND_A_NODE: [Step; 4] = [Step::Cases, Step::Python, Step::Node, Step::Kill];

/// Runs the chore.
///
/// # Errors
/// The first failed step, in one line.
pub fn run_chore(options: &Analytics) -> Result<(), String> {
    let program = build(&options.profile)?;
    if options.build {
        println!("{}", program.display());
        return Ok(());
    }
    let is_wanted = |step: Step| match options.only.is_empty() {
        true => !MEASURED.contains(&step) && (step != Step::Go || !options.short),
        false => options.only.contains(&step),
    };
    if is_wanted(Step::Tests) {
        run(cargo_in_analytics("test").args(["--profile", &options.profile]), "test analytics")?;
    }
    if is_wanted(Step::Ch2) {
        compare(options)?;
    }
    let wanted: Vec<Step> = BEHIND_A_NODE.into_iter().filter(|step| is_wanted(*step)).collect();
    if !wanted.is_empty() {
        run_with_node(options, &program, &wanted)?;
    }
    if is_wanted(Step::Processes) {
        processes::run(&program, &options.profile)?;
    }
    if is_wanted(Step::Go) {
        suites::analytics(&node::build(&options.profile)?, &wrapper(&program))?;
    }
    if is_wanted(Step::Speed) {
        speed(options, &program)?;
    }
    if is_wanted(Step::Isolation) {
        isolation(options, &program)?;
    }
    Ok(())
}

/// Returns a cargo command in the analytics workspace.
fn cargo_in_analytics(command: &str) -> Command {
    let mut cargo = cargo();
    cargo.arg(command).arg("--manifest-path").arg(workspace().join("server/analytics/Cargo.toml"));
    // The variables that unify features apply to the node's workspace, not to this one.
    cargo.env_remove("CARGO_RESOLVER_FEATURE_UNIFICATION");
    cargo.env_remove("CARGO_UNSTABLE_FEATURE_UNIFICATION");
    // Likewise the target folder: this workspace has its own, next to its lock file.
    cargo.env_remove("CARGO_TARGET_DIR");
    cargo
}

fn build(profile: &str) -> Result<PathBuf, String> {
    run(cargo_in_analytics("build").args(["--profile", profile, "--bins"]), "build analytics")?;
    let metadata = output(
        cargo_in_analytics("metadata").args(["--no-deps", "--format-version", "1"]),
        "ask cargo for the target directory of analytics",
    )?;
    let metadata: serde_json::Value = serde_json::from_str(&metadata)
        .map_err(|error| format!("cannot read cargo metadata: {error}"))?;
    let target = metadata["target_directory"].as_str().ok_or("cargo names no target directory")?;
    let folder = if profile == "dev" { "debug" } else { profile };
    Ok(PathBuf::from(target).join(folder).join("nacre-analytics"))
}

/// Returns a wrapper of the node's command line that names the program, which may be in another folder than the node's.
fn wrapper(program: &Path) -> [String; 2] {
    ["env".to_owned(), format!("NACRE_ANALYTICS={}", program.display())]
}

/// Starts a node with analytics and runs the steps that need one.
fn run_with_node(options: &Analytics, program: &Path, wanted: &[Step]) -> Result<(), String> {
    let binary = node::build(&options.profile)?;
    let wrapper = wrapper(program);
    let wrapper = wrapper.each_ref().map(String::as_str);
    let node = Node::start(&binary, Some(PORT_BASE), &[], &wrapper)?;
    give_services(&node, BUCKET, BUCKET_MB)?;
    wait_for_answer(&node, |answer| answer.status == 200)?;
    for step in wanted {
        match step {
            Step::Cases => cases(&node)?,
            Step::Python => python(&node)?,
            Step::Node => node_sdk(&node)?,
            _ => kill(&node)?,
        }
    }
    node.stop()
}

/// Adds the analytics service to a node that was just started, and then creates a bucket with `memory` MB: services of a node with a
/// bucket cannot change.
///
/// # Errors
/// Reports the node's refusal.
pub(crate) fn give_services(node: &Node, bucket: &str, memory: &str) -> Result<(), String> {
    let services = [("services", SERVICES)];
    let answer = node.rest("POST", "/node/controller/setupServices", &services)?;
    if answer.status != 200 {
        return Err(format!("cannot give the node its services: {}", answer.text()));
    }
    let bucket = [("name", bucket), ("ramQuotaMB", memory)];
    let answer = node.rest("POST", "/pools/default/buckets", &bucket)?;
    match answer.status {
        202 => Ok(()),
        _ => Err(format!("cannot make a bucket: {}", answer.text())),
    }
}

/// Runs the conformance cases for analytics.
fn cases(node: &Node) -> Result<(), String> {
    let target = Target {
        host: "127.0.0.1".into(),
        kv_port: node.kv_port(),
        mgmt_port: node.mgmt_port(),
        views_port: node.views_port(),
        query_port: node.query_port(),
        eventing_port: node.eventing_port(),
        fresh_ports: Vec::new(),
        user: USER.into(),
        password: PASSWORD.into(),
        bucket: BUCKET.into(),
        filter: std::env::var("NACRE_ANALYTICS_CASES").unwrap_or_default(),
        run: "chore".into(),
    };
    let outcomes = run_analytics(&target, port(node), |outcome| {
        if let Some(problem) = &outcome.problem {
            println!("FAIL {}/{}: {problem}", outcome.group, outcome.name);
        }
    });
    print!("{}", table(&outcomes));
    match outcomes.iter().filter(|outcome| outcome.problem.is_some()).count() {
        0 if !outcomes.is_empty() => Ok(()),
        failed => Err(format!("{failed} of {} cases for analytics failed", outcomes.len())),
    }
}

/// Runs the cases of the official Python SDK.
fn python(node: &Node) -> Result<(), String> {
    let python = tools::python("couchbase-4.6.3", &[PYTHON_SDK])?;
    let mut sdk = Command::new(python);
    sdk.arg(workspace().join("conformance/sdk/python/analytics.py"))
        .args(["--connection", &format!("couchbase://127.0.0.1:{}", node.kv_port())])
        .args(["--user", USER, "--password", PASSWORD, "--bucket", BUCKET])
        .env("PYTHONDONTWRITEBYTECODE", "1");
    run(&mut sdk, "play the cases of the Python SDK")
}

/// Runs the steps of the official Node SDK.
fn node_sdk(node: &Node) -> Result<(), String> {
    let package = tools::npm("couchbase", NODE_VERSION)?;
    let modules = package.parent().expect("a package is in a folder");
    let mut steps = Command::new("node");
    steps
        .arg(workspace().join("conformance/sdk/node/analytics.cjs"))
        .arg(format!("couchbase://127.0.0.1:{}", node.kv_port()))
        .args([USER, PASSWORD, BUCKET])
        .env("NODE_PATH", modules);
    run(&mut steps, "play the steps of the Node SDK (Node.js is needed)")
}

/// Kills the process while the node works: keys and queries must be served without interruption, and analytics must answer again
/// with all documents.
fn kill(node: &Node) -> Result<(), String> {
    const DOCUMENTS: usize = 500;
    let values: Vec<String> = (0..DOCUMENTS)
        .map(|n| format!("(\"killed-{n}\", {{\"n\": {n}, \"of\": \"kill\"}})"))
        .collect();
    let written = format!("UPSERT INTO `{BUCKET}` (KEY, VALUE) VALUES {}", values.join(", "));
    let write = || {
        let answer = node.query(&serde_json::json!({"statement": written}))?;
        match answer.text().contains("\"success\"") {
            true => Ok(()),
            false => Err(format!("cannot write documents: {}", answer.text())),
        }
    };
    write()?;
    ask(node, &format!("CREATE ANALYTICS COLLECTION killed ON `{BUCKET}` WHERE of = \"kill\""))?;
    let is_whole = |answer: &http::Answer| {
        answer.json().is_ok_and(|json| json["results"] == serde_json::json!([DOCUMENTS]))
    };
    wait_for(node, is_whole)?;
    let process = child_of(node.id())?;
    // SAFETY: kill takes only numbers; the process is a child of the node, which waits for it.
    unsafe { libc::kill(process, libc::SIGKILL) };
    let killed = Instant::now();
    // Nothing else of the node has ended.
    write()?;
    wait_for(node, is_whole)?;
    println!(
        "a killed process: all {DOCUMENTS} documents again within {:.1} s",
        killed.elapsed().as_secs_f64()
    );
    match child_of(node.id())? {
        again if again == process => Err("the process was not killed".to_owned()),
        _ => ask(node, "DROP ANALYTICS COLLECTION killed").map(drop),
    }
}

/// Waits until the number of the test's documents is as expected.
fn wait_for(node: &Node, is_expected: impl Fn(&http::Answer) -> bool) -> Result<(), String> {
    let began = Instant::now();
    let statement = "SELECT VALUE COUNT(*) FROM killed k";
    loop {
        let answer = ask_once(node, statement)?;
        if is_expected(&answer) {
            return Ok(());
        }
        if began.elapsed() > AGAIN_WITHIN {
            return Err(format!("analytics does not answer again: {}", answer.text()));
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Waits until the process of a node that was just started answers.
fn wait_for_answer(node: &Node, is_expected: impl Fn(&http::Answer) -> bool) -> Result<(), String> {
    let began = Instant::now();
    loop {
        let answer = ask_once(node, "SELECT 1");
        if answer.as_ref().is_ok_and(&is_expected) {
            return Ok(());
        }
        if began.elapsed() > AGAIN_WITHIN {
            let said = answer.map_or_else(|error| error, |answer| answer.text());
            return Err(format!("analytics does not answer: {said}"));
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn port(node: &Node) -> u16 {
    node.mgmt_port() + PORT_OFFSET
}

fn ask_once(node: &Node, statement: &str) -> Result<http::Answer, String> {
    let body = serde_json::json!({"statement": statement, "scan_consistency": "request_plus"});
    let address = format!("127.0.0.1:{}", port(node));
    let body = body.to_string();
    let (path, kind) = ("/analytics/service", "application/json");
    http::request(&address, "POST", path, Some((USER, PASSWORD)), kind, body.as_bytes())
        .map_err(|error| format!("{address}{path}: {error}"))
}

/// Runs a statement that must succeed.
fn ask(node: &Node, statement: &str) -> Result<http::Answer, String> {
    let answer = ask_once(node, statement)?;
    match answer.status {
        200 => Ok(answer),
        status => Err(format!("{statement}: {status} {}", answer.text())),
    }
}

/// Returns the process ID of a node's analytics process.
fn child_of(parent: u32) -> Result<i32, String> {
    let entries = std::fs::read_dir("/proc").map_err(|error| format!("/proc: {error}"))?;
    for entry in entries.flatten() {
        let Ok(stat) = std::fs::read_to_string(entry.path().join("stat")) else { continue };
        // Number, name in parentheses, state, number of the parent.
        let Some((head, tail)) = stat.rsplit_once(')') else { continue };
        let is_child = tail.split_whitespace().nth(1) == Some(&parent.to_string());
        if is_child
            && head.contains("(nacre-analytic")
            && let Some(number) = head.split(' ').next().and_then(|number| number.parse().ok())
        {
            return Ok(number);
        }
    }
    Err("the node has no process of analytics".to_owned())
}

/// Runs CH2 over the warehouses and compares the answers with DuckDB's, before and after a third of the documents has changed.
fn compare(options: &Analytics) -> Result<(), String> {
    let python = tools::python("python-duckdb", &[DUCKDB])?;
    let folder = std::env::temp_dir().join(format!("nacre-ch2-{}", std::process::id()));
    let mut example = cargo_in_analytics("run");
    example
        .args(["--profile", &options.profile, "-p", "nacre-analytics", "--example", "ch2", "--"])
        .arg("answers")
        .arg(&folder)
        .arg(options.warehouses.to_string())
        .arg(divisor(options));
    let ran = run(&mut example, "run the queries of CH2").and_then(|()| {
        let script = workspace().join("server/analytics/nacre-ch2/compare.py");
        let folders = ["loaded", "changed"].map(|name| folder.join(name));
        run(
            Command::new(python).arg(script).args(folders),
            "compare the answers with those of DuckDB",
        )
    });
    let _ = std::fs::remove_dir_all(&folder);
    ran
}

/// Returns the number by which the documents of a warehouse are divided.
fn divisor(options: &Analytics) -> &'static str {
    if options.short { DIVISOR_SHORT } else { "1" }
}

/// Builds the example with the queries of CH2, and returns its path. `program` is the built program of analytics.
fn build_example(options: &Analytics, program: &Path) -> Result<PathBuf, String> {
    if options.profile == "dev" {
        return Err("an unoptimised build is not measured: add --profile release".to_owned());
    }
    let example = ["--profile", &options.profile, "-p", "nacre-analytics", "--example", "ch2"];
    run(cargo_in_analytics("build").args(example), "build the queries of CH2")?;
    Ok(program.with_file_name("examples").join("ch2"))
}

/// Measures the effect of an analyst on users of the same node, the freshness of analytics, and how fast it takes documents in.
fn isolation(options: &Analytics, program: &Path) -> Result<(), String> {
    let example = build_example(options, program)?;
    let binary = node::build(&options.profile)?;
    let wrapper = wrapper(program);
    let wrapper = wrapper.each_ref().map(String::as_str);
    let node = Node::start(&binary, Some(PORT_BASE), &[], &wrapper)?;
    give_services(&node, BUCKET, BUCKET_MB_OF_BENCH)?;
    wait_for_answer(&node, |answer| answer.status == 200)?;
    let mut measured = Command::new(example);
    measured
        .args(["isolation", &format!("127.0.0.1:{}", node.kv_port())])
        .arg(format!("http://127.0.0.1:{}", node.mgmt_port()))
        .arg(format!("http://127.0.0.1:{}", port(&node)))
        .args([USER, PASSWORD, BUCKET])
        .arg(child_of(node.id())?.to_string())
        .arg(options.warehouses.to_string())
        .arg(divisor(options))
        .args(if options.short { ISOLATION_SHORT } else { ISOLATION });
    run(&mut measured, "measure an analyst beside users")?;
    node.stop()
}

/// Measures the queries of CH2 in analytics, DuckDB and PostgreSQL in turn, all on the first processor. `program` is the built program of
/// analytics.
fn speed(options: &Analytics, program: &Path) -> Result<(), String> {
    let example = build_example(options, program)?;
    let python = match options.spark {
        true => tools::python("python-duckdb-psycopg-pyspark", &[DUCKDB, PSYCOPG, PYSPARK])?,
        false => tools::python("python-duckdb-psycopg", &[DUCKDB, PSYCOPG])?,
    };
    let folder = std::env::temp_dir().join(format!("nacre-ch2-{}", std::process::id()));
    let mut write = Command::new(&example);
    write.arg("write").arg(&folder).arg(options.warehouses.to_string()).arg(divisor(options));
    let measured = run(&mut write, "write the documents of CH2").and_then(|()| {
        let mut script = wrapped(&python, &ON_FIRST);
        script
            .arg(workspace().join("server/analytics/nacre-ch2/speed.py"))
            .arg(&example)
            .arg(&folder)
            .env("PYTHONDONTWRITEBYTECODE", "1");
        let server = Postgres::start(PORT_POSTGRES);
        match &server {
            Ok(server) => {
                println!("{}", server.version());
                let user = postgres::USER;
                script.arg(format!(
                    "host=127.0.0.1 port={PORT_POSTGRES} user={user} dbname=postgres"
                ));
            }
            Err(reason) => println!("{reason}"),
        }
        if options.spark {
            script.arg("spark");
        }
        run(&mut script, "measure the queries of CH2 (taskset is needed)")
    });
    let _ = std::fs::remove_dir_all(&folder);
    measured
}
