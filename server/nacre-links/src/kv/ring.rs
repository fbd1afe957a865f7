//! Connections on io_uring: each thread has a ring, and does all its reading, writing and waiting with one system call
//! per round.
//!
//! A round handles the completed operations: received bytes (in the thread's buffers), sent answers, and letters from
//! other threads. Bytes go to the session at once; its answers are sent at the end of the round, with one write per
//! connection.
//!
//! Once its header has arrived, a frame longer than a buffer is read to its final place, in pieces for which the node
//! has memory. Without memory the frame is refused and skipped. Long documents are sent from their own memory.
//!
//! The kernel writes to buffers and reads answers concurrently. Therefore a connection is dropped only when no
//! operation is in progress for it ([`Connection::is_idle`]).

use super::answers::{Answers, Message};
use super::buffers::{self, Buffers};
use super::{
    Accepted, BUFFER_BYTES_KEPT, Distribute, Door, HALF_FRAME_TIMEOUT, LOGIN_TIMEOUT, PIECE_BYTES,
    STUCK_TIMEOUT, reserve_piece,
};
use crate::STACK_BYTES;
use crate::strangers::Permit;
use crate::tls::Shown;
use crate::vital::depend_on_this_thread;
use io_uring::squeue::Entry;
use io_uring::types::{Fd, Timespec};
use io_uring::{IoUring, cqueue, opcode, squeue};
use nacre_bucket::Waiter;
use nacre_bucket::kv::{Next, Session};
use nacre_protocol::missing_bytes;
use nacre_types::Now;
use parking_lot::Mutex;
use slab::Slab;
use std::fs::File;
use std::io::{self, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Size of the submission queue.
const ENTRIES: u32 = 1024;
/// Maximum bytes of answers that a connection holds while its client does not read.
const ANSWERS_HELD_MAX: usize = 256 << 10;
/// Bytes of a refused frame that are skipped per operation.
const SKIPPED_BYTES_MAX: usize = 1 << 20;
/// Interval of checks for late connections.
const TICK: Duration = Duration::from_secs(5);
/// Number of spare answer buffers kept by a thread.
const SPARE_BUFFERS_MAX: usize = 64;
/// Makes the kernel poll for bytes before it tries to receive. Source: `IORING_RECVSEND_POLL_FIRST` of its interface.
const POLL_FIRST: u16 = 1;

/// The kind of an operation, stored in its user data above the connection's number.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Receive,
    Fill,
    Skip,
    Send,
    Mailbox,
    Tick,
}

impl Kind {
    fn tag(self, connection: usize) -> u64 {
        (self as u64) << 56 | connection as u64
    }

    fn of(tag: u64) -> (Kind, usize) {
        let kind = match tag >> 56 {
            0 => Kind::Receive,
            1 => Kind::Fill,
            2 => Kind::Skip,
            3 => Kind::Send,
            4 => Kind::Mailbox,
            _ => Kind::Tick,
        };
        (kind, (tag & ((1 << 56) - 1)) as usize)
    }
}

/// Messages to a thread, and the eventfd that wakes it.
struct Mailbox {
    messages: Mutex<Vec<MailboxMessage>>,
    /// True if the eventfd was written since the thread last took its messages.
    is_signalled: AtomicBool,
    eventfd: File,
}

enum MailboxMessage {
    Accepted(Accepted),
    /// Wakes the connection with this number and unique name.
    Wake(usize, u64),
}

impl Mailbox {
    fn new() -> io::Result<Mailbox> {
        // SAFETY: takes numbers only.
        let eventfd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
        if eventfd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new and has no other owner.
        let eventfd = unsafe { File::from_raw_fd(eventfd) };
        Ok(Mailbox { messages: Mutex::default(), is_signalled: AtomicBool::new(false), eventfd })
    }

    fn post(&self, message: MailboxMessage) {
        self.messages.lock().push(message);
        if !self.is_signalled.swap(true, Ordering::AcqRel) {
            // Fails only if the counter overflows, in which case the descriptor is readable anyway.
            let _ = (&self.eventfd).write(&1u64.to_ne_bytes());
        }
    }

