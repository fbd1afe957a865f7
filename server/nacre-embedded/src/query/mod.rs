//! SQL++ over the documents of a database: the server's parser, planner and evaluator, on the calling thread.
//!
//! ```text
//! Db::query, Db::manage ─► nacre-query ─► Store: Collection::get for USE KEYS, Collection::scan for the rest, and writes
//! ```
//!
//! There are no indexes, functions, prepared statements and transactions: a statement that needs one is refused by name. Each
//! statement reads the current documents; those that change documents find all of them before they change the first.

mod datastore;
mod requests;

pub(crate) use requests::manage;

use crate::db::Inner;
use crate::folder::BUCKET;
use crate::{Db, Error};
use datastore::Store;
use nacre_query::{Platform, Request, Service};
use nacre_sql::{Name, Value};
use std::time::Duration;

/// Code of a request that took too long. Source: Couchbase's list.
const TOO_LONG: u32 = 1080;
/// Default time after which a query ends with an error.
const TIMEOUT: Duration = Duration::from_secs(75);
/// Default memory for sorts, groups and joins, in MiB.
const MEMORY_MIB: usize = 64;

/// Options of a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueryOptions {
    positional: Vec<String>,
    named: Vec<(String, String)>,
    scope: String,
    readonly: bool,
    timeout: Duration,
    memory_mib: usize,
}

impl Default for QueryOptions {
    fn default() -> QueryOptions {
        QueryOptions {
            positional: Vec::new(),
            named: Vec::new(),
            scope: "_default".into(),
            readonly: false,
            timeout: TIMEOUT,
            memory_mib: MEMORY_MIB,
        }
    }
}

impl QueryOptions {
    /// Returns the default options: the scope `_default`, 75 s, and 64 MiB for sorts and groups.
    pub fn new() -> QueryOptions {
        QueryOptions::default()
    }

    /// Adds the next positional parameter (`$1`, `$2`, …), as JSON.
    #[must_use]
    pub fn argument(mut self, json: impl Into<String>) -> QueryOptions {
        self.positional.push(json.into());
        self
    }

    /// Sets a named parameter (`$name`), as JSON.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>, json: impl Into<String>) -> QueryOptions {
        self.named.push((name.into(), json.into()));
        self
    }

    /// Sets the scope in which single names of collections are found.
    #[must_use]
    pub fn scope(self, scope: impl Into<String>) -> QueryOptions {
        QueryOptions { scope: scope.into(), ..self }
    }

    /// Refuses statements that change anything.
    #[must_use]
    pub fn readonly(self) -> QueryOptions {
        QueryOptions { readonly: true, ..self }
    }

    /// Sets the time after which the query ends with an error.
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> QueryOptions {
        QueryOptions { timeout, ..self }
    }

    /// Sets the memory for sorts, groups and joins, in MiB; 0 for no limit. The rows of the result are not included.
    #[must_use]
    pub fn memory_mib(self, memory_mib: usize) -> QueryOptions {
        QueryOptions { memory_mib, ..self }
    }

    fn request(&self, statement: &str) -> Result<Request, Error> {
        if self.scope.contains('`') {
            return Err(Error::InvalidArgument("the name of a scope has no backtick".into()));
        }
        let context = format!("default:{BUCKET}.`{}`", self.scope);
        let request = Request::from_pairs([("query_context", context.as_str())]);
        let mut request = request.map_err(refused)?;
        request.statement = Some(statement.to_owned());
        request.metrics = false;
        let settings = &mut request.settings;
        for json in &self.positional {
            settings.positional.push(value(json)?);
        }
        for (name, json) in &self.named {
            settings.named.insert(Name::from(name.trim_start_matches('$')), value(json)?);
        }
        settings.readonly = self.readonly;
        settings.keeps_nothing = true;
        settings.memory_quota = self.memory_mib.saturating_mul(1 << 20);
        Ok(request)
    }
}

fn value(json: &str) -> Result<Value, Error> {
    let parsed = Value::parse(json.as_bytes());
    parsed.map_err(|what| Error::InvalidArgument(format!("a parameter is not JSON: {what}")))
}

fn refused(error: nacre_sql::Error) -> Error {
    Error::Query { code: error.code, message: error.message }
}

/// The result of a query.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueryResult {
    /// The rows, each as JSON.
    pub rows: Vec<String>,
    /// The number of documents that were written or deleted.
    pub mutation_count: u64,
}

/// The environment of a query.
struct Environment<'a> {
    inner: &'a Inner,
    deadline_ns: u64,
}

impl<'a> Environment<'a> {
    /// Creates the environment of a query that begins now.
    fn new(inner: &'a Inner, timeout: Duration) -> Environment<'a> {
        let timeout_ns = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        Environment { inner, deadline_ns: inner.now().monotonic_ns.saturating_add(timeout_ns) }
    }
}

impl Platform for Environment<'_> {
    fn now_us(&self) -> i64 {
        i64::try_from(self.inner.now().unix_ns / 1000).unwrap_or(i64::MAX)
    }

    fn random(&self) -> u64 {
        self.inner.options.clock.random()
    }

    fn check(&self) -> nacre_sql::Result<()> {
        if self.inner.now().monotonic_ns >= self.deadline_ns {
            return Err(nacre_sql::Error::new(TOO_LONG, "the query took too long"));
        }
        Ok(())
    }
}

impl Db {
    /// Executes a SQL++ statement over the documents, and returns all rows. A collection is `` default.scope.name ``, or `name` in
    /// the scope of the options. Documents are found by `USE KEYS`, or by reading the whole collection: there are no indexes.
    ///
    /// # Errors
    /// [`Error::Query`] with the code and message of the server's query service. A statement that fails while it changes documents
    /// has changed some of them. Errors of the disk and [`Error::Closed`] as for single documents.
    pub fn query(&self, statement: &str, options: &QueryOptions) -> Result<QueryResult, Error> {
        let inner = self.inner();
        inner.check()?;
        let request = options.request(statement)?;
        let (store, environment) = (Store::new(self), Environment::new(inner, options.timeout));
        let service = Service::new();
        let mut response = service.start(request, &store, &environment);
        let mut rows = Vec::new();
        loop {
            match response.next_row(&service, &store, &environment) {
                Ok(Some(row)) => rows.push(row.to_json()),
                Ok(None) => break,
                Err(error) => return Err(store.failure().unwrap_or_else(|| refused(error))),
            }
        }
        Ok(QueryResult { rows, mutation_count: store.mutation_count() })
    }

    /// Executes a SQL++ statement like [`Db::query`], with the parameters and the answer of a node's query service. `parameters` is a
    /// JSON object with the members of a request except the statement, for example `args`, `$name`, `query_context` and `readonly`.
    /// Returns the body of the answer, which is a JSON object with the rows in `results`.
    ///
    /// # Errors
    /// As for [`Db::query`]; parameters that are invalid are an [`Error::Query`], too.
    pub fn query_request(&self, statement: &str, parameters: &str) -> Result<String, Error> {
        requests::execute(self, statement, parameters)
    }
}
