//! Random queries. The members `as` and `pattern` contain what the oracle cannot read from the query itself; the server ignores
//! both.

use super::document::{DIMS, PLACES, TAGS, time, time_text, vector, word};
use super::pattern::Pattern;
use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use serde_json::{Map, Value, json};

fn field(random: &mut StdRng) -> &'static str {
    ["title", "body", "parts.word", "tag", "_all"].choose(random).unwrap()
}

/// Returns a word, or a single term for the field of tags.
fn term(random: &mut StdRng, field: &str) -> String {
    if field == "tag" || random.random_bool(0.05) {
        (*TAGS.choose(random).unwrap()).to_owned()
    } else {
        word(random)
    }
}

fn words(random: &mut StdRng, counts: std::ops::Range<usize>) -> String {
    let count = random.random_range(counts);
    (0..count).map(|_| word(random)).collect::<Vec<_>>().join(" ")
}

fn start_of(text: &str, characters: usize) -> &str {
    &text[..text.char_indices().nth(characters).map_or(text.len(), |(at, _)| at)]
}

/// Returns a query with subqueries up to a given depth.
pub fn query(random: &mut StdRng, depth: u32) -> Value {
    let mut query = match random.random_range(0..10) {
        0..4 if depth > 0 => compound(random, depth),
        0..7 => of_terms(random),
        7 => super::text::query_string(random),
        _ => of_values(random),
    };
    if random.random_bool(0.1) {
        query["boost"] = [0.5, 2.0, 10.0].choose(random).copied().unwrap().into();
    }
    query
}

fn of_terms(random: &mut StdRng) -> Value {
    let field = field(random);
    match random.random_range(0..9) {
        0 => json!({"term": term(random, field), "field": field}),
        1 | 2 => {
            let text = if field == "tag" { term(random, field) } else { words(random, 0..4) };
            let operator = if random.random_bool(0.5) { "and" } else { "or" };
            let mut query = json!({"match": text, "field": field, "operator": operator});
            if random.random_bool(0.3) {
                query["fuzziness"] =
                    json!([1, 2, "auto"]).as_array().unwrap().choose(random).unwrap().clone();
                query["prefix_length"] = random.random_range(0..3).into();
            }
            query
        }
        3 => {
            let text = if field == "tag" { term(random, field) } else { words(random, 1..4) };
            let mut query = json!({"match_phrase": text, "field": field});
            if random.random_bool(0.3) {
                query["fuzziness"] = random.random_range(0..2).into();
            }
            query
        }
        4 => {
            let count = random.random_range(1..4);
            let slots: Vec<Value> =
                (0..count).map(|_| json!([term(random, field), term(random, field)])).collect();
            json!({"terms": slots, "field": field})
        }
        5 => {
            let term = term(random, field);
            json!({"term": term, "field": field, "fuzziness": random.random_range(0..3), "prefix_length": random.random_range(0..3)})
        }
        6 => json!({"prefix": start_of(&term(random, field), 2), "field": field}),
        7 => {
            let pattern = Pattern::random(random, 2);
            json!({"regexp": pattern.text(), "field": field, "pattern": number_of(pattern)})
        }
        _ => of_ranges(random, field),
    }
}

/// Stores a pattern until the end of the test, and returns its number.
fn number_of(pattern: Pattern) -> usize {
    super::PATTERNS.with_borrow_mut(|patterns| {
        patterns.push(pattern);
        patterns.len() - 1
    })
}

fn of_ranges(random: &mut StdRng, field: &str) -> Value {
    if random.random_bool(0.5) {
        let pattern =
            ["*a*", "?pple", "b*a", "*", "gr?pe*", "f*g?", "a?", "**x", "日?", "* wine", "?", ""];
        return json!({"wildcard": pattern.choose(random).unwrap(), "field": field});
    }
    let mut query = json!({"field": field, "inclusive_min": random.random_bool(0.5), "inclusive_max": random.random_bool(0.5)});
    let bounds = random.random_range(1..4);
    if bounds & 1 != 0 {
        query["min"] = term(random, field).into();
    }
    if bounds & 2 != 0 {
        query["max"] = term(random, field).into();
    }
    query
}

