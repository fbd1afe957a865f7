//! `cargo xtask test`: all checks, on a machine with only the language tools.

use crate::demo::{self, Demo};
use crate::suites::java;
use crate::{attack, examples, packaging, readme, sdk};
use clap::Args;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use xtask_setup::command::{cargo, run as run_command, target_dir, workspace};
use xtask_setup::node::{self, Node, PASSWORD, USER};
use xtask_setup::sdks::{self, NODE_VERSION};
use xtask_setup::{plugins, tools};

/// Options of `cargo xtask test`.
#[derive(Args, Debug)]
pub struct Test {
    /// Run only the tests in Rust
    #[arg(long)]
    rust_only: bool,
    /// Run only the steps whose names contain this
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
}

/// The text that the names of the selected steps contain.
static ONLY: OnceLock<String> = OnceLock::new();

/// Ports of the nodes that the steps start: far from the defaults and from each other.
const DEMO_PORT_BASE: u16 = 19_100;
const CASES_PORT_BASE: u16 = 19_200;
const SDK_PORT_BASE: u16 = 19_250;
const NODE_SDK_PORT_BASE: u16 = 19_350;
const OBJECT_STORE_PORT_BASE: u16 = 19_375;
const TOOLS_PORT_BASE: u16 = 19_600;
const API_PORT_BASE: u16 = 19_575;
/// The first port of the unclaimed nodes for the conformance cases; each node has 20 ports.
const UNCLAIMED_PORT_BASE: u16 = 19_400;
/// The number that the HTTP cases need.
const UNCLAIMED_NODES: u16 = 8;

/// Number of concurrent tests: the slow ones wait for nodes to notice that another one is gone.
const TEST_THREADS: &str = "3";

/// Seeds of the simulation.
const SIM_SEEDS: u64 = 1000;

/// The pages whose commands are run, and the names of their steps.
const LESSONS: [(&str, &str); 19] = [
    ("lesson on views", "docs/start/first-view.md"),
    ("lesson on functions", "docs/guides/react-to-changes.md"),
    ("lesson on plugins", "docs/start/first-plugin.md"),
    ("lesson on syncing with PouchDB", "docs/guides/sync-with-pouchdb.md"),
    ("lesson on connecting", "docs/guides/connect.md"),
    ("lesson on queries", "docs/guides/query.md"),
    ("lesson on indexes", "docs/guides/choose-an-index.md"),
    ("lesson on search", "docs/guides/search.md"),
    ("lesson on searching by meaning", "docs/guides/search-by-meaning.md"),
    ("lesson on the HTTP API", "docs/guides/http-api.md"),
    ("lesson on plans", "docs/guides/read-a-plan.md"),
    ("lesson on clusters", "docs/guides/run-a-cluster.md"),
    ("lesson on replication", "docs/guides/replicate-between-clusters.md"),
    ("lesson on conflict resolvers", "docs/guides/write-a-conflict-resolver.md"),
    ("lesson on looking after a node", "docs/guides/look-after-a-node.md"),
    ("lesson on backups", "docs/guides/back-up-and-restore.md"),
    ("lesson on moving design documents", "docs/guides/move-design-documents.md"),
    ("lesson on moving handlers", "docs/guides/move-handlers.md"),
    ("lesson on edge gateways", "docs/guides/run-an-edge-gateway.md"),
];

