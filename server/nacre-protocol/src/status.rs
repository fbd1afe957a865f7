//! Statuses: the vocabulary in which the server says how a request went.

macro_rules! statuses {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $symbol:literal, $desc:literal, [$($attr:literal),*];)*) => {
        /// The status of an answer. Codes, names and attributes are API: clients act on them.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[repr(u16)]
        pub enum Status { #[default] $($(#[$doc])* $name = $code,)* }

        impl Status {
            /// All statuses with the symbol, description and attributes that the error map gives clients.
            pub const TABLE: &'static [(Status, &'static str, &'static str, &'static [&'static str])] =
                &[$((Status::$name, $symbol, $desc, &[$($attr),*]),)*];
        }
    };
}

statuses! {
    /// Done.
    Success = 0x00, "SUCCESS", "Success", ["success"];
    /// No such key.
    KeyNotFound = 0x01, "KEY_ENOENT", "No document with this key", ["item-only"];
    /// The key exists, or the CAS is another.
    KeyExists = 0x02, "KEY_EEXISTS", "The document exists or has another CAS", ["item-only"];
    /// The document would be larger than 20 MiB.
    TooBig = 0x03, "E2BIG", "The value is too large", ["item-only", "invalid-input"];
    /// The request is malformed.
    InvalidArguments = 0x04, "EINVAL", "The request is malformed", ["internal", "invalid-input"];
    /// Append or prepend to a missing document.
    NotStored = 0x05, "NOT_STORED", "There is no document to extend", ["item-only"];
    /// A counter on something that is not a number.
    DeltaBadValue = 0x06, "DELTA_BADVAL", "The document is not a decimal number", ["item-only", "invalid-input"];
    /// The vBucket is served by another node.
    NotMyVbucket = 0x07, "NOT_MY_VBUCKET", "The vBucket is served by another node", ["fetch-config", "invalid-input"];
    /// No bucket was selected.
    NoBucket = 0x08, "NO_BUCKET", "No bucket is selected on this connection", ["conn-state-invalidated"];
    /// The document is locked.
    Locked = 0x09, "LOCKED", "The document is locked", ["item-locked", "item-only", "retry-later"];
    /// The document is not locked.
    NotLocked = 0x0e, "NOT_LOCKED", "The document is not locked", ["item-only"];
    /// The connection must authenticate again.
    AuthStale = 0x1f, "AUTH_STALE", "Authenticate again", ["conn-state-invalidated", "auth"];
    /// The CAS of a version from elsewhere cannot be taken over.
    CasInvalid = 0x0f, "CAS_VALUE_INVALID", "The CAS is invalid, or too far in the future", ["item-only", "invalid-input"];
    /// Authentication failed.
    AuthError = 0x20, "AUTH_ERROR", "Authentication failed", ["conn-state-invalidated", "auth"];
    /// Authentication goes on.
    AuthContinue = 0x21, "AUTH_CONTINUE", "Authentication goes on", ["special-handling"];
    /// A number is out of range.
    Range = 0x22, "ERANGE", "A number is out of range", ["invalid-input"];
    /// A DCP consumer must roll back.
    Rollback = 0x23, "ROLLBACK", "Roll back to the given seqno", ["dcp", "special-handling"];
    /// The user may not do that.
    AccessDenied = 0x24, "EACCESS", "Not authorised", ["support", "auth"];
    /// The request carries an unknown framing extra.
    UnknownFrameInfo = 0x80, "UNKNOWN_FRAME_INFO", "Unknown framing extra", ["support"];
    /// The server does not know the opcode.
    UnknownCommand = 0x81, "UNKNOWN_COMMAND", "Unknown command", ["support"];
    /// Out of memory.
    NoMemory = 0x82, "ENOMEM", "No memory for the request", ["temp", "retry-later"];
    /// Known, but not supported here.
    NotSupported = 0x83, "NOT_SUPPORTED", "Not supported", ["support"];
    /// A fault of the server.
    Internal = 0x84, "EINTERNAL", "Internal error", ["internal", "conn-state-invalidated"];
    /// Busy: try again.
    Busy = 0x85, "EBUSY", "The server is busy", ["temp", "retry-now"];
    /// Temporarily unable: try again later.
    TemporaryFailure = 0x86, "ETMPFAIL", "Temporary failure", ["temp", "retry-later"];
    /// Malformed extended attributes.
    XattrInvalid = 0x87, "XATTR_EINVAL", "Malformed extended attributes", ["invalid-input"];
    /// The collection is unknown.
    UnknownCollection = 0x88, "UNKNOWN_COLLECTION", "Unknown collection", ["item-only"];
    /// The client knows a newer manifest than the server.
    ManifestAhead = 0x8b, "MANIFEST_IS_AHEAD", "The client's manifest is newer than the server's", ["item-only", "retry-later"];
    /// The scope is unknown.
    UnknownScope = 0x8c, "UNKNOWN_SCOPE", "Unknown scope", ["item-only"];
    /// A DCP stream needs an id, or must not have one.
    DcpStreamIdInvalid = 0x8d, "DCP_STREAMID_INVALID", "The stream needs an id, or must not have one", ["dcp", "invalid-input"];
    /// No such durability level here.
    DurabilityInvalidLevel = 0xa0, "DURABILITY_INVALID_LEVEL", "Invalid durability level", ["invalid-input"];
    /// Too few nodes for the durability level.
    DurabilityImpossible = 0xa1, "DURABILITY_IMPOSSIBLE", "Too few nodes for this durability level", ["item-only"];
    /// A durable write to the document is under way.
    SyncWriteInProgress = 0xa2, "SYNC_WRITE_IN_PROGRESS", "A durable write to the document is under way", ["item-only", "retry-later"];
    /// The durable write was given up, and may have happened.
    SyncWriteAmbiguous = 0xa3, "SYNC_WRITE_AMBIGUOUS", "The durable write was given up and may have happened", ["item-only"];
    /// A durable write of before the vBucket was served here is being committed again.
    SyncWriteReCommitInProgress = 0xa4, "SYNC_WRITE_RE_COMMIT_IN_PROGRESS", "A durable write to the document is being committed again", ["item-only", "retry-later"];
    /// The scan was ended by another request.
    RangeScanCancelled = 0xa5, "RANGE_SCAN_CANCELLED", "The scan was cancelled", ["item-only"];
    /// The scan has more.
    RangeScanMore = 0xa6, "RANGE_SCAN_MORE", "The scan has more", ["success"];
    /// The scan is at its end.
    RangeScanComplete = 0xa7, "RANGE_SCAN_COMPLETE", "The scan is at its end", ["success"];
    /// The history of the vBucket is another.
    VbUuidNotEqual = 0xa8, "VB_UUID_NOT_EQUAL", "The vBucket has another UUID", ["item-only"];
    /// The path does not exist.
    PathNotFound = 0xc0, "SUBDOC_PATH_ENOENT", "The path does not exist", ["item-only", "subdoc"];
    /// A part of the path has another type.
    PathMismatch = 0xc1, "SUBDOC_PATH_MISMATCH", "The path does not match the document", ["item-only", "subdoc"];
    /// The path is malformed.
    PathInvalid = 0xc2, "SUBDOC_PATH_EINVAL", "The path is malformed", ["invalid-input", "subdoc"];
    /// The path is too long.
    PathTooBig = 0xc3, "SUBDOC_PATH_E2BIG", "The path is too long or too deep", ["invalid-input", "subdoc"];
    /// The document is nested too deeply.
    DocTooDeep = 0xc4, "SUBDOC_DOC_E2DEEP", "The document is nested too deeply", ["item-only", "subdoc"];
    /// The value cannot be inserted there.
    CannotInsert = 0xc5, "SUBDOC_VALUE_CANTINSERT", "The value cannot be inserted", ["invalid-input", "subdoc"];
    /// The document is not JSON.
    DocNotJson = 0xc6, "SUBDOC_DOC_NOTJSON", "The document is not JSON", ["item-only", "subdoc"];
    /// The number at the path is out of range.
    NumberRange = 0xc7, "SUBDOC_NUM_ERANGE", "The number is out of range", ["item-only", "subdoc"];
    /// The delta is invalid.
    DeltaInvalid = 0xc8, "SUBDOC_DELTA_EINVAL", "The delta is invalid", ["invalid-input", "subdoc"];
    /// The path exists.
    PathExists = 0xc9, "SUBDOC_PATH_EEXISTS", "The path exists", ["item-only", "subdoc"];
    /// The value would be nested too deeply.
    ValueTooDeep = 0xca, "SUBDOC_VALUE_ETOODEEP", "The value is nested too deeply", ["invalid-input", "subdoc"];
    /// The operations or flags do not go together.
    InvalidCombo = 0xcb, "SUBDOC_INVALID_COMBO", "The operations do not go together", ["invalid-input", "subdoc"];
    /// At least one of several operations failed.
    MultiPathFailure = 0xcc, "SUBDOC_MULTI_PATH_FAILURE", "An operation failed", ["special-handling", "subdoc"];
    /// Done, on a tombstone.
    SuccessDeleted = 0xcd, "SUBDOC_SUCCESS_DELETED", "Success, the document is deleted", ["item-deleted", "success", "subdoc"];
    /// The flags of an extended attribute do not go together.
    XattrFlagCombo = 0xce, "SUBDOC_XATTR_INVALID_FLAG_COMBO", "The attribute flags do not go together", ["invalid-input", "subdoc"];
    /// The key of an extended attribute is invalid.
    XattrKeyCombo = 0xcf, "SUBDOC_XATTR_INVALID_KEY_COMBO", "The attribute keys do not go together", ["invalid-input", "subdoc"];
    /// No such macro.
    XattrUnknownMacro = 0xd0, "SUBDOC_XATTR_UNKNOWN_MACRO", "Unknown macro", ["invalid-input", "subdoc"];
    /// No such virtual attribute.
    XattrUnknownVattr = 0xd1, "SUBDOC_XATTR_UNKNOWN_VATTR", "Unknown virtual attribute", ["invalid-input", "subdoc"];
    /// Virtual attributes are read-only.
    XattrReadOnlyVattr = 0xd2, "SUBDOC_XATTR_CANT_MODIFY_VATTR", "Virtual attributes are read-only", ["invalid-input", "subdoc"];
    /// At least one of several operations failed, on a tombstone.
    MultiPathFailureDeleted = 0xd3, "SUBDOC_MULTI_PATH_FAILURE_DELETED", "An operation failed, the document is deleted", ["item-deleted", "special-handling", "subdoc"];
    /// Attribute operations must come first.
    XattrOrder = 0xd4, "SUBDOC_INVALID_XATTR_ORDER", "Attribute operations must come first", ["invalid-input", "subdoc"];
    /// A macro names a part of a virtual attribute that does not exist.
    UnknownVattrMacro = 0xd5, "SUBDOC_XATTR_UNKNOWN_VATTR_MACRO", "Unknown virtual attribute macro", ["invalid-input", "subdoc"];
    /// Only a tombstone can be revived.
    CanOnlyReviveDeleted = 0xd6, "SUBDOC_CAN_ONLY_REVIVE_DELETED_DOCUMENTS", "Only a deleted document can be revived", ["item-only", "subdoc"];
    /// A tombstone cannot take a body.
    DeletedCannotHaveValue = 0xd7, "SUBDOC_DELETED_DOCUMENT_CANT_HAVE_VALUE", "A deleted document cannot take a body", ["invalid-input", "subdoc"];
    /// The attribute was asked for as bytes, and is none.
    FieldNotBinary = 0xd8, "SUBDOC_FIELD_NOT_BINARY_VALUE", "The attribute does not hold binary data", ["item-only", "subdoc"];
}
