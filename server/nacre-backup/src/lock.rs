//! Locks: the backups that somebody reads or removes, so that nobody removes what another one reads.
//!
//! ```text
//! reader   writes locks/<id>.json ─► lists locks: one of its backups is being removed? ─► refused
//! remover  writes locks/<id>.json ─► lists locks: one of its backups is being read?    ─► refused
//! ```
//!
//! *Invariants:* whoever needs a lock lists the others after it has written its own, so that of a reader and a remover at least one sees the
//! other. A lock counts for [`LOCK_MS`] after the time in its id: that of a process that was killed ends by itself. Objects never change, so
//! that a reader whose lock has ended may fail, but reads nothing wrong.

use crate::repository::manifest_name;
use crate::{BackupId, Error, Repository, StoreError};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Milliseconds for which a lock counts. Readers that take longer make another one.
pub const LOCK_MS: u64 = 30 * 60 * 1000;
/// Folder of locks.
const LOCKS: &str = "locks/";

/// Purpose of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LockKind {
    /// The backups are read.
    Read,
    /// The backups are removed.
    Remove,
}

/// A lock that counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lock {
    /// Identifier, which has the time of its creation.
    pub id: BackupId,
    /// Purpose.
    pub kind: LockKind,
    /// The backups; `None` for a lock that cannot be read, which counts for all of them.
    pub backups: Option<BTreeSet<BackupId>>,
}

/// Content of a lock.
#[derive(Serialize, Deserialize)]
struct LockFile {
    kind: LockKind,
    backups: BTreeSet<BackupId>,
}

impl Lock {
    /// Returns true if the lock is for a backup.
    pub fn covers(&self, backup: BackupId) -> bool {
        self.backups.as_ref().is_none_or(|backups| backups.contains(&backup))
    }

    /// Returns the Unix milliseconds from which the lock does not count any more.
    pub fn ends_ms(&self) -> u64 {
        self.id.timestamp_ms().saturating_add(LOCK_MS)
    }
}

impl Repository {
    /// Returns the locks that count at a time, the oldest first.
    ///
    /// # Errors
    /// If the store fails.
    pub fn locks(&self, now_ms: u64) -> Result<Vec<Lock>, Error> {
        let mut locks = Vec::new();
        for id in self.lock_ids()? {
            // One from the future is of a clock that was wrong, and does not count for ever either.
            if id.timestamp_ms().abs_diff(now_ms) >= LOCK_MS {
                continue;
            }
            let (kind, backups) = match self.read_json::<LockFile>(&lock_name(id)) {
                Ok(file) => (file.kind, Some(file.backups)),
                // Released since it was listed.
                Err(Error::Store(StoreError::Missing(_))) => continue,
                Err(Error::Damaged { .. } | Error::Newer { .. }) => (LockKind::Read, None),
                Err(error) => return Err(error),
            };
            locks.push(Lock { id, kind, backups });
        }
        Ok(locks)
    }

    /// Locks backups. `random` are random bytes, never used before.
    ///
    /// # Errors
    /// [`Error::Invalid`] if others remove one of the backups that are to be read, or have removed it, or read one that is to be removed;
    /// if the store fails.
    pub fn lock(
        &self,
        kind: LockKind,
        backups: &BTreeSet<BackupId>,
        now_ms: u64,
        random: [u8; 16],
    ) -> Result<BackupId, Error> {
        let id = BackupId::new(now_ms, u128::from_le_bytes(random), None);
        let file = LockFile { kind, backups: backups.clone() };
        self.create_json(&lock_name(id), &file, &random)?;
        let checked = self.check_lock(id, &file, now_ms);
        if checked.is_err() {
            self.unlock(id)?;
        }
        checked.map(|()| id)
    }

    fn check_lock(&self, id: BackupId, file: &LockFile, now_ms: u64) -> Result<(), Error> {
        let others = self.locks(now_ms)?;
        for other in others.iter().filter(|other| other.id != id && other.kind != file.kind) {
            if let Some(backup) = file.backups.iter().find(|backup| other.covers(**backup)) {
                return Err(Error::Invalid(match other.kind {
                    LockKind::Read => format!("the backup {backup} is being read"),
                    LockKind::Remove => format!("the backup {backup} is being removed"),
                }));
            }
        }
        if file.kind == LockKind::Remove {
            return Ok(());
        }
        // The repository remembers manifests that it has read, and the store does not.
        for backup in &file.backups {
            match self.store().size(&manifest_name(*backup)) {
                Err(StoreError::Missing(_)) => {
                    return Err(Error::Invalid(format!(
                        "the backup {backup} was removed meanwhile"
                    )));
                }
                size => size?,
            };
        }
        Ok(())
    }

    /// Releases a lock; one that is gone is no error.
    ///
    /// # Errors
    /// If the store fails.
    pub fn unlock(&self, id: BackupId) -> Result<(), Error> {
        Ok(self.store().remove(&lock_name(id))?)
    }

    /// Releases all locks, also those that do not count any more: processes that still read or remove backups are not protected from each
    /// other after that. Returns how many there were.
    ///
    /// # Errors
    /// If the store fails.
    pub fn unlock_all(&self) -> Result<u64, Error> {
        let ids = self.lock_ids()?;
        ids.iter().try_for_each(|id| self.unlock(*id))?;
        Ok(ids.len() as u64)
    }

    fn lock_ids(&self) -> Result<Vec<BackupId>, Error> {
        let names = self.store().list(LOCKS)?;
        let id = |name: &String| name.strip_prefix(LOCKS)?.strip_suffix(".json")?.parse().ok();
        Ok(names.iter().filter_map(id).collect())
    }
}

/// Name of a lock.
fn lock_name(id: BackupId) -> String {
    format!("{LOCKS}{id}.json")
}
