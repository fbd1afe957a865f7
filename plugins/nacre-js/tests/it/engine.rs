//! Tests of functions, builtins, errors and limits.

use nacre_js::{Argument, Engine, Limits};

fn engine() -> Engine {
    Engine::new(Limits::default()).unwrap()
}

fn eval(source: &str) -> String {
    let mut engine = engine();
    let function = match engine.compile("code", source) {
        Ok(function) => function,
        Err(error) => return format!("cannot compile: {error}"),
    };
    match engine.call(function, &[]) {
        Ok(result) => result.unwrap_or_else(|| "undefined".into()),
        Err(error) => error.to_string(),
    }
}

#[test]
fn functions_can_be_written_in_every_form() {
    for source in [
        "function (a) { return 7 }",
        "function named(a) { return 7; };\n",
        "(a) => 7",
        "a => { return 7 } // the end",
        "/* first */ function () { seven = 7; return seven }",
    ] {
        assert_eq!(eval(source), "7", "{source}");
    }
}

#[test]
fn errors_name_the_place_in_the_text() {
    let cases = [
        "function (doc) {",
        "function (doc) {\n  return doc.a.b;\n}",
        "() => nowhere",
        "() => { throw new RangeError('too far') }",
        "() => { throw {code: 3} }",
        "1 + 1",
        "() => { const o = {}; o.o = o; return o }",
        "() => 10n",
    ];
    let lines: Vec<_> = cases
        .iter()
        .map(|case| format!("{}\n    {}", case.replace('\n', "⏎"), eval(case)))
        .collect();
    insta::assert_snapshot!(lines.join("\n"), @r#"
    function (doc) {
        cannot compile: SyntaxError: unexpected token in expression: ')' (line 2, column 1)
    function (doc) {⏎  return doc.a.b;⏎}
        TypeError: cannot read property 'a' of undefined (line 2, column 10)
    () => nowhere
        ReferenceError: nowhere is not defined (line 1, column 7)
    () => { throw new RangeError('too far') }
        RangeError: too far (line 1, column 19)
    () => { throw {code: 3} }
        uncaught {"code":3}
    1 + 1
        cannot compile: expected the text of a function, such as function (doc, meta) { … }
    () => { const o = {}; o.o = o; return o }
        TypeError: circular reference
    () => 10n
        TypeError: BigInt are forbidden in JSON.stringify
    "#);
}

#[test]
fn builtins_behave_as_views_expect() {
    assert_eq!(eval("() => sum([1, 2, 3.5])"), "6.5");
    assert_eq!(eval("() => dateToArray('2023-11-14T22:13:20Z')"), "[2023,11,14,22,13,20]");
    assert_eq!(eval("() => dateToArray('no date')"), "null");
    assert_eq!(eval("() => decodeBase64('SGk=')"), "[72,105]");
    assert_eq!(eval("() => decodeBase64('/+8')"), "[255,239]");
    assert_eq!(eval("() => typeof performance"), r#""undefined""#);
}

#[test]
fn time_and_random_numbers_come_from_the_host() {
    let mut engine = engine();
    engine.set_now(1_700_000_000_000_000);
    let source = "() => [Date.now(), new Date().getTime(), new Date(5).getTime(), new Date(0) instanceof Date]";
    let function = engine.compile("code", source).unwrap();
    let result = engine.call(function, &[]).unwrap().unwrap();
    assert_eq!(result, "[1700000000000,1700000000000,5,true]");
    assert!(eval("() => Math.random()").starts_with("Error: Math.random is not available"));
}

#[test]
fn emitted_pairs_are_collected_as_json() {
    let mut engine = engine();
    let source = "function (doc) { emit([doc.a, undefined], null); emit('k'); emit() }";
    let map = engine.compile("map", source).unwrap();
    let emitted = engine.call_for_emitted(map, &[Argument::Json(r#"{"a":1}"#)]).unwrap();
    let emitted: Vec<_> = emitted.iter().map(|e| (&e.key[..], &e.value[..])).collect();
    assert_eq!(emitted, [("[1,null]", "null"), (r#""k""#, "null"), ("null", "null")]);
}

/// Promise jobs run in the call that created them or not at all: a failed call drops them.
#[test]
fn jobs_of_promises_never_run_in_another_call() {
    let mut engine = engine();
    let later =
        engine.compile("later", "(k) => { Promise.resolve().then(() => emit(k)) }").unwrap();
    let source = "(k) => { Promise.resolve().then(() => emit(k)); throw new Error('now') }";
    let fails = engine.compile("fails", source).unwrap();
    let source = "() => { const again = () => Promise.resolve().then(again); again() }";
    let flood = engine.compile("flood", source).unwrap();
    let emits = |engine: &mut Engine, function, key| {
        let emitted = engine.call_for_emitted(function, &[Argument::Json(key)])?;
        Ok::<_, nacre_js::Error>(emitted.into_iter().map(|one| one.key).collect::<Vec<_>>())
    };
    assert_eq!(emits(&mut engine, later, "1").unwrap(), ["1"]);
    for broken in [fails, flood] {
        assert!(emits(&mut engine, broken, "2").is_err());
        assert!(engine.is_settled());
        assert_eq!(emits(&mut engine, later, "3").unwrap(), ["3"]);
    }
}

/// The owner of an engine with a program must recreate it; until then it refuses calls.
#[test]
fn a_program_with_pending_jobs_is_not_called_again() {
    for fails in [
        "Promise.resolve().then(() => log('late')); throw 1",
        "return new Promise((go) => { globalThis.go = go }).then(() => log('late'))",
        "const again = () => Promise.resolve().then(again); again()",
    ] {
        let mut engine = engine();
        let source = format!(
            "export function fails() {{ {fails} }} export function well() {{ globalThis.go?.() }}"
        );
        let found = engine.load("main.js", &source, &["fails", "well"]).unwrap();
        assert!(engine.call(found[0].unwrap(), &[]).is_err(), "{fails}");
        assert!(!engine.is_settled(), "{fails}");
        let refused = engine.call(found[1].unwrap(), &[]).unwrap_err().to_string();
        assert!(refused.contains("of an earlier call"), "{refused}");
        assert!(engine.take_log().is_empty(), "{fails}");
    }
}

#[test]
fn log_lines_are_collected_and_bounded() {
    let mut engine = engine();
    let source = "() => { log('a', 1, {b: [2]}); for (let i = 0; i < 1e4; i++) log(i) }";
    let function = engine.compile("code", source).unwrap();
    engine.call(function, &[]).unwrap();
    let log = engine.take_log();
    assert_eq!((&log[0][..], log.len()), (r#"a 1 {"b":[2]}"#, 100));
}

/// Each attack ends in a specific error, and the engine answers the next call normally.
#[test]
fn attacks_are_contained_and_named() {
    let cases = [
        ("endless loop", "() => { while (true) {} }"),
        ("endless loop that catches", "() => { for (;;) { try { for (;;) {} } catch (e) {} } }"),
        ("endless recursion", "function f() { return f() + 1 }"),
        (
            "array without end",
            "() => { const a = []; for (;;) a.push('x'.repeat(1e6) + a.length) }",
        ),
        ("string of a gigabyte", "() => 'x'.repeat(1e9).length"),
        ("string doubling", "() => { let s = 'x'; for (;;) s += s }"),
        ("large typed array", "() => new Uint8Array(1e9).length"),
        ("backtracking", "() => /^(a+)+$/.test('a'.repeat(40) + 'b')"),
        ("large emit", "() => emit('k', 'x'.repeat(1e7))"),
        ("large emit, caught", "() => { try { emit('k', 'x'.repeat(1e7)) } catch (e) {} }"),
        ("large key", "() => emit('x'.repeat(5000))"),
        ("large result", "() => 'x'.repeat(1e6)"),
        ("deep value", "() => { let v = 1; for (let i = 0; i < 1e5; i++) v = [v]; return v }"),
    ];
    let mut engine = engine();
    let well = engine.compile("well", "() => 'well'").unwrap();
    let mut lines = Vec::new();
    for (name, source) in cases {
        let function = engine.compile("code", source).unwrap();
        let error = engine.call(function, &[]).unwrap_err();
        lines.push(format!("{name}: {error}"));
        assert_eq!(engine.call(well, &[]).unwrap().as_deref(), Some(r#""well""#), "after {name}");
    }
    insta::assert_snapshot!(lines.join("\n"), @"
    endless loop: stopped after 10000000 steps: a loop that does not end?
    endless loop that catches: stopped after 10000000 steps: a loop that does not end?
    endless recursion: RangeError: Maximum call stack size exceeded (line 1, column 22)
    array without end: InternalError: out of memory (line 1, column 42)
    string of a gigabyte: InternalError: out of memory (line 1, column 10)
    string doubling: InternalError: string too long (line 1, column 36)
    large typed array: InternalError: out of memory (line 1, column 11)
    backtracking: stopped after 10000000 steps: a loop that does not end?
    large emit: emitted more than 1048576 bytes for one document
    large emit, caught: emitted more than 1048576 bytes for one document
    large key: emitted key of 5002 bytes: the limit is 4096
    large result: result of 1000002 bytes: the limit is 65536
    deep value: RangeError: Maximum call stack size exceeded
    ");
}

#[test]
fn deep_arguments_are_refused_before_they_are_parsed() {
    let mut engine = engine();
    let function = engine.compile("code", "(v) => 1").unwrap();
    let deep = "[".repeat(100_000) + &"]".repeat(100_000);
    let error = engine.call(function, &[Argument::Json(&deep)]).unwrap_err();
    assert_eq!(error.to_string(), "JSON nests deeper than 512 levels");
}

#[test]
fn a_watch_stops_a_call_and_the_next_call_starts_fresh() {
    use std::cell::Cell;
    use std::rc::Rc;
    let mut engine = engine();
    let looks = Rc::new(Cell::new(0));
    let looked = Rc::clone(&looks);
    engine.set_watch(move || looked.replace(looked.get() + 1) == 3);
    let spin = engine.compile("spin", "() => { try { for (;;); } catch {} }").unwrap();
    assert_eq!(engine.call(spin, &[]).unwrap_err(), nacre_js::Error::Late);
    assert_eq!(looks.get(), 4);
    let short = engine.compile("short", "() => 1").unwrap();
    assert_eq!(engine.call(short, &[]).unwrap().as_deref(), Some("1"));
}
