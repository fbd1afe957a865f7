//! Cases for views: documents and a design document are put, queries compared, and both removed.

use super::kv::{connect, prefix};
use super::{Target, same_json, shorten};
use crate::case::{Value, ViewCase, ViewFile};
use crate::http::{self, Answer, escape};
use crate::kv::frame::invalid;
use serde_json::{Value as Json, json};
use std::io;
use std::time::{Duration, Instant};

/// How long a new design document may take until it can be queried.
const READY_WITHIN: Duration = Duration::from_secs(10);

pub(super) fn play(
    target: &Target,
    group: &str,
    file: &ViewFile,
    done: &mut dyn FnMut(&str, &str, Option<String>),
) {
    let cases: Vec<&ViewCase> =
        file.cases.iter().filter(|case| target.wants(group, &case.name)).collect();
    if cases.is_empty() {
        return;
    }
    let name = group.replace('/', "_");
    let fixture =
        Fixture { target, prefix: prefix(target, &name), design: format!("{name}_{}", target.run) };
    let ready = fixture.put(file);
    for case in cases {
        let outcome = match &ready {
            Ok(()) => fixture.query(case).and_then(|answer| fixture.judge(case, &answer)),
            Err(error) => {
                Err(invalid(&format!("the documents or views could not be put: {error}")))
            }
        };
        done(group, &case.name, outcome.unwrap_or_else(|error| Some(error.to_string())));
    }
    // What is left behind disturbs nobody: names and keys are this run's own.
    let _ = fixture.remove(file);
}

struct Fixture<'t> {
    target: &'t Target,
    prefix: String,
    design: String,
}

impl Fixture<'_> {
    fn http(&self, method: &str, path: &str, body: &[u8]) -> io::Result<Answer> {
        let address = format!("{}:{}", self.target.host, self.target.views_port);
        let auth = (self.target.user.as_str(), self.target.password.as_str());
        http::request(&address, method, path, Some(auth), "application/json", body)
    }

    fn design_path(&self) -> String {
        format!("/{}/_design/{}", escape(&self.target.bucket), escape(&self.design))
    }

    fn put(&self, file: &ViewFile) -> io::Result<()> {
        let mut client = connect(self.target)?;
        for (key, value) in &file.documents {
            let value = match value {
                Value::Json(json) => json.to_string(),
                Value::Text(text) => text.clone(),
                other => {
                    return Err(invalid(&format!(
                        "documents of views are JSON or text: {other:?}"
                    )));
                }
            };
            let reply = client.set(format!("{}{key}", self.prefix).as_bytes(), value.as_bytes())?;
            if !reply.is_success() {
                return Err(invalid(&format!(
                    "document {key}: {}",
                    crate::names::status_name(reply.status)
                )));
            }
        }
        let design = json!({ "views": file.views }).to_string().replace("$PREFIX", &self.prefix);
        let answer = self.http("PUT", &self.design_path(), design.as_bytes())?;
        if !matches!(answer.status, 200..=202) {
            return Err(invalid(&format!("design document: {} {}", answer.status, answer.text())));
        }
        let Some(view) = file.views.keys().next() else { return Ok(()) };
        let probe = format!("{}/_view/{view}?stale=ok&limit=1", self.design_path());
        let end = Instant::now() + READY_WITHIN;
        while self.http("GET", &probe, &[])?.status == 404 && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }

    fn remove(&self, file: &ViewFile) -> io::Result<()> {
        self.http("DELETE", &self.design_path(), &[])?;
        let mut client = connect(self.target)?;
        for key in file.documents.keys() {
            client.delete(format!("{}{key}", self.prefix).as_bytes(), 0)?;
        }
        Ok(())
    }

    fn query(&self, case: &ViewCase) -> io::Result<Answer> {
        let path =
            format!("{}/_view/{}?{}", self.design_path(), escape(&case.view), self.params(case));
        match &case.body {
            Some(body) => self.http("POST", &path, body.to_string().as_bytes()),
            None => self.http("GET", &path, &[]),
        }
    }

    /// The parameters, with `stale=false` unless the case says otherwise: what was put has to be seen.
    fn params(&self, case: &ViewCase) -> String {
        let mut params: Vec<(&str, String)> = case
            .params
            .iter()
            .map(|(name, value)| match value {
                Json::String(text) => (name.as_str(), text.replace("$PREFIX", &self.prefix)),
                other => (name.as_str(), other.to_string()),
            })
            .collect();
        if !case.params.contains_key("stale") {
            params.push(("stale", "false".to_owned()));
        }
        let pairs: Vec<String> =
            params.iter().map(|(name, value)| format!("{name}={}", escape(value))).collect();
        pairs.join("&")
    }

    fn judge(&self, case: &ViewCase, answer: &Answer) -> io::Result<Option<String>> {
        let expect = &case.expect;
        let wanted = expect.status.unwrap_or(200);
        if answer.status != wanted {
            return Ok(Some(format!(
                "expected {wanted}, got {} {}",
                answer.status,
                shorten(&answer.text())
            )));
        }
        if expect.rows.is_none() && expect.total_rows.is_none() && expect.error.is_none() {
            return Ok(None);
        }
        let body = answer.json()?;
        if let Some(rows) = &expect.rows {
            let wanted: Json = rows.iter().map(|row| self.with_prefix(row)).collect();
            let got = rows_of(&body)?;
            if !same_json(&wanted, &got) {
                return Ok(Some(format!(
                    "expected rows {}, got {}",
                    shorten(&wanted.to_string()),
                    shorten(&got.to_string())
                )));
            }
        }
        if let Some(total) = expect.total_rows
            && body["total_rows"].as_u64() != Some(total)
        {
            return Ok(Some(format!("expected total_rows {total}, got {}", body["total_rows"])));
        }
        if let Some(error) = &expect.error
            && body["error"].as_str() != Some(error)
        {
            return Ok(Some(format!("expected error {error}, got {}", shorten(&body.to_string()))));
        }
        Ok(None)
    }

    /// An expected row as the server gives it: with whole ids, and `$PREFIX` replaced in all text.
    fn with_prefix(&self, row: &Json) -> Json {
        let mut row = self.replace(row);
        if let Some(Json::String(id)) = row.get_mut("id") {
            id.insert_str(0, &self.prefix);
        }
        row
    }

    fn replace(&self, json: &Json) -> Json {
        match json {
            Json::String(text) => Json::from(text.replace("$PREFIX", &self.prefix)),
            Json::Array(elements) => elements.iter().map(|element| self.replace(element)).collect(),
            Json::Object(members) => Json::Object(
                members.iter().map(|(name, value)| (name.clone(), self.replace(value))).collect(),
            ),
            other => other.clone(),
        }
    }
}

/// The rows of an answer, each cut to what cases compare: id, key and value.
fn rows_of(body: &Json) -> io::Result<Json> {
    let rows = body["rows"].as_array().ok_or_else(|| invalid("the answer has no rows"))?;
    let cut = |row: &Json| {
        let members = ["id", "key", "value"].iter();
        let members =
            members.filter_map(|name| Some(((*name).to_owned(), row.get(*name)?.clone())));
        Json::Object(members.collect())
    };
    Ok(rows.iter().map(cut).collect())
}
