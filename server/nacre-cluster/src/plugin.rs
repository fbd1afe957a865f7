//! Plugins: uploaded packages and their deployments.

use crate::Refusal;
use crate::change::DroppedPath;
use nacre_types::{PLUGIN_NAME_BYTES_MAX, check_plain_name};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// An uploaded package. Each node stores its bytes under their digest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Package {
    /// SHA-256 of the uploaded package, in hexadecimal.
    pub digest: String,
    /// Text of its `plugin.toml`.
    pub manifest: String,
}

/// Where a deployment starts to read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Since {
    /// At the first mutation in history.
    #[default]
    Everything,
    /// At the first write after the deployment.
    Now,
}

/// The kind of a deployment, as declared by the world of its package.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum World {
    /// Consumes documents, derives a state and answers requests.
    #[default]
    Service,
    /// Provides functions for queries. It belongs to no bucket.
    Functions,
    /// Resolves the conflicts of one bucket.
    Resolver,
    /// Consumes documents, and derives sorted index entries.
    #[serde(rename = "index-type")]
    IndexType,
}

impl World {
    fn is_service(&self) -> bool {
        *self == World::Service
    }

    /// Returns true if the deployment consumes documents and derives a state.
    pub fn follows_documents(&self) -> bool {
        matches!(self, World::Service | World::IndexType)
    }
}

impl std::fmt::Display for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            World::Service => "service",
            World::Functions => "functions",
            World::Resolver => "resolver",
            World::IndexType => "index-type",
        })
    }
}

/// The documents that a deployment consumes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// The bucket.
    pub bucket: String,
    /// The scope; `None` for all scopes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// The collection; `None` for all collections of the scope.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collection: Option<String>,
}

/// A deployment of a package.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deployment {
    /// UUID: 32 hexadecimal digits, chosen at the first deployment and kept by upgrades.
    pub uuid: String,
    /// Name of the package.
    pub package: String,
    /// Version of the package.
    pub version: String,
    /// Kind of the deployment.
    #[serde(default, skip_serializing_if = "World::is_service")]
    pub world: World,
    /// The source of documents, or the bucket whose conflicts it resolves; `None` for functions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Source>,
    /// Where it started to read.
    #[serde(default)]
    pub since: Since,
    /// The token of changes after which it starts whenever its state is built. With `since` `now`, the token at the
    /// time of the deployment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begin: Option<String>,
    /// Configuration given by the deployer, in JSON.
    pub config: String,
    /// The part of the manifest's grants that the deployer has granted, in JSON; empty for all.
    #[serde(default)]
    pub grants: String,
    /// True if the deployment is paused.
    #[serde(default)]
    pub paused: bool,
    /// Number of restarts of its state.
    #[serde(default)]
    pub replays: u64,
    /// Number of orders to continue while it was not paused, each of which reopens a failed deployment.
    #[serde(default)]
    pub tries: u64,
    /// The user whose privileges it has; empty for deployments from before owners were recorded.
    #[serde(default)]
    pub owner: String,
}

impl Deployment {
    /// Returns the bucket that it belongs to; dropping the bucket removes the deployment.
    pub fn bucket(&self) -> Option<&str> {
        self.source.as_ref().map(|source| source.bucket.as_str())
    }

    /// Checks that its source is valid for its world.
    fn check_source(&self) -> Result<(), Refusal> {
        let world = self.world;
        let invalid = |wants: &str| {
            let reason = format!("a deployment of the world `{world}` {wants}");
            Err(Refusal::Invalid { field: "_", reason })
        };
        match (world, &self.source) {
            (World::Service | World::Resolver | World::IndexType, None) => {
                invalid("belongs to a bucket: name the bucket")
            }
            (World::Functions, Some(_)) => invalid("belongs to no bucket: leave the bucket out"),
            (World::Resolver, Some(Source { scope: Some(_), .. })) => {
                invalid("belongs to a whole bucket: leave the scope out")
            }
            (World::Functions | World::Resolver, _)
                if self.since != Since::default() || self.begin.is_some() =>
            {
                invalid("reads no documents: leave out where to begin")
            }
            _ => Ok(()),
        }
    }
}

/// All packages, and all deployments.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plugins {
    /// Packages by name, then by version.
    pub packages: BTreeMap<String, BTreeMap<String, Package>>,
    /// Deployments by name.
    pub deployments: BTreeMap<String, Deployment>,
}

