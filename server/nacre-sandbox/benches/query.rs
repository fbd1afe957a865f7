//! Measures the cost of the sandbox for queries: the same prepared statements over the same documents, as plain Rust
//! and in Wasm, in one run.
//!
//! `cargo bench -p nacre-sandbox --bench query`, after `cargo xtask plugins`. Rounds alternate, so that a noisy machine
//! affects both; the best round of each counts. Both sides read documents and entries from maps in memory.
#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

mod stage;

use nacre_query::{Action, Datastore, Keyspace, MemoryDatastore, Platform, Service};
use nacre_sandbox::{
    Consistency, Database, DatabaseIndex, DatabaseKeyspace, DatabaseRights, Definition, Failure,
    FunctionPath, Grants, IndexPage, IndexScan, IndexedRows, Mutation, Plugin, Reader, Request,
    Row, RowRefusal, Setup, TransactionStep,
};
use nacre_sql::Meta;
use nacre_state::Span;
use nacre_types::Now;
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const DOCUMENT_COUNT: u32 = 1000;
const ROUNDS: usize = 7;
/// Duration of each side of a round.
const ROUND: Duration = Duration::from_millis(200);

const INDEXES: [&str; 3] = [
    "CREATE INDEX by_serial ON b(serial)",
    "CREATE INDEX by_kind ON b(kind, price)",
    "CREATE PRIMARY INDEX ON b",
];

/// The measured operations and their statements.
const STATEMENTS: [(&str, &str); 6] = [
    ("one entry, covered", "SELECT serial FROM b WHERE serial = $1"),
    ("50 entries, covered", "SELECT serial FROM b WHERE serial >= $1 ORDER BY serial LIMIT 50"),
    (
        "50 documents by id, whole",
        "SELECT RAW b FROM b WHERE META(b).id >= TO_STRING($1) ORDER BY META(b).id LIMIT 50",
    ),
    ("50 documents", "SELECT * FROM b WHERE serial >= $1 ORDER BY serial LIMIT 50"),
    (
        "groups of 1,000 entries",
        "SELECT kind, COUNT(*) AS n, AVG(price) AS mean FROM b WHERE kind >= 'k' AND $1 >= 0 GROUP BY kind",
    ),
    (
        "1,000 documents, filtered and sorted",
        "SELECT b.name, UPPER(b.kind) AS kind FROM b WHERE b.price > 250 AND $1 >= 0 ORDER BY b.name LIMIT 10",
    ),
];

/// Returns the body of a document of 0.5 KB.
fn document(number: u32) -> String {
    let spread = number.wrapping_mul(2_654_435_761);
    serde_json::json!({
        "serial": number,
        "name": format!("hotel {spread:08x}"),
        "kind": format!("k{}", spread % 20),
        "price": spread % 500,
        "tags": ["old", "quiet", "harbour"],
        "text": "a quiet house beside the old harbour, ".repeat(9),
    })
    .to_string()
}

fn id(number: u32) -> String {
    format!("hotel_{number:06}")
}

/// Returns a request that executes the statement.
fn request(statement: &str, number: u32) -> String {
    serde_json::json!({"prepared": statement, "args": [number], "metrics": false}).to_string()
}

/// The documents as seen by the sandbox.
struct Shared {
    documents: BTreeMap<String, String>,
    /// Definitions of the indexes in `INDEXES`.
    definitions: [nacre_sql::index::Definition; INDEXES.len()],
    /// Entries by position in `INDEXES`.
    entries: Vec<BTreeSet<Vec<u8>>>,
    notes: Mutex<BTreeMap<String, Vec<u8>>>,
}

impl Shared {
    fn new() -> Shared {
        let documents: BTreeMap<_, _> =
            (0..DOCUMENT_COUNT).map(|number| (id(number), document(number))).collect();
        let parse = |text| nacre_sql::index::Definition::parse(text).expect("an index");
        let definitions = INDEXES.map(parse);
        let entries = definitions.iter().map(|index| {
            let of_document = |(id, body): (&String, &String)| {
                let value = nacre_sql::Value::parse(body.as_bytes()).expect("JSON");
                let meta = Meta { id: id.as_str().into(), json: true, ..Meta::default() };
                index.entries(&value, &Arc::new(meta)).expect("it can be indexed")
            };
            documents.iter().flat_map(of_document).collect()
        });
        let entries = entries.collect();
        Shared { documents, definitions, entries, notes: Mutex::default() }
    }
}

fn no<T>() -> Result<T, Failure> {
    Err(Failure { code: 5000, message: "not for measuring".into(), retry: false })
}

impl Database for Shared {
    fn check(&self, _: &DatabaseKeyspace) -> Result<(), Failure> {
        Ok(())
    }

    fn version(&self) -> u64 {
        0
    }

