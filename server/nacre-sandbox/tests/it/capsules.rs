//! Failed calls that are stored and replayed.

use crate::fixture::*;
use nacre_sandbox::{
    Call, Capsule, Content, Error, Grants, Http, HttpError, HttpRequest, HttpResponse,
    KeyspaceGrant, Limits, MemoryDocuments, Partition, Request, Setup, replay,
};
use std::sync::Arc;
use std::time::Duration;

struct Teapot;

impl Http for Teapot {
    fn send(&self, _: &HttpRequest, _: usize, _: Duration) -> Result<HttpResponse, HttpError> {
        Ok(HttpResponse { status: 418, headers: Vec::new(), body: b"short and stout".to_vec() })
    }
}

fn setup() -> Setup {
    let documents = MemoryDocuments::default();
    let body = b"a document".to_vec();
    let content = Content { body, ..Content::default() };
    documents.put("_default._default", b"d", content);
    let kv = vec![KeyspaceGrant { keyspace: "_default.*".into(), write: true }];
    Setup {
        grants: Grants { kv, http_out: vec!["a".into()], ..Grants::own() },
        limits: Limits { deadline: Duration::from_millis(200), ..Limits::default() },
        documents: Arc::new(documents),
        http: Arc::new(Teapot),
        ..Setup::new("p", "")
    }
}

fn only(partition: &Partition) -> Capsule {
    let capsules = partition.take_capsules();
    assert_eq!(capsules.len(), 1);
    assert!(partition.take_capsules().is_empty(), "they are taken once");
    // A capsule is stored as a file.
    let capsule = Capsule::from_json(&capsules[0].to_json()).unwrap();
    assert_eq!(capsule, capsules[0]);
    capsule
}

fn replayed(capsule: &Capsule) -> String {
    replay(&probe(), capsule).unwrap_err().to_string()
}

/// The call fails only if it sees what the first one saw: two entries, two documents, a reply from another
/// server.
#[test]
fn a_failed_call_fails_in_the_same_way_when_it_is_replayed() {
    let mut partition = open_probe(setup());
    let entries = r#"[["put","a","1"],["put","b","2"],["put","unseen","3"],["timer","t",9,[]]]"#;
    tell(&mut partition, &[entries]).unwrap();
    let script = r#"[["scan","a","c",10],["get","","d"],["get","other.c","d"],["cancel","t"],
        ["http","https://a/"],["http","https://b/"],["upsert","","e","1"],["panic","at last"]]"#;
    let report = tell(&mut partition, &["[]", script, "[]"]).unwrap();
    assert_eq!(report.dead_letters.len(), 1);
    let capsule = only(&partition);
    assert!(capsule.is_whole && capsule.content_hash == probe().content_hash());
    assert_eq!((&*capsule.plugin, &*capsule.plugin_version), ("probe", "0.1.0"));
    let keys: Vec<_> = capsule.state.iter().map(|(key, _)| &key.0[..]).collect();
    assert_eq!(keys, [b"a", b"b"], "what the call did not see is not in it");
    assert_eq!((capsule.timers.len(), capsule.answers.len()), (1, 3));
    assert_eq!(capsule.reason, report.dead_letters[0].reason);
    assert_eq!(replayed(&capsule), format!("p: {}", capsule.reason));
}

#[test]
fn every_kind_of_call_can_be_made_again() {
    let mut partition = open_probe(setup());
    tell(&mut partition, &[r#"[["timer","t",1,[["loop"]]]]"#]).unwrap();
    partition.on_timers(later(5)).unwrap();
    assert_eq!(replayed(&only(&partition)), "p: took longer than 200 ms");

    let limits = Limits { memory_bytes: 8 << 20, ..Limits::default() };
    let mut small = open_probe(Setup { limits, ..setup() });
    tell(&mut small, &[r#"[["grow"]]"#]).unwrap();
    assert_eq!(replayed(&only(&small)), "p: needs more than 8388608 bytes of memory");

    let body = br#"[["panic","asked"]]"#.to_vec();
    let request = Request { path: "/do".into(), body, ..Request::default() };
    let error = partition.reader().handle(&request, NOW).err().unwrap();
    assert_eq!(replayed(&only(&partition)), error.to_string());

    let request = Request { path: "/pieces".into(), query: "14".into(), ..Request::default() };
    let error = partition.reader().handle(&request, NOW).unwrap().collect().unwrap_err();
    assert_eq!(replayed(&only(&partition)), error.to_string());
}

#[test]
fn refused_calls_leave_no_capsule() {
    let mut partition = open_probe(setup());
    tell(&mut partition, &[r#"[["reject","no"]]"#]).unwrap();
    tell(&mut partition, &[r#"[["retry","later"]]"#]).unwrap_err();
    assert!(partition.take_capsules().is_empty());
}

#[test]
fn a_capsule_is_bounded_and_marked_when_incomplete() {
    let mut partition = open_probe(setup());
    let text = "x".repeat(5 << 20);
    tell(&mut partition, &[&format!(r#"[["put","a","{text}"]]"#)]).unwrap();
    tell(&mut partition, &[r#"[["scan","a","b",1],["panic","x"]]"#]).unwrap();
    let capsule = only(&partition);
    assert!(!capsule.is_whole && capsule.to_json().len() < 10_000);
    let has_call = |capsule: &Capsule| matches!(&capsule.call, Call::OnBatch { buffer } if !buffer.0.is_empty());
    assert!(has_call(&capsule), "only the state was too large");
    assert!(matches!(replay(&probe(), &capsule), Err(Error::Capsule(_))));
    tell(&mut partition, &[&format!(r#"[["panic","{text}"]]"#)]).unwrap();
    let capsule = only(&partition);
    assert!(!capsule.is_whole && !has_call(&capsule));
}

#[test]
fn a_replay_that_needs_more_than_the_capsule_reports_that() {
    let mut partition = open_probe(setup());
    tell(&mut partition, &[r#"[["get","","d"],["panic","x"]]"#]).unwrap();
    let capsule = Capsule { answers: Vec::new(), ..only(&partition) };
    insta::assert_snapshot!(replayed(&capsule), @"cannot be replayed: it asks for a document, which the failed call did not");
    assert!(Capsule::from_json("{}").is_err());
    let newer = capsule.to_json().replacen("\"format\": 1", "\"format\": 2", 1);
    assert_eq!(Capsule::from_json(&newer).unwrap_err(), "a capsule of format 2; this is 1");
}
