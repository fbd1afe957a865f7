//! Statuses: the results of requests, as the protocol names them.

macro_rules! statuses {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $symbol:literal, $desc:literal, [$($attr:literal),*];)*) => {
        /// The status of a response. Codes, names and attributes are part of the API: clients act on them.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[repr(u16)]
        pub enum Status { #[default] $($(#[$doc])* $name = $code,)* }

        impl Status {
            /// All statuses, with the symbol, description and attributes that the error map contains.
            pub const TABLE: &'static [(Status, &'static str, &'static str, &'static [&'static str])] =
                &[$((Status::$name, $symbol, $desc, &[$($attr),*]),)*];
        }
    };
}

statuses! {
    /// The request has succeeded.
    Success = 0x00, "SUCCESS", "Success", ["success"];
    /// The document does not exist.
    KeyNotFound = 0x01, "KEY_ENOENT", "No document with this key", ["item-only"];
    /// The document exists, or has another CAS.
    KeyExists = 0x02, "KEY_EEXISTS", "The document exists or has another CAS", ["item-only"];
    /// The document would exceed 20 MiB.
    TooBig = 0x03, "E2BIG", "The value is too large", ["item-only", "invalid-input"];
    /// The request is malformed.
    InvalidArguments = 0x04, "EINVAL", "The request is malformed", ["internal", "invalid-input"];
    /// An append or prepend to a missing document.
    NotStored = 0x05, "NOT_STORED", "There is no document to extend", ["item-only"];
    /// A counter operation on a document that is not a number.
    DeltaBadValue = 0x06, "DELTA_BADVAL", "The document is not a decimal number", ["item-only", "invalid-input"];
    /// Another node serves the vBucket.
    NotMyVbucket = 0x07, "NOT_MY_VBUCKET", "The vBucket is served by another node", ["fetch-config", "invalid-input"];
    /// The connection has not selected a bucket.
    NoBucket = 0x08, "NO_BUCKET", "No bucket is selected on this connection", ["conn-state-invalidated"];
    /// The document is locked.
    Locked = 0x09, "LOCKED", "The document is locked", ["item-locked", "item-only", "retry-later"];
    /// The document is not locked.
    NotLocked = 0x0e, "NOT_LOCKED", "The document is not locked", ["item-only"];
    /// The connection must authenticate again.
    AuthStale = 0x1f, "AUTH_STALE", "Authenticate again", ["conn-state-invalidated", "auth"];
    /// The CAS of a version from another cluster is not acceptable.
    CasInvalid = 0x0f, "CAS_VALUE_INVALID", "The CAS is invalid, or too far in the future", ["item-only", "invalid-input"];
    /// Authentication failed.
    AuthError = 0x20, "AUTH_ERROR", "Authentication failed", ["conn-state-invalidated", "auth"];
    /// The authentication needs another step.
    AuthContinue = 0x21, "AUTH_CONTINUE", "Authentication goes on", ["special-handling"];
    /// A number is out of range.
    Range = 0x22, "ERANGE", "A number is out of range", ["invalid-input"];
    /// A DCP consumer must roll back.
    Rollback = 0x23, "ROLLBACK", "Roll back to the given seqno", ["dcp", "special-handling"];
    /// The user lacks the privilege.
    AccessDenied = 0x24, "EACCESS", "Not authorised", ["support", "auth"];
    /// The request carries an unknown framing extra.
    UnknownFrameInfo = 0x80, "UNKNOWN_FRAME_INFO", "Unknown framing extra", ["support"];
    /// The server does not support the opcode.
    UnknownCommand = 0x81, "UNKNOWN_COMMAND", "Unknown command", ["support"];
    /// The server has no memory for the request.
    NoMemory = 0x82, "ENOMEM", "No memory for the request", ["temp", "retry-later"];
    /// The server recognizes the request, but does not support it.
    NotSupported = 0x83, "NOT_SUPPORTED", "Not supported", ["support"];
    /// An internal error of the server.
    Internal = 0x84, "EINTERNAL", "Internal error", ["internal", "conn-state-invalidated"];
    /// The server is busy: the client should try again.
    Busy = 0x85, "EBUSY", "The server is busy", ["temp", "retry-now"];
    /// A temporary failure: the client should try again later.
    TemporaryFailure = 0x86, "ETMPFAIL", "Temporary failure", ["temp", "retry-later"];
    /// Malformed extended attributes.
    XattrInvalid = 0x87, "XATTR_EINVAL", "Malformed extended attributes", ["invalid-input"];
    /// The collection does not exist.
    UnknownCollection = 0x88, "UNKNOWN_COLLECTION", "Unknown collection", ["item-only"];
    /// The client has a newer manifest than the server.
    ManifestAhead = 0x8b, "MANIFEST_IS_AHEAD", "The client's manifest is newer than the server's", ["item-only", "retry-later"];
    /// The scope does not exist.
    UnknownScope = 0x8c, "UNKNOWN_SCOPE", "Unknown scope", ["item-only"];
    /// A DCP stream needs a stream ID, or must not have one.
    DcpStreamIdInvalid = 0x8d, "DCP_STREAMID_INVALID", "The stream needs an id, or must not have one", ["dcp", "invalid-input"];
    /// The server does not support this durability level.
    DurabilityInvalidLevel = 0xa0, "DURABILITY_INVALID_LEVEL", "Invalid durability level", ["invalid-input"];
    /// The vBucket has too few copies for the durability level.
    DurabilityImpossible = 0xa1, "DURABILITY_IMPOSSIBLE", "Too few nodes for this durability level", ["item-only"];
    /// A durable write to the document is in progress.
    SyncWriteInProgress = 0xa2, "SYNC_WRITE_IN_PROGRESS", "A durable write to the document is under way", ["item-only", "retry-later"];
    /// The durable write has timed out: it may or may not take effect.
    SyncWriteAmbiguous = 0xa3, "SYNC_WRITE_AMBIGUOUS", "The durable write was given up and may have happened", ["item-only"];
    /// A durable write from before a failover is being committed again.
    SyncWriteReCommitInProgress = 0xa4, "SYNC_WRITE_RE_COMMIT_IN_PROGRESS", "A durable write to the document is being committed again", ["item-only", "retry-later"];
    /// Another request has cancelled the scan.
    RangeScanCancelled = 0xa5, "RANGE_SCAN_CANCELLED", "The scan was cancelled", ["item-only"];
    /// The scan has more results.
    RangeScanMore = 0xa6, "RANGE_SCAN_MORE", "The scan has more", ["success"];
    /// The scan is complete.
    RangeScanComplete = 0xa7, "RANGE_SCAN_COMPLETE", "The scan is at its end", ["success"];
    /// The vBucket UUID differs from the client's.
    VbUuidNotEqual = 0xa8, "VB_UUID_NOT_EQUAL", "The vBucket has another UUID", ["item-only"];
    /// The path does not exist.
    PathNotFound = 0xc0, "SUBDOC_PATH_ENOENT", "The path does not exist", ["item-only", "subdoc"];
    /// A part of the path refers to a value of another type.
    PathMismatch = 0xc1, "SUBDOC_PATH_MISMATCH", "The path does not match the document", ["item-only", "subdoc"];
    /// The path is malformed.
    PathInvalid = 0xc2, "SUBDOC_PATH_EINVAL", "The path is malformed", ["invalid-input", "subdoc"];
    /// The path is too long.
    PathTooBig = 0xc3, "SUBDOC_PATH_E2BIG", "The path is too long or too deep", ["invalid-input", "subdoc"];
    /// The document is nested too deeply.
    DocTooDeep = 0xc4, "SUBDOC_DOC_E2DEEP", "The document is nested too deeply", ["item-only", "subdoc"];
    /// The value cannot be inserted at the path.
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
    /// The operations or flags cannot be combined.
    InvalidCombo = 0xcb, "SUBDOC_INVALID_COMBO", "The operations do not go together", ["invalid-input", "subdoc"];
    /// At least one of several operations has failed.
    MultiPathFailure = 0xcc, "SUBDOC_MULTI_PATH_FAILURE", "An operation failed", ["special-handling", "subdoc"];
    /// The request has succeeded on a tombstone.
    SuccessDeleted = 0xcd, "SUBDOC_SUCCESS_DELETED", "Success, the document is deleted", ["item-deleted", "success", "subdoc"];
    /// The flags of an extended attribute cannot be combined.
    XattrFlagCombo = 0xce, "SUBDOC_XATTR_INVALID_FLAG_COMBO", "The attribute flags do not go together", ["invalid-input", "subdoc"];
    /// The keys of extended attributes cannot be combined.
    XattrKeyCombo = 0xcf, "SUBDOC_XATTR_INVALID_KEY_COMBO", "The attribute keys do not go together", ["invalid-input", "subdoc"];
    /// The macro does not exist.
    XattrUnknownMacro = 0xd0, "SUBDOC_XATTR_UNKNOWN_MACRO", "Unknown macro", ["invalid-input", "subdoc"];
    /// The virtual attribute does not exist.
    XattrUnknownVattr = 0xd1, "SUBDOC_XATTR_UNKNOWN_VATTR", "Unknown virtual attribute", ["invalid-input", "subdoc"];
    /// Virtual attributes are read-only.
    XattrReadOnlyVattr = 0xd2, "SUBDOC_XATTR_CANT_MODIFY_VATTR", "Virtual attributes are read-only", ["invalid-input", "subdoc"];
    /// At least one of several operations on a tombstone has failed.
    MultiPathFailureDeleted = 0xd3, "SUBDOC_MULTI_PATH_FAILURE_DELETED", "An operation failed, the document is deleted", ["item-deleted", "special-handling", "subdoc"];
    /// Attribute operations must come first.
    XattrOrder = 0xd4, "SUBDOC_INVALID_XATTR_ORDER", "Attribute operations must come first", ["invalid-input", "subdoc"];
    /// A macro names a missing part of a virtual attribute.
    UnknownVattrMacro = 0xd5, "SUBDOC_XATTR_UNKNOWN_VATTR_MACRO", "Unknown virtual attribute macro", ["invalid-input", "subdoc"];
    /// Only a tombstone can be revived.
    CanOnlyReviveDeleted = 0xd6, "SUBDOC_CAN_ONLY_REVIVE_DELETED_DOCUMENTS", "Only a deleted document can be revived", ["item-only", "subdoc"];
    /// A tombstone cannot have a body.
    DeletedCannotHaveValue = 0xd7, "SUBDOC_DELETED_DOCUMENT_CANT_HAVE_VALUE", "A deleted document cannot take a body", ["invalid-input", "subdoc"];
    /// The client requested binary data, but the attribute does not contain any.
    FieldNotBinary = 0xd8, "SUBDOC_FIELD_NOT_BINARY_VALUE", "The attribute does not hold binary data", ["item-only", "subdoc"];
}
