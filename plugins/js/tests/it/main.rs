//! Tests JavaScript programs as plain Rust, without the sandbox.

use nacre_js_service::Program;
use nacre_plugin::testing::{Harness, START_US};
use nacre_plugin::{
    Event, EventKind, Events, Fault, MemoryState, Previous, Request, Response, Service, State,
    http, kv,
};
use std::time::Duration;

fn config(source: &str) -> String {
    serde_json::json!({"file": "main.js", "source": source, "config": {"limit": 3}}).to_string()
}

fn program(source: &str) -> Harness<Program> {
    Harness::new(&config(source)).unwrap()
}

/// Returns the reason why a program cannot be deployed.
fn refusal(source: &str) -> String {
    match Harness::<Program>::new(&config(source)) {
        Ok(_) => "ok".into(),
        Err(error) => error.to_string(),
    }
}

fn body(program: &mut Harness<Program>, path: &str) -> String {
    let response = program.get(path).unwrap();
    let body = String::from_utf8(response.body).unwrap();
    if response.status == 200 { body } else { format!("{} {body}", response.status) }
}

const COUNTS: &str = r#"
const typeOf = (doc) => String(doc?.type ?? "none");

function change(type, by) {
    const count = (state.get("count/" + type) ?? 0) + by;
    if (count > 0) state.put("count/" + type, count);
    else state.delete("count/" + type);
}

function forget(id) {
    const old = state.get("type/" + id);
    if (old !== undefined) change(old, -1);
    state.delete("type/" + id);
}

export function onUpdate(doc, { id }) {
    forget(id);
    state.put("type/" + id, typeOf(doc));
    change(typeOf(doc), 1);
}

export function onDelete({ id }) {
    forget(id);
}

export function handle() {
    const counts = {};
    for (const [key, count] of state.scan({ prefix: "count/" })) counts[key.slice(6)] = count;
    return counts;
}

export function merge({ path }, parts) {
    if (path === "/texts") return new Response(parts.map((part) => part.text()).join("|"), { status: parts[0].status });
    const counts = {};
    for (const part of parts) {
        for (const [type, count] of Object.entries(part.json())) counts[type] = (counts[type] ?? 0) + count;
    }
    return counts;
}
"#;

