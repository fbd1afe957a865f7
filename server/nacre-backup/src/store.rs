//! Object stores: a folder, or memory.

use crate::StoreError;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fs;
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// A store of immutable objects.
///
/// Names are segments of letters, digits, `.` and `-`, separated by `/`; this crate creates them. Once [`Store::create`] has
/// succeeded, every later read by that name finds the object.
pub trait Store: Send + Sync {
    /// Stores an object under an unused name, completely or not at all.
    ///
    /// # Errors
    /// [`StoreError::Exists`] if the name is in use. After another error the object may exist.
    fn create(&self, name: &str, bytes: &[u8]) -> Result<(), StoreError>;

    /// Reads a range of an object; returns fewer bytes if the range ends after the object.
    ///
    /// # Errors
    /// [`StoreError::Missing`] if the object does not exist; errors of the store.
    fn read(&self, name: &str, range: Range<u64>) -> Result<Vec<u8>, StoreError>;

    /// Returns the length of an object in bytes.
    ///
    /// # Errors
    /// As [`Store::read`].
    fn size(&self, name: &str) -> Result<u64, StoreError>;

    /// Lists the names that begin with `prefix`, which ends with `/` or is empty, in order.
    ///
    /// # Errors
    /// Errors of the store.
    fn list(&self, prefix: &str) -> Result<Vec<String>, StoreError>;

    /// Removes an object; a missing object is not an error.
    ///
    /// # Errors
    /// Errors of the store.
    fn remove(&self, name: &str) -> Result<(), StoreError>;
}

/// Objects in memory, for tests.
#[derive(Default)]
pub struct MemoryStore {
    objects: Mutex<BTreeMap<String, Vec<u8>>>,
}

impl MemoryStore {
    /// Replaces or removes an object, to simulate damage.
    pub fn tamper(&self, name: &str, bytes: Option<Vec<u8>>) {
        let mut objects = self.objects.lock();
        match bytes {
            Some(bytes) => objects.insert(name.to_owned(), bytes),
            None => objects.remove(name),
        };
    }
}

impl Store for MemoryStore {
    fn create(&self, name: &str, bytes: &[u8]) -> Result<(), StoreError> {
        let mut objects = self.objects.lock();
        if objects.contains_key(name) {
            return Err(StoreError::Exists(name.to_owned()));
        }
        objects.insert(name.to_owned(), bytes.to_vec());
        Ok(())
    }

    fn read(&self, name: &str, range: Range<u64>) -> Result<Vec<u8>, StoreError> {
        let objects = self.objects.lock();
        let bytes = objects.get(name).ok_or_else(|| StoreError::Missing(name.to_owned()))?;
        let place = |at: u64| usize::try_from(at).unwrap_or(usize::MAX).min(bytes.len());
        Ok(bytes[place(range.start)..place(range.end).max(place(range.start))].to_vec())
    }

    fn size(&self, name: &str) -> Result<u64, StoreError> {
        let objects = self.objects.lock();
        let bytes = objects.get(name).ok_or_else(|| StoreError::Missing(name.to_owned()))?;
        Ok(bytes.len() as u64)
    }

    fn list(&self, prefix: &str) -> Result<Vec<String>, StoreError> {
        let objects = self.objects.lock();
        Ok(objects.keys().filter(|name| name.starts_with(prefix)).cloned().collect())
    }

    fn remove(&self, name: &str) -> Result<(), StoreError> {
        self.objects.lock().remove(name);
        Ok(())
    }
}

/// The suffix of files being written.
const UNFINISHED: &str = ".part";
/// Maximum depth of listed folders: objects of a backup are at level 4.
const DEPTH_MAX: usize = 5;

/// Objects as files in a folder.
///
/// A file is written under a temporary name, synced, and then linked to its final name, which fails if the name is in use. So a
/// crash never leaves part of an object under its name.
pub struct FolderStore {
    root: PathBuf,
    written: AtomicU64,
}

impl FolderStore {
    /// Creates a store in a folder, which is created with the first object.
    pub fn new(root: &Path) -> FolderStore {
        FolderStore { root: root.to_owned(), written: AtomicU64::new(0) }
    }

    fn path(&self, name: &str) -> Result<PathBuf, StoreError> {
        let is_plain = |segment: &str| {
            let known = |c: char| c.is_ascii_alphanumeric() || "-.".contains(c);
            !segment.is_empty() && !segment.starts_with('.') && segment.chars().all(known)
        };
        match name.split('/').all(is_plain) {
            true => Ok(self.root.join(name)),
            false => Err(StoreError::Failed(format!("{name:?} is not a valid object name"))),
        }
    }

    fn write(&self, path: &Path, part: &Path, bytes: &[u8]) -> std::io::Result<()> {
        #[expect(clippy::disallowed_methods, reason = "a folder is where these objects are")]
        let mut file = fs::File::create(part)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::hard_link(part, path)
    }
}

