//! Cases for SQL++: datasets as collections of the default scope, and statements over them.
//!
//! Every case runs first without and then with the indexes of its dataset. After a case that may have changed
//! something, the dataset is restored ([`world::World::tidy`]).

mod effect;
pub(super) mod judge;
mod world;

use super::Target;
use effect::Effect;
use include_dir::{Dir, include_dir};
use serde::Deserialize;
use serde_json::{Map, Value as Json, json};
use std::collections::BTreeMap;
use world::World;

/// The files of cases; those of datasets are in `data`.
pub(super) static CASES: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/cases/sqlpp");
/// The bucket that the paths in the cases name. On another bucket, the cases are skipped.
pub const BUCKET: &str = "default";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[expect(dead_code, reason = "for readers")]
    about: String,
    #[expect(dead_code, reason = "for readers")]
    source: String,
    dataset: String,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    #[serde(default)]
    #[expect(dead_code, reason = "for readers")]
    source: Option<String>,
    statement: String,
    #[serde(default)]
    args: Option<Json>,
    #[serde(default)]
    named: BTreeMap<String, Json>,
    #[serde(default)]
    context: Option<String>,
    #[serde(default)]
    libraries: BTreeMap<String, String>,
    #[serde(default)]
    before: Vec<String>,
    #[serde(default)]
    results: Option<Vec<Json>>,
    #[serde(default)]
    ordered: bool,
    #[serde(default)]
    members: BTreeMap<String, Json>,
    #[serde(default)]
    error: Option<judge::ExpectedError>,
    #[serde(default)]
    then: Vec<Step>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Step {
    statement: String,
    #[serde(default)]
    results: Option<Vec<Json>>,
    #[serde(default)]
    ordered: bool,
    #[serde(default)]
    members: BTreeMap<String, Json>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Dataset {
    #[expect(dead_code, reason = "for readers")]
    about: String,
    keyspaces: BTreeMap<String, Map<String, Json>>,
    #[serde(default)]
    indexes: Vec<String>,
}

/// Runs all selected cases on their bucket.
pub(super) fn play(target: &Target, done: super::Done<'_>) {
    if target.bucket != BUCKET {
        return;
    }
    let mut files: BTreeMap<String, Vec<(String, File)>> = BTreeMap::new();
    for file in CASES.files() {
        let stem = file.path().file_stem().unwrap_or_default().to_string_lossy();
        let group = format!("sqlpp/{stem}");
        let parsed: File = super::parse(&group, file.contents_utf8().unwrap_or_default());
        files.entry(parsed.dataset.clone()).or_default().push((group, parsed));
    }
    for (name, files) in files {
        let data = CASES.get_file(format!("data/{name}.json"));
        let data: Dataset =
            super::parse(&name, data.and_then(|file| file.contents_utf8()).unwrap_or_default());
        let mut world = None;
        let variants: &[bool] = if data.indexes.is_empty() { &[false] } else { &[false, true] };
        for &with_indexes in variants {
            for (group, file) in &files {
                let group = if with_indexes { format!("{group} (indexed)") } else { group.clone() };
                for case in file.cases.iter().filter(|case| target.wants(&group, &case.name)) {
                    let world = world.get_or_insert_with(|| World::new(target, &data));
                    done(&group, &case.name, play_case(world, case, with_indexes).err());
                }
            }
        }
    }
}

fn play_case(world: &mut World<'_>, case: &Case, with_indexes: bool) -> Result<(), String> {
    world.make_ready(with_indexes)?;
    let played = world.put_libraries(&case.libraries).and_then(|()| play_steps(world, case));
    world.remove_libraries(&case.libraries)?;
    let effect = Effect::of(case.statements());
    let tidied = world.tidy(&effect);
    played.and(tidied.map_err(|problem| format!("afterwards: {problem}")))
}

fn play_steps(world: &World<'_>, case: &Case) -> Result<(), String> {
    for statement in &case.before {
        world.run(statement).map_err(|problem| format!("before, {statement}: {problem}"))?;
    }
    let mut request = json!({"statement": case.statement});
    if let Some(args) = &case.args {
        request["args"] = args.clone();
    }
    for (name, value) in &case.named {
        request[format!("${name}")] = value.clone();
    }
    if let Some(context) = &case.context {
        request["query_context"] = context.as_str().into();
    }
    let answer = world.ask(&request)?;
    match (&case.error, &case.results) {
        (Some(error), _) => judge::has_failed(&answer, error)?,
        (None, Some(results)) => judge::has_rows(&answer, results, case.ordered)?,
        (None, None) if answer["status"] == "success" => {}
        (None, None) => return Err(answer["errors"].to_string()),
    }
    judge::has_members(&answer, &case.members)?;
    for step in &case.then {
        let answer = world.ask(&json!({"statement": step.statement}))?;
        let rows = step.results.iter();
        let mut judged = rows.map(|rows| judge::has_rows(&answer, rows, step.ordered));
        judged
            .try_for_each(|judged| judged)
            .and_then(|()| judge::has_members(&answer, &step.members))
            .map_err(|problem| format!("then, {}: {problem}", step.statement))?;
    }
    Ok(())
}

impl Case {
    /// Returns all statements that the host runs.
    fn statements(&self) -> impl Iterator<Item = &str> {
        let own = self.before.iter().chain([&self.statement]);
        own.chain(self.then.iter().map(|step| &step.statement)).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_can_be_read_and_names_a_dataset() {
        let mut count = 0;
        for file in CASES.files() {
            let text = file.contents_utf8().unwrap();
            let parsed: File = serde_json::from_str(text)
                .unwrap_or_else(|error| panic!("{}: {error}", file.path().display()));
            assert!(CASES.get_file(format!("data/{}.json", parsed.dataset)).is_some());
            count += parsed.cases.len();
        }
        assert!(count >= 2600, "{count}");
    }
}
