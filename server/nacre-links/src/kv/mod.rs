//! Sockets of the key-value protocol: a thread accepts connections and deals them out to threads with an event loop each.
//!
//! Plain connections go to rings (`ring`) where the kernel has io_uring, all others to streams of tokio (`stream`).
//! Both pass bytes to a [`nacre_bucket::kv::Session`] and send its answers, once for all bytes of a read.
//!
//! An idle connection holds no buffer: buffers belong to the threads. A connection only keeps the begin of an
//! incomplete frame, or answers that its client does not take.

mod answers;
mod buffers;
pub mod links;
mod ring;
mod stream;
pub mod web;

use crate::strangers::{Connections, Permit};
use crate::tls::{Shown, Tls};
use crate::vital::depend_on_this_thread;
use nacre_bucket::kv::{Peer, Session};
use nacre_node::Node;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Buffers that grew beyond this for one large document are given back afterwards.
const BUFFER_BYTES_KEPT: usize = 1 << 20;
/// Bytes of a long frame that are read, and that memory is reserved for, at a time. Others wait while they are copied.
const PIECE_BYTES: usize = 256 << 10;
/// Unit in which the system gives memory to a process that has grown large.
const HUGE_PAGE_BYTES: usize = 2 << 20;
/// Unit of advice to the kernel about memory.
#[cfg(target_os = "linux")]
const SMALL_PAGE_BYTES: usize = 4096;
/// How long the rest of a frame that has begun, or the next piece of a long one, may take.
const HALF_FRAME_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a client may take none of its answers while there is no memory for more.
const STUCK_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a client may take to log in.
const LOGIN_TIMEOUT: Duration = Duration::from_secs(30);

/// State shared by the connections of all ports.
pub struct Door {
    /// The node.
    pub node: Arc<Node>,
    /// Encrypts the connections of the ports that want it.
    pub tls: Arc<Tls>,
    /// True if passwords may cross a network as they are.
    pub allow_plain_logins: bool,
    /// Connections that came from nodes of no cluster, or of another one.
    pub strangers: AtomicU64,
    /// Limits of connections, shared with the other protocols.
    pub connections: Arc<Connections>,
}

impl Door {
    /// Describes the peer of a connection `from` there that has `shown` its identity.
    fn peer(&self, from: SocketAddr, encrypted: bool, shown: Shown) -> Peer {
        let Shown { user, key } = shown;
        let loopback = from.ip().to_canonical().is_loopback();
        let confidential = encrypted || loopback || self.allow_plain_logins;
        let is_node = key.is_some_and(|key| self.node.cluster().node_with_key(&key).is_some());
        Peer { confidential, user, is_node, address: Some(from.ip()) }
    }

    /// Logs that a node is refused. A removed node tries again and again.
    fn turn_away(&self, from: SocketAddr) {
        let strangers = self.strangers.fetch_add(1, Ordering::Relaxed) + 1;
        if strangers.is_power_of_two() {
            tracing::warn!(
                "closed the connection of {from}: it is no node of this cluster; {strangers} such by now"
            );
        }
    }
}

/// A port to accept connections on.
pub struct Port {
    /// The listener.
    pub listener: TcpListener,
    /// True if they are encrypted.
    pub encrypted: bool,
}

/// A connection on its way to the thread that will handle it.
struct Accepted {
    stream: TcpStream,
    from: SocketAddr,
    encrypted: bool,
    /// Dropped after the stream.
    permit: Permit,
}

/// Passes a connection to the thread whose turn it is.
type Deal = Box<dyn FnMut(Accepted) + Send>;

/// Serves `ports` with `threads` threads for each way to serve, until the process ends; with `io_uring` where there is one.
///
/// # Errors
/// Fails when there is no room for another thread.
pub fn serve(
    door: &Arc<Door>,
    ports: Vec<Port>,
    threads: usize,
    io_uring: bool,
) -> std::io::Result<()> {
    let rings = io_uring && ring::is_available();
    if !rings {
        tracing::info!("keys are served without io_uring");
    }
    for port in ports {
        let deal = if rings && !port.encrypted {
            ring::serve(door, threads)?
        } else {
            stream::serve(door, threads)?
        };
        let connections = Arc::clone(&door.connections);
        let thread = std::thread::Builder::new().name("accept".into());
        thread.spawn(move || accept(&port, &connections, deal))?;
    }
    Ok(())
}

/// Reserves memory for the next piece of the frame at the start of `rest`, of which `missing` bytes have not come.
/// Returns false if there is none.
///
/// `rest` has capacity for the whole frame then, so that it never moves: unwritten memory costs only addresses. Written
/// memory is accounted for in huge pages, because a byte may take a whole one.
fn reserve_piece(session: &mut Session, rest: &mut Vec<u8>, missing: usize) -> bool {
    let whole = rest.len() + missing;
    let touched = rest.len() + missing.min(PIECE_BYTES);
    if !session.reserve_input(touched.next_multiple_of(HUGE_PAGE_BYTES).min(whole)) {
        return false;
    }
    if rest.capacity() >= whole {
        return true;
    }
    let has_room = rest.try_reserve_exact(missing).is_ok();
    if has_room && whole >= HUGE_PAGE_BYTES {
        avoid_huge_pages(rest.spare_capacity_mut());
    }
    has_room
}

/// Has the kernel take memory for `room` in small pages. It clears a page before the first byte is written: clearing 2 MiB in the middle of
/// a round keeps all connections of the thread waiting, for a millisecond where the machine is a virtual one.
#[cfg(target_os = "linux")]
fn avoid_huge_pages(room: &mut [std::mem::MaybeUninit<u8>]) {
    let range = room.as_ptr_range();
    let [start, end] = [range.start as usize, range.end as usize];
    let start = start.next_multiple_of(SMALL_PAGE_BYTES);
    let length = (end - end % SMALL_PAGE_BYTES).saturating_sub(start);
    // SAFETY: the range is within memory that is exclusively borrowed, and the advice changes no content. A refusal is harmless.
    unsafe { libc::madvise(start as *mut libc::c_void, length, libc::MADV_NOHUGEPAGE) };
}

#[cfg(not(target_os = "linux"))]
fn avoid_huge_pages(_room: &mut [std::mem::MaybeUninit<u8>]) {}

fn accept(port: &Port, connections: &Arc<Connections>, mut deal: Deal) {
    depend_on_this_thread();
    let encrypted = port.encrypted;
    loop {
        match port.listener.accept() {
            Ok((stream, from)) => {
                let Some(permit) = connections.enter(from.ip(), 1) else { continue };
                // Answers are sent once for all requests that were read together; waiting for more would only delay them.
                let _ = stream.set_nodelay(true);
                deal(Accepted { stream, from, encrypted, permit });
            }
            Err(error) => {
                // Out of file descriptors, most likely: others must close before there can be another connection.
                tracing::warn!("cannot accept a connection: {error}");
                std::thread::sleep(crate::ACCEPT_PAUSE);
            }
        }
    }
}
