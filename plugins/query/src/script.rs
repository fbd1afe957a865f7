//! Functions with user code, in JavaScript or in a plugin: finds the code and converts the results. The store runs them.

use crate::run::Run;
use nacre_datastore::{FunctionPath, Script};
use nacre_sql::ast::{FunctionBody, Path};
use nacre_sql::{Error, Result, Value};

/// Code of a function that could not be called, or whose code threw.
const EXECUTION: u32 = 10109;
/// Code of an invalid library path.
const LIBRARY_PATH: u32 = 10113;

/// Returns the user code that the function at `path` runs; `None` if its body is an expression.
///
/// # Errors
/// Code 10113 if its library is neither global nor in the scope of the function.
pub(crate) fn of(
    body: &FunctionBody,
    path: &FunctionPath,
    context: Option<&Path>,
) -> Result<Option<Script>> {
    match body {
        FunctionBody::Expr(..) => Ok(None),
        FunctionBody::Script(code) => Ok(Some(Script::Code(code.clone()))),
        FunctionBody::External(function, library) => {
            let invalid =
                || Error::new(LIBRARY_PATH, format!("Invalid javascript library path: {library}"));
            let found = library_of(library, context).ok_or_else(invalid)?;
            if found.scope.is_some() && found.scope != path.scope {
                return Err(invalid());
            }
            Ok(Some(Script::Library { library: found, function: function.clone() }))
        }
        FunctionBody::Deployed(function, deployment) => {
            let (function, deployment) = (function.clone(), deployment.clone());
            Ok(Some(Script::Deployed { deployment, function }))
        }
    }
}

/// Reads `library`, `bucket/scope/library`, or `./library` relative to the query context.
fn library_of(path: &str, context: Option<&Path>) -> Option<FunctionPath> {
    let parts: Vec<&str> = path.split('/').collect();
    if parts.iter().any(|part| part.is_empty()) {
        return None;
    }
    match (&parts[..], context.map(|context| &context.parts[..])) {
        ([".", name], Some([bucket, scope])) => Some(FunctionPath {
            scope: Some((bucket.clone(), scope.clone())),
            name: (*name).into(),
        }),
        ([".", name], _) | ([name], _) => Some(FunctionPath { scope: None, name: (*name).into() }),
        ([bucket, scope, name], _) => Some(FunctionPath {
            scope: Some(((*bucket).into(), (*scope).into())),
            name: (*name).into(),
        }),
        _ => None,
    }
}

/// Returns the path of a library as written in statements.
pub(crate) fn path_of(library: &FunctionPath) -> String {
    match &library.scope {
        Some((bucket, scope)) => format!("{bucket}/{scope}/{}", library.name),
        None => library.name.to_string(),
    }
}

/// Calls a function whose `body` is user code.
///
/// # Errors
/// Code 10109, with the exception and its place as `reason`.
pub(crate) fn call(
    path: &FunctionPath,
    body: &FunctionBody,
    args: &[Value],
    run: &Run<'_>,
) -> Result<Value> {
    let may_change = run.state.executes.get() && !run.settings.readonly;
    let exception = match run.store.call(path, &arguments_of(args), may_change) {
        Ok(answer) => match Value::parse(answer.as_bytes()) {
            Ok(answer) if answer.field("exception").is_missing() => {
                return Ok(answer.field("value"));
            }
            Ok(answer) => answer.field("exception"),
            Err(error) => thrown(&format!("its result cannot be read: {error}")),
        },
        Err(error) if error.code == EXECUTION => thrown(&error.message),
        Err(error) => return Err(error),
    };
    // If the request has timed out, report that.
    run.platform.check()?;
    Err(failed(path, body, &exception))
}

/// Returns a text in the form of an exception.
fn thrown(text: &str) -> Value {
    Value::object([("thrown", Value::from(text))])
}

fn arguments_of(args: &[Value]) -> String {
    let one = |arg: &Value| match arg {
        Value::Missing => "[]".to_owned(),
        arg => format!("[{}]", arg.to_json()),
    };
    format!("[{}]", args.iter().map(one).collect::<Vec<_>>().join(","))
}

/// Returns the error of a call in the form that SDKs expect. Source: Couchbase's reference, errors of JavaScript functions.
fn failed(path: &FunctionPath, body: &FunctionBody, exception: &Value) -> Error {
    let (file, what) = match body {
        FunctionBody::External(function, place) | FunctionBody::Deployed(function, place) => {
            (place.to_string(), format!("{place}:{function}"))
        }
        FunctionBody::Script(_) | FunctionBody::Expr(..) => (path_of(path), path.name.to_string()),
    };
    let kind = match body {
        FunctionBody::Deployed(..) => "Exceptions from Wasm code",
        _ => "Exceptions from JS code",
    };
    let (line, column) = (exception.field("line"), exception.field("column"));
    let is_placed = !line.is_missing();
    let at = |place: String| if is_placed { place.into() } else { Value::Missing };
    let details = Value::object([
        ("Code", exception.field("text")),
        ("Exception", exception.field("thrown")),
        ("Location", at(format!("functions/{file}.js:{line}"))),
        ("Stack", at(format!("   at functions/{file}.js:{line}:{column}"))),
    ]);
    let reason = Value::object([("details", details), ("type", Value::from(kind))]);
    let message = format!("Error executing function '{}' ({what})", path.name);
    Error::new(EXECUTION, message).with_reason(reason)
}
