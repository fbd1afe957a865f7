//! How simulated nodes agree: what is true of Raft, without its messages.
//!
//! One order of decisions. A leader decides while a majority reaches it; without one, the others elect another after a
//! while, and for a moment the old one takes itself for the leader still. What was decided is learned by each node later,
//! when the leader reaches it.

use crate::Chance;
use nacre_cluster::orchestrator::Leadership;
use nacre_cluster::{Change, Cluster, NodeChange, Refusal};
use nacre_node::agreement::{Agreement, Proposal};
use nacre_node::{Error, Node};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What is pending is decided after so many meetings, on average.
const LATE_ODDS: u64 = 16;
/// How long the others wait before they elect another, at least and at most.
const ELECTION_NS: (u64, u64) = (600_000_000, 1_500_000_000);

/// See the [module](self).
pub struct Council {
    state: Mutex<State>,
    /// Something was decided since it was looked.
    news: AtomicBool,
}

struct State {
    log: Vec<Proposal>,
    /// Proposed, and not decided yet: before anything else that this leader decides, or with the next election, or never.
    pending: Vec<Proposal>,
    leader: Option<usize>,
    term: u64,
    /// What each node knows of its leading.
    leadership: Vec<Option<Leadership>>,
    /// When another leader is elected, if none reaches a majority until then; 0 if that is not known yet.
    election_at: u64,
    /// Who reaches whom, there and back, at this time.
    reaches: Vec<Vec<bool>>,
    chance: Chance,
    /// A proposal in so many is decided at once or later although its proposer is told otherwise, and then every other one by
    /// which nodes lose their copies, on which most depends; 0 for none.
    lost_answers: u64,
}

impl State {
    fn has_majority(&self, node: usize) -> bool {
        self.reaches[node].iter().filter(|reached| **reached).count() * 2 > self.reaches.len()
    }

    /// Who leads next has some of what is pending, and no more is known of the rest.
    fn succeed(&mut self) -> bool {
        let kept = self.chance.between(0, self.pending.len() as u64) as usize;
        self.pending.truncate(kept);
        self.decide_pending()
    }

    /// What is pending is decided. Says whether there was anything.
    fn decide_pending(&mut self) -> bool {
        let is_news = !self.pending.is_empty();
        self.log.append(&mut self.pending);
        is_news
    }
}

impl Council {
    /// Of so many nodes; the first leads.
    pub fn new(nodes: usize, chance: Chance, lost_answers: u64) -> Arc<Council> {
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
        Arc::new(Council { state: Mutex::new(state), news: AtomicBool::new(false) })
    }

    /// The part of the node `index`.
    pub fn seat(self: &Arc<Council>, index: usize) -> Arc<dyn Agreement> {
        Arc::new(Seat { council: Arc::clone(self), index })
    }

    /// Who leads, as far as anybody does.
    pub fn leader(&self) -> Option<usize> {
        self.state.lock().leader
    }

    /// How many decisions there are.
    pub fn decided(&self) -> u64 {
        self.state.lock().log.len() as u64
    }

    /// All of them but the first `count`, in their order.
    pub fn decisions_after(&self, count: u64) -> Vec<Proposal> {
        self.state.lock().log[count as usize..].to_vec()
    }

