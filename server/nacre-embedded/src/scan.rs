//! Scans: the documents of a collection in key order.

use crate::collection::Found;
use crate::{Collection, Error};
use nacre_bucket::range_scan::{self, ScanError};
use nacre_types::{CollectionId, Document, Vbid};
use std::ops::Bound;

/// A range of keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range {
    start: Bound<Vec<u8>>,
    end: Bound<Vec<u8>>,
}

impl Range {
    /// All keys.
    pub fn all() -> Range {
        Range { start: Bound::Unbounded, end: Bound::Unbounded }
    }

    /// The keys between two bounds.
    pub fn between(start: Bound<&[u8]>, end: Bound<&[u8]>) -> Range {
        Range { start: start.map(<[u8]>::to_vec), end: end.map(<[u8]>::to_vec) }
    }

    /// The keys that begin with `prefix`.
    pub fn prefix(prefix: impl AsRef<[u8]>) -> Range {
        let prefix = prefix.as_ref();
        let mut end = prefix.to_vec();
        // The first key after all of them: the prefix with its last byte below 255 incremented.
        while let Some(last) = end.pop() {
            if last < u8::MAX {
                end.push(last + 1);
                break;
            }
        }
        let end = if end.is_empty() { Bound::Unbounded } else { Bound::Excluded(end) };
        Range { start: Bound::Included(prefix.to_vec()), end }
    }

    fn contains(&self, key: &[u8]) -> bool {
        let is_after = match &self.start {
            Bound::Included(start) => key >= &start[..],
            Bound::Excluded(start) => key > &start[..],
            Bound::Unbounded => true,
        };
        let is_before = match &self.end {
            Bound::Included(end) => key <= &end[..],
            Bound::Excluded(end) => key < &end[..],
            Bound::Unbounded => true,
        };
        is_after && is_before
    }
}

/// The documents of a range, ascending by key. The scan reads values that are only on disk as it reaches them, and skips
/// documents that were deleted by then.
pub struct Scan {
    collection: Collection,
    documents: std::vec::IntoIter<Document>,
}

impl Scan {
    pub(crate) fn begin(
        collection: &Collection,
        id: CollectionId,
        range: Range,
    ) -> Result<Scan, Error> {
        let inner = collection.db().inner();
        let now = inner.now();
        let mut documents = Vec::new();
        for vbid in (0..inner.bucket.vbucket_count()).map(Vbid) {
            let found = range_scan::documents_of(&inner.bucket, vbid, id, now);
            let found = found.map_err(|error| match error {
                ScanError::Store(error) => Error::from(error),
                ScanError::NoVbucket => Error::Closed,
                other => Error::Io { what: format!("scan: {other:?}") },
            })?;
            documents.extend(found.into_iter().filter(|found| range.contains(found.name())));
        }
        documents.sort_unstable_by(|one, other| one.name().cmp(other.name()));
        Ok(Scan { collection: collection.clone(), documents: documents.into_iter() })
    }

    /// Returns the keys of the range. Does not read values.
    pub fn into_keys(self) -> impl Iterator<Item = Vec<u8>> {
        self.documents.map(|document| document.name().to_vec())
    }
}

impl Iterator for Scan {
    type Item = Result<Found, Error>;

    fn next(&mut self) -> Option<Result<Found, Error>> {
        loop {
            let document = self.documents.next()?;
            if document.is_resident() {
                let cas = document.meta.cas;
                return Some(Ok(Found::new(document, cas)));
            }
            match self.collection.get(document.name()) {
                Ok(None) => {}
                Ok(Some(found)) => return Some(Ok(found)),
                Err(error) => return Some(Err(error)),
            }
        }
    }
}
