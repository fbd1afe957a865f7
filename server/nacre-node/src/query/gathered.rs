//! Entries of an index from all nodes that have a part of it, in one order.

use super::failure::{code, failure, retry};
use super::part::unexpected;
use crate::node::Node;
use crate::spread::{Answer, IndexPart, Place, Question, Vbids, Want};
use nacre_plugin_host::{Failure, IndexPage, IndexScan};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// A scan that has come some way.
pub struct Gathered {
    parts: Vec<Part>,
}

/// What one node has told.
struct Part {
    vbids: Vbids,
    /// Entries that were not given yet.
    entries: VecDeque<Place>,
    /// The last entry that it told.
    after: Option<Place>,
    is_whole: bool,
}

/// Where a scan asks.
pub struct Source<'a> {
    pub node: &'a Arc<Node>,
    pub bucket: &'a str,
    /// The number under which the request asks.
    pub asker: u64,
    pub left: Duration,
}

impl Gathered {
    /// A scan of all `vbids` from behind `after`.
    pub fn new(vbids: Vbids, after: Option<Place>) -> Gathered {
        let part = Part { vbids, entries: VecDeque::new(), after, is_whole: false };
        Gathered { parts: vec![part] }
    }

    /// The next entries; their last place when there may be more.
    pub fn page(
        &mut self,
        source: &Source<'_>,
        scan: &IndexScan,
    ) -> Result<(IndexPage, Option<Place>), Failure> {
        let mut page = IndexPage::default();
        let mut last = None;
        while page.entries.len() < scan.limit {
            let left = scan.limit - page.entries.len();
            self.fill(source, scan, left)?;
            let Some(place) = self.take(scan.reverse) else { return Ok((page, None)) };
            if let Ok(id) = String::from_utf8(place.id.clone()) {
                page.entries.push((place.key.clone(), id));
            }
            last = Some(place);
        }
        let is_over = self.parts.iter().all(|part| part.is_whole && part.entries.is_empty());
        Ok((page, last.filter(|_| !is_over)))
    }

    /// Asks for more of each part of which nothing is known that comes next.
    fn fill(&mut self, source: &Source<'_>, scan: &IndexScan, limit: usize) -> Result<(), Failure> {
        let is_hungry = |part: &mut Part| part.entries.is_empty() && !part.is_whole;
        let hungry: Vec<Part> = self.parts.extract_if(.., is_hungry).collect();
        if hungry.is_empty() {
            return Ok(());
        }
        let want = |part: &Part| {
            let after = part.after.clone();
            let question = move |vbids: &Vbids| {
                Question::Index(IndexPart {
                    asker: source.asker,
                    bucket: source.bucket.to_owned(),
                    index: scan.index.clone(),
                    vbids: vbids.clone(),
                    spans: scan.spans.clone(),
                    reverse: scan.reverse,
                    after: after.clone(),
                    limit,
                    consistency: scan.consistency.clone(),
                })
            };
            Want { vbids: part.vbids.clone(), question: Box::new(question) }
        };
        let wants: Vec<Want<'_>> = hungry.iter().map(want).collect();
        let gathered = source.node.gather(source.bucket, &wants, source.left);
        for told in gathered.map_err(|reason| retry(code::INDEX_FAILURE, reason))? {
            match told.answer {
                Answer::Entries(entries, is_whole) => {
                    let after = entries.last().cloned();
                    self.parts.push(Part {
                        vbids: told.vbids,
                        after: after.or_else(|| hungry[told.want].after.clone()),
                        entries: entries.into(),
                        is_whole,
                    });
                }
                Answer::Failed(failure) => return Err(failure),
                _ => return Err(unexpected()),
            }
        }
        // A node that tells nothing and says that there is more would be asked for ever.
        match self.parts.iter_mut().any(is_hungry) && limit > 0 {
            true => Err(failure(code::INTERNAL, "a node has more entries and does not tell them")),
            false => Ok(()),
        }
    }

    /// The entry that comes next.
    fn take(&mut self, reverse: bool) -> Option<Place> {
        let fronts = self.parts.iter().enumerate();
        let fronts = fronts.filter_map(|(number, part)| Some((number, part.entries.front()?)));
        let (next, _) = fronts.min_by(|(_, one), (_, other)| one.compare(other, reverse))?;
        self.parts[next].entries.pop_front()
    }
}