impl Plugins {
    /// Returns a version of a package.
    ///
    /// # Errors
    /// [`Refusal::PackageNotFound`].
    pub fn package(&self, name: &str, version: &str) -> Result<&Package, Refusal> {
        self.packages.get(name).and_then(|versions| versions.get(version)).ok_or_else(|| {
            Refusal::PackageNotFound { name: name.to_owned(), version: version.to_owned() }
        })
    }

    /// Returns the deployment `name`.
    ///
    /// # Errors
    /// [`Refusal::DeploymentNotFound`].
    pub fn deployment(&self, name: &str) -> Result<&Deployment, Refusal> {
        self.deployments
            .get(name)
            .ok_or_else(|| Refusal::DeploymentNotFound { name: name.to_owned() })
    }

    /// Returns the conflict resolver of a bucket, with its name.
    pub fn resolver_of(&self, bucket: &str) -> Option<(&str, &Deployment)> {
        let resolves =
            |one: &&Deployment| one.world == World::Resolver && one.bucket() == Some(bucket);
        let all = self.deployments.iter();
        all.map(|(name, one)| (name.as_str(), one)).find(|(_, one)| resolves(one))
    }

    /// Returns a deployment that consumes documents. `done` names the operation for the error.
    fn follower_mut(&mut self, name: &str, done: &str) -> Result<&mut Deployment, Refusal> {
        let found = self
            .deployments
            .get_mut(name)
            .ok_or_else(|| Refusal::DeploymentNotFound { name: name.to_owned() })?;
        if found.world.follows_documents() {
            return Ok(found);
        }
        let world = found.world;
        let reason = format!(
            "a deployment of the world `{world}` follows no documents: it cannot be {done}"
        );
        Err(Refusal::Invalid { field: "_", reason })
    }

    pub(crate) fn put_package(
        &mut self,
        name: &str,
        version: &str,
        package: &Package,
    ) -> Result<(), Refusal> {
        check_name("name", name)?;
        let versions = self.packages.entry(name.to_owned()).or_default();
        match versions.get(version) {
            Some(known) if known != package => {
                Err(Refusal::PackageExists { name: name.to_owned(), version: version.to_owned() })
            }
            _ => {
                versions.insert(version.to_owned(), package.clone());
                Ok(())
            }
        }
    }

    pub(crate) fn drop_package(&mut self, name: &str, version: &str) -> Result<(), Refusal> {
        self.package(name, version)?;
        let user = self
            .deployments
            .iter()
            .find(|(_, deployment)| deployment.package == name && deployment.version == version);
        if let Some((deployment, _)) = user {
            return Err(Refusal::PackageInUse { deployment: deployment.clone() });
        }
        let versions = self.packages.get_mut(name).expect("the package was found");
        versions.remove(version);
        if versions.is_empty() {
            self.packages.remove(name);
        }
        Ok(())
    }

    /// Creates or changes a deployment. Version, configuration, grants and start may change; the source may not.
    pub(crate) fn deploy(&mut self, name: &str, wanted: &Deployment) -> Result<(), Refusal> {
        check_name("deployment", name)?;
        self.package(&wanted.package, &wanted.version)?;
        wanted.check_source()?;
        let mut wanted = wanted.clone();
        if wanted.world == World::Resolver
            && let Some((other, _)) = wanted.bucket().and_then(|bucket| self.resolver_of(bucket))
            && other != name
        {
            return Err(Refusal::ResolverExists { deployment: other.to_owned() });
        }
        if let Some(known) = self.deployments.get(name) {
            if (&known.package, known.world, &known.source)
                != (&wanted.package, wanted.world, &wanted.source)
            {
                return Err(Refusal::DeploymentExists { name: name.to_owned() });
            }
            wanted.uuid.clone_from(&known.uuid);
            // A deployment with another start needs another state.
            let is_moved = (known.since, &known.begin) != (wanted.since, &wanted.begin);
            wanted.replays = known.replays + u64::from(is_moved);
            wanted.tries = known.tries;
        }
        self.deployments.insert(name.to_owned(), wanted);
        Ok(())
    }

    pub(crate) fn set_owner(&mut self, name: &str, owner: &str) -> Result<(), Refusal> {
        let missing = || Refusal::DeploymentNotFound { name: name.to_owned() };
        owner.clone_into(&mut self.deployments.get_mut(name).ok_or_else(missing)?.owner);
        Ok(())
    }

