//! Management of scopes and collections for SDKs: the management port's requests about them, without a port. Requests about views
//! are in `views/requests.rs`, those for SQL++ in `query/requests.rs`.
//!
//! ```text
//! GET    /pools/default/buckets/default/scopes
//! POST   …/scopes                          name=
//! DELETE …/scopes/{scope}
//! POST   …/scopes/{scope}/collections      name=, maxTTL=
//! DELETE …/scopes/{scope}/collections/{collection}
//! ```

use crate::host::manifest_json;
#[cfg(feature = "query")]
use crate::query::manage as about_queries;
#[cfg(feature = "views")]
use crate::views::manage as about_views;
use crate::{Db, Error};
use percent_encoding::percent_decode_str;
use serde_json::json;

const ROOT: &str = "/pools/default/buckets/default/scopes";

/// See [`Db::manage`].
pub(crate) fn answer(
    db: &Db,
    method: &str,
    path: &str,
    body: &[u8],
) -> Result<(u16, String), Error> {
    db.inner().check()?;
    if let Some(answer) = about_views(db, method, path, body)? {
        return Ok(answer);
    }
    if let Some(answer) = about_queries(db, method, path, body)? {
        return Ok(answer);
    }
    let path = path.split('?').next().unwrap_or_default();
    let unknown = || Ok((404, json!("Requested resource not found.").to_string()));
    let rest = path.strip_prefix(ROOT).filter(|rest| rest.is_empty() || rest.starts_with('/'));
    let Some(rest) = rest else { return unknown() };
    let parts: Vec<String> = rest.split('/').skip(1).map(decoded).collect();
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    let form = form(body);
    let field =
        |name: &str| form.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
    let named = |name: &str| field(name).ok_or("name is missing");
    let outcome = match (method, &parts[..]) {
        ("GET", []) => {
            let manifest = db.inner().bucket.manifest();
            return Ok((200, manifest_json(&manifest).to_string()));
        }
        ("POST", []) => match named("name") {
            Ok(name) => db.create_scope(name),
            Err(missing) => return Ok((400, json!({"errors": {"name": missing}}).to_string())),
        },
        ("DELETE", [scope]) => db.drop_scope(scope),
        ("POST", [scope, "collections"]) => {
            let max_ttl = field("maxTTL").map_or(Ok(0), str::parse::<u32>);
            match (named("name"), max_ttl) {
                (Ok(name), Ok(max_ttl)) => db.create_collection(scope, name, max_ttl),
                (Err(missing), _) => {
                    return Ok((400, json!({"errors": {"name": missing}}).to_string()));
                }
                (_, Err(_)) => {
                    let what = "maxTTL is a number of seconds, 0 or more";
                    return Ok((400, json!({"errors": {"maxTTL": what}}).to_string()));
                }
            }
        }
        ("DELETE", [scope, "collections", name]) => db.drop_collection(scope, name),
        _ => return unknown(),
    };
    let (status, reason) = match outcome {
        Ok(()) => {
            let uid = format!("{:x}", db.inner().bucket.manifest().uid);
            return Ok((200, json!({"uid": uid}).to_string()));
        }
        // The server's texts: SDKs match on them.
        Err(Error::ScopeNotFound(scope)) => {
            (404, format!("Scope with name \"{scope}\" is not found"))
        }
        Err(Error::CollectionNotFound(path)) => {
            let (scope, name) = path.split_once('.').unwrap_or(("", &path));
            let what = format!("Collection with name \"{name}\" in scope \"{scope}\" is not found");
            (404, what)
        }
        Err(Error::KeyspaceExists(path)) => (
            400,
            match path.split_once('.') {
                None => format!("Scope with name \"{path}\" already exists"),
                Some((scope, name)) => {
                    format!("Collection with name \"{name}\" in scope \"{scope}\" already exists")
                }
            },
        ),
        Err(Error::InvalidArgument(what)) => (400, what),
        Err(error) => return Err(error),
    };
    Ok((status, json!({"errors": {"_": reason}}).to_string()))
}

#[cfg(not(feature = "views"))]
fn about_views(_: &Db, _: &str, path: &str, _: &[u8]) -> Result<Option<(u16, String)>, Error> {
    let reason = "this library was built without views";
    let answer = || (501, json!({"error": "no_views", "reason": reason}).to_string());
    Ok(path.starts_with("/default/_design/").then(answer))
}

#[cfg(not(feature = "query"))]
fn about_queries(_: &Db, _: &str, path: &str, _: &[u8]) -> Result<Option<(u16, String)>, Error> {
    // SDKs know the code as that of a feature which the service lacks.
    let error = json!({"code": 3230, "msg": "this library was built without SQL++"});
    let answer = || (501, json!({"results": [], "errors": [error], "status": "fatal"}).to_string());
    Ok((path.split('?').next() == Some("/query/service")).then(answer))
}

pub(crate) fn decoded(part: &str) -> String {
    percent_decode_str(part).decode_utf8_lossy().into_owned()
}

/// Reads a form: names and values.
pub(crate) fn form(body: &[u8]) -> Vec<(String, String)> {
    let text = String::from_utf8_lossy(body);
    let fields = text.split('&').filter_map(|field| field.split_once('='));
    fields
        .map(|(name, value)| (decoded(&name.replace('+', " ")), decoded(&value.replace('+', " "))))
        .collect()
}
