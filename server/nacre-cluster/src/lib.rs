//! The cluster map and the agreed state: nodes, buckets, scopes, collections, design documents, plugins, functions.
//!
//! [`Cluster`] is a state machine: a [`Change`] either applies or is refused without effect. It uses no clock and no randomness;
//! identifiers arrive in the change, so nodes that apply the same changes have the same state. Nodes store and send its
//! serialised form. The form has the version [`FORM_VERSION`], and the folder `samples` has a sample of every change and of a
//! whole state in each version.
//!
//! Invariants: the revision increases with every change that clients can see; a manifest's UID increases with every change of its
//! scopes or collections; IDs of scopes and collections are never reused within a bucket.

mod address;
mod bucket;
mod chain;
mod change;
mod cluster;
mod cluster_settings;
mod counters;
mod fingerprint;
mod function;
mod index;
mod manifest;
mod member;
mod nodes;
pub mod orchestrator;
mod outgoing;
mod partitions;
mod placement;
mod plugin;
mod query_function;
mod query_library;
mod rebalance;
mod refusal;
mod secret;
mod sequence;
mod service_name;
mod service_record;
mod sessions;
mod settings;

pub use address::{Address, bracketed, read_host};
pub use bucket::Bucket;
pub use chain::{Chain, Chosen};
pub use change::{
    BucketChange, Change, ClusterChange, FunctionChange, IndexChange, NodeChange, PluginChange,
    QueryChange, RecordChange,
};
pub use cluster::Cluster;
pub use cluster_settings::{
    Audit, ClusterSettings, Compaction, CurlAccess, DATA_QUOTA_MB_MIN, MOVES_PER_NODE_MAX,
    Security, ServiceQuotas, SettingsChange, TlsFloor,
};
pub use fingerprint::{Fingerprint, NoFingerprint};
pub use function::{
    BucketBinding, CODE_BYTES_MAX, ConstantBinding, Function, FunctionDefinition, FunctionId,
    FunctionKeyspace, FunctionState, Functions, Language, Program, UrlAuth, UrlBinding,
};
pub use index::{Index, Partitioning};
pub use manifest::{Collection, Manifest, Scope};
pub use member::{Alternate, AutoFailover, Endpoints, Member, Membership, Ports};
pub use nodes::GROUP_DEFAULT;
pub use outgoing::{Destination, NoOutgoingRule, OUTGOING_MAX, OutgoingRule};
pub use placement::{Copies, place};
pub use plugin::{Deployment, Package, Plugins, Since, Source, World};
pub use query_function::{QueryFunction, QueryFunctions, Script};
pub use query_library::QueryLibraries;
pub use rebalance::{EndedRebalance, Outcome, Rebalance, RetryRebalance};
pub use refusal::Refusal;
pub use secret::Secret;
pub use sequence::{Block, Sequence, Sequences};
pub use service_name::{NoServiceName, ServiceName};
pub use service_record::{Expected, ServiceRecord, ServiceRecords};
pub use sessions::{EndSessions, EndedSessions};
pub use settings::{
    BucketKind, BucketSettings, CompressionMode, ConflictResolution, EvictionPolicy,
    HistoryRetention, RAM_QUOTA_TOO_LARGE, StorageBackend,
};

/// Version of the serialised form of the agreed state and its changes.
///
/// A new field with a default does not change the version. Any other difference in the samples does; the samples of earlier
/// versions stay, and must be readable.
pub const FORM_VERSION: u32 = 22;
