//! Invalid or excessive input: a documented error or a skip, in bounded time.

use crate::world::World;
use nacre_search::{Definition, Request};
use serde_json::{Value, json};

fn world_of_words(count: usize) -> World {
    let mut world = World::new(&Value::Null).unwrap();
    let text: Vec<String> = (0..count).map(|n| format!("w{n}")).collect();
    let body = json!({"text": text.join(" ")}).to_string();
    world.add([("a", body.as_bytes())], 1);
    world
}

#[test]
fn ten_thousand_nested_booleans_are_refused() {
    let depth = 10_000;
    let body = format!(
        "{{\"query\": {}{{\"match_all\": {{}}}}{}}}",
        "{\"must\": {\"conjuncts\": [".repeat(depth),
        "]}}".repeat(depth)
    );
    let error = Request::parse(body.as_bytes()).unwrap_err();
    assert_eq!(error.status, 400);
    assert!(error.text.contains("recursion limit"), "{}", error.text);
}

#[test]
fn regular_expressions_that_explode_are_refused() {
    let world = world_of_words(10);
    for pattern in [
        "(a*)*(b+)+[ab]{900}{900}",
        r"((((\w{50}){50}){50}){50})",
        r"(x+x+)+y[^z]{5000}\p{L}{5000}",
    ] {
        let error = world.ids(&json!({"regexp": pattern})).unwrap_err();
        assert_eq!(error.status, 400, "{}", error.text);
    }
    // Backtracking would take forever.
    assert!(world.ids(&json!({"regexp": "(w+)+(w*)*x"})).unwrap().is_empty());
}

#[test]
fn patterns_that_match_all_terms_are_refused() {
    let world = world_of_words(3000);
    for query in [
        json!({"wildcard": "*", "field": "text"}),
        json!({"regexp": ".*", "field": "text"}),
        json!({"prefix": "w", "field": "text"}),
        json!({"min": "a", "max": "z", "field": "text"}),
    ] {
        let error = world.ids(&query).unwrap_err();
        assert_eq!(
            error.text,
            "TooManyClauses over field: `text` [1025 > maxClauseCount, which is set to 1024]",
            "{query}"
        );
    }
    assert_eq!(world.ids(&json!({"wildcard": "w29??", "field": "text"})).unwrap(), ["a"]);
}

#[test]
fn disjunctions_of_too_many_parts_are_refused() {
    let world = world_of_words(10);
    let parts = vec![json!({"term": "w1"}); 1025];
    let error = world.ids(&json!({"disjuncts": parts})).unwrap_err();
    assert_eq!(
        error.text,
        "TooManyClauses over field: `` [1025 > maxClauseCount, which is set to 1024]"
    );
    let error = world.ids(&json!({"match": "w1 ".repeat(1025), "field": "text"})).unwrap_err();
    assert_eq!(
        error.text,
        "TooManyClauses over field: `text` [1025 > maxClauseCount, which is set to 1024]"
    );
    let all = json!({"match": "w1 ".repeat(1025), "field": "text", "operator": "and"});
    assert_eq!(world.ids(&all).unwrap(), ["a"]);
    assert_eq!(world.ids(&json!({"conjuncts": vec![json!({"term": "w1"}); 5000]})).unwrap(), ["a"]);
}

#[test]
fn a_text_of_twenty_megabytes_is_indexed() {
    let mut world = World::new(&Value::Null).unwrap();
    let mut text = String::with_capacity(20 << 20);
    while text.len() < 20 << 20 {
        text.push_str("lorem ipsum dolor sit amet ");
    }
    text.push_str("needle");
    let body = json!({"text": text}).to_string();
    world.add([("a", body.as_bytes())], 1);
    assert_eq!(world.ids(&json!({"match_phrase": "amet needle", "field": "text"})).unwrap(), ["a"]);
    let highlighted = json!({"query": {"match": "needle", "field": "text"}, "highlight": {}});
    let answer = world.search(&highlighted).unwrap();
    let fragment = answer["hits"][0]["fragments"]["text"][0].as_str().unwrap();
    assert!(fragment.contains("<mark>needle</mark>"), "{fragment}");
}

