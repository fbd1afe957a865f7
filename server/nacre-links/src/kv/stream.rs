//! Connections on tokio: each thread has an event loop, and each connection a task. Used for encrypted connections, and
//! for all connections without io_uring.
//!
//! A thread's connections share one input buffer, because bytes are handled before any other task runs. They take an
//! output buffer only while they send.

use super::{
    Accepted, BUFFER_BYTES_KEPT, Distribute, Door, HALF_FRAME_TIMEOUT, LOGIN_TIMEOUT, PIECE_BYTES,
    STUCK_TIMEOUT, reserve_piece,
};
use crate::STACK_BYTES;
use crate::strangers::Permit;
use crate::tls::{Purpose, Shown};
use crate::vital::depend_on_this_thread;
use nacre_bucket::Waiter;
use nacre_bucket::kv::{Next, Session};
use nacre_cluster::Fingerprint;
use nacre_protocol::missing_bytes;
use std::cell::RefCell;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

/// Bytes per read. All complete frames in them are handled before anything is written.
const READ_BYTES: usize = 64 << 10;
/// Interval of checks whether the peer node is still a member.
const REMOVAL_INTERVAL: Duration = Duration::from_secs(1);

/// Wakes one connection.
#[derive(Default)]
pub(super) struct ConnectionWaker(Notify);

impl Waiter for ConnectionWaker {
    fn wake(&self) {
        self.0.notify_one();
    }
}

/// Starts the threads.
pub(super) fn serve(door: &Arc<Door>, threads: usize) -> std::io::Result<Distribute> {
    let mut senders = Vec::new();
    for index in 0..threads {
        let (sender, receiver) = mpsc::unbounded_channel();
        senders.push(sender);
        let door = Arc::clone(door);
        let thread = std::thread::Builder::new().name(format!("kv-stream-{index}"));
        // The stack is large because plugins may resolve conflicts.
        thread.stack_size(STACK_BYTES).spawn(move || {
            depend_on_this_thread();
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = runtime.expect("the machine has room for another event loop");
            tokio::task::LocalSet::new().block_on(&runtime, converse(door, receiver));
        })?;
    }
    let mut turn = 0;
    Ok(Box::new(move |accepted| {
        // The thread lives as long as the process.
        let _ = senders[turn % senders.len()].send(accepted);
        turn += 1;
    }))
}

async fn converse(door: Arc<Door>, mut accepted: mpsc::UnboundedReceiver<Accepted>) {
    let buffers = Rc::new(Buffers::default());
    while let Some(next) = accepted.recv().await {
        let (door, buffers) = (Arc::clone(&door), Rc::clone(&buffers));
        tokio::task::spawn_local(async move {
            let from = next.from;
            if let Err(reason) = welcome(&door, next, &buffers).await {
                tracing::warn!("closed the connection of {from}: {reason}");
            }
        });
    }
}

/// Encrypts a connection if its port requires it, and handles it to its end.
async fn welcome(door: &Door, accepted: Accepted, buffers: &Buffers) -> Result<(), String> {
    let waker = Arc::new(ConnectionWaker::default());
    let Accepted { stream, from, encrypted, permit } = accepted;
    let stream = stream.set_nonblocking(true).and_then(|()| TcpStream::from_std(stream));
    let Ok(stream) = stream else { return Ok(()) };
    let session = |peer| {
        let waiter: Arc<dyn Waiter> = Arc::clone(&waker) as _;
        Session::new(Arc::clone(&door.node) as _, peer, waiter)
    };
    if !encrypted {
        let peer = door.peer(from, encrypted, Shown::default());
        return connection(session(peer), stream, buffers, &waker, &permit).await;
    }
    let (stream, shown) = tokio::select! {
        accepted = door.tls.accept(stream, Some(Purpose::Copies)) => accepted?,
        () = permit.closed() => return Ok(()),
    };
    let Some(key) = shown.key else {
        let session = session(door.peer(from, encrypted, shown));
        return connection(session, stream, buffers, &waker, &permit).await;
    };
    let peer = door.peer(from, encrypted, shown);
    if !peer.is_node {
        door.count_refused(from);
        return Ok(());
    }
    permit.admit();
    tokio::select! {
        ended = connection(session(peer), stream, buffers, &waker, &permit) => ended,
        () = removal(door, &key) => Err("the node was removed from the cluster".into()),
    }
}

