//! A node's confirmed knowledge of its leadership.

use super::consensus::Consensus;
use super::types::Raft;
use nacre_cluster::orchestrator::Leadership;
use openraft::ServerState;
use parking_lot::Mutex;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Interval at which a leader asks the others whether they still follow it.
const CONFIRM_INTERVAL: Duration = Duration::from_millis(100);
/// Timeout of their answers.
const CONFIRM_PATIENCE: Duration = Duration::from_millis(500);

/// The confirmed leadership of one Raft.
pub(super) type Known = Arc<Mutex<Option<Leadership>>>;

/// The end of the log when the node was first seen to lead in a term.
///
/// A leader that restarts before another is elected continues to lead in its term, with entries at the end of its log
/// that may be undecided. Raft only waits for the first entry of the term, which was applied long ago.
#[derive(Default)]
struct Tail(Option<(u64, Option<u64>)>);

impl Tail {
    /// Records that the node leads in a term, if it does, and that its log ends at `last`.
    fn see(&mut self, leads: Option<u64>, last: Option<u64>) {
        if self.0.map(|(term, _)| term) != leads {
            self.0 = leads.map(|term| (term, last));
        }
    }

    /// Returns true if entries are applied up to the recorded end.
    fn is_applied(&self, applied: Option<u64>) -> bool {
        self.0.is_some_and(|(_, last)| applied >= last)
    }
}

/// Keeps `known` up to date until Raft ends: asks the others while the node believes that it leads. The clock is read
/// after the node was seen to lead and before it asks, because the process may be suspended at any time.
pub(super) async fn confirm(consensus: Weak<Consensus>, raft: Raft, known: Known) {
    let seen = || {
        let metrics = raft.metrics();
        let metrics = metrics.borrow();
        let term = (metrics.state == ServerState::Leader).then_some(metrics.current_term);
        (term, metrics.last_log_index, metrics.last_applied.map(|id| id.index))
    };
    let mut tail = Tail::default();
    while raft.metrics().borrow().running_state.is_ok() {
        let Some(this) = consensus.upgrade() else { return };
        let (leads, last, _) = seen();
        let confirmed_ns = this.node().now().monotonic_ns;
        let leads = leads.filter(|_| !this.is_stepping_down.load(Ordering::Relaxed));
        drop(this);
        tail.see(leads, last);
        let asked =
            leads.map(|_| tokio::time::timeout(CONFIRM_PATIENCE, raft.ensure_linearizable()));
        let is_followed = match asked {
            Some(asked) => matches!(asked.await, Ok(Ok(_))),
            None => false,
        };
        let (still_leads, _, applied) = seen();
        let is_confirmed = is_followed && tail.is_applied(applied);
        let asked =
            leads.filter(|_| still_leads == leads).map(|term| Leadership { term, confirmed_ns });
        {
            let mut known = known.lock();
            *known = after(*known, asked, is_confirmed);
        }
        tokio::time::sleep(CONFIRM_INTERVAL).await;
    }
}

/// Returns the confirmed leadership after asking the others, given the previous one (`known`).
fn after(
    known: Option<Leadership>,
    asked: Option<Leadership>,
    is_confirmed: bool,
) -> Option<Leadership> {
    let asked = asked?;
    // A slow node may answer the next time, so the last confirmation stays valid until it is too old.
    if is_confirmed { Some(asked) } else { known.filter(|known| known.term == asked.term) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_answers_do_not_revoke_earlier_confirmations() {
        let [first, second] = [5, 7].map(|confirmed_ns| Leadership { term: 1, confirmed_ns });
        assert_eq!(after(None, Some(first), true), Some(first));
        assert_eq!(after(Some(first), Some(second), false), Some(first));
        assert_eq!(after(Some(first), Some(second), true), Some(second));
        assert_eq!(after(None, Some(second), false), None);
        let later = Leadership { term: 3, confirmed_ns: 9 };
        assert_eq!(after(Some(second), Some(later), false), None, "others may have led meanwhile");
        assert_eq!(after(Some(second), None, true), None);
    }

    #[test]
    fn a_leader_that_was_started_again_waits_for_the_end_of_its_log() {
        let mut tail = Tail::default();
        tail.see(None, Some(9));
        assert!(!tail.is_applied(Some(9)), "it does not lead");
        tail.see(Some(4), Some(9));
        assert!(!tail.is_applied(None) && !tail.is_applied(Some(7)) && tail.is_applied(Some(9)));
        tail.see(Some(4), Some(12));
        assert!(tail.is_applied(Some(9)), "what it has added itself it knows of");
        tail.see(Some(5), Some(13));
        assert!(!tail.is_applied(Some(12)));
    }
}
