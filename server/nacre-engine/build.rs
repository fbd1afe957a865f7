//! Embeds the components that `cargo xtask plugins` has built into the crate.
//!
//! Components are in `plugins` below the target directory. A binary that is built without them serves keys but no
//! views, and reports this when it starts.
#![expect(clippy::disallowed_methods, reason = "a build script reads and writes files")]

use std::path::{Path, PathBuf};

fn main() {
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo names a folder for output"));
    // <target>/<profile>/build/<package>/out
    let target = out.ancestors().nth(4).unwrap_or(Path::new(".")).to_owned();
    println!("cargo::rerun-if-changed=build.rs");
    for name in ["views", "js", "eventing", "index", "query", "evaluator", "search", "typescript"] {
        let name = format!("{name}.wasm");
        let component = target.join("plugins").join(&name);
        println!("cargo::rerun-if-changed={}", component.display());
        let bytes = std::fs::read(&component).unwrap_or_default();
        std::fs::write(out.join(name), bytes).expect("the folder for output can be written to");
    }
}
