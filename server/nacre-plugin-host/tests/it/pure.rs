//! Resolvers and functions.

use crate::fixture::*;
use nacre_plugin_host::{
    Caller, Error, Functions, Limits, NoQueries, Partition, Resolver, Setup, Verdict, Version,
};
use std::sync::Arc;
use std::time::Duration;

fn pure() -> Setup {
    Setup { limits: Limits::pure(), ..Setup::new("p", "") }
}

#[test]
fn a_resolver_decides_within_its_deadline() {
    let resolver = Resolver::open(plugin("probe-resolver"), pure()).unwrap();
    let resolve = |local: &str, remote: &str| {
        let version = |body: &str| Version { body: body.into(), ..Version::default() };
        resolver.resolve(b"k", &version(local), &version(remote))
    };
    assert_eq!(resolve("long", "abc"), Ok(Verdict::KeepLocal));
    assert_eq!(resolve("long", "longer"), Ok(Verdict::KeepRemote));
    assert_eq!(resolve("merge", "d"), Ok(Verdict::Merged(b"merged".to_vec())));
    insta::assert_snapshot!(resolve("loop", "").unwrap_err(), @"p: took longer than 50 ms");
    insta::assert_snapshot!(resolve("refuse", "").unwrap_err(), @"p: no verdict");
    assert_eq!(resolve("a", ""), Ok(Verdict::KeepLocal), "the next call finds a fresh instance");
    assert_eq!(resolver.status().readers.failures, 2);
}

#[test]
fn functions_answer_in_json() {
    let functions = Functions::open(plugin("probe-functions"), pure()).unwrap();
    assert_eq!(functions.call("count", "[1,[2,3]]"), Ok("2".into()));
    insta::assert_snapshot!(functions.call("none", "[]").unwrap_err(), @r#"p: there is no function "none""#);
    insta::assert_snapshot!(functions.call("loop", "[]").unwrap_err(), @"p: took longer than 50 ms");
    assert_eq!(functions.call("count", "[]"), Ok("0".into()));
}

#[test]
fn a_caller_has_an_instance_of_its_own_and_ends_with_its_request() {
    let setup = Setup {
        limits: Limits { deadline: Duration::from_secs(3600), ..Limits::pure() },
        ..Setup::new("p", "")
    };
    let functions = Functions::open(plugin("probe-functions"), setup).unwrap();
    let (mut one, mut other) = (functions.caller().unwrap(), functions.caller().unwrap());
    let calls = |caller: &mut Caller| {
        caller.call("calls", "[]", Arc::new(NoQueries), Duration::from_secs(60))
    };
    assert_eq!((calls(&mut one), calls(&mut one)), (Ok("1".into()), Ok("2".into())));
    assert_eq!(calls(&mut other), Ok("1".into()));
    let stopped = one.call("loop", "[]", Arc::new(NoQueries), Duration::from_millis(20));
    assert!(matches!(stopped, Err(Error::Deadline { .. })), "{stopped:?}");
    assert_eq!(calls(&mut other), Ok("2".into()));
}

#[test]
fn a_plugin_of_another_world_is_refused_by_name() {
    let error = Resolver::open(probe(), pure()).err().unwrap();
    insta::assert_snapshot!(error, @r#"plugin "probe" is of the world service, not resolver"#);
    let storage = Box::<nacre_plugin_host::MemoryStorage>::default();
    let error = Partition::open(plugin("probe-functions"), pure(), storage).err().unwrap();
    assert!(matches!(error, Error::World { .. }), "{error}");
    assert!(Functions::open(plugin("probe-resolver"), pure()).is_err());
}
