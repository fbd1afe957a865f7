//! Tries a filter expression on a document: `/controller/regexpValidation`.

use crate::expression::Expression;
use crate::form::{self, invalid, ok};
use crate::message::{XdcrMessage, XdcrReply};
use nacre_auth::{Keyspace, Privilege};
use nacre_node::Node;
use nacre_node::service::{HttpReply, HttpRequest};
use nacre_types::{CollectionId, DocKey, KEY_BYTES_MAX};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

/// Timeout of the node that serves the document.
const PATIENCE: Duration = Duration::from_secs(10);
/// The longest expression, in bytes, as for the setting `filterExpression`.
const EXPRESSION_BYTES_MAX: usize = 64 << 10;
/// Scope and collection of a request that names none.
const DEFAULT: &str = "_default";

/// `POST /controller/regexpValidation`.
pub(super) fn try_out(node: &Arc<Node>, request: &HttpRequest) -> HttpReply {
    evaluate(node, request).unwrap_or_else(|reply| reply)
}

fn evaluate(node: &Arc<Node>, request: &HttpRequest) -> Result<HttpReply, HttpReply> {
    let form = form::read(request)?;
    let given = |field: &str| form.get(field).map(String::as_str).filter(|value| !value.is_empty());
    let required = |field: &str| given(field).ok_or_else(|| invalid(field, "it is missing"));
    let expression = required("expression")?;
    if expression.len() > EXPRESSION_BYTES_MAX {
        let reason = format!("it has more than {EXPRESSION_BYTES_MAX} bytes");
        return Err(invalid("expression", reason));
    }
    Expression::parse(expression).map_err(|reason| invalid("expression", reason))?;
    if given("skipDoc").is_some_and(|value| value == "true" || value == "1") {
        return Ok(ok(&json!({"result": true})));
    }
    let (key, bucket) = (required("docId")?, required("bucket")?);
    let scope = given("scope").unwrap_or(DEFAULT);
    let collection = given("collection").unwrap_or(DEFAULT);
    if key.len() > KEY_BYTES_MAX {
        return Err(invalid("docId", format!("it has more than {KEY_BYTES_MAX} bytes")));
    }
    let keyspace =
        Keyspace { bucket: Some(bucket), scope: Some(scope), collection: Some(collection) };
    // With several expressions, a user finds out what a document contains.
    if request.login.is_some() && !request.may(node, Privilege::ReadData, keyspace) {
        let reason = format!("you may not read {bucket}.{scope}.{collection}");
        return Err(form::reply(403, &json!({"_": reason})));
    }
    let cluster = node.cluster();
    let known = cluster.buckets.get(bucket);
    let known = known.ok_or_else(|| invalid("bucket", "there is no such bucket"))?;
    let found = known.manifest.collection(scope, collection);
    let found = found.ok_or_else(|| invalid("collection", "there is no such collection"))?;
    let prefixed = DocKey::new(CollectionId(found.id), key.as_bytes()).prefixed().to_vec();
    let unavailable = |reason: String| form::reply(503, &json!({"_": reason}));
    let vbid = node.vbids_of(bucket, [key.as_bytes()]).and_then(|vbids| vbids.iter().next());
    let vbid = vbid.ok_or_else(form::not_found)?;
    let message = XdcrMessage::Evaluate(bucket.to_owned(), vbid, prefixed, expression.to_owned());
    match node.ask_about(bucket, vbid, &message, PATIENCE).map_err(unavailable)? {
        Ok(XdcrReply::Evaluated(Some(Ok(holds)))) => Ok(ok(&json!({"result": holds}))),
        Ok(XdcrReply::Evaluated(Some(Err(reason)))) => {
            Ok(ok(&json!({"result": false, "error": reason})))
        }
        Ok(XdcrReply::Evaluated(None)) => Err(invalid("docId", "there is no such document")),
        Ok(_) => Err(unavailable("an unexpected answer".to_owned())),
        Err(failure) => Err(unavailable(failure.message)),
    }
}
