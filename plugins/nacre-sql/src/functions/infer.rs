//! The schemas that INFER and `INFER_VALUE` return. Source: SQL++ reference, INFER.

use super::{Function, open};
use crate::{Name, Value};
use std::collections::BTreeMap;

pub(super) const FUNCTIONS: &[Function] = &[open("INFER_VALUE", 1, 2, |args, _| {
    if args[0].is_missing() {
        return Ok(Value::Missing);
    }
    let options = Options::of(&args.get(1).cloned().unwrap_or_default());
    Ok(flavors(std::iter::once(&args[0]), &options).pop().unwrap_or(Value::Null))
})];

/// Options of INFER.
pub struct Options {
    /// Number of sample values of each field.
    pub samples: usize,
    /// Share of fields that two documents must have in common to have the same flavor.
    pub similarity: f64,
    /// Maximum length of a text that is kept as a sample, in bytes.
    text_bytes: usize,
}

/// Defaults. Source: Couchbase.
const SAMPLES: usize = 5;
const SIMILARITY: f64 = 0.6;
const TEXT_BYTES: usize = 32;
const SAMPLES_MAX: usize = 1000;

impl Options {
    /// Reads the options in `WITH {…}`; missing ones have defaults.
    pub fn of(with: &Value) -> Options {
        let number = |name: &str| with.field(name).as_f64();
        let count = number("num_sample_values").map_or(SAMPLES, |count| count.max(0.0) as usize);
        Options {
            samples: count.min(SAMPLES_MAX),
            similarity: number("similarity_metric").unwrap_or(SIMILARITY).clamp(0.0, 1.0),
            text_bytes: TEXT_BYTES,
        }
    }
}

/// Statistics of one type of values at a place.
#[derive(Default)]
struct Kind {
    count: u64,
    samples: Vec<Value>,
    fields: BTreeMap<Name, Place>,
    items: Option<Box<Place>>,
    items_least: usize,
    items_most: usize,
}

/// Statistics of a place in documents.
#[derive(Default)]
struct Place {
    count: u64,
    kinds: BTreeMap<&'static str, Kind>,
}

impl Place {
    fn add(&mut self, value: &Value, options: &Options) {
        self.count += 1;
        let kind = self.kinds.entry(value.type_name()).or_default();
        kind.count += 1;
        match value {
            Value::Object(fields) => {
                for (name, value) in fields.iter() {
                    kind.fields.entry(name.clone()).or_default().add(value, options);
                }
                return;
            }
            Value::Array(elements) => {
                let items = kind.items.get_or_insert_default();
                elements.iter().for_each(|element| items.add(element, options));
                let length = elements.len();
                let least = if kind.count == 1 { length } else { kind.items_least };
                kind.items_least = least.min(length);
                kind.items_most = kind.items_most.max(length);
            }
            _ => {}
        }
        let is_short = value.as_str().is_none_or(|text| text.len() <= options.text_bytes)
            && value.size_bytes() < 4096;
        if is_short && kind.samples.len() < options.samples && !kind.samples.contains(value) {
            kind.samples.push(value.clone());
        }
    }

