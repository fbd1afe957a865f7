//! Previews of views: the rows that a design document would have for a few documents.
//!
//! The documents pass through a temporary sandbox. Nothing is stored and no deployment is created, so an editor can request
//! a preview after every change of the code.

use super::Runtime;
use super::kind::{view_config, view_source};
use super::rehearsal::{TrialDocuments, documents};
use super::shipped::VIEWS;
use crate::NodePlugins;
use nacre_node::Node;
use nacre_sandbox::{Effects, Error, LogLine, Rehearsal, Request, Response, Setup};
use nacre_types::Kind;
use std::sync::Arc;
use std::time::Duration;

/// Maximum number of documents in a preview.
pub const PREVIEW_DOCUMENTS_MAX: usize = 100;
/// Time limit of a preview; remaining documents are omitted. An editor waits for it after each keystroke.
const PATIENCE: Duration = Duration::from_secs(5);
/// Maximum number of rows in a preview.
const ROWS_MAX: usize = 1000;

/// The outcome of a preview.
#[derive(Debug)]
pub struct Preview {
    /// IDs of documents that failed or are not available, with the reason.
    pub errors: Vec<(String, String)>,
    /// Number of documents that were mapped.
    pub mapped: usize,
    /// Total time of the mapping.
    pub elapsed: Duration,
    /// Log lines of the functions.
    pub log: Vec<LogLine>,
    /// The view's answer without its reduce function: JSON with `rows`.
    pub rows: Response,
    /// The view's answer with its reduce function, if it has one.
    pub reduced: Option<Response>,
    /// False if time ran out before all documents were mapped.
    pub is_complete: bool,
}

/// A view in a design document, which need not be stored.
#[derive(Clone, Copy, Debug)]
pub struct PreviewedView<'a> {
    /// JSON text of the design document.
    pub design: &'a str,
    /// Name of the view.
    pub view: &'a str,
    /// True if the view has a reduce function.
    pub is_reduced: bool,
    /// Level by which reduced rows are grouped; `None` groups by whole keys.
    pub group_level: Option<u32>,
}

/// Maps documents of `bucket` with a view, and returns its rows.
///
/// # Errors
/// The reason why the view cannot run, for its author.
pub fn preview(
    node: &Arc<Node>,
    bucket: &str,
    view: PreviewedView<'_>,
    chosen: &TrialDocuments,
) -> Result<Preview, String> {
    let cluster = node.cluster();
    let missing = || format!("there is no bucket {bucket}");
    let config = cluster.buckets.get(bucket).ok_or_else(missing)?;
    let source = view_source(config, view.design).map_err(|refusal| refusal.to_string())?;
    let bucket = node.bucket(bucket).ok_or_else(missing)?;
    let text =
        view_config("preview", view.design, false).ok_or("a design document is a JSON object")?;
    let budgets = node.memory().budgets().clone();
    let setup = Setup { budgets, ..Setup::new("preview", text) };
    let Runtime { plugin, .. } = node.plugins().components.get_or_load(node, &VIEWS)?;
    let mut rehearsal = Rehearsal::new(plugin, setup, Effects::default()).map_err(reason)?;
    let begun_ns = node.now().monotonic_ns;
    let end_ns = begun_ns.saturating_add(PATIENCE.as_nanos() as u64);
    let (mut errors, mut log, mut mapped, mut is_complete) = (Vec::new(), Vec::new(), 0, true);
    for (id, found) in documents(node, &bucket, &source, chosen)? {
        if node.now().monotonic_ns >= end_ns {
            is_complete = false;
            break;
        }
        let (vbid, document) = match found {
            Ok(found) => found,
            Err(reason) => {
                errors.push((id, reason));
                continue;
            }
        };
        // History also has deletions, which have no rows.
        if document.meta.kind != Kind::Alive {
            continue;
        }
        let played = rehearsal.play(vbid, &document, None, node.now()).map_err(reason)?;
        mapped += 1;
        log.extend(played.log);
        errors.extend(played.error.map(|error| (id, error)));
    }
    let elapsed = Duration::from_nanos(node.now().monotonic_ns.saturating_sub(begun_ns));
    let ask = |query: String| {
        let answer = rehearsal.ask(&request(view.view, query), node.now()).map_err(reason)?;
        match answer.status {
            200 => Ok(answer),
            _ => Err(String::from_utf8_lossy(&answer.body).into_owned()),
        }
    };
    let rows = ask(format!("reduce=false&limit={ROWS_MAX}"))?;
    let grouped = match view.group_level {
        Some(level) => format!("reduce=true&group_level={level}"),
        None => "reduce=true&group=true".to_owned(),
    };
    let reduced = view.is_reduced.then(|| ask(grouped)).transpose()?;
    Ok(Preview { errors, mapped, elapsed, log, rows, reduced, is_complete })
}

fn request(view: &str, query: String) -> Request {
    Request {
        method: "GET".to_owned(),
        path: format!("/{view}"),
        query,
        headers: Vec::new(),
        body: Vec::new(),
    }
}

/// Returns the text of an error for the author of the view.
fn reason(error: Error) -> String {
    match error {
        Error::Config { message, .. } => message,
        other => other.to_string(),
    }
}
