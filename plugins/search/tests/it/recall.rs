//! Recall of the nearest vectors in a large segment, compared with an exhaustive search.
//!
//! `NACRE_VECTORS=50000 NACRE_DIMS=384 cargo test --release -p nacre-search --test it recall -- --nocapture` measures larger segments.

use crate::world::World;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Number of queries of each kind.
const QUERIES: usize = 40;
/// Number of neighbours per query.
const K: usize = 10;

fn variable(name: &str, default: usize) -> usize {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

/// Vectors around some centres, as those of texts are around subjects.
struct Clustered {
    places: Vec<Vec<f32>>,
    random: StdRng,
}

impl Clustered {
    fn new(places_count: usize, dims: usize) -> Clustered {
        let mut random = StdRng::seed_from_u64(5);
        let mut place = || (0..dims).map(|_| random.random_range(-1.0..1.0)).collect();
        let places = (0..places_count).map(|_| place()).collect();
        Clustered { places, random }
    }

    fn vector(&mut self) -> Vec<f32> {
        let at = self.random.random_range(0..self.places.len());
        let noise = &mut self.random;
        self.places[at].iter().map(|number| number + noise.random_range(-0.4..0.4)).collect()
    }
}

/// Returns the nearest documents.
fn exact(vectors: &[Vec<f32>], query: &[f32], takes: impl Fn(usize) -> bool) -> BTreeSet<String> {
    let distance =
        |vector: &[f32]| -> f32 { vector.iter().zip(query).map(|(a, b)| (a - b) * (a - b)).sum() };
    let eligible = vectors.iter().enumerate().filter(|(number, _)| takes(*number));
    let mut all: Vec<(f32, usize)> =
        eligible.map(|(number, vector)| (distance(vector), number)).collect();
    all.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    all.into_iter().take(K).map(|(_, number)| format!("d{number}")).collect()
}

#[test]
fn most_of_the_nearest_are_found_in_a_segment_with_lists() {
    find_the_nearest(variable("NACRE_VECTORS", 24_000), variable("NACRE_DIMS", 24));
}

#[test]
fn most_of_the_nearest_are_found_in_the_smallest_segment_with_lists() {
    find_the_nearest(4_000, 96);
}

fn find_the_nearest(count: usize, dims: usize) {
    // This is the number of segments in one merge.
    let batch_size = count / 8;
    let mut clustered = Clustered::new(count / 100, dims);
    let field = json!({"type": "vector", "dims": dims, "similarity": "l2_norm", "index": true});
    let mapping = json!({"default_mapping": {"properties": {"v": {"fields": [field]}}}});
    let mut world = World::new(&json!({"mapping": mapping})).unwrap();
    let vectors: Vec<Vec<f32>> = (0..count).map(|_| clustered.vector()).collect();
    for (batch, vectors) in vectors.chunks(batch_size).enumerate() {
        let document = |(at, vector): (usize, &Vec<f32>)| {
            let number = batch * batch_size + at;
            // The values are spread over the clusters, so that a filter by them is independent of the vectors.
            let body = json!({"v": vector, "n": number % 1000}).to_string();
            (format!("d{number}"), body)
        };
        let documents: Vec<(String, String)> = vectors.iter().enumerate().map(document).collect();
        world.add(documents.iter().map(|(id, body)| (&**id, body.as_bytes())), batch_size);
    }
    while world.index.merge(u32::MAX).unwrap() {}
    assert_eq!(world.index.segments().count(), 1);
    let mut mean = |params: &Value, kept: usize| -> f64 {
        let (mut found_count, mut wanted_count) = (0, 0);
        for _ in 0..QUERIES {
            let query = clustered.vector();
            let mut knn = json!({"field": "v", "vector": query, "k": K, "params": params});
            if kept < 1000 {
                knn["filter"] = json!({"field": "n", "min": 0, "max": kept});
            }
            let request = json!({"query": {"match_none": {}}, "knn": [knn], "size": K});
            let answer = world.search(&request).unwrap();
            let found: BTreeSet<String> = crate::world::ids(&answer).into_iter().collect();
            let wanted = exact(&vectors, &query, |number| number % 1000 < kept);
            assert_eq!(found.len(), wanted.len(), "as many as there are");
            found_count += wanted.intersection(&found).count();
            wanted_count += wanted.len();
        }
        found_count as f64 / wanted_count as f64
    };
    for (name, params, kept, least) in [
        ("recall", Value::Null, 1000, 0.98),
        ("latency", json!({"ivf_nprobe_pct": 3}), 1000, 0.9),
        ("all lists", json!({"ivf_nprobe_pct": 100}), 1000, 0.995),
        ("a filter of 50 %", Value::Null, 500, 0.95),
        ("a filter of 10 %", Value::Null, 100, 0.95),
        ("a filter of 1 %", Value::Null, 10, 0.95),
        ("a filter of 0.1 %", Value::Null, 1, 1.0),
    ] {
        let found = mean(&params, kept);
        println!("{count} vectors of {dims}, {name}: recall@{K} {found:.3}");
        assert!(found >= least, "{name}: {found}");
    }
}
