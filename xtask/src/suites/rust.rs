//! The integration tests in the crate of the Rust SDK.

use super::limit::{self, End};
use super::report::{Outcome, Report, Test};
use super::{BUCKET, Prepared, SIZES, STATED_VERSION, copy_package, folder, write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use xtask_setup::command::{cargo, output};
use xtask_setup::node::{Node, PASSWORD, USER};
use xtask_setup::tools;

const CRATE: &str = "couchbase";
const VERSION: &str = "1.1.0";
/// Time limit of each test. Passing tests need at most three seconds, but much longer while the machine's disk
/// is busy.
const LIMIT: Duration = Duration::from_secs(60);

/// The compiled test programs by name, and their working folder.
pub(super) struct RustSuite {
    programs: Vec<(String, PathBuf)>,
    folder: PathBuf,
}

/// Installs and compiles the suite.
pub(super) fn prepare() -> Result<RustSuite, String> {
    let folder = folder()?.join(format!("{CRATE}-{VERSION}"));
    tools::once(&folder, || {
        copy_package(&fetch()?, &folder)?;
        // Independent of any workspace that contains the folder.
        let manifest = folder.join("Cargo.toml");
        let text = std::fs::read_to_string(&manifest)
            .map_err(|error| format!("cannot read {}: {error}", manifest.display()))?;
        write(&manifest, &format!("{text}\n[workspace]\n"))
    })?;
    eprintln!("Compiling the tests of {CRATE} {VERSION}, some minutes at first");
    let mut compile = cargo();
    compile
        .args(["test", "--no-run", "--test", "*", "--message-format", "json", "--quiet"])
        .env("CARGO_TARGET_DIR", folder.join("target"))
        .current_dir(&folder);
    let messages = output(&mut compile, "compile the Rust suite")?;
    let programs: Vec<_> = messages.lines().filter_map(program).collect();
    Ok(RustSuite { programs, folder })
}

/// Lets cargo download the crate; returns the folder of its sources.
fn fetch() -> Result<PathBuf, String> {
    let folder = folder()?.join("fetch");
    let source = folder.join("src");
    std::fs::create_dir_all(&source)
        .map_err(|error| format!("cannot make {}: {error}", source.display()))?;
    let manifest = format!(
        "[package]\nname = \"fetch\"\nedition = \"2024\"\n[dependencies]\n{CRATE} = \"={VERSION}\"\n[workspace]\n"
    );
    write(&folder.join("Cargo.toml"), &manifest)?;
    write(&source.join("lib.rs"), "")?;
    let version = output(Command::new("rustc").arg("-vV"), "ask the Rust compiler for its host")?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: ")).unwrap_or_default();
    let mut metadata = cargo();
    // Without the filter, the dependencies of other platforms are downloaded, too: ten times as much.
    metadata
        .args(["metadata", "--format-version", "1", "--filter-platform", host])
        .current_dir(&folder);
    let metadata = output(&mut metadata, "fetch a crate (a crate registry must be in reach)")?;
    let metadata: serde_json::Value = serde_json::from_str(&metadata)
        .map_err(|error| format!("cannot read cargo metadata: {error}"))?;
    let manifest = metadata["packages"]
        .as_array()
        .and_then(|packages| packages.iter().find(|package| package["name"] == CRATE))
        .and_then(|package| package["manifest_path"].as_str())
        .ok_or(format!("cargo does not report the folder of {CRATE}"))?;
    Path::new(manifest).parent().map(PathBuf::from).ok_or(format!("{manifest} is in no folder"))
}

/// Returns name and path of a test program, from one message of cargo.
fn program(message: &str) -> Option<(String, PathBuf)> {
    let message: serde_json::Value = serde_json::from_str(message).ok()?;
    let path = message["executable"].as_str()?;
    Some((message["target"]["name"].as_str()?.to_owned(), path.into()))
}

impl Prepared for RustSuite {
    fn nodes(&self) -> &'static [usize] {
        &SIZES
    }

    fn run(&self, _: &Node, nodes: usize) -> Result<Report, String> {
        let mut tests = Vec::new();
        for (name, program) in &self.programs {
            let mut list = Command::new(program);
            list.args(["--list", "--format", "terse"]);
            let listed = output(&mut list, "list the tests of the Rust suite")?;
            for test in listed.lines().filter_map(|line| line.strip_suffix(": test")) {
                let outcome = self.run_test(program, test)?;
                tests.push(Test { name: format!("{name}::{test}"), outcome });
            }
        }
        Ok(Report {
            title: "Rust SDK, integration tests".into(),
            version: format!("{CRATE} {VERSION}"),
            command: "cargo xtask conformance --only rust".into(),
            nodes,
            remarks: Vec::new(),
            is_ours: false,
            tests,
        })
    }
}

impl RustSuite {
    /// Runs one test in a separate process: a test that hangs does not block the others.
    fn run_test(&self, program: &Path, test: &str) -> Result<Outcome, String> {
        let mut command = Command::new(program);
        command
            .args(["--exact", test, "--test-threads", "1"])
            .env("RUST_LOG", "off")
            .env("RUST_BACKTRACE", "0")
            .env("RCBCONNSTR", "couchbase://127.0.0.1")
            .env("RCBUSERNAME", USER)
            .env("RCBPASSWORD", PASSWORD)
            .env("RCBBUCKET", BUCKET)
            .env("RCBSERVER_VERSION", STATED_VERSION)
            .current_dir(&self.folder);
        let (end, output) = limit::run(&mut command, LIMIT, &self.folder.join("suite.log"))?;
        Ok(match end {
            End::Exited { success: true } if output.contains("1 ignored") => {
                Outcome::Skipped("the suite ignores it".into())
            }
            End::Exited { success: true } => Outcome::Passed,
            End::Exited { success: false } => Outcome::Failed(failure_reason(&output)),
            End::Killed => Outcome::Failed("did not end within its time".into()),
        })
    }
}

/// Returns the message of the first panic.
fn failure_reason(output: &str) -> String {
    let mut lines = output.lines().skip_while(|line| !line.contains(" panicked at "));
    lines.nth(1).unwrap_or("ended without a word").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_panic_is_the_reason_of_a_failure() {
        let output = "running 1 test\n\nthread 't' (7) panicked at tests/x.rs:115:5:\nassertion failed: a\nnote: run";
        assert_eq!(failure_reason(output), "assertion failed: a");
        assert_eq!(failure_reason(""), "ended without a word");
    }

    #[test]
    fn programs_are_found_among_the_messages_of_cargo() {
        let message =
            r#"{"reason":"compiler-artifact","target":{"name":"query"},"executable":"/t/query-1"}"#;
        assert_eq!(program(message), Some(("query".into(), "/t/query-1".into())));
        assert_eq!(
            program(r#"{"reason":"compiler-artifact","target":{"name":"lib"},"executable":null}"#),
            None
        );
    }
}
