//! Plugins in Go: the standard toolchain makes a core module, which becomes a component here, together with what stands for
//! WASI in it.
//!
//! The runtime of Go asks WASI for its clock, for chance and for a place to print to, and the sandbox has none of it. So each
//! component has a module of its own that answers (`go/wasi.wat`) and reaches nothing of the host. Go's linker leaves out what
//! is not called, so that a component imports the capabilities that its code uses, and no others.

use super::project::{self, WIT};
use nacre_sandbox::{Limits, Manifest, World};
use std::path::Path;
use std::process::Command;
use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

/// Module that answers for WASI.
const WASI: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/wasi.wasm"));
/// The module that the runtime of Go names.
const WASI_MODULE: &str = "wasi_snapshot_preview1";
/// The first 1.x that exports functions by any name, with pointers in their arguments.
const GO_MINOR: u32 = 24;
/// Where Go is to be had.
const GO_HOME: &str = "https://go.dev/dl";

/// Makes the component of a project. Go finds out what has changed of it and of what it uses.
///
/// # Errors
/// A sentence for the author about the project or the toolchain.
pub fn build(project: &Path, manifest: &Manifest) -> Result<(), String> {
    if manifest.world != World::Service {
        return Err("plugins in Go are services: others are written in Rust or Python".into());
    }
    check_toolchain(project)?;
    // For as long as it is not a component; a project may be built twice at the same time.
    let core_module = format!("core-{}.wasm", std::process::id());
    let core = project.join(&core_module);
    let mut go = Command::new("go");
    go.args(["build", "-buildmode=c-shared", "-trimpath", "-buildvcs=false"])
        .arg(format!("-ldflags={}", linker_flags(manifest)))
        .args(["-o", &core_module, "."])
        .env("GOOS", "wasip1")
        .env("GOARCH", "wasm")
        .env("CGO_ENABLED", "0")
        .current_dir(project);
    project::run(&mut go, "build the plugin")?;
    let module = project::read(&core)?;
    // It is of no use to anybody.
    std::fs::remove_file(&core).ok();
    project::renew(&project.join(manifest.file()), encode(module)?)
}

/// Profiles need the names of functions; nobody reads what a debugger would. The guest kit tells the collector how much memory
/// the plugin may take, which no call of the host says.
fn linker_flags(manifest: &Manifest) -> String {
    let memory_mb = manifest.limits.within(Limits::default()).memory_bytes >> 20;
    format!("-w -buildid= -X nacre.memoryMB={memory_mb}")
}

/// The toolchain as it is in the project, whose go.mod may name another one.
fn check_toolchain(project: &Path) -> Result<(), String> {
    let asked = Command::new("go").args(["env", "GOVERSION"]).current_dir(project).output();
    let output = asked.map_err(|error| {
        format!("Go 1.{GO_MINOR} or newer is needed (see {GO_HOME}): go does not start: {error}")
    })?;
    let version = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    match minor(&version) {
        Some(minor) if minor >= GO_MINOR => Ok(()),
        Some(_) => Err(format!(
            "Go 1.{GO_MINOR} or newer is needed (see {GO_HOME}), and this is {version}"
        )),
        None => {
            let reason = String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ");
            let reason = if reason.is_empty() { format!("this is {version:?}") } else { reason };
            Err(format!("Go 1.{GO_MINOR} or newer is needed (see {GO_HOME}): {reason}"))
        }
    }
}

/// The second number of a version of Go: 24 of `go1.24.3`, 27 of `devel go1.27-abcdef`.
fn minor(version: &str) -> Option<u32> {
    let (_, behind) = version.split_once("go1.")?;
    behind.split(|digit: char| !digit.is_ascii_digit()).next()?.parse().ok()
}

fn encode(mut module: Vec<u8>) -> Result<Vec<u8>, String> {
    let failed =
        |error: &dyn std::fmt::Display| format!("the module cannot be made a component: {error:#}");
    let mut resolve = Resolve::default();
    let package =
        resolve.push_source("plugin.wit", WIT).expect("the interface of this build can be read");
    let world = resolve.packages[package].worlds["service"];
    embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8)
        .map_err(|error| failed(&error))?;
    ComponentEncoder::default()
        .validate(true)
        .module(&module)
        .and_then(|encoder| encoder.adapter(WASI_MODULE, WASI))
        .and_then(|mut encoder| encoder.encode())
        .map_err(|error| failed(&error))
}

#[cfg(test)]
mod tests {
    use super::{WASI, minor};

    #[test]
    fn versions_of_go_are_read_by_their_minor_number() {
        let cases = [
            ("go1.24", Some(24)),
            ("go1.26.8", Some(26)),
            ("go1.25rc1", Some(25)),
            ("go1.9", Some(9)),
            ("go2.0", None),
            ("devel go1.27-abcdef", Some(27)),
            ("", None),
        ];
        for (version, wanted) in cases {
            assert_eq!(minor(version), wanted, "{version}");
        }
    }

    #[test]
    fn the_substitute_for_wasi_accesses_only_memory() {
        let mut imports = Vec::new();
        for payload in wasmparser::Parser::new(0).parse_all(WASI) {
            if let wasmparser::Payload::ImportSection(section) = payload.unwrap() {
                for import in section.into_imports() {
                    let import = import.unwrap();
                    imports.push(format!("{} {}", import.module, import.name));
                }
            }
        }
        assert_eq!(imports, ["env memory"]);
    }
}
