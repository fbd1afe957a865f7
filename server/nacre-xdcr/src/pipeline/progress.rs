//! Positions of a run: the position read, and the position up to which every version is done.

use nacre_dcp::ResumePoint;
use nacre_types::Seqno;

/// Positions of a run in the source's history.
#[derive(Clone, Debug, Default)]
pub(super) struct Progress {
    read: ResumePoint,
    /// The snapshots that are partly read or have outstanding versions.
    snapshots: Vec<(Seqno, Seqno)>,
}

impl Progress {
    /// Creates the progress of a run that resumes at `from`.
    pub fn starting_at(from: ResumePoint) -> Progress {
        let ResumePoint { snapshot_start, snapshot_end, .. } = from;
        Progress { read: from, snapshots: vec![(snapshot_start, snapshot_end)] }
    }

    /// Returns the start of the next read.
    pub fn read(&self) -> ResumePoint {
        self.read
    }

    /// Notes that history was read to `position`.
    pub fn advance(&mut self, position: ResumePoint) {
        let snapshot = (position.snapshot_start, position.snapshot_end);
        if self.snapshots.last() != Some(&snapshot) {
            self.snapshots.push(snapshot);
        }
        self.read = position;
    }

    /// Returns the position up to which every version is done, given the first outstanding version. Within a snapshot,
    /// older versions of keys may be missing whose later versions are not done, so the position lies within that
    /// snapshot.
    pub fn through(&mut self, first: Option<Seqno>) -> ResumePoint {
        let seqno = first.map_or(self.read.seqno, |first| Seqno(first.0 - 1));
        self.snapshots.retain(|(_, end)| *end > seqno);
        let around = || self.snapshots.iter().filter(|(start, _)| *start <= seqno);
        ResumePoint {
            vb_uuid: self.read.vb_uuid,
            seqno,
            snapshot_start: around().map(|(start, _)| *start).min().unwrap_or(seqno),
            snapshot_end: around().map(|(_, end)| *end).max().unwrap_or(seqno),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_types::VbUuid;

    fn point(seqno: u64, start: u64, end: u64) -> ResumePoint {
        ResumePoint {
            vb_uuid: VbUuid(1),
            seqno: Seqno(seqno),
            snapshot_start: Seqno(start),
            snapshot_end: Seqno(end),
        }
    }

    #[test]
    fn a_point_within_a_snapshot_is_marked() {
        let mut progress = Progress::starting_at(point(0, 0, 0));
        progress.advance(point(10, 1, 10));
        progress.advance(point(20, 11, 20));
        assert_eq!(progress.through(Some(Seqno(5))), point(4, 1, 10));
        assert_eq!(progress.through(Some(Seqno(11))), point(10, 10, 10));
        assert_eq!(progress.through(Some(Seqno(12))), point(11, 11, 20));
        assert_eq!(progress.through(None), point(20, 20, 20));
    }

    #[test]
    fn a_run_that_begins_within_a_snapshot_is_within_it_to_its_end() {
        let mut progress = Progress::starting_at(point(60, 1, 90));
        assert_eq!(progress.through(None), point(60, 1, 90));
        progress.advance(point(80, 61, 80));
        assert_eq!(progress.through(Some(Seqno(71))), point(70, 1, 90));
        assert_eq!(progress.through(None), point(80, 1, 90));
        progress.advance(point(95, 81, 95));
        assert_eq!(progress.through(None), point(95, 95, 95));
    }
}
