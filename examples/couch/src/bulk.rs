//! Requests for many documents: `_bulk_docs`, `_bulk_get`, `_revs_diff`, `_missing_revs`.

use crate::Call;
use crate::documents::{Shape, edit, render, replicate};
use crate::http::{Problem, body, durable, json};
use crate::json::{quoted, read};
use crate::store::{Store, rev_id};
use crate::tree::Rev;
use nacre_plugin::{Chunk, Response, turn};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::ops::Range;

/// Milliseconds until a piece of the answer is returned: a call may take 5 s.
const PIECE_MS: u32 = 1000;
/// Maximum number of documents in a request to `_bulk_get`.
const GET_MAX: usize = 10_000;

/// Documents of `_bulk_docs` that are not written yet.
pub struct Pending {
    body: Vec<u8>,
    /// Their ranges in the body.
    documents: std::vec::IntoIter<Range<usize>>,
    new_edits: bool,
    /// Distinguishes IDs that are created here.
    salt: String,
    has_rows: bool,
}

impl Pending {
    /// Writes documents for a while. Returns their rows, and a cursor if there are more documents.
    pub fn piece(&mut self, store: &Store<'_>) -> Chunk {
        let mut text = String::new();
        let mut is_late = false;
        while !is_late {
            let Some(range) = self.documents.next() else {
                text.push_str("]\n");
                return Chunk { body: text.into_bytes(), cursor: None };
            };
            let document = std::str::from_utf8(&self.body[range.clone()]).unwrap_or_default();
            if let Some(row) = self.write(store, document, range.start) {
                text.push_str(if self.has_rows { "," } else { "" });
                text.push_str(&row);
                self.has_rows = true;
            }
            is_late = turn::passed_ms() >= PIECE_MS;
        }
        Chunk { body: text.into_bytes(), cursor: Some(b"b".to_vec()) }
    }

    /// Writes a document and returns its row; a revision made elsewhere has a row only if it was not
    /// stored.
    fn write(&self, store: &Store<'_>, document: &str, at: usize) -> Option<String> {
        let given = match read(document) {
            Ok(given) => given,
            Err(problem) => {
                let id = serde_json::from_str::<Named>(document).unwrap_or_default().id;
                return Some(problem.row(&id.unwrap_or_default(), None));
            }
        };
        let id = match &given.id {
            Some(id) => id.clone(),
            None => rev_id(None, false, &format!("{} {at}", self.salt), &Default::default()),
        };
        let rev = given.rev.as_ref().map(ToString::to_string);
        match self.new_edits {
            true => Some(match edit(store, &id, &given) {
                Ok(rev) => {
                    let rev = quoted(&rev.to_string());
                    format!("{{\"ok\":true,\"id\":{},\"rev\":{rev}}}", quoted(&id))
                }
                Err(problem) => problem.row(&id, None),
            }),
            false => {
                replicate(store, &id, &given).err().map(|problem| problem.row(&id, rev.as_deref()))
            }
        }
    }
}

/// The ID of a document that cannot be parsed completely.
#[derive(Default, Deserialize)]
struct Named {
    #[serde(rename = "_id")]
    id: Option<String>,
}

#[derive(Deserialize)]
struct BulkDocs<'a> {
    #[serde(borrow)]
    docs: Vec<&'a RawValue>,
    #[serde(default = "yes")]
    new_edits: bool,
}

fn yes() -> bool {
    true
}

/// `POST /{db}/_bulk_docs`: writes the first documents, and returns the others.
///
/// # Errors
/// 400 for an invalid request; nothing is written then.
pub fn write(call: &Call<'_>) -> Result<(Response, Option<Pending>), Problem> {
    let bytes = call.request.body.clone();
    #[derive(Deserialize)]
    struct Probe<'a> {
        #[serde(borrow)]
        docs: Option<&'a RawValue>,
    }
    let probe: Probe<'_> = body_of(&bytes)?;
    match probe.docs {
        None => return Err(Problem::bad("POST body must include `docs` parameter.")),
        Some(docs) if !docs.get().starts_with('[') => {
            return Err(Problem::bad("`docs` parameter must be an array."));
        }
        Some(_) => {}
    }
    let BulkDocs { docs, new_edits } = body_of(&bytes)?;
    let new_edits = new_edits && call.parameters.get("new_edits") != Some("false");
    let start = bytes.as_ptr() as usize;
    let range = |document: &&RawValue| {
        let text = document.get();
        let first = text.as_ptr() as usize - start;
        first..first + text.len()
    };
    for document in &docs {
        let given = match read(document.get()) {
            Ok(given) => given,
            Err(problem) if !document.get().starts_with('{') => return Err(problem),
            Err(_) => continue,
        };
        if !new_edits && given.rev.is_none() && given.path.is_none() {
            let reason = "When using `new_edits: false`, the document needs a _rev";
            return Err(Problem::bad(reason));
        }
    }
    let ranges: Vec<Range<usize>> = docs.iter().map(range).collect();
    let mut pending = Pending {
        documents: ranges.into_iter(),
        new_edits,
        salt: call.request.now_us.to_string(),
        has_rows: false,
        body: bytes.clone(),
    };
    let Chunk { body, cursor } = pending.piece(&call.store);
    let mut response = durable(json(201, [b"[", &body[..]].concat()));
    let pending = cursor.is_some().then_some(pending);
    response.cursor = cursor;
    Ok((response, pending))
}

fn body_of<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, Problem> {
    serde_json::from_slice(bytes)
        .map_err(|error| Problem::bad(&format!("invalid UTF-8 JSON: {error}")))
}

