//! What is to run, as the agreed state has it: a design document and a deployed package come to the same.

use super::{Runtime, rights};
use crate::changes::Token;
use nacre_auth::{Privilege, Users};
use nacre_cluster::{Cluster, Index, Manifest as Collections, Refusal, Since, Source, World};
use nacre_dcp::ResumePoint;
use nacre_plugin_host::{Grants, Limits, Manifest};
use nacre_state::StateForm;
use nacre_types::{CollectionId, NodeId, Vbid};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// What the names of all views' spaces begin with.
pub(super) const VIEWS_SPACE: &str = "views/";
/// What the names of all indexes' spaces begin with.
pub(super) const INDEXES_SPACE: &str = "indexes/";
/// What the names of all deployments' spaces begin with.
pub(super) const PLUGINS_SPACE: &str = "plugins/";
/// What the names of all functions' spaces begin with.
pub(super) const FUNCTIONS_SPACE: &str = "functions/";

/// What the names of design documents that are being tried out begin with.
const DEVELOPMENT: &str = "dev_";

/// In how many lanes a node takes the vBuckets of a design document, each with a writer and a tree of its own. Answers are merged from
/// them as from nodes, so more of them build faster and answer slower; a state is not made anew where it moves to a larger machine.
const VIEWS_LANES: u16 = 2;

/// The pace of a design document that names only a part of one. Source: Couchbase's defaults.
const PACE_INTERVAL: Duration = Duration::from_secs(5);
const PACE_CHANGES_MIN: u64 = 5000;

/// The code that a deployment runs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Code {
    /// A component that comes with the binary: `views`, `js`, `eventing`.
    Shipped(&'static str),
    /// A component that was uploaded: the digest of its package.
    Uploaded(String),
}

/// The component that runs views.
pub(super) const VIEWS: Code = Code::Shipped("views");
/// The component that makes the entries of indexes.
pub(super) const INDEX: Code = Code::Shipped("index");
/// The component that runs JavaScript.
pub(super) const JS: Code = Code::Shipped("js");
/// The component that runs functions.
pub(super) const EVENTING: Code = Code::Shipped("eventing");
/// The component that takes types out of code.
pub(super) const TYPESCRIPT: Code = Code::Shipped("typescript");

/// How long a deployment lets changes gather before it takes them all. Who needs them now asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pace {
    /// How often it looks how much has gathered.
    pub interval: Duration,
    /// What is enough then.
    pub changes_min: u64,
}

/// One deployment as it is wanted.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Spec {
    /// `bucket/design document`, or the name of the deployment.
    pub name: String,
    pub code: Code,
    /// Version of the package.
    pub version: String,
    /// The package whose script it runs.
    pub script: Option<String>,
    /// What it reads, or why that is not there.
    pub source: Result<Source, Refusal>,
    pub since: Since,
    /// Where it begins in vBuckets that it has nothing of, if not with their first mutation.
    pub begin: Option<Arc<BTreeMap<Vbid, ResumePoint>>>,
    /// What its deployer tells it.
    pub config: String,
    pub limits: Limits,
    pub grants: Grants,
    /// The user with whose rights it acts; empty where it acts with none, or is not known.
    pub owner: String,
    pub paused: bool,
    /// Why it is paused although it is not to be, if its owner may not do what it does.
    pub held: Option<String>,
    /// Counts how often one that has failed was told to go on; none for what is tried again on every occasion.
    pub tries: Option<u64>,
    /// Whether it is being tried out, and answers from a part of the vBuckets.
    pub is_development: bool,
    /// How often it takes what is new; at once when there is none.
    pub pace: Option<Pace>,
    /// Whether it is told every version, with the one that it took the place of.
    pub old: bool,
    /// Where its state lies: named after everything that the state depends on.
    pub space: String,
    /// The form of its state; none for that of the node.
    pub form: Option<StateForm>,
    /// Whether the state before goes on answering until this one has caught up.
    pub beside: bool,
    /// Whether it is an index, whose entries are read without the plugin.
    pub is_index: bool,
    /// Of an index with partitions: what this node has of them.
    pub share: Option<Share>,
}

/// What a node has of the partitions of an index.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Share {
    /// Those that it is to keep.
    pub held: Arc<BTreeSet<u16>>,
    /// Whether others may not have theirs yet, so that it keeps what it has.
    pub is_moving: bool,
}

