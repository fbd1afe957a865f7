//! Runs programs with a time limit.

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How a program ended.
pub(super) enum End {
    /// By itself, with success or not.
    Exited { success: bool },
    /// It was killed after its time limit.
    Killed,
}

/// Runs `command` for at most `limit`; returns how it ended and its output, both streams together.
///
/// The output goes through the file `log`, so that a program with much output never waits for a reader.
///
/// # Errors
/// Fails when it cannot be started.
pub(super) fn run(
    command: &mut Command,
    limit: Duration,
    log: &Path,
) -> Result<(End, String), String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let failed = |error: std::io::Error| format!("cannot run {program}: {error}");
    let file = File::create(log).map_err(failed)?;
    command.stdin(Stdio::null()).stdout(file.try_clone().map_err(failed)?).stderr(file);
    let mut process = command.spawn().map_err(failed)?;
    let begun = Instant::now();
    let end = loop {
        if let Some(status) = process.try_wait().map_err(failed)? {
            break End::Exited { success: status.success() };
        }
        if begun.elapsed() > limit {
            process.kill().map_err(failed)?;
            process.wait().map_err(failed)?;
            break End::Killed;
        }
        // The standard library can wait for a process or for a time, but not for both.
        std::thread::sleep(Duration::from_millis(5));
    };
    let bytes = std::fs::read(log).map_err(failed)?;
    Ok((end, String::from_utf8_lossy(&bytes).into_owned()))
}
