//! Answers that are merged from the parts of several nodes.

use crate::fixture::*;
use crate::model::{any_key, cases};
use crate::nodes::*;
use nacre_plugin::{Fault, Request, Response, Service};
use nacre_views::Bounds;
use proptest::prelude::*;
use serde_json::{Value, json};

/// Number of vBuckets.
const VBUCKETS: u16 = 8;
/// Maximum number of nodes. They are numbered from 0, so this number means no node.
const NODES_MAX: usize = 4;

const MAP: &str = "function (doc) { doc.forEach(([k, v]) => emit(k, v)) }";
/// A reduce function whose result does not depend on the order and grouping of its calls.
const EXTENT: &str = "function (keys, values, rereduce) {
    if (rereduce) return {n: sum(values.map(v => v.n)), max: Math.max(...values.map(v => v.max))};
    if (values.some(v => typeof v !== 'number')) throw new Error('no number');
    return {n: values.length, max: Math.max(...values)};
}";

fn config() -> String {
    let view = |reduce: &str| json!({"map": MAP, "reduce": reduce});
    let views = json!({
        "plain": {"map": MAP},
        "count": view("_count"),
        "sum": view("_sum"),
        "stats": view("_stats"),
        "custom": view(EXTENT),
    });
    json!({"name": "d", "views": views}).to_string()
}

/// The emitted keys and values of a document. Some values cannot be summed.
type Emits = Vec<(Value, Value)>;

fn any_emits() -> impl Strategy<Value = Emits> {
    // The collation treats some texts as equal: they are one key, which is shown as in its first row.
    let key =
        prop_oneof![8 => any_key(), 1 => Just(json!("a\u{1}")), 1 => Just(json!(["a\u{2}", 1]))];
    let value = prop_oneof![60 => (-5i32..50).prop_map(Value::from), 1 => Just(json!("x"))];
    prop::collection::vec((key, value), 0..4)
}

/// Returns a query of one of the views.
fn any_query() -> impl Strategy<Value = (&'static str, String)> {
    let view = prop::sample::select(vec!["plain", "count", "sum", "stats", "custom", "custom"]);
    let id = || prop::option::weighted(0.3, (0u16..100).prop_map(|id| format!("d{id:02}")));
    let ends = (prop::option::of(any_key()), prop::option::of(any_key()), id(), id());
    let range = ends.prop_map(|(start, end, first, last)| {
        let named = |name: &str, text: Option<String>| text.map(|text| format!("{name}={text}"));
        let text = |key: Value| key.to_string();
        let ends = [
            named("startkey", start.map(text)),
            named("endkey", end.map(text)),
            named("startkey_docid", first),
            named("endkey_docid", last),
        ];
        ends.into_iter().flatten().collect::<Vec<_>>().join("&")
    });
    let keys = prop::collection::vec(any_key(), 0..5);
    let which = prop_oneof![
        4 => range,
        1 => any_key().prop_map(|key| format!("key={key}")),
        2 => keys.prop_map(|keys| format!("group=true&keys={}", json!(keys))),
        1 => keys_of_rows(),
    ];
    let mut rest = Vec::new();
    for (name, weight, values) in [
        ("descending", 0.5, &["true", "false"][..]),
        ("inclusive_end", 0.3, &["true", "false"]),
        ("skip", 0.4, &["0", "1", "3", "10", "30"]),
        ("limit", 0.4, &["0", "1", "2", "5", "10", "40"]),
        ("reduce", 0.3, &["true", "false"]),
        ("group", 0.3, &["true", "false"]),
        ("group_level", 0.4, &["0", "1", "2", "3"]),
        ("on_error", 0.3, &["stop", "continue"]),
        ("debug", 0.1, &["true"]),
    ] {
        let value = prop::sample::select(values).prop_map(move |value| format!("&{name}={value}"));
        rest.push(prop::option::weighted(weight, value));
    }
    (view, which, rest).prop_map(|(view, which, rest)| {
        (view, format!("{which}{}", rest.into_iter().flatten().collect::<String>()))
    })
}

