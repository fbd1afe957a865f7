//! Replies for refused changes, and blocking work in the background.

use super::login::forbidden;
use hyper::StatusCode;
use nacre_auth::Refused;
use nacre_cluster::Refusal;
use nacre_http::body::{
    Reply, blocking, error_reply, invalid, json_reply, not_found, unauthorized,
};
use nacre_node::Error;
use serde_json::json;

/// Runs work that waits for the disk or for other nodes, or takes milliseconds of CPU time, on threads that serve no
/// connections.
///
/// # Errors
/// The reply for the node's error.
pub(crate) async fn in_background<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Reply> {
    blocking("the change", work).await?.map_err(|error| refused(&error))
}

/// Returns the reply for a refused change, in the format of management clients: errors by field, with `_` for the whole
/// request.
pub(crate) fn refused(error: &Error) -> Reply {
    if let Error::Package(reason) = error {
        return invalid("_", reason);
    }
    if let Error::Unavailable(reason) = error {
        return json_reply(StatusCode::SERVICE_UNAVAILABLE, &json!({"errors": {"_": reason}}));
    }
    if let Error::Users(refused) = error {
        return users_refused(refused);
    }
    // The change is agreed already, so a retry would be answered with "already exists".
    if let Error::Effect(reason) = error {
        let text = format!(
            "the change was made, but this node cannot apply it yet and retries until it can: {reason}"
        );
        return json_reply(StatusCode::SERVICE_UNAVAILABLE, &json!({"errors": {"_": text}}));
    }
    let Error::Refused(refusal) = error else {
        return json_reply(
            StatusCode::INTERNAL_SERVER_ERROR,
            &json!({"errors": {"_": error.to_string()}}),
        );
    };
    let (status, field) = match refusal {
        Refusal::BucketNotFound { .. } => return not_found(),
        Refusal::BucketExists { .. } => (StatusCode::BAD_REQUEST, "name"),
        Refusal::FlushDisabled => {
            return json_reply(StatusCode::BAD_REQUEST, &json!({"_": refusal.to_string()}));
        }
        Refusal::ScopeNotFound { .. } | Refusal::CollectionNotFound { .. } => {
            (StatusCode::NOT_FOUND, "_")
        }
        Refusal::DesignDocumentNotFound { .. }
        | Refusal::GroupNotFound
        | Refusal::IndexNotFound { .. }
        | Refusal::QueryFunctionNotFound { .. }
        | Refusal::QueryLibraryNotFound { .. }
        | Refusal::PackageNotFound { .. }
        | Refusal::DeploymentNotFound { .. }
        | Refusal::FunctionNotFound { .. } => (StatusCode::NOT_FOUND, "_"),
        Refusal::PackageExists { .. }
        | Refusal::PackageInUse { .. }
        | Refusal::DeploymentExists { .. }
        | Refusal::ResolverExists { .. } => (StatusCode::CONFLICT, "_"),
        Refusal::Invalid { field, .. } => (StatusCode::BAD_REQUEST, *field),
        _ => (StatusCode::BAD_REQUEST, "_"),
    };
    json_reply(status, &json!({"errors": {field: refusal.to_string()}}))
}

/// Returns the reply for a refused change of users.
pub(crate) fn users_refused(refused: &Refused) -> Reply {
    let reason = refused.to_string();
    match refused {
        Refused::UserNotFound(_) => json_reply(StatusCode::NOT_FOUND, &json!("Unknown user.")),
        Refused::GroupNotFound(_) => json_reply(StatusCode::NOT_FOUND, &json!("Unknown group.")),
        Refused::GroupsNotFound(_) => invalid("groups", reason),
        Refused::PasswordRequired | Refused::PasswordNotAllowed => invalid("password", reason),
        Refused::LoginEnded => unauthorized(),
        Refused::Forbidden(privilege) => forbidden(*privilege),
        Refused::ByToken => error_reply(StatusCode::FORBIDDEN, "by_token", &reason),
        Refused::TokenNotFound { .. } => json_reply(StatusCode::NOT_FOUND, &json!(reason)),
        _ => invalid("_", reason),
    }
}
