//! Encryption: the repository has a random master key, encrypted with a key derived from a passphrase. Each object has a key
//! derived from the master key.
//!
//! ```text
//! passphrase ─ PBKDF2-HMAC-SHA256, salt, rounds ─► wrapping key ─ AES-256-GCM ─► master key
//! master key ─ keyed BLAKE3 of salt and name ─► key of an object ─ AES-256-GCM, nonce = offset ─► block
//! ```
//!
//! *Invariant:* no nonce is used twice with a key. The key of an object depends on its name, which is used once, and on 16 random
//! bytes of the writing process, in case a failed attempt used the name before.

use crate::Error;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use ring::pbkdf2;
use serde::{Deserialize, Serialize};
use std::num::NonZeroU32;

/// Rounds of PBKDF2 for a new passphrase. Source: OWASP's recommendation for HMAC-SHA256.
pub const PASSPHRASE_ROUNDS: u32 = 600_000;
/// Maximum rounds for a file that another party may have written: a few seconds.
const ROUNDS_MAX: u32 = 20_000_000;
/// The key derivation domain of object keys.
const OBJECT_KEYS: &str = "nacre-backup 1 object key";

/// The master key of a repository in its file: encrypted with a key derived from a passphrase.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeySlot {
    /// Rounds of PBKDF2-HMAC-SHA256.
    pub rounds: u32,
    /// The salt, in hexadecimal.
    pub salt: String,
    /// The encrypted master key, in hexadecimal.
    pub wrapped: String,
}

/// The master key of a repository.
#[derive(Clone)]
pub struct Cipher {
    master: [u8; 32],
}

impl KeySlot {
    /// Creates and wraps a master key. `random` contains the salt and the master key.
    pub fn new(passphrase: &str, rounds: u32, random: [u8; 48]) -> (KeySlot, Cipher) {
        let (salt, master) = random.split_at(16);
        let mut wrapped = master.to_vec();
        aead_of(&stretch(passphrase, salt, rounds.max(1))).seal(0, &mut wrapped);
        let mut key = [0; 32];
        key.copy_from_slice(master);
        let slot = KeySlot { rounds: rounds.max(1), salt: to_hex(salt), wrapped: to_hex(&wrapped) };
        (slot, Cipher { master: key })
    }

    /// Decrypts the master key.
    ///
    /// # Errors
    /// [`Error::Passphrase`], also for an invalid slot.
    pub fn open(&self, passphrase: &str) -> Result<Cipher, Error> {
        let wrong = Error::Passphrase("the passphrase is wrong");
        let (salt, wrapped) = (from_hex(&self.salt), from_hex(&self.wrapped));
        let (Some(salt), Some(mut wrapped)) = (salt, wrapped) else { return Err(wrong) };
        if self.rounds == 0 || self.rounds > ROUNDS_MAX || wrapped.len() != 48 {
            return Err(wrong);
        }
        let opened = aead_of(&stretch(passphrase, &salt, self.rounds)).open(0, &mut wrapped);
        let master = opened.and_then(|()| wrapped.try_into().ok());
        master.map(|master| Cipher { master }).ok_or(wrong)
    }
}

impl Cipher {
    /// Returns the cipher of an object. `salt` is the random bytes of the object's writer.
    pub(crate) fn of_object(&self, name: &str, salt: &[u8; 16]) -> ObjectCipher {
        let domain = blake3::derive_key(OBJECT_KEYS, &self.master);
        let mut hasher = blake3::Hasher::new_keyed(&domain);
        hasher.update(salt).update(name.as_bytes());
        aead_of(hasher.finalize().as_bytes())
    }
}

/// Encrypts and decrypts the blocks of one object.
pub struct ObjectCipher(LessSafeKey);

impl ObjectCipher {
    /// Encrypts in place and adds 16 bytes. Each `offset` of an object must be used once.
    pub(crate) fn seal(&self, offset: u64, bytes: &mut Vec<u8>) {
        let sealed = self.0.seal_in_place_append_tag(nonce(offset), Aad::empty(), bytes);
        sealed.expect("a block is far shorter than AES-GCM can encrypt");
    }

    /// Decrypts in place; `None` if the bytes were not encrypted for this offset of this object.
    pub(crate) fn open(&self, offset: u64, bytes: &mut Vec<u8>) -> Option<()> {
        let length = self.0.open_in_place(nonce(offset), Aad::empty(), bytes).ok()?.len();
        bytes.truncate(length);
        Some(())
    }
}

fn nonce(offset: u64) -> Nonce {
    let mut bytes = [0; 12];
    bytes[..8].copy_from_slice(&offset.to_le_bytes());
    Nonce::assume_unique_for_key(bytes)
}

fn aead_of(key: &[u8; 32]) -> ObjectCipher {
    let key = UnboundKey::new(&AES_256_GCM, key).expect("the key is 32 bytes long");
    ObjectCipher(LessSafeKey::new(key))
}

fn stretch(passphrase: &str, salt: &[u8], rounds: u32) -> [u8; 32] {
    let mut key = [0; 32];
    let rounds = NonZeroU32::new(rounds).unwrap_or(NonZeroU32::MIN);
    pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA256, rounds, salt, passphrase.as_bytes(), &mut key);
    key
}

pub(crate) fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> = text
        .chars()
        .map(|digit| digit.to_digit(16).and_then(|digit| u8::try_from(digit).ok()))
        .collect();
    let digits = digits.filter(|digits| digits.len().is_multiple_of(2))?;
    Some(digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case_14_only_the_passphrase_opens_the_key() {
        let (slot, cipher) = KeySlot::new("open sesame", 10, [7; 48]);
        assert_eq!(slot.open("open sesame").unwrap().master, cipher.master);
        assert!(matches!(slot.open("open"), Err(Error::Passphrase(_))));
        for broken in [
            KeySlot { rounds: u32::MAX, ..slot.clone() },
            KeySlot { salt: "é".into(), ..slot.clone() },
            KeySlot { wrapped: String::new(), ..slot.clone() },
        ] {
            assert!(broken.open("open sesame").is_err(), "{broken:?}");
        }
    }

    #[test]
    fn data_encrypted_for_another_object_is_refused() {
        let (_, cipher) = KeySlot::new("p", 1, [7; 48]);
        let object = cipher.of_object("a", &[1; 16]);
        let mut sealed = b"secret".to_vec();
        object.seal(4, &mut sealed);
        for (name, salt, offset) in [("b", 1, 4), ("a", 2, 4), ("a", 1, 5)] {
            let other = cipher.of_object(name, &[salt; 16]);
            assert_eq!(other.open(offset, &mut sealed.clone()), None);
        }
        object.open(4, &mut sealed).unwrap();
        assert_eq!(sealed, b"secret");
    }
}
