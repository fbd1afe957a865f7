//! The identity of a vBucket's history, and the stored description of a vBucket.

use crate::{Cas, Seqno, VbUuid};
use std::sync::Arc;

/// The role of a vBucket copy on its node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum VbState {
    /// Serves clients and assigns seqnos.
    Active,
    /// Follows the active copy on another node.
    Replica,
    /// Serves no operations, because the vBucket is being handed over or is in doubt: operations wait.
    Pending,
    /// Has no role on this node.
    #[default]
    Dead,
}

/// The branches of a vBucket's history: the seqnos that were assigned under each UUID.
///
/// Entries are ordered from newest to oldest; each is a UUID and the seqno at which its branch began. A consumer that
/// stopped at seqno 90 under UUID `a` shares everything up to 80 with the log `[(b, 80), (a, 0)]`, and must roll back
/// to 80.
///
/// Invariants: never empty; UUIDs are not 0; seqnos do not increase from newest to oldest; at most
/// [`FailoverLog::ENTRIES_MAX`] entries.
///
/// The entries are shared until they change, because each commit contains a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailoverLog {
    /// The first entry. Each write needs it, so it is stored inline.
    current: (VbUuid, Seqno),
    entries: Arc<Vec<(VbUuid, Seqno)>>,
}

impl FailoverLog {
    /// Maximum number of branches; the oldest is dropped first.
    pub const ENTRIES_MAX: usize = 25;

    /// Creates the log of a vBucket without history.
    pub fn new(vb_uuid: VbUuid) -> FailoverLog {
        let current = (vb_uuid, Seqno::ZERO);
        FailoverLog { current, entries: Arc::new(vec![current]) }
    }

    /// Creates a log from stored entries, newest first; `None` if they violate an invariant.
    pub fn from_entries(entries: Vec<(VbUuid, Seqno)>) -> Option<FailoverLog> {
        let ordered = entries.windows(2).all(|pair| pair[0].1 >= pair[1].1);
        let named = entries.iter().all(|(vb_uuid, _)| vb_uuid.0 != 0);
        (ordered && named && !entries.is_empty() && entries.len() <= Self::ENTRIES_MAX)
            .then(|| FailoverLog { current: entries[0], entries: Arc::new(entries) })
    }

    /// Begins a new branch at `seqno`. Branches that began above it are removed from the log.
    pub fn begin(&mut self, vb_uuid: VbUuid, seqno: Seqno) {
        let entries = Arc::make_mut(&mut self.entries);
        entries.retain(|(_, began)| *began <= seqno);
        self.current = (vb_uuid, seqno);
        entries.insert(0, self.current);
        entries.truncate(Self::ENTRIES_MAX);
    }

    /// Returns the entries, newest first.
    pub fn entries(&self) -> &[(VbUuid, Seqno)] {
        &self.entries
    }

    /// Returns the seqno at which the current branch began.
    pub fn began(&self) -> Seqno {
        self.current.1
    }

    /// Returns the branch under which new seqnos are assigned.
    pub fn current(&self) -> VbUuid {
        self.current.0
    }

    /// Returns the last seqno of `vb_uuid`'s branch, given that the history now ends at `high_seqno`; `None` for an
    /// unknown UUID.
    pub fn branch_end(&self, vb_uuid: VbUuid, high_seqno: Seqno) -> Option<Seqno> {
        let index = self.entries.iter().position(|(known, _)| *known == vb_uuid)?;
        Some(if index == 0 { high_seqno } else { self.entries[index - 1].1 })
    }
}

/// Description of a vBucket, stored in the same atomic batch as the documents it describes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VbRecord {
    /// The role of this copy.
    pub state: VbState,
    /// The branches of its history.
    pub failover_log: FailoverLog,
    /// The last term for which this copy is complete: it has everything up to the beginning of that term.
    pub term: u64,
    /// The last stored seqno.
    pub high_seqno: Seqno,
    /// The snapshot that contains this seqno. A replica is consistent only at the end of a snapshot. Both are the high
    /// seqno if no snapshot is incomplete.
    pub snapshot: (Seqno, Seqno),
    /// The greatest seqno of a purged tombstone; [`Seqno::ZERO`] if there is none. A consumer at a lower seqno may have
    /// missed a deletion.
    pub purge_seqno: Seqno,
    /// The greatest revision of a purged tombstone. Keys that are written again continue from this revision.
    pub purged_rev: u64,
    /// The greatest CAS ever assigned or received.
    pub max_cas: Cas,
    /// Number of stored documents including tombstones. Recovery uses it to detect missing ones.
    pub document_count: u64,
    /// Seqno from which superseded versions are kept, in collections that keep history; `None` if none are kept.
    pub history_start: Option<Seqno>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(entries: &[(u64, u64)]) -> Option<FailoverLog> {
        FailoverLog::from_entries(entries.iter().map(|&(u, s)| (VbUuid(u), Seqno(s))).collect())
    }

    #[test]
    fn a_branch_ends_where_the_next_began() {
        let mut log = FailoverLog::new(VbUuid(1));
        log.begin(VbUuid(2), Seqno(80));
        assert_eq!(log.branch_end(VbUuid(2), Seqno(95)), Some(Seqno(95)));
        assert_eq!(log.branch_end(VbUuid(1), Seqno(95)), Some(Seqno(80)));
        assert_eq!(log.branch_end(VbUuid(9), Seqno(95)), None);
    }

    #[test]
    fn beginning_below_an_entry_forgets_it() {
        let mut log = log(&[(3, 90), (2, 50), (1, 0)]).unwrap();
        log.begin(VbUuid(4), Seqno(60));
        assert_eq!(log, self::log(&[(4, 60), (2, 50), (1, 0)]).unwrap());
    }

    #[test]
    fn only_the_newest_branches_are_kept() {
        let mut log = FailoverLog::new(VbUuid(1));
        (2..60).for_each(|n| log.begin(VbUuid(n), Seqno(n)));
        assert_eq!(log.entries().len(), FailoverLog::ENTRIES_MAX);
        assert_eq!(log.current(), VbUuid(59));
    }

    #[test]
    fn stored_entries_that_break_an_invariant_are_refused() {
        assert_eq!(log(&[]), None);
        assert_eq!(log(&[(0, 5)]), None);
        assert_eq!(log(&[(1, 5), (2, 9)]), None);
    }
}
