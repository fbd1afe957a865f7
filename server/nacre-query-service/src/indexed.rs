//! Documents in index order. If this node has all of them, as in most single-node clusters, entries and documents are read
//! in one pass; otherwise the entries are read first, from all nodes, and then their documents.

use super::Queries;
use super::message::IndexPart;
use super::part::row;
use super::session::{PAGE_BYTES, Session, path};
use crate::NodeQueries;
use nacre_cluster::Index;
use nacre_node::Node;
use nacre_node::scatter_gather::NoReply;
use nacre_plugins_service::BucketDocuments;
use nacre_sandbox::{
    Database, DatabaseKeyspace, Failure, IndexPage, IndexScan, IndexedRows, KvError, Row, Rows,
};
use nacre_state::IndexedRef;
use std::sync::Arc;
use std::time::Duration;

/// Number of documents that are fetched before their total size is checked.
const ASKED_AT_ONCE: usize = 64;

impl Session {
    /// Returns the documents of the next entries of an index.
    pub(super) fn read_indexed(
        &self,
        scan: &IndexScan,
        left: Duration,
    ) -> Result<IndexedRows, Failure> {
        let (keyspace, index) = self.find_index(&scan.index)?;
        self.require_reading(&keyspace)?;
        match self.read_here(&keyspace, &index, scan, left) {
            Some(found) => found,
            None => self.read_everywhere(&keyspace, &index, scan, left),
        }
    }

    /// Reads everything from this node, if it has everything and only the index may require waiting.
    fn read_here(
        &self,
        keyspace: &DatabaseKeyspace,
        index: &Index,
        scan: &IndexScan,
        left: Duration,
    ) -> Option<Result<IndexedRows, Failure>> {
        let owners = self.requester.node.owners(&keyspace.bucket)?;
        let is_here = owners.only() == Some(self.requester.node.id());
        if !is_here || index.partitioning.is_some() || self.is_in_transaction() {
            return None;
        }
        self.footprint.note(&keyspace.bucket);
        let part = IndexPart {
            asker: self.footprint.asker,
            bucket: keyspace.bucket.clone(),
            index: scan.index.clone(),
            vbids: owners.all(),
            partition: None,
            ends: Vec::new(),
            spans: scan.spans.clone(),
            reverse: scan.reverse,
            after: None,
            limit: scan.limit,
            consistency: scan.consistency.clone(),
        };
        let found = self.requester.node.queries().read_indexed(
            &self.requester.node,
            keyspace,
            &part,
            left,
        )?;
        let vitals = self.requester.node.queries().vitals();
        vitals.add_index_touches(1);
        if found.as_ref().is_ok_and(|found| found.last.is_some()) {
            vitals.add_document_touches(1);
        }
        Some(found)
    }

    fn read_everywhere(
        &self,
        keyspace: &DatabaseKeyspace,
        index: &Index,
        scan: &IndexScan,
        left: Duration,
    ) -> Result<IndexedRows, Failure> {
        let mut gathered = self.begin_scan(keyspace, index, &scan.partitions, None)?;
        let source = self.source(&keyspace.bucket, left);
        let (IndexPage { entries, .. }, more) = gathered.page(&source, index, scan)?;
        let mut found = IndexedRows { is_whole: more.is_none(), ..IndexedRows::default() };
        let (mut bytes, mut rest) = (0, &entries[..]);
        while !rest.is_empty() {
            if bytes >= PAGE_BYTES {
                found.is_whole = false;
                break;
            }
            let (asked, behind) = rest.split_at(rest.len().min(ASKED_AT_ONCE));
            let ids: Vec<String> = asked.iter().map(|(_, id)| id.clone()).collect();
            let rows = self.fetch(keyspace, &ids, left)?.into_iter().flatten();
            found.rows.extend(rows.inspect(|row: &Row| bytes += row.body.len()));
            found.last = asked.last().map(|(key, _)| key.clone());
            rest = behind;
        }
        Ok(found)
    }
}

impl Queries {
    /// Returns the documents of a part's next entries, if this node has all of them in memory.
    fn read_indexed(
        &self,
        node: &Arc<Node>,
        keyspace: &DatabaseKeyspace,
        part: &IndexPart,
        left: Duration,
    ) -> Option<Result<IndexedRows, Failure>> {
        let bucket = node.bucket(&part.bucket)?;
        let collection = bucket.manifest().resolve(&path(keyspace)).ok()?;
        let snapshot = match self.snapshot(node, part, left) {
            Ok(snapshot) => snapshot,
            Err(NoReply::Failed(failure)) => return Some(Err(failure.into())),
            Err(_) => return None,
        };
        let documents = BucketDocuments::new(node, &bucket);
        let (now, mut wire_key) = (node.now(), Vec::new());
        let mut rows = Rows::with_capacity(part.limit.min(ASKED_AT_ONCE));
        let (mut left, mut bytes, mut last) = (part.limit, 0, None::<IndexedRef<'_>>);
        let spans = part.spans.iter();
        let entries = spans.flat_map(|span| snapshot.scan(None, span, part.reverse));
        let mut entries = entries.filter_map(named).peekable();
        let mut ids = Vec::with_capacity(ASKED_AT_ONCE);
        let mut places = Vec::with_capacity(ASKED_AT_ONCE);
        while left > 0 && bytes < PAGE_BYTES && entries.peek().is_some() {
            ids.clear();
            places.clear();
            for (id, place) in entries.by_ref().take(left.min(ASKED_AT_ONCE)) {
                ids.push(id);
                places.push(place);
            }
            left -= ids.len();
            for (turn, (id, place)) in ids.iter().zip(&places).enumerate() {
                if bytes >= PAGE_BYTES {
                    let last = last.map(|last| last.key());
                    return Some(Ok(IndexedRows { rows, last, is_whole: false }));
                }
                last = Some(*place);
                documents.prefetch(collection, &ids, turn, &mut wire_key);
                match documents.resident(collection, id.as_bytes(), now, &mut wire_key)? {
                    Ok((document, cas)) => {
                        bytes += document.body().len();
                        rows.add(id, row(document, cas));
                    }
                    Err(KvError::NotFound) => {}
                    Err(_) => return None,
                }
            }
        }
        let last = last.map(|last| last.key());
        Some(Ok(IndexedRows { rows, last, is_whole: entries.peek().is_none() }))
    }
}

/// Returns an entry with the ID of its document; `None` if the ID is not UTF-8.
fn named(entry: IndexedRef<'_>) -> Option<(&str, IndexedRef<'_>)> {
    Some((str::from_utf8(entry.id()).ok()?, entry))
}