    fn indexes(&self, _: &DatabaseKeyspace) -> Result<Vec<DatabaseIndex>, Failure> {
        let index = |(at, text): (usize, &&str)| DatabaseIndex {
            // Plans identify it by a number made from the first half of the ID.
            id: format!("{at:016x}{:016x}", 0),
            definition: (*text).to_owned(),
            online: true,
        };
        Ok(INDEXES.iter().enumerate().map(index).collect())
    }

    fn fetch(
        &self,
        _: &DatabaseKeyspace,
        ids: &[String],
        _: Duration,
    ) -> Result<Vec<Option<Row>>, Failure> {
        let row = |id: &String| {
            let body = self.documents.get(id)?.clone().into_bytes().into();
            Some(Row { id: id.clone(), body, cas: 1, is_json: true, ..Row::default() })
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
        let from = after.map_or(Bound::Unbounded, |after| Bound::Excluded(after.to_owned()));
        let range = self.documents.range((from, Bound::Unbounded)).take(limit);
        let ids: Vec<_> = range.map(|(id, _)| id.clone()).collect();
        Ok(self.fetch(keyspace, &ids, left)?.into_iter().flatten().collect())
    }

    fn scan_index(&self, scan: &IndexScan, _: Duration) -> Result<IndexPage, Failure> {
        let at =
            usize::from_str_radix(&scan.index[..16], 16).map_err(|_| no::<()>().unwrap_err())?;
        let in_span = |span: &Span| {
            let end = (!span.end.is_empty()).then(|| span.end.clone());
            let end = end.map_or(Bound::Unbounded, Bound::Excluded);
            self.entries[at].range((Bound::Included(span.start.clone()), end))
        };
        let found = scan.spans.iter().flat_map(in_span).take(scan.limit);
        let entries = found.map(|entry| (entry.clone(), String::new())).collect();
        Ok(IndexPage { entries, cursor: None })
    }

    fn scan_documents(&self, scan: &IndexScan, left: Duration) -> Result<IndexedRows, Failure> {
        let at =
            usize::from_str_radix(&scan.index[..16], 16).map_err(|_| no::<()>().unwrap_err())?;
        let entries = self.scan_index(scan, left)?.entries;
        let id = |(entry, _): &(Vec<u8>, String)| {
            self.definitions[at].decode(entry).map(|(_, id)| id.to_string())
        };
        let ids: Vec<String> = entries.iter().filter_map(id).collect();
        let rows = self.fetch(&DatabaseKeyspace::default(), &ids, left)?.into_iter().flatten();
        let is_whole = entries.len() < scan.limit;
        let last = entries.last().map(|(entry, _)| entry.clone());
        Ok(IndexedRows { rows: rows.collect(), last, is_whole })
    }

    fn count(&self, _: &DatabaseKeyspace) -> Result<u64, Failure> {
        Ok(self.documents.len() as u64)
    }

    fn authorize(&self, _: &DatabaseKeyspace, _: DatabaseRights) -> Result<(), Failure> {
        Ok(())
    }

    fn mutate(
        &self,
        _: &DatabaseKeyspace,
        _: Vec<Mutation>,
        _: Duration,
    ) -> Result<Vec<Result<u64, RowRefusal>>, Failure> {
        no()
    }

    fn transact(&self, _: TransactionStep, _: Duration) -> Result<String, Failure> {
        unreachable!("queries are measured")
    }

    fn staged(&self, _: &DatabaseKeyspace) -> Result<Vec<(String, Option<Row>)>, Failure> {
        Ok(Vec::new())
    }

    fn define(&self, _: &Definition) -> Result<(), Failure> {
        no()
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
        unreachable!("no function is in JavaScript")
    }

    fn functions(&self) -> Result<Vec<(FunctionPath, String)>, Failure> {
        Ok(Vec::new())
    }

    fn catalog(&self, _: &str) -> Result<Option<Vec<(String, String)>>, Failure> {
        Ok(None)
    }

    fn clock_us(&self) -> u64 {
        0
    }

    fn chance(&self) -> u64 {
        4
    }

    fn user(&self) -> String {
        "ann".into()
    }

    fn recall(&self, key: &str) -> Option<Vec<u8>> {
        self.notes.lock().expect("nothing panics").get(key).cloned()
    }

    fn note(&self, key: &str, value: Option<Vec<u8>>) {
        let mut notes = self.notes.lock().expect("nothing panics");
        match value {
            Some(value) => drop(notes.insert(key.to_owned(), value)),
            None => drop(notes.remove(key)),
        }
    }

    fn notes(&self, _: &str) -> Result<Vec<String>, Failure> {
        Ok(Vec::new())
    }
}

/// A clock that does not advance.
struct Still(Cell<u64>);

impl Platform for Still {
    fn now_us(&self) -> i64 {
        0
    }

