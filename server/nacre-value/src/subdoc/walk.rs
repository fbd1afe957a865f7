//! Finds the position of a path in a text, by scanning from the start to that position and no further.

use crate::Error;
use crate::json::{space_end, string_end};
use crate::path::{Component, DEPTH_MAX};

/// A member of an object or an element of an array, as positions in the document.
#[derive(Clone, Copy)]
pub(super) struct Child {
    /// Start of the member's name, or of the element.
    pub(super) start: usize,
    /// The content of the member's name, without quotation marks; empty for an element.
    name: (usize, usize),
    /// Start of the value.
    pub(super) value: usize,
    /// The comma before the child, unless it is the first.
    pub(super) comma: Option<usize>,
}

/// Result of following a path.
pub(super) enum Target {
    /// The path leads to a value.
    Found(Child),
    /// The path leads nowhere: `components[matched]` is missing from a container that can take a child at `gap`.
    Missing { gap: Gap, matched: usize },
}

/// The end of a container's children, where another child can be inserted.
#[derive(Clone, Copy)]
pub(super) struct Gap {
    /// Position after the last child, or after the opening bracket.
    pub(super) at: usize,
    /// Number of children before the gap.
    pub(super) count: usize,
}

/// Follows `components` from the root of `document`.
pub(super) fn walk(document: &[u8], components: &[Component<'_>]) -> Result<Target, Error> {
    let root = space_end(document, 0);
    let mut place = Child { start: root, name: (root, root), value: root, comma: None };
    for (matched, component) in components.iter().enumerate() {
        let mut children = Children::of(document, place.value, matched)?;
        let child = match component {
            Component::Name(name) => children.named(name)?,
            Component::Index(index) => children.nth(*index)?,
            Component::Last => children.last()?,
        };
        match child {
            Some(child) => place = child,
            None => return Ok(Target::Missing { gap: children.gap(), matched }),
        }
    }
    Ok(Target::Found(place))
}

/// The children of one container, in the order of the text. Text after the last returned child is not read.
pub(super) struct Children<'d> {
    document: &'d [u8],
    object: bool,
    /// Number of containers around the children, including this one.
    depth: usize,
    open: usize,
    previous: Option<Child>,
    gap: Gap,
}

impl<'d> Children<'d> {
    /// Returns the children of the container at `open`, which has `outside` containers around it.
    ///
    /// # Errors
    /// [`Error::PathMismatch`] if no container begins there.
    pub(super) fn of(
        document: &'d [u8],
        open: usize,
        outside: usize,
    ) -> Result<Children<'d>, Error> {
        let object = match document.get(open).ok_or(Error::DocumentNotJson)? {
            b'{' => true,
            b'[' => false,
            _ => return Err(Error::PathMismatch),
        };
        let depth = outside + 1;
        if depth > DEPTH_MAX {
            return Err(Error::DocumentTooDeep);
        }
        let gap = Gap { at: open + 1, count: 0 };
        Ok(Children { document, object, depth, open, previous: None, gap })
    }

    pub(super) fn is_object(&self) -> bool {
        self.object
    }

    /// Returns the position after the opening bracket.
    pub(super) fn front(&self) -> usize {
        self.open + 1
    }

    /// Returns the end of the children that were passed; the end of all children once [`Children::next`] has
    /// returned `None`.
    pub(super) fn gap(&self) -> Gap {
        self.gap
    }

    /// Returns the next child, or `None` after the last one. Must not be called again after `None`.
    pub(super) fn next(&mut self) -> Result<Option<Child>, Error> {
        let (start, comma) = match self.previous {
            None => {
                let at = space_end(self.document, self.open + 1);
                if self.closes(at)? {
                    return Ok(None);
                }
                (at, None)
            }
            Some(previous) => {
                let end = value_end(self.document, previous.value, self.depth)?;
                self.gap = Gap { at: end, count: self.gap.count + 1 };
                let at = space_end(self.document, end);
                if self.closes(at)? {
                    return Ok(None);
                }
                if self.document[at] != b',' {
                    return Err(Error::DocumentNotJson);
                }
                (space_end(self.document, at + 1), Some(at))
            }
        };
        let (name, value) = if self.object { self.member(start)? } else { ((start, start), start) };
        let child = Child { start, name, value, comma };
        self.previous = Some(child);
        Ok(Some(child))
    }

    fn closes(&self, at: usize) -> Result<bool, Error> {
        let close = if self.object { b'}' } else { b']' };
        Ok(*self.document.get(at).ok_or(Error::DocumentNotJson)? == close)
    }

    /// Reads `"name" :` at `start`. Returns the content of the name, and the position where the value begins.
    fn member(&self, start: usize) -> Result<((usize, usize), usize), Error> {
        if self.document.get(start) != Some(&b'"') {
            return Err(Error::DocumentNotJson);
        }
        let end = string_end(self.document, start).ok_or(Error::DocumentNotJson)?;
        let colon = space_end(self.document, end);
        if self.document.get(colon) != Some(&b':') {
            return Err(Error::DocumentNotJson);
        }
        Ok(((start + 1, end - 1), space_end(self.document, colon + 1)))
    }

    fn named(&mut self, name: &str) -> Result<Option<Child>, Error> {
        if !self.object {
            return Err(Error::PathMismatch);
        }
        while let Some(child) = self.next()? {
            if same_name(&self.document[child.name.0..child.name.1], name) {
                return Ok(Some(child));
            }
        }
        Ok(None)
    }

    /// Returns the element `index`, counted from 0.
    pub(super) fn nth(&mut self, index: usize) -> Result<Option<Child>, Error> {
        if self.object {
            return Err(Error::PathMismatch);
        }
        while let Some(child) = self.next()? {
            if self.gap.count == index {
                return Ok(Some(child));
            }
        }
        Ok(None)
    }

    fn last(&mut self) -> Result<Option<Child>, Error> {
        if self.object {
            return Err(Error::PathMismatch);
        }
        let mut last = None;
        while let Some(child) = self.next()? {
            last = Some(child);
        }
        Ok(last)
    }
}

