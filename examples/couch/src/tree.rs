//! Revision trees: the known history of a document, with all branches from edits in several places.
//!
//! ```text
//! 1-a ── 2-b ── 3-c      a leaf: the winner, as its generation is the highest
//!            └─ 3-b      a leaf: a conflict
//! ```
//!
//! - A revision is a generation and an ID; a node has at most one parent, of the generation before.
//! - Merging is idempotent and commutative, so that replicas with the same revisions agree.
//! - The winner is the greatest leaf by (not deleted, generation, ID as bytes), as in CouchDB.
//!
//! Source: the replication protocol of CouchDB.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Maximum length of a revision ID.
const ID_BYTES_MAX: usize = 256;
/// Maximum number of revisions in a path from a client.
pub const PATH_MAX: usize = 5000;
/// The maximum generation: JavaScript counts exactly up to here.
const GENERATION_MAX: u64 = (1 << 53) - 1;

/// The name of a revision, such as `3-0cb1…`. Ordered by generation, then by ID.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rev {
    /// The number of edits since the first revision, which has 1.
    pub generation: u64,
    /// 32 hexadecimal digits, or any other text from a client.
    pub id: String,
}

impl Rev {
    /// Parses a name; `None` if it is invalid.
    pub fn parse(text: &str) -> Option<Rev> {
        let (generation, id) = text.split_once('-')?;
        if !generation.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let generation = generation.parse().ok()?;
        Rev::new(generation, id)
    }

    /// Returns a name from its parts.
    pub fn new(generation: u64, id: &str) -> Option<Rev> {
        let is_one = (1..=GENERATION_MAX).contains(&generation)
            && (1..=ID_BYTES_MAX).contains(&id.len())
            && !id.chars().any(|letter| letter.is_control() || letter == '"');
        is_one.then(|| Rev { generation, id: id.to_owned() })
    }
}

impl fmt::Display for Rev {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.generation, self.id)
    }
}

/// The data of a revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// `None` for the oldest known revision of a branch.
    pub parent: Option<Rev>,
    /// True if the revision deletes the document.
    pub deleted: bool,
}

/// A tree, or several trees after old revisions were forgotten.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tree {
    nodes: BTreeMap<Rev, Node>,
}

impl Tree {
    /// Returns a tree of nodes, whose parents must be among them.
    pub fn from_nodes(nodes: impl IntoIterator<Item = (Rev, Node)>) -> Tree {
        Tree { nodes: nodes.into_iter().collect() }
    }

    /// Returns the nodes, by revision.
    pub fn nodes(&self) -> &BTreeMap<Rev, Node> {
        &self.nodes
    }

    /// Returns true if there is no revision.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Returns true if the revision is known.
    pub fn contains(&self, rev: &Rev) -> bool {
        self.nodes.contains_key(rev)
    }

    /// Returns true if the revision deletes the document.
    pub fn is_deleted(&self, rev: &Rev) -> bool {
        self.nodes.get(rev).is_some_and(|node| node.deleted)
    }

    /// Returns the leaves, starting with the winner.
    pub fn leaves(&self) -> Vec<Rev> {
        let parents: BTreeSet<&Rev> =
            self.nodes.values().filter_map(|node| node.parent.as_ref()).collect();
        let mut leaves: Vec<(bool, &Rev)> = self
            .nodes
            .iter()
            .filter(|(rev, _)| !parents.contains(rev))
            .map(|(rev, node)| (!node.deleted, rev))
            .collect();
        leaves.sort_by(|one, other| other.cmp(one));
        leaves.into_iter().map(|(_, rev)| rev.clone()).collect()
    }

    /// Returns the leaf that represents the document.
    pub fn winner(&self) -> Option<Rev> {
        self.leaves().into_iter().next()
    }

    /// Returns the revision and its ancestors, down to the oldest known one.
    pub fn path(&self, rev: &Rev) -> Vec<Rev> {
        let mut path = Vec::new();
        let mut next = self.nodes.get_key_value(rev);
        while let Some((rev, node)) = next {
            path.push(rev.clone());
            next = node.parent.as_ref().and_then(|parent| self.nodes.get_key_value(parent));
        }
        path
    }

    /// Returns the leaves that descend from a revision, including itself if it is a leaf.
    pub fn leaves_of(&self, rev: &Rev) -> Vec<Rev> {
        let descends = |leaf: &Rev| leaf == rev || self.path(leaf).contains(rev);
        self.leaves().into_iter().filter(descends).collect()
    }

