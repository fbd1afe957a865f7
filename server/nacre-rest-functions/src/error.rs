//! Errors in the format of Eventing's clients: a name, a number, and a description.

use hyper::StatusCode;
use nacre_cluster::Refusal;
use nacre_http::body::{Reply, json_reply};
use nacre_node::Error;
use serde_json::{Value, json};

/// The kind of an error of a request about functions. Clients act on the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    NotFound,
    NotDeployed,
    AlreadyDeployed,
    NotUndeployed,
    NotBootstrapped,
    Paused,
    Compilation,
    SameKeyspace,
    CodeSize,
    NameMismatch,
    BucketMissing,
    DebuggerDisabled,
    InterFunctionRecursion,
    InterBucketRecursion,
    CollectionMissing,
    InvalidConfig,
    SaveConfig,
    Unmarshal,
    NoStatus,
    Forbidden,
    Internal,
}

impl Kind {
    /// Returns name, number and status of the error, as in the protocol.
    fn parts(self) -> (&'static str, u32, StatusCode) {
        match self {
            Kind::NotDeployed => ("ERR_APP_NOT_DEPLOYED", 12, StatusCode::NOT_ACCEPTABLE),
            Kind::NotFound => ("ERR_APP_NOT_FOUND_TS", 13, StatusCode::NOT_FOUND),
            Kind::Unmarshal => ("ERR_UNMARSHAL_PLD", 16, StatusCode::BAD_REQUEST),
            Kind::SameKeyspace => ("ERR_SRC_MB_SAME", 17, StatusCode::UNPROCESSABLE_ENTITY),
            Kind::AlreadyDeployed => {
                ("ERR_APP_ALREADY_DEPLOYED", 20, StatusCode::UNPROCESSABLE_ENTITY)
            }
            Kind::NotBootstrapped => ("ERR_APP_NOT_BOOTSTRAPPED", 21, StatusCode::LOCKED),
            Kind::NotUndeployed => ("ERR_APP_NOT_UNDEPLOYED", 22, StatusCode::UNPROCESSABLE_ENTITY),
            Kind::NoStatus => {
                ("ERR_PROCESSING_OR_DEPLOYMENT_STATUS_NOT_FOUND", 23, StatusCode::BAD_REQUEST)
            }
            Kind::Compilation => ("ERR_HANDLER_COMPILATION", 27, StatusCode::UNPROCESSABLE_ENTITY),
            Kind::NameMismatch => ("ERR_APPNAME_MISMATCH", 29, StatusCode::UNPROCESSABLE_ENTITY),
            Kind::SaveConfig => ("ERR_SAVE_CONFIG", 33, StatusCode::BAD_REQUEST),
            Kind::InvalidConfig => ("ERR_INVALID_CONFIG", 38, StatusCode::BAD_REQUEST),
            Kind::CodeSize => ("ERR_APPCODE_SIZE", 39, StatusCode::BAD_REQUEST),
            Kind::BucketMissing => ("ERR_BUCKET_MISSING", 41, StatusCode::BAD_REQUEST),
            Kind::DebuggerDisabled => ("ERR_DEBUGGER_DISABLED", 45, StatusCode::BAD_REQUEST),
            Kind::InterFunctionRecursion => {
                ("ERR_INTER_FUNCTION_RECURSION", 50, StatusCode::BAD_REQUEST)
            }
            Kind::InterBucketRecursion => {
                ("ERR_INTER_BUCKET_RECURSION", 51, StatusCode::BAD_REQUEST)
            }
            Kind::CollectionMissing => ("ERR_COLLECTION_MISSING", 56, StatusCode::BAD_REQUEST),
            Kind::Internal => ("INTERNAL_SERVER_ERROR", 59, StatusCode::INTERNAL_SERVER_ERROR),
            Kind::Forbidden => ("ERR_FORBIDDEN", 60, StatusCode::FORBIDDEN),
            Kind::Paused => ("ERR_APP_PAUSED", 64, StatusCode::UNPROCESSABLE_ENTITY),
        }
    }

    /// Returns the error as a reply.
    pub fn reply(self, description: &str) -> Reply {
        let (name, code, status) = self.parts();
        let body = json!({
            "name": name,
            "code": code,
            "description": description,
            "attributes": [],
            "runtime_info": {"code": code, "info": description},
        });
        json_reply(status, &body)
    }
}

/// Lists all names and numbers, for tools that look them up.
pub(super) fn all() -> Value {
    let all = ALL.iter().map(|kind| {
        let (name, code, _) = kind.parts();
        json!({"name": name, "code": code, "attributes": []})
    });
    json!({"errors": all.collect::<Vec<_>>()})
}

const ALL: [Kind; 21] = [
    Kind::NotFound,
    Kind::NotDeployed,
    Kind::AlreadyDeployed,
    Kind::NotUndeployed,
    Kind::NotBootstrapped,
    Kind::Paused,
    Kind::Compilation,
    Kind::SameKeyspace,
    Kind::CodeSize,
    Kind::NameMismatch,
    Kind::BucketMissing,
    Kind::DebuggerDisabled,
    Kind::InterFunctionRecursion,
    Kind::InterBucketRecursion,
    Kind::CollectionMissing,
    Kind::InvalidConfig,
    Kind::SaveConfig,
    Kind::Unmarshal,
    Kind::NoStatus,
    Kind::Forbidden,
    Kind::Internal,
];

/// Returns the reply for a change that failed.
pub(super) fn failed(error: &Error) -> Reply {
    match error {
        Error::Refused(refusal) => refused(refusal),
        other => Kind::Internal.reply(&other.to_string()),
    }
}

/// Returns the reply for a change that the agreed state refuses.
pub(super) fn refused(refusal: &Refusal) -> Reply {
    let kind = match refusal {
        Refusal::FunctionNotFound { .. } => Kind::NotFound,
        Refusal::FunctionDeployed => Kind::NotUndeployed,
        Refusal::FunctionRuns => Kind::AlreadyDeployed,
        Refusal::FunctionNotDeployed => Kind::NotDeployed,
        Refusal::FunctionPaused => Kind::Paused,
        Refusal::FunctionRecursion { crosses: true, .. } => Kind::InterBucketRecursion,
        Refusal::FunctionRecursion { .. } => Kind::InterFunctionRecursion,
        Refusal::SameKeyspace => Kind::SameKeyspace,
        Refusal::BucketNotFound { bucket } => {
            return Kind::BucketMissing.reply(&format!("there is no bucket {bucket}"));
        }
        Refusal::ScopeNotFound { .. } | Refusal::CollectionNotFound { .. } => {
            Kind::CollectionMissing
        }
        Refusal::Invalid { field: "appcode", .. } => Kind::CodeSize,
        _ => Kind::InvalidConfig,
    };
    kind.reply(&refusal.to_string())
}
