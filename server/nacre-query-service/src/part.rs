//! This node's part of a collection or an index: answers calls about the vBuckets that it serves.

use super::Queries;
use super::consistency::Wanted;
use super::failure::{code, dml, failure, retry, unresolved};
use super::message::{CollectionCall, IndexPart, Place, QueryReply};
use super::request_data::Listed;
use super::session::PAGE_BYTES;
use super::transaction::{KEY_PREFIX, records_in};
use nacre_bucket::Bucket;
use nacre_bucket::range_scan::documents_of;
use nacre_node::Node;
use nacre_node::scatter_gather::{NoReply, Vbids};
use nacre_plugins_service::{BucketDocuments, Missing, NodePlugins};
use nacre_sandbox::{
    Action, Content, DatabaseKeyspace, DocumentCall, Documents, Failure, KvError, Mutation, Row,
    RowRefusal, StoreMode,
};
use nacre_state::{IndexSnapshot, Span};
use nacre_types::{Cas, CollectionId, DATATYPE_JSON, Document, Meta, Vbid};
use std::sync::Arc;
use std::time::Duration;

/// Number of documents that a scan reads before it checks their total size.
const FETCHED_AT_ONCE: usize = 64;
/// Maximum number of entries in one answer.
const ENTRIES_MAX: usize = 4096;
/// Flags that SDKs use for JSON. Source: Couchbase's common flags.
const JSON_FLAGS: u32 = 0x0200_0000;

/// A collection on this node.
struct Collection<'a> {
    node: &'a Arc<Node>,
    bucket: Arc<Bucket>,
    id: CollectionId,
    path: &'a str,
    documents: BucketDocuments,
    left: Duration,
}

type Outcome = Result<QueryReply, NoReply>;

impl Queries {
    /// Answers a query's call to a collection.
    pub(crate) fn answer_collection(
        &self,
        node: &Arc<Node>,
        bucket: &str,
        path: &str,
        call: CollectionCall,
        left: Duration,
    ) -> Outcome {
        let bucket = node.bucket(bucket).ok_or(NoReply::NotOwner)?;
        let id = match bucket.manifest().resolve(path) {
            Ok(id) => id,
            Err(refusal) => {
                let (scope, collection) = path.split_once('.').unwrap_or((path, ""));
                let keyspace = DatabaseKeyspace {
                    bucket: bucket.name.clone(),
                    scope: scope.into(),
                    collection: collection.into(),
                };
                return Err(unresolved(&keyspace, &refusal).into());
            }
        };
        let documents = BucketDocuments::new(node, &bucket);
        let documents = match &call {
            CollectionCall::Mutate(_, durability) => documents.with_level(durability.level()),
            _ => documents,
        };
        let collection = Collection { node, bucket, id, path, documents, left };
        match call {
            CollectionCall::Fetch(ids) => collection.fetch(&ids).map(QueryReply::Fetched),
            CollectionCall::Attributes(ids, names) => {
                collection.attributes(&ids, &names).map(QueryReply::Attributes)
            }
            CollectionCall::Scan { asker, vbid, after, bodies, limit } => self
                .ids(asker, &collection, vbid)
                .and_then(|ids| collection.scan(&ids, after.as_deref(), bodies, limit)),
            CollectionCall::Count(vbids) => collection.count(&vbids),
            CollectionCall::Changes(vbids) => collection.changes(&vbids),
            CollectionCall::Mutate(mutations, _) => collection.mutate(mutations),
        }
    }

