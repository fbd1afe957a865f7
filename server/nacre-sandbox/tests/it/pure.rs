//! Resolvers and functions.

use crate::fixture::*;
use crate::hostile::module::component_of;
use nacre_sandbox::pure_script::{PureScript, PureStep, Side, play_pure};
use nacre_sandbox::{
    Call, Caller, Capsule, Error, Functions, Limits, NoQueries, Partition, Resolver, Setup, World,
    replay,
};
use nacre_types::Cas;
use nacre_vbucket::{ConflictContext, Verdict, Version, VersionHistory};
use std::sync::Arc;
use std::time::Duration;

/// Returns a setup with a deadline that terminating calls meet even on a busy machine.
fn pure() -> Setup {
    let limits = Limits { deadline: Duration::from_millis(500), ..Limits::pure() };
    Setup { limits, ..Setup::new("p", "") }
}

#[test]
fn a_resolver_decides_within_its_deadline() {
    let resolver = Resolver::open(plugin("probe-resolver"), pure()).unwrap();
    let resolve = |local: &str, remote: &str| {
        let version = |body: &str| Version { body: body.into(), ..Version::default() };
        resolver.resolve(b"k", &version(local), &version(remote), &ConflictContext::default())
    };
    assert_eq!(resolve("long", "abc"), Ok(Verdict::KeepLocal));
    assert_eq!(resolve("long", "longer"), Ok(Verdict::KeepRemote));
    assert_eq!(resolve("merge", "d"), Ok(Verdict::Merged(b"merged".to_vec())));
    insta::assert_snapshot!(resolve("loop", "").unwrap_err(), @"p: took longer than 500 ms");
    insta::assert_snapshot!(resolve("refuse", "").unwrap_err(), @"p: no verdict");
    assert_eq!(resolve("a", ""), Ok(Verdict::KeepLocal), "the next call finds a fresh instance");
    assert_eq!(resolver.status().readers.failures, 2);
}

#[test]
fn a_resolver_learns_where_the_versions_come_from() {
    let resolver = Resolver::open(plugin("probe-resolver"), pure()).unwrap();
    let history = |source: &str, previous: &[(&str, u64)]| VersionHistory {
        source: source.into(),
        cas: Cas(9),
        merged: vec![("m".into(), Cas(1))],
        previous: previous.iter().map(|(source, cas)| ((*source).into(), Cas(*cas))).collect(),
    };
    let mut context = ConflictContext {
        scope: "s".into(),
        collection: "c".into(),
        here: "one".into(),
        local: Some(history("one", &[])),
        remote: Some(history("two", &[("one", 5)])),
        base: Some(Version { body: "base".into(), cas: Cas(5), ..Version::default() }),
    };
    let learnt = |context: &ConflictContext| {
        let local = Version { body: "context".into(), ..Version::default() };
        match resolver.resolve(b"k", &local, &Version::default(), context).unwrap() {
            Verdict::Merged(body) => serde_json::from_slice::<serde_json::Value>(&body).unwrap(),
            other => panic!("{other:?}"),
        }
    };
    let expected = serde_json::json!({
        "keyspace": "s.c",
        "here": "one",
        "local": ["one", 9, [["m", 1]], []],
        "remote": ["two", 9, [["m", 1]], [["one", 5]]],
        "base": ["base", 5],
    });
    assert_eq!(learnt(&context), expected);
    (context.local, context.remote, context.base) = (None, None, None);
    let facts = learnt(&context);
    assert!(["local", "remote", "base"].iter().all(|name| facts[*name].is_null()), "{facts}");
}

/// A component of the world `resolver`, which existed before resolvers saw histories. The longer body wins.
const WITHOUT_HISTORIES: &str = r#"(module
    (memory (export "memory") 2)
    (global $heap (mut i32) (i32.const 4096))
    (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32)
        (local $at i32)
        (local.set $at (i32.and (i32.add (global.get $heap) (i32.const 7)) (i32.const -8)))
        (global.set $heap (i32.add (local.get $at) (local.get 3)))
        (local.get $at))
    (func (export "nacre:plugin/lifecycle@0.1.0#describe") (result i32) (i32.const 1024))
    (func (export "nacre:plugin/lifecycle@0.1.0#init") (param i32 i32) (result i32)
        (i32.const 1024))
    ;; The arguments are in memory: the key, and two versions of 48 bytes that begin with address and length of the body.
    (func (export "nacre:plugin/resolution@0.1.0#resolve") (param i32) (result i32)
        (i32.store8 (i32.const 2052)
            (i32.lt_u (i32.load offset=12 (local.get 0)) (i32.load offset=60 (local.get 0))))
        (i32.const 2048)))"#;

