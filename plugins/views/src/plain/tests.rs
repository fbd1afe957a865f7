use super::*;
use nacre_js::{Argument, Engine};
use nacre_plugin::{Event, EventKind};
use proptest::prelude::*;

fn event() -> Event<'static> {
    Event {
        index: 0,
        vb: 12,
        seqno: 34,
        cas: 56 << 16,
        rev: 7,
        flags: 8,
        expiry: 9,
        collection: 8,
        kind: EventKind::Upsert,
        datatype: 1,
        key: b"the \"id\"",
        xattrs: b"",
        body: b"",
        previous: None,
    }
}

/// Returns what a function emits in its own engine, or `None` if it fails there.
fn in_engine(source: &str, text: &str, meta: &Meta<'_>) -> Option<Vec<Emitted>> {
    let mut engine = Engine::new(Limits::default()).unwrap();
    let map = engine.compile("map", source).unwrap();
    let made = engine.compile("meta", crate::meta::MAKE).unwrap();
    engine.set_document(text).ok()?;
    let rev = meta.rev();
    let members = meta.arguments(&rev);
    engine.call_for_emitted(map, &[Argument::Document, Argument::Made(made, &members)]).ok()
}

/// Returns what a function emits without the engine, and asserts that the engine emits the same.
fn plainly(source: &str, text: &str) -> Option<Vec<Emitted>> {
    let event = event();
    let meta = Meta::of(&event);
    let plain = Plain::read(source)?;
    let limits = Limits::default();
    let document = Document::read(text, limits.json_depth_max)?;
    let emitted = plain.emitted(&document, &meta, &limits)?;
    assert_eq!(Some(&emitted), in_engine(source, text, &meta).as_ref(), "{source} of {text}");
    Some(emitted)
}

const DOCUMENTS: &[&str] = &[
    "{}",
    r#"{"a":1,"b":"text","c":{"d":[1,"x",{"e":null}]},"t":true}"#,
    r#"  {"a" : 1.50 , "b" : "" , "c" : { "d" : [ 1e2 , -0 ] } , "t" : false }  "#,
    r#"{"a":"1","b":1,"c":null,"t":null}"#,
    r#"{"a":[],"b":[ ],"c":[[1],[2,[3]]],"t":[1,{"a":[2]}]}"#,
    r#"{"a":1,"a":2,"c":{"d":1,"d":2}}"#,
    r#"{"a":12345678901234567890,"b":1e21,"c":{"d":1e-7},"t":0.000001}"#,
    r#"{"a":"é😀","b":"\ud83d\ude00 \" \\ \n \b","c":{"d":"ünï"},"t":"\u2028"}"#,
    r#"{"a":{"2":1,"1":2},"b":{"__proto__":1},"c":{"x":1,"x":2},"t":{"toJSON":1}}"#,
    r#"{"constructor":1,"a":{"constructor":2},"length":3,"c":{"length":"long","d":"B"}}"#,
    r#"{"a":-17,"b":-1.5,"c":{"d":9007199254740993},"t":0}"#,
    r#"{"a":"\ud800"}"#,
    r#"{"\u0061":1}"#,
    "[1,2]",
    "null",
    "{",
];

