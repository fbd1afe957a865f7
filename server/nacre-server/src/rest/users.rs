//! Users, groups, roles and passwords.

use super::Call;
use super::body::{Reply, done, in_background, invalid, json_reply, not_found, ok};
use hyper::StatusCode;
use nacre_auth::{Group, Privilege, Role, RoleKind, User, Users};
use nacre_node::agreement::is_there;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};
use std::ops::RangeInclusive;
use std::sync::Arc;

/// How many users may be asked for at a time. Source: Couchbase.
const PAGE_USERS: RangeInclusive<usize> = 3..=100;

/// `path` is what follows `/settings/rbac`.
pub(super) async fn route(call: Call, path: &[&str]) -> Result<Reply, Reply> {
    call.require(Privilege::AdministerUsers, None)?;
    match (call.method.as_str(), path) {
        ("GET", ["roles"]) => Ok(ok(&roles())),
        ("GET", ["users"] | ["users", "local"]) => {
            let users = call.node.users();
            match call.parameter("pageSize") {
                Some(size) => page(&call, &users, &size),
                None => Ok(ok(&Value::Array(listed(&call, &users).map(describe).collect()))),
            }
        }
        // Users of a directory service would be here.
        ("GET", ["users", "external"]) => Ok(ok(&json!([]))),
        ("GET", ["users", "local", name]) => {
            let users = call.node.users();
            let user = users.person(name).ok_or_else(unknown_user)?;
            Ok(ok(&describe(user)))
        }
        ("PUT", ["users", "local", name]) => put(&call, name).await,
        ("DELETE", ["users", "local", name]) => {
            let (node, name) = (Arc::clone(&call.node), (*name).to_owned());
            match in_background(move || node.remove_user(&name)).await? {
                true => Ok(done()),
                false => Err(unknown_user()),
            }
        }
        ("GET", ["groups"]) => {
            let users = call.node.users();
            Ok(ok(&Value::Array(users.groups().map(describe_group).collect())))
        }
        ("GET", ["groups", name]) => {
            let users = call.node.users();
            let group = users.group(name).ok_or_else(unknown_group)?;
            Ok(ok(&describe_group(group)))
        }
        ("PUT", ["groups", name]) => put_group(&call, name).await,
        ("DELETE", ["groups", name]) => {
            let (node, name) = (Arc::clone(&call.node), (*name).to_owned());
            match in_background(move || node.remove_group(&name)).await? {
                true => Ok(done()),
                false => Err(unknown_group()),
            }
        }
        _ => Err(not_found()),
    }
}

/// The users of lists: all but the administrator that the cluster has had from its beginning, who is apart at Couchbase, too.
fn listed<'a>(call: &Call, users: &'a Users) -> impl Iterator<Item = &'a User> {
    let administrator = call.node.cluster().administrator.clone();
    users.iter().filter(move |user| user.name != administrator)
}

/// So many users, from the one that `startFrom` names, with where the first and the next ones are.
fn page(call: &Call, users: &Users, size: &str) -> Result<Reply, Reply> {
    let size = size.parse().ok().filter(|size| PAGE_USERS.contains(size)).ok_or_else(|| {
        let (least, most) = (PAGE_USERS.start(), PAGE_USERS.end());
        invalid("pageSize", format!("The value must be in range from {least} to {most}"))
    })?;
    let from = call.parameter("startFrom").unwrap_or_default();
    let total = listed(call, users).count();
    let skipped = listed(call, users).take_while(|user| user.name < from).count();
    let mut rest = listed(call, users).skip(skipped);
    let shown: Vec<Value> = rest.by_ref().take(size).map(describe).collect();
    let path = format!("/{}?pageSize={size}", call.path.join("/"));
    let mut links = json!({"first": path});
    if let Some(next) = rest.next() {
        let name = utf8_percent_encode(&next.name, NON_ALPHANUMERIC);
        links["next"] = format!("{path}&startFromDomain=local&startFrom={name}").into();
    }
    Ok(ok(&json!({"total": total, "links": links, "skipped": skipped, "users": shown})))
}

fn unknown_user() -> Reply {
    json_reply(StatusCode::NOT_FOUND, &json!("Unknown user."))
}

fn unknown_group() -> Reply {
    json_reply(StatusCode::NOT_FOUND, &json!("Unknown group."))
}