#[test]
fn a_resolver_without_histories_decides_as_before() {
    let component = component_of("resolver", wat::parse_str(WITHOUT_HISTORIES).unwrap());
    let plugin = load("before", &component).unwrap();
    assert_eq!(plugin.world(), World::Resolver);
    let resolver = Resolver::open(plugin.clone(), pure()).unwrap();
    let version = |body: &str| Version { body: body.into(), ..Version::default() };
    let context = ConflictContext { base: Some(version("base")), ..ConflictContext::default() };
    let resolve = |local: &str, remote: &str| {
        resolver.resolve(b"k", &version(local), &version(remote), &context)
    };
    assert_eq!(resolve("longer", "long"), Ok(Verdict::KeepLocal));
    assert_eq!(resolve("long", "longer"), Ok(Verdict::KeepRemote));
    let step = |local: &str, remote: &str| PureStep {
        local: Some(Side { body: local.into(), cas: 1, ..Side::default() }),
        remote: Some(Side { body: remote.into(), cas: 2, ..Side::default() }),
        base: Some(Side { body: "base".into(), ..Side::default() }),
        ..PureStep::default()
    };
    let steps = vec![step("long", "longer"), step("same", "size")];
    let script = PureScript { about: String::new(), config: serde_json::json!({}), steps };
    let played = play_pure(&plugin, pure(), &script).unwrap();
    assert_eq!(played.steps[0].verdict.as_deref(), Some("keep-remote"));
    let error = played.steps[1].error.as_deref().unwrap();
    assert_eq!(error, r#"the other side keeps "size", and this one "same""#);
}

#[test]
fn functions_answer_in_json() {
    let functions = Functions::open(plugin("probe-functions"), pure()).unwrap();
    assert_eq!(functions.call("count", "[1,[2,3]]"), Ok("2".into()));
    insta::assert_snapshot!(functions.call("none", "[]").unwrap_err(), @r#"p: there is no function "none""#);
    insta::assert_snapshot!(functions.call("loop", "[]").unwrap_err(), @"p: took longer than 500 ms");
    assert_eq!(functions.call("count", "[]"), Ok("0".into()));
}

#[test]
fn a_caller_has_an_instance_of_its_own_and_ends_with_its_request() {
    let setup = Setup {
        limits: Limits { deadline: Duration::from_secs(3600), ..Limits::pure() },
        ..Setup::new("p", "")
    };
    let functions = Functions::open(plugin("probe-functions"), setup).unwrap();
    let (mut one, mut other) = (functions.caller(None).unwrap(), functions.caller(None).unwrap());
    let calls = |caller: &mut Caller| {
        caller.call("calls", "[]", Arc::new(NoQueries), Duration::from_secs(60))
    };
    assert_eq!((calls(&mut one), calls(&mut one)), (Ok("1".into()), Ok("2".into())));
    assert_eq!(calls(&mut other), Ok("1".into()));
    let stopped = one.call("loop", "[]", Arc::new(NoQueries), Duration::from_millis(20));
    assert!(matches!(stopped, Err(Error::Deadline { .. })), "{stopped:?}");
    assert_eq!(calls(&mut other), Ok("2".into()));
}

/// Returns the capsules of failed calls after a round trip through files.
fn kept(capsules: Vec<Capsule>) -> Vec<Capsule> {
    capsules.iter().map(|capsule| Capsule::from_json(&capsule.to_json()).unwrap()).collect()
}

fn replayed(plugin_name: &str, capsule: &Capsule) -> String {
    replay(&plugin(plugin_name), capsule).unwrap_err().to_string()
}

#[test]
fn a_function_that_failed_fails_again_from_its_capsule() {
    let setup = Setup { limits: Limits { memory_bytes: 8 << 20, ..pure().limits }, ..pure() };
    let functions = Functions::open(plugin("probe-functions"), setup).unwrap();
    functions.call("count", "[]").unwrap();
    functions.call("none", "[]").unwrap_err();
    assert!(functions.take_capsules().is_empty(), "who called was wrong");
    let names = ["loop", "trap", "grow"];
    for name in names {
        functions.call(name, r#"[1,"a"]"#).unwrap_err();
    }
    let capsules = kept(functions.take_capsules());
    assert!(functions.take_capsules().is_empty(), "they are taken once");
    assert_eq!(capsules.len(), names.len());
    for (name, capsule) in names.into_iter().zip(&capsules) {
        let call = Call::Function { name: name.into(), arguments: r#"[1,"a"]"#.into() };
        assert_eq!((&capsule.call, capsule.is_whole), (&call, true));
        assert_eq!(capsule.content_hash, plugin("probe-functions").content_hash());
        assert_eq!(replayed("probe-functions", capsule), format!("p: {}", capsule.reason));
    }
    assert!(capsules[1].reason.ends_with("on purpose"), "{}", capsules[1].reason);
    let elsewhere = replay(&plugin("probe-resolver"), &capsules[0]);
    assert!(matches!(elsewhere, Err(Error::World { .. })), "{elsewhere:?}");
}

#[test]
fn a_caller_leaves_a_capsule_unless_its_request_had_less_time() {
    let functions = Functions::open(plugin("probe-functions"), pure()).unwrap();
    let fail = |name: &str, left: Duration| {
        let mut caller = functions.caller(None).unwrap();
        caller.call(name, "[]", Arc::new(NoQueries), left).unwrap_err();
        functions.take_capsules().len()
    };
    assert_eq!(fail("loop", Duration::from_millis(10)), 0, "another request may give it more");
    assert_eq!(fail("loop", Duration::from_secs(1)), 1);
    assert_eq!(fail("trap", Duration::from_millis(400)), 1);
    assert_eq!(fail("none", Duration::from_secs(1)), 0);
}

#[test]
fn a_conflict_that_was_not_decided_is_not_decided_again_from_its_capsule() {
    let resolver = Resolver::open(plugin("probe-resolver"), pure()).unwrap();
    let local = Version { body: "trap".into(), cas: Cas(7), rev: 3, ..Version::default() };
    let remote = Version { is_deleted: true, flags: 1, expiry: 9, ..Version::default() };
    let history = VersionHistory {
        source: "there".into(),
        cas: Cas(8),
        merged: vec![("a".into(), Cas(1))],
        previous: vec![("b".into(), Cas(2))],
    };
    let context = ConflictContext {
        scope: "s".into(),
        collection: "c".into(),
        here: "here".into(),
        remote: Some(history),
        base: Some(Version { body: "base".into(), ..Version::default() }),
        ..ConflictContext::default()
    };
    resolver.resolve(b"k", &local, &remote, &context).unwrap_err();
    let capsules = kept(resolver.take_capsules());
    assert_eq!(capsules.len(), 1);
    let Call::Resolve { key, local: then, remote: arrived, context: facts } = &capsules[0].call
    else {
        panic!()
    };
    assert_eq!(ConflictContext::from(&**facts), context);
    assert_eq!(&key.0, b"k");
    assert_eq!((Version::from(then), Version::from(arrived)), (local.clone(), remote.clone()));
    let again = replayed("probe-resolver", &capsules[0]);
    assert_eq!(again, format!("p: {}", capsules[0].reason));
    // Parts that are too large are omitted from the file.
    let large = Version { body: [b"trap".to_vec(), vec![0; 5 << 20]].concat(), ..local };
    let endless = Version { body: "loop".into(), ..large.clone() };
    resolver.resolve(b"k", &endless, &large, &context).unwrap_err();
    let capsules = kept(resolver.take_capsules());
    assert!(!capsules[0].is_whole && capsules[0].to_json().len() < 10_000);
    let error = replay(&plugin("probe-resolver"), &capsules[0]).unwrap_err();
    assert!(matches!(error, Error::Capsule(_)), "{error}");
}

#[test]
fn a_plugin_of_another_world_is_refused_by_name() {
    let error = Resolver::open(probe(), pure()).err().unwrap();
    insta::assert_snapshot!(error, @r#"plugin "probe" is of the world service, not resolver"#);
    let storage = Box::<nacre_state::MemoryStorage>::default();
    let error = Partition::open(plugin("probe-functions"), pure(), storage).err().unwrap();
    assert!(matches!(error, Error::World { .. }), "{error}");
    assert!(Functions::open(plugin("probe-resolver"), pure()).is_err());
}
