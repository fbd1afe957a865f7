//! Counters of document requests since the bucket was opened.
//!
//! A session counts its answers in plain integers and adds them to the bucket once per socket read, so that a request costs no
//! shared write of its own.

use nacre_protocol::Opcode;
use std::sync::atomic::{AtomicU64, Ordering};

/// Answered document requests, by effect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OperationCounts {
    /// Requests that changed nothing: reads and refused requests.
    pub reads: u64,
    /// Requests that stored a document.
    pub writes: u64,
    /// Requests that removed a document.
    pub deletes: u64,
}

impl OperationCounts {
    /// Counts a request.
    pub(crate) fn add(&mut self, opcode: Option<Opcode>, wrote: bool) {
        match (wrote, opcode) {
            (false, _) => self.reads += 1,
            (true, Some(Opcode::Delete | Opcode::DeleteQ)) => self.deletes += 1,
            (true, _) => self.writes += 1,
        }
    }
}

/// The counts of a bucket, shared by its connections.
#[derive(Debug, Default)]
pub(crate) struct Operations {
    reads: AtomicU64,
    writes: AtomicU64,
    deletes: AtomicU64,
}

impl Operations {
    /// Adds the counts of a session.
    pub fn add(&self, counts: OperationCounts) {
        let OperationCounts { reads, writes, deletes } = counts;
        for (sum, count) in [(&self.reads, reads), (&self.writes, writes), (&self.deletes, deletes)]
        {
            if count > 0 {
                sum.fetch_add(count, Ordering::Relaxed);
            }
        }
    }

    /// Returns the counts. They are not an atomic snapshot.
    pub fn counts(&self) -> OperationCounts {
        let of = |sum: &AtomicU64| sum.load(Ordering::Relaxed);
        OperationCounts {
            reads: of(&self.reads),
            writes: of(&self.writes),
            deletes: of(&self.deletes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_by_kind() {
        let operations = Operations::default();
        let mut counts = OperationCounts::default();
        counts.add(Some(Opcode::Get), false);
        counts.add(Some(Opcode::Set), true);
        counts.add(Some(Opcode::Set), false);
        counts.add(Some(Opcode::DeleteQ), true);
        operations.add(counts);
        operations.add(counts);
        assert_eq!(operations.counts(), OperationCounts { reads: 4, writes: 2, deletes: 2 });
    }
}
