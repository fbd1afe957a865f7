//! Plugins in Go: begun, built by the standard toolchain, and run by a node.

use crate::copies::{is_rebalancing, rebalance};
use crate::plugins::ask;
use crate::process::{BUCKET, PASSWORD, Server, port_base};
use crate::spread;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Does what documents and requests order.
const TRIAL: &str = include_str!("plugin_go/trial.go");
const CAPABILITIES: &str = "
[capabilities]
kv = { write = [\"_default._default\"] }
http-out = [\"127.0.0.1:1\"]

[limits]
deadline_ms = 1000
memory_mb = 64

[events]
old = true
";
/// Operations on documents, each with its result.
const ON_DOCUMENTS: &str = r#"[
    "done", "there is such a document already", "done", "the document has another version", "done",
    "done", "a part of the mutation cannot be done: ", "{\"m\":{\"deep\":\"x\"}}",
    ["x", null], true, 10, 7, true, "done", "done", "there is no such document", true, true, true
]"#;

fn command(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nacre"));
    command.arg("plugin").args(arguments).current_dir(folder);
    command
}

/// Runs a command of `nacre plugin`. Returns true if it succeeded, and its output.
fn chore(command: &mut Command) -> (bool, String) {
    let output = command.output().unwrap();
    let told = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&told).into_owned())
}

fn succeed(folder: &Path, arguments: &[&str]) -> String {
    let (is_done, told) = chore(&mut command(folder, arguments));
    assert!(is_done, "{arguments:?}: {told}");
    told
}

/// A folder with the project `counts` as it begins, and the project `trial`, both built.
fn projects() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("plugins-in-go");
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        for name in ["counts", "trial"] {
            succeed(&folder, &["new", name, "--lang", "go"]);
        }
        let trial = folder.join("trial");
        std::fs::write(trial.join("main.go"), TRIAL).unwrap();
        let manifest = std::fs::read_to_string(trial.join("plugin.toml")).unwrap();
        std::fs::write(trial.join("plugin.toml"), manifest + CAPABILITIES).unwrap();
        for name in ["counts", "trial"] {
            succeed(&folder, &["build", name]);
        }
        folder
    })
}

#[test]
fn a_project_in_go_passes_its_script_and_asks_for_what_it_uses() {
    let folder = projects();
    assert_eq!(succeed(folder, &["test", "counts"]), "ok      counts\n");
    let mut tests = Command::new("go");
    let (is_done, told) = chore(tests.args(["test", "."]).current_dir(folder.join("counts")));
    assert!(is_done, "{told}");
    let built = |name: &str| folder.join(name).join("plugin.wasm").metadata().unwrap().modified();
    let before = built("counts").unwrap();
    succeed(folder, &["build", "counts"]);
    assert_eq!(built("counts").unwrap(), before, "nothing has changed");
    let told = succeed(folder, &["inspect", "counts"]);
    let imports = told.lines().find(|line| line.starts_with("imports")).unwrap();
    assert_eq!(imports.split_whitespace().collect::<Vec<_>>(), ["imports", "state,", "log"]);
    let told = succeed(folder, &["inspect", "trial"]);
    for name in ["state", "log", "timer", "metrics", "kv", "http-out"] {
        assert!(told.contains(name), "{name}: {told}");
    }
}

#[test]
fn a_project_in_go_can_be_built_several_times_at_once() {
    let building = [(); 8].map(|()| command(projects(), &["build", "counts"]).spawn().unwrap());
    for mut build in building {
        assert!(build.wait().unwrap().success());
    }
}

