//! `nacre plugin build`: the results of projects.

use std::process::Command;

fn build(project: &std::path::Path) -> (bool, String) {
    chore("build", project)
}

fn chore(name: &str, project: &std::path::Path) -> (bool, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_nacre"))
        .args(["plugin", name])
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

#[test]
fn a_plugin_that_a_node_would_refuse_is_not_built() {
    let project = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(project.path().join(name), text).unwrap();
    let manifest = "name = \"counts\"\nversion = \"1\"\nscript = \"main.js\"\n";
    write("plugin.toml", manifest);
    write("main.js", "export function onUpdate( {}\n");
    for command in ["build", "inspect"] {
        let (is_done, told) = chore(command, project.path());
        assert!(!is_done && told.contains("main.js: SyntaxError"), "{command}: {told}");
    }
    write("main.js", "export function onUpdate() {}\n");
    assert!(chore("inspect", project.path()).0);
    write("plugin.toml", &format!("{manifest}[limits]\nmemory_mb = 0\n"));
    let (is_built, told) = build(project.path());
    assert!(!is_built && told.contains("`limits.memory_mb` is 0"), "{told}");
}

const TYPED_MAIN: &str = "import { greeting } from './lib/words';
import { mark } from './mark.js';

export function handle(request: nacre.Request): unknown {
    return { says: greeting(request.path.slice(1)) + mark };
}
";
const TYPED_WORDS: &str = "import { mark } from '../mark.js';

export function greeting(name: string): string {
    if (name === 'nobody') throw new Error('there is ' + name);
    return `good day${mark} ${name}`;
}
";

#[test]
fn a_script_imports_the_modules_that_its_manifest_names() {
    let project = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = project.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    let manifest = "name = \"greets\"\nversion = \"1\"\nscript = \"main.js\"\n";
    write("plugin.toml", &format!("{manifest}modules = [\"lib/words.ts\", \"mark.js\"]\n"));
    write("main.ts", TYPED_MAIN);
    write("lib/words.ts", TYPED_WORDS);
    write("mark.js", "export const mark = '!';\n");
    let script = serde_json::json!({"about": "It greets.", "steps": [
        {"request": "GET /ada", "status": 200, "answer": {"says": "good day! ada!"}},
        {"request": "GET /nobody", "status": 500, "answer": "a place"},
    ]});
    write("tests/greets.json", &script.to_string());
    let (_, told) = chore("test", project.path());
    assert!(told.contains("there is nobody in ./lib/words.ts (line 4, column"), "{told}");
    assert!(!told.contains("step 0"), "the first step is as it should be: {told}");
    // Without its name a module is not in the package.
    write("plugin.toml", &format!("{manifest}modules = [\"mark.js\"]\n"));
    let (is_tested, told) = chore("test", project.path());
    assert!(!is_tested && told.contains("there is no module \"./lib/words\""), "{told}");
    write("plugin.toml", &format!("{manifest}modules = [\"lib/words.ts\", \"other.js\"]\n"));
    let (is_built, told) = build(project.path());
    assert!(!is_built && told.contains("other.js"), "{told}");
}
