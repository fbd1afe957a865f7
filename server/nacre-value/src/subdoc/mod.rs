//! One sub-document operation on one JSON text.
//!
//! ```
//! use nacre_value::{path::Path, subdoc::{Mutation, mutate}};
//!
//! let path = Path::parse(b"tags").unwrap();
//! let edited = mutate(br#"{ "tags": ["a"] }"#, Mutation::ArrayPushLast, &path, br#""b","c""#, false).unwrap();
//! assert_eq!(edited.document, br#"{ "tags": ["a","b","c"] }"#);
//! ```
//!
//! The scan stops at the position it searches for, and an edit copies the text before and after it: text outside the
//! edited position is preserved byte for byte. Documents are assumed to be valid JSON, because they were checked when
//! stored ([`crate::json::is_json`]). On other bytes an operation fails or changes only its position, and never panics.
//! If several members have the same name, the first is used.
//!
//! Source: sub-document API of the memcached binary protocol as documented by Couchbase.

mod edit;
mod walk;

use crate::path::Path;
use crate::{Error, path::Component};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use walk::{Children, Target, value_end, walk};

/// An operation that reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Lookup {
    /// Returns the text of the value.
    Get,
    /// Returns nothing, and fails if there is no value.
    Exists,
    /// Returns the number of elements or members, in decimal. The path may be the root.
    GetCount,
}

/// An operation that writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Mutation {
    /// Adds a member that must not exist.
    DictAdd,
    /// Adds or replaces a member.
    DictUpsert,
    /// Removes a member or an element.
    Delete,
    /// Replaces a member or an element that must exist.
    Replace,
    /// Adds one or more elements at the end of an array. The path may be the root.
    ArrayPushLast,
    /// Adds one or more elements at the start of an array. The path may be the root.
    ArrayPushFirst,
    /// Adds one or more elements before the element that the path names, or at the end if the index is the length.
    ArrayInsert,
    /// Adds a string, number or literal to an array that does not contain it. Strings are compared by content, other
    /// values as text, so 1.0 differs from 1. The path may be the root.
    ArrayAddUnique,
    /// Adds a signed 64-bit number to the existing number, or to 0. Returns the sum.
    Counter,
}

impl Lookup {
    /// Returns true if the path may be the root of the document.
    pub fn permits_root(self) -> bool {
        self == Lookup::GetCount
    }
}

impl Mutation {
    /// All mutations.
    pub const ALL: [Mutation; 9] = [
        Mutation::DictAdd,
        Mutation::DictUpsert,
        Mutation::Delete,
        Mutation::Replace,
        Mutation::ArrayPushLast,
        Mutation::ArrayPushFirst,
        Mutation::ArrayInsert,
        Mutation::ArrayAddUnique,
        Mutation::Counter,
    ];

    /// Returns true if the path may be the root of the document.
    pub fn permits_root(self) -> bool {
        use Mutation::*;
        matches!(self, ArrayPushLast | ArrayPushFirst | ArrayAddUnique)
    }

    /// Returns true if the operation can create missing parents; for other operations the flag is an invalid argument.
    pub fn permits_create_path(self) -> bool {
        use Mutation::*;
        !matches!(self, Delete | Replace | ArrayInsert)
    }

    /// Returns true if the operation takes a value; all but [`Mutation::Delete`] do.
    pub fn takes_value(self) -> bool {
        self != Mutation::Delete
    }
}

/// Result of a mutation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edited {
    /// The whole document after the edit.
    pub document: Vec<u8>,
    /// Value for the client: the new value of a counter.
    pub result: Option<Vec<u8>>,
}

/// Reads from `document` at `path`.
///
/// # Errors
/// [`Error::PathNotFound`], [`Error::PathMismatch`], [`Error::PathInvalid`] for a root that the operation does not
/// allow, [`Error::DocumentTooDeep`], [`Error::DocumentNotJson`].
pub fn lookup<'d>(
    document: &'d [u8],
    operation: Lookup,
    path: &Path<'_>,
) -> Result<Cow<'d, [u8]>, Error> {
    if path.is_root() && !operation.permits_root() {
        return Err(Error::PathInvalid);
    }
    lookup_at(document, operation, path.components())
}

/// Like [`lookup`], but every operation may access the root, because the value of an attribute is a separate document.
pub(crate) fn lookup_at<'d>(
    document: &'d [u8],
    operation: Lookup,
    components: &[Component<'_>],
) -> Result<Cow<'d, [u8]>, Error> {
    let Target::Found(place) = walk(document, components)? else {
        return Err(Error::PathNotFound);
    };
    match operation {
        Lookup::Get => {
            let end = value_end(document, place.value, components.len())?;
            Ok(Cow::Borrowed(&document[place.value..end]))
        }
        Lookup::Exists => Ok(Cow::Borrowed(&[])),
        Lookup::GetCount => {
            let mut children = Children::of(document, place.value, components.len())?;
            while children.next()?.is_some() {}
            Ok(Cow::Owned(children.gap().count.to_string().into_bytes()))
        }
    }
}

/// Edits `document` at `path`. `value` is the JSON text (several values separated by commas for array pushes and
/// inserts), the decimal delta of a counter, or empty for a deletion. With `create_path` missing parents become
/// objects, and the missing array of a push becomes an array.
///
/// # Errors
/// Every variant of [`Error`] from [`Error::PathNotFound`] to [`Error::ValueTooDeep`]; the document is then unchanged.
pub fn mutate(
    document: &[u8],
    operation: Mutation,
    path: &Path<'_>,
    value: &[u8],
    create_path: bool,
) -> Result<Edited, Error> {
    if path.is_root() && !operation.permits_root() {
        return Err(Error::PathInvalid);
    }
    let request = edit::Request { document, components: path.components(), value, create_path };
    let document = match operation {
        Mutation::DictAdd => request.dict_add(),
        Mutation::DictUpsert => request.dict_upsert(),
        Mutation::Delete => request.delete(),
        Mutation::Replace => request.replace(),
        Mutation::ArrayPushLast => request.push_last(),
        Mutation::ArrayPushFirst => request.push_first(),
        Mutation::ArrayInsert => request.array_insert(),
        Mutation::ArrayAddUnique => request.add_unique(),
        Mutation::Counter => return request.counter(),
    }?;
    Ok(Edited { document, result: None })
}

/// Returns the initial document for a mutation of a missing document: an array if the path begins with an element or is
/// the root (a push), an object otherwise.
pub fn missing_document(path: &Path<'_>) -> &'static [u8] {
    match path.components().first() {
        Some(Component::Name(_)) => b"{}",
        None | Some(Component::Index(_) | Component::Last) => b"[]",
    }
}
