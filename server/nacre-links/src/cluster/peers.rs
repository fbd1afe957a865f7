//! Links to the other nodes: one connection to each, which is re-established when it breaks.
//!
//! A link has a queue for requests and one for messages; requests go first. A message that finds its queue full is
//! dropped and counted. Without a connection, requests fail at once or at their deadline, and messages wait.

use super::directory::Directory;
use super::frame::{self, Frame, Kind};
use super::link::{self, Lane};
use super::request::Caller;
use nacre_node::{PeerError, ReplyCallback};
use nacre_types::NodeId;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::runtime::Handle;
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::task::AbortHandle;
use tokio::time::timeout;

/// Capacity of the queue of requests.
const CALLS_MAX: usize = 256;
/// Capacity of the queue of messages.
const MESSAGES_MAX: usize = 4096;
/// Timeout of opening a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// How long a request waits for a broken connection; after that, a search for the leader tries another node.
const DOWN_PATIENCE: Duration = Duration::from_millis(300);
/// Minimum and maximum pause after a failed connection attempt.
const PAUSE: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));
/// Interval of the signs of life.
const SIGN_OF_LIFE: Duration = Duration::from_secs(1);

/// The reason why a request has no answer.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The request did not leave this node.
    #[error("{0}")]
    NotSent(String),
    /// The request may have been carried out.
    #[error("{0}")]
    Lost(String),
}

/// The links to all other nodes.
pub struct Peers {
    directory: Arc<Directory>,
    lane: Lane,
    runtime: Handle,
    links: Mutex<BTreeMap<NodeId, Link>>,
    dropped: AtomicU64,
}

struct Link {
    calls: mpsc::Sender<Call>,
    messages: mpsc::Sender<Vec<u8>>,
    connected: watch::Receiver<bool>,
    /// Triggers the next connection attempt at once.
    nudge: Arc<Notify>,
    task: AbortHandle,
}

struct Call {
    kind: Kind,
    payload: Vec<u8>,
    answer: oneshot::Sender<Result<Vec<u8>, CallError>>,
}

/// The unanswered requests of a connection.
type Pending = Mutex<BTreeMap<u64, oneshot::Sender<Result<Vec<u8>, CallError>>>>;

impl Peers {
    /// Creates links for one purpose, on `runtime`.
    pub fn new(directory: &Arc<Directory>, lane: Lane, runtime: Handle) -> Arc<Peers> {
        let (directory, links) = (Arc::clone(directory), Mutex::default());
        let peers = Peers { directory, lane, runtime, links, dropped: AtomicU64::new(0) };
        let peers = Arc::new(peers);
        peers.runtime.spawn(send_heartbeats(Arc::clone(&peers)));
        peers
    }

    /// Returns the directory of the nodes.
    pub fn directory(&self) -> &Directory {
        &self.directory
    }

    /// Returns a sender of requests to other nodes.
    pub(super) fn caller(&self) -> Caller<'_> {
        Caller { runtime: &self.runtime, key: self.directory.key() }
    }

    /// Closes all links, because this node or its cluster has changed.
    pub fn reset(&self) {
        std::mem::take(&mut *self.links.lock()).into_values().for_each(|link| link.task.abort());
    }

    /// Closes the links to nodes that have left.
    fn close_obsolete_links(&self) {
        let others = self.directory.others();
        self.links.lock().retain(|id, link| {
            let stays = others.contains(id);
            if !stays {
                link.task.abort();
            }
            stays
        });
    }

    fn with_link<T>(&self, to: NodeId, use_it: impl FnOnce(&Link) -> T) -> T {
        let mut links = self.links.lock();
        use_it(links.entry(to).or_insert_with(|| self.link(to)))
    }

    fn link(&self, to: NodeId) -> Link {
        let (calls, called) = mpsc::channel(CALLS_MAX);
        let (messages, sent) = mpsc::channel(MESSAGES_MAX);
        let (connecting, connected) = watch::channel(false);
        let queues = Queues { calls: called, messages: sent };
        let (directory, nudge) = (Arc::clone(&self.directory), Arc::<Notify>::default());
        let retry = Retry::new(Arc::clone(&nudge));
        let task = self.runtime.spawn(maintain_connection(
            directory,
            (to, self.lane),
            queues,
            connecting,
            retry,
        ));
        Link { calls, messages, connected, nudge, task: task.abort_handle() }
    }

    /// Reports that the other node is alive: a broken link is retried at once.
    pub fn found(&self, to: NodeId) {
        self.with_link(to, |link| {
            if !*link.connected.borrow() {
                link.nudge.notify_one();
            }
        });
    }

    /// Sends a message; drops it when the queue is full.
    pub fn send(&self, to: NodeId, message: Vec<u8>) {
        let sent = self.with_link(to, |link| link.messages.try_send(message));
        if sent.is_err() {
            let dropped = self.dropped.fetch_add(1, Ordering::Relaxed) + 1;
            if dropped.is_power_of_two() {
                tracing::warn!(
                    "{dropped} messages to other nodes were dropped so far: too many wait"
                );
            }
        }
    }

    /// Sends a question. `on_reply` receives the answer.
    pub fn ask(
        self: &Arc<Self>,
        to: NodeId,
        question: Vec<u8>,
        patience: Duration,
        on_reply: ReplyCallback,
    ) {
        let peers = Arc::clone(self);
        self.runtime.spawn(async move {
            let answered = peers.call(to, Kind::Ask, question, patience).await;
            on_reply(answered.map_err(|error| match error {
                CallError::NotSent(why) => PeerError::NotAsked(why),
                CallError::Lost(why) => PeerError::Lost(why),
            }));
        });
    }

    /// Sends a request and waits for its answer, at most for `patience`.
    ///
    /// # Errors
    /// `CallError`.
    pub async fn call(
        &self,
        to: NodeId,
        kind: Kind,
        payload: Vec<u8>,
        patience: Duration,
    ) -> Result<Vec<u8>, CallError> {
        let (calls, mut connected) =
            self.with_link(to, |link| (link.calls.clone(), link.connected.clone()));
        let up =
            timeout(patience.min(DOWN_PATIENCE), connected.wait_for(|connected| *connected)).await;
        if !matches!(up, Ok(Ok(_))) {
            return Err(CallError::NotSent(format!("there is no connection to {to}")));
        }
        drop(up);
        let (answer, answered) = oneshot::channel();
        calls
            .try_send(Call { kind, payload, answer })
            .map_err(|_| CallError::NotSent(format!("too many requests to {to} wait")))?;
        match timeout(patience, answered).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(CallError::Lost(format!("the connection to {to} broke"))),
            Err(_) => Err(CallError::Lost(format!("{to} did not answer in {patience:?}"))),
        }
    }
}

