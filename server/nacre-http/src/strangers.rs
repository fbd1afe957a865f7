//! Limits of connections, in total and without a login.
//!
//! Files and connections share the descriptors of the process. A client can hold a connection without a login, so
//! without a limit unauthenticated clients ("strangers") could exhaust the descriptors that the store needs. Three
//! quarters of the descriptors are for connections, a third of these for strangers, and half of those for strangers of
//! one address.
//!
//! ```text
//! accept ─► Connections::enter ─► Permit ─► Permit::admit at the login ─► drop with the connection
//!                                    └────► closed, when a newcomer displaces the oldest stranger
//! ```
//!
//! When all places of strangers are taken, a newcomer displaces the oldest stranger: a client that intends to log in
//! does so within milliseconds, and finds a place however many silent strangers there are. A displaced connection takes
//! a moment to close; while many close, newcomers are refused. Key-value and HTTP connections are counted together.

use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Maximum number of connections without a login. Each may hold a frame of 16 KiB or headers of 64 KiB.
const STRANGERS_MAX: usize = 4096;
/// Places reserved for connections from the machine itself, so that an administrator can always log in.
const LOCAL_RESERVE: usize = 16;
/// Interval of log lines about refused or closed connections.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// Limits of the number of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of descriptors of all connections.
    pub descriptors_max: usize,
    /// Maximum number of connections without a login.
    pub strangers_max: usize,
    /// Maximum number of connections without a login per address. A 64-bit IPv6 network counts as one address.
    pub strangers_per_address_max: usize,
}

impl Limits {
    /// Returns the limits of a process with this many descriptors. A quarter remains for the store's files and outgoing
    /// connections.
    pub fn of_descriptors(open_files_max: u64) -> Limits {
        let open_files_max = usize::try_from(open_files_max).unwrap_or(usize::MAX);
        let strangers_max = (open_files_max / 4).clamp(2, STRANGERS_MAX);
        Limits {
            descriptors_max: (open_files_max - open_files_max / 4).max(4),
            strangers_max,
            strangers_per_address_max: strangers_max / 2,
        }
    }
}

/// Counts of open, refused and displaced connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Descriptors held by connections.
    pub descriptors: usize,
    /// Connections without a login.
    pub strangers: usize,
    /// Connections refused because no place was free.
    pub refused: u64,
    /// Connections without a login that were closed for newcomers.
    pub displaced: u64,
}

/// The connections of all the node's ports.
pub struct Connections {
    limits: Limits,
    state: Mutex<State>,
    refused: AtomicU64,
    displaced: AtomicU64,
}

#[derive(Default)]
struct State {
    descriptors: usize,
    /// Numbers increase, so the first is the oldest. A stranger stays until its connection is closed.
    strangers: BTreeMap<u64, Stranger>,
    /// Strangers that were not asked to close.
    waiting: BTreeSet<u64>,
    by_address: HashMap<IpAddr, Address>,
    next: u64,
    logged: Option<Instant>,
}

struct Stranger {
    address: IpAddr,
    closing: Arc<Closing>,
}

#[derive(Default)]
struct Address {
    count: usize,
    waiting: BTreeSet<u64>,
}

/// A request to close a connection for a newcomer, and its waiters.
#[derive(Default)]
struct Closing {
    is_wanted: AtomicBool,
    notify: Notify,
    wake: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl Closing {
    fn want(&self) {
        self.is_wanted.store(true, Ordering::Release);
        self.notify.notify_one();
        if let Some(wake) = self.wake.get() {
            wake();
        }
    }
}

/// The place of a connection, held while its socket is open.
pub struct Permit {
    connections: Arc<Connections>,
    number: u64,
    descriptors: usize,
    is_admitted: AtomicBool,
    closing: Arc<Closing>,
}

/// Returns the address to count: for IPv6 the network, because a host has all of its addresses.
fn counted(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64)))
        }
        address @ IpAddr::V4(_) => address,
    }
}

impl State {
    fn forget(&mut self, number: u64) {
        let Some(Stranger { address, .. }) = self.strangers.remove(&number) else { return };
        self.waiting.remove(&number);
        if let Some(of_address) = self.by_address.get_mut(&address) {
            of_address.count -= 1;
            of_address.waiting.remove(&number);
            if of_address.count == 0 {
                self.by_address.remove(&address);
            }
        }
    }

