//! The table of users and groups.

use crate::credentials::{Credentials, ITERATIONS, ITERATIONS_BEFORE, SALT_BYTES};
use crate::hash::Hash;
use crate::login::{Check, Login, PasswordCheck};
use crate::session;
use crate::token::{self, TokenHolder};
use crate::user::{Domain, Group, User};
use crate::{Keyspace, Role, RoleKind};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// The name under which the nodes of a cluster log in to each other. Names of people never begin with `@`.
pub const INTERNAL: &str = "@nacre";

/// The name under which the processes of analytics read documents.
pub const ANALYTICS: &str = "@cbas";

/// The name under which the backup service reads buckets and definitions.
pub const BACKUP: &str = "@backup";

/// Returns the password of [`ANALYTICS`]. It is derived from the secret of the cluster and does not reveal it.
pub fn analytics_password(secret: &str) -> String {
    derived_password(secret, b"analytics")
}

/// Returns the password of [`BACKUP`]. It is derived from the secret of the cluster and does not reveal it.
pub fn backup_password(secret: &str) -> String {
    derived_password(secret, b"backup")
}

fn derived_password(secret: &str, purpose: &[u8]) -> String {
    let derived = Hash::Sha256.hmac(secret.as_bytes(), &[purpose]);
    derived.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Roles of [`BACKUP`]: a backup also contains search indexes and functions, which need the additional roles.
const BACKUP_ROLES: [&str; 3] = ["backup_admin", "fts_searcher[*]", "eventing_manage_functions[*]"];

/// All users and groups, by name.
#[derive(Clone)]
pub struct Users {
    /// Keys the hashes of remembered passwords; differs between processes.
    secret: [u8; 32],
    /// Conceals which names exist; the same on all nodes of a cluster.
    decoy_secret: Vec<u8>,
    /// Signs browser sessions; the same on all nodes of a cluster.
    session_key: Vec<u8>,
    /// The user of the other nodes, which has all rights and appears in no list.
    internal: Option<User>,
    /// The user of the analytics processes, which reads documents and appears in no list.
    analytics: Option<User>,
    /// The user of the backup service, which reads documents and definitions and appears in no list.
    backup: Option<User>,
    pub(crate) users: BTreeMap<String, User>,
    /// The external users.
    pub(crate) external: BTreeMap<String, User>,
    pub(crate) groups: BTreeMap<String, Group>,
    /// The holders of tokens, by the ID of the token; derived from [`User::tokens`].
    pub(crate) holders: BTreeMap<String, TokenHolder>,
    /// Tokens that expired by this time, in seconds of Unix time, have no holder.
    pub(crate) expired_s: u64,
    /// The last assigned generation.
    pub(crate) generation: u64,
    /// Number of users whose password is from before [`ITERATIONS`] was raised.
    old_count: usize,
}

impl fmt::Debug for Users {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.all()).finish()
    }
}

impl Users {
    /// Creates an empty table. `secret` is random for each process and keys the hashes of remembered passwords.
    pub fn new(secret: [u8; 32]) -> Users {
        Users {
            secret,
            decoy_secret: secret.to_vec(),
            session_key: session::key(&secret),
            internal: None,
            analytics: None,
            backup: None,
            users: BTreeMap::new(),
            external: BTreeMap::new(),
            groups: BTreeMap::new(),
            holders: BTreeMap::new(),
            expired_s: 0,
            generation: 0,
            old_count: 0,
        }
    }

    /// Lets the other nodes of the cluster log in as [`INTERNAL`] with `secret`, which is 32 random bytes in any
    /// encoding. With an empty secret no login succeeds.
    ///
    /// SCRAM replies for names that do not exist are derived from the secret too. A reply that changed with a restart,
    /// or between nodes, would reveal that the user does not exist.
    pub fn set_internal(&mut self, secret: &str, salt: [u8; SALT_BYTES]) {
        let credentials = || Credentials::of_secret(secret, salt);
        let user = || User::with(INTERNAL, Some(credentials()), vec![Role::admin()]);
        self.internal = (!secret.is_empty()).then(user);
        let reader = || {
            let credentials = Credentials::of_secret(&analytics_password(secret), salt);
            let role: Role = "data_dcp_reader[*]".parse().expect("the role is in the table");
            User::with(ANALYTICS, Some(credentials), vec![role])
        };
        self.analytics = (!secret.is_empty()).then(reader);
        let backup = || {
            let credentials = Credentials::of_secret(&backup_password(secret), salt);
            let roles = BACKUP_ROLES.map(|role| role.parse().expect("the role is in the table"));
            User::with(BACKUP, Some(credentials), roles.to_vec())
        };
        self.backup = (!secret.is_empty()).then(backup);
        if !secret.is_empty() {
            self.decoy_secret = Hash::Sha256.hmac(secret.as_bytes(), &[b"unknown users"]);
            self.session_key = session::key(secret.as_bytes());
        }
    }

