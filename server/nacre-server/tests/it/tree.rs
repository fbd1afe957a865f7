//! The shape of the tree: an edge between crates is the rarest kind of change, and shows up here, as does a file that has
//! become too long to be of one subject.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Lines of a file of sources, at most.
const LINES_MAX: usize = 1000;
/// Folders with code of others, or build output.
const NOT_SOURCES: [&str; 5] = ["target", "node_modules", "dist", "venv", "__pycache__"];
const ARCHITECTURE: &str = "../../ARCHITECTURE.md";
/// Words of the architecture, at most: more belongs to the pages about the internals.
const ARCHITECTURE_WORDS_MAX: usize = 2000;
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
    let pictured = std::fs::read_to_string(ARCHITECTURE).unwrap();
    assert!(pictured.contains(&graph), "{ARCHITECTURE} has other arrows than these:\n{graph}");
    insta::assert_snapshot!(graph);
}

#[test]
fn the_architecture_page_has_a_limited_number_of_words() {
    let words = std::fs::read_to_string(ARCHITECTURE).unwrap().split_whitespace().count();
    assert!(words <= ARCHITECTURE_WORDS_MAX, "{ARCHITECTURE} has {words} words");
}

#[test]
fn pages_about_the_code_name_files_and_constants_that_exist() {
    let root = Path::new("../..");
    let mut folders: Vec<PathBuf> =
        ["server", "plugins", "conformance", "fuzz", "xtask"].map(|name| root.join(name)).into();
    let (mut files, mut words) = (Vec::new(), BTreeSet::new());
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            if path.is_dir() {
                folders.extend(is_source_folder(name).then_some(path));
                continue;
            }
            if path.extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                // Names of the wire are text in the conformance suite.
                let definitions =
                    text.lines().filter(|line| line.contains("const ") || line.contains('"'));
                let names = definitions.flat_map(|line| line.split(|c| !is_of_name(c)));
                words.extend(names.filter(|word| is_constant(word)).map(str::to_owned));
            }
            files.push(format!("/{}", path.strip_prefix(root).unwrap().display()));
        }
    }
    let mut pages: Vec<PathBuf> = ["ARCHITECTURE.md", "server/README.md", "plugins/README.md"]
        .map(|name| root.join(name))
        .into();
    pages.extend(
        std::fs::read_dir(root.join("docs/internals")).unwrap().map(|entry| entry.unwrap().path()),
    );
    let (mut checked, mut unknown) = (0, Vec::new());
    for page in pages {
        let text = std::fs::read_to_string(&page).unwrap();
        // Every second piece is between backticks.
        for code in text.split('`').skip(1).step_by(2) {
            let exists = match code.ends_with(".rs") && !code.contains(' ') {
                true => {
                    let end = format!("/{code}");
                    files.iter().any(|file| file.ends_with(&end))
                }
                false if is_constant(code) => words.contains(code),
                false => continue,
            };
            checked += 1;
            if !exists {
                unknown.push(format!("{}: {code}", page.display()));
            }
        }
    }
    assert!(checked > 200, "only {checked} names were found");
    assert!(unknown.is_empty(), "{unknown:#?}");
}

/// Pages that name the tests of guarantees and failures.
const PAGES_WITH_TESTS: [&str; 2] =
    ["docs/concepts/clusters.md", "docs/internals/replication-failures.md"];
/// Folders with these tests, the extension of their files, and the texts before and after a name: functions in Rust, and cases.
const TESTS: [(&str, &str, &str, &str); 2] =
    [("server", "rs", "fn ", "("), ("conformance/cases/xdcr", "json", "\"name\": \"", "\"")];

