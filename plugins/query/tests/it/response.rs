//! The envelope of responses, in the order in which clients read it.

use crate::world::{World, keyspace};
use nacre_query::{Action, Datastore, Mutation, Request, Status};
use nacre_sql::Value;

fn body(world: &World, request: Request) -> String {
    let mut response = world.service.start(request, &world.store, &world.platform);
    let mut body = String::new();
    while let Some(piece) = response.next_chunk(&world.service, &world.store, &world.platform) {
        body.push_str(&piece.into_text());
    }
    body
}

#[test]
fn rows_come_before_the_status() {
    let mut request = World::request("SELECT x, x + 1 AS y FROM [1, 2] AS x");
    request.client_context_id = Some("mine".to_owned());
    insta::assert_snapshot!(body(&World::new(), request));
}

#[test]
fn the_signature_describes_a_row_of_the_statement() {
    let signature = |statement: &str| {
        let body = body(&World::new(), World::request(statement));
        let (_, rest) = body.split_once("\"signature\":").unwrap();
        rest.split_once(",\n\"results\"").unwrap().0.to_owned()
    };
    for (statement, told) in [
        ("SELECT 1 = 1", r#"{"$1":"boolean"}"#),
        (
            "SELECT x, x.*, x + 1 AS y, 'a' || x AS z FROM [1] AS x",
            r#"{"x":"json","*":"*","y":"number","z":"string"}"#,
        ),
        ("SELECT COUNT(*) AS n FROM [1] AS x", r#"{"n":"number"}"#),
        ("SELECT RAW [x] FROM [1] AS x", r#""array""#),
        ("SELECT RAW x FROM [1] AS x", r#""json""#),
        (
            "SELECT x IN [1] AS a, {'b': x} AS b, -x AS c, UPPER('d') AS d, NULL AS e FROM [1] AS x",
            r#"{"a":"boolean","b":"object","c":"number","d":"json","e":"null"}"#,
        ),
    ] {
        assert_eq!(signature(statement), told, "{statement}");
    }
}

#[test]
fn times_below_a_millisecond_are_not_zero() {
    let world = World::new();
    let mut response =
        world.service.start(World::request("SELECT 1"), &world.store, &world.platform);
    world.platform.now_us.set(world.platform.now_us.get() + 1_042);
    let piece = response.next_chunk(&world.service, &world.store, &world.platform).unwrap();
    let piece = piece.into_text();
    assert!(piece.contains(r#""elapsedTime":"1.042ms","executionTime":"1.042ms""#), "{piece}");
}

#[test]
fn an_error_has_its_position() {
    insta::assert_snapshot!(body(&World::new(), World::request("SELECT 1 +\n  FROM")));
}

#[test]
fn a_refused_insert_reports_the_reason() {
    let world = World::new();
    world.add("docs", [("k", Value::Int(1))]);
    insta::assert_snapshot!(body(
        &world,
        World::request("INSERT INTO docs (KEY, VALUE) VALUES ('k', 2)")
    ));
}

/// A document that is selected as a whole is passed on unchanged: numbers keep their digits, and names may occur
/// twice.
#[test]
fn a_document_that_passes_through_is_unchanged() {
    let world = World::new();
    world.add("docs", []);
    let text = r#"{"pi":3.14159265358979323846, "a":1,"a":2}"#;
    let upsert = |id: &str, body: &str| Mutation {
        action: Action::Upsert,
        id: id.into(),
        body: body.as_bytes().to_vec(),
        expiration: None,
    };
    let mutations = [upsert("k", text), upsert("l", "[1]")];
    world.store.mutate(&keyspace("docs"), &mutations).unwrap();
    let results = |statement: &str| {
        let body = body(&world, World::request(statement));
        let (_, rest) = body.split_once("\"results\":[").unwrap();
        rest.split_once("\n],").unwrap().0.trim_start().to_owned()
    };
    for statement in
        ["SELECT RAW d FROM docs AS d USE KEYS 'k'", "SELECT d.* FROM docs AS d WHERE d.a = 2"]
    {
        assert_eq!(results(statement), text, "{statement}");
    }
    let read = r#"{"pi":3.141592653589793,"a":2}"#;
    assert_eq!(results("SELECT RAW [d] FROM docs AS d USE KEYS 'k'"), format!("[{read}]"));
    let named = format!("{{\"a \\\"d\\\"\":{text}}}");
    assert_eq!(results("SELECT * FROM docs AS `a \"d\"` USE KEYS 'k'"), named);
    assert_eq!(results("SELECT `a \"d\"` FROM docs AS `a \"d\"` USE KEYS 'k'"), named);
    assert_eq!(results("SELECT d AS `a \"d\"` FROM docs AS d WHERE META(d).id = 'k'"), named);
    assert_eq!(results("SELECT d.* FROM docs AS d USE KEYS 'l'"), "{}");
    assert_eq!(results("SELECT RAW d FROM docs AS d USE KEYS 'l'"), "[1]");
    let distinct = "SELECT DISTINCT RAW d FROM docs AS d USE KEYS 'k'";
    assert!([text, read].contains(&results(distinct).as_str()));
}

#[test]
fn long_results_come_in_pieces_and_stay_one_object() {
    let world = World::new();
    let request = World::request("SELECT RAW REPEAT('x', 1000) FROM ARRAY_RANGE(0, 1000) AS n");
    let mut response = world.service.start(request, &world.store, &world.platform);
    let mut pieces = Vec::new();
    while let Some(piece) = response.next_chunk(&world.service, &world.store, &world.platform) {
        pieces.push(piece.into_text());
    }
    assert!(pieces.len() > 10, "{} pieces", pieces.len());
    assert!(pieces.iter().all(|piece| piece.len() < 70_000));
    let whole = Value::parse(pieces.concat().as_bytes()).unwrap();
    assert_eq!(whole.field("results").as_array().unwrap().len(), 1000);
    assert_eq!(whole.field("metrics").field("resultCount"), Value::Int(1000));
    assert_eq!(response.status(), Status::Success);
}

#[test]
fn values_of_parameters_are_checked() {
    for (name, value, code) in [
        ("profile", "bogus", 1030),
        ("format", "XML", 1030),
        ("encoding", "latin1", 1030),
        ("compression", "ZIP", 1030),
        ("pretty", "maybe", 1070),
        ("max_parallelism", "many", 1070),
        ("scan_consistency", "at_plus", 1050),
        ("$a", "{bad", 1040),
        ("args", "[1", 1040),
    ] {
        let error = Request::from_pairs([(name, value)]).expect_err(name);
        assert_eq!(error.code, code, "{name}");
    }
    for (name, value) in [
        ("format", "JSON"),
        ("encoding", "UTF-8"),
        ("compression", "NONE"),
        ("max_parallelism", "-1"),
    ] {
        assert!(Request::from_pairs([(name, value)]).is_ok(), "{name}");
    }
}

#[test]
fn requests_are_read_from_json_and_from_forms() {
    let json = br#"{"statement": "SELECT $1 AS a, $b AS b", "args": [1], "$b": {"c": 2}, "timeout": "75s", "pretty": true}"#;
    let from_json = Request::from_json(json).unwrap();
    let pairs = [
        ("statement", "SELECT $1 AS a, $b AS b"),
        ("args", "[1]"),
        ("$b", "{\"c\": 2}"),
        ("timeout", "75s"),
    ];
    let from_pairs = Request::from_pairs(pairs).unwrap();
    assert_eq!(from_json.timeout_ms, Some(75_000));
    let world = World::new();
    let rows = world.run(from_json).unwrap();
    assert_eq!(rows, world.run(from_pairs).unwrap());
    assert_eq!(rows[0].to_json(), r#"{"a":1,"b":{"c":2}}"#);
}

#[test]
fn invalid_parameters_are_refused_with_their_code() {
    let code = |body: &str| Request::from_json(body.as_bytes()).unwrap_err().code;
    assert_eq!(code("[]"), 1040);
    assert_eq!(code("{"), 1040);
    assert_eq!(code(r#"{"colour": 1}"#), 1065);
    assert_eq!(code(r#"{"statement": 1}"#), 1070);
    assert_eq!(code(r#"{"args": "x"}"#), 1070);
    assert_eq!(code(r#"{"scan_consistency": "soon"}"#), 1040);
    assert_eq!(code(r#"{"timeout": "soon"}"#), 1040);
}

#[test]
fn a_profile_is_returned_on_request() {
    let world = World::new();
    let profile = |wanted: &str| {
        let form = format!("statement=SELECT RAW 1&profile={wanted}");
        let request = Request::from_form([form.as_str()]).unwrap();
        let mut response = world.service.start(request, &world.store, &world.platform);
        let mut body = String::new();
        while let Some(piece) = response.next_chunk(&world.service, &world.store, &world.platform) {
            body.push_str(&piece.into_text());
        }
        Value::parse(body.as_bytes()).unwrap().field("profile")
    };
    assert!(profile("off").is_missing());
    let phases = profile("phases");
    assert!(phases.field("phaseTimes").field("run").as_str().is_some(), "{phases}");
    assert!(phases.field("executionTimings").is_missing());
    assert!(profile("timings").field("executionTimings").as_object().is_some());
}

/// Returns a member of a response, as JSON.
fn member(world: &World, request: Request, name: &str) -> serde_json::Value {
    let answer: serde_json::Value = serde_json::from_str(&body(world, request)).unwrap();
    answer[name].clone()
}

fn asked(pairs: &[(&str, &str)]) -> Request {
    let all = [("query_context", "default:default._default")].into_iter();
    Request::from_pairs(all.chain(pairs.iter().copied())).unwrap()
}

#[test]
fn a_pretty_answer_has_a_line_for_each_member_also_of_documents_that_only_pass_through() {
    let world = World::new();
    world.add("docs", [("k", Value::parse(br#"{"b":1,"a":[2]}"#).unwrap())]);
    for (statement, rows) in [
        ("SELECT 1 AS a", "[\n    {\n        \"a\": 1\n    }\n]"),
        (
            "SELECT RAW d FROM docs AS d",
            "[\n    {\n        \"b\": 1,\n        \"a\": [\n            2\n        ]\n    }\n]",
        ),
    ] {
        let body = body(&world, asked(&[("statement", statement), ("pretty", "true")]));
        assert!(body.contains(&format!("\"results\":{rows}")), "{body}");
    }
}

#[test]
fn selected_fields_are_sorted_on_request() {
    let world = World::new();
    let statement = "SELECT 1 AS b, {'d': 2, 'c': 3} AS a";
    let sorted = body(&world, asked(&[("statement", statement), ("sort_projection", "true")]));
    assert!(sorted.contains(r#"{"a":{"d":2,"c":3},"b":1}"#), "{sorted}");
    let plain = body(&world, asked(&[("statement", statement)]));
    assert!(plain.contains(r#"{"b":1,"a":{"d":2,"c":3}}"#), "{plain}");
}

#[test]
fn controls_repeat_the_request() {
    let world = World::new();
    let request = asked(&[
        ("statement", "SELECT $x AS x, $1 AS y"),
        ("$x", "7"),
        ("args", "[true]"),
        ("controls", "true"),
        ("use_cbo", "false"),
        ("memory_quota", "3"),
        ("timeout", "5s"),
        ("scan_consistency", "request_plus"),
    ]);
    let expected = serde_json::json!({
        "memoryQuota": 3,
        "namedArgs": {"x": 7},
        "positionalArgs": [true],
        "scan_consistency": "scan_plus",
        "timeout": "5000ms",
        "use_cbo": "false",
    });
    assert_eq!(member(&world, request, "controls"), expected);
    let without = member(&world, asked(&[("statement", "SELECT 1")]), "controls");
    assert_eq!(without, serde_json::Value::Null);
}

#[test]
fn the_request_limits_the_number_of_errors() {
    for (limit, count) in [("0", 1), ("-1", 1), ("1", 1), ("5", 1)] {
        let request = asked(&[("statement", "SELECT ABORT('x')"), ("error_limit", limit)]);
        let errors = member(&World::new(), request, "errors");
        assert_eq!(errors.as_array().map(Vec::len), Some(count), "{limit}");
    }
}

#[test]
fn a_change_outside_of_a_transaction_may_be_durable() {
    let world = World::new();
    world.add("docs", []);
    for level in ["none", "majority", "majorityAndPersistActive", "persistToMajority", ""] {
        let statement = format!("UPSERT INTO docs VALUES ('k', '{level}')");
        let request = asked(&[("statement", &statement), ("durability_level", level)]);
        assert_eq!(member(&world, request, "status"), "success", "{level}");
    }
}