    /// Returns the sorted IDs of a vBucket.
    fn ids(
        &self,
        asker: u64,
        collection: &Collection<'_>,
        vbid: Vbid,
    ) -> Result<Arc<Vec<String>>, NoReply> {
        let Collection { node, bucket, id, .. } = collection;
        let of = (bucket.uuid.clone(), *id, vbid);
        let known = self.request_data.read(asker, node.now(), |kept| {
            let listed = kept.listed.as_ref().filter(|listed| listed.of == of)?;
            Some(Arc::clone(&listed.ids))
        });
        if let Some(ids) = known {
            return Ok(ids);
        }
        if !bucket.serves(&[vbid].into_iter().collect(), node.now()) {
            return Err(NoReply::NotOwner);
        }
        let documents = documents_of(bucket, vbid, *id, node.now())
            .map_err(|refused| failure(code::INTERNAL, format!("{refused:?}")))?;
        let name = |name: &[u8]| {
            let name = String::from_utf8(name.to_vec()).ok();
            name.filter(|name| !name.starts_with(KEY_PREFIX))
        };
        let ids: Vec<_> = documents.iter().filter_map(|document| name(document.name())).collect();
        let ids = Arc::new(ids);
        let listed = Listed { of, ids: Arc::clone(&ids) };
        self.request_data.update(asker, node.now(), |kept| kept.listed = Some(listed));
        Ok(ids)
    }

    /// Returns the next entries of an index.
    pub(crate) fn answer_index(
        &self,
        node: &Arc<Node>,
        part: &IndexPart,
        left: Duration,
    ) -> Outcome {
        let bucket = node.bucket(&part.bucket).ok_or(NoReply::NotOwner)?;
        let snapshot = self.snapshot(node, part, left)?;
        Ok(page(&snapshot, part, bucket.vbucket_count()))
    }

    /// Returns a snapshot of an index with the consistency that the request requires.
    pub(super) fn snapshot(
        &self,
        node: &Arc<Node>,
        part: &IndexPart,
        left: Duration,
    ) -> Result<IndexSnapshot, NoReply> {
        let of = (part.index.clone(), part.partition);
        let known = self.request_data.read(part.asker, node.now(), |kept| {
            let (vbids, snapshot) = kept.snapshots.get(&of)?;
            vbids.holds(&part.vbids).then(|| snapshot.clone())
        });
        if let Some(known) = known {
            return Ok(known);
        }
        if self.request_data.has_lost_snapshot(part.asker, &of) {
            let message = "The node dropped the request's index snapshot, which was not read for \
                           too long; run the request again";
            return Err(retry(code::INDEX_FAILURE, message).into());
        }
        let cluster = node.cluster();
        let index = cluster
            .buckets
            .get(&part.bucket)
            .and_then(|bucket| bucket.indexes.iter().find(|index| index.uuid == part.index));
        let missing = || {
            let message = format!("GSI index {} not found.", part.index);
            NoReply::from(failure(code::INDEX_NOT_FOUND, message))
        };
        let deployment = node.plugins().index(&part.bucket, index.ok_or_else(missing)?);
        let not_ready = || match part.partition {
            Some(_) => NoReply::NotOwner,
            None => NoReply::NotYet("the index is not ready yet".into()),
        };
        let deployment = deployment.ok_or_else(not_ready)?;
        let wanted = Wanted::read(&part.consistency, &part.bucket)?;
        let read = match part.partition {
            Some(partition) => deployment.partition(partition, &part.wanted(wanted), left),
            None => deployment.read(&part.vbids, &wanted, left, |_| deployment.snapshot()),
        };
        let snapshot = read.map_err(|missing| match missing {
            Missing::NotOwner => NoReply::NotOwner,
            Missing::NotYet(reason) => NoReply::NotYet(reason),
            Missing::Late => {
                let message = "The index did not catch up before the request timed out";
                retry(code::TIMEOUT, message).into()
            }
            Missing::Stopped(reason) | Missing::Failed(reason) | Missing::TimedOut(reason) => {
                failure(code::INDEX_FAILURE, reason).into()
            }
            Missing::NoMemory(reason) => retry(code::NODE_MEMORY, reason).into(),
        })?;
        let kept = (part.vbids.clone(), snapshot.clone());
        self.request_data.update(part.asker, node.now(), |held| {
            held.snapshots.insert(of, kept);
        });
        Ok(snapshot)
    }
}

