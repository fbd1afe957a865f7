//! Tokens of the HTTP API: long secrets that act for a user, with fewer rights and for a limited time.
//!
//! ```text
//! Edit::CreateToken(ApiToken) ─► in the user's record      only the SHA-256 of the text is stored
//! Authorization: Bearer TEXT  ─► Users::login_by_token     a Login as the user "ann/0f1e2d3c4b5a6978"
//! any request                 ─► Users::holder(login)      rights of the user that the scopes also permit
//! ```
//!
//! A token acts under its own name, `USER/ID`, which no user can have. Every lookup by name therefore finds the rights
//! of the token and not those of its user: in queries, in deployments, on other nodes.
//!
//! *Invariants:* a token never has a right that its user currently lacks. It ends with its user, and has no rights
//! while the user is locked. It creates no tokens and changes no password of its user. If all its scopes are dropped
//! with their bucket, it has no rights.

use crate::hash::Hash;
use crate::login::Login;
use crate::user::User;
use crate::{Role, Users};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde::{Deserialize, Serialize};
use subtle::ConstantTimeEq;

/// Prefix of the text of a token. The number is the version of the format.
const PREFIX: &str = "nacre1_";
/// Number of digits of an ID.
const ID_DIGITS: usize = 16;
/// Number of digits of a secret: 32 bytes.
const SECRET_DIGITS: usize = 64;
/// Version of [`ApiToken::sha256`]: SHA-256 of the whole text, which is sufficient for 32 random bytes.
const VERSION: u32 = 1;

/// A stored token, with the hash of its text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApiToken {
    /// Version of the stored form. A node does not accept tokens with an unknown version.
    version: u32,
    /// 16 hexadecimal digits, which the text also contains.
    pub id: String,
    /// A name for people, 1..=[`ApiToken::NAME_BYTES_MAX`] bytes.
    pub name: String,
    /// Rights that the token can have, if its user has them; `None` for all rights of the user.
    pub scopes: Option<Vec<Role>>,
    /// Time of creation, in seconds of Unix time.
    pub created_s: u64,
    /// Time of expiry, in seconds of Unix time.
    pub expires_s: u64,
    /// SHA-256 of the text, as base64.
    sha256: String,
}

impl ApiToken {
    /// Maximum length of a name in bytes.
    pub const NAME_BYTES_MAX: usize = 128;
    /// Maximum number of scopes of one token.
    pub const SCOPES_MAX: usize = 64;
    /// Maximum number of tokens of one user.
    pub const COUNT_MAX: usize = 32;
    /// Maximum lifetime of a token, in seconds: 366 days.
    pub const AGE_S_MAX: u64 = 366 * 24 * 3600;

    /// Creates a token from 40 random bytes. Also returns its text, which is shown once and never stored.
    pub fn new(
        name: &str,
        scopes: Option<Vec<Role>>,
        [created_s, expires_s]: [u64; 2],
        random: &[u8; 40],
    ) -> (ApiToken, String) {
        let digits: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        let (id, secret) = digits.split_at(ID_DIGITS);
        let text = format!("{PREFIX}{id}_{secret}");
        let token = ApiToken {
            version: VERSION,
            id: id.to_owned(),
            name: name.to_owned(),
            scopes,
            created_s,
            expires_s,
            sha256: BASE64_STANDARD.encode(Hash::Sha256.digest(text.as_bytes())),
        };
        (token, text)
    }

    /// Returns true if the fields are within their bounds.
    pub(crate) fn is_valid(&self) -> bool {
        let is_hexadecimal = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit());
        self.id.len() == ID_DIGITS
            && is_hexadecimal(&self.id)
            && (1..=ApiToken::NAME_BYTES_MAX).contains(&self.name.len())
            && self.scopes.as_ref().is_none_or(|scopes| scopes.len() <= ApiToken::SCOPES_MAX)
            && self.created_s < self.expires_s
            && self.expires_s - self.created_s <= ApiToken::AGE_S_MAX
    }

    /// Returns true if the token has expired at `now_s`, in seconds of Unix time.
    pub fn has_expired(&self, now_s: u64) -> bool {
        self.expires_s <= now_s
    }

    /// Returns true if `text` is the text of the token.
    fn matches(&self, text: &str) -> bool {
        let right = BASE64_STANDARD.decode(&self.sha256).unwrap_or_default();
        let given = Hash::Sha256.digest(text.as_bytes());
        self.version == VERSION && bool::from(right.ct_eq(&given))
    }

    /// Returns the ID in the text of a token; `None` if the text does not have the format of a token.
    pub fn id_of(text: &str) -> Option<&str> {
        let (id, secret) = text.strip_prefix(PREFIX)?.split_once('_')?;
        let is_hexadecimal = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let is_whole = id.len() == ID_DIGITS && secret.len() == SECRET_DIGITS;
        (is_whole && is_hexadecimal(id) && is_hexadecimal(secret)).then_some(id)
    }
}

