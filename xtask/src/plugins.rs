//! Builds the shipped plugins: Rust and C to a core module, and that to a component.
//!
//! QuickJS is C, so a C compiler for Wasm is needed. Whoever has one names it in `CC_wasm32_unknown_unknown` (and
//! its archiver in `AR_wasm32_unknown_unknown`); otherwise the Zig compiler, a clang in a Python wheel, is installed
//! into `$NACRE_TOOLS`, by default `~/.cache/nacre/tools`. It needs no root and touches nothing else.

use crate::command::{cargo, run, target_dir};
use crate::{node, tools};
use clap::Args;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const TARGET: &str = "wasm32-unknown-unknown";
const CC: &str = "CC_wasm32_unknown_unknown";
const AR: &str = "AR_wasm32_unknown_unknown";
/// Its clang has the LLVM of the Rust version that the workspace names.
const ZIG: &str = "ziglang==0.17.0";

/// Options of `cargo xtask plugins`.
#[derive(Args, Debug)]
pub struct Options {
    /// Also build the server and have it compile them for this machine, into the cache that all chores share
    #[arg(long)]
    aot: bool,
}

/// Builds the plugins and says where they are.
///
/// # Errors
/// As for [`build`].
pub fn run_chore(options: &Options) -> Result<(), String> {
    println!("{}", build()?.display());
    if options.aot { node::build("dev").map(|_| ()) } else { Ok(()) }
}

/// The components of a world, which are built together: `nacre-plugin` has the bindings of one world at a time.
struct World {
    /// Has the crate of the probe be built for this world; it is built for several.
    probe: Option<&'static str>,
    /// The name of each component, and its crate.
    components: &'static [(&'static str, &'static str)],
}

/// The shipped components, and what the tests of the host run.
const WORLDS: [World; 4] = [
    World {
        probe: None,
        components: &[
            ("views", "nacre-views"),
            ("js", "nacre-js-service"),
            ("eventing", "nacre-eventing"),
            ("query", "nacre-query"),
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

/// Builds all plugins into `<target directory>/plugins`, which it gives.
///
/// Fast when nothing has changed: cargo finds that out, and a component is only encoded again when its module is newer.
///
/// # Errors
/// One line that says what is missing or failed; the output of a failed command is shown as it comes.
pub fn build() -> Result<PathBuf, String> {
    let target_dir = target_dir()?;
    ensure_target()?;
    let compiler = Compiler::find()?;
    let folder = target_dir.join("plugins");
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
            encode(&module, &folder.join(name).with_extension("wasm"))?;
        }
    }
    Ok(folder)
}

/// Wraps a core module as a component, unless that is there already.
fn encode(module: &Path, component: &Path) -> Result<(), String> {
    let modified = |path: &Path| fs::metadata(path).and_then(|metadata| metadata.modified());
    if let (Ok(module), Ok(component)) = (modified(module), modified(component))
        && module < component
    {
        return Ok(());
    }
    let failed =
        |error: &dyn std::fmt::Display| format!("cannot encode {}: {error}", module.display());
    let bytes = fs::read(module).map_err(|error| failed(&error))?;
    let encoded = wit_component::ComponentEncoder::default()
        .validate(true)
        .module(&bytes)
        .and_then(|mut encoder| encoder.encode())
        .map_err(|error| failed(&format!("{error:#}")))?;
    let folder = component.parent().expect("the path has a folder");
    fs::create_dir_all(folder).map_err(|error| failed(&error))?;
    // Written beside and renamed, so that nobody ever loads half a component.
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
        // The wrappers are written last, so that their presence says that all is installed.
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
    // Zig spells targets its own way, and only knows the C headers of WASI; QuickJS asks for both.
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