/// Runs all tests: a list of steps, the most informative first. Steps that mostly wait for nodes run in two parallel lists: only
/// one uses the default ports, which pages and some clients need.
///
/// # Errors
/// Reports the first failed step.
pub fn run(options: &Test) -> Result<(), String> {
    ONLY.get_or_init(|| options.only.clone().unwrap_or_default());
    sources()?;
    if options.rust_only {
        return Ok(());
    }
    // The tests have built the server; a separate build would choose other features and compile much of it again.
    let binary = node::built("dev")?;
    step("demo", || demo::show(&Demo { once: true, port_base: Some(DEMO_PORT_BASE) }, &binary))?;
    let on_own_ports = || {
        step("conformance cases", || cases(&binary))?;
        step("attacks", || attack::attack(&binary, true, None))?;
        step("official DCP client for Java", || java::check(&binary))?;
        step("official Node SDK", || node_sdk(&binary))?;
        step("backups in object stores", || object_stores(&binary))?;
        step("exports and backups for other tools", || other_tools(&binary))?;
        step("sdk-py and sdk-js", || own_sdks(&binary))?;
        step("databases in the process", || sdk::embedded(&binary))?;
        step("HTTP API and agents", || http_api(&binary))?;
        step("programs for the official SDKs", || {
            sdks::build_js().and_then(|()| sdk::compat(&binary, ""))
        })?;
        step("parity of the SDKs", || sdk::parity(true))?;
        step("types of sdk-py", sdk::types)?;
        step("guest kit in Go", go_kit)?;
        step("packages", || packaging::quick(&binary))
    };
    let on_default_ports = || {
        let python = python_sdk(&binary)?;
        pages(&binary, &python)?;
        step("example plugins", || examples::run(&binary))
    };
    side_by_side(on_own_ports, on_default_ports)?;
    println!("\nall steps passed");
    Ok(())
}

/// Runs two lists of steps in parallel, each to its end or its first failure.
fn side_by_side(
    left: impl FnOnce() -> Result<(), String> + Send,
    right: impl FnOnce() -> Result<(), String>,
) -> Result<(), String> {
    std::thread::scope(|scope| {
        let left = scope.spawn(left);
        let right = right();
        left.join().expect("a step does not panic").and(right)
    })
}

/// Checks formatting and lints, and runs the Rust tests and the simulation.
fn sources() -> Result<(), String> {
    step("format", || {
        run_command(
            cargo().args(["fmt", "--all", "--check"]),
            "find everything formatted: run `cargo fmt`",
        )
    })?;
    // Compiling the plugins uses one processor most of the time, and lints do not depend on its result.
    side_by_side(
        || step("plugins", || plugins::build().map(drop)),
        || {
            let mut clippy = cargo();
            clippy.args(["clippy", "--quiet", "--workspace", "--all-targets"]);
            // Code that only a benchmark uses must compile, too.
            clippy.args(["--features", "nacre-store/fjall"]);
            clippy.args(["--", "-D", "warnings"]);
            step("lints", || run_command(&mut clippy, "pass the lints"))
        },
    )?;
    step("rust", || {
        let mut tests = cargo();
        tests
            .args(["test", "--workspace"])
            .env("INSTA_UPDATE", "no")
            .env("RUST_TEST_THREADS", TEST_THREADS)
            .env("NACRE_PLUGIN_CACHE", node::aot_dir()?);
        run_command(&mut tests, "pass the tests in Rust")
    })?;
    step("simulation", || {
        let mut simulation = Command::new(test_program("nacre-sim")?);
        simulation.args(["--seeds", &SIM_SEEDS.to_string()]);
        run_command(&mut simulation, "go through all seeds")
    })
}

/// Returns a program that the Rust tests have built: Cargo builds the programs of packages with tests in `tests`.
fn test_program(name: &str) -> Result<PathBuf, String> {
    Ok(target_dir()?.join("debug").join(name))
}

fn cases(binary: &Path) -> Result<(), String> {
    let node = Node::start(binary, Some(CASES_PORT_BASE), &["default"], &[])?;
    let mut cases = Command::new(test_program("nacre-conformance")?);
    cases.current_dir(workspace()).args(["--host", "127.0.0.1", "--bucket", "default"]);
    cases.args(["--user", USER, "--password", PASSWORD]);
    let ports = [
        ("--kv-port", node.kv_port()),
        ("--mgmt-port", node.mgmt_port()),
        ("--views-port", node.views_port()),
        ("--query-port", node.query_port()),
        ("--eventing-port", node.eventing_port()),
    ];
    for (option, port) in ports {
        cases.args([option, &port.to_string()]);
    }
    let unclaimed: Result<Vec<Node>, String> = (0..UNCLAIMED_NODES)
        .map(|number| Node::start_unclaimed(binary, UNCLAIMED_PORT_BASE + 20 * number))
        .collect();
    let unclaimed = unclaimed?;
    let ports: Vec<String> = unclaimed.iter().map(|node| node.mgmt_port().to_string()).collect();
    cases.args(["--fresh-ports", &ports.join(",")]);
    run_command(&mut cases, "pass the conformance cases")?;
    node.stop()
}

