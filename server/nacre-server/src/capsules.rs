//! Capsules of failed calls, a file each: `nacre plugin test --replay FILE` makes such a call again.

use nacre_plugin_host::Capsule;
use nacre_types::Now;
use std::io::{Error, Result};
use std::path::{Path, PathBuf};

/// Files that are kept of one deployment; the oldest go.
const KEPT: usize = 16;

/// Writes a capsule into `folder`; says where.
///
/// # Errors
/// When the disk refuses.
pub fn keep(folder: &Path, capsule: &Capsule, now: Now) -> Result<PathBuf> {
    std::fs::create_dir_all(folder)?;
    // The name of a design document's deployment has a slash.
    let prefix = format!("{}-", capsule.deployment.replace(['/', '\\'], "_"));
    let text = serde_json::to_vec_pretty(capsule).map_err(Error::other)?;
    let path = folder.join(format!("{prefix}{:020}.json", now.unix_ns));
    std::fs::write(&path, text)?;
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder)?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            name.strip_prefix(&prefix)
                .is_some_and(|rest| rest.len() == "00000000000000000000.json".len())
        })
        .collect();
    // Names end with the time, so this is their order.
    files.sort();
    let surplus = files.len().saturating_sub(KEPT);
    files.iter().take(surplus).try_for_each(std::fs::remove_file)?;
    Ok(path)
}