    /// Returns the key of [`Users::sign`].
    pub(crate) fn session_key(&self) -> &[u8] {
        &self.session_key
    }

    /// Adds or replaces a user with its stored record. Returns the replaced user.
    pub fn insert(&mut self, mut user: User) -> Option<User> {
        self.generation = self.generation.max(user.generation).max(user.password_generation);
        user.inherited = inherited(&user.groups, &self.groups);
        self.old_count += usize::from(is_old(&user));
        let name = user.name.clone();
        let has_tokens = !user.tokens.is_empty();
        let replaced = self.table(user.domain).insert(name.clone(), user);
        self.old_count -= usize::from(replaced.as_ref().is_some_and(is_old));
        if has_tokens || replaced.as_ref().is_some_and(|user| !user.tokens.is_empty()) {
            self.refresh_tokens_of(&name);
        }
        replaced
    }

    /// Adds or replaces a user as a whole, on behalf of the node itself. A new user gets a generation, and so does a
    /// new password.
    pub fn put(&mut self, mut user: User) {
        let known = self.of(user.domain, &user.name);
        let generation = known.map(|known| known.generation);
        let same_password = known.filter(|known| known.credentials == user.credentials);
        // Remembered passwords are keyed by the secret of a process, so a record from another node has none.
        let (seen, password_generation) = match same_password {
            Some(known) => (Arc::clone(&known.seen), Some(known.password_generation)),
            None => (Arc::default(), None),
        };
        user.seen = seen;
        if let Some(known) = known {
            user.tokens.clone_from(&known.tokens);
        }
        user.generation = generation.unwrap_or_else(|| self.next_generation());
        user.password_generation = password_generation.unwrap_or_else(|| self.next_generation());
        self.insert(user);
    }

    pub(crate) fn next_generation(&mut self) -> u64 {
        self.generation += 1;
        self.generation
    }

    /// Returns the last assigned generation. It must be stored, because no generation is assigned twice.
    pub fn last_generation(&self) -> u64 {
        self.generation
    }

    /// Makes later generations start above `generation`.
    pub fn skip_generations(&mut self, generation: u64) {
        self.generation = self.generation.max(generation);
    }

    fn table(&mut self, domain: Domain) -> &mut BTreeMap<String, User> {
        match domain {
            Domain::Local => &mut self.users,
            Domain::External => &mut self.external,
        }
    }

    /// Removes a user. Returns the removed user.
    pub fn remove(&mut self, domain: Domain, name: &str) -> Option<User> {
        let removed = self.table(domain).remove(name)?;
        self.old_count -= usize::from(is_old(&removed));
        self.refresh_tokens_of(name);
        Some(removed)
    }

    /// Returns a local user, or one of the server's own users; for the name of a token, its user with the rights of the
    /// token.
    pub fn get(&self, name: &str) -> Option<&User> {
        match name {
            INTERNAL => self.internal.as_ref(),
            ANALYTICS => self.analytics.as_ref(),
            BACKUP => self.backup.as_ref(),
            name => self.acting(name).or_else(|| self.users.get(name)),
        }
    }

    /// Returns the local user with this name, excluding tokens and the server's own users.
    pub fn person(&self, name: &str) -> Option<&User> {
        self.users.get(name)
    }

    /// Returns the user with this name in a domain.
    pub fn of(&self, domain: Domain, name: &str) -> Option<&User> {
        match domain {
            Domain::Local => self.users.get(name),
            Domain::External => self.external.get(name),
        }
    }

    /// Returns the user of a login, as long as the login is valid. It ends when the user is removed, even if another
    /// one of the same name is created later, when the password of the login is replaced, and when the user is locked.
    pub fn holder(&self, login: &Login) -> Option<&User> {
        let user = self.get(&login.user)?;
        let holds = user.generation == login.generation
            && login.password.is_none_or(|password| password == user.password_generation)
            && !user.locked;
        holds.then_some(user)
    }

    /// Returns the login of a user who was authenticated without a password; `None` if the user does not exist or is
    /// locked.
    pub fn login_without_password(&self, name: &str) -> Option<Login> {
        let user = self.person(name).filter(|user| !user.locked)?;
        Some(Login { user: user.name.clone(), generation: user.generation, password: None })
    }