/// Tests the official Python SDK; returns the Python interpreter that has it.
fn python_sdk(binary: &Path) -> Result<PathBuf, String> {
    let python = tools::python("couchbase-4.6.3", &["couchbase==4.6.3"])?;
    step("official Python SDK", || {
        // On the default ports, where an application expects a server.
        let node = Node::start(binary, None, &["default"], &[])?;
        let mut operations = Command::new(&python);
        operations.arg(workspace().join("conformance/sdk/python/operations.py"));
        operations.args(["--connection-string", "couchbase://127.0.0.1", "--bucket", "default"]);
        operations.args(["--user", USER, "--password", PASSWORD]);
        run_command(&mut operations, "do every operation of the official Python SDK")?;
        node.stop()
    })?;
    Ok(python)
}

/// Tests backups in object stores, with fakes from package registries.
fn object_stores(binary: &Path) -> Result<(), String> {
    let clients =
        ["moto[server]==5.2.5", "azure-storage-blob==12.31.1", "google-cloud-storage==3.17.1"];
    let python = tools::python("object-stores-1", &clients)?;
    let google = tools::go_program("github.com/fsouza/fake-gcs-server", "v1.56.1")?;
    let azure = tools::npm("azurite", "3.37.0")?.join("dist/src/blob/main.js");
    let node = Node::start(binary, Some(OBJECT_STORE_PORT_BASE), &["default"], &[])?;
    let mut backups = Command::new(python);
    backups.arg(workspace().join("conformance/backup/object_stores.py")).arg(binary);
    backups.arg(format!("http://127.0.0.1:{}", node.mgmt_port())).args([USER, PASSWORD]);
    backups.arg(google).arg(azure);
    run_command(
        &mut backups,
        "back up into object stores and restore from them (Node.js is needed)",
    )?;
    node.stop()
}

/// Tests exports with pandas and pyarrow, and a backup repository with restic.
fn other_tools(binary: &Path) -> Result<(), String> {
    let python = tools::python("data-tools-1", &["pyarrow==26.0.1", "pandas==3.1.1"])?;
    let restic = tools::go_program("github.com/restic/restic/cmd/restic", "v0.18.1")?;
    let node = Node::start(binary, Some(TOOLS_PORT_BASE), &["default"], &[])?;
    let mut check = Command::new(python);
    check.arg(workspace().join("conformance/backup/tools.py")).arg(binary);
    check.arg(format!("http://127.0.0.1:{}", node.mgmt_port())).args([USER, PASSWORD]).arg(restic);
    run_command(&mut check, "export for pandas, pyarrow and restic")?;
    node.stop()
}

fn node_sdk(binary: &Path) -> Result<(), String> {
    let node = Node::start(binary, Some(NODE_SDK_PORT_BASE), &["default"], &[])?;
    // As outside of a container network: this name does not exist here.
    node.cluster(binary, &["init", "--host-name", "nacre.invalid"])?;
    node.cluster(binary, &["alternate-address", "127.0.0.1"])?;
    let package = tools::npm("couchbase", NODE_VERSION)?;
    let modules = package.parent().expect("a package lies in a folder");
    for (script, purpose) in [
        ("queries.cjs", "run queries with the official Node SDK (Node.js is needed)"),
        ("search.cjs", "search with the official Node SDK"),
    ] {
        let mut steps = Command::new("node");
        steps
            .arg(workspace().join("conformance/sdk/node").join(script))
            .arg(format!("couchbase://127.0.0.1:{}", node.kv_port()))
            .args([USER, PASSWORD, "default"])
            .env("NODE_PATH", modules);
        run_command(&mut steps, purpose)?;
    }
    node.stop()
}

/// Tests the README and the guides.
fn pages(binary: &Path, python: &Path) -> Result<(), String> {
    step("README", || readme::run(binary, python))?;
    let edge = test_program("nacre-edge")?;
    for (lesson, page) in LESSONS {
        step(lesson, || readme::follow(page, &[binary, python, &edge]))?;
    }
    Ok(())
}

