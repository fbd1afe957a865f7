//! Tests of the checks at load and at deployment.

use crate::fixture::*;
use nacre_sandbox::{Error, Limits, Setup, validate};

#[test]
fn an_import_that_is_not_granted_is_refused_by_name() {
    let component = wat::parse_str(
        r#"(component (import "wasi:clocks/wall-clock@0.2.0" (instance (export "now" (func)))))"#,
    )
    .unwrap();
    let artefact = host().compile(&component).unwrap();
    // SAFETY: this host has just compiled the bytes.
    let error = unsafe { host().load("nosy", &artefact) }.err().unwrap();
    insta::assert_snapshot!(error, @r#"plugin "nosy" imports "wasi:clocks/wall-clock@0.2.0", which is not granted"#);
}

#[test]
fn a_component_without_a_service_is_refused() {
    let refusal = |bytes: &[u8]| host().compile(bytes).unwrap_err().to_string();
    insta::assert_snapshot!(refusal(b"not wasm"), @"not a plugin: it is not WebAssembly");
    insta::assert_snapshot!(
        refusal(&wat::parse_str("(module)").unwrap()),
        @"not a plugin: it is a core module; `nacre plugin build` makes a component of one"
    );
    let empty = host().compile(&wat::parse_str("(component)").unwrap()).unwrap();
    // SAFETY: this host has just compiled the bytes.
    let error = unsafe { host().load("empty", &empty) }.err().unwrap();
    assert!(matches!(error, Error::Component(_)), "{error}");
    // SAFETY: these bytes are refused before they are run.
    let error = unsafe { host().load("old", b"an artefact of another version") }.err().unwrap();
    assert!(matches!(error, Error::Artefact(_)), "{error}");
}

#[test]
fn design_documents_are_checked_before_they_are_deployed() {
    let check = |config: &str| match validate(&views(), Setup::new("views", config)) {
        Ok(()) => "ok".to_owned(),
        Err(error) => error.to_string(),
    };
    let answers = [
        check(&design("function (doc) { emit(doc.a) }", Some("_stats"))),
        check(&design("doc => emit(doc.a)", Some("function (k, v, r) { return v.length }"))),
        check(&design("function (doc) {\n  emit(doc..a)\n}", None)),
        check(&design("function (doc) { }", Some("_median"))),
        check(&design("function (doc) { }", Some("(keys => "))),
        check(r#"{"views": {"v": {}}}"#),
        check("[]"),
    ];
    insta::assert_snapshot!(answers.join("\n"), @r#"
    ok
    ok
    views: map of view "v": SyntaxError: expecting field name (line 2, column 12)
    views: reduce of view "v": no built-in "_median"; there are _count, _sum and _stats
    views: reduce of view "v": SyntaxError: unexpected token in expression: ')' (line 2, column 1)
    views: view "v" has no function map
    views: design document: expected a JSON object
    "#);
}

#[test]
fn the_plugin_reports_its_identity() {
    let described: serde_json::Value =
        serde_json::from_str(&views().describe(Limits::default()).unwrap()).unwrap();
    assert_eq!(described["name"], "views");
    assert_eq!(described["limits"]["emit_key_bytes_max"], 4096);
    assert!(host().fingerprint().starts_with(concat!(env!("CARGO_PKG_VERSION"), "-")));
}

#[test]
fn handles_may_cross_threads() {
    fn moves<T: Send>() {}
    fn is_shared<T: Send + Sync + Clone>() {}
    is_shared::<nacre_sandbox::Host>();
    is_shared::<nacre_sandbox::Plugin>();
    is_shared::<nacre_sandbox::Reader>();
    moves::<nacre_sandbox::Partition>();
}
