//! Locks on backups that are being read or removed, so that no process removes a backup that another one reads.
//!
//! ```text
//! reader   writes locks/<id>.json ─► lists locks: one of its backups is being removed? ─► refused
//! remover  writes locks/<id>.json ─► lists locks: one of its backups is being read?    ─► refused
//! ```
//!
//! *Invariants:* a process lists the other locks after it has written its own, so that of a reader and a remover at least one
//! sees the other. A lock is valid for [`LOCK_MS`] after the time in its ID: the lock of a killed process expires by itself.
//! Objects never change, so a reader whose lock has expired may fail, but never reads wrong data.

use crate::repository::manifest_name;
use crate::{BackupId, Error, Repository, StoreError};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Milliseconds for which a lock is valid. Readers that take longer create another one.
pub const LOCK_MS: u64 = 30 * 60 * 1000;
/// The folder of locks.
const LOCKS: &str = "locks/";

/// The purpose of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LockKind {
    /// The backups are being read.
    Read,
    /// The backups are being removed.
    Remove,
}

/// A valid lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lock {
    /// The ID, which contains the time of its creation.
    pub id: BackupId,
    /// The purpose.
    pub kind: LockKind,
    /// The locked backups; `None` for an unreadable lock, which applies to all backups.
    pub backups: Option<BTreeSet<BackupId>>,
}

/// The content of a lock.
#[derive(Serialize, Deserialize)]
struct LockFile {
    kind: LockKind,
    backups: BTreeSet<BackupId>,
}

impl Lock {
    /// Returns true if the lock applies to a backup.
    pub fn covers(&self, backup: BackupId) -> bool {
        self.backups.as_ref().is_none_or(|backups| backups.contains(&backup))
    }

    /// Returns the Unix milliseconds at which the lock expires.
    pub fn ends_ms(&self) -> u64 {
        self.id.timestamp_ms().saturating_add(LOCK_MS)
    }
}

impl Repository {
    /// Returns the locks that are valid at a time, oldest first.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn locks(&self, now_ms: u64) -> Result<Vec<Lock>, Error> {
        let mut locks = Vec::new();
        for id in self.lock_ids()? {
            // A lock from the future comes from a wrong clock. It must not be valid for ever either.
            if id.timestamp_ms().abs_diff(now_ms) >= LOCK_MS {
                continue;
            }
            let (kind, backups) = match self.read_json::<LockFile>(&lock_name(id)) {
                Ok(file) => (file.kind, Some(file.backups)),
                // Released after it was listed.
                Err(Error::Store(StoreError::Missing(_))) => continue,
                Err(Error::Damaged { .. } | Error::Newer { .. }) => (LockKind::Read, None),
                Err(error) => return Err(error),
            };
            locks.push(Lock { id, kind, backups });
        }
        Ok(locks)
    }

    /// Locks backups. `random` must be unused random bytes.
    ///
    /// # Errors
    /// [`Error::Invalid`] if another process removes or has removed one of the backups to read, or reads one of the backups to
    /// remove; errors of the store.
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
        // Ask the store, because the repository caches manifests that it has read.
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

    /// Releases a lock; a missing lock is not an error.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn unlock(&self, id: BackupId) -> Result<(), Error> {
        Ok(self.store().remove(&lock_name(id))?)
    }

    /// Releases all locks, also expired ones, and returns their number. Processes that still read or remove backups are then no
    /// longer protected from each other.
    ///
    /// # Errors
    /// Errors of the store.
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

/// Returns the name of a lock.
fn lock_name(id: BackupId) -> String {
    format!("{LOCKS}{id}.json")
}
