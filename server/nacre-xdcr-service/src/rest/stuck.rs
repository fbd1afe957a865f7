//! Documents that the target refuses and that were put aside: `/pools/default/replications/{id}/stuckDocuments` and
//! `/controller/skipStuckDocument`.

use crate::Xdcr;
use crate::form::{self, invalid, ok};
use crate::message::{XdcrMessage, XdcrReply};
use crate::record;
use crate::status::{LISTED_MAX, Status, StuckDocument};
use nacre_node::Node;
use nacre_node::service::{HttpReply, HttpRequest};
use nacre_types::{CollectionId, DocKey};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// Timeout of the node that serves the document.
const PATIENCE: Duration = Duration::from_secs(10);
/// Default collection of a request.
const DEFAULT: &str = "_default._default";

/// `GET /pools/default/replications/{id}/stuckDocuments`.
pub(super) fn list(node: &Arc<Node>, request: &HttpRequest) -> HttpReply {
    let Some(status) = status_of(node, &request.parameters[0]) else { return form::not_found() };
    let shown = |document: &StuckDocument| {
        let StuckDocument { collection, key, reason } = document;
        json!({"collection": collection, "id": key, "reason": reason})
    };
    ok(&Value::Array(status.stuck_documents.iter().map(shown).collect()))
}

fn status_of(node: &Arc<Node>, id: &str) -> Option<Status> {
    record::agreed(node).replication(id)?;
    Some(node.service::<Xdcr>()?.statuses(node).remove(id).unwrap_or_default())
}

/// `POST /controller/skipStuckDocument/{id}`.
pub(super) fn skip(node: &Arc<Node>, request: &HttpRequest) -> HttpReply {
    let id = &request.parameters[0];
    drop_version(node, request, id).unwrap_or_else(|reply| reply)
}

fn drop_version(node: &Arc<Node>, request: &HttpRequest, id: &str) -> Result<HttpReply, HttpReply> {
    let form = form::read(request)?;
    let key = form.get("id").filter(|key| !key.is_empty());
    let key = key.ok_or_else(|| invalid("id", "the document is missing"))?;
    let collection = form.get("collection").map_or(DEFAULT, String::as_str);
    let agreed = record::agreed(node);
    let source = &agreed.replication(id).ok_or_else(form::not_found)?.source;
    let status = status_of(node, id).ok_or_else(form::not_found)?;
    let is_it =
        |document: &StuckDocument| document.collection == collection && document.key == *key;
    let is_known = status.stuck_documents.iter().any(is_it);
    if !is_known && status.stuck_documents.len() < LISTED_MAX {
        let reason = format!("{key:?} of {collection} is not put aside");
        return Err(form::reply(404, &json!({"id": reason})));
    }
    let cluster = node.cluster();
    let bucket = cluster.buckets.get(source).ok_or_else(form::not_found)?;
    let path = collection.split_once('.');
    let found = path.and_then(|(scope, name)| bucket.manifest.collection(scope, name));
    let found = found.ok_or_else(|| invalid("collection", "there is no such collection"))?;
    let prefixed = DocKey::new(CollectionId(found.id), key.as_bytes()).prefixed().to_vec();
    let unavailable = |reason: String| form::reply(503, &json!({"_": reason}));
    let vbid = node.vbids_of(source, [key.as_bytes()]).and_then(|vbids| vbids.iter().next());
    let vbid = vbid.ok_or_else(form::not_found)?;
    let message = XdcrMessage::Skip(id.to_owned(), vbid, prefixed);
    match node.ask_about(source, vbid, &message, PATIENCE).map_err(unavailable)? {
        Ok(XdcrReply::Noted) => Ok(ok(&json!([]))),
        Ok(_) => Err(unavailable("an unexpected answer".to_owned())),
        Err(failure) => Err(unavailable(failure.message)),
    }
}
