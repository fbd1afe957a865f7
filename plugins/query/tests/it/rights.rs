//! Runs each statement with the rights that it needs, and with all but one of them.

use crate::world::{World, keyspace};
use nacre_query::{Authorizer, Datastore, Keyspace, Request, Rights};
use nacre_sql::{Error, Result, Value};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

/// A right on a collection, such as `docs select`.
type Granted = BTreeSet<String>;

/// Allows the granted rights only.
struct Guard(Rc<RefCell<Granted>>);

impl Authorizer for Guard {
    fn authorize(&self, keyspace: &Keyspace, rights: Rights) -> Result<()> {
        let Rights { select, insert, update, delete } = rights;
        let kinds =
            [("select", select), ("insert", insert), ("update", update), ("delete", delete)];
        for (kind, _) in kinds.into_iter().filter(|(_, is_wanted)| *is_wanted) {
            let right = format!("{} {kind}", keyspace.collection);
            if !self.0.borrow().contains(&right) {
                return Err(Error::new(13014, format!("no {right}")));
            }
        }
        Ok(())
    }
}

/// Returns a world with the collections `docs`, `other` and `third`, with functions and prepared
/// statements.
fn world() -> (World, Rc<RefCell<Granted>>) {
    let world = World::new();
    for name in ["docs", "other", "third"] {
        world.add(name, [("k", Value::object([("n", Value::Int(1))]))]);
    }
    for statement in [
        "CREATE FUNCTION numbers() { (SELECT RAW n FROM third) }",
        "CREATE FUNCTION outer_numbers() { numbers() }",
        "PREPARE reading AS SELECT RAW n FROM docs",
        "PREPARE removing AS DELETE FROM docs WHERE n = 7",
    ] {
        world.query(statement).unwrap();
    }
    let granted = Rc::new(RefCell::default());
    world.store.set_authorizer(Guard(Rc::clone(&granted)));
    (world, granted)
}

fn documents(world: &World) -> Vec<String> {
    let scan = |name| {
        world.store.scan(&keyspace(name), None, true, 100, &Default::default()).unwrap().into_iter()
    };
    let all = ["docs", "other", "third"].into_iter().flat_map(scan);
    all.map(|document| format!("{} {:?}", document.id, document.body)).collect()
}

const MERGE: &str = "MERGE INTO docs USING other ON KEY META(other).id";

