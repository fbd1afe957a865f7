//! Why a change is refused, in the words that clients know.

use nacre_types::NodeId;

/// Why a change was refused; nothing has changed. All are the requester's to fix. The texts are API: SDKs match on them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// No such node.
    #[error("there is no {id} in the cluster")]
    NodeNotFound {
        /// ID of the node.
        id: NodeId,
    },
    /// No user would remain with all rights, and no remaining user could create one.
    #[error("Nobody else has the role admin: give it to another user first.")]
    LastAdministrator,
    /// No such group of nodes.
    #[error("there is no such group")]
    GroupNotFound,
    /// Somebody else has moved the copies meanwhile: look again.
    #[error("the copies of {bucket} have been moved meanwhile")]
    CopiesMoved {
        /// The bucket.
        bucket: String,
    },
    /// The node that has decided does not lead any more: its successor decides again.
    #[error("another node leads by now")]
    LedByAnother,
    /// Copies are being moved.
    #[error("Rebalance running.")]
    RebalanceRuns,
    /// Nodes are failed over one after the other, or all at once: two separate decisions that are safe alone may lose
    /// documents together.
    #[error("{id} is being failed over: wait until it is, or name it as well.")]
    FailoverRuns {
        /// ID of the node.
        id: NodeId,
    },
    /// A rebalance would leave the data on no node, or on nodes that were failed over or are leaving.
    #[error(
        "A rebalance needs nodes with kv to keep the data, none of which was failed over or is leaving."
    )]
    NobodyKeeps,
    /// No copies are being moved.
    #[error("There is no rebalance running.")]
    NoRebalance,
    /// The number belongs, or belonged, to another node.
    #[error("{id} is, or was, another node")]
    NodeNumberTaken {
        /// The number.
        id: NodeId,
    },
    /// No such bucket.
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
    /// The bucket may not be flushed.
    #[error("Flush is disabled for the bucket")]
    FlushDisabled,
    /// No such scope.
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
    /// No such collection.
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
    /// No such design document.
    #[error("missing")]
    DesignDocumentNotFound {
        /// The name.
        name: String,
    },
    /// No such index.
    #[error("GSI index {name} not found.")]
    IndexNotFound {
        /// The name.
        name: String,
    },
    /// There is no such function of the query language.
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
    /// There is no record of that name.
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
    /// Somebody else has changed the record meanwhile.
    #[error("Record {name} was changed meanwhile: it is of version {version}")]
    RecordChanged {
        /// The name.
        name: String,
        /// Its version.
        version: String,
    },
    /// There is no such sequence.
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
    /// Somebody else has taken these values, or the sequence is another one now.
    #[error("The values of sequence {name} were taken meanwhile")]
    SequenceMoved {
        /// The name.
        name: String,
    },
    /// There is no such library of functions of the query language.
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
    /// No such package, or not in that version.
    #[error("there is no package {name} {version}")]
    PackageNotFound {
        /// The name.
        name: String,
        /// The version.
        version: String,
    },
    /// The content of a version never changes.
    #[error(
        "there is a package {name} {version} with another content: give this one another version"
    )]
    PackageExists {
        /// The name.
        name: String,
        /// The version.
        version: String,
    },
    /// A package that is deployed must stay.
    #[error("the package is used by the deployment {deployment}: undeploy it first")]
    PackageInUse {
        /// The deployment.
        deployment: String,
    },
    /// No such deployment.
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
    /// A bucket has one resolver.
    #[error("the bucket has a resolver, the deployment {deployment}: undeploy it first")]
    ResolverExists {
        /// The deployment.
        deployment: String,
    },
    /// No such function.
    #[error("there is no function {name}")]
    FunctionNotFound {
        /// The name.
        name: String,
    },
    /// Only a function that is not deployed can be changed so.
    #[error("the function is deployed: undeploy it first")]
    FunctionDeployed,
    /// The function is deployed already.
    #[error("the function is deployed already")]
    FunctionRuns,
    /// The function is not deployed.
    #[error("the function is not deployed")]
    FunctionNotDeployed,
    /// The function is paused already.
    #[error("the function is already in paused state")]
    FunctionPaused,
    /// The writes of a function would wake it through others.
    #[error("what the function writes comes back to it through {name}, for ever")]
    FunctionRecursion {
        /// One of the others, or the function if a query of it writes its own source.
        name: String,
        /// True if the circle leads through another bucket, or is made by a query.
        crosses: bool,
    },
    /// A function would listen to where its state is kept.
    #[error("source and metadata of a function must differ")]
    SameKeyspace,
    /// A field has a value it cannot have.
    #[error("{reason}")]
    Invalid {
        /// The field, as REST names it; `_` for the request as a whole.
        field: &'static str,
        /// The reason.
        reason: String,
    },
}
