//! Requests in a transaction: what they see through indexes, and which steps they execute.

use crate::world::{TestPlatform, World, keyspace};
use nacre_query::{
    Action, Consistency, Datastore, Document, FunctionPath, Index, IndexRange, Keyspace,
    MemoryDatastore, Mutation, Notes, Refusal, Request, Script, Service, Staged, TransactionStep,
};
use nacre_sql::ast::{Path, Statement};
use nacre_sql::{Name, Result, Value};
use std::cell::RefCell;
use std::collections::BTreeMap;

/// Number of documents that a scan returns at a time, whatever limit is requested.
const PAGE: usize = 7;

/// A store with one transaction, which has changed some documents of the collection `docs`.
#[derive(Default)]
struct Store {
    committed: MemoryDatastore,
    staged: BTreeMap<Name, Option<Document>>,
    steps: RefCell<Vec<TransactionStep>>,
}

impl Datastore for Store {
    fn check(&self, keyspace: &Keyspace) -> Result<()> {
        self.committed.check(keyspace)
    }

    fn version(&self) -> u64 {
        self.committed.version()
    }

    fn indexes(&self, keyspace: &Keyspace) -> Result<Vec<Index>> {
        self.committed.indexes(keyspace)
    }

    fn fetch(&self, keyspace: &Keyspace, ids: &[Name]) -> Result<Vec<Option<Document>>> {
        let stored = self.committed.fetch(keyspace, ids)?;
        let seen = |(id, stored): (&Name, Option<Document>)| match self.staged.get(id) {
            Some(staged) => staged.clone(),
            None => stored,
        };
        Ok(ids.iter().zip(stored).map(seen).collect())
    }

    fn scan(
        &self,
        keyspace: &Keyspace,
        after: Option<&str>,
        bodies: bool,
        limit: usize,
        consistency: &Consistency,
    ) -> Result<Vec<Document>> {
        self.committed.scan(keyspace, after, bodies, limit.min(PAGE), consistency)
    }

    fn scan_index(
        &self,
        keyspace: &Keyspace,
        range: &IndexRange<'_>,
        consistency: &Consistency,
    ) -> Result<Vec<Vec<u8>>> {
        self.committed.scan_index(keyspace, range, consistency)
    }

    fn count(&self, keyspace: &Keyspace, consistency: &Consistency) -> Result<u64> {
        self.committed.count(keyspace, consistency)
    }

    fn mutate(
        &self,
        keyspace: &Keyspace,
        mutations: &[Mutation],
    ) -> Result<Vec<std::result::Result<u64, Refusal>>> {
        self.committed.mutate(keyspace, mutations)
    }

    fn transact(&self, step: &TransactionStep) -> Result<String> {
        self.steps.borrow_mut().push(step.clone());
        Ok("t".into())
    }

    fn staged(&self, _: &Keyspace) -> Result<Vec<Staged>> {
        Ok(self.staged.clone().into_iter().collect())
    }

    fn define(&self, statement: &Statement, context: Option<&Path>) -> Result<()> {
        self.committed.define(statement, context)
    }

    fn catalog(&self, name: &str) -> Result<Option<Vec<(Name, Value)>>> {
        self.committed.catalog(name)
    }

    fn function(&self, path: &FunctionPath) -> Result<Option<String>> {
        self.committed.function(path)
    }

    fn functions(&self) -> Result<Vec<(FunctionPath, String)>> {
        self.committed.functions()
    }

    fn create_function(
        &self,
        path: &FunctionPath,
        text: &str,
        script: Option<&Script>,
        replace: bool,
    ) -> Result<()> {
        self.committed.create_function(path, text, script, replace)
    }

    fn call(&self, path: &FunctionPath, arguments: &str, may_change: bool) -> Result<String> {
        self.committed.call(path, arguments, may_change)
    }

    fn drop_function(&self, path: &FunctionPath) -> Result<()> {
        self.committed.drop_function(path)
    }

    fn notes(&self) -> &dyn Notes {
        self.committed.notes()
    }
}

