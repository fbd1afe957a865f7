//! `nacre plugin inspect`: what a package is and wants, as its code says it and not only its manifest.

use super::{project, test};
use clap::Args;
use nacre_sandbox::{Limits, World};
use std::path::PathBuf;

/// Options of `nacre plugin inspect`.
#[derive(Args, Clone, Debug)]
pub struct Inspect {
    /// A project or its package
    #[arg(default_value = ".")]
    package: PathBuf,
    /// Directory for compiled plugins
    #[arg(long, env = "NACRE_PLUGIN_CACHE")]
    plugin_cache: Option<PathBuf>,
}

/// Shows a package.
///
/// # Errors
/// A sentence for the author of the package.
pub fn inspect(options: &Inspect) -> Result<(), String> {
    let package = project::package(&options.package)?;
    let engine = test::engine(options.plugin_cache.as_ref());
    let plugin = test::check(&engine, &package)?;
    let manifest = &package.manifest;
    let row = |name: &str, value: String| println!("{name:<14} {value}");
    row("package", format!("{} {}", manifest.name, manifest.version));
    if !manifest.description.is_empty() {
        row("", manifest.description.clone());
    }
    row("code", format!("{} ({} bytes)", manifest.file(), package.code().len()));
    row("world", plugin.world().to_string());
    row("state version", manifest.state_version.clone());
    let imports: Vec<&str> = plugin.imports().iter().map(|import| import.as_str()).collect();
    row("imports", imports.join(", "));
    let wanted = manifest.capabilities.missing_from(&Default::default());
    row("to be granted", if wanted.is_empty() { "nothing".into() } else { wanted.join(", ") });
    let most = match plugin.world() {
        World::Service | World::IndexType => Limits::default(),
        _ => Limits::pure(),
    };
    let limits = manifest.limits.within(most);
    row(
        "limits",
        format!(
            "{} MiB of memory, {} ms a call, {} MiB of state",
            limits.memory_bytes >> 20,
            limits.deadline.as_millis(),
            limits.state_bytes >> 20
        ),
    );
    Ok(())
}
