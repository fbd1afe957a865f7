//! The rows of documents.

use crate::fixture::*;
use nacre_plugin::Service;

#[test]
fn maps_see_the_document_and_its_meta() {
    let mut fixture = Fixture::view("function (doc, meta) { emit(meta, doc) }", None);
    fixture.feed(&[
        json(526, "k1", r#"{"a":[1,2]}"#),
        Change { vb: 1, seqno: 9, id: "raw", body: Some(b"Hi\xff"), datatype: 0 },
    ]);
    insta::assert_snapshot!(fixture.get("/v", "").replace("},{", "},\n{"), @r#"
    {"total_rows":2,"rows":[{"id":"k1","key":{"id":"k1","rev":"3-00000000000100000000000000000006","seq":1,"vb":526,"expiration":0,"flags":6,"type":"json"},"value":{"a":[1,2]}},
    {"id":"raw","key":{"id":"raw","rev":"3-00000000000900000000000000000006","seq":9,"vb":1,"expiration":0,"flags":6,"type":"base64"},"value":"SGn/"}]}
    "#);
}

#[test]
fn a_document_changed_twice_in_a_batch_has_its_last_rows() {
    let mut fixture =
        Fixture::view("function (doc) { doc.tags.forEach(t => emit(t)) }", Some("_count"));
    fixture.feed(&[
        json(0, "a", r#"{"tags":["x","y","x"]}"#),
        json(0, "a", r#"{"tags":["z"]}"#),
        json(0, "b", r#"{"tags":["x"]}"#),
        gone(0, "b"),
        json(0, "c", r#"{"tags":["x","x"]}"#),
    ]);
    let grouped = r#"{"rows":[{"key":"x","value":2},{"key":"z","value":1}]}"#;
    assert_eq!(fixture.get("/v", "group=true"), grouped);
    fixture.feed(&[gone(0, "a"), gone(0, "c"), gone(0, "never")]);
    assert_eq!(fixture.get("/v", ""), r#"{"rows":[]}"#);
    assert!(fixture.state.len() <= 1, "nothing but the header of the tree is left");
}

#[test]
fn views_fail_on_their_own_and_do_not_disturb_each_other() {
    let config = serde_json::json!({"name": "d", "views": {
        "a": {"map": "function (doc) { doc.list.sort(); doc.extra = 1; emit(doc.list) }"},
        "b": {"map": "function (doc) { emit(doc.list, doc.extra) }"},
        "c": {"map": "function (doc) { emit(0); if (doc.bad) throw new Error('bad document') }"},
    }});
    let mut fixture = Fixture::new(&config.to_string());
    let errors = fixture
        .feed(&[json(0, "1", r#"{"list":[2,1]}"#), json(0, "2", r#"{"list":[4,3],"bad":true}"#)]);
    assert_eq!(errors.len(), 1);
    assert_eq!(errors[0].index, 1);
    assert_eq!(errors[0].message, "view \"c\": Error: bad document (line 1, column 50)");
    let mut answers = ["/a", "/b", "/c", "/"].map(|path| fixture.get(path, ""));
    answers[3] = answers[3].replace("},", "},\n    ");
    insta::assert_snapshot!(answers.join("\n"));
}

#[test]
fn bodies_that_cannot_be_read_are_errors_of_their_document() {
    let mut fixture = Fixture::view("function (doc, meta) { emit(meta.id) }", None);
    let errors = fixture.feed(&[
        Change { vb: 0, seqno: 1, id: "utf8", body: Some(b"\"\xff\""), datatype: 1 },
        Change { vb: 0, seqno: 2, id: "json", body: Some(b"{"), datatype: 1 },
        Change { vb: 0, seqno: 3, id: "snappy", body: Some(b"{}"), datatype: 3 },
        json(0, "fine", "{}"),
    ]);
    let messages: Vec<_> = errors.iter().map(|error| &error.message[..]).collect();
    insta::assert_snapshot!(messages.join("\n"), @r#"
    the body is not UTF-8: invalid utf-8 sequence of 1 bytes from index 1
    view "v": SyntaxError: Expected property name or '}' in JSON at position 1 (line 1 column 2)
    the body is compressed
    "#);
    assert!(fixture.get("/v", "").starts_with(r#"{"total_rows":1,"#));
}

#[test]
fn custom_reductions_get_keys_first_and_reductions_later() {
    let reduce = "function (keys, values, rereduce) {
        if (rereduce) return {kind: 'again', n: sum(values.map(v => v.n))};
        return {kind: 'first', n: values.length, key: keys[0]};
    }";
    let mut fixture = Fixture::view("function (doc) { emit(doc.n) }", Some(reduce));
    fixture.feed(&[json(0, "only", r#"{"n":7}"#)]);
    let first = r#"{"rows":[{"key":null,"value":{"kind":"first","n":1,"key":[7,"only"]}}]}"#;
    assert_eq!(fixture.get("/v", ""), first);
    let documents: Vec<_> =
        (0..1000).map(|n| (format!("d{n}"), format!(r#"{{"n":{n}}}"#))).collect();
    let changes: Vec<_> = documents.iter().map(|(id, body)| json(0, id, body)).collect();
    fixture.feed(&changes);
    let again = r#"{"rows":[{"key":null,"value":{"kind":"again","n":1001}}]}"#;
    assert_eq!(fixture.get("/v", ""), again);
}

#[test]
fn stats_sum_up_numbers() {
    let mut fixture = Fixture::view("function (doc) { emit(doc.k, doc.n) }", Some("_stats"));
    fixture.feed(&[
        json(0, "a", r#"{"k":"x","n":2}"#),
        json(0, "b", r#"{"k":"x","n":-1.5}"#),
        json(0, "c", r#"{"k":"y","n":10}"#),
    ]);
    insta::assert_snapshot!(
        fixture.get("/v", ""),
        @r#"{"rows":[{"key":null,"value":{"sum":10.5,"count":3,"min":-1.5,"max":10,"sumsqr":106.25}}]}"#
    );
    fixture.feed(&[json(0, "d", r#"{"k":"y","n":"ten"}"#)]);
    insta::assert_snapshot!(
        fixture.get("/v", "group=true"),
        @r#"{"rows":[{"key":"x","value":{"sum":0.5,"count":2,"min":-1.5,"max":2,"sumsqr":6.25}}],"errors":[{"from":"local","reason":"_stats needs numbers or arrays of numbers, and document \"d\" emitted \"ten\""}]}"#
    );
}

#[test]
fn stats_of_arrays_are_by_position() {
    let mut fixture = Fixture::view("function (doc) { emit(doc.k, doc.n) }", Some("_stats"));
    fixture.feed(&[
        json(0, "a", r#"{"k":"x","n":[1,20]}"#),
        json(0, "b", r#"{"k":"x","n":[3,-1]}"#),
        json(0, "c", r#"{"k":"y","n":[1]}"#),
        json(0, "d", r#"{"k":"z","n":[]}"#),
    ]);
    insta::assert_snapshot!(
        fixture.get("/v", "key=\"x\""),
        @r#"{"rows":[{"key":null,"value":[{"sum":4,"count":2,"min":1,"max":3,"sumsqr":10},{"sum":19,"count":2,"min":-1,"max":20,"sumsqr":401}]}]}"#
    );
    insta::assert_snapshot!(fixture.get("/v", "key=\"z\""), @r#"{"rows":[{"key":null,"value":[]}]}"#);
    insta::assert_snapshot!(
        fixture.get("/v", ""),
        @r#"{"rows":[],"errors":[{"from":"local","reason":"_stats needs numbers, or arrays of one length"}]}"#
    );
}

#[test]
fn rows_of_a_document_with_one_key_are_in_the_order_of_their_values() {
    let map = "function (doc) { doc.forEach(([k, v]) => emit(k, v)) }";
    let mut fixture = Fixture::view(map, None);
    let values = |fixture: &mut Fixture| {
        let answer: serde_json::Value = serde_json::from_str(&fixture.get("/v", "")).unwrap();
        let rows = answer["rows"].as_array().unwrap().iter();
        rows.map(|row| row["value"].to_string()).collect::<Vec<_>>().join(" ")
    };
    fixture.feed(&[json(
        0,
        "a",
        r#"[[1,"b"],[0,"z"],[1.0,{"o":1}],[1,null],[1,"a"],[1,7],[1,null]]"#,
    )]);
    assert_eq!(values(&mut fixture), r#""z" null null 7 "a" "b" {"o":1}"#);
    fixture.feed(&[json(0, "a", r#"[[1,2],[1,1]]"#)]);
    assert_eq!(values(&mut fixture), "1 2", "none of the earlier rows is left");
    fixture.feed(&[gone(0, "a")]);
    assert_eq!(values(&mut fixture), "");
}

#[test]
fn text_after_a_built_in_reduction_is_ignored() {
    let sum = "_sum\n \r\nandothergarbage";
    let mut fixture = Fixture::view("function (doc) { emit(doc.k, doc.n) }", Some(sum));
    fixture.feed(&[json(0, "a", r#"{"n":2}"#), json(0, "b", r#"{"n":3}"#)]);
    assert_eq!(fixture.get("/v", ""), r#"{"rows":[{"key":null,"value":5}]}"#);
}

#[test]
fn rollback_removes_the_rows_of_a_vbucket() {
    let mut fixture = Fixture::view("function (doc, meta) { emit(meta.vb) }", Some("_count"));
    let ids: Vec<_> = (0..9000).map(|n| format!("d{n}")).collect();
    let changes: Vec<_> =
        ids.iter().enumerate().map(|(n, id)| json((n % 3) as u16, id, "{}")).collect();
    fixture.feed(&changes);
    let mut calls = vec![];
    while calls.last() != Some(&Some(0)) {
        calls.push(fixture.views.rollback(1, 500, &mut fixture.state).unwrap());
    }
    assert_eq!(calls, [None, Some(0)], "a call does a part");
    let left = r#"{"rows":[{"key":0,"value":3000},{"key":2,"value":3000}]}"#;
    assert_eq!(fixture.get("/v", "group=true"), left);
}
