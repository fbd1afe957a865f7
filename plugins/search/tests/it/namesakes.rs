//! Pages over documents of several collections that have equal IDs contain each hit once.

use crate::world::World;
use serde_json::{Value, json};

const SORTS: &[&[&str]] = &[
    &["_id"],
    &["-_id"],
    &["_id", "-n"],
    &["-_id", "n"],
    &["n", "_id"],
    &["n", "-_id"],
    &["_score", "_id"],
    &["-_score", "-_id"],
];

/// Creates an index of the named collections. Each has the same IDs, in segments with some documents of each.
fn world(collections: &[&str]) -> World {
    let types: Value = collections.iter().map(|name| (format!("s.{name}"), json!({}))).collect();
    let params = json!({
        "doc_config": {"mode": "scope.collection.type_field", "type_field": "type"},
        "mapping": {"default_mapping": {"enabled": false}, "types": types},
    });
    let mut world = World::new(&params).unwrap();
    for id in 0..12 {
        for (at, collection) in collections.iter().enumerate() {
            let body = json!({"t": "apple", "n": (id + at) % 3}).to_string();
            world.add_to("s", collection, [(&*format!("d{id:02}"), body.as_bytes())], 1);
        }
    }
    world
}

/// A hit: ID, collection, and cursor.
type Hit = (String, String, Vec<Value>);

fn page(world: &World, request: &Value) -> Vec<Hit> {
    let answer = world.search(request).unwrap();
    let hit = |hit: &Value| {
        let name = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let score = |key: &Value| match key.as_str() {
            // The member `sort` does not contain the score.
            Some("_score") => hit["score"].to_string().into(),
            _ => key.clone(),
        };
        let cursor = hit["sort"].as_array().unwrap().iter().map(score).collect();
        (name(&hit["id"]), name(&hit["fields"]["_$c"]), cursor)
    };
    answer["hits"].as_array().unwrap().iter().map(hit).collect()
}

fn request(sort: &[&str], size: usize) -> Value {
    json!({"query": {"match": "apple"}, "sort": sort, "size": size})
}

#[test]
fn pages_by_number_contain_each_hit_once() {
    let world = world(&["red", "blue", "green"]);
    let unsorted: &[&str] = &["-_score"];
    for sort in SORTS.iter().chain([&unsorted]) {
        let all = page(&world, &request(sort, 100));
        assert_eq!(all.len(), 36);
        for size in [1, 2, 5] {
            let mut seen = Vec::new();
            for from in (0..36).step_by(size) {
                let mut request = request(sort, size);
                request["from"] = from.into();
                seen.extend(page(&world, &request));
            }
            assert_eq!(seen, all, "{sort:?} in pages of {size}");
        }
    }
}

#[test]
fn pages_by_cursor_contain_each_hit_once() {
    for collections in [&["red", "blue"][..], &["red"]] {
        let world = world(collections);
        for sort in SORTS {
            let all = page(&world, &request(sort, 100));
            for size in [1, 5] {
                let mut seen = all[..1].to_vec();
                while seen.len() < all.len() {
                    let mut request = request(sort, size);
                    request["search_after"] = seen[seen.len() - 1].2.clone().into();
                    let hits = page(&world, &request);
                    assert!(!hits.is_empty(), "{sort:?} after {seen:?}");
                    seen.extend(hits);
                }
                assert_eq!(seen, all, "{sort:?} in pages of {size}");
                let mut seen = all[all.len() - 1..].to_vec();
                while seen.len() < all.len() {
                    let mut request = request(sort, size);
                    request["search_before"] = seen[0].2.clone().into();
                    let hits = page(&world, &request);
                    assert!(!hits.is_empty(), "{sort:?} before {seen:?}");
                    seen.splice(0..0, hits);
                }
                assert_eq!(seen, all, "{sort:?} backwards in pages of {size}");
            }
        }
    }
}

#[test]
fn a_cursor_without_a_collection_leaves_out_all_documents_of_its_id() {
    let world = world(&["red", "blue"]);
    let mut request = request(&["_id"], 3);
    request["search_after"] = json!(["d04"]);
    let hits = page(&world, &request);
    let hits: Vec<_> = hits.iter().map(|(id, collection, _)| (&**id, &**collection)).collect();
    assert_eq!(hits, [("d05", "blue"), ("d05", "red"), ("d06", "blue")]);
}
