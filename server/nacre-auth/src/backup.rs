//! Export and import of users and groups.
//!
//! Source: `/settings/rbac/backup` of Couchbase 7.6, version 1 of its format. The record of a user contains the SCRAM
//! keys of the password, which are sufficient to verify a login. API tokens are not exported.

use crate::credentials::{Credentials, Salted, base64_text};
use crate::hash::Hash;
use crate::user::{Domain, Group, User};
use crate::users::Users;
use crate::{Keyspace, Refused, Role};
use serde::{Deserialize, Serialize};

/// Version of the format.
const VERSION: &str = "1";
/// Permitted rounds of PBKDF2 in a record. A login with the maximum takes about a tenth of a second.
const ITERATIONS: std::ops::RangeInclusive<u32> = 1..=1_000_000;
/// Maximum length of a salt in bytes.
const SALT_BYTES_MAX: usize = 1024;

/// Users and groups in serialisable form.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct UsersBackup {
    version: String,
    /// The initial administrator of the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    admin: Option<Administrator>,
    users: Vec<UserRecord>,
    groups: Vec<GroupRecord>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Administrator {
    id: String,
    auth: Auth,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct UserRecord {
    id: String,
    domain: Domain,
    #[serde(default)]
    groups: Vec<String>,
    #[serde(default)]
    roles: Vec<Role>,
    #[serde(default)]
    name: String,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    locked: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    auth: Option<Auth>,
}

/// The stored form of a password in serialisable form.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(try_from = "ScramKeys", into = "ScramKeys")]
struct Auth(Credentials);

#[derive(Clone, Serialize, Deserialize)]
struct ScramKeys {
    #[serde(rename = "scram-sha-512")]
    sha512: Mechanism,
    #[serde(rename = "scram-sha-256")]
    sha256: Mechanism,
    #[serde(rename = "scram-sha-1")]
    sha1: Mechanism,
}

#[derive(Clone, Serialize, Deserialize)]
struct Mechanism {
    #[serde(with = "base64_text")]
    salt: Vec<u8>,
    iterations: u32,
    /// Keys of the password. Couchbase writes more than one during a password rotation, the newest first.
    hashes: Vec<KeyPair>,
}

#[derive(Clone, Serialize, Deserialize)]
struct KeyPair {
    #[serde(with = "base64_text")]
    stored_key: Vec<u8>,
    #[serde(with = "base64_text")]
    server_key: Vec<u8>,
}

impl TryFrom<ScramKeys> for Auth {
    type Error = String;

    fn try_from(keys: ScramKeys) -> Result<Auth, String> {
        Ok(Auth(Credentials {
            sha1: keys.sha1.salted(Hash::Sha1)?,
            sha256: keys.sha256.salted(Hash::Sha256)?,
            sha512: keys.sha512.salted(Hash::Sha512)?,
        }))
    }
}

impl From<Auth> for ScramKeys {
    fn from(Auth(credentials): Auth) -> ScramKeys {
        let mechanism = |Salted { salt, iterations, stored_key, server_key }| Mechanism {
            salt,
            iterations,
            hashes: vec![KeyPair { stored_key, server_key }],
        };
        ScramKeys {
            sha512: mechanism(credentials.sha512),
            sha256: mechanism(credentials.sha256),
            sha1: mechanism(credentials.sha1),
        }
    }
}

impl Mechanism {
    fn salted(self, hash: Hash) -> Result<Salted, String> {
        let Mechanism { salt, iterations, hashes } = self;
        if !ITERATIONS.contains(&iterations) {
            let (least, most) = (ITERATIONS.start(), ITERATIONS.end());
            return Err(format!("iterations must be from {least} to {most}"));
        }
        if salt.len() > SALT_BYTES_MAX {
            return Err(format!("a salt must have at most {SALT_BYTES_MAX} bytes"));
        }
        let keys = hashes.into_iter().next().ok_or("a mechanism has no keys")?;
        let KeyPair { stored_key, server_key } = keys;
        if [&stored_key, &server_key].iter().any(|key| key.len() != hash.bytes()) {
            return Err(format!("a key of this mechanism must have {} bytes", hash.bytes()));
        }
        Ok(Salted { salt, iterations, stored_key, server_key })
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct GroupRecord {
    name: String,
    #[serde(default)]
    description: String,
    #[serde(default)]
    roles: Vec<Role>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ldap_group_ref: Option<String>,
}

/// A part of a backup of users.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackupPart<'a> {
    /// The initial administrator of the cluster.
    Administrator,
    /// Another user.
    User(Domain, &'a str),
    /// A group.
    Group(&'a str),
}

/// Users and groups that a change restores.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Restored {
    /// The administrator, if the backup has one.
    pub administrator: Option<User>,
    /// Other users.
    pub users: Vec<User>,
    /// Groups.
    pub groups: Vec<Group>,
    /// True to replace existing records of the same name.
    pub overwrite: bool,
    /// Time of the request, in seconds of Unix time.
    pub at: u64,
}

impl UsersBackup {
    /// Collects the parts that `is_wanted` selects. `administrator` is the name of the cluster's initial administrator.
    pub fn of(
        users: &Users,
        administrator: &str,
        is_wanted: impl Fn(BackupPart<'_>) -> bool,
    ) -> UsersBackup {
        let is_apart = |user: &User| user.domain == Domain::Local && user.name == administrator;
        let admin = users.person(administrator).filter(|_| is_wanted(BackupPart::Administrator));
        let admin = admin.and_then(|user| {
            Some(Administrator { id: user.name.clone(), auth: Auth(user.credentials()?.clone()) })
        });
        let record = |user: &User| UserRecord {
            id: user.name.clone(),
            domain: user.domain,
            groups: user.groups.clone(),
            roles: user.roles.clone(),
            name: user.display_name.clone(),
            locked: user.locked,
            auth: user.credentials().cloned().map(Auth),
        };
        let group = |group: &Group| GroupRecord {
            name: group.name.clone(),
            description: group.description.clone(),
            roles: group.roles.clone(),
            ldap_group_ref: group.ldap_group.clone(),
        };
        let wanted = users.all().filter(|user| !is_apart(user));
        let wanted = wanted.filter(|user| is_wanted(BackupPart::User(user.domain, &user.name)));
        let groups = users.groups().filter(|group| is_wanted(BackupPart::Group(&group.name)));
        UsersBackup {
            version: VERSION.to_owned(),
            admin,
            users: wanted.map(record).collect(),
            groups: groups.map(group).collect(),
        }
    }

    /// Converts a backup into the change that restores it.
    ///
    /// # Errors
    /// A sentence if the backup has another version, or a record that no cluster can have written.
    pub fn restored(self, overwrite: bool, at: u64) -> Result<Restored, String> {
        if self.version != VERSION {
            return Err(format!("version {:?} of the format is not known", self.version));
        }
        let user = |record: UserRecord| match (record.domain, &record.auth) {
            (Domain::Local, None) => Err(format!("user {:?} has no SCRAM keys", record.id)),
            (Domain::External, Some(_)) => {
                Err(format!("user {:?} of domain external has a password", record.id))
            }
            (domain, _) => {
                let mut user = User::with(&record.id, record.auth.map(|auth| auth.0), record.roles);
                (user.domain, user.display_name) = (domain, record.name);
                (user.groups, user.locked) = (record.groups, record.locked);
                Ok(user)
            }
        };
        let group = |record: GroupRecord| Group {
            name: record.name,
            description: record.description,
            roles: record.roles,
            ldap_group: record.ldap_group_ref,
        };
        Ok(Restored {
            administrator: self
                .admin
                .map(|admin| User::with(&admin.id, Some(admin.auth.0), vec![Role::admin()])),
            users: self.users.into_iter().map(user).collect::<Result<_, String>>()?,
            groups: self.groups.into_iter().map(group).collect(),
            overwrite,
            at,
        })
    }
}

impl Restored {
    /// Iterates over all users.
    pub fn users(&self) -> impl Iterator<Item = &User> {
        self.administrator.iter().chain(&self.users)
    }

    /// Restores users and groups. Omits roles on keyspaces for which `exists` returns false.
    ///
    /// # Errors
    /// [`Refused::ReservedName`], or [`Refused::GroupsNotFound`] if a user belongs to a group that exists neither here
    /// nor in the backup.
    pub(crate) fn apply_to(
        &self,
        users: &mut Users,
        exists: impl Fn(Keyspace<'_>) -> bool,
    ) -> Result<(), Refused> {
        let names = self.users().map(|user| &user.name);
        let mut names = names.chain(self.groups.iter().map(|group| &group.name));
        if names.any(|name| name.is_empty() || name.starts_with('@')) {
            return Err(Refused::ReservedName);
        }
        let is_known = |name: &String| {
            users.group(name).is_some() || self.groups.iter().any(|group| group.name == *name)
        };
        let missing = self.users().flat_map(|user| &user.groups).filter(|name| !is_known(name));
        let missing: Vec<&str> = missing.map(String::as_str).collect();
        if !missing.is_empty() {
            return Err(Refused::GroupsNotFound(missing.join(",")));
        }
        let kept =
            |roles: &[Role]| roles.iter().filter(|role| exists(role.keyspace())).cloned().collect();
        for group in &self.groups {
            if self.overwrite || users.group(&group.name).is_none() {
                users.insert_group(Group { roles: kept(&group.roles), ..group.clone() });
            }
        }
        for user in self.users() {
            if self.overwrite || users.of(user.domain, &user.name).is_none() {
                let mut user = User { roles: kept(&user.roles), ..user.clone() };
                let known = users.of(user.domain, &user.name);
                let same = known.filter(|known| known.credentials() == user.credentials());
                user.password_set_at = match (same, user.credentials()) {
                    (Some(known), _) => known.password_set_at,
                    (None, Some(_)) => Some(self.at),
                    (None, None) => None,
                };
                users.put(user);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Edit, Privilege, UserChange};
    use serde_json::{Value, json};

    fn users() -> Users {
        let mut users = Users::new([1; 32]);
        users.put(User::new("Administrator", "password", vec![Role::admin()], [1; 32]));
        users.insert_group(Group { roles: vec![role("ro_admin")], ..Group::new("auditors") });
        let mut ann = User::new("ann", "secret", vec![role("data_reader[travel]")], [2; 32]);
        ann.groups.push("auditors".to_owned());
        users.put(ann);
        let mut bob = User::with("bob", None, vec![role("admin")]);
        bob.domain = Domain::External;
        users.put(bob);
        users
    }

    fn role(text: &str) -> Role {
        text.parse().unwrap()
    }

    fn taken(users: &Users) -> Value {
        serde_json::to_value(UsersBackup::of(users, "Administrator", |_| true)).unwrap()
    }

    fn restore(users: &mut Users, backup: &Value, overwrite: bool) -> Result<(), Refused> {
        let backup: UsersBackup = serde_json::from_value(backup.clone()).unwrap();
        let edit = Edit::Restore(Box::new(backup.restored(overwrite, 7).unwrap()));
        users.apply(&UserChange { by: None, edit }, |_| true)
    }

    #[test]
    fn a_backup_of_users_is_restored_on_another_node() {
        let backup = taken(&users());
        let mut elsewhere = Users::new([9; 32]);
        restore(&mut elsewhere, &backup, false).unwrap();
        assert_eq!(taken(&elsewhere), backup);
        assert!(elsewhere.verify("ann", "secret").is_some());
        assert!(elsewhere.verify("ann", "Secret").is_none());
        let ann = elsewhere.person("ann").unwrap();
        assert_eq!((ann.password_set_at, ann.all_roles().count()), (Some(7), 2));
    }

    #[test]
    fn existing_records_are_replaced_on_request_only() {
        let backup = taken(&users());
        let mut changed = users();
        changed.put(User::new("ann", "other", vec![], [3; 32]));
        restore(&mut changed, &backup, false).unwrap();
        assert!(changed.verify("ann", "other").is_some());
        let login = changed.login_without_password("ann").unwrap();
        restore(&mut changed, &backup, true).unwrap();
        assert!(changed.verify("ann", "secret").is_some());
        assert!(changed.holder(&login).is_some(), "the user is the same");
    }

    #[test]
    fn only_a_full_administrator_restores_users() {
        for (kind, expected) in [
            ("admin", Ok(())),
            ("security_admin", Err(Refused::Forbidden(Privilege::AdministerAdministrators))),
            ("ro_admin", Err(Refused::Forbidden(Privilege::AdministerUsers))),
        ] {
            let mut users = users();
            users.put(User::new("sam", "secret", vec![role(kind)], [4; 32]));
            let backup = UsersBackup::of(&users, "Administrator", |_| true);
            let edit = Edit::Restore(Box::new(backup.restored(false, 7).unwrap()));
            let change = UserChange { by: users.login_without_password("sam"), edit };
            assert_eq!(users.apply(&change, |_| true), expected, "{kind}");
        }
    }

    #[test]
    fn an_invalid_record_is_refused_by_name() {
        let error = |change: &dyn Fn(&mut Value)| {
            let mut backup = taken(&users());
            change(&mut backup);
            match serde_json::from_value::<UsersBackup>(backup) {
                Err(error) => error.to_string(),
                Ok(backup) => match backup.restored(true, 0) {
                    Err(reason) => reason,
                    Ok(restored) => {
                        let edit = Edit::Restore(Box::new(restored));
                        let change = UserChange { by: None, edit };
                        Users::new([9; 32]).apply(&change, |_| true).unwrap_err().to_string()
                    }
                },
            }
        };
        let check = |expected: &str, change: &dyn Fn(&mut Value)| {
            let error = error(change);
            assert!(error.contains(expected), "{expected}: {error}");
        };
        check("version \"2\"", &|backup| backup["version"] = "2".into());
        check("no SCRAM keys", &|backup| {
            drop(backup["users"][0].as_object_mut().unwrap().remove("auth"))
        });
        check("has a password", &|backup| {
            backup["users"][1]["auth"] = backup["users"][0]["auth"].clone();
        });
        check("Groups do not exist", &|backup| backup["groups"] = json!([]));
        check("must not begin with @", &|backup| backup["users"][0]["id"] = "@nacre".into());
        check("kings", &|backup| backup["users"][0]["roles"][0] = "kings".into());
        check("iterations", &|backup| {
            backup["users"][0]["auth"]["scram-sha-256"]["iterations"] = 0.into();
        });
        check("32 bytes", &|backup| {
            backup["users"][0]["auth"]["scram-sha-256"]["hashes"][0]["stored_key"] = "AAAA".into();
        });
        check("no keys", &|backup| {
            backup["users"][0]["auth"]["scram-sha-256"]["hashes"] = json!([]);
        });
    }
}
