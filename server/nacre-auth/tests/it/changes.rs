//! Changes of users that are decided while another change is in progress.

use nacre_auth::{
    Credentials, Domain, Edit, Group, Keyspace, Login, Privilege, Refused, Role, SALT_BYTES, User,
    UserChange, UserEdit, Users,
};

fn roles(names: &str) -> Vec<Role> {
    names.split_whitespace().map(|name| name.parse().unwrap()).collect()
}

fn password(text: &str) -> Credentials {
    Credentials::derive(text, [5; SALT_BYTES])
}

/// Creates the full administrator `boss`, and `ann`, who is one too.
fn users() -> Users {
    let mut users = Users::new([7; 32]);
    users.put(User::new("boss", "password", roles("admin"), [1; SALT_BYTES]));
    users.put(User::new("ann", "secret", roles("admin"), [2; SALT_BYTES]));
    users
}

fn login(users: &Users, name: &str) -> Login {
    let user = users.get(name).unwrap();
    let password = Some(user.password_generation);
    Login { user: name.to_owned(), generation: user.generation, password }
}

fn apply(users: &mut Users, by: Option<&Login>, edit: Edit) -> Result<(), Refused> {
    users.apply(&UserChange { by: by.cloned(), edit }, |_| true)
}

fn edit(name: &str) -> UserEdit {
    UserEdit { name: name.to_owned(), ..UserEdit::default() }
}

fn remove(name: &str) -> Edit {
    Edit::RemoveUser { domain: Domain::Local, name: name.to_owned() }
}

/// Returns the password change that `by` requested earlier, whose hashing took a while.
fn own_password(by: &Login) -> Edit {
    Edit::OwnPassword { credentials: password("new"), replaces: by.password.unwrap(), at: 9 }
}

#[test]
fn changing_ones_own_password_keeps_a_revocation() {
    let mut users = users();
    let (boss, ann) = (login(&users, "boss"), login(&users, "ann"));
    let revoke = Edit::User(UserEdit { roles: Some(Vec::new()), ..edit("ann") });
    apply(&mut users, Some(&boss), revoke).unwrap();
    apply(&mut users, Some(&ann), own_password(&ann)).unwrap();
    assert!(users.get("ann").unwrap().roles.is_empty());
    assert!(users.verify("ann", "new").is_some());
    assert_eq!(users.get("ann").unwrap().password_set_at, Some(9));
}

#[test]
fn changing_ones_own_password_does_not_recreate_a_deleted_user() {
    let mut users = users();
    let (boss, ann) = (login(&users, "boss"), login(&users, "ann"));
    apply(&mut users, Some(&boss), remove("ann")).unwrap();
    let late = apply(&mut users, Some(&ann), own_password(&ann));
    assert_eq!(late, Err(Refused::LoginEnded));
    assert!(users.get("ann").is_none());
    // A later user of the same name is not affected.
    let creates = UserEdit { creates: true, credentials: Some(password("hers")), ..edit("ann") };
    apply(&mut users, Some(&boss), Edit::User(creates)).unwrap();
    assert_eq!(apply(&mut users, Some(&ann), own_password(&ann)), Err(Refused::LoginEnded));
    assert!(users.verify("ann", "hers").is_some() && users.holder(&ann).is_none());
}

#[test]
fn changing_ones_own_password_does_not_undo_a_reset() {
    let mut users = users();
    let (boss, ann) = (login(&users, "boss"), login(&users, "ann"));
    let by_certificate = Login { password: None, ..ann.clone() };
    let reset = UserEdit { credentials: Some(password("reset")), ..edit("ann") };
    apply(&mut users, Some(&boss), Edit::User(reset)).unwrap();
    for by in [&ann, &by_certificate] {
        let late = apply(&mut users, Some(by), own_password(&ann));
        assert_eq!(late, Err(Refused::LoginEnded), "{by:?}");
    }
    assert!(users.verify("ann", "reset").is_some() && users.verify("ann", "new").is_none());
    assert!(users.holder(&ann).is_none() && users.holder(&by_certificate).is_some());
}