    fn take(&self) -> Vec<MailboxMessage> {
        self.is_signalled.store(false, Ordering::Release);
        std::mem::take(&mut self.messages.lock())
    }
}

/// Wakes one connection.
struct ConnectionWaker {
    mailbox: Arc<Mailbox>,
    connection: usize,
    /// Unique, unlike the number, which is reused.
    name: u64,
}

impl Waiter for ConnectionWaker {
    fn wake(&self) {
        self.mailbox.post(MailboxMessage::Wake(self.connection, self.name));
    }
}

/// Returns true if this kernel supports all required operations.
pub(super) fn is_available() -> bool {
    new_ring(8).and_then(|ring| Buffers::register(&ring)).is_ok()
}

fn new_ring(entries: u32) -> io::Result<IoUring> {
    IoUring::builder()
        .setup_single_issuer()
        .setup_coop_taskrun()
        .setup_defer_taskrun()
        .setup_cqsize(entries * 8)
        .build(entries)
}

/// Starts the threads.
pub(super) fn serve(door: &Arc<Door>, threads: usize) -> io::Result<Distribute> {
    let mut mailboxes = Vec::new();
    for index in 0..threads {
        let mailbox = Arc::new(Mailbox::new()?);
        mailboxes.push(Arc::clone(&mailbox));
        let door = Arc::clone(door);
        let thread = std::thread::Builder::new().name(format!("kv-{index}"));
        // The stack is large because plugins may resolve conflicts.
        thread.stack_size(STACK_BYTES).spawn(move || {
            depend_on_this_thread();
            let outcome = Thread::new(door, mailbox).and_then(|mut thread| thread.run());
            if let Err(error) = outcome {
                tracing::error!("a thread of the key-value protocol has ended: {error}");
            }
        })?;
    }
    let mut turn = 0;
    Ok(Box::new(move |accepted| {
        mailboxes[turn % mailboxes.len()].post(MailboxMessage::Accepted(accepted));
        turn += 1;
    }))
}

struct Connection {
    stream: TcpStream,
    from: SocketAddr,
    name: u64,
    session: Session,
    /// Unhandled bytes: part of a frame, or frames behind parked requests.
    rest: Vec<u8>,
    /// The beginning of a long frame, to which the kernel appends. No other bytes are held meanwhile.
    filling: Vec<u8>,
    /// Number of following bytes that belong to a refused frame.
    skipped: usize,
    /// Start of the wait for the rest of a frame or its next piece, in monotonic nanoseconds.
    half_since: Option<u64>,
    /// Start of the time in which no memory is left for the connection's answers, in monotonic nanoseconds. No requests are
    /// handled meanwhile.
    stuck_since: Option<u64>,
    /// Answers not yet submitted.
    output: Answers,
    /// Answers being sent; the first `sent` bytes are sent.
    sending: Answers,
    sent: usize,
    /// The scattered message for the kernel, if the answers are in several places.
    message: Box<Message>,
    /// True while the kernel sends.
    sends: bool,
    next: Next,
    receiving: bool,
    /// True if the socket has more bytes.
    has_more: bool,
    /// True once the peer has closed its sending side.
    ended: bool,
    /// True if the connection is in the list for the end of the round.
    listed: bool,
    opened: Now,
    /// Dropped after the stream.
    permit: Permit,
}

impl Connection {
    /// Returns true if no operation of the kernel is in progress.
    fn is_idle(&self) -> bool {
        !self.receiving && !self.sends
    }

    /// Returns true if more requests may be handled.
    fn takes_requests(&self) -> bool {
        matches!(self.next, Next::More)
            && self.stuck_since.is_none()
            && (self.sending.length == 0 || self.output.length < ANSWERS_HELD_MAX)
    }

    /// Reserves memory for the next piece; without memory, refuses the request and skips the rest of the frame.
    fn reserve(&mut self) {
        let missing = missing_bytes(&self.rest);
        if reserve_piece(&mut self.session, &mut self.rest, missing) {
            return;
        }
        let refuse =
            |session: &mut Session, out: &mut Vec<u8>| session.refuse_frame(&self.rest, out);
        if self.output.add(&mut self.session, refuse) {
            self.skipped = missing;
        } else {
            self.next = Next::Close(Some("there is no memory for its messages".into()));
        }
        self.rest = Vec::new();
    }

