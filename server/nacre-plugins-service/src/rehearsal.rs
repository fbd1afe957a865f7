//! Dry runs: the effects that a function would have on existing documents.

use super::functions::spec;
use super::history::{HistoryReader, Range};
use super::message::{PluginMessage, PluginReply};
use super::open::{function_queries, setup};
use super::shipped::EVENTING;
use super::spec::Selection;
use super::{BucketDocuments, Runtime};
use crate::NodePlugins;
use nacre_bucket::Bucket;
use nacre_cluster::{Function, FunctionId, Source};
use nacre_dcp::Limit;
use nacre_node::Node;
use nacre_node::service::{FunctionQueries, QueryWrites};
use nacre_sandbox::{Effects, KvError, Rehearsal, Rehearsed, Setup};
use nacre_types::{Document, Seqno, Vbid};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Maximum number of documents in a dry run.
pub const DOCUMENTS_MAX: usize = 1000;
/// Time limit of a dry run; remaining documents are omitted.
const PATIENCE: Duration = Duration::from_secs(60);
/// Maximum size of all documents in memory, in bytes; the last portion may exceed it.
const DOCUMENTS_BYTES_MAX: usize = 64 << 20;
/// Limit of one read from history.
const PORTION: Limit = Limit { count: 256, bytes: 4 << 20 };

/// The documents to try. Documents that other nodes serve can be tried only by ID.
#[derive(Clone, Debug)]
pub enum TrialDocuments {
    /// Documents with these IDs; with `scope.collection` if the function listens to several collections.
    Ids(Vec<String>, Option<String>),
    /// A part of history.
    Range(Range),
    /// The most recently written documents.
    Last(usize),
}

/// The result for one document.
pub struct TrialResult {
    /// The ID.
    pub id: String,
    /// The document and the effects, or the reason why the document is not available.
    pub outcome: Result<(Vbid, Document, Rehearsed), String>,
}

/// Passes documents to a function, which need not be deployed, and returns its effects without applying them. The
/// second value is true if all documents were tried.
///
/// # Errors
/// The reason why the function cannot run.
pub fn rehearse(
    node: &Arc<Node>,
    id: &FunctionId,
    function: &Function,
    chosen: &TrialDocuments,
) -> Result<(Vec<TrialResult>, bool), String> {
    let cluster = node.cluster();
    let name = &function.definition.source.bucket;
    let missing = || format!("there is no bucket {name}");
    let config = cluster.buckets.get(name).ok_or_else(missing)?;
    let bucket = node.bucket(name).ok_or_else(missing)?;
    let spec = spec(id, function, config);
    let source = spec.source.clone().map_err(|refusal| refusal.to_string())?;
    let effects = Effects::default();
    let writes = QueryWrites::Recorded(effects.clone());
    let asking = FunctionQueries { owner: &spec.owner, source: &source, writes };
    let queries = function_queries(node, &asking);
    let setup = Setup { queries, ..setup(node, &bucket, &spec)? };
    let Runtime { plugin, .. } = node.plugins().components.get_or_load(node, &EVENTING)?;
    let mut rehearsal =
        Rehearsal::new(plugin, setup, effects).map_err(|error| error.to_string())?;
    let end_ns = node.now().monotonic_ns.saturating_add(PATIENCE.as_nanos() as u64);
    let mut tried = Vec::new();
    for (id, found) in documents(node, &bucket, &source, chosen)? {
        if node.now().monotonic_ns >= end_ns {
            return Ok((tried, false));
        }
        let outcome = match found {
            Err(reason) => Err(reason),
            Ok((vbid, document)) => {
                let previous = match spec.old {
                    true => bucket.previous(vbid, document.meta.seqno).ok().flatten(),
                    false => None,
                };
                let played = rehearsal.play(vbid, &document, previous, node.now());
                Ok((vbid, document, played.map_err(|error| error.to_string())?))
            }
        };
        tried.push(TrialResult { id, outcome });
    }
    Ok((tried, true))
}

/// An ID with its document, or the reason why it is not available.
pub(super) type Found = (String, Result<(Vbid, Document), String>);

