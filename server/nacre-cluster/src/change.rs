//! The changes of the agreed state, as nodes propose and store them.

use crate::{
    Alternate, AutoFailover, BucketSettings, Chain, Deployment, Endpoints, FunctionDefinition,
    FunctionId, FunctionState, Index, Member, Membership, OutgoingRule, Package, RetryRebalance,
    Script, Sequence, ServiceName, SettingsChange, Since,
};
use nacre_types::NodeId;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// One change of the agreed state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Change {
    /// Another name for the cluster.
    NameCluster {
        /// Its name.
        name: String,
    },
    /// A node is added, or is reached elsewhere, or has another part.
    PutNode {
        /// Its number.
        id: NodeId,
        /// What it is.
        member: Member,
    },
    /// A node is reached elsewhere.
    MoveNode {
        /// Its number.
        id: NodeId,
        /// Where.
        endpoints: Endpoints,
    },
    /// A node is reached from elsewhere at another address, or not any more.
    SetAlternate {
        /// Its number.
        id: NodeId,
        /// Where.
        alternate: Option<Alternate>,
    },
    /// A node that is alone and has no buckets does something else for clients. Of others that changes with a
    /// [rebalance](Change::StartRebalance).
    SetServices {
        /// Its number.
        id: NodeId,
        /// What it does.
        services: BTreeSet<ServiceName>,
    },
    /// A new group of nodes, or another name for one.
    PutGroup {
        /// Which: 32 hexadecimal digits, or that of the first group.
        uuid: String,
        /// Its name.
        name: String,
    },
    /// The end of a group that no node is in.
    DropGroup {
        /// Which.
        uuid: String,
    },
    /// Nodes are in other groups. Copies follow with the next rebalance.
    MoveToGroups {
        /// By node: the identity of its group.
        groups: BTreeMap<NodeId, String>,
    },
    /// A node has left.
    DropNode {
        /// Its number.
        id: NodeId,
    },
    /// Nodes are to be replaced, whatever is heard of them.
    FailOver {
        /// Their numbers.
        nodes: Vec<NodeId>,
    },
    /// A node that was replaced is to get its share again, with the next rebalance.
    Recover {
        /// Its number.
        id: NodeId,
        /// Whether all copies that it gets are copied as a whole, instead of what they lack.
        #[serde(default)]
        full: bool,
    },
    /// What happens to nodes that fall silent.
    SetAutoFailover {
        /// The settings; the count of those that were replaced stays.
        settings: AutoFailover,
    },
    /// As many silent nodes may be replaced again as when the cluster was new.
    ResetAutoFailover,
    /// The copies are to be spread evenly over these nodes.
    StartRebalance {
        /// 32 hexadecimal digits.
        id: String,
        /// Who has a share afterwards.
        keep: BTreeSet<NodeId>,
        /// What becomes of all others: they leave, or only have no share.
        rest: Membership,
        /// What nodes do for clients from now on, of those for which that changes.
        #[serde(default)]
        services: BTreeMap<NodeId, BTreeSet<ServiceName>>,
    },
    /// The rebalance that is under way goes no further.
    StopRebalance,
    /// The map is given another revision, so that clients take it for news.
    RenewMap,
    /// What happens after a rebalance that has failed.
    SetRetryRebalance {
        /// The settings.
        settings: RetryRebalance,
    },
    /// The rebalance that is [pending](Cluster::pending_rebalance) is begun again.
    BeginAgain {
        /// Which.
        id: String,
    },
    /// The rebalance that is [pending](Cluster::pending_rebalance) is not begun again.
    GiveUpRebalance {
        /// Which.
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
    /// The user who administers the cluster from its beginning on.
    NameAdministrator {
        /// Its name.
        name: String,
    },
    /// Another value of a section of the [settings](Cluster::settings).
    ChangeSettings {
        /// The section and its value.
        change: Box<SettingsChange>,
    },
    /// A new bucket with a fresh UUID.
    CreateBucket {
        /// Its name.
        name: String,
        /// 32 hexadecimal digits.
        uuid: String,
        /// What the operator chose.
        settings: BucketSettings,
    },
    /// Other settings for a bucket.
    UpdateBucket {
        /// Its name.
        name: String,
        /// The new settings; what is fixed at creation must be unchanged.
        settings: BucketSettings,
    },
    /// The end of a bucket and all in it.
    DropBucket {
        /// Its name.
        name: String,
    },
    /// All documents of a bucket go.
    FlushBucket {
        /// Its name.
        name: String,
    },
    /// A new scope.
    CreateScope {
        /// Bucket.
        bucket: String,
        /// Its name.
        scope: String,
    },
    /// The end of a scope and its collections.
    DropScope {
        /// Bucket.
        bucket: String,
        /// Its name.
        scope: String,
    },
    /// A new collection.
    CreateCollection {
        /// Bucket.
        bucket: String,
        /// Scope.
        scope: String,
        /// Its name.
        collection: String,
        /// See [`crate::Collection::max_ttl`].
        max_ttl: i32,
        /// See [`crate::Collection::history`]; `None` for what the bucket says.
        history: Option<bool>,
    },
    /// Other choices for a collection; what is `None` stays.
    UpdateCollection {
        /// Bucket.
        bucket: String,
        /// Scope.
        scope: String,
        /// Its name.
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
        /// Its name.
        collection: String,
    },
    /// A new or changed design document.
    PutDesignDocument {
        /// Bucket.
        bucket: String,
        /// Its name.
        name: String,
        /// JSON text.
        document: String,
    },
    /// The end of a design document.
    DropDesignDocument {
        /// Bucket.
        bucket: String,
        /// Its name.
        name: String,
    },
    /// A new index.
    CreateIndex {
        /// Bucket.
        bucket: String,
        /// What it is to be.
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
        /// Its name.
        name: String,
    },
    /// A function of the query language, new or in the place of another.
    PutQueryFunction {
        /// Which.
        id: FunctionId,
        /// The statement that makes it.
        text: String,
        /// What it runs, if it is one in JavaScript.
        #[serde(default)]
        script: Option<Script>,
        /// Whether there may be one.
        replace: bool,
    },
    /// The end of a function of the query language.
    DropQueryFunction {
        /// Which.
        id: FunctionId,
    },
    /// A sequence of the query language, new or in the place of another.
    PutSequence {
        /// Which.
        id: FunctionId,
        /// How it is.
        sequence: Sequence,
        /// Whether there has to be one, or must be none.
        replace: bool,
    },
    /// The end of a sequence.
    DropSequence {
        /// Which.
        id: FunctionId,
    },
    /// The next values of a sequence are taken.
    AdvanceSequence {
        /// Of which.
        id: FunctionId,
        /// Its epoch, as it was seen.
        epoch: u64,
        /// The first of the values, as it was seen.
        from: i64,
    },
    /// A library of functions in JavaScript, new or in the place of another.
    PutQueryLibrary {
        /// Which.
        id: FunctionId,
        /// The code.
        code: String,
    },
    /// The end of such a library.
    DropQueryLibrary {
        /// Which.
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
    /// The partitions of an index are to have another number of copies.
    SetIndexReplicas {
        /// Bucket.
        bucket: String,
        /// Scope.
        scope: String,
        /// Collection.
        collection: String,
        /// Its name.
        name: String,
        /// How many beside the first.
        replicas: u8,
    },
    /// A new version of a package of a plugin.
    PutPackage {
        /// Its name.
        name: String,
        /// Its version.
        version: String,
        /// What it is.
        package: Package,
    },
    /// The end of a version of a package.
    DropPackage {
        /// Its name.
        name: String,
        /// Its version.
        version: String,
    },
    /// A new deployment, or another version, configuration or grants for one.
    Deploy {
        /// Its name.
        name: String,
        /// What it is to be.
        deployment: Deployment,
    },
    /// A deployment stops taking documents, or goes on.
    PauseDeployment {
        /// Its name.
        name: String,
        /// Whether it stops.
        paused: bool,
    },
    /// A deployment acts with the rights of another user from now on.
    SetDeploymentOwner {
        /// Its name.
        name: String,
        /// The user.
        owner: String,
    },
    /// A deployment begins again with a new state.
    ReplayDeployment {
        /// Its name.
        name: String,
        /// Where it begins, if not where it has begun before: since when, and after which token of changes.
        #[serde(default)]
        begin: Option<(Since, Option<String>)>,
    },
    /// The end of a deployment and its state.
    Undeploy {
        /// Its name.
        name: String,
    },
    /// A new or changed function.
    PutFunction {
        /// Its name, as text.
        id: String,
        /// 32 hexadecimal digits, for one that is new.
        uuid: String,
        /// A number, for one that is new.
        number: u32,
        /// What it is.
        definition: Box<FunctionDefinition>,
    },
    /// The end of a function.
    DropFunction {
        /// Its name, as text.
        id: String,
    },
    /// A function that is deployed or paused begins again with a new state.
    RestartFunction {
        /// Its name, as text.
        id: String,
        /// Where it begins to read.
        since: Since,
    },
    /// A function acts with the rights of another user from now on.
    SetFunctionOwner {
        /// Its name, as text.
        id: String,
        /// The user.
        owner: String,
    },
    /// A function is deployed, paused, resumed or undeployed.
    SetFunctionState {
        /// Its name, as text.
        id: String,
        /// What becomes of it.
        state: FunctionState,
        /// When, in milliseconds since the Unix epoch.
        unix_ms: u64,
    },
    /// Whether functions may wake each other in a circle.
    AllowFunctionRecursion {
        /// Whether they may.
        allowed: bool,
    },
    /// Another list of what functions and plugins may reach over HTTP.
    SetOutgoingHttp {
        /// The whole list.
        allowed: Vec<OutgoingRule>,
    },
}
