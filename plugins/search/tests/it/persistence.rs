//! Commits, merges, and the recovery of an interrupted index.

use crate::world::World;
use nacre_search::{Blobs, Commit, Definition, Index, MemoryBlobs};
use serde_json::{Value, json};
use std::sync::Arc;

fn reopen(blobs: &MemoryBlobs, commit: &Commit) -> World {
    let definition = Arc::new(Definition::parse(&Value::Null).unwrap());
    let shared: Arc<dyn Blobs> = Arc::new(blobs.clone());
    let index = Index::open(definition, shared, 1, &commit.meta).unwrap();
    World { blobs: blobs.clone(), index }
}

fn add(world: &mut World, id: &str, text: &str) {
    let body = json!({"text": text}).to_string();
    world.add([(id, body.as_bytes())], 1);
}

#[test]
fn an_index_opens_at_its_last_commit() {
    let mut world = World::new(&Value::Null).unwrap();
    add(&mut world, "a", "red apple");
    add(&mut world, "b", "green apple");
    let commit = world.index.commit("as far as 2").unwrap();
    add(&mut world, "c", "yellow apple");
    world.delete("a");
    let again = reopen(&world.blobs, &commit);
    assert_eq!(again.index.payload(), "as far as 2");
    assert_eq!(again.ids(&json!({"match": "apple"})).unwrap(), ["a", "b"]);
    assert_eq!(world.ids(&json!({"match": "apple"})).unwrap(), ["b", "c"]);
}

#[test]
fn an_updated_document_is_found_once_in_its_newest_version() {
    let mut world = World::new(&Value::Null).unwrap();
    for round in 0..20 {
        add(&mut world, "a", &format!("word{round} constant"));
    }
    assert_eq!(world.index.count(), 1);
    assert_eq!(world.ids(&json!({"match": "constant"})).unwrap(), ["a"]);
    assert_eq!(world.ids(&json!({"match": "word19"})).unwrap(), ["a"]);
    assert!(world.ids(&json!({"match": "word18"})).unwrap().is_empty());
    world.delete("a");
    assert_eq!(world.index.count(), 0);
    assert!(world.ids(&json!({"match_all": {}})).unwrap().is_empty());
}

#[test]
fn merges_change_no_answer_and_leave_fewer_segments() {
    let mut world = World::new(&Value::Null).unwrap();
    for id in 0..60 {
        add(&mut world, &format!("{id:02}"), if id % 3 == 0 { "fizz number" } else { "number" });
    }
    for id in 0..30 {
        world.delete(&format!("{id:02}"));
    }
    let before = world.ids(&json!({"match": "fizz"})).unwrap();
    let segments = world.index.segments().count();
    let mut merges = 0;
    while world.index.merge(100_000).unwrap() {
        merges += 1;
    }
    assert!(merges > 0 && world.index.segments().count() < segments);
    assert_eq!(world.ids(&json!({"match": "fizz"})).unwrap(), before);
    assert_eq!(before.len(), 10);
    assert_eq!(world.index.count(), 30);
    let commit = world.index.commit("").unwrap();
    let again = reopen(&world.blobs, &commit);
    assert_eq!(again.ids(&json!({"match": "fizz"})).unwrap(), before);
}

#[test]
fn files_named_by_neither_index_nor_commit_are_garbage() {
    let mut world = World::new(&Value::Null).unwrap();
    for id in 0..10 {
        add(&mut world, &id.to_string(), "text");
    }
    let old = world.index.commit("").unwrap();
    while world.index.merge(100_000).unwrap() {}
    assert_eq!(world.index.collect_garbage(&old).unwrap(), 0);
    let size = world.blobs.size();
    let new = world.index.commit("").unwrap();
    assert!(world.index.collect_garbage(&new).unwrap() > 0);
    assert!(world.blobs.size() < size);
    assert_eq!(reopen(&world.blobs, &new).ids(&json!({"match": "text"})).unwrap().len(), 10);
}

