//! Statements that SDKs send to manage indexes, scopes and prepared statements.

use crate::world::World;
use nacre_query::{AdminReply, Request, Status, admin};
use nacre_sql::Value;

fn rows(world: &World, statement: &str) -> String {
    Value::array(world.query(statement).unwrap_or_else(|error| panic!("{statement}: {error}")))
        .to_json()
}

fn code(world: &World, statement: &str) -> u32 {
    world.query(statement).expect_err(statement).code
}

const STATES: &str = "SELECT RAW [idx.name, idx.state] FROM system:indexes AS idx WHERE idx.`using` = 'gsi' ORDER BY idx.name";

#[test]
fn deferred_indexes_are_built_by_name_or_by_query() {
    let world = World::new();
    world
        .query("CREATE PRIMARY INDEX ON default:`default` USING GSI WITH {\"defer_build\": true}")
        .unwrap();
    world.query("CREATE INDEX `a` ON default:`default`(`f`) WITH {\"defer_build\": true}").unwrap();
    world.query("CREATE INDEX b ON default:`default`(g) WITH {'defer_build': true}").unwrap();
    assert_eq!(
        rows(&world, STATES),
        r##"[["#primary","deferred"],["a","deferred"],["b","deferred"]]"##
    );
    world.query("BUILD INDEX ON default:`default`(`a`)").unwrap();
    assert_eq!(
        rows(&world, STATES),
        r##"[["#primary","deferred"],["a","online"],["b","deferred"]]"##
    );
    world.query("BUILD INDEX ON default:`default`((SELECT RAW name FROM system:indexes WHERE state = 'deferred'))").unwrap();
    assert_eq!(rows(&world, STATES), r##"[["#primary","online"],["a","online"],["b","online"]]"##);
    assert_eq!(code(&world, "BUILD INDEX ON default:`default`(nowhere)"), 12016);
    assert_eq!(code(&world, "BUILD INDEX ON default:`default`(1)"), 5000);
}

/// The statement that the shell uses to complete paths once had a syntax error, which completion
/// hides.
#[test]
fn the_shell_receives_the_keyspaces() {
    let statement = include_str!("../../../../server/nacre-cli/src/sh/keyspaces.sqlpp");
    let world = World::new();
    world.add("things", []);
    let rows = world.query(statement).unwrap();
    assert!(rows.contains(&"default:default._default.things".into()), "{rows:?}");
}

#[test]
fn options_of_an_index_are_checked() {
    let world = World::new();
    for options in
        ["{'bogus': 1}", "{'defer_build': 'yes'}", "{'num_replica': 'two'}", "{'nodes': 'a'}"]
    {
        let statement = format!("CREATE INDEX a ON default:`default`(f) WITH {options}");
        assert_eq!(code(&world, &statement), 3100, "{options}");
    }
    world
        .query(
            "CREATE INDEX a ON default:`default`(f) WITH {'defer_build': false, 'num_replica': 1}",
        )
        .unwrap();
}

#[test]
fn the_number_of_replicas_of_an_index_can_be_altered() {
    let world = World::new();
    world.query("CREATE INDEX a ON default:`default`(f) PARTITION BY HASH(f)").unwrap();
    world.query("CREATE INDEX b ON default:`default`(f)").unwrap();
    let alter =
        |name: &str, with: &str| format!("ALTER INDEX {name} ON default:`default` WITH {with}");
    let copies = "SELECT RAW i.metadata.num_replica FROM system:indexes i WHERE i.name = 'a'";
    assert_eq!(rows(&world, copies), "[0]");
    world.query(&alter("a", "{'action': 'replica_count', 'num_replica': 2}")).unwrap();
    assert_eq!(rows(&world, copies), "[2]");
    for (name, with, refused) in [
        ("a", "{'action': 'replica_count', 'num_replica': 9}", 3100),
        ("a", "{'action': 'replica_count'}", 3100),
        ("a", "{'action': 'move', 'nodes': ['127.0.0.1:8091']}", 3100),
        ("a", "{'action': 'drop_replica', 'replicaId': 1}", 3100),
        ("a", "{'num_replica': 1}", 3100),
        ("b", "{'action': 'replica_count', 'num_replica': 1}", 5000),
        ("c", "{'action': 'replica_count', 'num_replica': 1}", 12016),
    ] {
        assert_eq!(code(&world, &alter(name, with)), refused, "{name} {with}");
    }
    assert_eq!(rows(&world, copies), "[2]");
    let other_form =
        "ALTER INDEX default:`default`.a WITH {'action': 'replica_count', 'num_replica': 0}";
    world.query(other_form).unwrap();
    assert_eq!(rows(&world, copies), "[0]");
}

#[test]
fn indexes_are_dropped_in_both_forms() {
    let world = World::new();
    for name in ["a", "b"] {
        world.query(&format!("CREATE INDEX {name} ON default:`default`(f)")).unwrap();
    }
    assert_eq!(code(&world, "CREATE INDEX a ON default:`default`(g)"), 4300);
    world.query("CREATE INDEX a IF NOT EXISTS ON default:`default`(g)").unwrap();
    world.query("DROP INDEX default:`default`.a").unwrap();
    world.query("DROP INDEX b ON default:`default` USING GSI").unwrap();
    assert_eq!(rows(&world, STATES), "[]");
    assert_eq!(code(&world, "DROP INDEX b ON default:`default`"), 12016);
    world.query("DROP INDEX b IF EXISTS ON default:`default`").unwrap();
}

#[test]
fn a_prepared_statement_is_executed_by_its_name() {
    let world = World::new();
    let prepared = world.query("PREPARE SELECT RAW $1 + 1").unwrap();
    let mut request = World::request("");
    request.statement = None;
    request.prepared = prepared[0].field("name").as_str().map(str::to_owned);
    request.settings.positional = vec![Value::Int(1)];
    assert_eq!(world.run(request).unwrap(), [Value::Int(2)]);
    let unknown = Request { prepared: Some("nowhere".to_owned()), ..Request::default() };
    assert_eq!(world.run(unknown).unwrap_err().code, 4040);
}

/// A name belongs to the query context in which it was prepared, as in Couchbase.
#[test]
fn a_name_is_prepared_once_in_each_query_context() {
    let world = World::new();
    let within = |context: &str, statement: &str| {
        let parameters = [("statement", statement), ("query_context", context)];
        let rows = world.run(Request::from_pairs(parameters).unwrap());
        rows.map(|rows| Value::array(rows).to_json()).map_err(|error| error.code)
    };
    let (one, other) = ("default:default._default", "default:default.other");
    within(one, "PREPARE p AS SELECT RAW 1").unwrap();
    assert_eq!(within(other, "EXECUTE p"), Err(4040));
    within(other, "PREPARE p AS SELECT RAW 2").unwrap();
    assert_eq!(within(one, "EXECUTE p"), Ok("[1]".into()));
    assert_eq!(within(other, "EXECUTE p"), Ok("[2]".into()));
    let seen = "SELECT RAW p.queryContext FROM system:prepareds AS p ORDER BY p.statement";
    assert_eq!(
        rows(&world, seen),
        r#"["`default`:`default`.`_default`","`default`:`default`.`other`"]"#
    );
    let gone = "DELETE FROM system:prepareds WHERE queryContext LIKE '%other%'";
    world.query(gone).unwrap();
    assert_eq!(within(other, "EXECUTE p"), Err(4040));
    assert_eq!(within(one, "EXECUTE p"), Ok("[1]".into()));
}

/// A plan is kept with its statement, and replaced when it is no longer valid.
#[test]
fn a_prepared_statement_follows_indexes_parameters_and_collections() {
    let world = World::new();
    let document = |a: i64| (format!("o{a}"), Value::object([("a", Value::Int(a))]));
    let documents: Vec<_> = [-1, 1, 2, 3].map(document).into();
    world.add("o", documents.iter().map(|(id, value)| (id.as_str(), value.clone())));
    world.query("PREPARE p AS SELECT RAW o.a FROM o WHERE o.a > $1 ORDER BY o.a").unwrap();
    let execute = |above: &str| {
        let parameters =
            [("prepared", "p"), ("args", above), ("query_context", "default:default._default")];
        let rows = world.run(Request::from_pairs(parameters).unwrap());
        rows.map(|rows| Value::array(rows).to_json()).map_err(|error| error.code)
    };
    let both = || (execute("[1]").unwrap(), execute("[-5]").unwrap());
    let expected = || ("[2,3]".to_owned(), "[-1,1,2,3]".to_owned());
    assert_eq!(both(), expected());
    // The index covers some values of the parameter, but not others.
    world.query("CREATE INDEX part ON o(a) WHERE a > 0").unwrap();
    assert_eq!(both(), expected());
    world.query("CREATE INDEX whole ON o(a)").unwrap();
    assert_eq!(both(), expected());
    for index in ["part", "whole"] {
        world.query(&format!("DROP INDEX {index} ON o")).unwrap();
        assert_eq!(both(), expected());
    }
    world.query("DROP COLLECTION default.`_default`.o").unwrap();
    assert_eq!(execute("[1]"), Err(12003));
}

#[test]
fn auto_execute_prepares_and_executes() {
    let world = World::new();
    let mut request = World::request("PREPARE p AS SELECT RAW 5");
    request.auto_execute = true;
    assert_eq!(world.run(request).unwrap(), [Value::Int(5)]);
    assert_eq!(rows(&world, "EXECUTE p"), "[5]");
}

#[test]
fn a_write_during_an_index_scan_sees_the_earlier_state() {
    let world = World::new();
    world.add(
        "n",
        [
            ("a", Value::parse(br#"{"v": 1}"#).unwrap()),
            ("b", Value::parse(br#"{"v": 2}"#).unwrap()),
        ],
    );
    world.query("CREATE INDEX v ON n(v)").unwrap();
    world.query("UPDATE n SET v = v + 10 WHERE v > 0").unwrap();
    assert_eq!(rows(&world, "SELECT RAW v FROM n ORDER BY v"), "[11,12]");
}

#[test]
fn prepared_statements_are_deleted_by_their_properties() {
    let world = World::new();
    for name in ["a", "b", "c"] {
        world.query(&format!("PREPARE {name} AS SELECT 1")).unwrap();
    }
    let deleted =
        "DELETE FROM system:prepareds AS p WHERE p.name IN ['a', 'c'] RETURNING RAW p.name";
    assert_eq!(rows(&world, deleted), r#"["a","c"]"#);
    assert_eq!(rows(&world, "SELECT RAW name FROM system:prepareds"), r#"["b"]"#);
    assert_eq!(code(&world, "EXECUTE a"), 4040);
    world.query("DELETE FROM system:prepareds").unwrap();
    assert_eq!(code(&world, "EXECUTE b"), 4040);
    assert_eq!(code(&world, "DELETE FROM system:namespaces"), 11003);
}

#[test]
fn another_instance_knows_prepared_statements_and_indexes() {
    let world = World::new();
    world.query("PREPARE p AS SELECT RAW 1").unwrap();
    world.query("CREATE FUNCTION f() { 1 }").unwrap();
    let other = World { service: nacre_query::Service::new(), ..world };
    assert_eq!(rows(&other, "EXECUTE p"), "[1]");
    assert_eq!(rows(&other, "SELECT RAW f()"), "[1]");
    other.query("CREATE OR REPLACE FUNCTION f() { 2 }").unwrap();
    assert_eq!(rows(&other, "SELECT RAW f()"), "[2]", "what is remembered is compared");
    let identity = "SELECT RAW [f.identity.type, f.identity.`scope`, f.identity.name] FROM system:functions AS f";
    assert_eq!(rows(&other, identity), r#"[["scope","_default","f"]]"#);
}

#[test]
fn functions_belong_to_the_cluster_or_to_a_scope() {
    let world = World::new();
    world.query("CREATE FUNCTION default:f() { 'cluster' }").unwrap();
    world.query("CREATE FUNCTION f() { 'context' }").unwrap();
    world.query("CREATE FUNCTION default:`default`.s.f() { 'scope' }").unwrap();
    let all =
        "SELECT RAW [default:f(), f(), default:`default`.`_default`.f(), default:`default`.s.f()]";
    assert_eq!(rows(&world, all), r#"[["cluster","context","context","scope"]]"#);
    world.query("DROP FUNCTION default:f").unwrap();
    assert_eq!(code(&world, "SELECT default:f()"), 10101);
    assert_eq!(rows(&world, "SELECT RAW f()"), r#"["context"]"#);
}

const ENDLESS: &str =
    "SELECT COUNT(*) FROM ARRAY_RANGE(0, 100000) AS a, ARRAY_RANGE(0, 100000) AS b";

#[test]
fn a_running_request_is_listed_and_can_be_stopped() {
    let world = World::new();
    let mut request = World::request(ENDLESS);
    request.client_context_id = Some("mine".into());
    let mut running = world.service.start(request, &world.store, &world.platform);
    let seen = "SELECT RAW [r.clientContextID, r.state, r.statement] FROM system:active_requests AS r WHERE r.clientContextID = 'mine'";
    assert_eq!(rows(&world, seen), format!(r#"[["mine","running","{ENDLESS}"]]"#));
    world.query("DELETE FROM system:active_requests WHERE clientContextID = 'mine'").unwrap();
    let mut body = String::new();
    while let Some(piece) = running.next_chunk(&world.service, &world.store, &world.platform) {
        body.push_str(&piece.into_text());
    }
    assert_eq!(running.status(), Status::Stopped);
    let body = Value::parse(body.as_bytes()).unwrap();
    assert_eq!(body.field("status"), Value::from("stopped"));
    assert_eq!(rows(&world, seen), "[]", "it has ended");
}

#[test]
fn slow_requests_are_listed_after_they_end() {
    let world = World::new();
    for (statement, ms) in [("SELECT RAW 1", 999), ("SELECT RAW 2", 1000), ("SELEC", 5000)] {
        let mut response =
            world.service.start(World::request(statement), &world.store, &world.platform);
        world.platform.now_us.set(world.platform.now_us.get() + ms * 1000);
        while response.next_chunk(&world.service, &world.store, &world.platform).is_some() {}
    }
    let kept = "SELECT r.statement, r.elapsedTime, r.resultCount, r.errorCount FROM system:completed_requests AS r ORDER BY r.elapsedTime";
    assert_eq!(
        rows(&world, kept),
        r#"[{"statement":"SELECT RAW 2","elapsedTime":"1000ms","resultCount":1,"errorCount":0},{"statement":"SELEC","elapsedTime":"5000ms","resultCount":0,"errorCount":1}]"#
    );
    let history = kept.replace("completed_requests", "completed_requests_history");
    assert_eq!(rows(&world, &history), rows(&world, kept));
    let refused = world.query("DELETE FROM system:completed_requests_history").unwrap_err();
    assert_eq!(refused.code, 11003);
    world.query("DELETE FROM system:completed_requests").unwrap();
    assert_eq!((rows(&world, kept), rows(&world, &history)), ("[]".into(), "[]".into()));
}

#[test]
fn management_over_http_has_the_same_catalogs() {
    let world = World::new();
    world.query("PREPARE p AS SELECT 1").unwrap();
    let ask = |method: &str, path: &str| {
        admin(&world.service, method, path, b"", &world.store, &world.platform)
            .map(|AdminReply { status, body }| (status, body))
    };
    let (status, body) = ask("GET", "/admin/prepareds").unwrap();
    assert!(status == 200 && body.contains(r#""name":"p""#), "{body}");
    assert_eq!(ask("GET", "/admin/prepareds/q").unwrap().0, 404);
    assert_eq!(ask("DELETE", "/admin/prepareds").unwrap().0, 405);
    assert_eq!(ask("DELETE", "/admin/prepareds/p"), Some((200, "true".into())));
    assert_eq!(ask("GET", "/admin/prepareds"), Some((200, "[]".into())));
    assert_eq!(
        ask("GET", "/admin/settings"),
        Some((200, r#"{"completed-threshold":1000,"timeout":0}"#.into()))
    );
    assert_eq!(ask("GET", "/admin/nothing"), None);
}

#[test]
fn the_timeout_setting_is_accepted_or_refused_as_a_whole() {
    let world = World::new();
    let call = |method: &str, body: &str| {
        let reply = admin(
            &world.service,
            method,
            "/admin/settings",
            body.as_bytes(),
            &world.store,
            &world.platform,
        );
        let reply = reply.unwrap();
        (reply.status, nacre_sql::Value::parse(reply.body.as_bytes()).unwrap())
    };
    assert_eq!(call("GET", "").1.field("timeout").as_i64(), Some(0));
    let (status, told) = call("POST", r#"{"timeout": 5000000000}"#);
    assert_eq!((status, told.field("timeout").as_i64()), (200, Some(5_000_000_000)));
    for (body, code) in [
        ("{", 2220),
        ("[]", 2220),
        (r#"{"timeout": "soon"}"#, 2032),
        (r#"{"timeout": -1}"#, 2032),
        (r#"{"timeout": 0, "other": 1}"#, 2031),
    ] {
        let (status, told) = call("POST", body);
        assert_eq!((status, told.field("code").as_i64()), (400, Some(code)), "{body}");
    }
    assert_eq!(call("GET", "").1.field("timeout").as_i64(), Some(5_000_000_000));
    assert_eq!(call("POST", r#"{"timeout": 0}"#).1.field("timeout").as_i64(), Some(0));
}
