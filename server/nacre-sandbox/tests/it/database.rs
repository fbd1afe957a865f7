//! The database as seen by queries: granted only to the query service, and available only while a request is
//! answered.

use crate::fixture::*;
use nacre_sandbox::{
    Consistency, Database, DatabaseIndex, DatabaseKeyspace, DatabaseRights, Definition, Error,
    Failure, FunctionPath, Grants, IndexPage, IndexScan, IndexedRows, Limits, Mutation, Reader,
    Request, Row, RowRefusal, Setup, TransactionStep,
};
use std::sync::Arc;
use std::time::Duration;

/// One collection with documents `k0`, `k1`, …, and optionally an index on them. It cannot be changed.
#[derive(Default)]
struct Fixed {
    documents: usize,
    is_indexed: bool,
    /// Number of bytes in each document in addition to its ID.
    padding: usize,
    /// A document that is not an object: its ID, its body, and true if the body is JSON.
    odd: Option<(&'static str, &'static str, bool)>,
}

fn forbidden<T>() -> Result<T, Failure> {
    Err(Failure { code: 13014, message: "only to be read".into(), retry: false })
}

impl Database for Fixed {
    fn check(&self, keyspace: &DatabaseKeyspace) -> Result<(), Failure> {
        match keyspace.bucket.as_str() {
            "b" => Ok(()),
            other => Err(Failure { code: 12003, message: format!("no {other}"), retry: false }),
        }
    }

    fn version(&self) -> u64 {
        0
    }

    fn indexes(&self, _: &DatabaseKeyspace) -> Result<Vec<DatabaseIndex>, Failure> {
        let definition = "CREATE PRIMARY INDEX ON b".to_owned();
        let index = DatabaseIndex { id: "1".repeat(32), definition, online: true };
        Ok(self.is_indexed.then_some(index).into_iter().collect())
    }

    fn fetch(
        &self,
        _: &DatabaseKeyspace,
        ids: &[String],
        _: Duration,
    ) -> Result<Vec<Option<Row>>, Failure> {
        let row = |id: &String| {
            let padding = "x".repeat(self.padding);
            let (body, is_json) = match self.odd {
                Some((odd, body, is_json)) if odd == id => (body.to_owned(), is_json),
                _ => (format!("{{\"id\":\"{id}\", \"padding\":\"{padding}\"}}"), true),
            };
            let body = body.into_bytes().into();
            Some(Row { id: id.clone(), body, cas: 7, is_json, ..Row::default() })
        };
        Ok(ids.iter().map(row).collect())
    }

    fn scan(
        &self,
        keyspace: &DatabaseKeyspace,
        after: Option<&str>,
        _: bool,
        limit: usize,
        _: &Consistency,
        left: Duration,
    ) -> Result<Vec<Row>, Failure> {
        let first = after.map_or(0, |id| id[1..].parse::<usize>().unwrap() + 1);
        let ids: Vec<_> =
            (first..self.documents.min(first + limit)).map(|n| format!("k{n}")).collect();
        Ok(self.fetch(keyspace, &ids, left)?.into_iter().flatten().collect())
    }

    fn scan_index(&self, _: &IndexScan, _: Duration) -> Result<IndexPage, Failure> {
        forbidden()
    }

    fn scan_documents(&self, scan: &IndexScan, left: Duration) -> Result<IndexedRows, Failure> {
        // The key of an entry is the number of its document, and a scan continues with the next key.
        let last =
            scan.spans[0].start.strip_suffix(&[0]).and_then(|last| str::from_utf8(last).ok());
        let first = last.and_then(|last| last.parse::<usize>().ok()).map_or(0, |last| last + 1);
        let end = self.documents.min(first + scan.limit);
        let ids: Vec<_> = (first..end).map(|n| format!("k{n}")).collect();
        let rows = self.fetch(&DatabaseKeyspace::default(), &ids, left)?.into_iter().flatten();
        let last = (first < end).then(|| (end - 1).to_string().into_bytes());
        Ok(IndexedRows { rows: rows.collect(), last, is_whole: end == self.documents })
    }

    fn count(&self, _: &DatabaseKeyspace) -> Result<u64, Failure> {
        Ok(self.documents as u64)
    }

    fn authorize(&self, _: &DatabaseKeyspace, rights: DatabaseRights) -> Result<(), Failure> {
        let only_select = DatabaseRights { select: true, ..DatabaseRights::default() };
        if rights == only_select { Ok(()) } else { forbidden() }
    }

    fn mutate(
        &self,
        _: &DatabaseKeyspace,
        _: Vec<Mutation>,
        _: Duration,
    ) -> Result<Vec<Result<u64, RowRefusal>>, Failure> {
        forbidden()
    }

    fn transact(&self, _: TransactionStep, _: Duration) -> Result<String, Failure> {
        forbidden()
    }

    fn staged(&self, _: &DatabaseKeyspace) -> Result<Vec<(String, Option<Row>)>, Failure> {
        Ok(Vec::new())
    }

    fn define(&self, _: &Definition) -> Result<(), Failure> {
        forbidden()
    }

