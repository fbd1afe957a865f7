//! The packages of a node: checks, compiles and stores them under their digests.

use super::kind::code_of;
use super::rights::{self, Need};
use super::shipped::JS;
use super::spec::Code;
use super::{Runtime, pure};
use crate::NodePlugins;
use nacre_cluster::{Change, Deployment, PluginChange, World as Purpose};
use nacre_node::Node;
use nacre_node::{Error, Platform};
use nacre_sandbox::{Limits, Manifest, Package, Plugin, Setup, World, validate};
use std::sync::Arc;

/// Prefix of the names of packages' spaces.
const SPACE: &str = "packages/";
/// Maximum size of a row in bytes; the store would put larger ones into separate files.
const ROW_BYTES: usize = 24 << 10;

/// Checks a package, compiles it, stores it and announces it. Returns its name and version. Takes seconds: do not call
/// it on a thread for which others wait.
///
/// # Errors
/// [`Error::Package`] with the reason, [`Error::Refused`] if its version exists, or the error of the disk.
pub fn add(node: &Arc<Node>, archive: &[u8]) -> Result<(String, String), Error> {
    let package = Package::read(archive).map_err(Error::Package)?;
    package.manifest.check().map_err(Error::Package)?;
    let digest = nacre_sandbox::digest(archive);
    check(node, &package, None).map_err(Error::Package)?;
    let Package { manifest, manifest_text, .. } = package;
    let identity = (manifest.name, manifest.version);
    let (name, version) = identity.clone();
    let known = nacre_cluster::Package { digest: digest.clone(), manifest: manifest_text };
    let change = Change::Plugins(PluginChange::PutPackage { name, version, package: known });
    // Do not store the bytes of a package that would be refused.
    (*node.cluster()).clone().apply(&change).map_err(Error::Refused)?;
    keep(node, &digest, archive)?;
    node.change(&change)?;
    Ok(identity)
}

/// Returns the rights that the owner of a deployment needs.
pub fn needs(deployment: &Deployment, manifest: &Manifest) -> Vec<Need> {
    match (&deployment.source, deployment.world) {
        (Some(source), Purpose::Resolver) => rights::resolving(source),
        (Some(source), _) => rights::needs(source, &manifest.grants()),
        (None, _) => Vec::new(),
    }
}

/// Returns the rights that a user needs to read what a deployment can read.
pub fn reading(deployment: &Deployment, manifest: &Manifest) -> Vec<Need> {
    let source = deployment.source.as_ref();
    source.map(|source| rights::reading(source, &manifest.grants())).unwrap_or_default()
}

/// Returns why a deployment is held, if its owner lacks a right.
pub fn held(node: &Node, deployment: &Deployment, manifest: &Manifest) -> Option<String> {
    rights::hold(&node.users(), &deployment.owner, &needs(deployment, manifest), None)
}

/// Stores the bytes of a package.
fn keep(node: &Node, digest: &str, archive: &[u8]) -> Result<(), nacre_store::Error> {
    let space = node.platform.spaces().open(&format!("{SPACE}{digest}"))?;
    let rows: Vec<_> = archive
        .chunks(ROW_BYTES)
        .enumerate()
        .map(|(index, chunk)| ((index as u32).to_be_bytes().to_vec(), Some(chunk.to_vec())))
        .collect();
    space.apply(&rows, true)
}

/// Returns the bytes of a package of the cluster; `None` if this node does not have them.
///
/// # Errors
/// Fails if the disk fails.
pub fn archive(node: &Node, digest: &str) -> Result<Option<Vec<u8>>, Error> {
    let cluster = node.cluster();
    let mut known = cluster.plugins.packages.values().flat_map(|versions| versions.values());
    if known.all(|package| package.digest != digest) {
        return Ok(None);
    }
    let rows = node.platform.spaces().open(&format!("{SPACE}{digest}"))?.load()?;
    Ok((!rows.is_empty()).then(|| rows.into_iter().flat_map(|(_, chunk)| chunk).collect()))
}

/// Loads a package and checks it against its manifest and `config`. Errors are for its author.
fn check(node: &Node, package: &Package, config: Option<&str>) -> Result<Runtime, String> {
    let (runtime, config) = if package.manifest.script.is_some() {
        // Without a configuration the script is still parsed, which finds syntax errors.
        let config = package.config(config.unwrap_or("{}"))?;
        (node.plugins().components.get_or_load(node, &JS)?, Some(config))
    } else {
        let manifest = &package.manifest;
        let plugin = load(node, package)?;
        if plugin.world() != manifest.world {
            return Err(format!(
                "plugin.toml says that it is of the world `{}`, but its component is of the world `{}`",
                manifest.world,
                plugin.world()
            ));
        }
        plugin.describe(Limits::default()).map_err(|error| error.to_string())?;
        let state_version = manifest.state_version.clone();
        (Runtime { plugin, state_version }, config.map(str::to_owned))
    };
    if let Some(config) = config {
        let manifest = &package.manifest;
        let limits = match manifest.world {
            World::Service | World::IndexType => Limits::default(),
            _ => pure::limits(manifest),
        };
        let (grants, runs_script) = (manifest.grants(), manifest.script.is_some());
        let budgets = node.memory().budgets().clone();
        let setup =
            Setup { limits, grants, runs_script, budgets, ..Setup::new(&manifest.name, config) };
        validate(&runtime.plugin, setup).map_err(|error| error.to_string())?;
    }
    Ok(runtime)
}

/// Loads the component of a package. Versions that differ only in their manifests share the compiled code.
pub(super) fn load(node: &Node, package: &Package) -> Result<Plugin, String> {
    let component = package.code();
    node.platform.load_plugin(&package.manifest.name, &nacre_sandbox::digest(component), component)
}

/// Returns the package with that digest from this node, or from another node that has it.
pub(super) fn read(node: &Node, digest: &str) -> Result<Package, String> {
    let whole = |archive: &[u8]| match nacre_sandbox::digest(archive) == digest {
        true => Package::read(archive),
        false => Err(format!("the package {digest} is damaged: upload it again")),
    };
    if let Some(archive) = archive(node, digest).map_err(|error| error.to_string())? {
        return whole(&archive);
    }
    let archive = node.platform.fetch_package(digest)?;
    let package = whole(&archive)?;
    keep(node, digest, &archive).map_err(|error| error.to_string())?;
    Ok(package)
}

/// Deletes the bytes of a deleted package.
pub(crate) fn forget(platform: &dyn Platform, digest: &str) -> Result<(), nacre_store::Error> {
    platform.spaces().remove(&format!("{SPACE}{digest}"))
}

/// Loads a package before its deployment, and lets it check a configuration. Do not call it on a thread for which
/// others wait.
///
/// # Errors
/// The error, for the deployer.
pub fn prepare(
    node: &Arc<Node>,
    known: &nacre_cluster::Package,
    config: &str,
) -> Result<(), String> {
    let package = read(node, &known.digest)?;
    let code = code_of(&package.manifest, &known.digest);
    let runtime = check(node, &package, Some(config))?;
    node.plugins().components.put(code, Ok(runtime));
    Ok(())
}

impl std::fmt::Display for Code {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Code::Shipped(name) => f.write_str(name),
            Code::Uploaded(digest) => f.write_str(&digest[..digest.len().min(12)]),
        }
    }
}
