//! Keys of encrypted data: the caller's [`Key`], and the random [`MasterKey`] that it opens.
//!
//! ```text
//! passphrase ─ PBKDF2-HMAC-SHA256, salt, rounds ─┐
//! 32 bytes   ─ HMAC-SHA256, salt ────────────────┴─► wrapping key ─ AES-256-GCM ─► master key
//! master key ─ HMAC-SHA256 of purpose and numbers ─► key of a file (see `seal`)
//!
//! slot       format u8 | kind u8 | rounds u32 | salt 16 | nonce 12 | encrypted master key 32 | tag 16
//! ```
//!
//! The slot is stored beside the data. Another key therefore needs another slot, and no rewritten data.
//!
//! *Invariant:* nonces and keys come from the operating system, never from a seed: a run that is repeated with the same seed would
//! use a nonce twice.

use crate::Error;
use crate::seal::{FileCipher, NONCE_BYTES, TAG_BYTES, random};
use ring::{hmac, pbkdf2};
use std::fmt;
use std::num::NonZeroU32;
use std::path::Path;

/// Bytes of a key.
pub(crate) const KEY_BYTES: usize = 32;
/// Rounds of PBKDF2 for a new passphrase. Source: OWASP's recommendation for HMAC-SHA256.
const PASSPHRASE_ROUNDS: u32 = 600_000;
/// Maximum rounds for a file that another party may have written: a few seconds.
const ROUNDS_MAX: u32 = 20_000_000;
/// Format of a slot.
const FORMAT: u8 = 1;
const SALT_BYTES: usize = 16;
/// The authenticated part of a slot: format, kind, rounds and salt.
const FRONT_BYTES: usize = 6 + SALT_BYTES;
const SLOT_BYTES: usize = FRONT_BYTES + NONCE_BYTES + KEY_BYTES + TAG_BYTES;

/// The key that opens an encrypted database.
#[derive(Clone, PartialEq, Eq)]
pub enum Key {
    /// Random bytes, from the key store of the operating system for instance.
    Bytes([u8; 32]),
    /// A passphrase. Opening takes a fraction of a second, so that guesses are slow.
    Passphrase(String),
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Key::Bytes(_) => "Bytes(..)",
            Key::Passphrase(_) => "Passphrase(..)",
        })
    }
}

impl Key {
    fn kind(&self) -> u8 {
        match self {
            Key::Bytes(_) => 0,
            Key::Passphrase(_) => 1,
        }
    }

    /// Returns the cipher that encrypts the master key.
    fn wrapping(&self, rounds: NonZeroU32, salt: &[u8]) -> FileCipher {
        let mut wrapping = [0; KEY_BYTES];
        match self {
            Key::Bytes(bytes) => {
                let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, bytes), salt);
                wrapping.copy_from_slice(tag.as_ref());
            }
            Key::Passphrase(text) => {
                let algorithm = pbkdf2::PBKDF2_HMAC_SHA256;
                pbkdf2::derive(algorithm, rounds, salt, text.as_bytes(), &mut wrapping);
            }
        }
        FileCipher::new(&wrapping)
    }
}

/// The key from which the keys of files derive. It is random, and stored only in a slot, which a [`Key`] opens.
#[derive(Clone)]
pub struct MasterKey([u8; KEY_BYTES]);

impl fmt::Debug for MasterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MasterKey(..)")
    }
}

impl MasterKey {
    /// Creates a random master key.
    ///
    /// # Errors
    /// Fails when the operating system gives no random bytes.
    pub fn random() -> Result<MasterKey, Error> {
        Ok(MasterKey(random().map_err(Error::io("create a key"))?))
    }

    /// Returns the slot that `key` opens.
    ///
    /// # Errors
    /// Fails when the operating system gives no random bytes.
    pub fn lock(&self, key: &Key) -> Result<Vec<u8>, Error> {
        let failed = || Error::io("lock a key");
        let salt: [u8; SALT_BYTES] = random().map_err(failed())?;
        let nonce: [u8; NONCE_BYTES] = random().map_err(failed())?;
        let rounds = NonZeroU32::new(PASSPHRASE_ROUNDS).unwrap_or(NonZeroU32::MIN);
        let mut slot = Vec::with_capacity(SLOT_BYTES);
        slot.extend([FORMAT, key.kind()]);
        slot.extend(rounds.get().to_be_bytes());
        slot.extend(salt);
        let mut master = self.0;
        let tag = key.wrapping(rounds, &salt).seal(nonce, &slot, &mut master);
        slot.extend(nonce);
        slot.extend(master);
        slot.extend(tag);
        Ok(slot)
    }

