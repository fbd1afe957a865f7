//! Reads rows of a range in either direction, and reductions of a range by groups.

use super::page::{Child, Corrupt, Page};
use super::write::DEPTH_MAX;
use super::{Tree, decode};
use crate::State;
use std::ops::ControlFlow;

/// A row of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The value.
    pub value: &'a [u8],
}

/// Tells a read whether to continue: `Continue(())` or `Break(())`.
pub type Step = ControlFlow<()>;

/// A range of keys and the direction in which to read it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Range {
    /// The first key of the range.
    pub start: Vec<u8>,
    /// The first key after the range; empty for no bound.
    pub end: Vec<u8>,
    /// True to read from the end to the start.
    pub reverse: bool,
}

impl Range {
    fn has(&self, key: &[u8]) -> bool {
        key >= &self.start[..] && self.ends_after(key)
    }

    fn ends_after(&self, key: &[u8]) -> bool {
        self.end.is_empty() || key < &self.end[..]
    }
}

/// A group of rows in a grouped reduction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Key and value of the first row of the group in reading direction; `None` for a reduction without
    /// groups.
    pub first: Option<(Vec<u8>, Vec<u8>)>,
    /// The reduction of all rows of the group.
    pub reduction: Vec<u8>,
}

/// A child and its possible keys: those above `above`, up to its greatest key.
struct Span<'a> {
    above: Option<&'a [u8]>,
    child: &'a Child,
}

impl Span<'_> {
    fn meets(&self, range: &Range) -> bool {
        self.child.max_key >= range.start && self.above.is_none_or(|above| range.ends_after(above))
    }

    fn lies_within(&self, range: &Range) -> bool {
        let starts_within = match self.above {
            Some(above) => above >= &range.start[..],
            None => range.start.is_empty(),
        };
        starts_within && range.ends_after(&self.child.max_key)
    }
}

