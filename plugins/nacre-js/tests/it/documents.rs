//! Tests of documents that are decoded only as far as they are read.

use nacre_js::{Argument, Engine, Limits};

fn engine() -> Engine {
    Engine::new(Limits::default()).unwrap()
}

/// Returns the result of a function for a document as text, including errors.
fn told(engine: &mut Engine, source: &str, document: Argument<'_>) -> String {
    let function = engine.compile("code", source).unwrap();
    match engine.call(function, &[document]) {
        Ok(result) => result.unwrap_or_else(|| "undefined".into()),
        Err(error) => error.to_string(),
    }
}

/// A lazily decoded document behaves like an eagerly decoded one under all operations.
#[test]
fn lazy_and_eager_documents_behave_alike() {
    let documents = [
        "{}",
        r#"{"a":1,"b":[1,{"c":null}],"s":"text"}"#,
        r#"{"b":2,"a":1,"10":"ten","9":"nine"}"#,
        r#"{"a":1,"b":2,"a":3}"#,
        r#"{"__proto__":{"x":1},"a":1}"#,
        r#"{"constructor":1,"hasOwnProperty":2,"toString":3,"a":0}"#,
        r#"{"a":null,"b":false,"s":"","n":-0}"#,
        r#"  {"a" : "\ud83d\ude00é" , "\u0061b" : 1e3 } "#,
        r#"{"a":"\ud800"}"#,
        r#"{"\ud800":1}"#,
        r#"{"a":{"toJSON":1},"toJSON":2}"#,
        r#"{"length":3,"0":"x"}"#,
        r#"{"a":123456789,"b":[1234567890],"s":"é😀"}"#,
        r#"{"a":12345678901,"b":-17,"s":"a\"b"}"#,
        r#"{"a":true,"b":[0],"s":"null"}"#,
        "[1,2]",
        "null",
        r#""text""#,
        "{",
        r#"{"a":01}"#,
        r#"{"a":1} x"#,
    ];
    let sources = [
        "d => d",
        "d => d.a",
        "d => [d.a, d.a, d.b, d.missing]",
        "d => [d.s, Object.keys(d)]",
        "d => { d.a; return JSON.stringify(d) }",
        "d => { const k = []; for (const n in d) k.push(n, d[n]); return k }",
        "d => 'a' in d",
        "d => d.hasOwnProperty('a')",
        "d => Object.hasOwn(d, 'toString')",
        "d => { d.a = 5; d.z = 6; return [d.a, Object.entries(d)] }",
        "d => { delete d.a; return [d.a, d] }",
        "d => { d.b; delete d.b; return d.b }",
        "d => { const e = {...d, x: 1}; return e }",
        "d => { const {a, ...rest} = d; return [a, rest] }",
        "d => Object.assign({}, d)",
        "d => [typeof d, Array.isArray(d), d instanceof Object, d.constructor === Object]",
        "d => String(d)",
        "d => Object.prototype.toString.call(d)",
        "d => d.a === d.a && d.b === d.b",
        "d => { d.b.push(9); return d.b }",
        "d => Object.getOwnPropertyDescriptor(d, 'a')",
        "d => { Object.freeze(d); 'use strict'; d.a = 9; return [d, Object.isFrozen(d)] }",
        "d => { Object.defineProperty(d, 'a', {value: 7}); return [d.a, Object.keys(d)] }",
        "d => Object.getPrototypeOf(d) === Object.prototype",
        "d => { Object.setPrototypeOf(d, {p: 1}); return [d.p, d.a] }",
        "d => { const e = Object.create(d); return [e.a, Object.keys(e)] }",
        "d => { d.self = d; return d.self === d }",
        "d => d[Symbol.iterator]",
        "d => { Object.defineProperty(Object.prototype, 'own', {get() { return this.a }, configurable: true}); \
               const found = d.own; delete Object.prototype.own; return found }",
        "d => [Object.is(d.n, -0), typeof d.a, d.a + 1]",
        "d => d['\\ud800']",
        "d => [...d]",
        "d => d.__proto__",
        "d => Object.keys(d).map(k => d[k]).concat(Object.values(d))",
        "function (d) { with (d) { return a } }",
    ];
    let mut engine = engine();
    for document in documents {
        for source in sources {
            let eager = told(&mut engine, source, Argument::Json(document));
            engine.set_document(document).unwrap();
            let lazy = told(&mut engine, source, Argument::Document);
            assert_eq!(lazy, eager, "{source} of {document}");
        }
    }
}

#[test]
fn each_call_has_its_own_document() {
    let mut engine = engine();
    engine.set_document(r#"{"list":[2,1]}"#).unwrap();
    let source = "d => { d.list.sort(); d.more = d.more || 0; d.more++; return d }";
    let function = engine.compile("code", source).unwrap();
    for _ in 0..2 {
        let result = engine.call(function, &[Argument::Document]).unwrap().unwrap();
        assert_eq!(result, r#"{"list":[1,2],"more":1}"#);
    }
}

#[test]
fn a_document_outlives_a_call_with_pending_jobs() {
    let mut engine = engine();
    let fails =
        engine.compile("fails", "d => { Promise.resolve().then(() => d.a); throw 1 }").unwrap();
    let reads = engine.compile("reads", "d => d.a").unwrap();
    engine.set_document(r#"{"a":1}"#).unwrap();
    assert!(engine.call(fails, &[Argument::Document]).is_err());
    assert_eq!(engine.call(reads, &[Argument::Document]).unwrap().as_deref(), Some("1"));
}

#[test]
fn documents_do_not_outlive_their_call() {
    let mut engine = engine();
    let keep = engine.compile("keep", "d => { kept = d; return d.a }").unwrap();
    let whole = engine.compile("whole", "d => { whole = d; return Object.keys(d) }").unwrap();
    engine.set_document(r#"{"a":1,"b":2}"#).unwrap();
    engine.call(keep, &[Argument::Document]).unwrap();
    engine.call(whole, &[Argument::Document]).unwrap();
    let told = |engine: &mut Engine, source| match engine.compile("again", source) {
        Ok(again) => engine.call(again, &[]).map_err(|error| error.to_string()),
        Err(error) => Err(error.to_string()),
    };
    // In the next call with the same document, and in those with another one.
    for document in [r#"{"a":1,"b":2}"#, r#"{"a":3,"b":4}"#] {
        engine.set_document(document).unwrap();
        for source in ["() => kept.a", "() => kept.b", "() => 'a' in kept"] {
            let error = told(&mut engine, source).unwrap_err();
            assert!(error.contains("used after the call"), "{error}");
        }
        let values = told(&mut engine, "() => [whole.a, whole.b, whole]").unwrap();
        assert_eq!(values.unwrap(), r#"[1,2,{"a":1,"b":2}]"#, "it is an ordinary object");
    }
}
