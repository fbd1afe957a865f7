//! Backs up one vBucket: a state machine over the messages of its source.
//!
//! ```text
//! request() ─► accepted ─► snapshot, record, … until a snapshot ends at or after the target ─► complete
//!     ▲ └────► rolled_back: to the newest earlier part that ends at or below that seqno, else to 0
//!     └────────────┘
//! ```
//!
//! *Invariants:* a part is complete only where a snapshot ends. The source omits from a snapshot the versions that later ones of
//! the same snapshot replace, so a seqno within a snapshot is not a state. For the same reason a rollback to 60 does not keep the
//! part's records up to 60, but returns to the end of an earlier part.

use crate::block::BlockBuilder;
use crate::task::Worker;
use crate::{BackupId, Error, Record, VbucketPart, Versions};
use std::collections::BTreeMap;

/// The range to request from the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamRequest {
    /// The seqno after which records are wanted. A snapshot ends there.
    pub start: u64,
    /// The last wanted seqno; `u64::MAX` for a stream that the consumer ends.
    pub end: u64,
    /// The UUID of the branch of history that `start` refers to; 0 for a consumer without history.
    pub vb_uuid: u64,
}

/// The backup of a vBucket.
pub struct VbucketTake {
    part: VbucketPart,
    /// The earlier parts that can be continued, newest first.
    bases: Vec<(BackupId, u64, u64)>,
    /// The last seqno of the parent's part.
    parent_to: Option<u64>,
    /// The seqno that the part must reach.
    target: u64,
    position: u64,
    snapshot_end: u64,
    versions: Versions,
    is_accepted: bool,
    block: BlockBuilder,
}

impl VbucketTake {
    /// Starts a vBucket. `lineage` has the backup, vBucket UUID and last seqno of earlier parts, newest first; `target` is the
    /// source's high seqno.
    pub fn new(vbid: u16, lineage: Vec<(BackupId, u64, u64)>, target: u64) -> VbucketTake {
        let parent_to = lineage.first().map(|(.., to)| *to);
        // A part that ends at 0 is empty: a stream starts from the beginning there.
        let bases = lineage.into_iter().filter(|(.., to)| *to > 0).collect();
        let part = VbucketPart {
            vbid,
            uuid: 0,
            base: None,
            from: 0,
            to: 0,
            dropped: None,
            runs: Vec::new(),
            sets: 0,
            deletions: 0,
            collections: BTreeMap::new(),
            digest: 0,
            versions: None,
            full_to: None,
        };
        let mut take = VbucketTake {
            part,
            bases,
            parent_to,
            target,
            position: 0,
            snapshot_end: 0,
            versions: Versions { complete_after: 0, cas: 0 },
            is_accepted: false,
            block: BlockBuilder::new(vbid),
        };
        take.go_to_base();
        take
    }

    /// Continues the newest remaining base.
    fn go_to_base(&mut self) {
        let newest = self.bases.first().copied();
        self.part.base = newest.map(|(id, ..)| id);
        (self.part.uuid, self.part.from) = newest.map_or((0, 0), |(_, uuid, to)| (uuid, to));
        (self.position, self.snapshot_end) = (self.part.from, self.part.from);
        self.versions = Versions { complete_after: self.part.from, cas: 0 };
    }

    /// Returns the request for the stream.
    pub fn request(&self) -> StreamRequest {
        let (start, vb_uuid) = (self.part.from, self.part.uuid);
        // A stream that ends within a snapshot would lack keys whose newer version comes after its end.
        let end = if start >= self.target { start } else { u64::MAX };
        StreamRequest { start, end, vb_uuid }
    }

    /// Handles a rollback: the source does not share the history above `seqno`.
    ///
    /// # Errors
    /// [`Error::Source`] if the request did not need shared history.
    pub fn rolled_back(&mut self, seqno: u64) -> Result<(), Error> {
        if self.bases.is_empty() {
            return Err(
                self.malformed(format!("the server asked to roll back a stream from 0 to {seqno}"))
            );
        }
        // The requested base is not shared, whatever the seqno is.
        self.bases.remove(0);
        self.bases.retain(|(_, _, to)| *to <= seqno);
        self.go_to_base();
        Ok(())
    }

