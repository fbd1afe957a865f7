//! API tokens: their rights, and the end of their rights.

use nacre_auth::{
    ApiToken, Credentials, Domain, Edit, Group, Keyspace, Login, Privilege, Refused, Role,
    SALT_BYTES, User, UserChange, UserEdit, Users,
};

const NOW_S: u64 = 1_000_000;

fn roles(text: &str) -> Vec<Role> {
    text.split_whitespace().map(|role| role.parse().unwrap()).collect()
}

fn users(of_ann: &str) -> Users {
    let mut users = Users::new([7; 32]);
    for (name, of) in [("ann", of_ann), ("boss", "admin")] {
        let user = User::new(name, "secret", roles(of), [1; SALT_BYTES]);
        users.put(user);
    }
    users
}

fn by_password(users: &Users, name: &str) -> Login {
    let user = users.get(name).unwrap();
    let (generation, password) = (user.generation, Some(user.password_generation));
    Login { user: name.to_owned(), generation, password }
}

fn apply(users: &mut Users, by: Option<&Login>, edit: Edit) -> Result<(), Refused> {
    users.apply(&UserChange { by: by.cloned(), edit }, |_| true)
}

/// Creates a numbered token for ann. Returns its text.
fn create(users: &mut Users, number: u8, scopes: Option<&str>) -> Result<String, Refused> {
    let login = by_password(users, "ann");
    let times = [NOW_S, NOW_S + 100];
    let (token, text) = ApiToken::new("ci", scopes.map(roles), times, &[number; 40]);
    apply(users, Some(&login), Edit::CreateToken(token)).map(|()| text)
}

fn place(bucket: &str) -> Keyspace<'_> {
    Keyspace { bucket: Some(bucket), scope: Some("_default"), collection: Some("_default") }
}

fn may(users: &Users, text: &str, privilege: Privilege, bucket: &str) -> bool {
    let login = users.login_by_token(text, NOW_S);
    let holder = login.as_ref().and_then(|login| users.holder(login));
    holder.is_some_and(|user| user.may(privilege, place(bucket)))
}

#[test]
fn a_token_has_the_rights_that_both_its_user_and_its_scopes_have() {
    let mut users = users("data_reader[a] data_writer[a] data_reader[b]");
    let all = create(&mut users, 1, None).unwrap();
    let reads = create(&mut users, 2, Some("data_reader[*]")).unwrap();
    let more = create(&mut users, 3, Some("admin")).unwrap();
    let other = create(&mut users, 4, Some("data_reader[c]")).unwrap();
    let none = create(&mut users, 5, Some("")).unwrap();
    let (read, write) = (Privilege::ReadData, Privilege::WriteData);
    for (text, privilege, bucket, expected) in [
        (&all, read, "a", true),
        (&all, write, "a", true),
        (&all, write, "b", false),
        (&reads, read, "a", true),
        (&reads, read, "b", true),
        (&reads, read, "c", false),
        (&reads, write, "a", false),
        (&more, write, "a", true),
        (&more, write, "b", false),
        (&more, Privilege::AdministerCluster, "a", false),
        (&other, read, "a", false),
        (&other, read, "c", false),
        (&none, read, "a", false),
    ] {
        assert_eq!(may(&users, text, privilege, bucket), expected, "{privilege:?} {bucket}");
    }
    let name = users.login_by_token(&reads, NOW_S).unwrap().user;
    assert_eq!(name, "ann/0202020202020202");
    let acting = users.get(&name).unwrap();
    assert!(acting.may_within(read, "a") && !acting.may_within(write, "a"));
    assert!(!acting.is_privileged() && acting.may_open("a"));
    assert_eq!(users.login_again(&name).as_ref(), users.login_by_token(&reads, NOW_S).as_ref());
    assert!(users.login_without_password(&name).is_none(), "a certificate is no token");
    assert!(users.verify(&name, "secret").is_none(), "nor is a password");
}

#[test]
fn roles_of_different_collections_have_nothing_in_common_within_a_bucket() {
    let mut users = users("data_reader[a:s:one]");
    let text = create(&mut users, 1, Some("data_reader[a:s:two]")).unwrap();
    let login = users.login_by_token(&text, NOW_S).unwrap();
    assert!(!users.holder(&login).unwrap().may_within(Privilege::ReadData, "a"));
    let text = create(&mut users, 2, Some("data_reader[a]")).unwrap();
    let login = users.login_by_token(&text, NOW_S).unwrap();
    assert!(users.holder(&login).unwrap().may_within(Privilege::ReadData, "a"));
}

