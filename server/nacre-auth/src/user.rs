//! Users and groups, as records.

use crate::credentials::{Credentials, SALT_BYTES};
use crate::token::ApiToken;
use crate::{Keyspace, Privilege, Role};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::{Arc, OnceLock};
use subtle::ConstantTimeEq;

/// The authority that authenticates a user.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Domain {
    /// The cluster, with a password.
    #[default]
    Local,
    /// A directory service. The cluster stores the roles but no password, so such a user cannot log in by password.
    External,
}

impl Domain {
    /// Both domains.
    pub const ALL: [Domain; 2] = [Domain::Local, Domain::External];

    /// Returns the name in REST requests.
    pub fn name(self) -> &'static str {
        match self {
            Domain::Local => "local",
            Domain::External => "external",
        }
    }

    fn is_local(&self) -> bool {
        *self == Domain::Local
    }
}

/// A user: a name, the stored form of the password, and roles.
///
/// Nodes store the serialised form; the enclosing record contains the version of the format.
#[derive(Clone, Serialize, Deserialize)]
pub struct User {
    /// The name to log in with.
    pub name: String,
    /// The authority that authenticates the user.
    #[serde(default, skip_serializing_if = "Domain::is_local")]
    pub domain: Domain,
    /// A name for people; may be empty.
    #[serde(default)]
    pub display_name: String,
    /// The user's own roles, in addition to those of the groups.
    pub roles: Vec<Role>,
    /// The groups that the user belongs to, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    /// True for a user who is temporarily not allowed to log in.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub locked: bool,
    /// Distinguishes the user from earlier and later ones of the same name; 0 for a user from before generations
    /// existed. Assigned by [`Users`](crate::Users).
    #[serde(default, skip_serializing_if = "is_zero")]
    pub generation: u64,
    /// Changes with each new password, and is never reused. Assigned by [`Users`](crate::Users).
    #[serde(default, skip_serializing_if = "is_zero")]
    pub password_generation: u64,
    /// Time when the password was set, in seconds of Unix time; `None` if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password_set_at: Option<u64>,
    /// `None` for an external user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) credentials: Option<Credentials>,
    /// API tokens in the order of their creation. At most [`ApiToken::COUNT_MAX`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tokens: Vec<ApiToken>,
    /// Limits of the rights when the user acts through a token: a right needs the permission of one of these roles too.
    #[serde(skip)]
    pub(crate) limits: Option<Vec<Role>>,
    /// The roles of the groups, each with the group's name; kept up to date by [`Users`](crate::Users).
    #[serde(skip)]
    pub(crate) inherited: Vec<(String, Role)>,
    /// A keyed hash of the password once it has been verified, see [`Users::check`](crate::Users::check). Shared by the
    /// copies of a user that have the same password. Never leaves the process.
    #[serde(skip)]
    pub(crate) seen: Arc<OnceLock<Vec<u8>>>,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl User {
    /// Creates a user with a password. `salt` must be random, and new for each user and password.
    ///
    /// Takes several milliseconds, like [`Credentials::derive`].
    pub fn new(name: &str, password: &str, roles: Vec<Role>, salt: [u8; SALT_BYTES]) -> User {
        User::with(name, Some(Credentials::derive(password, salt)), roles)
    }

    pub(crate) fn with(name: &str, credentials: Option<Credentials>, roles: Vec<Role>) -> User {
        User {
            name: name.to_owned(),
            domain: Domain::Local,
            display_name: String::new(),
            roles,
            groups: Vec::new(),
            locked: false,
            generation: 0,
            password_generation: 0,
            password_set_at: None,
            credentials,
            tokens: Vec::new(),
            limits: None,
            inherited: Vec::new(),
            seen: Arc::default(),
        }
    }

    pub(crate) fn has_token(&self, id: &str) -> bool {
        self.tokens.iter().any(|token| token.id == id)
    }

    /// Returns true if a password with this keyed hash has been verified before.
    pub(crate) fn has_seen(&self, hash: &[u8]) -> bool {
        self.seen.get().is_some_and(|seen| seen.ct_eq(hash).into())
    }

    /// Changes the password.
    pub fn set_password(&mut self, password: &str, salt: [u8; SALT_BYTES]) {
        self.set_credentials(Credentials::derive(password, salt));
    }

    /// Returns the stored form of the password.
    pub fn credentials(&self) -> Option<&Credentials> {
        self.credentials.as_ref()
    }

    pub(crate) fn set_credentials(&mut self, credentials: Credentials) {
        self.credentials = Some(credentials);
        self.seen = Arc::default();
    }

    /// Iterates over the user's own roles, then those of the groups, each with its origin: `None` for the user itself.
    pub fn all_roles(&self) -> impl Iterator<Item = (&Role, Option<&str>)> {
        let own = self.roles.iter().map(|role| (role, None));
        own.chain(self.inherited.iter().map(|(group, role)| (role, Some(group.as_str()))))
    }

    /// Returns true if `holds` returns true for one of the roles and, for a user who acts through a token, for one of
    /// the token's scopes too.
    fn holds(&self, holds: impl Fn(&Role) -> bool) -> bool {
        self.all_roles().any(|(role, _)| holds(role))
            && self.limits.as_ref().is_none_or(|limits| limits.iter().any(holds))
    }

    /// Returns true if one of the roles permits `privilege` on all of `keyspace`.
    pub fn may(&self, privilege: Privilege, keyspace: Keyspace<'_>) -> bool {
        self.holds(|role| role.permits(privilege, keyspace))
    }

    /// Returns true if one of the roles is privileged, see [`RoleKind::is_privileged`](crate::RoleKind).
    pub fn is_privileged(&self) -> bool {
        self.holds(|role| role.kind.is_privileged())
    }

    /// Returns true if one of the roles permits `privilege` on `bucket` or a part of it.
    pub fn may_within(&self, privilege: Privilege, bucket: &str) -> bool {
        let part = |role: &Role| {
            let own = Keyspace { bucket: Some(bucket), ..role.keyspace() };
            role.keyspace().bucket.is_none_or(|covered| covered == bucket)
                && role.permits(privilege, own)
        };
        let Some(limits) = &self.limits else {
            return self.all_roles().any(|(role, _)| part(role));
        };
        // Roles on two different collections have no keyspace in common.
        self.all_roles().filter(|(role, _)| part(role)).any(|(role, _)| {
            limits.iter().filter(|limit| part(limit)).any(|limit| {
                let (own, other) = (role.keyspace(), limit.keyspace());
                own.is_within(other) || other.is_within(own)
            })
        })
    }

    /// Returns true if one of the roles covers `place`, a part of it or something that contains it, or permits seeing
    /// the cluster without being restricted to a part of the data. Such a user may see that the place exists, and its
    /// settings.
    pub fn may_see(&self, place: Keyspace<'_>) -> bool {
        let meets = |own: Option<&str>, asked: Option<&str>| {
            own.is_none() || asked.is_none() || own == asked
        };
        self.holds(|role| {
            let own = role.keyspace();
            match role.kind.is_parameterised() {
                true => {
                    meets(own.bucket, place.bucket)
                        && meets(own.scope, place.scope)
                        && meets(own.collection, place.collection)
                }
                false => role.permits(Privilege::ReadCluster, Keyspace::default()),
            }
        })
    }

    /// Returns true if one of the roles covers `bucket` or a part of it, so that the user may see that it exists.
    pub fn may_open(&self, bucket: &str) -> bool {
        let covers = |role: &Role| role.keyspace().bucket.is_none_or(|covered| covered == bucket);
        self.holds(covers)
    }
}

/// Shows the name and the roles, nothing derived from the password.
impl fmt::Debug for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let roles: Vec<String> = self.roles.iter().map(Role::to_string).collect();
        f.debug_struct("User")
            .field("name", &self.name)
            .field("roles", &roles)
            .finish_non_exhaustive()
    }
}

/// Named roles for users who belong to the group.
///
/// Nodes store the serialised form.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// The name.
    pub name: String,
    /// Description of its purpose; may be empty.
    #[serde(default)]
    pub description: String,
    /// Roles of its users.
    pub roles: Vec<Role>,
    /// The name of a group in a directory service, stored for the operator.
    #[serde(default)]
    pub ldap_group: Option<String>,
}

impl Group {
    /// Creates a group without roles.
    pub fn new(name: &str) -> Group {
        Group {
            name: name.to_owned(),
            description: String::new(),
            roles: Vec::new(),
            ldap_group: None,
        }
    }
}
