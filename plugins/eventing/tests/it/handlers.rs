//! `OnUpdate`, `OnDelete` and `OnDeploy`: their arguments, and the consequences of their failures.

use crate::fixture::*;
use nacre_eventing::Program;
use nacre_plugin::testing::Harness;

#[test]
fn handlers_receive_documents_with_their_metadata() {
    let mut function = function(
        "function OnUpdate(doc, meta) { log(doc.n, meta); }
         function OnDelete(meta, options) { log(meta.kind, options, meta.expiration); }",
    );
    function.put("a", r#"{"n":7}"#).feed().unwrap();
    function
        .put("a", r#"{"n":8}"#)
        .with_version(9, 2)
        .delete("b")
        .delete("c")
        .expired()
        .feed()
        .unwrap();
    insta::assert_snapshot!(log(&function), @r#"
    [INFO] 7 {"id":"a","cas":"65536","seq":1,"vb":0,"expiration":0,"flags":0,"datatype":"json","keyspace":{"bucket_name":"b","scope_name":"_default","collection_name":"_default"},"kind":"insert"}
    [INFO] 8 {"id":"a","cas":"9","seq":2,"vb":0,"expiration":0,"flags":0,"datatype":"json","keyspace":{"bucket_name":"b","scope_name":"_default","collection_name":"_default"},"kind":"update"}
    [INFO] "delete" {"expired":false} 0
    [INFO] "expire" {"expired":true} 0
    "#);
    assert_eq!(
        (count(&function, "on_update_success"), count(&function, "on_delete_success")),
        (2.0, 2.0)
    );
}

#[test]
fn bytes_arrive_as_an_array_buffer() {
    let mut function = function(
        "function OnUpdate(doc, meta) { dst[meta.id] = doc; log(doc instanceof ArrayBuffer, doc.byteLength, meta.datatype); }",
    );
    assert_eq!(function.put("a", "raw").feed().unwrap(), []);
    assert_eq!(log(&function), "[INFO] true 3 \"binary\"");
    assert_eq!(body(&function, "shop.copies", "a"), "raw");
}

#[test]
fn exceptions_are_counted_and_logged_with_their_position_and_the_feed_continues() {
    let mut function = function(
        "function OnUpdate(doc, meta) {\n  if (doc.bad) doc.missing.member;\n  dst[meta.id] = 1;\n}\nfunction OnDelete(meta) { throw 'a string'; }",
    );
    let errors = function.put("a", r#"{"bad":1}"#).put("b", "{}").delete("c").feed().unwrap();
    assert_eq!(errors.iter().map(|error| error.index).collect::<Vec<_>>(), [0, 2]);
    insta::assert_snapshot!(log(&function), @r#"
    [ERROR] OnUpdate of "a": TypeError: cannot read property 'member' of undefined (line 2, column 16)
    [ERROR] OnDelete of "c": uncaught "a string"
    "#);
    assert_eq!(body(&function, "shop.copies", "b"), "1");
    assert_eq!(
        (count(&function, "on_update_failure"), count(&function, "on_update_success")),
        (1.0, 1.0)
    );
    assert_eq!(count(&function, "on_delete_failure"), 1.0);
}

#[test]
fn scripts_are_sloppy_and_modules_and_promises_work_too() {
    for source in [
        "function OnUpdate(doc, meta) { for (i = 0; i < 2; i++); dst[meta.id] = i; }",
        "const OnUpdate = (doc, meta) => { dst[meta.id] = 2 }",
        "export function OnUpdate(doc, meta) { dst[meta.id] = 2 }",
        "export default { OnUpdate(doc, meta) { dst[meta.id] = 2 } }",
        "async function OnUpdate(doc, meta) { dst[meta.id] = await Promise.resolve(2) }",
        "const two = await Promise.resolve(2); export async function OnUpdate(doc, meta) { dst[meta.id] = two }",
    ] {
        let mut function = function(source);
        assert_eq!(function.put("a", "{}").feed().unwrap(), [], "{source}");
        assert_eq!(body(&function, "shop.copies", "a"), "2", "{source}");
    }
}

#[test]
fn errors_in_code_are_reported_with_their_position() {
    let told = [
        refusal("feefifofum"),
        refusal("function OnUpdate(doc, meta) {\n  log(..)\n}"),
        refusal("function Other() {}"),
        refusal("function OnDelete() {}"),
        refusal("function OnUpdate(doc, meta) { SELECT * FRM b; }"),
        refusal("export function OnUpdate(doc, meta) {\n  log(..)\n}"),
        refusal("while (true) {} function OnUpdate() {}"),
        refusal("dst.a = 1; function OnUpdate() {}"),
    ];
    insta::assert_snapshot!(told.join("\n"), @r#"
    ReferenceError: feefifofum is not defined (line 1, column 1)
    SyntaxError: unexpected token in expression: '.' (line 2, column 7)
    the code has neither OnUpdate nor OnDelete
    ok
    SyntaxError: expecting ';': as SQL++, syntax error - line 1, column 10, at: FRM (expected the end of the statement) (line 1, column 45)
    SyntaxError: unexpected token in expression: '.' (line 2, column 7)
    stopped after 50000000 steps: a loop that does not end?
    KVError: this can only be used while a handler runs (line 1, column 1)
    "#);
}

#[test]
fn lines_before_the_code_do_not_shift_reported_positions() {
    let mut config = config("function OnUpdate(doc, meta) { undeclared = 1 }");
    config["headers"] = serde_json::json!(["'use strict';", "const HEAD = 1;"]);
    let mut function =
        nacre_plugin::testing::Harness::<nacre_eventing::Program>::new(&config.to_string())
            .unwrap();
    let errors = function.put("a", "{}").feed().unwrap();
    insta::assert_snapshot!(errors[0].message, @"ReferenceError: undeclared is not defined (line 1, column 32)");
}

#[test]
fn endless_and_greedy_code_is_an_error_of_its_document() {
    let mut function = function(
        r#"
function OnUpdate(doc, meta) {
    if (doc.do === "loop") for (;;) try { for (;;); } catch {}
    if (doc.do === "regex") /^(a+)+$/.test("a".repeat(40) + "b");
    if (doc.do === "recurse") (function f() { f() })();
    if (doc.do === "string") { let s = "x".repeat(1e6); for (;;) s += s; }
    if (doc.do === "proxy") { const p = new Proxy({}, { get: () => { for (;;); } }); JSON.stringify(p); }
    if (doc.do === "promises") { const f = () => Promise.resolve().then(f); return f(); }
    if (doc.do === "later") { Promise.resolve().then(() => { dst.leaked = 1 }); throw new Error("now"); }
    if (doc.do === "never") return new Promise(() => {});
    if (doc.do === "log") log(new Proxy({}, { ownKeys() { for (;;); } }));
    if (doc.do === "alias") JSON.stringify(dst) && Object.keys(dst) && dst[Symbol.iterator] && String(Object.getPrototypeOf(dst));
    dst.last = doc.do;
}"#,
    );
    let attacks = [
        "loop", "regex", "recurse", "string", "proxy", "promises", "later", "never", "log", "alias",
    ];
    for attack in attacks {
        function.put(attack, &format!(r#"{{"do":"{attack}"}}"#));
    }
    let errors = function.put("good", r#"{"do":"good"}"#).feed().unwrap();
    let told: Vec<_> = errors
        .iter()
        .map(|error| format!("{}: {}", attacks[error.index as usize], error.message))
        .collect();
    insta::assert_snapshot!(told.join("\n"), @r#"
    loop: stopped after 50000000 steps: a loop that does not end?
    regex: stopped after 50000000 steps: a loop that does not end?
    recurse: RangeError: Maximum call stack size exceeded (line 5, column 47)
    string: InternalError: string too long (line 6, column 71)
    proxy: stopped after 50000000 steps: a loop that does not end?
    promises: stopped after 50000000 steps: a loop that does not end?
    later: Error: now (line 9, column 91)
    never: a promise that is never settled
    log: stopped after 50000000 steps: a loop that does not end?
    "#);
    assert_eq!(body(&function, "shop.copies", "last"), "\"good\"");
    assert_eq!(body(&function, "shop.copies", "leaked"), "none");
    assert!(count(&function, "timeout_count") >= 3.0);
}

#[test]
fn effects_of_promises_belong_to_the_document_of_their_handler() {
    let mut function = function(
        r#"
let count = 0;
function OnUpdate(doc, meta) {
    Promise.resolve().then(() => { dst[meta.id] = ++count; });
    if (doc.bad) throw new Error("on purpose");
}
function OnDelete(meta) { dst["gone " + meta.id] = dst[meta.id] ?? "none"; }"#,
    );
    function.put("a", "{}").delete("a").put("b", r#"{"bad":true}"#).delete("b");
    assert_eq!(function.feed().unwrap().len(), 1);
    assert_eq!(body(&function, "shop.copies", "gone a"), "1");
    assert_eq!(body(&function, "shop.copies", "gone b"), "\"none\"");
    assert_eq!(body(&function, "shop.copies", "b"), "none");
}

#[test]
fn filtered_documents_do_not_trigger_the_function() {
    let filtered = |filter: &str| {
        let mut config = config(
            "function OnUpdate(doc, meta) { log(meta.id) } function OnDelete(meta) { log('-' + meta.id) }",
        );
        config["filter"] = filter.into();
        Harness::<Program>::new(&config.to_string())
    };
    let mut function = filtered("type = 'order' AND total > 100").unwrap();
    function.put("a", r#"{"type": "order", "total": 101}"#).put("b", r#"{"type": "order"}"#);
    function.put("c", "[1]").put("d", "no json").delete("a").delete("b");
    assert_eq!(function.feed().unwrap(), []);
    assert_eq!(log(&function).replace("[INFO] ", ""), "\"a\"\n\"-a\"\n\"-b\"");
    assert_eq!(count(&function, "filtered_count"), 3.0);
    let refusal = filtered("type = 'order' AND\n total >> 1").err().unwrap().to_string();
    assert!(refusal.contains("the filter: ") && refusal.contains("line 2, column"), "{refusal}");
}

fn with_modules(source: &str, modules: serde_json::Value) -> Result<Harness<Program>, String> {
    let mut config = config(source);
    config["modules"] = modules;
    Harness::new(&config.to_string()).map_err(|error| error.to_string())
}

#[test]
fn code_imports_modules_transitively() {
    let modules = serde_json::json!({
        "./lib/sum.js": "import { one } from '../one.js';\nexport const sum = (a, b) => a + b + one;",
        "./one.ts": "export const one = 1;",
        "./fails.js": "export function fail() {\n  throw new Error('no');\n}",
    });
    let source = "import { sum } from './lib/sum.js';
        import { fail } from './fails';
        export function OnUpdate(doc, meta) { if (doc.bad) fail(); log(sum(doc.a, doc.b)); createTimer(Later, new Date(0), meta.id, 1) }
        function Later() { log('later') }";
    let mut function = with_modules(source, modules.clone()).unwrap();
    function.put("a", r#"{"a": 1, "b": 2}"#).feed().unwrap();
    let errors = function.put("b", r#"{"bad": true}"#).feed().unwrap();
    assert_eq!(errors[0].message, "Error: no in ./fails.js (line 2, column 13)");
    function.advance(std::time::Duration::from_secs(1)).unwrap();
    assert!(log(&function).starts_with("[INFO] 4\n"), "{}", log(&function));
    assert!(log(&function).ends_with("[INFO] \"later\""), "{}", log(&function));
    let refused = |source: &str| with_modules(source, modules.clone()).err().unwrap();
    insta::assert_snapshot!(refused("import './none.js'; function OnUpdate() {}"), @r#"ReferenceError: there is no module "./none.js""#);
    insta::assert_snapshot!(refused("import fs from 'fs'; function OnUpdate() {}"), @r#"ReferenceError: there is no module "fs""#);
    let broken = serde_json::json!({"./broken.js": "export const a = 1;\nexport const = 2;"});
    let refusal =
        with_modules("import { a } from './broken.js'; export function OnUpdate() { a }", broken);
    insta::assert_snapshot!(refusal.err().unwrap(), @"SyntaxError: variable name expected in ./broken.js (line 2, column 14)");
}

#[test]
fn a_handler_ends_at_its_timeout_and_the_next_has_the_full_time() {
    // After a late handler, the new engine runs the top level of the file, which takes steps too.
    let mut function = function(
        "let steps = 0; while (steps < 100000) steps++;
        function OnUpdate(doc, meta) {
            if (doc.do === 'loop') for (;;) try { for (;;); } catch {}
            if (doc.do === 'regex') /^(a+)+$/.test('a'.repeat(60) + 'b');
            if (doc.do === 'sort') for (;;) [3, 2, 1].sort((a, b) => a - b);
            if (doc.do === 'wait') for (;;) try { curl('GET', server) } catch {}
            dst[meta.id] = 1;
        }",
    );
    function.on_http(|_| Err(nacre_plugin::http::Error::Timeout));
    function.pass_when_asked(std::time::Duration::from_secs(7));
    for (at, what) in ["loop", "regex", "sort", "wait"].into_iter().enumerate() {
        function.put(what, &format!(r#"{{"do":"{what}"}}"#)).put(&format!("ok {at}"), "{}");
    }
    let errors = function.feed().unwrap();
    assert_eq!(errors.iter().map(|error| error.index).collect::<Vec<_>>(), [0, 2, 4, 6]);
    let late = "it took too long: a loop that does not end?";
    assert!(errors.iter().all(|error| error.message.contains(late)), "{errors:?}");
    assert_eq!(
        (count(&function, "timeout_count"), count(&function, "on_update_success")),
        (4.0, 4.0)
    );
    assert_eq!(body(&function, "shop.copies", "wait"), "none");
}
