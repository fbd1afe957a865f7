//! The index as a service: indexing of changes, and requests to the whole or to parts.

use nacre_plugin::testing::Harness;
use nacre_plugin::{Request, Response, State};
use nacre_search::{Blobs, MemoryBlobs, Platform, SearchService};
use serde_json::{Value, json};
use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

thread_local! {
    static BLOBS: RefCell<MemoryBlobs> = RefCell::default();
}

/// A store per thread; each thread has one harness.
struct Memory;

impl Platform for Memory {
    fn blobs() -> Arc<dyn Blobs> {
        BLOBS.with(|blobs| Arc::new(blobs.borrow().clone()))
    }
}

type Search = Harness<SearchService<Memory>>;

fn deploy(params: &Value) -> Search {
    BLOBS.with(|blobs| blobs.replace(MemoryBlobs::default()));
    let config = json!({"name": "idx", "partition": "idx_1_2", "seed": 7, "params": params});
    Harness::new(&config.to_string()).unwrap()
}

fn post(path: &str, body: &Value, headers: &[(&str, &str)]) -> Request {
    Request {
        method: "POST".into(),
        path: path.into(),
        headers: headers.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect(),
        body: body.to_string().into(),
        ..Request::default()
    }
}

fn json_of(response: &Response) -> Value {
    serde_json::from_slice(&response.body).unwrap()
}

