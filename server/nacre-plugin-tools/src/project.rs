//! Projects of plugins: a folder with `plugin.toml` and the code that it names, which is built first where it is not
//! JavaScript.

use super::{go, test};
use clap::Args;
use nacre_engine as engine;
use nacre_sandbox::{Manifest, Package, TypeScript, World, digest};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

/// A file of the guest SDK in Python.
macro_rules! python_kit {
    ($file:literal) => {
        (
            concat!("nacre_plugin/", $file),
            include_str!(concat!("../../../sdk-py/plugin/nacre_plugin/", $file)),
        )
    };
}

/// Target of Rust code.
const TARGET: &str = "wasm32-unknown-unknown";
/// Makes a component of Python code.
const COMPONENTIZE_PY: &str = "componentize-py==0.25.1";

/// Interfaces that plugins import and export.
pub const WIT: &str = include_str!("../../../plugins/wit/plugin.wit");
/// Where a project has the guest SDK in Python.
const PYTHON_KIT_FOLDER: &str = "nacre_plugin";
/// The guest SDK in Python, which projects have a copy of: path in the project, and text.
pub const PYTHON_KIT: [(&str, &str); 13] = [
    python_kit!("__init__.py"),
    python_kit!("_component.py"),
    python_kit!("_events.py"),
    python_kit!("_faults.py"),
    python_kit!("_http.py"),
    python_kit!("_kv.py"),
    python_kit!("_outside.py"),
    python_kit!("_plugins.py"),
    python_kit!("_reports.py"),
    python_kit!("_requests.py"),
    python_kit!("_state.py"),
    python_kit!("_timers.py"),
    python_kit!("_turns.py"),
];

/// Options of `nacre plugin build`.
#[derive(Args, Clone, Debug)]
pub struct Build {
    /// The folder with plugin.toml
    #[arg(default_value = ".")]
    project: PathBuf,
    /// Directory for compiled plugins
    #[arg(long, env = "NACRE_PLUGIN_CACHE")]
    plugin_cache: Option<PathBuf>,
}

/// Writes the package of a project into its folder, once it is one that a node can load.
///
/// # Errors
/// A sentence for the author of the project.
pub fn build(options: &Build) -> Result<PathBuf, String> {
    let package = package(&options.project)?;
    // A component was checked when it was made one.
    if package.manifest.script.is_some() {
        test::check(&test::engine(options.plugin_cache.as_ref()), &package)?;
    }
    let Manifest { name, version, .. } = &package.manifest;
    let path = options.project.join(format!("{name}-{version}.tar"));
    std::fs::write(&path, package.write())
        .map_err(|error| format!("cannot write {}: {error}", path.display()))?;
    Ok(path)
}

/// The package that `path` is: an archive, or a project, whose code is built when it has changed.
///
/// # Errors
/// A sentence for the author of the project.
pub fn package(path: &Path) -> Result<Package, String> {
    if path.is_file() {
        let package = Package::read(&read(path)?)?;
        return package.manifest.check().map(|()| package);
    }
    if !path.join("plugin.toml").exists() {
        let path = path.display();
        return Err(format!(
            "{path} is not a project: it has no plugin.toml; `nacre plugin new` creates one"
        ));
    }
    let manifest_text = String::from_utf8(read(&path.join("plugin.toml"))?)
        .map_err(|_| "plugin.toml is not UTF-8")?;
    let manifest = Manifest::read(&manifest_text)?;
    manifest.check()?;
    if path.join("Cargo.toml").exists() {
        build_rust(path, &manifest)?;
    } else if path.join("go.mod").exists() {
        go::build(path, &manifest)?;
    } else if path.join("app.py").exists() {
        build_python(path, &manifest)?;
    } else {
        build_typescript(path, &manifest)?;
    }
    let mut files = BTreeMap::new();
    for name in manifest.files() {
        let file = path.join(name);
        let is_typed = name != manifest.file() && name.ends_with(".ts");
        files.insert(name.to_owned(), if is_typed { strip(&file)?.into() } else { read(&file)? });
    }
    Package::new(manifest_text, files)
}

