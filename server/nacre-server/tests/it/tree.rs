//! The shape of the tree: an edge between crates is the rarest kind of change, and shows up here, as does a file that has
//! become too long to be of one subject.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Lines of a file of sources, at most.
const LINES_MAX: usize = 1000;
/// Folders that hold what others wrote, or what was built.
const NOT_SOURCES: [&str; 5] = ["target", "node_modules", "dist", "venv", "__pycache__"];
const LANGUAGES: [&str; 6] = ["rs", "js", "ts", "py", "go", "java"];

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

#[test]
fn what_is_embedded_knows_no_wasm_http_consensus_or_runtime() {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["tree", "-p", "nacre-bucket", "-e", "normal", "--prefix", "none", "--offline"])
        .output()
        .unwrap();
    let tree = String::from_utf8(output.stdout).unwrap();
    let names: Vec<&str> = tree.lines().filter_map(|line| line.split(' ').next()).collect();
    assert!(names.contains(&"nacre-store"), "{tree}");
    for absent in ["wasmtime", "hyper", "openraft", "tokio", "nacre-node", "nacre-sandbox"] {
        assert!(!names.contains(&absent), "nacre-bucket depends on {absent}");
    }
}

#[test]
fn no_file_is_too_long_to_be_of_one_subject() {
    let root = Path::new("../..");
    let mut folders: Vec<PathBuf> =
        ["server", "plugins", "xtask", "conformance", "sdk-js", "sdk-py", "examples"]
            .map(|name| root.join(name))
            .into();
    let (mut seen, mut long) = (0, Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            if path.is_dir() {
                let is_source = !NOT_SOURCES.contains(&name) && !name.starts_with('.');
                folders.extend(is_source.then_some(path));
                continue;
            }
            let extension = path.extension().and_then(|extension| extension.to_str());
            if !extension.is_some_and(|extension| LANGUAGES.contains(&extension)) {
                continue;
            }
            seen += 1;
            let lines = std::fs::read_to_string(&path).unwrap().lines().count();
            long.extend((lines > LINES_MAX).then_some((path, lines)));
        }
    }
    assert!(seen > 500, "{seen} files are not all");
    assert!(long.is_empty(), "{long:?}");
}

/// Files outside of its crate that may name a service: a row in the registry, the manifest of the server, and what is written about it.
const NAMING_A_SERVICE_MAX: usize = 3;

#[test]
fn a_service_is_one_crate_and_one_row() {
    // The toy service has a port, a route, a message between nodes and a metric. Its example is a server with its row.
    let service = "echo";
    let names = [
        format!("nacre-{service}"),
        format!("nacre_{service}"),
        format!("{service}-server"),
        format!("{service}SSL"),
    ];
    let own = Path::new("../..").join(format!("server/nacre-{service}"));
    assert!(own.join("src/lib.rs").exists(), "the service is a crate");
    let mut folders = vec![PathBuf::from("../..")];
    let mut naming = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            if path.is_dir() {
                let is_source = !NOT_SOURCES.contains(&name) && !name.starts_with('.');
                folders.extend((is_source && path != own).then_some(path));
                continue;
            }
            let extension = path.extension().and_then(|extension| extension.to_str());
            // Snapshots and the lock file are written by tools.
            if !extension.is_some_and(|extension| ["rs", "toml", "md"].contains(&extension))
                || path.ends_with("tests/it/tree.rs")
            {
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            if names.iter().any(|name| text.contains(name.as_str())) {
                naming.push(path);
            }
        }
    }
    assert!(naming.len() <= NAMING_A_SERVICE_MAX, "{naming:?}");
}
