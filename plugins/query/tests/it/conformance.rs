//! Runs each conformance case of SQL++ twice: with the indexes of its dataset, and without indexes.
//!
//! `NACRE_SQLPP_CASES` sets another directory of cases; `NACRE_SQLPP_ONLY` selects cases by a part of
//! their names.

use crate::world::World;
use nacre_sql::Value;
use std::fmt::Write;
use std::path::{Path, PathBuf};

fn directory() -> PathBuf {
    let own = || PathBuf::from("../../conformance/cases/sqlpp");
    std::env::var_os("NACRE_SQLPP_CASES").map_or_else(own, PathBuf::from)
}

#[expect(clippy::disallowed_methods, reason = "cases are files")]
fn read(path: &Path) -> Value {
    let text = std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    Value::parse(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns the world of a dataset.
fn world(dataset: &Value, with_indexes: bool) -> World {
    let world = World::new();
    for (name, documents) in dataset.field("keyspaces").as_object().unwrap() {
        let documents = documents.as_object().unwrap();
        world.add(name, documents.iter().map(|(id, value)| (&**id, value.clone())));
    }
    if with_indexes {
        for index in dataset.field("indexes").as_array().unwrap_or_default() {
            world.query(index.as_str().unwrap()).unwrap();
        }
    }
    world
}

fn run(world: &World, case: &Value, step: &Value) -> nacre_sql::Result<Vec<Value>> {
    let mut request = World::request(step.field("statement").as_str().unwrap());
    if let Some(context) = case.field("context").as_str() {
        let other = nacre_query::Request::from_pairs([("query_context", context)]).unwrap();
        request.settings.context = other.settings.context;
    }
    request.settings.positional = step.field("args").as_array().unwrap_or_default().to_vec();
    for (name, value) in step.field("named").as_object().into_iter().flatten() {
        request.settings.named.insert(name.clone(), value.clone());
    }
    let rows = world.run(request)?;
    // Clients see JSON, in which some numbers are text.
    Ok(rows.iter().map(|row| Value::parse(row.to_json().as_bytes()).unwrap()).collect())
}

/// Returns true if two results are equal; fractional numbers may differ slightly.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b.iter()).all(|(a, b)| same(a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(name, a)| b.get(name).is_some_and(|b| same(a, b)))
        }
        _ => match (a.as_f64(), b.as_f64()) {
            (Some(x), Some(y)) if x.fract() != 0.0 || y.fract() != 0.0 => {
                (x - y).abs() <= 1e-9 * x.abs().max(y.abs())
            }
            _ => a == b && a.is_missing() == b.is_missing(),
        },
    }
}

fn same_rows(rows: &[Value], wanted: &[Value], ordered: bool) -> bool {
    if rows.len() != wanted.len() {
        return false;
    }
    if ordered {
        return rows.iter().zip(wanted).all(|(row, wanted)| same(row, wanted));
    }
    let mut left: Vec<&Value> = rows.iter().collect();
    wanted.iter().all(|wanted| {
        let found = left.iter().position(|row| same(row, wanted));
        found.map(|at| left.swap_remove(at)).is_some()
    })
}

fn check(result: nacre_sql::Result<Vec<Value>>, expected: &Value) -> Result<(), String> {
    let error = expected.field("error");
    match result {
        Err(found) if error.is_missing() => Err(format!("refused: {found}")),
        Err(found) => {
            let code = error.field("code").as_i64();
            let text = error.field("contains");
            let contains = text
                .as_str()
                .is_none_or(|text| found.message.to_lowercase().contains(&text.to_lowercase()));
            let fits = code.is_none_or(|code| code == i64::from(found.code)) && contains;
            if fits { Ok(()) } else { Err(format!("wanted the error {error}, got {found}")) }
        }
        Ok(rows) if !error.is_missing() => {
            Err(format!("wanted the error {error}, got {}", Value::array(rows)))
        }
        Ok(rows) => {
            has_members(&rows, &expected.field("members"))?;
            let wanted = expected.field("results");
            let ordered = expected.field("ordered").truth();
            match wanted.as_array() {
                Some(wanted) if !same_rows(&rows, wanted, ordered) => Err(format!(
                    "wanted {}\n    got    {}",
                    Value::array(wanted.to_vec()),
                    Value::array(rows)
                )),
                _ => Ok(()),
            }
        }
    }
}

/// Checks that rows have members, each identified by the path of numbers and names that leads to it.
fn has_members(rows: &[Value], expected: &Value) -> Result<(), String> {
    for (path, wanted) in expected.as_object().into_iter().flatten() {
        let found = path.split('.').fold(Value::array(rows.to_vec()), |value, step| {
            match (value.as_array(), step.parse::<usize>()) {
                (Some(elements), Ok(at)) => elements.get(at).cloned().unwrap_or_default(),
                _ => value.field(step),
            }
        });
        let has = match wanted.field("$type").as_str() {
            Some(wanted) => found.type_name() == wanted,
            None => same(&found, wanted) || *wanted == Value::Null && found.is_missing(),
        };
        if !has {
            return Err(format!("wanted {path} to be {wanted}, got {found}"));
        }
    }
    Ok(())
}

fn play(case: &Value, dataset: &Value, with_indexes: bool) -> Result<(), String> {
    let world = world(dataset, with_indexes);
    for (name, code) in case.field("libraries").as_object().into_iter().flatten() {
        let code = code.as_str().unwrap().to_owned();
        world.libraries.borrow_mut().insert(name.to_string(), code);
    }
    for before in case.field("before").as_array().unwrap_or_default() {
        let step = Value::object([("statement", before.clone())]);
        run(&world, case, &step).map_err(|error| format!("before, {before}: {error}"))?;
    }
    check(run(&world, case, case), case)?;
    for then in case.field("then").as_array().unwrap_or_default() {
        check(run(&world, case, then), then)
            .map_err(|what| format!("then, {}: {what}", then.field("statement")))?;
    }
    Ok(())
}

#[test]
fn cases_have_the_same_answers_with_and_without_indexes() {
    let only = std::env::var("NACRE_SQLPP_ONLY").unwrap_or_default();
    let directory = directory();
    let mut files: Vec<PathBuf> = directory
        .read_dir()
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_file())
        .collect();
    files.sort();
    let (mut count, mut failures, mut report) = (0, 0, String::new());
    for path in files {
        let file = read(&path);
        let name = file.field("dataset");
        let dataset = read(&directory.join(format!("data/{}.json", name.as_str().unwrap())));
        for case in file.field("cases").as_array().unwrap() {
            let title = format!(
                "{}/{}",
                path.file_stem().unwrap().to_string_lossy(),
                case.field("name").as_str().unwrap()
            );
            if !title.contains(&only) {
                continue;
            }
            for with_indexes in [true, false] {
                count += 1;
                if let Err(what) = play(case, &dataset, with_indexes) {
                    failures += 1;
                    let how = if with_indexes { "with indexes" } else { "without indexes" };
                    writeln!(
                        report,
                        "{title} ({how})\n    {}\n    {what}",
                        case.field("statement")
                    )
                    .unwrap();
                }
            }
        }
    }
    assert!(failures == 0 && count > 0, "{failures} of {count} runs failed\n{report}");
}