fn failed(path: &Path, error: &std::io::Error) -> StoreError {
    StoreError::Failed(format!("{}: {error}", path.display()))
}

/// Makes the entries of a folder durable.
fn sync_folder(path: &Path) -> std::io::Result<()> {
    #[expect(clippy::disallowed_methods, reason = "a folder is where these objects are")]
    fs::File::open(path)?.sync_all()
}

impl Store for FolderStore {
    fn create(&self, name: &str, bytes: &[u8]) -> Result<(), StoreError> {
        let path = self.path(name)?;
        let folder = path.parent().unwrap_or(&self.root);
        let is_new = !folder.exists();
        fs::create_dir_all(folder).map_err(|error| failed(folder, &error))?;
        let turn = self.written.fetch_add(1, Ordering::Relaxed);
        let part = folder.join(format!("{}-{turn}{UNFINISHED}", std::process::id()));
        let written = self.write(&path, &part, bytes);
        let removed = fs::remove_file(&part);
        match written {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                return Err(StoreError::Exists(name.to_owned()));
            }
            Err(error) => return Err(failed(&path, &error)),
            Ok(()) => {}
        }
        let above = folder.ancestors().take_while(|above| above.starts_with(&self.root));
        let synced = removed.and_then(|()| {
            above.take(if is_new { DEPTH_MAX } else { 1 }).try_for_each(sync_folder)
        });
        synced.map_err(|error| failed(folder, &error))
    }

    fn read(&self, name: &str, range: Range<u64>) -> Result<Vec<u8>, StoreError> {
        let path = self.path(name)?;
        let read = || {
            #[expect(clippy::disallowed_methods, reason = "a folder is where these objects are")]
            let mut file = fs::File::open(&path)?;
            file.seek(SeekFrom::Start(range.start))?;
            let mut bytes = Vec::new();
            file.take(range.end.saturating_sub(range.start)).read_to_end(&mut bytes)?;
            Ok(bytes)
        };
        read().map_err(|error: std::io::Error| match error.kind() {
            ErrorKind::NotFound => StoreError::Missing(name.to_owned()),
            _ => failed(&path, &error),
        })
    }

    fn size(&self, name: &str) -> Result<u64, StoreError> {
        let path = self.path(name)?;
        let metadata = fs::metadata(&path).map_err(|error| match error.kind() {
            ErrorKind::NotFound => StoreError::Missing(name.to_owned()),
            _ => failed(&path, &error),
        })?;
        Ok(metadata.len())
    }

    fn list(&self, prefix: &str) -> Result<Vec<String>, StoreError> {
        let first = match prefix.trim_end_matches('/') {
            "" => self.root.clone(),
            folder => self.path(folder)?,
        };
        let (mut names, mut folders) = (Vec::new(), vec![(first, 0)]);
        while let Some((folder, depth)) = folders.pop() {
            let entries = match fs::read_dir(&folder) {
                Ok(entries) => entries,
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                Err(error) => return Err(failed(&folder, &error)),
            };
            for entry in entries {
                let path = entry.map_err(|error| failed(&folder, &error))?.path();
                let name = path.strip_prefix(&self.root).ok().and_then(Path::to_str);
                // A symbolic link is not an object, and is not followed.
                let kind = fs::symlink_metadata(&path).map(|metadata| metadata.file_type());
                match (name, kind) {
                    (Some(_), Ok(kind)) if kind.is_dir() && depth < DEPTH_MAX => {
                        folders.push((path, depth + 1));
                    }
                    (Some(name), Ok(kind)) if kind.is_file() && !name.ends_with(UNFINISHED) => {
                        names.push(name.to_owned());
                    }
                    _ => {}
                }
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    fn remove(&self, name: &str) -> Result<(), StoreError> {
        let path = self.path(name)?;
        match fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(failed(&path, &error)),
            _ => {
                // A folder is removed with its last file.
                let above = path.ancestors().skip(1).take_while(|above| **above != self.root);
                let _ = above.take(DEPTH_MAX).try_for_each(fs::remove_dir);
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case_23_no_name_leads_out_of_the_folder() {
        let directory = tempfile::tempdir().unwrap();
        let store = FolderStore::new(directory.path());
        for name in ["../x", "/etc/passwd", "a/../../x", "a//b", "", ".", "a\0b", "a\\b", "é"] {
            assert!(matches!(store.create(name, b""), Err(StoreError::Failed(_))), "{name}");
            assert!(matches!(store.read(name, 0..1), Err(StoreError::Failed(_))), "{name}");
        }
    }

    #[test]
    fn unfinished_objects_are_not_listed_and_their_names_are_not_reused() {
        let directory = tempfile::tempdir().unwrap();
        let store = FolderStore::new(directory.path());
        store.create("a", b"1").unwrap();
        fs::hard_link(directory.path().join("a"), directory.path().join("9-9.part")).unwrap();
        assert_eq!(store.list("").unwrap(), ["a"]);
    }
}
