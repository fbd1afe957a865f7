//! The database as queries see it: granted to the query service alone, and there only while a request is answered.

use crate::fixture::*;
use nacre_plugin_host::{
    Consistency, Database, DatabaseIndex, DatabaseKeyspace, Definition, Error, Failure,
    FunctionPath, Grants, IndexPage, IndexScan, Mutation, Reader, Request, Row, RowRefusal, Setup,
    TransactionStep,
};
use std::sync::Arc;
use std::time::Duration;

/// One collection with documents `k0`, `k1`, …; nothing can be changed.
struct Fixed {
    documents: usize,
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
        Ok(Vec::new())
    }

    fn fetch(
        &self,
        _: &DatabaseKeyspace,
        ids: &[String],
        _: Duration,
    ) -> Result<Vec<Option<Row>>, Failure> {
        let row = |id: &String| {
            let body = format!("{{\"id\":\"{id}\"}}").into_bytes();
            Some(Row { id: id.clone(), body, cas: 7, is_json: true, ..Row::default() })
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

    fn count(&self, _: &DatabaseKeyspace) -> Result<u64, Failure> {
        Ok(self.documents as u64)
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
    let database = Arc::new(Fixed { documents });
    let answer = reader.handle_with(&query(statement), NOW, database).unwrap();
    serde_json::from_slice(&answer.whole().unwrap().body).unwrap()
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
        ("CREATE INDEX i ON b(x)", 13014),
        ("SELEC", 3000),
    ] {
        assert_eq!(answer(&reader, statement, 1)["errors"][0]["code"], code, "{statement}");
    }
}

#[test]
fn a_large_answer_comes_in_pieces() {
    let reader = open(true).unwrap();
    let database = Arc::new(Fixed { documents: 20_000 });
    let statement = query("SELECT META().id, b.* FROM b");
    let mut answer = reader.handle_with(&statement, NOW, database).unwrap();
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
fn the_database_is_there_when_it_is_granted_and_only_for_a_request() {
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
