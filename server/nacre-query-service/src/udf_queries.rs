//! Queries of JavaScript functions that a query calls: they run with the rights of the request's user and within its
//! time limit.

use super::eventing_queries::{ask, request};
use super::failure::{code, failure};
use super::session::{DisconnectCheck, Session, gone_by};
use nacre_cluster::FunctionId;
use nacre_sandbox::{Failure, Queries, Query, QueryRows, QueryService};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Maximum nesting of functions and their queries; each level has separate instances.
const DEPTH_MAX: u32 = 4;
/// Code of functions that call each other too deeply.
const NESTED: u32 = 10112;

/// The queries of one call.
pub(super) struct ScriptQueries {
    /// Creates the session of each query.
    session: Box<dyn Fn(DisconnectCheck) -> Session + Send + Sync>,
    depth: u32,
    in_transaction: bool,
    may_change: bool,
    function: FunctionId,
}

impl ScriptQueries {
    /// Creates the queries of a function that a request of `session` calls.
    pub fn new(session: &Session, function: &FunctionId, may_change: bool) -> ScriptQueries {
        ScriptQueries {
            session: Box::new(session.below()),
            depth: session.depth,
            in_transaction: session.is_in_transaction(),
            may_change,
            function: function.clone(),
        }
    }
}

impl Queries for ScriptQueries {
    fn begin(&self, query: &Query, left: Duration) -> Result<Box<dyn QueryRows>, Failure> {
        let name = &self.function.name;
        if query.service != QueryService::Query {
            let message = "Functions of queries ask no other services";
            return Err(failure(code::INTERNAL, message));
        }
        if self.depth >= DEPTH_MAX {
            let message =
                format!("Error executing function '{name}': {DEPTH_MAX} nested javascript calls");
            return Err(failure(NESTED, message));
        }
        if self.in_transaction {
            let message = "Functions in JavaScript cannot query in a transaction";
            return Err(failure(code::BEGIN, message));
        }
        let mut body = request(query, left)?;
        body.insert("readonly".into(), (!self.may_change).into());
        if let Some((bucket, scope)) = &self.function.scope {
            // A name without a path is resolved in the function's scope, for every caller.
            body.insert("query_context".into(), format!("default:`{bucket}`.`{scope}`").into());
        }
        let gone = Arc::new(AtomicBool::new(false));
        let session = (self.session)(gone_by(&gone));
        ask(&Arc::clone(&session.requester.node), session, gone, body)
    }
}
