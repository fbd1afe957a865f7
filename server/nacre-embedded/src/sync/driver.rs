//! The thread of sync: sockets, waits, and pauses between attempts.

use super::SyncState;
use super::session::SyncSession;
use super::shared::Shared;
use super::socket::{Access, Socket, Target};
use crate::Error;
use nacre_sync::{Failure, LineId, State};
use std::collections::BTreeMap;
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The pause before the second attempt; it doubles with each failure.
const PAUSE_MIN: Duration = Duration::from_secs(1);
/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(300);
/// The longest silence of a node. A node pings the device every 30 s.
const SILENCE_MAX: Duration = Duration::from_secs(90);
/// Messages that are received before anything is sent.
const MESSAGES_AT_ONCE: usize = 32;

/// A node.
struct Node {
    target: Target,
    socket: Option<Socket>,
    heard_at: Instant,
    attempts: u32,
    retry_at: Instant,
}

impl Node {
    fn new(target: Target) -> Node {
        let now = Instant::now();
        Node { target, socket: None, heard_at: now, attempts: 0, retry_at: now }
    }

    /// Records a failure and the time of the next attempt: later after each failure, with jitter.
    fn fail(&mut self) {
        self.socket = None;
        let pause = PAUSE_MIN.saturating_mul(1 << self.attempts.min(9)).min(PAUSE_MAX);
        let jitter = getrandom::u32().unwrap_or(0) % 500;
        self.attempts = self.attempts.saturating_add(1);
        self.retry_at = Instant::now() + pause * (750 + jitter) / 1000;
    }
}

/// The thread's state.
pub(super) struct Driver {
    session: SyncSession,
    access: Access,
    shared: Arc<Shared>,
    bell: UnixStream,
    nodes: BTreeMap<LineId, Node>,
    next_line: u32,
}

/// The node at the address in the options.
const FIRST: LineId = LineId(0);

impl Driver {
    pub fn new(
        session: SyncSession,
        access: Access,
        shared: Arc<Shared>,
        bell: UnixStream,
    ) -> Driver {
        let nodes = BTreeMap::from([(FIRST, Node::new(access.target.clone()))]);
        Driver { session, access, shared, bell, nodes, next_line: 1 }
    }

    /// Runs until the handle is dropped, the database is closed, or an error needs a person to fix
    /// it.
    pub fn run(mut self) {
        let reason = loop {
            if self.shared.stops() {
                break None;
            }
            if matches!(self.session.db().inner().check(), Err(Error::Closed | Error::Forked)) {
                break Some(Error::Closed.to_string());
            }
            if self.shared.takes_hint() {
                let now = Instant::now();
                self.nodes.values_mut().for_each(|node| node.retry_at = node.retry_at.min(now));
            }
            if let Err(reason) = self.connect() {
                break Some(reason);
            }
            let wait = match self.work() {
                Ok(wait) => wait,
                Err(reason) => break Some(reason),
            };
            self.report();
            self.wait(wait);
        };
        let _ = self.session.save();
        for (_, node) in std::mem::take(&mut self.nodes) {
            node.socket.into_iter().for_each(Socket::close);
        }
        self.shared.end(reason.unwrap_or_else(|| "it was stopped".into()), self.session.status());
    }

    /// Connects to the nodes that are due.
    fn connect(&mut self) -> Result<(), String> {
        let now = Instant::now();
        let due = self.nodes.iter().filter(|(_, it)| it.socket.is_none() && it.retry_at <= now);
        for id in due.map(|(id, _)| *id).collect::<Vec<_>>() {
            let Some(node) = self.nodes.get_mut(&id) else { continue };
            if self.session.status().state == State::Offline {
                self.shared.set_state(SyncState::Connecting);
            }
            match self.access.connect(&node.target) {
                Ok((socket, hello)) => {
                    (node.socket, node.heard_at) = (Some(socket), Instant::now());
                    match self.session.connected(id, &hello) {
                        Ok(()) if id == FIRST => self.add_nodes(&hello.nodes),
                        Ok(()) => {}
                        Err(failure) => self.fail(id, &failure)?,
                    }
                }
                Err(unconnected) if unconnected.is_denied => return Err(unconnected.reason),
                Err(unconnected) => {
                    self.shared.set_trouble(unconnected.reason);
                    node.fail();
                }
            }
        }
        Ok(())
    }

