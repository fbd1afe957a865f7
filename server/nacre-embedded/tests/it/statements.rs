//! The conformance cases of SQL++ that only read documents, in the process. What needs an index, a catalog or a definition is left out.

use crate::by_hand;
use nacre::{Db, QueryOptions, Write};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

const FOLDER: &str = "../../conformance/cases/sqlpp";
/// Files about catalogs, other services, and functions of a node.
const OF_NODES: &[&str] = &["advise", "catalogs", "curl", "functions_service", "search"];
/// Members of a case that only reads.
const MEMBERS: &[&str] = &["name", "source", "statement", "results", "args", "named", "ordered"];
/// Least number of cases, so that a filter that selects nothing is noticed.
const CASES_MIN: usize = 2300;

fn read(path: &Path) -> Value {
    let text = std::fs::read_to_string(path).unwrap();
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns a database with the documents of a dataset.
fn dataset(name: &str) -> Db {
    let data = read(&Path::new(FOLDER).join(format!("data/{name}.json")));
    let db = Db::open_with(":memory:", by_hand()).unwrap();
    for (name, documents) in data["keyspaces"].as_object().unwrap() {
        let collection = db.collection(name).unwrap();
        for (id, body) in documents.as_object().unwrap() {
            collection.upsert(id, body.to_string().as_bytes(), Write::new()).unwrap();
        }
    }
    db
}

fn only_reads(case: &Value) -> bool {
    let case = case.as_object().unwrap();
    let statement = case["statement"].as_str().unwrap().to_uppercase();
    let is_query = ["SELECT", "WITH"].iter().any(|word| statement.starts_with(word));
    let is_known = case.keys().all(|member| MEMBERS.contains(&member.as_str()));
    is_query && is_known && case.contains_key("results") && !statement.contains("SYSTEM:")
}

/// Returns true if two values are equal; numbers may differ by the last digits.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(x), Value::Number(y)) => {
            let (x, y) = (x.as_f64().unwrap(), y.as_f64().unwrap());
            (x - y).abs() <= 1e-9 * x.abs().max(y.abs())
        }
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(name, a)| b.get(name).is_some_and(|b| same(a, b)))
        }
        _ => a == b,
    }
}

fn same_rows(rows: &[Value], expected: &[Value], is_ordered: bool) -> bool {
    if is_ordered || rows.len() != expected.len() {
        return rows.len() == expected.len() && rows.iter().zip(expected).all(|(a, b)| same(a, b));
    }
    let mut left: Vec<&Value> = rows.iter().collect();
    expected.iter().all(|row| {
        let found = left.iter().position(|other| same(other, row));
        found.map(|at| left.swap_remove(at)).is_some()
    })
}

fn play(db: &Db, case: &Value) -> Result<(), String> {
    let mut options = QueryOptions::new();
    for argument in case["args"].as_array().into_iter().flatten() {
        options = options.argument(argument.to_string());
    }
    for (name, argument) in case["named"].as_object().into_iter().flatten() {
        options = options.named(name, argument.to_string());
    }
    let result = db.query(case["statement"].as_str().unwrap(), &options);
    let rows = result.map_err(|error| error.to_string())?.rows;
    let rows: Vec<Value> = rows.iter().map(|row| serde_json::from_str(row).unwrap()).collect();
    let is_ordered = case["ordered"].as_bool().unwrap_or_default();
    match same_rows(&rows, case["results"].as_array().unwrap(), is_ordered) {
        true => Ok(()),
        false => Err(format!("got {}", Value::Array(rows))),
    }
}

#[test]
fn statements_have_the_results_of_a_node() {
    let mut datasets = BTreeMap::new();
    let (mut count, mut failures) = (0, Vec::new());
    for entry in Path::new(FOLDER).read_dir().unwrap() {
        let path = entry.unwrap().path();
        let group = path.file_stem().unwrap().to_string_lossy().into_owned();
        if path.is_dir() || OF_NODES.contains(&group.as_str()) {
            continue;
        }
        let file = read(&path);
        let name = file["dataset"].as_str().unwrap().to_owned();
        let db = datasets.entry(name.clone()).or_insert_with(|| dataset(&name));
        for case in file["cases"].as_array().unwrap().iter().filter(|case| only_reads(case)) {
            count += 1;
            if let Err(problem) = play(db, case) {
                failures.push(format!("{group}/{}: {problem}", case["name"]));
            }
        }
    }
    assert!(failures.is_empty(), "{} of {count}:\n{}", failures.len(), failures.join("\n"));
    assert!(count >= CASES_MIN, "{count} cases");
}