    /// Returns the next read operation.
    fn read(&mut self, index: usize, now: Now) -> Entry {
        let fd = Fd(self.stream.as_raw_fd());
        if self.skipped > 0 {
            // Skipped bytes are not copied, so that a client that floods the node with refused requests takes few
            // buffers and little time.
            let count = self.skipped.min(SKIPPED_BYTES_MAX) as u32;
            let skip = opcode::Recv::new(fd, std::ptr::null_mut(), count).flags(libc::MSG_TRUNC);
            return skip.build().user_data(Kind::Skip.tag(index));
        }
        let missing = missing_bytes(&self.rest);
        match self.rest.is_empty() {
            true => self.half_since = None,
            false => drop(self.half_since.get_or_insert(now.monotonic_ns)),
        }
        if missing > buffers::BYTES {
            // The length of the frame was checked when its header arrived.
            let piece = missing.min(PIECE_BYTES);
            self.filling = std::mem::take(&mut self.rest);
            debug_assert!(self.filling.capacity() >= self.filling.len() + piece);
            let room = self.filling.spare_capacity_mut().as_mut_ptr().cast();
            let receive = opcode::Recv::new(fd, room, piece as u32).flags(libc::MSG_WAITALL);
            return receive.build().user_data(Kind::Fill.tag(index));
        }
        opcode::Recv::new(fd, std::ptr::null_mut(), buffers::BYTES as u32)
            .buf_group(buffers::GROUP)
            .ioprio(if self.has_more { 0 } else { POLL_FIRST })
            .build()
            .flags(squeue::Flags::BUFFER_SELECT)
            .user_data(Kind::Receive.tag(index))
    }

    /// Accepts `count` bytes that were read after the beginning of a long frame.
    ///
    /// # Safety
    /// The kernel has written these bytes.
    unsafe fn take_filled(&mut self, count: usize) {
        self.rest = std::mem::take(&mut self.filling);
        // SAFETY: the capacity covers the requested bytes, and the kernel writes no more; the caller guarantees that
        // they are written.
        unsafe { self.rest.set_len(self.rest.len() + count) };
    }

    /// Handles received bytes.
    fn receive(&mut self, bytes: &[u8], now: Now) {
        if !self.takes_requests() || !self.rest.is_empty() {
            self.rest.extend_from_slice(bytes);
            return self.advance(now);
        }
        let receive = |session: &mut Session, out: &mut _| session.receive(bytes, out, now);
        let (consumed, next) = self.output.add(&mut self.session, receive);
        self.next = next;
        self.progress(consumed);
        self.rest.extend_from_slice(&bytes[consumed..]);
    }

    /// Restarts the frame timeout after `consumed` bytes of complete frames.
    fn progress(&mut self, consumed: usize) {
        if consumed > 0 {
            self.half_since = None;
        }
    }

    /// Returns the reason to close the connection if it has exceeded a timeout.
    fn is_late(&self, now: Now) -> Option<String> {
        let has_passed = |since: u64, limit: Duration| {
            now.monotonic_ns.saturating_sub(since) > limit.as_nanos() as u64
        };
        if self.receiving
            && self.half_since.is_some_and(|since| has_passed(since, HALF_FRAME_TIMEOUT))
        {
            return Some(format!(
                "the rest of a message did not arrive within {HALF_FRAME_TIMEOUT:?}"
            ));
        }
        if self.stuck_since.is_some_and(|since| has_passed(since, STUCK_TIMEOUT)) {
            return Some(format!(
                "answers that the client has not read for {STUCK_TIMEOUT:?} fill the memory"
            ));
        }
        let has_logged_in = self.session.is_logged_in();
        (!has_logged_in && has_passed(self.opened.monotonic_ns, LOGIN_TIMEOUT))
            .then(|| format!("no login within {LOGIN_TIMEOUT:?}"))
    }

