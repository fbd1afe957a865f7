//! The shape of the tree: tiers of crates, the size of a crate, the files of a type, and functions that are tables.
//!
//! The number of exceptions only gets smaller. Circles of modules across tiers need no test of their own, as a tier consists of
//! crates, and crates have no circles.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Tiers of crates, from the ground up. A crate depends on its own tier and those below. A crate that is in no list is a service.
const TIERS: [(&str, &[&str]); 9] = [
    ("words", &["nacre-types", "nacre-value", "nacre-budget"]),
    ("wire", &["nacre-protocol", "nacre-auth", "nacre-cluster"]),
    (
        "history",
        &["nacre-vbucket", "nacre-dcp", "nacre-store", "nacre-xdcr", "nacre-sync", "nacre-backup"],
    ),
    ("bucket", &["nacre-bucket"]),
    ("sandbox", &["nacre-state", "nacre-sandbox", "nacre-engine"]),
    ("node", &["nacre-node", "nacre-client", "nacre-http"]),
    (SERVICES, &[]),
    ("commands", &["nacre-cli", "nacre-backup-tools", "nacre-bench", "nacre-plugin-tools"]),
    (
        "surface",
        &[
            "nacre-links",
            "nacre-rest",
            "nacre-rest-functions",
            "nacre-server",
            "nacre-sim",
            "nacre-embedded",
            "nacre-embedded-c",
            "nacre-embedded-node",
            "nacre-edge",
        ],
    ),
];

/// The tier whose crates have no list, so that a new service is its crate and a row of the registry.
const SERVICES: &str = "services";

/// Crates of the plugins that crates of the server depend on.
const LIBRARIES: [&str; 1] = ["nacre-sql"];
/// Crates of the server that crates of the plugins depend on.
const SHARED: [&str; 1] = ["nacre-value"];

/// Lines of the sources of a crate, at most; tests do not count.
const CRATE_LINES_MAX: usize = 12_000;

/// Files with inherent methods of a type, at most.
const FILES_OF_TYPE_MAX: usize = 4;

/// Functions of more than 100 lines, which the lint `too_many_lines` lets pass because they say why.
const LONG_FUNCTIONS_MAX: usize = 5;

#[test]
fn a_crate_depends_on_its_own_tier_and_those_below() {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--no-deps", "--format-version", "1"])
        .output()
        .unwrap();
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let tiers: BTreeMap<&str, usize> = (0..)
        .zip(TIERS)
        .flat_map(|(tier, (_, crates))| crates.iter().map(move |name| (*name, tier)))
        .collect();
    let services = TIERS.iter().position(|(name, _)| *name == SERVICES).unwrap();
    let tier_of = |name: &str| tiers.get(name).copied().unwrap_or(services);
    let mut seen = BTreeSet::new();
    for package in metadata["packages"].as_array().unwrap() {
        let name = package["name"].as_str().unwrap();
        let path = package["manifest_path"].as_str().unwrap();
        let dependencies = package["dependencies"].as_array().unwrap().iter();
        let own = dependencies
            .filter(|dependency| dependency["kind"] != "dev" && dependency["path"].is_string())
            .map(|dependency| dependency["name"].as_str().unwrap());
        if path.contains("/server/") {
            let tier = tier_of(name);
            seen.insert(name);
            for used in own.filter(|used| !LIBRARIES.contains(used)) {
                let below = tier_of(used);
                let (above, below) = (TIERS[tier].0, (below <= tier).then_some(TIERS[below].0));
                assert!(below.is_some(), "{name} of the tier {above} depends on {used}");
            }
        } else if path.contains("/plugins/") {
            for used in own.filter(|used| tiers.contains_key(used) || used.ends_with("-service")) {
                assert!(SHARED.contains(&used), "{name} runs in a sandbox and depends on {used}");
            }
        }
    }
    let gone: Vec<&&str> = tiers.keys().filter(|name| !seen.contains(**name)).collect();
    assert!(gone.is_empty(), "{gone:?} have a tier and are not there");
}

#[test]
fn no_crate_is_too_large_for_one_subject() {
    let mut seen = 0;
    for crate_dir in crates() {
        let lines: usize = sources(&crate_dir).iter().map(|(_, text)| text.lines().count()).sum();
        seen += usize::from(lines > 0);
        let name = name_of(&crate_dir);
        assert!(lines <= CRATE_LINES_MAX, "{name} has {lines} lines, more than {CRATE_LINES_MAX}");
    }
    assert!(seen > 40, "{seen} crates are not all");
}