/// Processes the children and rows of a range.
trait Visitor {
    /// Offers a whole child that lies within the range. Returns true to take it, false to have it opened.
    fn takes(&mut self, span: &Span<'_>) -> bool;

    fn row(&mut self, row: Row<'_>) -> Step;
}

impl Tree<'_> {
    /// Calls `each` with the rows of `range` in order, without the first `skip` rows.
    ///
    /// Skipping is as cheap as a lookup: whole pages are skipped by their row counts.
    ///
    /// # Errors
    /// [`Corrupt`] if the tree cannot be read.
    pub fn rows(
        &self,
        state: &dyn State,
        range: &Range,
        skip: u64,
        each: impl FnMut(Row<'_>) -> Step,
    ) -> Result<(), Corrupt> {
        self.walk(state, range, &mut Rows { skip, each })
    }

    /// Calls `each` with every group of `range` in order.
    ///
    /// `group` returns the number of leading bytes of a key that identify its group. It must return 0 for all
    /// keys (one group), or values for which equal prefixes are adjacent.
    ///
    /// # Errors
    /// [`Corrupt`] if the tree cannot be read.
    pub fn groups(
        &self,
        state: &dyn State,
        range: &Range,
        group: &dyn Fn(&[u8]) -> usize,
        each: &mut dyn FnMut(Group) -> Step,
    ) -> Result<(), Corrupt> {
        let reverse = range.reverse;
        let mut groups = Groups { tree: *self, group, each, reverse, open: None, done: false };
        self.walk(state, range, &mut groups)?;
        if !groups.done {
            let _ = groups.close();
        }
        Ok(())
    }

    fn walk(
        &self,
        state: &dyn State,
        range: &Range,
        visitor: &mut dyn Visitor,
    ) -> Result<(), Corrupt> {
        if let Some(root) = self.header(state)?.root {
            let _ =
                self.walk_child(state, range, &Span { above: None, child: &root }, visitor, 0)?;
        }
        Ok(())
    }

    fn walk_child(
        &self,
        state: &dyn State,
        range: &Range,
        span: &Span<'_>,
        visitor: &mut dyn Visitor,
        depth: usize,
    ) -> Result<Step, Corrupt> {
        if depth > DEPTH_MAX {
            return Err(Corrupt::TooDeep(DEPTH_MAX));
        }
        let is_whole = self.sees.is_none() && span.lies_within(range);
        if !span.meets(range) || (is_whole && visitor.takes(span)) {
            return Ok(Step::Continue(()));
        }
        let id = span.child.page;
        let bytes = self.load(state, id)?;
        match decode(&bytes, id)? {
            Page::Leaf(rows) => {
                let is_seen = |row: &Row<'_>| self.sees.is_none_or(|sees| sees(*row));
                let mut rows = rows.into_iter().filter(|row| range.has(row.key) && is_seen(row));
                let mut each = |row| visitor.row(row);
                Ok(if range.reverse {
                    rows.rev().try_for_each(each)
                } else {
                    rows.try_for_each(&mut each)
                })
            }
            Page::Inner(children) => {
                let count = children.len();
                for step in 0..count {
                    let index = if range.reverse { count - 1 - step } else { step };
                    let above = match index {
                        0 => span.above,
                        _ => Some(&children[index - 1].max_key[..]),
                    };
                    let span = Span { above, child: &children[index] };
                    if self.walk_child(state, range, &span, visitor, depth + 1)?.is_break() {
                        return Ok(Step::Break(()));
                    }
                }
                Ok(Step::Continue(()))
            }
        }
    }
}

struct Rows<F> {
    skip: u64,
    each: F,
}

impl<F: FnMut(Row<'_>) -> Step> Visitor for Rows<F> {
    fn takes(&mut self, span: &Span<'_>) -> bool {
        let takes = span.child.rows <= self.skip;
        if takes {
            self.skip -= span.child.rows;
        }
        takes
    }

    fn row(&mut self, row: Row<'_>) -> Step {
        if self.skip > 0 {
            self.skip -= 1;
            return Step::Continue(());
        }
        (self.each)(row)
    }
}

/// Maximum number of rows that are reduced together, possibly from several leaves. The limit exists because a
/// reducer may be user code.
const REDUCED_ROWS_MAX: usize = 256;
/// Maximum size of rows that are reduced together, in bytes.
const REDUCED_BYTES_MAX: usize = 256 << 10;

/// The group being read.
struct Open {
    name: Vec<u8>,
    first: Option<(Vec<u8>, Vec<u8>)>,
    parts: Vec<Vec<u8>>,
    rows: Vec<(Vec<u8>, Vec<u8>)>,
    row_bytes: usize,
}

struct Groups<'a> {
    tree: Tree<'a>,
    group: &'a dyn Fn(&[u8]) -> usize,
    each: &'a mut dyn FnMut(Group) -> Step,
    reverse: bool,
    open: Option<Open>,
    done: bool,
}

impl Groups<'_> {
    fn name<'k>(&self, key: &'k [u8]) -> &'k [u8] {
        &key[..(self.group)(key).min(key.len())]
    }

    fn reduce_rows(&self, open: &mut Open) {
        if !open.rows.is_empty() {
            // Reducers receive rows in key order, whatever the reading direction.
            if self.reverse {
                open.rows.reverse();
            }
            let rows: Vec<_> = open.rows.iter().map(|(key, value)| Row { key, value }).collect();
            open.parts.push(self.tree.reducer.reduce(&rows));
            open.rows.clear();
            open.row_bytes = 0;
        }
    }

    fn close(&mut self) -> Step {
        let Some(mut open) = self.open.take() else { return Step::Continue(()) };
        self.reduce_rows(&mut open);
        if self.reverse {
            open.parts.reverse();
        }
        let reduction = match &mut open.parts[..] {
            [only] => std::mem::take(only),
            parts => {
                let parts: Vec<_> = parts.iter().map(|part| &part[..]).collect();
                self.tree.reducer.rereduce(&parts)
            }
        };
        let step = (self.each)(Group { first: open.first, reduction });
        self.done = step.is_break();
        step
    }
}

impl Visitor for Groups<'_> {
    fn takes(&mut self, span: &Span<'_>) -> bool {
        let name = self.name(&span.child.max_key);
        // Without groups there is nothing to compare. Otherwise the child belongs to the open group if both
        // its greatest key and the key before its first key do.
        let whole = name.is_empty() || span.above.is_some_and(|above| self.name(above) == name);
        let name = name.to_vec();
        match &mut self.open {
            Some(open) if whole && open.name == name => {
                open.parts.push(span.child.reduction.clone());
                true
            }
            None if name.is_empty() => {
                let parts = vec![span.child.reduction.clone()];
                self.open = Some(Open { name, first: None, parts, rows: Vec::new(), row_bytes: 0 });
                true
            }
            _ => false,
        }
    }

    fn row(&mut self, row: Row<'_>) -> Step {
        let name = self.name(row.key);
        if self.open.as_ref().is_some_and(|open| open.name != name) {
            self.close()?;
        }
        let name = self.name(row.key).to_vec();
        let owned = (row.key.to_vec(), row.value.to_vec());
        let mut open = self.open.take().unwrap_or_else(|| Open {
            first: (!name.is_empty()).then(|| owned.clone()),
            name,
            parts: Vec::new(),
            rows: Vec::new(),
            row_bytes: 0,
        });
        open.row_bytes += row.key.len() + row.value.len();
        open.rows.push(owned);
        if open.rows.len() >= REDUCED_ROWS_MAX || open.row_bytes >= REDUCED_BYTES_MAX {
            self.reduce_rows(&mut open);
        }
        self.open = Some(open);
        Step::Continue(())
    }
}
