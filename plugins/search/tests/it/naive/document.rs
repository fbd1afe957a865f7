//! Random documents, with the values and tokens that an analyzer would find.

use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

const WORDS: [&str; 24] = [
    "apple", "apply", "maple", "ample", "banana", "bandana", "cherry", "berry", "date", "dates",
    "elder", "older", "fig", "figs", "grape", "grapes", "gripe", "ab", "ba", "a1", "naïve",
    "straße", "日本", "x",
];
/// Values of a field that is indexed as single terms.
pub const TAGS: [&str; 7] = ["red wine", "red", "white wine", "Old Ale", "apple", "a1", "wine red"];
/// Longitudes and latitudes; some are near the date line and the poles.
pub const PLACES: [(f64, f64); 12] = [
    (2.35, 48.85),
    (-0.12, 51.5),
    (13.4, 52.52),
    (139.7, 35.69),
    (-179.5, -16.5),
    (178.4, -18.1),
    (-122.42, 37.77),
    (151.2, -33.87),
    (0.0, 0.0),
    (15.6, 78.2),
    (-70.9, -53.15),
    (-177.4, 28.2),
];
/// Dimensions of the vectors.
pub const DIMS: usize = 3;
/// Minutes of a day.
const DAY: i64 = 24 * 60;

/// A document, and its expected values.
#[derive(Debug, Default)]
pub struct Document {
    pub id: String,
    pub json: Value,
    /// Values of text fields as words, by field.
    pub texts: BTreeMap<&'static str, Vec<Vec<String>>>,
    pub tags: Vec<String>,
    pub numbers: Vec<f64>,
    pub flag: Option<bool>,
    /// Times in minutes since the beginning of February 2024.
    pub times: Vec<i64>,
    pub places: Vec<(f64, f64)>,
    /// West, south, east and north of a box.
    pub area: Option<[f64; 4]>,
    pub address: Option<u32>,
    pub vectors: Vec<[f64; DIMS]>,
}

/// A random word.
pub fn word(random: &mut StdRng) -> String {
    (*WORDS.choose(random).unwrap()).to_owned()
}

/// The mapping of the documents. It names all fields except texts, numbers, flags and dates.
pub fn params(random: &mut StdRng, similarity: &str) -> Value {
    let field = |kind: &str, more: Value| {
        let mut field = json!({"type": kind, "index": true});
        field.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap_or_default());
        // Otherwise the coordinates in a shape would be indexed as numbers, as in every dynamic property.
        json!({"enabled": true, "dynamic": false, "fields": [field]})
    };
    let tag = json!({"analyzer": "keyword", "include_in_all": true, "docvalues": random.random_bool(0.5)});
    let properties = json!({
        "tag": field("text", tag),
        "place": field("geopoint", json!({})),
        "area": field("geoshape", json!({})),
        "address": field("IP", json!({})),
        "vector": field("vector", json!({"dims": DIMS, "similarity": similarity})),
    });
    let scoring = if random.random_bool(0.5) { "bm25" } else { "tf-idf" };
    json!({"mapping": {
        "scoring_model": scoring,
        "store_dynamic": random.random_bool(0.5),
        "docvalues_dynamic": random.random_bool(0.5),
        "default_mapping": {"enabled": true, "dynamic": true, "properties": properties},
    }})
}

/// Formats a time in one of the default date formats. The time zone changes the text, not the time.
pub fn time_text(random: &mut StdRng, minutes: i64) -> String {
    let text = |minutes: i64, between: &str, zone: &str| {
        let (day, rest) = (minutes.div_euclid(DAY), minutes.rem_euclid(DAY));
        format!("2024-02-{:02}{between}{:02}:{:02}:00{zone}", day + 1, rest / 60, rest % 60)
    };
    match random.random_range(0..4) {
        0 if minutes.rem_euclid(DAY) == 0 => format!("2024-02-{:02}", minutes / DAY + 1),
        1 => text(minutes, " ", ""),
        2 => text(minutes + 90, "T", "+01:30"),
        _ => text(minutes, "T", "Z"),
    }
}

/// Returns a time, often the start of a day.
pub fn time(random: &mut StdRng) -> i64 {
    let day = random.random_range(0..27) * DAY;
    if random.random_bool(0.6) { day } else { day + random.random_range(0..22) * 60 }
}