    /// It is `now_ns`, and nodes reach each other so. Gives the new leader, if there is one. `knows_ns` gives the monotonic
    /// clock of a node that knows all that was decided.
    pub fn meet(
        &self,
        now_ns: u64,
        reaches: Vec<Vec<bool>>,
        knows_ns: impl Fn(usize) -> Option<u64>,
    ) -> Option<usize> {
        let state = &mut *self.state.lock();
        state.reaches = reaches;
        if let Some(leader) = state.leader.filter(|leader| state.has_majority(*leader)) {
            // Who is started again in its term leads once the end of its log is decided, and it knows that.
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

    /// The leader is to lead no more, which it may hear of late: another is elected, after the usual time or at once.
    pub fn depose(&self) {
        let state = &mut *self.state.lock();
        state.leader = None;
        state.election_at = u64::from(state.chance.once_in(2));
    }

    /// The process of a node has ended: it leads no more.
    pub fn forget(&self, node: usize) {
        self.state.lock().leadership[node] = None;
    }

    fn decide(&self, proposal: &Proposal) -> u64 {
        let mut state = self.state.lock();
        state.log.push(proposal.clone());
        self.news.store(true, Ordering::Release);
        state.log.len() as u64
    }

    /// Whether something was decided since the last call.
    pub fn take_news(&self) -> bool {
        self.news.load(Ordering::Acquire) && self.news.swap(false, Ordering::AcqRel)
    }

    /// Whether the leader reaches a node.
    pub fn teaches(&self, node: usize) -> bool {
        let state = self.state.lock();
        state.leader.is_some_and(|leader| state.has_majority(leader) && state.reaches[leader][node])
    }

    /// Whether something is proposed of which nobody knows whether it is decided.
    pub fn has_pending(&self) -> bool {
        !self.state.lock().pending.is_empty()
    }

    /// Has a node apply at most so many decisions that it has not applied yet; gives what came of the last.
    ///
    /// # Errors
    /// What [`Node::apply`] says of the last.
    pub fn teach(&self, node: &Arc<Node>, count: usize) -> Result<Arc<Cluster>, Error> {
        let applied = Council::applied(node);
        let due: Vec<Proposal> =
            self.state.lock().log.iter().skip(applied as usize).take(count).cloned().collect();
        let mut outcome = Ok(node.cluster());
        for (position, proposal) in (applied + 1..).zip(&due) {
            outcome = node.apply(proposal, Some(&position.to_be_bytes()));
        }
        outcome
    }

    /// Gives a node the state of another one, which knows more.
    ///
    /// # Panics
    /// When the node does not take it.
    pub fn install(from: &Arc<Node>, to: &Arc<Node>) {
        let (has, lacks) = (Council::applied(from), Council::applied(to));
        if has > lacks {
            to.install(&from.agreed(), &has.to_be_bytes()).expect("a state that a node has given");
        }
    }

    /// How many decisions a node has applied.
    ///
    /// # Panics
    /// When the disk of the node cannot be read.
    pub fn applied(node: &Node) -> u64 {
        let position = node.position().expect("disks of this world keep settings");
        let number = |bytes: Vec<u8>| u64::from_be_bytes(bytes.try_into().expect("as written"));
        position.map_or(0, number)
    }
}

/// One node's part in it.
struct Seat {
    council: Arc<Council>,
    index: usize,
}

impl Agreement for Seat {
    fn propose(
        &self,
        node: &Arc<Node>,
        proposal: &Proposal,
        term: Option<u64>,
    ) -> Result<Arc<Cluster>, Error> {
        let unavailable = || Err(Error::Unavailable("nobody leads the nodes".into()));
        let answer_is_lost = {
            let state = &mut *self.council.state.lock();
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
            // Whatever this leader has proposed before is decided before.
            if state.decide_pending() {
                self.council.news.store(true, Ordering::Release);
            }
            let answer_is_lost = state.chance.once_in(odds);
            if answer_is_lost && state.chance.once_in(2) {
                state.pending.push(proposal.clone());
                return unavailable();
            }
            answer_is_lost
        };
        // Nothing may come between this proposal and what came of it.
        self.council.teach(node, usize::MAX).ok();
        let position = self.council.decide(proposal);
        if answer_is_lost {
            return unavailable();
        }
        node.apply(proposal, Some(&position.to_be_bytes()))
    }

    fn leadership(&self, _: u64) -> Option<Leadership> {
        self.council.state.lock().leadership[self.index]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leader_that_is_started_again_leads_once_the_end_of_its_log_is_decided() {
        let council = Council::new(3, Chance::new(1), 0);
        let meet = |now_ns| {
            council.meet(now_ns, vec![vec![true; 3]; 3], |_| Some(now_ns));
            council.state.lock().leadership[0].map(|leadership| leadership.confirmed_ns)
        };
        assert_eq!(meet(1), Some(1));
        council.state.lock().pending.push(Proposal::Change(Change::Nodes(NodeChange::RenewMap)));
        council.forget(0);
        assert_eq!(meet(2), None, "it does not know yet what was decided");
        assert_eq!(council.decided(), 1);
        assert_eq!(meet(3), Some(3));
    }
}
