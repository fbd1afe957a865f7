//! Resolvers and functions.

use crate::fixture::*;
use crate::hostile::module::component_of;
use nacre_plugin_host::{
    Error, Functions, IndexEntry, IndexType, Limits, Partition, Resolver, Setup, Verdict, Version,
    World,
};

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
    assert_eq!(resolver.usage().failures, 2);
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
fn a_plugin_of_another_world_is_refused_by_name() {
    let error = Resolver::open(probe(), pure()).err().unwrap();
    insta::assert_snapshot!(error, @r#"plugin "probe" is of the world service, not resolver"#);
    let storage = Box::<nacre_plugin_host::MemoryStorage>::default();
    let error = Partition::open(plugin("probe-functions"), pure(), storage).err().unwrap();
    assert!(matches!(error, Error::World { .. }), "{error}");
    assert!(Functions::open(plugin("probe-resolver"), pure()).is_err());
}

/// Two entries, of which one belongs to a document that was not in the batch.
#[test]
fn an_index_type_makes_entries_of_documents() {
    let module = r#"(module
        (memory (export "memory") 17)
        (data (i32.const 1100) "keyvalue")
        (data (i32.const 2048) "\00\00\00\00\40\08\00\00\02\00\00\00")
        (data (i32.const 2112)
            "\01\00\00\00\4c\04\00\00\03\00\00\00\4f\04\00\00\05\00\00\00"
            "\07\00\00\00\4c\04\00\00\03\00\00\00\4f\04\00\00\05\00\00\00")
        (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) i32.const 65536)
        (func (export "nacre:plugin/lifecycle@0.1.0#describe") (result i32) i32.const 1024)
        (func (export "nacre:plugin/lifecycle@0.1.0#init") (param i32 i32) (result i32) i32.const 1024)
        (func (export "nacre:plugin/projection@0.1.0#project") (param i32 i32) (result i32) i32.const 2048))"#;
    let component = component_of("index-type", wat::parse_str(module).unwrap());
    let plugin = load("two", &component).unwrap();
    assert_eq!((plugin.world(), plugin.imports()), (World::IndexType, &[][..]));
    let index = IndexType::open(plugin, pure()).unwrap();
    let batch = Stream::default().batch([("a", Some("{}")), ("b", Some("{}"))]);
    let entry = IndexEntry { event: 1, key: b"key".to_vec(), value: b"value".to_vec() };
    assert_eq!(index.project(&batch.documents, NOW), Ok(vec![entry]));
}