/// Functions in the supported forms, which show why these forms are common.
const KNOWN: &[&str] = &[
    "function (doc, meta) { emit(doc.a, null); }",
    "function (doc, meta) { emit([doc.a, doc.b], doc.c) }",
    "function map(doc) { if (doc.a) emit(doc.a) }",
    "function (doc, meta) {\n  if (doc.t === true) {\n    emit(doc.b, doc.a)\n  } else if (doc.c) {\n    emit(meta.id)\n  }\n}",
    "(doc, meta) => emit(meta.id, meta.rev)",
    "doc => { emit([doc.a, doc.b, doc.c, doc.t], doc) }",
    "function (doc, meta) { emit([meta.seq, meta.vb, meta.expiration, meta.flags, meta.type, meta.no]) }",
    "function (doc) { if (!doc.c || !doc.c.d) return; emit(doc.c.d, 1); return emit(doc.c, 2) }",
    "function (doc) { var a = doc.a, b = doc['b']; const c = doc.c; emit({a: a, b, 'c d': c, t: doc.t}, a) }",
    "doc => doc.a == null ? emit('no') : emit(doc.a)",
    "doc => doc.a && emit(doc.a)",
    "doc => emit(doc.a == 1 || doc.b === 'text', doc.a != doc.b)",
    "doc => emit([typeof doc.a, typeof doc.c, typeof doc.no, typeof emit(1)], -2.5e3)",
    "doc => emit([doc.a < 2, doc.a <= 1, doc.b > 'm', doc.b >= 'n'])",
    "doc => emit(doc.a + 1, doc.a + 'x' + doc.b)",
    "doc => emit(doc.a * 2 - 1 / 4 % 3)",
    "doc => emit(doc.c.d[0], doc.c.d.length)",
    "doc => emit(doc.b.length, doc[doc.b])",
    "doc => { emit(doc.t[1].a[0], doc.t[9]) }",
    "doc => { if (doc.a) { emit(1) ; ; } { emit(2) } // the end\n /* and more */ }",
    "doc => { return\n emit(1) }",
    "() => emit()",
    "(a, b, c) => { emit(c, undefined) }",
    "function (doc) { emit(doc.a,) }",
    "function (doc, meta) { emit(\"it's\", 'a\\n\\'b\\'') } ; ",
    "function (doc) { const x = 1\n const y = x\n emit(x + y) }",
    "function (doc) { emit(doc.length, doc.c.length) }",
    "function (doc) { if (doc.t) doc.t.forEach(function (item) { emit(item, 1) }) }",
    "doc => doc.c && doc.c.d.forEach((item, i) => { if (i === 1) return; emit([i, item]) })",
    "doc => { doc.t.forEach(x => emit(x)); doc.c.forEach(x => x.forEach(y => emit(y, x))) }",
    "doc => doc.c.d.forEach(() => emit(1))",
    "doc => { for (var i = 0; i < doc.c.d.length; i++) { emit(doc.c.d[i], i) } }",
    "doc => { for (let i = 1; doc.t[i]; ++i) for (let k = 0; k < 2; k++) emit([i, k]) }",
    "doc => { for (const x of doc.t) { if (x !== 1) return; emit(x) } emit('end') }",
    "doc => { for (var i in doc.c.d) emit(i, doc.c.d[i]) }",
    "doc => { for (const k in doc) { if (k === 'c') for (const l in doc[k]) emit([k, l], doc[k][l]) } }",
    "function (doc) { for (var k in doc.c) emit(k); for (var k in doc) emit(k, doc[k]) }",
];

#[test]
fn known_functions_emit_the_same_rows_as_in_the_engine() {
    for source in KNOWN {
        assert!(Plain::read(source).is_some(), "{source}");
        let by_itself = DOCUMENTS.iter().filter(|text| plainly(source, text).is_some()).count();
        assert!(by_itself > 0, "{source} is left to the engine always");
    }
}