#[test]
fn a_document_with_a_hundred_thousand_fields_is_indexed_in_part() {
    let mut world = World::new(&Value::Null).unwrap();
    let members: serde_json::Map<String, Value> =
        (0..100_000).map(|n| (format!("f{n:06}"), Value::from("equal"))).collect();
    let body = Value::Object(members).to_string();
    world.add([("a", body.as_bytes())], 1);
    assert_eq!(world.ids(&json!({"match": "equal", "field": "f000000"})).unwrap(), ["a"]);
    assert!(world.ids(&json!({"match": "equal", "field": "f099999"})).unwrap().is_empty());
}

/// Returns how many values of a document were left out.
fn skipped(world: &mut World, body: &Value) -> u64 {
    let body = body.to_string();
    let (id, place) = ("a", nacre_search::Place::default());
    let change = nacre_search::Change { vb: 0, id, body: Some(body.as_bytes()), place };
    world.index.apply(&[change]).unwrap().skipped
}

#[test]
fn values_that_do_not_suit_the_mapping_are_counted() {
    let field = |kind: &str| json!({"fields": [{"type": kind, "dims": 2, "index": true}]});
    let properties = json!({
        "v": field("vector"), "b": field("vector_base64"), "n": field("number"),
        "p": field("geopoint"), "d": field("datetime"), "ip": field("IP"),
    });
    let mapping = json!({"default_mapping": {"dynamic": false, "properties": properties}});
    let mut world = World::new(&json!({"mapping": mapping})).unwrap();
    for suitable in [
        json!({"v": [1, 2], "b": "AACAPwAAAEA=", "n": 1, "p": [1, 2], "d": "2020-01-01", "ip": "::1"}),
        json!({"v": [[1, 2], [3, 4]], "n": [1, 2], "p": [[1, 2], [3, 4]]}),
        json!({"v": null, "other": "text"}),
    ] {
        assert_eq!(skipped(&mut world, &suitable), 0, "{suitable}");
    }
    for unsuitable in [
        json!({"v": [1, 2, 3]}),
        json!({"v": ["x", "y"]}),
        json!({"b": "####"}),
        json!({"b": "AACAPw=="}),
        json!({"n": "five"}),
        json!({"p": "nowhere"}),
        json!({"d": "yesterday"}),
        json!({"ip": "10.0.0"}),
    ] {
        assert_eq!(skipped(&mut world, &unsuitable), 1, "{unsuitable}");
        assert_eq!(world.ids(&json!({"match_all": {}})).unwrap(), ["a"], "the document counts");
    }
    let mut world = World::new(&Value::Null).unwrap();
    let members: serde_json::Map<String, Value> =
        (0..100_000).map(|n| (format!("f{n:06}"), Value::from(1))).collect();
    assert_eq!(skipped(&mut world, &Value::Object(members)), 90_000);
}

#[test]
fn invalid_and_too_deep_json_counts_as_an_empty_object() {
    let mut world = World::new(&Value::Null).unwrap();
    let deep = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
    let deep_object = format!("{}1{}", "{\"a\":".repeat(10_000), "}".repeat(10_000));
    let bodies: [(&str, &[u8]); 6] = [
        ("deep", deep.as_bytes()),
        ("object", deep_object.as_bytes()),
        ("binary", &[0xFF, 0xFE, 0x00]),
        ("empty", b""),
        ("text", b"\"only a text\""),
        ("cut", b"{\"a\": \"b"),
    ];
    world.add(bodies, 2);
    assert_eq!(world.index.count(), 6);
    assert_eq!(world.ids(&json!({"match_all": {}})).unwrap().len(), 6);
}

#[test]
fn terms_that_are_too_long_are_left_out() {
    let mut world = World::new(&json!({"mapping": {"default_analyzer": "keyword"}})).unwrap();
    let body = json!({"text": "x".repeat(100_000), "other": "y"}).to_string();
    world.add([("a", body.as_bytes())], 1);
    assert_eq!(world.ids(&json!({"term": "y", "field": "other"})).unwrap(), ["a"]);
    assert!(world.ids(&json!({"prefix": "x", "field": "text"})).unwrap().is_empty());
}

