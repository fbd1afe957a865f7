//! Runs the conformance cases for documents and views against databases in the process, and those for views against a gateway.
//!
//! A program in each language serves the sessions of a database on a port, and its views on another one, as its applications reach
//! them. The program in C serves sessions alone. A gateway answers views over HTTP, and takes documents from a program that acts as
//! its devices.

use super::library;
use nacre_conformance::run::{Target, run};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use xtask_setup::command::{run as run_command, target_dir, workspace};

/// A part of the cases.
struct Part {
    /// The text that the names of its groups contain.
    groups: &'static str,
    /// A group that is left out.
    except: &'static str,
    /// The least number of cases, so that a filter that selects nothing is noticed.
    cases_min: usize,
}

/// The cases for documents: those of the key-value protocol.
const DOCUMENTS: Part = Part { groups: "kv/", except: "", cases_min: 360 };
/// The cases for views. Odd requests are left out: they are about logins, and about errors that a gateway answers as its other
/// endpoints do.
const VIEWS: Part = Part { groups: "views/", except: "views/requests", cases_min: 850 };

/// The cases for a program that serves sessions and views.
const ALL: &[Part] = &[DOCUMENTS, VIEWS];
/// The cases for a program that serves sessions alone.
const SESSIONS: &[Part] = &[DOCUMENTS];

/// Runs the cases for documents in Rust, C, Python and JavaScript, and those for views, with the libraries and programs that the Rust
/// tests have built.
///
/// # Errors
/// Fails when a library is missing, a program does not start, or a case fails.
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
    for (language, mut program, parts) in
        [("Rust", rust, ALL), ("C", c, SESSIONS), ("Python", python, ALL), ("JavaScript", js, ALL)]
    {
        program.arg(folder.join(language));
        failures.extend(serve(language, &mut program, parts, None)?);
    }
    failures.extend(views(&folder.join("gateway"))?);
    if failures.is_empty() { Ok(()) } else { Err(failures.join("\n")) }
}

/// Starts a gateway and runs the cases for views against it; returns the failed ones.
fn views(folder: &Path) -> Result<Vec<String>, String> {
    let cannot = |error| format!("start a gateway: {error}");
    let mut command = Command::new(target_dir()?.join("debug/nacre-edge"));
    command.arg("--folder").arg(folder).args(["--listen", "127.0.0.1:0"]).stderr(Stdio::piped());
    let mut gateway = command.spawn().map_err(cannot)?;
    let judged = match address(&mut gateway) {
        Some((address, views_port)) => {
            let mut hub = Command::new("node");
            hub.arg(workspace().join("conformance/embedded/hub.mjs")).arg(address);
            serve("gateway", &mut hub, &[VIEWS], Some(views_port))
        }
        None => Err("the gateway names no address".into()),
    };
    gateway.kill().and_then(|()| gateway.wait()).map_err(cannot)?;
    judged
}

/// Returns the address and the port that a gateway prints once it listens.
fn address(gateway: &mut Child) -> Option<(String, u16)> {
    let mut lines = BufReader::new(gateway.stderr.take()?).lines().map_while(Result::ok);
    let line = lines.find(|line| line.contains("://"))?;
    // The output must be read, or the gateway would block.
    std::thread::spawn(move || lines.for_each(drop));
    let (_, rest) = line.split_once("://")?;
    let address = rest.split(';').next()?.to_owned();
    let port = address.rsplit(':').next()?.parse().ok()?;
    Some((address, port))
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

/// Starts a program that prints a port for key-value clients, and a second one for views unless `views_port` is that. Runs the cases
/// against it; returns the failed ones.
fn serve(
    name: &str,
    command: &mut Command,
    parts: &[Part],
    views_port: Option<u16>,
) -> Result<Vec<String>, String> {
    let cannot = |error| format!("serve {name}: {error}");
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut program = command.spawn().map_err(cannot)?;
    let mut failed = Vec::new();
    match ports(&mut program) {
        Some((kv_port, own)) => {
            let views_port = views_port.or(own).unwrap_or(0);
            for part in parts {
                failed.extend(judge(name, part, kv_port, views_port));
            }
        }
        None => failed.push(format!("{name}: the program names no port")),
    }
    // The end of its input ends the program.
    drop(program.stdin.take());
    let status = program.wait().map_err(cannot)?;
    if !status.success() {
        failed.push(format!("{name}: {status}"));
    }
    Ok(failed)
}

/// Returns the ports that a program prints once it listens: one for key-value clients, and perhaps one for views.
fn ports(program: &mut Child) -> Option<(u16, Option<u16>)> {
    let mut line = String::new();
    BufReader::new(program.stdout.take()?).read_line(&mut line).ok()?;
    let mut words = line.split_whitespace().map(str::parse::<u16>);
    Some((words.next()?.ok()?, words.next().and_then(Result::ok)))
}

/// Runs the cases; returns the failed ones.
fn judge(name: &str, part: &Part, kv_port: u16, views_port: u16) -> Vec<String> {
    let target = Target {
        host: "127.0.0.1".into(),
        kv_port,
        views_port,
        // No case of these parts uses the other ports, and nobody has to log in.
        mgmt_port: 0,
        query_port: 0,
        eventing_port: 0,
        fresh_ports: Vec::new(),
        user: String::new(),
        password: String::new(),
        bucket: "default".into(),
        filter: part.groups.into(),
        run: "embedded".into(),
    };
    let mut outcomes = run(&target, |_| {});
    outcomes.retain(|outcome| outcome.group != part.except);
    let mut failed: Vec<String> = outcomes
        .iter()
        .filter_map(|outcome| {
            let problem = outcome.problem.as_ref()?;
            Some(format!("{name}: {}/{}: {problem}", outcome.group, outcome.name))
        })
        .collect();
    let passed = outcomes.len() - failed.len();
    println!("{name}: {passed} of {} cases in {} passed", outcomes.len(), part.groups);
    if outcomes.len() < part.cases_min {
        let expected = part.cases_min;
        let (count, groups) = (outcomes.len(), part.groups);
        failed.push(format!("{name}: {count} cases in {groups}, {expected} or more expected"));
    }
    failed
}
