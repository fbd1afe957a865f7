//! Scopes and collections of a bucket.

use super::Call;
use super::body::{Reply, invalid, not_found, ok};
use super::nodes::Form;
use nacre_auth::{Keyspace, Privilege};
use nacre_cluster::Change;
use nacre_node::cluster_map;
use serde_json::{Value, json};

/// `path` begins with the bucket's name and `scopes`.
pub(super) async fn route(call: Call, path: &[&str]) -> Result<Reply, Reply> {
    let Some((name, rest)) = path.split_first() else { return Err(not_found()) };
    let bucket = (*name).to_owned();
    let owned = |text: &str| text.to_owned();
    let wanted = match (call.method.as_str(), rest) {
        ("GET", ["scopes"]) => {
            call.require_sight(Keyspace { bucket: Some(name), ..Keyspace::default() })?;
            let cluster = call.node.cluster();
            let bucket = cluster.bucket(name).map_err(|_| not_found())?;
            return Ok(ok(&seen(&call, name, cluster_map::manifest(bucket))));
        }
        ("POST", ["scopes"]) => {
            Form(call.form()).only(&["name"])?;
            Change::CreateScope { bucket, scope: field(&call, "name").unwrap_or_default() }
        }
        ("DELETE", ["scopes", scope]) => Change::DropScope { bucket, scope: owned(scope) },
        ("POST", ["scopes", scope, "collections"]) => {
            Form(call.form()).only(&["name", "maxTTL", "history"])?;
            Change::CreateCollection {
                bucket,
                scope: owned(scope),
                collection: field(&call, "name").unwrap_or_default(),
                max_ttl: max_ttl(&call)?.unwrap_or(0),
                history: history(&call)?,
            }
        }
        ("PATCH", ["scopes", scope, "collections", collection]) => {
            Form(call.form()).only(&["maxTTL", "history"])?;
            Change::UpdateCollection {
                bucket,
                scope: owned(scope),
                collection: owned(collection),
                max_ttl: max_ttl(&call)?,
                history: history(&call)?,
            }
        }
        ("DELETE", ["scopes", scope, "collections", collection]) => {
            Change::DropCollection { bucket, scope: owned(scope), collection: owned(collection) }
        }
        _ => return Err(not_found()),
    };
    call.require(Privilege::AdministerCollections, Some(name))?;
    let cluster = call.change(wanted).await?;
    let uid = cluster.bucket(name).map_or(0, |bucket| bucket.manifest.uid);
    Ok(ok(&json!({"uid": format!("{uid:x}")})))
}

/// The manifest of a bucket, as far as the user who asks has a part in it.
fn seen(call: &Call, bucket: &str, mut manifest: Value) -> Value {
    let place = Keyspace { bucket: Some(bucket), ..Keyspace::default() };
    if let Some(scopes) = manifest["scopes"].as_array_mut() {
        scopes.retain_mut(|scope| {
            let scope_name = scope["name"].as_str().unwrap_or_default().to_owned();
            let place = Keyspace { scope: Some(&scope_name), ..place };
            if let Some(collections) = scope["collections"].as_array_mut() {
                collections.retain(|collection| {
                    call.sees(Keyspace { collection: collection["name"].as_str(), ..place })
                });
            }
            call.sees(place)
        });
    }
    manifest
}

fn field(call: &Call, name: &str) -> Option<String> {
    call.form().into_iter().find(|(field, _)| field == name).map(|(_, value)| value)
}

/// Seconds, 0 to inherit the bucket's, -1 for never.
fn max_ttl(call: &Call) -> Result<Option<i32>, Reply> {
    let Some(text) = field(call, "maxTTL") else { return Ok(None) };
    match text.parse::<i32>() {
        Ok(seconds) if seconds >= -1 => Ok(Some(seconds)),
        _ => Err(invalid("maxTTL", "The value must be in range from -1 to 2147483647")),
    }
}

/// Whether superseded versions are kept.
fn history(call: &Call) -> Result<Option<bool>, Reply> {
    match field(call, "history").as_deref() {
        None => Ok(None),
        Some("true") => Ok(Some(true)),
        Some("false") => Ok(Some(false)),
        Some(_) => Err(invalid("history", "Value must be one of the following: 'true', 'false'")),
    }
}
