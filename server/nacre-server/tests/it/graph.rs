//! The crate graph: an edge between crates is the rarest kind of change, and shows up here.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::process::Command;

#[test]
fn crates_depend_on_each_other_as_drawn() {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--no-deps", "--format-version", "1"])
        .output()
        .unwrap();
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    let mut edges: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for package in packages {
        let dependencies = package["dependencies"].as_array().unwrap().iter();
        // What tests use is no part of the architecture.
        let mut own: Vec<&str> = dependencies
            .filter(|dependency| dependency["kind"] != "dev" && dependency["path"].is_string())
            .map(|dependency| dependency["name"].as_str().unwrap())
            .collect();
        own.sort_unstable();
        edges.insert(package["name"].as_str().unwrap(), own);
    }
    let mut graph = String::new();
    for (name, own) in &edges {
        writeln!(
            graph,
            "{name} -> {}",
            if own.is_empty() { "-".to_owned() } else { own.join(" ") }
        )
        .unwrap();
    }
    insta::assert_snapshot!(graph);
}