#[test]
fn a_failed_build_in_go_is_reported_in_a_line() {
    let folder = tempfile::tempdir().unwrap();
    for (world, told) in [
        ("functions", "functions are written in Rust or Python"),
        ("resolver", "resolvers are written in Rust"),
        ("index-type", "kinds of index are written in Rust"),
    ] {
        let arguments = ["new", "a", "--lang", "go", "--world", world];
        let (is_done, said) = chore(&mut command(folder.path(), &arguments));
        assert!(!is_done && said.contains(told), "{said}");
    }
    succeed(folder.path(), &["new", "a", "--lang", "go"]);
    let build = |path: &Path| chore(command(folder.path(), &["build", "a"]).env("PATH", path));
    let (is_done, told) = build(folder.path());
    assert!(!is_done && told.contains("go does not start"), "{told}");
    assert_eq!((told.lines().count(), told.contains("https://go.dev/dl")), (1, true), "{told}");
    let old = folder.path().join("go");
    std::fs::write(&old, "#!/bin/sh\necho go1.23.4\n").unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&old, mode).unwrap();
    let (is_done, told) = build(folder.path());
    assert!(!is_done && told.contains("Go 1.24 or newer is needed"), "{told}");
    assert_eq!((told.lines().count(), told.contains("this is go1.23.4")), (1, true), "{told}");
}

/// The linker keeps a method that is not called, so that the build can report it.
#[test]
fn a_method_in_go_that_would_not_be_called_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    succeed(folder.path(), &["new", "a", "--lang", "go"]);
    let main = folder.path().join("a/main.go");
    for (receiver, event, wanted) in [
        ("*plugin", "nacre.Event", "OnUpdate has a pointer receiver: hand &main.plugin{}"),
        ("plugin", "*nacre.Event", "OnUpdate is func(*nacre.Event) error: func(nacre.Event) error"),
    ] {
        let code = format!(
            "package main\n\nimport \"nacre\"\n\ntype plugin struct{{}}\n\n\
             func init() {{ nacre.Run(plugin{{}}) }}\n\nfunc main() {{}}\n\n\
             func ({receiver}) OnUpdate({event}) error {{ return nil }}\n"
        );
        std::fs::write(&main, code).unwrap();
        let (is_done, told) = chore(&mut command(folder.path(), &["test", "a"]));
        assert!(!is_done && told.contains(wanted), "{told}");
    }
}

/// A node on which the trial is deployed.
fn serving(directory: &Path) -> Server {
    let server = Server::start_with(directory, port_base(), &["--allow-outgoing", "127.0.0.0/8"]);
    deploy(&server, BUCKET);
    server
}

fn deploy(server: &Server, bucket: &str) {
    let address = format!("http://127.0.0.1:{}", server.port_base);
    let mut deploy = command(projects(), &["deploy", "trial", "--bucket", bucket]);
    deploy.args(["--grant", "kv:write=_default._default", "--grant", "http-out=127.0.0.1:1"]);
    deploy.env("NACRE_SERVER", address).env("NACRE_PASSWORD", PASSWORD);
    let (is_done, told) = chore(&mut deploy);
    assert!(is_done, "{told}");
}

/// Returns the plugin's answer once it has seen every earlier write.
fn answer(server: &Server, path: &str) -> (u16, Value) {
    let fresh = "Nacre-Consistency: request_plus\r\n";
    ask(server, "GET", &format!("/_plugin/trial/{path}"), fresh, b"")
}

fn status(server: &Server) -> Value {
    ask(server, "GET", "/deployments/trial", "", b"").1
}

