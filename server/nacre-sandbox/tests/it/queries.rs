//! Rows and reductions of the real component, as seen by a client.

use crate::fixture::*;
use nacre_types::Vbid;
use std::collections::BTreeMap;

const BY_CITY: &str = "function (doc, meta) { emit([doc.country, doc.city], doc.n) }";

#[test]
fn documents_become_rows_and_follow_their_changes() {
    let mut partition = open_in_memory("function (doc, meta) { emit(doc.name, meta.id) }", None);
    let mut stream = Stream::default();
    let batch = stream.batch([
        ("a", Some(r#"{"name":"pear"}"#)),
        ("b", Some(r#"{"name":"Apple"}"#)),
        ("c", Some(r#"{"name":"apple"}"#)),
    ]);
    let report = partition.on_batch(&batch, NOW).unwrap();
    assert_eq!((report.documents, report.errors.len(), report.dead_letters.len()), (3, 0, 0));
    let reader = partition.reader();
    insta::assert_snapshot!(query(&reader, ""), @r#"
    {"total_rows":3,"rows":[{"id":"c","key":"apple","value":"c"},
    {"id":"b","key":"Apple","value":"b"},
    {"id":"a","key":"pear","value":"a"}]}
    "#);
    let batch = stream.batch([("a", Some(r#"{"name":"fig"}"#)), ("b", None), ("d", None)]);
    partition.on_batch(&batch, NOW).unwrap();
    insta::assert_snapshot!(query(&reader, ""), @r#"
    {"total_rows":2,"rows":[{"id":"c","key":"apple","value":"c"},
    {"id":"a","key":"fig","value":"a"}]}
    "#);
}

#[test]
fn queries_take_the_parameters_of_couchbase() {
    let mut partition = open_in_memory(BY_CITY, Some("_sum"));
    let documents = [
        ("1", r#"{"country":"fr","city":"lyon","n":1}"#),
        ("2", r#"{"country":"fr","city":"nice","n":2}"#),
        ("3", r#"{"country":"uk","city":"bath","n":3}"#),
        ("4", r#"{"country":"uk","city":"york","n":4.5}"#),
        ("5", r#"{"country":"uk","city":"york","n":5}"#),
    ];
    let batch = Stream::default().batch(documents.map(|(key, body)| (key, Some(body))));
    partition.on_batch(&batch, NOW).unwrap();
    let reader = partition.reader();
    let mut lines = Vec::new();
    for parameters in [
        "",
        "group=true",
        "group_level=1",
        "group_level=1&descending=true&limit=1",
        "reduce=false&limit=2&skip=1",
        r#"reduce=false&key=["uk","york"]"#,
        r#"reduce=false&keys=[["uk","york"],["fr","nice"]]"#,
        r#"group=true&keys=[["uk","york"],["fr","nice"]]"#,
        r#"reduce=false&startkey=["uk"]&endkey=["uk",{}]&descending=false&limit=1"#,
        r#"reduce=false&startkey=["uk","york"]&startkey_docid=5"#,
        r#"reduce=false&endkey=["fr","nice"]&inclusive_end=false"#,
        r#"startkey=["xx"]"#,
        "stale=false&on_error=stop",
        "limit=many",
        "startkey=nonsense",
        "keys=3",
        r#"keys=[["uk","york"]]"#,
    ] {
        lines.push(format!("{parameters}\n    {}", query(&reader, parameters).replace('\n', "")));
    }
    lines.push(format!("/other\n    {}", request(&reader, "/other", "")));
    lines.push(format!("/\n    {}", request(&reader, "/", "")));
    insta::assert_snapshot!(lines.join("\n"));
}

/// Random changes in batches of random size, compared with a plain map of documents.
#[test]
fn rows_equal_brute_force_after_any_history() {
    let mut partition =
        open_in_memory("function (doc) { emit(doc.k % 50, doc.k) }", Some("_count"));
    let mut stream = Stream::default();
    let mut model: BTreeMap<String, u64> = BTreeMap::new();
    let mut random = 1u64;
    let mut next = |below: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (random >> 33) % below
    };
    for _ in 0..20 {
        let changes: Vec<(String, Option<String>)> = (0..next(200))
            .map(|_| {
                let key = format!("doc{}", next(500));
                let body = (next(4) > 0).then(|| next(1000));
                match body {
                    Some(k) => model.insert(key.clone(), k),
                    None => model.remove(&key),
                };
                (key, body.map(|k| format!(r#"{{"k":{k}}}"#)))
            })
            .collect();
        let changes = changes.iter().map(|(key, body)| (&key[..], body.as_deref()));
        partition.on_batch(&stream.batch(changes), NOW).unwrap();
    }
    let mut rows: Vec<_> = model.iter().map(|(id, k)| (k % 50, id, k)).collect();
    rows.sort();
    let rows: Vec<_> = rows
        .iter()
        .map(|(key, id, value)| format!(r#"{{"id":"{id}","key":{key},"value":{value}}}"#))
        .collect();
    let expected = format!(r#"{{"total_rows":{},"rows":[{}]}}"#, rows.len(), rows.join(",\n"));
    let reader = partition.reader();
    assert_eq!(query(&reader, "reduce=false"), expected);
    let counted = format!(r#"{{"rows":[{{"key":null,"value":{}}}]}}"#, rows.len());
    assert_eq!(query(&reader, ""), counted);
}

#[test]
fn rollback_removes_the_rows_of_one_vbucket() {
    let mut partition = open_in_memory("function (doc, meta) { emit(meta.vb) }", Some("_count"));
    let keys: Vec<_> = (0..12_000).map(|number| format!("key{number}")).collect();
    let batch = Stream::default().batch(keys.iter().map(|key| (&key[..], Some("{}"))));
    partition.on_batch(&batch, NOW).unwrap();
    let gone = Vbid(2);
    let reached = partition.rollback(gone, point(1)).unwrap();
    assert_eq!(reached, Default::default(), "views start the vBucket over");
    assert_eq!(partition.progress(gone), Default::default());
    assert_eq!(partition.progress_of_all().count(), 4);
    let rows = query(&partition.reader(), "group=true");
    assert!(!rows.contains("\"key\":2") && rows.contains("\"key\":1"), "{rows}");
    partition.on_batch(&batch, NOW).unwrap();
    assert!(
        query(&partition.reader(), "").contains("\"value\":12000"),
        "fed again, all is there once"
    );
}

#[test]
fn time_is_the_time_of_the_batch() {
    let mut partition = open_in_memory("function (doc) { emit(Date.now(), new Date()) }", None);
    partition.on_batch(&Stream::default().batch([("a", Some("{}"))]), NOW).unwrap();
    insta::assert_snapshot!(
        query(&partition.reader(), ""),
        @r#"{"total_rows":1,"rows":[{"id":"a","key":1700000000000,"value":"2023-11-14T22:13:20.000Z"}]}"#
    );
}

/// The largest document that a client may store, as JSON and as bytes, under the default limits.
#[test]
fn the_largest_documents_are_indexed() {
    let map = "function (doc, meta) { emit(meta.id, meta.type === 'json' ? doc.text.length : doc.length) }";
    let mut partition = open_in_memory(map, None);
    let bytes = nacre_types::VALUE_BYTES_MAX;
    let text = format!(r#"{{"list":[1,2,3],"text":"{}"}}"#, "x".repeat(bytes - 30));
    let mut stream = Stream::default();
    let mut batch = stream.batch([("json", Some(&text[..])), ("raw", Some(&text[..]))]);
    let (_, raw) = &mut batch.documents[1];
    *raw = raw.clone().with_meta(|meta| meta.datatype = 0);
    let report = partition.on_batch(&batch, NOW).unwrap();
    assert_eq!((&report.errors[..], &report.dead_letters[..]), (&[][..], &[][..]));
    let base64 = text.len().div_ceil(3) * 4;
    let expected = format!(
        r#"{{"total_rows":2,"rows":[{{"id":"json","key":"json","value":{}}},
{{"id":"raw","key":"raw","value":{base64}}}]}}"#,
        bytes - 30
    );
    assert_eq!(query(&partition.reader(), ""), expected);
}
