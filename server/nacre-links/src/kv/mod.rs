//! Sockets of the key-value protocol: one thread accepts connections and distributes them to threads with event loops.
//!
//! Plain connections use io_uring (`ring`) where the kernel supports it; all others use tokio (`stream`). Both pass
//! bytes to a [`nacre_bucket::kv::Session`] and send its answers once per read.
//!
//! An idle connection holds no buffer, because buffers belong to the threads. A connection only keeps the beginning of
//! an incomplete frame, or answers that its client does not read.

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

/// Buffers that grew beyond this for a large document are freed afterwards.
const BUFFER_BYTES_KEPT: usize = 1 << 20;
/// Bytes of a long frame that are read and reserved at a time. Other connections wait while they are copied.
const PIECE_BYTES: usize = 256 << 10;
/// The size of huge pages, in which the system gives memory to a large process.
const HUGE_PAGE_BYTES: usize = 2 << 20;
/// The page size, for memory advice to the kernel.
#[cfg(target_os = "linux")]
const SMALL_PAGE_BYTES: usize = 4096;
/// Timeout of the rest of a frame, or of the next piece of a long one.
const HALF_FRAME_TIMEOUT: Duration = Duration::from_secs(30);
/// Timeout of a client that reads none of its answers while no memory is left.
const STUCK_TIMEOUT: Duration = Duration::from_secs(60);
/// Timeout of the login.
const LOGIN_TIMEOUT: Duration = Duration::from_secs(30);

/// State shared by the connections of all ports.
pub struct Door {
    /// The node.
    pub node: Arc<Node>,
    /// Encrypts the connections of TLS ports.
    pub tls: Arc<Tls>,
    /// True if plain-text passwords may cross a network.
    pub allow_plain_logins: bool,
    /// Number of connections from nodes that are not in this cluster.
    pub strangers: AtomicU64,
    /// Limits of connections, shared with the other protocols.
    pub connections: Arc<Connections>,
}

impl Door {
    /// Returns the description of a peer at `from` that has `shown` its identity.
    fn peer(&self, from: SocketAddr, encrypted: bool, shown: Shown) -> Peer {
        let Shown { user, key } = shown;
        let loopback = from.ip().to_canonical().is_loopback();
        let confidential = encrypted || loopback || self.allow_plain_logins;
        let is_node = key.is_some_and(|key| self.node.cluster().node_with_key(&key).is_some());
        Peer { confidential, user, is_node, address: Some(from.ip()) }
    }

    /// Counts and logs a refused node. A removed node retries repeatedly, so only some refusals are logged.
    fn count_refused(&self, from: SocketAddr) {
        let strangers = self.strangers.fetch_add(1, Ordering::Relaxed) + 1;
        if strangers.is_power_of_two() {
            tracing::warn!(
                "closed the connection of {from}: it is not a node of this cluster ({strangers} so far)"
            );
        }
    }
}

/// A listening port.
pub struct Port {
    /// The listener.
    pub listener: TcpListener,
    /// True if its connections are encrypted.
    pub encrypted: bool,
}

/// An accepted connection before its thread takes it over.
struct Accepted {
    stream: TcpStream,
    from: SocketAddr,
    encrypted: bool,
    /// Dropped after the stream.
    permit: Permit,
}

/// Passes a connection to the next thread in turn.
type Distribute = Box<dyn FnMut(Accepted) + Send>;

/// Serves `ports` with `threads` threads for each kind of connection, until the process ends. Uses io_uring if requested
/// and available.
///
/// # Errors
/// Fails when a thread cannot be started.
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
        let distribute = if rings && !port.encrypted {
            ring::serve(door, threads)?
        } else {
            stream::serve(door, threads)?
        };
        let connections = Arc::clone(&door.connections);
        let thread = std::thread::Builder::new().name("accept".into());
        thread.spawn(move || accept(&port, &connections, distribute))?;
    }
    Ok(())
}

/// Reserves memory for the next piece of the frame at the start of `rest`, which lacks `missing` bytes. Returns false
/// if no memory is left.
///
/// `rest` then has capacity for the whole frame, so that it never moves: untouched memory costs only address space.
/// Touched memory is charged in huge pages, because a single byte may occupy one.
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

/// Advises the kernel to use small pages for `room`. The kernel clears a page before its first use, and clearing 2 MiB in the
/// middle of a round delays all connections of the thread, by a millisecond on a virtual machine.
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

fn accept(port: &Port, connections: &Arc<Connections>, mut distribute: Distribute) {
    depend_on_this_thread();
    let encrypted = port.encrypted;
    loop {
        match port.listener.accept() {
            Ok((stream, from)) => {
                let Some(permit) = connections.enter(from.ip(), 1) else { continue };
                // Answers are sent once for all requests that were read together; Nagle's algorithm would only delay
                // them.
                let _ = stream.set_nodelay(true);
                distribute(Accepted { stream, from, encrypted, permit });
            }
            Err(error) => {
                // Most likely the process is out of file descriptors: wait for other connections to close.
                tracing::warn!("cannot accept a connection: {error}");
                std::thread::sleep(crate::ACCEPT_PAUSE);
            }
        }
    }
}
