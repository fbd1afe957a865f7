//! What nodes ask each other about the vBuckets that they serve.
//!
//! On the wire a question is an [`Asked`], an answer an [`Answer`], both in the format of postcard: nodes of one cluster are
//! of one version.

use super::{Usage, Vbids};
use crate::changes::{ChangesPart, ChangesTold, Position};
use crate::plugins::End;
use crate::query::{Step, StepReply};
use nacre_plugin_host::{
    Consistency, DocumentCall, DocumentReply, Failure, KvError, Mutation, Request, Response, Row,
    RowRefusal,
};
use nacre_state::{Lacking, Moment, Page, Scan, Share, Span};
use nacre_types::{NodeId, Seqno, Vbid};
use serde::{Deserialize, Serialize};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

/// A question with what its answer depends on.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Asked {
    /// Who answers knows the agreed state at least up to this revision.
    pub rev: u64,
    /// How long the answer may take, in milliseconds.
    pub left_ms: u64,
    /// The question.
    pub question: Question,
}

/// A question.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Question {
    /// A plugin reads or writes a document.
    Document {
        /// The bucket.
        bucket: String,
        /// `scope.collection`.
        path: String,
        /// The key.
        #[serde(with = "serde_bytes")]
        key: Vec<u8>,
        /// What it does.
        call: DocumentCall,
    },
    /// A transaction reads or writes a document.
    Step {
        /// The bucket.
        bucket: String,
        /// `scope.collection`.
        path: String,
        /// The key.
        #[serde(with = "serde_bytes")]
        key: Vec<u8>,
        /// What it does.
        step: Step,
    },
    /// Whether the store has these vBuckets of a bucket up to these seqnos.
    Stored(String, Vec<(Vbid, Seqno)>),
    /// What a query wants of a collection.
    Collection {
        /// The bucket.
        bucket: String,
        /// `scope.collection`.
        path: String,
        /// What it wants.
        call: CollectionCall,
    },
    /// The next entries of an index.
    Index(IndexPart),
    /// The request that asked under this number has ended.
    Forget(u64),
    /// A request to a deployment.
    Request(RequestPart),
    /// The next entries of a deployment that is an index.
    Scan(ScanPart),
    /// What requests to the query service have noted under that key.
    Note(String),
    /// A note of the query service that is to go.
    Unnote(String),
    /// How far a deployment has come.
    Places(StateName),
    /// The node has come so far with vBuckets that it serves.
    Told(StateName, NodeId, Vec<(Vbid, Moment)>),
    /// What the node lacks of vBuckets to come as far as the one that is asked.
    Follow(StateName, Vec<(Vbid, Lacking)>),
    /// The changes of a collection.
    Changes(ChangesPart),
    /// Where the histories of these vBuckets of a bucket end.
    Ends(String, Vbids),
    /// Whether functions have come to the vBuckets that the node serves, and have left the others.
    Settled,
    /// How much the node has of each bucket.
    Usage,
    /// Which indexes the node has yet to build.
    Unbuilt,
}

/// Names the state of a deployment on all nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateName {
    /// The deployment.
    pub deployment: String,
    /// The space that its state is in.
    pub space: String,
}

impl Question {
    /// What it is about, for people who count questions.
    pub fn subject(&self) -> &'static str {
        match self {
            Question::Document { .. } | Question::Collection { .. } => "documents",
            Question::Step { .. } => "transactions",
            Question::Stored(..) => "stored",
            Question::Index(_) => "index",
            Question::Request(_) | Question::Scan(_) => "plugin",
            Question::Changes(_) => "changes",
            Question::Ends(..) => "ends",
            Question::Note(_) | Question::Unnote(_) | Question::Forget(_) => "requests",
            Question::Places(..) | Question::Told(..) | Question::Follow(..) => "places",
            Question::Settled => "settled",
            Question::Usage => "usage",
            Question::Unbuilt => "unbuilt",
        }
    }

    /// Whether it changes documents, so that it is not asked twice.
    pub fn writes(&self) -> bool {
        match self {
            Question::Document { call, .. } => call.writes(),
            Question::Step { step, .. } => step.writes(),
            Question::Collection { call, .. } => matches!(call, CollectionCall::Mutate(_)),
            Question::Stored(..)
            | Question::Index(_)
            | Question::Forget(_)
            | Question::Request(_)
            | Question::Scan(_)
            | Question::Note(_)
            | Question::Unnote(_)
            | Question::Places(..)
            | Question::Told(..)
            | Question::Follow(..)
            | Question::Changes(_)
            | Question::Ends(..)
            | Question::Settled
            | Question::Usage
            | Question::Unbuilt => false,
        }
    }
}

/// What a query wants of a collection.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum CollectionCall {
    /// Documents by id.
    Fetch(Vec<String>),
    /// Extended attributes by id, and of which names.
    Attributes(Vec<String>, Vec<String>),
    /// Documents of a vBucket in the order of their ids.
    Scan {
        /// Under which number the request asks.
        asker: u64,
        /// The vBucket.
        vbid: Vbid,
        /// Behind which id.
        after: Option<String>,
        /// Whether bodies are wanted.
        bodies: bool,
        /// How many at most.
        limit: usize,
    },
    /// How many there are.
    Count(Vbids),
    /// Changes of documents.
    Mutate(Vec<Mutation>),
}

