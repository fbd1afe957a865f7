//! `kv`: documents and sub-documents.

use crate::arguments::{Arguments, error};
use nacre_js::{HostError, HostValue as Value};
use nacre_plugin::kv;
use serde::Deserialize;
use serde_json::value::RawValue;

/// One part of a lookup or mutation, in the form that a prelude passes.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Part<'a> {
    operation: String,
    #[serde(default)]
    path: String,
    #[serde(default, borrow)]
    value: Option<&'a RawValue>,
    #[serde(default)]
    xattr: bool,
    #[serde(default)]
    create_path: bool,
    #[serde(default)]
    expand_macros: bool,
}

fn parts(text: &str) -> Result<Vec<Part<'_>>, HostError> {
    serde_json::from_str(text).map_err(|cause| error("invalid", format!("operations: {cause}")))
}

fn lookups(text: &str) -> Result<Vec<kv::LookupSpec>, HostError> {
    let spec = |part: Part<'_>| {
        let operation = match &part.operation[..] {
            "get" => kv::LookupOperation::Get,
            "exists" => kv::LookupOperation::Exists,
            "count" => kv::LookupOperation::Count,
            "document" => kv::LookupOperation::Document,
            other => return Err(error("invalid", format!("no such lookup: {other}"))),
        };
        Ok(kv::LookupSpec { operation, path: part.path, xattr: part.xattr })
    };
    parts(text)?.into_iter().map(spec).collect()
}

fn mutations(text: &str, mut body: Option<Vec<u8>>) -> Result<Vec<kv::MutateSpec>, HostError> {
    let mut spec = |part: Part<'_>| {
        use kv::MutateOperation as Operation;
        let operation = match &part.operation[..] {
            "insert" => Operation::Insert,
            "upsert" => Operation::Upsert,
            "replace" => Operation::Replace,
            "remove" => Operation::Remove,
            "arrayAppend" => Operation::ArrayAppend,
            "arrayPrepend" => Operation::ArrayPrepend,
            "arrayInsert" => Operation::ArrayInsert,
            "arrayAddUnique" => Operation::ArrayAddUnique,
            "counter" => Operation::Counter,
            "setDocument" => Operation::SetDocument,
            "removeDocument" => Operation::RemoveDocument,
            other => return Err(error("invalid", format!("no such mutation: {other}"))),
        };
        let value = match (operation, part.value) {
            (Operation::SetDocument, None) => body.take().unwrap_or_default(),
            (_, value) => value.map(|value| value.get().into()).unwrap_or_default(),
        };
        let Part { path, xattr, create_path, expand_macros, .. } = part;
        Ok(kv::MutateSpec { operation, path, value, xattr, create_path, expand_macros })
    };
    parts(text)?.into_iter().map(&mut spec).collect()
}

/// Converts a result of the host, which is JSON, raw bytes or empty.
fn json(text: Vec<u8>) -> Value {
    match String::from_utf8(text) {
        Ok(text) if text.is_empty() => Value::Nothing,
        Ok(text) => Value::Json(text),
        Err(raw) => Value::Bytes(raw.into_bytes()),
    }
}