    /// Handles the start of the stream. `failover_log` has the vBucket UUID and first seqno of each branch, newest first.
    ///
    /// # Errors
    /// [`Error::Source`] if the log is empty.
    pub fn accepted(&mut self, failover_log: &[(u64, u64)]) -> Result<(), Error> {
        let newest = failover_log.first().copied();
        let (uuid, _) = newest.ok_or_else(|| self.malformed("a failover log has no branch"))?;
        self.part.uuid = uuid;
        self.is_accepted = true;
        Ok(())
    }

    /// Returns true once the vBucket is complete and the stream can be closed.
    pub fn is_complete(&self) -> bool {
        self.is_accepted && self.position >= self.target && self.position >= self.snapshot_end
    }

    /// Returns the vBucket.
    pub fn vbid(&self) -> u16 {
        self.part.vbid
    }

    /// Handles the start of a snapshot. `is_history` is true if the snapshot omits no versions.
    ///
    /// # Errors
    /// [`Error::Source`] if it ends before a seqno that was already sent.
    pub fn snapshot(&mut self, end: u64, is_history: bool) -> Result<(), Error> {
        if end < self.position {
            return Err(
                self.malformed(format!("a snapshot ends at {end}, after {}", self.position))
            );
        }
        self.snapshot_end = end;
        if !is_history {
            self.versions.complete_after = end;
        }
        Ok(())
    }

    /// Handles an advance of history to `seqno` without documents.
    ///
    /// # Errors
    /// [`Error::Source`] if the seqno is lower than the last one.
    pub fn advanced(&mut self, seqno: u64) -> Result<(), Error> {
        if seqno < self.position || seqno > self.snapshot_end {
            return Err(self.malformed(format!("seqno {seqno} comes out of order")));
        }
        self.position = seqno;
        Ok(())
    }

    /// Adds a record. A block that it completes goes to `worker`.
    ///
    /// # Errors
    /// [`Error::Source`] if it is out of order; errors of the store.
    pub fn record(&mut self, record: &Record<'_>, worker: &mut Worker<'_>) -> Result<(), Error> {
        if record.seqno <= self.position || record.seqno > self.snapshot_end {
            return Err(self.malformed(format!("seqno {} comes out of order", record.seqno)));
        }
        if self.block.is_better_without(record) {
            self.put_block(worker)?;
        }
        self.block.push(record);
        self.position = record.seqno;
        if record.seqno <= self.versions.complete_after {
            self.versions.cas = self.versions.cas.max(record.cas);
        }
        self.part.add(record);
        if self.block.is_full() { self.put_block(worker) } else { Ok(()) }
    }

    fn put_block(&mut self, worker: &mut Worker<'_>) -> Result<(), Error> {
        worker.append(&mut self.block, &mut self.part.runs)
    }

    /// Ends the vBucket: returns its part, or `None` if the parent has all records.
    ///
    /// # Errors
    /// [`Error::Source`] if it is not complete; errors of the store.
    pub(crate) fn finish(mut self, worker: &mut Worker<'_>) -> Result<Option<VbucketPart>, Error> {
        if !self.is_complete() {
            return Err(self.malformed("the stream ended early"));
        }
        if !self.block.is_empty() {
            self.put_block(worker)?;
        }
        let mut part = self.part;
        part.to = self.position;
        part.versions = Some(self.versions);
        if part.to == part.from && Some(part.from) == self.parent_to {
            return Ok(None);
        }
        part.dropped = self.parent_to.filter(|to| *to != part.from);
        Ok(Some(part))
    }

    fn malformed(&self, reason: impl Into<String>) -> Error {
        Error::Source { vbid: self.part.vbid, reason: reason.into() }
    }
}