/// Splits the name of a token into user and ID; `None` for the name of a user.
pub fn user_of_token(name: &str) -> Option<(&str, &str)> {
    name.rsplit_once('/')
}

/// Returns the name of the user; for the name of a token, the token's user.
pub fn person(name: &str) -> &str {
    user_of_token(name).map_or(name, |(user, _)| user)
}

/// A user with the rights of one of its tokens.
#[derive(Clone)]
pub(crate) struct TokenHolder {
    token: ApiToken,
    pub(crate) user: User,
}

impl TokenHolder {
    fn new(user: &User, token: &ApiToken) -> TokenHolder {
        let name = format!("{}/{}", user.name, token.id);
        let mut acting = user.clone();
        (acting.name, acting.limits, acting.tokens) = (name, token.scopes.clone(), Vec::new());
        // A token has no password: a login by password under its name is impossible.
        acting.credentials = None;
        TokenHolder { token: token.clone(), user: acting }
    }
}

/// Returns the holders of a user's tokens, by the ID of the token.
fn holders_of(user: &User) -> impl Iterator<Item = (String, TokenHolder)> {
    user.tokens.iter().map(move |token| (token.id.clone(), TokenHolder::new(user, token)))
}

impl Users {
    /// Returns the login of a token; `None` if the token does not exist or has expired at `now_s` (seconds of Unix
    /// time), or if its user is locked.
    pub fn login_by_token(&self, text: &str, now_s: u64) -> Option<Login> {
        let holder = self.holders.get(ApiToken::id_of(text)?)?;
        let counts = holder.token.matches(text)
            && !holder.token.has_expired(now_s.max(self.expired_s))
            && !holder.user.locked;
        counts.then(|| login_of(&holder.user))
    }

    /// Ends the logins of tokens that have expired at `now_s`, in seconds of Unix time. Returns true if there were any.
    ///
    /// [`Users::holder`] does not check the time: this call makes requests that outlast their token lose their rights.
    pub fn expire_tokens(&mut self, now_s: u64) -> bool {
        self.expired_s = self.expired_s.max(now_s);
        let before = self.holders.len();
        self.holders.retain(|_, holder| !holder.token.has_expired(now_s));
        self.holders.len() < before
    }

    /// Returns the earliest expiry of a token, in seconds of Unix time.
    pub fn next_token_end(&self) -> Option<u64> {
        self.holders.values().map(|holder| holder.token.expires_s).min()
    }

    /// Returns a token's user with the rights of the token.
    pub(crate) fn acting(&self, name: &str) -> Option<&User> {
        let (_, id) = user_of_token(name)?;
        self.holders.get(id).map(|holder| &holder.user).filter(|user| user.name == name)
    }

    /// Updates the holders of all tokens from the records of their users.
    pub(crate) fn refresh_tokens(&mut self) {
        self.holders = self.users.values().flat_map(holders_of).collect();
        self.expire_tokens(self.expired_s);
    }

    /// Updates the holders of the tokens of one local user.
    pub(crate) fn refresh_tokens_of(&mut self, name: &str) {
        self.holders.retain(|_, holder| person(&holder.user.name) != name);
        self.holders.extend(self.users.get(name).into_iter().flat_map(holders_of));
        self.expire_tokens(self.expired_s);
    }
}

/// Returns the login of a token.
pub(crate) fn login_of(user: &User) -> Login {
    Login { user: user.name.clone(), generation: user.generation, password: None }
}
