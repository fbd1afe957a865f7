//! Capability `query`: queries in SQL++ with the rights of whoever defined the deployment.

use super::outside;

/// What is asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statement {
    /// The text.
    pub text: String,
    /// Values of its parameters as JSON: an object for named ones, an array for those in order; empty for none.
    pub parameters: String,
    /// Whether it has to see all that was written before it.
    pub is_fresh: bool,
}

/// Why there are no rows, or no more.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message} ({code})")]
pub struct Failure {
    /// The code that clients of the query service know it by.
    pub code: u32,
    /// What is wrong, for the author of the statement.
    pub message: String,
    /// Whether the same query may succeed later.
    pub retry: bool,
}

/// Another service that answers queries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// Analytics, whose statements change nothing here.
    Analytics,
    /// Search: the text of a statement is the name of an index, its parameters are a search request, and each row is a hit.
    Search,
}

/// Begins a query that another service answers; gives what it is called in the other functions.
///
/// # Errors
/// The failure of the statement, with a code of that service.
pub fn begin_at(service: Service, statement: &Statement) -> Result<u32, Failure> {
    outside::begin_query_at(service, statement)
}

/// Begins a query; gives what it is called in the other functions. It ends with the call of the plugin.
///
/// # Errors
/// What is wrong with it.
pub fn begin(statement: &Statement) -> Result<u32, Failure> {
    outside::begin_query(statement)
}

/// The next rows, each as JSON; none when there are no more.
///
/// # Errors
/// Why there are no more although there should be.
pub fn next(query: u32) -> Result<Vec<String>, Failure> {
    outside::next_rows(query)
}

/// Ends a query of which no more rows are wanted.
pub fn close(query: u32) {
    outside::close_query(query);
}