/// Returns the current versions of the documents of `source` that `chosen` selects.
///
/// # Errors
/// The reason why they cannot be read.
pub(super) fn documents(
    node: &Arc<Node>,
    bucket: &Arc<Bucket>,
    source: &Source,
    chosen: &TrialDocuments,
) -> Result<Vec<Found>, String> {
    let mut selection = Selection::default();
    selection.follow(&bucket.manifest(), source);
    let read = |range: Range| history(bucket, &selection, range);
    let found = match chosen {
        TrialDocuments::Ids(ids, collection) => {
            return by_ids(node, bucket, source, ids, collection);
        }
        TrialDocuments::Range(range) => {
            let mut found = read(*range)?;
            found.truncate(DOCUMENTS_MAX);
            found
        }
        TrialDocuments::Last(count) => {
            // The CAS values of all vBuckets come from one clock.
            let mut newest: BTreeMap<_, Document> = BTreeMap::new();
            let mut bytes = 0;
            for vbid in (0..bucket.vbucket_count()).map(Vbid) {
                let Some(high) = bucket.served(vbid).map(|vbucket| vbucket.high_seqno()) else {
                    continue;
                };
                let after = Seqno(high.0.saturating_sub(*count as u64));
                for (vbid, document) in read(Range { vbid, after, up_to: high })? {
                    bytes += document.memory_bytes();
                    newest.insert((document.meta.cas, vbid), document);
                    while newest.len() > *count || bytes > DOCUMENTS_BYTES_MAX {
                        let Some((_, oldest)) = newest.pop_first() else { break };
                        bytes -= oldest.memory_bytes();
                    }
                }
            }
            newest.into_iter().map(|((_, vbid), document)| (vbid, document)).collect()
        }
    };
    let named = |(vbid, document): (Vbid, Document)| {
        (String::from_utf8_lossy(document.name()).into_owned(), Ok((vbid, document)))
    };
    Ok(found.into_iter().map(named).collect())
}

fn by_ids(
    node: &Arc<Node>,
    bucket: &Arc<Bucket>,
    source: &Source,
    ids: &[String],
    collection: &Option<String>,
) -> Result<Vec<Found>, String> {
    let keyspace = match (&source.scope, &source.collection, collection) {
        (Some(scope), Some(collection), _) => format!("{scope}.{collection}"),
        (_, _, Some(named)) => {
            let is_heard = |scope: &str| source.scope.as_ref().is_none_or(|own| own == scope);
            match named.split_once('.') {
                Some((scope, _)) if is_heard(scope) => named.clone(),
                _ => return Err(format!("the function does not listen to {named}")),
            }
        }
        _ => return Err("the function listens to several collections: name one".into()),
    };
    let documents = BucketDocuments::new(node, bucket);
    let mut bytes = 0;
    let find = |id: &String| {
        if bytes > DOCUMENTS_BYTES_MAX {
            return (id.clone(), Err("the documents before it are too large: ask again".into()));
        }
        let found = match documents.document(&keyspace, id.as_bytes(), PATIENCE) {
            Err(KvError::NotMyVbucket) => ask_owner(node, &bucket.name, &keyspace, id),
            found => found,
        };
        bytes += found.as_ref().map_or(0, |(_, document)| document.memory_bytes());
        let why = |error: KvError| error.to_string();
        (id.clone(), found.map_err(why))
    };
    Ok(ids.iter().take(DOCUMENTS_MAX).map(find).collect())
}

/// Returns a document that another node serves.
fn ask_owner(
    node: &Arc<Node>,
    bucket: &str,
    keyspace: &str,
    id: &str,
) -> Result<(Vbid, Document), KvError> {
    let failed = |reason: &str| KvError::Temporary(reason.into());
    let vbid = node.owners(bucket).ok_or(KvError::NotMyVbucket)?.vbid_of(id.as_bytes());
    let message = PluginMessage::Read(bucket.into(), keyspace.into(), id.into());
    match node.ask_about(bucket, vbid, &message, PATIENCE).map_err(KvError::Temporary)? {
        Ok(PluginReply::Read(found)) => {
            let document = found?.received().ok_or_else(|| failed("a key that is too long"))?;
            Ok((vbid, document))
        }
        _ => Err(failed("an unexpected answer")),
    }
}

/// Returns the documents in a part of history that a function listens to.
fn history(
    bucket: &Arc<Bucket>,
    selection: &Selection,
    range: Range,
) -> Result<Vec<(Vbid, Document)>, String> {
    let mut history = HistoryReader::open(bucket, range);
    let mut found = Vec::new();
    let mut bytes = 0;
    while found.len() < DOCUMENTS_MAX && bytes < DOCUMENTS_BYTES_MAX {
        let Some(documents) = history.next(PORTION).map_err(|error| error.to_string())? else {
            break;
        };
        let ours = documents.into_iter().filter(|document| selection.holds(document.collection()));
        found.extend(ours.map(|document| {
            bytes += document.memory_bytes();
            (range.vbid, document)
        }));
    }
    Ok(found)
}
