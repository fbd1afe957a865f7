//! The B-tree equals an ordered map under arbitrary changes and reads.

use nacre_plugin::btree::{Change, Corrupt, Range, Reducer, Row, Step, Tree};
use nacre_plugin::{MemoryState, State, StateMut};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// Sums the first bytes of the values and counts them; also checks the contract of its calls.
struct Sums;

impl Reducer for Sums {
    fn reduce(&self, rows: &[Row<'_>]) -> Vec<u8> {
        assert!(!rows.is_empty() && rows.is_sorted_by_key(|row| row.key));
        let sum = rows.iter().map(|row| u64::from(row.value[0])).sum();
        encoded(sum, rows.len() as u64)
    }

    fn rereduce(&self, parts: &[&[u8]]) -> Vec<u8> {
        assert!(parts.len() > 1);
        let (sums, counts): (Vec<_>, Vec<_>) = parts.iter().map(|part| decoded(part)).unzip();
        encoded(sums.iter().sum(), counts.iter().sum())
    }
}

fn encoded(sum: u64, count: u64) -> Vec<u8> {
    [sum.to_le_bytes(), count.to_le_bytes()].concat()
}

fn decoded(part: &[u8]) -> (u64, u64) {
    let number = |at: usize| u64::from_le_bytes(part[at..at + 8].try_into().unwrap());
    (number(0), number(8))
}

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn tree() -> Tree<'static> {
    Tree::new(b"t", &Sums)
}

fn apply(state: &mut MemoryState, model: &mut Model, changes: &BTreeMap<Vec<u8>, Option<Vec<u8>>>) {
    let list: Vec<Change> =
        changes.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
    tree().apply(state, &list).unwrap();
    for (key, value) in list {
        match value {
            Some(value) => model.insert(key, value),
            None => model.remove(&key),
        };
    }
}

fn in_range<'m>(model: &'m Model, range: &Range) -> Vec<(&'m Vec<u8>, &'m Vec<u8>)> {
    let within = |key: &Vec<u8>| *key >= range.start && (range.end.is_empty() || *key < range.end);
    let mut rows: Vec<_> = model.iter().filter(|(key, _)| within(key)).collect();
    if range.reverse {
        rows.reverse();
    }
    rows
}

fn check(
    state: &MemoryState,
    model: &Model,
    range: &Range,
    skip: usize,
    limit: usize,
    level: usize,
) {
    assert_eq!(tree().row_count(state).unwrap(), model.len() as u64);
    let expected = in_range(model, range);

    let mut rows = Vec::new();
    let each = |row: Row<'_>| {
        rows.push((row.key.to_vec(), row.value.to_vec()));
        if rows.len() >= limit { Step::Break(()) } else { Step::Continue(()) }
    };
    tree().rows(state, range, skip as u64, each).unwrap();
    let wanted = expected.iter().skip(skip).take(limit).map(|(k, v)| ((*k).clone(), (*v).clone()));
    assert_eq!(rows, wanted.collect::<Vec<_>>());

    let mut groups = Vec::new();
    let mut each = |group: nacre_plugin::btree::Group| {
        groups.push((group.first.map(|(key, _)| key), decoded(&group.reduction)));
        Step::Continue(())
    };
    tree().groups(state, range, &|key| level.min(key.len()), &mut each).unwrap();
    let mut wanted = Vec::new();
    let mut last = None;
    for (key, value) in expected {
        let name = &key[..level.min(key.len())];
        if last != Some(name) {
            wanted.push(((!name.is_empty()).then(|| key.clone()), (0, 0)));
            last = Some(name);
        }
        let (_, (sum, count)): &mut (_, (u64, u64)) = wanted.last_mut().unwrap();
        *sum += u64::from(value[0]);
        *count += 1;
    }
    assert_eq!(groups, wanted);
}

/// Checks that every page in the state is reachable from the header.
fn check_pages(state: &MemoryState) {
    let pages = state.iter().filter(|(key, _)| key.starts_with(b"tp"));
    let bytes: u64 = pages.map(|(_, page)| page.len() as u64).sum();
    assert_eq!(tree().bytes(state).unwrap(), bytes);
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        3 => "[abc]{1,5}".prop_map(String::into_bytes),
        1 => "[abc]{1,3}x{0,600}".prop_map(String::into_bytes),
    ]
}

