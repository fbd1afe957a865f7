//! `query`: queries in SQL++ and of other services. The embedder answers them with the rights of the deployment's
//! owner.

use crate::abi::nacre::plugin::query as abi;
use crate::capability::{Capability, Failure};
use crate::instance::Data;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use wasmtime::Result;

/// Maximum number of open queries per call.
const OPEN_MAX: usize = 16;
/// Code of errors that do not concern the statement itself. Source: Couchbase's list of error codes.
const INTERNAL: u32 = 5000;

/// The service that answers a query.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QueryService {
    /// The query service, with SQL++.
    #[default]
    Query,
    /// Analytics.
    Analytics,
    /// Search: the text is the name of an index, and the parameters are the request.
    Search,
}

/// A query.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query {
    /// The service that answers the query.
    pub service: QueryService,
    /// The text.
    pub text: String,
    /// Values of the parameters as JSON: an object, an array, or empty.
    pub parameters: String,
    /// True if the query must see all earlier writes.
    pub is_fresh: bool,
}

/// Answers queries; implemented by the embedder.
pub trait Queries: Send + Sync {
    /// Starts a query that ends within `left`.
    ///
    /// # Errors
    /// The error in the query.
    fn begin(
        &self,
        query: &Query,
        left: Duration,
    ) -> std::result::Result<Box<dyn QueryRows>, Failure>;
}

/// The rows of a query. Dropping it ends the query.
pub trait QueryRows: Send {
    /// Returns the next rows, each as JSON; empty after the last row.
    ///
    /// # Errors
    /// The reason why rows are missing.
    fn next(&mut self) -> std::result::Result<Vec<String>, Failure>;
}

/// Rejects all queries.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoQueries;

impl Queries for NoQueries {
    fn begin(&self, _: &Query, _: Duration) -> std::result::Result<Box<dyn QueryRows>, Failure> {
        Err(failure("there are no queries here"))
    }
}

/// The open queries of a call.
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

/// Result of a call: the inner error is the failure of the query, the outer one ends the guest's call.
type Answer<T> = Result<std::result::Result<T, abi::Failure>>;

/// Starts a query at a service. Returns the number by which the guest refers to it.
fn begin_at(data: &mut Data, service: QueryService, statement: abi::Statement) -> Answer<u32> {
    data.count(Capability::Query)?;
    // The answer cannot be reproduced in a replay.
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
    // The duration of a query counts towards the deadline.
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
