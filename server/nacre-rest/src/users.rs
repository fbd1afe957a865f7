//! Users, groups, roles and passwords.

use super::body::{Reply, blocking, done, invalid, json_reply, not_found, ok, unauthorized};
use super::login::forbidden;
use super::refusal::{in_background, users_refused};
use super::routes::{READ, Route, USERS, delete, get, patch, post, put, ready};
use super::{Call, date, login};
use hyper::StatusCode;
use nacre_auth::{
    Check, Domain, Edit, Group, Keyspace, Login, Privilege, Refused, Role, RoleKind, User,
    UserChange, UserEdit,
};
use nacre_http::Access;
use nacre_node::agreement::keyspace_exists;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};
use std::ops::RangeInclusive;
use std::sync::Arc;

/// Allowed number of users in a page. Source: Couchbase.
const PAGE_USERS: RangeInclusive<usize> = 3..=100;

const DOMAIN: &str = "/settings/rbac/users/{domain}";
const USER: &str = "/settings/rbac/users/{domain}/{name}";
const GROUP: &str = "/settings/rbac/groups/{name}";
const POLICY: &str = "/settings/passwordPolicy";

/// The required privilege depends on the domain of the users.
pub(super) const ROUTES: &[Route] = &[
    get("/settings/rbac/users", Access::Handler, |call| ready(list_all(&call))),
    get(DOMAIN, Access::Handler, |call| ready(list_domain(&call))),
    get(USER, Access::Handler, |call| ready(show(&call))),
    put(USER, Access::Handler, |call| Box::pin(put_user(call))),
    patch(USER, Access::Handler, |call| Box::pin(patch_user(call))),
    delete(USER, Access::Handler, |call| Box::pin(remove_user(call))),
    get("/settings/rbac/roles", Access::Handler, |call| {
        ready(domains(&call).map(|_| ok(&roles())))
    }),
    get("/settings/rbac/groups", Access::Handler, |call| ready(list_groups(&call))),
    get(GROUP, Access::Handler, |call| ready(show_group(&call))),
    put(GROUP, USERS, |call| Box::pin(put_group(call))),
    delete(GROUP, USERS, |call| Box::pin(remove_group(call))),
    get(POLICY, READ, |call| ready(Ok(ok(&json!(call.node.password_policy()))))),
    post(POLICY, USERS, |call| Box::pin(set_password_policy(call))),
    post("/controller/changePassword", Access::Login, |call| Box::pin(change_password(call))),
];

/// Returns the domain that the path names, if the user who asks may see its users.
fn domain_of(call: &Call) -> Result<Domain, Reply> {
    let name = call.segment("domain");
    let domain = Domain::ALL.into_iter().find(|domain| domain.name() == name);
    let domain = domain.ok_or_else(not_found)?;
    call.require(need(domain), None)?;
    Ok(domain)
}

fn list_all(call: &Call) -> Result<Reply, Reply> {
    let seen = domains(call)?;
    list(call, |user| seen.contains(&user.domain))
}

fn list_domain(call: &Call) -> Result<Reply, Reply> {
    let domain = domain_of(call)?;
    list(call, |user| user.domain == domain)
}

fn show(call: &Call) -> Result<Reply, Reply> {
    let domain = domain_of(call)?;
    let users = call.node.users();
    let user = users.of(domain, call.segment("name")).ok_or_else(unknown_user)?;
    Ok(ok(&describe(user)))
}

async fn put_user(call: Call) -> Result<Reply, Reply> {
    let domain = domain_of(&call)?;
    create_or_replace(&call, domain, call.segment("name")).await
}

async fn patch_user(call: Call) -> Result<Reply, Reply> {
    let domain = domain_of(&call)?;
    change_fields(&call, domain, call.segment("name")).await
}

async fn remove_user(call: Call) -> Result<Reply, Reply> {
    let (domain, name) = (domain_of(&call)?, call.segment("name").to_owned());
    change(&call, Edit::RemoveUser { domain, name }).await
}