impl Spec {
    /// `scope.collection` that the plugin means when it names no other.
    pub fn keyspace(&self) -> String {
        let named = self.source.as_ref().ok();
        let part = |part: Option<&String>| part.map_or("_default", String::as_str).to_owned();
        let scope = part(named.and_then(|source| source.scope.as_ref()));
        let collection = part(named.and_then(|source| source.collection.as_ref()));
        format!("{scope}.{collection}")
    }

    /// In how many lanes it takes the vBuckets of a node.
    pub fn lanes(&self) -> u16 {
        if self.code == VIEWS { VIEWS_LANES } else { 1 }
    }

    /// The spaces of its lanes.
    pub fn spaces(&self) -> Vec<String> {
        match self.lanes() {
            1 => vec![self.space.clone()],
            lanes => (0..lanes).map(|lane| format!("{}/{lane}", self.space)).collect(),
        }
    }

    /// Whether all it does is to keep its state, which can be made again from history at any time.
    pub fn is_fold(&self) -> bool {
        // What begins with now is no more in history from there.
        let has_all = self.since == Since::Everything && self.begin.is_none();
        self.code == VIEWS || self.is_index && has_all
    }

    /// Pauses it if its owner may not do what it does. Nothing is asked of those who make views and indexes, whose roles
    /// include reading.
    pub fn hold(&mut self, users: &Users) {
        let Ok(source) = &self.source else { return };
        if self.owner.is_empty() {
            return;
        }
        let bypass = (self.code == EVENTING).then_some(Privilege::AdministerEventing);
        let needs = rights::needs(source, &self.grants);
        self.held = rights::hold(users, &self.owner, &needs, bypass);
        self.paused |= self.held.is_some();
    }

    /// Returns true if it does something outside of its state, which happens again when the state is built again.
    pub fn has_effects(&self) -> bool {
        let writes = self.grants.kv.iter().any(|grant| grant.write);
        self.code == EVENTING || writes || !self.grants.http_out.is_empty() || self.grants.query
    }

    /// Where it begins in a vBucket that it has nothing of.
    pub fn beginning(&self, vbid: Vbid) -> ResumePoint {
        let begin = self.begin.as_ref();
        begin.and_then(|points| points.get(&vbid)).copied().unwrap_or_default()
    }

    /// Whether its documents are of several collections.
    pub fn spans_collections(&self) -> bool {
        self.source.as_ref().is_ok_and(|source| source.collection.is_none())
    }

    /// Whether it does what is not to be done again, so that it goes on where it stood on another node.
    pub fn keeps_places(&self) -> bool {
        self.code == EVENTING
    }

    /// Whether what `other` has includes all that this one wants of an index, and nobody wants it to have less.
    pub fn is_part_of(&self, other: &Spec) -> bool {
        let (Some(wanted), Some(there)) = (&self.share, &other.share) else { return false };
        let of = |spec: &Spec| spec.space.rsplit_once('/').map(|(of, _)| of.to_owned());
        let is_enough = match wanted.is_moving {
            true => wanted.held.is_subset(&there.held),
            false => wanted.held == there.held,
        };
        is_enough && of(self) == of(other)
    }

    /// Whether `other` goes on as this one, but for a pause.
    pub fn is_same_as(&self, other: &Spec) -> bool {
        (&self.code, &self.version, &self.space, &self.config, &self.source)
            == (&other.code, &other.version, &other.space, &other.config, &other.source)
            && self.grants == other.grants
            && self.owner == other.owner
            && self.pace == other.pace
            && self.limits == other.limits
            && self.old == other.old
            && self.tries == other.tries
    }
}

/// The deployments of a bucket's design documents.
pub(super) fn of_views(config: &nacre_cluster::Bucket, runtime: &Runtime) -> Vec<Spec> {
    let one = |(name, document): (&String, &String)| Spec {
        name: view_name(&config.name, name),
        code: VIEWS,
        version: String::new(),
        script: None,
        source: source_of(config, document),
        since: Since::Everything,
        begin: None,
        config: view_config(name, document, true).unwrap_or_default(),
        limits: Limits::default(),
        grants: Grants::own(),
        owner: String::new(),
        paused: false,
        held: None,
        tries: None,
        is_development: name.starts_with(DEVELOPMENT),
        pace: pace_of(document),
        old: false,
        space: view_space(config, name, document, &runtime.state_version),
        form: None,
        beside: false,
        is_index: false,
        share: None,
    };
    config.design_documents.iter().map(one).collect()
}

