//! The changes of the agreed state, as nodes propose and store them.

use crate::{
    Alternate, AutoFailover, BucketSettings, Chain, Deployment, Endpoints, Expected,
    FunctionDefinition, FunctionId, FunctionState, Index, Member, Membership, OutgoingRule,
    Package, RetryRebalance, Script, Sequence, ServiceName, ServiceRecord, SettingsChange, Since,
};
use nacre_types::NodeId;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// One change of the agreed state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Change {
    /// Another name for the cluster.
    NameCluster {
        /// The name.
        name: String,
    },
    /// A node is added, or is reached elsewhere, or has another part.
    PutNode {
        /// ID of the node.
        id: NodeId,
        /// Addresses, services and membership of the node.
        member: Member,
    },
    /// A node is reached elsewhere.
    MoveNode {
        /// ID of the node.
        id: NodeId,
        /// New addresses.
        endpoints: Endpoints,
    },
    /// A node is reached from elsewhere at another address, or not any more.
    SetAlternate {
        /// ID of the node.
        id: NodeId,
        /// New alternate address, if any.
        alternate: Option<Alternate>,
    },
    /// Changes the services of a node that is alone and has no buckets. The services of other nodes change with a
    /// [rebalance](Change::StartRebalance).
    SetServices {
        /// ID of the node.
        id: NodeId,
        /// New services.
        services: BTreeSet<ServiceName>,
    },
    /// A new group of nodes, or another name for one.
    PutGroup {
        /// UUID of the group: 32 hexadecimal digits, or the UUID of the first group.
        uuid: String,
        /// The name.
        name: String,
    },
    /// The end of a group that no node is in.
    DropGroup {
        /// UUID of the group.
        uuid: String,
    },
    /// Nodes are in other groups. Copies follow with the next rebalance.
    MoveToGroups {
        /// By node: the identity of its group.
        groups: BTreeMap<NodeId, String>,
    },
    /// A node has left.
    DropNode {
        /// ID of the node.
        id: NodeId,
    },
    /// Orders the replacement of nodes, whether or not they are heard.
    FailOver {
        /// Their numbers.
        nodes: Vec<NodeId>,
    },
    /// Gives a replaced node its share again, with the next rebalance.
    Recover {
        /// ID of the node.
        id: NodeId,
        /// True if all its copies are filled from nothing, instead of from their last common seqno.
        #[serde(default)]
        full: bool,
    },
    /// Sets what happens to silent nodes.
    SetAutoFailover {
        /// The settings; the count of those that were replaced stays.
        settings: AutoFailover,
    },
    /// Allows as many silent nodes to be replaced again as when the cluster was new.
    ResetAutoFailover,
    /// Starts to spread the copies evenly over these nodes.
    StartRebalance {
        /// 32 hexadecimal digits.
        id: String,
        /// Nodes that have a share afterwards.
        keep: BTreeSet<NodeId>,
        /// Membership of all other nodes afterwards: they leave, or only have no share.
        rest: Membership,
        /// New services of the nodes whose services change.
        #[serde(default)]
        services: BTreeMap<NodeId, BTreeSet<ServiceName>>,
    },
    /// The rebalance that is under way goes no further.
    StopRebalance,
    /// The map is given another revision, so that clients take it for news.
    RenewMap,
    /// Sets what happens after a failed rebalance.
    SetRetryRebalance {
        /// The settings.
        settings: RetryRebalance,
    },
    /// The rebalance that is [pending](Cluster::pending_rebalance) is begun again.
    BeginAgain {
        /// ID of the rebalance.
        id: String,
    },
    /// The rebalance that is [pending](Cluster::pending_rebalance) is not begun again.
    GiveUpRebalance {
        /// ID of the rebalance.
        id: String,
    },
    /// The rebalance that is under way has come to its end.
    EndRebalance {
        /// The part of each node.
        memberships: BTreeMap<NodeId, Membership>,
    },
    /// Copies of vBuckets are elsewhere, and nodes have another part, at once.
    MoveCopies {
        /// The parts of nodes.
        memberships: BTreeMap<NodeId, Membership>,
        /// By bucket and number of the vBucket: where its copies are.
        chains: BTreeMap<String, BTreeMap<u16, Chain>>,
    },
    /// Names the user who administers the cluster from its beginning on.
    NameAdministrator {
        /// The name.
        name: String,
    },
    /// Another value of a section of the [settings](Cluster::settings).
    ChangeSettings {
        /// The section and its value.
        change: Box<SettingsChange>,
    },
    /// A new bucket with a fresh UUID.
    CreateBucket {
        /// The name.
        name: String,
        /// 32 hexadecimal digits.
        uuid: String,
        /// Settings that the operator chose.
        settings: BucketSettings,
    },
    /// Other settings for a bucket.
    UpdateBucket {
        /// The name.
        name: String,
        /// New settings. Those that are fixed at creation must be unchanged.
        settings: BucketSettings,
    },
    /// The end of a bucket and all in it.
    DropBucket {
        /// The name.
        name: String,
    },
    /// All documents of a bucket go.
    FlushBucket {
        /// The name.
        name: String,
    },
    /// A new scope.
    CreateScope {
        /// Bucket.
        bucket: String,
        /// The name.
        scope: String,
    },
    /// The end of a scope and its collections.
    DropScope {
        /// Bucket.
        bucket: String,
        /// The name.
        scope: String,
    },
    /// A new collection.
    CreateCollection {
        /// Bucket.
        bucket: String,
        /// Scope.
        scope: String,
        /// The name.
        collection: String,
        /// See [`crate::Collection::max_ttl`].
        max_ttl: i32,
        /// See [`crate::Collection::history`]; `None` for the bucket's setting.
        history: Option<bool>,
    },
    /// Changes settings of a collection; a setting that is `None` stays.
    UpdateCollection {
        /// Bucket.
        bucket: String,
        /// Scope.
        scope: String,
        /// The name.
        collection: String,
        /// See [`crate::Collection::max_ttl`].
        max_ttl: Option<i32>,
        /// See [`crate::Collection::history`].
        history: Option<bool>,
    },
    /// The end of a collection.
    DropCollection {
        /// Bucket.
        bucket: String,
        /// Scope.
        scope: String,
        /// The name.
        collection: String,
    },
    /// A new or changed design document.
    PutDesignDocument {
        /// Bucket.
        bucket: String,
        /// The name.
        name: String,
        /// JSON text.
        document: String,
    },
    /// The end of a design document.
    DropDesignDocument {
        /// Bucket.
        bucket: String,
        /// The name.
        name: String,
    },
    /// A new index.
    CreateIndex {
        /// Bucket.
        bucket: String,
        /// The index.
        index: Index,
    },
    /// The end of an index.
    DropIndex {
        /// Bucket.
        bucket: String,
        /// Scope.
        scope: String,
        /// Collection.
        collection: String,
        /// The name.
        name: String,
    },
    /// A function of the query language, new or in the place of another.
    PutQueryFunction {
        /// The function.
        id: FunctionId,
        /// The statement that makes it.
        text: String,
        /// The script to run, for a function in JavaScript.
        #[serde(default)]
        script: Option<Script>,
        /// True if there may be one.
        replace: bool,
    },
    /// The end of a function of the query language.
    DropQueryFunction {
        /// The function.
        id: FunctionId,
    },
    /// A sequence of the query language, new or in the place of another.
    PutSequence {
        /// The sequence.
        id: FunctionId,
        /// Definition of the sequence.
        sequence: Sequence,
        /// True if the sequence must exist; false if it must not.
        replace: bool,
    },
    /// The end of a sequence.
    DropSequence {
        /// The sequence.
        id: FunctionId,
    },
    /// The next values of a sequence are taken.
    AdvanceSequence {
        /// The sequence.
        id: FunctionId,
        /// Epoch that the proposer has seen.
        epoch: u64,
        /// The first of the values, as it was seen.
        from: i64,
    },
    /// A library of functions in JavaScript, new or in the place of another.
    PutQueryLibrary {
        /// The library.
        id: FunctionId,
        /// The code.
        code: String,
    },
    /// The end of such a library.
    DropQueryLibrary {
        /// The library.
        id: FunctionId,
    },
    /// Indexes that were made to be built later are built.
    BuildIndexes {
        /// Bucket.
        bucket: String,
        /// Scope.
        scope: String,
        /// Collection.
        collection: String,
        /// Their names.
        names: Vec<String>,
    },
    /// Changes the number of copies of an index's partitions.
    SetIndexReplicas {
        /// Bucket.
        bucket: String,
        /// Scope.
        scope: String,
        /// Collection.
        collection: String,
        /// The name.
        name: String,
        /// Number of copies in addition to the first.
        replicas: u8,
    },
    /// A new version of a package of a plugin.
    PutPackage {
        /// The name.
        name: String,
        /// The version.
        version: String,
        /// The package.
        package: Package,
    },
    /// The end of a version of a package.
    DropPackage {
        /// The name.
        name: String,
        /// The version.
        version: String,
    },
    /// A new deployment, or another version, configuration or grants for one.
    Deploy {
        /// The name.
        name: String,
        /// The deployment.
        deployment: Deployment,
    },
    /// A deployment stops taking documents, or goes on.
    PauseDeployment {
        /// The name.
        name: String,
        /// True if it stops.
        paused: bool,
    },
    /// A deployment acts with the rights of another user from now on.
    SetDeploymentOwner {
        /// The name.
        name: String,
        /// The user.
        owner: String,
    },
    /// A deployment begins again with a new state.
    ReplayDeployment {
        /// The name.
        name: String,
        /// Where it begins, if that changes: since when, and after which token of changes.
        #[serde(default)]
        begin: Option<(Since, Option<String>)>,
    },
    /// The end of a deployment and its state.
    Undeploy {
        /// The name.
        name: String,
    },
    /// A new or changed function.
    PutFunction {
        /// The name, as text.
        id: String,
        /// 32 hexadecimal digits, for one that is new.
        uuid: String,
        /// A number, for one that is new.
        number: u32,
        /// The definition.
        definition: Box<FunctionDefinition>,
    },
    /// The end of a function.
    DropFunction {
        /// The name, as text.
        id: String,
    },
    /// A function that is deployed or paused begins again with a new state.
    RestartFunction {
        /// The name, as text.
        id: String,
        /// Where it begins to read.
        since: Since,
    },
    /// A function acts with the rights of another user from now on.
    SetFunctionOwner {
        /// The name, as text.
        id: String,
        /// The user.
        owner: String,
    },
    /// A function is deployed, paused, resumed or undeployed.
    SetFunctionState {
        /// The name, as text.
        id: String,
        /// New state.
        state: FunctionState,
        /// When, in milliseconds since the Unix epoch.
        unix_ms: u64,
    },
    /// True if functions may wake each other in a circle.
    AllowFunctionRecursion {
        /// True if they may.
        allowed: bool,
    },
    /// Replaces the list of addresses that functions and plugins may reach over HTTP.
    SetOutgoingHttp {
        /// The whole list.
        allowed: Vec<OutgoingRule>,
    },
    /// A new or changed record of a service.
    PutServiceRecord {
        /// ID of the service.
        service: String,
        /// Its name.
        name: String,
        /// The record.
        record: Box<ServiceRecord>,
        /// What must be there.
        expected: Expected,
    },
    /// The end of a record of a service.
    DropServiceRecord {
        /// ID of the service.
        service: String,
        /// Its name.
        name: String,
        /// What must be there.
        expected: Expected,
    },
}