fn list_groups(call: &Call) -> Result<Reply, Reply> {
    domains(call)?;
    let users = call.node.users();
    Ok(ok(&Value::Array(users.groups().map(describe_group).collect())))
}

fn show_group(call: &Call) -> Result<Reply, Reply> {
    domains(call)?;
    let users = call.node.users();
    let group = users.group(call.segment("name")).ok_or_else(unknown_group)?;
    Ok(ok(&describe_group(group)))
}

async fn remove_group(call: Call) -> Result<Reply, Reply> {
    let name = call.segment("name").to_owned();
    change(&call, Edit::RemoveGroup(name)).await
}

/// Returns the privilege that is required to see and change users of a domain.
fn need(domain: Domain) -> Privilege {
    match domain {
        Domain::Local => Privilege::AdministerUsers,
        Domain::External => Privilege::AdministerExternalUsers,
    }
}

/// Returns the domains whose users the user who asks may see.
///
/// # Errors
/// 403 if there is none.
fn domains(call: &Call) -> Result<Vec<Domain>, Reply> {
    let may = |domain: &Domain| call.require(need(*domain), None).is_ok();
    let seen: Vec<Domain> = Domain::ALL.into_iter().filter(may).collect();
    if seen.is_empty() { Err(forbidden(Privilege::AdministerUsers)) } else { Ok(seen) }
}

/// Makes a change on behalf of the user who asks. The server checks the privileges when it applies the change.
pub(super) async fn change(call: &Call, edit: Edit) -> Result<Reply, Reply> {
    let node = Arc::clone(&call.node);
    let change = UserChange { by: Some(asker(call)?), edit };
    in_background(move || node.change_users(change)).await?;
    Ok(done())
}

fn asker(call: &Call) -> Result<Login, Reply> {
    call.identity.clone().ok_or_else(unauthorized)
}

/// Refuses a change early, before the node hashes a password for it.
pub(super) fn permit(call: &Call, edit: &Edit) -> Result<(), Reply> {
    let change = UserChange { by: Some(asker(call)?), edit: edit.clone() };
    call.node.users().permit(&change).map_err(|refused| users_refused(&refused))
}

/// Lists the users for whom `seen` returns true, all or one page of them.
fn list(call: &Call, seen: impl Fn(&User) -> bool) -> Result<Reply, Reply> {
    // The cluster's initial administrator is in no list, as in Couchbase.
    let administrator = call.node.cluster().administrator.clone();
    let is_apart = |user: &User| user.domain == Domain::Local && user.name == administrator;
    let users = call.node.users();
    let users: Vec<&User> = users.all().filter(|user| seen(user) && !is_apart(user)).collect();
    match call.parameter("pageSize") {
        Some(size) => page(call, &users, &size),
        None => Ok(ok(&Value::Array(users.into_iter().map(describe).collect()))),
    }
}

/// Returns a page of `size` users, starting with the one that `startFrom` and `startFromDomain` name, and links to the
/// first and the next page.
fn page(call: &Call, users: &[&User], size: &str) -> Result<Reply, Reply> {
    let size = size.parse().ok().filter(|size| PAGE_USERS.contains(size)).ok_or_else(|| {
        let (least, most) = (PAGE_USERS.start(), PAGE_USERS.end());
        invalid("pageSize", format!("The value must be in range from {least} to {most}"))
    })?;
    let from = call.parameter("startFrom").unwrap_or_default();
    let is_external = call.parameter("startFromDomain").as_deref() == Some("external");
    let domain = if is_external { Domain::External } else { Domain::Local };
    let before = |user: &&&User| (user.domain, user.name.as_str()) < (domain, from.as_str());
    let skipped = users.iter().take_while(before).count();
    let mut rest = users.iter().skip(skipped);
    let shown: Vec<Value> = rest.by_ref().take(size).map(|user| describe(user)).collect();
    let path = format!("/{}?pageSize={size}", call.path.join("/"));
    let mut links = json!({"first": path});
    if let Some(next) = rest.next() {
        let (domain, name) =
            (next.domain.name(), utf8_percent_encode(&next.name, NON_ALPHANUMERIC));
        links["next"] = format!("{path}&startFromDomain={domain}&startFrom={name}").into();
    }
    Ok(ok(&json!({"total": users.len(), "links": links, "skipped": skipped, "users": shown})))
}

