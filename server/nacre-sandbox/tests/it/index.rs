//! Indexes: entries of documents that the host stores and scans.

use crate::fixture::*;
use crate::hostile::module::component_of;
use nacre_dcp::ResumePoint;
use nacre_sandbox::{Error, Limits, Partition, Setup, World};
use nacre_state::{IndexSnapshot, MemoryStorage, Span};
use std::time::Duration;

fn setup() -> Setup {
    let limits = Limits { deadline: Duration::from_millis(250), ..Limits::default() };
    Setup { limits, ..Setup::new("p", "") }
}

fn open(storage: &MemoryStorage) -> Partition {
    Partition::open(plugin("probe-index-type"), setup(), Box::new(storage.clone())).unwrap()
}

/// Returns the entries of a whole index as `key=document`.
fn listed(snapshot: &IndexSnapshot) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let entries = snapshot.scan(None, &Span::default(), false);
    entries
        .map(|found| format!("{}={}", text(&found.key()), text(found.id())))
        .collect::<Vec<_>>()
        .join(" ")
}

#[test]
fn an_index_follows_documents_and_survives() {
    let storage = MemoryStorage::default();
    let mut stream = Stream::default();
    let mut partition = open(&storage);
    let reader = partition.reader();
    let batch =
        stream.batch([("a", Some(r#"["x","y"]"#)), ("b", Some(r#"["x"]"#)), ("c", Some("{}"))]);
    partition.on_batch(&batch, NOW).unwrap();
    let before = reader.index().unwrap();
    assert_eq!(listed(&before), "x=a x=b y=a");
    let batch = stream.batch([("a", Some(r#"["z"]"#)), ("b", None)]);
    partition.on_batch(&batch, NOW).unwrap();
    assert_eq!(listed(&reader.index().unwrap()), "z=a");
    assert_eq!(listed(&before), "x=a x=b y=a", "a scan goes on where it began");
    drop(partition);
    let mut partition = open(&storage);
    assert_eq!(listed(&partition.reader().index().unwrap()), "z=a");
    // A rollback to the beginning of one vBucket removes its documents.
    let vbid = batch.documents[0].0;
    let reached = partition.rollback(vbid, ResumePoint::default()).unwrap();
    assert_eq!(reached, ResumePoint::default());
    assert_eq!(listed(&partition.reader().index().unwrap()), "");
}

#[test]
fn a_document_that_kills_an_index_type_is_parked() {
    for poison in ["trap", "loop"] {
        let mut partition = open(&MemoryStorage::default());
        let text = format!(r#"["{poison}"]"#);
        let batch = Stream::default().batch([
            ("a", Some(r#"["x"]"#)),
            ("b", Some(text.as_str())),
            ("c", Some(r#"["y"]"#)),
        ]);
        let report = partition.on_batch(&batch, NOW).unwrap();
        assert_eq!(report.dead_letters.len(), 1, "{poison}");
        assert_eq!(report.dead_letters[0].key, b"b", "{poison}");
        assert_eq!(listed(&partition.reader().index().unwrap()), "x=a y=c", "{poison}");
        assert_eq!(partition.take_capsules().len(), 1, "{poison}");
    }
}

/// Entries from before the failure are outdated.
#[test]
fn a_document_that_kills_an_index_type_is_no_longer_in_the_index() {
    let mut partition = open(&MemoryStorage::default());
    let mut stream = Stream::default();
    let before = stream.batch([("a", Some(r#"["x"]"#)), ("b", Some(r#"["y"]"#))]);
    partition.on_batch(&before, NOW).unwrap();
    for (body, expected) in [(r#"["trap"]"#, "y=b"), (r#"["z"]"#, "y=b z=a")] {
        partition.on_batch(&stream.batch([("a", Some(body))]), NOW).unwrap();
        assert_eq!(listed(&partition.reader().index().unwrap()), expected);
    }
}

#[test]
fn an_index_is_bounded() {
    let limits = Limits { state_bytes: 200, ..Limits::default() };
    let storage = Box::<MemoryStorage>::default();
    let setup = Setup { limits, ..Setup::new("p", "") };
    let mut partition = Partition::open(plugin("probe-index-type"), setup, storage).unwrap();
    let keys = format!("[\"{}\"]", "x".repeat(300));
    let error = partition
        .on_batch(&Stream::default().batch([("a", Some(keys.as_str()))]), NOW)
        .unwrap_err();
    assert!(matches!(error, Error::State { .. }), "{error}");
}

#[test]
fn an_invalid_index_configuration_is_refused() {
    let setup = Setup::new("p", "refuse");
    let storage = Box::<MemoryStorage>::default();
    let error = Partition::open(plugin("probe-index-type"), setup, storage).err().unwrap();
    insta::assert_snapshot!(error, @"p: no such index");
}

/// Two entries, one of which belongs to a document that was not in the batch.
#[test]
fn entries_of_documents_outside_of_the_batch_are_ignored() {
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
    let mut partition = Partition::open(plugin, setup(), Box::<MemoryStorage>::default()).unwrap();
    partition
        .on_batch(&Stream::default().batch([("a", Some("{}")), ("b", Some("{}"))]), NOW)
        .unwrap();
    assert_eq!(listed(&partition.reader().index().unwrap()), "key=b");
}