    /// Charges the answers that the connection holds.
    fn account(&mut self, now: Now) {
        match self.session.hold_output(self.output.length + self.sending.length) {
            true => self.stuck_since = None,
            false => drop(self.stuck_since.get_or_insert(now.monotonic_ns)),
        }
    }

    /// Makes all progress that is possible now.
    fn advance(&mut self, now: Now) {
        if let Some(reason) = self.session.cut() {
            self.next = Next::Close(Some(reason.into()));
            // Also aborts a write that the client does not read.
            let _ = self.stream.shutdown(Shutdown::Both);
        }
        if self.permit.is_closed() {
            self.next = Next::Close(None);
            let _ = self.stream.shutdown(Shutdown::Both);
        }
        let resume = |session: &mut Session, out: &mut _| session.resume(out, now);
        loop {
            match self.next {
                Next::Close(_) => return,
                Next::Flush if self.sending.length + self.output.length == 0 => {}
                Next::Wait if self.session.is_ready() => {
                    let next = self.output.add(&mut self.session, resume);
                    if matches!(next, Next::Close(_)) {
                        self.next = next;
                        return;
                    }
                }
                Next::Flush | Next::Wait => return,
                Next::More => {
                    if self.session.may_speak_first() && self.session.is_ready() {
                        self.next = self.output.add(&mut self.session, resume);
                    }
                    if matches!(self.next, Next::Close(_)) {
                        return;
                    }
                    if self.rest.is_empty() || !self.takes_requests() {
                        return;
                    }
                }
            }
            let receive =
                |session: &mut Session, out: &mut _| session.receive(&self.rest, out, now);
            let (consumed, next) = self.output.add(&mut self.session, receive);
            self.progress(consumed);
            self.rest.drain(..consumed);
            // Free the memory: an idle connection must hold no buffer.
            if self.rest.is_empty() {
                self.rest = Vec::new();
            }
            self.next = next;
            if consumed == 0 {
                return;
            }
        }
    }
}

/// One thread with its ring. The ring is dropped before the memory that the kernel uses.
struct Thread {
    ring: IoUring,
    buffers: Buffers,
    door: Arc<Door>,
    mailbox: Arc<Mailbox>,
    connections: Slab<Connection>,
    names: u64,
    /// Connections to handle at the end of the round.
    list: Vec<usize>,
    spare: Vec<Vec<u8>>,
    eventfd_count: Box<[u8; 8]>,
    tick: Box<Timespec>,
}

impl Thread {
    fn new(door: Arc<Door>, mailbox: Arc<Mailbox>) -> io::Result<Thread> {
        let ring = new_ring(ENTRIES)?;
        let buffers = Buffers::register(&ring)?;
        Ok(Thread {
            ring,
            buffers,
            door,
            mailbox,
            connections: Slab::new(),
            names: 0,
            list: Vec::new(),
            spare: Vec::new(),
            eventfd_count: Box::default(),
            tick: Box::new(Timespec::from(TICK)),
        })
    }

    fn run(&mut self) -> io::Result<()> {
        self.wait_for_mailbox()?;
        self.wait_for_tick()?;
        let mut happened: Vec<(u64, i32, u32)> = Vec::new();
        loop {
            match self.ring.submit_and_wait(1) {
                Err(error) if error.raw_os_error() != Some(libc::EINTR) => return Err(error),
                _ => {}
            }
            let completed = self.ring.completion();
            happened
                .extend(completed.map(|entry| (entry.user_data(), entry.result(), entry.flags())));
            let now = self.door.node.now();
            for (tag, result, flags) in happened.drain(..) {
                match Kind::of(tag) {
                    (Kind::Receive, index) => self.received(index, result, flags, now),
                    (Kind::Fill, index) => self.filled(index, result, flags),
                    (Kind::Skip, index) => self.skipped(index, result),
                    (Kind::Send, index) => self.sent(index, result),
                    (Kind::Mailbox, _) => {
                        for message in self.mailbox.take() {
                            self.read(message, now);
                        }
                        self.wait_for_mailbox()?;
                    }
                    (Kind::Tick, _) => {
                        self.close_timed_out(now);
                        self.wait_for_tick()?;
                    }
                }
            }
            // Submit writes after all completions of the round, so that each connection needs one write.
            while let Some(index) = self.list.pop() {
                self.look_at(index, now)?;
            }
        }
    }

