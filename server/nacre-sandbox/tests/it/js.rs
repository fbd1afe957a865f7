//! The JavaScript plugin in the sandbox.

use crate::fixture::*;
use nacre_sandbox::{
    Documents, Error, Grants, KeyspaceGrant, Limits, MemoryDocuments, Partition, Setup, replay,
    validate,
};
use nacre_state::MemoryStorage;
use std::sync::Arc;
use std::time::Duration;

fn setup(source: &str) -> Setup {
    let config = serde_json::json!({"file": "main.js", "source": source, "config": {"by": 2}});
    Setup { runs_script: true, ..Setup::new("counts", config.to_string()) }
}

fn open_js(setup: Setup) -> Partition {
    Partition::open(plugin("js"), setup, Box::new(MemoryStorage::default())).unwrap()
}

#[test]
fn a_program_follows_documents_fires_timers_and_answers_in_pieces() {
    let source = r#"
export function onUpdate(doc, { id }) {
    state.put(id, doc.n * config.by);
    timer.set("sum", Date.now() + 5, { seen: id });
}
export function onDelete({ id }) { state.delete(id) }
export function onTimer({ payload }) { metrics.add("fired"); log("after", payload.seen) }
export function handle() {
    return new Response((function* () { for (const entry of state.scan()) yield entry.join("=") + " " })());
}
"#;
    let mut partition = open_js(setup(source));
    let batch = [("a", Some(r#"{"n":1}"#)), ("b", Some(r#"{"n":2}"#)), ("c", Some("{}"))];
    let mut stream = Stream::default();
    let report = partition.on_batch(&stream.batch(batch), NOW).unwrap();
    assert_eq!((report.errors.len(), report.dead_letters.len()), (0, 0));
    partition.on_batch(&stream.batch([("c", None)]), NOW).unwrap();
    assert_eq!(request(&partition.reader(), "/", ""), "a=2 b=4 ");
    assert_eq!(partition.on_timers(later(5000)).unwrap().timers, 1);
    let status = partition.status();
    assert_eq!((status.metrics["fired"], &*status.log[0].message), (1.0, "after c"));
}

#[test]
fn places_in_errors_are_those_of_the_source() {
    let check = |source: &str| validate(&plugin("js"), setup(source)).unwrap_err().to_string();
    insta::assert_snapshot!(check("export function onUpdate(doc) {\n  doc..x\n}"), @"counts: main.js: SyntaxError: expecting field name (line 2, column 7)");
    let mut partition = open_js(setup("export function onUpdate(doc) {\n  doc.a.b.c\n}"));
    let batch = Stream::default().batch([("a", Some("{}")), ("b", Some(r#"{"a":{"b":1}}"#))]);
    let report = partition.on_batch(&batch, NOW).unwrap();
    assert_eq!(report.errors.len(), 1);
    insta::assert_snapshot!(report.errors[0].message, @"main.js: TypeError: cannot read property 'b' of undefined (line 2, column 3)");
}

#[test]
fn a_script_gets_an_error_when_it_uses_an_ungranted_capability() {
    let source = r#"
export function onUpdate(doc, { id }) {
    try { kv.upsert(id, 1, { keyspace: doc.to }) } catch (error) { state.put(id, error.code) }
}
export function handle() { try { return http.fetch("https://a/").status } catch (error) { return error.message } }
"#;
    let documents = Arc::new(MemoryDocuments::default());
    let kv = vec![KeyspaceGrant { keyspace: "a.b".into(), write: true }];
    let setup = Setup {
        grants: Grants { kv, ..Grants::own() },
        documents: Arc::clone(&documents) as Arc<dyn Documents>,
        ..setup(source)
    };
    let mut partition = open_js(setup.clone());
    let batch = [("x", Some(r#"{"to":"a.b"}"#)), ("y", Some(r#"{"to":"a.c"}"#))];
    partition.on_batch(&Stream::default().batch(batch), NOW).unwrap();
    assert_eq!(documents.all().len(), 1);
    assert_eq!(partition.status().state_bytes, "y\"denied\"".len());
    assert_eq!(request(&partition.reader(), "/", ""), r#""requests to a:443 are not granted""#);

    let strict = Setup { runs_script: false, ..setup.clone() };
    assert!(matches!(validate(&plugin("js"), strict), Err(Error::Import { .. })));
    let nothing = Setup { grants: Grants::default(), ..setup };
    let mut partition = open_js(nothing);
    let report = partition.on_batch(&Stream::default().batch([("y", Some("{}"))]), NOW).unwrap();
    assert_eq!(report.dead_letters[0].reason, "state is not granted");
}

/// The budget of steps ends most loops; the sandbox ends a single step that takes long.
#[test]
fn hostile_programs_end_at_their_limits_and_replay() {
    let source = r#"
export function onUpdate(doc, { id }) {
    if (id === "slow") for (;;) "x".repeat(1e6).toUpperCase();
    if (id === "deep") { let v = 1; for (let i = 0; i < 1e5; i++) v = [v]; state.put(id, v) }
    if (id === "recurse") (function f() { return [1].map(f) })();
    state.put(id, 1);
}
"#;
    let (mut told, mut capsules) = (Vec::new(), Vec::new());
    // The clock ends the first; the others end by themselves, however slow the machine is.
    for (seconds, keys) in [(2, &["slow", "a"][..]), (60, &["deep", "b", "recurse", "c"])] {
        let limits = Limits { deadline: Duration::from_secs(seconds), ..Limits::default() };
        let mut partition = open_js(Setup { limits, ..setup(source) });
        let mut stream = Stream::default();
        for key in keys.iter().copied() {
            let report = partition.on_batch(&stream.batch([(key, Some("{}"))]), NOW).unwrap();
            told.extend(report.errors.into_iter().map(|error| format!("{key}: {}", error.message)));
            let parked = report.dead_letters.into_iter();
            told.extend(parked.map(|letter| format!("{key} is parked: {}", letter.reason)));
        }
        let taken = partition.take_capsules();
        assert_eq!(taken.len() as u64, partition.status().dead_letter_count);
        capsules.extend(taken);
    }
    insta::assert_snapshot!(told.join("\n"), @r#"
    slow is parked: took longer than 2000 ms
    deep is parked: wasm trap: call stack exhausted
    recurse: main.js: RangeError: Maximum call stack size exceeded (line 5, column 58)
    "#);
    for capsule in capsules {
        let error = replay(&plugin("js"), &capsule).unwrap_err();
        assert_eq!(error.to_string(), format!("counts: {}", capsule.reason));
    }
}
