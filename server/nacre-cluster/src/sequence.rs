//! Sequences of the query language in the agreed state. Each node allocates blocks of values, so that no value is returned
//! twice.

use crate::change::DroppedKeyspace;
use crate::query_function::key_of;
use crate::{FunctionId, Refusal};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Maximum number of sequences per cluster: all of them are stored with each change.
const SEQUENCES_MAX: usize = 1000;
/// Maximum size of a block.
const CACHE_MAX: u32 = 1 << 20;

/// A sequence of numbers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sequence {
    /// The first value.
    pub start: i64,
    /// The difference between consecutive values; never 0.
    pub increment: i64,
    /// The minimum value.
    pub min: i64,
    /// The maximum value.
    pub max: i64,
    /// True if the sequence restarts at its end.
    pub cycle: bool,
    /// Number of values in a block; at least 1.
    pub cache: u32,
    /// The next value to allocate; `None` when the sequence is exhausted.
    pub next: Option<i64>,
    /// The cluster revision at which the sequence got its current definition. Nodes discard blocks of another epoch.
    #[serde(default)]
    pub epoch: u64,
}

/// A block of allocated values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// The first value.
    pub from: i64,
    /// Number of values; consecutive values differ by the increment.
    pub count: u32,
    /// The next value to allocate after the block.
    pub then: Option<i64>,
}

impl Sequence {
    /// Returns the next block; `None` when the sequence is exhausted.
    pub fn block(&self) -> Option<Block> {
        let from = self.next?;
        let (step, bound) = match self.increment > 0 {
            true => (i128::from(self.increment), i128::from(self.max)),
            false => (i128::from(self.increment), i128::from(self.min)),
        };
        let left = (bound - i128::from(from)) / step + 1;
        let count = left.clamp(1, i128::from(self.cache)) as u32;
        let after = i128::from(from) + step * i128::from(count);
        let is_within = (i128::from(self.min)..=i128::from(self.max)).contains(&after);
        let then = match is_within {
            true => i64::try_from(after).ok(),
            false if self.cycle && self.increment > 0 => Some(self.min),
            false if self.cycle => Some(self.max),
            false => None,
        };
        Some(Block { from, count, then })
    }

    fn check(&self) -> Result<(), Refusal> {
        let invalid = |reason: &str| Err(Refusal::Invalid { field: "_", reason: reason.into() });
        let range = self.min..=self.max;
        if self.increment == 0 {
            return invalid("A sequence cannot have an increment of 0");
        }
        if !range.contains(&self.start) || self.next.is_some_and(|next| !range.contains(&next)) {
            return invalid("The values of a sequence are between its least and its greatest");
        }
        if !(1..=CACHE_MAX).contains(&self.cache) {
            return invalid("A node takes 1 to 1048576 values of a sequence at once");
        }
        Ok(())
    }
}

/// Sequences by the keys of their [`FunctionId`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sequences(BTreeMap<String, Sequence>);

impl Sequences {
    /// Returns a sequence.
    pub fn get(&self, id: &FunctionId) -> Option<&Sequence> {
        self.0.get(&key_of(id)?)
    }

    /// Iterates over all sequences.
    pub fn iter(&self) -> impl Iterator<Item = (FunctionId, &Sequence)> {
        self.0.iter().map(|(key, sequence)| (FunctionId::of_key(key), sequence))
    }

    /// Removes the sequences of a dropped bucket or scope.
    pub(crate) fn forget(&mut self, dropped: &DroppedKeyspace<'_>) {
        self.0.retain(|key, _| !dropped.contains_key(key));
    }

    fn found(&mut self, id: &FunctionId) -> Result<&mut Sequence, Refusal> {
        let missing = || Refusal::SequenceNotFound { name: id.name.clone() };
        key_of(id).and_then(|key| self.0.get_mut(&key)).ok_or_else(missing)
    }

    /// Creates or replaces a sequence. Its epoch becomes `rev`, the revision of the cluster.
    pub(crate) fn put(
        &mut self,
        id: &FunctionId,
        sequence: &Sequence,
        replace: bool,
        rev: u64,
    ) -> Result<(), Refusal> {
        sequence.check()?;
        let invalid = |reason: &str| Err(Refusal::Invalid { field: "_", reason: reason.into() });
        let Some(key) = key_of(id).filter(|_| id.scope.is_some()) else {
            return invalid("The name of a sequence has 1 to 255 bytes and no '/'");
        };
        let known = self.0.get(&key);
        match (known, replace) {
            (Some(_), false) => {
                return Err(Refusal::SequenceExists { name: id.name.clone() });
            }
            (None, true) => return Err(Refusal::SequenceNotFound { name: id.name.clone() }),
            (None, false) if self.0.len() >= SEQUENCES_MAX => {
                return invalid("There are 1000 sequences at most");
            }
            _ => {}
        }
        // A new sequence with the name of a dropped one gets another epoch as well, because nodes may still hold blocks of
        // that one.
        self.0.insert(key, Sequence { epoch: rev, ..sequence.clone() });
        Ok(())
    }