fn unknown_user() -> Reply {
    json_reply(StatusCode::NOT_FOUND, &json!("Unknown user."))
}

fn unknown_group() -> Reply {
    json_reply(StatusCode::NOT_FOUND, &json!("Unknown group."))
}

/// Describes every role; `*` means that a role's name must include a part of the data.
fn roles() -> Value {
    let describe = |kind: &RoleKind| {
        // The C++ core aborts the process if a role has no description.
        let mut value =
            json!({"role": kind.name(), "name": kind.title(), "desc": kind.description()});
        name_levels(&mut value, *kind, Keyspace::default());
        value
    };
    Value::Array(RoleKind::ALL.iter().map(describe).collect())
}

/// Adds the part of the data that a role covers: one member for each level that the role can name, with `*` for a level
/// that it leaves open.
fn name_levels(value: &mut Value, kind: RoleKind, keyspace: Keyspace<'_>) {
    let levels = [
        ("bucket_name", keyspace.bucket),
        ("scope_name", keyspace.scope),
        ("collection_name", keyspace.collection),
    ];
    for (member, name) in levels.into_iter().take(kind.level()) {
        value[member] = json!(name.unwrap_or("*"));
    }
}

fn describe_role(role: &Role) -> Value {
    let mut value = json!({"role": role.kind.name()});
    name_levels(&mut value, role.kind, role.keyspace());
    value
}

/// Describes a user, with every role and its origins: the user itself, or groups.
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
    let mut value = json!({
        "id": user.name,
        "domain": user.domain.name(),
        "name": user.display_name,
        "roles": roles.collect::<Vec<_>>(),
        "groups": user.groups,
        "external_groups": [],
    });
    if user.domain == Domain::Local {
        value["locked"] = json!(user.locked);
        let set_at = user.password_set_at.and_then(|at| i64::try_from(at).ok());
        if let Some(at) = set_at {
            value["password_change_date"] = json!(date(at, 0));
        }
    }
    value
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

/// Checks the name of a user or group. Source: the names that Couchbase accepts, because names occur in paths, headers
/// and lists.
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

/// Reads the roles of a form. Colons join names within brackets, so that a comma only separates roles. A role for a
/// missing bucket, scope or collection is refused: it would later cover another one of the same name.
fn read_roles(call: &Call, text: &str) -> Result<Vec<Role>, Reply> {
    let names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
    read_role_list(call, names, "roles")
}