#[test]
fn tests_that_pages_name_for_a_guarantee_exist() {
    let root = Path::new("../..");
    let mut names = BTreeSet::new();
    for (folder, extension, before, after) in TESTS {
        for path in files(&root.join(folder), extension) {
            let text = std::fs::read_to_string(&path).unwrap();
            let lines = text.lines().filter_map(|line| line.trim_start().strip_prefix(before));
            names.extend(lines.filter_map(|line| Some(line.split_once(after)?.0.to_owned())));
        }
    }
    for page in PAGES_WITH_TESTS {
        let text = std::fs::read_to_string(root.join(page)).unwrap();
        // Every second piece is between backticks.
        let named = text.split('`').skip(1).step_by(2).filter(|code| is_test(code));
        let named: Vec<&str> = named.collect();
        assert!(named.len() > 20, "{page}: only {} tests were found", named.len());
        for name in named {
            assert!(names.contains(name), "{page}: there is no test {name}");
        }
    }
}

/// Returns the files with an extension below a folder, without build output.
fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let (mut folders, mut found) = (vec![folder.to_owned()], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let entry = entry.unwrap();
            let (path, name) = (entry.path(), entry.file_name());
            if path.is_dir() {
                folders.extend(name.to_str().is_some_and(is_source_folder).then_some(path));
            } else if path.extension().is_some_and(|it| it == extension) {
                found.push(path);
            }
        }
    }
    found
}

/// Returns true for names like those of tests, which are sentences.
fn is_test(code: &str) -> bool {
    let is_of_test = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    code.matches('_').count() >= 3 && code.chars().all(is_of_test)
}

fn is_source_folder(name: &str) -> bool {
    !NOT_SOURCES.contains(&name) && !name.starts_with('.')
}

fn is_of_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// Returns true for names of constants that have two words at least: shorter ones may be anything. Environment variables are none.
fn is_constant(word: &str) -> bool {
    word.contains('_')
        && word.starts_with(|c: char| c.is_ascii_uppercase())
        && !word.starts_with("NACRE_")
        && word.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_')
}

#[test]
fn embedded_crates_depend_on_no_wasm_http_consensus_or_runtime() {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    for package in ["nacre-bucket", "nacre-embedded", "nacre-embedded-c"] {
        let output = Command::new(&cargo)
            .args(["tree", "-p", package, "-e", "normal", "--prefix", "none", "--offline"])
            .output()
            .unwrap();
        let tree = String::from_utf8(output.stdout).unwrap();
        let names: Vec<&str> = tree.lines().filter_map(|line| line.split(' ').next()).collect();
        assert!(names.contains(&"nacre-store"), "{tree}");
        for absent in ["wasmtime", "hyper", "openraft", "tokio", "nacre-node", "nacre-sandbox"] {
            assert!(!names.contains(&absent), "{package} depends on {absent}");
        }
    }
}

#[test]
fn a_gateway_has_no_wasm_and_no_consensus() {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(&cargo)
        .args(["tree", "-p", "nacre-edge", "-e", "normal", "--prefix", "none", "--offline"])
        .output()
        .unwrap();
    let tree = String::from_utf8(output.stdout).unwrap();
    let names: Vec<&str> = tree.lines().filter_map(|line| line.split(' ').next()).collect();
    assert!(names.contains(&"nacre-embedded") && names.contains(&"hyper"), "{tree}");
    for absent in ["wasmtime", "cranelift-codegen", "openraft", "nacre-node", "nacre-sandbox"] {
        assert!(!names.contains(&absent), "nacre-edge depends on {absent}");
    }
}

#[test]
fn no_file_is_too_long_to_be_of_one_subject() {
    let root = Path::new("../..");
    let mut folders: Vec<PathBuf> =
        ["server", "plugins", "xtask", "conformance", "sdk-js", "sdk-py", "examples", "console"]
            .map(|name| root.join(name))
            .into();
    let (mut seen, mut long) = (0, Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            if path.is_dir() {
                folders.extend(is_source_folder(name).then_some(path));
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

/// Files outside of its crate that may name a service: a row in the registry, the manifest of the server, and its
/// documentation.
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
                folders.extend((is_source_folder(name) && path != own).then_some(path));
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
