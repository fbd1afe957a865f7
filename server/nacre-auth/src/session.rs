//! Browser sessions: a signed token replaces the password in each request.
//!
//! ```text
//! login ─► Users::sign(&BrowserSession) ─► "payload.mac" ─► cookie ─► Users::read_session(token) ─► Users::holder(&session.login)
//! ```
//!
//! All nodes of a cluster have the key that verifies tokens, so a session is valid on each of them and no node keeps a
//! table. A session contains the [`Login`], and ends with it: when the password changes, and when the user is removed
//! or locked. Sessions that are ended explicitly are listed in the settings that the nodes agree on; the caller checks
//! those.
//!
//! *Invariants:* no content of a token is parsed before its MAC is verified, and the MAC is compared in constant time.

use crate::Users;
use crate::hash::Hash;
use crate::login::Login;
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

/// Maximum length of an accepted token in bytes: names of users have at most 128.
const TOKEN_BYTES_MAX: usize = 2048;

/// A browser session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BrowserSession {
    /// The login of the session.
    pub login: Login,
    /// Random hexadecimal digits that distinguish the sessions of a user.
    pub id: String,
    /// Time of the login, in seconds since the Unix epoch.
    pub begun_s: u64,
    /// Time of the user's last activity, in seconds since the Unix epoch.
    pub seen_s: u64,
}

impl BrowserSession {
    /// Maximum time without activity of the user, in seconds.
    pub const IDLE_S_MAX: u64 = 600;
    /// Maximum lifetime of a session, in seconds.
    pub const AGE_S_MAX: u64 = 12 * 3600;
    /// Maximum clock difference between two nodes, in seconds.
    const SKEW_S_MAX: u64 = 60;

    /// Returns true if the session has not expired at `now_s`, in seconds since the Unix epoch.
    pub fn is_alive(&self, now_s: u64) -> bool {
        let age = |since: u64| now_s.saturating_sub(since);
        self.begun_s <= self.seen_s
            && self.seen_s <= now_s + BrowserSession::SKEW_S_MAX
            && age(self.seen_s) < BrowserSession::IDLE_S_MAX
            && age(self.begun_s) < BrowserSession::AGE_S_MAX
    }
}

/// Derives the session key from a secret.
pub(crate) fn key(secret: &[u8]) -> Vec<u8> {
    Hash::Sha256.hmac(secret, &[b"sessions of browsers"])
}

impl Users {
    /// Returns the token of a session for a cookie: letters, digits, `-`, `_` and a dot.
    pub fn sign(&self, session: &BrowserSession) -> String {
        let payload = serde_json::to_vec(session).expect("a session has texts and numbers only");
        let payload = BASE64_URL_SAFE_NO_PAD.encode(payload);
        let mac = Hash::Sha256.hmac(self.session_key(), &[payload.as_bytes()]);
        format!("{payload}.{}", BASE64_URL_SAFE_NO_PAD.encode(mac))
    }

    /// Returns the session of a token that a node of this cluster signed; `None` for any other text. The caller must
    /// check that the session has not expired and that its login is valid.
    pub fn read_session(&self, token: &str) -> Option<BrowserSession> {
        if token.len() > TOKEN_BYTES_MAX {
            return None;
        }
        let (payload, mac) = token.split_once('.')?;
        let given = BASE64_URL_SAFE_NO_PAD.decode(mac).ok()?;
        let right = Hash::Sha256.hmac(self.session_key(), &[payload.as_bytes()]);
        if !is_equal(&given, &right) {
            return None;
        }
        serde_json::from_slice(&BASE64_URL_SAFE_NO_PAD.decode(payload).ok()?).ok()
    }
}

/// Compares in constant time, so that the duration does not reveal the length of the common prefix.
fn is_equal(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Role, SALT_BYTES, User};

    fn users(secret: u8) -> Users {
        let mut users = Users::new([secret; 32]);
        users.insert(User::new("ann", "secret", vec![Role::admin()], [1; SALT_BYTES]));
        users
    }

    fn session(users: &Users) -> BrowserSession {
        let login = users.login_without_password("ann").unwrap();
        BrowserSession { login, id: "0f".into(), begun_s: 1000, seen_s: 1000 }
    }

    #[test]
    fn a_token_is_read_only_with_its_key() {
        let users = users(7);
        let session = session(&users);
        let token = users.sign(&session);
        assert_eq!(users.read_session(&token), Some(session));
        assert_eq!(self::users(8).read_session(&token), None);
        let mut joined = self::users(8);
        let mut other = self::users(9);
        joined.set_internal("shared", [0; SALT_BYTES]);
        other.set_internal("shared", [0; SALT_BYTES]);
        let token = joined.sign(&self::session(&joined));
        assert!(other.read_session(&token).is_some(), "nodes of a cluster share the key");
    }

    #[test]
    fn an_altered_token_is_invalid() {
        let users = users(7);
        let token = users.sign(&session(&users));
        for at in 0..token.len() {
            let mut changed = token.clone().into_bytes();
            changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(changed).unwrap();
            // The last character of a MAC has unused bits, which the decoder requires to be zero.
            assert_eq!(users.read_session(&changed), None, "{at}");
        }
        for text in ["", ".", "a.b", "..", "a", &"x".repeat(5000), "ä.ö"] {
            assert_eq!(users.read_session(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_session_ends_by_silence_and_by_age() {
        let users = users(7);
        let session = session(&users);
        for (begun_s, seen_s, now_s, expected) in [
            (1000, 1000, 1000, true),
            (1000, 1000, 1599, true),
            (1000, 1000, 1600, false),
            (1000, 44_000, 44_199, true),
            (1000, 44_199, 44_200, false),
            (1000, 1060, 1000, true),
            (1000, 1061, 1000, false),
            (1001, 1000, 1001, false),
        ] {
            let session = BrowserSession { begun_s, seen_s, ..session.clone() };
            assert_eq!(session.is_alive(now_s), expected, "{begun_s} {seen_s} {now_s}");
        }
    }

    #[test]
    fn a_session_ends_with_the_password_and_with_the_user() {
        let mut users = users(7);
        let Some(login) = users.verify("ann", "secret").map(crate::users::login_of) else {
            panic!("the password is right")
        };
        let session = BrowserSession { login, ..session(&users) };
        let token = users.sign(&session);
        let held =
            |users: &Users| users.holder(&users.read_session(&token).unwrap().login).is_some();
        assert!(held(&users));
        let other = User::new("ann", "other", vec![Role::admin()], [2; SALT_BYTES]);
        users.put(other);
        assert!(!held(&users));
    }
}
