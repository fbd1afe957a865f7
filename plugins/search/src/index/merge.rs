//! Merges of segments.

use super::{Index, settings};
use crate::error::Result;
use tantivy::index::SegmentComponent;
use tantivy::indexer::merge_filtered_segments;

/// Number of segments of similar size from which a merge starts.
const FACTOR: usize = 8;
/// Segments with fewer documents count as equal in size. Each merge of a size class rewrites the segments of the class. With 1,000 here,
/// a segment of up to 8,000 documents was rewritten every few batches: nine times per document for batches of 64.
const SMALL: u32 = 8;
/// Maximum size of the files of the merged segments, in bytes: a large document takes as long as many small ones.
const BYTES_MAX: u64 = 64 << 20;

impl Index {
    /// Merges segments into one if there are enough of a similar size, or rewrites a segment in which most documents are deleted. The
    /// result has at most `docs_max` documents and files of about 64 MiB, which limits the duration of the call. Returns true if there
    /// may be more to merge.
    ///
    /// # Errors
    /// The store fails; the index is then unchanged.
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

    /// Returns the indexes of the segments to merge.
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

    /// Returns the size of the largest files of a segment. An unreadable file counts as empty: the merge then reports
    /// the error.
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
