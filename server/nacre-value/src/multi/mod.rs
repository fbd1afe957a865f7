//! A request of up to sixteen operations on one document with its attributes.
//!
//! Each operation of a lookup has its own result; a mutation applies as a whole or not at all. A single sub-document
//! request is a request with one operation.
//!
//! Rules, in addition to those of each operation:
//! - Operations on attributes come before operations on the body.
//! - Attributes whose names start with `$` are virtual: the caller provides their JSON text, and they are read-only.
//! - An operation on the whole body is the only operation on the body.
//! - With `expand_macros` the value is exactly one macro, see [`Macros`].
//! - Removing the document drops its attributes, except system attributes.
//!
//! The caller handles CAS checks, expiry and the flags of the document.
//!
//! Source: sub-document API of the memcached binary protocol as extended by Couchbase.

mod binary;
mod macros;

use crate::path::Path;
use crate::subdoc::{self, Lookup, Mutation};
use crate::xattr::{self, Xattrs};
use crate::{Error, crc32c};
pub use macros::Macros;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// Maximum total size of the results of a lookup in bytes: the maximum size of a document. Without a limit, sixteen
/// operations on one large value make a reply of sixteen times its size. Source: the maximum document size of
/// Couchbase.
pub const RESULT_BYTES_MAX: usize = 20 << 20;

/// Maximum number of operations of a request.
pub const SPECS_MAX: usize = 16;

/// The document that a request operates on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source<'a> {
    /// The section of attributes; empty if there are none.
    pub xattrs: &'a [u8],
    /// The body.
    pub body: &'a [u8],
    /// True if the body is JSON, as determined when it was stored.
    pub body_is_json: bool,
    /// True for a tombstone, which has attributes but no body.
    pub deleted: bool,
}

impl Source<'static> {
    /// Returns the source for a mutation of a missing document: an empty array if the first operation on the body needs
    /// one, otherwise an empty object.
    pub fn missing(specs: &[MutationSpec<'_>]) -> Source<'static> {
        let first = specs.iter().find(|spec| !spec.flags.xattr);
        let path = first.and_then(|spec| match spec.operation {
            MutationOperation::Path(_) => Path::parse(spec.path).ok(),
            _ => None,
        });
        let body = path.map_or(b"{}".as_slice(), |path| subdoc::missing_document(&path));
        Source { xattrs: b"", body, body_is_json: true, deleted: false }
    }
}

/// One operation of a lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LookupOperation {
    /// Reads the value at a path.
    Path(Lookup),
    /// Returns the whole body, JSON or not. The path is empty.
    Document,
}

/// One operation of a mutation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MutationOperation {
    /// Edits the value at a path.
    Path(Mutation),
    /// Replaces the whole body by the value. The path is empty.
    SetDocument,
    /// Removes the document. The path is empty.
    RemoveDocument,
    /// Replaces the whole body by the value at a path in the attributes.
    ReplaceBodyWithXattr,
}

/// Flags of one operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// Creates missing parents. Implied for each operation when a document is created or upserted: the caller then sets
    /// it.
    pub create_path: bool,
    /// The path starts with the name of an attribute.
    pub xattr: bool,
    /// The value is a macro; only together with `xattr`.
    pub expand_macros: bool,
    /// The value is arbitrary bytes; only together with `xattr`.
    pub binary: bool,
}

/// One operation of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spec<'a, O> {
    /// The operation.
    pub operation: O,
    /// The flags of the operation.
    pub flags: Flags,
    /// The path, unparsed.
    pub path: &'a [u8],
    /// The value; empty for lookups and deletions.
    pub value: &'a [u8],
}

/// One operation of a lookup.
pub type LookupSpec<'a> = Spec<'a, LookupOperation>;
/// One operation of a mutation.
pub type MutationSpec<'a> = Spec<'a, MutationOperation>;

