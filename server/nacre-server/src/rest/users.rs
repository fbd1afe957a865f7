//! Users and roles.

use super::Call;
use super::body::{Reply, json_reply, not_found, ok, reply};
use hyper::StatusCode;
use nacre_auth::{Privilege, Role, RoleKind, User};
use serde_json::{Value, json};
use std::sync::Arc;

/// The shortest password.
const PASSWORD_CHARACTERS_MIN: usize = 6;

pub(super) async fn route(call: Call, path: &[&str]) -> Result<Reply, Reply> {
    call.require(Privilege::AdministerUsers, None)?;
    match (call.method.as_str(), path) {
        ("GET", ["roles"]) => {
            // The C++ core ends the process when a role has no description.
            let roles = RoleKind::ALL.iter().map(|kind| {
                json!({"role": kind.name(), "name": kind.name(), "desc": kind.description()})
            });
            Ok(ok(&Value::Array(roles.collect())))
        }
        ("GET", ["users"] | ["users", "local"]) => {
            let users = call.node.users();
            let all: Vec<Value> = users.iter().map(describe).collect();
            Ok(ok(&Value::Array(all)))
        }
        ("GET", ["users", "local", name]) => {
            let users = call.node.users();
            let user = users.get(name).ok_or_else(unknown_user)?;
            Ok(ok(&describe(user)))
        }
        ("PUT", ["users", "local", name]) => put(&call, name).await,
        ("DELETE", ["users", "local", name]) => {
            let (node, name) = (Arc::clone(&call.node), (*name).to_owned());
            match in_background(move || node.remove_user(&name)).await? {
                true => Ok(reply(StatusCode::OK, "application/json", "")),
                false => Err(unknown_user()),
            }
        }
        _ => Err(not_found()),
    }
}

/// Runs what waits for the disk, or takes milliseconds of the processor.
async fn in_background<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, nacre_node::Error> + Send + 'static,
) -> Result<T, Reply> {
    let failed = |reason: String| {
        json_reply(StatusCode::INTERNAL_SERVER_ERROR, &json!({"errors": {"_": reason}}))
    };
    let outcome =
        tokio::task::spawn_blocking(work).await.map_err(|error| failed(error.to_string()))?;
    outcome.map_err(|error| failed(error.to_string()))
}

fn unknown_user() -> Reply {
    json_reply(StatusCode::NOT_FOUND, &json!("Unknown user."))
}

fn describe(user: &User) -> Value {
    let roles = user.roles.iter().map(|role| {
        let keyspace = role.keyspace();
        let mut value = json!({"role": role.kind.name(), "origins": [{"type": "user"}]});
        if role.to_string().contains('[') {
            value["bucket_name"] = json!(keyspace.bucket.unwrap_or("*"));
        }
        if let Some(scope) = keyspace.scope {
            value["scope_name"] = json!(scope);
        }
        if let Some(collection) = keyspace.collection {
            value["collection_name"] = json!(collection);
        }
        value
    });
    json!({
        "id": user.name,
        "domain": "local",
        "name": user.display_name,
        "roles": roles.collect::<Vec<_>>(),
        "groups": [],
        "external_groups": [],
    })
}

fn invalid(field: &str, reason: String) -> Reply {
    json_reply(StatusCode::BAD_REQUEST, &json!({"errors": {field: reason}}))
}

fn check_password(password: &str) -> Result<(), Reply> {
    if password.chars().count() >= PASSWORD_CHARACTERS_MIN {
        return Ok(());
    }
    Err(invalid(
        "password",
        format!("The password must be at least {PASSWORD_CHARACTERS_MIN} characters long."),
    ))
}

/// Changes the password of the user who asks; no role is needed for that.
pub(super) async fn change_password(call: Call) -> Result<Reply, Reply> {
    let password = call.form().into_iter().find(|(field, _)| field == "password");
    let (_, password) = password.ok_or_else(|| invalid("password", "is missing".into()))?;
    check_password(&password)?;
    in_background(move || {
        // Who was removed since the request was admitted stays removed.
        let Some(mut user) = call.node.users().get(&call.user).cloned() else { return Ok(()) };
        user.set_password(&password, call.node.new_salt());
        call.node.put_user(user)
    })
    .await?;
    Ok(reply(StatusCode::OK, "application/json", ""))
}

async fn put(call: &Call, name: &str) -> Result<Reply, Reply> {
    let form = call.form();
    let field = |wanted: &str| {
        form.iter().find(|(field, _)| field == wanted).map(|(_, value)| value.clone())
    };
    let roles = field("roles").unwrap_or_default();
    // Names within brackets are joined by colons, so that a comma only parts roles.
    let roles: Result<Vec<Role>, _> =
        roles.split(',').filter(|role| !role.is_empty()).map(str::parse).collect();
    let roles =
        roles.map_err(|error| invalid("roles", format!("Cannot assign roles to user: {error}")))?;
    let password = field("password");
    if let Some(password) = &password {
        check_password(password)?;
    }
    let known = call.node.users().get(name).cloned();
    if known.is_none() && password.is_none() {
        return Err(invalid("password", "Password is required for new user.".into()));
    }
    let display_name = field("name").unwrap_or_default();
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
        user.display_name = display_name;
        node.put_user(user)
    })
    .await?;
    Ok(reply(StatusCode::OK, "application/json", ""))
}