/// Every role there is; `*` stands for the part of the data that has to be named.
fn roles() -> Value {
    let describe = |kind: &RoleKind| {
        // The C++ core ends the process when a role has no description.
        let mut value =
            json!({"role": kind.name(), "name": kind.title(), "desc": kind.description()});
        if kind.is_parameterised() {
            value["bucket_name"] = json!("*");
        }
        value
    };
    Value::Array(RoleKind::ALL.iter().map(describe).collect())
}

fn describe_role(role: &Role) -> Value {
    let keyspace = role.keyspace();
    let mut value = json!({"role": role.kind.name()});
    if role.kind.is_parameterised() {
        value["bucket_name"] = json!(keyspace.bucket.unwrap_or("*"));
    }
    if let Some(scope) = keyspace.scope {
        value["scope_name"] = json!(scope);
    }
    if let Some(collection) = keyspace.collection {
        value["collection_name"] = json!(collection);
    }
    value
}

/// A user, with every role and where it comes from: the user itself, or groups.
pub(super) fn describe(user: &User) -> Value {
    let mut roles: Vec<(&Role, Vec<Value>)> = Vec::new();
    for (role, group) in user.all_roles() {
        let origin = match group {
            None => json!({"type": "user"}),
            Some(name) => json!({"type": "group", "name": name}),
        };
        match roles.iter_mut().find(|(known, _)| *known == role) {
            Some((_, origins)) => origins.push(origin),
            None => roles.push((role, vec![origin])),
        }
    }
    let roles = roles.into_iter().map(|(role, origins)| {
        let mut value = describe_role(role);
        value["origins"] = Value::Array(origins);
        value
    });
    json!({
        "id": user.name,
        "domain": "local",
        "name": user.display_name,
        "roles": roles.collect::<Vec<_>>(),
        "groups": user.groups,
        "external_groups": [],
    })
}

fn describe_group(group: &Group) -> Value {
    let roles: Vec<Value> = group.roles.iter().map(describe_role).collect();
    let mut value = json!({"id": group.name, "description": group.description, "roles": roles});
    if let Some(ldap_group) = &group.ldap_group {
        value["ldap_group_ref"] = json!(ldap_group);
    }
    value
}

pub(super) fn check_password(call: &Call, password: &str) -> Result<(), Reply> {
    call.node.password_policy().check(password).map_err(|reason| invalid("password", reason))
}

/// Names of users and groups. Source: those that Couchbase takes, as they travel in paths, headers and lists.
pub(super) fn check_name(name: &str) -> Result<(), Reply> {
    let reason = if name.is_empty() || name.len() > 128 {
        "The username must not be empty and must not exceed 128 characters."
    } else if name.starts_with('@') {
        "The username must not begin with @: such names belong to the server."
    } else if name.contains(|character: char| {
        character.is_control() || character == ' ' || "()<>,;:\\\"/[]?={}".contains(character)
    }) {
        "The username must not contain spaces, control or any of ()<>,;:\\\"/[]?={} characters."
    } else {
        return Ok(());
    };
    Err(invalid("_", reason))
}

/// Roles of a form: names within brackets are joined by colons, so that a comma only parts roles. Those that cover a
/// bucket, a scope or a collection that is not there would mean another one later, and are refused.
fn read_roles(call: &Call, text: &str) -> Result<Vec<Role>, Reply> {
    let cluster = call.node.cluster();
    let mut roles = Vec::new();
    let mut unknown = Vec::new();
    for name in text.split(',').map(str::trim).filter(|name| !name.is_empty()) {
        let role = name.parse::<Role>().ok().filter(|role| is_there(&cluster, role.keyspace()));
        match role {
            Some(role) if roles.contains(&role) => {}
            Some(role) => roles.push(role),
            None => unknown.push(name),
        }
    }
    if unknown.is_empty() {
        return Ok(roles);
    }
    let reason = format!(
        "Cannot assign roles to user because the following roles are unknown, malformed or role parameters are undefined: [{}]",
        unknown.join(",")
    );
    Err(invalid("roles", reason))
}

/// The value of a field of the form.
fn field(form: &[(String, String)], wanted: &str) -> Option<String> {
    form.iter().find(|(field, _)| field == wanted).map(|(_, value)| value.clone())
}