    /// Queues an operation. Submits the queue first if it is full.
    fn push(&mut self, entry: &Entry) -> io::Result<()> {
        loop {
            // SAFETY: the memory of an operation outlives it: the thread's buffers and boxes live as long as the ring,
            // and a connection's answers and frame until it is idle.
            if unsafe { self.ring.submission().push(entry) }.is_ok() {
                return Ok(());
            }
            self.ring.submit()?;
        }
    }

    fn wait_for_mailbox(&mut self) -> io::Result<()> {
        let eventfd = Fd(self.mailbox.eventfd.as_raw_fd());
        let entry = opcode::Read::new(
            eventfd,
            self.eventfd_count.as_mut_ptr(),
            self.eventfd_count.len() as u32,
        );
        self.push(&entry.build().user_data(Kind::Mailbox.tag(0)))
    }

    fn wait_for_tick(&mut self) -> io::Result<()> {
        let entry = opcode::Timeout::new(&raw const *self.tick);
        self.push(&entry.build().user_data(Kind::Tick.tag(0)))
    }

    fn list(&mut self, index: usize) {
        if let Some(connection) = self.connections.get_mut(index)
            && !std::mem::replace(&mut connection.listed, true)
        {
            self.list.push(index);
        }
    }

    fn read(&mut self, message: MailboxMessage, now: Now) {
        match message {
            MailboxMessage::Accepted(accepted) => self.open(accepted, now),
            MailboxMessage::Wake(index, name) => {
                if self.connections.get(index).is_some_and(|known| known.name == name) {
                    self.list(index);
                }
            }
        }
    }

    fn open(&mut self, accepted: Accepted, now: Now) {
        self.names += 1;
        let entry = self.connections.vacant_entry();
        let (connection, name) = (entry.key(), self.names);
        let waker =
            Arc::new(ConnectionWaker { mailbox: Arc::clone(&self.mailbox), connection, name });
        let woken = Arc::clone(&waker);
        accepted.permit.wake_when_closed(move || woken.wake());
        let peer = self.door.peer(accepted.from, false, Shown::default());
        let mut session = Session::new(Arc::clone(&self.door.node) as _, peer, waker);
        session.enable_zero_copy();
        entry.insert(Connection {
            stream: accepted.stream,
            from: accepted.from,
            name,
            session,
            rest: Vec::new(),
            filling: Vec::new(),
            skipped: 0,
            half_since: None,
            stuck_since: None,
            output: Answers::default(),
            sending: Answers::default(),
            sent: 0,
            message: Box::new(Message::new()),
            sends: false,
            next: Next::More,
            receiving: false,
            has_more: false,
            ended: false,
            listed: false,
            opened: now,
            permit: accepted.permit,
        });
        self.list(connection);
    }

    fn received(&mut self, index: usize, result: i32, flags: u32, now: Now) {
        let buffer = cqueue::buffer_select(flags);
        if let Some(connection) = self.connections.get_mut(index) {
            connection.receiving = false;
            connection.has_more = cqueue::sock_nonempty(flags);
            match (result, buffer) {
                (1.., Some(buffer)) => {
                    if connection.output.bytes.capacity() == 0
                        && let Some(spare) = self.spare.pop()
                    {
                        connection.output.bytes = spare;
                    }
                    let bytes = self.buffers.filled(buffer, result as usize);
                    connection.receive(bytes, now);
                }
                // No buffer was free; the connection reads again in its next turn.
                (_, _) if result == -libc::ENOBUFS => {}
                _ => connection.ended = true,
            }
        }
        if let Some(buffer) = buffer {
            self.buffers.give_back(buffer);
        }
        self.list(index);
    }

