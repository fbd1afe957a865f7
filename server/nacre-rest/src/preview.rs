//! Previews of views: `POST /{bucket}/_preview`, for editors that show rows while a user types.

use super::Call;
use super::body::{Reply, blocking, error_reply, reply};
use super::views::{check_members, in_time, loaded, no_bucket};
use hyper::StatusCode;
use nacre_auth::Privilege;
use nacre_plugins_service::{
    self as plugins, PREVIEW_DOCUMENTS_MAX, Preview, PreviewedView, TrialDocuments,
};
use nacre_sandbox::Response;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::sync::Arc;

/// Default number of documents in a preview.
const LAST: usize = 20;

/// Body of a request.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    /// The design document, as a request would store it.
    design: Box<RawValue>,
    /// Name of the view.
    view: String,
    /// IDs of documents to map.
    #[serde(default)]
    documents: Option<Vec<String>>,
    /// Number of documents to map, starting with the latest.
    #[serde(default)]
    last: Option<usize>,
    #[serde(default)]
    group_level: Option<u32>,
}

impl Asked {
    fn chosen(&self) -> Result<TrialDocuments, String> {
        match (&self.documents, self.last) {
            (Some(_), Some(_)) => Err("name either documents or last, not both".into()),
            (Some(ids), None) if ids.len() > PREVIEW_DOCUMENTS_MAX => {
                Err(format!("a preview takes at most {PREVIEW_DOCUMENTS_MAX} documents"))
            }
            (Some(ids), None) => Ok(TrialDocuments::Ids(ids.clone(), None)),
            (None, last) => {
                Ok(TrialDocuments::Last(last.unwrap_or(LAST).min(PREVIEW_DOCUMENTS_MAX)))
            }
        }
    }
}

/// Maps documents with a view that need not be stored, and returns its rows.
///
/// The user needs the privilege to change views, because code runs, and the privilege to read views, because rows show
/// documents.
pub(super) async fn preview(call: Call) -> Result<Reply, Reply> {
    let bucket = call.segment("bucket").to_owned();
    call.require(Privilege::ReadViews, Some(&bucket))?;
    call.node.cluster().bucket(&bucket).map_err(|_| no_bucket())?;
    let bad_request = |reason: &str| error_reply(StatusCode::BAD_REQUEST, "bad_request", reason);
    let invalid =
        |reason: &str| error_reply(StatusCode::BAD_REQUEST, "invalid_design_document", reason);
    let asked: Asked = serde_json::from_slice(&call.body)
        .map_err(|error| bad_request(&format!("the body: {error}")))?;
    let chosen = asked.chosen().map_err(|reason| bad_request(&reason))?;
    let design: Value = serde_json::from_str(asked.design.get()).unwrap_or_default();
    check_members(&design).map_err(|reason| invalid(&reason))?;
    let Some(view) = design["views"].get(&asked.view) else {
        return Err(invalid(&format!("there is no view {:?}", asked.view)));
    };
    let is_reduced = view["reduce"].as_str().is_some_and(|reduce| !reduce.is_empty());
    in_time(loaded(&call)).await?;
    let node = Arc::clone(&call.node);
    let previewed = blocking("the preview", move || {
        let Asked { design, view, group_level, .. } = &asked;
        let view =
            PreviewedView { design: design.get(), view, is_reduced, group_level: *group_level };
        plugins::preview(&node, &bucket, view, &chosen)
    });
    let previewed = previewed.await?.map_err(|reason| invalid(&reason))?;
    Ok(reply(StatusCode::OK, "application/json", described(&previewed)))
}

/// Formats a preview. Rows stay as the view wrote them, so that no number is rounded.
fn described(preview: &Preview) -> String {
    let errors: Vec<Value> =
        preview.errors.iter().map(|(id, message)| json!({"id": id, "message": message})).collect();
    let log: Vec<&str> = preview.log.iter().map(|line| line.message.as_str()).collect();
    let about = json!({
        "read": preview.mapped,
        "us_per_document": preview.elapsed.as_micros() as u64 / preview.mapped.max(1) as u64,
        "errors": errors,
        "log": log,
        "complete": preview.is_complete,
    });
    let text = |answer: &Response| String::from_utf8_lossy(&answer.body).into_owned();
    let reduced = preview.reduced.as_ref().map_or_else(|| "null".to_owned(), text);
    format!("{{\"about\":{about},\"emitted\":{},\"reduced\":{reduced}}}", text(&preview.rows))
}
