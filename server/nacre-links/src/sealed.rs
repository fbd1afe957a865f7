//! Encryption of stored settings: passwords of functions, keys of users, the secret of the cluster.
//!
//! ```text
//! row      key in clear | nonce, 12 bytes | value, encrypted | tag, 16 bytes        ChaCha20-Poly1305
//! key      tls/settings-key: 32 random bytes in hexadecimal digits, created at the first start
//! ```
//!
//! The name of the space and the key of the row are authenticated with the value, so that a value cannot be moved to another row.
//! A space of an earlier version is encrypted as a whole when it is opened.
//!
//! This protects secrets in a copy, a backup or a support bundle of `node/` without `tls/`. It does not protect them from readers
//! of the whole data directory, or from the node's own user.

use nacre_store::{Error, LogSpaces, Space, Spaces, Write};
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Name of the key's file.
const FILE: &str = "settings-key";
/// The row that marks a space as encrypted.
const SEALED: &[u8] = b"\0sealed";
const KEY_BYTES: usize = 32;

/// The key of the settings.
pub struct SettingsKey {
    path: PathBuf,
    key: LessSafeKey,
}

impl SettingsKey {
    /// Reads the key from the TLS folder. Creates it if it does not exist and `may_create` is set.
    ///
    /// # Errors
    /// The problem with the file.
    pub fn open(data_dir: &Path, may_create: bool) -> Result<SettingsKey, Error> {
        let path = data_dir.join("tls").join(FILE);
        let damaged = |what: &str| Error::Damaged {
            path: data_dir.to_owned(),
            what: format!("the key of the settings (tls/{FILE}) {what}"),
        };
        if !path.exists() {
            if !may_create {
                return Err(damaged("is missing"));
            }
            let digits = hex(&rand::random::<[u8; KEY_BYTES]>());
            let failed = |reason: String| {
                Error::io("create the key of the settings")(std::io::Error::other(reason))
            };
            nacre_store::create_private_directory(&data_dir.join("tls"))
                .map_err(Error::io(format!("create {}", path.display())))?;
            crate::tls::write(&path, digits.as_bytes()).map_err(failed)?;
        }
        let digits = std::fs::read(&path).map_err(Error::io(format!("read {}", path.display())))?;
        let bytes = unhex(&digits).ok_or_else(|| damaged("is damaged"))?;
        let key = UnboundKey::new(&CHACHA20_POLY1305, &bytes).map_err(|_| damaged("is damaged"))?;
        Ok(SettingsKey { path, key: LessSafeKey::new(key) })
    }

    fn seal(&self, space: &str, row: &[u8], value: &[u8]) -> Vec<u8> {
        // With random nonces of 96 bits, a key is safe for 2^32 writes: 136 years at one per second.
        let nonce: [u8; NONCE_LEN] = rand::random();
        let mut bytes = value.to_vec();
        let place = Aad::from(place(space, row));
        let tag = self.key.seal_in_place_separate_tag(
            Nonce::assume_unique_for_key(nonce),
            place,
            &mut bytes,
        );
        let tag = tag.expect("a value is far shorter than the cipher allows");
        [&nonce[..], &bytes, tag.as_ref()].concat()
    }

    fn open_value(&self, space: &str, row: &[u8], sealed: &[u8]) -> Option<Vec<u8>> {
        let (nonce, rest) = sealed.split_first_chunk::<NONCE_LEN>()?;
        let mut bytes = rest.to_vec();
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let value = self.key.open_in_place(nonce, Aad::from(place(space, row)), &mut bytes).ok()?;
        Some(value.to_vec())
    }
}

/// Returns the associated data that is authenticated with a value.
fn place(space: &str, row: &[u8]) -> Vec<u8> {
    [&(space.len() as u64).to_be_bytes(), space.as_bytes(), row].concat()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(digits: &[u8]) -> Option<[u8; KEY_BYTES]> {
    let digits = std::str::from_utf8(digits).ok()?.trim();
    let mut bytes = [0; KEY_BYTES];
    if digits.len() != 2 * KEY_BYTES {
        return None;
    }
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(digits.get(2 * at..2 * at + 2)?, 16).ok()?;
    }
    Some(bytes)
}

/// Spaces whose values are encrypted.
pub struct SealedSpaces {
    spaces: LogSpaces,
    key: Arc<SettingsKey>,
}

impl SealedSpaces {
    /// Wraps `spaces` so that their values are encrypted with `key`.
    pub fn new(spaces: LogSpaces, key: SettingsKey) -> SealedSpaces {
        SealedSpaces { spaces, key: Arc::new(key) }
    }
}

impl Spaces for SealedSpaces {
    fn open(&self, name: &str) -> Result<Arc<dyn Space>, Error> {
        let space = self.spaces.open(name)?;
        let sealed = SealedSpace { space, name: name.to_owned(), key: Arc::clone(&self.key) };
        sealed.begin()?;
        Ok(Arc::new(sealed))
    }

    fn names(&self) -> Result<Vec<String>, Error> {
        self.spaces.names()
    }

    fn remove(&self, name: &str) -> Result<(), Error> {
        self.spaces.remove(name)
    }
}

/// Returns true if the values of a space are encrypted, so that the key must exist.
///
/// # Errors
/// Fails when the space cannot be read.
pub fn is_sealed(space: &dyn Space) -> Result<bool, Error> {
    Ok(space.get(SEALED)?.is_some())
}

struct SealedSpace {
    space: Arc<dyn Space>,
    name: String,
    key: Arc<SettingsKey>,
}

