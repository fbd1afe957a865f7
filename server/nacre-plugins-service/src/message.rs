//! Messages of deployments between nodes: requests, scans, document accesses of plugins, and progress of states.

use super::{BucketDocuments, part, places, scan};
use crate::rows::PLUGINS;
use nacre_node::Node;
use nacre_node::scatter_gather::{NoReply, PeerMessage, Vbids};
use nacre_sandbox::{DocumentCall, DocumentReply, Documents, KvError, Request, Response};
use nacre_state::{FollowerPosition, Page, ProgressDelta, ProgressStamp, Scan};
use nacre_types::{Cas, Document, Kind, Meta, NodeId, Seqno, Vbid};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// A message of the service that runs deployments.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum PluginMessage {
    /// A plugin reads or writes a document.
    Document {
        /// The bucket.
        bucket: String,
        /// `scope.collection`.
        path: String,
        /// The key of the document.
        #[serde(with = "serde_bytes")]
        key: Vec<u8>,
        /// The call.
        call: DocumentCall,
    },
    /// Requests a document with all its metadata: the bucket, `scope.collection` and the ID.
    Read(String, String, String),
    /// Asks whether the store has these vBuckets of a bucket up to these seqnos.
    Stored(String, Vec<(Vbid, Seqno)>),
    /// A request to a deployment.
    Request(RequestPart),
    /// Requests the next entries of an index.
    Scan(ScanPart),
    /// Asks for the progress of a deployment's state.
    Places(StateName),
    /// Reports the progress of the state on that node, for vBuckets that the node serves.
    ReportPlaces(StateName, NodeId, Vec<(Vbid, ProgressStamp)>),
    /// Requests the parts of vBuckets that the sender lacks.
    Follow(StateName, Vec<(Vbid, FollowerPosition)>),
}

/// A reply of the service that runs deployments.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum PluginReply {
    /// Reply to [`PluginMessage::Document`], with the vBucket and the seqno that the call wrote.
    Document(Result<DocumentReply, KvError>, Option<(Vbid, Seqno)>),
    /// Reply to [`PluginMessage::Read`].
    Read(Result<SentDocument, KvError>),
    /// Reply to [`PluginMessage::Stored`].
    Stored(bool),
    /// Reply to [`PluginMessage::Request`]: one response from each lane.
    Responses(Vec<Response>),
    /// Reply to [`PluginMessage::Scan`].
    Page(Page),
    /// Reply to [`PluginMessage::Places`], with the vBuckets that the node has not finished.
    Places(BTreeMap<Vbid, ProgressStamp>, Vec<Vbid>),
    /// Reply to [`PluginMessage::Follow`], with as many of the vBuckets as fit.
    Shares(Vec<(Vbid, ProgressDelta)>),
    /// Confirms the message.
    Done,
}

impl PeerMessage for PluginMessage {
    type Reply = PluginReply;

    const SERVICE: &'static str = PLUGINS.id;

    fn subject(&self) -> &'static str {
        match self {
            PluginMessage::Document { .. } | PluginMessage::Read(..) => "documents",
            PluginMessage::Stored(..) => "stored",
            PluginMessage::Request(_) | PluginMessage::Scan(_) => "plugin",
            PluginMessage::Places(..)
            | PluginMessage::ReportPlaces(..)
            | PluginMessage::Follow(..) => "places",
        }
    }

    fn writes(&self) -> bool {
        matches!(self, PluginMessage::Document { call, .. } if call.writes())
    }

    fn answer(self, node: &Arc<Node>, left: Duration) -> Result<PluginReply, NoReply> {
        match self {
            PluginMessage::Document { bucket, path, key, call } => {
                let bucket = node.bucket(&bucket).ok_or(NoReply::NotOwner)?;
                let documents = BucketDocuments::new(node, &bucket);
                match documents.call(&path, &key, &call, left) {
                    Err(KvError::NotMyVbucket) => Err(NoReply::NotOwner),
                    outcome => Ok(PluginReply::Document(outcome, documents.written())),
                }
            }
            PluginMessage::Read(bucket, path, id) => {
                let bucket = node.bucket(&bucket).ok_or(NoReply::NotOwner)?;
                let documents = BucketDocuments::new(node, &bucket);
                match documents.document(&path, id.as_bytes(), left) {
                    Err(KvError::NotMyVbucket) => Err(NoReply::NotOwner),
                    found => Ok(PluginReply::Read(
                        found.map(|(_, document)| SentDocument::from(&document)),
                    )),
                }
            }
            PluginMessage::Stored(bucket, seqnos) => has_stored(node, &bucket, &seqnos),
            PluginMessage::Request(part) => part::answer_part(node, &part, left),
            PluginMessage::Scan(part) => scan::answer_scan(node, &part, left),
            PluginMessage::Places(state) => Ok(places::answer_places(node, &state)),
            PluginMessage::ReportPlaces(state, from, moments) => {
                places::receive_places(node, &state, from, &moments);
                Ok(PluginReply::Done)
            }
            PluginMessage::Follow(state, lacking) => {
                Ok(places::answer_follower(node, &state, lacking))
            }
        }
    }
}

