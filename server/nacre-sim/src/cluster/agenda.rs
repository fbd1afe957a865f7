//! What is to happen, in the order of its moments.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Events that are to happen, each at a moment; of those of one moment that which was added first comes first.
///
/// Moments are moved about again and again as others come and go, so they stand apart from the events.
pub(super) struct Agenda<E> {
    moments: BinaryHeap<Reverse<Moment>>,
    places: Vec<Option<E>>,
    free: Vec<usize>,
    added: u64,
}

/// The moment, the number of the event, and its place, from the highest bits down: one comparison orders two.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Moment(u128);

/// Bits for the place of an event: how many wait at a time.
const PLACE_BITS: u32 = 24;
/// Bits for its number.
const NUMBER_BITS: u32 = 40;

impl Moment {
    fn new(at: u64, number: u64, place: usize) -> Moment {
        debug_assert!(number < 1 << NUMBER_BITS && place < 1 << PLACE_BITS);
        Moment(u128::from(at) << 64 | u128::from(number << PLACE_BITS | place as u64))
    }

    fn at(self) -> u64 {
        (self.0 >> 64) as u64
    }

    fn number(self) -> u64 {
        self.0 as u64 >> PLACE_BITS
    }

    fn place(self) -> usize {
        (self.0 as u64 & ((1 << PLACE_BITS) - 1)) as usize
    }
}

impl<E> Default for Agenda<E> {
    fn default() -> Agenda<E> {
        Agenda { moments: BinaryHeap::new(), places: Vec::new(), free: Vec::new(), added: 0 }
    }
}

impl<E> Agenda<E> {
    /// Adds what is to happen at `at`.
    pub fn add(&mut self, at: u64, event: E) {
        let place = self.free.pop().unwrap_or_else(|| {
            self.places.push(None);
            self.places.len() - 1
        });
        self.places[place] = Some(event);
        self.added += 1;
        self.moments.push(Reverse(Moment::new(at, self.added, place)));
    }

    /// Takes the next that happens until `until`: its moment, its number in the order of adding, and what it is.
    pub fn next(&mut self, until: u64) -> Option<(u64, u64, E)> {
        let Reverse(moment) = *self.moments.peek()?;
        if moment.at() > until {
            return None;
        }
        self.moments.pop();
        self.free.push(moment.place());
        let event = self.places[moment.place()].take().expect("its place was not free");
        Some((moment.at(), moment.number(), event))
    }

    /// How many were taken so far.
    pub fn taken(&self) -> u64 {
        self.added - self.moments.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_in_the_order_of_their_moments_and_then_of_adding() {
        let mut agenda = Agenda::default();
        for (at, event) in [(5, 'd'), (1, 'a'), (5, 'e'), (3, 'b')] {
            agenda.add(at, event);
        }
        let mut next = |until: u64| agenda.next(until).map(|(at, _, event)| (at, event));
        assert_eq!((next(0), next(3), next(3)), (None, Some((1, 'a')), Some((3, 'b'))));
        assert_eq!(
            (next(3), next(9), next(9), next(9)),
            (None, Some((5, 'd')), Some((5, 'e')), None)
        );
        agenda.add(4, 'f');
        assert_eq!(agenda.next(9), Some((4, 5, 'f')));
        assert_eq!(agenda.taken(), 5);
    }
}
