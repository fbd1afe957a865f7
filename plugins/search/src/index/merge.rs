//! Merges: which segments become one.

use super::{Index, settings};
use crate::error::Result;
use tantivy::index::SegmentComponent;
use tantivy::indexer::merge_filtered_segments;

/// Segments of about one size, from so many they are merged.
const FACTOR: usize = 8;
/// Segments with fewer documents are of one size. Each merge of a size rewrites what is of that size: with 1,000 here, a segment of up to
/// 8,000 documents was written again for every few batches, nine times for each document when batches were of 64.
const SMALL: u32 = 8;
/// Bytes of the files of segments that are merged, at most: large documents take the time of many.
const BYTES_MAX: u64 = 64 << 20;

impl Index {
    /// Merges some segments into one, if there are enough of about one size, or rewrites one of which most is deleted. The result has at
    /// most `docs_max` documents, and its files about 64 MiB, which bounds the time of the call. Returns whether there may be more to do.
    ///
    /// # Errors
    /// The store fails; the index is then as it was.
    pub fn merge(&mut self, docs_max: u32) -> Result<bool> {
        let Some(chosen) = self.candidate(docs_max) else { return Ok(false) };
        let segments: Vec<_> =
            chosen.iter().map(|at| self.index.segment(self.metas[*at].clone())).collect();
        let filters = segments.iter().map(|_| None).collect();
        let id = self.segment_id()?;
        let directory = self.directory.for_segment(id);
        let merged = merge_filtered_segments(&segments, settings(), filters, directory)?;
        let result = merged.searchable_segment_metas()?;
        let mut at = 0;
        let first = chosen[0];
        self.metas.retain(|_| {
            at += 1;
            !chosen.contains(&(at - 1))
        });
        for meta in result {
            let meta = self.index.new_segment_meta(id, meta.max_doc());
            self.metas.insert(first.min(self.metas.len()), meta);
        }
        self.refresh()?;
        Ok(true)
    }

    /// The places of the segments to merge.
    fn candidate(&self, docs_max: u32) -> Option<Vec<usize>> {
        let level = |docs: u32| (docs.max(SMALL) / SMALL).ilog(FACTOR as u32);
        let mut levels: Vec<Vec<usize>> = Vec::new();
        for (at, meta) in self.metas.iter().enumerate() {
            let level = level(meta.num_docs()) as usize;
            levels.resize_with(levels.len().max(level + 1), Vec::new);
            levels[level].push(at);
        }
        for members in levels.iter().filter(|members| members.len() >= FACTOR) {
            let (mut documents, mut bytes) = (0_u32, 0_u64);
            let fitting = members.iter().copied().take_while(|at| {
                documents = documents.saturating_add(self.metas[*at].num_docs());
                bytes = bytes.saturating_add(self.file_bytes(*at));
                documents <= docs_max && bytes <= BYTES_MAX
            });
            let fitting: Vec<usize> = fitting.take(4 * FACTOR).collect();
            if fitting.len() > 1 {
                return Some(fitting);
            }
        }
        let mostly_deleted = self.metas.iter().position(|meta| {
            meta.num_docs() < meta.num_deleted_docs() && meta.num_docs() <= docs_max
        });
        mostly_deleted.map(|at| vec![at])
    }

    /// Bytes of the largest files of a segment. A file that cannot be read counts as empty: the merge finds out.
    fn file_bytes(&self, at: usize) -> u64 {
        let length = |component| {
            let path = self.metas[at].relative_path(component);
            self.blobs.len(&path.to_string_lossy()).ok().flatten().unwrap_or_default()
        };
        let components = [
            SegmentComponent::Store,
            SegmentComponent::Postings,
            SegmentComponent::Positions,
            SegmentComponent::Terms,
            SegmentComponent::FastFields,
        ];
        components.into_iter().map(length).sum()
    }
}
