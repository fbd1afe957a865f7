//! A connection between a device and the hub: bytes arrive in order, later, in pieces.

use crate::chance::Chance;
use nacre::Session;
use std::collections::VecDeque;

/// Bytes in flight, with their time of arrival.
type Pieces = VecDeque<(u64, Vec<u8>)>;

/// A connection.
pub(crate) struct Link {
    pub session: Session,
    to_hub: Pieces,
    to_device: Pieces,
    delay_ns: u64,
}

impl Link {
    pub fn new(session: Session, delay_ns: u64) -> Link {
        Link { session, to_hub: Pieces::new(), to_device: Pieces::new(), delay_ns }
    }

    fn send(pieces: &mut Pieces, bytes: Vec<u8>, now_ns: u64, delay_ns: u64, chance: &mut Chance) {
        if bytes.is_empty() {
            return;
        }
        let last = pieces.back().map_or(0, |(at, _)| *at);
        let at = last.max(now_ns + chance.between(0, delay_ns));
        let cut = chance.below(bytes.len() as u64 + 1) as usize;
        let (head, tail) = bytes.split_at(cut);
        for piece in [head, tail].into_iter().filter(|piece| !piece.is_empty()) {
            pieces.push_back((at, piece.to_vec()));
        }
    }

    pub fn send_to_hub(&mut self, bytes: Vec<u8>, now_ns: u64, chance: &mut Chance) {
        Link::send(&mut self.to_hub, bytes, now_ns, self.delay_ns, chance);
    }

    pub fn send_to_device(&mut self, bytes: Vec<u8>, now_ns: u64, chance: &mut Chance) {
        Link::send(&mut self.to_device, bytes, now_ns, self.delay_ns, chance);
    }

    pub fn at_hub(&mut self, now_ns: u64) -> Option<Vec<u8>> {
        take(&mut self.to_hub, now_ns)
    }

    pub fn at_device(&mut self, now_ns: u64) -> Option<Vec<u8>> {
        take(&mut self.to_device, now_ns)
    }
}

fn take(pieces: &mut Pieces, now_ns: u64) -> Option<Vec<u8>> {
    let is_due = pieces.front().is_some_and(|(at, _)| *at <= now_ns);
    is_due.then(|| pieces.pop_front().expect("there is one").1)
}
