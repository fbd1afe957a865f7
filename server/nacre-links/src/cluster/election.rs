//! The time at which this node stands for leader: once it has heard no leader for a while.
//!
//! Raft counts the time, too, but in ticks of 225 ms; and a node that was ever refused because its log was shorter
//! waits for 1.2 s more the next time, however long ago that was: nodes that had been cut off once left the others
//! without a leader for 2.8 s. So the time is counted here, and Raft's own timeout is seldom reached.
//!
//! A node that refuses a candidate because its log is shorter stands at once. The candidate has voted for itself in the
//! same term, and if it has the greater number no node is elected; so the node stands again in the next term.

use super::types::{Metrics, Raft};
use openraft::ServerState;
use openraft::error::RaftError;
use openraft::raft::{AppendEntriesResponse, VoteRequest, VoteResponse};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How often a node with a longer log stands in a row.
const TRIES: usize = 3;
/// How long the other nodes may take to answer meanwhile.
const ANSWER_PATIENCE: Duration = Duration::from_millis(200);
/// A node that is this late with looking at its messages was suspended: it may only have to read them.
const LATE: Duration = Duration::from_millis(100);

/// See the [module](self).
pub struct Election {
    /// How long after a leader's message no node votes for another one.
    lease: Duration,
    /// Shortest and longest wait after that, in milliseconds. The time of each node is random.
    wait_ms: (u64, u64),
    random: Box<dyn Fn() -> u64 + Send + Sync>,
    /// True if the node is not to lead.
    abdicates: Arc<AtomicBool>,
    times: Mutex<Times>,
}

struct Times {
    /// When a leader was heard last, or this began.
    heard: Instant,
    /// When to stand.
    due: Instant,
}

impl Election {
    /// Creates the election of a node that starts now. `random`: any number.
    pub fn new(
        lease: Duration,
        wait_ms: (u64, u64),
        abdicates: Arc<AtomicBool>,
        random: impl Fn() -> u64 + Send + Sync + 'static,
    ) -> Election {
        let now = Instant::now();
        let times = Mutex::new(Times { heard: now, due: now + lease });
        Election { lease, wait_ms, random: Box::new(random), abdicates, times }
    }

    /// Waits for a leader from now on.
    pub fn begin(&self) {
        let heard = Instant::now();
        *self.times.lock() = Times { heard, due: heard + self.lease + self.wait() };
    }

    fn wait(&self) -> Duration {
        let (least, most) = self.wait_ms;
        Duration::from_millis(least + (self.random)() % (most - least + 1))
    }

    /// A leader has said something, to which this is the answer.
    pub fn hear(&self, answer: &AppendEntriesResponse<u64>) {
        if !matches!(answer, AppendEntriesResponse::HigherVote(_)) {
            self.begin();
        }
    }

    /// Answers a candidate. If it refuses the candidate for a shorter log, while no leader is heard, it stands itself.
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
        let is_led = self.times.lock().heard.elapsed() <= self.lease;
        if answer.vote_granted {
            self.times.lock().due = Instant::now() + self.wait();
        } else if answer.last_log_id > its_log && !is_led && self.may_stand() {
            tokio::spawn(stand(raft.clone()));
        }
        Ok(answer)
    }

    fn may_stand(&self) -> bool {
        !self.abdicates.load(Ordering::Relaxed)
    }

    /// Stands whenever it is time to, until `raft` ends.
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
            if stands && due.elapsed() < LATE && self.may_stand() {
                raft.trigger().elect().await.ok();
            }
        }
    }
}

/// Asks for votes until somebody leads.
async fn stand(raft: Raft) {
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
