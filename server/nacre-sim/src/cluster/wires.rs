//! Connections between nodes and from clients, and the bytes in flight on them.

use super::{ClientEvent, Cluster, Event, MS, US, USER};
use foldhash::fast::FixedState;
use nacre_bucket::kv::{Next as SessionNext, Peer, Session};
use nacre_node::Link;
use std::collections::VecDeque;
use std::hash::BuildHasher;
use std::sync::Arc;

/// Pause before a failed connection attempt is repeated.
const CONNECT_AGAIN_NS: u64 = 100 * MS;
/// Interval at which blocked bytes are retried.
const HELD_UP_NS: u64 = 20 * MS;
/// Time after which a connection with blocked bytes breaks.
const CONNECTION_PATIENCE_NS: u64 = 8000 * MS;

/// Typical size of a session's output.
const OUT_BYTES: usize = 256;

/// Maximum bytes of a transmission that are included in the hash of events.
const HASHED_BYTES_MAX: usize = 512;

/// An end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// The node with the session.
    Server,
    /// The node or client that opened the connection.
    Caller,
}

/// Bytes in flight in one direction.
#[derive(Default)]
pub(super) struct Pipe {
    under_way: VecDeque<(u64, Vec<u8>)>,
    /// Bytes that have arrived but are not consumed.
    arrived: Vec<u8>,
    held_up_since: Option<u64>,
    /// Time at which blocked bytes are retried, all at once.
    again_at: u64,
}

/// See [`Wire::woken`].
#[derive(Default)]
pub(super) struct Woken {
    pub(super) link: bool,
    pub(super) session: bool,
}

/// A connection.
pub(super) struct Wire {
    /// The node that opened it; `None` for clients.
    pub(super) from: Option<usize>,
    pub(super) to: usize,
    pub(super) link: Option<Box<dyn Link>>,
    pub(super) session: Option<Session>,
    towards: Pipe,
    back: Pipe,
    /// Whether each end was woken and has not looked yet. As in a real event loop, further wakes until then have no
    /// effect.
    pub(super) woken: Woken,
}

impl Wire {
    /// Creates a connection without bytes in flight.
    pub(super) fn new(
        from: Option<usize>,
        to: usize,
        link: Option<Box<dyn Link>>,
        session: Option<Session>,
    ) -> Wire {
        let (towards, back) = (Pipe::default(), Pipe::default());
        Wire { from, to, link, session, towards, back, woken: Woken::default() }
    }
}

/// All connections by number, from 1, in a vector because each event looks them up many times.
#[derive(Default)]
pub(super) struct Wires(Vec<Option<Box<Wire>>>);

impl Wires {
    /// Returns the number of the next connection.
    pub(super) fn next(&self) -> u64 {
        self.0.len() as u64 + 1
    }

    pub(super) fn push(&mut self, wire: Wire) {
        self.0.push(Some(Box::new(wire)));
    }

    pub(super) fn get(&self, wire: u64) -> Option<&Wire> {
        self.0.get(wire as usize - 1)?.as_deref()
    }

    pub(super) fn get_mut(&mut self, wire: u64) -> Option<&mut Wire> {
        self.0.get_mut(wire as usize - 1)?.as_deref_mut()
    }

    fn remove(&mut self, wire: u64) -> Option<Box<Wire>> {
        self.0.get_mut(wire as usize - 1)?.take()
    }

    fn iter(&self) -> impl Iterator<Item = (u64, &Wire)> {
        (1..).zip(&self.0).filter_map(|(number, wire)| Some((number, wire.as_deref()?)))
    }

    /// Drops the connections for which `keeps` returns false.
    pub(super) fn retain(&mut self, mut keeps: impl FnMut(u64, &mut Wire) -> bool) {
        for (number, wire) in (1..).zip(&mut self.0) {
            wire.take_if(|wire| !keeps(number, wire));
        }
    }
}

impl Cluster {
    /// Opens a connection of a client to a node, if the node is running and reachable for clients.
    pub fn connect(&mut self, to: usize) -> Option<u64> {
        if self.network.closed[to] {
            return None;
        }
        let process = self.machines[to].process.as_ref()?;
        let wire = self.wires.next();
        let peer = Peer { confidential: true, user: Some(USER.into()), ..Peer::default() };
        let waiter = process.world.waiter(wire);
        let session = Some(Session::new(Arc::clone(&process.node) as _, peer, waiter));
        self.wires.push(Wire::new(None, to, None, session));
        Some(wire)
    }

    /// Sends bytes of a client.
    pub fn send(&mut self, wire: u64, bytes: Vec<u8>) {
        self.put(wire, Side::Server, bytes);
    }

    /// Closes a connection of a client.
    pub fn close(&mut self, wire: u64) {
        self.wires.remove(wire);
    }

