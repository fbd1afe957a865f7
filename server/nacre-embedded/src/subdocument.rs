//! Parts of documents: reads and changes by path.

use crate::{Stored, Sync, Write};
use nacre_types::Cas;
use nacre_value::multi::{Flags, LookupOperation, LookupSpec, MutationOperation, MutationSpec};
use nacre_value::subdoc;
use nacre_vbucket::Condition;

/// A part of a document to read: the value at a path such as `orders[-1].total`.
#[derive(Clone, Copy, Debug)]
pub struct Lookup<'a> {
    operation: LookupOperation,
    flags: Flags,
    path: &'a str,
}

impl<'a> Lookup<'a> {
    fn at(operation: subdoc::Lookup, path: &'a str) -> Lookup<'a> {
        let operation = LookupOperation::Path(operation);
        Lookup { operation, flags: Flags::default(), path }
    }

    /// Reads the value at `path`, as JSON.
    pub fn get(path: &'a str) -> Lookup<'a> {
        Lookup::at(subdoc::Lookup::Get, path)
    }

    /// Fails with [`PathError::PathNotFound`](crate::PathError::PathNotFound) when the path does not exist.
    pub fn exists(path: &'a str) -> Lookup<'a> {
        Lookup::at(subdoc::Lookup::Exists, path)
    }

    /// Reads the number of elements or members of the value at `path`.
    pub fn count(path: &'a str) -> Lookup<'a> {
        Lookup::at(subdoc::Lookup::GetCount, path)
    }

    /// Reads the whole body.
    pub fn document() -> Lookup<'static> {
        Lookup { operation: LookupOperation::Document, flags: Flags::default(), path: "" }
    }

    /// Reads an extended attribute, or a part of one, in place of the body. Attributes must come before parts of the body.
    #[must_use]
    pub fn xattr(mut self) -> Lookup<'a> {
        self.flags.xattr = true;
        self
    }

    pub(crate) fn spec(&self) -> LookupSpec<'_> {
        let (operation, flags, path) = (self.operation, self.flags, self.path.as_bytes());
        LookupSpec { operation, flags, path, value: b"" }
    }
}

/// The result of a lookup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Looked {
    /// The version.
    pub cas: Cas,
    /// The parts, in the order of the request.
    pub parts: Vec<Result<Vec<u8>, nacre_value::Error>>,
}

/// A change of a part of a document.
#[derive(Clone, Copy, Debug)]
pub struct Mutation<'a> {
    operation: MutationOperation,
    flags: Flags,
    path: &'a str,
    value: &'a [u8],
}