#[test]
fn a_plugin_in_go_folds_documents_and_answers() {
    let directory = tempfile::tempdir().unwrap();
    let mut server = serving(directory.path());
    let mut client = server.client();
    let mut write = |key: &str, act: &str| {
        let body = json!({"act": act}).to_string();
        assert!(client.set(key.as_bytes(), body.as_bytes()).unwrap().is_success());
    };
    for act in ["none", "fail", "panic", "key", "timer", "sleep", "log"] {
        write(act, act);
    }
    let (code, state) = answer(&server, "seen/");
    assert_eq!(code, 200, "{state}");
    let seen: Vec<&String> = state.as_object().unwrap().keys().collect();
    let left = ["seen/log", "seen/none", "seen/sleep", "seen/timer", "slept"];
    assert_eq!(seen.iter().filter(|key| !key.starts_with("timer/")).count(), left.len(), "{state}");
    assert!(left.iter().all(|key| state.get(key).is_some()), "{state}");
    assert_eq!(state["slept"], "1h0m0s", "as the clock of a plugin has it");
    server.wait_for("the timer", |server| {
        let fired = answer(server, "timer/").1["timer/timer"].clone();
        (fired == "timer late: false").then_some(())
    });
    let told = status(&server);
    assert_eq!(
        (&told["state"], &told["dead_letter_count"]),
        (&json!("running"), &json!(0)),
        "{told}"
    );
    let errors = told["last_errors"].to_string();
    assert!(errors.contains("it fails as it is told"), "{errors}");
    assert!(errors.contains("panic: assignment to entry in nil map (main.go:"), "{errors}");
    let wanted = "panic: a key of the state has 1 to 65536 bytes, not 0 (main.go:";
    assert!(errors.contains(wanted), "{errors}");
    let log = told["log"].to_string();
    assert!(log.contains("log came in vBucket") && !log.contains("nobody reads this"), "{log}");
    for line in ["log by the standard package", "WARN structured n=1"] {
        let wanted = json!({"level": "info", "message": line});
        assert!(told["log"].as_array().unwrap().contains(&wanted), "{log}");
    }

    let (code, echoed) = ask(&server, "POST", "/_plugin/trial/echo?a=b%20c", "", b"body");
    assert_eq!(code, 201);
    assert_eq!(echoed, json!(["hello", "POST", "b c", "Administrator", "body"]));
    // Four chunks, as they came.
    let pieces = "1\r\na\r\n1\r\nb\r\n1\r\nc\r\n1\r\nd\r\n0\r\n\r\n";
    assert_eq!(ask(&server, "GET", "/_plugin/trial/pieces", "", b"").1, json!(pieces));
    let (code, failed) = answer(&server, "panic");
    assert!(
        code == 500 && failed.to_string().contains("panic: as it is told (main.go:"),
        "{failed}"
    );
    let (code, failed) = answer(&server, "never");
    assert!(code >= 400 && failed.to_string().contains("never"), "{code} {failed}");
    let wanted: Value = serde_json::from_str(ON_DOCUMENTS).unwrap();
    let (_, found) = answer(&server, "kv");
    for (found, wanted) in found.as_array().unwrap().iter().zip(wanted.as_array().unwrap()) {
        // Of a text that ends with a colon, only the beginning is compared.
        let begun = wanted.as_str().filter(|text| text.ends_with(": ")).unwrap_or("\0");
        let begins = found.as_str().is_some_and(|found| found.starts_with(begun));
        assert!(found == wanted || begins, "{found}, not {wanted}");
    }
    assert_eq!(found.as_array().unwrap().len(), wanted.as_array().unwrap().len());
}

#[test]
fn a_document_that_kills_a_plugin_in_go_is_skipped_and_its_call_is_kept() {
    let directory = tempfile::tempdir().unwrap();
    let server = serving(directory.path());
    let mut client = server.client();
    for act in ["loop", "none", "grow", "other"] {
        client.set(act.as_bytes(), json!({"act": act}).to_string().as_bytes()).unwrap();
    }
    let (code, state) = answer(&server, "seen/");
    let seen: Vec<&String> = state.as_object().unwrap().keys().collect();
    assert!(code == 200 && seen == ["seen/none", "seen/other"], "{code} {state}");
    let (code, _) = answer(&server, "loop");
    assert!(code >= 500, "{code}");
    assert!(client.get(b"none").unwrap().is_success(), "the node serves on");
    let told = status(&server);
    assert_eq!((&told["state"], &told["dead_letter_count"]), (&json!("running"), &json!(2)));

    // A call that was kept says how another one goes: history that is cut back.
    let files = std::fs::read_dir(directory.path().join("capsules")).unwrap();
    let file = files.map(|file| file.unwrap().path()).min().unwrap();
    let mut capsule: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    let mut cut_back = |project: &str, vb: u16| {
        capsule["call"] = json!({"rollback": {"vb": vb, "seqno": 9}});
        std::fs::write(projects().join("capsule.json"), capsule.to_string()).unwrap();
        chore(&mut command(projects(), &["test", project, "--replay", "capsule.json"]))
    };
    let (is_done, told) = cut_back("trial", 3);
    assert!(is_done && told.contains("it succeeds"), "{told}");
    let (is_done, told) = cut_back("trial", 7);
    assert!(!is_done && told.contains("not vBucket 7 to 9"), "{told}");
    let (is_done, told) = cut_back("counts", 3);
    assert!(!is_done && told.contains("vBucket 3 was cut back to 9"), "it begins anew: {told}");
}

