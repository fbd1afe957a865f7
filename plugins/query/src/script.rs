//! Functions that run code of users, in JavaScript or of a plugin: what they run, and what a call of one comes to. The store runs
//! them.

use crate::run::Run;
use nacre_datastore::{FunctionPath, Script};
use nacre_sql::ast::{FunctionBody, Path};
use nacre_sql::{Error, Result, Value};

/// A function could not be called, or its code threw.
const EXECUTION: u32 = 10109;
/// No library can be where the path says.
const LIBRARY_PATH: u32 = 10113;

/// What a body runs that is no expression, of the function that `path` names.
///
/// # Errors
/// Code 10113 when its library is neither global nor in the scope of the function.
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

/// `library`, `bucket/scope/library`, or `./library` of the query context.
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

/// The path of a library, as statements say it.
pub(crate) fn path_of(library: &FunctionPath) -> String {
    match &library.scope {
        Some((bucket, scope)) => format!("{bucket}/{scope}/{}", library.name),
        None => library.name.to_string(),
    }
}

/// Calls a function, whose `body` is no expression.
///
/// # Errors
/// Code 10109 with what was thrown and where, as `reason`.
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
    // What has run out of the request's time is told as that.
    run.platform.check()?;
    Err(failed(path, body, &exception))
}

/// A text as something that was thrown.
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

/// The error of a call, with what SDKs know such errors by. Source: Couchbase's reference, errors of JavaScript functions.
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
