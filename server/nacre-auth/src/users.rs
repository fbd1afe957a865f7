//! The users of a cluster.

use crate::credentials::SALT_BYTES;
use crate::hash::Hash;
use crate::{Credentials, Keyspace, Privilege, Role, RoleKind};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::OnceLock;
use subtle::ConstantTimeEq;

/// A user: a name, what is kept of the password, and roles.
///
/// The serialised form is the record a node persists; what encloses it carries the format's version.
#[derive(Clone, Serialize, Deserialize)]
pub struct User {
    /// The name to log in with.
    pub name: String,
    /// A name for people; may be empty.
    #[serde(default)]
    pub display_name: String,
    /// What the user may do, beside what the groups may.
    pub roles: Vec<Role>,
    /// The groups that the user belongs to, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    credentials: Credentials,
    /// The roles of the groups, each with the group's name; kept up to date by [`Users`].
    #[serde(skip)]
    inherited: Vec<(String, Role)>,
    /// A keyed hash of the password once it was seen, see [`Users::verify`]. Never leaves the process.
    #[serde(skip)]
    seen: OnceLock<Vec<u8>>,
}

impl User {
    /// A user with a password. `salt` has to be random, and new for each user and password.
    ///
    /// Takes some milliseconds, as [`Credentials::derive`] does.
    pub fn new(name: &str, password: &str, roles: Vec<Role>, salt: [u8; SALT_BYTES]) -> User {
        User::with(name, Credentials::derive(password, salt), roles)
    }

    fn with(name: &str, credentials: Credentials, roles: Vec<Role>) -> User {
        User {
            name: name.to_owned(),
            display_name: String::new(),
            roles,
            groups: Vec::new(),
            credentials,
            inherited: Vec::new(),
            seen: OnceLock::new(),
        }
    }

    /// Whether a password of this keyed hash was right before.
    fn has_seen(&self, hash: &[u8]) -> bool {
        self.seen.get().is_some_and(|seen| seen.ct_eq(hash).into())
    }

    /// Changes the password.
    pub fn set_password(&mut self, password: &str, salt: [u8; SALT_BYTES]) {
        self.credentials = Credentials::derive(password, salt);
        self.seen = OnceLock::new();
    }

    /// Own roles, then those of the groups, each with where it comes from: `None` for the user itself.
    pub fn all_roles(&self) -> impl Iterator<Item = (&Role, Option<&str>)> {
        let own = self.roles.iter().map(|role| (role, None));
        own.chain(self.inherited.iter().map(|(group, role)| (role, Some(group.as_str()))))
    }

    /// Whether one of the roles permits `privilege` on all of `keyspace`.
    pub fn may(&self, privilege: Privilege, keyspace: Keyspace<'_>) -> bool {
        self.all_roles().any(|(role, _)| role.permits(privilege, keyspace))
    }

    /// Whether one of the roles permits `privilege` on `bucket` or a part of it.
    pub fn may_within(&self, privilege: Privilege, bucket: &str) -> bool {
        let permits = |role: &Role| {
            let own = role.keyspace();
            own.bucket.is_none_or(|covered| covered == bucket)
                && role.permits(privilege, Keyspace { bucket: Some(bucket), ..own })
        };
        self.all_roles().any(|(role, _)| permits(role))
    }

    /// Whether one of the roles is about `place`, a part of it, or more than it; or lets see the cluster, without being about a
    /// part of the data. Such a user may see that it is there, and how it is set up.
    pub fn may_see(&self, place: Keyspace<'_>) -> bool {
        let meets = |own: Option<&str>, asked: Option<&str>| {
            own.is_none() || asked.is_none() || own == asked
        };
        self.all_roles().any(|(role, _)| {
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

    /// Whether one of the roles covers `bucket` or a part of it, so that the user may see that it is there.
    pub fn may_open(&self, bucket: &str) -> bool {
        let covers = |role: &Role| role.keyspace().bucket.is_none_or(|covered| covered == bucket);
        self.all_roles().any(|(role, _)| covers(role))
    }
}

/// Shows the name and the roles, nothing that a password went into.
impl fmt::Debug for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let roles: Vec<String> = self.roles.iter().map(Role::to_string).collect();
        f.debug_struct("User")
            .field("name", &self.name)
            .field("roles", &roles)
            .finish_non_exhaustive()
    }
}

/// Roles under a name, for users who belong to it.
///
/// The serialised form is the record a node persists.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// Its name.
    pub name: String,
    /// What it is for; may be empty.
    #[serde(default)]
    pub description: String,
    /// What its users may do.
    pub roles: Vec<Role>,
    /// The group of a directory service that stands behind it; kept for the operator.
    #[serde(default)]
    pub ldap_group: Option<String>,
}

