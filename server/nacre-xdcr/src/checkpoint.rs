//! Checkpoint records: how far a vBucket has been replicated.
//!
//! A record states that everything of the source's history up to a position is at the target, in the target's history
//! up to a seqno. It holds for as long as both are still part of their histories. A record is made in this order: the
//! position at the source is noted *first*, then the target is asked for its seqno. So the target has acknowledged all
//! of these versions before it reports its seqno. In the other order, it could lose writes from in between, and the
//! record would still fit its history.

use nacre_dcp::{Resume, ResumePoint, resume};
use nacre_types::{FailoverLog, Seqno, VbUuid, Vbid};
use std::collections::BTreeMap;

/// Maximum number of records of one pipeline.
pub const RECORDS_MAX: usize = 5;

/// The history of the source's vBucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceState {
    /// The failover log.
    pub log: FailoverLog,
    /// The last seqno.
    pub high_seqno: Seqno,
    /// The greatest seqno of a purged tombstone.
    pub purge_seqno: Seqno,
}

/// The history of a vBucket of the target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetState {
    /// The failover log.
    pub log: FailoverLog,
    /// The last seqno.
    pub high_seqno: Seqno,
}

/// A position in the history of a target's vBucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TargetPoint {
    /// The branch of its history.
    pub vb_uuid: VbUuid,
    /// The seqno in it.
    pub seqno: Seqno,
}

/// Positions of the target's vBuckets that the keys of one vBucket of the source may belong to.
pub type TargetPoints = BTreeMap<Vbid, TargetPoint>;

/// States that the target had everything up to `source` when its vBuckets had reached `targets`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The position in the source's history.
    pub source: ResumePoint,
    /// The positions in the target's histories.
    pub targets: TargetPoints,
    /// Creation time in seconds since the Unix epoch.
    pub made_s: u32,
}

impl Record {
    /// Returns true if the position is part of the source's history and no tombstone after it has been purged.
    pub fn fits_source(&self, source: &SourceState) -> bool {
        let SourceState { log, high_seqno, purge_seqno } = source;
        resume(&self.source, log, *high_seqno, *purge_seqno) == Resume::Continue
    }

    /// Returns true if the target's histories still include the recorded positions.
    pub fn fits_target(&self, targets: &BTreeMap<Vbid, TargetState>) -> bool {
        let has = |(vbid, point): (&Vbid, &TargetPoint)| {
            let end = targets
                .get(vbid)
                .and_then(|target| target.log.branch_end(point.vb_uuid, target.high_seqno));
            end.is_some_and(|end| point.seqno <= end)
        };
        self.targets.iter().all(has) && self.targets.len() == targets.len()
    }
}

/// The records of one pipeline, newest first.
///
/// Invariants: at most [`RECORDS_MAX`] records. The newest and the oldest stay; the older the others are, the wider
/// their spacing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Records(Vec<Record>);

impl Records {
    /// Restores stored records, newest first. Keeps the newest [`RECORDS_MAX`].
    pub(crate) fn stored(mut records: Vec<Record>) -> Records {
        records.truncate(RECORDS_MAX);
        Records(records)
    }

    /// Adds the newest record.
    pub fn add(&mut self, record: Record) {
        let now_s = record.made_s;
        self.0.insert(0, record);
        if self.0.len() <= RECORDS_MAX {
            return;
        }
        let age = |index: usize| f64::from(now_s.saturating_sub(self.0[index].made_s)) + 1.0;
        // Remove the record whose removal leaves the smallest gap between its neighbours, as a ratio of ages.
        let gap = |index: usize| age(index + 1) / age(index - 1);
        let inner = 1..self.0.len() - 1;
        let least = inner.min_by(|left, right| gap(*left).total_cmp(&gap(*right)));
        self.0.remove(least.expect("there are more than two"));
    }

