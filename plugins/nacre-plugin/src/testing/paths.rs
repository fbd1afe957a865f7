//! Sub-document operations for tests: paths of names joined by dots, and the operations that need
//! no more.

use crate::kv::{Error, LookupOperation, LookupSpec, MutateOperation, MutateSpec};
use serde_json::{Map, Value};

/// The macro for the CAS of a mutation.
const CAS_MACRO: &str = "\"${Mutation.CAS}\"";

/// A body, `None` if it was removed, and the results of counters.
type Changed = (Option<Vec<u8>>, Vec<(u8, Vec<u8>)>);

/// Returns the result of one part of a lookup.
pub fn look(
    spec: &LookupSpec,
    body: &[u8],
    xattrs: &Map<String, Value>,
) -> Result<Vec<u8>, String> {
    let document = match (spec.operation, spec.xattr) {
        (LookupOperation::Document, _) => return Ok(body.to_vec()),
        (_, true) => Value::Object(xattrs.clone()),
        (_, false) => serde_json::from_slice(body).map_err(|_| "document is not JSON")?,
    };
    let found = document.pointer(&pointer(&spec.path)).ok_or("path not found")?;
    match (spec.operation, found) {
        (LookupOperation::Exists, _) => Ok(Vec::new()),
        (LookupOperation::Count, Value::Array(elements)) => Ok(elements.len().to_string().into()),
        (LookupOperation::Count, Value::Object(members)) => Ok(members.len().to_string().into()),
        (LookupOperation::Count, _) => Err("path does not fit the document".into()),
        (_, found) => Ok(found.to_string().into()),
    }
}

/// Applies all changes, or none.
pub fn change(
    specs: &[MutateSpec],
    body: Vec<u8>,
    xattrs: &mut Map<String, Value>,
    cas: u64,
) -> Result<Changed, Error> {
    let (mut body, mut results) = (Some(body), Vec::new());
    let mut attributes = Value::Object(xattrs.clone());
    for (index, spec) in specs.iter().enumerate() {
        let failed = |reason: &str| Error::Path(format!("{reason} (operation {index})"));
        match spec.operation {
            MutateOperation::SetDocument => body = Some(spec.value.clone()),
            MutateOperation::RemoveDocument => body = None,
            _ if spec.xattr => {
                change_at(&mut attributes, spec, cas).map_err(|reason| failed(&reason))?;
            }
            _ => {
                let text = body.take().unwrap_or_default();
                let mut document: Value =
                    serde_json::from_slice(&text).map_err(|_| failed("document is not JSON"))?;
                let result =
                    change_at(&mut document, spec, cas).map_err(|reason| failed(&reason))?;
                results.extend(result.map(|value| (index as u8, value.to_string().into())));
                body = Some(document.to_string().into());
            }
        }
    }
    if let Value::Object(changed) = attributes {
        *xattrs = changed;
    }
    Ok((body, results))
}

fn change_at(document: &mut Value, spec: &MutateSpec, cas: u64) -> Result<Option<Value>, String> {
    let value = match spec.expand_macros && spec.value == CAS_MACRO.as_bytes() {
        true => Value::String(format!("0x{:016x}", cas.swap_bytes())),
        false if spec.operation == MutateOperation::Remove => Value::Null,
        false => {
            serde_json::from_slice(&spec.value).map_err(|_| "value cannot be inserted here")?
        }
    };
    let (parents, name) = spec.path.rsplit_once('.').unwrap_or(("", &spec.path));
    let mut parent = document;
    for step in parents.split('.').filter(|step| !step.is_empty()) {
        let members = parent.as_object_mut().ok_or("path does not fit the document")?;
        if !members.contains_key(step) && !spec.create_path {
            return Err("path not found".into());
        }
        parent = members.entry(step).or_insert_with(|| Value::Object(Map::new()));
    }
    let members = parent.as_object_mut().ok_or("path does not fit the document")?;
    let is_there = members.contains_key(name);
    match spec.operation {
        MutateOperation::Insert if is_there => return Err("path exists already".into()),
        MutateOperation::Replace | MutateOperation::Remove if !is_there => {
            return Err("path not found".into());
        }
        MutateOperation::Insert | MutateOperation::Upsert | MutateOperation::Replace => {
            members.insert(name.to_owned(), value);
        }
        MutateOperation::Remove => {
            members.remove(name);
        }
        MutateOperation::ArrayAppend => {
            let array = members.entry(name).or_insert_with(|| Value::Array(Vec::new()));
            array.as_array_mut().ok_or("path does not fit the document")?.push(value);
        }
        MutateOperation::Counter => {
            let old = members.get(name).and_then(Value::as_i64).unwrap_or(0);
            let sum = Value::from(old + value.as_i64().ok_or("invalid delta")?);
            members.insert(name.to_owned(), sum.clone());
            return Ok(Some(sum));
        }
        _ => return Err("the tests do not know this operation".into()),
    }
    Ok(None)
}

fn pointer(path: &str) -> String {
    path.split('.').map(|name| format!("/{name}")).collect()
}
