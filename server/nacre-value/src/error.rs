//! Why an operation on a document was refused.

use std::fmt;

/// Why an operation on a document was refused. All variants are the client's to fix.
///
/// One variant a status of the protocol (given in brackets), so that the caller's mapping is one `match` without
/// exceptions. For that reason the enum is not `#[non_exhaustive]`: a new variant has to break the mapping.
/// Source: the sub-document part of the memcached binary protocol as Couchbase extends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Error {
    /// Some part of the path does not exist \[c0 PATH_ENOENT].
    PathNotFound,
    /// The path runs through a value of another kind, such as a name into an array, or the operation needs another
    /// kind of value at its end \[c1 PATH_MISMATCH].
    PathMismatch,
    /// The path is not well formed, or does not suit the operation \[c2 PATH_EINVAL].
    PathInvalid,
    /// The path is longer or deeper than allowed \[c3 PATH_E2BIG].
    PathTooBig,
    /// The results of a lookup have more bytes together than a document may have \[03 E2BIG].
    ResultTooBig,
    /// The document nests deeper than sub-document operations follow \[c4 DOC_E2DEEP].
    DocumentTooDeep,
    /// The value is no JSON, or not of the kind this place takes, or a counter would leave the range of
    /// 64 bits \[c5 VALUE_CANTINSERT].
    ValueCannotInsert,
    /// The document is not JSON \[c6 DOC_NOTJSON].
    DocumentNotJson,
    /// The number that a counter found is outside of 64 bits \[c7 NUM_ERANGE].
    NumberOutOfRange,
    /// A counter's delta is no 64-bit integer, or zero \[c8 DELTA_EINVAL].
    DeltaInvalid,
    /// The path, or for a unique push the element, exists already \[c9 PATH_EEXISTS].
    PathExists,
    /// The value would make the document too deep \[ca VALUE_ETOODEEP].
    ValueTooDeep,
    /// No operation, more than sixteen, or a set that cannot go together \[cb INVALID_COMBO].
    InvalidCombination,
    /// Flags of an attribute operation that do not go together \[ce XATTR_INVALID_FLAG_COMBO].
    XattrFlagCombination,
    /// An attribute's name is empty, too long, or holds a forbidden byte \[87 XATTR_EINVAL].
    XattrInvalid,
    /// The value asks for a macro that nobody knows \[d0 XATTR_UNKNOWN_MACRO].
    XattrUnknownMacro,
    /// No virtual attribute has this name \[d1 XATTR_UNKNOWN_VATTR].
    XattrUnknownVirtual,
    /// Virtual attributes are read-only \[d2 XATTR_CANT_MODIFY_VATTR].
    XattrCannotModifyVirtual,
    /// An operation on an attribute stands behind one on the body \[d4 INVALID_XATTR_ORDER].
    XattrOrder,
    /// A macro names a part of a virtual attribute that does not exist \[d5 UNKNOWN_VATTR_MACRO].
    UnknownVirtualMacro,
    /// A deleted document has no body to look at \[01 KEY_ENOENT].
    DocumentDeleted,
    /// A deleted document cannot take a body \[d7 DELETED_DOC_CANT_HAVE_VALUE].
    DeletedCannotHaveValue,
    /// An attribute was asked for as bytes, and is none.
    FieldNotBinary,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Error::PathNotFound => "path not found",
            Error::PathMismatch => "path does not fit the document",
            Error::PathInvalid => "invalid path",
            Error::PathTooBig => "path too long or too deep",
            Error::ResultTooBig => "the results have too many bytes together",
            Error::DocumentTooDeep => "document too deep",
            Error::ValueCannotInsert => "value cannot be inserted here",
            Error::DocumentNotJson => "document is not JSON",
            Error::NumberOutOfRange => "number in the document is out of range",
            Error::DeltaInvalid => "invalid delta",
            Error::PathExists => "path exists already",
            Error::ValueTooDeep => "value too deep",
            Error::InvalidCombination => "invalid combination of operations",
            Error::XattrFlagCombination => "invalid combination of attribute flags",
            Error::XattrInvalid => "invalid attribute name or section",
            Error::XattrUnknownMacro => "unknown macro",
            Error::XattrUnknownVirtual => "unknown virtual attribute",
            Error::XattrCannotModifyVirtual => "virtual attributes are read-only",
            Error::XattrOrder => "attribute operations come first",
            Error::UnknownVirtualMacro => "unknown part of a virtual attribute in a macro",
            Error::DocumentDeleted => "document is deleted",
            Error::DeletedCannotHaveValue => "a deleted document cannot have a value",
            Error::FieldNotBinary => "the attribute does not hold binary data",
        })
    }
}

impl std::error::Error for Error {}
