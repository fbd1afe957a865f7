//! The edits: each finds its position and splices text there.

use super::Edited;
use super::walk::{Child, Children, Gap, Target, same_name, value_end, walk};
use crate::Error;
use crate::json::{Shape, shape, space_end};
use crate::path::{Component, DEPTH_MAX};

/// The inputs of a mutation, except its operation.
pub(super) struct Request<'a> {
    pub(super) document: &'a [u8],
    pub(super) components: &'a [Component<'a>],
    pub(super) value: &'a [u8],
    pub(super) create_path: bool,
}

/// The array at the path of a push.
enum Array<'d> {
    Existing(Children<'d>),
    Created(Vec<u8>),
}

impl Request<'_> {
    pub(super) fn dict_add(&self) -> Result<Vec<u8>, Error> {
        self.member(|_| Err(Error::PathExists))
    }

    pub(super) fn dict_upsert(&self) -> Result<Vec<u8>, Error> {
        self.member(|place| self.replace_value(place, self.value))
    }

    /// Adds a member if there is none; otherwise applies `found` to the existing member.
    fn member(
        &self,
        found: impl FnOnce(Child) -> Result<Vec<u8>, Error>,
    ) -> Result<Vec<u8>, Error> {
        let Some(Component::Name(_)) = self.components.last() else {
            return Err(Error::PathInvalid);
        };
        self.single_value()?;
        match walk(self.document, self.components)? {
            Target::Found(place) => found(place),
            Target::Missing { gap, matched } => {
                if matched + 1 < self.components.len() && !self.create_path {
                    return Err(Error::PathNotFound);
                }
                self.create(gap, matched, [b"", self.value, b""])
            }
        }
    }

    pub(super) fn delete(&self) -> Result<Vec<u8>, Error> {
        let place = self.existing()?;
        let end = self.end_of(place)?;
        let next = space_end(self.document, end);
        let (from, to) = match (self.document.get(next), place.comma) {
            (Some(b','), _) => (place.start, space_end(self.document, next + 1)),
            (_, Some(comma)) => (comma, end),
            (_, None) => (place.start, end),
        };
        Ok(self.splice(from, to, &[]))
    }

    pub(super) fn replace(&self) -> Result<Vec<u8>, Error> {
        self.single_value()?;
        self.replace_value(self.existing()?, self.value)
    }

    pub(super) fn push_last(&self) -> Result<Vec<u8>, Error> {
        self.list(self.components.len() + 1)?;
        let mut children = match self.array()? {
            Array::Existing(children) => children,
            Array::Created(document) => return Ok(document),
        };
        while children.next()?.is_some() {}
        Ok(self.append(children.gap()))
    }

    pub(super) fn push_first(&self) -> Result<Vec<u8>, Error> {
        self.list(self.components.len() + 1)?;
        let mut children = match self.array()? {
            Array::Existing(children) => children,
            Array::Created(document) => return Ok(document),
        };
        let comma: &[u8] = if children.next()?.is_some() { b"," } else { b"" };
        Ok(self.splice(children.front(), children.front(), &[self.value, comma]))
    }

    pub(super) fn array_insert(&self) -> Result<Vec<u8>, Error> {
        let Some((Component::Index(index), parent)) = self.components.split_last() else {
            return Err(Error::PathInvalid);
        };
        self.list(self.components.len())?;
        let Target::Found(array) = walk(self.document, parent)? else {
            return Err(Error::PathNotFound);
        };
        let mut children = Children::of(self.document, array.value, parent.len())?;
        match children.nth(*index)? {
            Some(child) => Ok(self.splice(child.start, child.start, &[self.value, b","])),
            None if children.gap().count == *index => Ok(self.append(children.gap())),
            None => Err(Error::PathNotFound),
        }
    }

    pub(super) fn add_unique(&self) -> Result<Vec<u8>, Error> {
        let value_shape = shape::<false>(self.value).ok_or(Error::ValueCannotInsert)?;
        if value_shape.depth > 0 {
            return Err(Error::ValueCannotInsert);
        }
        self.list(self.components.len() + 1)?;
        let mut children = match self.array()? {
            Array::Existing(children) => children,
            Array::Created(document) => return Ok(document),
        };
        let wanted = self.value.trim_ascii();
        while let Some(child) = children.next()? {
            let end = value_end(self.document, child.value, self.components.len() + 1)?;
            let element = &self.document[child.value..end];
            if element.starts_with(b"{") || element.starts_with(b"[") {
                return Err(Error::PathMismatch);
            }
            if same_primitive(element, wanted) {
                return Err(Error::PathExists);
            }
        }
        Ok(self.append(children.gap()))
    }

    pub(super) fn counter(&self) -> Result<Edited, Error> {
        let delta = integer(self.value).and_then(Result::ok).filter(|delta| *delta != 0);
        let delta = delta.ok_or(Error::DeltaInvalid)?;
        let edited = |sum: i64, document| {
            Ok(Edited { document, result: Some(sum.to_string().into_bytes()) })
        };
        match walk(self.document, self.components)? {
            Target::Found(place) => {
                let number = &self.document[place.value..self.end_of(place)?];
                let number = integer(number).ok_or(Error::PathMismatch)?;
                let number = number.map_err(|_| Error::NumberOutOfRange)?;
                let sum = number.checked_add(delta).ok_or(Error::ValueCannotInsert)?;
                edited(sum, self.replace_value(place, sum.to_string().as_bytes())?)
            }
            Target::Missing { gap, matched } => {
                if matched + 1 < self.components.len() && !self.create_path {
                    return Err(Error::PathNotFound);
                }
                let text = delta.to_string();
                edited(delta, self.create(gap, matched, [b"", text.as_bytes(), b""])?)
            }
        }
    }

    /// Checks that the value is one JSON text that can be nested below the path.
    fn single_value(&self) -> Result<(), Error> {
        self.fits(shape::<false>(self.value), self.components.len())
    }

    /// Checks that the value is one or more JSON texts that can be nested in `outside` containers.
    fn list(&self, outside: usize) -> Result<(), Error> {
        self.fits(shape::<true>(self.value), outside)
    }

    fn fits(&self, value: Option<Shape>, outside: usize) -> Result<(), Error> {
        let value = value.ok_or(Error::ValueCannotInsert)?;
        if outside + value.depth > DEPTH_MAX { Err(Error::ValueTooDeep) } else { Ok(()) }
    }

    /// Returns the position of the path, which must exist.
    fn existing(&self) -> Result<Child, Error> {
        match walk(self.document, self.components)? {
            Target::Found(place) => Ok(place),
            Target::Missing { .. } => Err(Error::PathNotFound),
        }
    }

    /// Returns the array that the path names, or the document with this array created and the value
    /// in it.
    fn array(&self) -> Result<Array<'_>, Error> {
        match walk(self.document, self.components)? {
            Target::Found(place) => {
                let outside = self.components.len();
                let children = Children::of(self.document, place.value, outside)?;
                if children.is_object() {
                    return Err(Error::PathMismatch);
                }
                Ok(Array::Existing(children))
            }
            Target::Missing { .. } if !self.create_path => Err(Error::PathNotFound),
            Target::Missing { gap, matched } => {
                Ok(Array::Created(self.create(gap, matched, [b"[", self.value, b"]"])?))
            }
        }
    }

    /// Inserts a member for `components[matched]` at `gap`, and objects for the following steps.
    ///
    /// Elements cannot be created, because the elements before them are unknown.
    fn create(&self, gap: Gap, matched: usize, value: [&[u8]; 3]) -> Result<Vec<u8>, Error> {
        let mut before = Vec::new();
        let mut behind = Vec::new();
        for component in &self.components[matched..] {
            let Component::Name(name) = component else { return Err(Error::PathNotFound) };
            if !before.is_empty() {
                before.push(b'{');
                behind.push(b'}');
            }
            before.push(b'"');
            before.extend_from_slice(name.as_bytes());
            before.extend_from_slice(b"\":");
        }
        let comma: &[u8] = if gap.count > 0 { b"," } else { b"" };
        let [open, value, close] = value;
        Ok(self.splice(gap.at, gap.at, &[comma, &before, open, value, close, &behind]))
    }

    fn append(&self, gap: Gap) -> Vec<u8> {
        let comma: &[u8] = if gap.count > 0 { b"," } else { b"" };
        self.splice(gap.at, gap.at, &[comma, self.value])
    }

    fn replace_value(&self, place: Child, value: &[u8]) -> Result<Vec<u8>, Error> {
        Ok(self.splice(place.value, self.end_of(place)?, &[value]))
    }

    fn end_of(&self, place: Child) -> Result<usize, Error> {
        value_end(self.document, place.value, self.components.len())
    }

    /// Returns the document with `from..to` replaced by `parts`.
    fn splice(&self, from: usize, to: usize, parts: &[&[u8]]) -> Vec<u8> {
        let added: usize = parts.iter().map(|part| part.len()).sum();
        let mut out = Vec::with_capacity(self.document.len() - (to - from) + added);
        out.extend_from_slice(&self.document[..from]);
        parts.iter().for_each(|part| out.extend_from_slice(part));
        out.extend_from_slice(&self.document[to..]);
        out
    }
}

/// Compares two primitive values: strings by content, everything else as text.
fn same_primitive(element: &[u8], wanted: &[u8]) -> bool {
    let content = |text: &'_ [u8]| -> Option<(usize, usize)> {
        (text.len() >= 2 && text[0] == b'"').then(|| (1, text.len() - 1))
    };
    match (content(element), content(wanted)) {
        (Some(a), Some(b)) => {
            std::str::from_utf8(&wanted[b.0..b.1]).is_ok_and(|b| same_name(&element[a.0..a.1], b))
        }
        (None, None) => element == wanted,
        _ => false,
    }
}

/// Reads a JSON integer: `None` if `text` is not an integer, an error inside if it exceeds 64 bits.
fn integer(text: &[u8]) -> Option<Result<i64, std::num::ParseIntError>> {
    let text = std::str::from_utf8(text).ok()?.trim_ascii();
    let digits = text.strip_prefix('-').unwrap_or(text);
    let is_integer = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_integer.then(|| text.parse())
}