    pub(crate) fn drop_sequence(&mut self, id: &FunctionId) -> Result<(), Refusal> {
        self.found(id)?;
        key_of(id).and_then(|key| self.0.remove(&key));
        Ok(())
    }

    /// Allocates the next block, unless another node has allocated it since.
    pub(crate) fn advance(
        &mut self,
        id: &FunctionId,
        epoch: u64,
        from: i64,
    ) -> Result<(), Refusal> {
        let sequence = self.found(id)?;
        match sequence.block().filter(|block| block.from == from && sequence.epoch == epoch) {
            Some(block) => {
                sequence.next = block.then;
                Ok(())
            }
            None => Err(Refusal::SequenceMoved { name: id.name.clone() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BucketChange, Change, Cluster, QueryChange};

    fn sequence(increment: i64, cycle: bool) -> Sequence {
        let (min, max) = (1, 5);
        let start = if increment > 0 { min } else { max };
        Sequence { start, increment, min, max, cycle, cache: 2, next: Some(start), epoch: 0 }
    }

    fn taken(mut sequence: Sequence, blocks: usize) -> Vec<(i64, u32)> {
        let mut all = Vec::new();
        for _ in 0..blocks {
            let Some(block) = sequence.block() else { break };
            all.push((block.from, block.count));
            sequence.next = block.then;
        }
        all
    }

    #[test]
    fn blocks_end_at_the_bound_and_begin_again_only_in_a_cycle() {
        assert_eq!(taken(sequence(1, false), 9), [(1, 2), (3, 2), (5, 1)]);
        assert_eq!(taken(sequence(1, true), 4), [(1, 2), (3, 2), (5, 1), (1, 2)]);
        assert_eq!(taken(sequence(-2, false), 9), [(5, 2), (1, 1)]);
        let widest = Sequence {
            start: i64::MIN,
            increment: i64::MAX,
            min: i64::MIN,
            max: i64::MAX,
            cycle: false,
            cache: 1,
            next: Some(i64::MIN),
            epoch: 0,
        };
        assert_eq!(taken(widest, 9), [(i64::MIN, 1), (-1, 1), (i64::MAX - 1, 1)]);
    }

    #[test]
    fn a_block_is_taken_once_and_sequences_go_with_their_scope() {
        let mut cluster = Cluster::new("u".into());
        let settings = crate::BucketSettings::default();
        cluster
            .apply(&Change::Buckets(BucketChange::CreateBucket {
                name: "b".into(),
                uuid: "v".into(),
                settings,
            }))
            .unwrap();
        let (bucket, scope) = ("b".to_owned(), "s".to_owned());
        cluster.apply(&Change::Buckets(BucketChange::CreateScope { bucket, scope })).unwrap();
        let id = FunctionId { scope: Some(("b".into(), "s".into())), name: "q".into() };
        let sequence = sequence(1, false);
        let put = Change::Query(QueryChange::PutSequence {
            id: id.clone(),
            sequence: sequence.clone(),
            replace: false,
        });
        cluster.apply(&put).unwrap();
        assert!(matches!(cluster.apply(&put), Err(Refusal::SequenceExists { .. })));
        let take = |epoch, from| {
            Change::Query(QueryChange::AdvanceSequence { id: id.clone(), epoch, from })
        };
        let epoch = |cluster: &Cluster| cluster.sequences.get(&id).unwrap().epoch;
        let first = epoch(&cluster);
        cluster.apply(&take(first, 1)).unwrap();
        assert!(matches!(cluster.apply(&take(first, 1)), Err(Refusal::SequenceMoved { .. })));
        let again =
            Change::Query(QueryChange::PutSequence { id: id.clone(), sequence, replace: true });
        cluster.apply(&again).unwrap();
        assert!(matches!(cluster.apply(&take(first, 1)), Err(Refusal::SequenceMoved { .. })));
        let second = epoch(&cluster);
        cluster.apply(&take(second, 1)).unwrap();
        // Another sequence with the same name.
        cluster.apply(&Change::Query(QueryChange::DropSequence { id: id.clone() })).unwrap();
        cluster.apply(&put).unwrap();
        let third = epoch(&cluster);
        assert!(third != first && third != second);
        let stored = serde_json::to_string(&cluster).unwrap();
        assert_eq!(serde_json::from_str::<Cluster>(&stored).unwrap(), cluster);
        let (bucket, scope) = ("b".to_owned(), "s".to_owned());
        cluster.apply(&Change::Buckets(BucketChange::DropScope { bucket, scope })).unwrap();
        assert!(matches!(cluster.apply(&take(third, 3)), Err(Refusal::SequenceNotFound { .. })));
    }
}
