//! Capsules of failed calls, one file each. `nacre plugin test --replay FILE` repeats such a call.
//!
//! A capsule contains documents and other data that the plugin may read, so only the owner of the node can read the
//! file. A file is complete or absent.

use nacre_sandbox::Capsule;
use nacre_types::Now;
use parking_lot::Mutex;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::{Error, ErrorKind, Result, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Maximum number of files per deployment; the oldest are removed first.
const KEPT: usize = 16;
/// Maximum total size of the files in bytes; the oldest are removed first.
const BYTES_MAX: u64 = 64 << 20;
/// Number of digits of the time in a file name. The fixed width makes the order of names that of times.
const TIME_DIGITS: usize = 20;
/// Suffix of a complete file, and of a file that is being written.
const ENDING: &str = ".json";
const NEW: &str = ".new";
/// Maximum length of a deployment's name in a file name. File names have at most 255 bytes.
const NAME_CHARACTERS_MAX: usize = 150;
/// Other characters are percent-encoded, so that different deployments have different file names.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'_').remove(b'-').remove(b'.');

/// Only one capsule is written at a time.
static WRITING: Mutex<()> = Mutex::new(());

/// Writes a capsule into `folder`. Returns the path.
///
/// # Errors
/// Fails when the disk refuses, or the capsule exceeds the total size.
pub fn keep(folder: &Path, capsule: &Capsule, now: Now) -> Result<PathBuf> {
    let text = serde_json::to_vec_pretty(capsule).map_err(Error::other)?;
    keep_text(folder, &capsule.deployment, &text, now, BYTES_MAX)
}

fn keep_text(
    folder: &Path,
    deployment: &str,
    text: &[u8],
    now: Now,
    bytes_max: u64,
) -> Result<PathBuf> {
    let _writing = WRITING.lock();
    let bytes = text.len() as u64;
    if bytes > bytes_max {
        return Err(Error::other(format!("a capsule of {bytes} bytes, more than {bytes_max}")));
    }
    nacre_store::create_private_directory(folder)?;
    let prefix = prefix(deployment);
    make_room(folder, &prefix, bytes_max - bytes)?;
    let path = folder.join(format!("{prefix}{:0TIME_DIGITS$}{ENDING}", now.unix_ns));
    let new = path.with_extension(&NEW[1..]);
    let written = File::options()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&new)
        .and_then(|mut file| file.write_all(text))
        .and_then(|()| std::fs::rename(&new, &path));
    match written {
        Ok(()) => Ok(path),
        Err(error) => {
            let _ = std::fs::remove_file(&new);
            Err(error)
        }
    }
}

/// Removes the oldest files, so that fewer than [`KEPT`] have names that begin with `prefix` and the total size is at
/// most `bytes_max`. Also removes incomplete files of a process that ended while writing.
fn make_room(folder: &Path, prefix: &str, bytes_max: u64) -> Result<()> {
    let mut all: Vec<(String, PathBuf, u64)> = Vec::new();
    for entry in std::fs::read_dir(folder)?.flatten() {
        let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
        if name.ends_with(NEW) {
            std::fs::remove_file(path)?;
        } else if let Some(time) = name.strip_suffix(ENDING).and_then(time_of) {
            let bytes = entry.metadata().map_or(0, |about| about.len());
            all.push((time.to_owned(), path, bytes));
        }
    }
    all.sort();
    let mut total: u64 = all.iter().map(|(.., bytes)| bytes).sum();
    let own: Vec<PathBuf> = files(folder, prefix)?.into_iter().map(|(_, path)| path).collect();
    let mut of_deployment = own.len();
    for (_, path, bytes) in all {
        let is_own = own.contains(&path);
        if total <= bytes_max && !(is_own && of_deployment >= KEPT) {
            continue;
        }
        std::fs::remove_file(&path)?;
        total -= bytes;
        of_deployment -= usize::from(is_own);
    }
    Ok(())
}

