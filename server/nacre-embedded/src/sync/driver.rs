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
/// The age from which a connection counts as steady: after its end, the pauses begin with the shortest.
const STEADY: Duration = Duration::from_secs(60);
/// Failures that count at most once a node has answered. They limit the pauses of a network that flaps to 8 s: shorter ones
/// would use up a battery, and longer ones would miss the moments in which the network works.
const FLAPS_MAX: u32 = 3;
/// The longest silence of a node. A node pings the device every 30 s.
const SILENCE_MAX: Duration = Duration::from_secs(90);
/// Messages that are received before anything is sent.
const MESSAGES_AT_ONCE: usize = 32;

/// The pauses between attempts to reach a node: each is twice as long as the one before.
#[derive(Clone, Copy, Debug, Default)]
struct Pauses {
    failures: u32,
}

impl Pauses {
    /// Records a failure; returns the pause before the next attempt. `chance` is any number, which spreads attempts.
    fn after_failure(&mut self, chance: u32) -> Duration {
        let pause = PAUSE_MIN.saturating_mul(1 << self.failures.min(9)).min(PAUSE_MAX);
        self.failures = self.failures.saturating_add(1);
        pause * (750 + chance % 500) / 1000
    }

    /// Records a message of the node on a connection of this age.
    fn after_message(&mut self, age: Duration) {
        self.failures = if age >= STEADY { 0 } else { self.failures.min(FLAPS_MAX) };
    }
}

/// A node.
struct Node {
    target: Target,
    socket: Option<Socket>,
    connected_at: Instant,
    heard_at: Instant,
    pauses: Pauses,
    retry_at: Instant,
}

impl Node {
    fn new(target: Target) -> Node {
        let now = Instant::now();
        Node {
            target,
            socket: None,
            connected_at: now,
            heard_at: now,
            pauses: Pauses::default(),
            retry_at: now,
        }
    }

    /// Records a connection.
    fn begin(&mut self, socket: Socket) {
        let now = Instant::now();
        self.socket = Some(socket);
        (self.connected_at, self.heard_at) = (now, now);
    }

    /// Records a failure and the time of the next attempt.
    fn fail(&mut self) {
        self.socket = None;
        let pause = self.pauses.after_failure(getrandom::u32().unwrap_or(0));
        self.retry_at = Instant::now() + pause;
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
                    node.begin(socket);
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
                    node.heard_at = Instant::now();
                    node.pauses.after_message(node.heard_at - node.connected_at);
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Attempts and connections of an hour in which the network works and fails for 2 s, alternately.
    fn hour_of_flapping(seed: u32) -> (u32, u32) {
        let (window, hour) = (Duration::from_secs(2), Duration::from_secs(3600));
        let (mut pauses, mut now, mut chance) = (Pauses::default(), Duration::ZERO, seed);
        let (mut attempts, mut connections) = (0, 0);
        while now < hour {
            attempts += 1;
            let number = now.as_millis() / window.as_millis();
            if number % 2 == 0 {
                connections += 1;
                pauses.after_message(Duration::ZERO);
                now = window * u32::try_from(number + 1).unwrap();
            }
            chance = chance.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            now += pauses.after_failure(chance >> 16);
        }
        (attempts, connections)
    }

    #[test]
    fn a_network_that_flaps_costs_less_than_one_attempt_in_5_seconds() {
        for seed in 0..20 {
            let (attempts, connections) = hour_of_flapping(seed);
            assert!(attempts < 720, "seed {seed}: {attempts} attempts");
            // It goes on all the same.
            assert!(connections >= 15, "seed {seed}: {connections} connections");
        }
    }

    #[test]
    fn pauses_double_up_to_5_minutes_and_begin_again_after_a_steady_connection() {
        let mut pauses = Pauses::default();
        // 250 is the middle of the spread.
        let mut seconds = || pauses.after_failure(250).as_secs();
        let found: Vec<u64> = (0..12).map(|_| seconds()).collect();
        assert_eq!(found, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]);
        pauses.after_message(Duration::from_secs(59));
        assert_eq!(pauses.after_failure(250).as_secs(), 8);
        pauses.after_message(STEADY);
        assert_eq!(pauses.after_failure(250).as_secs(), 1);
        let (shortest, longest) = (pauses.after_failure(0), pauses.after_failure(499));
        assert!(shortest >= Duration::from_millis(1500) && longest < Duration::from_secs(5));
    }
}
