//! Reading what a query asks for: the rows or groups of its ranges, one after the other, as far as they are taken.

use crate::answer::Asked;
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

/// One of the things that an answer lists.
pub enum Item<'a> {
    /// A row, as it stands in the tree and as it reads.
    Row(Row<'a>, ViewRow<'a>),
    /// Rows that were reduced.
    Group(Group<'a>),
}

/// Rows that fall together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group<'a> {
    /// What the tree keys of its rows begin with; empty when all rows are one group.
    pub name: &'a [u8],
    /// The tree key of its first row in the order of the answer; empty when all rows are one group.
    pub first: &'a [u8],
    /// The key which that row was emitted with, as JSON; null when all rows are one group.
    pub key: &'a str,
    /// The reduction, as the tree keeps it.
    pub reduction: &'a [u8],
}

impl<'a> Item<'a> {
    /// What places an item among the others of its range.
    pub fn name(&self) -> &'a [u8] {
        match self {
            Item::Row(row, _) => row.key,
            Item::Group(group) => group.name,
        }
    }
}

/// Where an item stands in an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place<'a> {
    /// Which of the query's ranges the item is in.
    pub range: usize,
    /// What places it there ([`Item::name`]).
    pub name: &'a [u8],
}

impl Place<'_> {
    /// Which of two places comes first.
    pub fn compare(&self, other: &Place<'_>, descending: bool) -> Ordering {
        let names = self.name.cmp(other.name);
        self.range.cmp(&other.range).then(if descending { names.reverse() } else { names })
    }
}

/// Who takes the items of a scan.
pub trait Taker {
    /// How many rows may be left out before the first that is taken. Asked before the last range, of which the tree skips
    /// whole pages; of several ranges, each may end within what is skipped.
    fn skip(&mut self) -> u64 {
        0
    }

    /// Takes an item of the range with this number; `Break` when it is the last that is wanted for now.
    fn take(&mut self, range: usize, item: Item<'_>) -> Step;
}

/// What is left to be read.
pub struct Scan {
    reduced: bool,
    group_level: Option<usize>,
    /// What is left of the ranges, in the order of the answer.
    ranges: VecDeque<Range>,
    /// The number of the first of them.
    number: usize,
}

impl Scan {
    /// All that is asked for.
    pub fn new(asked: &Asked) -> Scan {
        let ranges = asked.ranges.clone();
        Scan { reduced: asked.reduced, group_level: asked.query.group_level, ranges, number: 0 }
    }

    /// Leaves out everything up to `place`, the item there included.
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

    /// Leaves out the items of the first range up to the one called `name`.
    fn pass_item(&mut self, name: &[u8]) {
        let Some(range) = self.ranges.front_mut() else { return };
        let border = match (range.reverse, self.reduced) {
            (true, _) => name.to_vec(),
            (false, true) => successor(name),
            (false, false) => [name, b"\0"].concat(),
        };
        if border.is_empty() {
            // All rows are one group: there is nothing behind it.
            self.pass_range();
        } else if !range.reverse {
            range.start = border.max(std::mem::take(&mut range.start));
        } else if range.end.is_empty() || border < range.end {
            range.end = border;
        }
    }

    /// Gives items until they are all given (`Continue`), or `taker` breaks off: then what is left begins behind the item
    /// that it took last.
    pub fn read(
        &mut self,
        tree: &Tree<'_>,
        state: &dyn State,
        taker: &mut dyn Taker,
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

    /// The rows of the first range; gives the tree key of the row with which `taker` broke off.
    fn rows(
        &self,
        tree: &Tree<'_>,
        range: &Range,
        state: &dyn State,
        taker: &mut dyn Taker,
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

    /// The groups of the first range; gives the name of the group with which `taker` broke off.
    fn groups(
        &self,
        tree: &Tree<'_>,
        range: &Range,
        state: &dyn State,
        taker: &mut dyn Taker,
    ) -> Result<Option<Vec<u8>>, Fault> {
        let level = self.group_level;
        let name_bytes = |key: &[u8]| match level {
            None => 0,
            // A key that is no encoding makes a group of its own, and is reported when it is read.
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

/// Calls `read` with the tree of a view, which shows the rows that `mask` sees.
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
