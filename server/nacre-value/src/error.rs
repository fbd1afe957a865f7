//! The reasons why an operation on a document is refused.

use std::fmt;

/// The reason why an operation on a document was refused. The client must fix each of them.
///
/// There is one variant per status of the protocol (given in brackets), so that the caller's mapping is one
/// `match` without exceptions. The enum is therefore not `#[non_exhaustive]`: a new variant must break the
/// mapping. Source: the sub-document part of the memcached binary protocol as extended by Couchbase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Error {
    /// A part of the path does not exist \[c0 PATH_ENOENT].
    PathNotFound,
    /// The path leads through a value of another kind, such as a name into an array, or the operation needs
    /// another kind of value at the end of the path \[c1 PATH_MISMATCH].
    PathMismatch,
    /// The path is malformed, or is not allowed for the operation \[c2 PATH_EINVAL].
    PathInvalid,
    /// The path is longer or deeper than allowed \[c3 PATH_E2BIG].
    PathTooBig,
    /// The results of a lookup together exceed the maximum size of a document \[03 E2BIG].
    ResultTooBig,
    /// The document is nested too deeply for sub-document operations \[c4 DOC_E2DEEP].
    DocumentTooDeep,
    /// The value is not JSON, or has the wrong kind for its position, or a counter would exceed 64 bits \[c5
    /// VALUE_CANTINSERT].
    ValueCannotInsert,
    /// The document is not JSON \[c6 DOC_NOTJSON].
    DocumentNotJson,
    /// The existing number of a counter exceeds 64 bits \[c7 NUM_ERANGE].
    NumberOutOfRange,
    /// The delta of a counter is zero or not a 64-bit integer \[c8 DELTA_EINVAL].
    DeltaInvalid,
    /// The path already exists; for a unique push, the element does \[c9 PATH_EEXISTS].
    PathExists,
    /// The value would make the document too deeply nested \[ca VALUE_ETOODEEP].
    ValueTooDeep,
    /// There are no operations, more than sixteen, or operations that cannot be combined \[cb INVALID_COMBO].
    InvalidCombination,
    /// The flags of an attribute operation cannot be combined \[ce XATTR_INVALID_FLAG_COMBO].
    XattrFlagCombination,
    /// The name of an attribute is empty, too long, or contains a forbidden byte \[87 XATTR_EINVAL].
    XattrInvalid,
    /// The value names an unknown macro \[d0 XATTR_UNKNOWN_MACRO].
    XattrUnknownMacro,
    /// No virtual attribute has this name \[d1 XATTR_UNKNOWN_VATTR].
    XattrUnknownVirtual,
    /// Virtual attributes are read-only \[d2 XATTR_CANT_MODIFY_VATTR].
    XattrCannotModifyVirtual,
    /// An operation on an attribute follows an operation on the body \[d4 INVALID_XATTR_ORDER].
    XattrOrder,
    /// A macro names a part of a virtual attribute that does not exist \[d5 UNKNOWN_VATTR_MACRO].
    UnknownVirtualMacro,
    /// A deleted document has no body to read \[01 KEY_ENOENT].
    DocumentDeleted,
    /// A deleted document cannot take a body \[d7 DELETED_DOC_CANT_HAVE_VALUE].
    DeletedCannotHaveValue,
    /// An attribute was requested as binary, but is not.
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
