//! Limits of long answers: their number, and the time for which a client may stop reading.
//!
//! An answer in pieces holds its source until the client has read it: an instance of a plugin, a snapshot, a scan. A
//! client that does not read occupies such a place for [`STALLED_MAX`]. Places are counted by user, so that no user
//! takes the places of others, and by address, so that programs that share a password do not take the places of other
//! hosts.

use super::body::{Reply, error_reply};
use hyper::StatusCode;
use hyper::header::{HeaderValue, RETRY_AFTER};
use nacre_auth::INTERNAL;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::hash::Hash;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

/// Longest time for which a client may stop reading an answer before the node closes its connection. It is longer than
/// a pause of a garbage collector or a reroute in a network, and short enough that places become free while an
/// administrator looks for their holder.
pub const STALLED_MAX: Duration = Duration::from_secs(60);

/// Kinds of answers. Each kind has its own places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An answer of a plugin or a query, which ends by itself.
    Answer,
    /// An answer that lasts until the client disconnects: changes, maps.
    Watch,
}

/// Limits of one kind of answer.
#[derive(Clone, Copy, Debug)]
struct Limits {
    all: usize,
    of_user: usize,
    of_address: usize,
}

impl Kind {
    /// An answer holds megabytes, and ends soon: an application may have as many as it has connections. A watch holds little
    /// memory, and many applications that share a user keep one each.
    fn limits(self) -> Limits {
        match self {
            Kind::Answer => Limits { all: 1024, of_user: 256, of_address: 256 },
            Kind::Watch => Limits { all: 4096, of_user: 1024, of_address: 512 },
        }
    }
}

/// Counts the answers in progress.
#[derive(Default)]
pub struct Streams {
    answers: Mutex<Places>,
    watches: Mutex<Places>,
}

#[derive(Default)]
struct Places {
    all: usize,
    by_user: HashMap<String, usize>,
    by_address: HashMap<IpAddr, usize>,
}

impl Places {
    fn has_room(&self, user: &str, address: IpAddr, limits: Limits) -> bool {
        let is_below = |count: Option<&usize>, limit| count.is_none_or(|count| *count < limit);
        self.all < limits.all
            && is_below(self.by_user.get(user), limits.of_user)
            && is_below(self.by_address.get(&address), limits.of_address)
    }
}

fn leave<K: Hash + Eq>(counts: &mut HashMap<K, usize>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}

/// The place of an answer, until it is dropped.
pub struct Place {
    streams: Arc<Streams>,
    kind: Kind,
    user: String,
    address: IpAddr,
}

impl Streams {
    fn places(&self, kind: Kind) -> &Mutex<Places> {
        match kind {
            Kind::Answer => &self.answers,
            Kind::Watch => &self.watches,
        }
    }

    /// Takes a place for an answer to `user` at `address`. Other nodes of the cluster need no place.
    ///
    /// # Errors
    /// 503 if the user, the address, or all clients together have reached their limit.
    pub fn enter(
        self: &Arc<Self>,
        kind: Kind,
        user: &str,
        address: IpAddr,
    ) -> Result<Option<Place>, Reply> {
        if user == INTERNAL {
            return Ok(None);
        }
        let address = counted(address);
        let mut places = self.places(kind).lock();
        if !places.has_room(user, address, kind.limits()) {
            return Err(no_place());
        }
        places.all += 1;
        *places.by_user.entry(user.to_owned()).or_default() += 1;
        *places.by_address.entry(address).or_default() += 1;
        Ok(Some(Place { streams: Arc::clone(self), kind, user: user.to_owned(), address }))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut places = self.streams.places(self.kind).lock();
        places.all -= 1;
        leave(&mut places.by_user, &self.user);
        leave(&mut places.by_address, &self.address);
    }
}

/// Returns the address by which places are counted. For IPv6 this is the network, because a host has all its addresses.
fn counted(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64)))
        }
        address @ IpAddr::V4(_) => address,
    }
}

fn no_place() -> Reply {
    let reason =
        "too many answers to this user, or to this address, are under way: read them, or try again";
    let mut reply = error_reply(StatusCode::SERVICE_UNAVAILABLE, "busy", reason);
    reply.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    reply
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    #[test]
    fn users_and_addresses_have_separate_limits() {
        let streams = Arc::new(Streams::default());
        let mut held = Vec::new();
        for number in 0..256 {
            held.push(streams.enter(Kind::Answer, "ann", address((number % 2) as u8)).unwrap());
        }
        let refused = streams.enter(Kind::Answer, "ann", address(9)).err().unwrap();
        assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert!(streams.enter(Kind::Watch, "ann", address(9)).is_ok());
        for _ in 0..128 {
            held.push(streams.enter(Kind::Answer, "bob", address(0)).unwrap());
        }
        assert!(streams.enter(Kind::Answer, "eve", address(0)).is_err(), "the address has 256");
        assert!(streams.enter(Kind::Answer, "eve", address(3)).is_ok());
        assert!(streams.enter(Kind::Answer, INTERNAL, address(0)).unwrap().is_none());
        drop(held);
        assert!(streams.enter(Kind::Answer, "ann", address(0)).is_ok());
        let places = streams.answers.lock();
        assert_eq!((places.all, places.by_user.len(), places.by_address.len()), (0, 0, 0));
    }

    #[test]
    fn all_streams_together_are_limited() {
        let streams = Arc::new(Streams::default());
        let held: Vec<_> = (0..=255)
            .flat_map(|last| (0..5).map(move |user| (format!("user{user}"), address(last))))
            .filter_map(|(user, address)| streams.enter(Kind::Answer, &user, address).ok())
            .collect();
        assert_eq!(held.len(), 1024);
    }
}
