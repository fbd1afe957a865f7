//! Puts the module that answers for WASI in plugins in Go into the crate.
#![expect(clippy::disallowed_methods, reason = "a build script reads and writes files")]

use std::path::PathBuf;

/// The module, in the text format.
const WASI: &str = "src/go/wasi.wat";

fn main() {
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo names a folder for output"));
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed={WASI}");
    let wasi = wat::parse_file(WASI).unwrap_or_else(|error| panic!("{error}"));
    std::fs::write(out.join("wasi.wasm"), wasi).expect("the folder for output can be written to");
}
