//! `nacre plugin new`: a project that builds, tests and deploys by three commands.

use super::project::{PYTHON_KIT, WIT};
use clap::{Args, ValueEnum};
use include_dir::{Dir, include_dir};
use nacre_types::{PLUGIN_NAME_BYTES_MAX, check_plain_name};
use std::path::{Path, PathBuf};

/// The guest SDK in Rust, which a project has a copy of: it needs nothing but a toolchain then.
static KIT: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../plugins/nacre-plugin/src");
/// The guest SDK in Go, which a project has a copy of as well.
static GO_KIT: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../plugins/nacre-plugin-go");
/// A script that all projects of services begin with.
const SCRIPT: &str = include_str!("../templates/counts.json");

/// Language of a plugin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Language {
    /// JavaScript, run as it is
    Js,
    /// Rust, built to a component
    Rust,
    /// Python, built to a component
    Py,
    /// Go, built to a component
    Go,
}

/// World of a plugin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum World {
    /// Follows documents, keeps a state of them and answers requests
    Service,
    /// Functions for queries
    Functions,
    /// Decides between two versions of a document
    Resolver,
    /// Makes index entries of documents
    IndexType,
}

/// Options of `nacre plugin new`.
#[derive(Args, Clone, Debug)]
pub struct New {
    /// Name of the plugin and of the new folder
    name: String,
    /// Kind of the plugin
    #[arg(
        long = "kind",
        alias = "world",
        value_name = "KIND",
        value_enum,
        default_value = "service"
    )]
    world: World,
    /// Programming language (default: js for services, rust for the others)
    #[arg(long, value_enum)]
    lang: Option<Language>,
}

/// Makes a project.
///
/// # Errors
/// When the folder is there already, or cannot be written.
pub fn new(options: &New) -> Result<(), String> {
    let name = &options.name;
    check_plain_name(name, PLUGIN_NAME_BYTES_MAX)?;
    // Packages of Rust and JavaScript begin with a letter.
    if !name.starts_with(|first: char| first.is_ascii_alphabetic()) {
        return Err(format!("{name:?} cannot be a name: begin it with a letter"));
    }
    let project = PathBuf::from(name);
    if project.exists() {
        return Err(format!("the folder {name} exists already: choose another name"));
    }
    let (files, language) = choose(options.world, options.lang)?;
    let features = match options.world {
        World::Service => "",
        World::Functions => ", features = [\"functions\"]",
        World::Resolver => ", features = [\"resolver\"]",
        World::IndexType => ", features = [\"index-type\"]",
    };
    for (path, content) in files {
        let content = content.replace("{{name}}", name).replace("{{features}}", features);
        write(&project.join(path), &content)?;
    }
    match language {
        Language::Rust => copy(&KIT, &project.join("vendor/nacre-plugin/src"))?,
        Language::Go => copy(&GO_KIT, &project.join("nacre"))?,
        Language::Js | Language::Py => {}
    }
    println!("{name} is ready:");
    println!("  nacre plugin build {name}");
    println!("  nacre plugin test {name}");
    let bucket = if options.world == World::Functions { "" } else { " --bucket BUCKET" };
    println!("  nacre plugin deploy {name}{bucket}");
    Ok(())
}

/// Build output of a project in Python, for `.gitignore`.
const PYTHON_IGNORED: &str = ".venv\n__pycache__\nwit\nplugin.wasm\n*.tar\n";

type Files = Vec<(&'static str, &'static str)>;

/// The files of a project, and the language that they are in.
fn choose(world: World, language: Option<Language>) -> Result<(Files, Language), String> {
    match (world, language) {
        (World::Service, language) => {
            let language = language.unwrap_or(Language::Js);
            Ok((service(language), language))
        }
        (World::Functions, Some(Language::Py)) => Ok((functions_in_python(), Language::Py)),
        (World::Functions, None | Some(Language::Rust)) => Ok((functions(), Language::Rust)),
        (World::Resolver, None | Some(Language::Rust)) => Ok((resolver(), Language::Rust)),
        (World::IndexType, None | Some(Language::Rust)) => Ok((index_type(), Language::Rust)),
        (World::Functions, Some(Language::Js)) => {
            Err("functions in JavaScript need no plugin: CREATE FUNCTION … LANGUAGE JAVASCRIPT"
                .into())
        }
        (World::Functions, Some(Language::Go)) => {
            Err("functions are written in Rust or Python: use --lang rust or --lang py".into())
        }
        (World::Resolver, Some(Language::Js | Language::Py | Language::Go)) => {
            Err("resolvers are written in Rust: use --lang rust".into())
        }
        (World::IndexType, Some(Language::Js | Language::Py | Language::Go)) => {
            Err("kinds of index are written in Rust: use --lang rust".into())
        }
    }
}

/// Files that all projects in Rust have.
fn rust() -> Files {
    vec![
        ("Cargo.toml", include_str!("../templates/rust/cargo.toml")),
        (".cargo/config.toml", include_str!("../templates/rust/config.toml")),
        ("vendor/nacre-plugin/Cargo.toml", include_str!("../templates/rust/vendor.toml")),
        ("vendor/wit/plugin.wit", WIT),
        (".gitignore", "target\nplugin.wasm\n*.tar\n"),
    ]
}

