//! Compares any query on any history of documents with a brute-force evaluation.

use crate::fixture::*;
use nacre_plugin::collate;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Number of vBuckets.
const VBUCKETS: u16 = 4;

/// A row in sorted order: encoded key, document, key, value, and the number of the document.
type Row = (Vec<u8>, String, Value, i32, u16);

/// The emitted keys and numbers of a document.
type Emits = Vec<(Value, i32)>;

pub fn any_key() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        (0i32..4).prop_map(Value::from),
        "[aB]{0,2}".prop_map(Value::from),
        prop::collection::vec(
            prop_oneof![(0i32..3).prop_map(Value::from), "[ab]".prop_map(Value::from)],
            0..4
        )
        .prop_map(Value::from),
    ]
}

fn any_change() -> impl Strategy<Value = (u16, Option<Emits>)> {
    let emits = prop::collection::vec((any_key(), -5i32..5), 0..3);
    (0u16..60, prop::option::weighted(0.8, emits))
}

#[derive(Clone, Debug)]
struct ValidQuery {
    start: Option<Value>,
    end: Option<Value>,
    inclusive: bool,
    descending: bool,
    skip: usize,
    limit: usize,
    level: usize,
    /// The visible vBuckets as bits; `None` for all.
    mask: Option<u16>,
}

fn any_query() -> impl Strategy<Value = ValidQuery> {
    let bounds = (prop::option::of(any_key()), prop::option::of(any_key()));
    let mask = prop::option::weighted(0.2, 0u16..16);
    (bounds, any::<(bool, bool)>(), 0usize..6, 0usize..30, 0usize..4, mask).prop_map(
        |((start, end), (inclusive, descending), skip, limit, level, mask)| ValidQuery {
            start,
            end,
            inclusive,
            descending,
            skip,
            limit,
            level,
            mask,
        },
    )
}

impl ValidQuery {
    fn parameters(&self) -> String {
        let mut text = format!(
            "inclusive_end={}&descending={}&skip={}&limit={}",
            self.inclusive, self.descending, self.skip, self.limit
        );
        for (name, key) in [("startkey", &self.start), ("endkey", &self.end)] {
            if let Some(key) = key {
                text.push_str(&format!("&{name}={key}"));
            }
        }
        text
    }

    fn sees(&self, id: u16) -> bool {
        self.mask.is_none_or(|mask| mask >> (id % VBUCKETS) & 1 == 1)
    }

    fn headers(&self) -> Vec<(String, String)> {
        let list = |mask| {
            let vbs = (0..VBUCKETS).filter(|vb| mask >> vb & 1 == 1);
            vbs.map(|vb: u16| vb.to_string()).collect::<Vec<_>>().join(",")
        };
        self.mask.iter().map(|mask| ("nacre-vbuckets".into(), list(mask))).collect()
    }

    /// Returns true if the start of the range sorts after its end.
    fn is_backwards(&self) -> bool {
        let (Some(start), Some(end)) = (&self.start, &self.end) else { return false };
        if self.descending { encoded(start) < encoded(end) } else { encoded(start) > encoded(end) }
    }

    /// Returns the requested rows, before skip and limit.
    fn rows<'a>(&self, rows: &[&'a Row]) -> Vec<&'a Row> {
        let mut rows = rows.to_vec();
        if self.descending {
            rows.reverse();
        }
        let forward = |a: &[u8], b: &[u8]| if self.descending { a >= b } else { a <= b };
        rows.retain(|row| {
            let after = self.start.as_ref().is_none_or(|start| forward(&encoded(start), &row.0));
            let before = self.end.as_ref().is_none_or(|end| {
                let end = encoded(end);
                forward(&row.0, &end) && (self.inclusive || row.0 != end)
            });
            after && before
        });
        rows
    }
}

fn encoded(key: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    collate::encode(&key.to_string(), &mut out).unwrap();
    out
}

fn group_of(key: &Value, level: usize) -> Value {
    match key {
        Value::Array(elements) => Value::from(elements[..level.min(elements.len())].to_vec()),
        other => other.clone(),
    }
}

/// Returns the number of histories to test: `NACRE_VIEW_CASES`, or 100.
pub fn cases() -> u32 {
    std::env::var("NACRE_VIEW_CASES").map_or(100, |text| text.parse().expect("a number"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases()))]

    #[test]
    fn answers_equal_brute_force(
        batches in prop::collection::vec(prop::collection::vec(any_change(), 0..60), 1..5),
        queries in prop::collection::vec(any_query(), 1..6),
    ) {
        let map = "function (doc) { doc.forEach(([k, n]) => emit(k, n)) }";
        let mut fixture = Fixture::view(map, Some("_sum"));
        let mut documents: BTreeMap<u16, Emits> = BTreeMap::new();
        for batch in &batches {
            let texts: Vec<_> = batch
                .iter()
                .map(|(id, emits)| (format!("d{id:02}"), emits.as_ref().map(|emits| json!(emits).to_string())))
                .collect();
            let changes: Vec<_> = texts
                .iter()
                .zip(batch)
                .map(|((text, body), (id, _))| match body {
                    Some(body) => json(id % VBUCKETS, text, body),
                    None => gone(id % VBUCKETS, text),
                })
                .collect();
            prop_assert_eq!(fixture.feed(&changes), []);
            for (id, emits) in batch {
                match emits {
                    Some(emits) => documents.insert(*id, emits.clone()),
                    None => documents.remove(id),
                };
            }
        }
        let mut all: Vec<_> = documents
            .iter()
            .flat_map(|(id, emits)| {
                emits
                    .iter()
                    .map(move |(key, n)| (encoded(key), format!("d{id:02}"), key.clone(), *n, *id))
            })
            .collect();
        // Rows of one document with equal keys are in the order of their values.
        all.sort_by(|a, b| (&a.0, &a.1, a.3).cmp(&(&b.0, &b.1, b.3)));

        for asked in &queries {
            fixture.headers = asked.headers();
            let all: Vec<_> = all.iter().filter(|row| asked.sees(row.4)).collect();
            if asked.is_backwards() {
                let answer = fixture.get("/v", &asked.parameters());
                prop_assert!(answer.starts_with("400"), "{answer}");
                continue;
            }
            let found = asked.rows(&all);
            let rows: Vec<_> = found
                .iter()
                .skip(asked.skip)
                .take(asked.limit)
                .map(|(_, id, key, n, _)| json!({"id": id, "key": key, "value": n}))
                .collect();
            let expected = json!({"total_rows": all.len(), "rows": rows});
            let answer = fixture.get("/v", &format!("reduce=false&{}", asked.parameters()));
            prop_assert_eq!(serde_json::from_str::<Value>(&answer).unwrap(), expected);

            let mut groups: Vec<(Value, i64)> = Vec::new();
            for (_, _, key, n, _) in found {
                let group = if asked.level == 0 { Value::Null } else { group_of(key, asked.level) };
                match groups.last_mut() {
                    Some((last, sum)) if *last == group => *sum += i64::from(*n),
                    _ => groups.push((group, i64::from(*n))),
                }
            }
            let groups = groups.iter().skip(asked.skip).take(asked.limit);
            let rows: Vec<_> = groups.map(|(key, sum)| json!({"key": key, "value": sum})).collect();
            let parameters = format!("group_level={}&{}", asked.level, asked.parameters());
            let answer = fixture.get("/v", &parameters);
            prop_assert_eq!(serde_json::from_str::<Value>(&answer).unwrap(), json!({"rows": rows}));
        }
    }
}
