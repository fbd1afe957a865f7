//! What SDKs send to look after indexes, scopes and prepared statements.

use crate::world::World;
use nacre_query::Request;
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

#[test]
fn auto_execute_prepares_and_executes() {
    let world = World::new();
    let mut request = World::request("PREPARE p AS SELECT RAW 5");
    request.auto_execute = true;
    assert_eq!(world.run(request).unwrap(), [Value::Int(5)]);
    assert_eq!(rows(&world, "EXECUTE p"), "[5]");
}

#[test]
fn a_write_while_an_index_is_read_sees_what_was_there_before() {
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
