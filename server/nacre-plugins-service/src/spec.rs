//! A wanted deployment, derived from the agreed state: design documents and deployed packages have the same form.

use super::kind::{IndexOptions, Pace, PackageOptions, Share, ViewOptions, WorkloadKind};
use super::rights;
use nacre_auth::Users;
use nacre_cluster::{Manifest as Collections, Refusal, Since, Source};
use nacre_dcp::ResumePoint;
use nacre_sandbox::{Grants, Limits};
use nacre_state::StateForm;
use nacre_types::{CollectionId, Vbid};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The code that a deployment runs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Code {
    /// A component that comes with the binary: `views`, `js`, `eventing`.
    Shipped(&'static str),
    /// An uploaded component, by the digest of its package.
    Uploaded(String),
}

/// A wanted deployment.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Spec {
    /// `bucket/design document`, or the name of the deployment.
    pub name: String,
    /// The kind of workload.
    pub kind: &'static dyn WorkloadKind,
    pub code: Code,
    /// The source that it reads, or the reason why that does not exist.
    pub source: Result<Source, Refusal>,
    pub since: Since,
    /// Configuration from its deployer.
    pub config: String,
    pub limits: Limits,
    pub grants: Grants,
    /// The user with whose rights it acts; empty if it needs none, or the user is unknown.
    pub owner: String,
    pub paused: bool,
    /// Reason why it is paused although its deployer has not paused it: its owner lacks a right.
    pub held: Option<String>,
    /// True if it receives every version together with the one that it replaced.
    pub old: bool,
    /// Space of its state, named after everything that the state depends on.
    pub space: String,
    /// Options of a design document.
    pub view: Option<ViewOptions>,
    /// Options of an index, whose entries are read without the plugin.
    pub index: Option<IndexOptions>,
    /// Options of a package.
    pub package: Option<PackageOptions>,
    /// The form of its state, if it requests one.
    pub form: Option<StateForm>,
}

impl Spec {
    /// Creates a deployment that reads everything, has no external effects and no options.
    pub fn new(
        kind: &'static dyn WorkloadKind,
        name: String,
        code: Code,
        source: Result<Source, Refusal>,
        space: String,
    ) -> Spec {
        Spec {
            name,
            kind,
            code,
            source,
            since: Since::Everything,
            config: String::new(),
            limits: Limits::default(),
            grants: Grants::own(),
            owner: String::new(),
            paused: false,
            held: None,
            old: false,
            space,
            view: None,
            index: None,
            package: None,
            form: None,
        }
    }

    /// Returns the version of the package; empty for shipped components.
    pub fn version(&self) -> &str {
        self.package.as_ref().map_or("", |package| &package.version)
    }

    /// Returns the digest of the package whose script it runs.
    pub fn script(&self) -> Option<&str> {
        self.package.as_ref()?.script.as_deref()
    }

    /// Returns the number of requests to retry after a failure; `None` for kinds that are retried at every opportunity.
    pub fn tries(&self) -> Option<u64> {
        self.package.as_ref().map(|package| package.tries)
    }

    /// Returns true if it is in development and answers from a part of the vBuckets.
    pub fn is_development(&self) -> bool {
        self.view.as_ref().is_some_and(|view| view.is_development)
    }

    /// Returns its pace; `None` if it processes changes immediately.
    pub fn pace(&self) -> Option<Pace> {
        self.view.as_ref()?.pace
    }

    /// Returns true if it is an index, whose entries are read without the plugin.
    pub fn is_index(&self) -> bool {
        self.index.is_some()
    }

    /// Returns the form of its state; `None` for the node's default. Indexes are resident, because scans borrow their
    /// entries.
    pub fn form(&self) -> Option<StateForm> {
        if self.is_index() { Some(StateForm::Resident) } else { self.form }
    }

    /// Returns this node's share of a partitioned index.
    pub fn share(&self) -> Option<&Share> {
        self.index.as_ref()?.share.as_ref()
    }

    fn begin(&self) -> Option<&Arc<BTreeMap<Vbid, ResumePoint>>> {
        self.package.as_ref()?.begin.as_ref()
    }

    /// Returns true if it begins with changes from its deployment on.
    pub fn begins_now(&self) -> bool {
        self.since == Since::Now && self.begin().is_none()
    }

    /// Returns true if its state reflects the whole history. A deployment that begins now lacks earlier history.
    pub fn has_all_history(&self) -> bool {
        self.since == Since::Everything && self.begin().is_none()
    }

    /// Returns true if it may write documents, send requests or run queries.
    pub fn acts_outside(&self) -> bool {
        let writes = self.grants.kv.iter().any(|grant| grant.write);
        writes || !self.grants.http_out.is_empty() || self.grants.query
    }

