//! Query parameters: their sources, their meaning, and the errors for invalid ones.

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

/// Returns the IDs of a query's rows.
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
fn errors_in_a_query_are_reported() {
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
        "on_error=maybe",
        "debug=1",
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

/// A body in several pieces equals a body in one piece.
#[test]
fn large_answers_come_in_pieces() {
    let map = "function (doc, meta) { for (let n = 0; n < 3; n++) emit([doc.k, n], doc.text) }";
    let mut fixture = Fixture::view(map, Some("_count"));
    let text = "x".repeat(500);
    let documents: Vec<_> = (0..1500)
        .map(|k| (format!("d{k:04}"), format!(r#"{{"k":{k},"text":"{text}"}}"#)))
        .collect();
    for batch in documents.chunks(100) {
        let changes: Vec<_> = batch.iter().map(|(id, body)| json(0, id, body)).collect();
        assert_eq!(fixture.feed(&changes), []);
    }
    let pieces_and_keys = |fixture: &mut Fixture, query: &str| {
        let request = nacre_plugin::Request {
            method: "GET".into(),
            path: "/v".into(),
            query: query.into(),
            ..Default::default()
        };
        let (_, pieces) = fixture.answer(&request);
        let answer: serde_json::Value = serde_json::from_slice(&pieces.concat()).unwrap();
        let keys = answer["rows"].as_array().unwrap().iter().map(|row| row["key"].to_string());
        (pieces.len(), keys.collect::<Vec<_>>())
    };
    let all: Vec<_> = (0..4500).map(|n| format!("[{},{}]", n / 3, n % 3)).collect();
    let back: Vec<_> = all.iter().rev().cloned().collect();
    for (query, expected) in [
        ("reduce=false", &all[..]),
        ("reduce=false&descending=true", &back[..]),
        ("reduce=false&skip=1000&limit=2000", &all[1000..3000]),
        ("reduce=false&startkey=[100]&endkey=[1000]&inclusive_end=false", &all[300..3000]),
        ("reduce=false&descending=true&skip=7&limit=1000", &back[7..1007]),
    ] {
        let (pieces, keys) = pieces_and_keys(&mut fixture, query);
        assert_eq!(keys, expected, "{query}");
        assert!(pieces > 2, "{query}: {pieces}");
    }
    let (_, keys) = pieces_and_keys(&mut fixture, "reduce=false&keys=[[9,1],[3,2]]");
    assert_eq!(keys, ["[9,1]", "[3,2]"]);
}

#[test]
fn many_groups_come_in_pieces() {
    let map = "function (doc, meta) { for (const word of doc.words) emit(word, 1) }";
    let mut fixture = Fixture::view(map, Some("_sum"));
    let word = |n: usize| format!("{n:05}{}", "w".repeat(200));
    for start in (0..3000).step_by(100) {
        let words: Vec<_> = (start..start + 100).flat_map(|n| [word(n), word(n)]).collect();
        let body = serde_json::json!({ "words": words }).to_string();
        assert_eq!(fixture.feed(&[json(0, &format!("d{start}"), &body)]), []);
    }
    for (query, first, last) in [("group=true", 0, 2999), ("group=true&descending=true", 2999, 0)] {
        let answer: serde_json::Value = serde_json::from_str(&fixture.get("/v", query)).unwrap();
        let rows = answer["rows"].as_array().unwrap();
        assert!(rows.iter().all(|row| row["value"] == 2), "{query}");
        assert_eq!((rows.len(), &rows[0]["key"]), (3000, &word(first).into()), "{query}");
        assert_eq!(rows[2999]["key"], word(last), "{query}");
    }
}

#[test]
fn an_answer_continues_after_an_error_unless_asked_to_stop() {
    let map = "function (doc) { emit(doc.k, doc.v) }";
    let mut fixture = Fixture::view(map, Some("_sum"));
    fixture.feed(&[
        json(0, "a", r#"{"k":1,"v":1}"#),
        json(0, "b", r#"{"k":2,"v":"x"}"#),
        json(0, "c", r#"{"k":3,"v":3}"#),
    ]);
    let error = r#""errors":[{"from":"local","reason":"_sum needs numbers or arrays of numbers, and document \"b\" emitted \"x\""}]"#;
    let all = format!(r#"{{"rows":[{{"key":1,"value":1}},{{"key":3,"value":3}}],{error}}}"#);
    assert_eq!(fixture.get("/v", "group=true"), all);
    assert_eq!(fixture.get("/v", "group=true&on_error=continue"), all);
    let stopped = format!(r#"{{"rows":[{{"key":1,"value":1}}],{error}}}"#);
    assert_eq!(fixture.get("/v", "group=true&on_error=stop"), stopped);
}

#[test]
fn an_answer_has_debug_information_on_request() {
    let mut fixture = indexed();
    let answer = fixture.get("/v", "debug=true&limit=1&reduce=false");
    insta::assert_snapshot!(answer, @r#"{"debug_info":{"local":{"index_bytes":146,"index_rows":5,"ranges":1}},"total_rows":5,"rows":[{"id":"a","key":"x","value":null}]}"#);
}

#[test]
fn unsupported_parameters_are_refused_by_name() {
    let mut fixture = indexed();
    for (query, named) in [
        ("key=1&keys=[1]&reduce=false", "invalid use of key"),
        ("include_docs=true", "invalid use of include_docs"),
        ("queries=[]", "invalid use of queries"),
    ] {
        let answer = fixture.get("/v", query);
        assert!(answer.starts_with("400") && answer.contains(named), "{query}: {answer}");
    }
    assert!(fixture.get("/v", "reduce=false&include_docs=true").starts_with("{\"total_rows\""));
}
