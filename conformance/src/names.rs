//! The names that cases use for opcodes, statuses and flags of the binary protocol.

macro_rules! table {
    ($(#[$doc:meta])* $constant:ident: $width:ty, $by_name:ident, $($name:ident = $code:literal,)*) => {
        $(#[$doc])*
        pub const $constant: &[(&str, $width)] = &[$((stringify!($name), $code),)*];

        /// Returns the number of a name.
        pub fn $by_name(name: &str) -> Option<$width> {
            $constant.iter().find(|entry| entry.0 == name).map(|entry| entry.1)
        }
    };
}

table! {
    /// Opcodes by name.
    OPCODES: u8, opcode,
    GET = 0x00, SET = 0x01, ADD = 0x02, REPLACE = 0x03, DELETE = 0x04, INCREMENT = 0x05, DECREMENT = 0x06,
    GETQ = 0x09, NOOP = 0x0a, VERSION = 0x0b, GETK = 0x0c, GETKQ = 0x0d, APPEND = 0x0e, PREPEND = 0x0f,
    SETQ = 0x11, ADDQ = 0x12, REPLACEQ = 0x13, DELETEQ = 0x14, INCREMENTQ = 0x15, DECREMENTQ = 0x16,
    APPENDQ = 0x19, PREPENDQ = 0x1a, TOUCH = 0x1c, GAT = 0x1d, GATQ = 0x1e, HELLO = 0x1f,
    SASL_LIST_MECHS = 0x20, SASL_AUTH = 0x21, SASL_STEP = 0x22, GET_ALL_VB_SEQNOS = 0x48, DCP_OPEN = 0x50,
    DCP_ADD_STREAM = 0x51, DCP_CLOSE_STREAM = 0x52, DCP_STREAM_REQ = 0x53, DCP_GET_FAILOVER_LOG = 0x54,
    DCP_BUFFER_ACK = 0x5d, DCP_CONTROL = 0x5e, GET_REPLICA = 0x83,
    SELECT_BUCKET = 0x89, OBSERVE_SEQNO = 0x91, GET_LOCKED = 0x94, UNLOCK_KEY = 0x95, GET_FAILOVER_LOG = 0x96,
    GET_META = 0xa0, GET_CLUSTER_CONFIG = 0xb5, GET_RANDOM_KEY = 0xb6, GET_MANIFEST = 0xba,
    GET_COLLECTION_ID = 0xbb, GET_SCOPE_ID = 0xbc, SUBDOC_GET = 0xc5, SUBDOC_EXISTS = 0xc6,
    SUBDOC_DICT_ADD = 0xc7, SUBDOC_DICT_UPSERT = 0xc8, SUBDOC_DELETE = 0xc9, SUBDOC_REPLACE = 0xca,
    SUBDOC_ARRAY_PUSH_LAST = 0xcb, SUBDOC_ARRAY_PUSH_FIRST = 0xcc, SUBDOC_ARRAY_INSERT = 0xcd,
    SUBDOC_ARRAY_ADD_UNIQUE = 0xce, SUBDOC_COUNTER = 0xcf, SUBDOC_MULTI_LOOKUP = 0xd0,
    SUBDOC_MULTI_MUTATION = 0xd1, SUBDOC_GET_COUNT = 0xd2, SUBDOC_REPLACE_BODY_WITH_XATTR = 0xd3,
    GET_ERROR_MAP = 0xfe,
}

table! {
    /// Statuses by name.
    STATUSES: u16, status,
    SUCCESS = 0x00, KEY_ENOENT = 0x01, KEY_EEXISTS = 0x02, E2BIG = 0x03, EINVAL = 0x04, NOT_STORED = 0x05,
    DELTA_BADVAL = 0x06, NOT_MY_VBUCKET = 0x07, NO_BUCKET = 0x08, LOCKED = 0x09, NOT_LOCKED = 0x0e,
    CAS_VALUE_INVALID = 0x0f, AUTH_STALE = 0x1f, AUTH_ERROR = 0x20, AUTH_CONTINUE = 0x21, ERANGE = 0x22,
    ROLLBACK = 0x23, EACCESS = 0x24, UNKNOWN_FRAME_INFO = 0x80, UNKNOWN_COMMAND = 0x81, ENOMEM = 0x82,
    NOT_SUPPORTED = 0x83, EINTERNAL = 0x84, EBUSY = 0x85, ETMPFAIL = 0x86, XATTR_EINVAL = 0x87,
    UNKNOWN_COLLECTION = 0x88, UNKNOWN_SCOPE = 0x8c, DURABILITY_INVALID_LEVEL = 0xa0,
    DURABILITY_IMPOSSIBLE = 0xa1, SYNC_WRITE_IN_PROGRESS = 0xa2, SYNC_WRITE_AMBIGUOUS = 0xa3,
    SUBDOC_PATH_ENOENT = 0xc0, SUBDOC_PATH_MISMATCH = 0xc1, SUBDOC_PATH_EINVAL = 0xc2, SUBDOC_PATH_E2BIG = 0xc3,
    SUBDOC_DOC_E2DEEP = 0xc4, SUBDOC_VALUE_CANTINSERT = 0xc5, SUBDOC_DOC_NOTJSON = 0xc6,
    SUBDOC_NUM_ERANGE = 0xc7, SUBDOC_DELTA_EINVAL = 0xc8, SUBDOC_PATH_EEXISTS = 0xc9,
    SUBDOC_VALUE_ETOODEEP = 0xca, SUBDOC_INVALID_COMBO = 0xcb, SUBDOC_MULTI_PATH_FAILURE = 0xcc,
    SUBDOC_SUCCESS_DELETED = 0xcd, SUBDOC_XATTR_INVALID_FLAG_COMBO = 0xce,
    SUBDOC_XATTR_INVALID_KEY_COMBO = 0xcf, SUBDOC_XATTR_UNKNOWN_MACRO = 0xd0, SUBDOC_XATTR_UNKNOWN_VATTR = 0xd1,
    SUBDOC_XATTR_CANT_MODIFY_VATTR = 0xd2, SUBDOC_MULTI_PATH_FAILURE_DELETED = 0xd3,
    SUBDOC_INVALID_XATTR_ORDER = 0xd4, SUBDOC_UNKNOWN_VATTR_MACRO = 0xd5,
    SUBDOC_CAN_ONLY_REVIVE_DELETED = 0xd6, SUBDOC_DELETED_DOC_CANT_HAVE_VALUE = 0xd7,
}

table! {
    /// Flags of a sub-document path.
    PATH_FLAGS: u8, path_flag,
    create_path = 0x01, xattr = 0x04, expand_macros = 0x10, binary = 0x20,
}

table! {
    /// Flags of a sub-document request.
    DOC_FLAGS: u8, doc_flag,
    mkdoc = 0x01, add = 0x02, access_deleted = 0x04, create_as_deleted = 0x08, revive = 0x10, replica_read = 0x20,
}

table! {
    /// Durability levels.
    DURABILITY: u8, durability,
    majority = 1, majority_and_persist_to_active = 2, persist_to_majority = 3,
}

/// Returns the name of a status, or its number in hexadecimal.
pub fn status_name(status: u16) -> String {
    match STATUSES.iter().find(|entry| entry.1 == status) {
        Some((name, _)) => (*name).to_owned(),
        None => format!("0x{status:04x}"),
    }
}