#[test]
fn a_name_of_a_segment_is_used_once() {
    // Each instance in the sandbox gets the same random numbers. A random name would therefore be that of a segment that the
    // previous instance has merged and whose files still exist.
    let mut world = World::new(&Value::Null).unwrap();
    let mut used = std::collections::BTreeSet::new();
    for round in 0..3 {
        for id in 0..20 {
            add(&mut world, &format!("{round}-{id}"), "text");
            while world.index.merge(100_000).unwrap() {}
            let name = |name: String| name.split('.').next().unwrap().to_owned();
            used.extend(world.blobs.list().unwrap().into_iter().map(name));
        }
        let commit = world.index.commit("").unwrap();
        world.index.collect_garbage(&commit).unwrap();
        world = reopen(&world.blobs, &commit);
    }
    assert_eq!(world.index.count(), 60);
    assert!(used.len() > 60, "there were merges: {used:?}");
    let expected = (1..=used.len()).map(|number| format!("{:016x}{number:016x}", 1));
    assert!(used.iter().cloned().eq(expected), "{used:?}");
}

#[test]
fn files_written_after_the_commit_are_ignored() {
    let mut world = World::new(&Value::Null).unwrap();
    add(&mut world, "a", "first");
    let commit = world.index.commit("1").unwrap();
    // The instance is interrupted after the next batch and a merge, before the next commit. The batch is then indexed
    // again.
    for _ in 0..3 {
        let mut again = reopen(&world.blobs, &commit);
        assert_eq!(again.ids(&json!({"match_all": {}})).unwrap(), ["a"]);
        again.index.collect_garbage(&commit).unwrap();
        for id in 0..9 {
            add(&mut again, &format!("b{id}"), "second");
        }
        while again.index.merge(100_000).unwrap() {}
        assert_eq!(again.ids(&json!({"match": "second"})).unwrap().len(), 9);
    }
}

#[test]
fn a_reader_advances_to_the_next_commit() {
    let mut world = World::new(&Value::Null).unwrap();
    add(&mut world, "a", "first");
    let one = world.index.commit("1").unwrap();
    let mut reader = reopen(&world.blobs, &one);
    add(&mut world, "b", "second");
    let two = world.index.commit("2").unwrap();
    assert_eq!(reader.index.count(), 1);
    reader.index.advance(&two.meta).unwrap();
    assert_eq!((reader.index.count(), reader.index.payload()), (2, "2"));
    assert_eq!(reader.ids(&json!({"match": "second"})).unwrap(), ["b"]);
    assert_eq!(reader.index.advance("{").unwrap_err().status, 500);
    assert_eq!(reader.ids(&json!({"match": "second"})).unwrap(), ["b"]);
}

#[test]
fn one_id_in_two_collections_is_two_documents() {
    let params = json!({
        "doc_config": {"mode": "scope.collection"},
        "mapping": {"default_mapping": {"enabled": false}, "types": {"s.x": {}, "s.y": {}}},
    });
    let mut world = World::new(&params).unwrap();
    for collection in ["x", "y"] {
        let body = json!({"in": collection}).to_string();
        world.add_to("s", collection, [("same", body.as_bytes())], 1);
    }
    let request = json!({"query": {"ids": ["same"]}, "sort": ["_id"], "fields": ["in"]});
    let answer = world.search(&request).unwrap();
    let of: Vec<&Value> =
        answer["hits"].as_array().unwrap().iter().map(|hit| &hit["fields"]).collect();
    assert_eq!(of, [&json!({"_$c": "x", "in": "x"}), &json!({"_$c": "y", "in": "y"})]);
    let place = nacre_search::Place { scope: "s", collection: "x" };
    let change = nacre_search::Change { vb: 0, id: "same", body: None, place };
    world.index.apply(&[change]).unwrap();
    assert_eq!(world.index.count(), 1);
}
