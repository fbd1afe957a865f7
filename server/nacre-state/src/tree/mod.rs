//! An ordered map from bytes to bytes whose clones are snapshots.
//!
//! ```text
//!         inner   a ──── k ──── s        a child has the keys from its own on
//!                 │      │      │
//!         leaf  a b f   k m    s u v     sorted slots; keys and values in insertion order
//! ```
//!
//! A B+ tree whose nodes are contiguous blocks: a look-up touches a few cache lines per level. A write copies the nodes
//! that a snapshot shares; each copy is two memory copies, whatever the number of entries. Values larger than
//! [`HERE_BYTES_MAX`] are stored separately, and copies share them.
//!
//! Invariants: only the root may have no keys; no key of a child is less than the child's own key; a node with several
//! owners is copied before it is changed, so that no clone sees a write to another.

mod keys;

pub use keys::KEY_BYTES_MAX;

use keys::{Keys, common};
use std::ops::Bound;
use std::sync::Arc;

/// Stored bytes, which snapshots share.
pub type Bytes = Arc<[u8]>;

/// Maximum number of keys of a node, so that the index of a separate value fits in a byte. Small in tests, so that
/// trees are deep.
const KEYS_MAX: usize = if cfg!(test) { 8 } else { 64 };
/// Bytes of keys and values at which a node with at least two keys is split.
const NODE_BYTES_MAX: usize = 8 << 10;
/// Maximum size of a value that is stored with its key, in bytes.
const HERE_BYTES_MAX: usize = 256;

/// A value that is stored or to be stored.
#[derive(Clone, Copy, Debug)]
pub enum Value<'a> {
    /// Stored with its key, or to be copied.
    Here(&'a [u8]),
    /// Stored separately, or to be shared.
    Apart(&'a Bytes),
}

impl<'a> Value<'a> {
    /// Returns the bytes.
    pub fn bytes(self) -> &'a [u8] {
        match self {
            Value::Here(bytes) => bytes,
            Value::Apart(bytes) => bytes,
        }
    }

    /// Returns an owned value: a small one is copied.
    pub fn share(self) -> Bytes {
        match self {
            Value::Here(bytes) => bytes.into(),
            Value::Apart(bytes) => Arc::clone(bytes),
        }
    }
}

/// The first byte of a tail tells what follows: the value, or the index of a separate value.
const HERE: u8 = 0;
const APART: u8 = 1;

/// Entries.
#[derive(Clone, Default)]
struct Leaf {
    keys: Keys,
    /// Separate values by index.
    apart: Vec<Option<Bytes>>,
}