/// Returns a vector whose components have few digits, so that formatting preserves them.
pub fn vector(random: &mut StdRng) -> [f64; DIMS] {
    std::array::from_fn(|_| f64::from(random.random_range(-1000..1000)) / 8.0)
}

fn texts(random: &mut StdRng, document: &mut Document, json: &mut Map<String, Value>) {
    for name in ["title", "body"] {
        if random.random_bool(0.15) {
            continue;
        }
        let is_array = random.random_bool(0.3);
        let count = if is_array { random.random_range(0..3) } else { 1 };
        let values: Vec<Vec<String>> = (0..count)
            .map(|_| (0..random.random_range(0..8)).map(|_| word(random)).collect())
            .collect();
        let joined: Vec<Value> = values.iter().map(|words| words.join(" ").into()).collect();
        json.insert(name.into(), if is_array { joined.into() } else { joined[0].clone() });
        document.texts.insert(name, values);
    }
    if random.random_bool(0.4) {
        let words: Vec<String> = (0..random.random_range(1..4)).map(|_| word(random)).collect();
        let parts: Vec<Value> = words.iter().map(|word| json!({"word": word})).collect();
        json.insert("parts".into(), parts.into());
        document.texts.insert("parts.word", words.into_iter().map(|word| vec![word]).collect());
    }
    if random.random_bool(0.6) {
        let tag = (*TAGS.choose(random).unwrap()).to_owned();
        json.insert("tag".into(), tag.clone().into());
        document.tags.push(tag);
    }
}

fn places(random: &mut StdRng, document: &mut Document, json: &mut Map<String, Value>) {
    if random.random_bool(0.7) {
        let count = random.random_range(1..3);
        document.places = (0..count).map(|_| *PLACES.choose(random).unwrap()).collect();
        let (lon, lat) = document.places[0];
        let value = match random.random_range(0..3) {
            _ if count > 1 => json!(document.places),
            0 => json!({"lon": lon, "lat": lat}),
            1 => json!([lon, lat]),
            _ => json!(format!("{lat},{lon}")),
        };
        json.insert("place".into(), value);
    }
    if random.random_bool(0.6) {
        // Corners here are even, and those in queries are odd, so that no two edges coincide.
        let mut side = |range: std::ops::Range<i32>| {
            let start = 2 * random.random_range(range);
            (f64::from(start), f64::from(start + 2 * random.random_range(1..10)))
        };
        let ((west, east), (south, north)) = (side(-40..40), side(-20..20));
        json.insert(
            "area".into(),
            json!({"type": "envelope", "coordinates": [[west, north], [east, south]]}),
        );
        document.area = Some([west, south, east, north]);
    }
}

/// A random document.
pub fn document(random: &mut StdRng, number: usize) -> Document {
    let mut json = Map::new();
    let mut document = Document { id: format!("d{number:03}"), ..Document::default() };
    texts(random, &mut document, &mut json);
    places(random, &mut document, &mut json);
    document.numbers = (0..random.random_range(0..3))
        .map(|_| {
            let number = f64::from(random.random_range(-20..20));
            if random.random_bool(0.3) { number / 2.0 } else { number }
        })
        .collect();
    if !document.numbers.is_empty() {
        json.insert("number".into(), document.numbers.clone().into());
    }
    document.flag = random.random_bool(0.7).then(|| random.random_bool(0.5));
    json.extend(document.flag.map(|flag| ("flag".to_owned(), flag.into())));
    document.times = (0..random.random_range(0..3)).map(|_| time(random)).collect();
    if !document.times.is_empty() {
        let times: Vec<String> =
            document.times.iter().map(|minutes| time_text(random, *minutes)).collect();
        json.insert("time".into(), times.into());
    }
    document.address = random.random_bool(0.6).then(|| 0x0A00_0000 + random.random_range(0..600));
    if let Some(address) = document.address {
        json.insert("address".into(), std::net::Ipv4Addr::from(address).to_string().into());
    }
    if random.random_bool(0.7) {
        document.vectors = (0..random.random_range(1..3)).map(|_| vector(random)).collect();
        let value = match &document.vectors[..] {
            [one] => json!(one),
            several => json!(several),
        };
        json.insert("vector".into(), value);
    }
    document.json = json.into();
    document
}