    fn function(&self, _: &FunctionPath) -> Result<Option<String>, Failure> {
        Ok(None)
    }

    fn call_function(
        &self,
        _: &FunctionPath,
        _: &str,
        _: bool,
        _: Duration,
    ) -> Result<String, Failure> {
        forbidden()
    }

    fn functions(&self) -> Result<Vec<(FunctionPath, String)>, Failure> {
        Ok(Vec::new())
    }

    fn user(&self) -> String {
        "ann".into()
    }

    fn catalog(&self, _: &str) -> Result<Option<Vec<(String, String)>>, Failure> {
        Ok(None)
    }

    fn clock_us(&self) -> u64 {
        1_700_000_000_000_000
    }

    fn chance(&self) -> u64 {
        4
    }

    fn recall(&self, _: &str) -> Option<Vec<u8>> {
        None
    }

    fn note(&self, _: &str, _: Option<Vec<u8>>) {}

    fn notes(&self, _: &str) -> Result<Vec<String>, Failure> {
        Ok(Vec::new())
    }
}

fn query(statement: &str) -> Request {
    Request {
        method: "POST".into(),
        path: "/query/service".into(),
        headers: vec![("content-type".into(), "application/json".into())],
        body: serde_json::json!({"statement": statement}).to_string().into_bytes(),
        ..Request::default()
    }
}

fn open(database: bool) -> Result<Reader, Error> {
    let grants = Grants { database, ..Grants::own() };
    Reader::stateless(plugin("query"), Setup { grants, ..Setup::new("query", "{}") })
}

fn answer(reader: &Reader, statement: &str, documents: usize) -> serde_json::Value {
    let database = Arc::new(Fixed { documents, ..Fixed::default() });
    let answer = reader.handle_with(&query(statement), NOW, database, None).unwrap();
    serde_json::from_slice(&answer.collect().unwrap().body).unwrap()
}

#[test]
fn queries_see_the_database_of_their_request() {
    let reader = open(true).unwrap();
    let statement = "SELECT RAW id FROM b WHERE META().cas = 7 ORDER BY id DESC LIMIT 2";
    let rows = answer(&reader, statement, 3);
    assert_eq!(rows["results"], serde_json::json!(["k2", "k1"]));
    assert_eq!(answer(&reader, "SELECT RAW COUNT(*) FROM b", 5)["results"][0], 5);
    for (statement, code) in [
        ("SELECT * FROM nowhere", 12003),
        ("DELETE FROM b", 13014),
        ("EXPLAIN UPSERT INTO b VALUES ('k', 1)", 13014),
        ("CREATE INDEX i ON b(x)", 13014),
        ("SELEC", 3000),
    ] {
        assert_eq!(answer(&reader, statement, 1)["errors"][0]["code"], code, "{statement}");
    }
}

#[test]
fn a_large_answer_comes_in_pieces() {
    let reader = open(true).unwrap();
    let database = Arc::new(Fixed { documents: 20_000, ..Fixed::default() });
    let statement = query("SELECT META().id, b.* FROM b");
    let mut answer = reader.handle_with(&statement, NOW, database, None).unwrap();
    let mut pieces = Vec::new();
    while let Some(piece) = answer.next_piece().unwrap() {
        pieces.push(piece);
    }
    assert!(pieces.len() > 5, "{}", pieces.len());
    let whole: serde_json::Value = serde_json::from_slice(&pieces.concat()).unwrap();
    assert_eq!(whole["results"].as_array().unwrap().len(), 20_000);
    assert_eq!(whole["metrics"]["resultCount"], 20_000);
}

