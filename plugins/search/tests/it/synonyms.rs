//! Synonyms: those of deleted documents do not count, and those of one partition hold for all.

use crate::world::{World, ids, vbucket};
use nacre_search::{Change, Nearest, Place, Request, Thesaurus, merge, search_knowing, thesaurus};
use serde_json::{Value, json};

fn params() -> Value {
    json!({
        "doc_config": {"mode": "scope.collection.type_field"},
        "mapping": {
            "default_mapping": {"enabled": false},
            "types": {"s.texts": {}},
            "analysis": {"synonym_sources": {"en": {"collection": "words", "analyzer": "standard"}}},
            "default_synonym_source": "en",
        },
    })
}

fn add(world: &mut World, collection: &str, id: &str, body: &Value) {
    let body = body.to_string();
    world.add_to("s", collection, [(id, body.as_bytes())], 1);
}

fn found(world: &World, word: &str) -> Vec<String> {
    world.ids(&json!({"match": word, "field": "t"})).unwrap()
}

#[test]
fn synonyms_end_with_the_documents_that_define_them() {
    let mut world = World::new(&params()).unwrap();
    add(&mut world, "texts", "a", &json!({"t": "car"}));
    add(&mut world, "texts", "b", &json!({"t": "auto"}));
    assert_eq!(found(&world, "car"), ["a"]);
    add(&mut world, "words", "1", &json!({"synonyms": ["car", "auto"]}));
    assert_eq!(found(&world, "car"), ["a", "b"]);
    assert_eq!(world.ids(&json!({"match_all": {}})).unwrap(), ["a", "b"], "words are no hits");
    add(&mut world, "words", "2", &json!({"input": ["auto"], "synonyms": ["car"]}));
    while world.index.merge(1_000).unwrap() {}
    let place = Place { scope: "s", collection: "words" };
    let change = Change { vb: vbucket("1"), id: "1", body: None, place };
    world.index.apply(&[change]).unwrap();
    assert_eq!(found(&world, "car"), ["a"]);
    assert_eq!(found(&world, "auto"), ["a", "b"], "the other document is still there");
    add(&mut world, "words", "2", &json!({"synonyms": []}));
    assert_eq!(found(&world, "auto"), ["b"]);
}

#[test]
fn synonyms_of_one_partition_hold_for_the_others() {
    let mut worlds: Vec<World> = (0..3).map(|_| World::new(&params()).unwrap()).collect();
    add(&mut worlds[0], "texts", "a", &json!({"t": "fast car"}));
    add(&mut worlds[1], "texts", "b", &json!({"t": "quick auto"}));
    add(&mut worlds[1], "words", "1", &json!({"synonyms": ["car", "auto"]}));
    add(&mut worlds[2], "words", "2", &json!({"input": ["fast"], "synonyms": ["quick"]}));
    let ask = |query: Value| -> Vec<String> {
        let body = json!({"query": query, "sort": ["_id"]}).to_string();
        let request = Request::parse(body.as_bytes()).unwrap();
        let mut known = Thesaurus::default();
        for world in &worlds {
            // What a partition knows crosses the network in serialised form.
            let own = serde_json::to_string(&thesaurus(&world.index, &request).unwrap()).unwrap();
            known.merge(serde_json::from_str(&own).unwrap());
        }
        let near = Nearest::default();
        let part = |(at, world): (usize, &World)| {
            let index = &world.index;
            let partial = search_knowing(index, &request, &near, Some(&known), &mut || false);
            (format!("p{at}"), partial)
        };
        let parts = worlds.iter().enumerate().map(part).collect();
        ids(&merge(&request, parts).to_json(&request, 1))
    };
    assert_eq!(ask(json!({"match": "car", "field": "t"})), ["a", "b"]);
    assert_eq!(ask(json!({"match_phrase": "fast car", "field": "t"})), ["a", "b"]);
    assert_eq!(ask(json!({"match_phrase": "quick auto", "field": "t"})), ["b"]);
    assert_eq!(ask(json!({"term": "quick", "field": "t"})), ["b"]);
    assert_eq!(found(&worlds[0], "auto"), [""; 0], "alone, it does not know the word");
}
