//! Bodies of documents that the host holds for an instance while a request is answered: most of them only pass through,
//! and need not enter the sandbox.
//!
//! ```text
//! piece of the guest   {"results":[ , , ]}      places   12: document 7, 13: document 8
//! sent to the client   {"results":[{"a":1},{"a":2},]}
//! ```

use crate::capability::Body;
use crate::instance::Refused;
use std::collections::VecDeque;

/// Bodies by number. Numbers are never reused, so a number of an earlier request is invalid.
#[derive(Default)]
pub struct Held {
    /// The number of the first body in the queue.
    first: u64,
    /// `None` for a released body.
    bodies: VecDeque<Option<Body>>,
    bytes: usize,
    /// Positions of bodies in the piece that the current call returns.
    places: Vec<(usize, Body)>,
    placed_bytes: usize,
}

/// Memory overhead of a body in bytes.
const OVERHEAD_BYTES: usize = 64;

fn cost(body: &Body) -> usize {
    body.len() + OVERHEAD_BYTES
}

impl Held {
    /// Holds bodies. Returns the number of the first; the numbers of the others follow.
    pub fn add(&mut self, bodies: impl IntoIterator<Item = Body>) -> u64 {
        let number = self.first + self.bodies.len() as u64;
        for body in bodies {
            self.bytes += cost(&body);
            self.bodies.push_back(Some(body));
        }
        number
    }

    /// Returns the bytes of all held bodies, and of those that are placed in the next piece.
    pub fn bytes(&self) -> usize {
        self.bytes + self.placed_bytes
    }

    /// Returns a held body.
    pub fn body(&self, number: u64) -> Result<&Body, Refused> {
        let body = self.at(number).and_then(|at| self.bodies.get(at)).and_then(Option::as_ref);
        body.ok_or(Refused::NotHeld)
    }

    /// Places bodies in the piece of the reply that the current call returns.
    pub fn place_all(&mut self, places: Vec<(u32, u64)>) -> Result<(), Refused> {
        for (at, number) in places {
            let body = self.body(number)?.clone();
            self.place(at, body)?;
        }
        Ok(())
    }

    /// Places consecutive bodies with a separator between them, and releases them.
    pub fn pass_all(
        &mut self,
        at: u32,
        first: u64,
        count: u32,
        between: String,
    ) -> Result<(), Refused> {
        let between = Body::from(between.into_bytes());
        self.places.reserve(2 * self.bodies.len().min(count as usize));
        for offset in 0..u64::from(count) {
            let number = first.checked_add(offset).ok_or(Refused::NotHeld)?;
            let body = self.take(number).ok_or(Refused::NotHeld)?;
            if offset > 0 {
                self.place(at, between.clone())?;
            }
            self.place(at, body)?;
        }
        self.drop_front();
        Ok(())
    }

    /// Releases bodies.
    pub fn release(&mut self, numbers: &[u64]) {
        for number in numbers {
            drop(self.take(*number));
        }
        self.drop_front();
    }

    fn place(&mut self, at: u32, body: Body) -> Result<(), Refused> {
        let at = at as usize;
        if self.places.last().is_some_and(|(last, _)| at < *last) {
            return Err(Refused::Place);
        }
        self.placed_bytes += cost(&body);
        self.places.push((at, body));
        Ok(())
    }

    fn take(&mut self, number: u64) -> Option<Body> {
        let at = self.at(number)?;
        let body = self.bodies.get_mut(at)?.take()?;
        self.bytes -= cost(&body);
        Some(body)
    }

    /// Returns the index of a number in the queue.
    fn at(&self, number: u64) -> Option<usize> {
        number.checked_sub(self.first).and_then(|at| usize::try_from(at).ok())
    }

    fn drop_front(&mut self) {
        while let Some(None) = self.bodies.front() {
            self.bodies.pop_front();
            self.first += 1;
        }
    }

    /// Releases all bodies at the end of the request.
    pub fn clear(&mut self) {
        self.first += self.bodies.len() as u64;
        self.bodies.clear();
        self.places.clear();
        (self.bytes, self.placed_bytes) = (0, 0);
    }

