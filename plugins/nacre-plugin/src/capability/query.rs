//! Capability `query`: SQL++ queries with the rights of the user who defined the deployment.

use super::outside;

/// A statement.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statement {
    /// The text.
    pub text: String,
    /// Values of its parameters as JSON: an object for named parameters, an array for positional ones; empty for none.
    pub parameters: String,
    /// True if the statement must see all earlier writes.
    pub is_fresh: bool,
}

/// Why a query has no rows, or no further rows.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message} ({code})")]
pub struct Failure {
    /// The error code, as in the query service.
    pub code: u32,
    /// The reason, for the author of the statement.
    pub message: String,
    /// True if the same query may succeed later.
    pub retry: bool,
}

/// Another service that runs queries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// The analytics service, whose statements are read-only.
    Analytics,
    /// The search service: the text of a statement is the name of an index, its parameters are a search request, and each
    /// row is a hit.
    Search,
}

/// Starts a query on another service. Returns its handle for the other functions.
///
/// # Errors
/// The failure of the statement, with a code of that service.
pub fn begin_at(service: Service, statement: &Statement) -> Result<u32, Failure> {
    outside::begin_query_at(service, statement)
}

/// Starts a query. Returns its handle for the other functions. The query ends with the call of the plugin.
///
/// # Errors
/// Fails if the statement is invalid or cannot be run.
pub fn begin(statement: &Statement) -> Result<u32, Failure> {
    outside::begin_query(statement)
}

/// Returns the next rows, each as JSON; an empty list if there are no more.
///
/// # Errors
/// Fails if the query fails before its last row.
pub fn next(query: u32) -> Result<Vec<String>, Failure> {
    outside::next_rows(query)
}

/// Ends a query before all rows are read.
pub fn close(query: u32) {
    outside::close_query(query);
}
