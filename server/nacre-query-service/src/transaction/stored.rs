//! Steps of transactions on stored documents: from here to the node that serves a document, and on that node to its
//! vBucket.

use super::changes::Place;
use super::record::RECORD_KEYS;
use super::step::{BodyFormat, Documents, Edit, LookupResult, Part, Presence, Step, StepReply};
use crate::message::{QueryMessage, QueryReply};
use nacre_bucket::Bucket;
use nacre_node::Node;
use nacre_node::scatter_gather::Vbids;
use nacre_plugins_service::BucketDocuments;
use nacre_sandbox::KvError;
use nacre_types::{Cas, CollectionId, DocKey, Now, Vbid};
use nacre_value::multi::{Flags, LookupOperation, LookupSpec, MutationOperation, MutationSpec};
use nacre_value::subdoc::{Lookup, Mutation};
use nacre_vbucket::{Command, Condition, Refusal, Reply};
use std::sync::Arc;
use std::time::Duration;

/// The documents of all nodes.
pub struct Stored<'a> {
    /// The node that sends the steps.
    pub node: &'a Arc<Node>,
    /// Maximum time of a step.
    pub patience: Duration,
}

impl Documents for Stored<'_> {
    fn step(&self, place: &Place, step: Step) -> Result<StepReply, KvError> {
        let bucket = &place.keyspace.bucket;
        let missing = || KvError::Denied(format!("there is no bucket {bucket}"));
        let vbid = self.node.owners(bucket).ok_or_else(missing)?.vbid_of(place.id.as_bytes());
        let question = QueryMessage::Step {
            bucket: bucket.clone(),
            path: format!("{}.{}", place.keyspace.scope, place.keyspace.collection),
            key: place.id.clone().into_bytes(),
            step,
        };
        match self.node.ask_about(bucket, vbid, &question, self.patience) {
            Ok(Ok(QueryReply::Step(reply))) => reply,
            Ok(_) => Err(KvError::Temporary("an unexpected answer".into())),
            Err(reason) => Err(KvError::Temporary(reason)),
        }
    }
}

/// Returns the keys of record documents in a collection that may exist in the vBuckets `vbids` of this node.
pub fn records_in<'a>(
    bucket: &'a Bucket,
    collection: CollectionId,
    vbids: &'a Vbids,
    now: Now,
) -> impl Iterator<Item = &'static String> + 'a {
    let may_be_there = move |key: &&String| {
        let vbid = Vbid::of(key.as_bytes(), bucket.vbucket_count());
        let stored_key = DocKey::new(collection, key.as_bytes());
        let meta = || bucket.apply(vbid, stored_key.prefixed(), &Command::GetMeta, now);
        match vbids.contains(vbid).then(meta).flatten() {
            Some((Ok(Reply::Meta(document)), ..)) => document.is_alive(),
            // The document is in the store.
            Some((Err(Refusal::NotResident), ..)) => true,
            _ => false,
        }
    };
    RECORD_KEYS.iter().filter(may_be_there)
}

/// Executes a step on a document that this node serves.
///
/// # Errors
/// The reason of the failure.
pub fn answer_step(
    node: &Arc<Node>,
    bucket: &Arc<Bucket>,
    path: &str,
    key: &[u8],
    step: &Step,
    left: Duration,
) -> Result<StepReply, KvError> {
    let documents = BucketDocuments::new(node, bucket);
    match step {
        Step::Look(paths) => {
            let specs: Vec<_> = paths.iter().map(|path| lookup(path)).collect();
            let command =
                Command::Lookup { specs: &specs, access_deleted: true, sees_system: true };
            match documents.read_by(path, key, &command, left)? {
                Reply::Looked { results, cas, deleted } => Ok(StepReply::Looked(LookupResult {
                    cas: cas.0,
                    is_tombstone: deleted,
                    found: results.into_iter().map(Result::ok).collect(),
                })),
                other => Err(unexpected(&other)),
            }
        }
        Step::Edit(edit, durability) => {
            let specs: Vec<_> = edit.parts.iter().map(spec).collect();
            let absolute = |expiry| absolute(node, bucket, path, expiry);
            let command = mutation(edit, &specs, edit.expiry.map(absolute), absolute(0));
            written(documents.write_by(path, key, &command, durability.level(), left)?)
        }
        Step::Remove(cas, durability) => {
            let command = Command::Delete { cas: Cas(*cas) };
            written(documents.write_by(path, key, &command, durability.level(), left)?)
        }
    }
}