/// Returns the JSON text of a virtual attribute by its name (`$document`, `$XTOC`, `$vbucket`), `None` if unknown.
pub type Virtual<'v> = dyn Fn(&str) -> Option<Vec<u8>> + 'v;

/// The reason why a mutation failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The request as a whole is invalid.
    Request(Error),
    /// An operation failed; the first failed operation of the request is reported.
    Spec {
        /// The position in the request, from 0.
        index: u8,
        /// The reason.
        error: Error,
    },
}

/// Effect of a mutation on the body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// The body is unchanged.
    Unchanged,
    /// The body is replaced by this text, which may be any bytes.
    Set(Vec<u8>),
    /// The JSON body is replaced by this JSON text.
    Edited(Vec<u8>),
    /// The document is removed.
    Removed,
}

/// Result of a mutation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mutated {
    /// The section of attributes; empty if there are none.
    pub xattrs: Vec<u8>,
    /// The body.
    pub body: Body,
    /// Results of operations that return a value (counters), with their positions in the request.
    pub results: Vec<(u8, Vec<u8>)>,
}

/// Result of one operation of a lookup: a JSON text, empty for [`Lookup::Exists`], or the error.
pub type Answer<'d> = Result<Cow<'d, [u8]>, Error>;

/// Carries out each operation of a lookup, in order.
///
/// # Errors
/// An [`Error`] of the request as a whole: no operations or too many, wrong order, an invalid attribute name, or
/// results of more than [`RESULT_BYTES_MAX`] bytes.
pub fn lookup<'d>(
    source: &Source<'d>,
    specs: &[LookupSpec<'_>],
    virtuals: &Virtual<'_>,
) -> Result<Vec<Answer<'d>>, Error> {
    check(specs, |_| false)?;
    // Unreadable attributes fail only the operations that need them, not those on the body.
    let xattrs = Xattrs::parse(source.xattrs);
    let answer = |spec: &LookupSpec<'_>| -> Answer<'d> {
        match spec.operation {
            LookupOperation::Path(operation) if spec.flags.xattr => {
                let xattrs = xattrs.as_ref().map_err(|error| *error)?;
                let found = lookup_xattr(xattrs, spec.path, operation, virtuals)?;
                if spec.flags.binary && operation == Lookup::Get {
                    return binary::decode(&found).map(Cow::Owned);
                }
                Ok(found)
            }
            _ if source.deleted => Err(Error::DocumentDeleted),
            LookupOperation::Document if spec.path.is_empty() => Ok(Cow::Borrowed(source.body)),
            LookupOperation::Document => Err(Error::PathInvalid),
            LookupOperation::Path(_) if !source.body_is_json => Err(Error::DocumentNotJson),
            LookupOperation::Path(operation) => {
                subdoc::lookup(source.body, operation, &Path::parse(spec.path)?)
            }
        }
    };
    let mut bytes = 0;
    let counted = specs.iter().map(|spec| {
        let answer = answer(spec);
        bytes += answer.as_ref().map_or(0, |found| found.len());
        if bytes > RESULT_BYTES_MAX { Err(Error::ResultTooBig) } else { Ok(answer) }
    });
    counted.collect()
}

fn lookup_xattr<'d>(
    xattrs: &Xattrs<'d>,
    path: &[u8],
    operation: Lookup,
    virtuals: &Virtual<'_>,
) -> Result<Cow<'d, [u8]>, Error> {
    let key = xattr_key(path)?;
    let path = Path::parse(path)?;
    let components = &path.components()[1..];
    if is_virtual(key) {
        let text = virtuals(key).ok_or(Error::XattrUnknownVirtual)?;
        let found = subdoc::lookup_at(&text, operation, components)?;
        return Ok(Cow::Owned(found.into_owned()));
    }
    let value = xattrs.get(key).ok_or(Error::PathNotFound)?;
    subdoc::lookup_at(value, operation, components).map(|found| Cow::Owned(found.into_owned()))
}

