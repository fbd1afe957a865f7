//! Connections to the key-value ports of other nodes, encrypted, for the links of the node: a thread of its own with an event loop.

use crate::tls::{NodeKey, Purpose};
use nacre_cluster::{Endpoints, Fingerprint};
use nacre_node::{Link, Waiter};
use nacre_types::Now;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::runtime::Handle;
use tokio::sync::Notify;

/// How long a connection may take to be made.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// When a connection that was lost or refused is made again.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);
/// How often that is doubled at most: it becomes seconds.
const DOUBLINGS_MAX: u32 = 6;
/// Room for what is read at a time.
const READ_BYTES: usize = 256 << 10;

/// Wakes the task of a link.
#[derive(Default)]
struct Wakeup(Notify);

impl Waiter for Wakeup {
    fn wake(&self) {
        self.0.notify_one();
    }
}

/// The thread that all links of a process share.
pub struct Links {
    runtime: Handle,
    key: Arc<NodeKey>,
}

impl Links {
    /// Starts the thread, which ends with the process. Other nodes are shown `key`.
    pub fn start(key: &Arc<NodeKey>) -> Links {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("the machine has room for an event loop");
        let handle = runtime.handle().clone();
        let run = move || runtime.block_on(std::future::pending::<()>());
        let thread = std::thread::Builder::new().name("links".into()).spawn(run);
        thread.expect("the machine has room for another thread");
        Links { runtime: handle, key: Arc::clone(key) }
    }

    /// Keeps `link` connected to the key-value port of `peer` with TLS until it is over. `now` reads the clocks.
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
            let (mut said, mut refusals) = (String::new(), 0);
            while !link.is_over() {
                match connect(&key, target.as_ref()).await {
                    Ok(stream) => {
                        let end = talk(stream, &mut *link, &wakeup, &now).await;
                        tracing::debug!("a connection for copies has ended: {end}");
                        refusals = end.refusals_after(refusals);
                        if let End::Contradicted(reason) = end
                            && said != reason
                        {
                            // However often it is tried in vain, it is news once.
                            tracing::warn!("what another node says cannot be followed: {reason}");
                            said = reason;
                        }
                        link.lost();
                    }
                    Err(reason) => tracing::debug!("cannot copy from another node: {reason}"),
                }
                // Woken early when the node stops.
                let _ = tokio::time::timeout(pause_after(refusals), wakeup.0.notified()).await;
            }
        });
    }
}

/// Address and key of a node; `None` for one that nobody can recognise.
fn target(peer: &Endpoints) -> Option<(String, Fingerprint)> {
    Some((peer.address(peer.tls?.kv), peer.fingerprint?))
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

/// How a connection has ended.
#[derive(Debug, thiserror::Error)]
enum End {
    /// It broke off, or is not needed any more.
    #[error("{0}")]
    Lost(String),
    /// The other node says what the link does not take, as when it lets this one not log in.
    #[error("{0}")]
    Contradicted(String),
}

impl End {
    /// How many connections in a row were contradicted, with this one.
    fn refusals_after(&self, before: u32) -> u32 {
        match self {
            End::Lost(_) => 0,
            End::Contradicted(_) => before + 1,
        }
    }
}

/// How long to wait before the next connection: longer and longer, where the other node does not take what is said. It may
/// learn better in a moment, or never, as when it goes on without this one.
fn pause_after(refusals: u32) -> Duration {
    RETRY_INTERVAL * (1 << refusals.saturating_sub(1).min(DOUBLINGS_MAX))
}

/// Moves bytes until the connection ends, or the link is over; says why.
async fn talk(
    stream: impl AsyncRead + AsyncWrite,
    link: &mut dyn Link,
    wakeup: &Wakeup,
    now: &(impl Fn() -> Now + Send + Sync),
) -> End {
    let (mut reader, mut writer) = tokio::io::split(stream);
    let (mut input, mut out) = (Vec::with_capacity(READ_BYTES), Vec::new());
    // What was written may still be held by the encryption.
    let mut is_flushed = true;
    link.connected(&mut out);
    loop {
        if link.is_over() {
            return End::Lost("it is not needed any more".into());
        }
        let look_again = link.look(&mut out, now()).unwrap_or(Duration::from_secs(3600));
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
            () = tokio::time::sleep(look_again) => {}
        }
        input.reserve(READ_BYTES);
    }
}

/// Hands bytes over, and says how many; without any, sends off what was handed over before.
async fn send(to: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> std::io::Result<usize> {
    match bytes {
        [] => to.flush().await.map(|()| 0),
        _ => to.write(bytes).await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_refused_again_and_again_asks_less_and_less_often() {
        let refused = End::Contradicted("no".into());
        let mut refusals = 0;
        let pauses: Vec<u128> = (0..9)
            .map(|_| {
                refusals = refused.refusals_after(refusals);
                pause_after(refusals).as_millis()
            })
            .collect();
        assert_eq!(pauses, [100, 200, 400, 800, 1600, 3200, 6400, 6400, 6400]);
        let after = End::Lost("gone".into()).refusals_after(refusals);
        assert_eq!(pause_after(after), RETRY_INTERVAL);
    }
}
