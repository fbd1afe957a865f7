//! Cases for analytics: a scope with collections for the run, the analytics collections that follow it, and statements over
//! those.
//!
//! The cases for SQL++ that only read documents run as well, except for those that need the query service.
//!
//! A case that writes documents or defines something is undone for the next case: documents are written again, and the scope of
//! definitions is dropped and created again.

use super::kv::connect;
use super::sqlpp::{CASES as SQLPP, judge};
use super::{Done, Outcome, Target, shorten};
use crate::http::{self, escape};
use crate::kv::frame::invalid;
use crate::kv::{KvClient, Request};
use include_dir::{Dir, include_dir};
use serde::Deserialize;
use serde_json::{Map, Value as Json, json};
use std::collections::{BTreeMap, BTreeSet};
use std::io;

/// The files of cases; those of datasets are in `data`.
static CASES: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/cases/analytics");
const SET: u8 = 0x01;
const DELETE: u8 = 0x04;

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
    /// Documents to write before the statements: by collection and ID, null to delete.
    #[serde(default)]
    writes: BTreeMap<String, BTreeMap<String, Json>>,
    /// Statements that must succeed before.
    #[serde(default)]
    before: Vec<String>,
    statement: String,
    /// Other fields of the request.
    #[serde(default)]
    request: Map<String, Json>,
    #[serde(default)]
    results: Option<Vec<Json>>,
    #[serde(default)]
    ordered: bool,
    #[serde(default)]
    error: Option<judge::ExpectedError>,
    /// The engine that EXPLAIN must report for the query.
    #[serde(default)]
    engine: Option<String>,
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
struct Dataset {
    keyspaces: BTreeMap<String, BTreeMap<String, Json>>,
}

/// Runs the cases for analytics at a port, and passes the outcome of each to `report` as it ends.
pub fn run_analytics(target: &Target, port: u16, report: impl Fn(&Outcome)) -> Vec<Outcome> {
    let mut outcomes = Vec::new();
    let done = &mut |group: &str, name: &str, problem: Option<String>| {
        let outcome = Outcome { group: group.to_owned(), name: name.to_owned(), problem };
        report(&outcome);
        outcomes.push(outcome);
    };
    play(target, port, done);
    play_shared(target, port, done);
    outcomes
}

fn play(target: &Target, port: u16, done: Done<'_>) {
    let mut files: BTreeMap<String, Vec<(String, File)>> = BTreeMap::new();
    for file in CASES.files() {
        let stem = file.path().file_stem().unwrap_or_default().to_string_lossy();
        let group = format!("analytics/{stem}");
        let parsed: File = super::parse(&group, file.contents_utf8().unwrap_or_default());
        files.entry(parsed.dataset.clone()).or_default().push((group, parsed));
    }
    for (name, files) in files {
        let data = dataset(&name);
        let mut stage = None;
        for (group, file) in &files {
            for case in file.cases.iter().filter(|case| target.wants(group, &case.name)) {
                let stage = stage.get_or_insert_with(|| Stage::set(target, port, &name, &data));
                let problem = match stage {
                    Ok(stage) => stage.play(case).err(),
                    Err(error) => Some(format!("the dataset could not be made: {error}")),
                };
                done(group, &case.name, problem);
            }
        }
        if let Some(Ok(stage)) = stage {
            stage.remove();
        }
    }
}

/// The cases for SQL++ that need the query service.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct QueryService {
    #[expect(dead_code, reason = "for readers")]
    about: String,
    groups: Vec<String>,
    words: Vec<String>,
}

impl QueryService {
    fn read() -> QueryService {
        let file = CASES.get_file("data/query_service.json");
        super::parse(
            "query_service",
            file.and_then(|file| file.contents_utf8()).unwrap_or_default(),
        )
    }