#[test]
fn the_database_is_available_only_with_its_grant_and_in_requests() {
    let error = open(false).err().unwrap();
    insta::assert_snapshot!(error, @r#"plugin "query" imports "nacre:plugin/database@0.1.0", which is not granted"#);
    let reader = open(true).unwrap();
    let error = reader.handle(&query("SELECT 1"), NOW).err().unwrap();
    insta::assert_snapshot!(error, @"query: database is not granted");
    assert_eq!(
        answer(&reader, "SELECT RAW 1", 0)["results"][0],
        1,
        "the next finds another instance"
    );
}

const IN_ORDER: &str = "FROM b AS d WHERE META(d).id >= '' ORDER BY META(d).id";

#[test]
fn passed_documents_are_unchanged() {
    let reader = open(true).unwrap();
    let text = |n: usize| format!(r#"{{"id":"k{n}", "padding":""}}"#);
    let named = |n: usize| format!(r#"{{"d":{}}}"#, text(n));
    let cases: [(String, &dyn Fn(usize) -> String); 6] = [
        (format!("SELECT RAW d {IN_ORDER}"), &text),
        (format!("SELECT d.* {IN_ORDER}"), &text),
        (format!("SELECT d {IN_ORDER}"), &named),
        (format!("SELECT * {IN_ORDER}"), &named),
        ("SELECT RAW d FROM b AS d USE KEYS ['k0', 'k1', 'k2']".into(), &text),
        // A document whose content is needed after all is read.
        (format!("SELECT RAW x.id FROM (SELECT d.* {IN_ORDER}) AS x"), &|n| format!("\"k{n}\"")),
    ];
    for (statement, expected) in cases {
        let expected: Vec<_> = (0..3).map(expected).collect();
        let found = rows(&reader, &statement, Fixed { documents: 3, ..INDEXED });
        assert_eq!(found, expected.join(",\n"), "{statement}");
    }
}

const INDEXED: Fixed = Fixed { documents: 0, is_indexed: true, padding: 0, odd: None };

/// Returns the rows of a reply as text.
fn rows(reader: &Reader, statement: &str, database: Fixed) -> String {
    let answer = reader.handle_with(&query(statement), NOW, Arc::new(database), None).unwrap();
    let body = String::from_utf8(answer.collect().unwrap().body).unwrap();
    let (_, rest) = body.split_once("\"results\":[\n").unwrap();
    rest.split_once("\n],").unwrap().0.to_owned()
}

#[test]
fn bodies_that_are_not_objects_are_placed_next_to_objects() {
    let reader = open(true).unwrap();
    let text = |n: usize| format!(r#"{{"id":"k{n}", "padding":""}}"#);
    for (selected, body, is_json, expected) in [
        ("RAW d", "[1]", true, "[1]"),
        ("d.*", "[1]", true, "{}"),
        ("RAW d", "{1}", false, "\"<binary (3 b)>\""),
        ("d.*", "{1}", false, "{}"),
    ] {
        let statement = format!("SELECT {selected} {IN_ORDER}");
        let database = Fixed { documents: 3, odd: Some(("k1", body, is_json)), ..INDEXED };
        let expected = [text(0), expected.into(), text(2)].join(",\n");
        assert_eq!(rows(&reader, &statement, database), expected, "{selected} of {body}");
    }
}

#[test]
fn passed_documents_respect_limit_and_offset() {
    let reader = open(true).unwrap();
    let keys: Vec<_> = (0..2000).map(|n| format!("'k{n}'")).collect();
    let keys = format!("FROM b AS d USE KEYS [{}]", keys.join(","));
    for from in [IN_ORDER, &keys] {
        for (page, expected) in [
            ("LIMIT 2", 0..2),
            ("LIMIT 700", 0..700),
            ("LIMIT 700 OFFSET 3", 3..703),
            ("OFFSET 1990", 1990..2000),
            ("", 0..2000),
        ] {
            let statement = format!("SELECT d {from} {page}");
            let found = rows(&reader, &statement, Fixed { documents: 2000, ..INDEXED });
            let row = |n: usize| format!(r#"{{"d":{{"id":"k{n}", "padding":""}}}}"#);
            let expected: Vec<_> = expected.map(row).collect();
            assert!(found == expected.join(",\n"), "{page} of {from:.40}");
        }
    }
    let none = answer(&reader, &format!("SELECT d {IN_ORDER} LIMIT 0"), 5);
    assert_eq!(none["results"], serde_json::json!([]));
}

/// Opens a reader with 8 MiB of memory.
fn open_with_little_memory() -> Reader {
    let limits = Limits { memory_bytes: 8 << 20, ..Limits::default() };
    let grants = Grants { database: true, ..Grants::own() };
    let setup = Setup { grants, limits, ..Setup::new("query", "{}") };
    Reader::stateless(plugin("query"), setup).unwrap()
}

/// More data than the host could hold at once passes through, in small pieces.
#[test]
fn placed_documents_are_released() {
    let reader = open_with_little_memory();
    let database = Arc::new(Fixed { documents: 5000, padding: 5000, ..INDEXED });
    let statement = query(&format!("SELECT RAW d {IN_ORDER}"));
    let mut answer = reader.handle_with(&statement, NOW, database, None).unwrap();
    let mut pieces = Vec::new();
    while let Some(piece) = answer.next_piece().unwrap() {
        pieces.push(piece);
    }
    assert!(pieces.iter().all(|piece| piece.len() < 300_000));
    let whole: serde_json::Value = serde_json::from_slice(&pieces.concat()).unwrap();
    assert_eq!(whole["results"].as_array().unwrap().len(), 5000);
    assert_eq!(whole["results"][4999]["id"], "k4999");
    let bytes = r#"{"id":"k4999", "padding":""}"#.len() + 5000;
    let shorter: usize = (0..5000).map(|n: usize| 4 - n.to_string().len()).sum();
    assert_eq!(whole["metrics"]["resultSize"], 5000 * bytes - shorter);
}

#[test]
fn documents_that_are_held_count_as_memory() {
    let reader = open_with_little_memory();
    let database = || Arc::new(Fixed { documents: 16, padding: 1 << 20, ..INDEXED });
    let statement = query(&format!("SELECT RAW d {IN_ORDER}"));
    let error = reader.handle_with(&statement, NOW, database(), None).err().unwrap();
    insta::assert_snapshot!(error, @"query: needs more than 8388608 bytes of memory");
    let few = query(&format!("SELECT RAW d {IN_ORDER} LIMIT 2"));
    let answer = reader.handle_with(&few, NOW, database(), None).unwrap().collect().unwrap();
    assert!(answer.body.len() > 2 << 20, "the next request finds another instance");
}