async fn put(call: &Call, name: &str) -> Result<Reply, Reply> {
    check_name(name)?;
    let form = call.form();
    let roles = read_roles(call, &field(&form, "roles").unwrap_or_default())?;
    let password = field(&form, "password");
    if let Some(password) = &password {
        check_password(call, password)?;
    }
    let known = call.node.users().person(name).cloned();
    if known.is_none() && password.is_none() {
        return Err(invalid("password", "Password is required for new user."));
    }
    let groups: Vec<String> = field(&form, "groups")
        .unwrap_or_default()
        .split(',')
        .filter(|group| !group.is_empty())
        .map(str::to_owned)
        .collect();
    let missing: Vec<&str> = {
        let users = call.node.users();
        groups.iter().map(String::as_str).filter(|group| users.group(group).is_none()).collect()
    };
    if !missing.is_empty() {
        return Err(invalid("groups", format!("Groups do not exist: {}", missing.join(","))));
    }
    let display_name = field(&form, "name").unwrap_or_default();
    let (node, name) = (Arc::clone(&call.node), name.to_owned());
    in_background(move || {
        let salt = node.new_salt();
        let mut user = match (known, password) {
            (Some(mut user), Some(password)) => {
                user.set_password(&password, salt);
                user
            }
            (Some(user), None) => user,
            (None, password) => User::new(&name, &password.unwrap_or_default(), Vec::new(), salt),
        };
        user.roles = roles;
        user.groups = groups;
        user.display_name = display_name;
        node.put_user(user)
    })
    .await?;
    Ok(done())
}

async fn put_group(call: &Call, name: &str) -> Result<Reply, Reply> {
    check_name(name)?;
    let form = call.form();
    let group = Group {
        name: name.to_owned(),
        description: field(&form, "description").unwrap_or_default(),
        roles: read_roles(call, &field(&form, "roles").unwrap_or_default())?,
        ldap_group: field(&form, "ldap_group_ref").filter(|name| !name.is_empty()),
    };
    let node = Arc::clone(&call.node);
    in_background(move || node.put_group(group)).await?;
    Ok(done())
}

/// Changes the password of the user who asks; no role is needed for that.
pub(super) async fn change_password(call: Call) -> Result<Reply, Reply> {
    let password = field(&call.form(), "password");
    let password = password.ok_or_else(|| invalid("password", "is missing"))?;
    check_password(&call, &password)?;
    in_background(move || {
        // Who was removed since the request was admitted stays removed.
        let Some(mut user) = call.node.users().person(&call.user).cloned() else { return Ok(()) };
        user.set_password(&password, call.node.new_salt());
        call.node.put_user(user)
    })
    .await?;
    Ok(done())
}

/// What new passwords have to be like.
pub(super) async fn password_policy(call: Call) -> Result<Reply, Reply> {
    if call.method == hyper::Method::GET {
        call.require(Privilege::ReadCluster, None)?;
        return Ok(ok(&json!(call.node.password_policy())));
    }
    call.require(Privilege::AdministerUsers, None)?;
    let mut policy = call.node.password_policy();
    for (field, value) in call.form() {
        let flag = match value.as_str() {
            "true" => Some(true),
            "false" => Some(false),
            _ => None,
        };
        match (field.as_str(), flag) {
            ("minLength", _) => {
                let length = value.parse().ok().filter(|length| *length <= 100);
                policy.min_length = length.ok_or_else(|| {
                    invalid("minLength", "The value must be in range from 0 to 100")
                })?;
            }
            ("enforceUppercase", Some(flag)) => policy.enforce_uppercase = flag,
            ("enforceLowercase", Some(flag)) => policy.enforce_lowercase = flag,
            ("enforceDigits", Some(flag)) => policy.enforce_digits = flag,
            ("enforceSpecialChars", Some(flag)) => policy.enforce_special_chars = flag,
            (
                "enforceUppercase" | "enforceLowercase" | "enforceDigits" | "enforceSpecialChars",
                None,
            ) => {
                return Err(invalid(&field, "The value must be one of [true, false]"));
            }
            _ => return Err(invalid(&field, "Unsupported key")),
        }
    }
    let node: Arc<nacre_node::Node> = Arc::clone(&call.node);
    in_background(move || node.set_password_policy(policy)).await?;
    Ok(done())
}
