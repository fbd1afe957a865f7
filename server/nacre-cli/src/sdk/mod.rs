//! `nacre sdk types`: document types for application code, inferred from collections by INFER.
//!
//! [`shape`] reads a schema; [`typescript`] and [`python`] write types. The types promise only what all sampled documents have in
//! common: a field that some of them lack is optional.

mod python;
mod shape;
mod typescript;

use crate::failure::Failure;
use crate::keyspace::{InBucket, escaped};
use crate::statement::{keyspace, rows};
use crate::target::Server;
use clap::{Args, Subcommand, ValueEnum};
use shape::{Document, Flavor, document};
use std::path::PathBuf;

/// The error of INFER for a collection without documents.
const NO_DOCUMENTS: &str = "(error 7014)";

/// Options of `nacre sdk`.
#[derive(Args, Clone, Debug)]
pub struct Options {
    #[command(subcommand)]
    action: Action,
    #[command(flatten)]
    place: InBucket,
    #[command(flatten)]
    server: Server,
}

#[derive(Subcommand, Clone, Debug)]
enum Action {
    /// Generate types of the documents in collections, inferred from a sample
    Types {
        /// Collections, as scope.name; all that have documents if none is named
        collections: Vec<String>,
        /// Language of the types
        #[arg(long, value_enum, default_value = "typescript", value_name = "LANGUAGE")]
        lang: Language,
        /// Documents of each collection to look at
        #[arg(long, default_value_t = 1000, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=100_000))]
        sample: u32,
        /// File to write; standard output if it is not named
        #[arg(short, long, value_name = "FILE")]
        out: Option<PathBuf>,
    },
}

/// Language of types.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Language {
    /// Interfaces
    #[value(alias = "ts")]
    Typescript,
    /// Typed dictionaries
    #[value(alias = "py")]
    Python,
}

/// Runs `nacre sdk`.
///
/// # Errors
/// A message for the user.
pub fn run(options: &Options) -> Result<(), Failure> {
    let (server, bucket) = (&options.server, options.place.bucket.as_str());
    let Action::Types { collections, lang, sample, out } = &options.action;
    let named = !collections.is_empty();
    let collections = if named { collections.clone() } else { collections_of(server, bucket)? };
    let mut documents = Vec::new();
    for collection in &collections {
        match infer(server, bucket, collection, *sample) {
            Ok(flavors) => documents.push((collection.clone(), flavors)),
            Err(failure) if !named && failure.reason.contains(NO_DOCUMENTS) => {}
            Err(failure) => {
                return Err(failure.map(|reason| format!("{bucket}.{collection}: {reason}")));
            }
        }
    }
    if documents.is_empty() {
        return Err(format!("no collection of the bucket {bucket} has documents").into());
    }
    let documents = named_documents(bucket, documents);
    let text = match lang {
        Language::Typescript => typescript::write(bucket, *sample, &documents),
        Language::Python => python::write(bucket, *sample, &documents),
    };
    match out {
        None => print!("{text}"),
        Some(path) => {
            std::fs::write(path, text)
                .map_err(|error| format!("cannot write {}: {error}", path.display()))?;
            println!("wrote the types of {} collections to {}", documents.len(), path.display());
        }
    }
    Ok(())
}

/// Returns the collections of a bucket, without those of the system.
fn collections_of(server: &Server, bucket: &str) -> Result<Vec<String>, Failure> {
    let path = format!("/pools/default/buckets/{}/scopes", escaped(bucket));
    let answer = server.call("GET", &path, b"")?;
    let mut names = Vec::new();
    for scope in answer["scopes"].as_array().into_iter().flatten() {
        let scope_name = scope["name"].as_str().unwrap_or_default();
        if scope_name.starts_with("_system") {
            continue;
        }
        let collections = scope["collections"].as_array().into_iter().flatten();
        names.extend(collections.filter_map(|collection| {
            Some(format!("{scope_name}.{}", collection["name"].as_str()?))
        }));
    }
    names.sort();
    Ok(names)
}

fn infer(
    server: &Server,
    bucket: &str,
    collection: &str,
    sample: u32,
) -> Result<Vec<Flavor>, Failure> {
    let place = keyspace(bucket, collection)?;
    let text =
        format!("INFER {place} WITH {{\"sample_size\": {sample}, \"num_sample_values\": 2}}");
    let found = rows(server, &text, &[])?;
    Ok(shape::flavors(found.first().unwrap_or(&serde_json::Value::Null)))
}

