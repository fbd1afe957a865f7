//! Election timeout: this node becomes a candidate once it has received nothing from a leader for a while.
//!
//! Raft has its own timeout, but in ticks of 225 ms. Besides, a node that was ever refused because its log was shorter
//! waits 1.2 s longer from then on: nodes that had once been cut off left the others without a leader for 2.8 s. So the
//! time is measured here, and Raft's own timeout is rarely reached.
//!
//! A node that refuses a candidate for a shorter log becomes a candidate at once. The refused candidate has voted for
//! itself in the same term, and if it has the greater ID no node is elected; then the node tries again in the next
//! term.

use super::types::{Metrics, Raft};
use openraft::ServerState;
use openraft::error::RaftError;
use openraft::raft::{AppendEntriesResponse, VoteRequest, VoteResponse};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Maximum number of consecutive candidacies of a node with a longer log.
const TRIES: usize = 3;
/// Timeout of the other nodes' answers between them.
const ANSWER_PATIENCE: Duration = Duration::from_millis(200);
/// A node that handles its messages this late was suspended: a leader's message may already be in its queue.
const LATE: Duration = Duration::from_millis(100);

/// See the [module](self).
pub struct Election {
    /// The leader's lease: how long after its last message no node votes for another.
    lease: Duration,
    /// Minimum and maximum wait after the lease, in milliseconds. Each node waits for a random time.
    wait_ms: (u64, u64),
    random: Box<dyn Fn() -> u64 + Send + Sync>,
    /// True if the node must not lead.
    is_stepping_down: Arc<AtomicBool>,
    times: Mutex<Times>,
}

struct Times {
    /// The time of the last message of a leader, or of the start.
    last_contact: Instant,
    /// The time to become a candidate.
    due: Instant,
}

impl Election {
    /// Creates the election of a node that starts now. `random` returns any number.
    pub fn new(
        lease: Duration,
        wait_ms: (u64, u64),
        is_stepping_down: Arc<AtomicBool>,
        random: impl Fn() -> u64 + Send + Sync + 'static,
    ) -> Election {
        let now = Instant::now();
        let times = Mutex::new(Times { last_contact: now, due: now + lease });
        Election { lease, wait_ms, random: Box::new(random), is_stepping_down, times }
    }

    /// Restarts the timeout.
    pub fn begin(&self) {
        let last_contact = Instant::now();
        *self.times.lock() = Times { last_contact, due: last_contact + self.lease + self.wait() };
    }

    fn wait(&self) -> Duration {
        let (least, most) = self.wait_ms;
        Duration::from_millis(least + (self.random)() % (most - least + 1))
    }

    /// Handles a message of a leader, given this node's answer to it.
    pub fn receive(&self, answer: &AppendEntriesResponse<u64>) {
        if !matches!(answer, AppendEntriesResponse::HigherVote(_)) {
            self.begin();
        }
    }

    /// Answers a candidate. If no leader is known and the candidate has a shorter log, this node becomes a candidate
    /// itself.
    ///
    /// # Errors
    /// Fails when Raft has ended.
    pub async fn vote(
        &self,
        raft: &Raft,
        request: VoteRequest<u64>,
    ) -> Result<VoteResponse<u64>, RaftError<u64>> {
        let its_log = request.last_log_id;
        let answer = raft.vote(request).await?;
        let is_led = self.times.lock().last_contact.elapsed() <= self.lease;
        if answer.vote_granted {
            self.times.lock().due = Instant::now() + self.wait();
        } else if answer.last_log_id > its_log && !is_led && self.may_campaign() {
            tokio::spawn(campaign(raft.clone()));
        }
        Ok(answer)
    }

    fn may_campaign(&self) -> bool {
        !self.is_stepping_down.load(Ordering::Relaxed)
    }

    /// Becomes a candidate whenever the timeout has passed, until `raft` ends.
    pub async fn run(self: Arc<Self>, raft: Raft) {
        loop {
            let due = self.times.lock().due;
            tokio::time::sleep_until(due.into()).await;
            let (state, is_running) = {
                let metrics = raft.metrics();
                let metrics = metrics.borrow();
                (metrics.state, metrics.running_state.is_ok())
            };
            if !is_running {
                return;
            }
            {
                let mut times = self.times.lock();
                if times.due > Instant::now() {
                    continue;
                }
                times.due = Instant::now() + self.wait();
            }
            let stands = matches!(state, ServerState::Follower | ServerState::Candidate);
            if stands && due.elapsed() < LATE && self.may_campaign() {
                raft.trigger().elect().await.ok();
            }
        }
    }
}

/// Requests votes until there is a leader.
async fn campaign(raft: Raft) {
    for _ in 0..TRIES {
        let before = raft.metrics().borrow().vote;
        if raft.trigger().elect().await.is_err() {
            return;
        }
        let is_over =
            |metrics: &Metrics| metrics.vote > before && metrics.state != ServerState::Candidate;
        let seen = raft.wait(Some(ANSWER_PATIENCE)).metrics(is_over, "it leads, or not").await;
        if seen.is_ok_and(|metrics| metrics.current_leader.is_some()) {
            return;
        }
    }
}