fn of_values(random: &mut StdRng) -> Value {
    match random.random_range(0..10) {
        0 | 1 => {
            let field = if random.random_bool(0.8) { "number" } else { "_all" };
            let mut query = json!({"field": field});
            let bounds = random.random_range(1..4);
            if bounds & 1 != 0 {
                query["min"] = f64::from(random.random_range(-20..20)).into();
            }
            if bounds & 2 != 0 {
                query["max"] = (f64::from(random.random_range(-40..40)) / 2.0).into();
            }
            for name in ["inclusive_min", "inclusive_max"] {
                if random.random_bool(0.6) {
                    query[name] = random.random_bool(0.5).into();
                }
            }
            query
        }
        2 => json!({"bool": random.random_bool(0.5), "field": "flag"}),
        3 | 4 => {
            let mut query = json!({"field": "time"});
            let bounds = random.random_range(1..4);
            for (bit, name) in [(1, "start"), (2, "end")] {
                if bounds & bit != 0 {
                    let minutes = time(random);
                    query[name] = time_text(random, minutes).into();
                    query[format!("{name}_minutes")] = minutes.into();
                }
            }
            for name in ["inclusive_start", "inclusive_end"] {
                if random.random_bool(0.6) {
                    query[name] = random.random_bool(0.5).into();
                }
            }
            query
        }
        5 => {
            let count = random.random_range(0..5);
            let ids: Vec<String> =
                (0..count).map(|_| format!("d{:03}", random.random_range(0..60))).collect();
            json!({"ids": ids})
        }
        6 => {
            let address = std::net::Ipv4Addr::from(0x0A00_0000 + random.random_range(0..600));
            let bits = random.random_range(20..34);
            // 33 means a single address.
            let text = if bits > 32 { address.to_string() } else { format!("{address}/{bits}") };
            json!({"cidr": text, "field": "address"})
        }
        7 | 8 => of_places(random),
        _ if random.random_bool(0.7) => {
            json!({"match_all": if random.random_bool(0.5) { Value::Null } else { json!({}) }})
        }
        _ => json!({"match_none": null}),
    }
}

fn of_places(random: &mut StdRng) -> Value {
    let corner = |random: &mut StdRng, half: i32| {
        f64::from(random.random_range(-half * 10..half * 10)) / 10.0 + 0.037
    };
    match random.random_range(0..5) {
        0 => {
            let (lon, lat) = *PLACES.choose(random).unwrap();
            let (text, metres) = *[
                ("300km", 3e5),
                ("600mi", 965_606.4),
                ("2500000", 2.5e6),
                ("1500nm", 2.778e6),
                ("7000km", 7e6),
            ]
            .choose(random)
            .unwrap();
            json!({"location": [lon, lat], "distance": text, "metres": metres, "field": "place"})
        }
        1 => {
            let (west, east) = (corner(random, 179), corner(random, 179));
            let (one, other) = (corner(random, 89), corner(random, 89));
            json!({"top_left": [west, one.max(other)], "bottom_right": [east, one.min(other)], "field": "place"})
        }
        2 => {
            let count = random.random_range(3..6);
            let points: Vec<[f64; 2]> =
                (0..count).map(|_| [corner(random, 179), corner(random, 89)]).collect();
            json!({"polygon_points": points, "field": "place"})
        }
        _ => {
            let relation = ["intersects", "contains", "within", "disjoint"].choose(random).unwrap();
            let mut side = |range: std::ops::Range<i32>| {
                let start = 2 * random.random_range(range) + 1;
                (f64::from(start), f64::from(start + 2 * random.random_range(0..16)))
            };
            let ((west, east), (south, north)) = (side(-40..40), side(-20..20));
            let shape = if west == east || south == north {
                json!({"type": "point", "coordinates": [west, south]})
            } else if random.random_bool(0.5) {
                json!({"type": "envelope", "coordinates": [[west, north], [east, south]]})
            } else {
                let ring =
                    [[west, south], [east, south], [east, north], [west, north], [west, south]];
                json!({"type": "Polygon", "coordinates": [ring]})
            };
            let (east, north) =
                if shape["type"] == "point" { (west, south) } else { (east, north) };
            json!({"geometry": {"shape": shape, "relation": relation}, "sides": [west, south, east, north], "field": "area"})
        }
    }
}

fn parts(random: &mut StdRng, counts: std::ops::Range<usize>, depth: u32) -> Vec<Value> {
    let count = random.random_range(counts);
    (0..count).map(|_| query(random, depth - 1)).collect()
}

fn compound(random: &mut StdRng, depth: u32) -> Value {
    match random.random_range(0..3) {
        0 => json!({"conjuncts": parts(random, 1..6, depth)}),
        1 => {
            let parts = parts(random, 1..6, depth);
            let min = random.random_range(0..=parts.len());
            json!({"disjuncts": parts, "min": min})
        }
        _ => {
            let mut boolean = Map::new();
            if random.random_bool(0.6) {
                boolean.insert("must".into(), json!({"conjuncts": parts(random, 1..6, depth)}));
            }
            if random.random_bool(0.5) {
                let some = parts(random, 1..4, depth);
                let min = random.random_range(0..=some.len());
                boolean.insert("should".into(), json!({"disjuncts": some, "min": min}));
            }
            if random.random_bool(0.4) || boolean.is_empty() {
                boolean.insert("must_not".into(), json!({"disjuncts": parts(random, 1..3, depth)}));
            }
            if random.random_bool(0.3) {
                boolean.insert("filter".into(), query(random, depth - 1));
            }
            boolean.into()
        }
    }
}

/// Returns the member `knn` of a request.
pub fn nearest(random: &mut StdRng) -> Vec<Value> {
    let count = if random.random_bool(0.8) { 1 } else { 2 };
    let one = |random: &mut StdRng| {
        let vector: [f64; DIMS] = vector(random);
        let mut knn = json!({"field": "vector", "vector": vector, "k": random.random_range(1..12)});
        if random.random_bool(0.6) {
            knn["filter"] = query(random, 2);
        }
        knn
    };
    (0..count).map(|_| one(random)).collect()
}
