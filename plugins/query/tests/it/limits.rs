//! Limits: depth, memory, time, and the size of results.

use crate::world::{TestPlatform, World};
use nacre_query::Request;
use nacre_sql::{Error, Result, Value};

fn refusal(result: Result<Vec<Value>>) -> Error {
    result.expect_err("this is to be refused")
}

fn world_of(count: usize) -> World {
    let world = World::new();
    let ids: Vec<String> = (0..count).map(|at| format!("d{at}")).collect();
    let value =
        |at: usize| Value::object([("n", Value::Int(at as i64)), ("text", "x".repeat(100).into())]);
    world.add("docs", ids.iter().enumerate().map(|(at, id)| (id.as_str(), value(at))));
    world
}

#[test]
fn ten_thousand_parentheses_are_refused_with_their_position() {
    let error = refusal(World::new().query(&format!(
        "SELECT {}1{}",
        "(".repeat(10_000),
        ")".repeat(10_000)
    )));
    assert_eq!(error.code, 3000);
    assert!(error.message.contains("line 1, column"), "{error}");
}

#[test]
fn deep_trees_of_every_shape_are_refused() {
    let world = World::new();
    let shapes = [
        format!("SELECT {}1{}", "1 * (1 + ".repeat(10_000), ")".repeat(10_000)),
        format!("SELECT {}1", "NOT ".repeat(10_000)),
        format!("SELECT {}1", "- ".repeat(10_000)),
        format!("SELECT {}1{}", "[".repeat(10_000), "]".repeat(10_000)),
        format!("SELECT a{} FROM [1] AS a", ".b".repeat(10_000)),
        format!("SELECT a{} FROM [1] AS a", "[0]".repeat(10_000)),
        format!("{}SELECT 1{}", "(".repeat(10_000), ")".repeat(10_000)),
        format!("SELECT {}1{}", "(SELECT ".repeat(10_000), ")".repeat(10_000)),
        format!("SELECT 1{}", " EXCEPT SELECT 1".repeat(10_000)),
        format!("SELECT {}1{}", "CASE WHEN 1 THEN ".repeat(10_000), " END".repeat(10_000)),
        format!("{}SELECT 1", "EXPLAIN ".repeat(10_000)),
        format!("SELECT {}1{}", "ABS(".repeat(10_000), ")".repeat(10_000)),
    ];
    for text in shapes {
        let error = refusal(world.query(&text));
        assert_eq!(error.code, 3000, "{}: {error}", &text[..30]);
    }
}

#[test]
fn long_rows_of_operators_are_not_deep() {
    let world = World::new();
    let sum = format!("SELECT RAW 1{}", " + 1".repeat(10_000));
    assert_eq!(world.query(&sum).unwrap(), [Value::Int(10_001)]);
    let union = format!("SELECT RAW 1{}", " UNION ALL SELECT RAW 1".repeat(1_000));
    assert_eq!(world.query(&union).unwrap().len(), 1_001);
    let once = format!("SELECT RAW 1{}", " UNION SELECT RAW 1".repeat(1_000));
    assert_eq!(world.query(&once).unwrap(), [Value::Int(1)]);
}

#[test]
fn expressions_of_the_maximum_depth_are_evaluated() {
    let text = format!("SELECT RAW {}1{}", "ABS(".repeat(150), ")".repeat(150));
    assert_eq!(World::new().query(&text).unwrap(), [Value::Int(1)]);
}

#[test]
fn many_shallow_conditions_are_allowed() {
    let many: Vec<String> = (0..5000).map(|at| format!("d.n = {at}")).collect();
    let text = format!("SELECT RAW COUNT(1) FROM docs AS d WHERE {}", many.join(" OR "));
    assert_eq!(world_of(100).query(&text).unwrap(), [Value::Int(100)]);
}

#[test]
fn a_list_of_a_million_is_searched_by_hash() {
    let mut request = World::request("SELECT RAW COUNT(1) FROM docs AS d WHERE d.n IN $list");
    let list: Vec<Value> = (0..1_000_000).map(|at| Value::Int(at * 2)).collect();
    request.settings.named.insert("list".into(), Value::array(list));
    assert_eq!(world_of(1000).run(request).unwrap(), [Value::Int(500)]);
}