#[test]
fn a_statement_needs_the_rights_of_the_table_and_no_others() {
    let merged = |actions: &str| format!("{MERGE} {actions}");
    let update = "WHEN MATCHED THEN UPDATE SET docs.m = 1";
    let delete = "WHEN MATCHED THEN DELETE";
    let insert = "WHEN NOT MATCHED THEN INSERT {'n': 1}";
    let cases: Vec<(String, &[&str])> = vec![
        ("SELECT * FROM docs".into(), &["docs select"]),
        ("SELECT 1".into(), &[]),
        ("SELECT * FROM docs LIMIT 0".into(), &["docs select"]),
        ("SELECT * FROM system:keyspaces".into(), &[]),
        ("SELECT RAW COUNT(*) FROM docs".into(), &["docs select"]),
        ("SELECT 1 FROM docs JOIN other ON KEYS docs.k".into(), &["docs select", "other select"]),
        ("SELECT 1 FROM docs UNION SELECT 1 FROM other".into(), &["docs select", "other select"]),
        ("SELECT 1 UNION (SELECT 1 FROM other LIMIT 1)".into(), &["other select"]),
        ("WITH w AS (SELECT 1 FROM other) SELECT * FROM w".into(), &["other select"]),
        ("SELECT CASE WHEN FALSE THEN (SELECT 1 FROM other) END".into(), &["other select"]),
        ("SELECT * FROM [1] AS x WHERE EXISTS (SELECT 1 FROM third)".into(), &["third select"]),
        ("SELECT RAW numbers()".into(), &["third select"]),
        ("SELECT RAW outer_numbers()".into(), &["third select"]),
        ("EXECUTE FUNCTION numbers()".into(), &["third select"]),
        ("EXPLAIN FUNCTION numbers".into(), &["third select"]),
        ("SELECT RAW EVALUATE('SELECT 1 FROM other')".into(), &["other select"]),
        ("INFER docs".into(), &["docs select"]),
        ("EXPLAIN SELECT 1 FROM docs".into(), &["docs select"]),
        ("EXPLAIN DELETE FROM docs".into(), &["docs delete"]),
        ("ADVISE UPDATE docs SET n = 1".into(), &["docs update"]),
        ("EXECUTE reading".into(), &["docs select"]),
        ("EXECUTE removing".into(), &["docs delete"]),
        ("INSERT INTO docs VALUES ('a', 1)".into(), &["docs insert"]),
        (
            "INSERT INTO docs (KEY k, VALUE v) SELECT 'a' AS k, n AS v FROM other".into(),
            &["docs insert", "other select"],
        ),
        (
            "INSERT INTO docs VALUES ('a', (SELECT 1 FROM docs))".into(),
            &["docs insert", "docs select"],
        ),
        ("INSERT INTO docs VALUES ('a', 1) RETURNING *".into(), &["docs insert", "docs select"]),
        ("UPSERT INTO docs VALUES ('a', 1)".into(), &["docs insert", "docs update"]),
        (
            "UPSERT INTO docs VALUES ('a', 1) RETURNING RAW META().id".into(),
            &["docs insert", "docs update", "docs select"],
        ),
        ("UPDATE docs SET m = n WHERE n = 1".into(), &["docs update"]),
        ("UPDATE docs USE KEYS 'k' SET m = n".into(), &["docs update"]),
        ("UPDATE docs SET m = 1 WHERE n = 7".into(), &["docs update"]),
        ("UPDATE docs SET m = 1 RETURNING docs.n".into(), &["docs update", "docs select"]),
        ("UPDATE docs SET m = (SELECT 1 FROM other)".into(), &["docs update", "other select"]),
        ("UPDATE docs SET m = outer_numbers()".into(), &["docs update", "third select"]),
        (
            "UPDATE docs USE KEYS (SELECT RAW META(o).id FROM other o) SET m = 1".into(),
            &["docs update", "other select"],
        ),
        (
            "UPDATE docs SET x.m = 1 FOR x IN (SELECT * FROM other) END".into(),
            &["docs update", "other select"],
        ),
        (
            "UPDATE docs UNSET m WHERE n IN (SELECT RAW d.n FROM default:default._default.docs d)"
                .into(),
            &["docs update", "docs select"],
        ),
        ("DELETE FROM docs".into(), &["docs delete"]),
        ("DELETE FROM docs USE KEYS 'nothing'".into(), &["docs delete"]),
        ("DELETE FROM docs WHERE n = 1 RETURNING n".into(), &["docs delete", "docs select"]),
        (
            "DELETE FROM docs LIMIT (SELECT RAW n FROM third)[0]".into(),
            &["docs delete", "third select"],
        ),
        (merged(update), &["docs update", "other select"]),
        (merged(delete), &["docs delete", "other select"]),
        (merged(insert), &["docs insert", "other select"]),
        (merged(&format!("{update} {insert}")), &["docs update", "docs insert", "other select"]),
        (merged(&format!("{update} RETURNING *")), &["docs update", "docs select", "other select"]),
        (
            "MERGE INTO docs USING (SELECT * FROM third) AS t ON docs.n = t.third.n \
             WHEN MATCHED THEN DELETE WHERE (SELECT RAW 1 FROM other)[0] = 1"
                .into(),
            &["docs delete", "third select", "other select"],
        ),
        ("FLUSH COLLECTION docs".into(), &["docs delete"]),
    ];
    for (statement, needs) in cases {
        let needs: Granted = needs.iter().map(|&right| right.to_owned()).collect();
        for missing in &needs {
            let (world, granted) = world();
            granted.borrow_mut().extend(needs.iter().filter(|right| *right != missing).cloned());
            let before = documents(&world);
            let refused = world.query(&statement);
            let refused = refused.expect_err(&format!("{statement} without {missing}"));
            assert_eq!(refused.code, 13014, "{statement} without {missing}: {refused:?}");
            assert_eq!(documents(&world), before, "{statement}");
        }
        let (world, granted) = world();
        *granted.borrow_mut() = needs;
        let done = world.query(&statement);
        done.unwrap_or_else(|error| panic!("{statement} with all that it needs: {error:?}"));
    }
}

#[test]
fn rights_are_checked_at_each_execution_of_a_prepared_plan() {
    let (world, granted) = world();
    let execute = || {
        let mut request = Request::of("");
        request.statement = None;
        request.prepared = Some("reading".into());
        request.settings = World::request("").settings;
        world.run(request)
    };
    granted.borrow_mut().insert("docs select".into());
    assert_eq!(execute().unwrap(), [Value::Int(1)]);
    granted.borrow_mut().clear();
    assert_eq!(execute().unwrap_err().code, 13014);
}

#[test]
fn missing_keyspaces_are_reported_to_every_user() {
    let (world, _) = world();
    for statement in
        ["SELECT * FROM nowhere", "DELETE FROM nowhere", "EXPLAIN SELECT 1 FROM nowhere"]
    {
        assert_eq!(world.query(statement).unwrap_err().code, 12003, "{statement}");
    }
}
