//! Prefetching for the requests behind the current one. Each request is visited three times before its turn, so that
//! the memory that it touches is in the cache.

use crate::Bucket;
use crate::prefetch::{PrefetchStep, STEPS};
use nacre_protocol::{Glance, Opcode, glance};
use nacre_types::{KEY_BYTES_MAX, Vbid};

/// Buffer for a key with the prefix of the default collection.
type Room = [u8; KEY_BYTES_MAX + 1];

/// The progress of the prefetch steps in one block of input.
pub(super) struct Lookahead<'a> {
    input: &'a [u8],
    /// For each step, the next request to visit: its offset in the input, and its number.
    next: [(usize, usize); STEPS.len()],
    /// The number of the current request.
    turn: usize,
}

impl<'a> Lookahead<'a> {
    pub fn new(input: &'a [u8]) -> Lookahead<'a> {
        Lookahead { input, next: [(0, 0); STEPS.len()], turn: 0 }
    }

    /// Takes the steps that are due at the turn of the next request. That request itself is skipped: prefetching for it
    /// is too late.
    pub fn advance(&mut self, mut take: impl FnMut(PrefetchStep, &Glance<'_>)) {
        for ((step, ahead), (at, number)) in STEPS.into_iter().zip(&mut self.next) {
            while *number <= self.turn + ahead {
                let Some(seen) = self.input.get(*at..).and_then(glance) else { break };
                if *number > self.turn {
                    take(step, &seen);
                }
                *at += seen.length;
                *number += 1;
            }
        }
        self.turn += 1;
    }
}

/// Takes a step for a request. If `prefixed` is false, the key has no collection prefix.
pub(super) fn take(step: PrefetchStep, bucket: &Bucket, seen: &Glance<'_>, prefixed: bool) {
    if !Opcode::from_byte(seen.opcode_byte).is_some_and(Opcode::addresses_document) {
        return;
    }
    let mut room: Room = [0; KEY_BYTES_MAX + 1];
    let key = match seen.key {
        key if prefixed => key,
        key => {
            let Some(place) = room.get_mut(1..=key.len()) else { return };
            place.copy_from_slice(key);
            &room[..=key.len()]
        }
    };
    bucket.prefetch(step, Vbid(seen.vbid), key);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prefetch::due;
    use nacre_protocol::HEADER_BYTES;

    /// Encodes reads of these keys, one after the other.
    fn reads(keys: &[String]) -> Vec<u8> {
        let mut input = Vec::new();
        for key in keys {
            let mut header = [0; HEADER_BYTES];
            (header[0], header[3], header[11]) = (0x80, key.len() as u8, key.len() as u8);
            input.extend_from_slice(&header);
            input.extend_from_slice(key.as_bytes());
        }
        input
    }

    /// Returns, for each request, how many requests before its turn the steps were taken.
    fn taken(input: &[u8], keys: &[String]) -> Vec<Vec<usize>> {
        let mut lookahead = Lookahead::new(input);
        let mut taken = vec![Vec::new(); keys.len()];
        for turn in 0..keys.len() {
            lookahead.advance(|step, seen| {
                let number = keys.iter().position(|key| key.as_bytes() == seen.key).unwrap();
                assert!(taken[number].len() == step as usize, "{number}: each step once, in order");
                taken[number].push(number - turn);
            });
        }
        taken
    }

    #[test]
    fn each_request_is_prefetched_in_three_steps() {
        let keys: Vec<String> = (0..12).map(|number| format!("key {number}")).collect();
        let taken = taken(&reads(&keys), &keys);
        assert_eq!(taken[0], [0; 0], "the first has its turn at once");
        assert_eq!(taken[1], [1, 1, 1]);
        assert_eq!(taken[4], [4, 3, 1]);
        assert_eq!(taken[11], [5, 3, 1]);
    }

    #[test]
    fn documents_addressed_by_collection_number_are_prefetched_as_requests_are() {
        let keys: Vec<String> = (0..12).map(|number| format!("key {number}")).collect();
        let mut by_number = vec![Vec::new(); keys.len()];
        for turn in 0..keys.len() {
            for (step, number) in due(turn).filter(|(_, number)| *number < keys.len()) {
                assert!(by_number[number].len() == step as usize);
                by_number[number].push(number - turn);
            }
        }
        assert_eq!(by_number, taken(&reads(&keys), &keys));
    }

    #[test]
    fn incomplete_and_malformed_frames_are_not_prefetched() {
        let keys: Vec<String> = (0..3).map(|number| format!("key {number}")).collect();
        let mut input = reads(&keys);
        input.truncate(input.len() - 1);
        assert_eq!(taken(&input, &keys), [vec![], vec![1, 1, 1], vec![]]);
        let second = HEADER_BYTES + keys[0].len();
        input[second] = 0x47;
        assert_eq!(taken(&input, &keys), [[0; 0]; 3]);
        // A body that exceeds any memory.
        input[second] = 0x80;
        input[second + 8..second + 12].fill(0xff);
        assert_eq!(taken(&input, &keys), [vec![], vec![1, 1, 1], vec![]]);
    }
}