fn written(reply: Reply) -> Result<StepReply, KvError> {
    match reply {
        Reply::Stored { cas, .. } | Reply::Mutated { cas, .. } => Ok(StepReply::Written(cas.0)),
        other => Err(unexpected(&other)),
    }
}

fn unexpected(reply: &Reply) -> KvError {
    KvError::Temporary(format!("an unexpected reply: {reply:?}"))
}

/// Returns the absolute expiry of a document in that collection; `expiry` is as clients send it.
fn absolute(node: &Node, bucket: &Bucket, path: &str, expiry: u32) -> u32 {
    let collection = bucket.manifest().resolve(path).ok();
    let max_ttl = collection.and_then(|collection| bucket.max_ttl(collection)).unwrap_or(0);
    bucket.expiry(max_ttl, expiry, node.now())
}

fn mutation<'a>(
    edit: &Edit,
    specs: &'a [MutationSpec<'a>],
    expiry: Option<u32>,
    expiry_when_new: u32,
) -> Command<'a> {
    Command::Mutate {
        specs,
        condition: match edit.presence {
            Presence::Present => Condition::Present,
            Presence::Absent => Condition::Absent,
            Presence::Any => Condition::Always,
        },
        access_deleted: edit.sees_tombstones,
        create_as_deleted: edit.hides,
        revive: edit.revives,
        cas: Cas(edit.cas),
        expiry,
        expiry_when_new,
        flags: edit.flags,
        keep_expiry: false,
    }
}

const ATTRIBUTE: Flags =
    Flags { create_path: false, xattr: true, expand_macros: false, binary: false };

fn lookup(path: &str) -> LookupSpec<'_> {
    LookupSpec {
        operation: LookupOperation::Path(Lookup::Get),
        flags: ATTRIBUTE,
        path: path.as_bytes(),
        value: b"",
    }
}

fn spec(part: &Part) -> MutationSpec<'_> {
    fn at<'a>(
        operation: Mutation,
        flags: Flags,
        path: &'a str,
        value: &'a [u8],
    ) -> MutationSpec<'a> {
        let operation = MutationOperation::Path(operation);
        MutationSpec { operation, flags, path: path.as_bytes(), value }
    }
    match part {
        Part::Add(path, value) => at(Mutation::DictAdd, ATTRIBUTE, path, value),
        Part::Set(path, value) => at(Mutation::DictUpsert, ATTRIBUTE, path, value),
        Part::SetWhole(path, value) => {
            let flags = Flags { create_path: true, ..ATTRIBUTE };
            at(Mutation::DictUpsert, flags, path, value)
        }
        Part::SetComputed(path, value) => {
            let flags = Flags { expand_macros: true, ..ATTRIBUTE };
            at(Mutation::DictUpsert, flags, path, value.as_bytes())
        }
        Part::Remove(path) => at(Mutation::Delete, ATTRIBUTE, path, b""),
        Part::Body(value) => MutationSpec {
            operation: MutationOperation::SetDocument,
            flags: Flags::default(),
            path: b"",
            value,
        },
        Part::BodyFrom(path, format) => MutationSpec {
            operation: MutationOperation::ReplaceBodyWithXattr,
            flags: Flags { binary: *format == BodyFormat::Binary, ..ATTRIBUTE },
            path: path.as_bytes(),
            value: b"",
        },
    }
}
