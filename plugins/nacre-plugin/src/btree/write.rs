//! Applies changes in one pass over the affected pages.

use super::page::{Child, Corrupt, Header, Page, encode_inner, encode_leaf, row_bytes};
use super::{Row, Tree, decode};
use crate::StateMut;

/// Size beyond which a page is split. It is small because a change of one row rewrites its whole page: 3.3 KB per row with
/// pages of 4 KB and 2.3 KB with 2 KB, in a tree of 600,000 rows with 512 changes at a time. It is large enough that a tree
/// of ten million rows has five levels.
pub(super) const PAGE_BYTES: usize = 2048;
/// Neighbours whose total size is at most this are joined, so that deletions do not leave many tiny pages.
const JOIN_BYTES: u64 = PAGE_BYTES as u64 / 2;
/// Maximum depth; no tree that fits on a machine is deeper.
pub(super) const DEPTH_MAX: usize = 32;

const _: () = assert!(JOIN_BYTES < PAGE_BYTES as u64);

/// A change of one key: its new value, or `None` to remove it.
pub type Change = (Vec<u8>, Option<Vec<u8>>);

impl Tree<'_> {
    /// Applies `changes`, which must ascend strictly by key.
    ///
    /// # Errors
    /// [`Corrupt`] if the tree cannot be read; the state must then be discarded.
    pub fn apply(&self, state: &mut dyn StateMut, changes: &[Change]) -> Result<(), Corrupt> {
        debug_assert!(changes.windows(2).all(|pair| pair[0].0 < pair[1].0));
        if changes.is_empty() {
            return Ok(());
        }
        let header = self.header(state.reading())?;
        let root = header.root.clone();
        let mut writer = Writer { tree: *self, state, header };
        let mut level = match root {
            Some(root) => writer.change(&root, changes, 0)?,
            None => writer.write_leaves(&merged(&[], changes)),
        };
        while level.len() > 1 {
            level = writer.write_inners(level);
        }
        writer.header.root = match level.pop() {
            Some(root) => Some(writer.lowered(root)?),
            None => None,
        };
        let (key, value) = (self.header_key(), writer.header.encode());
        state.put(&key, &value);
        Ok(())
    }
}

struct Writer<'a> {
    tree: Tree<'a>,
    state: &'a mut dyn StateMut,
    header: Header,
}