fn write(store: &MemoryDatastore, action: Action, id: &str, body: &str) {
    let body = body.as_bytes().to_vec();
    let mutation = Mutation { action, id: id.into(), body, expiration: None };
    store.mutate(&keyspace("docs"), &[mutation]).unwrap().pop().unwrap().unwrap();
}

const INDEXES: [&str; 4] = [
    "CREATE INDEX by_n ON docs(n)",
    "CREATE INDEX by_group ON docs(g, n DESC)",
    "CREATE INDEX by_tag ON docs(DISTINCT ARRAY t FOR t IN tags END)",
    "CREATE INDEX large ON docs(m) WHERE g = 1",
];

fn body(n: u32) -> String {
    format!("{{\"n\": {n}, \"m\": {n}, \"g\": {}, \"tags\": [{}, {n}]}}", n % 3, n % 5)
}

/// Returns a store with 200 documents, of which a transaction has changed every fourth, and another store with the
/// result.
fn stores() -> (Store, MemoryDatastore) {
    let (mut store, after) = (Store::default(), MemoryDatastore::new());
    for store in [&store.committed, &after] {
        store.add_collection(&keyspace("docs"));
        INDEXES.iter().for_each(|index| {
            let statement = nacre_sql::parse(index).unwrap();
            let context = nacre_sql::parse_path("default:default._default").unwrap();
            store.define(&statement, Some(&context)).unwrap();
        });
        (0..200).for_each(|n| write(store, Action::Insert, &format!("d{n:03}"), &body(n)));
    }
    for n in (0..240).step_by(4) {
        let id = format!("d{n:03}");
        let (changed, is_new) = (body((n * 7) % 251), n >= 200);
        let staged = match n % 12 {
            0 if !is_new => {
                write(&after, Action::Remove(0), &id, "");
                None
            }
            _ => {
                write(&after, Action::Upsert, &id, &changed);
                let body = changed.into_bytes();
                let id = id.as_str().into();
                Some(Document { id, body, json: true, ..Document::default() })
            }
        };
        store.staged.insert(id.as_str().into(), staged);
    }
    (store, after)
}

fn rows(store: &dyn Datastore, request: Request) -> Result<Vec<Value>> {
    let (service, platform) = (Service::new(), TestPlatform::with_patience(u64::MAX));
    let mut response = service.start(request, store, &platform);
    let mut rows = Vec::new();
    while let Some(row) = response.next_row(&service, store, &platform)? {
        rows.push(row);
    }
    Ok(rows)
}

fn in_transaction(statement: &str) -> Request {
    let mut request = World::request(statement);
    request.transaction.id = Some("t".into());
    request
}

#[test]
fn an_index_scan_includes_the_changes_of_its_transaction() {
    let (store, after) = stores();
    let statements = [
        "SELECT RAW n FROM docs WHERE n >= 0 ORDER BY n",
        "SELECT RAW n FROM docs WHERE n >= 0 ORDER BY n DESC",
        "SELECT RAW [n, META().id] FROM docs WHERE n BETWEEN 20 AND 90 OR n > 150 ORDER BY n LIMIT 40 OFFSET 30",
        "SELECT RAW META().id FROM docs WHERE n IN [4, 8, 28, 56, 84, 120, 3] ORDER BY n",
        "SELECT RAW [g, n] FROM docs WHERE g = 2 ORDER BY g, n DESC LIMIT 50",
        "SELECT RAW META().id FROM docs WHERE ANY t IN tags SATISFIES t = 3 END ORDER BY META().id",
        "SELECT RAW META().id FROM docs WHERE m > 10 AND g = 1 ORDER BY m",
        "SELECT g, COUNT(*) AS c, SUM(n) AS s FROM docs WHERE g >= 0 GROUP BY g ORDER BY g",
        "SELECT RAW [a.n, b.m] FROM docs AS a JOIN docs AS b ON b.n = a.m + 1 WHERE a.g = 0 ORDER BY a.n, b.m",
    ];
    for statement in statements {
        let expected = rows(&after, World::request(statement)).unwrap();
        assert!(expected.len() > 2, "{statement} shows nothing");
        assert_eq!(rows(&store, in_transaction(statement)).unwrap(), expected, "{statement}");
        assert_ne!(
            rows(&store, World::request(statement)).unwrap(),
            expected,
            "{statement}: outside"
        );
    }
}