    /// Returns the `scope.collection` that the plugin uses by default.
    pub fn keyspace(&self) -> String {
        let named = self.source.as_ref().ok();
        let part = |part: Option<&String>| part.map_or("_default", String::as_str).to_owned();
        let scope = part(named.and_then(|source| source.scope.as_ref()));
        let collection = part(named.and_then(|source| source.collection.as_ref()));
        format!("{scope}.{collection}")
    }

    /// Returns the number of lanes among which a node divides its vBuckets.
    pub fn lanes(&self) -> u16 {
        self.kind.lanes()
    }

    /// Returns the spaces of its lanes.
    pub fn spaces(&self) -> Vec<String> {
        match self.lanes() {
            1 => vec![self.space.clone()],
            lanes => (0..lanes).map(|lane| format!("{}/{lane}", self.space)).collect(),
        }
    }

    /// Returns true if it has no effects other than its state, which can be rebuilt from history at any time.
    pub fn is_fold(&self) -> bool {
        self.kind.is_fold(self)
    }

    /// Pauses it if its owner lacks a right. Views and indexes are not checked, because the roles of their authors include
    /// reading.
    pub fn hold(&mut self, users: &Users) {
        let Ok(source) = &self.source else { return };
        if self.owner.is_empty() {
            return;
        }
        let needs = rights::needs(source, &self.grants);
        self.held = rights::hold(users, &self.owner, &needs, self.kind.bypass());
        self.paused |= self.held.is_some();
    }

    /// Returns true if it has external effects, which a rebuild of the state would repeat.
    pub fn has_effects(&self) -> bool {
        self.kind.has_effects(self)
    }

    /// Returns where it begins in a vBucket that it has not read yet.
    pub fn beginning(&self, vbid: Vbid) -> ResumePoint {
        let begin = self.begin();
        begin.and_then(|points| points.get(&vbid)).copied().unwrap_or_default()
    }

    /// Returns true if its documents are from several collections.
    pub fn spans_collections(&self) -> bool {
        self.source.as_ref().is_ok_and(|source| source.collection.is_none())
    }

    /// Returns true if it has effects that must not be repeated, so that it keeps its position when a vBucket moves.
    pub fn keeps_places(&self) -> bool {
        self.kind.owns_timers()
    }

    /// Returns true if `other` has at least the share of the index that this one wants, and need not give up any of it.
    pub fn is_part_of(&self, other: &Spec) -> bool {
        let (Some(wanted), Some(there)) = (self.share(), other.share()) else { return false };
        let of = |spec: &Spec| spec.space.rsplit_once('/').map(|(of, _)| of.to_owned());
        let is_enough = match wanted.is_moving {
            true => wanted.held.is_subset(&there.held),
            false => wanted.held == there.held,
        };
        is_enough && of(self) == of(other)
    }

    /// Returns true if `other` equals this one except for a pause.
    pub fn is_same_as(&self, other: &Spec) -> bool {
        (&self.code, self.version(), &self.space, &self.config, &self.source)
            == (&other.code, other.version(), &other.space, &other.config, &other.source)
            && self.grants == other.grants
            && self.owner == other.owner
            && self.pace() == other.pace()
            && self.limits == other.limits
            && self.old == other.old
            && self.tries() == other.tries()
    }
}

/// Returns the IDs of the scope and collection that a source names. A new one with the same name has other IDs.
pub(super) fn numbers(manifest: &Collections, source: &Source) -> Result<String, Refusal> {
    match (&source.scope, &source.collection) {
        (Some(scope), Some(collection)) => {
            manifest.resolve(&format!("{scope}.{collection}")).map(|id| id.to_string())
        }
        (Some(scope), None) => manifest.resolve_scope(scope).map(|id| format!("scope {}", id.0)),
        _ => Ok("all".into()),
    }
}

/// The collections that a source selects, according to one manifest. Documents of others are ignored.
#[derive(Default)]
pub(super) struct Selection {
    /// UID of the last manifest that was read.
    uid: Option<u64>,
    collections: BTreeSet<CollectionId>,
}

impl Selection {
    /// Updates the selection if the manifest has changed. A collection is in its manifest before it has a document.
    pub fn follow(&mut self, manifest: &Collections, source: &Source) {
        if self.uid != Some(manifest.uid) {
            let found = manifest.collections(source.scope.as_deref(), source.collection.as_deref());
            self.collections = found.unwrap_or_default().into_iter().collect();
            self.uid = Some(manifest.uid);
        }
    }

    /// As [`Selection::follow`] for a spec. A refused source selects no collections.
    pub fn follow_spec(&mut self, manifest: &Collections, spec: &Spec) {
        if let Ok(source) = &spec.source {
            self.follow(manifest, source);
        }
    }

    pub fn holds(&self, collection: CollectionId) -> bool {
        self.collections.contains(&collection)
    }
}
