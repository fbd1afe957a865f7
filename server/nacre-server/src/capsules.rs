//! Capsules of failed calls, a file each: `nacre plugin test --replay FILE` makes such a call again.

use nacre_plugin_host::Capsule;
use nacre_types::Now;
use std::io::{Error, ErrorKind, Result};
use std::path::{Path, PathBuf};

/// Files that are kept of one deployment; the oldest go.
const KEPT: usize = 16;
/// Digits of a time in the name of a file, so that their order is that of the times.
const TIME_DIGITS: usize = 20;

/// Writes a capsule into `folder`; says where.
///
/// # Errors
/// When the disk refuses.
pub fn keep(folder: &Path, capsule: &Capsule, now: Now) -> Result<PathBuf> {
    std::fs::create_dir_all(folder)?;
    let prefix = prefix(&capsule.deployment);
    let text = serde_json::to_vec_pretty(capsule).map_err(Error::other)?;
    let path = folder.join(format!("{prefix}{:0TIME_DIGITS$}.json", now.unix_ns));
    std::fs::write(&path, text)?;
    let files = files(folder, &prefix)?;
    let surplus = files.len().saturating_sub(KEPT);
    files.iter().take(surplus).try_for_each(|(_, file)| std::fs::remove_file(file))?;
    Ok(path)
}

/// The capsules of a deployment in `folder` with their times, the oldest first. Those of another format are passed over.
///
/// # Errors
/// When the disk refuses.
pub fn kept(folder: &Path, deployment: &str) -> Result<Vec<(String, Capsule)>> {
    if !folder.exists() {
        return Ok(Vec::new());
    }
    let mut capsules = Vec::new();
    for (time, file) in files(folder, &prefix(deployment))? {
        let text = match std::fs::read(file) {
            // Another one has taken its place meanwhile.
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            text => text?,
        };
        capsules.extend(serde_json::from_slice(&text).ok().map(|capsule| (time, capsule)));
    }
    Ok(capsules)
}

/// What the names of a deployment's files begin with.
fn prefix(deployment: &str) -> String {
    // The name of a design document's deployment has a slash.
    format!("{}-", deployment.replace(['/', '\\'], "_"))
}

/// The files whose names are `prefix` and a time, with these times, the oldest first.
fn files(folder: &Path, prefix: &str) -> Result<Vec<(String, PathBuf)>> {
    let of = |path: PathBuf| {
        let time = path.file_name()?.to_str()?.strip_prefix(prefix)?.strip_suffix(".json")?;
        let is_time = time.len() == TIME_DIGITS && time.bytes().all(|byte| byte.is_ascii_digit());
        is_time.then(|| (time.to_owned(), path.clone()))
    };
    let mut files: Vec<_> =
        std::fs::read_dir(folder)?.filter_map(|entry| of(entry.ok()?.path())).collect();
    files.sort();
    Ok(files)
}
