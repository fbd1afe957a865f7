//! Cases for SQL++: datasets as collections of the default scope, and statements over them.
//!
//! A dataset is set up once with its indexes and once without; every case is played on both. After a case that may have
//! changed something it is set up anew.

use super::{Target, same_json, shorten};
use crate::http;
use include_dir::{Dir, include_dir};
use serde::Deserialize;
use serde_json::{Map, Value as Json, json};
use std::collections::BTreeMap;
use std::io;

/// The files of cases; those of datasets lie in `data`.
static CASES: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/cases/sqlpp");
/// The bucket whose collections paths in the cases name.
const BUCKET: &str = "default";

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
    before: Vec<String>,
    #[serde(default)]
    results: Option<Vec<Json>>,
    #[serde(default)]
    ordered: bool,
    #[serde(default)]
    error: Option<ExpectedError>,
    #[serde(default)]
    then: Vec<Step>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Step {
    statement: String,
    results: Vec<Json>,
    #[serde(default)]
    ordered: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ExpectedError {
    code: u64,
    #[serde(default)]
    contains: String,
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

/// Plays all cases that the target wants. Their paths name the bucket `default`, so that they are left out on another.
pub(super) fn play(target: &Target, done: &mut impl FnMut(&str, &str, Option<String>)) {
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
        let wanted = |(group, file): &(String, File)| {
            file.cases.iter().any(|case| target.wants(group, &case.name))
        };
        if !files.iter().any(wanted) {
            continue;
        }
        let variants: &[bool] = if data.indexes.is_empty() { &[false] } else { &[false, true] };
        for &with_indexes in variants {
            let mut world = World { target, data: &data, with_indexes, is_fresh: false };
            for (group, file) in &files {
                let group = if with_indexes { format!("{group} (indexed)") } else { group.clone() };
                let cases = file.cases.iter().filter(|case| target.wants(&group, &case.name));
                for case in cases {
                    done(&group, &case.name, world.play(case).err());
                }
            }
            // What cannot be removed is in nobody's way but that of the next run, which says so.
            let _ = world.clear();
        }
    }
}

/// A dataset on the host.
struct World<'a> {
    target: &'a Target,
    data: &'a Dataset,
    with_indexes: bool,
    /// Whether it is as it was set up.
    is_fresh: bool,
}

