//! `nacre plugin build`: what projects come to.

use std::process::Command;

fn build(project: &std::path::Path) -> (bool, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_nacre"))
        .args(["plugin", "build"])
        .arg(project)
        .output()
        .unwrap();
    let told = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&told).into_owned())
}

#[test]
fn a_script_is_made_of_the_typescript_beside_it() {
    let project = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(project.path().join(name), text).unwrap();
    write("plugin.toml", "name = \"counts\"\nversion = \"1\"\nscript = \"main.js\"\n");
    write("main.ts", "export function onUpdate(doc: unknown, meta: { id: string }): void {}\n");
    let (is_built, told) = build(project.path());
    assert!(is_built, "{told}");
    let script = std::fs::read_to_string(project.path().join("main.js")).unwrap();
    assert_eq!(script, "export function onUpdate(doc         , meta                )       {}\n");
    write("main.ts", "enum Color { Red }\n");
    let (is_built, told) = build(project.path());
    assert!(!is_built && told.contains("main.ts: SyntaxError: an enum"), "{told}");
    assert!(told.contains("line 1, column 1"), "{told}");
}