#[test]
fn ambiguous_code_is_left_to_the_engine() {
    let sources = [
        "function (doc) { emit(doc.toString()) }",
        "function (doc) { emit(doc.a.constructor) }",
        "function (doc) { for (i in doc) emit(i) }",
        "function (doc) { for (var i = 0; i < 3; i += 2) emit(i) }",
        "function (doc) { for (var i = 0; i < 3; i--) emit(i) }",
        "function (doc) { for (var i = 0, n = 3; i < n; i++) emit(i) }",
        "function (doc) { for (;;) emit(1) }",
        "function (doc) { for (const i = 0; i < 1; i++) { break } }",
        "function (doc) { for (var i = 0; i < 3; i++) { i = 4 } }",
        "function (doc) { for (var doc of doc) emit(doc) }",
        "function (doc) { for (var i of doc.a) {} emit(i) }",
        "function (doc) { while (doc.a) emit(1) }",
        "function (doc) { doc.a.forEach(emit) }",
        "function (doc) { doc.a.forEach((a, b, c) => emit(c)) }",
        "function (doc) { doc.a.forEach(function (a) { emit(a) }, 1) }",
        "function (doc) { doc.a.forEach(doc => emit(doc)) }",
        "function (doc) { doc.a.map(a => emit(a)) }",
        "function (doc) { doc.a = 1; emit(doc.a) }",
        "function (doc) { emit(x); var x = 1 }",
        "function (doc) { if (doc) { var x = 1 } emit(x) }",
        "function (doc) { var doc = 1; emit(doc) }",
        "function (doc) { var emit = 1 }",
        "function (emit) { emit(1) }",
        "function emit(doc) { emit(1) }",
        "function (doc, doc) { emit(doc) }",
        "function (doc = 1) { emit(doc) }",
        "function ({a}) { emit(a) }",
        "function (...doc) { emit(doc) }",
        "function* (doc) { emit(1) }",
        "async function (doc) { emit(1) }",
        "async doc => emit(1)",
        "async (doc) => emit(1)",
        "function (doc) { emit(1, 2, 3) }",
        "function (doc) { emit(...doc.a) }",
        "function (doc) { emit(/a/) }",
        "function (doc) { emit(`a`) }",
        "function (doc) { emit('\\x41') }",
        "function (doc) { emit('a\\\nb') }",
        "function (doc) { emit(010) }",
        "function (doc) { emit(0x10) }",
        "function (doc) { emit(1n) }",
        "function (doc) { emit(1_0) }",
        "function (doc) { emit(doc?.a) }",
        "function (doc) { emit(doc.a ?? 1) }",
        "function (doc) { emit(doc.a, 1), emit(2) }",
        "function (doc) { emit(doc.a & 1) }",
        "function (doc) { emit(doc.a ** 2) }",
        "function (doc) { emit(+doc.a) }",
        "function (doc) { emit(doc.a++) }",
        "function (doc) { emit(this) }",
        "function (doc) { emit(arguments) }",
        "function (doc) { emit('a' in doc) }",
        "function (doc) { emit(doc\nin doc) }",
        "function (doc) { emit({get a() { return 1 }}) }",
        "function (doc) { emit({[doc.a]: 1}) }",
        "function (doc) { emit({1: 1}) }",
        "function (doc) { emit({...doc}) }",
        "function (doc) { emit([1,,2]) }",
        "function (doc) { a: emit(1) }",
        "function (doc) { try { emit(1) } catch (e) {} }",
        "function (doc) { emit(d\\u006fc) }",
        "function (doc) { var é = 1; emit(1) }",
        "function (doc) { emit(1) <!-- 2\n }",
        "function (doc) { emit(1)\n--> 2\n }",
        "function (doc) { emit\n}",
        "function (doc) { log(doc) }",
        "function (doc) { emit(sum([1])) }",
        "function (undefined) { emit(undefined) }",
        "function (doc) { throw doc }",
        "function (doc) {} , function (doc) {}",
    ];
    for source in sources {
        assert!(Plain::read(source).is_none(), "{source}");
    }
}

