//! `GET …/localRandomKey`: the key of a random document, with which tools look at a sample of a collection. Paths and
//! members are Couchbase's.

use super::Call;
use super::body::{Reply, blocking, json_reply, ok};
use super::documents::{keyspace, require};
use super::routes::{Route, get};
use hyper::StatusCode;
use nacre_auth::Privilege;
use nacre_http::Access;
use nacre_types::CollectionId;
use serde_json::json;
use std::sync::Arc;

pub(super) const ROUTES: &[Route] = &[
    get("/pools/default/buckets/{bucket}/localRandomKey", Access::Handler, |call| {
        Box::pin(random(call))
    }),
    get(
        "/pools/default/buckets/{bucket}/scopes/{scope}/collections/{collection}/localRandomKey",
        Access::Handler,
        |call| Box::pin(random(call)),
    ),
];

/// Answers with the key of a document that this node serves. Without one, tools read the collection from its beginning.
async fn random(call: Call) -> Result<Reply, Reply> {
    let keyspace = keyspace(&call);
    require(&call, Privilege::ReadData, &keyspace)?;
    let node = Arc::clone(&call.node);
    let find = move || -> Option<String> {
        let cluster = node.cluster();
        let manifest = &cluster.bucket(&keyspace.bucket).ok()?.manifest;
        let collection = manifest.collection(&keyspace.scope, &keyspace.collection)?;
        let bucket = node.bucket(&keyspace.bucket)?;
        let (collection, now_s) = (CollectionId(collection.id), node.now().unix_s());
        let document = bucket.random_document(collection, now_s, node.random())?;
        Some(String::from_utf8_lossy(document.name()).into_owned())
    };
    match blocking("the search for a document", find).await? {
        Some(key) => Ok(ok(&json!({"ok": true, "key": key}))),
        None => {
            let reason = json!({"ok": false, "error": "fallback_to_all_docs"});
            Err(json_reply(StatusCode::NOT_FOUND, &reason))
        }
    }
}
