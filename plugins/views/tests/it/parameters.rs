//! Query parameters: where they come from, what they mean, and what is said about bad ones.

use crate::fixture::*;

fn indexed() -> Fixture {
    let mut fixture = Fixture::view("function (doc) { emit(doc.k, null) }", Some("_count"));
    fixture.feed(&[
        json(0, "a", r#"{"k":"x"}"#),
        json(0, "b", r#"{"k":"x"}"#),
        json(0, "c", r#"{"k":"x"}"#),
        json(0, "d", r#"{"k":"y"}"#),
        json(0, "e", r#"{"k":"z"}"#),
    ]);
    fixture
}

/// The ids of the rows that a query gives.
fn ids(fixture: &mut Fixture, query: &str) -> String {
    let answer = fixture.get("/v", &format!("reduce=false&{query}"));
    let answer: serde_json::Value = serde_json::from_str(&answer).unwrap();
    let rows = answer["rows"].as_array().unwrap();
    rows.iter().map(|row| row["id"].as_str().unwrap()).collect()
}

#[test]
fn ranges_respect_documents_bounds_and_direction() {
    let mut fixture = indexed();
    for (query, expected) in [
        ("", "abcde"),
        ("descending=true", "edcba"),
        ("startkey=%22y%22", "de"),
        ("startkey=%22y%22&descending=true", "dcba"),
        ("endkey=\"x\"", "abc"),
        ("endkey=\"x\"&descending=true", "edcba"),
        ("endkey=\"x\"&inclusive_end=false", ""),
        ("endkey=\"y\"&inclusive_end=false", "abc"),
        ("endkey=\"x\"&inclusive_end=false&descending=true", "ed"),
        ("startkey=\"x\"&startkey_docid=b", "bcde"),
        ("startkey=\"x\"&startkey_docid=b&descending=true", "ba"),
        ("endkey=\"x\"&endkey_docid=b", "ab"),
        ("endkey=\"x\"&endkey_docid=b&inclusive_end=false", "a"),
        ("endkey=\"x\"&endkey_docid=b&descending=true", "edcb"),
        ("endkey=\"x\"&endkey_docid=b&descending=true&inclusive_end=false", "edc"),
        ("startkey_docid=b", "abcde"),
        ("start_key=\"y\"&end_key=\"y\"", "d"),
        ("key=\"x\"&descending=true", "cba"),
        ("key=\"x\"&skip=1&limit=1", "b"),
        ("keys=[\"z\",\"x\",\"no\"]", "eabc"),
        ("keys=[\"z\",\"x\"]&skip=1&limit=2", "ab"),
        ("limit=0", ""),
        ("skip=99", ""),
    ] {
        assert_eq!(ids(&mut fixture, query), expected, "{query}");
    }
}

#[test]
fn a_range_that_runs_backwards_is_refused() {
    let mut fixture = indexed();
    for query in ["startkey=\"z\"&endkey=\"x\"", "startkey=\"x\"&endkey=\"z\"&descending=true"] {
        let answer = fixture.get("/v", query);
        assert!(answer.starts_with("400") && answer.contains("No rows can match"), "{answer}");
    }
}

#[test]
fn a_posted_body_counts_as_parameters() {
    let mut fixture = indexed();
    let ask =
        |fixture: &mut Fixture, query: &str, body: &str| fixture.ask("POST", "/v", query, body);
    let keys = ask(&mut fixture, "group=true", r#"{"keys":["z","x"]}"#);
    assert_eq!(keys, r#"{"rows":[{"key":"z","value":1},{"key":"x","value":3}]}"#);
    let all = r#"{"startkey":"x","startkey_docid":"c","limit":1,"reduce":false,"stale":"ok"}"#;
    let row = ask(&mut fixture, "", all);
    assert_eq!(row, r#"{"total_rows":5,"rows":[{"id":"c","key":"x","value":null}]}"#);
    assert_eq!(ask(&mut fixture, "", "{}"), ask(&mut fixture, "", ""));
}

#[test]
fn what_is_wrong_with_a_query_is_said() {
    let mut fixture = indexed();
    let mut plain = Fixture::view("function (doc) { emit(doc.k) }", None);
    let mut lines: Vec<_> = [
        "limit=-1",
        "skip=1.5",
        "descending=yes",
        "key={",
        "key=%zz",
        "keys=[1",
        "group_level=all",
        "keys=[1]",
        "group=true&reduce=false",
    ]
    .iter()
    .map(|query| format!("{query}: {}", fixture.get("/v", query)))
    .collect();
    lines.push(format!("no reduce: {}", plain.get("/v", "reduce=true")));
    lines.push(format!("body: {}", fixture.ask("POST", "/v", "", "[1]")));
    lines.push(format!("method: {}", fixture.ask("PUT", "/v", "", "")));
    lines.push(format!("view: {}", fixture.get("/w", "")));
    insta::assert_snapshot!(lines.join("\n"));
}
