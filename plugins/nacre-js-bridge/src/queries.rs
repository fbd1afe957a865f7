//! `query`: queries in SQL++.

use crate::arguments::{Arguments, error};
use nacre_js::{HostError, HostValue as Value};
use nacre_plugin::query;

/// The code of what may succeed later, the same as for documents.
const TEMPORARY: &str = "temporary";

/// Calls a function of `query`.
pub fn call(function: &str, arguments: &mut Arguments) -> Result<Value, HostError> {
    match function {
        "begin" => {
            let (text, parameters) = (arguments.text()?, arguments.text()?);
            let statement = query::Statement { text, parameters, is_fresh: arguments.flag()? };
            let number = query::begin(&statement).map_err(refused)?;
            Ok(Value::Number(f64::from(number)))
        }
        "next" => {
            let rows = query::next(arguments.number()? as u32).map_err(refused)?;
            Ok(Value::List(rows.into_iter().map(Value::Json).collect()))
        }
        "close" => {
            query::close(arguments.number()? as u32);
            Ok(Value::Nothing)
        }
        _ => Err(error("invalid", format!("no such function: query.{function}"))),
    }
}

/// What is thrown says by its code whether to try again, and its message begins with the code of the query service.
fn refused(query::Failure { code, message, retry }: query::Failure) -> HostError {
    error(if retry { TEMPORARY } else { "failed" }, format!("{code} {message}"))
}