impl Leaf {
    fn value(&self, index: usize) -> Value<'_> {
        match self.number(index) {
            Some(number) => {
                Value::Apart(self.apart[number].as_ref().expect("a tail names what is there"))
            }
            None => Value::Here(&self.keys.tail(index)[1..]),
        }
    }

    /// Returns the index of a key's separate value, if it has one.
    fn number(&self, index: usize) -> Option<usize> {
        let (kind, rest) = self.keys.tail(index).split_first().expect("a tail has its kind");
        (*kind == APART).then(|| usize::from(rest[0]))
    }

    /// Puts an entry. Returns the size of the previous value.
    fn put(&mut self, key: &[u8], value: Value<'_>) -> Option<usize> {
        let found = self.keys.find(key);
        let before = found.ok().map(|index| {
            let bytes = self.value(index).bytes().len();
            self.drop_apart(index);
            bytes
        });
        let mut tail = [HERE; 1 + HERE_BYTES_MAX];
        let tail = match value.bytes() {
            here if here.len() <= HERE_BYTES_MAX => {
                tail[1..=here.len()].copy_from_slice(here);
                &tail[..=here.len()]
            }
            _ => {
                tail[..2].copy_from_slice(&[APART, self.lay_apart(value.share())]);
                &tail[..2]
            }
        };
        match found {
            Ok(index) => self.keys.set_tail(index, tail),
            Err(index) => self.keys.insert(index, key, tail),
        }
        before
    }

    /// Deletes an entry. Returns the size of its value.
    fn delete(&mut self, key: &[u8]) -> Option<usize> {
        let index = self.keys.find(key).ok()?;
        let bytes = self.value(index).bytes().len();
        self.drop_apart(index);
        self.keys.remove(index);
        Some(bytes)
    }

    fn lay_apart(&mut self, value: Bytes) -> u8 {
        let number = self.apart.iter().position(Option::is_none).unwrap_or_else(|| {
            self.apart.push(None);
            self.apart.len() - 1
        });
        self.apart[number] = Some(value);
        number as u8
    }

    fn drop_apart(&mut self, index: usize) {
        if let Some(number) = self.number(index) {
            self.apart[number] = None;
        }
    }

    fn split_off(&mut self, index: usize) -> Leaf {
        let mut right = Leaf { keys: self.keys.split_off(index), apart: Vec::new() };
        let all = std::mem::take(&mut self.apart);
        self.adopt(0, &all);
        right.adopt(0, &all);
        right
    }

    fn append(&mut self, right: &Leaf) {
        let from = self.keys.len();
        self.keys.append(&right.keys);
        self.adopt(from, &right.apart);
    }

    /// Copies the separate values of the keys from `from` on out of `others`.
    fn adopt(&mut self, from: usize, others: &[Option<Bytes>]) {
        for index in from..self.keys.len() {
            let value = self.number(index).and_then(|number| others[number].clone());
            if let Some(value) = value {
                let number = self.lay_apart(value);
                self.keys.set_tail(index, &[APART, number]);
            }
        }
    }
}

/// An inner node. The key of a child is not greater than the child's keys, and greater than all keys of the previous
/// child.
#[derive(Clone, Default)]
struct Inner {
    keys: Keys,
    children: Vec<Arc<Node>>,
}

impl Inner {
    /// Returns the index of the child that contains a key, if any child does.
    fn child_of(&self, key: &[u8]) -> usize {
        self.keys.find(key).unwrap_or_else(|index| index.saturating_sub(1))
    }

    /// Returns the index of the child for a key, which may be less than all present keys.
    fn child_for(&mut self, key: &[u8]) -> usize {
        let found = self.keys.find(key);
        if found == Err(0) {
            self.keys.remove(0);
            self.keys.insert(0, key, &[]);
        }
        found.unwrap_or_else(|index| index.saturating_sub(1))
    }

    fn insert(&mut self, index: usize, Split { key, right }: Split) {
        self.keys.insert(index, &key, &[]);
        self.children.insert(index, right);
    }

    fn remove(&mut self, index: usize) {
        self.keys.remove(index);
        self.children.remove(index);
    }

    /// Merges an underfull child with a neighbour.
    fn mend(&mut self, index: usize) {
        let child = self.children[index].keys();
        if child.is_empty() {
            self.remove(index);
        } else if child.len() < KEYS_MAX / 4 {
            let fits = |left: usize| {
                let (left, right) = (self.children[left].keys(), self.children[left + 1].keys());
                left.len() + right.len() <= KEYS_MAX * 3 / 4
                    && left.bytes() + right.bytes() <= NODE_BYTES_MAX * 3 / 4
            };
            let last = self.children.len() - 1;
            let lefts = [index, index.wrapping_sub(1)].into_iter().filter(|left| *left < last);
            if let Some(left) = { lefts }.find(|left| fits(*left)) {
                let right = self.children.remove(left + 1);
                self.keys.remove(left + 1);
                Arc::make_mut(&mut self.children[left]).append(&right);
            }
        }
    }
}

#[derive(Clone)]
enum Node {
    Leaf(Leaf),
    Inner(Inner),
}

/// The second half of a split node: the keys from `key` on.
struct Split {
    key: Vec<u8>,
    right: Arc<Node>,
}

impl Node {
    fn keys(&self) -> &Keys {
        match self {
            Node::Leaf(leaf) => &leaf.keys,
            Node::Inner(inner) => &inner.keys,
        }
    }

