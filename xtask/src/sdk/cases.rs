//! Runs the conformance cases for documents against databases in the process: a program in each language serves the sessions of one
//! on a port, as its applications reach them.

use super::library;
use nacre_conformance::run::{Target, run};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use xtask_setup::command::{run as run_command, target_dir, workspace};

/// The cases for documents: those of the key-value protocol.
const GROUPS: &str = "kv/";
/// The least number of cases, so that a filter that selects nothing is noticed.
const CASES_MIN: usize = 360;

/// Runs the cases in Rust, C, Python and JavaScript, with the libraries that the Rust tests have built.
///
/// # Errors
/// Fails when a library is missing, a program does not start, or a case fails in a language.
pub(super) fn play() -> Result<(), String> {
    let folder = target_dir()?.join("embedded-cases");
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let script = |name: &str| workspace().join("conformance/embedded").join(name);

    let rust = Command::new(target_dir()?.join("debug/examples/serve-embedded"));
    let c = Command::new(compiled(&script("serve.c"), &folder)?);
    let mut python = Command::new("python3");
    python
        .arg(script("serve.py"))
        .env("PYTHONPATH", workspace().join("sdk-py/src"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("NACRE_LIBRARY", library("libnacre_c.so")?);
    let mut js = Command::new("node");
    js.arg(script("serve.mjs"))
        .arg(workspace().join("sdk-js/dist/src/embedded.js"))
        .env("NACRE_ADDON", library("libnacre_embedded_node.so")?);

    let mut failures = Vec::new();
    for (language, mut program) in
        [("Rust", rust), ("C", c), ("Python", python), ("JavaScript", js)]
    {
        program.arg(folder.join(language));
        failures.extend(serve(language, &mut program)?);
    }
    if failures.is_empty() { Ok(()) } else { Err(failures.join("\n")) }
}

/// Compiles the program in C.
fn compiled(source: &Path, folder: &Path) -> Result<PathBuf, String> {
    let program = folder.join("serve");
    let mut compile = Command::new("cc");
    compile
        .args(["-std=c99", "-D_POSIX_C_SOURCE=200809L", "-Wall", "-Wextra", "-Werror", "-g", "-I"])
        .arg(workspace().join("server/nacre-embedded-c"))
        .arg(source)
        .arg(library("libnacre_c.a")?)
        .args(["-lpthread", "-ldl", "-lm", "-o"])
        .arg(&program);
    run_command(&mut compile, "compile a program with libnacre")?;
    Ok(program)
}

/// Starts a program and runs the cases against it; returns the failed ones.
fn serve(language: &str, command: &mut Command) -> Result<Vec<String>, String> {
    let cannot = |error| format!("serve a database in {language}: {error}");
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut program = command.spawn().map_err(cannot)?;
    let mut failed = match port(&mut program) {
        Some(port) => judge(language, port),
        None => vec![format!("{language}: the program names no port")],
    };
    // The end of its input ends the program.
    drop(program.stdin.take());
    let status = program.wait().map_err(cannot)?;
    if !status.success() {
        failed.push(format!("{language}: {status}"));
    }
    Ok(failed)
}

/// Returns the port that a program prints once it listens.
fn port(program: &mut Child) -> Option<u16> {
    let mut line = String::new();
    BufReader::new(program.stdout.take()?).read_line(&mut line).ok()?;
    line.trim().parse().ok()
}

/// Runs the cases; returns the failed ones.
fn judge(language: &str, port: u16) -> Vec<String> {
    let target = Target {
        host: "127.0.0.1".into(),
        kv_port: port,
        // No case for documents uses the other ports, and a session needs no login.
        mgmt_port: 0,
        views_port: 0,
        query_port: 0,
        eventing_port: 0,
        fresh_ports: Vec::new(),
        user: String::new(),
        password: String::new(),
        bucket: "default".into(),
        filter: GROUPS.into(),
        run: "embedded".into(),
    };
    let outcomes = run(&target, |_| {});
    let mut failed: Vec<String> = outcomes
        .iter()
        .filter_map(|outcome| {
            let problem = outcome.problem.as_ref()?;
            Some(format!("{language}: {}/{}: {problem}", outcome.group, outcome.name))
        })
        .collect();
    println!("{language}: {} of {} cases passed", outcomes.len() - failed.len(), outcomes.len());
    if outcomes.len() < CASES_MIN {
        failed.push(format!("{language}: {} cases, {CASES_MIN} or more expected", outcomes.len()));
    }
    failed
}