/// Reads the roles of a field, given by their names.
pub(super) fn read_role_list<'n>(
    call: &Call,
    names: impl Iterator<Item = &'n str>,
    field: &str,
) -> Result<Vec<Role>, Reply> {
    let cluster = call.node.cluster();
    let mut roles = Vec::new();
    let mut unknown = Vec::new();
    for name in names {
        let role =
            name.parse::<Role>().ok().filter(|role| keyspace_exists(&cluster, role.keyspace()));
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
    Err(invalid(field, reason))
}

/// Returns the value of a field of the form.
fn field(form: &[(String, String)], wanted: &str) -> Option<String> {
    form.iter().find(|(field, _)| field == wanted).map(|(_, value)| value.clone())
}

/// Reads the fields that a form contains.
fn read_edit(call: &Call, domain: Domain, name: &str) -> Result<UserEdit, Reply> {
    check_name(name)?;
    let form = call.form();
    let roles = field(&form, "roles").map(|roles| read_roles(call, &roles)).transpose()?;
    let groups = field(&form, "groups").map(|groups| {
        groups.split(',').filter(|group| !group.is_empty()).map(str::to_owned).collect()
    });
    let locked = match field(&form, "locked").as_deref() {
        None => None,
        Some("true") => Some(true),
        Some("false") => Some(false),
        Some(_) => return Err(invalid("locked", "The value must be one of [true, false]")),
    };
    let display_name = field(&form, "name");
    let at = u64::from(call.node.now().unix_s());
    let name = name.to_owned();
    Ok(UserEdit { domain, name, roles, groups, locked, display_name, at, ..UserEdit::default() })
}

/// Returns true if the user exists and already has this password.
async fn has_password(call: &Call, name: &str, password: &str) -> Result<bool, Reply> {
    let check = call.node.users().check(name, password);
    match check {
        Check::Granted(_) => Ok(true),
        Check::Denied => Ok(false),
        Check::Hash(check) => {
            blocking("the check of a password", move || check.run().is_some()).await
        }
    }
}

/// Changes a user, including the password if the form contains one.
async fn change_user(call: &Call, mut edit: UserEdit) -> Result<Reply, Reply> {
    let password = field(&call.form(), "password");
    if let Some(password) = &password {
        if edit.domain == Domain::External {
            return Err(users_refused(&Refused::PasswordNotAllowed));
        }
        check_password(call, password)?;
    }
    // This check comes first, so that the node hashes no password for a refused change.
    permit(call, &Edit::User(edit.clone()))?;
    // Declarative tools send the password each time. A password that the user already has replaces nothing and ends no
    // session.
    if let Some(password) = password
        && !has_password(call, &edit.name, &password).await?
    {
        edit.credentials = Some(login::derive(&call.node, call.from, &password).await?);
    }
    change(call, Edit::User(edit)).await
}

/// Creates a user, or replaces everything of an existing user except the password and the lock.
async fn create_or_replace(call: &Call, domain: Domain, name: &str) -> Result<Reply, Reply> {
    let mut edit = read_edit(call, domain, name)?;
    edit.creates = true;
    edit.roles.get_or_insert_default();
    edit.groups.get_or_insert_default();
    edit.display_name.get_or_insert_default();
    change_user(call, edit).await
}

/// Changes only the fields of a user that the form contains. Source: Couchbase 8.0, which locks users this way.
async fn change_fields(call: &Call, domain: Domain, name: &str) -> Result<Reply, Reply> {
    let known = ["name", "roles", "groups", "password", "locked"];
    if let Some((field, _)) = call.form().iter().find(|(field, _)| !known.contains(&&**field)) {
        return Err(invalid(field, "Unsupported key"));
    }
    change_user(call, read_edit(call, domain, name)?).await
}

async fn put_group(call: Call) -> Result<Reply, Reply> {
    let name = call.segment("name");
    check_name(name)?;
    let form = call.form();
    let group = Group {
        name: name.to_owned(),
        description: field(&form, "description").unwrap_or_default(),
        roles: read_roles(&call, &field(&form, "roles").unwrap_or_default())?,
        ldap_group: field(&form, "ldap_group_ref").filter(|name| !name.is_empty()),
    };
    change(&call, Edit::PutGroup(group)).await
}

/// Changes the password of the user who asks; this requires no role.
async fn change_password(call: Call) -> Result<Reply, Reply> {
    let password = field(&call.form(), "password");
    let password = password.ok_or_else(|| invalid("password", "is missing"))?;
    check_password(&call, &password)?;
    set_own_password(&call, &password).await
}

/// Sets the password of the user who asks, after the check of the password.
pub(super) async fn set_own_password(call: &Call, password: &str) -> Result<Reply, Reply> {
    let known = call.node.users().person(&call.user).map(|user| user.password_generation);
    let current = known.ok_or_else(unauthorized)?;
    // The password with which the request logged in, if it did.
    let replaces = asker(call)?.password.unwrap_or(current);
    let credentials = login::derive(&call.node, call.from, password).await?;
    let at = u64::from(call.node.now().unix_s());
    change(call, Edit::OwnPassword { credentials, replaces, at }).await
}

/// Changes the rules for new passwords.
async fn set_password_policy(call: Call) -> Result<Reply, Reply> {
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
