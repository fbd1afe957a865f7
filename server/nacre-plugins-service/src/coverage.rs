//! The vBuckets covered by the state of a deployment, while vBuckets come to the node and leave it.

use nacre_bucket::Watermarks;
use nacre_types::{Seqno, Vbid, Vbids};
use parking_lot::Mutex;

/// The feed's reports about each vBucket.
#[derive(Debug)]
pub struct Coverage(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    /// Counts the reports of the feed. While the count is unchanged, the state covers the same vBuckets.
    changes: u64,
    /// The seqno that the state must reach before readers may see the vBucket; `None` for vBuckets that should not be
    /// in the state.
    owed: Vec<Option<Seqno>>,
    /// vBuckets that have reached this seqno.
    there: Vbids,
    /// vBuckets that are certainly absent from the state.
    absent: Vbids,
}

/// An observation of a state that covers certain vBuckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Covered {
    changes: u64,
    /// True if the state covers no other vBuckets.
    pub is_exact: bool,
}

impl Coverage {
    /// Creates the coverage of a state without reports from the feed.
    pub fn new(vbucket_count: u16) -> Coverage {
        let owed = vec![None; usize::from(vbucket_count)];
        Coverage(Mutex::new(Known { owed, ..Known::default() }))
    }

    /// Reports that a vBucket enters the state. Readers cannot rely on it yet.
    pub fn enter(&self, vbid: Vbid) {
        let mut known = self.0.lock();
        if known.absent.contains(vbid) {
            known.changes += 1;
            known.absent.remove_all(&[vbid].into_iter().collect());
        }
    }

    /// Reports that a vBucket is in the state and can be read from seqno `owed` on.
    pub fn cover(&self, vbid: Vbid, owed: Seqno) {
        let mut known = self.0.lock();
        known.changes += 1;
        known.owed[vbid.index()] = Some(owed);
        let one = [vbid].into_iter().collect();
        known.there.remove_all(&one);
        known.absent.remove_all(&one);
    }

    /// Reports that a vBucket begins to leave the state.
    pub fn begin_removal(&self, vbid: Vbid) {
        let mut known = self.0.lock();
        if known.owed[vbid.index()].take().is_some() {
            known.changes += 1;
            known.there.remove_all(&[vbid].into_iter().collect());
        }
    }

    /// Reports that a vBucket that [left](Coverage::begin_removal) is completely removed from the state.
    pub fn finish_removal(&self, vbid: Vbid) {
        let mut known = self.0.lock();
        if !known.absent.contains(vbid) {
            known.changes += 1;
            known.absent.insert(vbid);
        }
    }

    /// Returns true if the state should have the vBucket.
    pub fn is_known(&self, vbid: Vbid) -> bool {
        self.0.lock().owed[vbid.index()].is_some()
    }

    /// Returns an observation of the state if it covers all of `vbids` as far as readers may expect.
    pub fn covers(&self, vbids: &Vbids, processed: &Watermarks) -> Option<Covered> {
        let mut known = self.0.lock();
        if !known.there.holds(vbids) {
            for vbid in vbids.iter().filter(|vbid| !known.there.contains(*vbid)).collect::<Vec<_>>()
            {
                let owed = known.owed.get(vbid.index()).copied().flatten()?;
                if processed.get(vbid) < owed {
                    return None;
                }
                known.there.insert(vbid);
            }
        }
        let mut others = Vbids::first(known.owed.len() as u16);
        others.remove_all(vbids);
        Some(Covered { changes: known.changes, is_exact: known.absent.holds(&others) })
    }

    /// Returns true if no vBucket has entered or left since the observation.
    pub fn is_still(&self, covered: Covered) -> bool {
        self.0.lock().changes == covered.changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(vbids: &[u16]) -> Vbids {
        vbids.iter().copied().map(Vbid).collect()
    }

    #[test]
    fn a_vbucket_is_covered_once_all_its_history_is_processed() {
        let (coverage, processed) = (Coverage::new(4), Watermarks::new(4));
        assert_eq!(coverage.covers(&set(&[0]), &processed), None, "nobody has looked");
        coverage.cover(Vbid(0), Seqno::ZERO);
        coverage.cover(Vbid(1), Seqno(7));
        assert!(coverage.covers(&set(&[0]), &processed).is_some());
        assert_eq!(coverage.covers(&set(&[0, 1]), &processed), None);
        processed.raise(Vbid(1), Seqno(7));
        assert!(coverage.covers(&set(&[0, 1]), &processed).is_some());
        assert_eq!(coverage.covers(&set(&[0, 9]), &processed), None, "there is no such vBucket");
    }

    #[test]
    fn a_state_is_exact_once_all_other_vbuckets_are_removed() {
        let (coverage, processed) = (Coverage::new(3), Watermarks::new(3));
        coverage.cover(Vbid(0), Seqno::ZERO);
        coverage.finish_removal(Vbid(1));
        let covered = coverage.covers(&set(&[0]), &processed).unwrap();
        assert!(!covered.is_exact, "of the last nothing is known");
        coverage.finish_removal(Vbid(2));
        assert!(!coverage.is_still(covered));
        let covered = coverage.covers(&set(&[0]), &processed).unwrap();
        assert!(covered.is_exact);
        coverage.finish_removal(Vbid(2));
        assert!(coverage.is_still(covered), "nothing new");
        coverage.enter(Vbid(2));
        let coming = coverage.covers(&set(&[0]), &processed).unwrap();
        assert!(!coming.is_exact && !coverage.is_still(covered), "some of it may be there");
        assert_eq!(coverage.covers(&set(&[0, 2]), &processed), None, "and some of it may not");
        coverage.begin_removal(Vbid(2));
        coverage.finish_removal(Vbid(2));
        coverage.cover(Vbid(1), Seqno::ZERO);
        coverage.begin_removal(Vbid(1));
        let leaving = coverage.covers(&set(&[0]), &processed).unwrap();
        assert!(!leaving.is_exact, "it is still there");
        assert_eq!(coverage.covers(&set(&[0, 1]), &processed), None);
        coverage.finish_removal(Vbid(1));
        let covered = coverage.covers(&set(&[0]), &processed).unwrap();
        assert!(covered.is_exact && !coverage.is_still(leaving));
        coverage.cover(Vbid(2), Seqno::ZERO);
        assert!(!coverage.is_still(covered));
        assert!(!coverage.covers(&set(&[0]), &processed).unwrap().is_exact);
    }
}