/// Returns the position after the value at `at`, which has `outside` containers around it.
///
/// Containers are skipped by counting brackets, because the document was validated when it was stored.
pub(super) fn value_end(document: &[u8], at: usize, outside: usize) -> Result<usize, Error> {
    match document.get(at).ok_or(Error::DocumentNotJson)? {
        b'"' => string_end(document, at).ok_or(Error::DocumentNotJson),
        b'{' | b'[' => container_end(document, at, outside),
        _ => {
            let inside =
                |byte: &u8| !matches!(byte, b',' | b']' | b'}' | b' ' | b'\n' | b'\t' | b'\r');
            let length = document[at..].iter().take_while(|byte| inside(byte)).count();
            if length == 0 { Err(Error::DocumentNotJson) } else { Ok(at + length) }
        }
    }
}

fn container_end(document: &[u8], mut at: usize, outside: usize) -> Result<usize, Error> {
    let mut depth = outside;
    loop {
        match document.get(at).ok_or(Error::DocumentNotJson)? {
            b'"' => {
                at = string_end(document, at).ok_or(Error::DocumentNotJson)?;
                continue;
            }
            b'{' | b'[' => {
                depth += 1;
                if depth > DEPTH_MAX {
                    return Err(Error::DocumentTooDeep);
                }
            }
            b'}' | b']' => {
                depth -= 1;
                if depth == outside {
                    return Ok(at + 1);
                }
            }
            _ => {}
        }
        at += 1;
    }
}

/// Returns true if two string contents mean the same text, regardless of escapes.
pub(super) fn same_name(stored: &[u8], name: &str) -> bool {
    if stored == name.as_bytes() {
        return true;
    }
    if !stored.contains(&b'\\') && !name.contains('\\') {
        return false;
    }
    std::str::from_utf8(stored).is_ok_and(|stored| utf16(stored) == utf16(name))
}

/// Returns the UTF-16 units of a string content. Units instead of characters, because an escape may be half of a
/// surrogate pair.
fn utf16(content: &str) -> Vec<u16> {
    let mut units = Vec::with_capacity(content.len());
    let mut rest = content;
    while let Some((plain, escape)) = rest.split_once('\\') {
        units.extend(plain.encode_utf16());
        let mut signs = escape.chars();
        match signs.next() {
            Some('u') => {
                let digits = signs.as_str().get(..4).unwrap_or_default();
                units.push(u16::from_str_radix(digits, 16).unwrap_or(0xfffd));
                rest = &signs.as_str()[digits.len()..];
                continue;
            }
            Some('b') => units.push(0x08),
            Some('f') => units.push(0x0c),
            Some('n') => units.push(0x0a),
            Some('r') => units.push(0x0d),
            Some('t') => units.push(0x09),
            Some(sign) => units.extend(sign.encode_utf16(&mut [0; 2]).iter()),
            None => {}
        }
        rest = signs.as_str();
    }
    units.extend(rest.encode_utf16());
    units
}