    /// Breaks the connections between two nodes.
    pub fn reset(&mut self, one: usize, other: usize) {
        let between = |wire: &Wire| {
            (wire.from, wire.to) == (Some(one), other) || (wire.from, wire.to) == (Some(other), one)
        };
        let broken: Vec<u64> =
            self.wires.iter().filter(|(_, wire)| between(wire)).map(|(wire, _)| wire).collect();
        broken.into_iter().for_each(|wire| self.break_wire(wire));
    }

    /// Schedules a look of node `index` at its end of a connection.
    pub(super) fn wake(&mut self, wire: u64, index: usize) {
        let Some(known) = self.wires.get_mut(wire) else { return };
        let is_link = known.from == Some(index);
        let woken = if is_link { &mut known.woken.link } else { &mut known.woken.session };
        if !std::mem::replace(woken, true) {
            let delay = self.chance.between(1, 50 * US);
            self.at(delay, if is_link { Event::Look { wire } } else { Event::Resume { wire } });
        }
    }

    fn is_blocked(&self, from: Option<usize>, to: Option<usize>) -> bool {
        match (from, to) {
            (Some(from), Some(to)) => self.network.blocked[from][to],
            (None, Some(node)) | (Some(node), None) => self.network.closed[node],
            (None, None) => false,
        }
    }

    pub(super) fn make(&mut self, wire: u64) {
        let Some(known) = self.wires.get(wire) else { return };
        let (from, to) = (known.from.expect("clients connect at once"), known.to);
        if known.link.as_ref().is_some_and(|link| link.is_over()) {
            return self.drop_wire(wire);
        }
        let is_cut = self.network.blocked[from][to] || self.network.blocked[to][from];
        if is_cut || !self.works(to) || !self.works(from) {
            return self.at(CONNECT_AGAIN_NS, Event::Connect { wire });
        }
        self.enter(from);
        let process = self.machines[to].process.as_ref().expect("it works");
        let peer = Peer { confidential: true, is_node: true, ..Peer::default() };
        let waiter = process.world.waiter(wire);
        let session = Session::new(Arc::clone(&process.node) as _, peer, waiter);
        let mut out = Vec::new();
        let known = self.wires.get_mut(wire).expect("it was there");
        known.session = Some(session);
        (known.towards, known.back) = (Pipe::default(), Pipe::default());
        if let Some(link) = &mut known.link {
            link.connected(&mut out);
        }
        self.put(wire, Side::Server, out);
        self.settle(from);
        self.at(1, Event::Look { wire });
    }

    /// Puts bytes in flight.
    fn put(&mut self, wire: u64, side: Side, mut bytes: Vec<u8>) {
        if bytes.is_empty() {
            return;
        }
        // The rest of a large value carries no further information.
        let begin = &bytes[..bytes.len().min(HASHED_BYTES_MAX)];
        self.count(FixedState::with_seed(bytes.len() as u64).hash_one(begin));
        let delay = self.delay();
        if !self.chance.once_in(self.network.splits) {
            return self.put_part(wire, side, bytes, delay);
        }
        let rest = bytes.split_off(self.chance.below(bytes.len() as u64) as usize);
        self.put_part(wire, side, bytes, delay);
        let later = self.chance.between(0, self.network.split_ns);
        self.put_part(wire, side, rest, delay + later);
    }

    fn put_part(&mut self, wire: u64, side: Side, bytes: Vec<u8>, delay: u64) {
        let now = self.now;
        let Some(known) = self.wires.get_mut(wire) else { return };
        let pipe = if side == Side::Server { &mut known.towards } else { &mut known.back };
        let before = pipe.under_way.back().map_or(0, |(at, _)| *at);
        let at = before.max(now + delay);
        pipe.under_way.push_back((at, bytes));
        self.at(at - now, Event::Arrive { wire, side });
    }

    pub(super) fn arrive(&mut self, wire: u64, side: Side) -> Option<ClientEvent> {
        let now = self.now;
        let known = self.wires.get(wire)?;
        let ends = [known.from, Some(known.to)];
        let [from, to] = if side == Side::Server { ends } else { [ends[1], ends[0]] };
        let is_blocked = self.is_blocked(from, to);
        let known = self.wires.get_mut(wire)?;
        let pipe = if side == Side::Server { &mut known.towards } else { &mut known.back };
        if is_blocked {
            let since = *pipe.held_up_since.get_or_insert(now);
            if now - since > CONNECTION_PATIENCE_NS {
                self.break_wire(wire);
            } else if pipe.again_at <= now {
                pipe.again_at = now + HELD_UP_NS;
                self.at(HELD_UP_NS, Event::Arrive { wire, side });
            }
            return None;
        }
        pipe.held_up_since = None;
        let before = pipe.arrived.len();
        while pipe.under_way.front().is_some_and(|(at, _)| *at <= now) {
            let (_, bytes) = pipe.under_way.pop_front().expect("there is one");
            if pipe.arrived.is_empty() {
                pipe.arrived = bytes;
            } else {
                pipe.arrived.extend(bytes);
            }
        }
        if pipe.arrived.len() == before {
            return None;
        }
        match (side, known.from) {
            (Side::Server, _) => self.serve(wire, false),
            (Side::Caller, None) => {
                let bytes = std::mem::take(&mut known.back.arrived);
                Some(ClientEvent::Received { wire, bytes })
            }
            (Side::Caller, Some(_)) => {
                self.poll_link(wire);
                None
            }
        }
    }

