//! Searches documents that arrive with the request, without an index.

use crate::blobs::MemoryBlobs;
use crate::definition::Definition;
use crate::document::Place;
use crate::error::{Error, Result};
use crate::index::{Change, Index};
use crate::search::{Request, merge, search};
use serde::Deserialize;
use serde_json::Value;
use std::sync::Arc;

/// Maximum number of documents in a request.
const DOCUMENTS_MAX: usize = 1_000;

/// The body of a request.
#[derive(Deserialize)]
struct Evaluation {
    /// Parameters of an index, as in a definition.
    #[serde(default)]
    params: Value,
    #[serde(default)]
    scope: String,
    #[serde(default)]
    collection: String,
    documents: Vec<Document>,
    /// A search request.
    request: Value,
}

#[derive(Deserialize)]
struct Document {
    id: String,
    body: Value,
}

/// Executes a search on the documents in the body. Returns the response of a search without `took`. `field` is the field of the
/// parts of the query that do not name one.
///
/// # Errors
/// The body, the parameters or the query are invalid, or there are too many documents.
pub fn evaluate(body: &[u8], field: Option<&str>) -> Result<Value> {
    let evaluation: Evaluation =
        serde_json::from_slice(body).map_err(|error| Error::request(error.to_string()))?;
    if evaluation.documents.len() > DOCUMENTS_MAX {
        return Err(Error::request(format!("there are more than {DOCUMENTS_MAX} documents")));
    }
    let definition = Arc::new(Definition::parse_stored(&evaluation.params)?);
    let mut request = Request::from_value(evaluation.request, crate::RESULT_WINDOW)?;
    if let Some(field) = field {
        request.query.set_field(field);
    }
    let mut index = Index::create(definition, Arc::new(MemoryBlobs::default()), 0)?;
    let place = Place { scope: &evaluation.scope, collection: &evaluation.collection };
    let bodies: Vec<(&str, Vec<u8>)> = evaluation
        .documents
        .iter()
        .map(|document| (&*document.id, document.body.to_string().into_bytes()))
        .collect();
    let changes: Vec<Change<'_>> =
        bodies.iter().map(|(id, body)| Change { vb: 0, id, body: Some(body), place }).collect();
    index.apply(&changes)?;
    let partial = search(&index, &request, &mut || false)?;
    let response = merge(&request, vec![("documents".to_owned(), Ok(partial))]);
    Ok(response.to_json(&request, 0))
}