    /// Returns the schema of the place; `all` is the number of documents that could have had a
    /// value there.
    fn schema(&self, all: u64) -> Vec<(Name, Value)> {
        let share = self.count as f64 * 100.0 / all.max(1) as f64;
        let mut schema: Vec<(Name, Value)> = Vec::new();
        let mut tell = |name: &str, value: Value| schema.push((name.into(), value));
        let counts = || self.kinds.values().map(|kind| Value::Int(kind.count as i64));
        let names = || self.kinds.keys().map(|name| Value::from(*name));
        let several = self.kinds.len() > 1;
        if several {
            tell("#docs", counts().collect::<Vec<_>>().into());
            let shares = self
                .kinds
                .values()
                .map(|kind| rounded(kind.count as f64 * 100.0 / all.max(1) as f64));
            tell("%docs", shares.collect::<Vec<_>>().into());
        } else {
            tell("#docs", Value::Int(self.count as i64));
            tell("%docs", rounded(share));
        }
        for kind in self.kinds.values() {
            if let Some(items) = &kind.items {
                let of_items = items.schema(items.count);
                let is_plain = |name: &str| name != "#docs" && name != "%docs";
                let of_items = of_items.into_iter().filter(|(name, _)| is_plain(name));
                tell("items", Value::object(of_items));
                tell("maxItems", Value::Int(kind.items_most as i64));
                tell("minItems", Value::Int(kind.items_least as i64));
            }
            if !kind.fields.is_empty() {
                tell("properties", properties(&kind.fields, kind.count));
            }
        }
        let samples: Vec<Vec<Value>> = self
            .kinds
            .values()
            .map(|kind| {
                let mut samples = kind.samples.clone();
                samples.sort();
                samples
            })
            .collect();
        if samples.iter().any(|samples| !samples.is_empty()) {
            tell(
                "samples",
                match several {
                    true => samples.into_iter().map(Value::array).collect::<Vec<_>>().into(),
                    false => samples.concat().into(),
                },
            );
        }
        tell(
            "type",
            match several {
                true => names().collect::<Vec<_>>().into(),
                false => names().next().unwrap_or(Value::Null),
            },
        );
        schema
    }
}

fn rounded(share: f64) -> Value {
    Value::number((share * 100.0).round() / 100.0)
}

fn properties(fields: &BTreeMap<Name, Place>, all: u64) -> Value {
    Value::object(
        fields.iter().map(|(name, place)| (name.clone(), Value::object(place.schema(all)))),
    )
}

/// Documents with similar fields.
struct Flavor {
    place: Place,
    names: Vec<Name>,
}

/// Returns true if documents with these fields belong to a flavor.
fn is_similar(flavor: &Flavor, names: &[Name], similarity: f64) -> bool {
    let shared = names.iter().filter(|name| flavor.names.contains(name)).count();
    let most = names.len().max(flavor.names.len());
    most == 0 || shared as f64 / most as f64 >= similarity
}

/// Returns the schemas of values, one for each flavor of documents.
pub fn flavors<'a>(values: impl Iterator<Item = &'a Value>, options: &Options) -> Vec<Value> {
    let mut flavors: Vec<Flavor> = Vec::new();
    let mut others = Place::default();
    for value in values {
        let Some(fields) = value.as_object() else {
            others.add(value, options);
            continue;
        };
        let names: Vec<Name> = fields.keys().cloned().collect();
        let found =
            flavors.iter_mut().find(|flavor| is_similar(flavor, &names, options.similarity));
        match found {
            Some(flavor) => flavor.place.add(value, options),
            None => {
                let mut place = Place::default();
                place.add(value, options);
                flavors.push(Flavor { place, names });
            }
        }
    }
    let mut schemas = Vec::new();
    for flavor in &flavors {
        let kinds = &flavor.place.kinds;
        let Some(kind) = kinds.get("object") else { continue };
        let mut names: Vec<&Name> = kind.fields.keys().collect();
        names.sort();
        let constant = |name: &&Name| {
            let place = &kind.fields[*name];
            let only = place.kinds.values().next().filter(|_| place.kinds.len() == 1)?;
            let is_same = only.count == kind.count && only.samples.len() == 1 && kind.count > 1;
            is_same.then(|| format!("`{name}` = {}", only.samples[0].to_json()))
        };
        let marks: Vec<String> = names.iter().filter_map(constant).collect();
        schemas.push(Value::object([
            ("#docs", Value::Int(kind.count as i64)),
            ("$schema", "http://json-schema.org/draft-06/schema".into()),
            ("Flavor", marks.join(", ").into()),
            ("properties", properties(&kind.fields, kind.count)),
            ("type", "object".into()),
        ]));
    }
    if others.count > 0 {
        schemas.push(Value::object(others.schema(others.count)));
    }
    schemas
}