/// The content of a file.
///
/// # Errors
/// Why it cannot be read.
pub fn read(path: &Path) -> Result<Vec<u8>, String> {
    std::fs::read(path).map_err(|error| format!("cannot read {}: {error}", path.display()))
}

/// Writes a file.
///
/// # Errors
/// Why it cannot be written.
pub fn write(path: &Path, content: impl AsRef<[u8]>) -> Result<(), String> {
    std::fs::write(path, content)
        .map_err(|error| format!("cannot write {}: {error}", path.display()))
}

/// Writes a file, unless that is what it has: who watches the folder sees a change only where there is one.
///
/// # Errors
/// Why it cannot be written.
pub fn renew(path: &Path, content: impl AsRef<[u8]>) -> Result<(), String> {
    match std::fs::read(path) {
        Ok(known) if known == content.as_ref() => Ok(()),
        _ => write(path, content),
    }
}

fn make_folder(path: &Path) -> Result<(), String> {
    std::fs::create_dir_all(path)
        .map_err(|error| format!("cannot make {}: {error}", path.display()))
}

/// Runs a tool, whose output is shown as it comes.
///
/// # Errors
/// When it does not start, or fails, with what it was to do.
pub fn run(command: &mut Command, purpose: &str) -> Result<(), String> {
    let tool = command.get_program().to_string_lossy().into_owned();
    let status = command
        .status()
        .map_err(|error| format!("cannot {purpose}: {tool} does not start: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("cannot {purpose}: {tool} failed")) }
}

/// Cargo makes a core module, which becomes a component here.
fn build_rust(project: &Path, manifest: &Manifest) -> Result<(), String> {
    let installed = Command::new("rustc")
        .args(["--print", "target-libdir", "--target", TARGET])
        .output()
        .map_err(|error| {
            format!(
                "a toolchain for Rust is needed (see https://rustup.rs): rustc does not start: {error}"
            )
        })?;
    let folder = String::from_utf8_lossy(&installed.stdout).trim().to_owned();
    if !Path::new(&folder).exists() {
        run(
            Command::new("rustup").args(["target", "add", TARGET]),
            &format!("install the target {TARGET}, which this toolchain for Rust does not have"),
        )?;
    }
    // A first build takes a minute, in which cargo is quiet.
    eprintln!("building {} with cargo", manifest.name);
    let target_dir =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| project.join("target"), PathBuf::from);
    // A path from here, as cargo runs in the project.
    let target_dir = std::path::absolute(target_dir).map_err(|error| error.to_string())?;
    run(
        Command::new("cargo")
            .args(["build", "--quiet", "--lib", "--release", "--target", TARGET])
            .env("CARGO_TARGET_DIR", &target_dir)
            .current_dir(project),
        "build the plugin",
    )?;
    let module = format!("{}.wasm", manifest.name.replace('-', "_"));
    let module = read(&target_dir.join(TARGET).join("release").join(module))?;
    let component = wit_component::ComponentEncoder::default()
        .validate(true)
        .module(&module)
        .and_then(|mut encoder| encoder.encode())
        .map_err(|error| format!("the module cannot be made a component: {error:#}"))?;
    renew(&project.join(manifest.file()), component)
}

/// A component of Python code imports all of its world, used or not: so the project gets a world with what its manifest
/// asks for.
fn build_python(project: &Path, manifest: &Manifest) -> Result<(), String> {
    let component = project.join(manifest.file());
    if is_newer(&component, project, &["tests", "wit"]) {
        return Ok(());
    }
    let tools = project.join(".venv").join("bin");
    let componentize = tools.join("componentize-py");
    if !componentize.exists() {
        eprintln!("Installing {COMPONENTIZE_PY} into {}", tools.display());
        run(
            Command::new("python3").args(["-m", "venv"]).arg(project.join(".venv")),
            "make a Python environment (python3 with its venv module is needed)",
        )?;
        run(
            Command::new(tools.join("pip")).args(["install", "--quiet", COMPONENTIZE_PY]),
            "install the tools that build components from Python",
        )?;
    }
    let wit = project.join("wit");
    make_folder(&wit)?;
    write(&wit.join("plugin.wit"), WIT)?;
    write(&wit.join("project.wit"), world_of(manifest))?;
    make_folder(&project.join(PYTHON_KIT_FOLDER))?;
    for (path, text) in PYTHON_KIT {
        let path = project.join(path);
        if !path.exists() {
            write(&path, text)?;
        }
    }
    let componentize = std::path::absolute(componentize).map_err(|error| error.to_string())?;
    run(
        Command::new(componentize)
            .args(["-d", "wit", "-w", "project", "componentize", "--stub-wasi", "-p", ".", "app"])
            .args(["-o", manifest.file()])
            .current_dir(project),
        "build the plugin",
    )
}

/// A script is made of the file beside it that ends with `.ts`, where there is one.
fn build_typescript(project: &Path, manifest: &Manifest) -> Result<(), String> {
    let script = project.join(manifest.file());
    let source = script.with_extension("ts");
    if manifest.script.is_none() || !source.exists() {
        return Ok(());
    }
    renew(&script, strip(&source)?)
}

/// The text of a file in TypeScript, without its types.
fn strip(file: &Path) -> Result<String, String> {
    let text =
        String::from_utf8(read(file)?).map_err(|_| format!("{} is not UTF-8", file.display()))?;
    let component = engine::shipped("typescript")?;
    let plugin = test::engine(None).load("typescript", &digest(component), component)?;
    let stripped = TypeScript::open(plugin)?.strip(&text);
    stripped.map_err(|reason| format!("{}: {reason}", file.display()))
}

/// Returns true if `file` is newer than every file of a project, except those in the folders `others`.
fn is_newer(file: &Path, project: &Path, others: &[&str]) -> bool {
    let made = std::fs::metadata(file).and_then(|data| data.modified());
    made.is_ok_and(|made| is_unchanged_since(made, project, others))
}

/// Returns true if no file of `folder` was changed after `made`, except those in `others`, in hidden folders, and build output.
fn is_unchanged_since(made: SystemTime, folder: &Path, others: &[&str]) -> bool {
    let Ok(entries) = std::fs::read_dir(folder) else { return false };
    entries.flatten().all(|entry| {
        let (path, name) = (entry.path(), entry.file_name());
        let name = name.to_string_lossy();
        if path.is_dir() {
            let is_other = name.starts_with('.') || others.contains(&name.as_ref());
            return is_other || name == "__pycache__" || is_unchanged_since(made, &path, &[]);
        }
        let is_built = name.ends_with(".wasm") || name.ends_with(".tar");
        is_built || entry.metadata().and_then(|data| data.modified()).is_ok_and(|at| at < made)
    })
}

fn world_of(manifest: &Manifest) -> String {
    if manifest.world == World::Functions {
        return world_with(&["log"], &["lifecycle", "scalar"]);
    }
    let mut imports = vec!["state", "log", "timer", "metrics", "turn"];
    if manifest.has_blobs() {
        imports.push("blob");
    }
    let grants = manifest.grants();
    if !grants.kv.is_empty() {
        imports.push("kv");
    }
    if !grants.http_out.is_empty() {
        imports.push("http-out");
    }
    world_with(&imports, &["lifecycle", "feed", "reader", "timer-handler"])
}

fn world_with(imports: &[&str], exports: &[&str]) -> String {
    let lines = imports
        .iter()
        .map(|name| format!("    import {name};\n"))
        .chain(exports.iter().map(|name| format!("    export {name};\n")));
    format!(
        "package nacre:plugin@0.1.0;\n\n/// What plugin.toml asks for; made by each build.\nworld project {{\n{}}}\n",
        lines.collect::<String>()
    )
}