#[derive(Deserialize)]
struct BulkGet {
    docs: Vec<Asked>,
}

#[derive(Deserialize)]
struct Asked {
    id: Option<String>,
    #[serde(default)]
    rev: Option<String>,
}

/// Answers `POST /{db}/_bulk_get`.
///
/// # Errors
/// 400 for an invalid request.
pub fn get(call: &Call<'_>) -> Result<Response, Problem> {
    let BulkGet { docs } =
        body(call.request).map_err(|_| Problem::bad("Missing JSON list of 'docs'."))?;
    if docs.len() > GET_MAX {
        return Err(Problem::bad(&format!("at most {GET_MAX} documents at once")));
    }
    let (shape, latest) = (Shape::of(call), call.parameters.is("latest"));
    let mut results = Vec::with_capacity(docs.len());
    for Asked { id, rev } in docs {
        let Some(id) = id else {
            let error = "{\"error\":{\"id\":null,\"rev\":null,\"error\":\"bad_request\",\"reason\":\"document id missed\"}}";
            results.push(format!("{{\"id\":null,\"docs\":[{error}]}}"));
            continue;
        };
        let docs = leaves(call, &id, rev.as_deref(), latest, shape);
        results.push(format!("{{\"id\":{},\"docs\":[{}]}}", quoted(&id), docs.join(",")));
    }
    Ok(json(200, format!("{{\"results\":[{}]}}\n", results.join(","))))
}

fn leaves(call: &Call<'_>, id: &str, rev: Option<&str>, latest: bool, shape: Shape) -> Vec<String> {
    let failed = |problem: &Problem, rev: &str| {
        let (error, reason) = (quoted(problem.error), quoted(&problem.reason));
        let (id, rev) = (quoted(id), quoted(rev));
        format!("{{\"error\":{{\"id\":{id},\"rev\":{rev},\"error\":{error},\"reason\":{reason}}}}}")
    };
    let version = match call.store.load(id) {
        Ok(version) => version,
        Err(problem) => return vec![failed(&problem, rev.unwrap_or("undefined"))],
    };
    if version.is_imported {
        // If the import fails now, the change stream will import it.
        drop(call.store.import(id));
    }
    let revs = match rev {
        None => version.tree().leaves(),
        Some(text) => match Rev::parse(text) {
            None => return vec![failed(&Problem::bad("Invalid rev format"), text)],
            Some(rev) if latest && version.tree().contains(&rev) => version.tree().leaves_of(&rev),
            Some(rev) => vec![rev],
        },
    };
    if revs.is_empty() {
        return vec![failed(&Problem::missing("missing"), "undefined")];
    }
    let one = |rev: &Rev| match render(&call.store, &version, rev, shape) {
        Ok(text) => format!("{{\"ok\":{text}}}"),
        Err(problem) => failed(&problem, &rev.to_string()),
    };
    revs.iter().map(one).collect()
}

/// Returns the unknown revisions of a request, and the known ones that may be their ancestors.
fn unknown(call: &Call<'_>) -> Result<Vec<(String, Vec<String>, Vec<String>)>, Problem> {
    let asked: BTreeMap<String, Vec<String>> = body(call.request)?;
    let mut rows = Vec::new();
    for (id, revs) in asked {
        let tree = call.store.load(&id).map(|version| version.record.tree).unwrap_or_default();
        let revs: Vec<(String, Option<Rev>)> =
            revs.into_iter().map(|text| (text.clone(), Rev::parse(&text))).collect();
        let is_known = |rev: &Option<Rev>| rev.as_ref().is_some_and(|rev| tree.contains(rev));
        let missing: Vec<&(String, Option<Rev>)> =
            revs.iter().filter(|(_, rev)| !is_known(rev)).collect();
        if missing.is_empty() {
            continue;
        }
        let newest = missing.iter().filter_map(|(_, rev)| Some(rev.as_ref()?.generation)).max();
        let ancestors = tree.leaves().into_iter().filter(|leaf| Some(leaf.generation) < newest);
        let ancestors = ancestors.map(|leaf| leaf.to_string()).collect();
        rows.push((id, missing.into_iter().map(|(text, _)| text.clone()).collect(), ancestors));
    }
    Ok(rows)
}

fn list(revs: &[String]) -> String {
    let revs: Vec<String> = revs.iter().map(|rev| quoted(rev)).collect();
    format!("[{}]", revs.join(","))
}

/// Answers `POST /{db}/_revs_diff`.
///
/// # Errors
/// 400 for an invalid request.
pub fn revs_diff(call: &Call<'_>) -> Result<Response, Problem> {
    let row = |(id, missing, ancestors): (String, Vec<String>, Vec<String>)| {
        let ancestors = match ancestors.is_empty() {
            true => String::new(),
            false => format!(",\"possible_ancestors\":{}", list(&ancestors)),
        };
        format!("{}:{{\"missing\":{}{ancestors}}}", quoted(&id), list(&missing))
    };
    let rows: Vec<String> = unknown(call)?.into_iter().map(row).collect();
    Ok(json(200, format!("{{{}}}\n", rows.join(","))))
}

/// Answers `POST /{db}/_missing_revs`.
///
/// # Errors
/// 400 for an invalid request.
pub fn missing_revs(call: &Call<'_>) -> Result<Response, Problem> {
    let row = |(id, missing, _): (String, Vec<String>, Vec<String>)| {
        format!("{}:{}", quoted(&id), list(&missing))
    };
    let rows: Vec<String> = unknown(call)?.into_iter().map(row).collect();
    Ok(json(200, format!("{{\"missing_revs\":{{{}}}}}\n", rows.join(","))))
}
