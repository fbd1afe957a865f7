//! A repository: its file, the names of its objects, and its manifests.

use crate::cipher::{Cipher, KeySlot};
use crate::manifest::{JSON_BYTES_MAX, open_json, seal_json};
use crate::{BackupId, BucketPart, Error, FORMAT, Manifest, Store, StoreError, decode_manifest};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Name of the repository's file.
const FILE: &str = "nacre-backup.json";
/// Longest repository file in bytes.
const FILE_BYTES_MAX: u64 = 64 << 10;
/// Folders of complete backups, and of those that are being taken.
const BACKUPS: &str = "backups/";
const PROGRESS: &str = "progress/";

/// The file that makes a folder a repository. It is never changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RepositoryFile {
    /// Format of the repository.
    pub format: u64,
    /// Identifier.
    pub id: BackupId,
    /// The encrypted key, of a repository with a passphrase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_slot: Option<KeySlot>,
}

/// A manifest, and the BLAKE3 of its object.
type Read = Arc<(Manifest, String)>;

/// A repository that was opened.
pub struct Repository {
    store: Arc<dyn Store>,
    cipher: Option<Cipher>,
    id: BackupId,
    manifests: Mutex<BTreeMap<BackupId, Read>>,
}

impl Repository {
    /// Makes an empty store a repository.
    ///
    /// # Errors
    /// [`Error::Invalid`] if it is one already; if the store fails.
    pub fn create(store: &dyn Store, id: BackupId, key_slot: Option<KeySlot>) -> Result<(), Error> {
        let file = RepositoryFile { format: FORMAT, id, key_slot };
        let bytes = serde_json::to_vec_pretty(&file).expect("the file is plain data");
        match store.create(FILE, &bytes) {
            Err(StoreError::Exists(_)) => {
                Err(Error::Invalid("there is a repository already".to_owned()))
            }
            created => Ok(created?),
        }
    }

