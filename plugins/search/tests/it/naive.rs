//! Random documents and queries, compared with an evaluator that scans all tokens of all documents.
//!
//! `NACRE_QUERIES=50000 NACRE_SEED=7 cargo test -p nacre-search --test it naive` runs more of them, or others.

use crate::world::World;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};
use std::collections::BTreeMap;

const WORDS: [&str; 24] = [
    "apple", "apply", "maple", "ample", "banana", "bandana", "cherry", "berry", "date", "dates",
    "elder", "older", "fig", "figs", "grape", "grapes", "gripe", "ab", "ba", "a1", "naïve",
    "straße", "日本", "x",
];

/// A document, with what is in it: texts as words, a number, a flag and dates.
struct Document {
    id: String,
    json: Value,
    texts: BTreeMap<&'static str, Vec<Vec<String>>>,
    numbers: Vec<f64>,
    flag: Option<bool>,
    day: Option<u32>,
}

fn document(random: &mut StdRng, number: usize) -> Document {
    let mut texts = BTreeMap::new();
    let mut json = serde_json::Map::new();
    for name in ["title", "body"] {
        if random.random_bool(0.15) {
            continue;
        }
        let is_array = random.random_bool(0.3);
        let count = if is_array { random.random_range(0..3) } else { 1 };
        let values: Vec<Vec<String>> = (0..count)
            .map(|_| {
                let length = random.random_range(0..8);
                (0..length).map(|_| (*WORDS.choose(random).unwrap()).to_owned()).collect()
            })
            .collect();
        let joined: Vec<Value> = values.iter().map(|words| words.join(" ").into()).collect();
        json.insert(name.into(), if is_array { joined.into() } else { joined[0].clone() });
        texts.insert(name, values);
    }
    let numbers: Vec<f64> = (0..random.random_range(0..3))
        .map(|_| {
            f64::from(random.random_range(-20..20))
                / if random.random_bool(0.3) { 2.0 } else { 1.0 }
        })
        .collect();
    if !numbers.is_empty() {
        json.insert("number".into(), numbers.clone().into());
    }
    let flag = random.random_bool(0.7).then(|| random.random_bool(0.5));
    if let Some(flag) = flag {
        json.insert("flag".into(), flag.into());
    }
    let day = random.random_bool(0.7).then(|| random.random_range(1..29));
    if let Some(day) = day {
        json.insert("day".into(), format!("2024-02-{day:02}").into());
    }
    Document { id: format!("d{number:03}"), json: json.into(), texts, numbers, flag, day }
}

fn word(random: &mut StdRng) -> String {
    (*WORDS.choose(random).unwrap()).to_owned()
}

fn field(random: &mut StdRng) -> &'static str {
    ["title", "body", "_all"].choose(random).unwrap()
}

fn query(random: &mut StdRng, depth: u32) -> Value {
    if depth > 0 && random.random_bool(0.4) {
        return compound(random, depth);
    }
    let field = field(random);
    match random.random_range(0..16) {
        0 => json!({"term": word(random), "field": field}),
        1 | 2 => {
            let words: Vec<String> = (0..random.random_range(0..4)).map(|_| word(random)).collect();
            let operator = if random.random_bool(0.5) { "and" } else { "or" };
            json!({"match": words.join(" "), "field": field, "operator": operator})
        }
        3 => {
            let words = [word(random), word(random)];
            json!({"match_phrase": words.join(" "), "field": field})
        }
        4 => {
            let slots: Vec<Value> = (0..random.random_range(1..4))
                .map(|_| json!([word(random), word(random)]))
                .collect();
            json!({"terms": slots, "field": field})
        }
        5 | 6 => {
            let fuzziness = random.random_range(0..3);
            json!({"term": word(random), "field": field, "fuzziness": fuzziness, "prefix_length": random.random_range(0..3)})
        }
        7 => {
            let word = word(random);
            let end = word.char_indices().nth(2).map_or(word.len(), |(at, _)| at);
            json!({"prefix": word[..end], "field": field})
        }
        8 => {
            let pattern = ["*a*", "?pple", "b*a", "*", "gr?pe*", "f*g?", "a?", "**x", "日?"]
                .choose(random)
                .unwrap();
            json!({"wildcard": pattern, "field": field})
        }
        9 => {
            let (min, max) = (word(random), word(random));
            json!({"min": min, "max": max, "field": field, "inclusive_min": random.random_bool(0.5), "inclusive_max": random.random_bool(0.5)})
        }
        10 | 11 => {
            let mut query = json!({"field": "number", "inclusive_min": random.random_bool(0.5), "inclusive_max": random.random_bool(0.5)});
            let bounds = random.random_range(1..4);
            if bounds & 1 != 0 {
                query["min"] = f64::from(random.random_range(-20..20)).into();
            }
            if bounds & 2 != 0 {
                query["max"] = (f64::from(random.random_range(-40..40)) / 2.0).into();
            }
            query
        }
        12 => json!({"bool": random.random_bool(0.5), "field": "flag"}),
        13 => {
            let (a, b) = (random.random_range(1..29), random.random_range(1..29));
            json!({"start": format!("2024-02-{a:02}"), "end": format!("2024-02-{b:02}"), "field": "day",
                   "inclusive_start": random.random_bool(0.5), "inclusive_end": random.random_bool(0.5)})
        }
        14 => {
            let ids: Vec<String> = (0..random.random_range(0..5))
                .map(|_| format!("d{:03}", random.random_range(0..60)))
                .collect();
            json!({"ids": ids})
        }
        _ => {
            if random.random_bool(0.7) {
                json!({"match_all": {}})
            } else {
                json!({"match_none": {}})
            }
        }
    }
}

