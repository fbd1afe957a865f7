//! The bill of materials: every crate in the binary, with its licence and the checksum of its source.

use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use xtask_setup::command::{cargo, output, workspace};

/// Crates of the components in the binary, in addition to those of the server.
const COMPONENTS: [&str; 6] = [
    "nacre-views",
    "nacre-js-service",
    "nacre-eventing",
    "nacre-query",
    "nacre-evaluator",
    "nacre-index",
];

/// Returns the bill of materials of a workspace crate in the format CycloneDX 1.5.
///
/// # Errors
/// Fails when cargo does not report it, or a dependency has no licence.
pub fn of(root: &str, version: &str) -> Result<String, String> {
    let metadata = output(
        cargo().args(["metadata", "--format-version", "1", "--locked", "--offline"]),
        "ask cargo for the dependencies",
    )?;
    let metadata: Value = serde_json::from_str(&metadata)
        .map_err(|error| format!("cannot read cargo metadata: {error}"))?;
    let lock = std::fs::read_to_string(workspace().join("Cargo.lock"))
        .map_err(|error| format!("Cargo.lock: {error}"))?;
    let sums = check_sums(&lock)?;
    let ids = reached(&metadata, &[&[root][..], &COMPONENTS[..]].concat());
    let mut components = Vec::new();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let text = |member: &str| package[member].as_str().unwrap_or_default();
        // The project's own crates are the subject of the bill.
        if !ids.contains(text("id")) || package["source"].is_null() {
            continue;
        }
        let (name, version) = (text("name"), text("version"));
        let license = text("license");
        if license.is_empty() {
            return Err(format!("{name} {version} names no licence"));
        }
        let mut component = json!({
            "type": "library",
            "name": name,
            "version": version,
            "purl": format!("pkg:cargo/{name}@{version}"),
            "licenses": [{"expression": license.split('/').map(str::trim).collect::<Vec<_>>().join(" OR ")}],
        });
        if let Some(sum) = sums.get(&(name.to_owned(), version.to_owned())) {
            component["hashes"] = json!([{"alg": "SHA-256", "content": sum}]);
        }
        components.push(component);
    }
    if components.len() < 100 {
        return Err(format!("{} crates are not all", components.len()));
    }
    let bill = json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": {"type": "application", "name": "nacre", "version": version}},
        "components": components,
    });
    serde_json::to_string_pretty(&bill).map_err(|error| error.to_string())
}

/// Returns the checksums in `Cargo.lock`, by name and version.
fn check_sums(lock: &str) -> Result<BTreeMap<(String, String), String>, String> {
    let lock: toml::Table = lock.parse().map_err(|error| format!("Cargo.lock: {error}"))?;
    let packages = lock.get("package").and_then(toml::Value::as_array);
    let text = |package: &toml::Value, member: &str| {
        package.get(member).and_then(toml::Value::as_str).map(str::to_owned)
    };
    let sums = packages.into_iter().flatten().filter_map(|package| {
        let key = (text(package, "name")?, text(package, "version")?);
        Some((key, text(package, "checksum")?))
    });
    Ok(sums.collect())
}

/// Returns the IDs of the packages that are compiled into these crates, without those of build scripts and
/// tests.
fn reached(metadata: &Value, roots: &[&str]) -> BTreeSet<String> {
    let nodes = metadata["resolve"]["nodes"].as_array();
    let by_id: BTreeMap<&str, &Value> =
        nodes.into_iter().flatten().filter_map(|node| Some((node["id"].as_str()?, node))).collect();
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let mut left: Vec<&str> = packages
        .filter(|package| package["name"].as_str().is_some_and(|name| roots.contains(&name)))
        .filter_map(|package| package["id"].as_str())
        .collect();
    let mut reached = BTreeSet::new();
    while let Some(id) = left.pop() {
        if !reached.insert(id.to_owned()) {
            continue;
        }
        let dependencies = by_id.get(id).and_then(|node| node["deps"].as_array());
        for dependency in dependencies.into_iter().flatten() {
            let mut kinds = dependency["dep_kinds"].as_array().into_iter().flatten();
            if kinds.any(|kind| kind["kind"].is_null()) {
                left.extend(dependency["pkg"].as_str());
            }
        }
    }
    reached
}
