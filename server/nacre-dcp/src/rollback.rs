//! Decides whether a consumer may continue from its last position.

use crate::ResumePoint;
use nacre_types::{FailoverLog, Seqno};

/// The producer's answer to a consumer that resumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resume {
    /// The consumer's history is a prefix of this one.
    Continue,
    /// The consumer must drop everything above this seqno (it may drop more) and retry.
    Rollback(Seqno),
    /// The resume point contradicts itself.
    Invalid,
}

/// Decides whether the consumer's history up to `from` is a prefix of this history.
///
/// `purge_seqno` is the highest seqno of a purged tombstone: below it, a consumer may have missed deletions. Source:
/// the decision table of the DCP protocol, stream request. A consumer that stopped within a snapshot rolls back to
/// before it, because each snapshot of this producer begins with the seqno after the previous snapshot.
pub fn resume(
    from: &ResumePoint,
    log: &FailoverLog,
    high_seqno: Seqno,
    purge_seqno: Seqno,
) -> Resume {
    let ResumePoint { vb_uuid, seqno: start, mut snapshot_start, mut snapshot_end } = *from;
    if snapshot_start > start || start > snapshot_end {
        return Resume::Invalid;
    }
    if start == Seqno::ZERO {
        // An empty consumer shares every history.
        return Resume::Continue;
    }
    if Seqno::ZERO < start && start < purge_seqno {
        return Resume::Rollback(Seqno::ZERO);
    }
    let Some(upper) = log.branch_end(vb_uuid, high_seqno) else {
        return Resume::Rollback(Seqno::ZERO);
    };
    if start == snapshot_start {
        // The consumer has received nothing of the snapshot.
        snapshot_end = start;
    }
    if snapshot_end <= upper {
        return Resume::Continue;
    }
    snapshot_start = if start == snapshot_end {
        // The consumer has received the whole snapshot.
        start
    } else {
        // The snapshot may omit a version because a later one of the same key superseded it, and that later version may
        // not be part of this history.
        Seqno(snapshot_start.0.saturating_sub(1))
    };
    Resume::Rollback(upper.min(snapshot_start))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_types::VbUuid;

    fn ask(vb_uuid: u64, seqno: u64, start: u64, end: u64) -> Resume {
        let log =
            FailoverLog::from_entries(vec![(VbUuid(2), Seqno(80)), (VbUuid(1), Seqno(0))]).unwrap();
        let from = ResumePoint {
            vb_uuid: VbUuid(vb_uuid),
            seqno: Seqno(seqno),
            snapshot_start: Seqno(start),
            snapshot_end: Seqno(end),
        };
        resume(&from, &log, Seqno(100), Seqno(5))
    }

    #[test]
    fn a_consumer_continues_in_a_common_history() {
        assert_eq!(ask(0, 0, 0, 0), Resume::Continue, "a first start");
        assert_eq!(ask(9, 0, 0, 50), Resume::Continue, "a stranger who has nothing yet");
        assert_eq!(ask(2, 100, 90, 100), Resume::Continue);
        assert_eq!(ask(2, 95, 90, 100), Resume::Continue, "within a snapshot");
        assert_eq!(ask(1, 80, 70, 80), Resume::Continue, "at the fork");
        assert_eq!(
            ask(1, 70, 70, 90),
            Resume::Continue,
            "nothing of the snapshot across the fork was received"
        );
    }

    #[test]
    fn a_consumer_rolls_back_to_the_fork_or_its_snapshot() {
        assert_eq!(ask(1, 90, 90, 90), Resume::Rollback(Seqno(80)), "beyond the fork");
        assert_eq!(
            ask(1, 75, 70, 90),
            Resume::Rollback(Seqno(69)),
            "within a snapshot that crosses the fork: the key of 70 may have been told with 85 only"
        );
        assert_eq!(ask(1, 95, 85, 95), Resume::Rollback(Seqno(80)));
        assert_eq!(
            ask(2, 110, 105, 110),
            Resume::Rollback(Seqno(100)),
            "more than the producer has"
        );
    }

    #[test]
    fn consumers_with_unknown_history_or_missed_deletions_start_again() {
        assert_eq!(ask(9, 50, 50, 50), Resume::Rollback(Seqno(0)));
        assert_eq!(ask(1, 3, 3, 3), Resume::Rollback(Seqno(0)), "below the purge seqno");
    }

    #[test]
    fn a_resume_point_outside_its_snapshot_is_invalid() {
        assert_eq!(ask(1, 5, 6, 7), Resume::Invalid);
        assert_eq!(ask(1, 8, 6, 7), Resume::Invalid);
    }
}
