//! `nacre plugin new`: a project that builds, tests and deploys by three commands.

use super::project::{PYTHON_KIT, WIT};
use clap::{Args, ValueEnum};
use include_dir::{Dir, include_dir};
use std::path::{Path, PathBuf};

/// The guest SDK in Rust, which a project has a copy of: it needs nothing but a toolchain then.
static KIT: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../plugins/nacre-plugin/src");
/// A script that all projects begin with.
const SCRIPT: &str = include_str!("../../templates/counts.json");

/// What a plugin is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Language {
    /// JavaScript, run as it is
    Js,
    /// Rust, built to a component
    Rust,
    /// Python, built to a component
    Py,
}

/// Options of `nacre plugin new`.
#[derive(Args, Clone, Debug)]
pub struct New {
    /// Name of the plugin, and of the folder that is made
    name: String,
    /// What it is written in
    #[arg(long, value_enum, default_value = "js")]
    lang: Language,
}

/// Makes a project.
///
/// # Errors
/// When the folder is there already, or cannot be written.
pub fn new(options: &New) -> Result<(), String> {
    let name = &options.name;
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    if !name.starts_with(|first: char| first.is_ascii_alphabetic()) || !name.bytes().all(allowed) {
        return Err(format!(
            "{name:?} cannot be a name: letters, digits, '-' and '_', a letter first"
        ));
    }
    let project = PathBuf::from(name);
    if project.exists() {
        return Err(format!("{name} is there already"));
    }
    for (path, content) in files(options.lang) {
        write(&project.join(path), &content.replace("{{name}}", name))?;
    }
    if options.lang == Language::Rust {
        copy(&KIT, &project.join("vendor/nacre-plugin/src"))?;
    }
    println!("{name} is ready:");
    println!("  nacre plugin build {name}");
    println!("  nacre plugin test {name}");
    println!("  nacre plugin deploy {name} --bucket BUCKET");
    Ok(())
}

fn files(language: Language) -> Vec<(&'static str, &'static str)> {
    let mut files = vec![("tests/counts.json", SCRIPT)];
    files.extend(match language {
        Language::Js => vec![
            ("plugin.toml", include_str!("../../templates/js/plugin.toml")),
            ("main.js", include_str!("../../templates/js/main.js")),
            ("nacre.d.ts", include_str!("../../../../plugins/js/nacre.d.ts")),
            ("jsconfig.json", include_str!("../../templates/js/jsconfig.json")),
        ],
        Language::Rust => vec![
            ("plugin.toml", include_str!("../../templates/rust/plugin.toml")),
            ("Cargo.toml", include_str!("../../templates/rust/cargo.toml")),
            ("src/lib.rs", include_str!("../../templates/rust/lib.rs")),
            ("vendor/nacre-plugin/Cargo.toml", include_str!("../../templates/rust/vendor.toml")),
            ("vendor/wit/plugin.wit", WIT),
            (".gitignore", "target\nplugin.wasm\n*.tar\n"),
        ],
        Language::Py => vec![
            ("plugin.toml", include_str!("../../templates/py/plugin.toml")),
            ("app.py", include_str!("../../templates/py/app.py")),
            PYTHON_KIT,
            (".gitignore", ".venv\n__pycache__\nwit\nplugin.wasm\n*.tar\n"),
        ],
    });
    files
}

fn copy(from: &Dir<'_>, to: &Path) -> Result<(), String> {
    for file in from.files() {
        let name = file.path().file_name().unwrap_or_default();
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
