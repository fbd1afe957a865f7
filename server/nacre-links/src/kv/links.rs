//! Encrypted connections to the key-value ports of other nodes, for the node's links. One thread with an event loop serves them.

use crate::tls::{NodeKey, Purpose};
use crate::vital::depend_on_this_thread;
use nacre_bucket::Waiter;
use nacre_cluster::{Endpoints, Fingerprint};
use nacre_node::Link;
use nacre_types::Now;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Timeout of opening a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Pause before a lost or refused connection is retried.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);
/// Maximum number of doublings of the pause, which reaches seconds.
const DOUBLINGS_MAX: u32 = 6;
/// Size of a read.
const READ_BYTES: usize = 256 << 10;

/// Wakes the task of a link.
#[derive(Default)]
struct Wakeup(Notify);

impl Waiter for Wakeup {
    fn wake(&self) {
        self.0.notify_one();
    }
}

/// The thread shared by all links of a process.
pub struct Links {
    runtime: Handle,
    key: Arc<NodeKey>,
}

impl Links {
    /// Starts the thread, which ends with the process. `key` is presented to other nodes.
    pub fn start(key: &Arc<NodeKey>) -> Links {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("the machine has room for an event loop");
        let handle = runtime.handle().clone();
        let run = move || {
            depend_on_this_thread();
            runtime.block_on(std::future::pending::<()>());
        };
        let thread = std::thread::Builder::new().name("links".into()).spawn(run);
        thread.expect("the machine has room for another thread");
        Links { runtime: handle, key: Arc::clone(key) }
    }

    /// Keeps `link` connected to the TLS key-value port of `peer` until it is over. `now` reads the clocks.
    pub fn run(
        &self,
        peer: &Endpoints,
        mut link: Box<dyn Link>,
        now: impl Fn() -> Now + Send + Sync + 'static,
    ) {
        let target = target(peer);
        let key = Arc::clone(&self.key);
        self.runtime.spawn(async move {
            let wakeup = Arc::new(Wakeup::default());
            link.attach(Arc::clone(&wakeup) as _);
            let mut refusals = Refusals::default();
            while !link.is_over() {
                match connect(&key, target.as_ref()).await {
                    Ok(stream) => {
                        let begun = Instant::now();
                        let end = talk(stream, &mut *link, &wakeup, &now).await;
                        tracing::debug!("a replication connection has ended: {end}");
                        if let Some(reason) = refusals.note(end, begun.elapsed()) {
                            tracing::warn!("cannot follow another node: {reason}");
                        }
                        link.lost();
                    }
                    Err(reason) => tracing::debug!("cannot copy from another node: {reason}"),
                }
                rest(refusals.pause(), &mut *link, &wakeup).await;
            }
        });
    }
}

/// Returns address and key of a node; `None` if the node has no key by which to authenticate it.
fn target(peer: &Endpoints) -> Option<(String, Fingerprint)> {
    Some((peer.address(peer.tls.as_ref()?.kv()), peer.fingerprint?))
}

async fn connect(
    key: &NodeKey,
    target: Option<&(String, Fingerprint)>,
) -> Result<impl AsyncRead + AsyncWrite + use<>, String> {
    let (address, fingerprint) = target.ok_or("the cluster does not know its key")?;
    let connecting = key.connect(address, Purpose::Copies, Some(*fingerprint));
    let connected = tokio::time::timeout(CONNECT_TIMEOUT, connecting).await;
    let (stream, _) = connected.map_err(|_| format!("{address} does not answer"))??;
    Ok(stream)
}

/// The end of a connection.
#[derive(Debug, thiserror::Error)]
enum End {
    /// The connection broke or is no longer needed.
    #[error("{0}")]
    Lost(String),
    /// The link refuses what the other node sent, for example a refused login.
    #[error("{0}")]
    Contradicted(String),
}

/// Consecutive refused connections.
#[derive(Default)]
struct Refusals {
    count: u32,
    /// The last logged reason.
    last_error: String,
}

impl Refusals {
    /// Records the end of a connection that lasted for `lived`. Returns the reason if it is new: repeated failures are
    /// logged once.
    fn note(&mut self, end: End, lived: Duration) -> Option<&str> {
        // A node that is not accepted is refused at once, so a longer connection was accepted.
        if lived > self.pause() {
            self.count = 0;
        }
        if lived > pause_after(DOUBLINGS_MAX + 1) {
            self.last_error.clear();
        }
        match end {
            End::Lost(_) => {
                self.count = 0;
                None
            }
            End::Contradicted(reason) => {
                self.count += 1;
                let is_news = self.last_error != reason;
                self.last_error = reason;
                is_news.then_some(&self.last_error)
            }
        }
    }

    /// Returns the pause before the next connection.
    fn pause(&self) -> Duration {
        pause_after(self.count)
    }
}

/// Returns the pause after this many refusals. It grows, because the other node may accept soon or, if it has continued
/// without this node, never.
fn pause_after(refusals: u32) -> Duration {
    RETRY_INTERVAL * (1 << refusals.saturating_sub(1).min(DOUBLINGS_MAX))
}

