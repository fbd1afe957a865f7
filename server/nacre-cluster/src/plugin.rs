//! Plugins: the packages that were uploaded, and what is deployed of them.

use crate::Refusal;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The longest name of a package or deployment: it goes into paths and thread names.
const NAME_BYTES_MAX: usize = 64;

/// A plugin that was uploaded. Its bytes are kept by each node under their digest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Package {
    /// SHA-256 of the package as it was uploaded, in hexadecimal.
    pub digest: String,
    /// Its `plugin.toml`.
    pub manifest: String,
}

/// Where a deployment begins to read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Since {
    /// With the first mutation that there is.
    #[default]
    Everything,
    /// With what is written after it was deployed.
    Now,
}

/// The documents that a deployment reads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// Their bucket.
    pub bucket: String,
    /// Their scope; all when none is named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// Their collection; all of the scope when none is named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collection: Option<String>,
}

/// A package at work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deployment {
    /// 32 hexadecimal digits, chosen when it was first deployed; upgrades keep it.
    pub uuid: String,
    /// Name of the package.
    pub package: String,
    /// Its version.
    pub version: String,
    /// What it reads.
    pub source: Source,
    /// Where it began to read.
    #[serde(default)]
    pub since: Since,
    /// What the deployer tells it, JSON.
    pub config: String,
    /// What the deployer grants of what the manifest asks for, JSON; empty when everything.
    #[serde(default)]
    pub grants: String,
    /// Whether it takes no documents for now.
    #[serde(default)]
    pub paused: bool,
    /// How often it was told to begin again.
    #[serde(default)]
    pub replays: u64,
}

/// All packages, and all deployments by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plugins {
    /// By name, then by version.
    pub packages: BTreeMap<String, BTreeMap<String, Package>>,
    /// By name.
    pub deployments: BTreeMap<String, Deployment>,
}

impl Plugins {
    /// The version `version` of the package `name`.
    ///
    /// # Errors
    /// [`Refusal::PackageNotFound`].
    pub fn package(&self, name: &str, version: &str) -> Result<&Package, Refusal> {
        self.packages.get(name).and_then(|versions| versions.get(version)).ok_or_else(|| {
            Refusal::PackageNotFound { name: name.to_owned(), version: version.to_owned() }
        })
    }

    /// The deployment `name`.
    ///
    /// # Errors
    /// [`Refusal::DeploymentNotFound`].
    pub fn deployment(&self, name: &str) -> Result<&Deployment, Refusal> {
        self.deployments
            .get(name)
            .ok_or_else(|| Refusal::DeploymentNotFound { name: name.to_owned() })
    }

    fn deployment_mut(&mut self, name: &str) -> Result<&mut Deployment, Refusal> {
        self.deployments
            .get_mut(name)
            .ok_or_else(|| Refusal::DeploymentNotFound { name: name.to_owned() })
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

    /// Adds a deployment, or changes one: version, configuration and grants may change, what it reads may not.
    pub(crate) fn deploy(&mut self, name: &str, wanted: &Deployment) -> Result<(), Refusal> {
        check_name("deployment", name)?;
        self.package(&wanted.package, &wanted.version)?;
        let mut wanted = wanted.clone();
        if let Some(known) = self.deployments.get(name) {
            if (&known.package, &known.source) != (&wanted.package, &wanted.source) {
                return Err(Refusal::DeploymentExists { name: name.to_owned() });
            }
            wanted.uuid.clone_from(&known.uuid);
            wanted.since = known.since;
            wanted.replays = known.replays;
        }
        self.deployments.insert(name.to_owned(), wanted);
        Ok(())
    }

    pub(crate) fn set_paused(&mut self, name: &str, paused: bool) -> Result<(), Refusal> {
        self.deployment_mut(name)?.paused = paused;
        Ok(())
    }

    pub(crate) fn replay(&mut self, name: &str) -> Result<(), Refusal> {
        self.deployment_mut(name)?.replays += 1;
        Ok(())
    }

    pub(crate) fn undeploy(&mut self, name: &str) -> Result<(), Refusal> {
        self.deployment(name)?;
        self.deployments.remove(name);
        Ok(())
    }

    /// What reads from a bucket ends with it.
    pub(crate) fn forget_bucket(&mut self, bucket: &str) {
        self.deployments.retain(|_, deployment| deployment.source.bucket != bucket);
    }
}

fn check_name(field: &'static str, name: &str) -> Result<(), Refusal> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    let starts_well = name.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
    if starts_well && name.len() <= NAME_BYTES_MAX && name.bytes().all(allowed) {
        return Ok(());
    }
    let reason = format!(
        "{name:?} cannot be a name: 1 to {NAME_BYTES_MAX} letters, digits, '-' and '_', a letter or digit first"
    );
    Err(Refusal::Invalid { field, reason })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(digest: &str) -> Package {
        Package { digest: digest.into(), manifest: String::new() }
    }

    fn deployment(version: &str) -> Deployment {
        Deployment {
            uuid: format!("uuid of {version}"),
            package: "counter".into(),
            version: version.into(),
            source: Source { bucket: "a".into(), scope: None, collection: None },
            since: Since::Now,
            config: "{}".into(),
            grants: String::new(),
            paused: false,
            replays: 0,
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
    fn what_is_deployed_cannot_be_removed() {
        let mut plugins = plugins();
        let refusal = plugins.drop_package("counter", "1");
        assert_eq!(refusal, Err(Refusal::PackageInUse { deployment: "c".into() }));
        plugins.undeploy("c").unwrap();
        plugins.drop_package("counter", "1").unwrap();
        plugins.drop_package("counter", "2").unwrap();
        assert_eq!(plugins, Plugins::default());
    }

    #[test]
    fn an_upgrade_keeps_identity_and_start_but_not_another_source() {
        let mut plugins = plugins();
        plugins.replay("c").unwrap();
        plugins.deploy("c", &Deployment { since: Since::Everything, ..deployment("2") }).unwrap();
        let upgraded = plugins.deployment("c").unwrap();
        let kept = (upgraded.uuid.as_str(), upgraded.since, upgraded.replays);
        assert_eq!((kept, upgraded.version.as_str()), (("uuid of 1", Since::Now, 1), "2"));
        let source = Source { bucket: "b".into(), scope: None, collection: None };
        let moved = plugins.deploy("c", &Deployment { source, ..deployment("2") });
        assert!(matches!(moved, Err(Refusal::DeploymentExists { .. })));
    }

    #[test]
    fn names_are_fit_for_paths() {
        let mut plugins = plugins();
        for name in ["", "-a", "a b", "a/b", "ä", &"x".repeat(65)] {
            let refusal = plugins.deploy(name, &deployment("1"));
            assert!(matches!(refusal, Err(Refusal::Invalid { .. })), "{name:?}");
        }
    }
}
