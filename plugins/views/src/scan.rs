//! Reads the rows or groups in the ranges of a query, in order, until the taker stops.

use crate::answer::ValidQuery;
use crate::design::View;
use crate::mask::Mask;
use crate::reduction::ViewReducer;
use crate::row::{ViewRow, corrupt, key_and_value};
use nacre_js::Functions;
use nacre_plugin::btree::{self, Range, Row, Step, Tree};
use nacre_plugin::{Fault, State, collate, successor};
use std::cell::RefCell;
use std::cmp::Ordering;
use std::collections::VecDeque;

/// An item of an answer.
pub enum Item<'a> {
    /// A row, as stored in the tree and decoded.
    Row(Row<'a>, ViewRow<'a>),
    /// Reduced rows.
    Group(Group<'a>),
}

/// Rows that are reduced together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group<'a> {
    /// The common prefix of the tree keys of its rows; empty for the group of all rows.
    pub name: &'a [u8],
    /// The tree key of its first row in the order of the answer; empty for the group of all rows.
    pub first: &'a [u8],
    /// The key with which that row was emitted, as JSON; null for the group of all rows.
    pub key: &'a str,
    /// The reduction, as stored in the tree.
    pub reduction: &'a [u8],
}

impl<'a> Item<'a> {
    /// Returns the name, which determines the position of the item within its range.
    pub fn name(&self) -> &'a [u8] {
        match self {
            Item::Row(row, _) => row.key,
            Item::Group(group) => group.name,
        }
    }
}

/// The position of an item in an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place<'a> {
    /// Number of the query's range that contains the item.
    pub range: usize,
    /// The name of the item ([`Item::name`]).
    pub name: &'a [u8],
}

impl Place<'_> {
    /// Compares two places in the order of the answer.
    pub fn compare(&self, other: &Place<'_>, descending: bool) -> Ordering {
        let names = self.name.cmp(other.name);
        self.range.cmp(&other.range).then(if descending { names.reverse() } else { names })
    }
}

/// The consumer of a scan's items.
pub trait ItemConsumer {
    /// Returns the number of rows to skip before the first row that the taker needs. Called only before the last range,
    /// in which the tree skips whole pages; each earlier range may end within the skipped rows.
    fn skip(&mut self) -> u64 {
        0
    }

    /// Takes an item of the range with this number. Returns `Break` if the scan must stop after it.
    fn take(&mut self, range: usize, item: Item<'_>) -> Step;
}

/// The rest of a scan.
pub struct Scan {
    reduced: bool,
    group_level: Option<usize>,
    /// The remaining ranges, in the order of the answer.
    ranges: VecDeque<Range>,
    /// Number of the first remaining range.
    number: usize,
}

impl Scan {
    /// Creates the scan of all ranges.
    pub fn new(asked: &ValidQuery) -> Scan {
        let ranges = asked.ranges.clone();
        Scan { reduced: asked.reduced, group_level: asked.query.group_level, ranges, number: 0 }
    }

    /// Skips everything up to and including the item at `place`.
    pub fn pass(&mut self, place: Place<'_>) {
        while self.number < place.range && self.pass_range() {}
        if self.number == place.range {
            self.pass_item(place.name);
        }
    }

    fn pass_range(&mut self) -> bool {
        self.number += 1;
        self.ranges.pop_front().is_some()
    }

    /// Skips the items of the first range up to and including the item named `name`.
    fn pass_item(&mut self, name: &[u8]) {
        let Some(range) = self.ranges.front_mut() else { return };
        let border = match (range.reverse, self.reduced) {
            (true, _) => name.to_vec(),
            (false, true) => successor(name),
            (false, false) => [name, b"\0"].concat(),
        };
        if border.is_empty() {
            // The group of all rows is the only one.
            self.pass_range();
        } else if !range.reverse {
            range.start = border.max(std::mem::take(&mut range.start));
        } else if range.end.is_empty() || border < range.end {
            range.end = border;
        }
    }

    /// Passes items to `taker` until there are no more (`Continue`) or the taker stops. The remaining scan then starts
    /// after the item that it took last.
    pub fn read(
        &mut self,
        tree: &Tree<'_>,
        state: &dyn State,
        taker: &mut dyn ItemConsumer,
    ) -> Result<Step, Fault> {
        while let Some(range) = self.ranges.front() {
            let last = match self.reduced {
                true => self.groups(tree, range, state, taker)?,
                false => self.rows(tree, range, state, taker)?,
            };
            if let Some(name) = last {
                self.pass_item(&name);
                return Ok(Step::Break(()));
            }
            self.pass_range();
        }
        Ok(Step::Continue(()))
    }

    /// Reads the rows of the first range. Returns the tree key of the row at which `taker` stopped.
    fn rows(
        &self,
        tree: &Tree<'_>,
        range: &Range,
        state: &dyn State,
        taker: &mut dyn ItemConsumer,
    ) -> Result<Option<Vec<u8>>, Fault> {
        let skip = if self.ranges.len() == 1 { taker.skip() } else { 0 };
        let (mut damaged, mut last) = (false, None);
        let each = |row: Row<'_>| {
            let Some(view_row) = ViewRow::decode(row.key, row.value) else {
                damaged = true;
                return Step::Break(());
            };
            let step = taker.take(self.number, Item::Row(row, view_row));
            if step.is_break() {
                last = Some(row.key.to_vec());
            }
            step
        };
        tree.rows(state, range, skip, each).map_err(corrupt)?;
        if damaged { Err(corrupt("row")) } else { Ok(last) }
    }

    /// Reads the groups of the first range. Returns the name of the group at which `taker` stopped.
    fn groups(
        &self,
        tree: &Tree<'_>,
        range: &Range,
        state: &dyn State,
        taker: &mut dyn ItemConsumer,
    ) -> Result<Option<Vec<u8>>, Fault> {
        let level = self.group_level;
        let name_bytes = |key: &[u8]| match level {
            None => 0,
            // An invalid key forms a group of its own, and is reported when the group is read.
            Some(usize::MAX) => collate::value_bytes(key).unwrap_or(key.len()),
            Some(level) => collate::group_bytes(key, level).unwrap_or(key.len()),
        };
        let mut last = None;
        let mut each = |found: btree::Group| {
            let (first, value) = found.first.unwrap_or_default();
            let name = &first[..name_bytes(&first).min(first.len())];
            let key = key_and_value(&value).map_or("null", |(key, _)| key);
            let group = Group { name, first: &first, key, reduction: &found.reduction };
            let step = taker.take(self.number, Item::Group(group));
            if step.is_break() {
                last = Some(name.to_vec());
            }
            step
        };
        tree.groups(state, range, &name_bytes, &mut each).map_err(corrupt)?;
        Ok(last)
    }
}

/// Calls `read` with the tree of a view, restricted to the rows that `mask` sees.
pub fn with_tree<T>(
    view: &View,
    functions: &RefCell<Functions>,
    mask: Option<&Mask>,
    read: impl FnOnce(&Tree<'_>) -> T,
) -> T {
    let reducer = ViewReducer { reduce: view.reduce.as_ref(), functions };
    let tree = Tree::new(&view.prefix, &reducer);
    match mask {
        Some(mask) => read(&tree.seeing(&|row| mask.sees(row))),
        None => read(&tree),
    }
}
