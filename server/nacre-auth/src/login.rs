//! Logins: users who have logged in, and the check of a plain password outside the table of users.
//!
//! ```text
//! Users::check(name, password)  ─► Granted             remembered, microseconds
//!                               └► Hash(PasswordCheck)  run() takes milliseconds and needs no lock
//! Users::holder(&login)         ─► the user, as long as the login is valid
//! ```

use crate::credentials::Credentials;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::{Arc, OnceLock};

/// A user who has logged in.
///
/// The generations distinguish the user from a later one of the same name, and a password from its successor: see
/// [`Users::holder`](crate::Users::holder).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Login {
    /// The user's name.
    pub user: String,
    /// The user's [`generation`](crate::User::generation).
    pub generation: u64,
    /// The generation of the password used; `None` if the login needed none, for instance with a certificate.
    pub password: Option<u64>,
}

/// Result of a password check without hashing.
#[derive(Debug)]
pub enum Check {
    /// The password is correct: it was verified before and remembered.
    Granted(Login),
    /// The password is wrong. Only for the nodes' own secret, which is too long to guess and is checked at once, so
    /// that a flood of logins cannot separate nodes from each other.
    Denied,
    /// The password must be hashed.
    Hash(Box<PasswordCheck>),
}

/// The check of one password. It contains all necessary data, so that it runs without a lock.
pub struct PasswordCheck {
    pub(crate) name: String,
    /// `None` for a user who does not exist or may not log in: the check then takes as long, and fails.
    pub(crate) login: Option<Login>,
    pub(crate) password: String,
    pub(crate) credentials: Credentials,
    /// Cell in which the user's verified password is remembered.
    pub(crate) seen: Arc<OnceLock<Vec<u8>>>,
    /// The value to remember: a keyed hash of the password.
    pub(crate) hash: Vec<u8>,
}

impl PasswordCheck {
    /// Returns the given name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Hashes the password, which takes milliseconds. If the password is correct, remembers it and returns the login.
    pub fn run(self) -> Option<Login> {
        let is_right = self.credentials.verify(&self.password);
        let login = self.login.filter(|_| is_right)?;
        // Another thread may have been faster. There is one correct password, so it set the same value.
        let _ = self.seen.set(self.hash);
        Some(login)
    }
}

/// Shows the name only, nothing derived from the password.
impl fmt::Debug for PasswordCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PasswordCheck").field("name", &self.name).finish_non_exhaustive()
    }
}