/// The name under which the nodes of a cluster log in to each other. Names of people never begin with `@`.
pub const INTERNAL: &str = "@nacre";

/// All users and groups, by name.
#[derive(Clone)]
pub struct Users {
    secret: [u8; 32],
    /// Who the other nodes are: may do everything, is in no list.
    internal: Option<User>,
    users: BTreeMap<String, User>,
    groups: BTreeMap<String, Group>,
}

impl fmt::Debug for Users {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl Users {
    /// No users. `secret` is random, one for each process: it keys what is remembered of passwords, and hides which
    /// names exist.
    pub fn new(secret: [u8; 32]) -> Users {
        Users { secret, internal: None, users: BTreeMap::new(), groups: BTreeMap::new() }
    }

    /// Lets the other nodes of the cluster log in as [`INTERNAL`] with `secret`, which is 32 random bytes in any form; with
    /// an empty one nobody does.
    pub fn set_internal(&mut self, secret: &str, salt: [u8; SALT_BYTES]) {
        let credentials = || Credentials::of_secret(secret, salt);
        let user = || User::with(INTERNAL, credentials(), vec![Role::admin()]);
        self.internal = (!secret.is_empty()).then(user);
    }

    /// Adds or replaces a user; gives the one that was there.
    pub fn insert(&mut self, mut user: User) -> Option<User> {
        user.inherited = inherited(&user.groups, &self.groups);
        self.users.insert(user.name.clone(), user)
    }

    /// Removes a user; gives what was there.
    pub fn remove(&mut self, name: &str) -> Option<User> {
        self.users.remove(name)
    }

    /// Who that is: a user, or [`INTERNAL`].
    pub fn get(&self, name: &str) -> Option<&User> {
        if name == INTERNAL { self.internal.as_ref() } else { self.users.get(name) }
    }

    /// The user of that name, as people may see, change and name them.
    pub fn person(&self, name: &str) -> Option<&User> {
        self.users.get(name)
    }

    /// All users, ordered by name.
    pub fn iter(&self) -> impl Iterator<Item = &User> {
        self.users.values()
    }

    /// Whether somebody may do everything.
    pub fn have_administrator(&self) -> bool {
        let is_admin = |user: &User| user.all_roles().any(|(role, _)| role.kind == RoleKind::Admin);
        self.users.values().any(is_admin)
    }

    /// Adds or replaces a group; its users have its roles from now on.
    pub fn insert_group(&mut self, group: Group) {
        self.groups.insert(group.name.clone(), group);
        self.inherit();
    }

    /// Removes a group, also from its users; gives what was there.
    pub fn remove_group(&mut self, name: &str) -> Option<Group> {
        let removed = self.groups.remove(name)?;
        self.users.values_mut().for_each(|user| user.groups.retain(|group| group != name));
        self.inherit();
        Some(removed)
    }

    /// The group of that name.
    pub fn group(&self, name: &str) -> Option<&Group> {
        self.groups.get(name)
    }

    /// All groups, ordered by name.
    pub fn groups(&self) -> impl Iterator<Item = &Group> {
        self.groups.values()
    }

    /// Takes away all roles on `keyspace` and its parts, which is no more: one that is made later under the same name is
    /// another. Whether there were any.
    pub fn forget(&mut self, keyspace: Keyspace<'_>) -> bool {
        let users = self.users.values_mut().map(|user| &mut user.roles);
        let groups = self.groups.values_mut().map(|group| &mut group.roles);
        let mut forgot = false;
        for roles in users.chain(groups) {
            let before = roles.len();
            roles.retain(|role| !role.keyspace().is_within(keyspace));
            forgot |= roles.len() < before;
        }
        self.inherit();
        forgot
    }

    fn inherit(&mut self) {
        for user in self.users.values_mut() {
            user.inherited = inherited(&user.groups, &self.groups);
        }
    }

