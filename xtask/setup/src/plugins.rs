//! Builds the shipped plugins: compiles Rust and C to core modules, and converts these to components.
//!
//! QuickJS is C, so this needs a C compiler for Wasm. Set `CC_wasm32_unknown_unknown` to use your own (and
//! `AR_wasm32_unknown_unknown` for its archiver); otherwise the Zig compiler, a clang in a Python wheel, is installed into
//! `$NACRE_TOOLS`, by default `~/.cache/nacre/tools`. It does not need root and changes nothing else.

use crate::command::{cargo, output, run, target_dir, workspace};
use crate::{node, tools};
use clap::Args;
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const TARGET: &str = "wasm32-unknown-unknown";
const CC: &str = "CC_wasm32_unknown_unknown";
const AR: &str = "AR_wasm32_unknown_unknown";
/// Its clang has the LLVM version of the workspace's Rust version.
const ZIG: &str = "ziglang==0.17.0";

/// Options of `cargo xtask plugins`.
#[derive(Args, Debug)]
pub struct Options {
    /// Also build the server and let it compile the plugins for this machine, into the cache that
    /// all chores share
    #[arg(long)]
    aot: bool,
}

/// Builds the plugins and prints their folder.
///
/// # Errors
/// As for [`build`].
pub fn run_chore(options: &Options) -> Result<(), String> {
    println!("{}", build()?.display());
    if options.aot { node::build("dev").map(|_| ()) } else { Ok(()) }
}

/// The components of a world. They are built together, because `nacre-plugin` has the bindings of one world at a time.
struct World {
    /// The world for which the probe's crate is built; there are several.
    probe: Option<&'static str>,
    /// The name and crate of each component.
    components: &'static [(&'static str, &'static str)],
}

/// The shipped components, and those for the host's tests.
const WORLDS: [World; 4] = [
    World {
        probe: None,
        components: &[
            ("views", "nacre-views"),
            ("js", "nacre-js-service"),
            ("eventing", "nacre-eventing"),
            ("query", "nacre-query"),
            ("search", "nacre-search"),
            ("probe", "nacre-probe"),
        ],
    },
    World {
        probe: Some("nacre-probe/functions"),
        components: &[
            ("evaluator", "nacre-evaluator"),
            ("typescript", "nacre-typescript"),
            ("probe-functions", "nacre-probe"),
        ],
    },
    World {
        probe: Some("nacre-probe/index-type"),
        components: &[("index", "nacre-index"), ("probe-index-type", "nacre-probe")],
    },
    World { probe: Some("nacre-probe/resolver"), components: &[("probe-resolver", "nacre-probe")] },
];

/// Returns the name and crate of each component of all worlds.
fn components() -> impl Iterator<Item = &'static (&'static str, &'static str)> {
    WORLDS.iter().flat_map(|world| world.components)
}

/// Builds all plugins into `<target directory>/plugins`, and returns that folder.
///
/// They are kept until their inputs change. In a fresh clone the files have other times, and cargo would build them again.
///
/// # Errors
/// One line that says what is missing or failed; the output of a failed command is printed as it appears.
pub fn build() -> Result<PathBuf, String> {
    let target_dir = target_dir()?;
    ensure_target()?;
    let compiler = Compiler::find()?;
    let folder = target_dir.join("plugins");
    let component = |name: &str| folder.join(name).with_extension("wasm");
    let (origin, record) = (origin(&compiler)?, folder.join("origin"));
    if fs::read_to_string(&record).is_ok_and(|built| built == origin)
        && components().all(|(name, _)| component(name).exists())
    {
        return Ok(folder);
    }
    // Until all are built, they have no common origin.
    drop(fs::remove_file(&record));
    for World { probe, components } in &WORLDS {
        let mut build = cargo();
        build
            .args(["build", "--quiet", "--profile", "guest", "--target", TARGET])
            .args(components.iter().flat_map(|(_, package)| ["-p", package]))
            .args(probe.iter().flat_map(|feature| ["--features", feature]))
            .env(CC, &compiler.cc)
            .env(AR, &compiler.ar)
            .env("CARGO_TARGET_DIR", &target_dir);
        let names: Vec<&str> = components.iter().map(|(name, _)| *name).collect();
        run(&mut build, &format!("build the plugins {}", names.join(", ")))?;
        for (name, package) in *components {
            let module = format!("{}.wasm", package.replace('-', "_"));
            let module = target_dir.join(TARGET).join("guest").join(module);
            encode(&module, &component(name))?;
        }
    }
    fs::write(&record, origin)
        .map_err(|error| format!("cannot write {}: {error}", record.display()))?;
    Ok(folder)
}

