//! A copy-on-write B-tree over [`State`], which stores a reduction of its rows next to every child pointer.
//!
//! ```text
//!                 header: root page, next page id, rows, bytes
//!                             │
//!              ┌─ inner ──────┴───────────────────────┐
//!              │ max key, page, rows, bytes, reduction │ … one per child
//!              └──┬────────────────────┬──────────────┘
//!           ┌─ leaf ──┐          ┌─ leaf ──┐
//!           │ key, value … │     │ key, value … │
//! ```
//!
//! A batch of changes is applied in one pass from the root: every page on a changed path is written under a new ID,
//! and the old page is removed in the same commit. Readers have snapshots of the state, so they still see the old
//! pages. The structure is that of the append-only B-trees of the CouchDB family.
//!
//! A range is reduced from the reductions of the children within it; only pages at its borders are opened. The same
//! applies to each group of a grouped reduction.
//!
//! Invariants: keys ascend within a page; a child's max key is its greatest key; page IDs are never reused; a tree
//! without rows has no pages. A violation is reported as [`Corrupt`] and never panics.

mod page;
mod read;
mod write;

pub use page::Corrupt;
pub use read::{Group, Range, Row, Step};
pub use write::Change;

use crate::State;
use page::{Header, Page};

/// Summarises the rows of a tree. Reductions are opaque bytes to the tree.
pub trait Reducer {
    /// Returns the reduction of rows in key order; never called without rows.
    fn reduce(&self, rows: &[Row<'_>]) -> Vec<u8>;

    /// Returns the reduction of reductions; never called with fewer than two.
    fn rereduce(&self, parts: &[&[u8]]) -> Vec<u8>;
}

/// The reducer of a tree that is never reduced: every reduction is empty.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoReduction;

impl Reducer for NoReduction {
    fn reduce(&self, _: &[Row<'_>]) -> Vec<u8> {
        Vec::new()
    }

    fn rereduce(&self, _: &[&[u8]]) -> Vec<u8> {
        Vec::new()
    }
}

/// A tree in the part of the key space that starts with a prefix.
#[derive(Clone, Copy)]
pub struct Tree<'a> {
    prefix: &'a [u8],
    reducer: &'a dyn Reducer,
    sees: Option<&'a dyn Fn(Row<'_>) -> bool>,
}

impl<'a> Tree<'a> {
    /// Creates the tree below `prefix`, which nothing else may use. It is empty until changes are applied.
    ///
    /// Always pass the same `reducer` for the same tree, because stored reductions are reused.
    pub fn new(prefix: &'a [u8], reducer: &'a dyn Reducer) -> Tree<'a> {
        Tree { prefix, reducer, sees: None }
    }

    /// Returns a view of the tree with only the rows for which `sees` returns true. Reading it opens every page of a
    /// range, because the counts and reductions in pages cover all rows.
    pub fn seeing(self, sees: &'a dyn Fn(Row<'_>) -> bool) -> Tree<'a> {
        Tree { sees: Some(sees), ..self }
    }

    /// Returns the number of rows.
    ///
    /// # Errors
    /// [`Corrupt`] if the tree cannot be read; the same applies to all methods.
    pub fn row_count(&self, state: &dyn State) -> Result<u64, Corrupt> {
        if self.sees.is_none() {
            return Ok(self.header(state)?.root.map_or(0, |root| root.rows));
        }
        let mut count = 0;
        self.rows(state, &Range::default(), 0, |_| {
            count += 1;
            Step::Continue(())
        })?;
        Ok(count)
    }

    /// Returns the total size of all pages in bytes.
    ///
    /// # Errors
    /// As for [`Tree::row_count`].
    pub fn bytes(&self, state: &dyn State) -> Result<u64, Corrupt> {
        Ok(self.header(state)?.bytes)
    }

    fn header(&self, state: &dyn State) -> Result<Header, Corrupt> {
        match state.get(&self.header_key()) {
            Some(bytes) => Header::decode(&bytes).ok_or(Corrupt::Header),
            None => Ok(Header::default()),
        }
    }

    fn load(&self, state: &dyn State, id: u64) -> Result<Vec<u8>, Corrupt> {
        state.get(&self.page_key(id)).ok_or(Corrupt::Missing(id))
    }

    fn header_key(&self) -> Vec<u8> {
        [self.prefix, b"h"].concat()
    }

    fn page_key(&self, id: u64) -> Vec<u8> {
        [self.prefix, b"p", &id.to_be_bytes()[..]].concat()
    }
}

fn decode(bytes: &[u8], id: u64) -> Result<Page<'_>, Corrupt> {
    Page::decode(bytes).ok_or(Corrupt::Malformed(id))
}