/// Waits for `pause`, even if the link is woken in between. Returns early when the link is over, for example when the
/// node stops.
async fn rest(pause: Duration, link: &mut dyn Link, wakeup: &Wakeup) {
    let end = Instant::now() + pause;
    while !link.is_over() && tokio::time::timeout_at(end, wakeup.0.notified()).await.is_ok() {}
}

/// Transfers bytes until the connection ends or the link is over. Returns the reason.
async fn talk(
    stream: impl AsyncRead + AsyncWrite,
    link: &mut dyn Link,
    wakeup: &Wakeup,
    now: &(impl Fn() -> Now + Send + Sync),
) -> End {
    let (mut reader, mut writer) = tokio::io::split(stream);
    let (mut input, mut out) = (Vec::with_capacity(READ_BYTES), Vec::new());
    // TLS may still buffer written bytes.
    let mut is_flushed = true;
    link.connected(&mut out);
    loop {
        if link.is_over() {
            return End::Lost("it is not needed any more".into());
        }
        let poll_again = link.poll(&mut out, now()).unwrap_or(Duration::from_secs(3600));
        tokio::select! {
            read = reader.read_buf(&mut input) => match read {
                Ok(0) => return End::Lost("the peer has closed it".into()),
                Ok(_) => match link.receive(&input, &mut out, now()) {
                    Ok(consumed) => drop(input.drain(..consumed)),
                    Err(reason) => return End::Contradicted(reason),
                },
                Err(error) => return End::Lost(error.to_string()),
            },
            sent = send(&mut writer, &out), if !out.is_empty() || !is_flushed => match sent {
                Ok(bytes) => {
                    is_flushed = bytes == 0;
                    out.drain(..bytes);
                }
                Err(error) => return End::Lost(error.to_string()),
            },
            () = wakeup.0.notified() => {}
            () = tokio::time::sleep(poll_again) => {}
        }
        input.reserve(READ_BYTES);
    }
}

/// Writes bytes, and returns how many were accepted; an empty slice flushes earlier bytes.
async fn send(to: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> std::io::Result<usize> {
    match bytes {
        [] => to.flush().await.map(|()| 0),
        _ => to.write(bytes).await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    /// A link that is over when the flag is set.
    struct Idle(Arc<AtomicBool>);

    impl Link for Idle {
        fn attach(&mut self, _: Arc<dyn Waiter>) {}

        fn connected(&mut self, _: &mut Vec<u8>) {}

        fn lost(&mut self) {}

        fn receive(&mut self, input: &[u8], _: &mut Vec<u8>, _: Now) -> Result<usize, String> {
            Ok(input.len())
        }

        fn poll(&mut self, _: &mut Vec<u8>, _: Now) -> Option<Duration> {
            None
        }

        fn is_over(&self) -> bool {
            self.0.load(Ordering::Relaxed)
        }
    }

    fn refused() -> End {
        End::Contradicted("no".into())
    }

    #[test]
    fn a_repeatedly_refused_connection_retries_less_and_less_often() {
        let mut refusals = Refusals::default();
        let tries = (0..9).map(|_| {
            let is_news = refusals.note(refused(), Duration::from_millis(5)).is_some();
            (is_news, refusals.pause().as_millis())
        });
        let (news, pauses): (Vec<bool>, Vec<u128>) = tries.unzip();
        assert_eq!(pauses, [100, 200, 400, 800, 1600, 3200, 6400, 6400, 6400]);
        assert!(news[0] && !news[1..].contains(&true), "it is news once");
        assert_eq!(refusals.note(End::Lost("gone".into()), Duration::ZERO), None);
        assert_eq!(refusals.pause(), RETRY_INTERVAL);
    }

    #[test]
    fn a_connection_that_lasted_retries_soon_and_reports_its_failure() {
        let mut refusals = Refusals::default();
        for _ in 0..9 {
            refusals.note(refused(), Duration::ZERO);
        }
        assert_eq!(refusals.note(refused(), Duration::from_secs(3600)), Some("no"));
        assert_eq!(refusals.pause(), RETRY_INTERVAL);
    }

    #[tokio::test(start_paused = true)]
    async fn wakeups_do_not_shorten_a_pause_but_the_end_does() {
        let (over, wakeup) = (Arc::new(AtomicBool::new(false)), Wakeup::default());
        let mut link = Idle(Arc::clone(&over));
        let pause = Duration::from_secs(6);
        let begun = Instant::now();
        let news = async {
            for _ in 0..10 {
                wakeup.wake();
                tokio::time::advance(Duration::from_millis(100)).await;
            }
        };
        tokio::join!(rest(pause, &mut link, &wakeup), news);
        assert!(begun.elapsed() >= pause, "{:?}", begun.elapsed());
        let begun = Instant::now();
        let end = async {
            over.store(true, Ordering::Relaxed);
            wakeup.wake();
        };
        tokio::join!(rest(pause, &mut link, &wakeup), end);
        assert_eq!(begun.elapsed(), Duration::ZERO);
    }
}
