//! The search component in the real sandbox: its index is stored in blobs of a segmented state, and is found
//! again after a restart.

use crate::fixture::*;
use nacre_dcp::ResumePoint;
use nacre_sandbox::{Partition, Request, Setup};
use nacre_state::{BlockCache, Segmenting, SpaceStorage, SyncCounts};
use nacre_store::{MemorySpaces, Spaces};
use nacre_types::Vbid;
use serde_json::{Value, json};

fn open(spaces: &dyn Spaces) -> Partition {
    let sync_counts = SyncCounts::open(spaces).unwrap();
    let with = Segmenting::new(BlockCache::default());
    let storage =
        SpaceStorage::open(spaces, &sync_counts, "p", false, 1 << 20, Some(&with)).unwrap();
    let config = json!({"name": "i", "partition": "i_1_2", "seed": 7}).to_string();
    Partition::open(plugin("search"), Setup::new("search index i", config), Box::new(storage))
        .unwrap()
}

fn search(partition: &Partition, query: Value) -> (Vec<String>, u64) {
    let body = json!({"query": query, "sort": ["_id"], "size": 1000}).to_string();
    let (method, path) = ("POST".into(), "/query".into());
    let request = Request { method, path, body: body.into(), ..Request::default() };
    let response = partition.reader().handle(&request, NOW).unwrap().collect().unwrap();
    let answer: Value = serde_json::from_slice(&response.body).unwrap();
    assert_eq!(response.status, 200, "{answer}");
    let hits = answer["hits"].as_array().unwrap().iter();
    let ids = hits.map(|hit| hit["id"].as_str().unwrap().to_owned()).collect();
    (ids, answer["total_hits"].as_u64().unwrap())
}

#[test]
fn documents_are_indexed_found_and_found_again_after_a_restart() {
    let spaces = MemorySpaces::default();
    let mut partition = open(&spaces);
    let mut stream = Stream::default();
    assert_eq!(search(&partition, json!({"match": "wine"})).1, 0, "it is empty at first");
    let batch = stream.batch([
        ("a", Some(r#"{"text": "red wine", "n": 1}"#)),
        ("b", Some(r#"{"text": "white wine", "n": 2}"#)),
    ]);
    assert_eq!(partition.on_batch(&batch, NOW).unwrap().documents, 2);
    assert_eq!(search(&partition, json!({"match": "wine"})).0, ["a", "b"]);
    let batch = stream.batch([("b", None), ("c", Some(r#"{"text": "red beer", "n": 3}"#))]);
    partition.on_batch(&batch, NOW).unwrap();
    assert_eq!(search(&partition, json!({"match": "red"})).0, ["a", "c"]);
    assert_eq!(search(&partition, json!({"min": 2, "field": "n"})).0, ["c"]);
    drop(partition);
    let mut partition = open(&spaces);
    assert_eq!(search(&partition, json!({"match": "red"})).0, ["a", "c"]);
    let batch = stream.batch([("a", Some(r#"{"text": "rose", "n": 4}"#))]);
    partition.on_batch(&batch, NOW).unwrap();
    assert_eq!(search(&partition, json!({"match": "red"})).0, ["c"]);
    assert_eq!(search(&partition, json!({"wildcard": "ro*"})).0, ["a"]);
}

#[test]
fn many_batches_are_merged_into_few_blobs() {
    let spaces = MemorySpaces::default();
    let mut partition = open(&spaces);
    let mut stream = Stream::default();
    for round in 0..40 {
        let documents: Vec<(String, String)> = (0..50)
            .map(|n| (format!("k{round}-{n}"), format!(r#"{{"text": "pearl {n}", "n": {n}}}"#)))
            .collect();
        let changes = documents.iter().map(|(key, body)| (&**key, Some(&**body)));
        partition.on_batch(&stream.batch(changes), NOW).unwrap();
    }
    assert_eq!(search(&partition, json!({"match": "pearl"})).1, 2000);
    assert_eq!(search(&partition, json!({"min": 7, "max": 8, "field": "n"})).1, 40);
    let files = spaces.open("p").unwrap().files().unwrap().numbers().unwrap().len();
    assert!(files < 150, "{files} files");
}

#[test]
fn removed_vbuckets_are_hidden_at_once_and_deleted_together() {
    let spaces = MemorySpaces::default();
    let mut partition = open(&spaces);
    let keys: Vec<String> = (0..40).map(|n| format!("k{n:02}")).collect();
    let changes = keys.iter().map(|key| (&**key, Some(r#"{"text": "pearl"}"#)));
    partition.on_batch(&Stream::default().batch(changes), NOW).unwrap();
    let is_left = |key: &&String| Vbid::of(key.as_bytes(), Stream::VBUCKETS) == Vbid(3);
    let left: Vec<String> = keys.iter().filter(is_left).cloned().collect();
    assert!(!left.is_empty() && left.len() < keys.len());
    let found = |partition: &Partition| search(partition, json!({"match": "pearl"})).0;
    for vbid in (0..3).map(Vbid) {
        partition.rollback(vbid, ResumePoint::default()).unwrap();
        assert_eq!(partition.progress(vbid), ResumePoint::default());
    }
    assert_eq!(found(&partition), left);
    // The process ends before the documents are deleted.
    drop(partition);
    let mut partition = open(&spaces);
    assert_eq!(found(&partition), left);
    assert_eq!(partition.on_timers(NOW).unwrap().timers, 1);
    assert_eq!(found(&partition), left);
    assert_eq!(partition.next_timer_us(), None);
}