    /// Opens a slot; `path` is the path of the database, for messages.
    ///
    /// # Errors
    /// [`Error::WrongKey`]; [`Error::Format`] and [`Error::Damaged`] for a slot that cannot be read.
    pub fn unlock(slot: &[u8], key: &Key, path: &Path) -> Result<MasterKey, Error> {
        let damaged = || Error::Damaged {
            path: path.to_owned(),
            what: "the slot of its key does not read back".into(),
        };
        match slot.first() {
            Some(&FORMAT) => {}
            Some(found) => {
                let (found, expected) = (u32::from(*found), u32::from(FORMAT));
                return Err(Error::Format { path: path.to_owned(), found, expected });
            }
            None => return Err(damaged()),
        }
        let slot: &[u8; SLOT_BYTES] = slot.try_into().map_err(|_| damaged())?;
        let (front, rest) = slot.split_at(FRONT_BYTES);
        let (nonce, sealed) = rest.split_at(NONCE_BYTES);
        let rounds = u32::from_be_bytes([front[2], front[3], front[4], front[5]]);
        let rounds = NonZeroU32::new(rounds).filter(|rounds| rounds.get() <= ROUNDS_MAX);
        let rounds = rounds.ok_or_else(damaged)?;
        let nonce: [u8; NONCE_BYTES] = nonce.try_into().map_err(|_| damaged())?;
        let wrong = || Error::WrongKey { path: path.to_owned() };
        if front[1] != key.kind() {
            return Err(wrong());
        }
        let mut sealed = sealed.to_vec();
        let cipher = key.wrapping(rounds, &front[6..]);
        let master = cipher.open(nonce, front, &mut sealed).ok_or_else(wrong)?;
        let master: &[u8; KEY_BYTES] = (&*master).try_into().map_err(|_| damaged())?;
        Ok(MasterKey(*master))
    }

    /// Encrypts a value that is stored under a name.
    ///
    /// # Errors
    /// Fails when the operating system gives no random bytes.
    pub fn seal_value(&self, name: &str, value: &[u8]) -> Result<Vec<u8>, Error> {
        let nonce: [u8; NONCE_BYTES] = random().map_err(Error::io("encrypt a value"))?;
        let mut sealed = value.to_vec();
        let tag = self.derive("value", &[]).seal(nonce, name.as_bytes(), &mut sealed);
        Ok([&nonce[..], &sealed[..], &tag[..]].concat())
    }

    /// Decrypts a value; `None` if it was not encrypted with this key and for this name.
    pub fn open_value(&self, name: &str, sealed: &[u8]) -> Option<Vec<u8>> {
        let (nonce, sealed) = sealed.split_first_chunk::<NONCE_BYTES>()?;
        let mut sealed = sealed.to_vec();
        let opened = self.derive("value", &[]).open(*nonce, name.as_bytes(), &mut sealed)?;
        Some(opened.to_vec())
    }

    /// Returns the cipher of a file. `purpose` names the kind of file, `numbers` its place.
    pub(crate) fn derive(&self, purpose: &str, numbers: &[u64]) -> FileCipher {
        let mut context = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, &self.0));
        context.update(b"nacre store 1 ");
        context.update(purpose.as_bytes());
        // No purpose contains a zero byte: two different inputs are never the same bytes.
        context.update(&[0]);
        for number in numbers {
            context.update(&number.to_be_bytes());
        }
        let mut key = [0; KEY_BYTES];
        key.copy_from_slice(context.sign().as_ref());
        FileCipher::new(&key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unlock(slot: &[u8], key: &Key) -> Result<MasterKey, Error> {
        MasterKey::unlock(slot, key, Path::new("folder"))
    }

    #[test]
    fn only_its_key_opens_a_slot() {
        let master = MasterKey::random().unwrap();
        let key = Key::Passphrase("open sesame".into());
        let slot = master.lock(&key).unwrap();
        assert_eq!(unlock(&slot, &key).unwrap().0, master.0);
        for other in [Key::Passphrase("open".into()), Key::Bytes([7; 32])] {
            assert!(matches!(unlock(&slot, &other), Err(Error::WrongKey { .. })), "{other:?}");
        }
        let slot = master.lock(&Key::Bytes([7; 32])).unwrap();
        assert_eq!(unlock(&slot, &Key::Bytes([7; 32])).unwrap().0, master.0);
        assert!(matches!(unlock(&slot, &Key::Bytes([8; 32])), Err(Error::WrongKey { .. })));
        assert_ne!(slot, master.lock(&Key::Bytes([7; 32])).unwrap(), "the salt is random");
    }

    #[test]
    fn a_slot_that_was_cut_or_is_newer_is_refused_by_name() {
        let key = Key::Bytes([7; 32]);
        let mut slot = MasterKey::random().unwrap().lock(&key).unwrap();
        for bytes in 0..slot.len() {
            let cut = unlock(&slot[..bytes], &key);
            assert!(matches!(cut, Err(Error::Damaged { .. })), "{bytes} bytes");
        }
        // So many rounds would take minutes.
        let mut slow = slot.clone();
        slow[2] = 0xff;
        assert!(matches!(unlock(&slow, &key), Err(Error::Damaged { .. })));
        slot[0] = 2;
        assert!(matches!(unlock(&slot, &key), Err(Error::Format { found: 2, expected: 1, .. })));
    }

    #[test]
    fn a_value_opens_under_its_name_only() {
        let master = MasterKey::random().unwrap();
        let sealed = master.seal_value("bucket", b"names").unwrap();
        assert_eq!(master.open_value("bucket", &sealed).as_deref(), Some(&b"names"[..]));
        assert_eq!(master.open_value("other", &sealed), None);
        assert_eq!(MasterKey::random().unwrap().open_value("bucket", &sealed), None);
        assert!(!sealed.windows(5).any(|window| window == b"names"));
    }

    #[test]
    fn keys_are_not_shown() {
        let shown = format!(
            "{:?} {:?} {:?}",
            Key::Passphrase("secret".into()),
            Key::Bytes([65; 32]),
            MasterKey([65; 32])
        );
        assert_eq!(shown, "Passphrase(..) Bytes(..) MasterKey(..)");
    }
}