    fn random(&self) -> u64 {
        self.0.set(self.0.get() + 1);
        self.0.get()
    }

    fn check(&self) -> nacre_sql::Result<()> {
        Ok(())
    }
}

/// The service in plain Rust.
struct Native {
    service: Service,
    store: MemoryDatastore,
    platform: Still,
}

impl Native {
    fn new() -> Native {
        let store = MemoryDatastore::new();
        let keyspace = Keyspace {
            namespace: "default".into(),
            bucket: "b".into(),
            scope: "_default".into(),
            collection: "_default".into(),
        };
        store.add_collection(&keyspace);
        let insert = |number| nacre_query::Mutation {
            action: Action::Insert,
            id: id(number).into(),
            body: document(number).into_bytes(),
            expiration: None,
        };
        let all: Vec<_> = (0..DOCUMENT_COUNT).map(insert).collect();
        store.mutate(&keyspace, &all).expect("they are new");
        let native = Native { service: Service::new(), store, platform: Still(Cell::new(0)) };
        for index in INDEXES {
            native.answer(&serde_json::json!({ "statement": index }).to_string());
        }
        native
    }

    fn answer(&self, request: &str) -> String {
        let request = nacre_query::Request::from_json(request.as_bytes()).expect("a request");
        let (store, platform) = (&self.store, &self.platform);
        let mut response = self.service.start(request, store, platform);
        let mut body = String::new();
        while let Some(piece) = response.next_chunk(&self.service, store, platform) {
            body.push_str(&piece.into_text());
        }
        body
    }
}

/// The service as a component.
struct Sandboxed {
    reader: Reader,
    database: Arc<Shared>,
}

impl Sandboxed {
    fn new(plugin: Plugin) -> Sandboxed {
        let grants = Grants { database: true, ..Grants::own() };
        let reader = Reader::stateless(plugin, Setup { grants, ..Setup::new("query", "{}") });
        Sandboxed {
            reader: reader.expect("the component starts"),
            database: Arc::new(Shared::new()),
        }
    }

    fn answer(&self, request: &str) -> String {
        let request = Request {
            method: "POST".into(),
            path: "/query/service".into(),
            headers: vec![("content-type".into(), "application/json".into())],
            body: request.as_bytes().to_vec(),
            ..Request::default()
        };
        let database: Arc<dyn Database> = self.database.clone();
        let answer = self.reader.handle_with(&request, Now::default(), database, None);
        let body = answer.and_then(|answer| answer.collect()).expect("it answers").body;
        String::from_utf8(body).expect("JSON is text")
    }
}

/// Returns the average duration of a reply, over as many replies as fit into a round.
fn timed(answer: impl Fn(&str) -> String, name: &str) -> Duration {
    let (begun, mut count) = (Instant::now(), 0);
    while begun.elapsed() < ROUND {
        let answer = answer(&request(name, count * 7 % (DOCUMENT_COUNT - 50)));
        assert!(answer.contains("\"status\":\"success\""), "{answer}");
        count += 1;
    }
    begun.elapsed() / count
}

/// Returns the rows of a reply, without the fields that differ each time.
fn rows(answer: &str) -> &str {
    answer.find("\"results\"").map_or(answer, |at| &answer[at..])
}

fn main() {
    let host = stage::host();
    let artefact = host.compile(&stage::component("query")).expect("the component compiles");
    // SAFETY: this host has just compiled the bytes.
    let plugin = unsafe { host.load("query", &artefact) }.expect("the component loads");
    let (native, sandboxed) = (Native::new(), Sandboxed::new(plugin));
    println!("{DOCUMENT_COUNT} documents of 0.5 KB, prepared statements, time of an answer in us:");
    println!("{:<38}{:>10}{:>10}{:>8}", "", "native", "sandbox", "ratio");
    for (at, (what, statement)) in STATEMENTS.iter().enumerate() {
        let name = format!("p{at}");
        let prepare = serde_json::json!({"statement": format!("PREPARE {name} AS {statement}")});
        native.answer(&prepare.to_string());
        sandboxed.answer(&prepare.to_string());
        let asked = request(&name, 5);
        let answers = [native.answer(&asked), sandboxed.answer(&asked)];
        assert_eq!(rows(&answers[0]), rows(&answers[1]), "both find the same");
        let mut best = [Duration::MAX; 2];
        for _ in 0..ROUNDS {
            let times = [
                timed(|request| native.answer(request), &name),
                timed(|request| sandboxed.answer(request), &name),
            ];
            best = [best[0].min(times[0]), best[1].min(times[1])];
        }
        let us = best.map(|time| time.as_secs_f64() * 1e6);
        println!("{what:<38}{:>10.1}{:>10.1}{:>8.2}", us[0], us[1], us[1] / us[0]);
    }
}