    /// Asks a stranger to close its connection.
    fn displace(&mut self, number: u64) {
        self.waiting.remove(&number);
        if let Some(Stranger { address, closing }) = self.strangers.get(&number) {
            closing.want();
            if let Some(of_address) = self.by_address.get_mut(address) {
                of_address.waiting.remove(&number);
            }
        }
    }
}

impl Connections {
    /// Creates the limits without connections.
    pub fn new(limits: Limits) -> Arc<Connections> {
        let (refused, displaced) = (AtomicU64::new(0), AtomicU64::new(0));
        Arc::new(Connections { limits, state: Mutex::default(), refused, displaced })
    }

    /// Takes a place for a connection from `address` that holds this many descriptors. Returns `None` if none is free:
    /// the caller then closes the connection at once.
    pub fn enter(self: &Arc<Self>, address: IpAddr, descriptors: usize) -> Option<Permit> {
        let mut state = self.state.lock();
        let is_local = address.to_canonical().is_loopback();
        let address = counted(address);
        let Limits { descriptors_max, strangers_max, strangers_per_address_max } = self.limits;
        let reserve = if is_local { 0 } else { LOCAL_RESERVE.min(descriptors_max / 8) };
        let of_address = state.by_address.get(&address);
        let count = of_address.map_or(0, |of_address| of_address.count);
        if state.descriptors + descriptors + reserve > descriptors_max
            || state.strangers.len() >= strangers_max + strangers_max / 2
            || count >= 2 * strangers_per_address_max
        {
            self.refused.fetch_add(1, Ordering::Relaxed);
            self.log(&mut state);
            return None;
        }
        let oldest = match of_address {
            Some(of_address) if of_address.waiting.len() >= strangers_per_address_max => {
                of_address.waiting.first().copied()
            }
            _ if state.waiting.len() >= strangers_max => state.waiting.first().copied(),
            _ => None,
        };
        if let Some(oldest) = oldest {
            state.displace(oldest);
            self.displaced.fetch_add(1, Ordering::Relaxed);
            self.log(&mut state);
        }
        let number = state.next;
        state.next += 1;
        state.descriptors += descriptors;
        let closing = Arc::new(Closing::default());
        state.strangers.insert(number, Stranger { address, closing: Arc::clone(&closing) });
        state.waiting.insert(number);
        let of_address = state.by_address.entry(address).or_default();
        of_address.count += 1;
        of_address.waiting.insert(number);
        drop(state);
        let (connections, is_admitted) = (Arc::clone(self), AtomicBool::new(false));
        Some(Permit { connections, number, descriptors, is_admitted, closing })
    }

    /// Returns the counts of connections.
    pub fn counts(&self) -> Counts {
        self.counts_in(&self.state.lock())
    }

    /// Returns the limits.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    fn counts_in(&self, state: &State) -> Counts {
        Counts {
            descriptors: state.descriptors,
            strangers: state.strangers.len(),
            refused: self.refused.load(Ordering::Relaxed),
            displaced: self.displaced.load(Ordering::Relaxed),
        }
    }

    fn log(&self, state: &mut State) {
        if state.logged.is_some_and(|logged| logged.elapsed() < LOG_INTERVAL) {
            return;
        }
        state.logged = Some(Instant::now());
        let Counts { descriptors, strangers, refused, displaced } = self.counts_in(state);
        let Limits { descriptors_max, strangers_max, .. } = self.limits;
        tracing::warn!(
            "{strangers} connections without a login of at most {strangers_max}, {descriptors} descriptors of connections of at most \
             {descriptors_max}: {refused} connections were refused so far, {displaced} without a login closed for others; a higher limit \
             of open files (ulimit -n) raises these limits"
        );
    }
}

impl Permit {
    /// Marks the connection as logged in, or as that of a node: it no longer counts as a stranger, and is not closed
    /// for newcomers. Cheap to call repeatedly.
    pub fn admit(&self) {
        if !self.is_admitted.swap(true, Ordering::AcqRel) {
            self.connections.state.lock().forget(self.number);
        }
    }

    /// Returns true if the connection must close for a newcomer: see [`Permit::closed`].
    pub fn is_closed(&self) -> bool {
        self.closing.is_wanted.load(Ordering::Acquire) && !self.is_admitted.load(Ordering::Acquire)
    }