fn value() -> impl Strategy<Value = Option<Vec<u8>>> {
    prop_oneof![
        2 => Just(None),
        4 => (any::<u8>(), 0usize..60).prop_map(|(byte, more)| Some(vec![byte; more + 1])),
        1 => (any::<u8>(), 0usize..9000).prop_map(|(byte, more)| Some(vec![byte; more + 1])),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn a_tree_equals_an_ordered_map(
        batches in prop::collection::vec(prop::collection::btree_map(key(), value(), 0..120), 1..8),
        bounds in (prop::option::of(key()), prop::option::of(key()), any::<bool>()),
        window in (0usize..40, 1usize..40),
        level in 0usize..4,
    ) {
        let (mut state, mut model) = (MemoryState::default(), Model::new());
        let (start, end, reverse) = bounds;
        let range = Range { start: start.unwrap_or_default(), end: end.unwrap_or_default(), reverse };
        for batch in &batches {
            apply(&mut state, &mut model, batch);
            check(&state, &model, &range, window.0, window.1, level);
            check(&state, &model, &Range::default(), 0, usize::MAX, level);
            check_pages(&state);
        }
        // Then removes everything.
        let all: BTreeMap<_, _> = model.keys().map(|key| (key.clone(), None)).collect();
        apply(&mut state, &mut model, &all);
        prop_assert_eq!(state.len(), usize::from(!batches.iter().all(BTreeMap::is_empty)));
    }
}

/// A state that counts reads.
struct Counting<'a>(&'a MemoryState, std::cell::Cell<usize>);

impl State for Counting<'_> {
    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.1.set(self.1.get() + 1);
        self.0.get(key)
    }

    fn scan(
        &self,
        start: &[u8],
        end: &[u8],
        limit: u32,
        reverse: bool,
    ) -> Vec<nacre_plugin::Entry> {
        self.0.scan(start, end, limit, reverse)
    }
}

/// The purpose of the tree: work is proportional to the borders of a range, not to its size.
#[test]
fn reductions_and_skips_open_few_pages() {
    let (mut state, mut model) = (MemoryState::default(), Model::new());
    for start in (0u32..50_000).step_by(1000) {
        let changes = (start..start + 1000).map(|n| {
            // Keys spread over the key space, so that pages fill as they do in practice.
            (n.wrapping_mul(2_654_435_761).to_be_bytes().to_vec(), Some(vec![1; 20]))
        });
        apply(&mut state, &mut model, &changes.collect());
    }
    let pages = state.len();
    assert!(pages > 300, "{pages}");
    let reads = |ask: &dyn Fn(&dyn State)| {
        let counting = Counting(&state, std::cell::Cell::new(0));
        ask(&counting);
        counting.1.get()
    };
    let range = Range { start: vec![10], end: vec![200], reverse: false };
    let reduce = reads(&|state| {
        let mut groups = Vec::new();
        tree()
            .groups(state, &range, &|_| 0, &mut |group| {
                groups.push(decoded(&group.reduction));
                Step::Continue(())
            })
            .unwrap();
        assert_eq!(groups.len(), 1);
        assert_eq!(groups[0].1, in_range(&model, &range).len() as u64);
    });
    let skip = reads(&|state| {
        tree().rows(state, &Range::default(), 40_000, |_| Step::Break(())).unwrap();
    });
    assert!(reduce < 12 && skip < 12, "{reduce} pages to reduce, {skip} to skip, of {pages}");
}

#[test]
fn deleting_most_rows_removes_most_pages() {
    let (mut state, mut model) = (MemoryState::default(), Model::new());
    let key = |n: u32| n.to_be_bytes().to_vec();
    apply(&mut state, &mut model, &(0..20_000).map(|n| (key(n), Some(vec![7; 30]))).collect());
    let full = state.len();
    let kept: BTreeSet<u32> = (0..20_000).step_by(100).collect();
    let gone = (0..20_000).filter(|n| !kept.contains(n)).map(|n| (key(n), None));
    apply(&mut state, &mut model, &gone.collect());
    check(&state, &model, &Range::default(), 0, usize::MAX, 0);
    let left = state.len();
    assert!(left * 20 < full, "{left} of {full} pages are left for one row in a hundred");
}

#[test]
fn a_damaged_tree_is_reported() {
    let (mut state, mut model) = (MemoryState::default(), Model::new());
    let changes = (0u32..2000).map(|n| (n.to_be_bytes().to_vec(), Some(vec![1])));
    apply(&mut state, &mut model, &changes.collect());
    let keys: Vec<_> = state.iter().map(|(key, _)| key.to_vec()).collect();
    for key in &keys {
        for damage in [None, Some(&b""[..]), Some(b"\x00\xff"), Some(b"\x01\xff")] {
            let mut damaged = state.clone();
            match damage {
                Some(bytes) => damaged.put(key, bytes),
                None => damaged.delete(key),
            }
            let read = tree().rows(&damaged, &Range::default(), 0, |_| Step::Continue(()));
            if key != b"th" || damage.is_some() {
                assert!(read.is_err(), "{key:?} {damage:?}");
            }
        }
    }
    let mut looped = state.clone();
    let root = keys.iter().rfind(|key| key.starts_with(b"tp")).unwrap();
    // An inner page whose only child is itself.
    let id = root.last().copied().unwrap();
    looped.put(root, &[1, 4, 0xff, 0xff, 0xff, 0xff, id, 1, 1, 0]);
    let read = tree().rows(&looped, &Range::default(), 0, |_| Step::Continue(()));
    assert!(matches!(read, Err(Corrupt::TooDeep(_) | Corrupt::Malformed(_))), "{read:?}");
}
