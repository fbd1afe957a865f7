//! Parts of the history of a vBucket, for a single read.

use nacre_bucket::Bucket;
use nacre_dcp::{Limit, Portion, Read, Stream};
use nacre_store::Error;
use nacre_types::{CollectionId, Document, Seqno, Vbid};
use std::sync::Arc;

/// Returns the next portion of a stream; from the store if memory no longer has it and the portion may contain
/// documents of the `wanted` collections. Returns `None` if there is nothing new, or the stream has ended.
pub(super) fn next_portion(
    bucket: &Bucket,
    stream: &mut Stream<Error>,
    limit: Limit,
    wanted: impl FnMut(CollectionId) -> bool,
) -> Result<Option<Portion>, Error> {
    if !stream.is_backfilling() {
        let Some(mut vbucket) = bucket.vbucket(stream.vbid()) else { return Ok(None) };
        match stream.read(&mut vbucket, limit, wanted) {
            Read::Portion(portion) => return Ok(Some(portion)),
            Read::CaughtUp | Read::Gone => return Ok(None),
            Read::Behind(after) => {
                drop(vbucket);
                let past = bucket.scan(stream.vbid(), after, stream.wants_history())?;
                stream.begin_backfill(past);
            }
        }
    }
    stream.backfill(limit).map(Some)
}

/// A part of the history of one vBucket. It has the newest version of each key, if that is within the part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// The vBucket.
    pub vbid: Vbid,
    /// The seqno before the first one of the range.
    pub after: Seqno,
    /// The last seqno of the range.
    pub up_to: Seqno,
}

/// Reads a [`Range`] in portions.
pub(super) struct HistoryReader {
    bucket: Arc<Bucket>,
    /// `None` after the end.
    stream: Option<Stream<Error>>,
    up_to: Seqno,
}

impl HistoryReader {
    pub fn open(bucket: &Arc<Bucket>, range: Range) -> HistoryReader {
        let vbucket = bucket.vbucket(range.vbid);
        let stream = vbucket.map(|mut vbucket| Stream::open(&mut vbucket, range.after));
        HistoryReader { bucket: Arc::clone(bucket), stream, up_to: range.up_to }
    }

    /// Returns the next versions; `None` at the end. A portion may be empty.
    pub fn next(&mut self, limit: Limit) -> Result<Option<Vec<Document>>, Error> {
        let Some(stream) = &mut self.stream else { return Ok(None) };
        let Some(Portion { mut documents, .. }) =
            next_portion(&self.bucket, stream, limit, |_| true)?
        else {
            self.close();
            return Ok(None);
        };
        documents.retain(|document| document.meta.seqno <= self.up_to);
        if stream.position() >= self.up_to {
            self.close();
        }
        Ok(Some(documents))
    }

    /// Closes the stream, which keeps unread history in memory.
    fn close(&mut self) {
        if let Some(stream) = self.stream.take()
            && let Some(mut vbucket) = self.bucket.vbucket(stream.vbid())
        {
            stream.close(&mut vbucket);
        }
    }
}

impl Drop for HistoryReader {
    fn drop(&mut self) {
        self.close();
    }
}