    /// Keeps the bytes of [`ClientEvent::ResponseFrame`] that a client has not consumed.
    pub fn keep(&mut self, wire: u64, rest: &[u8]) {
        if let Some(known) = self.wires.get_mut(wire).filter(|_| !rest.is_empty()) {
            known.back.arrived = rest.to_vec();
        }
    }

    /// Runs the session of a connection.
    pub(super) fn serve(&mut self, wire: u64, resumes: bool) -> Option<ClientEvent> {
        let to = self.wires.get(wire)?.to;
        let now = self.enter(to)?.now();
        let known = self.wires.get_mut(wire)?;
        let session = known.session.as_mut()?;
        let mut out = Vec::with_capacity(OUT_BYTES);
        let mut next = SessionNext::More;
        if session.cut().is_some() {
            next = SessionNext::Close(None);
        } else if resumes && session.is_ready() {
            next = session.resume(&mut out, now);
        }
        while matches!(next, SessionNext::More | SessionNext::Flush) {
            let consumed;
            (consumed, next) = session.receive(&known.towards.arrived, &mut out, now);
            known.towards.arrived.drain(..consumed);
            if !matches!(next, SessionNext::Flush) {
                break;
            }
        }
        let is_ready = session.is_ready();
        let closes = matches!(next, SessionNext::Close(_));
        self.put(wire, Side::Caller, out);
        self.settle(to);
        if closes {
            self.break_wire(wire);
        } else if is_ready {
            self.wake(wire, to);
        }
        None
    }

    /// Runs the link of a connection between nodes.
    pub(super) fn poll_link(&mut self, wire: u64) {
        let Some(from) = self.wires.get(wire).and_then(|known| known.from) else { return };
        let Some(now) = self.enter(from).map(|node| node.now()) else { return };
        let known = self.wires.get_mut(wire).expect("it was there");
        let Some(link) = known.link.as_mut() else { return };
        if link.is_over() {
            return self.drop_wire(wire);
        }
        if known.session.is_none() {
            return;
        }
        let mut out = Vec::new();
        let received = link.receive(&known.back.arrived, &mut out, now);
        let again = link.poll(&mut out, now);
        match received {
            Ok(consumed) => {
                known.back.arrived.drain(..consumed);
                self.put(wire, Side::Server, out);
            }
            Err(_) => self.break_wire(wire),
        }
        if let Some(again) = again {
            self.at(again.as_nanos() as u64, Event::Look { wire });
        }
        self.settle(from);
    }

    /// Breaks a connection; both ends notice.
    pub(super) fn break_wire(&mut self, wire: u64) {
        let Some(known) = self.wires.get_mut(wire) else { return };
        let (session, to) = (known.session.take(), known.to);
        (known.towards, known.back) = (Pipe::default(), Pipe::default());
        self.enter(to);
        drop(session);
        self.settle(to);
        let delay = self.delay();
        self.at(delay, Event::Lost { wire });
    }

    /// Lets the opener of a connection notice its loss.
    pub(super) fn lose(&mut self, wire: u64) -> Option<ClientEvent> {
        let known = self.wires.get_mut(wire)?;
        if known.session.is_some() {
            return None;
        }
        let Some(from) = known.from else {
            self.wires.remove(wire);
            return Some(ClientEvent::Broken { wire });
        };
        (known.towards, known.back) = (Pipe::default(), Pipe::default());
        if let Some(link) = &mut known.link {
            link.lost();
        }
        self.settle(from);
        self.at(CONNECT_AGAIN_NS, Event::Connect { wire });
        None
    }

    fn drop_wire(&mut self, wire: u64) {
        let Some(known) = self.wires.remove(wire) else { return };
        let (from, to) = (known.from, known.to);
        for node in from.into_iter().chain([to]) {
            self.enter(node);
        }
        drop(known);
        for node in from.into_iter().chain([to]) {
            self.settle(node);
        }
    }
}