#[test]
fn changed_rights_of_a_user_apply_to_tokens_immediately() {
    let mut users = users("data_reader[a]");
    let text = create(&mut users, 1, Some("data_reader[*]")).unwrap();
    let edit = |fields: UserEdit| {
        Edit::User(UserEdit { domain: Domain::Local, name: "ann".into(), ..fields })
    };
    let with = |text: &str| UserEdit { roles: Some(roles(text)), ..UserEdit::default() };
    apply(&mut users, None, edit(with("data_reader[b]"))).unwrap();
    assert!(!may(&users, &text, Privilege::ReadData, "a"));
    assert!(may(&users, &text, Privilege::ReadData, "b"));
    let mut group = Group::new("readers");
    group.roles = roles("data_reader[a]");
    users.insert_group(group);
    let joins = UserEdit { groups: Some(vec!["readers".into()]), ..UserEdit::default() };
    apply(&mut users, None, edit(joins)).unwrap();
    assert!(may(&users, &text, Privilege::ReadData, "a"));
    apply(&mut users, None, Edit::RemoveGroup("readers".into())).unwrap();
    assert!(!may(&users, &text, Privilege::ReadData, "a"));
    let locks = |locked| UserEdit { locked: Some(locked), ..UserEdit::default() };
    apply(&mut users, None, edit(locks(true))).unwrap();
    assert!(users.login_by_token(&text, NOW_S).is_none());
    apply(&mut users, None, edit(locks(false))).unwrap();
    assert!(may(&users, &text, Privilege::ReadData, "b"));
}

#[test]
fn a_token_ends_with_its_time_its_user_and_its_revocation() {
    let mut users = users("data_reader[*]");
    let text = create(&mut users, 1, None).unwrap();
    assert!(users.login_by_token(&text, NOW_S + 99).is_some());
    assert!(users.login_by_token(&text, NOW_S + 100).is_none());

    let login = users.login_by_token(&text, NOW_S).unwrap();
    assert_eq!(users.next_token_end(), Some(NOW_S + 100));
    assert!(!users.expire_tokens(NOW_S + 99) && users.holder(&login).is_some());
    assert!(users.expire_tokens(NOW_S + 100) && users.holder(&login).is_none());
    let edit =
        UserEdit { name: "ann".into(), display_name: Some("Ann".into()), ..UserEdit::default() };
    apply(&mut users, None, Edit::User(edit)).unwrap();
    assert!(users.holder(&login).is_none(), "another change brings no token back");
    assert!(users.login_by_token(&text, NOW_S).is_none(), "a clock that runs backwards neither");

    let mut users = self::users("data_reader[*]");
    let text = create(&mut users, 1, None).unwrap();
    let login = users.login_by_token(&text, NOW_S).unwrap();
    let id = ApiToken::id_of(&text).unwrap().to_owned();
    let revoke = Edit::RevokeToken { user: "ann".into(), id };
    apply(&mut users, Some(&login), revoke.clone()).unwrap();
    assert!(users.holder(&login).is_none() && users.login_by_token(&text, NOW_S).is_none());
    let missing = apply(&mut users, None, revoke).unwrap_err();
    assert!(missing.to_string().contains("user ann has no token 0101010101010101"), "{missing}");

    let text = create(&mut users, 1, None).unwrap();
    let login = users.login_by_token(&text, NOW_S).unwrap();
    users.remove(Domain::Local, "ann").unwrap();
    users.put(User::new("ann", "secret", roles("admin"), [2; SALT_BYTES]));
    assert!(users.holder(&login).is_none() && users.login_by_token(&text, NOW_S).is_none());
}

#[test]
fn a_token_makes_no_tokens_and_sets_no_password() {
    let mut users = users("admin");
    let text = create(&mut users, 1, None).unwrap();
    let login = users.login_by_token(&text, NOW_S).unwrap();
    let (token, _) = ApiToken::new("x", None, [NOW_S, NOW_S + 1], &[9; 40]);
    assert_eq!(apply(&mut users, Some(&login), Edit::CreateToken(token)), Err(Refused::ByToken));
    let credentials = Credentials::derive("other", [3; SALT_BYTES]);
    let replaces = users.get("ann").unwrap().password_generation;
    let own = Edit::OwnPassword { credentials, replaces, at: 0 };
    assert_eq!(apply(&mut users, Some(&login), own), Err(Refused::ByToken));
    assert_eq!(users.all().count(), 2, "no user has the name of a token");
}

