//! Plans by cost: when statistics are used, and when plans made with them are valid.

use crate::world::World;
use nacre_query::Request;
use nacre_sql::Value;

const STATEMENT: &str = "SELECT RAW META(d).id FROM o AS d WHERE d.a = 1 AND d.b < 6";

/// 400 documents, of which `a` selects half and `b` few, with indexes on both.
fn world() -> World {
    let world = World::new();
    let document = |n: i64| {
        let value = Value::object([("a", Value::Int(n % 2)), ("b", Value::Int(n))]);
        (format!("o{n}"), value)
    };
    let documents: Vec<(String, Value)> = (0..400).map(document).collect();
    world.add("o", documents.iter().map(|(id, value)| (id.as_str(), value.clone())));
    for statement in ["CREATE INDEX by_a ON o(a)", "CREATE INDEX by_b ON o(b)"] {
        world.query(statement).unwrap();
    }
    world
}

/// Returns the index that a request used, from its profile.
fn index_of(world: &World, mut request: Request) -> String {
    request.profile = "timings".to_owned();
    let mut response = world.service.start(request, &world.store, &world.platform);
    let mut body = String::new();
    while let Some(piece) = response.next_chunk(&world.service, &world.store, &world.platform) {
        body.push_str(&piece.into_text());
    }
    let answer = Value::parse(body.as_bytes()).unwrap();
    let plan = answer.field("profile").field("executionTimings");
    let scan = plan.field("~children").element(0);
    assert_eq!(answer.field("results").as_array().unwrap().len(), 3, "{body}");
    scan.field("index").as_str().unwrap().to_owned()
}

fn prepared() -> Request {
    let mut request = Request::from_pairs([("query_context", "default:default._default")]).unwrap();
    request.prepared = Some("p".to_owned());
    request
}

#[test]
fn a_request_can_select_the_rule_based_optimizer() {
    let world = world();
    world.query("UPDATE STATISTICS FOR o(a, b)").unwrap();
    assert_eq!(index_of(&world, World::request(STATEMENT)), "by_b");
    let mut by_rules = World::request(STATEMENT);
    let pairs = [("use_cbo", "false"), ("query_context", "default:default._default")];
    by_rules.settings = Request::from_pairs(pairs).unwrap().settings;
    assert_eq!(index_of(&world, by_rules.clone()), "by_a");
    by_rules.settings = Request::from_pairs([("use_cbo", "true"), pairs[1]]).unwrap().settings;
    assert_eq!(index_of(&world, by_rules), "by_b");
    assert_eq!(Request::from_pairs([("use_cbo", "perhaps")]).unwrap_err().code, 1070);
}

#[test]
fn a_prepared_plan_expires_with_its_statistics() {
    let world = world();
    world.query(&format!("PREPARE p AS {STATEMENT}")).unwrap();
    let index = || index_of(&world, prepared());
    assert_eq!([index(), index()], ["by_a", "by_a"]);
    world.query("UPDATE STATISTICS FOR o(a, b)").unwrap();
    assert_eq!([index(), index()], ["by_b", "by_b"]);
    world.query("UPDATE STATISTICS FOR o DELETE (a)").unwrap();
    assert_eq!([index(), index()], ["by_a", "by_a"]);
    world.query("ANALYZE KEYSPACE o(a)").unwrap();
    assert_eq!([index(), index()], ["by_b", "by_b"]);
    world.query("UPDATE STATISTICS FOR o DELETE ALL").unwrap();
    assert_eq!([index(), index()], ["by_a", "by_a"]);
}

/// A plan that is made by rules is not reused by requests with costs.
#[test]
fn a_prepared_plan_by_rules_is_for_one_request() {
    let world = world();
    world.query("UPDATE STATISTICS FOR o(a, b)").unwrap();
    world.query(&format!("PREPARE p AS {STATEMENT}")).unwrap();
    let mut by_rules = prepared();
    by_rules.settings.ignores_costs = true;
    assert_eq!(index_of(&world, by_rules.clone()), "by_a");
    assert_eq!(index_of(&world, prepared()), "by_b");
    assert_eq!(index_of(&world, by_rules), "by_a");
}

/// The store repeats the statement, so a row has the texts of the keys that are left, and the last options.
#[test]
fn statistics_have_the_keys_and_options_of_their_statement() {
    let world = world();
    world.query("UPDATE STATISTICS FOR o(a, DISTINCT ARRAY t FOR t IN b END)").unwrap();
    world.query("UPDATE STATISTICS FOR o(b) WITH {\"sample_size\": 300}").unwrap();
    let refresh = || {
        let notes = nacre_query::Datastore::notes(&world.store);
        let row = notes.recall("statistics/default/_default/o").unwrap();
        Value::parse(row.as_bytes()).unwrap().field("refresh")
    };
    let keys = |refresh: &Value| {
        let keys = refresh.field("keys");
        let texts =
            keys.as_object().unwrap().values().map(|text| text.as_str().unwrap().to_owned());
        texts.collect::<Vec<_>>()
    };
    let known = refresh();
    assert_eq!(known.field("with").field("sample_size"), Value::Int(300));
    let repeated = format!("UPDATE STATISTICS FOR o({})", keys(&known).join(", "));
    world.query("UPDATE STATISTICS FOR o DELETE ALL").unwrap();
    world.query(&repeated).unwrap();
    assert_eq!(keys(&refresh()), keys(&known), "{repeated}");
    world.query("UPDATE STATISTICS FOR o DELETE (a)").unwrap();
    assert_eq!(keys(&refresh()).len(), 2);
    let shown = world.query("SELECT RAW OBJECT_NAMES(d) FROM system:dictionary AS d").unwrap();
    assert!(!shown[0].to_json().contains("refresh"), "{shown:?}");
}

#[test]
fn unreadable_statistics_are_ignored() {
    let world = world();
    world.query("UPDATE STATISTICS FOR o(a, b)").unwrap();
    let key = "statistics/default/_default/o";
    for damaged in ["", "7", r#"{"docCount": "many"}"#] {
        nacre_query::Datastore::notes(&world.store).note(key, Some(damaged));
        let stamp = format!("{key}/stamp");
        nacre_query::Datastore::notes(&world.store).note(&stamp, Some(damaged));
        assert_eq!(index_of(&world, World::request(STATEMENT)), "by_a", "{damaged}");
    }
    assert_eq!(world.query("SELECT * FROM system:dictionary").unwrap(), []);
}
