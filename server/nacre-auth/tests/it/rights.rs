//! Tests every role against every change of users.

use nacre_auth::{
    Credentials, Domain, Edit, Group, Login, Refused, Role, RoleKind, SALT_BYTES, User, UserChange,
    UserEdit, Users,
};
use std::collections::BTreeSet;

/// Roles that may change users of each domain, and groups. Repeated here so that a change must be intentional.
const LOCAL: &str = "admin security_admin security_admin_local";
const EXTERNAL: &str = "admin security_admin security_admin_external";
/// Roles that may grant roles of administrators and change users who have them.
const TOP: &str = "admin";
/// The roles of administrators.
const PROTECTED: &str =
    "admin ro_admin security_admin security_admin_local security_admin_external";

fn is_in(list: &str, kind: RoleKind) -> bool {
    list.split(' ').any(|name| name == kind.name())
}

fn role(kind: RoleKind) -> Role {
    let names = ["", "[b]", "[b:s]", "[b:s:c]"][kind.level()];
    format!("{}{names}", kind.name()).parse().unwrap()
}

fn group(name: &str, roles: Vec<Role>) -> Group {
    Group { name: name.to_owned(), description: String::new(), roles, ldap_group: None }
}

/// Creates a user and a group for each role, and a user in each group; in both domains.
fn everybody() -> Users {
    let mut users = Users::new([7; 32]);
    let template = User::new("template", "password", Vec::new(), [1; SALT_BYTES]);
    for kind in RoleKind::ALL {
        users.insert_group(group(&format!("group-{}", kind.name()), vec![role(*kind)]));
        for domain in Domain::ALL {
            let mut own = template.clone();
            own.domain = domain;
            own.name = format!("own-{}", kind.name());
            own.roles = vec![role(*kind)];
            let mut member = template.clone();
            member.domain = domain;
            member.name = format!("member-{}", kind.name());
            member.groups = vec![format!("group-{}", kind.name())];
            users.put(own);
            users.put(member);
        }
    }
    users.put(template);
    users
}

/// A change of a role, or of a user or group that has it.
#[derive(Clone, Copy, Debug)]
enum Operation {
    CreateWithRole,
    CreateInGroup,
    GrantRole,
    JoinGroup,
    RevokeAll,
    ResetPassword,
    Rename,
    Lock,
    Remove,
    RemoveMember,
    LockMember,
    PutGroup,
    EmptyGroup,
    RemoveGroup,
    CreateGroup,
    DescribeGroup,
    Grant,
    GrantToGroup,
    RevokeFrom,
}

const OPERATIONS: [Operation; 19] = [
    Operation::CreateWithRole,
    Operation::CreateInGroup,
    Operation::GrantRole,
    Operation::JoinGroup,
    Operation::RevokeAll,
    Operation::ResetPassword,
    Operation::Rename,
    Operation::Lock,
    Operation::Remove,
    Operation::RemoveMember,
    Operation::LockMember,
    Operation::PutGroup,
    Operation::EmptyGroup,
    Operation::RemoveGroup,
    Operation::CreateGroup,
    Operation::DescribeGroup,
    Operation::Grant,
    Operation::GrantToGroup,
    Operation::RevokeFrom,
];

impl Operation {
    /// Returns true for operations that do not belong to one domain.
    fn is_of_groups(self) -> bool {
        use Operation::*;
        matches!(
            self,
            PutGroup
                | EmptyGroup
                | RemoveGroup
                | CreateGroup
                | DescribeGroup
                | Grant
                | GrantToGroup
                | RevokeFrom
        )
    }

