//! Entries of an index from all nodes that have a part of it, merged in order.

use super::failure::{code, failure, retry};
use super::message::{IndexPart, Place, QueryMessage, QueryReply};
use super::part::unexpected;
use crate::NodeQueries;
use nacre_cluster::Index;
use nacre_node::Node;
use nacre_node::scatter_gather::{PeerFailure, ScatterRequest, Vbids};
use nacre_sandbox::{Failure, IndexPage, IndexScan};
use nacre_types::NodeId;
use parking_lot::Mutex;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// A scan in progress.
pub struct IndexMerge {
    parts: Vec<Part>,
}

/// The portion of an index that a part reads.
#[derive(Clone)]
enum Portion {
    /// Documents in these vBuckets, on one node.
    Vbids(Vbids),
    /// A partition of the index, with all vBuckets.
    Partition(u16, Vbids),
}

/// The entries of one node.
struct Part {
    portion: Portion,
    /// Entries that were not returned yet.
    entries: VecDeque<Place>,
    /// The last entry that the node has returned.
    after: Option<Place>,
    is_whole: bool,
}

/// The nodes that a scan asks.
pub struct Source<'a> {
    pub node: &'a Arc<Node>,
    pub bucket: &'a str,
    /// The number under which the request asks.
    pub asker: u64,
    pub left: Duration,
    /// The nodes that were asked for partitions.
    pub holders: &'a Mutex<BTreeSet<NodeId>>,
}

impl IndexMerge {
    /// Creates a scan of all `vbids` that begins after `after`.
    pub fn new(vbids: Vbids, after: Option<Place>) -> IndexMerge {
        IndexMerge { parts: vec![Part::new(Portion::Vbids(vbids), after)] }
    }

    /// Creates a scan of partitions that begins after `after`.
    pub fn partitions(partitions: &[u16], vbids: &Vbids, after: Option<&Place>) -> IndexMerge {
        let portion = |partition: &u16| Portion::Partition(*partition, vbids.clone());
        let part = |partition| Part::new(portion(partition), after.cloned());
        IndexMerge { parts: partitions.iter().map(part).collect() }
    }

    /// Returns the next entries, and the last place if there may be more.
    pub fn page(
        &mut self,
        source: &Source<'_>,
        index: &Index,
        scan: &IndexScan,
    ) -> Result<(IndexPage, Option<Place>), Failure> {
        let mut page = IndexPage::default();
        let (mut count, mut last) = (0, None::<Place>);
        while count < scan.limit {
            self.fill(source, index, scan, scan.limit - count)?;
            let Some(place) = self.take(scan.reverse) else {
                page.entries.extend(last.and_then(entry));
                return Ok((page, None));
            };
            count += usize::from(str::from_utf8(&place.id).is_ok());
            // Only the last entry is also needed as a place.
            page.entries.extend(last.replace(place).and_then(entry));
        }
        page.entries.extend(last.clone().and_then(entry));
        let is_over = self.parts.iter().all(|part| part.is_whole && part.entries.is_empty());
        Ok((page, last.filter(|_| !is_over)))
    }

    /// Requests more entries for each part that has none left.
    fn fill(
        &mut self,
        source: &Source<'_>,
        index: &Index,
        scan: &IndexScan,
        limit: usize,
    ) -> Result<(), Failure> {
        let is_empty = |part: &mut Part| part.entries.is_empty() && !part.is_whole;
        let empty: Vec<Part> = self.parts.extract_if(.., is_empty).collect();
        if empty.is_empty() {
            return Ok(());
        }
        for reply in source.ask(index, scan, &empty, limit)? {
            let (portion, after, answer) = reply;
            match answer {
                Ok(QueryReply::Entries(entries, is_whole)) => {
                    let after = entries.last().cloned().or(after);
                    self.parts.push(Part { portion, after, entries: entries.into(), is_whole });
                }
                Err(failure) => return Err(failure.into()),
                _ => return Err(unexpected()),
            }
        }
        // A node that returns nothing but claims that there is more would be asked forever.
        match self.parts.iter_mut().any(is_empty) && limit > 0 {
            true => {
                Err(failure(code::INTERNAL, "A node reported more index entries but returned none"))
            }
            false => Ok(()),
        }
    }

    /// Takes the next entry in order.
    fn take(&mut self, reverse: bool) -> Option<Place> {
        let fronts = self.parts.iter().enumerate();
        let fronts = fronts.filter_map(|(number, part)| Some((number, part.entries.front()?)));
        let (next, _) = fronts.min_by(|(_, one), (_, other)| one.compare(other, reverse))?;
        self.parts[next].entries.pop_front()
    }
}

impl Part {
    /// Creates a part without entries.
    fn new(portion: Portion, after: Option<Place>) -> Part {
        Part { portion, entries: VecDeque::new(), after, is_whole: false }
    }
}

/// Returns an entry for a query; `None` if the document's ID is not UTF-8.
fn entry(place: Place) -> Option<(Vec<u8>, String)> {
    Some((place.key, String::from_utf8(place.id).ok()?))
}

/// The portion, the place after which it was requested, and the reply.
type PartReply = (Portion, Option<Place>, Result<QueryReply, PeerFailure>);

impl Source<'_> {
    /// Requests more entries for some parts, from the nodes that serve the vBuckets or have the
    /// partitions.
    fn ask(
        &self,
        index: &Index,
        scan: &IndexScan,
        empty: &[Part],
        limit: usize,
    ) -> Result<Vec<PartReply>, Failure> {
        let question = |vbids: &Vbids, partition, after: &Option<Place>| IndexPart {
            asker: self.asker,
            bucket: self.bucket.to_owned(),
            index: scan.index.clone(),
            vbids: vbids.clone(),
            partition,
            ends: Vec::new(),
            spans: scan.spans.clone(),
            reverse: scan.reverse,
            after: after.clone(),
            limit,
            consistency: scan.consistency.clone(),
        };
        let mut replies = Vec::new();
        let (mut requests, mut asked) = (Vec::new(), Vec::new());
        let (mut parts, mut spread) = (Vec::new(), Vec::new());
        for part in empty {
            match &part.portion {
                Portion::Vbids(vbids) => {
                    let question = move |vbids: &Vbids| {
                        QueryMessage::Index(question(vbids, None, &part.after))
                    };
                    requests
                        .push(ScatterRequest { vbids: vbids.clone(), message: Box::new(question) });
                    asked.push(part);
                }
                Portion::Partition(partition, vbids) => {
                    parts.push(question(vbids, Some(*partition), &part.after));
                    spread.push(part);
                }
            }
        }
        if !requests.is_empty() {
            let gathered = self.node.gather(self.bucket, &requests, self.left);
            let gathered = gathered.map_err(|reason| retry(code::INDEX_FAILURE, reason))?;
            self.node.queries().vitals().add_index_touches(gathered.len());
            for found in gathered {
                let after = asked[found.request].after.clone();
                replies.push((Portion::Vbids(found.vbids), after, found.reply));
            }
        }
        if !parts.is_empty() {
            let spread = spread.into_iter().zip(self.ask_holders(index, &mut parts)?);
            replies.extend(
                spread.map(|(part, answer)| (part.portion.clone(), part.after.clone(), answer)),
            );
        }
        Ok(replies)
    }
}