#[test]
fn only_administrators_end_the_tokens_of_others() {
    let mut users = users("data_reader[*]");
    users.put(User::new("bob", "secret", roles("data_reader[*]"), [2; SALT_BYTES]));
    let text = create(&mut users, 1, None).unwrap();
    let id = ApiToken::id_of(&text).unwrap().to_owned();
    let other = create(&mut users, 2, None).unwrap();
    let revoke = Edit::RevokeToken { user: "ann".into(), id };
    let (bob, boss) = (by_password(&users, "bob"), by_password(&users, "boss"));
    let by_other = users.login_by_token(&other, NOW_S).unwrap();
    let forbidden = Err(Refused::Forbidden(Privilege::AdministerUsers));
    assert_eq!(apply(&mut users, Some(&bob), revoke.clone()), forbidden);
    assert_eq!(apply(&mut users, Some(&by_other), revoke.clone()), forbidden);
    apply(&mut users, Some(&boss), revoke).unwrap();
    assert!(users.login_by_token(&text, NOW_S).is_none());
}

#[test]
fn the_number_of_tokens_of_a_user_is_limited_without_expired_ones() {
    let mut users = users("admin");
    for number in 1..=ApiToken::COUNT_MAX {
        create(&mut users, u8::try_from(number).unwrap(), None).unwrap();
    }
    assert_eq!(create(&mut users, 99, None), Err(Refused::TooManyTokens));
    let login = by_password(&users, "ann");
    let later = NOW_S + 100;
    let (token, _) = ApiToken::new("later", None, [later, later + 1], &[98; 40]);
    apply(&mut users, Some(&login), Edit::CreateToken(token)).unwrap();
    assert_eq!(users.get("ann").unwrap().tokens.len(), 1);
}

#[test]
fn tokens_out_of_bounds_are_refused() {
    let mut users = users("admin");
    let login = by_password(&users, "ann");
    let long = "x".repeat(ApiToken::NAME_BYTES_MAX + 1);
    let age = ApiToken::AGE_S_MAX;
    let many = vec![Role::admin(); ApiToken::SCOPES_MAX + 1];
    create(&mut users, 7, None).unwrap();
    for (name, scopes, times, number) in [
        ("", None, [1, 2], 1),
        (long.as_str(), None, [1, 2], 1),
        ("x", Some(many), [1, 2], 1),
        ("x", None, [2, 2], 1),
        ("x", None, [1, age + 2], 1),
        ("an ID that is taken", None, [1, 2], 7),
    ] {
        let (token, _) = ApiToken::new(name, scopes, times, &[number; 40]);
        let outcome = apply(&mut users, Some(&login), Edit::CreateToken(token));
        assert_eq!(outcome, Err(Refused::InvalidToken), "{name}");
    }
}

#[test]
fn an_altered_text_is_not_a_token() {
    let mut users = users("admin");
    let text = create(&mut users, 0x1a, None).unwrap();
    assert_eq!(text.len(), 88);
    for at in 0..text.len() {
        let mut changed = text.clone().into_bytes();
        changed[at] = if changed[at] == b'2' { b'3' } else { b'2' };
        let changed = String::from_utf8(changed).unwrap();
        assert!(users.login_by_token(&changed, NOW_S).is_none(), "{at}");
    }
    for text in
        ["", "nacre1_", "nacre1__", "ä", &text[..87], &format!("{text}a"), &text.to_uppercase()]
    {
        assert!(users.login_by_token(text, NOW_S).is_none(), "{text}");
    }
}

#[test]
fn the_stored_form_contains_no_token_text_and_reads_back() {
    let mut users = users("admin");
    let text = create(&mut users, 1, Some("data_reader[a]")).unwrap();
    let stored = serde_json::to_string(users.get("ann").unwrap()).unwrap();
    let secret = text.rsplit('_').next().unwrap();
    assert!(!stored.contains(secret) && stored.contains("\"version\":1"), "{stored}");
    let mut again = Users::new([8; 32]);
    again.insert(serde_json::from_str(&stored).unwrap());
    assert!(may(&again, &text, Privilege::ReadData, "a"));
    let newer = stored.replace("\"version\":1", "\"version\":2");
    let mut again = Users::new([8; 32]);
    again.insert(serde_json::from_str(&newer).unwrap());
    assert!(again.login_by_token(&text, NOW_S).is_none(), "a form that is not known yet");
}

#[test]
fn scopes_of_a_dropped_bucket_leave_no_right() {
    let mut users = users("data_reader[*]");
    let text = create(&mut users, 1, Some("data_reader[a]")).unwrap();
    assert!(may(&users, &text, Privilege::ReadData, "a"));
    assert!(users.forget(Keyspace { bucket: Some("a"), ..Keyspace::default() }));
    assert!(!may(&users, &text, Privilege::ReadData, "a"), "another bucket of the same name");
    assert!(!may(&users, &text, Privilege::ReadData, "b"), "none is not all");
}