/// Completes when no node of the cluster has this key any more.
async fn removal(door: &Door, key: &Fingerprint) {
    while door.node.cluster().node_with_key(key).is_some() {
        tokio::time::sleep(REMOVAL_INTERVAL).await;
    }
}

/// Buffers shared by the connections of a thread.
pub(super) struct Buffers {
    input: RefCell<Box<[u8]>>,
    output: RefCell<Vec<u8>>,
}

impl Default for Buffers {
    fn default() -> Buffers {
        Buffers {
            input: RefCell::new(vec![0; READ_BYTES].into_boxed_slice()),
            output: RefCell::default(),
        }
    }
}

impl Buffers {
    /// Reads bytes into `input`, after the `held` part of a frame. Returns the length of both, or `None` if the peer
    /// has closed the connection or it broke.
    ///
    /// The caller must consume the bytes before the thread's next await.
    async fn read(&self, stream: &mut (impl AsyncRead + Unpin), held: &[u8]) -> Option<usize> {
        poll_fn(|context| {
            let mut input = self.input.borrow_mut();
            let (front, back) = input.split_at_mut(held.len());
            front.copy_from_slice(held);
            let mut buffer = ReadBuf::new(back);
            let read = Pin::new(&mut *stream).poll_read(context, &mut buffer);
            read.map(|read| match buffer.filled().len() {
                0 => None,
                count => read.is_ok().then_some(held.len() + count),
            })
        })
        .await
    }

    fn take_output(&self) -> Vec<u8> {
        self.output.take()
    }

    fn give_back(&self, mut output: Vec<u8>) {
        output.clear();
        output.shrink_to(BUFFER_BYTES_KEPT);
        *self.output.borrow_mut() = output;
    }
}

fn rest_is_late() -> String {
    format!("the rest of a message did not arrive within {HALF_FRAME_TIMEOUT:?}")
}

