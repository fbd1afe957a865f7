//! The rights on documents that the owner of a deployment needs, and whether the owner still has them.
//!
//! A deployment acts without a user: it reads its source, and the documents that it was granted. Its deployer could
//! read and write these through it, and therefore needs the same rights, both at the deployment and as long as it
//! runs. A deployment whose owner was deleted or has lost a role is held: it is paused until the owner has the role
//! again, or another user becomes its owner.

use nacre_auth::{Keyspace, Privilege, User, Users};
use nacre_cluster::Source;
use nacre_sandbox::{Grants, KeyspaceGrant};

/// A privilege on a part of the data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Need {
    /// The privilege.
    pub privilege: Privilege,
    bucket: String,
    scope: Option<String>,
    collection: Option<String>,
}

impl Need {
    fn new(privilege: Privilege, source: &Source) -> Need {
        let Source { bucket, scope, collection } = source.clone();
        Need { privilege, bucket, scope, collection }
    }

    /// The part of the data.
    pub fn keyspace(&self) -> Keyspace<'_> {
        Keyspace {
            bucket: Some(&self.bucket),
            scope: self.scope.as_deref(),
            collection: self.collection.as_deref(),
        }
    }

    /// Returns the narrowest role that permits it, as text: `data_reader[travel:inventory]`.
    pub fn role(&self) -> String {
        let kind = match self.privilege {
            Privilege::WriteData => "data_writer",
            Privilege::StreamData => "data_dcp_reader",
            _ => "data_reader",
        };
        let names = [Some(&self.bucket), self.scope.as_ref(), self.collection.as_ref()];
        let names: Vec<&str> = names.into_iter().flatten().map(String::as_str).collect();
        format!("{kind}[{}]", names.join(":"))
    }
}

/// Returns the rights for a deployment that reads `source` and has `grants`.
pub fn needs(source: &Source, grants: &Grants) -> Vec<Need> {
    let mut needs = reading(source, grants);
    needs.push(Need::new(Privilege::StreamData, source));
    let writes = grants.kv.iter().filter(|grant| grant.write);
    needs.extend(writes.map(|grant| Need::new(Privilege::WriteData, &place(grant, source))));
    needs
}

/// Returns the rights to read what a deployment with `source` and `grants` can read.
pub fn reading(source: &Source, grants: &Grants) -> Vec<Need> {
    let granted = grants.kv.iter().map(|grant| place(grant, source));
    let places = std::iter::once(source.clone()).chain(granted);
    places.map(|place| Need::new(Privilege::ReadData, &place)).collect()
}

/// Returns the rights for a conflict resolver of a bucket: it sees both versions, and decides which one is stored.
pub fn resolving(source: &Source) -> Vec<Need> {
    [Privilege::ReadData, Privilege::WriteData].map(|privilege| Need::new(privilege, source)).into()
}

/// Returns the first of the needs that a user lacks.
pub fn lacking<'n>(user: &User, needs: &'n [Need]) -> Option<&'n Need> {
    needs.iter().find(|need| !user.may(need.privilege, need.keyspace()))
}

/// Returns why a deployment with these needs is held; `None` if its owner has the rights. Users with the privilege
/// `bypass` have them, regardless of their roles on data. Deployments from before owners were recorded have no owner,
/// and are not held.
pub(super) fn hold(
    users: &Users,
    owner: &str,
    needs: &[Need],
    bypass: Option<Privilege>,
) -> Option<String> {
    let next = "resume it to become its owner";
    if owner.is_empty() {
        return None;
    }
    let Some(user) = users.get(owner) else {
        return Some(format!("its owner {owner:?} is not a user any more: {next}"));
    };
    if bypass.is_some_and(|privilege| user.may(privilege, Keyspace::default())) {
        return None;
    }
    let need = lacking(user, needs)?;
    Some(format!("its owner {owner:?} lacks the role {}: grant it, or {next}", need.role()))
}

/// Returns the part of the data that a grant names, relative to a source.
fn place(grant: &KeyspaceGrant, source: &Source) -> Source {
    let mut names = grant.keyspace.rsplitn(3, '.');
    let (last, scope, bucket) = (names.next(), names.next(), names.next());
    let named = |name: Option<&str>| name.filter(|name| *name != "*").map(str::to_owned);
    match scope {
        Some(_) => Source {
            bucket: bucket.unwrap_or(&source.bucket).to_owned(),
            scope: named(scope),
            collection: named(last),
        },
        // `*` alone means all of the deployment's bucket.
        None => Source { bucket: source.bucket.clone(), scope: named(last), collection: None },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_auth::Role;

    fn source(scope: Option<&str>, collection: Option<&str>) -> Source {
        let [scope, collection] = [scope, collection].map(|name| name.map(str::to_owned));
        Source { bucket: "b".into(), scope, collection }
    }

    fn grants(grants: &[(&str, bool)]) -> Grants {
        let grant = |(keyspace, write): &(&str, bool)| KeyspaceGrant {
            keyspace: (*keyspace).to_owned(),
            write: *write,
        };
        Grants { kv: grants.iter().map(grant).collect(), ..Grants::own() }
    }

    fn user(roles: &[&str]) -> User {
        let roles: Vec<Role> = roles.iter().map(|role| role.parse().unwrap()).collect();
        User::new("ann", "secret", roles, [1; 32])
    }

    #[test]
    fn a_deployment_needs_the_roles_for_its_source_and_its_grants() {
        let roles = |source: &Source, granted: &[(&str, bool)]| {
            needs(source, &grants(granted)).iter().map(Need::role).collect::<Vec<_>>().join(" ")
        };
        let granted = [("s.c", false), ("s.*", true), ("x.y.s.c", true), ("o.*.*", false)];
        assert_eq!(
            roles(&source(Some("s"), Some("c")), &granted),
            "data_reader[b:s:c] data_reader[b:s:c] data_reader[b:s] data_reader[x.y:s:c] data_reader[o] data_dcp_reader[b:s:c] data_writer[b:s] data_writer[x.y:s:c]"
        );
        assert_eq!(
            roles(&source(None, None), &[("*", true)]),
            "data_reader[b] data_reader[b] data_dcp_reader[b] data_writer[b]"
        );
    }

    #[test]
    fn a_deployment_is_held_while_its_owner_lacks_its_rights() {
        let needs = needs(&source(None, None), &grants(&[("s.c", true)]));
        let mut users = Users::new([2; 32]);
        let held = |users: &Users, owner: &str| hold(users, owner, &needs, None);
        assert_eq!(held(&users, ""), None, "from before there were owners");
        assert!(held(&users, "ann").unwrap().contains("not a user"));
        users.insert(user(&["data_dcp_reader[b]"]));
        assert!(held(&users, "ann").unwrap().contains("data_writer[b:s:c]"));
        users.insert(user(&["data_dcp_reader[b:s]", "data_writer[b:s:c]"]));
        assert!(held(&users, "ann").unwrap().contains("data_reader[b]"));
        users.insert(user(&["data_dcp_reader[b]", "data_writer[b:s:c]"]));
        assert_eq!(held(&users, "ann"), None);
        users.insert(user(&["eventing_admin"]));
        assert!(held(&users, "ann").is_some());
        let bypass = Some(Privilege::AdministerEventing);
        assert_eq!(hold(&users, "ann", &needs, bypass), None);
    }
}
