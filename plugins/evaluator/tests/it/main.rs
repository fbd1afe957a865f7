//! Tests libraries as queries call them, and the plugin around them.

use nacre_evaluator::{CallContext, Evaluator, HostQueries, LIMITS, Library, Queries, Refused};
use nacre_plugin::{Fault, Functions};
use std::collections::BTreeMap;

const NOON: CallContext = CallContext { now_us: 1_700_000_000_000_000, seed: 7 };

fn library(code: &str) -> Library {
    Library::load("functions/lib.js", code, Box::new(HostQueries)).unwrap()
}

/// Calls the function `f` of a library.
fn call(code: &str, arguments: &[Option<&str>]) -> String {
    library(code).call("f", NOON, arguments).to_json()
}

#[test]
fn values_cross_over_and_back() {
    let code = "function f(value) { return {value, type: typeof value} }";
    let all = [
        Some("1"),
        Some("-0.5"),
        Some("1e300"),
        Some(r#""é\n""#),
        Some("true"),
        Some("null"),
        None,
        Some(r#"{"a":[1,{"b":[null]}]}"#),
    ];
    let told: Vec<_> = all.iter().map(|value| call(code, &[*value])).collect();
    insta::assert_snapshot!(told.join("\n"), @r#"
    {"value":{"value":1,"type":"number"}}
    {"value":{"value":-0.5,"type":"number"}}
    {"value":{"value":1e+300,"type":"number"}}
    {"value":{"value":"é\n","type":"string"}}
    {"value":{"value":true,"type":"boolean"}}
    {"value":{"value":null,"type":"object"}}
    {"value":{"type":"undefined"}}
    {"value":{"value":{"a":[1,{"b":[null]}]},"type":"object"}}
    "#);
}

#[test]
fn a_function_without_a_return_value_has_no_result() {
    assert_eq!(call("function f() {}", &[]), "{}");
    assert_eq!(call("function f() { return null }", &[]), r#"{"value":null}"#);
}

#[test]
fn jobs_of_a_failed_call_never_run_in_another_call() {
    let mut library = library(
        "let late = 0;\nfunction f() { Promise.resolve().then(() => { late = 1 }); throw 1 }\nfunction g() { return late }",
    );
    assert!(matches!(library.call("f", NOON, &[]), nacre_evaluator::Outcome::Exception(_)));
    assert_eq!(library.call("g", NOON, &[]).to_json(), r#"{"value":0}"#);
}

#[test]
fn functions_of_a_library_call_each_other_in_every_form_of_declaration() {
    let mut library = library(
        "function one() { return 1 }\nconst two = () => one() + 1;\nasync function three() { return await two() + 1 }",
    );
    for (name, value) in [("one", "1"), ("two", "2"), ("three", "3")] {
        let told = library.call(name, NOON, &[]).to_json();
        assert_eq!(told, format!("{{\"value\":{value}}}"), "{name}");
    }
}

#[test]
fn exceptions_report_where_they_were_thrown() {
    let cases = [
        "function f(x) {\n  return x.y.z\n}",
        "function f() {\n  helper()\n}\nfunction helper() {\n  throw new RangeError('too far')\n}",
        "function f() { throw 'failure' }",
        "function f() { throw {code: 7} }",
        "function g() {}",
        "function f() {\n  return N1QL('SELECT 1')\n}",
        "function f() { return emit }",
    ];
    let told: Vec<_> = cases.iter().map(|code| call(code, &[Some("{}")])).collect();
    insta::assert_snapshot!(told.join("\n"), @r#"
    {"exception":{"column":10,"line":2,"text":"  return x.y.z","thrown":"TypeError: cannot read property 'z' of undefined"}}
    {"exception":{"column":13,"line":5,"text":"  throw new RangeError('too far')","thrown":"RangeError: too far"}}
    {"exception":{"thrown":"failure"}}
    {"exception":{"thrown":{"code":7}}}
    {"exception":{"thrown":"There is no function f in the code"}}
    {"exception":{"column":10,"line":2,"text":"  return N1QL('SELECT 1')","thrown":{"code":5000,"message":"there are no queries here"}}}
    {"exception":{"column":23,"line":1,"text":"function f() { return emit }","thrown":"ReferenceError: emit is not defined"}}
    "#);
}

#[test]
fn messages_of_exceptions_are_truncated() {
    let long = "é".repeat(2000);
    for code in [
        format!("function f() {{ throw 'x'.repeat(20 << 20) }} // {long}"),
        format!("function f() {{ throw new Error('é'.repeat(1 << 20)) }} // {long}"),
        format!("function f() {{ throw {{all: new Array(1 << 20).fill(7)}} }} // {long}"),
    ] {
        let told = call(&code, &[]);
        assert!(told.contains("exception") && told.len() < 20_000, "{}", told.len());
    }
}

#[test]
fn texts_and_names_of_any_kind_are_accepted_or_refused() {
    for (file, code) in [
        ("functions/\0.js", "function f() { return 1 }"),
        ("functions/a:1:1).js", "function f() {\n throw new Error() }"),
        ("f.js", "function f() { return '\0' }"),
        ("f.js", "\0"),
        ("", "function f() { null.a }"),
        ("f.js", "import x from 'y'"),
        ("f.js", "#!/usr/bin/env node\nfunction f() { return 1 }"),
        ("f.js", "function f() { delete globalThis.f; Object.prototype.then = 1; return f }"),
    ] {
        if let Ok(mut library) = Library::load(file, code, Box::new(HostQueries)) {
            let told = library.call("f", NOON, &[]).to_json();
            assert!(serde_json::from_str::<serde_json::Value>(&told).is_ok(), "{told}");
        }
    }
}

#[test]
fn invalid_javascript_is_refused_with_its_position() {
    let refused = |code| {
        Library::load("functions/lib.js", code, Box::new(HostQueries)).err().unwrap().to_string()
    };
    let told: Vec<_> = ["function f( {", "function f() {}\nlet 1", "throw new Error('no')"]
        .into_iter()
        .map(refused)
        .collect();
    insta::assert_snapshot!(told.join("\n"), @"
    SyntaxError: invalid property name (line 1, column 14)
    SyntaxError: expecting ';' (line 2, column 5)
    Error: no (line 1, column 11)
    ");
}

#[test]
fn a_name_is_never_run_as_code() {
    for name in ["f()", "f;", "1", "", "a.b", "function", "this", "f\n"] {
        let told = library("function f() { return 1 }").call(name, NOON, &[]).to_json();
        assert!(told.contains("exception"), "{name}: {told}");
    }
}

#[test]
fn an_endless_call_is_stopped_and_the_next_call_runs() {
    let mut library = library(
        "function f() { for (;;) {} }\n\
         function deep() { return deep() + 1 }\n\
         function wide() { const all = []; for (;;) all.push(new Array(1000).fill(all.length)) }\n\
         function large() { return 'x'.repeat(20 << 20) }\n\
         function fine() { return 1 }",
    );
    for (name, why) in [
        ("f", "stopped after 1000000000 steps"),
        ("deep", "stack"),
        ("wide", "out of memory"),
        ("large", "the limit is 16777216"),
    ] {
        let told = library.call(name, NOON, &[]).to_json();
        assert!(told.contains("exception") && told.contains(why), "{name}: {told}");
        assert_eq!(library.call("fine", NOON, &[]).to_json(), r#"{"value":1}"#, "after {name}");
    }
    assert_eq!(LIMITS.result_bytes_max, 16_777_216);
}

/// Answers `ROWS n` with rows from 1 to n, two at a time, and refuses other statements.
#[derive(Default)]
struct Counting {
    open: BTreeMap<u32, (u64, u64)>,
}

impl Queries for Counting {
    fn begin(&mut self, statement: &str, parameters: &str) -> Result<u32, Refused> {
        let refused =
            |message: &str| Refused { code: 3000, message: format!("{message} {parameters}") };
        if statement.starts_with("SELECT") {
            return Err(refused(statement));
        }
        let count = statement.strip_prefix("ROWS ").ok_or_else(|| refused("syntax error"))?;
        let query = self.open.last_key_value().map_or(1, |(last, _)| last + 1);
        self.open.insert(query, (1, count.parse().unwrap()));
        assert!(self.open.len() < 3, "those that are left are closed");
        Ok(query)
    }

    fn next(&mut self, query: u32) -> Result<Vec<String>, Refused> {
        let Some((from, to)) = self.open.get_mut(&query) else { return Ok(Vec::new()) };
        let rows = (*from..=(*from + 1).min(*to)).map(|row| format!("{{\"n\":{row}}}"));
        let rows: Vec<_> = rows.collect();
        *from += 2;
        if rows.is_empty() {
            self.open.remove(&query);
        }
        Ok(rows)
    }

    fn close(&mut self, query: u32) {
        self.open.remove(&query);
    }
}

#[test]
fn code_reads_rows_and_catches_refusals() {
    let code = "function f() {
            let [all, some] = [[], []];
            for (const {n} of N1QL('ROWS 5')) all.push(n);
            for (let left = 0; left < 9; left++) for (const {n} of N1QL('ROWS 5')) { some.push(n); break }
            const refused = (...query) => { try { return [...N1QL(...query)] } catch (e) { return JSON.parse(e.message) } };
            return [all, some.length, [...N1QL('ROWS 0')], refused('SELEC', {$a: 1, b: [2]}), refused('SELEC', [7])];
        }
        function g() { N1QL('SELEC') }
        function h() { N1QL(7) }";
    let mut library = Library::load("lib.js", code, Box::<Counting>::default()).unwrap();
    let told = ["f", "g", "h"].map(|name| library.call(name, NOON, &[]).to_json());
    insta::assert_snapshot!(told.join("\n"), @r#"
    {"value":[[1,2,3,4,5],9,[],{"code":3000,"message":"syntax error {\"a\":1,\"b\":[2]}"},{"code":3000,"message":"syntax error [7]"}]}
    {"exception":{"column":24,"line":8,"text":"        function g() { N1QL('SELEC') }","thrown":{"code":3000,"message":"syntax error "}}}
    {"exception":{"column":24,"line":9,"text":"        function h() { N1QL(7) }","thrown":"TypeError: N1QL needs a statement as a string"}}
    "#);
}

#[test]
fn queries_without_rows_end_immediately() {
    let code = "function f() { for (let left = 0; left < 9; left++) N1QL('ROWS 0'); return 1 }";
    let mut library = Library::load("lib.js", code, Box::<Counting>::default()).unwrap();
    assert_eq!(library.call("f", NOON, &[]).to_json(), r#"{"value":1}"#);
}

#[test]
fn statements_may_occur_in_code() {
    let code = "function f(a) {\n const b = SELECT 1\n WHERE $a;\n return b }";
    let mut library = Library::load("lib.js", code, Box::<Counting>::default()).unwrap();
    insta::assert_snapshot!(library.call("f", NOON, &[Some("1")]).to_json(), @r#"{"exception":{"column":46,"line":2,"text":" const b = SELECT 1","thrown":{"code":3000,"message":"SELECT 1\n WHERE $a {\"a\":1}"}}}"#);
}

#[test]
fn clock_and_random_numbers_come_from_the_call_context() {
    let code = "function f() { return [Date.now(), new Date().getFullYear(), Math.random() !== Math.random()] }";
    assert_eq!(call(code, &[]), r#"{"value":[1700000000000,2023,true]}"#);
    let mut library = library("function f() { return Math.random() }");
    let first = library.call("f", NOON, &[]);
    assert_eq!(library.call("f", NOON, &[]), first);
    assert_ne!(library.call("f", CallContext { seed: 8, ..NOON }, &[]), first);
}

#[test]
fn the_plugin_loads_once_and_calls_often() {
    let mut evaluator = Evaluator::init("{}").unwrap();
    let reject = |outcome| match outcome {
        Err(Fault::Reject(message)) => message,
        other => panic!("{other:?}"),
    };
    assert_eq!(reject(evaluator.call("call", r#"["f",0,0,[]]"#)), "nothing is loaded");
    assert!(reject(evaluator.call("load", r#"["a.js", "function"]"#)).contains("SyntaxError"));
    evaluator.call("load", r#"["a.js", "function f(a, b) { return [a, b] }"]"#).unwrap();
    let has = |evaluator: &mut Evaluator, name| evaluator.call("has", name).unwrap();
    assert_eq!(has(&mut evaluator, r#"["f"]"#), "true");
    assert_eq!(has(&mut evaluator, r#"["g"]"#), "false");
    let told = evaluator.call("call", r#"["f", 1, 18446744073709551615, [[{"x": 1}], []]]"#);
    assert_eq!(told.unwrap(), r#"{"value":[{"x":1},null]}"#);
    assert!(reject(evaluator.call("call", "[]")).contains("the arguments"));
}
