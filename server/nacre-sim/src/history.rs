//! Linearizability check: the history of operations on a key, and whether a single document could have produced it
//! (Wing and Gong's search with Lowe's memoization).

use std::collections::HashSet;
use std::fmt;

/// An operation on a key. Values are numbers, and no two writes have the same value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// Read the value.
    Get,
    /// Write a value.
    Set(u64),
    /// Write a value if there is none.
    Add(u64),
    /// Replace the first value by the second, if the first is current.
    Swap(u64, u64),
    /// Remove the value.
    Remove,
}

/// The outcome of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The value read.
    Value(u64),
    /// Done.
    Done,
    /// The key does not exist.
    Missing,
    /// The condition did not hold.
    Exists,
    /// The outcome is unknown: the operation may have been or may still be carried out.
    Unknown,
}

/// An operation with its outcome.
#[derive(Clone, Copy, Debug)]
pub struct Operation {
    /// The client.
    pub client: usize,
    /// True time of the request.
    pub begun: u64,
    /// True time of the answer; the end of time for [`Outcome::Unknown`].
    pub ended: u64,
    /// See [`Asked`].
    pub asked: Asked,
    /// See [`Outcome`].
    pub outcome: Outcome,
    /// The CAS in the answer.
    pub cas: u64,
}

impl Operation {
    /// Returns the value after the operation, given the value `before`; the outer `None` if the outcome is impossible.
    fn apply(&self, before: Option<u64>) -> Option<Option<u64>> {
        let unknown = self.outcome == Outcome::Unknown;
        let done = unknown || self.outcome == Outcome::Done;
        match (self.asked, before) {
            (Asked::Get, _) => {
                let shown = match self.outcome {
                    Outcome::Value(value) => Some(value),
                    _ => None,
                };
                (unknown || shown == before).then_some(before)
            }
            (Asked::Set(value), _) => done.then_some(Some(value)),
            (Asked::Add(value), None) => done.then_some(Some(value)),
            (Asked::Add(_), Some(_)) => (self.outcome == Outcome::Exists).then_some(before),
            (Asked::Swap(old, new), Some(there)) if there == old => done.then_some(Some(new)),
            (Asked::Swap(..), Some(_)) => (self.outcome == Outcome::Exists).then_some(before),
            (Asked::Swap(..) | Asked::Remove, None) => {
                (self.outcome == Outcome::Missing).then_some(before)
            }
            (Asked::Remove, Some(_)) => done.then_some(None),
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Operation { client, begun, ended, asked, outcome, cas } = self;
        let ms = |ns: u64| ns as f64 / 1e6;
        match *ended {
            u64::MAX => write!(f, "{:>12.3}              ", ms(*begun))?,
            ended => write!(f, "{:>12.3} {:>12.3} ", ms(*begun), ms(ended))?,
        }
        write!(f, "client {client}: {asked:?} -> {outcome:?} {cas:x}")
    }
}

/// Returns two writes of which the later one does not have the greater CAS, if there are any.
pub fn find_older_version(operations: &[Operation]) -> Option<(&Operation, &Operation)> {
    let writes = || {
        operations
            .iter()
            .filter(|operation| operation.outcome == Outcome::Done && operation.asked != Asked::Get)
    };
    writes().find_map(|later| {
        let earlier =
            writes().find(|earlier| earlier.ended < later.begun && earlier.cas >= later.cas);
        Some((earlier?, later))
    })
}

/// The result of the check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// A single document could have produced the history.
    Linearizable,
    /// No document could have produced it.
    Impossible,
    /// The search was given up.
    Undecided,
}

/// Maximum number of states that the search tries.
const TRIES_MAX: usize = 1_000_000;

/// Checks whether one document, initially missing, could have produced `operations`.
pub fn check(operations: &[Operation]) -> Verdict {
    let mut operations: Vec<Operation> = operations
        .iter()
        .filter(|operation| (operation.asked, operation.outcome) != (Asked::Get, Outcome::Unknown))
        .copied()
        .collect();
    operations.sort_by_key(|operation| (operation.begun, operation.ended));
    let certain = operations.iter().filter(|operation| operation.outcome != Outcome::Unknown);
    let search = Search { certain: certain.count(), operations, tried: HashSet::default() };
    search.run()
}

/// The operations that have happened: one bit each.
type Happened = Box<[u64]>;

struct Search {
    operations: Vec<Operation>,
    certain: usize,
    tried: HashSet<(Happened, Option<u64>), foldhash::fast::FixedState>,
}

