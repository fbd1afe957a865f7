//! The encoding of pages and of the header.
//!
//! Lengths and counts are unsigned LEB128. A leaf is `00`, then key and value of each row, each prefixed with
//! its length. An inner page is `01`, then for each child: its maximum key with length, page ID, rows, bytes,
//! and reduction with length. The header is the next page ID, the total bytes of all pages, and the root's
//! child entry (absent when the tree is empty).

use super::Row;

/// The stored tree was not written by this code, or is damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Corrupt {
    /// The header cannot be read.
    #[error("the header of a B-tree is malformed")]
    Header,
    /// A page is missing.
    #[error("page {0} of a B-tree is missing")]
    Missing(u64),
    /// A page cannot be read.
    #[error("page {0} of a B-tree is malformed")]
    Malformed(u64),
    /// Pages point to each other deeper than any tree can grow.
    #[error("a B-tree is deeper than {0} pages")]
    TooDeep(usize),
}

/// The entry of a child in its parent page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Child {
    pub max_key: Vec<u8>,
    pub page: u64,
    pub rows: u64,
    /// Size of the child page without its descendants.
    pub bytes: u64,
    pub reduction: Vec<u8>,
}

/// The part of a tree outside its pages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Header {
    pub root: Option<Child>,
    pub next_page: u64,
    pub bytes: u64,
}

pub(super) enum Page<'a> {
    Leaf(Vec<Row<'a>>),
    Inner(Vec<Child>),
}

const LEAF: u8 = 0;
const INNER: u8 = 1;

impl Header {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_number(self.next_page, &mut out);
        put_number(self.bytes, &mut out);
        if let Some(root) = &self.root {
            root.encode(&mut out);
        }
        out
    }

    pub fn decode(bytes: &[u8]) -> Option<Header> {
        let mut reader = Reader(bytes);
        let (next_page, bytes) = (reader.number()?, reader.number()?);
        let root = if reader.0.is_empty() { None } else { Some(reader.child()?) };
        reader.0.is_empty().then_some(Header { root, next_page, bytes })
    }
}

impl Child {
    fn encode(&self, out: &mut Vec<u8>) {
        put_bytes(&self.max_key, out);
        put_number(self.page, out);
        put_number(self.rows, out);
        put_number(self.bytes, out);
        put_bytes(&self.reduction, out);
    }

    /// Returns the approximate size of this entry in a page, in bytes.
    pub fn entry_bytes(&self) -> usize {
        self.max_key.len() + self.reduction.len() + 16
    }
}

/// Returns the approximate size of a row in a page, in bytes.
pub(super) fn row_bytes(row: &Row<'_>) -> usize {
    row.key.len() + row.value.len() + 4
}

pub(super) fn encode_leaf(rows: &[Row<'_>]) -> Vec<u8> {
    let mut out = Vec::with_capacity(1 + rows.iter().map(row_bytes).sum::<usize>());
    out.push(LEAF);
    for row in rows {
        put_bytes(row.key, &mut out);
        put_bytes(row.value, &mut out);
    }
    out
}

pub(super) fn encode_inner(children: &[Child]) -> Vec<u8> {
    let mut out = Vec::with_capacity(1 + children.iter().map(Child::entry_bytes).sum::<usize>());
    out.push(INNER);
    for child in children {
        child.encode(&mut out);
    }
    out
}

impl<'a> Page<'a> {
    pub fn decode(bytes: &'a [u8]) -> Option<Page<'a>> {
        let (kind, rest) = bytes.split_first()?;
        let mut reader = Reader(rest);
        match *kind {
            LEAF => {
                let mut rows = Vec::new();
                while !reader.0.is_empty() {
                    rows.push(Row { key: reader.bytes()?, value: reader.bytes()? });
                }
                Some(Page::Leaf(rows))
            }
            INNER => {
                let mut children = Vec::new();
                while !reader.0.is_empty() {
                    children.push(reader.child()?);
                }
                Some(Page::Inner(children))
            }
            _ => None,
        }
    }
}

fn put_number(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn put_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    put_number(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn number(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self.0.split_first()?;
            self.0 = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.number()?).ok()?;
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes)
    }

    fn child(&mut self) -> Option<Child> {
        Some(Child {
            max_key: self.bytes()?.to_vec(),
            page: self.number()?,
            rows: self.number()?,
            bytes: self.number()?,
            reduction: self.bytes()?.to_vec(),
        })
    }
}