    /// Returns true if a case only reads documents, in the language that both services share.
    fn shares(&self, case: &Json) -> bool {
        let statement = case["statement"].as_str().unwrap_or_default().to_uppercase();
        let is_query =
            ["SELECT", "WITH", "FROM", "("].iter().any(|word| statement.starts_with(word));
        let has = |member: &str| case.get(member).is_some();
        is_query
            && has("results")
            && !["before", "then", "context", "libraries"].iter().any(|member| has(member))
            && !self.words.iter().any(|word| statement.contains(&word.to_uppercase()))
    }

    /// Returns the cases that both services share: dataset, group, case.
    fn shared(&self) -> Vec<(String, String, Json)> {
        let mut shared = Vec::new();
        for file in SQLPP.files() {
            let stem = file.path().file_stem().unwrap_or_default().to_string_lossy();
            if self.groups.iter().any(|group| stem.starts_with(group.as_str())) {
                continue;
            }
            let file: Json = super::parse(&stem, file.contents_utf8().unwrap_or_default());
            let dataset = file["dataset"].as_str().unwrap_or_default();
            for case in file["cases"].as_array().into_iter().flatten() {
                if self.shares(case) {
                    let group = format!("analytics/sqlpp_{stem}");
                    shared.push((dataset.to_owned(), group, case.clone()));
                }
            }
        }
        shared.sort_by(|a, b| a.0.cmp(&b.0));
        shared
    }
}

/// Runs the cases for SQL++ that both services share.
fn play_shared(target: &Target, port: u16, done: Done<'_>) {
    let mut shared = QueryService::read().shared();
    shared
        .retain(|(_, group, case)| target.wants(group, case["name"].as_str().unwrap_or_default()));
    for cases in shared.chunk_by(|a, b| a.0 == b.0) {
        let name = &cases[0].0;
        let data = dataset(name);
        let stage = Stage::set(target, port, name, &data);
        for (_, group, case) in cases {
            let problem = match &stage {
                Ok(stage) => stage.play_shared(case).err(),
                Err(error) => Some(format!("the dataset could not be made: {error}")),
            };
            done(group, case["name"].as_str().unwrap_or_default(), problem);
        }
        if let Ok(stage) = stage {
            stage.remove();
        }
    }
}

fn dataset(name: &str) -> Dataset {
    let file = CASES.get_file(format!("data/{name}.json"));
    let file = file.or_else(|| SQLPP.get_file(format!("data/{name}.json")));
    super::parse(name, file.and_then(|file| file.contents_utf8()).unwrap_or_default())
}

/// A scope with the documents of a dataset, and an analytics scope that follows it.
struct Stage<'t> {
    target: &'t Target,
    port: u16,
    data: &'t Dataset,
    /// The name of both scopes.
    scope: String,
    client: KvClient,
    collections: BTreeMap<String, u32>,
}

