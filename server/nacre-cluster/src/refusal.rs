//! The reasons why a change is refused, in Couchbase's words.

use nacre_types::NodeId;

/// The reason why a change was refused without effect. All are for the requester to fix. The texts are API, because SDKs
/// match on them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The node does not exist.
    #[error("there is no {id} in the cluster")]
    NodeNotFound {
        /// ID of the node.
        id: NodeId,
    },
    /// No user with all privileges would remain, and no remaining user could create one.
    #[error("No other user has the role admin: give it to another user first.")]
    LastAdministrator,
    /// The server group does not exist.
    #[error("there is no such group")]
    GroupNotFound,
    /// Another change has moved the copies since: read the state again.
    #[error("the copies of {bucket} have been moved meanwhile")]
    CopiesMoved {
        /// The bucket.
        bucket: String,
    },
    /// The deciding node no longer leads; its successor decides again.
    #[error("another node has become the leader")]
    LedByAnother,
    /// A rebalance is running.
    #[error("Rebalance running.")]
    RebalanceRuns,
    /// Another failover is in progress. Nodes must be failed over one after the other or all at once: two separate
    /// decisions that are each safe may together lose documents.
    #[error("{id} is being failed over: wait until that is done, or name it as well.")]
    FailoverRuns {
        /// ID of the node.
        id: NodeId,
    },
    /// The rebalance would leave the data on no node, or on nodes that were failed over or are leaving.
    #[error(
        "A rebalance needs nodes with kv to keep the data, none of which was failed over or is leaving."
    )]
    NobodyKeeps,
    /// No rebalance is running.
    #[error("There is no rebalance running.")]
    NoRebalance,
    /// The ID belongs or belonged to another node.
    #[error("{id} was already given to another node")]
    NodeNumberTaken {
        /// The number.
        id: NodeId,
    },
    /// The bucket does not exist.
    #[error("Requested resource not found.")]
    BucketNotFound {
        /// The name.
        bucket: String,
    },
    /// The name is taken.
    #[error("Bucket with given name already exists")]
    BucketExists {
        /// The name.
        bucket: String,
    },
    /// The bucket does not allow flushes.
    #[error("Flush is disabled for the bucket")]
    FlushDisabled,
    /// The scope does not exist.
    #[error("Scope with name \"{scope}\" is not found")]
    ScopeNotFound {
        /// The name.
        scope: String,
    },
    /// The name is taken.
    #[error("Scope with name \"{scope}\" already exists")]
    ScopeExists {
        /// The name.
        scope: String,
    },
    /// The collection does not exist.
    #[error("Collection with name \"{collection}\" in scope \"{scope}\" is not found")]
    CollectionNotFound {
        /// Scope.
        scope: String,
        /// The name.
        collection: String,
    },
    /// The name is taken.
    #[error("Collection with name \"{collection}\" in scope \"{scope}\" already exists")]
    CollectionExists {
        /// Scope.
        scope: String,
        /// The name.
        collection: String,
    },
    /// The design document does not exist.
    #[error("missing")]
    DesignDocumentNotFound {
        /// The name.
        name: String,
    },
    /// The index does not exist.
    #[error("GSI index {name} not found.")]
    IndexNotFound {
        /// The name.
        name: String,
    },
    /// The function of the query language does not exist.
    #[error("Function not found: {name}")]
    QueryFunctionNotFound {
        /// The name.
        name: String,
    },
    /// The name is taken.
    #[error("Function already exists: {name}")]
    QueryFunctionExists {
        /// The name.
        name: String,
    },
    /// The record does not exist.
    #[error("Record not found: {name}")]
    RecordNotFound {
        /// The name.
        name: String,
    },
    /// The name is taken.
    #[error("Record already exists: {name}")]
    RecordExists {
        /// The name.
        name: String,
    },
    /// Another change has modified the record since.
    #[error("Record {name} was changed meanwhile: it is of version {version}")]
    RecordChanged {
        /// The name.
        name: String,
        /// Its current version.
        version: String,
    },
    /// The sequence does not exist.
    #[error("Sequence not found: {name}")]
    SequenceNotFound {
        /// The name.
        name: String,
    },
    /// The name is taken.
    #[error("Sequence already exists: {name}")]
    SequenceExists {
        /// The name.
        name: String,
    },
    /// Another node has allocated these values, or the sequence was replaced.
    #[error("The values of sequence {name} were taken meanwhile")]
    SequenceMoved {
        /// The name.
        name: String,
    },
    /// The library does not exist.
    #[error("Library not found: {name}")]
    QueryLibraryNotFound {
        /// The name.
        name: String,
    },
    /// The name is taken.
    #[error("The index {name} already exists.")]
    IndexExists {
        /// The name.
        name: String,
    },
    /// The package or its version does not exist.
    #[error("there is no package {name} {version}")]
    PackageNotFound {
        /// The name.
        name: String,
        /// The version.
        version: String,
    },
    /// The version exists with other content, which is immutable.
    #[error(
        "there is a package {name} {version} with another content: give this one another version"
    )]
    PackageExists {
        /// The name.
        name: String,
        /// The version.
        version: String,
    },
    /// A deployed package cannot be removed.
    #[error("the package is used by the deployment {deployment}: undeploy it first")]
    PackageInUse {
        /// The deployment.
        deployment: String,
    },
    /// The deployment does not exist.
    #[error("there is no deployment {name}")]
    DeploymentNotFound {
        /// The name.
        name: String,
    },
    /// The name is taken by a deployment of another package, or with another source.
    #[error(
        "there is a deployment {name} of another package or with another source: undeploy it, or choose another name"
    )]
    DeploymentExists {
        /// The name.
        name: String,
    },
    /// The bucket already has a resolver.
    #[error("the bucket has a resolver, the deployment {deployment}: undeploy it first")]
    ResolverExists {
        /// The deployment.
        deployment: String,
    },
    /// The function does not exist.
    #[error("there is no function {name}")]
    FunctionNotFound {
        /// The name.
        name: String,
    },
    /// The change requires an undeployed function.
    #[error("the function is deployed: undeploy it first")]
    FunctionDeployed,
    /// The function is already deployed.
    #[error("the function is deployed already")]
    FunctionRuns,
    /// The function is not deployed.
    #[error("the function is not deployed")]
    FunctionNotDeployed,
    /// The function is already paused.
    #[error("the function is already in paused state")]
    FunctionPaused,
    /// The function's writes would trigger it through other functions.
    #[error("endless recursion: what the function writes comes back to it through {name}")]
    FunctionRecursion {
        /// One of the other functions, or the function itself if one of its queries writes its own source.
        name: String,
        /// True if the cycle leads through another bucket or through a query.
        crosses: bool,
    },
    /// The source of a function and the keyspace of its state are the same.
    #[error("source and metadata of a function must differ")]
    SameKeyspace,
    /// A field has an invalid value.
    #[error("{reason}")]
    Invalid {
        /// The field, as REST names it; `_` for the request as a whole.
        field: &'static str,
        /// The reason.
        reason: String,
    },
}