fn keys_of_rows() -> impl Strategy<Value = String> {
    let keys = prop::collection::vec(any_key(), 0..5);
    keys.prop_map(|keys| format!("reduce=false&keys={}", json!(keys)))
}

fn any_bounds() -> impl Strategy<Value = Bounds> {
    let bytes = || prop::sample::select(vec![1, 100, 500, 1 << 20]);
    let reductions = prop::sample::select(vec![1, 4, 1000]);
    (bytes(), bytes(), bytes(), reductions).prop_map(|(piece, part, round, reductions)| Bounds {
        piece_bytes: piece,
        part_bytes: part,
        round_bytes: round,
        reductions,
    })
}

/// The nodes with the rows of each vBucket: the one that shows them, and perhaps another one.
fn any_owners() -> impl Strategy<Value = (usize, Vec<(usize, usize)>)> {
    (1..=NODES_MAX).prop_flat_map(|count| {
        let owner = (0..count, prop_oneof![3 => Just(NODES_MAX), 1 => 0..count]);
        (Just(count), prop::collection::vec(owner, usize::from(VBUCKETS)))
    })
}

/// Returns the value of `nacre-vbuckets`.
fn list(vbs: impl Iterator<Item = u16>) -> (String, String) {
    let texts: Vec<_> = vbs.map(|vb| vb.to_string()).collect();
    ("nacre-vbuckets".into(), texts.join(","))
}

/// Returns the content of an answer without the names of nodes, which two answers with the same rows have in common.
fn essence(body: &str) -> (Value, Vec<String>) {
    let mut answer: Value = serde_json::from_str(body).unwrap();
    let members = answer.as_object_mut().unwrap();
    members.remove("debug_info");
    let errors = members.remove("errors").unwrap_or_default();
    let errors = errors.as_array().cloned().unwrap_or_default();
    (answer, errors.iter().map(|error| error["reason"].to_string()).collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases()))]

    /// The answers are equal for any distribution of documents, and for any ends of parts and rounds.
    #[test]
    fn merged_answers_equal_those_of_one_partition(
        documents in prop::collection::vec(any_emits(), 0..100),
        (count, owners) in any_owners(),
        subset in prop::option::weighted(0.2, any::<u8>()),
        bounds in any_bounds(),
        queries in prop::collection::vec(any_query(), 1..8),
    ) {
        let unsummable = documents.iter().flatten().filter(|(_, value)| value.is_string()).count();
        let texts: Vec<_> = documents.iter().map(|emits| json!(emits).to_string()).collect();
        let ids: Vec<_> = (0..texts.len()).map(|id| format!("d{id:02}")).collect();
        let changes = |has: &dyn Fn(u16) -> bool| -> Vec<Change<'_>> {
            let all = ids.iter().zip(&texts).zip(0u16..);
            all.map(|((id, text), index)| json(index % VBUCKETS, id, text))
                .filter(|change| has(change.vb))
                .collect()
        };
        let owner = |vb: u16| owners[usize::from(vb)];
        let is_seen = |vb: u16| subset.is_none_or(|subset| subset >> vb & 1 == 1);
        let mut whole = Fixture::new(&config());
        whole.feed(&changes(&|_| true));
        if subset.is_some() {
            whole.headers = vec![list((0..VBUCKETS).filter(|vb| is_seen(*vb)))];
        }
        let mut nodes = Nodes::new(&config(), count, bounds);
        for (number, node) in nodes.nodes.iter_mut().enumerate() {
            node.feed(&changes(&|vb| owner(vb).0 == number || owner(vb).1 == number));
            let shown = (0..VBUCKETS).filter(|vb| owner(*vb).0 == number && is_seen(*vb));
            if subset.is_some() || owners.iter().any(|owner| owner.1 == number) {
                node.headers = vec![list(shown)];
            }
        }

        for (view, query) in &queries {
            let mut request = get(&format!("/{view}"), query);
            let merged = nodes.ask(&request);
            request.headers = whole.headers.clone();
            let (status, pieces) = whole.answer(&request);
            let expected = String::from_utf8(pieces.concat()).unwrap();
            prop_assert_eq!(merged.status, status, "{}", merged.body);
            let has_names =
                ["\"errors\"", "\"debug_info\""].iter().any(|member| merged.body.contains(member));
            if status != 200 || !has_names {
                prop_assert_eq!(merged.body, expected, "{:?}", merged.pieces);
                continue;
            }
            // If a group fails in several places, each part names one of them, and a single partition names one of
            // them.
            let (merged_rows, merged_reasons) = essence(&merged.body);
            let (rows, reasons) = essence(&expected);
            prop_assert_eq!(merged_rows, rows);
            prop_assert!(merged_reasons.len() >= reasons.len());
            prop_assert_eq!(merged_reasons.is_empty(), reasons.is_empty());
            if unsummable == 1 {
                prop_assert_eq!(merged_reasons, reasons);
            }
        }
    }
}