#[test]
fn changes_are_found_and_survive_the_instance() {
    let mut search = deploy(&Value::Null);
    search
        .put("a", r#"{"text": "red wine"}"#)
        .put("b", r#"{"text": "white wine"}"#)
        .feed()
        .unwrap();
    search.delete("b").put("c", r#"{"text": "red beer"}"#).feed().unwrap();
    let ask = |query: Value| post("/query", &json!({"query": query, "sort": ["_id"]}), &[]);
    let response = search.ask(&ask(json!({"match": "red"}))).unwrap();
    let answer = json_of(&response);
    assert_eq!(crate::world::ids(&answer), ["a", "c"]);
    assert_eq!(answer["hits"][0]["index"], "idx_1_2");
    let count = Request { method: "GET".into(), path: "/count".into(), ..Request::default() };
    assert_eq!(json_of(&search.ask(&count).unwrap()), json!({"status": "ok", "count": 2}));
    let refused = search.ask(&ask(json!({"nonsense": 1}))).unwrap();
    assert_eq!(
        (refused.status, json_of(&refused)),
        (400, json!({"status": "fail", "error": "unknown query type"}))
    );
}

/// Returns the IDs of all documents that a query with these headers finds.
fn all_ids(search: &mut Search, headers: &[(&str, &str)]) -> Vec<String> {
    let body = json!({"query": {"match_all": {}}, "sort": ["_id"], "size": 1000});
    let response = search.ask(&post("/query", &body, headers)).unwrap();
    crate::world::ids(&json_of(&response))
}

#[test]
fn many_removed_vbuckets_cost_one_commit() {
    let mut search = deploy(&Value::Null);
    for vb in 0..100_u16 {
        search.put(&format!("d{vb:03}"), r#"{"text": "same"}"#).in_vbucket(vb);
    }
    search.feed().unwrap();
    let kept: Vec<String> = (90..100).map(|vb| format!("d{vb:03}")).collect();
    let files = || BLOBS.with(|blobs| blobs.borrow().list().unwrap());
    let commit = |search: &Search| search.state().get(b"meta").unwrap();
    let (files_before, commit_before) = (files(), commit(&search));
    for vb in 0..90 {
        assert_eq!(search.rollback_in(vb, 0).unwrap(), 0);
    }
    // The documents are hidden at once, and nothing of the index has been written. Each call has another instance, as after a crash.
    assert_eq!((files(), commit(&search)), (files_before, commit_before.clone()));
    let count = |search: &mut Search| json_of(&search.get("/count").unwrap())["count"].clone();
    assert_eq!((all_ids(&mut search, &[]), count(&mut search)), (kept.clone(), json!(10)));
    let visible = [("nacre-vbuckets", "80-94,99")];
    assert_eq!(all_ids(&mut search, &visible), ["d090", "d091", "d092", "d093", "d094", "d099"]);
    search.advance(Duration::ZERO).unwrap();
    assert_eq!((all_ids(&mut search, &[]), count(&mut search)), (kept, json!(10)));
    assert_ne!(commit(&search), commit_before);
    assert_eq!(search.state().len(), 1, "{}", search.state_text());
    assert!(search.timers().is_empty());
}

#[test]
fn a_removed_vbucket_that_returns_has_its_new_documents_only() {
    let mut search = deploy(&Value::Null);
    for id in ["a", "b", "c"] {
        search.put(id, r#"{"text": "old"}"#).in_vbucket(if id == "c" { 8 } else { 7 });
    }
    search.feed().unwrap();
    search.rollback_in(7, 0).unwrap();
    assert_eq!(all_ids(&mut search, &[]), ["c"]);
    // The batch comes before the timer, and the document `a` no longer exists.
    search.put("b", r#"{"text": "new"}"#).in_vbucket(7).feed().unwrap();
    assert_eq!(all_ids(&mut search, &[]), ["b", "c"]);
    let commit = search.state().get(b"meta").unwrap();
    search.advance(Duration::ZERO).unwrap();
    assert_eq!(search.state().get(b"meta").unwrap(), commit, "nothing is left to remove");
    let old = post("/query", &json!({"query": {"match": "old"}}), &[]);
    assert_eq!(crate::world::ids(&json_of(&search.ask(&old).unwrap())), ["c"]);
}

#[test]
fn many_batches_leave_few_blobs() {
    let mut search = deploy(&Value::Null);
    for number in 0..100 {
        search.put(&format!("d{number}"), r#"{"text": "same text"}"#).feed().unwrap();
    }
    let files = BLOBS.with(|blobs| blobs.borrow().list().unwrap().len());
    assert!(files < 100, "{files} files");
    let request = post("/query", &json!({"query": {"match": "text"}, "size": 0}), &[]);
    assert_eq!(json_of(&search.ask(&request).unwrap())["total_hits"], 100);
}

#[test]
fn documents_are_analyzed() {
    let mut search = deploy(&Value::Null);
    let response = search.ask(&post("/analyzeDoc", &json!({"t": ["Red wine", "x"]}), &[])).unwrap();
    assert_eq!(
        json_of(&response),
        json!({"status": "ok", "analyzed": [
            {"red": {"Term": "cmVk", "Locations": [{"Field": "t", "ArrayPositions": [0], "Start": 0, "End": 3, "Position": 1}]},
             "wine": {"Term": "d2luZQ==", "Locations": [{"Field": "t", "ArrayPositions": [0], "Start": 4, "End": 8, "Position": 2}]}},
            {"x": {"Term": "eA==", "Locations": [{"Field": "t", "ArrayPositions": [1], "Start": 0, "End": 1, "Position": 1}]}},
        ]})
    );
}

#[test]
fn parts_are_merged_in_as_many_rounds_as_vectors_need() {
    let params = json!({"mapping": {"default_mapping": {"properties": {"v": {"fields": [
        {"type": "vector", "dims": 2, "index": true},
    ]}}}}});
    let mut search = deploy(&params);
    search.put("a", r#"{"v": [1, 0]}"#).put("b", r#"{"v": [5, 0]}"#).feed().unwrap();
    let body =
        json!({"query": {"match_none": {}}, "knn": [{"field": "v", "vector": [4, 0], "k": 1}]});
    let first = search.ask(&post("/query", &body, &[("nacre-part", "n1")])).unwrap();
    let request = post("/query", &body, &[]);
    let merged = search.merge(&request, vec![first]).unwrap();
    assert!(merged.body.is_empty());
    let rest = merged.headers.iter().find(|(name, _)| name == "nacre-rest").unwrap().1.clone();
    let headers = [("nacre-part", "n1"), ("nacre-rest", &*rest)];
    let second = search.ask(&post("/query", &body, &headers)).unwrap();
    let merged = search.merge(&post("/query", &body, &headers[1..]), vec![second]).unwrap();
    assert!(!merged.headers.iter().any(|(name, _)| name == "nacre-rest"));
    assert_eq!(crate::world::ids(&json_of(&merged)), ["b"]);
}

#[test]
fn synonyms_take_a_round_if_the_host_asks_for_them() {
    let mode = json!({"mode": "scope.collection.type_field"});
    let mapping = json!({
        "default_mapping": {"enabled": false},
        "types": {"s.texts": {}},
        "analysis": {"synonym_sources": {"en": {"collection": "words", "analyzer": "standard"}}},
        "default_synonym_source": "en",
    });
    let mut search = deploy(&json!({"doc_config": mode, "mapping": mapping}));
    let body = json!({"query": {"match": "car", "field": "t"}});
    let (part, asks) = (("nacre-part", "n1"), ("nacre-synonyms", "1"));
    let first = search.ask(&post("/query", &body, &[part, asks])).unwrap();
    assert!(json_of(&first)["Known"]["synonyms"]["idx_1_2"].is_object());
    // The other partition defines a synonym.
    let mut other = json_of(&first);
    for (_, found) in other["Known"]["synonyms"]["idx_1_2"].as_object_mut().unwrap() {
        *found = json!(["auto"]);
    }
    let other = Response::json(200, other.to_string());
    let merged = search.merge(&post("/query", &body, &[]), vec![first, other]).unwrap();
    let rest = merged.headers.iter().find(|(name, _)| name == "nacre-rest").unwrap().1.clone();
    assert!(rest.contains("\"auto\""), "{rest}");
    let headers = [part, asks, ("nacre-rest", &*rest)];
    let second = search.ask(&post("/query", &body, &headers)).unwrap();
    assert!(json_of(&second)["Hits"].is_array(), "the second round is the last");
    // A host of an earlier version merges no parts with synonyms.
    let first = search.ask(&post("/query", &body, &[part])).unwrap();
    assert!(json_of(&first)["Hits"].is_array());
}

#[test]
fn a_part_that_refuses_refuses_the_whole() {
    let mut search = deploy(&Value::Null);
    let body = json!({"query": {"match": "a", "analyzer": "nope"}});
    let part = search.ask(&post("/query", &body, &[("nacre-part", "n1")])).unwrap();
    assert_eq!(part.status, 200);
    let merged = search.merge(&post("/query", &body, &[]), vec![part]).unwrap();
    assert_eq!(merged.status, 400);
    assert_eq!(json_of(&merged)["error"], "no analyzer with name or type 'nope' registered");
}

#[test]
fn refused_definitions_are_not_deployed() {
    let config = json!({"params": {"mapping": {"default_analyzer": "nope"}}}).to_string();
    let refused = Harness::<SearchService<Memory>>::new(&config).map(drop).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "ValidateIndex, Mapping err: no analyzer with name or type 'nope' registered"
    );
}

#[test]
fn only_new_definitions_need_the_delimiter_of_a_hierarchy() {
    let filters = json!({"f": {"type": "hierarchy"}});
    let params = json!({"mapping": {"analysis": {"token_filters": filters}}});
    let stored = json!({"params": params}).to_string();
    assert!(Harness::<SearchService<Memory>>::new(&stored).is_ok());
    let new = json!({"params": params, "new": true}).to_string();
    let refused = Harness::<SearchService<Memory>>::new(&new).map(drop).unwrap_err();
    assert_eq!(refused.to_string(), "ValidateIndex, Mapping err: must specify delimiter");
}