#[test]
fn kept_rows_are_charged_to_the_quota() {
    let world = world_of(1000);
    for statement in [
        "SELECT * FROM docs AS d ORDER BY d.text",
        "SELECT DISTINCT d.n FROM docs AS d",
        "SELECT d.n, COUNT(1) FROM docs AS d GROUP BY d.n",
        "SELECT ARRAY_AGG(d) FROM docs AS d",
        "SELECT 1 FROM docs AS a JOIN docs AS b ON a.n = b.n",
        "SELECT ROW_NUMBER() OVER (ORDER BY d.n) FROM docs AS d",
        "SELECT ARRAY_AGG(d) OVER (ORDER BY d.n ROWS 3 PRECEDING) FROM docs AS d LIMIT 20",
        "SELECT (SELECT d.* FROM docs AS d) AS all_of_them",
    ] {
        let mut request = World::request(statement);
        request.settings.memory_quota = 10_000;
        let error = refusal(world.run(request));
        assert_eq!(error.code, 5500, "{statement}: {error}");
        assert!(world.query(statement).is_ok(), "{statement}");
    }
}

#[test]
fn a_stream_of_rows_needs_no_memory() {
    let mut request = World::request("SELECT RAW d.n FROM docs AS d WHERE d.n % 2 = 0");
    request.settings.memory_quota = 1000;
    assert_eq!(world_of(1000).run(request).unwrap().len(), 500);
}

#[test]
fn dropped_rows_are_returned_to_the_quota() {
    let world = world_of(1000);
    for (statement, rows) in [
        ("SELECT RAW d.n FROM docs AS d ORDER BY d.text, d.n DESC LIMIT 10", 10),
        ("SELECT a.n FROM docs AS a JOIN docs AS b ON KEYS META(a).id", 1000),
        ("SELECT 1 AS x EXCEPT SELECT 1 AS x FROM docs AS d", 0),
    ] {
        let mut request = World::request(statement);
        request.settings.memory_quota = 50_000;
        assert_eq!(world.run(request).unwrap().len(), rows, "{statement}");
    }
}

#[test]
fn many_rows_of_one_group_need_no_more_memory_than_one() {
    let mut request = World::request("SELECT COUNT(1) AS n FROM docs AS d GROUP BY d.n < 1000");
    request.settings.memory_quota = 1000;
    assert_eq!(world_of(1000).run(request).unwrap().len(), 1);
}

#[test]
fn a_request_ends_at_its_timeout() {
    let mut world = world_of(300);
    world.platform = TestPlatform::with_patience(50);
    let error = refusal(world.query("SELECT COUNT(1) FROM docs AS a JOIN docs AS b ON a.n != b.n"));
    assert_eq!(error.code, 1080);
}

#[test]
fn values_do_not_grow_without_bound() {
    for expr in [
        "REPEAT(\"abc\", 1000000000)",
        "ARRAY_RANGE(0, 1000000000)",
        "LPAD(\"\", 1000000000)",
        "ARRAY_REPEAT(1, 1000000000)",
    ] {
        let error = refusal(World::new().query(&format!("SELECT {expr}")));
        assert_eq!(error.code, 5500, "{expr}");
    }
}

#[test]
fn variables_that_double_are_refused_before_they_fill_the_memory() {
    for step in ["a{n} || a{n}", "CONCAT(a{n}, a{n})"] {
        let lets: Vec<String> = (0..60)
            .map(|n| format!("a{} = {}", n + 1, step.replace("{n}", &n.to_string())))
            .collect();
        let text = format!("SELECT LENGTH(a60) FROM [1] AS x LET a0 = 'abc', {}", lets.join(", "));
        assert_eq!(refusal(World::new().query(&text)).code, 5500, "{step}");
    }
    let lets: Vec<String> =
        (0..60).map(|n| format!("a{} = ARRAY_CONCAT(a{n}, a{n})", n + 1)).collect();
    let text = format!("SELECT ARRAY_LENGTH(a60) FROM [1] AS x LET a0 = [1], {}", lets.join(", "));
    assert_eq!(refusal(World::new().query(&text)).code, 5500);
}

#[test]
fn the_smallest_integer_can_be_negated() {
    let rows = World::new().query("SELECT RAW - -9223372036854775808").unwrap();
    assert_eq!(rows[0].as_f64(), Some(9_223_372_036_854_775_808.0));
}