    /// Returns the login of a user or token that has logged in before, by its name; `None` if the login has ended
    /// meanwhile.
    pub fn login_again(&self, name: &str) -> Option<Login> {
        let acting = self.acting(name).filter(|user| !user.locked);
        acting.map(token::login_of).or_else(|| self.login_without_password(name))
    }

    /// Iterates over all local users, ordered by name.
    pub fn iter(&self) -> impl Iterator<Item = &User> {
        self.users.values()
    }

    /// Iterates over all users: local users, then external users, each ordered by name.
    pub fn all(&self) -> impl Iterator<Item = &User> {
        self.users.values().chain(self.external.values())
    }

    /// Returns true if there is a full administrator who can log in.
    pub fn have_administrator(&self) -> bool {
        let is_admin = |user: &User| user.all_roles().any(|(role, _)| role.kind == RoleKind::Admin);
        self.users.values().any(|user| !user.locked && is_admin(user))
    }

    /// Adds or replaces a group. Its users have its roles from now on.
    pub fn insert_group(&mut self, group: Group) {
        self.groups.insert(group.name.clone(), group);
        self.inherit();
    }

    /// Removes a group, also from its users. Returns the removed group.
    pub fn remove_group(&mut self, name: &str) -> Option<Group> {
        let removed = self.groups.remove(name)?;
        self.everybody().for_each(|user| user.groups.retain(|group| group != name));
        self.inherit();
        Some(removed)
    }

    fn everybody(&mut self) -> impl Iterator<Item = &mut User> {
        self.users.values_mut().chain(self.external.values_mut())
    }

    /// Returns the group with this name.
    pub fn group(&self, name: &str) -> Option<&Group> {
        self.groups.get(name)
    }

    /// Iterates over all groups, ordered by name.
    pub fn groups(&self) -> impl Iterator<Item = &Group> {
        self.groups.values()
    }

    /// Revokes all roles on the dropped `keyspace` and its parts, because a keyspace that is later created under the
    /// same name is a different one. Returns true if there were any.
    pub fn forget(&mut self, keyspace: Keyspace<'_>) -> bool {
        let users = self.users.values_mut().chain(self.external.values_mut());
        let users = users.flat_map(|user| {
            let scopes = user.tokens.iter_mut().filter_map(|token| token.scopes.as_mut());
            scopes.chain([&mut user.roles])
        });
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
        for user in self.users.values_mut().chain(self.external.values_mut()) {
            user.inherited = inherited(&user.groups, &self.groups);
        }
        self.refresh_tokens();
    }

    /// Checks a name and a password without hashing, so that the table of users need not stay locked meanwhile.
    ///
    /// HTTP Basic sends the password with each request, so a hash of a verified password, keyed by the process secret,
    /// is remembered. Checking a password that is not remembered always takes milliseconds, and takes as long for a
    /// name that does not exist.
    pub fn check(&self, name: &str, password: &str) -> Check {
        let hash = self.hash(password);
        let user = self.get(name).filter(|user| user.credentials.is_some());
        let login = user.filter(|user| !user.locked).map(login_of);
        if let (Some(user), Some(login)) = (user, &login)
            && user.has_seen(&hash)
        {
            return Check::Granted(login.clone());
        }
        let check = PasswordCheck {
            name: name.to_owned(),
            login,
            password: password.to_owned(),
            credentials: self.credentials(name),
            seen: user.map_or_else(Arc::default, |user| Arc::clone(&user.seen)),
            hash,
        };
        match user {
            Some(user) if user.name == INTERNAL => {
                check.run().map_or(Check::Denied, Check::Granted)
            }
            _ => Check::Hash(Box::new(check)),
        }
    }

    /// Returns the user if this is the password. Takes milliseconds unless the password is remembered. On threads that
    /// others wait for, use [`Users::check`].
    pub fn verify(&self, name: &str, password: &str) -> Option<&User> {
        let login = match self.check(name, password) {
            Check::Granted(login) => login,
            Check::Denied => return None,
            Check::Hash(check) => check.run()?,
        };
        self.get(&login.user)
    }

    fn hash(&self, password: &str) -> Vec<u8> {
        Hash::Sha256.hmac(&self.secret, &[b"password", password.as_bytes()])
    }

    /// Returns the stored form of the user's password, or a made-up one.
    pub(crate) fn credentials(&self, name: &str) -> Credentials {
        let known = self.get(name).and_then(|user| user.credentials.clone());
        known.unwrap_or_else(|| self.decoy(name))
    }

