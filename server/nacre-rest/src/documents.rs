//! Documents of a collection for endpoints: checks of privileges, and work on a thread that may wait for other nodes.

use super::Call;
use super::body::{Reply, error_reply};
use super::login::forbidden;
use hyper::StatusCode;
use nacre_auth::{Keyspace, Privilege};
use nacre_query_service::Session;
use nacre_sandbox::{DatabaseKeyspace, Failure};
use std::sync::Arc;
use std::time::Duration;

/// Timeout of reading a page, and of a write.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// Returns the collection that the path of a request names, or the default collection of the bucket.
pub(super) fn keyspace(call: &Call) -> DatabaseKeyspace {
    let named = |parameter: &str| {
        let found = call.segments.iter().find(|(name, _)| *name == parameter);
        found.map_or_else(|| "_default".to_owned(), |(_, text)| text.clone())
    };
    DatabaseKeyspace {
        bucket: call.segment("bucket").to_owned(),
        scope: named("scope"),
        collection: named("collection"),
    }
}

/// Refuses users without the privilege in the collection, and then requests for collections that do not exist.
pub(super) fn require(
    call: &Call,
    privilege: Privilege,
    keyspace: &DatabaseKeyspace,
) -> Result<(), Reply> {
    let DatabaseKeyspace { bucket, scope, collection } = keyspace;
    let place = Keyspace { bucket: Some(bucket), scope: Some(scope), collection: Some(collection) };
    let may = call.holder(&call.node.users()).is_some_and(|user| user.may(privilege, place));
    if !may {
        return Err(forbidden(privilege));
    }
    let cluster = call.node.cluster();
    let missing = |code: &str, what: &str| {
        let reason = format!("there is no such {what}");
        Err(error_reply(StatusCode::NOT_FOUND, code, &reason))
    };
    let Ok(bucket) = cluster.bucket(bucket) else {
        return missing("bucket_not_found", "bucket");
    };
    if bucket.manifest.collection(scope, collection).is_some() {
        return Ok(());
    }
    match bucket.manifest.scopes.iter().any(|known| known.name == *scope) {
        true => missing("collection_not_found", "collection"),
        false => missing("scope_not_found", "scope"),
    }
}

/// Runs `work` on the documents that the user may access.
pub(super) async fn with_session<T: Send + 'static>(
    call: &Call,
    work: impl FnOnce(&Session) -> Result<T, Failure> + Send + 'static,
) -> Result<T, Reply> {
    let (node, user) = (Arc::clone(&call.node), call.user.clone());
    let done = move || work(&Session::new(&node, &user, Arc::new(|| false)));
    call.desk().work("the work on documents", done).await?.map_err(|failure| {
        let status = match failure.retry {
            true => StatusCode::SERVICE_UNAVAILABLE,
            false => StatusCode::INTERNAL_SERVER_ERROR,
        };
        error_reply(status, "failed", &failure.message)
    })
}
