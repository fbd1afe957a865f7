//! Two small collections that statements of SQL++ are run on, with a clock that stands, chance that counts, and an end of
//! patience.

use nacre_query::{
    Action, Datastore, Keyspace, MemoryDatastore, Mutation, Platform, Request, Service,
};
use nacre_sql::{Error, Name, Result, Value};
use std::cell::Cell;

/// How often a statement may ask whether it may go on.
const PATIENCE: u64 = 5_000;
/// Bytes that a statement may keep.
const QUOTA_MB: &str = "16";
/// Codes of errors for want of patience, and of memory. Source: `docs/reference/sqlpp.md`.
const TIMEOUT: u32 = 1080;
const QUOTA: u32 = 5500;

/// The collections that there are.
pub const COLLECTIONS: [&str; 2] = ["l", "r"];

/// All kinds of indexes on them.
pub const INDEXES: [&str; 22] = [
    "CREATE INDEX i1 ON l(a)",
    "CREATE INDEX i2 ON l(a, b DESC)",
    "CREATE INDEX i3 ON l(b DESC, a)",
    "CREATE INDEX i4 ON l(b) WHERE a > 0",
    "CREATE INDEX i5 ON l(DISTINCT ARRAY v FOR v IN tags END)",
    "CREATE INDEX i6 ON l(ALL tags, a)",
    "CREATE INDEX i7 ON l(a INCLUDE MISSING, b)",
    "CREATE PRIMARY INDEX ON l",
    "CREATE INDEX i8 ON r(b)",
    "CREATE INDEX i9 ON r(a, b)",
    "CREATE INDEX i10 ON r(b DESC) WHERE a IS NOT NULL",
    "CREATE INDEX i11 ON l(b, a)",
    "CREATE INDEX i12 ON l(a, b) PARTITION BY HASH(a)",
    "CREATE INDEX i13 ON l(b) PARTITION BY HASH(a) WITH {\"num_partition\": 3}",
    "CREATE INDEX i14 ON r(b, a) PARTITION BY HASH(b, a)",
    "CREATE INDEX i15 ON l(b INCLUDE MISSING, a) WHERE a = \"a\"",
    "CREATE INDEX i16 ON l(b) WHERE a = true AND b >= 1",
    "CREATE INDEX i17 ON l(b INCLUDE MISSING DESC)",
    "CREATE INDEX i18 ON r(a INCLUDE MISSING, b DESC)",
    "CREATE PRIMARY INDEX ON r",
    "CREATE INDEX i19 ON l(a, DISTINCT ARRAY v FOR v IN tags END)",
    "CREATE INDEX i20 ON l(DISTINCT tags)",
];

/// A query service over the collections.
pub struct Tables {
    store: MemoryDatastore,
    service: Service,
}

struct BoundedPlatform {
    left: Cell<u64>,
    chance: Cell<u64>,
}

impl Platform for BoundedPlatform {
    fn now_us(&self) -> i64 {
        1_700_000_000_000_000
    }

    fn random(&self) -> u64 {
        self.chance.set(self.chance.get().wrapping_add(0x9E37_79B9_7F4A_7C15));
        self.chance.get()
    }

    fn check(&self) -> Result<()> {
        match self.left.get() {
            0 => Err(Error::new(TIMEOUT, "Timeout exceeded")),
            left => {
                self.left.set(left - 1);
                Ok(())
            }
        }
    }
}

fn keyspace(name: &str) -> Keyspace {
    Keyspace {
        namespace: "default".into(),
        bucket: "default".into(),
        scope: "_default".into(),
        collection: name.into(),
    }
}

impl Tables {
    /// The collections without documents.
    pub fn new() -> Tables {
        let store = MemoryDatastore::new();
        COLLECTIONS.iter().for_each(|name| store.add_collection(&keyspace(name)));
        Tables { store, service: Service::new() }
    }

    /// Adds documents to one of the collections.
    pub fn add(&self, name: &str, documents: &[(String, Value)]) {
        let insert = |(id, value): &(String, Value)| Mutation {
            action: Action::Insert,
            id: Name::from(id.as_str()),
            body: value.to_json().into_bytes(),
            expiration: None,
        };
        let mutations: Vec<Mutation> = documents.iter().map(insert).collect();
        let results =
            self.store.mutate(&keyspace(name), &mutations).expect("the collection is there");
        assert!(results.iter().all(std::result::Result::is_ok), "documents are new");
    }

    /// The rows of a statement.
    ///
    /// # Errors
    /// What the service would answer.
    pub fn query(&self, statement: &str) -> Result<Vec<Value>> {
        self.query_with(statement, &[])
    }

    /// The rows of a statement with parameters: names with their `$`, and values as JSON.
    ///
    /// # Errors
    /// As [`Tables::query`].
    pub fn query_with(&self, statement: &str, parameters: &[(&str, &str)]) -> Result<Vec<Value>> {
        let settings = [("query_context", "default:default._default"), ("memory_quota", QUOTA_MB)];
        let mut request = Request::from_pairs(settings.iter().chain(parameters).copied())?;
        request.statement = Some(statement.to_owned());
        let platform = BoundedPlatform { left: Cell::new(PATIENCE), chance: Cell::new(1) };
        let mut response = self.service.start(request, &self.store, &platform);
        let mut rows = Vec::new();
        while let Some(row) = response.next_row(&self.service, &self.store, &platform)? {
            rows.push(row);
        }
        Ok(rows)
    }
}

/// Whether a statement was ended for want of patience or memory, and not for what it says.
pub fn is_limit(error: &Error) -> bool {
    [TIMEOUT, QUOTA].contains(&error.code)
}
