//! Messages between the nodes of one cluster.

use crate::checkpoints::Rows;
use crate::conflict_log::LogDocument;
use crate::expression::Expression;
use crate::inbox::Event;
use crate::status::Status;
use crate::{SPEC, Xdcr};
use nacre_node::{NoReply, Node, PeerMessage};
use nacre_types::{Cas, DocKey, Document, KEY_BYTES_MAX, Kind, Meta, VALUE_BYTES_MAX, Vbid};
use nacre_vbucket::{Command, Refusal, Rule};
use nacre_xdcr::{Condition, Input};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;

/// A request from one node to another.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum XdcrMessage {
    /// Asks for the status of the replications on that node.
    Statuses,
    /// Distributes checkpoint records, for a node that may take vBuckets over.
    Checkpoints(Rows),
    /// Writes a document of a conflict log; sent to the node that serves its vBucket.
    Log(Vbid, LogDocument),
    /// Skips a version that was put aside: replication ID, vBucket and key. Sent to the node that serves the vBucket.
    Skip(String, Vbid, Vec<u8>),
    /// Evaluates a filter expression for a document: bucket, vBucket, key with its collection, and expression. Sent to the node that
    /// serves the vBucket.
    Evaluate(String, Vbid, Vec<u8>, String),
}

/// The reply.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum XdcrReply {
    /// Status by replication ID.
    Statuses(Vec<(String, Status)>),
    /// The request was carried out.
    Noted,
    /// True if the expression holds, or the reason why it cannot be evaluated; `None` if there is no such document.
    Evaluated(Option<Result<bool, String>>),
}

impl PeerMessage for XdcrMessage {
    type Reply = XdcrReply;

    const SERVICE: &'static str = SPEC.id;

    fn subject(&self) -> &'static str {
        match self {
            XdcrMessage::Statuses => "xdcr-statuses",
            XdcrMessage::Checkpoints(_) => "xdcr-checkpoints",
            XdcrMessage::Log(..) => "xdcr-log",
            XdcrMessage::Skip(..) => "xdcr-skip",
            XdcrMessage::Evaluate(..) => "xdcr-evaluate",
        }
    }

    fn answer(self, node: &Arc<Node>, _left: Duration) -> Result<XdcrReply, NoReply> {
        let service = node.service::<Xdcr>();
        let service = service.ok_or_else(|| NoReply::internal("there is no replication here"))?;
        match self {
            XdcrMessage::Statuses => Ok(XdcrReply::Statuses(service.own_statuses())),
            XdcrMessage::Checkpoints(rows) => {
                let checkpoints = service.checkpoints(node);
                let noted = checkpoints.and_then(|checkpoints| Ok(checkpoints.receive(rows)?));
                noted.map_err(|error| NoReply::internal(error.to_string()))?;
                Ok(XdcrReply::Noted)
            }
            XdcrMessage::Log(vbid, document) => {
                write(node, vbid, &document).map(|()| XdcrReply::Noted)
            }
            XdcrMessage::Skip(id, vbid, key) => {
                let handle = service.drivers.lock().get(&id).cloned();
                let handle = handle.ok_or_else(|| NoReply::NotYet("it does not run".to_owned()))?;
                handle.inbox.push([Event::Input(vbid, Box::new(Input::Skip { key }))]);
                Ok(XdcrReply::Noted)
            }
            XdcrMessage::Evaluate(bucket, vbid, key, expression) => {
                evaluate(node, &bucket, vbid, &key, &expression).map(XdcrReply::Evaluated)
            }
        }
    }
}

/// Evaluates an expression for a document, which is read from the disk if it is not in memory.
fn evaluate(
    node: &Arc<Node>,
    bucket: &str,
    vbid: Vbid,
    key: &[u8],
    expression: &str,
) -> Result<Option<Result<bool, String>>, NoReply> {
    let bucket = node.bucket(bucket).ok_or(NoReply::NotOwner)?;
    let expression = match Expression::parse(expression) {
        Ok(expression) => expression,
        Err(reason) => return Ok(Some(Err(reason))),
    };
    let find = || -> Result<Option<Document>, NoReply> {
        let vbucket = bucket.active(vbid).ok_or(NoReply::NotOwner)?;
        let found = vbucket.find(key).cloned();
        Ok(found)
    };
    let mut found = find()?;
    if found.as_ref().is_none_or(|document| document.is_alive() && !document.is_resident()) {
        bucket.fetch(vbid, key).map_err(|error| NoReply::internal(error.to_string()))?;
        found = find()?;
    }
    let document = found.filter(|document| document.is_alive() && document.is_resident());
    Ok(document.map(|document| expression.holds(&document)))
}

/// Writes a document of a conflict log. Its key is unique.
fn write(node: &Arc<Node>, vbid: Vbid, document: &LogDocument) -> Result<(), NoReply> {
    let LogDocument { bucket, collection, key, datatype, value } = document;
    let bucket = node.bucket(bucket).ok_or(NoReply::NotOwner)?;
    let manifest = bucket.manifest();
    let found = manifest.resolve(collection);
    let id = found.map_err(|refusal| NoReply::internal(refusal.to_string()))?;
    if key.is_empty() || key.len() > KEY_BYTES_MAX || value.len() > VALUE_BYTES_MAX {
        return Err(NoReply::internal("a record would be too large".to_owned()));
    }
    if bucket.refuses_growth() {
        return Err(NoReply::internal("the bucket's memory or disk is full".to_owned()));
    }
    let now = node.now();
    let expiry = bucket.expiry(bucket.max_ttl(id).unwrap_or(0), 0, now);
    // Clients cannot write a system attribute and a body in one step, so write with metadata. The vBucket assigns the
    // CAS.
    let version = Meta {
        cas: Cas(1),
        rev: 1,
        expiry,
        datatype: *datatype,
        kind: Kind::Alive,
        ..Meta::default()
    };
    let command = Command::StoreVersion {
        version,
        value,
        add: false,
        cas: Cas::ANY,
        rule: Rule::Always,
        regenerate_cas: true,
    };
    let key = DocKey::new(id, key.as_bytes());
    let applied = bucket.apply(vbid, key.prefixed(), &command, now);
    let (outcome, wrote, _) = applied.ok_or(NoReply::NotOwner)?;
    if wrote {
        bucket.wake_listeners();
    }
    match outcome {
        Ok(_) => Ok(()),
        Err(Refusal::NotActive) => Err(NoReply::NotOwner),
        Err(refusal @ Refusal::NoLease) => {
            Err(NoReply::NotYet(format!("a record cannot be stored now: {refusal:?}")))
        }
        Err(refusal) => Err(NoReply::internal(format!("a record cannot be stored: {refusal:?}"))),
    }
}