#[test]
fn requests_of_random_bytes_never_panic() {
    use rand::{Rng, SeedableRng};
    let mut random = rand::rngs::StdRng::seed_from_u64(7);
    let world = world_of_words(5);
    let pieces = [
        "{",
        "}",
        "[",
        "]",
        ":",
        ",",
        "\"query\"",
        "\"match\"",
        "\"must\"",
        "null",
        "-1",
        "1e99",
        "\"x\"",
        "\"fuzziness\"",
        "\"terms\"",
        "\"boost\"",
        "true",
        "\"from\"",
        "\"size\"",
        "\"sort\"",
        "\"facets\"",
        "\"field\"",
        "\"disjuncts\"",
        "\"conjuncts\"",
        "\"min\"",
        "\"ids\"",
        "\"regexp\"",
        "\"(\"",
    ];
    for _ in 0..20_000 {
        let mut body = String::from("{\"query\": ");
        for _ in 0..random.random_range(1..12) {
            body.push_str(pieces[random.random_range(0..pieces.len())]);
        }
        if let Ok(request) = Request::parse(body.as_bytes()) {
            drop(nacre_search::search(&world.index, &request, &mut || false));
        }
    }
}

#[test]
fn requests_of_wrong_shapes_never_panic() {
    use rand::{Rng, SeedableRng};
    let mut random = rand::rngs::StdRng::seed_from_u64(8);
    let world = world_of_words(5);
    let values = [
        json!(null),
        json!(-1),
        json!(1e300),
        json!("x"),
        json!([]),
        json!({}),
        json!([{}]),
        json!(true),
    ];
    let names = [
        "match",
        "match_phrase",
        "terms",
        "term",
        "must",
        "should",
        "must_not",
        "filter",
        "conjuncts",
        "disjuncts",
        "query",
        "min",
        "max",
        "start",
        "end",
        "prefix",
        "regexp",
        "wildcard",
        "match_all",
        "match_none",
        "ids",
        "bool",
        "top_left",
        "bottom_right",
        "location",
        "distance",
        "polygon_points",
        "geometry",
        "cidr",
        "boost",
        "field",
        "fuzziness",
        "prefix_length",
        "operator",
        "analyzer",
        "datetime_parser",
    ];
    for _ in 0..50_000 {
        let mut query = serde_json::Map::new();
        for _ in 0..random.random_range(1..5) {
            let name = names[random.random_range(0..names.len())];
            query.insert(name.into(), values[random.random_range(0..values.len())].clone());
        }
        let body = json!({"query": query}).to_string();
        if let Ok(request) = Request::parse(body.as_bytes()) {
            drop(nacre_search::search(&world.index, &request, &mut || false));
        }
    }
}

#[test]
fn definitions_of_wrong_shapes_are_refused() {
    let values = [
        json!(-1),
        json!("x"),
        json!([]),
        json!([1]),
        json!(true),
        json!({"a": 1}),
        json!({"a": {"type": 1}}),
    ];
    let paths: [&[&str]; 14] = [
        &["mapping", "types"],
        &["mapping", "default_mapping"],
        &["mapping", "default_mapping", "properties"],
        &["mapping", "default_mapping", "fields"],
        &["mapping", "default_mapping", "enabled"],
        &["mapping", "analysis"],
        &["mapping", "analysis", "analyzers"],
        &["mapping", "analysis", "token_filters"],
        &["mapping", "default_analyzer"],
        &["mapping", "store_dynamic"],
        &["doc_config", "mode"],
        &["doc_config", "docid_regexp"],
        &["doc_config"],
        &["mapping"],
    ];
    for path in paths {
        for value in &values {
            let definition = path.iter().rev().fold(value.clone(), |value, name| {
                Value::Object([((*name).to_owned(), value)].into_iter().collect())
            });
            // The result may be an error, but there must be one.
            if let Err(error) = Definition::parse(&definition) {
                assert_eq!(error.status, 400);
                assert!(error.text.starts_with("ValidateIndex, "), "{}", error.text);
            }
        }
    }
}
