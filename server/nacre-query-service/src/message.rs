//! Messages of the query service between nodes: documents, index entries, notes, and steps of transactions.

use super::eventing_queries::FunctionQueries;
use super::remote_services::RemoteRequest;
use super::row::QUERY;
use super::transaction::Durability;
use super::unbuilt::own_unbuilt;
use super::{Queries, Step, StepReply, answer_step};
use crate::NodeQueries;
use nacre_node::Node;
use nacre_node::scatter_gather::{NoReply, PeerMessage, Vbids};
use nacre_node::service::{self, Metric, Service, ServiceSpec};
use nacre_plugins_service::End;
use nacre_plugins_service::partitions::ends;
use nacre_sandbox::{Consistency, Failure, KvError, Mutation, Row, RowRefusal};
use nacre_state::Span;
use nacre_types::Vbid;
use serde::{Deserialize, Serialize};
use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// A message of the query service.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum QueryMessage {
    /// A transaction reads or writes a document.
    Step {
        /// The bucket.
        bucket: String,
        /// `scope.collection`.
        path: String,
        /// The key of the document.
        #[serde(with = "serde_bytes")]
        key: Vec<u8>,
        /// The step.
        step: Step,
    },
    /// A query reads or changes documents of a collection.
    Collection {
        /// The bucket.
        bucket: String,
        /// `scope.collection`.
        path: String,
        /// The call.
        call: CollectionCall,
    },
    /// Requests the next entries of an index.
    Index(IndexPart),
    /// Reports the end of the request that asked under this number.
    Forget(u64),
    /// Requests the note under this key.
    Note(String),
    /// Removes the note under this key.
    Unnote(String),
    /// Requests the ends of the histories of these vBuckets of a bucket.
    Ends(String, Vbids),
    /// Requests the indexes that the node must still build.
    Unbuilt,
    /// Sends a function's request to a service that the function's node does not have.
    Remote(RemoteRequest),
}

/// A reply of the query service.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum QueryReply {
    /// Reply to [`QueryMessage::Step`].
    Step(Result<StepReply, KvError>),
    /// Reply to [`CollectionCall::Fetch`], with as many rows as fit.
    Fetched(Vec<Option<Row>>),
    /// Reply to [`CollectionCall::Attributes`], with as many JSON objects as fit.
    Attributes(Vec<Option<String>>),
    /// Reply to [`CollectionCall::Scan`], with true if the vBucket has no more.
    Scanned(Vec<Row>, bool),
    /// Reply to [`CollectionCall::Count`] and [`CollectionCall::Changes`].
    Count(u64),
    /// Reply to [`CollectionCall::Mutate`]: the new CAS of each document; `None` for those that were not tried
    /// here.
    Mutated(Vec<Option<Result<u64, RowRefusal>>>),
    /// Reply to [`QueryMessage::Index`], with true if there are no more entries.
    Entries(Vec<Place>, bool),
    /// Reply to [`QueryMessage::Note`].
    Note(Option<Vec<u8>>),
    /// Reply to [`QueryMessage::Ends`].
    Ends(Vec<End>),
    /// Reply to [`QueryMessage::Unbuilt`]: UUIDs of indexes.
    Unbuilt(BTreeSet<String>),
    /// Reply to [`QueryMessage::Remote`]: HTTP status and text.
    Remote(Result<(u16, String), Failure>),
    /// Confirms the message.
    Done,
}

impl PeerMessage for QueryMessage {
    type Reply = QueryReply;

    const SERVICE: &'static str = QUERY.id;