/// Applies all operations of a mutation, or none.
///
/// # Errors
/// See [`Failure`]; the document is then unchanged.
pub fn mutate(
    source: &Source<'_>,
    specs: &[MutationSpec<'_>],
    virtuals: &Virtual<'_>,
    macros: Macros,
) -> Result<Mutated, Failure> {
    check(specs, takes_whole_body).map_err(Failure::Request)?;
    check_mutation(specs).map_err(Failure::Request)?;
    let body_start = specs.iter().position(|spec| !spec.flags.xattr).unwrap_or(specs.len());
    let mut results = Vec::new();

    // The body is changed first because a macro may need its checksum. Its failure is reported last because its
    // operations are last in the request.
    let edited_body = mutate_body(source, specs, body_start);
    let body_after = || match &edited_body {
        Ok((Body::Set(body) | Body::Edited(body), _)) => crc32c(body),
        Ok((Body::Removed, _)) => crc32c(b""),
        Ok((Body::Unchanged, _)) | Err(_) => crc32c(source.body),
    };

    let mut xattrs = Xattrs::parse(source.xattrs).map_err(Failure::Request)?;
    let mut replaced_body = None;
    for (index, spec) in specs[..body_start].iter().enumerate() {
        let index = index as u8;
        let failed = |error| Failure::Spec { index, error };
        let value = if spec.flags.expand_macros {
            Cow::Owned(macros::expand(spec.value, macros, &body_after, virtuals).map_err(failed)?)
        } else if spec.flags.binary && !spec.value.is_empty() {
            Cow::Owned(binary::encode(spec.value))
        } else {
            Cow::Borrowed(spec.value)
        };
        match spec.operation {
            MutationOperation::Path(operation) => {
                let result = mutate_xattr(&mut xattrs, operation, spec, &value).map_err(failed)?;
                results.extend(result.map(|result| (index, result)));
            }
            _ if source.deleted => return Err(failed(Error::DeletedCannotHaveValue)),
            _ => {
                let path = spec.path;
                let found = lookup_xattr(&xattrs, path, Lookup::Get, virtuals).map_err(failed)?;
                let found = if spec.flags.binary {
                    binary::decode(&found).map_err(failed)?
                } else {
                    found.into_owned()
                };
                replaced_body = Some(found);
            }
        }
    }

    let (mut body, body_results) = edited_body?;
    results.extend(body_results);
    if let Some(text) = replaced_body {
        body = Body::Set(text);
    }
    if body == Body::Removed {
        xattrs.retain_system();
    }
    Ok(Mutated { xattrs: xattrs.encode(), body, results })
}

/// Edits the attribute that `spec` names. The attribute is treated as the only member of a document, so all rules for
/// bodies apply.
fn mutate_xattr(
    xattrs: &mut Xattrs<'_>,
    operation: Mutation,
    spec: &MutationSpec<'_>,
    value: &[u8],
) -> Result<Option<Vec<u8>>, Error> {
    let key = xattr_key(spec.path)?;
    let document = match xattrs.get(key) {
        Some(text) => [b"{\"", key.as_bytes(), b"\":", text, b"}"].concat(),
        None => b"{}".to_vec(),
    };
    let path = Path::parse(spec.path)?;
    let edited = subdoc::mutate(&document, operation, &path, value, spec.flags.create_path)?;
    let only_key = Path::parse(key.as_bytes())?;
    match subdoc::lookup(&edited.document, Lookup::Get, &only_key) {
        Ok(text) => xattrs.set(key, &text)?,
        Err(Error::PathNotFound) => {
            xattrs.remove(key);
        }
        Err(error) => return Err(error),
    }
    Ok(edited.result)
}

type BodyEdit = (Body, Vec<(u8, Vec<u8>)>);

/// Runs the operations from `start` on, which are the operations on the body.
fn mutate_body(
    source: &Source<'_>,
    specs: &[MutationSpec<'_>],
    start: usize,
) -> Result<BodyEdit, Failure> {
    let mut body = Body::Unchanged;
    let mut results = Vec::new();
    for (index, spec) in specs.iter().enumerate().skip(start) {
        let index = index as u8;
        let failed = |error| Failure::Spec { index, error };
        let operation = match spec.operation {
            MutationOperation::RemoveDocument if source.deleted => {
                return Err(failed(Error::DocumentDeleted));
            }
            _ if source.deleted => return Err(failed(Error::DeletedCannotHaveValue)),
            MutationOperation::Path(operation) => operation,
            _ if !spec.path.is_empty() => return Err(failed(Error::PathInvalid)),
            MutationOperation::RemoveDocument => return Ok((Body::Removed, results)),
            _ => return Ok((Body::Set(spec.value.to_vec()), results)),
        };
        if !source.body_is_json {
            return Err(failed(Error::DocumentNotJson));
        }
        let current = match &body {
            Body::Edited(text) => text.as_slice(),
            _ => source.body,
        };
        let path = Path::parse(spec.path).map_err(|error| failed(error.into()))?;
        let edited = subdoc::mutate(current, operation, &path, spec.value, spec.flags.create_path)
            .map_err(failed)?;
        results.extend(edited.result.map(|result| (index, result)));
        body = Body::Edited(edited.document);
    }
    Ok((body, results))
}

/// Performs the checks common to lookups and mutations.
fn check<O: Copy>(
    specs: &[Spec<'_, O>],
    takes_whole_body: impl Fn(O) -> bool,
) -> Result<(), Error> {
    if specs.is_empty() || specs.len() > SPECS_MAX {
        return Err(Error::InvalidCombination);
    }
    if specs.windows(2).any(|pair| !pair[0].flags.xattr && pair[1].flags.xattr) {
        return Err(Error::XattrOrder);
    }
    let on_body = |spec: &&Spec<'_, O>| !spec.flags.xattr || takes_whole_body(spec.operation);
    if specs.iter().any(|spec| takes_whole_body(spec.operation))
        && specs.iter().filter(on_body).count() > 1
    {
        return Err(Error::InvalidCombination);
    }
    for spec in specs {
        if spec.flags.xattr {
            xattr_key(spec.path)?;
        } else if spec.flags.expand_macros || spec.flags.binary {
            return Err(Error::XattrFlagCombination);
        }
        if spec.flags.expand_macros && spec.flags.binary {
            return Err(Error::XattrFlagCombination);
        }
    }
    Ok(())
}

fn check_mutation(specs: &[MutationSpec<'_>]) -> Result<(), Error> {
    for spec in specs {
        match spec.operation {
            MutationOperation::ReplaceBodyWithXattr if !spec.flags.xattr => {
                return Err(Error::XattrFlagCombination);
            }
            MutationOperation::SetDocument | MutationOperation::RemoveDocument
                if spec.flags.xattr =>
            {
                return Err(Error::XattrFlagCombination);
            }
            MutationOperation::Path(_) if spec.flags.xattr && spec.path.starts_with(b"$") => {
                return Err(Error::XattrCannotModifyVirtual);
            }
            _ => {}
        }
        if spec.flags.expand_macros && !macros::is_macro(spec.value) {
            return Err(Error::XattrUnknownMacro);
        }
    }
    Ok(())
}

fn takes_whole_body(operation: MutationOperation) -> bool {
    !matches!(operation, MutationOperation::Path(_))
}

/// Returns the attribute name at the start of a path. Back-tick quoting does not apply to attribute names.
fn xattr_key(path: &[u8]) -> Result<&str, Error> {
    let end = path.iter().position(|byte| matches!(byte, b'.' | b'[')).unwrap_or(path.len());
    let key = std::str::from_utf8(&path[..end]).map_err(|_| Error::XattrInvalid)?;
    if xattr::is_key(key) { Ok(key) } else { Err(Error::XattrInvalid) }
}

fn is_virtual(key: &str) -> bool {
    key.starts_with('$')
}
