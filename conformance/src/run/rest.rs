//! Cases for HTTP: sequences of requests, each with a pattern for its answer.

use super::sqlpp::judge::type_of;
use super::{Target, same_json, shorten};
use crate::case::{RestCase, RestExpect, RestFile, RestLogin, RestPort, RestStep};
use crate::http::{self, Answer, escape};
use crate::kv::frame::invalid;
use serde_json::{Map, Value as Json};
use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};

/// The pause before a step is repeated.
const PAUSE: Duration = Duration::from_millis(100);
/// Time limit for an answer: adding a node or a failover takes seconds.
const PATIENCE: Duration = Duration::from_secs(120);
/// Members of an object that make it a pattern.
const PATTERNS: [&str; 8] =
    ["$type", "$absent", "$contains", "$one_of", "$not", "$count", "$at_least", "$exactly"];

/// Runs the cases of a file. A case that needs unclaimed nodes takes them from `fresh`.
pub(super) fn play(
    target: &Target,
    group: &str,
    file: &RestFile,
    fresh: &mut Vec<u16>,
    done: super::Done<'_>,
) {
    let wanted = file.cases.iter().filter(|case| target.wants(group, &case.name));
    for case in wanted.filter(|case| case.fresh == 0 || !target.fresh_ports.is_empty()) {
        let problem = if fresh.len() < case.fresh {
            Some(format!("it needs {} unclaimed nodes, {} are left", case.fresh, fresh.len()))
        } else {
            let nodes = fresh.drain(..case.fresh).collect();
            Play::new(target, case, nodes).case(case)
        };
        done(group, &case.name, problem);
    }
}

/// Checks that every member of a pattern that begins with `$` is known.
///
/// # Errors
/// The name of the first unknown member.
pub fn patterns_are_known(expect: &RestExpect) -> Result<(), String> {
    let patterns = expect.json.iter().chain(&expect.text).chain(expect.headers.values());
    patterns.into_iter().try_for_each(check_pattern)
}

fn check_pattern(pattern: &Json) -> Result<(), String> {
    match pattern {
        Json::Array(items) => items.iter().try_for_each(check_pattern),
        Json::Object(members) => members.iter().try_for_each(|(name, value)| {
            let is_name = |name: &str| name.starts_with('$') && !name.starts_with("${");
            if is_name(name) && !(PATTERNS.contains(&name.as_str()) && members.len() == 1) {
                return Err(format!("{name} is not a pattern by itself"));
            }
            check_pattern(value)
        }),
        _ => Ok(()),
    }
}

/// A running case.
struct Play<'t> {
    target: &'t Target,
    /// Management ports of the unclaimed nodes.
    nodes: Vec<u16>,
    variables: BTreeMap<String, String>,
}

