//! Plans: index selection, covering and sorting.

use crate::world::World;
use nacre_sql::Value;

/// Appends the operators of a plan, each with its index.
fn outline(plan: &Value, depth: usize, out: &mut String) {
    let Some(fields) = plan.as_object() else {
        plan.as_array().unwrap_or_default().iter().for_each(|child| outline(child, depth, out));
        return;
    };
    if let Some(name) = plan.field("#operator").as_str() {
        let detail = |field: &str| match plan.field(field) {
            Value::Missing => String::new(),
            value => format!(" {field}={value}"),
        };
        let details: String = ["index", "reverse", "covers", "spans", "condition", "keys"]
            .iter()
            .map(|f| detail(f))
            .collect();
        out.push_str(&format!("{}{name}{details}\n", "  ".repeat(depth)));
    }
    for name in ["~children", "~child", "scan", "scans", "first", "second"] {
        if let Some(child) = fields.get(name) {
            outline(child, depth + 1, out);
        }
    }
}

fn plans(indexes: &[&str], statements: &[&str]) -> String {
    let world = World::new();
    world.add("o", [("o1", Value::parse(br#"{"a": 1}"#).unwrap())]);
    world.add("c", []);
    for index in indexes {
        world.query(index).unwrap();
    }
    let mut out = String::new();
    for statement in statements {
        out.push_str(&format!("# {statement}\n"));
        outline(
            &world.query(&format!("EXPLAIN {statement}")).unwrap()[0].field("plan"),
            0,
            &mut out,
        );
    }
    out
}

#[test]
fn a_function_is_explained_by_its_queries() {
    let world = World::new();
    world.add("o", []);
    for statement in [
        "CREATE INDEX one ON o(a)",
        "CREATE FUNCTION f(x) { (SELECT RAW b FROM o WHERE a = x AND c IN (SELECT RAW d FROM o AS p)) }",
        "CREATE FUNCTION g(x) { f(x) + 1 }",
        "CREATE FUNCTION h(x) LANGUAGE JAVASCRIPT AS \"function h(x) {\\n return N1QL('SELECT 1'); }\"",
    ] {
        world.query(statement).unwrap();
    }
    let explained =
        |name: &str| world.query(&format!("EXPLAIN FUNCTION {name}")).unwrap()[0].clone();
    let row = explained("f");
    assert_eq!(row.field("function"), "default:default._default.f".into());
    let mut out = String::new();
    for plan in row.field("plans").as_array().unwrap() {
        out.push_str(&format!("# {}\n", plan.field("statement")));
        outline(&plan.field("plan"), 0, &mut out);
    }
    insta::assert_snapshot!(out, @r##"
    # "select raw (`o`.`b`) from `o` as `o` where (((`o`.`a`) = `x`) and ((`o`.`c`) in (select raw (`p`.`d`) from `o` as `p`)))"
    Sequence
      IndexScan3 index="one" spans=[{"exact":true,"range":[{"high":"`x`","inclusion":3,"index_key":"`a`","low":"`x`"}]}]
      Fetch
      Filter condition="(((`o`.`a`) = `x`) and ((`o`.`c`) in (select raw (`p`.`d`) from `o` as `p`)))"
      InitialProject
    # "select raw (`p`.`d`) from `o` as `p`"
    Sequence
      SequentialScan
      InitialProject
    "##);
    insta::assert_snapshot!(explained("g"), @r#"{"function":"default:default._default.g","plans":[]}"#);
    insta::assert_snapshot!(explained("h"), @r#"{"function":"default:default._default.h","line_numbers":[2]}"#);
    assert_eq!(world.query("EXPLAIN FUNCTION nosuch").unwrap_err().code, 10101);
    assert!(world.query("EXPLAIN FUNCTION f(1)").is_err(), "nothing is called");
}

#[test]
fn the_index_with_the_longest_prefix_is_taken() {
    insta::assert_snapshot!(plans(
        &[
            "CREATE INDEX one ON o(a)",
            "CREATE INDEX two ON o(a, b)",
            "CREATE INDEX part ON o(c) WHERE a = 1"
        ],
        &[
            "SELECT * FROM o WHERE a = 1",
            "SELECT * FROM o WHERE a = 1 AND b > 2",
            "SELECT * FROM o WHERE a = 1 AND c = 2",
            "SELECT * FROM o WHERE c = 2",
            "SELECT a FROM o WHERE a = 1",
            "SELECT a, b, META().id FROM o WHERE a > 1 AND b = 3",
            "SELECT * FROM o WHERE a = 1 OR c = 2",
            "SELECT * FROM o WHERE a = 1 OR a LIKE 'x%'",
            "SELECT * FROM o USE INDEX (one) WHERE a = 1 AND b > 2",
        ],
    ));
}

#[test]
fn order_is_taken_from_an_index_that_has_it() {
    insta::assert_snapshot!(plans(
        &["CREATE INDEX ab ON o(a, b DESC)"],
        &[
            "SELECT * FROM o WHERE a > 1 ORDER BY a LIMIT 5",
            "SELECT * FROM o WHERE a > 1 ORDER BY a DESC",
            "SELECT * FROM o WHERE a = 1 ORDER BY b DESC",
            "SELECT * FROM o WHERE a > 1 ORDER BY a, b",
            "SELECT * FROM o WHERE a IN [1, 2] ORDER BY b",
        ],
    ));
}

#[test]
fn a_covering_index_is_preferred_to_an_ordered_one_and_that_to_others() {
    insta::assert_snapshot!(plans(
        &[
            "CREATE INDEX c1 ON o(customer)",
            "CREATE INDEX c2 ON o(customer, total)",
            "CREATE INDEX s1 ON o(state)",
            "CREATE INDEX i1 ON o(customer, total DESC) WHERE state = 'paid'",
        ],
        &[
            "SELECT total FROM o WHERE customer = 'c007'",
            "SELECT * FROM o WHERE customer = 'c007' ORDER BY total LIMIT 2",
            "SELECT customer, SUM(total) AS t FROM o WHERE customer >= 'c' GROUP BY customer",
            "SELECT * FROM o WHERE customer = 'c007' AND state = 'paid' ORDER BY total DESC LIMIT 2",
            "SELECT total, state FROM o WHERE customer = 'c007' AND state = 'paid'",
            "SELECT * FROM o WHERE customer = 'c007' AND state = 'open'",
            "SELECT * FROM o USE INDEX (c1) WHERE state = 'paid'",
        ],
    ));
}

#[test]
fn an_index_of_all_documents_is_scanned_in_full_where_useful() {
    insta::assert_snapshot!(plans(
        &[
            "CREATE INDEX d1 ON o(day INCLUDE MISSING)",
            "CREATE INDEX open ON o(total INCLUDE MISSING) WHERE state = 'open'",
            "CREATE PRIMARY INDEX ON c",
        ],
        &[
            "SELECT day FROM o ORDER BY day LIMIT 2",
            "SELECT * FROM o ORDER BY day DESC LIMIT 2",
            "SELECT * FROM o ORDER BY day",
            "SELECT * FROM o WHERE day IS MISSING",
            "SELECT * FROM o WHERE state = 'open'",
            "SELECT total FROM o WHERE state = 'open'",
            "SELECT * FROM o USE INDEX (d1) WHERE state = 'open'",
            "SELECT RAW META().id FROM c ORDER BY META().id DESC LIMIT 2",
            "SELECT COUNT(1) FROM c",
            "SELECT COUNT(*) FROM c WHERE TRUE",
            "SELECT COUNT(*), COUNT(DISTINCT 1) FROM c",
        ],
    ));
}

#[test]
fn min_and_max_are_read_from_the_ends_of_an_index() {
    insta::assert_snapshot!(plans(
        &["CREATE INDEX ab ON o(a, b)"],
        &[
            "SELECT MIN(a) AS least FROM o",
            "SELECT RAW MAX(b) FROM o WHERE a = 1",
            "SELECT RAW MAX(b) FROM o WHERE a > 1",
            "SELECT RAW MIN(a) FROM o WHERE c = 1",
        ],
    ));
}

#[test]
fn the_plan_of_a_change_shows_its_effect() {
    let world = World::new();
    world.add("o", []);
    let steps = |statement: &str| {
        let plan = world.query(&format!("EXPLAIN {statement}")).unwrap()[0].field("plan");
        let steps = plan.field("~children").as_array().unwrap()[1..].to_vec();
        steps.iter().map(|step| format!("{step}\n")).collect::<String>()
    };
    insta::assert_snapshot!(steps("UPDATE o SET a = 1 UNSET b WHERE c = 2 LIMIT 3"), @r##"
    {"#operator":"Filter","condition":"((`o`.`c`) = 2)"}
    {"#operator":"Limit","expr":"3"}
    {"#operator":"Set","set_terms":[{"path":"(`o`.`a`)","value":"1"}]}
    {"#operator":"Unset","unset_terms":[{"path":"(`o`.`b`)"}]}
    {"#operator":"SendUpdate","alias":"o","bucket":"default","keyspace":"o","namespace":"default","scope":"_default","limit":"3"}
    "##);
    insta::assert_snapshot!(steps("DELETE FROM o AS x WHERE x.c = 2"), @r##"
    {"#operator":"Filter","condition":"((`x`.`c`) = 2)"}
    {"#operator":"SendDelete","alias":"x","bucket":"default","keyspace":"o","namespace":"default","scope":"_default"}
    "##);
}

#[test]
fn a_right_join_is_a_left_join_of_the_other_side() {
    insta::assert_snapshot!(plans(
        &["CREATE INDEX a ON o(a)", "CREATE INDEX city ON c(city)"],
        &[
            "SELECT * FROM o AS o RIGHT JOIN c AS c ON o.a = c.a WHERE c.city = 'x'",
            "SELECT * FROM o AS o RIGHT JOIN c AS c ON o.b = c.b",
            "SELECT * FROM o AS o JOIN c AS c ON o.b = c.b RIGHT JOIN c AS d ON d.b = o.b",
        ],
    ));
}

#[test]
fn ungrouped_expressions_are_refused_with_an_index_too() {
    let world = World::new();
    world.add("o", []);
    let statement = "SELECT total FROM o WHERE customer = 'c' GROUP BY customer";
    for index in [None, Some("CREATE INDEX c2 ON o(customer, total)")] {
        index.map(|index| world.query(index).unwrap());
        assert_eq!(world.query(statement).unwrap_err().code, 4210);
    }
}

#[test]
fn operands_of_or_that_read_whole_indexes_do_not_replace_one_that_covers() {
    insta::assert_snapshot!(plans(
        &["CREATE INDEX abc ON o(a, b, c)"],
        &["SELECT a, b, c FROM o WHERE a IS NOT NULL AND (b = 1 OR c = 2) ORDER BY a LIMIT 10"],
    ), @r#"
    # SELECT a, b, c FROM o WHERE a IS NOT NULL AND (b = 1 OR c = 2) ORDER BY a LIMIT 10
    Sequence
      IndexScan3 index="abc" covers=["cover ((`o`.`a`))","cover ((`o`.`b`))","cover ((`o`.`c`))"] spans=[{"exact":true,"range":[{"inclusion":0,"index_key":"`a`","low":"null"}]}]
      Filter condition="((not (cover ((`o`.`a`)) is null)) and ((cover ((`o`.`b`)) = 1) or (cover ((`o`.`c`)) = 2)))"
      InitialProject
      Limit
    "#);
}

#[test]
fn a_primary_index_has_the_documents_by_id() {
    insta::assert_snapshot!(plans(
        &["CREATE PRIMARY INDEX ON o"],
        &[
            "SELECT * FROM o WHERE META().id >= 'o' ORDER BY META().id LIMIT 5",
            "SELECT META().id FROM o WHERE META().id LIKE 'o%' ORDER BY META().id DESC",
            "SELECT * FROM o WHERE META().id BETWEEN 'a' AND 'b' OR META().id = 'c'",
            "SELECT * FROM o WHERE META().id != 'a'",
        ],
    ));
}

#[test]
fn arrays_keys_and_joins() {
    insta::assert_snapshot!(plans(
        &[
            "CREATE INDEX tag ON o(DISTINCT ARRAY t.name FOR t IN tags END)",
            "CREATE INDEX city ON c(city)",
            "CREATE PRIMARY INDEX ON o",
        ],
        &[
            "SELECT * FROM o WHERE ANY t IN tags SATISFIES t.name = 'x' END",
            "SELECT * FROM o AS o UNNEST o.tags AS u WHERE u.name = 'x'",
            "SELECT * FROM o WHERE META().id = 'o1'",
            "SELECT * FROM o USE KEYS ['o1']",
            "SELECT * FROM o WHERE d = 1",
            "SELECT COUNT(*) FROM o",
            "SELECT * FROM o AS o JOIN c AS c ON c.city = o.city",
            "SELECT * FROM o AS o JOIN c AS c USE HASH(BUILD) ON c.city = o.city",
            "SELECT * FROM o AS o JOIN c AS c ON c.x = o.city",
            "SELECT * FROM o AS o JOIN c AS c ON META(c).id = o.c",
            "SELECT * FROM o AS o NEST c AS c ON KEYS o.cs",
            "SELECT o.a, COUNT(*) FROM o AS o GROUP BY o.a HAVING COUNT(*) > 1 ORDER BY o.a",
            "SELECT 1 UNION SELECT DISTINCT 2",
            "SELECT ROW_NUMBER() OVER (ORDER BY o.a) AS n FROM o AS o LIMIT 1",
        ],
    ));
}

#[test]
fn flattened_and_nested_array_keys_are_requested_as_parts() {
    insta::assert_snapshot!(plans(
        &[
            "CREATE INDEX flat ON o(DISTINCT ARRAY FLATTEN_KEYS(r.a, r.b DESC) FOR r IN rs END, n)",
            "CREATE INDEX nested ON o(DISTINCT ARRAY (DISTINCT ARRAY w FOR w IN v END) FOR v IN b END)",
        ],
        &[
            "SELECT RAW n FROM o WHERE ANY r IN rs SATISFIES r.a = 1 AND r.b > 2 END",
            "SELECT RAW n FROM o WHERE ANY r IN rs SATISFIES r.a = 1 END AND n = 3",
            "SELECT RAW n FROM o WHERE ANY r IN rs SATISFIES r.b = 1 END",
            "SELECT RAW n FROM o WHERE ANY v IN b SATISFIES (ANY w IN v SATISFIES w = 1 END) END",
        ],
    ));
}

#[test]
fn a_hint_at_the_left_of_a_right_join_does_not_undo_the_hash_join() {
    let statement = "FROM o %HINT% RIGHT JOIN c ON c.k = o.k SELECT RAW c.k";
    let with = |hint: &str| plans(&[], &[&statement.replace("%HINT%", hint)]);
    let outline = |plan: String| plan.lines().skip(1).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(outline(with("USE HASH(PROBE)")), outline(with("")));
    assert!(with("USE HASH(BUILD)").contains("HashJoin"), "{}", with("USE HASH(BUILD)"));
}

#[test]
fn explain_reports_the_followed_hints() {
    let world = World::new();
    world.add("o", []);
    world.query("CREATE INDEX oa ON o(a)").unwrap();
    world.query("CREATE INDEX ob ON o(b)").unwrap();
    let told = |hints: &str| {
        let statement = format!(
            "EXPLAIN SELECT /*+ {hints} */ 1 FROM o AS x JOIN o AS y ON x.k = y.k WHERE x.a = 1 AND x.b = 2"
        );
        world.query(&statement).unwrap()[0].field("optimizer_hints").to_json()
    };
    for (hints, expected) in [
        ("INDEX(x ob)", r#"{"hints_followed":["INDEX(x ob)"]}"#),
        ("INDEX(x nosuch)", r#"{"hints_not_followed":["INDEX(x nosuch)"]}"#),
        ("USE_HASH(y) ORDERED", r#"{"hints_followed":["USE_HASH(y)","ORDERED"]}"#),
        ("USE_NL(y)", r#"{"hints_followed":["USE_NL(y)"]}"#),
        ("USE_HASH(z)", r#"{"hints_not_followed":["USE_HASH(z)"]}"#),
        ("GO FASTER", r#"{"invalid_hints":["GO FASTER"]}"#),
        (
            r#"{"index": {"keyspace": "x", "indexes": ["oa"]}}"#,
            r#"{"hints_followed":["{\"index\":{\"keyspace\":\"x\",\"indexes\":[\"oa\"]}}"]}"#,
        ),
    ] {
        assert_eq!(told(hints), expected, "{hints}");
    }
    let plain = world.query("EXPLAIN SELECT 1 FROM o").unwrap()[0].field("optimizer_hints");
    assert!(plain.is_missing());
}
