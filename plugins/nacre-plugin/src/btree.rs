//! A copy-on-write B-tree over [`State`], with a reduction of its rows kept beside every child pointer.
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
//! A batch of changes is applied in one pass from the root: every page on a changed path is written anew under
//! a new id, and the old one is removed in the same commit. Readers hold snapshots of the state, so they keep
//! the old pages. The shape is that of the append-only B-trees of the CouchDB family.
//!
//! A range is reduced from the reductions of the children that lie within it; only pages on its borders are
//! opened. The same holds for each group of a grouped reduction.
//!
//! Invariants: keys ascend within a page; a child's max key is its greatest key; page ids are never used twice;
//! a tree without rows has no pages. What breaks one of them is reported as [`Corrupt`], never a panic.

mod page;
mod read;
mod write;

pub use page::Corrupt;
pub use read::{Group, Range, Row, Step};
pub use write::Change;

use crate::State;
use page::{Header, Page};

/// How the rows of a tree are summarised. Reductions are opaque bytes to the tree.
pub trait Reducer {
    /// The reduction of some rows, in key order; never called without rows.
    fn reduce(&self, rows: &[Row<'_>]) -> Vec<u8>;

    /// The reduction of reductions; never called with fewer than two.
    fn rereduce(&self, parts: &[&[u8]]) -> Vec<u8>;
}

/// For a tree that is never reduced: every reduction is empty.
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
    /// The tree below `prefix`, which nothing else may use. It is empty until something is applied.
    ///
    /// Always give the same `reducer` to the same tree: reductions already written are used as they are.
    pub fn new(prefix: &'a [u8], reducer: &'a dyn Reducer) -> Tree<'a> {
        Tree { prefix, reducer, sees: None }
    }

    /// The same tree as if it held only the rows that `sees` is true of. Reading it opens every page of a range, since
    /// what pages keep about their children counts all rows.
    pub fn seeing(self, sees: &'a dyn Fn(Row<'_>) -> bool) -> Tree<'a> {
        Tree { sees: Some(sees), ..self }
    }

    /// How many rows there are.
    ///
    /// # Errors
    /// [`Corrupt`] when the tree cannot be read; so for all methods.
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

    /// Bytes of all pages.
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
