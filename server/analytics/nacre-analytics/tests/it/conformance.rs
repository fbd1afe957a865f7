//! Runs the project's cases for SQL++ and for analytics that only read documents, over columns and document by document: both must
//! return the expected rows.

use crate::world::{Answer, World};
use nacre_sql::Value;
use serde_json::Value as Json;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Minimum number of cases: fewer mean that cases are no longer found.
const CASES_MIN: usize = 2000;
/// Minimum number of cases with a plan over columns.
const PLANNED_MIN: usize = 200;
/// Minimum number of cases for analytics that need no service.
const ALONE_MIN: usize = 300;

fn cases() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../conformance/cases")
}

fn folder() -> PathBuf {
    cases().join("sqlpp")
}

fn read(path: &std::path::Path) -> Json {
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{path:?}: {error}"))
}

fn value(json: &Json) -> Value {
    Value::parse(json.to_string().as_bytes()).unwrap()
}

/// Returns the files of cases in a folder, in order.
fn files(folder: PathBuf) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{folder:?}: {error}"));
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
        .collect();
    files.sort();
    files
}

fn world(name: &str) -> World {
    let data = read(&folder().join(format!("data/{name}.json")));
    let of = |documents: &Json| -> Vec<(String, String)> {
        let documents = documents.as_object().unwrap().iter();
        documents.map(|(id, document)| (id.clone(), document.to_string())).collect()
    };
    let keyspaces = data["keyspaces"].as_object().unwrap().iter();
    let collections: Vec<(&str, _)> =
        keyspaces.map(|(name, documents)| (name.as_str(), of(documents))).collect();
    World::with_ids(&collections)
}

fn texts(list: &Json) -> impl Iterator<Item = &str> {
    list.as_array().unwrap().iter().map(|text| text.as_str().unwrap())
}

/// Returns true if a case only reads documents, in the language that analytics shares with the query service.
fn is_shared(case: &Json, others: &Json) -> bool {
    let statement = case["statement"].as_str().unwrap().to_uppercase();
    let is_query = ["SELECT", "WITH", "FROM", "("].iter().any(|word| statement.starts_with(word));
    let has = |member: &str| case.get(member).is_some();
    is_query
        && has("results")
        && !["before", "then", "context", "libraries"].iter().any(|member| has(member))
        && !texts(&others["words"]).any(|word| statement.contains(&word.to_uppercase()))
}

/// Returns true if both values are equal; numbers that are not integers need only be nearly equal.
fn same(a: &Json, b: &Json) -> bool {
    match (a, b) {
        (Json::Number(a), Json::Number(b)) => {
            let (x, y) = (a.as_f64().unwrap(), b.as_f64().unwrap());
            a == b || x == y || x.fract() != 0.0 && (x - y).abs() <= 1e-9 * x.abs().max(y.abs())
        }
        (Json::Array(a), Json::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b))
        }
        (Json::Object(a), Json::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(name, a)| b.get(name).is_some_and(|b| same(a, b)))
        }
        _ => a == b,
    }
}

fn has_rows(rows: &[String], case: &Json) -> bool {
    let rows: Vec<Json> = rows.iter().map(|row| serde_json::from_str(row).unwrap()).collect();
    let expected = case["results"].as_array().unwrap();
    if case["ordered"] == true {
        return rows.len() == expected.len() && rows.iter().zip(expected).all(|(a, b)| same(a, b));
    }
    let mut left: Vec<&Json> = rows.iter().collect();
    expected.iter().all(|wanted| {
        let found = left.iter().position(|row| same(row, wanted));
        found.map(|at| left.swap_remove(at)).is_some()
    }) && left.is_empty()
}