#[test]
fn an_administrator_who_was_demoted_makes_no_more_changes() {
    let mut users = users();
    let (boss, ann) = (login(&users, "boss"), login(&users, "ann"));
    let back = Edit::User(UserEdit { roles: Some(roles("admin")), ..edit("ann") });
    let revoke = Edit::User(UserEdit { roles: Some(Vec::new()), ..edit("ann") });
    apply(&mut users, Some(&boss), revoke).unwrap();
    let late = apply(&mut users, Some(&ann), back.clone());
    assert_eq!(late, Err(Refused::Forbidden(Privilege::AdministerUsers)));
    let lock =
        Edit::User(UserEdit { locked: Some(true), roles: Some(roles("admin")), ..edit("ann") });
    apply(&mut users, Some(&boss), lock).unwrap();
    assert_eq!(apply(&mut users, Some(&ann), back), Err(Refused::LoginEnded));
}

#[test]
fn a_security_administrator_cannot_change_a_user_who_became_an_administrator_meanwhile() {
    let mut users = users();
    users.put(User::new("sec", "password", roles("security_admin"), [3; SALT_BYTES]));
    users.put(User::new("bob", "password", Vec::new(), [4; SALT_BYTES]));
    let sec = login(&users, "sec");
    let reset =
        Edit::User(UserEdit { credentials: Some(password("mine")), groups: None, ..edit("bob") });
    users.permit(&UserChange { by: Some(sec.clone()), edit: reset.clone() }).unwrap();
    let group = Group {
        name: "bosses".into(),
        description: String::new(),
        roles: roles("admin"),
        ldap_group: None,
    };
    apply(&mut users, None, Edit::PutGroup(group)).unwrap();
    let joins = UserEdit { groups: Some(vec!["bosses".into()]), ..edit("bob") };
    apply(&mut users, None, Edit::User(joins.clone())).unwrap();
    let top = Err(Refused::Forbidden(Privilege::AdministerAdministrators));
    assert_eq!(apply(&mut users, Some(&sec), reset), top);
    let joins = Edit::User(UserEdit { name: "carl".into(), creates: true, ..joins });
    assert_eq!(apply(&mut users, Some(&sec), joins), top, "nor let anybody join the group");
}

#[test]
fn a_change_of_some_fields_leaves_the_others() {
    let mut users = users();
    let fields = UserEdit {
        display_name: Some("Ann".into()),
        roles: Some(roles("ro_admin")),
        ..edit("ann")
    };
    apply(&mut users, None, Edit::User(fields)).unwrap();
    let ann = login(&users, "ann");
    let lock = |locked| Edit::User(UserEdit { locked: Some(locked), ..edit("ann") });
    apply(&mut users, None, lock(true)).unwrap();
    assert!(users.verify("ann", "secret").is_none() && users.holder(&ann).is_none());
    apply(&mut users, None, lock(false)).unwrap();
    assert!(users.verify("ann", "secret").is_some() && users.holder(&ann).is_some());
    let user = users.get("ann").unwrap();
    assert_eq!((user.display_name.as_str(), user.roles.clone()), ("Ann", roles("ro_admin")));
}

#[test]
fn invalid_changes_are_refused_with_nothing_changed() {
    let mut users = users();
    let creates = |name: &str| UserEdit { creates: true, ..edit(name) };
    let external = UserEdit { domain: Domain::External, ..creates("eve") };
    for (refused, edit) in [
        (Refused::PasswordRequired, creates("eve")),
        (Refused::UserNotFound("eve".into()), edit("eve")),
        (Refused::ReservedName, UserEdit { credentials: Some(password("x")), ..creates("@nacre") }),
        (Refused::PasswordNotAllowed, UserEdit { credentials: Some(password("x")), ..external }),
        (
            Refused::GroupsNotFound("a,b".into()),
            UserEdit { groups: Some(vec!["a".into(), "b".into()]), ..edit("ann") },
        ),
    ] {
        assert_eq!(apply(&mut users, None, Edit::User(edit)), Err(refused));
    }
    assert_eq!(apply(&mut users, None, remove("eve")), Err(Refused::UserNotFound("eve".into())));
    let group = Edit::RemoveGroup("g".into());
    assert_eq!(apply(&mut users, None, group), Err(Refused::GroupNotFound("g".into())));
    assert_eq!(users.all().count(), 2);
}

#[test]
fn roles_on_dropped_keyspaces_are_omitted() {
    let mut users = users();
    let fields = UserEdit { roles: Some(roles("data_reader[a] data_reader[b]")), ..edit("ann") };
    let there = |place: Keyspace<'_>| place.bucket != Some("a");
    users.apply(&UserChange { by: None, edit: Edit::User(fields) }, there).unwrap();
    assert_eq!(users.get("ann").unwrap().roles, roles("data_reader[b]"));
}