    /// Drops the records that are no longer part of the source's history.
    pub fn roll_back(&mut self, source: &SourceState) {
        self.0.retain(|record| record.fits_source(source));
    }

    /// Returns the newest record that fits the histories of both sides.
    pub fn newest_shared(
        &self,
        source: &SourceState,
        targets: &BTreeMap<Vbid, TargetState>,
    ) -> Option<&Record> {
        self.0.iter().find(|record| record.fits_source(source) && record.fits_target(targets))
    }

    /// Drops records that do not fit the histories of both sides.
    pub fn forget_others(&mut self, source: &SourceState, targets: &BTreeMap<Vbid, TargetState>) {
        self.0.retain(|record| record.fits_source(source) && record.fits_target(targets));
    }

    /// Iterates over the records, newest first.
    pub fn iter(&self) -> impl Iterator<Item = &Record> {
        self.0.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(entries: &[(u64, u64)]) -> FailoverLog {
        FailoverLog::from_entries(entries.iter().map(|&(u, s)| (VbUuid(u), Seqno(s))).collect())
            .unwrap()
    }

    fn record(seqno: u64, target: (u64, u64), made_s: u32) -> Record {
        let seqno = Seqno(seqno);
        let source =
            ResumePoint { vb_uuid: VbUuid(1), seqno, snapshot_start: seqno, snapshot_end: seqno };
        let point = TargetPoint { vb_uuid: VbUuid(target.0), seqno: Seqno(target.1) };
        Record { source, targets: [(Vbid(0), point)].into(), made_s }
    }

    fn source(entries: &[(u64, u64)], high: u64, purge: u64) -> SourceState {
        SourceState { log: log(entries), high_seqno: Seqno(high), purge_seqno: Seqno(purge) }
    }

    fn target(entries: &[(u64, u64)], high: u64) -> BTreeMap<Vbid, TargetState> {
        [(Vbid(0), TargetState { log: log(entries), high_seqno: Seqno(high) })].into()
    }

    fn chosen(
        records: &Records,
        source: &SourceState,
        targets: &BTreeMap<Vbid, TargetState>,
    ) -> Option<u64> {
        records.newest_shared(source, targets).map(|record| record.source.seqno.0)
    }

    #[test]
    fn the_newest_record_that_both_sides_have_is_chosen() {
        let mut records = Records::default();
        for (seqno, at_target) in [(10, 15), (20, 25), (30, 35)] {
            records.add(record(seqno, (7, at_target), seqno as u32));
        }
        let (whole, there) = (source(&[(1, 0)], 40, 0), target(&[(7, 0)], 50));
        assert_eq!(chosen(&records, &whole, &there), Some(30));
        let forked = source(&[(2, 25), (1, 0)], 60, 0);
        assert_eq!(chosen(&records, &forked, &there), Some(20), "the source lost the end");
        let lost = target(&[(8, 24), (7, 0)], 60);
        assert_eq!(chosen(&records, &whole, &lost), Some(10), "the target lost the end");
        assert_eq!(chosen(&records, &whole, &target(&[(9, 0)], 90)), None, "another history");
        assert_eq!(chosen(&records, &whole, &BTreeMap::new()), None);
        let purged = source(&[(1, 0)], 40, 31);
        assert_eq!(chosen(&records, &purged, &there), None, "a deletion may have been missed");
        records.roll_back(&forked);
        assert_eq!(records.iter().count(), 2);
    }

    #[test]
    fn old_records_are_spaced_wider_than_new_ones() {
        let mut records = Records::default();
        for minute in 0..600 {
            records.add(record(u64::from(minute) + 1, (7, 1), minute * 60));
        }
        let ages: Vec<u32> = records.iter().map(|record| 599 - record.made_s / 60).collect();
        assert_eq!((ages.len(), ages[0], ages[4]), (RECORDS_MAX, 0, 599));
        assert!(ages[1] <= 3 && ages[2] < 40 && ages[3] > 10, "{ages:?}");
    }
}