impl<'t> Play<'t> {
    fn new(target: &'t Target, case: &RestCase, nodes: Vec<u16>) -> Play<'t> {
        let mut variables = BTreeMap::new();
        // Bucket names may have 100 characters, user names 128, and no test needs a readable one.
        let mark = case
            .name
            .bytes()
            .fold(0u32, |mark, byte| mark.wrapping_mul(31).wrapping_add(u32::from(byte)));
        let mut set = |name: &str, value: String| variables.insert(name.to_owned(), value);
        set("RUN", format!("r{}x{mark:x}", target.run));
        set("BUCKET", target.bucket.clone());
        set("USER", target.user.clone());
        set("PASSWORD", target.password.clone());
        set("HOST", target.host.clone());
        set("MGMT", target.mgmt_port.to_string());
        for (index, port) in nodes.iter().enumerate() {
            set(&format!("MGMT{}", index + 1), port.to_string());
        }
        Play { target, nodes, variables }
    }

    /// Runs the steps, then cleans up; returns the first problem.
    fn case(&mut self, case: &RestCase) -> Option<String> {
        let mut problem = None;
        for (index, step) in case.steps.iter().enumerate() {
            let outcome = self.step(step).unwrap_or_else(|error| Some(error.to_string()));
            if let Some(text) = outcome {
                problem = Some(format!("step {} {} {}: {text}", index + 1, step.method, step.path));
                break;
            }
        }
        for step in &case.finally {
            // A step that finds nothing to remove has succeeded, too.
            let _ = self.request(step);
        }
        problem
    }

    fn step(&mut self, step: &RestStep) -> io::Result<Option<String>> {
        let end = Instant::now() + Duration::from_millis(step.eventually_ms.unwrap_or_default());
        loop {
            let answer = self.request(step)?;
            match self.judge(&step.expect, &answer) {
                None => return self.capture(step, &answer).map(|()| None),
                Some(_) if Instant::now() < end => std::thread::sleep(PAUSE),
                Some(problem) => return Ok(Some(problem)),
            }
        }
    }

    fn request(&self, step: &RestStep) -> io::Result<Answer> {
        let target = self.target;
        let port = match (step.node, step.port) {
            (0, RestPort::Mgmt) => target.mgmt_port,
            (0, RestPort::Views) => target.views_port,
            (0, RestPort::Query) => target.query_port,
            (0, RestPort::Eventing) => target.eventing_port,
            (node, _) => self.nodes[node - 1],
        };
        let login = match &step.login {
            None => Some((target.user.clone(), target.password.clone())),
            Some(RestLogin::Name(_)) => None,
            Some(RestLogin::User { user, password }) => {
                Some((self.filled(user), self.filled(password)))
            }
        };
        let (content_type, body) = match (&step.form, &step.json, &step.text) {
            (Some(form), ..) => ("application/x-www-form-urlencoded", self.form(form)?),
            (_, Some(json), _) => ("application/json", self.filled_json(json).to_string()),
            (.., Some(text)) => {
                (step.content_type.as_deref().unwrap_or("text/plain"), self.filled(text))
            }
            _ => ("", String::new()),
        };
        let address = format!("{}:{port}", target.host);
        let login = login.as_ref().map(|(user, password)| (user.as_str(), password.as_str()));
        let path = self.filled(&step.path);
        let body = body.as_bytes();
        http::request_within(PATIENCE, &address, &step.method, &path, login, content_type, body)
    }

    fn form(&self, form: &Map<String, Json>) -> io::Result<String> {
        let mut pairs = Vec::new();
        for (name, value) in form {
            let values = match value {
                Json::Array(values) => values.iter().collect(),
                other => vec![other],
            };
            for value in values {
                let text = match value {
                    Json::String(text) => self.filled(text),
                    Json::Number(_) | Json::Bool(_) => value.to_string(),
                    _ => return Err(invalid(&format!("field {name} of a form"))),
                };
                pairs.push(format!("{}={}", escape(&self.filled(name)), escape(&text)));
            }
        }
        Ok(pairs.join("&"))
    }

    /// Returns `text` with variables replaced by their values.
    fn filled(&self, text: &str) -> String {
        let mut filled = text.to_owned();
        for (name, value) in &self.variables {
            filled = filled.replace(&format!("${{{name}}}"), value);
        }
        filled
    }

    fn filled_json(&self, json: &Json) -> Json {
        match json {
            Json::String(text) => Json::String(self.filled(text)),
            Json::Array(items) => items.iter().map(|item| self.filled_json(item)).collect(),
            Json::Object(members) => {
                let members = members.iter();
                members.map(|(name, value)| (self.filled(name), self.filled_json(value))).collect()
            }
            other => other.clone(),
        }
    }

    fn judge(&self, expect: &RestExpect, answer: &Answer) -> Option<String> {
        let is_expected = match &expect.status {
            None => answer.status == 200,
            Some(statuses) => statuses.contains(answer.status),
        };
        if !is_expected {
            return Some(format!("status {}: {}", answer.status, shorten(&answer.text())));
        }
        for (name, pattern) in &expect.headers {
            let value = answer.headers.iter().find(|(header, _)| header == name);
            let value = value.map(|(_, value)| Json::String(value.clone()));
            if let Err(problem) = matches(&self.filled_json(pattern), value.as_ref(), name) {
                return Some(problem);
            }
        }
        if let Some(pattern) = &expect.text {
            let text = Json::String(answer.text());
            if let Err(problem) = matches(&self.filled_json(pattern), Some(&text), "body") {
                return Some(problem);
            }
        }
        let pattern = self.filled_json(expect.json.as_ref()?);
        match answer.json() {
            Ok(json) => matches(&pattern, Some(&json), "").err(),
            Err(error) => Some(shorten(&error.to_string())),
        }
    }

    fn capture(&mut self, step: &RestStep, answer: &Answer) -> io::Result<()> {
        if step.capture.is_empty() {
            return Ok(());
        }
        let json = answer.json()?;
        for (name, pointer) in &step.capture {
            let value = json.pointer(&self.filled(pointer));
            let value = value
                .ok_or_else(|| invalid(&format!("nothing at {pointer}: {}", answer.text())))?;
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            self.variables.insert(name.clone(), text);
        }
        Ok(())
    }
}

/// Compares a value, or a missing one, with a pattern; `at` is its path for the message.
fn matches(pattern: &Json, value: Option<&Json>, at: &str) -> Result<(), String> {
    let shown = || value.map_or_else(|| "nothing".to_owned(), Json::to_string);
    let fail = |wanted: &str| Err(format!("{at}: {wanted} expected, came {}", shorten(&shown())));
    if let Json::Object(members) = pattern
        && members.len() == 1
        && let Some((name, argument)) = members.iter().next()
        && PATTERNS.contains(&name.as_str())
    {
        let holds = matches_special(name, argument, value);
        return if holds { Ok(()) } else { fail(&pattern.to_string()) };
    }
    match (pattern, value) {
        (Json::Object(members), Some(Json::Object(_))) => {
            members.iter().try_for_each(|(name, pattern)| {
                matches(pattern, value.and_then(|value| value.get(name)), &format!("{at}/{name}"))
            })
        }
        (Json::Array(patterns), Some(Json::Array(items))) => {
            if patterns.len() != items.len() {
                return fail(&format!("{} items", patterns.len()));
            }
            let mut pairs = patterns.iter().zip(items).enumerate();
            pairs.try_for_each(|(index, (pattern, item))| {
                matches(pattern, Some(item), &format!("{at}/{index}"))
            })
        }
        (_, Some(value)) if same_json(pattern, value) => Ok(()),
        _ => fail(&pattern.to_string()),
    }
}

fn matches_special(name: &str, argument: &Json, value: Option<&Json>) -> bool {
    let holds = |pattern: &Json, value: &Json| matches(pattern, Some(value), "").is_ok();
    match (name, value) {
        ("$absent", None) => *argument == Json::Bool(true),
        ("$absent", Some(_)) => *argument == Json::Bool(false),
        ("$not", value) => matches(argument, value, "").is_err(),
        (_, None) => false,
        ("$type", Some(value)) => *argument == type_of(value),
        ("$exactly", Some(value)) => same_json(argument, value),
        ("$one_of", Some(value)) => {
            argument.as_array().into_iter().flatten().any(|pattern| holds(pattern, value))
        }
        ("$count", Some(Json::Array(items))) => argument.as_u64() == Some(items.len() as u64),
        ("$count", Some(Json::Object(members))) => argument.as_u64() == Some(members.len() as u64),
        ("$at_least", Some(value)) => {
            value.as_f64().zip(argument.as_f64()).is_some_and(|(value, least)| value >= least)
        }
        ("$contains", Some(Json::String(text))) => {
            argument.as_str().is_some_and(|part| text.contains(part))
        }
        ("$contains", Some(Json::Array(items))) => items.iter().any(|item| holds(argument, item)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn holds(pattern: &Json, value: &Json) -> bool {
        matches(pattern, Some(value), "").is_ok()
    }

    #[test]
    fn members_that_a_pattern_does_not_name_are_allowed_and_arrays_are_compared_whole() {
        assert!(holds(
            &json!({"a": 1, "b": {"c": "x"}}),
            &json!({"a": 1.0, "b": {"c": "x", "d": 1}, "e": 2})
        ));
        assert!(!holds(&json!({"a": 1}), &json!({"b": 1})));
        assert!(holds(&json!([{"a": 1}]), &json!([{"a": 1, "b": 2}])));
        assert!(!holds(&json!([]), &json!([1])));
    }

    #[test]
    fn patterns_accept_matches_and_refuse_other_values() {
        for (pattern, good, bad) in [
            (json!({"a": {"$type": "string"}}), json!({"a": "x"}), json!({"a": 1})),
            (json!({"a": {"$absent": true}}), json!({"b": 1}), json!({"a": null})),
            (json!({"a": {"$absent": false}}), json!({"a": null}), json!({})),
            (json!({"$contains": "b"}), json!("abc"), json!("ac")),
            (json!({"$contains": {"n": 1}}), json!([{"n": 1, "m": 2}]), json!([{"n": 2}])),
            (json!({"$one_of": [1, {"$type": "null"}]}), json!(null), json!(2)),
            (json!({"$not": {"a": 1}}), json!({"a": 2}), json!({"a": 1})),
            (json!({"$count": 2}), json!([1, 2]), json!([1])),
            (json!({"$at_least": 2}), json!(2), json!(1.5)),
            (json!({"$exactly": {"a": 1}}), json!({"a": 1}), json!({"a": 1, "b": 2})),
        ] {
            check_pattern(&pattern).unwrap();
            assert!(holds(&pattern, &good), "{pattern} {good}");
            assert!(!holds(&pattern, &bad), "{pattern} {bad}");
        }
        assert!(check_pattern(&json!({"a": {"$contain": 1}})).is_err());
        assert!(check_pattern(&json!({"$type": "string", "b": 1})).is_err());
        assert!(check_pattern(&json!({"${USER}": 1, "b": 1})).is_ok());
    }

    #[test]
    fn a_problem_names_the_place() {
        let problem = matches(&json!({"a": [{"b": 1}]}), Some(&json!({"a": [{"b": 2}]})), "");
        assert_eq!(problem.unwrap_err(), "/a/0/b: 1 expected, came 2");
    }
}
