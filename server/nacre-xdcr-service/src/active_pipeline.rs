//! A vBucket of the source: its pipeline, and the stream that feeds it.

use nacre_bucket::Bucket;
use nacre_dcp::{Limit, Portion, Read, ResumePoint, Stream};
use nacre_store::Error;
use nacre_types::{Seqno, VbUuid, Vbid};
use nacre_vbucket::Vbucket;
use nacre_xdcr::{Pipeline, Run, SourceState};

/// Maximum number of documents per read.
const PORTION_DOCUMENTS: usize = 512;

/// A pipeline and its stream.
pub(crate) struct ActivePipeline {
    /// The state machine.
    pub pipeline: Pipeline,
    /// Time of the next tick as registered in the driver's timers, in monotonic nanoseconds.
    pub timer_ns: Option<u64>,
    /// The pending read of the pipeline: history after this position.
    pub reading: Option<(Run, ResumePoint)>,
    /// The branch of the source's history in this run.
    pub branch: VbUuid,
    stream: Option<Stream<Error>>,
}

/// Result of a read.
pub(crate) enum Found {
    /// The next versions, and the greatest seqno of a tombstone that had been purged at the time of the read.
    Portion(Portion, Seqno),
    /// The history has nothing new.
    Nothing,
    /// The history has changed.
    Changed(SourceState),
    /// The vBucket is no longer active on this node.
    Gone,
}

/// Returns the history of a vBucket in the form that a pipeline uses.
pub(crate) fn state_of(vbucket: &Vbucket) -> SourceState {
    SourceState {
        log: vbucket.failover_log().clone(),
        high_seqno: vbucket.high_seqno(),
        purge_seqno: vbucket.purge_seqno(),
    }
}

impl ActivePipeline {
    /// Creates a line with a resting pipeline.
    pub fn new(pipeline: Pipeline, branch: VbUuid) -> ActivePipeline {
        ActivePipeline { pipeline, timer_ns: None, reading: None, branch, stream: None }
    }

    /// Reads history for the pending read of the pipeline, if there is one.
    ///
    /// # Errors
    /// The error of the store. The stream is then closed.
    pub fn read(&mut self, bucket: &Bucket, vbid: Vbid, bytes: usize) -> Result<Found, Error> {
        let Some((_, after)) = self.reading else { return Ok(Found::Nothing) };
        let Some(mut vbucket) = bucket.active(vbid) else { return Ok(Found::Gone) };
        if vbucket.failover_log().current() != self.branch {
            return Ok(Found::Changed(state_of(&vbucket)));
        }
        let is_there = self.stream.as_ref().is_some_and(|it| it.position() == after.seqno);
        if !is_there {
            if let Some(stream) = self.stream.take() {
                stream.close(&mut vbucket);
            }
            self.stream = Some(Stream::open(&mut vbucket, after.seqno));
        }
        drop(vbucket);
        let read = self.next_portion(bucket, vbid, Limit { count: PORTION_DOCUMENTS, bytes });
        if read.is_err() {
            self.close(bucket, vbid);
        }
        read
    }

    fn next_portion(&mut self, bucket: &Bucket, vbid: Vbid, limit: Limit) -> Result<Found, Error> {
        let Some(stream) = &mut self.stream else { return Ok(Found::Nothing) };
        if !stream.is_backfilling() {
            let Some(mut vbucket) = bucket.active(vbid) else { return Ok(Found::Gone) };
            match stream.read(&mut vbucket, limit, |_| true) {
                Read::Portion(portion) => {
                    return Ok(Found::Portion(portion, vbucket.purge_seqno()));
                }
                Read::CaughtUp => return Ok(Found::Nothing),
                Read::Gone => {
                    if let Some(stream) = self.stream.take() {
                        stream.close(&mut vbucket);
                    }
                    return Ok(Found::Changed(state_of(&vbucket)));
                }
                Read::Behind(after) => {
                    drop(vbucket);
                    let past = bucket.scan(vbid, after, false)?;
                    stream.begin_backfill(past);
                }
            }
        }
        let portion = stream.backfill(limit)?;
        let purge_seqno = bucket.vbucket(vbid).map_or(Seqno::ZERO, |vbucket| vbucket.purge_seqno());
        Ok(Found::Portion(portion, purge_seqno))
    }

    /// Closes the stream, which keeps unread history in memory.
    pub fn close(&mut self, bucket: &Bucket, vbid: Vbid) {
        if let Some(stream) = self.stream.take()
            && let Some(mut vbucket) = bucket.vbucket(vbid)
        {
            stream.close(&mut vbucket);
        }
    }
}
