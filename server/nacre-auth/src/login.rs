//! Logins: users who have logged in, and the check of a plain password outside of the table of users.
//!
//! ```text
//! Users::check(name, password)  ─► Granted             remembered, microseconds
//!                               └► Hash(PasswordCheck)  run() takes milliseconds and needs no lock
//! Users::holder(&login)         ─► the user, as long as the login holds
//! ```

use crate::credentials::Credentials;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::{Arc, OnceLock};

/// A user who has logged in.
///
/// The numbers distinguish the user from another one who is created later under the same name, and a password from the one that
/// replaces it: see [`Users::holder`](crate::Users::holder).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Login {
    /// The user's name.
    pub user: String,
    /// The user's [`generation`](crate::User::generation).
    pub generation: u64,
    /// The generation of the password that was given; `None` if the login needed none, as with a certificate.
    pub password: Option<u64>,
}

/// Result of a check without hashing.
#[derive(Debug)]
pub enum Check {
    /// The password was right before and is remembered.
    Granted(Login),
    /// The password is wrong. Only for the nodes' own secret: it is too long to be guessed, and checked at once, so that a flood of
    /// logins keeps no node from the others.
    Denied,
    /// The password has to be hashed.
    Hash(Box<PasswordCheck>),
}

/// The check of one password: holds all that it needs, so that no lock is held while it runs.
pub struct PasswordCheck {
    pub(crate) name: String,
    /// `None` for a user who does not exist or may not log in: the check takes as long, and fails.
    pub(crate) login: Option<Login>,
    pub(crate) password: String,
    pub(crate) credentials: Credentials,
    /// Cell in which the user remembers the password.
    pub(crate) seen: Arc<OnceLock<Vec<u8>>>,
    /// The remembered value: a keyed hash of the password.
    pub(crate) hash: Vec<u8>,
}

impl PasswordCheck {
    /// The name that was given.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Hashes the password, which takes milliseconds. Returns the login if the password is right, which is remembered
    /// then.
    pub fn run(self) -> Option<Login> {
        let is_right = self.credentials.verify(&self.password);
        let login = self.login.filter(|_| is_right)?;
        // Another thread may have been faster; there is one right password, so it set the same.
        let _ = self.seen.set(self.hash);
        Some(login)
    }
}

/// Shows whose password it is and nothing that a password went into.
impl fmt::Debug for PasswordCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PasswordCheck").field("name", &self.name).finish_non_exhaustive()
    }
}