impl Writer<'_> {
    /// Applies `changes` below `child`. Returns the pages that replace it, on the same level.
    fn change(
        &mut self,
        child: &Child,
        changes: &[Change],
        depth: usize,
    ) -> Result<Vec<Child>, Corrupt> {
        if depth > DEPTH_MAX {
            return Err(Corrupt::TooDeep(DEPTH_MAX));
        }
        let bytes = self.tree.load(self.state.reading(), child.page)?;
        let level = match decode(&bytes, child.page)? {
            Page::Leaf(rows) => self.write_leaves(&merged(&rows, changes)),
            Page::Inner(children) => {
                let changed = self.change_children(children, changes, depth)?;
                self.write_inners(changed)
            }
        };
        self.remove(child);
        Ok(level)
    }

    fn change_children(
        &mut self,
        children: Vec<Child>,
        mut changes: &[Change],
        depth: usize,
    ) -> Result<Vec<Child>, Corrupt> {
        let last = children.len().saturating_sub(1);
        let mut level = Vec::with_capacity(children.len());
        for (index, child) in children.into_iter().enumerate() {
            // Keys above the greatest key belong to the last child.
            let count = match index == last {
                true => changes.len(),
                false => changes.partition_point(|(key, _)| *key <= child.max_key),
            };
            let (here, rest) = changes.split_at(count);
            changes = rest;
            if here.is_empty() {
                level.push(child);
            } else {
                level.extend(self.change(&child, here, depth + 1)?);
            }
        }
        self.join_crumbs(level)
    }

    /// Joins neighbours whose total size is small.
    fn join_crumbs(&mut self, level: Vec<Child>) -> Result<Vec<Child>, Corrupt> {
        let mut joined: Vec<Child> = Vec::with_capacity(level.len());
        for child in level {
            match joined.last() {
                Some(previous) if previous.bytes + child.bytes <= JOIN_BYTES => {
                    let previous = joined.pop().expect("it was just looked at");
                    joined.push(self.join(&previous, &child)?);
                }
                _ => joined.push(child),
            }
        }
        Ok(joined)
    }

    fn join(&mut self, left: &Child, right: &Child) -> Result<Child, Corrupt> {
        let left_bytes = self.tree.load(self.state.reading(), left.page)?;
        let right_bytes = self.tree.load(self.state.reading(), right.page)?;
        let child = match (decode(&left_bytes, left.page)?, decode(&right_bytes, right.page)?) {
            (Page::Leaf(mut rows), Page::Leaf(more)) => {
                rows.extend(more);
                self.write_leaf(&rows)
            }
            (Page::Inner(mut children), Page::Inner(more)) => {
                children.extend(more);
                self.write_inner(&children)
            }
            _ => return Err(Corrupt::Malformed(right.page)),
        };
        self.remove(left);
        self.remove(right);
        Ok(child)
    }

    /// Returns the first page below a root with a single child that has several children, or is a leaf.
    fn lowered(&mut self, mut root: Child) -> Result<Child, Corrupt> {
        for _ in 0..DEPTH_MAX {
            let bytes = self.tree.load(self.state.reading(), root.page)?;
            match decode(&bytes, root.page)? {
                Page::Inner(mut children) if children.len() == 1 => {
                    self.remove(&root);
                    root = children.remove(0);
                }
                _ => return Ok(root),
            }
        }
        Err(Corrupt::TooDeep(DEPTH_MAX))
    }

    fn write_leaves(&mut self, rows: &[Row<'_>]) -> Vec<Child> {
        split(rows, 1, row_bytes).map(|rows| self.write_leaf(rows)).collect()
    }

    fn write_inners(&mut self, children: Vec<Child>) -> Vec<Child> {
        split(&children, 2, Child::entry_bytes).map(|children| self.write_inner(children)).collect()
    }

    fn write_leaf(&mut self, rows: &[Row<'_>]) -> Child {
        let last = rows.last().expect("a page has rows");
        let reduction = self.tree.reducer.reduce(rows);
        self.write(encode_leaf(rows), last.key.to_vec(), rows.len() as u64, reduction)
    }

    fn write_inner(&mut self, children: &[Child]) -> Child {
        let last = children.last().expect("a page has children");
        let reduction = match children {
            [only] => only.reduction.clone(),
            _ => {
                let parts: Vec<_> = children.iter().map(|child| &child.reduction[..]).collect();
                self.tree.reducer.rereduce(&parts)
            }
        };
        let rows = children.iter().map(|child| child.rows).sum();
        self.write(encode_inner(children), last.max_key.clone(), rows, reduction)
    }

    fn write(&mut self, page: Vec<u8>, max_key: Vec<u8>, rows: u64, reduction: Vec<u8>) -> Child {
        let id = self.header.next_page;
        self.header.next_page += 1;
        self.header.bytes += page.len() as u64;
        self.state.put(&self.tree.page_key(id), &page);
        Child { max_key, page: id, rows, bytes: page.len() as u64, reduction }
    }

    fn remove(&mut self, child: &Child) {
        self.header.bytes = self.header.bytes.saturating_sub(child.bytes);
        self.state.delete(&self.tree.page_key(child.page));
    }
}

/// Returns `rows` with `changes` applied; both ascend.
fn merged<'a>(rows: &[Row<'a>], changes: &'a [Change]) -> Vec<Row<'a>> {
    let mut out = Vec::with_capacity(rows.len() + changes.len());
    let mut rows = rows.iter().copied().peekable();
    for (key, value) in changes {
        while let Some(row) = rows.next_if(|row| row.key < &key[..]) {
            out.push(row);
        }
        rows.next_if(|row| row.key == &key[..]);
        if let Some(value) = value {
            out.push(Row { key, value });
        }
    }
    out.extend(rows);
    out
}

/// Splits `items` into runs of about equal size: at most a page each, but at least `at_least` items whatever their size.
///
/// An inner page needs two children; otherwise large reductions would add levels without end.
fn split<T>(
    items: &[T],
    at_least: usize,
    size: impl Fn(&T) -> usize,
) -> impl Iterator<Item = &[T]> {
    let total: usize = items.iter().map(&size).sum();
    let target = total / total.div_ceil(PAGE_BYTES).max(1);
    let mut rest = items;
    std::iter::from_fn(move || {
        let (mut count, mut bytes) = (0, 0);
        for item in rest {
            let item_bytes = size(item);
            if count >= at_least && bytes + item_bytes / 2 > target {
                break;
            }
            count += 1;
            bytes += item_bytes;
        }
        let (run, tail) = rest.split_at(count);
        rest = tail;
        (count > 0).then_some(run)
    })
}