/// Calls a function of `kv`.
pub fn call(function: &str, arguments: &mut Arguments) -> Result<Value, HostError> {
    let (keyspace, key) = (arguments.text()?, arguments.key()?);
    let version = |cas: u64| Value::Text(cas.to_string());
    match function {
        "get" => match kv::get(&keyspace, &key) {
            Ok(found) => {
                let value = match (found.is_json, String::from_utf8(found.body)) {
                    (true, Ok(text)) => Value::Json(text),
                    (_, Ok(text)) => Value::Bytes(text.into_bytes()),
                    (_, Err(raw)) => Value::Bytes(raw.into_bytes()),
                };
                let (flags, expiry) = (f64::from(found.flags), f64::from(found.expiry));
                let cas = version(found.cas);
                Ok(Value::List(vec![cas, Value::Number(flags), Value::Number(expiry), value]))
            }
            Err(kv::Error::NotFound) => Ok(Value::Nothing),
            Err(other) => Err(kv_error(&other)),
        },
        "insert" | "upsert" | "replace" => {
            let body = arguments.content()?;
            let (flags, expiry) = (arguments.number()? as u32, arguments.number()? as u32);
            let content = kv::Content { body, flags, expiry };
            let stored = match function {
                "insert" => kv::insert(&keyspace, &key, &content),
                "upsert" => kv::upsert(&keyspace, &key, &content),
                _ => kv::replace(&keyspace, &key, &content, arguments.cas()?),
            };
            stored.map(version).map_err(|error| kv_error(&error))
        }
        "remove" => {
            let removed = kv::remove(&keyspace, &key, arguments.cas()?);
            removed.map(version).map_err(|error| kv_error(&error))
        }
        "touch" => {
            let touched = kv::touch(&keyspace, &key, arguments.number()? as u32);
            touched.map(version).map_err(|error| kv_error(&error))
        }
        "lookupIn" => {
            let looked = kv::lookup_in(&keyspace, &key, &lookups(&arguments.text()?)?);
            let looked = looked.map_err(|error| kv_error(&error))?;
            let result = |found: Result<Vec<u8>, String>| match found {
                Ok(found) => Value::List(vec![Value::Bool(true), json(found)]),
                Err(reason) => Value::List(vec![Value::Bool(false), Value::Text(reason)]),
            };
            let results = looked.results.into_iter().map(result).collect();
            Ok(Value::List(vec![version(looked.cas), Value::List(results)]))
        }
        "mutateIn" => {
            let specs = arguments.text()?;
            let (mode, cas) = (arguments.text()?, arguments.cas()?);
            let expiry = arguments.optional_number()?.map(|expiry| expiry as u32);
            let flags = arguments.optional_number()?.map(|flags| flags as u32);
            // A body of bytes is passed separately from the operations, which are JSON.
            let specs = mutations(&specs, arguments.optional_content()?)?;
            let mode = match &mode[..] {
                "insert" => kv::Mode::Insert,
                "upsert" => kv::Mode::Upsert,
                "replace" => kv::Mode::Replace(cas),
                other => return Err(error("invalid", format!("no such mode: {other}"))),
            };
            let options = kv::MutateOptions { mode, expiry, flags };
            let mutated = kv::mutate_in(&keyspace, &key, &specs, options);
            let mutated = mutated.map_err(|error| kv_error(&error))?;
            let result = |(index, value): (u8, Vec<u8>)| {
                Value::List(vec![Value::Number(f64::from(index)), json(value)])
            };
            let results = mutated.results.into_iter().map(result).collect();
            Ok(Value::List(vec![version(mutated.cas), Value::List(results)]))
        }
        "counter" => {
            let delta = arguments.number()? as i64;
            let (initial, expiry) = (arguments.number()? as u64, arguments.number()? as u32);
            let counted = kv::counter(&keyspace, &key, delta, Some(initial), expiry);
            let value = |counted: kv::Counted| {
                Value::List(vec![Value::Number(counted.value as f64), version(counted.cas)])
            };
            counted.map(value).map_err(|error| kv_error(&error))
        }
        _ => Err(error("invalid", format!("no such function: kv.{function}"))),
    }
}

fn kv_error(cause: &kv::Error) -> HostError {
    let code = match cause {
        kv::Error::NotFound => "not-found",
        kv::Error::Exists => "exists",
        kv::Error::CasMismatch => "cas-mismatch",
        kv::Error::TooLarge => "too-large",
        kv::Error::Locked => "locked",
        kv::Error::Temporary(_) => "temporary",
        kv::Error::Denied(_) => "denied",
        kv::Error::Invalid(_) => "invalid",
        kv::Error::Path(_) => "path",
    };
    error(code, cause.to_string())
}