    /// Updates the list of nodes from the list of nodes that have the bucket.
    fn add_nodes(&mut self, listed: &[nacre_sync::NodeAddress]) {
        let is_encrypted = self.access.target.is_encrypted;
        let targets = listed.iter().filter_map(|node| {
            let address = if is_encrypted { node.encrypted.as_ref()? } else { &node.plain };
            Target::parse(address, is_encrypted)
        });
        let targets: Vec<Target> = targets.collect();
        let gone =
            self.nodes.iter().filter(|(id, it)| **id != FIRST && !targets.contains(&it.target));
        for id in gone.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.nodes.remove(&id);
            self.session.disconnected(id);
        }
        for target in targets {
            if self.nodes.values().all(|node| node.target != target) {
                self.nodes.insert(LineId(self.next_line), Node::new(target));
                self.next_line += 1;
            }
        }
    }

    /// Ends one connection or all of them.
    ///
    /// # Errors
    /// The reason, if it needs a person to fix it.
    fn fail(&mut self, id: LineId, failure: &Failure) -> Result<(), String> {
        if !failure.is_temporary() {
            return Err(failure.to_string());
        }
        self.shared.set_trouble(failure.to_string());
        let all = matches!(failure, Failure::Local(_) | Failure::Renew(_));
        for (line, node) in &mut self.nodes {
            if *line == id || all {
                self.session.disconnected(*line);
                node.fail();
            }
        }
        Ok(())
    }

    /// Receives and sends what is ready. Returns the time until more work is due.
    fn work(&mut self) -> Result<Option<Duration>, String> {
        let mut has_more = false;
        for id in self.nodes.keys().copied().collect::<Vec<_>>() {
            has_more |= self.receive(id)?;
        }
        if self.shared.takes_question() {
            self.session.ask();
        }
        let due = match self.session.advance() {
            Ok(due) => due,
            Err(failure) => {
                self.fail(FIRST, &failure)?;
                None
            }
        };
        for (id, node) in &mut self.nodes {
            let Some(socket) = &mut node.socket else { continue };
            let Some(output) = self.session.output(*id) else { continue };
            if let Err(reason) = socket.send(output) {
                self.shared.set_trouble(reason);
                self.session.disconnected(*id);
                node.fail();
            }
        }
        Ok(if has_more { Some(Duration::ZERO) } else { due })
    }

    /// Receives messages of a node. Returns true if there may be more.
    fn receive(&mut self, id: LineId) -> Result<bool, String> {
        for _ in 0..MESSAGES_AT_ONCE {
            let Some(node) = self.nodes.get_mut(&id) else { return Ok(false) };
            let Some(socket) = &mut node.socket else { return Ok(false) };
            let failure = match socket.receive() {
                Ok(Some(bytes)) => {
                    (node.heard_at, node.attempts) = (Instant::now(), 0);
                    match self.session.receive(id, &bytes) {
                        Ok(()) => continue,
                        Err(failure) => failure,
                    }
                }
                Ok(None) if node.heard_at.elapsed() < SILENCE_MAX => return Ok(false),
                Ok(None) => Failure::Protocol("the node does not respond".into()),
                Err(reason) => Failure::Protocol(reason),
            };
            self.fail(id, &failure)?;
            return Ok(false);
        }
        Ok(true)
    }

    fn report(&mut self) {
        while let Some(notice) = self.session.next_notice() {
            self.shared.notify(notice);
        }
        let is_waiting = self.nodes.values().all(|node| node.socket.is_none());
        self.shared.report(self.session.status(), self.session.is_in_step(), is_waiting);
    }

    /// Waits until something happens.
    fn wait(&mut self, due: Option<Duration>) {
        let mut timeout = due.unwrap_or(SILENCE_MAX).min(SILENCE_MAX);
        let now = Instant::now();
        let mut waited =
            vec![libc::pollfd { fd: self.bell.as_raw_fd(), events: libc::POLLIN, revents: 0 }];
        for node in self.nodes.values() {
            match &node.socket {
                Some(socket) => {
                    let write = if socket.wants_write() { libc::POLLOUT } else { 0 };
                    let (fd, events) = (socket.descriptor(), libc::POLLIN | write);
                    waited.push(libc::pollfd { fd, events, revents: 0 });
                }
                None => timeout = timeout.min(node.retry_at.saturating_duration_since(now)),
            }
        }
        // Rounded up, so that the work is due when the wait ends.
        let timeout_ms = timeout.as_micros().div_ceil(1000).min(i32::MAX as u128) as i32;
        // SAFETY: the list has the given number of entries, and lives until the call returns.
        unsafe { libc::poll(waited.as_mut_ptr(), waited.len() as libc::nfds_t, timeout_ms) };
        // Emptied before any work is looked for: an event that comes meanwhile rings again.
        let mut rung = [0; 64];
        while matches!(self.bell.read(&mut rung), Ok(count) if count == rung.len()) {}
    }
}