/// What the design documents of a bucket are deployed under.
pub(super) fn names_of_views(config: &nacre_cluster::Bucket) -> impl Iterator<Item = String> {
    config.design_documents.keys().map(|name| view_name(&config.name, name))
}

/// What a design document is deployed under.
pub(super) fn view_name(bucket: &str, name: &str) -> String {
    format!("{bucket}/{name}")
}

/// The configuration of the views plugin: the design document with its name, and whether the plugin has accepted it before.
pub(super) fn view_config(name: &str, document: &str, is_checked: bool) -> Option<String> {
    let mut config: serde_json::Value = serde_json::from_str(document).ok()?;
    let members = config.as_object_mut()?;
    members.insert("name".into(), name.into());
    members.insert("checked".into(), is_checked.into());
    Some(config.to_string())
}

/// What a design document indexes: `"collection": "scope.name"`, or the default one.
fn source_of(config: &nacre_cluster::Bucket, document: &str) -> Result<Source, Refusal> {
    let document: serde_json::Value = serde_json::from_str(document).unwrap_or_default();
    let path = document.get("collection").and_then(serde_json::Value::as_str).unwrap_or(".");
    config.manifest.resolve(path)?;
    let (scope, collection) = path.split_once('.').expect("what resolves has a dot");
    let or_default =
        |name: &str| Some(if name.is_empty() { "_default".to_owned() } else { name.to_owned() });
    Ok(Source {
        bucket: config.name.clone(),
        scope: or_default(scope),
        collection: or_default(collection),
    })
}

/// What a design document says of its pace: `"options": {"updateInterval": milliseconds, "updateMinChanges": count}`.
fn pace_of(document: &str) -> Option<Pace> {
    let document: serde_json::Value = serde_json::from_str(document).ok()?;
    let number = |name: &str| document["options"][name].as_u64();
    let (interval, changes) = (number("updateInterval"), number("updateMinChanges"));
    if interval.is_none() && changes.is_none() {
        return None;
    }
    Some(Pace {
        interval: interval.map_or(PACE_INTERVAL, Duration::from_millis),
        changes_min: changes.unwrap_or(PACE_CHANGES_MIN),
    })
}

/// Names the space of a design document by all that its rows depend on.
fn view_space(
    config: &nacre_cluster::Bucket,
    name: &str,
    document: &str,
    state_version: &str,
) -> String {
    let collection = source_of(config, document)
        .and_then(|source| numbers(&config.manifest, &source))
        .unwrap_or_else(|_| "none".into());
    let text = nacre_value::crc32c(document.as_bytes());
    format!(
        "{VIEWS_SPACE}{}/{}/{name}/{collection}/{text:08x}-{}/{state_version}",
        config.uuid,
        config.flushes,
        document.len()
    )
}

/// The numbers of the scope and collection that a source names, which a new one of the same name does not have.
pub(super) fn numbers(manifest: &Collections, source: &Source) -> Result<String, Refusal> {
    match (&source.scope, &source.collection) {
        (Some(scope), Some(collection)) => {
            manifest.resolve(&format!("{scope}.{collection}")).map(|id| id.to_string())
        }
        (Some(scope), None) => manifest.resolve_scope(scope).map(|id| format!("scope {}", id.0)),
        _ => Ok("all".into()),
    }
}

/// The deployments of a bucket's indexes on a node, but for those that are built later.
pub(super) fn of_indexes(
    cluster: &Cluster,
    node: NodeId,
    config: &nacre_cluster::Bucket,
    runtime: &Runtime,
) -> Vec<Spec> {
    let one = |index: &Index, share: Option<Share>| Spec {
        name: index_name(&config.name, index),
        code: INDEX,
        version: String::new(),
        script: None,
        source: Ok(Source {
            bucket: config.name.clone(),
            scope: Some(index.scope.clone()),
            collection: Some(index.collection.clone()),
        }),
        since: Since::Everything,
        begin: None,
        config: serde_json::json!({"definition": index.definition}).to_string(),
        limits: Limits::default(),
        grants: Grants::own(),
        owner: String::new(),
        paused: false,
        held: None,
        tries: None,
        is_development: false,
        pace: None,
        old: false,
        space: format!(
            "{INDEXES_SPACE}{}-{}/{}/{}{}",
            config.uuid,
            config.flushes,
            index.uuid,
            runtime.state_version,
            share.as_ref().map(suffix).unwrap_or_default(),
        ),
        // Entries are lent to whoever scans.
        form: Some(StateForm::Resident),
        beside: share.is_some(),
        is_index: true,
        share,
    };
    let wanted = config.indexes.iter().filter(|index| index.built).filter_map(|index| {
        if index.partitioning.is_none() {
            return Some(one(index, None));
        }
        let held = Arc::new(cluster.held_by(node, index));
        let share = Share { held, is_moving: cluster.rebalance.is_some() };
        (share.is_moving || !share.held.is_empty()).then(|| one(index, Some(share)))
    });
    wanted.collect()
}