    /// Returns true if a store has a repository.
    ///
    /// # Errors
    /// If the store fails.
    pub fn exists(store: &dyn Store) -> Result<bool, Error> {
        match store.size(FILE) {
            Ok(_) => Ok(true),
            Err(StoreError::Missing(_)) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Opens a repository.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is none, [`Error::Passphrase`], [`Error::Newer`], [`Error::Damaged`]; if the store fails.
    pub fn open(store: Arc<dyn Store>, passphrase: Option<&str>) -> Result<Repository, Error> {
        let bytes = match store.read(FILE, 0..FILE_BYTES_MAX) {
            Err(StoreError::Missing(_)) => {
                return Err(Error::Invalid("there is no repository of backups".to_owned()));
            }
            read => read?,
        };
        let damaged = |error: serde_json::Error| Error::damaged(FILE, error.to_string());
        let file: serde_json::Value = serde_json::from_slice(&bytes).map_err(damaged)?;
        let found = file["format"].as_u64().unwrap_or(0);
        if found > FORMAT {
            return Err(Error::Newer { object: FILE.to_owned(), found, known: FORMAT });
        }
        let file: RepositoryFile = serde_json::from_value(file).map_err(damaged)?;
        let cipher = match (&file.key_slot, passphrase) {
            (None, None) => None,
            (Some(slot), Some(passphrase)) => Some(slot.open(passphrase)?),
            (Some(_), None) => {
                return Err(Error::Passphrase(
                    "the repository is encrypted: name a file with --passphrase-file",
                ));
            }
            (None, Some(_)) => {
                return Err(Error::Passphrase(
                    "the repository is not encrypted: leave out the passphrase",
                ));
            }
        };
        Ok(Repository { store, cipher, id: file.id, manifests: Mutex::default() })
    }

    /// Returns the identifier of the repository.
    pub fn id(&self) -> BackupId {
        self.id
    }

    pub(crate) fn store(&self) -> &dyn Store {
        &*self.store
    }

    pub(crate) fn cipher(&self) -> Option<&Cipher> {
        self.cipher.as_ref()
    }

    /// Returns the complete backups, oldest first, also those whose manifest turns out to be damaged.
    ///
    /// # Errors
    /// If the store fails.
    pub fn backups(&self) -> Result<Vec<BackupId>, Error> {
        let names = self.store.list(BACKUPS)?;
        let complete = |name: &String| {
            name.strip_prefix(BACKUPS)?.strip_suffix("/manifest.json")?.parse().ok()
        };
        Ok(names.iter().filter_map(complete).collect())
    }

    /// Returns the backups that have begun and are not complete, oldest first.
    ///
    /// # Errors
    /// If the store fails.
    pub fn unfinished(&self) -> Result<Vec<BackupId>, Error> {
        let names = [self.store.list(PROGRESS)?, self.store.list(BACKUPS)?].concat();
        let id = |name: &String| name.split('/').nth(1)?.parse().ok();
        let all: BTreeSet<BackupId> = names.iter().filter_map(id).collect();
        let complete: BTreeSet<BackupId> = self.backups()?.into_iter().collect();
        Ok(all.difference(&complete).copied().collect())
    }

    /// Reads the manifest of a backup.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no such backup, [`Error::Damaged`], [`Error::Newer`]; if the store fails.
    pub fn manifest(&self, id: BackupId) -> Result<Read, Error> {
        if let Some(known) = self.manifests.lock().get(&id) {
            return Ok(Arc::clone(known));
        }
        let name = manifest_name(id);
        let bytes = match self.store.read(&name, 0..JSON_BYTES_MAX) {
            Err(StoreError::Missing(_)) => {
                return Err(Error::Invalid(format!("there is no complete backup {id}")));
            }
            read => read?,
        };
        let manifest = decode_manifest(&name, &bytes, self.cipher())?;
        if manifest.id != id {
            return Err(Error::damaged(&name, format!("it is that of {}", manifest.id)));
        }
        let read = Arc::new((manifest, blake3::hash(&bytes).to_string()));
        self.manifests.lock().insert(id, Arc::clone(&read));
        Ok(read)
    }

    /// Returns the newest complete backup that has a bucket, with its manifest. One whose manifest is damaged is no base for another.
    ///
    /// # Errors
    /// If the store fails.
    pub fn latest_with(&self, bucket: &str) -> Result<Option<Read>, Error> {
        for id in self.backups()?.into_iter().rev() {
            match self.manifest(id) {
                Ok(read) if read.0.bucket(bucket).is_some() => return Ok(Some(read)),
                Ok(_) | Err(Error::Damaged { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// Returns for each vBucket of a bucket the backup that has its part.
    ///
    /// # Errors
    /// [`Error::Damaged`] if a backup that is continued is missing or another one than it was; if the store fails.
    pub(crate) fn parts(&self, id: BackupId, bucket: &str) -> Result<Vec<BackupId>, Error> {
        let missing = || Error::Invalid(format!("the backup {id} has no bucket {bucket}"));
        let mut read = self.manifest(id)?;
        let count = read.0.bucket(bucket).ok_or_else(missing)?.vbuckets;
        let mut parts: Vec<Option<BackupId>> = vec![None; count.into()];
        loop {
            let found = bucket_of(&read, bucket)?;
            for part in &found.parts {
                parts[usize::from(part.vbid)].get_or_insert(read.0.id);
            }
            let Some(parent) = &found.parent else { break };
            if parts.iter().all(Option::is_some) {
                break;
            }
            let above = self.parent(&read, bucket, parent)?;
            if bucket_of(&above, bucket)?.vbuckets != count {
                return Err(Error::damaged(
                    &manifest_name(read.0.id),
                    "its parent has other vBuckets",
                ));
            }
            read = above;
        }
        let whole: Option<Vec<BackupId>> = parts.into_iter().collect();
        whole.ok_or_else(|| Error::damaged(&manifest_name(read.0.id), "not all vBuckets are there"))
    }

    /// Reads the manifest that `read` continues.
    pub(crate) fn parent(
        &self,
        read: &Read,
        bucket: &str,
        parent: &crate::Parent,
    ) -> Result<Read, Error> {
        let name = manifest_name(read.0.id);
        // Who refers to a later one would go round in circles.
        if parent.id >= read.0.id {
            return Err(Error::damaged(&name, "its parent is younger"));
        }
        let above = match self.manifest(parent.id) {
            Err(Error::Invalid(_)) => {
                let reason = format!("its parent {} is missing", parent.id);
                return Err(Error::damaged(&name, reason));
            }
            above => above?,
        };
        if above.1 != parent.blake3 || above.0.bucket(bucket).is_none() {
            let reason = format!("its parent {} is not what it was", parent.id);
            return Err(Error::damaged(&name, reason));
        }
        Ok(above)
    }

    /// Returns the backups that reading a backup needs, itself included.
    ///
    /// # Errors
    /// [`Error::Damaged`] if one of them is missing; if the store fails.
    pub fn needs(&self, id: BackupId) -> Result<BTreeSet<BackupId>, Error> {
        let mut needed = BTreeSet::new();
        let mut open = vec![id];
        while let Some(id) = open.pop() {
            if !needed.insert(id) {
                continue;
            }
            let read = self.manifest(id)?;
            for bucket in &read.0.buckets {
                open.extend(bucket.parent.as_ref().map(|parent| parent.id));
                open.extend(bucket.parts.iter().filter_map(|part| part.base));
            }
        }
        Ok(needed)
    }

    /// Removes a backup that no other needs, or one that is not complete: the manifest first, so that half of a backup is never complete.
    ///
    /// # Errors
    /// [`Error::Invalid`] if another backup continues it; if the store fails.
    pub fn remove(&self, id: BackupId) -> Result<(), Error> {
        for other in self.backups()? {
            if other > id && self.needs(other)?.contains(&id) {
                return Err(Error::Invalid(format!(
                    "the backup {other} continues {id}: remove that first"
                )));
            }
        }
        self.store.remove(&manifest_name(id))?;
        self.manifests.lock().remove(&id);
        for folder in [format!("{BACKUPS}{id}/"), format!("{PROGRESS}{id}/")] {
            for name in self.store.list(&folder)? {
                self.store.remove(&name)?;
            }
        }
        Ok(())
    }

    /// Writes an object of JSON.
    pub(crate) fn create_json(
        &self,
        name: &str,
        value: &impl Serialize,
        salt: &[u8; 16],
    ) -> Result<(), StoreError> {
        self.store.create(name, &seal_json(name, value, self.cipher().map(|cipher| (cipher, salt))))
    }

    /// Reads an object of JSON.
    pub(crate) fn read_json<T: serde::de::DeserializeOwned>(&self, name: &str) -> Result<T, Error> {
        open_json(name, &self.store.read(name, 0..JSON_BYTES_MAX)?, self.cipher())
    }
}

fn bucket_of<'a>(read: &'a Read, bucket: &str) -> Result<&'a BucketPart, Error> {
    let missing =
        || Error::damaged(&manifest_name(read.0.id), format!("it has no bucket {bucket}"));
    read.0.bucket(bucket).ok_or_else(missing)
}

/// Name of the manifest of a backup.
pub(crate) fn manifest_name(id: BackupId) -> String {
    format!("{BACKUPS}{id}/manifest.json")
}

/// Name of an object with blocks.
pub(crate) fn object_name(id: BackupId, number: u32) -> String {
    format!("{BACKUPS}{id}/data/{number}.nbk")
}

/// Folder of the objects with blocks of a backup.
pub(crate) fn data_folder(id: BackupId) -> String {
    format!("{BACKUPS}{id}/data/")
}

/// Name of the object that says what is being backed up.
pub(crate) fn begin_name(id: BackupId) -> String {
    format!("{PROGRESS}{id}/begin.json")
}

/// Folder of what is known of a backup that is not complete.
pub(crate) fn progress_folder(id: BackupId) -> String {
    format!("{PROGRESS}{id}/")
}

/// Name of an object that says which vBuckets are complete.
pub(crate) fn piece_name(id: BackupId, number: u32) -> String {
    format!("{PROGRESS}{id}/{number}.json")
}
