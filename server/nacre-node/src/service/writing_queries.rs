//! What the service of deployments asks of the service of queries, so that neither knows the other's types.

use nacre_cluster::Source;
use nacre_sandbox::Effects;
use nacre_types::Vbid;
use std::sync::Arc;

/// The function whose queries a service runs.
pub struct FunctionQueries<'a> {
    /// The user who has defined the function. Its queries have the rights of this user.
    pub owner: &'a str,
    /// The documents that the function listens to, which its queries may not change.
    pub source: &'a Source,
    /// Handling of the changes that the queries make.
    pub writes: QueryWrites,
}

/// Handling of the changes that queries of a function make.
#[derive(Clone)]
pub enum QueryWrites {
    /// They are made, and reported so that the documents can be settled later.
    Made(Arc<dyn WriteListener>),
    /// They are only recorded.
    Recorded(Effects),
}

/// Receives the vBuckets that queries of a function have written.
pub trait WriteListener: Send + Sync {
    /// Notes that a vBucket of `bucket` was written, up to an unknown seqno: everything in it must be on disk.
    fn has_written(&self, bucket: &str, vbid: Vbid);
}
