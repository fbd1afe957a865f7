//! Projects of plugins: a folder with `plugin.toml` and what it names.

use clap::Args;
use nacre_plugin_host::{Manifest, Package};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Options of `nacre plugin build`.
#[derive(Args, Clone, Debug)]
pub struct Build {
    /// The folder with plugin.toml
    #[arg(default_value = ".")]
    project: PathBuf,
}

/// Writes the package of a project into its folder.
///
/// # Errors
/// What is wrong with the project, for its author.
pub fn build(options: &Build) -> Result<PathBuf, String> {
    let package = package(&options.project)?;
    let Manifest { name, version, .. } = &package.manifest;
    let path = options.project.join(format!("{name}-{version}.tar"));
    std::fs::write(&path, package.write())
        .map_err(|error| format!("cannot write {}: {error}", path.display()))?;
    Ok(path)
}

/// The package that `path` is: an archive, or a project.
///
/// # Errors
/// What is wrong with it.
pub fn package(path: &Path) -> Result<Package, String> {
    let read = |path: &Path| {
        std::fs::read(path).map_err(|error| format!("cannot read {}: {error}", path.display()))
    };
    if path.is_file() {
        return Package::read(&read(path)?);
    }
    let manifest = read(&path.join("plugin.toml"))?;
    let manifest = String::from_utf8(manifest).map_err(|_| "plugin.toml is not UTF-8")?;
    let file = Manifest::read(&manifest)?.file().to_owned();
    let code = read(&path.join(&file))?;
    Package::new(manifest, BTreeMap::from([(file, code)]))
}