#[test]
fn functions_that_call_themselves_are_refused() {
    let world = World::new();
    world.query("CREATE FUNCTION f(x) { f(x) }").unwrap();
    assert_eq!(refusal(world.query("SELECT f(1)")).code, 5000);
}

#[test]
fn a_read_only_request_changes_nothing() {
    let world = world_of(1);
    let mut request = World::request("DELETE FROM docs");
    request.settings.readonly = true;
    assert_eq!(refusal(world.run(request)).code, 1000);
    assert_eq!(world.query("SELECT RAW COUNT(*) FROM docs").unwrap(), [Value::Int(1)]);
}

#[test]
fn a_request_by_get_changes_nothing_and_prepares_nothing() {
    let world = world_of(1);
    let by_get = |statement: &str| World::request(statement).by_get().unwrap();
    for statement in
        ["DELETE FROM docs", "CREATE COLLECTION c", "PREPARE p AS SELECT 1", "BEGIN WORK"]
    {
        assert_eq!(refusal(world.run(by_get(statement))).code, 1000, "{statement}");
    }
    assert_eq!(world.run(by_get("SELECT RAW COUNT(*) FROM docs")).unwrap(), [Value::Int(1)]);
    let implicit = r#"statement=EXECUTE+__insert&tximplicit=true&args=["default:default._default.docs","k",1]"#;
    let implicit = |more: &str| Request::from_form([implicit, more]).unwrap();
    assert_eq!(refusal(world.run(implicit("").by_get().unwrap())).code, 1000);
    assert_eq!(refusal(world.run(implicit("readonly=true"))).code, 1000);
    let writes = Request::from_form(["statement=SELECT+1&readonly=false"]).unwrap();
    assert_eq!(writes.by_get().expect_err("it says that it writes").code, 1000);
}

#[test]
fn functions_that_call_each_other_cannot_add_up_their_depths() {
    let world = World::new();
    let body = |depth: usize| {
        format!("CREATE FUNCTION g(x) {{ {}g(x){} }}", "ABS(".repeat(depth), ")".repeat(depth))
    };
    assert_eq!(refusal(world.query(&body(100))).code, 3000);
    world.query(&body(20)).unwrap();
    let call = format!("SELECT {}g(1){}", "ABS(".repeat(150), ")".repeat(150));
    assert_eq!(refusal(world.query(&call)).code, 5000);
}

#[test]
fn recursive_queries_cannot_nest_values_without_bound() {
    let world = World::new();
    let step = format!("{}r.x{}", "[".repeat(100), "]".repeat(100));
    let text = format!(
        "WITH RECURSIVE r AS (SELECT 1 AS x UNION ALL SELECT {step} AS x FROM r) SELECT COUNT(1) FROM r"
    );
    assert_eq!(refusal(world.query(&text)).code, 5000);
}

#[test]
fn a_document_that_could_not_be_read_again_is_not_written() {
    let world = world_of(1);
    let deep =
        |depth: usize| format!("UPDATE docs SET n = {}1{}", "[".repeat(depth), "]".repeat(depth));
    assert_eq!(refusal(world.query(&deep(127))).code, 5000);
    world.query(&deep(126)).unwrap();
    assert_eq!(world.query("SELECT RAW n IS NOT MISSING FROM docs").unwrap(), [Value::Bool(true)]);
}

#[test]
fn a_long_list_over_an_index_finds_all_documents_in_either_order() {
    let world = world_of(3000);
    world.query("CREATE INDEX by_n ON docs(n)").unwrap();
    let list: Vec<Value> = (0..20_000).map(|at| Value::Int(at * 2)).collect();
    for order in ["ASC", "DESC"] {
        let text = format!("SELECT RAW d.n FROM docs AS d WHERE d.n IN $list ORDER BY d.n {order}");
        let mut request = World::request(&text);
        request.settings.named.insert("list".into(), Value::array(list.clone()));
        let mut expected: Vec<Value> = (0..1500).map(|at| Value::Int(at * 2)).collect();
        if order == "DESC" {
            expected.reverse();
        }
        assert_eq!(world.run(request).unwrap(), expected, "{order}");
    }
}