/// Returns a hash of all inputs of the components in hexadecimal: the files of their crates and of the workspace crates that they
/// use, the versions of other crates, the compilers and their options.
fn origin(compiler: &Compiler) -> Result<String, String> {
    let mut tree = cargo();
    tree.args(["tree", "--quiet", "--target", TARGET, "--edges", "normal,build"])
        .args(["--prefix", "none", "--format", "{p}"])
        .args(components().flat_map(|(_, package)| ["-p", package]));
    let crates = output(&mut tree, "ask cargo for the dependencies of the plugins")?;
    let mut files = BTreeSet::new();
    // A crate of the workspace is listed as `name version (folder)`, some with a note after it.
    for line in crates.lines() {
        if let Some((_, folder)) = line.split_once(" (/") {
            let folder = folder.split(')').next().unwrap_or(folder);
            list(&Path::new("/").join(folder), &mut files)?;
        }
    }
    let root = workspace();
    list(&root.join("plugins/wit"), &mut files)?;
    files.extend(["Cargo.toml", "Cargo.lock", ".cargo/config.toml"].map(|name| root.join(name)));
    let mut hash = Sha256::new();
    let mut add = |name: &[u8], content: &[u8]| {
        hash.update(format!("{} {} ", name.len(), content.len()));
        hash.update(name);
        hash.update(content);
    };
    let rustc = output(Command::new("rustc").arg("-vV"), "ask rustc for its version")?;
    add(b"rustc", rustc.as_bytes());
    add(b"flags", env::var_os("RUSTFLAGS").unwrap_or_default().as_encoded_bytes());
    add(b"cc", compiler.cc.as_os_str().as_encoded_bytes());
    for file in files {
        let content =
            fs::read(&file).map_err(|error| format!("cannot read {}: {error}", file.display()))?;
        let name = file.strip_prefix(&root).unwrap_or(&file);
        add(name.as_os_str().as_encoded_bytes(), &content);
    }
    Ok(format!("{:x}", hash.finalize()))
}

/// Lists the files of a folder and its subfolders, except tests, which are in no component.
fn list(folder: &Path, files: &mut BTreeSet<PathBuf>) -> Result<(), String> {
    let failed = |error| format!("cannot list {}: {error}", folder.display());
    for entry in fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if !path.is_dir() {
            files.insert(path);
        } else if !path.ends_with("tests") {
            list(&path, files)?;
        }
    }
    Ok(())
}

/// Wraps a core module as a component. Writes it only if it has changed, so that crates that include it are not built again.
fn encode(module: &Path, component: &Path) -> Result<(), String> {
    let failed =
        |error: &dyn std::fmt::Display| format!("cannot encode {}: {error}", module.display());
    let bytes = fs::read(module).map_err(|error| failed(&error))?;
    let encoded = wit_component::ComponentEncoder::default()
        .validate(true)
        .module(&bytes)
        .and_then(|mut encoder| encoder.encode())
        .map_err(|error| failed(&format!("{error:#}")))?;
    if fs::read(component).is_ok_and(|present| present == encoded) {
        return Ok(());
    }
    let folder = component.parent().expect("the path has a folder");
    fs::create_dir_all(folder).map_err(|error| failed(&error))?;
    // Written to another name and renamed, so that nobody loads half a component.
    let partial = component.with_extension("partial");
    fs::write(&partial, encoded).map_err(|error| failed(&error))?;
    fs::rename(&partial, component).map_err(|error| failed(&error))
}

struct Compiler {
    cc: PathBuf,
    ar: PathBuf,
}

impl Compiler {
    fn find() -> Result<Compiler, String> {
        if let Some(cc) = env::var_os(CC) {
            let ar = env::var_os(AR).unwrap_or_else(|| "llvm-ar".into());
            return Ok(Compiler { cc: cc.into(), ar: ar.into() });
        }
        let folder = tools::dir()?.join(ZIG.replace("==", "-"));
        let compiler = Compiler { cc: folder.join("cc"), ar: folder.join("ar") };
        // The wrappers are written last: if they exist, everything is installed.
        if !compiler.ar.exists() {
            install_zig(&folder, &compiler)?;
        }
        Ok(compiler)
    }
}

fn install_zig(folder: &Path, compiler: &Compiler) -> Result<(), String> {
    eprintln!("Installing {ZIG}, a C compiler for WebAssembly (100 MB), into {}", folder.display());
    let venv = folder.join("venv");
    run(
        Command::new("python3").args(["-m", "venv"]).arg(&venv),
        "make a Python environment (python3 with its venv module is needed)",
    )?;
    let python = venv.join("bin").join("python");
    run(
        Command::new(&python).args(["-m", "pip", "install", "--quiet", ZIG]),
        "install the C compiler with pip (a package index must be in reach)",
    )?;
    let zig = format!(
        "ZIG_GLOBAL_CACHE_DIR='{0}/cache' ZIG_LOCAL_CACHE_DIR='{0}/cache' exec '{1}' -m ziglang",
        folder.display(),
        python.display()
    );
    // Zig has its own target names, and only the C headers of WASI; QuickJS needs both.
    let cc = format!(
        r#"#!/bin/sh
t=wasm32-wasi
for a do
    shift
    case "$a" in
        --target=wasm32-unknown-unknown) t=wasm32-freestanding ;;
        --target=*) ;;
        *) set -- "$@" "$a" ;;
    esac
done
{zig} cc -target $t "$@"
"#
    );
    write_script(&compiler.cc, &cc)?;
    write_script(&compiler.ar, &format!("#!/bin/sh\n{zig} ar \"$@\"\n"))
}

fn write_script(path: &Path, text: &str) -> Result<(), String> {
    use std::os::unix::fs::PermissionsExt;
    fs::write(path, text)
        .and_then(|()| fs::set_permissions(path, fs::Permissions::from_mode(0o755)))
        .map_err(|error| format!("cannot write {}: {error}", path.display()))
}

fn ensure_target() -> Result<(), String> {
    let output = Command::new("rustc")
        .args(["--print", "target-libdir", "--target", TARGET])
        .output()
        .map_err(|error| format!("cannot run rustc: {error}"))?;
    let folder = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if Path::new(&folder).exists() {
        return Ok(());
    }
    run(
        Command::new("rustup").args(["target", "add", TARGET]),
        &format!("add the Rust target {TARGET}"),
    )
}
