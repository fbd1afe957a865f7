//! Locks of commands: a backup is not removed while another command reads it.

use super::now_ms;
use jiff::Timestamp;
use nacre_backup::{BackupId, Error, LOCK_MS, Lock, LockKind, Repository};
use parking_lot::Mutex;
use std::collections::BTreeSet;

/// Backups that are read, until this is dropped.
pub(super) struct Reading<'a> {
    repository: &'a Repository,
    backups: BTreeSet<BackupId>,
    /// None where no lock can be written.
    held: Mutex<Option<BackupId>>,
}

impl<'a> Reading<'a> {
    /// Locks a backup with all that it continues.
    ///
    /// # Errors
    /// A sentence if it is being removed, or cannot be read. A repository that cannot be written is read without a lock.
    pub fn begin(repository: &'a Repository, id: BackupId) -> Result<Reading<'a>, String> {
        let backups = repository.needs(id)?;
        let held = match repository.lock(LockKind::Read, &backups, now_ms(), rand::random()) {
            Ok(lock) => Some(lock),
            Err(Error::Store(error)) if error.is_failure() => {
                eprintln!("the backup is read without a lock against its removal: {error}");
                None
            }
            Err(error) => return Err(error.into()),
        };
        Ok(Reading { repository, backups, held: Mutex::new(held) })
    }

    /// Makes another lock once half of the time of the present one is over.
    pub fn renew(&self) {
        let mut held = self.held.lock();
        let Some(old) = *held else { return };
        let now_ms = now_ms();
        if now_ms.saturating_sub(old.timestamp_ms()) < LOCK_MS / 2 {
            return;
        }
        // Without a new lock the reader goes on: it fails if the backup is removed.
        if let Ok(new) = self.repository.lock(LockKind::Read, &self.backups, now_ms, rand::random())
        {
            *held = Some(new);
            let _ = self.repository.unlock(old);
        }
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        if let Some(lock) = self.held.get_mut().take() {
            let _ = self.repository.unlock(lock);
        }
    }
}

/// Removes backups in their order, those that others continue last; calls `removed` after each. One that another command reads stays.
///
/// # Errors
/// A sentence; what was removed by then is gone.
pub(super) fn remove(
    repository: &Repository,
    backups: &[BackupId],
    mut removed: impl FnMut(BackupId, Result<(), Error>) -> Result<(), String>,
) -> Result<(), String> {
    if backups.is_empty() {
        return Ok(());
    }
    let all = backups.iter().copied().collect();
    let lock = repository.lock(LockKind::Remove, &all, now_ms(), rand::random())?;
    let outcome = backups.iter().try_for_each(|id| removed(*id, repository.remove(*id)));
    repository.unlock(lock)?;
    outcome
}

/// Returns the locks of those who read backups now.
///
/// # Errors
/// A sentence if the store fails.
pub(super) fn readers(repository: &Repository) -> Result<Vec<Lock>, String> {
    let locks = repository.locks(now_ms())?;
    Ok(locks.into_iter().filter(|lock| lock.kind == LockKind::Read).collect())
}

/// How long a lock counts, and what to do about that of a command that was killed.
pub(super) fn until(lock: &Lock) -> String {
    format!(
        "or was by a command that was killed: its lock ends at {}, or by `nacre backup unlock`",
        end_of(lock)
    )
}

/// `2026-11-28T12:00:00Z`.
fn end_of(lock: &Lock) -> String {
    let ms = i64::try_from(lock.ends_ms()).unwrap_or(i64::MAX);
    Timestamp::from_millisecond(ms).map_or_else(|_| ms.to_string(), |time| time.to_string())
}