    /// Adds a child to a leaf, or the first revision.
    pub fn add(&mut self, parent: Option<Rev>, rev: Rev, deleted: bool) {
        self.nodes.entry(rev).or_insert(Node { parent, deleted });
    }

    /// Adds a path from a revision to its ancestors. Returns true if that changes the tree.
    ///
    /// Known revisions are joined; ancestors are added to the oldest known revision of a branch. A known parent is kept: a
    /// path that contradicts it adds nothing beyond that point.
    pub fn merge_path(&mut self, path: &[Rev], deleted: bool) -> bool {
        let mut changed = false;
        for (index, rev) in path.iter().enumerate() {
            let parent = path.get(index + 1);
            match self.nodes.get_mut(rev) {
                Some(known) => match (&known.parent, parent) {
                    (None, Some(parent)) => {
                        known.parent = Some(parent.clone());
                        changed = true;
                    }
                    // Older revisions may have been forgotten here.
                    (Some(known), Some(parent)) if known == parent => {}
                    _ => break,
                },
                None => {
                    let deleted = deleted && index == 0;
                    self.nodes.insert(rev.clone(), Node { parent: parent.cloned(), deleted });
                    changed = true;
                }
            }
        }
        changed
    }

    /// Adds all revisions of another tree.
    pub fn merge(&mut self, other: &Tree) {
        for leaf in other.leaves() {
            self.merge_path(&other.path(&leaf), other.is_deleted(&leaf));
        }
    }

    /// Forgets revisions that are `limit` or more steps away from every leaf that descends from them.
    pub fn stem(&mut self, limit: usize) {
        let mut nearest: BTreeMap<Rev, usize> = BTreeMap::new();
        for leaf in self.leaves() {
            for (step, rev) in self.path(&leaf).into_iter().take(limit.max(1)).enumerate() {
                match nearest.get_mut(&rev) {
                    Some(known) if *known <= step => break,
                    Some(known) => *known = step,
                    None => drop(nearest.insert(rev, step)),
                }
            }
        }
        if nearest.len() < self.nodes.len() {
            self.nodes.retain(|rev, _| nearest.contains_key(rev));
            for node in self.nodes.values_mut() {
                node.parent = node.parent.take().filter(|parent| nearest.contains_key(parent));
            }
        }
    }
}

