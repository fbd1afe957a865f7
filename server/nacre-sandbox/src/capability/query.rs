//! `query`: queries in SQL++, and those of other services, answered by the embedder with the rights of the deployment's owner.

use crate::abi::nacre::plugin::query as abi;
use crate::capability::{Capability, Failure};
use crate::instance::Data;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use wasmtime::Result;

/// Queries that a call may have begun and not ended.
const OPEN_MAX: usize = 16;
/// Code of an error of the call, not of its statement. Source: Couchbase's list of error codes.
const INTERNAL: u32 = 5000;

/// The service that answers a query.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QueryService {
    /// That of SQL++.
    #[default]
    Query,
    /// Analytics.
    Analytics,
    /// Search: the text is the name of an index, the parameters are the request.
    Search,
}

/// A query.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query {
    /// The service that answers it.
    pub service: QueryService,
    /// The text.
    pub text: String,
    /// Values of its parameters as JSON: an object, an array, or empty.
    pub parameters: String,
    /// True if it has to see all that was written before it.
    pub is_fresh: bool,
}

/// Answers queries; implemented by the embedder.
pub trait Queries: Send + Sync {
    /// Begins a query that ends within `left`.
    ///
    /// # Errors
    /// The mistake in it.
    fn begin(
        &self,
        query: &Query,
        left: Duration,
    ) -> std::result::Result<Box<dyn QueryRows>, Failure>;
}

/// The rows of a query. It ends when this is dropped.
pub trait QueryRows: Send {
    /// The next rows, each as JSON; none after the last.
    ///
    /// # Errors
    /// Why there are no more although there should be.
    fn next(&mut self) -> std::result::Result<Vec<String>, Failure>;
}

/// No queries at all.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoQueries;

impl Queries for NoQueries {
    fn begin(&self, _: &Query, _: Duration) -> std::result::Result<Box<dyn QueryRows>, Failure> {
        Err(failure("there are no queries here"))
    }
}

/// The queries of a call that have not ended.
#[derive(Default)]
pub struct OpenQueries {
    rows: BTreeMap<u32, Box<dyn QueryRows>>,
    last: u32,
}

fn failure(message: &str) -> Failure {
    Failure { code: INTERNAL, message: message.into(), retry: false }
}

impl From<Failure> for abi::Failure {
    fn from(Failure { code, message, retry }: Failure) -> abi::Failure {
        abi::Failure { code, message, retry }
    }
}

/// Result of a call: inside, the failure of the query; outside, the reason why the guest ends.
type Answer<T> = Result<std::result::Result<T, abi::Failure>>;

/// Begins a query at a service; gives what the guest calls it.
fn begin_at(data: &mut Data, service: QueryService, statement: abi::Statement) -> Answer<u32> {
    data.count(Capability::Query)?;
    // The answer cannot be asked for again on replay.
    data.journal.cut();
    let left = data.time_left()?;
    let setup = &data.context.setup;
    if !setup.grants.query {
        return Ok(Err(failure("queries are not granted").into()));
    }
    if data.queries.rows.len() >= OPEN_MAX {
        let message = format!("a call has at most {OPEN_MAX} queries open: close some");
        return Ok(Err(failure(&message).into()));
    }
    let abi::Statement { text, parameters, is_fresh } = statement;
    let queries = Arc::clone(data.view.queries.as_ref().unwrap_or(&setup.queries));
    let begun = queries.begin(&Query { service, text, parameters, is_fresh }, left);
    // Time that a query takes is time of the deadline.
    data.time_left()?;
    Ok(match begun {
        Ok(rows) => {
            data.queries.last += 1;
            let number = data.queries.last;
            data.queries.rows.insert(number, rows);
            Ok(number)
        }
        Err(failure) => Err(failure.into()),
    })
}

impl abi::Host for Data {
    fn begin(&mut self, statement: abi::Statement) -> Answer<u32> {
        begin_at(self, QueryService::Query, statement)
    }

    fn begin_at(&mut self, service: abi::Service, statement: abi::Statement) -> Answer<u32> {
        let service = match service {
            abi::Service::Analytics => QueryService::Analytics,
            abi::Service::Search => QueryService::Search,
        };
        begin_at(self, service, statement)
    }

    fn next(&mut self, query: u32) -> Answer<Vec<String>> {
        self.count(Capability::Query)?;
        let Some(rows) = self.queries.rows.get_mut(&query) else {
            return Ok(Ok(Vec::new()));
        };
        let given = rows.next();
        if given.as_ref().map_or(true, Vec::is_empty) {
            self.queries.rows.remove(&query);
        }
        self.time_left()?;
        Ok(given.map_err(Into::into))
    }

    fn close(&mut self, query: u32) -> Result<()> {
        self.count(Capability::Query)?;
        self.queries.rows.remove(&query);
        Ok(())
    }
}