fn compound(random: &mut StdRng, depth: u32) -> Value {
    let mut parts = |least: usize| -> Vec<Value> {
        (0..random.random_range(least..6)).map(|_| query(random, depth - 1)).collect()
    };
    let parts_of = parts(1);
    match random.random_range(0..3) {
        0 => json!({"conjuncts": parts_of}),
        1 => {
            let min = random.random_range(0..=parts_of.len());
            json!({"disjuncts": parts_of, "min": min})
        }
        _ => {
            let mut boolean = serde_json::Map::new();
            if random.random_bool(0.6) {
                boolean.insert("must".into(), json!({"conjuncts": parts_of}));
            }
            if random.random_bool(0.5) {
                let some: Vec<Value> =
                    (0..random.random_range(1..4)).map(|_| query(random, depth - 1)).collect();
                let min = random.random_range(0..=some.len());
                boolean.insert("should".into(), json!({"disjuncts": some, "min": min}));
            }
            if random.random_bool(0.4) || boolean.is_empty() {
                boolean.insert("must_not".into(), json!({"disjuncts": [query(random, depth - 1)]}));
            }
            if random.random_bool(0.3) {
                boolean.insert("filter".into(), query(random, depth - 1));
            }
            boolean.into()
        }
    }
}

/// How many insertions, deletions, changes and swaps of neighbours there are from one word to another.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    for i in 0..=a.len() {
        for j in 0..=b.len() {
            rows[i][j] = match (i, j) {
                (0, _) => j,
                (_, 0) => i,
                _ => {
                    let changed = usize::from(a[i - 1] != b[j - 1]);
                    let mut least = (rows[i - 1][j] + 1)
                        .min(rows[i][j - 1] + 1)
                        .min(rows[i - 1][j - 1] + changed);
                    if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                        least = least.min(rows[i - 2][j - 2] + 1);
                    }
                    least
                }
            };
        }
    }
    rows[a.len()][b.len()]
}

fn glob(pattern: &[char], word: &[char]) -> bool {
    match pattern.first() {
        None => word.is_empty(),
        Some('*') => (0..=word.len()).any(|at| glob(&pattern[1..], &word[at..])),
        Some(c) => {
            !word.is_empty() && (*c == '?' || *c == word[0]) && glob(&pattern[1..], &word[1..])
        }
    }
}

/// What the standard analyzer makes of words: two characters of Chinese writing are two tokens, stop words are gone.
fn tokens(words: &[String]) -> Vec<String> {
    words
        .iter()
        .flat_map(|word| match &**word {
            "日本" => vec!["日".to_owned(), "本".to_owned()],
            word => vec![word.to_owned()],
        })
        .collect()
}

impl Document {
    /// The values of a field as tokens.
    fn values(&self, field: &str) -> Vec<Vec<String>> {
        let texts = self.texts.iter().filter(|(name, _)| field == "_all" || **name == field);
        let mut values: Vec<Vec<String>> =
            texts.flat_map(|(_, values)| values.iter().map(|words| tokens(words))).collect();
        if field == "_all" {
            values.extend(self.flag.map(|flag| vec![if flag { "T" } else { "F" }.to_owned()]));
        }
        values
    }

    fn any_term(&self, field: &str, wanted: impl Fn(&str) -> bool) -> bool {
        self.values(field).iter().flatten().any(|term| wanted(term))
    }

    fn has_phrase(&self, field: &str, slots: &[Vec<String>]) -> bool {
        self.values(field).iter().any(|value| {
            value
                .windows(slots.len())
                .any(|window| window.iter().zip(slots).all(|(term, slot)| slot.contains(term)))
        })
    }

