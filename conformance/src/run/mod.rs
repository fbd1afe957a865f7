//! Runs the cases against a host.

mod analytics;
mod answer;
mod build;
mod echo;
mod eventing;
mod fixture;
mod kv;
mod reply;
mod rest;
mod sqlpp;
mod views;

pub use analytics::run_analytics;
pub use rest::patterns_are_known as rest_patterns_are_known;
pub use sqlpp::BUCKET as SQLPP_BUCKET;

use crate::case::{BACKUP, EVENTING, KV, REST, VIEWS, XDCR};
use crate::http;
use serde_json::Value as Json;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::io;

/// The host to test, and the selected cases.
#[derive(Clone, Debug)]
pub struct Target {
    /// Name or address of the host.
    pub host: String,
    /// Port of the binary protocol.
    pub kv_port: u16,
    /// Port of cluster management.
    pub mgmt_port: u16,
    /// Port of views.
    pub views_port: u16,
    /// Port of queries.
    pub query_port: u16,
    /// Port of functions.
    pub eventing_port: u16,
    /// Cluster management ports of unclaimed nodes on the same host. Cases that need such nodes run only if there are any, and
    /// each node serves one case.
    pub fresh_ports: Vec<u16>,
    /// The user; empty for an embedded database, whose sessions need no login.
    pub user: String,
    /// The password.
    pub password: String,
    /// The bucket, which must exist.
    pub bucket: String,
    /// Selects only cases whose group or name contains this text.
    pub filter: String,
    /// Distinguishes the keys of this run from those of others: a few letters and digits.
    pub run: String,
}

impl Target {
    fn wants(&self, group: &str, name: &str) -> bool {
        format!("{group}/{name}").contains(&self.filter)
    }
}

/// The outcome of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The file of the case, such as `kv/store`.
    pub group: String,
    /// The case.
    pub name: String,
    /// The difference from the expectation; `None` if the case passed.
    pub problem: Option<String>,
}

/// Asks cluster management whether the bucket exists.
///
/// # Errors
/// The errors of the socket, and answers other than success and "not found".
pub fn bucket_exists(target: &Target) -> io::Result<bool> {
    let address = format!("{}:{}", target.host, target.mgmt_port);
    let path = format!("/pools/default/buckets/{}", http::escape(&target.bucket));
    let auth = (target.user.as_str(), target.password.as_str());
    let answer = http::request(&address, "GET", &path, Some(auth), "", &[])?;
    match answer.status {
        200 => Ok(true),
        404 => Ok(false),
        status => Err(io::Error::other(format!("{status} {}", shorten(&answer.text())))),
    }
}

/// Runs all selected cases, queries in parallel with the others, and passes each outcome to `report`.
pub fn run(target: &Target, report: impl Fn(&Outcome) + Sync) -> Vec<Outcome> {
    let played = |play: &dyn Fn(&Target, Done<'_>)| {
        let mut outcomes = Vec::new();
        play(target, &mut |group: &str, name: &str, problem: Option<String>| {
            let outcome = Outcome { group: group.to_owned(), name: name.to_owned(), problem };
            report(&outcome);
            outcomes.push(outcome);
        });
        outcomes
    };
    std::thread::scope(|scope| {
        let queries = scope.spawn(|| played(&|target, done| sqlpp::play(target, done)));
        let mut outcomes = played(&play_others);
        outcomes.extend(queries.join().expect("a case that fails is an outcome"));
        outcomes
    })
}

/// Receives the outcome of a case: its group, its name, and the problem, if any.
type Done<'a> = &'a mut dyn FnMut(&str, &str, Option<String>);

fn play_others(target: &Target, done: Done<'_>) {
    let mut client = None;
    for (group, text) in KV {
        let file = parse(group, text);
        kv::play(target, group, &file, &mut client, done);
    }
    for (group, text) in VIEWS {
        let file = parse(group, text);
        views::play(target, group, &file, done);
    }
    for (group, text) in EVENTING {
        let file = parse(group, text);
        eventing::play(target, group, &file, done);
    }
    let mut fresh = target.fresh_ports.clone();
    for (group, text) in REST.iter().chain(XDCR).chain(BACKUP) {
        let file = parse(group, text);
        rest::play(target, group, &file, &mut fresh, done);
    }
}

fn parse<'t, T: serde::Deserialize<'t>>(group: &str, text: &'t str) -> T {
    // The files are part of the program, and a test parses each of them.
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{group}: {error}"))
}

/// Formats a table of passed and failed cases by group, with a final line.
pub fn table(outcomes: &[Outcome]) -> String {
    let mut groups: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for outcome in outcomes {
        let counts = groups.entry(&outcome.group).or_default();
        if outcome.problem.is_none() { counts.0 += 1 } else { counts.1 += 1 }
    }
    let mut out = format!("{:<24}{:>8}{:>8}\n", "group", "passed", "failed");
    for (group, (passed, failed)) in &groups {
        let _ = writeln!(out, "{group:<24}{passed:>8}{failed:>8}");
    }
    let failed = outcomes.iter().filter(|outcome| outcome.problem.is_some()).count();
    let _ = writeln!(out, "{:<24}{:>8}{failed:>8}", "all", outcomes.len() - failed);
    out
}

/// Returns true if two JSON values are equal: numbers by value (1 equals 1.0), members in any order.
///
/// Some servers print sums as floats, some as integers; JSON does not distinguish them.
fn same_json(a: &Json, b: &Json) -> bool {
    match (a, b) {
        (Json::Number(a), Json::Number(b)) => a == b || a.as_f64() == b.as_f64(),
        (Json::Array(a), Json::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same_json(a, b))
        }
        (Json::Object(a), Json::Object(b)) => {
            a.len() == b.len()
                && a.iter().all(|(name, a)| b.get(name).is_some_and(|b| same_json(a, b)))
        }
        _ => a == b,
    }
}

/// Returns a text shortened for a message.
fn shorten(text: &str) -> String {
    const CHARS_MAX: usize = 300;
    match text.char_indices().nth(CHARS_MAX) {
        Some((end, _)) => format!("{}… ({} bytes)", &text[..end], text.len()),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn numbers_compare_by_value_and_members_in_any_order() {
        assert!(same_json(&json!({"a": 1, "b": [2.0]}), &json!({"b": [2], "a": 1.0})));
        assert!(!same_json(&json!([1]), &json!([1, 2])));
        assert!(!same_json(&json!("1"), &json!(1)));
        assert!(!same_json(&json!(u64::MAX), &json!(1)));
    }

    #[test]
    fn the_table_counts_by_group() {
        let outcome = |group: &str, problem: Option<&str>| Outcome {
            group: group.to_owned(),
            name: "n".to_owned(),
            problem: problem.map(str::to_owned),
        };
        let outcomes =
            [outcome("kv/store", None), outcome("kv/cas", Some("x")), outcome("kv/store", None)];
        insta::assert_snapshot!(table(&outcomes), @r"
        group                     passed  failed
        kv/cas                         0       1
        kv/store                       2       0
        all                            2       1
        ");
    }
}