#[test]
fn no_type_is_spread_over_many_files() {
    for crate_dir in crates() {
        let mut files: BTreeMap<String, BTreeSet<PathBuf>> = BTreeMap::new();
        for (path, text) in sources(&crate_dir) {
            for name in text.lines().filter_map(type_with_methods) {
                files.entry(name.to_owned()).or_default().insert(path.clone());
            }
        }
        let owner = name_of(&crate_dir);
        for (name, files) in files {
            assert!(files.len() <= FILES_OF_TYPE_MAX, "{name} of {owner} has methods in {files:?}");
        }
    }
}

#[test]
fn few_functions_are_long_and_these_are_tables() {
    // The lint itself is an error wherever clippy runs; this counts what is exempt from it.
    let manifest = std::fs::read_to_string("../../Cargo.toml").unwrap();
    assert!(manifest.contains("too_many_lines = "), "the lint is on");
    let mut exempt = Vec::new();
    for crate_dir in crates() {
        for folder in ["src", "tests", "benches"] {
            for path in rust_files(&crate_dir.join(folder)) {
                let text = std::fs::read_to_string(&path).unwrap();
                let marks = text.lines().filter(|line| {
                    let line = line.trim_start();
                    line.starts_with("#[") && line.contains("clippy::too_many_lines")
                });
                exempt.extend(marks.map(|_| path.clone()));
            }
        }
    }
    assert!(exempt.len() <= LONG_FUNCTIONS_MAX, "{exempt:?}");
}

/// Returns the folders of all crates of the workspace.
fn crates() -> Vec<PathBuf> {
    let root = Path::new("../..");
    let mut found: Vec<PathBuf> =
        ["conformance", "fuzz", "xtask"].map(|name| root.join(name)).into();
    for group in ["server", "plugins", "xtask"] {
        let entries = std::fs::read_dir(root.join(group)).unwrap();
        found.extend(entries.map(|entry| entry.unwrap().path()));
    }
    found.retain(|path| path.join("Cargo.toml").exists());
    found
}

fn name_of(crate_dir: &Path) -> String {
    crate_dir.strip_prefix("../..").unwrap().display().to_string()
}

/// Returns the sources of a crate without the modules of tests that end them.
fn sources(crate_dir: &Path) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    for path in rust_files(&crate_dir.join("src")) {
        let is_test = path.components().any(|part| part.as_os_str() == "tests");
        if is_test || path.ends_with("tests.rs") {
            continue;
        }
        let mut text = std::fs::read_to_string(&path).unwrap();
        let tests = text.match_indices("\n#[cfg(test)]\nmod ").find(|(at, mark)| {
            let rest = &text[at + mark.len()..];
            rest.lines().next().is_some_and(|line| line.ends_with(" {"))
        });
        if let Some((at, _)) = tests {
            text.truncate(at + 1);
        }
        found.push((path, text));
    }
    found
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let (mut folders, mut found) = (vec![folder.to_owned()], Vec::new());
    while let Some(folder) = folders.pop() {
        let Ok(entries) = std::fs::read_dir(&folder) else { continue };
        for path in entries.map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    found
}

/// Returns the name of the type to which an `impl` block that begins with `line` adds methods of its own. Blocks of traits do
/// not count: some traits are made for a host type by the dozen.
fn type_with_methods(line: &str) -> Option<&str> {
    let mut rest = line.strip_prefix("impl")?;
    if rest.starts_with('<') {
        let mut depth = 0;
        let end = rest.char_indices().find(|(at, c)| {
            match c {
                '<' => depth += 1,
                '>' if !rest[..*at].ends_with('-') => depth -= 1,
                _ => {}
            }
            depth == 0
        });
        rest = &rest[end?.0 + 1..];
    }
    let rest = rest.strip_prefix(' ').filter(|rest| !rest.contains(" for "))?;
    let name = rest.split(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != ':').next()?;
    name.rsplit("::").next().filter(|name| !name.is_empty())
}

#[test]
fn inherent_impls_are_distinguished_from_trait_impls() {
    for (line, name) in [
        ("impl Node {", Some("Node")),
        ("impl<'a, E: Error + Fn() -> T> Stream<'a, E> {", Some("Stream")),
        ("impl<T> crate::Named<T>", Some("Named")),
        ("impl Service for Plugins {", None),
        ("impl<T> From<T> for Failure {", None),
        ("    impl Inner {", None),
        ("implement(this);", None),
    ] {
        assert_eq!(type_with_methods(line), name, "{line}");
    }
}