/// Parses a path from a client: `{"start": 3, "ids": ["c", "b", "a"]}`, the newest first.
///
/// # Errors
/// The reason, if it is invalid.
pub fn read_path(start: u64, ids: &[String]) -> Result<Vec<Rev>, String> {
    if ids.is_empty() {
        return Err("_revisions.ids is empty".into());
    }
    if ids.len() > PATH_MAX {
        return Err(format!("_revisions.ids has {} revisions, more than {PATH_MAX}", ids.len()));
    }
    let oldest = (ids.len() as u64) - 1;
    if start <= oldest {
        return Err(format!("_revisions.start is {start}, with {} ids", ids.len()));
    }
    let rev = |(step, id): (usize, &String)| {
        let generation = start - step as u64;
        Rev::new(generation, id).ok_or_else(|| format!("{generation}-{id} is no revision"))
    };
    ids.iter().enumerate().map(rev).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rev(text: &str) -> Rev {
        Rev::parse(text).unwrap()
    }

    fn path(text: &str) -> Vec<Rev> {
        text.split(' ').map(rev).collect()
    }

    #[test]
    fn names_are_read_and_written() {
        assert_eq!(rev("10-x-y").to_string(), "10-x-y");
        for none in ["", "1", "1-", "-a", "0-a", "+1-a", "a-1", "99999999999999999999-a", "1-\n"] {
            assert_eq!(Rev::parse(none), None, "{none:?}");
        }
    }

    #[test]
    fn the_winner_lives_has_the_highest_generation_and_then_the_greatest_id() {
        let mut tree = Tree::default();
        tree.merge_path(&path("2-b 1-a"), false);
        tree.merge_path(&path("2-c 1-a"), false);
        assert_eq!(tree.winner(), Some(rev("2-c")));
        tree.merge_path(&path("3-d 2-c 1-a"), true);
        assert_eq!(tree.winner(), Some(rev("2-b")));
        tree.merge_path(&path("10-a"), false);
        assert_eq!(tree.leaves(), path("10-a 2-b 3-d"));
    }

    #[test]
    fn a_path_that_contradicts_a_known_parent_adds_nothing_below() {
        let mut tree = Tree::default();
        tree.merge_path(&path("3-c 2-b 1-a"), false);
        assert!(!tree.merge_path(&path("3-c 2-x 1-x"), false));
        assert!(tree.merge_path(&path("4-d 3-c 2-x 1-x"), false));
        assert_eq!(tree.path(&rev("4-d")), path("4-d 3-c 2-b 1-a"));
        assert_eq!(tree.leaves().len(), 1);
    }

    #[test]
    fn forgotten_ancestors_are_joined_again() {
        let mut tree = Tree::default();
        tree.merge_path(&path("4-d 3-c 2-b 1-a"), false);
        tree.merge_path(&path("3-x 2-b 1-a"), false);
        tree.stem(2);
        assert_eq!(tree.path(&rev("4-d")), path("4-d 3-c 2-b"));
        assert_eq!(tree.path(&rev("3-x")), path("3-x 2-b"));
        assert!(tree.merge_path(&path("3-c 2-b 1-a"), false));
        assert_eq!(tree.path(&rev("4-d")), path("4-d 3-c 2-b 1-a"));
    }

    #[test]
    fn lying_paths_are_refused() {
        let ids = |count: usize| vec!["a".to_owned(); count];
        assert!(read_path(3, &ids(3)).is_ok());
        for (start, ids) in
            [(0, ids(1)), (2, ids(3)), (u64::MAX, ids(1)), (9999, ids(5001)), (1, ids(0))]
        {
            assert!(read_path(start, &ids).is_err(), "{start} {}", ids.len());
        }
        assert!(read_path(1, &["".to_owned()]).is_err());
    }

    /// Paths of one history: the ID of a revision determines its parent.
    fn any_paths() -> impl Strategy<Value = Vec<(Vec<Rev>, bool)>> {
        let one = (proptest::collection::vec(0..3_u8, 1..6), 1..4_usize, any::<bool>());
        let path = one.prop_map(|(steps, seen, deleted)| {
            let id = |length: usize| {
                steps[..length].iter().map(|step| char::from(b'a' + step)).collect::<String>()
            };
            let revs = (1..=steps.len()).rev().take(seen);
            let path = revs.map(|length| Rev::new(length as u64, &id(length)).unwrap()).collect();
            (path, deleted)
        });
        proptest::collection::vec(path, 0..12)
    }

    proptest! {
        #[test]
        fn the_order_of_merging_does_not_matter(paths in any_paths()) {
            // A revision deletes or does not: the flag is that of the first path with the revision as its newest.
            let mut deleted: BTreeMap<Rev, bool> = BTreeMap::new();
            let paths: Vec<(Vec<Rev>, bool)> = paths
                .into_iter()
                .map(|(path, flag)| {
                    let flag = *deleted.entry(path[0].clone()).or_insert(flag);
                    (path, flag)
                })
                .collect();
            let tree_of = |paths: &mut dyn Iterator<Item = &(Vec<Rev>, bool)>| {
                let mut tree = Tree::default();
                paths.for_each(|(path, deleted)| {
                    tree.merge_path(path, *deleted);
                });
                tree
            };
            let one = tree_of(&mut paths.iter());
            let other = tree_of(&mut paths.iter().rev());
            let names = |tree: &Tree| tree.leaves().into_iter().collect::<BTreeSet<_>>();
            prop_assert_eq!(names(&one), names(&other));
            let mut twice = one.clone();
            twice.merge(&other);
            prop_assert_eq!(names(&twice), names(&one));
        }

        #[test]
        fn stemming_keeps_the_leaves(paths in any_paths(), limit in 1..4_usize) {
            let mut tree = Tree::default();
            for (path, deleted) in &paths {
                tree.merge_path(path, *deleted);
            }
            let before = tree.leaves();
            tree.stem(limit);
            prop_assert_eq!(tree.leaves(), before);
        }

        #[test]
        fn any_text_is_a_revision_or_none(text: String) {
            if let Some(rev) = Rev::parse(&text) {
                prop_assert!(Rev::parse(&rev.to_string()) == Some(rev));
            }
        }
    }
}