impl Collection<'_> {
    fn serves(&self, vbids: &Vbids) -> Result<(), NoReply> {
        match self.bucket.serves(vbids, self.node.now()) {
            true => Ok(()),
            false => Err(NoReply::NotOwner),
        }
    }

    /// Returns documents by ID: the first ones, as many as fit into an answer.
    fn fetch(&self, ids: &[String]) -> Result<Vec<Option<Row>>, NoReply> {
        let now = self.node.now();
        let mut wire_key = Vec::new();
        let mut get = |turn: usize, id: &str| {
            self.documents.prefetch(self.id, ids, turn, &mut wire_key);
            let bytes = id.as_bytes();
            match self.documents.resident(self.id, bytes, now, &mut wire_key) {
                Some(found) => {
                    found.map(|(document, cas)| Row { id: id.to_owned(), ..row(document, cas) })
                }
                None => self.documents.get(self.path, bytes, self.left).map(|found| Row {
                    id: id.to_owned(),
                    body: found.body.into(),
                    cas: found.cas.0,
                    flags: found.flags,
                    expiry: found.expiry,
                    is_json: found.is_json,
                }),
            }
        };
        let (mut rows, mut bytes) = (Vec::with_capacity(ids.len()), 0);
        for (turn, id) in ids.iter().enumerate() {
            if bytes >= PAGE_BYTES {
                break;
            }
            rows.push(match get(turn, id) {
                Ok(row) => {
                    bytes += row.body.len();
                    Some(row)
                }
                Err(KvError::NotFound | KvError::Invalid(_) | KvError::TooLarge) => None,
                Err(KvError::NotMyVbucket) => return Err(NoReply::NotOwner),
                Err(error) => return Err(dml(&error).into()),
            });
        }
        Ok(rows)
    }

    /// Returns extended attributes by ID: of the first documents, as many as fit into an answer.
    fn attributes(&self, ids: &[String], names: &[String]) -> Result<Vec<Option<String>>, NoReply> {
        let (mut all, mut bytes) = (Vec::with_capacity(ids.len()), 0);
        for id in ids {
            if bytes >= PAGE_BYTES {
                break;
            }
            let found = self.documents.attributes(self.path, id.as_bytes(), names, self.left);
            all.push(match found {
                Ok(found) => {
                    let text = serde_json::Value::Object(found).to_string();
                    bytes += text.len();
                    Some(text)
                }
                Err(KvError::NotFound | KvError::Invalid(_) | KvError::TooLarge) => None,
                Err(KvError::NotMyVbucket) => return Err(NoReply::NotOwner),
                Err(error) => return Err(dml(&error).into()),
            });
        }
        Ok(all)
    }

    /// Returns documents among `ids`, in their order.
    fn scan(&self, ids: &[String], after: Option<&str>, bodies: bool, limit: usize) -> Outcome {
        let from = after.map_or(0, |after| ids.partition_point(|id| id.as_str() <= after));
        let (mut rows, mut rest) = (Vec::new(), &ids[from..]);
        while !rest.is_empty() && rows.len() < limit {
            let (asked, behind) =
                rest.split_at(rest.len().min(FETCHED_AT_ONCE).min(limit - rows.len()));
            match bodies {
                true => {
                    let fetched = self.fetch(asked)?;
                    rest = &rest[fetched.len()..];
                    // Documents that were deleted meanwhile are omitted.
                    rows.extend(fetched.into_iter().flatten());
                }
                false => {
                    rest = behind;
                    rows.extend(asked.iter().map(|id| Row { id: id.clone(), ..Row::default() }));
                }
            }
            if rows.iter().map(|row: &Row| row.body.len()).sum::<usize>() >= PAGE_BYTES {
                break;
            }
        }
        Ok(QueryReply::Scanned(rows, rest.is_empty()))
    }

    fn count(&self, vbids: &Vbids) -> Outcome {
        self.serves(vbids)?;
        let count = self.bucket.counts_in(self.id, vbids).documents;
        let hidden = records_in(&self.bucket, self.id, vbids, self.node.now()).count();
        let count = count.saturating_sub(hidden as u64);
        self.serves(vbids)?;
        Ok(QueryReply::Count(count))
    }

    fn changes(&self, vbids: &Vbids) -> Outcome {
        self.serves(vbids)?;
        let changes = self.bucket.sum_of_high_seqnos_in(self.id, vbids);
        self.serves(vbids)?;
        Ok(QueryReply::Count(changes))
    }

    /// Applies mutations independently of each other.
    fn mutate(&self, mutations: Vec<Mutation>) -> Outcome {
        let one = |mutation: Mutation| {
            let id = mutation.id.as_bytes();
            let cas = Some(Cas(mutation.cas)).filter(|_| mutation.cas != 0);
            let write = |call| self.documents.write(self.path, id, &call, self.left);
            let mode = match mutation.action {
                Action::Remove => return write(DocumentCall::Remove(cas)),
                Action::Insert => StoreMode::Insert,
                Action::Upsert => StoreMode::Upsert,
                Action::Replace => StoreMode::Replace(cas),
            };
            let Mutation { body, expiry, .. } = mutation;
            let content = Content { body, flags: JSON_FLAGS, expiry };
            write(DocumentCall::Store(content, mode))
        };
        let outcome = |mutation| match one(mutation) {
            Ok(cas) => Some(Ok(cas.0)),
            Err(KvError::NotMyVbucket) => None,
            Err(KvError::Exists) => Some(Err(RowRefusal::Exists)),
            Err(KvError::NotFound) => Some(Err(RowRefusal::NotFound)),
            Err(KvError::CasMismatch) => Some(Err(RowRefusal::CasMismatch)),
            Err(error) => Some(Err(RowRefusal::Other(dml(&error)))),
        };
        let outcomes: Vec<_> = mutations.into_iter().map(outcome).collect();
        match !outcomes.is_empty() && outcomes.iter().all(Option::is_none) {
            true => Err(NoReply::NotOwner),
            false => Ok(QueryReply::Mutated(outcomes)),
        }
    }
}