    fn subject(&self) -> &'static str {
        match self {
            QueryMessage::Step { .. } => "transactions",
            QueryMessage::Collection { .. } => "documents",
            QueryMessage::Index(_) => "index",
            QueryMessage::Forget(_) | QueryMessage::Note(_) | QueryMessage::Unnote(_) => "requests",
            QueryMessage::Ends(..) => "ends",
            QueryMessage::Unbuilt => "unbuilt",
            QueryMessage::Remote(_) => "functions",
        }
    }

    fn writes(&self) -> bool {
        match self {
            QueryMessage::Step { step, .. } => step.writes(),
            QueryMessage::Collection { call, .. } => matches!(call, CollectionCall::Mutate(..)),
            QueryMessage::Index(_)
            | QueryMessage::Forget(_)
            | QueryMessage::Note(_)
            | QueryMessage::Unnote(_)
            | QueryMessage::Ends(..)
            | QueryMessage::Unbuilt
            | QueryMessage::Remote(_) => false,
        }
    }

    fn answer(self, node: &Arc<Node>, left: Duration) -> Result<QueryReply, NoReply> {
        match self {
            QueryMessage::Step { bucket, path, key, step } => {
                let bucket = node.bucket(&bucket).ok_or(NoReply::NotOwner)?;
                match answer_step(node, &bucket, &path, &key, &step, left) {
                    Err(KvError::NotMyVbucket) => Err(NoReply::NotOwner),
                    outcome => Ok(QueryReply::Step(outcome)),
                }
            }
            QueryMessage::Collection { bucket, path, call } => {
                node.queries().answer_collection(node, &bucket, &path, call, left)
            }
            QueryMessage::Index(part) => node.queries().answer_index(node, &part, left),
            QueryMessage::Forget(asker) => {
                node.queries().forget(asker);
                Ok(QueryReply::Done)
            }
            QueryMessage::Note(key) => Ok(QueryReply::Note(node.queries().noted(&key))),
            QueryMessage::Unnote(key) => {
                node.queries().forget_note(&key);
                Ok(QueryReply::Done)
            }
            QueryMessage::Ends(bucket, vbids) => {
                let ends =
                    node.bucket(&bucket).and_then(|bucket| ends(&bucket, node.now(), &vbids));
                ends.map(QueryReply::Ends).ok_or(NoReply::NotOwner)
            }
            QueryMessage::Unbuilt => Ok(QueryReply::Unbuilt(own_unbuilt(node))),
            QueryMessage::Remote(request) => Ok(QueryReply::Remote(request.answer(node))),
        }
    }
}

impl Service for Queries {
    fn spec(&self) -> &'static ServiceSpec {
        &QUERY
    }

    fn metrics(&self, _node: &Arc<Node>) -> Vec<Metric> {
        self.vitals().metrics()
    }

    fn function_queries(
        &self,
        node: &Arc<Node>,
        function: &service::FunctionQueries<'_>,
    ) -> Option<Arc<dyn nacre_sandbox::Queries>> {
        Some(Arc::new(FunctionQueries::new(node, function)))
    }

    fn answer(&self, node: &Arc<Node>, message: &[u8], left: Duration) -> Vec<u8> {
        node.answer_message::<QueryMessage>(message, left)
    }
}

/// A query's call to a collection.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum CollectionCall {
    /// Documents with these IDs.
    Fetch(Vec<String>),
    /// Extended attributes of documents: the IDs and the names.
    Attributes(Vec<String>, Vec<String>),
    /// Documents of a vBucket in ID order.
    Scan {
        /// The number under which the request asks.
        asker: u64,
        /// The vBucket.
        vbid: Vbid,
        /// The ID after which to continue.
        after: Option<String>,
        /// True if bodies are requested.
        bodies: bool,
        /// The maximum number of documents.
        limit: usize,
    },
    /// Counts the documents.
    Count(Vbids),
    /// Sums up the last seqnos of the collection.
    Changes(Vbids),
    /// Mutations, with the durability of the writes.
    Mutate(Vec<Mutation>, Durability),
}

/// A request for index entries.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct IndexPart {
    /// The number under which the request asks; all its reads of an index see one snapshot.
    pub asker: u64,
    /// The bucket.
    pub bucket: String,
    /// The index.
    pub index: String,
    /// vBuckets of the documents.
    pub vbids: Vbids,
    /// The only partition to read, for a partitioned index.
    pub partition: Option<u16>,
    /// Ends of history that the partition must have reached, if the index must be up to date.
    pub ends: Vec<End>,
    /// The spans, disjoint and in order.
    pub spans: Vec<Span>,
    /// True to read in descending order.
    pub reverse: bool,
    /// The entry after which to continue.
    pub after: Option<Place>,
    /// The maximum number of entries.
    pub limit: usize,
    /// Consistency.
    pub consistency: Consistency,
}

/// The position of an entry among those of several spans.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// Number of the span.
    pub span: usize,
    /// The key.
    #[serde(with = "serde_bytes")]
    pub key: Vec<u8>,
    /// The ID of the document.
    #[serde(with = "serde_bytes")]
    pub id: Vec<u8>,
    /// Number of the entry among those of the document with this key.
    pub number: u32,
}

impl Place {
    /// Compares two places in the order of a scan.
    pub fn compare(&self, other: &Place, reverse: bool) -> Ordering {
        let order = (&self.key, &self.id, self.number).cmp(&(&other.key, &other.id, other.number));
        let order = if reverse { order.reverse() } else { order };
        self.span.cmp(&other.span).then(order)
    }
}
