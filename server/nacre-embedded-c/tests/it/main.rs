//! Tests of the C interface: the header matches the sources, a C program calls every function once under the address sanitizer,
//! and the library exports nothing else.
#![expect(clippy::disallowed_methods, reason = "tests read and write files, and start a compiler")]

use std::path::{Path, PathBuf};
use std::process::Command;

fn folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns the path of a library that Cargo has built for this test.
fn library(name: &str) -> PathBuf {
    let program = std::env::current_exe().unwrap();
    let deps = program.parent().unwrap();
    let places = [deps.join(name), deps.parent().unwrap().join(name)];
    places
        .into_iter()
        .find(|place| place.exists())
        .unwrap_or_else(|| panic!("{name} was not built"))
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let (out, err) = (&output.stdout, String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}{err}", String::from_utf8_lossy(out));
    String::from_utf8_lossy(out).into_owned()
}

#[test]
fn the_header_matches_the_sources() {
    let config = cbindgen::Config::from_file(folder().join("cbindgen.toml")).unwrap();
    let bindings = cbindgen::Builder::new().with_crate(folder()).with_config(config);
    let mut header = Vec::new();
    bindings.generate().unwrap().write(&mut header);
    let path = folder().join("nacre.h");
    if std::fs::read(&path).ok().as_deref() != Some(&header) {
        std::fs::write(&path, header).unwrap();
        panic!("nacre.h was not that of the sources, and is now: look at it and commit it");
    }
}

#[test]
fn a_program_in_c_does_everything_once_under_the_address_sanitizer() {
    let build = tempfile::tempdir().unwrap();
    let program = build.path().join("program");
    let mut compile = Command::new("cc");
    compile
        .args(["-std=c99", "-D_POSIX_C_SOURCE=200809L", "-Wall", "-Wextra", "-Werror", "-g"])
        .args(["-fsanitize=address,undefined", "-fno-sanitize-recover=all"])
        .arg("-I")
        .arg(folder())
        .arg(folder().join("tests/it/program.c"))
        .arg(library("libnacre_c.a"))
        .args(["-lpthread", "-ldl", "-lm", "-o"])
        .arg(&program);
    run(&mut compile);
    let output = run(Command::new(&program).arg(build.path().join("db")));
    assert!(output.ends_with("all well\n"), "{output}");
}

/// Returns the guide's code block of a language.
fn shown(language: &str) -> String {
    let guide = std::fs::read_to_string(folder().join("../../docs/guides/embed.md")).unwrap();
    let (_, block) = guide.split_once(&format!("\n```{language}\n")).unwrap();
    block.split_once("\n```").unwrap().0.to_owned()
}

#[test]
fn the_guide_in_c_runs() {
    let build = tempfile::tempdir().unwrap();
    let (source, program) = (build.path().join("shop.c"), build.path().join("shop"));
    std::fs::write(&source, shown("c")).unwrap();
    let mut compile = Command::new("cc");
    compile.args(["-std=c99", "-Wall", "-Wextra", "-Werror", "-I"]).arg(folder()).arg(source);
    compile.arg(library("libnacre_c.a")).args(["-lpthread", "-ldl", "-lm", "-o"]).arg(&program);
    run(&mut compile);
    let output = run(Command::new(&program).arg(build.path().join("db")));
    assert_eq!(output, "{\"customer\":\"ann\",\"total\":30}\n");
}

#[test]
fn the_guide_in_python_runs() {
    let build = tempfile::tempdir().unwrap();
    let output = run(Command::new("python3")
        .args(["-c", &shown("python")])
        .arg(build.path().join("db"))
        .env("NACRE_LIBRARY", library("libnacre_c.so"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("PYTHONPATH", folder().join("../../sdk-py/src")));
    assert_eq!(output, "{'customer': 'ann', 'total': 30}\n");
}

#[test]
fn the_header_compiles_as_c_plus_plus() {
    let build = tempfile::tempdir().unwrap();
    let source = build.path().join("header.cpp");
    std::fs::write(
        &source,
        "#include <nacre.h>\nint main() { return nacre_version() == nullptr; }\n",
    )
    .unwrap();
    run(Command::new("c++")
        .args(["-std=c++11", "-fsyntax-only", "-Wall", "-Werror", "-I"])
        .arg(folder())
        .arg(source));
}

#[test]
fn the_library_exports_its_functions_and_needs_little() {
    let shared = library("libnacre_c.so");
    let symbols = run(Command::new("nm")
        .args(["-D", "--defined-only", "--format=just-symbols"])
        .arg(&shared));
    let symbols: Vec<&str> = symbols.lines().collect();
    assert!(symbols.contains(&"nacre_open") && symbols.contains(&"nacre_session_receive"));
    let others: Vec<_> = symbols.iter().filter(|symbol| !symbol.starts_with("nacre_")).collect();
    assert!(others.is_empty(), "{others:?}");
    let header = std::fs::read_to_string(folder().join("nacre.h")).unwrap();
    for symbol in symbols {
        assert!(header.contains(&format!("{symbol}(")), "{symbol} is not in the header");
    }
    let needed = run(Command::new("readelf").arg("-d").arg(&shared));
    let needed = needed.lines().filter(|line| line.contains("(NEEDED)"));
    for line in needed {
        let known = ["libc.so", "libm.so", "libgcc_s.so", "ld-linux"];
        assert!(known.iter().any(|known| line.contains(known)), "{line}");
    }
}
