use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

type Model = BTreeMap<Vec<u8>, Bytes>;

#[derive(Clone, Debug)]
enum Step {
    Put(Vec<u8>, usize),
    Delete(Vec<u8>),
    /// Removes all keys that begin with this byte.
    DeleteAll(u8),
    Snapshot,
}

/// Returns keys with common prefixes: some are long, and some differ only after eight bytes.
fn key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        6 => (0..3_u8, 0..40_u8, 0..40_u8)
            .prop_map(|(a, b, c)| [&[a][..], b"shared by all", &[b, c]].concat()),
        3 => proptest::collection::vec(prop_oneof![Just(0), Just(1), Just(255)], 1..12),
        1 => (1..300_usize, any::<u8>()).prop_map(|(bytes, last)| {
            let mut key = vec![7; bytes];
            key.push(last);
            key
        }),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        30 => (key(), prop_oneof![0..40_usize, 250..260_usize, 1000..9000_usize])
            .prop_map(|(key, bytes)| Step::Put(key, bytes)),
        12 => key().prop_map(Step::Delete),
        1 => (0..4_u8).prop_map(Step::DeleteAll),
        1 => Just(Step::Snapshot),
    ]
}

fn bound() -> impl Strategy<Value = Bound<Vec<u8>>> {
    prop_oneof![
        Just(Bound::Unbounded),
        key().prop_map(Bound::Included),
        key().prop_map(Bound::Excluded)
    ]
}

fn entries(tree: &Tree) -> Vec<(&[u8], &[u8])> {
    tree.range((Bound::Unbounded, Bound::Unbounded)).collect()
}

fn expected(model: &Model) -> Vec<(&[u8], &[u8])> {
    model.iter().map(|(key, value)| (&key[..], &value[..])).collect()
}

fn as_slice(bound: &Bound<Vec<u8>>) -> Bound<&[u8]> {
    bound.as_ref().map(Vec::as_slice)
}

fn is_between(key: &[u8], start: &Bound<Vec<u8>>, end: &Bound<Vec<u8>>) -> bool {
    let starts = match start {
        Bound::Unbounded => true,
        Bound::Included(start) => key >= &start[..],
        Bound::Excluded(start) => key > &start[..],
    };
    let ends = match end {
        Bound::Unbounded => true,
        Bound::Included(end) => key <= &end[..],
        Bound::Excluded(end) => key < &end[..],
    };
    starts && ends
}

/// Checks that all leaves have the same depth, that every node but the root has sorted keys and not too many of them, and that no
/// key of a child is less than the child's own key or not less than the next child's.
fn check(node: &Node, is_root: bool, from: &[u8], to: Option<&[u8]>) -> usize {
    let keys = node.keys();
    assert!(is_root || !keys.is_empty());
    assert!(keys.len() <= KEYS_MAX);
    let all: Vec<&[u8]> = (0..keys.len()).map(|index| keys.key(index)).collect();
    assert!(all.is_sorted_by(|one, other| one < other), "{all:?}");
    assert!(all.iter().all(|key| *key >= from && to.is_none_or(|to| *key < to)));
    match node {
        Node::Leaf(_) => 0,
        Node::Inner(inner) => {
            assert_eq!(inner.children.len(), keys.len());
            let depth = |(index, child): (usize, &Arc<Node>)| {
                check(child, false, all[index], all.get(index + 1).copied().or(to))
            };
            let depths: Vec<usize> = inner.children.iter().enumerate().map(depth).collect();
            assert!(depths.iter().all(|depth| *depth == depths[0]), "{depths:?}");
            depths[0] + 1
        }
    }
}

proptest! {
    #[test]
    fn a_tree_and_its_snapshots_equal_maps(
        steps in proptest::collection::vec(step(), 0..700),
        start in bound(),
        end in bound(),
        ends in proptest::collection::vec(any::<bool>(), 0..80),
    ) {
        let (mut tree, mut model) = (Tree::default(), Model::default());
        let mut snapshots = Vec::new();
        for step in steps {
            match step {
                Step::Put(key, bytes) => {
                    let value = Bytes::from(vec![key[0].wrapping_add(bytes as u8); bytes]);
                    let before = model.insert(key.clone(), Arc::clone(&value));
                    prop_assert_eq!(tree.put(&key, Value::Apart(&value)), before.map(|before| before.len()));
                }
                Step::Delete(key) => {
                    let before = model.remove(&key);
                    prop_assert_eq!(tree.delete(&key), before.map(|before| before.len()));
                }
                Step::DeleteAll(first) => model.retain(|key, value| {
                    let goes = key[0] == first;
                    assert!(!goes || tree.delete(key) == Some(value.len()));
                    !goes
                }),
                Step::Snapshot => snapshots.push((tree.clone(), model.clone())),
            }
        }
        snapshots.push((tree, model));
        for (tree, model) in &snapshots {
            prop_assert_eq!(entries(tree), expected(model));
            tree.root.as_ref().map(|root| check(root, true, &[], None));
            for (key, value) in model {
                prop_assert_eq!(tree.get(key).map(Value::share), Some(Arc::clone(value)));
            }
            let wanted = model.iter().filter(|(key, _)| is_between(key, &start, &end));
            let mut wanted: std::collections::VecDeque<_> =
                wanted.map(|(key, value)| (&key[..], &value[..])).collect();
            let mut range = tree.range((as_slice(&start), as_slice(&end)));
            for from_front in &ends {
                match from_front {
                    true => prop_assert_eq!(range.next(), wanted.pop_front()),
                    false => prop_assert_eq!(range.next_back(), wanted.pop_back()),
                }
            }
            prop_assert_eq!(range.collect::<Vec<_>>(), Vec::from(wanted));
        }
    }
}

#[test]
fn keys_of_every_size_have_their_place() {
    let mut tree = Tree::default();
    let sizes = [1, 2, 7, 8, 9, 300, KEY_BYTES_MAX - 1, KEY_BYTES_MAX];
    let keys: Vec<Vec<u8>> = sizes.iter().map(|size| vec![0; *size]).collect();
    for key in keys.iter().rev() {
        assert_eq!(tree.put(key, Value::Here(key)), None);
    }
    assert_eq!(entries(&tree), keys.iter().map(|key| (&key[..], &key[..])).collect::<Vec<_>>());
    for key in &keys {
        assert_eq!(tree.delete(key), Some(key.len()));
    }
    assert!(tree.root.is_none());
}

#[test]
fn keys_may_come_from_the_last_to_the_first() {
    let mut tree = Tree::default();
    let keys: Vec<Vec<u8>> = (0..5000_u32).map(|number| number.to_be_bytes().to_vec()).collect();
    for key in keys.iter().rev() {
        tree.put(key, Value::Here(key));
    }
    assert!(check(tree.root.as_ref().unwrap(), true, &[], None) > 2);
    assert_eq!(entries(&tree), keys.iter().map(|key| (&key[..], &key[..])).collect::<Vec<_>>());
}

#[test]
fn keys_that_come_in_order_fill_their_nodes() {
    let mut tree = Tree::default();
    for number in 0..10_000_u32 {
        tree.put(&number.to_be_bytes(), Value::Here(b"value"));
    }
    fn leaves(node: &Node) -> usize {
        match node {
            Node::Leaf(_) => 1,
            Node::Inner(inner) => inner.children.iter().map(|child| leaves(child)).sum(),
        }
    }
    assert_eq!(leaves(tree.root.as_ref().unwrap()), 10_000_usize.div_ceil(KEYS_MAX));
}