/// Returns the time at the end of a name.
fn time_of(name: &str) -> Option<&str> {
    let time = name.get(name.len().checked_sub(TIME_DIGITS)?..)?;
    time.bytes().all(|byte| byte.is_ascii_digit()).then_some(time)
}

/// Returns the capsules of a deployment in `folder` with their times, oldest first. Capsules of another format are
/// ignored.
///
/// # Errors
/// Fails when the disk refuses.
pub fn kept(folder: &Path, deployment: &str) -> Result<Vec<(String, Capsule)>> {
    if !folder.exists() {
        return Ok(Vec::new());
    }
    let mut capsules = Vec::new();
    for (time, file) in files(folder, &prefix(deployment))? {
        let text = match std::fs::read(file) {
            // Another capsule has replaced it meanwhile.
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            text => text?,
        };
        let capsule = serde_json::from_slice::<Capsule>(&text).ok();
        let capsule = capsule.filter(|capsule| capsule.deployment == deployment);
        capsules.extend(capsule.map(|capsule| (time, capsule)));
    }
    Ok(capsules)
}

/// Returns the prefix of a deployment's file names. The deployment of a design document has a slash in its name.
fn prefix(deployment: &str) -> String {
    let name = utf8_percent_encode(deployment, PLAIN).to_string();
    if name.len() <= NAME_CHARACTERS_MAX {
        return format!("{name}-");
    }
    let digest = Sha256::digest(deployment.as_bytes());
    let digest: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    format!("{}~{digest}-", &name[..NAME_CHARACTERS_MAX])
}

/// Returns the files whose names are `prefix` and a time, with these times, oldest first.
fn files(folder: &Path, prefix: &str) -> Result<Vec<(String, PathBuf)>> {
    let of = |path: PathBuf| {
        let time = path.file_name()?.to_str()?.strip_prefix(prefix)?.strip_suffix(ENDING)?;
        let is_time = time.len() == TIME_DIGITS && time.bytes().all(|byte| byte.is_ascii_digit());
        is_time.then(|| (time.to_owned(), path.clone()))
    };
    let mut files: Vec<_> =
        std::fs::read_dir(folder)?.filter_map(|entry| of(entry.ok()?.path())).collect();
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn keep_at(folder: &Path, deployment: &str, text: &str, time: u64) -> Result<PathBuf> {
        let now = Now { unix_ns: time, monotonic_ns: 0 };
        keep_text(folder, deployment, text.as_bytes(), now, 100)
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(folder).unwrap().flatten();
        let mut names: Vec<_> =
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    #[test]
    fn names_of_deployments_are_not_mixed_up() {
        let long = |end: char| prefix(&format!("{}{end}", "x".repeat(300)));
        assert_ne!(prefix("default/dd"), prefix("default_dd"));
        assert_ne!(long('a'), long('b'));
        assert!(long('a').len() + TIME_DIGITS + ENDING.len() <= 255);
        assert!(!prefix("../../x").contains('/'));
    }

    #[test]
    fn the_oldest_go_when_there_are_too_many_or_too_large_ones() {
        let folder = tempfile::tempdir().unwrap();
        let folder = &folder.path().join("capsules");
        for time in 0..20 {
            keep_at(folder, "a", "1", time).unwrap();
        }
        assert_eq!(names(folder).len(), KEPT);
        let path = keep_at(folder, "b", &"x".repeat(90), 20).unwrap();
        assert_eq!(names(folder).len(), 11, "10 of 1 byte and one of 90");
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(folder.metadata().unwrap().permissions().mode() & 0o777, 0o700);
        assert!(keep_at(folder, "b", &"x".repeat(101), 21).is_err());
        assert_eq!(names(folder).len(), 11, "what is refused costs nothing");
    }

    #[test]
    fn remains_of_a_crash_are_removed_and_never_listed() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a-00000000000000000001.new"), "{").unwrap();
        assert!(kept(folder.path(), "a").unwrap().is_empty());
        keep_at(folder.path(), "a", "{}", 2).unwrap();
        assert_eq!(names(folder.path()), ["a-00000000000000000002.json"]);
    }
}
