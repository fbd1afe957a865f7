//! Who is refused as the next leader, since its log is shorter, is answered by a better one that stands at once.
//!
//! Raft has the better one wait for its own time. What it asks for then is what the other one has voted for itself in the
//! same term, and where that has the greater number it is refused as well, and waits again: documents of a leader that is gone
//! would not be served for a second longer.

use super::types::{Metrics, Raft};
use openraft::ServerState;
use openraft::error::RaftError;
use openraft::raft::{AppendEntriesResponse, VoteRequest, VoteResponse};
use parking_lot::Mutex;
use std::time::{Duration, Instant};

/// How often the better one stands: the first time may be in a term in which the other has voted for itself.
const TRIES: usize = 3;
/// How long the others may take to answer.
const ANSWER_PATIENCE: Duration = Duration::from_millis(200);

/// When a leader was heard here last.
#[derive(Default)]
pub struct Led(Mutex<Option<Instant>>);

impl Led {
    /// This was said to what somebody sent as the leader.
    pub fn note(&self, answer: &AppendEntriesResponse<u64>) {
        if !matches!(answer, AppendEntriesResponse::HigherVote(_)) {
            *self.0.lock() = Some(Instant::now());
        }
    }

    /// Whether there was none for longer than `patience`.
    fn is_silent(&self, patience: Duration) -> bool {
        self.0.lock().is_none_or(|heard| heard.elapsed() > patience)
    }
}

/// Answers who wants to lead; and stands where it is refused for its log alone, as no leader was heard for longer than `lease`.
///
/// # Errors
/// That Raft has ended.
pub async fn vote(
    raft: &Raft,
    led: &Led,
    lease: Duration,
    request: VoteRequest<u64>,
) -> Result<VoteResponse<u64>, RaftError<u64>> {
    let its_log = request.last_log_id;
    let answer = raft.vote(request).await?;
    if !answer.vote_granted && answer.last_log_id > its_log && led.is_silent(lease) {
        tokio::spawn(stand(raft.clone()));
    }
    Ok(answer)
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
