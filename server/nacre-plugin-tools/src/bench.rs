//! `nacre plugin bench`: what documents cost a plugin, in the host that a node runs.

use super::{project, test};
use clap::Args;
use nacre_sandbox::script::measure;
use serde_json::Value;
use std::path::PathBuf;

/// Options of `nacre plugin bench`.
#[derive(Args, Clone, Debug)]
pub struct Bench {
    /// A project or its package
    #[arg(default_value = ".")]
    package: PathBuf,
    /// Documents to process: a JSON array, or one object per line
    #[arg(long)]
    documents: PathBuf,
    /// Total number of documents; the input is repeated under other keys
    #[arg(long, default_value_t = 20_000)]
    count: usize,
    /// Documents per call
    #[arg(long, default_value_t = 256)]
    batch: usize,
    /// Configuration for the plugin, JSON
    #[arg(long, default_value = "{}")]
    config: String,
    /// Directory for compiled plugins
    #[arg(long, env = "NACRE_PLUGIN_CACHE")]
    plugin_cache: Option<PathBuf>,
}

/// Feeds documents and shows what they cost.
///
/// # Errors
/// A sentence about the package or the documents.
pub fn bench(options: &Bench) -> Result<(), String> {
    let package = project::package(&options.package)?;
    let engine = test::engine(options.plugin_cache.as_ref());
    let plugin = test::load(&engine, &package)?;
    let setup = test::setup(&package, &options.config)?;
    let documents = documents(&options.documents)?;
    let measured = measure(&plugin, setup, &documents, options.count, options.batch)
        .map_err(|error| error.to_string())?;
    println!("documents      {} in batches of {}", options.count, options.batch);
    println!("time each      {:.0} ns ({:.0}/s)", measured.ns_each, 1e9 / measured.ns_each);
    println!("failed         {}", measured.failed);
    println!("state          {} bytes", measured.state_bytes);
    println!("memory         {} bytes", measured.memory_bytes);
    Ok(())
}

fn documents(path: &std::path::Path) -> Result<Vec<(String, Value)>, String> {
    let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let text = std::fs::read_to_string(path).map_err(|error| failed(&error))?;
    let values: Vec<Value> = if text.trim_start().starts_with('[') {
        serde_json::from_str(&text).map_err(|error| failed(&error))?
    } else {
        let lines = serde_json::Deserializer::from_str(&text).into_iter();
        lines.collect::<Result<_, _>>().map_err(|error| failed(&error))?
    };
    if values.is_empty() {
        return Err(failed(&"there are no documents"));
    }
    let keyed = values.into_iter().enumerate();
    Ok(keyed.map(|(index, value)| (format!("document_{index}"), value)).collect())
}