impl SealedSpace {
    /// Encrypts the rows of an earlier version, and checks that the key is the right one.
    fn begin(&self) -> Result<(), Error> {
        let rows = self.space.load()?;
        if let Some((_, mark)) = rows.iter().find(|(row, _)| row == SEALED) {
            return self.value(SEALED, mark).map(drop);
        }
        let mut writes: Vec<Write> =
            rows.into_iter().map(|(row, value)| self.sealed((row, Some(value)))).collect();
        let has_rows = !writes.is_empty();
        writes.push(self.sealed((SEALED.to_vec(), Some(Vec::new()))));
        self.space.apply(&writes, true)?;
        // Plain-text values must not remain in the file.
        if has_rows { self.space.rewrite() } else { Ok(()) }
    }

    fn sealed(&self, (row, value): Write) -> Write {
        let value = value.map(|value| self.key.seal(&self.name, &row, &value));
        (row, value)
    }

    fn value(&self, row: &[u8], sealed: &[u8]) -> Result<Vec<u8>, Error> {
        self.key.open_value(&self.name, row, sealed).ok_or_else(|| Error::Damaged {
            path: self.key.path.clone(),
            what: format!(
                "it is not the key of the space {}, or a row of that space is damaged",
                self.name
            ),
        })
    }
}

impl Space for SealedSpace {
    fn load(&self) -> Result<Vec<(Vec<u8>, Vec<u8>)>, Error> {
        let rows = self.space.load()?.into_iter().filter(|(row, _)| row != SEALED);
        rows.map(|(row, value)| Ok((row.clone(), self.value(&row, &value)?))).collect()
    }

    fn get(&self, row: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        self.space.get(row)?.map(|value| self.value(row, &value)).transpose()
    }

    fn apply(&self, writes: &[Write], durable: bool) -> Result<(), Error> {
        let writes: Vec<Write> = writes.iter().cloned().map(|write| self.sealed(write)).collect();
        self.space.apply(&writes, durable)
    }

    fn clear(&self) -> Result<(), Error> {
        self.space.clear()?;
        // After a crash in between, it is an empty space of an earlier version.
        self.begin()
    }

    fn rewrite(&self) -> Result<(), Error> {
        self.space.rewrite()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_store::OnDamage;

    fn log(folder: &Path) -> LogSpaces {
        LogSpaces::open(&folder.join("node"), OnDamage::Refuse).unwrap()
    }

    fn sealed(folder: &Path) -> SealedSpaces {
        SealedSpaces::new(log(folder), SettingsKey::open(folder, true).unwrap())
    }

    fn row(key: &str, value: &str) -> Write {
        (key.into(), Some(value.into()))
    }

    fn stored(folder: &Path) -> String {
        String::from_utf8_lossy(&std::fs::read(folder.join("node/0.space")).unwrap()).into_owned()
    }

    #[test]
    fn values_are_not_stored_in_clear_and_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let spaces = sealed(folder.path());
        let space = spaces.open("node").unwrap();
        space.apply(&[row("users", "top-secret"), row("gone", "x")], true).unwrap();
        space.apply(&[("gone".into(), None)], true).unwrap();
        assert!(!stored(folder.path()).contains("top-secret"));
        drop((spaces, space));
        let space = sealed(folder.path()).open("node").unwrap();
        assert_eq!(space.load().unwrap(), [(b"users".to_vec(), b"top-secret".to_vec())]);
        assert_eq!(space.get(b"users").unwrap().unwrap(), b"top-secret");
        assert_eq!(space.get(b"gone").unwrap(), None);
        space.clear().unwrap();
        assert!(space.load().unwrap().is_empty());
    }

    #[test]
    fn plain_data_of_an_earlier_version_is_encrypted_and_removed() {
        let folder = tempfile::tempdir().unwrap();
        log(folder.path())
            .open("node")
            .unwrap()
            .apply(&[row("users", "top-secret")], true)
            .unwrap();
        assert!(stored(folder.path()).contains("top-secret"));
        let space = sealed(folder.path()).open("node").unwrap();
        assert_eq!(space.get(b"users").unwrap().unwrap(), b"top-secret");
        assert!(!stored(folder.path()).contains("top-secret"));
    }

    #[test]
    fn a_missing_or_wrong_key_is_named() {
        let folder = tempfile::tempdir().unwrap();
        sealed(folder.path()).open("node").unwrap();
        assert!(is_sealed(&*log(folder.path()).open("node").unwrap()).unwrap());
        std::fs::remove_file(folder.path().join("tls").join(FILE)).unwrap();
        let refused = SettingsKey::open(folder.path(), false).err().unwrap().to_string();
        assert!(refused.contains("tls/settings-key") && refused.contains("missing"), "{refused}");
        let refused = sealed(folder.path()).open("node").err().unwrap().to_string();
        assert!(refused.contains("settings-key") && refused.contains("not the key"), "{refused}");
    }

    #[test]
    fn a_moved_value_is_detected() {
        let folder = tempfile::tempdir().unwrap();
        let space = sealed(folder.path()).open("node").unwrap();
        space.apply(&[row("a", "1"), row("b", "2")], true).unwrap();
        drop(space);
        let raw = log(folder.path()).open("node").unwrap();
        let value = raw.get(b"a").unwrap();
        raw.apply(&[(b"b".to_vec(), value)], true).unwrap();
        drop(raw);
        assert!(sealed(folder.path()).open("node").unwrap().get(b"b").is_err());
    }
}