    /// The user, if this is the password.
    ///
    /// The first right answer takes milliseconds, later ones microseconds, as HTTP Basic sends the password with
    /// each request: a hash of it, keyed by the process secret, is remembered. Wrong answers always take
    /// milliseconds, and those for a name that does not exist take as long.
    pub fn verify(&self, name: &str, password: &str) -> Option<&User> {
        let Some(user) = self.get(name) else {
            self.credentials(name).verify(password);
            return None;
        };
        let hash = self.hash(password);
        if !user.has_seen(&hash) {
            if !user.credentials.verify(password) {
                return None;
            }
            // Another thread may have been faster; there is one right password, so it set the same.
            let _ = user.seen.set(hash);
        }
        Some(user)
    }

    /// Whether [`Users::verify`] would answer within microseconds that this is the user's password.
    pub fn remembers(&self, name: &str, password: &str) -> bool {
        self.users.get(name).is_some_and(|user| user.has_seen(&self.hash(password)))
    }

    fn hash(&self, password: &str) -> Vec<u8> {
        Hash::Sha256.hmac(&self.secret, &[b"password", password.as_bytes()])
    }

    /// What is kept of the user's password, or something that looks like it.
    pub(crate) fn credentials(&self, name: &str) -> Credentials {
        match self.get(name) {
            Some(user) => user.credentials.clone(),
            None => Credentials::made_up(&self.secret, name),
        }
    }
}

fn inherited(names: &[String], groups: &BTreeMap<String, Group>) -> Vec<(String, Role)> {
    let groups = names.iter().filter_map(|name| groups.get(name));
    groups
        .flat_map(|group| group.roles.iter().map(|role| (group.name.clone(), role.clone())))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn users() -> Users {
        let mut users = Users::new([7; 32]);
        users.insert(User::new("ann", "secret", vec![Role::admin()], [1; SALT_BYTES]));
        users
    }

    #[test]
    fn only_the_right_password_of_a_known_user_passes() {
        let users = users();
        // Twice, so that both the slow and the remembered way are taken.
        for _ in 0..2 {
            assert!(users.verify("ann", "secret").is_some());
            assert!(users.verify("ann", "Secret").is_none());
            assert!(users.verify("ann", "").is_none());
            assert!(users.verify("bob", "secret").is_none());
        }
        assert!(users.remembers("ann", "secret"));
        assert!(!users.remembers("ann", "Secret") && !users.remembers("bob", "secret"));
    }

    #[test]
    fn a_changed_password_makes_the_old_one_forgotten() {
        let mut users = users();
        assert!(users.verify("ann", "secret").is_some());
        let mut ann = users.get("ann").unwrap().clone();
        ann.set_password("new", [2; SALT_BYTES]);
        users.insert(ann);
        assert!(!users.remembers("ann", "secret") && !users.remembers("ann", "new"));
        assert!(users.verify("ann", "secret").is_none());
        assert!(users.verify("ann", "new").is_some());
    }

    #[test]
    fn a_user_has_the_roles_of_the_groups_for_as_long_as_they_are_there() {
        let mut users = Users::new([7; 32]);
        let group = |role: &str| Group {
            name: "readers".into(),
            description: String::new(),
            roles: vec![role.parse().unwrap()],
            ldap_group: None,
        };
        let mut bob = User::new("bob", "secret", Vec::new(), [1; SALT_BYTES]);
        bob.groups = vec!["readers".into(), "others".into()];
        users.insert(bob);
        let may = |users: &Users, bucket: &str| {
            let keyspace = Keyspace { bucket: Some(bucket), ..Keyspace::default() };
            users.get("bob").unwrap().may(Privilege::ReadData, keyspace)
        };
        assert!(!may(&users, "a"), "the group is not there yet");
        users.insert_group(group("data_reader[a]"));
        assert!(may(&users, "a") && !may(&users, "b"));
        users.insert_group(group("data_reader[b]"));
        assert!(!may(&users, "a") && may(&users, "b"));
        users.remove_group("readers");
        assert!(!may(&users, "b"));
        assert_eq!(users.get("bob").unwrap().groups, ["others"]);
    }

    #[test]
    fn who_has_a_part_in_something_sees_that_it_is_there_and_nothing_beside() {
        let sees = |role: &str, names: &[&str]| {
            let user = User::new("u", "secret", vec![role.parse().unwrap()], [1; SALT_BYTES]);
            let name = |level: usize| names.get(level).copied();
            user.may_see(Keyspace { bucket: name(0), scope: name(1), collection: name(2) })
        };
        let table: [(&str, &[&str], bool); 11] = [
            ("data_reader[b:s:c]", &[], true),
            ("data_reader[b:s:c]", &["b"], true),
            ("data_reader[b:s:c]", &["b", "s", "c"], true),
            ("data_reader[b:s:c]", &["b", "s", "d"], false),
            ("data_reader[b:s]", &["b", "t"], false),
            ("data_monitoring[b]", &["a"], false),
            ("data_monitoring[*]", &["a", "s", "c"], true),
            ("bucket_admin[b]", &["a"], false),
            ("ro_admin", &["a", "s", "c"], true),
            ("admin", &["a"], true),
            ("external_stats_reader", &[], false),
        ];
        for (role, names, expected) in table {
            assert_eq!(sees(role, names), expected, "{role} {names:?}");
        }
    }

    #[test]
    fn the_other_nodes_may_do_everything_and_are_in_no_list() {
        let mut users = users();
        assert!(users.verify(INTERNAL, "").is_none());
        users.set_internal("", [3; SALT_BYTES]);
        assert!(users.verify(INTERNAL, "").is_none(), "a cluster without a secret lets no node in");
        users.set_internal("0123", [3; SALT_BYTES]);
        assert!(users.verify(INTERNAL, "0124").is_none());
        let node = users.verify(INTERNAL, "0123").unwrap();
        assert!(node.may(Privilege::AdministerUsers, Keyspace::default()));
        assert!(users.iter().all(|user| user.name != INTERNAL) && users.person(INTERNAL).is_none());
    }

    /// The persisted form of the first release; must stay readable.
    const RECORD: &str = include_str!("user.v1.json");

    #[test]
    fn a_persisted_record_reads_and_writes_as_before() {
        let user: User = serde_json::from_str(RECORD).unwrap();
        let mut users = Users::new([0; 32]);
        users.insert(user.clone());
        assert!(users.verify("ann", "secret").is_some());
        assert!(
            user.may(Privilege::ReadData, Keyspace { bucket: Some("b"), ..Keyspace::default() })
        );
        assert_eq!(format!("{}\n", serde_json::to_string_pretty(&user).unwrap()), RECORD);
    }

    #[test]
    fn printing_shows_no_secret() {
        let users = users();
        users.verify("ann", "secret");
        assert_eq!(format!("{users:?}"), r#"[User { name: "ann", roles: ["admin"], .. }]"#);
    }

    #[test]
    fn made_up_credentials_are_steady_and_look_alike() {
        let users = users();
        let (known, unknown) = (users.credentials("ann"), users.credentials("bob"));
        assert_eq!(unknown, users.credentials("bob"));
        assert_ne!(unknown, users.credentials("bill"));
        for hash in [Hash::Sha1, Hash::Sha256, Hash::Sha512] {
            assert_eq!(known.of(hash).salt.len(), unknown.of(hash).salt.len());
            assert_eq!(known.of(hash).stored_key.len(), unknown.of(hash).stored_key.len());
        }
    }

    #[test]
    fn roles_end_with_what_they_are_on() {
        let roles = [
            "admin",
            "data_reader[a]",
            "data_reader[a:s:c]",
            "data_reader[a:t]",
            "data_reader[b]",
            "bucket_admin[*]",
        ];
        let roles = || roles.iter().map(|role| role.parse().unwrap()).collect::<Vec<Role>>();
        let mut users = Users::new([0; 32]);
        let group = Group {
            name: "g".into(),
            description: String::new(),
            roles: roles(),
            ldap_group: None,
        };
        users.insert_group(group);
        let mut user = User::new("u", "password", roles(), [0; SALT_BYTES]);
        user.groups = vec!["g".into()];
        users.insert(user);
        let left = |users: &Users| {
            let all = users.get("u").unwrap().all_roles();
            let texts: Vec<String> = all.map(|(role, _)| role.to_string()).collect();
            let (own, inherited) = texts.split_at(texts.len() / 2);
            assert_eq!(own, inherited);
            own.join(" ")
        };
        let scope = Keyspace { bucket: Some("a"), scope: Some("s"), collection: None };
        assert!(users.forget(scope));
        assert_eq!(
            left(&users),
            "admin data_reader[a] data_reader[a:t] data_reader[b] bucket_admin[*]"
        );
        assert!(users.forget(Keyspace { bucket: Some("a"), ..Keyspace::default() }));
        assert_eq!(left(&users), "admin data_reader[b] bucket_admin[*]");
        assert!(!users.forget(Keyspace { bucket: Some("c"), ..Keyspace::default() }));
    }
}