/// Handles one connection to its end. The error is the reason why the server closed it.
pub(super) async fn connection<S: AsyncRead + AsyncWrite + Unpin>(
    mut session: Session,
    mut stream: S,
    buffers: &Buffers,
    waker: &ConnectionWaker,
    permit: &Permit,
) -> Result<(), String> {
    // Unhandled bytes: part of a frame, or frames behind parked requests.
    let mut rest: Vec<u8> = Vec::new();
    let mut next = Next::More;
    let mut half = Half::default();
    let mut login_deadline = pin!(tokio::time::sleep(LOGIN_TIMEOUT));
    loop {
        let mut output = Vec::new();
        if session.is_logged_in() {
            permit.admit();
        }
        match next {
            Next::Close(reason) => return reason.map_or(Ok(()), Err),
            Next::Flush => next = receive(&mut session, &mut rest, &mut output, &mut half),
            Next::Wait => {
                ready(&session, waker).await;
                next = session.resume(&mut output, session.now());
                if matches!(next, Next::More) {
                    next = receive(&mut session, &mut rest, &mut output, &mut half);
                }
            }
            Next::More => {
                // A long part of a frame stays in place; a short one is copied in front of the new bytes.
                let held = if rest.len() <= READ_BYTES / 2 {
                    std::mem::take(&mut rest)
                } else {
                    Vec::new()
                };
                let deadline = half.deadline(rest.len() + held.len());
                let length = tokio::select! {
                    length = buffers.read(&mut stream, &held) => match length {
                        Some(length) => length,
                        None => return Ok(()),
                    },
                    () = ready(&session, waker), if session.may_speak_first() => 0,
                    () = permit.closed() => return Ok(()),
                    () = &mut login_deadline, if !session.is_logged_in() => {
                        return Err(format!("no login within {LOGIN_TIMEOUT:?}"));
                    }
                    () = until(deadline) => return Err(rest_is_late()),
                };
                output = buffers.take_output();
                let input = &buffers.input.borrow()[..length];
                let input = half.skip(input);
                if half.is_skipping() && length > 0 {
                    // All bytes were skipped.
                } else if rest.is_empty() && !input.is_empty() {
                    let consumed;
                    (consumed, next) = session.receive(input, &mut output, session.now());
                    half.progress(consumed);
                    rest = held;
                    rest.clear();
                    rest.extend_from_slice(&input[consumed..]);
                } else {
                    if rest.is_empty() {
                        rest = held;
                    }
                    rest.extend_from_slice(input);
                    if length == 0 {
                        next = session.resume(&mut output, session.now());
                    }
                    if matches!(next, Next::More) {
                        next = receive(&mut session, &mut rest, &mut output, &mut half);
                    }
                }
            }
        }
        if matches!(next, Next::More) && !half.reserve(&mut session, &mut rest, &mut output) {
            return Err("there is no memory for its messages".into());
        }
        if !output.is_empty() {
            let send = async {
                stream.write_all(&output).await?;
                stream.flush().await
            };
            let has_memory = session.hold_output(output.len());
            let deadline = (!has_memory).then(|| Instant::now() + STUCK_TIMEOUT);
            tokio::select! {
                sent = send => if sent.is_err() {
                    return Ok(());
                },
                reason = cut(&session, waker) => return Err(reason.into()),
                () = permit.closed() => return Ok(()),
                () = until(deadline) => {
                    let limit = STUCK_TIMEOUT;
                    return Err(format!("answers that the client has not read for {limit:?} fill the memory"));
                }
                () = &mut login_deadline, if !session.is_logged_in() => {
                    return Err(format!("no login within {LOGIN_TIMEOUT:?}"));
                }
            }
        }
        if let Some(reason) = session.cut() {
            return Err(reason.into());
        }
        session.hold_output(0);
        buffers.give_back(output);
        if rest.is_empty() && rest.capacity() > 0 {
            rest = Vec::new();
        }
    }
}

/// The state of an incomplete frame.
#[derive(Default)]
struct Half {
    /// Number of following bytes that belong to a refused frame.
    skipped: usize,
    /// The size of the partial frame when it last grew, and the deadline for more.
    known: Option<(usize, Instant)>,
}

impl Half {
    /// Returns the deadline for more bytes while `held` bytes of a frame are present.
    fn deadline(&mut self, held: usize) -> Option<Instant> {
        if held == 0 {
            self.known = None;
            return None;
        }
        let has_grown = self.known.is_none_or(|(known, _)| held >= known + PIECE_BYTES);
        if has_grown {
            self.known = Some((held, Instant::now() + HALF_FRAME_TIMEOUT));
        }
        self.known.map(|(_, deadline)| deadline)
    }

    /// Resets the deadline after `consumed` bytes of complete frames.
    fn progress(&mut self, consumed: usize) {
        if consumed > 0 {
            self.known = None;
        }
    }

    /// Returns the bytes after the skipped ones.
    fn skip<'a>(&mut self, input: &'a [u8]) -> &'a [u8] {
        let skipped = self.skipped.min(input.len());
        self.skipped -= skipped;
        &input[skipped..]
    }

    fn is_skipping(&self) -> bool {
        self.skipped > 0
    }

    /// Reserves memory for the next piece of the frame at the start of `rest`; without memory, refuses the request and
    /// skips the rest of the frame. Returns false if the frame is not a request.
    fn reserve(&mut self, session: &mut Session, rest: &mut Vec<u8>, out: &mut Vec<u8>) -> bool {
        let missing = missing_bytes(rest);
        if reserve_piece(session, rest, missing) {
            return true;
        }
        self.skipped = missing;
        let head = std::mem::take(rest);
        session.refuse_frame(&head, out)
    }
}

