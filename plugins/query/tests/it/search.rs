//! `SEARCH` in statements: with an index, without one, and the requests to the index.

use crate::world::World;
use nacre_query::{Keyspace, Searcher};
use nacre_sql::{Result, Value};
use std::cell::RefCell;
use std::rc::Rc;

const DOCUMENTS: [(&str, &str); 5] = [
    ("a", r#"{"t": "red wine", "n": 1}"#),
    ("b", r#"{"t": "white wine", "n": 2}"#),
    ("c", r#"{"t": "wine wine wine", "n": 3}"#),
    ("d", r#"{"t": "beer", "n": 4}"#),
    ("e", r#"{"t": "red wine wine", "n": 5}"#),
];

/// Finds documents with a word, scored by its number of occurrences; the collection `d` has an index, `e` has none.
struct Words {
    asked: Rc<RefCell<Vec<Value>>>,
}

fn hit(id: &str, text: &str, word: &str) -> Option<Value> {
    let count = text.split(' ').filter(|other| *other == word).count();
    let score = Value::Int(count as i64);
    (count > 0).then(|| Value::object([("id", Value::from(id)), ("score", score)]))
}

impl Searcher for Words {
    fn search(&self, keyspace: &Keyspace, request: &Value) -> Result<Value> {
        self.asked.borrow_mut().push(request.clone());
        let word = request.field("query");
        let word = word.as_str().unwrap_or_default();
        let empty = Value::object::<&str>([]);
        Ok(match request.field("do").as_str() {
            Some("find") if &*keyspace.collection == "d" => {
                Value::object([("index", Value::from("words"))])
            }
            Some("find") => empty,
            Some("evaluate") => {
                let (id, document) = (request.field("id"), request.field("document"));
                let text = document.field("t");
                let hit = hit(id.as_str().unwrap(), text.as_str().unwrap(), word);
                hit.map_or(empty, |hit| Value::object([("hit", hit)]))
            }
            _ => {
                let text = |(id, body): &(&'static str, &str)| {
                    (*id, Value::parse(body.as_bytes()).unwrap().field("t"))
                };
                // The index has one document that no longer exists.
                let documents = DOCUMENTS.iter().map(text).chain([("gone", "red wine".into())]);
                let mut hits: Vec<Value> = documents
                    .filter_map(|(id, text)| hit(id, text.as_str().unwrap(), word))
                    .collect();
                if request.field("by_score") == Value::Bool(true) {
                    hits.sort_by_key(|hit| -hit.field("score").as_i64().unwrap());
                }
                let after = request.field("after").as_i64().unwrap_or(0) as usize;
                let limit = request.field("limit").as_i64().unwrap() as usize;
                // The pages of this index are small.
                let end = hits.len().min(after + limit.min(2));
                let next = if end < hits.len() { Value::Int(end as i64) } else { Value::Missing };
                Value::object([("hits", Value::array(hits[after..end].to_vec())), ("after", next)])
            }
        })
    }
}

fn world() -> (World, Rc<RefCell<Vec<Value>>>) {
    let world = World::new();
    let asked = Rc::<RefCell<Vec<Value>>>::default();
    world.store.set_searcher(Words { asked: Rc::clone(&asked) });
    for collection in ["d", "e"] {
        let documents = DOCUMENTS.map(|(id, body)| (id, Value::parse(body.as_bytes()).unwrap()));
        world.add(collection, documents);
        world.query(&format!("CREATE PRIMARY INDEX ON {collection}")).unwrap();
    }
    (world, asked)
}

fn rows(world: &World, statement: &str) -> String {
    let rows = world.query(statement).unwrap_or_else(|error| panic!("{statement}: {error:?}"));
    Value::array(rows).to_json()
}

#[test]
fn a_statement_means_the_same_with_an_index_and_without() {
    let (world, _) = world();
    for (statement, expected) in [
        ("SELECT RAW META(x).id FROM $ AS x WHERE SEARCH(x.t, \"wine\")", r#"["a","b","c","e"]"#),
        ("SELECT RAW x.n FROM $ AS x WHERE SEARCH(x.t, \"wine\") AND x.n > 2", "[3,5]"),
        (
            "SELECT x.n, SEARCH_SCORE(x) AS s FROM $ AS x WHERE SEARCH(x.t, \"wine\") ORDER BY SEARCH_SCORE(x) DESC, x.n LIMIT 3",
            r#"[{"n":3,"s":3},{"n":5,"s":2},{"n":1,"s":1}]"#,
        ),
        (
            "SELECT RAW x.n FROM $ AS x WHERE SEARCH(x, \"wine\") ORDER BY SEARCH_SCORE() DESC LIMIT 2 OFFSET 1",
            "[5,1]",
        ),
        ("SELECT RAW SEARCH_META().id FROM $ AS x WHERE SEARCH(x, \"beer\")", r#"["d"]"#),
        (
            "SELECT RAW SEARCH_META(x.one).score FROM $ AS x WHERE SEARCH(x, \"red\", {\"out\": \"one\"}) AND SEARCH(x, \"wine\") ORDER BY x.n",
            "[1,1]",
        ),
        ("SELECT RAW COUNT(*) FROM $ AS x WHERE SEARCH(x, \"wine\")", "[4]"),
        (
            "SELECT RAW x.n FROM $ AS x WHERE SEARCH(x, \"wine\") OR x.n = 4 ORDER BY x.n",
            "[1,2,3,4,5]",
        ),
        ("SELECT RAW x.n FROM $ AS x WHERE NOT SEARCH(x, \"wine\")", "[4]"),
        ("SELECT RAW x FROM $ AS x WHERE SEARCH(x, \"beer\")", r#"[{"t":"beer","n":4}]"#),
        ("SELECT RAW x.n FROM $ AS x WHERE SEARCH(x, NULL)", "[]"),
        (
            "SELECT RAW [x.n, y.n] FROM $ AS x JOIN $ AS y ON y.n = x.n + 1 WHERE SEARCH(x, \"white\") AND SEARCH(y, \"wine\")",
            "[[2,3]]",
        ),
    ] {
        for collection in ["d", "e"] {
            let statement = statement.replace('$', collection);
            assert_eq!(rows(&world, &statement), expected, "{statement}");
        }
    }
}

#[test]
fn supported_conditions_are_passed_to_the_index() {
    let (world, asked) = world();
    let hits = |statement: &str| -> Vec<Value> {
        asked.borrow_mut().clear();
        world.query(statement).unwrap();
        let asked = asked.borrow();
        asked
            .iter()
            .filter(|request| request.field("do").as_str() == Some("hits"))
            .cloned()
            .collect()
    };
    let limits = |statement: &str| -> Vec<i64> {
        hits(statement).iter().map(|request| request.field("limit").as_i64().unwrap()).collect()
    };
    let search = "SELECT RAW x.n FROM d AS x WHERE SEARCH(x, \"wine\")";
    assert_eq!(limits(&format!("{search} LIMIT 2 OFFSET 1")), [3, 1], "pages have two hits");
    assert_eq!(limits(&format!("{search} ORDER BY SEARCH_SCORE() DESC LIMIT 1")), [1]);
    assert_eq!(limits(&format!("{search} LIMIT 0")), [0_i64; 0]);
    for all in ["AND x.n > 1 LIMIT 2", "ORDER BY x.n LIMIT 2", "ORDER BY SEARCH_SCORE() LIMIT 2"] {
        let limits = limits(&format!("{search} {all}"));
        assert!(limits.iter().all(|limit| *limit == 10_000), "{all}: {limits:?}");
    }
    let request = &hits(&format!("{search} ORDER BY SEARCH_SCORE() DESC"))[0];
    assert_eq!(request.field("by_score"), Value::Bool(true));
    assert_eq!(request.field("index").as_str(), Some("words"));
    assert!(hits("SELECT 1 FROM e AS x WHERE SEARCH(x, \"wine\")").is_empty());
    assert!(
        hits("SELECT 1 FROM d AS x WHERE SEARCH(x, x.t)").is_empty(),
        "it depends on the document"
    );
    assert!(hits("SELECT 1 FROM d AS x USE KEYS [\"a\"] WHERE SEARCH(x, \"wine\")").is_empty());
}

#[test]
fn an_index_that_a_statement_names_is_asked_for() {
    let (world, asked) = world();
    let preferred = |hint: &str| -> String {
        asked.borrow_mut().clear();
        world.query(&format!("SELECT 1 FROM d AS x {hint} WHERE SEARCH(x, \"wine\")")).unwrap();
        let asked = asked.borrow();
        let find = asked.iter().find(|request| request.field("do").as_str() == Some("find"));
        find.unwrap().field("options").to_json()
    };
    assert_eq!(preferred("USE INDEX (i USING FTS)"), r#"{"use_index":["i"]}"#);
    assert_eq!(preferred("USE INDEX (i USING FTS, j, k USING FTS)"), r#"{"use_index":["i","k"]}"#);
    assert_eq!(preferred("USE INDEX (i USING GSI, j)"), preferred(""));
}

/// Documents with values of several types at the same paths.
const MIXED: [(&str, &str); 5] = [
    ("a", r#"{"s": "red", "n": 1, "b": true, "tags": ["x", "y"], "items": [{"k": "p", "q": 1}]}"#),
    (
        "b",
        r#"{"s": "reed", "n": 2.5, "b": false, "tags": ["y"], "items": [{"k": "p", "q": 9}, {"k": "r", "q": 1}]}"#,
    ),
    ("c", r#"{"s": ["red"], "n": "2", "tags": []}"#),
    ("d", r#"{"s": "blue", "n": 7, "o": {"s": "red"}}"#),
    ("e", r#"{"s": "z", "n": null, "tags": "x"}"#),
];

/// Finds documents by predicates, and flattens arrays as an index does.
struct Predicates {
    asked: Rc<RefCell<Vec<Value>>>,
}

/// Collects the values at a path, also those in arrays.
fn values(value: &Value, path: &[&str], found: &mut Vec<Value>) {
    if let Some(elements) = value.as_array() {
        elements.iter().for_each(|element| values(element, path, found));
    } else if let Some((name, rest)) = path.split_first() {
        values(&value.field(name), rest, found);
    } else {
        found.push(value.clone());
    }
}

fn has(document: &Value, predicate: &Value) -> bool {
    let parts = |name: &str| predicate.field(name).as_array().map(<[Value]>::to_vec);
    if let Some(parts) = parts("and") {
        return parts.iter().all(|part| has(document, part));
    }
    if let Some(parts) = parts("or") {
        return parts.iter().any(|part| has(document, part));
    }
    let field = predicate.field("field");
    let path: Vec<&str> = field.as_str().unwrap().split('.').collect();
    let mut found = Vec::new();
    values(document, &path, &mut found);
    let (eq, prefix) = (predicate.field("eq"), predicate.field("prefix"));
    let (min, max) = (predicate.field("min"), predicate.field("max"));
    let bound = if min.is_missing() { max.clone() } else { min.clone() };
    let is_number = |value: &Value| matches!(value, Value::Int(_) | Value::Float(_));
    // An index has a range of values of one type.
    let is_of_type = |value: &Value| {
        is_number(value) && is_number(&bound)
            || value.as_str().is_some() && bound.as_str().is_some()
    };
    found.iter().any(|value| match prefix.as_str() {
        Some(prefix) => value.as_str().is_some_and(|text| text.starts_with(prefix)),
        None if !eq.is_missing() => *value == eq,
        None => {
            is_of_type(value)
                && (min.is_missing() || *value >= min)
                && (max.is_missing() || *value <= max)
        }
    })
}

impl Searcher for Predicates {
    fn search(&self, _: &Keyspace, request: &Value) -> Result<Value> {
        self.asked.borrow_mut().push(request.clone());
        if request.field("do").as_str() == Some("find") {
            let query = request.field("predicate");
            return Ok(Value::object([("index", Value::from("mixed")), ("query", query)]));
        }
        let query = request.field("query");
        let hits = MIXED.iter().filter(|(_, body)| {
            let document = Value::parse(body.as_bytes()).unwrap();
            has(&document, &query)
        });
        let hits = hits.map(|(id, _)| Value::object([("id", Value::from(*id))]));
        Ok(Value::object([("hits", Value::array(hits.collect()))]))
    }
}

fn mixed() -> (World, Rc<RefCell<Vec<Value>>>) {
    let asked = Rc::<RefCell<Vec<Value>>>::default();
    (World::searched_by(Predicates { asked: Rc::clone(&asked) }, &MIXED), asked)
}

#[test]
fn a_flexible_index_finds_what_a_statement_finds_without_it() {
    let (world, asked) = mixed();
    // Returns the requests for hits, after a comparison of the rows with those of the statement without the hint.
    let hits = |rest: &str| -> Vec<Value> {
        let statement = |hint: &str| {
            rows(
                &world,
                &format!("SELECT RAW META(x).id FROM d AS x {hint} {rest} ORDER BY META(x).id"),
            )
        };
        asked.borrow_mut().clear();
        let plain = statement("");
        assert!(asked.borrow().is_empty(), "{rest}: nobody has asked for a search");
        assert_eq!(statement("USE INDEX (USING FTS)"), plain, "{rest}");
        let asked = asked.borrow();
        let hits = asked.iter().filter(|request| request.field("do").as_str() == Some("hits"));
        hits.cloned().collect()
    };
    for condition in [
        "x.s = \"red\"",
        "\"red\" = x.s",
        "x.s IN [\"red\", \"blue\", null]",
        "x.n BETWEEN 1 AND 3",
        "x.n > 1 AND 5 > x.n",
        "ISNUMBER(x.n) AND x.n >= 2",
        "ISSTRING(x.s) AND x.s > \"r\"",
        "x.s LIKE \"re%\"",
        "x.s LIKE \"r_d\"",
        "x.s = \"red\" OR x.n = 7",
        "x.s = \"red\" AND x.b AND x.n < 5",
        "x.o.s = \"red\"",
        "x.b = true",
        "\"y\" IN x.tags",
        "ANY t IN x.tags SATISFIES t = \"x\" END",
        "ANY AND EVERY t IN x.tags SATISFIES t LIKE \"y%\" END",
        "ANY i IN x.items SATISFIES i.k = \"p\" AND i.q BETWEEN 5 AND 10 END",
    ] {
        assert_eq!(hits(&format!("WHERE {condition}")).len(), 1, "{condition}");
    }
    let unnested = hits("UNNEST x.items AS i WHERE i.k = \"r\"");
    assert_eq!(unnested[0].field("query").field("field").as_str(), Some("items.k"));
    assert_eq!(unnested[0].field("flexible"), Value::Bool(true));
    assert_eq!(unnested[0].field("limit").as_i64(), Some(256), "the first page is small");
    for condition in [
        "x.n > 1",
        "x.s < \"s\"",
        "x.s = \"\"",
        "x.n = null",
        "x.n > 1 AND x.n < \"z\"",
        "EVERY t IN x.tags SATISFIES t = \"y\" END",
        "x.s = \"red\" OR x.n IS MISSING",
        "NOT (x.s = \"red\")",
        "x.s LIKE \"%d\"",
        "x.s[0] = \"red\"",
        "x.`a.b` = 1",
    ] {
        let hits = hits(&format!("WHERE {condition}"));
        assert!(hits.is_empty(), "{condition} may be true for documents that no index finds");
    }
}

#[test]
fn a_plan_shows_the_query_for_a_flexible_index() {
    let (world, asked) = mixed();
    let statement =
        "EXPLAIN SELECT x.n FROM d AS x USE INDEX (i USING FTS) WHERE x.s = \"red\" LIMIT 5";
    let plan = world.query(statement).unwrap()[0].field("plan").to_json();
    assert!(plan.contains(r##""#operator":"IndexFtsSearch""##), "{plan}");
    assert!(plan.contains(r#"\"field\""#) && plan.contains("Filter"), "{plan}");
    let asked = asked.borrow();
    assert_eq!(asked[0].field("options").to_json(), r#"{"use_index":["i"]}"#);
    let predicate = Value::parse(br#"{"field": "s", "eq": "red"}"#).unwrap();
    assert_eq!(asked[0].field("predicate"), predicate);
}

#[test]
fn a_request_can_allow_search_indexes_for_all_statements() {
    let (world, asked) = mixed();
    let finds = |flag: bool| {
        asked.borrow_mut().clear();
        let mut request = World::request("SELECT RAW x.n FROM d AS x WHERE x.s = \"blue\"");
        request.settings.uses_search = flag;
        assert_eq!(Value::array(world.run(request).unwrap()).to_json(), "[7]");
        asked.borrow().len()
    };
    assert_eq!((finds(true), finds(false)), (2, 0), "one request for the index, and one for hits");
}

#[test]
fn a_plan_shows_the_search() {
    let (world, _) = world();
    let statement = "EXPLAIN SELECT x.n FROM d AS x WHERE SEARCH(x.t, \"wine\", {\"out\": \"o\"}) ORDER BY SEARCH_SCORE(x) DESC LIMIT 5";
    let plan = world.query(statement).unwrap()[0].field("plan");
    let first = plan.field("~children").as_array().unwrap()[0].clone();
    let wanted = Value::parse(
        br##"{"#operator":"IndexFtsSearch","as":"x","bucket":"default","keyspace":"d","namespace":"default","scope":"_default","index":"words",
            "search_info":{"field":"\"t\"","query":"\"wine\"","options":"{\"out\": \"o\"}","order":["score DESC"],"limit":"5"},"using":"fts"}"##,
    );
    assert_eq!(first, wanted.unwrap());
    let text = plan.to_json();
    assert!(!text.contains("Filter") && !text.contains("\"Order\""), "{text}");
}

#[test]
fn a_search_without_a_service_is_refused() {
    let world = World::new();
    world.add("d", []);
    let error = world.query("SELECT 1 FROM d AS x WHERE SEARCH(x, \"a\")").unwrap_err();
    assert_eq!((error.code, &*error.message), (5000, "SEARCH is not possible on this store"));
}