    fn matches(&self, query: &Value) -> bool {
        let text = |name: &str| query[name].as_str();
        let field = text("field").unwrap_or("_all");
        let flag = |name: &str| query[name].as_bool().unwrap();
        if let Some(parts) = query["conjuncts"].as_array() {
            return !parts.is_empty() && parts.iter().all(|part| self.matches(part));
        }
        if let Some(parts) = query["disjuncts"].as_array() {
            let min = query["min"].as_u64().unwrap_or(0).max(1) as usize;
            return parts.iter().filter(|part| self.matches(part)).count() >= min;
        }
        let (must, should) = (query.get("must"), query.get("should"));
        if must.is_some() || should.is_some() || query.get("must_not").is_some() {
            let needs_should =
                must.is_none() || should.is_some_and(|should| should["min"].as_u64() > Some(0));
            return must.is_none_or(|must| self.matches(must))
                && should.is_none_or(|should| !needs_should || self.matches(should))
                && !query.get("must_not").is_some_and(|not| self.matches(not))
                && query.get("filter").is_none_or(|filter| self.matches(filter));
        }
        if let Some(fuzziness) = query["fuzziness"].as_u64() {
            let term = text("term").unwrap();
            let prefix: String =
                term.chars().take(query["prefix_length"].as_u64().unwrap() as usize).collect();
            return self.any_term(field, |other| {
                other.starts_with(&prefix) && distance(term, other) <= fuzziness as usize
            });
        }
        if let Some(words) = text("match") {
            let words = tokens(&words.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
            let has = |word: &String| self.any_term(field, |term| term == word);
            return if text("operator") == Some("and") {
                !words.is_empty() && words.iter().all(has)
            } else {
                words.iter().any(has)
            };
        }
        if let Some(words) = text("match_phrase") {
            let words = tokens(&words.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
            let slots: Vec<Vec<String>> = words.into_iter().map(|word| vec![word]).collect();
            return !slots.is_empty() && self.has_phrase(field, &slots);
        }
        if let Some(slots) = query["terms"].as_array() {
            let slots: Vec<Vec<String>> = slots
                .iter()
                .map(|slot| {
                    slot.as_array()
                        .unwrap()
                        .iter()
                        .map(|term| term.as_str().unwrap().into())
                        .collect()
                })
                .collect();
            return self.has_phrase(field, &slots);
        }
        if let Some(term) = text("term") {
            return self.any_term(field, |other| other == term);
        }
        if let Some(prefix) = text("prefix") {
            return self.any_term(field, |term| term.starts_with(prefix));
        }
        if let Some(pattern) = text("wildcard") {
            let pattern: Vec<char> = pattern.chars().collect();
            return self.any_term(field, |term| glob(&pattern, &term.chars().collect::<Vec<_>>()));
        }
        if field == "number" {
            let bound = |name: &str| query[name].as_f64();
            return self.numbers.iter().any(|number| {
                let low = bound("min")
                    .is_none_or(|min| *number > min || flag("inclusive_min") && *number == min);
                let high = bound("max")
                    .is_none_or(|max| *number < max || flag("inclusive_max") && *number == max);
                low && high
            });
        }
        if let (Some(min), Some(max)) = (text("min"), text("max")) {
            return self.any_term(field, |term| {
                (term > min || flag("inclusive_min") && term == min)
                    && (term < max || flag("inclusive_max") && term == max)
            });
        }
        if let Some(wanted) = query["bool"].as_bool() {
            return self.flag == Some(wanted);
        }
        if let (Some(start), Some(end)) = (text("start"), text("end")) {
            let day = self.day.map(|day| format!("2024-02-{day:02}"));
            return day.is_some_and(|day| {
                (&*day > start || flag("inclusive_start") && day == start)
                    && (&*day < end || flag("inclusive_end") && day == end)
            });
        }
        if let Some(ids) = query["ids"].as_array() {
            return ids.iter().any(|id| *id == *self.id);
        }
        query.get("match_all").is_some()
    }
}

fn variable(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

#[test]
fn random_queries_have_the_hits_of_a_scan() {
    let (queries, seed) = (variable("NACRE_QUERIES", 2000), variable("NACRE_SEED", 0));
    const PER_WORLD: u64 = 250;
    for round in 0..queries.div_ceil(PER_WORLD) {
        let mut random = StdRng::seed_from_u64(seed + round);
        let params = if round % 2 == 0 {
            json!(null)
        } else {
            json!({"mapping": {"scoring_model": "bm25"}})
        };
        let mut world = World::new(&params).unwrap();
        let mut documents: BTreeMap<String, Document> = BTreeMap::new();
        // Some are written several times, some are deleted again.
        for _ in 0..90 {
            let number = random.random_range(0..60);
            let document = document(&mut random, number);
            let body = document.json.to_string();
            world.add([(&*document.id, body.as_bytes())], 1);
            documents.insert(document.id.clone(), document);
            if random.random_bool(0.1) {
                let id = format!("d{:03}", random.random_range(0..60));
                world.delete(&id);
                documents.remove(&id);
            }
            if random.random_bool(0.1) {
                world.index.merge(1000).unwrap();
            }
        }
        for number in 0..PER_WORLD {
            let query = query(&mut random, 3);
            let wanted: Vec<&String> = documents
                .values()
                .filter(|document| document.matches(&query))
                .map(|document| &document.id)
                .collect();
            let answer = world.search(&json!({"query": query, "size": 100, "sort": ["_id"]}));
            let answer = answer.unwrap_or_else(|error| panic!("{error}: {query}"));
            let found = crate::world::ids(&answer);
            assert_eq!(
                found,
                wanted.iter().map(|id| (*id).clone()).collect::<Vec<_>>(),
                "seed {} query {number}: {query}",
                seed + round
            );
            assert_eq!(answer["total_hits"], wanted.len());
            for hit in answer["hits"].as_array().unwrap() {
                assert!(hit["score"].as_f64().unwrap().is_finite());
            }
        }
    }
}
