//! Replies in pieces, and merged replies of several partitions.

use crate::fixture::*;
use nacre_sandbox::{Error, Limits, Partition, Request, Response, Setup};

fn pieces(partition: &Partition, count: u32) -> nacre_sandbox::Answer {
    let request =
        Request { path: "/pieces".into(), query: count.to_string(), ..Request::default() };
    partition.reader().handle(&request, NOW).unwrap()
}

#[test]
fn an_answer_in_pieces_stays_on_its_snapshot() {
    let mut partition = open_probe(granted(""));
    tell(&mut partition, &[r#"[["put","told","four"]]"#]).unwrap();
    let mut answer = pieces(&partition, 3);
    assert_eq!((answer.status, answer.content_type()), (200, "application/json"));
    let mut body = answer.next_piece().unwrap().unwrap();
    body.extend(answer.next_piece().unwrap().unwrap());
    tell(&mut partition, &[r#"[["put","told","longer than four"]]"#]).unwrap();
    while let Some(piece) = answer.next_piece().unwrap() {
        body.extend(piece);
    }
    assert_eq!(String::from_utf8(body).unwrap(), "begin 3:4 2:4 1:4 end");
    assert_eq!(pieces(&partition, 1).collect().unwrap().body, b"begin 1:16 end");
}

#[test]
fn a_piece_that_fails_ends_the_answer_and_not_the_plugin() {
    let partition = open_probe(granted(""));
    let mut answer = pieces(&partition, 14);
    assert!(answer.next_piece().unwrap().is_some());
    assert!(answer.next_piece().unwrap().is_some());
    let error = answer.next_piece().unwrap_err();
    assert!(error.to_string().contains("unlucky"), "{error}");
    assert_eq!(answer.next_piece().unwrap(), None);
    assert!(pieces(&partition, 2).collect().is_ok());
}

/// The instance of a reply that is not read to its end still contains the rest of the reply.
#[test]
fn an_answer_that_is_dropped_leaves_nothing_to_the_next() {
    let partition = open_probe(granted(""));
    for _ in 0..20 {
        let mut answer = pieces(&partition, 5);
        answer.next_piece().unwrap();
        answer.next_piece().unwrap();
    }
    assert_eq!(pieces(&partition, 1).collect().unwrap().body, b"begin 1:0 end");
    assert_eq!(partition.status().readers.failures, 0);
}

#[test]
fn pieces_are_bounded_each_and_whole_answers_together() {
    let limits = Limits { result_bytes: 1000, ..Limits::default() };
    let partition = open_probe(Setup { limits, ..granted("") });
    let large =
        |bytes: &str| Request { path: "/large".into(), query: bytes.into(), ..Request::default() };
    assert!(partition.reader().handle(&large("1000"), NOW).is_ok());
    let error = partition.reader().handle(&large("1001"), NOW).err().unwrap();
    assert!(matches!(error, Error::Result { bytes: 1001, .. }), "{error}");
    let error = pieces(&partition, 1_000_000).collect().unwrap_err();
    assert!(error.to_string().contains("unlucky") || matches!(error, Error::Result { .. }));
    let mut answer = pieces(&partition, 1_000_000);
    for _ in 0..1000 {
        assert!(answer.next_piece().unwrap().is_some(), "one by one there is no end");
    }
}

#[test]
fn answers_of_several_partitions_are_merged_by_the_plugin() {
    let partition = open_probe(granted(""));
    let partial = |body: &str| Response { status: 200, headers: Vec::new(), body: body.into() };
    let request = Request::default();
    let merged =
        partition.reader().merge(&request, &[partial("a"), partial("b")], NOW, None).unwrap();
    assert_eq!(merged.collect().unwrap().body, b"a+b");
    let views = open_in_memory("function (doc) {}", None);
    let error = views.reader().merge(&request, &[], NOW, None).err().unwrap();
    insta::assert_snapshot!(error, @"travel/_design/d: there are no answers to merge");
}

#[test]
fn headers_of_a_request_reach_the_plugin() {
    let partition = open_probe(granted(""));
    let request = Request {
        path: "/headers".into(),
        headers: vec![("accept".into(), "text/csv".into())],
        ..Request::default()
    };
    let answer = partition.reader().handle(&request, NOW).unwrap().collect().unwrap();
    assert_eq!(answer.body, br#"[("accept", "text/csv")]"#);
}