/// The host puts values into the memory of an instance, which may have the collector begin, and another goroutine go on.
#[test]
fn goroutines_of_a_plugin_in_go_reach_the_host_in_turn() {
    let directory = tempfile::tempdir().unwrap();
    let server = serving(directory.path());
    server.client().set(b"large", json!({"act": "large"}).to_string().as_bytes()).unwrap();
    for _ in 0..2 {
        assert_eq!(answer(&server, "gather"), (200, json!(8 << 20)));
    }
    // Another instance, where the collector has not begun yet.
    let (code, told) = answer(&server, "deadlock");
    let wanted = "fatal error: all goroutines are asleep - deadlock!";
    assert!(code == 500 && told.to_string().contains(wanted), "{code} {told}");
    assert_eq!(answer(&server, "leave").0, 200);
    let body = vec![b' '; 8_000_000];
    for _ in 0..3 {
        let answer = ask(&server, "POST", "/_plugin/trial/size", "", &body);
        assert_eq!(answer, (200, json!(body.len())), "whatever another request has left");
    }
}

#[test]
fn the_collector_of_a_plugin_in_go_knows_the_limit_of_its_memory() {
    let directory = tempfile::tempdir().unwrap();
    let server = serving(directory.path());
    for _ in 0..20 {
        assert_eq!(answer(&server, "garbage"), (200, json!(20 << 20)));
    }
}

/// All documents come in one batch, some before the one that has it made again and some behind.
#[test]
fn effects_of_go_plugins_happen_once_and_fatal_errors_are_reported() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let mut client = server.client();
    let added: Vec<String> = (0..16).map(|number| format!("a{number}")).collect();
    for id in &added {
        client.set(id.as_bytes(), br#"{"act": "add"}"#).unwrap();
    }
    for act in ["again", "goroutine", "exit"] {
        client.set(act.as_bytes(), json!({"act": act}).to_string().as_bytes()).unwrap();
    }
    deploy(&server, BUCKET);
    let (code, state) = answer(&server, "seen/");
    assert_eq!((code, state["seen/again"].is_string()), (200, true), "{state}");
    for id in added {
        let found = client.get(format!("sum/{id}").as_bytes()).unwrap();
        assert_eq!(String::from_utf8_lossy(&found.value), "1", "{id}");
    }
    let tries = client.get(b"tries/again").unwrap();
    assert_eq!(String::from_utf8_lossy(&tries.value), "2");
    let letters = status(&server)["dead_letters"].to_string();
    assert!(letters.contains("panic: nobody recovers: ?"), "{letters}");
    assert!(letters.contains("exit cannot be done"), "{letters}");
}

#[test]
fn a_version_before_comes_along_in_go() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let bucket = format!("/pools/default/buckets/{BUCKET}");
    assert_eq!(server.rest("DELETE", &bucket, "").unwrap().status, 200);
    let settings = "ramQuotaMB=256&storageBackend=magma&historyRetentionSeconds=60";
    let settings = format!("name={BUCKET}&{settings}");
    assert_eq!(server.rest("POST", "/pools/default/buckets", &settings).unwrap().status, 202);
    deploy(&server, BUCKET);
    let mut client = server.client();
    for body in [r#"{"act": "old", "n": 1}"#, r#"{"act": "old", "n": 2}"#] {
        assert!(client.set(b"v", body.as_bytes()).unwrap().is_success());
    }
    let (_, state) = answer(&server, "old/");
    assert_eq!(state["old/v"], r#"{"act": "old", "n": 1}"#, "{state}");
}

#[test]
fn one_answer_is_made_in_go_of_those_of_several_nodes() {
    let nodes = spread::nodes_with_bucket(0);
    rebalance(&nodes, &[]);
    nodes[0].wait_until("the rebalance", |node| !is_rebalancing(node));
    spread::fill(&nodes[0]);
    deploy(nodes[0].server(), spread::BUCKET);
    nodes[1].wait_until("the plugin", |node| answer(node.server(), "count").0 == 200);
    let wanted = json!([nodes.len(), spread::DOCUMENTS]);
    assert_eq!(answer(nodes[1].server(), "count"), (200, wanted));
}
