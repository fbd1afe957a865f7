//! `query`: SQL++ queries, and queries of other services.

use crate::arguments::{Arguments, error};
use nacre_js::{HostError, HostValue as Value};
use nacre_plugin::query;
use std::collections::BTreeSet;

/// The code of temporary errors, the same as for documents.
const TEMPORARY: &str = "temporary";

/// Queries that a handler has started and that have not ended.
#[derive(Default)]
pub struct Open(BTreeSet<u32>);

impl Open {
    /// Ends all of them, because the handler has ended.
    pub fn close(&mut self) {
        std::mem::take(&mut self.0).into_iter().for_each(query::close);
    }

    /// Registers a started query. Returns its handle for the program.
    fn add(&mut self, begun: Result<u32, query::Failure>) -> Result<Value, HostError> {
        let number = begun.map_err(refused)?;
        self.0.insert(number);
        Ok(Value::Number(f64::from(number)))
    }
}

/// Calls a function of `query`.
pub fn call(
    open: &mut Open,
    function: &str,
    arguments: &mut Arguments,
) -> Result<Value, HostError> {
    match function {
        "begin" => {
            let (text, parameters) = (arguments.text()?, arguments.text()?);
            let statement = query::Statement { text, parameters, is_fresh: arguments.flag()? };
            let begun = query::begin(&statement);
            open.add(begun)
        }
        "beginAt" => {
            let service = match arguments.text()?.as_str() {
                "analytics" => query::Service::Analytics,
                "search" => query::Service::Search,
                other => return Err(error("invalid", format!("no such service: {other}"))),
            };
            let (text, parameters) = (arguments.text()?, arguments.text()?);
            let statement = query::Statement { text, parameters, is_fresh: arguments.flag()? };
            let begun = query::begin_at(service, &statement);
            open.add(begun)
        }
        "next" => {
            let number = arguments.number()? as u32;
            let rows = query::next(number);
            if rows.as_ref().map_or(true, Vec::is_empty) {
                open.0.remove(&number);
            }
            let rows = rows.map_err(refused)?;
            Ok(Value::List(rows.into_iter().map(Value::Json).collect()))
        }
        "close" => {
            let number = arguments.number()? as u32;
            open.0.remove(&number);
            query::close(number);
            Ok(Value::Nothing)
        }
        _ => Err(error("invalid", format!("no such function: query.{function}"))),
    }
}

/// Converts a failure. The code shows whether a retry may succeed; the message begins with the code of the query
/// service.
fn refused(query::Failure { code, message, retry }: query::Failure) -> HostError {
    error(if retry { TEMPORARY } else { "failed" }, format!("{code} {message}"))
}