    /// Handles the arrival of more of a long frame.
    fn filled(&mut self, index: usize, result: i32, flags: u32) {
        let Some(connection) = self.connections.get_mut(index) else { return };
        connection.receiving = false;
        connection.has_more = cqueue::sock_nonempty(flags);
        if result > 0 {
            // SAFETY: the kernel reports that it has written this many bytes.
            unsafe { connection.take_filled(result as usize) };
            connection.half_since = None;
        } else {
            connection.ended = true;
        }
        self.list(index);
    }

    /// Handles skipped bytes of a refused frame.
    fn skipped(&mut self, index: usize, result: i32) {
        let Some(connection) = self.connections.get_mut(index) else { return };
        connection.receiving = false;
        match usize::try_from(result) {
            Ok(count @ 1..) => connection.skipped -= count.min(connection.skipped),
            _ => connection.ended = true,
        }
        self.list(index);
    }

    fn sent(&mut self, index: usize, result: i32) {
        let Some(connection) = self.connections.get_mut(index) else { return };
        connection.sends = false;
        if result <= 0 {
            // The peer has gone away; drop its answers.
            connection.ended = true;
            connection.output = Answers::default();
            connection.sending = Answers::default();
        } else {
            connection.sent += result as usize;
            if connection.sent >= connection.sending.length {
                let mut sent = std::mem::take(&mut connection.sending).bytes;
                sent.clear();
                if sent.capacity() <= BUFFER_BYTES_KEPT && self.spare.len() < SPARE_BUFFERS_MAX {
                    self.spare.push(sent);
                }
            }
        }
        self.list(index);
    }

    /// Makes the progress of a connection that the round allows.
    fn look_at(&mut self, index: usize, now: Now) -> io::Result<()> {
        let Some(connection) = self.connections.get_mut(index) else { return Ok(()) };
        connection.listed = false;
        connection.advance(now);
        if connection.session.is_logged_in() {
            connection.permit.admit();
        }
        connection.account(now);
        if !connection.receiving && !connection.ended && connection.takes_requests() {
            connection.reserve();
        }
        let fd = Fd(connection.stream.as_raw_fd());
        let mut entries: [Option<Entry>; 2] = [None, None];

        if connection.sending.length == 0 && connection.output.length > 0 {
            connection.sending = std::mem::take(&mut connection.output);
            connection.sent = 0;
        }
        if !connection.sends && connection.sending.length > 0 {
            connection.sends = true;
            let Connection { sending, sent, message, .. } = connection;
            let flags = libc::MSG_NOSIGNAL | libc::MSG_WAITALL;
            let send = if sending.bodies.is_empty() {
                let rest = &sending.bytes[*sent..];
                opcode::Send::new(fd, rest.as_ptr(), rest.len() as u32).flags(flags).build()
            } else {
                let message = message.of(sending.pieces(*sent));
                opcode::SendMsg::new(fd, message).flags(flags as u32).build()
            };
            entries[0] = Some(send.user_data(Kind::Send.tag(index)));
        }

        let closes = connection.ended || matches!(connection.next, Next::Close(_));
        if closes && connection.sending.length == 0 {
            if connection.is_idle() {
                self.close(index);
                return Ok(());
            }
            // Ends the pending read, and with it the connection.
            let _ = connection.stream.shutdown(Shutdown::Both);
        }
        if !connection.receiving && !closes && connection.takes_requests() {
            connection.receiving = true;
            entries[1] = Some(connection.read(index, now));
        }
        for entry in entries.iter().flatten() {
            self.push(entry)?;
        }
        Ok(())
    }

    fn close(&mut self, index: usize) {
        let connection = self.connections.remove(index);
        if let Next::Close(Some(reason)) = connection.next {
            tracing::warn!("closed the connection of {}: {reason}", connection.from);
        }
    }

    /// Closes connections whose clients have exceeded a timeout.
    fn close_timed_out(&mut self, now: Now) {
        let mut late = Vec::new();
        for (index, connection) in &mut self.connections {
            if let Some(reason) = connection.is_late(now) {
                connection.next = Next::Close(Some(reason));
                // Also aborts a write that the client does not read.
                let _ = connection.stream.shutdown(Shutdown::Both);
                late.push(index);
            }
        }
        for index in late {
            self.list(index);
        }
    }
}