impl World<'_> {
    fn play(&mut self, case: &Case) -> Result<(), String> {
        if !self.is_fresh {
            self.set_up()?;
        }
        let statements = case.before.iter().chain([&case.statement]);
        let mut all = statements.chain(case.then.iter().map(|step| &step.statement));
        self.is_fresh = all.all(|statement| only_reads(statement));
        for statement in &case.before {
            let answer = self.ask(&json!({"statement": statement}))?;
            if answer["status"] != "success" {
                return Err(format!("before, {statement}: {}", answer["errors"]));
            }
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
        let answer = self.ask(&request)?;
        match (&case.error, &case.results) {
            (Some(error), _) => has_failed(&answer, error)?,
            (None, Some(results)) => has_rows(&answer, results, case.ordered)?,
            (None, None) if answer["status"] == "success" => {}
            (None, None) => return Err(answer["errors"].to_string()),
        }
        for step in &case.then {
            let answer = self.ask(&json!({"statement": step.statement}))?;
            has_rows(&answer, &step.results, step.ordered)
                .map_err(|problem| format!("then, {}: {problem}", step.statement))?;
        }
        Ok(())
    }

    fn ask(&self, request: &Json) -> Result<Json, String> {
        let mut request = request.clone();
        if request.get("query_context").is_none() {
            request["query_context"] = "default:default._default".into();
        }
        request["scan_consistency"] = "request_plus".into();
        let (target, body) = (self.target, request.to_string());
        let address = format!("{}:{}", target.host, target.query_port);
        let auth = Some((target.user.as_str(), target.password.as_str()));
        let (path, json) = ("/query/service", "application/json");
        http::request(&address, "POST", path, auth, json, body.as_bytes())
            .and_then(|answer| answer.json())
            .map_err(|error| error.to_string())
    }

    fn manage(&self, method: &str, path: &str, form: &str) -> io::Result<u16> {
        let target = self.target;
        let address = format!("{}:{}", target.host, target.mgmt_port);
        let path = format!("/pools/default/buckets/{BUCKET}/scopes/_default/collections{path}");
        let auth = Some((target.user.as_str(), target.password.as_str()));
        let kind = "application/x-www-form-urlencoded";
        http::request(&address, method, &path, auth, kind, form.as_bytes())
            .map(|answer| answer.status)
    }

    fn clear(&self) -> Result<(), String> {
        for name in self.data.keyspaces.keys() {
            self.manage("DELETE", &format!("/{name}"), "").map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    fn set_up(&self) -> Result<(), String> {
        self.clear()?;
        let succeeded = |answer: Json| match answer["status"] == "success" {
            true => Ok(()),
            false => Err(format!("set-up: {}", answer["errors"])),
        };
        for (name, documents) in &self.data.keyspaces {
            let form = format!("name={name}");
            let status = self.manage("POST", "", &form).map_err(|error| error.to_string())?;
            if status != 200 {
                return Err(format!("collection {name} cannot be made: {status}"));
            }
            let row = |(id, value): (&String, &Json)| format!("({}, {value})", json!(id));
            let rows: Vec<_> = documents.iter().map(row).collect();
            if !rows.is_empty() {
                let statement =
                    format!("UPSERT INTO `{name}` (KEY, VALUE) VALUES {}", rows.join(", "));
                succeeded(self.ask(&json!({"statement": statement}))?)?;
            }
        }
        for index in self.data.indexes.iter().filter(|_| self.with_indexes) {
            succeeded(self.ask(&json!({"statement": index}))?)?;
        }
        Ok(())
    }
}

/// Whether a statement leaves everything as it is.
fn only_reads(statement: &str) -> bool {
    let first = statement.trim_start().trim_start_matches('(').split_whitespace().next();
    let reads = ["SELECT", "FROM", "WITH", "EXPLAIN", "INFER", "ADVISE", "VALUES"];
    first.is_some_and(|word| reads.iter().any(|read| word.eq_ignore_ascii_case(read)))
}

fn has_failed(answer: &Json, expected: &ExpectedError) -> Result<(), String> {
    let errors = answer["errors"].as_array().cloned().unwrap_or_default();
    let is_expected = |error: &Json| {
        let text = error["msg"].as_str().unwrap_or_default().to_lowercase();
        error["code"] == expected.code && text.contains(&expected.contains.to_lowercase())
    };
    match errors.iter().any(is_expected) {
        true => Ok(()),
        false => {
            Err(format!("expected error {}, got {}", expected.code, shorten(&answer.to_string())))
        }
    }
}

fn has_rows(answer: &Json, expected: &[Json], ordered: bool) -> Result<(), String> {
    if answer["status"] != "success" {
        return Err(answer["errors"].to_string());
    }
    let rows = answer["results"].as_array().map(Vec::as_slice).unwrap_or_default();
    let same = if ordered {
        rows.len() == expected.len() && rows.iter().zip(expected).all(|(a, b)| nearly_same(a, b))
    } else {
        same_bag(rows, expected)
    };
    if same { Ok(()) } else { Err(format!("got {}", shorten(&answer["results"].to_string()))) }
}

fn same_bag(rows: &[Json], expected: &[Json]) -> bool {
    let mut left: Vec<&Json> = rows.iter().collect();
    expected.iter().all(|wanted| {
        let found = left.iter().position(|row| nearly_same(row, wanted));
        found.map(|at| left.swap_remove(at)).is_some()
    }) && left.is_empty()
}

/// As [`same_json`], but that numbers which are no integers need only be nearly the same.
fn nearly_same(a: &Json, b: &Json) -> bool {
    match (a, b) {
        (Json::Number(x), Json::Number(y)) => {
            let (x, y) = (x.as_f64().unwrap_or(f64::NAN), y.as_f64().unwrap_or(f64::NAN));
            let is_whole = x.fract() == 0.0 && y.fract() == 0.0;
            same_json(a, b) || !is_whole && (x - y).abs() <= 1e-9 * x.abs().max(y.abs())
        }
        (Json::Array(a), Json::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| nearly_same(a, b))
        }
        (Json::Object(a), Json::Object(b)) => {
            a.len() == b.len()
                && a.iter().all(|(name, a)| b.get(name).is_some_and(|b| nearly_same(a, b)))
        }
        _ => a == b,
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
        assert!(count >= 1200, "{count}");
    }

    #[test]
    fn rows_are_bags_of_nearly_the_same_values() {
        assert!(same_bag(&[json!(1), json!(0.1)], &[json!(0.100_000_000_000_01), json!(1.0)]));
        assert!(!same_bag(&[json!(1), json!(1)], &[json!(1), json!(2)]));
        assert!(!same_bag(&[json!(1)], &[]));
        assert!(!nearly_same(&json!({"a": 1}), &json!({"a": 1, "b": null})));
    }

    #[test]
    fn statements_that_change_something_are_known() {
        assert!(only_reads("  (SELECT 1)") && only_reads("from a select b"));
        assert!(!only_reads("UPDATE a SET b = 1") && !only_reads("PREPARE p AS SELECT 1"));
    }
}