impl<'t> Stage<'t> {
    fn set(target: &'t Target, port: u16, name: &str, data: &'t Dataset) -> io::Result<Stage<'t>> {
        let scope = format!("analytics_{name}_{}", target.run);
        let client = connect(target)?;
        let mut stage = Stage { target, port, data, scope, client, collections: BTreeMap::new() };
        stage.manage("POST", "", &format!("name={}", stage.scope))?;
        for name in data.keyspaces.keys() {
            let path = format!("/{}/collections", stage.scope);
            stage.manage("POST", &path, &format!("name={name}"))?;
            let id = stage.client.collection_id(&format!("{}.{name}", stage.scope))?;
            stage.collections.insert(name.clone(), id);
        }
        stage.fill(data.keyspaces.keys())?;
        stage.define().map_err(|problem| invalid(&problem))?;
        Ok(stage)
    }

    fn remove(self) {
        // Remains do not disturb other runs, whose scopes have other names.
        let _ = self.run(&format!("DROP ANALYTICS SCOPE `{}` IF EXISTS", self.scope));
        let _ = self.manage("DELETE", &format!("/{}", self.scope), "");
    }

    /// Creates the analytics scope, with a collection for each of the dataset.
    fn define(&self) -> Result<(), String> {
        self.run(&format!("DROP ANALYTICS SCOPE `{}` IF EXISTS", self.scope))?;
        self.run(&format!("CREATE ANALYTICS SCOPE `{}`", self.scope))?;
        for name in self.data.keyspaces.keys() {
            self.run(&format!(
                "CREATE ANALYTICS COLLECTION `{name}` ON `{}`.`{}`.`{name}`",
                self.target.bucket, self.scope
            ))?;
        }
        Ok(())
    }

    fn manage(&self, method: &str, path: &str, form: &str) -> io::Result<()> {
        let path = format!("/pools/default/buckets/{}/scopes{path}", escape(&self.target.bucket));
        let address = format!("{}:{}", self.target.host, self.target.mgmt_port);
        let auth = Some((self.target.user.as_str(), self.target.password.as_str()));
        let kind = "application/x-www-form-urlencoded";
        let answer = http::request(&address, method, &path, auth, kind, form.as_bytes())?;
        match answer.status {
            200..=202 => Ok(()),
            status => Err(invalid(&format!("{method} {path}: {status} {}", answer.text()))),
        }
    }

    /// Restores the documents of the dataset in collections.
    fn fill<'n>(&mut self, names: impl Iterator<Item = &'n String>) -> io::Result<()> {
        let data = self.data;
        for name in names {
            for (id, document) in &data.keyspaces[name] {
                self.write(name, id, document)?;
            }
        }
        Ok(())
    }

    /// Writes a document, or deletes it if it is null.
    fn write(&mut self, collection: &str, id: &str, document: &Json) -> io::Result<()> {
        let number = self.collections.get(collection);
        let number = *number.ok_or_else(|| invalid(&format!("no collection {collection}")))?;
        let request = Request {
            opcode: if document.is_null() { DELETE } else { SET },
            vbid: self.client.vbid(id.as_bytes()),
            key: self.client.wire_key(number, id.as_bytes()),
            extras: if document.is_null() { Vec::new() } else { vec![0; 8] },
            value: if document.is_null() { Vec::new() } else { document.to_string().into_bytes() },
            ..Request::default()
        };
        let reply = self.client.call(&request)?;
        match reply.is_success() {
            true => Ok(()),
            false => Err(invalid(&format!("document {id}: {}", reply.text()))),
        }
    }

    fn play(&mut self, case: &Case) -> Result<(), String> {
        let played = self.writes(case).and_then(|()| self.steps(case));
        let tidied = self.tidy(case);
        played.and(tidied.map_err(|problem| format!("afterwards: {problem}")))
    }

    fn writes(&mut self, case: &Case) -> Result<(), String> {
        for (collection, documents) in &case.writes {
            // Analytics must have the dataset's versions before they are replaced.
            self.run(&format!("SELECT VALUE COUNT(*) FROM `{collection}` c"))?;
            for (id, document) in documents {
                self.write(collection, id, document).map_err(|error| error.to_string())?;
            }
        }
        Ok(())
    }

    fn tidy(&mut self, case: &Case) -> Result<(), String> {
        for (collection, documents) in &case.writes {
            let known: BTreeSet<&String> = self.data.keyspaces[collection].keys().collect();
            for id in documents.iter().filter(|(id, json)| !known.contains(id) && !json.is_null()) {
                self.write(collection, id.0, &Json::Null).map_err(|error| error.to_string())?;
            }
        }
        self.fill(case.writes.keys()).map_err(|error| error.to_string())?;
        let own = case.before.iter().chain([&case.statement]);
        let mut all = own.chain(case.then.iter().map(|step| &step.statement));
        let defines = |text: &String| {
            let word = text.split_whitespace().next().unwrap_or_default();
            let word = word.to_uppercase();
            ["CREATE", "DROP", "ALTER", "CONNECT", "DISCONNECT", "USE"].contains(&word.as_str())
        };
        if all.any(defines) { self.define() } else { Ok(()) }
    }

    fn steps(&self, case: &Case) -> Result<(), String> {
        for statement in &case.before {
            self.run(statement).map_err(|problem| format!("before, {statement}: {problem}"))?;
        }
        let answer = self.ask(&case.statement, &case.request)?;
        match (&case.error, &case.results) {
            (Some(error), _) => judge::has_failed(&answer, error)?,
            (None, Some(results)) => judge::has_rows(&answer, results, case.ordered)?,
            (None, None) if answer["status"] == "success" => {}
            (None, None) => return Err(answer["errors"].to_string()),
        }
        if let Some(engine) = &case.engine {
            let plan = self.ask(&format!("EXPLAIN {}", case.statement), &case.request)?;
            if plan["results"][0]["engine"] != engine.as_str() {
                return Err(format!("it is answered by {}", shorten(&plan["results"].to_string())));
            }
        }
        for step in &case.then {
            let answer = self.ask(&step.statement, &Map::new())?;
            judge::has_rows(&answer, &step.results, step.ordered)
                .map_err(|problem| format!("then, {}: {problem}", step.statement))?;
        }
        Ok(())
    }

    fn play_shared(&self, case: &Json) -> Result<(), String> {
        let mut fields = Map::new();
        if let Some(args) = case.get("args") {
            fields.insert("args".to_owned(), args.clone());
        }
        for (name, value) in case["named"].as_object().into_iter().flatten() {
            fields.insert(format!("${name}"), value.clone());
        }
        let answer = self.ask(case["statement"].as_str().unwrap_or_default(), &fields)?;
        let results = case["results"].as_array().map(Vec::as_slice).unwrap_or_default();
        judge::has_rows(&answer, results, case["ordered"] == true)
    }

    /// Runs a statement that must succeed.
    fn run(&self, statement: &str) -> Result<(), String> {
        let answer = self.ask(statement, &Map::new())?;
        match answer["status"] == "success" {
            true => Ok(()),
            false => Err(format!("{}: {}", answer["errors"], shorten(statement))),
        }
    }

    /// Returns the answer to a statement, in the scope of the dataset unless the request names another one.
    fn ask(&self, statement: &str, fields: &Map<String, Json>) -> Result<Json, String> {
        let filled = |text: &str| {
            text.replace("$SCOPE", &self.scope).replace("$BUCKET", &self.target.bucket)
        };
        let mut request = json!({
            "query_context": format!("default:`{}`", self.scope),
            "scan_consistency": "request_plus",
            "timeout": "60s",
        });
        for (name, value) in fields {
            request[name] = match value {
                Json::String(text) => filled(text).into(),
                other => other.clone(),
            };
        }
        request["statement"] = filled(statement).into();
        let address = format!("{}:{}", self.target.host, self.port);
        let auth = Some((self.target.user.as_str(), self.target.password.as_str()));
        let (path, kind, body) = ("/analytics/service", "application/json", request.to_string());
        http::request(&address, "POST", path, auth, kind, body.as_bytes())
            .and_then(|answer| answer.json())
            .map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_can_be_read_and_names_a_dataset() {
        let (mut count, mut names) = (0, BTreeSet::new());
        for file in CASES.files() {
            let path = file.path().display();
            let parsed: File = serde_json::from_str(file.contents_utf8().unwrap())
                .unwrap_or_else(|error| panic!("{path}: {error}"));
            assert!(!dataset(&parsed.dataset).keyspaces.is_empty(), "{path}");
            for case in &parsed.cases {
                assert!(case.results.is_none() || case.error.is_none(), "{}", case.name);
                assert!(names.insert((path.to_string(), case.name.clone())), "{}", case.name);
            }
            count += parsed.cases.len();
        }
        assert!(count >= CASES_MIN, "{count}");
        let shared = QueryService::read().shared().len();
        assert!(shared >= SHARED_MIN, "{shared}");
    }

    /// Minimum number of cases: fewer mean that files are no longer found.
    const CASES_MIN: usize = 430;
    const SHARED_MIN: usize = 2300;
}
