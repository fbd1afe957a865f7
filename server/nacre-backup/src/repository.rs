//! A repository: its file, the names of its objects, and its manifests.

use crate::cipher::{Cipher, KeySlot};
use crate::manifest::{JSON_BYTES_MAX, open_json, seal_json};
use crate::{BackupId, BucketPart, Error, FORMAT, Manifest, Store, StoreError, decode_manifest};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The name of the repository file.
const FILE: &str = "nacre-backup.json";
/// Maximum size of the repository file in bytes.
const FILE_BYTES_MAX: u64 = 64 << 10;
/// Folders of complete backups, and of backups in progress.
const BACKUPS: &str = "backups/";
const PROGRESS: &str = "progress/";

/// The file that makes a folder a repository. It never changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RepositoryFile {
    /// The format of the repository.
    pub format: u64,
    /// The ID.
    pub id: BackupId,
    /// The encrypted key, in a repository with a passphrase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_slot: Option<KeySlot>,
}

/// A manifest, and the BLAKE3 hash of its object.
type Read = Arc<(Manifest, String)>;

/// An open repository.
pub struct Repository {
    store: Arc<dyn Store>,
    cipher: Option<Cipher>,
    id: BackupId,
    manifests: Mutex<BTreeMap<BackupId, Read>>,
}

impl Repository {
    /// Creates a repository in an empty store.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the store already has a repository; errors of the store.
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
    /// Errors of the store.
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
    /// [`Error::Invalid`] if the store has no repository, [`Error::Passphrase`], [`Error::Newer`], [`Error::Damaged`]; errors of
    /// the store.
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

    /// Returns the ID of the repository.
    pub fn id(&self) -> BackupId {
        self.id
    }

    pub(crate) fn store(&self) -> &dyn Store {
        &*self.store
    }

    pub(crate) fn cipher(&self) -> Option<&Cipher> {
        self.cipher.as_ref()
    }

    /// Returns the complete backups, oldest first, including those with a damaged manifest.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn backups(&self) -> Result<Vec<BackupId>, Error> {
        let names = self.store.list(BACKUPS)?;
        let complete = |name: &String| {
            name.strip_prefix(BACKUPS)?.strip_suffix("/manifest.json")?.parse().ok()
        };
        Ok(names.iter().filter_map(complete).collect())
    }

    /// Returns the backups that were started and are not complete, oldest first.
    ///
    /// # Errors
    /// Errors of the store.
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
    /// [`Error::Invalid`] if the backup does not exist, [`Error::Damaged`], [`Error::Newer`]; errors of the store.
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

    /// Returns the newest complete backup that has a bucket, with its manifest. A backup with a damaged manifest cannot be
    /// continued.
    ///
    /// # Errors
    /// Errors of the store.
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

    /// Returns the backup with the part of each vBucket of a bucket.
    ///
    /// # Errors
    /// [`Error::Damaged`] if a continued backup is missing or has changed; errors of the store.
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

    /// Reads the manifest of the parent of `read`.
    pub(crate) fn parent(
        &self,
        read: &Read,
        bucket: &str,
        parent: &crate::Parent,
    ) -> Result<Read, Error> {
        let name = manifest_name(read.0.id);
        // A reference to a later backup would cause a cycle.
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

    /// Returns the backups that are needed to read a backup, including itself.
    ///
    /// # Errors
    /// [`Error::Damaged`] if one of them is missing; errors of the store.
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

    /// Removes a backup that no other one needs, or an incomplete one. Removes the manifest first, so that a partly removed
    /// backup is never complete.
    ///
    /// # Errors
    /// [`Error::Invalid`] if another backup continues it; errors of the store.
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

    /// Writes a JSON object.
    pub(crate) fn create_json(
        &self,
        name: &str,
        value: &impl Serialize,
        salt: &[u8; 16],
    ) -> Result<(), StoreError> {
        self.store.create(name, &seal_json(name, value, self.cipher().map(|cipher| (cipher, salt))))
    }

    /// Reads a JSON object.
    pub(crate) fn read_json<T: serde::de::DeserializeOwned>(&self, name: &str) -> Result<T, Error> {
        open_json(name, &self.store.read(name, 0..JSON_BYTES_MAX)?, self.cipher())
    }
}

fn bucket_of<'a>(read: &'a Read, bucket: &str) -> Result<&'a BucketPart, Error> {
    let missing =
        || Error::damaged(&manifest_name(read.0.id), format!("it has no bucket {bucket}"));
    read.0.bucket(bucket).ok_or_else(missing)
}

/// Returns the name of a backup's manifest.
pub(crate) fn manifest_name(id: BackupId) -> String {
    format!("{BACKUPS}{id}/manifest.json")
}

/// Returns the name of a block object.
pub(crate) fn object_name(id: BackupId, number: u32) -> String {
    format!("{BACKUPS}{id}/data/{number}.nbk")
}

/// Returns the folder of a backup's block objects.
pub(crate) fn data_folder(id: BackupId) -> String {
    format!("{BACKUPS}{id}/data/")
}

/// Returns the name of the object that describes what is being backed up.
pub(crate) fn begin_name(id: BackupId) -> String {
    format!("{PROGRESS}{id}/begin.json")
}

/// Returns the folder of an incomplete backup's progress.
pub(crate) fn progress_folder(id: BackupId) -> String {
    format!("{PROGRESS}{id}/")
}

/// Returns the name of an object that lists completed vBuckets.
pub(crate) fn piece_name(id: BackupId, number: u32) -> String {
    format!("{PROGRESS}{id}/{number}.json")
}
