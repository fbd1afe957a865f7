//! The stored form of a password.

use crate::hash::Hash;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use std::fmt;
use subtle::ConstantTimeEq;

/// Rounds of PBKDF2 for newly set passwords. A stored record contains its own count.
///
/// Source: the count of Couchbase 7.6 and later. Measured (with SHA extensions): 15,000 rounds take 1.1 ms with SHA-1,
/// 1.4 ms with SHA-256 and 4.3 ms with SHA-512. A plain password is verified with SHA-256, so a login costs as much as
/// with 4,096 rounds of SHA-512, and a thief of the records needs 3.7 times as long for each guess. More rounds would
/// be noticeable for SCRAM clients, which do the same work.
pub const ITERATIONS: u32 = 15_000;

/// Rounds in records from before the count was raised.
pub(crate) const ITERATIONS_BEFORE: u32 = 4096;

/// The length of a salt in bytes.
pub const SALT_BYTES: usize = 32;

/// Salted hashes of one password, for each SCRAM mechanism.
///
/// They suffice to verify a proof of the password, but not to create one or to find the password. Nodes store the
/// serialised form, with bytes as base64.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Credentials {
    pub(crate) sha1: Salted,
    pub(crate) sha256: Salted,
    pub(crate) sha512: Salted,
}

impl Credentials {
    /// Hashes `password` with `salt`, which must be random.
    ///
    /// Takes about 7 ms by design: three times [`ITERATIONS`] rounds. Do not call it on a thread that others wait for.
    pub fn derive(password: &str, salt: [u8; SALT_BYTES]) -> Credentials {
        Credentials::stretched(password, salt, ITERATIONS)
    }

    /// Hashes a random secret, which is too long to guess, so that stretching would only cost time.
    pub(crate) fn of_secret(secret: &str, salt: [u8; SALT_BYTES]) -> Credentials {
        Credentials::stretched(secret, salt, 1)
    }

    fn stretched(password: &str, salt: [u8; SALT_BYTES], iterations: u32) -> Credentials {
        let salted = |hash| Salted::derive(hash, password, &salt, iterations);
        Credentials {
            sha1: salted(Hash::Sha1),
            sha256: salted(Hash::Sha256),
            sha512: salted(Hash::Sha512),
        }
    }

    /// Returns credentials that no password matches, for a user who does not exist. They are always the same for a name
    /// and `secret`, so that repeated requests do not distinguish an unknown user from an existing one.
    pub(crate) fn made_up(secret: &[u8], name: &str, iterations: u32) -> Credentials {
        // A known user has the same salt for all mechanisms, so these credentials do too.
        let salt = Hash::Sha256.hmac(secret, &[b"salt", name.as_bytes()]);
        let salted = |hash: Hash| {
            let key = |label: &[u8]| hash.hmac(secret, &[label, name.as_bytes()]);
            Salted {
                salt: salt.clone(),
                iterations,
                stored_key: key(b"stored key"),
                server_key: key(b"server key"),
            }
        };
        Credentials {
            sha1: salted(Hash::Sha1),
            sha256: salted(Hash::Sha256),
            sha512: salted(Hash::Sha512),
        }
    }

    pub(crate) fn of(&self, hash: Hash) -> &Salted {
        match hash {
            Hash::Sha1 => &self.sha1,
            Hash::Sha256 => &self.sha256,
            Hash::Sha512 => &self.sha512,
        }
    }

    /// Returns true if this is the password. Takes as long as [`Credentials::derive`] for one mechanism.
    ///
    /// This mechanism is SHA-256, for which processors have instructions. SHA-512 would cost the node three times as
    /// much without extra protection: a thief of the records attacks the cheapest of the three.
    pub fn verify(&self, password: &str) -> bool {
        let Salted { salt, iterations, stored_key, .. } = &self.sha256;
        let candidate = Salted::derive(Hash::Sha256, password, salt, *iterations);
        candidate.stored_key.ct_eq(stored_key).into()
    }

    /// Returns the rounds of PBKDF2 in the record.
    pub fn iterations(&self) -> u32 {
        self.sha256.iterations
    }
}

/// The salted hashes of one mechanism. Source: RFC 5802, section 3.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Salted {
    #[serde(with = "base64_text")]
    pub(crate) salt: Vec<u8>,
    pub(crate) iterations: u32,
    #[serde(with = "base64_text")]
    pub(crate) stored_key: Vec<u8>,
    #[serde(with = "base64_text")]
    pub(crate) server_key: Vec<u8>,
}

/// Shows nothing derived from the password, to keep it out of logs.
impl fmt::Debug for Salted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Salted").field("iterations", &self.iterations).finish_non_exhaustive()
    }
}

impl Salted {
    pub(crate) fn derive(hash: Hash, password: &str, salt: &[u8], iterations: u32) -> Salted {
        let stretched = hash.stretch(password.as_bytes(), salt, iterations);
        let client_key = hash.hmac(&stretched, &[b"Client Key"]);
        Salted {
            salt: salt.to_vec(),
            iterations,
            stored_key: hash.digest(&client_key),
            server_key: hash.hmac(&stretched, &[b"Server Key"]),
        }
    }

    /// Verifies a client's proof over `message`. Returns the server's signature if the proof is correct.
    pub(crate) fn check(&self, hash: Hash, message: &[u8], proof: &[u8]) -> Option<Vec<u8>> {
        let signature = hash.hmac(&self.stored_key, &[message]);
        if proof.len() != signature.len() {
            return None;
        }
        let client_key: Vec<u8> = proof.iter().zip(&signature).map(|(a, b)| a ^ b).collect();
        let holds: bool = hash.digest(&client_key).ct_eq(&self.stored_key).into();
        holds.then(|| hash.hmac(&self.server_key, &[message]))
    }
}

pub(crate) mod base64_text {
    use super::{Engine, STANDARD};
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(crate) fn serialize<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&STANDARD.encode(bytes))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
        STANDARD.decode(String::deserialize(from)?).map_err(D::Error::custom)
    }
}