#[test]
fn cases_of_the_language_have_the_same_rows_in_analytics() {
    let others = read(&cases().join("analytics/data/query_service.json"));
    let mut worlds: BTreeMap<String, World> = BTreeMap::new();
    let (mut asked, mut planned, mut wrong) = (0, 0, Vec::new());
    for path in files(folder()) {
        let group = path.file_stem().unwrap().to_string_lossy().into_owned();
        if texts(&others["groups"]).any(|other| group.starts_with(other)) {
            continue;
        }
        let file = read(&path);
        let dataset = file["dataset"].as_str().unwrap();
        let world = worlds.entry(dataset.to_owned()).or_insert_with(|| world(dataset));
        for case in file["cases"].as_array().unwrap().iter().filter(|case| is_shared(case, &others))
        {
            let statement = case["statement"].as_str().unwrap();
            let args = case["args"].as_array().map(|args| args.iter().map(value).collect());
            let named = case["named"].as_object().into_iter().flatten();
            let named = named.map(|(name, json)| (name.as_str().into(), value(json))).collect();
            world.set_parameters(args.unwrap_or_default(), named);
            asked += 1;
            let place = format!("{group}/{}: {statement}", case["name"].as_str().unwrap());
            match world.rows(statement) {
                Ok(rows) if has_rows(&rows, case) => {}
                Ok(rows) => wrong.push(format!("{place}\n    document by document {rows:?}")),
                Err(error) => wrong.push(format!("{place}\n    document by document {error}")),
            }
            match world.columns(statement) {
                Ok(Answer::Rows(rows)) => {
                    planned += 1;
                    if !has_rows(&rows, case) {
                        wrong.push(format!("{place}\n    over columns {rows:?}"));
                    }
                }
                Ok(Answer::NoPlan(_)) => {}
                Err(error) => wrong.push(format!("{place}\n    over columns {error}")),
            }
        }
    }
    println!("{asked} cases, {planned} of them over columns");
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
    assert!(asked >= CASES_MIN && planned >= PLANNED_MIN, "{asked} cases, {planned} with a plan");
}

/// Returns true if a case for analytics needs only documents and parameters: a query without definitions or other requests.
fn needs_no_service(case: &Json) -> bool {
    let statement = case["statement"].as_str().unwrap();
    let has = |member: &str| case.get(member).is_some();
    let mut fields = case["request"].as_object().into_iter().flatten();
    ["SELECT", "WITH"].iter().any(|word| statement.starts_with(word))
        && (has("results") || has("error"))
        && !["before", "writes", "then"].iter().any(|member| has(member))
        && ![";", "$SCOPE", "Metadata"].iter().any(|part| statement.contains(part))
        && fields.all(|(name, json)| name == "args" && json.is_array() || name.starts_with('$'))
}

/// Returns the differences between a case for analytics and both ways to answer it.
fn differences(world: &World, case: &Json) -> Vec<String> {
    let statement = case["statement"].as_str().unwrap();
    let mut found = Vec::new();
    let expected_code = case["error"]["code"].as_u64();
    match (world.rows(statement), expected_code) {
        (Ok(rows), None) if has_rows(&rows, case) => {}
        (Err(error), Some(code)) if u64::from(error.code) == code => {}
        (outcome, _) => found.push(format!("document by document {outcome:?}")),
    }
    let engine = match world.columns(statement) {
        Ok(Answer::Rows(rows)) => {
            if expected_code.is_some() || !has_rows(&rows, case) {
                found.push(format!("over columns {rows:?}"));
            }
            "columns"
        }
        Ok(Answer::NoPlan(_)) => "rows",
        Err(error) => {
            if expected_code.is_none() {
                found.push(format!("over columns {error}"));
            }
            "none"
        }
    };
    if case["engine"].as_str().is_some_and(|expected| expected != engine) {
        found.push(format!("answered by {engine}"));
    }
    found
}

#[test]
fn cases_for_analytics_have_their_rows_without_a_service() {
    let mut worlds: BTreeMap<String, World> = BTreeMap::new();
    let (mut asked, mut wrong) = (0, Vec::new());
    for path in files(cases().join("analytics")) {
        let file = read(&path);
        let dataset = file["dataset"].as_str().unwrap();
        let world = worlds.entry(dataset.to_owned()).or_insert_with(|| world(dataset));
        for case in file["cases"].as_array().unwrap().iter().filter(|case| needs_no_service(case)) {
            let (mut args, mut named) = (Vec::new(), BTreeMap::new());
            for (name, json) in case["request"].as_object().into_iter().flatten() {
                match name.strip_prefix('$') {
                    Some(name) => drop(named.insert(name.into(), value(json))),
                    None => args.extend(json.as_array().unwrap().iter().map(value)),
                }
            }
            world.set_parameters(args, named);
            asked += 1;
            let group = path.file_stem().unwrap().display();
            wrong.extend(differences(world, case).into_iter().map(|difference| {
                format!("{group}/{}: {}\n    {difference}", case["name"], case["statement"])
            }));
        }
    }
    println!("{asked} cases for analytics");
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
    assert!(asked >= ALONE_MIN, "{asked} cases");
}
