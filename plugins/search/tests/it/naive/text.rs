//! Random query strings, each with the equivalent query.

use super::document::word;
use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use serde_json::{Map, Value, json};

/// Returns an item without a sign: its text, and its query.
fn item(random: &mut StdRng) -> (String, Value) {
    let field = ["title", "body", "parts.word", ""].choose(random).copied().unwrap();
    let prefix = if field.is_empty() { String::new() } else { format!("{field}:") };
    let with = |mut query: Value| {
        if !field.is_empty() {
            query["field"] = field.into();
        }
        query
    };
    match random.random_range(0..9) {
        0 | 1 => {
            let word = word(random);
            (format!("{prefix}{word}"), with(json!({"match": word})))
        }
        2 => {
            let (word, fuzziness) = (word(random), random.random_range(0..3));
            let sign = if fuzziness == 1 { "~".to_owned() } else { format!("~{fuzziness}") };
            let query = json!({"match": word, "fuzziness": fuzziness, "prefix_length": 0});
            (format!("{prefix}{word}{sign}"), with(query))
        }
        3 => {
            let text = format!("{} {}", word(random), word(random));
            (format!("{prefix}\"{text}\""), with(json!({"match_phrase": text})))
        }
        4 => {
            let pattern = ["*a*", "?pple", "b*a", "gr?pe*"].choose(random).unwrap();
            (format!("{prefix}{pattern}"), with(json!({"wildcard": pattern})))
        }
        5 => {
            let number = f64::from(random.random_range(-40..40)) / 2.0;
            let sign = [">", ">=", "<", "<="].choose(random).unwrap();
            let bound = if sign.starts_with('>') { "min" } else { "max" };
            let query = json!({bound: number, format!("inclusive_{bound}"): sign.ends_with('='), "field": "number"});
            (format!("number:{sign}{number}"), query)
        }
        6 => {
            // A sign before a number would be the sign of the item.
            let number = f64::from(random.random_range(0..20)) / 2.0;
            let (name, field) =
                if random.random_bool(0.7) { ("number:", "number") } else { ("", "_all") };
            let equal = json!({"min": number, "max": number, "inclusive_min": true, "inclusive_max": true, "field": field});
            let text = json!({"match": number.to_string(), "field": field});
            (format!("{name}{number}"), json!({"disjuncts": [text, equal]}))
        }
        7 => {
            let minutes = super::document::time(random);
            let text = super::document::time_text(random, minutes);
            let sign = [">", ">=", "<", "<="].choose(random).unwrap();
            let bound = if sign.starts_with('>') { "start" } else { "end" };
            let query = json!({bound: text, format!("{bound}_minutes"): minutes, format!("inclusive_{bound}"): sign.ends_with('='), "field": "time"});
            (format!("time:{sign}\"{}\"", text.replace(':', "\\:")), query)
        }
        _ => {
            let word = word(random);
            let terms = [with(json!({"term": word})), with(json!({"term": format!("{word}s")}))];
            (format!("{prefix}/{word}s?/"), json!({"disjuncts": terms}))
        }
    }
}

/// Returns a query string. Its member `as` contains the equivalent query.
pub fn query_string(random: &mut StdRng) -> Value {
    let (mut texts, mut all) = (Vec::new(), [Vec::new(), Vec::new(), Vec::new()]);
    for _ in 0..random.random_range(1..5) {
        let (text, query) = item(random);
        let group = random.random_range(0..3);
        let boost = if random.random_bool(0.2) { "^2.5" } else { "" };
        texts.push(format!("{}{text}{boost}", ["", "+", "-"][group]));
        all[group].push(query);
    }
    let [should, must, must_not] = all;
    let mut stands_for = Map::new();
    for (name, parts, queries) in [
        ("should", "disjuncts", should),
        ("must", "conjuncts", must),
        ("must_not", "disjuncts", must_not),
    ] {
        if !queries.is_empty() {
            stands_for.insert(name.into(), json!({parts: queries}));
        }
    }
    json!({"query": texts.join(" "), "as": stands_for})
}
