//! Failures, with the codes of Couchbase's query service.

use nacre_cluster::Refusal;
use nacre_sandbox::{DatabaseKeyspace, Failure, KvError};

/// Codes of the query service. Source: Couchbase's list of error codes.
#[expect(missing_docs, reason = "Couchbase's list says what each code means")]
pub mod code {
    pub const TIMEOUT: u32 = 1080;
    pub const INDEX_EXISTS: u32 = 4300;
    pub const INTERNAL: u32 = 5000;
    pub const EXECUTION: u32 = 5010;
    pub const BUCKET_ACTION: u32 = 5502;
    pub const NODE_MEMORY: u32 = 5600;
    pub const FUNCTION_NOT_FOUND: u32 = 10101;
    pub const FUNCTION_EXISTS: u32 = 10102;
    pub const FUNCTION_EXECUTION: u32 = 10109;
    pub const KEYSPACE_NOT_FOUND: u32 = 12003;
    pub const INDEX_FAILURE: u32 = 12015;
    pub const INDEX_NOT_FOUND: u32 = 12016;
    pub const DML: u32 = 12009;
    pub const BUCKET_NOT_FOUND: u32 = 12020;
    pub const SCOPE: u32 = 12021;
    pub const COLLECTION_EXISTS: u32 = 12027;
    pub const SCOPE_EXISTS: u32 = 12028;
    pub const FORBIDDEN: u32 = 13014;
    pub const USER_NOT_FOUND: u32 = 5210;
    pub const ROLE_NOT_FOUND: u32 = 5250;
    pub const SEQUENCE: u32 = 19107;
    pub const SEQUENCE_NOT_FOUND: u32 = 19106;
    pub const SEQUENCE_EXISTS: u32 = 19108;
    pub const SEQUENCE_EXHAUSTED: u32 = 19111;
    pub const NO_TRANSACTION: u32 = 17004;
    pub const OUT_OF_ORDER: u32 = 17005;
    pub const BEGIN: u32 = 17006;
    pub const COMMIT: u32 = 17007;
    pub const NO_SAVEPOINT: u32 = 17009;
    pub const EXPIRED: u32 = 17010;
    pub const IN_USE: u32 = 17013;
    pub const TRANSACTION_MEMORY: u32 = 17016;
    pub const AMBIGUOUS_COMMIT: u32 = 17019;
}

/// Returns a failure that a retry would repeat.
pub fn failure(code: u32, message: impl Into<String>) -> Failure {
    Failure { code, message: message.into(), retry: false }
}

/// Returns a failure that may not recur on a retry.
pub fn retry(code: u32, message: impl Into<String>) -> Failure {
    Failure { code, message: message.into(), retry: true }
}

/// Returns the failure of a request for a bucket that does not exist.
pub fn no_bucket(keyspace: &DatabaseKeyspace) -> Failure {
    not_found(keyspace, &format!("No bucket named {}", keyspace.bucket))
}

/// Returns the failure of a request for a collection that cannot be resolved: its scope or the
/// collection does not exist.
pub fn unresolved(keyspace: &DatabaseKeyspace, refusal: &Refusal) -> Failure {
    if let Refusal::ScopeNotFound { .. } = refusal {
        let DatabaseKeyspace { bucket, scope, .. } = keyspace;
        let message = format!("Scope not found in CB datastore: default:{bucket}.{scope}");
        return failure(code::SCOPE, message);
    }
    not_found(keyspace, &refusal.to_string())
}

/// Returns the failure of a request for a key space that does not exist.
pub fn not_found(keyspace: &DatabaseKeyspace, cause: &str) -> Failure {
    let DatabaseKeyspace { bucket, scope, collection } = keyspace;
    let path = match (scope.as_str(), collection.as_str()) {
        ("_default", "_default") => format!("default:{bucket}"),
        _ => format!("default:{bucket}.{scope}.{collection}"),
    };
    failure(
        code::KEYSPACE_NOT_FOUND,
        format!("Keyspace not found in CB datastore: {path} - cause: {cause}"),
    )
}

/// Returns the failure of a request whose change the agreed state refuses.
pub fn refused(refusal: &Refusal) -> Failure {
    let code = match refusal {
        Refusal::IndexExists { .. } => code::INDEX_EXISTS,
        Refusal::IndexNotFound { .. } => code::INDEX_NOT_FOUND,
        Refusal::QueryFunctionExists { .. } => code::FUNCTION_EXISTS,
        Refusal::QueryFunctionNotFound { .. } => code::FUNCTION_NOT_FOUND,
        Refusal::BucketNotFound { bucket } => {
            return no_bucket(&DatabaseKeyspace {
                bucket: bucket.clone(),
                scope: "_default".into(),
                collection: "_default".into(),
            });
        }
        Refusal::SequenceNotFound { .. } => code::SEQUENCE_NOT_FOUND,
        Refusal::SequenceExists { .. } => code::SEQUENCE_EXISTS,
        Refusal::ScopeNotFound { .. } => code::SCOPE,
        Refusal::ScopeExists { .. } => code::SCOPE_EXISTS,
        Refusal::CollectionNotFound { .. } => code::KEYSPACE_NOT_FOUND,
        Refusal::CollectionExists { .. } => code::COLLECTION_EXISTS,
        _ => code::INTERNAL,
    };
    failure(code, refusal.to_string())
}

/// Returns the failure of a request whose access to a document failed.
pub fn dml(error: &KvError) -> Failure {
    match error {
        KvError::Temporary(_) | KvError::Locked => retry(code::DML, error.to_string()),
        _ => failure(code::DML, error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_bucket_is_named_in_the_failure() {
        let Failure { code, message, .. } =
            refused(&Refusal::BucketNotFound { bucket: "nope".into() });
        assert_eq!(code, code::KEYSPACE_NOT_FOUND);
        assert!(message.ends_with("default:nope - cause: No bucket named nope"), "{message}");
    }
}
