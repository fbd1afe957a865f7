//! `nacre backup merge`.

use super::lock::{self, Reading};
use super::{Place, counted, find, now_ms};
use clap::Args;
use nacre_backup::{BackupId, Error, MergeRange, Repository, TaskOptions, merge as merge_backups};

/// Milliseconds of a day.
const DAY_MS: u64 = 24 * 60 * 60 * 1000;

/// Options of `nacre backup merge`.
#[derive(Args, Clone, Debug)]
pub(super) struct Merge {
    #[command(flatten)]
    place: Place,
    /// Newest backup to merge: its ID, the beginning of its ID, or latest
    #[arg(default_value = "latest")]
    backup: String,
    /// Oldest backup to merge (default: the full backup); earlier backups stay, and the merged backup is based on them
    #[arg(long, value_name = "BACKUP")]
    from: Option<String>,
    /// Merge the backups that began today or on the DAYS days before, in UTC
    #[arg(long, conflicts_with = "from")]
    days: Option<u64>,
    /// Remove the merged backups, except those that another backup is based on
    #[arg(long)]
    remove: bool,
}

/// Merges backups into one, which becomes the newest.
///
/// # Errors
/// A sentence. The backups are as they were; a merge that was interrupted can be removed.
pub(super) fn merge(options: &Merge) -> Result<(), String> {
    let repository = options.place.open()?;
    let last = find(&repository, &options.backup)?;
    let first = match (&options.from, options.days) {
        (Some(from), _) => Some(find(&repository, from)?),
        (None, Some(days)) => Some(oldest_since(&repository, last, days)?),
        (None, None) => None,
    };
    let task_options = TaskOptions { now_ms: now_ms(), random: rand::random(), is_full: false };
    let range = MergeRange { last, first };
    let writer = concat!("nacre ", env!("CARGO_PKG_VERSION"));
    let reading = Reading::begin(&repository, last)?;
    let manifest = merge_backups(&repository, range, task_options, writer)?;
    drop(reading);
    let parts = || manifest.buckets.iter().flat_map(|bucket| &bucket.parts);
    println!(
        "merged {} into {}: {} and {}, {} bytes",
        counted(manifest.merged.len() as u64, "backup"),
        manifest.id,
        counted(parts().map(|part| part.sets).sum(), "document"),
        counted(parts().map(|part| part.deletions).sum(), "deletion"),
        manifest.bytes()
    );
    if !options.remove {
        println!("`nacre backup prune --keep-last 1` removes what it replaces");
        return Ok(());
    }
    let merged: Vec<BackupId> = manifest.merged.iter().rev().copied().collect();
    lock::remove(&repository, &merged, |id, removed| match removed {
        Ok(()) => {
            println!("removed {id}");
            Ok(())
        }
        Err(Error::Invalid(reason)) => {
            println!("kept {id}: {reason}");
            Ok(())
        }
        Err(error) => Err(error.into()),
    })
}

/// Finds the oldest backup that `last` continues, or itself, of those that were begun on a number of days.
fn oldest_since(repository: &Repository, last: BackupId, days: u64) -> Result<BackupId, String> {
    let today = now_ms() / DAY_MS * DAY_MS;
    let since = today.saturating_sub(days.saturating_mul(DAY_MS));
    for id in repository.needs(last)? {
        if repository.manifest(id)?.0.time_ms.0 >= since {
            return Ok(id);
        }
    }
    Err(format!("there is nothing to merge: the backup {last} is older"))
}