/// A document as it is sent to another node.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SentDocument {
    seqno: Seqno,
    cas: u64,
    rev: u64,
    flags: u32,
    expiry: u32,
    datatype: u8,
    /// The key with the prefix of the collection.
    #[serde(with = "serde_bytes")]
    key: Vec<u8>,
    #[serde(with = "serde_bytes")]
    value: Vec<u8>,
}

impl From<&Document> for SentDocument {
    fn from(document: &Document) -> SentDocument {
        let Meta { seqno, cas, rev, flags, expiry, datatype, kind: _ } = document.meta;
        let (key, value) = (document.key().to_vec(), document.value().to_vec());
        SentDocument { seqno, cas: cas.0, rev, flags, expiry, datatype, key, value }
    }
}

impl SentDocument {
    /// Returns the document; `None` if the key is too long.
    pub fn received(self) -> Option<Document> {
        let SentDocument { seqno, cas, rev, flags, expiry, datatype, key, value } = self;
        let meta = Meta { seqno, cas: Cas(cas), rev, flags, expiry, datatype, kind: Kind::Alive };
        u16::try_from(key.len()).ok().map(|_| Document::new(meta, &key, &value))
    }
}

fn has_stored(
    node: &Arc<Node>,
    bucket: &str,
    seqnos: &[(Vbid, Seqno)],
) -> Result<PluginReply, NoReply> {
    let bucket = node.bucket(bucket).ok_or(NoReply::NotOwner)?;
    if !bucket.serves(&seqnos.iter().map(|(vbid, _)| *vbid).collect(), node.now()) {
        return Err(NoReply::NotOwner);
    }
    let documents = BucketDocuments::new(node, &bucket);
    documents.has_written(seqnos);
    match documents.settle() {
        Err(KvError::NotMyVbucket) => Err(NoReply::NotOwner),
        outcome => Ok(PluginReply::Stored(outcome.is_ok())),
    }
}

/// The name of a deployment's state, the same on all nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateName {
    /// The deployment.
    pub deployment: String,
    /// The space of the state.
    pub space: String,
}

/// A request to a deployment for a part of the answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RequestPart {
    /// The deployment.
    pub deployment: String,
    /// The vBuckets that the answer covers.
    pub vbids: Vbids,
    /// The node that sends the request.
    pub asked_by: NodeId,
    /// True if these vBuckets are all that the request covers, so the answer needs no merging.
    pub is_whole: bool,
    /// True if the answer must reflect all earlier writes.
    pub fresh: bool,
    /// The seqnos that the answer must reflect.
    pub seqnos: Vec<(Vbid, Seqno)>,
    /// True if the deployment should process new changes afterwards.
    pub updates: bool,
    /// The request.
    pub request: Request,
}

/// A scan of an index for a part of the answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ScanPart {
    /// The deployment.
    pub deployment: String,
    /// vBuckets of the documents.
    pub vbids: Vbids,
    /// The scan.
    pub scan: Scan,
}
