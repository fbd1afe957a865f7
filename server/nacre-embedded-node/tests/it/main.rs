//! The addon in Node: opens a database, answers in a session, and names errors.

use std::path::{Path, PathBuf};
use std::process::Command;

fn addon() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    let deps = program.parent().unwrap();
    let name = "libnacre_embedded_node.so";
    let places = [deps.join(name), deps.parent().unwrap().join(name)];
    places.into_iter().find(|place| place.exists()).expect("Cargo builds the addon for its test")
}

#[test]
fn node_opens_a_database_and_a_session_answers() {
    let folder = tempfile::tempdir().unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/addon.cjs");
    let output = Command::new("node")
        .arg(script)
        .arg(addon())
        .arg(folder.path().join("db"))
        .output()
        .expect("Node.js is installed");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(text, "all well\n");
}
