//! Connections to the key-value ports of other nodes, for the links of the node: a thread of its own with an event loop.

use nacre_cluster::Endpoints;
use nacre_node::{Link, Waiter};
use nacre_types::Now;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::sync::Notify;

/// How long a connection may take to be made.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// When a connection that was lost or refused is made again.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);
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
pub struct Links(Handle);

impl Links {
    /// Starts the thread, which ends with the process.
    pub fn start() -> Links {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("the machine has room for an event loop");
        let handle = runtime.handle().clone();
        let run = move || runtime.block_on(std::future::pending::<()>());
        let thread = std::thread::Builder::new().name("links".into()).spawn(run);
        thread.expect("the machine has room for another thread");
        Links(handle)
    }

    /// Keeps `link` connected to the key-value port of `peer` until it is over. `now` reads the clocks.
    pub fn run(
        &self,
        peer: &Endpoints,
        mut link: Box<dyn Link>,
        now: impl Fn() -> Now + Send + Sync + 'static,
    ) {
        let host = peer.host.clone().unwrap_or_else(|| "127.0.0.1".into());
        let port = peer.plain.kv;
        self.0.spawn(async move {
            let wakeup = Arc::new(Wakeup::default());
            link.attach(Arc::clone(&wakeup) as _);
            while !link.is_over() {
                let connecting = TcpStream::connect((host.as_str(), port));
                if let Ok(Ok(stream)) = tokio::time::timeout(CONNECT_TIMEOUT, connecting).await {
                    let reason = talk(stream, &mut *link, &wakeup, &now).await;
                    tracing::debug!("the connection to {host}:{port} has ended: {reason}");
                    link.lost();
                }
                // Woken early when the node stops.
                let _ = tokio::time::timeout(RETRY_INTERVAL, wakeup.0.notified()).await;
            }
        });
    }
}

/// Moves bytes until the connection ends, or the link is over; says why.
async fn talk(
    mut stream: TcpStream,
    link: &mut dyn Link,
    wakeup: &Wakeup,
    now: &(impl Fn() -> Now + Send + Sync),
) -> String {
    // Without it, acknowledgements would wait for each other.
    if let Err(error) = stream.set_nodelay(true) {
        return error.to_string();
    }
    let (mut reader, mut writer) = stream.split();
    let (mut input, mut out) = (Vec::with_capacity(READ_BYTES), Vec::new());
    link.connected(&mut out);
    loop {
        if link.is_over() {
            return "it is not needed any more".into();
        }
        let look_again = link.look(&mut out, now()).unwrap_or(Duration::from_secs(3600));
        tokio::select! {
            read = reader.read_buf(&mut input) => match read {
                Ok(0) => return "the peer has closed it".into(),
                Ok(_) => match link.receive(&input, &mut out, now()) {
                    Ok(consumed) => drop(input.drain(..consumed)),
                    Err(reason) => {
                        tracing::warn!("what another node says cannot be followed: {reason}");
                        return reason;
                    }
                },
                Err(error) => return error.to_string(),
            },
            written = writer.write(&out), if !out.is_empty() => match written {
                Ok(bytes) => drop(out.drain(..bytes)),
                Err(error) => return error.to_string(),
            },
            () = wakeup.0.notified() => {}
            () = tokio::time::sleep(look_again) => {}
        }
        input.reserve(READ_BYTES);
    }
}