/// What a share of an index adds to the name of its space.
fn suffix(share: &Share) -> String {
    let held: Vec<_> = share.held.iter().map(u16::to_string).collect();
    format!("/{}", held.join("-"))
}

/// What an index is deployed under. No bucket has a space in its name, and no package either.
pub(super) fn index_name(bucket: &str, index: &nacre_cluster::Index) -> String {
    format!("index {} on {bucket}.{}.{}", index.name, index.scope, index.collection)
}

/// What runs a package.
pub(super) fn code_of(manifest: &Manifest, digest: &str) -> Code {
    match manifest.script {
        Some(_) => JS,
        None => Code::Uploaded(digest.to_owned()),
    }
}

/// The deployments of packages that read from `bucket`.
pub(super) fn of_packages(cluster: &Cluster, bucket: &nacre_cluster::Bucket) -> Vec<Spec> {
    let plugins = &cluster.plugins;
    let deployed = plugins.deployments.iter().filter(|(_, one)| one.world.follows_documents());
    let specs = deployed.filter_map(|(name, wanted)| {
        let source = wanted.source.as_ref().filter(|source| source.bucket == bucket.name)?;
        // A deployed package is never dropped, and was read before it was stored.
        let package = plugins.package(&wanted.package, &wanted.version).ok()?;
        let manifest = Manifest::read(&package.manifest).ok()?;
        let found = numbers(&bucket.manifest, source);
        let numbers = found.clone().unwrap_or_else(|_| "none".into());
        let config = nacre_value::crc32c(wanted.config.as_bytes());
        Some(Spec {
            name: name.clone(),
            code: code_of(&manifest, &package.digest),
            version: wanted.version.clone(),
            script: manifest.script.is_some().then(|| package.digest.clone()),
            source: found.map(|_| source.clone()),
            since: wanted.since,
            begin: wanted.begin.as_deref().and_then(points_of),
            config: wanted.config.clone(),
            limits: manifest.limits.within(Limits::default()),
            grants: manifest.grants(),
            owner: wanted.owner.clone(),
            paused: wanted.paused,
            held: None,
            tries: Some(wanted.tries),
            is_development: false,
            pace: None,
            form: match wanted.world {
                World::IndexType => Some(StateForm::Resident),
                _ => manifest.state,
            },
            old: manifest.events.old,
            space: format!(
                "{PLUGINS_SPACE}{name}/{}-{}/{}-{}/{numbers}/{config:08x}-{}/{}",
                wanted.uuid,
                wanted.replays,
                bucket.uuid,
                bucket.flushes,
                wanted.config.len(),
                manifest.state_version
            ),
            beside: true,
            is_index: wanted.world == World::IndexType,
            share: None,
        })
    });
    specs.collect()
}

/// The points of a token, which was read before it was stored.
fn points_of(begin: &str) -> Option<Arc<BTreeMap<Vbid, ResumePoint>>> {
    begin.parse::<Token>().ok().map(|token| Arc::new(token.into_points()))
}

/// The collections that a source names, as of one manifest. Documents of others are passed over.
#[derive(Default)]
pub(super) struct Selection {
    /// Of the manifest that was looked at last.
    uid: Option<u64>,
    collections: BTreeSet<CollectionId>,
}

impl Selection {
    /// Looks again when the manifest is another one. A collection is in its manifest before it has a document.
    pub fn follow(&mut self, manifest: &Collections, source: &Source) {
        if self.uid != Some(manifest.uid) {
            let found = manifest.collections(source.scope.as_deref(), source.collection.as_deref());
            self.collections = found.unwrap_or_default().into_iter().collect();
            self.uid = Some(manifest.uid);
        }
    }

    /// As [`Selection::follow`]. A source that is refused names no collections.
    pub fn follow_spec(&mut self, manifest: &Collections, spec: &Spec) {
        if let Ok(source) = &spec.source {
            self.follow(manifest, source);
        }
    }

    pub fn holds(&self, collection: CollectionId) -> bool {
        self.collections.contains(&collection)
    }
}