    /// Completes when the connection must close for a newcomer. Only one task may wait at a time.
    pub async fn closed(&self) {
        while !self.is_closed() {
            self.closing.notify.notified().await;
        }
    }

    /// Calls `wake`, on any thread, when the connection must close for a newcomer; for connections that are no tasks. Only the first
    /// call counts. `wake` must not block.
    pub fn wake_when_closed(&self, wake: impl Fn() + Send + Sync + 'static) {
        if self.closing.wake.set(Box::new(wake)).is_ok()
            && self.is_closed()
            && let Some(wake) = self.closing.wake.get()
        {
            wake();
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut state = self.connections.state.lock();
        state.descriptors -= self.descriptors;
        state.forget(self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits =
        Limits { descriptors_max: 64, strangers_max: 32, strangers_per_address_max: 16 };

    fn address(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    #[test]
    fn a_process_of_1024_descriptors_keeps_a_quarter_for_its_files() {
        let limits = Limits::of_descriptors(1024);
        let expected =
            Limits { descriptors_max: 768, strangers_max: 256, strangers_per_address_max: 128 };
        assert_eq!(limits, expected);
        assert_eq!(Limits::of_descriptors(u64::MAX).strangers_max, STRANGERS_MAX);
    }

    #[test]
    fn a_newcomer_takes_the_place_of_the_oldest_stranger_of_its_address() {
        let connections = Connections::new(LIMITS);
        let held: Vec<Permit> =
            (0..16).map(|_| connections.enter(address(1), 1).unwrap()).collect();
        assert!(!held.iter().any(Permit::is_closed));
        let other = connections.enter(address(2), 1).unwrap();
        let newcomer = connections.enter(address(1), 1).unwrap();
        assert!(held[0].is_closed());
        assert!(!held[1].is_closed() && !other.is_closed() && !newcomer.is_closed());
        assert_eq!(connections.counts().displaced, 1);
    }

    #[test]
    fn strangers_who_are_slow_to_close_are_bounded() {
        let connections = Connections::new(LIMITS);
        let first: Vec<_> = (0..100).filter_map(|_| connections.enter(address(1), 1)).collect();
        assert_eq!(first.len(), 32);
        let others: Vec<_> = (2..100).filter_map(|n| connections.enter(address(n), 1)).collect();
        assert_eq!(others.len(), 16);
        assert_eq!(connections.counts().strangers, 48);
        drop(others);
        assert_eq!(connections.counts().descriptors, 32);
    }

    #[test]
    fn a_logged_in_connection_is_not_closed_and_not_counted_as_a_stranger() {
        let connections = Connections::new(LIMITS);
        let first = connections.enter(address(1), 1).unwrap();
        first.admit();
        let held: Vec<_> = (0..100).filter_map(|_| connections.enter(address(1), 1)).collect();
        assert_eq!(held.len(), 32);
        assert!(!first.is_closed());
        drop((first, held));
        assert_eq!(connections.counts().descriptors, 0);
        assert!(connections.state.lock().by_address.is_empty());
    }

    #[test]
    fn the_last_places_are_for_the_machine_itself() {
        let connections = Connections::new(LIMITS);
        let mut held = Vec::new();
        while let Some(permit) = connections.enter(address(1), 2) {
            permit.admit();
            held.push(permit);
        }
        assert_eq!(connections.counts().descriptors, 56);
        assert!(connections.enter(IpAddr::from([127, 0, 0, 1]), 2).is_some());
    }

    #[test]
    fn all_addresses_of_an_ipv6_network_are_one() {
        let address = |text: &str| counted(text.parse().unwrap());
        assert_eq!(address("2001:db8::1"), address("2001:db8::ffff:1"));
        assert_ne!(address("2001:db8::1"), address("2001:db8:0:1::1"));
        assert_eq!(address("::ffff:10.0.0.1"), IpAddr::from([10, 0, 0, 1]));
    }

    #[tokio::test]
    async fn a_displaced_connection_is_woken() {
        let connections = Connections::new(LIMITS);
        let first = connections.enter(address(1), 1).unwrap();
        let _held: Vec<_> = (0..16).map(|_| connections.enter(address(1), 1)).collect();
        first.closed().await;
    }
}