#[test]
fn code_that_throws_or_exceeds_a_limit_is_left_to_the_engine() {
    let long = format!(r#"{{"a":"{}"}}"#, "x".repeat(5000));
    let many = format!(r#"{{"a":[{}0]}}"#, "0,".repeat(1000));
    let large = format!(r#"{{"a":"{}"}}"#, "x".repeat(600 << 10));
    let cases = [
        ("d => emit(d.no.a)", "{}"),
        ("d => emit(d['__proto__'])", "{}"),
        ("d => emit(d[d.a])", r#"{"a":"constructor"}"#),
        ("d => emit(d.a.b)", r#"{"a":null}"#),
        ("d => emit(d.a)", &long),
        ("d => { emit(1, d.a); emit(2, d.a) }", &large),
        ("d => emit([d, d], 1)", &large),
        ("d => emit([d.a + d.a])", &large),
        ("d => emit(d)", &"{\"a\":".repeat(513)),
        ("d => { for (let i = 0; i < 1; i++) for (let k = 0; k >= 0; k++) d }", "{}"),
        ("d => { for (let i = 0; i < d.a.length; i++) emit(d.a[i]) }", &many),
        ("d => { for (const i of d.a) for (const k of d.a) i }", &many),
    ];
    for (source, text) in cases {
        assert!(Plain::read(source).is_some(), "{source}");
        assert_eq!(plainly(source, text), None, "{source}");
    }
    // Emitting half of it does not exceed the limit.
    assert!(plainly("d => emit(1, d.a)", &large).is_some());
}

#[test]
fn no_text_nests_deeper_than_the_stack() {
    let texts = [
        format!("d => emit({}1{})", "(".repeat(10_000), ")".repeat(10_000)),
        format!("d => emit({}1)", "!".repeat(10_000)),
        format!("d => emit({}1)", "1+".repeat(10_000)),
        format!("d => emit(d{})", ".a".repeat(10_000)),
        format!("d => {}{}", "{".repeat(10_000), "}".repeat(10_000)),
        format!("d => {{ {} emit(1) }}", "if (d) ".repeat(10_000)),
        format!("d => {{ {} emit(1) }}", "if (d) {} else ".repeat(10_000)),
        format!("d => emit({}1{})", "[".repeat(10_000), "]".repeat(10_000)),
        format!("d => emit({}1)", "1?1:".repeat(10_000)),
    ];
    for text in texts {
        assert!(Plain::read(&text).is_none());
    }
}

fn any_expression() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        prop::sample::select(
            &[
                "doc",
                "doc.a",
                "doc.b",
                "doc.c",
                "doc.c.d",
                "doc['t']",
                "doc.no",
                "meta.id",
                "meta.seq",
                "null",
                "true",
                "undefined",
                "'text'",
                "''",
                "0",
                "1",
                "-1.5",
                "2e3",
                "emit()",
            ][..]
        )
        .prop_map(str::to_owned),
        (-3i32..300).prop_map(|number| format!("({number})")),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        let operators = prop::sample::select(
            &["===", "!==", "==", "!=", "<", "<=", ">", ">=", "&&", "||", "+", "-", "*", "/", "%"]
                [..],
        );
        prop_oneof![
            (inner.clone(), operators, inner.clone())
                .prop_map(|(left, operator, right)| format!("{left} {operator} {right}")),
            (inner.clone(), inner.clone(), inner.clone()).prop_map(
                |(condition, then, otherwise)| format!("({condition} ? {then} : {otherwise})")
            ),
            prop::collection::vec(inner.clone(), 0..3)
                .prop_map(|items| format!("[{}]", items.join(", "))),
            (inner.clone(), inner.clone()).prop_map(|(x, y)| format!("{{x: {x}, 'y z': {y}}}")),
            inner.clone().prop_map(|of| format!("!{of}")),
            inner.clone().prop_map(|of| format!("-({of})")),
            inner.clone().prop_map(|of| format!("typeof {of}")),
            (inner.clone(), 0u8..3).prop_map(|(of, place)| format!("({of})[{place}]")),
            inner.clone().prop_map(|of| format!("({of}).length")),
            inner.prop_map(|of| format!("({of}).d")),
        ]
    })
}

fn any_source() -> impl Strategy<Value = String> {
    let statement = prop_oneof![
        3 => (any_expression(), any_expression()).prop_map(|(key, value)| format!("emit({key}, {value});")),
        1 => (any_expression(), any_expression())
            .prop_map(|(condition, key)| format!("if ({condition}) emit({key}); else return")),
        1 => (any_expression(), any_expression())
            .prop_map(|(value, key)| format!("{{ const own = {value}; emit([own, {key}], own) }}")),
        1 => any_expression().prop_map(|value| format!("({value})\n")),
        1 => (any_expression(), any_expression())
            .prop_map(|(of, key)| format!("({of}).forEach((item, at) => emit([item, at, {key}]));")),
        1 => (prop::sample::select(&["of", "in"][..]), any_expression(), any_expression())
            .prop_map(|(word, of, key)| format!("for (var each {word} {of}) emit([each, {key}])")),
        1 => (any_expression(), any_expression())
            .prop_map(|(of, key)| format!("for (let i = 0; i < ({of}).length; i++) emit(({of})[i], {key})")),
    ];
    prop::collection::vec(statement, 1..4)
        .prop_map(|statements| format!("function (doc, meta) {{ {} }}", statements.join("\n")))
}

fn any_document() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("null".to_owned()),
        Just("true".to_owned()),
        (-5i32..300).prop_map(|number| number.to_string()),
        any::<f64>()
            .prop_filter("JSON has no others", |number| number.is_finite())
            .prop_map(|n| format!("{n:e}")),
        (0i32..100_000).prop_map(|number| format!("{:.2}", f64::from(number) / 100.0)),
        "[ -~é😀]{0,4}".prop_map(|text| serde_json::Value::from(text).to_string()),
    ];
    let value = leaf.prop_recursive(3, 10, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3)
                .prop_map(|items| format!("[{}]", items.join(" , "))),
            prop::collection::vec(("[abd1]", inner), 0..3).prop_map(|members| {
                let members: Vec<_> = members
                    .into_iter()
                    .map(|(name, value)| format!("\"{name}\": {value}"))
                    .collect();
                format!("{{{}}}", members.join(","))
            }),
        ]
    });
    prop::collection::vec(("[abct]", value), 0..5).prop_map(|members| {
        let members: Vec<_> =
            members.into_iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
        format!("{{{}}}", members.join(", "))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_function_emits_what_it_emits_in_the_engine(source in any_source(), text in any_document()) {
        plainly(&source, &text);
    }

    #[test]
    fn any_text_is_parsed_or_left_to_the_engine(text in "[a-z0-9(){}\\[\\].,;:=!<>'\"/*+ \n-]{0,60}") {
        Plain::read(&text);
        Plain::read(&format!("function (doc) {{ {text} }}"));
    }
}