/// Returns a document as queries see it, without its ID.
pub(super) fn row(document: Document, cas: Cas) -> Row {
    let Meta { flags, expiry, datatype, .. } = document.meta;
    let is_json = datatype & DATATYPE_JSON != 0;
    let id = String::new();
    Row { id, body: document.into(), cas: cas.0, flags, expiry, is_json }
}

/// Returns the next entries of a part.
fn page(snapshot: &IndexSnapshot, part: &IndexPart, vbucket_count: u16) -> QueryReply {
    let limit = part.limit.min(ENTRIES_MAX);
    let begin = part.after.as_ref().map_or(0, |after| after.span);
    let mut entries: Vec<Place> = Vec::new();
    for (number, span) in part.spans.iter().enumerate().skip(begin) {
        let after = part.after.as_ref().filter(|after| after.span == number);
        let span = after.map_or_else(|| span.clone(), |after| rest_of(after, span, part.reverse));
        let found = snapshot.scan(part.partition, &span, part.reverse);
        for entry in found {
            if !part.vbids.contains(Vbid::of(entry.id(), vbucket_count)) {
                continue;
            }
            let (key, id) = (entry.key(), entry.id().to_vec());
            let place = Place { span: number, key, id, number: entry.number() };
            if after.is_some_and(|after| place.compare(after, part.reverse).is_le()) {
                continue;
            }
            if entries.len() >= limit {
                return QueryReply::Entries(entries, false);
            }
            entries.push(place);
        }
    }
    QueryReply::Entries(entries, true)
}

/// Returns the rest of a span after the entry `after`.
fn rest_of(after: &Place, span: &Span, reverse: bool) -> Span {
    match reverse {
        false => Span { start: after.key.clone(), end: span.end.clone() },
        true => Span { start: span.start.clone(), end: [&after.key[..], &[0]].concat() },
    }
}

/// Returns the failure of a reply of the wrong kind.
pub(super) fn unexpected() -> Failure {
    failure(code::INTERNAL, "a node sent an unexpected reply")
}