/// Completes at that time, or never.
async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// Completes when the session can send without input, or must end.
async fn ready(session: &Session, waker: &ConnectionWaker) {
    while !session.is_ready() && session.cut().is_none() {
        waker.0.notified().await;
    }
}

/// Completes when the connection must end at once. Returns the reason.
async fn cut(session: &Session, waker: &ConnectionWaker) -> &'static str {
    loop {
        if let Some(reason) = session.cut() {
            return reason;
        }
        waker.0.notified().await;
    }
}

/// Handles and removes the complete frames in `rest`.
fn receive(
    session: &mut Session,
    rest: &mut Vec<u8>,
    output: &mut Vec<u8>,
    half: &mut Half,
) -> Next {
    let (consumed, next) = session.receive(rest, output, session.now());
    half.progress(consumed);
    rest.drain(..consumed);
    next
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::SystemPlatform;
    use crate::strangers::{Connections, Limits};
    use nacre_bucket::kv::Peer;
    use nacre_cluster::{Endpoints, Ports};
    use nacre_node::Node;
    use nacre_node::scatter_gather::NodeService;
    use std::net::IpAddr;
    use tokio::io::{AsyncReadExt, DuplexStream};

    /// Returns a request with a header only.
    fn bare(opcode: u8) -> Vec<u8> {
        let mut bytes = vec![0; 24];
        bytes[..2].copy_from_slice(&[0x80, opcode]);
        bytes
    }

    /// Returns the reason why a connection without a login is closed, given the behaviour of its `client`.
    async fn closed<F: Future<Output = ()> + 'static>(
        client: impl FnOnce(DuplexStream) -> F,
    ) -> String {
        let directory = tempfile::tempdir().unwrap();
        let platform = Arc::new(
            SystemPlatform::open(
                directory.path(),
                directory.path().join("plugins"),
                &crate::process::Embedded,
            )
            .unwrap(),
        );
        let plain =
            Ports::from([("mgmt", 1), ("views", 2), ("query", 5), ("eventing", 4), ("kv", 3)]);
        let node = Node::open_with(
            platform,
            Endpoints { host: None, plain, tls: None, fingerprint: None },
            vec![Arc::new(NodeService)],
        )
        .unwrap();
        let waker = Arc::new(ConnectionWaker::default());
        let peer = Peer { confidential: true, ..Peer::default() };
        let session = Session::new(node, peer, Arc::clone(&waker) as _);
        let (far, near) = tokio::io::duplex(1024);
        let client = client(far);
        let served = tokio::task::LocalSet::new();
        let ended = served.run_until(async {
            let client = tokio::task::spawn_local(client);
            let buffers = Buffers::default();
            let connections = Connections::new(Limits::of_descriptors(1024));
            let permit = connections.enter(IpAddr::from([127, 0, 0, 1]), 1).unwrap();
            let served = connection(session, near, &buffers, &waker, &permit);
            let ended = tokio::time::timeout(2 * LOGIN_TIMEOUT, served).await;
            client.abort();
            ended.expect("it is closed")
        });
        ended.await.unwrap_err()
    }

    #[tokio::test(start_paused = true)]
    async fn a_busy_client_that_never_logs_in_is_disconnected() {
        let reason = closed(|mut client| async move {
            let mut answer = [0; 24];
            for _ in 0..3 {
                tokio::time::sleep(LOGIN_TIMEOUT / 4).await;
                client.write_all(&bare(0x0a)).await.unwrap();
                client.read_exact(&mut answer).await.unwrap();
            }
            std::future::pending().await
        });
        assert!(reason.await.contains("no login within"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_neither_logs_in_nor_reads_answers_is_disconnected() {
        let reason = closed(|mut client| async move {
            let _ = client.write_all(&bare(0x0a).repeat(1000)).await;
            std::future::pending().await
        });
        assert!(reason.await.contains("no login within"));
    }
}
