//! The conformance cases of search: definitions, documents and requests, with their expected results.
//!
//! `NACRE_SEARCH_CASES` names another directory of cases; `NACRE_SEARCH_ONLY` is a part of the names of the cases to
//! run.

use crate::world::{World, ids};
use nacre_search::{Definition, Request};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::PathBuf;

fn directory() -> PathBuf {
    let own = || PathBuf::from("../../conformance/cases/search");
    std::env::var_os("NACRE_SEARCH_CASES").map_or_else(own, PathBuf::from)
}

/// Returns true if a response contains the expected members. Additional members, and the last bits of numbers, do not
/// matter.
fn has(answer: &Value, wanted: &Value) -> bool {
    match (answer, wanted) {
        (Value::Object(answer), Value::Object(wanted)) => wanted
            .iter()
            .all(|(name, wanted)| has(answer.get(name).unwrap_or(&Value::Null), wanted)),
        (Value::Array(answer), Value::Array(wanted)) => {
            answer.len() == wanted.len() && answer.iter().zip(wanted).all(|(a, w)| has(a, w))
        }
        _ => match (answer.as_f64(), wanted.as_f64()) {
            (Some(a), Some(w)) => (a - w).abs() <= 1e-4 * a.abs().max(w.abs()),
            _ => answer == wanted,
        },
    }
}

/// Returns the index of a case with its documents.
fn world(file: &Value, case: &Value) -> Result<World, String> {
    let named = |key: &str, from: &str| match &case[key] {
        Value::String(name) => file[from][name].clone(),
        Value::Null => file[from]["default"].clone(),
        own => own.clone(),
    };
    let mut world = World::new(&named("index", "indexes")).map_err(|error| error.text)?;
    let documents = named("documents", "datasets");
    let bodies: BTreeMap<String, Vec<u8>> = documents
        .as_object()
        .into_iter()
        .flatten()
        .map(|(id, body)| match body {
            // A text in place of a document is a document that is not JSON.
            Value::String(text) => (id.clone(), text.clone().into_bytes()),
            body => (id.clone(), body.to_string().into_bytes()),
        })
        .collect();
    // Several segments, so that no test depends on a single segment.
    for (key, body) in &bodies {
        match key.split_once('|') {
            // `scope.collection|id`
            Some((place, id)) => {
                let (scope, collection) = place.split_once('.').unwrap();
                world.add_to(scope, collection, [(id, &body[..])], 1);
            }
            None => world.add([(&**key, &body[..])], 1),
        }
    }
    while world.index.merge(1_000_000).map_err(|error| error.text)? {}
    Ok(world)
}

/// Indexes that several cases share, by definition and documents.
type Worlds = BTreeMap<String, Result<World, String>>;

fn check(file: &Value, case: &Value, worlds: &mut Worlds) -> Result<(), String> {
    if let Some(text) = case["analyze"].as_str() {
        let params = match &case["index"] {
            Value::String(name) => file["indexes"][name].clone(),
            own => own.clone(),
        };
        let definition = Definition::parse(&params).map_err(|error| error.text)?;
        let analyzer = case["analyzer"].as_str().unwrap();
        let tokens = definition.analyze(analyzer, text).map_err(|error| error.text)?;
        let found: Vec<Value> = tokens
            .iter()
            .map(|token| match case["tokens"][0] {
                Value::Array(_) => {
                    serde_json::json!([token.term, token.start, token.end, token.position])
                }
                _ => token.term.clone().into(),
            })
            .collect();
        let found = Value::from(found);
        return if found == case["tokens"] { Ok(()) } else { Err(format!("tokens are {found}")) };
    }
    if case.get("definition").is_some() {
        let outcome =
            Definition::parse(&case["definition"]).map(|_| ()).map_err(|error| error.text);
        return match (&case["error"], outcome) {
            (Value::Null, outcome) => outcome,
            (wanted, Err(error)) if *wanted == *error => Ok(()),
            (_, outcome) => Err(format!("the definition gives {outcome:?}")),
        };
    }
    let outcome = match &case["request"] {
        // The text is not JSON.
        Value::String(text) => {
            Request::parse(text.as_bytes()).map(|_| Value::Null).map_err(|error| error.text)
        }
        request => {
            let key = format!("{} {}", case["index"], case["documents"]);
            match worlds.entry(key).or_insert_with(|| world(file, case)) {
                Ok(world) => world.search(request).map_err(|error| error.text),
                Err(error) => Err(error.clone()),
            }
        }
    };
    if let Some(wanted) = case["error"].as_str() {
        return match outcome {
            Err(error) if error == wanted => Ok(()),
            Err(error)
                if wanted.ends_with('…') && error.starts_with(wanted.trim_end_matches('…')) =>
            {
                Ok(())
            }
            other => Err(format!("the outcome is {other:?}")),
        };
    }
    let answer = outcome?;
    if let Some(wanted) = case["ids"].as_array() {
        let mut found = ids(&answer);
        found.sort();
        let mut wanted: Vec<&str> = wanted.iter().map(|id| id.as_str().unwrap()).collect();
        wanted.sort_unstable();
        if found != wanted {
            return Err(format!("hits are {found:?}"));
        }
    }
    if let Some(wanted) = case["order"].as_array() {
        let found = ids(&answer);
        if found != wanted.iter().map(|id| id.as_str().unwrap()).collect::<Vec<_>>() {
            return Err(format!("hits are {found:?}"));
        }
    }
    if !has(&answer, &case["answer"]) && !case["answer"].is_null() {
        return Err(format!("the answer is {answer}"));
    }
    Ok(())
}

#[test]
#[expect(clippy::disallowed_methods, reason = "cases are files")]
fn cases_have_the_documented_results() {
    let only = std::env::var("NACRE_SEARCH_ONLY").unwrap_or_default();
    let (mut run, mut failures) = (0, String::new());
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(directory()).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    for path in paths {
        let text = std::fs::read(&path).unwrap();
        let file: Value = serde_json::from_slice(&text)
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert!(file["source"].is_string(), "{} does not name its source", path.display());
        let mut worlds = Worlds::new();
        let stem = path.file_stem().unwrap().to_string_lossy();
        for case in file["cases"].as_array().unwrap() {
            let name = format!("{stem}/{}", case["name"].as_str().unwrap());
            if !name.contains(&only) {
                continue;
            }
            run += 1;
            if let Err(difference) = check(&file, case, &mut worlds) {
                writeln!(failures, "{name}: {difference}\n  case {case}").unwrap();
            }
        }
    }
    println!("{run} cases");
    assert!(failures.is_empty(), "{failures}");
    assert!(!only.is_empty() || run >= 600, "{run} cases are not all");
}