fn functions() -> Files {
    let mut files = rust();
    files.extend([
        ("plugin.toml", include_str!("../templates/rust/functions/plugin.toml")),
        ("src/lib.rs", include_str!("../templates/rust/functions/lib.rs")),
        ("tests/calls.json", include_str!("../templates/rust/functions/calls.json")),
    ]);
    files
}

/// Files that all projects in Python have.
fn python() -> Files {
    let mut files = vec![(".gitignore", PYTHON_IGNORED)];
    files.extend(PYTHON_KIT);
    files
}

fn functions_in_python() -> Files {
    let mut files = python();
    files.extend([
        ("plugin.toml", include_str!("../templates/rust/functions/plugin.toml")),
        ("app.py", include_str!("../templates/py/functions.py")),
        ("tests/calls.json", include_str!("../templates/rust/functions/calls.json")),
    ]);
    files
}

fn resolver() -> Files {
    let mut files = rust();
    files.extend([
        ("plugin.toml", include_str!("../templates/rust/resolver/plugin.toml")),
        ("src/lib.rs", include_str!("../templates/rust/resolver/lib.rs")),
        ("tests/conflicts.json", include_str!("../templates/rust/resolver/conflicts.json")),
    ]);
    files
}

fn index_type() -> Files {
    let mut files = rust();
    files.extend([
        ("plugin.toml", include_str!("../templates/rust/index-type/plugin.toml")),
        ("src/lib.rs", include_str!("../templates/rust/index-type/lib.rs")),
        ("tests/entries.json", include_str!("../templates/rust/index-type/entries.json")),
    ]);
    files
}

fn service(language: Language) -> Files {
    let mut files = vec![("tests/counts.json", SCRIPT)];
    files.extend(match language {
        Language::Js => vec![
            ("plugin.toml", include_str!("../templates/js/plugin.toml")),
            ("main.js", include_str!("../templates/js/main.js")),
            ("nacre.d.ts", include_str!("../../../plugins/js/nacre.d.ts")),
            ("jsconfig.json", include_str!("../templates/js/jsconfig.json")),
        ],
        Language::Rust => {
            let mut files = rust();
            files.extend([
                ("plugin.toml", include_str!("../templates/rust/plugin.toml")),
                ("src/lib.rs", include_str!("../templates/rust/lib.rs")),
            ]);
            files
        }
        Language::Py => {
            let mut files = python();
            files.extend([
                ("plugin.toml", include_str!("../templates/py/plugin.toml")),
                ("app.py", include_str!("../templates/py/app.py")),
            ]);
            files
        }
        Language::Go => vec![
            ("plugin.toml", include_str!("../templates/go/plugin.toml")),
            ("go.mod", include_str!("../templates/go/project.mod")),
            ("main.go", include_str!("../templates/go/main.go")),
            ("main_test.go", include_str!("../templates/go/main_test.go")),
            (".gitignore", "*.wasm\n*.tar\n"),
        ],
    });
    files
}

fn copy(from: &Dir<'_>, to: &Path) -> Result<(), String> {
    for file in from.files() {
        let name = file.path().file_name().unwrap_or_default();
        // The tests of the guest SDK in Go lie beside what they test.
        if name.to_string_lossy().ends_with("_test.go") {
            continue;
        }
        let text = file.contents_utf8().unwrap_or_default();
        write(&to.join(name), text)?;
    }
    for folder in from.dirs() {
        copy(folder, &to.join(folder.path().file_name().unwrap_or_default()))?;
    }
    Ok(())
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("cannot write {}: {error}", path.display());
    std::fs::create_dir_all(path.parent().unwrap_or(Path::new("."))).map_err(failed)?;
    std::fs::write(path, text).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::PYTHON_KIT;
    use std::path::Path;

    /// The lines of a manifest that say what features there are.
    fn features(manifest: &str) -> Vec<&str> {
        let behind = manifest.split_once("[features]\n").unwrap().1;
        let lines = behind.lines().take_while(|line| !line.is_empty());
        let mut lines: Vec<&str> = lines.filter(|line| !line.starts_with('#')).collect();
        lines.sort_unstable();
        lines
    }

    #[test]
    fn a_project_has_the_guest_sdk_with_all_its_features() {
        let sdk = include_str!("../../../plugins/nacre-plugin/Cargo.toml");
        let vendored = include_str!("../templates/rust/vendor.toml");
        assert_eq!(features(vendored), features(sdk));
        let workspace = include_str!("../../../Cargo.toml");
        let (used, _) = sdk.split_once("[dev-dependencies]").unwrap();
        let used = used.split_once("[dependencies]").unwrap().1.lines();
        for name in used.filter_map(|line| line.strip_suffix(".workspace = true")) {
            let is_it = |line: &&str| line.starts_with(&format!("{name} = "));
            let known = workspace.lines().find(is_it).unwrap();
            assert_eq!(vendored.lines().find(is_it), Some(known));
        }
    }

    #[test]
    fn a_project_in_python_has_all_files_of_the_guest_sdk() {
        let sdk = Path::new("../../sdk-py/plugin");
        let entries = std::fs::read_dir(sdk.join("nacre_plugin")).unwrap();
        let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
        files.retain(|path| path.extension().is_some_and(|kind| kind == "py"));
        files.sort();
        assert_eq!(files, PYTHON_KIT.map(|(path, _)| sdk.join(path)));
    }
}