async fn send_heartbeats(peers: Arc<Peers>) {
    let mut ticks = tokio::time::interval(SIGN_OF_LIFE);
    loop {
        ticks.tick().await;
        peers.close_obsolete_links();
        for id in peers.directory.others() {
            // One queued sign of life is enough.
            let idle = |link: &Link| link.messages.capacity() == MESSAGES_MAX;
            if peers.with_link(id, idle) {
                peers.send(id, Vec::new());
            }
        }
    }
}

/// The back-off of connection attempts.
struct Retry {
    pause: Duration,
    /// Ends the pause early.
    nudge: Arc<Notify>,
}

impl Retry {
    fn new(nudge: Arc<Notify>) -> Retry {
        Retry { pause: PAUSE.0, nudge }
    }

    /// Resets the pause after a successful connection.
    fn reset(&mut self) {
        self.pause = PAUSE.0;
    }

    /// Waits for the current pause, which grows, unless a nudge has arrived since the last wait.
    async fn wait(&mut self) {
        match timeout(self.pause, self.nudge.notified()).await {
            Ok(()) => self.reset(),
            Err(_) => self.pause = (self.pause * 2).min(PAUSE.1),
        }
    }
}

struct Queues {
    calls: mpsc::Receiver<Call>,
    messages: mpsc::Receiver<Vec<u8>>,
}

/// Maintains the connection to a node while the link exists.
async fn maintain_connection(
    directory: Arc<Directory>,
    (to, lane): (NodeId, Lane),
    mut queues: Queues,
    connected: watch::Sender<bool>,
    mut retry: Retry,
) {
    let mut last_error = String::new();
    loop {
        let made = timeout(CONNECT_TIMEOUT, link::connect(&directory, to, lane)).await;
        match made.unwrap_or_else(|_| Err("there is no answer".into())) {
            Ok(stream) => {
                tracing::debug!("connected to {to}");
                retry.reset();
                last_error.clear();
                connected.send_replace(true);
                let broken = converse(stream, &mut queues).await;
                connected.send_replace(false);
                tracing::debug!("the connection to {to} broke: {broken}");
            }
            Err(reason) => {
                if last_error != reason {
                    tracing::warn!("cannot reach {to}: {reason}");
                    last_error = reason;
                }
            }
        }
        while let Ok(call) = queues.calls.try_recv() {
            let lost = CallError::NotSent(format!("there is no connection to {to}"));
            let _ = call.answer.send(Err(lost));
        }
        retry.wait().await;
    }
}

/// Sends queued frames and delivers answers until the connection breaks. Returns the reason.
async fn converse(stream: impl AsyncRead + AsyncWrite, queues: &mut Queues) -> String {
    let (mut reader, mut writer) = tokio::io::split(stream);
    // Dropped at the end, which fails the waiting requests.
    let pending = Pending::default();
    let reading = async {
        loop {
            match frame::read(&mut reader).await {
                Ok(Some(frame)) => answered(&pending, frame),
                Ok(None) => return "it was closed".to_owned(),
                Err(error) => return error.to_string(),
            }
        }
    };
    let writing = async {
        let mut last_id = 0;
        loop {
            let frame = tokio::select! {
                biased;
                Some(Call { kind, payload, answer }) = queues.calls.recv() => {
                    last_id += 1;
                    let mut pending = pending.lock();
                    // Callers that have given up need no answer.
                    pending.retain(|_, answer| !answer.is_closed());
                    pending.insert(last_id, answer);
                    Frame { kind, id: last_id, payload }
                }
                Some(payload) = queues.messages.recv() => Frame { kind: Kind::Message, id: 0, payload },
                else => return "it is not needed any more".to_owned(),
            };
            if let Err(error) = frame::write(&mut writer, &frame).await {
                return error.to_string();
            }
        }
    };
    tokio::select! {
        reason = reading => reason,
        reason = writing => reason,
    }
}

fn answered(pending: &Pending, frame: Frame) {
    let Some(waiting) = pending.lock().remove(&frame.id) else { return };
    let answer = match frame.kind {
        Kind::Answer => Ok(frame.payload),
        _ => Err(CallError::Lost(String::from_utf8_lossy(&frame.payload).into_owned())),
    };
    // Fails if the caller has given up.
    let _ = waiting.send(answer);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_node_that_was_found_is_tried_at_once() {
        let mut retry = Retry::new(Arc::default());
        retry.pause = Duration::from_secs(3600);
        retry.nudge.notify_one();
        retry.wait().await;
        assert_eq!(retry.pause, PAUSE.0);
        retry.wait().await;
        assert_eq!(retry.pause, PAUSE.0 * 2);
    }
}