/// A question for entries of an index.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct IndexPart {
    /// Under which number the request asks: it sees one moment of each index.
    pub asker: u64,
    /// The bucket.
    pub bucket: String,
    /// The index.
    pub index: String,
    /// Of documents in these vBuckets.
    pub vbids: Vbids,
    /// Of this partition only, of an index that has some.
    pub partition: Option<u16>,
    /// What that must have, when the index is to be up to date.
    pub ends: Vec<End>,
    /// Disjoint and in order.
    pub spans: Vec<Span>,
    /// From the end.
    pub reverse: bool,
    /// Behind which entry.
    pub after: Option<Place>,
    /// How many at most.
    pub limit: usize,
    /// How fresh they must be.
    pub consistency: Consistency,
}

/// Where an entry stands among those of several spans.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// Number of the span.
    pub span: usize,
    /// The key.
    #[serde(with = "serde_bytes")]
    pub key: Vec<u8>,
    /// The document.
    #[serde(with = "serde_bytes")]
    pub id: Vec<u8>,
    /// Which of the entries that the document has with this key.
    pub number: u32,
}

impl Place {
    /// The order in which a scan comes by.
    pub fn compare(&self, other: &Place, reverse: bool) -> Ordering {
        let order = (&self.key, &self.id, self.number).cmp(&(&other.key, &other.id, other.number));
        let order = if reverse { order.reverse() } else { order };
        self.span.cmp(&other.span).then(order)
    }
}

/// A request to a deployment, for a part of the answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RequestPart {
    /// The deployment.
    pub deployment: String,
    /// The vBuckets that the answer is made of.
    pub vbids: Vbids,
    /// Who asks.
    pub asked_by: NodeId,
    /// Whether these are all that the request is about, so that the answer needs no merging.
    pub is_whole: bool,
    /// Whether it reflects all that was written before.
    pub fresh: bool,
    /// Whether the deployment is to take afterwards what is new.
    pub updates: bool,
    /// The request.
    pub request: Request,
}

/// A scan of a deployment that is an index, for a part of the answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ScanPart {
    /// The deployment.
    pub deployment: String,
    /// Of documents in these vBuckets.
    pub vbids: Vbids,
    /// What is asked.
    pub scan: Scan,
}

/// An answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Answer {
    /// Not all of the vBuckets are served by this node, or not any more.
    Elsewhere,
    /// The same question may be answered later: why not now.
    NotYet(String),
    /// There is no answer.
    Failed(Failure),
    /// Of [`Question::Document`], with the vBucket and the seqno that it wrote.
    Document(Result<DocumentReply, KvError>, Option<(Vbid, Seqno)>),
    /// Of [`Question::Step`].
    Step(Result<StepReply, KvError>),
    /// Of [`Question::Stored`].
    Stored(bool),
    /// Of [`CollectionCall::Fetch`]: as many as fit into an answer.
    Fetched(Vec<Option<Row>>),
    /// Of [`CollectionCall::Attributes`]: objects of JSON, as many as fit into an answer.
    Attributes(Vec<Option<String>>),
    /// Of [`CollectionCall::Scan`], and whether the vBucket has no more.
    Scanned(Vec<Row>, bool),
    /// Of [`CollectionCall::Count`].
    Count(u64),
    /// Of [`CollectionCall::Mutate`]: the new versions; none of those that were not tried here.
    Mutated(Vec<Option<Result<u64, RowRefusal>>>),
    /// Of [`Question::Index`], and whether there are no more.
    Entries(Vec<Place>, bool),
    /// Of [`Question::Note`].
    Note(Option<Vec<u8>>),
    /// Of what is told rather than asked.
    Heard,
    /// Of [`Question::Places`], and with which vBuckets it has not finished.
    Places(BTreeMap<Vbid, Moment>, Vec<Vbid>),
    /// Of [`Question::Follow`]: of as many of the vBuckets as fit.
    Shares(Vec<(Vbid, Share)>),
    /// Of [`Question::Request`]: from each lane.
    Responses(Vec<Response>),
    /// Of [`Question::Scan`].
    Page(Page),
    /// Of [`ChangesCall::Begin`](crate::changes::ChangesCall::Begin): where the consumer stands, in the vBuckets that are
    /// served here.
    ChangesBegun(Vec<Position>),
    /// Of [`ChangesCall::Read`](crate::changes::ChangesCall::Read).
    ChangesTold(ChangesTold),
    /// Of either: why the consumer must begin anew.
    ChangesGone(String),
    /// Of [`Question::Ends`].
    Ends(Vec<End>),
    /// Of [`Question::Settled`].
    Settled(bool),
    /// Of [`Question::Usage`]: by bucket.
    Usage(BTreeMap<String, Usage>),
    /// Of [`Question::Unbuilt`]: their identities.
    Unbuilt(BTreeSet<String>),
}

impl Answer {
    /// The vBuckets that it is about, of those that were asked about.
    pub fn is_about(&self, asked: Vbids) -> Vbids {
        match self {
            Answer::ChangesBegun(begun) => begun.iter().map(|position| position.vbid).collect(),
            _ => asked,
        }
    }
}
