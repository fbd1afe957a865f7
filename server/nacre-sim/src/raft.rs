//! Agreement of simulated nodes: equivalent to Raft, without its messages.
//!
//! There is one sequence of decisions. A leader decides while a majority reaches it. Otherwise the others elect another
//! one after a while, and for a moment the old one still considers itself the leader. Each node learns the decisions
//! later, when the leader reaches it.

use crate::Chance;
use nacre_cluster::orchestrator::Leadership;
use nacre_cluster::{Change, Cluster, NodeChange, Refusal};
use nacre_node::agreement::{Agreement, Proposal};
use nacre_node::{Error, Node};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Average number of meetings after which pending proposals are decided.
const LATE_ODDS: u64 = 16;
/// Minimum and maximum time until another leader is elected, in nanoseconds.
const ELECTION_NS: (u64, u64) = (600_000_000, 1_500_000_000);

/// See the [module](self).
pub struct SimulatedRaft {
    state: Mutex<State>,
    /// True if something was decided since the last check.
    news: AtomicBool,
}

struct State {
    log: Vec<Proposal>,
    /// Proposals with an unknown outcome. They are decided before the leader's next decision, at the next election, or
    /// never.
    pending: Vec<Proposal>,
    leader: Option<usize>,
    term: u64,
    /// Each node's knowledge of its leadership.
    leadership: Vec<Option<Leadership>>,
    /// Time at which another leader is elected if none reaches a majority until then; 0 if undetermined.
    election_at: u64,
    /// Which nodes currently reach each other, in both directions.
    reaches: Vec<Vec<bool>>,
    chance: Chance,
    /// One proposal in this many is decided, at once or later, although its proposer is told otherwise; and then every other
    /// proposal that removes copies, because most depends on those. 0 for none.
    lost_answers: u64,
}

impl State {
    fn has_majority(&self, node: usize) -> bool {
        self.reaches[node].iter().filter(|reached| **reached).count() * 2 > self.reaches.len()
    }

    /// The next leader has a prefix of the pending proposals; the others are dropped.
    fn succeed(&mut self) -> bool {
        let kept = self.chance.between(0, self.pending.len() as u64) as usize;
        self.pending.truncate(kept);
        self.decide_pending()
    }

    /// Decides the pending proposals. Returns true if there were any.
    fn decide_pending(&mut self) -> bool {
        let is_news = !self.pending.is_empty();
        self.log.append(&mut self.pending);
        is_news
    }
}

impl SimulatedRaft {
    /// Creates the agreement of this many nodes; the first one leads.
    pub fn new(nodes: usize, chance: Chance, lost_answers: u64) -> Arc<SimulatedRaft> {
        let state = State {
            log: Vec::new(),
            pending: Vec::new(),
            leader: Some(0),
            term: 1,
            leadership: vec![None; nodes],
            election_at: 0,
            reaches: vec![vec![true; nodes]; nodes],
            chance,
            lost_answers,
        };
        Arc::new(SimulatedRaft { state: Mutex::new(state), news: AtomicBool::new(false) })
    }

    /// Returns the agreement of node `index`.
    pub fn agreement(self: &Arc<SimulatedRaft>, index: usize) -> Arc<dyn Agreement> {
        Arc::new(SimulatedAgreement { raft: Arc::clone(self), index })
    }

    /// Returns the leader, if there is one.
    pub fn leader(&self) -> Option<usize> {
        self.state.lock().leader
    }

    /// Returns the number of decisions.
    pub fn decided(&self) -> u64 {
        self.state.lock().log.len() as u64
    }

    /// Returns all decisions after the first `count`, in order.
    pub fn decisions_after(&self, count: u64) -> Vec<Proposal> {
        self.state.lock().log[count as usize..].to_vec()
    }

    /// Holds a meeting at `now_ns` with this connectivity. Returns the new leader, if one was elected. `knows_ns` returns
    /// the monotonic clock of a node that knows all decisions.
    pub fn hold_elections(
        &self,
        now_ns: u64,
        reaches: Vec<Vec<bool>>,
        knows_ns: impl Fn(usize) -> Option<u64>,
    ) -> Option<usize> {
        let state = &mut *self.state.lock();
        state.reaches = reaches;
        if let Some(leader) = state.leader.filter(|leader| state.has_majority(*leader)) {
            // A leader that restarts in its term leads once the end of its log is decided and it knows that.
            if state.leadership[leader].is_none() && state.decide_pending() {
                self.news.store(true, Ordering::Release);
            } else if let Some(confirmed_ns) = knows_ns(leader) {
                let term = state.term;
                state.leadership[leader] = Some(Leadership { term, confirmed_ns });
            }
            state.election_at = 0;
            if state.chance.once_in(LATE_ODDS) && state.decide_pending() {
                self.news.store(true, Ordering::Release);
            }
            return None;
        }
        if state.election_at == 0 {
            let (low, high) = ELECTION_NS;
            state.election_at = now_ns + state.chance.between(low, high);
        }
        if now_ns < state.election_at {
            return None;
        }
        state.election_at = 0;
        let able: Vec<usize> =
            (0..state.reaches.len()).filter(|node| state.has_majority(*node)).collect();
        state.leader = (!able.is_empty()).then(|| state.chance.one_of(&able));
        state.term += 1;
        if state.leader.is_some() && state.succeed() {
            self.news.store(true, Ordering::Release);
        }
        state.leader
    }