    /// Returns the piece with the bodies placed since the last one. The result may have at most `bytes_max` bytes.
    pub fn fill(&mut self, piece: Vec<u8>, bytes_max: usize) -> Result<Vec<u8>, Filled> {
        let places = std::mem::take(&mut self.places);
        self.placed_bytes = 0;
        let bytes = piece.len() + places.iter().map(|(_, body)| body.len()).sum::<usize>();
        if bytes > bytes_max {
            return Err(Filled::TooLarge(bytes));
        }
        if places.is_empty() {
            return Ok(piece);
        }
        let mut out = Vec::with_capacity(bytes);
        let mut from = 0;
        for (at, body) in places {
            out.extend_from_slice(piece.get(from..at).ok_or(Filled::Outside)?);
            out.extend_from_slice(&body);
            from = at;
        }
        out.extend_from_slice(&piece[from..]);
        Ok(out)
    }
}

/// The reason why a piece cannot be filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filled {
    /// The piece would have this many bytes.
    TooLarge(usize),
    /// A position is beyond the end of the piece.
    Outside,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bodies(texts: &[&str]) -> Vec<Body> {
        texts.iter().map(|text| Body::from(text.as_bytes().to_vec())).collect()
    }

    #[test]
    fn a_piece_has_bodies_at_their_positions() {
        let mut held = Held::default();
        assert_eq!(held.add(bodies(&["one", "two"])), 0);
        held.place_all(vec![(1, 1), (1, 0)]).unwrap();
        held.place_all(vec![(3, 1)]).unwrap();
        assert_eq!(held.fill(b"[,]".to_vec(), 12), Ok(b"[twoone,]two".to_vec()));
        assert_eq!(
            held.fill(b"[]".to_vec(), 12),
            Ok(b"[]".to_vec()),
            "they were in the piece before"
        );
        assert_eq!(held.fill(b"[]".to_vec(), 1), Err(Filled::TooLarge(2)));
        held.place_all(vec![(0, 0)]).unwrap();
        assert_eq!(held.fill(b"[]".to_vec(), 4), Err(Filled::TooLarge(5)));
        held.place_all(vec![(3, 0)]).unwrap();
        assert_eq!(held.fill(b"[]".to_vec(), 9), Err(Filled::Outside));
        assert_eq!(held.place_all(vec![(2, 0), (1, 0)]), Err(Refused::Place));
    }

    #[test]
    fn adjacent_bodies_are_placed_at_once_and_released() {
        let mut held = Held::default();
        held.add(bodies(&["one", "two", "three", "four"]));
        held.pass_all(1, 1, 2, ", ".into()).unwrap();
        assert_eq!(held.body(1).err(), Some(Refused::NotHeld));
        held.pass_all(1, 0, 1, ", ".into()).unwrap();
        held.pass_all(2, 9, 0, ", ".into()).unwrap();
        assert_eq!(held.bytes(), 17 + 5 * OVERHEAD_BYTES, "all but one are in no piece yet");
        assert_eq!(held.fill(b"[]".to_vec(), 99), Ok(b"[two, threeone]".to_vec()));
        assert_eq!(held.bytes(), 4 + OVERHEAD_BYTES);
        for (first, count) in [(2, 1), (3, 2), (3, u32::MAX), (u64::MAX, 1)] {
            let passed = held.pass_all(0, first, count, String::new());
            assert_eq!(passed, Err(Refused::NotHeld), "{count} from {first}");
        }
        assert_eq!(held.add(bodies(&["five"])), 4);
        held.place_all(vec![(1, 4)]).unwrap();
        assert_eq!(held.pass_all(0, 4, 1, String::new()), Err(Refused::Place));
    }

    #[test]
    fn numbers_name_held_bodies_and_are_not_reused() {
        let mut held = Held::default();
        assert_eq!(held.add(bodies(&["a", "bb", "ccc"])), 0);
        held.release(&[1, 7, u64::MAX]);
        assert_eq!(held.bytes(), 4 + 2 * OVERHEAD_BYTES);
        assert_eq!(held.body(1).err(), Some(Refused::NotHeld));
        held.release(&[0, 0, 1]);
        assert_eq!(held.bytes(), 3 + OVERHEAD_BYTES);
        assert_eq!(held.body(2).map(|body| body.to_vec()), Ok(b"ccc".to_vec()));
        assert_eq!(held.add(bodies(&["d"])), 3);
        held.place_all(vec![(0, 3)]).unwrap();
        held.release(&[2, 3]);
        assert_eq!(held.bytes(), 1 + OVERHEAD_BYTES, "it is in no piece yet");
        held.clear();
        assert_eq!((held.bytes(), held.add(bodies(&["e"]))), (0, 4));
        assert_eq!(held.place_all(vec![(0, 3)]), Err(Refused::NotHeld));
        assert_eq!(held.fill(b"[]".to_vec(), 9), Ok(b"[]".to_vec()));
    }
}