#[test]
fn an_external_user_has_roles_and_no_login() {
    let mut users = users();
    let external = UserEdit {
        domain: Domain::External,
        creates: true,
        roles: Some(roles("admin")),
        ..edit("ann")
    };
    apply(&mut users, None, Edit::User(external)).unwrap();
    let remove = Edit::RemoveUser { domain: Domain::Local, name: "ann".into() };
    apply(&mut users, None, remove).unwrap();
    assert!(users.verify("ann", "secret").is_none() && users.verify("ann", "").is_none());
    assert!(users.get("ann").is_none() && users.login_without_password("ann").is_none());
    assert!(users.of(Domain::External, "ann").is_some());
    apply(&mut users, None, Edit::RemoveUser { domain: Domain::Local, name: "boss".into() })
        .unwrap();
    assert!(!users.have_administrator(), "who cannot log in administers nothing");
}

#[test]
fn generations_are_never_assigned_twice_and_survive_the_records() {
    let mut users = users();
    let mut seen = Vec::new();
    for round in 0..3 {
        let fields = UserEdit { creates: true, credentials: Some(password("x")), ..edit("eve") };
        apply(&mut users, None, Edit::User(fields)).unwrap();
        let eve = users.get("eve").unwrap();
        seen.extend([eve.generation, eve.password_generation]);
        apply(&mut users, None, remove("eve")).unwrap();
        // As after a restart: the records and the last generation are stored.
        let mut again = Users::new([round; 32]);
        users.all().cloned().for_each(|user| drop(again.insert(user)));
        again.skip_generations(users.last_generation());
        users = again;
    }
    let mut sorted = seen.clone();
    sorted.sort_unstable();
    sorted.dedup();
    assert_eq!(sorted.len(), seen.len(), "{seen:?}");
}

fn grant(names: &str, users: &[&str], groups: &[&str], revoke: bool) -> Edit {
    let texts = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    Edit::Grant { roles: roles(names), users: texts(users), groups: texts(groups), revoke }
}

#[test]
fn roles_are_granted_to_all_users_or_to_none() {
    let mut users = users();
    apply(&mut users, None, Edit::PutGroup(Group::new("g"))).unwrap();
    let missing = grant("data_reader[b]", &["ann", "eve"], &["g"], false);
    assert_eq!(apply(&mut users, None, missing), Err(Refused::UserNotFound("eve".into())));
    assert_eq!(users.get("ann").unwrap().roles, roles("admin"));
    apply(&mut users, None, grant("data_reader[b] admin", &["ann"], &["g"], false)).unwrap();
    assert_eq!(users.get("ann").unwrap().roles, roles("admin data_reader[b]"));
    assert_eq!(users.group("g").unwrap().roles, roles("data_reader[b] admin"));
    apply(&mut users, None, grant("admin", &["ann"], &["g"], true)).unwrap();
    assert_eq!(users.get("ann").unwrap().roles, roles("data_reader[b]"));
    assert_eq!(users.group("g").unwrap().roles, roles("data_reader[b]"));
}

#[test]
fn existing_users_are_not_created() {
    let mut users = users();
    let ann =
        UserEdit { creates: true, is_new: true, credentials: Some(password("x")), ..edit("ann") };
    let exists = Err(Refused::UserExists("ann".into()));
    assert_eq!(apply(&mut users, None, Edit::User(ann)), exists);
    assert!(users.verify("ann", "secret").is_some());
    let group = |is_new, description: Option<&str>| Edit::Group {
        name: "g".into(),
        is_new,
        description: description.map(str::to_owned),
        roles: is_new.then(|| roles("data_reader[b]")),
    };
    assert_eq!(
        apply(&mut users, None, group(false, None)),
        Err(Refused::GroupNotFound("g".into()))
    );
    apply(&mut users, None, group(true, None)).unwrap();
    assert_eq!(apply(&mut users, None, group(true, None)), Err(Refused::GroupExists("g".into())));
    apply(&mut users, None, group(false, Some("text"))).unwrap();
    let known = users.group("g").unwrap();
    assert_eq!((known.description.as_str(), known.roles.len()), ("text", 1));
}
