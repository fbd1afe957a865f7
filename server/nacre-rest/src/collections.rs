//! Scopes and collections of a bucket.

use super::Call;
use super::body::{Reply, invalid, not_found, ok};
use super::nodes::Form;
use super::routes::{Route, delete, get, patch, post, ready};
use nacre_auth::{Keyspace, Privilege};
use nacre_cluster::{BucketChange, Change};
use nacre_http::Access;
use nacre_node::cluster_map;
use serde_json::{Value, json};

const SCOPES: &str = "/pools/default/buckets/{bucket}/scopes";
const SCOPE: &str = "/pools/default/buckets/{bucket}/scopes/{scope}";
const COLLECTIONS: &str = "/pools/default/buckets/{bucket}/scopes/{scope}/collections";
const COLLECTION: &str = "/pools/default/buckets/{bucket}/scopes/{scope}/collections/{collection}";
const ADMINISTER: Access = Access::Bucket(Privilege::AdministerCollections);

pub(super) const ROUTES: &[Route] = &[
    get(SCOPES, Access::SightOfBucket, |call| ready(list(&call))),
    post(SCOPES, ADMINISTER, |call| Box::pin(create_scope(call))),
    delete(SCOPE, ADMINISTER, |call| Box::pin(drop_scope(call))),
    post(COLLECTIONS, ADMINISTER, |call| Box::pin(create_collection(call))),
    patch(COLLECTION, ADMINISTER, |call| Box::pin(update_collection(call))),
    delete(COLLECTION, ADMINISTER, |call| Box::pin(drop_collection(call))),
];

fn list(call: &Call) -> Result<Reply, Reply> {
    let name = call.segment("bucket");
    let cluster = call.node.cluster();
    let bucket = cluster.bucket(name).map_err(|_| not_found())?;
    Ok(ok(&seen(call, name, cluster_map::manifest(bucket))))
}

/// Changes the manifest of the bucket. Answers with the manifest's new UID.
async fn change(call: &Call, change: Change) -> Result<Reply, Reply> {
    let cluster = call.change(change).await?;
    let uid = cluster.bucket(call.segment("bucket")).map_or(0, |bucket| bucket.manifest.uid);
    Ok(ok(&json!({"uid": format!("{uid:x}")})))
}

async fn create_scope(call: Call) -> Result<Reply, Reply> {
    Form(call.form()).only(&["name"])?;
    let bucket = call.segment("bucket").to_owned();
    let scope = field(&call, "name").unwrap_or_default();
    change(&call, Change::Buckets(BucketChange::CreateScope { bucket, scope })).await
}

async fn drop_scope(call: Call) -> Result<Reply, Reply> {
    let [bucket, scope] = ["bucket", "scope"].map(|name| call.segment(name).to_owned());
    change(&call, Change::Buckets(BucketChange::DropScope { bucket, scope })).await
}

async fn create_collection(call: Call) -> Result<Reply, Reply> {
    Form(call.form()).only(&["name", "maxTTL", "history"])?;
    let [bucket, scope] = ["bucket", "scope"].map(|name| call.segment(name).to_owned());
    let collection = field(&call, "name").unwrap_or_default();
    let (max_ttl, history) = (max_ttl(&call)?.unwrap_or(0), history(&call)?);
    let wanted = Change::Buckets(BucketChange::CreateCollection {
        bucket,
        scope,
        collection,
        max_ttl,
        history,
    });
    change(&call, wanted).await
}

async fn update_collection(call: Call) -> Result<Reply, Reply> {
    Form(call.form()).only(&["maxTTL", "history"])?;
    let [bucket, scope, collection] = path_of(&call);
    let (max_ttl, history) = (max_ttl(&call)?, history(&call)?);
    let wanted = Change::Buckets(BucketChange::UpdateCollection {
        bucket,
        scope,
        collection,
        max_ttl,
        history,
    });
    change(&call, wanted).await
}

async fn drop_collection(call: Call) -> Result<Reply, Reply> {
    let [bucket, scope, collection] = path_of(&call);
    change(&call, Change::Buckets(BucketChange::DropCollection { bucket, scope, collection })).await
}

/// Names of the bucket, the scope and the collection that the path names.
fn path_of(call: &Call) -> [String; 3] {
    ["bucket", "scope", "collection"].map(|name| call.segment(name).to_owned())
}

/// Returns the manifest of a bucket, restricted to the parts in which the user has a role.
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

/// Reads the time to live in seconds: 0 to inherit that of the bucket, -1 for never.
fn max_ttl(call: &Call) -> Result<Option<i32>, Reply> {
    let Some(text) = field(call, "maxTTL") else { return Ok(None) };
    match text.parse::<i32>() {
        Ok(seconds) if seconds >= -1 => Ok(Some(seconds)),
        _ => Err(invalid("maxTTL", "The value must be in range from -1 to 2147483647")),
    }
}

/// Reads whether the collection keeps superseded versions.
fn history(call: &Call) -> Result<Option<bool>, Reply> {
    match field(call, "history").as_deref() {
        None => Ok(None),
        Some("true") => Ok(Some(true)),
        Some("false") => Ok(Some(false)),
        Some(_) => Err(invalid("history", "Value must be one of the following: 'true', 'false'")),
    }
}
