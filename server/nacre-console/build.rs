//! Puts the files of the console that `cargo xtask console` has built into the crate, text compressed.
//!
//! The files are in `console/dist`. A binary that is built without them serves a page that says how to build them.
#![expect(clippy::disallowed_methods, reason = "a build script reads and writes files")]

use flate2::Compression;
use flate2::write::GzEncoder;
use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hasher};
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// Media types by the end of a name, and whether files of the type become smaller when they are compressed.
const TYPES: [(&str, &str, bool); 6] = [
    (".html", "text/html; charset=utf-8", true),
    (".js", "text/javascript; charset=utf-8", true),
    (".css", "text/css; charset=utf-8", true),
    (".svg", "image/svg+xml", true),
    (".txt", "text/plain; charset=utf-8", true),
    (".woff2", "font/woff2", false),
];

fn main() {
    let root =
        PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo names the crate"));
    let dist = root.join("../../console/dist");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo names a folder for output"));
    println!("cargo::rerun-if-changed=build.rs");
    // Cargo looks at all files below a folder, and again each time while there is none.
    println!("cargo::rerun-if-changed={}", dist.display());
    let mut files = Vec::new();
    collect(&dist, &mut files);
    files.sort();
    let mut table = String::from("&[\n");
    for (index, path) in files.iter().enumerate() {
        let name = path.strip_prefix(&dist).expect("a file of the folder");
        let name = name.to_str().expect("names are ASCII").replace('\\', "/");
        let Some((_, media_type, is_text)) = TYPES.iter().find(|(end, ..)| name.ends_with(end))
        else {
            panic!("console/dist/{name}: no media type is known for it: add one in {}", file!());
        };
        let plain = std::fs::read(path).expect("a file of the console can be read");
        let mut hasher = DefaultHasher::new();
        hasher.write(&plain);
        let tag = format!("\"{:016x}\"", hasher.finish());
        let stored = if *is_text { compressed(&plain) } else { plain };
        let kept = out.join(format!("{index}.bin"));
        std::fs::write(&kept, stored).expect("the folder for output can be written to");
        writeln!(
            table,
            "    Asset {{ path: {name:?}, media_type: {media_type:?}, tag: {tag:?}, is_compressed: {is_text}, bytes: include_bytes!({kept:?}) }},"
        )
        .expect("a string takes any text");
    }
    table.push(']');
    std::fs::write(out.join("assets.rs"), table).expect("the folder for output can be written to");
}

fn compressed(plain: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(plain).expect("a vector takes any bytes");
    encoder.finish().expect("a vector takes any bytes")
}

/// Collects the files below a folder; none if there is no folder.
fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect(&path, files);
        } else {
            files.push(path);
        }
    }
}