/// Creates two nodes with a view `v` of `_sum`: one with odd numbers, the other with even ones.
fn odd_and_even(bounds: Bounds) -> Nodes {
    let config = json!({"name": "d", "views": {"v": {"map": MAP, "reduce": "_sum"}}});
    let mut nodes = Nodes::new(&config.to_string(), 2, bounds);
    for n in 0..10usize {
        let body = json!([[["n", n], n], ["all", 1]]).to_string();
        nodes.nodes[n % 2].feed(&[json(n as u16, &format!("d{n}"), &body)]);
    }
    nodes
}

fn narrow() -> Bounds {
    Bounds { piece_bytes: 40, part_bytes: 100, ..Bounds::default() }
}

#[test]
fn rounds_and_pieces_make_one_answer() {
    let mut nodes = odd_and_even(narrow());
    let answer = nodes.ask(&get("/v", "reduce=false&startkey=[]&skip=1&limit=7"));
    assert!(answer.pieces.len() > 1 && answer.pieces[0] > 1, "{:?}", answer.pieces);
    insta::assert_snapshot!(answer.body, @r#"
    {"total_rows":20,"rows":[{"id":"d1","key":["n",1],"value":1},
    {"id":"d2","key":["n",2],"value":2},
    {"id":"d3","key":["n",3],"value":3},
    {"id":"d4","key":["n",4],"value":4},
    {"id":"d5","key":["n",5],"value":5},
    {"id":"d6","key":["n",6],"value":6},
    {"id":"d7","key":["n",7],"value":7}]}
    "#);
    let answer = nodes.ask(&get("/v", "group_level=1&descending=true"));
    insta::assert_snapshot!(answer.body, @r#"
    {"rows":[{"key":["n"],"value":45},
    {"key":"all","value":10}]}
    "#);
    let answer = nodes.ask(&get("/v", "debug=true"));
    insta::assert_snapshot!(answer.body, @r#"{"debug_info":{"n0":{"index_bytes":366,"index_rows":10,"ranges":1},"n1":{"index_bytes":366,"index_rows":10,"ranges":1}},"rows":[{"key":null,"value":55}]}"#);
}

/// A repeated key is two ranges, whose groups remain separate.
#[test]
fn keys_requested_twice_are_returned_twice() {
    let mut nodes = odd_and_even(Bounds { part_bytes: 1, ..narrow() });
    let answer = nodes.ask(&get("/v", r#"group=true&keys=["all",["n",3],"all"]"#));
    insta::assert_snapshot!(answer.body, @r#"
    {"rows":[{"key":"all","value":10},
    {"key":["n",3],"value":3},
    {"key":"all","value":10}]}
    "#);
}

#[test]
fn failures_are_reported_with_their_node() {
    let mut nodes = odd_and_even(Bounds { part_bytes: 1, ..narrow() });
    nodes.nodes[0].feed(&[json(0, "bad", r#"[["all", "x"], [["n", 4], "y"]]"#)]);
    nodes.nodes[1].feed(&[json(1, "worse", r#"[["all", {}]]"#)]);
    let errors = |body: &str| serde_json::from_str::<Value>(body).unwrap()["errors"].clone();
    let answer = nodes.ask(&get("/v", "group=true&limit=8"));
    let failure = |from: &str, id: &str, value: &str| {
        let what = "_sum needs numbers or arrays of numbers, and document";
        json!({"from": from, "reason": format!("{what} {id:?} emitted {value}")})
    };
    let both = [failure("n0", "bad", "\"x\""), failure("n1", "worse", "{}")];
    let all = json!([both[0], both[1], failure("n0", "bad", "\"y\"")]);
    assert_eq!(errors(&answer.body), all, "carried over rounds");
    assert_eq!(answer.body.matches("\"key\"").count(), 6, "two of eight groups failed");
    let answer = nodes.ask(&get("/v", "group=true&on_error=stop"));
    assert_eq!(answer.body.matches("\"key\"").count(), 0);
    assert_eq!(errors(&answer.body), json!(both));
    let answer = nodes.ask(&get("/v", "group=true&on_error=stop&skip=1"));
    assert_eq!(answer.body.matches("\"key\"").count(), 4, "what is left out cannot fail");
    assert_eq!(errors(&answer.body), json!([failure("n0", "bad", "\"y\"")]));
}

#[test]
fn a_node_with_two_parts_is_named_once() {
    let mut nodes = odd_and_even(Bounds::default());
    nodes.lanes = 2;
    nodes.nodes[0].feed(&[json(0, "bad", r#"[["all", "x"]]"#)]);
    nodes.nodes[1].feed(&[json(1, "worse", r#"[["all", {}]]"#)]);
    let answer = nodes.ask(&get("/v", "debug=true"));
    insta::assert_snapshot!(answer.body, @r#"{"debug_info":{"n0":{"index_bytes":801,"index_rows":22,"ranges":1}},"rows":[],"errors":[{"from":"n0","reason":"_sum needs numbers or arrays of numbers, and document \"bad\" emitted \"x\""}]}"#);
}

/// Each part can be reduced, but the results cannot be re-reduced.
#[test]
fn failures_while_merging_are_reported_as_local() {
    let reduce =
        "function (keys, values, rereduce) { if (rereduce) throw new Error('no'); return 1 }";
    let config = json!({"name": "d", "views": {"v": {"map": MAP, "reduce": reduce}}});
    let mut nodes = Nodes::new(&config.to_string(), 2, Bounds::default());
    nodes.nodes[0].feed(&[json(0, "a", "[[1, 1], [2, 2]]")]);
    nodes.nodes[1].feed(&[json(1, "b", "[[1, 1]]")]);
    let answer = nodes.ask(&get("/v", "group=true"));
    insta::assert_snapshot!(answer.body, @r#"{"rows":[{"key":2,"value":1}],"errors":[{"from":"local","reason":"reduce: Error: no (line 1, column 61)"}]}"#);
}

#[test]
fn parts_without_rows_are_parts() {
    let config = json!({"name": "d", "views": {"v": {"map": MAP, "reduce": "_count"}}}).to_string();
    let mut nodes = Nodes::new(&config, 3, narrow());
    assert_eq!(nodes.ask(&get("/v", "")).body, r#"{"rows":[]}"#);
    assert_eq!(nodes.ask(&get("/v", "reduce=false")).body, r#"{"total_rows":0,"rows":[]}"#);
    nodes.nodes[1].feed(&[json(0, "a", "[[1, 1]]")]);
    assert_eq!(nodes.ask(&get("/v", "")).body, r#"{"rows":[{"key":null,"value":1}]}"#);
    let rows = r#"{"total_rows":1,"rows":[{"id":"a","key":1,"value":1}]}"#;
    assert_eq!(nodes.ask(&get("/v", "reduce=false")).body, rows);
}

/// The answer is a node's error for a query that it cannot answer.
#[test]
fn an_answer_that_is_not_a_part_is_passed_on() {
    let mut nodes = odd_and_even(narrow());
    let refused = nodes.ask(&get("/v", "limit=-1"));
    assert_eq!((refused.status, &refused.pieces[..]), (400, &[1][..]));
    assert!(refused.body.contains("query_parse_error"), "{}", refused.body);
    let request = get("/v", "");
    let mut parts = nodes.parts(&request);
    parts.push(Response::json(503, "{\"error\":\"not_ready\"}"));
    parts.push(Response::json(500, "{}"));
    let unavailable = parts[2].clone();
    assert_eq!(nodes.nodes[0].views.merge(&request, parts), Ok(unavailable));
}

fn is_reject<T>(result: &Result<T, Fault>) -> bool {
    matches!(result, Err(Fault::Reject(_)))
}

#[test]
fn malformed_parts_are_refused_and_never_a_panic() {
    let mut nodes = odd_and_even(Bounds { part_bytes: 200, ..narrow() });
    nodes.nodes[0].feed(&[json(0, "bad", r#"[["all", "x"], ["more", [1, 2]]]"#)]);
    for query in ["reduce=false&debug=true", "group=true", "", "group_level=1&descending=true"] {
        let request = get("/v", query);
        let parts = nodes.parts(&request);
        let whole = parts[0].body.clone();
        let mut merge = |body: Vec<u8>| {
            let mut parts = parts.clone();
            parts[0].body = body;
            nodes.merge(&request, parts)
        };
        assert!(merge(whole.clone()).is_ok());
        for length in 0..whole.len() {
            assert!(is_reject(&merge(whole[..length].to_vec())), "{query}: {length} bytes");
        }
        for extra in [&b"\0"[..], &whole] {
            assert!(is_reject(&merge([&whole, extra].concat())), "{query}");
        }
        for bit in 0..whole.len() * 8 {
            let mut body = whole.clone();
            body[bit / 8] ^= 1 << (bit % 8);
            let merged = merge(body);
            assert!(merged.is_ok() || is_reject(&merged), "{query}: bit {bit}");
        }
    }
    assert!(is_reject(&nodes.merge(&get("/v", ""), Vec::new())), "of nothing there is no answer");
}

/// Groups are not rows, and the first round is not the second.
#[test]
fn parts_of_another_request_are_refused() {
    let mut nodes = odd_and_even(narrow());
    let (rows, groups) = (get("/v", "reduce=false"), get("/v", "group=true"));
    let parts = nodes.parts(&rows);
    assert!(is_reject(&nodes.merge(&groups, parts.clone())));
    let (first, _) = nodes.merge(&rows, parts.clone()).unwrap();
    let next = with_header(&rows, "nacre-rest", rest_of(&first).unwrap());
    assert!(is_reject(&nodes.merge(&next, parts)), "those of the first round");
    let parts = nodes.parts(&next);
    assert!(is_reject(&nodes.merge(&rows, parts)), "those of the second round");
}

#[test]
fn a_malformed_rest_is_refused_and_never_a_panic() {
    let mut nodes = odd_and_even(narrow());
    for query in ["reduce=false", "group=true&descending=true"] {
        let request = get("/v", query);
        let parts = nodes.parts(&request);
        let (first, _) = nodes.merge(&request, parts).unwrap();
        let rest = rest_of(&first).unwrap().to_owned();
        let parts = nodes.parts(&with_header(&request, "nacre-rest", &rest));
        let mut ask = |rest: &str| {
            let request = with_header(&request, "nacre-rest", rest);
            let merged = nodes.merge(&request, parts.clone());
            let asked = with_header(&request, "nacre-part", "n0");
            let node = &mut nodes.nodes[0];
            (node.views.handle(&asked, &node.state), merged.map(|_| ()))
        };
        assert!(ask(&rest).0.is_ok() && ask(&rest).1.is_ok());
        for length in 0..rest.len() {
            let (part, merged) = ask(&rest[..length]);
            assert!(is_reject(&part) && is_reject(&merged), "{length}");
        }
        for index in 0..rest.len() {
            for byte in [b'A', b'B', b'g', b'_', b'%'] {
                let mut text = rest.clone().into_bytes();
                text[index] = byte;
                let (part, merged) = ask(str::from_utf8(&text).unwrap());
                assert!(part.is_ok() || is_reject(&part), "{index}");
                assert!(merged.is_ok() || is_reject(&merged), "{index}");
            }
        }
    }
}

/// With the limits of the node, parts and pieces remain small, and the answer is the same.
#[test]
fn large_answers_come_in_rounds() {
    let text = "x".repeat(2000);
    let document = |n: usize| json!([[["k", n % 700], text], [["k", n], n]]).to_string();
    let mut whole = Fixture::new(&config());
    let mut nodes = Nodes::new(&config(), 2, Bounds::default());
    for n in 0..6000 {
        let (id, body) = (format!("d{n}"), document(n));
        let change = [json((n % 8) as u16, &id, &body)];
        whole.feed(&change);
        nodes.nodes[n % 2].feed(&change);
    }
    for (query, rounds) in [("reduce=false", 2), ("reduce=false&descending=true&skip=10", 2)] {
        let request = get("/plain", query);
        for part in nodes.parts(&request) {
            assert!((4 << 20..5 << 20).contains(&part.body.len()), "{}", part.body.len());
        }
        let merged = nodes.ask(&request);
        assert_eq!(merged.pieces.len(), rounds, "{:?}", merged.pieces);
        assert!(merged.pieces[0] >= 32, "8 MiB in pieces of 256 KiB: {:?}", merged.pieces);
        assert!(merged.body.as_bytes() == whole.answer(&request).1.concat(), "{query}");
    }
}

/// Re-reduced groups are counted, because each may take a while.
#[test]
fn a_part_and_a_round_reduce_so_many_groups() {
    let mut nodes = odd_and_even(Bounds { reductions: 2, ..Bounds::default() });
    let request = get("/v", "group_level=2");
    let answer = nodes.ask(&request);
    assert_eq!(answer.pieces.len(), 5, "no part gives more than two of eleven groups");
    let mut others = odd_and_even(Bounds::default());
    others.nodes.iter_mut().for_each(|node| {
        node.feed(&[json(7, "more", "[[1, 1], [2, 2], [3, 3], [4, 4]]")]);
    });
    let parts = others.parts(&request);
    for (bounds, count) in [
        (Bounds { reductions: 2, ..Bounds::default() }, 2),
        (Bounds { round_bytes: 50, ..Bounds::default() }, 3),
    ] {
        let (response, pieces) = Nodes::new(&config(), 1, bounds)
            .merge(&get("/sum", "group_level=2"), parts.clone())
            .unwrap();
        let body = String::from_utf8(pieces.concat()).unwrap();
        assert!(rest_of(&response).is_some());
        assert_eq!(body.matches("\"key\"").count(), count, "{body}");
    }
}

/// A part has as many items as the answer may need, whatever the answer skips.
#[test]
fn a_part_is_not_larger_than_requested() {
    let mut nodes = odd_and_even(Bounds::default());
    let size = |nodes: &mut Nodes, query: &str| {
        let parts: Vec<Response> = nodes.parts(&get("/v", query));
        parts.iter().map(|part| part.body.len()).sum::<usize>()
    };
    let [none, three, again, all] = [
        "reduce=false&limit=0&skip=5",
        "reduce=false&limit=3",
        "reduce=false&limit=1&skip=2",
        "reduce=false&skip=9",
    ]
    .map(|query| size(&mut nodes, query));
    assert!(none < three && three == again && again < all, "{none} {three} {again} {all}");
    let request = Request { method: "PUT".into(), ..get("/v", "") };
    assert_eq!(nodes.ask(&request).status, 405);
    assert_eq!(nodes.ask(&get("/w", "")).status, 404);
}
