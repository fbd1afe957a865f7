//! Packages: one deployment per uploaded component or script that is deployed.

use super::{AgreedState, IndexOptions, WorkloadKind};
use crate::Runtime;
use crate::shipped::JS;
use crate::spec::{Code, Spec, numbers};
use nacre_changes_service::Token;
use nacre_cluster::{Cluster, World};
use nacre_dcp::ResumePoint;
use nacre_node::service::Service;
use nacre_sandbox::{Limits, Manifest};
use nacre_types::Vbid;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Options of deployments of packages.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PackageOptions {
    /// Version of the package.
    pub version: String,
    /// Digest of the package whose script runs, if it is a script.
    pub script: Option<String>,
    /// Where the deployment begins in vBuckets that it has not read yet; by default at their first
    /// mutation.
    pub begin: Option<Arc<BTreeMap<Vbid, ResumePoint>>>,
    /// Number of requests to retry after a failure. Other kinds are retried at every opportunity.
    pub tries: u64,
}

/// The kind.
pub(super) struct Packages;

impl WorkloadKind for Packages {
    fn name(&self) -> &'static str {
        "plugins"
    }

    fn specs(&self, agreed: &AgreedState<'_>, _runtime: Option<&Runtime>) -> Vec<Spec> {
        of_packages(agreed.cluster, agreed.bucket)
    }

    fn names(&self, agreed: &AgreedState<'_>) -> Vec<String> {
        self.specs(agreed, None).into_iter().map(|spec| spec.name).collect()
    }

    fn components(&self, cluster: &Cluster, _: &[Arc<dyn Service>]) -> Vec<Code> {
        let buckets = cluster.buckets.values();
        buckets.flat_map(|bucket| of_packages(cluster, bucket)).map(|spec| spec.code).collect()
    }

    fn is_fold(&self, spec: &Spec) -> bool {
        spec.is_index() && spec.has_all_history()
    }

    fn keeps_serving(&self, _spec: &Spec) -> bool {
        true
    }

    fn runs_script(&self, spec: &Spec) -> bool {
        spec.script().is_some()
    }
}

/// Returns the component that runs a package.
pub(crate) fn code_of(manifest: &Manifest, digest: &str) -> Code {
    match manifest.script {
        Some(_) => JS,
        None => Code::Uploaded(digest.to_owned()),
    }
}

/// Returns the deployments of packages that read from `bucket`.
fn of_packages(cluster: &Cluster, bucket: &nacre_cluster::Bucket) -> Vec<Spec> {
    let plugins = &cluster.plugins;
    let deployed = plugins.deployments.iter().filter(|(_, one)| one.world.follows_documents());
    let specs = deployed.filter_map(|(name, wanted)| {
        let source = wanted.source.as_ref().filter(|source| source.bucket == bucket.name)?;
        // A deployed package cannot be deleted, and its manifest was checked before it was stored.
        let package = plugins.package(&wanted.package, &wanted.version).ok()?;
        let manifest = Manifest::read(&package.manifest).ok()?;
        let code = code_of(&manifest, &package.digest);
        let found = numbers(&bucket.manifest, source);
        let numbers = found.clone().unwrap_or_else(|_| "none".into());
        let config = nacre_value::crc32c(wanted.config.as_bytes());
        let space = format!(
            "plugins/{name}/{}-{}/{}-{}/{numbers}/{config:08x}-{}/{}",
            wanted.uuid,
            wanted.replays,
            bucket.uuid,
            bucket.flushes,
            wanted.config.len(),
            manifest.state_version
        );
        let package = PackageOptions {
            version: wanted.version.clone(),
            script: manifest.script.is_some().then(|| package.digest.clone()),
            begin: wanted.begin.as_deref().and_then(points_of),
            tries: wanted.tries,
        };
        let is_index = wanted.world == World::IndexType;
        let source = found.map(|_| source.clone());
        Some(Spec {
            since: wanted.since,
            config: wanted.config.clone(),
            limits: manifest.limits.within(Limits::default()),
            grants: manifest.grants(),
            owner: wanted.owner.clone(),
            paused: wanted.paused,
            old: manifest.events.old,
            index: is_index.then(IndexOptions::default),
            package: Some(package),
            form: manifest.state,
            ..Spec::new(&Packages, name.clone(), code, source, space)
        })
    });
    specs.collect()
}

/// Returns the points of a token, which was checked before it was stored.
fn points_of(begin: &str) -> Option<Arc<BTreeMap<Vbid, ResumePoint>>> {
    begin.parse::<Token>().ok().map(|token| Arc::new(token.into_points()))
}