/// A state of the search.
struct Point {
    happened: Happened,
    value: Option<u64>,
    /// Number of operations with a known outcome that have happened.
    certain: usize,
    /// All operations before this index have happened.
    first: usize,
}

impl Search {
    fn run(mut self) -> Verdict {
        let happened = vec![0; self.operations.len().div_ceil(64)].into_boxed_slice();
        let mut points = vec![Point { happened, value: None, certain: 0, first: 0 }];
        while let Some(point) = points.pop() {
            if point.certain == self.certain {
                return Verdict::Linearizable;
            }
            if self.tried.len() > TRIES_MAX {
                return Verdict::Undecided;
            }
            // The last state pushed is tried first: the operation that began first.
            let next = self.next(&point);
            for index in next.into_iter().rev() {
                self.push(&point, index, &mut points);
            }
        }
        Verdict::Impossible
    }

    /// Returns the operations that may happen next: each began before every other pending operation ended.
    fn next(&self, point: &Point) -> Vec<usize> {
        let mut next = Vec::new();
        let mut end = u64::MAX;
        for (index, operation) in self.operations.iter().enumerate().skip(point.first) {
            if operation.begun > end {
                break;
            }
            if !has(&point.happened, index) {
                end = end.min(operation.ended);
                next.push(index);
            }
        }
        next.retain(|index| self.operations[*index].begun <= end);
        next
    }

    fn push(&mut self, point: &Point, index: usize, points: &mut Vec<Point>) {
        let operation = self.operations[index];
        let Some(value) = operation.apply(point.value) else { return };
        let mut happened = point.happened.clone();
        happened[index / 64] |= 1 << (index % 64);
        if !self.tried.insert((happened.clone(), value)) {
            return;
        }
        let mut first = point.first;
        while first < self.operations.len() && has(&happened, first) {
            first += 1;
        }
        let certain = point.certain + usize::from(operation.outcome != Outcome::Unknown);
        points.push(Point { happened, value, certain, first });
    }
}

fn has(happened: &Happened, index: usize) -> bool {
    happened[index / 64] >> (index % 64) & 1 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operation(begun: u64, ended: u64, asked: Asked, outcome: Outcome) -> Operation {
        let ended = if outcome == Outcome::Unknown { u64::MAX } else { ended };
        Operation { client: 0, begun, ended, asked, outcome, cas: 0 }
    }

    #[test]
    fn observations_that_one_document_explains_are_distinguished() {
        use Asked::*;
        use Outcome::*;
        let cases: &[(&[Operation], Verdict)] = &[
            (&[], Verdict::Linearizable),
            (&[operation(0, 1, Get, Missing)], Verdict::Linearizable),
            (&[operation(0, 1, Get, Value(1))], Verdict::Impossible),
            (
                &[operation(0, 5, Set(1), Done), operation(1, 2, Get, Value(1))],
                Verdict::Linearizable,
            ),
            (
                &[operation(0, 5, Set(1), Done), operation(1, 2, Get, Missing)],
                Verdict::Linearizable,
            ),
            (&[operation(0, 1, Set(1), Done), operation(2, 3, Get, Missing)], Verdict::Impossible),
            // The operation may be carried out after its client has stopped waiting.
            (
                &[
                    operation(0, 1, Set(1), Unknown),
                    operation(2, 3, Get, Missing),
                    operation(4, 5, Get, Value(1)),
                ],
                Verdict::Linearizable,
            ),
            (
                &[
                    operation(0, 1, Set(1), Unknown),
                    operation(2, 3, Get, Value(1)),
                    operation(4, 5, Get, Missing),
                ],
                Verdict::Impossible,
            ),
            (
                &[
                    operation(0, 1, Set(1), Done),
                    operation(2, 3, Swap(1, 2), Done),
                    operation(4, 5, Swap(1, 3), Exists),
                    operation(6, 7, Remove, Done),
                    operation(8, 9, Add(4), Done),
                    operation(10, 11, Add(5), Exists),
                    operation(12, 13, Get, Value(4)),
                ],
                Verdict::Linearizable,
            ),
            (
                &[
                    operation(0, 1, Set(1), Done),
                    operation(2, 9, Swap(1, 2), Done),
                    operation(3, 8, Swap(1, 3), Done),
                ],
                Verdict::Impossible,
            ),
            (&[operation(0, 1, Remove, Done)], Verdict::Impossible),
            (&[operation(0, 1, Remove, Missing)], Verdict::Linearizable),
        ];
        for (operations, verdict) in cases {
            assert_eq!(check(operations), *verdict, "{operations:?}");
        }
    }
}