    pub(crate) fn set_paused(&mut self, name: &str, paused: bool) -> Result<(), Refusal> {
        let deployment = self.follower_mut(name, "paused")?;
        deployment.tries += u64::from(!paused && !deployment.paused);
        deployment.paused = paused;
        Ok(())
    }

    pub(crate) fn replay(
        &mut self,
        name: &str,
        begin: Option<&(Since, Option<String>)>,
    ) -> Result<(), Refusal> {
        let deployment = self.follower_mut(name, "replayed")?;
        deployment.replays += 1;
        if let Some((since, begin)) = begin {
            deployment.since = *since;
            deployment.begin.clone_from(begin);
        }
        Ok(())
    }

    pub(crate) fn undeploy(&mut self, name: &str) -> Result<(), Refusal> {
        self.deployment(name)?;
        self.deployments.remove(name);
        Ok(())
    }

    /// Removes the deployments of a dropped bucket.
    pub(crate) fn forget(&mut self, dropped: &DroppedPath<'_>) {
        if dropped.scope.is_none() {
            self.deployments.retain(|_, deployment| deployment.bucket() != Some(dropped.bucket));
        }
    }
}

fn check_name(field: &'static str, name: &str) -> Result<(), Refusal> {
    check_plain_name(name, PLUGIN_NAME_BYTES_MAX)
        .map_err(|reason| Refusal::Invalid { field, reason })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(digest: &str) -> Package {
        Package { digest: digest.into(), manifest: String::new() }
    }

    fn source(bucket: &str) -> Option<Source> {
        Some(Source { bucket: bucket.into(), scope: None, collection: None })
    }

    fn deployment(version: &str) -> Deployment {
        Deployment {
            uuid: format!("uuid of {version}"),
            package: "counter".into(),
            version: version.into(),
            world: World::Service,
            source: source("a"),
            since: Since::Now,
            begin: Some("token".into()),
            config: "{}".into(),
            grants: String::new(),
            paused: false,
            replays: 0,
            tries: 0,
            owner: String::new(),
        }
    }

    fn plugins() -> Plugins {
        let mut plugins = Plugins::default();
        plugins.put_package("counter", "1", &package("x")).unwrap();
        plugins.put_package("counter", "2", &package("y")).unwrap();
        plugins.deploy("c", &deployment("1")).unwrap();
        plugins
    }

    #[test]
    fn a_version_of_a_package_never_changes() {
        let mut plugins = plugins();
        plugins.put_package("counter", "1", &package("x")).unwrap();
        let other = plugins.put_package("counter", "1", &package("z"));
        assert!(matches!(other, Err(Refusal::PackageExists { .. })));
    }

    #[test]
    fn deployed_packages_cannot_be_removed() {
        let mut plugins = plugins();
        let refusal = plugins.drop_package("counter", "1");
        assert_eq!(refusal, Err(Refusal::PackageInUse { deployment: "c".into() }));
        plugins.undeploy("c").unwrap();
        plugins.drop_package("counter", "1").unwrap();
        plugins.drop_package("counter", "2").unwrap();
        assert_eq!(plugins, Plugins::default());
    }

    #[test]
    fn an_upgrade_keeps_identity_but_not_another_source() {
        let mut plugins = plugins();
        plugins.replay("c", None).unwrap();
        plugins.set_paused("c", false).unwrap();
        plugins.deploy("c", &Deployment { since: Since::Everything, ..deployment("2") }).unwrap();
        let upgraded = plugins.deployment("c").unwrap();
        let kept = (upgraded.uuid.as_str(), upgraded.replays, upgraded.tries);
        let new = (upgraded.since, upgraded.version.as_str());
        assert_eq!((kept, new), (("uuid of 1", 2, 1), (Since::Everything, "2")));
        let moved = plugins.deploy("c", &Deployment { source: source("b"), ..deployment("2") });
        assert!(matches!(moved, Err(Refusal::DeploymentExists { .. })));
    }

    #[test]
    fn a_deployment_that_moves_its_start_begins_again() {
        let mut plugins = plugins();
        let since_now =
            |begin: Option<&str>| Deployment { begin: begin.map(str::to_owned), ..deployment("1") };
        let everything = Deployment { since: Since::Everything, ..since_now(None) };
        let mut replays = |wanted| {
            plugins.deploy("old", &wanted).unwrap();
            plugins.deployment("old").unwrap().replays
        };
        // A deployment without a token, as stored by earlier versions.
        assert_eq!(replays(since_now(None)), 0);
        assert_eq!(replays(since_now(None)), 0);
        assert_eq!(replays(everything.clone()), 1);
        assert_eq!(replays(everything.clone()), 1);
        let after = |token: &str| Deployment { begin: Some(token.into()), ..everything.clone() };
        assert_eq!(replays(after("a")), 2);
        assert_eq!(replays(after("b")), 3);
        assert_eq!(replays(after("a")), 4);
    }

    #[test]
    fn resuming_after_a_pause_is_not_a_retry() {
        let mut plugins = plugins();
        for paused in [true, true, false] {
            plugins.set_paused("c", paused).unwrap();
        }
        assert_eq!(plugins.deployment("c").unwrap().tries, 0);
        plugins.set_paused("c", false).unwrap();
        assert_eq!(plugins.deployment("c").unwrap().tries, 1);
    }

    #[test]
    fn functions_belong_to_no_bucket_and_each_bucket_has_one_resolver() {
        let mut plugins = plugins();
        let of = |world, source| {
            let since = Since::Everything;
            Deployment { world, source, since, begin: None, ..deployment("1") }
        };
        let functions = of(World::Functions, None);
        plugins.deploy("f", &functions).unwrap();
        plugins.deploy("a", &of(World::Resolver, source("a"))).unwrap();
        plugins.deploy("a", &of(World::Resolver, source("a"))).unwrap();
        plugins.deploy("b", &of(World::Resolver, source("b"))).unwrap();
        let second = plugins.deploy("a2", &of(World::Resolver, source("a")));
        assert_eq!(second, Err(Refusal::ResolverExists { deployment: "a".into() }));
        assert_eq!(plugins.resolver_of("b").map(|(name, _)| name), Some("b"));
        let scope = Some("s".into());
        let part = Some(Source { bucket: "c".into(), scope, collection: None });
        for (wrong, why) in [
            (of(World::Functions, source("a")), "leave the bucket out"),
            (of(World::Resolver, None), "name the bucket"),
            (of(World::Service, None), "name the bucket"),
            (of(World::IndexType, None), "name the bucket"),
            (of(World::Resolver, part), "leave the scope out"),
            (Deployment { since: Since::Now, ..functions.clone() }, "leave out where to begin"),
            (
                Deployment { begin: Some("token".into()), ..functions.clone() },
                "leave out where to begin",
            ),
        ] {
            let refused = plugins.deploy("wrong", &wrong).unwrap_err().to_string();
            assert!(refused.contains(why), "{refused}");
        }
        assert!(plugins.set_paused("f", true).unwrap_err().to_string().contains("paused"));
        assert!(plugins.replay("a", None).unwrap_err().to_string().contains("replayed"));
        let other_world = plugins.deploy("a", &functions);
        assert!(matches!(other_world, Err(Refusal::DeploymentExists { .. })));
        plugins.forget(&DroppedPath { bucket: "a", scope: None, collection: None });
        assert!(plugins.deployments.keys().eq(["b", "f"]));
    }

    #[test]
    fn an_index_type_follows_documents_like_a_service() {
        let mut plugins = plugins();
        let index = Deployment { world: World::IndexType, ..deployment("1") };
        for name in ["i", "j"] {
            plugins.deploy(name, &index).unwrap();
            plugins.set_paused(name, true).unwrap();
            plugins.replay(name, None).unwrap();
        }
        let stored = serde_json::to_value(plugins.deployment("i").unwrap()).unwrap();
        assert_eq!((&stored["world"], &stored["paused"]), (&"index-type".into(), &true.into()));
        plugins.forget(&DroppedPath { bucket: "a", scope: None, collection: None });
        assert!(plugins.deployments.is_empty());
    }

    #[test]
    fn deployments_that_were_stored_before_there_were_worlds_are_services() {
        let stored = r#"{"uuid": "u", "package": "p", "version": "1", "source": {"bucket": "a"}, "config": "{}"}"#;
        let known: Deployment = serde_json::from_str(stored).unwrap();
        assert_eq!((known.world, known.bucket()), (World::Service, Some("a")));
    }

    #[test]
    fn names_are_valid_in_paths() {
        let mut plugins = plugins();
        for name in ["", "-a", "a b", "a/b", "ä", &"x".repeat(65)] {
            let refusal = plugins.deploy(name, &deployment("1"));
            assert!(matches!(refusal, Err(Refusal::Invalid { .. })), "{name:?}");
        }
    }
}
