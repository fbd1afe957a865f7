//! Interface between the plugins service and the query service, so that neither depends on the other's types.

use nacre_cluster::Source;
use nacre_sandbox::Effects;
use nacre_types::Vbid;
use std::sync::Arc;

/// The function whose queries a service runs.
pub struct FunctionQueries<'a> {
    /// The user who defined the function. Its queries have the rights of this user.
    pub owner: &'a str,
    /// The documents that the function listens to, which its queries may not change.
    pub source: &'a Source,
    /// Handling of the changes that the queries make.
    pub writes: QueryWrites,
}

/// Handling of the changes made by a function's queries.
#[derive(Clone)]
pub enum QueryWrites {
    /// Changes are made and reported, so that the caller can wait for their persistence later.
    Made(Arc<dyn WriteListener>),
    /// Changes are only recorded.
    Recorded(Effects),
}

/// Receives the vBuckets that a function's queries have written.
pub trait WriteListener: Send + Sync {
    /// Records that a vBucket of `bucket` was written, up to an unknown seqno: everything in it must be on
    /// disk.
    fn has_written(&self, bucket: &str, vbid: Vbid);
}