    /// Inserts an entry. Returns the size of the previous value, and the second half if the node was split.
    fn put(node: &mut Arc<Node>, key: &[u8], value: Value<'_>) -> (Option<usize>, Option<Split>) {
        let node = Arc::make_mut(node);
        let before = match node {
            Node::Leaf(leaf) => leaf.put(key, value),
            Node::Inner(inner) => {
                let index = inner.child_for(key);
                let (before, split) = Node::put(&mut inner.children[index], key, value);
                let Some(split) = split else { return (before, None) };
                inner.insert(index + 1, split);
                before
            }
        };
        (before, node.split(key))
    }

    /// Splits an overfull node after `key` was inserted.
    fn split(&mut self, key: &[u8]) -> Option<Split> {
        let (count, bytes) = (self.keys().len(), self.keys().bytes());
        if count <= KEYS_MAX && (bytes <= NODE_BYTES_MAX || count == 1) {
            return None;
        }
        // Keys inserted in order leave full nodes behind.
        let is_last = self.keys().key(count - 1) <= key;
        let index = if is_last { count - 1 } else { count / 2 };
        let (key, right) = match self {
            Node::Leaf(leaf) => {
                let (before, first) = (leaf.keys.key(index - 1), leaf.keys.key(index));
                // The shortest key that separates the halves.
                let key = first[..=common(before, first)].to_vec();
                (key, Node::Leaf(leaf.split_off(index)))
            }
            Node::Inner(inner) => {
                let key = inner.keys.key(index).to_vec();
                let keys = inner.keys.split_off(index);
                (key, Node::Inner(Inner { keys, children: inner.children.split_off(index) }))
            }
        };
        Some(Split { key, right: Arc::new(right) })
    }

    /// Deletes an entry. Returns the size of its value.
    fn delete(node: &mut Arc<Node>, key: &[u8]) -> Option<usize> {
        match Arc::make_mut(node) {
            Node::Leaf(leaf) => leaf.delete(key),
            Node::Inner(inner) => {
                let index = inner.child_of(key);
                let bytes = Node::delete(&mut inner.children[index], key);
                inner.mend(index);
                bytes
            }
        }
    }

    /// Appends a node whose keys come after all of this one's.
    fn append(&mut self, right: &Node) {
        match (self, right) {
            (Node::Leaf(left), Node::Leaf(right)) => left.append(right),
            (Node::Inner(left), Node::Inner(right)) => {
                left.keys.append(&right.keys);
                left.children.extend(right.children.iter().cloned());
            }
            _ => unreachable!("leaves are all equally deep"),
        }
    }

    fn first_from(&self, start: Bound<&[u8]>) -> Option<Place<'_>> {
        match self {
            Node::Leaf(leaf) => {
                let index = match start {
                    Bound::Unbounded => 0,
                    Bound::Included(key) => leaf.keys.find(key).unwrap_or_else(|index| index),
                    Bound::Excluded(key) => {
                        leaf.keys.find(key).map_or_else(|index| index, |index| index + 1)
                    }
                };
                (index < leaf.keys.len()).then_some(Place { leaf, index })
            }
            Node::Inner(inner) => {
                let from = match start {
                    Bound::Unbounded => 0,
                    Bound::Included(key) | Bound::Excluded(key) => inner.child_of(key),
                };
                inner.children[from..].iter().find_map(|child| child.first_from(start))
            }
        }
    }

    fn last_to(&self, end: Bound<&[u8]>) -> Option<Place<'_>> {
        match self {
            Node::Leaf(leaf) => {
                let behind = match end {
                    Bound::Unbounded => leaf.keys.len(),
                    Bound::Excluded(key) => leaf.keys.find(key).unwrap_or_else(|index| index),
                    Bound::Included(key) => {
                        leaf.keys.find(key).map_or_else(|index| index, |index| index + 1)
                    }
                };
                Some(Place { leaf, index: behind.checked_sub(1)? })
            }
            Node::Inner(inner) => {
                let to = match end {
                    Bound::Unbounded => inner.children.len() - 1,
                    Bound::Included(key) | Bound::Excluded(key) => inner.child_of(key),
                };
                inner.children[..=to].iter().rev().find_map(|child| child.last_to(end))
            }
        }
    }
}

