//! Cases for views: stores documents and a design document, compares queries, and removes both.

use super::fixture::Fixture;
use super::{Target, answer};
use crate::case::{ViewCase, ViewFile};
use crate::http::{Answer, escape};
use crate::kv::frame::invalid;
use serde_json::Value as Json;
use std::io;

pub(super) fn play(target: &Target, group: &str, file: &ViewFile, done: super::Done<'_>) {
    let cases: Vec<&ViewCase> =
        file.cases.iter().filter(|case| target.wants(group, &case.name)).collect();
    if cases.is_empty() {
        return;
    }
    let fixture = Fixture::new(target, group, file);
    let ready = fixture.put();
    for case in cases {
        let outcome = match &ready {
            Ok(()) => play_case(&fixture, case),
            Err(error) => {
                Err(invalid(&format!("the documents or views could not be put: {error}")))
            }
        };
        done(group, &case.name, outcome.unwrap_or_else(|error| Some(error.to_string())));
    }
    // Remains disturb nobody: names and keys belong to this run.
    let _ = fixture.remove();
}

fn play_case(fixture: &Fixture<'_>, case: &ViewCase) -> io::Result<Option<String>> {
    let answer = fixture.prepare(case).and_then(|()| query(fixture, case));
    // Later cases rely on the file's documents and views, whatever the outcome of this one.
    fixture.restore(case)?;
    answer::judge(&case.expect, &fixture.prefix, &answer?)
}

fn query(fixture: &Fixture<'_>, case: &ViewCase) -> io::Result<Answer> {
    let path = path(fixture, case);
    let body = case.body.as_ref().map(Json::to_string).or_else(|| case.body_text.clone());
    let usual = if body.is_some() { "POST" } else { "GET" };
    let method = case.method.as_deref().unwrap_or(usual);
    let body = body.unwrap_or_default().replace("$PREFIX", &fixture.prefix);
    let answer = fixture.http(method, &path, case.anonymous, body.as_bytes());
    if method == "PUT" {
        fixture.http("DELETE", &path, false, &[])?;
    }
    answer
}

fn path(fixture: &Fixture<'_>, case: &ViewCase) -> String {
    let view = case.view.as_deref().unwrap_or_default();
    match &case.path {
        Some(path) => path
            .replace("$BUCKET", &escape(&fixture.target.bucket))
            .replace("$DESIGN", &escape(&fixture.design)),
        None => {
            let (design, params) = (fixture.design_path(), params(fixture, case));
            format!("{design}/_view/{}?{params}", escape(view))
        }
    }
}

/// Returns the parameters, with `stale=false` unless the case sets it, so that stored documents are
/// visible.
fn params(fixture: &Fixture<'_>, case: &ViewCase) -> String {
    let mut params: Vec<(&str, String)> = case
        .params
        .iter()
        .map(|(name, value)| match value {
            Json::String(text) => (name.as_str(), text.replace("$PREFIX", &fixture.prefix)),
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