    /// Returns made-up credentials for a name that does not exist. While some users have a password with fewer rounds,
    /// such names get fewer rounds with the same probability, and always the same count for a name. Otherwise the count
    /// would reveal which names do not exist.
    fn decoy(&self, name: &str) -> Credentials {
        let draw = Hash::Sha256.hmac(&self.decoy_secret, &[b"iterations", name.as_bytes()]);
        let draw = u32::from_be_bytes([draw[0], draw[1], draw[2], draw[3]]);
        let count = self.users.len().max(1) as u64;
        let is_old = u64::from(draw) * count < (self.old_count as u64) << 32;
        let iterations = if is_old { ITERATIONS_BEFORE } else { ITERATIONS };
        Credentials::made_up(&self.decoy_secret, name, iterations)
    }
}

/// Returns the login of a user who has given the correct password.
pub(crate) fn login_of(user: &User) -> Login {
    Login {
        user: user.name.clone(),
        generation: user.generation,
        password: Some(user.password_generation),
    }
}

fn is_old(user: &User) -> bool {
    user.credentials.as_ref().is_some_and(|credentials| credentials.iterations() < ITERATIONS)
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
    use crate::Privilege;

    fn remembers(users: &Users, name: &str, password: &str) -> bool {
        matches!(users.check(name, password), Check::Granted(_))
    }

    fn users() -> Users {
        let mut users = Users::new([7; 32]);
        users.insert(User::new("ann", "secret", vec![Role::admin()], [1; SALT_BYTES]));
        users
    }

    #[test]
    fn only_the_right_password_of_a_known_user_passes() {
        let users = users();
        // Twice, to cover both the slow and the remembered path.
        for _ in 0..2 {
            assert!(users.verify("ann", "secret").is_some());
            assert!(users.verify("ann", "Secret").is_none());
            assert!(users.verify("ann", "").is_none());
            assert!(users.verify("bob", "secret").is_none());
        }
        assert!(remembers(&users, "ann", "secret"));
        assert!(!remembers(&users, "ann", "Secret") && !remembers(&users, "bob", "secret"));
    }

    #[test]
    fn a_changed_password_replaces_the_old_one() {
        let mut users = users();
        assert!(users.verify("ann", "secret").is_some());
        let mut ann = users.get("ann").unwrap().clone();
        ann.set_password("new", [2; SALT_BYTES]);
        users.insert(ann);
        assert!(!remembers(&users, "ann", "secret") && !remembers(&users, "ann", "new"));
        assert!(users.verify("ann", "secret").is_none());
        assert!(users.verify("ann", "new").is_some());
    }

    #[test]
    fn a_user_has_the_roles_of_groups_until_these_are_deleted() {
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
    fn a_user_with_a_right_within_a_keyspace_sees_only_that_it_exists() {
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
    fn other_nodes_have_all_rights_and_are_not_listed() {
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

    #[test]
    fn analytics_reads_documents_and_does_nothing_else() {
        let mut users = users();
        assert!(users.verify(ANALYTICS, &analytics_password("0123")).is_none());
        users.set_internal("0123", [3; SALT_BYTES]);
        assert!(users.verify(ANALYTICS, "0123").is_none(), "the secret of the nodes is another");
        let reader = users.verify(ANALYTICS, &analytics_password("0123")).unwrap();
        let bucket = Keyspace { bucket: Some("b"), ..Keyspace::default() };
        assert!(
            reader.may(Privilege::ReadData, bucket) && reader.may(Privilege::StreamData, bucket)
        );
        assert!(!reader.may(Privilege::WriteData, bucket));
        assert!(!reader.may(Privilege::ReadCluster, Keyspace::default()));
        assert!(users.person(ANALYTICS).is_none());
    }

    #[test]
    fn the_backup_service_makes_backups_and_administers_nothing() {
        let mut users = users();
        users.set_internal("0123", [3; SALT_BYTES]);
        assert!(users.verify(BACKUP, &analytics_password("0123")).is_none());
        let reader = users.verify(BACKUP, &backup_password("0123")).unwrap();
        let bucket = Keyspace { bucket: Some("b"), ..Keyspace::default() };
        assert!(
            reader.may(Privilege::Backup, Keyspace::default())
                && reader.may(Privilege::StreamData, bucket)
        );
        for privilege in
            [Privilege::AdministerCluster, Privilege::AdministerUsers, Privilege::AdministerBucket]
        {
            assert!(!reader.may(privilege, Keyspace::default()), "{privilege:?}");
        }
        assert!(users.person(BACKUP).is_none());
    }

    /// The stored form of the first release, which must remain readable.
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
    fn decoy_credentials_are_stable_and_indistinguishable() {
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
    fn roles_end_with_their_bucket_or_collection() {
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