/// Returns the documents of collections, with unique names.
fn named_documents(bucket: &str, found: Vec<(String, Vec<Flavor>)>) -> Vec<Document> {
    let mut taken = std::collections::BTreeSet::new();
    found
        .into_iter()
        .map(|(collection, flavors)| {
            let (scope, name) = collection.split_once('.').unwrap_or(("_default", &collection));
            let short = if name == "_default" { bucket } else { name };
            let names = [shape::type_name(&[short]), shape::type_name(&[scope, short])];
            let counted = (2..).map(|number| format!("{}{number}", names[1]));
            let free = names.iter().cloned().chain(counted).find(|name| taken.insert(name.clone()));
            document(free.expect("there is no last number"), collection, flavors)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Returns the output of INFER for `{"name": "a\"b", "tags": ["x", 1], "address": {"zip-code": "1"}}` and `{"name": null,
    /// "tags": []}`.
    fn hotels() -> serde_json::Value {
        json!([{
            "#docs": 2,
            "Flavor": "`type` = \"*/ hotel\u{2028}\"",
            "properties": {
                "name": {"#docs": [1, 1], "%docs": [50, 50], "type": ["null", "string"]},
                "tags": {"#docs": 2, "%docs": 100, "type": "array",
                    "items": {"type": ["number", "string"]}},
                "none": {"#docs": 2, "%docs": 100, "type": "array", "items": {"type": null}},
                "class": {"#docs": 2, "%docs": 100, "type": "boolean"},
                "address": {"#docs": 1, "%docs": 50, "type": "object", "properties": {
                    "zip-code": {"#docs": 1, "%docs": 100, "type": "string"},
                    "geo": {"#docs": 1, "%docs": 100, "type": "object"}}},
                "reviews": {"#docs": 2, "%docs": 100, "type": "array", "items": {
                    "type": "object", "properties": {
                        "stars": {"#docs": 3, "%docs": 75, "type": "number"},
                        "by": {"#docs": 4, "%docs": 100, "type": "string"}}}}
            },
            "type": "object"
        }])
    }

    fn documents(all: Vec<(&str, serde_json::Value)>) -> Vec<Document> {
        let found =
            all.into_iter().map(|(name, told)| (name.to_owned(), shape::flavors(&told))).collect();
        named_documents("travel", found)
    }

    #[test]
    fn interfaces_have_the_common_fields_of_documents() {
        let text =
            typescript::write("travel", 1000, &documents(vec![("inventory.hotel", hotels())]));
        insta::assert_snapshot!(text);
    }

    #[test]
    fn typed_dictionaries_have_the_common_fields_of_documents() {
        let text = python::write("travel", 1000, &documents(vec![("inventory.hotel", hotels())]));
        insta::assert_snapshot!(text);
    }

    #[test]
    fn several_flavors_are_a_union_and_other_values_a_part_of_it() {
        let told = json!([
            {"#docs": 1, "Flavor": "", "properties": {"a": {"#docs": 1, "%docs": 100, "type": "number"}}, "type": "object"},
            {"#docs": 1, "Flavor": "", "properties": {"b": {"#docs": 1, "%docs": 100, "type": "number"}}, "type": "object"},
            {"#docs": [1, 1], "%docs": [50, 50], "type": ["boolean", "string"]}
        ]);
        let documents = documents(vec![("_default._default", told)]);
        let text = typescript::write("travel", 1000, &documents);
        assert!(
            text.contains("export type Travel = Travel1 | Travel2 | boolean | string\n"),
            "{text}"
        );
        let text = python::write("travel", 1000, &documents);
        assert!(text.contains("Travel = Travel1 | Travel2 | bool | str\n"), "{text}");
    }

    #[test]
    fn names_are_unique_and_not_reserved_words() {
        let simple = json!([{"#docs": 1, "Flavor": "", "properties": {}, "type": "object"}]);
        let all = ["a.order-lines", "b.order-lines", "b-.order_lines", "c.2nd", "d.%x"];
        let documents = documents(all.map(|name| (name, simple.clone())).to_vec());
        let names: Vec<_> = documents.iter().map(|document| document.name.as_str()).collect();
        assert_eq!(names, ["OrderLines", "BOrderLines", "BOrderLines2", "T2nd", "X"]);
    }

    #[test]
    fn a_field_that_one_of_very_many_lacks_is_optional() {
        let told = json!([{"#docs": 100_000, "Flavor": "", "type": "object", "properties": {
            "a": {"#docs": 99_999, "%docs": 100.0, "type": "number"},
            "b": {"#docs": [33_333, 66_667], "%docs": [33.33, 66.67], "type": ["number", "string"]}}}]);
        let text = typescript::write("travel", 1000, &documents(vec![("s.c", told)]));
        assert!(text.contains("  a?: number\n  b: number | string\n"), "{text}");
    }

    #[test]
    fn answers_other_than_schemas_have_no_fields() {
        for told in [json!(null), json!([1, "x"]), json!([{"type": 5}]), json!({"type": "object"})]
        {
            let text = typescript::write("travel", 1, &documents(vec![("s.c", told.clone())]));
            assert!(text.contains("C = unknown") || text.contains("C {}"), "{told} {text}");
        }
    }
}
