//! Checks that a store meets the requirements of backups.

use crate::{BackupId, Error, Store, StoreError};
use std::ops::Range;

/// The folder of the objects written by the check.
const FOLDER: &str = "check/";

/// Checks that a store meets the contract of [`Store`], using a few small objects under an unused `id`. Removes them afterwards.
///
/// # Errors
/// [`Error::Invalid`] with the violation of the contract; errors of the store.
pub fn check_store(store: &dyn Store, id: BackupId) -> Result<(), Error> {
    let folder = format!("{FOLDER}{id}/");
    let checked = check_objects(store, &folder);
    // Clean up also after a violation.
    for name in store.list(&folder)? {
        store.remove(&name)?;
    }
    checked
}

fn check_objects(store: &dyn Store, folder: &str) -> Result<(), Error> {
    let [first, second, none] =
        ["a/b.json", "c.json", "a/none.json"].map(|name| format!("{folder}{name}"));
    let missing = || StoreError::Missing(none.clone());
    expect("an empty folder has objects", &store.list(folder), &Ok(Vec::new()))?;
    expect("an object cannot be created", &store.create(&first, b"one"), &Ok(()))?;
    expect("an empty object cannot be created", &store.create(&second, b""), &Ok(()))?;
    let exists = Err(StoreError::Exists(first.clone()));
    let refused = "an object that exists is not kept from another one of its name (If-None-Match)";
    expect(refused, &store.create(&first, b"two"), &exists)?;
    let ranges: [(Range<u64>, &[u8]); 4] =
        [(0..u64::MAX, b"one"), (0..3, b"one"), (1..2, b"n"), (5..9, b"")];
    for (range, bytes) in ranges {
        let what =
            format!("the bytes from {} to {} of an object are others", range.start, range.end);
        expect(&what, &store.read(&first, range), &Ok(bytes.to_vec()))?;
    }
    expect("the empty object is not empty", &store.read(&second, 0..u64::MAX), &Ok(Vec::new()))?;
    expect("an object has another length", &store.size(&first), &Ok(3))?;
    expect("an object that is missing has a length", &store.size(&none), &Err(missing()))?;
    expect("an object that is missing is read", &store.read(&none, 0..1), &Err(missing()))?;
    let both = vec![first.clone(), second.clone()];
    expect("objects are not listed", &store.list(folder), &Ok(both))?;
    let inner = store.list(&format!("{folder}a/"));
    expect("objects of a folder are not listed", &inner, &Ok(vec![first.clone()]))?;
    for what in ["an object is not removed", "a removed object cannot be removed again"] {
        expect(what, &store.remove(&first), &Ok(()))?;
    }
    expect("a removed object is listed", &store.list(folder), &Ok(vec![second]))
}

/// Compares an answer of the store with the expected one.
fn expect<T: PartialEq + std::fmt::Debug>(
    what: &str,
    answer: &Result<T, StoreError>,
    wanted: &Result<T, StoreError>,
) -> Result<(), Error> {
    match answer {
        answer if answer == wanted => Ok(()),
        Err(error) if error.is_failure() => Err(error.clone().into()),
        answer => Err(Error::Invalid(format!("the store cannot have backups: {what}: {answer:?}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FolderStore, MemoryStore};

    /// A store that replaces objects, like object stores without conditional writes.
    struct Replacing(MemoryStore);

    impl Store for Replacing {
        fn create(&self, name: &str, bytes: &[u8]) -> Result<(), StoreError> {
            self.0.tamper(name, Some(bytes.to_vec()));
            Ok(())
        }

        fn read(&self, name: &str, range: Range<u64>) -> Result<Vec<u8>, StoreError> {
            self.0.read(name, range)
        }

        fn size(&self, name: &str) -> Result<u64, StoreError> {
            self.0.size(name)
        }

        fn list(&self, prefix: &str) -> Result<Vec<String>, StoreError> {
            self.0.list(prefix)
        }

        fn remove(&self, name: &str) -> Result<(), StoreError> {
            self.0.remove(name)
        }
    }

    fn id() -> BackupId {
        BackupId::new(1, 1, None)
    }

    #[test]
    fn memory_and_a_folder_meet_the_contract_of_stores() {
        let directory = tempfile::tempdir().unwrap();
        let folder = FolderStore::new(&directory.path().join("new/folder"));
        for store in [&MemoryStore::default() as &dyn Store, &folder] {
            check_store(store, id()).unwrap();
            assert_eq!(store.list("").unwrap(), [""; 0], "nothing is left");
        }
    }

    #[test]
    fn a_store_that_replaces_objects_is_detected_and_left_unchanged() {
        let store = Replacing(MemoryStore::default());
        let said = check_store(&store, id()).unwrap_err().to_string();
        assert!(said.contains("If-None-Match"), "{said}");
        assert_eq!(store.list("").unwrap(), [""; 0]);
    }
}