impl<'a> Mutation<'a> {
    /// A change by one of the operations of [`nacre_value::subdoc`]. `value` is JSON; operations that accept several values take
    /// them separated by commas.
    fn at(operation: subdoc::Mutation, path: &'a str, value: &'a [u8]) -> Mutation<'a> {
        let operation = MutationOperation::Path(operation);
        Mutation { operation, flags: Flags::default(), path, value }
    }

    /// Adds or replaces a member.
    pub fn upsert(path: &'a str, value: &'a [u8]) -> Mutation<'a> {
        Mutation::at(subdoc::Mutation::DictUpsert, path, value)
    }

    /// Adds a member that must not exist.
    pub fn insert(path: &'a str, value: &'a [u8]) -> Mutation<'a> {
        Mutation::at(subdoc::Mutation::DictAdd, path, value)
    }

    /// Replaces a member or an element that must exist.
    pub fn replace(path: &'a str, value: &'a [u8]) -> Mutation<'a> {
        Mutation::at(subdoc::Mutation::Replace, path, value)
    }

    /// Removes a member or an element.
    pub fn remove(path: &'a str) -> Mutation<'a> {
        Mutation::at(subdoc::Mutation::Delete, path, b"")
    }

    /// Adds elements at the end of an array.
    pub fn array_append(path: &'a str, values: &'a [u8]) -> Mutation<'a> {
        Mutation::at(subdoc::Mutation::ArrayPushLast, path, values)
    }

    /// Adds elements at the start of an array.
    pub fn array_prepend(path: &'a str, values: &'a [u8]) -> Mutation<'a> {
        Mutation::at(subdoc::Mutation::ArrayPushFirst, path, values)
    }

    /// Inserts elements before the element at `path`.
    pub fn array_insert(path: &'a str, values: &'a [u8]) -> Mutation<'a> {
        Mutation::at(subdoc::Mutation::ArrayInsert, path, values)
    }

    /// Adds a string, number or literal to an array that does not contain it.
    pub fn array_add_unique(path: &'a str, value: &'a [u8]) -> Mutation<'a> {
        Mutation::at(subdoc::Mutation::ArrayAddUnique, path, value)
    }

    /// Adds a decimal number to the number at `path`, or to 0 if the path is missing; [`Mutated::results`] has the sum.
    pub fn counter(path: &'a str, delta: &'a [u8]) -> Mutation<'a> {
        Mutation::at(subdoc::Mutation::Counter, path, delta)
    }

    /// Replaces the whole body.
    pub fn document(body: &'a [u8]) -> Mutation<'a> {
        let operation = MutationOperation::SetDocument;
        Mutation { operation, flags: Flags::default(), path: "", value: body }
    }

    /// Changes an extended attribute, or a part of one, in place of the body. Attributes must come before parts of the body.
    #[must_use]
    pub fn xattr(mut self) -> Mutation<'a> {
        self.flags.xattr = true;
        self
    }

    /// Creates the missing parents of the path.
    #[must_use]
    pub fn create_path(mut self) -> Mutation<'a> {
        self.flags.create_path = true;
        self
    }

    /// Expands macros such as `"${Mutation.CAS}"` in the value of an attribute.
    #[must_use]
    pub fn expand_macros(mut self) -> Mutation<'a> {
        self.flags.expand_macros = true;
        self
    }

    pub(crate) fn spec(&self) -> MutationSpec<'_> {
        let Mutation { operation, flags, path, value } = *self;
        MutationSpec { operation, flags, path: path.as_bytes(), value }
    }
}

/// Options of a change of parts of a document.
#[derive(Clone, Copy, Debug)]
pub struct MutateIn {
    pub(crate) condition: Condition,
    pub(crate) write: Write,
}

impl MutateIn {
    /// Changes an existing document.
    pub fn replace() -> MutateIn {
        MutateIn { condition: Condition::Present, write: Write::new() }
    }

    /// Changes a document, and creates it if it is missing.
    pub fn upsert() -> MutateIn {
        MutateIn { condition: Condition::Always, write: Write::new() }
    }

    /// Creates a document, which must not exist.
    pub fn insert() -> MutateIn {
        MutateIn { condition: Condition::Absent, write: Write::new() }
    }

    /// Changes the document only if it has this version.
    #[must_use]
    pub fn cas(self, cas: Cas) -> MutateIn {
        MutateIn { write: self.write.cas(cas), ..self }
    }

    /// Sets the expiry, as in [`Write::expiry`].
    #[must_use]
    pub fn expiry(self, expiry: u32) -> MutateIn {
        MutateIn { write: self.write.expiry(expiry), ..self }
    }

    /// Keeps the expiry of an existing document.
    #[must_use]
    pub fn keep_expiry(self) -> MutateIn {
        MutateIn { write: self.write.keep_expiry(), ..self }
    }

    /// Sets the durability of the change, as in [`Write::sync`].
    #[must_use]
    pub fn sync(self, sync: Sync) -> MutateIn {
        MutateIn { write: self.write.sync(sync), ..self }
    }
}

/// The result of a change of parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mutated {
    /// The version.
    pub stored: Stored,
    /// The index and the value of each change that returns a value.
    pub results: Vec<(u8, Vec<u8>)>,
}