/// The ordered map.
#[derive(Clone, Default)]
pub struct Tree {
    root: Option<Arc<Node>>,
}

impl Tree {
    pub fn is_empty(&self) -> bool {
        self.root.is_none()
    }

    pub fn get(&self, key: &[u8]) -> Option<Value<'_>> {
        let mut node = self.root.as_deref()?;
        loop {
            match node {
                Node::Inner(inner) => node = &inner.children[inner.child_of(key)],
                Node::Leaf(leaf) => return Some(leaf.value(leaf.keys.find(key).ok()?)),
            }
        }
    }

    /// Sets the value of a key. Returns the size of the previous value. Keys have 1 to [`KEY_BYTES_MAX`] bytes.
    pub fn put(&mut self, key: &[u8], value: Value<'_>) -> Option<usize> {
        let root = self.root.get_or_insert_with(|| Arc::new(Node::Leaf(Leaf::default())));
        let (before, split) = Node::put(root, key, value);
        if let Some(split) = split {
            let left = Split { key: root.keys().key(0).to_vec(), right: Arc::clone(root) };
            let mut inner = Inner::default();
            inner.insert(0, left);
            inner.insert(1, split);
            *root = Arc::new(Node::Inner(inner));
        }
        before
    }

    /// Removes a key. Returns the size of its value.
    pub fn delete(&mut self, key: &[u8]) -> Option<usize> {
        // Look the key up first, so that no node is copied for an absent key.
        self.get(key)?;
        let root = self.root.as_mut()?;
        let bytes = Node::delete(root, key);
        while let Node::Inner(Inner { children, .. }) = &**root
            && let [only] = &children[..]
        {
            *root = Arc::clone(only);
        }
        if root.keys().is_empty() {
            self.root = None;
        }
        bytes
    }

    /// Returns an empty range.
    pub fn nothing() -> Range<'static> {
        Range { left: None }
    }

    /// Iterates over the entries between two bounds, in order; reversed bounds yield none.
    pub fn range(&self, (start, end): (Bound<&[u8]>, Bound<&[u8]>)) -> Range<'_> {
        let between = || {
            let root = self.root.as_deref()?;
            let (front, back) = (root.first_from(start)?, root.last_to(end)?);
            (front.key() <= back.key()).then_some((root, front, back))
        };
        Range { left: between() }
    }
}

/// The position of an entry.
#[derive(Clone, Copy)]
struct Place<'a> {
    leaf: &'a Leaf,
    index: usize,
}

impl<'a> Place<'a> {
    fn key(self) -> &'a [u8] {
        self.leaf.keys.key(self.index)
    }

    fn entry(self) -> (&'a [u8], &'a [u8]) {
        (self.key(), self.leaf.value(self.index).bytes())
    }

    fn is(self, other: Place<'_>) -> bool {
        std::ptr::eq(self.leaf, other.leaf) && self.index == other.index
    }
}

/// A double-ended iterator over entries.
pub struct Range<'a> {
    /// The root, and the first and last entries not returned yet.
    left: Option<(&'a Node, Place<'a>, Place<'a>)>,
}

impl<'a> Iterator for Range<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let (root, front, back) = self.left.take()?;
        if !front.is(back) {
            let next = Place { index: front.index + 1, ..front };
            let next = match next.index < next.leaf.keys.len() {
                true => Some(next),
                false => root.first_from(Bound::Excluded(front.key())),
            };
            self.left = next.map(|next| (root, next, back));
        }
        Some(front.entry())
    }
}

impl DoubleEndedIterator for Range<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        let (root, front, back) = self.left.take()?;
        if !front.is(back) {
            let next = match back.index.checked_sub(1) {
                Some(index) => Some(Place { index, ..back }),
                None => root.last_to(Bound::Excluded(back.key())),
            };
            self.left = next.map(|next| (root, front, next));
        }
        Some(back.entry())
    }
}

#[cfg(test)]
mod tests;