fn own_sdks(binary: &Path) -> Result<(), String> {
    let node = Node::start(binary, Some(SDK_PORT_BASE), &["default"], &[])?;
    let url = format!("couchbase://127.0.0.1:{}", node.kv_port());
    let with_node = |command: &mut Command, purpose: &str| {
        command
            .env("NACRE_TEST_URL", &url)
            .env("NACRE_TEST_USER", USER)
            .env("NACRE_TEST_PASSWORD", PASSWORD);
        run_command(command.env("NACRE_TEST_BUCKET", "default"), purpose)
    };
    let mut python = Command::new("python3");
    python.args(["-m", "unittest", "discover", "-s", "tests", "-t", "."]);
    python
        .current_dir(workspace().join("sdk-py"))
        .env("PYTHONPATH", "src:plugin")
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("NACRE_TEST_BINARY", binary)
        .env("NACRE_PLUGIN_CACHE", node::aot_dir()?);
    with_node(&mut python, "pass the tests of sdk-py")?;
    let folder = workspace().join("sdk-js");
    let mut install = Command::new("npm");
    install
        .args(["ci", "--silent", "--no-audit", "--no-fund", "--ignore-scripts"])
        .current_dir(&folder);
    run_command(
        &mut install,
        "install the compiler of sdk-js (npm is needed, and a package registry in reach)",
    )?;
    let mut types = Command::new(folder.join("node_modules/.bin/tsc"));
    types.arg("-p").arg(workspace().join("plugins/js/jsconfig.json"));
    run_command(&mut types, "find plugins in JavaScript to be of the types in nacre.d.ts")?;
    with_node(
        Command::new("npm").args(["test", "--silent"]).current_dir(&folder),
        "pass the tests of sdk-js",
    )?;
    node.stop()
}

/// Checks the description of the HTTP API against its answers, and tests the official MCP client.
fn http_api(binary: &Path) -> Result<(), String> {
    let packages = ["mcp==2.3.0", "openapi-spec-validator==0.9.0"];
    let python = tools::python("http-api-1", &packages)?;
    let node = Node::start(binary, Some(API_PORT_BASE), &["default"], &[])?;
    let mut check = Command::new(&python);
    check.arg(workspace().join("conformance/http/check.py")).arg(binary);
    check.arg(format!("http://127.0.0.1:{}", node.mgmt_port())).args([USER, PASSWORD]);
    run_command(&mut check, "answer as the HTTP API is described, also to agents")?;
    node.stop()
}

/// Tests the Go guest kit on its targets, and the formatting of all Go files of new projects.
fn go_kit() -> Result<(), String> {
    let kit = workspace().join("plugins/nacre-plugin-go");
    let sources = [
        "conformance/replication",
        "conformance/search/bleve",
        "examples/webhooks",
        "server/nacre-plugin-tools/templates/go",
        "server/nacre-server/tests/it/plugin_go",
    ];
    let formatted = Command::new("gofmt")
        .arg("-l")
        .arg(&kit)
        .args(sources.map(|folder| workspace().join(folder)))
        .output()
        .map_err(|error| format!("Go is needed (see https://go.dev/dl): gofmt: {error}"))?;
    let unlike =
        String::from_utf8_lossy(&[formatted.stdout, formatted.stderr].concat()).into_owned();
    if !unlike.is_empty() {
        return Err(format!("not formatted, run `gofmt -w`:\n{unlike}"));
    }
    let go = |arguments: &[&str]| {
        let mut command = Command::new("go");
        command.args(arguments).current_dir(&kit);
        command
    };
    run_command(go(&["vet", "./..."]).env("GOOS", "wasip1").env("GOARCH", "wasm"), "pass go vet")?;
    run_command(&mut go(&["vet", "./..."]), "pass go vet outside of the sandbox")?;
    run_command(&mut go(&["test", "./..."]), "pass the tests of the guest kit in Go")
}

fn step(name: &str, work: impl FnOnce() -> Result<(), String>) -> Result<(), String> {
    if !ONLY.get().is_none_or(|only| name.contains(only)) {
        return Ok(());
    }
    let begun = std::time::Instant::now();
    println!("== {name}");
    work().map_err(|reason| format!("{name}: {reason}"))?;
    println!("== {name}: {:.0} s", begun.elapsed().as_secs_f64());
    Ok(())
}