    fn edit(self, domain: Domain, kind: RoleKind, credentials: &Credentials) -> Edit {
        let (own, member) = (format!("own-{}", kind.name()), format!("member-{}", kind.name()));
        let of_group = format!("group-{}", kind.name());
        let edit = |name: &str| UserEdit { domain, name: name.to_owned(), ..UserEdit::default() };
        let password = (domain == Domain::Local).then(|| credentials.clone());
        let new = || UserEdit { creates: true, credentials: password.clone(), ..edit("new") };
        Edit::User(match self {
            Operation::CreateWithRole => UserEdit { roles: Some(vec![role(kind)]), ..new() },
            Operation::CreateInGroup => UserEdit { groups: Some(vec![of_group]), ..new() },
            Operation::GrantRole => {
                UserEdit { roles: Some(vec![role(kind)]), ..edit("own-data_reader") }
            }
            Operation::JoinGroup => {
                UserEdit { groups: Some(vec![of_group]), ..edit("own-data_reader") }
            }
            Operation::RevokeAll => UserEdit { roles: Some(Vec::new()), ..edit(&own) },
            Operation::ResetPassword => UserEdit { credentials: password, ..edit(&own) },
            Operation::Rename => UserEdit { display_name: Some("x".into()), ..edit(&own) },
            Operation::Lock => UserEdit { locked: Some(true), ..edit(&own) },
            Operation::LockMember => UserEdit { locked: Some(true), ..edit(&member) },
            Operation::Remove => return Edit::RemoveUser { domain, name: own },
            Operation::RemoveMember => return Edit::RemoveUser { domain, name: member },
            Operation::PutGroup => return Edit::PutGroup(group("new", vec![role(kind)])),
            Operation::EmptyGroup => return Edit::PutGroup(group(&of_group, Vec::new())),
            Operation::RemoveGroup => return Edit::RemoveGroup(of_group),
            Operation::CreateGroup | Operation::DescribeGroup => {
                let is_new = matches!(self, Operation::CreateGroup);
                let name = if is_new { "new".to_owned() } else { of_group };
                let roles = is_new.then(|| vec![role(kind)]);
                return Edit::Group { name, is_new, description: Some("x".into()), roles };
            }
            Operation::Grant => return grant(role(kind), Some("own-data_reader"), None, false),
            Operation::GrantToGroup => {
                return grant(role(kind), None, Some("group-data_reader"), false);
            }
            Operation::RevokeFrom => {
                return grant(role(RoleKind::DataReader), Some(&own), Some(&of_group), true);
            }
        })
    }
}

fn grant(role: Role, user: Option<&str>, group: Option<&str>, revoke: bool) -> Edit {
    let names = |name: Option<&str>| name.into_iter().map(str::to_owned).collect();
    Edit::Grant { roles: vec![role], users: names(user), groups: names(group), revoke }
}

/// Returns a login of the local user with this name.
fn login(users: &Users, name: &str) -> Login {
    users.login_without_password(name).unwrap()
}

#[test]
fn every_change_of_users_is_allowed_only_to_the_roles_of_the_table() {
    let users = everybody();
    let credentials = Credentials::derive("password", [2; SALT_BYTES]);
    let mut cells = 0;
    for by in RoleKind::ALL {
        // A role counts the same whether a user has it directly or through a group.
        let askers = ["own", "member"].map(|how| login(&users, &format!("{how}-{}", by.name())));
        for domain in Domain::ALL {
            let list = if domain == Domain::Local { LOCAL } else { EXTERNAL };
            for operation in OPERATIONS {
                if operation.is_of_groups() && domain == Domain::External {
                    continue;
                }
                for kind in RoleKind::ALL {
                    let allowed = is_in(list, *by) && (is_in(TOP, *by) || !is_in(PROTECTED, *kind));
                    let edit = operation.edit(domain, *kind, &credentials);
                    for asker in &askers {
                        let change = UserChange { by: Some(asker.clone()), edit: edit.clone() };
                        let outcome = users.permit(&change);
                        assert_eq!(
                            outcome.is_ok(),
                            allowed,
                            "{} does {operation:?} with {} in {domain:?}: {outcome:?}",
                            asker.user,
                            kind.name()
                        );
                        assert!(allowed || matches!(outcome, Err(Refused::Forbidden(_))));
                        cells += 1;
                    }
                }
            }
        }
    }
    let expected = RoleKind::ALL.len().pow(2) * 2 * (19 + 11);
    assert_eq!(cells, expected, "each role, asked for by each role, in each operation");
    assert!(cells > 100_000, "{cells} cells");
}

#[test]
fn every_user_can_change_their_own_password_and_nothing_else() {
    let mut users = everybody();
    let credentials = Credentials::derive("password", [2; SALT_BYTES]);
    for kind in RoleKind::ALL {
        let by = login(&users, &format!("own-{}", kind.name()));
        let before = users.get(&by.user).unwrap().clone();
        let replaces = before.password_generation;
        let edit = Edit::OwnPassword { credentials: credentials.clone(), replaces, at: 1 };
        users.apply(&UserChange { by: Some(by.clone()), edit }, |_| true).unwrap();
        let after = users.get(&by.user).unwrap();
        assert!(after.password_generation > replaces);
        assert_eq!((&after.roles, &after.groups), (&before.roles, &before.groups));
    }
}

#[test]
fn the_names_in_the_table_are_roles() {
    let known: BTreeSet<&str> = RoleKind::ALL.iter().map(|kind| kind.name()).collect();
    for name in [LOCAL, EXTERNAL, TOP, PROTECTED].iter().flat_map(|list| list.split(' ')) {
        assert!(known.contains(name), "{name}");
    }
}
