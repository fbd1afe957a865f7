//! A priority queue of future events.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Future events, ordered by time; events at the same time are ordered by insertion.
///
/// The heap moves its times frequently, so they are stored apart from the events.
pub(super) struct Agenda<E> {
    moments: BinaryHeap<Reverse<Moment>>,
    places: Vec<Option<E>>,
    free: Vec<usize>,
    added: u64,
}

/// Time, sequence number and slot of an event, from the highest bits down, so that one comparison orders two.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Moment(u128);

/// Number of bits for the slot of an event, which limits the number of pending events.
const PLACE_BITS: u32 = 24;
/// Number of bits for the sequence number.
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
    /// Adds an event at time `at`.
    pub fn add(&mut self, at: u64, event: E) {
        let place = self.free.pop().unwrap_or_else(|| {
            self.places.push(None);
            self.places.len() - 1
        });
        self.places[place] = Some(event);
        self.added += 1;
        self.moments.push(Reverse(Moment::new(at, self.added, place)));
    }

    /// Removes the next event up to time `until`: its time, its sequence number, and the event.
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

    /// Returns the number of removed events.
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