    /// Deposes the leader, which may notice it late. Another one is elected at once or after the usual time.
    pub fn depose(&self) {
        let state = &mut *self.state.lock();
        state.leader = None;
        state.election_at = u64::from(state.chance.once_in(2));
    }

    /// Records that the process of a node has ended: it no longer leads.
    pub fn forget(&self, node: usize) {
        self.state.lock().leadership[node] = None;
    }

    fn decide(&self, proposal: &Proposal) -> u64 {
        let mut state = self.state.lock();
        state.log.push(proposal.clone());
        self.news.store(true, Ordering::Release);
        state.log.len() as u64
    }

    /// Returns true if something was decided since the last call.
    pub fn take_news(&self) -> bool {
        self.news.load(Ordering::Acquire) && self.news.swap(false, Ordering::AcqRel)
    }

    /// Returns true if the leader reaches a node.
    pub fn leader_reaches(&self, node: usize) -> bool {
        let state = self.state.lock();
        state.leader.is_some_and(|leader| state.has_majority(leader) && state.reaches[leader][node])
    }

    /// Returns true if a proposal has an unknown outcome.
    pub fn has_pending(&self) -> bool {
        !self.state.lock().pending.is_empty()
    }

    /// Lets a node apply up to `count` decisions. Returns the outcome of the last one.
    ///
    /// # Errors
    /// The error of [`Node::apply`] for the last decision.
    pub fn deliver(&self, node: &Arc<Node>, count: usize) -> Result<Arc<Cluster>, Error> {
        let applied = SimulatedRaft::applied(node);
        let due: Vec<Proposal> =
            self.state.lock().log.iter().skip(applied as usize).take(count).cloned().collect();
        let mut outcome = Ok(node.cluster());
        for (position, proposal) in (applied + 1..).zip(&due) {
            outcome = node.apply(proposal, Some(&position.to_be_bytes()));
        }
        outcome
    }

    /// Copies the state of a node to another one that lags behind.
    ///
    /// # Panics
    /// Panics if the node refuses the state.
    pub fn install(from: &Arc<Node>, to: &Arc<Node>) {
        let (has, lacks) = (SimulatedRaft::applied(from), SimulatedRaft::applied(to));
        if has > lacks {
            to.install(&from.agreed(), &has.to_be_bytes()).expect("a state that a node has given");
        }
    }

    /// Returns the number of decisions that a node has applied.
    ///
    /// # Panics
    /// Panics if the disk of the node cannot be read.
    pub fn applied(node: &Node) -> u64 {
        let position = node.position().expect("disks of this world keep settings");
        let number = |bytes: Vec<u8>| u64::from_be_bytes(bytes.try_into().expect("as written"));
        position.map_or(0, number)
    }
}

/// The agreement of one node.
struct SimulatedAgreement {
    raft: Arc<SimulatedRaft>,
    index: usize,
}

impl Agreement for SimulatedAgreement {
    fn propose(
        &self,
        node: &Arc<Node>,
        proposal: &Proposal,
        term: Option<u64>,
    ) -> Result<Arc<Cluster>, Error> {
        let unavailable = || Err(Error::Unavailable("nobody leads the nodes".into()));
        let answer_is_lost = {
            let state = &mut *self.raft.state.lock();
            let Some(leader) = state.leader else { return unavailable() };
            if !state.has_majority(leader) || !state.reaches[leader][self.index] {
                return unavailable();
            }
            if term.is_some_and(|term| term != state.term) {
                return Err(Error::Refused(Refusal::LedByAnother));
            }
            let odds =
                match proposal {
                    Proposal::Change(Change::Nodes(NodeChange::MoveCopies {
                        memberships, ..
                    })) if !memberships.is_empty() => state.lost_answers.min(2),
                    _ => state.lost_answers,
                };
            // Earlier proposals of this leader are decided first.
            if state.decide_pending() {
                self.raft.news.store(true, Ordering::Release);
            }
            let answer_is_lost = state.chance.once_in(odds);
            if answer_is_lost && state.chance.once_in(2) {
                state.pending.push(proposal.clone());
                return unavailable();
            }
            answer_is_lost
        };
        // The node must have applied all decisions before this proposal, so that nothing comes between.
        self.raft.deliver(node, usize::MAX).ok();
        let position = self.raft.decide(proposal);
        if answer_is_lost {
            return unavailable();
        }
        node.apply(proposal, Some(&position.to_be_bytes()))
    }

    fn leadership(&self, _: u64) -> Option<Leadership> {
        self.raft.state.lock().leadership[self.index]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leader_that_is_started_again_leads_once_the_end_of_its_log_is_decided() {
        let raft = SimulatedRaft::new(3, Chance::new(1), 0);
        let meet = |now_ns| {
            raft.hold_elections(now_ns, vec![vec![true; 3]; 3], |_| Some(now_ns));
            raft.state.lock().leadership[0].map(|leadership| leadership.confirmed_ns)
        };
        assert_eq!(meet(1), Some(1));
        raft.state.lock().pending.push(Proposal::Change(Change::Nodes(NodeChange::RenewMap)));
        raft.forget(0);
        assert_eq!(meet(2), None, "it does not know yet what was decided");
        assert_eq!(raft.decided(), 1);
        assert_eq!(meet(3), Some(3));
    }
}