#[test]
fn a_program_folds_documents_and_answers() {
    let mut counts = program(COUNTS);
    counts.put("a", r#"{"type":"hotel"}"#).put("b", r#"{"type":"hotel"}"#).put("c", "{}");
    assert_eq!(counts.feed().unwrap(), []);
    assert_eq!(body(&mut counts, "/"), r#"{"hotel":2,"none":1}"#);
    counts.put("a", r#"{"type":"airport"}"#).delete("c").feed().unwrap();
    assert_eq!(body(&mut counts, "/"), r#"{"airport":1,"hotel":1}"#);
    insta::assert_snapshot!(counts.state_text(), @r#"
    count/airport = 1
    count/hotel = 1
    type/a = \"airport\"
    type/b = \"hotel\"
    "#);
}

#[test]
fn a_failed_document_leaves_no_effects_and_the_others_continue() {
    let mut program = program(
        r#"
export async function onUpdate(doc, meta) {
    state.put("all", (state.get("all") ?? 0) + 1);
    state.put("new" + meta.id, 1);
    state.delete("old");
    timer.set(meta.id, Date.now());
    if (doc.bad) doc.missing.member;
}
export function onTimer({ name }) { state.put("fired", name); }
"#,
    );
    program.put("a", "{}").feed().unwrap();
    let errors = program.put("b", r#"{"bad":true}"#).put("c", "{}").feed().unwrap();
    assert_eq!(errors.len(), 1);
    assert_eq!(errors[0].index, 0);
    insta::assert_snapshot!(errors[0].message, @"main.js: TypeError: cannot read property 'member' of undefined (line 7, column 18)");
    assert_eq!(program.state_text(), "all = 2\nnewa = 1\nnewc = 1\n");
    let timers: Vec<_> = program.timers().into_iter().map(|timer| timer.name).collect();
    assert_eq!(timers, ["a", "c"]);
}

/// A section with the attribute `t`, whose value is `[2]`.
const XATTRS: &[u8] = b"\0\0\0\x0a\0\0\0\x06t\x00[2]\0";

#[test]
fn handlers_see_attributes_and_previous_versions() {
    let before = |kind, datatype, body| Previous {
        seqno: 1,
        cas: 1,
        rev: 1,
        flags: 0,
        expiry: 0,
        kind,
        datatype,
        xattrs: b"",
        body,
    };
    let event = |index: u32, key, xattrs, previous| Event {
        index,
        vb: 0,
        seqno: 10 + u64::from(index),
        cas: 10,
        rev: 2,
        flags: 0,
        expiry: 0,
        collection: 0,
        kind: if index == 2 { EventKind::Delete } else { EventKind::Upsert },
        datatype: 1,
        key,
        xattrs,
        body: if index == 2 { b"" } else { b"{}" },
        previous,
    };
    let upsert = EventKind::Upsert;
    let events = [
        event(0, b"a", XATTRS, Some(before(upsert, 1, br#"{"n":1}"#))),
        event(1, b"b", b"", Some(before(EventKind::Delete, 0, b""))),
        event(2, b"c", b"", Some(before(upsert, 0, b"\xff"))),
    ];
    let buffer = nacre_plugin::pack(&events, START_US);
    let told = |source: &str| {
        let mut program = <Program as Service>::init(&config(source)).unwrap();
        let mut state = MemoryState::default();
        let errors = program.on_batch(&Events::decode(&buffer).unwrap(), &mut state).unwrap();
        assert_eq!(errors, []);
        let value =
            |key: &str| state.get(key.as_bytes()).map(|value| String::from_utf8(value).unwrap());
        ["a", "b", "c"].map(|key| value(key).unwrap())
    };
    let one = told(
        "const show = ({ id, xattrs, old }) => state.put(id, [xattrs ?? 0, old instanceof Uint8Array ? [...old] : old ?? 0]);
         export const onUpdate = (doc, meta) => show(meta), onDelete = show;",
    );
    assert_eq!(one, [r#"[{"t":[2]},{"n":1}]"#, "[0,0]", "[0,[255]]"]);
    let batch = told(
        "export const onBatch = (events) => { for (const { meta: { id, xattrs, old } } of events) state.put(id, [xattrs ?? 0, old ?? 0]) }",
    );
    assert_eq!(batch, [r#"[{"t":[2]},{"n":1}]"#, "[0,0]", r#"[0,"/w=="]"#]);
}

/// Effects belong to the document of their handler, even after a promise that is not awaited.
#[test]
fn effects_of_promises_belong_to_the_document_of_their_handler() {
    let mut program = program(
        r#"
const put = (id) => { state.put(id, (state.get("order") ?? 0) + 1); state.put("order", state.get(id)); };
export function onUpdate(doc, { id }) {
    (async () => { await null; await null; put(id); })();
    if (doc.wait) return new Promise((go) => { globalThis.go = go }).then(() => put("late " + id));
    globalThis.go?.();
    if (doc.bad) throw new Error("on purpose");
}
export function onDelete({ id }) { put("gone " + id); }
"#,
    );
    program.put("a", "{}").put("b", r#"{"bad":true}"#).delete("b").put("c", r#"{"wait":true}"#);
    let errors = program.put("d", "{}").feed().unwrap();
    let told: Vec<_> = errors.iter().map(|error| (error.index, &error.message[..])).collect();
    let thrown = "main.js: Error: on purpose (line 7, column 28)";
    assert_eq!(told, [(1, thrown), (3, "main.js: a promise that is never settled")]);
    assert_eq!(program.state_text(), "a = 1\nd = 3\ngone b = 2\norder = 3\n");
}

/// The top level of a file runs again after a handler with pending work; it has no access to the state then
/// either.
#[test]
fn the_top_of_a_file_has_no_state_in_the_middle_of_a_batch() {
    let mut program = program(
        r#"
try { state.put("top", 1) } catch (error) { log(error.code) }
export function onUpdate(doc, { id }) {
    Promise.resolve().then(() => state.put("late", 1));
    if (doc.bad) throw new Error("on purpose");
    state.put(id, 1);
}
"#,
    );
    program.put("a", r#"{"bad":true}"#).put("b", "{}").feed().unwrap();
    assert_eq!(program.state_text(), "b = 1\nlate = 1\n");
}

#[test]
fn writes_of_a_failed_handler_are_undone_even_after_reads() {
    let mut program = program(
        r#"
export function onUpdate({ steps, bad }) {
    for (const [key, value] of steps) {
        if (value === undefined) state.get(key);
        else if (value === null) state.delete(key);
        else state.put(key, value);
    }
    if (bad) throw new Error("on purpose");
}
"#,
    );
    let last_read = r#"{"steps":[["k","first"],["k"]]}"#;
    let written_since = r#"{"steps":[["k"],["k","second"]]}"#;
    let fails = [
        r#"{"bad":true,"steps":[["k","third"]]}"#,
        r#"{"bad":true,"steps":[["k"],["k","third"]]}"#,
        r#"{"bad":true,"steps":[["none"],["k","third"]]}"#,
        r#"{"bad":true,"steps":[["k"],["k",null],["k"],["k","third"]]}"#,
        r#"{"bad":true,"steps":[["k"],["none","third"],["k","third"]]}"#,
    ];
    for (number, document) in [&[last_read, written_since][..], &fails].concat().iter().enumerate()
    {
        program.put(&format!("d{number}"), document);
    }
    let errors = program.feed().unwrap();
    assert_eq!(errors.len(), fails.len());
    assert_eq!(program.state_text(), "k = \"second\"\n".replace('"', "\\\""));
}

#[test]
fn errors_in_a_program_are_reported_with_their_position() {
    let told = [
        refusal("export function onUpdate(doc) {\n  state..get()\n}"),
        refusal("export const x = 1;"),
        refusal("\n\nthrow new Error('at once');"),
        refusal("import { x } from 'other'; export function handle() {}"),
        refusal("while (true) {}"),
        refusal("state.put('a', 1); export function handle() {}"),
        refusal("await new Promise(() => {}); export function handle() {}"),
        refusal("function onUpdate() {}"),
        refusal("export default { handle() {} }"),
        refusal("export async function handle() {}"),
    ];
    insta::assert_snapshot!(told.join("\n"), @r#"
    main.js: SyntaxError: expecting field name (line 2, column 9)
    main.js has none of the handlers onUpdate, onDelete, onBatch, onTimer, onRollback, handle, merge
    main.js: Error: at once (line 3, column 11)
    main.js: ReferenceError: there is no module "other"
    main.js: stopped after 50000000 steps: a loop that does not end?
    main.js: Error: this can only be used while a handler runs (line 1, column 6)
    main.js: a promise that is never settled
    ok
    ok
    ok
    "#);
    let error = Harness::<Program>::new("{}").err().unwrap();
    assert!(matches!(&error, Fault::Reject(message) if message.contains("source")), "{error}");
}

#[test]
fn answers_of_several_nodes_are_merged() {
    let mut counts = program(COUNTS);
    let part =
        |status: u16, body: &str| Response { body: body.into(), ..Response::json(status, "") };
    let parts = || vec![part(200, r#"{"hotel":2,"none":1}"#), part(200, r#"{"hotel":5}"#)];
    let mut merge = |path: &str, parts: Vec<Response>| {
        let request = Request { path: path.into(), ..Request::default() };
        let merged = counts.merge(&request, parts).unwrap();
        (merged.status, String::from_utf8(merged.body).unwrap())
    };
    assert_eq!(merge("/", parts()), (200, r#"{"hotel":7,"none":1}"#.into()));
    let texts = (200, r#"{"hotel":2,"none":1}|{"hotel":5}"#.into());
    assert_eq!(merge("/texts", parts()), texts);
    let (status, text) = merge("/", vec![part(200, "{")]);
    assert_eq!(status, 500, "{text}");
    let mut without = program("export function handle() { return 1 }");
    let error = without.merge(&Request::default(), parts()).unwrap_err();
    assert_eq!(error.to_string(), "main.js has no merge for the answers of several nodes");
}

#[test]
fn endless_and_greedy_handlers_are_errors_of_their_documents() {
    let mut program = program(
        r#"
export function onUpdate(doc) {
    if (doc.do === "loop") for (;;) try { for (;;); } catch {}
    if (doc.do === "recurse") (function f() { f() })();
    if (doc.do === "grow") { const a = []; for (;;) a.push("x".repeat(1e6) + a.length) }
    if (doc.do === "deep") JSON.parse("[".repeat(1e5));
    if (doc.do === "chance") Math.random();
    if (doc.do === "key") state.put("", 1);
    if (doc.do === "large key") state.put("x".repeat(65537), 1);
    if (doc.do === "value") state.put("a", undefined);
    if (doc.do === "symbol") state.put(Symbol("a"), 1);
    if (doc.do === "timer") timer.set("a", NaN);
    if (doc.do === "break") { Array.prototype.push = Array.prototype.map = null; Object.entries = null; JSON.stringify = null }
    state.put("last", doc.do);
}
export function handle() { return state.get("last") }
"#,
    );
    let attacks = [
        "loop",
        "recurse",
        "grow",
        "deep",
        "chance",
        "key",
        "large key",
        "value",
        "symbol",
        "timer",
    ];
    for attack in attacks {
        program.put(attack, &format!(r#"{{"do":"{attack}"}}"#));
    }
    program.put("good", r#"{"do":"good"}"#);
    let errors = program.feed().unwrap();
    let told: Vec<_> = errors
        .iter()
        .map(|error| format!("{}: {}", attacks[error.index as usize], error.message))
        .collect();
    insta::assert_snapshot!(told.join("\n"), @r#"
    loop: main.js: stopped after 50000000 steps: a loop that does not end?
    recurse: main.js: RangeError: Maximum call stack size exceeded (line 4, column 47)
    grow: main.js: InternalError: out of memory (line 5, column 64)
    deep: main.js: RangeError: Maximum call stack size exceeded (line 6, column 43)
    chance: main.js: Error: Math.random is not available: results must not depend on chance (line 7, column 35)
    key: main.js: Error: a key has 1 to 65536 bytes (line 8, column 33)
    large key: main.js: Error: a key has 1 to 65536 bytes (line 9, column 47)
    value: main.js: TypeError: this value has no JSON representation (line 10, column 44)
    symbol: main.js: TypeError: expected a string, a number, a boolean or a Uint8Array (line 11, column 40)
    timer: main.js: Error: a timer needs a Date, or milliseconds (line 12, column 44)
    "#);
    assert_eq!(body(&mut program, "/"), r#""good""#);
}

#[test]
fn bytes_and_json_are_distinguished() {
    let mut program = program(
        r#"
export function onUpdate(doc, meta) {
    state.put(meta.id, doc instanceof Uint8Array ? doc : { json: doc });
    state.put("copy of " + meta.id, state.get(meta.id));
}
export function handle({ path }) { return new Response(state.get(path.slice(1))) }
"#,
    );
    program.put("a", "{}").put("b", "not json").feed().unwrap();
    insta::assert_snapshot!(program.state_text(), @r#"
    a = {\"json\":{}}
    b = \x00not json
    copy of a = {\"json\":{}}
    copy of b = \x00not json
    "#);
    assert_eq!(body(&mut program, "/copy of b"), "not json");
}

#[test]
fn scans_page_through_all_entries_in_both_directions() {
    let mut program = program(
        r#"
export function onUpdate(doc, { id }) {
    for (let i = 0; i < 250; i++) state.put("k" + String(i).padStart(3, "0"), i);
    state.put("j", -1);
    state.put("l", -2);
}
export function handle() {
    const all = (options) => Array.from(state.scan(options), ([key, value]) => value);
    const sum = (values) => values.reduce((a, b) => a + b, 0);
    return [
        sum(all({ prefix: "k" })), sum(all({ prefix: "k", reverse: true })), all({}).length,
        all({ prefix: "k", limit: 3 }), all({ prefix: "k", limit: 3, reverse: true }),
        all({ start: "k248" }), all({ start: "k001", end: "k003" }), all({ start: "x" }),
        all({ prefix: "k", limit: 120 }).length, all({ prefix: "k", limit: 120, reverse: true }).at(-1),
    ];
}
"#,
    );
    program.put("a", "{}").feed().unwrap();
    assert_eq!(
        body(&mut program, "/"),
        "[31125,31125,252,[0,1,2],[249,248,247],[248,249,-2],[1,2],[],120,130]"
    );
}

#[test]
fn requests_have_parameters_and_answers_have_pieces() {
    let mut program = program(
        r#"
export async function handle(request) {
    if (request.path === "/echo") return { ...request, config, bytes: undefined, body: request.text() };
    if (request.path === "/none") return undefined;
    if (request.path === "/fails") throw new RangeError("too far");
    if (request.path === "/writes") state.put("a", 1);
    if (request.path === "/status") return new Response("gone", { status: 410, headers: { "x-why": "old" } });
    if (request.path === "/json") return Response.json({ sum: request.json().reduce((a, b) => a + b) }, { status: 201 });
    return new Response((function* () { for (let i = 0; i < 3; i++) yield `${i},` })());
}
"#,
    );
    let request = Request {
        method: "POST".into(),
        path: "/echo".into(),
        query: "a=1%202&b&a+b=c".into(),
        headers: vec![("accept".into(), "text/csv".into())],
        body: "[1,2]".into(),
        now_us: 0,
    };
    let echo = program.ask(&request).unwrap();
    insta::assert_snapshot!(String::from_utf8(echo.body).unwrap(), @r#"{"method":"POST","path":"/echo","query":"a=1%202&b&a+b=c","parameters":{"a":"1 2","b":"","a b":"c"},"headers":{"accept":"text/csv"},"config":{"limit":3},"body":"[1,2]"}"#);
    let sum = program.ask(&Request { path: "/json".into(), ..request }).unwrap();
    assert_eq!((sum.status, &sum.body[..]), (201, &br#"{"sum":3}"#[..]));
    assert_eq!(body(&mut program, "/pieces"), "0,1,2,");
    let told = ["/none", "/fails", "/writes", "/status"].map(|path| body(&mut program, path));
    insta::assert_snapshot!(told.join("\n"), @r#"
    404 {"error":"not_found","reason":"missing"}
    500 {"error":"exception","reason":"main.js: RangeError: too far (line 5, column 46)"}
    500 {"error":"exception","reason":"main.js: Error: handle cannot write to the state (line 6, column 43)"}
    410 gone
    "#);
}

#[test]
fn timers_fire_with_their_payload_and_their_time() {
    let mut program = program(
        r#"
function onUpdate(doc, { id }) { timer.set(id, new Date(Date.now() + doc.in), doc); }
function onDelete({ id }) { timer.cancel(id); }
function onTimer({ name, due, payload }) {
    if (payload.bad) throw new Error("bad timer");
    state.put(name, [due - payload.in, Date.now() - due]);
}
"#,
    );
    program.put("a", r#"{"in":1000}"#).put("b", r#"{"in":2000}"#).feed().unwrap();
    program.delete("b").feed().unwrap();
    program.advance(Duration::from_secs(5)).unwrap();
    assert_eq!(program.state_text(), format!("a = [{},0]\n", START_US / 1000));
    program.put("c", r#"{"in":0,"bad":true}"#).feed().unwrap();
    let error = program.advance(Duration::ZERO).unwrap_err();
    insta::assert_snapshot!(error, @"main.js: Error: bad timer (line 5, column 32)");
    assert_eq!(program.timers().len(), 1, "it is not lost");
}

#[test]
fn documents_and_requests_go_through_the_host() {
    let mut program = program(
        r#"
export function onUpdate(doc, { id }) {
    const told = [];
    const attempt = (call) => { try { told.push(call()) } catch (error) { told.push(error.code ?? String(error)) } };
    attempt(() => kv.get("none"));
    attempt(() => kv.get("d", { keyspace: "s.c" }).value.n);
    attempt(() => kv.insert("a", { x: 1 }));
    attempt(() => kv.insert("a", {}));
    attempt(() => kv.replace("a", { x: 2 }, { cas: "99" }));
    attempt(() => kv.replace("a", { x: 2 }, { cas: kv.get("a").cas }));
    attempt(() => kv.get("a").value);
    attempt(() => kv.counter("n", 1, { initial: 40 }) + kv.counter("n", 2));
    attempt(() => kv.counter("a"));
    attempt(() => kv.remove("a") > "");
    attempt(() => http.fetch("https://a/x", { method: "POST", body: { q: 1 }, headers: { "X-A": "b" } }).json());
    attempt(() => kv.get(7));
    metrics.add("seen");
    metrics.set("size", 7);
    console.log("done with", id);
    state.put("told", told);
}
"#,
    );
    program.store("s.c", "d", &kv::Content::from(r#"{"n":7}"#));
    program.on_http(|request| {
        let body = format!(
            r#"{{"asked":"{} {}","body":{},"headers":{:?}}}"#,
            request.method,
            request.url,
            String::from_utf8_lossy(&request.body),
            request.headers[0].0
        );
        Ok(http::Response { status: 200, headers: Vec::new(), body: body.into() })
    });
    assert_eq!(program.put("k", "{}").feed().unwrap(), []);
    insta::assert_snapshot!(program.state_text(), @r#"told = [null,7,\"2\",\"exists\",\"cas-mismatch\",\"3\",{\"x\":2},82,\"invalid\",true,{\"asked\":\"POST https://a/x\",\"body\":{\"q\":1},\"headers\":\"X-A\"},\"invalid\"]"#);
    assert_eq!(program.log(), ["done with k"]);
    assert_eq!(program.metrics(), [("seen".to_owned(), 1.0), ("size".to_owned(), 7.0)].into());
}

#[test]
fn batches_and_rollbacks_have_their_own_handlers() {
    let mut program = program(
        r#"
export function onBatch(events) {
    for (const { meta, doc } of events) {
        if (doc?.bad) throw new Error("bad batch");
        state.put(String(meta.seqno), [meta.kind, meta.id, doc]);
    }
}
export function onRollback(vbucket, seqno) {
    for (const [key] of [...state.scan()]) if (Number(key) > seqno) state.delete(key);
    return seqno;
}
"#,
    );
    program.put("a", r#"{"n":1}"#).put("b", "raw").delete("a").feed().unwrap();
    insta::assert_snapshot!(program.state_text(), @r#"
    1 = [\"update\",\"a\",{\"n\":1}]
    2 = [\"update\",\"b\",\"cmF3\"]
    3 = [\"delete\",\"a\",null]
    "#);
    let error = program.put("c", "{}").put("d", r#"{"bad":1}"#).feed().unwrap_err();
    assert!(matches!(&error, Fault::Reject(message) if message.contains("bad batch")), "{error}");
    assert_eq!(program.rollback(1).unwrap(), 1);
    assert_eq!(program.state().len(), 1);
    let mut other = self::program("export function handle() {}");
    assert!(matches!(other.rollback(1), Err(Fault::Fatal(_))));
}

#[test]
fn a_temporarily_unavailable_document_repeats_the_call() {
    let writes = r#"kv.upsert("seen", {}, { keyspace: "s.c" })"#;
    let handlers = [
        format!("export function onUpdate(doc) {{ state.put('a', 1); {writes}; }}"),
        format!("export async function onDelete(meta) {{ state.put('a', 1); {writes}; }}"),
        format!("export function onBatch(events) {{ state.put('a', 1); {writes}; }}"),
    ];
    for error in [kv::Error::Temporary("the memory is full".into()), kv::Error::Locked] {
        for source in &handlers {
            let mut program = program(source);
            program.refuse_documents(Some(error.clone()));
            let fault = program.put("a", "{}").delete("b").feed().unwrap_err();
            assert!(matches!(fault, Fault::Retry(_)), "{source}: {fault:?}");
            program.refuse_documents(None);
            assert_eq!(program.put("a", "{}").delete("b").feed().unwrap(), [], "{source}");
            assert_eq!(program.state_text(), "a = 1\n");
        }
        let mut program = program(&format!(
            "export function onUpdate(doc, {{ id }}) {{ timer.set(id, Date.now()); }}
            export function onTimer() {{ {writes}; }}"
        ));
        program.put("a", "{}").feed().unwrap();
        program.refuse_documents(Some(error));
        let fault = program.advance(Duration::ZERO).unwrap_err();
        assert!(matches!(fault, Fault::Retry(_)), "{fault:?}");
        program.refuse_documents(None);
        program.advance(Duration::ZERO).unwrap();
        assert_eq!(program.documents().len(), 1);
    }
}

#[test]
fn external_effects_are_not_repeated_when_a_later_document_waits() {
    let mut program = program(
        r#"
export function onUpdate(doc, { id }) {
    state.put(id, kv.get("d") ?? 0);
    if (doc.writes) kv.upsert(id, doc);
    if (doc.waits) throw Object.assign(new Error("later"), { code: "locked" });
}
export function onTimer() {}
"#,
    );
    let (folds, writes, waits) = ("{}", r#"{"writes":1}"#, r#"{"waits":1}"#);
    let mut begun = |documents: &[&str]| {
        for (number, document) in documents.iter().enumerate() {
            program.put(&format!("k{number}"), document);
        }
        let fault = program.feed().unwrap_err();
        assert!(matches!(fault, Fault::Retry(_)), "{fault:?}");
        program.turn()
    };
    assert_eq!(begun(&[folds, folds, waits]), None, "they only fold");
    assert_eq!(begun(&[folds, writes, waits]), Some(2));
    // This also holds for documents without external effects: the last one that began is the one that ended
    // the call.
    assert_eq!(begun(&[writes, folds, folds, waits]), Some(3));
}

#[test]
fn other_and_caught_refusals_of_documents_do_not_cause_waiting() {
    let mut program = program(
        r#"
export function onUpdate(doc, { id }) {
    if (doc.catches) try { kv.get("d") } catch (error) { state.put(id, error.code) }
    else kv.get("d");
}
"#,
    );
    program.refuse_documents(Some(kv::Error::Locked));
    assert_eq!(program.put("a", r#"{"catches":true}"#).feed().unwrap(), []);
    insta::assert_snapshot!(program.state_text(), @r#"a = \"locked\""#);
    program.refuse_documents(Some(kv::Error::Denied("s.c is not granted".into())));
    let errors = program.put("b", "{}").feed().unwrap();
    assert_eq!(errors.len(), 1);
}

/// The documents of an example and its state are not committed together: a crash may keep the state and lose
/// the document.
#[test]
fn the_index_table_rewrites_a_lookup_lost_in_a_crash() {
    let lookup = ("shop.lookup".to_owned(), b"mail::ann@example.com".to_vec());
    let mut table = program(include_str!("../../../../examples/index-table/main.js"));
    let user = r#"{"email":"ann@example.com"}"#;
    table.put("user::1", user).put("user::2", user).feed().unwrap();
    table.lose("shop.lookup", "mail::ann@example.com");
    table.put("user::1", r#"{"email":"ann@example.com","name":"Ann"}"#).feed().unwrap();
    assert_eq!(table.documents()[&lookup].body, b"\"user::1\"", "before the one that waits");
}

/// `nacre.d.ts`, which editors use for completion, matches the global scope.
#[test]
fn the_types_for_editors_declare_exactly_the_global_scope() {
    let types = include_str!("../../nacre.d.ts");
    let declared = types.split("declare const ").skip(1).filter_map(|object| {
        let (name, members) = object.split_once(": {\n")?;
        let members = members.split_once("\n};")?.0.lines();
        let name_of = |line: &str| Some(line.strip_prefix("    ")?.split_once('(')?.0.to_owned());
        let is_name = |name: &String| name.bytes().all(|byte| byte.is_ascii_alphabetic());
        let mut members: Vec<_> = members.filter_map(name_of).filter(is_name).collect();
        members.sort();
        Some(format!("{name}: {}", members.join(" ")))
    });
    let mut declared: Vec<_> = declared.collect();
    declared.sort();
    let mut program = program(
        r#"
export function handle() {
    const objects = Object.entries({ state, kv, timer, http, metrics, console });
    return objects.map(([name, object]) => `${name}: ${Object.keys(object).sort().join(" ")}`).sort();
}
"#,
    );
    let there: Vec<String> = serde_json::from_str(&body(&mut program, "/")).unwrap();
    assert_eq!(declared, there);
}
