//! Execution of other programs.

use std::env;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

/// Runs `command` to its end.
///
/// # Errors
/// One line: the failed command and its purpose.
pub fn run(command: &mut Command, purpose: &str) -> Result<(), String> {
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("cannot {purpose}: {status}")),
        Err(error) => Err(cannot_start(command, purpose, &error)),
    }
}

/// Runs `command` to its end; returns its output.
///
/// # Errors
/// As for [`run`].
pub fn output(command: &mut Command, purpose: &str) -> Result<String, String> {
    let output = command
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| cannot_start(command, purpose, &error))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        Ok(text)
    } else {
        Err(format!("cannot {purpose}: {}\n{text}", output.status))
    }
}

fn cannot_start(command: &Command, purpose: &str, error: &std::io::Error) -> String {
    format!("cannot {purpose}: {}: {error}", command.get_program().to_string_lossy())
}

/// Returns a command that runs `binary`, with the program and arguments in `wrapper` before it, if any.
pub fn wrapped(binary: &Path, wrapper: &[&str]) -> Command {
    match wrapper {
        [] => Command::new(binary),
        [program, arguments @ ..] => {
            let mut command = Command::new(program);
            command.args(arguments).arg(binary);
            command
        }
    }
}

/// The folder of Go's installer, which does not add it to the search path.
const GO_FOLDER: &str = "/usr/local/go/bin";

/// Returns the search path extended by Go, if Go is installed and not in the path.
pub fn path_with_go() -> Option<OsString> {
    let path = env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = env::split_paths(&path).collect();
    let has_go = |folder: &Path| folder.join("go").is_file();
    if folders.iter().any(|folder| has_go(folder)) || !has_go(Path::new(GO_FOLDER)) {
        return None;
    }
    folders.push(GO_FOLDER.into());
    env::join_paths(folders).ok()
}

/// Runs this program with the same arguments and another search path.
pub fn again(path: &OsStr) -> ExitCode {
    let program = env::args_os().next().unwrap_or_default();
    let status = Command::new(program).args(env::args_os().skip(1)).env("PATH", path).status();
    match status {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("cannot begin again with another path: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Returns the cargo that runs this chore.
pub fn cargo() -> Command {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    // Build scripts of other crates would notice Cargo's variables about this program's package and run again.
    let of_this =
        |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
    for (name, _) in env::vars_os() {
        if name.to_str().is_some_and(of_this) {
            cargo.env_remove(name);
        }
    }
    cargo
}

/// Returns the workspace folder in which cargo runs the chore.
///
/// Determined at run time, because clones that share a target directory also share the compiled chore.
pub fn workspace() -> PathBuf {
    let of_chores = env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    let of_chores =
        of_chores.or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).parent().map(PathBuf::from));
    of_chores.as_deref().and_then(Path::parent).map(PathBuf::from).unwrap_or_default()
}

/// Returns cargo's target directory, however it is configured.
///
/// # Errors
/// Fails when cargo does not report it.
pub fn target_dir() -> Result<PathBuf, String> {
    let metadata = output(
        cargo().args(["metadata", "--no-deps", "--format-version", "1"]),
        "ask cargo for its target directory",
    )?;
    let metadata: serde_json::Value = serde_json::from_str(&metadata)
        .map_err(|error| format!("cannot read cargo metadata: {error}"))?;
    let folder = metadata["target_directory"].as_str().ok_or("cargo names no target directory")?;
    Ok(folder.into())
}