#[test]
fn a_scan_continues_after_a_page_smaller_than_requested() {
    let (store, _) = stores();
    let all = rows(&store, World::request("SELECT RAW META().id FROM docs AS d USE INDEX (none)"));
    let all = all.unwrap();
    assert_eq!(all.len(), 200);
}

#[test]
fn a_request_takes_the_steps_of_its_transaction() {
    use TransactionStep::{Begin, Commit, Join, Leave, Rollback, RollbackTo, Savepoint};
    let insert = "INSERT INTO docs VALUES ('new', {})";
    let join = || Join("t".into(), None);
    for (statement, implicit, expected) in [
        (insert, false, vec![join(), Leave(true)]),
        ("INSERT INTO docs VALUES ('d001', {})", false, vec![join(), Leave(false)]),
        ("SELECT FROM", false, vec![]),
        ("SELECT * FROM nowhere", false, vec![join(), Leave(false)]),
        ("CREATE INDEX i ON docs(x)", false, vec![join(), Leave(false)]),
        ("COMMIT", false, vec![join(), Commit]),
        ("ROLLBACK", false, vec![join(), Rollback]),
        ("SAVEPOINT s", false, vec![join(), Savepoint("s".into()), Leave(true)]),
        ("ROLLBACK TO SAVEPOINT s", false, vec![join(), RollbackTo("s".into()), Leave(true)]),
        ("BEGIN WORK", false, vec![join(), Leave(false)]),
        ("SELECT RAW n FROM docs", false, vec![join(), Leave(true)]),
        (insert, true, vec![Begin(Default::default()), join(), Commit]),
        (
            "INSERT INTO docs VALUES ('d001', {})",
            true,
            vec![Begin(Default::default()), join(), Rollback],
        ),
        ("SELECT RAW n FROM docs", true, vec![Begin(Default::default()), join(), Commit]),
        ("COMMIT", true, vec![Begin(Default::default()), join(), Rollback]),
    ] {
        let (store, _) = stores();
        let mut request = in_transaction(statement);
        if implicit {
            (request.transaction.id, request.transaction.implicit) = (None, true);
        }
        let (service, platform) = (Service::new(), TestPlatform::with_patience(u64::MAX));
        let mut response = service.start(request, &store, &platform);
        while response.next_chunk(&service, &store, &platform).is_some() {}
        assert_eq!(store.steps.into_inner(), expected, "{statement}");
    }
}

#[test]
fn prepared_statements_begin_and_end_transactions() {
    use TransactionStep::{Begin, Commit, Join, Leave, Rollback, RollbackTo, Savepoint};
    let join = || Join("t".into(), None);
    for (statement, is_within, expected) in [
        ("BEGIN WORK", false, vec![Begin(Default::default())]),
        ("COMMIT", true, vec![join(), Commit]),
        ("ROLLBACK", true, vec![join(), Rollback]),
        ("SAVEPOINT s", true, vec![join(), Savepoint("s".into()), Leave(true)]),
        ("ROLLBACK TO SAVEPOINT s", true, vec![join(), RollbackTo("s".into()), Leave(true)]),
    ] {
        for by_name in [false, true] {
            let (store, _) = stores();
            rows(&store, World::request(&format!("PREPARE p AS {statement}"))).unwrap();
            let mut request = World::request("EXECUTE p");
            if by_name {
                (request.statement, request.prepared) = (None, Some("p".into()));
            }
            request.transaction.id = is_within.then(|| "t".into());
            let told = rows(&store, request).unwrap();
            assert_eq!(store.steps.into_inner(), expected, "{statement}");
            let txid = told.first().map(|row| row.field("txid"));
            assert_eq!(txid.is_some(), statement == "BEGIN WORK", "{statement}: {told:?}");
        }
    }
    let (store, _) = stores();
    rows(&store, World::request("PREPARE p AS COMMIT")).unwrap();
    assert_eq!(rows(&store, World::request("EXECUTE p")).unwrap_err().code, 17002);
}
